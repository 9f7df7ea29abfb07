//! Test data of every dtype with edge-case values, and double-double arithmetic to check against.

use proptest::prelude::*;
use tesseral_core::{DType, Element, Scalar, Sum, TimeUnit};

use super::summary::Wanted;

/// One dtype of each kind that can be summed.
pub(crate) const DTYPES: [DType; 15] = [
    DType::Int8,
    DType::Int16,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::UInt32,
    DType::UInt64,
    DType::Float16,
    DType::BFloat16,
    DType::Float32,
    DType::Float64,
    DType::Bool,
    DType::DateTime(TimeUnit::Nanosecond),
    DType::TimeDelta(TimeUnit::Second),
];

/// The distribution of test cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Flavor {
    /// Any bits.
    Bits,
    /// NaN, infinities, zeros, subnormals, extremes and few others.
    Awkward,
    /// A large offset common to all cells, with small deviations.
    Offset,
    /// Small numbers with occasional NaNs.
    Tame,
}

pub(crate) fn flavors() -> impl Strategy<Value = Flavor> {
    prop_oneof![Just(Flavor::Bits), Just(Flavor::Awkward), Just(Flavor::Offset), Just(Flavor::Tame)]
}

/// A random number generator for test cells.
pub(crate) struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Native-endian cells.
pub(crate) fn cells(dtype: DType, flavour: Flavor, n: usize, seed: u64) -> Vec<u8> {
    let mut noise = Noise(seed);
    let size = dtype.size().unwrap();
    let mut bytes = Vec::with_capacity(n * size);
    for _ in 0..n {
        let r = noise.next();
        let float = match flavour {
            Flavor::Bits => None,
            Flavor::Awkward => match r % 16 {
                0 => Some(f64::NAN),
                1 => Some(f64::INFINITY),
                2 => Some(f64::NEG_INFINITY),
                3 => Some(-0.0),
                4 => Some(0.0),
                5 | 6 => None,
                k => Some(k as f64 - 9.0),
            },
            Flavor::Offset => Some(1_000_000.0 + (r % 8) as f64),
            Flavor::Tame if r.is_multiple_of(4096) => Some(f64::NAN),
            Flavor::Tame => Some((r % 2001) as f64 / 8.0 - 125.0),
        };
        let int = match flavour {
            Flavor::Bits => r,
            Flavor::Awkward => {
                [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 0x7FFF_FFFF, 0x8000_0000, r][(r % 8) as usize]
            }
            Flavor::Offset => 0x7654_3210_7654_3200 + r % 8,
            Flavor::Tame => r % 100,
        };
        match (dtype, float) {
            (DType::Bool, _) => bytes.push((r & 1) as u8),
            (DType::Float64, Some(x)) => bytes.extend(x.to_ne_bytes()),
            // In 32-bit floats the offset leaves a few bits for the deviations.
            (DType::Float32, Some(x)) => bytes.extend((x as f32).to_ne_bytes()),
            (DType::Float16, Some(x)) => bytes.extend(
                tesseral_core::element::f16::from_f64(if x > 1e5 { x - 998_000.0 } else { x }).to_ne_bytes(),
            ),
            (DType::BFloat16, Some(x)) => {
                bytes.extend(tesseral_core::element::bf16::from_f64(x).to_ne_bytes())
            }
            (DType::Float16 | DType::BFloat16 | DType::Float32 | DType::Float64, None) => {
                // Subnormals and the largest exponents are as frequent as all others together.
                let bits = match r >> 32 & 3 {
                    0 => r & !(0x7F << (size * 8 - 8)),
                    _ => r,
                };
                bytes.extend(&bits.to_ne_bytes()[..size]);
            }
            _ => bytes.extend(&int.to_ne_bytes()[..size]),
        }
    }
    bytes
}

/// Reinterprets bytes as cells of a type.
pub(crate) fn values<T: Element>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

/// A double-double number of about 106 bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Double(pub f64, pub f64);

impl Double {
    pub fn new<T: Element>(x: T) -> Self {
        if T::IS_FLOAT {
            return Self(x.to_f64(), 0.0);
        }
        let high = x.to_i128() as f64;
        Self(high, (x.to_i128() - high as i128) as f64)
    }

    fn normalized(a: f64, b: f64) -> Self {
        let sum = a + b;
        let part = sum - a;
        Self(sum, (a - (sum - part)) + (b - part))
    }

    pub fn add(self, other: Self) -> Self {
        let Self(sum, lost) = Self::normalized(self.0, other.0);
        let Self(low, rest) = Self::normalized(self.1, other.1);
        let Self(sum, lost) = Self::normalized(sum, lost + low);
        Self::normalized(sum, lost + rest)
    }

    pub fn sub(self, other: Self) -> Self {
        self.add(Self(-other.0, -other.1))
    }

    pub fn square(self) -> Self {
        let product = self.0 * self.0;
        Self::normalized(product, self.0.mul_add(self.0, -product) + 2.0 * self.0 * self.1)
    }

    pub fn div(self, n: f64) -> Self {
        let high = self.0 / n;
        let rest = self.sub(Self::normalized(high * n, high.mul_add(n, -(high * n))));
        Self::normalized(high, rest.0 / n)
    }
}

/// Sum, sum of magnitudes and population variance in double-double arithmetic. Not for infinities.
pub(crate) fn precise<T: Element>(values: &[T]) -> (f64, f64, f64) {
    let n = values.len() as f64;
    let sum = values.iter().fold(Double::default(), |sum, &x| sum.add(Double::new(x)));
    let magnitude = values.iter().map(|x| x.to_f64().abs()).sum();
    let mean = sum.div(n);
    let squares = values.iter().fold(Double::default(), |sum, &x| sum.add(Double::new(x).sub(mean).square()));
    (sum.0, magnitude, squares.0 / n)
}

/// Whether two floats are equal within a relative error, or both not finite.
pub(crate) fn near(got: f64, expected: f64, relative: f64) -> bool {
    if !expected.is_finite() {
        return !got.is_finite();
    }
    (got - expected).abs() <= relative * expected.abs()
}

/// The results of a kernel.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub dtype: DType,
    pub wanted: Wanted,
    pub valid: u64,
    pub nulls: u64,
    pub nans: u64,
    pub infinities: Option<u64>,
    pub range: (Option<Scalar>, Option<Scalar>),
    pub sum: Option<Sum>,
    pub mean: Option<f64>,
    pub variance: Option<f64>,
}

/// The oracle: processes one cell at a time.
pub(crate) struct Naive<T> {
    pub nulls: u64,
    pub nans: u64,
    pub values: Vec<T>,
}

impl<T: Element> Naive<T> {
    pub fn new(bytes: &[u8], validity: Option<&[u8]>, fill: Option<T>) -> Self {
        let mut naive = Self { nulls: 0, nans: 0, values: Vec::new() };
        for (i, x) in values::<T>(bytes).into_iter().enumerate() {
            let is_fill = fill.is_some_and(|f| x == f || (f.is_nan() && x.is_nan()));
            if validity.is_some_and(|v| v[i] == 0) || is_fill {
                naive.nulls += 1;
            } else if x.is_nan() {
                naive.nans += 1;
            } else {
                naive.values.push(x);
            }
        }
        naive
    }

    fn order(a: &T, b: &T) -> std::cmp::Ordering {
        a.to_i128().cmp(&b.to_i128()).then(if T::IS_FLOAT {
            a.to_f64().total_cmp(&b.to_f64())
        } else {
            std::cmp::Ordering::Equal
        })
    }

    pub fn check(&self, got: &Numbers) {
        let n = self.values.len() as u64;
        let context = format!("{got:?}");
        assert_eq!((got.valid, got.nulls, got.nans), (n, self.nulls, self.nans), "{context}");
        let infinite = self.values.iter().filter(|x| x.is_infinite()).count() as u64;
        if let Some(got) = got.infinities {
            assert_eq!(got, infinite, "{context}");
        }
        if got.wanted.has(Wanted::RANGE) {
            let scalar = |x: &T| Scalar::from_element(*x).with_dtype(got.dtype);
            let min = self.values.iter().min_by(|a, b| Self::order(a, b)).map(scalar);
            let max = self.values.iter().max_by(|a, b| Self::order(a, b)).map(scalar);
            assert_eq!(got.range, (min, max), "{context}");
        } else {
            assert_eq!(got.range, (None, None));
        }
        if !got.wanted.has(Wanted::SUM) {
            assert_eq!((got.sum, got.mean, got.variance), (None, None, None));
            return;
        }
        let (sum, magnitude, variance) = if infinite == 0 { precise(&self.values) } else { (0.0, 0.0, 0.0) };
        match got.sum.unwrap() {
            Sum::Int(got) => {
                assert_eq!(got, self.values.iter().map(|x| x.to_i128()).sum::<i128>(), "{context}")
            }
            Sum::Float(got) if infinite > 0 => {
                let naive: f64 = self.values.iter().map(|x| x.to_f64()).filter(|x| x.is_infinite()).sum();
                assert!(got == naive || (got.is_nan() && naive.is_nan()), "{got} for {naive}: {context}");
            }
            Sum::Float(got) if magnitude.is_finite() => {
                assert!((got - sum).abs() <= 4e-14 * magnitude, "sum {got} for {sum}: {context}");
            }
            // Beyond the largest float the result depends on the order of additions.
            Sum::Float(_) => {}
        }
        if n == 0 {
            assert_eq!((got.mean, got.variance), (None, None));
            return;
        }
        let tolerance = 1e-13 * magnitude / n as f64;
        if infinite == 0 && magnitude.is_finite() {
            let mean = got.mean.unwrap();
            assert!((mean - sum / n as f64).abs() <= tolerance, "mean {mean}: {context}");
        }
        if got.wanted.has(Wanted::SPREAD) {
            let got = got.variance.unwrap();
            if infinite > 0 {
                assert!(got.is_nan(), "{context}");
            } else if magnitude < 1e150 {
                // Subnormal squares have reduced precision.
                assert!(near(got, variance, 1e-11) || variance < 1e-290, "{got} for {variance}: {context}");
            }
        }
    }
}

/// Requested statistics.
pub(crate) fn wanted() -> impl Strategy<Value = Wanted> {
    prop_oneof![
        Just(Wanted::COUNTS),
        Just(Wanted::RANGE),
        Just(Wanted::SUM),
        Just(Wanted::SPREAD),
        Just(Wanted::INFINITIES),
        Just(Wanted::RANGE | Wanted::INFINITIES),
        Just(Wanted::ALL),
    ]
}

/// Validity masks: all valid, all null, or patches.
pub(crate) fn validity(n: usize, seed: u64) -> Vec<u8> {
    let mut noise = Noise(seed);
    let mut out = Vec::with_capacity(n);
    while out.len() < n {
        let r = noise.next();
        let patch = (r >> 8) as usize % 600;
        out.extend((0..patch).map(|i| match r % 3 {
            0 => 1,
            1 => 0,
            _ => u8::from(!(i + r as usize).is_multiple_of(5)) * 255,
        }));
    }
    out.truncate(n);
    out
}
