//! `tet set`: keys of messages, with every object copied as it is stored.

use std::path::PathBuf;

use clap::Args;
use tesseral::{Error, MessageChange, Value};

use super::{Filter, Source, Written, create, put};
use crate::context::Context;
use crate::failure::Outcome;

/// Arguments of `tet set`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// What to set, separated by commas: KEY=TEXT or KEY:=JSON. Keys descend by dots; `extra.KEY` is the message's,
    /// `objects.N.KEY` that of one object, any other that of every object
    #[arg(short = 's', long = "set", value_name = "K=V", required = true)]
    values: Vec<String>,
    #[command(flatten)]
    filter: Filter,
    /// A file of messages
    source: PathBuf,
    /// Where the messages go; those that are not meant are copied as they are
    output: PathBuf,
    /// Replaces an existing output
    #[arg(short, long)]
    force: bool,
}

/// `a.b=text` or `a.b:=json`.
fn assignment(text: &str) -> Result<(Vec<String>, Value), Error> {
    let wrong = || Error::invalid(format!("{text:?} is not KEY=TEXT or KEY:=JSON"));
    let (key, value) = text.split_once('=').ok_or_else(wrong)?;
    let (key, value) = match key.strip_suffix(':') {
        Some(key) => {
            let json = serde_json::from_str(value.trim()).map_err(|_| wrong())?;
            (key, from_json(&json))
        }
        None => (key, Value::from(value.trim())),
    };
    Ok((key.trim().split('.').map(str::to_owned).collect(), value))
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
        Json::Object(map) => Value::Map(map.iter().map(|(k, v)| (k.clone(), from_json(v))).collect()),
    }
}

/// Parts separated by commas, except inside brackets and quotes of JSON values.
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

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    let values = arguments.values.iter().flat_map(|text| parts(text));
    let values = values.map(|text| assignment(&text)).collect::<Result<Vec<_>, _>>()?;
    let file = Source::new(context, &arguments.source)?.open()?;
    let mut output = create(context, &arguments.output, arguments.force)?;
    let mut written = Written::default();
    for number in 0..file.len() {
        context.check()?;
        let meant = arguments.filter.condition.is_none() || arguments.filter.holds(&file.message(number)?);
        let change = if meant { MessageChange::Set(&values) } else { MessageChange::None };
        file.write(number, &change, &mut |bytes| put(&mut output, bytes))?;
        written.changed += usize::from(meant);
    }
    output.finish()?;
    written.outputs.push((arguments.output.clone(), file.len()));
    written.report(context, "set", std::slice::from_ref(&arguments.source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_part_assignments_but_not_json() {
        assert_eq!(parts("a=1,b.c=x y"), ["a=1", "b.c=x y"]);
        assert_eq!(
            parts("a:=[1,2],b:={\"x\":1,\"y\":2},c:=\"d,e\""),
            ["a:=[1,2]", "b:={\"x\":1,\"y\":2}", "c:=\"d,e\""]
        );
        assert_eq!(
            assignment("mars.step:=12").unwrap(),
            (vec!["mars".into(), "step".into()], Value::Int(12))
        );
        assert_eq!(assignment("step=12").unwrap().1, Value::from("12"));
        assert!(assignment("step").is_err() && assignment("a:=nonsense").is_err());
    }
}
