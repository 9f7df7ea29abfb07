//! `tet index` and `tet mosaic`: one dataset over existing files.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::json;
use tesseral::{IndexOptions, Join};

use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;
use crate::progress::Meter;
use crate::text;

/// Arguments of `tet index`.
#[derive(Debug, Args)]
pub(crate) struct IndexArguments {
    /// Index to write, usually .tix
    output: PathBuf,
    /// Files or folders of any supported format
    #[arg(required = true)]
    sources: Vec<PathBuf>,
    /// Replace an existing output
    #[arg(short, long)]
    force: bool,
}

/// Arguments of `tet mosaic`.
#[derive(Debug, Args)]
pub(crate) struct MosaicArguments {
    #[command(flatten)]
    shared: IndexArguments,
    /// Join arrays along this dimension, in the order of the files
    #[arg(long, value_name = "DIM", conflicts_with = "new")]
    along: Option<String>,
    /// Join arrays along a new first dimension
    #[arg(long, value_name = "DIM")]
    new: Option<String>,
}

pub(crate) fn run(context: &Context, arguments: &IndexArguments) -> CliResult {
    write(context, arguments, "index", Join::Union)
}

pub(crate) fn run_mosaic(context: &Context, arguments: &MosaicArguments) -> CliResult {
    let join = match (&arguments.along, &arguments.new) {
        (Some(along), _) => Join::Along(along.clone()),
        (None, Some(new)) => Join::New(new.clone()),
        (None, None) => Join::Union,
    };
    write(context, &arguments.shared, "mosaic", join)
}

fn write(context: &Context, arguments: &IndexArguments, command: &str, join: Join) -> CliResult {
    let open = context.opener(&Meter::new(false))?;
    let options = IndexOptions::new().join(join).overwrite(arguments.force);
    let written = tesseral::index(&arguments.sources, &arguments.output, &open, &options)?;
    if context.json() {
        output::print_json(&json!({
            "schema": format!("tesseral.{command}/1"),
            "output": arguments.output.to_string_lossy(),
            "sources": written.sources,
            "arrays": written.arrays,
            "chunks": written.chunks,
            "opened": written.opened,
            "bytes": written.bytes,
        }))?;
        return Ok(exit::OK);
    }
    let name = |path: &Path| text::escape(&path.to_string_lossy()).to_string();
    let mut out = format!(
        "{}: {} arrays, {} chunks of {} sources, {}\n",
        name(&arguments.output),
        written.arrays.len(),
        written.chunks,
        written.sources,
        text::size(written.bytes),
    );
    if !written.opened.is_empty() {
        out.push_str(&format!("read through their sources: {}\n", text::escape(&written.opened.join(", "))));
    }
    output::print(&out)?;
    Ok(exit::OK)
}
