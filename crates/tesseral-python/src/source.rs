//! Opened sources.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};
use tesseral::{Container, Limits, Open, TimeRange};
use tesseral_store::{Bytes, CacheFolder, MemoryStore, ReadMode, StorageOptions, Store};

use crate::error::OrRaise;
use crate::view::PyView;
use crate::{runtime, value};

/// An opened file or folder: an immutable snapshot.
#[pyclass(name = "Source", frozen, module = "tesseral._native")]
pub struct PySource {
    container: Arc<Container>,
}

/// A path or URL, alone or with the settings of its object store and the folder that keeps its bytes.
pub struct LocationInput {
    /// The path or URL.
    pub path: PathBuf,
    /// Settings of its object store.
    pub storage: StorageOptions,
}

impl<'py> FromPyObject<'_, 'py> for LocationInput {
    type Error = PyErr;

    fn extract(given: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(path) = given.extract::<PathBuf>() {
            return Ok(Self { path, storage: StorageOptions::new() });
        }
        let (path, settings, cache): (PathBuf, BTreeMap<String, String>, Option<PathBuf>) =
            given.extract()?;
        let storage: StorageOptions = settings.into_iter().collect();
        let storage = match cache {
            Some(folder) => storage.with_cache(CacheFolder::new(folder)),
            None => storage,
        };
        Ok(Self { path, storage })
    }
}

impl LocationInput {
    /// Options of opening it.
    pub(crate) fn opener(&self, open: Open) -> Open {
        open.storage(self.storage.clone())
    }
}

/// Open options from Python arguments.
pub(crate) fn opener(
    as_of: Option<(u64, u64)>,
    memory: Option<u64>,
    key: Option<Vec<u8>>,
    digests: bool,
    map: bool,
) -> Open {
    let mut open = Open::new().access(if map { ReadMode::Map } else { ReadMode::Read });
    if let Some((start, end)) = as_of {
        open = open.as_of(TimeRange { start, end });
    }
    if let Some(bytes) = memory {
        open = open.memory(bytes);
    }
    if let Some(key) = key {
        open = open.key(key);
    }
    if digests { open } else { open.without_digests() }
}

#[pymethods]
impl PySource {
    #[new]
    #[pyo3(signature = (path, as_of=None, memory=None, key=None, digests=true, map=true, max_expansion=None, content=None, dims=Vec::new()))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        path: LocationInput,
        as_of: Option<(u64, u64)>,
        memory: Option<u64>,
        key: Option<Vec<u8>>,
        digests: bool,
        map: bool,
        max_expansion: Option<u64>,
        content: Option<PyBackedBytes>,
        dims: Vec<String>,
    ) -> PyResult<Self> {
        runtime::home();
        let mut open = path.opener(opener(as_of, memory, key, digests, map));
        if let Some(bytes) = max_expansion {
            open = open.limits(Limits::default().with_expansion(bytes));
        }
        // The bytes of a file, which the path only names.
        let content = content.map(|bytes| -> Arc<dyn Store> {
            Arc::new(MemoryStore::with_object(path.path.to_string_lossy(), Bytes::from_owner(bytes)))
        });
        let as_asked = |container: Container| match dims.as_slice() {
            [] => Ok(container),
            dims => container.pivoted(dims),
        };
        let container = match content {
            Some(store) => py.detach(|| open.open_store(store).and_then(as_asked)).or_raise(py)?,
            None => runtime::run_at(py, &path.path, |cancel| {
                open.cancel(cancel.clone()).open(&path.path).and_then(as_asked)
            })?,
        };
        Ok(Self { container: Arc::new(container) })
    }

    /// Names of the arrays, in order.
    fn names(&self) -> Vec<String> {
        self.container.names().map(str::to_owned).collect()
    }

    fn __len__(&self) -> usize {
        self.container.len()
    }

    /// Index of the only array that is not a coordinate.
    fn only_array(&self, py: Python<'_>) -> PyResult<Option<usize>> {
        self.container.only_array().or_raise(py)
    }

    /// Index of the array with a name.
    fn find(&self, py: Python<'_>, name: &str) -> PyResult<usize> {
        self.container.inner().find(name).or_raise(py)
    }

    /// A view of all cells of a field.
    #[pyo3(signature = (index, field=0))]
    fn view(&self, py: Python<'_>, index: usize, field: usize) -> PyResult<PyView> {
        PyView::open(py, &self.container, index, field)
    }

    /// Identifier of its format.
    #[getter]
    fn format(&self) -> &'static str {
        self.container.format().id()
    }

    /// Display name of its format.
    #[getter]
    fn title(&self) -> &'static str {
        self.container.format().title()
    }

    /// Whether the format supports versions.
    #[getter]
    fn versions(&self) -> bool {
        self.container.format().versioned().is_some()
    }

    /// Location of its store.
    #[getter]
    fn location(&self) -> &str {
        self.container.location()
    }

    /// Attributes of the container.
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        value::attributes(py, self.container.attributes())
    }

    /// Attributes of groups by their path.
    fn groups<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        for (path, attributes) in self.container.groups() {
            out.set_item(path, value::attributes(py, attributes)?)?;
        }
        Ok(out)
    }

    /// Name, number of the array and number of the field, of each variable.
    fn variables(&self, py: Python<'_>) -> PyResult<Vec<(String, usize, usize)>> {
        let found = py.detach(|| tesseral::Variables::select(&self.container, &[])).or_raise(py)?;
        Ok(found.list.into_iter().map(|v| (v.name, v.number, v.field)).collect())
    }

    /// Provenance rows.
    fn history<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.container.history().iter().map(|row| value::history(py, row)).collect()
    }

    /// Format-specific details, as JSON.
    fn details<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.container.inner().details().to_string().as_bytes())
    }
}

/// Identifier of the format of a source, by its content; `None` if unknown.
#[pyfunction]
pub fn recognize(py: Python<'_>, path: LocationInput) -> PyResult<Option<&'static str>> {
    runtime::run_at(py, &path.path, |cancel| {
        let open = path.opener(Open::new()).access(ReadMode::Read).cancel(cancel.clone());
        match tesseral::recognize(&*open.store(&path.path)?) {
            Ok(format) => Ok(Some(format.id())),
            Err(error) if matches!(error.kind(), tesseral::ErrorKind::Unrecognized { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    })
}

/// Id, display name, file extensions, whether it is writable, and whether arrays can be appended to, of every format.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn formats() -> Vec<(&'static str, &'static str, &'static [&'static str], bool, bool)> {
    let format_info = |f: &'static dyn tesseral::Format| {
        (f.id(), f.title(), f.extensions(), f.capabilities().create, f.versioned().is_some())
    };
    tesseral::formats().map(format_info).collect()
}

/// Whether files of a format are sequences of messages, to which more can be added.
#[pyfunction]
pub fn has_messages(py: Python<'_>, format: &str) -> PyResult<bool> {
    Ok(tesseral::format(format).or_raise(py)?.messages().is_some())
}

/// Parses a time or time range: first and last millisecond.
#[pyfunction]
pub fn as_of(py: Python<'_>, text: &str) -> PyResult<(u64, u64)> {
    let range = tesseral::as_of(text).or_raise(py)?;
    Ok((range.start, range.end))
}
