//! Writing of containers.

use std::path::{Path, PathBuf};

use tesseral_core::{ArraySchema, Attributes, Error, HistoryRow, Region, Result, Selection, Value};
use tesseral_engine::{
    CellSource, Cells, InputOrder, Options, WriteSession, read_column, read_stored, transfer_box,
};
use tesseral_format::convention;
use tesseral_format::{
    ArraySpec, ColumnData, CreateOptions, FormatOptions, MemoryBudget, StoredChunk, StoredForm,
};
use tesseral_store::{Durability, Overwrite, StorageOptions};

use crate::{Array, Output, StagedOutput};
use tesseral_registry as registry;

/// Options of creating a container.
///
/// ```
/// # fn main() -> Result<(), tesseral::Error> {
/// use tesseral::{ArraySchema, ArraySpec, Create, DType};
///
/// # let path = std::env::temp_dir().join(format!("tesseral-doc-create-{}.tet", std::process::id()));
/// let mut session = Create::new().overwrite().statistics().begin(&path, "")?;
/// let spec = ArraySpec::raw(ArraySchema::dense("height", DType::Float32, &[4, 6], &[2, 6]));
/// let height = session.add(&spec)?;
/// let cells: Vec<u8> = (0..24_u8).flat_map(|n| f32::from(n).to_ne_bytes()).collect();
/// session.write(height, &cells)?;
/// session.commit()?; // replaces an existing file
/// assert_eq!(tesseral::open(&path)?.array("height")?.schema().shape().unwrap()[..], [4, 6]);
/// # std::fs::remove_file(path).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Create {
    options: CreateOptions,
    /// Options of the format by name, until the format is known.
    named: Attributes,
    execution: Options,
    sources: Vec<PathBuf>,
    durability: Durability,
    storage: StorageOptions,
}

impl Create {
    /// Default options: an existing output is an error, digests and exact statistics of chunks are stored, zone maps are not.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces an existing output atomically. [`Output`] describes what can be replaced.
    #[must_use]
    pub fn overwrite(mut self) -> Self {
        self.options.overwrite = Overwrite::Replace;
        self
    }

    /// Adds a source of the output: neither it nor a folder that contains it is replaced, and nothing is created inside it.
    #[must_use]
    pub fn source(mut self, path: impl AsRef<Path>) -> Self {
        self.sources.push(path.as_ref().to_path_buf());
        self
    }

    /// Sets credentials, endpoints and other settings of object stores. Default: those of the environment.
    #[must_use]
    pub fn storage(mut self, storage: StorageOptions) -> Self {
        self.storage = storage;
        self
    }

    /// Stores no digests, and no exact statistics of chunks unless they are [requested](Self::chunk_statistics).
    #[must_use]
    pub fn without_digests(mut self) -> Self {
        self.options.digests = false;
        self
    }

    /// Stores statistics of every chunk also in the form that other readers of the format use (`.tet`: zone maps).
    #[must_use]
    pub fn statistics(mut self) -> Self {
        self.options.statistics = true;
        self
    }

    /// Sets whether to store exact statistics of chunks, sums included, where other readers of the format ignore them (`.tet`).
    /// Default: where digests are stored.
    #[must_use]
    pub fn chunk_statistics(mut self, stored: bool) -> Self {
        self.options.chunk_statistics = Some(stored);
        self
    }

    /// Sets the memory budget to store for readers, if the format supports it.
    #[must_use]
    pub fn memory_budget(mut self, budget: MemoryBudget) -> Self {
        self.options.memory_budget = Some(budget);
        self
    }

    /// Sets the write time in milliseconds since 1970, for formats with versions.
    #[must_use]
    pub fn timestamp(mut self, timestamp: u64) -> Self {
        self.options.timestamp = Some(timestamp);
        self
    }

    /// Encrypts the arrays, if the format supports it.
    #[must_use]
    pub fn key(mut self, key: Vec<u8>) -> Self {
        self.options.key = Some(key);
        self
    }

    /// Sets an option that the format [declares](tesseral_format::Format::create_options), by its name.
    #[must_use]
    pub fn option(mut self, name: impl Into<String>, value: Value) -> Self {
        self.named.insert(name.into(), value);
        self
    }

    /// Sets the format's own options, in the format's type. Replaces options that were set by name.
    #[must_use]
    pub fn format_options(mut self, options: FormatOptions) -> Self {
        self.options.format = options;
        self.named.clear();
        self
    }

    /// Creates arrays without cells, for later appends, in formats with versions.
    #[must_use]
    pub fn empty(mut self) -> Self {
        self.options.empty = true;
        self
    }

    /// Sets whether the output survives a loss of power once it is published. Default: [`Durability::Full`].
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Sets threads, memory, cancellation and progress.
    #[must_use]
    pub fn execution(mut self, options: Options) -> Self {
        self.execution = options;
        self
    }

    /// Begins a container at a path, in the format of that id; an empty id takes the format from the path's extension, as
    /// [`of_output`](tesseral_registry::of_output).
    ///
    /// # Errors
    /// `NotFound` for an unknown format, `Unsupported` for an unknown extension; `InvalidRequest` when the output exists; `Io`.
    pub fn begin(&self, path: impl AsRef<Path>, format: &str) -> Result<Session> {
        let path = path.as_ref();
        let format = if format.is_empty() { registry::of_output(path)? } else { registry::format(format)? };
        let output = Output::of_format(path, format)
            .overwrite(self.options.overwrite)
            .storage(self.storage.clone())
            .canceled_by(&self.execution.cancel);
        let output = output.durability(self.durability);
        let output = self.sources.iter().fold(output, Output::source).outside_sources().stage()?;
        // The empty file or folder at the temporary name is replaced.
        let folder = output.is_folder();
        let mut options = CreateOptions { overwrite: Overwrite::Replace, folder, ..self.options.clone() };
        if !self.named.is_empty() {
            options.format = format.create_options().parse(&self.named)?;
        }
        let writer = convention::create(format, output.store(), &options)?;
        let inner = WriteSession::new(writer, self.execution.clone());
        Ok(Session { inner, output: Some(output), folder, schema: None })
    }
}

/// An array whose first cell is at the start of a region.
struct OffsetSource<'a> {
    from: &'a Array,
    at: &'a Region,
}

impl OffsetSource<'_> {
    fn source_of(&self, region: &Region) -> Region {
        let bounds = region.bounds().iter().zip(self.at.bounds());
        Region::new(bounds.map(|(to, at)| (to.0 - at.0, to.1 - at.0)))
    }
}

impl CellSource for OffsetSource<'_> {
    fn read(&self, region: &Region, columns: &mut [Cells], options: &Options) -> Result<()> {
        let selection = Selection::from_region(&self.source_of(region));
        for (number, column) in (0..).zip(columns) {
            let request = self.from.clone().field_at(number)?.request(&selection);
            read_column(self.from.handle(), &request, column, options)?;
        }
        Ok(())
    }

    fn stored(
        &self,
        region: &Region,
        accepts_encoded: &dyn Fn(StoredForm) -> bool,
    ) -> Result<Option<StoredChunk>> {
        if self.from.schema().fields.len() > 1 {
            return Ok(None);
        }
        read_stored(self.from.handle(), &self.source_of(region), accepts_encoded)
    }
}

/// Identifies an array of a [`Session`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArrayId(pub usize);

/// A container being written, as a transaction. Dropping it discards everything.
#[derive(Debug)]
pub struct Session {
    inner: WriteSession,
    /// Temporary path of a new container; an existing one is appended to in place.
    output: Option<StagedOutput>,
    folder: bool,
    schema: Option<ArraySchema>,
}

impl Session {
    pub(crate) fn appending(inner: WriteSession, schema: ArraySchema) -> Self {
        Self { inner, output: None, folder: false, schema: Some(schema) }
    }

    /// Schema of the array that is appended to; `None` for a new container.
    pub fn schema(&self) -> Option<&ArraySchema> {
        self.schema.as_ref()
    }

    /// Schema of an array that was added.
    ///
    /// # Errors
    /// `InvalidRequest` if the array is not one of this session.
    pub fn declared(&self, array: ArrayId) -> Result<&ArraySchema> {
        self.inner.schema(array.0)
    }

    /// Writes a region of whole chunks from columns in memory, one per field, row-major over the region.
    ///
    /// # Errors
    /// `InvalidRequest` if the columns do not match the region, it divides a chunk, or a chunk is a duplicate; `Io`.
    pub fn write_columns(&self, array: ArrayId, region: &Region, columns: &[ColumnData<'_>]) -> Result<()> {
        self.inner.write_columns(array.0, region, columns)
    }

    /// Writes cells of a sparse array: one column per dimension, then one per field, all of the same length.
    ///
    /// # Errors
    /// `InvalidRequest` for cells outside the domain, at duplicate positions or not in the declared order; `Io`.
    pub fn write_cells(&self, array: ArrayId, columns: &[ColumnData<'_>], order: InputOrder) -> Result<()> {
        self.inner.write_cells(array.0, columns, order)
    }

    /// Creates an array. Create all arrays before writing the first chunk.
    ///
    /// # Errors
    /// `Unsupported` if the format cannot store it; `InvalidRequest`.
    pub fn add(&mut self, spec: &ArraySpec) -> Result<ArrayId> {
        self.inner.add(spec).map(ArrayId)
    }

    /// Writes the cells of one chunk: row-major over the chunk, native byte order. Any order, any thread.
    ///
    /// # Errors
    /// `InvalidRequest` if the cells do not match the chunk or it is a duplicate; `Io`.
    pub fn write_chunk(&self, array: ArrayId, coords: &[u64], cells: &[u8]) -> Result<()> {
        self.inner.write_chunk(array.0, coords, cells)
    }

    /// Writes an array by calling `cells` for every chunk in parallel; chunks are stored in canonical order.
    ///
    /// # Errors
    /// Errors of `cells`; `Io`.
    pub fn fill<F>(&self, array: ArrayId, cells: F) -> Result<()>
    where
        F: Fn(&Region, &mut [u8]) -> Result<()> + Sync,
    {
        self.inner.fill(array.0, cells)
    }

    /// Writes an array from cells in memory, row-major over the array.
    ///
    /// # Errors
    /// `InvalidRequest` if the number of cells differs; `Io`.
    pub fn write(&self, array: ArrayId, cells: &[u8]) -> Result<()> {
        self.inner.write(array.0, cells)
    }

    /// Writes a region of whole chunks from cells in memory, row-major over the region, which is aligned to chunks or ends with
    /// the array. Any order, any thread.
    ///
    /// # Errors
    /// `InvalidRequest` if the cells do not match, the region divides a chunk, or a chunk is a duplicate; `Io`.
    pub fn write_region(&self, array: ArrayId, region: &Region, cells: &[u8]) -> Result<()> {
        self.inner.write_region(array.0, region, cells)
    }

    /// Copies all cells of an array of the same shape and fields, such as a part written by another process, to a region of
    /// whole chunks. Chunks with the same encoding are copied as stored.
    ///
    /// # Errors
    /// `InvalidRequest` if the array does not match, the region divides a chunk, or a chunk is a duplicate; errors of reading;
    /// `Io`.
    pub fn copy(&self, array: ArrayId, region: &Region, from: &Array) -> Result<()> {
        let declared = self.declared(array)?;
        let fields = |schema: &ArraySchema| -> Vec<_> {
            schema.fields.iter().map(|f| (f.dtype, f.cell, f.nullable)).collect()
        };
        if from.schema().shape().as_deref() != Some(&region.shape()[..])
            || fields(from.schema()) != fields(declared)
        {
            return Err(Error::invalid(format!("{} does not match region {region:?}", from.name()))
                .in_array(&declared.name));
        }
        transfer_box(&self.inner, array.0, region, &OffsetSource { from, at: region })
    }

    /// Sets attributes of the container.
    ///
    /// # Errors
    /// `Unsupported` if the format cannot store one.
    pub fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        self.inner.set_attributes(attributes)
    }

    /// Sets attributes of a group, by its path: `a`, `a/b`. Arrays of the group are named `a/b/NAME`.
    ///
    /// # Errors
    /// `Unsupported` if the format cannot store it.
    pub fn set_group(&mut self, path: &str, attributes: Attributes) -> Result<()> {
        self.inner.set_group(path, attributes)
    }

    /// Adds a row to the history.
    ///
    /// # Errors
    /// `Unsupported` if the format has no history.
    pub fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        self.inner.add_history(row)
    }

    /// Writes a container that is a folder without publishing it: others can append to its arrays first.
    ///
    /// # Errors
    /// `Unsupported` for formats of single files; `InvalidRequest` if a chunk is missing; `Io`.
    pub fn stage(self) -> Result<StagedOutput> {
        let output = self.output.filter(|_| self.folder);
        let output =
            output.ok_or_else(|| Error::unsupported("appending to a file before it is published"))?;
        self.inner.commit()?;
        Ok(output)
    }

    /// Publishes the container atomically.
    ///
    /// # Errors
    /// `InvalidRequest` if a chunk is missing; `Io`.
    pub fn commit(self) -> Result<()> {
        self.inner.commit()?;
        self.output.map_or(Ok(()), StagedOutput::publish)
    }
}
