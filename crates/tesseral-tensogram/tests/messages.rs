//! The message API: encode, decode, scan, stream, push, append.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::borrow::Cow;
use std::io::{Cursor, Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use tesseral_core::{DType, Error, ErrorKind};
use tesseral_store::test_wrappers::{Counting, Wrapped};
use tesseral_store::{MemoryStore, Store};
use tesseral_tensogram::wire::cbor::{CborItem, Map};
use tesseral_tensogram::{
    AggregateHash, DataObjectDescriptor as Descriptor, DecodeOptions, EncodeOptions, Event, GlobalMetadata,
    MaskOptions, Provenance, PushDecoder, Scanned, Stamp, StreamingEncoder, TensogramError, TensogramFile,
    decode, decode_metadata, decode_object, decode_range, encode, encode_parts, encode_pre_encoded, scan,
    scan_backward, scan_with_report, verify_canonical_cbor,
};

fn fixture(file: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tensogram").join(file)).unwrap()
}

fn pinned() -> EncodeOptions {
    let provenance = Provenance {
        time: Stamp::Pinned("2026-01-02T03:04:05Z".to_owned()),
        uuid: Stamp::Pinned("123e4567-e89b-42d3-a456-426614174000".to_owned()),
        encoder: ("tensogram".to_owned(), "0.24.0".to_owned()),
    };
    EncodeOptions { provenance, ..EncodeOptions::default() }
}

fn floats(n: usize) -> Vec<u8> {
    (0..n).flat_map(|i| (i as f32 * 0.5).to_le_bytes()).collect()
}

fn meta(extra: i64) -> GlobalMetadata {
    let entry = Map::from([("name".to_owned(), CborItem::Text("t2m".to_owned()))]);
    let extra = Map::from([("step".to_owned(), CborItem::UInt(extra.unsigned_abs()))]);
    GlobalMetadata { base: vec![entry], extra, ..GlobalMetadata::default() }
}

fn coded(compression: &str, dtype: DType, shape: &[u64]) -> Descriptor {
    Descriptor { compression: compression.to_owned(), ..Descriptor::raw(dtype, shape) }
}

/// Messages of several kinds with the cells of their objects.
fn samples() -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
    let cells = floats(40);
    let bits = vec![0b1010_0000, 0xff, 0b1100_0000];
    let descriptors = [
        Descriptor::raw(DType::Float32, &[5, 8]),
        coded("zstd", DType::Float32, &[40]),
        coded("lz4", DType::UInt8, &[160]),
    ];
    let objects: Vec<(&Descriptor, &[u8])> = descriptors.iter().map(|d| (d, &cells[..])).collect();
    let all = vec![cells.clone(); 3];
    let mut out = vec![
        (encode(&meta(1), &objects, &pinned()).unwrap(), all.clone()),
        (encode(&GlobalMetadata::default(), &[], &pinned()).unwrap(), Vec::new()),
    ];
    for aggregate_hash in [AggregateHash::None, AggregateHash::Footer, AggregateHash::Both] {
        let options = EncodeOptions { aggregate_hash, ..pinned() };
        out.push((encode(&meta(2), &objects[..1], &options).unwrap(), all[..1].to_vec()));
    }
    let unhashed = EncodeOptions { hashing: false, ..pinned() };
    out.push((encode(&meta(3), &objects, &unhashed).unwrap(), all.clone()));
    let mut stream = StreamingEncoder::new(Vec::new(), &meta(4), &pinned()).unwrap();
    stream.write_preceder(Map::from([("units".to_owned(), CborItem::Text("K".to_owned()))])).unwrap();
    for (descriptor, cells) in &objects {
        stream.write_object(descriptor, cells).unwrap();
    }
    out.push((stream.finish().unwrap(), all.clone()));
    let mut back = StreamingEncoder::new(Cursor::new(Vec::new()), &meta(5), &pinned()).unwrap();
    back.write_object(&Descriptor::raw(DType::Bitmask, &[18]), &bits).unwrap();
    out.push((back.finish_with_backfill().unwrap().into_inner(), vec![bits]));
    out
}

#[test]
fn encoded_messages_round_trip() {
    for (message, cells) in samples() {
        let (metadata, objects) = decode(&message, &DecodeOptions::default()).unwrap();
        assert_eq!(metadata.base.len(), cells.len());
        let found: Vec<&[u8]> = objects.iter().map(|(_, cells)| &cells[..]).collect();
        assert_eq!(found, cells);
        for (number, cells) in cells.iter().enumerate() {
            let (again, descriptor, data) =
                decode_object(&message, number, &DecodeOptions::default()).unwrap();
            assert_eq!((&again, &data[..]), (&metadata, &cells[..]));
            let view = descriptor.compression == "none" && descriptor.dtype != DType::Bitmask;
            assert_eq!(matches!(data, Cow::Borrowed(_)), view, "uncompressed cells are a view");
        }
        let past = decode_object(&message, cells.len(), &DecodeOptions::default()).unwrap_err();
        assert!(matches!(past, TensogramError::Object { index, count, .. } if index == count));
    }
}

#[test]
fn ranges_equal_slices_of_the_object() {
    for (message, cells) in samples() {
        for (number, whole) in cells.iter().enumerate() {
            let (descriptor, parts) =
                decode_range(&message, number, &[(0, 3), (7, 0), (9, 7)], &DecodeOptions::default()).unwrap();
            match descriptor.dtype.size() {
                Some(size) => {
                    let wanted = [&whole[..3 * size], &[], &whole[9 * size..16 * size]];
                    assert!(parts.iter().zip(wanted).all(|(part, wanted)| part[..] == *wanted));
                }
                None => assert_eq!([&parts[0][..], &parts[1], &parts[2]], [&[0b1010_0000][..], &[], &[0xfe]]),
            }
            for range in [(0, 1 << 40), (u64::MAX, 2), (161, 0)] {
                let error = decode_range(&message, number, &[range], &DecodeOptions::default()).unwrap_err();
                assert!(matches!(error, TensogramError::Encoding(_)), "{range:?}: {error}");
            }
        }
    }
}

#[test]
fn a_stream_encoder_writes_several_messages() {
    let descriptor = Descriptor::raw(DType::Float32, &[40]);
    let cells = [floats(40), floats(41)[4..].to_vec()];
    let keys = || Map::from([("units".to_owned(), CborItem::Text("K".to_owned()))]);
    let one = |cells: &[u8]| {
        let mut stream = StreamingEncoder::new(Cursor::new(Vec::new()), &meta(1), &pinned()).unwrap();
        stream.write_preceder(keys()).unwrap();
        stream.write_object(&descriptor, cells).unwrap();
        stream
    };
    let mut stream = one(&cells[0]);
    assert_eq!(stream.finish_and_reset().unwrap(), one(&cells[0]).finish().unwrap().into_inner());
    assert_eq!(stream.object_count(), 0);
    stream.write_preceder(keys()).unwrap();
    assert!(
        matches!(stream.finish_and_reset(), Err(TensogramError::Framing(_))),
        "preceder metadata is pending"
    );
    stream.write_object(&descriptor, &cells[1]).unwrap();
    let expected = one(&cells[1]).finish_with_backfill().unwrap().into_inner();
    assert_eq!(stream.finish_and_reset_with_backfill().unwrap(), expected);
    // The last message has no objects and nothing of the previous ones.
    let mut bare = meta(1);
    bare.base.clear();
    let mut empty = StreamingEncoder::new(Cursor::new(Vec::new()), &bare, &pinned()).unwrap();
    let first = empty.finish_and_reset().unwrap();
    assert_eq!(empty.finish_and_reset().unwrap(), first);
    assert!(decode(&first, &DecodeOptions::default()).unwrap().1.is_empty());
}

#[test]
fn streamed_and_buffered_messages_have_equal_content() {
    let cells = floats(1000);
    let descriptor = coded("zstd", DType::Float32, &[1000]);
    let buffered = encode(&meta(1), &[(&descriptor, &cells)], &pinned()).unwrap();
    // The message can begin anywhere in its sink.
    for before in [0_usize, 1, 13] {
        let mut sink = Cursor::new(Vec::new());
        sink.write_all(&vec![7; before]).unwrap();
        let mut stream = StreamingEncoder::new(sink, &meta(1), &pinned()).unwrap();
        stream.write_object(&descriptor, &cells).unwrap();
        assert_eq!(stream.object_count(), 1);
        let mut sink = stream.finish_with_backfill().unwrap();
        assert_eq!(sink.stream_position().unwrap(), sink.get_ref().len() as u64);
        let message = &sink.get_ref()[before..];
        assert_eq!(u64::from_be_bytes(message[16..24].try_into().unwrap()), message.len() as u64);
        assert_eq!(scan_backward(sink.get_ref()), (vec![(before, message.len())], before));
        let options = DecodeOptions::default();
        assert_eq!(decode(message, &options).unwrap(), decode(&buffered, &options).unwrap());
    }
    let mut stream = StreamingEncoder::new(Vec::new(), &meta(1), &pinned()).unwrap();
    stream.write_preceder(Map::new()).unwrap();
    assert!(matches!(stream.write_preceder(Map::new()), Err(TensogramError::Framing(_))));
    assert!(matches!(stream.finish(), Err(TensogramError::Framing(_))));
    let options = EncodeOptions { aggregate_hash: AggregateHash::Both, ..pinned() };
    let refused = StreamingEncoder::new(Vec::new(), &meta(1), &options);
    assert!(matches!(refused, Err(TensogramError::Encoding(_))));
}

#[test]
fn reserved_keys_and_too_many_entries_are_rejected() {
    let reserved = Map::from([("_reserved_".to_owned(), CborItem::Null)]);
    for metadata in [
        GlobalMetadata { reserved: reserved.clone(), ..GlobalMetadata::default() },
        GlobalMetadata { base: vec![reserved.clone()], ..GlobalMetadata::default() },
        GlobalMetadata { base: vec![Map::new(), Map::new()], ..GlobalMetadata::default() },
    ] {
        let descriptor = Descriptor::raw(DType::UInt8, &[1]);
        let error = encode(&metadata, &[(&descriptor, &[1])], &pinned()).unwrap_err();
        assert!(matches!(error, TensogramError::Metadata(_)), "{error}");
    }
    let descriptor = Descriptor::raw(DType::UInt16, &[3]);
    let error = encode(&GlobalMetadata::default(), &[(&descriptor, &[1])], &pinned()).unwrap_err();
    assert!(matches!(error, TensogramError::Metadata(_)));
}

#[test]
fn non_finite_cells_are_rejected_or_masked() {
    let cells: Vec<u8> =
        [1.0_f64, f64::NAN, f64::NEG_INFINITY].iter().flat_map(|c| c.to_le_bytes()).collect();
    let descriptor = Descriptor::raw(DType::Float64, &[3]);
    let objects: [(&Descriptor, &[u8]); 1] = [(&descriptor, &cells)];
    let error = encode(&GlobalMetadata::default(), &objects, &pinned()).unwrap_err();
    assert!(matches!(error, TensogramError::Encoding(_)), "{error}");
    for method in ["none", "rle", "roaring", "lz4", "zstd"] {
        let methods = std::array::from_fn(|_| method.to_owned());
        let masks = MaskOptions { methods, small: 0, ..MaskOptions::any() };
        let message =
            encode(&GlobalMetadata::default(), &objects, &EncodeOptions { masks, ..pinned() }).unwrap();
        let (_, objects) = decode(&message, &DecodeOptions::default()).unwrap();
        assert_eq!(&objects[0].1[..], cells);
        assert_eq!(objects[0].0.masks.len(), 2);
        let bare = DecodeOptions { restore_non_finite: false, ..DecodeOptions::default() };
        let (_, objects) = decode(&message, &bare).unwrap();
        assert_eq!(objects[0].1[8..], [0; 16]);
    }
    // Values that a mask would not restore stay unchanged.
    let odd = f64::from_bits(0x7ff0_0000_0000_0001).to_le_bytes();
    let masks = EncodeOptions { masks: MaskOptions::any(), ..pinned() };
    let one = Descriptor::raw(DType::Float64, &[1]);
    let message = encode(&GlobalMetadata::default(), &[(&one, &odd)], &masks).unwrap();
    assert_eq!(&decode(&message, &DecodeOptions::default()).unwrap().1[0].1[..], odd);
}

#[test]
fn big_endian_cells_are_returned_in_either_byte_order() {
    let values = [1.5_f64, -2.0, 1e30];
    let big: Vec<u8> = values.iter().flat_map(|v| v.to_be_bytes()).collect();
    let native: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    for (encoding, compression) in [("none", "none"), ("none", "zstd"), ("simple_packing", "none")] {
        let mut descriptor = coded(compression, DType::Float64, &[3]);
        descriptor.big_endian = Some(true);
        descriptor.encoding = encoding.to_owned();
        if encoding == "simple_packing" {
            descriptor.params.insert("sp_bits_per_value".to_owned(), CborItem::UInt(64));
        }
        let message = encode(&GlobalMetadata::default(), &[(&descriptor, &big)], &pinned()).unwrap();
        let decoded = decode(&message, &DecodeOptions::default()).unwrap().1;
        let stored = DecodeOptions { native_byte_order: false, ..DecodeOptions::default() };
        let as_stored = decode(&message, &stored).unwrap().1;
        if encoding == "none" {
            assert_eq!(&decoded[0].1[..], native);
            assert_eq!(&as_stored[0].1[..], big);
        }
        let swapped: Vec<u8> = decoded[0].1.chunks(8).flat_map(|c| c.iter().rev().copied()).collect();
        assert_eq!(&as_stored[0].1[..], swapped);
    }
}

#[test]
fn hashes_are_verified_and_can_be_required() {
    let (message, _) = samples().swap_remove(0);
    let at = message.windows(4).position(|w| w == 19.5_f32.to_le_bytes()).unwrap();
    let mut bent = message.clone();
    bent[at] ^= 1;
    let error = decode(&bent, &DecodeOptions::default()).unwrap_err();
    let TensogramError::HashMismatch { object_index: Some(0), expected, actual } = error else {
        panic!("{error}")
    };
    assert_ne!(expected, actual);
    assert!(matches!(Error::from(error).kind(), ErrorKind::Corrupt { .. }));
    let unchecked = DecodeOptions { verify_hash: false, ..DecodeOptions::default() };
    assert!(decode(&bent, &unchecked).is_ok());
    let at = message.windows(4).position(|w| w == b"step").unwrap();
    let mut bent = message.clone();
    bent[at] ^= 1;
    let error = decode_metadata(&bent, &DecodeOptions::default()).unwrap_err();
    assert!(matches!(error, TensogramError::HashMismatch { object_index: None, .. }), "{error}");
    let plain = encode(
        &meta(1),
        &[(&Descriptor::raw(DType::UInt8, &[1]), &[1])],
        &EncodeOptions { hashing: false, ..pinned() },
    );
    let required = DecodeOptions { require_hash: true, ..DecodeOptions::default() };
    let error = decode(&plain.unwrap(), &required).unwrap_err();
    assert!(matches!(error, TensogramError::MissingHash { object_index: 0 }));
}

#[test]
fn scanning_follows_frames_and_reports_every_gap() {
    // A payload that contains magics and frames.
    let mut nasty = Vec::new();
    for _ in 0..20 {
        nasty.extend_from_slice(b"39277777TENSOGRM\0\x03FR\0\x09ENDF");
    }
    let descriptor = Descriptor::raw(DType::UInt8, &[nasty.len() as u64]);
    let mut stream = StreamingEncoder::new(Vec::new(), &meta(1), &pinned()).unwrap();
    stream.write_object(&descriptor, &nasty).unwrap();
    let streamed = stream.finish().unwrap();
    let buffered = encode(&meta(1), &[(&descriptor, &nasty)], &pinned()).unwrap();
    let mut file = vec![9; 5];
    let mut wanted = Vec::new();
    let mut gaps = vec![(0, 5)];
    for (i, message) in [&streamed, &buffered, &streamed].into_iter().enumerate() {
        wanted.push((file.len(), message.len()));
        file.extend_from_slice(message);
        gaps.push((file.len() as u64, i as u64 + 1));
        file.extend(std::iter::repeat_n(0, i + 1));
    }
    let Scanned { messages, skipped } = scan_with_report(&file).unwrap();
    assert_eq!(messages, wanted);
    assert_eq!(skipped.iter().map(|s| (s.offset, s.length)).collect::<Vec<_>>(), gaps);
    assert_eq!(scan(&file), wanted);

    let chain: Vec<u8> = [&buffered[..], &buffered, &buffered].concat();
    let len = buffered.len();
    assert_eq!(scan_backward(&chain), (vec![(0, len), (len, len), (2 * len, len)], 0));
    // A streamed message has no length in its preamble, so the backward scan stops there.
    assert_eq!(scan_backward(&[&buffered[..], &streamed, &buffered].concat()).0.len(), 1);
}

#[test]
fn garbage_is_scanned_in_linear_time() {
    let message = encode(&GlobalMetadata::default(), &[], &pinned()).unwrap();
    let mut floor = Duration::MAX;
    for pattern in [&b"\0"[..], b"TENSOGR", b"TENSOGRM", b"FR\0\x09", b"39277777"] {
        let mut file: Vec<u8> = pattern.iter().copied().cycle().take(4 << 20).collect();
        let at = file.len();
        file.extend_from_slice(&message);
        let begun = Instant::now();
        assert_eq!(scan(&file), [(at, message.len())]);
        floor = floor.min(begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(5), "{pattern:?}: {:?}", begun.elapsed());
    }
    assert!(floor < Duration::from_millis(100), "4 MiB of zeros took {floor:?}");
}

/// Offset and length of a message, and the cells of its objects.
type Pushed = (u64, u64, Vec<Vec<u8>>);

/// Result of a stream of pieces: complete messages, and the number of reported losses.
fn push(file: &[u8], pieces: &[usize]) -> (Vec<Pushed>, usize) {
    let mut decoder = PushDecoder::new(&DecodeOptions::default());
    let (mut messages, mut cells, mut losses) = (Vec::new(), Vec::new(), 0);
    let mut events = Vec::new();
    let mut at = 0;
    for piece in pieces.iter().copied().cycle() {
        let end = (at + piece).min(file.len());
        events.extend(decoder.feed(&file[at..end]));
        at = end;
        if at == file.len() {
            break;
        }
    }
    events.extend(decoder.finish());
    for event in events {
        match event {
            Event::Object { index, cells: found, .. } => {
                if index == 0 {
                    cells.clear();
                }
                cells.push(found);
            }
            Event::Message { offset, length, metadata } => {
                assert_eq!(metadata.base.len(), cells.len());
                messages.push((offset, length, std::mem::take(&mut cells)));
            }
            Event::Damaged { .. } => {
                cells.clear();
                losses += 1;
            }
            _ => losses += 1,
        }
    }
    (messages, losses)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn pieces_of_any_size_decode_to_the_same(
        order in prop::collection::vec(0_usize..8, 1..6),
        junk in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 6),
        pieces in prop::collection::vec(1_usize..300, 1..20),
    ) {
        let samples = samples();
        let (mut file, mut wanted, mut gaps) = (Vec::new(), Vec::new(), 0);
        for (i, number) in order.iter().enumerate() {
            file.extend_from_slice(&junk[i]);
            gaps += usize::from(!junk[i].is_empty());
            let (message, cells) = &samples[*number];
            wanted.push((file.len() as u64, message.len() as u64, cells.clone()));
            file.extend_from_slice(message);
        }
        prop_assert_eq!(push(&file, &pieces), (wanted, gaps));
    }
}

#[test]
fn a_damaged_message_does_not_affect_others() {
    let samples = samples();
    let good = &samples[6].0;
    for (broken, _) in &samples {
        for cut in [25, 60, broken.len() / 2, broken.len() - 30, broken.len() - 1] {
            let file = [&good[..], &broken[..cut], good, good].concat();
            let (messages, losses) = push(&file, &[97]);
            let starts: Vec<u64> = messages.iter().map(|m| m.0).collect();
            let next = (good.len() + cut) as u64;
            assert_eq!(starts, [0, next, next + good.len() as u64], "cut at {cut}");
            assert!(losses > 0);
            let Scanned { messages: found, skipped } = scan_with_report(&file).unwrap();
            assert_eq!(found.iter().map(|m| m.0 as u64).collect::<Vec<_>>(), starts);
            assert!(skipped.iter().map(|s| s.length).sum::<u64>() == cut as u64, "{skipped:?}");
        }
    }
}

/// Calls every function that parses bytes; returns whether all succeeded.
fn use_all(bytes: &[u8]) -> bool {
    let begun = Instant::now();
    let options = DecodeOptions::default();
    let Scanned { messages, skipped } = scan_with_report(bytes).unwrap();
    let _ = scan_backward(bytes);
    let (pushed, losses) = push(bytes, &[64]);
    let mut sound = messages.len() == 1 && skipped.is_empty() && pushed.len() == 1 && losses == 0;
    sound &= decode_metadata(bytes, &options).is_ok();
    match decode(bytes, &options) {
        Ok((_, objects)) => {
            for number in 0..objects.len() {
                sound &= decode_object(bytes, number, &options).is_ok();
                sound &= decode_range(bytes, number, &[(0, 1)], &options).is_ok();
            }
        }
        Err(_) => sound = false,
    }
    let _ = decode(bytes, &DecodeOptions { verify_hash: false, ..options });
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    sound
}

#[test]
fn every_truncation_and_every_length_is_detected() {
    for (message, _) in samples() {
        assert!(use_all(&message));
        for len in 0..message.len() {
            assert!(!use_all(&message[..len]), "cut to {len}");
        }
        let mut places = vec![16, message.len() - 24, message.len() - 16];
        for at in (0..message.len() - 16).step_by(8).filter(|at| message[*at..].starts_with(b"FR")) {
            let len = u64::from_be_bytes(message[at + 8..at + 16].try_into().unwrap()) as usize;
            places.extend([at + 8, at + len - 20]);
        }
        for at in places {
            let was = u64::from_be_bytes(message[at..at + 8].try_into().unwrap());
            let all = message.len() as u64;
            for n in [
                0,
                1,
                15,
                16,
                27,
                28,
                35,
                36,
                47,
                48,
                was.wrapping_sub(1),
                was + 1,
                was + 8,
                all - 1,
                all,
                all + 1,
            ]
            .into_iter()
            .chain([1 << 31, 1 << 32, 1 << 62, i64::MAX as u64, u64::MAX - 7, u64::MAX])
            {
                let mut bent = message.clone();
                bent[at..at + 8].copy_from_slice(&n.to_be_bytes());
                // Must terminate without a panic. Hashes do not cover lengths, so some messages can be valid.
                let _ = use_all(&bent);
            }
        }
    }
}

#[test]
fn nested_and_huge_cbor_is_rejected_early() {
    let deep = [0x81_u8; 100_000];
    assert!(verify_canonical_cbor(&deep).is_err());
    let huge = [0x9b, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    assert!(verify_canonical_cbor(&huge).is_err());
    for body in
        [&deep[..], &huge, &[0xbb, 0, 0, 0, 1, 0, 0, 0, 0], &[0x5b, 0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]]
    {
        let mut message = b"TENSOGRM\0\x03\0\x01\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
        tesseral_tensogram::wire::frame::write(
            tesseral_tensogram::wire::frame::FrameKind::HeaderMetadata,
            body,
            true,
            &mut message,
        );
        let footer = message.len() as u64;
        message.extend_from_slice(&footer.to_be_bytes());
        message.extend_from_slice(&[0; 8]);
        message.extend_from_slice(b"39277777");
        assert_eq!(scan(&message), [(0, message.len())]);
        let error = decode(&message, &DecodeOptions::default()).unwrap_err();
        assert!(matches!(error, TensogramError::Metadata(_)), "{error}");
    }
    for (item, canonical) in [
        (&[0xa2, 0x61, b'a', 1, 0x61, b'b', 2][..], true),
        (&[0xa2, 0x61, b'b', 1, 0x61, b'a', 2], false),
        (&[0x18, 1], false),
        (&[1, 1], false),
        (&[0xf9, 0x3e, 0x00], true),
        (&[0xfb, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0], false),
        (&[0x9f, 1, 0xff], false),
    ] {
        assert_eq!(verify_canonical_cbor(item).is_ok(), canonical, "{item:?}");
    }
}

#[test]
fn files_are_scanned_once_and_appended_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.tgm");
    let missing = TensogramFile::open(&path);
    assert!(matches!(missing.message_count(), Err(TensogramError::Io(_))), "opening does not read");
    let mut file = TensogramFile::create(&path).unwrap();
    assert!(TensogramFile::create(&path).is_err());
    let samples = samples();
    for (number, (message, _)) in samples.iter().enumerate() {
        assert_eq!(file.message_count().unwrap(), number);
        file.append_message(message).unwrap();
        assert_eq!(file.read_message(number).unwrap(), message);
    }
    assert!(file.append_message(&samples[0].0[..100]).is_err());
    let cells = floats(4);
    file.append(&meta(1), &[(&Descriptor::raw(DType::Float32, &[4]), &cells)], &pinned()).unwrap();
    let mapped = TensogramFile::open_mmap(&path);
    for file in [&file, &TensogramFile::open(&path), &mapped] {
        assert_eq!(file.message_count().unwrap(), samples.len() + 1);
        for (number, (message, cells)) in samples.iter().enumerate() {
            let (metadata, objects) = file.decode_message(number, &DecodeOptions::default()).unwrap();
            assert_eq!(metadata, file.decode_metadata(number, &DecodeOptions::default()).unwrap());
            assert_eq!(objects.iter().map(|(_, c)| c.to_vec()).collect::<Vec<_>>(), *cells);
            assert_eq!(file.read_message(number).unwrap(), message);
        }
        assert_eq!(file.iter().count(), samples.len() + 1);
        assert!(matches!(file.read_message(99), Err(TensogramError::Object { what: "message", .. })));
        assert!(file.skipped().unwrap().is_empty());
    }
    // The next append removes a truncated message.
    let mut torn = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    torn.write_all(&samples[0].0[..300]).unwrap();
    let mut file = TensogramFile::open(&path);
    file.append_message(&samples[6].0).unwrap();
    assert_eq!(file.message_count().unwrap(), samples.len() + 2);
    assert!(file.skipped().unwrap().is_empty());
}

#[test]
fn reading_metadata_does_not_read_payloads() {
    let cells = vec![1; 64 << 20];
    let descriptor = Descriptor::raw(DType::UInt8, &[cells.len() as u64]);
    let message = encode(&meta(1), &[(&descriptor, &cells)], &pinned()).unwrap();
    let counting = Arc::new(Counting::default());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("large.tgm", message));
    let store: Arc<dyn Store> = Arc::new(Wrapped::new(store, Arc::clone(&counting)));
    let file = TensogramFile::open_store(store);
    let (metadata, descriptors) = file.decode_descriptors(0, &DecodeOptions::default()).unwrap();
    assert_eq!((metadata.base.len(), &descriptors[0].shape[..]), (1, &[64 << 20][..]));
    assert!(counting.bytes() < 40_000, "{} bytes for the metadata of 64 MiB", counting.bytes());
}

#[test]
fn reading_a_range_reads_only_its_bytes() {
    let cells: Vec<u8> = (0..1_u64 << 20).flat_map(|i| (i as f64).to_le_bytes()).collect();
    let raw = Descriptor::raw(DType::Float64, &[1 << 20]);
    let mut packed = Descriptor { encoding: "simple_packing".to_owned(), ..raw.clone() };
    packed.params.insert("sp_bits_per_value".to_owned(), CborItem::UInt(20));
    let objects = [(&raw, &cells[..]), (&packed, &cells[..])];
    let message = encode(&GlobalMetadata::default(), &objects, &pinned()).unwrap();
    let counting = Arc::new(Counting::default());
    let store: Arc<dyn Store> = Arc::new(MemoryStore::with_object("large.tgm", message.clone()));
    let file = TensogramFile::open_store(Arc::new(Wrapped::new(store, Arc::clone(&counting))));
    let ranges = [(700_001, 10), (3, 1), (1 << 20, 0)];
    let unchecked = DecodeOptions { verify_hash: false, ..DecodeOptions::default() };
    for object in 0..2 {
        counting.reset();
        let (_, found) = file.decode_range(0, object, &ranges, &unchecked).unwrap();
        assert!(counting.bytes() < 60_000, "{} bytes for a few cells", counting.bytes());
        assert_eq!(found[0], cells[700_001 * 8..700_011 * 8]);
        assert_eq!((&found[1][..], &found[2][..]), (&cells[24..32], &[][..]));
        // The hash covers the whole object, and is verified once.
        counting.reset();
        assert_eq!(file.decode_range(0, object, &ranges, &DecodeOptions::default()).unwrap().1, found);
        let stored = counting.bytes();
        assert!(stored > 2 << 20, "{stored} bytes to verify the object");
        counting.reset();
        assert_eq!(
            file.clone().decode_range(0, object, &ranges, &DecodeOptions::default()).unwrap().1,
            found
        );
        assert!(counting.bytes() < 60_000, "{} bytes of a verified object", counting.bytes());
    }
    let mut damaged = message;
    let middle = damaged.len() / 3;
    damaged[middle] ^= 1;
    assert!(decode_range(&damaged, 0, &ranges, &DecodeOptions::default()).is_ok());
    let mismatch = |error| matches!(error, TensogramError::HashMismatch { object_index: Some(0), .. });
    let verified = DecodeOptions { verify_ranges: true, ..DecodeOptions::default() };
    let required = DecodeOptions { require_hash: true, ..DecodeOptions::default() };
    for options in [verified, required] {
        assert!(mismatch(decode_range(&damaged, 0, &ranges, &options).unwrap_err()));
    }
    // A file remembers only what was found to be right.
    let file = TensogramFile::open_store(Arc::new(MemoryStore::with_object("damaged.tgm", damaged)));
    for _ in 0..2 {
        let error = file.decode_range(0, 0, &ranges, &DecodeOptions::default()).unwrap_err();
        assert!(mismatch(error));
        assert!(mismatch(file.decode_message(0, &DecodeOptions::default()).unwrap_err()));
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    let count = 150_007_u64;
    let cells: Vec<u8> = (0..count).flat_map(|i| ((i * i % 1009) as f64 * 0.25).to_le_bytes()).collect();
    let raw = Descriptor::raw(DType::Float64, &[count]);
    let with = |encoding: &str, compression: &str, params: &[(&str, u64)]| {
        let params = params.iter().map(|(key, value)| ((*key).to_owned(), CborItem::UInt(*value))).collect();
        Descriptor { encoding: encoding.to_owned(), params, ..coded(compression, raw.dtype, &raw.shape) }
    };
    let packing = ("sp_bits_per_value", 16);
    let szip = [packing, ("szip_rsi", 128), ("szip_block_size", 16), ("szip_flags", 8)];
    for descriptor in [
        with("simple_packing", "szip", &szip),
        with("simple_packing", "none", &[("sp_bits_per_value", 13)]),
        with("simple_packing", "blosc2", &[packing]),
        with("none", "blosc2", &[]),
        with("none", "zstd", &[]),
        Descriptor { filter: "shuffle".to_owned(), ..with("none", "none", &[("shuffle_element_size", 8)]) },
        Descriptor { filter: "shuffle".to_owned(), ..with("none", "none", &[("shuffle_element_size", 4)]) },
    ] {
        let message = encode(&GlobalMetadata::default(), &[(&descriptor, &cells)], &pinned()).unwrap();
        let alone = DecodeOptions { threads: 1, ..DecodeOptions::default() };
        let expected = decode(&message, &alone).unwrap();
        for threads in [0, 2, 3, 16] {
            let options = DecodeOptions { threads, ..DecodeOptions::default() };
            assert!(decode(&message, &options).unwrap() == expected, "{descriptor:?}, {threads} threads");
        }
        let (_, found) = decode_range(&message, 0, &[(0, 3), (77_777, 41)], &alone).unwrap();
        let whole = &expected.1[0].1;
        assert_eq!([&found[0][..], &found[1]], [&whole[..24], &whole[77_777 * 8..77_818 * 8]]);
    }
    // Masks are restored in every piece.
    let holes: Vec<u8> = (0..count)
        .flat_map(|i| (if i.is_multiple_of(977) { f64::NAN } else { i as f64 }).to_le_bytes())
        .collect();
    let options = EncodeOptions { masks: MaskOptions::any(), ..pinned() };
    let message = encode(&GlobalMetadata::default(), &[(&with("none", "blosc2", &[]), &holes)], &options);
    assert!(decode(&message.unwrap(), &DecodeOptions::default()).unwrap().1[0].1 == holes);
}

#[test]
fn appending_detects_a_replaced_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("all.tgm");
    let message = &samples()[0].0;
    let mut file = TensogramFile::create(&path).unwrap();
    file.append_message(message).unwrap();
    std::fs::remove_file(&path).unwrap();
    file.append_message(message).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), *message, "the file is created");
    std::fs::write(folder.path().join("other"), message.repeat(2)).unwrap();
    std::fs::rename(folder.path().join("other"), &path).unwrap();
    file.append_message(message).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), message.repeat(3));
}

#[test]
fn an_index_that_grows_twice_converges() {
    let sizes = [64776_u64, 1, 1, 1];
    let cells = vec![3; 64776];
    let descriptors = sizes.map(|n| Descriptor::raw(DType::UInt8, &[n]));
    let objects: Vec<(&Descriptor, &[u8])> =
        descriptors.iter().zip(sizes).map(|(d, n)| (d, &cells[..n as usize])).collect();
    let message = encode(&GlobalMetadata::default(), &objects, &pinned()).unwrap();
    assert!(use_all(&message));
}

#[test]
fn pre_encoded_payloads_are_stored_unchanged() {
    let options = DecodeOptions { verify_hash: true, ..DecodeOptions::default() };
    for file in ["codec_szip.tgm", "metadata.tgm"] {
        let theirs = fixture(file);
        let (_, objects) = decode(&theirs, &options).unwrap();
        let descriptors = tesseral_tensogram::decode_descriptors(&theirs, &options).unwrap().1;
        for (number, descriptor) in descriptors.iter().enumerate().filter(|(_, d)| d.compression == "none") {
            let plain = &objects[number].1;
            if descriptor.encoding == "none" && descriptor.filter == "none" && descriptor.masks.is_empty() {
                let ours = encode_pre_encoded(&GlobalMetadata::default(), &[(descriptor, plain)], &pinned())
                    .unwrap();
                assert_eq!(&decode(&ours, &options).unwrap().1[0].1, plain);
            }
        }
    }
    let short = Descriptor::raw(DType::UInt8, &[4]);
    let refused = encode_pre_encoded(&GlobalMetadata::default(), &[(&short, &[1])], &pinned());
    assert!(matches!(refused, Err(TensogramError::Metadata(_))));
}

#[test]
fn errors_map_to_the_common_ones_and_back() {
    let common = || Error::corrupt("metadata", "f", 8, "x");
    assert!(matches!(TensogramError::from(common()), TensogramError::Metadata(_)));
    assert_eq!(Error::from(TensogramError::from(common())).offset(), Some(8));
    assert!(matches!(TensogramError::from(Error::codec("zstd", "x")), TensogramError::Compression(_)));
    assert!(matches!(TensogramError::from(Error::codec("shuffle", "x")), TensogramError::Encoding(_)));
    assert!(matches!(TensogramError::from(Error::limit("x", 2, 1)), TensogramError::Limit(_)));
    let io = || std::io::Error::from(std::io::ErrorKind::PermissionDenied);
    assert!(matches!(TensogramError::from(io()), TensogramError::Io(_)));
    let through = Error::from(TensogramError::from(Error::io("read", "f", io())));
    assert!(matches!(through.kind(), ErrorKind::Io { op: "read", .. }));
    let missing = TensogramError::from(Error::not_found("file", "f", Vec::new()));
    assert!(matches!(Error::from(missing).kind(), ErrorKind::NotFound { .. }));
}

/// Payload buffers are reused for payloads of other lengths.
#[test]
fn messages_are_assembled_in_reused_buffers() {
    for n in [1000_usize, 10, 40_000, 7, 39_999] {
        let cells: Vec<u8> = (0..n).flat_map(|i| ((i * i % 977) as f64 * 0.25).to_ne_bytes()).collect();
        let mut packed = Descriptor::raw(DType::Float64, &[n as u64]);
        packed.encoding = "simple_packing".to_owned();
        packed.params.insert("sp_bits_per_value".to_owned(), CborItem::UInt(13));
        let objects = [(&packed, &cells[..]), (&packed, &cells[..])];
        let parts = || encode_parts(&meta(1), &objects, &pinned()).unwrap();
        let message = encode(&meta(1), &objects, &pinned()).unwrap();
        assert!(!parts().borrows());
        let mut out = vec![0xaa; usize::try_from(parts().total_length()).unwrap()];
        parts().copy_to(&mut out).unwrap();
        assert!(out == message && parts().into_parts().concat() == message);
        out.push(0);
        let refused = parts().copy_to(&mut out).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::InvalidRequest { .. }));
        assert!(parts().copy_to(&mut out[..50]).is_err());
    }
    let plain = Descriptor::raw(DType::UInt8, &[3]);
    assert!(encode_parts(&meta(1), &[(&plain, &[1, 2, 3])], &pinned()).unwrap().borrows());
}
