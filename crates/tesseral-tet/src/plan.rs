//! Which chunks serve a request, and where their bytes are.

use smallvec::SmallVec;
use tesseral_core::{Coords, Error, ErrorKind, Region, Result, Selection};
use tesseral_format::{
    Access, ChunkPlan, Column, Cover, Part, PlannedChunk, Request, Role, Target, Uncovered,
};

use crate::array::TetArray;
use crate::lookup::Found;
use crate::wire::chunk_index::{RAW, Row};

/// Plans a request. Costs a small multiple of the chunks it touches, whatever the file holds beside them.
pub(crate) fn plan(array: &TetArray, request: &Request) -> Result<ChunkPlan> {
    let selection = check(array, request).map_err(|e| e.in_array(&array.schema.name))?;
    // The index is used where it is mapped: a file that was cut meanwhile must fail here, not when its pages are touched.
    array.catalog.store.resident(&array.catalog.name)?;
    let touched = array.grid.touched(selection);
    let limits = &array.catalog.limits;
    // A plan is bounded by the rows there are: more chunks than rows means that one is missing.
    let rows = array.catalog.layout.rows().len();
    let mut chunks = Vec::with_capacity(rows.min(usize::try_from(touched.remaining()).unwrap_or(rows)));
    // Of a damaged file most chunks may be missing: those that have a row are found without trying all others.
    let listed = (array.catalog.torn && touched.remaining() > rows as u64).then(|| listed(array, selection));
    let coords: Box<dyn Iterator<Item = Coords>> = match listed {
        Some(listed) => Box::new(listed.into_iter()),
        None => {
            limits.check_plan(touched.remaining()).map_err(|e| e.in_array(&array.schema.name))?;
            Box::new(touched)
        }
    };
    for coords in coords {
        let planned = plan_chunk(array, &coords, &request.columns);
        match planned {
            Ok(chunk) => chunks.push(chunk),
            Err(error) if array.catalog.torn && !matches!(error.kind(), ErrorKind::Limit { .. }) => {}
            Err(error) => return Err(array.name_chunk(error, &coords)),
        }
    }
    let uncovered = if array.catalog.torn { Uncovered::Fill } else { Uncovered::Impossible };
    Ok(ChunkPlan { chunks, uncovered, deletes: Vec::new() })
}

/// Grid coordinates of the chunks that have a row and hold a selected cell, in row-major order of the grid.
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

fn check<'a>(array: &TetArray, request: &'a Request) -> Result<&'a Selection> {
    let Target::Cells(selection) = &request.target else {
        return Err(Error::invalid("a .tet array is dense: it has no coordinates to select by"));
    };
    if let Some(column) = request.columns.iter().find(|column| **column != Column::Field(0)) {
        return Err(Error::invalid(format!("a .tet array has one field, {column:?} is not it")));
    }
    let shape = array.grid.shape();
    let fits = selection.rank() == shape.len()
        && selection.slices().iter().zip(shape).all(|(slice, n)| slice.end <= *n && slice.step > 0);
    if !fits {
        return Err(Error::invalid(format!("the selection does not fit an array of {shape:?}")));
    }
    Ok(selection)
}

/// Plans one chunk of the grid.
pub(crate) fn plan_chunk(array: &TetArray, coords: &[u64], columns: &[Column]) -> Result<PlannedChunk> {
    let layout = &array.catalog.layout;
    let index = layout.head.superblock.chunk_index_offset;
    let corrupt = |detail: String| Error::corrupt("chunk index", &layout.object, index, detail);
    let number = match array.catalog.find_row(array.number, array.grid.linear(coords)) {
        Found::Row(number) => number,
        Found::Missing => return Err(corrupt("the chunk has no row".to_owned())),
        Found::Twice(a, b) => return Err(corrupt(format!("the chunk has two rows, {a} and {b}"))),
    };
    let row = usize::try_from(number).ok().and_then(|n| layout.rows().get(n));
    let row = row.ok_or_else(|| corrupt(format!("there is no row {number}")))?;
    let region = array.grid.region(coords);
    let cells = check_row(array, number, row, &region)?;
    let access = match row.codec.get() {
        RAW => Access::Direct { swapped: cfg!(target_endian = "big") },
        _ => {
            // Raw chunks are as long as their bytes in the file; what zstd makes of its bytes must be bounded.
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
    let parts: SmallVec<[Part; 1]> = columns.iter().map(part).collect();
    Ok(PlannedChunk {
        id: number,
        cover: Cover::Exact(region),
        tile: None,
        layer: 0,
        cells,
        parts,
        access,
        whole: true,
    })
}

/// Checks a row against the tile it must hold; gives the number of cells.
fn check_row(array: &TetArray, number: u64, row: &Row, region: &Region) -> Result<u64> {
    let layout = &array.catalog.layout;
    let index = layout.head.superblock.chunk_index_offset;
    // Opening has checked this already, unless the file is torn.
    row.check(&layout.object, index, number, layout.head.end, layout.payload_len)?;
    let cells = region.cells();
    let bytes = cells.and_then(|n| n.checked_mul(array.cell as u64));
    match (cells, bytes) {
        (Some(cells), Some(bytes)) if bytes == row.raw_byte_len.get() => Ok(cells),
        _ => {
            let detail = format!(
                "row {number} says {} bytes for a tile of {:?} cells of {}",
                row.raw_byte_len.get(),
                region.shape(),
                array.cell
            );
            Err(Error::corrupt("chunk index row", &layout.object, row_offset(index, number), detail))
        }
    }
}

/// Where a row lies in the file.
pub(crate) fn row_offset(index: u64, number: u64) -> u64 {
    use crate::wire::chunk_index::{HEADER_LEN, ROW_LEN};
    index.saturating_add(HEADER_LEN).saturating_add(number.saturating_mul(ROW_LEN))
}
