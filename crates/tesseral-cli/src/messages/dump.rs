//! `tet dump`: prints all metadata of messages.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tesseral::{Attributes, MessageInfo, Value};

use super::{MessageFilter, MessageSource, document, each, keys, picked, shown};
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output::{JsonRows, OutputStream};
use crate::terminal_style::TerminalStyle;
use crate::text::escape;

/// Arguments of `tet dump`.
#[derive(Debug, Args)]
pub(crate) struct DumpArguments {
    /// Print only these keys, separated by commas
    #[arg(short = 'p', long, value_name = "KEYS")]
    keys: Vec<String>,
    #[command(flatten)]
    filter: MessageFilter,
    /// Files of messages
    #[arg(required = true)]
    sources: Vec<PathBuf>,
}

pub(crate) fn run(context: &Context, arguments: &DumpArguments) -> CliResult {
    let keys = keys(&arguments.keys);
    if context.json() {
        let mut messages = JsonRows::begin(&json!({"schema": "tesseral.dump/1"}), "messages")?;
        for path in &arguments.sources {
            let file = MessageSource::new(context, path)?.open()?;
            each(context, &*file, &arguments.filter, &mut |number, message| {
                let mut shown = if keys.is_empty() {
                    document(number, &message)
                } else {
                    picked(number, &message, &keys)
                };
                shown["source"] = path.to_string_lossy().into();
                messages.push(&shown)
            })?;
        }
        messages.finish(&serde_json::Map::new())?;
        return Ok(exit::OK);
    }
    let paint = TerminalStyle::stdout();
    let mut output = OutputStream::stdout()?;
    for path in &arguments.sources {
        let file = MessageSource::new(context, path)?.open()?;
        each(context, &*file, &arguments.filter, &mut |number, message| {
            let title = format!("message {number} of {}", path.to_string_lossy());
            let mut text = format!("{}\n", paint.strong(&escape(&title)));
            if keys.is_empty() {
                lines(&message, &mut text);
            } else {
                for key in &keys {
                    if let Some(value) = message.lookup(key) {
                        line(key, &value, 2, &mut text);
                    }
                }
            }
            output.put(text.as_bytes())
        })?;
    }
    output.finish()?;
    Ok(exit::OK)
}

fn line(key: &str, value: &Value, indent: usize, out: &mut String) {
    out.push_str(&format!("{:indent$}{}: {}\n", "", escape(key), escape(&shown(value))));
}

/// Keys of a map and of nested maps, as dotted names.
fn flat(map: &Attributes, before: &str, indent: usize, out: &mut String) {
    for (key, value) in map {
        let name = if before.is_empty() { key.clone() } else { format!("{before}.{key}") };
        match value {
            Value::Map(inner) => flat(inner, &name, indent, out),
            value => line(&name, value, indent, out),
        }
    }
}

fn lines(message: &MessageInfo, out: &mut String) {
    line("version", &Value::UInt(message.version), 2, out);
    line("offset", &Value::UInt(message.offset), 2, out);
    line("length", &Value::UInt(message.length), 2, out);
    flat(&message.extra, "", 2, out);
    flat(&message.reserved, "_reserved_", 2, out);
    for (number, object) in message.objects.iter().enumerate() {
        out.push_str(&format!("  object {number}\n"));
        if let Some(keys) = message.base.get(number) {
            flat(keys, "", 4, out);
        }
        flat(object, "", 4, out);
    }
}
