//! Writing of one dense array: its tiles and their fragment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tesseral_codec::filter::FilterContext;
use tesseral_core::{ChunkGrid, ChunkStats, Coords, Error, Region, Result};
use tesseral_format::{Column, ColumnData, EncodedChunk, EncodedPart, Pending, Scratch};
use tesseral_store::Store;

use super::fragment::{FragmentFeatures, FragmentWriter, Tile, fixed_tile};
use super::label::{OrderedValues, TileEnds};
use super::tile::{self, ColumnTarget};
use super::timestamped_name;
use crate::geometry::{FragmentExtent, Geometry};
use crate::metadata_loader::Key;
use crate::model::StoredSchema;
use crate::padded_tile::PaddedTile;
use crate::wire::datatype::VAR;
use crate::wire::schema::{CellLayout, StoredRange};

/// Destination and timestamps of a fragment.
#[derive(Clone, Debug)]
pub(crate) struct FragmentDestination {
    pub store: Arc<dyn Store>,
    pub prefix: String,
    pub schema_name: String,
    /// First and last timestamp of its cells.
    pub timestamp: u64,
    pub end: u64,
    pub key: Option<Key>,
    /// Whether the fragment has digests.
    pub digests: bool,
}

/// Writer of one fragment of a dense array.
#[derive(Debug)]
pub(crate) struct DenseWrite {
    schema: Arc<StoredSchema>,
    geometry: Geometry,
    grid: ChunkGrid,
    /// The written region.
    region: Region,
    domain: Vec<StoredRange>,
    placement: FragmentExtent,
    state: Mutex<DenseWriteState>,
}

#[derive(Debug, Default)]
struct DenseWriteState {
    fragment: Option<FragmentWriter>,
    /// Tiles that arrived out of order.
    waiting: BTreeMap<u64, Tile<'static>>,
    /// First and last value of each tile of ordered values.
    ends: BTreeMap<u64, TileEnds>,
}

impl DenseWrite {
    pub(crate) fn new(schema: Arc<StoredSchema>, region: Region, object: &str) -> Result<Self> {
        let geometry = Geometry::new(&schema.wire, object)?;
        if !geometry.is_aligned() {
            return Err(Error::unsupported(
                "writing to a dense TileDB array whose current domain begins inside a tile",
            ));
        }
        let shape = geometry.shape();
        let inside = region.rank() == shape.len()
            && region.bounds().iter().zip(&shape).all(|((start, end), n)| start < end && end <= n);
        if !inside {
            return Err(Error::invalid(format!("region {region:?} is out of bounds for shape {shape:?}")));
        }
        let grid = ChunkGrid::new(&shape, &geometry.chunk_shape())?;
        let domain = geometry.ranges(&region)?;
        let placement = geometry.locate_fragment(&domain, object)?;
        Ok(Self { schema, geometry, grid, region, domain, placement, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, DenseWriteState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the offset of a tile depends on previous ones: not if all tiles are uncompressed.
    pub(crate) fn needs_order(&self) -> bool {
        !self.schema.attributes.iter().all(|chains| fixed_tile(chains, self.geometry.cells).is_some())
    }

    pub(crate) fn tile_order(&self) -> CellLayout {
        self.schema.wire.tile_order
    }

    /// Returns the written cells of a chunk.
    fn cells(&self, coords: &[u64]) -> Result<Region> {
        let outside = || Error::invalid(format!("chunk {coords:?} is outside the written region"));
        if !self.grid.contains(coords) {
            return Err(outside());
        }
        self.grid.region(coords).intersect(&self.region).ok_or_else(outside)
    }

    pub(crate) fn encode<'a>(
        &self,
        coords: &[u64],
        columns: &[ColumnData<'_>],
        key: Option<&[u8; 32]>,
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        let cells = self.cells(coords)?;
        let count = cells.cells().unwrap_or(u64::MAX);
        let tile =
            self.geometry.tile(coords).ok_or_else(|| Error::internal("tile coordinates exceed 2^64"))?;
        if let (Some(ordered), [values]) = (OrderedValues::from_schema(&self.schema.wire), columns) {
            let ends = ordered.check_tile(values)?;
            let number = self.geometry.number(&self.placement, coords);
            self.state().ends.extend(number.zip(ends));
        }
        let frame = PaddedTile::new(tile, cells, self.geometry.cell_order);
        encode_columns(&self.schema, &fields(&self.schema), columns, count, Some(&frame), key, scratch).map(
            |(parts, stats)| EncodedChunk {
                coords: Coords::from_slice(coords),
                parts,
                stats: stats.into_iter().map(|(_, stats)| stats).collect(),
            },
        )
    }

    /// Places a chunk, or retains it until previous ones are placed.
    pub(crate) fn place<'a>(
        &self,
        place: &FragmentDestination,
        chunk: EncodedChunk<'a>,
    ) -> Result<Pending<'a>> {
        self.cells(&chunk.coords)?;
        let number = self.geometry.number(&self.placement, &chunk.coords);
        let number = number.ok_or_else(|| Error::invalid(format!("unknown chunk {:?}", chunk.coords)))?;
        // Hashed by the calling threads, before the lock is taken.
        let coords = chunk.coords.clone();
        let mut tile = Tile::new(chunk, place.digests);
        let mut state = self.state();
        let DenseWriteState { fragment, waiting, .. } = &mut *state;
        let fragment = fragment
            .get_or_insert_with(|| new_fragment(place, &self.schema).with_fixed_tiles(self.geometry.cells));
        if number < fragment.tiles() || waiting.contains_key(&number) {
            return Err(Error::invalid(format!("duplicate chunk {coords:?}")));
        }
        let mut pending = fragment.place_fixed(number, &mut tile.parts)?;
        if number > fragment.tiles() {
            waiting.insert(number, tile.into_owned());
            return Ok(pending);
        }
        pending.extend(store(fragment, tile)?);
        while let Some(next) = waiting.remove(&fragment.tiles()) {
            pending.extend(store(fragment, next.into_owned())?);
        }
        Ok(pending)
    }

    /// Publishes the fragment's files; [`FragmentWriter::commit`] then commits them.
    pub(crate) fn finish(&self, place: &FragmentDestination) -> Result<FragmentWriter> {
        let mut state = self.state();
        let mut fragment = state.fragment.take().unwrap_or_else(|| new_fragment(place, &self.schema));
        let (stored, all) = (fragment.tiles(), self.placement.tiles);
        if stored != all {
            let coords = self.geometry.coords(&self.placement, stored);
            let missing = all - stored - state.waiting.len() as u64;
            return Err(Error::invalid(format!("{missing} of {all} chunks are missing")).in_chunk(&coords));
        }
        if let Some(ordered) = OrderedValues::from_schema(&self.schema.wire) {
            ordered.check_tiles(state.ends.values())?;
        }
        fragment.finish(Some(self.domain.clone()), self.geometry.cells)?;
        Ok(fragment)
    }
}

pub(crate) fn new_fragment(place: &FragmentDestination, schema: &Arc<StoredSchema>) -> FragmentWriter {
    FragmentWriter::new(
        Arc::clone(&place.store),
        &place.prefix,
        timestamped_name::versioned(place.timestamp, place.end, schema.wire.version, place.digests),
        Arc::clone(schema),
        place.schema_name.clone(),
        place.key,
        FragmentFeatures::default(),
    )
}

fn store<'a>(fragment: &mut FragmentWriter, tile: Tile<'a>) -> Result<Pending<'a>> {
    let stats = (0_u16..).map(Column::Field).zip(tile.stats).collect::<Vec<_>>();
    fragment.place(tile.parts, &stats, None)
}

/// The attributes as columns.
pub(crate) fn fields(schema: &StoredSchema) -> Vec<ColumnTarget<'_>> {
    let attributes = schema.wire.attributes.iter().zip(&schema.attributes);
    (0..)
        .zip(attributes)
        .map(|(f, (a, chains))| ColumnTarget {
            column: Column::Field(f),
            datatype: a.datatype,
            values: a.values,
            chains,
        })
        .collect()
}

/// The dimensions as columns.
pub(crate) fn dims(schema: &StoredSchema) -> Vec<ColumnTarget<'_>> {
    let dims = schema.wire.dims.iter().zip(&schema.dims);
    (0..)
        .zip(dims)
        .map(|(d, (dim, chains))| ColumnTarget {
            column: Column::Dim(d),
            datatype: dim.datatype,
            values: if dim.var { VAR } else { 1 },
            chains,
        })
        .collect()
}

/// Parts and statistics of columns.
pub(crate) type Encoded<'a> = (SmallVec<[EncodedPart<'a>; 1]>, Vec<(Column, ChunkStats)>);

/// Filters the columns of one tile.
pub(crate) fn encode_columns<'a>(
    schema: &StoredSchema,
    targets: &[ColumnTarget<'_>],
    columns: &[ColumnData<'_>],
    cells: u64,
    frame: Option<&PaddedTile>,
    key: Option<&[u8; 32]>,
    scratch: &mut Scratch,
) -> Result<Encoded<'a>> {
    if targets.len() != columns.len() {
        let detail = format!("{} columns for {} fields of the array", columns.len(), targets.len());
        return Err(Error::invalid(detail));
    }
    let rules = FilterContext { version: schema.wire.version, verify: true, key };
    let mut parts = SmallVec::new();
    let mut stats = Vec::with_capacity(targets.len());
    for (target, data) in targets.iter().zip(columns) {
        tile::check(target, data, cells)?;
        stats.push((target.column, tile::encode(target, data, frame, &rules, scratch, &mut parts)?));
    }
    Ok((parts, stats))
}
