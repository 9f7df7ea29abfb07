//! Rows of cells that fold into one result per column.
//!
//! ```text
//! for each 8 rows:  for each column:  partial[column] += the 8 cells of the column
//! for each row:     for each column:  min[column], max[column]
//! for each row:     for each column:  squares around the column's mean, which is known by then
//! ```
//!
//! 1. Adjacent columns are adjacent lanes, so every loop vectorizes, and the order of additions does not depend on the
//!    machine: a column adds its own cells in row order, eight at a time by halves.
//! 2. Eight rows per pass load and store the partial results once for eight cells, not once for each.
//! 3. A panel has at most [`ROWS`] rows, so a partial sum of floats loses no more than a pairwise sum would, and one
//!    of integers of up to 32 bits cannot overflow.
//! 4. Partial sums that are not finite and keys outside the infinities indicate NaNs, as in a
//!    [block](crate::kernel::block). Such panels, and those with nulls, use loops that test each cell.

use bytemuck::Zeroable;
use multiversion::multiversion;
use tesseral_core::Sum;

use crate::kernel::block::{WorkType, integer_center};

/// Maximum rows of a panel.
pub(crate) const ROWS: usize = 128;

/// The arithmetic of a panel column.
pub(crate) trait Column: WorkType {
    /// A sum of at most [`ROWS`] cells.
    type Partial: Copy + Send;
    /// The sum of no cells.
    const ZERO: Self::Partial;
    /// The narrowest key type.
    type Key: Copy + Ord + Into<i64>;
    /// The highest and the lowest key.
    const NO_KEYS: (Self::Key, Self::Key);
    /// A number near the mean of a column.
    type Center: Copy + Zeroable;
    /// The cell as a partial sum.
    fn partial(self) -> Self::Partial;
    /// Adds two partial sums.
    fn plus(a: Self::Partial, b: Self::Partial) -> Self::Partial;
    /// The final sum.
    fn total(partial: Self::Partial) -> Sum;
    /// The key in the narrow type.
    fn narrow_key(self) -> Self::Key;
    /// The center of `n` cells, at least one.
    fn center(partial: Self::Partial, n: u32) -> Self::Center;
    /// The center as a sum of two floats.
    fn center_parts(center: Self::Center) -> (f64, f64);
    /// The deviation of the cell from the center.
    fn deviation(self, center: Self::Center) -> f64;
}

macro_rules! columns {
    ($($t:ty, partial $partial:ty, zero $zero:expr, sum $sum:ident, key $key:ty, plus $plus:expr;)*) => {$(
        impl Column for $t {
            type Partial = $partial;
            const ZERO: $partial = $zero;
            type Key = $key;
            const NO_KEYS: ($key, $key) = (<$key>::MAX, <$key>::MIN);
            type Center = f64;
            #[inline(always)]
            fn partial(self) -> $partial {
                <$partial>::from(self)
            }
            #[inline(always)]
            fn plus(a: $partial, b: $partial) -> $partial {
                $plus(a, b)
            }
            #[inline(always)]
            #[allow(clippy::useless_conversion)]
            fn total(partial: $partial) -> Sum {
                Sum::$sum(partial.into())
            }
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation)]
            fn narrow_key(self) -> $key {
                self.key() as $key
            }
            #[inline(always)]
            #[allow(clippy::cast_precision_loss, clippy::cast_lossless)]
            fn center(partial: $partial, n: u32) -> f64 {
                let center = partial as f64 / f64::from(n);
                if center.is_finite() { center } else { 0.0 }
            }
            #[inline(always)]
            fn center_parts(center: f64) -> (f64, f64) {
                (center, 0.0)
            }
            #[inline(always)]
            fn deviation(self, center: f64) -> f64 {
                f64::from(self) - center
            }
        }
    )*};
}

// Integers cannot overflow here; wrapping operations keep overflow checks out of the loops of test builds.
columns! {
    i8, partial i32, zero 0, sum Int, key i8, plus i32::wrapping_add;
    u8, partial i32, zero 0, sum Int, key u8, plus i32::wrapping_add;
    i16, partial i32, zero 0, sum Int, key i16, plus i32::wrapping_add;
    u16, partial i32, zero 0, sum Int, key u16, plus i32::wrapping_add;
    i32, partial i64, zero 0, sum Int, key i32, plus i64::wrapping_add;
    u32, partial i64, zero 0, sum Int, key u32, plus i64::wrapping_add;
    f32, partial f64, zero 0.0, sum Float, key i32, plus std::ops::Add::add;
    f64, partial f64, zero 0.0, sum Float, key i64, plus std::ops::Add::add;
}

/// The center of 64-bit integers: an integer, so that only differences are rounded.
#[derive(Clone, Copy, Zeroable)]
pub(crate) struct IntegerCenter {
    /// The upper and lower 32 bits, as floats.
    halves: (f64, f64),
    parts: (f64, f64),
}

macro_rules! wide_columns {
    ($($t:ty, $half:ty);*) => {$(
        impl Column for $t {
            type Partial = i128;
            const ZERO: i128 = 0;
            type Key = i64;
            const NO_KEYS: (i64, i64) = (i64::MAX, i64::MIN);
            type Center = IntegerCenter;
            #[inline(always)]
            fn partial(self) -> i128 {
                i128::from(self)
            }
            #[inline(always)]
            fn plus(a: i128, b: i128) -> i128 {
                a.wrapping_add(b)
            }
            #[inline(always)]
            fn total(partial: i128) -> Sum {
                Sum::Int(partial)
            }
            #[inline(always)]
            fn narrow_key(self) -> i64 {
                self.key()
            }
            #[inline(always)]
            #[allow(clippy::cast_precision_loss)]
            fn center(partial: i128, n: u32) -> IntegerCenter {
                let (center, high, low) = integer_center(Sum::Int(partial), n as usize);
                IntegerCenter { halves: ((center >> 32) as f64, (center & 0xFFFF_FFFF) as f64), parts: (high, low) }
            }
            #[inline(always)]
            fn center_parts(center: IntegerCenter) -> (f64, f64) {
                center.parts
            }
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            fn deviation(self, center: IntegerCenter) -> f64 {
                const TWO_32: f64 = 4_294_967_296.0;
                let high = f64::from((self >> 32) as $half) - center.halves.0;
                let low = f64::from(self as u32) - center.halves.1;
                high * TWO_32 + low
            }
        }
    )*};
}

wide_columns! { i64, i32; u64, u32 }

/// A panel of rows and columns; rows begin `stride` cells apart, columns are adjacent.
#[derive(Clone, Copy)]
pub(crate) struct Panel<'a, T> {
    pub cells: &'a [T],
    pub stride: usize,
    pub rows: usize,
    pub columns: usize,
}

impl<'a, T> Panel<'a, T> {
    #[inline(always)]
    fn row(&self, r: usize) -> &'a [T] {
        &self.cells[r * self.stride..][..self.columns]
    }
}

/// Results per column, and their buffers.
pub(crate) struct Columns<W: Column> {
    pub partial: Vec<W::Partial>,
    pub min: Vec<W::Key>,
    pub max: Vec<W::Key>,
    /// Empty when there is neither a null nor a NaN.
    pub nulls: Vec<u32>,
    pub nans: Vec<u32>,
    pub center: Vec<W::Center>,
    pub s1: Vec<f64>,
    pub s2: Vec<f64>,
    keep: Vec<u8>,
}

/// The requested results.
#[derive(Clone, Copy)]
pub(crate) struct Requested {
    pub sum: bool,
    pub range: bool,
    pub spread: bool,
}

impl<W: Column> Columns<W> {
    pub fn new() -> Self {
        let (partial, min, max, center) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (nulls, nans, s1, s2, keep) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { partial, min, max, nulls, nans, center, s1, s2, keep }
    }

    /// Resets the requested results.
    fn reset(&mut self, n: usize, requested: Requested, gapped: bool) {
        fn set<T: Clone>(column: &mut Vec<T>, n: usize, value: T) {
            column.clear();
            column.resize(n, value);
        }
        set(&mut self.partial, if requested.sum { n } else { 0 }, W::ZERO);
        set(&mut self.min, if requested.range { n } else { 0 }, W::NO_KEYS.0);
        set(&mut self.max, if requested.range { n } else { 0 }, W::NO_KEYS.1);
        set(&mut self.nulls, if gapped { n } else { 0 }, 0);
        set(&mut self.nans, if gapped { n } else { 0 }, 0);
        self.keep.resize(if gapped { n } else { 0 }, 0);
    }

    /// Null or NaN cells of a column.
    #[inline(always)]
    pub fn gaps(&self, i: usize) -> u32 {
        self.nulls.get(i).map_or(0, |nulls| nulls + self.nans[i])
    }

    /// Folds a panel; previous results of the columns are discarded.
    pub fn fold(
        &mut self,
        panel: Panel<'_, W>,
        validity: Option<Panel<'_, u8>>,
        fill: Option<W>,
        requested: Requested,
    ) {
        let mut dense = validity.is_none() && fill.is_none();
        self.reset(panel.columns, requested, !dense);
        if dense {
            if requested.sum {
                add_rows(panel, &mut self.partial);
            }
            if requested.range {
                range_rows(panel, &mut self.min, &mut self.max);
            }
            if W::FLOAT && self.suspicious(requested) {
                dense = false;
                self.reset(panel.columns, requested, true);
            }
        }
        let gaps = (!dense).then_some(RowGaps { validity, fill });
        if let Some(gaps) = gaps {
            fold_gapped(panel, gaps, self, requested);
        }
        if requested.spread {
            self.center.clear();
            for i in 0..panel.columns {
                let n = panel.rows as u32 - self.gaps(i);
                self.center.push(W::center(self.partial[i], n.max(1)));
            }
            self.s1.clear();
            self.s1.resize(panel.columns, 0.0);
            self.s2.clear();
            self.s2.resize(panel.columns, 0.0);
            match gaps {
                None => spread_rows(panel, &self.center, &mut self.s1, &mut self.s2),
                Some(gaps) => spread_gapped(panel, gaps, self),
            }
        }
    }

    /// Whether the results indicate possible NaNs.
    fn suspicious(&self, requested: Requested) -> bool {
        if requested.sum {
            !self.partial.iter().fold(true, |all, &p| all & W::total(p).to_f64().is_finite())
        } else if requested.range {
            let out_of_range = |keys: &[W::Key]| {
                keys.iter().fold(false, |any, &key| {
                    let key: i64 = key.into();
                    any | (key <= W::KEYS.0) | (key >= W::KEYS.1)
                })
            };
            out_of_range(&self.min) | out_of_range(&self.max)
        } else {
            true
        }
    }
}

/// The null cells of a panel.
#[derive(Clone, Copy)]
struct RowGaps<'a, W> {
    validity: Option<Panel<'a, u8>>,
    fill: Option<W>,
}

impl<W: WorkType> RowGaps<'_, W> {
    /// Marks the cells of a row that are not null.
    #[inline(always)]
    fn mark(&self, r: usize, row: &[W], keep: &mut [u8]) {
        match self.validity.map(|v| v.row(r)) {
            Some(validity) => keep.iter_mut().zip(validity).for_each(|(keep, &v)| *keep = u8::from(v != 0)),
            None => keep.fill(1),
        }
        if let Some(fill) = self.fill {
            let filled = fill.nan();
            for (keep, &cell) in keep.iter_mut().zip(row) {
                *keep &= u8::from(!(cell == fill || (filled && cell.nan())));
            }
        }
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn add_rows<W: Column>(panel: Panel<'_, W>, partial: &mut [W::Partial]) {
    add_rows_by_8(panel, partial);
}

#[inline(always)]
fn add_rows_by_8<W: Column>(panel: Panel<'_, W>, partial: &mut [W::Partial]) {
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

#[multiversion(targets("x86_64+avx2"))]
fn range_rows<W: Column>(panel: Panel<'_, W>, min: &mut [W::Key], max: &mut [W::Key]) {
    range_rows_by_4(panel, min, max);
}

#[inline(always)]
fn range_rows_by_4<W: Column>(panel: Panel<'_, W>, min: &mut [W::Key], max: &mut [W::Key]) {
    let n = panel.columns;
    let (min, max) = (&mut min[..n], &mut max[..n]);
    let mut r = 0;
    while r + 4 <= panel.rows {
        let [a, b, c, d]: [&[W]; 4] = std::array::from_fn(|k| panel.row(r + k));
        for i in 0..n {
            let [a, b, c, d] = [a[i], b[i], c[i], d[i]].map(W::narrow_key);
            min[i] = min[i].min(a.min(b).min(c.min(d)));
            max[i] = max[i].max(a.max(b).max(c.max(d)));
        }
        r += 4;
    }
    for r in r..panel.rows {
        let row = panel.row(r);
        for i in 0..n {
            let key = row[i].narrow_key();
            min[i] = min[i].min(key);
            max[i] = max[i].max(key);
        }
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn spread_rows<W: Column>(panel: Panel<'_, W>, center: &[W::Center], s1: &mut [f64], s2: &mut [f64]) {
    spread_rows_by_4(panel, center, s1, s2);
}

#[inline(always)]
fn spread_rows_by_4<W: Column>(panel: Panel<'_, W>, center: &[W::Center], s1: &mut [f64], s2: &mut [f64]) {
    let n = panel.columns;
    let (center, s1, s2) = (&center[..n], &mut s1[..n], &mut s2[..n]);
    let mut r = 0;
    while r + 4 <= panel.rows {
        let [a, b, c, d]: [&[W]; 4] = std::array::from_fn(|k| panel.row(r + k));
        for i in 0..n {
            let (a, b) = (a[i].deviation(center[i]), b[i].deviation(center[i]));
            let (c, d) = (c[i].deviation(center[i]), d[i].deviation(center[i]));
            s1[i] += (a + b) + (c + d);
            s2[i] += (a * a + b * b) + (c * c + d * d);
        }
        r += 4;
    }
    for r in r..panel.rows {
        let row = panel.row(r);
        for i in 0..n {
            let d = row[i].deviation(center[i]);
            s1[i] += d;
            s2[i] += d * d;
        }
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn fold_gapped<W: Column>(
    panel: Panel<'_, W>,
    gaps: RowGaps<'_, W>,
    columns: &mut Columns<W>,
    requested: Requested,
) {
    fold_cell_by_cell(panel, gaps, columns, requested);
}

#[inline(always)]
fn fold_cell_by_cell<W: Column>(
    panel: Panel<'_, W>,
    gaps: RowGaps<'_, W>,
    columns: &mut Columns<W>,
    requested: Requested,
) {
    let n = panel.columns;
    let Columns { partial, min, max, nulls, nans, keep, .. } = columns;
    let (nulls, nans, keep) = (&mut nulls[..n], &mut nans[..n], &mut keep[..n]);
    for r in 0..panel.rows {
        let row = panel.row(r);
        gaps.mark(r, row, keep);
        for i in 0..n {
            nulls[i] += u32::from(1 - keep[i]);
        }
        if W::FLOAT {
            for i in 0..n {
                let nan = u8::from(row[i].nan()) & keep[i];
                nans[i] += u32::from(nan);
                keep[i] -= nan;
            }
        }
        if requested.sum {
            let partial = &mut partial[..n];
            for i in 0..n {
                let more = if keep[i] == 0 { W::ZERO } else { row[i].partial() };
                partial[i] = W::plus(partial[i], more);
            }
        }
        if requested.range {
            let (min, max) = (&mut min[..n], &mut max[..n]);
            for i in 0..n {
                let key = row[i].narrow_key();
                min[i] = min[i].min(if keep[i] == 0 { W::NO_KEYS.0 } else { key });
                max[i] = max[i].max(if keep[i] == 0 { W::NO_KEYS.1 } else { key });
            }
        }
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn spread_gapped<W: Column>(panel: Panel<'_, W>, gaps: RowGaps<'_, W>, columns: &mut Columns<W>) {
    spread_cell_by_cell(panel, gaps, columns);
}

#[inline(always)]
fn spread_cell_by_cell<W: Column>(panel: Panel<'_, W>, gaps: RowGaps<'_, W>, columns: &mut Columns<W>) {
    let n = panel.columns;
    let Columns { center, s1, s2, keep, .. } = columns;
    let (center, s1, s2, keep) = (&center[..n], &mut s1[..n], &mut s2[..n], &mut keep[..n]);
    for r in 0..panel.rows {
        let row = panel.row(r);
        gaps.mark(r, row, keep);
        for i in 0..n {
            let skipped = keep[i] == 0 || row[i].nan();
            let d = if skipped { 0.0 } else { row[i].deviation(center[i]) };
            s1[i] += d;
            s2[i] += d * d;
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Whether the multiversioned loops and the portable ones give the same bits.
    pub(crate) fn variants_agree<W: Column>(panel: Panel<'_, W>) -> bool {
        let n = panel.columns;
        let bits = |partial: &[W::Partial]| -> Vec<u64> {
            partial.iter().map(|&p| W::total(p).to_f64()).filter(|x| !x.is_nan()).map(f64::to_bits).collect()
        };
        let mut sums = [vec![W::ZERO; n], vec![W::ZERO; n]];
        add_rows(panel, &mut sums[0]);
        add_rows_by_8(panel, &mut sums[1]);
        let center: Vec<W::Center> = sums[0].iter().map(|&p| W::center(p, panel.rows as u32)).collect();
        let mut squares = [vec![0.0; n], vec![0.0; n], vec![0.0; n], vec![0.0; n]];
        let [a, b, c, d] = &mut squares;
        spread_rows(panel, &center, a, b);
        spread_rows_by_4(panel, &center, c, d);
        let floats =
            |x: &[f64]| -> Vec<u64> { x.iter().filter(|x| !x.is_nan()).map(|x| x.to_bits()).collect() };
        bits(&sums[0]) == bits(&sums[1]) && floats(a) == floats(c) && floats(b) == floats(d)
    }
}
