//! Local files.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::ErrorKind as IoKind;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};

use bytes::Bytes;
use rustix::fs::OFlags;
use tesseral_core::{Error, Result};

use crate::durability::{Durability, Unsynced};
use crate::folder::{Folder, FolderEntry, parent};
use crate::handles;
use crate::identity::OpenFile;
use crate::leftover;
use crate::sigbus::{MapRegistry, Mapped, OperationGuard};
use crate::staged_path::StagedPath;
use crate::store::{
    ByteRange, ObjectBytes, ObjectInfo, ObjectKind, Overwrite, Staged, Store, StoreExt, check_inside,
    check_range, slice,
};
use crate::unpublished::Unpublished;

/// How a [`LocalStore`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ReadMode {
    /// Memory-map files and borrow from the map. Fastest. If another process truncates a file, the operation that reads it
    /// returns an error; views that are accessed after the operation can still end the process by a signal.
    #[default]
    Map,
    /// Read with `pread` into new buffers. For files that other processes write to, and for network file systems.
    Read,
}

/// A file, or a folder with everything below it.
#[derive(Debug)]
pub struct LocalStore {
    root: PathBuf,
    location: String,
    access: ReadMode,
    /// Open files by object name. A container has few objects open at once; folders of many small objects are read completely.
    open: Arc<OpenFiles>,
    /// Folders that staged objects have open, by name: objects of one folder share its handle.
    folders: Mutex<HashMap<String, Weak<Folder>>>,
    watcher: Arc<MapRegistry>,
    /// Files to synchronize later, if objects need not be durable when they are published.
    unsynced: Option<Arc<Unsynced>>,
    /// Whether leftovers of earlier writers have been removed, which happens before the first object is staged.
    swept: Once,
}

/// Open files, each with the number of its last use.
#[derive(Debug, Default)]
struct RecentFiles {
    files: HashMap<String, (Arc<MappedFile>, u64)>,
    uses: u64,
}

impl RecentFiles {
    fn get(&mut self, object: &str) -> Option<Arc<MappedFile>> {
        let (opened, used) = self.files.get_mut(object)?;
        self.uses += 1;
        *used = self.uses;
        Some(Arc::clone(opened))
    }

    /// Adds a file. If the cache is full, returns the least recently used file, to be closed.
    #[must_use]
    fn insert(&mut self, object: &str, opened: Arc<MappedFile>) -> Option<Arc<MappedFile>> {
        let mut closed = None;
        if self.files.len() >= handles::most_kept() {
            let oldest = self.files.iter().min_by_key(|(_, (_, used))| *used).map(|(name, _)| name.clone());
            closed = oldest.and_then(|name| self.files.remove(&name)).map(|(opened, _)| opened);
        }
        self.uses += 1;
        self.files.insert(object.to_owned(), (opened, self.uses));
        closed
    }
}

/// Open files by object name.
#[derive(Debug, Default)]
struct OpenFiles(Mutex<RecentFiles>);

impl OpenFiles {
    fn lock(&self) -> MutexGuard<'_, RecentFiles> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl handles::HandleCache for OpenFiles {
    fn close_all(&self) {
        // Closing compares file states, which must not happen under the lock.
        let closed = std::mem::take(&mut *self.lock());
        drop(closed);
    }
}

#[derive(Debug)]
struct MappedFile {
    file: Arc<OpenFile>,
    map: FileMap,
}

#[derive(Debug)]
enum FileMap {
    None,
    /// Empty files cannot be mapped.
    Empty,
    Whole {
        bytes: Bytes,
        mapped: Arc<Mapped>,
    },
}

/// Number of files read concurrently.
const MAX_WAITING: usize = 8;
/// Number of files read in the time needed to start a thread.
const WORTH_A_THREAD: usize = 32;

impl LocalStore {
    /// Creates a store rooted at a file or folder, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>, access: ReadMode) -> Self {
        let root = root.into();
        let location = root.display().to_string();
        let watcher = MapRegistry::new(location.clone());
        let open = Arc::new(OpenFiles::default());
        handles::share(&open);
        let (folders, unsynced) = (Mutex::default(), None);
        Self { location, root, access, open, folders, watcher, unsynced, swept: Once::new() }
    }

    /// Adds objects that are published to a list instead of making them durable: for a folder that is not visible itself.
    #[must_use]
    pub fn unsynced(mut self, list: Arc<Unsynced>) -> Self {
        self.unsynced = Some(list);
        self
    }

    /// Path of the file or folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Returns the path of an object. Rejects names outside the folder, because they can come from untrusted input.
    fn path(&self, object: &str) -> Result<PathBuf> {
        if object.is_empty() {
            return Ok(self.root.clone());
        }
        self.check_name(object)?;
        Ok(self.root.join(object))
    }

    fn check_name(&self, object: &str) -> Result<()> {
        check_inside(object, &self.location)
    }

    /// Returns the directory entry of an object to write or remove, creating its folder if `create` is set. Links are followed
    /// in the path of the root, which the caller chose, but not below it.
    fn entry(&self, object: &str, create: bool) -> Result<FolderEntry> {
        if object.is_empty() {
            return FolderEntry::of_path(&self.root);
        }
        self.check_name(object)?;
        let (folder, name) = object.rsplit_once('/').unwrap_or(("", object));
        Ok(self.folder(folder, create)?.entry(name))
    }

    /// Returns a folder below the root, shared with the entries that have it open.
    fn folder(&self, name: &str, create: bool) -> Result<Arc<Folder>> {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = folders.get(name).and_then(Weak::upgrade) {
            return Ok(folder);
        }
        let root = if create { Folder::create(&self.root)? } else { Folder::open(&self.root)? };
        let created = |folder: &Arc<Folder>| match &self.unsynced {
            Some(list) => list.add_folder(folder),
            None => folder.sync(),
        };
        let folder = Arc::new(root).below(name, create, &created)?;
        folders.retain(|_, folder| folder.strong_count() > 0);
        folders.insert(name.to_owned(), Arc::downgrade(&folder));
        Ok(folder)
    }

    /// Calls `remove`; missing entries and folders are not an error.
    fn remove_by(&self, object: &str, remove: impl FnOnce(&FolderEntry) -> Result<()>) -> Result<()> {
        self.forget(object);
        match self.entry(object, false).and_then(|entry| remove(&entry)) {
            Err(e) if is_missing(&e) => Ok(()),
            other => other,
        }
    }

    /// Leftovers of earlier writers next to the root and, if it is a folder, in it.
    fn leftover_entries(&self) -> Result<Vec<FolderEntry>> {
        let beside = Arc::new(Folder::open(parent(&self.root))?);
        let mut found = leftover::list(&beside, Some(self.root.file_name().unwrap_or_default()))?;
        if self.root.is_dir() {
            found.extend(leftover::list(&Arc::new(Folder::open(&self.root)?), None)?);
        }
        Ok(found)
    }

    fn io(&self, op: &'static str, object: &str, error: std::io::Error) -> Error {
        match error.kind() {
            IoKind::NotFound | IoKind::NotADirectory => {
                Error::not_found("file", self.describe(object), Vec::new())
            }
            // The length was checked before, so the file was truncated since.
            IoKind::UnexpectedEof => Error::corrupt(
                "file",
                self.describe(object),
                None,
                "the file was truncated while it was read",
            ),
            _ => Error::io(op, self.describe(object), error),
        }
    }

    /// Opens a file, or a folder. Pipes and devices are rejected: opening a pipe blocks until it has a writer, and its bytes cannot be
    /// read twice.
    fn open_file(&self, object: &str) -> Result<(File, fs::Metadata)> {
        let path = self.path(object)?;
        let special = |metadata: &fs::Metadata| !metadata.is_file() && !metadata.is_dir();
        let rejected = || {
            let what = format!("reading {}, a pipe or device", self.describe(object));
            Error::unsupported(what).hint("save it as a file first")
        };
        // Devices can act on being opened. Below the root they are checked when they are open: there can be thousands of files.
        if object.is_empty() && fs::metadata(&path).is_ok_and(|metadata| special(&metadata)) {
            return Err(rejected());
        }
        let open = || {
            let flags = OFlags::NONBLOCK.bits().cast_signed();
            fs::OpenOptions::new().read(true).custom_flags(flags).open(&path)
        };
        let file = handles::open(open).map_err(|e| self.io("open", object, e))?;
        let metadata = file.metadata().map_err(|e| self.io("stat", object, e))?;
        if special(&metadata) { Err(rejected()) } else { Ok((file, metadata)) }
    }

    fn opened(&self, object: &str) -> Result<Arc<MappedFile>> {
        let opened = self.kept_or_opened(object)?;
        opened.file.used_by(self.watcher.last_begun());
        Ok(opened)
    }

    fn kept_or_opened(&self, object: &str) -> Result<Arc<MappedFile>> {
        if let Some(opened) = self.open.lock().get(object) {
            return Ok(opened);
        }
        let (file, metadata) = self.open_file(object)?;
        let file = self.watcher.identities.opened(object, self.describe(object), file, &metadata)?;
        let scarce = handles::are_scarce();
        let map = match self.access {
            ReadMode::Map if metadata.is_file() && metadata.len() == 0 => FileMap::Empty,
            // Folders can be opened but not mapped.
            ReadMode::Map if metadata.is_file() && !scarce => {
                let mapped = Mapped::new(self.describe(object), Arc::clone(&file), &self.watcher);
                let mapped = mapped.map_err(|e| self.io("map", object, e))?;
                FileMap::Whole { bytes: mapped.bytes(), mapped }
            }
            _ => FileMap::None,
        };
        let opened = Arc::new(MappedFile { file, map });
        if !scarce {
            let mut open = self.open.lock();
            if let Some(other) = open.get(object) {
                // Another thread was faster.
                return Ok(other);
            }
            let closed = open.insert(object, Arc::clone(&opened));
            drop(open);
            drop(closed);
        }
        Ok(opened)
    }

    /// Closes an object that is about to be replaced or removed by this store.
    fn forget(&self, object: &str) {
        let closed = self.open.lock().files.remove(object);
        drop(closed);
        self.watcher.identities.forget(object);
    }

    /// Reads a part of a file once, without caching the handle or a map.
    fn read_once(&self, object: &str, part: &ByteRange) -> Result<ObjectBytes> {
        let (file, metadata) = self.open_file(object)?;
        let len = self.len_of(object, &metadata)?;
        let range = part.within(len);
        check_range(&range, len, &|| self.describe(object))?;
        let asked = range.end - range.start;
        let size = usize::try_from(asked).map_err(|_| Error::limit("one read", asked, usize::MAX as u64))?;
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, range.start).map_err(|e| self.io("read", object, e))?;
        self.watcher.identities.read_once(object, &self.describe(object), &metadata, &file)?;
        Ok(ObjectBytes { start: range.start, len, bytes: bytes.into() })
    }

    fn file_len(&self, object: &str, opened: &MappedFile) -> Result<u64> {
        let metadata = opened.file.file.metadata().map_err(|e| self.io("stat", object, e))?;
        self.len_of(object, &metadata)
    }

    fn len_of(&self, object: &str, metadata: &fs::Metadata) -> Result<u64> {
        if metadata.is_dir() {
            return Err(Error::io("read", self.describe(object), std::io::Error::from(IoKind::IsADirectory)));
        }
        Ok(metadata.len())
    }

    /// Returns the mapped bytes if the file still has the length of the map.
    fn mapped(opened: &MappedFile) -> Result<Option<Bytes>> {
        match &opened.map {
            FileMap::None => Ok(None),
            FileMap::Empty => Ok(Some(Bytes::new())),
            FileMap::Whole { bytes, mapped } => mapped.check_use().map(|()| Some(bytes.clone())),
        }
    }
}

impl Store for LocalStore {
    fn location(&self) -> &str {
        &self.location
    }

    fn len(&self, object: &str) -> Result<u64> {
        let opened = self.opened(object)?;
        match &opened.map {
            FileMap::None => self.file_len(object, &opened),
            FileMap::Empty => Ok(0),
            FileMap::Whole { bytes, .. } => Ok(bytes.len() as u64),
        }
    }

    fn read_many(&self, object: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let opened = self.opened(object)?;
        if let Some(map) = Self::mapped(&opened)? {
            return ranges.iter().map(|range| slice(&map, range, || self.describe(object))).collect();
        }
        let len = self.file_len(object, &opened)?;
        let mut out = Vec::with_capacity(ranges.len());
        for range in ranges {
            check_range(range, len, &|| self.describe(object))?;
            let size = usize::try_from(range.end - range.start)
                .map_err(|_| Error::limit("one read", range.end - range.start, usize::MAX as u64))?;
            let mut bytes = vec![0; size];
            opened
                .file
                .file
                .read_exact_at(&mut bytes, range.start)
                .map_err(|e| self.io("read", object, e))?;
            out.push(bytes.into());
        }
        Ok(out)
    }

    fn beside(&self, name: &str) -> Result<Arc<dyn Store>> {
        self.check_name(name)?;
        let folder = self.root.parent().unwrap_or(Path::new(""));
        Ok(Arc::new(Self::new(folder.join(name), ReadMode::Read)))
    }

    fn resident(&self, object: &str) -> Result<Option<Bytes>> {
        Self::mapped(&*self.opened(object)?)
    }

    fn watch(&self) -> Result<OperationGuard> {
        self.watcher.watch()
    }

    fn release(&self, object: &str) {
        let open = self.open.lock().get(object);
        if let Some(FileMap::Whole { mapped, .. }) = open.as_deref().map(|opened| &opened.map) {
            mapped.release();
        }
    }

    fn view(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        match &self.opened(object)?.map {
            FileMap::Whole { mapped, .. } => slice(&mapped.view()?, &range, || self.describe(object)),
            FileMap::None | FileMap::Empty => self.read(object, range),
        }
    }

    fn read_objects(&self, reads: &[(&str, ByteRange)]) -> Result<Vec<ObjectBytes>> {
        let some = |reads: &[(&str, ByteRange)]| -> Result<Vec<ObjectBytes>> {
            reads.iter().map(|(object, part)| self.read_once(object, part)).collect()
        };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = cores.min(MAX_WAITING).min(reads.len() / WORTH_A_THREAD);
        if threads < 2 {
            return some(reads);
        }
        std::thread::scope(|scope| {
            let shares = reads.chunks(reads.len().div_ceil(threads));
            let running: Vec<_> = shares.map(|share| scope.spawn(move || some(share))).collect();
            let mut found = Vec::with_capacity(reads.len());
            for share in running {
                found.extend(share.join().map_err(|_| Error::internal("a reader thread panicked"))??);
            }
            Ok(found)
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        let mut found = Vec::new();
        let path = self.path(folder)?;
        let entries = handles::open(|| fs::read_dir(&path)).map_err(|e| self.io("list", folder, e))?;
        for entry in entries {
            let entry = entry.map_err(|e| self.io("list", folder, e))?;
            // No supported format uses names that are not UTF-8.
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Unpublished entries are not objects.
            if name.starts_with(leftover::PREFIX) {
                continue;
            }
            // Use the type from the listing instead of a call per entry: there can be thousands.
            let kind = entry.file_type().map_err(|e| self.io("stat", &name, e))?;
            let kind = match (kind.is_symlink(), kind.is_dir()) {
                (false, true) => ObjectKind::Folder,
                (false, false) => ObjectKind::File,
                (true, _) => match fs::metadata(entry.path()) {
                    Ok(target) => ObjectKind::Link { folder: target.is_dir() },
                    // A dangling link.
                    Err(e) if e.kind() == IoKind::NotFound => continue,
                    Err(e) => return Err(self.io("stat", &name, e)),
                },
            };
            found.push(ObjectInfo::new(name, kind));
        }
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn leftovers(&self) -> Result<Vec<String>> {
        let inside = |entry: &FolderEntry| match entry.path().strip_prefix(&self.root) {
            Ok(name) => name.to_string_lossy().into_owned(),
            Err(_) => entry.path().to_string_lossy().into_owned(),
        };
        Ok(self.leftover_entries()?.iter().map(inside).collect())
    }

    fn remove_leftovers(&self) -> Result<()> {
        self.leftover_entries()?.iter().try_for_each(FolderEntry::remove_tree)
    }

    fn stage(&self, object: &str, overwrite: Overwrite) -> Result<Box<dyn Staged>> {
        self.forget(object);
        let target = self.entry(object, true)?;
        // Objects of a folder are staged in the folder itself, because readers of subfolders can interpret any file as their
        // own.
        let beside = match object.is_empty() {
            true => target.clone(),
            false => self.folder("", true)?.entry("object"),
        };
        self.swept.call_once(|| {
            let only = object.is_empty().then(|| target.name());
            leftover::sweep(beside.folder(), only);
        });
        Ok(Box::new(StagedPath::object(target, &beside, overwrite, self.unsynced.clone())?))
    }

    fn remove(&self, object: &str) -> Result<()> {
        self.remove_by(object, FolderEntry::remove)
    }

    fn remove_all(&self, object: &str) -> Result<()> {
        self.remove_by(object, FolderEntry::remove_tree)
    }

    fn deferred(&self) -> Option<(Arc<dyn Store>, Arc<Unsynced>)> {
        if self.unsynced.is_some() {
            return None;
        }
        let list = Unsynced::new(Durability::Full);
        Some((Arc::new(Self::new(&self.root, self.access).unsynced(Arc::clone(&list))), list))
    }

    fn unpublished(&self, object: &str) -> Option<Unpublished> {
        self.path(object).ok().map(Unpublished::new)
    }
}

fn is_missing(error: &Error) -> bool {
    matches!(error.kind(), tesseral_core::ErrorKind::Io { source, .. } if source.kind() == IoKind::NotFound)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::ErrorKind;

    fn store(access: ReadMode) -> (tempfile::TempDir, LocalStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::new(folder.path(), access);
        (folder, store)
    }

    #[test]
    fn both_access_modes_agree() {
        for access in [ReadMode::Map, ReadMode::Read] {
            let (_folder, store) = store(access);
            store.put("a/b", b"0123456789", Overwrite::Refuse).unwrap();
            let parts = store.read_many("a/b", &[1..3, 0..0, 8..10]).unwrap();
            assert_eq!(parts, [&b"12"[..], b"", b"89"]);
            let past = store.read("a/b", 5..11).unwrap_err();
            assert!(matches!(past.kind(), ErrorKind::Corrupt { .. }));
            assert!(matches!(store.len("a/c").unwrap_err().kind(), ErrorKind::NotFound { .. }));
            assert!(matches!(store.len("../x").unwrap_err().kind(), ErrorKind::InvalidRequest { .. }));
        }
    }

    /// A folder from elsewhere can have a pipe in the place of a chunk: opening it would block.
    #[test]
    fn pipes_are_rejected_in_any_place() {
        for access in [ReadMode::Map, ReadMode::Read] {
            let (folder, store) = store(access);
            fs::create_dir(folder.path().join("c")).unwrap();
            rustix::fs::mkfifoat(
                rustix::fs::CWD,
                folder.path().join("c/0"),
                rustix::fs::Mode::from_raw_mode(0o600),
            )
            .unwrap();
            let whole = LocalStore::new(folder.path().join("c/0"), access);
            let tail = [("c/0", ByteRange::Suffix(5))];
            let errors = [
                store.len("c/0").unwrap_err(),
                store.read_objects(&tail).unwrap_err(),
                whole.len("").unwrap_err(),
            ];
            for error in errors {
                assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
            }
        }
    }

    #[test]
    fn tails_of_many_files_are_returned_in_order() {
        let (_folder, store) = store(ReadMode::Map);
        let names: Vec<String> = (0..200).map(|i| format!("f{i}")).collect();
        for (i, name) in names.iter().enumerate() {
            store.put(name, format!("{i}").repeat(i).as_bytes(), Overwrite::Refuse).unwrap();
        }
        let mut tails: Vec<_> = names.iter().map(|name| (name.as_str(), ByteRange::Suffix(5))).collect();
        for (i, tail) in store.read_objects(&tails).unwrap().iter().enumerate() {
            let all = format!("{i}").repeat(i);
            let expected = &all.as_bytes()[all.len().saturating_sub(5)..];
            assert_eq!((tail.len, &tail.bytes[..]), (all.len() as u64, expected));
        }
        tails.push(("none", ByteRange::Suffix(5)));
        assert!(matches!(store.read_objects(&tails).unwrap_err().kind(), ErrorKind::NotFound { .. }));
    }

    #[test]
    fn a_file_written_to_while_it_is_read_fails_the_operation() {
        for access in [ReadMode::Map, ReadMode::Read] {
            for evicted in [false, true] {
                let (folder, store) = store(access);
                store.put("f", &[1; 10_000], Overwrite::Refuse).unwrap();
                let read = |at: u64| store.guarded(|| store.read("f", at..at + 1).map(|b| b[0]));
                assert_eq!(read(0).unwrap(), 1);
                assert_eq!(read(9_000).unwrap(), 1);
                let file = File::options().write(true).open(folder.path().join("f")).unwrap();
                file.write_all_at(&[2; 5_000], 5_000).unwrap();
                if evicted {
                    handles::HandleCache::close_all(&*store.open);
                }
                let error = read(0).unwrap_err();
                let expected = folder.path().join("f").display().to_string();
                assert!(
                    matches!(error.kind(), ErrorKind::Changed { object, .. } if *object == expected),
                    "{error}"
                );
            }
        }
    }

    #[test]
    fn a_change_detected_on_close_fails_the_operation() {
        let (folder, store) = store(ReadMode::Read);
        store.put("f", &[1; 10_000], Overwrite::Refuse).unwrap();
        let result = store.guarded(|| {
            store.read("f", 0..1)?;
            File::options().write(true).open(folder.path().join("f")).unwrap().write_all_at(&[2], 0).unwrap();
            handles::HandleCache::close_all(&*store.open);
            Ok::<_, Error>(())
        });
        assert!(matches!(result.unwrap_err().kind(), ErrorKind::Changed { .. }));
    }

    #[test]
    fn replaced_or_removed_files_do_not_affect_an_operation() {
        for access in [ReadMode::Map, ReadMode::Read] {
            let (folder, store) = store(access);
            store.put("f", b"old", Overwrite::Refuse).unwrap();
            let result = store.guarded(|| {
                store.read("f", 0..1)?;
                LocalStore::new(folder.path(), access).put("f", b"new", Overwrite::Replace)?;
                store.read("f", 0..3)
            });
            assert_eq!(&result.unwrap()[..], b"old");
            fs::remove_file(folder.path().join("f")).unwrap();
            assert_eq!(&store.guarded(|| store.read("f", 0..3)).unwrap()[..], b"old");
        }
    }

    #[test]
    fn reopening_an_object_that_is_another_file_is_an_error() {
        let (folder, store) = store(ReadMode::Read);
        store.put("f", b"old", Overwrite::Refuse).unwrap();
        store.read("f", 0..1).unwrap();
        handles::HandleCache::close_all(&*store.open);
        LocalStore::new(folder.path(), ReadMode::Read).put("f", b"new", Overwrite::Replace).unwrap();
        assert!(matches!(store.read("f", 1..2).unwrap_err().kind(), ErrorKind::Changed { .. }));
        // Replacement by the store itself is not an error.
        store.put("f", b"own", Overwrite::Replace).unwrap();
        assert_eq!(&store.read("f", 0..3).unwrap()[..], b"own");
    }

    #[test]
    fn growing_files_can_grow_but_not_change() {
        for access in [ReadMode::Map, ReadMode::Read] {
            let (folder, inner) = store(access);
            let inner: Arc<dyn Store> = Arc::new(inner);
            inner.put("f", &[1; 100], Overwrite::Refuse).unwrap();
            let store = crate::Growing(Arc::clone(&inner));
            assert_eq!(store.guarded(|| store.read("f", 0..1)).unwrap()[0], 1);
            let file = File::options().write(true).open(folder.path().join("f")).unwrap();
            file.write_all_at(&[2; 100], 100).unwrap();
            assert_eq!(store.guarded(|| store.read("f", 99..100)).unwrap()[0], 1);
            assert!(inner.guarded(|| inner.read("f", 99..100)).is_err());
            file.set_len(50).unwrap();
            assert!(store.guarded(|| store.read("f", 0..1)).is_err());
        }
    }

    #[test]
    fn a_file_truncated_while_mapped_is_an_error() {
        let (folder, store) = store(ReadMode::Map);
        store.put("f", &[1; 10_000], Overwrite::Refuse).unwrap();
        assert_eq!(store.read("f", 9_000..9_001).unwrap()[0], 1);
        File::options().write(true).open(folder.path().join("f")).unwrap().set_len(10).unwrap();
        assert!(matches!(store.read("f", 9_000..9_001).unwrap_err().kind(), ErrorKind::Corrupt { .. }));
    }

    #[test]
    fn leftovers_of_ended_processes_are_found_beside_and_inside() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("a");
        let store = LocalStore::new(&root, ReadMode::Map);
        let _making = store.stage("f", Overwrite::Refuse).unwrap();
        assert_eq!(store.leftovers().unwrap(), [""; 0]);
        // Names of an unknown process, unchanged for long.
        let names = [
            "a/.tesseral-f.4294967295.0.tmp",
            ".tesseral-a.4294967295.0.staged",
            ".tesseral-b.4294967295.0.tmp",
        ];
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(100 * 60 * 60);
        for name in names {
            let path = folder.path().join(name);
            match name.ends_with(".staged") {
                true => fs::create_dir(&path).unwrap(),
                false => fs::write(&path, b"x").unwrap(),
            }
            File::open(&path).unwrap().set_modified(long_ago).unwrap();
        }
        let file = LocalStore::new(folder.path().join("b"), ReadMode::Map);
        file.put("", b"1", Overwrite::Refuse).unwrap();
        assert_eq!(store.leftovers().unwrap().len(), 2);
        assert_eq!(file.leftovers().unwrap().len(), 1);
        store.remove_leftovers().unwrap();
        file.remove_leftovers().unwrap();
        assert!(store.leftovers().unwrap().is_empty() && file.leftovers().unwrap().is_empty());
        assert_eq!(names.map(|name| folder.path().join(name).exists()), [false; 3]);
    }

    /// A folder outside, with links to it and to its file from inside the store.
    fn linked() -> (tempfile::TempDir, LocalStore, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs::create_dir_all(outside.join("inner")).unwrap();
        fs::write(outside.join("keep"), "kept").unwrap();
        let root = folder.path().join("root");
        fs::create_dir_all(root.join("real")).unwrap();
        for (target, link) in [("", "link"), ("keep", "file"), ("", "real/link"), ("nothing", "dangling")] {
            std::os::unix::fs::symlink(outside.join(target), root.join(link)).unwrap();
        }
        (folder, LocalStore::new(root, ReadMode::Map), outside)
    }

    #[test]
    fn listings_report_links_as_links() {
        let (_folder, store, _) = linked();
        let kinds: Vec<_> = store.list("").unwrap().into_iter().map(|e| (e.name, e.kind)).collect();
        let expected = [
            ("file", ObjectKind::Link { folder: false }),
            ("link", ObjectKind::Link { folder: true }),
            ("real", ObjectKind::Folder),
        ];
        assert_eq!(kinds, expected.map(|(name, kind)| (name.to_owned(), kind)));
        assert_eq!(&store.read("file", 0..4).unwrap()[..], b"kept");
    }

    #[test]
    fn nothing_is_removed_or_written_through_a_link() {
        for by_default in [false, true] {
            let (_folder, store, outside) = linked();
            let remove_all = |object: &str| match by_default {
                // As in stores without their own recursive removal.
                true => crate::test_wrappers::Wrapped::new(
                    Arc::new(LocalStore::new(store.root(), ReadMode::Map)),
                    Arc::new(crate::test_wrappers::Counting::default()),
                )
                .remove_all(object),
                false => store.remove_all(object),
            };
            for object in ["link/keep", "link/inner", "real/link/keep"] {
                let refused =
                    [store.remove(object), remove_all(object), store.put(object, b"x", Overwrite::Replace)];
                for refused in refused {
                    assert!(
                        matches!(refused.unwrap_err().kind(), ErrorKind::InvalidRequest { .. }),
                        "{object}"
                    );
                }
            }
            for object in ["link", "file", "dangling", "real"] {
                remove_all(object).unwrap();
                assert!(fs::symlink_metadata(store.root().join(object)).is_err(), "{object}");
            }
            assert_eq!(fs::read_to_string(outside.join("keep")).unwrap(), "kept");
            assert!(outside.join("inner").is_dir());
        }
    }

    #[test]
    fn only_the_least_recently_used_file_is_closed() {
        let (_folder, store) = store(ReadMode::Read);
        let most = handles::most_kept();
        for i in 0..=most {
            store.put(&format!("f{i}"), b"1", Overwrite::Refuse).unwrap();
        }
        for i in 0..most {
            store.len(&format!("f{i}")).unwrap();
        }
        store.len("f0").unwrap();
        store.len(&format!("f{most}")).unwrap();
        let open = store.open.lock();
        assert_eq!(open.files.len(), most);
        assert!(
            open.files.contains_key("f0") && !open.files.contains_key("f1") && open.files.contains_key("f2")
        );
    }

    #[test]
    fn staged_objects_are_published_atomically() {
        let (folder, store) = store(ReadMode::Map);
        let staged = store.stage("f", Overwrite::Refuse).unwrap();
        staged.write_at(4, b"efgh").unwrap();
        staged.write_at(0, b"abcd").unwrap();
        assert!(!store.exists("f").unwrap());
        drop(staged);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "a dropped object is removed");

        store.put("f", b"old", Overwrite::Refuse).unwrap();
        assert!(store.stage("f", Overwrite::Refuse).is_err());
        store.put("f", b"newer", Overwrite::Replace).unwrap();
        assert_eq!(&store.read_all("f", 100).unwrap()[..], b"newer");
        assert!(matches!(
            store.read_all("f", 4).unwrap_err().kind(),
            ErrorKind::Limit { asked: 5, allowed: 4, .. }
        ));
    }
}
