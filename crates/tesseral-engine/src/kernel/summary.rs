//! A fused pass over cells: counts, minimum and maximum, sum and mean, variance.
//!
//! A [`Summary`] is the state of such a pass. States of parts merge into the state of the whole, in an order chosen by the
//! caller; equal parts merged in equal order give equal bits, whatever thread or process folded them.
//!
//! Minimum, maximum, sum, mean and variance cover the cells that are neither null nor NaN; infinities follow IEEE 754. −0.0 is
//! smaller than 0.0.
//!
//! # Algorithm
//!
//! ```text
//! for each block of at most 16 KiB:
//!     cells are null in it        -> compact the others, without NaNs, into a scratch block and continue with that
//!     sum and range, as requested -> they show whether NaNs or infinities are possible; only then count,
//!                                    and if there is a NaN, compact the others and restart
//!     squares, if requested       -> around the block's mean, which is known by then
//!     merge into the state        -> integers exactly, float sums after Neumaier, squares after Chan
//! ```
//!
//! 1. The block is in L1 after its first loop, so further loops cost arithmetic only. See `block`.
//! 2. Statistics that were not requested are not computed.
//! 3. Blocks with gaps are compacted once, without branches, so that no loop needs a masked variant.

use std::ops::BitOr;

use bytemuck::Zeroable;
use multiversion::multiversion;
use tesseral_core::{ChunkStats, DType, Element, Error, Result, Scalar, Sum, dispatch_element};

use super::block::{Cell, Moments, WorkType, compensated, moments, neumaier, range, specials, sum};

mod wire;

/// The requested statistics of a [`Summary`]. Counts of cells, nulls and NaNs are always included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Wanted(u8);

impl Wanted {
    /// Counts only.
    pub const COUNTS: Self = Self(0);
    /// Minimum and maximum.
    pub const RANGE: Self = Self(1);
    /// Sum and mean.
    pub const SUM: Self = Self(2);
    /// Variance and standard deviation, and the sum they need.
    pub const SPREAD: Self = Self(2 | 4);
    /// The number of infinite cells.
    pub const INFINITIES: Self = Self(8);
    /// Everything.
    pub const ALL: Self = Self(1 | 2 | 4 | 8);

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// The statistics with these bits; unknown bits are ignored.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        let known = bits & Self::ALL.0;
        Self(if known & 4 == 0 { known } else { known | Self::SPREAD.0 })
    }

    /// Whether all of `other` is requested.
    #[inline]
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Wanted {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The statistics of the cells folded so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    dtype: DType,
    wanted: Wanted,
    cells: u64,
    nulls: u64,
    nans: u64,
    infinities: u64,
    /// Keys of minimum and maximum, in the order of values; undefined while there is no value.
    range: (i64, i64),
    /// Integer sum.
    int_sum: i128,
    /// Float sum and its rounding error.
    float_sum: (f64, f64),
    moments: Moments,
}

impl Summary {
    /// The summary of no cells.
    ///
    /// # Errors
    /// `Unsupported` for dtypes that have no order and no sum: complex numbers, bitmasks, text.
    pub fn new(dtype: DType, wanted: Wanted) -> Result<Self> {
        if !dispatch_element!(dtype, T => size_of::<T>() > 0, else => false) {
            return Err(Error::unsupported(format!("statistics of {dtype}")));
        }
        Ok(Self {
            dtype,
            wanted,
            cells: 0,
            nulls: 0,
            nans: 0,
            infinities: 0,
            range: (i64::MAX, i64::MIN),
            int_sum: 0,
            float_sum: (0.0, 0.0),
            moments: Moments::default(),
        })
    }

    /// Adds cells, native-endian and unaligned. `validity` has one byte per cell, 0 for null; a cell equal to `fill` is null too,
    /// as is any NaN when `fill` is NaN.
    ///
    /// # Errors
    /// `InvalidRequest` when the bytes are not whole cells, or the length of `validity` or the dtype of `fill` differs; `Limit` when
    /// a count or an integer sum overflows, after which the summary is invalid.
    #[inline]
    pub fn fold(&mut self, cells: &[u8], validity: Option<&[u8]>, fill: Option<&Scalar>) -> Result<()> {
        dispatch_element!(self.dtype, T => {
            let count = cells.len() / size_of::<T>();
            if !cells.len().is_multiple_of(size_of::<T>()) || validity.is_some_and(|v| v.len() != count) {
                return Err(self.length_mismatch(cells.len(), validity));
            }
            let runs = Runs { cells, validity, len: count, stride: count, count: 1 };
            fold_runs::<T>(self, runs, typed::<T>(self.dtype, fill)?)
        }, else => Err(Error::unsupported(format!("statistics of {}", self.dtype))))
    }

    /// Adds `runs` runs of `run_len` cells that begin `stride` cells apart; `validity` has the layout of the cells.
    ///
    /// Much cheaper than a [`fold`](Self::fold) for each when runs are short. All runs together are one sequence of cells,
    /// except that long runs are not joined.
    ///
    /// # Errors
    /// As [`fold`](Self::fold), and `InvalidRequest` when the last run exceeds the cells.
    pub fn fold_runs(
        &mut self,
        cells: &[u8],
        run_len: usize,
        stride: usize,
        runs: usize,
        validity: Option<&[u8]>,
        fill: Option<&Scalar>,
    ) -> Result<()> {
        if runs == 0 || run_len == 0 {
            return Ok(());
        }
        dispatch_element!(self.dtype, T => {
            let needed = stride.checked_mul(runs - 1).and_then(|n| n.checked_add(run_len));
            let needed_bytes = needed.and_then(|n| n.checked_mul(size_of::<T>()));
            let fits = needed_bytes.is_some_and(|n| n <= cells.len());
            if !fits || validity.is_some_and(|v| needed.is_none_or(|n| n > v.len())) {
                return Err(self.length_mismatch(cells.len(), validity));
            }
            let runs = Runs { cells, validity, len: run_len, stride, count: runs };
            fold_runs::<T>(self, runs, typed::<T>(self.dtype, fill)?)
        }, else => Err(Error::unsupported(format!("statistics of {}", self.dtype))))
    }

    /// Adds `n` cells of the same value.
    ///
    /// # Errors
    /// `InvalidRequest` when the dtype of the value differs, `Limit` when a count or an integer sum overflows.
    pub fn fold_value_repeated(&mut self, value: &Scalar, n: u64) -> Result<()> {
        if n == 0 {
            return Ok(());
        }
        dispatch_element!(self.dtype, T => {
            let value = typed::<T>(self.dtype, Some(value))?.unwrap_or_else(T::zeroed);
            self.repeat(value, n)
        }, else => Err(Error::unsupported(format!("statistics of {}", self.dtype))))
    }

    /// Adds `n` null cells.
    ///
    /// # Errors
    /// `Limit` when the count overflows.
    pub fn fold_nulls(&mut self, n: u64) -> Result<()> {
        self.cells = self.checked_count(n)?;
        self.nulls += n;
        Ok(())
    }

    fn repeat<T: Cell>(&mut self, value: T, n: u64) -> Result<()> {
        let cells = self.checked_count(n)?;
        if value.is_nan() {
            self.cells = cells;
            self.nans += n;
            return Ok(());
        }
        let mut part = Summary { cells: n, ..Self::new(self.dtype, self.wanted)? };
        part.infinities = if value.is_infinite() { n } else { 0 };
        let key = value.widen().key();
        part.range = (key, key);
        if T::IS_FLOAT {
            // A count above 2^53 is not an exact float, its halves are; a fused multiply-add gives the rounding error of a
            // product.
            let value = value.to_f64();
            for half in [n >> 32 << 32, n & 0xFFFF_FFFF] {
                #[allow(clippy::cast_precision_loss)]
                let half = half as f64;
                let product = if half == 0.0 { 0.0 } else { value * half };
                neumaier(&mut part.float_sum.0, &mut part.float_sum.1, product);
                if product.is_finite() {
                    part.float_sum.1 += value.mul_add(half, -product);
                }
            }
            part.moments = Moments::constant(value, 0.0);
            if part.infinities > 0 {
                part.moments.m2 = f64::NAN;
            }
        } else {
            let value = value.to_i128();
            part.int_sum = value.checked_mul(i128::from(n)).ok_or_else(|| sum_limit(n))?;
            #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
            let (high, low) = (value as f64, (value - value as f64 as i128) as f64);
            part.moments = Moments::constant(high, low);
        }
        self.merge(&part.pruned())
    }

    /// The state without statistics that were not requested, so that equal cells always give equal states.
    fn pruned(mut self) -> Self {
        let none = (i64::MAX, i64::MIN);
        self.range = if self.wanted.has(Wanted::RANGE) { self.range } else { none };
        if !self.wanted.has(Wanted::SUM) {
            (self.int_sum, self.float_sum) = (0, (0.0, 0.0));
        }
        if !self.wanted.has(Wanted::SPREAD) {
            self.moments = Moments::default();
        }
        if !self.wanted.has(Wanted::INFINITIES) {
            self.infinities = 0;
        }
        self
    }

    /// Adds the cells of another summary, as if they had been folded after these.
    ///
    /// # Errors
    /// `InvalidRequest` when dtype or requested statistics differ, `Limit` when a count or an integer sum overflows. The summary is
    /// unchanged on error.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if self.dtype != other.dtype || self.wanted != other.wanted {
            return Err(Error::invalid(format!(
                "summaries do not merge: {} into {}",
                other.dtype, self.dtype
            )));
        }
        let cells = self.checked_count(other.cells)?;
        let int_sum = self.int_sum.checked_add(other.int_sum).ok_or_else(|| sum_limit(cells))?;
        #[allow(clippy::cast_precision_loss)]
        self.moments.merge(self.valid() as f64, &other.moments, other.valid() as f64);
        self.range = (self.range.0.min(other.range.0), self.range.1.max(other.range.1));
        self.int_sum = int_sum;
        neumaier(&mut self.float_sum.0, &mut self.float_sum.1, other.float_sum.0);
        self.float_sum.1 += other.float_sum.1;
        self.cells = cells;
        self.nulls += other.nulls;
        self.nans += other.nans;
        self.infinities += other.infinities;
        Ok(())
    }

    /// Adds the cells of a chunk from its statistics; returns `false`, without a change, when they are insufficient.
    ///
    /// # Errors
    /// As [`merge`](Self::merge).
    pub fn merge_stats(&mut self, stats: &ChunkStats) -> Result<bool> {
        let part = dispatch_element!(self.dtype, T => self.stats_part::<T>(stats)?, else => None);
        part.map_or(Ok(false), |part| self.merge(&part).map(|()| true))
    }

    /// The summary of a chunk from its statistics.
    fn stats_part<T: Cell>(&self, stats: &ChunkStats) -> Result<Option<Self>> {
        let Some(&nulls) = stats.nulls.exact() else { return Ok(None) };
        let nans = if T::IS_FLOAT { stats.nans.exact().copied() } else { Some(0) };
        let Some(nans) = nans else { return Ok(None) };
        let Some(valid) = stats.cells.checked_sub(nulls).and_then(|n| n.checked_sub(nans)) else {
            return Ok(None);
        };
        let mut part = Self { cells: stats.cells, nulls, nans, ..Self::new(self.dtype, self.wanted)? };
        if valid == 0 {
            return Ok(Some(part));
        }
        let key = |value: &Scalar| {
            value
                .get::<T>()
                .filter(|_| value.dtype() == self.dtype)
                .filter(|v| !v.is_nan())
                .map(|v| v.widen().key())
        };
        let range =
            stats.min.exact().and_then(key).zip(stats.max.exact().and_then(key)).filter(|(a, b)| a <= b);
        if let Some((min, max)) = range {
            part.range = (min, max);
            if min == max {
                // All cells are equal, which determines every statistic.
                let mut whole = Self::new(self.dtype, self.wanted)?;
                whole.repeat(T::from_key(min), valid)?;
                return Ok(Some(Self { cells: stats.cells, nulls, nans, ..whole }));
            }
        }
        let finite_range = range.is_some_and(|(min, max)| {
            let (lowest, highest) = T::WorkType::KEYS;
            !T::IS_FLOAT || (min > lowest && max < highest)
        });
        let sum = match stats.sum.exact() {
            Some(&Sum::Int(sum)) if !T::IS_FLOAT => {
                part.int_sum = sum;
                true
            }
            // An infinite sum may be an infinite cell or an overflow, and a NaN sum does not determine the number of infinities.
            Some(&Sum::Float(sum)) if T::IS_FLOAT && sum.is_finite() => {
                part.float_sum = (sum, 0.0);
                true
            }
            _ => false,
        };
        let enough = (!self.wanted.has(Wanted::RANGE) || range.is_some())
            && (!self.wanted.has(Wanted::SUM) || sum)
            && !self.wanted.has(Wanted::SPREAD)
            && (!self.wanted.has(Wanted::INFINITIES) || !T::IS_FLOAT || finite_range || sum);
        Ok(enough.then(|| part.pruned()))
    }

    /// The dtype of the cells.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The requested statistics.
    pub fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// Cells folded, including nulls.
    pub fn count(&self) -> u64 {
        self.cells
    }

    /// Cells that are neither null nor NaN.
    #[inline]
    pub fn valid(&self) -> u64 {
        self.cells - self.nulls - self.nans
    }

    /// Null cells.
    pub fn nulls(&self) -> u64 {
        self.nulls
    }

    /// Cells that are NaN and not null.
    pub fn nans(&self) -> u64 {
        self.nans
    }

    /// Number of infinite cells, when requested.
    pub fn infinities(&self) -> Option<u64> {
        self.wanted.has(Wanted::INFINITIES).then_some(self.infinities)
    }

    /// The minimum, when requested and there is any value.
    pub fn min(&self) -> Option<Scalar> {
        self.value(self.range.0)
    }

    /// The maximum, when requested and there is any value.
    pub fn max(&self) -> Option<Scalar> {
        self.value(self.range.1)
    }

    fn value(&self, key: i64) -> Option<Scalar> {
        if !self.wanted.has(Wanted::RANGE) || self.valid() == 0 {
            return None;
        }
        dispatch_element!(self.dtype, T => {
            Some(Scalar::from_element(<T as Cell>::from_key(key)).with_dtype(self.dtype))
        }, else => None)
    }

    /// The sum, when requested; 0 without values.
    pub fn sum(&self) -> Option<Sum> {
        let float = dispatch_element!(self.dtype, T => T::IS_FLOAT, else => false);
        let sum = if float {
            Sum::Float(compensated(self.float_sum.0, self.float_sum.1))
        } else {
            Sum::Int(self.int_sum)
        };
        self.wanted.has(Wanted::SUM).then_some(sum)
    }

    /// The mean, when requested and there is any value.
    #[allow(clippy::cast_precision_loss)]
    pub fn mean(&self) -> Option<f64> {
        let n = self.valid();
        if n == 0 {
            return None;
        }
        self.sum().map(|sum| mean(sum, n))
    }

    /// The population variance, when requested and there is any value. NaN with infinities.
    #[allow(clippy::cast_precision_loss)]
    pub fn variance(&self) -> Option<f64> {
        let n = self.valid();
        (self.wanted.has(Wanted::SPREAD) && n > 0).then(|| self.moments.total() / n as f64)
    }

    /// The population standard deviation, when requested and there is any value.
    pub fn std(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }

    /// A summary of `cells` cells from the values of a multi-position state.
    pub(crate) fn from_state(
        dtype: DType,
        wanted: Wanted,
        cells: u64,
        nulls: u64,
        nans: u64,
        state: &State<'_>,
    ) -> Result<Self> {
        let counts = Self { cells, nulls, nans, ..Self::new(dtype, wanted)? };
        if counts.valid() == 0 {
            return Ok(counts);
        }
        let State { range, int_sum, float_sum, moments } = *state;
        Ok(Self { range, int_sum, float_sum, moments: *moments, ..counts }.pruned())
    }

    /// The accumulated values, for multi-position states.
    pub(crate) fn state(&self) -> State<'_> {
        let Self { range, int_sum, float_sum, moments, .. } = self;
        State { range: *range, int_sum: *int_sum, float_sum: *float_sum, moments }
    }

    /// The count after `n` more cells.
    #[inline]
    fn checked_count(&self, n: u64) -> Result<u64> {
        self.cells.checked_add(n).ok_or_else(|| Error::limit("cells of one summary", u64::MAX, u64::MAX))
    }

    #[cold]
    fn length_mismatch(&self, bytes: usize, validity: Option<&[u8]>) -> Error {
        Error::invalid(format!(
            "length mismatch: {bytes} bytes with validity of {:?} cells in a summary of {}",
            validity.map(<[u8]>::len),
            self.dtype
        ))
    }

    /// Adds at most a block.
    fn fold_block<W: WorkType>(
        &mut self,
        block: &[W],
        gaps: Gaps<'_, W>,
        scratch: &mut Scratch<W>,
    ) -> Result<()> {
        let cells = self.checked_count(block.len() as u64)?;
        let nulls = if gaps.validity.is_none() && gaps.fill.is_none() {
            0
        } else {
            scratch.keep.resize(block.len(), 1);
            mark(block, gaps, &mut scratch.keep)
        };
        if nulls == 0 {
            let part = BlockTotals::compute(block, self.wanted);
            let (nans, infinities) = if part.suspicious { specials(block) } else { (0, 0) };
            if nans == 0 {
                self.join(block, part, infinities)?;
                self.cells = cells;
                return Ok(());
            }
            scratch.keep.clear();
            scratch.keep.resize(block.len(), 1);
        }
        let kept =
            if nulls == block.len() { 0 } else { compact(block, &mut scratch.keep, &mut scratch.dense) };
        let values = &scratch.dense[..kept];
        let part = BlockTotals::compute(values, self.wanted);
        let infinities = if part.suspicious { specials(values).1 } else { 0 };
        self.join(values, part, infinities)?;
        self.cells = cells;
        self.nulls += nulls as u64;
        self.nans += (block.len() - nulls - kept) as u64;
        Ok(())
    }

    /// Adds values; the caller counts their cells.
    #[allow(clippy::cast_precision_loss)]
    fn join<W: WorkType>(&mut self, values: &[W], part: BlockTotals, infinities: u64) -> Result<()> {
        if values.is_empty() {
            return Ok(());
        }
        match part.sum {
            Some(Sum::Int(sum)) => {
                self.int_sum = self.int_sum.checked_add(sum).ok_or_else(|| sum_limit(self.cells))?;
            }
            Some(Sum::Float(sum)) => neumaier(&mut self.float_sum.0, &mut self.float_sum.1, sum),
            None => {}
        }
        self.range = (self.range.0.min(part.range.0), self.range.1.max(part.range.1));
        if self.wanted.has(Wanted::INFINITIES) {
            self.infinities += infinities;
        }
        if let (true, Some(sum)) = (self.wanted.has(Wanted::SPREAD), part.sum) {
            let moments = moments(values, sum);
            self.moments.merge(self.valid() as f64, &moments, values.len() as f64);
        }
        Ok(())
    }
}

/// The accumulated values of a [`Summary`].
pub(crate) struct State<'a> {
    pub range: (i64, i64),
    pub int_sum: i128,
    pub float_sum: (f64, f64),
    pub moments: &'a Moments,
}

/// A sum of `n` values divided by their count, rounded at most twice.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn mean(sum: Sum, n: u64) -> f64 {
    match sum {
        Sum::Float(sum) => sum / n as f64,
        Sum::Int(sum) => {
            let n = i128::from(n);
            (sum / n) as f64 + (sum % n) as f64 / n as f64
        }
    }
}

fn sum_limit(cells: u64) -> Error {
    Error::limit(format!("bits of an integer sum over {cells} cells"), 129, 128)
}

/// The value of a scalar as a cell.
#[inline]
pub(crate) fn typed<T: Element>(dtype: DType, fill: Option<&Scalar>) -> Result<Option<T>> {
    let Some(fill) = fill else { return Ok(None) };
    match fill.get::<T>() {
        Some(value) => Ok(Some(value)),
        None => Err(Error::invalid(format!("dtype mismatch: a {} value for {dtype} cells", fill.dtype()))),
    }
}

/// Sum and range of a block, as requested, and whether NaNs or infinities are possible.
#[derive(Clone, Copy)]
struct BlockTotals {
    sum: Option<Sum>,
    range: (i64, i64),
    suspicious: bool,
}

impl BlockTotals {
    fn compute<W: WorkType>(block: &[W], wanted: Wanted) -> Self {
        let sum = wanted.has(Wanted::SUM).then(|| sum(block));
        let ranged = wanted.has(Wanted::RANGE);
        let keys = if ranged { range(block) } else { (i64::MAX, i64::MIN) };
        let suspicious = W::FLOAT
            && match sum {
                Some(sum) => !sum.to_f64().is_finite(),
                None if ranged => keys.0 <= W::KEYS.0 || keys.1 >= W::KEYS.1,
                None => true,
            };
        Self { sum, range: keys, suspicious }
    }
}

/// The null cells of a block.
#[derive(Clone, Copy)]
struct Gaps<'a, W> {
    validity: Option<&'a [u8]>,
    fill: Option<W>,
}

/// Buffers for blocks with gaps, reused from one to the next.
struct Scratch<W> {
    /// 1 for cells that are kept, 0 for others.
    keep: Vec<u8>,
    dense: Vec<W>,
}

/// Marks the cells that are not null, and counts those that are.
#[multiversion(targets("x86_64+avx2"))]
fn mark<W: WorkType>(block: &[W], gaps: Gaps<'_, W>, keep: &mut [u8]) -> usize {
    gaps.mark(block, keep)
}

impl<W: WorkType> Gaps<'_, W> {
    #[inline(always)]
    fn mark(&self, block: &[W], keep: &mut [u8]) -> usize {
        match self.validity {
            Some(validity) => keep.iter_mut().zip(validity).for_each(|(keep, &v)| *keep = u8::from(v != 0)),
            None => keep.fill(1),
        }
        match self.fill {
            Some(fill) if fill.nan() => drop_nans(block, keep),
            Some(fill) => {
                keep.iter_mut().zip(block).for_each(|(keep, &cell)| *keep &= u8::from(cell != fill))
            }
            None => {}
        }
        let mut staying = 0;
        for &keep in &*keep {
            staying += u32::from(keep);
        }
        block.len() - staying as usize
    }
}

#[inline(always)]
fn drop_nans<W: WorkType>(block: &[W], keep: &mut [u8]) {
    keep.iter_mut().zip(block).for_each(|(keep, cell)| *keep &= u8::from(!cell.nan()));
}

/// Compacts the kept cells without NaNs, and returns their number.
#[multiversion(targets("x86_64+avx2"))]
fn compact<W: WorkType>(block: &[W], keep: &mut [u8], dense: &mut Vec<W>) -> usize {
    compact_gaps(block, keep, dense)
}

// Gaps come in patches: a group without gaps is copied in full. In other groups each cell is written, and the next one
// overwrites it unless it is kept, so that there is no branch to mispredict.
#[inline(always)]
fn compact_gaps<W: WorkType>(block: &[W], keep: &mut [u8], dense: &mut Vec<W>) -> usize {
    const GROUP: usize = 16;
    if W::FLOAT {
        drop_nans(block, keep);
    }
    // Space for the cell written after the last kept cell.
    dense.resize(dense.len().max(block.len() + GROUP), W::zeroed());
    let mut kept = 0;
    for (group, keep) in block.chunks(GROUP).zip(keep.chunks(GROUP)) {
        let out = &mut dense[kept..kept + GROUP];
        if group.len() == GROUP && *keep == [1; GROUP] {
            out.copy_from_slice(group);
            kept += GROUP;
        } else {
            let mut n = 0;
            for (&cell, &keep) in group.iter().zip(keep) {
                out[n % GROUP] = cell;
                n += usize::from(keep);
            }
            kept += n;
        }
    }
    kept
}

/// Equally long runs at a constant stride, in cells, all inside the bytes.
struct Runs<'a> {
    cells: &'a [u8],
    validity: Option<&'a [u8]>,
    len: usize,
    stride: usize,
    count: usize,
}

impl<'a> Runs<'a> {
    #[inline(always)]
    fn run<T>(&self, i: usize) -> (&'a [u8], Option<&'a [u8]>) {
        let at = i * self.stride;
        let cells = &self.cells[at * size_of::<T>()..(at + self.len) * size_of::<T>()];
        (cells, self.validity.map(|v| &v[at..at + self.len]))
    }
}

/// Runs shorter than this are gathered into blocks.
const SHORT: usize = 512;

fn fold_runs<T: Cell>(summary: &mut Summary, runs: Runs<'_>, fill: Option<T>) -> Result<()> {
    let size = size_of::<T>();
    let block_len = <T::WorkType as WorkType>::BLOCK;
    let fill = fill.map(T::widen);
    let mut scratch = Scratch { keep: Vec::new(), dense: Vec::new() };
    let mut loaded: Vec<T::WorkType> = Vec::new();
    if runs.count > 1 && runs.len < SHORT {
        let per_block = block_len / runs.len;
        loaded.resize(runs.len * per_block.min(runs.count), T::WorkType::zeroed());
        let mut valid = vec![0; if runs.validity.is_some() { loaded.len() } else { 0 }];
        for first in (0..runs.count).step_by(per_block) {
            let gathered = per_block.min(runs.count - first);
            for i in 0..gathered {
                let (cells, validity) = runs.run::<T>(first + i);
                let range = i * runs.len..(i + 1) * runs.len;
                load::<T>(cells, &mut loaded[range.clone()]);
                if let Some(validity) = validity {
                    valid[range].copy_from_slice(validity);
                }
            }
            let len = gathered * runs.len;
            let validity = runs.validity.map(|_| &valid[..len]);
            summary.fold_block(&loaded[..len], Gaps { validity, fill }, &mut scratch)?;
        }
        return Ok(());
    }
    for i in 0..runs.count {
        let (cells, validity) = runs.run::<T>(i);
        let gaps = |at: usize, len: usize| Gaps { validity: validity.map(|v| &v[at..at + len]), fill };
        let direct =
            if size_of::<T::WorkType>() == size { bytemuck::try_cast_slice(cells).ok() } else { None };
        if let Some(values) = direct {
            for (b, block) in <[T::WorkType]>::chunks(values, block_len).enumerate() {
                summary.fold_block(block, gaps(b * block_len, block.len()), &mut scratch)?;
            }
        } else {
            loaded.resize(block_len.min(runs.len), T::WorkType::zeroed());
            for (b, bytes) in cells.chunks(block_len * size).enumerate() {
                let block = &mut loaded[..bytes.len() / size];
                load::<T>(bytes, block);
                summary.fold_block(block, gaps(b * block_len, block.len()), &mut scratch)?;
            }
        }
    }
    Ok(())
}

/// Copies unaligned cells into a block.
#[multiversion(targets("x86_64+avx2"))]
fn load<T: Cell>(bytes: &[u8], block: &mut [T::WorkType]) {
    for (cell, bytes) in block.iter_mut().zip(bytes.chunks_exact(size_of::<T>())) {
        *cell = bytemuck::pod_read_unaligned::<T>(bytes).widen();
    }
}

#[cfg(test)]
mod tests;
