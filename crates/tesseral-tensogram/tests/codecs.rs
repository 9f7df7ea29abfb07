//! All combinations of stages: round trips of whole objects and ranges; damaged input does not panic.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use tesseral_core::{DType, ErrorKind};
use tesseral_tensogram::wire::cbor::CborItem;
use tesseral_tensogram::wire::descriptor::{DTYPES, Descriptor};
use tesseral_tensogram::{
    AggregateHash, DecodeOptions, EncodeOptions, GlobalMetadata, MaskOptions, ObjectFrame, TensogramError,
    decode_descriptors, decode_object, decode_range, encode, encode_message, encode_pre_encoded,
};

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

type Params = Vec<(&'static str, CborItem)>;

fn text(text: &str) -> CborItem {
    CborItem::Text(text.to_owned())
}

/// An object and the tolerance of its cells.
struct Case {
    descriptor: Descriptor,
    cells: Vec<u8>,
    error: Option<f64>,
}

fn case(random: &mut Random, dtype: DType, n: u64, stages: [(&str, Params); 3]) -> Case {
    let mut descriptor = Descriptor::raw(dtype, &[n]);
    let [encoding, filter, compression] = stages;
    descriptor.encoding = encoding.0.to_owned();
    descriptor.filter = filter.0.to_owned();
    descriptor.compression = compression.0.to_owned();
    for (key, value) in encoding.1.into_iter().chain(filter.1).chain(compression.1) {
        descriptor.params.insert(key.to_owned(), value);
    }
    let len = descriptor.raw_len().unwrap() as usize;
    let cells = match dtype {
        DType::Float64 => (0..n)
            .flat_map(|i| ((i as f64 / 17.0).sin() * 30.0 + random.below(100) as f64 * 0.01).to_ne_bytes())
            .collect(),
        DType::Float32 | DType::Complex64 => {
            (0..len / 4).flat_map(|i| (i as f32 * 0.25 + random.below(9) as f32).to_ne_bytes()).collect()
        }
        _ if dtype.word() > 1 => {
            // Small numbers are finite in all float dtypes.
            let word = dtype.word();
            (0..len / word)
                .flat_map(|i| {
                    ((i as u64 / 3 + random.below(4)) & 0x3fff).to_le_bytes().into_iter().take(word)
                })
                .collect()
        }
        _ => {
            let mut cells: Vec<u8> = (0..len).map(|i| (i / 9) as u8 ^ random.below(2) as u8).collect();
            if dtype == DType::Bitmask && !n.is_multiple_of(8) {
                *cells.last_mut().unwrap() &= !(0xff >> (n % 8));
            }
            cells
        }
    };
    Case { descriptor, cells, error: None }
}

fn packing(bits: u64) -> (&'static str, Params) {
    let params =
        vec![("sp_bits_per_value", CborItem::UInt(bits)), ("sp_decimal_scale_factor", CborItem::UInt(0))];
    ("simple_packing", params)
}

fn compressions(dtype: DType, bits: Option<u64>, shuffled: bool) -> Vec<(&'static str, Params)> {
    let mut all = vec![("none", vec![]), ("zstd", vec![("zstd_level", CborItem::UInt(1))]), ("lz4", vec![])];
    for codec in ["blosclz", "lz4", "lz4hc", "zlib", "zstd"] {
        if bits != Some(0) && dtype != DType::Bitmask {
            let level = CborItem::UInt(codec.len() as u64 % 9 + 1);
            all.push(("blosc2", vec![("blosc2_codec", text(codec)), ("blosc2_clevel", level)]));
        }
    }
    let sample = bits.unwrap_or(if shuffled { 8 } else { dtype.size().unwrap_or(0) as u64 * 8 });
    if sample > 0 && sample <= 32 && sample.is_multiple_of(8) {
        for (rsi, block, flags) in [(128, 16, 8), (3, 8, 0), (1, 64, 9)] {
            all.push((
                "szip",
                vec![
                    ("szip_rsi", CborItem::UInt(rsi)),
                    ("szip_block_size", CborItem::UInt(block)),
                    ("szip_flags", CborItem::UInt(flags)),
                ],
            ));
        }
    }
    if dtype == DType::Bitmask {
        all.extend([("rle", vec![]), ("roaring", vec![])]);
    }
    all
}

/// All combinations, of `n` cells each.
fn cases(random: &mut Random, n: u64) -> Vec<Case> {
    let mut all = Vec::new();
    let none = || ("none", vec![]);
    for dtype in DTYPES {
        for shuffled in [false, true] {
            let size = dtype.size().unwrap_or(1) as u64;
            let filter = || match shuffled {
                true => ("shuffle", vec![("shuffle_element_size", CborItem::UInt(size))]),
                false => none(),
            };
            for compression in compressions(dtype, None, shuffled) {
                all.push(case(random, dtype, n, [none(), filter(), compression]));
            }
        }
    }
    for bits in [0, 1, 7, 8, 12, 16, 24, 31, 32, 48, 64] {
        for shuffled in [false, true] {
            let size = u64::div_ceil(bits, 8);
            if shuffled && (size == 0 || !(n * bits).div_ceil(8).is_multiple_of(size)) {
                continue;
            }
            let filter = || match shuffled {
                true => ("shuffle", vec![("shuffle_element_size", CborItem::UInt(size))]),
                false => none(),
            };
            for compression in compressions(DType::Float64, Some(bits), shuffled) {
                let mut case = case(random, DType::Float64, n, [packing(bits), filter(), compression]);
                // The range is less than 64.
                case.error = Some(if bits == 0 { 100.0 } else { 64.0 / (bits as f64).exp2() + 1e-9 });
                all.push(case);
            }
        }
    }
    let float = CborItem::Float;
    for (params, error) in [
        (vec![("zfp_mode", text("fixed_rate")), ("zfp_rate", float(20.0))], 0.1),
        (vec![("zfp_mode", text("fixed_rate")), ("zfp_rate", float(12.7))], 1.0),
        (vec![("zfp_mode", text("fixed_precision")), ("zfp_precision", CborItem::UInt(40))], 1e-6),
        (vec![("zfp_mode", text("fixed_accuracy")), ("zfp_tolerance", float(0.01))], 0.01),
    ] {
        let mut case = case(random, DType::Float64, n, [none(), none(), ("zfp", params)]);
        case.error = Some(error);
        all.push(case);
    }
    for (mode, bound, error) in [("abs", 0.01, 0.01), ("rel", 1e-3, 0.07), ("psnr", 60.0, 0.3)] {
        let params = vec![("sz3_error_bound_mode", text(mode)), ("sz3_error_bound", float(bound))];
        let mut case = case(random, DType::Float64, n, [none(), none(), ("sz3", params)]);
        case.error = Some(error);
        all.push(case);
    }
    all
}

fn message(case: &Case, options: &EncodeOptions) -> Result<Vec<u8>, TensogramError> {
    encode(&GlobalMetadata::default(), &[(&case.descriptor, &case.cells)], options)
}

fn doubles(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|b| f64::from_ne_bytes(*b)).collect()
}

/// Rejected for empty objects, which the reference cannot read back.
fn refused(case: &Case) -> bool {
    case.cells.is_empty() && ["blosc2", "sz3"].contains(&case.descriptor.compression.as_str())
}

#[test]
fn every_combination_of_stages_round_trips() {
    let mut random = Random(0x2545_f491_4f6c_dd1d);
    let options = DecodeOptions::default();
    let mut count = 0;
    for n in [0, 1, 9, 1000] {
        for case in cases(&mut random, n) {
            let name = format!("{:?}", case.descriptor);
            let encoded =
                message(&case, &EncodeOptions { hashing: random.below(2) == 0, ..EncodeOptions::default() });
            if refused(&case) {
                assert!(encoded.is_err(), "{name}");
                continue;
            }
            let message = encoded.unwrap_or_else(|e| panic!("{e}: {name}"));
            let (_, _, whole) =
                decode_object(&message, 0, &options).unwrap_or_else(|e| panic!("{e}: {name}"));
            match case.error {
                None => assert!(whole == case.cells, "{name}"),
                Some(error) => {
                    for (a, b) in doubles(&whole).into_iter().zip(doubles(&case.cells)) {
                        assert!((a - b).abs() <= error, "{a} {b} {name}");
                    }
                }
            }
            let Some(size) = case.descriptor.dtype.size() else { continue };
            for _ in 0..3 {
                let (a, b) = (random.below(n + 1), random.below(n + 1));
                let (start, end) = (a.min(b), a.max(b));
                let (_, parts) = decode_range(&message, 0, &[(start, end - start)], &options).unwrap();
                assert!(
                    *parts[0] == whole[start as usize * size..end as usize * size],
                    "{start}..{end} {name}"
                );
            }
            count += 1;
        }
    }
    assert!(count > 900, "{count}");
}

#[test]
fn every_mask_method() {
    let mut random = Random(7);
    let floats = [
        DType::Float16,
        DType::BFloat16,
        DType::Float32,
        DType::Float64,
        DType::Complex64,
        DType::Complex128,
    ];
    for dtype in floats {
        for method in ["none", "rle", "roaring", "lz4", "zstd", "blosc2"] {
            for small in [0, 128] {
                let none = || ("none", vec![]);
                let mut case = case(&mut random, dtype, 3000, [none(), none(), ("zstd", vec![])]);
                let size = dtype.size().unwrap();
                let (nan, up): (&[u8], &[u8]) = match dtype {
                    DType::Float16 => (&[0, 0x7e], &[0, 0x7c]),
                    DType::BFloat16 => (&[0xc0, 0x7f], &[0x80, 0x7f]),
                    DType::Float32 | DType::Complex64 => (&[0, 0, 0xc0, 0x7f], &[0, 0, 0x80, 0x7f]),
                    _ => (&[0, 0, 0, 0, 0, 0, 0xf8, 0x7f], &[0, 0, 0, 0, 0, 0, 0xf0, 0x7f]),
                };
                for cell in 0..3000_usize {
                    let pattern = match random.below(9) {
                        0 => nan.repeat(size / nan.len()),
                        1 if cell > 700 => up.repeat(size / up.len()),
                        2 => {
                            let mut down = up.to_vec();
                            *down.last_mut().unwrap() |= 0x80;
                            down.repeat(size / down.len())
                        }
                        _ => continue,
                    };
                    case.cells[cell * size..(cell + 1) * size].copy_from_slice(&pattern);
                }
                let masks = MaskOptions {
                    methods: std::array::from_fn(|_| method.to_owned()),
                    small,
                    ..MaskOptions::any()
                };
                let message = message(&case, &EncodeOptions { masks, ..EncodeOptions::default() }).unwrap();
                let (_, descriptor, whole) = decode_object(&message, 0, &DecodeOptions::default()).unwrap();
                assert_eq!(descriptor.masks.len(), 3);
                assert!(descriptor.masks.iter().all(|mask| mask.method == method), "{dtype} {method}");
                assert!(whole == case.cells, "{dtype} {method}");
                let plain = DecodeOptions { restore_non_finite: false, ..DecodeOptions::default() };
                assert!(decode_object(&message, 0, &plain).unwrap().2 != case.cells);
            }
        }
    }
}

#[test]
fn combinations_that_lose_bits_are_rejected() {
    let mut random = Random(3);
    let none = || ("none", vec![]);
    let zfp = |mode: &str, key: &'static str, value: f64| {
        ("zfp", vec![("zfp_mode", text(mode)), (key, CborItem::Float(value))])
    };
    let sz3 =
        || ("sz3", vec![("sz3_error_bound_mode", text("abs")), ("sz3_error_bound", CborItem::Float(0.1))]);
    let szip = || {
        let params = [("szip_rsi", 128), ("szip_block_size", 16), ("szip_flags", 8)];
        ("szip", params.into_iter().map(|(key, n)| (key, CborItem::UInt(n))).collect())
    };
    let shuffle = || ("shuffle", vec![("shuffle_element_size", CborItem::UInt(8))]);
    for (dtype, stages) in [
        (DType::Float64, [packing(12), none(), szip()]),
        (DType::Float64, [none(), none(), szip()]),
        (DType::Float32, [none(), none(), zfp("fixed_rate", "zfp_rate", 8.0)]),
        (DType::Int64, [none(), none(), zfp("fixed_rate", "zfp_rate", 8.0)]),
        (DType::Float64, [packing(16), none(), zfp("fixed_rate", "zfp_rate", 8.0)]),
        (DType::Float64, [none(), shuffle(), zfp("fixed_rate", "zfp_rate", 8.0)]),
        (DType::Float64, [none(), none(), zfp("fixed_accuracy", "zfp_tolerance", 0.0)]),
        (DType::Int32, [none(), none(), sz3()]),
        (DType::Float64, [none(), shuffle(), sz3()]),
        (DType::Float64, [packing(16), none(), sz3()]),
        (DType::Bitmask, [none(), none(), ("blosc2", vec![])]),
        (DType::Float64, [packing(0), none(), ("blosc2", vec![])]),
    ] {
        let case = case(&mut random, dtype, 64, stages);
        let error = message(&case, &EncodeOptions::default()).unwrap_err();
        assert!(matches!(error, TensogramError::Encoding(_)), "{error:?} {:?}", case.descriptor);
    }
    // A NaN that no mask restores is rejected with lossy compression.
    let mut case = case(&mut random, DType::Float64, 64, [none(), none(), sz3()]);
    case.cells[..8].copy_from_slice(&0x7ff8_0000_0000_0001_u64.to_ne_bytes());
    let options = EncodeOptions { masks: MaskOptions::any(), ..EncodeOptions::default() };
    assert!(message(&case, &options).is_err());
}

/// The payload of the only object of a message.
fn payload(message: &[u8]) -> &[u8] {
    let number =
        |at: usize, n: usize| message[at..at + n].iter().fold(0, |sum, b| sum << 8 | usize::from(*b));
    let mut at = 24;
    loop {
        let len = number(at + 8, 8);
        if number(at + 2, 2) == 9 {
            return &message[at + 16..at + number(at + len - 20, 8)];
        }
        at += len.next_multiple_of(8);
    }
}

#[test]
fn every_truncation_of_every_codec_is_an_error() {
    let mut random = Random(11);
    let options = DecodeOptions { verify_hash: false, ..DecodeOptions::default() };
    let mut cut = 0;
    for case in cases(&mut random, 40) {
        let message = message(&case, &EncodeOptions { hashing: false, ..EncodeOptions::default() }).unwrap();
        let (_, descriptors) = decode_descriptors(&message, &options).unwrap();
        let (_, _, whole) = decode_object(&message, 0, &options).unwrap();
        let payload = payload(&message);
        for len in 0..payload.len() {
            let object = [(&descriptors[0], &payload[..len])];
            let unhashed = EncodeOptions { hashing: false, ..EncodeOptions::default() };
            let Ok(message) = encode_pre_encoded(&GlobalMetadata::default(), &object, &unhashed) else {
                continue;
            };
            if let Ok((_, _, found)) = decode_object(&message, 0, &options) {
                assert!(found == whole, "{len} of {} bytes: {:?}", payload.len(), case.descriptor);
            }
            cut += 1;
        }
    }
    assert!(cut > 10_000, "{cut}");
}

#[test]
fn changed_bytes_never_panic() {
    let mut random = Random(13);
    let options = DecodeOptions { verify_hash: false, ..DecodeOptions::default() };
    for case in cases(&mut random, 60) {
        let whole = message(&case, &EncodeOptions { hashing: false, ..EncodeOptions::default() }).unwrap();
        let start =
            whole.windows(payload(&whole).len().max(1)).position(|w| w == payload(&whole)).unwrap_or(200);
        for _ in 0..12 {
            let mut bent = whole.clone();
            for _ in 0..=random.below(3) {
                let at = start + random.below((whole.len() - start) as u64) as usize;
                bent[at] = random.next() as u8;
            }
            let begun = Instant::now();
            let _ = decode_object(&bent, 0, &options);
            let _ = decode_range(&bent, 0, &[(3, 20), (50, 10)], &options);
            assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", case.descriptor);
        }
    }
}

#[test]
fn lossless_sz3_of_other_dtypes_is_read() {
    let mut random = Random(17);
    let none = || ("none", vec![]);
    let sz3 = |bound| {
        ("sz3", vec![("sz3_error_bound_mode", text("abs")), ("sz3_error_bound", CborItem::Float(bound))])
    };
    // The reference interprets the bytes of integers as doubles.
    for (bound, read) in [(0.0, true), (1.0, false)] {
        let floats = case(&mut random, DType::Float64, 4000, [none(), none(), sz3(bound)]);
        let message = message(&floats, &EncodeOptions::default()).unwrap();
        let mut descriptor = Descriptor::raw(DType::Int32, &[8000]);
        descriptor.compression = "sz3".to_owned();
        descriptor.params = floats.descriptor.params.clone();
        // The writer rejects such objects, so the payload of another one is used.
        let frame = ObjectFrame::new(descriptor, payload(&message).into(), true);
        let bent =
            encode_message(&GlobalMetadata::default(), vec![frame], true, AggregateHash::Auto).unwrap();
        let found = decode_object(&bent, 0, &DecodeOptions::default());
        match found {
            Ok((_, _, cells)) => assert!(read && cells == floats.cells),
            Err(error) => {
                assert!(!read, "{error:?}");
                let TensogramError::Encoding(error) = error else { panic!("{error:?}") };
                assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
            }
        }
    }
}
