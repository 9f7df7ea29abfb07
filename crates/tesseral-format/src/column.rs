//! Cells of one column of one chunk: output of decoders and input of encoders.

use tesseral_codec::Contexts;

/// One column of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Column {
    /// A field, by its index in the schema.
    Field(u16),
    /// Coordinates along a dimension, by its index in the schema (sparse chunks).
    Dim(u16),
    /// Write time of each cell in milliseconds since 1970 (sparse chunks of consolidated history). Can be requested of every
    /// sparse array; chunks without timestamps have no part of it.
    Timestamp,
    /// Visibility of cells of a sparse chunk: [`KEPT`] for visible cells, [`UNWRITTEN`] for cells written outside the requested
    /// time range, any other number for cells removed by a stored delete. Can be requested of every sparse array; chunks
    /// without hidden cells have no part of it.
    DeletedBy,
}

/// In [`Column::DeletedBy`]: the cell is visible.
pub const KEPT: u64 = u64::MAX;

/// In [`Column::DeletedBy`]: the cell was written outside the requested time range. Unlike a deleted cell it hides no other
/// cell.
pub const UNWRITTEN: u64 = u64::MAX - 1;

/// Output of a decoder. Values are in native byte order.
///
/// Slices are uninitialized on entry; a decoder that returns `Ok` has written every byte of them.
#[derive(Debug)]
pub enum ColumnMut<'a> {
    /// Fixed-size cells: exactly the number of bytes of the requested cells.
    Fixed {
        /// Contiguous cells.
        values: &'a mut [u8],
        /// One byte per cell, 1 valid, 0 null; present if and only if the field is nullable.
        validity: Option<&'a mut [u8]>,
    },
    /// Variable-length cells.
    Var {
        /// Receives one end offset per cell, in bytes from the start of `data`.
        offsets: &'a mut Vec<u64>,
        /// Receives the bytes of the cells.
        data: &'a mut Vec<u8>,
        /// One byte per cell, as above.
        validity: Option<&'a mut [u8]>,
    },
}

/// The cells of a column, for an encoder.
#[derive(Clone, Copy, Debug)]
pub enum ColumnData<'a> {
    /// Fixed-size cells.
    Fixed {
        /// Contiguous cells, in the cell order of the schema.
        values: &'a [u8],
        /// One byte per cell, 1 valid, 0 null.
        validity: Option<&'a [u8]>,
    },
    /// Variable-length cells.
    Var {
        /// One end offset per cell, in bytes.
        offsets: &'a [u64],
        /// The bytes of the cells.
        data: &'a [u8],
        /// One byte per cell, 1 valid, 0 null.
        validity: Option<&'a [u8]>,
    },
}

/// Per-thread state that is reused between chunks: codec contexts and buffers.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Codec contexts.
    pub contexts: Contexts,
    /// Buffers between codec stages.
    pub buffers: [Vec<u8>; 2],
    /// Empty buffers for encoded bytes.
    spare: Vec<Vec<u8>>,
}

impl Scratch {
    /// Number of buffers that are kept: the kernel zeroes new memory page by page, which takes longer than filling it.
    const KEPT: usize = 4;

    /// Returns an empty buffer, with the memory of one that was [kept](Self::keep_buffer) where there is one.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }

    /// Keeps the memory of a buffer, [after a write](crate::Pending::store_into) or between codecs. Its content is dropped.
    pub fn keep_buffer(&mut self, mut buffer: Vec<u8>) {
        if self.spare.len() < Self::KEPT {
            buffer.clear();
            self.spare.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Scratch;

    #[test]
    fn kept_buffers_are_empty() {
        let mut scratch = Scratch::default();
        (0..9).for_each(|n| scratch.keep_buffer(vec![n; 100]));
        for _ in 0..9 {
            assert!(scratch.take_buffer().is_empty());
        }
    }
}
