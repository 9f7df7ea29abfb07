//! An array of an index: pieces of sources, joined along a dimension.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{ArraySchema, ChunkGrid, ChunkStats, Coords, Error, Region, Result, Selection, Slice};
use tesseral_format::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Cover, DigestSpans, Planned, PlannedChunk,
    Request, Scratch, Target, Totals, Uncovered,
};
use tesseral_store::{JoinedStore, Rounds, StoreExt, together};

use crate::chunk::{ChunkEntry, ENTRY};
use crate::sources::{Sources, outdated};
use crate::wire::{ChunkForm, FormKind, IndexedArray, Piece};

/// Bits of a chunk id that number the chunks of a piece.
const CHUNK_BITS: u32 = 36;

/// An array of an opened index.
#[derive(Debug)]
pub(crate) struct VirtualArray {
    array: IndexedArray,
    forms: Arc<Vec<ChunkForm>>,
    /// Decoders of the forms, once they are needed.
    decoders: Arc<Vec<OnceLock<Arc<dyn ArraySource>>>>,
    table: Bytes,
    sources: Arc<Sources>,
    objects: Mutex<PlannedObjects>,
}

/// Objects that were planned: the number of a piece, and of an object there.
#[derive(Debug, Default)]
struct PlannedObjects {
    known: HashMap<(u32, u32), u32>,
    list: Vec<(u32, u32)>,
}

impl VirtualArray {
    pub(crate) fn new(
        array: IndexedArray,
        forms: &Arc<Vec<ChunkForm>>,
        decoders: &Arc<Vec<OnceLock<Arc<dyn ArraySource>>>>,
        table: &Bytes,
        sources: &Arc<Sources>,
    ) -> Self {
        Self {
            array,
            forms: Arc::clone(forms),
            decoders: Arc::clone(decoders),
            table: table.clone(),
            sources: Arc::clone(sources),
            objects: Mutex::default(),
        }
    }

    fn form(&self, piece: &Piece) -> Result<&ChunkForm> {
        self.forms.get(piece.form as usize).ok_or_else(|| Error::internal("a piece without a form"))
    }

    fn grid(&self, piece: &Piece) -> Result<ChunkGrid> {
        ChunkGrid::new(&self.array.piece_shape(piece), &self.form(piece)?.chunk)
    }

    /// The array that decodes chunks of a piece; `None` for stored cells.
    fn decoder(&self, piece: &Piece) -> Result<Option<Arc<dyn ArraySource>>> {
        let form = self.form(piece)?;
        let recipe = match &form.kind {
            FormKind::Stored | FormKind::Inline(_) => return Ok(None),
            FormKind::Opened => {
                let container = self.sources.opened(piece.source)?;
                let array = container.array(container.find(&form.name)?)?;
                let shape = self.array.piece_shape(piece);
                let differs = match array.schema().shape().as_deref() {
                    own if own != Some(&shape) => Some("shape"),
                    _ if !self.has_cells_of(array.schema()) => Some("cell type"),
                    _ => None,
                };
                if let Some(what) = differs {
                    let detail = format!("the {what} of {:?} differs from the one in the index", form.name);
                    return Err(outdated(self.sources.describe(piece.source), detail));
                }
                return Ok(Some(array));
            }
            FormKind::Recipe(recipe) => recipe,
        };
        let slot = self.decoders.get(piece.form as usize);
        let slot = slot.ok_or_else(|| Error::internal("a form without a decoder"))?;
        if let Some(decoder) = slot.get() {
            return Ok(Some(Arc::clone(decoder)));
        }
        let decoder = self.sources.format(&form.format)?.decoder(recipe, self.sources.options())?;
        let own = decoder.schema();
        // Some decoders know the cells only.
        let grid = own.dims.is_empty() || own.chunk_shape.as_ref() == Some(&form.chunk);
        if !grid || !self.has_cells_of(own) {
            let detail = format!("the recipe of {:?} decodes other cells", form.name);
            let error = Error::corrupt("index", self.sources.index().describe(""), None, detail);
            return Err(error.in_array(&self.array.schema.name));
        }
        Ok(Some(Arc::clone(slot.get_or_init(|| decoder))))
    }

    /// Whether an array of a source has the cells that the index declares: buffers are allocated for those.
    fn has_cells_of(&self, source: &ArraySchema) -> bool {
        let (Some(own), [other]) = (self.array.schema.fields.first(), source.fields.as_slice()) else {
            return false;
        };
        !source.sparse && (own.dtype, own.cell, own.nullable) == (other.dtype, other.cell, other.nullable)
    }

    /// The piece of a chunk.
    fn piece(&self, chunk: &PlannedChunk) -> Result<&Piece> {
        let number = usize::try_from(chunk.id >> CHUNK_BITS).ok();
        let piece = number.and_then(|number| self.array.pieces.get(number));
        piece.ok_or_else(|| Error::internal("a chunk without a piece"))
    }

    /// A box of a piece as a box of the array.
    fn outward(&self, piece: &Piece, region: &Region) -> Region {
        let mut bounds: Vec<(u64, u64)> = region.bounds().to_vec();
        match self.array.axis {
            Some(axis) if self.array.new_axis => {
                bounds.insert(axis.min(bounds.len()), (piece.start, piece.start.saturating_add(1)));
            }
            Some(axis) => {
                if let Some((start, end)) = bounds.get_mut(axis) {
                    *start = start.saturating_add(piece.start);
                    *end = end.saturating_add(piece.start);
                }
            }
            None => {}
        }
        Region::new(bounds)
    }

    fn inward(&self, piece: &Piece, region: &Region) -> Region {
        let mut bounds: Vec<(u64, u64)> = region.bounds().to_vec();
        match self.array.axis {
            Some(axis) if self.array.new_axis => {
                let mut at = 0..;
                bounds.retain(|_| at.next() != Some(axis));
            }
            Some(axis) => {
                if let Some((start, end)) = bounds.get_mut(axis) {
                    *start = start.saturating_sub(piece.start);
                    *end = end.saturating_sub(piece.start);
                }
            }
            None => {}
        }
        Region::new(bounds)
    }

    /// A chunk as its source planned it.
    fn inner(&self, chunk: &PlannedChunk) -> Result<(&Piece, PlannedChunk)> {
        let piece = self.piece(chunk)?;
        let mut inner = chunk.clone();
        inner.id = chunk.id & ((1 << CHUNK_BITS) - 1);
        if let Cover::Exact(region) = &chunk.cover {
            inner.cover = Cover::Exact(self.inward(piece, region));
        }
        inner.tile = chunk.tile.as_deref().map(|tile| Box::new(self.inward(piece, tile)));
        let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        for part in &mut inner.parts {
            part.object = objects.list.get(part.object as usize).map_or(0, |(_, object)| *object);
        }
        Ok((piece, inner))
    }

    /// A chunk of a piece as a chunk of the array.
    fn outer(&self, number: usize, piece: &Piece, mut chunk: PlannedChunk) -> Result<PlannedChunk> {
        let most = 1_u64 << CHUNK_BITS;
        if chunk.id >= most {
            return Err(Error::limit("the chunks of a source in an index", chunk.id, most));
        }
        chunk.id |= (number as u64) << CHUNK_BITS;
        if let Cover::Exact(region) = &chunk.cover {
            chunk.cover = Cover::Exact(self.outward(piece, region));
        }
        chunk.tile = chunk.tile.as_deref().map(|tile| Box::new(self.outward(piece, tile)));
        let mut objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
        for part in &mut chunk.parts {
            let key = (u32::try_from(number).unwrap_or(u32::MAX), part.object);
            let next = u32::try_from(objects.list.len()).unwrap_or(u32::MAX);
            let known = *objects.known.entry(key).or_insert(next);
            if known == next {
                objects.list.push(key);
            }
            part.object = known;
        }
        Ok(chunk)
    }

    /// The part of a selection in a piece, in its own positions; `None` if it is empty.
    fn selected(&self, piece: &Piece, selection: &Selection) -> Result<Option<Selection>> {
        let mut slices: Vec<Slice> = selection.slices().to_vec();
        if let Some(axis) = self.array.axis {
            let Some(slice) = slices.get_mut(axis) else {
                return Err(Error::internal("a selection of a different rank"));
            };
            let (part, _) = slice.clip(piece.start, piece.start.saturating_add(piece.extent));
            if part.count() == 0 {
                return Ok(None);
            }
            *slice = Slice {
                start: part.start.saturating_sub(piece.start),
                end: part.end.saturating_sub(piece.start),
                ..part
            };
            if self.array.new_axis {
                slices.remove(axis);
            }
        }
        Selection::new(slices, &self.array.piece_shape(piece)).map(Some)
    }

    /// Numbers of the pieces that a selection touches.
    fn touched(&self, selection: &Selection) -> Range<usize> {
        let pieces = &self.array.pieces;
        let Some(slice) = self.array.axis.and_then(|axis| selection.slices().get(axis)) else {
            return 0..pieces.len();
        };
        let first = pieces.partition_point(|piece| piece.start.saturating_add(piece.extent) <= slice.start);
        let end = pieces.partition_point(|piece| piece.start < slice.tight_end());
        first..end.max(first)
    }
}

impl ArraySource for VirtualArray {
    fn schema(&self) -> &ArraySchema {
        &self.array.schema
    }

    fn object(&self, number: u32) -> Cow<'_, str> {
        let known = {
            let objects = self.objects.lock().unwrap_or_else(PoisonError::into_inner);
            objects.list.get(number as usize).copied()
        };
        let piece = known.and_then(|(piece, _)| self.array.pieces.get(piece as usize));
        let (Some((_, inner)), Some(piece)) = (known, piece) else { return Cow::Borrowed("") };
        let decoder = self.decoder(piece).ok().flatten();
        let name = decoder.as_ref().map_or(Cow::Borrowed(""), |decoder| decoder.object(inner));
        Cow::Owned(JoinedStore::object(piece.source, &name))
    }

    fn plan(&self, request: &Request, rounds: &Arc<Rounds>) -> Result<Planned> {
        let Some(selection) = request.selection() else {
            return Err(Error::internal("a request by coordinates"));
        };
        let limits = &self.sources.options().limits;
        let mut plan =
            ChunkPlan { chunks: Vec::new(), uncovered: Uncovered::Impossible, deletes: Vec::new() };
        let entries = self.table.as_chunks::<ENTRY>().0;
        let mut opened = self.opened_plans(request, selection, rounds)?.into_iter();
        for number in self.touched(selection) {
            let piece = &self.array.pieces[number];
            let Some(selected) = self.selected(piece, selection)? else { continue };
            if self.form(piece)?.kind == FormKind::Opened {
                let part = opened.next().ok_or_else(|| Error::internal("a piece without a plan"))??;
                if part.uncovered == Uncovered::Fill {
                    plan.uncovered = Uncovered::Fill;
                }
                plan.deletes.extend(part.deletes);
                limits.check_plan((plan.chunks.len() as u64).saturating_add(part.chunks.len() as u64))?;
                for chunk in part.chunks {
                    plan.chunks.push(self.outer(number, piece, chunk)?);
                }
                continue;
            }
            let grid = self.grid(piece)?;
            if grid.total() == 0 {
                continue;
            }
            if matches!(self.form(piece)?.kind, FormKind::Inline(_)) {
                let region = Region::from_shape(grid.shape());
                let access = Access::Coded { granule: Some(1) };
                let chunk = PlannedChunk::exact(0, region, SmallVec::new(), access);
                plan.chunks.push(self.outer(number, piece, chunk)?);
                continue;
            }
            // Names of objects are those of the decoder, whose errors would be lost there.
            self.decoder(piece)?;
            let touched = grid.touched(&selected);
            limits.check_plan(touched.remaining().saturating_add(plan.chunks.len() as u64))?;
            for coords in touched {
                let at = piece.entry.saturating_add(grid.linear(&coords));
                let bytes = usize::try_from(at).ok().and_then(|at| entries.get(at));
                let entry = bytes.map(ChunkEntry::from_bytes);
                let entry = entry.ok_or_else(|| Error::internal("a chunk without an entry"))?;
                let chunk = entry.planned(&grid, &coords, &request.columns);
                self.check_size(&chunk).map_err(|e| e.in_array(&self.array.schema.name))?;
                plan.chunks.push(self.outer(number, piece, chunk)?);
            }
        }
        Ok(Planned::Ready(plan))
    }

    fn totals(&self, _everything: &Request) -> Result<Option<Totals>> {
        let mut totals = Totals { chunks: 0, stored_bytes: 0, digests: false };
        for piece in &self.array.pieces {
            if let FormKind::Inline(cells) = &self.form(piece)?.kind {
                totals.chunks = totals.chunks.saturating_add(1);
                totals.stored_bytes = totals.stored_bytes.saturating_add(cells.len() as u64);
                continue;
            }
            if self.form(piece)?.kind == FormKind::Opened {
                // Sources are not opened for a number that is only shown.
                continue;
            }
            let chunks = self.grid(piece)?.total();
            totals.chunks = totals.chunks.saturating_add(chunks);
            let start = usize::try_from(piece.entry).unwrap_or(usize::MAX);
            let end = start.saturating_add(usize::try_from(chunks).unwrap_or(usize::MAX));
            for bytes in self.table.as_chunks::<ENTRY>().0.get(start..end).unwrap_or_default() {
                totals.stored_bytes = totals.stored_bytes.saturating_add(ChunkEntry::from_bytes(bytes).len);
            }
        }
        Ok(Some(totals))
    }

    fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        let unknown = || ChunkStats::unknown(chunk.cells);
        let Ok((piece, inner)) = self.inner(chunk) else { return unknown() };
        match self.decoder(piece) {
            Ok(Some(decoder)) => decoder.stats(&inner, column),
            _ => unknown(),
        }
    }

    fn constant(&self, chunk: &PlannedChunk, column: Column) -> Option<Vec<u8>> {
        let (piece, inner) = self.inner(chunk).ok()?;
        self.decoder(piece).ok()??.constant(&inner, column)
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let plain = || ChunkInfo {
            coords: Coords::new(),
            raw_len: chunk.stored_bytes(),
            stored_len: chunk.stored_bytes(),
            codec: "raw".to_owned(),
            offset: chunk.parts.first().map_or(0, |part| part.offset),
        };
        let Ok((piece, inner)) = self.inner(chunk) else { return plain() };
        let mut info = match self.decoder(piece) {
            Ok(Some(decoder)) => decoder.describe(&inner),
            _ => ChunkInfo {
                coords: self.grid(piece).map_or_else(|_| Coords::new(), |g| g.coords(inner.id)),
                ..plain()
            },
        };
        // Chunks of other pieces have the same coordinates in theirs.
        if self.array.pieces.len() > 1 {
            info.coords.insert(0, chunk.id >> CHUNK_BITS);
        }
        info
    }

    fn digests(&self, _chunk: &PlannedChunk) -> DigestSpans<'_> {
        DigestSpans::new()
    }

    fn checked_bytes(&self, chunk: &PlannedChunk) -> u64 {
        let Ok((piece, inner)) = self.inner(chunk) else { return 0 };
        self.decoder(piece).ok().flatten().map_or(0, |decoder| decoder.checked_bytes(&inner))
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
        let (piece, inner) = self.inner(chunk)?;
        let named = |e: Error| e.in_array(&self.array.schema.name);
        if let Some(decoder) = self.decoder(piece)? {
            return decoder.decode(&inner, column, parts, cells, out, scratch).map_err(named);
        }
        if let FormKind::Inline(stored) = &self.form(piece)?.kind {
            let ColumnMut::Fixed { values, validity: None } = out else {
                return Err(Error::internal("cells in an index have no validity"));
            };
            let size = self.array.schema.fields[0].cell_size().unwrap_or(1);
            let start = usize::try_from(cells.start).ok().and_then(|start| start.checked_mul(size));
            let run = start.and_then(|start| stored.get(start..start.checked_add(values.len())?));
            values.copy_from_slice(run.ok_or_else(|| Error::internal("cells beyond those of an index"))?);
            if cfg!(target_endian = "big") {
                values
                    .chunks_exact_mut(self.array.schema.fields[0].dtype.word().max(1))
                    .for_each(<[u8]>::reverse);
            }
            return Ok(());
        }
        let (Access::Direct { swapped }, [stored], ColumnMut::Fixed { values, .. }) =
            (inner.access, parts, out)
        else {
            let detail = "an entry does not refer to the stored cells of a chunk";
            return Err(named(Error::corrupt("index", self.sources.describe(piece.source), None, detail)));
        };
        let field = &self.array.schema.fields[0];
        let size = field.cell_size().unwrap_or(1) as u64;
        let at = |cell: u64| usize::try_from(cell.checked_mul(size)?).ok();
        let run = at(cells.start).zip(at(cells.end)).and_then(|(start, end)| stored.get(start..end));
        let run = run.filter(|run| run.len() == values.len()).ok_or_else(|| {
            let found = stored.len() as u64;
            named(Error::truncated(
                "chunk",
                self.sources.describe(piece.source),
                0,
                values.len() as u64,
                found,
            ))
        })?;
        values.copy_from_slice(run);
        if swapped {
            values.chunks_exact_mut(field.dtype.word().max(1)).for_each(<[u8]>::reverse);
        }
        Ok(())
    }
}

impl VirtualArray {
    /// Plans of the touched pieces that are read through their own formats, in order. Their sources do not depend on one
    /// another: over a network, all are opened at the same time, and then planned at the same time.
    fn opened_plans(
        &self,
        request: &Request,
        selection: &Selection,
        rounds: &Rounds,
    ) -> Result<Vec<Result<ChunkPlan>>> {
        let mut pieces = Vec::new();
        for piece in &self.array.pieces[self.touched(selection)] {
            if self.form(piece)?.kind == FormKind::Opened
                && let Some(selected) = self.selected(piece, selection)?
            {
                pieces.push((piece, Request { target: Target::Cells(selected), ..request.clone() }));
            }
        }
        let mut sources: Vec<u32> = pieces.iter().map(|(piece, _)| piece.source).collect();
        sources.sort_unstable();
        sources.dedup();
        // The plans report those that cannot be opened.
        together(rounds, &sources, |source| drop(self.sources.opened(*source)));
        Ok(together(rounds, &pieces, |(piece, inner)| {
            let decoder = self.decoder(piece)?.ok_or_else(|| Error::internal("no decoder"))?;
            tesseral_format::plan(&*decoder, self.sources.opened(piece.source)?.store(), inner)
        }))
    }

    /// Limits the expansion of a chunk, and compares the length of stored cells with their number.
    fn check_size(&self, chunk: &PlannedChunk) -> Result<()> {
        let size = self.array.schema.fields[0].cell_size().unwrap_or(1) as u64;
        let bytes = chunk.cells.saturating_mul(size);
        let limits = &self.sources.options().limits;
        limits.check_chunk(bytes)?;
        let stored = chunk.stored_bytes();
        if matches!(chunk.access, Access::Direct { .. }) {
            let detail = || format!("length mismatch: expected {bytes} bytes, found {stored}");
            return match stored == bytes {
                true => Ok(()),
                false => Err(Error::corrupt("index", self.array.schema.name.clone(), None, detail())),
            };
        }
        if chunk.parts.is_empty() || stored == 0 { Ok(()) } else { limits.check_decoded(bytes, stored) }
    }
}
