//! Conversion between fields and NumPy dtypes.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyList;
use tesseral::{CellLen, DType, Error, Field, Result};
use tesseral_core::dtype::Class;

/// How cells of a field are converted to elements of a NumPy array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CellConversion {
    /// Elements are the bytes of the cells.
    Plain,
    /// bfloat16 values, widened to float32.
    BFloat16,
    /// Packed bits, expanded to bool.
    Bits,
    /// Python objects: text, bytes, or arrays of the field's dtype.
    Objects,
}

/// Returns the conversion of a field.
pub(crate) fn cells_of(field: &Field) -> CellConversion {
    match (field.cell, field.dtype) {
        (CellLen::Var, _) => CellConversion::Objects,
        (CellLen::One, DType::BFloat16) => CellConversion::BFloat16,
        (CellLen::One, DType::Bitmask) => CellConversion::Bits,
        _ => CellConversion::Plain,
    }
}

/// Returns a NumPy dtype by name.
pub(crate) fn named<'py>(py: Python<'py>, name: impl IntoPyObject<'py>) -> PyResult<Bound<'py, PyAny>> {
    static DTYPE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    DTYPE.import(py, "numpy", "dtype")?.call1((name,))
}

/// Dtype of the elements of a field.
pub(crate) fn of_field<'py>(py: Python<'py>, field: &Field) -> PyResult<Bound<'py, PyAny>> {
    let element = |dtype: DType| match dtype {
        DType::BFloat16 => "float32".to_owned(),
        DType::Bitmask => "bool".to_owned(),
        DType::Char | DType::Ascii | DType::Utf8 => "S1".to_owned(),
        DType::Bytes => "V1".to_owned(),
        other => other.to_string(),
    };
    match field.cell {
        CellLen::Var => named(py, "object"),
        CellLen::One => named(py, element(field.dtype)),
        CellLen::Fixed(2) if field.dtype == DType::Float32 => named(py, "complex64"),
        CellLen::Fixed(2) if field.dtype == DType::Float64 => named(py, "complex128"),
        CellLen::Fixed(n) if field.dtype == DType::Bytes => named(py, format!("V{n}")),
        CellLen::Fixed(n) if field.dtype.class() == Class::Text => named(py, format!("S{n}")),
        // As in TileDB-Py: one unnamed member per value.
        CellLen::Fixed(n) => {
            let member = match field.dtype {
                DType::BFloat16 => "uint16".to_owned(),
                other => element(other),
            };
            named(py, PyList::new(py, (0..n).map(|_| (String::new(), member.clone())))?)
        }
    }
}

/// Dtype and cell length of a NumPy dtype, given as its `str()` and item size.
pub(crate) fn to_field(name: &str, kind: char, size: usize) -> Result<(DType, CellLen)> {
    let text = |dtype| {
        let length =
            u32::try_from(size).map_err(|_| Error::limit("a cell", size as u64, u64::from(u32::MAX)))?;
        Ok((dtype, if length == 1 { CellLen::One } else { CellLen::Fixed(length) }))
    };
    match kind {
        'S' if size == 0 => Ok((DType::Ascii, CellLen::One)),
        'S' => text(DType::Ascii),
        'U' | 'T' | 'O' => Ok((DType::Utf8, CellLen::Var)),
        // The name of a compound dtype is a list or a map of its members.
        'V' if name.contains(['[', '{', '(']) => {
            Err(Error::unsupported(format!("writing NumPy dtype {name}"))
                .hint("write every member as an array of its own"))
        }
        'V' => text(DType::Bytes),
        _ => match name.parse() {
            Ok(dtype) => Ok((dtype, CellLen::One)),
            Err(_) => Err(Error::unsupported(format!("writing NumPy dtype {name}"))
                .hint("convert the array to a supported dtype")),
        },
    }
}
