//! For a fault at any call to the store: an error is returned, and readers see the old or the new state.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use tesseral_conformance::oracle::read_sparse;
use tesseral_core::condition::{Condition, Op};
use tesseral_core::{ArraySchema, DType, Dimension, Field, Result, Scalar, Value};
use tesseral_format::{
    AppendOptions, ArraySpec, Change, ColumnData, Consolidate, CreateOptions, Format, FormatOptions,
    MaintenancePart, OpenOptions, Scratch, Versioned,
};
use tesseral_store::test_wrappers::{Failure, FaultInjection, Wrapped};
use tesseral_store::{MemoryStore, Store, StoreExt};
use tesseral_tiledb::{TileDbCreateOptions, TileDbFormat};

fn ints(values: &[i32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn create(store: Arc<dyn Store>, duplicates: bool) -> Result<()> {
    let mut dim = Dimension::new("x", 0);
    (dim.dtype, dim.extent) = (DType::Int32, Some(100));
    dim.domain = Some((Scalar::from_element(0_i32), Scalar::from_element(99_i32)));
    dim.tile = Some(Scalar::from_element(10_i32));
    let mut schema = ArraySchema::dense("a", DType::Int32, &[], &[]);
    (schema.dims, schema.fields) = (vec![dim], vec![Field::new("v", DType::Int32)]);
    (schema.sparse, schema.allows_duplicates, schema.chunk_shape) = (true, duplicates, None);
    let format = FormatOptions::new(TileDbCreateOptions { capacity: 4, ..Default::default() });
    let options = CreateOptions { empty: true, timestamp: Some(1), format, ..CreateOptions::default() };
    let mut writer = TileDbFormat.create(store, &options)?;
    writer.begin(&ArraySpec::raw(schema))?;
    writer.commit()
}

fn column(values: &[u8]) -> ColumnData<'_> {
    ColumnData::Fixed { values, validity: None }
}

fn append(store: Arc<dyn Store>, x: &[i32], v: &[i32], at: u64) -> Result<()> {
    let options = AppendOptions { timestamp: Some(at), ..AppendOptions::default() };
    let (writer, _) = TileDbFormat.append(store, &options)?;
    let (x, v) = (ints(x), ints(v));
    let keys = writer.cell_keys(0, &[column(&x), column(&v)])?;
    let mut order: Vec<usize> = (0..keys.cells).collect();
    order.sort_by(|&a, &b| keys.compare(a, b));
    for (number, cells) in order.chunks(4).enumerate() {
        let gather =
            |from: &[u8]| -> Vec<u8> { cells.iter().flat_map(|i| from[i * 4..i * 4 + 4].to_vec()).collect() };
        let (x, v) = (gather(&x), gather(&v));
        let columns = [column(&x), column(&v)];
        let chunk = writer.encode(0, &[number as u64], &columns, Vec::new(), &mut Scratch::default())?;
        writer.push(0, chunk)?;
    }
    writer.commit()
}

fn read(store: &Arc<MemoryStore>) -> Vec<(i32, i32)> {
    let container = TileDbFormat.open(store.clone(), &OpenOptions::default()).unwrap();
    let cells = read_sparse(container.as_ref(), 0, &[0], &[Vec::new()]).unwrap();
    let number = |bytes: &[u8]| i32::from_le_bytes(bytes.try_into().unwrap());
    let row = |r: &tesseral_conformance::oracle::Row| {
        (number(&r.coords[0]), number(r.fields[0].as_deref().unwrap()))
    };
    let mut rows: Vec<(i32, i32)> = cells.iter().map(row).collect();
    rows.sort_unstable();
    rows
}

/// An array of three fragments and a delete.
fn made(duplicates: bool) -> Arc<MemoryStore> {
    let store = Arc::new(MemoryStore::new("memory"));
    create(store.clone(), duplicates).unwrap();
    append(store.clone(), &[5, 50, 7, 9, 11], &[1, 2, 3, 4, 5], 10).unwrap();
    append(store.clone(), &[50, 60, 7], &[6, 7, 8], 20).unwrap();
    append(store.clone(), &[7, 1], &[9, 10], 30).unwrap();
    let editor = TileDbFormat.edit(store.clone(), &OpenOptions::default()).unwrap();
    let condition = Condition::Compare { name: "v".into(), op: Op::Eq, value: Scalar::from_element(10_i32) };
    editor.delete(&condition, Some(40)).unwrap();
    store
}

/// Requirements of other readers: a `.vac` file exists only with the commit of its fragment, otherwise they lose cells; and
/// commits name existing fragments.
fn check_commits(store: &MemoryStore) {
    let Ok(entries) = store.list("__commits") else { return };
    let names: Vec<String> = entries.into_iter().map(|e| e.name).collect();
    let lists = names.iter().filter(|n| n.ends_with(".con")).map(|n| format!("__commits/{n}"));
    let listed: String =
        lists.map(|n| String::from_utf8_lossy(&store.read_all(&n, 1 << 20).unwrap()).into_owned()).collect();
    let committed = |stem: &str| names.contains(&format!("{stem}.wrt")) || listed.contains(stem);
    for stem in names.iter().filter_map(|n| n.strip_suffix(".vac")) {
        assert!(committed(stem), "{stem}.vac has no commit in {names:?}");
    }
    for stem in names.iter().filter_map(|n| n.strip_suffix(".wrt")) {
        assert!(store.exists(&format!("__fragments/{stem}/__fragment_metadata.tdb")).unwrap(), "{stem}");
    }
}

/// Edits a new array with a fault at each call once, and with all calls failing from there on; `whole` checks the rows that are
/// read.
fn every_call(
    made: impl Fn() -> Arc<MemoryStore>,
    act: impl Fn(Arc<dyn Store>) -> Result<()>,
    whole: impl Fn(&[(i32, i32)], bool) -> bool,
) {
    for (call, failure) in (0..).flat_map(|call| Failure::ALL.map(|failure| (call, failure))) {
        let inner = made();
        let fault = Arc::new(FaultInjection::with(call, failure));
        let store: Arc<dyn Store> = Arc::new(Wrapped::new(inner.clone(), Arc::clone(&fault)));
        let outcome = act(store);
        let reached = fault.calls() > call;
        let rows = read(&inner);
        check_commits(&inner);
        assert!(whole(&rows, outcome.is_ok()), "{failure:?} at call {call}: {rows:?} after {outcome:?}");
        if !reached {
            outcome.unwrap();
            assert!(call > 3);
            return;
        }
    }
}

#[test]
fn appends_are_atomic() {
    for duplicates in [false, true] {
        let old = read(&made(duplicates));
        let mut new = old.clone();
        new.extend([(70, 1), (71, 2)]);
        new.sort_unstable();
        every_call(
            || made(duplicates),
            |store| append(store, &[71, 70], &[2, 1], 50),
            |rows, ok| rows == new || (!ok && rows == old),
        );
    }
}

#[test]
fn consolidation_and_vacuum_do_not_change_the_content() {
    for duplicates in [false, true] {
        let old = read(&made(duplicates));
        for part in [
            MaintenancePart::Fragments,
            MaintenancePart::Commits,
            MaintenancePart::FragmentMetadata,
            MaintenancePart::Attributes,
        ] {
            let consolidate = |store: Arc<dyn Store>| {
                let editor = TileDbFormat.edit(store, &OpenOptions::default())?;
                editor.set_attributes(&BTreeMap::from([("k".to_owned(), Some(Value::Int(1)))]), Some(5))?;
                editor.set_attributes(&BTreeMap::from([("k".to_owned(), None)]), Some(6))?;
                let done = editor.consolidate(&Consolidate { part, ..Consolidate::default() })?;
                assert_eq!(done.made.len(), 1);
                Ok(())
            };
            every_call(|| made(duplicates), consolidate, |rows, _| rows == old);
            // The same with consolidated commits.
            let listed = || {
                let store = made(duplicates);
                let editor = TileDbFormat.edit(store.clone(), &OpenOptions::default()).unwrap();
                let commits = Consolidate { part: MaintenancePart::Commits, ..Consolidate::default() };
                editor.consolidate(&commits).unwrap();
                editor.vacuum(MaintenancePart::Commits, false).unwrap();
                append(store.clone(), &[90], &[3], 45).unwrap();
                store
            };
            let with = read(&listed());
            every_call(listed, consolidate, |rows, _| rows == with);
            let ready = || {
                let store = made(duplicates);
                consolidate(store.clone()).unwrap();
                store
            };
            every_call(
                ready,
                |store| {
                    let editor = TileDbFormat.edit(store, &OpenOptions::default())?;
                    let listed = editor.vacuum(part, true)?;
                    let done = editor.vacuum(part, false)?;
                    assert_eq!(listed.removed, done.removed);
                    assert!(done.kept.is_empty() && editor.vacuum(part, true)?.removed.is_empty());
                    Ok(())
                },
                |rows, _| rows == old,
            );
        }
    }
}

#[test]
fn fields_are_added_and_removed() {
    let store = made(false);
    let editor = TileDbFormat.edit(store.clone(), &OpenOptions::default()).unwrap();
    let field = Field::new("w", DType::Float64);
    editor.change(&[Change::AddField { field: field.clone(), codecs: Vec::new() }], Some(60)).unwrap();
    assert!(editor.change(&[Change::AddField { field, codecs: Vec::new() }], Some(61)).is_err());
    let container = TileDbFormat.open(store.clone(), &OpenOptions::default()).unwrap();
    assert_eq!(container.array(0).unwrap().schema().fields.len(), 2);
    let old = read(&made(false));
    assert_eq!(read(&store), old);
    editor.consolidate(&Consolidate::default()).unwrap();
    assert_eq!(read(&store), old);
    editor.change(&[Change::DropField { name: "w".into() }], Some(70)).unwrap();
    assert_eq!(read(&store), old);
    assert!(editor.change(&[Change::DropField { name: "v".into() }], Some(71)).is_err());
}
