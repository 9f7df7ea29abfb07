//! Covariance and correlation of the variables of a table: means first, then products of deviations from them. Where cells do not
//! count, two variables are compared over the observations that have both.

use tesseral_core::Element;
use tesseral_core::{Error, Result, Selection, Slice, dispatch_element};
use tesseral_engine::fold::{Fold, Reducer, Role, State};
use tesseral_engine::kernel::summary::Wanted;

use super::document::{Operation, Reduction};
use super::execution::{self, left_out};
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
    let shape = plan.selection.shape();
    let order = usize::try_from(shape[1 - over]).unwrap_or(usize::MAX);
    let gaps = plan.predicate.is_some()
        || plan.array.selected_field().nullable
        || plan.masks.iter().any(Option::is_some);
    let mut table = Table::new(plan, over, order, gaps)?;
    table.fold(plan)?;
    let answers = (0..order * order).map(|at| {
        let (i, j) = (at / order, at % order);
        match operation.reduction {
            Reduction::Correlation => table.correlation(i, j),
            _ => table.pair(i, j).covariance(),
        }
    });
    Ok(Outcome {
        answers: answers.map(Answer::from).collect(),
        shape: Some(vec![order as u64, order as u64]),
        elements: plan.selection.cells(),
        strategy: "in_memory_materialize",
        ..Outcome::default()
    })
}

/// A compensated sum.
#[derive(Clone, Copy, Default)]
struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    fn add(&mut self, x: f64) {
        let (sum, total) = (self.sum, self.sum + x);
        self.lost += if sum.abs() >= x.abs() { (sum - total) + x } else { (x - total) + sum };
        self.sum = total;
    }

    fn value(self) -> f64 {
        if self.sum.is_finite() { self.sum + self.lost } else { self.sum }
    }
}

/// Two variables over the observations that have both, as sums of deviations from a centre of each.
#[derive(Clone, Copy, Default)]
struct Pair {
    count: u64,
    a: Sum,
    b: Sum,
    aa: Sum,
    ab: Sum,
    bb: Sum,
}

impl Pair {
    fn see(&mut self, a: f64, b: f64) {
        self.count += 1;
        let sums = [&mut self.a, &mut self.b, &mut self.aa, &mut self.ab, &mut self.bb];
        sums.into_iter().zip([a, b, a * a, a * b, b * b]).for_each(|(sum, x)| sum.add(x));
    }

    /// The mean product of deviations from the means; `None` of no observation.
    #[allow(clippy::cast_precision_loss)]
    fn moment(&self, product: Sum, a: Sum, b: Sum) -> Option<f64> {
        let n = self.count as f64;
        (self.count > 0).then(|| (product.value() - a.value() * (b.value() / n)) / n)
    }

    fn covariance(&self) -> Option<f64> {
        self.moment(self.ab, self.a, self.b)
    }
}

/// Variables beside one another.
struct Table {
    over: usize,
    order: usize,
    /// Some cells may not count.
    gaps: bool,
    /// About the mean of each variable.
    centres: Vec<f64>,
    /// Of variables `i <= j`, at `i * order + j`.
    pairs: Vec<Pair>,
}

impl Table {
    fn new(plan: &Plan, over: usize, order: usize, gaps: bool) -> Result<Self> {
        let pairs = (order as u64).saturating_mul(order as u64);
        let options = plan.array.options();
        options.check_memory("the matrix", pairs.saturating_mul(size_of::<Pair>() as u64))?;
        let mut roles = vec![Role::Keep; 2];
        roles[over] = Role::Reduce;
        let mut fold = Fold::new(Reducer::Summary(Wanted::SUM), roles);
        fold.predicate.clone_from(&plan.predicate);
        fold.masks.clone_from(&plan.masks);
        let centre = |state: &State| match state {
            State::Summary(summary) => summary.mean().filter(|mean| mean.is_finite()).unwrap_or(0.0),
            _ => 0.0,
        };
        let centres = plan.folded(&fold)?.states.iter().map(centre).collect();
        Ok(Self { over, order, gaps, centres, pairs: vec![Pair::default(); order * order] })
    }

    fn pair(&self, i: usize, j: usize) -> &Pair {
        &self.pairs[i.min(j) * self.order + i.max(j)]
    }

    fn correlation(&self, i: usize, j: usize) -> Option<f64> {
        let pair = self.pair(i, j);
        let (a, b) = match self.gaps {
            true => (pair.moment(pair.aa, pair.a, pair.a)?, pair.moment(pair.bb, pair.b, pair.b)?),
            false => (self.pair(i, i).covariance()?, self.pair(j, j).covariance()?),
        };
        let (scale, covariance) = (a.sqrt() * b.sqrt(), pair.covariance()?);
        // Rounding may step over the ends.
        Some(if i == j && scale > 0.0 { 1.0 } else { (covariance / scale).clamp(-1.0, 1.0) })
    }

    /// Reads the selection, some observations at a time.
    fn fold(&mut self, plan: &Plan) -> Result<()> {
        let dtype = plan.array.selected_field().dtype;
        let size = dtype.size().unwrap_or(8) as u64;
        let slice = plan.selection.slices()[self.over];
        let shape = plan.array.schema().shape().unwrap_or_default();
        let budget = plan.array.options().memory.map_or(PIECE, |memory| PIECE.min(memory / 8));
        let at_once = (budget / size / (self.order as u64).max(1)).max(1);
        let mut first = 0;
        while first < slice.count() {
            plan.array.options().cancel.check()?;
            let next = (first + at_once).min(slice.count());
            let mut slices = plan.selection.slices().to_vec();
            slices[self.over] = Slice {
                start: slice.start + first * slice.step,
                end: (slice.start + (next - 1) * slice.step + 1).min(slice.end),
                step: slice.step,
            };
            self.see(plan, &Selection::new(slices, &shape)?)?;
            first = next;
        }
        Ok(())
    }

    fn see(&mut self, plan: &Plan, part: &Selection) -> Result<()> {
        let block = plan.array.read(part)?;
        let rows = usize::try_from(block.shape[self.over]).unwrap_or(0);
        let order = self.order;
        let dtype = plan.array.selected_field().dtype;
        let place = |i: usize| if self.over == 0 { i } else { i % rows * order + i / rows };
        let mut deviations = vec![0.0; rows * order];
        dispatch_element!(dtype, T => {
            for (i, cell) in block.bytes().chunks_exact(size_of::<T>()).enumerate() {
                let at = place(i);
                deviations[at] = deviation(bytemuck::pod_read_unaligned::<T>(cell), self.centres[at % order]);
            }
        }, else => return Err(Error::unsupported(format!("matrices of {dtype}"))));
        let mut counts = vec![true; if self.gaps { rows * order } else { 0 }];
        if self.gaps {
            let out = left_out(plan, &block, &execution::place(plan, part))?;
            for i in 0..counts.len() {
                let null = block.validity().is_some_and(|validity| validity[i] == 0);
                counts[place(i)] = !null && !out.as_ref().is_some_and(|out| out[i]);
            }
        }
        for (r, row) in deviations.chunks_exact(order).enumerate() {
            let there = |i: usize| !self.gaps || counts[r * order + i];
            for i in (0..order).filter(|i| there(*i)) {
                for j in (i..order).filter(|j| there(*j)) {
                    let pair = &mut self.pairs[i * order + j];
                    if self.gaps {
                        pair.see(row[i], row[j]);
                    } else {
                        // Deviations from the mean itself add up to nothing.
                        pair.count += 1;
                        pair.ab.add(row[i] * row[j]);
                    }
                }
            }
        }
        Ok(())
    }
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
