//! A document resolved against an array.

use tesseral_core::condition::Condition;
use tesseral_core::{Advice, Error, Result, Selection, Slice, schema::Labels};
use tesseral_engine::fold::{self, AxisRole, Fold, Histogram, Job, Paired, Results, Statistic, Weights};
use tesseral_format::Request;

use super::document::{AxisToken, Document, Edge, FilterClause, GroupedBy, Operation, Reduction};
use super::execution;
use super::outcome::QueryOutcome;
use super::parse::bad;
use super::run::{QueryOptions, find};
use super::window::Windows;
use tesseral_dataset::{Array, Container};

/// A document resolved against an array: selection, treatment of each axis, and state.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) array: Array,
    pub(super) document: Document,
    pub(super) selection: Selection,
    pub(super) fold: Option<Fold>,
    /// The condition on cells.
    pub(super) condition: Option<Condition>,
    pub(super) masks: Vec<Option<Vec<bool>>>,
    pub(super) windows: Option<Windows>,
    pub(super) groups: Option<usize>,
    /// The parts of times that positions are grouped by.
    pub(super) group_labels: Option<Vec<String>>,
    weights: Option<Weights>,
    /// The second variable of a covariance or correlation.
    paired: Option<Paired>,
    /// The array to compare axes with, and the pairs of axes.
    pub(super) other: Option<Array>,
    pub(super) settings: QueryOptions,
    pub(super) source: std::path::PathBuf,
    pub(super) budget: Option<u64>,
}

impl Plan {
    /// Resolves a document against the array of a container that it names; `None` if the array does not exist.
    ///
    /// # Errors
    /// `InvalidRequest` with the key; errors of loading metadata.
    pub fn new(container: &Container, document: &Document, settings: &QueryOptions) -> Result<Option<Self>> {
        let Some(array) = find(container, &document.dataset)? else { return Ok(None) };
        if array.schema().sparse {
            check_sparse(&array, document)?;
        }
        let budget = execution::budget(&document.execution, array.options().memory, settings.memory)?;
        let mut options = array.options().clone();
        // Results and scratch memory of a fold need a minimum; lower limits are raised to it.
        options.memory = budget.map(|bytes| bytes.max(execution::MIN_MEMORY));
        let array = array.with_options(options);
        let (array, selection) = selection(array, document)?;
        let rank = selection.rank();
        let mut masks = vec![None; rank];
        if let Some(filter) = &document.label_filter {
            let axis = axis(&array, "label_filter.axis", &filter.axis)?;
            masks[axis] = Some(label_mask(&array, axis, &filter.eq, &selection)?);
        }
        let condition = document.filter.as_ref().map(|filter| condition(&array, filter)).transpose()?;
        if let Some(null) = document.filter.as_ref().and_then(|f| f.null)
            && null
            && !can_be_missing(&array, &selection)?
        {
            return Err(bad("filter.is_null", "the array has no declared missing value, so no cell is null"));
        }
        let other = match &document.align {
            None => None,
            Some((name, _)) if *name == document.dataset => {
                return Err(bad("align.with", "expected an array other than `dataset`"));
            }
            Some((name, _)) => {
                let found = find(container, name)?;
                Some(found.ok_or_else(|| bad("align.with", format!("unknown array {name:?}")))?)
            }
        };
        let mut plan = Self {
            selection,
            masks,
            condition,
            other,
            document: document.clone(),
            fold: None,
            windows: None,
            groups: None,
            group_labels: None,
            weights: None,
            paired: None,
            settings: settings.clone(),
            source: std::path::PathBuf::from(container.location()),
            budget,
            array,
        };
        if let Some(text) = &document.weights {
            plan.weights = Some(tesseral_dataset::weights(&plan.array, container, text, &plan.selection)?);
        }
        if let Some(name) = document.operation.as_ref().and_then(|operation| operation.with.as_ref()) {
            plan.paired = Some(tesseral_dataset::paired(&plan.array, container, name)?);
        }
        plan.resolve()?;
        Ok(Some(plan))
    }

    /// Determines the treatment of each axis.
    fn resolve(&mut self) -> Result<()> {
        let Some(operation) = self.document.operation.clone() else { return Ok(()) };
        let key = operation.reduction.key();
        let rank = self.selection.rank();
        let listed = self.axes(key, &operation.axes)?;
        let mut roles = vec![if listed.is_empty() { AxisRole::Reduce } else { AxisRole::Keep }; rank];
        listed.iter().for_each(|&axis| roles[axis] = AxisRole::Reduce);
        if let Some(window) = self.document.window.clone() {
            let axis = axis(&self.array, "window.axis", &window.axis)?;
            if !listed.is_empty() && !listed.contains(&axis) {
                return Err(bad(key, "the axes include that of `window`"));
            }
            if listed.is_empty() {
                roles = vec![AxisRole::Keep; rank];
            }
            let extent = self.selection.shape()[axis];
            let windows = Windows::new(&window, axis, extent, self.array.selected_field())?;
            roles[axis] = windows.role.clone();
            self.windows = Some(windows);
        } else if let Some(group_by) = self.document.group_by.clone() {
            let kept = self.axes("group_by", &group_by.axes)?;
            if kept.len() == rank {
                return Err(bad("group_by", "at least one axis must remain for the reduction"));
            }
            let covered = listed.is_empty() || listed.len() + kept.len() == rank;
            if !covered || kept.iter().any(|axis| listed.contains(axis)) {
                return Err(bad("group_by", "an axis cannot be both grouped by and reduced"));
            }
            roles = vec![AxisRole::Reduce; rank];
            for axis in kept {
                roles[axis] = match group_by.by {
                    GroupedBy::Position => AxisRole::Keep,
                    GroupedBy::Label => self.groups(axis)?,
                    GroupedBy::Time(part) => {
                        let array = self.array.labeled(|d| d == axis)?;
                        let (role, groups) =
                            tesseral_dataset::time_groups(&array, axis, part, &self.selection)?;
                        self.group_labels = Some(groups.numbers.iter().map(|n| part.text(*n)).collect());
                        role
                    }
                };
            }
            self.groups = Some(rank);
        } else if !listed.is_empty() && listed.len() == rank && !operation.is_matrix() {
            return Err(bad(key, "the list contains all axes").hint("use [] for one result"));
        }
        if operation.reduction == Reduction::NullCount
            && operation.fill.is_none()
            && !can_be_missing(&self.array, &self.selection)?
        {
            return Err(bad(
                "null_count.fill",
                "the array has no declared missing value; a value is required",
            ));
        }
        let (reducers, _) =
            fold::reducers(&[statistic(&operation)], self.weights.is_some(), operation.sketch);
        let mut fold = Fold::new(reducers, roles);
        fold.weights.clone_from(&self.weights);
        fold.paired.clone_from(&self.paired);
        fold.masks = self.masks.clone();
        self.fold = Some(fold);
        Ok(())
    }

    fn axes(&self, key: &str, tokens: &[AxisToken]) -> Result<Vec<usize>> {
        let mut found = Vec::with_capacity(tokens.len());
        for token in tokens {
            let axis = axis(&self.array, key, token)?;
            if found.contains(&axis) {
                return Err(bad(key, format!("duplicate axis {token}")));
            }
            found.push(axis);
        }
        Ok(found)
    }

    /// Positions by label, with labels in order of first appearance.
    fn groups(&self, axis: usize) -> Result<AxisRole> {
        let labels = labels(&self.array, axis)
            .ok_or_else(|| bad("group_by.axes", format!("axis {axis} has no labels")))?;
        let slice = self.selection.slices()[axis];
        let mut seen: std::collections::HashMap<String, u64> = std::collections::HashMap::new();
        let mut slots = Vec::new();
        for i in 0..slice.count() {
            let label = text(labels, slice.start + i * slice.step)
                .ok_or_else(|| bad("group_by.axes", format!("axis {axis} has a position without a label")))?;
            let next = seen.len() as u64;
            slots.push(*seen.entry(label).or_insert(next));
        }
        Ok(AxisRole::Groups { count: seen.len() as u64, slots })
    }

    /// The queried array.
    pub fn array(&self) -> &Array {
        &self.array
    }

    /// The document.
    pub fn document(&self) -> &Document {
        &self.document
    }

    /// The selected cells.
    pub fn selection(&self) -> &Selection {
        &self.selection
    }

    /// Request of the selected cells that meet the condition.
    pub(super) fn request(&self) -> Request {
        Request { condition: self.condition.clone(), ..self.array.request(&self.selection) }
    }

    /// Size of the selected cells in bytes.
    pub fn logical_bytes(&self) -> u64 {
        let size = self.array.selected_field().cell_size().unwrap_or(1) as u64;
        self.selection.cells().and_then(|n| n.checked_mul(size)).unwrap_or(u64::MAX)
    }

    /// Size of the existing cells of the selection in bytes, for sparse arrays.
    pub(super) fn value_bytes(&self) -> Result<u64> {
        if !self.array.schema().sparse {
            return Ok(self.logical_bytes());
        }
        let size = self.array.selected_field().cell_size().unwrap_or(1) as u64;
        Ok(self.array.cells_at_most(&self.array.target([])?.1)?.saturating_mul(size))
    }

    /// The effective memory limit in bytes.
    pub fn budget(&self) -> Option<u64> {
        self.budget
    }

    pub(super) fn result_shape(&self) -> Vec<u64> {
        let extents = self.selection.shape();
        let Some(fold) = &self.fold else { return extents.to_vec() };
        fold.roles.iter().zip(&extents).filter_map(|(role, &n)| role.slots(n)).collect()
    }

    /// Splits the query into at most `n` jobs that can run anywhere.
    ///
    /// # Errors
    /// `Unsupported` for queries of several passes: matrices, transforms, cells without a reduction. A histogram without `min`
    /// and `max` runs its first pass here.
    pub fn split(&self, n: usize) -> Result<Vec<Job>> {
        let several = |op: &Operation| op.is_matrix() || op.reduction == Reduction::Transform;
        if self.document.operation.as_ref().is_none_or(several) {
            return Err(Error::unsupported("splitting a query with several passes"));
        }
        let fold = self.fold()?;
        let request = self.request();
        let units = fold::units(self.array.handle(), &request, &fold, None, self.array.options())?;
        let share = units.len().div_ceil(n.max(1)).max(1);
        Ok(units.chunks(share).map(|units| Job { fold: fold.clone(), units: units.to_vec() }).collect())
    }

    /// Runs one job.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_job(&self, job: &Job) -> Result<Results> {
        job.run(self.array.handle(), &self.request(), self.array.options())
    }

    /// Merges the results of all jobs, in order.
    ///
    /// # Errors
    /// `InvalidRequest` if results are missing or belong to another plan.
    pub fn merge(&self, jobs: &[Job], results: Vec<Results>) -> Result<QueryOutcome> {
        let fold = match jobs.first() {
            Some(job) => job.fold.clone(),
            None => self.fold()?,
        };
        let units = jobs.iter().map(|job| job.units.len() as u64).sum();
        let (handle, options) = (self.array.handle(), self.array.options());
        let folded = fold::merge(handle, &self.request(), &fold, results, units, options)?;
        let skipped = folded.skipped;
        self.outcome(&fold, folded.single()?, skipped)
    }
}

/// Rejects queries that sparse arrays do not support.
fn check_sparse(array: &Array, document: &Document) -> Result<()> {
    let refuse = |feature: &str, hint: Advice| {
        Err(Error::unsupported(format!("{feature} of a sparse array")).hint(hint).in_array(array.name()))
    };
    if array.schema().shape().is_none() {
        return refuse("queries by position over dimensions without positions", Advice::Summarize);
    }
    match &document.operation {
        None => refuse("a preview", Advice::ReadCells),
        Some(operation) if operation.is_matrix() || operation.reduction == Reduction::Transform => {
            refuse("matrices and transforms", Advice::SparseAs(&["dense"]))
        }
        Some(_) => Ok(()),
    }
}

/// The condition of a filter, by the rules of all conditions.
fn condition(array: &Array, filter: &FilterClause) -> Result<Condition> {
    let field = array.selected_field();
    let (name, dtype) = (field.name.as_str(), field.dtype);
    let mut parts = Vec::new();
    for (op, number) in &filter.compare {
        let compared = Condition::with_number(name, dtype, *op, &number.to_string());
        parts.push(compared.ok_or_else(|| Error::unsupported(format!("conditions on {dtype}")))?);
    }
    let null = Condition::IsNull { name: name.to_owned() };
    parts.extend(filter.null.map(|wanted| if wanted { null } else { Condition::Not(Box::new(null)) }));
    Ok(Condition::And(parts))
}

/// The statistic of a reduction. Matrices and transforms run their own folds.
pub(super) fn statistic(operation: &Operation) -> Statistic {
    match operation.reduction {
        Reduction::Sum => Statistic::Sum,
        Reduction::Mean | Reduction::NanMean => Statistic::Mean,
        Reduction::Min => Statistic::Min,
        Reduction::Max => Statistic::Max,
        Reduction::AllFinite => Statistic::AllFinite,
        Reduction::AnyInf => Statistic::AnyInf,
        Reduction::AnyNan => Statistic::AnyNan,
        Reduction::Var => Statistic::Var,
        Reduction::Std | Reduction::NanStd => Statistic::Std,
        Reduction::InfCount => Statistic::InfCount,
        Reduction::Count => Statistic::Cells,
        Reduction::NanCount => Statistic::NanCount,
        Reduction::Product => Statistic::Product,
        Reduction::NormL1 => Statistic::NormL1,
        Reduction::NormL2 => Statistic::NormL2,
        Reduction::ArgMin => Statistic::ArgMin,
        Reduction::ArgMax => Statistic::ArgMax,
        Reduction::Mode => Statistic::Mode,
        Reduction::Any => Statistic::Any,
        Reduction::All => Statistic::All,
        Reduction::First => Statistic::First,
        Reduction::Last => Statistic::Last,
        Reduction::NullCount => Statistic::NullCount(operation.fill),
        Reduction::Histogram => {
            // As in the reference, values outside of the range are counted in the first and last bin.
            Statistic::Histogram(Histogram::new(operation.bins, operation.range.into_iter().collect(), true))
        }
        Reduction::Covariance => Statistic::Covariance,
        Reduction::Correlation => Statistic::Correlation,
        Reduction::Median | Reduction::Quantile | Reduction::Transform => Statistic::Quantile(operation.q),
    }
}

/// Resolves an axis by index or name.
pub(super) fn axis(array: &Array, key: &str, token: &AxisToken) -> Result<usize> {
    let dims = &array.schema().dims;
    match token {
        AxisToken::Number(number) if *number < dims.len() => Ok(*number),
        AxisToken::Number(number) => {
            Err(bad(key, format!("axis {number} is out of bounds for {} axes", dims.len())))
        }
        AxisToken::Name(name) => {
            let mut named = dims.iter().enumerate().filter(|(_, dim)| dim.name == *name);
            match (named.next(), named.next()) {
                (Some((axis, _)), None) => Ok(axis),
                (Some(_), Some(_)) => Err(bad(key, format!("ambiguous axis name {name:?}"))),
                (None, _) => {
                    let names: Vec<&str> =
                        dims.iter().map(|d| d.name.as_str()).filter(|n| !n.is_empty()).collect();
                    let error = bad(key, format!("unknown axis {name:?}"));
                    Err(if names.is_empty() {
                        error.hint("the axes are unnamed; use their indexes from 0")
                    } else {
                        error.hint(format!("available: {}", names.join(", ")))
                    })
                }
            }
        }
    }
}

pub(super) fn labels(array: &Array, axis: usize) -> Option<&Labels> {
    array.schema().dims[axis].labels.as_ref()
}

pub(super) fn text(labels: &Labels, position: u64) -> Option<String> {
    let position = usize::try_from(position).ok()?;
    match labels {
        Labels::Text(texts) => texts.get(position).cloned(),
        numbers @ Labels::Numbers { .. } => numbers.get(position).map(|label| label.to_string()),
    }
}

fn find_label(array: &Array, key: &str, axis: usize, wanted: &str) -> Result<u64> {
    let labels = labels(array, axis).ok_or_else(|| bad(key, format!("axis {axis} has no labels")))?;
    let found = (0..labels.len() as u64).find(|&i| text(labels, i).as_deref() == Some(wanted));
    found.ok_or_else(|| bad(key, format!("unknown label {wanted:?} of axis {axis}")))
}

fn label_mask(array: &Array, axis: usize, wanted: &str, selection: &Selection) -> Result<Vec<bool>> {
    find_label(array, "label_filter.eq", axis, wanted)?;
    let slice = selection.slices()[axis];
    let positions = (0..slice.count()).map(|i| slice.start + i * slice.step);
    let labels = labels(array, axis);
    Ok(positions.map(|p| labels.and_then(|l| text(l, p)).as_deref() == Some(wanted)).collect())
}

/// The selection of a document, and the array that it selects from: labels from the end of a cyclic axis to its start select the axis
/// continued at its start.
fn selection(array: Array, document: &Document) -> Result<(Array, Selection)> {
    let all = array.all()?;
    let Some(ranges) = &document.selection else { return Ok((array, all)) };
    let mut shape = all.shape();
    let mut continued = Vec::new();
    if ranges.len() != shape.len() {
        let detail = format!("{} entries for {} axes", ranges.len(), shape.len());
        return Err(bad("selection", detail));
    }
    let mut slices = Vec::with_capacity(shape.len());
    for (i, (range, &extent)) in ranges.iter().zip(&all.shape()).enumerate() {
        let edge = |name: &str, edge: &Option<Edge>, absent: u64| match edge {
            None => Ok(absent),
            Some(Edge::Position(position)) => Ok(*position),
            Some(Edge::Label(label)) => find_label(&array, &format!("selection[{i}].{name}_label"), i, label),
        };
        let start = edge("start", &range.start, 0)?;
        let mut stop = edge("stop", &range.stop, extent)?;
        if start >= extent {
            let detail = format!("start {start} is out of bounds for extent {extent}");
            return Err(bad(&format!("selection[{i}].start"), detail));
        }
        if stop > extent {
            let detail = format!("stop {stop} is out of bounds for extent {extent}");
            return Err(bad(&format!("selection[{i}].stop"), detail));
        }
        let labels = matches!((&range.start, &range.stop), (Some(Edge::Label(_)), Some(Edge::Label(_))));
        if start > stop && labels && array.labeled(|d| d == i)?.schema().dims[i].period.is_some() {
            stop += extent;
            continued.push(i);
        }
        if start >= stop {
            return Err(bad(
                &format!("selection[{i}].stop"),
                format!("stop {stop} is not after start {start}"),
            ));
        }
        slices.push(Slice { start, end: stop, step: range.step.unwrap_or(1) });
    }
    let array = if continued.is_empty() { array } else { array.continued(&continued)? };
    continued.iter().for_each(|&d| shape[d] = shape[d].saturating_mul(2));
    Ok((array, Selection::new(slices, &shape)?))
}

/// Whether a selected cell of an array can be missing.
pub(super) fn can_be_missing(array: &Array, selection: &Selection) -> Result<bool> {
    let field = array.selected_field();
    if field.nullable || !field.missing_values().is_empty() {
        return Ok(true);
    }
    Ok(!array.schema().sparse && tesseral_engine::has_gaps(array.handle(), &array.request(selection))?)
}
