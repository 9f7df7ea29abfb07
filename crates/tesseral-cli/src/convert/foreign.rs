//! Export of arrays to `.npy`, `.csv` or `.json` files.

use serde_json::json;
use tesseral::{Container, Error};

use super::ConvertArguments;
use crate::cat::{self, OutputFormat};
use crate::cells_argument::CellsArgument;
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output::{self, OutputArguments};
use crate::progress::Meter;
use crate::text::{self, escape};

/// Kind of file by the extension of the output, if it is not a format.
pub(super) fn kind_of(arguments: &ConvertArguments) -> Option<(OutputFormat, &'static str)> {
    let ending = arguments.output.extension()?.to_str()?;
    match ending {
        _ if arguments.to.is_some() => None,
        "npy" => Some((OutputFormat::Npy, "npy")),
        "csv" => Some((OutputFormat::Csv, "csv")),
        "json" => Some((OutputFormat::Json, "json")),
        _ => None,
    }
}

/// Writes one array to a file of another kind.
pub(super) fn export(
    context: &Context,
    arguments: &ConvertArguments,
    format: OutputFormat,
    kind: &str,
) -> CliResult {
    let shared = &arguments.shared;
    let requested = [
        (arguments.chunk.is_some(), "--chunks"),
        (shared.codec.is_some(), "--codec"),
        (!arguments.cast.is_empty(), "--cast"),
        (!arguments.fill.is_empty(), "--fill"),
        (arguments.sparse_as.is_some(), "--sparse-as"),
        (arguments.max_abs_error.is_some() || arguments.max_rel_error.is_some(), "an error bound"),
        (shared.check, "--check"),
    ];
    if let Some((_, option)) = requested.iter().find(|(requested, _)| *requested) {
        return Err(Error::unsupported(format!("{option} for .{kind} files")).into());
    }
    let named = &arguments.array;
    if named.len() > 1 {
        return Err(Error::unsupported(format!("several arrays in one .{kind} file"))
            .hint("select one with --array")
            .into());
    }
    let words = named.iter().chain(&arguments.select).cloned().collect();
    let output = OutputArguments { output: Some(arguments.output.clone()), force: shared.force };
    let source = context.open(&arguments.input, &Meter::new(false))?;
    let lost = carries_digests(&source, named.first());
    let from = source.format().id();
    if shared.dry_run {
        return report(context, arguments, from, kind, None, lost);
    }
    cat::export(context, CellsArgument::new(arguments.input.clone(), words), format, output)?;
    let stored = context.opener(&Meter::new(false))?.store(&arguments.output)?.len("")?;
    report(context, arguments, from, kind, Some(stored), lost)
}

/// Returns whether digests cover the exported array. The export itself reports an unreadable one.
fn carries_digests(source: &Container, name: Option<&String>) -> bool {
    let array = match name {
        Some(name) => source.array(name),
        None => source.array_at(0),
    };
    array.and_then(|array| array.totals()).is_ok_and(|totals| totals.digests)
}

/// Prints the result; without a size, nothing was written.
fn report(
    context: &Context,
    arguments: &ConvertArguments,
    from: &str,
    to: &str,
    stored: Option<u64>,
    digests_lost: bool,
) -> CliResult {
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
            "digests_lost": digests_lost,
            "array_count": 0,
            "arrays": [],
        }))?;
        return Ok(exit::OK);
    }
    if digests_lost {
        crate::error::report(&format!(
            "note: .{to} files have no digests; those of {} are lost\n",
            escape(&input)
        ));
    }
    let done = stored.map_or_else(|| "not written".to_owned(), text::size);
    output::print(&format!("{} -> {}: {from} as {to}, {done}\n", escape(&input), escape(&target)))?;
    Ok(exit::OK)
}
