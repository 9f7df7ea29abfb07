//! Sort keys of the cells of a sparse array.

use std::borrow::Cow;
use std::cmp::Ordering;

/// One key of every cell.
#[derive(Clone, Debug)]
pub enum CellKey<'a> {
    /// Numbers with the order of the coordinates.
    Numbers(Vec<u64>),
    /// Variable-length bytes; `ends` has the end of each cell.
    Text {
        /// End offset of each cell.
        ends: Cow<'a, [u64]>,
        /// The bytes of all cells.
        data: Cow<'a, [u8]>,
    },
}

impl CellKey<'_> {
    fn compare(&self, a: usize, other: &CellKey<'_>, b: usize) -> Ordering {
        match (self, other) {
            (Self::Numbers(mine), CellKey::Numbers(theirs)) => mine[a].cmp(&theirs[b]),
            (Self::Text { ends, data }, CellKey::Text { ends: their_ends, data: theirs }) => {
                text(ends, data, a).cmp(text(their_ends, theirs, b))
            }
            // Keys of one array have the same kind.
            _ => Ordering::Equal,
        }
    }

    fn into_owned(self) -> CellKey<'static> {
        match self {
            Self::Numbers(keys) => CellKey::Numbers(keys),
            Self::Text { ends, data } => {
                CellKey::Text { ends: Cow::Owned(ends.into_owned()), data: Cow::Owned(data.into_owned()) }
            }
        }
    }
}

fn text<'a>(ends: &[u64], data: &'a [u8], cell: usize) -> &'a [u8] {
    let start = if cell == 0 { 0 } else { ends[cell - 1] };
    let range = usize::try_from(start).unwrap_or(0)..usize::try_from(ends[cell]).unwrap_or(0);
    data.get(range).unwrap_or_default()
}

/// Treatment of several cells at one position in a sparse write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicatePolicy {
    /// Store all of them.
    KeepAll,
    /// Return an error.
    Reject,
    /// Store the last one.
    KeepLast,
}

/// The sort keys of cells, compared in sequence. Cells with equal keys are at the same position.
#[derive(Clone, Debug)]
pub struct CellKeys<'a> {
    /// The keys, most significant first.
    pub keys: Vec<CellKey<'a>>,
    /// Number of cells.
    pub cells: usize,
    /// What to do with several cells at one position.
    pub duplicate_policy: DuplicatePolicy,
}

impl CellKeys<'_> {
    /// Compares two cells.
    pub fn compare(&self, a: usize, b: usize) -> Ordering {
        self.compare_with(a, self, b)
    }

    /// Compares a cell with one of another set of cells of the same array.
    pub fn compare_with(&self, a: usize, other: &CellKeys<'_>, b: usize) -> Ordering {
        let mut each = self.keys.iter().zip(&other.keys).map(|(mine, theirs)| mine.compare(a, theirs, b));
        each.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// Converts to owned keys.
    pub fn into_owned(self) -> CellKeys<'static> {
        let keys = self.keys.into_iter().map(CellKey::into_owned).collect();
        CellKeys { keys, cells: self.cells, duplicate_policy: self.duplicate_policy }
    }
}
