//! Admission of requests: limits on running and waiting ones, and cancellation.

use std::sync::Arc;

use tesseral::{Cancel, Error};
use tokio::sync::Semaphore;

use crate::failure::RequestFailure;

/// Maximum number of running and waiting requests.
const WAITING: usize = 2048;

/// Slots for running and waiting requests.
#[derive(Clone, Debug)]
pub(crate) struct RequestSlots {
    running: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// Cancels an operation when its request is dropped, because the client disconnected.
struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl RequestSlots {
    /// Creates slots for a number of running requests.
    pub(crate) fn new(running: usize) -> Self {
        Self { running: Arc::new(Semaphore::new(running)), waiting: Arc::new(Semaphore::new(WAITING)) }
    }

    /// Runs a blocking operation when a slot is free.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        operation: impl FnOnce(Cancel) -> tesseral::Result<T> + Send + 'static,
    ) -> Result<T, RequestFailure> {
        let Ok(_waiting) = self.waiting.try_acquire() else { return Err(RequestFailure::Busy) };
        let Ok(slot) = Arc::clone(&self.running).acquire_owned().await else {
            return Err(RequestFailure::Busy);
        };
        let cancel = Cancel::default();
        let _stop = CancelOnDrop(cancel.clone());
        let running = tokio::task::spawn_blocking(move || {
            // The slot is released when the operation ends, also if its client disconnected.
            let _slot = slot;
            operation(cancel)
        });
        let ended = running.await.map_err(|_| Error::internal("an operation of the server ended early"));
        Ok(ended.and_then(|result| result)?)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[test]
    fn few_run_at_a_time_and_dropped_requests_are_canceled() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let work = RequestSlots::new(2);
            let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let all = (0..20).map(|i| {
                let (work, now, most) = (work.clone(), Arc::clone(&now), Arc::clone(&most));
                async move {
                    work.run(move |_| {
                        most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(1));
                        now.fetch_sub(1, Ordering::SeqCst);
                        Ok(i)
                    })
                    .await
                }
            });
            let found = futures_util::future::join_all(all).await;
            assert!(found.into_iter().enumerate().all(|(i, r)| r.unwrap() == i));
            assert!(most.load(Ordering::SeqCst) <= 2);
            let seen = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&seen);
            let endless = work.run(move |cancel| {
                while cancel.check().is_ok() {
                    std::thread::yield_now();
                }
                flag.store(true, Ordering::SeqCst);
                Ok(())
            });
            assert!(tokio::time::timeout(Duration::from_millis(20), endless).await.is_err());
            while !seen.load(Ordering::SeqCst) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        });
    }
}
