//! Writing of one fragment of a sparse array.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use tesseral_core::{ChunkStats, Coords, Element, Error, Result, Scalar, Stat, dispatch_element};
use tesseral_format::{CellKeys, Column, ColumnData, DuplicatePolicy, EncodedChunk, Pending, Scratch};

use super::array::{FragmentDestination, dims, encode_columns, fields, new_fragment};
use super::fragment::{FragmentWriter, Tile};
use super::order;
use super::tile::{ColumnTarget, cell_of};
use crate::model::StoredSchema;
use crate::wire::datatype::{Datatype, compare};
use crate::wire::schema::StoredRange;

/// Cells to be stored in global order.
#[derive(Debug)]
pub(crate) struct SparseWrite {
    schema: Arc<StoredSchema>,
    dedup: bool,
    state: Mutex<SparseWriteState>,
}

#[derive(Debug, Default)]
struct SparseWriteState {
    fragment: Option<FragmentWriter>,
    waiting: BTreeMap<u64, Tile<'static>>,
    /// Number of cells of the last tile.
    last: u64,
}

/// Returns the minimum and maximum coordinate of a column.
pub(crate) fn bounds(datatype: Datatype, column: &ColumnData<'_>) -> Option<StoredRange> {
    let around = |cells: &mut dyn Iterator<Item = &[u8]>| {
        cells.fold(None, |ends: Option<StoredRange>, cell| match ends {
            None => Some((cell.to_vec(), cell.to_vec())),
            Some((low, high)) => Some((
                if compare(datatype, cell, &low).is_lt() { cell.to_vec() } else { low },
                if compare(datatype, cell, &high).is_gt() { cell.to_vec() } else { high },
            )),
        })
    };
    match *column {
        ColumnData::Fixed { values, .. } => {
            dispatch_element!(datatype.dtype(), T => around_numbers::<T>(values),
            else => around(&mut values.chunks_exact(datatype.size())))
        }
        ColumnData::Var { offsets, data, .. } => {
            around(&mut (0..offsets.len()).map(|i| cell_of(offsets, data, i)))
        }
    }
}

/// Minimum and maximum of numbers, none of which is NaN. The first of equal ones counts.
fn around_numbers<T: Element>(values: &[u8]) -> Option<StoredRange> {
    let mut each = values.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>);
    let first = each.next()?;
    let (low, high) = each.fold((first, first), |(low, high), value| {
        (if value < low { value } else { low }, if value > high { value } else { high })
    });
    Some((bytemuck::bytes_of(&low).to_vec(), bytemuck::bytes_of(&high).to_vec()))
}

impl SparseWrite {
    pub(crate) fn new(schema: Arc<StoredSchema>, dedup: bool) -> Self {
        Self { schema, dedup, state: Mutex::default() }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.schema.wire.capacity
    }

    pub(crate) fn keys<'a>(&self, columns: &[ColumnData<'a>]) -> Result<CellKeys<'a>> {
        let (keys, cells) = order::keys(&self.schema.wire, columns)?;
        let duplicate_policy = match (self.schema.wire.duplicates, self.dedup) {
            (true, _) => DuplicatePolicy::KeepAll,
            (false, true) => DuplicatePolicy::KeepLast,
            (false, false) => DuplicatePolicy::Reject,
        };
        Ok(CellKeys { keys, cells, duplicate_policy })
    }

    /// Dimensions, then fields.
    fn targets(&self) -> Vec<ColumnTarget<'_>> {
        let mut targets = dims(&self.schema);
        targets.extend(fields(&self.schema));
        targets
    }

    pub(crate) fn encode<'a>(
        &self,
        number: u64,
        columns: &[ColumnData<'_>],
        key: Option<&[u8; 32]>,
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        let wire = &self.schema.wire;
        let first = wire.dims.first().zip(columns.first());
        let cells = first.map_or(0, |(dim, column)| match column {
            ColumnData::Fixed { values, .. } => values.len() / dim.datatype.size(),
            ColumnData::Var { offsets, .. } => offsets.len(),
        });
        if cells == 0 || cells as u64 > wire.capacity {
            return Err(Error::invalid(format!("{cells} cells in a tile of {}", wire.capacity)));
        }
        let (parts, stats) =
            encode_columns(&self.schema, &self.targets(), columns, cells as u64, None, key, scratch)?;
        let mut stats: Vec<ChunkStats> = stats.into_iter().map(|(_, stats)| stats).collect();
        // The box of the tile is passed with the statistics of its dimensions.
        for ((dim, column), stats) in wire.dims.iter().zip(columns).zip(&mut stats) {
            if let Some((low, high)) = bounds(dim.datatype, column) {
                let dtype = dim.datatype.dtype();
                stats.min = Stat::Exact(Scalar::from_le_bytes(dtype, &low)?);
                stats.max = Stat::Exact(Scalar::from_le_bytes(dtype, &high)?);
            }
        }
        Ok(EncodedChunk { coords: Coords::from_slice(&[number]), parts, stats })
    }

    pub(crate) fn place<'a>(
        &self,
        place: &FragmentDestination,
        chunk: EncodedChunk<'a>,
    ) -> Result<Pending<'a>> {
        let number = chunk.coords.first().copied().unwrap_or(0);
        let tile = Tile::new(chunk, place.digests);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let SparseWriteState { fragment, waiting, last } = &mut *state;
        let fragment = fragment.get_or_insert_with(|| new_fragment(place, &self.schema));
        if number < fragment.tiles() || waiting.contains_key(&number) {
            return Err(Error::invalid(format!("duplicate tile {number}")));
        }
        if number > fragment.tiles() {
            waiting.insert(number, tile.into_owned());
            return Ok(Pending::default());
        }
        let mut pending = self.store(fragment, last, tile)?;
        while let Some(next) = waiting.remove(&fragment.tiles()) {
            pending.extend(self.store(fragment, last, next.into_owned())?);
        }
        Ok(pending)
    }

    fn store<'a>(
        &self,
        fragment: &mut FragmentWriter,
        last: &mut u64,
        tile: Tile<'a>,
    ) -> Result<Pending<'a>> {
        if fragment.tiles() > 0 && *last != self.capacity() {
            return Err(Error::invalid("only the last tile of a fragment can have fewer cells"));
        }
        let columns = self.targets().into_iter().map(|t| t.column);
        let stats: Vec<(Column, ChunkStats)> = columns.zip(tile.stats).collect();
        let ranges = stats.iter().take(self.schema.wire.dims.len()).map(|(_, stats)| {
            let end = |stat: &Stat<Scalar>| stat.exact().map(|s| s.bytes().to_vec()).unwrap_or_default();
            (end(&stats.min), end(&stats.max))
        });
        *last = stats.first().map_or(0, |(_, stats)| stats.cells);
        let ranges = ranges.collect();
        fragment.place(tile.parts, &stats, Some(ranges))
    }

    /// Publishes the fragment's files; does nothing without cells.
    pub(crate) fn finish(&self) -> Result<Option<FragmentWriter>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(number) = state.waiting.keys().next() {
            return Err(Error::invalid(format!("tiles before {number} are missing")));
        }
        let Some(mut fragment) = state.fragment.take() else { return Ok(None) };
        let domain = fragment.domain();
        fragment.finish(domain, state.last)?;
        Ok(Some(fragment))
    }
}
