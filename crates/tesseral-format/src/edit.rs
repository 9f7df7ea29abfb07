//! Editing of sources with versions, other than appends.

use std::collections::BTreeMap;
use std::fmt::Debug;

use tesseral_core::condition::Condition;
use tesseral_core::schema::Enumeration;
use tesseral_core::{Field, Result, Scalar, Value};

use crate::{CodecSpec, TimeRange};

/// A part of a source that grows with every write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaintenancePart {
    /// Fragments: the cells of each version.
    Fragments,
    /// Commit files: the list of visible fragments.
    Commits,
    /// Fragment metadata: footers with domains, offsets and statistics.
    FragmentMetadata,
    /// Attributes of the array.
    Attributes,
}

/// Options of consolidation.
#[derive(Clone, Debug)]
pub struct Consolidate {
    /// The part to consolidate.
    pub part: MaintenancePart,
    /// Consolidate only versions of this time range.
    pub times: Option<TimeRange>,
    /// Minimum number of versions to merge.
    pub at_least: usize,
    /// Maximum number of versions to merge at once.
    pub at_most: Option<usize>,
    /// Skip versions larger than this many bytes.
    pub max_bytes: Option<u64>,
    /// Memory limit in bytes: as many versions are merged at once as it has room for.
    pub memory: Option<u64>,
}

impl Default for Consolidate {
    fn default() -> Self {
        Self {
            part: MaintenancePart::Fragments,
            times: None,
            at_least: 2,
            at_most: None,
            max_bytes: None,
            memory: None,
        }
    }
}

/// Result of consolidation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consolidated {
    /// Names of the new versions.
    pub made: Vec<String>,
    /// Names of the replaced versions, which vacuum can remove.
    pub replaced: Vec<String>,
    /// Names of versions that were not merged: together they do not cover a box, and merging them would turn unwritten cells
    /// into written ones.
    pub apart: Vec<String>,
}

impl Consolidated {
    /// Adds the versions that one run was merged into, the last of which holds everything. The others can be vacuumed too.
    pub fn add(&mut self, mut made: Vec<String>) {
        self.made.extend(made.pop());
        self.replaced.extend(made);
    }
}

/// Result of vacuum.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vacuumed {
    /// Names of removed versions, or of those to remove.
    pub removed: Vec<String>,
    /// Names of versions that were kept although another one declares to replace them, with the reason.
    pub kept: Vec<(String, String)>,
    /// Freed size in bytes, or size to free.
    pub bytes: u64,
}

/// A change of an array's schema.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// Add a field; existing cells get its fill value.
    AddField {
        /// The new field.
        field: Field,
        /// Codecs of the field, in encoding order.
        codecs: Vec<CodecSpec>,
    },
    /// Remove a field.
    DropField {
        /// Name of the field.
        name: String,
    },
    /// Append labels to an enumeration.
    ExtendEnumeration(Enumeration),
    /// Expand the current domain; one closed range per dimension.
    ExpandDomain(Vec<(Scalar, Scalar)>),
}

/// Edits of a source with versions. Each edit is atomic.
pub trait Edit: Debug + Send + Sync {
    /// Deletes the cells that match a condition, as of a timestamp.
    ///
    /// # Errors
    /// `Unsupported`, `InvalidRequest`, `Io`.
    fn delete(&self, condition: &Condition, timestamp: Option<u64>) -> Result<()>;

    /// Sets attributes; `None` removes one.
    ///
    /// # Errors
    /// `Unsupported` for a value that cannot be stored, `Io`.
    fn set_attributes(&self, changes: &BTreeMap<String, Option<Value>>, timestamp: Option<u64>)
    -> Result<()>;

    /// Applies schema changes atomically.
    ///
    /// # Errors
    /// `Unsupported`, `InvalidRequest`, `Io`.
    fn change(&self, changes: &[Change], timestamp: Option<u64>) -> Result<()>;

    /// Merges versions into one without changing the content. Replaced versions are kept until vacuum.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    fn consolidate(&self, what: &Consolidate) -> Result<Consolidated>;

    /// Removes replaced versions; with `dry_run` only lists them.
    ///
    /// # Errors
    /// `Io`.
    fn vacuum(&self, part: MaintenancePart, dry_run: bool) -> Result<Vacuumed>;
}
