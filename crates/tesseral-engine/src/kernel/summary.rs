//! One fused pass over cells: counts, smallest and largest, sum and mean, variance.
//!
//! A [`Summary`] is the state of such a pass. States of parts merge into the state of the whole, in the order the
//! caller chooses; equal parts merged in equal order give equal bits, whatever thread or process folded them.
//!
//! Minimum, maximum, sum, mean and variance are over the cells that are neither null nor NaN; infinities take part as
//! IEEE 754 says. Of −0.0 and 0.0 the first is the smaller.
//!
//! # How
//!
//! ```text
//! for each block of at most 16 KiB:
//!     cells are null in it     -> move the others, less NaNs, together in a scratch block and go on with that
//!     sum and range, as wanted -> they tell whether there may be a NaN or an infinity; only then count,
//!                                 and if there is a NaN, move the others together and start again
//!     squares, if wanted       -> around the block's own mean, now known
//!     join with the state      -> integers exactly, float sums after Neumaier, squares after Chan
//! ```
//!
//! 1. The block is in L1 after its first loop, so further loops cost arithmetic alone. See `block`.
//! 2. What was not asked for is not computed.
//! 3. Blocks with gaps are made dense once, without branches, instead of every loop having a masked twin.

use std::ops::BitOr;

use bytemuck::Zeroable;
use multiversion::multiversion;
use tesseral_core::{ChunkStats, DType, Element, Error, Result, Scalar, Sum, dispatch_element};

use super::block::{Cell, Moments, Work, compensated, moments, neumaier, range, specials, sum};

mod wire;

/// What a [`Summary`] is asked for. Counts of cells, nulls and NaNs always come along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Wanted(u8);

impl Wanted {
    /// Counts alone.
    pub const COUNTS: Self = Self(0);
    /// Minimum and maximum.
    pub const RANGE: Self = Self(1);
    /// Sum and mean.
    pub const SUM: Self = Self(2);
    /// Variance and standard deviation, and the sum they need.
    pub const SPREAD: Self = Self(2 | 4);
    /// How many cells are infinite.
    pub const INFINITIES: Self = Self(8);
    /// Everything.
    pub const ALL: Self = Self(1 | 2 | 4 | 8);

    pub(crate) const fn bits(self) -> u8 {
        self.0
    }

    /// What the bits ask for, as far as it is known.
    pub(crate) const fn from_bits(bits: u8) -> Self {
        let known = bits & Self::ALL.0;
        Self(if known & 4 == 0 { known } else { known | Self::SPREAD.0 })
    }

    /// Whether all of `other` is wanted.
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

/// What is known of the cells folded so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    dtype: DType,
    wanted: Wanted,
    cells: u64,
    nulls: u64,
    nans: u64,
    infinities: u64,
    /// Keys of the smallest and largest value, in the order of values; meaningless while there is no value.
    range: (i64, i64),
    /// Of integers.
    int_sum: i128,
    /// Of floats, and what additions to it lost.
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

    /// Adds cells, native-endian and at any alignment. `validity` has one byte per cell, 0 for null; a cell equal to
    /// `fill` is null too, any NaN when `fill` is one.
    ///
    /// # Errors
    /// `InvalidRequest` when the bytes are no whole number of cells, `validity` has another length or `fill` another
    /// dtype; `Limit` when a count or an integer sum leaves its range, after which the summary is of no use.
    #[inline]
    pub fn fold(&mut self, cells: &[u8], validity: Option<&[u8]>, fill: Option<&Scalar>) -> Result<()> {
        dispatch_element!(self.dtype, T => {
            let count = cells.len() / size_of::<T>();
            if !cells.len().is_multiple_of(size_of::<T>()) || validity.is_some_and(|v| v.len() != count) {
                return Err(self.misfit(cells.len(), validity));
            }
            let runs = Runs { cells, validity, len: count, stride: count, count: 1 };
            fold_runs::<T>(self, runs, typed::<T>(self.dtype, fill)?)
        }, else => Err(Error::unsupported(format!("statistics of {}", self.dtype))))
    }

    /// Adds `runs` runs of `run_len` cells that start `stride` cells apart; `validity` lies like the cells.
    ///
    /// Much cheaper than a [`fold`](Self::fold) for each when runs are short. All runs together count as one sequence
    /// of cells, except that runs of many cells are not joined.
    ///
    /// # Errors
    /// As [`fold`](Self::fold), and `InvalidRequest` when the last run leaves the cells.
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
                return Err(self.misfit(cells.len(), validity));
            }
            let runs = Runs { cells, validity, len: run_len, stride, count: runs };
            fold_runs::<T>(self, runs, typed::<T>(self.dtype, fill)?)
        }, else => Err(Error::unsupported(format!("statistics of {}", self.dtype))))
    }

    /// Adds `n` cells of one value.
    ///
    /// # Errors
    /// `InvalidRequest` when the value has another dtype, `Limit` when a count or an integer sum leaves its range.
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
    /// `Limit` when the count leaves its range.
    pub fn fold_nulls(&mut self, n: u64) -> Result<()> {
        self.cells = self.room(n)?;
        self.nulls += n;
        Ok(())
    }

    fn repeat<T: Cell>(&mut self, value: T, n: u64) -> Result<()> {
        let cells = self.room(n)?;
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
            // A count beyond 2^53 is no exact float, its halves are; a product's rounding error is a fused
            // multiply-add away.
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

    /// Without the numbers that nobody asked for, so that equal cells always give equal states.
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
    /// `InvalidRequest` when the other is of another dtype or was asked for other things, `Limit` when a count or an
    /// integer sum leaves its range. Nothing is added then.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if self.dtype != other.dtype || self.wanted != other.wanted {
            return Err(Error::invalid(format!(
                "a summary of {} does not merge into one of {}",
                other.dtype, self.dtype
            )));
        }
        let cells = self.room(other.cells)?;
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

    /// Adds the cells of a chunk by its statistics alone; `false`, and nothing added, when they do not suffice.
    ///
    /// # Errors
    /// As [`merge`](Self::merge).
    pub fn merge_stats(&mut self, stats: &ChunkStats) -> Result<bool> {
        let part = dispatch_element!(self.dtype, T => self.stats_part::<T>(stats)?, else => None);
        part.map_or(Ok(false), |part| self.merge(&part).map(|()| true))
    }

    /// The summary of a chunk of which only statistics are known.
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
                // Every cell is the same, which says all there is to say.
                let mut whole = Self::new(self.dtype, self.wanted)?;
                whole.repeat(T::from_key(min), valid)?;
                return Ok(Some(Self { cells: stats.cells, nulls, nans, ..whole }));
            }
        }
        let finite_range = range.is_some_and(|(min, max)| {
            let (lowest, highest) = T::Work::KEYS;
            !T::IS_FLOAT || (min > lowest && max < highest)
        });
        let sum = match stats.sum.exact() {
            Some(&Sum::Int(sum)) if !T::IS_FLOAT => {
                part.int_sum = sum;
                true
            }
            // An infinite sum may be an infinite cell or an overflow, and a NaN says nothing of the infinities in it.
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

    /// What it was asked for.
    pub fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// Cells folded, null ones included.
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

    /// Cells that are infinite, when asked for.
    pub fn infinities(&self) -> Option<u64> {
        self.wanted.has(Wanted::INFINITIES).then_some(self.infinities)
    }

    /// The smallest value, when asked for and there is any.
    pub fn min(&self) -> Option<Scalar> {
        self.value(self.range.0)
    }

    /// The largest value, when asked for and there is any.
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

    /// The sum, when asked for; 0 of no values.
    pub fn sum(&self) -> Option<Sum> {
        let float = dispatch_element!(self.dtype, T => T::IS_FLOAT, else => false);
        let sum = if float {
            Sum::Float(compensated(self.float_sum.0, self.float_sum.1))
        } else {
            Sum::Int(self.int_sum)
        };
        self.wanted.has(Wanted::SUM).then_some(sum)
    }

    /// The mean, when asked for and there is any value.
    #[allow(clippy::cast_precision_loss)]
    pub fn mean(&self) -> Option<f64> {
        let n = self.valid();
        if n == 0 {
            return None;
        }
        self.sum().map(|sum| mean(sum, n))
    }

    /// The variance of the values as a whole population, when asked for and there is any value. NaN with infinities.
    #[allow(clippy::cast_precision_loss)]
    pub fn variance(&self) -> Option<f64> {
        let n = self.valid();
        (self.wanted.has(Wanted::SPREAD) && n > 0).then(|| self.moments.total() / n as f64)
    }

    /// The standard deviation of the values as a whole population, when asked for and there is any value.
    pub fn std(&self) -> Option<f64> {
        self.variance().map(f64::sqrt)
    }

    /// A summary of `cells` from the numbers of a state of many.
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

    /// The numbers a state is made of, for states of many.
    pub(crate) fn state(&self) -> State<'_> {
        let Self { range, int_sum, float_sum, moments, .. } = self;
        State { range: *range, int_sum: *int_sum, float_sum: *float_sum, moments }
    }

    /// The count after `n` more cells.
    #[inline]
    fn room(&self, n: u64) -> Result<u64> {
        self.cells.checked_add(n).ok_or_else(|| Error::limit("cells of one summary", u64::MAX, u64::MAX))
    }

    #[cold]
    fn misfit(&self, bytes: usize, validity: Option<&[u8]>) -> Error {
        Error::invalid(format!(
            "{bytes} bytes with validity of {:?} cells do not fit a summary of {}",
            validity.map(<[u8]>::len),
            self.dtype
        ))
    }

    /// Adds at most a block.
    fn fold_block<W: Work>(
        &mut self,
        block: &[W],
        gaps: Gaps<'_, W>,
        scratch: &mut Scratch<W>,
    ) -> Result<()> {
        let cells = self.room(block.len() as u64)?;
        let nulls = if gaps.validity.is_none() && gaps.fill.is_none() {
            0
        } else {
            scratch.stay.resize(block.len(), 1);
            mark(block, gaps, &mut scratch.stay)
        };
        if nulls == 0 {
            let part = Part::of(block, self.wanted);
            let (nans, infinities) = if part.suspicious { specials(block) } else { (0, 0) };
            if nans == 0 {
                self.join(block, part, infinities)?;
                self.cells = cells;
                return Ok(());
            }
            scratch.stay.clear();
            scratch.stay.resize(block.len(), 1);
        }
        let kept = if nulls == block.len() { 0 } else { close(block, &mut scratch.stay, &mut scratch.dense) };
        let values = &scratch.dense[..kept];
        let part = Part::of(values, self.wanted);
        let infinities = if part.suspicious { specials(values).1 } else { 0 };
        self.join(values, part, infinities)?;
        self.cells = cells;
        self.nulls += nulls as u64;
        self.nans += (block.len() - nulls - kept) as u64;
        Ok(())
    }

    /// Adds values; counting their cells is left to the caller.
    #[allow(clippy::cast_precision_loss)]
    fn join<W: Work>(&mut self, values: &[W], part: Part, infinities: u64) -> Result<()> {
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

/// What a [`Summary`] adds up, as it is.
pub(crate) struct State<'a> {
    pub range: (i64, i64),
    pub int_sum: i128,
    pub float_sum: (f64, f64),
    pub moments: &'a Moments,
}

/// A sum of `n` values over their count, rounding no more than twice.
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
    Error::limit(format!("an integer sum over {cells} cells, in bits,"), 129, 128)
}

/// The value of a scalar as a cell.
#[inline]
pub(crate) fn typed<T: Element>(dtype: DType, fill: Option<&Scalar>) -> Result<Option<T>> {
    let Some(fill) = fill else { return Ok(None) };
    match fill.get::<T>() {
        Some(value) => Ok(Some(value)),
        None => Err(Error::invalid(format!("a value of {} is no cell of {dtype}", fill.dtype()))),
    }
}

/// Sum and range of a block, as wanted, and whether they leave NaNs or infinities possible.
#[derive(Clone, Copy)]
struct Part {
    sum: Option<Sum>,
    range: (i64, i64),
    suspicious: bool,
}

impl Part {
    fn of<W: Work>(block: &[W], wanted: Wanted) -> Self {
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

/// What makes cells of a block null.
#[derive(Clone, Copy)]
struct Gaps<'a, W> {
    validity: Option<&'a [u8]>,
    fill: Option<W>,
}

/// Room for blocks with gaps, kept from one to the next.
struct Scratch<W> {
    /// 1 for cells that stay, 0 for others.
    stay: Vec<u8>,
    dense: Vec<W>,
}

/// Marks the cells that are not null, and counts those that are.
#[multiversion(targets("x86_64+avx2"))]
fn mark<W: Work>(block: &[W], gaps: Gaps<'_, W>, stay: &mut [u8]) -> usize {
    gaps.mark(block, stay)
}

impl<W: Work> Gaps<'_, W> {
    #[inline(always)]
    fn mark(&self, block: &[W], stay: &mut [u8]) -> usize {
        match self.validity {
            Some(validity) => stay.iter_mut().zip(validity).for_each(|(stay, &v)| *stay = u8::from(v != 0)),
            None => stay.fill(1),
        }
        match self.fill {
            Some(fill) if fill.nan() => drop_nans(block, stay),
            Some(fill) => {
                stay.iter_mut().zip(block).for_each(|(stay, &cell)| *stay &= u8::from(cell != fill))
            }
            None => {}
        }
        let mut staying = 0;
        for &stay in &*stay {
            staying += u32::from(stay);
        }
        block.len() - staying as usize
    }
}

#[inline(always)]
fn drop_nans<W: Work>(block: &[W], stay: &mut [u8]) {
    stay.iter_mut().zip(block).for_each(|(stay, cell)| *stay &= u8::from(!cell.nan()));
}

/// Moves the cells that stay and are no NaN together, and says how many they are.
#[multiversion(targets("x86_64+avx2"))]
fn close<W: Work>(block: &[W], stay: &mut [u8], dense: &mut Vec<W>) -> usize {
    close_gaps(block, stay, dense)
}

// Gaps come in patches: a group without any is copied whole. In the others each cell is written, and the next one goes
// over it unless it was to stay, so that there is no branch to mispredict.
#[inline(always)]
fn close_gaps<W: Work>(block: &[W], stay: &mut [u8], dense: &mut Vec<W>) -> usize {
    const GROUP: usize = 16;
    if W::FLOAT {
        drop_nans(block, stay);
    }
    // Room for what is written after the last cell that stays.
    dense.resize(dense.len().max(block.len() + GROUP), W::zeroed());
    let mut kept = 0;
    for (group, stay) in block.chunks(GROUP).zip(stay.chunks(GROUP)) {
        let out = &mut dense[kept..kept + GROUP];
        if group.len() == GROUP && *stay == [1; GROUP] {
            out.copy_from_slice(group);
            kept += GROUP;
        } else {
            let mut n = 0;
            for (&cell, &stay) in group.iter().zip(stay) {
                out[n % GROUP] = cell;
                n += usize::from(stay);
            }
            kept += n;
        }
    }
    kept
}

/// Equally long runs at equal distances, in cells, all inside the bytes.
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
    let block_len = <T::Work as Work>::BLOCK;
    let fill = fill.map(T::widen);
    let mut scratch = Scratch { stay: Vec::new(), dense: Vec::new() };
    let mut loaded: Vec<T::Work> = Vec::new();
    if runs.count > 1 && runs.len < SHORT {
        let per_block = block_len / runs.len;
        loaded.resize(runs.len * per_block.min(runs.count), T::Work::zeroed());
        let mut valid = vec![0; if runs.validity.is_some() { loaded.len() } else { 0 }];
        for first in (0..runs.count).step_by(per_block) {
            let gathered = per_block.min(runs.count - first);
            for i in 0..gathered {
                let (cells, validity) = runs.run::<T>(first + i);
                let place = i * runs.len..(i + 1) * runs.len;
                load::<T>(cells, &mut loaded[place.clone()]);
                if let Some(validity) = validity {
                    valid[place].copy_from_slice(validity);
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
        let direct = if size_of::<T::Work>() == size { bytemuck::try_cast_slice(cells).ok() } else { None };
        if let Some(values) = direct {
            for (b, block) in <[T::Work]>::chunks(values, block_len).enumerate() {
                summary.fold_block(block, gaps(b * block_len, block.len()), &mut scratch)?;
            }
        } else {
            loaded.resize(block_len.min(runs.len), T::Work::zeroed());
            for (b, bytes) in cells.chunks(block_len * size).enumerate() {
                let block = &mut loaded[..bytes.len() / size];
                load::<T>(bytes, block);
                summary.fold_block(block, gaps(b * block_len, block.len()), &mut scratch)?;
            }
        }
    }
    Ok(())
}

/// Cells at any alignment into a block.
#[multiversion(targets("x86_64+avx2"))]
fn load<T: Cell>(bytes: &[u8], block: &mut [T::Work]) {
    for (cell, bytes) in block.iter_mut().zip(bytes.chunks_exact(size_of::<T>())) {
        *cell = bytemuck::pod_read_unaligned::<T>(bytes).widen();
    }
}

#[cfg(test)]
mod tests;
