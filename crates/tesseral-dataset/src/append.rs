//! Appending to existing arrays and editing them, for formats with versions.

use std::path::Path;
use std::sync::Arc;

use tesseral_core::condition::Condition;
use tesseral_core::{ArraySchema, Error, Region, Result};
use tesseral_engine::{Options, WriteSession};
use tesseral_format::{AppendOptions, Edit, Format, OpenOptions};
use tesseral_store::{Location, ReadMode, StorageOptions, Store};

use crate::create::Session;
use tesseral_registry as registry;

/// Options of appending to an existing array.
///
/// ```no_run
/// # fn main() -> Result<(), tesseral::Error> {
/// use tesseral::{Append, ArrayId, Region};
///
/// let cells: Vec<u8> = (0..24_i32).flat_map(|v| v.to_ne_bytes()).collect();
/// let region = Region::new([(10, 14), (0, 6)]);
/// let session = Append::new().region(region.clone()).begin("weather")?;
/// session.write_region(ArrayId(0), &region, &cells)?;
/// session.commit()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Append {
    options: AppendOptions,
    storage: StorageOptions,
    execution: Options,
}

impl Append {
    /// Default options: now, the whole dense array, duplicate positions are an error.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the write time in milliseconds since 1970.
    #[must_use]
    pub fn timestamp(mut self, milliseconds: u64) -> Self {
        self.options.timestamp = Some(milliseconds);
        self
    }

    /// Sets the region of a dense array to write.
    #[must_use]
    pub fn region(mut self, region: Region) -> Self {
        self.options.region = Some(region);
        self
    }

    /// Sets the array to append to, by its name in a container of several: a member of a group, or the label of a dimension.
    #[must_use]
    pub fn array(mut self, name: impl Into<String>) -> Self {
        self.options.array = Some(name.into());
        self
    }

    /// Keeps the last of several cells at one position of a sparse array instead of returning an error.
    #[must_use]
    pub fn dedup(mut self) -> Self {
        self.options.dedup = true;
        self
    }

    /// Sets the options of opening: limits, encryption key.
    #[must_use]
    pub fn open(mut self, options: OpenOptions) -> Self {
        self.options.open = options;
        self
    }

    /// Sets credentials, endpoints and other settings of object stores. Default: those of the environment.
    #[must_use]
    pub fn storage(mut self, storage: StorageOptions) -> Self {
        self.storage = storage;
        self
    }

    /// Sets threads, memory, cancellation and progress.
    #[must_use]
    pub fn execution(mut self, options: Options) -> Self {
        self.execution = options;
        self
    }

    /// Begins a write. The array is number 0 of the session; nothing is visible before the commit.
    ///
    /// # Errors
    /// `Unsupported` by formats without versions; `InvalidRequest`; errors of opening.
    pub fn begin(&self, source: impl AsRef<Path>) -> Result<Session> {
        let store = Location::parse(source)?.store(ReadMode::Read, &self.storage)?;
        let store = store.canceled_by(&self.execution.cancel).unwrap_or(store);
        let format = registry::recognize(&*store)?;
        let versioned = format.versioned().ok_or_else(|| unversioned("appending to", format))?;
        let (writer, schema) = versioned.append(store, &self.options)?;
        let inner =
            WriteSession::appending(writer, &schema, self.options.region.clone(), self.execution.clone())?;
        Ok(Session::appending(inner, schema))
    }
}

/// Opens a source for editing: deletes, attributes, schema evolution, consolidation, vacuum.
///
/// # Errors
/// `Unsupported` by formats without versions; errors of opening.
pub fn edit(source: impl AsRef<Path>, options: &OpenOptions) -> Result<Box<dyn Edit>> {
    edit_store(Location::parse(source)?.store(ReadMode::Read, &StorageOptions::new())?, options)
}

/// Opens the content of a store for editing.
///
/// # Errors
/// As [`edit`].
pub fn edit_store(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Box<dyn Edit>> {
    let format = registry::recognize(&*store)?;
    format.versioned().ok_or_else(|| unversioned("editing", format))?.edit(store, options)
}

fn unversioned(operation: &str, format: &dyn Format) -> Error {
    Error::unsupported(format!("{operation} {}", format.title()))
}

/// Parses a condition: `temperature > 5 and name in ("a", "b")`.
///
/// # Errors
/// `InvalidRequest` with the position of a syntax error; `NotFound` for unknown names.
pub fn condition(schema: &ArraySchema, text: &str) -> Result<Condition> {
    crate::filter::parse(schema, text)
}
