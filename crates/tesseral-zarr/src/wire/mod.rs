//! Metadata documents and shard indexes: bytes in, validated values out.

pub mod codecs;
pub mod dtype;
pub mod fill;
pub mod json;
pub mod key;
pub mod node;
pub mod shard;

use tesseral_core::Error;

/// An error in a metadata document.
pub(crate) fn damaged(object: &str, detail: impl Into<String>) -> Error {
    Error::corrupt("Zarr metadata", object, None, detail.into())
}
