//! Reading cells into NumPy arrays.

use numpy::PyArrayMethods;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyEllipsis, PyList, PySlice, PyString, PyTuple};
use tesseral::{Array, DType, Options, Selection};
use tesseral_core::dtype::Class;

use crate::dtype::CellConversion;
use crate::error::OrRaise;
use crate::index::{self, AxisIndex, IndexedWindow};
use crate::view::PyView;
use crate::{dtype, numpy_array, runtime, value};

/// Results of at least this size, in bytes, do not use memory of NumPy.
const LARGE: u64 = 16 << 10;
/// Estimated minimum size of a variable-length cell in bytes, to estimate the duration of a read.
const ANY_LENGTH: u64 = 64;

/// Reads the cells of an index as NumPy would return them.
pub(crate) fn indexed<'py>(
    py: Python<'py>,
    view: &PyView,
    wanted: &IndexedWindow,
    out: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyAny>> {
    let arranged = wanted.layout.contains(&false) || wanted.window.iter().any(is_reversed);
    if let Some(out) = out {
        return into(py, view, wanted, out, arranged);
    }
    let cells = read(py, view, &wanted.window, view.field().nullable)?;
    let cells = if arranged { cells.get_item(arrangement(py, wanted)?)? } else { cells };
    if wanted.scalar { cells.get_item(PyTuple::empty(py)) } else { Ok(cells) }
}

fn is_reversed(axis: &AxisIndex) -> bool {
    axis.step < 0 && axis.count > 1
}

/// Index that converts ascending cells to the requested order, and adds axes.
fn arrangement<'py>(py: Python<'py>, wanted: &IndexedWindow) -> PyResult<Bound<'py, PyTuple>> {
    let mut axes = wanted.window.iter().filter(|a| !a.dropped);
    let mut items: Vec<Bound<'py, PyAny>> = Vec::with_capacity(wanted.layout.len() + 1);
    for &kept in &wanted.layout {
        items.push(match kept.then(|| axes.next()).flatten() {
            Some(axis) if is_reversed(axis) => reversed(py)?,
            Some(_) => PySlice::full(py).into_any(),
            None => py.None().into_bound(py),
        });
    }
    items.push(PyEllipsis::get(py).to_owned().into_any());
    PyTuple::new(py, items)
}

/// `slice(None, None, -1)`, which a slice of numbers cannot express.
fn reversed(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.get_type::<PySlice>().call1((py.None(), py.None(), -1))
}

/// Reads into an array of the caller.
fn into<'py>(
    py: Python<'py>,
    view: &PyView,
    wanted: &IndexedWindow,
    out: &Bound<'py, PyAny>,
    arranged: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let mut axes = wanted.window.iter().filter(|a| !a.dropped);
    let shape: Vec<u64> = wanted
        .layout
        .iter()
        .map(|&kept| kept.then(|| axes.next()).flatten().map_or(1, |a| a.count))
        .collect();
    let given: Vec<u64> = out.getattr("shape")?.extract()?;
    if given != shape {
        return Err(PyValueError::new_err(format!(
            "shape mismatch: out has {given:?}, the cells have {shape:?}"
        )));
    }
    let flags = out.getattr("flags")?;
    let direct = !arranged
        && view.cells == CellConversion::Plain
        && !view.field().nullable
        && flags.getattr("c_contiguous")?.extract()?
        && flags.getattr("writeable")?.extract()?
        && out.getattr("dtype")?.eq(view.dtype.bind(py))?;
    if direct {
        let selection = index::selection(&wanted.window, &view.shape).or_raise(py)?;
        fill(py, view, &selection, out, None)?;
        return Ok(out.clone());
    }
    let unaided =
        IndexedWindow { window: wanted.window.clone(), layout: wanted.layout.clone(), scalar: false };
    let cells = indexed(py, view, &unaided, None)?;
    static COPYTO: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    COPYTO.import(py, "numpy", "copyto")?.call1((out, cells))?;
    Ok(out.clone())
}

/// Reads the cells of a view as a masked array: all kinds of missing cells are masked.
pub(crate) fn masked<'py>(
    py: Python<'py>,
    view: &PyView,
    wanted: &IndexedWindow,
) -> PyResult<Bound<'py, PyAny>> {
    let cells = read(py, view, &wanted.window, true)?;
    let arranged = wanted.window.iter().any(is_reversed);
    if arranged { cells.get_item(arrangement(py, wanted)?) } else { Ok(cells) }
}

/// Reads the cells of a window in ascending order, as a masked array if requested.
fn read<'py>(
    py: Python<'py>,
    view: &PyView,
    window: &[AxisIndex],
    mask: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let selection = index::selection(window, &view.shape).or_raise(py)?;
    let shape = index::shape(window);
    let field = view.field();
    match view.cells {
        CellConversion::Objects => return objects(py, view, &selection, &shape),
        CellConversion::Bits => {
            let array = view.array().or_raise(py)?;
            let count = selection.cells().unwrap_or(u64::MAX);
            let bits = run(py, &array, count, count, |array| {
                tesseral_engine::read_bits(array.handle(), &array.request(&selection), array.options())
            })?;
            return numpy_array::owned(py, bits, &shape, view.dtype.bind(py));
        }
        CellConversion::BFloat16 => {
            let halves = numpy_array::empty(py, &shape, &dtype::named(py, "uint16")?)?;
            let hidden = validity(py, mask, &shape)?;
            fill(py, view, &selection, &halves, hidden.as_ref())?;
            return hide(widened(&halves)?, hidden);
        }
        CellConversion::Plain => {}
    }
    if field.cell_size().is_none() {
        let feature = format!("reading cells of dtype {}", field.type_name());
        let error = tesseral::Error::unsupported(feature).in_array(&view.schema().name);
        return Err(crate::error::raise(py, &error));
    }
    let bytes = selection.cells().and_then(|n| n.checked_mul(field.cell_size().unwrap_or(1) as u64));
    // Large results take memory that others gave back: fresh memory costs more than the copy into it. A fork takes its own, since the
    // engine may have been handing some out when it came about.
    if bytes.is_some_and(|n| n >= LARGE) && !mask && !runtime::is_forked(runtime::home()) {
        let array = view.array().or_raise(py)?;
        let bytes = bytes.unwrap_or(u64::MAX);
        let buffer = run(py, &array, bytes, bytes, |array| {
            tesseral_engine::read_buffer(array.handle(), &array.request(&selection), array.options())
        })?;
        return numpy_array::result(py, buffer, &shape, view.dtype.bind(py));
    }
    let cells = numpy_array::empty(py, &shape, view.dtype.bind(py))?;
    let hidden = validity(py, mask, &shape)?;
    fill(py, view, &selection, &cells, hidden.as_ref())?;
    hide(cells, hidden)
}

/// Allocates the validity of cells, if requested.
fn validity<'py>(py: Python<'py>, mask: bool, shape: &[u64]) -> PyResult<Option<Bound<'py, PyAny>>> {
    if !mask {
        return Ok(None);
    }
    numpy_array::empty(py, shape, &dtype::named(py, "bool")?).map(Some)
}

/// Masks cells by their validity, which is converted to a mask.
fn hide<'py>(cells: Bound<'py, PyAny>, validity: Option<Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
    let Some(validity) = validity else { return Ok(cells) };
    static NOT: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let not = NOT.import(cells.py(), "numpy", "logical_not")?;
    not.call1((&validity, &validity))?;
    numpy_array::masked(&cells, &validity)
}

/// Reads cells and validity into a contiguous array of their size.
fn fill<'py>(
    py: Python<'py>,
    view: &PyView,
    selection: &Selection,
    cells: &Bound<'py, PyAny>,
    validity: Option<&Bound<'py, PyAny>>,
) -> PyResult<()> {
    let array = view.array().or_raise(py)?;
    let cells = numpy_array::bytes_of(cells)?;
    let mut cells = cells.try_readwrite()?;
    let cells = cells.as_slice_mut()?;
    let bytes = cells.len() as u64;
    let Some(validity) = validity else {
        return run(py, &array, bytes, bytes, |array| array.read_into(selection, cells, None));
    };
    let validity = numpy_array::bytes_of(validity)?;
    let mut validity = validity.try_readwrite()?;
    let validity = validity.as_slice_mut()?;
    run(py, &array, bytes, bytes, |array| array.read_into(selection, cells, Some(validity)))
}

/// Runs an operation on an array without the interpreter lock, if its result is within the memory limit. `bytes` estimates the
/// amount of work.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    array: &Array,
    result: u64,
    bytes: u64,
    work: impl FnOnce(&Array) -> tesseral::Result<T> + Send,
) -> PyResult<T> {
    array.options().check_memory("the result", result).map_err(|e| e.in_array(array.name())).or_raise(py)?;
    runtime::run_on(py, array, bytes, |options: &Options| {
        // Usually these are the array's own options.
        if std::ptr::eq(options, array.options()) {
            work(array)
        } else {
            work(&array.clone().with_options(options.clone()))
        }
    })
}

/// Reads variable-length cells as objects.
fn objects<'py>(
    py: Python<'py>,
    view: &PyView,
    selection: &Selection,
    shape: &[u64],
) -> PyResult<Bound<'py, PyAny>> {
    let array = view.array().or_raise(py)?;
    let count = selection.cells().unwrap_or(u64::MAX);
    let cells = run(py, &array, 0, count.saturating_mul(ANY_LENGTH), |array| array.read_var(selection))?;
    object_cells(py, view.field().dtype, &cells, shape)
}

/// Converts variable-length cells to an object array, with nulls masked.
pub(crate) fn object_cells<'py>(
    py: Python<'py>,
    element: DType,
    cells: &tesseral::Cells,
    shape: &[u64],
) -> PyResult<Bound<'py, PyAny>> {
    let flat = numpy_array::empty(py, &[cells.len() as u64], &dtype::named(py, "object")?)?;
    if element.class() == Class::Text {
        let items = (0..cells.len()).map(|i| words(py, element, cells.get(i)));
        flat.set_item(PyEllipsis::get(py), PyList::new(py, items.collect::<PyResult<Vec<_>>>()?)?)?;
    } else {
        // Assign one by one: NumPy would convert arrays of equal length to rows.
        for i in 0..cells.len() {
            flat.set_item(i, value::plain(py, element, cells.get(i))?)?;
        }
    }
    let out = flat.call_method1("reshape", (PyTuple::new(py, shape)?,))?;
    hidden(py, out, cells.validity(), shape)
}

/// Masks cells by their validity, one byte per cell.
pub(crate) fn hidden<'py>(
    py: Python<'py>,
    cells: Bound<'py, PyAny>,
    validity: Option<&[u8]>,
    shape: &[u64],
) -> PyResult<Bound<'py, PyAny>> {
    let Some(validity) = validity else { return Ok(cells) };
    let hidden = validity.iter().map(|valid| u8::from(*valid == 0)).collect();
    numpy_array::masked(&cells, &numpy_array::owned(py, hidden, shape, &dtype::named(py, "bool")?)?)
}

/// Widens bfloat16 to float32.
pub(crate) fn widened<'py>(halves: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    static WIDEN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    WIDEN.import(halves.py(), "tesseral._gather", "widen")?.call1((halves,))
}

/// Converts a text cell to a string if it is valid UTF-8, else to bytes.
fn words<'py>(py: Python<'py>, element: DType, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    match (element, std::str::from_utf8(bytes)) {
        (DType::Utf8 | DType::Ascii, Ok(text)) => Ok(PyString::new(py, text).into_any()),
        _ => Ok(PyBytes::new(py, bytes).into_any()),
    }
}

/// Returns the cells of a view as a read-only array over the memory-mapped file.
pub(crate) fn borrowed<'py>(py: Python<'py>, view: &PyView) -> PyResult<Option<Bound<'py, PyAny>>> {
    let plain =
        view.cells == CellConversion::Plain && !view.field().nullable && view.field().cell_size().is_some();
    if !plain || view.schema().shape().is_none() {
        return Ok(None);
    }
    if view.window.iter().any(|a| a.step != 1 && a.count > 1) {
        return Ok(None);
    }
    let selection = index::selection(&view.window, &view.shape).or_raise(py)?;
    let array = view.array().or_raise(py)?;
    let bytes = runtime::run_on(py, &array, 0, |_| array.view(&selection))?;
    let Some(bytes) = bytes else { return Ok(None) };
    numpy_array::borrowed(py, bytes, &index::shape(&view.window), view.dtype.bind(py)).map(Some)
}

/// Rejects dtypes without arithmetic.
pub(crate) fn refuse(view: &PyView, what: &str) -> PyErr {
    PyTypeError::new_err(format!("{what} of cells of dtype {}", view.field().type_name()))
}
