//! Pipelines on handmade, truncated and random chunks.

use std::io::Write;

use tesseral_core::{ErrorKind, Result};

use super::*;
use crate::Contexts;

const RULES: FilterContext<'static> = FilterContext { version: 22, verify: true, key: None };
const INT: FilterElement = FilterElement { size: 4, kind: ElementKind::Signed };

fn u32s(values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn ints(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn tile(chunks: &[(usize, &[u8], &[u8])]) -> Vec<u8> {
    let mut out = (chunks.len() as u64).to_le_bytes().to_vec();
    for (original, meta, data) in chunks {
        out.extend(u32s(&[*original as u32, data.len() as u32, meta.len() as u32]));
        out.extend_from_slice(meta);
        out.extend_from_slice(data);
    }
    out
}

fn compressed(original: usize, data: &[u8]) -> Vec<u8> {
    u32s(&[0, 1, original as u32, data.len() as u32])
}

fn decode(filters: &[Filter], word: FilterElement, tile: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut out = vec![0xA5; len];
    let chain = Chain::new(filters.iter().copied(), word, word.size, false);
    chain.decode_into(tile, &mut out, &RULES, &mut Contexts::default())?;
    Ok(out)
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(6));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn bzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ::bzip2::write::BzEncoder::new(Vec::new(), ::bzip2::Compression::new(1));
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// Filters, elements, tile, cells.
type Case = (Vec<Filter>, FilterElement, Vec<u8>, Vec<u8>);

fn cases() -> Vec<Case> {
    let cells = ints(&[5, 5, 5, -7, 1 << 20, 0, 3, 3]);
    let single_filter = |filter: Filter, meta: Vec<u8>, data: Vec<u8>| -> Case {
        (vec![filter], INT, tile(&[(cells.len(), &meta, &data)]), cells.clone())
    };
    let part = |filter: Filter, data: Vec<u8>| single_filter(filter, compressed(cells.len(), &data), data);
    let mut zstd = Vec::new();
    crate::zstd::encode(&cells, 1, &mut zstd, &mut Contexts::default()).unwrap();
    let steps = {
        let mut data = 8_u64.to_le_bytes().to_vec();
        data.extend(ints(&[5, 0, 0, -12, (1 << 20) + 7, -(1 << 20), 3, 0]));
        data
    };
    let runs: Vec<u8> = [(5, 3_u16), (-7, 1), (1 << 20, 1), (0, 1), (3, 2)]
        .iter()
        .flat_map(|(v, n): &(i32, u16)| v.to_le_bytes().into_iter().chain(n.to_be_bytes()))
        .collect();
    let parts = |n: usize| u32s(&[1, n as u32]);
    let xored = {
        let values: Vec<i32> = cells.chunks(4).map(|c| i32::from_le_bytes(c.try_into().unwrap())).collect();
        let first = std::iter::once(values[0]);
        ints(&first.chain(values.windows(2).map(|w| w[0] ^ w[1])).collect::<Vec<_>>())
    };
    let shuffled: Vec<u8> = (0..4).flat_map(|k| cells.chunks(4).map(move |c| c[k])).collect();
    let md5_meta = {
        let mut meta = u32s(&[0, 1]);
        meta.extend((cells.len() as u64).to_le_bytes());
        meta.extend_from_slice(&<md5::Md5 as md5::Digest>::digest(&cells));
        meta
    };
    let sha_meta = {
        let mut meta = u32s(&[0, 1]);
        meta.extend((cells.len() as u64).to_le_bytes());
        meta.extend_from_slice(&<sha2::Sha256 as sha2::Digest>::digest(&cells));
        meta
    };
    // Two windows: four values from a minimum of -7 in 16 bits (5, 5, 5, -7), four unchanged.
    let reduced = {
        let mut meta = u32s(&[32, 2]);
        meta.extend(ints(&[-7]));
        meta.push(16);
        meta.extend(u32s(&[16]));
        meta.extend(ints(&[0]));
        meta.push(32);
        meta.extend(u32s(&[16]));
        let mut data: Vec<u8> = [12_i16, 12, 12, 0].iter().flat_map(|v| v.to_le_bytes()).collect();
        data.extend_from_slice(&cells[16..]);
        single_filter(Filter::BitWidthReduction { window: 16 }, meta, data)
    };
    let rising = {
        let mut meta = u32s(&[1]);
        meta.extend(ints(&[-3]));
        meta.extend(u32s(&[16]));
        let cells = ints(&[-3, 0, 0, 9]);
        (vec![Filter::PositiveDelta { window: 16 }], INT, tile(&[(16, &meta, &ints(&[0, 3, 0, 9]))]), cells)
    };
    let scaled = {
        let floats: Vec<u8> = [1.5_f64, -0.5, 2.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let filter = Filter::FloatScale { scale: 0.5, offset: 1.0, width: 1 };
        (
            vec![filter],
            FilterElement::new(8, ElementKind::Float),
            tile(&[(24, &u32s(&[1, 3]), &[1, 0xFD, 2])]),
            floats,
        )
    };
    // Shuffled, then gzip over metadata and data.
    let nested = {
        let inner = parts(cells.len());
        let (meta, data) = (zlib(&inner), zlib(&shuffled));
        let header =
            u32s(&[1, 1, inner.len() as u32, meta.len() as u32, shuffled.len() as u32, data.len() as u32]);
        let stored = [meta, data].concat();
        (
            vec![Filter::ByteShuffle, Filter::Gzip { level: 6 }],
            INT,
            tile(&[(cells.len(), &header, &stored)]),
            cells.clone(),
        )
    };
    let two = (Vec::new(), INT, tile(&[(12, &[], &cells[..12]), (20, &[], &cells[12..])]), cells.clone());
    vec![
        two,
        single_filter(Filter::Noop, Vec::new(), cells.clone()),
        part(Filter::Gzip { level: 6 }, zlib(&cells)),
        part(Filter::Zstd { level: 1 }, zstd),
        part(Filter::Lz4 { level: 1 }, lz4_flex::block::compress(&cells)),
        part(Filter::Bzip2 { level: 1 }, bzip(&cells)),
        part(Filter::Rle, runs),
        part(Filter::Delta { reinterpret: None }, steps),
        single_filter(Filter::Xor, parts(cells.len()), xored),
        single_filter(Filter::ByteShuffle, parts(cells.len()), shuffled.clone()),
        single_filter(Filter::Md5, md5_meta, cells.clone()),
        single_filter(Filter::Sha256, sha_meta, cells.clone()),
        reduced,
        rising,
        scaled,
        nested,
    ]
}

#[test]
fn reverses_every_filter() {
    for (filters, word, tile, cells) in cases() {
        assert_eq!(decode(&filters, word, &tile, cells.len()).unwrap(), cells, "{filters:?}");
    }
}

/// Every range of a tile of several chunks equals that slice of the full decode.
#[test]
fn ranges_equal_slices_of_the_full_decode() {
    let cells = ints(&(0..50).map(|n| n * n - 300).collect::<Vec<_>>());
    for filters in [vec![], vec![Filter::Zstd { level: 3 }], vec![Filter::Xor, Filter::Md5]] {
        let chain = Chain::new(filters.iter().copied(), INT, 4, false).chunks_of(32);
        assert_eq!(chain.cells_per_chunk(), Some(8));
        let mut contexts = Contexts::default();
        let mut tile = Vec::new();
        chain.encode(&cells, &mut tile, &RULES, &mut contexts).unwrap();
        for start in (0..=cells.len()).step_by(4) {
            for end in (start..=cells.len()).step_by(4) {
                let mut out = vec![0xA5; end - start];
                chain.decode_run(&tile, cells.len(), start, &mut out, &RULES, &mut contexts).unwrap();
                assert_eq!(out, cells[start..end], "{filters:?} {start}..{end}");
            }
        }
        let mut past = vec![0; 8];
        assert!(chain.decode_run(&tile, cells.len(), 196, &mut past, &RULES, &mut contexts).is_err());
        assert!(chain.decode_run(&tile, cells.len() + 4, 0, &mut past, &RULES, &mut contexts).is_err());
        let cut = &tile[..tile.len() - 1];
        assert!(chain.decode_run(cut, cells.len(), 0, &mut past, &RULES, &mut contexts).is_err());
    }
}

#[test]
fn runs_of_unfiltered_tiles_look_at_their_own_chunks_alone() {
    let cells: Vec<u8> = (0..1000_u32).flat_map(u32::to_le_bytes).collect();
    let chain = Chain::new([], INT, 4, false).chunks_of(402);
    let mut tile = Vec::new();
    chain.encode(&cells, &mut tile, &RULES, &mut Contexts::default()).unwrap();
    assert_eq!(chain.plain_len(cells.len()), Some(tile.len() as u64));
    let run = |tile: &[u8], range: std::ops::Range<usize>| -> Result<Vec<u8>> {
        let mut out = vec![0; range.len()];
        chain.decode_run(tile, cells.len(), range.start, &mut out, &RULES, &mut Contexts::default())?;
        Ok(out)
    };
    for range in [0..4000, 0..4, 396..404, 400..800, 1004..3000, 3996..4000, 100..100] {
        assert_eq!(run(&tile, range.clone()).unwrap(), cells[range.clone()], "{range:?}");
        if range.is_empty() {
            continue;
        }
        // Bytes outside of the span may have any value.
        let span = chain.plain_span(tile.len() as u64, cells.len(), &range).unwrap();
        let mut noise = vec![0xa5; tile.len()];
        noise[span.clone()].copy_from_slice(&tile[span]);
        noise[..8].copy_from_slice(&tile[..8]);
        assert_eq!(run(&noise, range.clone()).unwrap(), cells[range.clone()], "{range:?}");
    }
    // A different header inside the span is not ignored.
    for at in 8..20 {
        let mut damaged = tile.clone();
        damaged[at] ^= 0x10;
        assert!(run(&damaged, 0..4000).is_err(), "byte {at}");
    }
    assert_eq!(chain.plain_span(tile.len() as u64 + 1, cells.len(), &(0..4)), None);
}

#[test]
fn rejects_truncated_chunks_and_wrong_lengths() {
    for (filters, word, tile, cells) in cases() {
        for cut in 0..tile.len() {
            assert!(decode(&filters, word, &tile[..cut], cells.len()).is_err(), "{filters:?} cut at {cut}");
        }
        assert!(decode(&filters, word, &tile, cells.len() + 4).is_err(), "{filters:?}");
        assert!(decode(&filters, word, &tile, cells.len() - 4).is_err(), "{filters:?}");
    }
}

#[test]
fn checksums_detect_every_flipped_byte_of_the_data() {
    for (filters, word, tile, cells) in cases().into_iter().filter(|c| c.0[..] == [Filter::Md5]) {
        for at in tile.len() - cells.len()..tile.len() {
            let mut flipped = tile.clone();
            flipped[at] ^= 1;
            let error = decode(&filters, word, &flipped, cells.len()).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Codec { codec: "checksum_md5", .. }), "{error}");
        }
    }
}

#[test]
fn random_bytes_never_panic() {
    let mut state = 7_u64;
    let mut next = move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as usize
    };
    for (filters, word, tile, cells) in cases() {
        for _ in 0..400 {
            let mut noisy = tile.clone();
            for _ in 0..1 + next() % 4 {
                let at = next() % noisy.len();
                noisy[at] = next() as u8;
            }
            // The output has the requested length, or decoding fails.
            let _ = decode(&filters, word, &noisy, cells.len());
        }
    }
}

#[test]
fn strings_include_their_offsets() {
    let strings = ["aa", "aa", "", "b", "b", "b"];
    let text = strings.concat();
    let mut contexts = Contexts::default();
    let mut run = |chain: &Chain, tile: &[u8]| -> Result<(Vec<u64>, Vec<u8>)> {
        let (mut ends, mut data) = (Vec::new(), Vec::new());
        chain.decode_strings(tile, strings.len(), text.len(), &mut ends, &mut data, &RULES, &mut contexts)?;
        Ok((ends, data))
    };
    let runs = b"\x02\x02aa\x01\x00\x03\x01b";
    let mut meta = u32s(&[0, 1, text.len() as u32, runs.len() as u32, 48]);
    meta.extend([1, 1]);
    let rle = Chain::new([Filter::Rle], FilterElement::new(1, ElementKind::Text), 1, true);
    let rle_tile = tile(&[(text.len(), &meta, runs)]);
    let entries = b"\x02aa\x00\x01b";
    let ids = [0, 0, 1, 2, 2, 2];
    let mut meta = u32s(&[0, 1, text.len() as u32, ids.len() as u32, 48]);
    meta.extend([1, 1]);
    meta.extend(u32s(&[entries.len() as u32]));
    meta.extend(entries);
    let dictionary = Chain::new([Filter::Dictionary], FilterElement::new(1, ElementKind::Text), 1, true);
    let dictionary_tile = tile(&[(text.len(), &meta, &ids)]);
    for (chain, tile) in [(rle, rle_tile), (dictionary, dictionary_tile)] {
        assert!(chain.holds_strings());
        assert_eq!(run(&chain, &tile).unwrap(), (vec![2, 4, 4, 5, 6, 7], text.as_bytes().to_vec()));
        for cut in 0..tile.len() {
            assert!(run(&chain, &tile[..cut]).is_err());
        }
        for at in 0..tile.len() {
            for byte in [0, 1, 0x7F, 0xFF] {
                let mut noisy = tile.clone();
                noisy[at] = byte;
                let _ = run(&chain, &noisy);
            }
        }
    }
}

#[test]
fn encrypted_chunks_need_their_key() {
    use aes_gcm::aead::{AeadInOut, KeyInit};
    let key = [3; 32];
    let cells = ints(&[1, 2, 3]);
    let mut stored = cells.clone();
    let cipher = aes_gcm::Aes256Gcm::new(&key.into());
    let nonce = [9; 12];
    let tag = cipher.encrypt_inout_detached(&nonce.into(), &[], stored.as_mut_slice().into()).unwrap();
    let mut meta = u32s(&[0, 1, 12, 12]);
    meta.extend(nonce);
    meta.extend_from_slice(&tag);
    let tile = tile(&[(12, &meta, &stored)]);
    let chain = Chain::new([Filter::Aes256Gcm], INT, 4, false);
    let mut out = vec![0; 12];
    let mut open = |key: Option<&[u8; 32]>| {
        chain
            .decode_into(&tile, &mut out, &FilterContext { key, ..RULES }, &mut Contexts::default())
            .map(|()| out.clone())
    };
    assert_eq!(open(Some(&key)).unwrap(), cells);
    assert!(matches!(open(Some(&[4; 32])).unwrap_err().kind(), ErrorKind::Codec { .. }));
    assert!(matches!(open(None).unwrap_err().kind(), ErrorKind::InvalidRequest { .. }));
}

#[test]
fn webp_is_decoded_and_not_encoded() {
    let filter = Filter::WebP { channels: WebPChannels::Bgr, quality: 0.0, lossless: true, extents: [1, 6] };
    let byte = FilterElement::new(1, ElementKind::Unsigned);
    let mut file = Vec::new();
    let encoder = image_webp::WebPEncoder::new(&mut file);
    encoder.encode(&[1, 2, 3, 50, 60, 70], 2, 1, image_webp::ColorType::Rgb8).unwrap();
    let tile = tile(&[(6, &u32s(&[1, file.len() as u32]), &file)]);
    assert_eq!(decode(&[filter], byte, &tile, 6).unwrap(), [3, 2, 1, 70, 60, 50]);
    assert!(decode(&[filter], INT, &tile, 6).is_err());
    let chain = Chain::new([filter], byte, 1, false);
    let error = chain.encode(&[0; 6], &mut Vec::new(), &RULES, &mut Contexts::default()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }));
}

#[test]
fn declared_sizes_do_not_allocate() {
    // A part that declares 4 GiB.
    let meta = u32s(&[0, 1, u32::MAX, 1]);
    let tile = tile(&[(8, &meta, &[0])]);
    assert!(decode(&[Filter::Bzip2 { level: 1 }], INT, &tile, 8).is_err());
    // More chunks than bytes.
    let mut many = u64::MAX.to_le_bytes().to_vec();
    many.extend([0; 64]);
    assert!(decode(&[], INT, &many, 8).is_err());
}
