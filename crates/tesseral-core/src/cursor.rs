//! A cursor over the bytes of a binary structure. Every read names what is read, so that errors name the field that was short.

use crate::{Error, Result};

/// The source of the bytes, for errors.
#[derive(Clone, Copy, Debug)]
enum BytesOrigin<'a> {
    /// An object of a store: errors are `Corrupt`, with the offset.
    Object(&'a str),
    /// Input of a codec: errors are `Codec`.
    Codec(&'static str),
}

/// Unread bytes, with their origin. Numbers are little-endian, unless stated otherwise.
///
/// ```
/// use tesseral_core::Cursor;
///
/// let bytes = [2, 0, 0, 0, b'o', b'k', 9];
/// let mut cursor = Cursor::new("demo.bin", &bytes);
/// assert_eq!(cursor.text32("name")?, "ok");
/// let error = cursor.u32("checksum").unwrap_err();
/// assert!(error.to_string().contains("checksum"));
/// # Ok::<(), tesseral_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'a> {
    origin: BytesOrigin<'a>,
    bytes: &'a [u8],
    at: u64,
}

impl<'a> Cursor<'a> {
    /// Creates a cursor over bytes of an object. Offsets in errors count from the first of them.
    pub fn new(object: &'a str, bytes: &'a [u8]) -> Self {
        Self::at_offset(object, bytes, 0)
    }

    /// Creates a cursor over bytes at an offset of an object.
    pub fn at_offset(object: &'a str, bytes: &'a [u8], at: u64) -> Self {
        Self { origin: BytesOrigin::Object(object), bytes, at }
    }

    /// Creates a cursor over the input of a codec.
    pub fn codec(codec: &'static str, bytes: &'a [u8]) -> Self {
        Self { origin: BytesOrigin::Codec(codec), bytes, at: 0 }
    }

    /// Creates a cursor over other bytes of the same origin.
    pub fn over(&self, bytes: &'a [u8], at: u64) -> Self {
        Self { origin: self.origin, bytes, at }
    }

    /// Offset of the next byte.
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
    /// `Corrupt` or `Codec` if fewer bytes are left.
    #[inline]
    pub fn take(&mut self, n: usize, what: &str) -> Result<&'a [u8]> {
        match self.bytes.split_at_checked(n) {
            Some((taken, rest)) => {
                self.bytes = rest;
                self.at += n as u64;
                Ok(taken)
            }
            None => Err(self.truncated(n as u64, what)),
        }
    }

    /// As [`take`](Self::take), with a stored length.
    ///
    /// # Errors
    /// `Corrupt` or `Codec` if fewer bytes are left.
    pub fn take64(&mut self, n: u64, what: &str) -> Result<&'a [u8]> {
        match usize::try_from(n) {
            Ok(n) => self.take(n, what),
            Err(_) => Err(self.truncated(n, what)),
        }
    }

    /// Reads an array of bytes.
    ///
    /// # Errors
    /// `Corrupt` or `Codec` if fewer bytes are left.
    #[inline]
    pub fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N, what)?);
        Ok(array)
    }

    /// Reads one byte.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn u8(&mut self, what: &str) -> Result<u8> {
        self.array::<1>(what).map(|[byte]| byte)
    }

    /// Reads a Boolean byte.
    ///
    /// # Errors
    /// As [`take`](Self::take), and for values other than 0 and 1.
    pub fn flag(&mut self, what: &str) -> Result<bool> {
        match self.u8(what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(self.corrupt(what, format!("invalid Boolean {other}"))),
        }
    }

    /// Reads a `u16`.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn u16(&mut self, what: &str) -> Result<u16> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// Reads a `u32`.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn u32(&mut self, what: &str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Reads an `i32`.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn i32(&mut self, what: &str) -> Result<i32> {
        self.array(what).map(i32::from_le_bytes)
    }

    /// Reads a `u64`.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn u64(&mut self, what: &str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Reads an `f64`.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn f64(&mut self, what: &str) -> Result<f64> {
        self.array(what).map(f64::from_le_bytes)
    }

    /// Reads a big-endian number of up to eight bytes.
    ///
    /// # Errors
    /// As [`take`](Self::take), and if the number exceeds `usize`.
    #[inline]
    pub fn big_endian(&mut self, width: usize, what: &str) -> Result<usize> {
        let bytes = self.take(width, what)?;
        self.size(bytes.iter().fold(0, |n, byte| n << 8 | u64::from(*byte)), what)
    }

    /// Reads a little-endian number of up to eight bytes.
    ///
    /// # Errors
    /// As [`take`](Self::take), and if the number exceeds `usize`.
    pub fn little_endian(&mut self, width: usize, what: &str) -> Result<usize> {
        let bytes = self.take(width, what)?;
        self.size(bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte)), what)
    }

    fn size(&self, n: u64, what: &str) -> Result<usize> {
        usize::try_from(n).map_err(|_| self.corrupt(what, format!("{n} is out of range")))
    }

    /// Reads a 32-bit length.
    ///
    /// # Errors
    /// As [`take`](Self::take), and if the length exceeds `usize`.
    pub fn len32(&mut self, what: &str) -> Result<usize> {
        let n = self.u32(what)?;
        self.size(n.into(), what)
    }

    /// Reads a 64-bit length.
    ///
    /// # Errors
    /// As [`take`](Self::take), and if the length exceeds `usize`.
    pub fn len64(&mut self, what: &str) -> Result<usize> {
        let n = self.u64(what)?;
        self.size(n, what)
    }

    /// Checks that the unread bytes can hold a number of items of at least `each` bytes.
    ///
    /// # Errors
    /// `Corrupt` or `Codec` if they cannot.
    pub fn count(&self, count: u64, each: usize, what: &str) -> Result<usize> {
        let fits = usize::try_from(count)
            .ok()
            .filter(|n| n.checked_mul(each).is_some_and(|bytes| bytes <= self.bytes.len()));
        fits.ok_or_else(|| {
            self.corrupt(what, format!("{count} items do not fit in {} bytes", self.bytes.len()))
        })
    }

    /// Reads a 32-bit [count](Self::count).
    ///
    /// # Errors
    /// As [`take`](Self::take) and [`count`](Self::count).
    pub fn count32(&mut self, each: usize, what: &str) -> Result<usize> {
        let count = self.u32(what)?;
        self.count(count.into(), each, what)
    }

    /// Reads a 64-bit [count](Self::count).
    ///
    /// # Errors
    /// As [`take`](Self::take) and [`count`](Self::count).
    pub fn count64(&mut self, each: usize, what: &str) -> Result<usize> {
        let count = self.u64(what)?;
        self.count(count, each, what)
    }

    /// Reads `u64` values.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn u64s(&mut self, count: u64, what: &str) -> Result<Vec<u64>> {
        let count = self.count(count, 8, what)?;
        let bytes = self.take(count * 8, what)?;
        Ok(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect())
    }

    /// Reads text with a 32-bit length prefix.
    ///
    /// # Errors
    /// As [`take`](Self::take), and for invalid UTF-8.
    pub fn text32(&mut self, what: &str) -> Result<String> {
        let len = self.u32(what)?;
        self.text(len.into(), what)
    }

    /// Reads text with a 64-bit length prefix.
    ///
    /// # Errors
    /// As [`take`](Self::take), and for invalid UTF-8.
    pub fn text64(&mut self, what: &str) -> Result<String> {
        let len = self.u64(what)?;
        self.text(len, what)
    }

    fn text(&mut self, len: u64, what: &str) -> Result<String> {
        let bytes = self.take64(len, what)?;
        String::from_utf8(bytes.to_vec()).map_err(|_| self.corrupt(what, "invalid UTF-8"))
    }

    /// Reads bytes that must equal `magic`.
    ///
    /// # Errors
    /// As [`take`](Self::take), and if they differ.
    pub fn magic(&mut self, magic: &[u8; 4], what: &str) -> Result<()> {
        let at = self.at;
        let found: [u8; 4] = self.array(what)?;
        if &found == magic {
            return Ok(());
        }
        let detail =
            format!("expected the magic \"{}\", found \"{}\"", magic.escape_ascii(), found.escape_ascii());
        Err(self.corrupt_at(at, what, detail))
    }

    /// Rejects bytes after the structure.
    ///
    /// # Errors
    /// `Corrupt` or `Codec` if there are any.
    pub fn finish(&self, what: &str) -> Result<()> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        Err(self.corrupt(what, format!("{} unexpected bytes at the end", self.bytes.len())))
    }

    /// Creates an error about `what` at the next byte.
    pub fn corrupt(&self, what: &str, detail: impl Into<String>) -> Error {
        self.corrupt_at(self.at, what, detail)
    }

    /// Creates an error about `what` at an offset.
    pub fn corrupt_at(&self, offset: u64, what: &str, detail: impl Into<String>) -> Error {
        match self.origin {
            BytesOrigin::Object(object) => Error::corrupt(what, object, offset, detail),
            BytesOrigin::Codec(codec) => Error::codec(codec, format!("{what}: {}", detail.into())),
        }
    }

    #[cold]
    fn truncated(&self, n: u64, what: &str) -> Error {
        let left = self.bytes.len() as u64;
        match self.origin {
            BytesOrigin::Object(object) => Error::truncated(what, object, self.at, n, left),
            BytesOrigin::Codec(codec) => {
                Error::codec(codec, format!("truncated: {what} needs {n} bytes, {left} left"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn reads_advance_and_errors_name_the_field_and_its_offset() {
        let bytes = [1, 2, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, b'x'];
        let mut cursor = Cursor::at_offset("f", &bytes, 100);
        assert_eq!((cursor.u8("a").unwrap(), cursor.u16("b").unwrap()), (1, 2));
        assert_eq!(cursor.u64("c").unwrap(), 3);
        assert_eq!(cursor.at(), 111);
        let error = cursor.u32("the checksum").unwrap_err();
        let ErrorKind::Corrupt { what, offset, .. } = error.kind() else { panic!("{error:?}") };
        assert_eq!((&what[..], *offset), ("the checksum", Some(111)));
        assert!(cursor.finish("structure").is_err());
        assert!(cursor.flag("flag").unwrap());
        assert!(cursor.flag("flag").is_err());
    }

    #[test]
    fn counts_are_bounded_by_the_unread_bytes() {
        let mut cursor = Cursor::codec("test", &[3, 0, 0, 0, 1, 2, 3, 4, 5, 6]);
        assert!(matches!(
            Cursor::codec("test", &[3, 0, 0, 0, 1, 2]).count32(3, "items").unwrap_err().kind(),
            ErrorKind::Codec { .. }
        ));
        assert_eq!(cursor.count32(2, "items").unwrap(), 3);
        assert!(cursor.count(u64::MAX, 8, "items").is_err());
        assert!(cursor.take64(u64::MAX, "items").is_err());
        assert_eq!(cursor.big_endian(2, "number").unwrap(), 0x0102);
        assert_eq!(cursor.little_endian(3, "number").unwrap(), 0x05_0403);
    }
}
