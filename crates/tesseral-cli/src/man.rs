//! `tet man`: manual pages, generated from the command-line definitions.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use clap_mangen::Man;
use serde_json::json;
use tesseral::Error;
use tesseral_store::{Location, ReadMode, StorageOptions, StoreExt};

use crate::args::Cli;
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;

/// Arguments of `tet man`.
#[derive(Debug, Args)]
pub(crate) struct ManArguments {
    /// Write a page for each command into this folder
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, arguments: &ManArguments) -> CliResult {
    let root = Cli::command();
    let Some(dir) = &arguments.dir else {
        let page = page(root)?;
        if context.json() {
            output::print_json(&json!({"schema": "tesseral.man/1", "page": page}))?;
        } else {
            output::print(&page)?;
        }
        return Ok(exit::OK);
    };
    let store = Location::parse(dir)?.store(ReadMode::Read, &StorageOptions::new())?;
    let mut files = Vec::new();
    let pages = root.get_subcommands().filter(|c| !c.is_hide_set()).map(|command| {
        // The page is called by its name; the display name is what users type.
        let name = format!("tet-{}", command.get_name());
        (name.clone(), command.clone().name(name).version(env!("CARGO_PKG_VERSION")))
    });
    for (name, command) in std::iter::once(("tet".to_owned(), root.clone())).chain(pages) {
        let file = format!("{name}.1");
        store.put(&file, page(command)?.as_bytes(), tesseral::Overwrite::Replace)?;
        files.push(file);
    }
    if context.json() {
        output::print_json(
            &json!({"schema": "tesseral.man/1", "dir": dir.to_string_lossy(), "files": files}),
        )?;
    } else {
        output::print(
            &files.iter().map(|file| format!("{}\n", dir.join(file).display())).collect::<String>(),
        )?;
    }
    Ok(exit::OK)
}

fn page(command: clap::Command) -> CliResult<String> {
    let mut page = Vec::new();
    Man::new(command).render(&mut page).map_err(|e| Error::io("render", "the manual page", e))?;
    Ok(String::from_utf8_lossy(&page).into_owned())
}
