//! `tet cp`: copies a dataset between paths and object stores, byte for byte.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tesseral_store::StorageOptions;

use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;
use crate::progress::Meter;
use crate::text::{self, escape};

/// Arguments of `tet cp`.
#[derive(Debug, Args)]
pub(crate) struct CpArguments {
    /// File, folder or URL of any supported format
    source: PathBuf,
    /// Path or URL of the copy
    output: PathBuf,
    /// Replace an existing output
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(context: &Context, arguments: &CpArguments) -> CliResult {
    let CpArguments { source, output, force } = arguments;
    let meter = Meter::new(true);
    let opener = context.opener(&meter)?;
    let overwrite = output::overwrite(*force);
    let copied = tesseral::copy_dataset(&opener, source, output, overwrite, &StorageOptions::new())?;
    meter.finish();
    if context.json() {
        output::print_json(&json!({
            "schema": "tesseral.cp/1",
            "source": source.to_string_lossy(),
            "output": output.to_string_lossy(),
            "format": copied.format.id(),
            "objects": copied.objects,
            "bytes": copied.bytes,
            "covered_bytes": copied.verified.map(|verified| verified.covered_bytes),
            "uncovered_bytes": copied.verified.map(|verified| verified.uncovered_bytes),
        }))?;
        return Ok(exit::OK);
    }
    let digests = match copied.verified {
        Some(verified) => format!("; digests of {} verified", text::size(verified.covered_bytes)),
        None => "; digests not verified".to_owned(),
    };
    output::print(&format!(
        "{}: {}, {}{digests}\n",
        escape(&output.to_string_lossy()),
        text::count(copied.objects, "object"),
        text::size(copied.bytes),
    ))?;
    Ok(exit::OK)
}
