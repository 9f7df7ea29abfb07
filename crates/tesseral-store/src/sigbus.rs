//! Memory-mapped files that are truncated while they are read cause an error instead of a signal.
//!
//! Accessing a page of a map that its file no longer has, or that cannot be read, raises SIGBUS. During an operation
//! ([`OperationGuard`]), the handler below maps zeros there, records the fault on the store ([`MapRegistry`]) and lets the
//! operation continue; at its end the fault replaces its result. The rest of the page in which the file now ends reads as zeros
//! without a signal, so the length of every file that the operation used is compared as well. After a fault, the store rejects
//! all further operations, so that nothing derived from the zeros is returned later.
//!
//! Bytes that outlive operations are slices of another map of the same file ([`Mapped::view`]), which is not guarded: no
//! operation would check for the fault, so an access to missing pages still raises the signal. The same holds for every access
//! outside an operation.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use bytes::Bytes;
use memmap2::Mmap;
use tesseral_core::{Error, Result};

use crate::identity::{Identities, OpenFile};
use crate::map::map;

/// State shared by the maps of one store.
#[derive(Debug)]
pub(crate) struct MapRegistry {
    location: String,
    /// Number of operations in progress.
    active: AtomicUsize,
    /// Number of the last operation that began.
    begun: AtomicU64,
    /// Set when an operation accessed a missing page. Never reset.
    hit: AtomicBool,
    files: RwLock<Vec<Weak<Mapped>>>,
    /// State of the files when they were opened, mapped or not.
    pub(crate) identities: Arc<Identities>,
}

impl MapRegistry {
    pub(crate) fn new(location: String) -> Arc<Self> {
        Arc::new(Self {
            location,
            active: AtomicUsize::new(0),
            begun: AtomicU64::new(0),
            hit: AtomicBool::new(false),
            files: RwLock::default(),
            identities: Arc::default(),
        })
    }

    /// Begins an operation.
    pub(crate) fn watch(self: &Arc<Self>) -> Result<OperationGuard> {
        self.active.fetch_add(1, SeqCst);
        let since = self.begun.fetch_add(1, SeqCst) + 1;
        let watch = OperationGuard { begun: Some((Arc::clone(self), since)), may_grow: false };
        // Replaced pages are closed when no operation is in progress: no operation can begin after a fault.
        self.check_hit()?;
        Ok(watch)
    }

    /// Number of the last operation that began.
    pub(crate) fn last_begun(&self) -> u64 {
        self.begun.load(SeqCst)
    }

    /// The files with live maps.
    fn find_file<T>(&self, visit: impl FnMut(Arc<Mapped>) -> Option<T>) -> Option<T> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.iter().filter_map(Weak::upgrade).find_map(visit)
    }

    fn check_hit(&self) -> Result<()> {
        if !self.hit.load(SeqCst) {
            return Ok(());
        }
        let hit = self
            .find_file(|file| (file.mapped_range.gone.load(SeqCst) < usize::MAX).then(|| file.truncated()));
        // All bytes of the map can have been dropped.
        Err(hit.unwrap_or_else(|| truncated(&self.location, "a part of the file could not be read")))
    }

    fn check(&self, since: u64, may_grow: bool) -> Result<()> {
        self.check_hit()?;
        let used = |file: &Mapped| file.given.load(SeqCst) >= since;
        self.find_file(|file| if used(&file) { file.check_len().err() } else { None }).map_or(Ok(()), Err)?;
        self.identities.check(since, may_grow)
    }

    /// Closes replaced pages: an access outside an operation must not return zeros.
    fn close(&self) {
        self.find_file(|file| {
            fault::close(&file.mapped_range);
            None::<()>
        });
    }
}

fn truncated(object: &str, detail: &str) -> Error {
    Error::corrupt("the file", object, None, detail).hint(
        "another process truncated the file while it was read, or its device failed; open the file again",
    )
}

/// An operation that can access mapped bytes. Its results are valid only if [`check`](Self::check) succeeds afterwards; see
/// [`StoreExt::guarded`](crate::StoreExt::guarded).
#[derive(Debug, Default)]
#[must_use]
pub struct OperationGuard {
    begun: Option<(Arc<MapRegistry>, u64)>,
    may_grow: bool,
}

impl OperationGuard {
    /// Fails if a file that the operation used has changed since it was opened, or a mapped one could not be read.
    ///
    /// # Errors
    /// `Changed`; `Corrupt` with the name of the file if it was truncated; `Io`.
    pub fn check(&self) -> Result<()> {
        self.begun.as_ref().map_or(Ok(()), |(watcher, since)| watcher.check(*since, self.may_grow))
    }

    /// As [`check`](Self::check), but a file that grew counts as unchanged.
    pub(crate) fn of_growing_files(mut self) -> Self {
        self.may_grow = true;
        self
    }
}

impl Drop for OperationGuard {
    fn drop(&mut self) {
        if let Some((watcher, _)) = &self.begun
            && watcher.active.fetch_sub(1, SeqCst) == 1
            && watcher.hit.load(SeqCst)
        {
            watcher.close();
        }
    }
}

/// Address range of a map: all that the handler accesses.
#[derive(Debug)]
struct MappedRange {
    /// Start and end address.
    start: usize,
    end: usize,
    /// The first address whose page was replaced by zeros.
    gone: AtomicUsize,
    watcher: Arc<MapRegistry>,
}

/// A file and its map. Lives as long as any bytes of it.
#[derive(Debug)]
pub(crate) struct Mapped {
    object: String,
    file: Arc<OpenFile>,
    mapped_range: Arc<MappedRange>,
    // Dropped before the map: afterwards no handler accesses it.
    guard: Option<fault::Guard>,
    map: Mmap,
    /// The last operation that had begun when its bytes were last requested.
    given: AtomicU64,
    view: OnceLock<Bytes>,
}

/// Bytes of a map keep the map alive.
struct Owner(Arc<Mapped>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0.map
    }
}

impl Mapped {
    /// Maps a file that is not empty, and guards the map.
    pub(crate) fn new(
        object: String,
        file: Arc<OpenFile>,
        watcher: &Arc<MapRegistry>,
    ) -> std::io::Result<Arc<Self>> {
        let map = map(&file.file)?;
        let start = map.as_ptr() as usize;
        let gone = AtomicUsize::new(usize::MAX);
        let mapped_range =
            Arc::new(MappedRange { start, end: start + map.len(), gone, watcher: Arc::clone(watcher) });
        let guard = fault::Guard::new(&mapped_range);
        let (given, view) = (AtomicU64::new(0), OnceLock::new());
        let mapped = Arc::new(Self { object, file, mapped_range, guard, map, given, view });
        let mut files = watcher.files.write().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| file.strong_count() > 0);
        files.push(Arc::downgrade(&mapped));
        Ok(mapped)
    }

    /// Takes the pages out of the memory of this process, unless some were replaced by zeros.
    pub(crate) fn release(&self) {
        if self.mapped_range.gone.load(SeqCst) == usize::MAX {
            crate::map::release(&self.map);
        }
    }

    /// Returns the bytes, for operations in progress.
    pub(crate) fn bytes(self: &Arc<Self>) -> Bytes {
        Bytes::from_owner(Owner(Arc::clone(self)))
    }

    /// Returns bytes of unlimited lifetime: slices of a map that is not guarded.
    pub(crate) fn view(&self) -> Result<Bytes> {
        if let Some(view) = self.view.get() {
            return Ok(view.clone());
        }
        let map = map(&self.file.file).map_err(|e| Error::io("map", &self.object, e))?;
        if map.len() < self.map.len() {
            return Err(self.truncated());
        }
        let view = Bytes::from_owner(map).slice(..self.map.len());
        Ok(self.view.get_or_init(|| view).clone())
    }

    /// Marks the map as used by the operations in progress. Fails if the file is known to be truncated.
    pub(crate) fn check_use(&self) -> Result<()> {
        let watcher = &self.mapped_range.watcher;
        watcher.check_hit()?;
        self.given.fetch_max(watcher.begun.load(SeqCst), SeqCst);
        // Operations in progress compare the length at their end, which suffices where faults are caught.
        if self.guard.is_some() && watcher.active.load(SeqCst) > 0 { Ok(()) } else { self.check_len() }
    }

    fn check_len(&self) -> Result<()> {
        let metadata = self.file.file.metadata().map_err(|e| Error::io("stat", &self.object, e))?;
        if metadata.len() < self.map.len() as u64 { Err(self.truncated()) } else { Ok(()) }
    }

    fn truncated(&self) -> Error {
        let len = self.file.file.metadata().map_or(0, |m| m.len());
        let had = self.map.len();
        truncated(
            &self.object,
            &format!(
                "the length changed from {had} to {len} bytes after the file was opened, or a page cannot be read"
            ),
        )
    }
}

/// The SIGBUS handler and its table.
#[cfg(target_os = "linux")]
mod fault {
    use std::ffi::{c_int, c_void};
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};
    use std::sync::{Arc, Mutex, OnceLock, PoisonError};

    use super::MappedRange;

    type Slot = AtomicPtr<MappedRange>;

    /// Address ranges of guarded maps, in segments that are allocated once and never moved, each twice as long as the previous
    /// one.
    static SEGMENTS: [OnceLock<Box<[Slot]>>; 24] = [const { OnceLock::new() }; 24];
    const FIRST: usize = 64;
    /// Free slots, and the number of segments.
    static FREE: Mutex<(Vec<&'static Slot>, usize)> = Mutex::new((Vec::new(), 0));
    /// Number of handlers that access the table.
    static LOOKING: AtomicUsize = AtomicUsize::new(0);
    /// The previous signal action.
    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    static PAGE: AtomicUsize = AtomicUsize::new(0);

    /// Registration of a map; faults in it are caught until it is dropped.
    #[derive(Debug)]
    pub(super) struct Guard {
        slot: &'static Slot,
        _place: Arc<MappedRange>,
    }

    impl Guard {
        /// `None` if there is no handler or no free slot: the map is then not guarded.
        pub(super) fn new(mapped_range: &Arc<MappedRange>) -> Option<Self> {
            if !*INSTALLED.get_or_init(install) {
                return None;
            }
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            if free.0.is_empty() {
                let number = free.1;
                let make = || (0..FIRST << number).map(|_| Slot::default()).collect();
                free.0.extend(SEGMENTS.get(number)?.get_or_init(make));
                free.1 += 1;
            }
            let slot = free.0.pop()?;
            slot.store(Arc::as_ptr(mapped_range).cast_mut(), SeqCst);
            Some(Self { slot, _place: Arc::clone(mapped_range) })
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            self.slot.store(std::ptr::null_mut(), SeqCst);
            // Later handlers find the slot empty; running ones finish shortly.
            while LOOKING.load(SeqCst) > 0 {
                std::thread::yield_now();
            }
            FREE.lock().unwrap_or_else(PoisonError::into_inner).0.push(self.slot);
        }
    }

    #[allow(unsafe_code)]
    fn install() -> bool {
        // SAFETY: `sysconf` takes a number. `sigaction` gets the address of a zeroed structure, which is valid, to fill in.
        let (page, before) = unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            let known = libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) == 0;
            (libc::sysconf(libc::_SC_PAGESIZE), known.then_some(before))
        };
        let (Some(before), Some(page)) = (before, usize::try_from(page).ok().filter(|n| n.is_power_of_two()))
        else {
            return false;
        };
        // The handler needs both.
        PAGE.store(page, SeqCst);
        let _ = BEFORE.set(before);
        // SAFETY: the structure is valid as above; `on_fault` has the signature that SA_SIGINFO requires, uses only atomics,
        // `mmap`, `sigaction` and `raise`, and lives as long as the process.
        unsafe {
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_fault as *const () as usize;
            // Use the alternate signal stack if there is one: another handler can have to report that the stack is full.
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) == 0
        }
    }

    /// Maps zeros for faults in guarded maps; forwards all others to the previous action.
    #[allow(unsafe_code)]
    extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel passes a valid structure to handlers that requested one; the address is read, never dereferenced.
        let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
        // Codes above 0 come from the kernel; a signal sent by `kill` has no address.
        let fault = code > 0;
        if !(fault && replace(address)) {
            pass_on(signal, info, context, fault);
        }
    }

    /// Maps zeros from the page of an address to the end of its map, if the map is guarded and an operation will check for the
    /// fault.
    #[allow(unsafe_code)]
    fn replace(address: usize) -> bool {
        LOOKING.fetch_add(1, SeqCst);
        let slots = SEGMENTS.iter().map_while(OnceLock::get).flatten();
        // SAFETY: a slot contains null or the address of a `MappedRange` that its `Guard` keeps alive. The guard clears the
        // slot and waits until no handler accesses the table before it releases the range, and this handler is counted above.
        let mut places = slots.filter_map(|slot| unsafe { slot.load(SeqCst).as_ref() });
        let found = places.find(|mapped_range| (mapped_range.start..mapped_range.end).contains(&address));
        let replaced = found.is_some_and(|mapped_range| {
            if mapped_range.watcher.active.load(SeqCst) == 0 {
                return false;
            }
            // Recorded before any thread can read a zero: the call below is a barrier for all threads.
            mapped_range.watcher.hit.store(true, SeqCst);
            let page = address & !(PAGE.load(SeqCst) - 1);
            mapped_range.gone.fetch_min(page, SeqCst);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            let (at, len) = (page as *mut c_void, mapped_range.end - page);
            // SAFETY: the pages from `page` to `end` belong to a map that exists as long as its guard. No code relies on their
            // content: another process can change it at any time, and every reader of the map allows for that.
            unsafe { libc::mmap(at, len, libc::PROT_READ, flags, -1, 0) == at }
        });
        LOOKING.fetch_sub(1, SeqCst);
        replaced
    }

    /// Performs the previous signal action.
    #[allow(unsafe_code)]
    fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, fault: bool) {
        let before = BEFORE.get();
        let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
        match before {
            Some(before) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
                // SAFETY: the kernel would have called that address in the same way.
                unsafe {
                    if before.sa_flags & libc::SA_SIGINFO != 0 {
                        type Detailed = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                        std::mem::transmute::<usize, Detailed>(handler)(signal, info, context);
                    } else {
                        std::mem::transmute::<usize, extern "C" fn(c_int)>(handler)(signal);
                    }
                }
            }
            _ if handler == libc::SIG_IGN && !fault => {}
            // SAFETY: the structure is valid. Afterwards the access is repeated, or the signal raised again, and ends the
            // process as it would have without the handler.
            _ => unsafe {
                let mut default: libc::sigaction = std::mem::zeroed();
                default.sa_sigaction = libc::SIG_DFL;
                libc::sigaction(signal, &raw const default, std::ptr::null_mut());
                if !fault {
                    libc::raise(signal);
                }
            },
        }
    }

    /// Makes the replaced pages inaccessible.
    #[allow(unsafe_code)]
    pub(super) fn close(mapped_range: &MappedRange) {
        let gone = mapped_range.gone.load(SeqCst);
        if gone < mapped_range.end {
            // SAFETY: the pages belong to a map that the caller owns. No operation is in progress and none can begin after a
            // fault, so only accesses that would have raised a signal before are affected.
            unsafe { libc::mprotect(gone as *mut c_void, mapped_range.end - gone, libc::PROT_NONE) };
        }
    }
}

/// Other systems: a truncation between two checks of the length ends the process.
#[cfg(not(target_os = "linux"))]
mod fault {
    use std::sync::Arc;

    use super::MappedRange;

    #[derive(Debug)]
    pub(super) struct Guard;

    impl Guard {
        pub(super) fn new(_: &Arc<MappedRange>) -> Option<Self> {
            None
        }
    }

    pub(super) fn close(_: &MappedRange) {}
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use tesseral_core::{ErrorKind, Result};

    use crate::{Bytes, LocalStore, ReadMode, Store, StoreExt};

    const LEN: u64 = 100_000;

    fn store_with_file() -> (tempfile::TempDir, LocalStore) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["f", "g"] {
            fs::write(folder.path().join(name), vec![7; LEN as usize]).unwrap();
        }
        let store = LocalStore::new(folder.path(), ReadMode::Map);
        (folder, store)
    }

    fn shorten(folder: &tempfile::TempDir, len: u64) {
        File::options().write(true).open(folder.path().join("f")).unwrap().set_len(len).unwrap();
    }

    fn sum(bytes: &Bytes) -> u64 {
        bytes.iter().map(|b| u64::from(*b)).sum()
    }

    fn is_cut<T: std::fmt::Debug>(result: Result<T>) -> bool {
        matches!(result.unwrap_err().kind(), ErrorKind::Corrupt { object, .. } if object.ends_with("/f"))
    }

    #[test]
    fn a_truncation_during_an_operation_replaces_its_result() {
        for len in [0, 10, 4096, 50_000, LEN - 4096] {
            let (folder, store) = store_with_file();
            let other = store.read("g", 0..LEN).unwrap();
            let guarded_result = store.guarded(|| -> Result<u64> {
                let bytes = store.resident("f")?.unwrap();
                shorten(&folder, len);
                // Several threads at once, as in operations.
                std::thread::scope(|s| (0..4).for_each(|_| drop(s.spawn(|| sum(&bytes)))));
                Ok(sum(&bytes))
            });
            assert!(is_cut(guarded_result), "{len}");
            // The store stays unusable, even if the file has its old length again. A new store works.
            shorten(&folder, LEN);
            assert!(is_cut(store.read("f", 0..1)) && is_cut(store.guarded(|| Ok(()))));
            assert_eq!(sum(&other), 7 * LEN);
            let again = LocalStore::new(folder.path(), ReadMode::Map);
            assert_eq!(again.guarded(|| again.read("g", 0..LEN).map(|b| sum(&b))).unwrap(), 7 * LEN);
        }
    }

    #[test]
    fn a_truncation_without_a_signal_is_detected() {
        let (folder, store) = store_with_file();
        let guarded_result = store.guarded(|| -> Result<u64> {
            let bytes = store.read("f", LEN - 10..LEN)?;
            // The rest of the page reads as zeros.
            shorten(&folder, LEN - 5);
            assert_eq!(sum(&bytes), 35);
            Ok(sum(&bytes))
        });
        assert!(is_cut(guarded_result));
        assert_eq!(store.guarded(|| store.read("g", 0..LEN).map(|b| sum(&b))).unwrap(), 7 * LEN);
    }

    #[test]
    fn views_use_another_map() {
        let (folder, store) = store_with_file();
        let view = store.view("f", 10..LEN).unwrap();
        assert_eq!(sum(&view), 7 * (LEN - 10));
        let borrowed = store.read("f", 10..LEN).unwrap();
        assert_eq!((borrowed == view, borrowed.as_ptr() == view.as_ptr()), (true, false));
        let guarded_result = store.guarded(|| -> Result<u64> {
            shorten(&folder, 20);
            Ok(sum(&borrowed))
        });
        assert!(guarded_result.is_err());
        assert_eq!(view[..10], [7; 10]);
    }

    #[test]
    fn maps_are_created_and_dropped_while_others_fault() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let (folder, store) = store_with_file();
                        let guarded_result = store.guarded(|| -> Result<u64> {
                            let bytes = store.read("f", 0..LEN)?;
                            shorten(&folder, 4096);
                            Ok(sum(&bytes) + sum(&store.read("g", 0..LEN)?))
                        });
                        assert!(guarded_result.is_err());
                    }
                });
            }
        });
    }

    /// Runs a test again in a child process, which ends by SIGBUS. Returns false in that process.
    fn ends_by_a_signal(test: &str) -> bool {
        const CHILD: &str = "TESSERAL_GUARD_CHILD";
        if std::env::var_os(CHILD).is_some() {
            return false;
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = format!("sigbus::tests::{test}");
        let status = child.args(["--exact", &name, "--nocapture"]).env(CHILD, "1").output().unwrap().status;
        // Disable core files of the child.
        assert!(matches!(status.signal(), Some(libc::SIGBUS | libc::SIGSEGV)), "{status}");
        true
    }

    #[test]
    fn missing_pages_end_the_process_outside_operations() {
        if ends_by_a_signal("missing_pages_end_the_process_outside_operations") {
            return;
        }
        let (folder, store) = store_with_file();
        let bytes = store.read("f", 0..LEN).unwrap();
        shorten(&folder, 0);
        println!("{}", sum(&bytes));
    }

    #[test]
    fn views_end_the_process_during_operations_too() {
        if ends_by_a_signal("views_end_the_process_during_operations_too") {
            return;
        }
        let (folder, store) = store_with_file();
        let view = store.view("f", 0..LEN).unwrap();
        shorten(&folder, 0);
        let _ = store.guarded(|| -> Result<u64> { Ok(sum(&view)) });
    }

    #[test]
    fn zeros_are_not_readable_after_the_operation() {
        if ends_by_a_signal("zeros_are_not_readable_after_the_operation") {
            return;
        }
        let (folder, store) = store_with_file();
        let bytes = store.read("f", 0..LEN).unwrap();
        let guarded_result = store.guarded(|| -> Result<u64> {
            shorten(&folder, 0);
            Ok(sum(&bytes))
        });
        assert!(guarded_result.is_err());
        println!("{}", sum(&bytes));
    }

    #[test]
    fn faults_elsewhere_end_the_process_as_before() {
        if ends_by_a_signal("faults_elsewhere_end_the_process_as_before") {
            return;
        }
        let (folder, store) = store_with_file();
        let _ = store.guarded(|| -> Result<()> {
            // Guarded maps exist and an operation is in progress, but this map is not guarded.
            store.read("g", 0..1)?;
            let foreign = crate::map::map(&File::open(folder.path().join("f")).unwrap()).unwrap();
            shorten(&folder, 0);
            println!("{}", foreign[0]);
            Ok(())
        });
    }
}
