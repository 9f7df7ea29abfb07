//! Memory limits, cancellation and progress of all operations.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use common::{Case, array, behind, memory, options, threads};
use tesseral::{
    CreateOptions, DType, ErrorKind, MemoryBudget, Open, Options, Progress, Result, Selection, StatSet,
};
use tesseral_engine::WriteSession;
use tesseral_store::test_wrappers::Counting;
use tesseral_store::{MemoryStore, StoreExt};

fn tiles() -> Case {
    Case::counting(DType::Float32, &[40, 50], &[16, 16], "zstd")
}

#[test]
fn results_beyond_the_limit_are_rejected() {
    let bytes = tiles().write();
    let open = |limit: u64| Open::new().memory(limit).open_store(memory(&bytes)).unwrap().array("a").unwrap();
    let all = Selection::all(&[40, 50]);
    let error = open(7_999).read(&all).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { asked: 8_000, allowed: 7_999, .. }), "{error:?}");
    assert!(error.advice().is_some());
    assert_eq!(open(8_000).read(&all).unwrap().bytes(), tiles().cells);

    // Streaming operations do not hold the whole result.
    let array = open(2_000);
    assert_eq!(array.summary(&all, StatSet::ALL).unwrap().count(), 2_000);
    let blocks: Vec<u8> =
        array.blocks(&all, 2_000).unwrap().flat_map(|b| array.read(&b).unwrap().bytes().to_vec()).collect();
    assert_eq!(blocks, tiles().cells);
}

#[test]
fn views_take_no_memory() {
    let case = Case::counting(DType::Float32, &[40, 50], &[40, 50], "raw");
    let array = Open::new().memory(1).open_store(memory(&case.write())).unwrap().array("a").unwrap();
    assert!(array.read(&array.all().unwrap()).unwrap().is_borrowed());
}

#[test]
fn the_budget_of_a_file_applies_unless_overridden() {
    let case = tiles();
    let bytes = case.write_with(&options(true, false, Some(MemoryBudget::Bytes(5_000))), Options::default());
    let all = Selection::all(&[40, 50]);
    let error = array(memory(&bytes)).read(&all).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { asked: 8_000, allowed: 5_000, .. }), "{error:?}");
    let overruled = Open::new().memory(1 << 20).open_store(memory(&bytes)).unwrap().array("a").unwrap();
    assert_eq!(overruled.read(&all).unwrap().bytes(), case.cells);
    let part =
        case.write_with(&options(true, false, Some(MemoryBudget::BasisPoints(5_000))), Options::default());
    assert_eq!(array(memory(&part)).read(&all).unwrap().bytes(), case.cells);
}

#[test]
fn chunk_limits_apply_before_decoding() {
    let bytes = tiles().write();
    let limits = tesseral::Limits { chunk_bytes: 1_000, ..tesseral::Limits::default() };
    let refused = Open::new().limits(limits).open_store(memory(&bytes)).and_then(|c| {
        let array = c.array("a")?;
        array.read(&array.all()?).map(drop)
    });
    let error = refused.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Limit { asked: 1_024, allowed: 1_000, .. }), "{error:?}");
}

/// Options that record every step and cancel after `stop` of them.
fn watched(stop: u64, threads_: usize) -> (Options, Arc<Mutex<Vec<Progress>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut options = threads(threads_);
    let (cancel, steps, count) = (options.cancel.clone(), Arc::clone(&seen), AtomicU64::new(0));
    options.progress = Some(Arc::new(move |progress| {
        steps.lock().unwrap().push(progress);
        if count.fetch_add(1, Ordering::Relaxed) + 1 >= stop {
            cancel.cancel();
        }
    }));
    (options, seen)
}

type Operation = fn(Options) -> Result<()>;

/// Operations on 12 chunks, by name.
fn operations() -> Vec<(&'static str, Operation)> {
    fn opened(options: Options) -> tesseral::Array {
        array(behind(&tiles().write(), &Arc::new(Counting::default()))).with_options(options)
    }
    vec![
        ("read", |o| {
            let array = opened(o);
            array.read(&array.all()?).map(drop)
        }),
        ("mapped read", |o| {
            let array = array(memory(&tiles().write())).with_options(o);
            array.read(&array.all()?).map(drop)
        }),
        ("summary", |o| {
            let array = opened(o);
            array.summary(&array.all()?, StatSet::ALL).map(drop)
        }),
        ("reduce", |o| {
            let array = opened(o);
            array.reduce(&array.all()?, &[0], StatSet::SUM).map(drop)
        }),
        ("write", |o| {
            let store = Arc::new(MemoryStore::new("out.tet"));
            let writer = tesseral::format("tet")?.create(store.clone(), &CreateOptions::default())?;
            let mut session = WriteSession::new(writer, o);
            let id = session.add(&tiles().spec("a"))?;
            let outcome = session.write(id, &tiles().cells).and_then(|()| session.commit());
            assert_eq!(store.exists("").unwrap(), outcome.is_ok(), "published if and only if it succeeded");
            outcome
        }),
        ("verify", |o| {
            let store = memory(&tiles().write());
            let format = tesseral::format("tet")?;
            tesseral_engine::verify(format, store, &tesseral::OpenOptions::default(), true, &o, &mut drop)
                .map(drop)
        }),
    ]
}

#[test]
fn progress_counts_every_chunk_once() {
    for (name, operation) in operations() {
        for n in [1, 3] {
            let (options, seen) = watched(u64::MAX, n);
            operation(options).unwrap();
            let mut seen = seen.lock().unwrap().clone();
            seen.sort_by_key(|p| p.done);
            let want: Vec<_> = (1..=12).map(|done| Progress { done, total: 12 }).collect();
            assert_eq!(seen, want, "{name} on {n} threads");
        }
    }
}

#[test]
fn canceled_operations_stop() {
    for (name, operation) in operations() {
        let options = Options::default();
        options.cancel.cancel();
        assert!(
            matches!(operation(options).unwrap_err().kind(), ErrorKind::Cancelled),
            "{name} before it began"
        );
        let (options, seen) = watched(3, 1);
        assert!(
            matches!(operation(options).unwrap_err().kind(), ErrorKind::Cancelled),
            "{name} after three chunks"
        );
        assert_eq!(seen.lock().unwrap().len(), 3, "{name} continued");
    }
}
