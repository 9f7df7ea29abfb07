//! Conversion between attributes and Python objects.

use numpy::PyUntypedArray;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyComplex, PyDict, PyFloat, PyInt, PyList, PyMapping, PyString,
};
use tesseral::{Attributes, DType, HistoryRow, Scalar, Value};
use tesseral_core::schema::Labels;

use crate::{dtype, numpy_array};

/// Maximum nesting depth, for example of a container that contains itself.
const DEPTH: usize = 64;

/// Converts an attribute to a Python object.
pub(crate) fn to_python<'py>(py: Python<'py>, value: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(v) => PyBool::new(py, *v).to_owned().into_any(),
        Value::Int(v) => v.into_pyobject(py)?.into_any(),
        // Python's integers are written as signed ones, as far as they are in their range.
        Value::UInt(v) if i64::try_from(*v).is_ok() => {
            plain(py, DType::UInt64, &v.to_le_bytes())?.get_item(0)?
        }
        Value::UInt(v) => v.into_pyobject(py)?.into_any(),
        Value::Float(v) => v.into_pyobject(py)?.into_any(),
        Value::Scalar(v) => scalar(py, v)?,
        Value::Text(v) => v.into_pyobject(py)?.into_any(),
        Value::Bytes(v) => PyBytes::new(py, v).into_any(),
        Value::List(values) => {
            let items = values.iter().map(|v| to_python(py, v)).collect::<PyResult<Vec<_>>>()?;
            PyList::new(py, items)?.into_any()
        }
        Value::Map(map) => attributes(py, map)?.into_any(),
        Value::Numbers { dtype, bytes } => plain(py, *dtype, bytes)?,
        other => other.to_string().into_pyobject(py)?.into_any(),
    })
}

/// Converts attributes to a dictionary.
pub(crate) fn attributes<'py>(py: Python<'py>, map: &Attributes) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    for (name, value) in map {
        out.set_item(name, to_python(py, value)?)?;
    }
    Ok(out)
}

/// Converts elements of one dtype to a one-dimensional array.
pub(crate) fn plain<'py>(py: Python<'py>, element: DType, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let name = match element {
        DType::BFloat16 => "uint16".to_owned(),
        DType::Bitmask | DType::Bytes => "uint8".to_owned(),
        DType::Char | DType::Ascii | DType::Utf8 => "S1".to_owned(),
        other => other.to_string(),
    };
    let count = bytes.len() / element.size().unwrap_or(1);
    numpy_array::owned(py, bytes.to_vec(), &[count as u64], &dtype::named(py, name)?)
}

/// Converts labels of an axis: an array of numbers or dates, or a list of texts.
pub(crate) fn labels<'py>(py: Python<'py>, labels: &Labels) -> PyResult<Bound<'py, PyAny>> {
    match labels {
        Labels::Text(texts) => Ok(PyList::new(py, texts)?.into_any()),
        Labels::Numbers { dtype, bytes } => plain(py, *dtype, bytes),
    }
}

/// Converts a list of texts or an array of numbers or dates to labels.
pub(crate) fn from_labels(labels: &Bound<'_, PyAny>) -> PyResult<Labels> {
    if let Ok(texts) = labels.extract::<Vec<String>>() {
        return Ok(Labels::Text(texts));
    }
    match array(labels, 0)? {
        Value::Numbers { dtype, bytes } => Ok(Labels::Numbers { dtype, bytes }),
        _ => Err(PyTypeError::new_err("labels must be texts or a one-dimensional array of numbers")),
    }
}

/// Converts a value to a NumPy scalar, or text.
pub(crate) fn scalar<'py>(py: Python<'py>, value: &Scalar) -> PyResult<Bound<'py, PyAny>> {
    if let Some(text) = value.as_text() {
        return Ok(PyString::new(py, text).into_any());
    }
    match value.dtype().size() {
        Some(size) if size == value.bytes().len() => plain(py, value.dtype(), value.bytes())?.get_item(0),
        _ => plain(py, value.dtype(), value.bytes()),
    }
}

/// Converts a history row.
pub(crate) fn history<'py>(py: Python<'py>, row: &HistoryRow) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("op", &row.op)?;
    out.set_item("source", &row.source)?;
    out.set_item("at", &row.at)?;
    if !row.parents.is_empty() {
        out.set_item("parents", &row.parents)?;
    }
    if !row.params.is_empty() {
        out.set_item("params", &row.params)?;
    }
    for (name, text) in &row.extra {
        out.set_item(name, text)?;
    }
    Ok(out)
}

/// Converts a Python object to an attribute.
fn nested(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    if depth > DEPTH {
        return Err(PyValueError::new_err("attributes are nested too deeply"));
    }
    if object.is_none() {
        return Ok(Value::Null);
    }
    if object.is_instance_of::<PyBool>() {
        return Ok(Value::Bool(object.extract()?));
    }
    if object.is_instance_of::<PyInt>() {
        return object.extract().map(Value::Int).or_else(|_| object.extract().map(Value::UInt));
    }
    if object.is_instance_of::<PyFloat>() {
        return Ok(Value::Float(object.extract()?));
    }
    if object.is_instance_of::<PyString>() {
        return Ok(Value::Text(object.extract()?));
    }
    if object.is_instance_of::<PyComplex>() {
        let number = object.py().import("numpy")?.call_method1("complex128", (object,))?;
        return array(&number, depth);
    }
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Value::Bytes(bytes.as_bytes().to_vec()));
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Ok(Value::Bytes(bytes.to_vec()));
    }
    if object.is_instance_of::<PyUntypedArray>() || object.hasattr("dtype")? {
        return array(object, depth);
    }
    if let Ok(map) = object.cast::<PyMapping>() {
        return Ok(Value::Map(Box::new(from_mapping(map, depth + 1)?)));
    }
    let items = object
        .try_iter()
        .map_err(|_| PyTypeError::new_err(format!("unsupported attribute type {}", object.get_type())))?;
    let items = items.map(|item| nested(&item?, depth + 1)).collect::<PyResult<_>>()?;
    Ok(Value::List(items))
}

/// Numbers and dates, scalar or one-dimensional, keep their dtype; everything else is converted by `tolist`.
fn array(object: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    let axes: usize = object.getattr("ndim")?.extract()?;
    let kind: String = object.getattr("dtype")?.getattr("kind")?.extract()?;
    if axes > 1 || !matches!(kind.as_str(), "b" | "i" | "u" | "f" | "c" | "M" | "m") {
        return nested(&object.call_method0("tolist")?, depth + 1);
    }
    let native =
        object.call_method1("astype", (object.getattr("dtype")?.call_method1("newbyteorder", ("=",))?,))?;
    let name: String = native.getattr("dtype")?.str()?.extract()?;
    let dtype: DType =
        name.parse().map_err(|_| PyTypeError::new_err(format!("an attribute of dtype {name}")))?;
    if axes == 0 {
        static ASARRAY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let one = ASARRAY.import(object.py(), "numpy", "atleast_1d")?.call1((native,))?;
        let bytes = numpy_array::read_bytes(&one)?;
        let scalar = Scalar::from_le_bytes(dtype, bytes.as_slice()?);
        return scalar.map(Value::from).map_err(|e| PyTypeError::new_err(e.to_string()));
    }
    Ok(Value::Numbers { dtype, bytes: numpy_array::read_bytes(&native)?.as_slice()?.to_vec() })
}

fn from_mapping(map: &Bound<'_, PyMapping>, depth: usize) -> PyResult<Attributes> {
    let mut out = Attributes::new();
    for pair in map.items()?.iter() {
        let (key, value): (Bound<'_, PyAny>, Bound<'_, PyAny>) = pair.extract()?;
        let name: String = key
            .extract()
            .map_err(|_| PyTypeError::new_err(format!("the name {key} of an attribute is not a string")))?;
        let value = nested(&value, depth).map_err(|error| {
            let detail = || format!("attribute {name:?}: {}", error.value(map.py()));
            match () {
                () if error.is_instance_of::<PyTypeError>(map.py()) => PyTypeError::new_err(detail()),
                () if error.is_instance_of::<PyOverflowError>(map.py()) => PyValueError::new_err(detail()),
                () => error,
            }
        })?;
        out.insert(name, value);
    }
    Ok(out)
}

/// Converts a mapping to attributes.
pub(crate) fn from_attributes(map: &Bound<'_, PyAny>) -> PyResult<Attributes> {
    from_mapping(map.cast::<PyMapping>()?, 0)
}
