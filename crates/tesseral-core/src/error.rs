//! The common error type: kind, location, cause and hint.

use std::fmt;

use crate::Advice;

/// `Result` with Tesseral's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, one pointer wide.
///
/// [`kind`](Error::kind) is the cause; [`array`](Error::array), [`chunk`](Error::chunk) and
/// [`advice`](Error::advice) are context that callers add while propagating it.
pub struct Error(Box<ErrorInner>);

struct ErrorInner {
    kind: ErrorKind,
    array: Option<String>,
    chunk: Option<Vec<u64>>,
    advice: Option<Advice>,
}

/// Kind of an error. Exit codes, HTTP statuses and Python exceptions map from it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Bytes that violate the format.
    #[error("{what} is damaged in {object}{}: {detail}", At(*.offset))]
    Corrupt {
        /// Name of the structure in the format's specification: `superblock`, `chunk index row`.
        what: String,
        /// Name of the file or object.
        object: String,
        /// Byte offset in the object, if known.
        offset: Option<u64>,
        /// Expected and actual content.
        detail: String,
    },
    /// The source has no known format.
    #[error("{object} has no known format: {detail}")]
    Unrecognized {
        /// Name of the file or object.
        object: String,
        /// Description of the failed detection.
        detail: String,
    },
    /// An unsupported feature of the format, or an unsupported combination.
    #[error("not supported: {feature}")]
    Unsupported {
        /// The feature, in the format's terms.
        feature: String,
    },
    /// A limit was exceeded.
    #[error("{what} requires {asked}, the limit is {allowed}")]
    Limit {
        /// The resource that exceeds the limit.
        what: String,
        /// The requested amount.
        asked: u64,
        /// The allowed amount.
        allowed: u64,
    },
    /// Unknown name.
    #[error("no {what} named {name:?}{}", Candidates(.candidates))]
    NotFound {
        /// Kind of the entity: `file`, `array`, `dimension`.
        what: String,
        /// The requested name.
        name: String,
        /// Available names.
        candidates: Vec<String>,
    },
    /// An invalid request, independent of the content of the source.
    #[error("{detail}")]
    InvalidRequest {
        /// Description of the problem.
        detail: String,
    },
    /// An object that the opened state refers to does not exist: it was lost, or another process removed it.
    #[error("{what} is missing: {object}")]
    Missing {
        /// Kind of the object: `a file of the array`.
        what: String,
        /// Location of the file or object.
        object: String,
        /// Its name in the store.
        name: String,
    },
    /// The opened state is out of date: it refers to an object that was removed, and a new listing no longer contains it.
    #[error("{source_name} changed while it was read: {object} was removed")]
    Stale {
        /// The file or folder that was opened.
        source_name: String,
        /// The removed object.
        object: String,
    },
    /// An open file was written to by another process: the bytes read can be inconsistent.
    #[error("{object} changed while it was read: {detail}")]
    Changed {
        /// Name of the file.
        object: String,
        /// Difference from the state when it was opened.
        detail: String,
    },
    /// A codec failed.
    #[error("{codec}: {source}")]
    Codec {
        /// Name of the codec.
        codec: &'static str,
        /// Error of the codec.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// An operation of the operating system or network failed.
    #[error("{op} {object}: {source}")]
    Io {
        /// The operation: `read`, `rename`.
        op: &'static str,
        /// Name of the file or object.
        object: String,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A broken invariant: a defect of Tesseral.
    #[error("internal error: {detail}")]
    Internal {
        /// Description of the broken invariant.
        detail: String,
    },
    /// The operation was canceled by the caller.
    #[error("interrupted")]
    Cancelled,
    /// Metadata must be fetched before an answer is possible. Only callers that fetch metadata in rounds receive it.
    #[error("metadata must be fetched first")]
    Pending,
}

struct At(Option<u64>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |offset| write!(f, " at byte {offset}"))
    }
}

struct Candidates<'a>(&'a [String]);

impl fmt::Display for Candidates<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        if self.0.is_empty() {
            return Ok(());
        }
        write!(f, "; available: ")?;
        for (i, name) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{name:?}", if i == 0 { "" } else { ", " })?;
        }
        if self.0.len() > SHOWN { write!(f, " and {} more", self.0.len() - SHOWN) } else { Ok(()) }
    }
}

impl Error {
    /// Creates an error from a kind.
    pub fn new(kind: ErrorKind) -> Self {
        Self(Box::new(ErrorInner { kind, array: None, chunk: None, advice: None }))
    }

    /// Creates a `Corrupt` error for structure `what` at `offset` of `object`.
    pub fn corrupt(
        what: impl Into<String>,
        object: impl Into<String>,
        offset: impl Into<Option<u64>>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(ErrorKind::Corrupt {
            what: what.into(),
            object: object.into(),
            offset: offset.into(),
            detail: detail.into(),
        })
    }

    /// Creates a `Corrupt` error for a structure with too few bytes.
    pub fn truncated(
        what: impl Into<String>,
        object: impl Into<String>,
        offset: u64,
        expected: u64,
        found: u64,
    ) -> Self {
        Self::corrupt(
            what,
            object,
            offset,
            format!("expected {expected} bytes, found {found}: the file may be truncated"),
        )
    }

    /// Creates an `Unsupported` error.
    pub fn unsupported(feature: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported { feature: feature.into() })
    }

    /// Creates an `InvalidRequest` error.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest { detail: detail.into() })
    }

    /// A broken invariant.
    pub fn internal(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Internal { detail: detail.into() })
            .hint("this is a defect of Tesseral: please report it with the steps that led to it")
    }

    /// Creates a `Limit` error for `what`.
    pub fn limit(what: impl Into<String>, asked: u64, allowed: u64) -> Self {
        Self::new(ErrorKind::Limit { what: what.into(), asked, allowed })
    }

    /// Creates a `NotFound` error with available names.
    pub fn not_found(what: impl Into<String>, name: impl Into<String>, candidates: Vec<String>) -> Self {
        Self::new(ErrorKind::NotFound { what: what.into(), name: name.into(), candidates })
    }

    /// Creates an error for a missing object `name` of a store.
    pub fn missing(what: impl Into<String>, object: impl Into<String>, name: impl Into<String>) -> Self {
        Self::new(ErrorKind::Missing { what: what.into(), object: object.into(), name: name.into() })
    }

    /// Creates an error for `object`, which the opened state of `source` refers to and which was removed since.
    pub fn stale(source: impl Into<String>, object: impl Into<String>) -> Self {
        Self::new(ErrorKind::Stale { source_name: source.into(), object: object.into() })
            .hint("another process replaced it, for instance by vacuuming; open the source again")
    }

    /// Creates an error for an open file that was written to.
    pub fn changed(object: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Changed { object: object.into(), detail: detail.into() })
            .hint("another process is writing to the file; try again later")
    }

    /// Creates a `Codec` error.
    pub fn codec(codec: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(ErrorKind::Codec { codec, source: source.into() })
    }

    /// Creates an `Io` error.
    pub fn io(op: &'static str, object: impl Into<String>, source: std::io::Error) -> Self {
        Self::new(ErrorKind::Io { op, object: object.into(), source })
    }

    /// Creates a `Cancelled` error.
    pub fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled)
    }

    /// Creates the `Io` error of an operation that was not done by its deadline.
    pub fn deadline() -> Self {
        let late = std::io::Error::new(std::io::ErrorKind::TimedOut, "the deadline has passed");
        Self::io("finish", "the operation", late)
    }

    /// Creates a `Pending` error.
    pub fn pending() -> Self {
        Self::new(ErrorKind::Pending)
    }

    /// Sets the array, unless already set.
    #[must_use]
    pub fn in_array(mut self, array: impl Into<String>) -> Self {
        self.0.array.get_or_insert_with(|| array.into());
        self
    }

    /// Sets the grid coordinates of the chunk, unless already set.
    #[must_use]
    pub fn in_chunk(mut self, chunk: &[u64]) -> Self {
        self.0.chunk.get_or_insert_with(|| chunk.to_vec());
        self
    }

    /// Sets the hint, unless already set. Its text must apply to every interface; see [`Advice`].
    #[must_use]
    pub fn hint(mut self, advice: impl Into<Advice>) -> Self {
        self.0.advice.get_or_insert_with(|| advice.into());
        self
    }

    /// Kind of the error.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// Name of the affected array, if known.
    pub fn array(&self) -> Option<&str> {
        self.0.array.as_deref()
    }

    /// Grid coordinates of the affected chunk, if known.
    pub fn chunk(&self) -> Option<&[u64]> {
        self.0.chunk.as_deref()
    }

    /// Suggestion to resolve the error, if any.
    pub fn advice(&self) -> Option<&Advice> {
        self.0.advice.as_ref()
    }

    /// Byte offset of the corruption, if known.
    pub fn offset(&self) -> Option<u64> {
        match self.kind() {
            ErrorKind::Corrupt { offset, .. } => *offset,
            _ => None,
        }
    }

    /// Returns whether the error means corrupt bytes, in a structure or in a codec's stream.
    pub fn is_damage(&self) -> bool {
        matches!(self.kind(), ErrorKind::Corrupt { .. } | ErrorKind::Missing { .. } | ErrorKind::Codec { .. })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.kind)?;
        if let Some(array) = &self.0.array {
            write!(f, " (array {array:?}")?;
            if let Some(chunk) = &self.0.chunk {
                write!(f, ", chunk {chunk:?}")?;
            }
            write!(f, ")")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("array", &self.0.array)
            .field("chunk", &self.0.chunk)
            .finish_non_exhaustive()
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.0.kind)
    }
}

impl From<ErrorKind> for Error {
    fn from(kind: ErrorKind) -> Self {
        Self::new(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_one_pointer_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
        assert_eq!(size_of::<Result<()>>(), size_of::<usize>());
    }

    #[test]
    fn inner_context_wins() {
        let e = Error::corrupt("row", "f", 8, "x").in_array("inner").in_array("outer").in_chunk(&[1, 2]);
        assert_eq!((e.array(), e.chunk(), e.offset()), (Some("inner"), Some(&[1, 2][..]), Some(8)));
    }
}
