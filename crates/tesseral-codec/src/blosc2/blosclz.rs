//! BloscLZ, a descendant of FastLZ: literals and matches, each after a control byte.
//!
//! A control byte `c` below 32 is followed by `c + 1` literals. Otherwise its top three bits are the match length minus 2; the
//! value 7 means 9 or more, extended by bytes that are added up until one is not 255. The low five bits and the next byte are
//! the distance minus 1; where all thirteen bits are set, a big-endian u16 follows that is added to 8191. The first control byte
//! always introduces literals, regardless of its top bits.

use tesseral_core::Result;

use super::fault;

/// The distance minus 1 from which on it takes two more bytes.
const FAR: usize = 8191;
const MAX_DISTANCE: usize = FAR + 0xffff;
/// The maximum number of literals after one control byte.
const RUN: usize = 32;

/// Decodes into a slice; returns the number of bytes written.
pub(super) fn decode_into(src: &[u8], dst: &mut [u8]) -> Result<usize> {
    let truncated = || fault("truncated blosclz stream");
    let mut at = 0;
    let mut pos = 1;
    let next = |pos: &mut usize| -> Result<usize> {
        let byte = src.get(*pos).copied().ok_or_else(truncated)?;
        *pos += 1;
        Ok(byte.into())
    };
    let mut control = usize::from(src.first().copied().ok_or_else(truncated)? & 31);
    loop {
        if control < RUN {
            let literals = src.get(pos..pos + control + 1).ok_or_else(truncated)?;
            let target =
                dst.get_mut(at..at + literals.len()).ok_or_else(|| fault("output exceeds the block"))?;
            target.copy_from_slice(literals);
            at += literals.len();
            pos += literals.len();
        } else {
            let mut len = (control >> 5) + 2;
            if len == 9 {
                loop {
                    let more = next(&mut pos)?;
                    len += more;
                    if more != 255 {
                        break;
                    }
                }
            }
            let mut distance = (control & 31) << 8 | next(&mut pos)?;
            if distance == FAR {
                distance += next(&mut pos)? << 8 | next(&mut pos)?;
            }
            let from = at
                .checked_sub(distance + 1)
                .ok_or_else(|| fault("match offset before the start of the output"))?;
            let end = at.checked_add(len).filter(|end| *end <= dst.len());
            let end = end.ok_or_else(|| fault("output exceeds the block"))?;
            if distance + 1 >= len {
                dst.copy_within(from..from + len, at);
            } else {
                for i in at..end {
                    dst[i] = dst[i - distance - 1];
                }
            }
            at = end;
        }
        if pos >= src.len() {
            return Ok(at);
        }
        control = next(&mut pos)?;
    }
}

/// Appends the stream of `src`, which is not empty. At each position the last one with the same four bytes is tried, and used
/// when the match saves bytes.
pub(super) fn encode(src: &[u8], out: &mut Vec<u8>) {
    const BITS: u32 = 13;
    let first = out.len();
    let mut table = [usize::MAX; 1 << BITS];
    let mut literals = 0;
    let mut at = 1;
    // Decoders expect bytes after a match, so the stream always ends with literals.
    let last = src.len().saturating_sub(12);
    while at < last {
        let word = u32::from_le_bytes([src[at], src[at + 1], src[at + 2], src[at + 3]]);
        let slot = &mut table[(word.wrapping_mul(0x9e37_79b1) >> (32 - BITS)) as usize];
        let candidate = std::mem::replace(slot, at);
        let distance = at.wrapping_sub(candidate).wrapping_sub(1);
        if candidate == usize::MAX || distance > MAX_DISTANCE {
            at += 1;
            continue;
        }
        let limit = src.len() - 5;
        let len = (at..limit).take_while(|i| src[*i] == src[candidate + i - at]).count();
        if len < if distance < FAR { 4 } else { 6 } {
            at += 1;
            continue;
        }
        put_literals(&src[literals..at], out);
        put_match(len, distance, out);
        at += len;
        literals = at;
    }
    put_literals(&src[literals..], out);
    // The marker that the reference encoder sets.
    if let Some(byte) = out.get_mut(first) {
        *byte |= 32;
    }
}

fn put_literals(bytes: &[u8], out: &mut Vec<u8>) {
    for run in bytes.chunks(RUN) {
        out.push((run.len() - 1) as u8);
        out.extend_from_slice(run);
    }
}

fn put_match(len: usize, distance: usize, out: &mut Vec<u8>) {
    let low = distance.min(FAR);
    out.push(((len.min(9) - 2) << 5 | low >> 8) as u8);
    if len >= 9 {
        let mut more = len - 9;
        while more >= 255 {
            out.push(255);
            more -= 255;
        }
        out.push(more as u8);
    }
    out.push(low as u8);
    if distance >= FAR {
        out.extend_from_slice(&((distance - FAR) as u16).to_be_bytes());
    }
}
