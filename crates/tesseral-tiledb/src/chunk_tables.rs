//! Chunk tables of tiles, read when a run of their cells is first requested.
//!
//! Where the fragment carries digests, the blocks that hold the lengths are compared with theirs before the lengths are used: a
//! wrong length would move every cell after it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tesseral_core::{Error, Result};
use tesseral_format::{DigestSpan, Part};
use tesseral_store::{Store, StoreExt};

use crate::fragment::check_blocks;
use crate::wire::chunk_table::ChunkTable;

/// Tables of tiles that are kept.
const KEPT: usize = 64;

/// Reads the lengths before each chunk of a tile, or the blocks that hold them if there are `digests`.
fn read_table(
    store: &dyn Store,
    object: &str,
    part: &Part,
    digests: Option<&DigestSpan<'_>>,
) -> Result<ChunkTable> {
    let tile = part.offset..part.offset.saturating_add(part.len);
    let described = store.describe(object);
    let mut held = (0..0, Bytes::new());
    ChunkTable::parse(&described, tile, |range: Range<u64>| {
        let Some(span) = digests else { return store.read(object, range) };
        if range.start < held.0.start || held.0.end < range.end {
            let blocks = || span.blocks(&range);
            let start = blocks().next().map_or(range.start, |block| block.range.start);
            let end = blocks().last().map_or(range.end, |block| block.range.end);
            held = (start..end, store.read(object, start..end)?);
            check_blocks(store, object, span, start, &held.1)?;
        }
        let at = |n: u64| usize::try_from(n - held.0.start).unwrap_or(usize::MAX);
        let lengths = at(range.start)..at(range.end);
        if lengths.end > held.1.len() {
            let detail = "its digests do not cover it";
            return Err(Error::corrupt("a tile", &*described, range.start, detail));
        }
        Ok(held.1.slice(lengths))
    })
}

/// Tables that were read, by object and offset of the tile.
#[derive(Debug, Default)]
pub(crate) struct ChunkTables(Mutex<HashMap<(u32, u64), Arc<ChunkTable>>>);

impl ChunkTables {
    /// The table of a tile, read on first use.
    pub(crate) fn get(
        &self,
        store: &dyn Store,
        object: &str,
        part: &Part,
        digests: Option<&DigestSpan<'_>>,
    ) -> Result<Arc<ChunkTable>> {
        let key = (part.object, part.offset);
        if let Some(table) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Arc::clone(table));
        }
        let table = Arc::new(read_table(store, object, part, digests)?);
        let mut tables = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if tables.len() >= KEPT {
            tables.clear();
        }
        tables.insert(key, Arc::clone(&table));
        Ok(table)
    }
}
