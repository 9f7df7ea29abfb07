//! Independent operations at the same time, where each of them waits for a network.

use std::panic::resume_unwind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::Builder;

use crate::store::Store;

/// Runs an operation on each item and returns the results in order: at the same time if the [profile](crate::Profile) of the
/// store names parallel requests, otherwise one after the other.
pub fn together<T: Sync, R: Send>(store: &dyn Store, items: &[T], run: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = store.profile().parallel.min(items.len());
    if threads < 2 {
        return items.iter().map(run).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut own = Vec::new();
        loop {
            let at = next.fetch_add(1, Relaxed);
            let Some(item) = items.get(at) else { return own };
            own.push((at, run(item)));
        }
    };
    let mut results = std::thread::scope(|scope| {
        let name = || Builder::new().name("tesseral-together".to_owned());
        // Without a thread, the others do its work.
        let running: Vec<_> = (1..threads).filter_map(|_| name().spawn_scoped(scope, work).ok()).collect();
        let mut all = work();
        for thread in running {
            all.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        }
        all
    });
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(all(test, feature = "remote"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Barrier;

    use super::*;
    use crate::{MemoryStore, RemoteStore};

    #[test]
    fn results_are_in_order_and_operations_on_distant_stores_overlap() {
        let items: Vec<u32> = (0..100).collect();
        let expected: Vec<u32> = items.iter().map(|n| n * n).collect();
        assert_eq!(together(&MemoryStore::new("m"), &items, |n| n * n), expected);
        let client = std::sync::Arc::new(object_store::memory::InMemory::new());
        let distant = RemoteStore::with_client("remote", client, "data").unwrap();
        assert_eq!(together(&distant, &items, |n| n * n), expected);
        // Ends only if all three are under way at the same time.
        let barrier = Barrier::new(3);
        assert_eq!(together(&distant, &[0, 1, 2], |n| (barrier.wait(), *n).1), [0, 1, 2]);
        assert!(together(&distant, &[0_u8; 0], |n| *n).is_empty());
    }
}
