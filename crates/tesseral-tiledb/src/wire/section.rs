//! Sections of the fragment metadata file.

use tesseral_core::{Cursor, Result};

use super::primitive::{le64, put_text64, put_u64};

/// Parses a list of numbers: offsets, sizes, sums, null counts.
///
/// # Errors
/// `Corrupt`.
pub fn numbers(object: &str, bytes: &[u8], what: &str) -> Result<Vec<u64>> {
    let cursor = &mut Cursor::new(object, bytes);
    let count = cursor.u64(what)?;
    let numbers = cursor.u64s(count, what)?;
    cursor.finish(what)?;
    Ok(numbers)
}

/// Minima or maxima: fixed-size values, or offsets into variable-length values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtremaValues {
    fixed: Vec<u8>,
    var: Vec<u8>,
}

impl ExtremaValues {
    /// Parses `u64 fixed bytes │ u64 var bytes │ fixed part │ var part`.
    ///
    /// # Errors
    /// `Corrupt`.
    pub fn parse(object: &str, bytes: &[u8]) -> Result<Self> {
        let cursor = &mut Cursor::new(object, bytes);
        let fixed = cursor.u64("the fixed part of extrema")?;
        let var = cursor.u64("the var part of extrema")?;
        let fixed = cursor.take64(fixed, "the fixed part of extrema")?.to_vec();
        let var = cursor.take64(var, "the var part of extrema")?.to_vec();
        cursor.finish("extrema")?;
        Ok(Self { fixed, var })
    }

    /// Returns the value of a tile with values of `size` bytes; `None` if nothing is stored.
    pub fn fixed(&self, tile: usize, size: usize) -> Option<&[u8]> {
        let start = tile.checked_mul(size)?;
        self.fixed.get(start..start.checked_add(size)?)
    }

    /// Returns the variable-length value of a tile.
    pub fn var(&self, tile: usize) -> Option<&[u8]> {
        let start = le64(self.fixed(tile, 8)?);
        let end = self.fixed(tile.checked_add(1)?, 8).map_or(self.var.len() as u64, le64);
        self.var.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }
}

/// Stored statistics of a slot over the whole fragment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SlotStatistics {
    /// Minimum; empty if there is none.
    pub min: Vec<u8>,
    /// Maximum; empty if there is none.
    pub max: Vec<u8>,
    /// Bits of the sum.
    pub sum: u64,
    /// Number of null cells.
    pub nulls: u64,
}

/// Parses statistics of a whole fragment: per slot `u64 length, minimum`, `u64 length, maximum`, `u64 sum`, `u64 null count`.
///
/// # Errors
/// `Corrupt`.
pub fn statistics(object: &str, bytes: &[u8], slots: usize) -> Result<Vec<SlotStatistics>> {
    let cursor = &mut Cursor::new(object, bytes);
    let slots = cursor.count(slots as u64, 32, "the fragment's statistics")?;
    let mut out = Vec::with_capacity(slots);
    for _ in 0..slots {
        let mut value = |what: &str| -> Result<Vec<u8>> {
            let len = cursor.u64(what)?;
            Ok(cursor.take64(len, what)?.to_vec())
        };
        let (min, max) = (value("a fragment's minimum")?, value("a fragment's maximum")?);
        let sum = cursor.u64("a fragment's sum")?;
        let nulls = cursor.u64("a fragment's null count")?;
        out.push(SlotStatistics { min, max, sum, nulls });
    }
    cursor.finish("the fragment's statistics")?;
    Ok(out)
}

/// Parses processed conditions: `u64 count`, then `u64 length` and a marker each.
///
/// # Errors
/// `Corrupt`.
pub fn markers(object: &str, bytes: &[u8]) -> Result<Vec<String>> {
    let cursor = &mut Cursor::new(object, bytes);
    let count = cursor.u64("the processed conditions")?;
    let count = cursor.count(count, 8, "the processed conditions")?;
    (0..count).map(|_| cursor.text64("a processed condition")).collect()
}

/// Encodes a list of numbers.
pub fn put_numbers(numbers: &[u64], out: &mut Vec<u8>) {
    put_u64(numbers.len() as u64, out);
    numbers.iter().for_each(|n| put_u64(*n, out));
}

impl ExtremaValues {
    /// Adds the fixed-size value of the next tile.
    pub fn push_fixed(&mut self, value: &[u8]) {
        self.fixed.extend_from_slice(value);
    }

    /// Adds the variable-length value of the next tile.
    pub fn push_var(&mut self, value: &[u8]) {
        put_u64(self.var.len() as u64, &mut self.fixed);
        self.var.extend_from_slice(value);
    }

    /// Encodes the structure that [`parse`](Self::parse) reads.
    pub fn write(&self, out: &mut Vec<u8>) {
        put_u64(self.fixed.len() as u64, out);
        put_u64(self.var.len() as u64, out);
        out.extend_from_slice(&self.fixed);
        out.extend_from_slice(&self.var);
    }
}

/// Encodes processed conditions.
pub fn put_markers(markers: &[String], out: &mut Vec<u8>) {
    put_u64(markers.len() as u64, out);
    markers.iter().for_each(|marker| put_text64(marker, out));
}
