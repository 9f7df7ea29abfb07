//! Verification, recovery, conversion and comparison of sources.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use tesseral::{ConvertOptions, DiffOptions, Finding, Open, Options, Output, Overwrite};

use crate::runtime;
use crate::source::{LocationInput, opener};

/// Escapes characters that control a terminal or are invisible.
#[pyfunction]
pub fn escape(text: &str) -> String {
    tesseral_core::escape(text).into_owned()
}

/// Returns a temporary name next to a target.
#[pyfunction]
pub fn staging_name(target: PathBuf) -> PathBuf {
    tesseral_store::staging_name(target.as_os_str()).into()
}

/// Converts a finding.
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

/// Verifies a source: format, whether it is intact, findings, bytes covered by digests and not covered.
#[pyfunction]
#[pyo3(signature = (path, deep=false, as_of=None, key=None, memory=None))]
#[allow(clippy::type_complexity)]
pub fn verify<'py>(
    py: Python<'py>,
    path: LocationInput,
    deep: bool,
    as_of: Option<(u64, u64)>,
    key: Option<Vec<u8>>,
    memory: Option<u64>,
) -> PyResult<(&'static str, bool, Vec<Bound<'py, PyDict>>, u64, u64)> {
    let open: Open = path.opener(opener(as_of, memory, key, true, true));
    let (format, found, verified) = runtime::run(py, &Options::default(), u64::MAX, |options| {
        let store = open.store(&path.path)?;
        let format = tesseral::recognize(&*store)?;
        let mut found = Vec::new();
        let mut options = options.clone();
        options.memory = memory;
        let verified =
            tesseral_engine::verify(format, store, open.format_options(), deep, &options, &mut |f| {
                found.push(f)
            })?;
        Ok((format, found, verified))
    })?;
    let checks = findings(py, &found)?;
    Ok((format.id(), verified.ok, checks, verified.covered_bytes, verified.uncovered_bytes))
}

/// Recovers the intact chunks of a damaged source: chunks saved, chunks lost, findings.
#[pyfunction]
#[pyo3(signature = (path, output, overwrite=false, key=None))]
pub fn recover<'py>(
    py: Python<'py>,
    path: LocationInput,
    output: LocationInput,
    overwrite: bool,
    key: Option<Vec<u8>>,
) -> PyResult<(u64, u64, Vec<Bound<'py, PyDict>>)> {
    let open = path.opener(opener(None, None, key, true, true));
    let (found, recovered) = runtime::run(py, &Options::default(), u64::MAX, |options| {
        let store = open.store(&path.path)?;
        let format = tesseral::recognize(&*store)?;
        let overwrite = if overwrite { Overwrite::Replace } else { Overwrite::Refuse };
        let mut found = Vec::new();
        let output =
            Output::of_format(&output.path, format).overwrite(overwrite).storage(output.storage.clone());
        let recovered =
            tesseral::recover(format, store, open.format_options(), output, options, &mut |f| found.push(f))?;
        Ok((found, recovered))
    })?;
    Ok((recovered.chunks_saved, recovered.chunks_lost, findings(py, &found)?))
}

/// Copies a dataset byte for byte: format, objects, bytes, bytes covered by digests and not covered.
#[pyfunction]
#[pyo3(signature = (path, output, overwrite=false, digests=true, key=None))]
#[allow(clippy::type_complexity)]
pub fn copy(
    py: Python<'_>,
    path: LocationInput,
    output: LocationInput,
    overwrite: bool,
    digests: bool,
    key: Option<Vec<u8>>,
) -> PyResult<(&'static str, u64, u64, Option<u64>, Option<u64>)> {
    let open = path.opener(opener(None, None, key, digests, true));
    let overwrite = if overwrite { Overwrite::Replace } else { Overwrite::Refuse };
    let copied = runtime::run(py, &Options::default(), u64::MAX, |options| {
        let open = open.execution(options.clone());
        tesseral::copy_dataset(&open, &path.path, &output.path, overwrite, &output.storage)
    })?;
    let covered = copied.verified.map(|verified| verified.covered_bytes);
    let uncovered = copied.verified.map(|verified| verified.uncovered_bytes);
    Ok((copied.format.id(), copied.objects, copied.bytes, covered, uncovered))
}

/// Arguments of `convert`.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Conversion {
    format: Option<String>,
    arrays: Vec<String>,
    select: Vec<String>,
    chunk: Option<String>,
    codec: Option<String>,
    casts: Vec<String>,
    fills: Vec<String>,
    statistics: Option<bool>,
    check: bool,
    max_abs_error: Option<f64>,
    overwrite: bool,
    durability: String,
    memory: Option<u64>,
}

impl Conversion {
    fn options(&self, options: &Options) -> tesseral::Result<ConvertOptions> {
        let codecs = self.codec.as_deref().map(tesseral::parse_codecs).transpose()?;
        let mut conversion = ConvertOptions::new().execution(options.clone());
        conversion.format.clone_from(&self.format);
        conversion.arrays.clone_from(&self.arrays);
        conversion.select.clone_from(&self.select);
        conversion.chunk = self.chunk.as_deref().map(str::parse).transpose()?;
        conversion.codecs = codecs;
        conversion.casts = self.casts.iter().map(|text| text.parse()).collect::<tesseral::Result<_>>()?;
        conversion.fills = self.fills.iter().map(|text| text.parse()).collect::<tesseral::Result<_>>()?;
        conversion.statistics = self.statistics == Some(true);
        conversion.chunk_statistics = self.statistics;
        conversion.check = self.check;
        conversion.max_abs_error = self.max_abs_error;
        conversion.overwrite = self.overwrite;
        conversion.durability = self.durability.parse()?;
        conversion.execution.memory = self.memory;
        Ok(conversion)
    }
}

/// Converts a source: format, names of the arrays and size of the output in bytes.
#[pyfunction]
pub fn convert(
    py: Python<'_>,
    path: LocationInput,
    output: LocationInput,
    conversion: Conversion,
    as_of: Option<(u64, u64)>,
    key: Option<Vec<u8>>,
) -> PyResult<(&'static str, Vec<String>, u64)> {
    let open = path.opener(opener(as_of, conversion.memory, key, true, true));
    let done = runtime::run(py, &Options::default(), u64::MAX, |options| {
        let source = open.open(&path.path)?;
        let conversion = conversion.options(options)?.storage(output.storage.clone());
        tesseral::convert(&source, &output.path, &conversion)
    })?;
    Ok((done.format.id(), done.arrays.into_iter().map(|a| a.name).collect(), done.stored_bytes))
}

/// Compares two sources: whether they are equal, metadata notes, and differences of cells.
#[pyfunction]
#[allow(clippy::type_complexity)]
pub fn diff(
    py: Python<'_>,
    left: LocationInput,
    right: LocationInput,
    arrays: Vec<String>,
    max_abs_error: Option<f64>,
    max_rel_error: Option<f64>,
    stored: bool,
) -> PyResult<(
    bool,
    Vec<(Option<String>, String, Option<String>, Option<String>)>,
    Vec<(String, u64, u64, Option<Vec<u64>>, Option<f64>)>,
)> {
    let open = opener(None, None, None, true, true);
    let found = runtime::run(py, &Options::default(), u64::MAX, |options| {
        let left = left.opener(open.clone()).open(&left.path)?;
        let right = right.opener(open.clone()).open(&right.path)?;
        let mut comparison = DiffOptions::new().execution(options.clone());
        comparison.arrays = arrays;
        comparison.max_abs_error = max_abs_error;
        comparison.max_rel_error = max_rel_error;
        comparison.stored = stored;
        tesseral::diff(&left, &right, &comparison)
    })?;
    let same = found.is_same();
    let notes = found.notes.into_iter().map(|n| (n.array, n.what, n.left, n.right)).collect();
    let values = found.values.into_iter();
    let values =
        values.map(|v| (v.name, v.cells, v.differing, v.first.map(|f| f.position), v.max_abs)).collect();
    Ok((same, notes, values))
}
