//! Cursor over little-endian numbers. Errors name the field and its offset.

use tesseral_core::{Error, Result};

/// Unfiltered bytes of a structure, with their object. Offsets are relative to the structure.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    object: &'a str,
    bytes: &'a [u8],
    at: u64,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor over bytes of `object`.
    pub fn new(object: &'a str, bytes: &'a [u8]) -> Self {
        Self { object, bytes, at: 0 }
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// Offset of the next byte.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Reads `n` bytes of field `what`.
    ///
    /// # Errors
    /// `Corrupt` if fewer bytes are left.
    pub fn take(&mut self, n: usize, what: &str) -> Result<&'a [u8]> {
        match self.bytes.split_at_checked(n) {
            Some((taken, rest)) => {
                self.bytes = rest;
                self.at += n as u64;
                Ok(taken)
            }
            None => Err(Error::truncated(what, self.object, self.at, n as u64, self.bytes.len() as u64)),
        }
    }

    /// As [`take`](Self::take), with a stored length.
    ///
    /// # Errors
    /// `Corrupt` if fewer bytes are left.
    pub fn take64(&mut self, n: u64, what: &str) -> Result<&'a [u8]> {
        match usize::try_from(n) {
            Ok(n) => self.take(n, what),
            Err(_) => Err(Error::truncated(what, self.object, self.at, n, self.bytes.len() as u64)),
        }
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// `Corrupt` at the end of the bytes.
    pub fn u8(&mut self, what: &str) -> Result<u8> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    /// Reads a Boolean byte.
    ///
    /// # Errors
    /// `Corrupt` at the end of the bytes, or for values other than 0 and 1.
    pub fn flag(&mut self, what: &str) -> Result<bool> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.corrupt(what, format!("invalid Boolean {other}"))),
        }
    }

    /// Reads a little-endian `u32`.
    ///
    /// # Errors
    /// `Corrupt` at the end of the bytes.
    pub fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Reads a little-endian `u64`.
    ///
    /// # Errors
    /// `Corrupt` at the end of the bytes.
    pub fn u64(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Reads a count of items that take at least `each` bytes of the unread bytes.
    ///
    /// # Errors
    /// `Corrupt` if they do not fit.
    pub fn count(&mut self, count: u64, each: usize, what: &str) -> Result<usize> {
        let fits = usize::try_from(count)
            .ok()
            .filter(|n| n.checked_mul(each).is_some_and(|bytes| bytes <= self.bytes.len()));
        fits.ok_or_else(|| {
            self.corrupt(what, format!("{count} items do not fit in {} bytes", self.bytes.len()))
        })
    }

    /// Reads `u64` values.
    ///
    /// # Errors
    /// `Corrupt` if fewer bytes are left.
    pub fn u64s(&mut self, count: u64, what: &str) -> Result<Vec<u64>> {
        let count = self.count(count, 8, what)?;
        let bytes = self.take(count * 8, what)?;
        Ok(bytes.chunks_exact(8).map(le64).collect())
    }

    /// Reads text with a 32-bit length prefix.
    ///
    /// # Errors
    /// `Corrupt` if truncated or not UTF-8.
    pub fn text32(&mut self, what: &str) -> Result<String> {
        let len = self.u32(what)?;
        self.text(u64::from(len), what)
    }

    /// Reads text with a 64-bit length prefix.
    ///
    /// # Errors
    /// `Corrupt` if truncated or not UTF-8.
    pub fn text64(&mut self, what: &str) -> Result<String> {
        let len = self.u64(what)?;
        self.text(len, what)
    }

    fn text(&mut self, len: u64, what: &str) -> Result<String> {
        let bytes = self.take64(len, what)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.corrupt(what, "invalid UTF-8"))
    }

    /// Rejects bytes after the structure.
    ///
    /// # Errors
    /// `Corrupt` if there are any.
    pub fn finish(&self, what: &str) -> Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        Err(self.corrupt(what, format!("{} unexpected bytes at the end", self.bytes.len())))
    }

    /// Creates an error about `what` at the next byte.
    pub fn corrupt(&self, what: &str, detail: impl Into<String>) -> Error {
        Error::corrupt(what, self.object, self.at, detail)
    }
}

/// Parses a little-endian number of up to eight bytes.
pub(crate) fn le64(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    for (to, from) in wide.iter_mut().zip(bytes) {
        *to = *from;
    }
    u64::from_le_bytes(wide)
}

/// Appends text with a 32-bit length prefix.
///
/// # Errors
/// `Limit` if the length exceeds `u32`.
pub fn put_text32(text: &str, out: &mut Vec<u8>) -> Result<()> {
    put_u32(text.len() as u64, "a name", out)?;
    out.extend_from_slice(text.as_bytes());
    Ok(())
}

/// Appends text with a 64-bit length prefix.
pub fn put_text64(text: &str, out: &mut Vec<u8>) {
    put_bytes64(text.as_bytes(), out);
}

/// Appends bytes with a 64-bit length prefix.
pub fn put_bytes64(bytes: &[u8], out: &mut Vec<u8>) {
    put_u64(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Appends a number as `u32`.
///
/// # Errors
/// `Limit` if it exceeds `u32`.
pub fn put_u32(n: u64, what: &str, out: &mut Vec<u8>) -> Result<()> {
    let n = u32::try_from(n).map_err(|_| Error::limit(what, n, u64::from(u32::MAX)))?;
    out.extend_from_slice(&n.to_le_bytes());
    Ok(())
}

/// Appends a number as `u64`.
pub fn put_u64(n: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(&n.to_le_bytes());
}
