//! Shards that are being written. Chunks arrive in any order and are stored in the order of the grid, so that the bytes of a
//! shard do not depend on it.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use tesseral_codec::checksum::Checksum;
use tesseral_core::{ArraySchema, ChunkGrid, Coords, Error, Result, alloc};
use tesseral_store::{Overwrite, Staged, Store};

/// Extents of shards in cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ShardShape {
    /// Of all dimensions, for arrays with this many; others have no shards.
    List(Vec<u64>),
    /// Of some dimensions, for arrays with one of them. Others have one chunk per shard.
    Named(Vec<(String, u64)>),
    /// Each chunk is a separate object.
    None,
}

impl FromStr for ShardShape {
    type Err = Error;

    /// Parses `100,200`, `time=100,lat=200` or `none`.
    fn from_str(text: &str) -> Result<Self> {
        let invalid = || {
            Error::invalid(format!("invalid shard shape {text:?}")).hint("for example 100,200 or time=100")
        };
        let extent = |text: &str| text.trim().parse::<u64>().ok().filter(|n| *n > 0).ok_or_else(invalid);
        if text.trim() == "none" {
            return Ok(Self::None);
        }
        if !text.contains('=') {
            return text.split(',').map(extent).collect::<Result<_>>().map(Self::List);
        }
        let named = |part: &str| {
            let (name, n) = part.split_once('=').ok_or_else(invalid)?;
            Ok((name.trim().to_owned(), extent(n)?))
        };
        text.split(',').map(named).collect::<Result<_>>().map(Self::Named)
    }
}

impl ShardShape {
    /// The shape of an array's shards: whole chunks. `None` if it has none.
    pub(super) fn resolve(&self, schema: &ArraySchema, chunk: &[u64]) -> Result<Option<Coords>> {
        let asked: Vec<u64> = match self {
            Self::List(extents) if extents.len() == chunk.len() => extents.clone(),
            Self::List(_) | Self::None => return Ok(None),
            Self::Named(named) => {
                let find = |name: &str| named.iter().find(|(known, _)| known == name).map(|(_, n)| *n);
                let found: Vec<Option<u64>> = schema.dims.iter().map(|dim| find(&dim.name)).collect();
                if found.iter().all(Option::is_none) {
                    return Ok(None);
                }
                found.iter().zip(chunk).map(|(n, chunk)| n.unwrap_or(*chunk)).collect()
            }
        };
        let whole = |(asked, chunk): (&u64, &u64)| asked.div_ceil(*chunk).checked_mul(*chunk);
        let shape: Option<Coords> = asked.iter().zip(chunk).map(whole).collect();
        shape.map(Some).ok_or_else(|| Error::limit("the extent of a shard", u64::MAX, u64::MAX))
    }
}

/// Location of a chunk of an unfinished shard.
#[derive(Debug)]
enum HeldChunk {
    Memory(Vec<u8>),
    /// In the spool.
    Spooled {
        offset: u64,
        len: u64,
    },
}

/// A shard of which chunks are missing.
#[derive(Debug)]
struct Unfinished {
    chunks: HashMap<u64, HeldChunk>,
    /// Number of its chunks inside the array.
    expected: u64,
}

#[derive(Debug, Default)]
struct ShardsState {
    shards: HashMap<u64, Unfinished>,
    /// Bytes in memory.
    bytes: u64,
    /// Holds what exceeds the memory; never published.
    spool: Option<Box<dyn Staged>>,
    spooled: u64,
}

/// The shards of an array.
#[derive(Debug)]
pub(super) struct ShardedWrite {
    pub shape: Coords,
    /// The shards.
    grid: ChunkGrid,
    /// Chunks along each dimension of a shard, and of the array.
    counts: Coords,
    total: Coords,
    /// Most bytes in memory.
    memory: u64,
    state: Mutex<ShardsState>,
}

/// A complete shard.
#[derive(Debug)]
pub(super) struct Shard {
    pub coords: Coords,
    chunks: HashMap<u64, HeldChunk>,
    entries: u64,
}

impl ShardedWrite {
    pub(super) fn new(shape: Coords, array: &[u64], chunks: &ChunkGrid, memory: u64) -> Result<Self> {
        let grid = ChunkGrid::new(array, &shape)?;
        let counts: Coords = shape.iter().zip(chunks.chunk_shape()).map(|(n, chunk)| n / chunk).collect();
        let total = chunks.counts().iter().copied().collect();
        Ok(Self { shape, grid, counts, total, memory, state: Mutex::default() })
    }

    /// Adds a chunk; returns its shard when it is complete.
    pub(super) fn add(
        &self,
        coords: &[u64],
        bytes: &[u8],
        store: &dyn Store,
        spool: &str,
    ) -> Result<Option<Shard>> {
        let shard: Coords = coords.iter().zip(&self.counts).map(|(c, n)| c / n).collect();
        let inside = coords.iter().zip(&self.counts).fold(0, |linear, (c, n)| linear * n + c % n);
        let number = self.grid.linear(&shard);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let len = bytes.len() as u64;
        let held = if state.bytes.saturating_add(len) <= self.memory {
            let mut copy = alloc::with_capacity("a chunk", bytes.len())?;
            copy.extend_from_slice(bytes);
            state.bytes += len;
            HeldChunk::Memory(copy)
        } else {
            let offset = state.spooled;
            if state.spool.is_none() {
                state.spool = Some(store.stage(spool, Overwrite::Replace)?);
            }
            if let Some(spool) = &state.spool {
                spool.write_at(offset, bytes)?;
            }
            state.spooled += len;
            HeldChunk::Spooled { offset, len }
        };
        let entry = state.shards.entry(number).or_insert_with(|| Unfinished {
            chunks: HashMap::new(),
            expected: shard
                .iter()
                .zip(&self.counts)
                .zip(&self.total)
                .map(|((at, n), total)| (at * n + n).min(*total) - at * n)
                .product(),
        });
        entry.chunks.insert(inside, held);
        if (entry.chunks.len() as u64) < entry.expected {
            return Ok(None);
        }
        let done = state.shards.remove(&number);
        Ok(done.map(|done| {
            let entries = self.counts.iter().product();
            Shard { coords: shard, chunks: done.chunks, entries }
        }))
    }

    /// Writes a complete shard: its chunks, then the index and its checksum.
    pub(super) fn store(&self, shard: Shard, object: &str, store: &dyn Store) -> Result<()> {
        let staged = store.stage(object, Overwrite::Replace)?;
        let len = usize::try_from(shard.entries.saturating_mul(16)).unwrap_or(usize::MAX);
        let mut index: Vec<u8> = alloc::with_capacity("a shard index", len.saturating_add(4))?;
        index.resize(len, 0xff);
        let mut chunks = shard.chunks;
        let mut at = 0_u64;
        for (number, entry) in (0_u64..).zip(index.as_chunks_mut::<16>().0) {
            let Some(held) = chunks.remove(&number) else { continue };
            let len = match held {
                HeldChunk::Memory(bytes) => {
                    staged.write_at(at, &bytes)?;
                    let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                    state.bytes = state.bytes.saturating_sub(bytes.len() as u64);
                    bytes.len() as u64
                }
                HeldChunk::Spooled { offset, len } => {
                    let size = usize::try_from(len).unwrap_or(usize::MAX);
                    let mut bytes = alloc::zeroed::<u8>("a chunk", size)?;
                    let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                    let spool = state.spool.as_ref().ok_or_else(|| Error::internal("no spool of chunks"))?;
                    spool.read_at(offset, &mut bytes)?;
                    drop(state);
                    staged.write_at(at, &bytes)?;
                    len
                }
            };
            entry[..8].copy_from_slice(&at.to_le_bytes());
            entry[8..].copy_from_slice(&len.to_le_bytes());
            at += len;
        }
        let sum = Checksum::Crc32c.compute(&index);
        index.extend(sum.to_le_bytes());
        staged.write_at(at, &index)?;
        staged.publish()
    }
}

#[cfg(test)]
mod tests {
    use tesseral_core::DType;
    use tesseral_store::{MemoryStore, StoreExt};

    use super::*;

    #[test]
    fn shapes_are_parsed_and_are_whole_chunks() {
        let mut schema = ArraySchema::dense("a", DType::Int8, &[9, 9], &[2, 3]);
        schema.dims[0].name = "time".to_owned();
        let resolve = |text: &str| text.parse::<ShardShape>().unwrap().resolve(&schema, &[2, 3]).unwrap();
        assert_eq!(resolve("4,4").unwrap().as_slice(), [4, 6]);
        assert_eq!(resolve("time=5").unwrap().as_slice(), [6, 3]);
        assert_eq!((resolve("4"), resolve("x=4"), resolve("none")), (None, None, None));
        for bad in ["", "0", "time=0", "time=1,2", "x"] {
            assert!(bad.parse::<ShardShape>().is_err(), "{bad}");
        }
    }

    #[test]
    fn bytes_depend_neither_on_the_order_nor_on_the_memory() {
        let chunks = ChunkGrid::new(&[5, 4], &[2, 2]).unwrap();
        let write = |order: &[u64], memory: u64| {
            let store = MemoryStore::new("s");
            let shards = ShardedWrite::new(Coords::from_slice(&[4, 4]), &[5, 4], &chunks, memory).unwrap();
            for number in order {
                let coords = chunks.coords(*number);
                let bytes = vec![u8::try_from(*number).unwrap(); 3];
                if let Some(done) = shards.add(&coords, &bytes, &store, "spool").unwrap() {
                    let object = format!("{}", done.coords[0]);
                    shards.store(done, &object, &store).unwrap();
                }
            }
            ["0", "1"].map(|object| store.read_all(object, 1 << 20).unwrap())
        };
        let expected = write(&[0, 1, 2, 3, 4, 5], 1 << 20);
        assert_eq!(expected[0].len(), 12 + 64 + 4);
        assert_eq!(&expected[0][..12], [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
        assert_eq!(&expected[1][..6], [4, 4, 4, 5, 5, 5]);
        assert_eq!(expected[1][6 + 32..6 + 64], [0xff; 32]);
        for memory in [0, 4, 1000] {
            assert_eq!(write(&[5, 3, 1, 4, 0, 2], memory), expected);
        }
    }
}
