//! Buffers of results: aligned, in huge pages if large, and reused.
//!
//! New memory costs more than the copy into it: the kernel zeroes every page on first access. Dropped buffers are retained, up
//! to [`KEPT`] bytes per process, and reused without clearing; large ones only if they are small compared to the memory limit.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use memmap2::{Advice, MmapMut};
use tesseral_core::{Error, Result};

/// Minimum size in bytes of buffers with their own map, which can use huge pages: on first access a 4 KiB page costs several
/// times the copy into it.
const MAP_FROM: usize = 1 << 20;
const HUGE_PAGE: usize = 2 << 20;
/// Smaller buffers use the allocator.
const KEEP_FROM: usize = 4 << 10;
/// Maximum total size of retained buffers in bytes.
const KEPT: usize = 256 << 20;

/// Retained buffers, latest last.
static SPARE: Mutex<BufferCache> = Mutex::new(BufferCache { buffers: Vec::new(), bytes: 0 });

struct BufferCache {
    buffers: Vec<BufferMemory>,
    bytes: usize,
}

/// Bytes of a result, aligned to at least 16 bytes, so that every element type can borrow from it.
pub struct Buffer {
    memory: BufferMemory,
    start: usize,
    len: usize,
    keep: bool,
}

enum BufferMemory {
    /// Units of 16 bytes provide the alignment.
    Heap(Vec<u128>),
    Map(MmapMut),
}

impl BufferMemory {
    fn len(&self) -> usize {
        match self {
            Self::Heap(units) => units.len() * 16,
            Self::Map(map) => map.len(),
        }
    }

    /// Capacity for `len` bytes, aligned to a huge page if it is a map.
    fn fresh(len: usize) -> Result<Self> {
        if len < MAP_FROM {
            // Powers of two fit later buffers of similar size.
            let room = if len < KEEP_FROM { len } else { len.next_power_of_two() };
            return Ok(Self::Heap(vec![0; room.div_ceil(16)]));
        }
        let map = MmapMut::map_anon(len.next_multiple_of(HUGE_PAGE) + HUGE_PAGE)
            .map_err(|e| Error::io("allocate", format!("{len} bytes"), e))?;
        // Old kernels can reject the advice; the memory is usable anyway.
        let _ = map.advise(Advice::HugePage);
        Ok(Self::Map(map))
    }

    /// Takes a retained buffer with capacity for `len` bytes that is not much larger.
    fn cached(len: usize) -> Option<Self> {
        if !(KEEP_FROM..=KEPT).contains(&len) {
            return None;
        }
        let room = if len < MAP_FROM {
            len..=len.next_power_of_two()
        } else {
            len + HUGE_PAGE..=2 * len + 2 * HUGE_PAGE
        };
        let mut cached = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let found = cached.buffers.iter().rposition(|memory| room.contains(&memory.len()))?;
        let memory = cached.buffers.swap_remove(found);
        cached.bytes -= memory.len();
        Some(memory)
    }
}

impl Buffer {
    /// Returns a buffer of `len` bytes with unspecified content: the caller must write all of it. A large one is retained when
    /// dropped, unless memory is `limited`.
    ///
    /// # Errors
    /// `Limit` if the allocation fails.
    pub fn new(len: u64, limited: bool) -> Result<Self> {
        let too_large = || Error::limit("a result buffer", len, isize::MAX as u64);
        let len =
            usize::try_from(len).ok().filter(|n| *n <= isize::MAX as usize / 2).ok_or_else(too_large)?;
        let memory = BufferMemory::cached(len).map_or_else(|| BufferMemory::fresh(len), Ok)?;
        let start = match &memory {
            BufferMemory::Heap(_) => 0,
            BufferMemory::Map(map) => map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE),
        };
        let keep = !limited || matches!(memory, BufferMemory::Heap(_));
        Ok(Self { memory, start, len, keep })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = std::mem::replace(&mut self.memory, BufferMemory::Heap(Vec::new()));
        let bytes = memory.len();
        if !self.keep || !(KEEP_FROM..=KEPT).contains(&bytes) {
            return;
        }
        let mut cached = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        // The least recently retained buffer is dropped.
        while cached.bytes + bytes > KEPT {
            let oldest = cached.buffers.remove(0);
            cached.bytes -= oldest.len();
        }
        cached.bytes += bytes;
        cached.buffers.push(memory);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.memory {
            BufferMemory::Heap(units) => bytemuck::cast_slice(units),
            BufferMemory::Map(map) => map,
        };
        &all[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let all: &mut [u8] = match &mut self.memory {
            BufferMemory::Heap(units) => bytemuck::cast_slice_mut(units),
            BufferMemory::Map(map) => map,
        };
        &mut all[self.start..self.start + self.len]
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aligned_at_every_size() {
        for len in [0, 1, 15, 1000, MAP_FROM as u64 - 1, MAP_FROM as u64, 5_000_001] {
            let mut buffer = Buffer::new(len, false).unwrap();
            assert_eq!(buffer.len() as u64, len);
            assert_eq!(buffer.as_ptr().align_offset(16), 0, "{len}");
            if let Some(last) = buffer.last_mut() {
                *last = 1;
            }
        }
        assert!(Buffer::new(u64::MAX, false).is_err());
    }

    #[test]
    fn the_size_of_retained_buffers_is_bounded() {
        let held: Vec<Buffer> = (0..400).map(|_| Buffer::new(900_000, true).unwrap()).collect();
        drop(held);
        drop(Buffer::new(KEPT as u64 * 2, false).unwrap());
        drop(Buffer::new(KEPT as u64 / 2, false).unwrap());
        let cached = SPARE.lock().unwrap();
        assert!(cached.bytes <= KEPT);
        assert_eq!(cached.bytes, cached.buffers.iter().map(BufferMemory::len).sum::<usize>());
    }
}
