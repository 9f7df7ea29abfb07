//! Round trips, bit for bit: every dtype, every rank, edge chunks, both codecs, any order of pushes.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use tesseral_core::schema::Labels;
use tesseral_core::{ArraySchema, DType, HistoryRow, Scalar, Value};
use tesseral_format::{
    AuditOptions, Column, ColumnData, CreateOptions, Format, MemoryBudget, OpenOptions, Request, Scratch,
};
use tesseral_store::{MemoryStore, Store, StoreExt};
use tesseral_tet::TetFormat;

const DTYPES: [DType; 10] = [
    DType::Float32,
    DType::Float64,
    DType::Int32,
    DType::Int64,
    DType::UInt8,
    DType::UInt16,
    DType::Int16,
    DType::UInt32,
    DType::Float16,
    DType::UInt64,
];

/// Special values: zeros, NaNs with payloads, negative zeros, extremes.
fn cells(n: usize, size: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut out = Vec::with_capacity(n * size);
    for _ in 0..n {
        let word = match next() % 6 {
            0 => 0,
            1 => u64::MAX,
            2 => 0x8000_8000_8000_8000,
            3 => 0x7ff8_7fc0_7fc0_7e01,
            4 => next() % 5,
            _ => next(),
        };
        out.extend(&word.to_ne_bytes()[..size]);
    }
    out
}

fn array() -> impl Strategy<Value = (usize, Vec<(u64, u64)>, bool, u64)> {
    let dims = prop::collection::vec((1_u64..6, 1_u64..7), 1..=8)
        .prop_filter("few cells", |dims| dims.iter().map(|d| d.0).product::<u64>() <= 600);
    (0..DTYPES.len(), dims, any::<bool>(), any::<u64>())
}

fn input(number: usize, (dtype, dims, zstd, seed): (usize, Vec<(u64, u64)>, bool, u64)) -> common::Input {
    let (shape, chunk): (Vec<u64>, Vec<u64>) = dims.into_iter().unzip();
    let dtype = DTYPES[dtype];
    let schema = ArraySchema::dense(format!("a{number}/é"), dtype, &shape, &chunk);
    let n = shape.iter().product::<u64>() as usize;
    common::Input::new(schema, if zstd { "zstd:1" } else { "raw" }, cells(n, dtype.size().unwrap(), seed))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn arrays_come_back(
        arrays in prop::collection::vec(array(), 0..4),
        digests: bool,
        statistics: bool,
        shuffle in any::<u64>(),
    ) {
        let inputs: Vec<_> = arrays.into_iter().enumerate().map(|(i, a)| input(i, a)).collect();
        let options = CreateOptions { digests, statistics, ..CreateOptions::default() };
        let canonical = common::write(&inputs, &options).unwrap();
        let mixed = common::write_with(&inputs, &options, &[], |chunks| {
            chunks.sort_by_key(|&(i, n)| (n + 7 * i as u64).wrapping_mul(shuffle | 1));
        })
        .unwrap();
        if inputs.iter().all(|i| i.spec.codecs[0][0].name == "raw") {
            prop_assert_eq!(&canonical, &mixed, "raw bytes do not depend on the order of pushes");
        }
        for file in [canonical, mixed] {
            let container = common::open(file.clone()).unwrap();
            prop_assert_eq!(container.len(), inputs.len());
            for (i, input) in inputs.iter().enumerate() {
                prop_assert_eq!(&common::read_flat(&*container, i).unwrap(), &input.flat);
                let array = container.array(container.find(&input.spec.schema.name).unwrap()).unwrap();
                let all = tesseral_core::Selection::all(&array.schema().shape().unwrap());
                let plan = tesseral_format::plan(&*array, container.store(), &Request::cells(all, 0)).unwrap();
                prop_assert!(plan.chunks.iter().all(|c| array.digests(c).is_empty() != digests));
            }
            let mut failed = None;
            let report = TetFormat.audit(common::memory(file.clone()), &AuditOptions::default(), &mut |f| {
                if !f.ok || f.check == "trailing_bytes" || f.check == "reserved_nonzero" {
                    failed = Some(f);
                }
            });
            prop_assert_eq!(failed, None);
            let report = report.unwrap();
            let payload: u64 = container.details()["index"]["entry_count"].as_u64().unwrap();
            prop_assert!(report.covered_bytes + report.uncovered_bytes <= file.len() as u64);
            prop_assert_eq!(report.covered_bytes > 0, digests && payload > 0);
        }
    }
}

#[test]
fn names_labels_attributes_and_history_round_trip() {
    let mut schema = ArraySchema::dense("t", DType::Int32, &[3, 3, 2], &[2, 2, 2]);
    schema.dims[0].name = "time".into();
    schema.dims[1].name = "lat".into();
    schema.dims[0].labels = Some(Labels::Text(vec!["a".into(), "b".into(), "c".into()]));
    let numbers = [1.5_f64, -2.0, 1e300].iter().flat_map(|v| v.to_le_bytes()).collect();
    schema.dims[1].labels = Some(Labels::Numbers { dtype: DType::Float64, bytes: numbers });
    schema.attributes.insert("units".into(), Value::from("K \"µ\"\n"));
    schema.attributes.insert("scale".into(), Value::Float(0.5));
    schema.fields[0].missing = vec![Scalar::from_element(-7_i32), Scalar::from_element(9_i32)];
    let row = HistoryRow {
        op: "convert".into(),
        source: "x.nc".into(),
        at: "1700000000".into(),
        parents: vec!["p".into()],
        params: BTreeMap::from([("k".into(), "v".into())]),
        extra: BTreeMap::from([("agent".into(), "me".into())]),
    };
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("x.tet"));
    let budget = Some(MemoryBudget::BasisPoints(1250));
    let options = CreateOptions { memory_budget: budget, ..CreateOptions::default() };
    let mut writer = TetFormat.create(Arc::clone(&store), &options).unwrap();
    writer.set_attributes([("tool".to_owned(), Value::from("test"))].into()).unwrap();
    writer.add_history(row.clone()).unwrap();
    let flat = (0..18_i32).flat_map(|v| v.to_ne_bytes()).collect();
    common::push_all(&mut *writer, &[common::Input::new(schema, "zstd", flat)], |_| {}).unwrap();
    writer.commit().unwrap();

    let container = TetFormat.open(store, &OpenOptions::default()).unwrap();
    assert_eq!(container.history(), [row]);
    assert_eq!(container.attributes()["tool"], Value::from("test"));
    assert_eq!(container.memory_budget(), budget);
    let array = container.array(0).unwrap();
    let schema = array.schema();
    let names: Vec<_> = schema.dims.iter().map(|d| d.name.as_str()).collect();
    assert_eq!(names, ["time", "lat", "2"], "an unnamed dimension among named ones takes its number");
    let label = |d: usize, i: usize| schema.dims[d].labels.as_ref().unwrap().get(i).unwrap().to_string();
    assert_eq!((label(0, 2), label(1, 0), label(1, 2)), ("c".into(), "1.5".into(), "1e300".into()));
    assert_eq!(schema.dims[2].labels, None);
    assert_eq!(schema.attributes["units"], Value::from("K \"µ\"\n"));
    assert_eq!(schema.attributes["scale"], Value::from("0.5"));
    assert_eq!(schema.fields[0].missing, [Scalar::from_element(-7_i32), Scalar::from_element(9_i32)]);
    assert_eq!(schema.fields[0].codecs, ["zstd"]);
}

#[test]
fn long_metadata_goes_to_a_spill() {
    for (count, spilled) in [(10, false), (63, false), (64, true)] {
        let mut schema = ArraySchema::dense("t", DType::UInt8, &[2], &[1]);
        for i in 0..count {
            schema.attributes.insert(format!("{i:03}"), Value::from("x".repeat(1024)));
        }
        let input = common::Input::new(schema.clone(), "raw", vec![1, 2]);
        let file = common::write(&[input], &CreateOptions::default()).unwrap();
        let container = common::open(file.clone()).unwrap();
        assert_eq!(container.details()["footer"]["metadata_ref"].is_object(), spilled, "{count}");
        assert_eq!(container.array(0).unwrap().schema().attributes, schema.attributes);
        if spilled {
            let at = container.details()["footer"]["metadata_ref"]["offset"].as_u64().unwrap() as usize;
            let mut flipped = file;
            flipped[at + 40] ^= 1;
            assert!(common::open(flipped).unwrap_err().is_damage(), "the digest covers the spill");
        }
    }
}

#[test]
fn more_labels_than_the_reference_supports_round_trip() {
    let mut schema = ArraySchema::dense("t", DType::UInt8, &[1000], &[100]);
    schema.dims[0].labels = Some(Labels::Text((0..1000).map(|i| format!("l{i}")).collect()));
    let input = common::Input::new(schema.clone(), "raw", vec![0; 1000]);
    let container = common::open(common::write(&[input], &common::plain()).unwrap()).unwrap();
    assert_eq!(container.array(0).unwrap().schema().dims[0].labels, schema.dims[0].labels);
}

#[test]
fn concurrent_pushes_are_supported() {
    let schema = ArraySchema::dense("t", DType::UInt16, &[64, 64], &[8, 8]);
    for codec in ["raw", "zstd"] {
        let flat: Vec<u8> = cells(64 * 64, 2, 5);
        let input = common::Input::new(schema.clone(), codec, flat.clone());
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new("x.tet"));
        let mut writer = TetFormat.create(Arc::clone(&store), &CreateOptions::default()).unwrap();
        writer.begin(&input.spec).unwrap();
        let grid = schema.grid().unwrap();
        std::thread::scope(|scope| {
            for t in 0..4 {
                let (writer, grid, flat) = (&writer, &grid, &flat);
                scope.spawn(move || {
                    let mut scratch = Scratch::default();
                    for n in (t..grid.total()).step_by(4).collect::<Vec<_>>().into_iter().rev() {
                        let coords = grid.coords(n);
                        let tile = common::tile(flat, grid, &coords, 2);
                        let column = ColumnData::Fixed { values: &tile, validity: None };
                        let chunk = writer.encode(0, &coords, &[column], Vec::new(), &mut scratch).unwrap();
                        writer.push(0, chunk).unwrap();
                    }
                });
            }
        });
        writer.commit().unwrap();
        let written = store.read_all("", u64::MAX).unwrap();
        let container = common::open(written.clone()).unwrap();
        assert_eq!(common::read_flat(&*container, 0).unwrap(), flat);
        if codec == "raw" {
            let alone = common::write(&[input], &CreateOptions::default()).unwrap();
            assert_eq!(written, alone);
        }
    }
}

#[test]
fn no_flipped_bit_changes_a_number_silently() {
    let mut schema = ArraySchema::dense("t", DType::Float32, &[5, 3], &[2, 2]);
    schema.attributes.insert("units".into(), Value::from("K"));
    let inputs = [
        common::Input::new(schema, "raw", cells(15, 4, 3)),
        common::Input::new(ArraySchema::dense("z", DType::UInt8, &[40], &[16]), "zstd", cells(40, 1, 4)),
    ];
    let options = CreateOptions { statistics: true, ..CreateOptions::default() };
    let file = common::write(&inputs, &options).unwrap();
    let footer = common::open(file.clone()).unwrap().details()["footer"].clone();
    let json = footer["json_offset"].as_u64().unwrap() as usize;
    // A damaged key name is an unknown key; the digests are then found by their offset.
    let key = file.windows(11).position(|w| w == b"digests_ref").unwrap();
    let key = key..key + 11;
    for byte in 0..file.len() {
        for bit in [0, 7] {
            let mut flipped = file.clone();
            flipped[byte] ^= 1 << bit;
            let Ok(container) = common::open(flipped) else { continue };
            for (i, input) in inputs.iter().enumerate() {
                if let Ok(read) = common::read_flat(&*container, i) {
                    assert_eq!(read, input.flat, "undetected flip of bit {bit} of byte {byte} in array {i}");
                    // Statistics come from a text with its own digest.
                    let array = container.array(i).unwrap();
                    let all = tesseral_core::Selection::all(&array.schema().shape().unwrap());
                    for chunk in tesseral_format::plan(&*array, container.store(), &Request::cells(all, 0))
                        .unwrap()
                        .chunks
                    {
                        let stats = array.stats(&chunk, Column::Field(0));
                        assert_eq!(stats.cells, chunk.cells);
                    }
                }
            }
            let covered = (json..file.len() - 16).contains(&byte) && !key.contains(&byte);
            assert!(!covered, "undetected flip of bit {bit} of byte {byte} of the footer");
        }
    }
}

#[test]
fn unsupported_schemas_are_rejected() {
    use tesseral_core::ErrorKind::{InvalidRequest, Limit, Unsupported};
    let fresh = || TetFormat.create(Arc::new(MemoryStore::new("x.tet")), &CreateOptions::default()).unwrap();
    let spec = |change: &dyn Fn(&mut ArraySchema)| {
        let mut schema = ArraySchema::dense("a", DType::Int32, &[4], &[2]);
        change(&mut schema);
        common::Input::new(schema, "raw", Vec::new()).spec
    };
    let unsupported: [&dyn Fn(&mut ArraySchema); 11] = [
        &|s| s.fields[0].dtype = DType::Int8,
        &|s| s.fields[0].dtype = DType::Complex64,
        &|s| s.fields[0].nullable = true,
        &|s| s.fields[0].cell = tesseral_core::CellLen::Var,
        &|s| s.sparse = true,
        &|s| s.cell_order = tesseral_core::Order::ColMajor,
        &|s| s.fields.push(s.fields[0].clone()),
        &|s| *s = ArraySchema::dense("a", DType::Int32, &[], &[]),
        &|s| *s = ArraySchema::dense("a", DType::Int32, &[1; 9], &[1; 9]),
        &|s| *s = ArraySchema::dense("a", DType::Int32, &[0], &[1]),
        &|s| drop(s.attributes.insert("m".into(), Value::Bytes(vec![1]))),
    ];
    for (i, change) in unsupported.iter().enumerate() {
        let error = fresh().begin(&spec(change)).unwrap_err();
        assert!(matches!(error.kind(), Unsupported { .. }), "{i}: {error:?}");
    }
    let invalid: [&dyn Fn(&mut ArraySchema); 6] = [
        &|s| s.name.clear(),
        &|s| s.chunk_shape = None,
        &|s| *s = ArraySchema::dense("a", DType::Int32, &[4], &[0]),
        &|s| *s = ArraySchema::dense("a", DType::Int32, &[u64::MAX, u64::MAX], &[1, 1]),
        &|s| drop(s.attributes.insert("m".into(), Value::from(""))),
        &|s| s.dims[0].labels = Some(Labels::Text(vec!["only one".into()])),
    ];
    for (i, change) in invalid.iter().enumerate() {
        let error = fresh().begin(&spec(change)).unwrap_err();
        assert!(matches!(error.kind(), InvalidRequest { .. }), "{i}: {error:?}");
    }
    let limits: [&dyn Fn(&mut ArraySchema); 2] = [&|s| s.name = "n".repeat(1025), &|s| {
        drop(s.attributes.insert("m".into(), Value::from("v".repeat(1025))))
    }];
    for (i, change) in limits.iter().enumerate() {
        let error = fresh().begin(&spec(change)).unwrap_err();
        assert!(matches!(error.kind(), Limit { asked: 1025, allowed: 1024, .. }), "{i}: {error:?}");
    }

    let mut writer = fresh();
    writer.begin(&spec(&|_| {})).unwrap();
    assert!(
        matches!(writer.begin(&spec(&|_| {})).unwrap_err().kind(), InvalidRequest { .. }),
        "duplicate name"
    );
    let unknown = writer.set_attributes([("title".to_owned(), Value::from("x"))].into()).unwrap_err();
    assert!(matches!(unknown.kind(), Unsupported { .. }));
    let mut row =
        HistoryRow { op: "write".into(), source: "s".into(), at: "0".into(), ..HistoryRow::default() };
    row.extra.insert("mood".into(), "x".into());
    assert!(matches!(writer.add_history(row).unwrap_err().kind(), Unsupported { .. }));
    let mut bad_codec = spec(&|s| s.name = "b".into());
    bad_codec.codecs[0][0].name = "lz4".into();
    assert!(matches!(writer.begin(&bad_codec).unwrap_err().kind(), Unsupported { .. }));

    // Chunks: out of bounds, of the wrong length, duplicate, missing.
    let mut scratch = Scratch::default();
    let values = [0; 8];
    let column = ColumnData::Fixed { values: &values, validity: None };
    assert!(writer.encode(0, &[2], &[column], Vec::new(), &mut scratch).is_err());
    let short = ColumnData::Fixed { values: &values[..4], validity: None };
    assert!(writer.encode(0, &[0], &[short], Vec::new(), &mut scratch).is_err());
    let null = ColumnData::Fixed { values: &values, validity: Some(&[1, 0]) };
    let error = writer.encode(0, &[0], &[null], Vec::new(), &mut scratch).unwrap_err();
    assert!(matches!(error.kind(), Unsupported { .. }));
    let chunk = writer.encode(0, &[0], &[column], Vec::new(), &mut scratch).unwrap();
    writer.push(0, chunk.clone()).unwrap();
    let error = writer.push(0, chunk).unwrap_err();
    assert_eq!((error.array(), error.chunk()), (Some("a"), Some(&[0][..])));
    assert!(writer.begin(&spec(&|s| s.name = "late".into())).is_err());
    let error = writer.commit().unwrap_err();
    assert!(matches!(error.kind(), InvalidRequest { .. }));
    assert_eq!((error.array(), error.chunk()), (Some("a"), Some(&[1][..])), "the missing chunk is named");
}
