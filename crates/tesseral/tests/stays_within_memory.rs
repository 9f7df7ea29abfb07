//! With a memory limit no operation exceeds the limit and a small allowance, for any chunks; operations that cannot stream are
//! rejected with the required size.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic, unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tesseral::StatSet;
use tesseral::{
    Append, ArrayId, ArraySchema, ArraySpec, CodecSpec, ColumnData, ConvertOptions, Create, DType,
    DiffOptions, ErrorKind, InputOrder, Open, Options, Region,
};
use tesseral_format::{AuditOptions, Depth};

/// Currently allocated bytes, and the peak since the last measurement.
static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
/// One measurement at a time.
static MEASURING: Mutex<()> = Mutex::new(());

struct Counting;

fn grown(bytes: usize) {
    let now = NOW.fetch_add(bytes, Ordering::Relaxed) + bytes;
    MOST.fetch_max(now, Ordering::Relaxed);
}

// SAFETY: forwards to the system allocator; only counters are added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: upheld by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        // SAFETY: upheld by the caller.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        grown(size);
        // SAFETY: upheld by the caller.
        unsafe { System.realloc(pointer, layout, size) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: upheld by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;
/// The limit, and the allowance of an operation: half of the smallest source.
const LIMIT: usize = 4 * MIB;
const ALLOWANCE: usize = 8 * MIB;
/// Cells of a source: 32 MiB of float32.
const SHAPE: [u64; 2] = [2048, 4096];

/// Peak memory of an operation, beyond the initial amount.
fn peak<T>(operation: impl FnOnce() -> T) -> (usize, T) {
    let _one = MEASURING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    let result = operation();
    (MOST.load(Ordering::Relaxed).saturating_sub(before), result)
}

#[track_caller]
fn bounded<T>(what: &str, operation: impl FnOnce() -> T) -> T {
    let (held, result) = peak(operation);
    assert!(held <= LIMIT + ALLOWANCE, "{what} held {} MiB", held / MIB);
    result
}

/// Numbers that compress a little.
fn cells() -> Vec<u8> {
    let count = SHAPE.iter().product::<u64>() as u32;
    (0..count).flat_map(|i| ((i.wrapping_mul(2_654_435_761) >> 12) as f32).to_le_bytes()).collect()
}

/// An array of chunks of `rows` rows.
fn source(folder: &Path, name: &str, format: &str, rows: u64, codec: Option<&str>) -> PathBuf {
    let path = folder.join(name);
    let chunk = if format == "tensogram" { SHAPE[0] } else { rows };
    let schema = ArraySchema::dense("a", DType::Float32, &SHAPE, &[chunk, SHAPE[1]]);
    let codecs = codec.map(CodecSpec::new).into_iter().collect();
    let mut session = Create::new().begin(&path, format).unwrap();
    let id = session.add(&ArraySpec { schema, codecs: vec![codecs], text: None }).unwrap();
    session.write(id, &cells()).unwrap();
    session.commit().unwrap();
    path
}

fn limited() -> Open {
    Open::new().execution(Options::default().with_memory(LIMIT as u64).with_threads(2).unwrap())
}

/// Raw chunks, and chunks that decode in ranges.
fn divisible(folder: &Path) -> Vec<PathBuf> {
    vec![
        source(folder, "one.tet", "tet", SHAPE[0], None),
        source(folder, "two.tet", "tet", SHAPE[0] / 2 + 1, None),
        source(folder, "plain.tgm", "tensogram", 0, None),
        source(folder, "raw.tdb", "tiledb", SHAPE[0] / 2, None),
        source(folder, "filtered.tdb", "tiledb", SHAPE[0] / 2, Some("zstd")),
    ]
}

#[test]
fn chunks_larger_than_the_limit_are_read_in_pieces() {
    let folder = tempfile::tempdir().unwrap();
    let wanted = cells();
    for path in divisible(folder.path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let array = limited().open(&path).unwrap().array_at(0).unwrap();
        let all = array.all().unwrap();
        bounded(&format!("{name}: blocks"), || {
            let mut at = 0;
            for block in array.blocks(&all, MIB as u64).unwrap() {
                let cells = array.read(&block).unwrap();
                assert_eq!(cells.bytes(), &wanted[at..at + cells.bytes().len()], "{name} from byte {at}");
                at += cells.bytes().len();
            }
            assert_eq!(at, wanted.len());
        });
        let column = array.select(["1=7:9"]).unwrap();
        let found = bounded(&format!("{name}: columns"), || {
            tesseral_engine::read_owned(array.handle(), &array.request(&column), array.options())
                .unwrap()
                .bytes()
                .to_vec()
        });
        let row = SHAPE[1] as usize * 4;
        let expected: Vec<u8> = wanted.chunks(row).flat_map(|row| row[28..36].to_vec()).collect();
        assert_eq!(found, expected, "{name}");
    }
}

#[test]
fn folds_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    let plain = source(folder.path(), "small.tet", "tet", 16, None);
    let reference = tesseral::open(&plain).unwrap().array_at(0).unwrap();
    let all = reference.all().unwrap();
    let expected = reference.summary(&all, StatSet::ALL).unwrap();
    let means: Vec<_> =
        [0, 1].map(|axis| reference.reduce(&all, &[axis], StatSet::ALL).unwrap().mean()).into();
    for path in [vec![plain], divisible(folder.path())].concat() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let array = limited().open(&path).unwrap().array_at(0).unwrap();
        let found = bounded(&format!("{name}: summary"), || array.summary(&all, StatSet::ALL).unwrap());
        assert_eq!(
            (found.min(), found.max(), found.count()),
            (expected.min(), expected.max(), expected.count())
        );
        assert_eq!(found.mean(), expected.mean(), "{name}");
        for (axis, expected) in means.iter().enumerate() {
            let what = format!("{name}: mean along {axis}");
            let found = bounded(&what, || array.reduce(&all, &[axis], StatSet::ALL).unwrap().mean());
            assert!(found.iter().zip(expected).all(|(a, b)| match (a, b) {
                (Some(a), Some(b)) => (a - b).abs() <= b.abs() * 1e-12,
                _ => false,
            }));
        }
    }
}

/// Many chunks along the reduced axis are folded in segments, each with its own states, which count as memory.
#[test]
fn states_of_segments_count_as_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("deep.tet");
    // 16 KiB of positions take two MiB of states, of which 64 segments would have one each.
    let shape = [1024, 16, 1024];
    let schema = ArraySchema::dense("a", DType::Float32, &shape, &[8, 16, 1024]);
    let mut session = Create::new().begin(&path, "tet").unwrap();
    let id = session.add(&ArraySpec::raw(schema)).unwrap();
    session
        .fill(id, |_, cells| {
            cells.chunks_exact_mut(4).for_each(|cell| cell.copy_from_slice(&1.5_f32.to_le_bytes()));
            Ok(())
        })
        .unwrap();
    session.commit().unwrap();
    let array = limited().open(&path).unwrap().array_at(0).unwrap();
    let all = array.all().unwrap();
    let means =
        bounded("mean along the first axis", || array.reduce(&all, &[0], StatSet::ALL).unwrap().mean());
    assert!(means.len() == 16 * 1024 && means.iter().all(|mean| *mean == Some(1.5)));
}

#[test]
fn conversions_and_comparisons_stay_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    for path in divisible(folder.path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let opened = limited().open(&path).unwrap();
        let out = folder.path().join(format!("{name}.out"));
        let options = ConvertOptions::new()
            .format("tet")
            .chunk("32,2048".parse().unwrap())
            .execution(limited().execution_options().clone());
        bounded(&format!("{name}: convert"), || tesseral::convert(&opened, &out, &options).unwrap());
        let copy = limited().open(&out).unwrap();
        let execution = limited().execution_options().clone();
        let options = DiffOptions::new().execution(execution);
        let same = bounded(&format!("{name}: diff"), || {
            tesseral::diff(&opened, &copy, &options).unwrap().values.iter().all(|v| v.first.is_none())
        });
        assert!(same, "{name}");
    }
}

#[test]
fn verifying_stays_within_the_limit() {
    let folder = tempfile::tempdir().unwrap();
    for path in divisible(folder.path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let open = limited();
        let format = tesseral::recognize(&*open.store(&path).unwrap()).unwrap();
        // Formats without special rules check the same at both depths.
        let full = name.ends_with(".tgm").then_some(Depth::Full);
        for depth in [Depth::Usual, Depth::Deep].into_iter().chain(full) {
            let checked = bounded(&format!("{name}: verify, {depth:?}"), || {
                let checks = AuditOptions { open: open.format_options().clone(), depth, canonical: false };
                let store = open.store(&path).unwrap();
                tesseral_engine::verify_to(format, store, &checks, open.execution_options(), &mut |_| {})
            });
            assert!(checked.unwrap().ok, "{name}");
        }
    }
}

/// Rules of a format for its cells are checked piece by piece; the cell is counted from the start of the object.
#[test]
fn a_full_verification_names_a_cell_of_a_later_piece() {
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("nan.tgm");
    let (schema, mut values) = (ArraySchema::dense("a", DType::Float32, &SHAPE, &SHAPE), cells());
    let at = 7_000_000;
    values[4 * at..4 * at + 4].copy_from_slice(&1234.5_f32.to_le_bytes());
    let mut session = Create::new().without_digests().begin(&path, "tensogram").unwrap();
    let id = session.add(&ArraySpec::raw(schema)).unwrap();
    session.write(id, &values).unwrap();
    session.commit().unwrap();
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let start = bytes.windows(64).position(|window| *window == values[..64]).unwrap();
    file.write_all_at(&f32::NAN.to_le_bytes(), (start + 4 * at) as u64).unwrap();
    let mut found = Vec::new();
    let open = limited();
    let format = tesseral::recognize(&*open.store(&path).unwrap()).unwrap();
    bounded("verify", || {
        let checks =
            AuditOptions { open: open.format_options().clone(), depth: Depth::Full, canonical: false };
        let store = open.store(&path).unwrap();
        tesseral_engine::verify_to(format, store, &checks, open.execution_options(), &mut |finding| {
            found.push(finding);
        })
        .unwrap();
    });
    let failed: Vec<_> =
        found.iter().filter(|finding| !finding.ok && finding.check == "nan_detected").collect();
    assert!(matches!(failed.as_slice(), [one] if one.detail.contains("7000000")), "{found:?}");
}

/// Cells that are distributed one by one come from pieces of a large chunk, too.
#[test]
fn quantiles_stay_within_the_limit() {
    use tesseral_engine::fold::{AxisRole, Fold, Reducer, fold};
    let folder = tempfile::tempdir().unwrap();
    let path = source(folder.path(), "one.tet", "tet", SHAPE[0], None);
    let array = limited().open(&path).unwrap().array_at(0).unwrap();
    let wanted = Fold::new(vec![Reducer::Sketch(0.01)], vec![AxisRole::Reduce; 2]);
    let request = array.request(&array.all().unwrap());
    bounded("a sketch", || fold(array.handle(), &request, &wanted, array.options()).map(drop).unwrap());
}

/// One row per coordinate takes memory: more of them than the limit has room for are rejected with the size needed.
#[test]
fn statistics_of_too_many_coordinates_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sparse");
    let count = 64 << 10;
    let document = serde_json::json!({
        "sparse": true, "capacity": 4096,
        "dims": [{"name": "x", "dtype": "int64", "domain": [0, 2 * count], "tile": 4096}],
        "fields": [{"name": "a", "dtype": "float64"}],
    });
    Create::new().declare(&path, "tiledb", &document).unwrap().commit().unwrap();
    let places: Vec<u8> = (0..count as i64).flat_map(i64::to_le_bytes).collect();
    let columns = [&places, &places].map(|values| ColumnData::Fixed { values, validity: None });
    let session = Append::new().begin(&path).unwrap();
    session.write_cells(ArrayId(0), &columns, InputOrder::Unordered).unwrap();
    session.commit().unwrap();
    let array = limited().open(&path).unwrap().array_at(0).unwrap();
    let query = array.cells().unwrap().only(&[tesseral::Column::Field(0)]);
    let error = bounded("statistics by coordinate", || {
        let request = query.request();
        tesseral_engine::fold::summaries_by_coordinate(
            array.handle(),
            &request,
            0,
            StatSet::ALL,
            array.options(),
        )
        .unwrap_err()
    });
    assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
}

/// Fragments are merged a few at a time under a limit, and not at all when two tiles do not fit.
#[test]
fn consolidation_of_sparse_fragments_stays_within_the_limit() {
    use tesseral::Consolidate;
    let folder = tempfile::tempdir().unwrap();
    // Small tiles are merged three at a time. Two large ones do not fit.
    for (capacity, count, parts, fits) in [(2048, 8 << 10, 6, true), (128 << 10, 128 << 10, 2, false)] {
        let path = folder.path().join(capacity.to_string());
        let document = serde_json::json!({
            "sparse": true, "capacity": capacity,
            "dims": [{"name": "x", "dtype": "int64", "domain": [0, 16 * count], "tile": 4096}],
            "fields": [{"name": "a", "dtype": "float64"}, {"name": "b", "dtype": "float64"}],
        });
        Create::new().declare(&path, "tiledb", &document).unwrap().commit().unwrap();
        for part in 0..parts {
            let places: Vec<u8> = (0..count).flat_map(|i: i64| (8 * i + part).to_le_bytes()).collect();
            let columns =
                [&places, &places, &places].map(|values| ColumnData::Fixed { values, validity: None });
            let session = Append::new().timestamp(1 + part.unsigned_abs()).begin(&path).unwrap();
            session.write_cells(ArrayId(0), &columns, InputOrder::Unordered).unwrap();
            session.commit().unwrap();
        }
        let open = Open::new();
        let edit = tesseral::edit_store(open.store(&path).unwrap(), open.format_options()).unwrap();
        let memory = Some(400 << 10);
        let done =
            bounded("consolidate", || edit.consolidate(&Consolidate { memory, ..Consolidate::default() }));
        match done {
            Ok(done) => assert!(fits && done.made.len() == 1 && done.replaced.len() > 6, "{done:?}"),
            Err(error) => {
                let ErrorKind::Limit { asked, allowed, .. } = error.kind() else { panic!("{error}") };
                assert!(!fits && asked > allowed, "{error}");
            }
        }
        let array = open.open(&path).unwrap().array_at(0).unwrap();
        let cells = array.cells().unwrap().summary("a", StatSet::COUNTS).unwrap();
        assert_eq!(cells.count(), (parts * count).unsigned_abs());
    }
}

/// A plan takes memory for every array, so that very many arrays need more than a small limit has.
#[test]
fn conversions_of_too_many_arrays_are_rejected() {
    let folder = tempfile::tempdir().unwrap();
    let one = folder.path().join("one.tgm");
    let mut session = Create::new().begin(&one, "tensogram").unwrap();
    let id = session.add(&ArraySpec::raw(ArraySchema::dense("a", DType::Float32, &[2], &[2]))).unwrap();
    session.write(id, &[0; 8]).unwrap();
    session.commit().unwrap();
    let many = folder.path().join("many.tgm");
    std::fs::write(&many, std::fs::read(&one).unwrap().repeat(2000)).unwrap();
    let options = ConvertOptions::new().execution(limited().execution_options().clone());
    let opened = limited().open(&many).unwrap();
    let error = bounded("convert", || {
        tesseral::convert(&opened, folder.path().join("out.tet"), &options).unwrap_err()
    });
    let ErrorKind::Limit { asked, .. } = error.kind() else { panic!("{error}") };
    assert!(*asked > 2000 * 1024, "{error}");
}

#[test]
fn a_changed_byte_of_a_chunk_read_in_ranges_is_detected() {
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().unwrap();
    let last = format!("0={}:{}", SHAPE[0] - 1, SHAPE[0]);
    // Digests cover blocks: ranges elsewhere are read.
    for path in [
        source(folder.path(), "plain.tgm", "tensogram", 0, None),
        source(folder.path(), "one.tet", "tet", SHAPE[0], None),
    ] {
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(b"changed", (32 << 20) - 256).unwrap();
        let array = limited().open(&path).unwrap().array_at(0).unwrap();
        let range = array.select([last.as_str()]).unwrap();
        let error = bounded("read", || array.read(&range).unwrap_err());
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error}");
        assert!(array.read(&array.select(["0=0:1"]).unwrap()).is_ok());
        assert!(array.summary(&array.all().unwrap(), StatSet::ALL).is_err());
    }
}

/// The data file of the only fragment and attribute of a TileDB array.
fn data_file(array: &Path) -> PathBuf {
    let fragments = std::fs::read_dir(array.join("__fragments")).unwrap();
    fragments.last().unwrap().unwrap().path().join("a0.tdb")
}

/// TileDB tiles have digests per block: a range is verified by its blocks, so that damage elsewhere has no effect.
#[test]
fn a_range_of_a_tile_is_verified_by_its_blocks() {
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().unwrap();
    let wanted = cells();
    let row = SHAPE[1] as usize * 4;
    for (name, codec) in [("raw.tdb", None), ("filtered.tdb", Some("zstd"))] {
        let path = source(folder.path(), name, "tiledb", SHAPE[0], codec);
        let file = std::fs::OpenOptions::new().write(true).open(data_file(&path)).unwrap();
        file.write_all_at(b"changed", file.metadata().unwrap().len() - 100).unwrap();
        let array = limited().open(&path).unwrap().array_at(0).unwrap();
        let first = array.select(["0=0:1"]).unwrap();
        let cells = bounded("read", || array.read(&first).unwrap().bytes().to_vec());
        assert_eq!(cells, &wanted[..row], "{name}");
        let last = array.select([format!("0={}:{}", SHAPE[0] - 1, SHAPE[0]).as_str()]).unwrap();
        let error = bounded("read", || array.read(&last).unwrap_err());
        assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{name}: {error}");
        assert!(array.summary(&array.all().unwrap(), StatSet::ALL).is_err(), "{name}");
    }
}

/// The offset of a range of a filtered tile depends on the lengths of all previous filter chunks. Two changed lengths with the
/// same sum would move the cells between them.
#[test]
fn changed_lengths_before_a_range_are_detected() {
    use std::os::unix::fs::FileExt;
    let folder = tempfile::tempdir().unwrap();
    let path = source(folder.path(), "filtered.tdb", "tiledb", SHAPE[0], Some("zstd"));
    let data = data_file(&path);
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&data).unwrap();
    let number = |at: u64| {
        let mut bytes = [0; 4];
        file.read_exact_at(&mut bytes, at).unwrap();
        u64::from(u32::from_le_bytes(bytes))
    };
    let chunk_at = |n: u64| (0..n).fold(8, |at, _| at + 12 + number(at + 4) + number(at + 8));
    // Unfiltered sizes of the first and the hundredth chunk.
    for (chunk, change) in [(0, -4_i64), (100, 4)] {
        let at = chunk_at(chunk);
        let changed = u32::try_from(number(at).cast_signed() + change).unwrap();
        file.write_all_at(&changed.to_le_bytes(), at).unwrap();
    }
    let array = limited().open(&path).unwrap().array_at(0).unwrap();
    // Cells of the fiftieth chunk.
    let rows = array.select(["0=200:201"]).unwrap();
    let error = array.read(&rows).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Corrupt { .. }), "{error}");
}

/// A chunk without random access cannot be streamed: it is rejected before anything of its size is allocated.
#[test]
fn chunks_that_cannot_be_streamed_are_rejected_with_their_size() {
    let folder = tempfile::tempdir().unwrap();
    for path in [
        source(folder.path(), "zstd.tet", "tet", SHAPE[0], Some("zstd")),
        source(folder.path(), "zstd.tgm", "tensogram", 0, Some("zstd")),
    ] {
        let array = limited().open(&path).unwrap().array_at(0).unwrap();
        let (all, first) = (array.all().unwrap(), array.select(["0=0:1"]).unwrap());
        let errors = bounded("rejections", || {
            [array.read(&first).unwrap_err(), array.summary(&all, StatSet::ALL).unwrap_err()]
        });
        for error in errors {
            let ErrorKind::Limit { asked, allowed, .. } = error.kind() else { panic!("{error}") };
            assert!(*asked >= 32 << 20 && *allowed == LIMIT as u64, "{error}");
        }
    }
}

/// Writes an array of `count` fragments of four cells next to one another.
fn many_fragments(path: &Path, count: u64, sparse: bool) {
    let tile = if sparse { 64 } else { 4 };
    let document = serde_json::json!({
        "sparse": sparse,
        "dims": [{"name": "x", "dtype": "int64", "domain": [0, 4 * count - 1], "tile": tile}],
        "fields": [{"name": "a", "dtype": "int32"}],
    });
    Create::new().declare(path, "tiledb", &document).unwrap().commit().unwrap();
    for number in 0..count {
        let (start, end) = (4 * number, 4 * number + 4);
        let cells: Vec<u8> = (start..end).flat_map(|i| (i as i32).to_le_bytes()).collect();
        let append = Append::new().timestamp(1 + number);
        if sparse {
            let places: Vec<u8> = (start..end).flat_map(|i| (i as i64).to_le_bytes()).collect();
            let columns = [&places, &cells].map(|values| ColumnData::Fixed { values, validity: None });
            let session = append.begin(path).unwrap();
            session.write_cells(ArrayId(0), &columns, InputOrder::Unordered).unwrap();
            session.commit().unwrap();
        } else {
            let region = Region::new([(start, end)]);
            let session = append.region(region.clone()).begin(path).unwrap();
            session.write_region(ArrayId(0), &region, &cells).unwrap();
            session.commit().unwrap();
        }
    }
}

/// A fragment adds its names and its box to the memory of a fold, not its footer, its lists and its digests, which take 4 KiB more.
#[test]
fn statistics_of_very_many_fragments_are_folded_in_portions() {
    const FEW: u64 = 2100;
    const MANY: u64 = 6300;
    const EACH: usize = 2400;
    // Every append is synced, which takes long on a disk.
    let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    for sparse in [false, true] {
        let held = [FEW, MANY].map(|count| {
            let path = folder.path().join(format!("{count}-{sparse}"));
            many_fragments(&path, count, sparse);
            let (held, found) = peak(|| {
                let open = Open::new().execution(Options::default().with_threads(1).unwrap());
                let array = open.open(&path).unwrap().array_at(0).unwrap();
                match sparse {
                    true => array.cells().unwrap().summary("a", StatSet::SUM).unwrap(),
                    false => array.summary(&array.all().unwrap(), StatSet::SUM).unwrap(),
                }
            });
            let last = i128::from(4 * count - 1);
            assert_eq!(found.sum(), Some(tesseral::Sum::Int(last * (last + 1) / 2)), "sparse: {sparse}");
            held
        });
        let grown = held[1].saturating_sub(held[0]);
        let most = usize::try_from(MANY - FEW).unwrap() * EACH;
        assert!(grown <= most, "sparse: {sparse}: {held:?}");
    }
}
