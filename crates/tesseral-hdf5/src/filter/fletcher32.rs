//! The checksum Fletcher-32 after the data, stored little-endian.

use tesseral_codec::checksum::Checksum;
use tesseral_core::{Error, Result};

/// Bytes of the checksum.
pub(super) const LEN: usize = 4;

/// Verifies the checksum and returns the data before it.
pub(super) fn check(src: &[u8]) -> Result<&[u8]> {
    let Some((data, stored)) = src.split_last_chunk::<LEN>() else {
        return Err(Error::codec("fletcher32", format!("{} bytes are too short for a checksum", src.len())));
    };
    let (stored, computed) = (u32::from_le_bytes(*stored), Checksum::Fletcher32.compute(data));
    // HDF5 before 1.6.3 swapped the bytes of each half on little-endian machines.
    let swapped = (stored & 0x00ff_00ff) << 8 | stored >> 8 & 0x00ff_00ff;
    if computed != stored && computed != swapped {
        let detail = format!("checksum mismatch: expected {stored:#010x}, computed {computed:#010x}");
        return Err(Error::codec("fletcher32", detail));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_definition() {
        for len in [0_usize, 1, 2, 7, 720, 721, 5000] {
            let data: Vec<u8> = (0..len).map(|i| (i * 31) as u8 | 0x80).collect();
            let (mut low, mut high) = (0_u64, 0_u64);
            for word in data.chunks(2) {
                low += u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0));
                high += low;
            }
            let fold = |mut sum: u64| {
                while sum > 0xffff {
                    sum = (sum & 0xffff) + (sum >> 16);
                }
                sum as u32
            };
            let stored = (fold(high) << 16 | fold(low)).to_le_bytes();
            let whole = [&data[..], &stored].concat();
            assert_eq!(check(&whole).unwrap(), data, "{len}");
            let [a, b, c, d] = stored;
            assert!(check(&[&data[..], &[b, a, d, c]].concat()).is_ok());
            assert!(check(&[&data[..], &[a ^ 1, b, c, d ^ 2]].concat()).is_err());
        }
        assert!(check(&[1, 2, 3]).is_err());
    }
}
