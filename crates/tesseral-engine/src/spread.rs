//! Cells of a sparse array at their positions: where each lies, and a block of positions painted with them.

use tesseral_core::{Dimension, Element, Error, Field, Result, Scalar, Selection, Slice, dispatch_element};
use tesseral_format::{Column, CoordinateRanges, Request, Target};

use crate::cells::Cells;
use crate::handle::Handle;
use crate::options::Options;
use crate::sparse::{CellBatch, CellOrder, cells};

/// The first coordinate of a dimension whose positions can be counted.
pub(crate) fn origin(dim: &Dimension) -> Option<i128> {
    dim.extent?;
    dim.domain.as_ref().map_or(Some(0), |(first, _)| first.as_i128())
}

/// The position of each coordinate of a column; `None` when the dimension's positions cannot be counted, or one lies before it.
pub(crate) fn positions(dim: &Dimension, column: &Cells) -> Option<Vec<u64>> {
    let first = origin(dim)?;
    dispatch_element!(dim.dtype, T => {
        let coordinates = column.data().chunks_exact(size_of::<T>());
        let position = |cell| u64::try_from(bytemuck::pod_read_unaligned::<T>(cell).to_i128() - first).ok();
        coordinates.map(position).collect()
    }, else => None)
}

/// The number of a position in a slice.
pub(crate) fn number_in(slice: &Slice, position: u64) -> Option<u64> {
    let from_start = position.checked_sub(slice.start)?;
    (position < slice.end && from_start.is_multiple_of(slice.step)).then(|| from_start / slice.step)
}

/// The coordinates that a selection of positions spans.
///
/// # Errors
/// `Unsupported` when the positions of a dimension cannot be counted.
pub fn ranges(dims: &[Dimension], selection: &Selection) -> Result<Vec<CoordinateRanges>> {
    let one = |(dim, slice): (&Dimension, &Slice)| {
        let uncounted =
            || Error::unsupported(format!("positions along dimension {:?}, which has none", dim.name));
        let first = origin(dim).ok_or_else(uncounted)?;
        let at = |position: u64| Scalar::from_i128(dim.dtype, first + i128::from(position));
        let last = slice.start + slice.count().saturating_sub(1) * slice.step;
        at(slice.start).zip(at(last)).map(|ends| vec![ends]).ok_or_else(uncounted)
    };
    dims.iter().zip(selection.slices()).map(one).collect()
}

/// Paints a selection of positions of a sparse array with its cells, row-major, into a column with nulls: a null over the fill
/// where there is none.
///
/// # Errors
/// `Unsupported` when positions cannot be counted or hold several cells, or cells have any length; `InvalidRequest` for a column
/// without nulls; as [`cells`].
pub fn spread(
    handle: &Handle,
    field: u16,
    selection: &Selection,
    column: &mut Cells,
    options: &Options,
) -> Result<()> {
    let schema = handle.schema();
    let unset = unset(spreadable(handle, field)?);
    let (values, Some(validity)) = column.parts_mut() else {
        return Err(Error::invalid("cells spread into a column without nulls").in_array(&schema.name));
    };
    values.chunks_exact_mut(unset.len()).for_each(|cell| cell.copy_from_slice(&unset));
    validity.fill(0);
    let columns = (0..).take(schema.dims.len()).map(Column::Dim).chain([Column::Field(field)]);
    let request = Request {
        target: Target::Coordinates(ranges(&schema.dims, selection)?),
        columns: columns.collect(),
        condition: None,
    };
    for batch in cells(handle, &request, CellOrder::Stored, options)? {
        paint(&schema.dims, selection, &batch?, column)?;
    }
    Ok(())
}

/// The field, where cells of a sparse array can be spread over its positions.
///
/// # Errors
/// `Unsupported`, as [`spread`] would.
pub fn spreadable(handle: &Handle, field: u16) -> Result<&Field> {
    let schema = handle.schema();
    let refuse = |feature: &str| Err(Error::unsupported(feature).in_array(&schema.name));
    if schema.dims.iter().any(|dim| origin(dim).is_none()) {
        return refuse("cells spread over positions that cannot be counted");
    }
    if schema.allows_duplicates {
        return refuse("cells spread over positions that may hold several");
    }
    match schema.fields.get(usize::from(field)) {
        Some(field) if field.cell_size().is_some() => Ok(field),
        _ => refuse("cells of any length spread over positions"),
    }
}

fn paint(dims: &[Dimension], selection: &Selection, batch: &CellBatch, column: &mut Cells) -> Result<()> {
    let Some(((_, cells), coordinates)) = batch.columns.split_last() else { return Ok(()) };
    let outside = || Error::invalid("a coordinate outside the domain");
    let axes: Vec<Vec<u64>> = dims
        .iter()
        .zip(coordinates)
        .map(|(dim, (_, cells))| positions(dim, cells).ok_or_else(outside))
        .collect::<Result<_>>()?;
    let size = column.size();
    let (values, Some(validity)) = column.parts_mut() else { return Ok(()) };
    for row in 0..batch.rows {
        let Some(place) = place(selection, &axes, row) else { continue };
        let to = values.get_mut(place * size..(place + 1) * size).ok_or_else(outside)?;
        to.copy_from_slice(cells.get(row));
        validity[place] = u8::from(cells.is_valid(row));
    }
    Ok(())
}

/// Where a row lies in the selection; `None` when a step passes over it.
fn place(selection: &Selection, axes: &[Vec<u64>], row: usize) -> Option<usize> {
    let mut place = 0;
    for (axis, slice) in axes.iter().zip(selection.slices()) {
        place = place * slice.count() + number_in(slice, axis[row])?;
    }
    usize::try_from(place).ok()
}

/// What lies where there is no cell.
fn unset(field: &Field) -> Vec<u8> {
    let size = field.cell_size().unwrap_or(0).max(1);
    let fill = field.fill.as_ref().map_or(&[0][..], |fill| fill.bytes());
    fill.iter().copied().cycle().chain(std::iter::repeat(0)).take(size).collect()
}
