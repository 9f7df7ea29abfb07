//! For a fault at any store call, an error is returned, nothing is partially written, and retrying succeeds.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Case, behind, memory, options, select, threads};
use tesseral::{CreateOptions, DType, Error, ErrorKind, Open, Options, Result, Selection, StatSet};
use tesseral_engine::WriteSession;
use tesseral_store::test_wrappers::{Call, CallHook, FaultInjection, Wrapped};
use tesseral_store::{MemoryStore, Overwrite, Profile, Store, StoreExt};

fn injected(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { op: "reach", .. })
}

/// Runs `work` with a fault at call 0, 1, 2, … until there are no more calls; returns the number of calls.
fn at_every_call(work: impl Fn(&Arc<FaultInjection>) -> Result<()>) -> u64 {
    for n in 0..10_000 {
        let fault = Arc::new(FaultInjection::at(n));
        match work(&fault) {
            Err(error) => assert!(injected(&error), "call {n}: {error:?}"),
            Ok(()) => {
                assert!(fault.calls() <= n, "the fault at call {n} was not reported");
                return n;
            }
        }
    }
    panic!("too many calls");
}

/// A store across a network: reads of the threads that read ahead panic once it is armed, others wait until one has.
#[derive(Debug, Default)]
struct Panicking {
    armed: AtomicBool,
    panicked: AtomicBool,
}

impl CallHook for Panicking {
    fn before(&self, call: Call<'_>) -> Result<()> {
        if !matches!(call, Call::Read(..)) || !self.armed.load(Ordering::Relaxed) {
            return Ok(());
        }
        if std::thread::current().name() == Some("tesseral-ahead") {
            self.panicked.store(true, Ordering::Relaxed);
            panic!("a defect of the store");
        }
        while !self.panicked.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        Ok(())
    }

    fn profile(&self, _: Profile) -> Profile {
        Profile { gap: 0, request: 1, ..Profile::NETWORK }
    }
}

#[test]
fn a_panic_of_a_read_ahead_is_an_error() {
    // More batches than workers, so that some are read ahead.
    let case = Case::counting(DType::Float64, &[64, 8192], &[1, 8192], "raw");
    let bytes = case.write_with(&options(false, false, None), Options::default());
    let hook = Arc::new(Panicking::default());
    let array = common::array(behind(&bytes, &hook)).with_options(threads(2));
    let all = Selection::all(&case.shape);
    assert_eq!(array.read(&all).unwrap().bytes(), case.slice(&all));
    hook.armed.store(true, Ordering::Relaxed);
    let error = array.read(&all).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Internal { .. }), "{error:?}");
}

#[test]
fn faults_while_reading() {
    // Chunks of 100 KiB with gaps between the selected ones: several requests.
    let case = Case::counting(DType::Float64, &[12, 12_800], &[1, 12_800], "raw");
    let zstd = Case::counting(DType::Int32, &[30, 30], &[7, 7], "zstd");
    for (case, wanted) in
        [(&case, select(&case.shape, &[(0, 12, 3), (5, 20, 1)])), (&zstd, Selection::all(&[30, 30]))]
    {
        let bytes = case.write();
        for n in [1, 4] {
            let calls = at_every_call(|fault| {
                let open = Open::new().execution(threads(n));
                let array = open.open_store(behind(&bytes, fault))?.array("a")?;
                assert_eq!(array.read(&wanted)?.bytes(), case.slice(&wanted));
                Ok(())
            });
            assert!(calls >= 3, "{calls}");
            at_every_call(|fault| {
                let array =
                    Open::new().execution(threads(n)).open_store(behind(&bytes, fault))?.array("a")?;
                assert_eq!(array.summary(&wanted, StatSet::ALL)?.count(), wanted.cells().unwrap());
                Ok(())
            });
        }
    }
}

/// A fault is not damage: verify must not report damage for I/O errors.
#[test]
fn faults_while_verifying() {
    let bytes = Case::counting(DType::Int32, &[30, 30], &[7, 7], "zstd").write();
    let format = tesseral::format("tet").unwrap();
    let calls = at_every_call(|fault| {
        let open = tesseral::OpenOptions::default();
        let mut findings = Vec::new();
        let verified =
            tesseral_engine::verify(format, behind(&bytes, fault), &open, true, &threads(2), &mut |f| {
                findings.push(f)
            })?;
        assert!(verified.ok, "{findings:?}");
        Ok(())
    });
    assert!(calls >= 26, "{calls}");
}

#[test]
fn faults_while_writing() {
    let old = Case::counting(DType::UInt8, &[3], &[3], "raw").write();
    for codec in ["raw", "zstd"] {
        let case = Case::counting(DType::Int32, &[30, 30], &[7, 7], codec);
        for n in [1, 4] {
            let calls = at_every_call(|fault| {
                let inner: Arc<dyn Store> = Arc::new(MemoryStore::with_object("out.tet", old.clone()));
                let store: Arc<dyn Store> = Arc::new(Wrapped::new(Arc::clone(&inner), Arc::clone(fault)));
                let create = CreateOptions { overwrite: Overwrite::Replace, ..options(true, true, None) };
                let outcome = (|| {
                    let writer = tesseral::format("tet")?.create(store, &create)?;
                    let mut session = WriteSession::new(writer, threads(n));
                    let array = session.add(&case.spec("a"))?;
                    session.write(array, &case.cells)?;
                    session.commit()
                })();
                let now = inner.read_all("", u64::MAX).unwrap();
                if outcome.is_err() {
                    assert_eq!(now, old, "an output is published only when complete");
                } else {
                    assert_eq!(
                        common::array(memory(&now)).read(&Selection::all(&[30, 30]))?.bytes(),
                        case.cells
                    );
                }
                outcome
            });
            assert!(calls >= 25, "{calls}");
        }
    }
}

/// Found by truncating files at random during reads: metadata borrowed from the map ended the process.
#[test]
fn a_file_truncated_while_open_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    for (name, format) in [("a.tet", "tet"), ("a.tgm", "tensogram")] {
        let path = folder.path().join(name);
        let mut session = tesseral::Create::new().begin(&path, format).unwrap();
        let spec = tesseral::ArraySpec::raw(tesseral::ArraySchema::dense(
            "a",
            tesseral::DType::Float64,
            &[50_000],
            &[10],
        ));
        let array = session.add(&spec).unwrap();
        session.write(array, &[1; 400_000]).unwrap();
        session.commit().unwrap();
        let whole = std::fs::read(&path).unwrap();
        for len in [0, 100, 5_000, whole.len() / 2, whole.len() - 1] {
            std::fs::write(&path, &whole).unwrap();
            let container = tesseral::open(&path).unwrap();
            std::fs::File::options().write(true).open(&path).unwrap().set_len(len as u64).unwrap();
            let read = container.array_at(0).and_then(|array| array.read(&array.all()?));
            assert!(read.is_err(), "{name} cut to {len}");
        }
    }
}
