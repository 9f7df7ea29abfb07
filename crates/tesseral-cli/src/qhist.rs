//! `tet qhist`: lists previous queries and runs them again.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use serde_json::{Value as Json, json};
use tesseral::query::Document;
use tesseral::{Error, Overwrite};
use tesseral_store::{Location, ReadMode, StorageOptions, StoreExt};

use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::terminal_style::TerminalStyle;
use crate::{output, query};

const DEFAULT_MAX: usize = 50;

/// Arguments of `tet qhist`.
#[derive(Debug, Args)]
pub(crate) struct QhistArguments {
    #[command(subcommand)]
    action: Option<Action>,
    /// Delete the history
    #[arg(long)]
    clear: bool,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// List queries, newest first
    List(ListArguments),
    /// Run a listed query again: 1 is the newest
    Run {
        /// Number in the list
        number: usize,
        #[command(flatten)]
        how: query::ExecutionArguments,
        /// Only show what would be read
        #[arg(long)]
        plan: bool,
    },
}

#[derive(Debug, Default, Args)]
struct ListArguments {
    /// Number of queries to list
    #[arg(short, default_value_t = 10)]
    n: usize,
    /// List all queries
    #[arg(long)]
    all: bool,
    /// Only queries of this array
    #[arg(long)]
    dataset: Option<String>,
    /// Only queries of sources whose name contains this text
    #[arg(long)]
    tet: Option<String>,
    /// Only executed (x) or planned (p) queries
    #[arg(long, value_parser = ["x", "p"])]
    mode: Option<String>,
    /// Only documents that contain this text
    #[arg(long)]
    grep: Option<String>,
}

/// Path of the history; `None` if it is disabled.
fn file() -> Option<PathBuf> {
    if std::env::var_os("TET_NO_QUERY_HISTORY").is_some_and(|v| !v.is_empty() && v != "0") {
        return None;
    }
    if let Some(path) = std::env::var_os("TET_QUERY_HISTORY_FILE").filter(|v| !v.is_empty()) {
        return Some(PathBuf::from(path));
    }
    crate::context::cache_folder().map(|cache| cache.join("tesseral").join("query_history.jsonl"))
}

fn most() -> usize {
    let set = std::env::var("TET_QUERY_HISTORY_MAX").ok().and_then(|v| v.parse().ok());
    set.filter(|n| (1..=10_000).contains(n)).unwrap_or(DEFAULT_MAX)
}

/// Rows, oldest first. Invalid lines are skipped.
fn rows() -> Vec<Json> {
    let text = file().and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).filter(Json::is_object).collect()
}

fn write(rows: &[Json]) -> Result<(), Error> {
    let Some(path) = file() else { return Ok(()) };
    let text: String = rows.iter().map(|row| format!("{row}\n")).collect();
    let store = Location::Path(path).store(ReadMode::Read, &StorageOptions::new())?;
    store.put("", text.as_bytes(), Overwrite::Replace)
}

/// Adds a query to the history. Errors are ignored.
pub(crate) fn remember(document: &str, how: &query::ExecutionArguments) {
    if file().is_none() {
        return;
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut at = String::new();
    let seconds = i64::try_from(now).unwrap_or(0);
    let _ = tesseral_core::time::write(&mut at, seconds, tesseral_core::TimeUnit::Second);
    let source = how.source.as_ref().map(|s| std::path::absolute(s).unwrap_or_else(|_| s.clone()));
    let row = json!({"at": format!("{at}Z"), "tet": source, "execute": how.execute, "query": document});
    let mut rows = rows();
    let same = |a: &Json, b: &Json| ["tet", "execute", "query"].iter().all(|key| a[*key] == b[*key]);
    if rows.last().is_some_and(|last| same(last, &row)) {
        rows.pop();
    }
    rows.push(row);
    let first = rows.len().saturating_sub(most());
    let _ = write(&rows[first..]);
}

pub(crate) fn run(context: &Context, arguments: &QhistArguments) -> CliResult {
    if arguments.clear {
        if let Some(path) = file().filter(|path| path.exists()) {
            std::fs::remove_file(&path).map_err(|e| Error::io("remove", path.display().to_string(), e))?;
        }
        return Ok(exit::OK);
    }
    match &arguments.action {
        Some(Action::Run { number, how, plan }) => again(context, *number, how, *plan),
        Some(Action::List(list)) => show(context, list),
        None => show(context, &ListArguments { n: 10, ..ListArguments::default() }),
    }
}

fn newest_first(list: &ListArguments) -> Vec<Json> {
    let word = |row: &Json, key: &str| row[key].as_str().unwrap_or_default().to_owned();
    let dataset = |row: &Json| Document::parse(&word(row, "query")).map(|d| d.dataset).unwrap_or_default();
    let mut rows = rows();
    rows.reverse();
    rows.retain(|row| {
        list.dataset.as_ref().is_none_or(|name| dataset(row) == *name)
            && list.tet.as_ref().is_none_or(|part| word(row, "tet").contains(part.as_str()))
            && list.grep.as_ref().is_none_or(|part| word(row, "query").contains(part.as_str()))
            && list.mode.as_ref().is_none_or(|mode| (mode == "x") == (row["execute"] == json!(true)))
    });
    if !list.all {
        rows.truncate(list.n);
    }
    rows
}

fn show(context: &Context, list: &ListArguments) -> CliResult {
    let rows = newest_first(list);
    if context.json() {
        output::print_json(&json!({"schema": "tesseral.qhist/1", "queries": rows}))?;
        return Ok(exit::OK);
    }
    let shown = rows.iter().enumerate().map(|(i, row)| {
        let word = |key: &str| row[key].as_str().unwrap_or("-").to_owned();
        let query = word("query").split_whitespace().collect::<Vec<_>>().join(" ");
        let mode = if row["execute"] == json!(true) { "x" } else { "p" };
        vec![(i + 1).to_string(), word("at"), mode.to_owned(), word("tet"), query]
    });
    output::print(&TerminalStyle::stdout().table(&[">#", "at", "mode", "source", "query"], shown))?;
    Ok(exit::OK)
}

fn again(context: &Context, number: usize, how: &query::ExecutionArguments, plan: bool) -> CliResult {
    let rows = newest_first(&ListArguments { all: true, ..ListArguments::default() });
    let row = number.checked_sub(1).and_then(|i| rows.get(i));
    let row = row.ok_or_else(|| {
        Error::invalid(format!("unknown query {number}: the history has {}", rows.len()))
            .hint("`tet qhist` lists them")
    })?;
    let text = row["query"].as_str().unwrap_or_default();
    let document = Document::parse(text)?;
    let mut how = how.clone();
    how.source = how.source.or_else(|| row["tet"].as_str().map(PathBuf::from));
    how.execute = !plan && (how.execute || row["execute"] == json!(true));
    let code = query::answer(context, &document, &how)?;
    remember(text, &how);
    Ok(code)
}
