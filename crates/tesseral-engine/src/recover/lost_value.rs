//! The value of lost cells in fields that have no nulls: a declared missing value, or else one that no intact cell has and that the
//! output declares.

use std::sync::atomic::{AtomicU32, Ordering};

use tesseral_core::dtype::Class;
use tesseral_core::{CellLen, DType, Field, Scalar, missing};

use crate::decode::columns::Cells;

/// The values of lost cells of one field.
#[derive(Debug)]
pub(super) struct LostValue {
    /// Values to choose from; empty for fields that need none.
    candidates: Vec<Scalar>,
    /// The chosen one.
    chosen: usize,
    /// Whether the candidates are declared already.
    declared: bool,
    /// One bit per candidate that an intact cell has.
    seen: AtomicU32,
    /// Whether cells were lost: 0 or 1.
    lost: AtomicU32,
}

impl LostValue {
    pub(super) fn new(field: &Field) -> Self {
        let declared = field.missing_values();
        let (candidates, declared) = match (field.nullable, declared.is_empty()) {
            (true, _) => (Vec::new(), true),
            (false, false) => (declared, true),
            (false, true) => (candidates(field), false),
        };
        Self { candidates, chosen: 0, declared, seen: AtomicU32::new(0), lost: AtomicU32::new(0) }
    }

    /// The bytes of a lost cell.
    pub(super) fn cell(&self, size: usize) -> Vec<u8> {
        let bytes = self.candidates.get(self.chosen).map(Scalar::bytes).unwrap_or_default();
        if size == 0 {
            return bytes.to_vec();
        }
        if bytes.is_empty() { vec![0; size] } else { bytes.iter().copied().cycle().take(size).collect() }
    }

    /// The value that the output has to declare.
    pub(super) fn to_declare(&self) -> Option<&Scalar> {
        self.candidates.get(self.chosen).filter(|_| !self.declared && self.is_lost())
    }

    /// Notes that cells were lost.
    pub(super) fn lose(&self) {
        self.lost.store(1, Ordering::Relaxed);
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) != 0
    }

    /// Notes which candidates are among the cells for which `intact` holds.
    pub(super) fn note_used(&self, field: &Field, cells: &Cells, intact: impl Fn(usize) -> bool) {
        if self.declared {
            return;
        }
        let mut seen = self.seen.load(Ordering::Relaxed);
        let all = u32::MAX >> (32 - self.candidates.len().clamp(1, 32));
        for i in (0..cells.len()).filter(|i| intact(*i)) {
            if seen == all {
                break;
            }
            for (bit, value) in self.candidates.iter().enumerate() {
                if seen & (1 << bit) == 0 && field.is_missing(std::slice::from_ref(value), cells.get(i)) {
                    seen |= 1 << bit;
                }
            }
        }
        self.seen.fetch_or(seen, Ordering::Relaxed);
    }

    /// Whether lost cells have a value that intact cells do not have, or none is needed. Otherwise chooses another candidate; `None`
    /// if all of them are taken.
    pub(super) fn choose(&mut self) -> Option<Settled> {
        if self.declared || !self.is_lost() {
            return Some(Settled::AsWritten);
        }
        let seen = self.seen.load(Ordering::Relaxed);
        let free = (0..self.candidates.len()).find(|bit| seen & (1 << bit) == 0)?;
        self.chosen = free;
        Some(Settled::Declare)
    }

    /// Ends the search: lost cells get the first candidate, which is not declared.
    pub(super) fn give_up(&mut self) {
        self.declared = true;
    }
}

/// The value of lost cells after the cells were copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settled {
    /// The output is correct as written.
    AsWritten,
    /// The output must declare the value, and hold it.
    Declare,
}

/// Values that data seldom has, in the order of preference.
fn candidates(field: &Field) -> Vec<Scalar> {
    let dtype = field.dtype;
    let integers = |values: &[i128]| values.iter().filter_map(|v| Scalar::from_i128(dtype, *v)).collect();
    let mut out: Vec<Scalar> = match dtype.class() {
        Class::Float => {
            // The second is what netCDF fills floats with.
            let texts = ["NaN", "9.969209968386869e36", "-9.969209968386869e36", "-32767", "-9999", "0"];
            texts.iter().filter_map(|text| Scalar::parse(dtype, text).ok()).collect()
        }
        Class::Int | Class::UInt => {
            let bits = dtype.size().map_or(0, |size| size * 8);
            let (low, high) = match dtype.class() {
                Class::Int => (-(1_i128 << (bits - 1)), (1_i128 << (bits - 1)) - 1),
                _ => (0, (1_i128 << bits) - 1),
            };
            integers(&[low, high, low + 1, high - 1, -9999, -1, high / 2, 0])
        }
        Class::Text if field.cell == CellLen::Var => Scalar::from_le_bytes(dtype, &[]).into_iter().collect(),
        // Not every one of two Booleans, of complex numbers or of fixed texts can be declared.
        _ => Vec::new(),
    };
    if dtype.class() == Class::UInt && dtype != DType::Bool {
        // Zero is a frequent value of unsigned integers.
        out.rotate_left(1);
    }
    let mut unique: Vec<Scalar> = Vec::new();
    for value in out {
        if !unique.iter().any(|known| missing::same(known, &value)) {
            unique.push(value);
        }
    }
    unique
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(field: &Field, values: &[u8]) -> Cells {
        let mut cells = Cells::for_field(field);
        values.chunks(field.cell_size().unwrap()).for_each(|cell| cells.push(cell, true));
        cells
    }

    #[test]
    fn values_of_intact_cells_are_not_chosen() {
        let field = Field::new("x", DType::UInt8);
        let mut value = LostValue::new(&field);
        assert_eq!(value.cell(1), [255]);
        value.note_used(&field, &cells(&field, &[255, 1, 7]), |_| true);
        assert_eq!(value.choose(), Some(Settled::AsWritten));
        value.lose();
        assert_eq!(value.choose(), Some(Settled::Declare));
        assert_eq!(value.cell(1), [254], "one is taken as well");
        let all: Vec<u8> = (0..=255).collect();
        value.note_used(&field, &cells(&field, &all), |_| true);
        assert_eq!(value.choose(), None);
    }

    #[test]
    fn lost_cells_are_not_intact() {
        let field = Field::new("x", DType::Int16);
        let mut value = LostValue::new(&field);
        let low = i16::MIN.to_ne_bytes();
        value.note_used(&field, &cells(&field, &[low, [0; 2]].concat()), |i| i == 1);
        value.lose();
        assert_eq!((value.choose(), value.cell(2)), (Some(Settled::Declare), low.to_vec()));
    }

    #[test]
    fn declared_values_are_used_first() {
        let mut field = Field::new("x", DType::Float32);
        assert!(LostValue::new(&field).candidates[0].as_f64().unwrap().is_nan());
        field.fill = Some(Scalar::from_element(0_f32));
        field.missing = vec![Scalar::from_element(-9999_f32)];
        let value = LostValue::new(&field);
        value.lose();
        assert_eq!(value.cell(4), (-9999_f32).to_le_bytes());
        assert_eq!(value.to_declare(), None);
        field.nullable = true;
        assert_eq!(LostValue::new(&field).cell(4), [0; 4]);
    }
}
