//! Rows of cells that fold into one result per column.
//!
//! ```text
//! for each 8 rows:  for each column:  add the cells to the column's exact sums
//! for each 8 rows:  for each column:  min[column], max[column]
//! ```
//!
//! 1. Adjacent columns are adjacent lanes, so every loop vectorizes.
//! 2. A panel has at most [`ROWS`] rows, so a partial sum of integers of up to 32 bits cannot overflow, and is small enough for L2.
//! 3. Rows whose sums would not be finite, and keys outside the infinities, indicate NaNs. Such rows, and those with nulls, use
//!    loops that test each cell.

use multiversion::multiversion;

use super::ranges::KeptKey;
use super::sums::{FloatSums, IntegerSums, PanelSums, Sums};
use crate::reduce::exact::slots::SlotRange;
use crate::reduce::kernel::block::WorkType;

/// Maximum rows of a panel.
pub(crate) const ROWS: usize = 128;
/// Bytes from a row to the next up to which rows are read one after another.
const NEAR: usize = if cfg!(test) { 64 } else { 16 << 10 };
/// Rows that are tested for gaps before the next ones are taken to have none.
const GAPPED_ROWS: usize = 8;

/// The arithmetic of a panel column.
pub(crate) trait PanelColumn: WorkType {
    /// Sums of columns.
    type Sums: PanelSums<Self>;
    /// The narrowest key type.
    type Key: Copy + Ord + Into<i64> + Into<Self::Kept>;
    /// The type of the keys of a position.
    type Kept: KeptKey;
    /// The highest and the lowest key.
    const NO_KEYS: (Self::Key, Self::Key);
    /// The key in the narrow type.
    fn narrow_key(self) -> Self::Key;
}

macro_rules! columns {
    ($($t:ty, sums $sums:ty, key $key:ty, kept $kept:ty;)*) => {$(
        impl PanelColumn for $t {
            type Sums = $sums;
            type Key = $key;
            type Kept = $kept;
            const NO_KEYS: ($key, $key) = (<$key>::MAX, <$key>::MIN);
            #[inline(always)]
            fn narrow_key(self) -> $key {
                self.key() as $key
            }
        }
    )*};
}

columns! {
    i8, sums IntegerSums<i8>, key i8, kept i32;
    u8, sums IntegerSums<u8>, key u8, kept i32;
    i16, sums IntegerSums<i16>, key i16, kept i32;
    u16, sums IntegerSums<u16>, key u16, kept i32;
    i32, sums IntegerSums<i32>, key i32, kept i32;
    u32, sums IntegerSums<u32>, key u32, kept i64;
    i64, sums IntegerSums<i64>, key i64, kept i64;
    u64, sums IntegerSums<u64>, key i64, kept i64;
    f32, sums FloatSums, key i32, kept i32;
    f64, sums FloatSums, key i64, kept i64;
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

    /// Whether rows are so short and near each other that they are read faster one after another than several at a time.
    pub fn is_near(&self) -> bool {
        self.stride * size_of::<T>() <= NEAR
    }

    /// The rows from `r` on.
    fn skip_rows(self, r: usize) -> Self {
        let cells = self.cells.get(r * self.stride..).unwrap_or_default();
        Self { cells, rows: self.rows - r, ..self }
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
        if requested.sum {
            self.sums.reset(panel.columns, requested.spread);
        }
        let mut gapless = validity.is_none() && missing.is_empty();
        let mut r = 0;
        while r < panel.rows {
            if gapless {
                let rest = panel.skip_rows(r);
                let dense = if requested.sum { self.sums.add_rows(rest, to, range) } else { rest.rows };
                if requested.range {
                    range_rows(Panel { rows: dense, ..rest }, &mut self.min, &mut self.max);
                }
                if W::FLOAT && !requested.sum && self.suspicious(requested) {
                    self.reset_range(panel.columns, requested);
                    gapless = false;
                    continue;
                }
                r += dense;
            }
            let end = if gapless { panel.rows.min(r + GAPPED_ROWS) } else { panel.rows };
            if r < end && self.keep.len() < panel.columns {
                self.reset_counts(panel.columns);
            }
            for r in r..end {
                self.fold_gapped(panel.row(r), RowGaps { validity, missing }, r, requested, to, range);
            }
            r = end;
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
        if !requested.range {
            return true;
        }
        let (low, high) = extremes::<W>(&self.min, &self.max);
        low <= W::KEYS.0 || high >= W::KEYS.1
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

/// The lowest and the highest key of some columns.
#[multiversion(targets("x86_64+avx2"))]
fn extremes<W: PanelColumn>(min: &[W::Key], max: &[W::Key]) -> (i64, i64) {
    let low = min.iter().fold(W::NO_KEYS.0, |low, &key| key.min(low));
    let high = max.iter().fold(W::NO_KEYS.1, |high, &key| key.max(high));
    (low.into(), high.into())
}

#[multiversion(targets("x86_64+avx2"))]
fn range_rows<W: PanelColumn>(panel: Panel<'_, W>, min: &mut [W::Key], max: &mut [W::Key]) {
    range_rows_by_8(panel, min, max);
}

#[inline(always)]
fn range_rows_by_8<W: PanelColumn>(panel: Panel<'_, W>, min: &mut [W::Key], max: &mut [W::Key]) {
    let mut r = 0;
    while !panel.is_near() && r + 8 <= panel.rows {
        let rows: [&[W]; 8] = std::array::from_fn(|k| panel.row(r + k));
        range_columns(rows, min, max);
        r += 8;
    }
    (r..panel.rows).for_each(|r| range_columns([panel.row(r)], min, max));
}

#[inline(always)]
fn range_columns<W: PanelColumn, const R: usize>(rows: [&[W]; R], min: &mut [W::Key], max: &mut [W::Key]) {
    let n = min.len();
    let (rows, max) = (rows.map(|row| &row[..n]), &mut max[..n]);
    for i in 0..n {
        let (mut low, mut high) = (min[i], max[i]);
        for row in &rows {
            let key = row[i].narrow_key();
            low = key.min(low);
            high = key.max(high);
        }
        (min[i], max[i]) = (low, high);
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
