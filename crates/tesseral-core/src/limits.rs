//! How much a stranger's file may make us use.

use crate::{Error, Result};

/// Upper bounds that every open, plan and decode honours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes that one decoded chunk may take.
    pub chunk_bytes: u64,
    /// Bytes of metadata that may be held at once, decompressed.
    pub metadata_bytes: u64,
    /// Nesting of metadata.
    pub depth: usize,
    /// Chunks that one plan may hold.
    pub plan_chunks: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { chunk_bytes: 4 << 30, metadata_bytes: 1 << 30, depth: 64, plan_chunks: 64 << 20 }
    }
}

impl Limits {
    /// Refuses a chunk that would decode to more than the limit.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_chunk(&self, bytes: u64) -> Result<()> {
        check("a decoded chunk", bytes, self.chunk_bytes)
    }

    /// Refuses metadata beyond the limit.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_metadata(&self, bytes: u64) -> Result<()> {
        check("metadata", bytes, self.metadata_bytes)
    }

    /// Refuses a plan of more chunks than the limit.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_plan(&self, chunks: u64) -> Result<()> {
        check("the chunks of one plan", chunks, self.plan_chunks)
    }
}

fn check(what: &str, asked: u64, allowed: u64) -> Result<()> {
    if asked > allowed { Err(Error::limit(what, asked, allowed)) } else { Ok(()) }
}
