//! Bytes of objects on a local disk, by URL, entity tag and range.
//!
//! An entry is a file that is written under a temporary name and renamed, so that processes that share the folder see whole
//! entries or none. It starts with a digest over its identity (server, object, entity tag, range) and its bytes: an entry that is
//! damaged, or belongs to something else, is not used. Since the entity tag is part of the name, an object that changed has other
//! entries; those of the earlier content are removed by age.
//!
//! The folder has a limit. When a process has added an eighth of it, the entries that were used longest ago are removed until
//! seven eighths are left. Failures of the disk never fail a read: the bytes are requested from the server.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, DirBuilder, File, FileTimes};
use std::hash::Hasher;
use std::io::{Read, Write};
use std::ops::Range;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use bytes::Bytes;
use tesseral_core::alloc;
use xxhash_rust::xxh3::Xxh3;

use crate::resolve::CacheFolder;

/// First bytes of an entry.
const MAGIC: &[u8; 8] = b"TSRLCCH1";
/// Length of the magic and the digest before the bytes.
const HEADER: usize = 24;
/// Longest range that is kept.
const LONGEST: u64 = 64 << 20;
/// Parts of the limit that are added before entries are counted.
const PARTS: u64 = 8;

/// In place of an entity tag: the note of the latest version. No entity tag is empty.
const LATEST: &str = "";
/// Length of such a note.
const NOTE: usize = 256;

/// The cache of one store.
#[derive(Debug)]
pub(crate) struct Cache {
    root: PathBuf,
    limit: u64,
    /// Server and root of the store: the first part of the identity of entries.
    base: String,
    /// Ranges on the disk by folder of a version, read once.
    known: Mutex<HashMap<PathBuf, KnownRanges>>,
    /// Bytes added since entries were counted.
    added: AtomicU64,
    /// Entity tags of objects whose latest version this process noted.
    noted: Mutex<HashMap<String, String>>,
}

/// Ranges of a version, the end by the start, none of them inside another. Later starts have later ends, so that the last range
/// that starts before a position reaches furthest.
#[derive(Debug, Default)]
struct KnownRanges(BTreeMap<u64, u64>);

impl KnownRanges {
    /// A range that contains another.
    fn find(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let (start, end) = self.0.range(..=range.start).next_back()?;
        (range.end <= *end).then_some(*start..*end)
    }

    fn insert(&mut self, range: Range<u64>) {
        if self.find(&range).is_some() {
            return;
        }
        while let Some((&start, _)) = self.0.range(range.start..).next().filter(|(_, end)| **end <= range.end)
        {
            self.0.remove(&start);
        }
        self.0.insert(range.start, range.end);
    }
}

impl Cache {
    pub(crate) fn new(settings: &CacheFolder, base: String) -> Self {
        Self {
            root: settings.path().to_path_buf(),
            limit: settings.size(),
            base,
            known: Mutex::default(),
            added: AtomicU64::new(0),
            noted: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<PathBuf, KnownRanges>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Digest of an identity, and of bytes.
    fn digest(&self, object: &str, etag: &str, entry: Option<(&Range<u64>, &[u8])>) -> u128 {
        let mut hasher = Xxh3::new();
        for text in [self.base.as_str(), object, etag] {
            hasher.write_u64(text.len() as u64);
            hasher.write(text.as_bytes());
        }
        if let Some((range, bytes)) = entry {
            hasher.write_u64(range.start);
            hasher.write_u64(range.end);
            hasher.write(bytes);
        }
        hasher.digest128()
    }

    /// Folder of the entries of one version of an object.
    fn folder(&self, object: &str, etag: &str) -> PathBuf {
        let name = format!("{:032x}", self.digest(object, etag, None));
        self.root.join(&name[..2]).join(&name[2..])
    }

    /// Returns a range of a version, if an entry contains it.
    pub(crate) fn get(&self, object: &str, etag: &str, range: &Range<u64>) -> Option<Bytes> {
        let folder = self.folder(object, etag);
        let held = {
            let mut known = self.known();
            let ranges = known.entry(folder.clone()).or_insert_with(|| ranges_in(&folder));
            ranges.find(range)?
        };
        let bytes = self.load(&folder.join(file_name(&held)), object, etag, &held);
        if bytes.is_none() {
            self.known().remove(&folder);
        }
        let from = usize::try_from(range.start - held.start).ok()?;
        let to = usize::try_from(range.end - held.start).ok()?;
        Some(bytes?.slice(from..to))
    }

    /// Reads an entry. One that is not whole is removed.
    fn load(&self, path: &Path, object: &str, etag: &str, range: &Range<u64>) -> Option<Bytes> {
        let mut file = File::open(path).ok()?;
        let len = usize::try_from(range.end - range.start).ok()?;
        let expected = (HEADER as u64).checked_add(len as u64)?;
        let mut header = [0; HEADER];
        let mut bytes = Vec::new();
        let whole = file.metadata().ok()?.len() == expected
            && file.read_exact(&mut header).is_ok()
            && alloc::reserve("a cached range", &mut bytes, len).is_ok()
            && (&file).take(len as u64).read_to_end(&mut bytes).is_ok()
            && bytes.len() == len;
        let digest = self.digest(object, etag, Some((range, &bytes)));
        if !whole || header[..8] != MAGIC[..] || header[8..] != digest.to_le_bytes() {
            let _ = fs::remove_file(path);
            return None;
        }
        // Entries are evicted by the time of their last use.
        let _ = file.set_times(FileTimes::new().set_modified(SystemTime::now()));
        Some(bytes.into())
    }

    /// Adds a range of a version. A disk that fails keeps nothing.
    pub(crate) fn put(&self, object: &str, etag: &str, start: u64, bytes: &Bytes) {
        let len = bytes.len() as u64;
        if len == 0 || len > LONGEST.min(self.limit / PARTS) {
            return;
        }
        let Some(end) = start.checked_add(len) else { return };
        let range = start..end;
        let folder = self.folder(object, etag);
        if self.store(&folder, object, etag, &range, bytes).is_err() {
            return;
        }
        if let Some(known) = self.known().get_mut(&folder) {
            known.insert(range);
        }
        let added = self.added.fetch_add(len, Ordering::Relaxed) + len;
        if added >= self.limit / PARTS {
            self.added.store(0, Ordering::Relaxed);
            self.shrink();
        }
    }

    /// Entity tag and length of the version of an object that was added last.
    pub(crate) fn latest(&self, object: &str) -> Option<(String, u64)> {
        let note = self.get(object, LATEST, &(0..NOTE as u64))?;
        let (len, etag) = note.split_at_checked(8)?;
        let etag = std::str::from_utf8(etag).ok()?.trim_end_matches('\0');
        Some((etag.to_owned(), u64::from_le_bytes(len.try_into().ok()?)))
    }

    /// Notes the version of an object that is added.
    pub(crate) fn note(&self, object: &str, etag: &str, len: u64) {
        let mut noted = self.noted.lock().unwrap_or_else(PoisonError::into_inner);
        if etag.len() > NOTE - 8 || noted.get(object).is_some_and(|held| held == etag) {
            return;
        }
        noted.insert(object.to_owned(), etag.to_owned());
        drop(noted);
        if self.latest(object).is_some_and(|(held, _)| held == etag) {
            return;
        }
        let mut note = len.to_le_bytes().to_vec();
        note.extend(etag.bytes());
        note.resize(NOTE, 0);
        self.put(object, LATEST, 0, &note.into());
    }

    fn store(
        &self,
        folder: &Path,
        object: &str,
        etag: &str,
        range: &Range<u64>,
        bytes: &[u8],
    ) -> std::io::Result<()> {
        // The bytes can be readable by this user alone.
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut file = tempfile::Builder::new().prefix(".tesseral-").tempfile_in(folder)?;
        file.write_all(MAGIC)?;
        file.write_all(&self.digest(object, etag, Some((range, bytes))).to_le_bytes())?;
        file.write_all(bytes)?;
        // Not synced: after a crash of the machine the digest detects incomplete files.
        file.persist(folder.join(file_name(range)))?;
        Ok(())
    }

    /// Removes the entries that were used longest ago until the limit holds.
    fn shrink(&self) {
        let mut entries = Vec::new();
        for version in folders_in(&self.root).iter().flat_map(|folder| folders_in(folder)) {
            let files = fs::read_dir(version).into_iter().flatten().flatten();
            entries.extend(files.filter_map(|entry| {
                let metadata = entry.metadata().ok().filter(fs::Metadata::is_file)?;
                Some((metadata.modified().ok()?, metadata.len(), entry.path()))
            }));
        }
        entries.sort_unstable();
        let mut size: u64 = entries.iter().map(|(_, len, _)| *len).fold(0, u64::saturating_add);
        let wanted = self.limit - self.limit / PARTS;
        for (_, len, path) in entries {
            if size <= wanted {
                break;
            }
            // Another process may have removed it.
            let _ = fs::remove_file(&path);
            // Only succeeds for the last entry of a version.
            let _ = path.parent().map(fs::remove_dir);
            size = size.saturating_sub(len);
        }
        self.known().clear();
    }
}

fn file_name(range: &Range<u64>) -> String {
    format!("{:x}-{:x}", range.start, range.end)
}

/// Ranges of the entries in a folder.
fn ranges_in(folder: &Path) -> KnownRanges {
    let parse = |name: &str| {
        let (start, end) = name.split_once('-')?;
        let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        (range.start < range.end && range.end - range.start <= LONGEST).then_some(range)
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut ranges = KnownRanges::default();
    for range in entries.filter_map(|entry| parse(entry.file_name().to_str()?)) {
        ranges.insert(range);
    }
    ranges
}

fn folders_in(folder: &Path) -> Vec<PathBuf> {
    // The folder can hold other files: only names of cache entries are considered.
    let own = |name: &str| name.len() >= 2 && name.bytes().all(|b| b.is_ascii_hexdigit());
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(own))
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(folder: &Path, limit: u64) -> Cache {
        Cache::new(&CacheFolder::new(folder).with_size(limit), "s3://bucket".to_owned())
    }

    fn files(folder: &Path) -> Vec<PathBuf> {
        let below: Vec<_> = folders_in(folder).iter().flat_map(|f| folders_in(f)).collect();
        below.iter().flat_map(|f| fs::read_dir(f).unwrap()).map(|e| e.unwrap().path()).collect()
    }

    #[test]
    fn ranges_are_found_by_object_and_version_in_other_processes_too() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = Bytes::from((0..100).collect::<Vec<u8>>());
        cache(folder.path(), 1 << 20).put("a", "1", 1000, &bytes);
        let other = cache(folder.path(), 1 << 20);
        assert_eq!(other.get("a", "1", &(1010..1020)).unwrap(), bytes.slice(10..20));
        for (object, etag, range) in
            [("a", "1", 999..1010), ("a", "1", 1090..1101), ("a", "2", 1010..1020), ("b", "1", 1010..1020)]
        {
            assert_eq!(other.get(object, etag, &range), None);
        }
    }

    #[test]
    fn ranges_are_found_as_by_a_search_of_all() {
        let mut state = 1_u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for _ in 0..50 {
            let (mut known, mut all) = (KnownRanges::default(), Vec::new());
            for _ in 0..40 {
                let start = random(100);
                let range = start..start + 1 + random(30);
                known.insert(range.clone());
                all.push(range);
                let wanted = random(110);
                let wanted = wanted..wanted + 1 + random(20);
                let contains = |held: &Range<u64>| held.start <= wanted.start && wanted.end <= held.end;
                let found = known.find(&wanted);
                assert_eq!(found.is_some(), all.iter().any(contains), "{wanted:?} in {all:?}");
                assert!(found.is_none_or(|held| contains(&held) && all.contains(&held)));
            }
        }
    }

    #[test]
    fn the_latest_version_is_noted() {
        let folder = tempfile::tempdir().unwrap();
        let held = cache(folder.path(), 1 << 20);
        assert_eq!(held.latest("a"), None);
        for (etag, len) in [("\"one\"", 7), ("\"two\"", 1 << 40)] {
            held.note("a", etag, len);
            assert_eq!(cache(folder.path(), 1 << 20).latest("a"), Some((etag.to_owned(), len)));
        }
        held.note("b", &"x".repeat(NOTE), 1);
        assert_eq!(held.latest("b"), None);
    }

    #[test]
    fn damaged_and_exchanged_entries_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let held = cache(folder.path(), 1 << 20);
        held.put("a", "1", 0, &Bytes::from(vec![7; 100]));
        let [path] = files(folder.path()).try_into().unwrap();
        let whole = fs::read(&path).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            assert_eq!(held.get("a", "1", &(0..100)), None, "byte {at}");
            assert!(!path.exists());
        }
        for len in [0, HEADER, whole.len() - 1] {
            fs::write(&path, &whole[..len]).unwrap();
            assert_eq!(held.get("a", "1", &(0..100)), None);
        }
        fs::write(path.with_file_name("64-c8"), &whole).unwrap();
        assert_eq!(held.get("a", "1", &(100..200)), None);
        fs::write(&path, &whole).unwrap();
        assert!(held.get("a", "1", &(0..100)).is_some());
    }

    #[test]
    fn the_size_stays_below_the_limit() {
        let folder = tempfile::tempdir().unwrap();
        let held = cache(folder.path(), 80_000);
        for at in 0..50 {
            held.put("a", "1", at * 10_000, &Bytes::from(vec![1; 5000]));
            let size: u64 = files(folder.path()).iter().map(|f| f.metadata().unwrap().len()).sum();
            assert!(size <= 80_000, "{size}");
        }
        assert!(held.get("a", "1", &(490_000..495_000)).is_some());
        assert_eq!(held.get("a", "1", &(0..5000)), None);
        // Larger than a part of the limit.
        held.put("b", "1", 0, &Bytes::from(vec![1; 20_000]));
        assert_eq!(held.get("b", "1", &(0..20_000)), None);
    }

    #[test]
    fn a_folder_that_cannot_be_written_keeps_nothing() {
        let held = cache(Path::new("/dev/null/cache"), 80_000);
        held.put("a", "1", 0, &Bytes::from_static(b"x"));
        assert_eq!(held.get("a", "1", &(0..1)), None);
    }
}
