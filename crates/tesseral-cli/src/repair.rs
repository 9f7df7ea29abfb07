//! `tet repair`: which fixes a source needs, and applying them.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value as Json, json};
use tesseral::{Depth, Error, Repair};

use crate::context::{Context, local};
use crate::failure::{Failure, Outcome, exit};
use crate::output;
use crate::paint::Paint;
use crate::progress::Meter;
use crate::text::escape;
use crate::verify::{self, Checked};

/// Arguments of `tet repair`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// File or folder of any known format
    source: PathBuf,
    /// Applies the fix of this name; may be given several times. Without it, fixes are only listed
    #[arg(long, value_name = "CODE", value_delimiter = ',')]
    apply: Vec<String>,
    /// Tells what would be done and leaves the source as it is
    #[arg(long)]
    dry_run: bool,
}

/// What became of a fix.
struct Step {
    repair: Repair,
    outcome: &'static str,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    let opener = context.opener(&Meter::new(false))?;
    let path = local(&arguments.source)?;
    let store = opener.store(path);
    let format = tesseral::recognise(&*store).map_err(Failure::opening)?;
    context.check_versions(format)?;
    let needed = tesseral::repairs(format, &store, opener.format_options())?;
    // Every name is checked before the first fix is applied.
    for code in &arguments.apply {
        match needed.iter().find(|repair| repair.code == code) {
            Some(repair) if repair.automatic => {}
            Some(_) => return Err(Error::invalid(format!("{code:?} cannot be fixed automatically")).into()),
            None => {
                let codes = needed.iter().map(|r| r.code).collect::<Vec<_>>().join(", ");
                let listed = if codes.is_empty() {
                    "it needs no fix".to_owned()
                } else {
                    format!("it needs: {codes}")
                };
                return Err(Error::invalid(format!("the source does not need {code:?}; {listed}")).into());
            }
        }
    }
    let mut steps = Vec::with_capacity(needed.len());
    let mut changed = false;
    for repair in needed {
        let asked = arguments.apply.iter().any(|code| code == repair.code);
        let outcome = match (asked, arguments.dry_run, repair.automatic) {
            (true, false, _) => {
                context.check()?;
                // A fresh store each time: the file under the name is another one after every fix.
                tesseral::apply_repair(format, opener.store(path), opener.format_options(), repair.code)?;
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
        output::print(&text(&source, &steps, after.as_ref(), Paint::stdout()))?;
    }
    Ok(if after.is_none_or(|after| after.verified.ok) { exit::OK } else { exit::NO })
}

fn document(source: &str, format: &str, dry_run: bool, steps: &[Step], after: Option<&Checked>) -> Json {
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

fn text(source: &str, steps: &[Step], after: Option<&Checked>, paint: Paint) -> String {
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
