//! The message API: encode, decode, scan, append, stream, validate.

pub(crate) mod decoding;
pub(crate) mod encoding;
pub(crate) mod error;
pub(crate) mod file;
#[cfg(feature = "async")]
mod file_async;
pub(crate) mod object_blocks;
pub(crate) mod options;
pub(crate) mod push;
pub(crate) mod scanning;
pub(crate) mod stream;
pub(crate) mod validate;
