//! Truncated and damaged documents, shards and chunks: errors, never a panic, and never memory that the bytes do not justify.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;

use common::{memory, open, v2, v3};
use serde_json::{Value as Json, json};
use tesseral_core::{ErrorKind, Limits, Selection};
use tesseral_format::{ColumnMut, Format, OpenOptions, Request, Scratch};
use tesseral_store::Store;
use tesseral_zarr::ZarrFormat;

/// Opens, plans and decodes everything that a store declares, up to a limit; errors are fine.
fn exercise(store: Arc<dyn Store>) {
    let limits = Limits { chunk_bytes: 1 << 20, plan_chunks: 256, ..Limits::DEFAULT };
    let options = OpenOptions { limits, ..OpenOptions::default() };
    let Ok(container) = ZarrFormat.open(store, &options) else { return };
    for number in 0..container.len() {
        let array = container.array(number).unwrap();
        let shape = array.schema().shape().unwrap();
        let Ok(plan) =
            tesseral_format::plan(&*array, container.store(), &Request::cells(Selection::all(&shape), 0))
        else {
            continue;
        };
        for chunk in plan.chunks.iter().filter(|chunk| chunk.cells <= 1 << 16) {
            let read = |part: &tesseral_format::Part| {
                let range = part.offset..part.offset + part.len;
                let object = array.object(part.object).into_owned();
                container.store().read_many(&object, &[range]).unwrap().remove(0)
            };
            let parts: Vec<_> = chunk.parts.iter().map(read).collect();
            let (mut offsets, mut data) = (Vec::new(), Vec::new());
            let size = array.schema().fields[0].cell_size();
            let mut values = vec![0; size.unwrap_or(0) * chunk.cells as usize];
            let out = match size {
                Some(_) => ColumnMut::Fixed { values: &mut values, validity: None },
                None => ColumnMut::Var { offsets: &mut offsets, data: &mut data, validity: None },
            };
            let column = tesseral_format::Column::Field(0);
            let _ = array.decode(chunk, column, &parts, 0..chunk.cells, out, &mut Scratch::default());
        }
    }
}

fn sharded() -> Json {
    json!([{"name": "sharding_indexed", "configuration": {"chunk_shape": [2], "codecs": [{"name": "bytes"}, {"name": "zstd"}],
        "index_codecs": [{"name": "bytes"}, {"name": "crc32c"}]}}])
}

#[test]
fn every_truncation_and_changed_byte_of_a_document_is_survived() {
    let documents = [
        ("zarr.json", v3("uint16", &[8], &[4], &sharded())),
        (".zarray", v2("<i4", &[8], &[4], &json!({"fill_value": 2}))),
    ];
    for (name, document) in documents {
        assert!(open(&[(name, document.clone())]).is_ok());
        for len in 0..document.len() {
            let error = open(&[(name, document[..len].to_vec())]).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{len}: {error}");
        }
        for at in 0..document.len() {
            for byte in [b'0', b'9', b'"', b'-', b'}', 0xff] {
                let mut damaged = document.clone();
                damaged[at] = byte;
                exercise(memory(&[(name, damaged), ("c/0", vec![7; 80]), ("0", vec![7; 16])]));
            }
        }
    }
}

#[test]
fn damaged_shards_are_errors() {
    let array = v3("uint16", &[8], &[4], &sharded());
    for len in 0..60 {
        let store = memory(&[("zarr.json", array.clone()), ("c/0", vec![3; len])]);
        let container = ZarrFormat.open(store, &OpenOptions::default()).unwrap();
        let planned = tesseral_format::plan(
            &*container.array(0).unwrap(),
            container.store(),
            &Request::cells(Selection::all(&[8]), 0),
        );
        assert!(planned.is_err(), "{len}");
    }
}

#[test]
fn sizes_that_documents_claim_are_errors_or_fill_values() {
    let most = u64::MAX;
    for (shape, chunk) in [([most, most], [1, 1]), ([4, 4], [0, 1]), ([most, 1], [most - 1, 1])] {
        let error = open(&[(".zarray", v2("<f8", &shape, &chunk, &json!({})))]).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{shape:?}: {error}");
    }
    let huge = v2("<f8", &[1 << 50], &[1 << 45], &json!({"fill_value": "NaN"}));
    let container = open(&[(".zarray", huge.clone())]).unwrap();
    let array = container.array(0).unwrap();
    let plan =
        tesseral_format::plan(&*array, container.store(), &Request::cells(Selection::all(&[3]), 0)).unwrap();
    assert_eq!((plan.chunks.len(), plan.stored_bytes()), (1, 0));
    // A chunk that exists must be decoded completely.
    let container = open(&[(".zarray", huge), ("0", vec![0; 9])]).unwrap();
    let error = tesseral_format::plan(
        &*container.array(0).unwrap(),
        container.store(),
        &Request::cells(Selection::all(&[3]), 0),
    )
    .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    let many = open(&[(".zarray", v2("|u1", &[1 << 40], &[1], &json!({})))]).unwrap();
    let error = tesseral_format::plan(
        &*many.array(0).unwrap(),
        many.store(),
        &Request::cells(Selection::all(&[1 << 40]), 0),
    )
    .unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
}

#[test]
fn paths_outside_the_store_are_rejected() {
    for path in ["../x", "/etc", "a//b", ".", "a/../b", ""] {
        let node: Json =
            serde_json::from_slice(&v3("int8", &[1], &[1], &json!([{"name": "bytes"}]))).unwrap();
        let root = json!({"zarr_format": 3, "node_type": "group", "consolidated_metadata": {"metadata": {path: node}}});
        assert!(open(&[("zarr.json", root.to_string().into_bytes())]).is_err(), "{path:?}");
    }
}

#[test]
fn unknown_features_are_named() {
    let group = br#"{"zarr_format": 2}"#.to_vec();
    for (more, word) in [
        (json!({"compressor": {"id": "sz9"}}), "sz9"),
        (json!({"compressor": {"id": "lzma", "format": 3, "filters": [{"id": 4}]}}), "lzma"),
        (json!({"filters": [{"id": "pcodec"}]}), "pcodec"),
        (json!({"dtype": [["a", "<i4"]]}), "structured"),
        (json!({"dtype": "|O", "filters": [{"id": "pickle"}]}), "pickle"),
    ] {
        let array = v2("<i4", &[2], &[2], &more);
        let error = open(&[(".zarray", array.clone())]).unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Unsupported { feature } if feature.contains(word)),
            "{error}"
        );
        // A group shows its other arrays.
        let good = v2("<i4", &[2], &[2], &json!({}));
        let container =
            open(&[(".zgroup", group.clone()), ("bad/.zarray", array), ("good/.zarray", good)]).unwrap();
        assert_eq!((container.len(), container.name(0), container.unread().len()), (1, "good", 1));
        let error = container.find("bad").unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::Unsupported { feature } if feature.contains(word)),
            "{error}"
        );
    }
}
