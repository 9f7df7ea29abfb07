//! Numbers of a section, addressed as in the specification.

use tesseral_core::{Error, Result};

/// The bytes of a section. Octets are counted from 1, as in the specification; numbers are big-endian.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Octets<'a> {
    bytes: &'a [u8],
    what: &'static str,
    object: &'a str,
    at: u64,
}

impl<'a> Octets<'a> {
    /// The section `what` of an object at offset `at`.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str, object: &'a str, at: u64) -> Self {
        Self { bytes, what, object, at }
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// An error about this section.
    pub(crate) fn corrupt(&self, detail: impl Into<String>) -> Error {
        Error::corrupt(self.what, self.object, self.at, detail.into())
    }

    /// `count` octets from number `first` on.
    pub(crate) fn slice(&self, first: usize, count: usize) -> Result<&'a [u8]> {
        let start = first.checked_sub(1);
        let range = start.and_then(|start| Some(start..start.checked_add(count)?));
        range.and_then(|range| self.bytes.get(range)).ok_or_else(|| {
            let found = self.bytes.len() as u64;
            let expected = (first as u64).saturating_add(count as u64).saturating_sub(1);
            Error::truncated(self.what, self.object, self.at, expected, found)
        })
    }

    fn array<const N: usize>(&self, first: usize) -> Result<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.slice(first, N)?);
        Ok(out)
    }

    pub(crate) fn u8(&self, first: usize) -> Result<u8> {
        self.array::<1>(first).map(|[byte]| byte)
    }

    pub(crate) fn u16(&self, first: usize) -> Result<u16> {
        self.array(first).map(u16::from_be_bytes)
    }

    pub(crate) fn u24(&self, first: usize) -> Result<u32> {
        self.array(first).map(|[a, b, c]| u32::from_be_bytes([0, a, b, c]))
    }

    pub(crate) fn u32(&self, first: usize) -> Result<u32> {
        self.array(first).map(u32::from_be_bytes)
    }

    /// An integer of one octet whose first bit is the sign.
    pub(crate) fn i8(&self, first: usize) -> Result<i32> {
        self.u8(first).map(|n| signed(u64::from(n), 8) as i32)
    }

    /// An integer of two octets whose first bit is the sign.
    pub(crate) fn i16(&self, first: usize) -> Result<i32> {
        self.u16(first).map(|n| signed(u64::from(n), 16) as i32)
    }

    /// An integer of three octets whose first bit is the sign.
    pub(crate) fn i24(&self, first: usize) -> Result<i32> {
        self.u24(first).map(|n| signed(u64::from(n), 24) as i32)
    }

    /// An integer of four octets whose first bit is the sign.
    pub(crate) fn i32(&self, first: usize) -> Result<i32> {
        self.u32(first).map(|n| signed(u64::from(n), 32) as i32)
    }

    /// An IEEE number of four octets.
    pub(crate) fn ieee(&self, first: usize) -> Result<f64> {
        self.u32(first).map(|bits| f64::from(f32::from_bits(bits)))
    }

    /// An IBM number of four octets: sign, exponent of 16 biased by 64, 24 bits of fraction. All of them are exact doubles.
    pub(crate) fn ibm(&self, first: usize) -> Result<f64> {
        let word = self.u32(first)?;
        let exponent = i32::from((word >> 24 & 0x7f) as u8);
        let value = f64::from(word & 0x00ff_ffff) * 2_f64.powi(4 * (exponent - 64) - 24);
        Ok(if word >> 31 == 1 { -value } else { value })
    }
}

/// A number of `bits` bits, of which the first is the sign and the others are the magnitude.
pub(crate) fn signed(number: u64, bits: u32) -> i64 {
    let sign = 1_u64 << (bits - 1);
    let magnitude = (number & (sign - 1)).cast_signed();
    if number & sign == 0 { magnitude } else { -magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_a_sign_bit() {
        let bytes = [0x80, 0x05, 0x83, 0xff, 0xff, 0xff, 0x42, 0x64, 0, 0];
        let octets = Octets::new(&bytes, "section", "x.grib", 7);
        assert_eq!(octets.i16(1).unwrap(), -5);
        assert_eq!(octets.i8(3).unwrap(), -3);
        assert_eq!(octets.i24(4).unwrap(), -0x7f_ffff);
        // 0x64 / 256 · 16^2 = 100.
        assert_eq!(octets.ibm(7).unwrap(), 100.0);
        assert_eq!(octets.u24(8).unwrap(), 0x64_0000);
        assert!(octets.u32(8).is_err() && octets.u8(0).is_err() && octets.slice(usize::MAX, 2).is_err());
    }
}
