//! Windows over the cells of one field of one array.

use std::borrow::Cow;
use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use tesseral::{Array, ArraySchema, Container, Dimension, Field, Slice};
use tesseral_core::Coords;

use crate::dtype::{self, CellConversion};
use crate::error::OrRaise;
use crate::index::{self, AxisIndex, Window};
use crate::{read, runtime, value};

/// Cells of one field of one array, as a window. Reads on demand.
#[pyclass(name = "View", frozen, module = "tesseral._native")]
pub struct PyView {
    container: Arc<Container>,
    index: usize,
    array: Array,
    /// Axes that continue at their start, and the array with these axes.
    continued: Option<(Vec<usize>, Array)>,
    process: u32,
    /// Extents of the axes that the window is over.
    pub(crate) shape: Coords,
    pub(crate) window: Window,
    pub(crate) dtype: Py<PyAny>,
    pub(crate) cells: CellConversion,
}

impl PyView {
    /// Creates a view of all cells of a field. An array without countable positions has a window without axes.
    pub(crate) fn open(
        py: Python<'_>,
        container: &Arc<Container>,
        index: usize,
        field: usize,
    ) -> PyResult<Self> {
        let array = py.detach(|| open_field(container, index, field)).or_raise(py)?;
        let dtype = dtype::of_field(py, array.selected_field())?.unbind();
        let cells = dtype::cells_of(array.selected_field());
        let shape = array.schema().shape().unwrap_or_default();
        let window = shape.iter().map(|&n| AxisIndex::whole(n)).collect();
        let process = std::process::id();
        Ok(Self {
            container: Arc::clone(container),
            index,
            array,
            continued: None,
            process,
            shape,
            window,
            dtype,
            cells,
        })
    }

    /// Returns the same cells through another window.
    fn with_window(&self, py: Python<'_>, window: Window) -> Self {
        Self {
            container: Arc::clone(&self.container),
            index: self.index,
            array: self.array.clone(),
            continued: self.continued.clone(),
            process: self.process,
            shape: self.shape.clone(),
            window,
            dtype: self.dtype.clone_ref(py),
            cells: self.cells,
        }
    }

    /// The array, with its own locks in a forked process.
    pub(crate) fn array(&self) -> tesseral::Result<Cow<'_, Array>> {
        if !runtime::is_forked(self.process) {
            return Ok(Cow::Borrowed(self.continued.as_ref().map_or(&self.array, |(_, array)| array)));
        }
        let number = self.array.schema().fields.iter().position(|f| std::ptr::eq(f, self.field()));
        let array = open_field(&self.container, self.index, number.unwrap_or(0))?;
        match &self.continued {
            Some((axes, _)) => array.continued(axes).map(Cow::Owned),
            None => Ok(Cow::Owned(array)),
        }
    }

    /// The same cells through a window over axes some of which continue at their start.
    fn with_continued(&self, py: Python<'_>, axes: &[usize]) -> PyResult<Self> {
        let mut view = self.with_window(py, self.window.clone());
        let axes: Vec<usize> =
            self.continued.iter().flat_map(|(axes, _)| axes).chain(axes).copied().collect();
        let array = py.detach(|| self.array.continued(&axes)).or_raise(py)?;
        view.shape = array.schema().shape().unwrap_or_default();
        view.continued = Some((axes, array));
        Ok(view)
    }

    /// The container of the array.
    pub(crate) fn container(&self) -> &Container {
        &self.container
    }

    pub(crate) fn schema(&self) -> &ArraySchema {
        self.array.schema()
    }

    pub(crate) fn field(&self) -> &Field {
        self.array.selected_field()
    }

    /// Indexes of the array's axes that are axes of the window.
    pub(crate) fn open_axes(&self) -> Vec<usize> {
        (0..self.window.len()).filter(|&i| !self.window[i].dropped).collect()
    }

    fn axis(&self, number: usize) -> PyResult<(usize, &Dimension)> {
        let axes = self.open_axes();
        let at = axes
            .get(number)
            .ok_or_else(|| PyIndexError::new_err(format!("axis {number} is out of bounds")))?;
        Ok((*at, &self.schema().dims[*at]))
    }

    /// Half-open positions of the window that a slice of the array selects.
    fn within(&self, axis: usize, slice: Slice) -> (u64, u64) {
        let AxisIndex { start, step, count, .. } = self.window[axis];
        let stride = step.unsigned_abs();
        let (from, to) = if step > 0 {
            let before = |end: u64| end.saturating_sub(start).div_ceil(stride).min(count);
            (before(slice.start), before(slice.end))
        } else {
            let beyond = |end: u64| start.checked_sub(end).map_or(0, |n| n / stride + 1).min(count);
            (beyond(slice.end), beyond(slice.start))
        };
        (from.min(to), to)
    }

    /// As [`within`](Self::within), for positions that can continue at the start of the axis. They go beyond the window if it is the
    /// whole axis, which is then to be continued.
    fn within_cycle(&self, axis: usize, slice: Slice) -> tesseral::Result<(u64, u64)> {
        let extent = self.array.schema().dims[axis].extent.unwrap_or(u64::MAX);
        let continued = self.shape[axis] > extent;
        if slice.end <= extent && !continued {
            return Ok(self.within(axis, slice));
        }
        if !continued && self.window[axis] == AxisIndex::whole(extent) {
            return Ok((slice.start, slice.end));
        }
        // The same cells one turn later or earlier.
        let later = Slice::new(slice.start.saturating_add(extent), slice.end.saturating_add(extent));
        let earlier = Slice::new(slice.start.saturating_sub(extent), slice.end.saturating_sub(extent));
        let found = [earlier, slice, later].map(|slice| self.within(axis, slice));
        let mut found = found.into_iter().filter(|(from, to)| from < to);
        match (found.next(), found.next()) {
            (Some(found), None) => Ok(found),
            (None, _) => Ok((0, 0)),
            (Some(_), Some(_)) => {
                let detail = "the range covers both ends of a window over part of a cyclic axis";
                Err(tesseral::Error::invalid(detail)
                    .in_array(self.array.name())
                    .hint("select by coordinates of the whole array"))
            }
        }
    }
}

fn open_field(container: &Container, index: usize, field: usize) -> tesseral::Result<Array> {
    let array = container.lazy_array(index)?;
    // A number beyond the type is beyond the fields of every array.
    array.field_at(u16::try_from(field).unwrap_or(u16::MAX))
}

impl PyView {
    /// A value of the field, in the type that reading a cell returns.
    fn cell_value<'py>(&self, py: Python<'py>, value: &tesseral::Scalar) -> PyResult<Bound<'py, PyAny>> {
        if self.cells == CellConversion::Plain && self.field().cell_size() == Some(value.bytes().len()) {
            let cell = crate::numpy_array::owned(py, value.bytes().to_vec(), &[], self.dtype.bind(py))?;
            return cell.get_item(PyTuple::empty(py));
        }
        value::scalar(py, value)
    }
}

#[pymethods]
impl PyView {
    /// Reads the cells of an index.
    #[pyo3(signature = (key, out=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        out: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(indexed) = index::apply(&self.window, key)? else {
            static FANCY: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
            return FANCY
                .import(py, "tesseral._gather", "mixed")?
                .call1((self.with_window(py, self.window.clone()), key));
        };
        read::indexed(py, self, &indexed, out)
    }

    /// The cells as a masked array in which missing cells are masked.
    fn masked<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let everything = pyo3::types::PyEllipsis::get(py).to_owned().into_any();
        let indexed = index::apply(&self.window, &everything)?;
        let indexed =
            indexed.ok_or_else(|| pyo3::exceptions::PyIndexError::new_err("an ellipsis is an index"))?;
        read::masked(py, self, &indexed)
    }

    /// Returns a smaller window; `None` if the index contains lists or arrays.
    fn narrow(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let indexed = index::apply(&self.window, key)?;
        Ok(indexed.map(|indexed| self.with_window(py, indexed.window)))
    }

    /// Returns the cells as a read-only array over the memory-mapped file; `None` if their layout does not allow it.
    fn borrow<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        read::borrowed(py, self)
    }

    /// The window: start, step, count of each axis of the array, and whether an integer selected it.
    #[getter]
    fn window(&self) -> Vec<(u64, i64, u64, bool)> {
        self.window.iter().map(|a| (a.start, a.step, a.count, a.dropped)).collect()
    }

    /// Returns the same cells through a window of [`window`](Self::window).
    fn restore(&self, py: Python<'_>, window: Vec<(u64, i64, u64, bool)>) -> PyResult<Self> {
        let window: Window = window
            .into_iter()
            .map(|(start, step, count, dropped)| AxisIndex { start, step, count, dropped })
            .collect();
        // Windows of a continued axis go beyond its extent.
        let beyond = |(a, n): (&AxisIndex, &u64)| {
            let reach = a.count.saturating_sub(1).saturating_mul(a.step.max(0).unsigned_abs());
            a.count > 0 && a.start.saturating_add(reach) >= *n
        };
        let axes: Vec<usize> = match self.schema().sparse {
            true => Vec::new(),
            false => (0..)
                .zip(window.iter().zip(&self.shape))
                .filter(|(_, pair)| beyond(*pair))
                .map(|(d, _)| d)
                .collect(),
        };
        if !axes.is_empty() && self.continued.is_none() {
            return self
                .with_continued(py, &axes)?
                .restore(py, window.iter().map(|a| (a.start, a.step, a.count, a.dropped)).collect());
        }
        let inside = window.len() == self.shape.len()
            && window.iter().zip(&self.shape).all(|(a, &n)| {
                let reach = a.count.saturating_sub(1).checked_mul(a.step.unsigned_abs());
                let last =
                    if a.step < 0 { Some(a.start) } else { reach.and_then(|r| a.start.checked_add(r)) };
                let first =
                    if a.step < 0 { reach.and_then(|r| a.start.checked_sub(r)) } else { Some(a.start) };
                a.step != 0
                    && first.is_some()
                    && (a.count == 0 && a.start <= n || last.is_some_and(|l| l < n))
            });
        if !inside {
            return Err(PyIndexError::new_err("the window does not match the array"));
        }
        Ok(self.with_window(py, window))
    }

    /// Name of the array.
    #[getter]
    fn name(&self) -> &str {
        self.array.name()
    }

    /// Index of the array in its container.
    #[getter]
    fn index(&self) -> usize {
        self.index
    }

    /// The field: name, type name, nullable, codecs.
    #[getter]
    fn field_name(&self) -> &str {
        &self.field().name
    }

    /// Every field: name, type name, nullable, codecs.
    fn fields(&self) -> Vec<(String, String, bool, Vec<String>)> {
        let field_row = |f: &Field| (f.name.clone(), f.type_name().to_string(), f.nullable, f.codecs.clone());
        self.schema().fields.iter().map(field_row).collect()
    }

    /// Name, NumPy dtype and nullability of each dimension of a sparse array and of each field. Variable-length cells are
    /// objects.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyAny>, bool)>> {
        let schema = self.schema();
        let dims = schema.dims.iter().filter(|_| schema.sparse).map(crate::rows::coordinates);
        let field_dtype = |f: Field| Ok((f.name.clone(), crate::dtype::of_field(py, &f)?, f.nullable));
        dims.chain(schema.fields.iter().cloned()).map(field_dtype).collect()
    }

    /// Extents of the axes of the window.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, index::shape(&self.window))
    }

    /// Whether positions are countable.
    #[getter]
    fn countable(&self) -> bool {
        self.schema().shape().is_some()
    }

    /// Whether the array is sparse.
    #[getter]
    fn sparse(&self) -> bool {
        self.schema().sparse
    }

    /// NumPy dtype of results.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> Py<PyAny> {
        self.dtype.clone_ref(py)
    }

    /// Display name of the stored dtype.
    #[getter]
    fn type_name(&self) -> String {
        self.field().type_name().to_string()
    }

    /// Whether the field is nullable.
    #[getter]
    fn nullable(&self) -> bool {
        self.field().nullable
    }

    /// Codecs, in encoding order.
    #[getter]
    fn codecs(&self) -> Vec<String> {
        self.field().codecs.clone()
    }

    /// Fill value of unwritten cells.
    #[getter]
    fn fill<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.field().fill.as_ref().map(|fill| self.cell_value(py, fill)).transpose()
    }

    /// The values that are declared to mean "missing".
    #[getter]
    fn missing<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        self.field().missing.iter().map(|value| self.cell_value(py, value)).collect()
    }

    /// Names of the axes of the window; empty if unnamed.
    #[getter]
    fn dims(&self) -> Vec<String> {
        self.open_axes().into_iter().map(|i| self.schema().dims[i].name.clone()).collect()
    }

    /// Names of the unlimited axes of the window.
    #[getter]
    fn unlimited(&self) -> Vec<String> {
        let dims = self.open_axes().into_iter().map(|i| &self.schema().dims[i]);
        dims.filter(|dim| dim.unlimited).map(|dim| dim.name.clone()).collect()
    }

    /// Chunk extents along the axes of the window.
    #[getter]
    fn chunks<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(chunk) = &self.schema().chunk_shape else { return Ok(None) };
        Some(PyTuple::new(py, self.open_axes().into_iter().map(|i| chunk[i]))).transpose()
    }

    /// Attributes of the field and those that all fields share, in order.
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        value::attributes(py, &self.array.field_attributes())
    }

    /// Attributes of the container that are stored with the array.
    fn container_attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        value::attributes(py, &self.array.container_attributes())
    }

    /// Role of the array: `data`, `index`, `auxiliary`, `bounds`, `grid_mapping`, `ancillary`.
    #[getter]
    fn role(&self, py: Python<'_>) -> PyResult<&'static str> {
        py.detach(|| self.container.role(self.index))
            .map(tesseral_core::schema::VariableRole::name)
            .or_raise(py)
    }

    /// The role that is stored with the array.
    #[getter]
    fn own_role(&self) -> &'static str {
        self.schema().role.name()
    }

    /// The name that was given to the array.
    #[getter]
    fn variable_name(&self) -> &str {
        self.array.variable_name()
    }

    /// Labels of the array's axis of an axis of the window.
    fn labels<'py>(&self, py: Python<'py>, axis: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (dim, _) = self.axis(axis)?;
        let array = self.array().or_raise(py)?;
        let labeled = py.detach(|| array.labeled(|d| d == dim).map(Cow::into_owned)).or_raise(py)?;
        labeled.schema().dims[dim].labels.as_ref().map(|labels| value::labels(py, labels)).transpose()
    }

    /// Whether cells of the array are unwritten.
    fn has_gaps(&self, py: Python<'_>) -> PyResult<bool> {
        if self.schema().sparse {
            return Ok(false);
        }
        let array = self.array().or_raise(py)?;
        py.detach(|| array.has_gaps(&array.all()?)).or_raise(py)
    }

    /// Whether cells of the window can match a condition, by the statistics of their chunks.
    fn may_match(&self, py: Python<'_>, condition: &str) -> PyResult<bool> {
        let array = self.array().or_raise(py)?;
        let selection = index::selection(&self.window, &self.shape).or_raise(py)?;
        py.detach(|| array.may_match(&selection, condition)).or_raise(py)
    }

    /// Whether the array's axis of an axis of the window has labels.
    fn has_labels(&self, axis: usize) -> PyResult<bool> {
        Ok(self.array.has_labels(self.axis(axis)?.0))
    }

    /// The same window over physical values.
    fn physical(&self, py: Python<'_>) -> PyResult<Self> {
        let container = Arc::new((*self.container).clone().physical());
        let number = self.schema().fields.iter().position(|f| std::ptr::eq(f, self.field())).unwrap_or(0);
        let view = Self::open(py, &container, self.index, number)?;
        let view = match &self.continued {
            Some((axes, _)) => view.with_continued(py, axes)?,
            None => view,
        };
        Ok(view.with_window(py, self.window.clone()))
    }

    /// Whether numbers of the field count time.
    #[getter]
    fn counts_time(&self) -> bool {
        self.field().time.is_some()
    }

    /// Units and calendar of numbers that count time, as CF writes them. Units of other names are empty.
    #[getter]
    fn time(&self) -> Option<(String, String)> {
        let units = self.field().time?;
        Some((units.text().unwrap_or_default(), units.calendar().to_string()))
    }

    /// Cells that count time, as little-endian bytes, as microseconds since 1970: `int64` in native byte order, NaT for cells without
    /// a time. `None` if one of the cells that are not hidden has a time that NumPy's calendar does not have.
    fn unix_micros(&self, cells: &[u8], hidden: &[u8]) -> Option<Vec<u8>> {
        let (units, dtype) = (self.field().time?, self.field().dtype);
        let mut out = Vec::new();
        for (cell, hidden) in cells.chunks(dtype.size()?).zip(hidden) {
            let number = tesseral::Scalar::from_le_bytes(dtype, cell).ok()?;
            let micros = match units.unix_micros(&number) {
                Some(micros) => micros,
                None if *hidden != 0 || units.instant(&number).is_none() => i64::MIN,
                None => return None,
            };
            out.extend_from_slice(&micros.to_ne_bytes());
        }
        Some(out)
    }

    /// First and last coordinate of the whole axis, if it has a domain.
    fn domain<'py>(
        &self,
        py: Python<'py>,
        axis: usize,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let Some((first, last)) = &self.axis(axis)?.1.domain else { return Ok(None) };
        Ok(Some((value::scalar(py, first)?, value::scalar(py, last)?)))
    }

    /// Half-open positions of the window between two coordinates, both included. They go beyond a window over a whole cyclic axis if
    /// the range crosses its end; [`cycle`](Self::cycle) has them.
    #[pyo3(signature = (axis, low=None, high=None))]
    fn between(
        &self,
        py: Python<'_>,
        axis: usize,
        low: Option<&str>,
        high: Option<&str>,
    ) -> PyResult<(u64, u64)> {
        let (at, _) = self.axis(axis)?;
        self.within_cycle(at, self.array.between(at, low, high).or_raise(py)?).or_raise(py)
    }

    /// The window with a whole axis that continues at its start for one turn.
    fn cycle(&self, py: Python<'_>, axis: usize) -> PyResult<Self> {
        let (at, _) = self.axis(axis)?;
        let mut view = self.with_continued(py, &[at])?;
        view.window[at] = AxisIndex::whole(view.shape[at]);
        Ok(view)
    }

    /// Half-open positions of the window at a coordinate.
    fn at(&self, py: Python<'_>, axis: usize, value: &str) -> PyResult<(u64, u64)> {
        let (at, _) = self.axis(axis)?;
        self.within_cycle(at, self.array.at(at, value).or_raise(py)?).or_raise(py)
    }

    /// Positions of the window with the coordinates nearest to some values.
    fn nearest(&self, py: Python<'_>, axis: usize, values: Vec<String>) -> PyResult<Vec<u64>> {
        let (at, _) = self.axis(axis)?;
        let found = self.array.nearest(at, &values, self.window[at].slice()).or_raise(py)?;
        Ok(found.into_iter().map(|position| self.within(at, Slice::new(position, position + 1)).0).collect())
    }

    /// Coordinates, decoded size, stored size, codec and offset of each chunk that contains a cell of the window.
    #[allow(clippy::type_complexity)]
    fn chunk_table(&self, py: Python<'_>) -> PyResult<Vec<(Vec<u64>, u64, u64, String, u64)>> {
        let array = self.array().or_raise(py)?;
        let selection = index::selection(&self.window, &self.shape).or_raise(py)?;
        let chunks = py.detach(|| array.chunks(&selection)).or_raise(py)?;
        let row = |c: tesseral::ChunkInfo| (c.coords.to_vec(), c.raw_len, c.stored_len, c.codec, c.offset);
        Ok(chunks.into_iter().map(row).collect())
    }

    /// Rows of coordinates and fields: columns by name.
    fn rows<'py>(&self, py: Python<'py>, asked: crate::rows::RowsInput) -> PyResult<Bound<'py, PyDict>> {
        crate::rows::read(py, self, &asked)
    }

    /// As above, in batches.
    fn row_batches(&self, py: Python<'_>, asked: crate::rows::RowsInput) -> PyResult<crate::rows::PyRows> {
        crate::rows::PyRows::open(py, self, &asked)
    }

    /// Name, labels and orderedness of each enumeration.
    fn enumerations<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let out = PyDict::new(py);
        for field in &self.schema().fields {
            if let Some(found) = &field.enumeration {
                let labels = value::labels(py, &found.labels)?;
                out.set_item(&field.name, (&found.name, labels, found.ordered))?;
            }
        }
        Ok(out)
    }

    /// Names of all dimensions of the array.
    #[getter]
    fn all_dims(&self) -> Vec<String> {
        self.schema().dims.iter().map(|dim| dim.name.clone()).collect()
    }

    /// Extents of the axes of the array, regardless of the window; empty if positions are not countable.
    #[getter]
    fn full_shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, self.schema().shape().unwrap_or_default())
    }

    /// Answers a question about the cells: one array per statistic, the edges of histograms, the groups.
    #[allow(clippy::type_complexity)]
    fn reduce<'py>(
        &self,
        py: Python<'py>,
        asked: crate::reduce::ReduceInput,
    ) -> PyResult<(Vec<Bound<'py, PyAny>>, Vec<Vec<f64>>, Option<Vec<Bound<'py, PyAny>>>)> {
        crate::reduce::reduce(py, self, &asked)
    }

    /// The groups of a question: numbers, or names of seasons.
    fn groups<'py>(
        &self,
        py: Python<'py>,
        asked: crate::reduce::ReduceInput,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        crate::reduce::groups(py, self, &asked)
    }

    /// Divides a question into jobs of about `nbytes` of cells each: their bytes and numbers of units.
    fn split_reduction<'py>(
        &self,
        py: Python<'py>,
        asked: crate::reduce::ReduceInput,
        nbytes: u64,
    ) -> PyResult<Vec<(Bound<'py, pyo3::types::PyBytes>, u64)>> {
        crate::reduce::split(py, self, &asked, nbytes)
    }

    /// Runs a job: its results as bytes.
    fn run_job<'py>(
        &self,
        py: Python<'py>,
        asked: crate::reduce::ReduceInput,
        job: &[u8],
    ) -> PyResult<Bound<'py, pyo3::types::PyBytes>> {
        crate::reduce::run_job(py, self, &asked, job)
    }

    /// As `reduce`, from the joined results of all jobs.
    #[allow(clippy::type_complexity)]
    fn merge_results<'py>(
        &self,
        py: Python<'py>,
        asked: crate::reduce::ReduceInput,
        results: &[u8],
        units: u64,
    ) -> PyResult<(Vec<Bound<'py, PyAny>>, Vec<Vec<f64>>, Option<Vec<Bound<'py, PyAny>>>)> {
        crate::reduce::merged(py, self, &asked, results, units)
    }
}
