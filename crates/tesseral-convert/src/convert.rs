//! Conversion between formats, chunk shapes and dtypes.
//!
//! [`convert`] plans everything first, with a dry run of the writer, so that unsupported arrays are rejected
//! before the first write. Cells then stream through the engine; the output is staged and published atomically.

mod cells;
mod check;
mod feed;
mod lossy;
mod options;
mod parts;
mod plan;
mod provenance;
mod resume;
mod rows;

use std::path::Path;

use tesseral_core::{Error, Result};
use tesseral_engine::{Options, RechunkPlan, Work, WriteSession, transfer};
use tesseral_format::{ArraySpec, Format};
use tesseral_store::{Overwrite, ReadMode};

pub(crate) use self::check::{compare_columns, compare_rows, grown};
use self::feed::MissingPolicy;
pub(crate) use self::feed::position;
pub use self::options::{Cast, ChunkShape, ConvertOptions, Fill, Resume, SparseAs, parse_codecs};
pub use self::plan::default_chunk;
pub(crate) use self::plan::default_memory;
use self::plan::{ConvertPlan, PlanScope};
use tesseral_dataset::{Container, Open, Output, StagedOutput};
use tesseral_registry as registry;

/// Report of a conversion or a dry run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Converted {
    /// The format of the output.
    pub format: &'static dyn Format,
    /// The arrays of the output; the first ten thousand of them if it has several messages.
    pub arrays: Vec<ConvertedArray>,
    /// Number of arrays of the output.
    pub array_count: usize,
    /// Size of the cells of its dense arrays in bytes.
    pub raw_bytes: u64,
    /// The digest of the input; empty after a dry run.
    pub digest: String,
    /// Size of the output in bytes; 0 after a dry run.
    pub stored_bytes: u64,
    /// Number of chunks taken from an interrupted attempt.
    pub resumed: u64,
    /// Whether every cell of the output was read again and compared.
    pub checked: bool,
    /// Whether nothing was written.
    pub dry_run: bool,
}

/// One array of an output.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConvertedArray {
    /// Name of the array.
    pub name: String,
    /// Fields of the array.
    pub fields: Vec<ConvertedField>,
    /// Names of its dimensions.
    pub dims: Vec<String>,
    /// Shape; `None` if positions are not countable.
    pub shape: Vec<Option<u64>>,
    /// Chunk shape; empty for a sparse array.
    pub chunk_shape: Vec<u64>,
    /// Whether the array is sparse.
    pub sparse: bool,
    /// Number of written cells of a sparse array.
    pub cells: Option<u64>,
    /// How its cells are transferred; `None` for sparse arrays, which are written in batches.
    pub rechunk: Option<RechunkPlan>,
    /// Whether stored chunks are copied without decoding where possible.
    pub pass_through: bool,
    /// Bits per packed cell and the measured error, if cells were packed.
    pub packed: Option<Packed>,
}

/// A converted field.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ConvertedField {
    /// Name of the field.
    pub name: String,
    /// Display name of the dtype.
    pub dtype: String,
    /// Codecs with their levels.
    pub codecs: Vec<String>,
    /// Replacement of nulls and unwritten cells: `null`, or a value that is declared as missing. `None` if there are none, or
    /// they are unchanged.
    pub absent: Option<String>,
}

/// Packed cells.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Packed {
    /// Bits per cell.
    pub bits: u32,
    /// Largest absolute error, once measured.
    pub max_abs_error: Option<f64>,
    /// Largest relative error, once measured.
    pub max_rel_error: Option<f64>,
}

/// Converts a source. The target is published atomically.
///
/// # Errors
/// `Unsupported`, with alternative formats, if the target's format cannot store something; `InvalidRequest` if the output
/// exists; `Limit`; errors of reading and writing. Nothing remains after an error.
pub fn convert(source: &Container, target: impl AsRef<Path>, options: &ConvertOptions) -> Result<Converted> {
    run(source, target.as_ref(), options, "convert")
}

/// Converts with another operation name in the history.
pub(crate) fn run(
    source: &Container,
    target: &Path,
    options: &ConvertOptions,
    op: &str,
) -> Result<Converted> {
    let format = match &options.format {
        Some(id) => registry::format(id)?,
        None => registry::of_output(target)?,
    };
    if source.inner().parts() > 1 && format.messages().is_some() {
        return parts::run(source, target, format, options, op);
    }
    let placeholder = provenance::history(source, op, provenance::EMPTY.to_owned(), options);
    let scope = || PlanScope::whole(source, options);
    let plan = ConvertPlan::new(source, &scope, format, options, &placeholder, &mut Work::default())?;
    let mut report = Converted::new(format, options);
    report.list(describe(&plan), usize::MAX);
    if options.dry_run {
        return Ok(report);
    }
    let staged = stage(source, target, format, options)?;
    let execution = within(plan.threads, options)?;
    let store = &**source.inner().store();
    // The source is hashed while its cells are converted, unless the digest identifies a journal.
    let later = plan.digest_later && execution.threads() > 1 && !resume::is_possible(&plan);
    report.digest =
        if later { provenance::EMPTY.to_owned() } else { provenance::digest(store, &execution.cancel)? };
    let history = provenance::history(source, op, report.digest.clone(), options);
    let (mut session, ids) = plan.begin(staged.store(), staged.is_folder(), &execution, &history)?;
    let kept =
        resume::ConversionJournal::begin(source, &report.digest, &plan, target, staged.staged(), options)?;
    let kept = kept.map(|(kept, journal)| {
        report.resumed = journal.found() as u64;
        session.keep(journal);
        kept
    });
    let beside = staged.path().to_path_buf();
    let moved = match later {
        true => {
            let work = || move_cells(&plan, &session, &ids, &execution, &beside, &mut report.arrays);
            provenance::digest_during(store, &execution.cancel, work).and_then(|((), digest)| {
                report.digest.clone_from(&digest);
                match session.set_parents(&[digest]) {
                    true => Ok(()),
                    false => Err(Error::internal("the digest of the source was not recorded")),
                }
            })
        }
        false => move_cells(&plan, &session, &ids, &execution, &beside, &mut report.arrays),
    };
    let outcome = moved.and_then(|()| session.commit()).and_then(|()| {
        let lossy = plan.arrays.iter().any(|a| a.bound.is_some());
        let check = |output: &Container| check_all(&plan, output, 0, options, &mut report.arrays);
        report.checked = checked(staged.path(), lossy, execution, options, check)?;
        publish(staged, options, &mut report)
    });
    if let Some(kept) = kept {
        kept.end(&outcome);
    }
    outcome.map(|()| report)
}

impl Converted {
    fn new(format: &'static dyn Format, options: &ConvertOptions) -> Self {
        Self {
            format,
            arrays: Vec::new(),
            array_count: 0,
            raw_bytes: 0,
            digest: String::new(),
            stored_bytes: 0,
            resumed: 0,
            checked: false,
            dry_run: options.dry_run,
        }
    }

    /// Counts arrays, and lists them while fewer than `most` are.
    fn list(&mut self, arrays: Vec<ConvertedArray>, most: usize) {
        self.array_count += arrays.len();
        self.raw_bytes +=
            arrays.iter().filter_map(|a| a.rechunk.as_ref()).map(|plan| plan.bytes).sum::<u64>();
        let room = most.saturating_sub(self.arrays.len());
        self.arrays.extend(arrays.into_iter().take(room));
    }
}

/// Stages the output. A conversion can replace its own source.
fn stage(
    source: &Container,
    target: &Path,
    format: &'static dyn Format,
    options: &ConvertOptions,
) -> Result<StagedOutput> {
    let overwrite = if options.overwrite { Overwrite::Replace } else { Overwrite::Refuse };
    let output = Output::of_format(target, format).overwrite(overwrite).in_place();
    let output = output.durability(options.durability);
    let output = output.source(source.location()).outside_sources().storage(options.storage.clone());
    output.canceled_by(&options.execution.cancel).stage()
}

/// Verifies the output, if requested or lossy; returns whether it was.
fn checked(
    staged: &Path,
    lossy: bool,
    execution: Options,
    options: &ConvertOptions,
    check: impl FnOnce(&Container) -> Result<()>,
) -> Result<bool> {
    if !options.check && !lossy {
        return Ok(false);
    }
    check(&Open::new().access(ReadMode::Read).execution(execution).open(staged)?)?;
    Ok(true)
}

/// Publishes the output.
fn publish(staged: StagedOutput, options: &ConvertOptions, report: &mut Converted) -> Result<()> {
    options.execution.cancel.check()?;
    report.stored_bytes = size(staged.path());
    staged.publish()
}

/// Writes all arrays.
fn move_cells(
    plan: &ConvertPlan,
    session: &WriteSession,
    ids: &[usize],
    execution: &Options,
    staged: &Path,
    listed: &mut [ConvertedArray],
) -> Result<()> {
    let (grids, rest) = ids.split_at(plan.arrays.len());
    for (planned, id) in plan.arrays.iter().zip(grids) {
        transfer(session, *id, &planned.feed, &planned.rechunk, || scratch(staged))?;
    }
    let (cells, mut rest) = rest.split_at(plan.cells.len());
    let shown = listed.iter_mut().skip(plan.arrays.len());
    for ((planned, id), shown) in plan.cells.iter().zip(cells).zip(shown) {
        shown.cells = Some(planned.write(session, *id, execution)?);
    }
    for table in &plan.tables {
        let (own, others) = rest.split_at(table.specs.len());
        table.write(session, own, execution)?;
        rest = others;
    }
    Ok(())
}

/// Reads everything again and compares it. The arrays of the plan are those of the output from `first`.
fn check_all(
    plan: &ConvertPlan,
    output: &Container,
    first: usize,
    options: &ConvertOptions,
    listed: &mut [ConvertedArray],
) -> Result<()> {
    let mut listed = listed.iter_mut();
    for (number, planned) in (first..).zip(&plan.arrays) {
        let found = check::check(planned, number, output, options)?;
        if let Some(packed) = listed.next().and_then(|shown| shown.packed.as_mut()) {
            (packed.max_abs_error, packed.max_rel_error) = (Some(found.max_abs), Some(found.max_rel));
        }
    }
    for planned in &plan.cells {
        planned.check(output, &options.execution)?;
    }
    let mut number = first + plan.arrays.len() + plan.cells.len();
    for table in &plan.tables {
        table.check(output, number, &options.execution)?;
        number += table.specs.len();
    }
    Ok(())
}

/// Options with as many threads as the memory allows, and without progress.
fn within(threads: usize, options: &ConvertOptions) -> Result<Options> {
    let execution = options.execution.clone();
    if threads < execution.threads() { execution.with_threads(threads) } else { Ok(execution) }
}

/// An unnamed temporary file next to the unpublished output, removed when the process ends.
fn scratch(staged: &Path) -> Result<std::fs::File> {
    let folder = staged.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    tempfile::tempfile_in(folder)
        .map_err(|e| Error::io("create a scratch file in", folder.display().to_string(), e))
}

/// Size of a file, or of everything in a folder, in bytes.
fn size(path: &Path) -> u64 {
    match std::fs::read_dir(path) {
        Ok(entries) => entries.flatten().map(|entry| size(&entry.path())).sum(),
        Err(_) => std::fs::metadata(path).map_or(0, |m| m.len()),
    }
}

/// Arrays to write, in creation order.
fn describe(plan: &ConvertPlan) -> Vec<ConvertedArray> {
    let whole = !plan.format.holds().chunks;
    let grids = plan.arrays.iter().map(|planned| {
        let grids = &planned.rechunk.grids;
        let mut declared = declared(&planned.spec);
        for (field, column) in declared.fields.iter_mut().zip(&planned.feed.columns) {
            field.absent = match &column.absent {
                MissingPolicy::Null => Some("null".to_owned()),
                MissingPolicy::Value(value) => Some(value.to_string()),
                MissingPolicy::Preserve | MissingPolicy::Reject => None,
            };
        }
        ConvertedArray {
            chunk_shape: if whole { grids.shape.to_vec() } else { grids.to.to_vec() },
            rechunk: Some(planned.rechunk.clone()),
            pass_through: planned.feed.pass_through,
            packed: planned.bound.map(|bound| Packed {
                bits: bound.bits,
                max_abs_error: None,
                max_rel_error: None,
            }),
            ..declared
        }
    });
    let cells = plan.cells.iter().map(|planned| declared(&planned.spec));
    let tables = plan.tables.iter().flat_map(|table| &table.specs).map(declared);
    grids.chain(cells).chain(tables).collect()
}

/// Describes an array.
fn declared(spec: &ArraySpec) -> ConvertedArray {
    let schema = &spec.schema;
    let fields = schema.fields.iter().zip(&spec.codecs).map(|(field, codecs)| {
        let codecs = codecs.iter().map(|codec| match codec.int("level").or(codec.int("bits")) {
            Some(level) => format!("{}:{level}", codec.name),
            None => codec.name.clone(),
        });
        ConvertedField {
            name: field.name.clone(),
            dtype: field.type_name().to_string(),
            codecs: codecs.collect(),
            absent: None,
        }
    });
    ConvertedArray {
        name: schema.name.clone(),
        fields: fields.collect(),
        dims: schema.dims.iter().map(|dim| dim.name.clone()).collect(),
        shape: schema.dims.iter().map(|dim| dim.extent).collect(),
        chunk_shape: schema.chunk_shape.as_ref().map(|chunk| chunk.to_vec()).unwrap_or_default(),
        sparse: schema.sparse,
        cells: None,
        rechunk: None,
        pass_through: false,
        packed: None,
    }
}
