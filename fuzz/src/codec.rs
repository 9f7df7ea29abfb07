//! Arbitrary bytes as a codec stream; the first byte selects the codec. Shared by the fuzz target `codec` and a test that runs on
//! any toolchain.

use tesseral_codec::bitset::{rle, roaring};
use tesseral_codec::filter::{Chain, ElementKind, Filter, FilterContext, FilterElement};
use tesseral_codec::packing::SimplePacking;
use tesseral_codec::zfp::Mode;
use tesseral_codec::{Contexts, aec, bitshuffle, blosc2, lz4, lzma, shuffle, sz3, zfp, zstd};

/// The codecs that the first byte selects from, by name.
pub const NAMES: [&str; 16] = [
    "zstd",
    "lz4",
    "szip",
    "packing",
    "rle",
    "roaring",
    "blosc2",
    "zfp",
    "sz3",
    "shuffle",
    "bitshuffle",
    "filters_float",
    "filters_signed",
    "filters_unsigned",
    "filters_text",
    "lzma",
];

/// The number of codecs.
pub const KINDS: u8 = NAMES.len() as u8;

/// Decodes in every way that must not panic. Ranges must equal slices of the full decode.
pub fn exercise(data: &[u8]) {
    let [kind, a, b, c, src @ ..] = data else { return };
    let (a, b, c) = (usize::from(*a), usize::from(*b), usize::from(*c));
    let mut contexts = Contexts::default();
    let len = (a << 8 | b) % 20_000;
    let mut dst = vec![0; len];
    // A range in the middle.
    let (from, to) = (len / 3, len - len / 4);
    match kind % KINDS {
        0 => {
            let whole = zstd::decode_into(src, &mut dst, &mut contexts).is_ok();
            let Some(step) = zstd::frame_step(src, len as u64) else { return };
            let mut part = vec![0; (step as usize * 2).min(len) - step as usize];
            let ranged = zstd::decode_range(src, step, &mut part, &mut contexts);
            if whole {
                ranged.expect("a frame of a valid stream decodes");
                assert_eq!(part, dst[step as usize..step as usize + part.len()]);
            }
        }
        1 => drop(lz4::decode_into(src, &mut dst)),
        2 => {
            let flags =
                (c as u32) << 1 & (aec::MSB | aec::PREPROCESS) | c as u32 & (aec::SIGNED | aec::THREE_BYTE);
            let Ok(params) = aec::Params::new(a as u32 % 32 + 1, 8 << (b % 4), c as u32 + 1, flags) else {
                return;
            };
            let size = params.sample_size();
            dst.truncate(len / size * size);
            if aec::decode_into(src, &params, &mut dst).is_ok() {
                let (total, first) = (dst.len() / size, dst.len() / size / 3);
                let mut part = vec![0; (total - first) / 2 * size];
                let mut index = aec::RsiIndex::default();
                let bit =
                    index.find_sample(src, &params, first as u64).expect("a valid stream has the sample");
                aec::decode_range(src, &params, bit, total as u64, first as u64, &mut part)
                    .expect("a range of a valid stream decodes");
                assert_eq!(part, dst[first * size..first * size + part.len()]);
            }
        }
        3 => {
            let Ok(packing) = SimplePacking::new(1.5, b as i32 - 128, 0, a as u32 % 70) else { return };
            dst.truncate(len / 8 * 8);
            let _ = packing.decode_into(src, c as u64, &mut dst);
        }
        4 | 5 => {
            let bits = (a << 8 | b) as u64;
            let mut dst = vec![0; bits.div_ceil(8) as usize];
            let _ = if kind % KINDS == 4 {
                rle::decode_into(src, bits, &mut dst)
            } else {
                roaring::decode_into(src, bits, &mut dst)
            };
        }
        6 => {
            if blosc2::decode_into(src, &mut dst, &mut contexts).is_ok() {
                let mut part = vec![0; to - from];
                blosc2::decode_range(src, len as u64, from as u64, &mut part, &mut contexts)
                    .expect("a range of a valid stream decodes");
                assert_eq!(part, dst[from..to]);
            }
        }
        7 => {
            let mode = match c % 3 {
                0 => Mode::Rate(c as f64 / 3.0),
                1 => Mode::Precision(c as u32),
                _ => Mode::Accuracy((c as f64).exp2() / 1e9),
            };
            dst.truncate(len / 8 * 8);
            let total = dst.len() / 8;
            if zfp::decode_into(src, mode, &mut dst).is_ok() && total > 0 {
                let mut part = vec![0; 8 * (total - total / 2)];
                zfp::decode_range(src, mode, total as u64, total as u64 / 2, &mut part)
                    .expect("a range of a valid stream decodes");
                assert_eq!(part, dst[dst.len() - part.len()..]);
            }
        }
        8 => drop(sz3::decode_into(src, &mut dst, &mut contexts)),
        9 => drop(shuffle::decode_into(src, a, &mut vec![0; src.len()])),
        10 => bitshuffle::decode_into(src, a + 1, &mut vec![0; src.len()]),
        15 => drop(lzma::decode_into(src, lzma::LzmaContainer::Auto, &mut dst)),
        _ => filters(kind % KINDS, a, b, c, src, &mut dst, &mut contexts),
    }
}

/// A TileDB filter pipeline.
fn filters(kind: u8, a: usize, b: usize, c: usize, src: &[u8], dst: &mut [u8], contexts: &mut Contexts) {
    let all = [
        Filter::Gzip { level: 1 },
        Filter::Zstd { level: 1 },
        Filter::Lz4 { level: 1 },
        Filter::Rle,
        Filter::Bzip2 { level: 1 },
        Filter::DoubleDelta { reinterpret: None },
        Filter::Delta { reinterpret: None },
        Filter::BitWidthReduction { window: 256 },
        Filter::BitShuffle,
        Filter::ByteShuffle,
        Filter::PositiveDelta { window: 256 },
        Filter::Md5,
        Filter::Sha256,
        Filter::FloatScale { scale: 0.5, offset: 1.0, width: 2 },
        Filter::Xor,
        Filter::Noop,
    ];
    let word = match kind {
        11 => FilterElement::new(8, ElementKind::Float),
        12 => FilterElement::new(1 << (a % 4), ElementKind::Signed),
        13 => FilterElement::new(1 << (b % 4), ElementKind::Unsigned),
        _ => FilterElement::new(1, ElementKind::Text),
    };
    let chosen = [c % 16, c / 16];
    let chain = Chain::new(chosen.into_iter().map(|i| all[i]), word, word.size, false);
    let rules = FilterContext { version: 22, verify: a.is_multiple_of(2), key: None };
    let _ = chain.decode_into(src, dst, &rules, contexts);
}
