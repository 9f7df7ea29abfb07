//! Limits output to the first or the last rows.

use std::collections::VecDeque;
use std::ops::Range;

use tesseral::{CellBatch, Error, Result, Selection};

use super::{CatArguments, OutputFormat};
use crate::error::report;
use crate::text;

/// Rows of text that are printed to a terminal by default.
const TERMINAL: u64 = 1000;

/// Which rows are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowLimit {
    /// The rows at the start.
    First(u64),
    /// The rows at the end.
    Last(u64),
}

impl RowLimit {
    /// The limit of the arguments; that of a terminal if none is given.
    pub(super) fn from_arguments(
        arguments: &CatArguments,
        format: OutputFormat,
        terminal: bool,
    ) -> Option<Self> {
        match arguments.rows {
            Some(0) => None,
            Some(rows) if arguments.last => Some(Self::Last(rows)),
            Some(rows) => Some(Self::First(rows)),
            None => (terminal && format == OutputFormat::Text).then_some(Self::First(TERMINAL)),
        }
    }

    fn rows(self) -> u64 {
        match self {
            Self::First(rows) | Self::Last(rows) => rows,
        }
    }

    /// Reports how many rows are not printed.
    pub(super) fn note(self, hidden: Option<u64>) {
        let place = match self {
            Self::First(_) => "more",
            Self::Last(_) => "earlier",
        };
        match hidden {
            Some(0) => {}
            Some(1) => report(&format!("… 1 {place} row\n")),
            Some(hidden) => report(&format!("… {} {place} rows\n", text::grouped(hidden))),
            None => report(&format!("… {place} rows; -n 0 prints all\n")),
        }
    }
}

/// A part of a selection that holds the printed rows.
#[derive(Debug)]
pub(super) struct LimitedCells {
    /// The cells to read: a box.
    pub(super) selection: Selection,
    /// The printed ones among them, by their number.
    pub(super) shown: Range<u64>,
    /// Rows outside.
    pub(super) hidden: u64,
}

/// The rows of a dense selection. A row is a line: in text one position of all dimensions but the last, in CSV one cell.
pub(super) fn cells(
    selection: &Selection,
    format: OutputFormat,
    limit: Option<RowLimit>,
) -> Result<LimitedCells> {
    let total = selection.cells().unwrap_or(u64::MAX);
    let whole = || LimitedCells { selection: selection.clone(), shown: 0..total, hidden: 0 };
    let Some(limit) = limit else { return Ok(whole()) };
    let shape = selection.shape();
    let row_dims = match (format, shape.len()) {
        (OutputFormat::Text, rank) if rank > 1 => rank - 1,
        (OutputFormat::Text | OutputFormat::Csv, rank) => rank,
        _ => return Err(Error::invalid("--rows limits rows of text and CSV, of tables, and of --where")),
    };
    let product = |extents: &[u64]| extents.iter().fold(1_u64, |n, extent| n.saturating_mul(*extent));
    let rows = product(&shape[..row_dims]);
    let per_row = product(&shape[row_dims..]);
    let wanted = limit.rows().min(rows);
    if wanted == rows || total == 0 {
        return Ok(whole());
    }
    // Along the outermost dimension of which one position is not enough, as many positions as the rows take; one of those before.
    let split = (0..row_dims).find(|d| product(&shape[d + 1..row_dims]) < wanted).unwrap_or(row_dims - 1);
    let mut slices = selection.slices().to_vec();
    for (d, slice) in slices.iter_mut().enumerate().take(split + 1) {
        let count = if d < split { 1 } else { wanted.div_ceil(product(&shape[d + 1..row_dims])) };
        let skipped = match limit {
            RowLimit::First(_) => 0,
            RowLimit::Last(_) => slice.count() - count,
        };
        slice.start += skipped * slice.step;
        slice.end = (slice.start + (count - 1) * slice.step + 1).min(slice.end);
    }
    let bounds: Vec<u64> = slices.iter().map(|slice| slice.end).collect();
    let part = Selection::new(slices, &bounds)?;
    let held = part.cells().unwrap_or(u64::MAX);
    let cells = wanted.saturating_mul(per_row);
    let shown = match limit {
        RowLimit::First(_) => 0..cells,
        RowLimit::Last(_) => held - cells..held,
    };
    Ok(LimitedCells { selection: part, shown, hidden: rows - wanted })
}

/// The rows of batches that are printed.
#[derive(Debug)]
pub(super) struct LimitedRows {
    limit: Option<RowLimit>,
    seen: u64,
    /// The last batches so far, with at least as many rows as are wanted.
    kept: VecDeque<CellBatch>,
    held: u64,
    /// Whether rows follow that are not printed.
    more: bool,
}

impl LimitedRows {
    pub(super) fn new(limit: Option<RowLimit>) -> Self {
        Self { limit, seen: 0, kept: VecDeque::new(), held: 0, more: false }
    }

    /// Whether no further batch is needed.
    pub(super) fn is_complete(&self) -> bool {
        self.more
    }

    /// The rows of a batch to print now.
    pub(super) fn push(&mut self, batch: CellBatch) -> Option<(CellBatch, Range<usize>)> {
        let rows = batch.rows as u64;
        self.seen += rows;
        match self.limit {
            None => Some((batch, 0..usize::try_from(rows).unwrap_or(usize::MAX))),
            Some(RowLimit::First(wanted)) => {
                let before = self.seen - rows;
                let left = wanted.saturating_sub(before);
                self.more = self.seen > wanted;
                // Not more than the rows of a batch, which are counted as `usize`.
                let end = usize::try_from(left.min(rows)).unwrap_or(usize::MAX);
                (end > 0).then_some((batch, 0..end))
            }
            Some(RowLimit::Last(wanted)) => {
                self.held += rows;
                self.kept.push_back(batch);
                while let Some(first) = self.kept.front() {
                    let rows = first.rows as u64;
                    if self.held - rows < wanted {
                        break;
                    }
                    self.held -= rows;
                    self.kept.pop_front();
                }
                None
            }
        }
    }

    /// The rows that were kept to the end.
    pub(super) fn finish(&mut self) -> Vec<(CellBatch, Range<usize>)> {
        let Some(RowLimit::Last(wanted)) = self.limit else { return Vec::new() };
        let mut skipped = usize::try_from(self.held.saturating_sub(wanted)).unwrap_or(usize::MAX);
        let kept = std::mem::take(&mut self.kept);
        let last = kept.into_iter().map(|batch| {
            let from = skipped.min(batch.rows);
            skipped -= from;
            let rows = from..batch.rows;
            (batch, rows)
        });
        last.collect()
    }

    /// Reports rows before those that are printed.
    pub(super) fn note_before(&self) {
        if let Some(limit @ RowLimit::Last(wanted)) = self.limit {
            limit.note(Some(self.seen.saturating_sub(wanted)));
        }
    }

    /// Reports that rows follow those that were printed.
    pub(super) fn note_after(&self) {
        if let (Some(limit @ RowLimit::First(_)), true) = (self.limit, self.more) {
            limit.note(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limited(shape: &[u64], format: OutputFormat, limit: RowLimit) -> (Vec<(u64, u64)>, Range<u64>, u64) {
        let found = cells(&Selection::all(shape), format, Some(limit)).unwrap();
        let ends = found.selection.slices().iter().map(|slice| (slice.start, slice.end)).collect();
        (ends, found.shown, found.hidden)
    }

    #[test]
    fn rows_are_those_of_a_box() {
        let (first, last) = (RowLimit::First, RowLimit::Last);
        assert_eq!(limited(&[10, 4], OutputFormat::Text, first(3)), (vec![(0, 3), (0, 4)], 0..12, 7));
        assert_eq!(limited(&[10, 4], OutputFormat::Text, last(3)), (vec![(7, 10), (0, 4)], 0..12, 7));
        assert_eq!(limited(&[10, 4], OutputFormat::Csv, first(6)), (vec![(0, 2), (0, 4)], 0..6, 34));
        assert_eq!(limited(&[10, 4], OutputFormat::Csv, last(6)), (vec![(8, 10), (0, 4)], 2..8, 34));
        assert_eq!(
            limited(&[5, 3, 2], OutputFormat::Text, first(2)),
            (vec![(0, 1), (0, 2), (0, 2)], 0..4, 13)
        );
        assert_eq!(
            limited(&[5, 3, 2], OutputFormat::Text, last(4)),
            (vec![(3, 5), (0, 3), (0, 2)], 4..12, 11)
        );
        assert_eq!(limited(&[9], OutputFormat::Text, last(1)), (vec![(8, 9)], 0..1, 8));
        assert_eq!(limited(&[2, 2], OutputFormat::Text, first(9)), (vec![(0, 2), (0, 2)], 0..4, 0));
        assert_eq!(limited(&[0, 2], OutputFormat::Text, first(9)).2, 0);
    }

    /// Against the rows of the whole, for every shape of up to three small dimensions.
    #[test]
    fn the_shown_cells_are_the_first_and_last_ones() {
        for (a, b, c, n) in (0..4_u64.pow(4)).map(|i| (1 + i % 4, 1 + i / 4 % 4, 1 + i / 16 % 4, 1 + i / 64))
        {
            for (limit, format) in [RowLimit::First(n), RowLimit::Last(n)]
                .into_iter()
                .flat_map(|limit| [(limit, OutputFormat::Text), (limit, OutputFormat::Csv)])
            {
                let found = cells(&Selection::all(&[a, b, c]), format, Some(limit)).unwrap();
                let [x, y, z] = [0, 1, 2].map(|d| found.selection.slices()[d]);
                let numbers = (x.start..x.end).flat_map(|i| {
                    (y.start..y.end).flat_map(move |j| (z.start..z.end).map(move |k| (i * b + j) * c + k))
                });
                let shown: Vec<u64> = numbers
                    .zip(0_u64..)
                    .filter(|(_, at)| found.shown.contains(at))
                    .map(|(number, _)| number)
                    .collect();
                let total = a * b * c;
                let wanted = (n * if format == OutputFormat::Text { c } else { 1 }).min(total);
                let expected: Vec<u64> = match limit {
                    RowLimit::First(_) => (0..wanted).collect(),
                    RowLimit::Last(_) => (total - wanted..total).collect(),
                };
                assert_eq!(shown, expected, "{a}x{b}x{c} {limit:?} {format:?}");
            }
        }
    }

    #[test]
    fn the_last_rows_of_batches_are_kept() {
        let batch = |rows| CellBatch { rows, columns: Vec::new() };
        let mut last = LimitedRows::new(Some(RowLimit::Last(5)));
        for rows in [4, 3, 3] {
            assert!(last.push(batch(rows)).is_none());
        }
        let kept: Vec<Range<usize>> = last.finish().into_iter().map(|(_, rows)| rows).collect();
        assert_eq!(kept, [1..3, 0..3]);
        let mut first = LimitedRows::new(Some(RowLimit::First(5)));
        assert_eq!(first.push(batch(4)).unwrap().1, 0..4);
        assert!(!first.is_complete());
        assert_eq!(first.push(batch(4)).unwrap().1, 0..1);
        assert!(first.is_complete());
    }
}
