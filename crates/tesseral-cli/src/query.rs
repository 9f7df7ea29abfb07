//! `tet query`: documents that say what to select, filter, group and reduce.

mod show;

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use tesseral::query::{Detail, Document, Outcome as Answered, Plan, Settings, report};
use tesseral::{Container, Error};

use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::progress::Meter;
use crate::{output, qhist};

/// Arguments of `tet query`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The document: a file, its text, or `-` for standard input; JSON or TOML
    #[arg(value_name = "DOC")]
    document: Option<String>,
    #[command(flatten)]
    pub(crate) how: How,
}

/// How a document is answered.
#[derive(Clone, Debug, Args)]
pub(crate) struct How {
    /// The source to ask
    #[arg(short = 't', long = "tet", value_name = "SOURCE")]
    pub(crate) source: Option<PathBuf>,
    /// Answers, instead of telling only what would be read
    #[arg(short = 'x', long)]
    pub(crate) execute: bool,
    /// How to print
    #[arg(long, value_name = "FORMAT", default_value = "full")]
    format: Format,
    /// One line: the same as --format quiet
    #[arg(short, long)]
    quiet: bool,
    /// Shows this many cells of a selection that is not reduced [default: 64 for full and json, else 0]
    #[arg(long, value_name = "N")]
    preview: Option<usize>,
    /// Where to compute: there is `cpu`
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: String,
    /// Replaces existing files that a document writes
    #[arg(short, long)]
    force: bool,
    /// Lets documents write files under this folder too
    #[arg(long, value_name = "DIR")]
    spill_allow: Vec<PathBuf>,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// JSON on many lines: plan, chunks, first cells, answer
    Full,
    /// The same on one line
    Json,
    /// JSON without chunks and cells
    Stats,
    /// JSON of the plan alone
    Plan,
    /// One line
    Quiet,
    /// Tables
    #[value(alias = "table-verbose")]
    Table,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    let (text, toml) = read(arguments.document.as_deref())?;
    let document = if toml { Document::parse_toml(&text)? } else { Document::parse(&text)? };
    let code = answer(context, &document, &arguments.how)?;
    qhist::remember(&text, &arguments.how);
    Ok(code)
}

/// The text of a document, and whether its file's name says that it is TOML.
fn read(argument: Option<&str>) -> Outcome<(String, bool)> {
    let most = 2 << 20;
    let standard = || -> Outcome<(String, bool)> {
        let mut text = String::new();
        let stdin = std::io::stdin().lock().take(most);
        stdin.take(most).read_to_string(&mut text).map_err(|e| Error::io("read", "standard input", e))?;
        Ok((text, false))
    };
    let Some(argument) = argument.filter(|argument| *argument != "-") else { return standard() };
    if argument.trim_start().starts_with('{') {
        return Ok((argument.to_owned(), false));
    }
    if argument.trim().is_empty() {
        return Err(Error::invalid("the query document is empty").into());
    }
    let path = Path::new(argument);
    if !path.is_file() && argument.contains('=') {
        return Ok((argument.to_owned(), true));
    }
    let io = |e| Error::io("read", argument, e);
    let mut text = String::new();
    std::fs::File::open(path).map_err(io)?.take(most).read_to_string(&mut text).map_err(io)?;
    Ok((text, path.extension().is_some_and(|ending| ending == "toml")))
}

/// Answers a document and prints the answer.
pub(crate) fn answer(context: &Context, document: &Document, how: &How) -> Outcome {
    let format = match (how.quiet, context.json(), how.format) {
        (_, true, Format::Quiet | Format::Table) => Format::Full,
        (true, false, _) => Format::Quiet,
        (.., format) => format,
    };
    if !matches!(how.device.as_str(), "cpu" | "auto") {
        return Err(Error::unsupported(format!("--device {}: there is cpu", how.device)).into());
    }
    let Some(source) = &how.source else {
        if how.execute {
            return Err(Error::invalid("-x needs a source").hint("name it with -t").into());
        }
        return print(format, &show::Shown { document, container: None, plan: None, outcome: None });
    };
    let meter = Meter::new(true);
    let container = context.open(source, &meter)?;
    let shows = matches!(format, Format::Full | Format::Json);
    let settings = Settings {
        preview: how.preview.unwrap_or(if shows { 64 } else { 0 }),
        allow: how.spill_allow.clone(),
        overwrite: output::overwrite(how.force),
        memory: context.global.memory,
    };
    let plan = Plan::new(&container, document, &settings)?;
    let outcome = match &plan {
        Some(plan) if how.execute => Some(plan.run()?),
        _ => None,
    };
    meter.finish();
    let shown =
        show::Shown { document, container: Some(&container), plan: plan.as_ref(), outcome: outcome.as_ref() };
    print(format, &shown)?;
    if plan.is_none() {
        not_found(&container, document);
        return Ok(exit::NOT_FOUND);
    }
    Ok(exit::OK)
}

fn not_found(container: &Container, document: &Document) {
    let names: Vec<&str> = container.names().collect();
    let nearest = crate::text::nearest(&document.dataset, names.iter().copied());
    let hint = nearest.map_or_else(String::new, |name| format!("; did you mean {name:?}?"));
    let line = format!("no array named {:?}{hint}", document.dataset);
    eprintln!("hint: {}", crate::text::escape(&line));
}

fn print(format: Format, shown: &show::Shown<'_>) -> Outcome {
    let json = |outcome: Option<&Answered>, detail| {
        report(shown.document, shown.container, shown.plan, outcome, detail)
    };
    match format {
        Format::Full => output::print_json(&json(shown.outcome, Detail::Full)?)?,
        Format::Json => output::print(&format!("{}\n", json(shown.outcome, Detail::Full)?))?,
        Format::Stats => output::print_json(&json(shown.outcome, Detail::Totals)?)?,
        Format::Plan => output::print_json(&json(None, Detail::Full)?)?,
        Format::Quiet => output::print(&shown.line())?,
        Format::Table => output::print(&shown.tables())?,
    }
    Ok(exit::OK)
}
