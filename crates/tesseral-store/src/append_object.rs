//! Appends to an object of an object store.
//!
//! Object stores have no appends: the object is written again, with the new bytes at its end, by one request on the condition that it
//! is still the version that was read. Readers see the old object or the new one. One append at a time holds the [claim](Claim)
//! of the object; writers that do not use claims are detected by the condition.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tesseral_core::{Error, ErrorKind, Result};

use crate::append::AppendTarget;
use crate::claim::Claim;
use crate::store::{ByteRange, Overwrite, Staged, Store};

/// Longest object that object stores accept as one request.
const LONGEST: u64 = 5 << 30;
/// Number of bytes copied by one request, and by all that are under way.
const PIECE: u64 = 4 << 20;
const BLOCK: u64 = 32 << 20;
/// Maximum time to wait for another append, and the interval between attempts.
const PATIENCE: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(200);

/// An append in progress. Dropping it without a commit leaves the object unchanged.
#[derive(Debug)]
pub struct AppendObject {
    store: Arc<dyn Store>,
    staged: Box<dyn Staged>,
    /// Length of the bytes that stay.
    start: u64,
    /// Length including the bytes written so far.
    end: u64,
    /// Given up after the object was published.
    _claim: Claim,
}

impl AppendObject {
    /// Opens an object for appending; it is created if it does not exist. `claim` makes a store of the claim's object. Waits while
    /// another process appends, calling `check` between attempts.
    ///
    /// # Errors
    /// `InvalidRequest` when another process holds the claim for half a minute; `Unsupported` if the server ignores conditions;
    /// `Io`; errors of `check`.
    pub fn open(
        store: Arc<dyn Store>,
        claim: &dyn Fn() -> Result<Arc<dyn Store>>,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Self> {
        // A store that is read only reports that itself, not its claim.
        drop(store.stage("", Overwrite::Replace)?);
        let deadline = Instant::now() + PATIENCE;
        let held = loop {
            check()?;
            match Claim::take(claim()?, store.location()) {
                Err(error)
                    if matches!(error.kind(), ErrorKind::InvalidRequest { .. })
                        && Instant::now() < deadline =>
                {
                    std::thread::sleep(PAUSE);
                }
                other => break other?,
            }
        };
        let (start, overwrite) = match store.len("") {
            Ok(len) => {
                held.check_updates(&*claim()?, store.location())?;
                (len, Overwrite::Replace)
            }
            Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => (0, Overwrite::Refuse),
            Err(error) => return Err(error),
        };
        let staged = store.stage("", overwrite)?;
        Ok(Self { store, staged, start, end: start, _claim: held })
    }

    /// Writes the bytes before the new ones.
    fn copy_start(&self) -> Result<()> {
        let mut from = 0;
        while from < self.start {
            let end = (from + BLOCK).min(self.start);
            let pieces = (from..end).step_by(PIECE as usize);
            let reads: Vec<_> = pieces.map(|at| ("", ByteRange::Exact(at..(at + PIECE).min(end)))).collect();
            for piece in self.store.read_objects(&reads)? {
                self.staged.write_at(piece.start, &piece.bytes)?;
            }
            from = end;
        }
        Ok(())
    }
}

impl AppendTarget for AppendObject {
    fn len(&self) -> u64 {
        self.end
    }

    fn start(&self) -> u64 {
        self.start
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        if self.end != self.start || len > self.end {
            let detail = format!("cannot truncate {} to {len} bytes", self.store.location());
            return Err(Error::invalid(detail));
        }
        (self.start, self.end) = (len, len);
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let end = self.end.saturating_add(bytes.len() as u64);
        if end > LONGEST {
            let what = format!("appending to {}: an object of {end} bytes", self.store.location());
            return Err(Error::unsupported(what)
                .hint("object stores replace at most 5 GiB on a condition: begin another object"));
        }
        self.staged.write_at(self.end, bytes)?;
        self.end = end;
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.copy_start()?;
        self.staged.publish()
    }
}

#[cfg(all(test, feature = "remote"))]
#[allow(clippy::unwrap_used)]
mod tests {
    use object_store::memory::InMemory;

    use super::*;
    use crate::{RemoteStore, StoreExt};

    fn store(client: &Arc<InMemory>, name: &str) -> Arc<dyn Store> {
        Arc::new(RemoteStore::with_client("remote", client.clone(), name).unwrap())
    }

    fn append(client: &Arc<InMemory>) -> Result<Box<AppendObject>> {
        let claim = || Ok(store(client, "f.tesseral-claim"));
        AppendObject::open(store(client, "f"), &claim, &|| Ok(())).map(Box::new)
    }

    fn content(client: &Arc<InMemory>) -> Vec<u8> {
        store(client, "f").read_all("", u64::MAX).unwrap().to_vec()
    }

    #[test]
    fn appends_follow_one_another() {
        let client = Arc::new(InMemory::new());
        for n in 0..3_u8 {
            let mut to = append(&client).unwrap();
            assert_eq!((to.start(), to.is_empty()), (u64::from(n) * 2, n == 0));
            to.write(&[n]).unwrap();
            to.write(&[n]).unwrap();
            to.commit().unwrap();
        }
        assert_eq!(content(&client), [0, 0, 1, 1, 2, 2]);
        // The end of an interrupted writer is replaced.
        let mut to = append(&client).unwrap();
        to.truncate(3).unwrap();
        to.write(&[9]).unwrap();
        assert!(to.truncate(1).is_err());
        to.commit().unwrap();
        assert_eq!(content(&client), [0, 0, 1, 9]);
        // No claim is left.
        assert!(store(&client, "f.tesseral-claim").len("").is_err());
    }

    #[test]
    fn a_dropped_append_changes_nothing() {
        let client = Arc::new(InMemory::new());
        store(&client, "f").put("", b"old", Overwrite::Refuse).unwrap();
        let mut to = append(&client).unwrap();
        to.write(b" new").unwrap();
        drop(to);
        assert_eq!(content(&client), b"old");
        append(&client).unwrap();
    }

    #[test]
    fn an_object_that_another_writer_replaced_stays() {
        let client = Arc::new(InMemory::new());
        store(&client, "f").put("", b"old", Overwrite::Refuse).unwrap();
        let mut to = append(&client).unwrap();
        to.write(b" new").unwrap();
        store(&client, "f").put("", b"other", Overwrite::Replace).unwrap();
        assert!(matches!(to.commit().unwrap_err().kind(), ErrorKind::Changed { .. }));
        assert_eq!(content(&client), b"other");
    }

    #[test]
    fn a_second_append_waits_for_the_first() {
        let client = Arc::new(InMemory::new());
        let mut first = append(&client).unwrap();
        let second = {
            let client = Arc::clone(&client);
            std::thread::spawn(move || {
                let mut second = append(&client).unwrap();
                second.write(b"2").unwrap();
                second.commit().unwrap();
            })
        };
        first.write(b"1").unwrap();
        first.commit().unwrap();
        second.join().unwrap();
        assert_eq!(content(&client), b"12");
        let _held = append(&client).unwrap();
        let claim = || Ok(store(&client, "f.tesseral-claim"));
        let stopped = AppendObject::open(store(&client, "f"), &claim, &|| Err(Error::cancelled()));
        assert!(stopped.is_err());
    }
}
