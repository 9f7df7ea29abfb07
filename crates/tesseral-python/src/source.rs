//! An opened file or folder.

use std::path::PathBuf;
use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use tesseral::store::Access;
use tesseral::{Container, Limits, Open, TimeRange};

use crate::error::OrRaise;
use crate::view::View;
use crate::{runtime, value};

/// An opened file or folder: a snapshot that does not change.
#[pyclass(frozen, module = "tesseral._native")]
pub struct Source {
    container: Arc<Container>,
}

/// How to open, from what Python gives.
pub(crate) fn opener(
    as_of: Option<(u64, u64)>,
    memory: Option<u64>,
    key: Option<Vec<u8>>,
    digests: bool,
    map: bool,
) -> Open {
    let mut open = Open::new().access(if map { Access::Map } else { Access::Read });
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
impl Source {
    #[new]
    #[pyo3(signature = (path, as_of=None, memory=None, key=None, digests=true, map=true, max_expansion=None))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        path: PathBuf,
        as_of: Option<(u64, u64)>,
        memory: Option<u64>,
        key: Option<Vec<u8>>,
        digests: bool,
        map: bool,
        max_expansion: Option<u64>,
    ) -> PyResult<Self> {
        runtime::home();
        let mut open = opener(as_of, memory, key, digests, map);
        if let Some(bytes) = max_expansion {
            open = open.limits(Limits::default().with_expansion(bytes));
        }
        let container = py.detach(|| open.open(tesseral::local(&path)?)).or_raise(py)?;
        Ok(Self { container: Arc::new(container) })
    }

    /// Names of the arrays, in their order.
    fn names(&self) -> Vec<String> {
        self.container.names().map(str::to_owned).collect()
    }

    fn __len__(&self) -> usize {
        self.container.len()
    }

    /// The number of the array that a name means.
    fn find(&self, py: Python<'_>, name: &str) -> PyResult<usize> {
        self.container.inner().find(name).or_raise(py)
    }

    /// All cells of a field of an array.
    #[pyo3(signature = (index, field=0))]
    fn view(&self, py: Python<'_>, index: usize, field: usize) -> PyResult<View> {
        View::open(py, &self.container, index, field)
    }

    /// The id of its format.
    #[getter]
    fn format(&self) -> &'static str {
        self.container.format().id()
    }

    /// The name of its format.
    #[getter]
    fn title(&self) -> &'static str {
        self.container.format().title()
    }

    /// Whether the format keeps versions.
    #[getter]
    fn versions(&self) -> bool {
        self.container.format().capabilities().versions
    }

    /// Where its bytes are.
    #[getter]
    fn location(&self) -> &str {
        self.container.location()
    }

    /// Attributes of the whole.
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        value::attributes(py, self.container.attributes())
    }

    /// How it came to be.
    fn history<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyDict>>> {
        self.container.history().iter().map(|row| value::history(py, row)).collect()
    }

    /// What only this format knows, as JSON.
    fn details<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.container.inner().details().to_string().as_bytes())
    }
}

/// The id of the format of a source, by its content; `None` when no format knows it.
#[pyfunction]
pub fn recognise(py: Python<'_>, path: PathBuf) -> PyResult<Option<&'static str>> {
    let found = py.detach(|| {
        let store = Open::new().access(Access::Read).store(tesseral::local(&path)?);
        tesseral::recognise(&*store)
    });
    match found {
        Ok(format) => Ok(Some(format.id())),
        Err(error) if matches!(error.kind(), tesseral::ErrorKind::Unrecognised { .. }) => Ok(None),
        Err(error) => Err(crate::error::raise(py, &error)),
    }
}

/// Id, title, file name endings, whether it is written, and whether its containers are folders, of every format.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn formats() -> Vec<(&'static str, &'static str, &'static [&'static str], bool, bool)> {
    let one = |f: &&'static dyn tesseral::Format| {
        let able = f.capabilities();
        (f.id(), f.title(), f.extensions(), able.create, able.folder)
    };
    tesseral::FORMATS.iter().map(one).collect()
}

/// First and last millisecond of a moment or span of time, written as people do.
#[pyfunction]
pub fn as_of(py: Python<'_>, text: &str) -> PyResult<(u64, u64)> {
    let range = tesseral::as_of(text).or_raise(py)?;
    Ok((range.start, range.end))
}
