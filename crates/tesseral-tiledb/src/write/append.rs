//! Appending a fragment to an existing array.

use std::sync::Arc;

use tesseral_core::{ArraySchema, Attributes, ChunkStats, Error, HistoryRow, Order, Region, Result};
use tesseral_format::{
    AppendOptions, ArraySpec, CellKeys, ColumnData, EncodedChunk, OpenOptions, Pending, Scratch, TimeRange,
    Writer,
};
use tesseral_store::Store;

use super::array::{DenseWrite, FragmentDestination};
use super::sparse::SparseWrite;
use super::timestamped_name;
use crate::directory::ArrayDirectory;
use crate::metadata_loader::MetadataLoader;
use crate::open::{ArrayListing, TileDbContainer, folder_name};
use crate::wire::check_written;
use crate::wire::schema::CellLayout;

/// Target of a write: a box of a dense array, or cells of a sparse array.
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

    pub(crate) fn place<'a>(
        &self,
        place: &FragmentDestination,
        chunk: EncodedChunk<'a>,
    ) -> Result<Pending<'a>> {
        match self {
            Self::Dense(write) => write.place(place, chunk),
            Self::Sparse(write) => write.place(place, chunk),
        }
    }

    pub(crate) fn finish(
        &self,
        place: &FragmentDestination,
    ) -> Result<Option<super::fragment::FragmentWriter>> {
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
            Self::Dense(write) if write.tile_order() == CellLayout::ColMajor => Order::ColMajor,
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
            Self::Dense(_) => Err(Error::invalid("a dense array is written by regions")),
            Self::Sparse(write) => write.keys(columns),
        }
    }
}

/// An array opened for writing.
#[derive(Debug)]
pub(crate) struct TileDbAppender {
    write: ArrayWrite,
    place: FragmentDestination,
}

/// Which parts of an array folder are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AppendExtent {
    /// Schemas and attributes, which suffice for an append.
    Schema,
    /// Also fragments and commits.
    Whole,
}

/// Opens what a write needs: the newest schema, and its file name.
pub(crate) fn open_for_write(
    store: &Arc<dyn Store>,
    options: &OpenOptions,
    extent: AppendExtent,
    array: Option<&str>,
) -> Result<(Arc<MetadataLoader>, ArrayListing, ArraySchema)> {
    if options.as_of.is_some() {
        return Err(Error::invalid("an array opened at a timestamp is read-only"));
    }
    let reader = Arc::new(MetadataLoader::new(Arc::clone(store), options)?);
    let prefix = match array {
        None => String::new(),
        Some(name) => TileDbContainer::open(Arc::clone(store), options)?.folder(name)?,
    };
    if prefix.is_empty() && crate::group::is_group(&reader)? {
        return Err(Error::invalid(format!("{} is a group; select one of its arrays", store.location())));
    }
    let directory = match extent {
        AppendExtent::Schema => ArrayDirectory::described(&reader, &prefix)?,
        AppendExtent::Whole => ArrayDirectory::scan(&reader, &prefix)?,
    };
    // Writes use the newest schema, regardless of the clock.
    let opening = ArrayListing::load(&reader, &prefix, directory, TimeRange { start: 0, end: u64::MAX })?;
    check_written(opening.current.wire.version)?;
    let name = folder_name(if prefix.is_empty() { store.location() } else { &prefix }).to_owned();
    let schema = opening.clone().finish(Arc::clone(&reader), &name, Vec::new())?.schema;
    Ok((reader, opening, schema))
}

impl TileDbAppender {
    pub(crate) fn open(store: &Arc<dyn Store>, options: &AppendOptions) -> Result<(Self, ArraySchema)> {
        let (reader, opening, schema) =
            open_for_write(store, &options.open, AppendExtent::Schema, options.array.as_deref())?;
        let stored = Arc::clone(&opening.current);
        let write = if schema.sparse {
            if options.region.is_some() {
                return Err(Error::invalid("a sparse array is written by cells"));
            }
            ArrayWrite::Sparse(Box::new(SparseWrite::new(stored, options.dedup)))
        } else {
            let whole = Region::from_shape(&schema.shape().unwrap_or_default());
            let region = options.region.clone().unwrap_or(whole);
            ArrayWrite::Dense(Box::new(DenseWrite::new(stored, region, store.location())?))
        };
        let timestamp = options.timestamp.unwrap_or_else(timestamped_name::now);
        let place = FragmentDestination {
            store: Arc::clone(store),
            prefix: opening.prefix().to_owned(),
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
        Err(Error::invalid("an append cannot create another array"))
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
        Err(Error::unsupported("setting attributes while appending to an array"))
    }

    fn add_history(&mut self, _row: HistoryRow) -> Result<()> {
        Err(Error::unsupported("adding history while appending to an array"))
    }

    fn commit(self: Box<Self>) -> Result<()> {
        match self.write.finish(&self.place)? {
            Some(mut fragment) => fragment.commit(),
            None => Ok(()),
        }
    }
}
