//! Limits on resources that untrusted input can make a process use.

use crate::Advice;
use crate::{Error, MetadataCost, Result};

/// Ratio of decoded to stored size up to which the cells of an operation do not count against [`Limits::total_expansion`].
pub const EXPANSION_RATIO: u64 = 64;

/// Ratio of size in memory to stored size up to which data does not count against [`Limits::chunk_expansion`]. Lower than
/// [`EXPANSION_RATIO`], because decoding a chunk needs additional memory.
pub const HELD_RATIO: u64 = 32;

/// Stored bytes beyond this size are counted with [`LARGE_RATIO`]: a small file must not cause much work, but large files of
/// highly compressible data are common.
const SMALL: u64 = 1 << 20;
const LARGE_RATIO: u64 = 1024;

/// Size that `stored` bytes justify, of which the first [`SMALL`] bytes count `ratio` times.
fn justified(stored: u64, ratio: u64) -> u64 {
    let large = stored.saturating_sub(SMALL).saturating_mul(LARGE_RATIO);
    stored.min(SMALL).saturating_mul(ratio).saturating_add(large)
}

/// Limits that every open, plan and decode applies.
///
/// Declared sizes are accepted up to [`HELD_RATIO`] (in memory) or [`EXPANSION_RATIO`] (in total) times the first MiB of their
/// stored bytes, and 1,024 times the bytes beyond that. Larger sizes are not backed by stored bytes, because a decompressor or
/// a fill value produces any number of cells from a few bytes: such a chunk is limited to `chunk_expansion` bytes, and all
/// cells of an operation to `total_expansion`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum size of one decoded chunk in bytes, regardless of its stored size.
    pub chunk_bytes: u64,
    /// Maximum size in bytes of one decoded chunk whose stored size is less than a 32nd of it.
    pub chunk_expansion: u64,
    /// Maximum size in bytes of the cells of one operation whose stored size is less than a 64th of it.
    pub total_expansion: u64,
    /// Maximum size in bytes of decompressed metadata in memory.
    pub metadata_bytes: u64,
    /// Maximum nesting depth of metadata.
    pub depth: usize,
    /// Maximum number of chunks of one plan.
    pub plan_chunks: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Limits {
    /// The default limits.
    pub const DEFAULT: Self = Self {
        chunk_bytes: 4 << 30,
        chunk_expansion: 32 << 20,
        total_expansion: 64 << 20,
        metadata_bytes: 1 << 30,
        depth: 64,
        plan_chunks: 64 << 20,
    };

    /// Returns the limits with `chunk_expansion` and `total_expansion` set to this many bytes.
    #[must_use]
    pub fn with_expansion(self, bytes: u64) -> Self {
        Self {
            chunk_bytes: self.chunk_bytes.max(bytes),
            chunk_expansion: bytes,
            total_expansion: bytes,
            ..self
        }
    }

    /// Rejects a chunk that exceeds the maximum size of a chunk.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_chunk(&self, bytes: u64) -> Result<()> {
        check("a decoded chunk", bytes, self.chunk_bytes)
    }

    /// Rejects a chunk whose decoded size exceeds the limits for its `stored` bytes.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_decoded(&self, bytes: u64, stored: u64) -> Result<()> {
        self.check_chunk(bytes)?;
        self.check_expanded(bytes, stored)
    }

    /// Rejects cells in memory that exceed the limits for their `stored` bytes, regardless of the maximum size of a chunk.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_expanded(&self, bytes: u64, stored: u64) -> Result<()> {
        self.check_held("a decoded chunk", bytes, stored)
    }

    /// Rejects `what` in memory that exceeds the limits for its `stored` bytes.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_held(&self, what: &str, bytes: u64, stored: u64) -> Result<()> {
        let justified = justified(stored, HELD_RATIO);
        Self::check_expansion(what, bytes, justified, self.chunk_expansion, stored)
    }

    /// Rejects an operation over `bytes` of `what`, such as cells, with only `stored` bytes.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_total(&self, what: &str, bytes: u64, stored: u64) -> Result<()> {
        let justified = justified(stored, EXPANSION_RATIO);
        Self::check_expansion(what, bytes, justified, self.total_expansion, stored)
    }

    /// Bytes of cells that an operation may process, of which `stored` bytes are stored.
    pub fn total_of(&self, stored: u64) -> u64 {
        self.total_expansion.max(justified(stored, EXPANSION_RATIO))
    }

    /// Rejects metadata beyond the limit.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_metadata(&self, bytes: u64) -> Result<()> {
        check("metadata", bytes, self.metadata_bytes)
    }

    /// Rejects metadata whose decompressed size exceeds the limits for its `stored` bytes.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_unpacked_metadata(&self, bytes: u64, stored: u64) -> Result<()> {
        self.check_metadata(bytes)?;
        self.check_held("metadata", bytes, stored)
    }

    /// Rejects values of metadata that take more memory than the limits for their `stored` bytes.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_values(&self, cost: MetadataCost, stored: u64) -> Result<()> {
        self.check_total("values of metadata", cost.bytes(), stored)
    }

    /// Rejects a plan of more chunks than the limit.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_plan(&self, chunks: u64) -> Result<()> {
        check("the chunks of one plan", chunks, self.plan_chunks)
    }

    fn check_expansion(what: &str, bytes: u64, justified: u64, free: u64, stored: u64) -> Result<()> {
        check(what, bytes, free.max(justified))
            .map_err(|error| error.hint(Advice::RaiseExpansion { bytes, stored }))
    }
}

fn check(what: &str, asked: u64, allowed: u64) -> Result<()> {
    if asked > allowed { Err(Error::limit(what, asked, allowed)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stored_size_limits_the_decoded_size() {
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
