//! `tet info`: content of a source. Does not read payloads.

mod document;
mod variables;
mod view;

use std::collections::HashSet;
use std::path::PathBuf;

use clap::Args;
use tesseral::{Column, Container, Error, Value};
use tesseral_display::ArraySummary;

use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::messages::{self, MessageFilter, MessageSource, each};
use crate::output;
use crate::progress::Meter;

/// Arguments of `tet info`.
#[derive(Debug, Args)]
pub(crate) struct InfoArguments {
    /// Path or URL of a file or folder of any supported format
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

/// Values of the requested keys of one message.
struct MessageRow {
    number: usize,
    values: Vec<Option<Value>>,
}

/// Content of a report.
struct Report<'a> {
    context: &'a Context,
    arguments: &'a InfoArguments,
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

pub(crate) fn run(context: &Context, arguments: &InfoArguments) -> CliResult {
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

/// Number of arrays in text output by default: more than a person reads, and inspecting each one takes time.
const ARRAYS: usize = 100;

impl<'a> Report<'a> {
    fn new(
        context: &'a Context,
        container: &'a Container,
        arguments: &'a InfoArguments,
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
            array: self.container.array_at(index).and_then(|array| {
                let role = self.container.role_among_others(index, array.schema().role);
                ArraySummary::new(array, role, self.field)
            }),
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
