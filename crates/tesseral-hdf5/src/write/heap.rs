//! Global heaps: values of variable length in collections.
//!
//! ```text
//! GCOL · version · size │ object: number · count of references · size · bytes, padded │ … │ free space
//! ```

use tesseral_core::{Error, Result};

use super::header::Little;

/// Bytes after which a collection is closed: readers load collections as a whole.
const FULL: usize = 64 << 10;
/// The least size of a collection.
const MIN_SIZE: usize = 4096;
/// Bytes before the first object, and before the bytes of an object.
const HEAD: usize = 16;

/// Collections that are being filled. Addresses count from the first one.
#[derive(Debug, Default)]
pub(super) struct HeapBuilder {
    bytes: Vec<u8>,
    /// Start of the open collection.
    start: usize,
    /// Objects of the open collection.
    objects: u16,
}

/// A reference to a value: its length and its collection, relative to the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeapReference {
    count: u32,
    collection: u64,
    object: u16,
}

impl HeapReference {
    /// The stored reference, with the first collection at `base`.
    pub(super) fn bytes(self, base: u64) -> [u8; 16] {
        let mut out = [0; 16];
        out[..4].copy_from_slice(&self.count.to_le_bytes());
        if self.object > 0 {
            out[4..12].copy_from_slice(&(base.wrapping_add(self.collection)).to_le_bytes());
            out[12..14].copy_from_slice(&self.object.to_le_bytes());
        }
        out
    }
}

/// Moves stored references to where the first collection is.
pub(super) fn rebase(references: &mut [u8], base: u64) {
    for reference in references.as_chunks_mut::<16>().0 {
        let (head, object) = reference.split_at_mut(12);
        if let Some(address) = head.last_chunk_mut::<8>().filter(|_| object.iter().any(|byte| *byte != 0)) {
            *address = u64::from_le_bytes(*address).wrapping_add(base).to_le_bytes();
        }
    }
}

impl HeapBuilder {
    /// Adds a value of `count` elements. Values without bytes are not stored.
    pub(super) fn add(&mut self, value: &[u8], count: usize) -> Result<HeapReference> {
        let count = u32::try_from(count)
            .map_err(|_| Error::limit("a value of variable length", count as u64, u32::MAX.into()))?;
        if value.is_empty() {
            return Ok(HeapReference::default());
        }
        let len = HEAD + value.len().next_multiple_of(8);
        let used = self.bytes.len() - self.start;
        if self.objects > 0 && (self.objects == u16::MAX || used + len > FULL) {
            self.close();
        }
        if self.objects == 0 {
            self.bytes.extend(b"GCOL\x01\0\0\0");
            self.bytes.u64(0);
        }
        self.objects += 1;
        self.bytes.u16(self.objects);
        self.bytes.extend([0; 6]);
        self.bytes.u64(value.len() as u64);
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        Ok(HeapReference { count, collection: self.start as u64, object: self.objects })
    }

    fn close(&mut self) {
        let free = MIN_SIZE.saturating_sub(self.bytes.len() - self.start);
        // Object 0 is the free space, if it has room for a head.
        if free >= HEAD {
            self.bytes.u64(0);
            self.bytes.u64(free as u64);
            self.bytes.resize(self.bytes.len() + free - HEAD, 0);
        } else {
            self.bytes.resize(self.bytes.len() + free, 0);
        }
        let size = (self.bytes.len() - self.start) as u64;
        if let Some(field) = self.bytes.get_mut(self.start + 8..self.start + HEAD) {
            field.copy_from_slice(&size.to_le_bytes());
        }
        (self.start, self.objects) = (self.bytes.len(), 0);
    }

    /// The bytes of all collections, a multiple of eight.
    pub(super) fn finish(mut self) -> Vec<u8> {
        if self.objects > 0 {
            self.close();
        }
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use hdf5_reader::global_heap::GlobalHeapCollection;
    use hdf5_reader::{BytesStorage, Storage};

    use super::*;

    /// The parser of the crate reads every value back, for all sizes.
    #[test]
    fn collections_are_read_back() {
        let values: Vec<Vec<u8>> = (0..400_usize).map(|i| vec![i as u8; i * i % 3000]).collect();
        let values: Vec<Vec<u8>> = values.into_iter().chain([vec![7; 4056], vec![8; 200_000]]).collect();
        let mut heap = HeapBuilder::default();
        let references: Vec<_> = values.iter().map(|v| heap.add(v, v.len()).unwrap()).collect();
        let bytes = heap.finish();
        assert!(bytes.len().is_multiple_of(8));
        let storage = BytesStorage::new(bytes);
        let storage: &dyn Storage = &storage;
        for (value, reference) in values.iter().zip(references) {
            if value.is_empty() {
                assert_eq!(reference.bytes(77), [0; 16]);
                continue;
            }
            let collection =
                GlobalHeapCollection::parse_at_storage(storage, reference.collection, 8, 8).unwrap();
            assert_eq!(collection.get_object(reference.object).unwrap().data[..value.len()], value[..]);
            let mut moved = reference.bytes(0);
            rebase(&mut moved, 4096);
            assert_eq!(moved, reference.bytes(4096));
        }
    }
}
