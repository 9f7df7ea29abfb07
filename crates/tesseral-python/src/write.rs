//! Writing containers.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError, RwLock};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tesseral::{
    ArrayId, ArraySchema, ArraySpec, Cancel, CellLen, CodecSpec, ColumnData, Create, DType, Error, Field,
    HistoryRow, Region, Scalar, Session, StagedOutput, TextExtent, Value,
};
use tesseral_core::schema::VariableRole;

use crate::error::OrRaise;
use crate::source::LocationInput;
use crate::{dtype, numpy_array, runtime, value};

/// A container being written: nothing is visible before it is committed.
#[pyclass(name = "Writer", frozen, module = "tesseral._native")]
pub struct PyWriter {
    session: RwLock<Option<Session>>,
    /// Ends an upload.
    cancel: Cancel,
}

impl PyWriter {
    /// Runs `work` on the session, without the interpreter lock: other threads can write concurrently.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Session) -> tesseral::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let session = self.session.read().unwrap_or_else(PoisonError::into_inner);
            session.as_ref().ok_or_else(closed).and_then(work)
        })
        .or_raise(py)
    }

    fn with_mut<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Session) -> tesseral::Result<T> + Send,
    ) -> PyResult<T> {
        py.detach(|| {
            let mut session = self.session.write().unwrap_or_else(PoisonError::into_inner);
            session.as_mut().ok_or_else(closed).and_then(work)
        })
        .or_raise(py)
    }
}

fn closed() -> Error {
    Error::invalid("the session is closed: it was committed or discarded")
}

/// Arguments of `add`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct Declared<'py> {
    name: String,
    shape: Vec<u64>,
    chunks: Vec<u64>,
    dtype: Bound<'py, PyAny>,
    dims: Vec<String>,
    labels: Vec<Option<Bound<'py, PyAny>>>,
    attrs: Bound<'py, PyAny>,
    fill: Option<Bound<'py, PyAny>>,
    codecs: Vec<(String, Bound<'py, PyAny>)>,
    role: Option<String>,
    /// Bytes of the longest cell and of all cells, and whether one ends with a zero byte, for cells of variable length.
    text: Option<(u64, u64, bool)>,
    /// Cells of variable length are bytes, not text.
    binary: bool,
    /// Names of the unlimited dimensions.
    unlimited: Vec<String>,
}

impl Declared<'_> {
    fn spec(self, py: Python<'_>) -> PyResult<ArraySpec> {
        let (dtype, cell) = match field_type(&self.dtype)?.map_err(|e| e.in_array(&self.name)).or_raise(py)? {
            (_, CellLen::Var) if self.binary => (DType::Bytes, CellLen::Var),
            other => other,
        };
        let mut schema = ArraySchema::dense(self.name, dtype, &self.shape, &self.chunks);
        schema.fields[0].cell = cell;
        if self.dims.len() != schema.dims.len() || self.labels.len() != schema.dims.len() {
            return Err(PyValueError::new_err("one name and one set of labels per axis"));
        }
        for ((dim, name), labels) in schema.dims.iter_mut().zip(self.dims).zip(self.labels) {
            dim.unlimited = self.unlimited.contains(&name);
            dim.name = name;
            dim.labels = labels.map(|labels| value::from_labels(&labels)).transpose()?;
        }
        schema.attributes = value::from_attributes(&self.attrs)?;
        if let Some(role) = self.role {
            let known = || PyValueError::new_err(format!("unknown role {role:?} of a variable"));
            schema.role = match role.as_str() {
                "coordinate" if schema.is_index_of(&schema.name) => VariableRole::Index,
                "coordinate" => VariableRole::Auxiliary,
                other => VariableRole::by_name(other).ok_or_else(known)?,
            };
        }
        if let Some(fill) = self.fill {
            let fill = scalar(&schema.fields[0], &fill).and_then(|s| s.or_raise(py))?;
            schema.fields[0].missing.push(fill.clone());
            schema.fields[0].fill = Some(fill);
        }
        let codecs = self.codecs.into_iter().map(|(name, options)| {
            let mut spec = name.parse::<CodecSpec>().or_raise(py)?;
            spec.options.extend(value::from_attributes(&options)?);
            Ok(spec)
        });
        let mut codecs = codecs.collect::<PyResult<Vec<_>>>()?;
        codecs.retain(|spec| spec.name != "raw");
        let text =
            self.text.map(|(longest, total, ends_with_zero)| TextExtent { longest, total, ends_with_zero });
        Ok(ArraySpec { schema, codecs: vec![codecs], text })
    }
}

/// Dtype and cell length of a field for a NumPy dtype.
fn field_type(given: &Bound<'_, PyAny>) -> PyResult<tesseral::Result<(DType, CellLen)>> {
    let name: String = given.str()?.extract()?;
    let kind: char = given.getattr("kind")?.extract()?;
    let size: usize = given.getattr("itemsize")?.extract()?;
    Ok(dtype::to_field(&name, kind, size))
}

/// A fill value, given as an array of one cell in the field's dtype.
fn scalar(field: &Field, fill: &Bound<'_, PyAny>) -> PyResult<tesseral::Result<Scalar>> {
    let bytes = numpy_array::read_bytes(fill)?;
    Ok(Scalar::from_le_bytes(field.dtype, bytes.as_slice()?))
}

/// Creation options of a container.
fn asked(overwrite: bool, options: Option<&Bound<'_, PyAny>>) -> PyResult<Create> {
    let mut create = if overwrite { Create::new().overwrite() } else { Create::new() };
    for (name, value) in options.map(value::from_attributes).transpose()?.unwrap_or_default() {
        create = match (name.as_str(), value) {
            ("timestamp", Value::Int(time)) if time >= 0 => create.timestamp(time.unsigned_abs()),
            ("timestamp", Value::UInt(time)) => create.timestamp(time),
            ("key", Value::Bytes(key)) => create.key(key),
            ("empty", Value::Bool(true)) => create.empty(),
            (_, value) => create.option(name, value),
        };
    }
    Ok(create)
}

/// Starts an empty array from a JSON document.
#[pyfunction]
pub fn declare(
    py: Python<'_>,
    path: LocationInput,
    document: &str,
    format: &str,
    overwrite: bool,
    options: Option<&Bound<'_, PyAny>>,
) -> PyResult<PyWriter> {
    let cancel = Cancel::default();
    let execution = tesseral::Options::default().with_cancel(cancel.clone());
    let create = asked(overwrite, options)?.storage(path.storage.clone()).execution(execution);
    let document = serde_json::from_str(document).map_err(|e| PyValueError::new_err(e.to_string()))?;
    let begin = || create.declare(&path.path, format, &document);
    let session = runtime::run_canceled_by(py, &cancel, begin)?;
    Ok(PyWriter { session: RwLock::new(Some(session)), cancel })
}

#[pymethods]
impl PyWriter {
    #[new]
    #[allow(clippy::too_many_arguments)]
    #[pyo3(signature = (path, format="", overwrite=false, digests=true, statistics=None, options=None, durability="full"))]
    fn new(
        py: Python<'_>,
        path: LocationInput,
        format: &str,
        overwrite: bool,
        digests: bool,
        statistics: Option<bool>,
        options: Option<&Bound<'_, PyAny>>,
        durability: &str,
    ) -> PyResult<Self> {
        let mut create = asked(overwrite, options)?
            .storage(path.storage.clone())
            .durability(durability.parse::<tesseral::Durability>().or_raise(py)?);
        if !digests {
            create = create.without_digests();
        }
        if let Some(stored) = statistics {
            create = create.chunk_statistics(stored);
            create = if stored { create.statistics() } else { create };
        }
        let cancel = Cancel::default();
        let begin = || {
            runtime::home();
            let options = runtime::options(&tesseral::Options::default())?.into_owned();
            create.execution(options.with_cancel(cancel.clone())).begin(&path.path, format)
        };
        let session = runtime::run_canceled_by(py, &cancel, begin)?;
        Ok(Self { session: RwLock::new(Some(session)), cancel })
    }

    /// Creates an array and returns its number.
    fn add(&self, py: Python<'_>, declared: Declared<'_>) -> PyResult<usize> {
        let spec = declared.spec(py)?;
        self.with_mut(py, |session| session.add(&spec)).map(|id| id.0)
    }

    /// Writes a region of whole chunks: contiguous cells in native byte order and the declared dtype.
    fn write(&self, py: Python<'_>, array: usize, start: Vec<u64>, cells: &Bound<'_, PyAny>) -> PyResult<()> {
        let shape: Vec<u64> = cells.getattr("shape")?.extract()?;
        if shape.len() != start.len() {
            return Err(PyValueError::new_err("one start per axis"));
        }
        let region = Region::new(start.iter().zip(&shape).map(|(&from, &n)| (from, from.saturating_add(n))));
        let bytes = numpy_array::read_bytes(cells)?;
        let bytes = bytes.as_slice()?;
        self.with(py, |session| session.write_region(ArrayId(array), &region, bytes))
    }

    /// Writes a region of whole chunks of variable-length cells: end offsets, and the bytes of all cells.
    fn write_text(
        &self,
        py: Python<'_>,
        array: usize,
        start: Vec<u64>,
        shape: Vec<u64>,
        ends: Vec<u64>,
        data: &[u8],
    ) -> PyResult<()> {
        let region = Region::new(start.iter().zip(&shape).map(|(&from, &n)| (from, from.saturating_add(n))));
        let column = ColumnData::Var { offsets: &ends, data, validity: None };
        self.with(py, |session| session.write_columns(ArrayId(array), &region, &[column]))
    }

    /// Sets attributes of a group.
    fn set_group(&self, py: Python<'_>, path: &str, attributes: &Bound<'_, PyAny>) -> PyResult<()> {
        let attributes = value::from_attributes(attributes)?;
        self.with_mut(py, |session| session.set_group(path, attributes))
    }

    /// Copies all cells of the only array of another container to a region of whole chunks.
    fn copy(&self, py: Python<'_>, array: usize, start: Vec<u64>, part: PathBuf) -> PyResult<()> {
        self.with(py, |session| {
            let container = tesseral::open(&part)?;
            let from = container.array_at(0)?;
            let shape = from.schema().shape().unwrap_or_default();
            let ends = start.iter().zip(&shape).map(|(&at, &n)| (at, at.saturating_add(n)));
            session.copy(ArrayId(array), &Region::new(ends), &from)
        })
    }

    /// Sets attributes of the container.
    fn set_attributes(&self, py: Python<'_>, attributes: &Bound<'_, PyAny>) -> PyResult<()> {
        let attributes = value::from_attributes(attributes)?;
        self.with_mut(py, |session| session.set_attributes(attributes))
    }

    /// Adds a row to the container's history.
    fn add_history(&self, py: Python<'_>, row: &Bound<'_, PyDict>) -> PyResult<()> {
        let text = |name: &str| -> PyResult<String> {
            row.get_item(name)?.map_or(Ok(String::new()), |v| v.extract())
        };
        let parents = row.get_item("parents")?.map_or(Ok(Vec::new()), |v| v.extract())?;
        let params = row.get_item("params")?.map_or(Ok(Default::default()), |v| v.extract())?;
        let row = HistoryRow {
            op: text("op")?,
            source: text("source")?,
            at: text("at")?,
            parents,
            params,
            ..HistoryRow::default()
        };
        self.with_mut(py, |session| session.add_history(row))
    }

    /// Writes a container that is a folder, without publishing it.
    fn stage(&self, py: Python<'_>) -> PyResult<PyStagedWrite> {
        let stage = || {
            let session = self.session.write().unwrap_or_else(PoisonError::into_inner).take();
            session.ok_or_else(closed).and_then(Session::stage)
        };
        let folder = py.detach(stage).or_raise(py)?;
        Ok(PyStagedWrite { folder: Mutex::new(Some(folder)), cancel: self.cancel.clone() })
    }

    /// Publishes the container atomically.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        let commit = || {
            let session = self.session.write().unwrap_or_else(PoisonError::into_inner).take();
            session.ok_or_else(closed).and_then(Session::commit)
        };
        runtime::run_canceled_by(py, &self.cancel, commit)
    }

    /// Discards the container.
    fn abandon(&self, py: Python<'_>) {
        py.detach(|| drop(self.session.write().unwrap_or_else(PoisonError::into_inner).take()));
    }
}

/// A complete folder that is not published yet. Removed on drop unless published.
#[pyclass(name = "Staged", frozen, module = "tesseral._native")]
pub struct PyStagedWrite {
    folder: Mutex<Option<StagedOutput>>,
    /// Ends an upload.
    cancel: Cancel,
}

#[pymethods]
impl PyStagedWrite {
    /// The temporary path.
    #[getter]
    fn path(&self) -> Option<PathBuf> {
        let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        folder.as_ref().map(|folder| folder.path().to_owned())
    }

    /// Publishes the folder.
    fn publish(&self, py: Python<'_>) -> PyResult<()> {
        let publish = || {
            let folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner).take();
            folder.ok_or_else(closed).and_then(StagedOutput::publish)
        };
        runtime::run_canceled_by(py, &self.cancel, publish)
    }

    /// Removes it.
    fn abandon(&self) {
        self.folder.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}
