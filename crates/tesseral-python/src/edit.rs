//! Appending to existing arrays, and maintenance of versions.

use std::collections::BTreeMap;

use numpy::PyReadonlyArray1;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping};
use tesseral::{
    Append, ArrayId, Cancel, ColumnData, Consolidate, Edit, InputOrder, MaintenancePart, OpenOptions, Region,
    TimeRange,
};

use crate::error::OrRaise;
use crate::source::{LocationInput, opener};
use crate::{runtime, value};

/// One column of cells: bytes, ends of variable-length cells, and validity.
#[derive(FromPyObject)]
pub struct ColumnInput<'py>(
    PyReadonlyArray1<'py, u8>,
    Option<PyReadonlyArray1<'py, u64>>,
    Option<PyReadonlyArray1<'py, u8>>,
);

impl ColumnInput<'_> {
    fn data(&self) -> PyResult<ColumnData<'_>> {
        let Self(values, offsets, validity) = self;
        let values = values.as_slice()?;
        let validity = validity.as_ref().map(|v| v.as_slice()).transpose()?;
        Ok(match offsets {
            Some(offsets) => ColumnData::Var { offsets: offsets.as_slice()?, data: values, validity },
            None => ColumnData::Fixed { values, validity },
        })
    }
}

fn open_options(key: Option<Vec<u8>>) -> OpenOptions {
    opener(None, None, key, true, false).format_options().clone()
}

/// Options of an append.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct AppendInput {
    region: Option<Vec<(u64, u64)>>,
    timestamp: Option<u64>,
    array: Option<String>,
    dedup: bool,
    sorted: bool,
    key: Option<Vec<u8>>,
}

/// Appends cells: a column per field of a region of a dense array, or one per dimension and field of a sparse one.
#[pyfunction]
pub fn append(
    py: Python<'_>,
    path: LocationInput,
    columns: Vec<ColumnInput<'_>>,
    adding: AppendInput,
) -> PyResult<()> {
    let columns = columns.iter().map(ColumnInput::data).collect::<PyResult<Vec<_>>>()?;
    let mut append = Append::new().open(open_options(adding.key)).storage(path.storage.clone());
    if let Some(timestamp) = adding.timestamp {
        append = append.timestamp(timestamp);
    }
    if let Some(name) = adding.array {
        append = append.array(name);
    }
    if adding.dedup {
        append = append.dedup();
    }
    let region = adding.region.map(Region::new);
    let order = if adding.sorted { InputOrder::Stored } else { InputOrder::Unordered };
    let work = |cancel: &Cancel| {
        runtime::home();
        let options = runtime::options(&tesseral::Options::default())?.into_owned();
        let append = append.execution(options.with_cancel(cancel.clone()));
        match &region {
            Some(region) => {
                let session = append.region(region.clone()).begin(&path.path)?;
                session.write_columns(ArrayId(0), region, &columns)?;
                session.commit()
            }
            None => {
                let session = append.begin(&path.path)?;
                session.write_cells(ArrayId(0), &columns, order)?;
                session.commit()
            }
        }
    };
    runtime::run_at(py, &path.path, work)
}

/// Runs `work` on a source opened for editing.
fn change<T: Send>(
    py: Python<'_>,
    path: &LocationInput,
    key: Option<Vec<u8>>,
    work: impl FnOnce(&dyn Edit) -> tesseral::Result<T> + Send,
) -> PyResult<T> {
    runtime::run_at(py, &path.path, |cancel| {
        let open = path.opener(opener(None, None, key, true, false)).cancel(cancel.clone());
        work(&*tesseral::edit_store(open.store(&path.path)?, open.format_options())?)
    })
}

/// Deletes the cells that match a condition, as of a timestamp.
#[pyfunction]
pub fn delete(
    py: Python<'_>,
    path: LocationInput,
    condition: &str,
    timestamp: Option<u64>,
    key: Option<Vec<u8>>,
) -> PyResult<()> {
    let container = path.opener(opener(None, None, key.clone(), true, false)).open(&path.path);
    let condition = container
        .and_then(|container| tesseral::condition(container.array_at(0)?.schema(), condition))
        .or_raise(py)?;
    change(py, &path, key, |edit| edit.delete(&condition, timestamp))
}

/// Sets attributes; `None` removes one.
#[pyfunction]
pub fn set_attributes(
    py: Python<'_>,
    path: LocationInput,
    changes: &Bound<'_, PyMapping>,
    timestamp: Option<u64>,
    key: Option<Vec<u8>>,
) -> PyResult<()> {
    let attributes = value::from_attributes(changes.as_any())?;
    let changes: BTreeMap<_, _> = attributes
        .into_iter()
        .map(|(name, value)| (name, Some(value).filter(|v| !matches!(v, tesseral::Value::Null))))
        .collect();
    change(py, &path, key, |edit| edit.set_attributes(&changes, timestamp))
}

fn part(name: &str) -> PyResult<MaintenancePart> {
    match name {
        "fragments" => Ok(MaintenancePart::Fragments),
        "commits" => Ok(MaintenancePart::Commits),
        "fragment_meta" => Ok(MaintenancePart::FragmentMetadata),
        "array_meta" => Ok(MaintenancePart::Attributes),
        _ => Err(PyValueError::new_err("part must be fragments, commits, fragment_meta or array_meta")),
    }
}

/// Options of consolidation.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct ConsolidateInput {
    part: String,
    times: Option<(u64, u64)>,
    at_least: usize,
    at_most: Option<usize>,
    max_bytes: Option<u64>,
    key: Option<Vec<u8>>,
}

/// Merges versions into one: names of the new ones, of the replaced ones, and of those that were not merged.
#[pyfunction]
pub fn consolidate(
    py: Python<'_>,
    path: LocationInput,
    asked: ConsolidateInput,
) -> PyResult<(Vec<String>, Vec<String>, Vec<String>)> {
    let what = Consolidate {
        part: part(&asked.part)?,
        times: asked.times.map(|(start, end)| TimeRange { start, end }),
        at_least: asked.at_least,
        at_most: asked.at_most,
        max_bytes: asked.max_bytes,
        memory: None,
    };
    let done = change(py, &path, asked.key, |edit| edit.consolidate(&what))?;
    Ok((done.made, done.replaced, done.apart))
}

/// Removes replaced versions, or lists them: names, size in bytes, and retained ones with the reason.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn vacuum(
    py: Python<'_>,
    path: LocationInput,
    named: &str,
    dry_run: bool,
    key: Option<Vec<u8>>,
) -> PyResult<(Vec<String>, u64, Vec<(String, String)>)> {
    let part = part(named)?;
    let done = change(py, &path, key, |edit| edit.vacuum(part, dry_run))?;
    Ok((done.removed, done.bytes, done.kept))
}

/// Versions of a source in order of time.
#[pyfunction]
pub fn versions<'py>(
    py: Python<'py>,
    path: LocationInput,
    key: Option<Vec<u8>>,
) -> PyResult<Vec<Bound<'py, PyDict>>> {
    let read = || path.opener(opener(None, None, key, true, false)).open(&path.path)?.versions();
    let versions = py.detach(read).or_raise(py)?;
    let version_dict = |version: &tesseral::Version| {
        let out = PyDict::new(py);
        out.set_item("name", &version.name)?;
        out.set_item("op", version.op)?;
        out.set_item("state", version.state.name())?;
        out.set_item("start", version.start)?;
        out.set_item("end", version.end)?;
        out.set_item("array", &version.array)?;
        out.set_item("cells", version.cells)?;
        out.set_item("bytes", version.bytes)?;
        Ok(out)
    };
    versions.iter().map(version_dict).collect()
}
