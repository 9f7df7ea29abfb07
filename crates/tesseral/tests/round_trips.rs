//! Opening and reading over a network takes few dependent round trips, for any number of chunks.
#![cfg(feature = "remote")]
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;

use common::Case;
use tesseral::store::{RemoteStore, Store, StoreExt};
use tesseral::{Append, ArrayId, ArraySpec, Create, DType, Open, Overwrite, Region, Selection, Slice};

const SHAPE: [u64; 2] = [640, 200];

/// An array of 64 chunks.
fn case() -> Case {
    Case::counting(DType::UInt32, &SHAPE, &[10, 200], "zstd")
}

fn create(path: &Path, format: &str, case: &Case) {
    let codecs = vec![vec!["zstd".parse().unwrap()]];
    let mut session = Create::new().begin(path, format).unwrap();
    let id = session.add(&ArraySpec { codecs, ..case.spec("x") }).unwrap();
    session.write(id, &case.cells).unwrap();
    session.commit().unwrap();
}

fn put(store: &RemoteStore, path: &Path, object: &str) {
    if path.is_file() {
        return store.put(object, &fs::read(path).unwrap(), Overwrite::Refuse).unwrap();
    }
    for entry in fs::read_dir(path).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        put(store, &entry.path(), &if object.is_empty() { name } else { format!("{object}/{name}") });
    }
}

/// Round trips of opening and of planning a window, before its cells are requested together; compares its cells and all cells.
fn rounds(path: &Path, case: &Case) -> (u64, u64) {
    let client = Arc::new(object_store::memory::InMemory::new());
    let open = || RemoteStore::with_client("remote", client.clone(), "data/set").unwrap();
    put(&open(), path, "");
    let store = Arc::new(open());
    let array = Open::new().open_store(Arc::clone(&store) as Arc<dyn Store>).unwrap().array_at(0).unwrap();
    let opened = store.traffic().rounds;
    let window = Selection::new([Slice::new(100, 500), Slice::new(3, 50)], &SHAPE).unwrap();
    array.explain(&window).unwrap();
    let planned = store.traffic().rounds;
    let cells = array.read(&window).unwrap();
    let row = |y: u64| (y * SHAPE[1] + 3) as usize * 4;
    let expected: Vec<u8> = (100..500).flat_map(|y| case.cells[row(y)..row(y) + 47 * 4].to_vec()).collect();
    assert_eq!(cells.bytes(), expected);
    assert_eq!(array.read(&Selection::all(&SHAPE)).unwrap().bytes(), case.cells);
    (opened, planned - opened)
}

#[test]
fn opening_takes_few_round_trips() {
    let folder = tempfile::tempdir().unwrap();
    let case = case();
    let mut found = Vec::new();
    for format in ["tet", "tensogram", "tiledb", "zarr"] {
        let path = folder.path().join(format);
        create(&path, format, &case);
        found.push((format, rounds(&path, &case)));
    }
    let path = folder.path().join("fragments");
    create(&path, "tiledb", &case);
    for y in 0..40 {
        let region = Region::new([(y * 10, y * 10 + 10), (0, 200)]);
        let session = Append::new().region(region.clone()).begin(&path).unwrap();
        let (from, to) = ((y * 8000) as usize, (y * 8000 + 8000) as usize);
        session.write_region(ArrayId(0), &region, &case.cells[from..to]).unwrap();
        session.commit().unwrap();
    }
    found.push(("fragments", rounds(&path, &case)));
    // The end of a file holds its index; that of a TileDB fragment holds the lists of its tiles, which are read with its footer. The
    // lengths of the objects of a Zarr array are requested together.
    let expected =
        [("tet", (1, 0)), ("tensogram", (1, 0)), ("tiledb", (2, 0)), ("zarr", (2, 1)), ("fragments", (2, 0))];
    assert_eq!(found, expected);
}
