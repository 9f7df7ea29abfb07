//! A virtual dataset as an array: chunks of its sources, and of its fill value.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use tesseral_core::{ArraySchema, CellLen, Error, ErrorKind, Region, Result, Selection, Slice, alloc};
use tesseral_format::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Cover, Part, Planned, PlannedChunk,
    Request, Scratch, Target, Uncovered, contiguous_chunk_shape, contiguous_runs,
};
use tesseral_store::{JoinedStore, Rounds, Store};

use crate::dataset::DatasetInfo;
use crate::dimension::NamedExtent;
use crate::file::File;
use crate::mapping::{BoxMap, BoxPair, Mapping, uncovered};
use crate::recipe::ElementDecoder;

/// Layers that a source can have of its own, if it is a virtual dataset too.
const LAYERS: u32 = 1 << 12;
/// Bytes that planning a box counts as, and a step of finding cells without a source.
const BOX_COST: u64 = 1024;
const STEP_COST: u64 = 64;

/// The array of a virtual dataset.
#[derive(Debug)]
pub(crate) struct VirtualDataset {
    schema: ArraySchema,
    shape: Vec<u64>,
    file: File,
    /// Writes the fill value.
    decoder: ElementDecoder,
    mappings: Vec<MappedSource>,
    /// The member of compound elements that this is.
    member: Option<String>,
    planned: Mutex<PlannedPieces>,
}

/// A mapping and its source, opened when it is needed.
#[derive(Debug)]
struct MappedSource {
    mapping: Mapping,
    /// `None` if file or dataset do not exist.
    source: OnceLock<Option<OpenSource>>,
}

/// A dataset that cells are mapped from.
#[derive(Debug)]
struct OpenSource {
    file: u32,
    array: Arc<dyn ArraySource>,
    store: Arc<dyn Store>,
    /// Bytes of the file.
    len: u64,
    maps: Vec<BoxMap>,
}

/// What a chunk of the array is made of.
#[derive(Clone, Debug, PartialEq)]
enum MappedPiece {
    /// Cells that no source has.
    Fill,
    /// Cells of a chunk of the source of a mapping: all of its tile, or this box of it.
    Chunk { mapping: usize, chunk: Box<PlannedChunk>, part: Option<Region> },
}

/// Pieces that were planned, by number, and the objects of their parts.
#[derive(Debug)]
struct PlannedPieces {
    /// By mapping (0 for fill values), chunk of the source, and cells.
    known: HashMap<(usize, u64, Region), u64>,
    list: Vec<Arc<MappedPiece>>,
    objects: HashMap<(u32, u32), u32>,
    /// The first is the file itself.
    names: Vec<String>,
}

impl Default for PlannedPieces {
    fn default() -> Self {
        let (known, objects) = (HashMap::new(), HashMap::new());
        Self { known, list: Vec::new(), objects, names: vec![String::new()] }
    }
}

impl PlannedPieces {
    /// The number of the piece of a mapping, or of fill values, that provides the cells of a box.
    fn number(
        &mut self,
        mapping: usize,
        chunk: u64,
        cells: &Region,
        piece: impl FnOnce() -> MappedPiece,
    ) -> u64 {
        let next = self.list.len() as u64;
        let number = *self.known.entry((mapping, chunk, cells.clone())).or_insert(next);
        if number == next {
            self.list.push(Arc::new(piece()));
        }
        number
    }

    fn object(&mut self, file: u32, inner: u32, name: impl FnOnce() -> String) -> u32 {
        let next = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        let number = *self.objects.entry((file, inner)).or_insert(next);
        if number == next {
            self.names.push(JoinedStore::object(file, &name()));
        }
        number
    }
}

/// Mappings of a virtual dataset, one for each file of a numbered one, and the extents that follow from the sources.
///
/// # Errors
/// `Corrupt`, `Unsupported`, `Limit`; errors of opening sources, if they determine an extent.
pub(crate) fn expand(file: &File, mappings: Vec<Mapping>, shape: &mut [u64]) -> Result<Vec<Mapping>> {
    let mut all = Vec::with_capacity(mappings.len());
    let mut ends: HashMap<usize, u64> = HashMap::new();
    for mapping in mappings {
        let Some(axis) = mapping.grows().filter(|axis| *axis < shape.len()) else {
            all.push(mapping);
            continue;
        };
        let end = ends.entry(axis).or_default();
        if mapping.is_numbered() {
            for block in 0.. {
                file.limits.check_plan(all.len() as u64)?;
                let Some(one) = mapping.numbered(block) else { break };
                if find(file, &one, None).map_err(unreadable)?.is_none() {
                    break;
                }
                *end = (*end).max(one.end(axis, None).unwrap_or(0));
                all.push(one);
            }
            continue;
        }
        let source = find(file, &mapping, None).map_err(unreadable)?;
        let extents = source.as_ref().and_then(|(_, array, _)| array.schema().shape());
        *end = (*end).max(mapping.end(axis, extents.as_deref()).unwrap_or(0));
        all.push(mapping);
    }
    for (axis, end) in ends {
        let fixed =
            all.iter().filter(|mapping| mapping.grows() != Some(axis)).filter_map(|one| one.end(axis, None));
        shape[axis] = fixed.fold(end, u64::max);
    }
    Ok(all)
}

/// The error of a source that an extent follows from. It does not hide the other datasets of the file.
fn unreadable(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unsupported { .. } | ErrorKind::Cancelled => error,
        _ => Error::unsupported(format!("a virtual dataset whose source cannot be read: {error}")),
    }
}

thread_local! {
    /// The work of the request that this thread plans.
    static PLANNED_WORK: RefCell<MultipliedBoxes> = RefCell::default();
}

/// Work of planning one request: datasets whose sources are virtual themselves multiply their boxes.
#[derive(Debug, Default)]
struct MultipliedBoxes {
    /// Number of virtual datasets that are being planned, each for the one before it.
    depth: usize,
    boxes: u64,
    /// Bytes of all files, each counted once.
    stored: u64,
    files: HashSet<String>,
}

/// The part of a virtual dataset in the work of a request.
struct PlanningWork;

impl PlanningWork {
    /// Begins to plan a dataset of a file of that many bytes.
    fn begin(stored: u64) -> Self {
        PLANNED_WORK.with_borrow_mut(|work| {
            if work.depth == 0 {
                *work = MultipliedBoxes { stored, ..MultipliedBoxes::default() };
            }
            work.depth += 1;
        });
        Self
    }

    fn add_file(&self, store: &Arc<dyn Store>, len: u64) {
        PLANNED_WORK.with_borrow_mut(|work| {
            if !work.files.contains(store.location()) {
                work.files.insert(store.location().to_owned());
                work.stored = work.stored.saturating_add(len);
            }
        });
    }

    fn add_boxes(&self, count: u64) {
        PLANNED_WORK.with_borrow_mut(|work| work.boxes = work.boxes.saturating_add(count));
    }

    fn boxes(&self) -> u64 {
        PLANNED_WORK.with_borrow(|work| work.boxes)
    }

    fn stored(&self) -> u64 {
        PLANNED_WORK.with_borrow(|work| work.stored)
    }
}

impl Drop for PlanningWork {
    fn drop(&mut self) {
        PLANNED_WORK.with_borrow_mut(|work| work.depth = work.depth.saturating_sub(1));
    }
}

/// The dataset that a mapping names: number of its file, array and store.
type FoundSource = (u32, Arc<dyn ArraySource>, Arc<dyn Store>);

/// Finds the source of a mapping, or a member of its elements; `None` if the file or the dataset does not exist.
fn find(file: &File, mapping: &Mapping, member: Option<&str>) -> Result<Option<FoundSource>> {
    let (name, dataset) = mapping.names(0);
    let number = file.siblings.number(&name)?;
    let Some(opened) = file.siblings.opened(number)? else { return Ok(None) };
    let path = dataset.trim_start_matches('/');
    let path = member.map_or_else(|| path.to_owned(), |member| format!("{path}/{member}"));
    match opened.find(&path) {
        Ok(at) => Ok(Some((number, Arc::clone(&opened.arrays[at]), Arc::clone(&opened.store)))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => {
            // Compound elements are several arrays.
            let inner = format!("{path}/");
            let compound = member.is_none() && opened.names.iter().any(|name| name.starts_with(&inner));
            match compound.then(|| opened.names.iter().position(|name| name.starts_with(&inner))).flatten() {
                Some(at) => Ok(Some((number, Arc::clone(&opened.arrays[at]), Arc::clone(&opened.store)))),
                None => Ok(None),
            }
        }
        Err(error) => Err(error),
    }
}

impl VirtualDataset {
    pub(crate) fn new(
        name: &str,
        info: DatasetInfo,
        mappings: Vec<Mapping>,
        dims: &[NamedExtent],
        file: &File,
    ) -> Result<Self> {
        let DatasetInfo { cell, shape, pipeline, fill, attributes, member, .. } = info;
        let mappings =
            mappings.into_iter().map(|mapping| MappedSource { mapping, source: OnceLock::new() }).collect();
        let decoder = ElementDecoder { cell, pipeline, fill };
        let schema = decoder.schema(name, dims, attributes, &[]);
        let mut array =
            Self { schema, shape, file: file.clone(), decoder, mappings, member, planned: Mutex::default() };
        array.schema.chunk_shape = Some(array.chunk_shape().into_iter().collect());
        Ok(array)
    }

    /// Extents of the chunks of the first source, along the axes that correspond.
    fn chunk_shape(&self) -> Vec<u64> {
        let extents = self.extents();
        let size = self.decoder.cell.size as u64;
        let contiguous = || contiguous_chunk_shape(&extents, size).to_vec();
        // Sources of sources are planned, not shown. Reading reports what is wrong with a source.
        if self.file.siblings.is_nested() {
            return contiguous();
        }
        let Some(Ok(Some(source))) = (!self.mappings.is_empty()).then(|| self.source(0)) else {
            return contiguous();
        };
        let (Some(chunk), Some(map)) = (&source.array.schema().chunk_shape, source.maps.first()) else {
            return contiguous();
        };
        let mut out = vec![1; extents.len()];
        for (there, here) in map.axes() {
            if let (Some(n), Some(own)) = (chunk.get(there), out.get_mut(here)) {
                *own = (*n).clamp(1, extents[here].max(1));
            }
        }
        out
    }

    /// A line about files of the mappings that do not exist, if there are any: their cells are fill values.
    pub(crate) fn absent(&self) -> Option<String> {
        let mut names: Vec<String> = self.mappings.iter().map(|mapped| mapped.mapping.names(0).0).collect();
        names.sort_unstable();
        names.dedup();
        let total = names.len();
        names.retain(|name| self.file.siblings.exists(name).is_ok_and(|exists| !exists));
        let first = names.first()?;
        let name = &self.schema.name;
        Some(format!("{name}: {} of {total} files do not exist ({first}): fill values", names.len()))
    }

    /// Extents with those of elements.
    fn extents(&self) -> Vec<u64> {
        self.shape.iter().chain(&self.decoder.cell.dims).copied().collect()
    }

    /// The source of a mapping; `None` if it does not exist.
    fn source(&self, number: usize) -> Result<Option<&OpenSource>> {
        let mapped = self.mappings.get(number).ok_or_else(|| Error::internal("an unknown mapping"))?;
        if let Some(source) = mapped.source.get() {
            return Ok(source.as_ref());
        }
        let opened = match find(&self.file, &mapped.mapping, self.member.as_deref())? {
            None => None,
            Some((file, array, store)) => {
                let (own, field) = (&self.schema.fields[0], &array.schema().fields[0]);
                if (own.dtype, own.cell) != (field.dtype, field.cell) {
                    let (file, dataset) = mapped.mapping.names(0);
                    return Err(Error::unsupported(format!(
                        "a virtual dataset of {} over {} ({dataset} in {file})",
                        own.dtype, field.dtype
                    )));
                }
                let shape = array.schema().shape().unwrap_or_default();
                let elements = self.decoder.cell.dims.len();
                let outer = &shape[..shape.len().saturating_sub(elements)];
                let maps = mapped.mapping.boxes(outer, &self.shape)?;
                let maps = maps.into_iter().map(|map| map.with_elements(&self.decoder.cell.dims)).collect();
                let len = store.len("")?;
                Some(OpenSource { file, array, store, len, maps })
            }
        };
        Ok(mapped.source.get_or_init(|| opened).as_ref())
    }

    fn chunk_plan(&self, request: &Request) -> Result<ChunkPlan> {
        let Some(selection) = request.selection() else {
            return Err(Error::internal("a request by coordinates"));
        };
        let window = selection.bounds();
        let mut plan = ChunkPlan::disjoint(Vec::new());
        if window.is_empty() {
            return Ok(plan);
        }
        let mut covered = Vec::new();
        // Mappings can claim any number of boxes, also of sources that are small.
        let work = PlanningWork::begin(hdf5_reader::Storage::len(&*self.file.storage));
        for number in 0..self.mappings.len() {
            self.file.storage.check_canceled()?;
            if !self.mappings[number].mapping.touches(&window) {
                continue;
            }
            let Some(source) = self.source(number)? else {
                if self.file.strict {
                    let (file, dataset) = self.mappings[number].mapping.names(0);
                    return Err(Error::not_found("source", format!("{dataset} in {file}"), Vec::new()));
                }
                continue;
            };
            let extents = source.array.schema().shape().unwrap_or_default();
            work.add_file(&source.store, source.len);
            for map in &source.maps {
                let admit = |n: u64| self.check_work(n.saturating_add(work.boxes()), BOX_COST, work.stored());
                for pair in map.touching(&window, &extents, admit)? {
                    if let Some(part) = pair.target.intersect(&window) {
                        covered.push(part);
                    }
                    let before = plan.chunks.len();
                    self.plan_box(number, source, map, &pair, request, selection, &mut plan)?;
                    work.add_boxes(1 + (plan.chunks.len() - before) as u64);
                    self.check_work(work.boxes(), BOX_COST, work.stored())?;
                }
            }
        }
        self.plan_fill(&window, &covered, work.stored(), request, &mut plan)?;
        Ok(plan)
    }

    /// Adds the chunks of a box of a source.
    #[allow(clippy::too_many_arguments)]
    fn plan_box(
        &self,
        number: usize,
        source: &OpenSource,
        map: &BoxMap,
        pair: &BoxPair,
        request: &Request,
        selection: &Selection,
        out: &mut ChunkPlan,
    ) -> Result<()> {
        let shape = source.array.schema().shape().unwrap_or_default();
        let mut slices: Vec<Slice> =
            pair.source.bounds().iter().map(|(start, end)| Slice::new(*start, *end)).collect();
        for (there, here) in map.axes() {
            let from = pair.target.start(here);
            let (part, _) = selection.slices()[here].clip(from, pair.target.end(here));
            if part.count() == 0 {
                return Ok(());
            }
            let inward = |at: u64| at.saturating_sub(from).saturating_add(pair.source.start(there));
            slices[there] = Slice { start: inward(part.start), end: inward(part.end), step: part.step };
        }
        let target = Target::Cells(Selection::new(slices, &shape)?);
        let inner = Request { target, columns: request.columns.clone(), condition: None };
        let plan = tesseral_format::plan(&*source.array, &source.store, &inner)?;
        self.file.limits.check_plan((out.chunks.len() as u64).saturating_add(plan.chunks.len() as u64))?;
        if plan.uncovered == Uncovered::Fill {
            out.uncovered = Uncovered::Fill;
        }
        for chunk in plan.chunks {
            let Cover::Exact(region) = &chunk.cover else {
                return Err(Error::internal("a chunk of a dataset without a box"));
            };
            let Some(within) = region.intersect(&pair.source) else { continue };
            let cells = map.outward(pair, &within);
            let complete = chunk.tile.is_none() && within == *region;
            let part = (!complete).then_some(within);
            let layer = u32::try_from(number + 1)
                .unwrap_or(u32::MAX)
                .saturating_mul(LAYERS)
                .saturating_add(chunk.layer);
            let mut pieces = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
            let mut parts = chunk.parts.clone();
            for part in &mut parts {
                part.object =
                    pieces.object(source.file, part.object, || source.array.object(part.object).into_owned());
            }
            let access = if complete { chunk.access } else { Access::Coded { granule: None } };
            let id = pieces.number(number + 1, chunk.id, &cells, || MappedPiece::Chunk {
                mapping: number,
                chunk: Box::new(chunk),
                part,
            });
            out.chunks.push(PlannedChunk { layer, ..PlannedChunk::exact(id, cells, parts, access) });
        }
        Ok(())
    }

    /// Limits the work of planning, as a number of bytes for each unit of it.
    fn check_work(&self, units: u64, cost: u64, stored: u64) -> Result<()> {
        self.file.limits.check_total("the boxes of a virtual dataset", units.saturating_mul(cost), stored)
    }

    /// Adds chunks of fill values for what no source has, and states whether sources overlap.
    fn plan_fill(
        &self,
        window: &Region,
        covered: &[Region],
        stored: u64,
        request: &Request,
        plan: &mut ChunkPlan,
    ) -> Result<()> {
        let limits = &self.file.limits;
        let rest = uncovered(window, covered, &|steps| self.check_work(steps, STEP_COST, stored))?;
        let cells = |boxes: &[Region]| {
            boxes.iter().map(|one| one.cells().unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
        };
        let unwritten = cells(&rest);
        limits.check_total(
            "unwritten cells",
            unwritten.saturating_mul(self.decoder.cell.size as u64),
            plan.stored_bytes(),
        )?;
        let mut pieces = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        // Steps of the selection can skip all cells of a box.
        let selected = |region: &Region| request.selection().is_some_and(|all| all.clip(region).is_some());
        for region in rest.into_iter().filter(selected) {
            let id = pieces.number(0, 0, &region, || MappedPiece::Fill);
            let part = |column: &Column| Part::values(*column, 0, &(0..0));
            let parts = request.columns.iter().map(part).collect();
            let granule = (self.decoder.cell.cell != CellLen::Var).then_some(1);
            plan.chunks.push(PlannedChunk::exact(id, region, parts, Access::Coded { granule }));
        }
        if cells(covered).saturating_add(unwritten) != window.cells().unwrap_or(u64::MAX) {
            // The mapping that is listed later wins.
            plan.uncovered = Uncovered::Fill;
        } else {
            plan.chunks.iter_mut().for_each(|chunk| chunk.layer %= LAYERS);
        }
        if plan.uncovered == Uncovered::Fill {
            plan.chunks.iter_mut().for_each(|chunk| chunk.whole = false);
        }
        Ok(())
    }

    fn piece(&self, chunk: &PlannedChunk) -> Result<Arc<MappedPiece>> {
        let pieces = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        let piece = usize::try_from(chunk.id).ok().and_then(|at| pieces.list.get(at).cloned());
        piece.ok_or_else(|| Error::internal("a chunk that was not planned"))
    }

    /// Decodes a chunk of a source as a whole and keeps a box of it.
    fn decode_part(
        &self,
        array: &dyn ArraySource,
        (chunk, part): (&PlannedChunk, &Region),
        column: Column,
        parts: &[Bytes],
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Some(tile) = chunk.tile_region() else {
            return Err(Error::internal("a chunk of a dataset without a box"));
        };
        let inner = part.bounds().iter().zip(tile.bounds());
        let inner = Region::new(inner.map(|((start, end), (first, _))| (start - first, end - first)));
        let runs = contiguous_runs(&tile.shape(), &inner);
        let (run, starts) = runs.ok_or_else(|| Error::internal("a chunk of more than 2^64 cells"))?;
        let at = |cell: u64| usize::try_from(cell).unwrap_or(usize::MAX);
        let damaged = || Error::codec("virtual", "the chunk of a source has too few cells");
        match out {
            ColumnMut::Fixed { values, validity: None } => {
                let size = self.decoder.cell.size;
                let mut whole =
                    alloc::zeroed::<u8>("a chunk of a source", at(chunk.cells).saturating_mul(size))?;
                let all = ColumnMut::Fixed { values: &mut whole, validity: None };
                array.decode(chunk, column, parts, 0..chunk.cells, all, scratch)?;
                let run = at(run).saturating_mul(size);
                if run == 0 || values.len() % run != 0 {
                    return Err(Error::internal("a part of a chunk of another size"));
                }
                for (out, start) in values.chunks_exact_mut(run).zip(starts) {
                    let start = at(start).saturating_mul(size);
                    out.copy_from_slice(whole.get(start..start.saturating_add(run)).ok_or_else(damaged)?);
                }
                Ok(())
            }
            ColumnMut::Var { offsets, data, validity: None } => {
                let (mut ends, mut values) = (Vec::new(), Vec::new());
                let all = ColumnMut::Var { offsets: &mut ends, data: &mut values, validity: None };
                array.decode(chunk, column, parts, 0..chunk.cells, all, scratch)?;
                for cell in starts.flat_map(|start| start..start.saturating_add(run)) {
                    let start = at(cell).checked_sub(1).map_or(Some(&0), |before| ends.get(before));
                    let range = start.zip(ends.get(at(cell))).map(|(start, end)| at(*start)..at(*end));
                    let value = range.and_then(|range| values.get(range)).ok_or_else(damaged)?;
                    alloc::reserve("values of variable length", data, value.len())?;
                    data.extend_from_slice(value);
                    alloc::reserve("offsets of values", offsets, 1)?;
                    offsets.push(data.len() as u64);
                }
                Ok(())
            }
            _ => Err(Error::internal("cells of datasets have no validity")),
        }
    }

    /// The array of a mapping that a chunk was planned for.
    fn array(&self, mapping: usize) -> Result<&Arc<dyn ArraySource>> {
        let source = self.source(mapping)?.ok_or_else(|| Error::internal("a chunk without its source"))?;
        Ok(&source.array)
    }
}

impl ArraySource for VirtualDataset {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn object(&self, number: u32) -> Cow<'_, str> {
        let pieces = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        Cow::Owned(pieces.names.get(number as usize).cloned().unwrap_or_default())
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        self.chunk_plan(request).map(Planned::Ready).map_err(|e| e.in_array(&self.schema.name))
    }

    fn constant(&self, chunk: &PlannedChunk, column: Column) -> Option<Vec<u8>> {
        match &*self.piece(chunk).ok()? {
            MappedPiece::Fill if self.decoder.cell.cell == CellLen::Var => None,
            MappedPiece::Fill => self.decoder.constant(),
            MappedPiece::Chunk { mapping, chunk, .. } => self.array(*mapping).ok()?.constant(chunk, column),
        }
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let raw_len = chunk.cells.saturating_mul(self.decoder.cell.size as u64);
        let coords = [chunk.id].into_iter().collect();
        let own = |codec: &str| ChunkInfo {
            coords,
            raw_len,
            stored_len: chunk.stored_bytes(),
            codec: codec.to_owned(),
            offset: 0,
        };
        match self.piece(chunk).as_deref() {
            Ok(MappedPiece::Chunk { mapping, chunk: inner, .. }) => match self.array(*mapping) {
                Ok(array) => {
                    let inner = array.describe(inner);
                    ChunkInfo { offset: inner.offset, ..own(&inner.codec) }
                }
                Err(_) => own("unknown"),
            },
            Ok(MappedPiece::Fill) | Err(_) => own("fill"),
        }
    }

    fn checked_bytes(&self, chunk: &PlannedChunk) -> u64 {
        match self.piece(chunk).as_deref() {
            Ok(MappedPiece::Chunk { mapping, chunk, .. }) => {
                self.array(*mapping).map_or(0, |array| array.checked_bytes(chunk))
            }
            _ => 0,
        }
    }

    fn decode(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        match &*self.piece(chunk)? {
            MappedPiece::Chunk { mapping, chunk, part: None } => {
                self.array(*mapping)?.decode(chunk, column, parts, cells, out, scratch)
            }
            MappedPiece::Chunk { mapping, chunk, part: Some(part) } => {
                self.decode_part(&**self.array(*mapping)?, (chunk, part), column, parts, out, scratch)
            }
            MappedPiece::Fill => match out {
                ColumnMut::Fixed { values, validity: None } => {
                    self.decoder.decode_fixed(chunk, None, &[], &cells, values, scratch)
                }
                ColumnMut::Var { offsets, data, validity: None } => {
                    let count = usize::try_from(cells.end.saturating_sub(cells.start)).unwrap_or(usize::MAX);
                    alloc::reserve("offsets of values", offsets, count)?;
                    offsets.extend(std::iter::repeat_n(data.len() as u64, count));
                    Ok(())
                }
                _ => Err(Error::internal("cells of datasets have no validity")),
            },
        }
    }
}
