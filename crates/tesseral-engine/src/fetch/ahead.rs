//! Reads that are under way before their bytes are needed.
//!
//! A store across a network answers after tens of milliseconds, however fast its bytes arrive then. Workers that read their own
//! batches would keep as many requests under way as there are cores; here threads that only wait keep as many as the store's
//! [profile](tesseral_store::Profile) names, in the order of the batches, and hold at most a budget of bytes that no worker has
//! taken yet.
//!
//! A worker takes the bytes of its batch and waits for a read that is under way. A batch that is not begun, because the budget is
//! used up, is left to the worker, which reads it itself: no worker waits for another one, so that nothing can lock up.
//!
//! Stores without latency have no such threads.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tesseral_core::{Error, Result};
use tesseral_store::{ByteRange, Store};

use super::{Batch, Fetched, Reads};
use crate::handle::Handle;
use crate::options::{PlannedReads, WatchReads};

/// Bytes held for workers without a memory limit.
const BUDGET: u64 = 128 << 20;
/// Fraction of the memory limit that is held for workers.
const SHARES: u64 = 8;
/// Size of the stack of a waiting thread in bytes.
const STACK: usize = 512 << 10;

/// Number of bytes that reads ahead can hold under a memory limit.
pub(crate) fn budget(memory: Option<u64>) -> u64 {
    memory.map_or(BUDGET, |memory| memory / SHARES)
}

/// Reports the requests of an operation before its first one, if the store answers after a network's latency.
pub(crate) fn announce<'a>(
    handle: &Handle,
    batches: impl Iterator<Item = &'a Batch>,
    budget: u64,
    watch: Option<&WatchReads>,
) {
    let parallel = handle.store().profile().parallel as u64;
    let Some(watch) = watch.filter(|_| parallel > 1) else { return };
    let (mut count, mut planned) = (0_u64, PlannedReads::default());
    for batch in batches.filter(|batch| !batch.reads.is_empty()) {
        count += 1;
        planned.requests += batch.reads.len() as u64;
        planned.bytes = planned.bytes.saturating_add(batch.bytes());
    }
    planned.rounds = count.div_ceil(parallel).max(planned.bytes.div_ceil(budget.max(1)));
    if count > 0 {
        watch(planned);
    }
}

/// The reads of one operation. Dropping it ends reads that are not begun.
pub(crate) struct ReadAhead(Arc<SharedReads>);

struct SharedReads {
    store: Arc<dyn Store>,
    state: Mutex<ReadQueue>,
    changed: Condvar,
    budget: u64,
}

struct ReadQueue {
    jobs: Vec<QueuedRead>,
    /// Jobs by the object and start of their first read.
    index: HashMap<(u32, u64), usize>,
    /// Jobs before this one are begun or taken.
    next: usize,
    /// Bytes under way or held.
    held: u64,
    stopped: bool,
}

struct QueuedRead {
    reads: Reads,
    names: Vec<String>,
    size: u64,
    progress: ReadState,
}

enum ReadState {
    Waiting,
    Running,
    Done(Result<Vec<Bytes>>),
    Taken,
}

impl SharedReads {
    fn lock(&self) -> MutexGuard<'_, ReadQueue> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, ReadQueue>) -> MutexGuard<'a, ReadQueue> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads batches until none is left.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            while state.jobs.get(state.next).is_some_and(|job| !matches!(job.progress, ReadState::Waiting)) {
                state.next += 1;
            }
            let at = state.next;
            let Some(size) = state.jobs.get(at).map(|job| job.size) else { return };
            if state.stopped {
                return;
            }
            if state.held > 0 && state.held.saturating_add(size) > self.budget {
                state = self.wait(state);
                continue;
            }
            state.held = state.held.saturating_add(size);
            state.jobs[at].progress = ReadState::Running;
            let (names, reads) = (std::mem::take(&mut state.jobs[at].names), state.jobs[at].reads.clone());
            drop(state);
            // A worker that waits for this read has to learn of a panic, too: nothing else would end its wait.
            let result = catch_unwind(AssertUnwindSafe(|| read(&*self.store, &names, &reads)));
            let result = result.unwrap_or_else(|_| Err(Error::internal("a read of the store panicked")));
            state = self.lock();
            // Nothing is left if the operation ended meanwhile.
            if let Some(job) = state.jobs.get_mut(at) {
                job.progress = ReadState::Done(result);
            }
            self.changed.notify_all();
        }
    }
}

fn read(store: &dyn Store, names: &[String], reads: &Reads) -> Result<Vec<Bytes>> {
    let wanted =
        names.iter().zip(reads).map(|(name, (_, range))| (name.as_str(), ByteRange::Exact(range.clone())));
    let wanted: Vec<_> = wanted.collect();
    Ok(store.read_objects(&wanted)?.into_iter().map(|part| part.bytes).collect())
}

impl ReadAhead {
    /// Begins to read batches, if the store gains by it.
    pub(crate) fn start<'a>(
        handle: &Handle,
        batches: impl Iterator<Item = &'a Batch>,
        budget: u64,
    ) -> Option<Self> {
        let parallel = handle.store().profile().parallel;
        if parallel < 2 {
            return None;
        }
        let name = |object: u32| handle.source().object(object).into_owned();
        let jobs: Vec<QueuedRead> = batches
            .filter(|batch| !batch.reads.is_empty())
            .map(|batch| QueuedRead {
                reads: batch.reads.clone(),
                names: batch.reads.iter().map(|(object, _)| name(*object)).collect(),
                size: batch.bytes(),
                progress: ReadState::Waiting,
            })
            .collect();
        // The worker reads a single batch itself.
        if jobs.len() < 2 {
            return None;
        }
        let index = jobs.iter().enumerate();
        let index = index.map(|(at, job)| ((job.reads[0].0, job.reads[0].1.start), at)).collect();
        let threads = parallel.min(jobs.len());
        let shared = Arc::new(SharedReads {
            store: handle.shared_store(),
            state: Mutex::new(ReadQueue { jobs, index, next: 0, held: 0, stopped: false }),
            changed: Condvar::new(),
            budget,
        });
        for _ in 0..threads {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name("tesseral-ahead".to_owned()).stack_size(STACK);
            // Fewer threads read less ahead; workers read batches that are not begun.
            let _ = builder.spawn(move || shared.work());
        }
        Some(Self(shared))
    }

    /// Takes the bytes of a batch; `None` if its read is not begun.
    pub(crate) fn take(&self, batch: &Batch) -> Option<Result<Fetched>> {
        let (object, range) = batch.reads.first()?;
        let mut state = self.0.lock();
        let at = *state.index.get(&(*object, range.start))?;
        while matches!(state.jobs[at].progress, ReadState::Running) {
            state = self.0.wait(state);
        }
        let job = &mut state.jobs[at];
        let done = std::mem::replace(&mut job.progress, ReadState::Taken);
        let (size, same) = (job.size, job.reads == batch.reads);
        let ReadState::Done(result) = done else { return None };
        state.held = state.held.saturating_sub(size);
        self.0.changed.notify_all();
        drop(state);
        // Of a chunk whose digests were verified meanwhile, fewer bytes are needed.
        same.then(|| result.and_then(|bytes| fetched(&batch.reads, bytes)))
    }
}

fn fetched(reads: &Reads, bytes: Vec<Bytes>) -> Result<Fetched> {
    if bytes.len() != reads.len() {
        return Err(Error::internal("the store returned fewer ranges than requested"));
    }
    let parts = reads.iter().zip(bytes).map(|((object, range), bytes)| (*object, range.clone(), bytes));
    Ok(Fetched { reads: parts.collect() })
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.stopped = true;
        // Bytes that are not taken are released.
        state.jobs.clear();
        state.index.clear();
        drop(state);
        self.0.changed.notify_all();
    }
}
