//! Sums of magnitudes and squares.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::predicate::Number;
use crate::exact::Moments;
use crate::kernel::block::Cell;

/// Exact sum of magnitudes and sum of squares.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Norms {
    cells: u64,
    nans: u64,
    #[serde(serialize_with = "moments_to", deserialize_with = "moments_from")]
    magnitudes: Moments,
}

fn moments_to<S: Serializer>(moments: &Moments, to: S) -> Result<S::Ok, S::Error> {
    let mut bytes = Vec::new();
    moments.write(&mut bytes);
    bytes.serialize(to)
}

fn moments_from<'de, D: Deserializer<'de>>(from: D) -> Result<Moments, D::Error> {
    let bytes = Vec::<u8>::deserialize(from)?;
    match Moments::parse(&bytes).map_err(D::Error::custom)? {
        (moments, []) => Ok(moments),
        _ => Err(D::Error::custom("bytes after the end of moments")),
    }
}

impl Norms {
    pub(super) fn fold<T: Cell>(&mut self, values: &[T]) {
        self.cells += values.len() as u64;
        for &value in values {
            if value.is_nan() {
                self.nans += 1;
            } else if T::IS_FLOAT {
                self.magnitudes.add_float(value.to_f64().abs(), 1, true);
            } else {
                self.magnitudes.add_integer(value.to_i128().abs(), 1, true);
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.cells += other.cells;
        self.nans += other.nans;
        self.magnitudes.merge(&other.magnitudes);
    }

    pub(super) fn cells(&self) -> u64 {
        self.cells
    }

    /// The sum of magnitudes, correctly rounded if it is not an integer of 128 bits.
    pub fn l1(&self, float: bool) -> Number {
        match self.magnitudes.integer_sum() {
            Some(sum) if !float => Number::Int(sum),
            _ if self.nans > 0 => Number::Float(f64::NAN),
            _ => Number::Float(self.magnitudes.sum()),
        }
    }

    /// The square root of the sum of squares, correctly rounded.
    pub fn l2(&self) -> f64 {
        if self.nans > 0 { f64::NAN } else { self.magnitudes.root_of_squares() }
    }
}
