//! Writing is transactional, and the bytes do not depend on the order and threads of chunks.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Case, array, memory, number, options, threads};
use proptest::prelude::*;
use std::path::Path;
use tesseral::{
    ArraySchema, ArraySpec, Attributes, Create, DType, ErrorKind, HistoryRow, Region, Selection, Session,
    Value,
};
use tesseral_core::schema::Labels;

fn invalid(error: &tesseral::Error) -> bool {
    matches!(error.kind(), ErrorKind::InvalidRequest { .. })
}

fn entries(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn begin(path: &Path) -> Session {
    Create::new().begin(path, "").unwrap()
}

/// The cells of one chunk.
fn chunk(case: &Case, region: &Region) -> Vec<u8> {
    case.slice(&Selection::from_region(region))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Raw files have canonical bytes for any threads and order of chunks; compressed ones have the same cells.
    #[test]
    fn any_order_gives_the_same_array(case in common::any_case(), digests in any::<bool>(), zones in any::<bool>(), seed in any::<u64>()) {
        let one = case.write_with(&options(digests, zones, None), threads(1));
        let four = case.write_with(&options(digests, zones, None), threads(4));
        prop_assert!(one == four, "threads");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.tet");
        let mut create = Create::new();
        if !digests { create = create.without_digests(); }
        if zones { create = create.statistics(); }
        let mut session = create.begin(&path, "tet").unwrap();
        let spec = case.spec("a");
        let id = session.add(&spec).unwrap();
        let grid = spec.schema.grid().unwrap();
        let mut order: Vec<u64> = (0..grid.total()).collect();
        order.sort_by_key(|n| (n ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for n in order {
            let coords = grid.coords(n);
            session.write_chunk(id, &coords, &chunk(&case, &grid.region(&coords))).unwrap();
        }
        session.commit().unwrap();
        let shuffled = std::fs::read(&path).unwrap();
        if case.codec == "raw" {
            prop_assert!(shuffled == one, "order");
        }
        let read = array(memory(&shuffled.into())).read(&Selection::all(&case.shape)).unwrap();
        prop_assert!(read.bytes() == case.cells);
    }
}

#[test]
fn nothing_is_visible_before_the_commit_or_without_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.tet");
    let case = Case::counting(DType::Int16, &[4, 4], &[2, 2], "raw");
    let mut session = begin(&path);
    let id = session.add(&case.spec("a")).unwrap();
    session.write(id, &case.cells).unwrap();
    assert!(!path.exists());
    assert!(
        entries(folder.path()).iter().all(|name| name.starts_with(".tesseral-")),
        "temporary names are recognizable"
    );
    drop(session);
    assert_eq!(entries(folder.path()), [""; 0], "a dropped session leaves nothing");

    let mut session = begin(&path);
    let id = session.add(&case.spec("a")).unwrap();
    session.write(id, &case.cells).unwrap();
    session.commit().unwrap();
    assert_eq!(entries(folder.path()), ["out.tet"]);

    let refused = Create::new().begin(&path, "tet").and_then(Session::commit);
    assert!(invalid(&refused.unwrap_err()), "an existing file is kept");
    let mut session = Create::new().overwrite().begin(&path, "tet").unwrap();
    session.add(&case.spec("b")).unwrap();
    assert!(invalid(&session.commit().unwrap_err()), "chunks are missing");
    assert_eq!(
        tesseral::open(&path).unwrap().names().collect::<Vec<_>>(),
        ["a"],
        "the old file is unchanged"
    );
    assert_eq!(entries(folder.path()), ["out.tet"]);
}

#[test]
fn regions_of_whole_chunks_give_the_same_file() {
    let folder = tempfile::tempdir().unwrap();
    let case = Case::counting(DType::Int16, &[7, 5], &[2, 2], "raw");
    let whole = case.write_with(&options(true, false, None), threads(2));
    let path = folder.path().join("out.tet");
    let mut session = begin(&path);
    let id = session.add(&case.spec("a")).unwrap();
    let boxes = [[(4, 7), (0, 5)], [(0, 4), (2, 5)], [(0, 4), (0, 2)]];
    for bounds in [[(0, 3), (0, 5)], [(1, 7), (0, 5)], [(4, 8), (0, 5)]] {
        let region = Region::new(bounds);
        let cells = vec![0; usize::try_from(region.cells().unwrap()).unwrap() * 2];
        assert!(invalid(&session.write_region(id, &region, &cells).unwrap_err()), "{region:?} cuts chunks");
    }
    for bounds in boxes {
        let region = Region::new(bounds);
        session.write_region(id, &region, &chunk(&case, &region)).unwrap();
    }
    let again = Region::new(boxes[2]);
    assert!(
        invalid(&session.write_region(id, &again, &chunk(&case, &again)).unwrap_err()),
        "each chunk once"
    );
    session.commit().unwrap();
    assert!(std::fs::read(&path).unwrap() == whole);
}

#[test]
fn invalid_writes_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let case = Case::counting(DType::Int16, &[5, 4], &[2, 2], "zstd");
    let mut session = begin(&folder.path().join("out.tet"));
    let id = session.add(&case.spec("a")).unwrap();
    for (coords, cells) in
        [(vec![3, 0], 4), (vec![0, 0, 0], 4), (vec![0], 4), (vec![0, 0], 3), (vec![2, 0], 4)]
    {
        let error = session.write_chunk(id, &coords, &vec![0; cells * 2]).unwrap_err();
        assert!(invalid(&error), "{coords:?}: {error:?}");
        assert_eq!(error.array(), Some("a"));
    }
    session.write_chunk(id, &[2, 0], &[0; 4]).unwrap();
    assert!(invalid(&session.write_chunk(id, &[2, 0], &[0; 4]).unwrap_err()), "each chunk once");
    assert!(invalid(&session.write(id, &case.cells[1..]).unwrap_err()), "too few cells");
    let error = session.commit().unwrap_err();
    assert!(invalid(&error));
    assert_eq!((error.array(), error.chunk()), (Some("a"), Some(&[0, 0][..])), "the first missing chunk");

    let error = Create::new().begin(folder.path().join("out.xyz"), "").unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }));
    let error = Create::new().begin(folder.path().join("out.tet"), "xyz").unwrap_err();
    assert!(
        matches!(error.kind(), ErrorKind::NotFound { what, candidates, .. } if what == "format" && candidates.contains(&"tet".to_owned()))
    );
}

#[test]
fn unsupported_arrays_are_rejected_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut session = begin(&folder.path().join("out.tet"));
    for (dtype, shape) in
        [(DType::Bitmask, vec![2]), (DType::Int16, vec![1; 9]), (DType::Complex64, vec![1; 8])]
    {
        let schema = tesseral::ArraySchema::dense("odd", dtype, &shape, &vec![1; shape.len()]);
        let error = session.add(&tesseral::ArraySpec::raw(schema)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{dtype} {shape:?}: {error:?}");
        assert_eq!(error.array(), Some("odd"));
    }
}

#[test]
fn metadata_round_trips() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.tet");
    let mut session = begin(&path);
    let mut spec = Case::counting(DType::Float32, &[2, 3], &[1, 2], "raw").spec("sst");
    spec.schema.dims[0].name = "time".into();
    spec.schema.dims[1].name = "x".into();
    let labels = |texts: &[&str]| Some(Labels::Text(texts.iter().map(|t| (*t).to_owned()).collect()));
    spec.schema.dims[0].labels = labels(&["2015-06-30", "2015-07-01"]);
    spec.schema.attributes.insert("units".into(), Value::from("K"));
    let id = session.add(&spec).unwrap();
    session.write(id, &(0..6).flat_map(|i| number(DType::Float32, i)).collect::<Vec<_>>()).unwrap();
    let row = HistoryRow {
        op: "write".into(),
        source: "here".into(),
        at: "17".into(),
        parents: vec!["p".into()],
        params: [("k".to_owned(), "v".to_owned())].into(),
        extra: [("agent".to_owned(), "me".to_owned())].into(),
    };
    session.add_history(row.clone()).unwrap();
    session.set_attributes(Attributes::from([("tool".to_owned(), Value::from("test"))])).unwrap();
    session.commit().unwrap();

    let container = tesseral::open(&path).unwrap();
    assert_eq!(container.history(), [row]);
    assert_eq!(container.attributes().get("tool"), Some(&Value::from("test")));
    let array = container.array("sst").unwrap();
    assert_eq!(array.schema().dims[0].labels, labels(&["2015-06-30", "2015-07-01"]));
    assert_eq!((array.schema().dims[1].name.as_str(), array.schema().dims[1].labels.clone()), ("x", None));
    assert_eq!(array.schema().attributes.get("units"), Some(&Value::from("K")));
    let july = array.read(&array.select(["time=@2015-07", "x=1:"]).unwrap()).unwrap();
    assert_eq!(july.as_slice::<f32>().unwrap(), [4.0, 5.0]);
}

/// Parts written by others become regions of one array: copied as stored if the encoding is equal, otherwise re-encoded.
#[test]
fn parts_are_assembled() {
    let folder = tempfile::tempdir().unwrap();
    let spec = |name: &str, shape: &[u64], chunk: &[u64]| {
        ArraySpec::raw(ArraySchema::dense(name, DType::Int32, shape, chunk))
    };
    let cells = |from: i64, to: i64| (from..to).flat_map(|i| number(DType::Int32, i)).collect::<Vec<_>>();
    for (name, chunk, range) in [("top", [2, 3], (0, 24)), ("bottom", [1, 6], (24, 36))] {
        let mut session = begin(&folder.path().join(name).with_extension("tet"));
        let rows = u64::try_from((range.1 - range.0) / 6).unwrap();
        let id = session.add(&spec("part", &[rows, 6], &chunk)).unwrap();
        session.write(id, &cells(range.0, range.1)).unwrap();
        session.commit().unwrap();
    }
    let open = |name: &str| tesseral::open(folder.path().join(name)).unwrap().array_at(0).unwrap();
    let path = folder.path().join("whole.tet");
    let mut session = begin(&path);
    let id = session.add(&spec("whole", &[6, 6], &[2, 3])).unwrap();
    let (upper, lower) = (Region::new([(0, 4), (0, 6)]), Region::new([(4, 6), (0, 6)]));
    assert!(invalid(&session.copy(id, &lower, &open("top.tet")).unwrap_err()), "another shape");
    session.copy(id, &lower, &open("bottom.tet")).unwrap();
    session.copy(id, &upper, &open("top.tet")).unwrap();
    assert!(invalid(&session.copy(id, &upper, &open("top.tet")).unwrap_err()), "twice");
    session.commit().unwrap();
    let whole = open("whole.tet");
    assert_eq!(whole.read(&whole.all().unwrap()).unwrap().bytes(), cells(0, 36));
}
