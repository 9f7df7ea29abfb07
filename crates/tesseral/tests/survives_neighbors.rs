//! Other processes change a source during a read: a reader sees one state of it, or an error.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;
use tesseral::{
    Append, ArrayId, ArraySchema, ArraySpec, ColumnData, Consolidate, ConvertOptions, Create, DType, Error,
    ErrorKind, InputOrder, MaintenancePart, Open, OpenOptions, Options, Region, Result, Selection,
};
use tesseral_store::test_wrappers::{Call, CallHook, FaultInjection, Wrapped};
use tesseral_store::{LocalStore, ReadMode, Store};

const CELLS: u64 = 400;

/// An empty dense TileDB array.
fn dense(path: &Path) {
    let document = json!({
        "dims": [{"name": "x", "dtype": "int32", "domain": [0, CELLS - 1], "tile": 50}],
        "fields": [{"name": "v", "dtype": "int32"}],
    });
    Create::new().declare(path, "tiledb", &document).unwrap().commit().unwrap();
}

/// One write: `count` cells of value `n` from a position that depends on `n`.
fn append_dense(path: &Path, n: u64, count: u64) {
    let start = n * 7 % (CELLS - count);
    let region = Region::new([(start, start + count)]);
    let session = Append::new().timestamp(1_700_000_000_000 + n).region(region.clone()).begin(path).unwrap();
    let cells: Vec<u8> = (0..count).flat_map(|_| (n as i32).to_le_bytes()).collect();
    session.write_region(ArrayId(0), &region, &cells).unwrap();
    session.commit().unwrap();
}

fn sparse(path: &Path) {
    let document = json!({
        "dims": [{"name": "x", "dtype": "int32", "domain": [0, 9999], "tile": 100}],
        "fields": [{"name": "v", "dtype": "int32"}],
        "sparse": true,
        "capacity": 10,
    });
    Create::new().declare(path, "tiledb", &document).unwrap().commit().unwrap();
}

fn append_sparse(path: &Path, n: i32) {
    let bytes = |values: &[i32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
    let (x, v) = (bytes(&[n * 3 % 1000, 1000 + n]), bytes(&[n, -n]));
    let session = Append::new().timestamp(1_700_000_000_000 + n as u64).begin(path).unwrap();
    let fixed = |values| ColumnData::Fixed { values, validity: None };
    session.write_cells(ArrayId(0), &[fixed(&x), fixed(&v)], InputOrder::Unordered).unwrap();
    session.commit().unwrap();
}

fn edit(path: &Path) -> Box<dyn tesseral::Edit> {
    tesseral::edit(path, &OpenOptions::default()).unwrap()
}

fn clean_up(path: &Path) {
    let made = edit(path).consolidate(&Consolidate::default()).unwrap();
    assert_eq!(made.made.len(), 1);
    assert!(edit(path).vacuum(MaintenancePart::Fragments, false).unwrap().removed.len() > 1);
}

fn all() -> Selection {
    Selection::all(&[CELLS])
}

fn cells(path: &Path) -> Vec<u8> {
    tesseral::open(path).unwrap().array_at(0).unwrap().read(&all()).unwrap().bytes().to_vec()
}

fn rows(path: &Path) -> Vec<Vec<u8>> {
    let array = tesseral::open(path).unwrap().array_at(0).unwrap();
    let batch = array.cells().unwrap().read().unwrap();
    batch.columns.iter().map(|(_, cells)| cells.data().to_vec()).collect()
}

#[test]
fn a_read_restarts_if_its_fragments_were_vacuumed() {
    for access in [ReadMode::Map, ReadMode::Read] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        dense(&path);
        (1..6).for_each(|n| append_dense(&path, n, 60));
        let expected = cells(&path);
        let array = Open::new().access(access).open(&path).unwrap().array_at(0).unwrap();
        clean_up(&path);
        assert_eq!(array.read(&all()).unwrap().bytes(), expected);
        // Later reads use the newer state.
        assert_eq!(array.read(&all()).unwrap().bytes(), expected);
        append_dense(&path, 9, 60);
        clean_up(&path);
        let array = tesseral::open(&path).unwrap().array_at(0).unwrap();
        assert_ne!(array.read(&all()).unwrap().bytes(), expected);
    }
}

#[test]
fn cells_of_two_states_are_never_mixed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    dense(&path);
    (1..6).for_each(|n| append_dense(&path, n, 60));
    let array = Open::new().access(ReadMode::Read).open(&path).unwrap().array_at(0).unwrap();
    let first = Selection::from_region(&Region::new([(0, 10)]));
    array.read(&first).unwrap();
    clean_up(&path);
    // Open handles would keep the old state for a while.
    let rest = Selection::from_region(&Region::new([(300, 400)]));
    match array.read(&rest) {
        Ok(read) => assert_eq!(read.bytes(), &cells(&path)[1200..]),
        Err(error) => assert!(matches!(error.kind(), ErrorKind::Stale { .. }), "{error}"),
    }
    let detached = array.handle().detached();
    let read = tesseral_engine::read(&detached, &array.request(&rest), array.options()).unwrap();
    assert_eq!(read.bytes(), &cells(&path)[1200..]);
}

#[test]
fn a_lost_file_is_damage_not_a_change() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    dense(&path);
    append_dense(&path, 1, 60);
    let array = Open::new().access(ReadMode::Read).open(&path).unwrap().array_at(0).unwrap();
    for fragment in std::fs::read_dir(path.join("__fragments")).unwrap() {
        std::fs::remove_file(fragment.unwrap().path().join("a0.tdb")).unwrap();
    }
    let error = array.read(&all()).unwrap_err();
    assert!(error.is_damage() && matches!(error.kind(), ErrorKind::Missing { .. }), "{error}");
}

/// Consolidates and vacuums an array right before a listed object is read.
#[derive(Debug)]
struct VacuumBefore {
    path: PathBuf,
    ending: &'static str,
    done: AtomicBool,
}

impl CallHook for VacuumBefore {
    fn before(&self, call: Call<'_>) -> Result<()> {
        if let Call::Len(object) | Call::Read(object, _) = call
            && object.ends_with(self.ending)
            && !self.done.swap(true, Ordering::Relaxed)
        {
            edit(&self.path).consolidate(&Consolidate::default())?;
            for part in [
                MaintenancePart::Fragments,
                MaintenancePart::Commits,
                MaintenancePart::FragmentMetadata,
                MaintenancePart::Attributes,
            ] {
                edit(&self.path).vacuum(part, false)?;
            }
        }
        Ok(())
    }
}

#[test]
fn opening_survives_a_vacuum_between_the_listing_and_the_reads() {
    for ending in [".vac", ".con", ".meta", "__fragment_metadata.tdb", "a0.tdb"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        dense(&path);
        (1..4).for_each(|n| append_dense(&path, n, 60));
        let expected = cells(&path);
        for _ in 0..2 {
            for part in [MaintenancePart::Commits, MaintenancePart::FragmentMetadata] {
                edit(&path).consolidate(&Consolidate { part, ..Consolidate::default() }).unwrap();
            }
            append_dense(&path, 2, 60);
        }
        if ending == ".vac" {
            edit(&path).consolidate(&Consolidate::default()).unwrap();
        }
        let vacuum = VacuumBefore { path: path.clone(), ending, done: AtomicBool::new(false) };
        let vacuum = Arc::new(vacuum);
        let store: Arc<dyn Store> = Arc::new(LocalStore::new(&path, ReadMode::Read));
        let store: Arc<dyn Store> = Arc::new(Wrapped::new(store, Arc::clone(&vacuum)));
        let array = Open::new().open_store(store).unwrap().array_at(0).unwrap();
        let read = array.read(&all()).unwrap();
        assert!(vacuum.done.load(Ordering::Relaxed), "{ending}");
        assert_eq!(read.bytes().len(), expected.len());
        assert_eq!(read.bytes(), cells(&path), "{ending}");
    }
}

#[test]
fn a_conversion_whose_source_is_overwritten_writes_nothing() {
    for (access, digests) in
        [(ReadMode::Map, true), (ReadMode::Read, true), (ReadMode::Map, false), (ReadMode::Read, false)]
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.tet");
        let schema = ArraySchema::dense("a", DType::Int32, &[64, 64], &[8, 8]);
        let mut create = Create::new();
        if !digests {
            create = create.without_digests();
        }
        let mut session = create.begin(&path, "tet").unwrap();
        let id = session.add(&ArraySpec::raw(schema)).unwrap();
        session.write(id, &[1; 64 * 64 * 4]).unwrap();
        session.commit().unwrap();
        let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
        let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
        let once = AtomicBool::new(false);
        let progress = move |_| {
            if !once.swap(true, Ordering::Relaxed) {
                let mut bytes = vec![0; len];
                file.read_exact_at(&mut bytes, 0).unwrap();
                bytes.iter_mut().filter(|b| **b == 1).for_each(|b| *b = 2);
                file.write_all_at(&bytes[len / 2..], len as u64 / 2).unwrap();
            }
        };
        let execution = Options::default().with_progress(progress);
        let opened = Open::new().access(access).open(&path).unwrap();
        let out = folder.path().join("out");
        let options = ConvertOptions::new().execution(execution);
        let error: Error = tesseral::convert(&opened, &out, &options).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Changed { .. }), "{access:?} {digests} {error}");
        assert!(!out.exists());
    }
}

#[test]
fn a_consolidation_in_steps_equals_a_single_step() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    sparse(&path);
    (0..300).for_each(|n| append_sparse(&path, n));
    let before = rows(&path);
    let done = edit(&path).consolidate(&Consolidate::default()).unwrap();
    // Two steps over all of them and one over the results.
    assert_eq!((done.made.len(), done.replaced.len()), (1, 302));
    assert_eq!(rows(&path), before);
    assert_eq!(edit(&path).vacuum(MaintenancePart::Fragments, false).unwrap().removed.len(), 302);
    assert_eq!(rows(&path), before);
    assert_eq!(std::fs::read_dir(path.join("__fragments")).unwrap().count(), 1);

    let path = folder.path().join("dense");
    dense(&path);
    (1..1100).for_each(|n| append_dense(&path, n, 1 + n % 13));
    let before = cells(&path);
    let done = edit(&path).consolidate(&Consolidate::default()).unwrap();
    assert_eq!((done.made.len(), done.replaced.len()), (1, 1100));
    assert_eq!(cells(&path), before);
    edit(&path).vacuum(MaintenancePart::Fragments, false).unwrap();
    assert_eq!(cells(&path), before);
    assert_eq!(std::fs::read_dir(path.join("__fragments")).unwrap().count(), 1);
}

#[test]
fn an_interrupted_consolidation_continues() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    sparse(&path);
    (0..520).for_each(|n| append_sparse(&path, n));
    let before = rows(&path);
    let format = tesseral::format("tiledb").unwrap();
    let store = |around: Arc<FaultInjection>| -> Arc<dyn Store> {
        Arc::new(Wrapped::new(Arc::new(LocalStore::new(&path, ReadMode::Read)), around))
    };
    let mut interrupted = 0;
    // Every attempt makes progress.
    for calls in (0..6).map(|n| 700 + n * 500) {
        let failing = store(Arc::new(FaultInjection::at(calls)));
        let editor = format.versioned().unwrap().edit(failing, &OpenOptions::default()).unwrap();
        interrupted += usize::from(editor.consolidate(&Consolidate::default()).is_err());
        assert_eq!(rows(&path), before);
    }
    assert!(interrupted > 0);
    edit(&path).consolidate(&Consolidate::default()).unwrap();
    assert_eq!(rows(&path), before);
    edit(&path).vacuum(MaintenancePart::Fragments, false).unwrap();
    assert_eq!(rows(&path), before);
    let visible = tesseral::open(&path).unwrap().versions().unwrap();
    assert_eq!(visible.iter().filter(|v| v.state == tesseral::VersionState::Visible).count(), 1);
}
