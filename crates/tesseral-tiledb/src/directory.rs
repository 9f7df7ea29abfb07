//! What is in an array's folder: schemas, fragments, commits.

use std::collections::{BTreeMap, HashSet};

use tesseral_core::{Error, Result};
use tesseral_format::TimeRange;
use tesseral_store::StoreExt;

use crate::reader::{Reader, join};
use crate::wire::cursor::le64;
use crate::wire::name::{self, Name};

/// A fragment's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FragmentEntry {
    pub name: String,
    /// Its folder in the store.
    pub folder: String,
    pub start: u64,
    pub end: u64,
    pub version: u32,
}

/// A stored delete.
#[derive(Clone, Debug)]
pub(crate) struct DeleteEntry {
    /// File name of its commit, by which fragments call it.
    pub name: String,
    pub time: Name,
    pub bytes: DeleteBytes,
}

/// Where the condition is.
#[derive(Clone, Debug)]
pub(crate) enum DeleteBytes {
    Object(String),
    Inline(Vec<u8>),
}

/// A list of fragments that another one replaces.
#[derive(Clone, Debug)]
pub(crate) struct Vacuum {
    /// Name of the fragment that replaces them.
    pub by: String,
    pub time: Name,
    pub fragments: Vec<String>,
}

/// Everything named in the folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    /// Objects of schemas in the order of their names, with their times.
    pub schemas: Vec<(String, Name)>,
    /// Committed fragments, in the order of layers.
    pub fragments: Vec<FragmentEntry>,
    pub deletes: Vec<DeleteEntry>,
    pub vacuums: Vec<Vacuum>,
    /// Metadata objects in the order they apply, vacuumed ones left out.
    pub metadata: Vec<(String, Name)>,
    /// Folders of fragments that nobody committed.
    pub uncommitted: Vec<String>,
}

/// Sort key of timestamped names: first moment as a number, then the name as text.
fn by_time(start: u64, name: &str) -> (u64, &str) {
    (start, name)
}

/// The part of an address behind the last slash.
fn last_component(line: &str) -> &str {
    line.trim_end_matches('/').rsplit('/').next().unwrap_or(line)
}

impl Directory {
    /// Lists schemas and attributes: all that a write must know, however many fragments there are.
    pub(crate) fn described(reader: &Reader, prefix: &str) -> Result<Self> {
        let mut directory =
            Self { schemas: timestamped(reader, &join(prefix, "__schema"))?, ..Self::default() };
        // Which schema is newest goes by names as text, unlike everything else: `__20_…` comes after `__1700000000000_…`.
        directory.schemas.sort_by(|a, b| a.0.cmp(&b.0));
        if directory.schemas.is_empty() {
            if reader.list(prefix)?.iter().any(|e| e.name == "__array_schema.tdb") {
                return Err(Error::unsupported("TileDB arrays of a format version before 10"));
            }
            let place = reader.store.describe(&join(prefix, "__schema"));
            return Err(Error::corrupt("the array", place, None, "it has no schema"));
        }
        directory.metadata = metadata(reader, &join(prefix, "__meta"))?;
        Ok(directory)
    }

    /// Lists an array's folder.
    pub(crate) fn scan(reader: &Reader, prefix: &str) -> Result<Self> {
        let mut directory = Self::described(reader, prefix)?;
        let mut commits = Commits::default();
        let root = reader.list(prefix)?;
        let folder = join(prefix, "__commits");
        for entry in reader.list(&folder)? {
            if !entry.folder {
                commits.read(reader, &folder, &entry.name)?;
            }
        }
        // Versions 10 and 11 keep everything in the array's own folder.
        for entry in root.iter().filter(|e| !e.folder) {
            commits.read(reader, prefix, &entry.name)?;
        }
        commits.finish();
        let folders = root.iter().filter(|e| e.folder).map(|e| (e.name.clone(), prefix.to_owned()));
        let nested = join(prefix, "__fragments");
        let listed = reader.list(&nested)?;
        let folders =
            folders.chain(listed.iter().filter(|e| e.folder).map(|e| (e.name.clone(), nested.clone())));
        for (name, parent) in folders {
            let Some(Name { start, end, version: Some(version) }) = name::parse(&name) else { continue };
            let folder = join(&parent, &name);
            if commits.committed.contains(&name) {
                directory.fragments.push(FragmentEntry { name, folder, start, end, version });
            } else {
                directory.uncommitted.push(folder);
            }
        }
        directory.fragments.sort_by(|a, b| by_time(a.start, &a.name).cmp(&by_time(b.start, &b.name)));
        directory.deletes = commits.deletes.into_values().collect();
        directory.deletes.sort_by(|a, b| by_time(a.time.start, &a.name).cmp(&by_time(b.time.start, &b.name)));
        directory.vacuums = commits.vacuums;
        Ok(directory)
    }

    /// The schema that a read up to `end` goes by: the newest that was there, else the oldest.
    pub(crate) fn schema_at(&self, end: u64) -> Option<&str> {
        let newest = self.schemas.iter().rev().find(|(_, time)| time.end <= end);
        newest.or_else(|| self.schemas.first()).map(|(object, _)| object.as_str())
    }

    /// Fragments that a read of a time range sees, and committed ones that others replace.
    pub(crate) fn visible(&self, range: TimeRange, sparse: bool) -> (Vec<FragmentEntry>, Vec<FragmentEntry>) {
        let seen = |start: u64, end: u64, version: u32| {
            if sparse && version >= 15 {
                start <= range.end && range.start <= end
            } else {
                range.start <= start && end <= range.end
            }
        };
        let replaced: HashSet<&str> = self
            .vacuums
            .iter()
            .filter(|v| seen(v.time.start, v.time.end, v.time.version.unwrap_or(0)))
            .flat_map(|v| v.fragments.iter().map(String::as_str))
            .collect();
        let in_time = self.fragments.iter().filter(|f| seen(f.start, f.end, f.version)).cloned();
        in_time.partition(|f| !replaced.contains(f.name.as_str()))
    }
}

/// Timestamped files of a folder, oldest first.
fn timestamped(reader: &Reader, folder: &str) -> Result<Vec<(String, Name)>> {
    let mut found: Vec<(String, Name)> = reader
        .list(folder)?
        .into_iter()
        .filter(|entry| !entry.folder)
        .filter_map(|entry| name::parse(&entry.name).map(|time| (entry.name, time)))
        .collect();
    found.sort_by(|a, b| by_time(a.1.start, &a.0).cmp(&by_time(b.1.start, &b.0)));
    for (name, _) in &mut found {
        *name = join(folder, name);
    }
    Ok(found)
}

/// Metadata files of a folder, in the order they apply, without those that consolidated ones replace.
pub(crate) fn metadata(reader: &Reader, folder: &str) -> Result<Vec<(String, Name)>> {
    let mut replaced = HashSet::new();
    for entry in reader.list(folder)? {
        if entry.name.ends_with(".vac") {
            let text = reader.store.read_all(&join(folder, &entry.name), reader.limits.metadata_bytes)?;
            replaced.extend(lines(&text).map(|line| last_component(&line).to_owned()));
        }
    }
    let mut files = timestamped(reader, folder)?;
    files.retain(|(object, _)| !replaced.contains(last_component(object)));
    Ok(files)
}

fn lines(text: &[u8]) -> impl Iterator<Item = String> {
    let lines = text.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect::<Vec<_>>().into_iter()
}

#[derive(Default)]
struct Commits {
    /// Names of committed fragments.
    committed: HashSet<String>,
    /// Names in consolidated commits, which ignore files may take back.
    consolidated: HashSet<String>,
    ignored: HashSet<String>,
    deletes: BTreeMap<String, DeleteEntry>,
    inline: BTreeMap<String, DeleteEntry>,
    vacuums: Vec<Vacuum>,
}

impl Commits {
    fn read(&mut self, reader: &Reader, folder: &str, file: &str) -> Result<()> {
        let Some((stem, ending)) = file.rsplit_once('.') else { return Ok(()) };
        let Some(time) = name::parse(stem) else { return Ok(()) };
        let object = join(folder, file);
        let text = || reader.store.read_all(&object, reader.limits.metadata_bytes);
        match ending {
            "wrt" | "ok" => {
                self.committed.insert(stem.to_owned());
            }
            "con" => self.consolidated(&reader.store.describe(&object), &text()?)?,
            "ign" => self.ignored.extend(lines(&text()?).map(|line| last_component(&line).to_owned())),
            "vac" => {
                let fragments = lines(&text()?).map(|line| last_component(&line).to_owned()).collect();
                self.vacuums.push(Vacuum { by: stem.to_owned(), time, fragments });
            }
            "del" => {
                let bytes = DeleteBytes::Object(object);
                self.deletes.insert(file.to_owned(), DeleteEntry { name: file.to_owned(), time, bytes });
            }
            _ => {}
        }
        Ok(())
    }

    /// Lines of names; behind the name of a delete come its length and its bytes.
    fn consolidated(&mut self, object: &str, mut text: &[u8]) -> Result<()> {
        let total = text.len();
        while !text.is_empty() {
            let cut = |what: &str, text: &[u8]| {
                Error::corrupt(
                    "a consolidated commit",
                    object,
                    (total - text.len()) as u64,
                    format!("{what} is cut short"),
                )
            };
            let end = text.iter().position(|b| *b == b'\n').ok_or_else(|| cut("a name", text))?;
            let line = String::from_utf8_lossy(&text[..end]).into_owned();
            text = &text[end + 1..];
            let file = last_component(&line).to_owned();
            let Some((stem, ending)) = file.rsplit_once('.') else { continue };
            if ending == "del" {
                let (len, rest) = text.split_at_checked(8).ok_or_else(|| cut("a delete", text))?;
                let split = usize::try_from(le64(len)).ok().and_then(|n| rest.split_at_checked(n));
                let (bytes, rest) = split.ok_or_else(|| cut("a delete", text))?;
                text = rest;
                if let Some(time) = name::parse(stem) {
                    let bytes = DeleteBytes::Inline(bytes.to_vec());
                    self.inline.insert(file.clone(), DeleteEntry { name: file, time, bytes });
                }
            } else {
                self.consolidated.insert(file);
            }
        }
        Ok(())
    }

    fn finish(&mut self) {
        for file in &self.consolidated {
            if self.ignored.contains(file) {
                continue;
            }
            if let Some((stem, "wrt" | "ok")) = file.rsplit_once('.') {
                self.committed.insert(stem.to_owned());
            }
        }
        // A fragment that was never committed replaces nothing.
        let committed = &self.committed;
        self.vacuums.retain(|vacuum| committed.contains(&vacuum.by));
        for (file, delete) in std::mem::take(&mut self.inline) {
            if !self.ignored.contains(&file) {
                self.deletes.entry(file).or_insert(delete);
            }
        }
    }
}
