//! Changing a source that keeps versions, beside adding cells to it.

use std::collections::BTreeMap;
use std::fmt::Debug;

use tesseral_core::condition::Condition;
use tesseral_core::schema::Enumeration;
use tesseral_core::{Field, Result, Scalar, Value};

use crate::{CodecSpec, TimeRange};

/// A part of a source that grows with every write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Part {
    /// The versions themselves: fragments.
    Cells,
    /// The files that make versions count.
    Commits,
    /// What is known of versions without reading them.
    Footers,
    /// Attributes.
    Attributes,
}

/// What to consolidate.
#[derive(Clone, Debug)]
pub struct Consolidate {
    /// Which part.
    pub part: Part,
    /// Only versions written in this range of times.
    pub times: Option<TimeRange>,
    /// At least so many versions at once; fewer are left as they are.
    pub at_least: usize,
    /// At most so many versions at once.
    pub at_most: Option<usize>,
    /// Only versions of at most so many bytes.
    pub max_bytes: Option<u64>,
}

impl Default for Consolidate {
    fn default() -> Self {
        Self { part: Part::Cells, times: None, at_least: 2, at_most: None, max_bytes: None }
    }
}

/// What consolidating did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consolidated {
    /// Names of what was made.
    pub made: Vec<String>,
    /// Names of what it replaces, which vacuuming can remove.
    pub replaced: Vec<String>,
}

/// What vacuuming removes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vacuumed {
    /// Names of what went, or would go.
    pub removed: Vec<String>,
    /// Names of what was kept although something claims to replace it, with the reason.
    pub kept: Vec<(String, String)>,
    /// Bytes that were freed, or would be.
    pub bytes: u64,
}

/// A change of what an array is.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Change {
    /// A field more; cells written before have its fill.
    AddField {
        /// The field.
        field: Field,
        /// Its codecs.
        codecs: Vec<CodecSpec>,
    },
    /// A field less.
    DropField {
        /// Its name.
        name: String,
    },
    /// More labels behind those that an enumeration has.
    ExtendEnumeration(Enumeration),
    /// A larger part of the domain in use, one closed range per dimension.
    ExpandDomain(Vec<(Scalar, Scalar)>),
}

/// Changes to a source that keeps versions. Each is seen whole or not at all.
pub trait Edit: Debug + Send + Sync {
    /// Removes the cells that meet a condition, as of a time.
    ///
    /// # Errors
    /// `Unsupported`, `InvalidRequest`, `Io`.
    fn delete(&self, condition: &Condition, timestamp: Option<u64>) -> Result<()>;

    /// Sets attributes; `None` removes one.
    ///
    /// # Errors
    /// `Unsupported` for a value that cannot be held, `Io`.
    fn set_attributes(&self, changes: &BTreeMap<String, Option<Value>>, timestamp: Option<u64>)
    -> Result<()>;

    /// Changes what the array is, all changes at once.
    ///
    /// # Errors
    /// `Unsupported`, `InvalidRequest`, `Io`.
    fn change(&self, changes: &[Change], timestamp: Option<u64>) -> Result<()>;

    /// Makes one version of several. What is read stays the same; what was replaced stays until it is vacuumed.
    ///
    /// # Errors
    /// `Corrupt`, `Io`.
    fn consolidate(&self, what: &Consolidate) -> Result<Consolidated>;

    /// Removes what was replaced; with `dry_run` only says what would go.
    ///
    /// # Errors
    /// `Io`.
    fn vacuum(&self, part: Part, dry_run: bool) -> Result<Vacuumed>;
}
