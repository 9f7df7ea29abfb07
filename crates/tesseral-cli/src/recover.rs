//! `tet recover`: every whole chunk of a torn source, in a new container.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use tesseral::{CreateOptions, Finding, Overwrite, engine};

use crate::context::{Context, local};
use crate::failure::{Failure, Outcome, exit};
use crate::paint::Paint;
use crate::progress::Meter;
use crate::text::{self, escape};
use crate::verify::line;
use crate::{json, output};

/// Arguments of `tet recover`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// A torn or damaged file or folder
    source: PathBuf,
    /// Where to save what is whole, in the same format
    output: PathBuf,
    /// Replaces an existing output
    #[arg(short, long)]
    force: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    let meter = Meter::new(true);
    let opener = context.opener(&meter)?;
    let store = opener.store(local(&arguments.source)?);
    let format = tesseral::recognise(&*store).map_err(Failure::opening)?;
    context.check_versions(format)?;
    let create = CreateOptions {
        overwrite: if arguments.force { Overwrite::Replace } else { Overwrite::Refuse },
        ..CreateOptions::default()
    };
    let target = format.create(opener.store(local(&arguments.output)?), &create)?;
    let mut findings: Vec<Finding> = Vec::new();
    let options = context.options(&meter);
    let recovered =
        engine::recover(format, store, opener.format_options(), target, &options, &mut |f| findings.push(f))
            .map_err(Failure::opening)?;
    meter.finish();
    let (saved, lost) = (recovered.chunks_saved, recovered.chunks_lost);
    if context.json() {
        output::print_json(&json!({
            "schema": "tesseral.recover/1",
            "source": arguments.source.to_string_lossy(),
            "output": arguments.output.to_string_lossy(),
            "format": format.id(),
            "chunks_saved": saved,
            "chunks_lost": lost,
            "findings": findings.iter().map(json::finding).collect::<Vec<_>>(),
        }))?;
        return Ok(exit::OK);
    }
    let paint = Paint::stdout();
    let width = findings.iter().map(|f| f.check.len()).max().unwrap_or(0);
    let mut out: String = findings.iter().map(|finding| line(finding, width, paint)).collect();
    out.push_str(&format!(
        "{}: {} saved, {lost} lost\n",
        escape(&arguments.output.to_string_lossy()),
        text::count(saved, "chunk"),
    ));
    output::print(&out)?;
    Ok(exit::OK)
}
