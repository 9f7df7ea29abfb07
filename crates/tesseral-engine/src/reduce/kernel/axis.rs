//! Reduction along some axes: one result per position of the other axes.
//!
//! An [`AxisFold`] holds the state of each position of the *kept* axes. Regions of cells are folded into it one after the
//! other; states over the same positions merge. As with summaries, sums are exact: equal cells give equal bits,
//! however they are divided into regions.
//!
//! # Algorithm
//!
//! ```text
//! order the axes of the region by stride; merge axes that are contiguous on both sides
//! innermost axis reduced, contiguous and long -> one summary per kept position, from its run of cells
//! otherwise -> panels: the innermost kept axis gives the columns, the innermost reduced axis the rows
//!     columns adjacent in memory -> fold the panel without a copy
//!     otherwise                  -> gather it first, transposing as needed
//! ```
//!
//! 1. After merging, nearly every region is one of two shapes: rows that are added (`panel`) or runs that fold to one value.
//! 2. Gathering costs less than strided loops, and leaves one kernel for every layout.
//! 3. The exact sum of a position is a few doubles, which take more room only where the data needs it; see
//!    `exact::slots`.

use bytemuck::Zeroable;
use smallvec::SmallVec;
use tesseral_core::{DType, Element, Error, Result, Scalar, Sum, alloc, dispatch_element};

use super::block::Cell;
use super::summary::{StatSet, Summary, typed_all};
use crate::kernel::copy::{Dim, copy_box, each_position, merge};
use crate::reduce::exact::Moments;
use crate::reduce::exact::fixed::Fixed;
use crate::reduce::exact::slots::{SlotRange, SlotSums};

pub(crate) mod panel;
pub(crate) mod ranges;
pub(crate) mod sums;

use panel::{Columns, Panel, PanelColumn, ROWS, Requested};
use ranges::{KeptKey, Ranges};
use sums::{PanelSums, Sums, WideSquares};

/// A region of cells, native-endian and unaligned; strides are in cells.
///
/// A stride of 0 repeats a cell along an axis.
#[derive(Clone, Copy, Debug)]
pub struct AxisCells<'a> {
    /// The bytes, starting with the first cell.
    pub cells: &'a [u8],
    /// One byte per cell, in the layout of the cells; 0 is null.
    pub validity: Option<&'a [u8]>,
    /// Extent of each axis.
    pub shape: &'a [usize],
    /// Stride of each axis.
    pub strides: &'a [usize],
}

/// The state of each position of the kept axes.
#[derive(Clone, Debug)]
pub struct AxisFold {
    dtype: DType,
    wanted: StatSet,
    shape: SmallVec<[usize; 4]>,
    positions: usize,
    /// Cells common to all positions, and additional cells of each: empty until a region covers only some.
    everywhere: u64,
    cells: Vec<u64>,
    /// Empty until there is a null, or a NaN.
    nulls: Vec<u64>,
    nans: Vec<u64>,
    /// Negative and positive infinities; empty until there is one.
    infinities: [Vec<u64>; 2],
    sums: Sums,
    ranges: Ranges,
}

/// Runs of at least this many cells are summarized without a copy.
const LONG: usize = 48;

/// Size of a panel and of a row of it in bytes: the cells stay in L2 between the passes over them. Rows are as long as possible,
/// because reading many short runs at a distance from each other is several times slower than reading memory in order, even where
/// a run is several pages; runs of 256 KiB are as fast. Tests have several panels with few cells.
const PANEL: usize = if cfg!(test) { 2 << 10 } else { 512 << 10 };
const WIDTH: usize = if cfg!(test) { 1 << 10 } else { 256 << 10 };
/// Fewer rows are not worth a pass over the sums of the columns.
const LEAST_ROWS: usize = 4;
/// Positions whose answers are computed together if they have equally many cells.
const LISTED: usize = 512;
/// Size of the results of the columns of a panel whose cells are read only once, in bytes: they stay in L2, and the cells need not.
const RESULTS: usize = if cfg!(test) { 2 << 10 } else { 512 << 10 };

impl AxisFold {
    /// An empty fold over kept axes of `shape`. [`StatSet::INFINITIES`] is not supported for axes.
    ///
    /// # Errors
    /// `Unsupported` for dtypes that have no order and no sum, `InvalidRequest` when the number of positions exceeds the
    /// address space.
    pub fn new(dtype: DType, wanted: StatSet, shape: &[usize]) -> Result<Self> {
        Summary::new(dtype, wanted)?;
        let n = shape.iter().try_fold(1_usize, |n, &extent| n.checked_mul(extent));
        let n = n.ok_or_else(|| Error::invalid(format!("shape {shape:?} exceeds the address space")))?;
        let float = dispatch_element!(dtype, T => T::IS_FLOAT, else => false);
        let when = |needed: bool| if needed { n } else { 0 };
        let (sum, spread) = (wanted.has(StatSet::SUM), wanted.has(StatSet::SPREAD));
        let ranged = when(wanted.has(StatSet::RANGE));
        const WHAT: &str = "the results of a reduction";
        let sums = Sums {
            integers: alloc::zeroed(WHAT, when(sum && !float))?,
            integer_squares: alloc::filled(WHAT, WideSquares::default(), when(spread && !float))?,
            floats: (sum && float).then(|| SlotSums::new(n)),
            float_squares: (spread && float).then(|| SlotSums::new(n)),
        };
        Ok(Self {
            dtype,
            wanted,
            shape: SmallVec::from_slice(shape),
            positions: n,
            everywhere: 0,
            cells: Vec::new(),
            nulls: Vec::new(),
            nans: Vec::new(),
            infinities: [Vec::new(), Vec::new()],
            sums,
            ranges: dispatch_element!(dtype, T => kept_ranges::<T>(ranged)?, else => kept_ranges::<i64>(0)?),
        })
    }

    /// Adds a region. Axis `d` is reduced where `reduced[d]`; the other axes, in order, are the kept ones, and the region begins
    /// at their position `origin`. A cell equal to one of `missing` is null, as is any NaN when one of them is NaN.
    ///
    /// # Errors
    /// `InvalidRequest` when the region does not fit its bytes or the kept axes, or `missing` has a different dtype.
    pub fn fold(
        &mut self,
        view: &AxisCells<'_>,
        reduced: &[bool],
        origin: &[usize],
        missing: &[Scalar],
    ) -> Result<()> {
        let (dims, start) = self.locate(view, reduced, origin)?;
        if view.shape.contains(&0) {
            return Ok(());
        }
        dispatch_element!(self.dtype, T => {
            let size = size_of::<T>();
            // Cell counts stay in range even where a cell is repeated.
            let countable = view.shape.iter().try_fold(1_u64, |n, &extent| n.checked_mul(extent as u64));
            let span = view.shape.iter().zip(view.strides).try_fold(1_usize, |len, (&n, &stride)| {
                len.checked_add(stride.checked_mul(n - 1)?)
            });
            let fits = span.filter(|&n| {
                n.checked_mul(size).is_some_and(|n| n <= view.cells.len())
                    && view.validity.is_none_or(|v| n <= v.len())
            });
            if fits.is_none() || countable.is_none() {
                return Err(Error::invalid(format!("region of shape {:?} exceeds its bytes", view.shape)));
            }
            let typed_missing = typed_all::<T>(self.dtype, missing)?;
            let covered = view.shape.iter().zip(reduced).filter(|&(_, &r)| !r).map(|(&n, _)| n);
            let everywhere = self.cells.is_empty() && covered.eq(self.shape.iter().copied());
            if everywhere {
                let reduced = view.shape.iter().zip(reduced).filter(|&(_, &r)| r).map(|(&n, _)| n as u64);
                self.everywhere += reduced.product::<u64>();
            } else {
                alloc::resize("the results of a reduction", &mut self.cells, self.positions, 0)?;
            }
            self.walk::<T>(view, &dims, start, missing, &typed_missing)
        }, else => Err(Error::unsupported(format!("reductions of {}", self.dtype))))
    }

    /// The axes of a region in memory order, with strides in cells and in kept positions, and the first kept position.
    fn locate(
        &self,
        view: &AxisCells<'_>,
        reduced: &[bool],
        origin: &[usize],
    ) -> Result<(SmallVec<[Dim; 6]>, usize)> {
        let rank = view.shape.len();
        let kept = reduced.iter().filter(|&&r| !r).count();
        if view.strides.len() != rank
            || reduced.len() != rank
            || kept != self.shape.len()
            || origin.len() != self.shape.len()
        {
            return Err(Error::invalid(format!(
                "rank mismatch: a region of rank {rank} with {kept} kept axes does not fold into {} axes",
                self.shape.len()
            )));
        }
        let mut dims: SmallVec<[Dim; 6]> = SmallVec::new();
        let (mut k, mut distance, mut start) = (self.shape.len(), 1, 0);
        for d in (0..rank).rev() {
            let mut acc = 0;
            if !reduced[d] {
                k -= 1;
                if origin[k].checked_add(view.shape[d]).is_none_or(|end| end > self.shape[k]) {
                    return Err(Error::invalid(format!(
                        "{} positions from {} on exceed an axis of {}",
                        view.shape[d], origin[k], self.shape[k]
                    )));
                }
                acc = distance;
                start += origin[k] * distance;
                distance *= self.shape[k];
            }
            if view.shape[d] != 1 {
                dims.push(Dim { count: view.shape[d], src: view.strides[d], dst: acc });
            }
        }
        dims.reverse();
        dims.sort_by_key(|d| std::cmp::Reverse(d.src));
        merge(&mut dims);
        Ok((dims, start))
    }

    fn walk<T: Cell<WorkType: PanelColumn>>(
        &mut self,
        view: &AxisCells<'_>,
        dims: &[Dim],
        start: usize,
        missing: &[Scalar],
        typed_missing: &[T],
    ) -> Result<()> {
        let size = size_of::<T>();
        let innermost = |kept: bool| dims.iter().rposition(|d| (d.dst > 0) == kept);
        let (column, row) = (innermost(true), innermost(false));
        if let (Some(run), true) = (dims.last(), row.is_some_and(|r| r + 1 == dims.len()))
            && run.src == 1
            && (run.count >= LONG || column.is_none())
        {
            let mut result = Ok(());
            each_position(&dims[..dims.len() - 1], |src, acc| {
                let summarize_run = || -> Result<Summary> {
                    let mut summary = Summary::new(self.dtype, self.wanted)?;
                    let validity = view.validity.map(|v| &v[src..src + run.count]);
                    summary.fold(&view.cells[src * size..(src + run.count) * size], validity, missing)?;
                    Ok(summary)
                };
                match summarize_run() {
                    Ok(summary) => self.absorb(start + acc, &summary),
                    Err(e) => result = Err(e),
                }
            });
            return result;
        }
        let single = Dim { count: 1, src: 1, dst: 1 };
        let columns = column.map_or(single, |d| dims[d]);
        let rows = row.map_or(Dim { dst: 0, ..single }, |d| dims[d]);
        let outer: SmallVec<[Dim; 6]> =
            (0..dims.len()).filter(|&d| Some(d) != column && Some(d) != row).map(|d| dims[d]).collect();
        let adjacent = columns.src == 1 || columns.count == 1;
        let aligned = (view.cells.as_ptr() as usize).is_multiple_of(align_of::<T::WorkType>());
        let direct = adjacent && aligned && size_of::<T::WorkType>() == size;
        let (width, most_rows) = self.panel_extents::<T::WorkType>(columns.count, direct);
        let mut scratch = AxisScratch::<T>::new();
        each_position(&outer, |src, acc| {
            for first_column in (0..columns.count).step_by(width) {
                for first_row in (0..rows.count).step_by(most_rows) {
                    let layout = PanelLayout {
                        src: src + first_column * columns.src + first_row * rows.src,
                        row_stride: rows.src,
                        column_stride: columns.src,
                        rows: most_rows.min(rows.count - first_row),
                        columns: width.min(columns.count - first_column),
                    };
                    let range =
                        SlotRange { first: start + acc + first_column * columns.dst, step: columns.dst };
                    scratch.fold(view, &layout, typed_missing, self.requested(), &mut self.sums, range);
                    self.add(&scratch.results, &layout, range);
                }
            }
        });
        Ok(())
    }

    /// The columns and the most rows of a panel, of up to `columns` columns; whether it is read where it is.
    fn panel_extents<W: PanelColumn>(&self, columns: usize, direct: bool) -> (usize, usize) {
        let Requested { sum, range, spread } = self.requested();
        let (column, once) = match (sum, range) {
            (true, false) => W::Sums::column_bytes(spread),
            (false, true) => (2 * size_of::<W::Key>(), true),
            _ => (0, false),
        };
        if direct && once {
            return (columns.min(RESULTS / column), ROWS);
        }
        let width = columns.min(WIDTH / size_of::<W>());
        (width, (PANEL / (width * size_of::<W>())).clamp(LEAST_ROWS, ROWS))
    }

    fn requested(&self) -> Requested {
        Requested {
            sum: self.wanted.has(StatSet::SUM),
            range: self.wanted.has(StatSet::RANGE),
            spread: self.wanted.has(StatSet::SPREAD),
        }
    }

    /// Adds the ranges and counts of a panel to positions.
    fn add<W: PanelColumn>(&mut self, results: &Columns<W>, layout: &PanelLayout, range: SlotRange) {
        let n = layout.columns;
        if self.wanted.has(StatSet::RANGE) {
            if range.step == 1
                && let Some([min, max]) = W::Kept::keys(&mut self.ranges)
            {
                let slots = range.first..range.first + n;
                ranges::widen(&mut min[slots.clone()], &mut max[slots], &results.min, &results.max);
            } else {
                for i in 0..n {
                    self.ranges.add(range.at(i), (results.min[i].into(), results.max[i].into()));
                }
            }
        }
        if !self.cells.is_empty() {
            (0..n).for_each(|i| self.cells[range.at(i)] += layout.rows as u64);
        }
        let [negative, positive] = &mut self.infinities;
        for (counts, more) in [
            (&mut self.nulls, &results.nulls),
            (&mut self.nans, &results.nans),
            (negative, &results.infinities[0]),
            (positive, &results.infinities[1]),
        ] {
            if more.iter().any(|&more| more > 0) {
                counts.resize(self.positions, 0);
                (0..n).for_each(|i| counts[range.at(i)] += u64::from(more[i]));
            }
        }
    }

    /// Adds a summary to a position.
    fn absorb(&mut self, i: usize, summary: &Summary) {
        let (range, moments) = summary.state();
        let (sum, squares) = moments.sums();
        if let Some(sums) = &mut self.sums.floats {
            sums.add(i, sum);
        }
        if let Some(sums) = &mut self.sums.float_squares {
            sums.add(i, squares);
        }
        if let Some(to) = self.sums.integers.get_mut(i) {
            *to += moments.integer_sum().unwrap_or(0);
        }
        if let Some(to) = self.sums.integer_squares.get_mut(i) {
            let [low, high] = squares.digits().low_integer_bits();
            to.add(WideSquares { low, high: high as u64 });
        }
        self.ranges.add(i, range);
        if let Some(cells) = self.cells.get_mut(i) {
            *cells += summary.count();
        }
        let [negative, positive] = &mut self.infinities;
        let [less, more] = moments.infinities();
        for (counts, more) in [
            (&mut self.nulls, summary.nulls()),
            (&mut self.nans, summary.nans()),
            (negative, less),
            (positive, more),
        ] {
            if more > 0 {
                counts.resize(self.positions, 0);
                counts[i] += more;
            }
        }
    }

    /// Adds the cells of another fold over the same positions. The order of merges is irrelevant.
    ///
    /// # Errors
    /// `InvalidRequest` when dtype, shape or requested statistics differ.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if (self.dtype, self.wanted, &self.shape) != (other.dtype, other.wanted, &other.shape) {
            return Err(Error::invalid("folds with different axes or statistics do not merge"));
        }
        for (sum, more) in self.sums.integers.iter_mut().zip(&other.sums.integers) {
            *sum += more;
        }
        for (sum, more) in self.sums.integer_squares.iter_mut().zip(&other.sums.integer_squares) {
            sum.add(*more);
        }
        for (sums, more) in [
            (&mut self.sums.floats, &other.sums.floats),
            (&mut self.sums.float_squares, &other.sums.float_squares),
        ] {
            if let (Some(sums), Some(more)) = (sums, more) {
                sums.merge(more);
            }
        }
        self.ranges.merge(&other.ranges);
        self.everywhere += other.everywhere;
        let [negative, positive] = &mut self.infinities;
        for (counts, more) in [
            (&mut self.cells, &other.cells),
            (&mut self.nulls, &other.nulls),
            (&mut self.nans, &other.nans),
            (negative, &other.infinities[0]),
            (positive, &other.infinities[1]),
        ] {
            if !more.is_empty() {
                counts.resize(self.positions, 0);
                counts.iter_mut().zip(more).for_each(|(a, b)| *a += b);
            }
        }
        Ok(())
    }

    /// The exact sums of a position.
    fn moments(&self, i: usize) -> Moments {
        let (mut sum, mut squares) = (Fixed::default(), Fixed::default());
        if let Some(sums) = &self.sums.floats {
            sum = sums.exact(i);
        }
        if let Some(sums) = &self.sums.float_squares {
            squares = sums.exact(i);
        }
        if let Some(&integer) = self.sums.integers.get(i) {
            sum.add_integer(integer);
        }
        if let Some(integer) = self.sums.integer_squares.get(i) {
            squares.add_wide(false, integer.low, 0);
            squares.add_wide(false, u128::from(integer.high), 128);
        }
        let infinities = [0, 1].map(|sign: usize| self.infinities[sign].get(i).copied().unwrap_or(0));
        Moments::new(infinities, sum, squares)
    }

    /// The state of a position as a summary; `None` when infinities are requested, but no sums, with which they are counted.
    pub fn summary(&self, i: usize) -> Option<Summary> {
        if self.wanted.has(StatSet::INFINITIES) && !self.wanted.has(StatSet::SUM) {
            return None;
        }
        let range = self.ranges.get(i).unwrap_or((i64::MAX, i64::MIN));
        let (cells, nulls, nans) = (self.count(i), self.nulls(i), self.nans(i));
        Summary::from_state(self.dtype, self.wanted, cells, nulls, nans, range, self.moments(i)).ok()
    }

    /// Extents of the kept axes. Below, a position is a row-major index.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Number of positions.
    pub fn len(&self) -> usize {
        self.positions
    }

    /// Whether there are no positions.
    pub fn is_empty(&self) -> bool {
        self.positions == 0
    }

    /// Cells folded at a position, including nulls.
    #[inline]
    pub fn count(&self, i: usize) -> u64 {
        self.everywhere + self.cells.get(i).copied().unwrap_or(0)
    }

    /// Cells of a position that are neither null nor NaN.
    #[inline]
    pub fn valid(&self, i: usize) -> u64 {
        self.count(i) - self.nulls(i) - self.nans(i)
    }

    /// Null cells of a position.
    #[inline]
    pub fn nulls(&self, i: usize) -> u64 {
        self.nulls.get(i).copied().unwrap_or(0)
    }

    /// Cells of a position that are NaN and not null.
    #[inline]
    pub fn nans(&self, i: usize) -> u64 {
        self.nans.get(i).copied().unwrap_or(0)
    }

    /// Whether there can be a NaN.
    pub(crate) fn any_nan(&self) -> bool {
        !self.nans.is_empty()
    }

    /// The minimum of a position, when requested and there is any value.
    pub fn min(&self, i: usize) -> Option<Scalar> {
        self.value(i, self.ranges.get(i)?.0)
    }

    /// The maximum of a position, when requested and there is any value.
    pub fn max(&self, i: usize) -> Option<Scalar> {
        self.value(i, self.ranges.get(i)?.1)
    }

    /// The minimum of a position in the dtype of the cells, when requested and there is any value.
    #[inline]
    pub(crate) fn low<T: Cell>(&self, i: usize) -> Option<T> {
        self.ranges.get(i).filter(|_| self.valid(i) > 0).map(|range| T::from_key(range.0))
    }

    /// The maximum of a position in the dtype of the cells, when requested and there is any value.
    #[inline]
    pub(crate) fn high<T: Cell>(&self, i: usize) -> Option<T> {
        self.ranges.get(i).filter(|_| self.valid(i) > 0).map(|range| T::from_key(range.1))
    }

    fn value(&self, i: usize, key: i64) -> Option<Scalar> {
        if self.valid(i) == 0 {
            return None;
        }
        dispatch_element!(self.dtype, T => {
            Some(Scalar::from_element(<T as Cell>::from_key(key)).with_dtype(self.dtype))
        }, else => None)
    }

    /// The sum of a position, when requested; 0 without values.
    #[inline]
    pub fn sum(&self, i: usize) -> Option<Sum> {
        if let Some(&sum) = self.sums.integers.get(i) {
            return Some(Sum::Int(sum));
        }
        let sums = self.sums.floats.as_ref()?;
        Some(Sum::Float(if self.finite(i) { sums.value(i) } else { self.moments(i).sum() }))
    }

    /// Whether no cell of a position is infinite.
    #[inline]
    fn finite(&self, i: usize) -> bool {
        self.infinities.iter().all(|counts| counts.get(i).is_none_or(|&n| n == 0))
    }

    /// The mean of a position, correctly rounded, when requested and there is any value.
    #[inline]
    pub fn mean(&self, i: usize) -> Option<f64> {
        let n = self.valid(i);
        if n == 0 || !self.wanted.has(StatSet::SUM) {
            return None;
        }
        match &self.sums.floats {
            Some(sums) if self.finite(i) => Some(sums.mean(i, n)),
            _ => Some(self.moments(i).mean(n)),
        }
    }

    /// The population variance of a position, correctly rounded, when requested and there is any value.
    pub fn variance(&self, i: usize) -> Option<f64> {
        self.variance_of(i, 0)
    }

    /// The variance of a position with `ddof` degrees of freedom less than there are values, correctly rounded.
    pub fn variance_of(&self, i: usize, ddof: u64) -> Option<f64> {
        let n = self.valid(i);
        (n > ddof && self.wanted.has(StatSet::SPREAD)).then(|| self.moments(i).variance(n, ddof))
    }

    /// The standard deviation of a position with `ddof` degrees of freedom less than there are values, correctly rounded.
    pub fn std_of(&self, i: usize, ddof: u64) -> Option<f64> {
        let n = self.valid(i);
        (n > ddof && self.wanted.has(StatSet::SPREAD)).then(|| self.moments(i).std(n, ddof))
    }

    /// The number of cells of each of `len` positions from `first` on, if it is the same and none of them is null, NaN or infinite.
    fn common_count(&self, first: usize, len: usize) -> Option<u64> {
        let [negative, positive] = &self.infinities;
        let counts = [&self.nulls, &self.nans, negative, positive];
        let cells = self.cells.get(first..first + len).unwrap_or_default();
        let same = cells.windows(2).all(|pair| pair[0] == pair[1]);
        let more = cells.first().copied().unwrap_or(0);
        (same && counts.iter().all(|counts| counts.is_empty())).then_some(self.everywhere + more)
    }

    /// The means of adjacent positions from `first` on, correctly rounded; NaN where sums are not requested or there is no value.
    pub fn means(&self, first: usize, out: &mut [f64]) {
        for (piece, out) in out.chunks_mut(LISTED).enumerate() {
            let first = first + piece * LISTED;
            match (&self.sums.floats, self.common_count(first, out.len())) {
                (Some(sums), Some(n)) if n > 0 => sums.means(first, n, out),
                _ => (first..).zip(out).for_each(|(i, mean)| *mean = self.mean(i).unwrap_or(f64::NAN)),
            }
        }
    }

    /// The variances of adjacent positions from `first` on, or with `root` the standard deviations, with `ddof` degrees of freedom less
    /// than there are values, correctly rounded; NaN where they are not requested or there are too few values.
    pub fn spreads(&self, first: usize, ddof: u64, root: bool, out: &mut [f64]) {
        for (piece, out) in out.chunks_mut(LISTED).enumerate() {
            let first = first + piece * LISTED;
            out.fill(f64::NAN);
            if let (Some(sums), Some(squares), Some(n)) =
                (&self.sums.floats, &self.sums.float_squares, self.common_count(first, out.len()))
                && n > ddof
            {
                sums.spreads(squares, (first, n, ddof), root, out);
            }
            for (i, spread) in (first..).zip(out).filter(|(_, spread)| spread.is_nan()) {
                let exact = if root { self.std_of(i, ddof) } else { self.variance_of(i, ddof) };
                *spread = exact.unwrap_or(f64::NAN);
            }
        }
    }

    /// Infinite cells of a position, when they and sums are requested.
    pub fn infinities(&self, i: usize) -> Option<u64> {
        let counted = self.wanted.has(StatSet::INFINITIES) && self.wanted.has(StatSet::SUM);
        counted.then(|| self.infinities.iter().filter_map(|counts| counts.get(i)).sum())
    }

    /// The population standard deviation of a position, correctly rounded, when requested and there is any value.
    pub fn std(&self, i: usize) -> Option<f64> {
        self.std_of(i, 0)
    }
}

/// Empty ranges of `n` positions.
fn kept_ranges<T: Cell<WorkType: PanelColumn>>(n: usize) -> Result<Ranges> {
    <<T::WorkType as PanelColumn>::Kept as KeptKey>::empty(n)
}

/// The layout of a panel among the cells of a view.
struct PanelLayout {
    src: usize,
    row_stride: usize,
    column_stride: usize,
    rows: usize,
    columns: usize,
}

impl PanelLayout {
    /// The number of cells from the first to the last.
    fn span(&self) -> usize {
        (self.rows - 1) * self.row_stride + (self.columns - 1) * self.column_stride + 1
    }

    /// Copies the elements of the panel in `bytes` contiguously into `gathered`.
    fn gather<T: bytemuck::Pod>(&self, bytes: &[u8], gathered: &mut Vec<T>) -> Result<()> {
        let size = size_of::<T>();
        gathered.resize(self.rows * self.columns, T::zeroed());
        copy_box(
            &bytes[self.src * size..(self.src + self.span()) * size],
            &[self.row_stride * size, self.column_stride * size],
            bytemuck::cast_slice_mut(gathered),
            &[self.columns * size, size],
            &[self.rows, self.columns],
            size,
        )
    }
}

/// Buffers for panels, reused from one to the next.
struct AxisScratch<T: Cell<WorkType: PanelColumn>> {
    results: Columns<T::WorkType>,
    gathered: Vec<T>,
    widened: Vec<T::WorkType>,
    validity: Vec<u8>,
}

impl<T: Cell<WorkType: PanelColumn>> AxisScratch<T> {
    fn new() -> Self {
        Self { results: Columns::new(), gathered: Vec::new(), widened: Vec::new(), validity: Vec::new() }
    }

    /// Folds a panel into the results.
    fn fold(
        &mut self,
        view: &AxisCells<'_>,
        layout: &PanelLayout,
        missing: &[T],
        requested: Requested,
        to: &mut Sums,
        range: SlotRange,
    ) {
        let PanelLayout { src, row_stride, rows, columns, .. } = *layout;
        let adjacent = layout.column_stride == 1 || columns == 1;
        let size = size_of::<T>();
        let bytes = &view.cells[src * size..(src + layout.span()) * size];
        let direct = if adjacent && size_of::<T::WorkType>() == size {
            bytemuck::try_cast_slice::<u8, T::WorkType>(bytes).ok()
        } else {
            None
        };
        let panel = match direct {
            Some(cells) => Panel { cells, stride: row_stride, rows, columns },
            None => {
                // The bytes of the view were checked against its span, so gathering cannot fail.
                let gathered = layout.gather(view.cells, &mut self.gathered);
                debug_assert!(gathered.is_ok());
                self.widened.resize(rows * columns, T::WorkType::zeroed());
                widen(&self.gathered, &mut self.widened);
                Panel { cells: &self.widened[..], stride: columns, rows, columns }
            }
        };
        let validity = view.validity.map(|validity| {
            if adjacent {
                let cells = &validity[src..src + layout.span()];
                return Panel { cells, stride: row_stride, rows, columns };
            }
            let gathered = layout.gather(validity, &mut self.validity);
            debug_assert!(gathered.is_ok());
            Panel { cells: &self.validity[..], stride: columns, rows, columns }
        });
        let missing: SmallVec<[T::WorkType; 2]> = missing.iter().map(|value| value.widen()).collect();
        self.results.fold(panel, validity, &missing, requested, to, range);
    }
}

#[multiversion::multiversion(targets("x86_64+avx2"))]
fn widen<T: Cell>(cells: &[T], widened: &mut [T::WorkType]) {
    for (to, from) in widened.iter_mut().zip(cells) {
        *to = from.widen();
    }
}

#[cfg(test)]
mod tests;
