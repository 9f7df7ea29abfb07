//! Files on this machine.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::ErrorKind as IoKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tesseral_core::{Error, Result};

use crate::guard::{Mapped, Watch, Watcher};
use crate::publish::StagedFile;
use crate::store::{ObjectInfo, Overwrite, Staged, Store, StoreExt, check_range, slice};
use crate::unpublished::Unpublished;

/// How a [`LocalStore`] reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Access {
    /// Map files and borrow from the map. Fastest. A file that another process cuts is an error to the operation that reads it; bytes
    /// that were given out as a view can still end ours by a signal when they are touched after that.
    #[default]
    Map,
    /// Read with `pread` into fresh memory. For files that others write to, and for network file systems.
    Read,
}

/// A file, or a folder with everything below it.
#[derive(Debug)]
pub struct LocalStore {
    root: PathBuf,
    location: String,
    access: Access,
    /// Open files by object name. A container holds few objects open at once; folders of many small ones are read whole.
    open: Mutex<HashMap<String, Arc<Opened>>>,
    watcher: Arc<Watcher>,
}

#[derive(Debug)]
struct Opened {
    file: Arc<File>,
    map: Map,
}

#[derive(Debug)]
enum Map {
    None,
    /// Empty files need no map.
    Empty,
    Whole {
        bytes: Bytes,
        mapped: Arc<Mapped>,
    },
}

/// Beyond this many open files the oldest handles are let go.
const MAX_OPEN: usize = 256;
/// Files that are waited for at once.
const MAX_WAITING: usize = 8;
/// Files that are read in the time a thread takes to begin.
const WORTH_A_THREAD: usize = 32;

impl LocalStore {
    /// A store rooted at a file or folder, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>, access: Access) -> Self {
        let root = root.into();
        let location = root.display().to_string();
        let watcher = Watcher::new(location.clone());
        Self { location, root, access, open: Mutex::default(), watcher }
    }

    /// The file or folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path of an object. Names that would leave the folder are refused: they may come from a file.
    fn path(&self, object: &str) -> Result<PathBuf> {
        if object.is_empty() {
            return Ok(self.root.clone());
        }
        let escapes = object.split('/').any(|part| matches!(part, "" | "." | "..") || part.contains('\0'));
        if escapes {
            return Err(Error::invalid(format!(
                "{object:?} does not name an object below {}",
                self.location
            )));
        }
        Ok(self.root.join(object))
    }

    fn io(&self, op: &'static str, object: &str, error: std::io::Error) -> Error {
        match error.kind() {
            IoKind::NotFound | IoKind::NotADirectory => {
                Error::not_found("file", self.describe(object), Vec::new())
            }
            // The length was checked before: the file was truncated since.
            IoKind::UnexpectedEof => {
                Error::corrupt("file", self.describe(object), None, "it was truncated while it was read")
            }
            _ => Error::io(op, self.describe(object), error),
        }
    }

    fn opened(&self, object: &str) -> Result<Arc<Opened>> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opened) = open.get(object) {
            return Ok(Arc::clone(opened));
        }
        let path = self.path(object)?;
        // Opening a pipe waits for its writer, and nothing of it can be read twice.
        if object.is_empty() && std::fs::metadata(&path).is_ok_and(|m| !m.is_file() && !m.is_dir()) {
            let what = format!("reading {}, a pipe or device", self.describe(object));
            return Err(Error::unsupported(what).hint("save it as a file first"));
        }
        let file = Arc::new(File::open(path).map_err(|e| self.io("open", object, e))?);
        let map = match (self.access, file.metadata()) {
            (Access::Map, Ok(metadata)) if metadata.is_file() && metadata.len() == 0 => Map::Empty,
            // Folders open but do not map; they hold no bytes of their own.
            (Access::Map, Ok(metadata)) if metadata.is_file() => {
                let mapped = Mapped::new(self.describe(object), Arc::clone(&file), &self.watcher);
                let mapped = mapped.map_err(|e| self.io("map", object, e))?;
                Map::Whole { bytes: mapped.bytes(), mapped }
            }
            _ => Map::None,
        };
        let opened = Arc::new(Opened { file, map });
        if open.len() >= MAX_OPEN {
            open.clear();
        }
        open.insert(object.to_owned(), Arc::clone(&opened));
        Ok(opened)
    }

    /// The end of a file, read once: neither the handle nor a map is worth keeping.
    fn tail(&self, object: &str, most: u64) -> Result<(u64, Bytes)> {
        let file = File::open(self.path(object)?).map_err(|e| self.io("open", object, e))?;
        let len = self.len_of(object, &file)?;
        let size = usize::try_from(len.min(most)).map_err(|_| Error::limit("one read", most, u64::MAX))?;
        let mut bytes = vec![0; size];
        file.read_exact_at(&mut bytes, len - size as u64).map_err(|e| self.io("read", object, e))?;
        Ok((len, bytes.into()))
    }

    fn file_len(&self, object: &str, opened: &Opened) -> Result<u64> {
        self.len_of(object, &opened.file)
    }

    fn len_of(&self, object: &str, file: &File) -> Result<u64> {
        let metadata = file.metadata().map_err(|e| self.io("stat", object, e))?;
        if metadata.is_dir() {
            return Err(Error::io("read", self.describe(object), std::io::Error::from(IoKind::IsADirectory)));
        }
        Ok(metadata.len())
    }

    /// The mapped bytes, if the file is still as long as the map.
    fn mapped(opened: &Opened) -> Result<Option<Bytes>> {
        match &opened.map {
            Map::None => Ok(None),
            Map::Empty => Ok(Some(Bytes::new())),
            Map::Whole { bytes, mapped } => mapped.give().map(|()| Some(bytes.clone())),
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
            Map::None => self.file_len(object, &opened),
            Map::Empty => Ok(0),
            Map::Whole { bytes, .. } => Ok(bytes.len() as u64),
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
            opened.file.read_exact_at(&mut bytes, range.start).map_err(|e| self.io("read", object, e))?;
            out.push(bytes.into());
        }
        Ok(out)
    }

    fn resident(&self, object: &str) -> Result<Option<Bytes>> {
        Self::mapped(&*self.opened(object)?)
    }

    fn watch(&self) -> Result<Watch> {
        self.watcher.watch()
    }

    fn view(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        match &self.opened(object)?.map {
            Map::Whole { mapped, .. } => slice(&mapped.view()?, &range, || self.describe(object)),
            Map::None | Map::Empty => self.read(object, range),
        }
    }

    fn tails(&self, objects: &[String], most: u64) -> Result<Vec<(u64, Bytes)>> {
        let some = |objects: &[String]| -> Result<Vec<(u64, Bytes)>> {
            objects.iter().map(|object| self.tail(object, most)).collect()
        };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let threads = cores.min(MAX_WAITING).min(objects.len() / WORTH_A_THREAD);
        if threads < 2 {
            return some(objects);
        }
        std::thread::scope(|scope| {
            let shares = objects.chunks(objects.len().div_ceil(threads));
            let running: Vec<_> = shares.map(|share| scope.spawn(move || some(share))).collect();
            let mut tails = Vec::with_capacity(objects.len());
            for share in running {
                tails.extend(share.join().map_err(|_| Error::invalid("a thread that read files ended"))??);
            }
            Ok(tails)
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.path(folder)?).map_err(|e| self.io("list", folder, e))? {
            let entry = entry.map_err(|e| self.io("list", folder, e))?;
            // Names that are not UTF-8 belong to no format we know.
            let Ok(name) = entry.file_name().into_string() else { continue };
            // What was never published is no object.
            if name.starts_with(crate::publish::PREFIX) {
                continue;
            }
            // What the listing itself tells saves asking for each: there may be thousands.
            let kind = entry.file_type().map_err(|e| self.io("stat", &name, e))?;
            let folder = match kind.is_symlink() {
                false => kind.is_dir(),
                true => match fs::metadata(entry.path()) {
                    Ok(target) => target.is_dir(),
                    // A dangling link.
                    Err(e) if e.kind() == IoKind::NotFound => continue,
                    Err(e) => return Err(self.io("stat", &name, e)),
                },
            };
            found.push(ObjectInfo { name, folder });
        }
        found.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(found)
    }

    fn leftovers(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.root).map_err(|e| self.io("list", "", e))? {
            let name = entry.map_err(|e| self.io("list", "", e))?.file_name();
            let Some(name) = name.to_str().filter(|name| crate::publish::is_leftover(name)) else { continue };
            found.push(name.to_owned());
        }
        found.sort();
        Ok(found)
    }

    fn stage(&self, object: &str, overwrite: Overwrite) -> Result<Box<dyn Staged>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(object);
        let target = self.path(object)?;
        // Objects of a folder wait in the folder itself, not in one below: what lists those may take any file for its own.
        let beside = if object.is_empty() { target.clone() } else { self.root.join("object") };
        Ok(Box::new(StagedFile::create(target, &beside, overwrite)?))
    }

    fn remove(&self, object: &str) -> Result<()> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(object);
        let path = self.path(object)?;
        let removed = match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => fs::remove_dir(&path),
            _ => fs::remove_file(&path),
        };
        match removed {
            Err(e) if e.kind() != IoKind::NotFound => Err(self.io("remove", object, e)),
            _ => Ok(()),
        }
    }

    fn unpublished(&self, object: &str) -> Option<Unpublished> {
        self.path(object).ok().map(Unpublished::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::ErrorKind;

    fn store(access: Access) -> (tempfile::TempDir, LocalStore) {
        let folder = tempfile::tempdir().unwrap();
        let store = LocalStore::new(folder.path(), access);
        (folder, store)
    }

    #[test]
    fn both_ways_of_reading_agree() {
        for access in [Access::Map, Access::Read] {
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

    #[test]
    fn tails_of_many_files_come_in_their_order() {
        let (_folder, store) = store(Access::Map);
        let names: Vec<String> = (0..200).map(|i| format!("f{i}")).collect();
        for (i, name) in names.iter().enumerate() {
            store.put(name, format!("{i}").repeat(i).as_bytes(), Overwrite::Refuse).unwrap();
        }
        let tails = store.tails(&names, 5).unwrap();
        for (i, (len, tail)) in tails.iter().enumerate() {
            let all = format!("{i}").repeat(i);
            assert_eq!((*len, &tail[..]), (all.len() as u64, &all.as_bytes()[all.len().saturating_sub(5)..]));
        }
        let missing = [&names[..], &["none".to_owned()]].concat();
        assert!(matches!(store.tails(&missing, 5).unwrap_err().kind(), ErrorKind::NotFound { .. }));
    }

    #[test]
    fn a_file_cut_while_mapped_is_an_error() {
        let (folder, store) = store(Access::Map);
        store.put("f", &[1; 10_000], Overwrite::Refuse).unwrap();
        assert_eq!(store.read("f", 9_000..9_001).unwrap()[0], 1);
        File::options().write(true).open(folder.path().join("f")).unwrap().set_len(10).unwrap();
        assert!(matches!(store.read("f", 9_000..9_001).unwrap_err().kind(), ErrorKind::Corrupt { .. }));
    }

    #[test]
    fn what_a_program_left_is_told_from_what_one_makes() {
        let (folder, store) = store(Access::Map);
        let _making = store.stage("f", Overwrite::Refuse).unwrap();
        assert_eq!(store.leftovers().unwrap(), [""; 0]);
        // No process has that number.
        let left = format!("{}f.{}.0.tmp", crate::publish::PREFIX, u32::MAX);
        fs::write(folder.path().join(&left), b"x").unwrap();
        assert_eq!(store.leftovers().unwrap(), [left.as_str()]);
        store.remove(&left).unwrap();
        assert_eq!(store.leftovers().unwrap(), [""; 0]);
    }

    #[test]
    fn staging_publishes_whole_objects_only() {
        let (folder, store) = store(Access::Map);
        let staged = store.stage("f", Overwrite::Refuse).unwrap();
        staged.write_at(4, b"efgh").unwrap();
        staged.write_at(0, b"abcd").unwrap();
        assert!(!store.exists("f").unwrap());
        drop(staged);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "an abandoned object leaves nothing");

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
