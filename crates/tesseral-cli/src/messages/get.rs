//! `tet get`: values of keys, one line per message.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tesseral::Error;

use super::{Filter, Source, keys, picked, select, shown};
use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::output;
use crate::text::escape;

/// Arguments of `tet get`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Keys, separated by commas; a message without one of them is an error
    #[arg(short = 'p', long, value_name = "KEYS", required = true)]
    keys: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// Files of messages
    #[arg(required = true)]
    sources: Vec<PathBuf>,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    let keys = keys(&arguments.keys);
    let (mut lines, mut rows) = (String::new(), Vec::new());
    for path in &arguments.sources {
        let file = Source::new(context, path)?.open()?;
        for (number, message) in select(context, &*file, &arguments.filter)? {
            let mut values = Vec::with_capacity(keys.len());
            for key in &keys {
                let missing = || {
                    let candidates = message.base.iter().flat_map(|entry| entry.keys().cloned());
                    Error::not_found(format!("key of message {number}"), key, candidates.collect())
                };
                values.push(shown(&message.lookup(key).ok_or_else(missing)?));
            }
            lines.push_str(&escape(&values.join(" ")));
            lines.push('\n');
            let mut row = picked(number, &message, &keys);
            row["source"] = path.to_string_lossy().into();
            rows.push(row);
        }
    }
    if context.json() {
        output::print_json(&json!({"schema": "tesseral.get/1", "keys": keys, "rows": rows}))?;
    } else {
        output::print(&lines)?;
    }
    Ok(exit::OK)
}
