//! The [`Versioned`] trait: arrays that keep their earlier states.

use std::fmt::Debug;
use std::sync::Arc;

use tesseral_core::{ArraySchema, Result};
use tesseral_store::Store;

use crate::{AppendOptions, Edit, OpenOptions, Writer};

/// A format whose arrays keep every version: writes add versions, and sources open at an earlier time
/// ([`OpenOptions::as_of`]). An array can be created empty and filled by appends.
pub trait Versioned: Debug + Send + Sync {
    /// Opens an existing array for appending. The writer contains the array as number 0.
    ///
    /// # Errors
    /// `Unsupported` if the array's format version is read-only; `InvalidRequest`; as [`Format::open`](crate::Format::open).
    fn append(
        &self,
        store: Arc<dyn Store>,
        options: &AppendOptions,
    ) -> Result<(Box<dyn Writer>, ArraySchema)>;

    /// Opens a source for editing.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    fn edit(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Box<dyn Edit>>;
}
