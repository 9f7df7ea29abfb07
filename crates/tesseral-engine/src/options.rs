//! How to execute: threads, memory, cancellation, progress.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::ThreadPool;
use tesseral_core::{Cancel, Error, Result};

use crate::fetch::MERGED;

/// What is read at once is this part of the memory limit.
const SHARES: u64 = 16;
/// Smaller reads cost more than the memory they save.
const SMALLEST: u64 = 64 << 10;
/// What one worker may hold under any limit: a process takes more than this for itself.
const ROOM: u64 = 8 << 20;

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

    /// Bytes that are read at once, about: little beside the limit.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.memory.map_or(MERGED, |memory| (memory / SHARES).clamp(SMALLEST, MERGED))
    }

    /// The same on no more threads than the limit has room for, when each holds `unit` bytes beside the `held` bytes of the
    /// result.
    ///
    /// # Errors
    /// `Limit` when there is no room for one.
    pub(crate) fn for_workers(&self, held: u64, unit: u64) -> Result<Self> {
        let Some(memory) = self.memory else { return Ok(self.clone()) };
        let room = memory.saturating_sub(held).max(ROOM);
        if unit > room {
            let needed = held.saturating_add(unit);
            return Err(Error::limit("a chunk, stored and decoded, beside the result,", needed, memory)
                .hint("raise the memory limit, or rewrite the array in smaller chunks"));
        }
        let fitting = usize::try_from(room / unit.max(1)).unwrap_or(usize::MAX).max(1);
        if self.sequential || fitting >= self.threads() {
            return Ok(self.clone());
        }
        self.clone().with_threads(fitting)
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
