//! The oracle of exact sums: rational arithmetic, and rounding by a search for the nearest double.

use num_bigint::{BigInt, Sign};
use tesseral_core::Element;

/// The lowest power of two of a double.
const LOWEST: usize = 1074;

/// A finite number in units of 2^-1074, of which every double is a multiple.
pub fn units<T: Element>(value: T) -> BigInt {
    if !T::IS_FLOAT {
        return BigInt::from(value.to_i128()) << LOWEST;
    }
    let bits = value.to_f64().to_bits();
    let (exponent, fraction) = (bits >> 52 & 0x7FF, bits & ((1 << 52) - 1));
    assert!(exponent < 0x7FF, "finite numbers only");
    let magnitude = match exponent {
        0 => BigInt::from(fraction),
        _ => BigInt::from(fraction | 1 << 52) << (exponent - 1),
    };
    if bits >> 63 == 0 { magnitude } else { -magnitude }
}

/// The largest number from 0 to the bits of infinity for which a property that smaller ones have holds.
fn last(holds: impl Fn(u64) -> bool) -> u64 {
    let (mut low, mut high) = (0, f64::INFINITY.to_bits());
    while low + 1 < high {
        let middle = low.midpoint(high);
        if holds(middle) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// A double, or 2^1024 for the bits of infinity, in units.
fn units_of_bits(bits: u64) -> BigInt {
    if bits == f64::INFINITY.to_bits() {
        BigInt::from(1) << (LOWEST + 1024)
    } else {
        units(f64::from_bits(bits))
    }
}

/// The nearest double to a positive number, where `below(x)` is how `x` in half units compares with the number.
fn nearest(compare: impl Fn(&BigInt) -> std::cmp::Ordering) -> f64 {
    let floor = last(|bits| compare(&(units_of_bits(bits) << 1)).is_le());
    let middle = units_of_bits(floor) + units_of_bits(floor + 1);
    let up = match compare(&middle) {
        std::cmp::Ordering::Less => true,
        std::cmp::Ordering::Equal => floor % 2 == 1,
        std::cmp::Ordering::Greater => false,
    };
    f64::from_bits(floor + u64::from(up))
}

/// `numerator / denominator` units, rounded to nearest, ties to even.
pub fn rounded(numerator: &BigInt, denominator: u128) -> f64 {
    rounded_wide(numerator, &BigInt::from(denominator))
}

/// [`rounded`] with a denominator of any size.
pub fn rounded_wide(numerator: &BigInt, denominator: &BigInt) -> f64 {
    let magnitude = BigInt::from(numerator.magnitude().clone()) << 1;
    let value = match numerator.sign() {
        Sign::NoSign => return 0.0,
        _ => nearest(|half_units| (half_units * denominator).cmp(&magnitude)),
    };
    if numerator.sign() == Sign::Minus { -value } else { value }
}

/// The square root of `numerator / denominator` squared units, rounded to nearest, ties to even.
pub fn rounded_root(numerator: &BigInt, denominator: u128) -> f64 {
    let denominator = BigInt::from(denominator);
    let scaled = numerator << 2;
    if numerator.sign() == Sign::NoSign {
        return 0.0;
    }
    nearest(|half_units| (half_units * half_units * &denominator).cmp(&scaled))
}

/// The square root of a positive quotient, rounded to nearest, ties to even.
pub fn rounded_root_wide(numerator: &BigInt, denominator: &BigInt) -> f64 {
    let scaled = numerator << (2 * LOWEST + 2);
    nearest(|half_units| (half_units * half_units * denominator).cmp(&scaled))
}

/// The exact sums of finite values.
#[derive(Clone, Debug)]
pub struct Oracle {
    /// Number of values.
    pub n: u64,
    /// In units.
    pub sum: BigInt,
    /// In squared units.
    pub squares: BigInt,
}

impl Oracle {
    /// The sums of some values.
    pub fn new<T: Element>(values: &[T]) -> Self {
        let (mut sum, mut squares) = (BigInt::ZERO, BigInt::ZERO);
        for &value in values {
            let value = units(value);
            squares += &value * &value;
            sum += value;
        }
        Self { n: values.len() as u64, sum, squares }
    }

    /// The correctly rounded sum.
    pub fn sum(&self) -> f64 {
        rounded(&self.sum, 1)
    }

    /// The correctly rounded mean.
    pub fn mean(&self) -> f64 {
        rounded(&self.sum, u128::from(self.n))
    }

    fn spread(&self) -> BigInt {
        &self.squares * self.n - &self.sum * &self.sum
    }

    /// The correctly rounded variance with `ddof` degrees of freedom less than there are values.
    pub fn variance(&self, ddof: u64) -> f64 {
        // Squared units are 2^1074 times smaller.
        let denominator = BigInt::from(u128::from(self.n) * u128::from(self.n - ddof)) << LOWEST;
        rounded_wide(&self.spread(), &denominator)
    }

    /// The correctly rounded standard deviation, likewise.
    pub fn std(&self, ddof: u64) -> f64 {
        rounded_root(&self.spread(), u128::from(self.n) * u128::from(self.n - ddof))
    }
}

#[test]
fn the_oracle_rounds_as_ieee_754() {
    let pairs = [(1.0, 3.0), (1.0, 2.0_f64.powi(53)), (5e-324, 2.0), (0.1, 0.2), (f64::MIN_POSITIVE, 1e300)];
    for (a, b) in pairs {
        assert_eq!(rounded(&(units(a) + units(b)), 1), a + b);
        assert_eq!(rounded(&units(a), 7), a / 7.0);
        assert_eq!(rounded(&-units(a), 7), -a / 7.0);
        assert_eq!(rounded_root(&(units(b) << LOWEST), 1), b.sqrt());
        assert_eq!(rounded_root(&(units(a) * units(a)), 1), a);
    }
    assert_eq!(rounded(&(units(f64::MAX) * 2), 1), f64::INFINITY);
    assert_eq!(rounded(&units(f64::MAX), 1), f64::MAX);
}
