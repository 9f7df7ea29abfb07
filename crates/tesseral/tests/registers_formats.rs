//! Formats of other crates: once registered, they are detected, opened, described and converted like built-in ones.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Once;

use tesseral::{ArraySchema, ArraySpec, ConvertOptions, Create, DType, ErrorKind, Format, Region};
use tesseral_conformance::testing::Coding;
use tesseral_conformance::testing::cells::{self, CellsFormat};
use tesseral_conformance::testing::layered::{Builder, Extent, Layer, LayeredFormat, Statistics};

/// Tests of one process share the registration.
fn registered() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        tesseral::register(&LayeredFormat).unwrap();
        tesseral::register(&CellsFormat).unwrap();
    });
}

/// A container with one array of 4 × 6 consecutive numbers.
fn counted() -> (Vec<u8>, Vec<i32>) {
    let values: Vec<i32> = (0..24).collect();
    let layer = Layer {
        cover: Region::new([(0, 4), (0, 6)]),
        extent: Extent::Clipped,
        codings: vec![Coding::default()],
        cells: vec![values.iter().map(|v| Some(v.to_ne_bytes().to_vec())).collect()],
        statistics: Statistics::Exact,
        digests: true,
    };
    let schema = ArraySchema::dense("counted", DType::Int32, &[4, 6], &[2, 3]);
    (Builder::new(1).array(&schema, &[layer]).unwrap().build().unwrap(), values)
}

#[test]
fn registered_formats_open_describe_and_convert() {
    registered();
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("numbers");
    let (bytes, values) = counted();
    std::fs::write(&source, bytes).unwrap();

    let container = tesseral::open(&source).unwrap();
    assert_eq!(container.format().id(), "layered");
    let array = container.array("counted").unwrap();
    assert_eq!(array.schema().shape().unwrap().as_slice(), [4, 6]);
    assert_eq!(array.read(&array.all().unwrap()).unwrap().as_slice::<i32>(), Some(&values[..]));
    assert_eq!(array.totals().unwrap().chunks, 4);

    let converted = folder.path().join("numbers.tet");
    tesseral::convert(&container, &converted, &ConvertOptions::default()).unwrap();
    let converted = tesseral::open(&converted).unwrap();
    assert_eq!(converted.format().id(), "tet");
    let copy = converted.array("counted").unwrap();
    assert_eq!(copy.read(&copy.all().unwrap()).unwrap().as_slice::<i32>(), Some(&values[..]));

    // Created by its extension.
    let created = folder.path().join("numbers.layered");
    let mut session = Create::new().begin(&created, "").unwrap();
    let id = session.add(&ArraySpec::raw(copy.schema().clone())).unwrap();
    session.copy(id, &Region::new([(0, 4), (0, 6)]), &copy).unwrap();
    session.commit().unwrap();
    let created = tesseral::open(&created).unwrap();
    assert_eq!(created.format().id(), "layered");
    let copy = created.array("counted").unwrap();
    assert_eq!(copy.read(&copy.all().unwrap()).unwrap().as_slice::<i32>(), Some(&values[..]));
}

#[test]
fn registered_formats_are_listed_after_those_of_the_build() {
    registered();
    let ids: Vec<&str> = tesseral::formats().map(Format::id).collect();
    let (built_in, registered) = ids.split_at(ids.len() - 2);
    assert_eq!(registered, ["layered", "cells"]);
    assert!(built_in.contains(&"tet") && built_in.iter().all(|id| !registered.contains(id)), "{built_in:?}");
    assert_eq!(tesseral::format("cells").unwrap().title(), CellsFormat.title());
    let sample = cells::sample(3).unwrap();
    assert_eq!(tesseral::recognize(&*sample.store()).unwrap().id(), "cells");
}

#[test]
fn ids_are_unique() {
    registered();
    let error = tesseral::register(&LayeredFormat).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidRequest { .. }), "{error}");
    assert!(error.to_string().contains("\"layered\""), "{error}");
    assert_eq!(tesseral::formats().filter(|f| f.id() == "layered").count(), 1);
}
