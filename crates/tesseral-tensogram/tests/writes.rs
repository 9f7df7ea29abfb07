//! The writer passes the conformance suite and applies its options.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;

use tesseral_conformance::{Effort, WriteCase, write_suite};
use tesseral_core::schema::{Field, Labels};
use tesseral_core::{ArraySchema, DType, ErrorKind, HistoryRow, Scalar, Value};
use tesseral_format::{
    ArraySpec, CodecSpec, ColumnData, CreateOptions, Format, OpenOptions, Request, Scratch,
};
use tesseral_store::{MemoryStore, Store, StoreExt};
use tesseral_tensogram::TensogramFormat;

fn codecs(names: &[&str]) -> Vec<CodecSpec> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

#[test]
fn the_writer_passes_the_suite() {
    for seed in 0..6 {
        let mut specs = Vec::new();
        for (i, (dtype, stages)) in [
            (DType::Float32, &[][..]),
            (DType::Float64, &["shuffle", "zstd:5"]),
            (DType::Int16, &["szip"]),
            (DType::UInt32, &["lz4"]),
            (DType::Complex64, &["zstd"]),
            (DType::Float16, &["shuffle", "szip"]),
            (DType::BFloat16, &[]),
            (DType::Bitmask, &["roaring"]),
            (DType::Bitmask, &["rle"]),
            (DType::Bitmask, &[]),
            (DType::Complex128, &["shuffle", "lz4"]),
            (DType::Int32, &["blosc2"]),
            (DType::Complex64, &["blosc2:1"]),
            (DType::UInt16, &["shuffle", "blosc2:9"]),
        ]
        .into_iter()
        .enumerate()
        {
            let name = format!("array {i}");
            let mut spec = ArraySpec::raw(ArraySchema::dense(name, dtype, &[5, 7], &[2, 3]));
            spec.codecs[0] = codecs(stages);
            specs.push(spec);
        }
        specs.push(ArraySpec::raw(ArraySchema::dense("scalar", DType::UInt8, &[], &[])));
        specs.push(ArraySpec::raw(ArraySchema::dense("empty", DType::Float64, &[0, 3], &[2, 2])));
        let mut case = WriteCase::new(specs, seed);
        case.options.digests = seed % 2 == 0;
        // Objects are collected in memory or spooled in the file.
        case.options.work_space = (seed % 3 != 0).then_some(0);
        case.effort = Effort { selections: 2, chunks: 2, damages: 2 };
        write_suite(&TensogramFormat, &case).unwrap_or_else(|violation| panic!("{violation}"));
    }
}

fn write(specs: &[(ArraySpec, Vec<u8>)], options: &CreateOptions) -> tesseral_core::Result<Arc<dyn Store>> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("out.tgm"));
    let mut writer = TensogramFormat.create(Arc::clone(&store), options)?;
    for (spec, _) in specs {
        writer.begin(spec)?;
    }
    for (number, (spec, cells)) in specs.iter().enumerate() {
        let column = ColumnData::Fixed { values: cells, validity: None };
        let first = spec.schema.grid()?.coords(0);
        let chunk = writer.encode(number, &first, &[column], Vec::new(), &mut Scratch::default())?;
        writer.push(number, chunk)?;
    }
    writer.commit()?;
    Ok(store)
}

#[test]
fn parts_are_messages() {
    for work_space in [None, Some(0)] {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new("out.tgm"));
        let options = CreateOptions { work_space, ..CreateOptions::default() };
        let mut writer = TensogramFormat.create(Arc::clone(&store), &options).unwrap();
        // Objects of lengths that need padding, and a message without objects.
        let lengths: [&[u64]; 4] = [&[700, 3], &[5], &[], &[4000, 1, 9]];
        for (number, lengths) in lengths.iter().enumerate() {
            for (object, len) in lengths.iter().enumerate() {
                let spec = ArraySpec::raw(ArraySchema::dense("", DType::UInt8, &[*len], &[*len]));
                assert_eq!(writer.begin(&spec).unwrap(), object, "objects of a message are numbered from 0");
            }
            let title = Value::from(format!("message {number}"));
            writer.set_attributes([("title".to_owned(), title)].into()).unwrap();
            writer.add_history(HistoryRow { op: format!("op {number}"), ..HistoryRow::default() }).unwrap();
            for (object, len) in lengths.iter().enumerate() {
                let cells = vec![number as u8 + 1; *len as usize];
                let column = ColumnData::Fixed { values: &cells, validity: None };
                let chunk = writer.encode(object, &[0], &[column], Vec::new(), &mut Scratch::default());
                writer.push(object, chunk.unwrap()).unwrap();
            }
            writer.finish_part().unwrap();
        }
        writer.commit().unwrap();
        let mut failed = Vec::new();
        let report = &mut |f: tesseral_core::Finding| failed.extend((!f.ok).then_some(f));
        TensogramFormat.audit(Arc::clone(&store), &Default::default(), report).unwrap();
        assert!(failed.is_empty(), "{failed:?}");
        let container = TensogramFormat.open(Arc::clone(&store), &OpenOptions::default()).unwrap();
        assert_eq!((container.parts(), container.len()), (4, 6));
        for (number, lengths) in lengths.iter().enumerate() {
            let part = container.part(number).unwrap();
            assert_eq!(part.arrays.len(), lengths.len());
            assert_eq!(part.attributes["title"], Value::from(format!("message {number}")));
            assert_eq!(
                part.history.iter().map(|row| row.op.as_str()).collect::<Vec<_>>(),
                [format!("op {number}")]
            );
            for (index, len) in part.arrays.zip(*lengths) {
                let array = container.array(index).unwrap();
                assert_eq!(array.schema().shape().unwrap()[..], [*len]);
                let request = Request::cells(tesseral_core::Selection::all(&[*len]), 0);
                let plan = tesseral_format::plan(&*array, &store, &request).unwrap();
                let part = plan.chunks[0].parts[0];
                let stored = store.read("", part.offset..part.offset + part.len).unwrap();
                assert_eq!(stored, vec![number as u8 + 1; *len as usize]);
            }
        }
        assert!(container.part(4).is_err());
    }
}

#[test]
fn a_part_with_a_missing_chunk_is_rejected() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("out.tgm"));
    let mut writer = TensogramFormat.create(Arc::clone(&store), &CreateOptions::default()).unwrap();
    writer.begin(&ArraySpec::raw(ArraySchema::dense("", DType::UInt8, &[4], &[2]))).unwrap();
    let error = writer.finish_part().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidRequest { .. }), "{error}");
}

/// Lengths that need one more pass over the index than the reference makes.
#[test]
fn the_index_reaches_its_fixed_point() {
    let one =
        |n: u64| (ArraySpec::raw(ArraySchema::dense("0/0", DType::UInt8, &[n], &[n])), vec![1; n as usize]);
    let specs = [one(64_776), one(1), one(1), one(1)];
    let store = write(&specs, &CreateOptions::default()).unwrap();
    let container = TensogramFormat.open(Arc::clone(&store), &OpenOptions::default()).unwrap();
    assert_eq!(container.len(), 4);
    let mut failed = Vec::new();
    let report = &mut |finding: tesseral_core::Finding| {
        if !finding.ok || finding.severity != tesseral_core::Severity::Info {
            failed.push(finding);
        }
    };
    TensogramFormat.audit(store, &Default::default(), report).unwrap();
    assert!(failed.is_empty(), "{failed:?}");
    // Around every offset that needs one more byte.
    for n in (65_536 - 1100..65_536).step_by(8) {
        let store = write(&[one(n), one(1), one(1)], &CreateOptions::default()).unwrap();
        let mut failed = 0;
        TensogramFormat.audit(store, &Default::default(), &mut |f| failed += u64::from(!f.ok)).unwrap();
        assert_eq!(failed, 0, "{n}");
    }
}

#[test]
fn spooled_objects_have_the_same_bytes() {
    let pushed = |spec: &ArraySpec, cells: &[f64], work_space: Option<u64>| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new("out.tgm"));
        let options = CreateOptions { work_space, ..CreateOptions::default() };
        let mut writer = TensogramFormat.create(Arc::clone(&store), &options)?;
        writer.begin(spec)?;
        assert_eq!(writer.buffered_bytes(0) == 0, work_space.is_some());
        let grid = spec.schema.grid()?;
        // Reverse order: the order of chunks does not matter.
        for number in (0..grid.total()).rev() {
            let coords = grid.coords(number);
            let region = grid.region(&coords);
            let rows = region.start(0)..region.end(0);
            let row = |r: u64| (region.start(1)..region.end(1)).map(move |c| (r * 900 + c) as usize);
            let part: Vec<u8> = rows.flat_map(row).flat_map(|i| cells[i].to_ne_bytes()).collect();
            let column = ColumnData::Fixed { values: &part, validity: None };
            let chunk = writer.encode(0, &coords, &[column], Vec::new(), &mut Scratch::default())?;
            writer.push(0, chunk)?;
        }
        writer.commit()?;
        store.read("", 0..store.len("")?)
    };
    let plain: Vec<f64> =
        (0..900_000_u32).map(|i| f64::from(i.wrapping_mul(40_503) % 1000) - 500.0).collect();
    let mut masked = plain.clone();
    (masked[7], masked[899_999], masked[600_000]) = (f64::NAN, f64::INFINITY, f64::NEG_INFINITY);
    let mut odd = plain.clone();
    odd[3] = f64::from_bits(0x7ff8_0000_0000_0007);
    // Compressed in frames, which noise divides at no cost.
    let noise: Vec<f64> =
        (0..900_000_u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / 1e15).collect();
    let mut masked_noise = noise.clone();
    masked_noise[150_000] = f64::NAN;
    for (cells, stages, chunk) in [
        (&plain, &[][..], [100, 900]),
        (&masked, &[], [64, 70]),
        (&odd, &["zstd:1"], [1000, 900]),
        (&masked, &["zstd"], [333, 450]),
        (&plain, &["simple_packing:10"], [100, 900]),
        (&plain, &["simple_packing:13", "zstd"], [999, 899]),
        (&noise, &["zstd:1"], [100, 900]),
        (&masked_noise, &["zstd"], [333, 450]),
    ] {
        let mut spec = ArraySpec::raw(ArraySchema::dense("a", DType::Float64, &[1000, 900], &chunk));
        spec.codecs[0] = codecs(stages);
        let whole = pushed(&spec, cells, None).unwrap();
        assert!(whole == pushed(&spec, cells, Some(0)).unwrap(), "{stages:?} {chunk:?}");
        let frames = whole.windows(4).filter(|w| *w == [0x28, 0xb5, 0x2f, 0xfd]).count();
        assert_eq!(
            frames > 1,
            std::ptr::eq(cells, &raw const noise) || std::ptr::eq(cells, &raw const masked_noise)
        );
    }
    // Packing of non-finite cells is rejected either way.
    let mut spec = ArraySpec::raw(ArraySchema::dense("a", DType::Float64, &[1000, 900], &[100, 900]));
    spec.codecs[0] = codecs(&["simple_packing:10"]);
    assert!(pushed(&spec, &masked, None).is_err() && pushed(&spec, &masked, Some(0)).is_err());
}

#[test]
fn masks_are_stored_by_the_requested_method() {
    let cells: Vec<u8> = (0..5000_u32)
        .flat_map(|i| [f64::from(i), f64::NAN, f64::INFINITY][(i % 97 % 3) as usize].to_ne_bytes())
        .collect();
    let spec = ArraySpec::raw(ArraySchema::dense("a", DType::Float64, &[5000], &[5000]));
    let write_with = |extra: &[(&str, &str)]| {
        let extra = extra.iter().map(|(key, value)| ((*key).to_owned(), Value::from(*value))).collect();
        let format = TensogramFormat.create_options().parse(&extra)?;
        write(&[(spec.clone(), cells.clone())], &CreateOptions { format, ..CreateOptions::default() })
    };
    for method in ["none", "rle", "roaring", "lz4", "zstd", "blosc2"] {
        let store = write_with(&[("mask_method", method), ("pos_inf_mask_method", "rle")]).unwrap();
        let message = store.read_all("", 1 << 20).unwrap();
        let (_, objects) = tesseral_tensogram::decode(&message, &Default::default()).unwrap();
        let stored: Vec<&str> = objects[0].0.masks.iter().map(|mask| &mask.method[..]).collect();
        assert_eq!(stored, [method, "rle"]);
        assert_eq!(objects[0].1, cells);
    }
    let refused = write_with(&[("nan_mask_method", "gzip")]).unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::InvalidRequest { .. }));
}

#[test]
fn names_dimensions_and_attributes_round_trip() {
    let mut schema = ArraySchema::dense("t2m", DType::Float32, &[2, 3], &[2, 3]);
    schema.dims[0].name = "time".to_owned();
    schema.dims[1].labels = Some(Labels::Text(["a", "b", "c"].map(str::to_owned).to_vec()));
    schema.fields[0].missing = vec![Scalar::from_element(-9999.5_f32), Scalar::from_element(f32::NAN)];
    schema.attributes.insert("units".to_owned(), Value::from("K"));
    schema
        .attributes
        .insert("n".to_owned(), Value::Numbers { dtype: DType::Int16, bytes: vec![1, 0, 0xff, 0xff] });
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("out.tgm"));
    let mut writer = TensogramFormat.create(Arc::clone(&store), &CreateOptions::default()).unwrap();
    writer.begin(&ArraySpec::raw(schema.clone())).unwrap();
    let column = ColumnData::Fixed { values: &[0; 24], validity: None };
    let chunk = writer.encode(0, &[0, 0], &[column], Vec::new(), &mut Scratch::default()).unwrap();
    writer.push(0, chunk).unwrap();
    writer.set_attributes([("title".to_owned(), Value::from("x"))].into()).unwrap();
    let row = HistoryRow {
        op: "write".to_owned(),
        at: "1".to_owned(),
        parents: vec!["p".to_owned()],
        ..Default::default()
    };
    writer.add_history(row.clone()).unwrap();
    writer.commit().unwrap();
    let container = TensogramFormat.open(store, &OpenOptions::default()).unwrap();
    assert_eq!(container.history(), [row]);
    assert_eq!(container.attributes().keys().collect::<Vec<_>>(), ["title"]);
    let array = container.array(container.find("t2m").unwrap()).unwrap();
    let back = array.schema();
    assert_eq!(back.dims[0].name, "time");
    assert_eq!(back.dims[1].labels, schema.dims[1].labels);
    assert_eq!(back.fields[0].missing, schema.fields[0].missing);
    assert_eq!(back.attributes["units"], Value::from("K"));
    assert_eq!(back.attributes["n"], Value::List(vec![Value::Int(1), Value::Int(-1)]));
}

#[test]
fn bits_of_nan_survive() {
    let odd = [f64::from_bits(0x7ff8_0000_0000_0001), -f64::NAN, f64::INFINITY, -0.0, 1.0];
    let canonical = [f64::from_bits(0x7ff8 << 48), f64::NEG_INFINITY, f64::INFINITY, -0.0, 1.0];
    for values in [odd, canonical] {
        let cells: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
        let spec = ArraySpec::raw(ArraySchema::dense("0/0", DType::Float64, &[5], &[5]));
        let store = write(&[(spec, cells.clone())], &CreateOptions::default()).unwrap();
        let container = TensogramFormat.open(store, &OpenOptions::default()).unwrap();
        let all = tesseral_core::Selection::all(&[5]);
        let read = tesseral_conformance::oracle::read_dense(container.as_ref(), 0, 0, &all).unwrap();
        assert_eq!(read, tesseral_conformance::oracle::Cells::Fixed { values: cells, validity: None });
        let array = container.array(0).unwrap();
        let plan = tesseral_format::plan(&*array, container.store(), &Request::cells(all, 0)).unwrap();
        let masked = plan.chunks[0].parts.len() > 1;
        assert_eq!(masked, values[0].to_bits() == canonical[0].to_bits());
    }
}

#[test]
fn unsupported_schemas_are_rejected() {
    let begin = |schema: ArraySchema, stages: &[&str]| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new("out.tgm"));
        let mut writer = TensogramFormat.create(Arc::clone(&store), &CreateOptions::default()).unwrap();
        let mut spec = ArraySpec::raw(schema);
        spec.codecs[0] = codecs(stages);
        let outcome = writer.begin(&spec);
        drop(writer);
        assert!(!store.exists("").unwrap());
        outcome
    };
    let dense = |dtype| ArraySchema::dense("0/0", dtype, &[4], &[4]);
    let mut nullable = dense(DType::Int8);
    nullable.fields[0].nullable = true;
    let mut two = dense(DType::Int8);
    two.fields.push(Field::new("b", DType::Int8));
    let mut sparse = dense(DType::Int8);
    sparse.sparse = true;
    for (schema, stages) in [
        (dense(DType::Bool), &[][..]),
        (dense(DType::Utf8), &[]),
        (nullable, &[]),
        (two, &[]),
        (sparse, &[]),
        (dense(DType::Int32), &["simple_packing"]),
        (dense(DType::Float64), &["simple_packing:12", "szip"]),
        (dense(DType::Float64), &["szip"]),
        (dense(DType::Float32), &["rle"]),
        (dense(DType::Float32), &["zstd", "shuffle"]),
        (dense(DType::Bitmask), &["blosc2"]),
        (dense(DType::Float32), &["lerc"]),
    ] {
        let error = begin(schema, stages).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Unsupported { .. }), "{stages:?}: {error}");
    }
    let mut reserved = dense(DType::Int8);
    reserved.attributes.insert("_reserved_".to_owned(), Value::Null);
    let error = begin(reserved, &[]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::InvalidRequest { .. }), "{error}");
}

/// Cells of float64: all finite, or with NaN near the end.
fn doubles(count: u64, special: bool) -> Vec<u8> {
    let value = |i: u64| if special && i + 7 == count { f64::NAN } else { i as f64 * 0.5 };
    (0..count).flat_map(|i| value(i).to_ne_bytes()).collect()
}

/// Writes an array of 12×40×50 cells by chunks in the given order, or all at once; returns the file.
fn file(chunk: &[u64], codec: &[&str], cells: &[u8], order: Option<&[u64]>) -> Vec<u8> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("a.tgm"));
    let mut writer = TensogramFormat.create(Arc::clone(&store), &CreateOptions::default()).unwrap();
    let schema = ArraySchema::dense("a", DType::Float64, &[12, 40, 50], chunk);
    let grid = schema.grid().unwrap().counted().unwrap();
    let array = writer.begin(&ArraySpec { schema, codecs: vec![codecs(codec)], text: None }).unwrap();
    match order {
        None => assert!(writer.push_all(array, cells, 2).unwrap()),
        Some(order) => {
            for &number in order {
                let coords = grid.coords(number);
                let region = grid.region(&coords);
                let cell = |i: u64, j: u64, k: u64| ((i * 40 + j) * 50 + k) as usize * 8;
                let mut values = Vec::new();
                for i in region.start(0)..region.end(0) {
                    for j in region.start(1)..region.end(1) {
                        values.extend_from_slice(
                            &cells[cell(i, j, region.start(2))..][..region.extent(2) as usize * 8],
                        );
                    }
                }
                let column = ColumnData::Fixed { values: &values, validity: None };
                let chunk =
                    writer.encode(array, &coords, &[column], Vec::new(), &mut Scratch::default()).unwrap();
                writer.push(array, chunk).unwrap();
            }
        }
    }
    writer.commit().unwrap();
    store.read_all("", u64::MAX).unwrap().to_vec()
}

#[test]
fn files_do_not_depend_on_how_cells_arrive() {
    for special in [false, true] {
        let cells = doubles(12 * 40 * 50, special);
        for codec in [&[][..], &["zstd"]] {
            // Chunks that are not contiguous are collected.
            let collected = file(&[12, 20, 50], codec, &cells, Some(&[1, 0]));
            assert_eq!(file(&[12, 20, 50], codec, &cells, None), collected);
            for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [0, 3, 1, 2]] {
                assert_eq!(file(&[3, 40, 50], codec, &cells, Some(&order)), collected, "{special} {order:?}");
            }
        }
    }
}

#[test]
fn chunks_that_are_written_as_they_arrive_are_counted() {
    let cells = doubles(6 * 50, false);
    let columns = [ColumnData::Fixed { values: &cells, validity: None }];
    let begin = |arrays: usize| {
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new("a.tgm"));
        let mut writer = TensogramFormat.create(Arc::clone(&store), &CreateOptions::default()).unwrap();
        for number in 0..arrays {
            let schema = ArraySchema::dense(format!("a{number}"), DType::Float64, &[12, 50], &[6, 50]);
            writer.begin(&ArraySpec::raw(schema)).unwrap();
        }
        (store, writer)
    };
    let push = |writer: &dyn tesseral_format::Writer, array: usize, chunk: u64| {
        let chunk = writer.encode(array, &[chunk, 0], &columns, Vec::new(), &mut Scratch::default())?;
        writer.push(array, chunk)
    };
    let (_, writer) = begin(1);
    push(&*writer, 0, 1).unwrap();
    assert!(matches!(push(&*writer, 0, 1).unwrap_err().kind(), ErrorKind::InvalidRequest { .. }));
    assert!(!writer.push_all(0, &[cells.clone(), cells.clone()].concat(), 2).unwrap());
    let missing = writer.commit().unwrap_err();
    assert_eq!(missing.chunk(), Some(&[0, 0][..]), "{missing}");
    // Objects whose chunks alternate have the bytes of those written one after another.
    let written = |order: &[(usize, u64)]| {
        let (store, writer) = begin(3);
        order.iter().for_each(|(array, chunk)| push(&*writer, *array, *chunk).unwrap());
        writer.commit().unwrap();
        store.read_all("", u64::MAX).unwrap()
    };
    let expected = written(&[(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]);
    assert_eq!(written(&[(2, 0), (0, 1), (1, 0), (0, 0), (1, 1), (2, 1)]), expected);
    assert_eq!(written(&[(0, 1), (2, 1), (2, 0), (1, 0), (1, 1), (0, 0)]), expected);
}
