//! `tet query`: runs query documents.

mod show;

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use tesseral::query::{Detail, Document, Plan, QueryOptions, QueryOutcome, report};
use tesseral::{Container, Error};

use crate::cells_argument::{ValuesArgument, report_packing};
use crate::context::{Context, cache_folder};
use crate::error::{CliResult, exit};
use crate::progress::Meter;
use crate::{output, qhist};

/// Arguments of `tet query`.
#[derive(Debug, Args)]
pub(crate) struct QueryArguments {
    /// Query document: a file, its text, or `-` for standard input; JSON or TOML
    #[arg(value_name = "DOC")]
    document: Option<String>,
    #[command(flatten)]
    pub(crate) how: ExecutionArguments,
}

/// How a document is run.
#[derive(Clone, Debug, Args)]
pub(crate) struct ExecutionArguments {
    /// Source to query
    #[arg(short = 't', long = "tet", value_name = "SOURCE")]
    pub(crate) source: Option<PathBuf>,
    /// Run the query instead of only showing its plan
    #[arg(short = 'x', long)]
    pub(crate) execute: bool,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "full")]
    format: ReportFormat,
    /// Print one line; same as --format quiet
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    values: ValuesArgument,
    /// Number of cells to show of a selection that is not reduced [default: 64 for full and json, otherwise 0]
    #[arg(long, value_name = "N")]
    preview: Option<usize>,
    /// Compute device; available: `cpu`
    #[arg(long, value_name = "DEVICE", default_value = "cpu")]
    device: String,
    /// Replace existing files that a document writes
    #[arg(short, long)]
    force: bool,
    /// Also allow documents to write files in this folder
    #[arg(long, value_name = "DIR")]
    spill_allow: Vec<PathBuf>,
}

/// Output formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ReportFormat {
    /// JSON on several lines: plan, chunks, first cells, result
    Full,
    /// JSON on one line
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

pub(crate) fn run(context: &Context, arguments: &QueryArguments) -> CliResult {
    let (text, toml) = read(arguments.document.as_deref())?;
    let document = if toml { Document::parse_toml(&text)? } else { Document::parse(&text)? };
    let code = answer(context, &document, &arguments.how)?;
    qhist::remember(&text, &arguments.how);
    Ok(code)
}

/// Text of a document, and whether its file extension is TOML.
fn read(argument: Option<&str>) -> CliResult<(String, bool)> {
    let most = 2 << 20;
    let standard = || -> CliResult<(String, bool)> {
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

/// Runs a document and prints the result.
pub(crate) fn answer(context: &Context, document: &Document, how: &ExecutionArguments) -> CliResult {
    let format = match (how.quiet, context.json(), how.format) {
        (_, true, ReportFormat::Quiet | ReportFormat::Table) => ReportFormat::Full,
        (true, false, _) => ReportFormat::Quiet,
        (.., format) => format,
    };
    if !matches!(how.device.as_str(), "cpu" | "auto") {
        return Err(Error::unsupported(format!("unknown device {}; available: cpu", how.device)).into());
    }
    let Some(source) = &how.source else {
        if how.execute {
            return Err(Error::invalid("-x requires a source").hint("set it with -t").into());
        }
        return print(format, &show::AnswerView { document, container: None, plan: None, outcome: None });
    };
    let meter = Meter::new(true);
    let container = how.values.apply_to(context.open(source, &meter)?);
    if let Ok(array) = container.array(&document.dataset) {
        report_packing(&array);
    }
    let shows = matches!(format, ReportFormat::Full | ReportFormat::Json);
    let mut options = QueryOptions::new().preview(how.preview.unwrap_or(if shows { 64 } else { 0 }));
    // Query documents of the reference write below its cache folder.
    options.allow =
        how.spill_allow.iter().cloned().chain(cache_folder().map(|c| c.join("tetration"))).collect();
    options.overwrite = output::overwrite(how.force);
    options.memory = context.global.memory;
    let plan = Plan::new(&container, document, &options)?;
    let outcome = match &plan {
        Some(plan) if how.execute => Some(plan.run()?),
        _ => None,
    };
    meter.finish();
    let shown = show::AnswerView {
        document,
        container: Some(&container),
        plan: plan.as_ref(),
        outcome: outcome.as_ref(),
    };
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

fn print(format: ReportFormat, shown: &show::AnswerView<'_>) -> CliResult {
    let json = |outcome: Option<&QueryOutcome>, detail| {
        report(shown.document, shown.container, shown.plan, outcome, detail)
    };
    match format {
        ReportFormat::Full => output::print_json(&json(shown.outcome, Detail::Full)?)?,
        ReportFormat::Json => output::print(&format!("{}\n", json(shown.outcome, Detail::Full)?))?,
        ReportFormat::Stats => output::print_json(&json(shown.outcome, Detail::Totals)?)?,
        ReportFormat::Plan => output::print_json(&json(None, Detail::Full)?)?,
        ReportFormat::Quiet => output::print(&shown.line())?,
        ReportFormat::Table => output::print(&shown.tables())?,
    }
    Ok(exit::OK)
}
