//! `tet set`: sets keys of messages, copying their objects as stored; or attributes of an array, in place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tesseral::{Error, MessageChange, Value};

use super::{MessageFilter, MessageSource, WriteReport, create, keys, put, target};
use crate::context::Context;
use crate::error::{CliResult, CommandFailure, exit};
use crate::maintain::edit;
use crate::output;
use crate::progress::Meter;
use crate::text::escape;

/// Arguments of `tet set`.
#[derive(Debug, Args)]
pub(crate) struct SetArguments {
    /// Assignments separated by commas: KEY=TEXT or KEY:=JSON. Dots separate nested keys of messages; `extra.KEY` is a key of
    /// the message, `objects.N.KEY` of one object, any other key of every object
    #[arg(short = 's', long = "set", value_name = "K=V", required_unless_present = "delete")]
    values: Vec<String>,
    /// Attributes of an array to remove, separated by commas
    #[arg(long, value_name = "KEY")]
    delete: Vec<String>,
    /// Timestamp of the attributes of an array in milliseconds since 1970 [default: now]
    #[arg(long, value_name = "T")]
    timestamp: Option<u64>,
    #[command(flatten)]
    filter: MessageFilter,
    /// File of messages, or an array with versions
    source: PathBuf,
    /// Output path for messages; messages that are not selected are copied unchanged. An array is edited in place
    output: Option<PathBuf>,
    /// Replace an existing output
    #[arg(short, long)]
    force: bool,
}

/// Parses `key=text` or `key:=json`.
fn assignment(text: &str) -> Result<(String, Value), Error> {
    let wrong = || Error::invalid(format!("invalid assignment {text:?}: expected KEY=TEXT or KEY:=JSON"));
    let (key, value) = text.split_once('=').ok_or_else(wrong)?;
    let (key, value) = match key.strip_suffix(':') {
        Some(key) => {
            let json = serde_json::from_str(value.trim()).map_err(|_| wrong())?;
            (key, from_json(&json))
        }
        None => (key, Value::from(value.trim())),
    };
    Ok((key.trim().to_owned(), value))
}

fn from_json(json: &serde_json::Value) -> Value {
    use serde_json::Value as Json;
    match json {
        Json::Null => Value::Null,
        Json::Bool(value) => Value::Bool(*value),
        Json::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(n), _) => Value::Int(n),
            (None, Some(n)) => Value::UInt(n),
            _ => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        Json::String(text) => Value::from(text.as_str()),
        Json::Array(items) => Value::List(items.iter().map(from_json).collect()),
        Json::Object(map) => {
            Value::Map(Box::new(map.iter().map(|(k, v)| (k.clone(), from_json(v))).collect()))
        }
    }
}

/// Splits at commas, except inside brackets and quotes of JSON values.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut depth, mut quoted) = (0_u32, false);
    for c in text.chars() {
        match c {
            '"' => quoted = !quoted,
            '[' | '{' if !quoted => depth += 1,
            ']' | '}' if !quoted => depth = depth.saturating_sub(1),
            ',' if !quoted && depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts.retain(|part| !part.trim().is_empty());
    parts
}

pub(crate) fn run(context: &Context, arguments: &SetArguments) -> CliResult {
    let values = arguments.values.iter().flat_map(|text| parts(text));
    let values = values.map(|text| assignment(&text)).collect::<Result<Vec<_>, _>>()?;
    match &arguments.output {
        Some(output) => set_messages(context, arguments, output, values),
        None => set_attributes(context, arguments, values),
    }
}

fn set_messages(
    context: &Context,
    arguments: &SetArguments,
    output: &Path,
    values: Vec<(String, Value)>,
) -> CliResult {
    if !arguments.delete.is_empty() || arguments.timestamp.is_some() {
        return Err(Error::invalid("--delete and --timestamp require an array and no output").into());
    }
    let path = |key: String| key.split('.').map(str::to_owned).collect();
    let values: Vec<(Vec<String>, Value)> =
        values.into_iter().map(|(key, value)| (path(key), value)).collect();
    let file = MessageSource::new(context, &arguments.source)?.open()?;
    let mut written = WriteReport::default();
    let target = target(output, arguments.force, std::slice::from_ref(&arguments.source))?;
    let mut to = create(context, output, target.in_place())?;
    for number in 0..file.len() {
        context.check()?;
        let selected =
            arguments.filter.condition.is_none() || arguments.filter.matches(&file.message(number)?);
        let change = if selected { MessageChange::Set(&values) } else { MessageChange::None };
        file.write(number, &change, &mut |bytes| put(&mut to, bytes))?;
        written.changed += usize::from(selected);
    }
    to.finish()?;
    written.outputs.push((output.to_owned(), file.len()));
    written.report(context, "set", std::slice::from_ref(&arguments.source))
}

fn set_attributes(context: &Context, arguments: &SetArguments, values: Vec<(String, Value)>) -> CliResult {
    let opener = context.opener(&Meter::new(false))?;
    let store = opener.store(&arguments.source)?;
    let format = tesseral::recognize(&*store).map_err(CommandFailure::opening)?;
    if format.messages().is_some() {
        return Err(Error::invalid("missing output path for messages")
            .hint("add the output path after the source")
            .into());
    }
    let mut changes: BTreeMap<String, Option<Value>> =
        values.into_iter().map(|(key, value)| (key, Some(value))).collect();
    changes.extend(keys(&arguments.delete).into_iter().map(|key| (key, None)));
    edit(context, &arguments.source)?.set_attributes(&changes, arguments.timestamp)?;
    let shown = arguments.source.to_string_lossy();
    let (set, deleted): (Vec<_>, Vec<_>) = changes.iter().partition(|(_, value)| value.is_some());
    let names =
        |of: &[(&String, &Option<Value>)]| of.iter().map(|(key, _)| (*key).clone()).collect::<Vec<_>>();
    if context.json() {
        output::print_json(&json!({
            "schema": "tesseral.set/1", "array": shown, "set": names(&set), "deleted": names(&deleted),
        }))?;
    } else {
        output::print(&format!("{}: {} set, {} deleted\n", escape(&shown), set.len(), deleted.len()))?;
    }
    Ok(exit::OK)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_separate_assignments_but_not_json() {
        assert_eq!(parts("a=1,b.c=x y"), ["a=1", "b.c=x y"]);
        assert_eq!(
            parts("a:=[1,2],b:={\"x\":1,\"y\":2},c:=\"d,e\""),
            ["a:=[1,2]", "b:={\"x\":1,\"y\":2}", "c:=\"d,e\""]
        );
        assert_eq!(assignment("mars.step:=12").unwrap(), ("mars.step".to_owned(), Value::Int(12)));
        assert_eq!(assignment("step=12").unwrap().1, Value::from("12"));
        assert!(assignment("step").is_err() && assignment("a:=nonsense").is_err());
    }
}
