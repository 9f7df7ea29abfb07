//! Writing cells as they are: row-major, little-endian, no header.

use std::path::{Component, Path, PathBuf};

use tesseral_core::{Error, Result};
use tesseral_store::{Overwrite, Store};

use super::execution;
use super::outcome::Written;
use super::parse::bad;
use super::plan::Plan;
use crate::Output;

/// Bytes written at once.
const PIECE: u64 = 8 << 20;

/// Where a file may go: the source's own folder, the cache, and what the caller allows. Relative paths begin at the source.
pub(super) fn target(plan: &Plan, key: &str, path: &str) -> Result<PathBuf> {
    let source = std::path::absolute(&plan.source)
        .map_err(|e| Error::io("resolve", plan.source.display().to_string(), e))?;
    let home = source.parent().unwrap_or(&source).to_path_buf();
    let wanted = plain(&home.join(path));
    let cache = std::env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))
        .map(|cache| cache.join("tetration"));
    let allowed = plan.settings.allow.iter().filter_map(|root| std::path::absolute(root).ok());
    let mut roots = std::iter::once(home).chain(cache).chain(allowed);
    // Links are followed as far as the path exists, so that none leads out.
    let parent = wanted.parent().map_or_else(|| wanted.clone(), Path::to_path_buf);
    let real = parent.canonicalize().map_err(|e| Error::io("open", parent.display().to_string(), e))?;
    let inside = roots.any(|root| real.starts_with(root.canonicalize().unwrap_or_else(|_| plain(&root))));
    if !inside {
        let detail = format!("{} lies outside the folders that may be written to", wanted.display());
        return Err(bad(key, detail).hint("allow another with --spill-allow"));
    }
    Ok(wanted)
}

/// Without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            part => out.push(part),
        }
    }
    out
}

/// Writes the selected cells to a file that appears only when it is whole.
pub(super) fn write(plan: &Plan, path: &str) -> Result<Written> {
    write_with(plan, "spill", path, &|part| execution::cells(plan, part))
}

/// Writes what `cells` gives for each part of the selection, one after the other.
pub(super) fn write_with(
    plan: &Plan,
    key: &str,
    path: &str,
    cells: &dyn Fn(&tesseral_core::Selection) -> Result<Vec<u8>>,
) -> Result<Written> {
    let path = target(plan, key, path)?;
    let output = Output::document(&path).overwrite(plan.settings.overwrite);
    let output = output.source(&plan.source).outside_sources().stage()?;
    let staged = output.store().stage("", Overwrite::Replace)?;
    let piece = plan.array.options().memory.map_or(PIECE, |memory| PIECE.min((memory / 8).max(1)));
    let mut offset = 0;
    for part in plan.array.blocks(&plan.selection, piece)? {
        plan.array.options().cancel.check()?;
        let bytes = cells(&part)?;
        staged.write_at(offset, &bytes)?;
        offset += bytes.len() as u64;
    }
    staged.publish()?;
    output.publish()?;
    Ok(Written { path, bytes: offset })
}
