//! Small messages with huge declared sizes are rejected quickly and without allocating them.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::panic)]

use std::time::{Duration, Instant};

use tesseral_core::{DType, Error, ErrorKind};
use tesseral_tensogram::wire::cbor::{self, CborItem, ErrorLocation};
use tesseral_tensogram::wire::descriptor::Descriptor;
use tesseral_tensogram::{
    AggregateHash, DecodeOptions, GlobalMetadata, ObjectFrame, decode_object, decode_range, encode_message,
};

/// Peak memory of this process in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn message(
    dtype: DType,
    cells: u64,
    compression: &str,
    params: &[(&str, CborItem)],
    payload: &[u8],
) -> Vec<u8> {
    let mut descriptor = Descriptor::raw(dtype, &[cells]);
    descriptor.compression = compression.to_owned();
    for (key, value) in params {
        descriptor.params.insert((*key).to_owned(), value.clone());
    }
    let frame = ObjectFrame::new(descriptor, payload.into(), true);
    encode_message(&GlobalMetadata::default(), vec![frame], true, AggregateHash::Auto).unwrap()
}

const PLACE: ErrorLocation<'_> = ErrorLocation { what: "item", object: "a bomb", offset: 0 };

fn text(text: &str) -> CborItem {
    CborItem::Text(text.to_owned())
}

/// A blosc2 frame of one chunk that declares `len` bytes in blocks of `block`, with arbitrary content.
fn blosc2(len: u32, block: u32, rest: &[u8]) -> Vec<u8> {
    let mut chunk = vec![5, 1, 0x35, 4];
    chunk.extend_from_slice(&len.to_le_bytes());
    chunk.extend_from_slice(&block.to_le_bytes());
    chunk.extend_from_slice(&(32 + rest.len() as u32).to_le_bytes());
    chunk.extend_from_slice(&[0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    chunk.extend_from_slice(rest);
    let mut index = vec![5, 1, 7, 8, 8, 0, 0, 0, 8, 0, 0, 0, 40, 0, 0, 0];
    index.extend_from_slice(&[0; 24]);
    let mut out = b"\x9e\xa8b2frame\0\xd2\0\0\0\x61\xcf".to_vec();
    let total = 97 + chunk.len() + index.len() + 35;
    out.extend_from_slice(&(total as u64).to_be_bytes());
    out.extend_from_slice(&[0xa4, 0x12, 0, 0x51, 3, 0xd3]);
    out.extend_from_slice(&u64::from(len).to_be_bytes());
    out.push(0xd3);
    out.extend_from_slice(&(chunk.len() as u64).to_be_bytes());
    for size in [4, block, len] {
        out.push(0xd2);
        out.extend_from_slice(&size.to_be_bytes());
    }
    out.resize(97, 0);
    out.extend_from_slice(&chunk);
    out.extend_from_slice(&index);
    out.resize(total, 0);
    out
}

/// Settings at the end of an SZ3 stream of `n` cells.
fn sz3(n: u64, algorithm: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = vec![0x10, 0xf3, 0x42, 0xf3, 0, 2, 3, 3];
    out.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    out.extend_from_slice(payload);
    let start = out.len();
    out.extend_from_slice(&[0, 1, 64]);
    out.extend_from_slice(&n.to_le_bytes());
    out.extend_from_slice(&n.to_le_bytes());
    out.extend_from_slice(&[algorithm, 0]);
    out.extend_from_slice(&[0; 8]);
    out.extend_from_slice(&[0xe0, 1, 0, 0, 1, 0, 128, 0, 0, 0, 1]);
    out[start] = (out.len() - start) as u8;
    out
}

#[test]
fn bombs_are_rejected_quickly() {
    let n = 1_u64 << 27;
    let bytes = 8 * n;
    let uint = CborItem::UInt;
    let szip = |rsi: u64, block: u64, flags: u64| {
        vec![("szip_rsi", uint(rsi)), ("szip_block_size", uint(block)), ("szip_flags", uint(flags))]
    };
    let zfp = |mode: &str, key: &'static str| vec![("zfp_mode", text(mode)), (key, uint(8))];
    let bound = || vec![("sz3_error_bound_mode", text("abs")), ("sz3_error_bound", CborItem::Float(0.1))];
    let length = |n: u64, rest: &[u8]| [&n.to_le_bytes(), rest].concat();
    let junk = [0x5a; 300];
    let zeros = [0; 300];
    let small = (bytes / 2) as u32;
    let cases = [
        (DType::Float64, n, "zstd", vec![], junk.to_vec()),
        // A frame that declares the full size but contains less.
        (
            DType::Float64,
            n,
            "zstd",
            vec![],
            [&[0x28, 0xb5, 0x2f, 0xfd, 0xe0], &bytes.to_le_bytes()[..], &zeros].concat(),
        ),
        (DType::Float32, n / 2, "lz4", vec![], [&(small / 2).to_le_bytes()[..], &junk].concat()),
        (DType::UInt16, n, "szip", szip(4096, 64, 8), junk.to_vec()),
        (DType::UInt16, n, "szip", szip(4096, 65_534, 8 | 64), junk.to_vec()),
        (DType::UInt16, n, "szip", szip(4096, 65_534, 64), zeros.to_vec()),
        (
            DType::Float32,
            u64::from(small / 4),
            "blosc2",
            vec![],
            blosc2(small, small, &[36, 0, 0, 0, 255, 255, 0, 0]),
        ),
        (DType::Float32, u64::from(small / 4), "blosc2", vec![], blosc2(small, 4, &zeros)),
        (DType::Float32, u64::from(small / 4), "blosc2", vec![], blosc2(small, small, &junk)),
        (DType::Float64, n, "zfp", zfp("fixed_rate", "zfp_rate"), junk[..296].to_vec()),
        (DType::Float64, n, "zfp", zfp("fixed_precision", "zfp_precision"), zeros[..296].to_vec()),
        (DType::Float64, n, "zfp", zfp("fixed_accuracy", "zfp_tolerance"), junk[..296].to_vec()),
        (DType::Float64, n, "sz3", bound(), sz3(n, 2, &length(10 * n, &junk))),
        (DType::Float64, n, "sz3", bound(), sz3(n, 0, &length(u64::MAX, &junk))),
        (DType::Float64, n, "sz3", bound(), sz3(n, 4, &length(bytes, &junk))),
        (
            DType::Bitmask,
            8 * (n >> 1),
            "rle",
            vec![],
            [&(8 * (n >> 1)).to_be_bytes()[4..], &[0, 0xff, 0xff, 0xff, 0x7f]].concat(),
        ),
        (
            DType::Bitmask,
            8 * (n >> 1),
            "roaring",
            vec![],
            [&(8 * (n >> 1)).to_be_bytes()[4..], &junk].concat(),
        ),
        (DType::Float64, n, "none", vec![], junk.to_vec()),
        // More than the limit for decoded bytes.
        (DType::Float64, 1 << 40, "zstd", vec![], junk.to_vec()),
        (DType::Float64, 1 << 62, "szip", szip(128, 16, 8), junk.to_vec()),
    ];
    let before = peak();
    for (dtype, cells, compression, params, payload) in cases {
        let bomb = message(dtype, cells, compression, &params, &payload);
        let begun = Instant::now();
        let error: Error = decode_object(&bomb, 0, &DecodeOptions::default()).unwrap_err().into();
        let known = matches!(
            error.kind(),
            ErrorKind::Codec { .. }
                | ErrorKind::Limit { .. }
                | ErrorKind::Corrupt { .. }
                | ErrorKind::InvalidRequest { .. }
                | ErrorKind::Unsupported { .. }
        );
        assert!(known, "{compression}: {error}");
        let _ = decode_range(&bomb, 0, &[(cells / 2, 5)], &DecodeOptions::default());
        assert!(begun.elapsed() < Duration::from_secs(1), "{compression}: {:?}", begun.elapsed());
        let grown = peak() - before;
        assert!(grown < 64 << 10, "{compression} took {grown} KiB");
    }
}

#[test]
fn maps_as_keys_of_maps_are_encoded_in_linear_time() {
    let mut item = CborItem::UInt(0);
    for n in 0..60 {
        item = CborItem::Map(vec![(item, CborItem::Null), (CborItem::UInt(n), CborItem::Null)]);
    }
    let bytes = item.to_bytes();
    let (parsed, used) = cbor::parse(&bytes, 64, PLACE).unwrap();
    assert_eq!((used, parsed.to_bytes()), (bytes.len(), bytes));
    assert!(parsed.to_value().to_string().len() < 10_000 && parsed.to_json().to_string().len() < 10_000);
}
