use super::*;

fn bytes(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_ne_bytes()).collect()
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b)).collect()
}

#[test]
fn worked_example() {
    let values = [1.5, 2.0, 3.0, 4.25];
    let packing = SimplePacking::fit(&bytes(&values), 12, 0).unwrap();
    assert_eq!(packing, SimplePacking { reference: 1.5, binary: -10, decimal: 0, bits: 12 });
    let mut packed = Vec::new();
    packing.encode(&bytes(&values), &mut packed).unwrap();
    assert_eq!(packed, [0x00, 0x02, 0x00, 0x60, 0x0b, 0x00]);
    let mut back = [0; 32];
    packing.decode_into(&packed, 0, &mut back).unwrap();
    assert_eq!(doubles(&back), values);
}

/// Decodes one bit at a time.
fn naive_decode(packing: &SimplePacking, packed: &[u8], i: usize) -> f64 {
    let mut q = 0_u64;
    for bit in i * packing.bits as usize..(i + 1) * packing.bits as usize {
        q = q << 1 | u64::from(packed[bit / 8] >> (7 - bit % 8) & 1);
    }
    packing.reference + 2_f64.powi(packing.binary) * 10_f64.powi(-packing.decimal) * q as f64
}

#[test]
fn every_width_agrees_with_the_naive_decoder() {
    let values: Vec<f64> = (0..101).map(|i| f64::from(i * i % 37) * 1.75 - 11.0).collect();
    for bits in 0..=64 {
        for decimal in [0, 2, -1] {
            let packing = SimplePacking::fit(&bytes(&values), bits, decimal).unwrap();
            let mut packed = Vec::new();
            packing.encode(&bytes(&values), &mut packed).unwrap();
            assert_eq!(packed.len() as u64, SimplePacking::packed_len(bits, 101).unwrap());
            for range in [0..101, 0..1, 7..8, 100..101, 13..99, 101..101] {
                let mut back = vec![0; range.len() * 8];
                packing.decode_into(&packed, range.start as u64, &mut back).unwrap();
                let expected: Vec<f64> = range.clone().map(|i| naive_decode(&packing, &packed, i)).collect();
                assert_eq!(doubles(&back), expected, "{bits} bits, {range:?}");
            }
            if bits > 0 {
                assert!(packing.decode_into(&packed[..packed.len() - 1], 0, &mut [0; 808]).is_err());
                assert!(packing.decode_into(&packed, 90, &mut vec![0; 808]).is_err());
                assert!(packing.decode_into(&packed, u64::MAX, &mut vec![0; 808]).is_err());
            }
        }
    }
}

/// Encodes one bit at a time, with the same rounding as the library.
fn naive_encode(packing: &SimplePacking, values: &[f64]) -> Vec<u8> {
    let scale = 10_f64.powi(packing.decimal) * 2_f64.powi(-packing.binary);
    let mut out = vec![0; (values.len() * packing.bits as usize).div_ceil(8)];
    for (i, value) in values.iter().enumerate() {
        let q = (((value - packing.reference) * scale).round() as u64).min(largest(packing.bits));
        for bit in 0..packing.bits as usize {
            let at = i * packing.bits as usize + bit;
            out[at / 8] |= ((q >> (packing.bits as usize - 1 - bit) & 1) as u8) << (7 - at % 8);
        }
    }
    out
}

#[test]
fn every_width_agrees_with_the_naive_encoder() {
    let mut values: Vec<f64> = (0..333).map(|i| f64::from(i * i % 97) * 0.37 - 11.0).collect();
    values.extend([
        0.5,
        1.5,
        2.5,
        -0.5,
        0.499_999_999_999_999_94,
        1e300,
        -1e300,
        1e18,
        4_503_599_627_370_497.5,
    ]);
    for bits in 0..=64 {
        for (reference, binary) in [(-11.0, 0), (0.0, 0), (0.0, -3), (-1e300, 200), (1.0, -256)] {
            let packing = SimplePacking::new(reference, binary, 0, bits).unwrap();
            let mut packed = Vec::new();
            packing.encode(&bytes(&values), &mut packed).unwrap();
            assert!(packed == naive_encode(&packing, &values), "{packing:?}");
        }
    }
}

#[test]
fn the_first_zero_sets_the_sign_of_the_reference() {
    for (values, negative) in [([3.0, -0.0, 0.0], true), ([3.0, 0.0, -0.0], false), ([0.0, -0.0, 1.0], false)]
    {
        let many: Vec<f64> = [5.0; 20].into_iter().chain(values).collect();
        let packing = SimplePacking::fit(&bytes(&many), 8, 0).unwrap();
        assert_eq!(packing.reference.is_sign_negative(), negative, "{values:?}");
    }
}

#[test]
fn values_that_are_not_finite_are_rejected() {
    for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
        for cells in [bytes(&[value]), bytes(&[1.0, value])] {
            let packed =
                SimplePacking::fit(&cells, 8, 0).and_then(|packing| packing.encode(&cells, &mut Vec::new()));
            assert!(packed.is_err());
        }
        assert!(SimplePacking::new(value, 0, 0, 8).is_err());
        let packing = SimplePacking::new(0.0, 0, 0, 8).unwrap();
        assert!(packing.encode(&bytes(&[value]), &mut Vec::new()).is_err());
    }
    assert!(SimplePacking::new(0.0, 0, 0, 65).is_err());
    let packing = SimplePacking::new(0.0, 257, 0, 8).unwrap();
    assert!(packing.encode(&bytes(&[1.0]), &mut Vec::new()).is_err());
}

#[test]
fn values_out_of_range_saturate() {
    let packing = SimplePacking::new(10.0, 0, 0, 8).unwrap();
    let mut packed = Vec::new();
    packing.encode(&bytes(&[0.0, 10.5, 1e9]), &mut packed).unwrap();
    assert_eq!(packed, [0, 1, 255]);
}

#[test]
fn blocks_are_contiguous() {
    let count = 2 * BLOCK + 77;
    let values: Vec<f64> = (0..count as i32).map(|i| f64::from(i.wrapping_mul(7919) % 4001) * 0.25).collect();
    for bits in 1..=64 {
        let packing = SimplePacking::fit(&bytes(&values), bits, 0).unwrap();
        let mut packed = Vec::new();
        packing.encode(&bytes(&values), &mut packed).unwrap();
        assert!(packed == naive_encode(&packing, &values), "{packing:?}");
        for range in [0..count, 1..BLOCK, BLOCK - 3..count - 1, 2 * BLOCK..count] {
            let mut back = vec![0; range.len() * 8];
            packing.decode_into(&packed, range.start as u64, &mut back).unwrap();
            let expected: Vec<f64> = range.clone().map(|i| naive_decode(&packing, &packed, i)).collect();
            assert!(doubles(&back) == expected, "{bits} bits, {range:?}");
            let mut appended = vec![1; 8];
            packing.decode(&packed, range.start as u64, range.len(), &mut appended).unwrap();
            assert!(appended[..8] == [1; 8] && appended[8..] == back, "{bits} bits, {range:?}");
            assert!(packing.decode(&packed, range.start as u64, count + 8, &mut Vec::new()).is_err());
        }
    }
}

/// Numbers that begin at any bit are the same by both functions and by a naive loop.
#[test]
fn numbers_begin_at_any_bit() {
    let bytes: Vec<u8> = (0..400_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for width in 0..=64_u32 {
        for bit in [0, 1, 7, 8, 13, 64, 99] {
            let count = 40;
            let naive = |i: u64| {
                (0..u64::from(width)).fold(0_u64, |sum, n| {
                    let at = bit + i * u64::from(width) + n;
                    sum << 1 | u64::from(bytes[(at / 8) as usize] >> (7 - at % 8) & 1)
                })
            };
            let expected: Vec<[u8; 8]> = (0..count).map(|i| naive(i).to_ne_bytes()).collect();
            let mut out = vec![[0; 8]; count as usize];
            unpack_with(&bytes, bit, width, &mut out, u64::to_ne_bytes).unwrap();
            assert_eq!(out, expected, "{width} bits at {bit}");
            out.fill([1; 8]);
            unpack_run(&bytes, bit, width, &mut out, u64::to_ne_bytes).unwrap();
            assert_eq!(out, expected, "{width} bits at {bit}");
        }
    }
    let mut out = [[0; 8]; 2];
    for (bit, width) in [(0, 65), (3200, 1), (u64::MAX, 8), (3199, 1)] {
        assert!(unpack_with(&bytes, bit, width, &mut out, u64::to_ne_bytes).is_err());
        assert!(unpack_run(&bytes, bit, width, &mut out, u64::to_ne_bytes).is_err());
    }
}
