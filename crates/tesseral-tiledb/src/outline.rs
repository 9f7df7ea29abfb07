//! Sums over the footers of all fragments, which are enough to describe an array.

use std::cmp::Ordering;

use tesseral_core::Scalar;
use tesseral_format::NonEmpty;

use crate::array::TileDbArray;
use crate::fragment::Fragment;

/// Totals over the footers of all fragments.
#[derive(Debug)]
pub(crate) struct Outline {
    /// Tiles of all fragments.
    pub tiles: u64,
    /// Bytes of the files of each field; none for a field whose type changed between fragments.
    pub fields: Vec<Option<u64>>,
    /// Bytes of the files of each dimension.
    pub dims: Vec<u64>,
    /// Whether some fragment carries digests.
    pub digests: bool,
    /// The smallest box around all fragments; none without cells.
    pub domain: Option<NonEmpty>,
}

impl Outline {
    /// The totals of no fragment.
    pub(crate) fn new(array: &TileDbArray) -> Self {
        let schema = &array.schema;
        Self {
            tiles: 0,
            fields: vec![Some(0); schema.fields.len()],
            dims: vec![0; schema.dims.len()],
            digests: false,
            domain: None,
        }
    }

    /// Adds a fragment.
    pub(crate) fn add(&mut self, array: &TileDbArray, fragment: &Fragment) {
        let bytes = |slot: Option<usize>| {
            let files = fragment.footer.files.iter().filter_map(|files| files.get(slot?));
            files.fold(0_u64, |sum, len| sum.saturating_add(*len))
        };
        self.tiles = self.tiles.saturating_add(fragment.tiles);
        self.digests |= fragment.carries_digests();
        for (field, sum) in (0_u16..).zip(&mut self.fields) {
            let slot = array.slot(fragment, field).ok();
            *sum = sum.zip(slot).map(|(sum, slot)| sum.saturating_add(bytes(slot)));
        }
        // Zipped coordinates are counted once.
        let dims = if fragment.is_zipped() { 1 } else { usize::MAX };
        for (dim, sum) in self.dims.iter_mut().enumerate().take(dims) {
            *sum = sum.saturating_add(bytes(Some(fragment.dim_slot(dim))));
        }
        let Some(ranges) = &fragment.footer.domain else { return };
        let ends = array.schema.dims.iter().zip(ranges).map(|(dim, (low, high))| {
            Some((Scalar::from_le_bytes(dim.dtype, low).ok()?, Scalar::from_le_bytes(dim.dtype, high).ok()?))
        });
        let Some(ends) = ends.collect::<Option<NonEmpty>>() else { return };
        match &mut self.domain {
            None => self.domain = Some(ends),
            Some(around) => {
                for (around, (low, high)) in around.iter_mut().zip(ends) {
                    if low.compare(&around.0) == Some(Ordering::Less) {
                        around.0 = low;
                    }
                    if high.compare(&around.1) == Some(Ordering::Greater) {
                        around.1 = high;
                    }
                }
            }
        }
    }
}
