//! One field of a message: a grid of values of one parameter at one level and time.

use std::ops::Range;
use std::sync::Arc;

use crate::grid::Grid;
use crate::packing::FieldPacking;
use crate::product::FieldProduct;

/// A field, as the specification uses the word: sections 4 to 7 of a message of edition 2, or a message of edition 1.
#[derive(Clone, Debug)]
pub(crate) struct GribField {
    /// Offset of its message.
    pub message: u64,
    pub product: FieldProduct,
    pub grid: Arc<Grid>,
    /// Number of the grid among the different ones of the file.
    pub grid_number: usize,
    pub packing: FieldPacking,
    /// Number of stored values, without points that the bitmap excludes; `None` if only the bitmap determines it.
    pub coded: Option<u64>,
    /// Byte range of the bitmap, one bit per point.
    pub bitmap: Option<Range<u64>>,
    /// Byte range of the packed values.
    pub data: Range<u64>,
}

impl GribField {
    /// Whether points can be missing.
    pub(crate) fn has_missing(&self) -> bool {
        self.bitmap.is_some() || self.packing.has_missing()
    }
}
