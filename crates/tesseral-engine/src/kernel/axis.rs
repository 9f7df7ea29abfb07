//! Reduction along some axes: one result per position of the other axes.
//!
//! An [`AxisFold`] holds the state of each position of the *kept* axes. Regions of cells are folded into it one after the
//! other; states over the same positions merge. As with [summaries](super::summary), equal regions in equal order give
//! equal bits.
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
//! 3. Float sums are accumulated in a plain partial sum per position, which is added to a compensated sum after some hundred
//!    rows: single-row chunks do not each pay for compensation, and the error is no larger than that of a pairwise sum.

use bytemuck::Zeroable;
use smallvec::SmallVec;
use tesseral_core::{DType, Element, Error, Result, Scalar, Sum, alloc, dispatch_element};

use super::block::{Cell, Moments, compensated, neumaier};
use super::copy::{Dim, copy_box, each_position, merge};
use super::summary::{Summary, Wanted, mean, typed};

pub(crate) mod panel;

use panel::{Column, Columns, Panel, ROWS, Requested};

/// A region of cells, native-endian and unaligned; strides are in cells.
///
/// A stride of 0 repeats a cell along an axis.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
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
    wanted: Wanted,
    shape: SmallVec<[usize; 4]>,
    positions: usize,
    /// Cells common to all positions, and additional cells of each: empty until a region covers only some, or spreads need it.
    everywhere: u64,
    cells: Vec<u64>,
    /// Empty until there is a null, or a NaN.
    nulls: Vec<u64>,
    nans: Vec<u64>,
    /// Integer sums.
    int_sum: Vec<i128>,
    /// Float sums: not yet compensated, compensated, and the rounding error of the latter.
    recent: Vec<f64>,
    float_sum: Vec<f64>,
    lost: Vec<f64>,
    /// Maximum number of additions to any of `recent`.
    additions: usize,
    /// Whether the current region would exceed that number.
    compensate: bool,
    /// Keys, in the order of values.
    min: Vec<i64>,
    max: Vec<i64>,
    moments: Vec<Moments>,
}

/// Runs of at least this many cells are summarized without a copy.
const LONG: usize = 48;

impl AxisFold {
    /// An empty fold over kept axes of `shape`. [`Wanted::INFINITIES`] is not supported for axes.
    ///
    /// # Errors
    /// `Unsupported` for dtypes that have no order and no sum, `InvalidRequest` when the number of positions exceeds the
    /// address space.
    pub fn new(dtype: DType, wanted: Wanted, shape: &[usize]) -> Result<Self> {
        Summary::new(dtype, wanted)?;
        let n = shape.iter().try_fold(1_usize, |n, &extent| n.checked_mul(extent));
        let n = n.ok_or_else(|| Error::invalid(format!("shape {shape:?} exceeds the address space")))?;
        let float = dispatch_element!(dtype, T => T::IS_FLOAT, else => false);
        let when = |needed: bool| if needed { n } else { 0 };
        let (sum, range) = (wanted.has(Wanted::SUM), when(wanted.has(Wanted::RANGE)));
        const WHAT: &str = "the results of a reduction";
        let floats = || alloc::zeroed::<f64>(WHAT, when(sum && float));
        Ok(Self {
            dtype,
            wanted,
            shape: SmallVec::from_slice(shape),
            positions: n,
            everywhere: 0,
            cells: alloc::zeroed(WHAT, when(wanted.has(Wanted::SPREAD)))?,
            nulls: Vec::new(),
            nans: Vec::new(),
            int_sum: alloc::zeroed(WHAT, when(sum && !float))?,
            recent: floats()?,
            lost: floats()?,
            float_sum: floats()?,
            additions: 0,
            compensate: false,
            min: alloc::filled(WHAT, i64::MAX, range)?,
            max: alloc::filled(WHAT, i64::MIN, range)?,
            moments: alloc::filled(WHAT, Moments::default(), when(wanted.has(Wanted::SPREAD)))?,
        })
    }

    /// Adds a region. Axis `d` is reduced where `reduced[d]`; the other axes, in order, are the kept ones, and the region begins
    /// at their position `origin`. A cell equal to `fill` is null, as is any NaN when `fill` is NaN.
    ///
    /// # Errors
    /// `InvalidRequest` when the region does not fit its bytes or the kept axes, or `fill` has a different dtype.
    pub fn fold(
        &mut self,
        view: &View<'_>,
        reduced: &[bool],
        origin: &[usize],
        fill: Option<&Scalar>,
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
            let fill_value = typed::<T>(self.dtype, fill)?;
            let covered = view.shape.iter().zip(reduced).filter(|&(_, &r)| !r).map(|(&n, _)| n);
            let everywhere = self.cells.is_empty() && covered.eq(self.shape.iter().copied());
            if everywhere {
                let reduced = view.shape.iter().zip(reduced).filter(|&(_, &r)| r).map(|(&n, _)| n as u64);
                self.everywhere += reduced.product::<u64>();
            } else {
                alloc::resize("the results of a reduction", &mut self.cells, self.positions, 0)?;
            }
            self.walk::<T>(view, &dims, start, fill, fill_value)
        }, else => Err(Error::unsupported(format!("reductions of {}", self.dtype))))
    }

    /// The axes of a region in memory order, with strides in cells and in kept positions, and the first kept position.
    fn locate(
        &self,
        view: &View<'_>,
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

    fn walk<T: Cell<WorkType: Column>>(
        &mut self,
        view: &View<'_>,
        dims: &[Dim],
        start: usize,
        fill: Option<&Scalar>,
        fill_value: Option<T>,
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
                    summary.fold(&view.cells[src * size..(src + run.count) * size], validity, fill)?;
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
        // Squares take a second pass, for which the panel should still be in L2.
        let width = if self.wanted.has(Wanted::SPREAD) { 256 } else { 1024 };
        self.limit_recent_additions(dims, row);
        let mut scratch = Scratch::<T>::new();
        each_position(&outer, |src, acc| {
            for first_column in (0..columns.count).step_by(width) {
                for first_row in (0..rows.count).step_by(ROWS) {
                    let layout = PanelLayout {
                        src: src + first_column * columns.src + first_row * rows.src,
                        row_stride: rows.src,
                        column_stride: columns.src,
                        rows: ROWS.min(rows.count - first_row),
                        columns: width.min(columns.count - first_column),
                    };
                    scratch.fold(view, &layout, fill_value, self.requested());
                    self.add(
                        &scratch.results,
                        &layout,
                        start + acc + first_column * columns.dst,
                        columns.dst,
                    );
                }
            }
        });
        Ok(())
    }

    fn requested(&self) -> Requested {
        Requested {
            sum: self.wanted.has(Wanted::SUM),
            range: self.wanted.has(Wanted::RANGE),
            spread: self.wanted.has(Wanted::SPREAD),
        }
    }

    /// Adds the results of a panel to positions that begin at `first` and are `step` apart.
    #[allow(clippy::cast_precision_loss)]
    fn add<W: Column>(&mut self, results: &Columns<W>, layout: &PanelLayout, first: usize, step: usize) {
        let n = layout.columns;
        let rows = layout.rows as u64;
        let at = |i: usize| first + i * step;
        if self.wanted.has(Wanted::SPREAD) {
            for i in 0..n {
                let values = layout.rows as u32 - results.gaps(i);
                if values > 0 {
                    let (high, low) = W::center_parts(results.center[i]);
                    let m = f64::from(values);
                    let moments = Moments::around(m, high, low, results.s1[i], results.s2[i]);
                    let before = self.valid(at(i)) as f64;
                    self.moments[at(i)].merge(before, &moments, m);
                }
            }
        }
        if self.wanted.has(Wanted::SUM) {
            if W::FLOAT {
                if self.compensate {
                    for i in 0..n {
                        let more = W::total(results.partial[i]).to_f64();
                        neumaier(&mut self.float_sum[at(i)], &mut self.lost[at(i)], more);
                    }
                } else if step == 1 {
                    for (sum, &part) in self.recent[first..first + n].iter_mut().zip(&results.partial) {
                        *sum += W::total(part).to_f64();
                    }
                } else {
                    (0..n).for_each(|i| self.recent[at(i)] += W::total(results.partial[i]).to_f64());
                }
            } else {
                for i in 0..n {
                    if let Sum::Int(sum) = W::total(results.partial[i]) {
                        self.int_sum[at(i)] += sum;
                    }
                }
            }
        }
        if self.wanted.has(Wanted::RANGE) {
            for i in 0..n {
                // Keys of empty columns never narrow the range.
                let (min, max): (i64, i64) = (results.min[i].into(), results.max[i].into());
                self.min[at(i)] = self.min[at(i)].min(min);
                self.max[at(i)] = self.max[at(i)].max(max);
            }
        }
        if !self.cells.is_empty() {
            (0..n).for_each(|i| self.cells[at(i)] += rows);
        }
        let positions = self.positions;
        for (counts, more) in [(&mut self.nulls, &results.nulls), (&mut self.nans, &results.nans)] {
            if more.iter().any(|&more| more > 0) {
                counts.resize(positions, 0);
                (0..n).for_each(|i| counts[at(i)] += u64::from(more[i]));
            }
        }
    }

    /// Ensures that recent float sums are no less accurate than a pairwise sum, for a region with these axes.
    fn limit_recent_additions(&mut self, dims: &[Dim], row: Option<usize>) {
        let reduced = dims.iter().enumerate().filter(|(_, dim)| dim.dst == 0);
        let panels = |d: usize, dim: &Dim| if Some(d) == row { dim.count.div_ceil(ROWS) } else { dim.count };
        let more = reduced.fold(1_usize, |n, (d, dim)| n.saturating_mul(panels(d, dim)));
        self.compensate = more > ROWS;
        if !self.compensate && self.additions + more > ROWS {
            self.flush();
        }
        self.additions += if self.compensate { 0 } else { more };
    }

    fn flush(&mut self) {
        for ((recent, sum), lost) in self.recent.iter_mut().zip(&mut self.float_sum).zip(&mut self.lost) {
            neumaier(sum, lost, std::mem::take(recent));
        }
        self.additions = 0;
    }

    /// Adds a summary to a position.
    #[allow(clippy::cast_precision_loss)]
    fn absorb(&mut self, i: usize, summary: &Summary) {
        let state = summary.state();
        let (before, more) = (self.valid(i) as f64, summary.valid() as f64);
        if let Some(moments) = self.moments.get_mut(i) {
            moments.merge(before, state.moments, more);
        }
        if let Some(sum) = self.int_sum.get_mut(i) {
            *sum += state.int_sum;
        }
        if let (Some(sum), Some(lost)) = (self.float_sum.get_mut(i), self.lost.get_mut(i)) {
            neumaier(sum, lost, state.float_sum.0);
            *lost += state.float_sum.1;
        }
        if let (Some(min), Some(max)) = (self.min.get_mut(i), self.max.get_mut(i)) {
            *min = state.range.0.min(*min);
            *max = state.range.1.max(*max);
        }
        if let Some(cells) = self.cells.get_mut(i) {
            *cells += summary.count();
        }
        let positions = self.positions;
        for (counts, more) in [(&mut self.nulls, summary.nulls()), (&mut self.nans, summary.nans())] {
            if more > 0 {
                counts.resize(positions, 0);
                counts[i] += more;
            }
        }
    }

    /// Adds the cells of another fold over the same positions, as if they had been folded after these.
    ///
    /// # Errors
    /// `InvalidRequest` when dtype, shape or requested statistics differ.
    #[allow(clippy::cast_precision_loss)]
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        if (self.dtype, self.wanted, &self.shape) != (other.dtype, other.wanted, &other.shape) {
            return Err(Error::invalid("folds with different axes or statistics do not merge"));
        }
        self.flush();
        for i in 0..self.moments.len() {
            let (before, more) = (self.valid(i) as f64, other.valid(i) as f64);
            self.moments[i].merge(before, &other.moments[i], more);
        }
        for (sum, more) in self.int_sum.iter_mut().zip(&other.int_sum) {
            *sum += more;
        }
        for i in 0..self.float_sum.len() {
            neumaier(&mut self.float_sum[i], &mut self.lost[i], other.float_sum[i]);
            neumaier(&mut self.float_sum[i], &mut self.lost[i], other.recent[i]);
            self.lost[i] += other.lost[i];
        }
        self.min.iter_mut().zip(&other.min).for_each(|(a, &b)| *a = b.min(*a));
        self.max.iter_mut().zip(&other.max).for_each(|(a, &b)| *a = b.max(*a));
        self.everywhere += other.everywhere;
        let positions = self.positions;
        for (counts, more) in
            [(&mut self.cells, &other.cells), (&mut self.nulls, &other.nulls), (&mut self.nans, &other.nans)]
        {
            if !more.is_empty() {
                counts.resize(positions, 0);
                counts.iter_mut().zip(more).for_each(|(a, b)| *a += b);
            }
        }
        Ok(())
    }

    /// The state of a position as a summary; `None` when infinities are requested, which are not counted here.
    pub fn summary(&self, i: usize) -> Option<Summary> {
        let float_sum = self.float_sum.get(i).map_or((0.0, 0.0), |&sum| {
            let (mut sum, mut lost) = (sum, self.lost[i]);
            neumaier(&mut sum, &mut lost, self.recent[i]);
            (sum, lost)
        });
        let none = Moments::default();
        let state = super::summary::State {
            range: (
                self.min.get(i).copied().unwrap_or(i64::MAX),
                self.max.get(i).copied().unwrap_or(i64::MIN),
            ),
            int_sum: self.int_sum.get(i).copied().unwrap_or(0),
            float_sum,
            moments: self.moments.get(i).unwrap_or(&none),
        };
        if self.wanted.has(Wanted::INFINITIES) {
            return None;
        }
        let (cells, nulls, nans) = (self.count(i), self.nulls(i), self.nans(i));
        Summary::from_state(self.dtype, self.wanted, cells, nulls, nans, &state).ok()
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

    /// The minimum of a position, when requested and there is any value.
    pub fn min(&self, i: usize) -> Option<Scalar> {
        self.value(i, *self.min.get(i)?)
    }

    /// The maximum of a position, when requested and there is any value.
    pub fn max(&self, i: usize) -> Option<Scalar> {
        self.value(i, *self.max.get(i)?)
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
        if let Some(&sum) = self.int_sum.get(i) {
            return Some(Sum::Int(sum));
        }
        let (mut sum, mut lost) = (*self.float_sum.get(i)?, self.lost[i]);
        neumaier(&mut sum, &mut lost, self.recent[i]);
        Some(Sum::Float(compensated(sum, lost)))
    }

    /// The mean of a position, when requested and there is any value.
    #[inline]
    pub fn mean(&self, i: usize) -> Option<f64> {
        let n = self.valid(i);
        if n == 0 { None } else { self.sum(i).map(|sum| mean(sum, n)) }
    }

    /// The population variance of a position, when requested and there is any value.
    #[allow(clippy::cast_precision_loss)]
    pub fn variance(&self, i: usize) -> Option<f64> {
        let n = self.valid(i);
        if n == 0 { None } else { self.moments.get(i).map(|m| m.total() / n as f64) }
    }

    /// The population standard deviation of a position, when requested and there is any value.
    pub fn std(&self, i: usize) -> Option<f64> {
        self.variance(i).map(f64::sqrt)
    }
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
struct Scratch<T: Cell<WorkType: Column>> {
    results: Columns<T::WorkType>,
    gathered: Vec<T>,
    widened: Vec<T::WorkType>,
    validity: Vec<u8>,
}

impl<T: Cell<WorkType: Column>> Scratch<T> {
    fn new() -> Self {
        Self { results: Columns::new(), gathered: Vec::new(), widened: Vec::new(), validity: Vec::new() }
    }

    /// Folds a panel into the results.
    fn fold(&mut self, view: &View<'_>, layout: &PanelLayout, fill: Option<T>, requested: Requested) {
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
        self.results.fold(panel, validity, fill.map(T::widen), requested);
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
