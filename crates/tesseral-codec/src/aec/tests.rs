use super::*;

/// A xorshift generator.
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

/// Samples of different kinds: noise, walks, mostly zero, constant, extremes.
fn samples(random: &mut Random, params: &Params, count: usize) -> Vec<u8> {
    let (kind, size) = (random.below(6), params.sample_size());
    let mut level = random.next() as u32 & params.mask();
    let mut bytes = Vec::new();
    for _ in 0..count {
        let noise = random.next() as u32;
        level = match kind {
            0 => noise,
            1 => level.wrapping_add(noise % 7).wrapping_sub(3),
            2 => {
                if noise.is_multiple_of(50) {
                    noise >> 8
                } else {
                    0
                }
            }
            3 => level,
            4 => {
                if noise & 1 == 0 {
                    0
                } else {
                    u32::MAX
                }
            }
            _ => level.wrapping_add((noise % 3) * (noise >> 20)),
        } & params.mask();
        let mut x = level;
        if level & params.bias() != 0 {
            x |= !params.mask();
        }
        let word = if params.has(MSB) { (x << (32 - 8 * size)).to_be_bytes() } else { x.to_le_bytes() };
        bytes.extend_from_slice(&word[..size]);
    }
    bytes
}

fn random_params(random: &mut Random) -> Params {
    let bits = if random.below(2) == 0 {
        [8, 16, 24, 32][random.below(4) as usize]
    } else {
        random.below(32) as u32 + 1
    };
    let block = [8, 16, 32, 64][random.below(4) as usize];
    let rsi = [1, 2, 3, 63, 64, 65, 128, 200][random.below(8) as usize];
    let flags = random.next() as u32 & (SIGNED | THREE_BYTE | MSB | PREPROCESS);
    Params::new(bits, block, rsi, flags).unwrap()
}

/// The start positions of the RSIs, by walking.
fn walked(stream: &[u8], params: &Params, count: usize) -> Vec<u64> {
    let mut index = RsiIndex::default();
    (0..count as u64).map(|number| index.find(stream, params, number).unwrap()).collect()
}

#[test]
fn round_trips() {
    let mut random = Random(0x9e37_79b9);
    for case in 0..1500 {
        let params = random_params(&mut random);
        let count = random.below(3000) as usize;
        let src = samples(&mut random, &params, count);
        let mut packed = Vec::new();
        let offsets = encode(&src, &params, &mut packed).unwrap();
        assert_eq!(offsets.len(), count.div_ceil(params.interval()));
        let mut back = vec![0xaa; src.len()];
        decode_into(&packed, &params, &mut back).unwrap();
        assert_eq!(back, src, "case {case}: {params:?}");
        let (a, b) = (random.below(count as u64 + 1), random.below(count as u64 + 1));
        let range = a.min(b)..a.max(b);
        let size = params.sample_size();
        let expected = &src[range.start as usize * size..range.end as usize * size];
        assert_eq!(walked(&packed, &params, offsets.len()), offsets);
        let mut part = vec![0xaa; expected.len()];
        // Stored offsets, some of them wrong in the way libaec's are.
        let mistaken = |(k, &true_one): (usize, &u64)| match k.checked_sub(1) {
            Some(before) if random.below(2) == 0 => {
                let mut bits = bits::BitReader::at(&packed, offsets[before]).unwrap();
                index::skip_interval(&mut bits, &params).unwrap()
            }
            _ => true_one,
        };
        let stored: Vec<u64> = offsets.iter().enumerate().map(mistaken).collect();
        for (number, bit) in (0..).zip(&offsets) {
            let found = RsiIndex::from_offsets(stored.clone()).find(&packed, &params, number).unwrap();
            assert_eq!(found, *bit, "case {case}: {params:?} interval {number}");
        }
        if !part.is_empty() {
            let bit = RsiIndex::from_offsets(stored).find_sample(&packed, &params, range.start).unwrap();
            decode_range(&packed, &params, bit, count as u64, range.start, &mut part).unwrap();
        }
        assert_eq!(part, expected, "case {case}: {params:?} {range:?}");
    }
}

#[test]
fn every_truncation_is_rejected() {
    let mut random = Random(7);
    for _ in 0..60 {
        let params = random_params(&mut random);
        let src = samples(&mut random, &params, 300);
        let mut packed = Vec::new();
        encode(&src, &params, &mut packed).unwrap();
        let mut back = vec![0; src.len()];
        for len in 0..packed.len() {
            assert!(decode_into(&packed[..len], &params, &mut back).is_err(), "{params:?} {len}");
        }
    }
}

#[test]
fn arbitrary_bytes_never_panic() {
    let mut random = Random(99);
    let mut rejected = 0;
    for case in 0..4000 {
        let params = random_params(&mut random);
        let src = samples(&mut random, &params, 500);
        let mut packed: Vec<u8>;
        if case % 2 == 0 {
            packed = Vec::new();
            encode(&src, &params, &mut packed).unwrap();
            for _ in 0..3 {
                let at = random.below(packed.len() as u64) as usize;
                packed[at] ^= 1 << random.below(8);
            }
        } else {
            packed = (0..random.below(200)).map(|_| random.next() as u8).collect();
        }
        let mut back = vec![0; src.len()];
        rejected += usize::from(decode_into(&packed, &params, &mut back).is_err());
    }
    assert!(rejected > 2000, "{rejected}");
}

#[test]
fn zeros_compress_well() {
    let params = Params::new(8, 8, 128, PREPROCESS).unwrap();
    let mut packed = Vec::new();
    encode(&[0; 100_000], &params, &mut packed).unwrap();
    assert!(packed.len() < 400, "{}", packed.len());
    // A short stream fills no more than the caller's buffer, and truncation is an error.
    assert!(decode_into(&packed, &params, &mut vec![0; 200_000]).is_err());
    assert!(decode_into(&packed, &params, &mut vec![0; 1_000]).is_err());
}

#[test]
fn parameters_are_checked() {
    use tesseral_core::ErrorKind;
    for (bits, block, rsi, flags) in [
        (0, 8, 1, 0),
        (33, 8, 1, 0),
        (8, 10, 1, 0),
        (8, 9, 1, NOT_ENFORCE),
        (8, 8, 0, 0),
        (8, 8, 4097, 0),
        (8, 0, 1, NOT_ENFORCE),
    ] {
        let error = Params::new(bits, block, rsi, flags).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Codec { .. }), "{error}");
    }
    for flags in [RESTRICTED, PAD_RSI] {
        let error = Params::new(4, 8, 1, flags).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{error}");
    }
    assert!(Params::new(8, 10, 1, NOT_ENFORCE).is_ok());
}

#[test]
fn samples_wider_than_declared_are_rejected() {
    let params = Params::new(5, 8, 1, 0).unwrap();
    assert!(encode(&[31; 8], &params, &mut Vec::new()).is_ok());
    assert!(encode(&[32; 8], &params, &mut Vec::new()).is_err());
}

/// Streams of libaec 1.1.4, written by the `tensogram` 0.24.0 package: `bits block rsi flags samples stream offsets`.
/// The variable AEC_STREAMS may name a file with more streams.
/// Some of the stored offsets are wrong: a known defect of the package.
#[test]
fn reference_streams_are_reproduced() {
    let unhex = |text: &str| -> Vec<u8> {
        (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
    };
    let more = std::env::var("AEC_STREAMS").ok().map(|path| std::fs::read_to_string(path).unwrap());
    let kept = include_str!("../../tests/data/szip.txt");
    let (mut count, mut wrong) = (0, 0);
    for line in kept.lines().chain(more.as_deref().unwrap_or_default().lines()) {
        let words: Vec<&str> = line.split(' ').collect();
        let [bits, block, rsi, flags, src, stream, offsets] = words[..] else { panic!("{line}") };
        let number = |text: &str| text.parse::<u32>().unwrap();
        let params = Params::new(number(bits), number(block), number(rsi), number(flags)).unwrap();
        let (src, stream) = (unhex(src), unhex(stream));
        let mut packed = Vec::new();
        let found = encode(&src, &params, &mut packed).unwrap();
        assert_eq!(packed, stream, "{params:?}");
        let mut back = vec![0; src.len()];
        decode_into(&stream, &params, &mut back).unwrap();
        assert_eq!(back, src, "{params:?}");
        let stored: Vec<u64> = offsets.split(',').map(|o| o.parse().unwrap()).collect();
        wrong += usize::from(found != stored);
        assert_eq!(walked(&stream, &params, found.len()), found);
        let size = params.sample_size();
        let samples = src.len() / size;
        for (number, bit) in (0..).zip(&found) {
            assert_eq!(
                RsiIndex::from_offsets(stored.clone()).find(&stream, &params, number).unwrap(),
                *bit,
                "{params:?}"
            );
        }
        let mut index = RsiIndex::from_offsets(stored);
        for start in (0..samples).step_by(samples / 7 + 1) {
            let end = (start + samples / 5 + 1).min(samples);
            let mut part = vec![0; (end - start) * size];
            let bit = index.find_sample(&stream, &params, start as u64).unwrap();
            decode_range(&stream, &params, bit, samples as u64, start as u64, &mut part).unwrap();
            assert_eq!(part, src[start * size..end * size], "{params:?}");
        }
        count += 1;
    }
    println!("{count} streams, {wrong} with wrong offsets");
    assert!(count >= 20 && wrong > 0);
}
