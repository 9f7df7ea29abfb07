//! Covariance and correlation of the variables of a table: means first, then products of deviations from them.

use tesseral_core::Element;
use tesseral_core::{Error, Result, Selection, Slice, dispatch_element};
use tesseral_engine::fold::{Fold, Reducer, Role, State};
use tesseral_engine::kernel::summary::Wanted;

use super::document::{Operation, Reduction};
use super::outcome::{Answer, Outcome};
use super::parse::bad;
use super::plan::{Plan, axis};

/// Observations read at once.
const PIECE: u64 = 8 << 20;

pub(super) fn run(plan: &Plan, operation: &Operation) -> Result<Outcome> {
    let key = operation.reduction.key();
    if plan.selection.rank() != 2 {
        return Err(bad(key, "the array has two axes: variables and observations"));
    }
    let [token] = operation.axes.as_slice() else { return Err(bad(key, "exactly one axis of observations")) };
    let over = axis(&plan.array, key, token)?;
    if plan.predicate.is_some() || plan.masks.iter().any(Option::is_some) {
        return Err(bad(key, "it takes every cell: `filter` and `label_filter` do not go with it"));
    }
    let field = plan.array.selected_field();
    if field.nullable {
        return Err(Error::unsupported(format!("query key `{key}`: fields that can be null")));
    }
    let shape = plan.selection.shape();
    let order = usize::try_from(shape[1 - over]).unwrap_or(usize::MAX);
    let room = (order as u64).saturating_mul(order as u64).saturating_mul(24);
    plan.array.options().check_memory("the matrix", room)?;
    let mut roles = vec![Role::Keep; 2];
    roles[over] = Role::Reduce;
    let means = plan.folded(&Fold::new(Reducer::Summary(Wanted::SUM), roles))?;
    let means: Vec<f64> = means
        .states
        .iter()
        .map(|state| match state {
            State::Summary(summary) if summary.nans() == 0 => summary.mean().unwrap_or(f64::NAN),
            _ => f64::NAN,
        })
        .collect();
    let products = products(plan, over, &means)?;
    let n = shape[over];
    #[allow(clippy::cast_precision_loss)]
    let value = |i: usize, j: usize| {
        let (i, j) = if i <= j { (i, j) } else { (j, i) };
        products[i * order + j] / n as f64
    };
    let answers = (0..order * order).map(|at| {
        let (i, j) = (at / order, at % order);
        Answer::Float(match operation.reduction {
            Reduction::Correlation => {
                let scale = (value(i, i) * value(j, j)).sqrt();
                let correlation = value(i, j) / scale;
                // Rounding may step over the ends.
                if i == j && scale > 0.0 { 1.0 } else { correlation.clamp(-1.0, 1.0) }
            }
            _ => value(i, j),
        })
    });
    Ok(Outcome {
        answers: answers.collect(),
        shape: Some(vec![order as u64, order as u64]),
        elements: plan.selection.cells(),
        strategy: "in_memory_materialize",
        ..Outcome::default()
    })
}

/// Sums of products of deviations, for variables `i <= j`, compensated.
fn products(plan: &Plan, over: usize, means: &[f64]) -> Result<Vec<f64>> {
    let order = means.len();
    let dtype = plan.array.selected_field().dtype;
    let size = dtype.size().unwrap_or(8) as u64;
    let (mut sums, mut lost) = (vec![0.0; order * order], vec![0.0; order * order]);
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
        let block = plan.array.read(&Selection::new(slices, &shape)?)?;
        let rows = usize::try_from(next - first).unwrap_or(0);
        let mut deviations = vec![0.0; rows * order];
        dispatch_element!(dtype, T => {
            let cells = block.bytes().chunks_exact(size_of::<T>());
            for (i, cell) in cells.enumerate() {
                let value = bytemuck::pod_read_unaligned::<T>(cell);
                let (row, variable) = if over == 0 { (i / order, i % order) } else { (i % rows, i / rows) };
                deviations[row * order + variable] = deviation(value, means[variable]);
            }
        }, else => return Err(Error::unsupported(format!("matrices of {dtype}"))));
        for row in deviations.chunks_exact(order) {
            for (i, &a) in row.iter().enumerate() {
                for (j, &b) in row.iter().enumerate().skip(i) {
                    let at = i * order + j;
                    let (sum, x) = (sums[at], a * b);
                    let total: f64 = sum + x;
                    lost[at] +=
                        if f64::abs(sum) >= f64::abs(x) { (sum - total) + x } else { (x - total) + sum };
                    sums[at] = total;
                }
            }
        }
        first = next;
    }
    let whole = |(sum, lost): (&f64, &f64)| if sum.is_finite() { sum + lost } else { *sum };
    Ok(sums.iter().zip(&lost).map(whole).collect())
}

/// How far a cell lies from a mean; integers beyond 2^53 are not rounded first.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
fn deviation<T: Element>(value: T, mean: f64) -> f64 {
    if T::IS_FLOAT || !mean.is_finite() {
        return value.to_f64() - mean;
    }
    let whole = mean.floor();
    (value.to_i128() - whole as i128) as f64 - (mean - whole)
}
