//! A fused pass over cells: counts, minimum and maximum, sum and mean, variance.
//!
//! A [`Summary`] is the state of such a pass. States of parts merge into the state of the whole. Sums are
//! [exact](crate::reduce::exact), so equal cells give equal bits, independent of how they are divided into parts and of the order
//! in which those merge.
//!
//! Minimum, maximum, sum, mean and variance cover the cells that are neither null nor NaN; infinities follow IEEE 754. −0.0 is
//! smaller than 0.0, and a sum of zeros is 0.0.
//!
//! # Algorithm
//!
//! ```text
//! for each block of at most 16 KiB:
//!     cells are null in it        -> compact the others, without NaNs, into a scratch block and continue with that
//!     sums and range, as requested -> they show whether NaNs or infinities are possible; only then count,
//!                                    and if there is a NaN, compact the others and restart
//! ```
//!
//! 1. The block is in L1 after its first loop, so further loops cost arithmetic only. See `block`.
//! 2. Statistics that were not requested are not computed.
//! 3. Blocks with gaps are compacted once, without branches, so that no loop needs a masked variant.

use std::ops::BitOr;

use bytemuck::Zeroable;
use multiversion::multiversion;
use tesseral_core::{ChunkStats, DType, Element, Error, Result, Scalar, Sum, dispatch_element};

use super::block::{Cell, WorkType, nans, range, specials};
use crate::reduce::exact::Moments;

mod wire;

/// Parses [`Summary::partial_sum`]; `None` if the bytes are not the sum of some `valid` cells.
fn partial_moments<T: Cell>(bytes: &[u8], valid: u64) -> Option<Moments> {
    let (moments, rest) = Moments::parse(bytes).ok()?;
    let [negative, positive] = moments.infinities();
    let infinite = negative.checked_add(positive)?;
    let possible = if T::IS_FLOAT { infinite <= valid } else { infinite == 0 && moments.integer_fits() };
    (rest.is_empty() && possible && moments.has_no_squares()).then_some(moments)
}

/// The requested statistics of a [`Summary`]. Counts of cells, nulls and NaNs are always included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct StatSet(u8);

impl StatSet {
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

impl BitOr for StatSet {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The statistics of the cells folded so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    dtype: DType,
    wanted: StatSet,
    cells: u64,
    nulls: u64,
    nans: u64,
    /// Keys of minimum and maximum, in the order of values; undefined while there is no value.
    range: (i64, i64),
    /// Exact sums, and infinities where they or the sum are requested.
    moments: Moments,
}

impl Summary {
    /// The summary of no cells.
    ///
    /// # Errors
    /// `Unsupported` for dtypes that have no order and no sum: complex numbers, bitmasks, text.
    pub fn new(dtype: DType, wanted: StatSet) -> Result<Self> {
        if !dispatch_element!(dtype, T => size_of::<T>() > 0, else => false) {
            return Err(Error::unsupported(format!("statistics of {dtype}")));
        }
        Ok(Self {
            dtype,
            wanted,
            cells: 0,
            nulls: 0,
            nans: 0,
            range: (i64::MAX, i64::MIN),
            moments: Moments::default(),
        })
    }

    /// Adds cells, native-endian and unaligned. `validity` has one byte per cell, 0 for null; a cell equal to one of `missing`
    /// is null too, as is any NaN when one of them is NaN.
    ///
    /// # Errors
    /// `InvalidRequest` when the bytes are not whole cells, or the length of `validity` or the dtype of `missing` differs;
    /// `Limit` when a count or an integer sum overflows, after which the summary is invalid.
    #[inline]
    pub fn fold(&mut self, cells: &[u8], validity: Option<&[u8]>, missing: &[Scalar]) -> Result<()> {
        dispatch_element!(self.dtype, T => {
            let count = cells.len() / size_of::<T>();
            if !cells.len().is_multiple_of(size_of::<T>()) || validity.is_some_and(|v| v.len() != count) {
                return Err(self.length_mismatch(cells.len(), validity));
            }
            let runs = Runs { cells, validity, len: count, stride: count, count: 1 };
            fold_runs::<T>(self, runs, &typed_all::<T>(self.dtype, missing)?)
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
        missing: &[Scalar],
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
            fold_runs::<T>(self, runs, &typed_all::<T>(self.dtype, missing)?)
        }, else => Err(Error::unsupported(format!("statistics of {}", self.dtype))))
    }

    /// Adds the cells that are selected: `mask` has one byte per cell, 0 for others. The dtype of the cells is that of the summary.
    ///
    /// # Errors
    /// `Limit` when a count or an integer sum overflows, after which the summary is invalid.
    pub(crate) fn fold_masked<T: Cell>(
        &mut self,
        cells: &[T],
        validity: Option<&[u8]>,
        mask: &[u8],
    ) -> Result<()> {
        let mut scratch = SummaryScratch { keep: Vec::new(), dense: Vec::new(), finite: Vec::new() };
        let mut widened: Vec<T::WorkType> = Vec::new();
        let most = <T::WorkType as WorkType>::BLOCK;
        for (b, (cells, mask)) in cells.chunks(most).zip(mask.chunks(most)).enumerate() {
            let validity = validity.map(|validity| &validity[b * most..b * most + cells.len()]);
            let same = bytemuck::try_cast_slice::<T, T::WorkType>(cells).ok();
            let block = same.filter(|same| same.len() == cells.len()).unwrap_or_else(|| {
                widened.clear();
                widened.extend(cells.iter().map(|cell| cell.widen()));
                &widened
            });
            self.fold_masked_block(block, validity, mask, &mut scratch)?;
        }
        self.check_sum(&self.moments)
    }

    /// Adds the selected cells of at most a block.
    fn fold_masked_block<W: WorkType>(
        &mut self,
        block: &[W],
        validity: Option<&[u8]>,
        mask: &[u8],
        scratch: &mut SummaryScratch<W>,
    ) -> Result<()> {
        let SummaryScratch { keep, dense, finite } = scratch;
        keep.clear();
        keep.resize(block.len(), 0);
        let (chosen, valid) = mark_selected(mask, validity, keep);
        self.cells = self.checked_count(chosen as u64)?;
        self.nulls += (chosen - valid) as u64;
        if valid == 0 {
            return Ok(());
        }
        if self.wanted.has(StatSet::SUM) && !self.wanted.has(StatSet::RANGE) {
            // Zeros add nothing to sums.
            dense.resize(dense.len().max(block.len()), W::zeroed());
            clear_others(block, keep, &mut dense[..block.len()]);
            if self.join(&dense[..block.len()], finite) {
                return Ok(());
            }
        }
        let kept = compact(block, keep, dense);
        self.nans += (valid - kept) as u64;
        self.join(&dense[..kept], finite);
        Ok(())
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
            let value = typed::<T>(self.dtype, value)?;
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
        let key = value.widen().key();
        part.range = (key, key);
        if T::IS_FLOAT {
            part.moments.add_float(value.to_f64(), n, true);
        } else {
            part.moments.add_integer(value.to_i128(), n, true);
        }
        self.merge(&part.pruned())
    }

    /// The state without statistics that were not requested, so that equal cells always give equal states.
    fn pruned(mut self) -> Self {
        let none = (i64::MAX, i64::MIN);
        self.range = if self.wanted.has(StatSet::RANGE) { self.range } else { none };
        self.moments.keep(
            self.wanted.has(StatSet::SUM) || self.wanted.has(StatSet::INFINITIES),
            self.wanted.has(StatSet::SUM),
            self.wanted.has(StatSet::SPREAD),
        );
        self
    }

    /// Adds the cells of another summary. The order of merges is irrelevant.
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
        let mut moments = self.moments.clone();
        moments.merge(&other.moments);
        self.check_sum(&moments)?;
        self.moments = moments;
        self.range = (self.range.0.min(other.range.0), self.range.1.max(other.range.1));
        self.cells = cells;
        self.nulls += other.nulls;
        self.nans += other.nans;
        Ok(())
    }

    /// Rejects integer sums of more than 128 bits.
    fn check_sum(&self, moments: &Moments) -> Result<()> {
        if is_float(self.dtype) || moments.integer_fits() {
            return Ok(());
        }
        Err(Error::limit(format!("bits of an integer sum over {} cells", self.cells), 129, 128))
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
        // A stored float sum is rounded, so it is not part of an exact one. If it is finite, there are no infinities; an infinite one
        // may be an overflow, and a NaN does not determine their number.
        let exact = stats.partial_sum.as_deref().and_then(|bytes| partial_moments::<T>(bytes, valid));
        let (sum, finite_sum) = match (exact, stats.sum.exact()) {
            (Some(moments), _) => {
                part.moments = moments;
                (true, true)
            }
            (None, Some(&Sum::Int(sum))) if !T::IS_FLOAT => {
                part.moments.add_integer_sum(sum);
                (true, true)
            }
            (None, Some(&Sum::Float(sum))) if T::IS_FLOAT => (false, sum.is_finite()),
            _ => (false, false),
        };
        let enough = (!self.wanted.has(StatSet::RANGE) || range.is_some())
            && (!self.wanted.has(StatSet::SUM) || sum)
            && !self.wanted.has(StatSet::SPREAD)
            && (!self.wanted.has(StatSet::INFINITIES) || !T::IS_FLOAT || finite_range || finite_sum);
        Ok(enough.then(|| part.pruned()))
    }

    /// The exact sum as bytes for [`ChunkStats::partial_sum`], when the sum is requested. Equal cells give equal bytes.
    pub(crate) fn partial_sum(&self) -> Option<Box<[u8]>> {
        if !self.wanted.has(StatSet::SUM) {
            return None;
        }
        let mut moments = self.moments.clone();
        moments.keep(true, true, false);
        let mut out = Vec::with_capacity(48);
        moments.write(&mut out);
        Some(out.into())
    }

    /// The dtype of the cells.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The requested statistics.
    pub fn wanted(&self) -> StatSet {
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
        self.wanted.has(StatSet::INFINITIES).then(|| self.moments.infinities().iter().sum())
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
        if !self.wanted.has(StatSet::RANGE) || self.valid() == 0 {
            return None;
        }
        dispatch_element!(self.dtype, T => {
            Some(Scalar::from_element(<T as Cell>::from_key(key)).with_dtype(self.dtype))
        }, else => None)
    }

    /// The sum, when requested; 0 without values.
    pub fn sum(&self) -> Option<Sum> {
        if !self.wanted.has(StatSet::SUM) {
            return None;
        }
        if is_float(self.dtype) {
            return Some(Sum::Float(self.moments.sum()));
        }
        self.moments.integer_sum().map(Sum::Int)
    }

    /// The mean, correctly rounded, when requested and there is any value.
    pub fn mean(&self) -> Option<f64> {
        let n = self.valid();
        (self.wanted.has(StatSet::SUM) && n > 0).then(|| self.moments.mean(n))
    }

    /// The population variance, correctly rounded, when requested and there is any value. NaN with infinities.
    pub fn variance(&self) -> Option<f64> {
        self.variance_of(0)
    }

    /// The population standard deviation, correctly rounded, when requested and there is any value. NaN with infinities.
    pub fn std(&self) -> Option<f64> {
        self.std_of(0)
    }

    /// The variance with `ddof` degrees of freedom less than there are values, correctly rounded.
    pub fn variance_of(&self, ddof: u64) -> Option<f64> {
        let n = self.valid();
        (self.wanted.has(StatSet::SPREAD) && n > ddof).then(|| self.moments.variance(n, ddof))
    }

    /// The standard deviation with `ddof` degrees of freedom less than there are values, correctly rounded.
    pub fn std_of(&self, ddof: u64) -> Option<f64> {
        let n = self.valid();
        (self.wanted.has(StatSet::SPREAD) && n > ddof).then(|| self.moments.std(n, ddof))
    }

    /// A summary of `cells` cells from the values of a multi-position state.
    pub(crate) fn from_state(
        dtype: DType,
        wanted: StatSet,
        cells: u64,
        nulls: u64,
        nans: u64,
        range: (i64, i64),
        moments: Moments,
    ) -> Result<Self> {
        let counts = Self { cells, nulls, nans, ..Self::new(dtype, wanted)? };
        if counts.valid() == 0 {
            return Ok(counts);
        }
        Ok(Self { range, moments, ..counts }.pruned())
    }

    /// Keys of minimum and maximum, and exact sums, for multi-position states.
    pub(crate) fn state(&self) -> ((i64, i64), &Moments) {
        (self.range, &self.moments)
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
        scratch: &mut SummaryScratch<W>,
    ) -> Result<()> {
        let cells = self.checked_count(block.len() as u64)?;
        let nulls = if gaps.validity.is_none() && gaps.missing.is_empty() {
            0
        } else {
            scratch.keep.resize(block.len(), 1);
            mark(block, gaps, &mut scratch.keep)
        };
        if nulls == 0 {
            if self.wanted == StatSet::COUNTS {
                self.cells = cells;
                self.nans += nans(block);
                return Ok(());
            }
            if self.join(block, &mut scratch.finite) {
                self.cells = cells;
                return Ok(());
            }
            scratch.keep.clear();
            scratch.keep.resize(block.len(), 1);
        }
        let kept =
            if nulls == block.len() { 0 } else { compact(block, &mut scratch.keep, &mut scratch.dense) };
        self.join(&scratch.dense[..kept], &mut scratch.finite);
        self.cells = cells;
        self.nulls += nulls as u64;
        self.nans += (block.len() - nulls - kept) as u64;
        Ok(())
    }

    /// Adds values; the caller counts their cells. False, without effect, if one is NaN.
    fn join<W: WorkType>(&mut self, values: &[W], finite: &mut Vec<W>) -> bool {
        if values.is_empty() {
            return true;
        }
        let (summed, spread) = (self.wanted.has(StatSet::SUM), self.wanted.has(StatSet::SPREAD));
        let ranged = self.wanted.has(StatSet::RANGE);
        let added = summed && self.moments.add_block(values, spread);
        let keys = if ranged && (added || !summed) { range(values) } else { (i64::MAX, i64::MIN) };
        let suspicious = match (summed, ranged) {
            (true, _) => !added,
            (false, true) => keys.0 <= W::KEYS.0 || keys.1 >= W::KEYS.1,
            (false, false) => true,
        };
        if W::FLOAT && suspicious {
            return self.join_specials(values, finite);
        }
        self.range = (self.range.0.min(keys.0), self.range.1.max(keys.1));
        true
    }

    /// Adds values of which some may be infinite. False, without effect, if one is NaN.
    #[cold]
    fn join_specials<W: WorkType>(&mut self, values: &[W], finite: &mut Vec<W>) -> bool {
        let [nans, negative, positive] = specials(values);
        if nans > 0 {
            return false;
        }
        let summed = self.wanted.has(StatSet::SUM);
        if summed || self.wanted.has(StatSet::INFINITIES) {
            self.moments.add_infinities(negative, positive);
        }
        if summed {
            finite.clear();
            finite.extend(values.iter().filter(|x| !x.infinite()));
            self.moments.add_block(finite, self.wanted.has(StatSet::SPREAD));
        }
        if self.wanted.has(StatSet::RANGE) {
            let keys = range(values);
            self.range = (self.range.0.min(keys.0), self.range.1.max(keys.1));
        }
        true
    }
}

fn is_float(dtype: DType) -> bool {
    dispatch_element!(dtype, T => T::IS_FLOAT, else => false)
}

/// The value of a scalar as a cell.
#[inline]
pub(crate) fn typed<T: Element>(dtype: DType, value: &Scalar) -> Result<T> {
    value
        .get::<T>()
        .ok_or_else(|| Error::invalid(format!("dtype mismatch: a {} value for {dtype} cells", value.dtype())))
}

/// The values of scalars as cells.
#[inline]
pub(crate) fn typed_all<T: Element>(dtype: DType, values: &[Scalar]) -> Result<Vec<T>> {
    values.iter().map(|value| typed(dtype, value)).collect()
}

/// The null cells of a block.
#[derive(Clone, Copy)]
struct Gaps<'a, W> {
    validity: Option<&'a [u8]>,
    /// Values that mean null.
    missing: &'a [W],
}

/// Buffers for blocks with gaps, reused from one to the next.
struct SummaryScratch<W> {
    /// 1 for cells that are kept, 0 for others.
    keep: Vec<u8>,
    dense: Vec<W>,
    finite: Vec<W>,
}

/// Marks the cells that are not null, and counts those that are.
#[multiversion(targets("x86_64+avx2"))]
fn mark<W: WorkType>(block: &[W], gaps: Gaps<'_, W>, keep: &mut [u8]) -> usize {
    gaps.mark(block, keep)
}

/// Marks the selected cells that are not null; the numbers of selected ones, and of these.
#[multiversion(targets("x86_64+avx2"))]
fn mark_selected(mask: &[u8], validity: Option<&[u8]>, keep: &mut [u8]) -> (usize, usize) {
    let count = |keep: &[u8]| keep.iter().fold(0_u32, |n, &keep| n + u32::from(keep)) as usize;
    for (keep, &mask) in keep.iter_mut().zip(mask) {
        *keep = u8::from(mask != 0);
    }
    let chosen = count(keep);
    let Some(validity) = validity else { return (chosen, chosen) };
    for (keep, &valid) in keep.iter_mut().zip(validity) {
        *keep &= u8::from(valid != 0);
    }
    (chosen, count(keep))
}

/// Copies the kept cells, and zeros in place of others.
#[multiversion(targets("x86_64+avx2"))]
fn clear_others<W: WorkType>(block: &[W], keep: &[u8], out: &mut [W]) {
    for ((out, &cell), &keep) in out.iter_mut().zip(block).zip(keep) {
        *out = if keep == 0 { W::zeroed() } else { cell };
    }
}

impl<W: WorkType> Gaps<'_, W> {
    #[inline(always)]
    fn mark(&self, block: &[W], keep: &mut [u8]) -> usize {
        match self.validity {
            Some(validity) => keep.iter_mut().zip(validity).for_each(|(keep, &v)| *keep = u8::from(v != 0)),
            None => keep.fill(1),
        }
        for &value in self.missing {
            if value.nan() {
                drop_nans(block, keep);
            } else {
                keep.iter_mut().zip(block).for_each(|(keep, &cell)| *keep &= u8::from(cell != value));
            }
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

fn fold_runs<T: Cell>(summary: &mut Summary, runs: Runs<'_>, missing: &[T]) -> Result<()> {
    let size = size_of::<T>();
    let block_len = <T::WorkType as WorkType>::BLOCK;
    let missing: Vec<T::WorkType> = missing.iter().map(|value| value.widen()).collect();
    let missing = missing.as_slice();
    let mut scratch = SummaryScratch { keep: Vec::new(), dense: Vec::new(), finite: Vec::new() };
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
            summary.fold_block(&loaded[..len], Gaps { validity, missing }, &mut scratch)?;
        }
        return summary.check_sum(&summary.moments);
    }
    for i in 0..runs.count {
        let (cells, validity) = runs.run::<T>(i);
        let gaps = |at: usize, len: usize| Gaps { validity: validity.map(|v| &v[at..at + len]), missing };
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
    summary.check_sum(&summary.moments)
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
