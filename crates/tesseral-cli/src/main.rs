//! `tet`: inspects, prints, aggregates, verifies, repairs and recovers tiled arrays.
#![forbid(unsafe_code)]
// Doc comments of arguments are help texts, in which brackets mark optional parts.
#![allow(rustdoc::broken_intra_doc_links)]

mod advise;
mod append;
mod args;
mod cat;
mod cdl;
mod cells_argument;
mod command;
mod completions;
mod context;
mod convert;
mod cp;
mod create;
mod diff;
mod doctor;
mod error;
mod evolve;
mod explain;
mod hint;
mod index;
mod info;
mod log;
mod maintain;
mod man;
mod messages;
mod output;
mod plot;
mod progress;
mod qhist;
mod query;
mod recover;
mod repair;
#[cfg(feature = "serve")]
mod serve;
mod stat;
mod terminal_style;
mod text;
mod verify;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::args::Cli;
use crate::context::Context;
use crate::error::{CommandFailure, exit};

fn main() -> ExitCode {
    let arguments = args::with_default_command(std::env::args_os().collect());
    let parsed = Cli::command().try_get_matches_from(arguments).and_then(|m| Cli::from_arg_matches(&m));
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) => {
            if let Some(text) = args::unknown_command(&error) {
                error::report(&text);
                return ExitCode::from(exit::USAGE);
            }
            // Help goes to standard output, errors to standard error; a closed pipe is ignored.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { exit::USAGE } else { exit::OK });
        }
    };
    cli.global.color.write_global();
    let outcome = Context::new(cli.global).and_then(|context| cli.command.run_to_the_end(&context));
    explain::finish();
    match outcome {
        Ok(code) => ExitCode::from(code),
        Err(CommandFailure::Closed) => ExitCode::from(exit::OK),
        Err(CommandFailure::Error(failure)) => {
            failure.report();
            ExitCode::from(failure.code())
        }
    }
}
