//! Serialization of numbers that JSON and similar formats cannot represent: floats as bits, wide integers in halves.

/// `f64` as its bits, which preserves NaN, infinities and -0.0.
pub(super) mod bits {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(crate) fn serialize<S: Serializer>(value: &f64, to: S) -> Result<S::Ok, S::Error> {
        value.to_bits().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
        u64::deserialize(from).map(f64::from_bits)
    }
}

/// `u128` in two halves, the low one first.
pub(super) mod halves {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[allow(clippy::cast_possible_truncation)]
    pub(crate) fn serialize<S: Serializer>(value: &u128, to: S) -> Result<S::Ok, S::Error> {
        [*value as u64, (*value >> 64) as u64].serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<u128, D::Error> {
        <[u64; 2]>::deserialize(from).map(|[low, high]| u128::from(low) | u128::from(high) << 64)
    }
}
