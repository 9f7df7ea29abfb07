//! Test data of every dtype with edge-case values, and exact arithmetic to check against.

use proptest::prelude::*;
use tesseral_core::{DType, Element, Scalar, Sum, TimeUnit};

use super::summary::StatSet;
use tesseral_conformance::oracle::rational::Oracle;

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
    /// Numbers of similar size with all bits of their fractions.
    Similar,
    /// Zeros and numbers of many sizes.
    Mixed,
    /// One number.
    Equal,
}

pub(crate) fn flavors() -> impl Strategy<Value = Flavor> {
    prop_oneof![
        Just(Flavor::Bits),
        Just(Flavor::Awkward),
        Just(Flavor::Offset),
        Just(Flavor::Tame),
        Just(Flavor::Similar),
        Just(Flavor::Mixed),
        Just(Flavor::Equal),
    ]
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
pub(crate) fn cells(dtype: DType, flavor: Flavor, n: usize, seed: u64) -> Vec<u8> {
    let mut noise = Noise(seed);
    let size = dtype.size().unwrap();
    let mut bytes = Vec::with_capacity(n * size);
    for _ in 0..n {
        let r = noise.next();
        let float = match flavor {
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
            Flavor::Similar => Some(285.0 + 20.0 * ((r >> 11) as f64 / 2.0_f64.powi(53) - 0.5)),
            Flavor::Mixed if r.is_multiple_of(3) => Some(0.0),
            Flavor::Mixed => {
                Some(((r >> 11) as f64 / 2.0_f64.powi(53) - 0.5) * 2.0_f64.powi(-((r % 90) as i32)))
            }
            Flavor::Equal => Some((seed % 1000) as f64 * 0.1),
        };
        let int = match flavor {
            Flavor::Bits => r,
            Flavor::Awkward => {
                [0, 1, u64::MAX, 1 << 63, (1 << 63) - 1, 0x7FFF_FFFF, 0x8000_0000, r][(r % 8) as usize]
            }
            Flavor::Offset => 0x7654_3210_7654_3200 + r % 8,
            Flavor::Tame | Flavor::Similar => r % 100,
            Flavor::Mixed => r >> (r % 64),
            Flavor::Equal => seed,
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

/// The results of a kernel.
#[derive(Debug)]
pub(crate) struct Numbers {
    pub dtype: DType,
    pub wanted: StatSet,
    pub valid: u64,
    pub nulls: u64,
    pub nans: u64,
    pub infinities: Option<u64>,
    pub range: (Option<Scalar>, Option<Scalar>),
    pub sum: Option<Sum>,
    pub mean: Option<f64>,
    pub variance: Option<f64>,
    pub std: Option<f64>,
}

/// The oracle: processes one cell at a time.
pub(crate) struct Naive<T> {
    pub nulls: u64,
    pub nans: u64,
    pub values: Vec<T>,
}

impl<T: Element> Naive<T> {
    pub fn new(bytes: &[u8], validity: Option<&[u8]>, missing: &[T]) -> Self {
        let mut naive = Self { nulls: 0, nans: 0, values: Vec::new() };
        for (i, x) in values::<T>(bytes).into_iter().enumerate() {
            let is_missing = missing.iter().any(|f| x == *f || (f.is_nan() && x.is_nan()));
            if validity.is_some_and(|v| v[i] == 0) || is_missing {
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
        if got.wanted.has(StatSet::RANGE) {
            let scalar = |x: &T| Scalar::from_element(*x).with_dtype(got.dtype);
            let min = self.values.iter().min_by(|a, b| Self::order(a, b)).map(scalar);
            let max = self.values.iter().max_by(|a, b| Self::order(a, b)).map(scalar);
            assert_eq!(got.range, (min, max), "{context}");
        } else {
            assert_eq!(got.range, (None, None));
        }
        if !got.wanted.has(StatSet::SUM) {
            assert_eq!((got.sum, got.mean, got.variance), (None, None, None));
            return;
        }
        let finite: Vec<T> = self.values.iter().copied().filter(|x| !x.is_infinite()).collect();
        let special: f64 = self.values.iter().map(|x| x.to_f64()).filter(|x| x.is_infinite()).sum();
        let oracle = Oracle::new(&finite);
        let same = |got: f64, expected: f64| {
            got.to_bits() == expected.to_bits() || (got.is_nan() && expected.is_nan())
        };
        match got.sum.unwrap() {
            Sum::Int(got) => {
                assert_eq!(got, self.values.iter().map(|x| x.to_i128()).sum::<i128>(), "{context}")
            }
            Sum::Float(got) => {
                let expected = if infinite > 0 { special } else { oracle.sum() };
                assert!(same(got, expected), "sum {got} for {expected}: {context}");
            }
        }
        if n == 0 {
            assert_eq!((got.mean, got.variance), (None, None));
            return;
        }
        let expected = if infinite > 0 { special } else { oracle.mean() };
        assert!(same(got.mean.unwrap(), expected), "mean for {expected}: {context}");
        if got.wanted.has(StatSet::SPREAD) {
            let expected = if infinite > 0 { [f64::NAN; 2] } else { [oracle.variance(0), oracle.std(0)] };
            assert!(same(got.variance.unwrap(), expected[0]), "variance for {expected:?}: {context}");
            assert!(same(got.std.unwrap(), expected[1]), "std for {expected:?}: {context}");
        } else {
            assert_eq!((got.variance, got.std), (None, None));
        }
    }
}

/// Requested statistics.
pub(crate) fn wanted() -> impl Strategy<Value = StatSet> {
    prop_oneof![
        Just(StatSet::COUNTS),
        Just(StatSet::RANGE),
        Just(StatSet::SUM),
        Just(StatSet::SPREAD),
        Just(StatSet::INFINITIES),
        Just(StatSet::RANGE | StatSet::INFINITIES),
        Just(StatSet::ALL),
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
