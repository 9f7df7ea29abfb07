use super::*;
use tesseral_core::ErrorKind;

fn bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b)).collect()
}

/// Arrays of different kinds.
fn cases() -> Vec<Vec<f64>> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut all = Vec::new();
    for n in [1, 2, 3, 5, 6, 7, 8, 31, 32, 33, 34, 100, 4095, 4096, 4097, 5000, 20_000] {
        all.push((0..n).map(|i| (f64::from(i) / 30.0).sin() * 40.0).collect());
        all.push((0..n).map(|_| next() * 1e6).collect());
        all.push(vec![7.25; n as usize]);
        all.push((0..n).map(|i| if i % 97 == 0 { 1e300 } else { next() * 1e-3 }).collect());
    }
    all
}

#[test]
fn every_cell_is_within_the_bound() {
    let mut contexts = Contexts::default();
    for values in cases() {
        for bound in [Bound::Absolute(1e-3), Bound::Absolute(0.0), Bound::Relative(1e-4), Bound::Psnr(60.0)] {
            let mut packed = Vec::new();
            encode(&bytes(&values), bound, &mut packed, &mut contexts).unwrap();
            let mut back = vec![0; values.len() * 8];
            decode_into(&packed, &mut back, &mut contexts).unwrap();
            let error = bound.absolute(&values);
            for (a, b) in values.iter().zip(doubles(&back)) {
                assert!((a - b).abs() <= error, "{bound:?} {} {a} {b}", values.len());
            }
        }
    }
}

#[test]
fn truncated_and_mutated_bytes_never_panic() {
    let mut contexts = Contexts::default();
    let values: Vec<f64> = (0..5000).map(|i| (f64::from(i) / 9.0).sin() + f64::from(i % 13) * 0.01).collect();
    let mut packed = Vec::new();
    encode(&bytes(&values), Bound::Absolute(1e-3), &mut packed, &mut contexts).unwrap();
    let mut back = vec![0; values.len() * 8];
    for len in 0..packed.len() {
        assert!(decode_into(&packed[..len], &mut back, &mut contexts).is_err(), "{len}");
    }
    // Inside the Zstandard frame, where no checksum protects the bytes.
    let len = u64::from_le_bytes(*packed[16..].first_chunk().unwrap()) as usize;
    let payload = u64::from_le_bytes(*packed[8..].first_chunk().unwrap()) as usize;
    let mut inner = vec![0; len];
    crate::zstd::decode_into(&packed[24..16 + payload], &mut inner, &mut contexts).unwrap();
    let rebuilt = |inner: &[u8], contexts: &mut Contexts| {
        let body = plain_payload(inner, contexts).unwrap();
        let mut out = packed[..8].to_vec();
        out.extend_from_slice(&(body.len() as u64).to_le_bytes());
        out.extend_from_slice(&body);
        out.extend_from_slice(&packed[16 + payload..]);
        out
    };
    decode_into(&rebuilt(&inner, &mut contexts), &mut back, &mut contexts).unwrap();
    for len in (0..inner.len()).step_by(17) {
        assert!(decode_into(&rebuilt(&inner[..len], &mut contexts), &mut back, &mut contexts).is_err());
    }
    let mut state = 5_u64;
    for _ in 0..3000 {
        let mut mutated = inner.clone();
        for _ in 0..2 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = (state >> 33) as usize % if state.is_multiple_of(3) { mutated.len() } else { 120 };
            mutated[at] = (state >> 20) as u8;
        }
        let _ = decode_into(&rebuilt(&mutated, &mut contexts), &mut back, &mut contexts);
    }
    for _ in 0..3000 {
        let mut mutated = packed.clone();
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (state >> 33) as usize % mutated.len();
        let at = if state.is_multiple_of(2) { at } else { mutated.len() - 1 - at % 34 };
        mutated[at] = (state >> 20) as u8;
        let _ = decode_into(&mutated, &mut back, &mut contexts);
    }
}

#[test]
fn wrong_sizes_and_bounds_are_rejected() {
    let mut contexts = Contexts::default();
    let mut packed = Vec::new();
    encode(&bytes(&[1.0, 2.0, 4.0]), Bound::Absolute(0.1), &mut packed, &mut contexts).unwrap();
    for len in [0, 16, 23, 32] {
        let error = decode_into(&packed, &mut vec![0; len], &mut contexts).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Codec { .. }), "{error}");
    }
    for (cells, bound) in [(vec![], 0.1), (vec![1.0], -1.0), (vec![1.0], f64::NAN)] {
        let error =
            encode(&bytes(&cells), Bound::Absolute(bound), &mut Vec::new(), &mut contexts).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::InvalidRequest { .. }), "{error}");
    }
    packed[6] = 9;
    let error = decode_into(&packed, &mut [0; 24], &mut contexts).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
}
