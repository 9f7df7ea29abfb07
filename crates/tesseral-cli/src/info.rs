//! `tet info`: what is in here. Touches no payload.

mod document;
mod view;

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use tesseral::{
    Array, ChunkInfo, ChunkStats, Column, Container, Cover, Error, ErrorKind, Field, NonEmpty, PlannedChunk,
    Request, Scalar, Selection, Value,
};

use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::messages::{self, Filter, Source, each};
use crate::output;
use crate::progress::Meter;

/// Arguments of `tet info`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// File or folder of any known format
    source: PathBuf,
    /// Shows how the file is laid out, in the format's own words
    #[arg(long, visible_alias = "execution")]
    layout: bool,
    /// Shows the arrays
    #[arg(long, visible_alias = "arrays")]
    datasets: bool,
    /// Lists chunks
    #[arg(long)]
    chunks: bool,
    /// Shows attributes and coordinate labels
    #[arg(long)]
    metadata: bool,
    /// Shows how the file came to be
    #[arg(long)]
    history: bool,
    /// Shows all of it
    #[arg(long)]
    all: bool,
    /// Lists at most this many chunks; 0 lists all
    #[arg(short = 'n', long = "rows", value_name = "N", default_value_t = 32)]
    rows: u64,
    /// Shows only the array of this name, or a field of the only array, or array/field
    #[arg(long, value_name = "NAME", visible_alias = "array")]
    dataset: Option<String>,
    /// Shows only arrays whose name holds this text
    #[arg(long, value_name = "TEXT")]
    grep: Option<String>,
    /// Lists these keys of each message instead, separated by commas: mars.param,mars.step
    #[arg(short = 'p', long = "keys", value_name = "KEYS")]
    keys: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// Prints one line
    #[arg(short, long)]
    quiet: bool,
}

/// One array of the source.
struct Entry {
    name: String,
    /// What is in it, or why that cannot be told: one array that makes no sense hides no other.
    array: Result<Known, Error>,
}

/// An array with what is worth knowing of it.
struct Known {
    array: Array,
    /// The one field that is shown; all of them, unless given.
    field: Option<u16>,
    /// Number of chunks, where it can be told.
    chunks: Option<u64>,
    /// Bytes of its chunks as stored; `None` when a chunk is missing or damaged in the index.
    stored: Option<u64>,
    /// Where its cells are, for formats that know it.
    non_empty: Option<Option<NonEmpty>>,
}

/// Values of the requested keys of one message.
struct MessageRow {
    number: usize,
    values: Vec<Option<Value>>,
}

/// Everything a report is made of.
struct Report<'a> {
    context: &'a Context,
    arguments: &'a Arguments,
    container: &'a Container,
    /// Arrays that are meant, shown or not.
    matched: Vec<usize>,
    /// The one field that is meant; all of them, unless given.
    field: Option<u16>,
    /// The arrays that the text output lists.
    entries: Vec<Entry>,
    /// Arrays in the source, meant or not.
    total: usize,
    /// Bytes of the file; `None` for folders.
    size: Option<u64>,
    /// Messages that are meant, when keys of them are asked for.
    messages: Option<Vec<MessageRow>>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    let container = context.open(&arguments.source, &Meter::new(false))?;
    let messages = if arguments.keys.is_empty() && arguments.filter.condition.is_none() {
        None
    } else {
        let file = Source::new(context, &arguments.source)?.open()?;
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

/// Arrays that the text output lists unless all are requested: inspecting each one takes time.
const ARRAYS: usize = 1000;

impl<'a> Report<'a> {
    fn new(
        context: &'a Context,
        container: &'a Container,
        arguments: &'a Arguments,
        messages: Option<Vec<MessageRow>>,
    ) -> Outcome<Self> {
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
            // Arrays of messages are named by them.
            let meant: HashSet<usize> = messages.iter().map(|row| row.number).collect();
            let of = |i: &usize| container.inner().name(*i).split('/').next().and_then(|m| m.parse().ok());
            matched.retain(|i| of(i).is_some_and(|number: usize| meant.contains(&number)));
        }
        let (total, size) = (container.len(), container.inner().store().len("").ok());
        let entries = Vec::new();
        let mut report =
            Self { context, arguments, container, matched, field, entries, total, size, messages };
        let listed = match (context.json() || arguments.quiet, arguments.keys.is_empty()) {
            // They go through the arrays one by one, and lists of keys show none.
            (true, _) | (false, false) => 0,
            (false, true) if arguments.all => usize::MAX,
            (false, true) => ARRAYS,
        };
        // Of several arrays the others are worth showing; where there is but one, nothing is left to show.
        let alone = total == 1;
        let shown: Vec<usize> = report.matched.iter().copied().take(listed.max(usize::from(alone))).collect();
        for index in shown {
            context.check()?;
            match report.entry(index) {
                Entry { array: Err(error), .. } if alone => return Err(error.into()),
                entry => report.entries.push(entry),
            }
        }
        Ok(report)
    }

    fn entry(&self, index: usize) -> Entry {
        Entry {
            name: self.container.inner().name(index).to_owned(),
            array: self.container.array_at(index).and_then(|array| Known::new(array, self.field)),
        }
    }

    /// Visits every array that is meant, one after the other: no more than one is held in memory.
    fn each(&self, visit: &mut dyn FnMut(Entry) -> Outcome<()>) -> Outcome<()> {
        self.matched.iter().try_for_each(|&index| {
            self.context.check()?;
            visit(self.entry(index))
        })
    }

    /// The arrays that make sense.
    fn known(&self) -> impl Iterator<Item = &Known> {
        self.entries.iter().filter_map(|entry| entry.array.as_ref().ok())
    }

    /// The format's own details.
    fn details(&self) -> serde_json::Value {
        self.container.inner().details()
    }
}

impl Known {
    fn new(array: Array, field: Option<u16>) -> tesseral::Result<Self> {
        let non_empty = array.handle().restartable(|handle| handle.source().non_empty_domain())?;
        let known = Self { array, field, chunks: None, stored: None, non_empty };
        // An index that contradicts itself is for `verify` to explain.
        let handle = known.array.handle();
        let totals =
            known.everything().and_then(|all| handle.restartable(|handle| handle.source().totals(&all)));
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
        let grid = array.schema().grid().ok().filter(|_| !array.schema().sparse);
        let chunks = grid.map(|grid| grid.total()).or(totals.map(|t| t.chunks));
        let stored = totals.map(|t| t.stored_bytes);
        Ok(Self { array, field, chunks, stored, non_empty })
    }

    /// The fields that are shown.
    fn fields(&self) -> &[Field] {
        let all = &self.array.schema().fields;
        self.field.and_then(|field| all.get(usize::from(field))).map_or(all, std::slice::from_ref)
    }

    /// Every cell of what is shown.
    fn everything(&self) -> tesseral::Result<Request> {
        let mut request = self.array.everything()?;
        if let Some(field) = self.field {
            request.columns.retain(|column| *column == Column::Field(field));
        }
        Ok(request)
    }

    /// Bytes of its cells once decoded; `None` when cells have no one size.
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
    fn chunk_rows(&self, limit: u64) -> Outcome<Vec<ChunkRow>> {
        let schema = self.array.schema();
        let everything = self.everything()?;
        if let (Ok(grid), true, false) = (schema.grid(), limit > 0, schema.sparse) {
            // Asking for the few chunks shown keeps this independent of how many there are.
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

    fn planned(&self, request: &Request, limit: u64) -> Outcome<Vec<ChunkRow>> {
        let source = self.array.handle().source();
        let plan = self.array.handle().guarded(|| source.plan(request));
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

/// A chunk with what is known of it.
struct ChunkRow {
    info: ChunkInfo,
    cells: u64,
    /// Coordinates of chunks that list their cells.
    bounds: Option<Vec<(Scalar, Scalar)>>,
    /// By field.
    statistics: Vec<(String, ChunkStats)>,
}
