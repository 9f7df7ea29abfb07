//! `tet reshuffle`: moves the index before the objects, so that readers find them without reading further.

use std::path::PathBuf;

use clap::Args;
use tesseral::MessageChange;

use super::{MessageSource, WriteReport, create, put, target};
use crate::context::Context;
use crate::error::CliResult;

/// Arguments of `tet reshuffle`.
#[derive(Debug, Args)]
pub(crate) struct ReshuffleArguments {
    /// Output path
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Replace an existing output
    #[arg(short, long)]
    force: bool,
    /// File of messages
    source: PathBuf,
}

pub(crate) fn run(context: &Context, arguments: &ReshuffleArguments) -> CliResult {
    let file = MessageSource::new(context, &arguments.source)?.open()?;
    let target = target(&arguments.output, arguments.force, std::slice::from_ref(&arguments.source))?;
    let mut output = create(context, &arguments.output, target.in_place())?;
    for number in 0..file.len() {
        context.check()?;
        file.write(number, &MessageChange::ListsFirst, &mut |bytes| put(&mut output, bytes))?;
    }
    output.finish()?;
    let written = WriteReport { outputs: vec![(arguments.output.clone(), file.len())], changed: file.len() };
    written.report(context, "reshuffle", std::slice::from_ref(&arguments.source))
}
