//! Files of the reference implementation pass the conformance suite and have the expected cells.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::Value as Json;
use tesseral_conformance::oracle::Cells;
use tesseral_conformance::{Effort, Expected, Fixture, expectations_hold, read_suite};
use tesseral_core::{DType, ErrorKind, Value};
use tesseral_format::{AuditOptions, ContainerSource, Format, OpenOptions};
use tesseral_store::{MemoryStore, Store};
use tesseral_tensogram::TensogramFormat;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tensogram")
}

fn bytes(file: &str) -> Vec<u8> {
    std::fs::read(folder().join(file)).unwrap()
}

fn store(bytes: Vec<u8>) -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_object("file.tgm", bytes))
}

fn open(bytes: Vec<u8>) -> Arc<dyn ContainerSource> {
    TensogramFormat.open(store(bytes), &OpenOptions::default()).unwrap()
}

/// The cells listed in the manifest, in native byte order.
fn cells(row: &Json) -> Cells {
    let text = row["cells"].as_str().unwrap();
    let mut values: Vec<u8> =
        (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect();
    let dtype: DType = row["dtype"].as_str().unwrap().parse().unwrap();
    if cfg!(target_endian = "big") {
        values.chunks_exact_mut(dtype.word()).for_each(<[u8]>::reverse);
    }
    Cells::Fixed { values, validity: None }
}

#[test]
fn every_fixture_passes_the_suite() {
    let manifest: Json = serde_json::from_slice(&bytes("manifest.json")).unwrap();
    let manifest = manifest.as_object().unwrap();
    let files = std::fs::read_dir(folder())
        .unwrap()
        .filter(|f| f.as_ref().unwrap().file_name().to_str().unwrap().ends_with(".tgm"));
    assert_eq!(files.count(), manifest.len(), "a fixture without an entry");
    for (file, entry) in manifest {
        let mut fixture = Fixture::new(store(bytes(file)), 11);
        fixture.effort = Effort { selections: 4, chunks: 4, damages: 48 };
        let arrays = entry["arrays"].as_array().unwrap();
        let expected = |(array, row)| Expected::Dense { array, field: 0, cells: cells(row) };
        fixture.expected = arrays.iter().enumerate().map(expected).collect();
        let container = open(bytes(file));
        assert_eq!(container.len(), arrays.len(), "{file}");
        for (number, row) in arrays.iter().enumerate() {
            assert_eq!(container.name(number), row["name"], "{file}");
            let array = container.array(number).unwrap();
            let schema = array.schema();
            assert_eq!(schema.fields[0].dtype.to_string(), row["dtype"].as_str().unwrap(), "{file}");
            let shape: Vec<u64> =
                row["shape"].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).collect();
            assert_eq!(schema.shape().unwrap().to_vec(), shape, "{file}");
        }
        let skipped: Vec<Json> = container.details()["skipped"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| serde_json::json!([s["offset"], s["length"]]))
            .collect();
        let wanted = entry.get("skipped").and_then(Json::as_array).cloned().unwrap_or_default();
        assert_eq!(skipped, wanted, "{file}");
        let outcome = if wanted.is_empty() {
            read_suite(&TensogramFormat, &fixture)
        } else {
            expectations_hold(&TensogramFormat, &fixture)
        };
        outcome.unwrap_or_else(|violation| panic!("{file}: {violation}"));
    }
}

#[test]
fn metadata_is_typed() {
    let container = open(bytes("metadata.tgm"));
    assert_eq!(container.attributes()["centre"], Value::from("ecmf"));
    // The package stores integers beyond 63 bits as floats.
    let flags = vec![Value::Bool(true), Value::Null, Value::Int(-5), Value::Float(2_f64.powi(63))];
    assert_eq!(container.attributes()["flags"], Value::List(flags));
    let array = container.array(0).unwrap();
    let schema = array.schema();
    assert_eq!(schema.dims.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["y", "x"]);
    assert_eq!(schema.attributes["scale"], Value::Float(0.1));
    assert!(!schema.attributes.contains_key("_reserved_"));
    let Value::Map(mars) = &schema.attributes["mars"] else { panic!("{:?}", schema.attributes) };
    assert_eq!(mars["step"], Value::Int(6));
    let details = container.details();
    assert_eq!(details["messages"][0]["reserved"]["encoder"]["version"], "0.24.0");
    assert_eq!(details["messages"][0]["extra"]["centre"], "ecmf");
}

#[test]
fn names_resolve_to_one_array_or_none() {
    let container = open(bytes("metadata.tgm"));
    assert_eq!(container.find("0/1").unwrap(), 1);
    assert_eq!(container.find("b").unwrap(), 1);
    let several = open([bytes("metadata.tgm"), bytes("metadata.tgm")].concat());
    let error = several.find("b").unwrap_err();
    let ErrorKind::NotFound { candidates, .. } = error.kind() else { panic!("{error}") };
    assert_eq!(candidates, &["0/1", "1/1"]);
    assert!(several.find("c").is_err());
}

fn checks(bytes: Vec<u8>) -> Vec<(&'static str, bool)> {
    let mut found = Vec::new();
    let report = &mut |finding: tesseral_core::Finding| found.push((finding.check, finding.ok));
    TensogramFormat.audit(store(bytes), &AuditOptions::default(), report).unwrap();
    found
}

#[test]
fn audits_report_the_checks_of_the_reference() {
    assert!(checks(bytes("older_writer.tgm")).contains(&("older_writer", true)));
    assert!(checks(bytes("no_hash.tgm")).contains(&("no_hash_available", true)));
    assert!(checks(bytes("torn_tail.tgm")).contains(&("total_length_exceeds_buffer", false)));
    assert!(checks(bytes("garbage.tgm")).contains(&("garbage", false)));
    // A flipped bit in the metadata, which the reference's validator does not detect.
    let mut bent = bytes("metadata.tgm");
    bent[60] ^= 1;
    assert!(checks(bent.clone()).contains(&("hash_mismatch", false)));
    let error = open(bent).array(0).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error}");
    // A frame out of order: an index after an object.
    let mut moved = bytes("hashes_footer.tgm");
    let at = moved.windows(4).rposition(|w| w == [b'F', b'R', 0, 5]).unwrap();
    moved[at + 3] = 2;
    assert!(checks(moved).contains(&("frame_order_violation", false)));
}

#[test]
fn the_intact_objects_of_a_truncated_message_are_recovered() {
    let whole = bytes("metadata.tgm");
    // Truncated inside the second object.
    let cut = whole.windows(4).rposition(|w| w == [b'F', b'R', 0, 9]).unwrap() + 40;
    let file = [bytes("streamed.tgm"), whole[..cut].to_vec()].concat();
    let salvage = TensogramFormat.salvage(store(file.clone()), &OpenOptions::default()).unwrap();
    let names: Vec<&str> = (0..salvage.container.len()).map(|i| salvage.container.name(i)).collect();
    assert_eq!(names, ["0/0", "0/1", "1/0"]);
    assert_eq!(salvage.container.array(2).unwrap().schema().attributes["name"], Value::from("a"));
    assert!(salvage.findings.iter().any(|f| f.check == "total_length_exceeds_buffer"));
    assert_eq!(open(file).len(), 2);
}

/// A layout that the reference reads but does not write: the descriptor before the payload.
#[test]
fn a_descriptor_can_precede_the_payload() {
    let mut file = bytes("no_hash.tgm");
    let before = open(file.clone());
    let frames: Vec<usize> = (0..file.len() - 4).filter(|at| file[*at..].starts_with(b"FR\0\x09")).collect();
    assert_eq!(frames.len(), 2);
    for at in frames {
        let word = |at: usize| u64::from_be_bytes(file[at..at + 8].try_into().unwrap()) as usize;
        let end = at + word(at + 8);
        let cbor = word(end - 20);
        file[at + 7] &= !1;
        file[at + 16..end - 20].rotate_left(cbor - 16);
        file[end - 20..end - 12].copy_from_slice(&16_u64.to_be_bytes());
    }
    let after = open(file.clone());
    for number in 0..2 {
        let shape = before.array(number).unwrap().schema().shape().unwrap();
        let all = tesseral_core::Selection::all(&shape);
        let read = |c: &Arc<dyn ContainerSource>| {
            tesseral_conformance::oracle::read_dense(c.as_ref(), number, 0, &all).unwrap()
        };
        assert_eq!(read(&before), read(&after));
    }
    read_suite(&TensogramFormat, &Fixture::new(store(file), 3)).unwrap();
}
