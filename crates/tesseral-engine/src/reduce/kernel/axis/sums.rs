//! Sums of the columns of a panel: integers in partial sums of a panel, floats added to
//! [exact sums](crate::reduce::exact::slots), several rows at a time.

use multiversion::multiversion;

use super::panel::Panel;
use crate::reduce::exact::block::{Real, product_cuts, rows_bounds};
use crate::reduce::exact::columns::ColumnSums;
use crate::reduce::exact::slots::{SlotRange, SlotSums};
use crate::reduce::exact::split::{Cut, First, ProductError, RoundedProduct, Term};
use crate::reduce::kernel::block::WorkType;

/// Exact sums of each position; those that are not requested, or not of the dtype, have no positions.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    pub integers: Vec<i128>,
    pub integer_squares: Vec<WideSquares>,
    pub floats: Option<SlotSums>,
    pub float_squares: Option<SlotSums>,
}

/// A sum of squares of integers, in 192 bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WideSquares {
    pub low: u128,
    pub high: u64,
}

impl WideSquares {
    #[inline(always)]
    pub fn add(&mut self, other: Self) {
        let (low, carry) = self.low.overflowing_add(other.low);
        self.low = low;
        self.high = self.high.wrapping_add(other.high).wrapping_add(u64::from(carry));
    }
}

/// Sums of the columns of a panel.
pub(crate) trait PanelSums<W>: Default {
    /// Bytes of the sums of a column while its panel is added, and whether all rows are read only once.
    fn column_bytes(spread: bool) -> (usize, bool);
    /// Starts a panel.
    fn reset(&mut self, columns: usize, spread: bool);
    /// Adds a row. Without `keep` it is complete; otherwise cells where it is 0 are excluded, and others are finite.
    fn add_row(&mut self, row: &[W], keep: Option<&[u8]>, to: &mut Sums, range: SlotRange);
    /// Adds rows without gaps as long as they are complete, and returns their number.
    fn add_rows(&mut self, panel: Panel<'_, W>, to: &mut Sums, range: SlotRange) -> usize;
    /// Ends a panel.
    fn finish(&mut self, to: &mut Sums, range: SlotRange);
}

/// An integer that columns consist of.
pub(crate) trait IntegerCell: WorkType {
    /// A sum of the cells of a panel's column.
    type Partial: Copy + Default + Into<i128>;
    /// The cell as a partial sum.
    fn partial(self) -> Self::Partial;
    /// Adds two partial sums.
    fn plus(a: Self::Partial, b: Self::Partial) -> Self::Partial;
    /// The square.
    fn square(self) -> u128;
}

macro_rules! integer_cells {
    ($($t:ty, $partial:ty;)*) => {$(
        impl IntegerCell for $t {
            type Partial = $partial;
            #[inline(always)]
            fn partial(self) -> $partial {
                <$partial>::from(self)
            }
            // Cannot overflow here; wrapping operations keep overflow checks out of the loops of test builds.
            #[inline(always)]
            fn plus(a: $partial, b: $partial) -> $partial {
                a.wrapping_add(b)
            }
            #[inline(always)]
            fn square(self) -> u128 {
                let magnitude = i128::from(self).unsigned_abs();
                magnitude.wrapping_mul(magnitude)
            }
        }
    )*};
}

integer_cells! {
    i8, i32;
    u8, i32;
    i16, i32;
    u16, i32;
    i32, i64;
    u32, i64;
    i64, i128;
    u64, i128;
}

/// Partial sums of integers.
pub(crate) struct IntegerSums<W: IntegerCell> {
    partial: Vec<W::Partial>,
    squares: Vec<WideSquares>,
}

impl<W: IntegerCell> Default for IntegerSums<W> {
    fn default() -> Self {
        Self { partial: Vec::new(), squares: Vec::new() }
    }
}

impl<W: IntegerCell> PanelSums<W> for IntegerSums<W> {
    fn column_bytes(spread: bool) -> (usize, bool) {
        (size_of::<W::Partial>() + if spread { size_of::<WideSquares>() } else { 0 }, !spread)
    }

    fn reset(&mut self, columns: usize, spread: bool) {
        self.partial.clear();
        self.partial.resize(columns, W::Partial::default());
        self.squares.clear();
        self.squares.resize(if spread { columns } else { 0 }, WideSquares::default());
    }

    fn add_row(&mut self, row: &[W], keep: Option<&[u8]>, _: &mut Sums, _: SlotRange) {
        let kept = |i: usize| keep.is_none_or(|keep| keep[i] != 0);
        for (i, (partial, &cell)) in self.partial.iter_mut().zip(row).enumerate() {
            let more = if kept(i) { cell.partial() } else { W::Partial::default() };
            *partial = W::plus(*partial, more);
        }
        for (i, (squares, &cell)) in self.squares.iter_mut().zip(row).enumerate() {
            squares.add(WideSquares { low: if kept(i) { cell.square() } else { 0 }, high: 0 });
        }
    }

    fn add_rows(&mut self, panel: Panel<'_, W>, _: &mut Sums, _: SlotRange) -> usize {
        add_integer_rows(panel, &mut self.partial);
        if !self.squares.is_empty() {
            for r in 0..panel.rows {
                for (squares, &cell) in self.squares.iter_mut().zip(panel.row(r)) {
                    squares.add(WideSquares { low: cell.square(), high: 0 });
                }
            }
        }
        panel.rows
    }

    fn finish(&mut self, to: &mut Sums, range: SlotRange) {
        for (i, &partial) in self.partial.iter().enumerate() {
            let partial: i128 = partial.into();
            to.integers[range.at(i)] += partial;
        }
        for (i, &squares) in self.squares.iter().enumerate() {
            to.integer_squares[range.at(i)].add(squares);
        }
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn add_integer_rows<W: IntegerCell>(panel: Panel<'_, W>, partial: &mut [W::Partial]) {
    add_rows_by_8(panel, partial);
}

/// Eight rows per pass load and store the partial sums once for eight cells.
#[inline(always)]
fn add_rows_by_8<W: IntegerCell>(panel: Panel<'_, W>, partial: &mut [W::Partial]) {
    let n = panel.columns;
    let partial = &mut partial[..n];
    let mut r = 0;
    while r + 8 <= panel.rows {
        let [a, b, c, d, e, f, g, h]: [&[W]; 8] = std::array::from_fn(|k| panel.row(r + k));
        for i in 0..n {
            let p = |row: &[W]| row[i].partial();
            let first = W::plus(W::plus(p(a), p(b)), W::plus(p(c), p(d)));
            let second = W::plus(W::plus(p(e), p(f)), W::plus(p(g), p(h)));
            partial[i] = W::plus(partial[i], W::plus(first, second));
        }
        r += 8;
    }
    for r in r..panel.rows {
        for (partial, cell) in partial.iter_mut().zip(panel.row(r)) {
            *partial = W::plus(*partial, cell.partial());
        }
    }
}

/// Buffers of float rows; their sums are exact at once.
#[derive(Default)]
pub(crate) struct FloatSums {
    spread: bool,
    terms: Vec<f64>,
    products: Vec<f64>,
    errors: Vec<f64>,
    /// Sums of the parts of the terms of some rows.
    parts: [Vec<f64>; 3],
    /// Sums of the columns of a panel, and the number of panels to add in another way, because they were not exact before.
    columns: ColumnSums,
    apart: u32,
}

/// How many panels after one whose sums were not exact are not read for them at once.
const APART: u32 = 15;
/// Rows whose columns are added in doubles without rounding; with fewer than [`FEW_ROWS`], the terms of each row are added.
const ADDED_ROWS: usize = 32;
const FEW_ROWS: usize = 4;

impl FloatSums {
    /// Adds all rows of a panel in one loop; false, without effect, if they have gaps, or doubles do not hold the sums.
    fn add_at_once<W: Real>(&mut self, panel: Panel<'_, W>, to: &mut Sums, range: SlotRange) -> bool {
        if panel.rows < FEW_ROWS || (self.spread && !W::EXACT_PRODUCT) {
            return false;
        }
        if self.apart > 0 {
            self.apart -= 1;
            return false;
        }
        let Some(sums) = &mut to.floats else { return false };
        let squares = to.float_squares.as_mut().filter(|_| self.spread);
        let rows = (panel.rows, panel.is_near());
        let added = self.columns.add(|r| panel.row(r), rows, sums, squares, range);
        self.apart = if added { 0 } else { APART };
        added
    }

    /// Adds rows without gaps, and their squares if requested; false, without effect, if doubles do not hold the sums of their parts.
    fn add_group<'a, W: Real + 'a, I: ExactSizeIterator<Item = &'a [W]>>(
        &mut self,
        rows: impl Fn() -> I,
        to: &mut Sums,
        range: SlotRange,
    ) -> bool {
        let bounds = match rows_bounds(rows()) {
            None => return false,
            Some(None) => return true,
            Some(Some(bounds)) => bounds,
        };
        let n = rows().len();
        let squares = bounds.times(bounds);
        let small = bounds.top < SlotSums::TOP && (!self.spread || squares.top < SlotSums::TOP);
        let (Some(cut), true) = (Cut::new(bounds, n), small) else { return false };
        let squared = if self.spread { product_cuts::<W>(squares, n).map(Some) } else { Some(None) };
        let (Some(squared), Some(sums)) = (squared, &mut to.floats) else { return false };
        self.add_columns::<W, First>(cut, rows(), sums, range);
        if let (Some((products, errors)), Some(squares)) = (squared, &mut to.float_squares) {
            self.add_columns::<W, RoundedProduct>(products, rows(), squares, range);
            if let Some(errors) = errors {
                self.add_columns::<W, ProductError>(errors, rows(), squares, range);
            }
        }
        true
    }

    /// Adds terms of the columns of rows.
    fn add_columns<'a, W: Real + 'a, K: Term>(
        &mut self,
        cut: Cut,
        rows: impl ExactSizeIterator<Item = &'a [W]>,
        to: &mut SlotSums,
        range: SlotRange,
    ) {
        let columns = self.terms.len();
        for part in self.parts.iter_mut().take(cut.parts()) {
            part.clear();
            part.resize(columns, 0.0);
        }
        cut.add_columns::<W, K>(rows, &mut self.parts);
        self.parts.iter_mut().take(cut.parts()).for_each(|part| to.add_terms(range, part));
    }

    /// Adds the squares of the terms, which are doubles themselves if `exact`.
    fn add_squares(&mut self, exact: bool, to: &mut SlotSums, range: SlotRange) {
        square(&self.terms, &mut self.products);
        if !exact {
            square_errors(&self.terms, &self.products, &mut self.errors);
            if !square_in_range(&self.terms) {
                for (i, &term) in self.terms.iter().enumerate().filter(|(_, x)| !in_square_range(**x)) {
                    to.limbs(range.at(i)).add_square(term);
                    (self.products[i], self.errors[i]) = (0.0, 0.0);
                }
            }
            to.add_terms(range, &mut self.errors);
        }
        to.add_terms(range, &mut self.products);
    }
}

impl<W: WorkType + Real> PanelSums<W> for FloatSums {
    fn column_bytes(spread: bool) -> (usize, bool) {
        match (W::EXACT_PRODUCT, spread) {
            (true, false) => (8, true),
            (true, true) => (24, true),
            (false, spread) => (16, !spread),
        }
    }

    fn reset(&mut self, columns: usize, spread: bool) {
        self.spread = spread;
        self.terms.resize(columns, 0.0);
        let squared = if spread { columns } else { 0 };
        self.products.resize(squared, 0.0);
        self.errors.resize(squared, 0.0);
    }

    fn add_row(&mut self, row: &[W], keep: Option<&[u8]>, to: &mut Sums, range: SlotRange) {
        let (Some(sums), squares) = (&mut to.floats, &mut to.float_squares) else { return };
        match keep {
            None => widen(row, &mut self.terms),
            Some(keep) => {
                widen_kept(row, keep, &mut self.terms);
                if !are_terms(&self.terms) {
                    for (i, term) in
                        self.terms.iter_mut().enumerate().filter(|(_, x)| x.abs() >= SlotSums::LIMIT)
                    {
                        sums.limbs(range.at(i)).add_f64(*term);
                        if let Some(squares) = squares {
                            squares.limbs(range.at(i)).add_square(*term);
                        }
                        *term = 0.0;
                    }
                }
            }
        }
        if let (true, Some(squares)) = (self.spread, squares) {
            self.add_squares(W::EXACT_PRODUCT, squares, range);
        }
        sums.add_terms(range, &mut self.terms);
    }

    fn add_rows(&mut self, panel: Panel<'_, W>, to: &mut Sums, range: SlotRange) -> usize {
        if self.add_at_once(panel, to, range) {
            return panel.rows;
        }
        let mut r = 0;
        while r < panel.rows {
            let end = panel.rows.min(r + ADDED_ROWS);
            if end - r >= FEW_ROWS && self.add_group(|| (r..end).map(|r| panel.row(r)), to, range) {
                r = end;
                continue;
            }
            for r in r..end {
                if !are_terms(panel.row(r)) {
                    return r;
                }
                self.add_row(panel.row(r), None, to, range);
            }
            r = end;
        }
        panel.rows
    }

    fn finish(&mut self, _: &mut Sums, _: SlotRange) {}
}

// Squares between these have a rounding error that is a double, and do not overflow.
const SQUARE_RANGE: (f64, f64) = (f64::from_bits((1023 - 480) << 52), f64::from_bits((1023 + 470) << 52));

#[inline(always)]
fn in_square_range(x: f64) -> bool {
    (x.abs() < SQUARE_RANGE.1) & ((x.abs() > SQUARE_RANGE.0) | (x == 0.0))
}

#[multiversion(targets("x86_64+avx2"))]
fn square_in_range(terms: &[f64]) -> bool {
    let mut all = true;
    for &x in terms {
        all &= in_square_range(x);
    }
    all
}

#[multiversion(targets("x86_64+avx2"))]
fn are_terms<W: Real>(row: &[W]) -> bool {
    W::are_terms(row)
}

#[multiversion(targets("x86_64+avx2"))]
fn widen<W: Real>(row: &[W], terms: &mut [f64]) {
    for (term, x) in terms.iter_mut().zip(row) {
        *term = x.wide();
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn widen_kept<W: Real>(row: &[W], keep: &[u8], terms: &mut [f64]) {
    for ((term, x), &keep) in terms.iter_mut().zip(row).zip(keep) {
        *term = if keep == 0 { 0.0 } else { x.wide() };
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn square(terms: &[f64], products: &mut [f64]) {
    for (product, x) in products.iter_mut().zip(terms) {
        *product = x * x;
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn square_errors(terms: &[f64], products: &[f64], errors: &mut [f64]) {
    for ((error, product), &x) in errors.iter_mut().zip(products).zip(terms) {
        *error = x.mul_add(x, -product);
    }
}
