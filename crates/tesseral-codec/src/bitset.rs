//! Bit sets, packed most significant bit first, in two encodings: run lengths and the portable Roaring format.
//!
//! Decoders write into a packed slice of exactly the requested number of bits, which bounds their work.

use tesseral_core::{Error, Result};

/// Bytes of `bits` packed bits.
pub fn packed_len(bits: u64) -> u64 {
    bits.div_ceil(8)
}

/// Whether a bit is set.
#[inline]
pub fn get(packed: &[u8], bit: u64) -> bool {
    usize::try_from(bit / 8)
        .ok()
        .and_then(|at| packed.get(at))
        .is_some_and(|byte| byte >> (7 - bit % 8) & 1 == 1)
}

/// Sets bits `start..end`, which lie in the slice.
fn set(packed: &mut [u8], start: u64, end: u64) {
    let (first, last) = ((start / 8) as usize, (end / 8) as usize);
    let (head, tail) = (0xff_u8 >> (start % 8), !(0xff_u8 >> (end % 8)));
    if start >= end {
    } else if first == last {
        packed[first] |= head & tail;
    } else {
        packed[first] |= head;
        packed[first + 1..last].fill(0xff);
        if tail != 0 {
            packed[last] |= tail;
        }
    }
}

/// Runs of equal bits, as `(end, set)`.
fn runs(packed: &[u8], bits: u64) -> impl Iterator<Item = (u64, bool)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at >= bits {
            return None;
        }
        let value = get(packed, at);
        at += 1;
        let whole = if value { 0xff } else { 0 };
        while at < bits {
            if at % 8 == 0 && packed[(at / 8) as usize] == whole && at + 8 <= bits {
                at += 8;
            } else if get(packed, at) == value {
                at += 1;
            } else {
                break;
            }
        }
        Some((at, value))
    })
}

/// Sets the ranges that `walk` yields in a slice of exactly `bits` bits. `walk` runs twice: damage is found before the first
/// byte is written.
fn fill(
    codec: &'static str,
    bits: u64,
    dst: &mut [u8],
    walk: impl Fn(&mut dyn FnMut(u64, u64)) -> Result<()>,
) -> Result<()> {
    if dst.len() as u64 != packed_len(bits) {
        return Err(Error::codec(
            codec,
            format!("the output has {} bytes, which does not match {bits} bits", dst.len()),
        ));
    }
    walk(&mut |_, _| {})?;
    dst.fill(0);
    walk(&mut |start, end| set(dst, start, end))
}

/// The value of the first bit, then the LEB128 lengths of alternating runs.
pub mod rle {
    use super::{Error, Result, fill, runs};

    /// Appends the runs of `bits` bits to `out`; nothing when `bits` is 0.
    pub fn encode(packed: &[u8], bits: u64, out: &mut Vec<u8>) {
        let mut start = 0;
        for (end, value) in runs(packed, bits) {
            if start == 0 {
                out.push(u8::from(value));
            }
            let mut left = end - start;
            while left > 0x7f {
                out.push(left as u8 | 0x80);
                left >>= 7;
            }
            out.push(left as u8);
            start = end;
        }
    }

    /// Sets in `dst` the bits of `src`, whose runs must add up to `bits`.
    ///
    /// # Errors
    /// `Codec` when the sum differs or a run is empty.
    pub fn decode_into(src: &[u8], bits: u64, dst: &mut [u8]) -> Result<()> {
        fill("rle", bits, dst, |put| walk(src, bits, put))
    }

    fn walk(src: &[u8], bits: u64, put: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let fault = |detail: &str| Error::codec("rle", detail);
        let Some((first, mut rest)) = src.split_first() else {
            return if bits == 0 { Ok(()) } else { Err(fault("no runs")) };
        };
        if *first > 1 {
            return Err(fault("invalid value of the first bit"));
        }
        let mut value = *first == 1;
        let mut at = 0_u64;
        while !rest.is_empty() {
            let mut run = 0_u64;
            let mut shift = 0;
            loop {
                let (byte, after) = rest.split_first().ok_or_else(|| fault("truncated run length"))?;
                rest = after;
                if shift > 56 {
                    return Err(fault("run length overflow: more than 2^63 bits"));
                }
                run |= u64::from(byte & 0x7f) << shift;
                shift += 7;
                if byte & 0x80 == 0 {
                    break;
                }
            }
            let end = at.checked_add(run).filter(|end| run > 0 && *end <= bits);
            let end = end.ok_or_else(|| fault("empty run, or runs exceed the number of bits"))?;
            if value {
                put(at, end);
            }
            (at, value) = (end, !value);
        }
        if at != bits { Err(fault("truncated runs")) } else { Ok(()) }
    }
}

/// The portable Roaring format: set positions in containers of 2^16.
pub mod roaring {
    use super::{Error, Result, fill, runs};

    const COOKIE: u32 = 12346;
    const COOKIE_RUNS: u32 = 12347;
    /// With run containers, offsets are present only from this many containers on.
    const OFFSETS_FROM: usize = 4;
    /// The largest cardinality of an array container; above it a bitmap container is used.
    const LIST: usize = 4096;
    const BITMAP: usize = 8192;

    struct RoaringContainer {
        key: u16,
        /// Runs of set positions, `start..=end`.
        runs: Vec<(u16, u16)>,
        count: usize,
    }

    impl RoaringContainer {
        fn list_len(&self) -> usize {
            if self.count <= LIST { 2 * self.count } else { BITMAP }
        }

        fn as_runs(&self) -> bool {
            2 + 4 * self.runs.len() < self.list_len()
        }

        fn len(&self) -> usize {
            if self.as_runs() { 2 + 4 * self.runs.len() } else { self.list_len() }
        }

        fn write(&self, out: &mut Vec<u8>) {
            if self.as_runs() {
                out.extend_from_slice(&low(self.runs.len()).to_le_bytes());
                for (start, end) in &self.runs {
                    out.extend_from_slice(&start.to_le_bytes());
                    out.extend_from_slice(&(end - start).to_le_bytes());
                }
            } else if self.count <= LIST {
                for position in self.runs.iter().flat_map(|(start, end)| *start..=*end) {
                    out.extend_from_slice(&position.to_le_bytes());
                }
            } else {
                let at = out.len();
                out.resize(at + BITMAP, 0);
                for position in self.runs.iter().flat_map(|(start, end)| *start..=*end) {
                    out[at + usize::from(position / 8)] |= 1 << (position % 8);
                }
            }
        }
    }

    fn low(n: usize) -> u16 {
        n as u16
    }

    fn containers(packed: &[u8], bits: u64) -> Vec<RoaringContainer> {
        let mut all: Vec<RoaringContainer> = Vec::new();
        let mut start = 0_u64;
        for (end, value) in runs(packed, bits) {
            while value && start < end {
                let until = end.min((start | 0xffff) + 1);
                let (key, run) = ((start >> 16) as u16, (start as u16, (until - 1) as u16));
                if all.last().is_none_or(|last| last.key != key) {
                    all.push(RoaringContainer { key, runs: Vec::new(), count: 0 });
                }
                if let Some(last) = all.last_mut() {
                    last.runs.push(run);
                    last.count += usize::from(run.1 - run.0) + 1;
                }
                start = until;
            }
            start = end;
        }
        all
    }

    /// Appends the set positions among `bits` bits to `out`, each container in its shortest encoding.
    ///
    /// # Errors
    /// `Limit` for positions beyond 32 bits.
    pub fn encode(packed: &[u8], bits: u64, out: &mut Vec<u8>) -> Result<()> {
        if bits > u64::from(u32::MAX) {
            return Err(Error::limit("roaring bitmap", bits, u64::from(u32::MAX)));
        }
        let all = containers(packed, bits);
        let with_runs = all.iter().any(RoaringContainer::as_runs);
        let base = out.len();
        if with_runs {
            out.extend_from_slice(&(COOKIE_RUNS | (all.len() as u32 - 1) << 16).to_le_bytes());
            let mut marks = vec![0_u8; all.len().div_ceil(8)];
            all.iter()
                .enumerate()
                .filter(|(_, c)| c.as_runs())
                .for_each(|(i, _)| marks[i / 8] |= 1 << (i % 8));
            out.append(&mut marks);
        } else {
            out.extend_from_slice(&COOKIE.to_le_bytes());
            out.extend_from_slice(&(all.len() as u32).to_le_bytes());
        }
        for container in &all {
            out.extend_from_slice(&container.key.to_le_bytes());
            out.extend_from_slice(&low(container.count - 1).to_le_bytes());
        }
        if !with_runs || all.len() >= OFFSETS_FROM {
            let mut at = out.len() - base + 4 * all.len();
            for container in &all {
                out.extend_from_slice(&(at as u32).to_le_bytes());
                at += container.len();
            }
        }
        all.iter().for_each(|container| container.write(out));
        Ok(())
    }

    fn fault(detail: &'static str) -> Error {
        Error::codec("roaring", detail)
    }

    /// Splits `n` bytes off the front.
    fn split_front<'a>(src: &mut &'a [u8], n: usize) -> Result<&'a [u8]> {
        let (front, rest) = src.split_at_checked(n).ok_or_else(|| fault("truncated bitmap"))?;
        *src = rest;
        Ok(front)
    }

    fn u16_at(bytes: &[u8], i: usize) -> u16 {
        u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]])
    }

    fn split_u32(src: &mut &[u8]) -> Result<u32> {
        let bytes = split_front(src, 4)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    /// Sets in `dst` the positions of `src`, all of which must lie below `bits`.
    ///
    /// # Errors
    /// `Codec` when one does not, containers are out of order, or bytes are missing or left over.
    pub fn decode_into(src: &[u8], bits: u64, dst: &mut [u8]) -> Result<()> {
        fill("roaring", bits, dst, |set| walk(src, bits, set))
    }

    fn walk(mut src: &[u8], bits: u64, set: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let src = &mut src;
        let cookie = split_u32(src)?;
        let (count, marks) = match cookie {
            COOKIE => (split_u32(src)? as usize, &[][..]),
            _ if cookie & 0xffff == COOKIE_RUNS => {
                let count = (cookie >> 16) as usize + 1;
                (count, split_front(src, count.div_ceil(8))?)
            }
            _ => return Err(fault("unknown cookie")),
        };
        if count > 1 << 16 {
            return Err(fault("more than 65536 containers"));
        }
        let heads = split_front(src, 4 * count)?;
        if marks.is_empty() || count >= OFFSETS_FROM {
            // Containers are contiguous, so their offsets are redundant.
            split_front(src, 4 * count)?;
        }
        let mut last = None;
        for i in 0..count {
            let (key, cardinality) = (u16_at(heads, 2 * i), usize::from(u16_at(heads, 2 * i + 1)) + 1);
            if last.is_some_and(|last| last >= key) {
                return Err(fault("containers are out of order"));
            }
            last = Some(key);
            let base = u64::from(key) << 16;
            let mut put = |start: u64, len: u64| {
                let (start, end) = (base + start, base + start + len);
                if end > bits {
                    return Err(fault("position out of range"));
                }
                set(start, end);
                Ok(())
            };
            if marks.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1) {
                let runs = usize::from(u16_at(split_front(src, 2)?, 0));
                let pairs = split_front(src, 4 * runs)?;
                for run in 0..runs {
                    let (start, more) = (u16_at(pairs, 2 * run), u16_at(pairs, 2 * run + 1));
                    let end = u64::from(start) + u64::from(more) + 1;
                    if end > 1 << 16 {
                        return Err(fault("run exceeds its container"));
                    }
                    put(u64::from(start), u64::from(more) + 1)?;
                }
            } else if cardinality <= LIST {
                let positions = split_front(src, 2 * cardinality)?;
                for position in 0..cardinality {
                    put(u64::from(u16_at(positions, position)), 1)?;
                }
            } else {
                let bitmap = split_front(src, BITMAP)?;
                for (byte, at) in bitmap.iter().zip((0_u64..).step_by(8)) {
                    for bit in (0..8).filter(|bit| byte >> bit & 1 == 1) {
                        put(at + bit, 1)?;
                    }
                }
            }
        }
        if !src.is_empty() {
            return Err(fault("trailing bytes after the last container"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit sets of different densities.
    fn cases() -> Vec<(Vec<u8>, u64)> {
        let mut state = 88_172_645_463_325_252_u64;
        let mut next = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let mut all = Vec::new();
        for bits in [0_u64, 1, 7, 8, 9, 100, 65_535, 65_536, 65_537, 200_000, 400_001] {
            for kind in 0..6 {
                let mut packed = vec![0; packed_len(bits) as usize];
                let mut run = 0;
                for bit in 0..bits {
                    let bit_set = match kind {
                        0 => false,
                        1 => true,
                        2 => next() % 100 == 0,
                        3 => next() % 2 == 0,
                        4 => bit % 70_000 < 6_000,
                        _ => {
                            if run == 0 {
                                run = (next() % 3000 + 1) as i64 * if next() % 2 == 0 { 1 } else { -1 };
                            }
                            let bit_set = run > 0;
                            run -= run.signum();
                            bit_set
                        }
                    };
                    packed[(bit / 8) as usize] |= u8::from(bit_set) << (7 - bit % 8);
                }
                all.push((packed, bits));
            }
        }
        all
    }

    #[test]
    fn both_encodings_round_trip() {
        for (packed, bits) in cases() {
            let mut out = Vec::new();
            rle::encode(&packed, bits, &mut out);
            let mut back = vec![0xaa; packed.len()];
            rle::decode_into(&out, bits, &mut back).unwrap();
            assert!(back == packed, "rle of {bits}");
            out.clear();
            roaring::encode(&packed, bits, &mut out).unwrap();
            back.fill(0xaa);
            roaring::decode_into(&out, bits, &mut back).unwrap();
            assert!(back == packed, "roaring of {bits}");
        }
    }

    #[test]
    fn truncation_and_short_slices_are_rejected() {
        for (packed, bits) in cases().into_iter().filter(|(_, bits)| (1..1000).contains(bits)) {
            let (mut runs, mut bitmap) = (Vec::new(), Vec::new());
            rle::encode(&packed, bits, &mut runs);
            roaring::encode(&packed, bits, &mut bitmap).unwrap();
            let mut back = packed.clone();
            for len in 0..runs.len() {
                assert!(rle::decode_into(&runs[..len], bits, &mut back).is_err());
            }
            for len in 0..bitmap.len() {
                assert!(roaring::decode_into(&bitmap[..len], bits, &mut back).is_err());
            }
            assert!(rle::decode_into(&runs, bits + 8, &mut vec![0; packed.len() + 1]).is_err());
            assert!(rle::decode_into(&runs, bits, &mut vec![0; packed.len() + 1]).is_err());
        }
        // A position past the end.
        let mut out = Vec::new();
        roaring::encode(&[0x01], 8, &mut out).unwrap();
        assert!(roaring::decode_into(&out, 7, &mut [0]).is_err());
    }

    #[test]
    fn damaged_streams_are_rejected() {
        for bad in [
            &[2, 8][..],
            &[0, 0, 8],
            &[0, 9],
            &[0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
        ] {
            assert!(rle::decode_into(bad, 8, &mut [0]).is_err());
        }
        let mut state = 5_u64;
        for _ in 0..5000 {
            let mut bytes = Vec::new();
            roaring::encode(&[0x0f, 0xf0, 0x55, 0xff, 0xff, 0xff], 48, &mut bytes).unwrap();
            for _ in 0..2 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                let at = (state >> 33) as usize % bytes.len();
                bytes[at] = (state >> 20) as u8;
            }
            let _ = roaring::decode_into(&bytes, 48, &mut [0; 6]);
        }
    }
}
