//! One fragment in place of several, in one step.
//!
//! Where a position may hold several cells, a reader that meets a consolidated fragment together with those it was made of gives
//! their cells twice; and a `.vac` file without the fragment it belongs to makes other readers lose them. No two files appear at once,
//! so the step is the replacement of one: a consolidated commit.
//!
//! ```text
//! 1  a `.con` commits the old fragments once more        what is committed does not change …
//! 2  their own commits go                                … nor here: the `.con` has them
//! 3  the `.con` is replaced by one that has the new fragment alone      the step
//! 4  a `.vac` names the old ones, which count no more; then their own commits come back, for those who vacuum
//! 5  the new fragment gets a commit of its own, and the `.con` goes
//! ```

use std::collections::HashSet;

use tesseral_core::Result;
use tesseral_store::{Overwrite, StoreExt};

use super::commits::{Commits, FOLDER, Line, put_lines};
use super::edit::Opened;
use super::fragment::FragmentWriter;
use crate::directory::FragmentEntry;
use crate::reader::join;

/// The object that commits a fragment.
fn commit_of(entry: &FragmentEntry) -> String {
    match entry.folder.starts_with("__fragments/") {
        true => join(FOLDER, &format!("{}.wrt", entry.name)),
        // Those of versions 10 and 11 lie in the array's own folder.
        false => format!("{}.ok", entry.name),
    }
}

/// Makes a fragment count instead of `old` ones. Whatever call fails, readers see all cells, each once.
pub(crate) fn switch(opened: &Opened, old: &[FragmentEntry], fragment: &mut FragmentWriter) -> Result<()> {
    let store = &opened.store;
    let lines: Vec<Line> = old.iter().map(|entry| Line::of(commit_of(entry))).collect();
    let start = old.iter().map(|f| f.start).min().unwrap_or(0);
    let end = old.iter().map(|f| f.end).max().unwrap_or(start);
    let list = join(FOLDER, &format!("{}.con", opened.versioned(start, end)));
    let before = Commits::read(opened)?;
    put_lines(opened, &list, &lines, Overwrite::Refuse)?;
    withdraw(opened, &before, &lines)?;
    let ours = [Line::of(join(FOLDER, &format!("{}.wrt", fragment.name)))];
    let step = put_lines(opened, &list, &ours, Overwrite::Replace);
    // A replacement that failed at its very end may have happened all the same.
    let new = |bytes: &[u8]| bytes.windows(fragment.name.len()).any(|w| w == fragment.name.as_bytes());
    let counts = step.is_ok()
        || store.read_all(&list, opened.reader.limits.metadata_bytes).map_or(true, |bytes| new(&bytes));
    fragment.keep(counts);
    step?;
    opened.put_lines(
        &join(FOLDER, &format!("{}.vac", fragment.name)),
        old.iter().map(|f| format!("/{}", f.folder)),
    )?;
    for line in &lines {
        store.put(&line.text, &[], Overwrite::Replace)?;
    }
    fragment.commit()?;
    store.remove(&list)
}

/// Takes commits out of every file but the one that was just written.
fn withdraw(opened: &Opened, before: &Commits, lines: &[Line]) -> Result<()> {
    let gone: HashSet<&str> = lines.iter().map(Line::file).collect();
    for (name, held) in &before.consolidated {
        if held.iter().any(|line| gone.contains(line.file())) {
            let rest: Vec<Line> = held.iter().filter(|line| !gone.contains(line.file())).cloned().collect();
            put_lines(opened, &join(FOLDER, name), &rest, Overwrite::Replace)?;
        }
    }
    lines.iter().try_for_each(|line| opened.store.remove(&line.text))
}
