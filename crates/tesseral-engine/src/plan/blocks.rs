//! Memory budgets, and division of work to fit them.

use tesseral_core::{Result, Selection, Slice};
use tesseral_format::{MemoryBudget, Request};

use crate::handle::Handle;
use crate::paint::dense::fixed_size;
use crate::plan::expansion::{check_total, work_space};

/// A file's budget in bytes: basis points refer to the memory that is available now. `None` if that is unknown.
pub fn budget_bytes(budget: MemoryBudget) -> Option<u64> {
    match budget {
        MemoryBudget::Bytes(bytes) => Some(bytes),
        MemoryBudget::BasisPoints(points) => {
            available_memory().map(|bytes| bytes / 10_000 * u64::from(points))
        }
    }
}

/// Available memory in bytes, as estimated by the kernel.
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// A selection divided into boxes in row-major order: reading them in sequence gives the selection's cells in order.
#[derive(Clone, Debug)]
pub struct Blocks {
    slices: Vec<Slice>,
    shape: Vec<u64>,
    /// Dimensions before this one advance position by position, this one by runs, later ones are complete.
    split: usize,
    run: u64,
    chunk: u64,
    at: Option<Vec<u64>>,
}

/// Divides a selection of a dense array into boxes of at most `bytes`, or of one cell if that is more.
///
/// # Errors
/// `InvalidRequest` for requests that are not positions of one fixed-size field.
pub fn blocks(handle: &Handle, request: &Request, bytes: u64) -> Result<Blocks> {
    let field = match request.columns.as_slice() {
        [tesseral_format::Column::Field(field)] => *field,
        _ => return Err(tesseral_core::Error::invalid("blocks require a request of one field")),
    };
    let size = fixed_size(handle, field)? as u64;
    check_total(handle, request)?;
    let selection = request
        .selection()
        .ok_or_else(|| tesseral_core::Error::invalid("blocks require a request by positions"))?;
    let chunk = handle.schema().chunk_shape.clone().unwrap_or_default();
    Ok(Blocks::new(selection, &chunk, work_space(handle, request, bytes)? / size))
}

impl Blocks {
    /// Divides by cells; a dimension without a chunk extent has chunks of one position.
    pub(crate) fn new(selection: &Selection, chunk: &[u64], cells: u64) -> Self {
        let slices = selection.slices().to_vec();
        let shape = selection.shape().to_vec();
        let mut inner = 1_u64;
        // If everything fits, the first dimension is one run.
        let (mut split, mut run) = (0, shape.first().copied().unwrap_or(1).max(1));
        for d in (0..shape.len()).rev() {
            let whole = inner.saturating_mul(shape[d]);
            if whole > cells {
                (split, run) = (d, (cells / inner.max(1)).clamp(1, shape[d].max(1)));
                break;
            }
            inner = whole;
        }
        let chunk = match slices.get(split) {
            Some(slice) if slice.step == 1 => chunk.get(split).copied().unwrap_or(1),
            _ => 1,
        };
        let at = (!shape.contains(&0)).then(|| vec![0; shape.len()]);
        Self { slices, shape, split, run, chunk, at }
    }

    /// Number of positions of the next run along the split dimension, from `start`: as many as fit, ending at a chunk boundary
    /// if at least one chunk fits, so that chunks are not decoded twice.
    fn run_end(&self, start: u64) -> u64 {
        let end = (start + self.run).min(self.shape[self.split]);
        let first = self.slices[self.split].start;
        let aligned = (first + end) / self.chunk * self.chunk;
        if end < self.shape[self.split] && aligned > first + start { aligned - first } else { end }
    }
}

impl Iterator for Blocks {
    type Item = Selection;

    fn next(&mut self) -> Option<Selection> {
        let at = self.at.take()?;
        let mut ends: Vec<u64> = self.shape.clone();
        if !self.shape.is_empty() {
            for d in 0..self.split {
                ends[d] = at[d] + 1;
            }
            ends[self.split] = self.run_end(at[self.split]);
        }
        let block = self.slices.iter().zip(&at).zip(&ends).map(|((slice, &from), &to)| Slice {
            start: slice.start + from * slice.step,
            end: (slice.start + (to - 1) * slice.step + 1).min(slice.end),
            step: slice.step,
        });
        // Parts of valid slices are valid.
        let bounds: Vec<u64> = self.slices.iter().map(|s| s.end).collect();
        let block = Selection::new(block, &bounds).ok()?;
        let mut next = at;
        for d in (0..self.shape.len().min(self.split + 1)).rev() {
            next[d] = ends[d];
            if next[d] < self.shape[d] {
                self.at = Some(next);
                break;
            }
            next[d] = 0;
        }
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_one_another_row_major() {
        let shape = [5, 4, 7];
        let slices =
            [Slice::new(1, 5), Slice { start: 0, end: 4, step: 3 }, Slice { start: 1, end: 7, step: 2 }];
        let selection = Selection::new(slices, &shape).unwrap();
        let cells = |s: &Selection| {
            let [a, b, c] = s.slices() else { panic!("rank") };
            let mut out = Vec::new();
            for i in (a.start..a.end).step_by(a.step as usize) {
                for j in (b.start..b.end).step_by(b.step as usize) {
                    for k in (c.start..c.end).step_by(c.step as usize) {
                        out.push((i, j, k));
                    }
                }
            }
            out
        };
        for budget in 0..60 {
            let blocks: Vec<Selection> = Blocks::new(&selection, &[2, 2, 2], budget).collect();
            assert!(blocks.iter().all(|b| b.cells().unwrap() <= budget.max(1)), "{budget}");
            assert_eq!(blocks.iter().flat_map(cells).collect::<Vec<_>>(), cells(&selection), "{budget}");
        }
    }

    #[test]
    fn blocks_end_where_chunks_end() {
        let all = Selection::all(&[100, 10]);
        let rows: Vec<u64> = Blocks::new(&all, &[8, 10], 200).map(|b| b.slices()[0].start).collect();
        // Twenty rows fit, sixteen end at a chunk; the last twenty end with the array.
        assert_eq!(rows, [0, 16, 32, 48, 64, 80]);
        for cells in [1000, 1001, 1999, 2000, 1 << 40] {
            assert_eq!(Blocks::new(&all, &[8, 10], cells).count(), 1, "all of it fits {cells}");
        }
    }

    #[test]
    fn empty_selections_and_scalars() {
        assert_eq!(Blocks::new(&Selection::all(&[3, 0]), &[1, 1], 10).count(), 0);
        assert_eq!(Blocks::new(&Selection::all(&[]), &[], 10).count(), 1);
    }
}
