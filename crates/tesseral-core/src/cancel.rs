//! Cancellation of running operations.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::{Error, Result};

/// A flag that requests cancellation of an operation, and the time at which it has to be done. Clones share the flag.
///
/// Work that computes checks the flag from time to time. Work that waits, such as for the answer of a server, is
/// [notified](Self::notify).
#[derive(Clone, Default)]
pub struct Cancel(Arc<CancelState>);

#[derive(Default)]
struct CancelState {
    canceled: AtomicBool,
    deadline: Option<Instant>,
    waiting: Mutex<WaitingCalls>,
}

/// Callbacks for when the flag is set, by number.
#[derive(Default)]
struct WaitingCalls {
    next: u64,
    calls: BTreeMap<u64, Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(state) = self;
        f.debug_struct("Cancel")
            .field("canceled", &state.canceled)
            .field("deadline", &state.deadline)
            .finish_non_exhaustive()
    }
}

impl Cancel {
    /// A flag of operations that have to be done at a time.
    pub fn at(deadline: Instant) -> Self {
        Self(Arc::new(CancelState { deadline: Some(deadline), ..CancelState::default() }))
    }

    /// Another flag with the same deadline.
    #[must_use]
    pub fn separate(&self) -> Self {
        Self(Arc::new(CancelState { deadline: self.0.deadline, ..CancelState::default() }))
    }

    /// Requests cancellation. Every operation with a clone ends with `Cancelled`: one that waits for a server at once, others at
    /// their next chunk or message.
    pub fn cancel(&self) {
        self.0.canceled.store(true, Ordering::SeqCst);
        let calls = std::mem::take(&mut self.waiting().calls);
        // Outside the lock: a call can end a wait, which removes itself.
        calls.into_values().for_each(|call| call());
    }

    /// Fails once [`cancel`](Self::cancel) was called or the deadline has passed.
    ///
    /// # Errors
    /// `Cancelled`; `Io` with `TimedOut` after the deadline.
    pub fn check(&self) -> Result<()> {
        if self.0.canceled.load(Ordering::SeqCst) {
            return Err(Error::cancelled());
        }
        match self.0.deadline {
            Some(deadline) if Instant::now() >= deadline => Err(Error::deadline()),
            _ => Ok(()),
        }
    }

    /// Time until the deadline, if there is one.
    pub fn remaining(&self) -> Option<Duration> {
        Some(self.0.deadline?.saturating_duration_since(Instant::now()))
    }

    /// Calls a function once when the flag is set, from the thread that sets it, or now if it is set already. Dropping the result
    /// withdraws the call. A deadline calls nothing: waiting threads know the [remaining time](Self::remaining).
    pub fn notify(&self, call: impl FnOnce() + Send + 'static) -> CancelCall<'_> {
        let mut waiting = self.waiting();
        let number = waiting.next;
        waiting.next += 1;
        // Under the lock, because `cancel` sets the flag before it takes the calls.
        if self.0.canceled.load(Ordering::SeqCst) {
            drop(waiting);
            call();
        } else {
            waiting.calls.insert(number, Box::new(call));
        }
        CancelCall { cancel: self, number }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingCalls> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call that waits for cancellation. Dropping it withdraws the call.
#[derive(Debug)]
#[must_use = "dropping it withdraws the call"]
pub struct CancelCall<'a> {
    cancel: &'a Cancel,
    number: u64,
}

impl Drop for CancelCall<'_> {
    fn drop(&mut self) {
        self.cancel.waiting().calls.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::ErrorKind;

    #[test]
    fn those_who_wait_are_called_once() {
        let (cancel, called) = (Cancel::default(), Arc::new(AtomicUsize::new(0)));
        let count = || {
            let called = Arc::clone(&called);
            move || {
                called.fetch_add(1, Ordering::SeqCst);
            }
        };
        let waiting = cancel.notify(count());
        drop(cancel.notify(count()));
        assert!(cancel.check().is_ok());
        let clone = cancel.clone();
        std::thread::spawn(move || clone.cancel()).join().unwrap();
        cancel.cancel();
        assert_eq!(called.load(Ordering::SeqCst), 1);
        assert!(matches!(cancel.check().unwrap_err().kind(), ErrorKind::Cancelled));
        // Too late to wait.
        drop(cancel.notify(count()));
        assert_eq!(called.load(Ordering::SeqCst), 2);
        drop(waiting);
    }

    #[test]
    fn a_deadline_is_an_error_of_its_own() {
        let later = Cancel::at(Instant::now() + Duration::from_secs(3600));
        assert!(later.check().is_ok() && later.remaining().is_some_and(|left| !left.is_zero()));
        let over = Cancel::at(Instant::now());
        assert_eq!(over.remaining(), Some(Duration::ZERO));
        assert!(matches!(over.check().unwrap_err().kind(), ErrorKind::Io { .. }));
        over.cancel();
        assert!(matches!(over.check().unwrap_err().kind(), ErrorKind::Cancelled));
        assert_eq!(Cancel::default().remaining(), None);
    }
}
