//! Removal of fragments, footers and attributes that consolidated ones replace.
//!
//! Readers see the same content before, during and after: the commit of a replaced fragment is removed first, so that its
//! folder is never a partial visible fragment, and the file that lists it as replaced is removed last.

use std::collections::{HashMap, HashSet};

use tesseral_core::{ErrorKind, Result};
use tesseral_format::Vacuumed;

use super::commits::Commits;
use super::create::objects;
use super::edit::ArraySnapshot;
use crate::directory::FragmentEntry;
use crate::fragment::Fragment;
use crate::metadata_loader::join;
use crate::open::ArrayListing;
use crate::wire::datatype::compare;
use crate::wire::name;

fn lines(opened: &ArraySnapshot, object: &str) -> Result<Vec<String>> {
    let bytes = opened.reader.lines(object)?;
    Ok(crate::directory::names(&bytes))
}

/// Reason why a fragment must be kept although another one is declared to replace it; `None` if it can be removed.
fn uncovered(opened: &ArraySnapshot, by: Option<&Fragment>, old: &Fragment) -> Option<String> {
    let Some(by) = by else { return Some("the replacing fragment cannot be read".to_owned()) };
    if old.entry.start < by.entry.start || by.entry.end < old.entry.end {
        return Some("the replacing fragment has other timestamps".to_owned());
    }
    let dims = &opened.opening.current.wire.dims;
    let (Some(inner), outer) = (&old.footer.domain, &by.footer.domain) else { return None };
    let Some(outer) = outer else { return Some("the replacing fragment has no cells".to_owned()) };
    let inside = dims.iter().zip(inner.iter().zip(outer)).all(|(dim, (i, o))| {
        compare(dim.datatype, &o.0, &i.0).is_le() && compare(dim.datatype, &i.1, &o.1).is_le()
    });
    if !inside {
        return Some("the replacing fragment does not cover it".to_owned());
    }
    if !old.footer.dense && by.total_cells() < old.total_cells() {
        return Some("the replacing fragment has fewer cells".to_owned());
    }
    None
}

/// Removes fragments that consolidated ones replace.
pub(crate) fn fragments(opened: &ArraySnapshot, dry_run: bool) -> Result<Vacuumed> {
    let commits = Commits::read(opened)?;
    let ArrayListing { visible, hidden, directory, .. } = &opened.opening;
    let committed = visible.iter().chain(hidden).chain(&directory.fragments);
    let committed: HashMap<&str, &FragmentEntry> = committed.map(|f| (f.name.as_str(), f)).collect();
    let find = |name: &str| committed.get(name).map(|entry| (*entry).clone());
    let uncommitted = crate::directory::uncommitted(&opened.reader, "")?;
    let mut out = Vacuumed::default();
    for (vacuum, named) in inner_first(opened, &commits)? {
        let stem = vacuum.trim_end_matches(".vac");
        let by = match find(stem).map(|entry| opened.opening.fragment(&opened.reader, entry)) {
            Some(Ok(by)) => Some(by),
            Some(Err(e)) if matches!(e.kind(), ErrorKind::Io { .. }) => return Err(e),
            _ => None,
        };
        let mut listed = Vec::new();
        let mut kept = false;
        for name in named {
            let Some(entry) = find(&name) else {
                // Its commit was removed by an interrupted run: remove the rest.
                let leftover = join("__fragments", &name);
                if by.is_some() && uncommitted.contains(&leftover) {
                    listed.push((name, leftover));
                }
                continue;
            };
            let folder = entry.folder.clone();
            let old = opened.opening.fragment(&opened.reader, entry);
            let reason = match old {
                Ok(old) => uncovered(opened, by.as_ref(), &old),
                Err(e) if matches!(e.kind(), ErrorKind::Io { .. }) => return Err(e),
                Err(e) => Some(e.to_string()),
            };
            match reason {
                Some(reason) => {
                    kept = true;
                    out.kept.push((name, reason));
                }
                None => listed.push((name, folder)),
            }
        }
        for (name, folder) in &listed {
            out.removed.push(name.clone());
            for object in objects(opened.store.as_ref(), folder)? {
                out.bytes += opened.store.len(&object).unwrap_or(0);
            }
        }
        if !dry_run {
            remove(opened, &commits, &listed)?;
            if !kept {
                opened.store.remove(&join("__commits", &vacuum))?;
            }
        }
    }
    Ok(out)
}

/// Files that list replaced fragments, with those names. A fragment that replaces others and is itself replaced is removed
/// after them: without it they would be visible again.
fn inner_first(opened: &ArraySnapshot, commits: &Commits) -> Result<Vec<(String, Vec<String>)>> {
    let mut left = Vec::new();
    for vacuum in &commits.vacuums {
        left.push((vacuum.clone(), lines(opened, &join("__commits", vacuum))?));
    }
    let mut out = Vec::with_capacity(left.len());
    while !left.is_empty() {
        let waiting: HashSet<String> =
            left.iter().map(|(vacuum, _)| vacuum.trim_end_matches(".vac").to_owned()).collect();
        let ready = |(_, named): &(String, Vec<String>)| !named.iter().any(|name| waiting.contains(name));
        let (now, later): (Vec<_>, Vec<_>) = left.into_iter().partition(ready);
        if now.is_empty() {
            // Files that list each other: the order is irrelevant.
            out.extend(later);
            return Ok(out);
        }
        out.extend(now);
        left = later;
    }
    Ok(out)
}

fn remove(opened: &ArraySnapshot, commits: &Commits, fragments: &[(String, String)]) -> Result<()> {
    let gone: HashSet<String> = fragments.iter().map(|(name, _)| format!("{name}.wrt")).collect();
    // Commits inside a consolidated file are revoked by another file.
    let inside: Vec<String> =
        commits.listed().filter(|line| gone.contains(line.file())).map(|line| line.text.clone()).collect();
    if !inside.is_empty() {
        let times = || fragments.iter().filter_map(|(name, _)| name::parse(name));
        let start = times().map(|t| t.start).min().unwrap_or(0);
        let end = times().map(|t| t.end).max().unwrap_or(start);
        let name = format!("{}.ign", opened.versioned(start, end));
        opened.put_lines(&join("__commits", &name), inside)?;
    }
    for (name, folder) in fragments {
        opened.store.remove(&join("__commits", &format!("{name}.wrt")))?;
        opened.store.remove(&format!("{name}.ok"))?;
        // A link to a folder is removed; its target is not.
        opened.store.remove_all(folder)?;
    }
    Ok(())
}

/// Removes all but the newest consolidated footers.
pub(crate) fn footers(opened: &ArraySnapshot, dry_run: bool) -> Result<Vacuumed> {
    let entries = opened.reader.list("__fragment_meta")?;
    let mut found: Vec<(u64, String)> = entries
        .into_iter()
        .filter_map(|e| {
            let time = name::parse(e.name.strip_suffix(".meta")?)?;
            Some((time.end, e.name))
        })
        .collect();
    found.sort();
    found.pop();
    let mut out = Vacuumed::default();
    for (_, file) in found {
        remove_object(opened, &join("__fragment_meta", &file), dry_run, &mut out)?;
    }
    Ok(out)
}

fn remove_object(opened: &ArraySnapshot, object: &str, dry_run: bool, out: &mut Vacuumed) -> Result<()> {
    out.bytes += opened.store.len(object).unwrap_or(0);
    out.removed.push(object.to_owned());
    if dry_run { Ok(()) } else { opened.store.remove(object) }
}

/// Removes attribute files that consolidated ones replace.
pub(crate) fn attributes(opened: &ArraySnapshot, dry_run: bool) -> Result<Vacuumed> {
    let entries = opened.reader.list("__meta")?;
    let names: HashSet<&str> = entries.iter().map(|e| e.name.as_str()).collect();
    let mut out = Vacuumed::default();
    for entry in &entries {
        let Some(stem) = entry.name.strip_suffix(".vac") else { continue };
        let object = join("__meta", &entry.name);
        let replaced = lines(opened, &object)?;
        if !names.contains(stem) {
            out.kept
                .extend(replaced.into_iter().map(|name| (name, "the replacing file is missing".to_owned())));
            continue;
        }
        for name in replaced.iter().filter(|name| names.contains(name.as_str())) {
            remove_object(opened, &join("__meta", name), dry_run, &mut out)?;
        }
        if !dry_run {
            opened.store.remove(&object)?;
        }
    }
    Ok(out)
}
