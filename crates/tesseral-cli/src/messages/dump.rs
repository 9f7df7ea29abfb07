//! `tet dump`: everything that messages say.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tesseral::{Attributes, MessageInfo, Value};

use super::{Filter, Source, document, keys, picked, select, shown};
use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::output;
use crate::paint::Paint;
use crate::text::escape;

/// Arguments of `tet dump`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Only these keys, separated by commas
    #[arg(short = 'p', long, value_name = "KEYS")]
    keys: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// Files of messages
    #[arg(required = true)]
    sources: Vec<PathBuf>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    let keys = keys(&arguments.keys);
    let paint = Paint::stdout();
    let (mut text, mut messages) = (String::new(), Vec::new());
    for path in &arguments.sources {
        let file = Source::new(context, path)?.open()?;
        for (number, message) in select(context, &*file, &arguments.filter)? {
            if context.json() {
                let mut shown = if keys.is_empty() {
                    document(number, &message)
                } else {
                    picked(number, &message, &keys)
                };
                shown["source"] = path.to_string_lossy().into();
                messages.push(shown);
                continue;
            }
            let title = format!("message {number} of {}", path.to_string_lossy());
            text.push_str(&format!("{}\n", paint.strong(&escape(&title))));
            if keys.is_empty() {
                lines(&message, &mut text);
            } else {
                for key in &keys {
                    if let Some(value) = message.lookup(key) {
                        line(key, &value, 2, &mut text);
                    }
                }
            }
        }
    }
    if context.json() {
        output::print_json(&json!({"schema": "tesseral.dump/1", "messages": messages}))?;
    } else {
        output::print(&text)?;
    }
    Ok(exit::OK)
}

fn line(key: &str, value: &Value, indent: usize, out: &mut String) {
    out.push_str(&format!("{:indent$}{}: {}\n", "", escape(key), escape(&shown(value))));
}

/// Keys of a map and of the maps in it, by dotted names.
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
