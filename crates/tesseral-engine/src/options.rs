//! How to execute: threads, memory, cancellation, progress.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::ThreadPool;
use tesseral_core::{Cancel, Error, Result};

/// How far an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Chunks done.
    pub done: u64,
    /// Chunks in all.
    pub total: u64,
}

type Watch = dyn Fn(Progress) + Send + Sync;

/// How to execute. The default uses every core and no memory limit.
#[derive(Clone, Default)]
pub struct Options {
    /// Bytes that results and work space may take together.
    pub memory: Option<u64>,
    /// Where to run; the process-wide pool when absent.
    pub pool: Option<Arc<ThreadPool>>,
    /// Stops the operation from outside.
    pub cancel: Cancel,
    /// Told after every chunk, from any thread.
    pub progress: Option<Arc<Watch>>,
    /// Stays on the calling thread: for work that already is one of many at once.
    pub sequential: bool,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl Options {
    /// Runs on this many threads.
    ///
    /// # Errors
    /// `Io` when the threads cannot be started.
    pub fn with_threads(mut self, threads: usize) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .build()
            .map_err(|e| Error::io("start", "threads", std::io::Error::other(e)))?;
        self.pool = Some(Arc::new(pool));
        Ok(self)
    }

    /// Threads that operations run on.
    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or_else(rayon::current_num_threads, |pool| pool.current_num_threads())
    }

    /// Keeps results and work space within this many bytes.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Refuses a result that would not fit.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_memory(&self, what: &str, bytes: u64) -> Result<()> {
        match self.memory {
            Some(allowed) if bytes > allowed => Err(Error::limit(what, bytes, allowed)
                .hint("select less, raise the memory limit, or read block by block")),
            _ => Ok(()),
        }
    }

    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.pool {
            Some(pool) if !self.sequential => pool.install(work),
            _ => work(),
        }
    }

    pub(crate) fn ticker(&self, total: u64) -> Ticker<'_> {
        Ticker { options: self, done: AtomicU64::new(0), total }
    }
}

/// Counts chunks as they are done.
pub(crate) struct Ticker<'a> {
    options: &'a Options,
    done: AtomicU64,
    total: u64,
}

impl Ticker<'_> {
    /// One more chunk is done; fails when the caller asked to stop.
    pub(crate) fn tick(&self) -> Result<()> {
        self.options.cancel.check()?;
        if let Some(watch) = &self.options.progress {
            let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
            watch(Progress { done, total: self.total });
        }
        Ok(())
    }
}
