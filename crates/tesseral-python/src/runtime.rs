//! Execution under an interpreter: without its lock, after a fork, and with interrupts by Ctrl-C.

use std::borrow::Cow;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use tesseral::{Cancel, Error, Options, Result};

use crate::error::OrRaise;

/// Operations of at least this size, in bytes, can be interrupted.
const LONG: u64 = 32 << 20;
/// Interval of checks for signals.
const LOOK: Duration = Duration::from_millis(50);

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
    let options = options.into_owned().with_cancel(cancel.clone());
    let (result, interrupt) = py.detach(|| interruptible(&cancel, || work(&options)));
    match interrupt {
        Some(interrupt) => Err(interrupt),
        None => result.or_raise(py),
    }
}

/// Runs `work` on another thread while this one checks for signals, as only it can.
fn interruptible<T: Send>(
    cancel: &Cancel,
    work: impl FnOnce() -> Result<T> + Send,
) -> (Result<T>, Option<PyErr>) {
    let (done, result) = channel();
    std::thread::scope(|scope| {
        scope.spawn(move || done.send(work()));
        let mut interrupt = None;
        loop {
            match result.recv_timeout(LOOK) {
                Ok(result) => return (result, interrupt),
                Err(RecvTimeoutError::Timeout) if interrupt.is_none() => {
                    interrupt = Python::attach(|py| py.check_signals().err());
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
