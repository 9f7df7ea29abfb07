//! One fragment of several, one file of several footers or attribute files.
//!
//! Fragments are taken in runs that follow one another. What is read stays the same at every moment: the new fragment is committed
//! before the old ones are named as replaced, and holds what they hold. Only where a position may hold several cells would both
//! count for that moment; there one takes the place of the others [in one step](super::switch).

mod dense;
mod merge;

use std::sync::Arc;

use tesseral_core::{Error, Result};
use tesseral_format::{Consolidate, Consolidated, TimeRange};
use tesseral_store::StoreExt;

use super::array::Place;
use super::edit::Opened;
use super::fragment::FragmentWriter;
use super::switch::switch;
use crate::array::TileDbArray;
use crate::directory::FragmentEntry;
use crate::fragment::{Fragment, read_footers};
use crate::open::folder_name;
use crate::reader::join;
use crate::wire::cursor::{put_text64, put_u32, put_u64};
use crate::wire::metadata;

/// Consolidates fragments.
pub(crate) fn fragments(opened: &Opened, what: &Consolidate) -> Result<Consolidated> {
    let wire = &opened.opening.current.wire;
    if wire.sparse && wire.version < 15 {
        let feature = format!("consolidating a sparse TileDB array of format version {}", wire.version);
        return Err(Error::unsupported(feature));
    }
    let mut out = Consolidated::default();
    let mut before: Vec<Fragment> = Vec::new();
    for run in runs(opened, what)? {
        let names: Vec<String> = run.iter().map(|f| f.entry.name.clone()).collect();
        let worth = run.len() >= what.at_least.max(2);
        if !worth || (!wire.sparse && hides(opened, &before, &run)?) {
            before.extend(run);
            continue;
        }
        let array = array_of(opened, run)?;
        let name = if wire.sparse { merge::merge(opened, &array)? } else { dense::paint(opened, &array)? };
        out.made.push(name);
        out.replaced.extend(names);
        before.extend(array.fragments.into_opened());
    }
    Ok(out)
}

/// Visible fragments in runs that may become one.
fn runs(opened: &Opened, what: &Consolidate) -> Result<Vec<Vec<Fragment>>> {
    let range = what.times.unwrap_or(TimeRange { start: 0, end: u64::MAX });
    let mut runs: Vec<Vec<Fragment>> = vec![Vec::new()];
    let mut processed: Vec<String> = Vec::new();
    let deletes = array_of(opened, Vec::new())?.deletes;
    for entry in opened.opening.visible.clone() {
        let fits = range.start <= entry.start && entry.end <= range.end;
        let fragment = opened.opening.fragment(&opened.reader, entry)?;
        let bytes = fragment.stored_bytes(&opened.reader)?;
        let fits = fits && what.max_bytes.is_none_or(|most| bytes <= most);
        // Merged, cells would hold the fill of a field that they lack, and a delete that found nothing there would spare them.
        let fits = fits && !deletes.iter().any(|delete| delete.meets_absent(&fragment));
        // Cells that deletes were worked into and cells that wait for them cannot share a list of those deletes.
        let of_fragment = fragment.processed(&opened.reader)?;
        let full = runs.last().is_some_and(|run| what.at_most.is_some_and(|most| run.len() >= most));
        if !fits || full || of_fragment != processed {
            runs.push(Vec::new());
        }
        processed = of_fragment;
        if let Some(run) = runs.last_mut() {
            run.push(fragment);
        }
        if !fits {
            runs.push(Vec::new());
        }
    }
    runs.retain(|run| !run.is_empty());
    Ok(runs)
}

/// Whether the box around a run of dense fragments reaches over older cells: those that no fragment of the run wrote would be
/// hidden under fill.
fn hides(opened: &Opened, before: &[Fragment], run: &[Fragment]) -> Result<bool> {
    let around = dense::around(opened, run)?;
    let meets = |f: &Fragment| {
        f.placement
            .as_ref()
            .zip(around.as_ref())
            .is_some_and(|(p, around)| p.region.intersect(around).is_some())
    };
    Ok(before.iter().any(meets))
}

fn array_of(opened: &Opened, run: Vec<Fragment>) -> Result<TileDbArray> {
    let name = folder_name(opened.store.location()).to_owned();
    opened.opening.clone().finish(Arc::clone(&opened.reader), &name, run)
}

/// Where a fragment of a run goes.
fn place(opened: &Opened, array: &TileDbArray) -> Result<Place> {
    let times = |f: &FragmentEntry| (f.start, f.end);
    let all = array.fragments()?.iter().map(|f| times(&f.entry));
    let (start, end) = all.fold((u64::MAX, 0), |(a, b), (start, end)| (a.min(start), b.max(end)));
    Ok(Place {
        store: Arc::clone(&opened.store),
        prefix: String::new(),
        schema_name: opened.opening.current_name.clone(),
        timestamp: start,
        end,
        key: opened.reader.key,
        digests: opened.digests,
    })
}

/// Makes a consolidated fragment count instead of those it was made of.
fn commit(opened: &Opened, array: &TileDbArray, mut fragment: FragmentWriter) -> Result<String> {
    let name = fragment.name.clone();
    if opened.opening.current.wire.duplicates {
        let old: Vec<FragmentEntry> = array.fragments()?.iter().map(|f| f.entry.clone()).collect();
        switch(opened, &old, &mut fragment)?;
        return Ok(name);
    }
    fragment.commit()?;
    let lines = array.fragments()?.iter().map(|f| format!("/{}", f.entry.folder));
    opened.put_lines(&join("__commits", &format!("{name}.vac")), lines)?;
    Ok(name)
}

/// Writes the footers of all fragments to one file.
pub(crate) fn footers(opened: &Opened) -> Result<Consolidated> {
    let visible = &opened.opening.visible;
    if visible.is_empty() {
        return Ok(Consolidated::default());
    }
    let footers = read_footers(&opened.reader, visible)?;
    let mut payload = Vec::new();
    put_u32(visible.len() as u64, "the fragments", &mut payload)?;
    let head: usize = visible.iter().map(|entry| 16 + entry.name.len()).sum::<usize>() + 4;
    let mut at = head as u64;
    for (entry, footer) in visible.iter().zip(&footers) {
        put_text64(&entry.name, &mut payload);
        put_u64(at, &mut payload);
        at += footer.bytes.len() as u64;
    }
    footers.iter().for_each(|footer| payload.extend_from_slice(&footer.bytes));
    let start = visible.iter().map(|f| f.start).min().unwrap_or(0);
    let end = visible.iter().map(|f| f.end).max().unwrap_or(start);
    let name = format!("{}.meta", opened.versioned(start, end));
    let old = opened.reader.list("__fragment_meta")?.into_iter().map(|e| e.name).collect();
    opened.put(&join("__fragment_meta", &name), &payload)?;
    Ok(Consolidated { made: vec![name], replaced: old })
}

/// Writes the attributes of several files to one.
pub(crate) fn attributes(opened: &Opened, what: &Consolidate) -> Result<Consolidated> {
    let range = what.times.unwrap_or(TimeRange { start: 0, end: u64::MAX });
    let files = &opened.opening.directory.metadata;
    let chosen: Vec<_> = files.iter().filter(|(_, t)| range.start <= t.start && t.end <= range.end).collect();
    if chosen.len() < what.at_least.max(2) {
        return Ok(Consolidated::default());
    }
    let mut raw = metadata::Entries::default();
    for (object, _) in &chosen {
        let (bytes, _) = opened.reader.object(object)?;
        let described = opened.store.describe(object);
        raw.apply(&described, &bytes)?;
    }
    let start = chosen.iter().map(|(_, t)| t.start).min().unwrap_or(0);
    let end = chosen.iter().map(|(_, t)| t.end).max().unwrap_or(start);
    let name = opened.timed(start, end);
    opened.put(&join("__meta", &name), &raw.write()?)?;
    let lines = chosen.iter().map(|(object, _)| format!("/{object}"));
    opened.put_lines(&join("__meta", &format!("{name}.vac")), lines)?;
    let replaced = chosen.iter().map(|(object, _)| object.clone()).collect();
    Ok(Consolidated { made: vec![name], replaced })
}
