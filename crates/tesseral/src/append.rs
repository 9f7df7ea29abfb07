//! Adding to an array that exists, and changing it: formats that keep versions.

use std::path::Path;
use std::sync::Arc;

use tesseral_core::condition::Condition;
use tesseral_core::{ArraySchema, Region, Result};
use tesseral_engine::{Options, WriteSession};
use tesseral_format::{AppendOptions, Edit, OpenOptions};
use tesseral_store::{Access, LocalStore, Store};

use crate::create::Session;
use crate::registry;

/// How to add cells to an array that exists.
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
    execution: Options,
}

impl Append {
    /// Defaults: now, all of a dense array, cells twice at one position refused.
    pub fn new() -> Self {
        Self::default()
    }

    /// When the cells count as written, milliseconds since 1970.
    #[must_use]
    pub fn timestamp(mut self, milliseconds: u64) -> Self {
        self.options.timestamp = Some(milliseconds);
        self
    }

    /// The box of a dense array that is written.
    #[must_use]
    pub fn region(mut self, region: Region) -> Self {
        self.options.region = Some(region);
        self
    }

    /// Keeps the last of several cells at one position of a sparse array instead of refusing them.
    #[must_use]
    pub fn dedup(mut self) -> Self {
        self.options.dedup = true;
        self
    }

    /// How the array is opened: limits, the key of an encrypted one.
    #[must_use]
    pub fn open(mut self, options: OpenOptions) -> Self {
        self.options.open = options;
        self
    }

    /// Threads, memory, cancellation and progress.
    #[must_use]
    pub fn execution(mut self, options: Options) -> Self {
        self.execution = options;
        self
    }

    /// Begins a write. The array is number 0 of the session; nothing is visible before the commit.
    ///
    /// # Errors
    /// `Unsupported` by formats that keep no versions; `InvalidRequest`; what opening meets.
    pub fn begin(&self, path: impl AsRef<Path>) -> Result<Session> {
        let store = store(path.as_ref());
        let format = registry::recognise(&*store)?;
        let (writer, schema) = format.append(store, &self.options)?;
        let inner =
            WriteSession::appending(writer, &schema, self.options.region.clone(), self.execution.clone())?;
        Ok(Session::appending(inner, schema))
    }
}

fn store(path: &Path) -> Arc<dyn Store> {
    Arc::new(LocalStore::new(path, Access::Read))
}

/// Opens a source to delete cells, set attributes, change what it is, consolidate or vacuum it.
///
/// # Errors
/// `Unsupported` by formats that keep no versions; what opening meets.
pub fn edit(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Box<dyn Edit>> {
    let store = store(path.as_ref());
    registry::recognise(&*store)?.edit(store, options)
}

/// Reads a condition as people write it: `temperature > 5 and name in ("a", "b")`.
///
/// # Errors
/// `InvalidRequest` with what stands where it cannot be read; `NotFound` for names the array does not have.
pub fn condition(schema: &ArraySchema, text: &str) -> Result<Condition> {
    crate::filter::parse(schema, text)
}
