//! Planning: chunks that serve a request, and their byte ranges.

use smallvec::{SmallVec, smallvec};
use tesseral_core::{Coords, Error, ErrorKind, Region, Result, Selection, TouchedChunk};
use tesseral_format::{Access, ChunkPlan, Column, Cover, Part, PlannedChunk, Request, Role, Uncovered};

use crate::array::TetArray;
use crate::lookup::IndexLookup;
use crate::wire::chunk_index::{IndexRow, RAW};

/// Plans a request. The cost is proportional to the number of chunks it touches.
pub(crate) fn plan(array: &TetArray, request: &Request) -> Result<ChunkPlan> {
    let Some(selection) = request.selection() else {
        return Err(Error::internal("a request by coordinates"));
    };
    // A memory-mapped index is used in place: a file that was truncated since must fail here, not on access to its pages.
    array.catalog.store.resident(&array.catalog.name)?;
    let touched = array.grid.touched(selection);
    let limits = &array.catalog.limits;
    // A plan is bounded by the number of rows: more chunks than rows means that one is missing.
    let rows = array.catalog.layout.rows().len();
    let mut chunks = Vec::with_capacity(rows.min(usize::try_from(touched.remaining()).unwrap_or(rows)));
    // Most chunks of a damaged file can be missing, so iterate over the rows instead of the grid.
    let listed =
        (array.catalog.truncated && touched.remaining() > rows as u64).then(|| listed(array, selection));
    let mut add = |chunk: TouchedChunk<'_>| match plan_chunk(array, &chunk, &request.columns) {
        Ok(planned) => {
            chunks.push(planned);
            Ok(())
        }
        Err(error) if array.catalog.truncated && !matches!(error.kind(), ErrorKind::Limit { .. }) => Ok(()),
        Err(error) => Err(array.name_chunk(error, chunk.coords)),
    };
    match listed {
        Some(listed) => {
            for coords in &listed {
                let region = &array.grid.region(coords);
                add(TouchedChunk { coords, linear: array.grid.linear(coords), region })?;
            }
        }
        None => {
            limits.check_plan(touched.remaining()).map_err(|e| e.in_array(&array.schema.name))?;
            array.grid.visit_touched(selection, add)?;
        }
    }
    let uncovered = if array.catalog.truncated { Uncovered::Fill } else { Uncovered::Impossible };
    Ok(ChunkPlan { chunks, uncovered, deletes: Vec::new() })
}

/// Grid coordinates of the selected chunks that have a row, in row-major order.
fn listed(array: &TetArray, selection: &Selection) -> Vec<Coords> {
    let grid = &array.grid;
    let own = array.catalog.layout.rows().iter().filter(|row| row.dataset_id.get() == array.number as u64);
    let coords = own.map(|row| row.coords(grid.rank())).filter(|coords| grid.contains(coords));
    let mut listed: Vec<Coords> =
        coords.filter(|coords| selection.clip(&grid.region(coords)).is_some()).collect();
    listed.sort_by_key(|coords| grid.linear(coords));
    listed.dedup();
    listed
}

/// Plans one chunk of the grid.
pub(crate) fn plan_chunk(
    array: &TetArray,
    chunk: &TouchedChunk<'_>,
    columns: &[Column],
) -> Result<PlannedChunk> {
    let layout = &array.catalog.layout;
    let index = layout.head.superblock.chunk_index_offset;
    let corrupt = |detail: String| Error::corrupt("chunk index", &layout.object, index, detail);
    let number = match array.catalog.find_row(array.number, chunk.linear) {
        IndexLookup::Row(number) => number,
        IndexLookup::Missing => return Err(corrupt("missing row of the chunk".to_owned())),
        IndexLookup::Duplicate(a, b) => {
            return Err(corrupt(format!("duplicate rows {a} and {b} of the chunk")));
        }
    };
    let row = usize::try_from(number).ok().and_then(|n| layout.rows().get(n));
    let row = row.ok_or_else(|| corrupt(format!("row {number} out of bounds")))?;
    let cells = check_row(array, number, row, chunk.region)?;
    let access = match row.codec.get() {
        RAW => Access::Direct { swapped: cfg!(target_endian = "big") },
        _ => {
            // The size of raw chunks is bounded by the file; the size of decompressed chunks must be limited.
            array.catalog.limits.check_decoded(row.raw_byte_len.get(), row.stored_byte_len.get())?;
            Access::Coded { granule: None }
        }
    };
    let part = |column: &Column| Part {
        column: *column,
        role: Role::Values,
        object: 0,
        offset: row.payload_offset.get(),
        len: row.stored_byte_len.get(),
    };
    let parts: SmallVec<[Part; 1]> = match columns {
        [column] => smallvec![part(column)],
        _ => columns.iter().map(part).collect(),
    };
    Ok(PlannedChunk {
        id: number,
        cover: Cover::Exact(chunk.region.clone()),
        tile: None,
        layer: 0,
        cells,
        parts,
        access,
        whole: true,
    })
}

/// Validates a row against its tile; returns the number of cells.
fn check_row(array: &TetArray, number: u64, row: &IndexRow, region: &Region) -> Result<u64> {
    let layout = &array.catalog.layout;
    let index = layout.head.superblock.chunk_index_offset;
    // Already validated at open, unless the file is truncated.
    if row.is_suspect(layout.head.end, layout.payload_len) {
        row.check(&layout.object, index, number, layout.head.end, layout.payload_len)?;
    }
    let cells = region.cells();
    let bytes = cells.and_then(|n| n.checked_mul(array.cell as u64));
    match (cells, bytes) {
        (Some(cells), Some(bytes)) if bytes == row.raw_byte_len.get() => Ok(cells),
        _ => {
            let detail = format!(
                "row {number} declares {} bytes for a tile of {:?} cells of {}",
                row.raw_byte_len.get(),
                region.shape(),
                array.cell
            );
            Err(Error::corrupt("chunk index row", &layout.object, row_offset(index, number), detail))
        }
    }
}

/// Offset of a row in the file.
pub(crate) fn row_offset(index: u64, number: u64) -> u64 {
    use crate::wire::chunk_index::{HEADER_LEN, ROW_LEN};
    index.saturating_add(HEADER_LEN).saturating_add(number.saturating_mul(ROW_LEN))
}
