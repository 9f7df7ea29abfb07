//! An opened file or folder.

use std::path::Path;
use std::sync::Arc;

use tesseral_core::{Attributes, Error, ErrorKind, HistoryRow, Limits, Result};
use tesseral_engine::{Handle, Options, Reopen, judge, open_listed, watched};
use tesseral_format::{Column, Format, OpenOptions, TimeRange, Version};
use tesseral_store::{Access, LocalStore, Store, StoreExt};

use crate::{Array, registry};

/// How to open a source. [`open`] takes the defaults.
#[derive(Clone, Debug, Default)]
pub struct Open {
    options: OpenOptions,
    access: Access,
    execution: Options,
}

impl Open {
    /// Defaults: digests checked, files mapped, every core, the file's own memory budget.
    pub fn new() -> Self {
        Self::default()
    }

    /// Keeps every operation within this many bytes, whatever the file asks for. Files are then read instead of mapped, and results
    /// are never views of them.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.execution.memory = Some(bytes);
        self
    }

    /// Leaves digests unchecked.
    #[must_use]
    pub fn without_digests(mut self) -> Self {
        self.options.digests = false;
        self
    }

    /// Reads with `pread` instead of mapping files.
    #[must_use]
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Reads the state of then, for formats that keep versions.
    #[must_use]
    pub fn as_of(mut self, range: TimeRange) -> Self {
        self.options.as_of = Some(range);
        self
    }

    /// Bounds what the file may make us use.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Self {
        self.options.limits = limits;
        self
    }

    /// The key of encrypted arrays.
    #[must_use]
    pub fn key(mut self, key: Vec<u8>) -> Self {
        self.options.key = Some(key);
        self
    }

    /// Threads, cancellation and progress of every operation.
    #[must_use]
    pub fn execution(mut self, options: Options) -> Self {
        self.options.cancel = options.cancel.clone();
        self.execution = options;
        self
    }

    /// How the format is asked to open.
    pub fn format_options(&self) -> &OpenOptions {
        &self.options
    }

    /// How operations run.
    pub fn execution_options(&self) -> &Options {
        &self.execution
    }

    /// The store of a path. Nothing is read yet. Under a memory limit files are read, not mapped: resident pages of a map count as
    /// memory of the process.
    pub fn store(&self, path: impl AsRef<Path>) -> Arc<dyn Store> {
        let access = if self.execution.memory.is_some() { Access::Read } else { self.access };
        Arc::new(LocalStore::new(path.as_ref(), access))
    }

    /// Opens a path.
    ///
    /// # Errors
    /// `NotFound`, `Unrecognised`, and what the format meets.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Container> {
        self.open_store(self.store(path))
    }

    /// Opens whatever a store holds.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_store(&self, store: Arc<dyn Store>) -> Result<Container> {
        let format = store.guarded(|| registry::recognise(&*store))?;
        let able = format.capabilities();
        if self.options.as_of.is_some() && !able.versions {
            let feature = format!("as_of on {}: the format keeps no versions", format.title());
            return Err(Error::unsupported(feature));
        }
        let store = watched(format, store);
        // A source that is opened once more, because another process removed what it names, is opened as of the same time.
        let mut options = self.options.clone();
        if able.versions {
            options.as_of = options.as_of.or_else(|| Some(TimeRange { start: 0, end: now() }));
        }
        let reopen: Arc<Reopen> =
            Arc::new(move || open_listed(|| store.guarded(|| format.open(Arc::clone(&store), &options))));
        let inner = reopen()?;
        Ok(Container { reopen: able.versions.then_some(Reopened(reopen)), ..self.container(format, inner) })
    }

    /// Wraps a container that a format opened in another way, such as by salvage.
    pub fn container(
        &self,
        format: &'static dyn Format,
        inner: Arc<dyn tesseral_format::Container>,
    ) -> Container {
        let mut execution = self.execution.clone();
        if execution.memory.is_none() {
            execution.memory = inner.memory_budget().and_then(tesseral_engine::budget_bytes);
        }
        let OpenOptions { digests, as_of, limits, .. } = &self.options;
        let (digests, as_of, limits) = (*digests, *as_of, *limits);
        Container { format, inner, execution, digests, as_of, limits, reopen: None }
    }
}

/// The path that a source names: a path itself, or a `file://` URL.
///
/// # Errors
/// `Unsupported` for other URLs.
pub fn local(source: &Path) -> Result<&Path> {
    let Some(text) = source.to_str() else { return Ok(source) };
    if let Some(path) = text.strip_prefix("file://") {
        return Ok(Path::new(path));
    }
    match text.split_once("://") {
        Some((scheme, _)) if scheme.len() > 1 && scheme.bytes().all(|b| b.is_ascii_alphanumeric()) => {
            Err(Error::unsupported(format!("reading {scheme}:// sources")).hint("copy it here first"))
        }
        _ => Ok(source),
    }
}

/// Opens a file or folder of any format, recognised by its content.
///
/// # Errors
/// `NotFound`, `Unrecognised`, and what the format meets.
pub fn open(path: impl AsRef<Path>) -> Result<Container> {
    Open::new().open(path)
}

/// An opened file or folder: a snapshot that does not change.
#[derive(Clone, Debug)]
pub struct Container {
    format: &'static dyn Format,
    inner: Arc<dyn tesseral_format::Container>,
    execution: Options,
    digests: bool,
    as_of: Option<TimeRange>,
    limits: Limits,
    /// How it is opened again, where others may remove parts of it while it is read.
    reopen: Option<Reopened>,
}

#[derive(Clone)]
struct Reopened(Arc<Reopen>);

impl std::fmt::Debug for Reopened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Reopened").finish_non_exhaustive()
    }
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Container {
    /// The format.
    pub fn format(&self) -> &'static dyn Format {
        self.format
    }

    /// The format's own view.
    pub fn inner(&self) -> &Arc<dyn tesseral_format::Container> {
        &self.inner
    }

    /// Where its bytes are.
    pub fn location(&self) -> &str {
        self.inner.store().location()
    }

    /// Number of arrays.
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Whether it holds no array.
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// Names of the arrays, in their order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|i| self.inner.name(i))
    }

    /// An array by name.
    ///
    /// # Errors
    /// `NotFound`, with the names there are.
    pub fn array(&self, name: &str) -> Result<Array> {
        self.array_at(self.inner.find(name)?)
    }

    /// An array by name, or a column by one: `array/field`, or of the only array its field, of a sparse one its dimension too.
    ///
    /// # Errors
    /// `NotFound`, with the names there are; what loading its metadata meets.
    pub fn find(&self, name: &str) -> Result<(Array, Option<Column>)> {
        let error = match self.array(name) {
            Ok(array) => return Ok((array, None)),
            Err(error) if !matches!(error.kind(), ErrorKind::NotFound { .. }) => return Err(error),
            Err(error) => error,
        };
        let column = |array: Array, name: &str| {
            if !array.schema().sparse {
                array.schema().field(name)?;
            }
            let column = array.column(name)?;
            Ok((array, Some(column)))
        };
        if let Some((array, field)) = name.rsplit_once('/')
            && let Ok(array) = self.array(array)
        {
            return column(array, field);
        }
        if self.len() == 1 {
            let array = self.array_at(0)?;
            if array.column(name).is_ok() || array.schema().fields.len() > 1 {
                return column(array, name);
            }
        }
        Err(error)
    }

    /// An array by position.
    ///
    /// # Errors
    /// `NotFound` past the end; what loading its metadata meets.
    pub fn array_at(&self, index: usize) -> Result<Array> {
        self.execution.cancel.check()?;
        let handle = Handle::new(&*self.inner, index, self.digests)?.with_limits(self.limits);
        let handle = match &self.reopen {
            Some(Reopened(reopen)) => handle.reopened_by(Arc::clone(reopen), self.inner.name(index)),
            None => handle,
        };
        Ok(Array::new(handle, self.execution.clone()))
    }

    /// Attributes of the container as a whole.
    pub fn attributes(&self) -> &Attributes {
        self.inner.attributes()
    }

    /// How it came to be.
    pub fn history(&self) -> &[HistoryRow] {
        self.inner.history()
    }

    /// What was written when, for formats that keep versions.
    ///
    /// # Errors
    /// What reading them meets.
    pub fn versions(&self) -> Result<Vec<Version>> {
        let versions = self.inner.store().guarded(|| self.inner.versions());
        versions.map_err(|error| match &self.reopen {
            Some(Reopened(reopen)) => judge(error, self.location(), &**reopen),
            None => error,
        })
    }

    /// The times it was opened at, where not all.
    pub fn as_of(&self) -> Option<TimeRange> {
        self.as_of
    }

    /// How operations on its arrays run.
    pub fn execution(&self) -> &Options {
        &self.execution
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_paths_or_say_what_they_are() {
        assert_eq!(local(Path::new("file:///a/b.tet")).unwrap(), Path::new("/a/b.tet"));
        assert_eq!(local(Path::new("a:b.tet")).unwrap(), Path::new("a:b.tet"));
        assert!(local(Path::new("s3://bucket/key")).is_err());
    }
}
