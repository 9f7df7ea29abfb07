//! Metadata reads of one operation, in rounds.
//!
//! Where chunks cannot be located without reading an index first, a format would wait for one answer after the other. It reads
//! its metadata from a [`Rounds`] instead. Bytes that are resident, or were fetched in an earlier round, are answered at once. A
//! read of other bytes is noted and fails with [`ErrorKind::Pending`]; the format continues with what does not depend on
//! it. The caller then fetches everything that was noted together, which is one round trip, and calls the format again.
//!
//! A store whose reads do not wait for a network answers all of them itself: one round is always enough.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tesseral_core::{Error, ErrorKind, Result};

use crate::sigbus::OperationGuard;
use crate::store::{
    ByteRange, ObjectBytes, ObjectInfo, Overwrite, Profile, Staged, Store, StoreExt, Upcoming, check_range,
};

/// Maximum number of rounds of one operation. Each fetches bytes that were not fetched before; no index is as deep.
const MAX_ROUNDS: u64 = 1 << 12;

/// A store that returns bytes fetched in earlier rounds, and records other reads.
#[derive(Debug)]
pub struct Rounds {
    store: Arc<dyn Store>,
    /// Whether reads wait for a network, so that they are noted and fetched together.
    waits: bool,
    state: Mutex<RoundsState>,
}

#[derive(Debug, Default)]
struct RoundsState {
    /// Parts of objects by name; `None` for an object that does not exist.
    objects: HashMap<String, Option<Held>>,
    /// Listings by folder; `None` for a folder that does not exist.
    listings: HashMap<String, Option<Vec<ObjectInfo>>>,
    needs: Vec<Upcoming>,
    /// Number of rounds so far.
    fetched: u64,
}

/// Fetched bytes of an object.
#[derive(Debug)]
struct Held {
    len: u64,
    parts: Vec<(u64, Bytes)>,
}

impl Held {
    /// A part of the object, if it was fetched. A range past the end is an error of the caller.
    fn get(&self, part: &ByteRange) -> Option<ObjectBytes> {
        let range = part.within(self.len);
        let (start, len) = (range.start, self.len);
        if range.is_empty() && start <= len {
            return Some(ObjectBytes { start, len, bytes: Bytes::new() });
        }
        self.parts.iter().find_map(|(at, bytes)| {
            let from = usize::try_from(start.checked_sub(*at)?).ok()?;
            let to = usize::try_from(range.end.checked_sub(*at)?).ok()?;
            (from <= to && to <= bytes.len()).then(|| ObjectBytes {
                start,
                len,
                bytes: bytes.slice(from..to),
            })
        })
    }
}

impl Rounds {
    /// Begins an operation on a store.
    pub fn new(store: Arc<dyn Store>) -> Arc<Self> {
        let waits = store.profile().parallel > 1;
        Arc::new(Self { store, waits, state: Mutex::default() })
    }

    /// Runs an operation repeatedly, and fetches the metadata that it needs, until it needs no more.
    ///
    /// # Errors
    /// Errors of the operation and of the store.
    pub fn run<T>(store: &Arc<dyn Store>, mut operation: impl FnMut(&Arc<Self>) -> Result<T>) -> Result<T> {
        let rounds = Self::new(Arc::clone(store));
        loop {
            let result = operation(&rounds);
            let needs = rounds.take_needs();
            match result {
                Err(error) if matches!(error.kind(), ErrorKind::Pending) && !needs.is_empty() => {
                    rounds.fetch(&needs)?;
                }
                other => return other,
            }
        }
    }

    /// Returns whether the store answers every read at once. Nothing is noted or held then, so that operations can share it.
    pub fn is_immediate(&self) -> bool {
        !self.waits
    }

    fn lock(&self) -> MutexGuard<'_, RoundsState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Length of an object in bytes; `None` if it does not exist.
    ///
    /// # Errors
    /// `Pending`, `Io`.
    pub fn len_if_exists(&self, object: &str) -> Result<Option<u64>> {
        if !self.waits {
            return match self.store.len(object) {
                Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => Ok(None),
                other => other.map(Some),
            };
        }
        let found = self.find(object, &ByteRange::Exact(0..0)).ok_or_else(Error::pending)?;
        Ok(found.map(|found| found.len))
    }

    /// Number of rounds so far.
    pub fn number(&self) -> u64 {
        self.lock().fetched
    }

    /// Sets a result that waits for metadata aside, so that the caller continues with independent work.
    ///
    /// # Errors
    /// All other errors.
    pub fn later<T>(result: Result<T>) -> Result<Option<T>> {
        match result {
            Err(error) if matches!(error.kind(), ErrorKind::Pending) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Fails if reads were noted since the last round.
    ///
    /// # Errors
    /// `Pending`.
    pub fn complete(&self) -> Result<()> {
        if self.waits && !self.lock().needs.is_empty() { Err(Error::pending()) } else { Ok(()) }
    }

    /// Takes the reads that were noted, without duplicates.
    pub fn take_needs(&self) -> Vec<Upcoming> {
        if !self.waits {
            return Vec::new();
        }
        let mut seen = HashSet::new();
        let mut needs = std::mem::take(&mut self.lock().needs);
        needs.retain(|need| seen.insert(need.clone()));
        needs
    }

    /// Fetches recorded reads: one round trip, or two if folders are listed as well.
    ///
    /// # Errors
    /// `Io`, `Changed`, `Limit`. Objects that do not exist are reported by the reads themselves.
    pub fn fetch(&self, needs: &[Upcoming]) -> Result<()> {
        let mut state = self.lock();
        state.fetched += 1;
        if state.fetched > MAX_ROUNDS {
            return Err(Error::limit("reading metadata", state.fetched, MAX_ROUNDS));
        }
        drop(state);
        let reads = merged(needs, self.store.profile().gap);
        let folders: Vec<&String> = needs.iter().filter_map(Upcoming::folder).collect();
        if folders.len() > 1 {
            // Requested together, and then answered from memory.
            let listings = folders.iter().map(|folder| Upcoming::Listing((*folder).clone()));
            self.store.prefetch(&listings.collect::<Vec<_>>());
        }
        for folder in folders {
            let listing = match self.store.list(folder) {
                Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => None,
                other => Some(other?),
            };
            self.lock().listings.insert(folder.clone(), listing);
        }
        if reads.is_empty() {
            return Ok(());
        }
        let answers = self.store.read_existing(&reads)?;
        let mut state = self.lock();
        for ((object, _), answer) in reads.iter().zip(answers) {
            let Some(ObjectBytes { start, len, bytes }) = answer else {
                state.objects.insert((*object).to_owned(), None);
                continue;
            };
            let held = state.objects.entry((*object).to_owned()).or_default();
            held.get_or_insert_with(|| Held { len, parts: Vec::new() }).parts.push((start, bytes));
        }
        Ok(())
    }

    /// A part of an object: `Some(None)` if the object does not exist, `None` if it was noted.
    fn find(&self, object: &str, part: &ByteRange) -> Option<Option<ObjectBytes>> {
        let mut state = self.lock();
        match state.objects.get(object) {
            Some(None) => return Some(None),
            Some(Some(held)) => {
                if let Some(found) = held.get(part) {
                    return Some(Some(found));
                }
                // Reported by the caller: the object ends before the range.
                if part.within(held.len).end > held.len {
                    return Some(Some(ObjectBytes { start: 0, len: held.len, bytes: Bytes::new() }));
                }
            }
            None => {}
        }
        state.needs.push(Upcoming::Bytes(object.to_owned(), part.clone()));
        None
    }

    /// The error of an object that does not exist, as the store reports it.
    fn absent(&self, object: &str) -> Error {
        match self.store.len(object) {
            Err(error) => error,
            Ok(_) => Error::changed(self.describe(object), "it was created meanwhile"),
        }
    }
}

/// Reads of the noted parts of objects, with neighboring ranges merged.
fn merged(needs: &[Upcoming], gap: u64) -> Vec<(&str, ByteRange)> {
    let mut exact: Vec<(&str, Range<u64>)> = Vec::new();
    let mut reads = Vec::new();
    for need in needs {
        match need {
            Upcoming::Bytes(object, ByteRange::Exact(range)) => exact.push((object, range.clone())),
            Upcoming::Bytes(object, part) => reads.push((object.as_str(), part.clone())),
            Upcoming::Listing(_) => {}
        }
    }
    exact.sort_unstable_by(|a, b| (a.0, a.1.start).cmp(&(b.0, b.1.start)));
    let mut last: Option<(&str, Range<u64>)> = None;
    for (object, range) in exact {
        match &mut last {
            Some((o, held)) if *o == object && range.start <= held.end.saturating_add(gap) => {
                held.end = held.end.max(range.end);
            }
            _ => reads.extend(last.replace((object, range)).map(|(o, range)| (o, ByteRange::Exact(range)))),
        }
    }
    reads.extend(last.map(|(object, range)| (object, ByteRange::Exact(range))));
    reads
}

impl Store for Rounds {
    fn location(&self) -> &str {
        self.store.location()
    }

    fn len(&self, object: &str) -> Result<u64> {
        if !self.waits {
            return self.store.len(object);
        }
        self.len_if_exists(object)?.ok_or_else(|| self.absent(object))
    }

    fn read_many(&self, object: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        if !self.waits {
            return self.store.read_many(object, ranges);
        }
        let reads: Vec<_> = ranges.iter().map(|range| (object, ByteRange::Exact(range.clone()))).collect();
        Ok(self.read_objects(&reads)?.into_iter().map(|part| part.bytes).collect())
    }

    fn resident(&self, object: &str) -> Result<Option<Bytes>> {
        self.store.resident(object)
    }

    fn view(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        if self.waits { self.read(object, range) } else { self.store.view(object, range) }
    }

    fn watch(&self) -> Result<OperationGuard> {
        self.store.watch()
    }

    fn read_objects(&self, reads: &[(&str, ByteRange)]) -> Result<Vec<ObjectBytes>> {
        if !self.waits {
            return self.store.read_objects(reads);
        }
        let found = self.read_existing(reads)?;
        let parts =
            reads.iter().zip(found).map(|((object, _), found)| found.ok_or_else(|| self.absent(object)));
        parts.collect()
    }

    fn read_existing(&self, reads: &[(&str, ByteRange)]) -> Result<Vec<Option<ObjectBytes>>> {
        if !self.waits {
            return self.store.read_existing(reads);
        }
        let mut parts = Vec::with_capacity(reads.len());
        for (object, part) in reads {
            let Some(found) = self.find(object, part) else { continue };
            if let (Some(found), ByteRange::Exact(range)) = (&found, part) {
                check_range(range, found.len, &|| self.describe(object))?;
            }
            parts.push(found);
        }
        if parts.len() < reads.len() { Err(Error::pending()) } else { Ok(parts) }
    }

    fn beside(&self, name: &str) -> Result<Arc<dyn Store>> {
        self.store.beside(name)
    }

    fn prefetch(&self, upcoming: &[Upcoming]) {
        if !self.waits {
            return self.store.prefetch(upcoming);
        }
        for next in upcoming {
            match next {
                // Noted unless it is held.
                Upcoming::Bytes(object, part) => drop(self.find(object, part)),
                Upcoming::Listing(folder) => drop(self.list(folder)),
            }
        }
    }

    fn profile(&self) -> Profile {
        self.store.profile()
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        if !self.waits {
            return self.store.list(folder);
        }
        let mut state = self.lock();
        match state.listings.get(folder) {
            Some(Some(entries)) => Ok(entries.clone()),
            Some(None) => Err(Error::not_found("folder", self.describe(folder), Vec::new())),
            None => {
                state.needs.push(Upcoming::Listing(folder.to_owned()));
                Err(Error::pending())
            }
        }
    }

    fn stage(&self, object: &str, overwrite: Overwrite) -> Result<Box<dyn Staged>> {
        self.store.stage(object, overwrite)
    }

    fn remove(&self, object: &str) -> Result<()> {
        self.store.remove(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    /// A store that is reached like one over a network, and counts round trips.
    #[derive(Debug)]
    struct Far(MemoryStore, Mutex<Vec<usize>>);

    impl Store for Far {
        fn location(&self) -> &str {
            self.0.location()
        }

        fn len(&self, object: &str) -> Result<u64> {
            self.0.len(object)
        }

        fn read_many(&self, object: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
            self.0.read_many(object, ranges)
        }

        fn resident(&self, _: &str) -> Result<Option<Bytes>> {
            Ok(None)
        }

        fn read_existing(&self, reads: &[(&str, ByteRange)]) -> Result<Vec<Option<ObjectBytes>>> {
            self.1.lock().unwrap().push(reads.len());
            self.0.read_existing(reads)
        }

        fn profile(&self) -> Profile {
            Profile { gap: 4, ..Profile::NETWORK }
        }

        fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
            self.0.list(folder)
        }

        fn stage(&self, object: &str, overwrite: Overwrite) -> Result<Box<dyn Staged>> {
            self.0.stage(object, overwrite)
        }

        fn remove(&self, object: &str) -> Result<()> {
            self.0.remove(object)
        }
    }

    fn far() -> Arc<Far> {
        let store = MemoryStore::new("m");
        for object in ["a", "b"] {
            store.insert(object, (0..100).collect::<Vec<u8>>());
        }
        Arc::new(Far(store, Mutex::default()))
    }

    #[test]
    fn reads_that_do_not_depend_on_one_another_are_one_round() {
        let far = far();
        let store: Arc<dyn Store> = far.clone();
        let sums = Rounds::run(&store, |rounds| {
            let mut sums = Vec::new();
            for object in ["a", "b"] {
                let Some(first) = Rounds::later(rounds.read(object, 10..11))? else { continue };
                let at = u64::from(first[0]) * 5;
                let Some(second) = Rounds::later(rounds.read(object, at..at + 2))? else { continue };
                sums.push(first[0] + second[1]);
            }
            rounds.complete()?;
            Ok(sums)
        });
        assert_eq!(sums.unwrap(), [61, 61]);
        assert_eq!(*far.1.lock().unwrap(), [2, 2]);
    }

    #[test]
    fn neighboring_ranges_are_one_request() {
        let far = far();
        let store: Arc<dyn Store> = far.clone();
        let read = Rounds::run(&store, |rounds| {
            rounds.read_objects(&[
                ("a", ByteRange::Exact(8..10)),
                ("a", ByteRange::Exact(0..4)),
                ("a", ByteRange::Exact(50..52)),
                ("b", ByteRange::Suffix(2)),
            ])
        });
        let bytes: Vec<_> = read.unwrap().into_iter().map(|part| part.bytes.to_vec()).collect();
        assert_eq!(bytes, [vec![8, 9], vec![0, 1, 2, 3], vec![50, 51], vec![98, 99]]);
        assert_eq!(*far.1.lock().unwrap(), [3]);
    }

    #[test]
    fn errors_are_those_of_the_store() {
        let store: Arc<dyn Store> = far();
        let kind = |error: Error| format!("{error}");
        let absent = Rounds::run(&store, |rounds| rounds.read("c", 0..1)).unwrap_err();
        assert_eq!(kind(absent), kind(store.read("c", 0..1).unwrap_err()));
        let past = Rounds::run(&store, |rounds| rounds.read("a", 90..101)).unwrap_err();
        assert_eq!(kind(past), kind(store.read("a", 90..101).unwrap_err()));
        assert_eq!(Rounds::run(&store, |rounds| rounds.len("b")).unwrap(), 100);
        let either = [("c", ByteRange::Whole), ("a", ByteRange::Exact(0..1))];
        let found = Rounds::run(&store, |rounds| rounds.read_existing(&either)).unwrap();
        assert_eq!(found.iter().map(Option::is_some).collect::<Vec<_>>(), [false, true]);
    }
}
