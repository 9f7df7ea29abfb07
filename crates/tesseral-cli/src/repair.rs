//! `tet repair`: lists and applies fixes of a source.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value as Json, json};
use tesseral::{Depth, Error, Repair};

use crate::context::Context;
use crate::error::{CliResult, Failure, exit};
use crate::output;
use crate::progress::Meter;
use crate::terminal_style::TerminalStyle;
use crate::text::escape;
use crate::verify::{self, VerifyReport};

/// Arguments of `tet repair`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
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
struct Step {
    repair: Repair,
    outcome: &'static str,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> CliResult {
    let opener = context.opener(&Meter::new(false))?;
    let store = opener.store(&arguments.source)?;
    let format = tesseral::recognize(&*store).map_err(Failure::opening)?;
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
        steps.push(Step { repair, outcome });
    }
    let after =
        if changed { Some(verify::check(context, &arguments.source, Depth::Usual, false)?) } else { None };
    let source = arguments.source.to_string_lossy();
    if context.json() {
        output::print_json(&document(&source, format.id(), arguments.dry_run, &steps, after.as_ref()))?;
    } else {
        output::print(&text(&source, &steps, after.as_ref(), TerminalStyle::stdout()))?;
    }
    Ok(if after.is_none_or(|after| after.verified.ok) { exit::OK } else { exit::NO })
}

fn document(source: &str, format: &str, dry_run: bool, steps: &[Step], after: Option<&VerifyReport>) -> Json {
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

fn text(source: &str, steps: &[Step], after: Option<&VerifyReport>, paint: TerminalStyle) -> String {
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
