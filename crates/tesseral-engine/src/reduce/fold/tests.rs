use tesseral_core::{DType, Scalar};

use super::layout::SlotPositions;
use super::norms::Norms;
use super::product::Product;
use super::*;
use crate::exact::rational::{Oracle, rounded_root};

fn matches<T: tesseral_core::Element>(op: Compare, number: Number, cells: &[T]) -> Vec<bool> {
    let predicate = Predicate { compare: vec![(op, number)], ..Predicate::default() };
    let test = predicate.test::<T>(T::DTYPE);
    cells.iter().map(|&cell| test.value(cell)).collect()
}

#[test]
fn integers_compare_without_rounding() {
    let big = (1_i64 << 53) + 1;
    let cells = [big - 1, big, big + 1];
    assert_eq!(matches(Compare::Eq, Number::Int(big.into()), &cells), [false, true, false]);
    assert_eq!(matches(Compare::Gt, Number::Int(big.into()), &cells), [false, false, true]);
    assert_eq!(matches(Compare::Ge, Number::Float(2.5), &[2_u8, 3]), [false, true]);
    assert_eq!(matches(Compare::Lt, Number::Float(2.5), &[2_u8, 3]), [true, false]);
    assert_eq!(matches(Compare::Ne, Number::Float(2.5), &[2_u8, 3]), [true, true]);
    assert_eq!(matches(Compare::Le, Number::Float(-1e300), &[i64::MIN]), [false]);
    assert_eq!(matches(Compare::Le, Number::Int(u64::MAX.into()), &[u64::MAX]), [true]);
}

#[test]
fn floats_compare_exactly_with_unrepresentable_integers() {
    let odd = Number::Int((1 << 53) + 1);
    let below = 9_007_199_254_740_992.0_f64;
    let cells = [below, below.next_up()];
    assert_eq!(matches(Compare::Gt, odd, &cells), [false, true]);
    assert_eq!(matches(Compare::Le, odd, &cells), [true, false]);
    assert_eq!(matches(Compare::Eq, odd, &cells), [false, false]);
    assert_eq!(matches(Compare::Ne, odd, &cells), [true, true]);
    let special = [f64::NAN, -0.0];
    assert_eq!(matches(Compare::Eq, Number::Int(0), &special), [false, true]);
    assert_eq!(matches(Compare::Ne, Number::Int(0), &special), [true, false]);
    assert_eq!(matches(Compare::Ge, Number::Int(0), &special), [false, true]);
}

#[test]
fn statistics_prune_only_what_cannot_match() {
    use tesseral_core::{ChunkStats, Stat};
    let stats = ChunkStats {
        cells: 10,
        nulls: Stat::Exact(0),
        nans: Stat::Exact(0),
        min: Stat::Bound(Scalar::from_element(3_i32)),
        max: Stat::Bound(Scalar::from_element(7_i32)),
        sum: Stat::Absent,
        missing: Vec::new(),
    };
    let may_match = |op, value, stats: &ChunkStats| {
        let predicate = Predicate { compare: vec![(op, Number::Int(value))], ..Predicate::default() };
        predicate.may_match(stats)
    };
    assert!(!may_match(Compare::Gt, 7, &stats) && may_match(Compare::Gt, 6, &stats));
    assert!(!may_match(Compare::Lt, 3, &stats) && may_match(Compare::Le, 3, &stats));
    assert!(!may_match(Compare::Eq, 8, &stats) && may_match(Compare::Ne, 8, &stats));
    // No comparison holds of a missing cell.
    let holed = ChunkStats { nulls: Stat::Exact(2), ..stats.clone() };
    assert!(!may_match(Compare::Lt, 0, &holed));
    let null = Predicate { null: Some(true), ..Predicate::default() };
    assert!(!null.may_match(&stats));
    assert!(null.may_match(&holed));
}

#[test]
fn products_do_not_overflow() {
    let mut ints = Product::default();
    ints.fold(&[i64::MAX, -3, 7]);
    assert_eq!(ints.value(false), Number::Int(-21 * i128::from(i64::MAX)));
    let mut more = ints.clone();
    more.fold(&[i64::MAX, i64::MAX]);
    let Number::Float(value) = more.value(false) else { panic!("beyond 128 bits") };
    let expected = -21.0 * (i64::MAX as f64).powi(3);
    assert!(((value - expected) / expected).abs() < 1e-14);
    more.fold(&[0_i64]);
    assert_eq!(more.value(false), Number::Int(0));

    let mut floats = Product::default();
    floats.fold(&[1e300, 1e300, 1e-300, 1e-300, 5e-324, 2.0_f64.powi(1000)]);
    let expected = 5e-324 * 2.0_f64.powi(1000);
    assert!((floats.value(true).to_f64() / expected - 1.0).abs() < 1e-13);
    let mut apart = Product::default();
    apart.fold(&[1e300, 1e300]);
    let mut rest = Product::default();
    rest.fold(&[1e-300, 1e-300, 5e-324, 2.0_f64.powi(1000)]);
    apart.merge(&rest);
    assert!((apart.value(true).to_f64() / expected - 1.0).abs() < 1e-13);
    let mut undefined = Product::default();
    undefined.fold(&[0.0, f64::INFINITY]);
    assert!(undefined.value(true).to_f64().is_nan());
}

#[test]
fn norms_of_very_small_and_large_values() {
    let l2_norm = |values: &[f64]| {
        let mut norms = Norms::default();
        norms.fold(values);
        norms.l2()
    };
    assert_eq!(l2_norm(&[3.0, 4.0]), 5.0);
    for scale in [1e200, 1e-200] {
        let values = [3.0 * scale, 4.0 * scale];
        assert_eq!(l2_norm(&values), rounded_root(&Oracle::new(&values).squares, 1));
        assert!((l2_norm(&values) / (5.0 * scale) - 1.0).abs() < 1e-15);
    }
    assert!(l2_norm(&[1.0, f64::NAN]).is_nan());
    assert_eq!(l2_norm(&[f64::INFINITY, 1.0]), f64::INFINITY);
    let mut ints = Norms::default();
    ints.fold(&[i64::MIN, i64::MIN]);
    assert_eq!(ints.l1(false), Number::Int(1 << 64));
    assert_eq!(ints.l2(), 2.0_f64.sqrt() * 2.0_f64.powi(63));
}

#[test]
fn sketches_meet_their_accuracy_and_merge_exactly() {
    let values: Vec<f64> = (0..10_000).map(|i| ((i * 7919) % 10_007) as f64 * 0.37 - 900.0).collect();
    let mut sorted = values.clone();
    sorted.sort_by(f64::total_cmp);
    let mut whole = Sketch::new(0.01);
    whole.fold(&values);
    let mut parts = Sketch::new(0.01);
    for part in values.chunks(777).rev() {
        let mut partial = Sketch::new(0.01);
        partial.fold(part);
        parts.merge(&partial);
    }
    assert_eq!(parts, whole);
    for q in [0.0, 0.01, 0.25, 0.5, 0.9, 1.0] {
        let expected = sorted[(q * 9999.0_f64).round() as usize];
        let got = whole.quantile(q).unwrap();
        assert!((got - expected).abs() <= 0.0101 * expected.abs(), "{q}: {got} for {expected}");
    }
    assert_eq!(Sketch::new(0.01).quantile(0.5), None);
}

#[test]
fn states_round_trip_through_serialization() {
    let reducers = [
        Reducer::Summary(crate::kernel::summary::StatSet::ALL),
        Reducer::Product,
        Reducer::Norms,
        Reducer::ArgMin,
        Reducer::ArgMax,
        Reducer::Values,
        Reducer::Sketch(0.02),
        Reducer::Histogram { bins: 3, ranges: vec![(Number::Int(0), Number::Float(2.5))] },
        Reducer::nulls(Some(Number::Float(-0.0))),
    ];
    for reducer in reducers {
        let mut state = FoldState::new(&reducer, DType::Float64).unwrap();
        state.fold(&reducer, 0, &[1.5, f64::INFINITY, -0.0, f64::NAN], &[3, 4, 5, 6]).unwrap();
        let text = serde_json::to_string(&(&reducer, &state)).unwrap();
        let (back, came): (Reducer, FoldState) = serde_json::from_str(&text).unwrap();
        // NaN is not equal to itself: the debug text shows whether the bits are the same.
        assert_eq!(serde_json::to_string(&(&back, &came)).unwrap(), text);
        let mut twice = state.clone();
        twice.merge(&reducer, &came).unwrap();
        assert_eq!(twice.cells(DType::Float64), 2 * state.cells(DType::Float64));
    }
    let mut a = FoldState::new(&Reducer::Product, DType::Int8).unwrap();
    assert!(a.merge(&Reducer::Product, &FoldState::Count(1)).is_err());
}

#[test]
fn windows_cover_their_positions() {
    let extent = 7;
    let roles = [
        AxisRole::Windows { size: 3, step: 3, before: 0, count: 3 },
        AxisRole::Windows { size: 3, step: 3, before: 2, count: 3 },
        AxisRole::Windows { size: 4, step: 1, before: 3, count: 7 },
        AxisRole::Windows { size: 2, step: 2, before: 0, count: 4 },
        AxisRole::Keep,
        AxisRole::Reduce,
        AxisRole::Groups { slots: vec![0, 1, 0, 2, 1, 1, 0], count: 3 },
    ];
    for role in &roles {
        for mask in [None, Some(vec![true, false, true, true, false, true, true])] {
            let members = |slot: u64| -> Vec<u64> {
                let inside = |p: u64| match role {
                    AxisRole::Groups { slots, .. } => slots[p as usize] == slot,
                    _ => role.window(slot, extent).contains(&p),
                };
                let kept = |p: u64| mask.as_ref().is_none_or(|m: &Vec<bool>| m[p as usize]);
                (0..extent).filter(|&p| inside(p) && kept(p)).collect()
            };
            for cut in [vec![0, 7], vec![0, 1, 4, 7], vec![0, 2, 3, 5, 6, 7]] {
                let slots = role.slots(extent).unwrap_or(1);
                let mut found: Vec<Vec<u64>> = vec![Vec::new(); slots as usize];
                for ends in cut.windows(2) {
                    let lists = SlotPositions::new(role, mask.as_deref(), ends[0], ends[1], extent);
                    for i in 0..lists.len() {
                        let slot = lists.first as usize + i;
                        found[slot].extend(lists.slot(i).map(|p| p as u64 + ends[0]));
                    }
                }
                let expected: Vec<Vec<u64>> = (0..slots).map(members).collect();
                assert_eq!(found, expected, "{role:?} {mask:?} {cut:?}");
            }
        }
    }
}
