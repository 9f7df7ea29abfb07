//! Two reads of cells walked side by side.

use std::cmp::Ordering;
use std::ops::Range;

use tesseral_core::{ArraySchema, Result};
use tesseral_format::Column;

use crate::cells::{Cells, sort_keys};
use crate::sparse::{CellBatch, CellStream};

/// What two reads have at the same place of their order.
#[derive(Debug)]
pub enum Pair<'a> {
    /// Rows of both that are at the same positions.
    Both(&'a CellBatch, Range<usize>, &'a CellBatch, Range<usize>),
    /// Rows that only the left one has.
    Left(&'a CellBatch, Range<usize>),
    /// Rows that only the right one has.
    Right(&'a CellBatch, Range<usize>),
}

/// Walks two sorted reads of the same columns, the dimensions before the fields, in the order of their coordinates. Rows of arrays
/// that hold several cells at a position are the same only with the same fields.
///
/// # Errors
/// What the reads meet; what `see` returns.
pub fn pair_cells(
    schema: &ArraySchema,
    left: CellStream,
    right: CellStream,
    mut see: impl FnMut(Pair<'_>) -> Result<()>,
) -> Result<()> {
    let (mut left, mut right) = (Side::new(schema, left)?, Side::new(schema, right)?);
    loop {
        match (left.left() > 0, right.left() > 0) {
            (false, false) => return Ok(()),
            (true, false) => {
                let rows = left.take(left.left());
                see(Pair::Left(&left.batch, rows))?;
            }
            (false, true) => {
                let rows = right.take(right.left());
                see(Pair::Right(&right.batch, rows))?;
            }
            (true, true) => step(schema, &mut left, &mut right, &mut see)?,
        }
        left.fill(schema)?;
        right.fill(schema)?;
    }
}

/// Sees the longest run of rows that begins here and is of one kind.
fn step(
    schema: &ArraySchema,
    left: &mut Side,
    right: &mut Side,
    see: &mut impl FnMut(Pair<'_>) -> Result<()>,
) -> Result<()> {
    let duplicates = schema.allows_duplicates;
    let compare = |l: &Side, i: usize, r: &Side, j: usize| l.compare(l.at + i, r, r.at + j, duplicates);
    let kind = compare(left, 0, right, 0);
    let run =
        |most: usize, at: &dyn Fn(usize) -> Ordering| (1..most).find(|&i| at(i) != kind).unwrap_or(most);
    match kind {
        Ordering::Equal => {
            let most = left.left().min(right.left());
            let n = run(most, &|i| compare(left, i, right, i));
            let (a, b) = (left.take(n), right.take(n));
            see(Pair::Both(&left.batch, a, &right.batch, b))
        }
        Ordering::Less => {
            let n = run(left.left(), &|i| compare(left, i, right, 0));
            let rows = left.take(n);
            see(Pair::Left(&left.batch, rows))
        }
        Ordering::Greater => {
            let n = run(right.left(), &|i| compare(left, 0, right, i));
            let rows = right.take(n);
            see(Pair::Right(&right.batch, rows))
        }
    }
}

/// One of the reads: the batch at hand, and how far it was seen.
struct Side {
    stream: CellStream,
    batch: CellBatch,
    /// The coordinates of each dimension as numbers that sort; text sorts by itself.
    keys: Vec<Option<Vec<u64>>>,
    at: usize,
}

impl Side {
    fn new(schema: &ArraySchema, stream: CellStream) -> Result<Self> {
        let mut side = Self { stream, batch: CellBatch::default(), keys: Vec::new(), at: 0 };
        side.fill(schema)?;
        Ok(side)
    }

    /// Reads on when all of the batch was seen.
    fn fill(&mut self, schema: &ArraySchema) -> Result<()> {
        while self.at >= self.batch.rows {
            let Some(batch) = self.stream.next() else { return Ok(()) };
            (self.batch, self.at) = (batch?, 0);
            let keys = self.batch.columns.iter().map(|(column, cells)| match *column {
                Column::Dim(d) => schema.dims.get(usize::from(d)).and_then(|dim| sort_keys(dim.dtype, cells)),
                _ => None,
            });
            self.keys = keys.collect();
        }
        Ok(())
    }

    fn left(&self) -> usize {
        self.batch.rows - self.at
    }

    fn take(&mut self, rows: usize) -> Range<usize> {
        self.at += rows;
        self.at - rows..self.at
    }

    /// How a row compares with one of the other side: by coordinates, with `whole` then as rows of one position are sorted.
    fn compare(&self, i: usize, other: &Self, j: usize, whole: bool) -> Ordering {
        let columns = || self.batch.columns.iter().zip(&other.batch.columns).enumerate();
        let one =
            |c: usize, column: Column, ours: &Cells, theirs: &Cells| match (&self.keys[c], &other.keys[c]) {
                (Some(ours), Some(theirs)) => ours[i].cmp(&theirs[j]),
                _ if matches!(column, Column::Dim(_)) => ours.get(i).cmp(theirs.get(j)),
                _ if whole => bytes(ours, i).cmp(bytes(theirs, j)),
                _ => Ordering::Equal,
            };
        let order = columns()
            .map(|(c, ((column, ours), (_, theirs)))| one(c, *column, ours, theirs))
            .find(|order| order.is_ne())
            .unwrap_or(Ordering::Equal);
        if order.is_ne() || !whole {
            return order;
        }
        let nulls = columns().map(|(_, ((_, ours), (_, theirs)))| ours.is_valid(i).cmp(&theirs.is_valid(j)));
        nulls.into_iter().find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }
}

/// The bytes of a cell; those of a null one are zeros, or none where cells have any length.
fn bytes(cells: &Cells, i: usize) -> impl Iterator<Item = u8> {
    let valid = cells.is_valid(i);
    let kept = if valid || cells.size() > 0 { cells.get(i) } else { &[] };
    kept.iter().map(move |byte| if valid { *byte } else { 0 })
}
