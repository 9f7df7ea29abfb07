//! Weights by name: a variable, or the cosine of coordinates.

use tesseral_core::dtype::Class;
use tesseral_core::{DType, Error, Result, Selection, dispatch_element};
use tesseral_engine::fold::Weights;
use tesseral_format::Column;

use crate::{Array, Container};

/// Reads the weights of a selection: a variable of the container along some of the dimensions, or `cos(lat)`, the cosine of
/// coordinates in degrees.
///
/// # Errors
/// `NotFound` for unknown names; `InvalidRequest` for weights that are missing, not finite or over other dimensions; errors of
/// reading.
pub fn weights(array: &Array, container: &Container, text: &str, selection: &Selection) -> Result<Weights> {
    let cosine = text.trim().strip_prefix("cos(").and_then(|rest| rest.strip_suffix(')'));
    match cosine {
        Some(name) => cosines(array, name.trim(), selection),
        None => of_variable(array, container, text.trim(), selection),
    }
    .map_err(|error| error.in_array(array.name()))
}

/// Cosines of the coordinates of a dimension in degrees: the areas of cells of a regular grid of longitudes and latitudes.
fn cosines(array: &Array, name: &str, selection: &Selection) -> Result<Weights> {
    let axis = array.schema().dim(name)?;
    let array = array.labeled(|d| d == axis)?;
    let (dim, slice) = (&array.schema().dims[axis], selection.slices()[axis]);
    let cosine = |i: u64| {
        let coordinate = dim.coordinate(slice.start + i * slice.step);
        let degrees = coordinate.and_then(|coordinate| coordinate.as_f64()).filter(|v| v.is_finite());
        let degrees = degrees
            .ok_or_else(|| Error::invalid(format!("dimension {name:?} has no numbers as coordinates")))?;
        // Not the function of the platform, whose last digit differs between systems.
        Ok(libm::cos(degrees.to_radians()))
    };
    let values = (0..slice.count()).map(cosine).collect::<Result<_>>()?;
    let axes = (0..selection.rank()).map(|d| d == axis).collect();
    Weights::new(axes, &selection.shape(), values)
}

/// The cells of a variable over some of the dimensions, by name and in their order.
fn of_variable(array: &Array, container: &Container, name: &str, selection: &Selection) -> Result<Weights> {
    let (variable, column) = container.find(name)?;
    let variable = match column {
        Some(Column::Field(field)) => variable.field_at(field)?,
        _ => variable,
    };
    let mut axes = vec![false; selection.rank()];
    let mut slices = Vec::new();
    let mut next = 0;
    for dim in &variable.schema().dims {
        let dims = &array.schema().dims;
        let at = (next..dims.len()).find(|d| dims[*d].name == dim.name && dims[*d].extent == dim.extent);
        let at = at.filter(|_| !dim.name.is_empty() && !variable.schema().sparse).ok_or_else(|| {
            Error::invalid(format!(
                "weights {name:?} must be over dimensions of the array, in their order: unexpected {:?}",
                dim.name
            ))
        })?;
        axes[at] = true;
        slices.push(selection.slices()[at]);
        next = at + 1;
    }
    let shape = variable.all()?.shape();
    let cells = variable.read(&Selection::new(slices, &shape)?)?;
    let field = variable.selected_field();
    if cells.validity().is_some_and(|validity| validity.contains(&0)) {
        return Err(Error::invalid(format!("some of the weights {name:?} are missing")));
    }
    if !matches!(field.dtype.class(), Class::Bool | Class::Int | Class::UInt | Class::Float) {
        return Err(Error::unsupported(format!("weights of {}", field.dtype)));
    }
    let values = numbers(field.dtype, cells.bytes())?;
    Weights::new(axes, &selection.shape(), values)
}

/// Cells as doubles, if they are exact.
fn numbers(dtype: DType, bytes: &[u8]) -> Result<Vec<f64>> {
    dispatch_element!(dtype, T => {
        let cells = bytes.chunks_exact(size_of::<T>()).map(|cell| {
            let cell: T = bytemuck::pod_read_unaligned(cell);
            exact(cell).ok_or_else(|| Error::unsupported("integers beyond 2^53 as weights"))
        });
        cells.collect()
    }, else => Err(Error::unsupported(format!("weights of {dtype}"))))
}

fn exact<T: tesseral_core::Element>(cell: T) -> Option<f64> {
    let value = cell.to_f64();
    (T::IS_FLOAT || value as i128 == cell.to_i128()).then_some(value)
}
