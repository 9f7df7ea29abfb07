//! Rows of cells that fold into one result per column.
//!
//! ```text
//! for each row, or eight for integers:  for each column:  add the cells to the column's exact sums
//! for each 4 rows:                      for each column:  min[column], max[column]
//! ```
//!
//! 1. Adjacent columns are adjacent lanes, so every loop vectorizes.
//! 2. A panel has at most [`ROWS`] rows, so a partial sum of integers of up to 32 bits cannot overflow, and is small enough for L2.
//! 3. Rows whose sums would not be finite, and keys outside the infinities, indicate NaNs. Such panels, and those with nulls, use
//!    loops that test each cell.

use multiversion::multiversion;

use super::sums::{FloatSums, IntegerSums, PanelSums, Sums};
use crate::reduce::exact::slots::SlotRange;
use crate::reduce::kernel::block::WorkType;

/// Maximum rows of a panel.
pub(crate) const ROWS: usize = 128;

/// The arithmetic of a panel column.
pub(crate) trait PanelColumn: WorkType {
    /// Sums of columns.
    type Sums: PanelSums<Self>;
    /// The narrowest key type.
    type Key: Copy + Ord + Into<i64>;
    /// The highest and the lowest key.
    const NO_KEYS: (Self::Key, Self::Key);
    /// The key in the narrow type.
    fn narrow_key(self) -> Self::Key;
}

macro_rules! columns {
    ($($t:ty, sums $sums:ty, key $key:ty;)*) => {$(
        impl PanelColumn for $t {
            type Sums = $sums;
            type Key = $key;
            const NO_KEYS: ($key, $key) = (<$key>::MAX, <$key>::MIN);
            #[inline(always)]
            fn narrow_key(self) -> $key {
                self.key() as $key
            }
        }
    )*};
}

columns! {
    i8, sums IntegerSums<i8>, key i8;
    u8, sums IntegerSums<u8>, key u8;
    i16, sums IntegerSums<i16>, key i16;
    u16, sums IntegerSums<u16>, key u16;
    i32, sums IntegerSums<i32>, key i32;
    u32, sums IntegerSums<u32>, key u32;
    i64, sums IntegerSums<i64>, key i64;
    u64, sums IntegerSums<u64>, key i64;
    f32, sums FloatSums, key i32;
    f64, sums FloatSums, key i64;
}

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
    pub fn row(&self, r: usize) -> &'a [T] {
        &self.cells[r * self.stride..][..self.columns]
    }
}

/// Results per column, and their buffers. Sums go to their positions as they are computed.
pub(crate) struct Columns<W: PanelColumn> {
    sums: W::Sums,
    pub min: Vec<W::Key>,
    pub max: Vec<W::Key>,
    /// Empty if no cell is excluded.
    pub nulls: Vec<u32>,
    pub nans: Vec<u32>,
    pub infinities: [Vec<u32>; 2],
    keep: Vec<u8>,
}

/// The requested results.
#[derive(Clone, Copy)]
pub(crate) struct Requested {
    pub sum: bool,
    pub range: bool,
    pub spread: bool,
}

impl<W: PanelColumn> Columns<W> {
    pub fn new() -> Self {
        let (min, max, keep) = (Vec::new(), Vec::new(), Vec::new());
        let (nulls, nans, infinities) = (Vec::new(), Vec::new(), [Vec::new(), Vec::new()]);
        Self { sums: W::Sums::default(), min, max, nulls, nans, infinities, keep }
    }

    fn reset_range(&mut self, n: usize, requested: Requested) {
        let n = if requested.range { n } else { 0 };
        self.min.clear();
        self.min.resize(n, W::NO_KEYS.0);
        self.max.clear();
        self.max.resize(n, W::NO_KEYS.1);
    }

    fn reset_counts(&mut self, n: usize) {
        let [negative, positive] = &mut self.infinities;
        for counts in [&mut self.nulls, &mut self.nans, negative, positive] {
            counts.clear();
            counts.resize(n, 0);
        }
        self.keep.resize(n, 0);
    }

    /// Folds a panel; previous results of the columns are discarded. Sums are added to the positions of `range`.
    pub fn fold(
        &mut self,
        panel: Panel<'_, W>,
        validity: Option<Panel<'_, u8>>,
        missing: &[W],
        requested: Requested,
        to: &mut Sums,
        range: SlotRange,
    ) {
        self.reset_range(panel.columns, requested);
        self.reset_counts(0);
        let mut dense = if validity.is_some() || !missing.is_empty() { 0 } else { panel.rows };
        if requested.sum {
            self.sums.reset(panel.columns, requested.spread);
            let rows = Panel { rows: dense, ..panel };
            dense = self.sums.add_rows(rows, to, range);
        }
        if requested.range && dense > 0 {
            range_rows(Panel { rows: dense, ..panel }, &mut self.min, &mut self.max);
        }
        if W::FLOAT && !requested.sum && dense > 0 && self.suspicious(requested) {
            self.reset_range(panel.columns, requested);
            dense = 0;
        }
        if dense < panel.rows {
            self.reset_counts(panel.columns);
            let gaps = RowGaps { validity, missing };
            for r in dense..panel.rows {
                self.fold_gapped(panel.row(r), gaps, r, requested, to, range);
            }
        }
        if requested.sum {
            self.sums.finish(to, range);
        }
    }

    /// Adds a row of which some cells may be excluded.
    fn fold_gapped(
        &mut self,
        row: &[W],
        gaps: RowGaps<'_, W>,
        r: usize,
        requested: Requested,
        to: &mut Sums,
        range: SlotRange,
    ) {
        let [negative, positive] = &mut self.infinities;
        mark_row(gaps, r, row, &mut self.keep, &mut self.nulls, &mut self.nans);
        if requested.range {
            range_kept(row, &self.keep, &mut self.min, &mut self.max);
        }
        if requested.sum {
            if W::FLOAT {
                drop_infinities(row, &mut self.keep, negative, positive);
            }
            self.sums.add_row(row, Some(&self.keep), to, range);
        }
    }

    /// Whether the range indicates possible NaNs.
    fn suspicious(&self, requested: Requested) -> bool {
        let out_of_range = |keys: &[W::Key]| {
            keys.iter().fold(false, |any, &key| {
                let key: i64 = key.into();
                any | (key <= W::KEYS.0) | (key >= W::KEYS.1)
            })
        };
        !requested.range || out_of_range(&self.min) | out_of_range(&self.max)
    }
}

/// The null cells of a panel.
#[derive(Clone, Copy)]
struct RowGaps<'a, W> {
    validity: Option<Panel<'a, u8>>,
    missing: &'a [W],
}

impl<W: WorkType> RowGaps<'_, W> {
    /// Marks the cells of a row that are not null.
    #[inline(always)]
    fn mark(&self, r: usize, row: &[W], keep: &mut [u8]) {
        match self.validity.map(|v| v.row(r)) {
            Some(validity) => keep.iter_mut().zip(validity).for_each(|(keep, &v)| *keep = u8::from(v != 0)),
            None => keep.fill(1),
        }
        for &value in self.missing {
            let any_nan = value.nan();
            for (keep, &cell) in keep.iter_mut().zip(row) {
                *keep &= u8::from(!(cell == value || (any_nan && cell.nan())));
            }
        }
    }
}

#[multiversion(targets("x86_64+avx2"))]
fn range_rows<W: PanelColumn>(panel: Panel<'_, W>, min: &mut [W::Key], max: &mut [W::Key]) {
    range_rows_by_4(panel, min, max);
}

#[inline(always)]
fn range_rows_by_4<W: PanelColumn>(panel: Panel<'_, W>, min: &mut [W::Key], max: &mut [W::Key]) {
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

/// Marks the cells of a row that are neither null nor NaN, and counts the others.
#[multiversion(targets("x86_64+avx2"))]
fn mark_row<W: PanelColumn>(
    gaps: RowGaps<'_, W>,
    r: usize,
    row: &[W],
    keep: &mut [u8],
    nulls: &mut [u32],
    nans: &mut [u32],
) {
    mark_cells(gaps, r, row, keep, nulls, nans);
}

#[inline(always)]
fn mark_cells<W: PanelColumn>(
    gaps: RowGaps<'_, W>,
    r: usize,
    row: &[W],
    keep: &mut [u8],
    nulls: &mut [u32],
    nans: &mut [u32],
) {
    gaps.mark(r, row, keep);
    let n = row.len();
    let (keep, nulls, nans) = (&mut keep[..n], &mut nulls[..n], &mut nans[..n]);
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
}

/// Counts the infinities of a row, and marks them as excluded.
#[multiversion(targets("x86_64+avx2"))]
fn drop_infinities<W: PanelColumn>(row: &[W], keep: &mut [u8], negative: &mut [u32], positive: &mut [u32]) {
    let n = row.len();
    let (keep, negative, positive) = (&mut keep[..n], &mut negative[..n], &mut positive[..n]);
    for i in 0..n {
        let key = row[i].key();
        let low = u8::from(key == W::KEYS.0) & keep[i];
        let high = u8::from(key == W::KEYS.1) & keep[i];
        negative[i] += u32::from(low);
        positive[i] += u32::from(high);
        keep[i] -= low + high;
    }
}

/// Minimum and maximum of the marked cells of a row.
#[multiversion(targets("x86_64+avx2"))]
fn range_kept<W: PanelColumn>(row: &[W], keep: &[u8], min: &mut [W::Key], max: &mut [W::Key]) {
    let n = row.len();
    let (keep, min, max) = (&keep[..n], &mut min[..n], &mut max[..n]);
    for i in 0..n {
        let key = row[i].narrow_key();
        min[i] = min[i].min(if keep[i] == 0 { W::NO_KEYS.0 } else { key });
        max[i] = max[i].max(if keep[i] == 0 { W::NO_KEYS.1 } else { key });
    }
}
