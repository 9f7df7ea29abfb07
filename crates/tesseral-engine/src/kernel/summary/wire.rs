//! The serialized form of a [`Summary`], for partial results exchanged between processes.
//!
//! | bytes | what |
//! |------:|------|
//! |     4 | `TSUM` |
//! |     2 | version, 2 |
//! |     2 | requested statistics, the bits of [`StatSet`] |
//! |    16 | dtype by name, padded with zeros |
//! |  3 × 8 | cells, nulls, NaNs |
//! |  2 × 8 | keys of minimum and maximum |
//! |  2 × 8 | negative and positive infinities |
//! | 4 + 4n | exact sum: power of 2^32 of the first digit, number of digits n with the sign in the highest bit, 32-bit digits |
//! | 4 + 4n | exact sum of squares, likewise |
//!
//! Little-endian throughout. A sum has at most 136 digits, and most have a few.

use tesseral_core::{DType, Error, Result, dispatch_element};

use super::{StatSet, Summary};
use crate::exact::Moments;
use crate::kernel::block::{Cell, WorkType};

const MAGIC: [u8; 4] = *b"TSUM";
const VERSION: u16 = 2;
const NAME: usize = 16;

/// Bytes before the exact sums.
const HEAD: usize = 64;

impl Summary {
    /// Serializes the state. Equal cells give equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(HEAD + 80);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.extend(u16::from(self.wanted.0).to_le_bytes());
        let mut name = [0; NAME];
        for (to, from) in name.iter_mut().zip(self.dtype.to_string().bytes()) {
            *to = from;
        }
        out.extend(name);
        for count in [self.cells, self.nulls, self.nans] {
            out.extend(count.to_le_bytes());
        }
        out.extend(self.range.0.to_le_bytes());
        out.extend(self.range.1.to_le_bytes());
        self.moments.write(&mut out);
        out
    }

    /// Parses a serialized state.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not a valid summary.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let corrupt = |detail: &str| Error::corrupt("summary", "partial result", None, detail);
        let (head, rest) = bytes.split_first_chunk::<HEAD>().ok_or_else(|| corrupt("truncated"))?;
        let mut input = WireParser { bytes: head, at: 0 };
        if input.array::<4>() != MAGIC {
            return Err(corrupt("bad magic"));
        }
        if u16::from_le_bytes(input.array()) != VERSION {
            return Err(corrupt("unknown version"));
        }
        let wanted = u8::try_from(u16::from_le_bytes(input.array())).ok().map(StatSet);
        let known = |w: &StatSet| StatSet::ALL.has(*w) && (w.0 & 4 == 0 || w.has(StatSet::SPREAD));
        let wanted = wanted.filter(known).ok_or_else(|| corrupt("unknown statistics"))?;
        let name = input.array::<NAME>();
        let name = std::str::from_utf8(&name).map_err(|_| corrupt("dtype name is not UTF-8"))?;
        let dtype: DType = name.trim_end_matches('\0').parse().map_err(|_| corrupt("unknown dtype"))?;
        let mut summary = Self::new(dtype, wanted).map_err(|_| corrupt("dtype without statistics"))?;
        [summary.cells, summary.nulls, summary.nans] =
            std::array::from_fn(|_| u64::from_le_bytes(input.array()));
        summary.range = (i64::from_le_bytes(input.array()), i64::from_le_bytes(input.array()));
        let (moments, rest) = Moments::parse(rest)?;
        if !rest.is_empty() {
            return Err(corrupt("bytes after the end"));
        }
        summary.moments = moments;
        dispatch_element!(dtype, T => summary.check::<T>(), else => false)
            .then_some(summary)
            .ok_or_else(|| corrupt("inconsistent values"))
    }

    /// Whether the values are possible for some cells.
    fn check<T: Cell>(&self) -> bool {
        let valid = self.cells.checked_sub(self.nulls).and_then(|n| n.checked_sub(self.nans));
        let Some(valid) = valid else { return false };
        let infinities = self.moments.infinities();
        let infinite = infinities[0].checked_add(infinities[1]);
        if infinite.is_none_or(|n| n > valid) || (!T::IS_FLOAT && (self.nans > 0 || infinite != Some(0))) {
            return false;
        }
        // A key round-trips through its value only when it lies in the dtype's range and is not NaN.
        let (min, max) = self.range;
        let key = |key: i64| {
            let value = T::from_key(key);
            !value.is_nan() && value.widen().key() == key
        };
        let ranged = self.wanted.has(StatSet::RANGE) && valid > 0;
        if ranged && !(min <= max && key(min) && key(max)) {
            return false;
        }
        if !ranged && self.range != (i64::MAX, i64::MIN) {
            return false;
        }
        // What is not requested is absent, integers are sums of integers, and no square is negative.
        self.clone().pruned() == *self
            && (valid > 0 || self.moments.is_zero())
            && (T::IS_FLOAT || self.moments.integer_fits())
            && (valid == 0 || !self.wanted.has(StatSet::SPREAD) || self.moments.is_possible(valid))
    }
}

struct WireParser<'a> {
    bytes: &'a [u8; HEAD],
    at: usize,
}

impl WireParser<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let part = std::array::from_fn(|i| self.bytes[self.at + i]);
        self.at += N;
        part
    }
}
