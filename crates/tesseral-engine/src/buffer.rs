//! Memory for results: aligned, in huge pages where it is large, used again where it was given back.
//!
//! Fresh memory costs more than the copy into it: the kernel clears every page on first touch. Buffers that are dropped
//! are kept, up to [`KEPT`] bytes in the whole process, and handed out again as they are; large ones only where the
//! memory limit leaves plenty of room.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use memmap2::{Advice, MmapMut};
use tesseral_core::{Error, Result};

/// From here on a buffer is a map of its own, so that it can be advised into huge pages: on first touch a 4 KiB page
/// costs several times the copy into it.
const MAP_FROM: usize = 1 << 20;
const HUGE_PAGE: usize = 2 << 20;
/// Smaller buffers are the allocator's business.
const KEEP_FROM: usize = 4 << 10;
/// Bytes that dropped buffers may keep in all.
const KEPT: usize = 256 << 20;

/// Dropped buffers, the latest last.
static SPARE: Mutex<Spare> = Mutex::new(Spare { buffers: Vec::new(), bytes: 0 });

struct Spare {
    buffers: Vec<Memory>,
    bytes: usize,
}

/// Bytes of a result. At least 16-byte aligned, so every element type can borrow from it.
pub struct Buffer {
    memory: Memory,
    start: usize,
    len: usize,
    keep: bool,
}

enum Memory {
    /// Units of 16 bytes give the alignment.
    Heap(Vec<u128>),
    Map(MmapMut),
}

impl Memory {
    fn len(&self) -> usize {
        match self {
            Self::Heap(units) => units.len() * 16,
            Self::Map(map) => map.len(),
        }
    }

    /// Room for `len` bytes, and a huge page to begin on where that is a map.
    fn fresh(len: usize) -> Result<Self> {
        if len < MAP_FROM {
            // Powers of two serve later buffers of about that size.
            let room = if len < KEEP_FROM { len } else { len.next_power_of_two() };
            return Ok(Self::Heap(vec![0; room.div_ceil(16)]));
        }
        let map = MmapMut::map_anon(len.next_multiple_of(HUGE_PAGE) + HUGE_PAGE)
            .map_err(|e| Error::io("allocate", format!("{len} bytes"), e))?;
        // Advice may be refused, by old kernels for instance; the memory serves all the same.
        let _ = map.advise(Advice::HugePage);
        Ok(Self::Map(map))
    }

    /// A dropped buffer with room for `len` bytes that is not much larger.
    fn spare(len: usize) -> Option<Self> {
        if !(KEEP_FROM..=KEPT).contains(&len) {
            return None;
        }
        let room = if len < MAP_FROM {
            len..=len.next_power_of_two()
        } else {
            len + HUGE_PAGE..=2 * len + 2 * HUGE_PAGE
        };
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        let found = spare.buffers.iter().rposition(|memory| room.contains(&memory.len()))?;
        let memory = spare.buffers.swap_remove(found);
        spare.bytes -= memory.len();
        Some(memory)
    }
}

impl Buffer {
    /// A buffer of `len` bytes. They are zero or what a former buffer held: whoever asks for one writes all of it. A
    /// large one is kept for others when dropped unless memory is `limited`.
    ///
    /// # Errors
    /// `Limit` when the system has no room for it.
    pub(crate) fn new(len: u64, limited: bool) -> Result<Self> {
        let too_large = || Error::limit("a result buffer", len, isize::MAX as u64);
        let len =
            usize::try_from(len).ok().filter(|n| *n <= isize::MAX as usize / 2).ok_or_else(too_large)?;
        let memory = Memory::spare(len).map_or_else(|| Memory::fresh(len), Ok)?;
        let start = match &memory {
            Memory::Heap(_) => 0,
            Memory::Map(map) => map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE),
        };
        let keep = !limited || matches!(memory, Memory::Heap(_));
        Ok(Self { memory, start, len, keep })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = std::mem::replace(&mut self.memory, Memory::Heap(Vec::new()));
        let bytes = memory.len();
        if !self.keep || !(KEEP_FROM..=KEPT).contains(&bytes) {
            return;
        }
        let mut spare = SPARE.lock().unwrap_or_else(PoisonError::into_inner);
        // What has not been wanted for longest makes room.
        while spare.bytes + bytes > KEPT {
            let oldest = spare.buffers.remove(0);
            spare.bytes -= oldest.len();
        }
        spare.bytes += bytes;
        spare.buffers.push(memory);
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.memory {
            Memory::Heap(units) => bytemuck::cast_slice(units),
            Memory::Map(map) => map,
        };
        &all[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        let all: &mut [u8] = match &mut self.memory {
            Memory::Heap(units) => bytemuck::cast_slice_mut(units),
            Memory::Map(map) => map,
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
    fn what_is_kept_is_bounded() {
        let held: Vec<Buffer> = (0..400).map(|_| Buffer::new(900_000, true).unwrap()).collect();
        drop(held);
        drop(Buffer::new(KEPT as u64 * 2, false).unwrap());
        drop(Buffer::new(KEPT as u64 / 2, false).unwrap());
        let spare = SPARE.lock().unwrap();
        assert!(spare.bytes <= KEPT);
        assert_eq!(spare.bytes, spare.buffers.iter().map(Memory::len).sum::<usize>());
    }
}
