//! Every corrupt file of the corpus has the expected outcome for open, audit and read.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;

use serde_json::Value as Json;
use tesseral_core::{Error, ErrorKind, Finding, Severity};
use tesseral_format::{AuditOptions, Format, OpenOptions};
use tesseral_tet::{TetFormat, read_tet_summary_v1};

fn corpus() -> BTreeMap<String, (Json, Vec<u8>)> {
    let folder = common::fixtures().join("corrupt");
    let text = std::fs::read(folder.join("expected.json")).unwrap();
    let expected: BTreeMap<String, Json> = serde_json::from_slice(&text).unwrap();
    for entry in std::fs::read_dir(&folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(name == "expected.json" || expected.contains_key(&name), "{name} has no expected outcome");
    }
    let read = |(name, expected): (String, Json)| {
        let bytes = std::fs::read(folder.join(&name)).unwrap();
        (name, (expected, bytes))
    };
    expected.into_iter().map(read).collect()
}

fn kind(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::Corrupt { .. } => "corrupt",
        ErrorKind::Codec { .. } => "damaged",
        ErrorKind::Unsupported { .. } => "unsupported",
        ErrorKind::Limit { .. } => "limit",
        other => panic!("{other:?}"),
    }
}

#[test]
fn opening_and_reading_end_as_expected() {
    let corpus = corpus();
    assert!(corpus.len() >= 100);
    for (name, (expected, bytes)) in corpus {
        let opened = common::open(bytes.clone());
        let summary = read_tet_summary_v1(&bytes);
        let got = opened.as_ref().map_or_else(kind, |_| "ok");
        assert_eq!(got, expected["open"].as_str().unwrap(), "{name}: {:?}", opened.err());
        assert_eq!(summary.as_ref().map_or_else(kind, |_| "ok"), got, "{name}");
        let Ok(container) = common::open(bytes) else { continue };
        let read = (0..container.len()).try_for_each(|i| common::read_flat(&*container, i).map(|_| ()));
        let got = match &read {
            Ok(()) => "ok",
            Err(e) if e.is_damage() => "damaged",
            Err(e) => kind(e),
        };
        assert_eq!(got, expected["read"].as_str().unwrap(), "{name}: {read:?}");
    }
}

fn audit(bytes: Vec<u8>) -> (Vec<Finding>, bool) {
    let mut findings = Vec::new();
    let report = TetFormat
        .audit(common::memory(bytes), &AuditOptions::default(), &mut |finding| findings.push(finding))
        .unwrap();
    (findings, report.container.is_some())
}

#[test]
fn auditing_names_the_expected_check() {
    for (name, (expected, bytes)) in corpus() {
        let (findings, goes_on) = audit(bytes);
        let failed = findings.iter().find(|f| !f.ok).map(|f| f.check);
        match expected["verify_check"].as_str() {
            // Payloads are decoded later by the engine.
            None | Some("chunk_decode") => {
                assert_eq!(failed, None, "{name}: {findings:#?}");
                assert!(goes_on, "{name}");
            }
            // The reference's limit on labels is reported as a warning.
            Some("footer_metadata") if name.contains("65_labels") => {
                let warned = findings.iter().find(|f| f.severity == Severity::Warning).unwrap();
                assert_eq!((failed, warned.check), (None, "footer_metadata"), "{name}");
            }
            Some(check) => assert_eq!(failed, Some(check), "{name}: {findings:#?}"),
        }
        if expected["verify_check"] == "parse" {
            assert_eq!((findings.len(), goes_on), (1, false), "{name}: parsing is one finding");
        }
    }
}

#[test]
fn checks_run_in_the_order_of_the_reference() {
    let order = [
        "superblock",
        "dataset_directory",
        "chunk_index",
        "chunk_payloads",
        "chunk_dataset_ids",
        "dataset_tensor_bytes",
        "payload_offsets",
        "chunk_coords",
        "payload_order",
        "dataset_count",
        "footer",
        "footer_metadata",
    ];
    for (name, (_, bytes)) in corpus() {
        let (findings, _) = audit(bytes);
        let places: Vec<_> =
            findings.iter().filter_map(|f| order.iter().position(|check| *check == f.check)).collect();
        assert!(places.is_sorted(), "{name}: {findings:#?}");
    }
}

#[test]
fn recovery_and_repair_never_panic_and_repairs_succeed() {
    let mut repaired = 0;
    for (name, (expected, bytes)) in corpus() {
        let options = OpenOptions::default();
        if let Ok(salvage) = TetFormat.salvage(common::memory(bytes.clone()), &options) {
            for i in 0..salvage.container.len() {
                let Ok(array) = salvage.container.array(i) else { continue };
                let shape = array.schema().shape().unwrap();
                let all = tesseral_core::Selection::all(&shape);
                let _ = tesseral_format::plan(
                    &*array,
                    salvage.container.store(),
                    &tesseral_format::Request::cells(all, 0),
                );
            }
        }
        let store = common::memory(bytes.clone());
        let repairs = TetFormat.repairs(store.clone(), &options).unwrap();
        for repair in repairs {
            let applied = TetFormat.apply_repair(store.clone(), &options, repair.code);
            assert_eq!(applied.is_ok(), repair.automatic, "{name}: {repair:?} {applied:?}");
            if repair.automatic {
                assert_eq!(expected["verify_check"], "parse", "{name}");
                let container = TetFormat.open(store.clone(), &options).unwrap();
                for i in 0..container.len() {
                    common::read_flat(&*container, i).unwrap();
                }
                repaired += 1;
            }
        }
    }
    assert!(repaired >= 10, "{repaired}");
}
