//! Merge join of two reads of cells.

use std::cmp::Ordering;
use std::ops::Range;

use tesseral_core::{ArraySchema, Result};
use tesseral_format::Column;

use crate::decode::columns::{Cells, sort_keys};
use crate::merge::sparse::{CellBatch, CellStream};

/// Rows of two reads in their common order.
#[derive(Debug)]
pub enum JoinedRows<'a> {
    /// Rows of both sides at the same positions.
    Both(&'a CellBatch, Range<usize>, &'a CellBatch, Range<usize>),
    /// Rows that only the left side has.
    Left(&'a CellBatch, Range<usize>),
    /// Rows that only the right side has.
    Right(&'a CellBatch, Range<usize>),
}

/// Joins two sorted reads of the same columns, dimensions before fields, by coordinates. Rows of arrays with duplicates are
/// equal only if their fields are.
///
/// # Errors
/// Errors of the reads; errors of `visit`.
pub fn merge_join(
    schema: &ArraySchema,
    left: CellStream,
    right: CellStream,
    mut visit: impl FnMut(JoinedRows<'_>) -> Result<()>,
) -> Result<()> {
    let (mut left, mut right) = (JoinSide::new(schema, left)?, JoinSide::new(schema, right)?);
    loop {
        match (left.remaining() > 0, right.remaining() > 0) {
            (false, false) => return Ok(()),
            (true, false) => {
                let rows = left.advance(left.remaining());
                visit(JoinedRows::Left(&left.batch, rows))?;
            }
            (false, true) => {
                let rows = right.advance(right.remaining());
                visit(JoinedRows::Right(&right.batch, rows))?;
            }
            (true, true) => step(schema, &mut left, &mut right, &mut visit)?,
        }
        left.fill(schema)?;
        right.fill(schema)?;
    }
}

/// Passes the longest run of rows of one kind to `visit`.
fn step(
    schema: &ArraySchema,
    left: &mut JoinSide,
    right: &mut JoinSide,
    visit: &mut impl FnMut(JoinedRows<'_>) -> Result<()>,
) -> Result<()> {
    let duplicates = schema.allows_duplicates;
    let compare =
        |l: &JoinSide, i: usize, r: &JoinSide, j: usize| l.compare(l.at + i, r, r.at + j, duplicates);
    let kind = compare(left, 0, right, 0);
    let run =
        |most: usize, at: &dyn Fn(usize) -> Ordering| (1..most).find(|&i| at(i) != kind).unwrap_or(most);
    match kind {
        Ordering::Equal => {
            let most = left.remaining().min(right.remaining());
            let n = run(most, &|i| compare(left, i, right, i));
            let (a, b) = (left.advance(n), right.advance(n));
            visit(JoinedRows::Both(&left.batch, a, &right.batch, b))
        }
        Ordering::Less => {
            let n = run(left.remaining(), &|i| compare(left, i, right, 0));
            let rows = left.advance(n);
            visit(JoinedRows::Left(&left.batch, rows))
        }
        Ordering::Greater => {
            let n = run(right.remaining(), &|i| compare(left, 0, right, i));
            let rows = right.advance(n);
            visit(JoinedRows::Right(&right.batch, rows))
        }
    }
}

/// One of the reads: the current batch and the position in it.
struct JoinSide {
    stream: CellStream,
    batch: CellBatch,
    /// Sort keys of the coordinates of each dimension; text is compared directly.
    keys: Vec<Option<Vec<u64>>>,
    at: usize,
}

impl JoinSide {
    fn new(schema: &ArraySchema, stream: CellStream) -> Result<Self> {
        let mut side = Self { stream, batch: CellBatch::default(), keys: Vec::new(), at: 0 };
        side.fill(schema)?;
        Ok(side)
    }

    /// Reads the next batch if the current one is consumed.
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

    fn remaining(&self) -> usize {
        self.batch.rows - self.at
    }

    fn advance(&mut self, rows: usize) -> Range<usize> {
        self.at += rows;
        self.at - rows..self.at
    }

    /// Compares a row with one of the other side: by coordinates, and with `whole` by fields.
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

/// Bytes of a cell; zeros for a null, or none if variable-length.
fn bytes(cells: &Cells, i: usize) -> impl Iterator<Item = u8> {
    let valid = cells.is_valid(i);
    let kept = if valid || cells.size() > 0 { cells.get(i) } else { &[] };
    kept.iter().map(move |byte| if valid { *byte } else { 0 })
}
