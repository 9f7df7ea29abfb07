//! Checking and saving sources.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tesseral::{CreateOptions, Finding, Open, Options, Overwrite, engine};

use crate::runtime;
use crate::source::opener;

/// A check's outcome.
fn finding<'py>(py: Python<'py>, found: &Finding) -> PyResult<Bound<'py, PyDict>> {
    let out = PyDict::new(py);
    out.set_item("check", found.check)?;
    out.set_item("severity", found.severity.name())?;
    out.set_item("ok", found.ok)?;
    out.set_item("detail", &found.detail)?;
    out.set_item("array", &found.array)?;
    out.set_item("chunk", found.chunk.as_ref().map(|c| PyTuple::new(py, c)).transpose()?)?;
    out.set_item("offset", found.offset)?;
    out.set_item("length", found.length)?;
    Ok(out)
}

fn findings<'py>(py: Python<'py>, found: &[Finding]) -> PyResult<Vec<Bound<'py, PyDict>>> {
    found.iter().map(|one| finding(py, one)).collect()
}

/// Checks a source: format, whether it is sound, the checks made, bytes that digests cover and do not.
#[pyfunction]
#[pyo3(signature = (path, deep=false, as_of=None, key=None, memory=None))]
#[allow(clippy::type_complexity)]
pub fn verify<'py>(
    py: Python<'py>,
    path: PathBuf,
    deep: bool,
    as_of: Option<(u64, u64)>,
    key: Option<Vec<u8>>,
    memory: Option<u64>,
) -> PyResult<(&'static str, bool, Vec<Bound<'py, PyDict>>, u64, u64)> {
    let open: Open = opener(as_of, memory, key, true, true);
    let (format, found, verified) = runtime::run(py, &Options::default(), u64::MAX, |options| {
        let store = open.store(tesseral::local(&path)?);
        let format = tesseral::recognise(&*store)?;
        let mut found = Vec::new();
        let options = Options { memory, ..options.clone() };
        let verified =
            engine::verify(format, store, open.format_options(), deep, &options, &mut |f| found.push(f))?;
        Ok((format, found, verified))
    })?;
    let checks = findings(py, &found)?;
    Ok((format.id(), verified.ok, checks, verified.covered_bytes, verified.uncovered_bytes))
}

/// Saves every whole chunk of a torn source: chunks saved, chunks lost, what was found.
#[pyfunction]
#[pyo3(signature = (path, output, overwrite=false, key=None))]
pub fn recover<'py>(
    py: Python<'py>,
    path: PathBuf,
    output: PathBuf,
    overwrite: bool,
    key: Option<Vec<u8>>,
) -> PyResult<(u64, u64, Vec<Bound<'py, PyDict>>)> {
    let open = opener(None, None, key, true, true);
    let (found, recovered) = runtime::run(py, &Options::default(), u64::MAX, |options| {
        let store = open.store(tesseral::local(&path)?);
        let format = tesseral::recognise(&*store)?;
        let create = CreateOptions {
            overwrite: if overwrite { Overwrite::Replace } else { Overwrite::Refuse },
            ..CreateOptions::default()
        };
        let target = format.create(open.store(tesseral::local(&output)?), &create)?;
        let mut found = Vec::new();
        let recovered =
            engine::recover(format, store, open.format_options(), target, options, &mut |f| found.push(f))?;
        Ok((found, recovered))
    })?;
    Ok((recovered.chunks_saved, recovered.chunks_lost, findings(py, &found)?))
}
