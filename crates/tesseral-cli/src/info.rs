//! `tet info`: content of a source. Does not read payloads.

mod document;
mod variables;
mod view;

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use tesseral::{
    Array, ChunkInfo, ChunkStats, Column, Container, Cover, Error, ErrorKind, Field, NonEmpty, PlannedChunk,
    Request, Scalar, Selection, Value,
};
use tesseral_core::schema::VariableRole;

use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::messages::{self, MessageFilter, MessageSource, each};
use crate::output;
use crate::progress::Meter;

/// Arguments of `tet info`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// File or folder of any supported format
    source: PathBuf,
    /// Show the file layout in the format's terms
    #[arg(long, visible_alias = "execution")]
    layout: bool,
    /// Show how the arrays are stored: chunks, codecs, sizes
    #[arg(long, visible_alias = "arrays")]
    datasets: bool,
    /// List chunks
    #[arg(long)]
    chunks: bool,
    /// Show attributes and coordinate labels
    #[arg(long)]
    metadata: bool,
    /// Show the history
    #[arg(long)]
    history: bool,
    /// Show everything
    #[arg(long)]
    all: bool,
    /// Maximum number of chunks to list; 0 for all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 32)]
    rows: u64,
    /// Show only this array, a field of the only array, or array/field
    #[arg(long, value_name = "NAME", visible_alias = "array")]
    dataset: Option<String>,
    /// Show only arrays whose name contains this text
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// List these keys of each message instead, separated by commas: mars.param,mars.step
    #[arg(short = 'p', long = "keys", value_name = "KEYS")]
    keys: Vec<String>,
    #[command(flatten)]
    filter: MessageFilter,
    /// Print one line
    #[arg(short, long)]
    quiet: bool,
}

/// One array of the source.
struct ArrayEntry {
    name: String,
    /// Content, or the error: one invalid array does not hide others.
    array: Result<ArraySummary, Error>,
}

/// An array and its properties.
struct ArraySummary {
    array: Array,
    /// The role of the array, by its own metadata or by attributes of others.
    role: VariableRole,
    /// The field to show; `None` for all.
    field: Option<u16>,
    /// Number of chunks, if known.
    chunks: Option<u64>,
    /// Stored size of its chunks in bytes; `None` if a chunk is missing or damaged in the index.
    stored: Option<u64>,
    /// Whether its chunks have digests.
    digests: bool,
    /// Non-empty domain, for formats that store it.
    non_empty: Option<Option<NonEmpty>>,
}

/// Values of the requested keys of one message.
struct MessageRow {
    number: usize,
    values: Vec<Option<Value>>,
}

/// Content of a report.
struct Report<'a> {
    context: &'a Context,
    arguments: &'a Arguments,
    container: &'a Container,
    /// Indexes of the selected arrays.
    matched: Vec<usize>,
    /// The selected field; `None` for all.
    field: Option<u16>,
    /// The arrays listed in text output.
    entries: Vec<ArrayEntry>,
    /// Number of arrays in the source.
    total: usize,
    /// Size of the file in bytes; `None` for folders.
    size: Option<u64>,
    /// The selected messages, if keys are requested.
    messages: Option<Vec<MessageRow>>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> CliResult {
    let container = context.open(&arguments.source, &Meter::new(false))?;
    let messages = if arguments.keys.is_empty() && arguments.filter.condition.is_none() {
        None
    } else {
        let file = MessageSource::new(context, &arguments.source)?.open()?;
        let keys = messages::keys(&arguments.keys);
        let mut rows = Vec::new();
        each(context, &*file, &arguments.filter, &mut |number, message| {
            let values = keys.iter().map(|key| message.lookup(key)).collect();
            rows.push(MessageRow { number, values });
            Ok(())
        })?;
        Some(rows)
    };
    let report = Report::new(context, &container, arguments, messages)?;
    if context.json() {
        document::print(&report)?;
    } else if arguments.quiet {
        output::print(&view::line(&report)?)?;
    } else {
        output::print(&view::text(&report)?)?;
    }
    Ok(exit::OK)
}

/// Number of arrays in text output by default: inspecting each one takes time.
const ARRAYS: usize = 1000;

impl<'a> Report<'a> {
    fn new(
        context: &'a Context,
        container: &'a Container,
        arguments: &'a Arguments,
        messages: Option<Vec<MessageRow>>,
    ) -> CliResult<Self> {
        let (mut matched, field) = match &arguments.dataset {
            Some(name) => {
                let (array, column) = container.find(name)?;
                let field = match column {
                    Some(Column::Field(field)) => Some(field),
                    _ => None,
                };
                (vec![container.inner().find(array.name())?], field)
            }
            None => ((0..container.len()).collect::<Vec<usize>>(), None),
        };
        if let Some(part) = &arguments.grep {
            matched.retain(|&i| container.inner().name(i).contains(part.as_str()));
        }
        if let Some(messages) = &messages {
            // Arrays of messages are named after them.
            let selected: HashSet<usize> = messages.iter().map(|row| row.number).collect();
            let message_number =
                |i: &usize| container.inner().name(*i).split('/').next().and_then(|m| m.parse().ok());
            matched.retain(|i| message_number(i).is_some_and(|number: usize| selected.contains(&number)));
        }
        let (total, size) = (container.len(), container.inner().store().len("").ok());
        let entries = Vec::new();
        let mut report =
            Self { context, arguments, container, matched, field, entries, total, size, messages };
        let listed = match (context.json() || arguments.quiet, arguments.keys.is_empty()) {
            // Details iterate over all arrays, and lists of keys do not show any.
            (true, _) | (false, false) => 0,
            (false, true) if arguments.all => usize::MAX,
            (false, true) => ARRAYS,
        };
        // If one of several arrays is invalid, the others are shown; the error of an only array is returned.
        let alone = total == 1;
        let shown: Vec<usize> = report.matched.iter().copied().take(listed.max(usize::from(alone))).collect();
        for index in shown {
            context.check()?;
            match report.entry(index) {
                ArrayEntry { array: Err(error), .. } if alone => return Err(error.into()),
                entry => report.entries.push(entry),
            }
        }
        Ok(report)
    }

    fn entry(&self, index: usize) -> ArrayEntry {
        ArrayEntry {
            name: self.container.inner().name(index).to_owned(),
            array: self
                .container
                .array_at(index)
                .and_then(|array| ArraySummary::new(array, self.container.role(index)?, self.field)),
        }
    }

    /// Visits every selected array in order; holds one in memory at a time.
    fn each(&self, visit: &mut dyn FnMut(ArrayEntry) -> CliResult<()>) -> CliResult<()> {
        self.matched.iter().try_for_each(|&index| {
            self.context.check()?;
            visit(self.entry(index))
        })
    }

    /// The valid arrays.
    fn known(&self) -> impl Iterator<Item = &ArraySummary> {
        self.entries.iter().filter_map(|entry| entry.array.as_ref().ok())
    }

    /// Format-specific details.
    fn details(&self) -> serde_json::Value {
        self.container.inner().details()
    }
}

impl ArraySummary {
    fn new(array: Array, role: VariableRole, field: Option<u16>) -> tesseral::Result<Self> {
        let non_empty = array.handle().restartable(|handle| handle.source().non_empty_domain())?;
        let known = Self { array, role, field, chunks: None, stored: None, digests: false, non_empty };
        // `verify` reports an inconsistent index.
        let handle = known.array.handle();
        let totals = known.everything().and_then(|all| handle.restartable(|handle| handle.totals(&all)));
        let totals = match totals {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Io { .. } | ErrorKind::Stale { .. } | ErrorKind::Changed { .. }
                ) =>
            {
                return Err(error);
            }
            other => other.ok(),
        };
        let Self { array, non_empty, .. } = known;
        let grid = array.schema().grid().ok().filter(|grid| grid.is_counted() && !array.schema().sparse);
        let chunks = grid.map(|grid| grid.total()).or(totals.map(|t| t.chunks));
        let stored = totals.map(|t| t.stored_bytes);
        let digests = totals.is_some_and(|t| t.digests);
        Ok(Self { array, role, field, chunks, stored, digests, non_empty })
    }

    /// The fields to show.
    fn fields(&self) -> &[Field] {
        let all = &self.array.schema().fields;
        self.field.and_then(|field| all.get(usize::from(field))).map_or(all, std::slice::from_ref)
    }

    /// Selection of all cells.
    fn everything(&self) -> tesseral::Result<Request> {
        let mut request = self.array.everything()?;
        if let Some(field) = self.field {
            request.columns.retain(|column| *column == Column::Field(field));
        }
        Ok(request)
    }

    /// Decoded size of its cells in bytes; `None` for variable-length cells.
    fn raw(&self) -> Option<u64> {
        let schema = self.array.schema();
        if schema.sparse {
            return None;
        }
        let cells = schema.shape()?.iter().try_fold(1_u64, |n, extent| n.checked_mul(*extent))?;
        let sizes = self.fields().iter().map(|f| f.cell_size().and_then(|n| u64::try_from(n).ok()));
        let size = sizes.sum::<Option<u64>>()?;
        cells.checked_mul(size)
    }

    /// Its first chunks; 0 means all.
    fn chunk_rows(&self, limit: u64) -> CliResult<Vec<ChunkRow>> {
        let schema = self.array.schema();
        let everything = self.everything()?;
        let grid = schema.grid().ok().filter(|grid| grid.is_counted() && !schema.sparse);
        if let (Some(grid), true) = (grid, limit > 0) {
            // Only the listed chunks are planned, so that the cost does not depend on their number.
            let mut rows = Vec::new();
            for linear in 0..grid.total().min(limit) {
                let region = grid.region(&grid.coords(linear));
                let target = tesseral::Target::Cells(Selection::from_region(&region));
                rows.extend(self.planned(&Request { target, ..everything.clone() }, limit)?);
            }
            rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
            return Ok(rows);
        }
        self.planned(&everything, limit)
    }

    fn planned(&self, request: &Request, limit: u64) -> CliResult<Vec<ChunkRow>> {
        let source = self.array.handle().source();
        let plan = self.array.handle().guarded(|| self.array.handle().plan(request));
        let plan = plan.map_err(|e| e.in_array(self.array.name()))?;
        let shown = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        let first = self.field.unwrap_or(0);
        let row = |chunk: &PlannedChunk| ChunkRow {
            info: source.describe(chunk),
            cells: chunk.cells,
            bounds: match &chunk.cover {
                Cover::Bounds(bounds) => Some(bounds.to_vec()),
                Cover::Exact(_) => None,
            },
            statistics: (first..)
                .zip(self.fields())
                .map(|(f, field)| (field.name.clone(), source.stats(chunk, Column::Field(f))))
                .filter(|(_, stats)| stats.min.bound().is_some() || stats.nulls.bound().is_some())
                .collect(),
        };
        Ok(plan.chunks.iter().take(shown).map(row).collect())
    }
}

/// A chunk and its statistics.
struct ChunkRow {
    info: ChunkInfo,
    cells: u64,
    /// Coordinate bounds of a sparse chunk.
    bounds: Option<Vec<(Scalar, Scalar)>>,
    /// Statistics by field.
    statistics: Vec<(String, ChunkStats)>,
}
