//! Statistics of an array, requested by the names of statistics, dimensions, groups and variables.

mod second_variable;
mod time_groups;
mod weights;

use std::borrow::Cow;

use tesseral_core::calendar::TimePart;
use tesseral_core::{Advice, Error, Result, Selection};
use tesseral_engine::Options;
use tesseral_engine::fold::{
    self, Answers, AxisRole, Finish, FloatAnswers, Fold, FoldState, Job, Paired, Question, Reducer, Results,
    Statistic,
};
use tesseral_engine::{StatSet, Summary};
use tesseral_format::{Column, Request, Target};

use crate::{Array, Container};

pub use second_variable::paired;
pub use time_groups::time_groups;
pub use weights::weights;

/// A question about the cells of an array. Created by [`Array::reduction`].
///
/// ```
/// # fn main() -> Result<(), tesseral::Error> {
/// # use tesseral::{ArraySchema, ArraySpec, Create, DType};
/// # let path = std::env::temp_dir().join(format!("tesseral-doc-reduction-{}.tet", std::process::id()));
/// # let mut session = Create::new().overwrite().begin(&path, "")?;
/// # let mut schema = ArraySchema::dense("height", DType::Int32, &[4, 6], &[2, 6]);
/// # (schema.dims[0].name, schema.dims[1].name) = ("y".to_owned(), "x".to_owned());
/// # let height = session.add(&ArraySpec::raw(schema))?;
/// # session.write(height, &(0..24).flat_map(i32::to_ne_bytes).collect::<Vec<u8>>())?;
/// # session.commit()?;
/// use tesseral::fold::{Answer, Statistic};
///
/// let array = tesseral::open(&path)?.array("height")?;
/// let asked = array.reduction(vec![Statistic::Sum, Statistic::Mean])?.over(["x"])?.filter("height > 2")?.resolve()?;
/// let answers = asked.ask()?;
/// assert_eq!(answers.shape, [4]);
/// assert_eq!(answers.columns[0][..2], [Answer::Int(12), Answer::Int(51)]);
/// assert_eq!(answers.columns[1][0], Answer::Float(4.0));
/// # std::fs::remove_file(path).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct StatisticsQuery<'a> {
    array: &'a Array,
    options: Options,
    statistics: Vec<Statistic>,
    selection: Selection,
    /// Axes to reduce; all by default.
    over: Option<Vec<usize>>,
    by: Option<GroupedAxis>,
    rolling: Option<(usize, Rolling)>,
    weights: Option<NamedVariable<'a>>,
    with: Option<NamedVariable<'a>>,
    condition: Option<String>,
    finish: Finish,
    sketch: Option<f64>,
}

/// Key of the groups along an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct GroupedAxis {
    axis: usize,
    /// A part of the times; without one, each position is a group.
    part: Option<TimePart>,
}

/// A window that moves along an axis by one position at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rolling {
    /// Positions in the window.
    pub size: u64,
    /// Whether the position of an answer is the middle of its window, instead of its last position.
    pub center: bool,
    /// Minimum number of values of a window; with fewer, the result is missing. By default all of its positions.
    pub least: Option<u64>,
}

/// A variable by name that is yet to be found.
#[derive(Clone, Debug)]
struct NamedVariable<'a> {
    container: &'a Container,
    text: String,
}

/// An axis of the answers.
#[derive(Clone, Debug, PartialEq)]
pub struct AnswerAxis {
    /// The dimension.
    pub dim: usize,
    /// The groups, if cells are grouped by a part of their time; otherwise each selected position has an answer.
    pub groups: Option<TimeGroups>,
}

/// Groups of positions by a part of their time, in ascending order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeGroups {
    /// The part.
    pub part: TimePart,
    /// Its number in each group.
    pub numbers: Vec<i64>,
}

/// A question resolved against its array: nothing is read yet but labels and weights.
#[derive(Clone, Debug)]
pub struct Asked<'a> {
    array: Cow<'a, Array>,
    options: Options,
    request: Request,
    question: Question,
    axes: Vec<AnswerAxis>,
    with: Option<Paired>,
}

impl Array {
    /// Starts a question about all cells of the selected field.
    ///
    /// # Errors
    /// `InvalidRequest` if positions are not countable.
    pub fn reduction(&self, statistics: Vec<Statistic>) -> Result<StatisticsQuery<'_>> {
        Ok(StatisticsQuery {
            array: self,
            options: self.options().clone(),
            statistics,
            selection: self.all()?,
            over: None,
            by: None,
            rolling: None,
            weights: None,
            with: None,
            condition: None,
            finish: Finish::default(),
            sketch: None,
        })
    }
}

impl<'a> StatisticsQuery<'a> {
    /// Selects cells.
    #[must_use]
    pub fn select(mut self, selection: Selection) -> Self {
        self.selection = selection;
        self
    }

    /// Reduces the named dimensions and keeps the others; all are reduced by default.
    ///
    /// # Errors
    /// `NotFound`, with the available names; `InvalidRequest` for a duplicate name.
    pub fn over<'t>(self, dims: impl IntoIterator<Item = &'t str>) -> Result<Self> {
        let axes = dims.into_iter().map(|name| self.array.schema().dim(name)).collect::<Result<_>>()?;
        self.over_axes(axes)
    }

    /// As [`over`](Self::over), by the numbers of axes.
    ///
    /// # Errors
    /// `InvalidRequest` for an unknown or duplicate axis.
    pub fn over_axes(mut self, axes: Vec<usize>) -> Result<Self> {
        let rank = self.selection.rank();
        for (i, axis) in axes.iter().enumerate() {
            if *axis >= rank || axes[..i].contains(axis) {
                let detail = format!("axis {axis} is a duplicate or out of bounds for {rank} axes");
                return Err(Error::invalid(detail).in_array(self.array.name()));
            }
        }
        self.over = Some(axes);
        Ok(self)
    }

    /// One answer for each position of a dimension, `lat`, or for each part of its times: `time.year`, `time.month`, `time.season`,
    /// `time.day`, `time.dayofyear`, `time.hour`, `time.date`.
    ///
    /// # Errors
    /// `NotFound` for an unknown dimension or part of a time.
    pub fn by(self, text: &str) -> Result<Self> {
        let schema = self.array.schema();
        let (axis, part) = match (schema.dim(text), text.rsplit_once('.')) {
            (Ok(axis), _) => (axis, None),
            (Err(_), Some((name, part))) => (schema.dim(name)?, Some(part.parse::<TimePart>()?)),
            (Err(error), None) => {
                let part = text.parse::<TimePart>().is_ok();
                let labeled = part.then(|| self.array.labeled(|_| true)).and_then(Result::ok);
                let timed = labeled.as_ref().and_then(|array| {
                    array.schema().dims.iter().find(|dim| dim.counts_time() && !dim.name.is_empty())
                });
                return Err(match timed {
                    Some(dim) => error.hint(format!("group by a part of the time: `{}.{text}`", dim.name)),
                    None => error,
                });
            }
        };
        Ok(self.by_axis(axis, part))
    }

    /// As [`by`](Self::by), by the number of the axis.
    #[must_use]
    pub fn by_axis(mut self, axis: usize, part: Option<TimePart>) -> Self {
        self.by = Some(GroupedAxis { axis, part });
        self
    }

    /// One answer for each window along an axis. Only windows are reduced, and axes that are named.
    #[must_use]
    pub fn rolling(mut self, axis: usize, rolling: Rolling) -> Self {
        self.rolling = Some((axis, rolling));
        self
    }

    /// Weights of sums, means, variances and quantiles: a variable of the container along some of the dimensions, or `cos(lat)`,
    /// the cosine of coordinates in degrees.
    #[must_use]
    pub fn weights(mut self, container: &'a Container, text: &str) -> Self {
        self.weights = Some(NamedVariable { container, text: text.to_owned() });
        self
    }

    /// The second variable of covariances and correlations: a variable of the container over the same dimensions, or another field of
    /// the array.
    #[must_use]
    pub fn with(mut self, container: &'a Container, name: &str) -> Self {
        self.with = Some(NamedVariable { container, text: name.to_owned() });
        self
    }

    /// Filters cells by a condition.
    ///
    /// # Errors
    /// `InvalidRequest` for a syntax error; `NotFound` for unknown names.
    pub fn filter(mut self, text: &str) -> Result<Self> {
        self.condition = Some(text.to_owned());
        Ok(self)
    }

    /// Sets the degrees of freedom of variances and what NaN does.
    #[must_use]
    pub fn finish(mut self, finish: Finish) -> Self {
        self.finish = finish;
        self
    }

    /// Approximates quantiles in little memory, with at most this relative error.
    #[must_use]
    pub fn sketch(mut self, error: Option<f64>) -> Self {
        self.sketch = error;
        self
    }

    /// Sets memory, threads, cancellation and progress.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Resolves names, reads labels of grouped dimensions and weights.
    ///
    /// # Errors
    /// `InvalidRequest` for parts that do not fit together; `Unsupported` for statistics that cannot be grouped or weighted;
    /// errors of reading.
    pub fn resolve(self) -> Result<Asked<'a>> {
        let name = self.array.name();
        if self.by.is_some() && self.rolling.is_some() {
            return Err(Error::invalid("groups and windows cannot be combined").in_array(name));
        }
        if self.rolling.is_some_and(|(_, rolling)| rolling.size == 0) {
            return Err(Error::invalid("a window has at least one position").in_array(name));
        }
        let named = [self.by.map(|by| by.axis), self.rolling.map(|(axis, _)| axis)];
        if named.into_iter().flatten().any(|axis| axis >= self.selection.rank()) {
            return Err(Error::invalid("the axis to group by does not exist").in_array(name));
        }
        let grouped = self.by.filter(|by| by.part.is_some()).map(|by| by.axis);
        let array = self.array.labeled(|d| Some(d) == grouped)?;
        let (roles, axes) = self.roles(&array)?;
        let mut question = Question::new(self.statistics.clone(), roles, self.finish);
        if let Some(error) = self.sketch {
            question = question.sketched(error);
        }
        if let Some(NamedVariable { container, text }) = &self.weights {
            let weights = weights(self.array, container, text, &self.selection)?;
            question = question.weighted(weights).map_err(|e| e.in_array(name))?;
        }
        let with =
            self.with.as_ref().map(|with| paired(self.array, with.container, &with.text)).transpose()?;
        if let Some(with) = &with {
            question = question.paired(with.clone());
        } else if let Some(statistic) = self.statistics.iter().find(|statistic| statistic.is_paired()) {
            return Err(Error::invalid(format!("{statistic} requires a second variable")).in_array(name));
        }
        if let Some((_, rolling)) = self.rolling {
            question = question.with_at_least(rolling.least.unwrap_or(rolling.size));
        }
        let mut request = self.array.request(&self.selection);
        if let Some(text) = &self.condition {
            request.condition = self.array.cells()?.filter(text)?.request().condition;
        }
        Ok(Asked { array, options: self.options, request, question, axes, with })
    }

    /// The role of each axis, and the axes of the answers.
    fn roles(&self, array: &Array) -> Result<(Vec<AxisRole>, Vec<AnswerAxis>)> {
        let rank = self.selection.rank();
        let mut roles = Vec::with_capacity(rank);
        let mut axes = Vec::new();
        for axis in 0..rank {
            let listed = self.over.as_ref().map(|over| over.contains(&axis));
            let mut groups = None;
            let role = match (self.by, self.rolling) {
                (Some(GroupedAxis { axis: by, part }), _) if by == axis => match part {
                    Some(part) => {
                        let (role, found) = time_groups(array, axis, part, &self.selection)?;
                        groups = Some(found);
                        role
                    }
                    None if listed == Some(true) => {
                        let detail = "a dimension cannot be both reduced and grouped by its positions";
                        return Err(Error::invalid(detail).in_array(array.name()));
                    }
                    None => AxisRole::Keep,
                },
                (_, Some((by, rolling))) if by == axis => rolling.role(self.selection.shape()[axis]),
                (_, Some(_)) if listed != Some(true) => AxisRole::Keep,
                _ if listed.unwrap_or(true) => AxisRole::Reduce,
                _ => AxisRole::Keep,
            };
            if role != AxisRole::Reduce {
                axes.push(AnswerAxis { dim: axis, groups });
            }
            roles.push(role);
        }
        let placed = |statistic: &Statistic| matches!(statistic, Statistic::ArgMin | Statistic::ArgMax);
        if roles.iter().any(|role| matches!(role, AxisRole::Groups { .. }))
            && let Some(statistic) = self.statistics.iter().find(|statistic| placed(statistic))
        {
            return Err(Error::unsupported(format!("{statistic} by parts of times")).in_array(array.name()));
        }
        Ok((roles, axes))
    }
}

impl Rolling {
    /// The windows along an axis.
    fn role(self, extent: u64) -> AxisRole {
        let before = if self.center { self.size / 2 } else { self.size.saturating_sub(1) };
        AxisRole::Windows { size: self.size.max(1), step: 1, before, count: extent }
    }
}

impl Asked<'_> {
    /// The axes of the answers, in the order of the dimensions.
    pub fn axes(&self) -> &[AnswerAxis] {
        &self.axes
    }

    /// The statistics.
    pub fn statistics(&self) -> &[Statistic] {
        self.question.statistics()
    }

    /// The request for the cells.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The answers.
    ///
    /// # Errors
    /// Errors of the plan, the store and the decoders; `Limit` if the states exceed the memory limit.
    pub fn ask(&self) -> Result<Answers> {
        self.options.check_memory("the values to sort", self.kept_bytes()?).map_err(|error| {
            error.in_array(self.array.name()).hint(Advice::SelectLess.or(Advice::RaiseMemory))
        })?;
        self.question.ask(self.array.handle(), &self.request, &self.options)
    }

    /// The same answers without a value for each, if all of them are floats along axes; `None`, without reading cells, for others.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn ask_floats(&self) -> Result<Option<FloatAnswers>> {
        self.question.ask_floats(self.array.handle(), &self.request, &self.options)
    }

    /// The summary of each slot, instead of the answers of statistics.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn summaries(&self, wanted: StatSet) -> Result<Vec<Summary>> {
        let fold = Fold { reducers: vec![Reducer::Summary(wanted)], ..self.question.fold().clone() };
        let states = fold::fold(self.array.handle(), &self.request, &fold, &self.options)?.single()?;
        let summary = |state| match state {
            FoldState::Summary(summary) => Ok(summary),
            _ => Err(Error::internal("missing summary of a fold")),
        };
        states.into_iter().map(summary).collect()
    }

    /// Divides the question into jobs of about `bytes` of cells each, which other processes can run.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn split(&self, bytes: u64) -> Result<Vec<Job>> {
        self.question.split(self.array.handle(), &self.request, bytes, &self.options)
    }

    /// Runs one job.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn run(&self, job: &Job) -> Result<Results> {
        if let Some(with) = &self.with {
            // A job names the second variable, but its bytes do not contain an open array.
            let fold = Fold { paired: Some(with.clone()), ..job.fold.clone() };
            let job = Job { fold, units: job.units.clone() };
            return job.run(self.array.handle(), &self.request, &self.options);
        }
        job.run(self.array.handle(), &self.request, &self.options)
    }

    /// The answers from the joined results of all jobs, which have `units` units.
    ///
    /// # Errors
    /// `InvalidRequest` when results are missing, or those of another question.
    pub fn merge(&self, results: Results, units: u64) -> Result<Answers> {
        self.question.merge(self.array.handle(), &self.request, results, units, &self.options)
    }

    /// Size of the values that the statistics keep, in bytes: those of medians, quantiles and modes.
    ///
    /// # Errors
    /// Errors of the plan of a sparse array.
    pub fn kept_bytes(&self) -> Result<u64> {
        let Some(selection) = self.request.selection() else { return Ok(0) };
        let sizes = self.request.columns.iter().map(|column| match column {
            Column::Field(number) => {
                self.array.schema().fields[usize::from(*number)].cell_size().unwrap_or(1)
            }
            _ => 0,
        });
        let size = sizes.sum::<usize>() as u64;
        let kept = self.question.fold().reducers.iter().map(|reducer| reducer.kept_bytes(size));
        let size: u64 = kept.fold(0, u64::saturating_add);
        if size == 0 {
            return Ok(0);
        }
        let schema = self.array.schema();
        let target = match schema.sparse {
            true => Target::Coordinates(tesseral_engine::ranges(&schema.dims, selection)?),
            false => self.request.target.clone(),
        };
        Ok(self.array.cells_at_most(&target)?.saturating_mul(size))
    }
}
