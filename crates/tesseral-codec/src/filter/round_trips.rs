//! Property tests: random pipelines restore random cells.

use proptest::prelude::*;
use tesseral_core::{ErrorKind, Result};

use super::*;
use crate::Contexts;

const KEY: [u8; 32] = *b"0123456789abcdef0123456789abcdef";
const RULES: FilterContext<'static> = FilterContext { version: 22, verify: true, key: Some(&KEY) };

fn words() -> impl Strategy<Value = FilterElement> {
    prop_oneof![
        (0..4_u32).prop_map(|n| FilterElement::new(1 << n, ElementKind::Signed)),
        (0..4_u32).prop_map(|n| FilterElement::new(1 << n, ElementKind::Unsigned)),
        (2..4_u32).prop_map(|n| FilterElement::new(1 << n, ElementKind::Float)),
        Just(FilterElement::new(8, ElementKind::Time)),
        Just(FilterElement::new(1, ElementKind::Bool)),
        (0..3_u32).prop_map(|n| FilterElement::new(1 << n, ElementKind::Text)),
    ]
}

fn filters() -> impl Strategy<Value = Filter> {
    prop_oneof![
        Just(Filter::Noop),
        (-1..10).prop_map(|level| Filter::Gzip { level }),
        (-1..10).prop_map(|level| Filter::Zstd { level }),
        (-1..10).prop_map(|level| Filter::Lz4 { level }),
        (-1..10).prop_map(|level| Filter::Bzip2 { level }),
        Just(Filter::Rle),
        Just(Filter::DoubleDelta { reinterpret: None }),
        Just(Filter::DoubleDelta { reinterpret: Some(FilterElement { size: 4, kind: ElementKind::Signed }) }),
        Just(Filter::Delta { reinterpret: None }),
        Just(Filter::Delta { reinterpret: Some(FilterElement { size: 8, kind: ElementKind::Unsigned }) }),
        (1..600_u32).prop_map(|window| Filter::BitWidthReduction { window }),
        (1..600_u32).prop_map(|window| Filter::PositiveDelta { window }),
        Just(Filter::BitShuffle),
        Just(Filter::ByteShuffle),
        Just(Filter::Xor),
        Just(Filter::Md5),
        Just(Filter::Sha256),
        Just(Filter::Aes256Gcm),
    ]
}

/// Typical cells: noise, small steps, runs, extremes.
fn cells(word: FilterElement) -> impl Strategy<Value = Vec<u8>> {
    let size = word.size;
    let numbers = move |values: Vec<u64>| -> Vec<u8> {
        values.iter().flat_map(|v| v.to_le_bytes()[..size].to_vec()).collect()
    };
    prop_oneof![
        proptest::collection::vec(any::<u64>(), 0..300).prop_map(numbers),
        (any::<u64>(), proptest::collection::vec(0..200_u64, 0..300)).prop_map(move |(start, steps)| {
            let mut at = start >> 40;
            numbers(
                steps
                    .iter()
                    .map(|s| {
                        at += s;
                        at
                    })
                    .collect(),
            )
        }),
        proptest::collection::vec((any::<u8>(), 1..90_usize), 0..20)
            .prop_map(move |runs| numbers(runs.iter().flat_map(|(v, n)| vec![u64::from(*v); *n]).collect())),
        proptest::collection::vec(
            prop_oneof![Just(0), Just(u64::MAX), Just(1 << 63), Just((1 << 63) - 1)],
            0..40
        )
        .prop_map(numbers),
    ]
}

fn decode(chain: &Chain, tile: &[u8], len: usize) -> Result<Vec<u8>> {
    let mut out = vec![0xA5; len];
    chain.decode_into(tile, &mut out, &RULES, &mut Contexts::default())?;
    Ok(out)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(250))]

    #[test]
    fn pipelines_round_trip(
        (word, cells) in words().prop_flat_map(|word| (Just(word), cells(word))),
        list in proptest::collection::vec(filters(), 0..4),
        chunk in prop_oneof![Just(0_u32), Just(65536), 1..2000_u32],
        values in 1..3_usize,
    ) {
        let cell = word.size * values;
        let cells = &cells[..cells.len() / cell * cell];
        let chain = Chain::new(list.clone(), word, cell, false).chunks_of(chunk);
        let mut tile = vec![7];
        match chain.encode(cells, &mut tile, &RULES, &mut Contexts::default()) {
            Ok(()) => prop_assert_eq!(&decode(&chain, &tile[1..], cells.len()).unwrap()[..], cells),
            // Some filters cannot encode all cells; they must return an error.
            Err(e) => prop_assert!(
                matches!(e.kind(), ErrorKind::Codec { codec: "rle" | "delta" | "double_delta" | "positive_delta", .. }),
                "{} {:?}", e, list
            ),
        }
    }

    #[test]
    fn strings_round_trip(
        strings in proptest::collection::vec("[a-c]{0,3}|[a-z]{300}", 1..400),
        rest in proptest::collection::vec(
            prop_oneof![
                Just(Filter::Gzip { level: -1 }), Just(Filter::Zstd { level: -1 }), Just(Filter::Lz4 { level: -1 }),
                Just(Filter::Bzip2 { level: -1 }), Just(Filter::BitShuffle), Just(Filter::Xor), Just(Filter::Md5),
                Just(Filter::Sha256), Just(Filter::Aes256Gcm),
            ],
            0..3,
        ),
        kind in 0..3_usize,
        chunk in prop_oneof![Just(65536_u32), 1..500_u32],
    ) {
        let data: Vec<u8> = strings.concat().into_bytes();
        let ends: Vec<u64> = strings.iter().scan(0, |n, s| { *n += s.len() as u64; Some(*n) }).collect();
        let first = [None, Some(Filter::Rle), Some(Filter::Dictionary)][kind];
        let word = FilterElement::new(1, ElementKind::Text);
        let chain = Chain::new(first.into_iter().chain(rest), word, 1, kind > 0).chunks_of(chunk);
        let mut tile = Vec::new();
        let contexts = &mut Contexts::default();
        if kind == 0 {
            chain.encode_var(&ends, &data, &mut tile, &RULES, contexts).unwrap();
            for chunk in Chunks::new(&tile).unwrap().scan(0, |n, c| { *n += c.unwrap().original as u64; Some(*n) }) {
                prop_assert!(ends.contains(&chunk), "a chunk ends inside a cell");
            }
            prop_assert_eq!(decode(&chain, &tile, data.len()).unwrap(), data);
        } else {
            chain.encode_strings(&ends, &data, &mut tile, &RULES, contexts).unwrap();
            let (mut decoded, mut text) = (Vec::new(), Vec::new());
            chain.decode_strings(&tile, ends.len(), data.len(), &mut decoded, &mut text, &RULES, contexts).unwrap();
            prop_assert_eq!((decoded, text), (ends, data));
        }
    }

    #[test]
    fn scaled_floats_round_trip_within_half_a_step(
        values in proptest::collection::vec(-12_000.0..12_000.0_f64, 0..200),
        width in prop_oneof![Just(2_usize), Just(4), Just(8)],
    ) {
        let (scale, offset) = (0.5, 3.0);
        let cells: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        let filter = Filter::FloatScale { scale, offset, width };
        let chain = Chain::new([filter, Filter::BitShuffle], FilterElement::new(8, ElementKind::Float), 8, false);
        chain.check_cells(&cells).unwrap();
        let mut tile = Vec::new();
        chain.encode(&cells, &mut tile, &RULES, &mut Contexts::default()).unwrap();
        let decoded = decode(&chain, &tile, cells.len()).unwrap();
        for (value, decoded) in values.iter().zip(decoded.chunks(8)) {
            let decoded = f64::from_le_bytes(decoded.try_into().unwrap());
            prop_assert!((value - decoded).abs() <= scale / 2.0 + 1e-9, "{} {}", value, decoded);
        }
    }
}

#[test]
fn floats_out_of_integer_range_are_rejected() {
    let filter = Filter::FloatScale { scale: 1.0, offset: 0.0, width: 1 };
    let chain = Chain::new([filter], FilterElement::new(4, ElementKind::Float), 4, false);
    for bad in [f32::NAN, f32::INFINITY, 127.6, -129.0] {
        let cells: Vec<u8> = [1.0, bad].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert!(matches!(chain.check_cells(&cells).unwrap_err().kind(), ErrorKind::InvalidRequest { .. }));
    }
}

#[test]
fn an_empty_tile_is_one_empty_chunk() {
    let chain = Chain::new([Filter::Zstd { level: -1 }], FilterElement::new(1, ElementKind::Text), 1, false);
    let mut tile = Vec::new();
    chain.encode(&[], &mut tile, &RULES, &mut Contexts::default()).unwrap();
    let chunks: Vec<_> = Chunks::new(&tile).unwrap().map(|c| c.unwrap()).collect();
    assert_eq!((chunks.len(), chunks[0].original, chunks[0].meta.len(), chunks[0].data.len()), (1, 0, 16, 9));
}
