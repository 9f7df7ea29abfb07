//! The stores of the sources, behind one store: object `7:name` is the object `name` of source 7.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use bytes::Bytes;
use tesseral_core::{Error, ErrorKind, Result};
use tesseral_format::{ContainerSource, OpenOptions};
use tesseral_store::{
    ByteRange, Location, ObjectBytes, ObjectInfo, Overwrite, Profile, ReadMode, Staged, StorageOptions, Store,
};
use xxhash_rust::xxh3::xxh3_64;

use crate::format::FindFormat;
use crate::wire::IndexedSource;

/// Properties of a source that are compared before reading, to detect changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SourceState {
    /// Length of a file in bytes; `None` for folders.
    pub len: Option<u64>,
    /// Modification time of a local file in nanoseconds since 1970; XXH3-64 of the entity tag of an object.
    pub version: Option<i64>,
}

impl SourceState {
    /// The state of a source.
    ///
    /// # Errors
    /// `NotFound`, `Io`.
    pub fn read(location: &Location, store: &dyn Store) -> Result<Self> {
        let len = match store.len("") {
            Ok(len) => Some(len),
            Err(e) if matches!(e.kind(), ErrorKind::Io { source, .. } if source.kind() == std::io::ErrorKind::IsADirectory) =>
            {
                return Ok(Self::default());
            }
            Err(e) => return Err(e),
        };
        let Some(path) = location.path() else {
            let version = store.etag("").map(|etag| xxh3_64(etag.as_bytes()).cast_signed());
            return Ok(Self { len, version });
        };
        let modified = std::fs::metadata(path).ok().and_then(|metadata| metadata.modified().ok());
        let modified = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        Ok(Self { len, version: modified.and_then(|time| i64::try_from(time.as_nanos()).ok()) })
    }
}

/// The path of a source as an index at `index` stores it: relative to its folder where both are local and on one path.
pub fn relative_path(source: &Location, index: &Location) -> String {
    let (Some(path), Some(index)) = (source.path(), index.path()) else { return source.to_string() };
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let (path, index) = (absolute(path), absolute(index));
    let folder = index.parent().unwrap_or(Path::new("/"));
    match path.strip_prefix(folder) {
        Ok(inner) if inner.as_os_str() != "" => inner.to_string_lossy().into_owned(),
        _ => path.to_string_lossy().into_owned(),
    }
}

/// The sources of an opened index.
#[derive(Debug)]
pub(crate) struct Sources {
    index: Arc<dyn Store>,
    sources: Vec<IndexedSource>,
    stores: Vec<OnceLock<Arc<dyn Store>>>,
    opened: Vec<OnceLock<Arc<dyn ContainerSource>>>,
    options: OpenOptions,
    find: FindFormat,
}

impl Sources {
    pub(crate) fn new(
        index: Arc<dyn Store>,
        sources: Vec<IndexedSource>,
        options: &OpenOptions,
        find: FindFormat,
    ) -> Self {
        let stores = sources.iter().map(|_| OnceLock::new()).collect();
        let opened = sources.iter().map(|_| OnceLock::new()).collect();
        Self { index, sources, stores, opened, options: options.clone(), find }
    }

    pub(crate) fn find(&self, format: &str) -> Result<&'static dyn tesseral_format::Format> {
        (self.find)(format)
    }

    pub(crate) fn options(&self) -> &OpenOptions {
        &self.options
    }

    pub(crate) fn describe(&self, source: u32) -> &str {
        self.sources.get(source as usize).map_or("", |source| &source.path)
    }

    pub(crate) fn len(&self) -> usize {
        self.sources.len()
    }

    fn location(&self, path: &str) -> Result<Location> {
        let source = Location::parse(path)?;
        let Some(relative) = source.path().filter(|path| path.is_relative()) else { return Ok(source) };
        let base = Location::parse(self.index.location())?;
        match base {
            Location::Path(index) => {
                let folder = index.parent().map(Path::to_path_buf).unwrap_or_default();
                Ok(Location::Path(folder.join(relative)))
            }
            Location::Url(url) => {
                let folder = url.rsplit_once('/').map_or(url.as_str(), |(folder, _)| folder);
                Location::parse(PathBuf::from(format!("{folder}/{path}")))
            }
        }
    }

    /// The store of a source, after a comparison with the state that was indexed.
    fn store(&self, number: u32) -> Result<&Arc<dyn Store>> {
        let number = number as usize;
        let (Some(source), Some(slot)) = (self.sources.get(number), self.stores.get(number)) else {
            return Err(Error::internal("an unknown source of an index"));
        };
        if let Some(store) = slot.get() {
            return Ok(store);
        }
        let location = self.location(&source.path)?;
        let store = location.store(ReadMode::Read, &StorageOptions::default())?;
        let now = SourceState::read(&location, &*store)?;
        let changed = |what: String| {
            Error::changed(
                location.to_string(),
                format!("{what} since it was indexed by {}", self.index.location()),
            )
            .hint("recreate the index")
        };
        match (source.state.len, now.len) {
            (Some(old), Some(new)) if old != new => {
                return Err(changed(format!("the length changed from {old} to {new} bytes")));
            }
            (Some(_), None) | (None, Some(_)) => return Err(changed("the source was replaced".to_owned())),
            _ => {}
        }
        if let (Some(old), Some(new)) = (source.state.version, now.version)
            && old != new
        {
            return Err(changed("the source was modified".to_owned()));
        }
        Ok(slot.get_or_init(|| store))
    }

    /// A source, opened by its own format.
    pub(crate) fn opened(&self, number: u32) -> Result<&Arc<dyn ContainerSource>> {
        let store = Arc::clone(self.store(number)?);
        let at = number as usize;
        let (Some(source), Some(slot)) = (self.sources.get(at), self.opened.get(at)) else {
            return Err(Error::internal("an unknown source of an index"));
        };
        if let Some(opened) = slot.get() {
            return Ok(opened);
        }
        let opened = self.find(&source.format)?.open(store, &self.options)?;
        Ok(slot.get_or_init(|| opened))
    }

    /// The store and the name of an object there.
    fn route<'a>(&self, object: &'a str) -> Result<(&Arc<dyn Store>, &'a str)> {
        if object.is_empty() {
            return Ok((&self.index, ""));
        }
        let parts = object.split_once(':').and_then(|(number, name)| Some((number.parse().ok()?, name)));
        let (number, name) =
            parts.ok_or_else(|| Error::internal(format!("object {object:?} of an index")))?;
        Ok((self.store(number)?, name))
    }
}

impl Store for Sources {
    fn location(&self) -> &str {
        self.index.location()
    }

    fn len(&self, object: &str) -> Result<u64> {
        let (store, name) = self.route(object)?;
        store.len(name)
    }

    fn read_many(&self, object: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (store, name) = self.route(object)?;
        store.read_many(name, ranges)
    }

    fn resident(&self, object: &str) -> Result<Option<Bytes>> {
        let (store, name) = self.route(object)?;
        store.resident(name)
    }

    fn view(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        let (store, name) = self.route(object)?;
        store.view(name, range)
    }

    fn release(&self, object: &str) {
        if let Ok((store, name)) = self.route(object) {
            store.release(name);
        }
    }

    fn watch(&self) -> Result<tesseral_store::OperationGuard> {
        self.index.watch()
    }

    fn read_objects(&self, reads: &[(&str, ByteRange)]) -> Result<Vec<ObjectBytes>> {
        // Objects of one source are read together.
        let mut by_store: BTreeMap<usize, (&Arc<dyn Store>, Vec<usize>)> = BTreeMap::new();
        let mut names = Vec::with_capacity(reads.len());
        for (at, (object, _)) in reads.iter().enumerate() {
            let (store, name) = self.route(object)?;
            names.push(name);
            let address = Arc::as_ptr(store).cast::<()>().addr();
            by_store.entry(address).or_insert_with(|| (store, Vec::new())).1.push(at);
        }
        let mut out: Vec<Option<ObjectBytes>> = reads.iter().map(|_| None).collect();
        for (store, own) in by_store.into_values() {
            let asked: Vec<(&str, ByteRange)> =
                own.iter().map(|at| (names[*at], reads[*at].1.clone())).collect();
            for (at, bytes) in own.iter().zip(store.read_objects(&asked)?) {
                out[*at] = Some(bytes);
            }
        }
        out.into_iter()
            .map(|bytes| bytes.ok_or_else(|| Error::internal("the store returned too few objects")))
            .collect()
    }

    fn profile(&self) -> Profile {
        let remote = self.sources.iter().any(|source| source.path.contains("://"));
        if remote { Profile::NETWORK } else { self.index.profile() }
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        self.index.list(folder)
    }

    fn stage(&self, object: &str, _overwrite: Overwrite) -> Result<Box<dyn Staged>> {
        Err(Error::unsupported(format!("writing {object:?} through an index")))
    }

    fn remove(&self, object: &str) -> Result<()> {
        Err(Error::unsupported(format!("removing {object:?} through an index")))
    }
}
