use proptest::prelude::*;
use tesseral_core::{ErrorKind, Stat};

use super::*;
use crate::reduce::kernel::testing::{
    DTYPES, Flavor, Naive, Noise, Numbers, cells, flavors, validity, values, wanted,
};
use tesseral_conformance::oracle::rational::Oracle;

fn check<T: Element>(naive: &Naive<T>, got: &Summary) {
    naive.check(&Numbers {
        dtype: got.dtype,
        wanted: got.wanted,
        valid: got.valid(),
        nulls: got.nulls(),
        nans: got.nans(),
        infinities: got.infinities(),
        range: (got.min(), got.max()),
        sum: got.sum(),
        mean: got.mean(),
        variance: got.variance(),
        std: got.std(),
    });
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![0_usize..70, 0_usize..4097, 4000_usize..10_000]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn folds_agree_with_the_oracle(
        which in 0..DTYPES.len(),
        flavor in flavors(),
        n in lengths(),
        shift in 0_usize..8,
        wanted in wanted(),
        (masked, filled) in (any::<bool>(), 0_u8..4),
        seed in any::<u64>(),
    ) {
        let dtype = DTYPES[which];
        let data = cells(dtype, flavor, n, seed);
        let mut moved = vec![0; shift];
        moved.extend(&data);
        let mask = validity(n, seed);
        let mask = masked.then_some(&mask[..]);
        dispatch_element!(dtype, T => {
            // None, one or two of the values themselves.
            let missing: Vec<T> = values::<T>(&data).into_iter().take(usize::from(filled).saturating_sub(1)).collect();
            let scalars: Vec<Scalar> =
                missing.iter().map(|v| Scalar::from_element(*v).with_dtype(dtype)).collect();
            let naive = Naive::<T>::new(&data, mask, &missing);

            let mut whole = Summary::new(dtype, wanted).unwrap();
            whole.fold(&moved[shift..], mask, &scalars).unwrap();
            prop_assert_eq!(whole.count(), n as u64);
            check(&naive, &whole);

            // In two serialized parts, merged in either order: equal bits.
            let cut = (seed % (n as u64 + 1)) as usize;
            let parts = [(0, cut), (cut, n)].map(|(a, b)| {
                let mut part = Summary::new(dtype, wanted).unwrap();
                let bytes = &data[a * size_of::<T>()..b * size_of::<T>()];
                part.fold(bytes, mask.map(|m| &m[a..b]), &scalars).unwrap();
                let back = Summary::from_bytes(&part.to_bytes()).unwrap();
                assert_eq!(back.to_bytes(), part.to_bytes());
                back
            });
            for [first, second] in [[0, 1], [1, 0]] {
                let mut merged = parts[first].clone();
                merged.merge(&parts[second]).unwrap();
                prop_assert_eq!(merged.to_bytes(), whole.to_bytes());
            }
        }, else => unreachable!());
    }

    #[test]
    fn runs_agree_with_the_oracle(
        which in 0..DTYPES.len(),
        flavor in flavors(),
        (len, gap, runs) in prop_oneof![(1_usize..80, 0_usize..40, 1_usize..90), (1_usize..3000, 0_usize..9, 1_usize..4)],
        masked in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let dtype = DTYPES[which];
        let stride = len + gap;
        let n = stride * (runs - 1) + len;
        let data = cells(dtype, flavor, n, seed);
        let mask = validity(n, seed);
        let size = dtype.size().unwrap();
        let joined: Vec<u8> =
            (0..runs).flat_map(|r| data[r * stride * size..][..len * size].iter().copied()).collect();
        let joined_mask: Vec<u8> = (0..runs).flat_map(|r| mask[r * stride..][..len].iter().copied()).collect();
        let mut got = Summary::new(dtype, StatSet::ALL).unwrap();
        got.fold_runs(&data, len, stride, runs, masked.then_some(&mask[..]), &[]).unwrap();
        dispatch_element!(dtype, T => {
            check(&Naive::<T>::new(&joined, masked.then_some(&joined_mask[..]), &[]), &got);
        }, else => unreachable!());
        let short = got.fold_runs(&data[..data.len() - 1], len, stride, runs, None, &[]).unwrap_err();
        prop_assert!(matches!(short.kind(), ErrorKind::InvalidRequest { .. }), "{short:?}");
    }

    #[test]
    fn selected_cells_agree_with_the_oracle(
        which in 0..DTYPES.len(),
        flavor in flavors(),
        n in lengths(),
        wanted in wanted(),
        nullable in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let dtype = DTYPES[which];
        let size = dtype.size().unwrap();
        let (data, selected, valid) = (cells(dtype, flavor, n, seed), validity(n, seed), validity(n, !seed));
        let valid = nullable.then_some(&valid[..]);
        let chosen = || (0..n).filter(|i| selected[*i] != 0);
        let joined: Vec<u8> = chosen().flat_map(|i| &data[i * size..(i + 1) * size]).copied().collect();
        let joined_valid: Option<Vec<u8>> = valid.map(|valid| chosen().map(|i| valid[i]).collect());
        let mut got = Summary::new(dtype, wanted).unwrap();
        dispatch_element!(dtype, T => {
            let cells = values::<T>(&data);
            let (first, rest) = cells.split_at(n / 3);
            let part = |valid: Option<&'_ [u8]>, range: std::ops::Range<usize>| valid.map(|v| v[range].to_vec());
            let (head, tail) = (part(valid, 0..n / 3), part(valid, n / 3..n));
            got.fold_masked(first, head.as_deref(), &selected[..n / 3]).unwrap();
            got.fold_masked(rest, tail.as_deref(), &selected[n / 3..]).unwrap();
            check(&Naive::<T>::new(&joined, joined_valid.as_deref(), &[]), &got);
        }, else => unreachable!());
    }

    #[test]
    fn repeated_values_agree_with_cells(
        which in 0..DTYPES.len(),
        flavor in flavors(),
        n in 0_u64..3000,
        wanted in wanted(),
        seed in any::<u64>(),
    ) {
        let dtype = DTYPES[which];
        let cell = cells(dtype, flavor, 1, seed);
        let data = cell.repeat(n as usize);
        let mut got = Summary::new(dtype, wanted).unwrap();
        got.fold_value_repeated(&Scalar::from_le_bytes(dtype, &cell).unwrap(), n).unwrap();
        got.fold_nulls(3).unwrap();
        dispatch_element!(dtype, T => {
            let mut naive = Naive::<T>::new(&data, None, &[]);
            naive.nulls += 3;
            check(&naive, &got);
        }, else => unreachable!());
        Summary::from_bytes(&got.to_bytes()).unwrap();
    }

    #[test]
    fn statistics_replace_cells(
        which in 0..DTYPES.len(),
        flavor in flavors(),
        n in 1_usize..300,
        wanted in wanted(),
        seed in any::<u64>(),
    ) {
        let dtype = DTYPES[which];
        let data = cells(dtype, flavor, n, seed);
        let mut known = Summary::new(dtype, StatSet::ALL).unwrap();
        known.fold(&data, None, &[]).unwrap();
        let exact = |x: Option<Scalar>| x.map_or(Stat::Absent, Stat::Exact);
        let stats = ChunkStats {
            cells: n as u64,
            nulls: Stat::Exact(known.nulls()),
            nans: Stat::Exact(known.nans()),
            min: exact(known.min()),
            max: exact(known.max()),
            sum: known.sum().map_or(Stat::Absent, Stat::Exact),
            partial_sum: None,
            missing: Vec::new(),
        };
        let mut got = Summary::new(dtype, wanted).unwrap();
        let sufficed = got.merge_stats(&stats).unwrap();
        if sufficed {
            dispatch_element!(dtype, T => check(&Naive::<T>::new(&data, None, &[]), &got), else => unreachable!());
        } else {
            prop_assert_eq!(&got, &Summary::new(dtype, wanted).unwrap());
            // Sums of floats are rounded, and so are not part of an exact sum.
            let rounded = wanted.has(StatSet::SUM) && matches!(known.sum(), Some(Sum::Float(_)));
            prop_assert!(wanted.has(StatSet::SPREAD) || rounded || known.infinities() != Some(0) || !known.sum().unwrap().to_f64().is_finite());
        }
        if wanted.has(StatSet::SUM) && matches!(known.sum(), Some(Sum::Float(_))) {
            prop_assert_eq!(sufficed, known.min() == known.max());
        }
        // Bounds are never results.
        prop_assert!(!got.merge_stats(&stats.clone().weaken()).unwrap());
        let no_sum = ChunkStats { sum: Stat::Absent, ..stats };
        if known.min() != known.max() && wanted.has(StatSet::SUM) {
            prop_assert!(!got.merge_stats(&no_sum).unwrap());
        }
    }

    #[test]
    fn arbitrary_bytes_are_rejected_or_merge(bytes in prop::collection::vec(any::<u8>(), 120), at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let _ = Summary::from_bytes(&bytes);
        let mut good = Summary::new(DType::Float32, StatSet::ALL).unwrap();
        good.fold(&cells(DType::Float32, Flavor::Tame, 100, 7), None, &[]).unwrap();
        let mut bytes = good.to_bytes();
        let at = at.index(bytes.len());
        prop_assert!(Summary::from_bytes(&bytes[..at]).is_err());
        bytes[at] = to;
        if let Ok(other) = Summary::from_bytes(&bytes) {
            let _ = good.merge(&other);
            let _ = (other.min(), other.max(), other.mean(), other.std());
        }
    }
}

#[test]
fn sixteen_bit_floats_widen_exactly() {
    use tesseral_core::element::{bf16, f16};
    for bits in 0..=u16::MAX {
        let (half, brain) = (f16::from_bits(bits), bf16::from_bits(bits));
        if half.is_nan() {
            assert!(Cell::widen(half).is_nan());
        } else {
            assert_eq!(Cell::widen(half).to_bits(), half.to_f32().to_bits());
            assert_eq!(f16::from_key(Cell::widen(half).key()).to_bits(), bits);
        }
        if !brain.is_nan() {
            assert_eq!(Cell::widen(brain).to_bits(), brain.to_f32().to_bits());
            assert_eq!(bf16::from_key(Cell::widen(brain).key()).to_bits(), bits);
        }
    }
}

#[test]
fn negative_zero_sorts_before_zero() {
    let mut summary = Summary::new(DType::Float64, StatSet::ALL).unwrap();
    summary.fold(bytemuck::cast_slice(&[0.0_f64, -0.0, 0.0]), None, &[]).unwrap();
    assert_eq!(summary.min(), Some(Scalar::from_element(-0.0_f64)));
    assert_eq!(summary.max(), Some(Scalar::from_element(0.0_f64)));
}

/// Cells at 10^15 ± 1: the mean of a block is not representable as an `f64` to take squares around.
#[test]
fn a_large_offset_does_not_affect_the_variance() {
    let mut noise = Noise(1);
    let cells: Vec<f64> = (0..200_000).map(|_| 1e15 + (noise.next() % 17) as f64 / 8.0).collect();
    let mut whole = Summary::new(DType::Float64, StatSet::ALL).unwrap();
    for part in cells.chunks(777) {
        let mut summary = Summary::new(DType::Float64, StatSet::ALL).unwrap();
        summary.fold(bytemuck::cast_slice(part), None, &[]).unwrap();
        whole.merge(&summary).unwrap();
    }
    assert_eq!(whole.variance(), Some(Oracle::new(&cells).variance(0)));

    // Nanosecond timestamps of one minute of this century, as 64-bit integers.
    let cells: Vec<i64> = (0..100_000).map(|i| 1_700_000_000_000_000_000 + i % 60).collect();
    let mut whole = Summary::new(DType::Int64, StatSet::ALL).unwrap();
    whole.fold(bytemuck::cast_slice(&cells), None, &[]).unwrap();
    assert_eq!(whole.variance(), Some(Oracle::new(&cells).variance(0)));
}

#[test]
fn small_terms_survive_large_ones() {
    let mut summary = Summary::new(DType::Float64, StatSet::SUM).unwrap();
    for x in [1e100, 1.0, -1e100, 1.0] {
        summary.fold(&f64::to_ne_bytes(x), None, &[]).unwrap();
    }
    assert_eq!(summary.sum(), Some(Sum::Float(2.0)));
}

#[test]
fn mismatched_lengths_and_overflows_are_rejected() {
    assert!(matches!(
        Summary::new(DType::Complex64, StatSet::ALL).unwrap_err().kind(),
        ErrorKind::Unsupported { .. }
    ));
    let mut summary = Summary::new(DType::Int32, StatSet::ALL).unwrap();
    assert!(summary.fold(&[0; 7], None, &[]).is_err());
    assert!(summary.fold(&[0; 8], Some(&[1]), &[]).is_err());
    assert!(summary.fold(&[0; 8], None, &[Scalar::from_element(1_i64)]).is_err());
    assert!(summary.merge(&Summary::new(DType::Int64, StatSet::ALL).unwrap()).is_err());
    assert!(summary.merge(&Summary::new(DType::Int32, StatSet::SUM).unwrap()).is_err());
    assert_eq!(summary, Summary::new(DType::Int32, StatSet::ALL).unwrap());

    // Counts and sums never wrap.
    let mut summary = Summary::new(DType::UInt64, StatSet::ALL).unwrap();
    let huge = summary.fold_value_repeated(&Scalar::from_element(u64::MAX), u64::MAX).unwrap_err();
    assert!(matches!(huge.kind(), ErrorKind::Limit { .. }));
    summary.fold_nulls(u64::MAX).unwrap();
    assert!(matches!(summary.fold(&[0; 8], None, &[]).unwrap_err().kind(), ErrorKind::Limit { .. }));
}
