//! The serialized form of a [`Summary`], for partial results exchanged between processes.
//!
//! | bytes | what |
//! |------:|------|
//! |     4 | `TSUM` |
//! |     2 | version, 1 |
//! |     2 | requested statistics, the bits of [`Wanted`] |
//! |    16 | dtype by name, padded with zeros |
//! |  4 × 8 | cells, nulls, NaNs, infinities |
//! |  2 × 8 | keys of minimum and maximum |
//! |    16 | sum: an `i128`, or an `f64` and its rounding error |
//! |  4 × 8 | mean in two parts, sum of squared deviations in two parts |
//!
//! Little-endian throughout.

use tesseral_core::{DType, Element, Error, Result, dispatch_element};

use super::{Summary, Wanted};
use crate::kernel::block::{Cell, Moments, WorkType};

const MAGIC: [u8; 4] = *b"TSUM";
const VERSION: u16 = 1;
const NAME: usize = 16;

impl Summary {
    /// Bytes of every summary.
    pub const WIRE_LEN: usize = 120;

    /// Serializes the state.
    pub fn to_bytes(&self) -> [u8; Self::WIRE_LEN] {
        let mut out = WireWriter { bytes: [0; Self::WIRE_LEN], at: 0 };
        out.put(&MAGIC);
        out.put(&VERSION.to_le_bytes());
        out.put(&u16::from(self.wanted.0).to_le_bytes());
        let mut name = [0; NAME];
        for (to, from) in name.iter_mut().zip(self.dtype.to_string().bytes()) {
            *to = from;
        }
        out.put(&name);
        for count in [self.cells, self.nulls, self.nans, self.infinities] {
            out.put(&count.to_le_bytes());
        }
        out.put(&self.range.0.to_le_bytes());
        out.put(&self.range.1.to_le_bytes());
        if is_float(self.dtype) {
            out.put(&self.float_sum.0.to_le_bytes());
            out.put(&self.float_sum.1.to_le_bytes());
        } else {
            out.put(&self.int_sum.to_le_bytes());
        }
        for part in [self.moments.mean, self.moments.rest, self.moments.m2, self.moments.m2_rest] {
            out.put(&part.to_le_bytes());
        }
        out.bytes
    }

    /// Parses a serialized state.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not a valid summary.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let corrupt = |detail: &str| Error::corrupt("summary", "partial result", None, detail);
        let bytes: &[u8; Self::WIRE_LEN] = bytes.try_into().map_err(|_| corrupt("wrong length"))?;
        let mut input = WireParser { bytes, at: 0 };
        if input.array::<4>() != MAGIC {
            return Err(corrupt("bad magic"));
        }
        if u16::from_le_bytes(input.array()) != VERSION {
            return Err(corrupt("unknown version"));
        }
        let wanted = u8::try_from(u16::from_le_bytes(input.array())).ok().map(Wanted);
        let known = |w: &Wanted| Wanted::ALL.has(*w) && (w.0 & 4 == 0 || w.has(Wanted::SPREAD));
        let wanted = wanted.filter(known).ok_or_else(|| corrupt("unknown statistics"))?;
        let name = input.array::<NAME>();
        let name = std::str::from_utf8(&name).map_err(|_| corrupt("dtype name is not UTF-8"))?;
        let dtype: DType = name.trim_end_matches('\0').parse().map_err(|_| corrupt("unknown dtype"))?;
        let mut summary = Self::new(dtype, wanted).map_err(|_| corrupt("dtype without statistics"))?;
        [summary.cells, summary.nulls, summary.nans, summary.infinities] =
            std::array::from_fn(|_| u64::from_le_bytes(input.array()));
        summary.range = (i64::from_le_bytes(input.array()), i64::from_le_bytes(input.array()));
        if is_float(dtype) {
            summary.float_sum = (f64::from_le_bytes(input.array()), f64::from_le_bytes(input.array()));
        } else {
            summary.int_sum = i128::from_le_bytes(input.array());
        }
        let [mean, rest, m2, m2_rest] = std::array::from_fn(|_| f64::from_le_bytes(input.array()));
        summary.moments = Moments { mean, rest, m2, m2_rest };
        dispatch_element!(dtype, T => summary.check::<T>(), else => false)
            .then_some(summary)
            .ok_or_else(|| corrupt("inconsistent values"))
    }

    /// Whether the values are possible for some cells.
    fn check<T: Cell>(&self) -> bool {
        let valid = self.cells.checked_sub(self.nulls).and_then(|n| n.checked_sub(self.nans));
        let Some(valid) = valid.filter(|&n| self.infinities <= n) else { return false };
        if !T::IS_FLOAT && (self.nans, self.infinities) != (0, 0) {
            return false;
        }
        // A key round-trips through its value only when it lies in the dtype's range and is not NaN.
        let (min, max) = self.range;
        let key = |key: i64| {
            let value = T::from_key(key);
            !value.is_nan() && value.widen().key() == key
        };
        let ranged = self.wanted.has(Wanted::RANGE) && valid > 0;
        if ranged && !(min <= max && key(min) && key(max)) {
            return false;
        }
        if !ranged && self.range != (i64::MAX, i64::MIN) {
            return false;
        }
        // An empty sum is 0, and a sum of squares is not negative.
        let summed = self.wanted.has(Wanted::SUM) && valid > 0;
        (summed || (self.int_sum, self.float_sum) == (0, (0.0, 0.0)))
            && (self.wanted.has(Wanted::SPREAD) && valid > 0 || self.moments == Moments::default())
            && (self.moments.m2 >= 0.0 || self.moments.m2.is_nan())
    }
}

fn is_float(dtype: DType) -> bool {
    dispatch_element!(dtype, T => T::IS_FLOAT, else => false)
}

struct WireWriter {
    bytes: [u8; Summary::WIRE_LEN],
    at: usize,
}

impl WireWriter {
    fn put(&mut self, part: &[u8]) {
        self.bytes[self.at..self.at + part.len()].copy_from_slice(part);
        self.at += part.len();
    }
}

struct WireParser<'a> {
    bytes: &'a [u8; Summary::WIRE_LEN],
    at: usize,
}

impl WireParser<'_> {
    fn array<const N: usize>(&mut self) -> [u8; N] {
        let part = std::array::from_fn(|i| self.bytes[self.at + i]);
        self.at += N;
        part
    }
}
