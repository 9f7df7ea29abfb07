//! Memory for results: aligned, in huge pages where it is large, never cleared by us first.

use std::fmt;
use std::ops::{Deref, DerefMut};

use memmap2::{Advice, MmapMut};
use tesseral_core::{Error, Result};

/// From here on a buffer is a map of its own, so that it can be advised into huge pages: on first touch a 4 KiB page
/// costs several times the copy into it.
const MAP_FROM: usize = 1 << 20;
const HUGE_PAGE: usize = 2 << 20;

/// Bytes of a result. At least 16-byte aligned, so every element type can borrow from it.
pub struct Buffer {
    memory: Memory,
    start: usize,
    len: usize,
}

enum Memory {
    /// Units of 16 bytes give the alignment.
    Heap(Vec<u128>),
    Map(MmapMut),
}

impl Buffer {
    /// A buffer of `len` zero bytes. Large ones come from the kernel already zero, page by page when first touched.
    ///
    /// # Errors
    /// `Limit` when the system has no room for it.
    pub fn new(len: u64) -> Result<Self> {
        let too_large = || Error::limit("a result buffer", len, isize::MAX as u64);
        let bytes =
            usize::try_from(len).ok().filter(|n| *n <= isize::MAX as usize / 2).ok_or_else(too_large)?;
        if bytes < MAP_FROM {
            return Ok(Self { memory: Memory::Heap(vec![0; bytes.div_ceil(16)]), start: 0, len: bytes });
        }
        // Room to begin on a huge page.
        let map = MmapMut::map_anon(bytes + HUGE_PAGE)
            .map_err(|e| Error::io("allocate", format!("{len} bytes"), e))?;
        // Advice may be refused, by old kernels for instance; the memory serves all the same.
        let _ = map.advise(Advice::HugePage);
        let start = map.as_ptr().align_offset(HUGE_PAGE).min(HUGE_PAGE);
        Ok(Self { memory: Memory::Map(map), start, len: bytes })
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
            let mut buffer = Buffer::new(len).unwrap();
            assert_eq!(buffer.len() as u64, len);
            assert_eq!(buffer.as_ptr().align_offset(16), 0, "{len}");
            if let Some(last) = buffer.last_mut() {
                *last = 1;
            }
        }
        assert!(Buffer::new(u64::MAX).is_err());
    }
}
