//! Mapped files that are cut while they are read: an error instead of a signal.
//!
//! Touching a page of a map that its file no longer has raises SIGBUS, and so does a page that cannot be read. While an operation is
//! under way ([`Watch`]), the handler below puts zeros where the file is gone, notes that on the store ([`Watcher`]) and lets the
//! operation run on; at its end the note takes the place of its result. Bytes after a cut in the page where it lies are zero without
//! any signal, so the length of every file that the operation used is compared once more, too. A store that was hit answers nothing
//! from then on: whatever was derived from zeros and kept cannot come out later.
//!
//! Bytes that outlive operations are slices of another map of the same file ([`Mapped::view`]), which is not guarded: nobody would
//! look at the note, so touching what is gone there stays a signal. The same holds for every touch outside an operation.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, Weak};

use bytes::Bytes;
use memmap2::Mmap;
use tesseral_core::{Error, Result};

use crate::identity::{Identities, OpenFile};
use crate::map::map;

/// What the maps of one store have in common.
#[derive(Debug)]
pub(crate) struct Watcher {
    location: String,
    /// Operations under way.
    active: AtomicUsize,
    /// The number of the last operation that began.
    begun: AtomicU64,
    /// A page was gone when an operation touched it. Never taken back.
    hit: AtomicBool,
    files: RwLock<Vec<Weak<Mapped>>>,
    /// What its files were when they were opened, mapped or not.
    pub(crate) identities: Arc<Identities>,
}

impl Watcher {
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
    pub(crate) fn watch(self: &Arc<Self>) -> Result<Watch> {
        self.active.fetch_add(1, SeqCst);
        let since = self.begun.fetch_add(1, SeqCst) + 1;
        let watch = Watch { begun: Some((Arc::clone(self), since)), may_grow: false };
        // What is gone is closed once nobody is under way: no operation may begin after a hit.
        self.check_hit()?;
        Ok(watch)
    }

    /// The number of the last operation that began.
    pub(crate) fn last_begun(&self) -> u64 {
        self.begun.load(SeqCst)
    }

    /// The files whose bytes are still somewhere.
    fn each<T>(&self, visit: impl FnMut(Arc<Mapped>) -> Option<T>) -> Option<T> {
        let files = self.files.read().unwrap_or_else(PoisonError::into_inner);
        files.iter().filter_map(Weak::upgrade).find_map(visit)
    }

    fn check_hit(&self) -> Result<()> {
        if !self.hit.load(SeqCst) {
            return Ok(());
        }
        let hit = self.each(|file| (file.place.gone.load(SeqCst) < usize::MAX).then(|| file.cut()));
        // Nobody may hold bytes of it any more.
        Err(hit.unwrap_or_else(|| cut(&self.location, "not all of it could be read")))
    }

    fn check(&self, since: u64, may_grow: bool) -> Result<()> {
        self.check_hit()?;
        let used = |file: &Mapped| file.given.load(SeqCst) >= since;
        self.each(|file| if used(&file) { file.check_len().err() } else { None }).map_or(Ok(()), Err)?;
        self.identities.check(since, may_grow)
    }

    /// Closes what was replaced by zeros: a touch outside an operation must not take them for the file.
    fn close(&self) {
        self.each(|file| {
            fault::close(&file.place);
            None::<()>
        });
    }
}

fn cut(object: &str, detail: &str) -> Error {
    Error::corrupt("the file", object, None, detail)
        .hint("another process cut the file while it was read, or its device failed; open it again")
}

/// An operation that may touch mapped bytes. What it gives out is right only if [`check`](Self::check) says so afterwards; see
/// [`StoreExt::guarded`](crate::StoreExt::guarded).
#[derive(Debug, Default)]
#[must_use]
pub struct Watch {
    begun: Option<(Arc<Watcher>, u64)>,
    may_grow: bool,
}

impl Watch {
    /// Fails when a file that the operation used is not what it was when it was opened, or a mapped one could not be read.
    ///
    /// # Errors
    /// `Changed`, `Corrupt` when it was cut, with the file; `Io`.
    pub fn check(&self) -> Result<()> {
        self.begun.as_ref().map_or(Ok(()), |(watcher, since)| watcher.check(*since, self.may_grow))
    }

    /// The same where files that get longer count as unchanged.
    pub(crate) fn of_growing_files(mut self) -> Self {
        self.may_grow = true;
        self
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some((watcher, _)) = &self.begun
            && watcher.active.fetch_sub(1, SeqCst) == 1
            && watcher.hit.load(SeqCst)
        {
            watcher.close();
        }
    }
}

/// Where a map lies: all that the handler looks at.
#[derive(Debug)]
struct Place {
    /// Its first address and the one behind its last.
    start: usize,
    end: usize,
    /// The first address whose page was replaced by zeros.
    gone: AtomicUsize,
    watcher: Arc<Watcher>,
}

/// A file and its map. Lives as long as any bytes of it.
#[derive(Debug)]
pub(crate) struct Mapped {
    object: String,
    file: Arc<OpenFile>,
    place: Arc<Place>,
    // Goes before the map does: afterwards no handler looks at it.
    guard: Option<fault::Guard>,
    map: Mmap,
    /// The last operation that had begun when its bytes were last asked for.
    given: AtomicU64,
    view: OnceLock<Bytes>,
}

/// Bytes of a map hold the map.
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
        watcher: &Arc<Watcher>,
    ) -> std::io::Result<Arc<Self>> {
        let map = map(&file.file)?;
        let start = map.as_ptr() as usize;
        let gone = AtomicUsize::new(usize::MAX);
        let place = Arc::new(Place { start, end: start + map.len(), gone, watcher: Arc::clone(watcher) });
        let guard = fault::Guard::new(&place);
        let (given, view) = (AtomicU64::new(0), OnceLock::new());
        let mapped = Arc::new(Self { object, file, place, guard, map, given, view });
        let mut files = watcher.files.write().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| file.strong_count() > 0);
        files.push(Arc::downgrade(&mapped));
        Ok(mapped)
    }

    /// The bytes, for operations that are under way.
    pub(crate) fn bytes(self: &Arc<Self>) -> Bytes {
        Bytes::from_owner(Owner(Arc::clone(self)))
    }

    /// The bytes, for as long as anyone likes: slices of a map that is not guarded.
    pub(crate) fn view(&self) -> Result<Bytes> {
        if let Some(view) = self.view.get() {
            return Ok(view.clone());
        }
        let map = map(&self.file.file).map_err(|e| Error::io("map", &self.object, e))?;
        if map.len() < self.map.len() {
            return Err(self.cut());
        }
        let view = Bytes::from_owner(map).slice(..self.map.len());
        Ok(self.view.get_or_init(|| view).clone())
    }

    /// Notes that operations under way use it. Fails when it is known to be cut.
    pub(crate) fn give(&self) -> Result<()> {
        let watcher = &self.place.watcher;
        watcher.check_hit()?;
        self.given.fetch_max(watcher.begun.load(SeqCst), SeqCst);
        // Whoever is under way compares the length in the end, which is soon enough where faults are caught.
        if self.guard.is_some() && watcher.active.load(SeqCst) > 0 { Ok(()) } else { self.check_len() }
    }

    fn check_len(&self) -> Result<()> {
        let metadata = self.file.file.metadata().map_err(|e| Error::io("stat", &self.object, e))?;
        if metadata.len() < self.map.len() as u64 { Err(self.cut()) } else { Ok(()) }
    }

    fn cut(&self) -> Error {
        let len = self.file.file.metadata().map_or(0, |m| m.len());
        let had = self.map.len();
        cut(
            &self.object,
            &format!("it had {had} bytes when it was opened, now it has {len}, or a page cannot be read"),
        )
    }
}

/// The handler of SIGBUS, and the table it looks into.
#[cfg(target_os = "linux")]
mod fault {
    use std::ffi::{c_int, c_void};
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::SeqCst};
    use std::sync::{Arc, Mutex, OnceLock, PoisonError};

    use super::Place;

    type Slot = AtomicPtr<Place>;

    /// Places of guarded maps, in segments that are made once and never moved, each twice as long as the one before.
    static SEGMENTS: [OnceLock<Box<[Slot]>>; 24] = [const { OnceLock::new() }; 24];
    const FIRST: usize = 64;
    /// Slots that hold nothing, and how many segments there are.
    static FREE: Mutex<(Vec<&'static Slot>, usize)> = Mutex::new((Vec::new(), 0));
    /// Handlers that look into the table.
    static LOOKING: AtomicUsize = AtomicUsize::new(0);
    /// What was done about the signal before.
    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    static PAGE: AtomicUsize = AtomicUsize::new(0);

    /// While it lives, faults in a map are caught.
    #[derive(Debug)]
    pub(super) struct Guard {
        slot: &'static Slot,
        _place: Arc<Place>,
    }

    impl Guard {
        /// `None` where there is no handler or no room: such a map is as good as any other.
        pub(super) fn new(place: &Arc<Place>) -> Option<Self> {
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
            slot.store(Arc::as_ptr(place).cast_mut(), SeqCst);
            Some(Self { slot, _place: Arc::clone(place) })
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            self.slot.store(std::ptr::null_mut(), SeqCst);
            // A handler that looks from now on finds the slot empty; one that looks already is done in a moment.
            while LOOKING.load(SeqCst) > 0 {
                std::thread::yield_now();
            }
            FREE.lock().unwrap_or_else(PoisonError::into_inner).0.push(self.slot);
        }
    }

    #[allow(unsafe_code)]
    fn install() -> bool {
        // SAFETY: `sysconf` takes a number. `sigaction` gets the address of a zeroed structure, which is a valid one, to fill in.
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
        // SAFETY: the structure is valid as above; `on_fault` has the signature that SA_SIGINFO asks for, uses nothing but
        // atomics, `mmap`, `sigaction` and `raise`, and lives as long as the process.
        unsafe {
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_fault as *const () as usize;
            // On the stack for signals where there is one: another handler may have to tell that the usual one is full.
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigaction(libc::SIGBUS, &raw const ours, std::ptr::null_mut()) == 0
        }
    }

    /// Faults in guarded maps get zeros; everything else goes where it went before.
    #[allow(unsafe_code)]
    extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel hands a valid structure to handlers that asked for one; the address is read only, never followed.
        let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
        // Codes above 0 are the kernel's own: somebody's `kill` has no address.
        let fault = code > 0;
        if !(fault && replace(address)) {
            pass_on(signal, info, context, fault);
        }
    }

    /// Puts zeros from the page of an address to the end of its map, if that is guarded and an operation will ask about it.
    #[allow(unsafe_code)]
    fn replace(address: usize) -> bool {
        LOOKING.fetch_add(1, SeqCst);
        let slots = SEGMENTS.iter().map_while(OnceLock::get).flatten();
        // SAFETY: a slot holds null or the address of a `Place` that its `Guard` keeps alive. The guard empties the slot and waits
        // until nobody is looking before it lets go, and we said above that we are.
        let mut places = slots.filter_map(|slot| unsafe { slot.load(SeqCst).as_ref() });
        let found = places.find(|place| (place.start..place.end).contains(&address));
        let replaced = found.is_some_and(|place| {
            if place.watcher.active.load(SeqCst) == 0 {
                return false;
            }
            // Noted before anyone can see a zero: the call below is a barrier for all threads.
            place.watcher.hit.store(true, SeqCst);
            let page = address & !(PAGE.load(SeqCst) - 1);
            place.gone.fetch_min(page, SeqCst);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
            let (at, len) = (page as *mut c_void, place.end - page);
            // SAFETY: the pages from `page` to `end` belong to a map that is there as long as its guard is. Nobody may rely on what
            // they hold: another process can change it at any time, and every reader of the map allows for that.
            unsafe { libc::mmap(at, len, libc::PROT_READ, flags, -1, 0) == at }
        });
        LOOKING.fetch_sub(1, SeqCst);
        replaced
    }

    /// Does what was done about the signal before there was a guard.
    #[allow(unsafe_code)]
    fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, fault: bool) {
        let before = BEFORE.get();
        let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
        match before {
            Some(before) if handler != libc::SIG_DFL && handler != libc::SIG_IGN => {
                // SAFETY: the kernel would have called that address in just this way.
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
            // SAFETY: the structure is a valid one. After that the touch is repeated, or the signal raised again, and ends the
            // process as it would have without us.
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

    /// Makes what was replaced unreadable.
    #[allow(unsafe_code)]
    pub(super) fn close(place: &Place) {
        let gone = place.gone.load(SeqCst);
        if gone < place.end {
            // SAFETY: the pages belong to a map that the caller keeps. No operation is under way and none can begin after a hit,
            // so nobody reads there but who would have ended by a signal before, too.
            unsafe { libc::mprotect(gone as *mut c_void, place.end - gone, libc::PROT_NONE) };
        }
    }
}

/// Other systems: a cut between two checks of the length ends the process.
#[cfg(not(target_os = "linux"))]
mod fault {
    use std::sync::Arc;

    use super::Place;

    #[derive(Debug)]
    pub(super) struct Guard;

    impl Guard {
        pub(super) fn new(_: &Arc<Place>) -> Option<Self> {
            None
        }
    }

    pub(super) fn close(_: &Place) {}
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use tesseral_core::{ErrorKind, Result};

    use crate::{Access, Bytes, LocalStore, Store, StoreExt};

    const LEN: u64 = 100_000;

    fn made() -> (tempfile::TempDir, LocalStore) {
        let folder = tempfile::tempdir().unwrap();
        for name in ["f", "g"] {
            fs::write(folder.path().join(name), vec![7; LEN as usize]).unwrap();
        }
        let store = LocalStore::new(folder.path(), Access::Map);
        (folder, store)
    }

    fn cut(folder: &tempfile::TempDir, len: u64) {
        File::options().write(true).open(folder.path().join("f")).unwrap().set_len(len).unwrap();
    }

    fn sum(bytes: &Bytes) -> u64 {
        bytes.iter().map(|b| u64::from(*b)).sum()
    }

    fn is_cut<T: std::fmt::Debug>(result: Result<T>) -> bool {
        matches!(result.unwrap_err().kind(), ErrorKind::Corrupt { object, .. } if object.ends_with("/f"))
    }

    #[test]
    fn a_cut_during_an_operation_takes_the_place_of_its_result() {
        for len in [0, 10, 4096, 50_000, LEN - 4096] {
            let (folder, store) = made();
            let other = store.read("g", 0..LEN).unwrap();
            let told = store.guarded(|| -> Result<u64> {
                let bytes = store.resident("f")?.unwrap();
                cut(&folder, len);
                // Several threads at once, as operations have them.
                std::thread::scope(|s| (0..4).for_each(|_| drop(s.spawn(|| sum(&bytes)))));
                Ok(sum(&bytes))
            });
            assert!(is_cut(told), "{len}");
            // The store is of no use from then on, even when the file is as long as it was. Another one is.
            cut(&folder, LEN);
            assert!(is_cut(store.read("f", 0..1)) && is_cut(store.guarded(|| Ok(()))));
            assert_eq!(sum(&other), 7 * LEN);
            let again = LocalStore::new(folder.path(), Access::Map);
            assert_eq!(again.guarded(|| again.read("g", 0..LEN).map(|b| sum(&b))).unwrap(), 7 * LEN);
        }
    }

    #[test]
    fn a_cut_that_raises_no_signal_is_found_as_well() {
        let (folder, store) = made();
        let told = store.guarded(|| -> Result<u64> {
            let bytes = store.read("f", LEN - 10..LEN)?;
            // The rest of the page is zero, but there.
            cut(&folder, LEN - 5);
            assert_eq!(sum(&bytes), 35);
            Ok(sum(&bytes))
        });
        assert!(is_cut(told));
        assert_eq!(store.guarded(|| store.read("g", 0..LEN).map(|b| sum(&b))).unwrap(), 7 * LEN);
    }

    #[test]
    fn views_are_of_another_map() {
        let (folder, store) = made();
        let view = store.view("f", 10..LEN).unwrap();
        assert_eq!(sum(&view), 7 * (LEN - 10));
        let borrowed = store.read("f", 10..LEN).unwrap();
        assert_eq!((borrowed == view, borrowed.as_ptr() == view.as_ptr()), (true, false));
        let told = store.guarded(|| -> Result<u64> {
            cut(&folder, 20);
            Ok(sum(&borrowed))
        });
        assert!(told.is_err());
        assert_eq!(view[..10], [7; 10]);
    }

    #[test]
    fn many_maps_come_and_go_while_others_fault() {
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let (folder, store) = made();
                        let told = store.guarded(|| -> Result<u64> {
                            let bytes = store.read("f", 0..LEN)?;
                            cut(&folder, 4096);
                            Ok(sum(&bytes) + sum(&store.read("g", 0..LEN)?))
                        });
                        assert!(told.is_err());
                    }
                });
            }
        });
    }

    /// Runs a test again in a process of its own, which ends by SIGBUS there. Gives false in that process.
    fn ends_by_a_signal(test: &str) -> bool {
        const CHILD: &str = "TESSERAL_GUARD_CHILD";
        if std::env::var_os(CHILD).is_some() {
            return false;
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        let name = format!("guard::tests::{test}");
        let status = child.args(["--exact", &name, "--nocapture"]).env(CHILD, "1").output().unwrap().status;
        // Debian's shells limit cores, and what is left of one is a file; the signal is what counts.
        assert!(matches!(status.signal(), Some(libc::SIGBUS | libc::SIGSEGV)), "{status}");
        true
    }

    #[test]
    fn what_is_gone_ends_the_process_outside_operations() {
        if ends_by_a_signal("what_is_gone_ends_the_process_outside_operations") {
            return;
        }
        let (folder, store) = made();
        let bytes = store.read("f", 0..LEN).unwrap();
        cut(&folder, 0);
        println!("{}", sum(&bytes));
    }

    #[test]
    fn views_end_the_process_during_operations_too() {
        if ends_by_a_signal("views_end_the_process_during_operations_too") {
            return;
        }
        let (folder, store) = made();
        let view = store.view("f", 0..LEN).unwrap();
        cut(&folder, 0);
        let _ = store.guarded(|| -> Result<u64> { Ok(sum(&view)) });
    }

    #[test]
    fn zeros_do_not_stay_after_the_operation() {
        if ends_by_a_signal("zeros_do_not_stay_after_the_operation") {
            return;
        }
        let (folder, store) = made();
        let bytes = store.read("f", 0..LEN).unwrap();
        let told = store.guarded(|| -> Result<u64> {
            cut(&folder, 0);
            Ok(sum(&bytes))
        });
        assert!(told.is_err());
        println!("{}", sum(&bytes));
    }

    #[test]
    fn faults_elsewhere_end_the_process_as_before() {
        if ends_by_a_signal("faults_elsewhere_end_the_process_as_before") {
            return;
        }
        let (folder, store) = made();
        let _ = store.guarded(|| -> Result<()> {
            // Guarded maps are there and an operation is under way, but this map is somebody else's.
            store.read("g", 0..1)?;
            let foreign = crate::map::map(&File::open(folder.path().join("f")).unwrap()).unwrap();
            cut(&folder, 0);
            println!("{}", foreign[0]);
            Ok(())
        });
    }
}
