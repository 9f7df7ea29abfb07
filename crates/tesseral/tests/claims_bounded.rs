//! Operations on small files with huge declared sizes use at most 64 MiB of memory: they succeed, or reject the sizes before
//! allocating.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use tesseral::{ConvertOptions, ErrorKind, Open, Options, Output, Overwrite, Result, StatSet};
use tesseral_store::ReadMode;

/// Counts current and peak allocations.
struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    let held = HELD.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(held, Ordering::Relaxed);
}

// SAFETY: every call is forwarded to the system allocator; only counters are added.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: upheld by the caller.
        let out = unsafe { System.alloc(layout) };
        if !out.is_null() {
            grow(layout.size());
        }
        out
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: upheld by the caller.
        let out = unsafe { System.alloc_zeroed(layout) };
        if !out.is_null() {
            grow(layout.size());
        }
        out
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: upheld by the caller.
        let out = unsafe { System.realloc(start, layout, size) };
        if !out.is_null() {
            HELD.fetch_sub(layout.size(), Ordering::Relaxed);
            grow(size);
        }
        out
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: upheld by the caller.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const MIB: usize = 1 << 20;
const ALLOWED: usize = 64 * MIB;

/// Resident memory in bytes by one of the names of `/proc/self/status`.
fn resident(name: &str) -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim_start_matches(':').trim().strip_suffix("kB")?.trim().parse::<usize>().ok().map(|kib| kib * 1024)
}

/// Runs an operation; panics if it uses more than the allowed additional memory.
fn bounded(label: &str, operation: impl FnOnce() -> Result<()>) -> Result<()> {
    let before = HELD.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    // Maps are not allocations: the kernel's peak counter includes them. Writing 5 resets it.
    let marked = fs::write("/proc/self/clear_refs", "5").is_ok();
    let idle = resident("VmRSS");
    let outcome = operation();
    let most = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    assert!(most <= ALLOWED, "{label}: allocated {} MiB", most / MIB);
    if let (true, Some(idle), Some(peak)) = (marked, idle, resident("VmHWM")) {
        let most = peak.saturating_sub(idle);
        assert!(most <= ALLOWED, "{label}: {} MiB resident", most / MIB);
    }
    outcome
}

/// A `.tet` file of one dataset with one row in its index.
fn tet(shape: u64, chunk: u64, row: Option<(u64, &[u8], u32)>) -> Vec<u8> {
    let (raw, payload, codec) = row.unwrap_or((0, &[], 0));
    let mut out = b"TETR".to_vec();
    let rows = u64::from(row.is_some());
    for n in [1_u32, 1, 0] {
        out.extend(n.to_le_bytes());
    }
    for n in [80_u64, 32 + 104 * rows, 40] {
        out.extend(n.to_le_bytes());
    }
    for n in [1_u32, 5, 1, 0] {
        out.extend(n.to_le_bytes());
    }
    out.extend(b"a\0\0\0\0\0\0\0");
    out.extend(shape.to_le_bytes());
    out.extend(chunk.to_le_bytes());
    out.extend(b"TIDX");
    out.extend(1_u32.to_le_bytes());
    out.extend(rows.to_le_bytes());
    out.extend([0; 16]);
    if row.is_some() {
        out.extend([0; 72]);
        for n in [out.len() as u64 + 32, raw, payload.len() as u64] {
            out.extend(n.to_le_bytes());
        }
        out.extend(codec.to_le_bytes());
        out.extend([0; 4]);
        out.extend(payload);
    }
    out
}

/// A Zstandard frame of zeros, in run-length blocks of 128 KiB.
fn zeros(mut len: u64) -> Vec<u8> {
    let mut out = b"\x28\xb5\x2f\xfd\x00\x78".to_vec();
    loop {
        let size = len.min(128 << 10);
        len -= size;
        let head = size << 3 | 1 << 1 | u64::from(len == 0);
        out.extend(&head.to_le_bytes()[..3]);
        out.push(0);
        if len == 0 {
            return out;
        }
    }
}

/// CBOR encoder for descriptors.
enum Item<'a> {
    Number(u64),
    Zero,
    Text(&'a str),
    List(Vec<Item<'a>>),
    Map(Vec<(&'a str, Item<'a>)>),
    /// Encoded bytes.
    Encoded(Vec<u8>),
}

impl Item<'_> {
    fn head(major: u8, n: u64, out: &mut Vec<u8>) {
        out.push(major << 5 | 27);
        out.extend(n.to_be_bytes());
    }

    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Number(n) => Self::head(0, *n, out),
            Self::Zero => out.extend([0xfb, 0, 0, 0, 0, 0, 0, 0, 0]),
            Self::Text(text) => {
                Self::head(3, text.len() as u64, out);
                out.extend(text.as_bytes());
            }
            Self::List(items) => {
                Self::head(4, items.len() as u64, out);
                items.iter().for_each(|item| item.write(out));
            }
            Self::Encoded(bytes) => out.extend(bytes),
            Self::Map(pairs) => {
                Self::head(5, pairs.len() as u64, out);
                for (name, item) in pairs {
                    Item::Text(name).write(out);
                    item.write(out);
                }
            }
        }
    }
}

/// A frame whose CBOR follows its payload.
fn frame(kind: u16, flags: u16, payload: &[u8], item: &Item<'_>, object: bool) -> Vec<u8> {
    let mut cbor = Vec::new();
    item.write(&mut cbor);
    let length = 28 + payload.len() + cbor.len() + if object { 8 } else { 0 };
    let mut out = b"FR".to_vec();
    for n in [kind, 1, flags] {
        out.extend(n.to_be_bytes());
    }
    out.extend((length as u64).to_be_bytes());
    out.extend(payload);
    out.extend(cbor);
    if object {
        out.extend((16 + payload.len() as u64).to_be_bytes());
    }
    out.extend([0; 8]);
    out.extend(b"ENDF");
    out.resize(out.len().next_multiple_of(8), 0);
    out
}

/// A message of one object.
fn tgm(dtype: &str, cells: u64, codec: Vec<(&str, Item<'_>)>, payload: &[u8]) -> Vec<u8> {
    let base = Item::Map(vec![("base", Item::List(vec![Item::Map(Vec::new())]))]);
    message(&base, dtype, cells, codec, payload)
}

/// A message of one object with metadata.
fn message(
    metadata: &Item<'_>,
    dtype: &str,
    cells: u64,
    codec: Vec<(&str, Item<'_>)>,
    payload: &[u8],
) -> Vec<u8> {
    let mut pairs = vec![
        ("type", Item::Text("ntensor")),
        ("ndim", Item::Number(1)),
        ("shape", Item::List(vec![Item::Number(cells)])),
        ("strides", Item::List(vec![Item::Number(1)])),
        ("dtype", Item::Text(dtype)),
        ("byte_order", Item::Text("little")),
    ];
    for (name, default) in [("encoding", "none"), ("filter", "none"), ("compression", "none")] {
        if !codec.iter().any(|(own, _)| *own == name) {
            pairs.push((name, Item::Text(default)));
        }
    }
    pairs.extend(codec);
    let metadata = frame(1, 0, &[], metadata, false);
    let object = frame(9, 1, payload, &Item::Map(pairs), true);
    let total = 48 + metadata.len() + object.len();
    let mut out = b"TENSOGRM".to_vec();
    out.extend([0, 3, 0, 1, 0, 0, 0, 0]);
    out.extend((total as u64).to_be_bytes());
    out.extend(&metadata);
    out.extend(&object);
    out.extend((24 + metadata.len() as u64 + object.len() as u64).to_be_bytes());
    out.extend((total as u64).to_be_bytes());
    out.extend(b"39277777");
    out
}

fn constant(cells: u64) -> Vec<u8> {
    let codec = vec![
        ("encoding", Item::Text("simple_packing")),
        ("sp_reference_value", Item::Zero),
        ("sp_binary_scale_factor", Item::Number(0)),
        ("sp_decimal_scale_factor", Item::Number(0)),
        ("sp_bits_per_value", Item::Number(0)),
    ];
    tgm("float64", cells, codec, &[])
}

/// Files of at most 1 MiB that declare more than they contain.
fn claims(folder: &Path) -> Vec<PathBuf> {
    let compressed = |name: &'static str| vec![("compression", Item::Text(name))];
    let bomb = [&b"\x1f\0\x01\0"[..], &[0xff; 200_000], b"\0"].concat();
    let gib = zeros(1 << 30);
    let files: Vec<(&str, Vec<u8>)> = vec![
        ("absent_chunk.tet", tet(640 << 30, 640 << 30, None)),
        ("wrong_row.tet", tet(640 << 30, 640 << 30, Some((16, &[7; 16], 0)))),
        ("zstd_gib.tet", tet(1 << 30, 1 << 30, Some((1 << 30, &gib, 1)))),
        ("zstd_exbi.tet", tet(1 << 60, 1 << 60, Some((1 << 60, &gib, 1)))),
        ("empty_grid.tet", tet(u64::MAX, 1, Some((1, &[7], 0)))),
        ("zstd_gib.tgm", tgm("uint8", 1 << 30, compressed("zstd"), &gib)),
        ("lz4_2_gib.tgm", tgm("uint8", (1 << 31) - 1, compressed("lz4"), &bomb)),
        ("constant_4_gib.tgm", constant(1 << 29)),
        ("constant_exbi.tgm", constant(1 << 57)),
        ("shuffled_zstd.tgm", tgm("uint8", 1 << 29, compressed("zstd"), &zeros(1 << 20))),
        ("bits.tgm", tgm("bitmask", 1 << 40, compressed("rle"), &[0xff, 0xff, 0xff, 0xff, 0xff, 0])),
        ("szip.tgm", tgm("uint8", 1 << 40, compressed("szip"), &[0; 64])),
        ("huge.npy", b"\x93NUMPY\x01\0\x76\0{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807,), }                                            \n".to_vec()),
    ];
    let write = |(name, bytes): (&str, Vec<u8>)| {
        assert!(bytes.len() <= MIB, "{name}");
        let path = folder.join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    files.into_iter().map(write).collect()
}

fn read(path: &Path) -> Result<()> {
    let container = Open::new().open(path)?;
    for index in 0..container.len() {
        let array = container.array_at(index)?;
        let all = array.all()?;
        for part in array.blocks(&all, 64 << 20)? {
            array.read_with(&part, |_| Ok(()))?;
        }
    }
    Ok(())
}

fn aggregate(path: &Path) -> Result<()> {
    let container = Open::new().open(path)?;
    for index in 0..container.len() {
        let array = container.array_at(index)?;
        let all = array.all()?;
        array.summary(&all, StatSet::ALL)?;
        array.reduce(&all, &[], StatSet::ALL)?;
    }
    Ok(())
}

fn verify(path: &Path) -> Result<()> {
    let open = Open::new();
    let store = open.store(path).unwrap();
    let format = tesseral::recognize(&*store)?;
    tesseral_engine::verify(format, store, open.format_options(), true, &Options::default(), &mut |_| ())?;
    Ok(())
}

fn recover(path: &Path, target: &Path) -> Result<()> {
    let open = Open::new().access(ReadMode::Read);
    let store = open.store(path).unwrap();
    let format = tesseral::recognize(&*store)?;
    let (limits, options) = (open.format_options(), Options::default());
    let output = Output::of_format(target, format).overwrite(Overwrite::Replace);
    tesseral::recover(format, store, limits, output, &options, &mut |_| ())?;
    Ok(())
}

fn convert(path: &Path, target: &Path) -> Result<()> {
    let options = ConvertOptions::new().overwrite();
    tesseral::convert(&Open::new().open(path)?, target, &options)?;
    Ok(())
}

#[test]
fn small_files_with_huge_declared_sizes_use_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut limits = 0;
    for path in claims(folder.path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let target = |ending: &str| folder.path().join(format!("out.{ending}"));
        type Operation<'a> = (&'a str, Box<dyn FnOnce() -> Result<()> + 'a>);
        let operations: Vec<Operation<'_>> = vec![
            ("open", Box::new(|| Open::new().open(&path).map(drop))),
            ("read", Box::new(|| read(&path))),
            ("aggregate", Box::new(|| aggregate(&path))),
            ("verify", Box::new(|| verify(&path))),
            ("recover", Box::new(|| recover(&path, &target("recovered")))),
            ("convert to .tet", Box::new(|| convert(&path, &target("tet")))),
            ("convert to .tgm", Box::new(|| convert(&path, &target("tgm")))),
            ("convert to TileDB", Box::new(|| convert(&path, &target("tdb")))),
        ];
        for (operation, run) in operations {
            if let Err(error) = bounded(&format!("{name}: {operation}"), run) {
                limits += u32::from(matches!(error.kind(), ErrorKind::Limit { .. }));
            }
        }
    }
    assert!(limits > 20, "{limits}");
}

/// A NetCDF classic file of 64-bit sizes with one variable of two dimensions, the first of which counts records.
fn netcdf3(records: u64, extent: u64) -> Vec<u8> {
    let name = |text: &[u8]| [&(text.len() as u64).to_be_bytes()[..], text, &[0; 3]].concat();
    let mut out = b"CDF\x05".to_vec();
    let (number, tag) = (|n: u64| n.to_be_bytes().to_vec(), |n: u32| n.to_be_bytes().to_vec());
    out.extend([number(records), tag(10), number(2)].concat());
    out.extend([name(b"t"), number(0), name(b"x"), number(extent)].concat());
    // No attributes, one variable over both dimensions.
    out.extend([tag(0), number(0), tag(11), number(1), name(b"a"), number(2), number(0), number(1)].concat());
    out.extend([tag(0), number(0), tag(5), number(4)].concat());
    let begin = out.len() as u64 + 8;
    out.extend(begin.to_be_bytes());
    out.extend([0; 48]);
    out
}

/// A Zarr array of `shape` and `chunk`, with one chunk of gzip or without.
fn zarr(folder: &Path, name: &str, shape: u64, chunk: u64, stored: Option<&[u8]>) -> PathBuf {
    let path = folder.join(name);
    let codecs = match stored {
        Some(_) => {
            serde_json::json!([{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "zstd", "configuration": {"level": 1, "checksum": false}}])
        }
        None => serde_json::json!([{"name": "bytes", "configuration": {"endian": "little"}}]),
    };
    let metadata = serde_json::json!({
        "zarr_format": 3, "node_type": "array", "shape": [shape], "data_type": "uint8", "fill_value": 0, "attributes": {},
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}}, "codecs": codecs,
    });
    fs::create_dir_all(path.join("c")).unwrap();
    fs::write(path.join("zarr.json"), metadata.to_string()).unwrap();
    if let Some(stored) = stored {
        fs::write(path.join("c/0"), stored).unwrap();
    }
    path
}

/// Files of formats that are only read, or of other libraries.
fn interchange_claims(folder: &Path) -> Vec<PathBuf> {
    let mut paths = vec![
        zarr(folder, "cells.zarr", 1 << 50, 1, None),
        zarr(folder, "absent.zarr", 1 << 50, 1 << 50, None),
        zarr(folder, "many.zarr", 1 << 24, 1, None),
        zarr(folder, "bomb.zarr", 1 << 30, 1 << 30, Some(&zeros(1 << 30))),
    ];
    for (name, records, extent) in
        [("records.nc", 1 << 40, 3), ("fixed.nc", 1, 1 << 60), ("both.nc", 1 << 31, 1 << 31)]
    {
        paths.push(folder.join(name));
        fs::write(folder.join(name), netcdf3(records, extent)).unwrap();
    }
    // Integers of HDF5 files are anywhere: boundary values at many places.
    for name in ["earliest.h5", "latest.h5"] {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hdf5").join(name);
        let whole = fs::read(fixture).unwrap();
        for at in (0..whole.len() - 8).step_by(797) {
            for value in [u64::MAX >> 1, 1 << 32] {
                let mut changed = whole.clone();
                changed[at..at + 8].copy_from_slice(&value.to_le_bytes());
                let path = folder.join(format!("{at}-{value:x}-{name}"));
                fs::write(&path, changed).unwrap();
                paths.push(path);
            }
        }
    }
    paths
}

#[test]
fn interchange_files_with_huge_declared_sizes_use_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let mut limits = 0;
    for path in interchange_claims(folder.path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let target = folder.path().join("out.tet");
        type Operation<'a> = (&'a str, Box<dyn FnOnce() -> Result<()> + 'a>);
        let operations: Vec<Operation<'_>> = vec![
            ("read", Box::new(|| read(&path))),
            ("aggregate", Box::new(|| aggregate(&path))),
            ("verify", Box::new(|| verify(&path))),
            ("convert", Box::new(|| convert(&path, &target))),
        ];
        for (operation, run) in operations {
            if let Err(error) = bounded(&format!("{name}: {operation}"), run) {
                limits += u32::from(matches!(error.kind(), ErrorKind::Limit { .. }));
            }
        }
    }
    assert!(limits > 5, "{limits}");
}

/// A GRIB message of edition 2 with a constant field on a separate grid.
fn grib(columns: u32, rows: u32) -> Vec<u8> {
    grib_packed(columns, rows, 0, &[])
}

/// A GRIB message of edition 2 with a field in a packing, of 16 bits if it has data.
fn grib_packed(columns: u32, rows: u32, template: u8, data: &[u8]) -> Vec<u8> {
    let bits = if data.is_empty() { 0 } else { 16 };
    let mut file = b"GRIB\0\0\0\x02\0\0\0\0\0\0\0\0".to_vec();
    let mut section = |number: u8, body: &[u8]| {
        file.extend((body.len() as u32 + 5).to_be_bytes());
        file.push(number);
        file.extend(body);
    };
    section(1, &[0, 98, 0, 0, 30, 0, 1, 7, 228, 1, 1, 0, 0, 0, 0, 1]);
    let points = (columns * rows).to_be_bytes();
    let mut grid = vec![0; 67];
    grid[1..5].copy_from_slice(&points);
    grid[25..29].copy_from_slice(&columns.to_be_bytes());
    grid[29..33].copy_from_slice(&rows.to_be_bytes());
    section(3, &grid);
    let mut product = vec![0; 29];
    (product[18], product[24]) = (1, 255);
    section(4, &product);
    section(5, &[&points[..], &[0, template, 0x3f, 0xc0, 0, 0, 0, 0, 0, 0, bits, 0, 0, 255]].concat());
    section(6, &[255]);
    section(7, data);
    file.extend(b"7777");
    let len = file.len() as u64;
    file[8..16].copy_from_slice(&len.to_be_bytes());
    file
}

/// Each field can be a variable with attributes and coordinates of its own.
#[test]
fn grib_files_of_many_variables_use_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.grib");
    fs::write(&path, (0..4).flat_map(|i| grib(2 + i, 3)).collect::<Vec<u8>>()).unwrap();
    bounded("four grids", || read(&path)).unwrap();
    let many: Vec<u8> = (0..5600).flat_map(|i| grib(2 + i % 977, 1 + i / 977)).collect();
    fs::write(&path, many).unwrap();
    for operation in [read, aggregate] {
        let error = bounded("many grids", || operation(&path)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
    }
    // Only the first bytes of messages: the first thousand are described.
    fs::write(&path, b"GRIB".repeat(1 << 18)).unwrap();
    bounded("no message", || verify(&path)).unwrap();
    assert!(bounded("no message", || read(&path)).is_err());
}

/// The decoder of JPEG 2000 holds more than the values; the image is examined only if both fit.
#[test]
fn grib_images_count_with_their_work_space() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.grib");
    for (rows, fits) in [(1400, true), (2000, false)] {
        fs::write(&path, grib_packed(2000, rows, 40, &[7; 100])).unwrap();
        let error = bounded("an image", || read(&path)).unwrap_err();
        assert_eq!(matches!(error.kind(), ErrorKind::Limit { .. }), !fits, "{error}");
    }
}

/// Constant objects are verified and aggregated without decoding their cells.
#[test]
fn constant_objects_need_no_cells() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("constant.tgm");
    fs::write(&path, constant(1 << 50)).unwrap();
    bounded("verify", || verify(&path)).unwrap();
    bounded("summary", || {
        let array = Open::new().open(&path)?.array_at(0)?;
        let summary = array.summary(&array.all()?, StatSet::ALL)?;
        assert_eq!(summary.count(), 1 << 50);
        assert_eq!(summary.min(), summary.max());
        Ok(())
    })
    .unwrap();
}

/// Data that expands beyond the limit is rejected with its size, and read once the limit is raised.
#[test]
fn the_expansion_limit_can_be_raised() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zeros.tet");
    let len = 80 << 20;
    fs::write(&path, tet(len, len, Some((len, &zeros(len), 1)))).unwrap();
    let read = |open: Open| {
        let array = open.open(&path)?.array_at(0)?;
        tesseral_engine::read_owned(array.handle(), &array.request(&array.all()?), array.options())
            .map(|cells| cells.bytes().len() as u64)
    };
    let error = read(Open::new()).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { asked, .. } if *asked == len), "{error:?}");
    assert!(error.advice().is_some());
    let raised = Open::new().limits(tesseral::Limits::default().with_expansion(len));
    assert_eq!(read(raised).unwrap(), len);
}

/// A `.tet` file of `count` chunks of `cells` bytes, all of which refer to one stored payload.
fn shared(count: u64, cells: u64, payload: &[u8]) -> Vec<u8> {
    let mut out = tet(count * cells, cells, None);
    // The lengths of the index and its number of rows, then the rows.
    out[24..32].copy_from_slice(&(32 + 104 * count).to_le_bytes());
    out[88..96].copy_from_slice(&count.to_le_bytes());
    let start = out.len() as u64 + 104 * count;
    for i in 0..count {
        out.extend(0_u64.to_le_bytes());
        out.extend(i.to_le_bytes());
        out.extend([0; 56]);
        for n in [start, cells, payload.len() as u64] {
            out.extend(n.to_le_bytes());
        }
        out.extend(1_u32.to_le_bytes());
        out.extend([0; 4]);
    }
    out.extend(payload);
    out
}

fn is_limit(outcome: Result<()>) -> bool {
    outcome.is_err_and(|error| matches!(error.kind(), ErrorKind::Limit { .. }))
}

/// Stored bytes that many chunks share are counted once.
#[test]
fn shared_payloads_are_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shared.tet");
    let cells = 1 << 20;
    // 131 kB stored once would justify all cells if each of 32 chunks counted them.
    let noise: Vec<u8> = (0..131_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut payload = b"\x28\xb5\x2f\xfd\x00\x78".to_vec();
    payload.extend(&(131_000_u32 << 3).to_le_bytes()[..3]);
    payload.extend(noise);
    payload.extend(&zeros(cells - 131_000)[6..]);
    fs::write(&path, shared(32, cells, &payload)).unwrap();
    let limits = tesseral::Limits { total_expansion: 1 << 20, ..tesseral::Limits::default() };
    let summarize = |limits: tesseral::Limits| {
        let array = Open::new().limits(limits).open(&path)?.array_at(0)?;
        array.summary(&array.all()?, StatSet::ALL).map(|summary| summary.count())
    };
    let sum_of_parts = 32 * payload.len() as u64 * tesseral_core::limits::EXPANSION_RATIO;
    assert!(sum_of_parts > 4 * 32 * cells);
    let error = Open::new().limits(limits).open(&path).unwrap().array_at(0).and_then(|array| {
        let all = array.all()?;
        array.blocks(&all, 1 << 20).map(drop)
    });
    assert!(is_limit(error));
    // Decoding counts a quarter: 8 MiB, which 64 times the payload justifies. A payload of a few bytes does not.
    assert_eq!(summarize(limits).unwrap(), 32 * cells);
    fs::write(&path, shared(32, cells, &zeros(cells))).unwrap();
    assert!(is_limit(summarize(limits).map(drop)));
    assert_eq!(summarize(tesseral::Limits::default()).unwrap(), 32 * cells);
}

/// The memory of statistics along a dimension depends on the results, not on the reduced positions.
#[test]
fn folds_need_no_memory_per_position() {
    use tesseral_engine::fold::{AxisRole, Fold, Reducer, fold};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zeros.tet");
    let cells = 16 << 20;
    fs::write(&path, tet(cells, cells, Some((cells, &zeros(cells), 1)))).unwrap();
    let array = Open::new().open(&path).unwrap().array_at(0).unwrap();
    for reducer in [Reducer::Summary(StatSet::ALL), Reducer::Norms, Reducer::Product] {
        let fold_all = || {
            let wanted = Fold::new(vec![reducer.clone()], vec![AxisRole::Reduce]);
            fold(array.handle(), &array.request(&array.all()?), &wanted, array.options()).map(drop)
        };
        let before = HELD.load(Ordering::Relaxed);
        bounded("fold", fold_all).unwrap();
        let most = PEAK.load(Ordering::Relaxed).saturating_sub(before);
        assert!(most <= 40 * MIB, "{reducer:?}: {} MiB for {} MiB of cells", most / MIB, cells >> 20);
    }
}

/// Each array of a file is within the limits, but all of them together are not.
#[test]
fn the_work_on_all_arrays_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("many.tgm");
    let target = folder.path().join("out.tet");
    fs::write(&path, constant(2 << 20).repeat(3)).unwrap();
    convert(&path, &target).unwrap();
    fs::write(&path, constant(2 << 20).repeat(300)).unwrap();
    assert!(is_limit(convert(&path, &target)));
}

/// Units of a fold are as large as chunks allow: several at once would exceed the limit of one chunk.
#[test]
fn filtered_folds_of_constant_objects_stay_small() {
    use tesseral_engine::fold::{AxisRole, Fold, Reducer, fold};
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("constant.tgm");
    fs::write(&path, constant(7 << 20)).unwrap();
    let array = Open::new().open(&path).unwrap().array_at(0).unwrap();
    let field = array.selected_field();
    let finite = tesseral::Condition::is_finite(&field.name, field.dtype);
    let count = || {
        let wanted = Fold::new(vec![Reducer::Product], vec![AxisRole::Reduce]);
        let mut request = array.request(&array.all()?);
        request.condition = Some(finite.clone());
        fold(array.handle(), &request, &wanted, array.options()).map(drop)
    };
    bounded("fold", count).unwrap();
}

/// An overview holds the cells of a block and its points, not a value per cell.
#[test]
fn overviews_stay_small() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("zeros.tet");
    let cells = 16 << 20;
    fs::write(&path, tet(cells, cells, Some((cells, &zeros(cells), 1)))).unwrap();
    let array = Open::new().open(&path).unwrap().array_at(0).unwrap();
    let before = HELD.load(Ordering::Relaxed);
    let view = || {
        let overview = tesseral::overview(&array, &array.all()?, [960, 960])?;
        assert_eq!((overview.cells, overview.points.len()), (cells, 960));
        assert!(overview.points.iter().all(|point| *point == tesseral::Point::Value(0.0)));
        Ok(())
    };
    bounded("overview", view).unwrap();
    let most = PEAK.load(Ordering::Relaxed).saturating_sub(before);
    assert!(most <= 32 * MIB, "{} MiB", most / MIB);
}

/// Of cells that are hardly stored, an overview decodes as few as other operations.
#[test]
fn overviews_of_little_that_is_stored_read_samples() {
    let folder = tempfile::tempdir().unwrap();
    let path = zarr(folder.path(), "unwritten.zarr", 1 << 34, 1 << 20, None);
    for (limit, most) in [(None, 64 << 20), (Some(8 << 20), 8 << 20)] {
        let limits = limit
            .map_or(tesseral::Limits::default(), |bytes| tesseral::Limits::default().with_expansion(bytes));
        let array = Open::new().limits(limits).open(&path).unwrap().array_at(0).unwrap();
        let size = array.selected_field().cell_size().unwrap() as u64;
        let overview = tesseral::overview(&array, &array.all().unwrap(), [960, 960]).unwrap();
        assert!((most / 2..=most).contains(&(overview.cells * size)), "{}", overview.cells);
    }
}

/// Rows have coordinates, which no chunk of a dense array stores: they must not prevent its plan.
#[test]
fn rows_of_arrays_beyond_the_free_limit_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plain.tet");
    let cells = vec![7; 4096];
    fs::write(&path, tet(4096, 4096, Some((4096, &cells, 0)))).unwrap();
    let limits = tesseral::Limits { total_expansion: 1024, ..tesseral::Limits::default() };
    let array = Open::new().limits(limits).open(&path).unwrap().array_at(0).unwrap();
    let query = array.cells().unwrap().only(&[tesseral::Column::Dim(0), tesseral::Column::Field(0)]);
    let rows: usize = query.batches().unwrap().map(|batch| batch.unwrap().rows).sum();
    assert_eq!(rows, 4096);
}

/// Files of at most 1 MiB whose metadata are lists of short values, with the number of values.
fn valued(folder: &Path, values: usize) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for (name, unit) in [("numbers", "0"), ("lists", "[0]"), ("maps", "{\"\":0}"), ("texts", "\"\"")] {
        let count = values.min((MIB - 1000) / (unit.len() + 1));
        let path = zarr(folder, &format!("{name}.zarr"), 2, 2, None);
        let metadata = fs::read_to_string(path.join("zarr.json")).unwrap();
        let list = vec![unit; count].join(",");
        let attributes = format!("\"attributes\":{{\"a\":[{list}]}}");
        fs::write(path.join("zarr.json"), metadata.replace("\"attributes\":{}", &attributes)).unwrap();
        paths.push(path);
    }
    for (name, unit) in [
        ("numbers", &b"\0"[..]),
        ("lists", &b"\x81\0"[..]),
        ("maps", &b"\xa1\x60\0"[..]),
        ("texts", &b"\x60"[..]),
    ] {
        let count = values.min((MIB - 1000) / unit.len());
        let mut list = vec![0x9a];
        list.extend((count as u32).to_be_bytes());
        list.extend(unit.repeat(count));
        let own = |list| Item::Map(vec![("a", Item::Encoded(list))]);
        let base = |own| ("base", Item::List(vec![own]));
        let metadata = [
            ("object", Item::Map(vec![base(own(list.clone()))])),
            ("message", Item::Map(vec![base(Item::Map(Vec::new())), ("_extra_", own(list))])),
        ];
        for (place, metadata) in metadata {
            let path = folder.join(format!("{name}-{place}.tgm"));
            fs::write(&path, message(&metadata, "uint8", 1, Vec::new(), &[7])).unwrap();
            paths.push(path);
        }
    }
    paths
}

#[test]
fn values_of_metadata_use_little_memory() {
    let folder = tempfile::tempdir().unwrap();
    for (values, is_read) in [(usize::MAX, false), (15_000, true)] {
        for path in valued(folder.path(), values) {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let target = |ending: &str| folder.path().join(format!("out.{ending}"));
            type Operation<'a> = (&'a str, Box<dyn FnOnce() -> Result<()> + 'a>);
            let operations: Vec<Operation<'_>> = vec![
                ("read", Box::new(|| read(&path))),
                ("convert to .tet", Box::new(|| convert(&path, &target("tet")))),
                ("convert to .tgm", Box::new(|| convert(&path, &target("tgm")))),
                ("convert to TileDB", Box::new(|| convert(&path, &target("tdb")))),
            ];
            for (operation, run) in operations {
                match bounded(&format!("{name}: {operation} of {values}"), run) {
                    Ok(()) => assert!(is_read, "{name}: {operation}"),
                    Err(error) if is_read => panic!("{name}: {operation}: {error}"),
                    Err(error) => assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{name}: {error}"),
                }
            }
        }
    }
}
