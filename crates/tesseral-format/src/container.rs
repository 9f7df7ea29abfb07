//! The [`ContainerSource`] trait: an immutable snapshot of an opened source.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use tesseral_core::{Attributes, Error, HistoryRow, Result};
use tesseral_store::Store;

use crate::ArraySource;

/// Attributes of groups by their path (`a`, `a/b`), in order. Groups that contain only arrays need not be listed.
pub type Groups = indexmap::IndexMap<String, Attributes>;

/// Memory budget that a file recommends to readers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBudget {
    /// A fixed number of bytes.
    Bytes(u64),
    /// Hundredths of a percent of the available memory.
    BasisPoints(u16),
}

/// State of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VersionState {
    /// Visible to readers.
    Visible,
    /// Replaced by another version.
    Replaced,
    /// Not committed.
    Uncommitted,
}

impl VersionState {
    /// Name of the state: `visible`, `replaced`, `uncommitted`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Visible => "visible",
            Self::Replaced => "replaced",
            Self::Uncommitted => "uncommitted",
        }
    }
}

/// One write that a format keeps as a separate version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    /// Name of its array, if the container has several.
    pub array: Option<String>,
    /// Name of the version.
    pub name: String,
    /// Operation: `write`, `consolidate`, `delete`.
    pub op: &'static str,
    /// First timestamp in milliseconds since 1970.
    pub start: u64,
    /// Last timestamp in milliseconds since 1970.
    pub end: u64,
    /// Number of cells, if known.
    pub cells: Option<u64>,
    /// Stored size in bytes, if known.
    pub bytes: Option<u64>,
    /// State of the version.
    pub state: VersionState,
}

/// An independent part of a container, such as a message: its arrays refer to nothing in other parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ContainerPart {
    /// Indexes of its arrays.
    pub arrays: Range<usize>,
    /// Its attributes.
    pub attributes: Attributes,
    /// Attributes of its groups.
    pub groups: Groups,
    /// Its provenance rows, oldest first.
    pub history: Vec<HistoryRow>,
}

/// An opened file or folder: a snapshot that does not change with later writes.
pub trait ContainerSource: Debug + Send + Sync {
    /// Identifier of its format.
    fn format(&self) -> &'static str;

    /// The store it was opened from.
    fn store(&self) -> &Arc<dyn Store>;

    /// Number of arrays.
    fn len(&self) -> usize;

    /// Returns whether the container has no arrays.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Name of an array.
    fn name(&self, index: usize) -> &str;

    /// Returns an array.
    ///
    /// # Errors
    /// [`out_of_bounds`](Self::out_of_bounds); errors of loading its metadata.
    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>>;

    /// The error for the index of an array that does not exist.
    fn out_of_bounds(&self, index: usize) -> Error {
        Error::not_found("array", index.to_string(), self.names())
    }

    /// Names of all arrays.
    fn names(&self) -> Vec<String> {
        (0..self.len()).map(|index| self.name(index).to_owned()).collect()
    }

    /// Returns the index of the array with a name. Formats with aliases override this.
    ///
    /// # Errors
    /// `NotFound`, with the available names.
    fn find(&self, name: &str) -> Result<usize> {
        let found = (0..self.len()).find(|&index| self.name(index) == name);
        found.ok_or_else(|| Error::not_found("array", name, self.names()))
    }

    /// Attributes of the container.
    fn attributes(&self) -> &Attributes;

    /// Number of independent parts, such as the messages of a file; 1 for other containers.
    fn parts(&self) -> usize {
        1
    }

    /// Returns a part.
    ///
    /// # Errors
    /// `NotFound` if the number is out of bounds; errors of loading its metadata.
    fn part(&self, number: usize) -> Result<ContainerPart> {
        if number > 0 {
            return Err(Error::not_found("part", number.to_string(), Vec::new()));
        }
        Ok(ContainerPart {
            arrays: 0..self.len(),
            attributes: self.attributes().clone(),
            groups: self.groups().clone(),
            history: self.history().to_vec(),
        })
    }

    /// Attributes of its groups.
    fn groups(&self) -> &Groups {
        static NONE: std::sync::LazyLock<Groups> = std::sync::LazyLock::new(Groups::new);
        &NONE
    }

    /// The arrays whose attributes can name an array, itself among them: the ones it was written with. All by default.
    fn companions(&self, index: usize) -> Range<usize> {
        let _ = index;
        0..self.len()
    }

    /// Resolves a name relative to another array: in its group, else in the nearest enclosing group.
    fn sibling(&self, index: usize, name: &str) -> Option<usize> {
        self.enclosing(index, name)
    }

    /// Finds an array by name in the group of another one, else in the nearest enclosing group.
    fn enclosing(&self, index: usize, name: &str) -> Option<usize> {
        let mut group = self.name(index);
        while let Some((outer, _)) = group.rsplit_once('/') {
            if let Ok(found) = self.find(&format!("{outer}/{name}")) {
                return Some(found);
            }
            group = outer;
        }
        self.find(name).ok()
    }

    /// Provenance rows, oldest first.
    fn history(&self) -> &[HistoryRow] {
        &[]
    }

    /// Versions, oldest first, for formats that support them.
    ///
    /// # Errors
    /// Errors of loading their metadata.
    fn versions(&self) -> Result<Vec<Version>> {
        Ok(Vec::new())
    }

    /// Memory budget stored in the container, if any.
    fn memory_budget(&self) -> Option<MemoryBudget> {
        None
    }

    /// Members that the container lists but does not contain, such as external members of a group: one line each, with the
    /// reason.
    fn unread(&self) -> Vec<String> {
        Vec::new()
    }

    /// Format-specific details, as a JSON object. Damaged parts have an `error` member.
    fn details(&self) -> serde_json::Value;
}
