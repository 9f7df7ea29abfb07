//! Any bytes as messages of tensors, without the engine: scanned, decoded whole and in ranges, validated, fed in pieces; and
//! any bytes as the masks of an otherwise valid message.

use std::borrow::Cow;

use tesseral_core::{DType, Limits};
use tesseral_tensogram::wire::cbor::{CborItem, Map};
use tesseral_tensogram::wire::descriptor::{Mask, MaskKind};
use tesseral_tensogram::{
    AggregateHash, DataObjectDescriptor, DecodeOptions, GlobalMetadata, ObjectFrame, PushDecoder,
    ValidateOptions, ValidationMode, decode, decode_descriptors, decode_metadata, decode_range,
    encode_message, scan, scan_backward, scan_with_report, validate_buffer,
};

const LIMITS: Limits =
    Limits { chunk_bytes: 1 << 20, metadata_bytes: 1 << 20, depth: 64, plan_chunks: 4096, ..Limits::DEFAULT };

/// Bytes that decide how an input is used, from its own hash, so that fixtures can be used as inputs unchanged.
pub fn choice(input: &[u8]) -> [u8; 4] {
    let hash = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    input.iter().fold(0x811c_9dc5, hash).to_be_bytes()
}

fn options(verify_hash: bool) -> DecodeOptions {
    DecodeOptions { verify_hash, limits: LIMITS, ..DecodeOptions::default() }
}

/// Finds messages from both ends and decodes each.
pub fn scanning(buffer: &[u8]) {
    let found = scan(buffer);
    let _ = scan_with_report(buffer);
    let (_, backwards) = scan_backward(buffer);
    assert!(backwards <= buffer.len());
    for (start, len) in found {
        let message = &buffer[start..start + len];
        for verify in [true, false] {
            let _ = decode_metadata(message, &options(verify));
            let _ = decode_descriptors(message, &options(verify));
            let _ = decode(message, &options(verify));
        }
    }
}

/// Feeds a stream in pieces: the output must not depend on their lengths.
pub fn feeding(stream: &[u8]) {
    let lengths = choice(stream);
    let mut decoder = PushDecoder::new(&options(true));
    let mut events = Vec::new();
    let mut rest = stream;
    for length in lengths.iter().cycle() {
        let piece;
        (piece, rest) = rest.split_at(rest.len().min(1 + usize::from(*length)));
        events.append(&mut decoder.feed(piece));
        if rest.is_empty() {
            break;
        }
    }
    events.append(&mut decoder.finish());
    let mut decoder = PushDecoder::new(&options(true));
    let mut at_once = decoder.feed(stream);
    at_once.append(&mut decoder.finish());
    assert_eq!(format!("{events:?}"), format!("{at_once:?}"), "events depend on how the stream is split");
}

/// Ranges of objects: a range of a valid object decodes, to the same cells.
pub fn ranges(buffer: &[u8]) {
    let [object, from, len, verify] = choice(buffer).map(usize::from);
    let (object, from, len) = (object % 4, from as u64, len as u64);
    let options = options(verify % 2 == 0);
    let asked = [(from, len), (0, 1), (u64::MAX - from, len)];
    let _ = decode_range(buffer, object, &asked, &options);
    let Ok((descriptor, parts)) = decode_range(buffer, object, &asked[..1], &options) else { return };
    let (Ok((_, objects)), Some(size)) = (decode(buffer, &options), descriptor.dtype.size()) else { return };
    let (whole, start) = (&objects[object].1, from as usize * size);
    assert_eq!(
        parts[0][..],
        whole[start..start + len as usize * size],
        "a range differs from the full decode"
    );
}

/// All levels of validation, and canonical form.
pub fn verifying(buffer: &[u8]) {
    for mode in
        [ValidationMode::Quick, ValidationMode::Default, ValidationMode::Checksum, ValidationMode::Full]
    {
        let options = ValidateOptions { mode, canonical: true, limits: LIMITS };
        let _ = validate_buffer(buffer, &options);
    }
}

/// Arbitrary bytes as the masks of an object: the first bytes select dtype, methods and lengths.
pub fn masks(bytes: &[u8]) {
    let Some((choice, blobs)) = bytes.split_first_chunk::<4>() else { return };
    let [dtype, methods, cells, cut] = choice.map(usize::from);
    let dtypes = [DType::Float16, DType::BFloat16, DType::Float32, DType::Float64, DType::Complex64];
    let dtype = dtypes[dtype % dtypes.len()];
    let mut descriptor = DataObjectDescriptor::raw(dtype, &[cells as u64 * 3]);
    let plain = vec![0; descriptor.raw_len().unwrap_or(0) as usize];
    let methods = [methods % 7, methods / 7 % 7, methods / 49]
        .map(|number| ["rle", "roaring", "lz4", "zstd", "none", "blosc2", "odd"][number % 7]);
    let mut at = plain.len() as u64;
    let lengths = [cut.min(blobs.len()), blobs.len().saturating_sub(cut) / 2];
    let lengths = [lengths[0], lengths[1], blobs.len() - lengths[0] - lengths[1]];
    for ((kind, method), length) in MaskKind::ALL.into_iter().zip(methods).zip(lengths) {
        let params = if method == "blosc2" {
            Map::from([("codec".to_owned(), CborItem::Text("lz4".to_owned()))])
        } else {
            Map::new()
        };
        let length = length as u64;
        descriptor.masks.push(Mask { kind, method: method.to_owned(), offset: at, length, params });
        at += length;
    }
    let region: Vec<u8> = [&plain[..], blobs].concat();
    let frame = ObjectFrame::new(descriptor, Cow::Owned(region), true);
    let message = encode_message(&GlobalMetadata::default(), vec![frame], true, AggregateHash::Auto);
    let message = message.expect("any payload can be encoded");
    let whole = decode(&message, &options(true));
    let part = decode_range(&message, 0, &[(1, cells as u64)], &options(true));
    if let (Ok((_, objects)), Ok((_, parts)), Some(size)) = (whole, part, dtype.size()) {
        assert_eq!(
            parts[0][..],
            objects[0].1[size..size + cells * size],
            "a range differs from the full decode"
        );
    }
}
