//! NumPy's basic indices on windows over arrays.

use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyEllipsis, PyInt, PySlice, PyTuple};
use tesseral::{Result, Selection, Slice};
use tesseral_core::Coords;

/// The window along one axis of an array: positions `start, start + step, …`, `count` of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AxisIndex {
    pub(crate) start: u64,
    pub(crate) step: i64,
    pub(crate) count: u64,
    /// Selected by an integer: not an axis of the result.
    pub(crate) dropped: bool,
}

impl AxisIndex {
    /// Selects every position.
    pub(crate) fn whole(count: u64) -> Self {
        Self { start: 0, step: 1, count, dropped: false }
    }

    /// The positions in ascending order.
    pub(crate) fn slice(&self) -> Slice {
        if self.count == 0 {
            return Slice::new(self.start, self.start);
        }
        let reach = (self.count - 1) * self.step.unsigned_abs();
        let first = if self.step < 0 { self.start - reach } else { self.start };
        Slice { start: first, end: first + reach + 1, step: self.step.unsigned_abs() }
    }

    /// Position in the array of a position in the window.
    fn position(&self, at: u64) -> u64 {
        if self.step < 0 {
            self.start - at * self.step.unsigned_abs()
        } else {
            self.start + at * self.step.unsigned_abs()
        }
    }

    /// Selects one position of the window.
    fn select_position(&self, at: i64, number: usize) -> PyResult<Self> {
        let from_start = match u64::try_from(at) {
            Ok(at) => Some(at),
            Err(_) => self.count.checked_sub(at.unsigned_abs()),
        };
        let at = from_start.filter(|p| *p < self.count).ok_or_else(|| {
            PyIndexError::new_err(format!(
                "index {at} is out of bounds for axis {number} with size {}",
                self.count
            ))
        })?;
        Ok(Self { start: self.position(at), step: 1, count: 1, dropped: true })
    }

    /// Selects a slice of the window.
    fn select_slice(&self, slice: &Bound<'_, PySlice>) -> PyResult<Self> {
        let length = isize::try_from(self.count).unwrap_or(isize::MAX);
        let wanted = slice.indices(length)?;
        // `slice.indices` returns positions within the length.
        let count = wanted.slicelength as u64;
        if count == 0 {
            return Ok(Self { count: 0, ..*self });
        }
        let start = self.position(wanted.start.unsigned_abs() as u64);
        let step = if count == 1 { 1 } else { self.step.saturating_mul(wanted.step as i64) };
        Ok(Self { start, step, count, dropped: false })
    }
}

/// A window over an array: one [`AxisIndex`] for each of the array's.
pub(crate) type Window = Vec<AxisIndex>;

/// Selection of the cells of a window, in ascending order along every axis.
pub(crate) fn selection(window: &[AxisIndex], shape: &[u64]) -> Result<Selection> {
    Selection::new(window.iter().map(AxisIndex::slice), shape)
}

/// Shape of the cells of a window, without axes selected by an integer.
pub(crate) fn shape(window: &[AxisIndex]) -> Coords {
    window.iter().filter(|a| !a.dropped).map(|a| a.count).collect()
}

/// Result of applying an index to a window.
pub(crate) struct IndexedWindow {
    pub(crate) window: Window,
    /// Axes of the result: `false` for an axis of length 1 added by the index.
    pub(crate) layout: Vec<bool>,
    /// Only integers: the result is a scalar.
    pub(crate) scalar: bool,
}

/// Applies an index. `None` if it is not a basic index, because it contains lists or arrays.
pub(crate) fn apply(window: &[AxisIndex], key: &Bound<'_, PyAny>) -> PyResult<Option<IndexedWindow>> {
    let one;
    let items = match key.cast::<PyTuple>() {
        Ok(tuple) => tuple,
        Err(_) => {
            one = PyTuple::new(key.py(), [key])?;
            &one
        }
    };
    let mut out = window.to_vec();
    let open: Vec<usize> = (0..window.len()).filter(|&i| !window[i].dropped).collect();
    let consuming = items.iter().filter(|i| !i.is_none() && !i.is_instance_of::<PyEllipsis>()).count();
    if consuming > open.len() {
        return Err(PyIndexError::new_err(format!(
            "too many indices for array: array is {}-dimensional, but {consuming} were indexed",
            open.len()
        )));
    }
    let mut layout = Vec::with_capacity(open.len());
    let mut next = 0;
    let (mut ellipses, mut arrays) = (0, false);
    for item in items.iter() {
        if item.is_none() {
            layout.push(false);
        } else if item.is_instance_of::<PyEllipsis>() {
            ellipses += 1;
            let skipped = open.len() - consuming;
            layout.extend(std::iter::repeat_n(true, skipped));
            next += skipped;
        } else if let Ok(slice) = item.cast::<PySlice>() {
            out[open[next]] = window[open[next]].select_slice(slice)?;
            layout.push(true);
            next += 1;
        } else if let Some(at) = whole_number(&item)? {
            out[open[next]] = window[open[next]].select_position(at, next)?;
            next += 1;
        } else {
            arrays = true;
        }
    }
    if ellipses > 1 {
        return Err(PyIndexError::new_err("an index can only have a single ellipsis ('...')"));
    }
    if arrays {
        return Ok(None);
    }
    layout.extend(std::iter::repeat_n(true, open.len() - next));
    let scalar = layout.is_empty() && ellipses == 0;
    Ok(Some(IndexedWindow { window: out, layout, scalar }))
}

/// Returns the integer of an index. Booleans and arrays are not accepted.
fn whole_number(item: &Bound<'_, PyAny>) -> PyResult<Option<i64>> {
    if item.is_instance_of::<PyInt>() {
        let outside = |_| PyIndexError::new_err(format!("index {item} is out of bounds"));
        return if item.is_instance_of::<PyBool>() {
            Ok(None)
        } else {
            item.extract().map(Some).map_err(outside)
        };
    }
    // NumPy integers and zero-dimensional arrays.
    if !item.hasattr(pyo3::intern!(item.py(), "__index__"))?
        || item.hasattr(pyo3::intern!(item.py(), "__len__"))?
    {
        let shape = item.getattr_opt(pyo3::intern!(item.py(), "shape"))?;
        let scalar = shape.is_some_and(|s| s.len().is_ok_and(|n| n == 0));
        if !scalar {
            return Ok(None);
        }
    }
    Ok(item.extract().ok())
}
