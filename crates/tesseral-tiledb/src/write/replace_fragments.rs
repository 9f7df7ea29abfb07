//! Atomic replacement of several fragments by one.
//!
//! Where duplicates are allowed, a reader that sees a consolidated fragment together with its inputs returns their cells twice;
//! and a `.vac` file without its fragment makes other readers lose cells. Two files cannot appear atomically, so the
//! replacement consists in replacing one file: a consolidated commit.
//!
//! ```text
//! 1  a `.con` commits the old fragments again             no visible change
//! 2  their own commits are removed                       no visible change
//! 3  the `.con` is replaced by one with only the new fragment      atomic
//! 4  a `.vac` lists the old fragments; their own commits are restored for vacuum
//! 5  the new fragment gets its own commit, and the `.con` is removed
//! ```

use std::collections::HashSet;

use tesseral_core::Result;
use tesseral_store::{Overwrite, StoreExt};

use super::commits::{CommitLine, Commits, FOLDER, put_lines};
use super::edit::ArraySnapshot;
use super::fragment::FragmentWriter;
use crate::directory::FragmentEntry;
use crate::metadata_loader::join;

/// Commit object of a fragment.
fn commit_of(entry: &FragmentEntry) -> String {
    match entry.folder.starts_with("__fragments/") {
        true => join(FOLDER, &format!("{}.wrt", entry.name)),
        // Versions 10 and 11 store commits in the array folder.
        false => format!("{}.ok", entry.name),
    }
}

/// Commits a fragment in place of the `old` ones. If any call fails, readers still see all cells exactly once.
pub(crate) fn switch(
    opened: &ArraySnapshot,
    old: &[FragmentEntry],
    fragment: &mut FragmentWriter,
) -> Result<()> {
    let store = &opened.store;
    let lines: Vec<CommitLine> = old.iter().map(|entry| CommitLine::for_object(commit_of(entry))).collect();
    let start = old.iter().map(|f| f.start).min().unwrap_or(0);
    let end = old.iter().map(|f| f.end).max().unwrap_or(start);
    let list = join(FOLDER, &format!("{}.con", opened.versioned(start, end)));
    let before = Commits::read(opened)?;
    put_lines(opened, &list, &lines, Overwrite::Refuse)?;
    withdraw(opened, &before, &lines)?;
    let ours = [CommitLine::for_object(join(FOLDER, &format!("{}.wrt", fragment.name)))];
    let step = put_lines(opened, &list, &ours, Overwrite::Replace);
    // A replacement that returned an error can be visible nevertheless.
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

/// Removes commits from every file except the one just written.
fn withdraw(opened: &ArraySnapshot, before: &Commits, lines: &[CommitLine]) -> Result<()> {
    let gone: HashSet<&str> = lines.iter().map(CommitLine::file).collect();
    for (name, held) in &before.consolidated {
        if held.iter().any(|line| gone.contains(line.file())) {
            let rest: Vec<CommitLine> =
                held.iter().filter(|line| !gone.contains(line.file())).cloned().collect();
            put_lines(opened, &join(FOLDER, name), &rest, Overwrite::Replace)?;
        }
    }
    lines.iter().try_for_each(|line| opened.store.remove(&line.text))
}
