//! Covariance and correlation of the variables of a table, from exact sums of values and products. Where cells do not count, two
//! variables are compared over the observations that have both.

use tesseral_core::Element;
use tesseral_core::{Error, Result, Selection, Slice, dispatch_element};
use tesseral_engine::exact::{Moments, Products};

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
    let mut table = Table::new(plan, over, order, gaps)?;
    table.fold(plan)?;
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

/// Values of one variable.
#[derive(Clone, Debug)]
enum Observations {
    Floats(Vec<f64>),
    Integers(Vec<i128>),
}

impl Observations {
    fn len(&self) -> usize {
        match self {
            Self::Floats(values) => values.len(),
            Self::Integers(values) => values.len(),
        }
    }

    fn is_finite(&self, i: usize) -> bool {
        match self {
            Self::Floats(values) => values[i].is_finite(),
            Self::Integers(_) => true,
        }
    }

    fn pick(&self, rows: &[usize]) -> Self {
        match self {
            Self::Floats(values) => Self::Floats(rows.iter().map(|&row| values[row]).collect()),
            Self::Integers(values) => Self::Integers(rows.iter().map(|&row| values[row]).collect()),
        }
    }

    /// Adds finite values.
    fn add_to(&self, moments: &mut Moments) {
        match self {
            Self::Floats(values) => moments.add_floats(values),
            Self::Integers(values) => values.iter().for_each(|&x| moments.add_integer(x, 1, true)),
        }
    }

    /// Adds products of finite values.
    fn add_products(&self, other: &Self, products: &mut Products) {
        match (self, other) {
            (Self::Floats(x), Self::Floats(y)) => products.add_floats(x, y),
            (Self::Integers(x), Self::Integers(y)) => {
                x.iter().zip(y).for_each(|(&x, &y)| products.add_integers(x, y));
            }
            // The variables of a table are of one dtype.
            _ => {}
        }
    }
}

/// One variable over the observations that count.
#[derive(Clone, Debug, Default)]
struct VariableMoments {
    moments: Moments,
    /// An observation is NaN or infinite.
    undefined: bool,
}

impl VariableMoments {
    fn add(&mut self, column: &Observations) {
        let finite: Vec<usize> = (0..column.len()).filter(|&i| column.is_finite(i)).collect();
        if finite.len() == column.len() {
            column.add_to(&mut self.moments);
        } else {
            self.undefined = true;
            column.pick(&finite).add_to(&mut self.moments);
        }
    }
}

/// Two variables.
#[derive(Clone, Debug, Default)]
struct Pair {
    count: u64,
    products: Products,
    /// Both over the observations that have both, where some cells do not count.
    own: Option<Box<[VariableMoments; 2]>>,
}

/// State of all pairs of variables.
struct Table {
    over: usize,
    order: usize,
    /// Whether cells can be missing.
    gaps: bool,
    /// Over all observations, unless some cells may not count.
    variables: Vec<VariableMoments>,
    /// Of variables `i <= j`, at `i * order + j`.
    pairs: Vec<Pair>,
}

impl Table {
    fn new(plan: &Plan, over: usize, order: usize, gaps: bool) -> Result<Self> {
        let pairs = (order as u64).saturating_mul(order as u64);
        let each = size_of::<Pair>() + if gaps { size_of::<[VariableMoments; 2]>() } else { 0 };
        plan.array.options().check_memory("the matrix", pairs.saturating_mul(each as u64))?;
        let own = gaps.then(Box::default);
        let pair = Pair { own, ..Pair::default() };
        Ok(Self {
            over,
            order,
            gaps,
            variables: vec![VariableMoments::default(); order],
            pairs: vec![pair; order * order],
        })
    }

    /// The exact sums of a pair: its products, and its variables; `None` without observations.
    fn pair(&self, i: usize, j: usize) -> Option<(&Pair, &VariableMoments, &VariableMoments)> {
        let (i, j) = (i.min(j), i.max(j));
        let pair = &self.pairs[i * self.order + j];
        let (x, y) = match pair.own.as_deref() {
            Some([x, y]) => (x, y),
            None => (&self.variables[i], &self.variables[j]),
        };
        (pair.count > 0).then_some((pair, x, y))
    }

    fn covariance(&self, i: usize, j: usize) -> Option<f64> {
        let (pair, x, y) = self.pair(i, j)?;
        if x.undefined || y.undefined {
            return Some(f64::NAN);
        }
        Some(pair.products.covariance(&x.moments, &y.moments, pair.count, 0))
    }

    fn correlation(&self, i: usize, j: usize) -> Option<f64> {
        let (pair, x, y) = self.pair(i, j)?;
        if x.undefined || y.undefined {
            return Some(f64::NAN);
        }
        let correlation = pair.products.correlation(&x.moments, &y.moments, pair.count);
        Some(if i == j && !correlation.is_nan() { 1.0 } else { correlation })
    }

    /// Reads the selection, some observations at a time.
    fn fold(&mut self, plan: &Plan) -> Result<()> {
        let dtype = plan.array.selected_field().dtype;
        // A cell as stored, and twice as a wide number: in its place, and in its column.
        let size = (dtype.size().unwrap_or(8) + 2 * size_of::<i128>()) as u64;
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
        // Observations of one variable side by side.
        let place = |i: usize| if self.over == 0 { i % order * rows + i / order } else { i };
        let columns: Vec<Observations> = dispatch_element!(dtype, T => {
            let cells = || block.bytes().chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>);
            let each = |i: usize| i * rows..(i + 1) * rows;
            if T::IS_FLOAT {
                let values = placed(rows * order, cells().map(|x| x.to_f64()), place);
                (0..order).map(|i| Observations::Floats(values[each(i)].to_vec())).collect()
            } else {
                let values = placed(rows * order, cells().map(|x| x.to_i128()), place);
                (0..order).map(|i| Observations::Integers(values[each(i)].to_vec())).collect()
            }
        }, else => return Err(Error::unsupported(format!("matrices of {dtype}"))));
        if !self.gaps {
            self.add_complete(&columns, rows);
            return Ok(());
        }
        let out = left_out(plan, &block, &execution::selection_offset(plan, part))?;
        let counts = (0..rows * order).map(|i| {
            let null = block.validity().is_some_and(|validity| validity[i] == 0);
            !null && !out.as_ref().is_some_and(|out| out[i])
        });
        let counts = placed(rows * order, counts, place);
        self.add_common(&columns, |i| &counts[i * rows..(i + 1) * rows]);
        Ok(())
    }

    /// Adds observations that all variables have.
    fn add_complete(&mut self, columns: &[Observations], rows: usize) {
        for (variable, column) in self.variables.iter_mut().zip(columns) {
            variable.add(column);
        }
        for i in 0..self.order {
            for j in i..self.order {
                let pair = &mut self.pairs[i * self.order + j];
                pair.count += rows as u64;
                // Otherwise there is no covariance.
                if !self.variables[i].undefined && !self.variables[j].undefined {
                    columns[i].add_products(&columns[j], &mut pair.products);
                }
            }
        }
    }

    /// Adds observations that not all variables have.
    fn add_common<'a>(&mut self, columns: &[Observations], counts: impl Fn(usize) -> &'a [bool]) {
        for i in 0..self.order {
            for j in i..self.order {
                let both = counts(i).iter().zip(counts(j)).enumerate();
                let rows: Vec<usize> = both.filter(|(_, (a, b))| **a && **b).map(|(row, _)| row).collect();
                let (x, y) = (columns[i].pick(&rows), columns[j].pick(&rows));
                let pair = &mut self.pairs[i * self.order + j];
                pair.count += rows.len() as u64;
                let Some([a, b]) = pair.own.as_deref_mut() else { continue };
                a.add(&x);
                b.add(&y);
                if !a.undefined && !b.undefined {
                    x.add_products(&y, &mut pair.products);
                }
            }
        }
    }
}

/// Values in the order of their places.
fn placed<T: Clone + Default>(
    n: usize,
    values: impl Iterator<Item = T>,
    place: impl Fn(usize) -> usize,
) -> Vec<T> {
    let mut out = vec![T::default(); n];
    values.enumerate().for_each(|(i, value)| out[place(i)] = value);
    out
}
