//! Serialization of numbers that JSON and similar formats cannot represent: floats as bits, exact sums as bytes.

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

/// Several `f64` as their bits.
pub(super) mod many_bits {
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(values: &[f64], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(|value| value.to_bits()))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<f64>, D::Error> {
        Vec::<u64>::deserialize(from).map(|values| values.into_iter().map(f64::from_bits).collect())
    }
}

/// Exact sums of products as their bytes.
pub(super) mod products {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::reduce::exact::Products;

    pub(crate) fn serialize<S: Serializer>(products: &Products, to: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        products.write(&mut bytes);
        bytes.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Products, D::Error> {
        let bytes = Vec::<u8>::deserialize(from)?;
        match Products::parse(&bytes).map_err(D::Error::custom)? {
            (products, []) => Ok(products),
            _ => Err(D::Error::custom("bytes after the end of a sum of products")),
        }
    }
}

/// Exact sums as their bytes.
pub(super) mod moments {
    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::reduce::exact::Moments;

    pub(crate) fn serialize<S: Serializer>(moments: &Moments, to: S) -> Result<S::Ok, S::Error> {
        let mut bytes = Vec::new();
        moments.write(&mut bytes);
        bytes.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Moments, D::Error> {
        let bytes = Vec::<u8>::deserialize(from)?;
        match Moments::parse(&bytes).map_err(D::Error::custom)? {
            (moments, []) => Ok(moments),
            _ => Err(D::Error::custom("bytes after the end of moments")),
        }
    }
}
