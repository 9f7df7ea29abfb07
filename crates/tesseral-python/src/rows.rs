//! Cells as rows: columns of coordinates and fields.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tesseral::{
    ArraySchema, CellBatch, CellLen, CellQuery, CellStream, Cells, Column, Dimension, Field, Options,
};
use tesseral_core::dtype::Class;

use crate::dtype::{self, cells_of};
use crate::error::OrRaise;
use crate::view::PyView;
use crate::{numpy_array, read, runtime};

/// A request for rows.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct RowsInput {
    selection: Vec<String>,
    condition: Option<String>,
    columns: Option<Vec<String>>,
    sort: bool,
}

impl RowsInput {
    fn query<'a>(&self, array: &'a tesseral::Array, options: &Options) -> tesseral::Result<CellQuery<'a>> {
        let mut query = array.cells()?.options(options.clone());
        if !self.selection.is_empty() {
            query = query.select(self.selection.iter().map(String::as_str))?;
        }
        if let Some(condition) = &self.condition {
            query = query.filter(condition)?;
        }
        if let Some(columns) = &self.columns {
            query = query.columns(columns.iter().map(String::as_str))?;
        }
        Ok(if self.sort { query } else { query.unordered() })
    }
}

/// Returns all requested rows: columns by name.
pub(crate) fn read<'py>(py: Python<'py>, view: &PyView, asked: &RowsInput) -> PyResult<Bound<'py, PyDict>> {
    let array = view.array().or_raise(py)?;
    let batch = runtime::run_on(py, &array, u64::MAX, |options| asked.query(&array, options)?.read())?;
    columns(py, view.schema(), &batch)
}

/// Iterates over rows in batches within the memory limit.
#[pyclass(name = "Rows", frozen, module = "tesseral._native")]
pub struct PyRows {
    stream: Mutex<CellStream>,
    schema: ArraySchema,
}

impl PyRows {
    pub(crate) fn open(py: Python<'_>, view: &PyView, asked: &RowsInput) -> PyResult<Self> {
        let array = view.array().or_raise(py)?;
        let options = runtime::options(array.options()).or_raise(py)?;
        let stream = py.detach(|| asked.query(&array, &options)?.batches()).or_raise(py)?;
        Ok(Self { stream: Mutex::new(stream), schema: view.schema().clone() })
    }
}

#[pymethods]
impl PyRows {
    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let next = || self.stream.lock().unwrap_or_else(PoisonError::into_inner).next().transpose();
        let batch = py.detach(next).or_raise(py)?;
        batch.map(|batch| columns(py, &self.schema, &batch)).transpose()
    }
}

/// The coordinates along a dimension, as a field.
pub(crate) fn coordinates(dim: &Dimension) -> Field {
    let mut field = Field::new(dim.name.clone(), dim.dtype);
    if dim.dtype.class() == Class::Text {
        field.cell = CellLen::Var;
    }
    field
}

/// Converts the columns of a batch to one-dimensional arrays.
fn columns<'py>(py: Python<'py>, schema: &ArraySchema, batch: &CellBatch) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (column, cells) in &batch.columns {
        let (name, field) = match column {
            Column::Field(i) => {
                let field = &schema.fields[usize::from(*i)];
                (field.name.clone(), field.clone())
            }
            Column::Dim(i) => {
                let dim = &schema.dims[usize::from(*i)];
                (dim.name.clone(), coordinates(dim))
            }
            Column::Timestamp | Column::DeletedBy => continue,
        };
        out.set_item(name, array(py, &field, cells)?)?;
    }
    Ok(out)
}

fn array<'py>(py: Python<'py>, field: &Field, cells: &Cells) -> PyResult<Bound<'py, PyAny>> {
    let count = cells.len() as u64;
    let values = match cells_of(field) {
        dtype::CellConversion::Objects => return read::object_cells(py, field.dtype, cells, &[count]),
        dtype::CellConversion::BFloat16 => {
            let halves =
                numpy_array::owned(py, cells.data().to_vec(), &[count], &dtype::named(py, "uint16")?)?;
            read::widened(&halves)?
        }
        dtype::CellConversion::Plain | dtype::CellConversion::Bits => {
            numpy_array::owned(py, cells.data().to_vec(), &[count], &dtype::of_field(py, field)?)?
        }
    };
    read::hidden(py, values, cells.validity(), &[count])
}
