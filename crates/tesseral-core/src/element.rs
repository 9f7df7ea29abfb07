//! Rust types of array elements, and the dispatch from a [`DType`] to such a type.

use bytemuck::Pod;
pub use half::{bf16, f16};

use crate::DType;

/// A Rust number type that an array can hold.
///
/// Dates, durations and bools have no separate Rust type; [`dispatch_element!`](crate::dispatch_element) maps them to `i64` and
/// `u8`.
pub trait Element: Pod + PartialOrd + Send + Sync + std::fmt::Debug + 'static {
    /// The dtype of this type.
    const DTYPE: DType;
    /// Whether values can be NaN or infinite.
    const IS_FLOAT: bool;
    /// The value as the nearest `f64`; exact for everything but 64-bit integers beyond 2^53.
    fn to_f64(self) -> f64;
    /// The value as an integer; 0 for floats, which never use this method.
    fn to_i128(self) -> i128;
    /// Whether it is a NaN.
    fn is_nan(self) -> bool {
        false
    }
    /// Whether it is +∞ or −∞.
    fn is_infinite(self) -> bool {
        false
    }
}

macro_rules! integers {
    ($($t:ty => $dtype:ident),*) => {$(
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
            const IS_FLOAT: bool = false;
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn to_i128(self) -> i128 {
                self as i128
            }
        }
    )*};
}

macro_rules! floats {
    ($($t:ty => $dtype:ident),*) => {$(
        impl Element for $t {
            const DTYPE: DType = DType::$dtype;
            const IS_FLOAT: bool = true;
            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn to_i128(self) -> i128 {
                0
            }
            #[inline(always)]
            fn is_nan(self) -> bool {
                <$t>::is_nan(self)
            }
            #[inline(always)]
            fn is_infinite(self) -> bool {
                <$t>::is_infinite(self)
            }
        }
    )*};
}

integers!(i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64, u8 => UInt8, u16 => UInt16, u32 => UInt32, u64 => UInt64);
floats!(f16 => Float16, bf16 => BFloat16, f32 => Float32, f64 => Float64);

/// Runs an expression with a type name bound to the Rust type of a dtype.
///
/// Bool is mapped to `u8`, dates and durations to `i64`. Complex numbers, bitmasks and text use the `else` arm.
///
/// ```
/// use tesseral_core::{DType, dispatch_element};
/// let size = dispatch_element!(DType::Float16, T => Some(size_of::<T>()), else => None);
/// assert_eq!(size, Some(2));
/// ```
#[macro_export]
macro_rules! dispatch_element {
    ($dtype:expr, $T:ident => $body:expr, else => $other:expr) => {
        match $dtype {
            $crate::DType::Int8 => {
                type $T = i8;
                $body
            }
            $crate::DType::Int16 => {
                type $T = i16;
                $body
            }
            $crate::DType::Int32 => {
                type $T = i32;
                $body
            }
            $crate::DType::Int64 | $crate::DType::DateTime(_) | $crate::DType::TimeDelta(_) => {
                type $T = i64;
                $body
            }
            $crate::DType::Bool | $crate::DType::UInt8 => {
                type $T = u8;
                $body
            }
            $crate::DType::UInt16 => {
                type $T = u16;
                $body
            }
            $crate::DType::UInt32 => {
                type $T = u32;
                $body
            }
            $crate::DType::UInt64 => {
                type $T = u64;
                $body
            }
            $crate::DType::Float16 => {
                type $T = $crate::element::f16;
                $body
            }
            $crate::DType::BFloat16 => {
                type $T = $crate::element::bf16;
                $body
            }
            $crate::DType::Float32 => {
                type $T = f32;
                $body
            }
            $crate::DType::Float64 => {
                type $T = f64;
                $body
            }
            _ => $other,
        }
    };
}
