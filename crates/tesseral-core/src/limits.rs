//! Upper bounds on what untrusted input may make a process use.

use crate::{Error, Result};

/// How many times its stored size the cells of an operation may take without counting against [`Limits::total_expansion`].
pub const EXPANSION_RATIO: u64 = 64;

/// How many times its stored size data in memory may take without counting against [`Limits::chunk_expansion`]. Decoding a chunk
/// needs work space beside it.
pub const HELD_RATIO: u64 = 32;

/// Stored bytes beyond this many justify [`LARGE_RATIO`] times their number: a small file must not cause much work, a large one of highly
/// compressible data is ordinary.
const SMALL: u64 = 1 << 20;
const LARGE_RATIO: u64 = 1024;

/// Bytes that `stored` bytes justify, of which the first [`SMALL`] count `ratio` times.
fn justified(stored: u64, ratio: u64) -> u64 {
    let large = stored.saturating_sub(SMALL).saturating_mul(LARGE_RATIO);
    stored.min(SMALL).saturating_mul(ratio).saturating_add(large)
}

/// Upper bounds that every open, plan and decode honors.
///
/// Sizes that a file claims are accepted up to [`HELD_RATIO`] (in memory) or [`EXPANSION_RATIO`] (in all) times the first MiB that it
/// stores for them, and 1,024 times what it stores beyond that. Larger sizes are claims without evidence, because a decompressor or a fill value makes any number of cells out of a few bytes: such a chunk may take
/// `chunk_expansion` bytes, and all cells of an operation `total_expansion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that one decoded chunk may take, whatever is stored of it.
    pub chunk_bytes: u64,
    /// Bytes that one decoded chunk may take when less than a 32nd of them is stored.
    pub chunk_expansion: u64,
    /// Bytes of cells that one operation may go through when less than a 64th of them is stored.
    pub total_expansion: u64,
    /// Bytes of metadata that may be held at once, decompressed.
    pub metadata_bytes: u64,
    /// Nesting of metadata.
    pub depth: usize,
    /// Chunks that one plan may hold.
    pub plan_chunks: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Limits {
    /// What holds unless another limit is set.
    pub const DEFAULT: Self = Self {
        chunk_bytes: 4 << 30,
        chunk_expansion: 32 << 20,
        total_expansion: 64 << 20,
        metadata_bytes: 1 << 30,
        depth: 64,
        plan_chunks: 64 << 20,
    };

    /// The same, with chunks and operations that may expand to this many bytes however little is stored.
    #[must_use]
    pub fn with_expansion(self, bytes: u64) -> Self {
        Self {
            chunk_bytes: self.chunk_bytes.max(bytes),
            chunk_expansion: bytes,
            total_expansion: bytes,
            ..self
        }
    }

    /// Rejects a chunk of more bytes than any chunk may take.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_chunk(&self, bytes: u64) -> Result<()> {
        check("a decoded chunk", bytes, self.chunk_bytes)
    }

    /// Rejects a chunk that would decode to more than the limits allow for its `stored` bytes.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_decoded(&self, bytes: u64, stored: u64) -> Result<()> {
        self.check_chunk(bytes)?;
        self.check_expanded(bytes, stored)
    }

    /// Rejects cells in memory that their `stored` bytes do not justify, however large a chunk may be.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_expanded(&self, bytes: u64, stored: u64) -> Result<()> {
        self.check_held("a decoded chunk", bytes, stored)
    }

    /// Rejects `what` in memory that `stored` bytes do not justify.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_held(&self, what: &str, bytes: u64, stored: u64) -> Result<()> {
        let justified = justified(stored, HELD_RATIO);
        Self::check_expansion(what, bytes, justified, self.chunk_expansion, stored)
    }

    /// Rejects an operation over `bytes` of `what`, such as cells, of which only `stored` bytes are there.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_total(&self, what: &str, bytes: u64, stored: u64) -> Result<()> {
        let justified = justified(stored, EXPANSION_RATIO);
        Self::check_expansion(what, bytes, justified, self.total_expansion, stored)
    }

    /// Rejects metadata beyond the limit.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_metadata(&self, bytes: u64) -> Result<()> {
        check("metadata", bytes, self.metadata_bytes)
    }

    /// Rejects metadata that would decompress to more than the limits allow for its `stored` bytes.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_unpacked_metadata(&self, bytes: u64, stored: u64) -> Result<()> {
        self.check_metadata(bytes)?;
        self.check_held("metadata", bytes, stored)
    }

    /// Rejects a plan of more chunks than the limit.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_plan(&self, chunks: u64) -> Result<()> {
        check("the chunks of one plan", chunks, self.plan_chunks)
    }

    fn check_expansion(what: &str, bytes: u64, justified: u64, free: u64, stored: u64) -> Result<()> {
        check(what, bytes, free.max(justified)).map_err(|error| {
            error.hint(format!(
                "the source stores only {stored} bytes of it; if it is trustworthy, raise the expansion limit to {bytes} bytes"
            ))
        })
    }
}

fn check(what: &str, asked: u64, allowed: u64) -> Result<()> {
    if asked > allowed { Err(Error::limit(what, asked, allowed)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_justifies_what_is_decoded() {
        let limits = Limits::default();
        let free = limits.chunk_expansion;
        assert!(limits.check_decoded(free, 0).is_ok());
        assert!(limits.check_decoded(free + 1, 0).is_err());
        assert!(limits.check_decoded(1 << 30, 32 << 20).is_ok());
        assert!(limits.check_decoded((32 << 20) + 1, 1 << 20).is_err());
        assert!(limits.check_decoded(1 << 30, 2 << 20).is_ok());
        assert!(limits.check_decoded((4 << 30) + 1, 4 << 30).is_err());
        assert!(limits.check_total("cells", 64 << 20, 0).is_ok());
        assert!(limits.check_total("cells", (64 << 20) + 1, 1 << 20).is_err());
        assert!(limits.check_total("cells", 128 << 20, 2 << 20).is_ok());
        assert!(limits.check_total("cells", u64::MAX, u64::MAX / 2).is_ok());
        assert!(limits.check_unpacked_metadata(free + 1, 10).is_err());
    }

    #[test]
    fn the_expansion_limit_can_be_raised() {
        let limits = Limits::default().with_expansion(8 << 30);
        assert!(limits.check_decoded(8 << 30, 0).is_ok());
        assert!(limits.check_total("cells", 8 << 30, 0).is_ok());
        assert!(limits.check_decoded((8 << 30) + 1, 0).is_err());
    }
}
