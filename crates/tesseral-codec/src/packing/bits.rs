//! Fixed-width unsigned numbers, most significant bit first, without gaps.
//!
//! Eight numbers of any width end at a byte boundary. They are processed in groups of eight by a loop instantiated for each
//! width, so that the bit position and shift of each number in its group are compile-time constants.

use multiversion::multiversion;

use super::BLOCK;

/// Bytes of more than one group of the widest instantiated loop, plus the word that begins with its last number.
const WINDOW: usize = 72;

/// Calls the instantiation for the width, if there is one.
macro_rules! by_width {
    ($width:expr, $call:ident $args:tt, else $other:expr; $($known:literal)*) => {
        match $width {
            $($known => $call::<$known> $args,)*
            _ => $other,
        }
    };
}

/// Packs numbers block by block.
pub(super) struct Packer {
    bits: u32,
    numbers: [u64; BLOCK],
    bytes: [u8; BLOCK * 8 + WINDOW],
}

impl Packer {
    pub(super) fn new(bits: u32) -> Self {
        Self { bits, numbers: [0; BLOCK], bytes: [0; BLOCK * 8 + WINDOW] }
    }

    /// Space for the numbers of a block, at most [`BLOCK`], none of which exceeds the width.
    pub(super) fn numbers(&mut self, count: usize) -> &mut [u64] {
        // The last group is padded with zeros.
        self.numbers[count..count.next_multiple_of(8)].fill(0);
        &mut self.numbers[..count]
    }

    /// Appends the numbers of a block.
    pub(super) fn pack(&mut self, count: usize, out: &mut Vec<u8>) {
        let len = (count * self.bits as usize).div_ceil(8);
        pack_width(self.bits, &self.numbers[..count.next_multiple_of(8)], &mut self.bytes);
        out.extend_from_slice(&self.bytes[..len]);
    }
}

// The loops are inlined into the next two functions, which are compiled per instruction set.

/// Packs numbers of a given width.
#[multiversion(targets("x86_64+avx2+bmi2"))]
fn pack_width(width: u32, numbers: &[u64], bytes: &mut [u8]) {
    match width {
        0 => {}
        8 => store(numbers, bytes, low_byte),
        16 => store(numbers, bytes, low_two),
        32 => store(numbers, bytes, low_four),
        64 => store(numbers, bytes, u64::to_be_bytes),
        bits @ ..16 => by_width!(bits, pack_in_word(numbers, bytes), else {};
            1 2 3 4 5 6 7 9 10 11 12 13 14 15),
        bits => by_width!(bits, pack_groups(numbers, bytes), else pack_wide(numbers, bits, bytes);
            17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53
            54 55 56),
    }
}

// Not closures in [`pack_width`]: those would be tied to its instruction set and could not be inlined into plain iterators.

#[inline(always)]
fn low_byte(number: u64) -> [u8; 1] {
    [number as u8]
}

#[inline(always)]
fn low_two(number: u64) -> [u8; 2] {
    (number as u16).to_be_bytes()
}

#[inline(always)]
fn low_four(number: u64) -> [u8; 4] {
    (number as u32).to_be_bytes()
}

/// Stores numbers of whole bytes.
#[inline(always)]
fn store<const N: usize>(numbers: &[u64], bytes: &mut [u8], cut: impl Fn(u64) -> [u8; N]) {
    let target = bytes.as_chunks_mut().0;
    target.iter_mut().zip(numbers).for_each(|(out, number)| *out = cut(*number));
}

/// Packs numbers of up to 15 bits in groups of eight, each held by one wide word.
#[inline(always)]
fn pack_in_word<const B: usize>(numbers: &[u64], bytes: &mut [u8]) {
    for (group, eight) in numbers.as_chunks::<8>().0.iter().enumerate() {
        let Some(target) = bytes[group * B..].first_chunk_mut::<16>() else { return };
        // Two independent words.
        let pack_four = |from: usize| eight[from..from + 4].iter().fold(0, |word, number| word << B | number);
        let word = u128::from(pack_four(0)) << (4 * B) | u128::from(pack_four(4));
        *target = (word << (128 - 8 * B)).to_be_bytes();
    }
}

/// Packs numbers of up to 56 bits in groups of eight. Each number is appended below the pending bits of a word; the word is
/// stored in full and shifted by its completed bytes.
#[inline(always)]
fn pack_groups<const B: usize>(numbers: &[u64], bytes: &mut [u8]) {
    for (group, eight) in numbers.as_chunks::<8>().0.iter().enumerate() {
        let Some(target) = bytes[group * B..].first_chunk_mut::<WINDOW>() else { return };
        let mut word = 0;
        for (i, number) in eight.iter().enumerate() {
            let (at, have) = (i * B / 8, i * B % 8);
            word |= number << (64 - B - have);
            target[at..at + 8].copy_from_slice(&u64::to_be_bytes(word));
            word <<= (have + B) / 8 * 8;
        }
    }
}

/// Packs numbers of arbitrary width.
fn pack_wide(numbers: &[u64], width: u32, bytes: &mut [u8]) {
    let (mut word, mut have, mut at) = (0_u128, 0, 0);
    for number in numbers {
        word |= u128::from(*number) << (128 - width - have);
        bytes[at..at + 16].copy_from_slice(&word.to_be_bytes());
        have += width;
        at += (have / 8) as usize;
        word <<= have & !7;
        have &= 7;
    }
}

/// Converts the numbers of up to 52 bits from bit `bit` on to values; `bytes` holds all of them.
#[multiversion(targets("x86_64+avx2+bmi2"))]
pub(super) fn unpack<F: Fn(u64) -> [u8; 8]>(
    bytes: &[u8],
    bit: usize,
    width: u32,
    out: &mut [[u8; 8]],
    value: F,
) {
    unpack_narrow(bytes, bit, width, out, value);
}

#[inline(always)]
pub(super) fn unpack_narrow(
    bytes: &[u8],
    bit: usize,
    width: u32,
    out: &mut [[u8; 8]],
    value: impl Fn(u64) -> [u8; 8],
) {
    let whole = &bytes[bit / 8..];
    match width {
        _ if !bit.is_multiple_of(8) => unpack_rest(bytes, bit, width, out, 0, value),
        8 => load(whole, out, |[byte]: [u8; 1]| value(byte.into())),
        16 => load(whole, out, |cut| value(u16::from_be_bytes(cut).into())),
        24 => load(whole, out, |[a, b, c]| value(u32::from_be_bytes([0, a, b, c]).into())),
        32 => load(whole, out, |cut| value(u32::from_be_bytes(cut).into())),
        _ => {
            let done = by_width!(width, unpack_groups(whole, out, &value), else 0;
                1 2 3 4 5 6 7 9 10 11 12 13 14 15 17 18 19 20 21 22 23 25 26 27 28 29 30 31);
            unpack_rest(bytes, bit, width, out, done, value);
        }
    }
}

/// As [`unpack`], for numbers of arbitrary width.
pub(super) fn unpack_wide(
    bytes: &[u8],
    bit: usize,
    width: u32,
    out: &mut [[u8; 8]],
    value: impl Fn(u64) -> [u8; 8],
) {
    if width == 64 && bit.is_multiple_of(8) {
        return load(&bytes[bit / 8..], out, |cut| value(u64::from_be_bytes(cut)));
    }
    unpack_rest(bytes, bit, width, out, 0, value);
}

/// Converts the remaining numbers, the first of which begins at `bit`.
#[inline(always)]
pub(super) fn unpack_rest(
    bytes: &[u8],
    bit: usize,
    width: u32,
    out: &mut [[u8; 8]],
    mut done: usize,
    value: impl Fn(u64) -> [u8; 8],
) {
    let bit = |done: usize| bit + done * width as usize;
    if width <= 57 {
        done += unpack_words(bytes, bit(done), width, &mut out[done..], &value);
    }
    for (i, out) in out.iter_mut().enumerate().skip(done) {
        *out = value(extract(bytes, bit(i), width));
    }
}

/// Converts numbers of whole bytes.
#[inline(always)]
fn load<const N: usize>(bytes: &[u8], out: &mut [[u8; 8]], value: impl Fn([u8; N]) -> [u8; 8]) {
    let cuts = bytes.as_chunks().0;
    out.iter_mut().zip(cuts).for_each(|(out, cut)| *out = value(*cut));
}

/// Converts full groups of eight while at least two remain; returns the number of values converted.
#[inline(always)]
fn unpack_groups<const B: usize>(bytes: &[u8], out: &mut [[u8; 8]], value: impl Fn(u64) -> [u8; 8]) -> usize {
    let mut done = 0;
    for (group, eight) in out.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let Some(window) = bytes.get(group * B..).and_then(|rest| rest.first_chunk::<WINDOW>()) else {
            break;
        };
        for (i, out) in eight.iter_mut().enumerate() {
            let word = window[i * B / 8..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
            *out = value(word << (i * B % 8) >> (64 - B));
        }
        done += 8;
    }
    done
}

/// Converts numbers of up to 57 bits, each contained in the word that begins with its first byte, while full words remain;
/// returns the number of values converted.
#[inline(always)]
fn unpack_words(
    bytes: &[u8],
    mut bit: usize,
    width: u32,
    out: &mut [[u8; 8]],
    value: impl Fn(u64) -> [u8; 8],
) -> usize {
    let whole = (bytes.len() * 8).saturating_sub(bit + 64) / width as usize;
    let count = out.len().min(whole);
    for out in &mut out[..count] {
        let word = bytes[bit / 8..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
        *out = value(word << (bit % 8) >> (64 - width));
        bit += width as usize;
    }
    count
}

/// Extracts one number of arbitrary width.
fn extract(bytes: &[u8], bit: usize, width: u32) -> u64 {
    if width == 0 {
        return 0;
    }
    let rest = &bytes[bit / 8..];
    let mut word = [0; 16];
    let len = rest.len().min(16);
    word[..len].copy_from_slice(&rest[..len]);
    (u128::from_be_bytes(word) << (bit % 8) >> (128 - width)) as u64
}
