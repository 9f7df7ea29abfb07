//! Arrays written as files of other kinds: `.npy`, `.csv` or `.json`.

use serde_json::json;
use tesseral::Error;

use super::Arguments;
use crate::cat::{self, Format};
use crate::context::{Context, local};
use crate::failure::{Outcome, exit};
use crate::output::{self, OutputArguments};
use crate::progress::Meter;
use crate::subject::Subject;
use crate::text::{self, escape};

/// The kind of file that an output's name tells, where it is none of the formats.
pub(super) fn kind_of(arguments: &Arguments) -> Option<(Format, &'static str)> {
    let ending = arguments.output.extension()?.to_str()?;
    match ending {
        _ if arguments.to.is_some() => None,
        "npy" => Some((Format::Npy, "npy")),
        "csv" => Some((Format::Csv, "csv")),
        "json" => Some((Format::Json, "json")),
        _ => None,
    }
}

/// Writes one array as a file of another kind.
pub(super) fn export(context: &Context, arguments: &Arguments, format: Format, kind: &str) -> Outcome {
    let shared = &arguments.shared;
    let asked = [
        (arguments.chunk.is_some(), "--chunk"),
        (shared.codec.is_some(), "--codec"),
        (!arguments.cast.is_empty(), "--cast"),
        (!arguments.fill.is_empty(), "--fill"),
        (arguments.sparse_as.is_some(), "--sparse-as"),
        (arguments.max_abs_error.is_some() || arguments.max_rel_error.is_some(), "an error bound"),
        (shared.check, "--check"),
    ];
    if let Some((_, option)) = asked.iter().find(|(asked, _)| *asked) {
        return Err(Error::unsupported(format!("{option} for .{kind} files")).into());
    }
    let named = &arguments.array;
    if named.len() > 1 {
        return Err(Error::unsupported(format!("several arrays in one .{kind} file"))
            .hint("name one with --array")
            .into());
    }
    let words = named.iter().chain(&arguments.select).cloned().collect();
    let target = local(&arguments.output)?;
    let output = OutputArguments { output: Some(target.to_owned()), force: shared.force };
    let from = context.open(&arguments.input, &Meter::new(false))?.format().id();
    if shared.dry_run {
        return tell(context, arguments, from, kind, None);
    }
    cat::export(context, Subject::new(arguments.input.clone(), words), format, output)?;
    tell(context, arguments, from, kind, Some(super::stored(target)))
}

/// Tells what was written of what; nothing was without bytes.
fn tell(context: &Context, arguments: &Arguments, from: &str, to: &str, stored: Option<u64>) -> Outcome {
    let (input, target) = (arguments.input.to_string_lossy(), arguments.output.to_string_lossy());
    if context.json() {
        output::print_json(&json!({
            "schema": "tesseral.convert/1",
            "source": input,
            "output": target,
            "from": from,
            "format": to,
            "dry_run": stored.is_none(),
            "checked": false,
            "resumed_chunks": 0,
            "source_digest": null,
            "stored_bytes": stored,
            "arrays": [],
        }))?;
        return Ok(exit::OK);
    }
    let done = stored.map_or_else(|| "not written".to_owned(), text::size);
    output::print(&format!("{} -> {}: {from} as {to}, {done}\n", escape(&input), escape(&target)))?;
    Ok(exit::OK)
}
