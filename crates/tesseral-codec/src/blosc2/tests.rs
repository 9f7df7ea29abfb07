use super::*;
use tesseral_core::ErrorKind;

const CODECS: [Codec; 5] = [Codec::BloscLz, Codec::Lz4, Codec::Lz4Hc, Codec::Zlib, Codec::Zstd];
const SHUFFLES: [Shuffle; 3] = [Shuffle::None, Shuffle::Byte, Shuffle::Bit];

/// Inputs of different kinds.
fn cases() -> Vec<Vec<u8>> {
    let mut state = 88_172_645_463_325_252_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut all = vec![Vec::new(), vec![7], vec![0; 100], vec![9; 70_001]];
    for len in [3_usize, 31, 255, 4096, 100_003, 300_000] {
        all.push((0..len).map(|_| next() as u8).collect());
        all.push((0..len).map(|i| (i as u32 / 7).to_le_bytes()[i % 4]).collect());
        all.push((0..len).map(|i| if next() % 50 == 0 { i as u8 } else { 0 }).collect());
    }
    // Repetitions at a large distance.
    let block: Vec<u8> = (0..20_000).map(|_| next() as u8).collect();
    all.push(block.repeat(3));
    all
}

fn frame(src: &[u8], settings: &FrameSettings) -> Vec<u8> {
    let mut out = Vec::new();
    encode(src, settings, &mut out, &mut Contexts::default()).unwrap();
    out
}

#[test]
fn chunks_of_blosc_1_round_trip_and_truncations_are_rejected() {
    let mut contexts = Contexts::default();
    for src in cases() {
        for (codec, shuffle) in CODECS.iter().flat_map(|codec| SHUFFLES.map(|shuffle| (*codec, shuffle))) {
            for (typesize, level) in [(1, 5), (4, 1), (7, 5), (8, 0)] {
                let settings = FrameSettings { codec, level, typesize, shuffle };
                let mut packed = Vec::new();
                encode_chunk(&src, &settings, &mut packed, &mut contexts).unwrap();
                assert!(packed.len() <= src.len() + 16);
                assert_eq!(chunk_len(&packed).unwrap(), src.len());
                let mut back = vec![0xaa; src.len()];
                decode_chunk_into(&packed, &mut back, &mut contexts).unwrap();
                assert!(back == src, "{settings:?} {}", src.len());
                for start in [0, src.len() / 3, src.len()] {
                    let part = &mut back[..(src.len() - start).min(1000)];
                    part.fill(0xaa);
                    decode_chunk_range(&packed, src.len(), start, part, &mut contexts).unwrap();
                    assert!(src[start..].starts_with(part), "{settings:?} {start}");
                }
                assert!(decode_chunk_range(&packed, src.len(), src.len(), &mut [0], &mut contexts).is_err());
                assert!(decode_chunk_range(&packed, src.len() + 1, 0, &mut [], &mut contexts).is_err());
                for len in (0..packed.len()).step_by(packed.len() / 9 + 1) {
                    assert!(decode_chunk_into(&packed[..len], &mut back, &mut contexts).is_err());
                }
            }
        }
    }
}

#[test]
fn every_codec_and_shuffle_round_trips() {
    let mut contexts = Contexts::default();
    for src in cases() {
        for codec in CODECS {
            for (shuffle, typesize, level) in
                SHUFFLES.iter().flat_map(|s| [(*s, 1, 5), (*s, 4, 1), (*s, 7, 5), (*s, 8, 0), (*s, 17, 9)])
            {
                if level == 9 && src.len() > 100_000 {
                    continue;
                }
                let settings = FrameSettings { codec, level, typesize, shuffle };
                let packed = frame(&src, &settings);
                let mut back = vec![0xaa; src.len()];
                decode_into(&packed, &mut back, &mut contexts).unwrap();
                assert!(back == src, "{settings:?} {}", src.len());
                for start in (0..src.len()).step_by(src.len() / 5 + 1) {
                    let end = (start + src.len() / 7 + 1).min(src.len());
                    let mut part = vec![0xaa; end - start];
                    decode_range(&packed, src.len() as u64, start as u64, &mut part, &mut contexts).unwrap();
                    assert!(part == src[start..end], "{settings:?} {start}");
                }
            }
        }
    }
}

#[test]
fn compression_saves_bytes() {
    let src: Vec<u8> = (0..100_000_u32).flat_map(|i| (i / 3).to_le_bytes()).collect();
    for codec in CODECS {
        let settings = FrameSettings { codec, level: 5, typesize: 4, shuffle: Shuffle::Byte };
        let packed = frame(&src, &settings);
        assert!(packed.len() < src.len() / 4, "{codec:?}: {}", packed.len());
    }
}

#[test]
fn wrong_sizes_are_rejected() {
    let settings = FrameSettings { codec: Codec::Lz4, level: 5, typesize: 4, shuffle: Shuffle::Byte };
    let packed = frame(&[1; 4000], &settings);
    let mut contexts = Contexts::default();
    for len in [0, 3999, 4001] {
        let error = decode_into(&packed, &mut vec![0; len], &mut contexts).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Codec { .. }), "{error}");
    }
    let error = decode_range(&packed, 4000, 3990, &mut [0; 11], &mut contexts).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidRequest { .. }), "{error}");
}

#[test]
fn truncated_and_mutated_bytes_never_panic() {
    let mut contexts = Contexts::default();
    let src: Vec<u8> = (0..3000_u32).flat_map(|i| (i * i / 5).to_le_bytes()).collect();
    let mut state = 5_u64;
    for codec in CODECS {
        for shuffle in SHUFFLES {
            let settings = FrameSettings { codec, level: 5, typesize: 4, shuffle };
            let packed = frame(&src, &settings);
            let mut back = vec![0; src.len()];
            for len in 0..packed.len() {
                assert!(decode_into(&packed[..len], &mut back, &mut contexts).is_err(), "{len}");
            }
            for _ in 0..1500 {
                let mut mutated = packed.clone();
                for _ in 0..2 {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let at =
                        (state >> 33) as usize % if state.is_multiple_of(3) { mutated.len() } else { 200 };
                    mutated[at] = (state >> 20) as u8;
                }
                let _ = decode_into(&mutated, &mut back, &mut contexts);
                let _ = decode_range(&mutated, src.len() as u64, 5000, &mut [0; 100], &mut contexts);
            }
        }
    }
}

/// A frame whose only chunk is replaced by a single-value chunk.
fn special(bits: u8, len: u32, typesize: u8, value: &[u8]) -> Vec<u8> {
    let mut chunk = vec![5, 1, 0x37, typesize];
    chunk.extend_from_slice(&len.to_le_bytes());
    chunk.extend_from_slice(&len.to_le_bytes());
    chunk.extend_from_slice(&(32 + value.len() as u32).to_le_bytes());
    chunk.extend_from_slice(&[0; 15]);
    chunk.push(bits << 4);
    chunk.extend_from_slice(value);
    let mut index = Vec::new();
    let settings = FrameSettings { codec: Codec::BloscLz, level: 0, typesize: 8, shuffle: Shuffle::Byte };
    let whole = frame(&[0; 8], &settings);
    index.extend_from_slice(&whole[97 + 40..whole.len() - 35]);
    let header = frame::Blosc2Header {
        total: len.into(),
        compressed: chunk.len() as u64,
        body: (chunk.len() + index.len()) as u64,
        typesize,
        block_len: len,
        chunk_len: len,
        codec_flags: 0x51,
        codec: 1,
        filter: 1,
    };
    let mut out = Vec::new();
    header.write(&mut out);
    out.extend_from_slice(&chunk);
    out.extend_from_slice(&index);
    frame::Blosc2Header::write_trailer(&mut out);
    out
}

#[test]
fn single_value_chunks_have_no_blocks() {
    let mut contexts = Contexts::default();
    let mut decode = |bits, typesize, value: &[u8]| {
        let mut out = vec![0xaa; 24];
        decode_into(&special(bits, 24, typesize, value), &mut out, &mut contexts).map(|()| out)
    };
    assert_eq!(decode(1, 4, &[]).unwrap(), [0; 24]);
    assert_eq!(decode(4, 4, &[]).unwrap(), [0; 24]);
    assert_eq!(decode(2, 4, &[]).unwrap(), f32::NAN.to_le_bytes().repeat(6));
    assert_eq!(decode(2, 8, &[]).unwrap(), f64::NAN.to_le_bytes().repeat(3));
    assert!(decode(2, 2, &[]).is_err());
    assert_eq!(decode(3, 3, &[1, 2, 3]).unwrap(), [1, 2, 3].repeat(8));
    assert!(decode(3, 3, &[]).is_err());
    assert!(decode(5, 4, &[]).is_err());
    let packed = special(3, 24, 3, &[1, 2, 3]);
    let mut part = [0; 4];
    decode_range(&packed, 24, 4, &mut part, &mut contexts).unwrap();
    assert_eq!(part, [2, 3, 1, 2]);
}

#[test]
fn unsupported_features_are_named() {
    let settings = FrameSettings { codec: Codec::Lz4, level: 5, typesize: 4, shuffle: Shuffle::Byte };
    let packed = frame(&(0..=255).collect::<Vec<u8>>().repeat(4), &settings);
    let mut contexts = Contexts::default();
    // Kind of frame, version, filter, codec, dictionary of the chunk.
    for (at, byte) in [(26, 1), (97, 9), (97 + 21, 40), (97 + 2, 0xd5), (97 + 31, 1), (97 + 30, 1)] {
        let mut mutated = packed.clone();
        mutated[at] = byte;
        let error = decode_into(&mutated, &mut [0; 1024], &mut contexts).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{at}: {error}");
    }
}

#[test]
fn work_space_is_bounded() {
    let mut contexts = Contexts::default();
    let limit = |result: Result<()>| matches!(result.unwrap_err().kind(), ErrorKind::Limit { .. });
    // A chunk that is one block, with two filters.
    let len = 12 << 20;
    let mut chunk = vec![5, 1, 0x35, 4];
    for size in [len, len, 36] {
        chunk.extend_from_slice(&(size as u32).to_le_bytes());
    }
    chunk.extend_from_slice(&[1, 2, 0, 0, 0, 0]);
    chunk.resize(36, 0);
    let mut out = vec![0; len];
    assert!(limit(decode_chunk_into(&chunk, &mut out, &mut contexts)));
    chunk[17] = 0;
    assert!(!limit(decode_chunk_into(&chunk, &mut out, &mut contexts)));
    // A frame that declares a chunk for every eight bytes.
    let settings = FrameSettings { codec: Codec::Lz4, level: 5, typesize: 4, shuffle: Shuffle::Byte };
    let mut packed = frame(&vec![7; 1 << 20], &settings);
    packed[58..62].copy_from_slice(&8_u32.to_be_bytes());
    assert!(limit(decode_into(&packed, &mut vec![0; 1 << 20], &mut contexts)));
}

#[test]
fn delta_is_undone() {
    let settings = FrameSettings { codec: Codec::Lz4, level: 5, typesize: 2, shuffle: Shuffle::None };
    // Three blocks, the last one short.
    let block = settings.block_len(1 << 20);
    let src: Vec<u8> = (0..2 * block + 333).map(|i| (i * i / 77) as u8).collect();
    let mut coded = src.clone();
    for i in (2..block).rev() {
        coded[i] ^= src[i - 2];
    }
    for start in [block, 2 * block] {
        let end = (start + block).min(src.len());
        let whole = start + (end - start) / 2 * 2;
        for i in start..whole {
            coded[i] ^= src[i - start];
        }
    }
    let mut packed = frame(&coded, &settings);
    packed[97 + 21] = filters::DELTA;
    let mut contexts = Contexts::default();
    let mut back = vec![0; src.len()];
    decode_into(&packed, &mut back, &mut contexts).unwrap();
    assert!(back == src);
    let mut part = vec![0; 1000];
    decode_range(&packed, src.len() as u64, block as u64 + 5, &mut part, &mut contexts).unwrap();
    assert!(part == src[block + 5..block + 1005]);
}
