//! Execution options: threads, memory, cancellation, progress.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::ThreadPool;
use rayon::prelude::*;
use tesseral_core::{Advice, Cancel, Error, Result};
use tesseral_format::Workers;
use tesseral_store::Profile;

/// Fraction of the memory limit that is read at once.
const SHARES: u64 = 16;
/// Minimum size of a read in bytes: smaller ones cost more than the memory they save.
const SMALLEST: u64 = 64 << 10;
/// Memory of one worker that is always allowed, in bytes.
const ROOM: u64 = 8 << 20;

/// Progress of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of completed chunks.
    pub done: u64,
    /// Total number of chunks.
    pub total: u64,
}

type Watch = dyn Fn(Progress) + Send + Sync;

/// Requests of an operation to a store across a network, known before the first one. Metadata that planning needs is not
/// included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlannedReads {
    /// Dependent round trips, if all requests that are under way at the same time take equally long.
    pub rounds: u64,
    /// Requests, with neighboring byte ranges merged.
    pub requests: u64,
    /// Bytes to be received.
    pub bytes: u64,
}

impl PlannedReads {
    /// Adds the requests of a later operation.
    #[must_use]
    pub fn then(self, next: Self) -> Self {
        Self {
            rounds: self.rounds.saturating_add(next.rounds),
            requests: self.requests.saturating_add(next.requests),
            bytes: self.bytes.saturating_add(next.bytes),
        }
    }
}

pub(crate) type WatchReads = dyn Fn(PlannedReads) + Send + Sync;

/// Execution options. The default uses all cores and no memory limit.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct Options {
    /// Memory limit of results and scratch buffers in bytes.
    pub memory: Option<u64>,
    /// Thread pool; `None` for the process-wide one.
    pub pool: Option<Arc<ThreadPool>>,
    /// Cancellation flag.
    pub cancel: Cancel,
    /// Callback after every chunk, from any thread.
    pub progress: Option<Arc<Watch>>,
    /// Callback before the first request of an operation to a store across a network.
    pub planned_reads: Option<Arc<WatchReads>>,
    /// Stay on the calling thread, for work that is already parallel.
    pub sequential: bool,
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl Options {
    /// Sets the number of threads.
    ///
    /// # Errors
    /// `Io` if the threads cannot be started.
    pub fn with_threads(mut self, threads: usize) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(threads.max(1))
            .build()
            .map_err(|e| Error::io("start", "threads", std::io::Error::other(e)))?;
        self.pool = Some(Arc::new(pool));
        Ok(self)
    }

    /// Number of threads of operations.
    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or_else(rayon::current_num_threads, |pool| pool.current_num_threads())
    }

    /// Sets the memory limit in bytes.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Sets the cancellation flag.
    #[must_use]
    pub fn with_cancel(mut self, cancel: Cancel) -> Self {
        self.cancel = cancel;
        self
    }

    /// Sets a callback that is called after every chunk, from any thread.
    #[must_use]
    pub fn with_progress(mut self, watch: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        self.progress = Some(Arc::new(watch));
        self
    }

    /// Sets a callback that is called before the first request of an operation to a store across a network.
    #[must_use]
    pub fn with_planned_reads(mut self, watch: impl Fn(PlannedReads) + Send + Sync + 'static) -> Self {
        self.planned_reads = Some(Arc::new(watch));
        self
    }

    /// Removes the callback, for a part of an operation that reports its progress itself.
    #[must_use]
    pub fn without_progress(mut self) -> Self {
        self.progress = None;
        self
    }

    /// Stays on the calling thread, for work that is already parallel.
    #[must_use]
    pub fn sequential(mut self) -> Self {
        self.sequential = true;
        self
    }

    /// Rejects a result that exceeds the limit.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_memory(&self, what: &str, bytes: u64) -> Result<()> {
        match self.memory {
            Some(allowed) if bytes > allowed => Err(Error::limit(what, bytes, allowed)
                .hint(Advice::SelectLess.or(Advice::RaiseMemory).or("read block by block"))),
            _ => Ok(()),
        }
    }

    /// Approximate number of bytes to read at once: what suits the store, small compared to the limit.
    pub(crate) fn read_bytes(&self, profile: &Profile) -> u64 {
        let suits = profile.request.max(SMALLEST);
        self.memory.map_or(suits, |memory| (memory / SHARES).clamp(SMALLEST, suits))
    }

    /// Reduces the number of threads to fit the limit, if each holds `unit` bytes in addition to the `held` bytes of the
    /// result.
    ///
    /// # Errors
    /// `Limit` if one thread does not fit.
    pub(crate) fn for_workers(&self, held: u64, unit: u64) -> Result<Self> {
        let Some(memory) = self.memory else { return Ok(self.clone()) };
        let room = memory.saturating_sub(held).max(ROOM);
        if unit > room {
            let needed = held.saturating_add(unit);
            return Err(Error::limit(
                "a chunk, stored and decoded, in addition to the result,",
                needed,
                memory,
            )
            .hint(Advice::RaiseMemory.or("rewrite the array in smaller chunks")));
        }
        let fitting = usize::try_from(room / unit.max(1)).unwrap_or(usize::MAX).max(1);
        if self.sequential || fitting >= self.threads() {
            return Ok(self.clone());
        }
        self.clone().with_threads(fitting)
    }

    /// The threads of these options, for what a format divides into parts.
    pub fn workers(&self) -> Arc<dyn Workers> {
        Arc::new(OptionWorkers(self.clone()))
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

/// Parts of opening on the threads of operations.
#[derive(Debug)]
struct OptionWorkers(Options);

impl Workers for OptionWorkers {
    fn run(&self, count: usize, bytes: u64, part: &(dyn Fn(usize) + Sync)) {
        let options = &self.0;
        // Several parts at the same time take at most a share of the memory limit.
        let fitting = options.memory.map_or(u64::MAX, |memory| memory / SHARES / bytes.max(1));
        if options.sequential || fitting < options.threads() as u64 {
            (0..count).for_each(part);
        } else {
            options.run(|| (0..count).into_par_iter().for_each(part));
        }
    }
}

/// Counts completed chunks.
pub(crate) struct Ticker<'a> {
    options: &'a Options,
    done: AtomicU64,
    total: u64,
}

impl Ticker<'_> {
    /// Adds a completed chunk; fails if canceled.
    pub(crate) fn tick(&self) -> Result<()> {
        self.options.cancel.check()?;
        if let Some(watch) = &self.options.progress {
            let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
            watch(Progress { done, total: self.total });
        }
        Ok(())
    }
}
