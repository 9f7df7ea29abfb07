//! Cells as arrays of the crate `ndarray`: `array.read_as::<f32>(&selection)?`.

use ndarray::{ArrayD, ArrayView, Dimension, IxDyn};
use tesseral_core::{ArraySchema, DType, Element, Error, Result, Selection, dispatch_element};
use tesseral_engine::Dense;

use crate::{Array, ArrayId, SelectedCells, Session};

impl Array {
    /// Reads cells as numbers of the dtype of the field: `f32` for `float32`, `i64` for dates. Missing floats are NaN.
    ///
    /// ```
    /// # fn main() -> Result<(), tesseral::Error> {
    /// # use tesseral::{ArraySchema, ArraySpec, Create, DType};
    /// # let path = std::env::temp_dir().join(format!("tesseral-doc-typed-{}.tet", std::process::id()));
    /// # let mut session = Create::new().overwrite().begin(&path, "")?;
    /// # let height = session.add(&ArraySpec::raw(ArraySchema::dense("height", DType::Float32, &[2, 3], &[2, 3])))?;
    /// let cells = ndarray::array![[1.0_f32, 2.0, 3.0], [4.0, 5.0, 6.0]];
    /// session.write_array(height, &cells.view())?;
    /// session.commit()?;
    ///
    /// let height = tesseral::open(&path)?.array("height")?;
    /// let read: ndarray::ArrayD<f32> = height.read_as(&height.all()?)?;
    /// assert_eq!(read, cells.into_dyn());
    /// # std::fs::remove_file(path).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidRequest` if the field has another dtype, or if cells that are no floats are missing:
    /// [`read_masked_as`](Self::read_masked_as) serves those; as [`read`](Self::read).
    pub fn read_as<T: Element>(&self, selection: &Selection) -> Result<ArrayD<T>> {
        self.read_with(selection, |cells| {
            let mut values = numbers::<T>(self, cells)?;
            let missing = cells.validity().is_some_and(|validity| validity.contains(&0));
            if let (true, Some(validity)) = (missing, cells.validity()) {
                let Some(nan) = nan::<T>() else {
                    let count = validity.iter().filter(|valid| **valid == 0).count();
                    let error = Error::invalid(format!(
                        "{count} cells are missing, which {} cannot represent",
                        T::DTYPE
                    ));
                    return Err(error.in_array(self.name()).hint("use `read_masked_as`"));
                };
                let cells = values.iter_mut().zip(validity);
                cells.filter(|(_, valid)| **valid == 0).for_each(|(value, _)| *value = nan);
            }
            shaped(&cells.shape, values)
        })
    }

    /// As [`read_as`](Self::read_as), with an array of the same shape that is `false` where a cell is missing.
    ///
    /// # Errors
    /// `InvalidRequest` if the field has another dtype; as [`read`](Self::read).
    pub fn read_masked_as<T: Element>(&self, selection: &Selection) -> Result<(ArrayD<T>, ArrayD<bool>)> {
        self.read_with(selection, |cells| {
            let values = numbers::<T>(self, cells)?;
            let valid = match cells.validity() {
                Some(validity) => validity.iter().map(|valid| *valid != 0).collect(),
                None => vec![true; values.len()],
            };
            Ok((shaped(&cells.shape, values)?, shaped(&cells.shape, valid)?))
        })
    }
}

impl SelectedCells<'_> {
    /// Reads the cells as numbers, as [`Array::read_as`].
    ///
    /// # Errors
    /// As [`Array::read_as`].
    pub fn read_as<T: Element>(&self) -> Result<ArrayD<T>> {
        self.array().read_as(&self.selection()?)
    }
}

impl Session {
    /// Writes an array from numbers in memory, in any layout.
    ///
    /// # Errors
    /// `InvalidRequest` if the dtype or the shape differs; `Io`.
    pub fn write_array<T: Element, D: Dimension>(
        &self,
        array: ArrayId,
        cells: &ArrayView<'_, T, D>,
    ) -> Result<()> {
        let schema = self.declared(array)?;
        check_dtype::<T>(schema, schema.fields.first().map(|field| field.dtype))?;
        let shape: Vec<u64> = cells.shape().iter().map(|extent| *extent as u64).collect();
        if schema.shape().as_deref() != Some(&shape) {
            let detail = format!("cells of the shape {shape:?} for an array of {:?}", schema.shape());
            return Err(Error::invalid(detail).in_array(&schema.name));
        }
        // Borrowed if they are contiguous in row-major order.
        let cells = cells.as_standard_layout();
        let cells =
            cells.as_slice().ok_or_else(|| Error::internal("cells in standard layout are contiguous"))?;
        self.write(array, bytemuck::cast_slice(cells))
    }
}

/// Whether cells of a dtype are values of `T`: dates, durations and Booleans are the integers that store them.
fn check_dtype<T: Element>(schema: &ArraySchema, dtype: Option<DType>) -> Result<()> {
    let native =
        dtype.is_some_and(|dtype| dispatch_element!(dtype, U => U::DTYPE == T::DTYPE, else => false));
    let one = schema.fields.first().is_some_and(|field| field.cell == tesseral_core::CellLen::One);
    match (native && one, dtype) {
        (true, _) => Ok(()),
        (false, Some(dtype)) => {
            Err(Error::invalid(format!("the cells are {dtype}, not {}", T::DTYPE)).in_array(&schema.name))
        }
        (false, None) => Err(Error::invalid("an array without fields").in_array(&schema.name)),
    }
}

fn numbers<T: Element>(array: &Array, cells: &Dense) -> Result<Vec<T>> {
    let field = array.selected_field();
    let native = dispatch_element!(field.dtype, U => U::DTYPE == T::DTYPE, else => false);
    if !native || field.cell != tesseral_core::CellLen::One {
        let detail = format!("the cells are {}, not {}", field.type_name(), T::DTYPE);
        return Err(Error::invalid(detail).in_array(array.name()));
    }
    // Stored bytes can begin at any address.
    Ok(match cells.as_slice::<T>() {
        Some(cells) => cells.to_vec(),
        None => bytemuck::allocation::pod_collect_to_vec(cells.bytes()),
    })
}

/// The NaN of a floating-point type.
fn nan<T: Element>() -> Option<T> {
    match T::DTYPE {
        DType::Float32 => Some(bytemuck::cast_slice::<f32, T>(&[f32::NAN])[0]),
        DType::Float64 => Some(bytemuck::cast_slice::<f64, T>(&[f64::NAN])[0]),
        _ => None,
    }
}

fn shaped<T>(shape: &[u64], values: Vec<T>) -> Result<ArrayD<T>> {
    let shape: Vec<usize> =
        shape.iter().map(|extent| usize::try_from(*extent).unwrap_or(usize::MAX)).collect();
    ArrayD::from_shape_vec(IxDyn(&shape), values).map_err(|e| Error::internal(e.to_string()))
}
