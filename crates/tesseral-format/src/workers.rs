//! Work that opening divides into independent parts.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};

use tesseral_core::{Error, Result};

use crate::OpenOptions;

/// Runs independent parts of a work. Formats have no threads of their own: whoever opens a source provides them.
pub trait Workers: Debug + Send + Sync {
    /// Calls `part` once with every number below `count`, in any order and possibly on several threads, and returns after the last call
    /// has. Each call holds about `bytes` bytes of memory.
    fn run(&self, count: usize, bytes: u64, part: &(dyn Fn(usize) + Sync));
}

impl OpenOptions {
    /// Sets who runs the parts of opening.
    #[must_use]
    pub fn with_workers(mut self, workers: Arc<dyn Workers>) -> Self {
        self.workers = Some(workers);
        self
    }

    /// The results of the parts of a work, in order; each holds about `bytes` bytes of memory while it runs. One after the other unless
    /// there are [workers](Self::with_workers).
    ///
    /// # Errors
    /// The error of the first part that has one.
    pub fn in_parallel<T: Send>(
        &self,
        count: usize,
        bytes: u64,
        part: impl Fn(usize) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let Some(workers) = self.workers.as_ref().filter(|_| count > 1) else {
            return (0..count).map(part).collect();
        };
        let results: Vec<Mutex<Option<Result<T>>>> = (0..count).map(|_| Mutex::new(None)).collect();
        workers.run(count, bytes, &|number| {
            let result = part(number);
            if let Some(place) = results.get(number) {
                *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
            }
        });
        let taken =
            |place: Mutex<Option<Result<T>>>| place.into_inner().unwrap_or_else(PoisonError::into_inner);
        let missing = || Err(Error::internal("a task did not run"));
        results.into_iter().map(|place| taken(place).unwrap_or_else(missing)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs parts on threads of their own, the last one first.
    #[derive(Debug)]
    struct Backwards;

    impl Workers for Backwards {
        fn run(&self, count: usize, _bytes: u64, part: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|scope| {
                (0..count).rev().for_each(|number| drop(scope.spawn(move || part(number))));
            });
        }
    }

    #[test]
    fn results_are_in_order_and_the_first_error_counts() {
        for options in [OpenOptions::default(), OpenOptions::default().with_workers(Arc::new(Backwards))] {
            assert_eq!(
                options.in_parallel(9, 1, |n| Ok(n * n)).unwrap(),
                (0..9).map(|n| n * n).collect::<Vec<_>>()
            );
            assert!(options.in_parallel(0, 1, Ok).unwrap().is_empty());
            let failed = options.in_parallel(9, 1, |n| match n {
                5 | 7 => Err(Error::invalid(format!("part {n}"))),
                n => Ok(n),
            });
            assert!(failed.unwrap_err().to_string().contains("part 5"));
        }
    }
}
