//! Plan of a conversion: every array with its dimensions, dtypes, chunks and codecs, checked by a dry run of the target's writer
//! before the first write.
//!
//! ```text
//! variable    one variable in the target: dtype, chunks, missing cells, dimensions
//!   dimension   its labels and domain          missing   its fill value and missing values
//! array       variables that share an array, and how their cells are rechunked
//! codecs      the codecs of every array
//! cost        memory and work of the plan itself
//! ```

mod array;
mod codecs;
mod cost;
mod dimension;
mod missing;
mod variable;

use std::collections::BTreeMap;
use std::sync::Arc;

use tesseral_core::{Advice, Attributes, DType, Error, ErrorKind, HistoryRow, Result, Selection, Slice};
use tesseral_engine::{Options, Work, WriteSession};
use tesseral_format::convention;
use tesseral_format::{ArraySpec, CreateOptions, Format, Groups};
use tesseral_store::{MemoryStore, Overwrite, Store};

pub(crate) use self::array::PlannedArray;
pub(crate) use self::cost::{check_plan, check_work, default_memory};
pub(crate) use self::missing::{declared, fill};
pub use self::variable::default_chunk;
pub(crate) use self::variable::{CHUNK, cast_of, own_arguments};

use self::array::{drop_converted_labels, same_layout};
use self::variable::PlannedVariable;
use super::cells::PlannedCells;
use super::options::{ConvertOptions, SparseAs, unknown_dim};
use super::provenance;
use super::rows::PlannedRows;
use tesseral_dataset::Container;
use tesseral_dataset::variable::{Variable, Variables};
use tesseral_registry as registry;

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
    /// The digest of the source can be recorded after the cells.
    pub digest_later: bool,
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
        let planned = scope().and_then(|scope| Self::checked(source, scope, format, options, history, work));
        planned.map_err(|error| {
            let ErrorKind::Unsupported { feature } = error.kind() else { return error };
            let others = registry::formats().filter(|f| f.id() != format.id() && f.capabilities().create);
            let able: Vec<&'static str> = others
                .filter(|f| {
                    let checked =
                        |scope| Self::checked(source, scope, *f, options, history, &mut Work::default());
                    scope().and_then(checked).is_ok()
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

    /// Plans, and begins the output in memory: an error of its writer is one of the plan.
    fn checked(
        source: &Container,
        scope: PlanScope,
        format: &'static dyn Format,
        options: &ConvertOptions,
        history: &[HistoryRow],
        work: &mut Work,
    ) -> Result<Self> {
        let mut plan = Self::without_check(source, scope, format, options, work)?;
        let store = Arc::new(MemoryStore::new("a dry run"));
        match plan.begin(store, false, &Options::default(), history) {
            Ok((mut session, ids)) => {
                plan.check_gathered(&session, &ids, options.execution.memory)?;
                plan.digest_later = session.set_parents(&[provenance::EMPTY.to_owned()]);
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

    /// Plans what a dry run accepted before.
    pub(crate) fn without_check(
        source: &Container,
        scope: PlanScope,
        format: &'static dyn Format,
        options: &ConvertOptions,
        work: &mut Work,
    ) -> Result<Self> {
        let mut plan = Self::assemble(scope, format, options, work)?;
        plan.choose_codecs(options, source.format().capabilities().lossy_codecs);
        let pass_through: Vec<bool> =
            plan.arrays.iter().map(|a| a.keeps_chunks(options) && plan.accepts_encoded(a)).collect();
        for (planned, pass_through) in plan.arrays.iter_mut().zip(pass_through) {
            planned.feed.pass_through = pass_through;
        }
        Ok(plan)
    }

    /// Plans all arrays, without codecs.
    fn assemble(
        scope: PlanScope,
        format: &'static dyn Format,
        options: &ConvertOptions,
        work: &mut Work,
    ) -> Result<Self> {
        if !format.capabilities().create {
            return Err(Error::unsupported(format!("writing {}", format.title())));
        }
        let PlanScope { mut variables, groups } = scope;
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
        let mut planned: Vec<PlannedVariable> = dense
            .into_iter()
            .map(|v| {
                options.execution.cancel.check()?;
                let variable = PlannedVariable::new(v, format, options)?;
                let array = &variable.column.array;
                work.add(array.handle(), &array.request(&variable.selection))?;
                Ok(variable)
            })
            .collect::<Result<_>>()?;
        drop_converted_labels(&mut planned);
        let (memory, free) = (options.execution.memory, default_memory());
        let create = create_options(format, options)?;
        let attributes = variables.attributes;
        let fields: Vec<Vec<PlannedVariable>> = match holds.many_fields && same_layout(&planned) {
            true => vec![planned],
            false => planned.into_iter().map(|variable| vec![variable]).collect(),
        };
        let threads = options.execution.threads();
        // Buffers of the writer count against the memory limit.
        let memory = memory.map(|memory| if holds.chunks { memory } else { memory / 2 });
        let prefix = holds.field_attributes.unwrap_or_default();
        let arrays: Vec<PlannedArray> = fields
            .into_iter()
            .map(|fields| PlannedArray::new(fields, prefix, memory, free, threads))
            .collect::<Result<_>>()?;
        let threads = arrays.iter().map(|a| a.rechunk.threads).min().unwrap_or(threads);
        let digest_later = false;
        Ok(Self { format, arrays, cells, tables, attributes, groups, create, threads, digest_later })
    }

    /// Rejects arrays that the writer must hold in memory and that exceed the limit: dense ones are written one after the
    /// other, the columns of tables at once.
    fn check_gathered(&self, session: &WriteSession, ids: &[usize], memory: Option<u64>) -> Result<()> {
        let Some(memory) = memory else { return Ok(()) };
        let held = |ids: &[usize]| ids.iter().map(|id| session.buffered_bytes(*id)).collect::<Vec<u64>>();
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
        let (array, store) = (&column.array, Arc::new(MemoryStore::new("a dry run")));
        let accepted = || -> Result<bool> {
            let (handle, request) = (array.handle(), array.request(&first_cell(&planned.feed.selection)?));
            let form = handle.guarded(|| {
                let plan = handle.plan(&request)?;
                Ok(plan.chunks.first().and_then(|chunk| handle.source().stored_form(chunk)))
            })?;
            let mut writer = convention::create(self.format, store, &self.create)?;
            let number = writer.begin(&planned.spec)?;
            Ok(form.is_some_and(|form| writer.accepts_encoded(number, form)))
        };
        accepted().unwrap_or(false)
    }

    /// All arrays: dense, sparse and those of tables.
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

/// Plans sparse arrays, as cells if the format supports them, or as tables if requested.
fn sparse_arrays(
    variables: &[&Variable],
    format: &'static dyn Format,
    options: &ConvertOptions,
) -> Result<(Vec<PlannedCells>, Vec<PlannedRows>)> {
    let (mut cells, mut tables) = (Vec::new(), Vec::new());
    let holds = format.holds();
    for fields in variables.chunk_by(|a, b| a.array.name() == b.array.name()) {
        match options.sparse {
            _ if holds.table => tables.push(PlannedRows::new(fields, holds, options)?),
            Some(_) => tables.push(PlannedRows::new(fields, holds, options)?),
            None if holds.sparse => cells.push(PlannedCells::new(fields, holds, options)?),
            None => {
                let name = fields.first().map_or("", |v| v.array.name());
                return Err(Error::unsupported(format!("a sparse array in {}", format.title()))
                    .hint(Advice::SparseAs(&["dense", "rows"]))
                    .in_array(name));
            }
        }
    }
    Ok((cells, tables))
}

/// First cell of a nonempty selection.
fn first_cell(selection: &Selection) -> Result<Selection> {
    let slices = selection.slices().iter().map(|s| Slice::new(s.start, s.start + 1));
    let bounds: Vec<u64> = selection.slices().iter().map(|s| s.end).collect();
    Selection::new(slices, &bounds)
}
