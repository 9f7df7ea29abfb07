//! Chunk indexes: where the chunks of a dataset are.

use hdf5_reader::btree_v1::{self, BTreeV1Key};
use hdf5_reader::chunk_index::{self, ChunkEntry};
use hdf5_reader::messages::layout::ChunkIndexing;
use hdf5_reader::{extensible_array, fixed_array};
use tesseral_core::{ChunkGrid, Error, Result};

use crate::file::File;

/// The layout of a chunked dataset.
#[derive(Clone, Debug)]
pub(crate) struct ChunkedLayout {
    pub(crate) address: u64,
    /// Chunk shape in elements.
    pub(crate) chunk: Vec<u32>,
    /// The kind of index; a B-tree of version 1 if `None`.
    pub(crate) indexing: Option<ChunkIndexing>,
    /// Current and maximum extents.
    pub(crate) shape: Vec<u64>,
    pub(crate) max: Option<Vec<u64>>,
    /// Bytes of an element.
    pub(crate) element: usize,
    /// Whether chunks that reach beyond the extents are stored without filters.
    pub(crate) unfiltered_edges: bool,
}

impl ChunkedLayout {
    /// Returns whether a chunk, given by its first element, reaches beyond the extents of the dataset.
    fn is_partial(&self, offsets: &[u64]) -> bool {
        let mut along = offsets.iter().zip(&self.chunk).zip(&self.shape);
        along.any(|((start, n), extent)| start.saturating_add(u64::from(*n)) > *extent)
    }
}

/// The mask of a chunk for which every filter was skipped.
const ALL_FILTERS: u32 = u32::MAX;

/// The location of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkLocation {
    /// Row-major number of the chunk in the grid of the dataset.
    pub(crate) number: u64,
    /// Address relative to the signature.
    pub(crate) address: u64,
    pub(crate) len: u64,
    /// Filters that were skipped.
    pub(crate) mask: u32,
}

/// All chunks of a dataset that were written, by number.
#[derive(Debug, Default)]
pub(crate) struct ChunkIndex {
    chunks: Vec<ChunkLocation>,
}

impl ChunkIndex {
    pub(crate) fn get(&self, number: u64) -> Option<&ChunkLocation> {
        let at = self.chunks.binary_search_by_key(&number, |chunk| chunk.number).ok()?;
        self.chunks.get(at)
    }

    pub(crate) fn len(&self) -> u64 {
        self.chunks.len() as u64
    }

    /// Whether a chunk skips filters.
    pub(crate) fn has_masks(&self) -> bool {
        self.chunks.iter().any(|chunk| chunk.mask != 0)
    }

    /// Stored bytes of all chunks.
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.chunks.iter().map(|chunk| chunk.len).fold(0, u64::saturating_add)
    }

    /// Reads the index of a dataset whose chunks form `grid`.
    pub(crate) fn load(file: &File, layout: &ChunkedLayout, grid: &ChunkGrid) -> Result<Self> {
        if file.is_undefined(layout.address) || layout.shape.contains(&0) {
            return Ok(Self::default());
        }
        file.storage.renew();
        let raw =
            layout.chunk.iter().try_fold(layout.element as u64, |bytes, n| bytes.checked_mul(u64::from(*n)));
        let raw = raw.ok_or_else(|| Error::limit("a chunk", u64::MAX, file.limits.chunk_bytes))?;
        let mut chunks = Vec::new();
        for entry in entries(file, layout)? {
            if file.is_undefined(entry.address) {
                continue;
            }
            let coords: Vec<u64> =
                entry.offsets.iter().zip(&layout.chunk).map(|(at, n)| at / u64::from((*n).max(1))).collect();
            // Chunks outside the current extent remain in the file when a dataset shrinks.
            if !grid.contains(&coords) {
                continue;
            }
            // The size of a chunk without filters is not stored.
            let len = if entry.size == 0 { raw } else { entry.size };
            chunks.push(ChunkLocation {
                number: grid.linear(&coords),
                address: entry.address,
                len,
                mask: if layout.unfiltered_edges && layout.is_partial(&entry.offsets) {
                    ALL_FILTERS
                } else {
                    entry.filter_mask
                },
            });
        }
        chunks.sort_unstable_by_key(|chunk| chunk.number);
        if let Some(twice) = chunks.windows(2).find(|pair| pair[0].number == pair[1].number) {
            let detail = format!("duplicate chunk {}", twice[0].number);
            return Err(Error::corrupt("a chunk index", file.storage.describe(), layout.address, detail));
        }
        Ok(Self { chunks })
    }
}

/// The entries of an index of any kind.
fn entries(file: &File, layout: &ChunkedLayout) -> Result<Vec<ChunkEntry>> {
    let ChunkedLayout { address, chunk, shape, max, .. } = layout;
    let (storage, offset, length) = (&*file.storage, file.offset_size, file.length_size);
    let rank = u32::try_from(shape.len()).unwrap_or(u32::MAX);
    // Arrays number chunks by the maximum extents, where these are known.
    let fixed = max.as_ref().filter(|max| max.iter().all(|n| *n != u64::MAX)).unwrap_or(shape);
    let found = match &layout.indexing {
        None => btree_v1::collect_btree_v1_leaves_storage(
            storage,
            *address,
            offset,
            length,
            Some(rank),
            chunk,
            None,
        )
        .map(|leaves| leaves.into_iter().filter_map(of_leaf).collect()),
        Some(ChunkIndexing::SingleChunk { filtered_size, filters }) => {
            Ok(vec![chunk_index::single_chunk_entry(*address, *filtered_size, *filters, shape.len())])
        }
        Some(ChunkIndexing::Implicit) => chunk_index::collect_implicit_chunk_entries(
            *address,
            fixed,
            chunk,
            layout.element,
            None,
            hdf5_reader::Storage::len(storage),
        ),
        Some(ChunkIndexing::FixedArray { .. }) => fixed_array::collect_fixed_array_chunk_entries_storage(
            storage, *address, offset, length, fixed, chunk, None,
        ),
        Some(ChunkIndexing::ExtensibleArray { .. }) => {
            extensible_array::collect_extensible_array_chunk_entries_storage(
                storage,
                *address,
                offset,
                length,
                shape,
                max.as_deref(),
                chunk,
                None,
            )
        }
        Some(ChunkIndexing::BTreeV2) => chunk_index::collect_v2_chunk_entries_storage(
            storage, *address, offset, length, rank, chunk, None,
        ),
    };
    found.map_err(|e| file.error(e, "a chunk index"))
}

fn of_leaf((key, address): (BTreeV1Key, u64)) -> Option<ChunkEntry> {
    match key {
        BTreeV1Key::RawData { chunk_size, filter_mask, offsets } => {
            Some(ChunkEntry { address, size: chunk_size.into(), filter_mask, offsets })
        }
        BTreeV1Key::Group { .. } => None,
    }
}
