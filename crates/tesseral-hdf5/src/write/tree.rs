//! The B-tree of version 1 that locates the chunks of a dataset.
//!
//! ```text
//! TREE · type · level · entries · left · right │ key · child │ … │ key
//! key: bytes of the chunk · mask of skipped filters · offset of its first cell along each dimension, and 0
//! ```

use super::header::{Little, UNDEFINED};

/// Entries of a node: twice the rank of trees, which is 32 where a file does not state it.
const ENTRIES: usize = 64;

/// Location of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredAt {
    pub(super) address: u64,
    pub(super) len: u32,
}

/// Builds the tree of chunks in row-major order, at `base`. Returns its bytes and the address of the root.
pub(super) fn build(
    chunk_shape: &[u64],
    element: u64,
    chunks: impl ExactSizeIterator<Item = (Vec<u64>, StoredAt)>,
    base: u64,
) -> (Vec<u8>, u64) {
    let key = |coords: &[u64], len: u32, last: u64| {
        let mut key = Vec::with_capacity(16 + 8 * coords.len());
        key.u32(len);
        key.u32(0);
        coords.iter().zip(chunk_shape).for_each(|(at, extent)| key.u64(at.saturating_mul(*extent)));
        key.u64(last);
        key
    };
    let mut end = Vec::new();
    let mut entries: Vec<(Vec<u8>, u64)> = Vec::with_capacity(chunks.len());
    for (coords, stored) in chunks {
        entries.push((key(&coords, stored.len, 0), stored.address));
        end = coords;
    }
    if entries.is_empty() {
        return (Vec::new(), UNDEFINED);
    }
    // The key after the last chunk is beyond it in every dimension.
    end.iter_mut().for_each(|at| *at = at.saturating_add(1));
    let end = key(&end, 0, element);
    let size = 24 + ENTRIES * 8 + (ENTRIES + 1) * end.len();
    let (mut out, mut level) = (Vec::new(), 0_u8);
    loop {
        let first = base + out.len() as u64;
        let nodes = entries.len().div_ceil(ENTRIES);
        let address = |node: usize| first + (node * size) as u64;
        let mut above = Vec::with_capacity(nodes);
        for (node, inside) in entries.chunks(ENTRIES).enumerate() {
            let start = out.len();
            out.extend(b"TREE\x01");
            out.push(level);
            out.u16(u16::try_from(inside.len()).unwrap_or(u16::MAX));
            out.u64(if node == 0 { UNDEFINED } else { address(node - 1) });
            out.u64(if node + 1 == nodes { UNDEFINED } else { address(node + 1) });
            for (key, child) in inside {
                out.extend(key);
                out.u64(*child);
            }
            out.extend(entries.get((node + 1) * ENTRIES).map_or(&end, |(key, _)| key));
            out.resize(start + size, 0);
            above.extend(inside.first().map(|(key, _)| (key.clone(), address(node))));
        }
        if nodes == 1 {
            return (out, first);
        }
        entries = above;
        level = level.saturating_add(1);
    }
}
