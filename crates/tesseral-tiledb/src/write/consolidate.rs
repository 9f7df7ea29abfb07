//! Consolidation of fragments, footers and attribute files.
//!
//! Adjacent fragments are merged in runs. Readers see the same content at all times: the new fragment is committed before the
//! old ones are listed as replaced, and has the same cells. Where duplicates are allowed, both would be visible in between;
//! there the replacement is [atomic](super::replace_fragments).
//!
//! Dense fragments are merged only where they [cover a box](coverage) together, or where unwritten cells become nulls: a merged
//! fragment holds a box, and its cells are all written.

mod coverage;
mod dense;
mod merge;

use std::sync::Arc;

use tesseral_core::{Advice, Error, Region, Result};
use tesseral_format::{Consolidate, Consolidated, TimeRange};
use tesseral_store::StoreExt;

use super::array::FragmentDestination;
use super::edit::ArraySnapshot;
use super::fragment::FragmentWriter;
use super::replace_fragments::switch;
use crate::array::TileDbArray;
use crate::directory::FragmentEntry;
use crate::fragment::{Fragment, read_footers};
use crate::metadata_loader::join;
use crate::open::folder_name;
use crate::wire::metadata;
use crate::wire::name::{self, Name};
use crate::wire::primitive::{put_text64, put_u32, put_u64};
use crate::wire::schema::Schema;

/// Number of fragments of a sparse array merged in one step: memory holds one tile of each.
const SPARSE_STEP: usize = 256;
/// Assumed size of a variable-length cell in bytes.
const ANY_LENGTH: u64 = 32;
/// Memory that is allowed under any limit, in bytes.
const ALWAYS: u64 = 8 << 20;
/// Number of fragments of a dense array painted in one step. Each step writes the cells of the previous ones again.
const DENSE_STEP: usize = 1024;
/// Number of footers read in one request.
const FOOTERS_AT_ONCE: usize = 512;

/// Consolidates fragments. Runs of many fragments take several steps, each of which is committed: an interrupted consolidation
/// continues from there, and the result equals that of a single step.
pub(crate) fn fragments(opened: &ArraySnapshot, what: &Consolidate) -> Result<Consolidated> {
    let wire = &opened.opening.current.wire;
    if wire.sparse && wire.version < 15 {
        let feature = format!("consolidating a sparse TileDB array of format version {}", wire.version);
        return Err(Error::unsupported(feature));
    }
    let mut out = Consolidated::default();
    let mut before: Vec<Region> = Vec::new();
    let least = what.at_least.max(2);
    let nulls = wire.attributes.iter().all(|attribute| attribute.nullable && !attribute.fill_valid);
    let gaps_matter = !wire.sparse && !nulls;
    for run in runs(opened, what)? {
        if gaps_matter && run.entries.len() >= least {
            // Every fragment of a dense array has a region.
            for part in coverage::boxes(&run.regions) {
                let Some(entries) = run.entries.get(part) else { continue };
                let names = entries.iter().map(|entry| entry.name.clone());
                if entries.len() < least {
                    out.apart.extend(names);
                    continue;
                }
                out.replaced.extend(names);
                let made = paint_in_steps(opened, entries.to_vec(), DENSE_STEP)?;
                out.add(made);
            }
            before.extend(run.regions);
            continue;
        }
        let worth = run.entries.len() >= least;
        if worth && (wire.sparse || !hides(&before, &run.regions)) {
            out.replaced.extend(run.entries.iter().map(|entry| entry.name.clone()));
            let made = if wire.sparse {
                let step = sparse_step(&opened.opening.current.wire, run.cells, what.memory)?;
                merge_in_steps(opened, run.entries, step)?
            } else {
                paint_in_steps(opened, run.entries, DENSE_STEP)?
            };
            out.add(made);
        }
        before.extend(run.regions);
    }
    Ok(out)
}

/// Adjacent fragments that can be merged.
#[derive(Debug, Default)]
struct FragmentRun {
    entries: Vec<FragmentEntry>,
    /// Placements of fragments of a dense array.
    regions: Vec<Region>,
    /// Number of cells of all fragments of a sparse array.
    cells: u64,
}

/// Number of fragments of a sparse array that are merged at once: as many as there is memory for, of which each has a tile and the
/// result has one.
fn sparse_step(schema: &Schema, cells: u64, memory: Option<u64>) -> Result<usize> {
    let Some(memory) = memory else { return Ok(SPARSE_STEP) };
    let dims = schema.dims.iter().map(|dim| if dim.var { ANY_LENGTH } else { dim.datatype.size() as u64 });
    let attributes = schema.attributes.iter().map(|attribute| {
        let size = if attribute.var() { ANY_LENGTH } else { attribute.cell_size() as u64 };
        size + u64::from(attribute.nullable)
    });
    let cell = dims.chain(attributes).fold(0_u64, u64::saturating_add);
    let tile = schema.capacity.min(cells);
    // A tile that is read has a write time and a sort key per cell; one that is written has three times, and is held encoded too.
    let read = tile.saturating_mul(cell + 8 + 8 * schema.dims.len() as u64).max(1);
    let written = tile.saturating_mul(2 * cell + 24);
    let needed = written.saturating_add(read.saturating_mul(2));
    if needed > memory.max(ALWAYS) {
        let what = "two tiles that are merged, and the result,";
        return Err(Error::limit(what, needed, memory).hint(Advice::RaiseMemory));
    }
    let fitting = memory.saturating_sub(written) / read;
    Ok(usize::try_from(fitting).unwrap_or(SPARSE_STEP).clamp(2, SPARSE_STEP))
}

/// Merges fragments of a sparse array, `step` at a time, then the results. Returns the names of all new fragments.
fn merge_in_steps(
    opened: &ArraySnapshot,
    mut entries: Vec<FragmentEntry>,
    step: usize,
) -> Result<Vec<String>> {
    let mut made = Vec::new();
    while entries.len() > 1 {
        let mut merged = Vec::with_capacity(entries.len().div_ceil(step));
        for some in entries.chunks(step) {
            match some {
                [one] => merged.push(one.clone()),
                several => {
                    let array = array_of(opened, open_all(opened, several)?)?;
                    merged.push(entry_of(merge::merge(opened, &array)?)?);
                    made.extend(merged.last().map(|entry| entry.name.clone()));
                }
            }
        }
        entries = merged;
    }
    Ok(made)
}

/// Paints fragments of a dense array: the first ones, then the following ones over the result. The box of a later part alone
/// would hide cells of an earlier one. Returns the names of all new fragments.
fn paint_in_steps(opened: &ArraySnapshot, entries: Vec<FragmentEntry>, step: usize) -> Result<Vec<String>> {
    let mut made: Vec<String> = Vec::new();
    let mut painted: Option<FragmentEntry> = None;
    let mut left = entries.as_slice();
    while !left.is_empty() {
        let (some, rest) = left.split_at(left.len().min(step - usize::from(painted.is_some())));
        left = rest;
        let several: Vec<FragmentEntry> = painted.into_iter().chain(some.iter().cloned()).collect();
        let array = array_of(opened, open_all(opened, &several)?)?;
        let name = dense::paint(opened, &array)?;
        made.push(name.clone());
        painted = Some(entry_of(name)?);
    }
    Ok(made)
}

fn open_all(opened: &ArraySnapshot, entries: &[FragmentEntry]) -> Result<Vec<Fragment>> {
    entries.iter().map(|entry| opened.opening.fragment(&opened.reader, entry.clone())).collect()
}

/// A fragment that was just written.
fn entry_of(name: String) -> Result<FragmentEntry> {
    match name::parse(&name) {
        Some(Name { start, end, version: Some(version) }) => {
            Ok(FragmentEntry { folder: join("__fragments", &name), name, start, end, version })
        }
        _ => Err(Error::invalid(format!("invalid fragment name {name:?}"))),
    }
}

/// Returns visible fragments in runs that can be merged. None of them stays open.
fn runs(opened: &ArraySnapshot, what: &Consolidate) -> Result<Vec<FragmentRun>> {
    let range = what.times.unwrap_or(TimeRange { start: 0, end: u64::MAX });
    let mut runs = vec![FragmentRun::default()];
    let mut processed: Vec<String> = Vec::new();
    let deletes = array_of(opened, Vec::new())?.deletes;
    for entry in opened.opening.visible.clone() {
        let fits = range.start <= entry.start && entry.end <= range.end;
        let fragment = opened.opening.fragment(&opened.reader, entry)?;
        let bytes = fragment.stored_bytes(&opened.reader)?;
        let fits = fits && what.max_bytes.is_none_or(|most| bytes <= most);
        // Merged cells would have the fill value of a missing field, and a delete on that field would not match them any more.
        let fits = fits && !deletes.iter().any(|delete| delete.meets_absent(&fragment));
        // Cells with applied deletes and cells with pending deletes cannot share a list of processed deletes.
        let of_fragment = fragment.processed(&opened.reader)?;
        let full = runs.last().is_some_and(|run| what.at_most.is_some_and(|most| run.entries.len() >= most));
        if !fits || full || of_fragment != processed {
            runs.push(FragmentRun::default());
        }
        processed = of_fragment;
        if let Some(run) = runs.last_mut() {
            run.cells = run.cells.saturating_add(fragment.total_cells());
            run.regions.extend(fragment.placement.map(|placement| placement.region));
            run.entries.push(fragment.entry);
        }
        if !fits {
            runs.push(FragmentRun::default());
        }
    }
    runs.retain(|run| !run.entries.is_empty());
    Ok(runs)
}

/// Returns whether the box around a run of dense fragments overlaps older cells: unwritten cells of the run would hide them
/// with fill values.
fn hides(before: &[Region], run: &[Region]) -> bool {
    let around = dense::bounding_box(run);
    around.is_some_and(|around| before.iter().any(|region| region.intersect(&around).is_some()))
}

fn array_of(opened: &ArraySnapshot, run: Vec<Fragment>) -> Result<TileDbArray> {
    let name = folder_name(opened.store.location()).to_owned();
    opened.opening.without_fragments().finish(Arc::clone(&opened.reader), &name, run)
}

/// Destination of the fragment of a run.
fn fragment_destination(opened: &ArraySnapshot, array: &TileDbArray) -> Result<FragmentDestination> {
    let times = |f: &FragmentEntry| (f.start, f.end);
    let all = array.fragments()?.iter().map(|f| times(&f.entry));
    let (start, end) = all.fold((u64::MAX, 0), |(a, b), (start, end)| (a.min(start), b.max(end)));
    Ok(FragmentDestination {
        store: Arc::clone(&opened.store),
        prefix: String::new(),
        schema_name: opened.opening.current_name.clone(),
        timestamp: start,
        end,
        key: opened.reader.key,
        digests: opened.digests,
    })
}

/// Commits a consolidated fragment in place of its inputs.
fn commit(opened: &ArraySnapshot, array: &TileDbArray, mut fragment: FragmentWriter) -> Result<String> {
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
pub(crate) fn footers(opened: &ArraySnapshot) -> Result<Consolidated> {
    let visible = &opened.opening.visible;
    if visible.is_empty() {
        return Ok(Consolidated::default());
    }
    let mut payload = Vec::new();
    put_u32(visible.len() as u64, "the fragments", &mut payload)?;
    let head: usize = visible.iter().map(|entry| 16 + entry.name.len()).sum::<usize>() + 4;
    let mut bodies = Vec::new();
    // More than the footer is read of each fragment.
    for some in visible.chunks(FOOTERS_AT_ONCE) {
        for (entry, footer) in
            some.iter().zip(read_footers(&opened.reader, some, opened.opening.only_schema())?)
        {
            put_text64(&entry.name, &mut payload);
            put_u64((head + bodies.len()) as u64, &mut payload);
            bodies.extend_from_slice(&footer.bytes);
        }
    }
    payload.append(&mut bodies);
    let start = visible.iter().map(|f| f.start).min().unwrap_or(0);
    let end = visible.iter().map(|f| f.end).max().unwrap_or(start);
    let name = format!("{}.meta", opened.versioned(start, end));
    let old = opened.reader.list("__fragment_meta")?.into_iter().map(|e| e.name).collect();
    opened.put(&join("__fragment_meta", &name), &payload)?;
    Ok(Consolidated { made: vec![name], replaced: old, apart: Vec::new() })
}

/// Writes the attributes of several files to one.
pub(crate) fn attributes(opened: &ArraySnapshot, what: &Consolidate) -> Result<Consolidated> {
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
    Ok(Consolidated { made: vec![name], replaced, apart: Vec::new() })
}
