//! Consolidation of commit files, and removal of those replaced.

use std::collections::HashSet;

use tesseral_core::{Error, Result};
use tesseral_format::{Consolidated, Vacuumed};
use tesseral_store::{Overwrite, StoreExt};

use super::edit::ArraySnapshot;
use crate::metadata_loader::join;
use crate::wire::name;
use crate::wire::primitive::le64;
use crate::wire::trailer::seal_lines;

/// Folder of commits.
pub(crate) const FOLDER: &str = "__commits";

/// A line of a consolidated commit.
#[derive(Clone, Debug)]
pub(crate) struct CommitLine {
    /// The line as written.
    pub text: String,
    /// Content of the file, for deletes.
    pub delete: Option<Vec<u8>>,
}

impl CommitLine {
    /// Creates the commit of an object.
    pub(crate) fn for_object(object: String) -> Self {
        Self { text: object, delete: None }
    }

    /// Name of the commit file.
    pub(crate) fn file(&self) -> &str {
        self.text.rsplit('/').next().unwrap_or(&self.text)
    }
}

/// Content of the folder of commits.
#[derive(Debug, Default)]
pub(crate) struct Commits {
    /// Names of `.wrt` and `.del` files.
    pub files: Vec<String>,
    /// Consolidated commits with their lines.
    pub consolidated: Vec<(String, Vec<CommitLine>)>,
    /// Revoked lines.
    pub ignored: HashSet<String>,
    /// Names of `.vac` files.
    pub vacuums: Vec<String>,
}

impl Commits {
    pub(crate) fn read(opened: &ArraySnapshot) -> Result<Self> {
        let mut out = Self::default();
        for entry in opened.reader.list(FOLDER)? {
            let Some((stem, ending)) = entry.name.rsplit_once('.') else { continue };
            if entry.is_folder() || name::parse(stem).is_none() {
                continue;
            }
            let object = join(FOLDER, &entry.name);
            let bytes = || opened.reader.lines(&object);
            match ending {
                "wrt" | "del" => out.files.push(entry.name),
                "vac" => out.vacuums.push(entry.name),
                "con" => out.consolidated.push((entry.name.clone(), lines(&object, &bytes()?)?)),
                "ign" => {
                    let text = String::from_utf8_lossy(&bytes()?).into_owned();
                    let names = text.lines().map(|line| line.rsplit('/').next().unwrap_or(line).to_owned());
                    out.ignored.extend(names);
                }
                _ => {}
            }
        }
        Ok(out)
    }

    /// Lines of consolidated commits that are not revoked.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &CommitLine> {
        self.consolidated.iter().flat_map(|(_, lines)| lines).filter(|l| !self.ignored.contains(l.file()))
    }
}

fn lines(object: &str, mut text: &[u8]) -> Result<Vec<CommitLine>> {
    let cut = || Error::corrupt("a consolidated commit", object, None, "truncated");
    let mut out = Vec::new();
    while !text.is_empty() {
        let end = text.iter().position(|b| *b == b'\n').ok_or_else(cut)?;
        let line = String::from_utf8_lossy(&text[..end]).into_owned();
        text = &text[end + 1..];
        let mut delete = None;
        if line.ends_with(".del") {
            let (len, rest) = text.split_at_checked(8).ok_or_else(cut)?;
            let (bytes, rest) =
                usize::try_from(le64(len)).ok().and_then(|n| rest.split_at_checked(n)).ok_or_else(cut)?;
            delete = Some(bytes.to_vec());
            text = rest;
        }
        // Other writers copy the digest lines of files that they consolidate.
        if line.ends_with(".wrt") || line.ends_with(".ok") || delete.is_some() {
            out.push(CommitLine { text: line, delete });
        }
    }
    Ok(out)
}

/// Publishes a consolidated commit.
pub(crate) fn put_lines(
    opened: &ArraySnapshot,
    object: &str,
    lines: &[CommitLine],
    overwrite: Overwrite,
) -> Result<()> {
    let mut bytes = Vec::new();
    for line in lines {
        bytes.extend_from_slice(line.text.as_bytes());
        bytes.push(b'\n');
        if let Some(delete) = &line.delete {
            bytes.extend_from_slice(&(delete.len() as u64).to_le_bytes());
            bytes.extend_from_slice(delete);
        }
    }
    seal_lines(object, &mut bytes);
    opened.store.put(object, &bytes, overwrite)
}

/// Writes one file with all current commits.
pub(crate) fn consolidate(opened: &ArraySnapshot) -> Result<Consolidated> {
    let commits = Commits::read(opened)?;
    let mut all: Vec<CommitLine> = commits.listed().cloned().collect();
    let known: HashSet<String> = all.iter().map(|l| l.file().to_owned()).collect();
    for file in &commits.files {
        if known.contains(file) {
            continue;
        }
        let delete = match file.ends_with(".del") {
            true => {
                let object = join(FOLDER, file);
                Some(opened.store.read_all(&object, opened.reader.limits.metadata_bytes)?.to_vec())
            }
            false => None,
        };
        all.push(CommitLine { text: join(FOLDER, file), delete });
    }
    // A further commit file would replace nothing.
    if all.len() == known.len() && commits.consolidated.len() <= 1 || all.len() < 2 {
        return Ok(Consolidated::default());
    }
    let times =
        || all.iter().filter_map(|l| name::parse(l.file().rsplit_once('.').map_or("", |(stem, _)| stem)));
    let start = times().map(|t| t.start).min().unwrap_or(0);
    let end = times().map(|t| t.end).max().unwrap_or(start);
    let name = format!("{}.con", opened.versioned(start, end));
    put_lines(opened, &join(FOLDER, &name), &all, Overwrite::Refuse)?;
    let replaced = commits.files.into_iter().chain(commits.consolidated.into_iter().map(|(name, _)| name));
    Ok(Consolidated { made: vec![name], replaced: replaced.collect(), apart: Vec::new() })
}

/// Removes commit files contained in a consolidated one, and consolidated ones contained in another.
pub(crate) fn vacuum(opened: &ArraySnapshot, dry_run: bool) -> Result<Vacuumed> {
    let commits = Commits::read(opened)?;
    let held: HashSet<&str> = commits.listed().map(CommitLine::file).collect();
    let mut gone: Vec<&str> =
        commits.files.iter().map(String::as_str).filter(|file| held.contains(file)).collect();
    // The largest one is kept; of equal ones, the later.
    let live = |lines: &[CommitLine]| -> HashSet<String> {
        let counted = lines.iter().filter(|l| !commits.ignored.contains(l.file()));
        counted.map(|l| l.file().to_owned()).collect()
    };
    let sets: Vec<HashSet<String>> = commits.consolidated.iter().map(|(_, lines)| live(lines)).collect();
    for (i, set) in sets.iter().enumerate() {
        let held = sets
            .iter()
            .enumerate()
            .any(|(j, other)| j != i && set.is_subset(other) && (set.len() < other.len() || j > i));
        if held {
            gone.push(&commits.consolidated[i].0);
        }
    }
    let mut out = Vacuumed::default();
    for file in gone {
        let object = join(FOLDER, file);
        out.bytes += opened.store.len(&object).unwrap_or(0);
        out.removed.push(object.clone());
        if !dry_run {
            opened.store.remove(&object)?;
        }
    }
    Ok(out)
}
