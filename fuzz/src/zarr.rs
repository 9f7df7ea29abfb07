//! Arbitrary bytes as the documents, shard indexes and chunks of a Zarr store: opened, audited, planned and decoded, within limits and
//! without a panic. The first byte selects the object that the rest is.

use std::sync::Arc;

use tesseral_core::{Limits, Selection};
use tesseral_format::{AuditOptions, Column, ColumnMut, Format, OpenOptions, Request, Scratch};
use tesseral_store::{MemoryStore, Store, StoreExt};
use tesseral_zarr::ZarrFormat;
use tesseral_zarr::wire::shard::{IndexLayout, ShardIndex};

const LIMITS: Limits =
    Limits { chunk_bytes: 1 << 20, metadata_bytes: 1 << 20, depth: 64, plan_chunks: 4096, ..Limits::DEFAULT };

/// Cells that are small enough to decode.
const FOLLOW: u64 = 1 << 16;

/// Arrays whose chunks are the input: compressed text, shards, filters.
const ARRAYS: [&str; 4] = [
    r#"{"zarr_format":3,"node_type":"array","shape":[9],"data_type":"string","fill_value":"","chunk_key_encoding":{"name":"default"},
        "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4]}},"codecs":[{"name":"vlen-utf8"},{"name":"gzip"}]}"#,
    r#"{"zarr_format":3,"node_type":"array","shape":[9],"data_type":"int16","fill_value":1,"chunk_key_encoding":{"name":"default"},
        "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[4]}},"codecs":[{"name":"sharding_indexed","configuration":
        {"chunk_shape":[2],"codecs":[{"name":"bytes"},{"name":"zstd"}],"index_codecs":[{"name":"bytes"}]}}]}"#,
    r#"{"zarr_format":3,"node_type":"array","shape":[9],"data_type":"float32","fill_value":"NaN","chunk_key_encoding":{"name":"default"},
        "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[9]}},"codecs":[{"name":"numcodecs.delta","configuration":
        {"dtype":"<f4"}},{"name":"bytes"},{"name":"blosc"},{"name":"numcodecs.lz4"}]}"#,
    r#"{"zarr_format":3,"node_type":"array","shape":[3,3],"data_type":"uint8","fill_value":0,"chunk_key_encoding":{"name":"default"},
        "chunk_grid":{"name":"regular","configuration":{"chunk_shape":[3,3]}},"codecs":[{"name":"bytes"},{"name":"numcodecs.bz2"},
        {"name":"numcodecs.zlib"}]}"#,
];

/// Opens, audits, plans and decodes a store.
pub fn open(data: &[u8]) {
    let Some((choice, bytes)) = data.split_first() else { return };
    let store = MemoryStore::new("fuzz.zarr");
    match choice % 8 {
        0 => store.insert("zarr.json", bytes.to_vec()),
        1 => store.insert(".zarray", bytes.to_vec()),
        2 => store.insert(".zmetadata", bytes.to_vec()),
        3 => {
            store.insert(".zgroup", br#"{"zarr_format":2}"#.to_vec());
            store.insert("a/.zarray", bytes.to_vec());
            store.insert("a/.zattrs", bytes.to_vec());
        }
        number => {
            store.insert("zarr.json", ARRAYS[usize::from(number) % 4].as_bytes().to_vec());
            store.insert("c/0", bytes.to_vec());
            store.insert("c/0/0", bytes.to_vec());
        }
    }
    if choice % 8 < 4 {
        for key in ["0", "c/0", "a/0", "0.0", "c"] {
            store.insert(key, bytes.to_vec());
        }
    }
    exercise(Arc::new(store));
}

fn exercise(store: Arc<dyn Store>) {
    let options = OpenOptions { limits: LIMITS, ..OpenOptions::default() };
    let mut findings = 0;
    let audit = AuditOptions { open: options.clone(), ..AuditOptions::default() };
    assert!(ZarrFormat.audit(Arc::clone(&store), &audit, &mut |_| findings += 1).is_ok() && findings > 0);
    let Ok(container) = ZarrFormat.open(store, &options) else { return };
    container.details();
    for number in 0..container.len().min(8) {
        let Ok(array) = container.array(number) else { panic!("an open store lacks an array") };
        let Some(shape) = array.schema().shape() else { panic!("an array without a shape") };
        let Ok(plan) =
            tesseral_format::plan(&*array, container.store(), &Request::cells(Selection::all(&shape), 0))
        else {
            continue;
        };
        for chunk in plan.chunks.iter().filter(|chunk| chunk.cells <= FOLLOW).take(64) {
            array.describe(chunk);
            let read = |part: &tesseral_format::Part| {
                let range = part.offset..part.offset + part.len;
                container.store().read(&array.object(part.object), range).expect("planned bytes are readable")
            };
            let parts: Vec<_> = chunk.parts.iter().map(read).collect();
            let size = array.schema().fields[0].cell_size();
            if size.is_some_and(|size| size > 1 << 10) {
                continue;
            }
            let mut values = vec![0; size.unwrap_or(0) * chunk.cells as usize];
            let (mut offsets, mut text) = (Vec::new(), Vec::new());
            let out = match size {
                Some(_) => ColumnMut::Fixed { values: &mut values, validity: None },
                None => ColumnMut::Var { offsets: &mut offsets, data: &mut text, validity: None },
            };
            let column = Column::Field(0);
            let decoded = array.decode(chunk, column, &parts, 0..chunk.cells, out, &mut Scratch::default());
            if decoded.is_ok() && size.is_none() {
                assert_eq!(offsets.len() as u64, chunk.cells);
            }
        }
    }
}

/// Arbitrary bytes as a shard index.
pub fn shard_index(data: &[u8]) {
    let Some((flags, bytes)) = data.split_first() else { return };
    let layout = IndexLayout { at_start: flags & 1 > 0, checksum: flags & 2 > 0, big: flags & 4 > 0 };
    let (chunks, len) = (bytes.len() as u64 / 16, u64::from(*flags) << 4);
    if let Ok(index) = ShardIndex::parse(bytes, layout, chunks, len, "fuzz") {
        for chunk in 0..chunks {
            assert!(index.get(chunk).is_none_or(|(offset, size)| offset + size <= len));
        }
    }
}
