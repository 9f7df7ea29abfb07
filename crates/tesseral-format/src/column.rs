//! Cells of one column of one chunk: where decoders put them and where encoders take them from.

use tesseral_codec::Contexts;

/// One column of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Column {
    /// A field, by position in the schema.
    Field(u16),
    /// Coordinates along a dimension, by position in the schema (sparse chunks).
    Dim(u16),
    /// When each cell was written, milliseconds since 1970 (sparse chunks of consolidated history). Every sparse array can be
    /// asked for it; chunks that keep no times have no part of it.
    Timestamp,
    /// Which cells of a sparse chunk do not count: [`KEPT`] for those that do, [`UNWRITTEN`] for cells written outside the
    /// times that are read, any other number for cells that a stored delete removed. Every sparse array can be asked for it;
    /// chunks whose cells all count have no part of it.
    DeletedBy,
}

/// In [`Column::DeletedBy`]: the cell counts.
pub const KEPT: u64 = u64::MAX;

/// In [`Column::DeletedBy`]: as of the times that are read, the cell was not written. Unlike a deleted cell it hides nothing.
pub const UNWRITTEN: u64 = u64::MAX - 1;

/// Where a decoder puts the cells of a column. Values are native-endian numbers.
///
/// Slices may hold anything on entry; a decoder that returns `Ok` has written every byte of them.
#[derive(Debug)]
pub enum ColumnMut<'a> {
    /// Cells of one size: exactly as many bytes as the cells asked for take.
    Fixed {
        /// The cells, back to back.
        values: &'a mut [u8],
        /// One byte per cell, 1 valid, 0 null; present exactly when the field is nullable.
        validity: Option<&'a mut [u8]>,
    },
    /// Cells of any length.
    Var {
        /// Appends one end offset per cell, counted in bytes from the start of `data`.
        offsets: &'a mut Vec<u64>,
        /// Appends the bytes of the cells.
        data: &'a mut Vec<u8>,
        /// One byte per cell, as above.
        validity: Option<&'a mut [u8]>,
    },
}

/// The cells of a column, for an encoder.
#[derive(Clone, Copy, Debug)]
pub enum ColumnData<'a> {
    /// Cells of one size.
    Fixed {
        /// The cells, back to back, in the order the schema says.
        values: &'a [u8],
        /// One byte per cell, 1 valid, 0 null.
        validity: Option<&'a [u8]>,
    },
    /// Cells of any length.
    Var {
        /// One end offset per cell, in bytes.
        offsets: &'a [u64],
        /// The bytes of the cells.
        data: &'a [u8],
        /// One byte per cell, 1 valid, 0 null.
        validity: Option<&'a [u8]>,
    },
}

/// What a thread keeps from chunk to chunk: codec contexts and buffers that have already been paid for.
#[derive(Debug, Default)]
pub struct Scratch {
    /// Codec contexts.
    pub contexts: Contexts,
    /// Spare buffers for stages between codecs.
    pub buffers: [Vec<u8>; 2],
    /// Empty buffers for encoded bytes, which went to the store and came [back](crate::Pending::store_into).
    pub spare: Vec<Vec<u8>>,
}
