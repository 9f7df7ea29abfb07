//! A memory-mapped file that another process truncates during a read: correct cells or an error, never a signal or zeros.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use common::Case;
use tesseral::{
    Array, ArraySpec, ConvertOptions, Create, DType, ErrorKind, Open, Options, Result, Selection, StatSet,
};
use tesseral_tensogram::{DecodeOptions, TensogramFile};

/// No cell is 0, so that zero pages are detected.
fn case(codec: &'static str) -> Case {
    let mut case = Case::counting(DType::UInt32, &[64, 64, 32], &[16, 64, 32], codec);
    case.cells.chunks_exact_mut(4).for_each(|cell| cell[3] = 1);
    case
}

/// An array, and the file that is truncated.
struct Sample {
    path: PathBuf,
    file: PathBuf,
    cells: Vec<u8>,
    whole: Vec<u8>,
}

fn sample(folder: &Path, format: &str, codec: &'static str) -> Sample {
    let case = case(codec);
    let path = folder.join(format!("{format}-{codec}"));
    let codecs = if codec == "raw" { Vec::new() } else { vec![codec.parse().unwrap()] };
    let spec = ArraySpec { codecs: vec![codecs], ..case.spec("x") };
    let mut session = Create::new().begin(&path, format).unwrap();
    let id = session.add(&spec).unwrap();
    session.write(id, &case.cells).unwrap();
    session.commit().unwrap();
    let file = largest(&path);
    Sample { cells: case.cells, whole: fs::read(&file).unwrap(), path, file }
}

fn largest(path: &Path) -> PathBuf {
    if path.is_file() {
        return path.to_owned();
    }
    let files = fs::read_dir(path).unwrap().map(|entry| largest(&entry.unwrap().path()));
    files.filter(|p| p.is_file()).max_by_key(|p| p.metadata().unwrap().len()).unwrap_or(path.to_owned())
}

const SAMPLES: [(&str, &str); 6] = [
    ("tet", "raw"),
    ("tet", "zstd"),
    ("tensogram", "raw"),
    ("tensogram", "zstd"),
    ("tiledb", "raw"),
    ("tiledb", "zstd"),
];

impl Sample {
    fn array(&self) -> Array {
        self.open().unwrap()
    }

    fn open(&self) -> Result<Array> {
        // Without digests, which would detect most truncations before the guard.
        Open::new().without_digests().open(&self.path)?.array_at(0)
    }

    fn cut(&self, len: usize) {
        File::options().write(true).open(&self.file).unwrap().set_len(len as u64).unwrap();
    }

    fn restore(&self) {
        // A new file: existing maps keep the old one.
        let fresh = self.file.with_extension("fresh");
        fs::write(&fresh, &self.whole).unwrap();
        fs::rename(fresh, &self.file).unwrap();
    }
}

fn is_cut<T>(result: Result<T>) -> bool {
    matches!(result.err().unwrap().kind(), ErrorKind::Corrupt { .. })
}

#[test]
fn a_truncation_inside_an_operation_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for (format, codec) in SAMPLES {
        let sample = sample(folder.path(), format, codec);
        // In missing pages, and in the last page, which raises no signal.
        for len in [0, sample.whole.len() / 2, sample.whole.len() - 3] {
            let array = sample.array();
            let all = array.all().unwrap();
            assert_eq!(array.read(&all).unwrap().bytes(), sample.cells);
            let seen = array.read_with(&all, |first| {
                sample.cut(len);
                Ok(first.bytes().iter().map(|b| u64::from(*b)).sum::<u64>())
            });
            assert!(is_cut(seen), "{format} {codec} {len}");
            // The same error is returned again.
            assert!(is_cut(array.summary(&all, StatSet::ALL)), "{format} {codec} {len}");
            sample.restore();
            assert_eq!(read_owned(&sample.array(), &all).unwrap().bytes(), sample.cells);
        }
    }
}

/// Reads cells, never as a view of the file.
fn read_owned(array: &Array, selection: &Selection) -> Result<tesseral::Dense> {
    tesseral_engine::read_owned(array.handle(), &array.request(selection), array.options())
}

/// Opens and reads in every way; each result is correct, or an error.
fn reads(sample: &Sample) -> Result<()> {
    let wrong = |what: &str| panic!("{what} of {} gave wrong cells", sample.path.display());
    let array = sample.open()?;
    let all = array.all()?;
    if read_owned(&array, &all)?.bytes() != sample.cells {
        wrong("read_owned");
    }
    array
        .read_with(&all, |cells| {
            // The result is dropped if the file was truncated.
            Ok(cells.bytes() == sample.cells)
        })
        .map(|same| {
            if !same {
                wrong("read_with")
            }
        })?;
    let mut into = vec![0; sample.cells.len()];
    array.read_into(&all, &mut into, None)?;
    if into != sample.cells {
        wrong("read_into");
    }
    let summary = array.summary(&all, StatSet::ALL)?;
    if summary.count() != 64 * 64 * 32 || summary.min().is_none_or(|m| m.as_i128() < Some(1 << 24)) {
        wrong("summary");
    }
    let along = array.reduce(&all, &[0, 2], StatSet::ALL)?;
    if along.min().iter().any(|m| m.as_ref().is_none_or(|m| m.as_i128() < Some(1 << 24))) {
        wrong("reduce");
    }
    let window =
        Selection::new(all.slices().iter().map(|s| tesseral::Slice::new(s.end - 2, s.end)), &[64, 64, 32])?;
    if read_owned(&array, &window)?.bytes().chunks_exact(4).any(|cell| cell[3] != 1) {
        wrong("a window");
    }
    for batch in array.cells()?.batches()? {
        let batch = batch?;
        let (_, cells) = batch.columns.last().unwrap();
        if cells.data().chunks_exact(4).any(|cell| cell[3] != 1) {
            wrong("batches");
        }
    }
    array.chunks(&all).map(drop)
}

#[test]
fn truncations_at_any_time_give_cells_or_errors() {
    const ROUNDS: usize = 60;
    let folder = tempfile::tempdir().unwrap();
    for (format, codec) in SAMPLES {
        let sample = sample(folder.path(), format, codec);
        reads(&sample).unwrap();
        let (answers, errors) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let mut seed = 88_172_645_463_325_252_u64;
        let mut random = |n: usize| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            usize::try_from(seed % n as u64).unwrap()
        };
        for _ in 0..ROUNDS {
            sample.restore();
            let done = AtomicBool::new(false);
            let (wait, len) = (random(4000), random(sample.whole.len()));
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while !done.load(Ordering::Relaxed) {
                            let told = reads(&sample);
                            (if told.is_ok() { &answers } else { &errors }).fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                std::thread::sleep(Duration::from_micros(wait as u64));
                sample.cut(len);
                std::thread::sleep(Duration::from_millis(2));
                done.store(true, Ordering::Relaxed);
            });
        }
        let counts = [answers, errors].map(AtomicUsize::into_inner);
        assert!(counts[1] > ROUNDS / 2, "{format} {codec}: {counts:?}");
    }
}

#[test]
fn truncated_sources_give_complete_outputs_or_none() {
    let folder = tempfile::tempdir().unwrap();
    for (format, codec) in SAMPLES {
        let sample = sample(folder.path(), format, codec);
        let target = folder.path().join(format!("{format}-{codec}.out.tet"));
        for round in 0..30_u64 {
            sample.restore();
            let options = ConvertOptions::new().overwrite();
            let converted = std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_micros(round * 150));
                    sample.cut(sample.whole.len() / 3);
                });
                let source = Open::new().without_digests().open(&sample.path)?;
                tesseral::convert(&source, &target, &options)
            });
            if converted.is_ok() {
                let cells = Open::new().open(&target).unwrap().array_at(0).unwrap();
                assert_eq!(read_owned(&cells, &cells.all().unwrap()).unwrap().bytes(), sample.cells);
            }
        }
    }
}

#[test]
fn verify_reports_the_truncation() {
    let folder = tempfile::tempdir().unwrap();
    let sample = sample(folder.path(), "tet", "raw");
    let open = Open::new();
    let store = open.store(&sample.path).unwrap();
    let format = tesseral::recognize(&*store).unwrap();
    let mut found = 0;
    let verified =
        tesseral_engine::verify(format, store, open.format_options(), true, &Options::default(), &mut |_| {
            found += 1;
            sample.cut(sample.whole.len() / 2);
        });
    assert!(found > 0 && is_cut(verified));
}

#[test]
fn messages_are_complete_or_errors() {
    let folder = tempfile::tempdir().unwrap();
    for codec in ["raw", "zstd"] {
        let sample = sample(folder.path(), "tensogram", codec);
        for round in 0..40_u64 {
            sample.restore();
            let file = TensogramFile::open_mmap(&sample.path);
            let mut answers = 0;
            std::thread::scope(|scope| {
                let cutter = scope.spawn(|| {
                    std::thread::sleep(Duration::from_micros(round * 40));
                    sample.cut(sample.whole.len() / 4);
                });
                loop {
                    let over = cutter.is_finished();
                    // A view of raw cells would be accessed outside the operation: only decoded cells are checked.
                    match file.decode_message(0, &DecodeOptions::default()) {
                        Ok((_, objects)) if codec == "zstd" => assert_eq!(objects[0].1, sample.cells),
                        Ok(_) => {}
                        Err(_) if over => break,
                        Err(_) => {}
                    }
                    answers += 1;
                    assert!(answers < 1_000_000);
                }
            });
        }
    }
}
