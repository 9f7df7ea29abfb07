//! Merging of dense fragments: later tiles are painted over earlier ones.

use tesseral_core::{CellLen, ChunkGrid, Error, Order, Region, Result, Selection, alloc};
use tesseral_format::{
    ArraySource, Column, ColumnData, ColumnMut, PlannedChunk, Request, Scratch, Target as RequestTarget,
};

use super::{ArraySnapshot, commit, fragment_destination};
use crate::array::TileDbArray;
use crate::write::array::DenseWrite;

/// The smallest box around the cells of fragments.
pub(super) fn bounding_box<'a>(regions: impl IntoIterator<Item = &'a Region>) -> Option<Region> {
    let mut out: Option<Vec<(u64, u64)>> = None;
    for region in regions {
        let bounds = region.bounds();
        out = Some(match out {
            None => bounds.to_vec(),
            Some(all) => all.iter().zip(bounds).map(|(a, b)| (a.0.min(b.0), a.1.max(b.1))).collect(),
        });
    }
    out.map(Region::new)
}

/// Cells of one column of one tile.
#[derive(Default)]
pub(crate) struct TileCells {
    pub values: Vec<u8>,
    pub offsets: Vec<u64>,
    pub validity: Option<Vec<u8>>,
    pub var: bool,
}

impl TileCells {
    pub(crate) fn data(&self) -> ColumnData<'_> {
        let validity = self.validity.as_deref();
        if self.var {
            ColumnData::Var { offsets: &self.offsets, data: &self.values, validity }
        } else {
            ColumnData::Fixed { values: &self.values, validity }
        }
    }

    /// Appends one cell of another column of the same type.
    pub(crate) fn push(&mut self, from: &Self, cell: usize, size: usize) {
        if self.var {
            self.values.extend_from_slice(crate::write::tile::cell_of(&from.offsets, &from.values, cell));
            self.offsets.push(self.values.len() as u64);
        } else {
            self.values.extend_from_slice(&from.values[cell * size..(cell + 1) * size]);
        }
        if let (Some(to), Some(from)) = (&mut self.validity, &from.validity) {
            to.push(from[cell]);
        }
    }

    /// Returns an empty column of the same type.
    pub(crate) fn like(&self) -> Self {
        Self { var: self.var, validity: self.validity.as_ref().map(|_| Vec::new()), ..Self::default() }
    }
}

/// Reads and decodes one column of a chunk.
pub(crate) fn read(
    array: &TileDbArray,
    chunk: &PlannedChunk,
    column: Column,
    size: Option<usize>,
    nullable: bool,
    scratch: &mut Scratch,
) -> Result<TileCells> {
    let mut parts = Vec::new();
    for (_, part) in chunk.column_parts(column) {
        let (fragment, tile) = array.locate(chunk.id)?;
        let (slot, file) = fragment
            .slot_file(part.object)
            .ok_or_else(|| Error::internal(format!("unknown object {} of a fragment", part.object)))?;
        let (start, _) = fragment.span(&array.reader, file, slot, tile)?;
        // Cells can follow a header that their digest covers.
        let from = usize::try_from(part.offset - start).unwrap_or(usize::MAX);
        parts.push(
            fragment.read_tile(&array.reader, &array.object(part.object), (slot, file), tile)?.slice(from..),
        );
    }
    let cells = usize::try_from(chunk.cells).map_err(|_| Error::limit("a tile", chunk.cells, u64::MAX))?;
    let mut out =
        TileCells { var: size.is_none(), validity: nullable.then(Vec::new), ..TileCells::default() };
    if let Some(validity) = &mut out.validity {
        alloc::resize("a tile", validity, cells, 0)?;
    }
    let validity = out.validity.as_deref_mut();
    let to = match size {
        Some(size) => {
            let bytes = cells.checked_mul(size).ok_or_else(|| Error::limit("a tile", u64::MAX, u64::MAX))?;
            alloc::resize("a tile", &mut out.values, bytes, 0)?;
            ColumnMut::Fixed { values: &mut out.values, validity }
        }
        None => ColumnMut::Var { offsets: &mut out.offsets, data: &mut out.values, validity },
    };
    array.decode(chunk, column, &parts, 0..chunk.cells, to, scratch)?;
    Ok(out)
}

/// Index of a cell in a box, in the given order.
fn position(region: &Region, order: Order, at: &[u64]) -> usize {
    let rank = region.rank();
    let each = (0..rank).map(|i| if order == Order::ColMajor { rank - 1 - i } else { i });
    let linear = each.fold(0_u64, |n, d| n * region.extent(d) + (at[d] - region.start(d)));
    usize::try_from(linear).unwrap_or(usize::MAX)
}

/// Calls `visit` for every cell of a box, in the given order.
fn each_cell(region: &Region, order: Order, mut visit: impl FnMut(&[u64])) {
    let rank = region.rank();
    let mut at: Vec<u64> = (0..rank).map(|d| region.start(d)).collect();
    loop {
        visit(&at);
        let mut turned = false;
        for i in 0..rank {
            let d = if order == Order::ColMajor { i } else { rank - 1 - i };
            at[d] += 1;
            if at[d] < region.end(d) {
                turned = true;
                break;
            }
            at[d] = region.start(d);
        }
        if !turned {
            return;
        }
    }
}

/// Writes one fragment over the box around all of them.
pub(super) fn paint(opened: &ArraySnapshot, array: &TileDbArray) -> Result<String> {
    let placements = array.fragments()?.iter().filter_map(|fragment| fragment.placement.as_ref());
    let Some(region) = bounding_box(placements.map(|placement| &placement.region)) else {
        return Err(Error::internal("the fragments have no cells"));
    };
    let place = fragment_destination(opened, array)?;
    let stored = std::sync::Arc::clone(&opened.opening.current);
    let write = DenseWrite::new(stored, region.clone(), opened.store.location())?;
    let schema = array.schema();
    let (Some(shape), Some(chunk)) = (schema.shape(), &schema.chunk_shape) else {
        return Err(Error::internal("the array has no grid"));
    };
    let grid = ChunkGrid::new(&shape, chunk)?;
    let mut scratch = Scratch::default();
    let touched = grid.touched(&Selection::from_region(&region));
    for coords in touched {
        let part = grid.region(&coords).intersect(&region).ok_or_else(|| Error::internal("an empty tile"))?;
        let columns = tile(array, &part, schema.cell_order, &mut scratch)?;
        let data: Vec<ColumnData<'_>> = columns.iter().map(TileCells::data).collect();
        let encoded = write.encode(&coords, &data, place.key.as_deref(), &mut scratch)?;
        write.place(&place, encoded)?.store()?;
    }
    commit(opened, array, write.finish(&place)?)
}

/// Returns the merged cells of a box inside one tile.
fn tile(array: &TileDbArray, part: &Region, order: Order, scratch: &mut Scratch) -> Result<Vec<TileCells>> {
    let schema = array.schema();
    let fields: Vec<Column> =
        (0..schema.fields.len()).map(|f| Column::Field(u16::try_from(f).unwrap_or(u16::MAX))).collect();
    let request = Request {
        target: RequestTarget::Cells(Selection::from_region(part)),
        columns: fields.clone(),
        condition: None,
    };
    let plan = tesseral_format::plan(array, &array.reader.store, &request)?;
    let count = usize::try_from(part.cells().unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    // For every cell, the chunk that provides it and its index there.
    let mut sources: Vec<Option<(usize, usize)>> = vec![None; count];
    let mut chunks: Vec<&PlannedChunk> = plan.chunks.iter().collect();
    chunks.sort_by_key(|chunk| chunk.layer);
    for (number, chunk) in chunks.iter().enumerate() {
        let (Some(cover), Some(whole)) = (chunk.cover.region(), chunk.tile_region()) else { continue };
        let Some(given) = cover.intersect(part) else { continue };
        each_cell(&given, order, |at| {
            sources[position(part, order, at)] = Some((number, position(whole, order, at)));
        });
    }
    let mut out = Vec::new();
    for (f, column) in fields.iter().enumerate() {
        let attribute = &array.current.wire.attributes[f];
        let size = if schema.fields[f].cell == CellLen::Var { None } else { Some(attribute.cell_size()) };
        let decoded = chunks
            .iter()
            .map(|chunk| read(array, chunk, *column, size, attribute.nullable, scratch))
            .collect::<Result<Vec<_>>>()?;
        let fill = TileCells {
            values: attribute.fill.clone(),
            offsets: vec![attribute.fill.len() as u64],
            validity: attribute.nullable.then(|| vec![u8::from(attribute.fill_valid)]),
            var: size.is_none(),
        };
        let mut cells = fill.like();
        for source in &sources {
            match source {
                Some((chunk, cell)) => cells.push(&decoded[*chunk], *cell, size.unwrap_or(1)),
                None => cells.push(&fill, 0, size.unwrap_or(1)),
            }
        }
        out.push(cells);
    }
    Ok(out)
}
