//! What cells of a sparse array are ordered by.

use std::borrow::Cow;
use std::cmp::Ordering;

/// One key of every cell.
#[derive(Clone, Debug)]
pub enum CellKey<'a> {
    /// Numbers that compare like what they stand for.
    Numbers(Vec<u64>),
    /// Bytes of any length; `ends` says where those of each cell end.
    Text {
        /// Where the bytes of each cell end.
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
            // Cells of one array have keys of one kind.
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

/// What happens to several cells at one position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twice {
    /// All of them are stored.
    Keep,
    /// They are an error.
    Refuse,
    /// The last one is stored.
    Last,
}

/// The keys of cells, compared one after the other. Cells whose keys are all equal are at one position.
#[derive(Clone, Debug)]
pub struct CellKeys<'a> {
    /// The keys, the one that counts most first.
    pub keys: Vec<CellKey<'a>>,
    /// How many cells.
    pub cells: usize,
    /// What happens to several cells at one position.
    pub twice: Twice,
}

impl CellKeys<'_> {
    /// Order of two cells.
    pub fn compare(&self, a: usize, b: usize) -> Ordering {
        self.compare_with(a, self, b)
    }

    /// Order of a cell and one of other cells of the same array.
    pub fn compare_with(&self, a: usize, other: &CellKeys<'_>, b: usize) -> Ordering {
        let mut each = self.keys.iter().zip(&other.keys).map(|(mine, theirs)| mine.compare(a, theirs, b));
        each.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    }

    /// The same, borrowing nothing.
    pub fn into_owned(self) -> CellKeys<'static> {
        let keys = self.keys.into_iter().map(CellKey::into_owned).collect();
        CellKeys { keys, cells: self.cells, twice: self.twice }
    }
}
