//! Reading numbers in a row, where a short or odd one says which it was.

use tesseral_core::{Error, Result};

/// Bytes of a file being parsed, with the place they came from.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    object: &'a str,
    bytes: &'a [u8],
    at: u64,
}

impl<'a> Cursor<'a> {
    /// Bytes that begin at offset `at` of `object`.
    pub fn new(object: &'a str, bytes: &'a [u8], at: u64) -> Self {
        Self { object, bytes, at }
    }

    /// Other bytes of the same file.
    pub fn over(&self, bytes: &'a [u8], at: u64) -> Self {
        Self { object: self.object, bytes, at }
    }

    /// Offset of the next byte in the file.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// The bytes not yet read.
    pub fn rest(&self) -> &'a [u8] {
        self.bytes
    }

    /// The next `n` bytes, which are `what`.
    ///
    /// # Errors
    /// `Corrupt` when there are fewer.
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

    /// The next two bytes as a number.
    ///
    /// # Errors
    /// `Corrupt` at the end.
    pub fn u16(&mut self, what: &str) -> Result<u16> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// The next four bytes as a number.
    ///
    /// # Errors
    /// `Corrupt` at the end.
    pub fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// The next eight bytes as a number.
    ///
    /// # Errors
    /// `Corrupt` at the end.
    pub fn u64(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// The next bytes, which must be `magic`.
    ///
    /// # Errors
    /// `Corrupt` when they are others.
    pub fn magic(&mut self, magic: &[u8; 4], what: &str) -> Result<()> {
        let found: [u8; 4] = self.array(what)?;
        if &found == magic {
            return Ok(());
        }
        let detail =
            format!("expected the magic \"{}\", found \"{}\"", magic.escape_ascii(), found.escape_ascii());
        Err(self.corrupt_at(self.at - 4, what, detail))
    }

    /// An error about `what` at the next byte.
    pub fn corrupt(&self, what: &str, detail: impl Into<String>) -> Error {
        self.corrupt_at(self.at, what, detail)
    }

    /// An error about `what` at an offset of the file.
    pub fn corrupt_at(&self, offset: u64, what: &str, detail: impl Into<String>) -> Error {
        Error::corrupt(what, self.object, offset, detail)
    }
}
