//! The [`Writer`] trait: writing a container as one transaction.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};
use tesseral_core::{ArraySchema, Attributes, ChunkStats, Coords, Error, HistoryRow, Order, Result, Value};
use tesseral_store::Staged;

use crate::convention::TextExtent;
use crate::{CellKeys, Column, ColumnData, Groups, Role, Scratch, StoredForm};

/// A codec name with options.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct CodecSpec {
    /// Name: `raw`, `zstd`, …
    pub name: String,
    /// Options by name; `level` for codecs that have one.
    pub options: BTreeMap<String, Value>,
}

impl CodecSpec {
    /// Creates a codec without options.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), options: BTreeMap::new() }
    }

    /// Returns an integer option.
    pub fn int(&self, name: &str) -> Option<i64> {
        match self.options.get(name) {
            Some(Value::Int(value)) => Some(*value),
            _ => None,
        }
    }
}

impl std::str::FromStr for CodecSpec {
    type Err = Error;

    /// Parses `zstd`, `zstd:9` or `blosc:5:cname=zstd`: a name, a level, options.
    fn from_str(text: &str) -> Result<Self> {
        let mut parts = text.split(':');
        let name = parts.next().unwrap_or_default();
        let mut spec = Self::new(name);
        for part in parts {
            let invalid = || Error::invalid(format!("invalid level {part:?} of codec {name:?}"));
            let (option, value) = match part.split_once('=') {
                Some((option, value)) => {
                    (option, value.parse().map_or_else(|_| Value::from(value), Value::Int))
                }
                None => ("level", Value::Int(part.parse().map_err(|_| invalid())?)),
            };
            if option.is_empty() || spec.options.insert(option.to_owned(), value).is_some() {
                return Err(Error::invalid(format!("invalid option {part:?} of codec {name:?}")));
            }
        }
        if name.is_empty() {
            return Err(Error::invalid("empty codec name"));
        }
        Ok(spec)
    }
}

/// An array to create.
#[derive(Clone, Debug, PartialEq)]
pub struct ArraySpec {
    /// Schema of the array.
    pub schema: ArraySchema,
    /// Codecs of each field, in encoding order; empty means raw.
    pub codecs: Vec<Vec<CodecSpec>>,
    /// Properties of variable-length cells, required by formats with fixed-size cells only.
    pub text: Option<TextExtent>,
}

impl ArraySpec {
    /// Creates a spec whose fields are all stored raw.
    pub fn raw(schema: ArraySchema) -> Self {
        Self { codecs: vec![Vec::new(); schema.fields.len()], schema, text: None }
    }
}

/// Encoded bytes of one part of a chunk.
#[derive(Clone, Debug)]
pub struct EncodedPart<'a> {
    /// The column of the part.
    pub column: Column,
    /// Content of the part.
    pub role: Role,
    /// The stored bytes; borrowed if encoding does not change them.
    pub bytes: Cow<'a, [u8]>,
    /// Size before encoding in bytes.
    pub raw_len: u64,
    /// Codec number of the format, if chunks can differ.
    pub codec: u32,
}

impl EncodedPart<'_> {
    /// Converts to an owned part.
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
    /// Parts of the chunk.
    pub parts: SmallVec<[EncodedPart<'a>; 1]>,
    /// Statistics, one per field, if the writer requested them.
    pub stats: Vec<ChunkStats>,
}

impl<'a> EncodedChunk<'a> {
    /// Creates a chunk that is stored as one range of bytes, without statistics.
    pub fn contiguous(coords: &[u64], bytes: Cow<'a, [u8]>, raw_len: usize) -> Self {
        let part = EncodedPart {
            column: Column::Field(0),
            role: Role::Values,
            bytes,
            raw_len: raw_len as u64,
            codec: 0,
        };
        Self { coords: Coords::from_slice(coords), parts: smallvec![part], stats: Vec::new() }
    }

    /// The only part of a [contiguous](Self::contiguous) chunk.
    ///
    /// # Errors
    /// `InvalidRequest` if there is none.
    pub fn into_part(mut self) -> Result<EncodedPart<'a>> {
        self.parts.pop().ok_or_else(|| Error::invalid("a chunk without bytes"))
    }
}

impl EncodedChunk<'_> {
    /// Converts to an owned chunk.
    pub fn into_owned<'b>(self) -> EncodedChunk<'b> {
        let parts = self.parts.into_iter().map(EncodedPart::into_owned).collect();
        EncodedChunk { coords: self.coords, parts, stats: self.stats }
    }
}

/// A stored chunk of another container.
#[derive(Clone, Debug)]
pub struct StoredChunk {
    /// Encoding of the bytes.
    pub form: StoredForm,
    /// The stored bytes.
    pub bytes: Bytes,
    /// Decoded size in bytes.
    pub raw_len: u64,
    /// Statistics of its cells, as far as its container has them.
    pub stats: ChunkStats,
}

/// Writes of a placed chunk that are not done yet.
#[derive(Debug, Default)]
pub struct Pending<'a> {
    writes: Vec<PendingWrite<'a>>,
}

#[derive(Debug)]
struct PendingWrite<'a> {
    object: Arc<Box<dyn Staged>>,
    offset: u64,
    bytes: Cow<'a, [u8]>,
}

impl<'a> Pending<'a> {
    /// Adds bytes for an offset of an object.
    pub fn push(&mut self, object: &Arc<Box<dyn Staged>>, offset: u64, bytes: Cow<'a, [u8]>) {
        self.writes.push(PendingWrite { object: Arc::clone(object), offset, bytes });
    }

    /// Appends the writes of another value.
    pub fn extend(&mut self, other: Self) {
        self.writes.extend(other.writes);
    }

    /// Performs the writes.
    ///
    /// # Errors
    /// `Io`.
    pub fn store(self) -> Result<()> {
        self.writes.into_iter().try_for_each(|write| write.object.write_at(write.offset, &write.bytes))
    }

    /// Performs the writes and retains the memory of some buffers.
    ///
    /// # Errors
    /// `Io`.
    pub fn store_into(self, scratch: &mut Scratch) -> Result<()> {
        for write in self.writes {
            write.object.write_at(write.offset, &write.bytes)?;
            if let Cow::Owned(bytes) = write.bytes {
                scratch.keep_buffer(bytes);
            }
        }
        Ok(())
    }
}

/// Publishes an object that chunks were written to.
///
/// # Errors
/// `Io`; `Internal` while a chunk is being written.
pub fn publish_shared(object: Arc<Box<dyn Staged>>) -> Result<()> {
    let object = Arc::try_unwrap(object);
    object.map_err(|_| Error::internal("chunks are still being written"))?.publish()
}

/// Rejects the name of an array that was created before.
///
/// # Errors
/// `InvalidRequest`.
pub fn check_unique<'a>(mut names: impl Iterator<Item = &'a str>, name: &str) -> Result<()> {
    if names.any(|other| other == name) {
        return Err(Error::invalid(format!("duplicate array name {name:?}")));
    }
    Ok(())
}

/// Writer of a container. Nothing is visible before [`commit`](Self::commit); dropping it discards everything.
pub trait Writer: Debug + Send + Sync {
    /// Creates an array and returns its number. Formats with a leading directory require all arrays before the first chunk.
    ///
    /// # Errors
    /// `Unsupported` with the feature if the format cannot store the array; `InvalidRequest`.
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize>;

    /// Returns whether chunks of an array should have statistics.
    fn wants_stats(&self, array: usize) -> bool {
        let _ = array;
        false
    }

    /// Returns whether these statistics exclude declared missing values in addition to nulls.
    fn excludes_missing(&self, array: usize) -> bool {
        let _ = array;
        false
    }

    /// Returns whether the chunks of an array must be pushed in canonical order for canonical bytes. Formats that know every
    /// chunk's offset in advance return false and accept chunks from all threads.
    fn needs_order(&self, array: usize) -> bool {
        let _ = array;
        true
    }

    /// Size of an array in bytes that is kept in memory until it is complete; 0 if chunks are written immediately.
    fn buffered_bytes(&self, array: usize) -> u64 {
        let _ = array;
        0
    }

    /// Storage order of chunks, if [order matters](Self::needs_order).
    fn chunk_order(&self, array: usize) -> Order {
        let _ = array;
        Order::RowMajor
    }

    /// Number of cells per chunk of a sparse array; the last chunk can have fewer. `None` for dense arrays.
    fn chunk_cells(&self, array: usize) -> Option<u64> {
        let _ = array;
        None
    }

    /// Returns the sort keys of cells of a sparse array. `columns` are the dimensions, then the fields. Keys of a cell depend
    /// on that cell only.
    ///
    /// # Errors
    /// `InvalidRequest` for cells outside the domain; `Unsupported` by formats without sparse arrays.
    fn cell_keys<'a>(&self, array: usize, columns: &[ColumnData<'a>]) -> Result<CellKeys<'a>> {
        let _ = (array, columns);
        Err(Error::unsupported("writing sparse cells"))
    }

    /// Ends a run: the chunks of a sparse array pushed so far are stored separately, and following ones are numbered from 0 and
    /// sorted separately. Two runs must not have cells at the same position, unless duplicates are allowed.
    ///
    /// # Errors
    /// `Unsupported` by formats with a single run; `Io`.
    fn finish_run(&self, array: usize) -> Result<()> {
        let _ = array;
        Err(Error::unsupported("several runs of cells"))
    }

    /// Encodes the cells of one chunk: its fields, or for sparse arrays its dimensions and then its fields, with the chunk
    /// number as `coords`. Pure: runs on any thread, in any order.
    ///
    /// # Errors
    /// `InvalidRequest` when the cells do not match the chunk; `Codec`.
    fn encode<'a>(
        &self,
        array: usize,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        stats: Vec<ChunkStats>,
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>>;

    /// Returns whether an array stores chunks in this encoding, so that stored bytes can be copied.
    fn accepts_encoded(&self, array: usize, form: StoredForm) -> bool {
        let _ = (array, form);
        false
    }

    /// Converts stored bytes of an [accepted](Self::accepts_encoded) encoding to a chunk to push.
    ///
    /// # Errors
    /// `InvalidRequest` when they do not match the chunk.
    fn push_encoded<'a>(
        &self,
        array: usize,
        coords: &[u64],
        stored: &'a StoredChunk,
    ) -> Result<EncodedChunk<'a>> {
        let _ = (array, coords);
        Err(Error::invalid(format!("copying stored chunks of form {:?}", stored.form)))
    }

    /// Writes an encoded chunk. Canonical order (arrays in creation order, grids row-major) gives canonical bytes; any order is
    /// allowed, each chunk exactly once.
    ///
    /// # Errors
    /// `InvalidRequest` for a duplicate chunk or one outside the grid; `Io`.
    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()>;

    /// Writes an array from all of its cells, row-major and in native byte order, instead of its chunks, with up to `threads` threads. Returns
    /// false if it has not: the writer stores chunks, or the array is not the next one.
    ///
    /// # Errors
    /// As [`encode`](Self::encode); `Io`.
    fn push_all(&self, array: usize, cells: &[u8], threads: usize) -> Result<bool> {
        let _ = (array, cells, threads);
        Ok(false)
    }

    /// Places an encoded chunk as [`push`](Self::push) does, but returns the pending writes: chunks that need an order are
    /// placed sequentially and written in parallel.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    fn place<'a>(&self, array: usize, chunk: EncodedChunk<'a>) -> Result<Pending<'a>> {
        self.push(array, chunk).map(|()| Pending::default())
    }

    /// Sets attributes of the container.
    ///
    /// # Errors
    /// `Unsupported` with the attribute if the format cannot store it.
    fn set_attributes(&mut self, attributes: Attributes) -> Result<()>;

    /// Sets attributes of a group of the container.
    ///
    /// # Errors
    /// `Unsupported` by formats without groups.
    fn set_group(&mut self, path: &str, attributes: Attributes) -> Result<()> {
        let _ = attributes;
        Err(Error::unsupported(format!("the group {path:?}")))
    }

    /// Sets attributes of several groups, as [`set_group`](Self::set_group) of each does.
    ///
    /// # Errors
    /// As [`set_group`](Self::set_group).
    fn set_groups(&mut self, groups: Groups) -> Result<()> {
        groups.into_iter().try_for_each(|(path, attributes)| self.set_group(&path, attributes))
    }

    /// Adds a row to the history.
    ///
    /// # Errors
    /// `Unsupported` if the format has no history.
    fn add_history(&mut self, row: HistoryRow) -> Result<()>;

    /// Replaces the inputs of the last row of the history by others of the same length, any time before the commit. Returns false if the
    /// writer cannot: it has stored the row already.
    fn set_parents(&mut self, parents: &[String]) -> bool {
        let _ = parents;
        false
    }

    /// Ends a [part](crate::ContainerPart): its arrays are complete, and what is created or set afterwards belongs to the next one,
    /// whose arrays are numbered from 0. The last part ends with [`commit`](Self::commit), too.
    ///
    /// # Errors
    /// `Unsupported` by formats of one part; `InvalidRequest` with the first missing chunk; `Io`.
    fn finish_part(&mut self) -> Result<()> {
        Err(Error::unsupported("several parts"))
    }

    /// Publishes the container atomically.
    ///
    /// # Errors
    /// `InvalidRequest` with the first missing chunk; `Io`.
    fn commit(self: Box<Self>) -> Result<()>;
}
