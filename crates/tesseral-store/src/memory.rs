//! A store in memory: the executable specification of [`Store`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tesseral_core::{Error, Result};

use crate::store::{ObjectInfo, ObjectKind, Overwrite, Staged, Store, StoreExt, check_inside, slice};

type Objects = Arc<Mutex<BTreeMap<String, Bytes>>>;

/// Objects in memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    location: String,
    objects: Objects,
}

fn lock(objects: &Objects) -> MutexGuard<'_, BTreeMap<String, Bytes>> {
    // The map of objects is never partially updated, so a panic elsewhere leaves it consistent.
    objects.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryStore {
    /// Creates an empty store; `location` is its name in errors.
    pub fn new(location: impl Into<String>) -> Self {
        Self { location: location.into(), objects: Objects::default() }
    }

    /// Creates a store with one object under the empty name, like a single file.
    pub fn with_object(location: impl Into<String>, bytes: impl Into<Bytes>) -> Self {
        let store = Self::new(location);
        store.insert("", bytes);
        store
    }

    /// Inserts or replaces an object.
    pub fn insert(&self, object: &str, bytes: impl Into<Bytes>) {
        lock(&self.objects).insert(object.to_owned(), bytes.into());
    }

    fn get(&self, object: &str) -> Result<Bytes> {
        let objects = lock(&self.objects);
        if let Some(bytes) = objects.get(object) {
            return Ok(bytes.clone());
        }
        let below = |name: &String| {
            object.is_empty() || name.strip_prefix(object).is_some_and(|n| n.starts_with('/'))
        };
        if objects.keys().any(below) {
            let folder = std::io::ErrorKind::IsADirectory.into();
            return Err(Error::io("read", self.describe(object), folder));
        }
        Err(Error::not_found("object", self.describe(object), Vec::new()))
    }
}

impl Store for MemoryStore {
    fn location(&self) -> &str {
        &self.location
    }

    fn len(&self, object: &str) -> Result<u64> {
        Ok(self.get(object)?.len() as u64)
    }

    fn read_many(&self, object: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let bytes = self.get(object)?;
        ranges.iter().map(|range| slice(&bytes, range, || self.describe(object))).collect()
    }

    fn resident(&self, object: &str) -> Result<Option<Bytes>> {
        self.get(object).map(Some)
    }

    /// The object of that name, as the only one of a store: files of a folder are objects of one store here.
    fn beside(&self, name: &str) -> Result<Arc<dyn Store>> {
        check_inside(name, &self.location)?;
        let store = Self::new(name);
        if let Some(bytes) = lock(&self.objects).get(name) {
            store.insert("", bytes.clone());
        }
        Ok(Arc::new(store))
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        let prefix = if folder.is_empty() { String::new() } else { format!("{folder}/") };
        let mut found: BTreeMap<String, ObjectInfo> = BTreeMap::new();
        for (name, bytes) in &*lock(&self.objects) {
            let Some(rest) = name.strip_prefix(&prefix).filter(|rest| !rest.is_empty()) else { continue };
            let entry = match rest.split_once('/') {
                Some((first, _)) => ObjectInfo::new(first, ObjectKind::Folder),
                None => {
                    ObjectInfo { len: Some(bytes.len() as u64), ..ObjectInfo::new(rest, ObjectKind::File) }
                }
            };
            found.insert(entry.name.clone(), entry);
        }
        if found.is_empty() && !folder.is_empty() {
            return Err(Error::not_found("folder", self.describe(folder), Vec::new()));
        }
        Ok(found.into_values().collect())
    }

    fn stage(&self, object: &str, overwrite: Overwrite) -> Result<Box<dyn Staged>> {
        let staged = StagedObject {
            objects: Arc::clone(&self.objects),
            described: self.describe(object),
            object: object.to_owned(),
            overwrite,
            bytes: Mutex::new(Vec::new()),
        };
        staged.refuse_existing()?;
        Ok(Box::new(staged))
    }

    fn remove(&self, object: &str) -> Result<()> {
        lock(&self.objects).remove(object);
        Ok(())
    }
}

#[derive(Debug)]
struct StagedObject {
    objects: Objects,
    object: String,
    described: String,
    overwrite: Overwrite,
    bytes: Mutex<Vec<u8>>,
}

impl StagedObject {
    fn refuse_existing(&self) -> Result<()> {
        if self.overwrite == Overwrite::Refuse && lock(&self.objects).contains_key(&self.object) {
            return Err(Error::invalid(format!("output {} already exists", self.described)));
        }
        Ok(())
    }
}

fn to_usize(n: u64) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::limit("an object in memory", n, usize::MAX as u64))
}

impl Staged for StagedObject {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut held = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let start = to_usize(offset)?;
        let end = start
            .checked_add(bytes.len())
            .ok_or_else(|| Error::limit("an object in memory", offset, usize::MAX as u64))?;
        if held.len() < end {
            held.resize(end, 0);
        }
        held[start..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        let held = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        let start = to_usize(offset)?;
        let part = start.checked_add(out.len()).and_then(|end| held.get(start..end));
        let short = || Error::io("read", &self.described, std::io::ErrorKind::UnexpectedEof.into());
        out.copy_from_slice(part.ok_or_else(short)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner).resize(to_usize(len)?, 0);
        Ok(())
    }

    fn publish(self: Box<Self>) -> Result<()> {
        self.refuse_existing()?;
        let bytes = std::mem::take(&mut *self.bytes.lock().unwrap_or_else(PoisonError::into_inner));
        lock(&self.objects).insert(self.object.clone(), bytes.into());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::ErrorKind;

    #[test]
    fn a_folder_is_neither_an_object_nor_missing() {
        let store = MemoryStore::new("m");
        assert!(matches!(store.len("").unwrap_err().kind(), ErrorKind::NotFound { .. }));
        store.insert("a/b", b"1".to_vec());
        for folder in ["", "a"] {
            assert!(matches!(store.len(folder).unwrap_err().kind(), ErrorKind::Io { .. }));
        }
        assert!(matches!(store.len("a/c").unwrap_err().kind(), ErrorKind::NotFound { .. }));
    }
}
