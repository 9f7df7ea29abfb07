//! `tet delete`, `tet consolidate`, `tet vacuum`: maintenance of arrays with versions.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use serde_json::json;
use tesseral::{Consolidate, Edit, MaintenancePart};

use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;
use crate::progress::Meter;
use crate::text::{self, escape};

/// A part of an array that grows with every write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartArgument {
    /// Versions of the cells
    Fragments,
    /// Commit files
    Commits,
    /// Footers of versions
    FragmentMeta,
    /// Attributes
    ArrayMeta,
}

impl PartArgument {
    fn to_maintenance_part(self) -> MaintenancePart {
        match self {
            Self::Fragments => MaintenancePart::Fragments,
            Self::Commits => MaintenancePart::Commits,
            Self::FragmentMeta => MaintenancePart::FragmentMetadata,
            Self::ArrayMeta => MaintenancePart::Attributes,
        }
    }
}

/// Arguments of `tet delete`.
#[derive(Debug, Args)]
pub(crate) struct DeleteArguments {
    /// Path of the array
    array: PathBuf,
    /// Condition of the cells to delete: `temperature > 5 and station in ("a", "b")`
    #[arg(long = "where", value_name = "CONDITION")]
    condition: String,
    /// Timestamp of the delete in milliseconds since 1970 [default: now]
    #[arg(long, value_name = "T")]
    timestamp: Option<u64>,
}

/// Arguments of `tet consolidate`.
#[derive(Debug, Args)]
pub(crate) struct ConsolidateArguments {
    /// Path of the array
    array: PathBuf,
    /// Part to consolidate
    #[arg(long, value_name = "PART", default_value = "fragments")]
    part: PartArgument,
    /// Consolidate only versions of a time range: T1..T2, each in milliseconds since 1970 or a date
    #[arg(long, value_name = "T1..T2")]
    times: Option<String>,
    /// Minimum number of versions to merge
    #[arg(long, value_name = "N", default_value_t = 2)]
    at_least: usize,
    /// Maximum number of versions to merge at once
    #[arg(long, value_name = "N")]
    at_most: Option<usize>,
    /// Skip versions larger than this many bytes
    #[arg(long, value_name = "SIZE", value_parser = crate::args::parse_size)]
    max_bytes: Option<u64>,
}

/// Arguments of `tet vacuum`.
#[derive(Debug, Args)]
pub(crate) struct VacuumArguments {
    /// Path of the array
    array: PathBuf,
    /// Part to vacuum
    #[arg(long, value_name = "PART", default_value = "fragments")]
    part: PartArgument,
    /// Remove replaced versions; otherwise they are only listed
    #[arg(long)]
    apply: bool,
}

pub(crate) fn edit(context: &Context, array: &Path) -> CliResult<Box<dyn Edit>> {
    let opener = context.opener(&Meter::new(false))?;
    Ok(tesseral::edit_store(opener.store(array)?, opener.format_options())?)
}

pub(crate) fn delete(context: &Context, arguments: &DeleteArguments) -> CliResult {
    let container = context.open(&arguments.array, &Meter::new(false))?;
    let condition = tesseral::condition(container.array_at(0)?.schema(), &arguments.condition)?;
    edit(context, &arguments.array)?.delete(&condition, arguments.timestamp)?;
    let shown = arguments.array.to_string_lossy();
    if context.json() {
        let document = json!({"schema": "tesseral.delete/1", "array": shown, "where": arguments.condition});
        output::print_json(&document)?;
    } else {
        output::print(&format!("{}: deleted cells where {}\n", escape(&shown), arguments.condition))?;
    }
    Ok(exit::OK)
}

pub(crate) fn consolidate(context: &Context, arguments: &ConsolidateArguments) -> CliResult {
    let what = Consolidate {
        part: arguments.part.to_maintenance_part(),
        times: arguments.times.as_deref().map(tesseral::as_of).transpose()?,
        at_least: arguments.at_least,
        at_most: arguments.at_most,
        max_bytes: arguments.max_bytes,
        memory: context.memory(),
    };
    let done = edit(context, &arguments.array)?.consolidate(&what)?;
    if context.json() {
        output::print_json(&json!({
            "schema": "tesseral.consolidate/1", "array": arguments.array.to_string_lossy(),
            "made": done.made, "replaced": done.replaced, "apart": done.apart,
        }))?;
    } else if done.made.is_empty() {
        output::print("nothing to consolidate\n")?;
    } else {
        let (made, replaced) = (done.made.len(), done.replaced.len());
        let after = if replaced == 0 { "" } else { "; `tet vacuum` removes the replaced ones" };
        output::print(&format!("merged {replaced} into {made}{after}\n"))?;
    }
    if !done.apart.is_empty() {
        let apart = text::count(done.apart.len() as u64, "fragment");
        eprintln!("did not merge {apart}: this would write the unwritten cells between them");
    }
    Ok(exit::OK)
}

pub(crate) fn vacuum(context: &Context, arguments: &VacuumArguments) -> CliResult {
    let done =
        edit(context, &arguments.array)?.vacuum(arguments.part.to_maintenance_part(), !arguments.apply)?;
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
        n => format!("would remove {n}; --apply removes them, --json lists them\n"),
    });
    output::print(&out)?;
    Ok(exit::OK)
}
