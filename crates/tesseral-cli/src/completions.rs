//! `tet completions`: shell completion scripts.

use clap::{Args, CommandFactory};
use clap_complete::Shell;
use serde_json::json;

use crate::args::Cli;
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;

/// Arguments of `tet completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArguments {
    /// Name of the shell
    shell: Shell,
}

pub(crate) fn run(context: &Context, arguments: &CompletionsArguments) -> CliResult {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "tet", &mut script);
    let script = String::from_utf8_lossy(&script);
    if context.json() {
        let shell = arguments.shell.to_string();
        output::print_json(&json!({"schema": "tesseral.completions/1", "shell": shell, "script": script}))?;
    } else {
        output::print(&script)?;
    }
    Ok(exit::OK)
}
