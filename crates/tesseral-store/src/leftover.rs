//! Names of unpublished files and folders, and detection of those whose process has ended.
//!
//! ```text
//! .tesseral-TARGET.PID-START-HOST.NUMBER.tmp      an object of a store, or
//! .tesseral-TARGET.PID-START-HOST.NUMBER.staged   a whole output, a file or folder
//! ```
//!
//! `START` is the start time of the process in clock ticks since boot, `HOST` a hash of the boot id and the process namespace,
//! both hexadecimal. A process number alone is not sufficient: numbers are reused, and a file system can be shared between
//! machines.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use tesseral_core::Result;

use crate::folder::{Folder, FolderEntry};

/// Prefix of unpublished files. Listings skip them.
pub(crate) const PREFIX: &str = ".tesseral-";

/// Age in seconds after which an unchanged entry of an unknown process is a leftover.
const ABANDONED: i64 = 24 * 60 * 60;

static NEXT: AtomicU64 = AtomicU64::new(0);

/// The process that created an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LeftoverOwner {
    process: u32,
    /// Start time and host; `None` in names of earlier versions, and on systems without this information.
    identity: Option<(u64, u32)>,
}

/// State of the process that created an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Running,
    Ended,
    Unknown,
}

impl LeftoverOwner {
    /// Returns this process. A forked child is another one.
    fn current() -> Self {
        static CURRENT: Mutex<Option<LeftoverOwner>> = Mutex::new(None);
        let process = std::process::id();
        let mut current = CURRENT.lock().unwrap_or_else(PoisonError::into_inner);
        match *current {
            Some(owner) if owner.process == process => owner,
            _ => *current.insert(Self { process, identity: start(process).zip(host()) }),
        }
    }

    fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('-');
        let process = parts.next()?.parse().ok()?;
        let identity = match (parts.next(), parts.next(), parts.next()) {
            (None, ..) => None,
            (Some(start), Some(host), None) => {
                Some((u64::from_str_radix(start, 16).ok()?, u32::from_str_radix(host, 16).ok()?))
            }
            _ => return None,
        };
        Some(Self { process, identity })
    }

    fn life(self) -> Life {
        let Some((began, _)) = self.identity.filter(|(_, on)| host() == Some(*on)) else {
            return Life::Unknown;
        };
        match start(self.process) {
            Some(now) if now == began => Life::Running,
            _ => Life::Ended,
        }
    }
}

impl std::fmt::Display for LeftoverOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.identity {
            Some((start, host)) => write!(f, "{}-{start:x}-{host:08x}", self.process),
            None => write!(f, "{}", self.process),
        }
    }
}

/// Start time of a process; `None` if it does not exist.
fn start(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the program name in parentheses and can contain any character; the start time is field 22.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Identifies this boot of this machine and its process namespace.
fn host() -> Option<u32> {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = fs::read_link("/proc/self/ns/pid").ok()?;
    let bytes = boot.bytes().chain(space.to_string_lossy().bytes().collect::<Vec<_>>());
    // FNV-1a, which is stable across builds.
    Some(bytes.fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)))
}

/// Returns an unused temporary name for `target`.
pub(crate) fn temporary(target: &OsStr, ending: &str) -> OsString {
    let unique = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = target.to_string_lossy();
    format!("{PREFIX}{name}.{}.{unique}.{ending}", LeftoverOwner::current()).into()
}

/// Returns a name for a temporary folder next to `target`. Later writers of the target remove it once the process has ended.
pub fn staging_name(target: &OsStr) -> OsString {
    temporary(target, "staged")
}

/// Parses target and owner of a name.
fn parse(name: &str) -> Option<(&str, LeftoverOwner)> {
    let mut parts = name.strip_prefix(PREFIX)?.rsplitn(4, '.');
    let (ending, number) = (parts.next()?, parts.next()?);
    if !matches!(ending, "tmp" | "staged") || number.parse::<u64>().is_err() {
        return None;
    }
    let owner = LeftoverOwner::parse(parts.next()?)?;
    let target = parts.next()?;
    // The target of a temporary name can itself be a temporary name.
    Some((parse(target).map_or(target, |(inner, _)| inner), owner))
}

/// Returns whether the process would be visible: systems can hide processes of other users.
fn may_judge(entry: &FolderEntry) -> bool {
    let user = fs::metadata("/proc/self").map(|m| m.uid()).ok();
    let owner = entry.stat().ok().flatten().map(|stat| stat.st_uid);
    user.is_some_and(|user| user == 0 || Some(user) == owner)
}

/// Finds leftovers of ended processes in a folder, of one target or of all. With `doubtful`, includes entries of unknown
/// processes that are unchanged for a day.
fn find(folder: &Arc<Folder>, target: Option<&OsStr>, doubtful: bool) -> Result<Vec<FolderEntry>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let mut found = Vec::new();
    for name in folder.names()? {
        let Some((made_for, owner)) = name.to_str().and_then(parse) else { continue };
        if target.is_some_and(|target| target.to_string_lossy() != made_for) {
            continue;
        }
        let entry = folder.entry(name.clone());
        let old = || entry.newest().is_ok_and(|newest| newest.saturating_add(ABANDONED) < now as i64);
        let left = match owner.life() {
            Life::Running => false,
            Life::Ended if may_judge(&entry) => true,
            Life::Ended | Life::Unknown => doubtful && old(),
        };
        if left {
            found.push(entry);
        }
    }
    found.sort_by(|a, b| a.name().cmp(b.name()));
    Ok(found)
}

/// Finds leftovers of earlier writers, as [`find`] with `doubtful`.
pub(crate) fn list(folder: &Arc<Folder>, target: Option<&OsStr>) -> Result<Vec<FolderEntry>> {
    find(folder, target, true)
}

/// Removes leftovers of ended processes from a folder. Best effort: failures are ignored.
pub(crate) fn sweep(folder: &Arc<Folder>, target: Option<&OsStr>) {
    for entry in find(folder, target, false).unwrap_or_default() {
        let _ = entry.remove_tree();
    }
}

/// Removes the entry that an earlier attempt created for a target, by its name. Other names are ignored.
pub(crate) fn discard(target: &FolderEntry, name: &str) {
    if parse(name).is_some_and(|(made_for, _)| target.name().to_string_lossy() == made_for) {
        let _ = target.sibling(name).remove_tree();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_encode_target_and_owner() {
        let own = temporary(OsStr::new("a.b.tet"), "staged");
        let (target, owner) = parse(own.to_str().unwrap()).unwrap();
        assert_eq!((target, owner), ("a.b.tet", LeftoverOwner::current()));
        assert_eq!(owner.life(), Life::Running);
        let inner = temporary(&own, "tmp");
        assert_eq!(parse(inner.to_str().unwrap()).unwrap(), ("a.b.tet", owner));
        for other in [
            "a.tet",
            ".tesseral-a.tet.resume",
            ".tesseral-a.x.0.tmp",
            ".tesseral-a.1-2.0.tmp",
            ".tesseral-.0.tmp",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn a_reused_process_number_is_another_process() {
        let own = LeftoverOwner::current();
        let (start, host) = own.identity.unwrap();
        assert_eq!(LeftoverOwner { identity: Some((start + 1, host)), ..own }.life(), Life::Ended);
        assert_eq!(LeftoverOwner { identity: Some((start + 1, host ^ 1)), ..own }.life(), Life::Unknown);
        assert_eq!(LeftoverOwner { identity: None, ..own }.life(), Life::Unknown);
        assert_eq!(LeftoverOwner { process: u32::MAX, identity: None }.life(), Life::Unknown);
    }

    #[test]
    fn only_certain_leftovers_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (_, host) = LeftoverOwner::current().identity.unwrap();
        let put = |name: &str| fs::write(folder.path().join(name), b"x").unwrap();
        let dead = format!(".tesseral-a.{}-7-{host:08x}.0.tmp", u32::MAX);
        let other = format!(".tesseral-b.{}-7-{host:08x}.0.tmp", u32::MAX);
        let elsewhere = format!(".tesseral-a.{}-7-{:08x}.0.tmp", u32::MAX, host ^ 1);
        let running = temporary(OsStr::new("a"), "tmp").into_string().unwrap();
        for name in [&dead, &other, &elsewhere, &running] {
            put(name);
        }
        let open = Arc::new(Folder::open(folder.path()).unwrap());
        sweep(&open, Some(OsStr::new("a")));
        let there = |name: &String| folder.path().join(name).exists();
        assert_eq!([&dead, &other, &elsewhere, &running].map(there), [false, true, true, true]);
        assert_eq!(
            list(&open, Some(OsStr::new("a"))).unwrap().len(),
            0,
            "the entry of another host is recent"
        );
        let long_ago = SystemTime::now() - std::time::Duration::from_secs(2 * 24 * 60 * 60);
        fs::File::options()
            .write(true)
            .open(folder.path().join(&elsewhere))
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        assert_eq!(list(&open, Some(OsStr::new("a"))).unwrap().len(), 1);
        sweep(&open, Some(OsStr::new("a")));
        assert!(there(&elsewhere), "an old entry of unknown origin is listed, not removed");
    }
}
