//! Dependent round trips and requests of opening, reading and summarizing when every request takes 50 ms.
#![cfg(feature = "remote")]
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use common::Case;
use object_store::ObjectStore;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use tesseral::store::{CacheFolder, RemoteStore, Store, StoreExt, Traffic};
use tesseral::{
    Append, Array, ArrayId, ArraySchema, ArraySpec, Create, DType, Edit, IndexOptions, Join, Open,
    OpenOptions, Options, Overwrite, Region, index,
};
use tesseral::{Consolidate, MaintenancePart, Selection, Slice, StatSet};
use tesseral_core::schema::VariableRole;

const LATENCY: Duration = Duration::from_millis(50);

/// A machine that delays requests can part those of one round: the fewest rounds of a few attempts count.
const ATTEMPTS: usize = 4;

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

/// The objects below a path, in memory.
fn uploaded(path: &Path) -> Arc<InMemory> {
    let client = Arc::new(InMemory::new());
    put(&RemoteStore::with_client("remote", client.clone(), "set").unwrap(), path, "");
    client
}

fn distant(client: impl ObjectStore) -> Arc<RemoteStore> {
    distant_at(client, "set")
}

fn distant_at(client: impl ObjectStore, root: &str) -> Arc<RemoteStore> {
    let config = ThrottleConfig {
        wait_get_per_call: LATENCY,
        wait_list_per_call: LATENCY,
        wait_list_with_delimiter_per_call: LATENCY,
        ..ThrottleConfig::default()
    };
    let throttled = ThrottledStore::new(client, config);
    Arc::new(RemoteStore::with_client(root, Arc::new(throttled), root).unwrap())
}

fn open(store: &Arc<RemoteStore>) -> Array {
    Open::new().open_store(Arc::clone(store) as Arc<dyn Store>).unwrap().array_at(0).unwrap()
}

/// Rounds and requests of opening, and of an operation on the array.
fn measured(client: impl ObjectStore, operation: impl Fn(&Array)) -> [(u64, u64); 2] {
    let client = Arc::new(client);
    let attempt = || {
        let store = distant(Arc::clone(&client));
        let array = open(&store);
        let opened = store.traffic();
        operation(&array);
        let done: Traffic = store.traffic().since(&opened);
        [(opened.rounds, opened.requests), (done.rounds, done.requests)]
    };
    (0..ATTEMPTS).map(|_| attempt()).min_by_key(|found| found.map(|(rounds, _)| rounds)).unwrap()
}

fn create(path: &Path, format: &str, case: &Case, codec: &str) {
    let codecs = vec![vec![codec.parse().unwrap()]];
    let mut session = Create::new().begin(path, format).unwrap();
    let id = session.add(&ArraySpec { codecs, ..case.spec("x") }).unwrap();
    session.write(id, &case.cells).unwrap();
    session.commit().unwrap();
}

fn append(path: &Path, case: &Case, y: u64) {
    let width = case.shape[1];
    let region = Region::new([(y, y + 1), (0, width)]);
    let session = Append::new().region(region.clone()).begin(path).unwrap();
    let row = width as usize * 4;
    let at = y as usize * row;
    session.write_region(ArrayId(0), &region, &case.cells[at..at + row]).unwrap();
    session.commit().unwrap();
}

fn window(array: &Array) {
    let shape = array.schema().shape().unwrap();
    let selection = Selection::new([Slice::new(300, 302), Slice::new(3, 20)], &shape).unwrap();
    assert_eq!(array.read(&selection).unwrap().bytes().len(), 2 * 17 * 4);
}

#[test]
fn opening_and_reading_take_few_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let case = Case::counting(DType::UInt32, &[640, 200], &[10, 200], "zstd");
    for format in ["tet", "tensogram"] {
        let path = folder.path().join(format);
        create(&path, format, &case, "raw");
        let [opened, read] = measured(uploaded(&path), window);
        // The beginning, the end, and listings, because it could be a folder.
        assert!(opened.0 == 1 && opened.1 <= 8, "{format}: {opened:?}");
        assert!(read.0 == 1 && read.1 <= 2, "{format}: {read:?}");
    }
    let path = folder.path().join("array");
    create(&path, "tiledb", &case, "zstd");
    for y in 0..5 {
        append(&path, &case, y);
    }
    let options = OpenOptions::default();
    let edit: Box<dyn Edit> = tesseral::edit(&path, &options).unwrap();
    edit.consolidate(&Consolidate::default()).unwrap();
    let edit = tesseral::edit(&path, &options).unwrap();
    edit.vacuum(MaintenancePart::Fragments, false).unwrap();
    let [opened, read] = measured(uploaded(&path), window);
    assert!(opened.0 <= 2 && read.0 <= 1, "{opened:?} {read:?}");
}

/// Index and digests of many chunks are not in the bytes of the first contact; they are requested together.
#[test]
fn thousands_of_chunks_take_one_round_more() {
    let folder = tempfile::tempdir().unwrap();
    let case = Case::counting(DType::UInt32, &[20_000, 20], &[4, 20], "raw");
    for format in ["tet", "tiledb"] {
        let path = folder.path().join(format);
        create(&path, format, &case, "raw");
        let [opened, read] = measured(uploaded(&path), window);
        assert!(opened.0 <= 2 && read.0 <= 2, "{format}: {opened:?} {read:?}");
    }
}

/// The index of some large chunks is in the bytes of the first contact, the digests of their blocks are not.
#[test]
fn digests_of_large_chunks_take_one_round_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    let case = Case::counting(DType::UInt32, &[640, 16 << 10], &[16, 16 << 10], "raw");
    create(&path, "tet", &case, "raw");
    let [opened, read] = measured(uploaded(&path), window);
    assert!(opened.0 == 2 && read.0 == 1, "{opened:?} {read:?}");
}

/// Of 1,000 fragments, a window touches two.
#[test]
fn a_thousand_fragments_open_in_three_rounds() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("array");
    let case = Case::counting(DType::UInt32, &[1000, 20], &[1, 20], "raw");
    Create::new()
        .empty()
        .begin(&path, "tiledb")
        .and_then(|mut session| {
            session.add(&case.spec("x"))?;
            session.commit()
        })
        .unwrap();
    for y in 0..1000 {
        append(&path, &case, y);
    }
    let client = uploaded(&path);
    let [opened, read] = measured(Arc::clone(&client), window);
    assert!(opened.0 <= 3, "{opened:?}");
    assert!(read.0 <= 1, "{read:?}");
    let [_, stated] = measured(client, |array| {
        let request = array.request(&Selection::all(&[1000, 20]));
        let options = Options::default();
        let found =
            tesseral_engine::fold::summary(array.handle(), &request, StatSet::RANGE, &options).unwrap();
        assert!(found.from_statistics);
    });
    assert!(stated.0 <= 3, "{stated:?}");
}

/// A variable over three coordinates, which are read as its labels.
fn with_coordinates(path: &Path, format: &str) -> Vec<u8> {
    let mut session = Create::new().begin(path, format).unwrap();
    let shape = [30, 40, 50];
    let mut coordinates = Vec::new();
    for (name, extent) in ["time", "lat", "lon"].into_iter().zip(shape) {
        let mut schema = ArraySchema::dense(name, DType::Float64, &[extent], &[extent]);
        schema.dims[0].name = name.to_owned();
        schema.role = VariableRole::Index;
        let cells: Vec<u8> = (0..extent).flat_map(|n| (n as f64).to_le_bytes()).collect();
        coordinates.push((session.add(&ArraySpec::raw(schema)).unwrap(), cells));
    }
    let mut schema = ArraySchema::dense("sst", DType::UInt32, &shape, &[10, 40, 50]);
    for (dim, name) in schema.dims.iter_mut().zip(["time", "lat", "lon"]) {
        dim.name = name.to_owned();
    }
    let cells: Vec<u8> = (0..shape.iter().product::<u64>() as u32).flat_map(u32::to_le_bytes).collect();
    let id = session.add(&ArraySpec::raw(schema)).unwrap();
    for (coordinate, cells) in &coordinates {
        session.write(*coordinate, cells).unwrap();
    }
    session.write(id, &cells).unwrap();
    session.commit().unwrap();
    cells
}

/// Members of a group are opened together, and the labels of all dimensions are read together.
#[test]
fn several_arrays_take_as_many_rounds_as_one() {
    let folder = tempfile::tempdir().unwrap();
    for (format, most) in [("tet", 2), ("tiledb", 5)] {
        let path = folder.path().join(format);
        let cells = with_coordinates(&path, format);
        let client = uploaded(&path);
        let attempt = || {
            let store = distant(Arc::clone(&client));
            let container = Open::new().open_store(Arc::clone(&store) as Arc<dyn Store>).unwrap();
            assert_eq!(container.len(), 4);
            let array = container.array("sst").unwrap();
            assert!(array.schema().dims.iter().all(|dim| dim.labels.is_some()));
            let opened = store.traffic();
            let read = array.read(&array.select(["time=3.0..4.0"]).unwrap()).unwrap();
            assert_eq!(read.bytes(), &cells[3 * 2000 * 4..5 * 2000 * 4]);
            (opened.rounds, store.traffic().since(&opened).rounds)
        };
        let (opened, read) = (0..ATTEMPTS).map(|_| attempt()).min().unwrap();
        assert!(opened <= most && read <= 1, "{format}: {opened} {read}");
    }
}

/// Rounds of reading all cells of an index of several sources, whose chunks are in the table or found by their own format.
fn rounds_of_sources(format: &str, codec: &'static str, count: usize, in_table: bool) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let case = Case::counting(DType::UInt32, &[20, 30], &[20, 30], codec);
    let paths: Vec<_> = (0..count).map(|n| folder.path().join(format!("{n}.x"))).collect();
    for path in &paths {
        create(path, format, &case, codec);
    }
    let join = IndexOptions::new().join(Join::New("day".to_owned()));
    let written = index(&paths, folder.path().join("all.tix"), &Open::new(), &join).unwrap();
    assert_eq!(written.opened.is_empty(), in_table);
    let client = uploaded(folder.path());
    let attempt = || {
        let store = distant_at(Arc::clone(&client), "set/all.tix");
        let array = open(&store);
        let opened = store.traffic();
        assert_eq!(opened.rounds, 1);
        let cells = array.read(&Selection::all(&[count as u64, 20, 30])).unwrap();
        assert_eq!(cells.bytes(), case.cells.repeat(count));
        store.traffic().since(&opened).rounds
    };
    (0..ATTEMPTS).map(|_| attempt()).min().unwrap()
}

#[test]
fn sources_of_an_index_take_few_rounds() {
    for (format, codec, in_table, most) in [("tet", "raw", true, 2), ("tensogram", "zstd", false, 3)] {
        for count in [1, 12] {
            let rounds = rounds_of_sources(format, codec, count, in_table);
            assert!(rounds <= most, "{count} sources, {format}: {rounds}");
        }
    }
}

#[test]
fn a_cache_answers_what_did_not_change() {
    let folder = tempfile::tempdir().unwrap();
    let kept = CacheFolder::new(folder.path().join("cache"));
    let case = Case::counting(DType::UInt32, &[640, 200], &[10, 200], "zstd");
    let all = Selection::all(&[640, 200]);
    for format in ["tet", "tiledb", "zarr"] {
        let path = folder.path().join(format);
        create(&path, format, &case, "raw");
        let client = uploaded(&path);
        let store = || {
            let store = RemoteStore::with_client(format, client.clone(), "set").unwrap();
            Arc::new(store.with_cache(&kept))
        };
        let read = |store: &Arc<RemoteStore>| open(store).read(&all).unwrap().bytes().to_vec();
        let first = store();
        assert_eq!(read(&first), case.cells);
        let second = store();
        assert_eq!(read(&second), case.cells);
        let (first, second) = (first.traffic(), second.traffic());
        // Bytes of the first contact are always requested.
        assert!(second.cached > 0 && second.bytes < first.bytes / 2, "{format}: {first:?} {second:?}");
        // Another content under the same names.
        let other = Case::counting(DType::Int32, &[640, 200], &[20, 200], "zstd");
        let again = folder.path().join("again");
        create(&again, format, &other, "raw");
        let writer = RemoteStore::with_client(format, client.clone(), "set").unwrap();
        writer.remove_all("").unwrap();
        put(&writer, &again, "");
        assert_eq!(open(&store()).schema().fields[0].dtype, DType::Int32);
        assert_eq!(read(&store()), other.cells, "{format}");
        if again.is_dir() { fs::remove_dir_all(&again).unwrap() } else { fs::remove_file(&again).unwrap() }
    }
}

#[test]
fn asynchronous_reads_equal_the_others() {
    use futures_util::StreamExt;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.tet");
    let case = Case::counting(DType::UInt32, &[640, 200], &[10, 200], "zstd");
    create(&path, "tet", &case, "zstd");
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let container = Open::new().open_async(&path).await.unwrap();
        let array = container.array_at(0).unwrap();
        let all = Selection::all(&[640, 200]);
        assert_eq!(array.read_async(&all).await.unwrap().bytes(), case.cells);
        let (mut cells, mut count) = (Vec::new(), 0);
        let mut blocks = array.blocks_async(&all, 64 << 10);
        while let Some(block) = blocks.next().await {
            cells.extend_from_slice(block.unwrap().1.bytes());
            count += 1;
        }
        assert_eq!(cells, case.cells);
        assert!(count > 4);
        let mut rows = 0;
        let mut batches = array.batches_async(|query| query.filter("x >= 127000"));
        while let Some(batch) = batches.next().await {
            rows += batch.unwrap().rows;
        }
        assert_eq!(rows, 1000);
        assert!(Open::new().open_async(folder.path().join("none")).await.is_err());
    });
}

/// Structures of small messages are read ahead, in growing ranges that stay in memory for a while.
#[test]
fn small_messages_are_read_many_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("message.tgm");
    create(&path, "tensogram", &Case::counting(DType::UInt32, &[10, 10], &[10, 10], "raw"), "raw");
    let message = fs::read(&path).unwrap();
    let count = 3000;
    let client = Arc::new(InMemory::new());
    let store = || Arc::new(RemoteStore::with_client("remote", client.clone(), "set").unwrap());
    store().put("", &message.repeat(count), Overwrite::Refuse).unwrap();
    let store = store();
    let container = Open::new().open_store(Arc::clone(&store) as Arc<dyn Store>).unwrap();
    assert_eq!(container.len(), count);
    for at in 0..count {
        assert_eq!(container.array_at(at).unwrap().schema().shape().unwrap()[..], [10, 10]);
    }
    let found = store.traffic();
    // Three passes over the file.
    assert!(found.rounds <= 60, "{found:?}");
    assert!(found.bytes <= 4 * (message.len() * count) as u64, "{found:?}");
}

/// Footers of many fragments are in one file then; their sizes and statistics are not.
#[test]
fn details_of_fragments_with_consolidated_metadata_are_read_together() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("array");
    let case = Case::counting(DType::UInt32, &[60, 20], &[1, 20], "raw");
    let mut session = Create::new().empty().begin(&path, "tiledb").unwrap();
    session.add(&case.spec("x")).unwrap();
    session.commit().unwrap();
    for y in 0..60 {
        append(&path, &case, y);
    }
    for part in [MaintenancePart::Commits, MaintenancePart::FragmentMetadata] {
        let edit = tesseral::edit(&path, &OpenOptions::default()).unwrap();
        edit.consolidate(&Consolidate { part, ..Consolidate::default() }).unwrap();
    }
    let client = uploaded(&path);
    let attempt = || {
        let store = distant(Arc::clone(&client));
        let container = Open::new().open_store(Arc::clone(&store) as Arc<dyn Store>).unwrap();
        let details = container.inner().details();
        assert_eq!(details["fragments"].as_array().unwrap().len(), 60);
        store.traffic().rounds
    };
    let rounds = (0..ATTEMPTS).map(|_| attempt()).min().unwrap();
    assert!(rounds <= 12, "{rounds}");
}
