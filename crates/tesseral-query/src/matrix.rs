//! Covariance and correlation of the variables of a table.

use tesseral_core::{Result, Selection, Slice};
use tesseral_engine::fold::{Matrix, TableBlock};

use super::document::{Operation, Reduction};
use super::execution::{self, left_out};
use super::outcome::{Answer, QueryOutcome};
use super::parse::bad;
use super::plan::{Plan, axis, can_be_missing};

/// Number of observations read at once.
const PIECE: u64 = 8 << 20;

pub(super) fn run(plan: &Plan, operation: &Operation) -> Result<QueryOutcome> {
    let key = operation.reduction.key();
    if plan.selection.rank() != 2 {
        return Err(bad(key, "the array must have two axes: variables and observations"));
    }
    let [token] = operation.axes.as_slice() else { return Err(bad(key, "exactly one axis of observations")) };
    let over = axis(&plan.array, key, token)?;
    let shape = plan.selection.shape();
    let order = usize::try_from(shape[1 - over]).unwrap_or(usize::MAX);
    let gaps = plan.condition.is_some()
        || can_be_missing(&plan.array, &plan.selection)?
        || plan.masks.iter().any(Option::is_some);
    let mut table = Matrix::new(order, gaps, plan.array.options())?;
    fold(plan, over, order, gaps, &mut table)?;
    let answers = (0..order * order).map(|at| {
        let (i, j) = (at / order, at % order);
        match operation.reduction {
            Reduction::Correlation => table.correlation(i, j),
            _ => table.covariance(i, j),
        }
    });
    Ok(QueryOutcome {
        answers: answers.map(Answer::from).collect(),
        shape: Some(vec![order as u64, order as u64]),
        elements: plan.selection.cells(),
        strategy: "in_memory_materialize",
        ..QueryOutcome::default()
    })
}

/// Reads the selection, some observations at a time.
fn fold(plan: &Plan, over: usize, order: usize, gaps: bool, table: &mut Matrix) -> Result<()> {
    let dtype = plan.array.selected_field().dtype;
    // A cell as stored, and twice as a wide number: in its place, and in its column.
    let size = (dtype.size().unwrap_or(8) + 2 * size_of::<i128>()) as u64;
    let slice = plan.selection.slices()[over];
    let shape = plan.array.schema().shape().unwrap_or_default();
    let budget = plan.array.options().memory.map_or(PIECE, |memory| PIECE.min(memory / 8));
    let at_once = (budget / size / (order as u64).max(1)).max(1);
    let mut first = 0;
    while first < slice.count() {
        plan.array.options().cancel.check()?;
        let next = (first + at_once).min(slice.count());
        let mut slices = plan.selection.slices().to_vec();
        slices[over] = Slice {
            start: slice.start + first * slice.step,
            end: (slice.start + (next - 1) * slice.step + 1).min(slice.end),
            step: slice.step,
        };
        let part = Selection::new(slices, &shape)?;
        let block = plan.array.read(&part)?;
        let counts: Option<Vec<bool>> = if gaps {
            let out = left_out(plan, &block, &execution::selection_offset(plan, &part))?;
            let cells = block.bytes().len() / dtype.size().unwrap_or(1).max(1);
            let null = |i: usize| block.validity().is_some_and(|validity| validity[i] == 0);
            Some((0..cells).map(|i| !null(i) && !out.as_ref().is_some_and(|out| out[i])).collect())
        } else {
            None
        };
        let (cells, counts) = (block.bytes(), counts.as_deref());
        table.add(TableBlock { dtype, cells, by_variable: over == 1, counts })?;
        first = next;
    }
    Ok(())
}
