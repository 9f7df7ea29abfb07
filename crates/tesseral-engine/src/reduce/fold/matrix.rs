//! Covariances and correlations of all pairs of some variables, from exact sums of values and products. Where cells do not count, two
//! variables are compared over the observations that have both.

use tesseral_core::{DType, Element, Error, Result, dispatch_element};

use crate::options::Options;
use crate::reduce::exact::{Moments, Products};

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
#[derive(Clone, Debug)]
pub struct Matrix {
    order: usize,
    /// Whether cells can be missing.
    gaps: bool,
    /// Over all observations, unless some cells may not count.
    variables: Vec<VariableMoments>,
    /// Of variables `i <= j`, at `i * order + j`.
    pairs: Vec<Pair>,
}

/// Observations of all variables.
#[derive(Clone, Copy, Debug)]
pub struct TableBlock<'a> {
    /// The dtype of the variables.
    pub dtype: DType,
    /// Native-endian cells.
    pub cells: &'a [u8],
    /// Whether the observations of a variable are side by side; otherwise the variables of an observation are.
    pub by_variable: bool,
    /// Whether each cell counts; all of them without it.
    pub counts: Option<&'a [bool]>,
}

impl Matrix {
    /// The matrix of `order` variables without observations; `gaps` if some cells of blocks do not count.
    ///
    /// # Errors
    /// `Limit` when it exceeds the memory limit.
    pub fn new(order: usize, gaps: bool, options: &Options) -> Result<Self> {
        let pairs = (order as u64).saturating_mul(order as u64);
        let each = size_of::<Pair>() + if gaps { size_of::<[VariableMoments; 2]>() } else { 0 };
        options.check_memory("the matrix", pairs.saturating_mul(each as u64))?;
        let own = gaps.then(Box::default);
        let pair = Pair { own, ..Pair::default() };
        Ok(Self {
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

    /// The correctly rounded covariance of two variables; NaN if an observation is not finite, `None` without observations.
    pub fn covariance(&self, i: usize, j: usize) -> Option<f64> {
        let (pair, x, y) = self.pair(i, j)?;
        if x.undefined || y.undefined {
            return Some(f64::NAN);
        }
        Some(pair.products.covariance(&x.moments, &y.moments, pair.count, 0))
    }

    /// Their correlation, within one unit in the last place; that of a variable with itself is 1.
    pub fn correlation(&self, i: usize, j: usize) -> Option<f64> {
        let (pair, x, y) = self.pair(i, j)?;
        if x.undefined || y.undefined {
            return Some(f64::NAN);
        }
        let correlation = pair.products.correlation(&x.moments, &y.moments, pair.count);
        Some(if i == j && !correlation.is_nan() { 1.0 } else { correlation })
    }

    /// Adds observations.
    ///
    /// # Errors
    /// `Unsupported` for dtypes without arithmetic; `InvalidRequest` if the cells are not those of whole observations.
    pub fn add(&mut self, block: TableBlock<'_>) -> Result<()> {
        let (order, dtype) = (self.order, block.dtype);
        let cells = block.cells.len() / dtype.size().unwrap_or(1).max(1);
        let rows = cells.checked_div(order).unwrap_or(0);
        if rows * order != cells || block.counts.is_some_and(|counts| counts.len() != cells) {
            return Err(Error::invalid("expected whole observations of all variables"));
        }
        // Observations of one variable side by side.
        let place = |i: usize| if block.by_variable { i } else { i % order * rows + i / order };
        let columns: Vec<Observations> = dispatch_element!(dtype, T => {
            let cells = || block.cells.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>);
            let each = |i: usize| i * rows..(i + 1) * rows;
            if T::IS_FLOAT {
                let values = placed(rows * order, cells().map(|x| x.to_f64()), place);
                (0..order).map(|i| Observations::Floats(values[each(i)].to_vec())).collect()
            } else {
                let values = placed(rows * order, cells().map(|x| x.to_i128()), place);
                (0..order).map(|i| Observations::Integers(values[each(i)].to_vec())).collect()
            }
        }, else => return Err(Error::unsupported(format!("matrices of {dtype}"))));
        if !self.gaps && block.counts.is_none() {
            self.add_complete(&columns, rows);
            return Ok(());
        }
        if !self.gaps {
            return Err(Error::internal("a matrix without gaps has cells that do not count"));
        }
        let all = vec![true; cells];
        let counts = placed(cells, block.counts.unwrap_or(&all).iter().copied(), place);
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
