//! Runs the body of the fuzz target `codec` on thousands of mutated streams of every codec.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs)]
#![cfg(feature = "zfp")]

#[path = "../../../fuzz/src/codec.rs"]
mod codec;

use tesseral_codec::{Contexts, aec, bitset, blosc2, lz4, sz3, zfp, zstd};

/// One valid input per codec: the selector bytes, then a stream.
fn seeds() -> Vec<Vec<u8>> {
    let mut contexts = Contexts::default();
    let len = 1600_usize;
    let cells: Vec<u8> = (0..200).flat_map(|i| ((f64::from(i) / 9.0).sin() * 40.0).to_ne_bytes()).collect();
    let bytes: Vec<u8> = (0..len).map(|i| (i / 7) as u8).collect();
    let head = |kind: u8, c: u8| vec![kind, (len >> 8) as u8, len as u8, c];
    let mut all = Vec::new();
    let mut push = |head: Vec<u8>, make: &mut dyn FnMut(&mut Vec<u8>)| {
        let mut out = head;
        make(&mut out);
        all.push(out);
    };
    push(head(0, 0), &mut |out| zstd::encode(&bytes, 3, out, &mut Contexts::default()).unwrap());
    push(head(0, 0), &mut |out| {
        zstd::encode_frames(&bytes, 300, 3, out, &mut Contexts::default()).unwrap();
    });
    push(head(1, 0), &mut |out| lz4::encode(&bytes, out).unwrap());
    // Eight bits, blocks of 8, an RSI of 5 blocks, prediction.
    push(vec![2, 7, 64, 4], &mut |out| {
        let params = aec::Params::new(8, 8, 5, aec::PREPROCESS).unwrap();
        aec::encode(&bytes.repeat(2)[..7 << 8 | 64], &params, out).map(drop).unwrap();
    });
    push(head(3, 0), &mut |out| out.extend_from_slice(&bytes));
    push(vec![4, 6, 64, 0], &mut |out| bitset::rle::encode(&bytes, 1600, out));
    push(vec![5, 6, 64, 0], &mut |out| bitset::roaring::encode(&bytes, 1600, out).unwrap());
    for (codec, shuffle) in [
        (blosc2::Codec::Lz4, blosc2::Shuffle::Byte),
        (blosc2::Codec::BloscLz, blosc2::Shuffle::Bit),
        (blosc2::Codec::Zlib, blosc2::Shuffle::None),
        (blosc2::Codec::Zstd, blosc2::Shuffle::Byte),
    ] {
        let settings = blosc2::FrameSettings { codec, level: 5, typesize: 8, shuffle };
        push(head(6, 0), &mut |out| blosc2::encode(&cells, &settings, out, &mut contexts).unwrap());
    }
    for c in [30, 31, 32] {
        let mode = match c % 3 {
            0 => zfp::Mode::Rate(f64::from(c) / 3.0),
            1 => zfp::Mode::Precision(u32::from(c)),
            _ => zfp::Mode::Accuracy(f64::from(c).exp2() / 1e9),
        };
        push(head(7, c), &mut |out| zfp::encode(&cells, mode, out).unwrap());
    }
    for bound in [0.0, 0.01] {
        let bound = sz3::Bound::Absolute(bound);
        push(head(8, 0), &mut |out| sz3::encode(&cells, bound, out, &mut Contexts::default()).unwrap());
    }
    push(head(9, 0), &mut |out| out.extend_from_slice(&bytes));
    push(head(10, 0), &mut |out| out.extend_from_slice(&bytes));
    for kind in 11..codec::KINDS {
        for c in 0..16 {
            push(head(kind, c | 0xf0), &mut |out| {
                // One unfiltered chunk; filters may reject it.
                out.extend_from_slice(&1_u64.to_le_bytes());
                for n in [1600_u32, 200, 40] {
                    out.extend_from_slice(&n.to_le_bytes());
                }
                out.extend_from_slice(&bytes[..240]);
            });
        }
    }
    all
}

#[test]
fn mutated_streams_never_panic() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for seed in seeds() {
        codec::exercise(&seed);
        for _ in 0..150 {
            let mut mutated = seed.clone();
            for _ in 0..=next() % 4 {
                let at = 4 + next() as usize % (mutated.len() - 4).max(1);
                if let Some(byte) = mutated.get_mut(at) {
                    *byte = next() as u8;
                }
            }
            if next() % 5 == 0 {
                mutated.truncate(next() as usize % mutated.len());
            }
            codec::exercise(&mutated);
        }
    }
    // Random bytes.
    for _ in 0..3000 {
        let len = next() as usize % 300;
        let noise: Vec<u8> = (0..len).map(|_| next() as u8).collect();
        codec::exercise(&noise);
    }
}

/// `szip_difference_beyond_range`: a difference larger than the sample range made the next one overflow.
#[test]
fn corpus_inputs_never_panic() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/codec");
    let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.iter().any(|path| path.ends_with("szip_difference_beyond_range")));
    files.iter().for_each(|path| codec::exercise(&std::fs::read(path).unwrap()));
}
