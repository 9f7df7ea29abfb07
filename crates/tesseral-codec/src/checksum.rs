//! Checksums that precede or follow the bytes they cover, as four little-endian bytes.

use tesseral_core::{Error, Result};

/// The function of a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// CRC-32C, of iSCSI.
    Crc32c,
    /// CRC-32, of gzip.
    Crc32,
    /// Adler-32, of zlib.
    Adler32,
    /// Fletcher-32, of HDF5: over big-endian words.
    Fletcher32,
}

/// Position of the checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChecksumPosition {
    /// Before the covered bytes.
    Start,
    /// After the covered bytes.
    End,
}

/// Bytes that a checksum adds.
pub const LEN: usize = 4;

impl Checksum {
    /// Name of the function.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Crc32 => "crc32",
            Self::Adler32 => "adler32",
            Self::Fletcher32 => "fletcher32",
        }
    }

    /// The checksum of bytes.
    pub fn compute(self, bytes: &[u8]) -> u32 {
        match self {
            Self::Crc32c => crc32c::crc32c(bytes),
            Self::Crc32 => {
                let mut crc = flate2::Crc::new();
                crc.update(bytes);
                crc.sum()
            }
            Self::Adler32 => adler32(bytes),
            Self::Fletcher32 => fletcher32(bytes),
        }
    }

    /// Returns the covered bytes after comparing their checksum.
    ///
    /// # Errors
    /// `Codec` when it differs or is missing.
    pub fn verify(self, src: &[u8], place: ChecksumPosition) -> Result<&[u8]> {
        let split = match place {
            ChecksumPosition::Start => src.split_first_chunk::<LEN>().map(|(stored, bytes)| (bytes, stored)),
            ChecksumPosition::End => src.split_last_chunk::<LEN>(),
        };
        let (bytes, stored) = split
            .ok_or_else(|| Error::codec(self.name(), format!("{} bytes hold no checksum", src.len())))?;
        let (stored, computed) = (u32::from_le_bytes(*stored), self.compute(bytes));
        if stored != computed {
            let detail = format!(
                "checksum mismatch over {} bytes: expected {stored:08x}, computed {computed:08x}",
                bytes.len()
            );
            return Err(Error::codec(self.name(), detail));
        }
        Ok(bytes)
    }
}

/// The sums stay below 2^32 for this many bytes.
const BLOCK: usize = 5552;

fn adler32(bytes: &[u8]) -> u32 {
    let (mut a, mut b) = (1_u32, 0_u32);
    for block in bytes.chunks(BLOCK) {
        for byte in block {
            a += u32::from(*byte);
            b += a;
        }
        a %= 65_521;
        b %= 65_521;
    }
    b << 16 | a
}

/// Words that can be added before the sums of Fletcher-32 must be reduced.
const WORDS: usize = 360;

/// An odd last byte is the high half of a word.
fn fletcher32(bytes: &[u8]) -> u32 {
    let reduce = |sum: u32| (sum & 0xffff) + (sum >> 16);
    let (mut low, mut high) = (0_u32, 0_u32);
    for block in bytes.chunks(2 * WORDS) {
        for word in block.chunks(2) {
            let second = word.get(1).copied().unwrap_or(0);
            low += u32::from(word[0]) << 8 | u32::from(second);
            high += low;
        }
        (low, high) = (reduce(low), reduce(high));
    }
    (low, high) = (reduce(low), reduce(high));
    high << 16 | low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        let check = |sum: Checksum| sum.compute(b"123456789");
        assert_eq!(check(Checksum::Crc32c), 0xe306_9283);
        assert_eq!(check(Checksum::Crc32), 0xcbf4_3926);
        assert_eq!(check(Checksum::Adler32), 0x091e_01de);
        assert_eq!(Checksum::Fletcher32.compute(&[0, 1, 2, 3, 4]), 0x0809_0604);
        assert_eq!(
            Checksum::Adler32.compute(&[0xff; 1 << 16]),
            Checksum::Adler32.compute(&vec![0xff; 1 << 16])
        );
    }

    #[test]
    fn changed_bytes_are_detected() {
        for sum in [Checksum::Crc32c, Checksum::Crc32, Checksum::Adler32, Checksum::Fletcher32] {
            let stored = sum.compute(b"cells").to_le_bytes();
            let mut after = [&b"cells"[..], &stored].concat();
            assert_eq!(sum.verify(&after, ChecksumPosition::End).unwrap(), b"cells");
            let before = [&stored[..], b"cells"].concat();
            assert_eq!(sum.verify(&before, ChecksumPosition::Start).unwrap(), b"cells");
            after[2] ^= 1;
            assert!(sum.verify(&after, ChecksumPosition::End).is_err());
            assert!((0..4).all(|len| sum.verify(&after[..len], ChecksumPosition::End).is_err()));
        }
    }
}
