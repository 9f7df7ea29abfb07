//! Several statistics of one pass, and their answers.

use tesseral_core::{DType, Error, ErrorKind, Result};
use tesseral_format::{Column, Request};

use super::job::{Job, Results};
use super::layout::AxisRole;
use super::merger::Folded;
use super::pairs::Paired;
use super::run::{Fold, fold};
use super::state::{FoldState, Reducer};
use super::statistic::{Answer, Finish, Position, Statistic, reducers};
use super::weights::Weights;
use super::{histogram, job};
use crate::handle::Handle;
use crate::options::Options;
use crate::plan::expansion::check_results;
use crate::reduce::axes::{PositionGroups, Reduced, reduce, reduce_groups, state_bytes};
use crate::reduce::kernel::summary::StatSet;

/// Statistics of the cells of each slot of a fold.
#[derive(Clone, Debug, PartialEq)]
pub struct Question {
    statistics: Vec<Statistic>,
    fold: Fold,
    /// The reducer of each statistic.
    places: Vec<usize>,
    finish: Finish,
    /// Values that a slot needs to have answers, and the reducer that counts them.
    least: Option<(u64, usize)>,
}

/// Answers by slot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// Number of slots along each axis that is not reduced.
    pub shape: Vec<u64>,
    /// The answers of each statistic, row-major over the slots.
    pub columns: Vec<Vec<Answer>>,
    /// Cells of each slot, including missing ones where the states count them.
    pub cells: Vec<u64>,
    /// The edges of the bins of each histogram, in the order of the statistics.
    pub edges: Vec<Vec<f64>>,
}

/// Answers that are floats, without a value for each: NaN where there is none.
#[derive(Clone, Debug, PartialEq)]
pub struct FloatAnswers {
    /// Number of slots along each axis that is not reduced.
    pub shape: Vec<u64>,
    /// The answers of each statistic, row-major over the slots.
    pub columns: Vec<FloatColumn>,
}

/// The float answers of one statistic.
#[derive(Clone, Debug, PartialEq)]
pub enum FloatColumn {
    /// Computed numbers.
    Numbers(Vec<f64>),
    /// Cells, native-endian.
    Cells(Vec<u8>),
}

impl Question {
    /// A question about all cells of each slot.
    pub fn new(statistics: Vec<Statistic>, roles: Vec<AxisRole>, finish: Finish) -> Self {
        let (reducers, places) = reducers(&statistics, false, None);
        Self { statistics, fold: Fold::new(reducers, roles), places, finish, least: None }
    }

    /// With quantiles of at most this relative error instead of exact ones.
    #[must_use]
    pub fn sketched(mut self, error: f64) -> Self {
        (self.fold.reducers, self.places) =
            reducers(&self.statistics, self.fold.weights.is_some(), Some(error));
        self
    }

    /// About cells and those of a second variable at the same positions, for covariances and correlations.
    #[must_use]
    pub fn paired(mut self, with: Paired) -> Self {
        self.fold.paired = Some(with);
        self
    }

    /// With weighted sums, means, variances, standard deviations and quantiles.
    ///
    /// # Errors
    /// `Unsupported` for statistics that have no weighted form, and for weighted variances with degrees of freedom.
    pub fn weighted(mut self, weights: Weights) -> Result<Self> {
        let unweighted = self.statistics.iter().find(|statistic| !statistic.takes_weights());
        if let Some(statistic) = unweighted {
            return Err(Error::unsupported(format!("weights of {statistic}"))
                .hint("weights apply to sum, mean, var, std, median and quantile"));
        }
        let spread = |statistic: &Statistic| matches!(statistic, Statistic::Var | Statistic::Std);
        if self.finish.ddof != 0.0 && self.statistics.iter().any(spread) {
            return Err(Error::unsupported("weighted variances with degrees of freedom")
                .hint("weights are not counts: weighted variances require ddof=0"));
        }
        if self.fold.reducers.iter().any(|reducer| matches!(reducer, Reducer::Sketch(_))) {
            return Err(Error::unsupported("weighted quantiles by a sketch"));
        }
        (self.fold.reducers, self.places) = reducers(&self.statistics, true, None);
        self.fold.weights = Some(weights);
        Ok(self)
    }

    /// Without answers for slots of fewer values that are neither missing nor NaN.
    #[must_use]
    pub fn with_at_least(mut self, values: u64) -> Self {
        let counts = |reducer: &Reducer| matches!(reducer, Reducer::Summary(_));
        let at = self.fold.reducers.iter().position(counts).unwrap_or_else(|| {
            self.fold.reducers.push(Reducer::Summary(StatSet::COUNTS));
            self.fold.reducers.len() - 1
        });
        self.least = Some((values, at));
        self
    }

    /// The statistics.
    pub fn statistics(&self) -> &[Statistic] {
        &self.statistics
    }

    /// The fold that computes the states.
    pub fn fold(&self) -> &Fold {
        &self.fold
    }

    /// Computes the range of histograms that have none: that of all selected values.
    ///
    /// # Errors
    /// As [`ask`](Self::ask); `InvalidRequest` if a value is infinite.
    pub fn with_ranges(mut self, handle: &Handle, request: &Request, options: &Options) -> Result<Self> {
        if self.fold.reducers.iter().any(histogram::Histogram::is_open) {
            let ranges = histogram::ranges(handle, request, &self.fold, options)?;
            let whole = histogram::enclosing(ranges);
            self.fold.reducers.iter_mut().for_each(|reducer| histogram::Histogram::close(reducer, &[whole]));
        }
        Ok(self)
    }

    /// The answers. A question without ranges of its histograms takes a first pass for them.
    ///
    /// # Errors
    /// Errors of the plan, the store and the decoders; `Limit` when the states exceed the memory limit.
    pub fn ask(&self, handle: &Handle, request: &Request, options: &Options) -> Result<Answers> {
        let question = self.clone().with_ranges(handle, request, options)?;
        match question.plain_answers(handle, request, options)? {
            Some(answers) => Ok(answers),
            None => question.answers(handle, request, &fold(handle, request, &question.fold, options)?),
        }
    }

    /// The same answers, if the vectorized fold along axes computes them and all of them are floats; `None`, without reading cells,
    /// for other questions.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn ask_floats(
        &self,
        handle: &Handle,
        request: &Request,
        options: &Options,
    ) -> Result<Option<FloatAnswers>> {
        let dtype = dtype(handle, request)?;
        let answered = |statistic: &Statistic| statistic.has_floats(dtype, self.finish);
        if !self.statistics.iter().all(answered) {
            return Ok(None);
        }
        let Some(reduced) = self.plain_states(handle, request, options)? else { return Ok(None) };
        let least = self.least.map_or(0, |(least, _)| least);
        let column = |statistic: &Statistic| statistic.floats(&reduced, dtype, self.finish, least);
        let columns = options.run(|| self.statistics.iter().map(column).collect());
        Ok(Some(FloatAnswers { shape: reduced.shape, columns }))
    }

    /// Divides the question into jobs of about `bytes` of cells each.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub fn split(
        &self,
        handle: &Handle,
        request: &Request,
        bytes: u64,
        options: &Options,
    ) -> Result<Vec<Job>> {
        let question = self.clone().with_ranges(handle, request, options)?;
        job::split(handle, request, &question.fold, bytes, options)
    }

    /// The answers from the results of all jobs, in order.
    ///
    /// # Errors
    /// `InvalidRequest` when results are missing, or those of another question.
    pub fn merge(
        &self,
        handle: &Handle,
        request: &Request,
        results: Results,
        units: u64,
        options: &Options,
    ) -> Result<Answers> {
        let mut question = self.clone();
        // The first pass was part of the split: its ranges are in the reducers of the results.
        for (mine, theirs) in question.fold.reducers.iter_mut().zip(&results.reducers) {
            if let Reducer::Histogram(histogram) = theirs {
                histogram::Histogram::close(mine, &histogram.ranges);
            }
        }
        let folded = job::merge(handle, request, &question.fold, [results], units, options)?;
        question.answers(handle, request, &folded)
    }

    /// The states along axes of the vectorized fold, without units and a state for each slot.
    fn plain_states(&self, handle: &Handle, request: &Request, options: &Options) -> Result<Option<Reduced>> {
        if request.columns.len() != 1 || handle.schema().sparse {
            return Ok(None);
        }
        if let Some((axis, extent, wanted)) = self.groups_of_places(handle, request, options) {
            let reduces = |axis: &usize| self.fold.roles[*axis] == AxisRole::Reduce;
            let axes: Vec<usize> = (0..self.fold.roles.len()).filter(reduces).collect();
            let role = &self.fold.roles[axis];
            let runs = |start: u64, end: u64| role.runs(start, end, extent);
            let groups = PositionGroups { axis, count: role.slots(extent).unwrap_or(1), runs: &runs };
            return match reduce_groups(handle, request, &axes, groups, wanted, options) {
                // Units are smaller than the chunks that this fold reads.
                Err(error) if matches!(error.kind(), ErrorKind::Limit { .. }) => Ok(None),
                reduced => reduced.map(Some),
            };
        }
        let wanted = self.fold.fast_statistics(request);
        let Some(wanted) = wanted else { return Ok(None) };
        let reduces = |axis: &usize| self.fold.roles[*axis] == AxisRole::Reduce;
        let axes: Vec<usize> = (0..self.fold.roles.len()).filter(reduces).collect();
        if axes.len() == self.fold.roles.len() {
            return Ok(None);
        }
        reduce(handle, request, &axes, wanted, options).map(Some)
    }

    /// The only axis of groups or windows where other axes are kept, its extent, and the statistics to request: a state for each
    /// group of each place would be slow and large. `None` for other questions, under a memory limit, and if the states would
    /// be too many.
    fn groups_of_places(
        &self,
        handle: &Handle,
        request: &Request,
        options: &Options,
    ) -> Option<(usize, u64, StatSet)> {
        let roles = &self.fold.roles;
        let is_plain = |role: &AxisRole| matches!(role, AxisRole::Keep | AxisRole::Reduce);
        let mut grouped = (0..roles.len()).filter(|axis| !is_plain(&roles[*axis]));
        let (Some(axis), None) = (grouped.next(), grouped.next()) else { return None };
        // The same fold with all positions in one group shows whether the vectorized one applies.
        let plain = roles.iter().map(|role| if is_plain(role) { role.clone() } else { AxisRole::Reduce });
        let plain = Fold { roles: plain.collect(), ..self.fold.clone() };
        let wanted = plain.fast_statistics(request)?;
        let shape = request.selection().filter(|selection| selection.rank() == roles.len())?.shape();
        let slots = roles.iter().zip(&shape).filter_map(|(role, extent)| role.slots(*extent));
        let states = state_bytes(slots.fold(1_u64, u64::saturating_mul));
        let fits = options.memory.is_none() && check_results(handle, request, states).is_ok();
        let known = roles.contains(&AxisRole::Keep) && roles[axis].fits(shape[axis]);
        (fits && known).then_some((axis, shape[axis], wanted))
    }

    /// The answers along axes by the vectorized fold.
    fn plain_answers(
        &self,
        handle: &Handle,
        request: &Request,
        options: &Options,
    ) -> Result<Option<Answers>> {
        let Some(reduced) = self.plain_states(handle, request, options)? else { return Ok(None) };
        let answer = |statistic: &Statistic| {
            reduced.collect(|fold, i| match self.least {
                Some((least, _)) if fold.valid(i) < least => Answer::None,
                _ => statistic.of_summary(&Position(fold, i), self.finish),
            })
        };
        let columns = options.run(|| self.statistics.iter().map(answer).collect());
        let cells = reduced.collect(|fold, i| fold.count(i));
        Ok(Some(Answers { shape: reduced.shape.clone(), columns, cells, edges: Vec::new() }))
    }

    fn answers(&self, handle: &Handle, request: &Request, folded: &Folded) -> Result<Answers> {
        let dtype = dtype(handle, request)?;
        let missing = || Error::internal("missing states of a fold");
        let list = |at: usize| folded.states.get(at).ok_or_else(missing);
        let enough: Option<Vec<bool>> = match self.least {
            None => None,
            Some((least, at)) => Some(
                list(at)?
                    .iter()
                    .map(|state| matches!(state, FoldState::Summary(summary) if summary.valid() >= least))
                    .collect(),
            ),
        };
        let mut columns = Vec::with_capacity(self.statistics.len());
        for (statistic, at) in self.statistics.iter().zip(&self.places) {
            let answer = |(slot, state): (usize, &FoldState)| match &enough {
                Some(enough) if !enough[slot] => Answer::None,
                _ => statistic.answer(state, dtype, self.finish),
            };
            columns.push(list(*at)?.iter().enumerate().map(answer).collect());
        }
        let slots = folded.states.first().map_or(0, Vec::len);
        let most = |slot: usize| folded.states.iter().map(|list| list[slot].cells(dtype)).max().unwrap_or(0);
        let histograms = self.places.iter().filter_map(|at| self.fold.reducers.get(*at)?.edges());
        Ok(Answers {
            shape: folded.shape.clone(),
            columns,
            cells: (0..slots).map(most).collect(),
            edges: histograms.collect(),
        })
    }
}

/// The dtype of the only field of a request.
fn dtype(handle: &Handle, request: &Request) -> Result<DType> {
    match request.columns.as_slice() {
        [Column::Field(number)] => handle.schema().fields.get(usize::from(*number)).map(|field| field.dtype),
        _ => None,
    }
    .ok_or_else(|| Error::invalid("a statistics query requires exactly one field"))
}
