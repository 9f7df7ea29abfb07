//! The writes of an array in order of time.

use tesseral_core::Result;
use tesseral_format::{Version, VersionState};
use tesseral_store::together;

use crate::array::TileDbArray;
use crate::directory::FragmentEntry;
use crate::fragment::Fragment;
use crate::open::TileDbContainer;

pub(crate) fn versions(container: &TileDbContainer) -> Result<Vec<Version>> {
    let several = container.arrays.len() > 1 || container.group.is_some();
    let mut out = Vec::new();
    for (name, array) in container.names.iter().zip(&container.arrays) {
        let array_name = several.then(|| name.clone());
        out.extend(of_array(array)?.into_iter().map(|v| Version { array: array_name.clone(), ..v }));
    }
    out.sort_by(|a, b| (a.start, &a.name).cmp(&(b.start, &b.name)));
    Ok(out)
}

fn of_array(array: &TileDbArray) -> Result<Vec<Version>> {
    let mut seen = Vec::new();
    array.fragments.visit_batches(&array.reader, |some| {
        seen.extend(together(&*array.reader.store, some, |fragment| Version {
            cells: cells(fragment),
            bytes: fragment.stored_bytes(&array.reader).ok(),
            ..entry(&fragment.entry, VersionState::Visible)
        }));
        Ok(())
    })?;
    let hidden = array.hidden.iter().map(|fragment| entry(fragment, VersionState::Replaced));
    let folders = array.uncommitted()?;
    let uncommitted = folders.iter().map(|folder| {
        let name = folder.rsplit('/').next().unwrap_or(folder);
        let time = crate::wire::name::parse(name);
        Version {
            array: None,
            name: name.to_owned(),
            op: "write",
            start: time.as_ref().map_or(0, |t| t.start),
            end: time.as_ref().map_or(0, |t| t.end),
            cells: None,
            bytes: None,
            state: VersionState::Uncommitted,
        }
    });
    let deletes = array.deletes.iter().map(|delete| Version {
        array: None,
        name: delete.name.clone(),
        op: "delete",
        start: delete.timestamp,
        end: delete.timestamp,
        cells: None,
        bytes: None,
        state: VersionState::Visible,
    });
    Ok(seen.into_iter().chain(hidden).chain(uncommitted).chain(deletes).collect())
}

/// Number of cells of a fragment; for a dense one, those inside its box.
pub(crate) fn cells(fragment: &Fragment) -> Option<u64> {
    match &fragment.placement {
        Some(placement) => placement.region.cells(),
        None => Some(fragment.total_cells()),
    }
}

fn entry(entry: &FragmentEntry, state: VersionState) -> Version {
    Version {
        array: None,
        name: entry.name.clone(),
        op: if entry.start == entry.end { "write" } else { "consolidate" },
        start: entry.start,
        end: entry.end,
        cells: None,
        bytes: None,
        state,
    }
}
