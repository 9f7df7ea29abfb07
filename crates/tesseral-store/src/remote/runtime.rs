//! The threads that make requests: one runtime for the process, started by the first request.
//!
//! Callers are plain threads. They hand a future over and wait on a channel, so that they can themselves belong to another
//! runtime. A canceled operation drops its future, which closes the connection of a request that is under way.

use std::future::Future;
use std::mem;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::task::{Context, Poll};

use futures_util::future::{Either, select};
use tesseral_core::{Cancel, Error, Result};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;

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

/// Runs a future on the runtime to its end, or until the operation is canceled or its deadline has passed.
///
/// # Errors
/// `Cancelled`, `Io` after the deadline or if the runtime cannot be started, `Internal` if the future panicked.
pub(crate) fn wait<T: Send + 'static>(
    cancel: &Cancel,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    let done = wait_with(cancel, |mut stop| async move { stop.or(future).await })?;
    done.map_or_else(|| cancel.check().and(Err(Error::cancelled())), Ok)
}

/// As [`wait`], but the future decides how to end when cancellation is requested.
pub(crate) fn wait_with<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    cancel: &Cancel,
    make: impl FnOnce(Stop) -> F,
) -> Result<T> {
    cancel.check()?;
    let (ask, asked) = oneshot::channel();
    let _waiting = cancel.notify(move || {
        // There is no receiver if the future has ended.
        let _ = ask.send(());
    });
    let deadline = cancel.remaining().map(|remaining| Instant::now() + remaining);
    let future = make(Stop { asked, deadline });
    let (send, receive) = mpsc::sync_channel(1);
    runtime()?.spawn(async move {
        // The receiver waits below, so that sending cannot fail.
        let _ = send.send(future.await);
    });
    receive.recv().map_err(|_| Error::internal("a request ended without a response"))
}

/// Requests cancellation of a future.
pub(crate) struct Stop {
    asked: oneshot::Receiver<()>,
    deadline: Option<Instant>,
}

impl Stop {
    /// Runs a future unless the operation is canceled or its deadline passes before it ends.
    pub(crate) async fn or<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        let deadline = self.deadline;
        let asked = async {
            if (&mut self.asked).await.is_err() {
                // The caller no longer waits: there is no request.
                std::future::pending::<()>().await;
            }
        };
        let requested = async {
            match deadline {
                Some(deadline) => drop(tokio::time::timeout_at(deadline, asked).await),
                None => asked.await,
            }
        };
        match select(pin!(future), pin!(requested)).await {
            Either::Left((done, _)) => Some(done),
            Either::Right(_) => None,
        }
    }
}

/// A task that ends when its result is no longer awaited.
pub(crate) struct OwnedTask<T>(JoinHandle<T>);

/// Starts a task, so that all threads of the runtime take part in its work.
pub(crate) fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> OwnedTask<T> {
    OwnedTask(tokio::spawn(future))
}

impl<T> Future for OwnedTask<T> {
    type Output = std::result::Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(context)
    }
}

impl<T> Drop for OwnedTask<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use tesseral_core::ErrorKind;

    #[test]
    fn a_canceled_wait_ends_at_once_and_ends_its_tasks() {
        let cancel = Cancel::default();
        let (begun, has_begun) = mpsc::channel();
        let (ended, has_ended) = mpsc::channel::<()>();
        let own = cancel.clone();
        let waiting = std::thread::spawn(move || {
            wait(&own, async move {
                let task = spawn(async move {
                    // Dropped with the task.
                    let _ended = ended;
                    begun.send(()).unwrap();
                    std::future::pending::<()>().await;
                });
                task.await
            })
        });
        has_begun.recv().unwrap();
        cancel.cancel();
        assert!(matches!(waiting.join().unwrap().unwrap_err().kind(), ErrorKind::Cancelled));
        assert!(has_ended.recv().is_err());
        // Nothing begins any more.
        assert!(wait(&cancel, async { 1 }).is_err());
    }

    #[test]
    fn a_deadline_ends_a_wait() {
        let cancel = Cancel::at(Instant::now() + Duration::from_millis(20));
        let late = wait(&cancel, std::future::pending::<()>()).unwrap_err();
        assert!(
            matches!(late.kind(), ErrorKind::Io { source, .. } if source.kind() == std::io::ErrorKind::TimedOut)
        );
        assert_eq!(wait(&Cancel::default(), async { 1 }).unwrap(), 1);
    }
}
