//! `tet get`: prints values of keys, one line per message.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tesseral::Error;

use super::{MessageFilter, MessageSource, each, keys, picked, shown};
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output::{JsonRows, OutputStream};
use crate::text::escape;

/// Arguments of `tet get`.
#[derive(Debug, Args)]
pub(crate) struct GetArguments {
    /// Keys, separated by commas; a missing key is an error
    #[arg(short = 'p', long, value_name = "KEYS", required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    filter: MessageFilter,
    /// Files of messages
    #[arg(required = true)]
    sources: Vec<PathBuf>,
}

pub(crate) fn run(context: &Context, arguments: &GetArguments) -> CliResult {
    let keys = keys(&arguments.keys);
    let mut sheet = if context.json() {
        KeyRows::Json(JsonRows::begin(&json!({"schema": "tesseral.get/1", "keys": keys}), "rows")?)
    } else {
        KeyRows::Text(OutputStream::stdout()?)
    };
    for path in &arguments.sources {
        let file = MessageSource::new(context, path)?.open()?;
        each(context, &*file, &arguments.filter, &mut |number, message| {
            let mut values = Vec::with_capacity(keys.len());
            for key in &keys {
                let missing = || {
                    let candidates = message.base.iter().flat_map(|entry| entry.keys().cloned());
                    Error::not_found(format!("key of message {number}"), key, candidates.collect())
                };
                values.push(shown(&message.lookup(key).ok_or_else(missing)?));
            }
            match &mut sheet {
                KeyRows::Text(output) => output.put(format!("{}\n", escape(&values.join(" "))).as_bytes()),
                KeyRows::Json(rows) => {
                    let mut row = picked(number, &message, &keys);
                    row["source"] = path.to_string_lossy().into();
                    rows.push(&row)
                }
            }
        })?;
    }
    match sheet {
        KeyRows::Text(output) => output.finish()?,
        KeyRows::Json(rows) => rows.finish(&serde_json::Map::new())?,
    }
    Ok(exit::OK)
}

/// Output of rows.
enum KeyRows {
    Text(OutputStream),
    Json(JsonRows),
}
