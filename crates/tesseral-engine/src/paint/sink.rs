//! The output of a parallel read: one slice, painted by many threads in disjoint boxes.
//!
//! The only `unsafe` code of the engine. [`paint`] passes each [group](Groups) an [`OutputRegion`] that can write only to that
//! group's box of the output; groups own disjoint boxes, so no two threads access the same byte.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::prelude::*;
use smallvec::SmallVec;
use tesseral_core::{Error, Region, Result, Selection};
use tesseral_format::ChunkPlan;

use crate::fetch::Batch;
use crate::kernel::copy::{self, Walk};
use crate::plan::groups::Groups;

/// Maximum number of groups handed out at once, and minimum number of times that each thread requests more.
const RUNS: usize = 64;

/// Minimum size of the output in bytes for prefetching: smaller ones stay in the caches.
const LARGE: usize = 8 << 20;
/// Number of bytes of upcoming rows to prefetch while others are written.
const AHEAD: usize = 4 << 10;

/// Strides of one dimension each, in bytes.
pub(crate) type Strides = SmallVec<[usize; 4]>;

/// Row-major byte strides of a box of cells of `size` bytes. The caller has checked that its bytes fit in memory.
pub(crate) fn row_major(shape: &[u64], size: usize) -> Strides {
    let mut strides = Strides::from_elem(size, shape.len());
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d].saturating_mul(usize::try_from(shape[d]).unwrap_or(usize::MAX));
    }
    strides
}

/// A box of an output slice that one group can write to.
pub(crate) struct OutputRegion<'a> {
    start: *mut u8,
    len: usize,
    size: usize,
    strides: &'a Strides,
    shape: &'a [u64],
    /// Region in positions of the output.
    region: Region,
    _out: PhantomData<&'a mut [u8]>,
}

/// Source of a copy: cells with a byte stride per dimension.
pub(crate) struct StridedCells<'a> {
    pub bytes: &'a [u8],
    pub start: usize,
    pub strides: Strides,
}

impl OutputRegion<'_> {
    /// Byte offset of a box of this region in the output; checks that it is inside the region.
    fn locate(&self, part: &Region) -> Result<(usize, SmallVec<[usize; 4]>)> {
        if !self.region.contains(part) {
            return Err(Error::internal(format!(
                "a chunk writes {part:?} outside its region {:?}",
                self.region
            )));
        }
        let mut offset = 0_usize;
        let mut extents = SmallVec::new();
        for (d, &(start, end)) in part.bounds().iter().enumerate() {
            // Within the output, whose bytes are addressable.
            offset += usize::try_from(start).unwrap_or(usize::MAX) * self.strides[d];
            extents.push(usize::try_from(end - start).unwrap_or(usize::MAX));
        }
        Ok((offset, extents))
    }

    /// Bytes of a box that is one run in the output; `None` if it is not.
    pub(crate) fn contiguous(&mut self, part: &Region) -> Result<Option<&mut [u8]>> {
        let (offset, extents) = self.locate(part)?;
        // Contiguous if, after leading extents of 1, every later dimension is complete.
        let first = extents.iter().position(|&n| n != 1).unwrap_or(extents.len());
        let whole = (first + 1..extents.len()).all(|d| extents[d] as u64 == self.shape[d]);
        if !whole {
            return Ok(None);
        }
        let bytes = extents.iter().product::<usize>() * self.size;
        if offset.checked_add(bytes).is_none_or(|end| end > self.len) {
            return Err(Error::internal("a box is outside the output"));
        }
        #[allow(unsafe_code)]
        // SAFETY: in bounds by the check above. The run consists of cells of `part`, all inside this group's box (`locate`),
        // and boxes of different groups are disjoint (`Groups`), so no other thread has these bytes; `&mut self` prevents this
        // thread from borrowing them twice.
        Ok(Some(unsafe { std::slice::from_raw_parts_mut(self.start.add(offset), bytes) }))
    }

    /// Copies cells into a box.
    pub(crate) fn copy(&mut self, part: &Region, cells: &StridedCells<'_>) -> Result<()> {
        let (offset, extents) = self.locate(part)?;
        let walk = Walk::new(&cells.strides, self.strides, &extents, self.size)?;
        let source =
            cells.bytes.get(cells.start..).filter(|s| s.len() >= walk.src_len()).ok_or_else(outside)?;
        if let Some(target) = self.contiguous(part)? {
            return walk.copy(source, target);
        }
        if offset.checked_add(walk.dst_len()).is_none_or(|end| end > self.len) {
            return Err(outside());
        }
        let start = self.start;
        let bytes_at = |at: usize, len: usize| {
            #[allow(unsafe_code)]
            // SAFETY: in bounds, because the furthest byte of the walk is (checked above). Only bytes of cells of `part` are
            // accessed below: contiguous runs, and single elements if cells are not adjacent. All of them are inside this
            // group's box (`locate`), boxes of different groups are disjoint (`Groups`), and `&mut self` prevents this thread
            // from borrowing them twice: each slice ends before the next begins.
            unsafe {
                std::slice::from_raw_parts_mut(start.add(offset + at), len)
            }
        };
        // Short distant rows are not prefetched by the processor, and a store that misses the cache delays later ones.
        let step = walk.row_step().filter(|_| self.len >= LARGE);
        walk.for_each_run(|run| match run.contiguous() {
            Some(len) => {
                if let Some(step) = step.filter(|_| len <= AHEAD) {
                    let rows = AHEAD / len.max(1);
                    fetch_lines(start.wrapping_add(offset + run.dst + rows * step), len);
                }
                bytes_at(run.dst, len).copy_from_slice(&source[run.src..run.src + len]);
            }
            None if run.dst_stride == run.elem => run.copy(source, bytes_at(run.dst, run.dst_len())),
            None => {
                for i in 0..run.count {
                    let from = run.src + i * run.src_stride;
                    bytes_at(run.dst + i * run.dst_stride, run.elem)
                        .copy_from_slice(&source[from..from + run.elem]);
                }
            }
        });
        Ok(())
    }

    /// Repeats a cell over a box.
    pub(crate) fn fill(&mut self, part: &Region, cell: &[u8]) -> Result<()> {
        let zero = Strides::from_elem(0, part.rank());
        self.copy(part, &StridedCells { bytes: cell, start: 0, strides: zero })
    }

    /// Reverses the bytes of every number of `word` bytes in a box.
    pub(crate) fn swap(&mut self, part: &Region, word: usize) -> Result<()> {
        let rank = part.rank();
        let last = rank.saturating_sub(1);
        // Row by row: every row of a row-major output is one run.
        let mut at: SmallVec<[u64; 4]> = part.bounds().iter().map(|b| b.0).collect();
        loop {
            let row =
                Region::new((0..rank).map(|d| if d == last { part.bounds()[d] } else { (at[d], at[d] + 1) }));
            if let Some(bytes) = self.contiguous(&row)? {
                copy::swap_bytes(bytes, word)?;
            }
            let Some(d) = (0..last).rev().find(|&d| at[d] + 1 < part.end(d)) else { return Ok(()) };
            at[d] += 1;
            for later in d + 1..last {
                at[later] = part.start(later);
            }
        }
    }
}

/// Prefetches the cache lines of bytes that are written soon.
#[inline(always)]
fn fetch_lines(start: *const u8, len: usize) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    for line in (0..len).step_by(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        #[allow(unsafe_code)]
        // SAFETY: a hint that neither reads nor writes memory and never faults, for any address.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(start.wrapping_add(line).cast());
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (start, len);
}

fn outside() -> Error {
    Error::internal("a copy exceeds its region")
}

/// An output slice and the size of its cells.
pub(crate) struct OutputSlice<'a> {
    pub bytes: &'a mut [u8],
    pub size: usize,
}

/// Outputs shared by threads; see the module docs for soundness.
struct SharedOutput {
    start: *mut u8,
    len: usize,
    size: usize,
    strides: Strides,
}

#[allow(unsafe_code)]
// SAFETY: the pointer is only used through `OutputRegion`s, which write to disjoint boxes.
unsafe impl Sync for SharedOutput {}

/// Order and batches of groups for painting.
pub(crate) enum Units<'a> {
    /// Every group separately.
    Groups,
    /// Runs of groups.
    Batches(&'a [Batch]),
}

/// Runs `work` once for every group, on several threads if `parallel`, with one target per output.
///
/// `prepare` runs once per unit, before its groups; `work` gets its result, the index of the group, its targets (one per
/// output) and the selection clipped to its box.
#[allow(clippy::too_many_arguments)]
pub(crate) fn paint<C, P, F>(
    outputs: &mut [OutputSlice<'_>],
    selection: &Selection,
    plan: &ChunkPlan,
    groups: &Groups,
    units: &Units<'_>,
    parallel: bool,
    prepare: P,
    work: F,
) -> Result<()>
where
    C: Sync,
    P: Fn(Option<&Batch>) -> Result<C> + Sync,
    F: Fn(&C, usize, &mut [OutputRegion<'_>], &Selection) -> Result<()> + Sync,
{
    let shape = selection.shape();
    let cells = selection.cells().and_then(|n| usize::try_from(n).ok());
    let mut shared: SmallVec<[SharedOutput; 2]> = SmallVec::new();
    for output in outputs.iter_mut() {
        let fits = cells.and_then(|n| n.checked_mul(output.size)).is_some_and(|n| n == output.bytes.len());
        if !fits {
            return Err(Error::invalid(format!(
                "the output of {} bytes does not match the selection",
                output.bytes.len()
            )));
        }
        let strides = row_major(&shape, output.size);
        shared.push(SharedOutput {
            start: output.bytes.as_mut_ptr(),
            len: output.bytes.len(),
            size: output.size,
            strides,
        });
    }
    let shared = &shared[..];
    let paint_group = |context: &C, index: usize| -> Result<()> {
        let group = groups.get(plan, index)?;
        let Some((part, region)) = selection.clip(group.region) else { return Ok(()) };
        let mut targets: SmallVec<[OutputRegion<'_>; 2]> = shared
            .iter()
            .map(|s| OutputRegion {
                start: s.start,
                len: s.len,
                size: s.size,
                strides: &s.strides,
                shape: &shape,
                region: region.clone(),
                _out: PhantomData,
            })
            .collect();
        work(context, index, &mut targets, &part)
    };
    // Each group is handed out exactly once, so each box has one owner at a time.
    match units {
        Units::Groups => {
            let count = groups.len(plan);
            let context = prepare(None)?;
            if parallel && count > 1 {
                in_order(count, |index| paint_group(&context, index))
            } else {
                (0..count).try_for_each(|index| paint_group(&context, index))
            }
        }
        Units::Batches(batches) => {
            let batch = |batch: &Batch| -> Result<()> {
                let context = prepare(Some(batch))?;
                batch.groups.clone().try_for_each(|index| paint_group(&context, index))
            };
            if parallel && batches.len() > 1 {
                in_order(batches.len(), |index| batch(&batches[index]))
            } else {
                batches.iter().try_for_each(batch)
            }
        }
    }
}

/// Runs `work` for every index on all threads, handed out in order, so that concurrently painted boxes are close together, in
/// pages and caches that are already loaded.
fn in_order(count: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let threads = rayon::current_num_threads().min(count);
    let run = (count / (threads * RUNS)).clamp(1, RUNS);
    let claimed = AtomicUsize::new(0);
    (0..threads).into_par_iter().with_max_len(1).try_for_each(|_| {
        loop {
            let start = claimed.fetch_add(run, Ordering::Relaxed);
            if start >= count {
                return Ok(());
            }
            let outcome = (start..(start + run).min(count)).try_for_each(&work);
            if outcome.is_err() {
                // Stop the other threads.
                claimed.store(count, Ordering::Relaxed);
                return outcome;
            }
        }
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// Cells of two bytes with distinct values.
    fn cell(row: usize, column: usize) -> [u8; 2] {
        [row as u8, column as u8 + 100]
    }

    /// Four threads paint the quarters of one output, by runs, by single cells, by repetition and by swapping; runs under Miri.
    #[test]
    fn threads_paint_quarters_at_once() {
        let (rows, columns) = (6_usize, 8_usize);
        let mut out = vec![0_u8; rows * columns * 2];
        let shape = [rows as u64, columns as u64];
        let shared =
            SharedOutput { start: out.as_mut_ptr(), len: out.len(), size: 2, strides: row_major(&shape, 2) };
        let quarters = [(0, 0), (0, 4), (3, 0), (3, 4)];
        let paint = |shared: &SharedOutput, number: usize| {
            let (row, column) = quarters[number];
            let region = Region::new([(row as u64, row as u64 + 3), (column as u64, column as u64 + 4)]);
            let mut target = OutputRegion {
                start: shared.start,
                len: shared.len,
                size: 2,
                strides: &shared.strides,
                shape: &shape,
                region: region.clone(),
                _out: PhantomData,
            };
            let mut source: Vec<u8> =
                (0..3).flat_map(|r| (0..4).flat_map(move |c| cell(row + r, column + c))).collect();
            match number {
                // Rows are runs.
                0 => target.copy(
                    &region,
                    &StridedCells { bytes: &source, start: 0, strides: row_major(&[3, 4], 2) },
                ),
                // Columns first: cells are not adjacent.
                1 => {
                    let turned: Vec<u8> =
                        (0..4).flat_map(|c| (0..3).flat_map(move |r| cell(row + r, column + c))).collect();
                    target.copy(
                        &region,
                        &StridedCells { bytes: &turned, start: 0, strides: Strides::from_slice(&[2, 6]) },
                    )
                }
                2 => target.fill(&region, &cell(9, 9)),
                _ => {
                    source.chunks_exact_mut(2).for_each(<[u8]>::reverse);
                    let cells = StridedCells { bytes: &source, start: 0, strides: row_major(&[3, 4], 2) };
                    target.copy(&region, &cells).and_then(|()| target.swap(&region, 2))
                }
            }
            .unwrap();
            let outside = Region::new([(0, rows as u64), (0, 1)]);
            assert!(target.fill(&outside, &[0, 0]).is_err(), "a box of others");
        };
        std::thread::scope(|scope| {
            for number in 0..quarters.len() {
                let (shared, paint) = (&shared, &paint);
                scope.spawn(move || paint(shared, number));
            }
        });
        let naive = (0..rows).flat_map(|r| {
            (0..columns).flat_map(move |c| if r >= 3 && c < 4 { cell(9, 9) } else { cell(r, c) })
        });
        assert_eq!(out, naive.collect::<Vec<u8>>());
    }
}
