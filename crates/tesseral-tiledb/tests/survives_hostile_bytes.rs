//! Parsers of every structure on mutated bytes: an error or a value, no panic, bounded memory.

#![allow(clippy::unwrap_used)]

mod common;

use std::ops::Range;

use tesseral_codec::Contexts;
use tesseral_codec::filter::FilterContext;
use tesseral_conformance::testing::mutations;
use tesseral_core::{Attributes, CountedValues, ErrorKind, Limits};
use tesseral_store::{Store, StoreExt};
use tesseral_tiledb::wire::generic_tile::GenericTile;
use tesseral_tiledb::wire::{condition, enumeration, footer, group, metadata, rtree, schema, section};

const RULES: FilterContext<'static> = FilterContext { version: 22, verify: true, key: None };

fn first(store: &dyn Store, folder: &str, ending: &str) -> Vec<u8> {
    let entries = store.list(folder).unwrap();
    let entry = entries.iter().find(|e| !e.is_folder() && e.name.ends_with(ending)).unwrap();
    store.read_all(&format!("{folder}/{}", entry.name), u64::MAX).unwrap().to_vec()
}

/// Values of a file of 1 MiB.
fn counted() -> CountedValues {
    CountedValues::new(Limits::DEFAULT, 1 << 20)
}

fn unfiltered(bytes: &[u8]) -> Vec<u8> {
    let tile = GenericTile::parse("fixture", bytes).unwrap();
    tile.decode("fixture", &Limits::default(), &RULES, &mut Contexts::default()).unwrap()
}

#[test]
fn generic_tiles_and_schemas() {
    let limits = Limits { metadata_bytes: 1 << 20, ..Limits::default() };
    let store = common::memory("enumerated");
    let file = first(&store, "__schema", "");
    mutations(&file, |bytes| {
        if let Ok(tile) = GenericTile::parse("noise", bytes) {
            let _ = tile.decode("noise", &limits, &RULES, &mut Contexts::default());
        }
    });
    let plain = unfiltered(&file);
    assert!(schema::Schema::parse("whole", &plain).is_ok());
    mutations(&plain, |bytes| {
        let _ = schema::Schema::parse("noise", bytes);
    });
    let labels = unfiltered(&first(&store, "__schema/__enumerations", ""));
    assert!(enumeration::parse("whole", &labels, &mut counted()).is_ok());
    mutations(&labels, |bytes| {
        let _ = enumeration::parse("noise", bytes, &mut counted());
    });
}

#[test]
fn metadata_groups_and_conditions() {
    let plain = unfiltered(&first(&common::memory("enumerated"), "__meta", ""));
    let mut whole = Attributes::new();
    metadata::apply("whole", &plain, &mut whole, &mut counted()).unwrap();
    assert_eq!(whole.len(), 5);
    mutations(&plain, |bytes| {
        let _ = metadata::apply("noise", bytes, &mut Attributes::new(), &mut counted());
    });
    let plain = unfiltered(&first(&common::memory("group"), "__group", ""));
    mutations(&plain, |bytes| {
        let _ = group::apply("noise", bytes, &mut group::Members::default());
    });
    let plain = unfiltered(&first(&common::memory("sparse_history"), "__commits", ".del"));
    assert!(condition::Node::parse("whole", &plain, &Limits::default()).is_ok());
    mutations(&plain, |bytes| {
        let _ = condition::Node::parse("noise", bytes, &Limits::default());
    });
    // Nesting is limited.
    let deep = [0, 2, 1, 0, 0, 0, 0, 0, 0, 0].repeat(100_000);
    assert!(condition::Node::parse("deep", &deep, &Limits::default()).is_err());
}

/// The schema of an array, the metadata of its first fragment, and the offset of its footer.
fn fragment_of(name: &str) -> (schema::Schema, Vec<u8>, Range<usize>) {
    let store = common::memory(name);
    let schema = schema::Schema::parse("schema", &unfiltered(&first(&store, "__schema", ""))).unwrap();
    let fragment = store.list("__fragments").unwrap().remove(0).name;
    let file = first(&store, &format!("__fragments/{fragment}"), "__fragment_metadata.tdb");
    let len = u64::from_le_bytes(file[file.len() - 8..].try_into().unwrap()) as usize;
    let footer = file.len() - 8 - len..file.len() - 8;
    (schema, file, footer)
}

/// It was read as a fragment without cells.
#[test]
fn a_fragment_with_a_domain_and_no_tiles_is_damaged() {
    let (schema, file, at) = fragment_of("sparse_history");
    let whole = footer::Footer::parse("whole", &file[at], &schema).unwrap();
    for (tiles, domain) in [(0, whole.domain.clone()), (whole.tiles, None)] {
        let mut bytes = Vec::new();
        footer::Footer { tiles, domain, ..whole.clone() }.write(&schema, &mut bytes).unwrap();
        let error = footer::Footer::parse("odd", &bytes, &schema).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error:?}");
    }
}

#[test]
fn footers_and_sections() {
    let (schema, file, at) = fragment_of("sparse_history");
    let footer_bytes = &file[at];
    let whole = footer::Footer::parse("whole", footer_bytes, &schema).unwrap();
    mutations(footer_bytes, |bytes| {
        let _ = footer::schema_name("noise", bytes);
        let _ = footer::Footer::parse("noise", bytes, &schema);
    });
    let at = |offset: u64| unfiltered(&file[offset as usize..]);
    let tree = at(whole.rtree);
    assert_eq!(rtree::leaves("whole", &tree, &schema.dims, 22).unwrap().len() as u64, whole.tiles);
    mutations(&tree, |bytes| {
        let _ = rtree::leaves("noise", bytes, &schema.dims, 22);
    });
    for list in 0..8 {
        let section = at(whole.lists[list][0]);
        mutations(&section, |bytes| {
            let _ = section::numbers("noise", bytes, "a list");
            if let Ok(values) = section::ExtremaValues::parse("noise", bytes) {
                let _ = (values.fixed(usize::MAX, 8), values.var(0), values.var(usize::MAX));
            }
        });
    }
    let markers = at(whole.conditions.unwrap());
    mutations(&markers, |bytes| {
        let _ = section::markers("noise", bytes);
    });
}

/// Metadata and labels compress well: a few stored bytes are many values.
#[test]
fn values_that_compress_well_are_bounded() {
    let labels = |count: u64| {
        let mut out = [&[0; 4][..], &1_u32.to_le_bytes(), b"e", &[0; 4]].concat();
        // One ASCII character for each label.
        out.push(11);
        out.extend_from_slice(&1_u32.to_le_bytes());
        out.push(0);
        out.extend_from_slice(&count.to_le_bytes());
        out.resize(out.len() + count as usize, b'x');
        enumeration::parse("labels", &out, &mut counted())
    };
    assert!(labels(100_000).is_ok());
    assert!(matches!(labels(16 << 20).unwrap_err().kind(), ErrorKind::Limit { .. }));
    let entries = |count: u32, key: &str, value: &[u8]| {
        let mut out = Vec::new();
        for number in 0..count {
            let key = format!("{key}{number}");
            out.extend_from_slice(&(key.len() as u32).to_le_bytes());
            out.extend_from_slice(key.as_bytes());
            out.extend_from_slice(&[0, 11]);
            out.extend_from_slice(&(value.len() as u32).to_le_bytes());
            out.extend_from_slice(value);
        }
        metadata::apply("metadata", &out, &mut Attributes::new(), &mut counted())
    };
    let json = [b"[".to_vec(), b"[0],".repeat(200_000), b"0]".to_vec()].concat();
    entries(40_000, "k", b"").unwrap();
    entries(1, "text", &json).unwrap();
    for (count, key, value) in [(200_000, "k", &b""[..]), (1, "__tesseral:json:", &json[..])] {
        let error = entries(count, key, value).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    }
}
