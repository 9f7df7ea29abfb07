//! `tet merge`: merges the objects of all messages into one.

use std::path::PathBuf;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use tesseral::{Conflict, Error};

use super::{MessageSource, WriteReport, create, put, target};
use crate::context::Context;
use crate::error::{CliResult, CommandFailure};

/// Arguments of `tet merge`.
#[derive(Debug, Args)]
pub(crate) struct MergeArguments {
    /// Output path
    #[arg(short, long, value_name = "OUT")]
    output: PathBuf,
    /// Value to use if messages differ in a key
    #[arg(short, long, value_name = "WHICH", default_value = "first")]
    strategy: Strategy,
    /// Replace an existing output
    #[arg(short, long)]
    force: bool,
    /// Files of messages
    #[arg(required = true)]
    sources: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Strategy {
    /// The first value
    First,
    /// The last value
    Last,
    /// Return an error
    Error,
}

pub(crate) fn run(context: &Context, arguments: &MergeArguments) -> CliResult {
    let sources = arguments.sources.iter().map(|path| MessageSource::new(context, path));
    let sources = sources.collect::<CliResult<Vec<_>>>()?;
    let Some(first) = sources.first() else { return Err(Error::invalid("nothing to merge").into()) };
    for source in &sources {
        if source.format.id() != first.format.id() {
            let detail = format!("{} and {} in one message", first.format.title(), source.format.title());
            return Err(Error::unsupported(detail).into());
        }
        source.open()?;
    }
    let conflict = match arguments.strategy {
        Strategy::First => Conflict::First,
        Strategy::Last => Conflict::Last,
        Strategy::Error => Conflict::Refuse,
    };
    let stores: Vec<_> = sources.iter().map(|source| Arc::clone(&source.store)).collect();
    let target = target(&arguments.output, arguments.force, &arguments.sources)?;
    let mut output = create(context, &arguments.output, target.in_place())?;
    let merged =
        first.messages.merge(&stores, &first.options, conflict, &mut |bytes| put(&mut output, bytes));
    merged.map_err(CommandFailure::opening)?;
    output.finish()?;
    let written = WriteReport { outputs: vec![(arguments.output.clone(), 1)], changed: 1 };
    written.report(context, "merge", &arguments.sources)
}
