//! The one error type: what went wrong, where, why, and what to try.

use std::fmt;

/// `Result` with Tesseral's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error, one pointer wide.
///
/// [`kind`](Error::kind) says what happened; [`array`](Error::array), [`chunk`](Error::chunk) and
/// [`hint`](Error::hint) are context that callers add as the error passes through them.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    array: Option<String>,
    chunk: Option<Vec<u64>>,
    hint: Option<String>,
}

/// What happened. Exit codes, HTTP statuses and Python exceptions map from this.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Bytes that contradict the format.
    #[error("{what} is damaged in {object}{}: {detail}", At(*.offset))]
    Corrupt {
        /// The structure, by the format's own word: `superblock`, `chunk index row`.
        what: String,
        /// The file or object the bytes came from.
        object: String,
        /// Where in the object, when one place can be named.
        offset: Option<u64>,
        /// What was expected and what was found.
        detail: String,
    },
    /// Not a file of any known format.
    #[error("{object} is not a file of a known format: {detail}")]
    Unrecognised {
        /// The file or object.
        object: String,
        /// What was looked for.
        detail: String,
    },
    /// A feature of the format, or a combination, that Tesseral does not have.
    #[error("not supported: {feature}")]
    Unsupported {
        /// The feature, in the format's own words.
        feature: String,
    },
    /// Something larger than a limit allows.
    #[error("{what} needs {asked}, the limit is {allowed}")]
    Limit {
        /// What was too large.
        what: String,
        /// How much was asked for.
        asked: u64,
        /// How much is allowed.
        allowed: u64,
    },
    /// Nothing by that name.
    #[error("no {what} named {name:?}{}", Candidates(.candidates))]
    NotFound {
        /// What kind of thing: `file`, `array`, `dimension`.
        what: String,
        /// The name asked for.
        name: String,
        /// Names that do exist.
        candidates: Vec<String>,
    },
    /// A request that makes no sense for this array, whatever its bytes.
    #[error("{detail}")]
    InvalidRequest {
        /// What is wrong with it.
        detail: String,
    },
    /// An object that the opened state names does not exist: it was lost, or another process removed it.
    #[error("{what} is missing: {object}")]
    Missing {
        /// What kind of thing: `a file of the array`.
        what: String,
        /// The file or object.
        object: String,
        /// Its name in the store that was read.
        name: String,
    },
    /// The opened state is out of date: it names an object that was removed, and a fresh listing does not name it any more.
    #[error("{source_name} changed while it was read: {object} was removed")]
    Stale {
        /// The file or folder that was opened.
        source_name: String,
        /// The object that was removed.
        object: String,
    },
    /// An open file was written to by another process: what was read of it may be a mixture.
    #[error("{object} changed while it was read: {detail}")]
    Changed {
        /// The file.
        object: String,
        /// What differs from when it was opened.
        detail: String,
    },
    /// A codec refused its input.
    #[error("{codec}: {source}")]
    Codec {
        /// The codec's name.
        codec: &'static str,
        /// What the codec said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The operating system or a network refused.
    #[error("{op} {object}: {source}")]
    Io {
        /// The verb: `read`, `rename`.
        op: &'static str,
        /// The file or object.
        object: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The caller asked to stop.
    #[error("interrupted")]
    Cancelled,
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
        write!(f, "; there is ")?;
        for (i, name) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{name:?}", if i == 0 { "" } else { ", " })?;
        }
        if self.0.len() > SHOWN { write!(f, " and {} more", self.0.len() - SHOWN) } else { Ok(()) }
    }
}

impl Error {
    /// Wraps a kind.
    pub fn new(kind: ErrorKind) -> Self {
        Self(Box::new(Inner { kind, array: None, chunk: None, hint: None }))
    }

    /// Damaged bytes of the structure `what` at `offset` of `object`.
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

    /// Fewer bytes than the structure needs.
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
            format!("expected {expected} bytes, found {found}: the file may be cut short"),
        )
    }

    /// A feature Tesseral does not have.
    pub fn unsupported(feature: impl Into<String>) -> Self {
        Self::new(ErrorKind::Unsupported { feature: feature.into() })
    }

    /// A request that makes no sense.
    pub fn invalid(detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::InvalidRequest { detail: detail.into() })
    }

    /// `what` asks for more than is allowed.
    pub fn limit(what: impl Into<String>, asked: u64, allowed: u64) -> Self {
        Self::new(ErrorKind::Limit { what: what.into(), asked, allowed })
    }

    /// Nothing of that name among `candidates`.
    pub fn not_found(what: impl Into<String>, name: impl Into<String>, candidates: Vec<String>) -> Self {
        Self::new(ErrorKind::NotFound { what: what.into(), name: name.into(), candidates })
    }

    /// An object `name` of a store that was relied on does not exist.
    pub fn missing(what: impl Into<String>, object: impl Into<String>, name: impl Into<String>) -> Self {
        Self::new(ErrorKind::Missing { what: what.into(), object: object.into(), name: name.into() })
    }

    /// The state of `source` that was opened names `object`, which was removed since.
    pub fn stale(source: impl Into<String>, object: impl Into<String>) -> Self {
        Self::new(ErrorKind::Stale { source_name: source.into(), object: object.into() })
            .hint("another process replaced it, for instance by vacuuming; open the source again")
    }

    /// An open file that was written to.
    pub fn changed(object: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(ErrorKind::Changed { object: object.into(), detail: detail.into() })
            .hint("another process writes to the file; try again when it is done")
    }

    /// A codec's refusal.
    pub fn codec(codec: &'static str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::new(ErrorKind::Codec { codec, source: source.into() })
    }

    /// A system call's refusal.
    pub fn io(op: &'static str, object: impl Into<String>, source: std::io::Error) -> Self {
        Self::new(ErrorKind::Io { op, object: object.into(), source })
    }

    /// The caller asked to stop.
    pub fn cancelled() -> Self {
        Self::new(ErrorKind::Cancelled)
    }

    /// Names the array, unless an inner call already did.
    #[must_use]
    pub fn in_array(mut self, array: impl Into<String>) -> Self {
        self.0.array.get_or_insert_with(|| array.into());
        self
    }

    /// Names the chunk by its grid coordinates, unless an inner call already did.
    #[must_use]
    pub fn in_chunk(mut self, chunk: &[u64]) -> Self {
        self.0.chunk.get_or_insert_with(|| chunk.to_vec());
        self
    }

    /// Says what to try, unless an inner call already did.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// What happened.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// The array concerned, when known.
    pub fn array(&self) -> Option<&str> {
        self.0.array.as_deref()
    }

    /// Grid coordinates of the chunk concerned, when known.
    pub fn chunk(&self) -> Option<&[u64]> {
        self.0.chunk.as_deref()
    }

    /// What to try, when something can be named.
    pub fn advice(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// Byte offset of the damage, when one place can be named.
    pub fn offset(&self) -> Option<u64> {
        match self.kind() {
            ErrorKind::Corrupt { offset, .. } => *offset,
            _ => None,
        }
    }

    /// Whether this is about damaged bytes, in a structure or inside a codec's stream.
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
