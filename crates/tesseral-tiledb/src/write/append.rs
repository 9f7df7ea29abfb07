//! A further fragment of an array that exists.

use std::sync::Arc;

use tesseral_core::{ArraySchema, Attributes, ChunkStats, Error, HistoryRow, Order, Region, Result};
use tesseral_format::{
    AppendOptions, ArraySpec, CellKeys, ColumnData, EncodedChunk, OpenOptions, Pending, Scratch, TimeRange,
    Writer,
};
use tesseral_store::Store;

use super::array::{DenseWrite, Place};
use super::names;
use super::sparse::SparseWrite;
use crate::directory::Directory;
use crate::open::{Opening, folder_name};
use crate::reader::Reader;
use crate::wire::check_written;
use crate::wire::schema::Layout;

/// What is written of an array: a box of a dense one, cells of a sparse one.
#[derive(Debug)]
pub(crate) enum ArrayWrite {
    Dense(Box<DenseWrite>),
    Sparse(Box<SparseWrite>),
}

impl ArrayWrite {
    pub(crate) fn encode<'a>(
        &self,
        coords: &[u64],
        columns: &[ColumnData<'_>],
        key: Option<&[u8; 32]>,
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        match self {
            Self::Dense(write) => write.encode(coords, columns, key, scratch),
            Self::Sparse(write) => write.encode(coords.first().copied().unwrap_or(0), columns, key, scratch),
        }
    }

    pub(crate) fn place<'a>(&self, place: &Place, chunk: EncodedChunk<'a>) -> Result<Pending<'a>> {
        match self {
            Self::Dense(write) => write.place(place, chunk),
            Self::Sparse(write) => write.place(place, chunk),
        }
    }

    pub(crate) fn finish(&self, place: &Place) -> Result<Option<super::fragment::FragmentWriter>> {
        match self {
            Self::Dense(write) => write.finish(place).map(Some),
            Self::Sparse(write) => write.finish(),
        }
    }

    pub(crate) fn needs_order(&self) -> bool {
        match self {
            Self::Dense(write) => write.needs_order(),
            Self::Sparse(_) => true,
        }
    }

    pub(crate) fn chunk_order(&self) -> Order {
        match self {
            Self::Dense(write) if write.tile_order() == Layout::ColMajor => Order::ColMajor,
            _ => Order::RowMajor,
        }
    }

    pub(crate) fn chunk_cells(&self) -> Option<u64> {
        match self {
            Self::Dense(_) => None,
            Self::Sparse(write) => Some(write.capacity()),
        }
    }

    pub(crate) fn keys<'a>(&self, columns: &[ColumnData<'a>]) -> Result<CellKeys<'a>> {
        match self {
            Self::Dense(_) => Err(Error::invalid("the array is dense: its cells are written box by box")),
            Self::Sparse(write) => write.keys(columns),
        }
    }
}

/// An array that is written to.
#[derive(Debug)]
pub(crate) struct TileDbAppender {
    write: ArrayWrite,
    place: Place,
}

/// What is listed of an array that is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// What it is: enough to add to it.
    Schema,
    /// Its fragments and commits too.
    Whole,
}

/// Opens what a write must know: the newest schema, by its file name.
pub(crate) fn open_for_write(
    store: &Arc<dyn Store>,
    options: &OpenOptions,
    extent: Extent,
) -> Result<(Arc<Reader>, Opening, ArraySchema)> {
    if options.as_of.is_some() {
        return Err(Error::invalid("the past of an array is read, not written"));
    }
    let reader = Arc::new(Reader::new(Arc::clone(store), options)?);
    if crate::group::is_group(&reader)? {
        return Err(Error::invalid(format!("{} is a group: name one of its arrays", store.location())));
    }
    let directory = match extent {
        Extent::Schema => Directory::described(&reader, "")?,
        Extent::Whole => Directory::scan(&reader, "")?,
    };
    // Writes go by the newest schema, whatever the clock says.
    let opening = Opening::of(&reader, "", directory, TimeRange { start: 0, end: u64::MAX })?;
    check_written(opening.current.wire.version)?;
    let name = folder_name(store.location()).to_owned();
    let schema = opening.clone().finish(Arc::clone(&reader), &name, Vec::new())?.schema;
    Ok((reader, opening, schema))
}

impl TileDbAppender {
    pub(crate) fn open(store: &Arc<dyn Store>, options: &AppendOptions) -> Result<(Self, ArraySchema)> {
        let (reader, opening, schema) = open_for_write(store, &options.open, Extent::Schema)?;
        let stored = Arc::clone(&opening.current);
        let write = if schema.sparse {
            if options.region.is_some() {
                return Err(Error::invalid("the array is sparse: its cells are written one by one"));
            }
            ArrayWrite::Sparse(Box::new(SparseWrite::new(stored, options.dedup)))
        } else {
            let whole = Region::from_shape(&schema.shape().unwrap_or_default());
            let region = options.region.clone().unwrap_or(whole);
            ArrayWrite::Dense(Box::new(DenseWrite::new(stored, region, store.location())?))
        };
        let timestamp = options.timestamp.unwrap_or_else(names::now);
        let place = Place {
            store: Arc::clone(store),
            prefix: String::new(),
            schema_name: opening.current_name,
            timestamp,
            end: timestamp,
            key: reader.key,
            digests: options.open.digests,
        };
        Ok((Self { write, place }, schema))
    }
}

impl Writer for TileDbAppender {
    fn begin(&mut self, _spec: &ArraySpec) -> Result<usize> {
        Err(Error::invalid("cells are added to the array that is there"))
    }

    fn wants_stats(&self, _array: usize) -> bool {
        false
    }

    fn needs_order(&self, _array: usize) -> bool {
        self.write.needs_order()
    }

    fn chunk_order(&self, _array: usize) -> Order {
        self.write.chunk_order()
    }

    fn chunk_cells(&self, _array: usize) -> Option<u64> {
        self.write.chunk_cells()
    }

    fn cell_keys<'a>(&self, _array: usize, columns: &[ColumnData<'a>]) -> Result<CellKeys<'a>> {
        self.write.keys(columns)
    }

    fn encode<'a>(
        &self,
        _array: usize,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        _stats: Vec<ChunkStats>,
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        self.write.encode(coords, columns, self.place.key.as_deref(), scratch)
    }

    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()> {
        self.place(array, chunk)?.store()
    }

    fn place<'a>(&self, _array: usize, chunk: EncodedChunk<'a>) -> Result<Pending<'a>> {
        self.write.place(&self.place, chunk)
    }

    fn set_attributes(&mut self, _attributes: Attributes) -> Result<()> {
        Err(Error::unsupported("attributes together with cells of an array that exists"))
    }

    fn add_history(&mut self, _row: HistoryRow) -> Result<()> {
        Err(Error::unsupported("history of an array that exists"))
    }

    fn commit(self: Box<Self>) -> Result<()> {
        match self.write.finish(&self.place)? {
            Some(mut fragment) => fragment.commit(),
            None => Ok(()),
        }
    }
}
