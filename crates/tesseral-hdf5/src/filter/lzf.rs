//! LZF, the compressor of h5py.
//!
//! A control byte below 32 precedes that many literals plus one. Any other holds the length of a match minus two in its
//! upper three bits (7: another byte is added) and the upper five bits of the distance minus one, of which a byte follows.

use tesseral_core::{Error, Result};

fn truncated() -> Error {
    Error::codec("lzf", "truncated stream")
}

/// Decodes a stream and returns the number of bytes written.
pub(super) fn decode(src: &[u8], dst: &mut [u8]) -> Result<usize> {
    let (mut at, mut end) = (0, 0);
    let next = |at: &mut usize| {
        let byte = src.get(*at).copied().map(usize::from).ok_or_else(truncated);
        *at += 1;
        byte
    };
    while at < src.len() {
        let control = next(&mut at)?;
        if control < 32 {
            let literals = src.get(at..at + control + 1).ok_or_else(truncated)?;
            let target = dst.get_mut(end..end + literals.len());
            target.ok_or_else(|| Error::codec("lzf", "the output is too long"))?.copy_from_slice(literals);
            at += literals.len();
            end += literals.len();
            continue;
        }
        let mut len = control >> 5;
        if len == 7 {
            len += next(&mut at)?;
        }
        let distance = (control & 31) << 8 | next(&mut at)?;
        let start =
            end.checked_sub(distance + 1).ok_or_else(|| Error::codec("lzf", "a match before the output"))?;
        let stop = end + len + 2;
        if stop > dst.len() {
            return Err(Error::codec("lzf", "the output is too long"));
        }
        // A match can overlap its own output: each round copies what is there.
        let mut from = start;
        while end < stop {
            let run = (end - from).min(stop - end);
            dst.copy_within(from..from + run, end);
            from += run;
            end += run;
        }
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_can_overlap_their_output() {
        let mut out = [0; 20];
        // "ab", then 9 bytes from 2 back, then "c".
        assert_eq!(decode(&[1, b'a', b'b', 0xe0, 0, 1, 0, b'c'], &mut out).unwrap(), 12);
        assert_eq!(&out[..12], b"ababababababc"[..11].iter().chain(b"c").copied().collect::<Vec<_>>());
        for damaged in [&[5, 1][..], &[0x20], &[0x20, 0], &[0xe0, 1], &[1, 1, 1, 0xe0, 255, 0]] {
            assert!(decode(damaged, &mut out).is_err(), "{damaged:?}");
        }
        assert!(decode(&[3, 1, 2, 3, 4], &mut out[..3]).is_err());
    }
}
