//! Execution under an interpreter: without its lock, after a fork, and with interrupts by Ctrl-C.

use std::borrow::Cow;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use tesseral::{Array, Cancel, Error, Options, Progress, Result};
use tesseral_store::Location;

use crate::error::OrRaise;

/// Operations of at least this size, in bytes, can be interrupted.
const LONG: u64 = 32 << 20;
/// Interval of checks for signals.
const SIGNAL_INTERVAL: Duration = Duration::from_millis(50);

/// The function that long operations report to.
static REPORT: Mutex<Option<Py<PyAny>>> = Mutex::new(None);

/// Sets the function that is called with the completed and the total work while an operation runs, and with `None` at its end.
#[pyfunction]
pub(crate) fn set_progress(function: Option<Py<PyAny>>) -> Option<Py<PyAny>> {
    std::mem::replace(&mut *REPORT.lock().unwrap_or_else(PoisonError::into_inner), function)
}

/// The progress of one operation, which the engine sets and the waiting thread reports.
#[derive(Default)]
struct Reported {
    done: AtomicU64,
    total: AtomicU64,
}

impl Reported {
    fn set(&self, progress: Progress) {
        self.total.store(progress.total, Ordering::Relaxed);
        self.done.store(progress.done, Ordering::Relaxed);
    }

    /// Calls the function of the user.
    fn report(&self, py: Python<'_>, function: &Py<PyAny>) -> PyResult<()> {
        let (done, total) = (self.done.load(Ordering::Relaxed), self.total.load(Ordering::Relaxed));
        if total > 0 { function.call1(py, (done, total)).map(drop) } else { Ok(()) }
    }
}

/// Id of the process that loaded this module. Its threads do not exist in a forked child.
static HOME: OnceLock<u32> = OnceLock::new();

/// Returns whether this process is a fork of the given one.
pub(crate) fn is_forked(origin: u32) -> bool {
    origin != std::process::id()
}

/// Id of the process in which threads were started.
pub(crate) fn home() -> u32 {
    *HOME.get_or_init(std::process::id)
}

/// Returns options for this process: a fork gets its own threads.
pub(crate) fn options(options: &Options) -> Result<Cow<'_, Options>> {
    static FORKED: Mutex<Option<(u32, Options)>> = Mutex::new(None);
    if !is_forked(home()) {
        return Ok(Cow::Borrowed(options));
    }
    let process = std::process::id();
    let mut forked = FORKED.lock().unwrap_or_else(PoisonError::into_inner);
    let started = match forked.take() {
        Some((owner, started)) if owner == process => started,
        earlier => {
            // Threads of the parent cannot be stopped from here.
            std::mem::forget(earlier);
            let threads = std::thread::available_parallelism().map_or(1, usize::from);
            Options::default().with_threads(threads)?
        }
    };
    let pool = started.pool.as_ref().map(Arc::clone);
    *forked = Some((process, started));
    let mut options = options.clone();
    options.pool = pool;
    Ok(Cow::Owned(options))
}

/// Runs `work` without the interpreter lock. `bytes` estimates the amount: long work can be interrupted.
pub(crate) fn run<T: Send>(
    py: Python<'_>,
    given: &Options,
    bytes: u64,
    work: impl FnOnce(&Options) -> Result<T> + Send,
) -> PyResult<T> {
    let options = options(given).or_raise(py)?;
    if bytes < LONG {
        return py.detach(|| work(&options)).or_raise(py);
    }
    let cancel = Cancel::default();
    let mut options = options.into_owned().with_cancel(cancel.clone());
    let function = REPORT.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(|f| f.clone_ref(py));
    let reported = Arc::new(Reported::default());
    if function.is_some() {
        let reported = Arc::clone(&reported);
        options.progress = Some(Arc::new(move |progress| reported.set(progress)));
    }
    let look = |py: Python<'_>| {
        py.check_signals()?;
        function.as_ref().map_or(Ok(()), |function| reported.report(py, function))
    };
    let (result, interrupt) = py.detach(|| interruptible(&cancel, &look, || work(&options)));
    let ended = function.as_ref().map(|function| function.call1(py, (py.None(), py.None()))).transpose();
    if let (Ok(_), None, Err(error)) = (&result, &interrupt, ended) {
        return Err(error);
    }
    match interrupt {
        Some(interrupt) => Err(interrupt),
        None => result.or_raise(py),
    }
}

/// As [`run`], on an array: also short work can be interrupted while it waits for a server.
pub(crate) fn run_on<T: Send>(
    py: Python<'_>,
    array: &Array,
    bytes: u64,
    work: impl FnOnce(&Options) -> Result<T> + Send,
) -> PyResult<T> {
    let waits = array.handle().store().profile().parallel > 1;
    run(py, array.options(), if waits { u64::MAX } else { bytes }, work)
}

/// As [`run`], for work on a path or URL that has its options already, except for cancellation.
pub(crate) fn run_at<T: Send>(
    py: Python<'_>,
    path: &Path,
    work: impl FnOnce(&Cancel) -> Result<T> + Send,
) -> PyResult<T> {
    let cancel = Cancel::default();
    match Location::parse(path) {
        Ok(Location::Path(_)) => py.detach(|| work(&cancel)).or_raise(py),
        // Requests can be interrupted.
        _ => run_canceled_by(py, &cancel, || work(&cancel)),
    }
}

/// Runs cancelable work without the interpreter lock; an interrupt cancels it.
pub(crate) fn run_canceled_by<T: Send>(
    py: Python<'_>,
    cancel: &Cancel,
    work: impl FnOnce() -> Result<T> + Send,
) -> PyResult<T> {
    let look = |py: Python<'_>| py.check_signals();
    let (result, interrupt) = py.detach(|| interruptible(cancel, &look, work));
    match interrupt {
        Some(interrupt) => Err(interrupt),
        None => result.or_raise(py),
    }
}

/// Runs `work` on another thread while this one checks for signals, as only it can, and reports progress.
fn interruptible<T: Send>(
    cancel: &Cancel,
    look: &dyn Fn(Python<'_>) -> PyResult<()>,
    work: impl FnOnce() -> Result<T> + Send,
) -> (Result<T>, Option<PyErr>) {
    let (done, result) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || done.send(work()));
        let mut interrupt = None;
        loop {
            match result.recv_timeout(SIGNAL_INTERVAL) {
                Ok(result) => return (result, interrupt),
                Err(RecvTimeoutError::Timeout) if interrupt.is_none() => {
                    interrupt = Python::attach(|py| look(py).err());
                    if interrupt.is_some() {
                        cancel.cancel();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return (Err(Error::cancelled()), interrupt),
            }
        }
    })
}
