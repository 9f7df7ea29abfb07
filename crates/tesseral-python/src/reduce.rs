//! Reductions: questions to the engine's reducer, and its answers as NumPy arrays.
//!
//! Null cells and missing values are excluded; NaN is excluded unless `skipna=False`. Integers stay integers: results beyond 64
//! bits are Python integers. Nothing is computed here.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use tesseral::fold::{
    Answer, Answers, BinRange, Finish, FloatAnswers, FloatColumn, Histogram, Job, Number, OfTimes, Results,
    Statistic,
};
use tesseral::{Array, Asked, CellLen, DType, Options, Rolling, Scalar, TimeGroups, TimeUnit};
use tesseral_core::calendar::{TimePart, TimeScale};
use tesseral_core::dtype::Class;

use crate::error::OrRaise;
use crate::index;
use crate::read::refuse;
use crate::view::PyView;
use crate::{dtype, numpy_array, runtime};

/// A question about the cells of a view.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ReduceInput {
    /// Names of statistics; quantiles with their number.
    statistics: Vec<(String, Option<f64>)>,
    /// Axes of the window to reduce; all without a list.
    axes: Option<Vec<usize>>,
    ddof: f64,
    skipna: bool,
    condition: Option<String>,
    /// An axis and a part of its times.
    by: Option<(usize, String)>,
    /// An axis, the size of its windows, whether they are centered, and the values that they need.
    rolling: Option<(usize, u64, bool, Option<u64>)>,
    weights: Option<String>,
    /// The second variable of covariances and correlations.
    other: Option<String>,
    /// Bins of a histogram and their range.
    bins: Option<(u32, Option<(f64, f64)>)>,
    /// Relative error of quantiles.
    sketch: Option<f64>,
}

impl ReduceInput {
    fn statistics(&self) -> PyResult<Vec<Statistic>> {
        let number = |value: f64| Number::Float(value);
        let statistic = |(name, parameter): &(String, Option<f64>)| match (name.as_str(), parameter) {
            ("quantile", Some(q)) if (0.0..=1.0).contains(q) => Ok(Statistic::Quantile(*q)),
            ("quantile", _) => Err(PyValueError::new_err("quantiles must be in the range [0, 1]")),
            ("histogram", _) => {
                let (bins, range) = self.bins.unwrap_or((10, None));
                let ranges: Vec<BinRange> =
                    range.map(|(low, high)| (number(low), number(high))).into_iter().collect();
                Ok(Statistic::Histogram(Histogram::new(bins, ranges, false)))
            }
            (name, _) => Statistic::parse(name)
                .ok_or_else(|| PyValueError::new_err(format!("unknown reduction {name:?}"))),
        };
        self.statistics.iter().map(statistic).collect()
    }

    /// The question, resolved against the array of a view.
    fn asked<'a>(
        &self,
        view: &'a PyView,
        array: &'a Array,
        statistics: Vec<Statistic>,
        options: &Options,
    ) -> tesseral::Result<Asked<'a>> {
        let open = view.open_axes();
        let axis = |number: usize| open.get(number).copied().unwrap_or(usize::MAX);
        let selection = index::selection(&view.window, &view.shape)?;
        let quotients = matches!(view.field().dtype, DType::DateTime(_));
        let finish = Finish { ddof: self.ddof, skip_nan: self.skipna, quotients };
        let mut asked =
            array.reduction(statistics)?.select(selection).finish(finish).options(options.clone());
        asked = asked.sketch(self.sketch);
        if let Some(axes) = &self.axes {
            // Axes selected by an integer have one position: reducing them changes nothing.
            let dropped = (0..view.window.len()).filter(|&i| view.window[i].dropped);
            asked = asked.over_axes(dropped.chain(axes.iter().map(|&number| axis(number))).collect())?;
        }
        if let Some((number, part)) = &self.by {
            asked = asked.by_axis(axis(*number), Some(part.parse::<TimePart>()?));
        }
        if let Some((number, size, center, least)) = self.rolling {
            asked = asked.rolling(axis(number), Rolling { size, center, least });
        }
        if let Some(weights) = &self.weights {
            asked = asked.weights(view.container(), weights);
        }
        if let Some(other) = &self.other {
            asked = asked.with(view.container(), other);
        }
        if let Some(condition) = &self.condition {
            asked = asked.filter(condition)?;
        }
        asked.resolve()
    }

    /// The request for the cells alone, which jobs need.
    fn cells<'a>(
        &self,
        view: &'a PyView,
        array: &'a Array,
        options: &Options,
    ) -> tesseral::Result<Asked<'a>> {
        let selection = index::selection(&view.window, &view.shape)?;
        let mut asked = array.reduction(Vec::new())?.select(selection).options(options.clone());
        if let Some(other) = &self.other {
            asked = asked.with(view.container(), other);
        }
        match &self.condition {
            Some(condition) => asked.filter(condition)?.resolve(),
            None => asked.resolve(),
        }
    }

    /// Rejects statistics that the dtype of the cells does not support, and positions along axes that run backward.
    fn check(&self, view: &PyView, statistics: &[Statistic]) -> PyResult<()> {
        let field = view.field();
        for (statistic, (name, _)) in statistics.iter().zip(&self.statistics) {
            let cells = matches!(
                statistic,
                Statistic::Count
                    | Statistic::Cells
                    | Statistic::NullCount(_)
                    | Statistic::Min
                    | Statistic::Max
                    | Statistic::ArgMin
                    | Statistic::ArgMax
                    | Statistic::First
                    | Statistic::Last
                    | Statistic::Mode
            );
            let sensible = match field.dtype.class() {
                Class::Time => {
                    let of_dates = matches!(statistic.of_times(), OfTimes::Time | OfTimes::Duration);
                    let edges = matches!(statistic, Statistic::Histogram(_));
                    match field.dtype {
                        DType::DateTime(_) => cells || (of_dates && !edges),
                        _ => cells || *statistic == Statistic::Sum,
                    }
                }
                Class::Complex | Class::Bits | Class::Text => false,
                _ => true,
            };
            if !sensible || field.cell != CellLen::One {
                return Err(refuse(view, name));
            }
        }
        let open = view.open_axes();
        let backward = |number: usize| {
            open.get(number).is_some_and(|axis| view.window[*axis].step < 0 && view.window[*axis].count > 1)
        };
        let reduced =
            |number: usize| self.axes.as_ref().is_none_or(|axes| axes.contains(&number)) && backward(number);
        let placed = statistics.iter().any(|statistic| {
            matches!(statistic, Statistic::ArgMin | Statistic::ArgMax | Statistic::First | Statistic::Last)
        });
        let windows = self.rolling.is_some_and(|(number, ..)| backward(number));
        if windows || (placed && (0..open.len()).any(reduced)) {
            return Err(PyValueError::new_err(
                "positions along an axis that runs backward are not supported",
            ));
        }
        Ok(())
    }

    /// Whether sums have weights.
    fn weighted(&self) -> bool {
        self.weights.is_some()
    }
}

/// Size of the cells of a reduction in bytes.
fn work(view: &PyView) -> u64 {
    let size = view.field().cell_size().unwrap_or(1) as u64;
    view.window.iter().fold(size, |n, axis| n.saturating_mul(axis.count))
}

/// The answers to a question: one array per statistic, the edges of histograms, and the groups.
type PyAnswers<'py> = (Vec<Bound<'py, PyAny>>, Vec<Vec<f64>>, Option<Vec<Bound<'py, PyAny>>>);

/// Answers a question about the cells of a view.
pub(crate) fn reduce<'py>(py: Python<'py>, view: &PyView, input: &ReduceInput) -> PyResult<PyAnswers<'py>> {
    answered(py, view, input, |asked| match asked.ask_floats()? {
        Some(floats) => Ok(FoundAnswers::Floats(floats)),
        None => asked.ask().map(FoundAnswers::Answers),
    })
}

/// The answers from the results of all jobs, which have `units` units.
pub(crate) fn merged<'py>(
    py: Python<'py>,
    view: &PyView,
    input: &ReduceInput,
    results: &[u8],
    units: u64,
) -> PyResult<PyAnswers<'py>> {
    answered(py, view, input, |asked| {
        asked.merge(Results::from_bytes(results)?, units).map(FoundAnswers::Answers)
    })
}

/// What was found: a value for each answer, or arrays of floats.
enum FoundAnswers {
    Answers(Answers),
    Floats(FloatAnswers),
}

fn answered<'py>(
    py: Python<'py>,
    view: &PyView,
    input: &ReduceInput,
    answer: impl FnOnce(&Asked<'_>) -> tesseral::Result<FoundAnswers> + Send,
) -> PyResult<PyAnswers<'py>> {
    let statistics = input.statistics()?;
    input.check(view, &statistics)?;
    let array = view.array().or_raise(py)?;
    let (found, axes) = runtime::run_on(py, &array, work(view), |options| {
        let asked = input.asked(view, &array, statistics.clone(), options)?;
        Ok((answer(&asked)?, asked.axes().to_vec()))
    })?;
    let backward: Vec<bool> = axes
        .iter()
        .map(|axis| {
            axis.groups.is_none() && view.window[axis.dim].step < 0 && view.window[axis.dim].count > 1
        })
        .collect();
    let element = view.field().dtype;
    let groups = axes.iter().find_map(|axis| axis.groups.as_ref());
    let groups = groups.map(|groups| labels(py, groups)).transpose()?;
    let mut columns = Vec::with_capacity(statistics.len());
    let answers = match found {
        FoundAnswers::Answers(answers) => answers,
        FoundAnswers::Floats(FloatAnswers { shape, columns: floats }) => {
            for column in floats {
                let array = match column {
                    FloatColumn::Numbers(numbers) => numpy_array::numbers(py, numbers, &shape)?,
                    FloatColumn::Cells(cells) => float_cells(py, cells, &shape, element)?,
                };
                columns.push(turned(py, array, &backward)?);
            }
            return Ok((columns, Vec::new(), groups));
        }
    };
    for (statistic, column) in statistics.iter().zip(&answers.columns) {
        let array = shaped(py, column, &answers.shape, statistic, input.weighted(), element)?;
        columns.push(turned(py, array, &backward)?);
    }
    Ok((columns, answers.edges, groups))
}

/// The groups of a question, without its answers.
pub(crate) fn groups<'py>(
    py: Python<'py>,
    view: &PyView,
    input: &ReduceInput,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let statistics = input.statistics()?;
    let array = view.array().or_raise(py)?;
    let axes = runtime::run_on(py, &array, 0, |options| {
        Ok(input.asked(view, &array, statistics, options)?.axes().to_vec())
    })?;
    let groups = axes.iter().find_map(|axis| axis.groups.as_ref());
    groups.map_or_else(|| Ok(Vec::new()), |groups| labels(py, groups))
}

/// The numbers or names of groups.
fn labels<'py>(py: Python<'py>, groups: &TimeGroups) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let label = |number: &i64| match groups.part.is_text() {
        true => Ok(groups.part.text(*number).into_pyobject(py)?.into_any()),
        false => Ok(number.into_pyobject(py)?.into_any()),
    };
    groups.numbers.iter().map(label).collect()
}

/// Divides a question into jobs of about `nbytes` of cells each: the bytes of each, and the number of its units.
pub(crate) fn split<'py>(
    py: Python<'py>,
    view: &PyView,
    input: &ReduceInput,
    nbytes: u64,
) -> PyResult<Vec<(Bound<'py, PyBytes>, u64)>> {
    let statistics = input.statistics()?;
    input.check(view, &statistics)?;
    let array = view.array().or_raise(py)?;
    let jobs = runtime::run_on(py, &array, work(view), |options| {
        let jobs = input.asked(view, &array, statistics, options)?.split(nbytes)?;
        jobs.iter()
            .map(|job| Ok((job.to_bytes()?, job.units.len() as u64)))
            .collect::<tesseral::Result<Vec<_>>>()
    })?;
    Ok(jobs.into_iter().map(|(bytes, units)| (PyBytes::new(py, &bytes), units)).collect())
}

/// Runs a job: its results as bytes.
pub(crate) fn run_job<'py>(
    py: Python<'py>,
    view: &PyView,
    input: &ReduceInput,
    job: &[u8],
) -> PyResult<Bound<'py, PyBytes>> {
    let array = view.array().or_raise(py)?;
    let results = runtime::run_on(py, &array, work(view), |options| {
        input.cells(view, &array, options)?.run(&Job::from_bytes(job)?)?.to_bytes()
    })?;
    Ok(PyBytes::new(py, &results))
}

/// Joins the results of jobs that follow one another.
#[pyfunction]
pub fn join_results<'py>(py: Python<'py>, parts: Vec<Vec<u8>>) -> PyResult<Bound<'py, PyBytes>> {
    let join = || {
        let mut parts = parts.iter().map(|bytes| Results::from_bytes(bytes));
        let mut joined =
            parts.next().unwrap_or_else(|| Err(tesseral::Error::invalid("no results to join")))?;
        parts.try_for_each(|part| joined.join(part?))?;
        joined.to_bytes()
    };
    let bytes = py.detach(join).or_raise(py)?;
    Ok(PyBytes::new(py, &bytes))
}

/// Reverses axes that run backward in the view.
fn turned<'py>(py: Python<'py>, result: Bound<'py, PyAny>, backward: &[bool]) -> PyResult<Bound<'py, PyAny>> {
    if !backward.contains(&true) {
        return Ok(result);
    }
    let slice = py.get_type::<pyo3::types::PySlice>();
    let items = backward.iter().map(|backward| {
        let step = if *backward { -1 } else { 1 };
        slice.call1((py.None(), py.None(), step))
    });
    result.get_item(PyTuple::new(py, items.collect::<PyResult<Vec<_>>>()?)?)
}

/// Converts the answers of a statistic to an array, or to a NumPy scalar: of the dtype of the cells if they are cells, else of
/// integers, Booleans or floats.
fn shaped<'py>(
    py: Python<'py>,
    answers: &[Answer],
    shape: &[u64],
    statistic: &Statistic,
    weighted: bool,
    element: DType,
) -> PyResult<Bound<'py, PyAny>> {
    let dates = if let DType::DateTime(unit) = element { Some(unit) } else { None };
    let array = match statistic {
        Statistic::Histogram(histogram) => return counts(py, answers, shape, histogram.bins),
        Statistic::Min | Statistic::Max | Statistic::First | Statistic::Last | Statistic::Mode => {
            values(py, answers, shape, element)?
        }
        Statistic::Count
        | Statistic::Cells
        | Statistic::NullCount(_)
        | Statistic::NanCount
        | Statistic::InfCount => integers(py, answers, shape, DType::Int64)?,
        Statistic::ArgMin | Statistic::ArgMax => {
            masked(py, integers(py, answers, shape, DType::Int64)?, answers, shape)?
        }
        Statistic::Any | Statistic::All | Statistic::AnyNan | Statistic::AnyInf | Statistic::AllFinite => {
            let truth = answers.iter().map(|answer| u8::from(*answer == Answer::Bool(true))).collect();
            let array = numpy_array::owned(py, truth, shape, &dtype::named(py, "bool")?)?;
            masked(py, array, answers, shape)?
        }
        Statistic::Sum | Statistic::Product | Statistic::NormL1
            if !weighted
                && element.class() != Class::Float
                && !answers.iter().any(|a| matches!(a, Answer::Float(_))) =>
        {
            integers(py, answers, shape, element)?
        }
        _ => match dates {
            Some(unit) => times(py, answers, shape, unit, statistic.of_times() == OfTimes::Duration)?,
            None => floats(py, answers, shape)?,
        },
    };
    if shape.is_empty() { array.get_item(PyTuple::empty(py)) } else { Ok(array) }
}

/// Counts of bins, along an additional last axis.
fn counts<'py>(py: Python<'py>, answers: &[Answer], shape: &[u64], bins: u32) -> PyResult<Bound<'py, PyAny>> {
    let none = vec![0_u64; bins.max(1) as usize];
    let each = answers.iter().flat_map(|answer| match answer {
        Answer::Counts(counts) => counts.as_slice(),
        _ => none.as_slice(),
    });
    let bytes = each.flat_map(|count| count.to_ne_bytes()).collect();
    let shape: Vec<u64> = shape.iter().copied().chain([none.len() as u64]).collect();
    numpy_array::owned(py, bytes, &shape, &dtype::named(py, "int64")?)
}

/// Times, or lengths of time, that are computed from dates, in their resolution; NaT where there is none.
fn times<'py>(
    py: Python<'py>,
    answers: &[Answer],
    shape: &[u64],
    unit: TimeUnit,
    lengths: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let count = |answer: &Answer| TimeScale::resolved(unit, answer.time_count()?);
    let bytes = answers
        .iter()
        .flat_map(|answer| count(answer).unwrap_or(tesseral_core::time::NOT_A_TIME).to_ne_bytes());
    let resolution = TimeScale::resolution(unit);
    let dtype = if lengths { DType::TimeDelta(resolution) } else { DType::DateTime(resolution) };
    numpy_array::owned(py, bytes.collect(), shape, &dtype::named(py, dtype.to_string())?)
}

fn floats<'py>(py: Python<'py>, answers: &[Answer], shape: &[u64]) -> PyResult<Bound<'py, PyAny>> {
    let bytes = answers.iter().flat_map(|answer| match answer {
        Answer::Float(value) => value.to_ne_bytes(),
        // The exact quantile of integers, in the dtype of all quantiles.
        Answer::Int(value) => (*value as f64).to_ne_bytes(),
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

/// Masks slots without a result.
fn masked<'py>(
    py: Python<'py>,
    array: Bound<'py, PyAny>,
    answers: &[Answer],
    shape: &[u64],
) -> PyResult<Bound<'py, PyAny>> {
    if answers.iter().all(|a| !matches!(a, Answer::None)) {
        return Ok(array);
    }
    let hidden = answers.iter().map(|a| u8::from(matches!(a, Answer::None))).collect();
    numpy_array::masked(&array, &numpy_array::owned(py, hidden, shape, &dtype::named(py, "bool")?)?)
}

/// Cells. Without valid ones, floats are NaN and other dtypes are masked.
fn values<'py>(
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
    if element.class() == Class::Float {
        return float_cells(py, bytes, shape, element);
    }
    masked(py, numpy_array::owned(py, bytes, shape, &dtype::named(py, element.to_string())?)?, answers, shape)
}

/// Cells of a float dtype.
fn float_cells<'py>(
    py: Python<'py>,
    cells: Vec<u8>,
    shape: &[u64],
    element: DType,
) -> PyResult<Bound<'py, PyAny>> {
    if element == DType::BFloat16 {
        // The upper half of a float32.
        let wide = cells.chunks_exact(2).flat_map(|half| [0, 0, half[0], half[1]]).collect();
        return numpy_array::owned(py, wide, shape, &dtype::named(py, "float32")?);
    }
    numpy_array::owned(py, cells, shape, &dtype::named(py, element.to_string())?)
}
