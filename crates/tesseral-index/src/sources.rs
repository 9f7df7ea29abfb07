//! The stores of the sources, members of one store: object `7:name` is the object `name` of source 7.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use tesseral_core::{Error, ErrorKind, Result};
use tesseral_format::{ContainerSource, Format, OpenOptions};
use tesseral_store::{Location, Profile, ReadMode, StorageOptions, Store, StoreMembers};
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

/// The path of a source as an index at `index` stores it: relative to its folder if the source is below it.
pub fn relative_path(source: &Location, index: &Location) -> String {
    if let (Location::Url(source), Location::Url(index)) = (source, index) {
        let folder = index.rsplit_once('/').map_or("", |(folder, _)| folder);
        let inner = source.strip_prefix(folder).and_then(|inner| inner.strip_prefix('/'));
        let inner = inner.filter(|inner| !inner.split('/').any(|part| matches!(part, "" | "." | "..")));
        return inner.unwrap_or(source).to_owned();
    }
    let (Some(path), Some(index)) = (source.path(), index.path()) else { return source.to_string() };
    let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let (path, index) = (absolute(path), absolute(index));
    let folder = index.parent().unwrap_or(Path::new("/"));
    let plain = |inner: &Path| inner.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    match path.strip_prefix(folder) {
        Ok(inner) if inner.as_os_str() != "" && plain(inner) => inner.to_string_lossy().into_owned(),
        _ => path.to_string_lossy().into_owned(),
    }
}

/// Rejects sources that are indexes themselves.
///
/// # Errors
/// `Unsupported`.
pub fn check_format(format: &dyn Format) -> Result<()> {
    if format.id() == crate::ID {
        return Err(Error::unsupported("an index of indexes").hint("index the files themselves"));
    }
    Ok(())
}

/// Error of a source that is not as it was indexed. Waiting, which the hint of other changes advises, does not help.
pub(crate) fn outdated(object: impl Into<String>, detail: impl Into<String>) -> Error {
    let kind = ErrorKind::Changed { object: object.into(), detail: detail.into() };
    Error::new(kind).hint("recreate the index; one of local files is valid only where it was made")
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
    /// Whether a source is named by a URL.
    distant: bool,
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
        let distant = sources.iter().any(|source| source.path.contains("://"));
        Self { index, sources, stores, opened, options: options.clone(), find, distant }
    }

    /// The format of a source. Indexes of indexes are rejected: one that refers to itself has no end.
    pub(crate) fn format(&self, id: &str) -> Result<&'static dyn Format> {
        let format = (self.find)(id)?;
        check_format(format)?;
        Ok(format)
    }

    /// The store of the index itself.
    pub(crate) fn index(&self) -> &dyn Store {
        &*self.index
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

    /// Where a source is, and its store. A relative path is reached as the index was. An index in an object store or on a web server
    /// cannot name files of this machine.
    fn reach(&self, path: &str) -> Result<(Location, Arc<dyn Store>)> {
        let source = Location::parse(path)?;
        if source.path().is_some_and(Path::is_absolute)
            && Location::parse(self.index.location())?.path().is_none()
        {
            let what = format!("the file {path:?} of this machine in the index {}", self.index.location());
            return Err(Error::unsupported(what).hint("copy the index to this machine first"));
        }
        if source.path().is_none_or(Path::is_absolute) {
            let store = source.store(ReadMode::Read, &StorageOptions::default())?;
            return Ok((source, store));
        }
        let store = self.index.beside(path)?;
        Ok((Location::parse(store.location())?, store))
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
        let (location, store) = self.reach(&source.path)?;
        let now = SourceState::read(&location, &*store)?;
        let changed = |what: String| {
            let detail = format!("{what} since it was indexed by {}", self.index.location());
            outdated(location.to_string(), detail)
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
        let opened = self.format(&source.format)?.open(store, &self.options)?;
        Ok(slot.get_or_init(|| opened))
    }
}

impl StoreMembers for Sources {
    fn container_store(&self) -> &Arc<dyn Store> {
        &self.index
    }

    /// Objects of a source that was opened are named by its container, whose cells can be in several files.
    fn member(&self, number: u32) -> Result<Arc<dyn Store>> {
        match self.opened.get(number as usize).and_then(OnceLock::get) {
            Some(opened) => Ok(Arc::clone(opened.store())),
            None => self.store(number).map(Arc::clone),
        }
    }

    fn profile(&self) -> Profile {
        if self.distant { Profile::NETWORK } else { self.index.profile() }
    }
}
