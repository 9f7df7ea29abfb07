//! The naive oracle: the content of an array, determined with the traits alone.
//!
//! Everything is planned, chunks are decoded in sequence, and cells are copied one by one with plain loops. The oracle is slow and
//! simple; the engine and the formats are compared with it.
//!
//! - *Null cells* are zero bytes (fixed-size cells) or `None`.
//! - *Unwritten cells* of dense arrays hold the fill value, repeated to the size of a cell, or zeros without one; in nullable
//!   fields they are null.
//! - *Duplicates* in sparse arrays that do not allow them: the highest layer wins, then the latest timestamp where a chunk has
//!   timestamps, then the cell stored last. The other cells are dropped even where a stored delete removes the winner.

mod chunk;
mod condition;
mod dense;
pub mod rational;
mod sparse;
mod summary;

pub use chunk::{ColumnLayout, Decoded, Prefill, decode_parts, fetch};
pub use dense::{Dense, Painted, for_each_cell, paint, position_in};
pub use sparse::{Row, Sparse, in_ranges, rows_of_plan};
pub(crate) use sparse::{compare_fields, compare_rows, is_deleted};
pub use summary::{Summary, chunk_stats, is_null};
use tesseral_core::{Result, Selection};

use tesseral_format::{ContainerSource, CoordinateRanges};

/// Cells of a field, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cells {
    /// Fixed-size cells.
    Fixed {
        /// Contiguous native-endian cells; bitmasks packed most significant bit first.
        values: Vec<u8>,
        /// One byte per cell, 1 valid, 0 null; present exactly when the field is nullable.
        validity: Option<Vec<u8>>,
    },
    /// Variable-length cells; `None` is null.
    Var(Vec<Option<Vec<u8>>>),
}

impl Cells {
    /// The same cells with zero bytes for nulls, so that bytes stored under nulls do not matter.
    #[must_use]
    pub fn normalized(mut self) -> Self {
        if let Self::Fixed { values, validity: Some(validity) } = &mut self {
            let size = values.len() / validity.len().max(1);
            for (cell, valid) in values.chunks_mut(size.max(1)).zip(validity) {
                if *valid == 0 {
                    cell.fill(0);
                }
            }
        }
        self
    }

    /// Each cell, `None` where null. `size` is the size of fixed-size cells.
    pub fn iter(&self, size: usize) -> Box<dyn Iterator<Item = Option<&[u8]>> + '_> {
        match self {
            Self::Fixed { values, validity } => Box::new(
                values
                    .chunks(size.max(1))
                    .enumerate()
                    .map(move |(i, cell)| validity.as_ref().is_none_or(|v| v[i] != 0).then_some(cell)),
            ),
            Self::Var(cells) => Box::new(cells.iter().map(Option::as_deref)),
        }
    }
}

/// One field of a dense selection, row-major over the selection.
///
/// # Errors
/// Errors of planning, reading and decoding.
pub fn read_dense(
    container: &dyn ContainerSource,
    array: usize,
    field: u16,
    selection: &Selection,
) -> Result<Cells> {
    Dense::load(container, array, field)?.select(selection)
}

/// Fields of the cells of a sparse array whose coordinates lie in the ranges, sorted by the dimensions in order (numbers
/// numerically, text bytewise), ties by the raw bytes of the requested fields.
///
/// # Errors
/// Errors of planning, reading and decoding.
pub fn read_sparse(
    container: &dyn ContainerSource,
    array: usize,
    fields: &[u16],
    ranges: &[CoordinateRanges],
) -> Result<Vec<Row>> {
    Sparse::load(container, array)?.select(fields, ranges)
}

/// Summary of one field of a dense selection.
///
/// # Errors
/// Errors of planning, reading and decoding.
pub fn summary(
    container: &dyn ContainerSource,
    array: usize,
    field: u16,
    selection: &Selection,
) -> Result<Summary> {
    Dense::load(container, array, field)?.summary(selection)
}
