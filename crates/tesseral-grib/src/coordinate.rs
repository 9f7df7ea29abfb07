//! Coordinates as arrays. They are computed from headers and have no stored bytes.

use std::ops::Range;
use std::sync::Arc;

use tesseral_core::{ArraySchema, Attributes, Coords, DType, Dimension, Error, Result, Value, alloc};
use tesseral_format::{ColumnMut, ComputedArray, ComputedCells, contiguous_chunk_shape};

use crate::dataset::HeaderValues;
use crate::grid::{Axis, Grid};

/// Origin of the values of a coordinate.
#[derive(Clone, Debug)]
pub(crate) enum CoordinateOrigin {
    /// Headers of fields.
    Headers(HeaderValues),
    /// Sums of all reference times and steps in seconds, by time.
    ValidTime(Vec<i64>, Vec<f64>),
    /// A grid.
    Grid(Arc<Grid>, Axis),
}

/// The array of a coordinate.
pub(crate) type CoordinateArray = ComputedArray<CoordinateOrigin>;

/// A coordinate over named dimensions.
///
/// # Errors
/// `InvalidRequest` for dimensions that cannot be counted.
pub(crate) fn coordinate(
    name: &str,
    dims: &[(&str, u64)],
    attributes: Attributes,
    origin: CoordinateOrigin,
) -> Result<CoordinateArray> {
    let shape: Coords = dims.iter().map(|(_, extent)| *extent).collect();
    let dtype = match &origin {
        CoordinateOrigin::Headers(HeaderValues::Integers(_)) => DType::Int64,
        _ => DType::Float64,
    };
    let chunk = contiguous_chunk_shape(&shape, 8);
    let mut schema = ArraySchema::dense(name, dtype, &shape, &chunk);
    schema.dims = dims.iter().map(|(name, extent)| Dimension::new(*name, *extent)).collect();
    schema.attributes = attributes;
    tesseral_core::missing::declare(&mut schema);
    ComputedArray::new(schema, origin)
}

/// The coordinate of the points of a grid.
///
/// # Errors
/// As [`coordinate`].
pub(crate) fn grid_coordinate(name: &str, grid: &Arc<Grid>, axis: Axis) -> Result<CoordinateArray> {
    let mut attributes = Attributes::new();
    let mut put = |key: &str, value: &str| attributes.insert(key.to_owned(), Value::from(value));
    put("units", if axis == Axis::Latitude { "degrees_north" } else { "degrees_east" });
    put("standard_name", axis.name());
    put("long_name", axis.name());
    if axis == Axis::Latitude && grid.decreasing() {
        put("stored_direction", "decreasing");
    }
    let origin = CoordinateOrigin::Grid(Arc::clone(grid), axis);
    coordinate(name, &grid.axis_dimensions(axis), attributes, origin)
}

impl ComputedCells for CoordinateOrigin {
    fn write(&self, cells: Range<u64>, out: ColumnMut<'_>) -> Result<()> {
        let ColumnMut::Fixed { values, validity: None } = out else {
            return Err(Error::internal("a coordinate decodes into one column of fixed-size cells"));
        };
        let values = values.as_chunks_mut::<8>().0;
        let at = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let range = at(cells.start)..at(cells.end);
        let beyond = || Error::internal("cells outside a coordinate");
        match self {
            CoordinateOrigin::Headers(HeaderValues::Integers(own)) => {
                let own = own.get(range).ok_or_else(beyond)?;
                values.iter_mut().zip(own).for_each(|(out, value)| *out = value.to_ne_bytes());
            }
            CoordinateOrigin::Headers(HeaderValues::Floats(own)) => {
                let own = own.get(range).ok_or_else(beyond)?;
                values.iter_mut().zip(own).for_each(|(out, value)| *out = value.to_ne_bytes());
            }
            CoordinateOrigin::ValidTime(times, steps) => {
                let width = steps.len().max(1);
                let at = |cell: usize| Some(*times.get(cell / width)? as f64 + steps.get(cell % width)?);
                for (out, cell) in values.iter_mut().zip(range) {
                    *out = at(cell).ok_or_else(beyond)?.to_ne_bytes();
                }
            }
            CoordinateOrigin::Grid(grid, axis) => {
                let mut own: Vec<f64> = alloc::zeroed("coordinates", values.len())?;
                grid.coordinates(*axis, cells, &mut own)?;
                values.iter_mut().zip(own).for_each(|(out, value)| *out = value.to_ne_bytes());
            }
        }
        Ok(())
    }
}
