use tesseral_conformance::oracle::rational::{Oracle, rounded_root, rounded_wide, units};
use tesseral_core::DType;

use super::layout::SlotPositions;
use super::norms::Norms;
use super::product::Product;
use super::state::SlotValues;
use super::*;

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
    let (mut tiny, mut huge) = (Product::default(), Product::default());
    tiny.fold(&[-1e-300_f64; 1000]);
    huge.fold(&[-1e300_f64; 1001]);
    assert_eq!((tiny.value(true), huge.value(true)), (Number::Float(0.0), Number::Float(f64::NEG_INFINITY)));
    tiny.fold(&[0.0, -1.0]);
    assert!(tiny.value(true).to_f64().is_sign_negative());
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
    assert_eq!(l2_norm(&[1.0, f64::NAN]), 1.0);
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
        Reducer::Summary(crate::reduce::kernel::summary::StatSet::ALL),
        Reducer::Product,
        Reducer::Norms,
        Reducer::ArgMin,
        Reducer::ArgMax,
        Reducer::Values,
        Reducer::Sketch(0.02),
        Reducer::Histogram(Histogram::new(3, vec![(Number::Int(0), Number::Float(2.5))], true)),
        Reducer::Nulls(Some(Number::Float(-0.0))),
        Reducer::First,
        Reducer::Last,
        Reducer::Truth,
        Reducer::Weighted { spread: true },
        Reducer::WeightedValues,
        Reducer::Pairs,
    ];
    for reducer in reducers {
        let mut state = FoldState::new(&reducer, DType::Float64).unwrap();
        let cells = SlotValues {
            values: &[1.5, f64::INFINITY, -0.0, f64::NAN],
            fiber: &[3, 4, 5, 6],
            order: &[7, 6, 5, 4],
            weights: &[1.0, 0.1, 1e300, -2.5],
            paired: &[0.5, 1.0, -2.0, 4.0],
        };
        state.fold(&reducer, DType::Float64, 0, cells).unwrap();
        let text = serde_json::to_string(&(&reducer, &state)).unwrap();
        let (back, came): (Reducer, FoldState) = serde_json::from_str(&text).unwrap();
        // NaN is not equal to itself: the debug text shows whether the bits are the same.
        assert_eq!(serde_json::to_string(&(&back, &came)).unwrap(), text);
        let partial = |number| Partial {
            number,
            units: 1,
            slots: Vec::new(),
            states: vec![vec![state.clone()]],
            skipped: 0,
        };
        let results = Results { reducers: vec![reducer.clone()], partials: vec![partial(0)] };
        let bytes = results.to_bytes().unwrap();
        let mut again = Results::from_bytes(&bytes).unwrap();
        assert_eq!(again.to_bytes().unwrap(), bytes);
        for end in 0..bytes.len() {
            assert!(Results::from_bytes(&bytes[..end]).is_err(), "{reducer:?} cut at {end}");
        }
        // Neighbors over the same slots become one result, others stay apart.
        let next = |number| Results { reducers: vec![reducer.clone()], partials: vec![partial(number)] };
        again.join(next(1)).unwrap();
        again.join(next(3)).unwrap();
        assert_eq!(again.partials.iter().map(|p| (p.number, p.units)).collect::<Vec<_>>(), [(0, 2), (3, 1)]);
        assert!(again.join(Results { reducers: Vec::new(), partials: Vec::new() }).is_err());
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

fn folded<T: crate::reduce::kernel::block::Cell>(
    statistic: &Statistic,
    values: &[T],
    weights: &[f64],
    how: Finish,
) -> Answer {
    let (reducers, places) = reducers(std::slice::from_ref(statistic), !weights.is_empty(), None);
    let reducer = &reducers[places[0]];
    let order: Vec<u64> = (10..).take(values.len()).collect();
    // In two parts, the later one first.
    let mut states = [0, 1].map(|_| FoldState::new(reducer, T::DTYPE).unwrap());
    let middle = values.len() / 2;
    for (state, part) in states.iter_mut().zip([middle..values.len(), 0..middle]) {
        let weights = weights.get(part.clone()).unwrap_or(&[]);
        let (values, order) = (&values[part.clone()], &order[part]);
        state
            .fold(reducer, T::DTYPE, 0, SlotValues { values, fiber: order, order, weights, paired: &[] })
            .unwrap();
    }
    let [mut whole, rest] = states;
    whole.merge(reducer, &rest).unwrap();
    statistic.answer(&whole, T::DTYPE, how)
}

#[test]
fn statistics_by_name() {
    let answer =
        |name: &str, values: &[f64]| folded(&Statistic::parse(name).unwrap(), values, &[], Finish::default());
    let value = |v: f64| Answer::Value(tesseral_core::Scalar::from_element(v));
    let cells = [f64::NAN, 2.0, -1.0, 2.0, -0.0, -1.0, 0.0, 7.5];
    for (name, expected) in [
        ("count", Answer::Int(7)),
        ("cells", Answer::Int(8)),
        ("median", Answer::Float(0.0)),
        // Three values occur twice: the smallest.
        ("mode", value(-1.0)),
        ("any", Answer::Bool(true)),
        ("all", Answer::Bool(false)),
        ("first", value(2.0)),
        ("last", value(7.5)),
        ("argmin", Answer::Int(12)),
        ("argmax", Answer::Int(17)),
        ("min", value(-1.0)),
        ("sum", Answer::Float(9.5)),
    ] {
        assert_eq!(answer(name, &cells), expected, "{name}");
    }
    for (name, expected) in [
        ("any", Answer::Bool(false)),
        ("all", Answer::Bool(true)),
        ("mode", Answer::None),
        ("first", Answer::None),
        ("argmin", Answer::None),
        ("median", Answer::None),
        ("sum", Answer::Float(0.0)),
    ] {
        assert_eq!(answer(name, &[]), expected, "{name} of nothing");
        assert_eq!(answer(name, &[f64::NAN]), expected, "{name} of NaN");
    }
    assert_eq!(answer("mode", &[0.0, -0.0, 3.0]), value(0.0));
    assert!(Statistic::names().all(|name| Statistic::parse(name).is_some()));
    assert_eq!(Statistic::parse("average"), None);
    let strict = Finish { skip_nan: false, ..Finish::default() };
    for name in ["sum", "mean", "min", "std", "median", "mode", "product", "norm_l2"] {
        let found = folded(&Statistic::parse(name).unwrap(), &cells, &[], strict);
        assert!(matches!(found, Answer::Float(v) if v.is_nan()), "{name}");
    }
}

#[test]
fn deviations_with_degrees_of_freedom_are_rounded_once() {
    let how = |ddof| Finish { ddof, ..Finish::default() };
    let tiny = [1e-200, 2e-200, 3e-200];
    let oracle = Oracle::new(&tiny);
    for ddof in [0_u64, 1, 2] {
        let expected = oracle.std(ddof);
        assert!(expected > 8e-201);
        assert_eq!(folded(&Statistic::Std, &tiny, &[], how(ddof as f64)), Answer::Float(expected));
    }
    assert_eq!(folded(&Statistic::Std, &tiny, &[], how(3.0)), Answer::None);
    assert_eq!(
        folded(&Statistic::Var, &[1.0, 2.0, 4.0], &[], how(0.5)),
        Answer::Float(14.0 / 9.0 * (3.0 / 2.5))
    );
}

#[test]
fn weighted_means_are_exact_quotients() {
    let mean = |values: &[f64], weights: &[f64]| folded(&Statistic::Mean, values, weights, Finish::default());
    assert_eq!(mean(&[1.0, 2.0, f64::NAN], &[1.0, 3.0, 5.0]), Answer::Float(1.75));
    // Products that cancel completely, far beyond the bits of a double.
    assert_eq!(mean(&[1e300, 1.0, -1e300], &[0.25, 2.0, 0.25]), Answer::Float(0.8));
    assert_eq!(mean(&[3.0, 4.0], &[1.0, -1.0]), Answer::None);
    assert_eq!(mean(&[1e308, 1e308], &[1e300, 1e300]), Answer::Float(1e308));
    assert_eq!(mean(&[f64::INFINITY, 1.0], &[1.0, 1.0]), Answer::Float(f64::INFINITY));
    let big = [i64::MAX, i64::MAX, i64::MAX];
    let found = folded(&Statistic::Mean, &big, &[0.1, 0.2, 0.3], Finish::default());
    assert_eq!(found, Answer::Float(i64::MAX as f64));
    let sum = folded(&Statistic::Sum, &[0.1_f64, 0.3], &[3.0, -1.0], Finish::default());
    assert_eq!(sum, Answer::Float(2.7755575615628914e-17));
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    for _ in 0..200 {
        let weights: Vec<f64> = (0..9).map(|_| (next() % 1000) as f64 / 7.0 + 0.01).collect();
        let same = vec![(next() as f64) * 1e-3; 9];
        let Answer::Float(found) = mean(&same, &weights) else { panic!("no mean") };
        assert!((found.to_bits().abs_diff(same[0].to_bits())) <= 1, "{found} {}", same[0]);
    }
}

/// Values of one weight, whose sum is multiplied once, give the state of values that are multiplied one by one.
#[test]
fn runs_of_a_weight_are_values_with_that_weight() {
    fn check<T: crate::reduce::kernel::block::Cell>(values: &[T]) {
        for weight in [0.0, -0.0, 1.0, 0.1, -2.5e300, 5e-324] {
            let (mut runs, mut each) = (Weighted::default(), Weighted::default());
            for run in values.chunks(1 + values.len() / 3) {
                runs.fold_run(run, weight, &mut Vec::new());
                each.fold(run, &vec![weight; run.len()], false);
            }
            assert_eq!(runs, each, "{weight}");
            assert_eq!(runs.sum().to_bits(), each.sum().to_bits());
        }
    }
    let mut next = noise(5);
    let mut floats: Vec<f64> = (0..7000).map(|_| (next() % 2000) as f64 * 0.1 - 70.0).collect();
    check(&floats);
    check(&floats.iter().map(|x| *x as f32).collect::<Vec<_>>());
    check(&floats.iter().map(|x| tesseral_core::element::f16::from_f64(*x)).collect::<Vec<_>>());
    check(&floats.iter().map(|x| *x as i16).collect::<Vec<_>>());
    check(&(0..5000).map(|_| next()).collect::<Vec<u64>>());
    check(&(0..5000).map(|_| next() as i64).collect::<Vec<i64>>());
    (floats[3], floats[4000], floats[6000]) = (f64::NAN, f64::INFINITY, 1e308);
    check(&floats);
    check(&floats.iter().map(|x| *x as f32).collect::<Vec<_>>());
    floats[4001] = f64::NEG_INFINITY;
    check(&floats);
    check::<f32>(&[]);
}

/// Numbers without a pattern.
fn noise(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    }
}

#[test]
fn products_are_rounded_once_in_any_order() {
    let mut next = noise(88_172_645_463_325_252);
    for round in 0..40 {
        // Any mantissa; exponents around 1, so that the product of all is often in range, or extreme.
        let spread = [40, 2000][round % 2];
        let mut value = || {
            let exponent = 1023 + next() % spread - spread / 2;
            f64::from_bits(next() & !(0x7FF << 52) | exponent.clamp(0, 2046) << 52)
        };
        let values: Vec<f64> = (0..1 + round).map(|_| value()).collect();
        let exact = values.iter().skip(1).fold(units(values[0]), |product, v| product * units(*v));
        let one = units(1.0).pow(values.len() as u32 - 1);
        let expected = Number::Float(rounded_wide(&exact, &one));
        let of = |values: &[f64]| {
            let mut product = Product::default();
            product.fold(values);
            product
        };
        let mut turned = values.clone();
        turned.reverse();
        let (first, rest) = values.split_at(values.len() / 3);
        let mut merged = of(rest);
        merged.merge(&of(first));
        for product in [of(&values), of(&turned), merged] {
            let found = product.value(true);
            assert_eq!(found.to_f64().to_bits(), expected.to_f64().to_bits(), "{values:?}");
        }
    }
    let mut integers = Product::default();
    integers.fold(&[i64::MAX; 5]);
    let one = units(1_i64).pow(4);
    let expected = rounded_wide(&units(i64::MAX).pow(5), &one);
    assert_eq!(integers.value(false), Number::Float(expected));
}

#[test]
fn products_of_untrusted_bytes_are_normalized() {
    let mut product = Product::default();
    product.fold(&[3.5_f64, 0.1]);
    let text = serde_json::to_string(&product).unwrap();
    assert_eq!(serde_json::from_str::<Product>(&text).unwrap(), product);
    let mut value: serde_json::Value = serde_json::from_str(&text).unwrap();
    value["mantissa"] = serde_json::json!([1, 0, 0, 0]);
    assert!(serde_json::from_value::<Product>(value).is_err());
}

#[test]
fn weighted_variances_are_those_of_repeated_values() {
    let mut next = noise(123_456_789);
    for scale in [1.0, 1e-200, 1e150, 5e-324, 1e307] {
        for _ in 0..20 {
            let values: Vec<f64> = (0..9).map(|_| (next() % 2001) as f64 / 2000.0 * scale).collect();
            let weights: Vec<u64> = (0..9).map(|_| 1 + next() % 5).collect();
            let repeated: Vec<f64> =
                values.iter().zip(&weights).flat_map(|(v, n)| vec![*v; *n as usize]).collect();
            let oracle = Oracle::new(&repeated);
            // Common factors of weights cancel.
            for factor in [1.0, 0.1, 1e100] {
                let weights: Vec<f64> = weights.iter().map(|n| *n as f64 * factor).collect();
                let of = |statistic| match folded(&statistic, &values, &weights, Finish::default()) {
                    Answer::Float(found) => found,
                    other => panic!("{other:?}"),
                };
                let apart = |a: f64, b: f64| a.to_bits().abs_diff(b.to_bits());
                let most = u64::from(factor != 1.0);
                assert!(apart(of(Statistic::Var), oracle.variance(0)) <= 8 * most, "{values:?} {weights:?}");
                assert!(apart(of(Statistic::Std), oracle.std(0)) <= 1 + 8 * most, "{values:?} {weights:?}");
            }
        }
    }
    let of = |values: &[i64], weights: &[f64]| folded(&Statistic::Var, values, weights, Finish::default());
    assert_eq!(of(&[i64::MAX, i64::MIN], &[1.0, 1.0]), Answer::Float(2.0_f64.powi(126)));
    assert_eq!(of(&[1, 2], &[1.0, -1.0]), Answer::None);
    assert!(matches!(
        folded(&Statistic::Var, &[f64::INFINITY, 1.0], &[1.0, 1.0], Finish::default()),
        Answer::Float(v) if v.is_nan()
    ));
}
