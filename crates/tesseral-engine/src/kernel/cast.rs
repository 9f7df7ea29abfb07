//! Conversion of cells between dtypes without wrong values: integers must fit, also the floats that they are converted to; floats
//! converted to integers must be integral; floats converted to narrower floats are rounded to nearest, but finite values never
//! become infinite.

use tesseral_core::dtype::Class;
use tesseral_core::element::{bf16, f16};
use tesseral_core::{DType, Element, Error, Result, dispatch_element};

/// An intermediate value. Integers never pass through floats.
#[derive(Clone, Copy)]
enum CastValue {
    Int(i128),
    Float(f64),
}

trait FromNumber: Element {
    fn from_number(number: CastValue) -> Option<Self>;
}

macro_rules! integers {
    ($($t:ty),*) => {$(
        impl FromNumber for $t {
            #[inline(always)]
            fn from_number(number: CastValue) -> Option<Self> {
                match number {
                    CastValue::Int(v) => v.try_into().ok(),
                    // Above 2^64 every float is integral and none fits.
                    CastValue::Float(v) if v.fract() == 0.0 && v.abs() < 1e20 => (v as i128).try_into().ok(),
                    CastValue::Float(_) => None,
                }
            }
        }
    )*};
}

macro_rules! floats {
    ($($t:ty, $int:expr, $float:expr);*) => {$(
        impl FromNumber for $t {
            #[inline(always)]
            fn from_number(number: CastValue) -> Option<Self> {
                match number {
                    CastValue::Int(v) => {
                        let value: $t = $int(v);
                        // An infinity saturates to a value that no integer of 64 bits has.
                        (value.to_f64() as i128 == v).then_some(value)
                    }
                    CastValue::Float(v) => {
                        let value: $t = $float(v);
                        (!v.is_finite() || !value.is_infinite()).then_some(value)
                    }
                }
            }
        }
    )*};
}

integers!(i8, i16, i32, i64, u8, u16, u32, u64);
floats!(
    f16, |v: i128| f16::from_f64(v as f64), f16::from_f64;
    bf16, |v: i128| bf16::from_f64(v as f64), bf16::from_f64;
    f32, |v: i128| v as f32, |v: f64| v as f32;
    f64, |v: i128| v as f64, |v: f64| v
);

/// Whether cells of one dtype can be converted to another.
pub fn supported(from: DType, to: DType) -> bool {
    let number =
        |dtype: DType| matches!(dtype.class(), Class::Bool | Class::Int | Class::UInt | Class::Float);
    let is_64_bit_signed = |dtype: DType| matches!(dtype.class(), Class::Time) || dtype == DType::Int64;
    from == to
        || (number(from) && number(to))
        || (is_64_bit_signed(from) && is_64_bit_signed(to) && from.class() != to.class())
}

/// Converts `from` cells to `to` cells. Returns the first cell that `to` cannot represent, if any.
///
/// # Errors
/// `Unsupported` for a pair that is not [`supported`]; `InvalidRequest` when the lengths differ.
pub fn cast(from: DType, cells: &[u8], to: DType, out: &mut [u8]) -> Result<Option<usize>> {
    if !supported(from, to) {
        return Err(Error::unsupported(format!("cast from {from} to {to}")));
    }
    let bool_out = to == DType::Bool && from != DType::Bool;
    dispatch_element!(from, A => dispatch_element!(to, B => convert::<A, B>(cells, out, bool_out), else => not_numeric()), else => not_numeric())
}

fn not_numeric() -> Result<Option<usize>> {
    Err(Error::unsupported("cast of cells that are not numbers"))
}

fn convert<A: Element, B: FromNumber>(cells: &[u8], out: &mut [u8], bool_out: bool) -> Result<Option<usize>> {
    let count = cells.len() / size_of::<A>();
    if cells.len() != count * size_of::<A>() || out.len() != count * size_of::<B>() {
        return Err(Error::invalid("length mismatch: the output of a cast must hold exactly its cells"));
    }
    let pairs = cells.chunks_exact(size_of::<A>()).zip(out.chunks_exact_mut(size_of::<B>()));
    for (i, (cell, out)) in pairs.enumerate() {
        let value: A = bytemuck::pod_read_unaligned(cell);
        let number =
            if A::IS_FLOAT { CastValue::Float(value.to_f64()) } else { CastValue::Int(value.to_i128()) };
        match B::from_number(number) {
            Some(value) if !bool_out || value.to_i128() <= 1 => {
                out.copy_from_slice(bytemuck::bytes_of(&value))
            }
            _ => return Ok(Some(i)),
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::Scalar;

    fn cast_text(from: DType, text: &str, to: DType) -> Option<String> {
        let cell = Scalar::parse(from, text).unwrap();
        let mut out = vec![0; to.size().unwrap()];
        let rejected = cast(from, cell.bytes(), to, &mut out).unwrap();
        rejected.is_none().then(|| Scalar::from_le_bytes(to, &out).unwrap().to_string())
    }

    #[test]
    fn values_are_exact_or_rejected() {
        for (from, text, to, expected) in [
            (DType::Int64, "9007199254740993", DType::UInt64, Some("9007199254740993")),
            (DType::Int64, "-1", DType::UInt8, None),
            (DType::Float64, "3.0", DType::Int8, Some("3")),
            (DType::Float64, "3.5", DType::Int8, None),
            (DType::Float64, "NaN", DType::Int64, None),
            (DType::Float64, "1e300", DType::Float32, None),
            (DType::Float64, "inf", DType::Float32, Some("inf")),
            (DType::Float64, "-0.0", DType::Float32, Some("-0.0")),
            (DType::Float32, "0.1", DType::Float64, Some("0.10000000149011612")),
            (DType::UInt8, "1", DType::Bool, Some("true")),
            (DType::UInt8, "2", DType::Bool, None),
            (DType::Float64, "1e19", DType::UInt64, Some("10000000000000000000")),
            (DType::Float64, "1e20", DType::UInt64, None),
            (DType::Int32, "16777216", DType::Float32, Some("16777216.0")),
            (DType::Int32, "16777217", DType::Float32, None),
            (DType::Int64, "-9007199254740993", DType::Float64, None),
            (DType::UInt64, "18446744073709551615", DType::Float64, None),
            (DType::UInt64, "9223372036854775808", DType::Float64, Some("9.223372036854776e18")),
            (DType::Int16, "2049", DType::Float16, None),
            (DType::Int32, "65536", DType::Float16, None),
            (DType::Int16, "257", DType::BFloat16, None),
            (DType::Int16, "-256", DType::BFloat16, Some("-256.0")),
        ] {
            assert_eq!(cast_text(from, text, to).as_deref(), expected, "{text} {from} as {to}");
        }
        assert!(!supported(DType::Utf8, DType::Int8));
        assert!(!supported(DType::Complex64, DType::Float32));
    }
}
