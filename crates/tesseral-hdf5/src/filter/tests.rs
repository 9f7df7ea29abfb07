//! Pipelines of several filters, skipped filters, damage.

use super::*;

fn description(id: u16, client_data: &[u32]) -> FilterDescription {
    FilterDescription { id, name: None, client_data: client_data.to_vec() }
}

/// Bytes that count up, shuffled as elements of four bytes, with a checksum.
fn shuffled_and_summed() -> (Vec<u8>, Vec<u8>) {
    let raw: Vec<u8> = (0..200).collect();
    let mut stored = vec![0; raw.len()];
    shuffle::encode_into(&raw, 4, &mut stored).unwrap();
    let sums = stored.chunks(2).fold((0_u32, 0_u32), |(low, high), word| {
        let low = (low + (u32::from(word[0]) << 8 | u32::from(word[1]))) % 65535;
        (low, (high + low) % 65535)
    });
    stored.extend((sums.1 << 16 | sums.0).to_le_bytes());
    (raw, stored)
}

#[test]
fn filters_are_undone_in_reverse() {
    let (raw, stored) = shuffled_and_summed();
    let pipeline = Pipeline::new(&[description(2, &[4]), description(3, &[])], 4).unwrap();
    let (mut out, mut scratch) = (vec![0; raw.len()], Scratch::default());
    pipeline.decode(&stored, 0, &mut out, &mut scratch).unwrap();
    assert_eq!(out, raw);
    assert!(pipeline.has_checksum(0) && !pipeline.has_checksum(2) && pipeline.is_plain(3));
    // The mask skips the shuffle.
    pipeline.decode(&stored, 1, &mut out, &mut scratch).unwrap();
    assert_eq!(out, stored[..raw.len()]);
    let mut damaged = stored.clone();
    damaged[9] ^= 4;
    assert!(pipeline.decode(&damaged, 0, &mut out, &mut scratch).is_err());
    for len in 0..stored.len() {
        assert!(pipeline.decode(&stored[..len], 0, &mut out, &mut scratch).is_err(), "{len}");
    }
}

#[test]
fn compressors_are_bounded_by_the_chunk() {
    let (raw, summed) = shuffled_and_summed();
    let mut packed = Vec::new();
    zlib::encode(&summed, 6, &mut packed).unwrap();
    let filters = [description(2, &[4]), description(3, &[]), description(1, &[6])];
    let pipeline = Pipeline::new(&filters, 4).unwrap();
    let mut scratch = Scratch::default();
    let mut out = vec![0; raw.len()];
    pipeline.decode(&packed, 0, &mut out, &mut scratch).unwrap();
    assert_eq!(out, raw);
    for len in [0, 1, 199, 201] {
        assert!(pipeline.decode(&packed, 0, &mut vec![0; len], &mut scratch).is_err(), "{len}");
    }
}

#[test]
fn other_filters_are_unsupported_by_name() {
    for (id, name) in [(32013, "zfp"), (305, "lzo"), (999, "unnamed")] {
        let error = Pipeline::new(&[description(id, &[])], 4).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        assert!(matches!(error.kind(), tesseral_core::ErrorKind::Unsupported { .. }));
    }
    assert!(Pipeline::new(&[description(4, &[0, 33, 8, 64])], 4).is_err());
}
