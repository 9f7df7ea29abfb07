use num_bigint::BigInt;
use proptest::prelude::*;
use tesseral_conformance::oracle::rational::{self, Oracle, rounded, units};

use super::block::{Real, add_block};
use super::columns::ColumnSums;
use super::digits::Digits;
use super::fixed::Fixed;
use super::slots::{SlotRange, SlotSums};
use super::{Moments, Products};
use crate::reduce::kernel::block::WorkType;
use crate::reduce::kernel::testing::Noise;

/// Floats of one of several distributions, from tame to any bits; finite.
fn floats(kind: u64, n: usize, seed: u64) -> Vec<f64> {
    let mut noise = Noise(seed);
    let scale = 2.0_f64.powi((noise.next() % 200) as i32 - 100);
    (0..n)
        .map(|_| {
            let r = noise.next();
            let uniform = (r >> 11) as f64 / 2.0_f64.powi(53) - 0.5;
            let x = match kind {
                // Like temperatures.
                0 => 280.0 + 40.0 * uniform,
                // Like rain: zeros and many magnitudes.
                1 if r.is_multiple_of(3) => 0.0,
                1 => uniform * 2.0_f64.powi(-((r % 40) as i32)),
                // Terms that cancel, among small ones.
                2 => [1e100, -1e100, 1.0, -0.0, 1e-30][(r % 5) as usize],
                // The ends of the range.
                3 => [f64::MAX, -f64::MAX, 5e-324, -5e-324, f64::MIN_POSITIVE, 1e300, 1e-200, -1.0]
                    [(r % 8) as usize],
                4 => uniform * scale * 2.0_f64.powi((r % 8) as i32),
                // Subnormal.
                5 => f64::from_bits(r & 0x800F_FFFF_FFFF_FFFF),
                6 => 3e-200 * (1.0 + (r % 5) as f64),
                _ => f64::from_bits(r),
            };
            if x.is_finite() { x } else { uniform }
        })
        .collect()
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![1_usize..6, 1_usize..300, 1000_usize..5000]
}

/// Moments of blocks, cut at random lengths.
fn moments<W: WorkType>(cells: &[W], noise: &mut Noise) -> Moments {
    let mut all = Moments::default();
    let mut rest = cells;
    while !rest.is_empty() {
        let most = rest.len().min(W::BLOCK);
        let (block, more) = rest.split_at(1 + noise.next() as usize % most);
        let mut part = Moments::default();
        assert!(part.add_block(block, true));
        if noise.next().is_multiple_of(2) {
            let mut bytes = Vec::new();
            part.write(&mut bytes);
            let (back, left) = Moments::parse(&bytes).unwrap();
            assert!(left.is_empty() && back == part);
            part = back;
        }
        all.merge(&part);
        rest = more;
    }
    all
}

fn check<W: WorkType + tesseral_core::Element>(cells: &[W], seed: u64) {
    let (mut noise, n) = (Noise(seed), cells.len() as u64);
    let oracle = Oracle::new(cells);
    let mut shuffled = cells.to_vec();
    for i in (1..shuffled.len()).rev() {
        shuffled.swap(i, noise.next() as usize % (i + 1));
    }
    let variants = [moments(cells, &mut noise), moments(&shuffled, &mut noise)];
    assert_eq!(variants[0], variants[1]);
    for got in variants {
        assert_eq!(got.sum().to_bits(), oracle.sum().to_bits());
        assert_eq!(got.mean(n).to_bits(), oracle.mean().to_bits());
        for ddof in 0..n.min(2) {
            assert_eq!(got.variance(n, ddof).to_bits(), oracle.variance(ddof).to_bits());
            assert_eq!(got.std(n, ddof).to_bits(), oracle.std(ddof).to_bits());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn floats_agree_with_rational_arithmetic(kind in 0_u64..8, n in lengths(), seed in any::<u64>()) {
        let cells = floats(kind, n, seed);
        check(&cells, seed);
        let narrow: Vec<f32> = cells.iter().map(|&x| x as f32).map(|x| if x.is_finite() { x } else { f32::MAX }).collect();
        check(&narrow, seed);
    }

    #[test]
    fn integers_agree_with_rational_arithmetic(n in lengths(), small in any::<bool>(), seed in any::<u64>()) {
        let mut noise = Noise(seed);
        let cells: Vec<u64> = (0..n)
            .map(|_| match noise.next() {
                r if small => r % 100,
                r => [r, u64::MAX, 1 << 63, 0, r >> 33][(r % 5) as usize],
            })
            .collect();
        check(&cells, seed);
        check(&cells.iter().map(|&x| x as i64).collect::<Vec<_>>(), seed);
        check(&cells.iter().map(|&x| x as u32).collect::<Vec<_>>(), seed);
        check(&cells.iter().map(|&x| x as i32).collect::<Vec<_>>(), seed);
        check(&cells.iter().map(|&x| x as i16).collect::<Vec<_>>(), seed);
        check(&cells.iter().map(|&x| x as u16).collect::<Vec<_>>(), seed);
        check(&cells.iter().map(|&x| x as u8).collect::<Vec<_>>(), seed);
        check(&cells.iter().map(|&x| x as i8).collect::<Vec<_>>(), seed);
    }

    #[test]
    fn repeated_values_are_products(value in any::<f64>(), integer in any::<i64>(), n in 1_u64..) {
        prop_assume!(value.is_finite());
        let mut got = Moments::default();
        got.add_float(value, n, true);
        prop_assert_eq!(got.sum().to_bits(), rounded(&(units(value) * n), 1).to_bits());
        prop_assert_eq!(got.mean(n).to_bits(), (value + 0.0).to_bits());
        prop_assert_eq!((got.variance(n, 0), got.std(n, 0)), (0.0, 0.0));
        let mut got = Moments::default();
        got.add_integer(i128::from(integer), n, true);
        prop_assert_eq!(got.integer_sum(), Some(i128::from(integer) * i128::from(n)));
        prop_assert_eq!(got.variance(n, 0), 0.0);
    }

    #[test]
    fn covariances_agree_with_rational_arithmetic(kinds in (0_u64..8, 0_u64..8), n in lengths(), seed in any::<u64>()) {
        let (x, y) = (floats(kinds.0, n, seed), floats(kinds.1, n, !seed));
        let n = n as u64;
        let (mut products, mut noise) = (Products::default(), Noise(seed));
        products.add_floats(&x, &y);
        let (a, b) = (moments(&x, &mut noise), moments(&y, &mut noise));
        let product: BigInt = x.iter().zip(&y).map(|(&x, &y)| units(x) * units(y)).sum();
        let spread = product * n - Oracle::new(&x).sum * Oracle::new(&y).sum;
        // The oracle rounds units; these are squared ones.
        let expected = rounded_squared(&spread, u128::from(n) * u128::from(n));
        prop_assert_eq!(products.covariance(&a, &b, n, 0).to_bits(), expected.to_bits());
        let correlation = products.correlation(&a, &b, n);
        prop_assert!(correlation.abs() <= 1.0 || correlation.is_nan());

        let integers = |x: &[f64]| x.iter().map(|x| i128::from(x.to_bits() as i64)).collect::<Vec<_>>();
        let (x, y) = (integers(&x), integers(&y));
        let mut products = Products::default();
        x.iter().zip(&y).for_each(|(&x, &y)| products.add_integers(x, y));
        let [a, b] = [&x, &y].map(|x| {
            let mut moments = Moments::default();
            x.iter().for_each(|&x| moments.add_integer(x, 1, true));
            moments
        });
        let big = |x: &[i128]| x.iter().map(|&x| BigInt::from(x)).collect::<Vec<_>>();
        let (x, y) = (big(&x), big(&y));
        let product: BigInt = x.iter().zip(&y).map(|(x, y)| x * y).sum();
        let spread: BigInt = product * n - x.iter().sum::<BigInt>() * y.iter().sum::<BigInt>();
        let expected = rounded(&(spread << 1074), u128::from(n) * u128::from(n));
        prop_assert_eq!(products.covariance(&a, &b, n, 0).to_bits(), expected.to_bits());
    }

    #[test]
    fn slots_agree_with_rational_arithmetic(
        kind in 0_u64..8,
        (slots, step, rows) in (1_usize..40, 1_usize..3, 1_usize..200),
        seed in any::<u64>(),
    ) {
        let range = SlotRange { first: 1, step };
        let count = 1 + slots * step;
        let cells = floats(kind, slots * rows, seed);
        let (mut one, mut other) = (SlotSums::new(count), SlotSums::new(count));
        for (r, row) in cells.chunks(slots).enumerate() {
            let sums = if r % 3 == 0 { &mut one } else { &mut other };
            let mut terms = row.to_vec();
            for (i, term) in terms.iter_mut().enumerate().filter(|(_, x)| x.abs() >= SlotSums::LIMIT) {
                sums.limbs(range.at(i)).add_f64(*term);
                *term = 0.0;
            }
            sums.add_terms(range, &mut terms);
        }
        one.merge(&other);
        for i in 0..slots {
            let column: Vec<f64> = cells.iter().skip(i).step_by(slots).copied().collect();
            let oracle = Oracle::new(&column);
            prop_assert_eq!(one.value(range.at(i)).to_bits(), oracle.sum().to_bits());
            prop_assert_eq!(one.mean(range.at(i), rows as u64).to_bits(), oracle.mean().to_bits());
            let mut copy = SlotSums::new(1);
            copy.add(0, &one.exact(range.at(i)));
            prop_assert_eq!(copy.value(0).to_bits(), oracle.sum().to_bits());
        }
    }

    #[test]
    fn answers_of_slots_are_those_of_integers(
        kind in 0_u64..9,
        (slots, rows) in (1_usize..40, 1_usize..200),
        (narrow, near, seed) in (any::<bool>(), any::<bool>(), any::<u64>()),
    ) {
        let mut cells = floats(kind, slots * rows, seed);
        if kind == 8 {
            let first = cells[..slots].to_vec();
            cells.chunks_mut(slots).for_each(|row| row.copy_from_slice(&first));
        }
        if narrow {
            cells.iter_mut().for_each(|x| *x = f64::from((*x as f32).clamp(f32::MIN, f32::MAX)));
        }
        let range = SlotRange { first: 0, step: 1 };
        let (mut sums, mut squares) = (SlotSums::new(slots), SlotSums::new(slots));
        let small: Vec<f32> = cells.iter().map(|&x| x as f32).collect();
        let at_once = match narrow {
            true => ColumnSums::default().add(
                |r| &small[r * slots..(r + 1) * slots], (rows, near), &mut sums, Some(&mut squares), range,
            ),
            false => ColumnSums::default().add(
                |r| &cells[r * slots..(r + 1) * slots], (rows, near), &mut sums, None, range,
            ),
        };
        prop_assert!(at_once || kind != 0, "similar cells are added at once");
        for (i, &x) in cells.iter().enumerate() {
            if !at_once {
                sums.add(i % slots, &{ let mut sum = Fixed::default(); sum.add_f64(x); sum });
            }
            if !at_once || !narrow {
                squares.add(i % slots, &{ let mut sum = Fixed::default(); sum.add_square(x); sum });
            }
        }
        let mut found = vec![0.0; slots];
        let oracle = |i: usize| {
            Oracle::new(&cells.iter().skip(i).step_by(slots).copied().collect::<Vec<_>>())
        };
        let n = rows as u64;
        sums.means(0, n, &mut found);
        for (i, found) in found.iter().enumerate() {
            prop_assert_eq!(found.to_bits(), oracle(i).mean().to_bits());
        }
        for ddof in (0..2).filter(|ddof| *ddof < n) {
            for root in [false, true] {
                sums.spreads(&squares, (0, n, ddof), root, &mut found);
                // Integers decide the rest, which is little.
                let open = found.iter().filter(|x| x.is_nan()).count();
                prop_assert!(open == 0 || kind != 0, "{open} of {slots} are open");
                for (i, found) in found.iter().enumerate().filter(|(_, x)| !x.is_nan()) {
                    let wanted = if root { oracle(i).std(ddof) } else { oracle(i).variance(ddof) };
                    prop_assert_eq!(found.to_bits(), wanted.to_bits());
                }
            }
        }
    }

    #[test]
    fn arbitrary_bytes_are_rejected_or_canonical(mut bytes in prop::collection::vec(any::<u8>(), 0..40), first in -500_i16..500, digits in 0_u16..30) {
        let mut head = Vec::new();
        super::wire::write_varint(u64::from(digits), &mut head);
        super::wire::write_varint(u64::from((first << 1 ^ first >> 15) as u16), &mut head);
        bytes.splice(0..0, head);
        if let Ok((number, rest)) = Digits::parse(&bytes) {
            let mut again = Vec::new();
            number.write(&mut again);
            prop_assert_eq!(&again, &bytes[..bytes.len() - rest.len()]);
            prop_assert_eq!(Fixed::from(&number).digits(), number);
        }
        if let Ok((moments, rest)) = Moments::parse(&bytes) {
            let mut again = Vec::new();
            moments.write(&mut again);
            prop_assert_eq!(&again, &bytes[..bytes.len() - rest.len()]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn quotients_of_sums_are_correctly_rounded(
        pairs in prop::collection::vec((any::<f64>(), any::<f64>()), 1..20),
        tame in any::<bool>(),
    ) {
        let shrink = |x: f64| if tame { (x.to_bits() % 2_001) as f64 * 0.001 - 0.7 } else { x };
        let pairs: Vec<(f64, f64)> = pairs.into_iter().map(|(x, w)| (shrink(x), shrink(w))).collect();
        prop_assume!(pairs.iter().all(|(x, w)| x.is_finite() && w.is_finite()));
        let (mut values, mut weights) = (Moments::default(), Moments::default());
        let (mut dividend, mut divisor) = (BigInt::from(0), BigInt::from(0));
        for &(x, w) in &pairs {
            values.add_weighted(x, w);
            weights.add_float(w, 1, false);
            dividend += units(x) * units(w);
            divisor += units(w) << 1074;
        }
        let found = super::ratio(&values, &weights);
        if divisor == BigInt::from(0) {
            prop_assert_eq!(found, None);
        } else {
            let negative = (dividend < BigInt::from(0)) != (divisor < BigInt::from(0));
            let size = rational::rounded_wide(
                &(BigInt::from(dividend.magnitude().clone()) << 1074),
                &BigInt::from(divisor.magnitude().clone()),
            );
            let wanted = if negative { -size } else { size };
            prop_assert_eq!(found.unwrap().abs().to_bits(), wanted.abs().to_bits(), "{:?}", pairs);
        }
    }
}

/// Values and weights of one of several distributions.
fn weighted(kind: u64, n: usize, seed: u64) -> Vec<(f64, f64)> {
    let weights = floats(seed % 8, n, seed ^ 0x55).into_iter().map(|weight| match seed % 3 {
        0 => 1.0,
        1 => (weight.to_bits() % 5) as f64 * 0.1,
        _ => weight.abs(),
    });
    let mut pairs: Vec<(f64, f64)> = floats(kind, n, seed).into_iter().zip(weights).collect();
    pairs.sort_by(|a, b| a.0.total_cmp(&b.0));
    pairs
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn weighted_quantiles_are_correctly_rounded(kind in 0_u64..8, n in 1_usize..40, seed in any::<u64>(), part in 0_u32..=10) {
        let (pairs, q) = (weighted(kind, n, seed), f64::from(part) / 10.0);
        let found = super::weighted_quantile(&pairs, q);
        let total: BigInt = pairs.iter().map(|(_, w)| units(*w)).sum();
        let squares: BigInt = pairs.iter().map(|(_, w)| units(*w) * units(*w)).sum();
        if total == BigInt::ZERO {
            prop_assert_eq!(found, None);
        } else {
            let low = units(q) * (&total * &total - &squares);
            let high = &low + (&squares << 1074_usize);
            let (mut below, mut before, mut sum) = (BigInt::ZERO, low.clone(), BigInt::ZERO);
            for (x, w) in &pairs {
                below += units(*w);
                let reached: BigInt = (&below * &total) << 1074_usize;
                let reached = reached.clamp(low.clone(), high.clone());
                sum += units(*x) * (&reached - &before);
                before = reached;
            }
            let wanted = rational::rounded_wide(&sum, &(squares << 1074_usize));
            let found = found.unwrap();
            prop_assert!(found == wanted, "{found:e} {wanted:e} {pairs:?}");
        }
    }

    #[test]
    fn correlations_are_within_one_unit(kind in 0_u64..8, n in 2_usize..60, seed in any::<u64>()) {
        let x = floats(kind, n, seed);
        let y: Vec<f64> = match seed % 3 {
            0 => x.iter().map(|x| x * 0.5).collect(),
            1 => floats(kind, n, seed ^ 0xAA),
            _ => x.iter().zip(floats(0, n, seed)).map(|(x, noise)| x * 0.5 + noise).collect(),
        };
        prop_assume!(y.iter().all(|y| y.is_finite()));
        let (mut a, mut b, mut products) = (Moments::default(), Moments::default(), Products::default());
        a.add_floats(&x);
        b.add_floats(&y);
        products.add_floats(&x, &y);
        let mut bytes = Vec::new();
        products.write(&mut bytes);
        prop_assert_eq!(&Products::parse(&bytes).unwrap().0, &products);
        let count = n as u64;
        let spread = |x: &[f64], y: &[f64]| {
            let both: BigInt = x.iter().zip(y).map(|(x, y)| units(*x) * units(*y)).sum();
            let [x, y] = [x, y].map(|values| values.iter().map(|x| units(*x)).sum::<BigInt>());
            both * count - x * y
        };
        let (both, own, other) = (spread(&x, &y), spread(&x, &x), spread(&y, &y));
        let covariance = rounded_squared(&both, u128::from(count) * u128::from(count - 1));
        prop_assert_eq!(products.covariance(&a, &b, count, 1).abs().to_bits(), covariance.abs().to_bits());
        let found = products.correlation(&a, &b, count);
        if own == BigInt::ZERO || other == BigInt::ZERO {
            prop_assert!(found.is_nan());
        } else if both == BigInt::ZERO {
            prop_assert_eq!(found, 0.0);
        } else {
            let wanted = rational::rounded_root_wide(&(&both * &both), &(own * other));
            let apart = found.abs().to_bits().abs_diff(wanted.to_bits());
            prop_assert!(apart <= 1 && found.is_sign_negative() == (both < BigInt::ZERO), "{found} {wanted}");
        }
    }
}

/// Sums of few digits take few bytes.
#[test]
fn sums_of_similar_values_are_small() {
    let size = |values: &[f64], spread| {
        let mut moments = Moments::default();
        values.iter().for_each(|&value| moments.add_float(value, 1, spread));
        let mut bytes = Vec::new();
        moments.write(&mut bytes);
        bytes.len()
    };
    let narrow: Vec<f64> = floats(0, 4096, 1).into_iter().map(|value| f64::from(value as f32)).collect();
    assert!(size(&narrow, false) <= 10);
    assert!(size(&floats(0, 4096, 1), false) <= 14);
    assert!(size(&floats(0, 4096, 1), true) <= 30);
    assert_eq!(size(&[0.0; 9], true), 2);
}

/// `numerator / denominator` squared units, as a number.
fn rounded_squared(numerator: &BigInt, denominator: u128) -> f64 {
    rational::rounded_wide(numerator, &(BigInt::from(denominator) << 1074))
}

#[test]
fn blocks_with_nan_or_infinities_have_no_effect() {
    fn check<T: Real>(zero: T, one: T, special: [T; 3]) {
        for special in special {
            for n in [1, 5, 16, 100, 2000] {
                for filler in [zero, one] {
                    for at in [0, n / 2, n - 1] {
                        let mut block = vec![filler; n];
                        block[at] = special;
                        let (mut sum, mut squares) = (Fixed::default(), Fixed::default());
                        assert!(!add_block(&block, &mut sum, Some(&mut squares)));
                        assert!(sum.is_untouched() && squares.is_untouched());
                    }
                }
            }
        }
    }
    check(0.0_f32, 1.0, [f32::NAN, f32::INFINITY, f32::NEG_INFINITY]);
    check(0.0_f64, 1.0, [f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    check(0.0_f64, f64::MAX, [f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
    check(0.0_f64, 5e-324, [-f64::NAN, f64::INFINITY, f64::NEG_INFINITY]);
}

#[test]
fn special_values_do_not_depend_on_order() {
    let sum = |values: &[f64]| {
        let mut moments = Moments::default();
        values.iter().for_each(|&x| moments.add_float(x, 1, true));
        (moments.sum(), moments.mean(values.len() as u64), moments.std(values.len() as u64, 0))
    };
    let (infinity, max) = (f64::INFINITY, f64::MAX);
    assert_eq!(sum(&[-0.0, -0.0]).0.to_bits(), 0);
    assert_eq!(sum(&[max, max, -max, -max]), (0.0, 0.0, max));
    assert_eq!(sum(&[max, max, -max]).0, max);
    // The sum overflows, the mean does not.
    assert_eq!((sum(&[max, max]).0, sum(&[max, max]).1), (infinity, max));
    assert_eq!(sum(&[infinity, -max, -max]).0, infinity);
    assert!(sum(&[infinity, -max, -max]).2.is_nan());
    assert!(sum(&[infinity, 1.0, -infinity]).0.is_nan());
    // Half of the smallest number is a tie, which goes to the even 0 and keeps its sign.
    assert_eq!(sum(&[-5e-324, 0.0]).1.to_bits(), (-0.0_f64).to_bits());
    for scale in [1e-200, 1e300] {
        let values = [1.0, 2.0, 3.0].map(|x| x * scale);
        let std = sum(&values).2;
        assert_eq!(std, Oracle::new(&values).std(0));
        assert!((std / scale - (2.0_f64 / 3.0).sqrt()).abs() < 1e-15);
    }
}

/// More than 2^29 additions: carries are propagated in between.
#[test]
fn many_additions_keep_limbs_in_range() {
    let mut sum = Fixed::default();
    let limbs = [-(1_i64 << 32); 3];
    for _ in 0..40 {
        sum.add_limbs(0, &limbs, 1 << 26);
    }
    let expected = Digits::default();
    let mut negated = Fixed::default();
    for _ in 0..40 {
        negated.add_limbs(0, &limbs.map(|limb| -limb), 1 << 26);
    }
    sum.merge(&negated);
    assert_eq!(sum.digits(), expected);
}
