//! The serialized form of a [`Summary`], for partial results exchanged between processes.
//!
//! | bytes | what |
//! |------:|------|
//! |     4 | `TSUM` |
//! |     2 | version, 3 |
//! |     1 | requested statistics, the bits of [`StatSet`] |
//! | 1 + n | length of the name of the dtype, and the name |
//! | varints | cells, nulls, NaNs |
//! | 2 × 8 | keys of minimum and maximum, where there is a range |
//! |       | exact sum and sum of squares, see `exact/wire.rs` |
//!
//! Little-endian throughout. The summary of an array of temperatures takes about 50 bytes.

use tesseral_core::{DType, Error, Result, dispatch_element};

use super::{StatSet, Summary};
use crate::reduce::exact::Moments;
use crate::reduce::exact::wire::{parse_varint, write_varint};
use crate::reduce::kernel::block::{Cell, WorkType};

const MAGIC: [u8; 4] = *b"TSUM";
const VERSION: u16 = 3;

impl Summary {
    /// Serializes the state. Equal cells give equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.extend(MAGIC);
        out.extend(VERSION.to_le_bytes());
        out.push(self.wanted.0);
        let name = self.dtype.to_string();
        write_varint(name.len() as u64, &mut out);
        out.extend(name.bytes());
        for count in [self.cells, self.nulls, self.nans] {
            write_varint(count, &mut out);
        }
        if self.has_range() {
            out.extend(self.range.0.to_le_bytes());
            out.extend(self.range.1.to_le_bytes());
        }
        self.moments.write(&mut out);
        out
    }

    /// Parses a serialized state.
    ///
    /// # Errors
    /// `Corrupt` when the bytes are not a valid summary.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let corrupt = |detail: &str| Error::corrupt("summary", "partial result", None, detail);
        let truncated = || corrupt("truncated");
        let rest = bytes.strip_prefix(&MAGIC).ok_or_else(|| corrupt("bad magic"))?;
        let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(truncated)?;
        if u16::from_le_bytes(*version) != VERSION {
            return Err(corrupt("unknown version"));
        }
        let (&wanted, rest) = rest.split_first().ok_or_else(truncated)?;
        let wanted = StatSet(wanted);
        if !(StatSet::ALL.has(wanted) && (wanted.0 & 4 == 0 || wanted.has(StatSet::SPREAD))) {
            return Err(corrupt("unknown statistics"));
        }
        let (length, rest) = parse_varint(rest)?;
        let length = usize::try_from(length).map_err(|_| truncated())?;
        let (name, mut rest) = rest.split_at_checked(length).ok_or_else(truncated)?;
        let name = std::str::from_utf8(name).map_err(|_| corrupt("dtype name is not UTF-8"))?;
        let dtype: DType = name.parse().map_err(|_| corrupt("unknown dtype"))?;
        if dtype.to_string() != name {
            return Err(corrupt("unknown dtype"));
        }
        let mut summary = Self::new(dtype, wanted).map_err(|_| corrupt("dtype without statistics"))?;
        for count in [&mut summary.cells, &mut summary.nulls, &mut summary.nans] {
            (*count, rest) = parse_varint(rest)?;
        }
        if summary.has_range() {
            let (keys, after) = rest.split_first_chunk::<16>().ok_or_else(truncated)?;
            let key = |at: usize| i64::from_le_bytes(std::array::from_fn(|i| keys[at + i]));
            (summary.range, rest) = ((key(0), key(8)), after);
        }
        let (moments, rest) = Moments::parse(rest)?;
        if !rest.is_empty() {
            return Err(corrupt("bytes after the end"));
        }
        summary.moments = moments;
        dispatch_element!(dtype, T => summary.check::<T>(), else => false)
            .then_some(summary)
            .ok_or_else(|| corrupt("inconsistent values"))
    }

    /// Whether a range was requested and there are values.
    fn has_range(&self) -> bool {
        let others = self.nulls.saturating_add(self.nans);
        self.wanted.has(StatSet::RANGE) && self.cells > others
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
