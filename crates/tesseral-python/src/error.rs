//! Errors as Python exceptions.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use tesseral::{Error, ErrorKind};

use crate::hint;

/// Value of `.code` for a kind.
fn code(kind: &ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Corrupt { .. } | ErrorKind::Missing { .. } => "corrupt",
        ErrorKind::Codec { .. } => "codec",
        ErrorKind::Unrecognized { .. } => "unrecognised",
        ErrorKind::Unsupported { .. } => "unsupported",
        ErrorKind::Limit { .. } => "limit",
        ErrorKind::NotFound { what, .. } if is_stored(what) => "missing",
        ErrorKind::NotFound { .. } => "not_found",
        ErrorKind::InvalidRequest { .. } => "invalid",
        ErrorKind::Internal { .. } => "internal",
        ErrorKind::Cancelled => "cancelled",
        _ => "io",
    }
}

/// Returns whether something that was not found is a file, or its counterpart in an object store, and not a part of its content.
fn is_stored(what: &str) -> bool {
    matches!(what, "file" | "folder" | "object")
}

/// Converts an error to an exception with its context as attributes.
pub(crate) fn raise(py: Python<'_>, error: &Error) -> PyErr {
    build(py, error).unwrap_or_else(|failure| failure)
}

fn build(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    static MAKE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let make = MAKE.import(py, "tesseral._errors", "make")?;
    let (path, errno) = match error.kind() {
        ErrorKind::Corrupt { object, .. }
        | ErrorKind::Missing { object, .. }
        | ErrorKind::Unrecognized { object, .. }
        | ErrorKind::Stale { object, .. }
        | ErrorKind::Changed { object, .. } => (Some(object), None),
        ErrorKind::NotFound { what, name, .. } if is_stored(what) => (Some(name), None),
        ErrorKind::Io { object, source, .. } => (Some(object), source.raw_os_error()),
        _ => (None, None),
    };
    let facts = PyDict::new(py);
    facts.set_item("path", path)?;
    facts.set_item("errno", errno)?;
    facts.set_item("offset", error.offset())?;
    facts.set_item("array", error.array())?;
    facts.set_item("chunk", error.chunk().map(|chunk| PyTuple::new(py, chunk)).transpose()?)?;
    facts.set_item("hint", error.advice().map(hint::text).filter(|hint| !hint.is_empty()))?;
    Ok(PyErr::from_value(make.call1((
        code(error.kind()),
        tesseral_core::escape(&error.to_string()),
        facts,
    ))?))
}

/// Converts results of the engine to Python's.
pub(crate) trait OrRaise<T> {
    /// Returns the value, or the exception of the error.
    fn or_raise(self, py: Python<'_>) -> PyResult<T>;
}

impl<T> OrRaise<T> for tesseral::Result<T> {
    fn or_raise(self, py: Python<'_>) -> PyResult<T> {
        self.map_err(|error| raise(py, &error))
    }
}
