//! What can go wrong with messages, in the words of the format.

use std::io;

use tesseral_core::{Error, ErrorKind};

/// A result of the message functions.
pub type Result<T, E = TensogramError> = std::result::Result<T, E>;

/// What went wrong with a message. Every variant keeps the place and the cause, and turns into the common [`Error`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TensogramError {
    /// Magic, preamble, frames or postamble are not as they must be.
    #[error("framing: {0}")]
    Framing(#[source] Error),
    /// CBOR that does not parse, or says what cannot be.
    #[error("metadata: {0}")]
    Metadata(#[source] Error),
    /// Cells or parameters that an encoding does not take.
    #[error("encoding: {0}")]
    Encoding(#[source] Error),
    /// A compression refused its input.
    #[error("compression: {0}")]
    Compression(#[source] Error),
    /// There is no object, or no message, of that number.
    #[error("there is no {what} {index}, there are {count}")]
    Object {
        /// `object` or `message`.
        what: &'static str,
        /// The number asked for.
        index: usize,
        /// How many there are.
        count: usize,
    },
    /// The file system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Bytes changed after they were written.
    #[error("{}: the hash is {actual:016x}, stored is {expected:016x}", Hashed(*.object_index))]
    HashMismatch {
        /// The object; `None` for frames of metadata.
        object_index: Option<usize>,
        /// The stored hash.
        expected: u64,
        /// The hash of the bytes.
        actual: u64,
    },
    /// An object has no hash, and one was required.
    #[error("object {object_index} has no hash")]
    MissingHash {
        /// The object.
        object_index: usize,
    },
    /// More than a limit allows.
    #[error(transparent)]
    Limit(Error),
}

struct Hashed(Option<usize>);

impl std::fmt::Display for Hashed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(index) => write!(f, "object {index} is damaged"),
            None => write!(f, "a frame is damaged"),
        }
    }
}

/// Structures whose bytes are CBOR.
const CBOR: [&str; 5] = ["metadata", "preceder metadata", "descriptor", "index", "hash list"];
/// Codecs that compress.
const COMPRESSIONS: [&str; 9] = ["szip", "aec", "zstd", "lz4", "blosc2", "zfp", "sz3", "rle", "roaring"];

impl From<Error> for TensogramError {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Corrupt { what, .. } if CBOR.contains(&what.as_str()) => Self::Metadata(error),
            ErrorKind::Corrupt { what, .. } if what == "payload" || what == "codecs" => Self::Encoding(error),
            ErrorKind::Codec { codec, .. } if COMPRESSIONS.contains(codec) => Self::Compression(error),
            ErrorKind::Codec { .. } | ErrorKind::InvalidRequest { .. } => Self::Encoding(error),
            // Another wire version is a matter of framing, everything else that is not known of codecs.
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
