//! Comparisons with literals, without rounding.
//!
//! A literal is converted to the dtype of the column once, and every further step compares values of that dtype:
//!
//! - An integer dtype takes the exact decimal value. A fraction or a number out of range lies between two values of the dtype, or
//!   beyond all of them, and compares accordingly: `a > 2.5` is `a > 2`, `a == 2.5` is true for no cell, `a < 300` for every
//!   `uint8`.
//! - For a float dtype, a literal with a point or an exponent is the double nearest to it, as in JSON, Python and C, and integers are
//!   exact. A dtype that does not have that number does not round it: it lies between two values, or beyond all of them. `0.2` is a
//!   `float64`, and lies right below the `float32` nearest to it.

use super::{Condition, Op};
use crate::dtype::Class;
use crate::element::{bf16, f16};
use crate::{DType, Scalar};

/// Integers of more digits are beyond every dtype.
const DIGITS: i64 = 38;
const BEYOND: i128 = i128::MAX / 2;

/// A finite number in decimal digits, reduced to what comparisons need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decimal {
    /// The largest integer that is not greater.
    floor: i128,
    /// Whether the number is that integer.
    whole: bool,
    /// Whether it is written without a point and an exponent.
    integer: bool,
    zero: bool,
    negative: bool,
}

impl Decimal {
    fn parse(text: &str) -> Option<Self> {
        let (negative, text) = match text.as_bytes().first()? {
            b'-' => (true, &text[1..]),
            b'+' => (false, &text[1..]),
            _ => (false, text),
        };
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits: Vec<u8> = whole.bytes().chain(fraction.bytes()).collect();
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
            return None;
        }
        let sign_only = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if sign_only.is_empty() || !sign_only.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let low = exponent.starts_with('-');
        let exponent = exponent.parse::<i64>().unwrap_or(if low { i64::MIN / 4 } else { i64::MAX / 4 });
        let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
        let zero = zeros == digits.len();
        // Digits before the point, counted from the first one that is not 0.
        let point = i64::try_from(whole.len()).ok()?.saturating_add(exponent) - i64::try_from(zeros).ok()?;
        let integer = mantissa.len() == text.len() && !mantissa.contains('.');
        let number = |floor, whole| Some(Self { floor, whole, integer, zero, negative });
        if zero {
            return number(0, true);
        }
        if point > DIGITS {
            return number(if negative { -BEYOND } else { BEYOND }, true);
        }
        let digits = &digits[zeros..];
        let before = usize::try_from(point).unwrap_or(0);
        let digit = |i: usize| i128::from(digits.get(i).map_or(0, |digit| digit - b'0'));
        let magnitude = (0..before).fold(0_i128, |n, i| n * 10 + digit(i));
        let whole = digits.iter().skip(before).all(|digit| *digit == b'0');
        let floor = if negative { -magnitude - i128::from(!whole) } else { magnitude };
        number(floor, whole)
    }
}

impl Condition {
    /// The comparison of a column with a number, given as text: `5`, `-0.2`, `1e20`, `inf`, `nan`. `None` if the text is not a
    /// number or the dtype has none.
    pub fn with_number(name: &str, dtype: DType, op: Op, text: &str) -> Option<Self> {
        let text = text.trim();
        let special = match text.trim_start_matches(['+', '-']).to_ascii_lowercase().as_str() {
            "inf" | "infinity" => Some(if text.starts_with('-') { f64::NEG_INFINITY } else { f64::INFINITY }),
            "nan" => Some(f64::NAN),
            _ => None,
        };
        match (dtype.class(), special) {
            (Class::Float, Some(value)) => {
                Some(Self::Compare { name: name.to_owned(), op, value: float(dtype, value)? })
            }
            (Class::Float, None) => with_float(name, dtype, op, text),
            (Class::Int | Class::UInt | Class::Bool | Class::Time, Some(value)) => Some(match (op, value) {
                (Op::Ne, _) => Self::always(name),
                (_, value) if value.is_nan() => Self::never(name),
                (Op::Lt | Op::Le, value) if value > 0.0 => Self::always(name),
                (Op::Gt | Op::Ge, value) if value < 0.0 => Self::always(name),
                _ => Self::never(name),
            }),
            (Class::Int | Class::UInt | Class::Bool | Class::Time, None) => {
                Decimal::parse(text).map(|number| with_integer(name, dtype, op, number))
            }
            _ => None,
        }
    }

    /// The value of a dtype for a number given as text, such as a fill value: the nearest one of a float dtype, otherwise
    /// the number itself. `None` if an integer dtype does not have it.
    pub fn value_of(dtype: DType, text: &str) -> Option<Scalar> {
        let near = if dtype.class() == Class::Float { nearest(dtype, text.trim()) } else { None };
        match (near, Self::with_number("", dtype, Op::Eq, text)) {
            (Some(near), Some(_)) => float(dtype, near),
            (None, Some(Self::Compare { value, .. })) => Some(value),
            _ => None,
        }
    }

    /// Fails of every cell that is not missing.
    pub fn never(name: &str) -> Self {
        Self::In { name: name.to_owned(), values: Vec::new() }
    }

    /// True for every cell that is not missing, including NaN.
    pub fn always(name: &str) -> Self {
        Self::Not(Box::new(Self::never(name)))
    }

    /// True for every number, including infinities, but not for NaN.
    pub fn is_number(name: &str, dtype: DType) -> Self {
        Self::with_number(name, dtype, Op::Ge, "-inf").unwrap_or_else(|| Self::always(name))
    }

    /// True for finite numbers.
    pub fn is_finite(name: &str, dtype: DType) -> Self {
        let bounds = [(Op::Gt, "-inf"), (Op::Lt, "inf")];
        Self::And(bounds.iter().filter_map(|(op, text)| Self::with_number(name, dtype, *op, text)).collect())
    }

    /// A comparison with a number right above `below`, which the dtype does not have.
    fn between(name: &str, op: Op, below: Scalar) -> Self {
        let compare = |op| Self::Compare { name: name.to_owned(), op, value: below };
        match op {
            Op::Gt | Op::Ge => compare(Op::Gt),
            Op::Lt | Op::Le => compare(Op::Le),
            Op::Eq => Self::never(name),
            Op::Ne => Self::always(name),
        }
    }
}

fn with_integer(name: &str, dtype: DType, op: Op, number: Decimal) -> Condition {
    match Scalar::from_i128(dtype, number.floor) {
        Some(value) if number.whole => Condition::Compare { name: name.to_owned(), op, value },
        Some(below) => Condition::between(name, op, below),
        None => {
            let above_all = number.floor > 0;
            match op {
                Op::Ne => Condition::always(name),
                Op::Lt | Op::Le if above_all => Condition::always(name),
                Op::Gt | Op::Ge if !above_all => Condition::always(name),
                _ => Condition::never(name),
            }
        }
    }
}

fn with_float(name: &str, dtype: DType, op: Op, text: &str) -> Option<Condition> {
    let number = Decimal::parse(text)?;
    let near = nearest(dtype, text)?;
    let below = if near.is_infinite() {
        // The largest value, or −∞.
        Some(if number.negative { near } else { next_down(dtype, near) })
    } else if near == 0.0 && !number.zero {
        Some(if number.negative { next_down(dtype, 0.0) } else { 0.0 })
    } else if number.integer && number.floor.abs() < BEYOND && near as i128 != number.floor {
        Some(if near as i128 > number.floor { next_down(dtype, near) } else { near })
    } else {
        let double: f64 = if number.integer { near } else { text.parse().ok()? };
        (near != double).then(|| if near > double { next_down(dtype, near) } else { near })
    };
    match below {
        Some(below) => float(dtype, below).map(|below| Condition::between(name, op, below)),
        None => float(dtype, near).map(|value| Condition::Compare { name: name.to_owned(), op, value }),
    }
}

/// The nearest value of a float dtype, as a double, which is exact for all of them.
fn nearest(dtype: DType, text: &str) -> Option<f64> {
    match dtype {
        DType::Float32 => text.parse::<f32>().ok().map(f64::from),
        DType::Float64 => text.parse().ok(),
        DType::Float16 => text.parse::<f64>().ok().map(|v| f16::from_f64(v).to_f64()),
        DType::BFloat16 => text.parse::<f64>().ok().map(|v| bf16::from_f64(v).to_f64()),
        _ => None,
    }
}

/// A value of a float dtype from a double that it can hold.
fn float(dtype: DType, value: f64) -> Option<Scalar> {
    match dtype {
        DType::Float32 => Some(Scalar::from_element(value as f32)),
        DType::Float64 => Some(Scalar::from_element(value)),
        DType::Float16 => Some(Scalar::from_element(f16::from_f64(value))),
        DType::BFloat16 => Some(Scalar::from_element(bf16::from_f64(value))),
        _ => None,
    }
}

/// The next smaller value of a float dtype.
fn next_down(dtype: DType, value: f64) -> f64 {
    let half = |bits: u16| match bits {
        0 | 0x8000 => 0x8001,
        bits if bits & 0x8000 != 0 => bits + 1,
        bits => bits - 1,
    };
    match dtype {
        DType::Float32 => f64::from((value as f32).next_down()),
        DType::Float16 => f16::from_bits(half(f16::from_f64(value).to_bits())).to_f64(),
        DType::BFloat16 => bf16::from_bits(half(bf16::from_f64(value).to_bits())).to_f64(),
        _ => value.next_down(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPS: [Op; 6] = [Op::Lt, Op::Le, Op::Gt, Op::Ge, Op::Eq, Op::Ne];

    /// The outcome of a condition made here for a cell that is not missing.
    fn holds(condition: &Condition, cell: &Scalar) -> bool {
        match condition {
            Condition::Compare { op, value, .. } => {
                assert_eq!(value.dtype(), cell.dtype(), "a literal has the dtype of its column");
                op.holds(cell.compare(value))
            }
            Condition::In { values, .. } => values.iter().any(|v| Op::Eq.holds(cell.compare(v))),
            Condition::Not(part) => !holds(part, cell),
            other => panic!("{other:?}"),
        }
    }

    fn met(text: &str, cell: &Scalar) -> [bool; 6] {
        OPS.map(|op| holds(&Condition::with_number("v", cell.dtype(), op, text).unwrap(), cell))
    }

    const LESS: [bool; 6] = [true, true, false, false, false, true];
    const EQUAL: [bool; 6] = [false, true, false, true, true, false];
    const GREATER: [bool; 6] = [false, false, true, true, false, true];
    const UNORDERED: [bool; 6] = [false, false, false, false, false, true];

    #[test]
    fn integers_compare_with_the_exact_decimal() {
        for (cell, text, expected) in [
            (2_i128, "2.5", LESS),
            (3, "2.5", GREATER),
            (-3, "-2.5", LESS),
            (-2, "-2.5", GREATER),
            (5, "5", EQUAL),
            (5, "5.0", EQUAL),
            (5, "0.5e1", EQUAL),
            (5, "50e-1", EQUAL),
            (0, "-0.0", EQUAL),
            (0, "1e-400", LESS),
            (0, "-1e-400", GREATER),
            (i64::MAX.into(), "9223372036854775807.5", LESS),
            (i64::MAX.into(), "9223372036854775808", LESS),
            (i64::MIN.into(), "-9223372036854775808.5", GREATER),
            (7, "1e400", LESS),
            (7, "-1e99999999999999999999", GREATER),
            (7, "inf", LESS),
            (7, "-Infinity", GREATER),
            (7, "nan", UNORDERED),
        ] {
            let cell = Scalar::from_i128(DType::Int64, cell).unwrap();
            assert_eq!(met(text, &cell), expected, "{cell} and {text}");
        }
        let small = Scalar::from_element(200_u8);
        assert_eq!((met("300", &small), met("-1", &small)), (LESS, GREATER));
        let large = Scalar::from_element(u64::MAX);
        assert_eq!(met("18446744073709551615", &large), EQUAL);
        assert_eq!(met("18446744073709551614.99", &large), GREATER);
        assert_eq!(met("18446744073709551616", &large), LESS);
    }

    #[test]
    fn floats_compare_with_the_double() {
        let single = |v: f32| Scalar::from_element(v);
        assert_eq!(met("0.2", &Scalar::from_element(0.2_f64)), EQUAL);
        // The nearest float32 is larger, the nearest float16 and bfloat16 are smaller.
        assert_eq!((met("0.2", &single(0.2)), met("0.2", &single(0.2_f32.next_down()))), (GREATER, LESS));
        assert_eq!(met("0.2", &Scalar::from_element(f16::from_f64(0.2))), LESS);
        assert_eq!(met("-0.2", &Scalar::from_element(f16::from_f64(-0.2))), GREATER);
        assert_eq!(met("0.2", &Scalar::from_element(bf16::from_f64(0.2))), GREATER);
        assert_eq!(met("0.20000000298023224", &single(0.2)), EQUAL);
        assert_eq!((met("0.25", &single(0.25)), met("2.5e-1", &single(0.25))), (EQUAL, EQUAL));
        assert_eq!(met("0", &single(-0.0)), EQUAL);
        assert_eq!(met("nan", &single(f32::NAN)), UNORDERED);
        assert_eq!(met("0.2", &single(f32::NAN)), UNORDERED);
        assert_eq!(met("inf", &single(f32::INFINITY)), EQUAL);
    }

    #[test]
    fn comparisons_agree_with_those_of_doubles() {
        let texts = [
            "0.1",
            "-0.3",
            "1.5",
            "65504.5",
            "1e-8",
            "-6e-8",
            "3.4028234e38",
            "3.4028235e38",
            "1e300",
            "5e-324",
        ];
        for text in texts {
            let double: f64 = text.parse().unwrap();
            let near = double as f32;
            for cell in [near, near.next_up(), near.next_down(), 0.0, f32::MAX, f32::NEG_INFINITY] {
                let expected = OPS.map(|op| op.holds(f64::from(cell).partial_cmp(&double)));
                assert_eq!(met(text, &Scalar::from_element(cell)), expected, "{cell} and {text}");
            }
            for bits in [0, 1, 0x8001, 0x3C00, 0x7BFF, 0xFC00, f16::from_f64(double).to_bits()] {
                let cell = f16::from_bits(bits);
                let expected = OPS.map(|op| op.holds(cell.to_f64().partial_cmp(&double)));
                assert_eq!(met(text, &Scalar::from_element(cell)), expected, "{cell} and {text}");
            }
        }
    }

    #[test]
    fn values_of_a_dtype_are_the_nearest() {
        let value_of = |dtype, text| Condition::value_of(dtype, text);
        assert_eq!(value_of(DType::Float32, "-9999.9"), Some(Scalar::from_element(-9999.9_f32)));
        assert_eq!(value_of(DType::Int16, "5.0"), Some(Scalar::from_element(5_i16)));
        assert_eq!(
            (value_of(DType::Int16, "5.5"), value_of(DType::Int16, "70000"), value_of(DType::Float32, "x")),
            (None, None, None)
        );
    }

    #[test]
    fn numbers_that_a_float_cannot_hold_stay_exact() {
        let single = |v: f32| Scalar::from_element(v);
        for (cell, text, expected) in [
            (16_777_216.0, "16777217", LESS),
            (16_777_218.0, "16777217", GREATER),
            (f32::MAX, "1e39", LESS),
            (f32::INFINITY, "1e39", GREATER),
            (f32::NEG_INFINITY, "-1e39", LESS),
            (f32::MIN, "-1e39", GREATER),
            (0.0, "1e-60", LESS),
            (f32::from_bits(1), "1e-60", GREATER),
            (-0.0, "-1e-60", GREATER),
            (-f32::from_bits(1), "-1e-60", LESS),
        ] {
            assert_eq!(met(text, &single(cell)), expected, "{cell} and {text}");
        }
        let half = |v: f64| Scalar::from_element(f16::from_f64(v));
        assert_eq!((met("70000.0", &half(65504.0)), met("2049", &half(2048.0))), (LESS, LESS));
        assert_eq!(met("9007199254740993", &Scalar::from_element(9_007_199_254_740_992.0_f64)), LESS);
    }

    #[test]
    fn text_that_is_no_number_is_refused() {
        for text in ["", "-", ".", "e5", "1e", "1e+", "0x10", "1_000", "1.2.3", "--1", "five"] {
            for dtype in [DType::Int32, DType::Float64] {
                assert_eq!(Condition::with_number("v", dtype, Op::Eq, text), None, "{text:?}");
            }
        }
        assert_eq!(Condition::with_number("v", DType::Utf8, Op::Eq, "1"), None);
    }
}
