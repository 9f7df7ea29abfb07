//! Arbitrary bytes as each structure of a TileDB array, and as the files of a complete array: opened, audited, planned and
//! decoded, within limits and without a panic.
//!
//! A complete array is an archive: for each file `u8` length and name, `u16` length and bytes.

use std::sync::{Arc, OnceLock};

use tesseral_codec::Contexts;
use tesseral_codec::filter::{Chain, FilterContext};
use tesseral_conformance::oracle::{Dense, Sparse};
use tesseral_core::Cursor;
use tesseral_core::{Attributes, CountedValues, Limits};
use tesseral_format::{AuditOptions, Format, OpenOptions};
use tesseral_store::{MemoryStore, Store};
use tesseral_tiledb::TileDbFormat;
use tesseral_tiledb::wire::datatype::Datatype;
use tesseral_tiledb::wire::generic_tile::GenericTile;
use tesseral_tiledb::wire::schema::Schema;
use tesseral_tiledb::wire::{
    condition, consolidated_footers, enumeration, footer, group, metadata, pipeline, rtree, section,
};

const LIMITS: Limits =
    Limits { chunk_bytes: 1 << 20, metadata_bytes: 1 << 20, depth: 64, plan_chunks: 4096, ..Limits::DEFAULT };
const RULES: FilterContext<'static> = FilterContext { version: 22, verify: true, key: None };

/// The unfiltered bytes of a generic tile.
fn unfiltered(bytes: &[u8]) -> Option<Vec<u8>> {
    let tile = GenericTile::parse("fuzz", bytes).ok()?;
    tile.decode("fuzz", &LIMITS, &RULES, &mut Contexts::default()).ok()
}

/// The schema of a small sparse array, for structures that need one.
fn sample() -> &'static Schema {
    static SAMPLE: OnceLock<Schema> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let folder = crate::fixtures::fixtures().join("tiledb/sparse_history/__schema");
        let file = crate::fixtures::files(&folder).remove(0).1;
        let plain = unfiltered(&file).expect("the fixture is valid");
        Schema::parse("sample", &plain).expect("the fixture is valid")
    })
}

/// Generic tiles.
pub fn generic_tile(bytes: &[u8]) {
    let _ = unfiltered(bytes);
}

/// Schemas: a parsed schema that can be written must parse to the same schema.
pub fn schema(bytes: &[u8]) {
    let Ok(parsed) = Schema::parse("fuzz", bytes) else { return };
    let mut written = Vec::new();
    if parsed.write(&mut written).is_ok() {
        let again = Schema::parse("written", &written).expect("written bytes parse");
        let mut twice = Vec::new();
        again.write(&mut twice).expect("a written schema can be written again");
        assert_eq!(written, twice);
    }
}

/// Fragment footers.
pub fn footers(bytes: &[u8]) {
    let _ = footer::schema_name("fuzz", bytes);
    if let Ok(footer) = footer::Footer::parse("fuzz", bytes, sample()) {
        let mut written = Vec::new();
        let _ = footer.write(sample(), &mut written);
    }
    let _ = consolidated_footers::parse("fuzz", bytes);
}

/// R-trees.
pub fn rtrees(bytes: &[u8]) {
    let dims = &sample().dims;
    let _ = rtree::leaves("fuzz", bytes, dims, 4);
    let Ok(leaves) = rtree::leaves("fuzz", bytes, dims, 22) else { return };
    let mut written = Vec::new();
    rtree::write(&leaves, dims, &mut written);
    let again = rtree::leaves("written", &written, dims, 22).expect("written bytes parse");
    assert_eq!(leaves.len(), again.len());
}

/// Delete and update conditions.
pub fn conditions(bytes: &[u8]) {
    let Ok(node) = condition::Node::parse("fuzz", bytes, &LIMITS) else { return };
    let mut written = Vec::new();
    if node.write(&mut written).is_ok() {
        condition::Node::parse("written", &written, &LIMITS).expect("written bytes parse");
    }
}

/// A filter pipeline and a filtered tile: `u8` datatype, `u16` cells, the pipeline, the tile.
pub fn filters(bytes: &[u8]) {
    let Some((&[datatype, low, high], rest)) = bytes.split_first_chunk::<3>() else { return };
    let Ok(datatype) = Datatype::new(datatype % 44) else { return };
    let mut cursor = Cursor::new("fuzz", rest);
    let Ok(pipeline) = pipeline::FilterPipeline::parse(&mut cursor) else { return };
    let word = datatype.word();
    let cells = usize::from(u16::from_le_bytes([low, high]) % 4096);
    let mut out = vec![0; cells * word.size];
    let mut contexts = Contexts::default();
    for var in [false, true] {
        let chain = Chain::new(pipeline.filters.iter().copied(), word, word.size, var);
        let _ = chain.decode_into(cursor.rest(), &mut out, &RULES, &mut contexts);
        if chain.holds_strings() {
            let (mut ends, mut text) = (Vec::new(), Vec::new());
            let tile = cursor.rest();
            let _ = chain.decode_strings(tile, cells, out.len(), &mut ends, &mut text, &RULES, &mut contexts);
        }
    }
}

/// The smaller structures, selected by the first byte.
pub fn structures(bytes: &[u8]) {
    let Some((which, bytes)) = bytes.split_first() else { return };
    let mut counted = CountedValues::new(Limits::DEFAULT, bytes.len() as u64);
    match which % 4 {
        0 => drop(enumeration::parse("fuzz", bytes, &mut counted)),
        1 => drop(metadata::apply("fuzz", bytes, &mut Attributes::new(), &mut counted)),
        2 => drop(group::apply("fuzz", bytes, &mut group::Members::default())),
        _ => {
            let _ = section::numbers("fuzz", bytes, "a list");
            let _ = section::markers("fuzz", bytes);
            let _ = section::statistics("fuzz", bytes, 3);
            if let Ok(values) = section::ExtremaValues::parse("fuzz", bytes) {
                let _ = (values.fixed(0, 8), values.var(0), values.var(usize::MAX));
            }
        }
    }
}

/// The files of an archive.
pub fn archive(mut bytes: &[u8]) -> MemoryStore {
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

/// The files of a whole array: opened, audited, decoded by the naive oracle.
pub fn open(bytes: &[u8]) {
    let store: Arc<dyn Store> = Arc::new(archive(bytes));
    let options = OpenOptions { limits: LIMITS, ..OpenOptions::default() };
    if let Ok(container) = TileDbFormat.open(Arc::clone(&store), &options) {
        container.details();
        // Damage must be an error; the error itself is not checked.
        let _ = container.versions();
        for i in 0..container.len() {
            let Ok(array) = container.array(i) else { continue };
            let is_small = |s: tesseral_core::Coords| {
                s.iter().try_fold(1_u64, |n, e| n.checked_mul(*e)).is_some_and(|n| n < 1 << 16)
            };
            if array.schema().sparse {
                let _ = Sparse::load(container.as_ref(), i);
            } else if array.schema().shape().is_some_and(is_small) {
                let _ = Dense::load(container.as_ref(), i, 0);
            }
        }
    }
    let _ =
        TileDbFormat.audit(store, &AuditOptions { open: options, ..AuditOptions::default() }, &mut |_| ());
}
