use proptest::prelude::*;
use tesseral_core::ErrorKind;

use super::*;

/// The oracle: copies every element separately, by its coordinates.
fn naive(
    src: &[u8],
    src_strides: &[usize],
    dst: &mut [u8],
    dst_strides: &[usize],
    shape: &[usize],
    elem: usize,
) {
    for flat in 0..shape.iter().product() {
        let (mut rest, mut s, mut d) = (flat, 0, 0);
        for i in (0..shape.len()).rev() {
            s += rest % shape[i] * src_strides[i];
            d += rest % shape[i] * dst_strides[i];
            rest /= shape[i];
        }
        dst[d..d + elem].copy_from_slice(&src[s..s + elem]);
    }
}

/// Strides of a buffer whose dimensions come in `order`, each padded by `pad` positions, with steps of `step`.
fn strides(
    shape: &[usize],
    order: &[usize],
    pad: &[usize],
    step: &[usize],
    elem: usize,
) -> (Vec<usize>, usize) {
    let mut strides = vec![0; shape.len()];
    let mut size = elem;
    for &d in order.iter().rev() {
        strides[d] = size * step[d];
        size *= shape[d] * step[d] + pad[d];
    }
    (strides, size)
}

#[derive(Debug, Clone)]
struct Case {
    shape: Vec<usize>,
    src_strides: Vec<usize>,
    src_len: usize,
    dst_strides: Vec<usize>,
    dst_len: usize,
    elem: usize,
}

fn case() -> impl Strategy<Value = Case> {
    let sizes = prop_oneof![Just(1_usize), Just(2), Just(4), Just(8), Just(16), 1_usize..20];
    (0_usize..6, sizes).prop_flat_map(|(rank, elem)| {
        let extent = if rank <= 2 { 0..70_usize } else { 0..7 };
        let order = || Just((0..rank).collect::<Vec<_>>()).prop_shuffle();
        let pad = || prop::collection::vec(prop_oneof![3 => Just(0_usize), 1 => 0..4_usize], rank);
        let step = || prop::collection::vec(prop_oneof![4 => Just(1_usize), 1 => 1..4_usize], rank);
        let broadcast = prop::collection::vec(prop::bool::weighted(0.1), rank);
        (
            (prop::collection::vec(extent, rank), order(), order(), broadcast),
            (pad(), pad(), step(), step(), any::<bool>()),
        )
            .prop_map(move |((shape, src_order, dst_order, broadcast), (sp, dp, ss, ds, same))| {
                let src_order = if same { &dst_order } else { &src_order };
                let (mut src_strides, src_len) = strides(&shape, src_order, &sp, &ss, elem);
                let (dst_strides, dst_len) = strides(&shape, &dst_order, &dp, &ds, elem);
                for (stride, gone) in src_strides.iter_mut().zip(broadcast) {
                    *stride *= usize::from(!gone);
                }
                Case { shape, src_strides, src_len: src_len.max(elem), dst_strides, dst_len, elem }
            })
    })
}

fn noise(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn regions_agree_with_the_oracle(case in case()) {
        let Case { shape, src_strides, src_len, dst_strides, dst_len, elem } = case;
        let src = noise(src_len);
        let mut expected = vec![0xEE; dst_len];
        naive(&src, &src_strides, &mut expected, &dst_strides, &shape, elem);

        let mut got = vec![0xEE; dst_len];
        copy_box(&src, &src_strides, &mut got, &dst_strides, &shape, elem).unwrap();
        prop_assert_eq!(&got, &expected);

        // The same through separately visited runs, each with the minimal slice of the target.
        let mut by_runs = vec![0xEE; dst_len];
        for_each_run(&src_strides, &dst_strides, &shape, elem, |run| {
            let len = run.dst_len();
            run.copy(&src, &mut by_runs[run.dst..][..len]);
        }).unwrap();
        prop_assert_eq!(&by_runs, &expected);

        // A buffer that is one byte short is rejected before anything is written.
        let walk = Walk::new(&src_strides, &dst_strides, &shape, elem).unwrap();
        if walk.dst_len() > 0 {
            let mut short = vec![0xEE; walk.dst_len() - 1];
            let error = walk.copy(&src, &mut short).unwrap_err();
            prop_assert!(
                matches!(error.kind(), ErrorKind::InvalidRequest { .. }),
                "{error:?}"
            );
            prop_assert!(short.iter().all(|&b| b == 0xEE));
            prop_assert!(walk.copy(&src[..walk.src_len() - 1], &mut got).is_err());
        }
    }

    #[test]
    fn fills_repeat_the_pattern(count in 0_usize..40, elem in 1_usize..20, flat in any::<bool>()) {
        let pattern = if flat { vec![7; elem] } else { noise(elem) };
        let mut got = vec![0xEE; count * elem];
        fill_bytes(&mut got, &pattern);
        prop_assert_eq!(got, pattern.repeat(count));
    }

    #[test]
    fn swaps_agree_with_the_oracle(len in 0_usize..300, shift in 0_usize..8, log in 0_u32..5) {
        let word = 1 << log;
        let mut bytes = noise(shift + len * word);
        let mut expected = bytes[shift..].to_vec();
        expected.chunks_mut(word).for_each(<[u8]>::reverse);
        swap_bytes(&mut bytes[shift..], word).unwrap();
        prop_assert_eq!(&bytes[shift..], &expected);
        prop_assert!(swap_bytes(&mut bytes[shift..], 3).is_err());
        prop_assert_eq!(word > 1, swap_bytes(&mut vec![0; len * word + 1], word).is_err());
    }
}

#[test]
fn layouts_are_merged_into_few_runs() {
    let runs = |src: &[usize], dst: &[usize], shape: &[usize]| {
        let mut runs = Vec::new();
        for_each_run(src, dst, shape, 4, |run| runs.push(run)).unwrap();
        runs
    };
    // A complete chunk is one run, row-major or column-major.
    assert_eq!(runs(&[400, 40, 4], &[400, 40, 4], &[5, 10, 10])[0].contiguous(), Some(2000));
    assert_eq!(runs(&[4, 20, 200], &[4, 20, 200], &[5, 10, 10])[0].contiguous(), Some(2000));
    // A slab of full rows too; a clipped region has one run per row.
    assert_eq!(runs(&[400, 40, 4], &[400, 40, 4], &[5, 10, 10]).len(), 1);
    assert_eq!(runs(&[400, 40, 4], &[100, 20, 4], &[5, 5, 5]).len(), 25);
    // A scalar is a run of one element; an empty region has none.
    assert_eq!(runs(&[], &[], &[])[0].contiguous(), Some(4));
    assert_eq!(runs(&[4], &[4], &[0]).len(), 0);
}

#[test]
fn regions_beyond_the_address_space_are_rejected() {
    assert!(Walk::new(&[usize::MAX, 4], &[4, 4], &[3, 3], 4).is_err());
    assert!(Walk::new(&[4], &[4, 4], &[3, 3], 4).is_err());
    assert!(Walk::new(&[4], &[4], &[3], 0).is_err());
    // Extents whose product overflows are not merged.
    assert!(Walk::new(&[0, 0], &[0, 0], &[1 << 40, 1 << 40], 4).is_ok());
    // Empty along one dimension: nothing to span, however long the others.
    assert!(Walk::new(&[usize::MAX, 4], &[4, 4], &[3, 0], 4).is_ok());
}
