//! An opened file or folder: an immutable snapshot of what is in it.

use std::fmt::Debug;
use std::sync::Arc;

use tesseral_core::{Attributes, Error, HistoryRow, Result};
use tesseral_store::Store;

use crate::ArraySource;

/// How much memory a file asks readers to keep to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBudget {
    /// A fixed number of bytes.
    Bytes(u64),
    /// Hundredths of a percent of the memory that is available.
    BasisPoints(u16),
}

/// Whether a write counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionState {
    /// It is read.
    Visible,
    /// Another one replaces it.
    Replaced,
    /// Nobody committed it.
    Uncommitted,
}

impl VersionState {
    /// Its name: `visible`, `replaced`, `uncommitted`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Visible => "visible",
            Self::Replaced => "replaced",
            Self::Uncommitted => "uncommitted",
        }
    }
}

/// A write that a format keeps apart from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// The array it belongs to, where the container has several.
    pub array: Option<String>,
    /// Its name.
    pub name: String,
    /// What it did: `write`, `consolidate`, `delete`.
    pub op: &'static str,
    /// First moment, milliseconds since 1970.
    pub start: u64,
    /// Last moment.
    pub end: u64,
    /// Cells it holds, where that is known.
    pub cells: Option<u64>,
    /// Bytes it takes, where that is known.
    pub bytes: Option<u64>,
    /// Whether it counts.
    pub state: VersionState,
}

/// An opened file or folder. What it shows does not change, whatever others write.
pub trait Container: Debug + Send + Sync {
    /// The id of its format.
    fn format(&self) -> &'static str;

    /// Where its bytes are.
    fn store(&self) -> &Arc<dyn Store>;

    /// Number of arrays.
    fn len(&self) -> usize;

    /// Whether it holds no array.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of an array.
    fn name(&self, index: usize) -> &str;

    /// An array.
    ///
    /// # Errors
    /// `NotFound` past the end; whatever loading its metadata meets.
    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>>;

    /// The number of the array that a name means. Formats with several names for one array override this.
    ///
    /// # Errors
    /// `NotFound`, with the names there are.
    fn find(&self, name: &str) -> Result<usize> {
        (0..self.len()).find(|&i| self.name(i) == name).ok_or_else(|| {
            let names = (0..self.len()).map(|i| self.name(i).to_owned()).collect();
            Error::not_found("array", name, names)
        })
    }

    /// Attributes of the container as a whole.
    fn attributes(&self) -> &Attributes;

    /// How it came to be.
    fn history(&self) -> &[HistoryRow];

    /// The writes it keeps apart, oldest first, for formats that keep versions.
    ///
    /// # Errors
    /// Whatever loading their metadata meets.
    fn versions(&self) -> Result<Vec<Version>> {
        Ok(Vec::new())
    }

    /// The memory it asks readers to keep to, when it says so.
    fn memory_budget(&self) -> Option<MemoryBudget> {
        None
    }

    /// What the container names and does not hold, such as members of a group that lie elsewhere: a line each, with the reason.
    fn unread(&self) -> Vec<String> {
        Vec::new()
    }

    /// What only this format knows: the object under the format's id in `info --json`. Parts that are damaged say so under
    /// `error`.
    fn details(&self) -> serde_json::Value;
}
