//! Cursor over little-endian numbers. Errors name the field and its offset.

use tesseral_core::{Error, Result};

/// Bytes of a file being parsed, with their origin.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    object: &'a str,
    bytes: &'a [u8],
    at: u64,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor over bytes at offset `at` of `object`.
    pub fn new(object: &'a str, bytes: &'a [u8], at: u64) -> Self {
        Self { object, bytes, at }
    }

    /// Creates a cursor over other bytes of the same file.
    pub fn over(&self, bytes: &'a [u8], at: u64) -> Self {
        Self { object: self.object, bytes, at }
    }

    /// Offset of the next byte in the file.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
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

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    /// Reads a little-endian `u16`.
    ///
    /// # Errors
    /// `Corrupt` at the end of the bytes.
    pub fn u16(&mut self, what: &str) -> Result<u16> {
        self.array(what).map(u16::from_le_bytes)
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

    /// Reads bytes that must equal `magic`.
    ///
    /// # Errors
    /// `Corrupt` if they differ.
    pub fn magic(&mut self, magic: &[u8; 4], what: &str) -> Result<()> {
        let found: [u8; 4] = self.array(what)?;
        if &found == magic {
            return Ok(());
        }
        let detail =
            format!("expected the magic \"{}\", found \"{}\"", magic.escape_ascii(), found.escape_ascii());
        Err(self.corrupt_at(self.at - 4, what, detail))
    }

    /// Creates an error about `what` at the next byte.
    pub fn corrupt(&self, what: &str, detail: impl Into<String>) -> Error {
        self.corrupt_at(self.at, what, detail)
    }

    /// Creates an error about `what` at an offset of the file.
    pub fn corrupt_at(&self, offset: u64, what: &str, detail: impl Into<String>) -> Error {
        Error::corrupt(what, self.object, offset, detail)
    }
}
