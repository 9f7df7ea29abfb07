//! `tet repair`: lists and applies fixes of a source.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value as Json, json};
use tesseral::{Depth, Error, Repair};
use tesseral_store::Store;

use crate::context::Context;
use crate::error::{CliResult, CommandFailure, exit};
use crate::output;
use crate::progress::Meter;
use crate::terminal_style::TerminalStyle;
use crate::text::escape;
use crate::verify::{self, VerifyReport};

/// Arguments of `tet repair`.
#[derive(Debug, Args)]
pub(crate) struct RepairArguments {
    /// Path or URL of a file or folder of any supported format
    source: PathBuf,
    /// Apply the fix of this name; without it, fixes are only listed. Repeatable
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    apply: Vec<String>,
    /// Show the fixes without applying them
    #[arg(long)]
    dry_run: bool,
}

/// State of a fix.
struct RepairOutcome {
    repair: Repair,
    outcome: &'static str,
}

pub(crate) fn run(context: &Context, arguments: &RepairArguments) -> CliResult {
    let opener = context.opener(&Meter::new(false))?;
    let store = opener.store(&arguments.source)?;
    let format = match tesseral::recognize(&*store) {
        Ok(format) => format,
        // Of an upload that did not end, nothing is recognized.
        Err(error) => match tesseral::unfinished(&*store) {
            Ok(Some(upload)) => return run_unfinished(context, arguments, &*store, upload),
            _ => return Err(CommandFailure::opening(error)),
        },
    };
    // Nor can it be opened where its name alone is recognized.
    if let Ok(Some(upload)) = tesseral::unfinished(&*store)
        && opener.open_as(format, Arc::clone(&store)).is_err()
    {
        return run_unfinished(context, arguments, &*store, upload);
    }
    context.check_versions(format)?;
    let needed = tesseral::repairs(format, &store, opener.format_options())?;
    // Check all names before applying any fix.
    for code in &arguments.apply {
        match needed.iter().find(|repair| repair.code == code) {
            Some(repair) if repair.automatic => {}
            Some(_) => return Err(Error::invalid(format!("{code:?} cannot be fixed automatically")).into()),
            None => {
                let codes = needed.iter().map(|r| r.code).collect::<Vec<_>>().join(", ");
                let listed = if codes.is_empty() {
                    "no fix is needed".to_owned()
                } else {
                    format!("available: {codes}")
                };
                return Err(
                    Error::invalid(format!("fix {code:?} does not apply to the source; {listed}")).into()
                );
            }
        }
    }
    let mut steps = Vec::with_capacity(needed.len());
    let mut changed = false;
    for repair in needed {
        let requested = arguments.apply.iter().any(|code| code == repair.code);
        let outcome = match (requested, arguments.dry_run, repair.automatic) {
            (true, false, _) => {
                context.check()?;
                // A new store each time: every fix replaces the file.
                tesseral::apply_repair(
                    format,
                    opener.store(&arguments.source)?,
                    opener.format_options(),
                    repair.code,
                )?;
                changed = true;
                "applied"
            }
            (true, true, _) => "would apply",
            (false, _, true) => "available",
            (false, _, false) => "manual",
        };
        steps.push(RepairOutcome { repair, outcome });
    }
    let after =
        if changed { Some(verify::check(context, &arguments.source, Depth::Usual, false)?) } else { None };
    let source = arguments.source.to_string_lossy();
    if context.json() {
        output::print_json(&document(&source, Some(format.id()), arguments.dry_run, &steps, after.as_ref()))?;
    } else {
        output::print(&text(&source, &steps, after.as_ref(), TerminalStyle::stdout()))?;
    }
    Ok(if after.is_none_or(|after| after.verified.ok) { exit::OK } else { exit::NO })
}

/// Lists or removes leftovers of a writer that ended before publishing its output.
fn run_unfinished(
    context: &Context,
    arguments: &RepairArguments,
    store: &dyn Store,
    upload: Repair,
) -> CliResult {
    if let Some(code) = arguments.apply.iter().find(|code| *code != upload.code) {
        let listed = format!("fix {code:?} does not apply to the source; available: {}", upload.code);
        return Err(Error::invalid(listed).into());
    }
    let outcome = match (arguments.apply.is_empty(), arguments.dry_run) {
        (true, _) => "available",
        (false, true) => "would apply",
        (false, false) => {
            tesseral::remove_unfinished(store)?;
            "applied"
        }
    };
    let steps = [RepairOutcome { repair: upload, outcome }];
    let source = arguments.source.to_string_lossy();
    if context.json() {
        output::print_json(&document(&source, None, arguments.dry_run, &steps, None))?;
    } else {
        output::print(&text(&source, &steps, None, TerminalStyle::stdout()))?;
    }
    Ok(exit::OK)
}

fn document(
    source: &str,
    format: Option<&str>,
    dry_run: bool,
    steps: &[RepairOutcome],
    after: Option<&VerifyReport>,
) -> Json {
    let repairs = steps.iter().map(|step| {
        json!({
            "code": step.repair.code,
            "message": step.repair.message,
            "automatic": step.repair.automatic,
            "outcome": step.outcome,
        })
    });
    json!({
        "schema": "tesseral.repair/1",
        "source": source,
        "format": format,
        "dry_run": dry_run,
        "repairs": repairs.collect::<Vec<_>>(),
        "verify_after": after.map(|after| after.document(source)),
    })
}

fn text(source: &str, steps: &[RepairOutcome], after: Option<&VerifyReport>, paint: TerminalStyle) -> String {
    if steps.is_empty() {
        return format!("{}: nothing to repair\n", escape(source));
    }
    let rows = steps
        .iter()
        .map(|step| vec![step.repair.code.to_owned(), step.outcome.to_owned(), step.repair.message.clone()]);
    let mut out = paint.table(&["code", "state", "what"], rows);
    if after.is_none()
        && let Some(step) = steps.iter().find(|step| step.outcome == "available")
    {
        let command = format!("tet repair {} --apply {}", escape(source), step.repair.code);
        out.push_str(&format!("\n{} {command}\n", paint.faint("next:")));
    }
    if let Some(after) = after {
        out.push_str("\nafter the repair:\n");
        out.push_str(&after.line(source));
    }
    out
}
