//! The header that a filter prepends to the metadata.

use tesseral_core::{Error, Result};

/// A parser of the remaining bytes, with the name of the filter for errors.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkMetadataCursor<'a> {
    pub filter: &'static str,
    pub rest: &'a [u8],
}

impl<'a> ChunkMetadataCursor<'a> {
    pub(crate) fn new(filter: &'static str, rest: &'a [u8]) -> Self {
        Self { filter, rest }
    }

    pub(crate) fn bytes(&mut self, n: usize, what: &str) -> Result<&'a [u8]> {
        let Some((taken, rest)) = self.rest.split_at_checked(n) else {
            let detail = format!("truncated: {what} needs {n} bytes, {} left", self.rest.len());
            return Err(Error::codec(self.filter, detail));
        };
        self.rest = rest;
        Ok(taken)
    }

    pub(crate) fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N, what)?);
        Ok(array)
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// A 32-bit length.
    pub(crate) fn len(&mut self, what: &str) -> Result<usize> {
        let n = self.u32(what)?;
        usize::try_from(n).map_err(|_| self.error(format!("{what} {n} out of range")))
    }

    /// A 64-bit length.
    pub(crate) fn len64(&mut self, what: &str) -> Result<usize> {
        let n = self.array(what).map(u64::from_le_bytes)?;
        usize::try_from(n).map_err(|_| self.error(format!("{what} {n} out of range")))
    }

    /// A 32-bit count of items that take at least `each` of the remaining bytes.
    pub(crate) fn count(&mut self, each: usize, what: &str) -> Result<usize> {
        let n = self.len(what)?;
        if n.checked_mul(each).is_none_or(|bytes| bytes > self.rest.len()) {
            return Err(self.error(format!("{n} {what} do not fit in {} bytes", self.rest.len())));
        }
        Ok(n)
    }

    /// A big-endian number of `width` bytes.
    pub(crate) fn big_endian(&mut self, width: usize, what: &str) -> Result<usize> {
        let bytes = self.bytes(width, what)?;
        let n = bytes.iter().fold(0_u64, |n, b| n << 8 | u64::from(*b));
        usize::try_from(n).map_err(|_| self.error(format!("{what} {n} out of range")))
    }

    pub(crate) fn error(&self, detail: impl Into<String>) -> Error {
        Error::codec(self.filter, detail.into())
    }
}

/// Appends a 32-bit length.
pub(crate) fn put_len(filter: &'static str, len: usize, out: &mut Vec<u8>) -> Result<()> {
    let len = u32::try_from(len)
        .map_err(|_| Error::limit(format!("part of a {filter} filter"), len as u64, u64::from(u32::MAX)))?;
    out.extend_from_slice(&len.to_le_bytes());
    Ok(())
}

/// Appends the last `width` bytes of a big-endian number.
pub(crate) fn put_big_endian(n: usize, width: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&(n as u64).to_be_bytes()[8 - width..]);
}

/// The integer width that holds values up to `most`: 1, 2, 4 or 8 bytes.
pub(crate) fn integer_width(most: usize) -> u8 {
    match most {
        0..=0xFF => 1,
        0x100..=0xFFFF => 2,
        0x1_0000..=0xFFFF_FFFF => 4,
        _ => 8,
    }
}
