//! Content of an array's folder: schemas, fragments, commits.

use std::collections::{BTreeMap, HashSet};

use tesseral_core::{Error, Result};
use tesseral_format::TimeRange;
use tesseral_store::{ObjectInfo, StoreExt};

use crate::fragment::METADATA;
use crate::metadata_loader::{MetadataLoader, join};
use crate::wire::ONLY_SCHEMA;
use crate::wire::name::{self, Name};
use crate::wire::primitive::le64;

/// Folders of an array that are listed when it is opened.
pub(crate) const LISTED: [&str; 4] = ["__commits", "__meta", "__fragment_meta", "__schema"];

/// Folders of an array or a group that are listed with the first contact.
pub(crate) const FIRST: [&str; 5] =
    ["__commits", "__meta", "__fragment_meta", "__schema", crate::group::MEMBERS];

/// Announces the listings of an array's folder and of those in it.
pub(crate) fn announce(reader: &MetadataLoader, prefix: &str) {
    let folders = LISTED.iter().map(|name| join(prefix, name));
    reader.announce(folders.chain([prefix.to_owned()]), []);
}

/// Folder of a fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FragmentEntry {
    pub name: String,
    /// Path of the folder in the store.
    pub folder: String,
    pub start: u64,
    pub end: u64,
    pub version: u32,
}

/// A stored delete.
#[derive(Clone, Debug)]
pub(crate) struct DeleteEntry {
    /// File name of its commit, by which fragments refer to it.
    pub name: String,
    pub time: Name,
    pub bytes: DeleteBytes,
}

/// Location of the condition.
#[derive(Clone, Debug)]
pub(crate) enum DeleteBytes {
    Object(String),
    Inline(Vec<u8>),
}

impl DeleteEntry {
    /// The object with the condition, if it has its own.
    pub(crate) fn object(&self) -> Option<&String> {
        match &self.bytes {
            DeleteBytes::Object(object) => Some(object),
            DeleteBytes::Inline(_) => None,
        }
    }
}

/// A list of fragments that have been replaced by another one.
#[derive(Clone, Debug)]
pub(crate) struct Vacuum {
    /// Name of the replacing fragment.
    pub by: String,
    pub time: Name,
    pub fragments: Vec<String>,
}

/// All entries of the folder.
#[derive(Clone, Debug, Default)]
pub(crate) struct ArrayDirectory {
    /// Objects of schemas sorted by name, with their timestamps.
    pub schemas: Vec<(String, Name)>,
    /// Committed fragments in layer order. They are listed from the commits; missing files are detected when they are read.
    pub fragments: Vec<FragmentEntry>,
    pub deletes: Vec<DeleteEntry>,
    pub vacuums: Vec<Vacuum>,
    /// Metadata objects in the order in which they apply, without vacuumed ones.
    pub metadata: Vec<(String, Name)>,
}

/// Sort key of timestamped names: first timestamp as a number, then the name as text.
fn by_time(start: u64, name: &str) -> (u64, &str) {
    (start, name)
}

/// Returns the part of a URI after the last slash.
fn last_component(line: &str) -> &str {
    line.trim_end_matches('/').rsplit('/').next().unwrap_or(line)
}

impl ArrayDirectory {
    /// Lists schemas and attributes: all that a write needs, independent of the number of fragments.
    pub(crate) fn described(reader: &MetadataLoader, prefix: &str) -> Result<Self> {
        let mut directory =
            Self { schemas: timestamped(reader, &join(prefix, "__schema"))?, ..Self::default() };
        // The newest schema is determined by the order of names as text, unlike other files: `__20_…` is after
        // `__1700000000000_…`.
        directory.schemas.sort_by(|a, b| a.0.cmp(&b.0));
        if directory.schemas.is_empty() {
            directory.add_only_schema(reader, prefix)?;
        }
        if directory.schemas.is_empty() {
            let place = reader.store.describe(&join(prefix, "__schema"));
            return Err(Error::corrupt("the array", place, None, "no schema found"));
        }
        directory.metadata = metadata(reader, &join(prefix, "__meta"))?;
        Ok(directory)
    }

    /// Adds the schema of an array that was created before version 10. It is the oldest one.
    fn add_only_schema(&mut self, reader: &MetadataLoader, prefix: &str) -> Result<()> {
        if reader.list(prefix)?.iter().any(|entry| entry.name == ONLY_SCHEMA && !entry.is_folder()) {
            let time = Name { start: 0, end: 0, version: None };
            self.schemas.insert(0, (join(prefix, ONLY_SCHEMA), time));
        }
        Ok(())
    }

    /// Lists schemas, attributes and commits. Does not list fragments: commits name them, and there can be thousands.
    pub(crate) fn scan(reader: &MetadataLoader, prefix: &str) -> Result<Self> {
        // A schema is written before the commit of the first fragment that uses it: in this order, none is missed.
        let others = LISTED.iter().filter(|name| **name != "__schema").map(|name| join(prefix, name));
        reader.announce(others.chain([prefix.to_owned()]), []);
        let commits = CommitListing::scan(reader, prefix)?;
        let mut directory = Self::described(reader, prefix)?;
        let objects = directory.schemas.iter().chain(&directory.metadata);
        reader.announce([], objects.map(|(object, _)| object));
        // Later schemas are in the same folder as the first one, which older fragments use.
        if commits.fragments.iter().any(|fragment| fragment.version < 10)
            && !directory.schemas.iter().any(|(object, _)| object.ends_with(ONLY_SCHEMA))
        {
            directory.add_only_schema(reader, prefix)?;
        }
        directory.fragments = commits.fragments;
        directory.deletes = commits.deletes.into_values().collect();
        directory.deletes.sort_by(|a, b| by_time(a.time.start, &a.name).cmp(&by_time(b.time.start, &b.name)));
        directory.vacuums = commits.vacuums;
        Ok(directory)
    }

    /// Returns the schema for a read up to `end`: the newest one at that time, otherwise the oldest.
    pub(crate) fn schema_at(&self, end: u64) -> Option<&str> {
        let newest = self.schemas.iter().rev().find(|(_, time)| time.end <= end);
        newest.or_else(|| self.schemas.first()).map(|(object, _)| object.as_str())
    }

    /// Selects the fragments visible in a time range, and the committed ones that are replaced by others. Drops all others.
    pub(crate) fn take_visible(
        &mut self,
        range: TimeRange,
        sparse: bool,
    ) -> (Vec<FragmentEntry>, Vec<FragmentEntry>) {
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
        let all = std::mem::take(&mut self.fragments).into_iter();
        let (in_time, others) = all.partition::<Vec<_>, _>(|f| seen(f.start, f.end, f.version));
        self.fragments = others;
        if replaced.is_empty() {
            return (in_time, Vec::new());
        }
        in_time.into_iter().partition(|f| !replaced.contains(f.name.as_str()))
    }
}

/// Folders of uncommitted fragments.
pub(crate) fn uncommitted(reader: &MetadataLoader, prefix: &str) -> Result<Vec<String>> {
    let commits = CommitListing::scan(reader, prefix)?;
    let committed: HashSet<&str> = commits.fragments.iter().map(|f| f.folder.as_str()).collect();
    let mut found = Vec::new();
    for parent in [prefix.to_owned(), join(prefix, "__fragments")] {
        for entry in reader.list(&parent)?.into_iter().filter(ObjectInfo::is_folder) {
            let folder = join(&parent, &entry.name);
            let fragment = name::parse(&entry.name).is_some_and(|name| name.version.is_some());
            if fragment && !committed.contains(folder.as_str()) {
                found.push(folder);
            }
        }
    }
    Ok(found)
}

/// Timestamped files of a folder, oldest first.
fn timestamped(reader: &MetadataLoader, folder: &str) -> Result<Vec<(String, Name)>> {
    Ok(in_time(folder, reader.list(folder)?))
}

fn in_time(folder: &str, entries: Vec<ObjectInfo>) -> Vec<(String, Name)> {
    let mut found: Vec<(String, Name)> = entries
        .into_iter()
        .filter(|entry| !entry.is_folder())
        .filter_map(|entry| name::parse(&entry.name).map(|time| (entry.name, time)))
        .collect();
    found.sort_by(|a, b| by_time(a.1.start, &a.0).cmp(&by_time(b.1.start, &b.0)));
    for (name, _) in &mut found {
        *name = join(folder, name);
    }
    found
}

/// Metadata files of a folder in the order in which they apply, without those that consolidated files replace.
pub(crate) fn metadata(reader: &MetadataLoader, folder: &str) -> Result<Vec<(String, Name)>> {
    let mut replaced = HashSet::new();
    let entries = reader.list(folder)?;
    let lists = entries.iter().filter(|entry| entry.name.ends_with(".vac"));
    let lists: Vec<String> = lists.map(|entry| join(folder, &entry.name)).collect();
    reader.announce([], &lists);
    for list in &lists {
        replaced.extend(names(&reader.lines(list)?));
    }
    let mut files = in_time(folder, entries);
    files.retain(|(object, _)| !replaced.contains(last_component(object)));
    Ok(files)
}

/// Last path components of lines of URIs.
pub(crate) fn names(text: &[u8]) -> Vec<String> {
    lines(text).map(|line| last_component(&line).to_owned()).collect()
}

fn lines(text: &[u8]) -> impl Iterator<Item = String> {
    let lines = text.split(|b| *b == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect::<Vec<_>>().into_iter()
}

#[derive(Default)]
struct CommitListing {
    /// Folders of the array and of its fragments.
    prefix: String,
    nested: String,
    /// Committed fragments.
    fragments: Vec<FragmentEntry>,
    /// Names in consolidated commits, which ignore files can revoke.
    consolidated: HashSet<String>,
    ignored: HashSet<String>,
    deletes: BTreeMap<String, DeleteEntry>,
    inline: BTreeMap<String, DeleteEntry>,
    vacuums: Vec<Vacuum>,
}

impl CommitListing {
    fn scan(reader: &MetadataLoader, prefix: &str) -> Result<Self> {
        let nested = join(prefix, "__fragments");
        let mut commits = Self { prefix: prefix.to_owned(), nested, ..Self::default() };
        // Versions 10 and 11 store everything in the array folder.
        let folders = [join(prefix, "__commits"), prefix.to_owned()];
        let mut found = Vec::new();
        for folder in &folders {
            let (inner, entries) =
                reader.list(folder)?.into_iter().partition::<Vec<_>, _>(ObjectInfo::is_folder);
            found.extend(entries.into_iter().map(|entry| (folder, entry.name)));
            if folder == prefix {
                commits.add_before_5(reader, &inner)?;
            }
        }
        let is_read = |name: &str| [".con", ".ign", ".vac"].iter().any(|ending| name.ends_with(ending));
        let texts = found.iter().filter(|(_, name)| is_read(name));
        let texts: Vec<String> = texts.map(|(folder, name)| join(folder, name)).collect();
        // Schemas are listed after commits.
        reader.announce([join(prefix, "__schema")], &texts);
        for (folder, name) in &found {
            commits.read(reader, folder, name)?;
        }
        commits.finish();
        Ok(commits)
    }

    /// Adds a fragment by the name of its commit.
    fn add(&mut self, stem: &str, ending: &str, time: &Name) {
        if let Some(version) = time.version {
            let folder = join(if ending == "ok" { &self.prefix } else { &self.nested }, stem);
            let Name { start, end, .. } = *time;
            self.fragments.push(FragmentEntry { name: stem.to_owned(), folder, start, end, version });
        }
    }

    /// Adds fragments of versions 1 to 4, which are committed by their metadata file.
    fn add_before_5(&mut self, reader: &MetadataLoader, folders: &[ObjectInfo]) -> Result<()> {
        let named =
            folders.iter().filter_map(|entry| Some((&entry.name, name::parse_before_5(&entry.name)?)));
        let named: Vec<_> = named.collect();
        reader.announce(named.iter().map(|(name, _)| join(&self.prefix, name)), []);
        for (name, time) in named {
            if reader.list(&join(&self.prefix, name))?.iter().any(|entry| entry.name == METADATA) {
                self.add(name, "ok", &time);
            }
        }
        Ok(())
    }

    fn read(&mut self, reader: &MetadataLoader, folder: &str, file: &str) -> Result<()> {
        let Some((stem, ending)) = file.rsplit_once('.') else { return Ok(()) };
        let Some(time) = name::parse(stem) else { return Ok(()) };
        if matches!(ending, "wrt" | "ok") {
            self.add(stem, ending, &time);
            return Ok(());
        }
        let object = join(folder, file);
        let text = || reader.lines(&object);
        match ending {
            "con" => self.consolidated(&reader.store.describe(&object), &text()?)?,
            "ign" => self.ignored.extend(names(&text()?)),
            "vac" => {
                let fragments = names(&text()?);
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

    /// Parses lines of names; the name of a delete is followed by its length and its bytes.
    fn consolidated(&mut self, object: &str, mut text: &[u8]) -> Result<()> {
        let total = text.len();
        while !text.is_empty() {
            let cut = |what: &str, text: &[u8]| {
                Error::corrupt(
                    "a consolidated commit",
                    object,
                    (total - text.len()) as u64,
                    format!("{what} is truncated"),
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
        for file in std::mem::take(&mut self.consolidated) {
            if let (Some((stem, ending @ ("wrt" | "ok"))), false) =
                (file.rsplit_once('.'), self.ignored.contains(&file))
                && let Some(time) = name::parse(stem)
            {
                self.add(stem, ending, &time);
            }
        }
        self.fragments.sort_by(|a, b| by_time(a.start, &a.name).cmp(&by_time(b.start, &b.name)));
        self.fragments.dedup_by(|a, b| a.name == b.name);
        // A fragment that was not committed replaces nothing.
        let committed = &self.fragments;
        let find = |by: &Vacuum| {
            committed.binary_search_by(|f| by_time(f.start, &f.name).cmp(&by_time(by.time.start, &by.by)))
        };
        self.vacuums.retain(|vacuum| find(vacuum).is_ok());
        for (file, delete) in std::mem::take(&mut self.inline) {
            if !self.ignored.contains(&file) {
                self.deletes.entry(file).or_insert(delete);
            }
        }
    }
}
