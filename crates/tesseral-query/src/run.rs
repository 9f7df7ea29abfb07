//! Resolution of the array of a document, and execution of its plan.

use std::path::PathBuf;

use tesseral_core::{Advice, Error, ErrorKind, Result};
use tesseral_engine::fold::{self, AxisRole, Fold, FoldState, Reducer};
use tesseral_format::Column;
use tesseral_store::Overwrite;

use super::document::Reduction;
use super::outcome::{Answer, QueryOutcome, answer};
use super::plan::Plan;
use super::{align, execution, matrix, spill, transform};
use tesseral_dataset::{Array, Container};

/// Options that are not part of a document.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct QueryOptions {
    /// Number of cells to show of a selection that is not reduced.
    pub preview: usize,
    /// Folders, in addition to that of the source, in which files can be written.
    pub allow: Vec<PathBuf>,
    /// Whether existing files can be replaced.
    pub overwrite: Overwrite,
    /// Maximum memory of a document in bytes.
    pub memory: Option<u64>,
}

impl QueryOptions {
    /// The default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the number of cells to show of a selection that is not reduced.
    #[must_use]
    pub fn preview(mut self, cells: usize) -> Self {
        self.preview = cells;
        self
    }

    /// Adds a folder, in addition to that of the source, in which files can be written.
    #[must_use]
    pub fn allow(mut self, folder: impl Into<PathBuf>) -> Self {
        self.allow.push(folder.into());
        self
    }

    /// Replaces existing files.
    #[must_use]
    pub fn overwrite(mut self) -> Self {
        self.overwrite = Overwrite::Replace;
        self
    }

    /// Sets the maximum memory of a document in bytes.
    #[must_use]
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }
}

/// Returns the array of that name, or the field of the only array, or `array/field`; `None` if there is none.
///
/// # Errors
/// Errors of loading its metadata; `InvalidRequest` for an array of several fields.
pub fn find(container: &Container, name: &str) -> Result<Option<Array>> {
    match container.find(name) {
        Ok((array, Some(Column::Field(field)))) => array.field_at(field).map(Some),
        Ok((array, None)) if array.schema().fields.len() > 1 => {
            let fields: Vec<&str> = array.schema().fields.iter().map(|f| f.name.as_str()).collect();
            let detail = format!("query key `dataset`: {name:?} has several fields");
            Err(Error::invalid(detail).hint(format!("available: {}", fields.join(", "))))
        }
        Ok((array, None)) => Ok(Some(array)),
        Ok((_, Some(_))) => Err(Error::invalid(format!("query key `dataset`: {name:?} is a dimension"))),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Plan {
    /// Runs the query.
    ///
    /// # Errors
    /// Errors of the plan, the store and the decoders; `Limit` if results or sorted values exceed the memory.
    pub fn run(&self) -> Result<QueryOutcome> {
        if let Some(other) = &self.other {
            return align::compare(self, other);
        }
        let Some(operation) = &self.document.operation else {
            let written = self.document.spill.as_ref().map(|path| spill::write(self, path)).transpose()?;
            return Ok(QueryOutcome {
                preview: Some(execution::preview(self)?),
                strategy: if written.is_some() { "mmap_spill" } else { "capped_in_memory" },
                written,
                ..QueryOutcome::default()
            });
        };
        match operation.reduction {
            Reduction::Covariance | Reduction::Correlation if operation.is_matrix() => {
                matrix::run(self, operation)
            }
            Reduction::Transform => transform::run(self, operation),
            _ => {
                let fold = self.fold()?;
                let folded = self.folded(&fold)?;
                let skipped = folded.skipped;
                self.outcome(&fold, folded.single()?, skipped)
            }
        }
    }

    /// Folds the selection.
    pub(super) fn folded(&self, fold: &Fold) -> Result<fold::Folded> {
        fold::fold(self.array.handle(), &self.request(), fold, self.array.options())
    }

    /// The fold of the query; the range of a histogram is determined first if it is not given.
    pub(super) fn fold(&self) -> Result<Fold> {
        let mut fold = self.fold.clone().ok_or_else(|| Error::internal("the query has no reduction"))?;
        if fold.reducers.contains(&Reducer::Values) {
            let bytes = self.value_bytes()?;
            self.array.options().check_memory("the values to sort", bytes).map_err(|e| {
                let sketch = "use `quantile` with `sketch`: 0.01";
                let advice = Advice::SelectLess.or(Advice::RaiseMemory).or(sketch);
                Error::limit("the values to sort", bytes, self.array.options().memory.unwrap_or(0))
                    .hint(advice)
                    .in_array(e.array().unwrap_or(self.array.name()))
            })?;
        }
        let [Reducer::Histogram(histogram)] = fold.reducers.as_slice() else { return Ok(fold) };
        if histogram.ranges.is_empty() {
            let (handle, options) = (self.array.handle(), self.array.options());
            let ranges = fold::ranges(handle, &self.request(), &fold, options)?;
            let empty = (fold::Number::Int(0), fold::Number::Int(0));
            let ranges = ranges.into_iter().map(|range| range.unwrap_or(empty)).collect();
            let histogram = fold::Histogram::new(histogram.bins, ranges, histogram.clamp);
            fold.reducers = vec![Reducer::Histogram(histogram)];
        }
        Ok(fold)
    }

    /// Finalizes states.
    pub(super) fn outcome(&self, fold: &Fold, states: Vec<FoldState>, skipped: u64) -> Result<QueryOutcome> {
        let operation =
            self.document.operation.as_ref().ok_or_else(|| Error::internal("the query has no result"))?;
        let field = self.array.selected_field();
        let [reducer] = fold.reducers.as_slice() else { return Err(Error::internal("several reducers")) };
        let shape = self.result_shape();
        let scalar = shape.is_empty() && self.windows.is_none() && self.groups.is_none();
        let cells: u64 = states.iter().map(|state| state.cells(field.dtype)).sum();
        let answers: Vec<Answer> = match &self.windows {
            None => states.iter().map(|state| answer(operation, state, field.dtype)).collect(),
            Some(windows) => {
                let extents = self.selection.shape();
                let reduced = fold.roles.iter().zip(&extents).filter(|(role, _)| **role == AxisRole::Reduce);
                let others: u64 = reduced.map(|(_, n)| *n).product();
                let after = fold.roles.iter().zip(&extents).skip(windows.axis + 1);
                let stride: u64 =
                    after.filter(|(role, _)| **role == AxisRole::Reduce).map(|(_, n)| *n).product();
                // Number of slots between two windows.
                let inner: u64 = fold
                    .roles
                    .iter()
                    .zip(&extents)
                    .skip(windows.axis + 1)
                    .filter_map(|(role, n)| role.slots(*n))
                    .product();
                let finish_slot = |(i, state): (usize, FoldState)| {
                    let slot = i as u64 / inner.max(1) % windows.count.max(1);
                    let state = windows.finish(reducer, state, slot, others, stride, field)?;
                    Ok(state.map_or(Answer::None, |state| answer(operation, &state, field.dtype)))
                };
                states.into_iter().enumerate().map(finish_slot).collect::<Result<_>>()?
            }
        };
        Ok(QueryOutcome {
            edges: if scalar { reducer.edges() } else { None },
            elements: Some(
                if self.array.schema().sparse || (scalar && operation.reduction != Reduction::NullCount) {
                    cells
                } else {
                    self.selection.cells().unwrap_or(u64::MAX)
                },
            ),
            groups: self.groups.map(|_| shape.iter().product()),
            group_labels: self.group_labels.clone(),
            windows: self.windows.as_ref().map(|windows| windows.count),
            accuracy: operation.sketch,
            strategy: if operation.reduction.streams() { "streaming_fold" } else { "in_memory_materialize" },
            shape: (!scalar).then_some(shape),
            answers,
            skipped,
            ..QueryOutcome::default()
        })
    }
}
