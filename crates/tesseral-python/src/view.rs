//! Cells of one field of one array, as a window over it.

use std::borrow::Cow;
use std::sync::Arc;

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple};
use tesseral::core::Coords;
use tesseral::{Array, ArraySchema, Container, Dimension, Error, Field, Slice};

use crate::dtype::{self, Cells};
use crate::error::OrRaise;
use crate::index::{self, Axis, Window};
use crate::{read, runtime, value};

/// Cells of one field of one array, as a window over it. Nothing is read before cells are asked for.
#[pyclass(frozen, module = "tesseral._native")]
pub struct View {
    container: Arc<Container>,
    index: usize,
    array: Array,
    process: u32,
    pub(crate) shape: Coords,
    pub(crate) window: Window,
    pub(crate) dtype: Py<PyAny>,
    pub(crate) cells: Cells,
}

impl View {
    /// All cells of a field. An array whose positions cannot be counted has a window without axes.
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
        let window = shape.iter().map(|&n| Axis::whole(n)).collect();
        let process = std::process::id();
        Ok(Self { container: Arc::clone(container), index, array, process, shape, window, dtype, cells })
    }

    /// The same cells through another window.
    fn with_window(&self, py: Python<'_>, window: Window) -> Self {
        Self {
            container: Arc::clone(&self.container),
            index: self.index,
            array: self.array.clone(),
            process: self.process,
            shape: self.shape.clone(),
            window,
            dtype: self.dtype.clone_ref(py),
            cells: self.cells,
        }
    }

    /// The array, with locks of its own in a process forked since.
    pub(crate) fn array(&self) -> tesseral::Result<Cow<'_, Array>> {
        if !runtime::is_forked(self.process) {
            return Ok(Cow::Borrowed(&self.array));
        }
        let number = self.array.schema().fields.iter().position(|f| std::ptr::eq(f, self.field()));
        open_field(&self.container, self.index, number.unwrap_or(0)).map(Cow::Owned)
    }

    pub(crate) fn schema(&self) -> &ArraySchema {
        self.array.schema()
    }

    pub(crate) fn field(&self) -> &Field {
        self.array.selected_field()
    }

    /// Numbers of the array's axes that are axes of the window.
    pub(crate) fn open_axes(&self) -> Vec<usize> {
        (0..self.window.len()).filter(|&i| !self.window[i].dropped).collect()
    }

    fn axis(&self, number: usize) -> PyResult<(usize, &Dimension)> {
        let axes = self.open_axes();
        let at =
            axes.get(number).ok_or_else(|| PyIndexError::new_err(format!("there is no axis {number}")))?;
        Ok((*at, &self.schema().dims[*at]))
    }

    /// Positions of the window, half-open, that a slice of the array takes.
    fn within(&self, axis: usize, slice: Slice) -> (u64, u64) {
        let Axis { start, step, count, .. } = self.window[axis];
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
}

fn open_field(container: &Container, index: usize, field: usize) -> tesseral::Result<Array> {
    let array = container.array_at(index)?;
    match u16::try_from(field) {
        Ok(number) if field < array.schema().fields.len() => Ok(array.field_at(number)),
        _ => Err(Error::invalid(format!("there is no field number {field}")).in_array(array.name())),
    }
}

#[pymethods]
impl View {
    /// Reads the cells that an index chooses.
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

    /// A narrower window; `None` when the index holds lists or arrays.
    fn narrow(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let indexed = index::apply(&self.window, key)?;
        Ok(indexed.map(|indexed| self.with_window(py, indexed.window)))
    }

    /// The cells as a read-only array over the file itself; `None` where they do not lie there as they should.
    fn borrow<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        read::borrowed(py, self)
    }

    /// The window: start, step, count of each axis of the array, and whether a number chose it.
    #[getter]
    fn window(&self) -> Vec<(u64, i64, u64, bool)> {
        self.window.iter().map(|a| (a.start, a.step, a.count, a.dropped)).collect()
    }

    /// The same cells through a window that [`window`](Self::window) gave.
    fn restore(&self, py: Python<'_>, window: Vec<(u64, i64, u64, bool)>) -> PyResult<Self> {
        let window: Window = window
            .into_iter()
            .map(|(start, step, count, dropped)| Axis { start, step, count, dropped })
            .collect();
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
            return Err(PyIndexError::new_err("the window does not fit the array"));
        }
        Ok(self.with_window(py, window))
    }

    /// Name of the array.
    #[getter]
    fn name(&self) -> &str {
        self.array.name()
    }

    /// Number of the array in its container.
    #[getter]
    fn index(&self) -> usize {
        self.index
    }

    /// The field: name, type name, whether it can be null, codecs.
    #[getter]
    fn field_name(&self) -> &str {
        &self.field().name
    }

    /// Every field: name, type name, nullable, codecs.
    fn fields(&self) -> Vec<(String, String, bool, Vec<String>)> {
        let one = |f: &Field| (f.name.clone(), f.type_name().to_string(), f.nullable, f.codecs.clone());
        self.schema().fields.iter().map(one).collect()
    }

    /// What cells consist of: name, NumPy's dtype and whether they can be null, of each dimension of a sparse array and of each
    /// field. Cells that differ in length are objects.
    fn columns<'py>(&self, py: Python<'py>) -> PyResult<Vec<(String, Bound<'py, PyAny>, bool)>> {
        let schema = self.schema();
        let dims = schema.dims.iter().filter(|_| schema.sparse).map(crate::rows::coordinates);
        let one = |f: Field| Ok((f.name.clone(), crate::dtype::of_field(py, &f)?, f.nullable));
        dims.chain(schema.fields.iter().cloned()).map(one).collect()
    }

    /// Positions along each axis of the window.
    #[getter]
    fn shape<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        PyTuple::new(py, index::shape(&self.window))
    }

    /// Whether positions can be counted.
    #[getter]
    fn countable(&self) -> bool {
        self.schema().shape().is_some()
    }

    /// Whether cells are listed one by one.
    #[getter]
    fn sparse(&self) -> bool {
        self.schema().sparse
    }

    /// NumPy's dtype of what is read.
    #[getter]
    fn dtype(&self, py: Python<'_>) -> Py<PyAny> {
        self.dtype.clone_ref(py)
    }

    /// The dtype as `tet info` names it.
    #[getter]
    fn type_name(&self) -> String {
        self.field().type_name().to_string()
    }

    /// Whether cells can be null.
    #[getter]
    fn nullable(&self) -> bool {
        self.field().nullable
    }

    /// Codecs, in the order they encode.
    #[getter]
    fn codecs(&self) -> Vec<String> {
        self.field().codecs.clone()
    }

    /// What cells that were never written hold, or the value declared to mean "missing".
    #[getter]
    fn fill<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let field = self.field();
        let Some(fill) = &field.fill else { return Ok(None) };
        if self.cells == Cells::Plain && field.cell_size() == Some(fill.bytes().len()) {
            let cell = crate::numbers::owned(py, fill.bytes().to_vec(), &[], self.dtype.bind(py))?;
            return cell.get_item(PyTuple::empty(py)).map(Some);
        }
        value::scalar(py, fill).map(Some)
    }

    /// Names of the array's axes that are axes of the window; empty where the format gave none.
    #[getter]
    fn dims(&self) -> Vec<String> {
        self.open_axes().into_iter().map(|i| self.schema().dims[i].name.clone()).collect()
    }

    /// Chunk extents along the axes of the window.
    #[getter]
    fn chunks<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyTuple>>> {
        let Some(chunk) = &self.schema().chunk_shape else { return Ok(None) };
        Some(PyTuple::new(py, self.open_axes().into_iter().map(|i| chunk[i]))).transpose()
    }

    /// Attributes of the array.
    fn attributes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        value::attributes(py, &self.schema().attributes)
    }

    /// Labels of the whole axis of the array that an axis of the window lies on.
    fn labels<'py>(&self, py: Python<'py>, axis: usize) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.axis(axis)?.1.labels.as_ref().map(|labels| value::labels(py, labels)).transpose()
    }

    /// First and last coordinate of the whole axis, for axes that have a domain of their own.
    fn domain<'py>(
        &self,
        py: Python<'py>,
        axis: usize,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let Some((first, last)) = &self.axis(axis)?.1.domain else { return Ok(None) };
        Ok(Some((value::scalar(py, first)?, value::scalar(py, last)?)))
    }

    /// Positions of the window, half-open, between two coordinates, both included.
    #[pyo3(signature = (axis, low=None, high=None))]
    fn between(
        &self,
        py: Python<'_>,
        axis: usize,
        low: Option<&str>,
        high: Option<&str>,
    ) -> PyResult<(u64, u64)> {
        let (at, _) = self.axis(axis)?;
        Ok(self.within(at, self.array.between(at, low, high).or_raise(py)?))
    }

    /// Positions of the window, half-open, at a coordinate.
    fn at(&self, py: Python<'_>, axis: usize, value: &str) -> PyResult<(u64, u64)> {
        let (at, _) = self.axis(axis)?;
        Ok(self.within(at, self.array.at(at, value).or_raise(py)?))
    }

    /// Coordinates, bytes once decoded, bytes as stored, codec and offset of each chunk that holds a cell of the window.
    #[allow(clippy::type_complexity)]
    fn chunk_table(&self, py: Python<'_>) -> PyResult<Vec<(Vec<u64>, u64, u64, String, u64)>> {
        let array = self.array().or_raise(py)?;
        let selection = index::selection(&self.window, &self.shape).or_raise(py)?;
        let chunks = py.detach(|| array.chunks(&selection)).or_raise(py)?;
        let row = |c: tesseral::ChunkInfo| (c.coords.to_vec(), c.raw_len, c.stored_len, c.codec, c.offset);
        Ok(chunks.into_iter().map(row).collect())
    }

    /// Rows of coordinates and fields: columns by name.
    fn rows<'py>(&self, py: Python<'py>, asked: crate::rows::Asked) -> PyResult<Bound<'py, PyDict>> {
        crate::rows::read(py, self, &asked)
    }

    /// The same, batch by batch.
    fn row_batches(&self, py: Python<'_>, asked: crate::rows::Asked) -> PyResult<crate::rows::Rows> {
        crate::rows::Rows::open(py, self, &asked)
    }

    /// Name, labels and whether their order counts, of each field that is enumerated.
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

    /// Names of all dimensions of the array, whatever the window leaves of them.
    #[getter]
    fn all_dims(&self) -> Vec<String> {
        self.schema().dims.iter().map(|dim| dim.name.clone()).collect()
    }

    /// Sums, means and the like, along axes of the window or, without any, over all of it.
    #[pyo3(signature = (what, axes=None, ddof=0.0, skipna=true))]
    fn reduce<'py>(
        &self,
        py: Python<'py>,
        what: &str,
        axes: Option<Vec<usize>>,
        ddof: f64,
        skipna: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        crate::reduce::reduce(py, self, what, axes, crate::reduce::How { ddof, skipna })
    }

    /// Sums, means and the like over all of the window, to be merged with those of others.
    fn partial(&self, py: Python<'_>, what: &str) -> PyResult<crate::reduce::Partial> {
        crate::reduce::partial(py, self, what)
    }
}
