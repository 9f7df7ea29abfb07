//! Stores around stores, for tests: counting, delay, fault injection.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tesseral_core::{Error, Result};

use crate::sigbus::OperationGuard;
use crate::store::{ObjectInfo, Overwrite, Profile, Staged, Store, StoreExt, Upcoming};
use crate::unpublished::Unpublished;

/// Behavior of a [`Wrapped`] store around each call.
pub trait CallHook: std::fmt::Debug + Send + Sync + 'static {
    /// Called before the inner store. An error replaces the call.
    ///
    /// # Errors
    /// Errors injected by the wrapper.
    fn before(&self, call: Call<'_>) -> Result<()>;

    /// Whether resident objects can be borrowed; false for wrappers that observe reads.
    fn resident(&self) -> bool {
        false
    }

    /// How the wrapped store is read best.
    fn profile(&self, inner: Profile) -> Profile {
        inner
    }

    /// Whether a failing write stores half of its bytes.
    fn writes_partially(&self) -> bool {
        false
    }
}

/// One call to a store.
#[derive(Clone, Copy, Debug)]
pub enum Call<'a> {
    /// [`Store::len`].
    Len(&'a str),
    /// [`Store::read_many`].
    Read(&'a str, &'a [Range<u64>]),
    /// [`Store::list`].
    List(&'a str),
    /// [`Store::stage`].
    Stage(&'a str),
    /// [`Staged::write_at`] or [`Staged::set_len`].
    Write,
    /// [`Staged::publish`].
    Publish,
    /// [`Store::remove`].
    Remove(&'a str),
}

/// A store with a wrapper around every call.
#[derive(Debug)]
pub struct Wrapped<A> {
    inner: Arc<dyn Store>,
    around: Arc<A>,
}

impl<A: CallHook> Wrapped<A> {
    /// Wraps every call to `inner`.
    pub fn new(inner: Arc<dyn Store>, around: Arc<A>) -> Self {
        Self { inner, around }
    }
}

impl<A: CallHook> Store for Wrapped<A> {
    fn location(&self) -> &str {
        self.inner.location()
    }

    fn len(&self, object: &str) -> Result<u64> {
        self.around.before(Call::Len(object))?;
        self.inner.len(object)
    }

    fn read_many(&self, object: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.around.before(Call::Read(object, ranges))?;
        self.inner.read_many(object, ranges)
    }

    fn resident(&self, object: &str) -> Result<Option<Bytes>> {
        if self.around.resident() { self.inner.resident(object) } else { Ok(None) }
    }

    fn view(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        if self.around.resident() { self.inner.view(object, range) } else { self.read(object, range) }
    }

    fn watch(&self) -> Result<OperationGuard> {
        self.inner.watch()
    }

    fn beside(&self, name: &str) -> Result<Arc<dyn Store>> {
        Ok(Arc::new(Self::new(self.inner.beside(name)?, Arc::clone(&self.around))))
    }

    fn prefetch(&self, upcoming: &[Upcoming]) {
        self.inner.prefetch(upcoming);
    }

    fn profile(&self) -> Profile {
        self.around.profile(self.inner.profile())
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        self.around.before(Call::List(folder))?;
        self.inner.list(folder)
    }

    fn stage(&self, object: &str, overwrite: Overwrite) -> Result<Box<dyn Staged>> {
        self.around.before(Call::Stage(object))?;
        let inner = self.inner.stage(object, overwrite)?;
        Ok(Box::new(WrappedStaged { inner, around: Arc::clone(&self.around) }))
    }

    fn leftovers(&self) -> Result<Vec<String>> {
        self.inner.leftovers()
    }

    fn remove_leftovers(&self) -> Result<()> {
        self.inner.remove_leftovers()
    }

    fn remove(&self, object: &str) -> Result<()> {
        self.around.before(Call::Remove(object))?;
        self.inner.remove(object)
    }

    fn unpublished(&self, object: &str) -> Option<Unpublished> {
        self.inner.unpublished(object)
    }
}

#[derive(Debug)]
struct WrappedStaged<A> {
    inner: Box<dyn Staged>,
    around: Arc<A>,
}

impl<A: CallHook> Staged for WrappedStaged<A> {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let before = self.around.before(Call::Write);
        if before.is_err() && self.around.writes_partially() {
            self.inner.write_at(offset, &bytes[..bytes.len() / 2])?;
        }
        before?;
        self.inner.write_at(offset, bytes)
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, out)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.around.before(Call::Write)?;
        self.inner.set_len(len)
    }

    fn publish(self: Box<Self>) -> Result<()> {
        self.around.before(Call::Publish)?;
        self.inner.publish()
    }
}

/// Counts requests, ranges and bytes, and records every range read.
#[derive(Debug, Default)]
pub struct Counting {
    requests: AtomicU64,
    spans: Mutex<Vec<Range<u64>>>,
}

impl Counting {
    /// Number of read requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Every range read so far, in order.
    pub fn spans(&self) -> Vec<Range<u64>> {
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Number of bytes read so far.
    pub fn bytes(&self) -> u64 {
        self.spans().iter().map(|r| r.end.saturating_sub(r.start)).sum()
    }

    /// Resets all counters.
    pub fn reset(&self) {
        self.requests.store(0, Ordering::Relaxed);
        self.spans.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

impl CallHook for Counting {
    fn before(&self, call: Call<'_>) -> Result<()> {
        if let Call::Read(_, ranges) = call {
            self.requests.fetch_add(1, Ordering::Relaxed);
            self.spans.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(ranges);
        }
        Ok(())
    }
}

/// Lets a store appear as one across a network, and counts calls.
#[derive(Debug, Default)]
pub struct Distant(AtomicU64);

impl Distant {
    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl CallHook for Distant {
    fn before(&self, _: Call<'_>) -> Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn profile(&self, _: Profile) -> Profile {
        Profile::NETWORK
    }
}

/// Waits before every read, like a network store.
#[derive(Debug)]
pub struct Latency(pub Duration);

impl CallHook for Latency {
    fn before(&self, call: Call<'_>) -> Result<()> {
        if matches!(call, Call::Read(..)) {
            std::thread::sleep(self.0);
        }
        Ok(())
    }
}

/// Creates an object store in memory, which is reached like one over a network.
///
/// # Errors
/// Never for this location.
#[cfg(feature = "remote")]
pub fn remote_in_memory(root: &str) -> Result<crate::RemoteStore> {
    let client = Arc::new(object_store::memory::InMemory::new());
    crate::RemoteStore::with_client(format!("memory://{root}"), client, root)
}

/// Kind of injected fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A device error (`EIO`).
    Broken,
    /// No space is left (`ENOSPC`).
    Full,
    /// No space is left after half of the bytes.
    Short,
    /// The process ends: this call and all later ones fail, so nothing is cleaned up.
    Gone,
}

impl Failure {
    /// All kinds.
    pub const ALL: [Self; 4] = [Self::Broken, Self::Full, Self::Short, Self::Gone];
}

/// Fails the call with a given number, counted from 0 over all calls; or every call from there on.
#[derive(Debug)]
pub struct FaultInjection {
    fail_at: u64,
    failure: Failure,
    calls: AtomicU64,
}

impl FaultInjection {
    /// Fails call number `fail_at` with a device error.
    pub fn at(fail_at: u64) -> Self {
        Self::with(fail_at, Failure::Broken)
    }

    /// Fails call number `fail_at`.
    pub fn with(fail_at: u64, failure: Failure) -> Self {
        Self { fail_at, failure, calls: AtomicU64::new(0) }
    }

    /// Number of calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }
}

impl CallHook for FaultInjection {
    fn before(&self, call: Call<'_>) -> Result<()> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if number == self.fail_at || (number > self.fail_at && self.failure == Failure::Gone) {
            let kind = match self.failure {
                Failure::Broken | Failure::Gone => std::io::ErrorKind::Other,
                Failure::Full | Failure::Short => std::io::ErrorKind::StorageFull,
            };
            let source = std::io::Error::new(kind, format!("injected at {call:?}"));
            return Err(Error::io("reach", "the fault store", source));
        }
        Ok(())
    }

    fn writes_partially(&self) -> bool {
        self.failure == Failure::Short
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryStore, StoreExt};

    #[test]
    fn counting_records_spans() {
        let counting = Arc::new(Counting::default());
        let store =
            Wrapped::new(Arc::new(MemoryStore::with_object("m", vec![0; 100])), Arc::clone(&counting));
        store.read_many("", &[0..10, 90..100]).unwrap();
        store.read("", 5..6).unwrap();
        assert_eq!((counting.requests(), counting.bytes(), counting.spans().len()), (2, 21, 3));
    }

    #[test]
    fn faults_hit_each_call_once() {
        let inner: Arc<dyn Store> = Arc::new(MemoryStore::new("m"));
        let clean = Arc::new(FaultInjection::at(u64::MAX));
        Wrapped::new(Arc::clone(&inner), Arc::clone(&clean)).put("x", b"1", Overwrite::Replace).unwrap();
        assert_eq!(clean.calls(), 3);
        for n in 0..3 {
            let store = Wrapped::new(Arc::new(MemoryStore::new("m")), Arc::new(FaultInjection::at(n)));
            assert!(store.put("x", b"1", Overwrite::Replace).is_err());
            assert!(!store.inner.exists("x").unwrap());
        }
    }
}
