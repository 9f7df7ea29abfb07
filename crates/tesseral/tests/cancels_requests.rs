//! Operations that wait for the answer of a server end when they are canceled, and at their deadline.
#![cfg(feature = "remote")]
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::Case;
use object_store::memory::InMemory;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use tesseral::store::{RemoteStore, Store, StoreExt};
use tesseral::{
    Cancel, Container, Create, DType, Error, ErrorKind, Open, Options, Overwrite, Result, Selection,
};

/// Longer than any test runs.
const NEVER: Duration = Duration::from_secs(3600);
const SHAPE: [u64; 2] = [640, 200];

/// A server with one file of 64 chunks, which answers at once until it is set otherwise.
struct Server(Arc<ThrottledStore<InMemory>>);

impl Server {
    fn new(format: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (path, case) =
            (folder.path().join("x"), Case::counting(DType::UInt32, &SHAPE, &[10, 200], "raw"));
        let mut session = Create::new().begin(&path, format).unwrap();
        let id = session.add(&case.spec("x")).unwrap();
        session.write(id, &case.cells).unwrap();
        session.commit().unwrap();
        let client = Arc::new(ThrottledStore::new(InMemory::new(), ThrottleConfig::default()));
        let store = RemoteStore::with_client("remote", client.clone(), "set").unwrap();
        store.put("", &fs::read(&path).unwrap(), Overwrite::Refuse).unwrap();
        Self(client)
    }

    fn store(&self) -> Arc<dyn Store> {
        Arc::new(RemoteStore::with_client("remote", self.0.clone(), "set").unwrap())
    }

    fn open(&self) -> Container {
        Open::new().open_store(self.store()).unwrap()
    }

    /// Requests are not answered any more.
    fn stall(&self) {
        self.0.config_mut(|config| {
            config.wait_get_per_call = NEVER;
            config.wait_list_with_delimiter_per_call = NEVER;
            config.wait_put_per_call = NEVER;
        });
    }
}

/// The error of an operation that is canceled while it waits.
fn canceled<T>(operation: impl FnOnce(&Cancel) -> Result<T>) -> Error {
    let cancel = Cancel::default();
    let other = cancel.clone();
    let user = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(50));
        other.cancel();
    });
    let error = operation(&cancel).err().unwrap();
    user.join().unwrap();
    error
}

fn is_canceled(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Cancelled)
}

#[test]
fn opening_is_canceled() {
    let server = Server::new("tet");
    server.stall();
    let error = canceled(|cancel| {
        let store = server.store().canceled_by(cancel).unwrap();
        Open::new().open_store(store)
    });
    assert!(is_canceled(&error), "{error}");
}

/// Requests of the threads that read ahead end too, and those of the operation alone: another one still has its answers.
#[test]
fn reading_is_canceled() {
    for format in ["tet", "tensogram"] {
        let server = Server::new(format);
        let array = server.open().array_at(0).unwrap();
        let all = Selection::all(&SHAPE);
        server.stall();
        let error = canceled(|cancel| {
            array.clone().with_options(Options::default().with_cancel(cancel.clone())).read(&all)
        });
        assert!(is_canceled(&error), "{format}: {error}");
        server.0.config_mut(|config| *config = ThrottleConfig::default());
        assert_eq!(array.read(&all).unwrap().bytes().len(), 640 * 200 * 4);
    }
}

#[test]
fn uploads_are_canceled() {
    let server = Server::new("tet");
    server.stall();
    let error = canceled(|cancel| {
        let store = server.store().canceled_by(cancel).unwrap();
        store.put("other", b"bytes", Overwrite::Replace)
    });
    assert!(is_canceled(&error), "{error}");
}

#[test]
fn a_deadline_ends_requests() {
    let server = Server::new("tet");
    let array = server.open().array_at(0).unwrap();
    server.stall();
    let cancel = Cancel::at(Instant::now() + Duration::from_millis(50));
    let array = array.with_options(Options::default().with_cancel(cancel));
    let error = array.read(&Selection::all(&SHAPE)).err().unwrap();
    let late = |error: &Error| matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == std::io::ErrorKind::TimedOut);
    assert!(late(&error), "{error}");
}
