//! Writing of raw cells: row-major, little-endian, without a header.

use std::path::{Component, Path, PathBuf};

use tesseral_core::{Advice, Error, Result};
use tesseral_store::{Location, Overwrite, Store};

use super::execution;
use super::outcome::Written;
use super::parse::bad;
use super::plan::Plan;
use tesseral_dataset::Output;

/// Number of bytes written at once.
const PIECE: u64 = 8 << 20;

/// Checks that a file is in the folder of the source or an allowed one. Relative paths begin at the source.
pub(super) fn target(plan: &Plan, key: &str, path: &str) -> Result<PathBuf> {
    let resolve = |path: &Path| {
        std::path::absolute(path).map_err(|e| Error::io("resolve", path.display().to_string(), e))
    };
    let home = match Location::parse(&plan.source)? {
        Location::Path(source) => {
            let source = resolve(&source)?;
            source.parent().unwrap_or(&source).to_path_buf()
        }
        // Local files cannot be placed next to a URL.
        Location::Url(_) => resolve(Path::new("."))?,
    };
    let wanted = plain(&home.join(path));
    let allowed = plan.settings.allow.iter().filter_map(|root| std::path::absolute(root).ok());
    let mut roots = std::iter::once(home).chain(allowed);
    // Links are resolved as far as the path exists, so that none leads out.
    let parent = wanted.parent().map_or_else(|| wanted.clone(), Path::to_path_buf);
    let real = parent.canonicalize().map_err(|e| Error::io("open", parent.display().to_string(), e))?;
    let inside = roots.any(|root| real.starts_with(root.canonicalize().unwrap_or_else(|_| plain(&root))));
    if !inside {
        let detail = format!("{} is outside the allowed folders", wanted.display());
        return Err(bad(key, detail).hint(Advice::AllowFolder));
    }
    Ok(wanted)
}

/// Removes `.` and `..`.
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

/// Writes the selected cells to a file that is published atomically.
pub(super) fn write(plan: &Plan, path: &str) -> Result<Written> {
    write_with(plan, "spill", path, &|part| execution::cells(plan, part))
}

/// Writes the result of `cells` for each part of the selection, in order.
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
