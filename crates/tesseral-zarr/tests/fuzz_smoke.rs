//! The bodies of the fuzz targets of this format on plausible objects, changed a little, many times.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    missing_docs
)]

mod common;

#[path = "../../../fuzz/src/zarr.rs"]
mod zarr;

use common::{v2, v3};
use serde_json::json;
use tesseral_conformance::testing::Random;

#[test]
fn changed_objects_never_panic() {
    let sharded = json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [2], "codecs": [{"name": "bytes"}],
        "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}], "index_location": "start"}}]);
    let text = json!({"dtype": "|O", "filters": [{"id": "vlen-utf8"}], "compressor": {"id": "blosc"}});
    let consolidated = json!({"metadata": {".zgroup": {"zarr_format": 2},
        "a/.zarray": serde_json::from_slice::<serde_json::Value>(&v2("<i2", &[3], &[2], &json!({}))).unwrap()}});
    let seeds: Vec<(u8, Vec<u8>)> = vec![
        (0, v3("uint16", &[8], &[4], &sharded)),
        (1, v2("<U3", &[4], &[2], &json!({"order": "F"}))),
        (1, v2("|O", &[4], &[2], &text)),
        (2, consolidated.to_string().into_bytes()),
        (3, v2(">f4", &[2, 2], &[2, 2], &json!({"filters": [{"id": "delta", "dtype": ">f4"}]}))),
        (4, vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (5, vec![0; 40]),
        (6, vec![16, 0, 0, 0, 0xf0, 1, 2, 1, 0x21, 4, 36, 0, 0, 0, 36, 0, 0, 0, 52, 0, 0, 0]),
        (7, b"BZh91AY&SY".to_vec()),
    ];
    let mut random = Random::new(1);
    let mut next = || random.draw() as usize;
    for (choice, seed) in seeds {
        for _ in 0..400 {
            let mut input = [&[choice], &seed[..]].concat();
            for _ in 0..1 + next() % 3 {
                let at = 1 + next() % (input.len() - 1);
                input[at] = if next() % 2 == 0 { b"0123456789\"{}[],:-"[next() % 18] } else { next() as u8 };
            }
            input.truncate(1 + next() % (2 * input.len()));
            zarr::open(&input);
            zarr::shard_index(&input);
        }
    }
}
