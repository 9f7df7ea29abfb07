//! `tet info`: what is in here. Touches no payload.

mod document;
mod view;

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use tesseral::{
    Array, ChunkInfo, ChunkStats, Column, Container, Cover, Error, Field, MessageInfo, NonEmpty,
    PlannedChunk, Request, Scalar, Selection,
};

use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::messages::{Filter, Source, select};
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

/// Everything a report is made of.
struct Report<'a> {
    arguments: &'a Arguments,
    container: &'a Container,
    entries: Vec<Entry>,
    /// Arrays that are meant, shown or not.
    matched: usize,
    /// Arrays in the source, meant or not.
    total: usize,
    /// Bytes of the file; `None` for folders.
    size: Option<u64>,
    /// Messages that are meant, when keys of them are asked for.
    messages: Option<Vec<(usize, MessageInfo)>>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    let container = context.open(&arguments.source, &Meter::new(false))?;
    let messages = if arguments.keys.is_empty() && arguments.filter.condition.is_none() {
        None
    } else {
        let file = Source::new(context, &arguments.source)?.open()?;
        Some(select(context, &*file, &arguments.filter)?)
    };
    let shown = if context.json() || arguments.all || arguments.quiet { usize::MAX } else { ARRAYS };
    let report = Report::new(&container, arguments, messages, shown)?;
    if context.json() {
        output::print_json(&document::document(&report)?)?;
    } else if arguments.quiet {
        output::print(&view::line(&report))?;
    } else {
        output::print(&view::text(&report)?)?;
    }
    Ok(exit::OK)
}

/// Arrays that are listed for people, unless all are asked for. Nobody reads more, and looking into each takes its time.
const ARRAYS: usize = 1000;

impl<'a> Report<'a> {
    fn new(
        container: &'a Container,
        arguments: &'a Arguments,
        messages: Option<Vec<(usize, MessageInfo)>>,
        most: usize,
    ) -> Outcome<Self> {
        let (mut indexes, field) = match &arguments.dataset {
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
            indexes.retain(|&i| container.inner().name(i).contains(part.as_str()));
        }
        if let Some(messages) = &messages {
            // Arrays of messages are named by them.
            let meant: HashSet<String> = messages.iter().map(|(number, _)| number.to_string()).collect();
            let of = |i: &usize| container.inner().name(*i).split('/').next().unwrap_or("").to_owned();
            indexes.retain(|i| meant.contains(&of(i)));
        }
        let matched = indexes.len();
        // Lists of keys show no array.
        let most = if arguments.keys.is_empty() || most == usize::MAX { most } else { 0 };
        indexes.truncate(most);
        let entries = indexes.into_iter().map(|i| Entry {
            name: container.inner().name(i).to_owned(),
            array: container.array_at(i).and_then(|array| Known::new(array, field)),
        });
        let mut entries: Vec<Entry> = entries.collect();
        // Of several arrays the others are worth showing; where there is but one, nothing is left to show.
        if container.len() == 1
            && let Some(Entry { array: Err(error), .. }) = entries.pop_if(|entry| entry.array.is_err())
        {
            return Err(error.into());
        }
        let size = container.inner().store().len("").ok();
        Ok(Self { arguments, container, entries, matched, total: container.len(), size, messages })
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
        let non_empty = array.handle().guarded(|| array.handle().source().non_empty_domain())?;
        let known = Self { array, field, chunks: None, stored: None, non_empty };
        // An index that contradicts itself is for `verify` to explain.
        let handle = known.array.handle();
        let totals = known.everything().and_then(|all| handle.guarded(|| handle.source().totals(&all))).ok();
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
        let plan = source.plan(request).map_err(|e| e.in_array(self.array.name()))?;
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
