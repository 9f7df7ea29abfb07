//! The threads that make requests: one runtime for the process, started by the first request.
//!
//! Callers are plain threads. They hand a future over and wait on a channel, so that they can themselves belong to another
//! runtime.

use std::future::Future;
use std::mem;
use std::sync::{Arc, Mutex, PoisonError, mpsc};

use tesseral_core::{Error, Result};
use tokio::runtime::{Builder, Runtime};

/// Number of threads that drive requests.
const WORKERS: usize = 2;

/// The runtime of the process that started it.
static RUNTIME: Mutex<Option<(u32, Arc<Runtime>)>> = Mutex::new(None);

/// Returns the runtime of this process. The threads of a parent process do not exist in a forked one, which starts its own.
fn runtime() -> Result<Arc<Runtime>> {
    let mut held = RUNTIME.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    match &*held {
        Some((started_by, runtime)) if *started_by == process => return Ok(Arc::clone(runtime)),
        _ => {}
    }
    // Dropping a runtime waits for its threads, which are those of the parent.
    mem::forget(held.take());
    let started = Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .thread_name("tesseral-remote")
        .enable_all()
        .build()
        .map_err(|e| Error::io("start", "the threads for requests", e))?;
    let runtime = Arc::new(started);
    *held = Some((process, Arc::clone(&runtime)));
    Ok(runtime)
}

/// Chooses the implementation of TLS, which must be done before the first client is made.
pub(crate) fn choose_tls() {
    // Another part of the program may have chosen one: the first choice stays.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// Runs a future to its end on the runtime.
///
/// # Errors
/// `Io` if the runtime cannot be started, `Internal` if the future panicked.
pub(crate) fn wait<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Result<T> {
    let (send, receive) = mpsc::sync_channel(1);
    runtime()?.spawn(async move {
        // The receiver waits below, so that sending cannot fail.
        let _ = send.send(future.await);
    });
    receive.recv().map_err(|_| Error::internal("a request ended without a response"))
}
