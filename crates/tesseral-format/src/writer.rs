//! Writing a container: one transaction.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{ArraySchema, Attributes, ChunkStats, Coords, Error, HistoryRow, Order, Result, Value};
use tesseral_store::Staged;

use crate::{CellKeys, Column, ColumnData, Role, Scratch, StoredForm};

/// A codec by name with its options.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct CodecSpec {
    /// `raw`, `zstd`, …
    pub name: String,
    /// Named options; `level` for codecs that have one.
    pub options: BTreeMap<String, Value>,
}

impl CodecSpec {
    /// A codec without options.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), options: BTreeMap::new() }
    }

    /// The integer option of that name.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.options.get(name) {
            Some(Value::Int(value)) => Some(*value),
            _ => None,
        }
    }
}

impl std::str::FromStr for CodecSpec {
    type Err = Error;

    /// `zstd`, `zstd:9`.
    fn from_str(text: &str) -> Result<Self> {
        let (name, level) = text.split_once(':').map_or((text, None), |(name, level)| (name, Some(level)));
        let mut spec = Self::new(name);
        if let Some(level) = level {
            let level = level
                .parse()
                .map_err(|_| Error::invalid(format!("{level:?} is not a level of codec {name:?}")))?;
            spec.options.insert("level".to_owned(), Value::Int(level));
        }
        if name.is_empty() {
            return Err(Error::invalid("an empty codec name"));
        }
        Ok(spec)
    }
}

/// An array to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct ArraySpec {
    /// What it is.
    pub schema: ArraySchema,
    /// Codecs of each field, in the order they encode; empty means raw.
    pub codecs: Vec<Vec<CodecSpec>>,
}

impl ArraySpec {
    /// An array whose fields are all stored raw.
    pub fn raw(schema: ArraySchema) -> Self {
        Self { codecs: vec![Vec::new(); schema.fields.len()], schema }
    }
}

/// Encoded bytes of one part of a chunk.
#[derive(Clone, Debug)]
pub struct EncodedPart<'a> {
    /// The column.
    pub column: Column,
    /// What it holds.
    pub role: Role,
    /// The stored bytes; borrowed from the cells when storing changes nothing.
    pub bytes: Cow<'a, [u8]>,
    /// Bytes before encoding.
    pub raw_len: u64,
    /// The format's number of what was done to the bytes, where chunks may differ.
    pub codec: u32,
}

impl EncodedPart<'_> {
    /// The same part, borrowing nothing.
    pub fn into_owned<'b>(self) -> EncodedPart<'b> {
        EncodedPart {
            column: self.column,
            role: self.role,
            bytes: self.bytes.into_owned().into(),
            raw_len: self.raw_len,
            codec: self.codec,
        }
    }
}

/// An encoded chunk, ready to be pushed.
#[derive(Clone, Debug)]
pub struct EncodedChunk<'a> {
    /// Grid coordinates.
    pub coords: Coords,
    /// Its parts.
    pub parts: SmallVec<[EncodedPart<'a>; 1]>,
    /// Its statistics, one per field, when the writer asked for them.
    pub stats: Vec<ChunkStats>,
}

impl EncodedChunk<'_> {
    /// The same chunk, borrowing nothing.
    pub fn into_owned<'b>(self) -> EncodedChunk<'b> {
        let parts = self.parts.into_iter().map(EncodedPart::into_owned).collect();
        EncodedChunk { coords: self.coords, parts, stats: self.stats }
    }
}

/// A chunk as another container stored it.
#[derive(Clone, Debug)]
pub struct StoredChunk {
    /// What its bytes are.
    pub form: StoredForm,
    /// The bytes.
    pub bytes: Bytes,
    /// Bytes of the cells.
    pub raw_len: u64,
}

/// Bytes that have their place and are not there yet: all that is left of a chunk to be stored.
#[derive(Debug, Default)]
pub struct Pending<'a> {
    writes: Vec<Write<'a>>,
}

#[derive(Debug)]
struct Write<'a> {
    object: Arc<Box<dyn Staged>>,
    offset: u64,
    bytes: Cow<'a, [u8]>,
}

impl<'a> Pending<'a> {
    /// Adds bytes for a place of an object.
    pub fn push(&mut self, object: &Arc<Box<dyn Staged>>, offset: u64, bytes: Cow<'a, [u8]>) {
        self.writes.push(Write { object: Arc::clone(object), offset, bytes });
    }

    /// Adds what another one has.
    pub fn extend(&mut self, other: Self) {
        self.writes.extend(other.writes);
    }

    /// Writes them.
    ///
    /// # Errors
    /// `Io`.
    pub fn store(self) -> Result<()> {
        self.writes.into_iter().try_for_each(|write| write.object.write_at(write.offset, &write.bytes))
    }

    /// Writes them and keeps some of the buffers that they were in, emptied: memory that comes fresh for every chunk is cleared
    /// page by page, which takes longer than filling it.
    ///
    /// # Errors
    /// `Io`.
    pub fn store_into(self, spare: &mut Vec<Vec<u8>>) -> Result<()> {
        const KEPT: usize = 4;
        for write in self.writes {
            write.object.write_at(write.offset, &write.bytes)?;
            if let (Cow::Owned(mut bytes), true) = (write.bytes, spare.len() < KEPT) {
                bytes.clear();
                spare.push(bytes);
            }
        }
        Ok(())
    }
}

/// A container being written. Nothing is visible before [`commit`](Self::commit); dropping it leaves no trace.
pub trait Writer: Debug + Send + Sync {
    /// Declares an array and gives its number. Formats that store a directory first want all arrays declared before the
    /// first chunk.
    ///
    /// # Errors
    /// `Unsupported` when the format cannot hold the array, with the feature named; `InvalidRequest`.
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize>;

    /// Whether chunks of an array should come with statistics.
    fn wants_stats(&self, array: usize) -> bool;

    /// Whether the chunks of an array must be pushed in canonical order for the bytes to be canonical. Formats that know
    /// every chunk's place beforehand say no, and are pushed to from all threads at once.
    fn needs_order(&self, array: usize) -> bool {
        let _ = array;
        true
    }

    /// Bytes of an array that are held in memory until all of it is there; 0 where chunks go to the store as they come.
    fn gathers(&self, array: usize) -> u64 {
        let _ = array;
        0
    }

    /// In which order chunks are stored, where [order matters](Self::needs_order).
    fn chunk_order(&self, array: usize) -> Order {
        let _ = array;
        Order::RowMajor
    }

    /// How many cells make a chunk of a sparse array; the last one may have fewer. `None` for dense arrays.
    fn chunk_cells(&self, array: usize) -> Option<u64> {
        let _ = array;
        None
    }

    /// What the order goes by in which cells of a sparse array are stored. `columns` are the dimensions, then the fields. Keys of a
    /// cell depend on that cell alone.
    ///
    /// # Errors
    /// `InvalidRequest` for cells outside the domain; `Unsupported` by formats without sparse arrays.
    fn cell_keys<'a>(&self, array: usize, columns: &[ColumnData<'a>]) -> Result<CellKeys<'a>> {
        let _ = (array, columns);
        Err(Error::unsupported("writing cells one by one"))
    }

    /// Makes the chunks of a sparse array that were pushed so far a run of their own: those that follow are numbered from 0 again
    /// and sorted by themselves. Two runs hold no cell at the same position where positions hold one.
    ///
    /// # Errors
    /// `Unsupported` by formats that store one run; `Io`.
    fn seal(&self, array: usize) -> Result<()> {
        let _ = array;
        Err(Error::unsupported("cells in several runs"))
    }

    /// Encodes the cells of one chunk: its fields, or for sparse arrays its dimensions and then its fields, and `coords` is the
    /// number of the chunk. Pure: runs on any thread, in any order.
    ///
    /// # Errors
    /// `InvalidRequest` when the cells do not fit the chunk; `Codec`.
    fn encode<'a>(
        &self,
        array: usize,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        stats: Vec<ChunkStats>,
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>>;

    /// Whether an array would store chunks in this form, so that bytes of it can be taken over.
    fn adopts(&self, array: usize, form: StoredForm) -> bool {
        let _ = (array, form);
        false
    }

    /// Makes stored bytes of a form that it [adopts](Self::adopts) a chunk to be pushed.
    ///
    /// # Errors
    /// `InvalidRequest` when they do not fit the chunk.
    fn adopt<'a>(&self, array: usize, coords: &[u64], stored: &'a StoredChunk) -> Result<EncodedChunk<'a>> {
        let _ = (array, coords);
        Err(Error::invalid(format!("chunks of form {:?} are not taken over", stored.form)))
    }

    /// Stores an encoded chunk. Canonical order (arrays as declared, grids row-major) gives canonical bytes; any order is
    /// allowed, each chunk once.
    ///
    /// # Errors
    /// `InvalidRequest` for a chunk that was already stored or is outside the grid; `Io`.
    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()>;

    /// Gives an encoded chunk its place, as [`push`](Self::push) does, and leaves the writing to whoever asks: where chunks need
    /// their order, they are placed one after the other and written at the same time.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    fn place<'a>(&self, array: usize, chunk: EncodedChunk<'a>) -> Result<Pending<'a>> {
        self.push(array, chunk).map(|()| Pending::default())
    }

    /// Sets attributes of the container.
    ///
    /// # Errors
    /// `Unsupported` when the format cannot hold one, named.
    fn set_attributes(&mut self, attributes: Attributes) -> Result<()>;

    /// Adds a row to its history.
    ///
    /// # Errors
    /// `Unsupported` when the format has no place for it.
    fn add_history(&mut self, row: HistoryRow) -> Result<()>;

    /// Publishes the container: all of it or nothing.
    ///
    /// # Errors
    /// `InvalidRequest` when a chunk is missing, with the first one named; `Io`.
    fn commit(self: Box<Self>) -> Result<()>;
}
