//! Commands on files of messages: list, pick, change, copy, join and part them. No payload is decoded.

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
use tesseral::store::{Access, Store};
use tesseral::{Error, Format, MessageFile, MessageFormat, MessageInfo, OpenOptions, Result, Value, Where};

use crate::context::{Context, local};
use crate::failure::{Failure, Outcome, exit};
use crate::output::{self, Output};
use crate::progress::Meter;
use crate::text::{self, escape};

/// Which messages.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Filter {
    /// Only messages of which this holds: KEY=V1/V2 or KEY!=V1/V2. Keys descend by dots: mars.param
    #[arg(short = 'w', long = "where", value_name = "WHERE")]
    pub(crate) condition: Option<Where>,
}

impl Filter {
    pub(crate) fn holds(&self, message: &MessageInfo) -> bool {
        self.condition.as_ref().is_none_or(|condition| condition.matches(message))
    }
}

/// A source and what can be done with its messages.
pub(crate) struct Source<'a> {
    pub(crate) path: &'a Path,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) format: &'static dyn Format,
    pub(crate) messages: &'static dyn MessageFormat,
    pub(crate) options: OpenOptions,
}

impl<'a> Source<'a> {
    pub(crate) fn new(context: &Context, path: &'a Path) -> Outcome<Self> {
        // Files of many messages are gone through once: reading them piece by piece keeps memory small, where a map would grow to
        // the length of the file.
        let opener = context.opener(&Meter::new(false))?.access(Access::Read);
        let store = opener.store(local(path)?);
        let format = tesseral::recognise(&*store).map_err(Failure::opening)?;
        let none =
            || Error::unsupported(format!("messages in {}: it has arrays, no messages", format.title()));
        let messages = format.messages().ok_or_else(none)?;
        Ok(Self { path, store, format, messages, options: opener.format_options().clone() })
    }

    /// Its messages. What belongs to none is told on standard error.
    pub(crate) fn open(&self) -> Outcome<Box<dyn MessageFile>> {
        let file = self.messages.open_messages(Arc::clone(&self.store), &self.options, false);
        let file = file.map_err(Failure::opening)?;
        let mut told = anstream::stderr();
        for finding in file.findings().iter().filter(|finding| !finding.ok) {
            // Nowhere is left to complain about a failure here.
            let path = self.path.to_string_lossy();
            let _ = writeln!(told, "warning: {}: {}", escape(&path), escape(&finding.detail));
        }
        Ok(file)
    }
}

/// Visits the selected messages, one after the other: however many there are, no more than one is held in memory.
pub(crate) fn each(
    context: &Context,
    file: &dyn MessageFile,
    filter: &Filter,
    visit: &mut dyn FnMut(usize, MessageInfo) -> Outcome<()>,
) -> Outcome<()> {
    for number in 0..file.len() {
        context.check()?;
        let message = file.message(number)?;
        if filter.holds(&message) {
            visit(number, message)?;
        }
    }
    Ok(())
}

/// Keys as they are given: separated by commas.
pub(crate) fn keys(text: &[String]) -> Vec<String> {
    text.iter().flat_map(|t| t.split(',')).map(|k| k.trim().to_owned()).filter(|k| !k.is_empty()).collect()
}

/// A file of messages that is made from others.
pub(crate) fn target(path: &Path, force: bool, sources: &[PathBuf]) -> Outcome<tesseral::Output> {
    let mut output = tesseral::Output::dataset(local(path)?, false).overwrite(output::overwrite(force));
    for source in sources {
        output = output.source(local(source)?);
    }
    Ok(output)
}

/// The target being written; standard output for `-`.
pub(crate) fn create(context: &Context, path: &Path, target: tesseral::Output) -> Outcome<Output> {
    let output = if path.as_os_str() == "-" { Output::stdout()? } else { Output::file(target, path)? };
    Ok(output.until(context.cancel()))
}

/// Writes to an output from inside the library.
pub(crate) fn put(output: &mut Output, bytes: &[u8]) -> Result<()> {
    output.put(bytes).map_err(Failure::into_error)
}

/// What a command wrote.
#[derive(Debug, Default)]
pub(crate) struct Written {
    pub(crate) outputs: Vec<(PathBuf, usize)>,
    pub(crate) changed: usize,
}

impl Written {
    /// Tells of it.
    pub(crate) fn report(&self, context: &Context, command: &str, sources: &[PathBuf]) -> Outcome {
        let told = if context.json() {
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
        // Standard output holds the messages, and nothing else, when they went there.
        if self.outputs.iter().any(|(path, _)| path.as_os_str() == "-") {
            // Nowhere is left to complain about a failure here.
            let _ = write!(anstream::stderr(), "{told}");
        } else {
            output::print(&told)?;
        }
        Ok(exit::OK)
    }
}

/// A value in one line: text as it is, maps and lists as JSON.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Map(_) | Value::List(_) | Value::Numbers { .. } => crate::json::value(value).to_string(),
        value => value.to_string(),
    }
}

/// A message as JSON.
pub(crate) fn document(number: usize, message: &MessageInfo) -> Json {
    let list = |maps: &[tesseral::Attributes]| maps.iter().map(crate::json::attributes).collect::<Vec<_>>();
    json!({
        "message": number,
        "offset": message.offset,
        "length": message.length,
        "version": message.version,
        "base": list(&message.base),
        "extra": crate::json::attributes(&message.extra),
        "reserved": crate::json::attributes(&message.reserved),
        "objects": list(&message.objects),
    })
}

/// The values of keys as JSON; keys that are missing are left out.
pub(crate) fn picked(number: usize, message: &MessageInfo, keys: &[String]) -> Json {
    let values = keys.iter().filter_map(|key| Some((key.clone(), crate::json::value(&message.lookup(key)?))));
    json!({"message": number, "values": values.collect::<serde_json::Map<_, _>>()})
}
