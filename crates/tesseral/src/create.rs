//! Writing containers.

use std::path::{Path, PathBuf};

use tesseral_core::{ArraySchema, Attributes, Error, HistoryRow, Region, Result, Selection, Value};
use tesseral_engine::{
    Arrival, CellSource, Cells, Options, WriteSession, read_column, read_stored, transfer_box,
};
use tesseral_format::{ArraySpec, ColumnData, CreateOptions, MemoryBudget, StoredChunk, StoredForm};
use tesseral_store::Overwrite;

use crate::{Array, Output, StagedOutput, registry};

/// How to create a container.
#[derive(Clone, Debug, Default)]
pub struct Create {
    options: CreateOptions,
    execution: Options,
    sources: Vec<PathBuf>,
}

impl Create {
    /// Defaults: an existing output is refused, digests are stored, statistics only where the format demands them.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces an existing output once the new one is whole. [`Output`] has the rules of what may be replaced.
    #[must_use]
    pub fn overwrite(mut self) -> Self {
        self.options.overwrite = Overwrite::Replace;
        self
    }

    /// Names a file or folder that the output is made from: it is not replaced, nor a folder that holds it,
    /// and nothing is made inside it.
    #[must_use]
    pub fn source(mut self, path: impl AsRef<Path>) -> Self {
        self.sources.push(path.as_ref().to_path_buf());
        self
    }

    /// Stores no digests.
    #[must_use]
    pub fn without_digests(mut self) -> Self {
        self.options.digests = false;
        self
    }

    /// Stores statistics of every chunk (`.tet`: zone maps).
    #[must_use]
    pub fn statistics(mut self) -> Self {
        self.options.statistics = true;
        self
    }

    /// The memory that readers shall keep to, for formats that can say so.
    #[must_use]
    pub fn memory_budget(mut self, budget: MemoryBudget) -> Self {
        self.options.memory_budget = Some(budget);
        self
    }

    /// An option that only one format knows, such as `timestamp` of TileDB arrays.
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: Value) -> Self {
        self.options.extra.insert(name.into(), value);
        self
    }

    /// Threads, memory, cancellation and progress.
    #[must_use]
    pub fn execution(mut self, options: Options) -> Self {
        self.execution = options;
        self
    }

    /// Begins a container at a path, in the format of that id; an empty id takes the format from the path's ending.
    ///
    /// # Errors
    /// `NotFound` for an unknown format; `InvalidRequest` when the output exists; `Io`.
    pub fn begin(&self, path: impl AsRef<Path>, format: &str) -> Result<Session> {
        let path = path.as_ref();
        let format = if format.is_empty() {
            registry::by_name(path).ok_or_else(|| {
                Error::invalid(format!("{} does not end like a file of a known format", path.display()))
                    .hint("name the format")
            })?
        } else {
            registry::format(format)?
        };
        let folder = format.capabilities().folder;
        let output = Output::dataset(path, folder).overwrite(self.options.overwrite);
        let output = self.sources.iter().fold(output, Output::source).outside_sources().stage()?;
        // The empty file or folder at the temporary name gives way.
        let options = CreateOptions { overwrite: Overwrite::Replace, ..self.options.clone() };
        let writer = format.create(output.store(), &options)?;
        let inner = WriteSession::new(writer, self.execution.clone());
        Ok(Session { inner, output: Some(output), folder, schema: None })
    }
}

/// An array whose first cell is put at the start of a box.
struct Placed<'a> {
    from: &'a Array,
    at: &'a Region,
}

impl Placed<'_> {
    fn source_of(&self, region: &Region) -> Region {
        let bounds = region.bounds().iter().zip(self.at.bounds());
        Region::new(bounds.map(|(to, at)| (to.0 - at.0, to.1 - at.0)))
    }
}

impl CellSource for Placed<'_> {
    fn read(&self, region: &Region, columns: &mut [Cells], options: &Options) -> Result<()> {
        let selection = Selection::from_region(&self.source_of(region));
        for (number, column) in (0..).zip(columns) {
            let request = self.from.clone().field_at(number).request(&selection);
            read_column(self.from.handle(), &request, column, options)?;
        }
        Ok(())
    }

    fn stored(&self, region: &Region, adopts: &dyn Fn(StoredForm) -> bool) -> Result<Option<StoredChunk>> {
        if self.from.schema().fields.len() > 1 {
            return Ok(None);
        }
        read_stored(self.from.handle(), &self.source_of(region), adopts)
    }
}

/// Names an array of a [`Session`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayId(pub usize);

/// A container being written: a transaction. Dropping it leaves no trace.
#[derive(Debug)]
pub struct Session {
    inner: WriteSession,
    /// Where a new container is made; an existing one is added to in place.
    output: Option<StagedOutput>,
    folder: bool,
    schema: Option<ArraySchema>,
}

impl Session {
    pub(crate) fn appending(inner: WriteSession, schema: ArraySchema) -> Self {
        Self { inner, output: None, folder: false, schema: Some(schema) }
    }

    /// What the array is that is added to; `None` for a new container.
    pub fn schema(&self) -> Option<&ArraySchema> {
        self.schema.as_ref()
    }

    /// Fills a box of whole chunks from columns in memory, one per field, row-major over the box.
    ///
    /// # Errors
    /// `InvalidRequest` when the columns do not fit the box, it cuts a chunk, or one was already written; `Io`.
    pub fn write_columns(&self, array: ArrayId, region: &Region, columns: &[ColumnData<'_>]) -> Result<()> {
        self.inner.write_columns(array.0, region, columns)
    }

    /// Writes cells of a sparse array: one column per dimension, then one per field, all of the same length.
    ///
    /// # Errors
    /// `InvalidRequest` for cells outside the domain, twice at one position or not in the order promised; `Io`.
    pub fn write_cells(&self, array: ArrayId, columns: &[ColumnData<'_>], order: Arrival) -> Result<()> {
        self.inner.write_cells(array.0, columns, order)
    }

    /// Declares an array. Declare all of them before writing the first chunk.
    ///
    /// # Errors
    /// `Unsupported` when the format cannot hold it; `InvalidRequest`.
    pub fn add(&mut self, spec: &ArraySpec) -> Result<ArrayId> {
        self.inner.add(spec).map(ArrayId)
    }

    /// Writes the cells of one chunk: row-major over the chunk's box, native byte order. Any order, any thread.
    ///
    /// # Errors
    /// `InvalidRequest` when the cells do not fit the chunk or it was already written; `Io`.
    pub fn write_chunk(&self, array: ArrayId, coords: &[u64], cells: &[u8]) -> Result<()> {
        self.inner.write_chunk(array.0, coords, cells)
    }

    /// Fills an array by asking for the cells of every chunk, in parallel, stored in canonical order.
    ///
    /// # Errors
    /// What `cells` returns; `Io`.
    pub fn fill<F>(&self, array: ArrayId, cells: F) -> Result<()>
    where
        F: Fn(&Region, &mut [u8]) -> Result<()> + Sync,
    {
        self.inner.fill(array.0, cells)
    }

    /// Fills an array from cells in memory, row-major over the array.
    ///
    /// # Errors
    /// `InvalidRequest` when there are too few or too many; `Io`.
    pub fn write(&self, array: ArrayId, cells: &[u8]) -> Result<()> {
        self.inner.write(array.0, cells)
    }

    /// Fills a box of whole chunks from cells in memory, row-major over the box, which begins where chunks begin and ends where they
    /// end or where the array does. Any order, any thread.
    ///
    /// # Errors
    /// `InvalidRequest` when the cells do not fit, the box cuts a chunk, or one was already written; `Io`.
    pub fn write_region(&self, array: ArrayId, region: &Region, cells: &[u8]) -> Result<()> {
        self.inner.write_region(array.0, region, cells)
    }

    /// Fills a box of whole chunks with all cells of an array of the same shape and fields, such as a part that another process
    /// wrote. Chunks stored as this container stores them are taken over as they are.
    ///
    /// # Errors
    /// `InvalidRequest` when the array does not fit, the box cuts a chunk, or one was already written; what reading meets; `Io`.
    pub fn copy(&self, array: ArrayId, region: &Region, from: &Array) -> Result<()> {
        let declared = self.inner.schema(array.0)?;
        let fields = |schema: &ArraySchema| -> Vec<_> {
            schema.fields.iter().map(|f| (f.dtype, f.cell, f.nullable)).collect()
        };
        if from.schema().shape().as_deref() != Some(&region.shape()[..])
            || fields(from.schema()) != fields(declared)
        {
            return Err(Error::invalid(format!("{} is not the cells of {region:?}", from.name()))
                .in_array(&declared.name));
        }
        transfer_box(&self.inner, array.0, region, &Placed { from, at: region })
    }

    /// Sets attributes of the container.
    ///
    /// # Errors
    /// `Unsupported` when the format cannot hold one.
    pub fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        self.inner.set_attributes(attributes)
    }

    /// Adds a row to its history.
    ///
    /// # Errors
    /// `Unsupported` when the format has no place for it.
    pub fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        self.inner.add_history(row)
    }

    /// Writes the container, a folder, without publishing it: others may add to the arrays in it before it appears in its place.
    ///
    /// # Errors
    /// `Unsupported` for formats whose containers are files; `InvalidRequest` when a chunk is missing; `Io`.
    pub fn stage(self) -> Result<StagedOutput> {
        let output = self.output.filter(|_| self.folder);
        let output = output.ok_or_else(|| Error::unsupported("adding to a file before it is published"))?;
        self.inner.commit()?;
        Ok(output)
    }

    /// Publishes the container: all of it or nothing.
    ///
    /// # Errors
    /// `InvalidRequest` when a chunk is missing; `Io`.
    pub fn commit(self) -> Result<()> {
        self.inner.commit()?;
        self.output.map_or(Ok(()), StagedOutput::publish)
    }
}
