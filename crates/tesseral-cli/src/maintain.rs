//! `tet delete`, `tet consolidate`, `tet vacuum`: arrays of formats that keep versions.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;
use tesseral::{Consolidate, Edit, EditPart};

use crate::context::{Context, local};
use crate::failure::{Outcome, exit};
use crate::output;
use crate::progress::Meter;
use crate::text::escape;

/// A part of an array that grows with every write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// The versions of the cells
    Fragments,
    /// The files that make versions count
    Commits,
    /// What is known of versions without reading them
    FragmentMeta,
    /// Attributes
    ArrayMeta,
}

impl Part {
    fn meant(self) -> EditPart {
        match self {
            Self::Fragments => EditPart::Cells,
            Self::Commits => EditPart::Commits,
            Self::FragmentMeta => EditPart::Footers,
            Self::ArrayMeta => EditPart::Attributes,
        }
    }
}

/// Arguments of `tet delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArguments {
    /// The array
    array: PathBuf,
    /// Which cells go: `temperature > 5 and station in ("a", "b")`
    #[arg(long = "where", value_name = "CONDITION")]
    condition: String,
    /// When they count as removed, milliseconds since 1970 [default: now]
    #[arg(long, value_name = "T")]
    timestamp: Option<u64>,
}

/// Arguments of `tet consolidate`.
#[derive(Debug, Args)]
pub(crate) struct ConsolidateArguments {
    /// The array
    array: PathBuf,
    /// What to consolidate
    #[arg(long, value_name = "PART", default_value = "fragments")]
    part: Part,
    /// Only versions written in these times: T1..T2, each milliseconds since 1970 or a date
    #[arg(long, value_name = "T1..T2")]
    times: Option<String>,
    /// Leaves fewer versions than this as they are
    #[arg(long, value_name = "N", default_value_t = 2)]
    at_least: usize,
    /// Takes at most so many versions at once
    #[arg(long, value_name = "N")]
    at_most: Option<usize>,
    /// Leaves versions of more bytes than this as they are
    #[arg(long, value_name = "SIZE", value_parser = crate::args::parse_size)]
    max_bytes: Option<u64>,
}

/// Arguments of `tet vacuum`.
#[derive(Debug, Args)]
pub(crate) struct VacuumArguments {
    /// The array
    array: PathBuf,
    /// What to vacuum
    #[arg(long, value_name = "PART", default_value = "fragments")]
    part: Part,
    /// Removes what is replaced; without it, that is only listed
    #[arg(long)]
    apply: bool,
}

pub(crate) fn edit(context: &Context, array: &Path) -> Outcome<Box<dyn Edit>> {
    let opener = context.opener(&Meter::new(false))?;
    Ok(tesseral::edit(local(array)?, opener.format_options())?)
}

pub(crate) fn delete(context: &Context, arguments: &DeleteArguments) -> Outcome {
    let container = context.open(&arguments.array, &Meter::new(false))?;
    let condition = tesseral::condition(container.array_at(0)?.schema(), &arguments.condition)?;
    edit(context, &arguments.array)?.delete(&condition, arguments.timestamp)?;
    let shown = arguments.array.to_string_lossy();
    if context.json() {
        let document = json!({"schema": "tesseral.delete/1", "array": shown, "where": arguments.condition});
        output::print_json(&document)?;
    } else {
        output::print(&format!("{}: cells where {} are deleted\n", escape(&shown), arguments.condition))?;
    }
    Ok(exit::OK)
}

pub(crate) fn consolidate(context: &Context, arguments: &ConsolidateArguments) -> Outcome {
    let what = Consolidate {
        part: arguments.part.meant(),
        times: arguments.times.as_deref().map(tesseral::as_of).transpose()?,
        at_least: arguments.at_least,
        at_most: arguments.at_most,
        max_bytes: arguments.max_bytes,
    };
    let done = edit(context, &arguments.array)?.consolidate(&what)?;
    if context.json() {
        output::print_json(&json!({
            "schema": "tesseral.consolidate/1", "array": arguments.array.to_string_lossy(),
            "made": done.made, "replaced": done.replaced,
        }))?;
    } else if done.made.is_empty() {
        output::print("nothing to consolidate\n")?;
    } else {
        let (made, replaced) = (done.made.len(), done.replaced.len());
        let after = if replaced == 0 { "" } else { "; `tet vacuum` removes what was replaced" };
        output::print(&format!("made {made} of {replaced}{after}\n"))?;
    }
    Ok(exit::OK)
}

pub(crate) fn vacuum(context: &Context, arguments: &VacuumArguments) -> Outcome {
    let done = edit(context, &arguments.array)?.vacuum(arguments.part.meant(), !arguments.apply)?;
    if context.json() {
        let kept = done.kept.iter().map(|(name, reason)| json!({"name": name, "reason": reason}));
        output::print_json(&json!({
            "schema": "tesseral.vacuum/1", "array": arguments.array.to_string_lossy(),
            "dry_run": !arguments.apply, "removed": done.removed, "kept": kept.collect::<Vec<_>>(),
            "bytes": done.bytes,
        }))?;
        return Ok(exit::OK);
    }
    let mut out = String::new();
    for (name, reason) in &done.kept {
        out.push_str(&format!("kept {}: {reason}\n", escape(name)));
    }
    out.push_str(&match done.removed.len() {
        0 => "nothing to vacuum\n".to_owned(),
        n if arguments.apply => format!("removed {n}\n"),
        n => format!("would remove {n}; --apply does it, --json names them\n"),
    });
    output::print(&out)?;
    Ok(exit::OK)
}
