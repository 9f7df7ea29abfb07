//! Commands on files of messages: list, select, edit, copy, merge and split. They decode no payload.

pub(crate) mod append;
pub(crate) mod copy;
pub(crate) mod dump;
pub(crate) mod get;
pub(crate) mod merge;
pub(crate) mod reshuffle;
pub(crate) mod set;
pub(crate) mod split;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde_json::{Value as Json, json};
use tesseral::{
    Error, Format, MessageFile, MessageFormat, MessageInfo, MessagePredicate, OpenOptions, Result, Value,
};
use tesseral_store::{ReadMode, Store};

use crate::context::Context;
use crate::error::{CliResult, CommandFailure, exit};
use crate::output::{self, OutputStream};
use crate::progress::Meter;
use crate::text::{self, escape};

/// Selection of messages.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct MessageFilter {
    /// Select messages by a key: KEY=V1/V2 or KEY!=V1/V2. Dots separate nested keys: mars.param
    #[arg(short = 'w', long = "where", value_name = "WHERE")]
    pub(crate) condition: Option<MessagePredicate>,
}

impl MessageFilter {
    pub(crate) fn matches(&self, message: &MessageInfo) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition.matches(message))
    }
}

/// A source of messages.
pub(crate) struct MessageSource<'a> {
    pub(crate) path: &'a Path,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) format: &'static dyn Format,
    pub(crate) messages: &'static dyn MessageFormat,
    pub(crate) options: OpenOptions,
}

impl<'a> MessageSource<'a> {
    pub(crate) fn new(context: &Context, path: &'a Path) -> CliResult<Self> {
        // Files of many messages are read once: buffered reads bound the memory, whereas a map would grow to the length of the
        // file.
        let opener = context.opener(&Meter::new(false))?.access(ReadMode::Read);
        let store = opener.store(path)?;
        let format = tesseral::recognize(&*store).map_err(CommandFailure::opening)?;
        let none = || Error::unsupported(format!("messages in {}", format.title()));
        let messages = format.messages().ok_or_else(none)?;
        Ok(Self { path, store, format, messages, options: opener.format_options().clone() })
    }

    /// Its messages. Bytes outside messages are reported on standard error.
    pub(crate) fn open(&self) -> CliResult<Box<dyn MessageFile>> {
        let file = self.messages.open_messages(Arc::clone(&self.store), &self.options, false);
        let file = file.map_err(CommandFailure::opening)?;
        let mut stderr = anstream::stderr();
        for finding in file.findings().iter().filter(|finding| !finding.ok) {
            // A failure to print cannot be reported.
            let path = self.path.to_string_lossy();
            let _ = writeln!(stderr, "warning: {}: {}", escape(&path), escape(&finding.detail));
        }
        Ok(file)
    }
}

/// Visits the selected messages in order; holds one in memory at a time.
pub(crate) fn each(
    context: &Context,
    file: &dyn MessageFile,
    filter: &MessageFilter,
    visit: &mut dyn FnMut(usize, MessageInfo) -> CliResult<()>,
) -> CliResult<()> {
    for number in 0..file.len() {
        context.check()?;
        let message = file.message(number)?;
        if filter.matches(&message) {
            visit(number, message)?;
        }
    }
    Ok(())
}

/// Splits keys at commas.
pub(crate) fn keys(text: &[String]) -> Vec<String> {
    text.iter().flat_map(|t| t.split(',')).map(|k| k.trim().to_owned()).filter(|k| !k.is_empty()).collect()
}

/// A file of messages to be written.
pub(crate) fn target(path: &Path, force: bool, sources: &[PathBuf]) -> CliResult<tesseral::Output> {
    let mut output = tesseral::Output::dataset(path, false).overwrite(output::overwrite(force));
    for source in sources {
        output = output.source(source);
    }
    Ok(output)
}

/// Opens the target; `-` is standard output.
pub(crate) fn create(context: &Context, path: &Path, target: tesseral::Output) -> CliResult<OutputStream> {
    let output =
        if path.as_os_str() == "-" { OutputStream::stdout()? } else { OutputStream::file(target, path)? };
    Ok(output.until(context.cancel()))
}

/// Adapter of an output for the library.
pub(crate) fn put(output: &mut OutputStream, bytes: &[u8]) -> Result<()> {
    output.put(bytes).map_err(CommandFailure::into_error)
}

/// Result of a command.
#[derive(Debug, Default)]
pub(crate) struct WriteReport {
    pub(crate) outputs: Vec<(PathBuf, usize)>,
    pub(crate) changed: usize,
}

impl WriteReport {
    /// Prints the result.
    pub(crate) fn report(&self, context: &Context, command: &str, sources: &[PathBuf]) -> CliResult {
        let text = if context.json() {
            let outputs = self
                .outputs
                .iter()
                .map(|(path, messages)| json!({"path": path.to_string_lossy(), "messages": messages}));
            let document = json!({
                "schema": format!("tesseral.{command}/1"),
                "sources": sources.iter().map(|path| path.to_string_lossy()).collect::<Vec<_>>(),
                "outputs": outputs.collect::<Vec<_>>(),
                "changed": self.changed,
            });
            format!("{document:#}\n")
        } else {
            let line = |(path, messages): &(PathBuf, usize)| {
                let count = text::count(*messages as u64, "message");
                format!("{}: {count}\n", escape(&path.to_string_lossy()))
            };
            self.outputs.iter().map(line).collect()
        };
        // Only messages go to standard output.
        if self.outputs.iter().any(|(path, _)| path.as_os_str() == "-") {
            // A failure to print cannot be reported.
            let _ = write!(anstream::stderr(), "{text}");
        } else {
            output::print(&text)?;
        }
        Ok(exit::OK)
    }
}

/// A value in one line: text directly, maps and lists as JSON.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Map(_) | Value::List(_) | Value::Numbers { .. } => {
            tesseral_display::json::value(value).to_string()
        }
        value => value.to_string(),
    }
}

/// A message as JSON.
pub(crate) fn document(number: usize, message: &MessageInfo) -> Json {
    let list = |maps: &[tesseral::Attributes]| {
        maps.iter().map(tesseral_display::json::attributes).collect::<Vec<_>>()
    };
    json!({
        "message": number,
        "offset": message.offset,
        "length": message.length,
        "version": message.version,
        "base": list(&message.base),
        "extra": tesseral_display::json::attributes(&message.extra),
        "reserved": tesseral_display::json::attributes(&message.reserved),
        "objects": list(&message.objects),
    })
}

/// The values of keys as JSON; missing keys are omitted.
pub(crate) fn picked(number: usize, message: &MessageInfo, keys: &[String]) -> Json {
    let values = keys
        .iter()
        .filter_map(|key| Some((key.clone(), tesseral_display::json::value(&message.lookup(key)?))));
    json!({"message": number, "values": values.collect::<serde_json::Map<_, _>>()})
}
