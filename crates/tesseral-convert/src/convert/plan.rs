//! Plan of a conversion: every array with its dimensions, dtypes, chunks and codecs, rehearsed against the target's format
//! before the first write.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use tesseral_core::dtype::Class;
use tesseral_core::limits::EXPANSION_RATIO;
use tesseral_core::schema::{CellLen, Labels, VariableRole};
use tesseral_core::{
    Advice, ArraySchema, Attributes, Coords, DType, Dimension, Error, ErrorKind, Field, HistoryRow, Order,
    Result, Scalar, Selection, Slice, missing,
};
use tesseral_engine::kernel::cast;
use tesseral_engine::{
    Grids, Options, RechunkPlan, Work, WriteSession, available_memory, check_held, check_pair, check_total,
    check_written_chunks, divisible, has_gaps, narrowable, oversized, spreadable, work_space,
};
use tesseral_format::convention::Holds;
use tesseral_format::convention::{self, TextExtent};
use tesseral_format::{ArraySpec, CodecSpec, CreateOptions, Format, Groups, contiguous_chunk_shape};
use tesseral_store::{MemoryStore, ObjectKind, Overwrite, Store};

use super::cells::PlannedCells;
use super::feed::{CellFeed, FeedColumn, MissingPolicy};
use super::lossy;
use super::options::{ConvertOptions, SparseAs, unknown_dim};
use super::rows::PlannedRows;
use tesseral_dataset::Container;
use tesseral_dataset::variable::{Variable, Variables, merge, plain_name};
use tesseral_registry as registry;

/// Approximate chunk size in bytes for arrays that the source stores as one chunk.
pub(crate) const CHUNK: u64 = 4 << 20;
/// Rows of a chunk where the chunks of all columns have the same rows.
const TABLE_ROWS: u64 = 1 << 17;
/// Assumed size of a variable-length cell in bytes.
const ANY_LENGTH: u64 = 32;

/// Memory of the plan of one array of a conversion, in bytes.
const PLAN_COST: u64 = 20 << 10;
/// Work of a conversion for one group, in bytes: a document of its own, at most.
const GROUP_COST: u64 = 6 << 10;
/// Size of a plan that fits in addition to any memory limit, in bytes.
const FREE_PLAN: u64 = 8 << 20;

/// One array to be written.
#[derive(Debug)]
pub(crate) struct PlannedArray {
    pub spec: ArraySpec,
    pub feed: CellFeed,
    pub rechunk: RechunkPlan,
    /// Error bounds of packed cells.
    pub bound: Option<lossy::ErrorBound>,
}

impl PlannedArray {
    /// Returns whether stored chunks can be copied: cells are unchanged, and no other level is requested.
    fn passes(&self, options: &ConvertOptions) -> bool {
        let schema = &self.spec.schema;
        let [column] = self.feed.columns.as_slice() else { return false };
        let field = column.array.selected_field();
        let levels = options.codecs.iter().flatten().any(|codec| !codec.options.is_empty());
        let names: Vec<&str> = self.spec.codecs.iter().flatten().map(|codec| codec.name.as_str()).collect();
        let slices = self.feed.selection.slices().iter();
        !levels
            && !column.changes()
            && self.bound.is_none()
            && schema.fields[0].nullable == field.nullable
            && field.codecs.iter().map(String::as_str).eq(names.iter().copied())
            && column.array.schema().chunk_shape == schema.chunk_shape
            && slices
                .zip(&self.rechunk.grids.to)
                .all(|(slice, chunk)| slice.step == 1 && slice.start.is_multiple_of(*chunk))
    }
}

/// The complete plan.
#[derive(Debug)]
pub(crate) struct ConvertPlan {
    pub format: &'static dyn Format,
    pub arrays: Vec<PlannedArray>,
    /// Sparse arrays that stay sparse.
    pub cells: Vec<PlannedCells>,
    /// Sparse arrays that become tables.
    pub tables: Vec<PlannedRows>,
    pub attributes: Attributes,
    /// Groups with their attributes.
    pub groups: Groups,
    pub create: CreateOptions,
    pub threads: usize,
}

/// Arrays that are planned together.
#[derive(Clone, Debug)]
pub(crate) struct PlanScope {
    pub variables: Variables,
    pub groups: Groups,
}

impl PlanScope {
    /// All of a source, or the arrays that the options name.
    pub(crate) fn whole(source: &Container, options: &ConvertOptions) -> Result<Self> {
        let arrays = if options.arrays.is_empty() { source.len() } else { options.arrays.len() };
        check_work(source, arrays)?;
        check_plan(arrays, options)?;
        let variables = Variables::select(source, &options.arrays)?;
        match unknown_names(&variables.list, options).into_iter().next() {
            Some((_, error)) => Err(error),
            None => Ok(Self { variables, groups: source.groups().clone() }),
        }
    }
}

impl ConvertPlan {
    /// Plans, and checks that the format supports the result; otherwise the error names formats that do. `work` is that of all plans
    /// of the operation.
    pub(crate) fn new(
        source: &Container,
        scope: &dyn Fn() -> Result<PlanScope>,
        format: &'static dyn Format,
        options: &ConvertOptions,
        history: &[HistoryRow],
        work: &mut Work,
    ) -> Result<Self> {
        let planned =
            scope().and_then(|scope| Self::rehearsed(source, scope, format, options, history, work));
        planned.map_err(|error| {
            let ErrorKind::Unsupported { feature } = error.kind() else { return error };
            let others = registry::formats().filter(|f| f.id() != format.id() && f.capabilities().create);
            let able: Vec<&'static str> = others
                .filter(|f| {
                    let rehearsed =
                        |scope| Self::rehearsed(source, scope, *f, options, history, &mut Work::default());
                    scope().and_then(rehearsed).is_ok()
                })
                .map(|f| f.id())
                .collect();
            let advice = error.advice().cloned().unwrap_or(Advice::LeaveOut);
            let advice = if able.is_empty() { advice } else { Advice::OtherFormat { able }.or(advice) };
            let rejection = Error::unsupported(feature.clone()).hint(advice);
            match error.array() {
                Some(array) => rejection.in_array(array),
                None => rejection,
            }
        })
    }

    fn rehearsed(
        source: &Container,
        scope: PlanScope,
        format: &'static dyn Format,
        options: &ConvertOptions,
        history: &[HistoryRow],
        work: &mut Work,
    ) -> Result<Self> {
        let plan = Self::unrehearsed(source, scope, format, options, work)?;
        let store = Arc::new(MemoryStore::new("a rehearsal"));
        match plan.begin(store, false, &Options::default(), history) {
            Ok((session, ids)) => {
                plan.check_gathered(&session, &ids, options.execution.memory)?;
                Ok(plan)
            }
            // A violated rule or limit of the format counts as unsupported.
            Err(e) if matches!(e.kind(), ErrorKind::InvalidRequest { .. } | ErrorKind::Limit { .. }) => {
                let rejection = Error::unsupported(format!("{} in {}", e.kind(), format.title()));
                Err(match e.array() {
                    Some(array) => rejection.in_array(array),
                    None => rejection,
                })
            }
            Err(e) => Err(e),
        }
    }

    /// Plans an array that was rehearsed before.
    pub(crate) fn unrehearsed(
        source: &Container,
        scope: PlanScope,
        format: &'static dyn Format,
        options: &ConvertOptions,
        work: &mut Work,
    ) -> Result<Self> {
        let mut plan = Self::draw_up(scope, format, options, work)?;
        plan.choose_codecs(options, source.format().capabilities().lossy_codecs);
        let taken: Vec<bool> =
            plan.arrays.iter().map(|a| a.passes(options) && plan.accepts_encoded(a)).collect();
        for (planned, taken) in plan.arrays.iter_mut().zip(taken) {
            planned.feed.pass_through = taken;
        }
        Ok(plan)
    }

    fn draw_up(
        scope: PlanScope,
        format: &'static dyn Format,
        options: &ConvertOptions,
        work: &mut Work,
    ) -> Result<Self> {
        if !format.capabilities().create {
            return Err(Error::unsupported(format!("writing {}", format.title())));
        }
        let PlanScope { mut variables, groups: named } = scope;
        // Cells that share bytes are not cells of other formats: Booleans are.
        for variable in &mut variables.list {
            if variable.array.selected_field().dtype == DType::Bitmask {
                variable.array = variable.array.clone().physical();
            }
        }
        let holds = format.holds();
        let listed = |v: &&Variable| v.array.schema().sparse && options.sparse != Some(SparseAs::Dense);
        let (sparse, dense): (Vec<&Variable>, Vec<&Variable>) = variables.list.iter().partition(listed);
        let (cells, tables) = sparse_arrays(&sparse, format, options)?;
        let mut drawn: Vec<PlannedVariable> = dense
            .into_iter()
            .map(|v| {
                options.execution.cancel.check()?;
                let drawn = PlannedVariable::new(v, format, options)?;
                let array = &drawn.column.array;
                work.add(array.handle(), &array.request(&drawn.selection))?;
                Ok(drawn)
            })
            .collect::<Result<_>>()?;
        drop_views(&mut drawn);
        let (memory, free) = (options.execution.memory, default_memory());
        let create = create_options(format, options)?;
        let attributes = variables.attributes;
        let groups: Vec<Vec<PlannedVariable>> = if holds.many_fields && all_alike(&drawn) {
            vec![drawn]
        } else {
            drawn.into_iter().map(|label_bytes| vec![label_bytes]).collect()
        };
        let threads = options.execution.threads();
        // Buffers of the writer count against the memory limit.
        let moving = memory.map(|memory| if holds.chunks { memory } else { memory / 2 });
        let prefix = holds.field_attributes.unwrap_or_default();
        let arrays: Vec<PlannedArray> = groups
            .into_iter()
            .map(|group| joined(group, prefix, moving, free, threads))
            .collect::<Result<_>>()?;
        let threads = arrays.iter().map(|a| a.rechunk.threads).min().unwrap_or(threads);
        Ok(Self { format, arrays, cells, tables, attributes, groups: named, create, threads })
    }

    /// Requested codecs, else those of the source; codecs that the target lacks become zstd, gzip or raw.
    fn choose_codecs(&mut self, options: &ConvertOptions, lossy: &[&str]) {
        let (format, create) = (self.format, self.create.clone());
        let chosen = |schema: &ArraySchema,
                      text: Option<TextExtent>,
                      sources: &[&Field]|
         -> Vec<Vec<CodecSpec>> {
            if let Some(codecs) = &options.codecs {
                return vec![codecs.clone(); schema.fields.len()];
            }
            let own: Vec<Vec<CodecSpec>> = sources.iter().map(|field| lasting(field, lossy)).collect();
            let instead = |name: &str| -> Vec<Vec<CodecSpec>> {
                let one =
                    |c: &Vec<CodecSpec>| if c.is_empty() { Vec::new() } else { vec![CodecSpec::new(name)] };
                own.iter().map(one).collect()
            };
            let (zstd, gzip) = (instead("zstd"), instead("gzip"));
            let fits = |codecs: &Vec<Vec<CodecSpec>>| {
                let spec = ArraySpec { schema: schema.clone(), codecs: codecs.clone(), text };
                let store = Arc::new(MemoryStore::new("a rehearsal"));
                convention::create(format, store, &create).and_then(|mut writer| writer.begin(&spec)).is_ok()
            };
            let raw = vec![Vec::new(); schema.fields.len()];
            [own, zstd, gzip].into_iter().find(fits).unwrap_or(raw)
        };
        for planned in &mut self.arrays {
            if let Some(bound) = &planned.bound {
                planned.spec.codecs = vec![bound.codecs(options.codecs.clone().unwrap_or_default())];
                continue;
            }
            let sources: Vec<&Field> =
                planned.feed.columns.iter().map(|c| c.array.selected_field()).collect();
            planned.spec.codecs = chosen(&planned.spec.schema, planned.spec.text, &sources);
        }
        for planned in &mut self.cells {
            planned.spec.codecs = chosen(&planned.spec.schema, None, &planned.sources().collect::<Vec<_>>());
        }
        for table in &mut self.tables {
            let sources = table.sources.clone();
            for (spec, source) in table.specs.iter_mut().zip(&sources) {
                spec.codecs = chosen(&spec.schema, None, &[source]);
            }
        }
    }

    /// Rejects arrays that the writer must hold in memory and that exceed the limit: dense ones are written one after the
    /// other, the columns of tables at once.
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
        Err(Error::limit(what, needed, memory)
            .hint(Advice::RaiseMemory.or(Advice::SelectLess).or(Advice::Codecs(&["raw", "zstd"]))))
    }

    /// Returns whether the target would store the chunks of an array like the source.
    pub(crate) fn accepts_encoded(&self, planned: &PlannedArray) -> bool {
        let [column] = planned.feed.columns.as_slice() else { return false };
        let (array, store) = (&column.array, Arc::new(MemoryStore::new("a rehearsal")));
        let asked = || -> Result<bool> {
            let (handle, request) = (array.handle(), array.request(&first(&planned.feed.selection)?));
            let form = handle.guarded(|| {
                let plan = handle.plan(&request)?;
                Ok(plan.chunks.first().and_then(|chunk| handle.source().stored_form(chunk)))
            })?;
            let mut writer = convention::create(self.format, store, &self.create)?;
            let number = writer.begin(&planned.spec)?;
            Ok(form.is_some_and(|form| writer.accepts_encoded(number, form)))
        };
        asked().unwrap_or(false)
    }

    /// Creates all arrays: dense, sparse and those of tables.
    fn specs(&self) -> impl Iterator<Item = &ArraySpec> {
        let arrays = self.arrays.iter().map(|planned| &planned.spec);
        let cells = self.cells.iter().map(|planned| &planned.spec);
        arrays.chain(cells).chain(self.tables.iter().flat_map(|table| &table.specs))
    }

    /// Creates a container with everything that is known before the cells.
    pub(crate) fn begin(
        &self,
        store: Arc<dyn Store>,
        folder: bool,
        execution: &Options,
        history: &[HistoryRow],
    ) -> Result<(WriteSession, Vec<usize>)> {
        let create = CreateOptions { folder, ..self.create.clone() };
        let mut session = begin(self.format, store, &create, execution)?;
        let ids = self.declare(&mut session, history)?;
        Ok((session, ids))
    }

    /// Declares everything that is known before the cells; returns the numbers of the arrays.
    pub(crate) fn declare(&self, session: &mut WriteSession, history: &[HistoryRow]) -> Result<Vec<usize>> {
        let ids = self.specs().map(|spec| session.add(spec)).collect::<Result<_>>()?;
        if !self.attributes.is_empty() {
            session.set_attributes(self.attributes.clone())?;
        }
        if !self.groups.is_empty() {
            session.set_groups(self.groups.clone())?;
        }
        for row in history {
            session.add_history(row.clone())?;
        }
        Ok(ids)
    }
}

/// Begins a container.
pub(crate) fn begin(
    format: &'static dyn Format,
    store: Arc<dyn Store>,
    create: &CreateOptions,
    execution: &Options,
) -> Result<WriteSession> {
    Ok(WriteSession::new(convention::create(format, store, create)?, execution.clone()))
}

/// Options of the output.
pub(crate) fn create_options(format: &'static dyn Format, options: &ConvertOptions) -> Result<CreateOptions> {
    let mut create = CreateOptions {
        statistics: options.statistics,
        chunk_statistics: options.chunk_statistics,
        work_space: Some(options.execution.memory.unwrap_or_else(default_memory) / 4),
        ..CreateOptions::default()
    };
    if !options.create.is_empty() {
        create.format = format.create_options().parse(&options.create)?;
    }
    // The empty file or folder at the temporary name is replaced.
    create.overwrite = Overwrite::Replace;
    Ok(create)
}

/// Names in the options that no variable has, each with the error.
pub(crate) fn unknown_names(variables: &[Variable], options: &ConvertOptions) -> BTreeMap<String, Error> {
    let mut unknown = BTreeMap::new();
    let schemas = variables.iter().map(|v| v.array.schema());
    if let Some(error) = options.chunk.as_ref().and_then(|chunk| chunk.unknown(schemas.clone())) {
        unknown.insert("chunk".to_owned(), error);
    }
    for argument in &options.select {
        if let Some((dim, _)) = argument.split_once('=')
            && let Some(error) = unknown_dim(dim, schemas.clone())
        {
            unknown.insert(format!("select {dim}"), error);
        }
    }
    for name in options.casts.iter().filter_map(|cast| cast.name.as_ref()) {
        if !variables.iter().any(|v| v.name == **name) {
            let names = variables.iter().map(|v| v.name.clone()).collect();
            unknown.insert(format!("cast {name}"), Error::not_found("array", name, names));
        }
    }
    unknown
}

/// Rejects the planning of so many arrays and groups that it is much work for what the source stores.
pub(crate) fn check_work(source: &Container, arrays: usize) -> Result<()> {
    let groups = (source.groups().len() as u64).saturating_mul(GROUP_COST);
    let needed = plan_size(arrays).saturating_add(groups);
    let check = |stored| source.limits().check_total("the plan of a conversion", needed, stored);
    // Folders are listed only where that decides.
    if check(0).is_ok() {
        return Ok(());
    }
    let store = &**source.inner().store();
    check(store.len("").or_else(|_| stored_size(store, "", needed, source.limits().depth))?)
}

/// Size of the objects of a folder, or of enough of them to justify `needed` bytes.
fn stored_size(store: &dyn Store, folder: &str, needed: u64, depth: usize) -> Result<u64> {
    let mut size = 0_u64;
    for entry in store.list(folder)? {
        let path = if folder.is_empty() { entry.name.clone() } else { format!("{folder}/{}", entry.name) };
        size = size.saturating_add(match entry.kind {
            ObjectKind::File => entry.len.map_or_else(|| store.len(&path), Ok)?,
            ObjectKind::Folder if depth > 0 => stored_size(store, &path, needed, depth - 1)?,
            _ => 0,
        });
        if size.saturating_mul(EXPANSION_RATIO) >= needed {
            break;
        }
    }
    Ok(size)
}

/// Rejects a plan of so many arrays that it does not fit into the memory limit, or into what is free.
pub(crate) fn check_plan(arrays: usize, options: &ConvertOptions) -> Result<()> {
    let needed = plan_size(arrays);
    if needed <= FREE_PLAN {
        return Ok(());
    }
    let Some(memory) = options.execution.memory.or_else(available_memory).filter(|memory| needed > *memory)
    else {
        return Ok(());
    };
    let what = format!("the plan of a conversion of {arrays} arrays");
    let hint = Advice::RaiseMemory.or("convert parts of the arrays, one after another");
    Err(Error::limit(what, needed, memory).hint(hint))
}

fn plan_size(arrays: usize) -> u64 {
    (arrays as u64).saturating_mul(PLAN_COST)
}

/// A quarter of the free memory, at most two gibibytes.
pub(crate) fn default_memory() -> u64 {
    available_memory().map_or(512 << 20, |free| (free / 4).clamp(64 << 20, 2 << 30))
}

/// Codecs of a field that lose nothing.
fn lasting(field: &Field, lossy: &[&str]) -> Vec<CodecSpec> {
    if field.codecs.iter().any(|name| lossy.contains(&name.as_str())) {
        // What packed values were compressed with does not suit plain ones.
        return vec![CodecSpec::new("zstd")];
    }
    field.codecs.iter().filter(|name| *name != "raw").map(CodecSpec::new).collect()
}

/// One variable in the target.
struct PlannedVariable {
    name: String,
    schema: ArraySchema,
    column: FeedColumn,
    selection: Selection,
    source_chunk: Coords,
    bound: Option<lossy::ErrorBound>,
    text: Option<TextExtent>,
}

impl PlannedVariable {
    fn new(variable: &Variable, format: &'static dyn Format, options: &ConvertOptions) -> Result<Self> {
        Self::draw(variable, format, options).map_err(|e| e.in_array(&variable.name))
    }

    fn draw(variable: &Variable, format: &'static dyn Format, options: &ConvertOptions) -> Result<Self> {
        let holds = format.holds();
        let own = own_arguments(variable.array.schema(), options);
        let (array, selection) = variable.array.narrowed(own)?;
        let variable = &Variable { array: array.into_owned(), ..variable.clone() };
        let (array, from) = (&variable.array, variable.array.schema());
        if from.sparse {
            spreadable(array.handle(), array.field_number())
                .map_err(|e| e.hint(Advice::SparseAs(&["rows"])))?;
        }
        check_total(array.handle(), &array.request(&selection))?;
        let field = array.selected_field();
        let dtype = cast_of(&variable.name, field, options)?;
        let bound = lossy::ErrorBound::choose(array, &selection, dtype, options)?;
        let whole = from.shape().unwrap_or_default();
        let stored_chunk = from.chunk_shape.clone().unwrap_or_else(|| tiles(from, &whole));
        let source_chunk: Coords = stored_chunk
            .iter()
            .zip(selection.slices())
            .map(|(chunk, slice)| (chunk / slice.step).clamp(1, slice.count().max(1)))
            .collect();
        let shape = selection.shape();
        let default = if holds.table {
            shape.iter().map(|rows| (*rows).clamp(1, TABLE_ROWS)).collect()
        } else if holds.contiguous {
            contiguous_chunk_shape(&shape, field.cell_size().unwrap_or(ANY_LENGTH as usize) as u64)
        } else if !holds.chunks || bytes(&source_chunk, field) <= 4 * CHUNK {
            source_chunk.clone()
        } else {
            default_chunk(&shape, field.cell_size().unwrap_or(ANY_LENGTH as usize) as u64)
        };
        let chunk = match &options.chunk {
            Some(_) if !holds.chunks || holds.contiguous => {
                return Err(
                    Error::unsupported(format!("chunks in {}", format.title())).hint(Advice::DefaultChunks)
                );
            }
            Some(chunk) => chunk.resolve(from, &default)?,
            None => default,
        };
        let is_text = field.cell == CellLen::Var && !(holds.cells)(field.dtype, CellLen::Var);
        // Variable-length cells with another layout can require a single chunk.
        let chunk = if is_text { shape.iter().map(|n| (*n).max(1)).collect() } else { chunk };
        // If any range of a chunk can be read, the old chunks do not matter.
        let request = array.request(&selection);
        // Nor if a whole one would exceed the memory, and ranges can be read.
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
        // Size in memory: the array if the format keeps it whole, else the decoded chunk.
        let held = if holds.chunks { &source_chunk } else { &shape };
        check_held(array.handle(), &array.request(&selection), held)?;
        if holds.chunks {
            let along = shape.iter().zip(&chunk).map(|(extent, chunk)| extent.div_ceil((*chunk).max(1)));
            let chunks = along.fold(1_u64, u64::saturating_mul);
            let objects = format.capabilities().chunk_objects;
            check_written_chunks(array.handle(), &array.request(&selection), chunks, objects)?;
        }
        let dims = from.dims.iter().zip(selection.slices());
        let dims = dims.zip(&chunk).map(|((dim, slice), chunk)| dimension(dim, slice, *chunk, holds.domains));
        let mut absent = absent(variable, &selection, dtype, holds, options)?;
        if bound.is_some() && absent != MissingPolicy::Preserve {
            absent = MissingPolicy::Value(lossy::ErrorBound::missing());
        }
        let replaced = replaced(field, dtype, bound.is_some_and(|bound| bound.has_missing));
        let mut to = Field {
            name: variable.name.clone(),
            dtype,
            nullable: (field.nullable || absent == MissingPolicy::Null) && holds.nullable,
            fill: match &absent {
                MissingPolicy::Value(value) => Some(value.clone()),
                _ => fill(field, dtype),
            },
            fill_valid: field.fill_valid,
            missing: declared(field, dtype),
            enumeration: field.enumeration.clone(),
            time: None,
            codecs: Vec::new(),
            cell: field.cell,
        };
        if dtype != field.dtype {
            to.enumeration = None;
        }
        let stand_in = if let MissingPolicy::Value(value) = &absent { Some(value) } else { None };
        for value in replaced.iter().map(|(_, new)| new).chain(stand_in) {
            if !to.missing.iter().any(|known| missing::same(known, value)) {
                to.missing.push(value.clone());
            }
        }
        let mut attributes = variable.attributes.clone();
        if let Some(bound) = &bound {
            attributes.extend(bound.attributes());
        }
        let schema = ArraySchema {
            field_attributes: None,
            role: from.role,
            name: variable.name.clone(),
            dims: dims.collect::<Result<_>>()?,
            fields: vec![to],
            shard_shape: from.shard_shape.as_ref().and_then(|shard| shards(shard, &chunk, &shape)),
            chunk_shape: Some(chunk),
            cell_order: Order::RowMajor,
            sparse: false,
            allows_duplicates: false,
            attributes,
        };
        let column = FeedColumn { array: array.clone(), dtype, absent, replaced };
        let text = is_text.then(|| column.text_extent(&selection)).transpose()?;
        Ok(Self { name: variable.name.clone(), schema, column, selection, source_chunk, bound, text })
    }
}

/// Shards of the source around whole new chunks, at most as long as the array: a file can declare any extent, and the index of a
/// shard has an entry for each of its chunks.
fn shards(shard: &[u64], chunk: &[u64], shape: &[u64]) -> Option<Coords> {
    let extents = shard.iter().zip(chunk).zip(shape);
    extents
        .map(|((shard, chunk), extent)| shard.min(extent).max(&1).checked_next_multiple_of(*chunk))
        .collect()
}

/// Declared missing values in the target's dtype.
pub(crate) fn declared(field: &Field, dtype: DType) -> Vec<Scalar> {
    let mut out: Vec<Scalar> = Vec::new();
    for value in field.missing.iter().filter_map(|value| missing::declared_as(value, dtype)) {
        if !out.iter().any(|known| missing::same(known, &value)) {
            out.push(value);
        }
    }
    out
}

/// Declared missing values that cells of the target cannot hold as they are, with what replaces them: the value that the declaration
/// has there, or the one that packed cells have.
fn replaced(field: &Field, dtype: DType, packed: bool) -> Vec<(Scalar, Scalar)> {
    let pair = |value: &Scalar| {
        let new = match (packed, cast_scalar(value, dtype)) {
            (true, _) => lossy::ErrorBound::missing(),
            (false, Some(_)) => return None,
            (false, None) => missing::declared_as(value, dtype)?,
        };
        Some((value.clone(), new))
    };
    field.missing.iter().filter_map(pair).take(usize::from(u8::MAX) - 1).collect()
}

/// Drops labels of dimensions whose coordinate variable is converted.
fn drop_views(drawn: &mut [PlannedVariable]) {
    let names: HashSet<String> =
        drawn.iter().filter(|d| d.schema.role == VariableRole::Index).map(|d| d.name.clone()).collect();
    for PlannedVariable { schema, .. } in drawn {
        let name = schema.name.clone();
        for dim in &mut schema.dims {
            let mut group = name.as_str();
            let view = schema.role == VariableRole::Index
                || names.contains(&dim.name)
                || std::iter::from_fn(|| {
                    group = group.rsplit_once('/')?.0;
                    Some(group)
                })
                .any(|group| names.contains(&format!("{group}/{}", dim.name)));
            if view {
                dim.labels = None;
            }
        }
    }
}

/// Tile extents of a sparse array.
fn tiles(schema: &ArraySchema, whole: &[u64]) -> Coords {
    let tile = |(dim, extent): (&Dimension, &u64)| {
        let tile = dim.tile.as_ref().and_then(Scalar::as_i128).and_then(|tile| u64::try_from(tile).ok());
        tile.filter(|tile| *tile > 0).map_or(*extent, |tile| tile.min(*extent))
    };
    schema.dims.iter().zip(whole).map(tile).collect()
}

/// Selections of the array's dimensions.
pub(crate) fn own_arguments<'a>(
    schema: &ArraySchema,
    options: &'a ConvertOptions,
) -> impl Iterator<Item = &'a str> {
    let own = |argument: &&String| argument.split_once('=').is_none_or(|(dim, _)| schema.dim(dim).is_ok());
    options.select.iter().filter(own).map(String::as_str)
}

/// Plans sparse arrays, as cells if the format supports them, or as tables if requested.
fn sparse_arrays(
    variables: &[&Variable],
    format: &'static dyn Format,
    options: &ConvertOptions,
) -> Result<(Vec<PlannedCells>, Vec<PlannedRows>)> {
    let (mut cells, mut tables) = (Vec::new(), Vec::new());
    let holds = format.holds();
    for label_bytes in variables.chunk_by(|a, b| a.array.name() == b.array.name()) {
        match options.sparse {
            _ if holds.table => tables.push(PlannedRows::new(label_bytes, holds, options)?),
            Some(_) => tables.push(PlannedRows::new(label_bytes, holds, options)?),
            None if holds.sparse => cells.push(PlannedCells::new(label_bytes, holds, options)?),
            None => {
                let name = label_bytes.first().map_or("", |v| v.array.name());
                return Err(Error::unsupported(format!("a sparse array in {}", format.title()))
                    .hint(Advice::SparseAs(&["dense", "rows"]))
                    .in_array(name));
            }
        }
    }
    Ok((cells, tables))
}

/// First cell of a nonempty selection.
fn first(selection: &Selection) -> Result<Selection> {
    let slices = selection.slices().iter().map(|s| Slice::new(s.start, s.start + 1));
    let bounds: Vec<u64> = selection.slices().iter().map(|s| s.end).collect();
    Selection::new(slices, &bounds)
}

fn bytes(chunk: &[u64], field: &Field) -> u64 {
    let size = field.cell_size().map_or(ANY_LENGTH, |n| n as u64);
    chunk.iter().fold(size, |n, extent| n.saturating_mul(*extent))
}

/// Chunks of whole rows of about 4 MiB.
pub fn default_chunk(shape: &[u64], cell: u64) -> Coords {
    let mut left = (CHUNK / cell.max(1)).max(1);
    let mut chunk = Coords::from_elem(1, shape.len());
    for d in (0..shape.len()).rev() {
        chunk[d] = shape[d].clamp(1, left);
        left = (left / chunk[d]).max(1);
    }
    chunk
}

/// Target dtype of cells.
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

/// Representation of null and unwritten cells of a variable in the target. They stay missing: as nulls where the target has them,
/// else as a declared missing value.
fn absent(
    variable: &Variable,
    selection: &Selection,
    dtype: DType,
    holds: Holds,
    options: &ConvertOptions,
) -> Result<MissingPolicy> {
    let (array, field) = (&variable.array, variable.array.selected_field());
    let named = options.fills.iter().rev().find(|fill| fill.name.as_ref() == Some(&variable.name));
    let asked = named.or_else(|| options.fills.iter().rev().find(|fill| fill.name.is_none()));
    let asked = asked.map(|fill| Scalar::parse(dtype, &fill.value).map(MissingPolicy::Value)).transpose()?;
    if field.nullable {
        // Floats have a value for it, unless a valid cell holds it: then the conversion stops.
        let nan =
            (dtype.class() == Class::Float).then(|| cast_scalar(&Scalar::from_element(f64::NAN), dtype));
        return Ok(match asked.or_else(|| nan.flatten().map(MissingPolicy::Value)) {
            _ if holds.nullable => MissingPolicy::Preserve,
            Some(value) => value,
            None => MissingPolicy::Reject,
        });
    }
    let sparse = array.schema().sparse;
    if !sparse && !has_gaps(array.handle(), &array.request(selection))? {
        return Ok(MissingPolicy::Preserve);
    }
    if let Some(asked) = asked {
        return Ok(asked);
    }
    let declared = |value: &Scalar| field.missing.iter().any(|known| missing::same(known, value));
    if !sparse && field.fill.as_ref().is_some_and(declared) {
        // Their fill value is declared to be missing.
        return Ok(MissingPolicy::Preserve);
    }
    if holds.nullable && field.missing.is_empty() {
        return Ok(MissingPolicy::Null);
    }
    let value = field.missing.first().or(field.fill.as_ref()).and_then(|fill| cast_scalar(fill, dtype));
    value
        .map(MissingPolicy::Value)
        .ok_or_else(|| Error::unsupported(format!("unwritten cells as {dtype}")).hint(Advice::FillValue))
}

/// The fill value, unless it is the format's default.
pub(crate) fn fill(field: &Field, dtype: DType) -> Option<Scalar> {
    let fill = field.fill.as_ref()?;
    if is_unset(fill) {
        return None;
    }
    cast_scalar(fill, dtype)
}

/// Converts a value to another dtype, if it fits.
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

/// A dimension of the selection: its labels, and its domain if the target supports it, else as labels.
fn dimension(dim: &Dimension, slice: &Slice, chunk: u64, domains: bool) -> Result<Dimension> {
    let mut out = Dimension::new(plain_name(dim), slice.count());
    let positions = (0..slice.count()).map(|i| slice.start + i * slice.step);
    out.labels = dim.labels.as_ref().map(|labels| pick(labels, positions.clone()));
    let Some((first, last)) = &dim.domain else { return Ok(out) };
    let Some(origin) = first.as_i128() else { return Ok(out) };
    // Positions behind the end of a cyclic axis have labels, and no values of the domain.
    let last = last.as_i128().and_then(|last| last.checked_sub(origin));
    if out.labels.is_some() && last.is_some_and(|last| i128::from(slice.tight_end()) > last + 1) {
        return Ok(out);
    }
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
            let label_bytes = |p: u64| bytes.get(index(p).saturating_mul(size)..)?.get(..size);
            Labels::Numbers {
                dtype: *dtype,
                bytes: positions.filter_map(label_bytes).flatten().copied().collect(),
            }
        }
    }
}

/// Returns whether all variables have the same dimensions and chunks, so that they can be fields of one array. Coordinates
/// next to data are separate variables.
fn all_alike(drawn: &[PlannedVariable]) -> bool {
    let Some((first, rest)) = drawn.split_first() else { return false };
    let all_data = || drawn.iter().all(|variable| variable.schema.role == VariableRole::Data);
    (rest.is_empty() || all_data())
        && rest.iter().all(|other| {
            other.schema.dims == first.schema.dims
                && other.schema.chunk_shape == first.schema.chunk_shape
                && other.selection == first.selection
        })
}

/// Plans one array of one or several variables.
fn joined(
    group: Vec<PlannedVariable>,
    prefix: &str,
    memory: Option<u64>,
    free: u64,
    threads: usize,
) -> Result<PlannedArray> {
    let attributes =
        merge(prefix, group.iter().map(|d| (d.name.as_str(), &d.schema.attributes)).collect::<Vec<_>>());
    let mut group = group.into_iter();
    let Some(first) = group.next() else { return Err(Error::internal("an array without variables")) };
    let (mut schema, selection, bound) = (first.schema, first.selection, first.bound);
    let text = first.text;
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
            // Converted cells are read into a separate buffer, with missing ones marked.
            let marks = u64::from(field.nullable || column.absent != MissingPolicy::Preserve);
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
    // Without a memory limit, a chunk of either grid is accepted at any size.
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
    let feed = CellFeed { columns, selection, pass_through: false };
    Ok(PlannedArray { spec: ArraySpec { schema, codecs, text }, feed, rechunk, bound })
}
