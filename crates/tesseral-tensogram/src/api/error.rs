//! Errors of the message API.

use std::io;

use tesseral_core::{Error, ErrorKind};

/// Result of the message functions.
pub type Result<T, E = TensogramError> = std::result::Result<T, E>;

/// Error of the message API. Converts into the common [`Error`] with location and cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensogramError {
    /// Invalid magic, preamble, frame or postamble.
    #[error("framing: {0}")]
    Framing(#[source] Error),
    /// Invalid CBOR or inconsistent metadata.
    #[error("metadata: {0}")]
    Metadata(#[source] Error),
    /// Cells or parameters that an encoding does not support.
    #[error("encoding: {0}")]
    Encoding(#[source] Error),
    /// A compressor or decompressor failed.
    #[error("compression: {0}")]
    Compression(#[source] Error),
    /// Object or message index out of bounds.
    #[error("{what} index {index} is out of bounds for {count} {what}s")]
    Object {
        /// `object` or `message`.
        what: &'static str,
        /// The requested index.
        index: usize,
        /// Number of objects or messages.
        count: usize,
    },
    /// An operation of the file system failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Stored and computed hash differ.
    #[error("hash mismatch in {}: expected {expected:016x}, computed {actual:016x}", Hashed(*.object_index))]
    HashMismatch {
        /// Index of the object; `None` for metadata frames.
        object_index: Option<usize>,
        /// The stored hash.
        expected: u64,
        /// The computed hash.
        actual: u64,
    },
    /// An object has no hash, but verification requires one.
    #[error("object {object_index} has no hash")]
    MissingHash {
        /// Index of the object.
        object_index: usize,
    },
    /// A resource limit was exceeded.
    #[error(transparent)]
    Limit(Error),
}

struct Hashed(Option<usize>);

impl std::fmt::Display for Hashed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(index) => write!(f, "object {index}"),
            None => write!(f, "a metadata frame"),
        }
    }
}

/// Structures that are encoded as CBOR.
const CBOR: [&str; 5] = ["metadata", "preceder metadata", "descriptor", "index", "hash list"];
/// Names of compression codecs.
const COMPRESSIONS: [&str; 9] = ["szip", "aec", "zstd", "lz4", "blosc2", "zfp", "sz3", "rle", "roaring"];

impl From<Error> for TensogramError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Corrupt { what, .. } if CBOR.contains(&what.as_str()) => Self::Metadata(error),
            ErrorKind::Corrupt { what, .. } if what == "payload" || what == "codecs" => Self::Encoding(error),
            ErrorKind::Codec { codec, .. } if COMPRESSIONS.contains(codec) => Self::Compression(error),
            ErrorKind::Codec { .. } | ErrorKind::InvalidRequest { .. } => Self::Encoding(error),
            // An unsupported wire version is a framing error; all other unsupported features concern codecs.
            ErrorKind::Unsupported { feature } if feature.contains("wire version") => Self::Framing(error),
            ErrorKind::Unsupported { .. } => Self::Encoding(error),
            ErrorKind::Limit { .. } => Self::Limit(error),
            ErrorKind::NotFound { .. } => Self::Io(io::Error::new(io::ErrorKind::NotFound, error)),
            ErrorKind::Io { source, .. } => Self::Io(io::Error::new(source.kind(), error)),
            _ => Self::Framing(error),
        }
    }
}

impl From<TensogramError> for Error {
    fn from(error: TensogramError) -> Self {
        match error {
            TensogramError::Framing(error)
            | TensogramError::Metadata(error)
            | TensogramError::Encoding(error)
            | TensogramError::Compression(error)
            | TensogramError::Limit(error) => error,
            TensogramError::Object { what, index, count } => {
                let names = (0..count.min(8)).map(|n| n.to_string()).collect();
                Self::not_found(what, index.to_string(), names)
            }
            TensogramError::Io(error) => match error.downcast::<Self>() {
                Ok(inner) => inner,
                Err(error) => Self::io("access", "a message", error),
            },
            TensogramError::HashMismatch { object_index, .. } => {
                let damaged = Self::corrupt("hash", "a message", None, error.to_string());
                match object_index {
                    Some(index) => damaged.in_array(index.to_string()),
                    None => damaged,
                }
            }
            TensogramError::MissingHash { .. } => Self::corrupt("hash", "a message", None, error.to_string()),
        }
    }
}
