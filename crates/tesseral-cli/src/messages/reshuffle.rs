//! `tet reshuffle`: lists of objects before the objects, so that readers find them without reading on.

use std::path::PathBuf;

use clap::Args;
use tesseral::MessageChange;

use super::{Source, Written, create, put, target};
use crate::context::Context;
use crate::failure::Outcome;

/// Arguments of `tet reshuffle`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where the messages go
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Replaces an existing output
    #[arg(short, long)]
    force: bool,
    /// A file of messages
    source: PathBuf,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    let file = Source::new(context, &arguments.source)?.open()?;
    let target = target(&arguments.output, arguments.force, std::slice::from_ref(&arguments.source))?;
    let mut output = create(context, &arguments.output, target.in_place())?;
    for number in 0..file.len() {
        context.check()?;
        file.write(number, &MessageChange::ListsFirst, &mut |bytes| put(&mut output, bytes))?;
    }
    output.finish()?;
    let written = Written { outputs: vec![(arguments.output.clone(), file.len())], changed: file.len() };
    written.report(context, "reshuffle", std::slice::from_ref(&arguments.source))
}
