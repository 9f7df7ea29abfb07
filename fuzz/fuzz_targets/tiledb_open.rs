//! Any bytes as each structure of a TileDB array, and as the files of a whole array: opened, audited, planned and decoded,
//! within limits and without a panic.
//!
//! The whole array is an archive: `u8` length and name, `u16` length and bytes of each file. A first byte of 0 to 8 tries one parser on
//! the rest instead.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run tiledb_open`
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use tesseral_codec::Contexts;
use tesseral_codec::filter::Rules;
use tesseral_core::{Attributes, Limits};
use tesseral_format::oracle::{Dense, Sparse};
use tesseral_format::{AuditOptions, Format, OpenOptions};
use tesseral_store::{MemoryStore, Store};
use tesseral_tiledb::TileDbFormat;
use tesseral_tiledb::wire::generic_tile::GenericTile;
use tesseral_tiledb::wire::{
    condition, consolidated_footers, enumeration, footer, group, metadata, pipeline, rtree, schema, section,
};

const LIMITS: Limits = Limits { chunk_bytes: 1 << 20, metadata_bytes: 1 << 20, depth: 64, plan_chunks: 4096 };
const RULES: Rules<'static> = Rules { version: 22, verify: true, key: None };

/// The schema of a small array, for structures that need one.
fn sample() -> Option<schema::Schema> {
    let file = include_bytes!("../../fixtures/tiledb/sparse_history/__schema/__1794815293339_1794815293339_4ca50add74ad056cd318decd707763b7");
    let tile = GenericTile::parse("seed", file).ok()?;
    let bytes = tile.decode("seed", &LIMITS, &RULES, &mut Contexts::default()).ok()?;
    schema::Schema::parse("seed", &bytes).ok()
}

fn structures(which: u8, bytes: &[u8]) {
    match which {
        0 => {
            if let Ok(tile) = GenericTile::parse("fuzz", bytes) {
                let _ = tile.decode("fuzz", &LIMITS, &RULES, &mut Contexts::default());
            }
        }
        1 => drop(schema::Schema::parse("fuzz", bytes)),
        2 => {
            let _ = footer::schema_name("fuzz", bytes);
            if let Some(schema) = sample() {
                let _ = footer::Footer::parse("fuzz", bytes, &schema);
                let _ = rtree::leaves("fuzz", bytes, &schema.dims);
            }
        }
        3 => drop(condition::Node::parse("fuzz", bytes, &LIMITS)),
        4 => drop(enumeration::parse("fuzz", bytes)),
        5 => drop(metadata::apply("fuzz", bytes, &mut Attributes::new())),
        6 => drop(group::apply("fuzz", bytes, &mut group::Members::default())),
        7 => {
            let _ = section::numbers("fuzz", bytes, "a list");
            let _ = section::markers("fuzz", bytes);
            let _ = section::statistics("fuzz", bytes, 3);
            if let Ok(values) = section::Values::parse("fuzz", bytes) {
                let _ = (values.fixed(0, 8), values.var(0), values.var(usize::MAX));
            }
        }
        _ => {
            let _ = consolidated_footers::parse("fuzz", bytes);
            let _ = pipeline::Pipeline::parse(&mut tesseral_tiledb::wire::cursor::Cursor::new("fuzz", bytes));
        }
    }
}

fn archive(mut bytes: &[u8]) -> MemoryStore {
    let store = MemoryStore::new("fuzz");
    while let Some((&len, rest)) = bytes.split_first() {
        let Some((name, rest)) = rest.split_at_checked(usize::from(len)) else { break };
        let Some((len, rest)) = rest.split_at_checked(2) else { break };
        let len = usize::from(u16::from_le_bytes([len[0], len[1]])).min(rest.len());
        let (file, rest) = rest.split_at(len);
        if let Ok(name) = std::str::from_utf8(name) {
            store.insert(name, file.to_vec());
        }
        bytes = rest;
    }
    store
}

fuzz_target!(|bytes: &[u8]| {
    if let Some((&which @ 0..=8, rest)) = bytes.split_first() {
        return structures(which, rest);
    }
    let store: Arc<dyn Store> = Arc::new(archive(bytes.get(1..).unwrap_or_default()));
    let options = OpenOptions { limits: LIMITS, ..OpenOptions::default() };
    if let Ok(container) = TileDbFormat.open(Arc::clone(&store), &options) {
        container.details();
        container.versions();
        for i in 0..container.len() {
            let Ok(array) = container.array(i) else { continue };
            if array.schema().sparse {
                let _ = Sparse::load(container.as_ref(), i);
            } else if array.schema().shape().is_some_and(|s| s.iter().product::<u64>() < 1 << 16) {
                let _ = Dense::load(container.as_ref(), i, 0);
            }
        }
    }
    let _ = TileDbFormat.audit(store, &AuditOptions { open: options, ..AuditOptions::default() }, &mut |_| ());
});
