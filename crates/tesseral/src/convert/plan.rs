//! What a conversion would write: every array with its dimensions, dtypes, chunks and codecs, rehearsed against the target's
//! format before the first byte.

use std::sync::Arc;

use tesseral_core::schema::Labels;
use tesseral_core::{
    ArraySchema, Attributes, Coords, DType, Dimension, Error, ErrorKind, Field, HistoryRow, Order, Result,
    Scalar, Selection, Slice,
};
use tesseral_engine::kernel::cast;
use tesseral_engine::{
    Grids, Options, RechunkPlan, Work, WriteSession, available_memory, check_held, check_pair, check_total,
    check_written_chunks, divisible, has_gaps, narrowable, oversized, spreadable, work_space,
};
use tesseral_format::{ArraySpec, Capabilities, CodecSpec, CreateOptions, Format};
use tesseral_store::{MemoryStore, Overwrite};

use super::cells::PlannedCells;
use super::feed::{Absent, Feed, FeedColumn};
use super::lossy;
use super::options::{ConvertOptions, SparseAs, unknown_dim};
use super::rows::PlannedRows;
use crate::variable::{Variable, Variables, kept_with_array, merge, plain_name};
use crate::{Container, registry};

/// Arrays that a source keeps in one piece are cut to chunks of about this many bytes.
pub(crate) const CHUNK: u64 = 4 << 20;
/// Codecs that change values are not carried over: applied twice they would change them twice.
const LOSSY: [&str; 5] = ["simple_packing", "float_scale", "scale_float", "zfp", "sz3"];
/// Bytes that a cell of any length is taken to have.
const ANY_LENGTH: u64 = 32;

/// One array to be written.
#[derive(Debug)]
pub(crate) struct PlannedArray {
    pub spec: ArraySpec,
    pub feed: Feed,
    pub rechunk: RechunkPlan,
    /// How far packed cells may be off.
    pub bound: Option<lossy::Bound>,
}

/// Everything to be written.
#[derive(Debug)]
pub(crate) struct ConvertPlan {
    pub format: &'static dyn Format,
    pub arrays: Vec<PlannedArray>,
    /// Sparse arrays that stay sparse.
    pub cells: Vec<PlannedCells>,
    /// Sparse arrays that become tables.
    pub tables: Vec<PlannedRows>,
    pub attributes: Attributes,
    pub create: CreateOptions,
    pub threads: usize,
}

impl ConvertPlan {
    /// Plans, and makes sure that the format takes it; if not, the error names formats that would.
    pub(crate) fn new(
        source: &Container,
        format: &'static dyn Format,
        options: &ConvertOptions,
        history: &[HistoryRow],
    ) -> Result<Self> {
        Self::rehearsed(source, format, options, history).map_err(|error| {
            let ErrorKind::Unsupported { feature } = error.kind() else { return error };
            let others =
                registry::FORMATS.iter().filter(|f| f.id() != format.id() && f.capabilities().create);
            let able: Vec<&str> = others
                .filter(|f| Self::rehearsed(source, **f, options, history).is_ok())
                .map(|f| f.title())
                .collect();
            let hint = match (able.as_slice(), error.advice()) {
                ([], Some(advice)) => advice.to_owned(),
                ([], None) => "leave it out with --array or --select".to_owned(),
                (able, advice) => {
                    let or = advice.unwrap_or("leave it out with --array");
                    format!("{} can hold it (--to); or {or}", able.join(" and "))
                }
            };
            let told = Error::unsupported(feature.clone()).hint(hint);
            match error.array() {
                Some(array) => told.in_array(array),
                None => told,
            }
        })
    }

    fn rehearsed(
        source: &Container,
        format: &'static dyn Format,
        options: &ConvertOptions,
        history: &[HistoryRow],
    ) -> Result<Self> {
        let mut plan = Self::draw_up(source, format, options)?;
        plan.choose_codecs(options);
        let store = Arc::new(MemoryStore::new("a rehearsal"));
        match plan.begin(store, &Options::default(), history) {
            Ok((session, ids)) => {
                plan.check_gathered(&session, &ids, options.execution.memory)?;
                Ok(plan)
            }
            // What breaks a rule or limit of the format is something it cannot hold.
            Err(e) if matches!(e.kind(), ErrorKind::InvalidRequest { .. } | ErrorKind::Limit { .. }) => {
                let told = Error::unsupported(format!("{} in {}", e.kind(), format.title()));
                Err(match e.array() {
                    Some(array) => told.in_array(array),
                    None => told,
                })
            }
            Err(e) => Err(e),
        }
    }

    fn draw_up(source: &Container, format: &'static dyn Format, options: &ConvertOptions) -> Result<Self> {
        if !format.capabilities().create {
            return Err(Error::unsupported(format!("writing {}", format.title())));
        }
        let variables = Variables::of(source, &options.arrays)?;
        if variables.list.is_empty() {
            return Err(Error::invalid(format!("{} holds no array", source.location())));
        }
        if let Some(v) = variables.list.iter().find(|v| v.array.selected_field().dtype == DType::Bitmask) {
            let error = Error::unsupported("cells of bitmask in a conversion").in_array(&v.name);
            return Err(error.hint(
                "leave it out with --array; `tet copy`, `tet merge` and `tet split` keep it as it is stored, `tet cat --format npy` gives \
                 its cells",
            ));
        }
        let schemas = variables.list.iter().map(|v| v.array.schema());
        if let Some(error) = options.chunk.as_ref().and_then(|chunk| chunk.unknown(schemas.clone())) {
            return Err(error);
        }
        for argument in &options.select {
            if let Some((dim, _)) = argument.split_once('=')
                && let Some(error) = unknown_dim(dim, schemas.clone())
            {
                return Err(error);
            }
        }
        if let Some(name) = options
            .casts
            .iter()
            .filter_map(|cast| cast.name.as_ref())
            .find(|name| !variables.list.iter().any(|v| v.name == **name))
        {
            let names = variables.list.iter().map(|v| v.name.clone()).collect();
            return Err(Error::not_found("array", name, names));
        }
        let capabilities = format.capabilities();
        let listed = |v: &&Variable| v.array.schema().sparse && options.sparse != Some(SparseAs::Dense);
        let (sparse, dense): (Vec<&Variable>, Vec<&Variable>) = variables.list.iter().partition(listed);
        let (cells, tables) = sparse_arrays(&sparse, format, options)?;
        let mut work = Work::default();
        let drawn: Vec<Drawn> = dense
            .into_iter()
            .map(|v| {
                options.execution.cancel.check()?;
                let drawn = Drawn::new(v, format, options)?;
                let selection = v.array.select(own_arguments(v.array.schema(), options))?;
                work.add(v.array.handle(), &v.array.request(&selection))?;
                Ok(drawn)
            })
            .collect::<Result<_>>()?;
        let (memory, free) = (options.execution.memory, default_memory());
        let mut create = CreateOptions {
            statistics: options.statistics,
            work_space: Some(memory.unwrap_or(free) / 4),
            ..CreateOptions::default()
        };
        // What is there already is the output's concern: the empty file or folder at its temporary name gives way.
        create.overwrite = Overwrite::Replace;
        let mut attributes = variables.attributes;
        let mut cells = cells;
        let mut groups: Vec<Vec<Drawn>> = if capabilities.many_fields && all_alike(&drawn) {
            vec![drawn]
        } else {
            drawn.into_iter().map(|one| vec![one]).collect()
        };
        if let Some(held) = capabilities.container_attributes {
            let kept: Attributes = attributes
                .iter()
                .filter(|(name, _)| !held.contains(&name.as_str()))
                .map(|(n, v)| (kept_with_array(n), v.clone()))
                .collect();
            attributes.retain(|name, _| held.contains(&name.as_str()));
            let specs = cells.iter_mut().map(|planned| &mut planned.spec.schema);
            for schema in groups.iter_mut().flatten().map(|drawn| &mut drawn.schema).chain(specs) {
                schema.attributes.extend(kept.clone());
            }
        }
        let threads = options.execution.threads();
        // What a writer gathers takes its part of the memory.
        let moving = memory.map(|memory| if capabilities.whole_arrays { memory / 2 } else { memory });
        let arrays: Vec<PlannedArray> =
            groups.into_iter().map(|group| joined(group, moving, free, threads)).collect::<Result<_>>()?;
        let threads = arrays.iter().map(|a| a.rechunk.threads).min().unwrap_or(threads);
        Ok(Self { format, arrays, cells, tables, attributes, create, threads })
    }

    /// Codecs as they are asked for, else as the source has them; those that the target does not have become zstd, or nothing.
    fn choose_codecs(&mut self, options: &ConvertOptions) {
        let (format, create) = (self.format, self.create.clone());
        let chosen = |schema: &ArraySchema, sources: &[&Field]| -> Vec<Vec<CodecSpec>> {
            if let Some(codecs) = &options.codecs {
                return vec![codecs.clone(); schema.fields.len()];
            }
            let own: Vec<Vec<CodecSpec>> = sources.iter().map(|field| lasting(field)).collect();
            let zstd = own
                .iter()
                .map(|c| if c.is_empty() { Vec::new() } else { vec![CodecSpec::new("zstd")] })
                .collect();
            let fits = |codecs: &Vec<Vec<CodecSpec>>| {
                let spec = ArraySpec { schema: schema.clone(), codecs: codecs.clone() };
                let store = Arc::new(MemoryStore::new("a rehearsal"));
                format.create(store, &create).and_then(|mut writer| writer.begin(&spec)).is_ok()
            };
            let raw = vec![Vec::new(); schema.fields.len()];
            [own, zstd].into_iter().find(fits).unwrap_or(raw)
        };
        for planned in &mut self.arrays {
            if let Some(bound) = &planned.bound {
                planned.spec.codecs = vec![bound.codecs(options.codecs.clone().unwrap_or_default())];
                continue;
            }
            let sources: Vec<&Field> =
                planned.feed.columns.iter().map(|c| c.array.selected_field()).collect();
            planned.spec.codecs = chosen(&planned.spec.schema, &sources);
        }
        for planned in &mut self.cells {
            planned.spec.codecs = chosen(&planned.spec.schema, &planned.sources().collect::<Vec<_>>());
        }
        for table in &mut self.tables {
            let sources = table.sources.clone();
            for (spec, source) in table.specs.iter_mut().zip(&sources) {
                spec.codecs = chosen(&spec.schema, &[source]);
            }
        }
    }

    /// Refuses arrays that the writer has to hold whole, where they do not fit: those on grids come one after the other, the
    /// columns of tables all at once.
    fn check_gathered(&self, session: &WriteSession, ids: &[usize], memory: Option<u64>) -> Result<()> {
        let Some(memory) = memory else { return Ok(()) };
        let held = |ids: &[usize]| ids.iter().map(|id| session.gathers(*id)).collect::<Vec<u64>>();
        let (grids, rest) = ids.split_at(self.arrays.len());
        let largest = held(grids).into_iter().max().unwrap_or(0);
        let needed = largest.max(held(rest).into_iter().sum()).saturating_mul(2);
        if needed <= memory {
            return Ok(());
        }
        let what = format!("an object of {} and its encoded form", self.format.title());
        Err(Error::limit(what, needed, memory).hint(
            "raise the memory limit, select less, or take codecs that need little of it: --codec raw or zstd",
        ))
    }

    /// Whether the target would store the chunks of an array just as the source does.
    pub(crate) fn adopts(&self, planned: &PlannedArray) -> bool {
        let [column] = planned.feed.columns.as_slice() else { return false };
        let (array, store) = (&column.array, Arc::new(MemoryStore::new("a rehearsal")));
        let asked = || -> Result<bool> {
            let (handle, request) = (array.handle(), array.request(&first(&planned.feed.selection)?));
            let form = handle.guarded(|| {
                let plan = handle.source().plan(&request)?;
                Ok(plan.chunks.first().and_then(|chunk| handle.source().stored_form(chunk)))
            })?;
            let mut writer = self.format.create(store, &self.create)?;
            let number = writer.begin(&planned.spec)?;
            Ok(form.is_some_and(|form| writer.adopts(number, form)))
        };
        asked().unwrap_or(false)
    }

    /// Everything that is declared: arrays, sparse arrays, the arrays of tables.
    fn specs(&self) -> impl Iterator<Item = &ArraySpec> {
        let arrays = self.arrays.iter().map(|planned| &planned.spec);
        let cells = self.cells.iter().map(|planned| &planned.spec);
        arrays.chain(cells).chain(self.tables.iter().flat_map(|table| &table.specs))
    }

    /// Begins a container with everything declared that is known before the cells.
    pub(crate) fn begin(
        &self,
        store: Arc<dyn tesseral_store::Store>,
        execution: &Options,
        history: &[HistoryRow],
    ) -> Result<(WriteSession, Vec<usize>)> {
        let writer = self.format.create(store, &self.create)?;
        let mut session = WriteSession::new(writer, execution.clone());
        let ids = self.specs().map(|spec| session.add(spec)).collect::<Result<_>>()?;
        if !self.attributes.is_empty() {
            session.set_attributes(self.attributes.clone())?;
        }
        for row in history {
            session.add_history(row.clone())?;
        }
        Ok((session, ids))
    }
}

/// A quarter of what is free, but no more than two gibibytes.
pub(crate) fn default_memory() -> u64 {
    available_memory().map_or(512 << 20, |free| (free / 4).clamp(64 << 20, 2 << 30))
}

/// Codecs of a field that lose nothing.
fn lasting(field: &Field) -> Vec<CodecSpec> {
    if field.codecs.iter().any(|name| LOSSY.contains(&name.as_str())) {
        // What packed values were compressed with does not suit plain ones.
        return vec![CodecSpec::new("zstd")];
    }
    field.codecs.iter().filter(|name| *name != "raw").map(CodecSpec::new).collect()
}

/// One variable as the target would have it.
struct Drawn {
    name: String,
    schema: ArraySchema,
    column: FeedColumn,
    selection: Selection,
    source_chunk: Coords,
    bound: Option<lossy::Bound>,
}

impl Drawn {
    fn new(variable: &Variable, format: &'static dyn Format, options: &ConvertOptions) -> Result<Self> {
        Self::draw(variable, format, options).map_err(|e| e.in_array(&variable.name))
    }

    fn draw(variable: &Variable, format: &'static dyn Format, options: &ConvertOptions) -> Result<Self> {
        let capabilities = format.capabilities();
        let array = &variable.array;
        let from = array.schema();
        if from.sparse {
            spreadable(array.handle(), array.field_number()).map_err(|e| e.hint("give --sparse-as rows"))?;
        }
        let selection = array.select(own_arguments(from, options))?;
        check_total(array.handle(), &array.request(&selection))?;
        let field = array.selected_field();
        let dtype = cast_of(&variable.name, field, options)?;
        let bound = lossy::Bound::choose(array, &selection, dtype, options)?;
        let whole = from.shape().unwrap_or_default();
        let stored_chunk = from.chunk_shape.clone().unwrap_or_else(|| tiles(from, &whole));
        let source_chunk: Coords = stored_chunk
            .iter()
            .zip(selection.slices())
            .map(|(chunk, slice)| (chunk / slice.step).clamp(1, slice.count().max(1)))
            .collect();
        let shape = selection.shape();
        let default = if capabilities.whole_arrays || bytes(&source_chunk, field) <= 4 * CHUNK {
            source_chunk.clone()
        } else {
            default_chunk(&shape, field.cell_size().unwrap_or(ANY_LENGTH as usize) as u64)
        };
        let chunk = match &options.chunk {
            Some(_) if capabilities.whole_arrays => {
                return Err(Error::unsupported(format!("chunks in {}", format.title()))
                    .hint("leave --chunk out: arrays are kept whole there"));
            }
            Some(chunk) => chunk.resolve(from, &default)?,
            None => default,
        };
        // Where any part of a chunk can be had by itself, old chunks set no bounds.
        let request = array.request(&selection);
        // Nor where a whole one would not fit, and pieces can be had.
        let too_large =
            options.execution.memory.is_some_and(|memory| oversized(bytes(&source_chunk, field), memory));
        let source_chunk = if from.sparse
            || divisible(array.handle(), &request)?
            || (too_large && narrowable(array.handle(), &request)?)
        {
            chunk.clone()
        } else {
            source_chunk
        };
        // Held whole: the array where the format keeps it so, else what is decoded for one chunk.
        let held = if capabilities.whole_arrays { &shape } else { &source_chunk };
        check_held(array.handle(), &array.request(&selection), held)?;
        if !capabilities.whole_arrays {
            let along = shape.iter().zip(&chunk).map(|(extent, chunk)| extent.div_ceil((*chunk).max(1)));
            let chunks = along.fold(1_u64, u64::saturating_mul);
            check_written_chunks(array.handle(), &array.request(&selection), chunks)?;
        }
        let dims = from.dims.iter().zip(selection.slices());
        let dims =
            dims.zip(&chunk).map(|((dim, slice), chunk)| dimension(dim, slice, *chunk, capabilities.domains));
        let absent = absent(variable, &selection, dtype, capabilities, options)?;
        let mut to = Field {
            name: variable.name.clone(),
            dtype,
            nullable: (field.nullable || absent == Absent::Null) && capabilities.nullable,
            fill: match &absent {
                Absent::Value(value) => Some(value.clone()),
                _ => fill(field, dtype),
            },
            fill_valid: field.fill_valid,
            default_fill: false,
            enumeration: field.enumeration.clone(),
            codecs: Vec::new(),
            cell: field.cell,
        };
        if dtype != field.dtype {
            to.enumeration = None;
        }
        let mut attributes = variable.attributes.clone();
        if let Some(bound) = &bound {
            attributes.extend(bound.attributes());
        }
        let schema = ArraySchema {
            name: variable.name.clone(),
            dims: dims.collect::<Result<_>>()?,
            fields: vec![to],
            chunk_shape: Some(chunk),
            cell_order: Order::RowMajor,
            sparse: false,
            allows_duplicates: false,
            attributes,
        };
        let column = FeedColumn { array: array.clone(), dtype, absent };
        Ok(Self { name: variable.name.clone(), schema, column, selection, source_chunk, bound })
    }
}

/// Extents of the tiles that a sparse array keeps cells together by.
fn tiles(schema: &ArraySchema, whole: &[u64]) -> Coords {
    let tile = |(dim, extent): (&Dimension, &u64)| {
        let tile = dim.tile.as_ref().and_then(Scalar::as_i128).and_then(|tile| u64::try_from(tile).ok());
        tile.filter(|tile| *tile > 0).map_or(*extent, |tile| tile.min(*extent))
    };
    schema.dims.iter().zip(whole).map(tile).collect()
}

/// The selections that speak of dimensions of an array.
pub(crate) fn own_arguments<'a>(
    schema: &ArraySchema,
    options: &'a ConvertOptions,
) -> impl Iterator<Item = &'a str> {
    let own = |argument: &&String| argument.split_once('=').is_none_or(|(dim, _)| schema.dim(dim).is_ok());
    options.select.iter().filter(own).map(String::as_str)
}

/// Sparse arrays, as cells where the format has such arrays, or as tables where that is asked for.
fn sparse_arrays(
    variables: &[&Variable],
    format: &'static dyn Format,
    options: &ConvertOptions,
) -> Result<(Vec<PlannedCells>, Vec<PlannedRows>)> {
    let (mut cells, mut tables) = (Vec::new(), Vec::new());
    let can = format.capabilities();
    for one in variables.chunk_by(|a, b| a.array.name() == b.array.name()) {
        match options.sparse {
            Some(_) => tables.push(PlannedRows::new(one, can, options)?),
            None if can.sparse => cells.push(PlannedCells::new(one, can, options)?),
            None => {
                let name = one.first().map_or("", |v| v.array.name());
                return Err(Error::unsupported(format!("a sparse array in {}", format.title()))
                    .hint("give --sparse-as dense or --sparse-as rows")
                    .in_array(name));
            }
        }
    }
    Ok((cells, tables))
}

/// The first cell of a selection that has one.
fn first(selection: &Selection) -> Result<Selection> {
    let slices = selection.slices().iter().map(|s| Slice::new(s.start, s.start + 1));
    let bounds: Vec<u64> = selection.slices().iter().map(|s| s.end).collect();
    Selection::new(slices, &bounds)
}

fn bytes(chunk: &[u64], field: &Field) -> u64 {
    let size = field.cell_size().map_or(ANY_LENGTH, |n| n as u64);
    chunk.iter().fold(size, |n, extent| n.saturating_mul(*extent))
}

/// Chunks of whole rows of about 4 MiB, for an array whose cells have that many bytes.
pub fn default_chunk(shape: &[u64], cell: u64) -> Coords {
    let mut left = (CHUNK / cell.max(1)).max(1);
    let mut chunk = Coords::from_elem(1, shape.len());
    for d in (0..shape.len()).rev() {
        chunk[d] = shape[d].clamp(1, left);
        left = (left / chunk[d]).max(1);
    }
    chunk
}

/// The dtype that cells become.
pub(crate) fn cast_of(name: &str, field: &Field, options: &ConvertOptions) -> Result<DType> {
    let named = options.casts.iter().rev().find(|cast| cast.name.as_deref() == Some(name));
    let asked = named.or_else(|| options.casts.iter().rev().find(|cast| cast.name.is_none()));
    match asked {
        Some(cast) if cast.dtype == field.dtype => Ok(field.dtype),
        Some(cast)
            if field.cell == tesseral_core::CellLen::One && cast::supported(field.dtype, cast.dtype) =>
        {
            Ok(cast.dtype)
        }
        Some(cast) => Err(Error::unsupported(format!("{} as {}", field.type_name(), cast.dtype))),
        None => Ok(field.dtype),
    }
}

/// What becomes of cells of a variable that are null or that nobody wrote. Those of fields without nulls are told apart where the
/// source shows a value for them that somebody could have written.
fn absent(
    variable: &Variable,
    selection: &Selection,
    dtype: DType,
    can: Capabilities,
    options: &ConvertOptions,
) -> Result<Absent> {
    let (array, field) = (&variable.array, variable.array.selected_field());
    let named = options.fills.iter().rev().find(|fill| fill.name.as_ref() == Some(&variable.name));
    let asked = named.or_else(|| options.fills.iter().rev().find(|fill| fill.name.is_none()));
    let asked = asked.map(|fill| Scalar::parse(dtype, &fill.value).map(Absent::Value)).transpose()?;
    if field.nullable {
        return Ok(if can.nullable { Absent::Kept } else { asked.unwrap_or(Absent::Refused) });
    }
    let sparse = array.schema().sparse;
    let told_apart = !sparse && asked.is_none() && !field.default_fill;
    if told_apart || !sparse && !has_gaps(array.handle(), &array.request(selection))? {
        return Ok(Absent::Kept);
    }
    if let Some(asked) = asked {
        return Ok(asked);
    }
    if can.nullable && field.missing().is_none() {
        return Ok(Absent::Null);
    }
    let value = field.fill.as_ref().and_then(|fill| cast_scalar(fill, dtype));
    value.map(Absent::Value).ok_or_else(|| {
        Error::unsupported(format!("cells that are not there, as {dtype}"))
            .hint("give a value for them: --fill VALUE")
    })
}

/// The fill, when it says something: the value that formats take for unset cells by themselves does not.
pub(crate) fn fill(field: &Field, dtype: DType) -> Option<Scalar> {
    let fill = field.fill.as_ref()?;
    if is_unset(fill) {
        return None;
    }
    cast_scalar(fill, dtype)
}

/// A value in another dtype, where it fits.
fn cast_scalar(value: &Scalar, dtype: DType) -> Option<Scalar> {
    if dtype == value.dtype() {
        return Some(value.clone());
    }
    let mut out = vec![0; dtype.size()?];
    match cast::cast(value.dtype(), value.bytes(), dtype, &mut out) {
        Ok(None) => Scalar::from_le_bytes(dtype, &out).ok(),
        _ => None,
    }
}

/// NaN, the smallest signed and the largest unsigned integer, and zeros of text.
fn is_unset(fill: &Scalar) -> bool {
    use tesseral_core::dtype::Class;
    let bytes = fill.bytes();
    let words = || bytes.chunks(fill.dtype().word().max(1));
    let signed = |word: &[u8]| {
        word.split_last().is_some_and(|(high, low)| *high == 0x80 && low.iter().all(|b| *b == 0))
    };
    match fill.dtype().class() {
        Class::Float => fill.as_f64().is_some_and(f64::is_nan),
        Class::Int | Class::Time => words().all(signed),
        Class::UInt | Class::Bool => bytes.iter().all(|b| *b == 0xff),
        Class::Complex => true,
        Class::Bits | Class::Text => bytes.iter().all(|b| matches!(b, 0 | 0x80 | 0xff)),
    }
}

/// A dimension of what is taken: its labels, and its own coordinates where the target has a place for them, else as labels.
fn dimension(dim: &Dimension, slice: &Slice, chunk: u64, domains: bool) -> Result<Dimension> {
    let mut out = Dimension::new(plain_name(dim), slice.count());
    let positions = (0..slice.count()).map(|i| slice.start + i * slice.step);
    out.labels = dim.labels.as_ref().map(|labels| pick(labels, positions.clone()));
    let Some((first, _)) = &dim.domain else { return Ok(out) };
    let Some(origin) = first.as_i128() else { return Ok(out) };
    let at = |position: u64| Scalar::from_i128(first.dtype(), origin + i128::from(position));
    if domains && slice.step == 1 && slice.count() > 0 {
        out.dtype = dim.dtype;
        out.domain = at(slice.start).zip(at(slice.start + slice.count() - 1));
        out.tile = Scalar::from_i128(first.dtype(), i128::from(chunk));
        return Ok(out);
    }
    let plain =
        origin == 0 && slice.start == 0 && slice.step == 1 && !matches!(first.dtype(), DType::DateTime(_));
    if out.labels.is_none() && !plain {
        let mut bytes = Vec::new();
        for position in positions {
            match at(position) {
                Some(value) => bytes.extend_from_slice(value.bytes()),
                None => {
                    return Err(Error::unsupported(format!("the coordinates of dimension {:?}", dim.name)));
                }
            }
        }
        out.labels = Some(Labels::Numbers { dtype: first.dtype(), bytes });
    }
    Ok(out)
}

fn pick(labels: &Labels, positions: impl Iterator<Item = u64>) -> Labels {
    let index = |position: u64| usize::try_from(position).unwrap_or(usize::MAX);
    match labels {
        Labels::Text(texts) => Labels::Text(positions.filter_map(|p| texts.get(index(p)).cloned()).collect()),
        Labels::Numbers { dtype, bytes } => {
            let size = dtype.size().unwrap_or(1);
            let one = |p: u64| bytes.get(index(p).saturating_mul(size)..)?.get(..size);
            Labels::Numbers { dtype: *dtype, bytes: positions.filter_map(one).flatten().copied().collect() }
        }
    }
}

/// Whether all variables lie on the same dimensions and chunks, so that one array can have them as its fields.
fn all_alike(drawn: &[Drawn]) -> bool {
    let Some((first, rest)) = drawn.split_first() else { return false };
    rest.iter().all(|other| {
        other.schema.dims == first.schema.dims
            && other.schema.chunk_shape == first.schema.chunk_shape
            && other.selection == first.selection
    })
}

/// One array of one or several variables.
fn joined(group: Vec<Drawn>, memory: Option<u64>, free: u64, threads: usize) -> Result<PlannedArray> {
    let attributes = merge(group.iter().map(|d| (d.name.as_str(), &d.schema.attributes)).collect::<Vec<_>>());
    let mut group = group.into_iter();
    let Some(first) = group.next() else { return Err(Error::invalid("an array of no variable")) };
    let (mut schema, selection, bound) = (first.schema, first.selection, first.bound);
    let mut columns = vec![first.column];
    let mut source_chunk = first.source_chunk;
    for other in group {
        schema.fields.extend(other.schema.fields);
        columns.push(other.column);
        for (all, own) in source_chunk.iter_mut().zip(&other.source_chunk) {
            *all = (*all).max(*own);
        }
    }
    schema.attributes = attributes;
    let cell: u64 = schema
        .fields
        .iter()
        .zip(&columns)
        .map(|(field, column)| {
            let size = |field: &Field| field.cell_size().map_or(ANY_LENGTH, |n| n as u64);
            // Cells that change are read beside their place, and marked where some are not there.
            let marks = u64::from(field.nullable || column.absent != Absent::Kept);
            let own = if column.changes() { size(column.array.selected_field()) } else { 0 };
            size(field) + marks + own
        })
        .sum();
    let grids = Grids {
        shape: selection.shape(),
        from: source_chunk,
        to: schema.chunk_shape.clone().unwrap_or_default(),
        cell,
    };
    let scratch = schema.fields.iter().all(|field| field.cell_size().is_some());
    // Nobody set a limit: what one chunk of either grid takes is taken, however large it is.
    let memory = match (memory, columns.first()) {
        (Some(memory), _) => memory,
        (None, Some(column)) => {
            let size = |chunk: &[u64]| {
                chunk.iter().zip(&grids.shape).fold(cell, |n, (c, s)| n.saturating_mul((*c).min(*s)))
            };
            let least = size(&grids.from).saturating_add(size(&grids.to));
            let (handle, request) = (column.array.handle(), column.array.request(&selection));
            check_pair(handle, &request, least)?;
            work_space(handle, &request, free)?.max(least.saturating_mul(4))
        }
        (None, None) => free,
    };
    let rechunk = RechunkPlan::new(grids, memory, threads, scratch).map_err(|e| e.in_array(&schema.name))?;
    let codecs = vec![Vec::new(); schema.fields.len()];
    let feed = Feed { columns, selection, pass_through: false };
    Ok(PlannedArray { spec: ArraySpec { schema, codecs }, feed, rechunk, bound })
}
