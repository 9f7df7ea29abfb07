//! NumPy arrays over bytes.

use numpy::{PyArray1, PyArrayMethods};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyString, PyTuple};
use tesseral_core::Error;
use tesseral_engine::Buffer;
use tesseral_store::Bytes;

use crate::error::raise;

/// Memory owned by Rust: of a mapped file, or of a result. NumPy arrays over it keep it alive.
#[pyclass(name = "Memory", frozen, module = "tesseral._native")]
pub struct PyMemory {
    /// Owner of the bytes.
    _owner: Box<dyn Send + Sync>,
    address: usize,
    len: usize,
    readonly: bool,
    /// Shape and dtype of the cells, in NumPy's notation.
    shape: Py<PyTuple>,
    kind: Py<PyAny>,
}

#[pymethods]
impl PyMemory {
    /// NumPy's array interface.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item(pyo3::intern!(py, "version"), 3)?;
        interface.set_item(pyo3::intern!(py, "typestr"), &self.kind)?;
        interface.set_item(pyo3::intern!(py, "shape"), &self.shape)?;
        interface.set_item(pyo3::intern!(py, "data"), (self.address, self.readonly))?;
        Ok(interface)
    }

    fn __len__(&self) -> usize {
        self.len
    }
}

/// Bytes in memory and their owner.
struct OwnedBytes {
    owner: Box<dyn Send + Sync>,
    address: usize,
    len: usize,
    readonly: bool,
}

impl OwnedBytes {
    /// Creates an array over the memory, which Rust no longer accesses.
    fn array<'py>(
        self,
        py: Python<'py>,
        shape: &[u64],
        dtype: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let Self { owner, address, len, readonly } = self;
        // NumPy trusts the shape: it must not reach past the bytes.
        let item: u64 = dtype.getattr(pyo3::intern!(py, "itemsize"))?.extract()?;
        let needed = shape.iter().try_fold(item, |bytes, extent| bytes.checked_mul(*extent));
        if needed.is_none_or(|needed| needed > len as u64) {
            let detail = format!("an array of shape {shape:?} and {item}-byte cells over {len} bytes");
            return Err(raise(py, &Error::internal(detail)));
        }
        let kind = dtype.getattr(pyo3::intern!(py, "str"))?;
        // Cells of several values are structured: create a byte array first.
        let plain = !kind.extract::<&str>()?.contains('V');
        let (kind, extents) = if plain {
            (kind, PyTuple::new(py, shape)?)
        } else {
            (PyString::new(py, "|u1").into_any(), PyTuple::new(py, [len])?)
        };
        let memory =
            PyMemory { _owner: owner, address, len, readonly, shape: extents.unbind(), kind: kind.unbind() };
        let array = ASARRAY.import(py, "numpy", "asarray")?.call1((Bound::new(py, memory)?,))?;
        if plain { Ok(array) } else { shaped(&array, shape, dtype) }
    }
}

/// Creates an uninitialized array.
pub(crate) fn empty<'py>(
    py: Python<'py>,
    shape: &[u64],
    dtype: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static EMPTY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    EMPTY.import(py, "numpy", "empty")?.call1((PyTuple::new(py, shape)?, dtype))
}

/// Returns the bytes of a contiguous array, as a byte array over the same memory.
pub(crate) fn bytes_of<'py>(array: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyArray1<u8>>> {
    let py = array.py();
    let flat = array.call_method1(pyo3::intern!(py, "reshape"), (-1,))?;
    let bytes = flat.call_method1(pyo3::intern!(py, "view"), (pyo3::intern!(py, "u1"),))?;
    Ok(bytes.cast_into::<PyArray1<u8>>()?)
}

/// Creates a read-only array over bytes of a file.
pub(crate) fn borrowed<'py>(
    py: Python<'py>,
    bytes: Bytes,
    shape: &[u64],
    dtype: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let (address, len) = (bytes.as_ptr() as usize, bytes.len());
    OwnedBytes { owner: Box::new(bytes), address, len, readonly: true }.array(py, shape, dtype)
}

/// Creates an array over the memory of a result, which is returned to the engine on drop.
pub(crate) fn result<'py>(
    py: Python<'py>,
    mut buffer: Buffer,
    shape: &[u64],
    dtype: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    // Neither maps nor heap memory move with their owner.
    let (address, len) = (buffer.as_mut_ptr() as usize, buffer.len());
    OwnedBytes { owner: Box::new(buffer), address, len, readonly: false }.array(py, shape, dtype)
}

/// Creates an array that owns these bytes.
pub(crate) fn owned<'py>(
    py: Python<'py>,
    bytes: Vec<u8>,
    shape: &[u64],
    dtype: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    shaped(PyArray1::from_vec(py, bytes).as_any(), shape, dtype)
}

/// Creates an array that owns these numbers.
pub(crate) fn numbers<'py>(py: Python<'py>, numbers: Vec<f64>, shape: &[u64]) -> PyResult<Bound<'py, PyAny>> {
    let cells = PyArray1::from_vec(py, numbers);
    cells.call_method1(pyo3::intern!(py, "reshape"), (PyTuple::new(py, shape)?,))
}

/// Reinterprets bytes as cells.
fn shaped<'py>(
    bytes: &Bound<'py, PyAny>,
    shape: &[u64],
    dtype: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = bytes.py();
    let cells = bytes.call_method1(pyo3::intern!(py, "view"), (dtype,))?;
    cells.call_method1(pyo3::intern!(py, "reshape"), (PyTuple::new(py, shape)?,))
}

/// Masks the cells for which `hidden` is true.
pub(crate) fn masked<'py>(
    values: &Bound<'py, PyAny>,
    hidden: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    static MASKED: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = MASKED.import(values.py(), "numpy.ma", "MaskedArray")?;
    let options = PyDict::new(values.py());
    options.set_item("mask", hidden)?;
    class.call((values,), Some(&options))
}

/// Bytes of an array for Rust: contiguous, in native byte order.
pub(crate) fn read_bytes<'py>(array: &Bound<'py, PyAny>) -> PyResult<numpy::PyReadonlyArray1<'py, u8>> {
    Ok(bytes_of(array)?.try_readonly()?)
}
