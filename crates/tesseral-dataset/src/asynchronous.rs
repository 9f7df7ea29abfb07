//! Opening and reading for asynchronous programs.
//!
//! Each operation runs on a separate thread, with the same plan, scheduler and decoders as the synchronous one. The futures and
//! streams here only hand its results over, so that any runtime can poll them. A stream is at most two results ahead of its
//! consumer; dropping it ends the operation, and requests of it that are under way.

use std::collections::VecDeque;
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use futures_util::Stream;
use tesseral_core::{Cancel, Error, Result, Selection};
use tesseral_engine::{CellBatch, Dense};

use crate::{Array, CellQuery, Container, Open};

/// Number of results that wait for the consumer.
const AHEAD: usize = 2;

/// Results of an operation, in order. Ends after the first error.
#[derive(Debug)]
pub struct AsyncResults<T> {
    handover: Arc<Handover<T>>,
    /// Ends the operation when the receiver is dropped.
    cancel: Cancel,
}

#[derive(Debug)]
struct Handover<T> {
    state: Mutex<StreamState<T>>,
    /// Signaled when the consumer took a result or is gone.
    taken: Condvar,
}

#[derive(Debug)]
struct StreamState<T> {
    ready: VecDeque<Result<T>>,
    waker: Option<Waker>,
    /// The operation ended.
    ended: bool,
    /// The consumer is gone.
    dropped: bool,
}

impl<T> Handover<T> {
    fn lock(&self) -> MutexGuard<'_, StreamState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The operation's end of a handover.
struct Producer<T>(Arc<Handover<T>>);

impl<T> Producer<T> {
    /// Sends a result when there is room. Returns whether the receiver still exists.
    fn put(&self, result: Result<T>) -> bool {
        let mut state = self.0.lock();
        while state.ready.len() >= AHEAD && !state.dropped {
            state = self.0.taken.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let more = result.is_ok() && !state.dropped;
        state.ready.push_back(result);
        wake(state);
        more
    }
}

fn wake<T>(mut state: MutexGuard<'_, StreamState<T>>) {
    let waker = state.waker.take();
    // Outside the lock: the waker can poll at once.
    drop(state);
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        if std::thread::panicking() {
            state.ready.push_back(Err(Error::internal("an operation panicked")));
        }
        state.ended = true;
        wake(state);
    }
}

impl<T> Drop for AsyncResults<T> {
    fn drop(&mut self) {
        let mut state = self.handover.lock();
        state.dropped = true;
        state.ready.clear();
        drop(state);
        self.handover.taken.notify_all();
        self.cancel.cancel();
    }
}

impl<T> Stream for AsyncResults<T> {
    type Item = Result<T>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut state = self.handover.lock();
        if let Some(result) = state.ready.pop_front() {
            drop(state);
            self.handover.taken.notify_all();
            return Poll::Ready(Some(result));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

/// The result of an operation.
#[derive(Debug)]
pub struct AsyncResult<T>(AsyncResults<T>);

impl<T> Future for AsyncResult<T> {
    type Output = Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<T>> {
        Pin::new(&mut self.0).poll_next(context).map(|result| {
            result.unwrap_or_else(|| Err(Error::internal("an operation ended without a result")))
        })
    }
}

/// Runs an operation on a separate thread. It sends results until it ends or the receiver is dropped; its own flag is set then, and
/// with that of the caller.
fn run<T: Send + 'static>(
    caller: &Cancel,
    operation: impl FnOnce(&Cancel, &mut dyn FnMut(T) -> bool) -> Result<()> + Send + 'static,
) -> AsyncResults<T> {
    let (caller, own) = (caller.clone(), caller.separate());
    let cancel = own.clone();
    let state = StreamState { ready: VecDeque::new(), waker: None, ended: false, dropped: false };
    let handover = Arc::new(Handover { state: Mutex::new(state), taken: Condvar::new() });
    let producer = Producer(Arc::clone(&handover));
    let failed = Arc::clone(&handover);
    let work = move || {
        let linked = own.clone();
        let _linked = caller.notify(move || linked.cancel());
        if let Err(error) = operation(&own, &mut |result| producer.put(Ok(result))) {
            producer.put(Err(error));
        }
    };
    if let Err(error) = std::thread::Builder::new().name("tesseral-async".to_owned()).spawn(work) {
        // The producer was dropped with the closure.
        failed.lock().ready.push_back(Err(Error::io("start", "a thread", error)));
    }
    AsyncResults { handover, cancel }
}

/// Runs an operation with one result on a separate thread.
fn run_one<T: Send + 'static>(
    caller: &Cancel,
    operation: impl FnOnce(&Cancel) -> Result<T> + Send + 'static,
) -> AsyncResult<T> {
    AsyncResult(run(caller, |own, put| {
        put(operation(own)?);
        Ok(())
    }))
}

/// The same array, whose operations end with a flag.
fn canceled_by(array: &Array, cancel: &Cancel) -> Array {
    array.clone().with_options(array.options().clone().with_cancel(cancel.clone()))
}

impl Open {
    /// As [`open`](Self::open), for asynchronous programs.
    pub fn open_async(&self, source: impl AsRef<Path>) -> AsyncResult<Container> {
        let (open, source) = (self.clone(), source.as_ref().to_path_buf());
        // The container keeps the caller's flag: it is used after this result was taken.
        run_one(&self.execution_options().cancel, move |_| open.open(source))
    }
}

impl Array {
    /// As [`read`](Self::read), for asynchronous programs.
    pub fn read_async(&self, selection: &Selection) -> AsyncResult<Dense> {
        let (array, selection) = (self.clone(), selection.clone());
        run_one(&self.options().cancel, move |cancel| canceled_by(&array, cancel).read(&selection))
    }

    /// Reads a selection [block](Self::blocks) by block, each of which needs at most `bytes` of memory: a stream of the blocks, in
    /// row-major order, and their cells.
    ///
    /// ```no_run
    /// use futures_util::StreamExt;
    /// use tesseral::{Open, Selection};
    ///
    /// # async fn example() -> tesseral::Result<()> {
    /// let container = Open::new().open_async("s3://bucket/ocean.tet").await?;
    /// let sst = container.array("sst")?;
    /// let all = sst.select(["time=0:12"])?;
    /// let mut blocks = sst.blocks_async(&all, 64 << 20);
    /// while let Some(block) = blocks.next().await {
    ///     let (selection, cells) = block?;
    ///     println!("{:?} {}", selection.shape(), cells.bytes().len());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn blocks_async(&self, selection: &Selection, bytes: u64) -> AsyncResults<(Selection, Dense)> {
        let (array, selection) = (self.clone(), selection.clone());
        run(&self.options().cancel, move |cancel, put| {
            let array = canceled_by(&array, cancel);
            for block in array.blocks(&selection, bytes)? {
                let cells = array.read(&block)?;
                if !put((block, cells)) {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Reads cells as rows: a stream of the batches of a [query](Self::cells) that `build` completes.
    pub fn batches_async(
        &self,
        build: impl for<'a> FnOnce(CellQuery<'a>) -> Result<CellQuery<'a>> + Send + 'static,
    ) -> AsyncResults<CellBatch> {
        let array = self.clone();
        run(&self.options().cancel, move |cancel, put| {
            for batch in build(canceled_by(&array, cancel).cells()?)?.batches()? {
                if !put(batch?) {
                    break;
                }
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    /// Wakes a thread that polls.
    struct Unpark(std::thread::Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn next<T>(results: &mut AsyncResults<T>) -> Option<Result<T>> {
        let waker = Arc::new(Unpark(std::thread::current())).into();
        loop {
            match Pin::new(&mut *results).poll_next(&mut Context::from_waker(&waker)) {
                Poll::Ready(result) => return result,
                Poll::Pending => std::thread::park(),
            }
        }
    }

    #[test]
    fn results_come_in_order_and_end_with_the_first_error() {
        let mut results = run(&Cancel::default(), |_, put| {
            for n in 0..100 {
                assert!(put(n));
            }
            Err(Error::invalid("the end"))
        });
        for n in 0..100 {
            assert_eq!(next(&mut results).unwrap().unwrap(), n);
        }
        assert!(next(&mut results).unwrap().is_err());
        assert!(next(&mut results).is_none());
    }

    #[test]
    fn a_dropped_stream_ends_its_operation() {
        let made = Arc::new(AtomicUsize::new(0));
        let (count, (send, ended)) = (Arc::clone(&made), std::sync::mpsc::channel());
        let mut results = run(&Cancel::default(), move |_, put| {
            while put(()) {
                count.fetch_add(1, Ordering::SeqCst);
            }
            send.send(()).unwrap();
            Ok(())
        });
        assert!(next(&mut results).is_some());
        drop(results);
        ended.recv().unwrap();
        assert!(made.load(Ordering::SeqCst) <= AHEAD + 2);
    }

    #[test]
    fn an_operation_is_canceled_by_its_caller_and_when_it_is_dropped() {
        let caller = Cancel::default();
        for drops in [true, false] {
            let (send, ended) = std::sync::mpsc::channel();
            let results: AsyncResults<()> = run(&caller, move |own, _| {
                let canceled = send.clone();
                let _waiting = own.notify(move || canceled.send(()).unwrap());
                while own.check().is_ok() {
                    std::thread::yield_now();
                }
                own.check()
            });
            if drops {
                drop(results);
                ended.recv().unwrap();
                assert!(caller.check().is_ok());
            } else {
                caller.cancel();
                ended.recv().unwrap();
            }
        }
    }

    #[test]
    fn a_panic_is_an_error() {
        let mut results: AsyncResults<()> = run(&Cancel::default(), |_, _| panic!("planned"));
        assert!(next(&mut results).unwrap().is_err());
        assert!(next(&mut results).is_none());
    }
}
