//! Placement of sparse cells at their positions, and painting of blocks of positions.

use tesseral_core::{Dimension, Element, Error, Field, Result, Scalar, Selection, Slice, dispatch_element};
use tesseral_format::{Column, CoordinateRanges, Request, Target};

use crate::decode::columns::Cells;
use crate::handle::Handle;
use crate::merge::sparse::{CellBatch, CellOrder, cells};
use crate::options::Options;

/// The first coordinate of a dimension with countable positions.
pub(crate) fn origin(dim: &Dimension) -> Option<i128> {
    dim.extent?;
    dim.domain.as_ref().map_or(Some(0), |(first, _)| first.as_i128())
}

/// Position of each coordinate of a column; `None` if positions are not countable, or a coordinate precedes the dimension.
pub(crate) fn positions(dim: &Dimension, column: &Cells) -> Option<Vec<u64>> {
    let first = origin(dim)?;
    dispatch_element!(dim.dtype, T => {
        let coordinates = column.data().chunks_exact(size_of::<T>());
        let position = |cell| u64::try_from(bytemuck::pod_read_unaligned::<T>(cell).to_i128() - first).ok();
        coordinates.map(position).collect()
    }, else => None)
}

/// Index of a position in a slice.
pub(crate) fn number_in(slice: &Slice, position: u64) -> Option<u64> {
    let from_start = position.checked_sub(slice.start)?;
    (position < slice.end && from_start.is_multiple_of(slice.step)).then(|| from_start / slice.step)
}

/// Coordinates that a selection of positions spans.
///
/// # Errors
/// `Unsupported` if the positions of a dimension are not countable.
pub fn ranges(dims: &[Dimension], selection: &Selection) -> Result<Vec<CoordinateRanges>> {
    let axis_positions = |(dim, slice): (&Dimension, &Slice)| {
        let uncounted =
            || Error::unsupported(format!("positions of dimension {:?}, which is not countable", dim.name));
        let first = origin(dim).ok_or_else(uncounted)?;
        let at = |position: u64| Scalar::from_i128(dim.dtype, first + i128::from(position));
        let last = slice.start + slice.count().saturating_sub(1) * slice.step;
        at(slice.start).zip(at(last)).map(|ends| vec![ends]).ok_or_else(uncounted)
    };
    dims.iter().zip(selection.slices()).map(axis_positions).collect()
}

/// Paints a selection of positions of a sparse array with its cells, row-major, into a nullable column; positions without a
/// cell are null with the fill value.
///
/// # Errors
/// `Unsupported` if positions are not countable or can have several cells, or cells are variable-length; `InvalidRequest` for a
/// column that is not nullable; as [`cells`].
pub fn scatter_cells(
    handle: &Handle,
    field: u16,
    selection: &Selection,
    column: &mut Cells,
    options: &Options,
) -> Result<()> {
    let schema = handle.schema();
    let unset = unset(scatterable(handle, field)?);
    let (values, Some(validity)) = column.parts_mut() else {
        return Err(Error::internal("scattered cells require a nullable column").in_array(&schema.name));
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

/// Returns the field if sparse cells can be scattered to its positions.
///
/// # Errors
/// `Unsupported`, as for [`scatter_cells`].
pub fn scatterable(handle: &Handle, field: u16) -> Result<&Field> {
    let schema = handle.schema();
    let refuse = |feature: &str| Err(Error::unsupported(feature).in_array(&schema.name));
    if schema.dims.iter().any(|dim| origin(dim).is_none()) {
        return refuse("scattering cells over dimensions that are not countable");
    }
    if schema.allows_duplicates {
        return refuse("scattering cells of an array with duplicates");
    }
    match schema.fields.get(usize::from(field)) {
        Some(field) if field.cell_size().is_some() => Ok(field),
        _ => refuse("scattering variable-length cells"),
    }
}

fn paint(dims: &[Dimension], selection: &Selection, batch: &CellBatch, column: &mut Cells) -> Result<()> {
    let Some(((_, cells), coordinates)) = batch.columns.split_last() else { return Ok(()) };
    let outside = || Error::internal("a coordinate outside the domain");
    let axes: Vec<Vec<u64>> = dims
        .iter()
        .zip(coordinates)
        .map(|(dim, (_, cells))| positions(dim, cells).ok_or_else(outside))
        .collect::<Result<_>>()?;
    let size = column.size();
    let (values, Some(validity)) = column.parts_mut() else { return Ok(()) };
    for row in 0..batch.rows {
        let Some(place) = linear_index(selection, &axes, row) else { continue };
        let to = values.get_mut(place * size..(place + 1) * size).ok_or_else(outside)?;
        to.copy_from_slice(cells.get(row));
        validity[place] = u8::from(cells.is_valid(row));
    }
    Ok(())
}

/// Index of a row in the selection; `None` if a step skips it.
fn linear_index(selection: &Selection, axes: &[Vec<u64>], row: usize) -> Option<usize> {
    let mut place = 0;
    for (axis, slice) in axes.iter().zip(selection.slices()) {
        place = place * slice.count() + number_in(slice, axis[row])?;
    }
    usize::try_from(place).ok()
}

/// Value of positions without a cell.
fn unset(field: &Field) -> Vec<u8> {
    let size = field.cell_size().unwrap_or(0).max(1);
    let fill = field.fill.as_ref().map_or(&[0][..], |fill| fill.bytes());
    fill.iter().copied().cycle().chain(std::iter::repeat(0)).take(size).collect()
}
