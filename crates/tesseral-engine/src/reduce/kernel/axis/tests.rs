use proptest::prelude::*;
use tesseral_core::ErrorKind;

use super::*;
use crate::reduce::kernel::testing::{
    DTYPES, Flavor, Naive, Numbers, cells, flavors, validity, values, wanted,
};
use tesseral_conformance::oracle::rational::Oracle;

/// The oracle: the cells of every kept position, collected one by one.
struct Collected {
    cells: Vec<Vec<u8>>,
    validity: Vec<Vec<u8>>,
}

impl Collected {
    fn new(positions: usize) -> Self {
        Self { cells: vec![Vec::new(); positions], validity: vec![Vec::new(); positions] }
    }

    fn fold(
        &mut self,
        view: &AxisCells<'_>,
        reduced: &[bool],
        kept: &[usize],
        origin: &[usize],
        size: usize,
    ) {
        for flat in 0..view.shape.iter().product() {
            let (mut rest, mut src, mut position, mut distance, mut k) = (flat, 0, 0, 1, kept.len());
            for d in (0..view.shape.len()).rev() {
                let at = rest % view.shape[d];
                rest /= view.shape[d];
                src += at * view.strides[d];
                if !reduced[d] {
                    k -= 1;
                    position += (origin[k] + at) * distance;
                    distance *= kept[k];
                }
            }
            self.cells[position].extend(&view.cells[src * size..(src + 1) * size]);
            self.validity[position].push(view.validity.map_or(1, |v| v[src]));
        }
    }

    fn check(&self, got: &AxisFold, missing: &[Scalar]) {
        dispatch_element!(got.dtype, T => {
            let missing: Vec<T> = missing.iter().filter_map(Scalar::get::<T>).collect();
            for i in 0..got.len() {
                assert_eq!(got.count(i), self.validity[i].len() as u64);
                Naive::<T>::new(&self.cells[i], Some(&self.validity[i]), &missing).check(&Numbers {
                    dtype: got.dtype,
                    wanted: got.wanted,
                    valid: got.valid(i),
                    nulls: got.nulls(i),
                    nans: got.nans(i),
                    infinities: None,
                    range: (got.min(i), got.max(i)),
                    sum: got.sum(i),
                    mean: got.mean(i),
                    variance: got.variance(i),
                    std: got.std(i),
                });
            }
        }, else => unreachable!());
        self.check_lists(got);
    }

    /// Checks the answers of adjacent positions against those of each.
    fn check_lists(&self, got: &AxisFold) {
        let first = got.len() / 7;
        let check = |found: &[f64], each: &dyn Fn(usize) -> Option<f64>| {
            for (i, found) in (first..).zip(found) {
                let wanted = each(i).unwrap_or(f64::NAN);
                assert!(found.to_bits() == wanted.to_bits() || (found.is_nan() && wanted.is_nan()));
            }
        };
        let mut found = vec![0.0; got.len() - first];
        got.means(first, &mut found);
        check(&found, &|i| got.mean(i));
        for ddof in 0..2 {
            got.spreads(first, ddof, false, &mut found);
            check(&found, &|i| got.variance_of(i, ddof));
            got.spreads(first, ddof, true, &mut found);
            check(&found, &|i| got.std_of(i, ddof));
        }
    }
}

/// A region of some layout: shape, order of axes in memory, gaps between neighbors, and which axes are reduced.
fn layouts() -> impl Strategy<Value = (Vec<usize>, Vec<usize>, Vec<usize>, Vec<bool>)> {
    (0_usize..5).prop_flat_map(|rank| {
        let most = [1_usize, 1500, 60, 12, 6][rank];
        (
            prop::collection::vec(prop_oneof![1 => Just(0_usize), 30 => 1..=most], rank),
            Just((0..rank).collect::<Vec<_>>()).prop_shuffle(),
            prop::collection::vec(prop_oneof![5 => Just(1_usize), 1 => 0_usize..4], rank),
            prop::collection::vec(any::<bool>(), rank),
        )
            // Row-major as often as all other orders together.
            .prop_flat_map(|layout| (Just(layout), any::<bool>()))
            .prop_map(|((shape, mut order, steps, reduced), shuffled)| {
                if !shuffled {
                    order.sort_unstable();
                }
                (shape, order, steps, reduced)
            })
    })
}

/// Strides, and the number of cells they span.
fn strides(shape: &[usize], order: &[usize], steps: &[usize]) -> (Vec<usize>, usize) {
    let mut strides = vec![0; shape.len()];
    let mut size = 1;
    for &d in order.iter().rev() {
        strides[d] = size * steps[d];
        size *= (shape[d] * steps[d]).max(1);
    }
    (strides, size)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn regions_agree_with_the_oracle(
        which in 0..DTYPES.len(),
        flavor in flavors(),
        (shape, order, steps, reduced) in layouts(),
        wanted in wanted(),
        boxes in 1_usize..4,
        (shift, margin, masked, filled) in (0_usize..8, 0_usize..3, any::<bool>(), 0_u8..4),
        seed in any::<u64>(),
    ) {
        let dtype = DTYPES[which];
        let size = dtype.size().unwrap();
        let (strides, n) = strides(&shape, &order, &steps);
        let kept: Vec<usize> = (0..shape.len()).filter(|&d| !reduced[d]).map(|d| shape[d] + margin).collect();
        let positions = kept.iter().product();
        let mut oracle = Collected::new(positions);
        let mut whole = AxisFold::new(dtype, wanted, &kept).unwrap();
        let mut parts = Vec::new();
        let few = cells(dtype, flavor, usize::from(filled).saturating_sub(1), seed);
        let missing: Vec<Scalar> =
            few.chunks(size).map(|cell| Scalar::from_le_bytes(dtype, cell).unwrap()).collect();
        for b in 0..boxes {
            let mut data = vec![0; shift];
            data.extend(cells(dtype, flavor, n, seed.wrapping_add(b as u64)));
            let mask = validity(n, seed ^ b as u64);
            let view = AxisCells {
                cells: &data[shift..],
                validity: masked.then_some(&mask[..]),
                shape: &shape,
                strides: &strides,
            };
            let origin = vec![b % (margin + 1); kept.len()];
            oracle.fold(&view, &reduced, &kept, &origin, size);
            whole.fold(&view, &reduced, &origin, &missing).unwrap();
            let mut part = AxisFold::new(dtype, wanted, &kept).unwrap();
            part.fold(&view, &reduced, &origin, &missing).unwrap();
            parts.push(part);

            if n > 0 && !shape.contains(&0) {
                let short = AxisCells { cells: &data[shift..data.len() - size], ..view };
                let reach: usize = shape.iter().zip(&strides).map(|(n, s)| (n - 1) * s).sum();
                prop_assert_eq!(reach + 1 == n, whole.clone().fold(&short, &reduced, &origin, &[]).is_err());
            }
        }
        oracle.check(&whole, &missing);
        let mut merged = AxisFold::new(dtype, wanted, &kept).unwrap();
        parts.iter().for_each(|part| merged.merge(part).unwrap());
        oracle.check(&merged, &missing);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(120))]

    /// Panels of many rows, or of many columns, whose cells are read once, with and without an occasional NaN.
    #[test]
    fn rows_of_columns_agree_with_the_oracle(
        dtype in prop_oneof![
            3 => Just(DType::Float32), 3 => Just(DType::Float64), 1 => Just(DType::Float16),
            1 => Just(DType::Int8), 1 => Just(DType::UInt32), 1 => Just(DType::Int64)
        ],
        flavor in flavors(),
        (rows, columns) in prop_oneof![(1_usize..300, 1_usize..20), (1_usize..20, 1_usize..700)],
        wanted in wanted(),
        (nan, boxes) in (prop::option::of(any::<prop::sample::Index>()), 1_usize..3),
        seed in any::<u64>(),
    ) {
        let size = dtype.size().unwrap();
        let mut oracle = Collected::new(columns);
        let mut fold = AxisFold::new(dtype, wanted, &[columns]).unwrap();
        for b in 0..boxes {
            let mut data = cells(dtype, flavor, rows * columns, seed ^ b as u64);
            if let (Some(at), DType::Float32 | DType::Float64) = (nan, dtype) {
                let at = at.index(rows * columns) * size;
                data[at..at + size].fill(0xFF);
            }
            // Of 64 bits, so that the cells are aligned.
            let mut aligned = vec![0_u64; data.len().div_ceil(8)];
            bytemuck::cast_slice_mut(&mut aligned)[..data.len()].copy_from_slice(&data);
            let view = AxisCells {
                cells: &bytemuck::cast_slice(&aligned)[..data.len()],
                validity: None,
                shape: &[rows, columns],
                strides: &[columns, 1],
            };
            oracle.fold(&view, &[true, false], &[columns], &[0], size);
            fold.fold(&view, &[true, false], &[0], &[]).unwrap();
        }
        oracle.check(&fold, &[]);
    }
}

#[test]
fn many_single_rows_keep_precision() {
    // As chunks of one time step each: 3000 rows of 40 columns, offset by 10^6.
    let (rows, columns) = (3000, 40);
    let data = cells(DType::Float32, Flavor::Offset, rows * columns, 3);
    let mut fold = AxisFold::new(DType::Float32, StatSet::ALL, &[columns]).unwrap();
    for row in data.chunks(columns * 4) {
        let view = AxisCells { cells: row, validity: None, shape: &[1, columns], strides: &[columns, 1] };
        fold.fold(&view, &[true, false], &[0], &[]).unwrap();
    }
    let all = values::<f32>(&data);
    for i in 0..columns {
        let column: Vec<f32> = all.iter().skip(i).step_by(columns).copied().collect();
        let oracle = Oracle::new(&column);
        assert_eq!(fold.sum(i), Some(Sum::Float(oracle.sum())));
        assert_eq!(fold.variance(i), Some(oracle.variance(0)));
    }
}

/// Reduced axes on either side of the kept one: each result sums thousands of short rows.
#[test]
fn many_short_rows_keep_small_terms() {
    let (steps, kept) = (4000, 3);
    let mut data = vec![0.0_f64; steps * kept * 2];
    for (t, step) in data.chunks_mut(kept * 2).enumerate() {
        let value = if t == 0 {
            1e16
        } else if t + 1 == steps {
            -1e16
        } else {
            1.0
        };
        step.chunks_mut(2).for_each(|row| row[0] = value);
    }
    let mut fold = AxisFold::new(DType::Float64, StatSet::SUM, &[kept]).unwrap();
    let cells = bytemuck::cast_slice(&data);
    let view = AxisCells { cells, validity: None, shape: &[steps, kept, 2], strides: &[kept * 2, 2, 1] };
    fold.fold(&view, &[true, false, true], &[0], &[]).unwrap();
    assert_eq!(fold.sum(1), Some(Sum::Float(3998.0)));
}

#[test]
fn a_repeated_cell_fills_a_region() {
    let mut fold = AxisFold::new(DType::Int16, StatSet::ALL, &[3]).unwrap();
    let view =
        AxisCells { cells: &(-7_i16).to_ne_bytes(), validity: None, shape: &[1000, 3], strides: &[0, 0] };
    fold.fold(&view, &[true, false], &[0], &[]).unwrap();
    assert_eq!((fold.sum(2), fold.variance(2)), (Some(Sum::Int(-7000)), Some(0.0)));
}

#[test]
fn mismatched_shapes_and_lengths_are_rejected() {
    let cells = [0; 64];
    let mut fold = AxisFold::new(DType::Int32, StatSet::ALL, &[4]).unwrap();
    let view = AxisCells { cells: &cells, validity: None, shape: &[4, 4], strides: &[4, 1] };
    let mut assert_rejected =
        |view: &AxisCells<'_>, reduced: &[bool], origin: &[usize], missing: &[Scalar]| {
            let error = fold.fold(view, reduced, origin, missing).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::InvalidRequest { .. }), "{error:?}");
        };
    assert_rejected(&view, &[true, false], &[1], &[]);
    assert_rejected(&view, &[true, false], &[usize::MAX], &[]);
    assert_rejected(&view, &[true, true], &[0], &[]);
    assert_rejected(&view, &[true], &[0], &[]);
    assert_rejected(&view, &[true, false], &[0], &[Scalar::from_element(0_i64)]);
    assert_rejected(&AxisCells { validity: Some(&[1; 15]), ..view }, &[true, false], &[0], &[]);
    assert_rejected(&AxisCells { strides: &[usize::MAX, 1], ..view }, &[true, false], &[0], &[]);
    assert_rejected(&AxisCells { shape: &[1 << 62, 4], strides: &[0, 1], ..view }, &[true, false], &[0], &[]);
    assert_eq!(fold.count(0), 0);
    assert!(fold.merge(&AxisFold::new(DType::Int32, StatSet::SUM, &[4]).unwrap()).is_err());
    assert!(AxisFold::new(DType::Utf8, StatSet::SUM, &[4]).is_err());
    assert!(AxisFold::new(DType::Int8, StatSet::SUM, &[usize::MAX, 2]).is_err());
}
