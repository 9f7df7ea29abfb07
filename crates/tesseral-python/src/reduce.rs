//! Reductions with NumPy's results, but without loss of precision.
//!
//! Null cells and missing values are excluded; NaN is excluded unless `skipna=False`. Integers stay integers: results beyond 64
//! bits are Python integers.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tesseral::{CellLen, DType, Reduced, Scalar, StatSet, Summary};
use tesseral_core::Sum;
use tesseral_core::dtype::Class;
use tesseral_engine::kernel::axis::AxisFold;

use crate::error::OrRaise;
use crate::index;
use crate::read::{refuse, run};
use crate::view::View;
use crate::{dtype, numpy_array};

/// Options of a reduction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReduceOptions {
    /// Delta degrees of freedom of a variance.
    pub(crate) ddof: f64,
    /// Whether NaN cells are excluded.
    pub(crate) skipna: bool,
}

/// Kind of a reduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Statistic {
    Count,
    Sum,
    Mean,
    Min,
    Max,
    Std,
    Var,
}

impl Statistic {
    fn parse(name: &str) -> PyResult<Self> {
        Ok(match name {
            "count" => Self::Count,
            "sum" => Self::Sum,
            "mean" => Self::Mean,
            "min" => Self::Min,
            "max" => Self::Max,
            "std" => Self::Std,
            "var" => Self::Var,
            _ => return Err(PyValueError::new_err(format!("unknown reduction {name:?}"))),
        })
    }

    fn wanted(self) -> StatSet {
        match self {
            Self::Count => StatSet::COUNTS,
            Self::Sum | Self::Mean => StatSet::SUM,
            Self::Min | Self::Max => StatSet::RANGE,
            Self::Std | Self::Var => StatSet::SPREAD,
        }
    }
}

/// One result.
#[derive(Clone, Debug, Default)]
enum Answer {
    /// There is no valid cell.
    #[default]
    None,
    Int(i128),
    Float(f64),
    Value(Scalar),
}

/// Finalizes a state, of all cells or of one position.
struct ReduceState {
    valid: u64,
    nans: u64,
    sum: Option<Sum>,
    mean: Option<f64>,
    variance: Option<f64>,
    min: Option<Scalar>,
    max: Option<Scalar>,
}

impl ReduceState {
    fn of_all(s: &Summary) -> Self {
        Self {
            valid: s.valid(),
            nans: s.nans(),
            sum: s.sum(),
            mean: s.mean(),
            variance: s.variance(),
            min: s.min(),
            max: s.max(),
        }
    }

    fn of_one(f: &AxisFold, i: usize) -> Self {
        Self {
            valid: f.valid(i),
            nans: f.nans(i),
            sum: f.sum(i),
            mean: f.mean(i),
            variance: f.variance(i),
            min: f.min(i),
            max: f.max(i),
        }
    }

    fn answer(self, what: Statistic, how: ReduceOptions) -> Answer {
        if what == Statistic::Count {
            return Answer::Int(i128::from(self.valid));
        }
        if self.nans > 0 && !how.skipna {
            return Answer::Float(f64::NAN);
        }
        let float = |v: Option<f64>| v.map_or(Answer::None, Answer::Float);
        match what {
            Statistic::Count => Answer::Int(i128::from(self.valid)),
            Statistic::Sum => match self.sum {
                Some(Sum::Int(sum)) => Answer::Int(sum),
                Some(Sum::Float(sum)) => Answer::Float(sum),
                None => Answer::None,
            },
            Statistic::Mean => float(self.mean),
            Statistic::Min => self.min.map_or(Answer::None, Answer::Value),
            Statistic::Max => self.max.map_or(Answer::None, Answer::Value),
            Statistic::Std | Statistic::Var => {
                // Counts of cells are far below 2^53.
                let cells = self.valid as f64;
                let degrees = cells - how.ddof;
                let variance = self.variance.filter(|_| degrees > 0.0).map(|v| v * cells / degrees);
                float(variance.map(|v| if what == Statistic::Std { v.sqrt() } else { v }))
            }
        }
    }
}

/// Rejects reductions that the dtype does not support.
fn check(view: &View, what: Statistic, name: &str) -> PyResult<()> {
    let field = view.field();
    let sensible = match field.dtype.class() {
        Class::Time => {
            let point = matches!(field.dtype, DType::DateTime(_));
            matches!(what, Statistic::Count | Statistic::Min | Statistic::Max)
                || (what == Statistic::Sum && !point)
        }
        Class::Complex | Class::Bits | Class::Text => false,
        _ => true,
    };
    if sensible && field.cell == CellLen::One { Ok(()) } else { Err(refuse(view, name)) }
}

/// Size of the cells of a reduction in bytes.
fn work(view: &View) -> u64 {
    let size = view.field().cell_size().unwrap_or(1) as u64;
    view.window.iter().fold(size, |n, axis| n.saturating_mul(axis.count))
}

/// Reduces a view along its axes, or completely.
pub(crate) fn reduce<'py>(
    py: Python<'py>,
    view: &View,
    name: &str,
    axes: Option<Vec<usize>>,
    how: ReduceOptions,
) -> PyResult<Bound<'py, PyAny>> {
    let what = Statistic::parse(name)?;
    check(view, what, name)?;
    let selection = index::selection(&view.window, &view.shape).or_raise(py)?;
    let array = view.array().or_raise(py)?;
    let open = view.open_axes();
    let element = view.field().dtype;
    let axes = match axes {
        Some(axes) if (0..open.len()).any(|i| !axes.contains(&i)) => axes,
        _ => {
            let summary = run(py, &array, 0, work(view), |a| a.summary(&selection, what.wanted()))?;
            let answer = ReduceState::of_all(&summary).answer(what, how);
            return scalar_result(py, answer, what, element);
        }
    };
    // Axes selected by an integer have one position: reducing them changes nothing.
    let mut folded: Vec<usize> = (0..view.window.len()).filter(|&i| view.window[i].dropped).collect();
    folded.extend(axes.iter().filter_map(|&i| open.get(i)));
    let reduced = run(py, &array, 0, work(view), |a| a.reduce(&selection, &folded, what.wanted()))?;
    let result = many(py, &reduced, what, how, element)?;
    turned(py, view, &open, &axes, result)
}

/// Reverses kept axes that run backward in the view.
fn turned<'py>(
    py: Python<'py>,
    view: &View,
    open: &[usize],
    axes: &[usize],
    result: Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let kept: Vec<bool> = (0..open.len())
        .filter(|i| !axes.contains(i))
        .map(|i| view.window[open[i]].step < 0 && view.window[open[i]].count > 1)
        .collect();
    if !kept.contains(&true) {
        return Ok(result);
    }
    let slice = py.get_type::<pyo3::types::PySlice>();
    let items = kept.into_iter().map(|backwards| {
        let step = if backwards { -1 } else { 1 };
        slice.call1((py.None(), py.None(), step))
    });
    result.get_item(PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?)
}

/// Converts one result to a NumPy scalar.
fn scalar_result<'py>(
    py: Python<'py>,
    answer: Answer,
    what: Statistic,
    element: DType,
) -> PyResult<Bound<'py, PyAny>> {
    let array = shaped(py, vec![answer], &[1], what, element)?;
    array.get_item(0)
}

/// Computes one result for each kept position.
fn many<'py>(
    py: Python<'py>,
    reduced: &Reduced,
    what: Statistic,
    how: ReduceOptions,
    element: DType,
) -> PyResult<Bound<'py, PyAny>> {
    let answers = py.detach(|| reduced.collect(|fold, i| ReduceState::of_one(fold, i).answer(what, how)));
    shaped(py, answers, &reduced.shape, what, element)
}

/// Converts results to an array: of the cells' dtype for minimum and maximum, else of integers or floats.
fn shaped<'py>(
    py: Python<'py>,
    answers: Vec<Answer>,
    shape: &[u64],
    what: Statistic,
    element: DType,
) -> PyResult<Bound<'py, PyAny>> {
    match what {
        Statistic::Min | Statistic::Max => extremes(py, &answers, shape, element),
        Statistic::Count => integers(py, &answers, shape, DType::Int64),
        Statistic::Sum if answers.iter().any(|a| matches!(a, Answer::Int(_))) || is_integer(element) => {
            integers(py, &answers, shape, element)
        }
        _ => floats(py, &answers, shape),
    }
}

fn is_integer(element: DType) -> bool {
    element.class() != Class::Float
}

fn floats<'py>(py: Python<'py>, answers: &[Answer], shape: &[u64]) -> PyResult<Bound<'py, PyAny>> {
    let bytes = answers.iter().flat_map(|a| match a {
        Answer::Float(v) => v.to_ne_bytes(),
        _ => f64::NAN.to_ne_bytes(),
    });
    numpy_array::owned(py, bytes.collect(), shape, &dtype::named(py, "float64")?)
}

fn integers<'py>(
    py: Python<'py>,
    answers: &[Answer],
    shape: &[u64],
    element: DType,
) -> PyResult<Bound<'py, PyAny>> {
    let values: Vec<i128> = answers.iter().map(|a| if let Answer::Int(v) = a { *v } else { 0 }).collect();
    let name = match element {
        DType::TimeDelta(_) => element.to_string(),
        _ if element.class() == Class::UInt => "uint64".to_owned(),
        _ => "int64".to_owned(),
    };
    let unsigned = element.class() == Class::UInt;
    let fits = |v: &i128| if unsigned { u64::try_from(*v).is_ok() } else { i64::try_from(*v).is_ok() };
    if values.iter().all(fits) {
        // The low half of a number that fits is that number.
        let bytes = values.iter().flat_map(|v| (*v as u64).to_ne_bytes()).collect();
        return numpy_array::owned(py, bytes, shape, &dtype::named(py, name)?);
    }
    let objects = numpy_array::empty(py, &[values.len() as u64], &dtype::named(py, "object")?)?;
    objects.set_item(pyo3::types::PyEllipsis::get(py), PyList::new(py, values)?)?;
    objects.call_method1("reshape", (PyTuple::new(py, shape)?,))
}

/// Minimum and maximum. Without valid cells, floats are NaN and other dtypes are masked.
fn extremes<'py>(
    py: Python<'py>,
    answers: &[Answer],
    shape: &[u64],
    element: DType,
) -> PyResult<Bound<'py, PyAny>> {
    let size = element.size().unwrap_or(1);
    let nan = Scalar::parse(element, "NaN").ok().map(|nan| nan.bytes().to_vec());
    let absent = nan.unwrap_or_else(|| vec![0; size]);
    let mut bytes = Vec::with_capacity(answers.len() * size);
    for answer in answers {
        match answer {
            Answer::Value(value) => bytes.extend_from_slice(value.bytes()),
            _ => bytes.extend_from_slice(&absent),
        }
    }
    if element == DType::BFloat16 {
        // The upper half of a float32.
        let wide = bytes.chunks_exact(2).flat_map(|half| [0, 0, half[0], half[1]]).collect();
        return numpy_array::owned(py, wide, shape, &dtype::named(py, "float32")?);
    }
    let values = numpy_array::owned(py, bytes, shape, &dtype::named(py, element.to_string())?)?;
    if element.class() == Class::Float || answers.iter().all(|a| !matches!(a, Answer::None)) {
        return Ok(values);
    }
    let hidden = answers.iter().map(|a| u8::from(matches!(a, Answer::None))).collect();
    numpy_array::masked(&values, &numpy_array::owned(py, hidden, shape, &dtype::named(py, "bool")?)?)
}

/// State of a reduction, which merges with others: equal parts merged in equal order give equal bits.
#[pyclass(frozen, module = "tesseral._native")]
pub struct Partial {
    summary: Summary,
}

#[pymethods]
impl Partial {
    #[new]
    fn new(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        Ok(Self { summary: Summary::from_bytes(bytes).or_raise(py)? })
    }

    /// Serializes the state.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.summary.to_bytes())
    }

    fn __reduce__<'py>(
        slf: &Bound<'py, Self>,
        py: Python<'py>,
    ) -> (Bound<'py, pyo3::types::PyType>, (Bound<'py, PyBytes>,)) {
        (slf.get_type(), (slf.get().to_bytes(py),))
    }

    /// Finalizes the state.
    #[pyo3(signature = (what, ddof=0.0, skipna=true))]
    fn result<'py>(
        &self,
        py: Python<'py>,
        what: &str,
        ddof: f64,
        skipna: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let what = Statistic::parse(what)?;
        if !self.summary.wanted().has(what.wanted()) {
            return Err(PyValueError::new_err("the state does not contain this statistic"));
        }
        scalar_result(
            py,
            ReduceState::of_all(&self.summary).answer(what, ReduceOptions { ddof, skipna }),
            what,
            self.summary.dtype(),
        )
    }
}

/// Computes the state of the cells of a view.
pub(crate) fn partial(py: Python<'_>, view: &View, name: &str) -> PyResult<Partial> {
    let what = Statistic::parse(name)?;
    check(view, what, name)?;
    let selection = index::selection(&view.window, &view.shape).or_raise(py)?;
    let array = view.array().or_raise(py)?;
    let summary = run(py, &array, 0, work(view), |a| a.summary(&selection, what.wanted()))?;
    Ok(Partial { summary })
}

/// Merges states in order.
#[pyfunction]
pub fn merge(py: Python<'_>, parts: Vec<PyRef<'_, Partial>>) -> PyResult<Partial> {
    let mut parts = parts.iter();
    let Some(first) = parts.next() else { return Err(PyValueError::new_err("nothing to merge")) };
    let mut summary = first.summary.clone();
    for part in parts {
        summary.merge(&part.summary).or_raise(py)?;
    }
    Ok(Partial { summary })
}
