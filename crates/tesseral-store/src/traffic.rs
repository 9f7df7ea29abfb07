//! Counts of requests to object stores.

use std::sync::atomic::{AtomicU64, Ordering};

/// Numbers of requests to object stores and web servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Dependent round trips: the largest number of requests that began after one another had ended. Requests that are under
    /// way at the same time are one.
    pub rounds: u64,
    /// Requests.
    pub requests: u64,
    /// Bytes of objects received.
    pub bytes: u64,
    /// Bytes of objects sent.
    pub sent: u64,
    /// Bytes of objects answered by the [cache](crate::CacheFolder) instead of the server.
    pub cached: u64,
}

impl Traffic {
    /// Requests of this process so far, to all stores.
    pub fn of_process() -> Self {
        PROCESS.traffic()
    }

    /// Counts since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            rounds: self.rounds.saturating_sub(earlier.rounds),
            requests: self.requests.saturating_sub(earlier.requests),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            sent: self.sent.saturating_sub(earlier.sent),
            cached: self.cached.saturating_sub(earlier.cached),
        }
    }
}

static PROCESS: TrafficCounter = TrafficCounter::new();

/// Counts the requests of a store, and those of the process.
#[derive(Debug, Default)]
pub(crate) struct TrafficCounter {
    /// Largest number of a round whose requests have ended.
    rounds: AtomicU64,
    requests: AtomicU64,
    bytes: AtomicU64,
    sent: AtomicU64,
    cached: AtomicU64,
}

/// Requests that are under way: the numbers of their round for the store and for the process.
#[cfg(feature = "remote")]
#[derive(Debug)]
pub(crate) struct UnderWay(u64, u64);

impl TrafficCounter {
    const fn new() -> Self {
        Self {
            rounds: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            sent: AtomicU64::new(0),
            cached: AtomicU64::new(0),
        }
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            rounds: get(&self.rounds),
            requests: get(&self.requests),
            bytes: get(&self.bytes),
            sent: get(&self.sent),
            cached: get(&self.cached),
        }
    }
}

#[cfg(feature = "remote")]
impl TrafficCounter {
    /// Counts requests that begin together. Their round follows the last one that has ended.
    pub(crate) fn begin(&self, requests: u64) -> UnderWay {
        let count = |counter: &Self| {
            counter.requests.fetch_add(requests, Ordering::Relaxed);
            counter.rounds.load(Ordering::Relaxed) + 1
        };
        UnderWay(count(self), count(&PROCESS))
    }

    /// Counts the bytes of requests that have ended.
    pub(crate) fn end(&self, began: UnderWay, received: u64, sent: u64) {
        for (counter, round) in [(self, began.0), (&PROCESS, began.1)] {
            counter.rounds.fetch_max(round, Ordering::Relaxed);
            counter.bytes.fetch_add(received, Ordering::Relaxed);
            counter.sent.fetch_add(sent, Ordering::Relaxed);
        }
    }

    /// Counts bytes that the cache answered.
    pub(crate) fn add_cached(&self, bytes: u64) {
        self.cached.fetch_add(bytes, Ordering::Relaxed);
        PROCESS.cached.fetch_add(bytes, Ordering::Relaxed);
    }
}

#[cfg(all(test, feature = "remote"))]
mod tests {
    use super::*;

    #[test]
    fn requests_under_way_at_the_same_time_are_one_round() {
        let counter = TrafficCounter::default();
        let (first, second) = (counter.begin(2), counter.begin(1));
        counter.end(second, 10, 0);
        // Begins after an answer, while another request of the first round is under way.
        let third = counter.begin(1);
        counter.end(first, 5, 1);
        counter.end(third, 0, 0);
        let found = counter.traffic();
        assert_eq!(found, Traffic { rounds: 2, requests: 4, bytes: 15, sent: 1, cached: 0 });
        assert_eq!(found.since(&found), Traffic::default());
        assert!(Traffic::of_process().requests >= 4);
    }
}
