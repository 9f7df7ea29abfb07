//! The [`Store`] trait and its extension.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tesseral_core::{Cancel, Error, ErrorKind, Result};

use crate::durability::Unsynced;
use crate::sigbus::OperationGuard;
use crate::unpublished::Unpublished;

/// Type of an entry in a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// An object.
    File,
    /// A folder.
    Folder,
    /// A symbolic link. Reading follows it; removing does not.
    Link {
        /// Whether the target is a folder.
        folder: bool,
    },
}

/// An object, folder or link in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Name relative to the listed folder.
    pub name: String,
    /// Type of the entry.
    pub kind: ObjectKind,
    /// Length in bytes, where the listing states it. Folders have none; local listings leave it out, because it would need a
    /// call for every entry.
    pub len: Option<u64>,
    /// Entity tag, which changes with the content, where the store has one.
    pub etag: Option<String>,
}

impl ObjectInfo {
    /// Creates an entry of unknown length.
    pub fn new(name: impl Into<String>, kind: ObjectKind) -> Self {
        Self { name: name.into(), kind, len: None, etag: None }
    }

    /// Returns whether the entry is readable as a folder: a folder, or a link to one.
    pub fn is_folder(&self) -> bool {
        matches!(self.kind, ObjectKind::Folder | ObjectKind::Link { folder: true })
    }

    /// Returns whether the entry is a link.
    pub fn is_link(&self) -> bool {
        matches!(self.kind, ObjectKind::Link { .. })
    }
}

/// Part of an object to read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ByteRange {
    /// A range, which must be inside the object.
    Exact(Range<u64>),
    /// The first bytes, at most this many.
    Prefix(u64),
    /// The last bytes, at most this many.
    Suffix(u64),
    /// All bytes.
    Whole,
}

impl ByteRange {
    /// The range in an object of a length. An exact range is returned unchanged.
    pub fn within(&self, len: u64) -> Range<u64> {
        match self {
            Self::Exact(range) => range.clone(),
            Self::Prefix(most) => 0..len.min(*most),
            Self::Suffix(most) => len.saturating_sub(*most)..len,
            Self::Whole => 0..len,
        }
    }
}

/// Bytes of an object and where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectBytes {
    /// Offset of the first byte.
    pub start: u64,
    /// Length of the object.
    pub len: u64,
    /// The bytes.
    pub bytes: Bytes,
}

/// An announced request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Upcoming {
    /// Bytes of an object.
    Bytes(String, ByteRange),
    /// The listing of a folder.
    Listing(String),
}

impl Upcoming {
    /// The folder of a listing.
    pub(crate) fn folder(&self) -> Option<&String> {
        match self {
            Self::Listing(folder) => Some(folder),
            Self::Bytes(..) => None,
        }
    }
}

/// How a store is read best.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Gaps between requested bytes up to this size are read: skipping them would cost more.
    pub gap: u64,
    /// Size in bytes up to which neighboring reads are merged into one.
    pub request: u64,
    /// Number of requests that the store serves at the same time while each of them waits. 1: reads occupy the processor
    /// instead of waiting, so that nothing is gained by more of them than there are workers.
    pub parallel: usize,
}

impl Profile {
    /// Disks and memory.
    pub const LOCAL: Self = Self { gap: 64 << 10, request: 4 << 20, parallel: 1 };
    /// Servers that answer after tens of milliseconds.
    pub const NETWORK: Self = Self { gap: 256 << 10, request: 4 << 20, parallel: 32 };
}

/// Whether publishing can replace an existing object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    #[default]
    /// An existing object is an error, detected before the first write and again when publishing.
    Refuse,
    /// The existing object is replaced atomically when publishing.
    Replace,
}

/// A byte store. Implementations provide the methods below; convenience methods are in [`StoreExt`].
pub trait Store: Debug + Send + Sync {
    /// Path or URL of the store, as shown in errors.
    fn location(&self) -> &str;

    /// Returns the length of an object in bytes.
    ///
    /// # Errors
    /// `NotFound` when the object does not exist, `Io`.
    fn len(&self, object: &str) -> Result<u64>;

    /// Reads byte ranges and returns them in the given order. A range that exceeds the object is an error, never a short read.
    ///
    /// # Errors
    /// `NotFound`, `Io`, `Corrupt` when a range exceeds the object.
    fn read_many(&self, object: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>>;

    /// Returns the whole object if it is resident, such as a memory-mapped file; `None` otherwise. The bytes are valid for the
    /// current operation: use [`view`](Self::view) for bytes that outlive it, and call again in later operations.
    ///
    /// # Errors
    /// As [`read_many`](Self::read_many).
    fn resident(&self, object: &str) -> Result<Option<Bytes>>;

    /// Returns a range of a resident object with unlimited lifetime. A store that wraps another one and forwards
    /// [`resident`](Self::resident) must forward this method and [`watch`](Self::watch) too.
    ///
    /// # Errors
    /// As [`read_many`](Self::read_many).
    fn view(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        self.read(object, range)
    }

    /// Takes the pages of a resident object out of the memory of this process where they can be read again: what an operation
    /// on much data has used does not add up. Bytes stay valid.
    fn release(&self, object: &str) {
        let _ = object;
    }

    /// Begins an operation on resident bytes; usually called through [`StoreExt::guarded`]. Until the guard is dropped, bytes
    /// of a file that another process truncates read as zeros instead of ending the process, and the guard's check reports it.
    ///
    /// # Errors
    /// As [`OperationGuard::check`].
    fn watch(&self) -> Result<OperationGuard> {
        Ok(OperationGuard::default())
    }

    /// Reads parts of several objects and returns them in the given order, with as few dependent round trips as the store
    /// allows: the metadata of many small objects is one call.
    ///
    /// # Errors
    /// As [`read_many`](Self::read_many), for any of the objects.
    fn read_objects(&self, reads: &[(&str, ByteRange)]) -> Result<Vec<ObjectBytes>> {
        let read_part = |(object, part): &(&str, ByteRange)| {
            let len = self.len(object)?;
            let range = part.within(len);
            Ok(ObjectBytes { start: range.start, len, bytes: self.read(object, range)? })
        };
        reads.iter().map(read_part).collect()
    }

    /// As [`read_objects`](Self::read_objects), but an object that does not exist is `None`.
    ///
    /// # Errors
    /// As [`read_many`](Self::read_many), except `NotFound`.
    fn read_existing(&self, reads: &[(&str, ByteRange)]) -> Result<Vec<Option<ObjectBytes>>> {
        let read_part = |(object, part): &(&str, ByteRange)| match self.len(object) {
            Ok(len) => {
                let range = part.within(len);
                let start = range.start;
                // Only the length is used.
                let nothing = range.is_empty() && start <= len;
                let bytes = if nothing { Bytes::new() } else { self.read(object, range)? };
                Ok(Some(ObjectBytes { start, len, bytes }))
            }
            Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => Ok(None),
            Err(e) => Err(e),
        };
        reads.iter().map(read_part).collect()
    }

    /// Returns the entity tag of an object whose length or bytes were requested before, if it identifies the content.
    fn etag(&self, object: &str) -> Option<String> {
        let _ = object;
        None
    }

    /// The store of another file or object: `name` is relative to the folder of this one. It is reached with the same settings, and
    /// local files are read rather than mapped, since a guard watches one store at a time. It need not exist.
    ///
    /// # Errors
    /// `InvalidRequest` for names with empty parts, `.`, `..` or bytes of zero; `Unsupported` by stores that stand alone.
    fn beside(&self, name: &str) -> Result<Arc<dyn Store>> {
        Err(Error::unsupported(format!("files beside {}, such as {name:?}", self.location())))
    }

    /// Announces requests that follow, so that a store with a long way to its bytes makes them at once and answers them from
    /// memory. Failures are reported by the requests themselves.
    fn prefetch(&self, upcoming: &[Upcoming]) {
        let _ = upcoming;
    }

    /// The same store for one operation, whose requests end with `Cancelled` when it is canceled; `None` if the store answers at
    /// once.
    fn canceled_by(&self, cancel: &Cancel) -> Option<Arc<dyn Store>> {
        let _ = cancel;
        None
    }

    /// Returns how the store is read best.
    fn profile(&self) -> Profile {
        Profile::LOCAL
    }

    /// Lists the entries of a folder, sorted by name. Links are listed as links; dangling ones are skipped.
    ///
    /// # Errors
    /// `NotFound` when the folder does not exist, `Io`.
    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>>;

    /// Lists leftovers of writers that ended before publishing, in this store or next to it. Readers do not see them. Sorted by
    /// name.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    fn leftovers(&self) -> Result<Vec<String>> {
        Ok(Vec::new())
    }

    /// Removes all [leftovers](Self::leftovers).
    ///
    /// # Errors
    /// `Io`, `Unsupported` on read-only stores.
    fn remove_leftovers(&self) -> Result<()> {
        Ok(())
    }

    /// Creates an object that becomes visible only when [published](Staged::publish).
    ///
    /// # Errors
    /// `InvalidRequest` when it exists and must not be replaced, `Io`, `Unsupported` on read-only stores.
    fn stage(&self, object: &str, overwrite: Overwrite) -> Result<Box<dyn Staged>>;

    /// Removes an object, a link or an empty folder. A missing entry is not an error. A link itself is removed, and no link in
    /// the path is followed.
    ///
    /// # Errors
    /// `InvalidRequest` when the path contains a link; `Io`, `Unsupported` on read-only stores.
    fn remove(&self, object: &str) -> Result<()>;

    /// Removes an object, or a folder recursively. Links are removed, not their targets.
    ///
    /// # Errors
    /// As [`remove`](Self::remove).
    fn remove_all(&self, object: &str) -> Result<()> {
        let listed = |folder: &str| match self.list(folder) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => Ok(Vec::new()),
            other => other,
        };
        let (above, name) = object.rsplit_once('/').unwrap_or(("", object));
        let is_folder = |e: &ObjectInfo| e.name == name && e.kind == ObjectKind::Folder;
        if object.is_empty() || listed(above)?.iter().any(is_folder) {
            for entry in listed(object)? {
                let inner = if object.is_empty() { entry.name } else { format!("{object}/{}", entry.name) };
                match entry.kind {
                    ObjectKind::Folder => self.remove_all(&inner)?,
                    ObjectKind::File | ObjectKind::Link { .. } => self.remove(&inner)?,
                }
            }
        }
        self.remove(object)
    }

    /// The same store for objects that nothing refers to yet: published ones are durable only once the list is
    /// [settled](Unsynced::settle), all of them together. `None` if published objects are durable by themselves at no cost, or are
    /// already deferred.
    fn deferred(&self) -> Option<(Arc<dyn Store>, Arc<Unsynced>)> {
        None
    }

    /// Registers an object, or a folder of objects, for removal if the process must end immediately; `None` if the store does
    /// not outlive the process.
    fn unpublished(&self, object: &str) -> Option<Unpublished> {
        let _ = object;
        None
    }
}

/// An object being written under a temporary name. Dropping it without publishing removes it.
pub trait Staged: Debug + Send + Sync {
    /// Writes bytes at an offset; the object grows as needed. Disjoint ranges can be written concurrently.
    ///
    /// # Errors
    /// `Io`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Reads bytes written before.
    ///
    /// # Errors
    /// `Io`, also when fewer bytes are available.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Sets the length, truncating or extending with zeros.
    ///
    /// # Errors
    /// `Io`.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Makes the bytes durable, renames the object to its final name, and makes the name durable.
    ///
    /// # Errors
    /// `Io`; `InvalidRequest` when the object appeared meanwhile and must not be replaced.
    fn publish(self: Box<Self>) -> Result<()>;
}

/// Convenience methods of all stores.
pub trait StoreExt: Store {
    /// Reads one byte range.
    ///
    /// # Errors
    /// As [`Store::read_many`].
    fn read(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        if let Some(bytes) = self.resident(object)? {
            return slice(&bytes, &range, || self.describe(object));
        }
        let mut all = self.read_many(object, std::slice::from_ref(&range))?;
        all.pop().ok_or_else(|| Error::internal("the store returned no bytes for a range"))
    }

    /// Runs an operation on resident bytes. If a file was truncated meanwhile, returns that error instead of the result.
    ///
    /// # Errors
    /// Errors of the operation; as [`OperationGuard::check`].
    fn guarded<T, E: From<Error>>(
        &self,
        operation: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let watch = self.watch()?;
        let result = operation();
        watch.check()?;
        result
    }

    /// Reads a whole object; fails if it is longer than `limit`.
    ///
    /// # Errors
    /// As [`Store::read_many`], and `Limit`.
    fn read_all(&self, object: &str, limit: u64) -> Result<Bytes> {
        let len = self.len(object)?;
        if len > limit {
            return Err(Error::limit(format!("reading {}", self.describe(object)), len, limit));
        }
        self.read(object, 0..len)
    }

    /// Stages and publishes a whole object.
    ///
    /// # Errors
    /// As [`Store::stage`] and [`Staged::publish`].
    fn put(&self, object: &str, bytes: &[u8], overwrite: Overwrite) -> Result<()> {
        let staged = self.stage(object, overwrite)?;
        staged.write_at(0, bytes)?;
        staged.publish()
    }

    /// Returns whether an object exists.
    ///
    /// # Errors
    /// `Io`.
    fn exists(&self, object: &str) -> Result<bool> {
        match self.len(object) {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Formats an object name for errors.
    fn describe(&self, object: &str) -> String {
        if object.is_empty() {
            self.location().to_owned()
        } else {
            format!("{}/{object}", self.location().trim_end_matches('/'))
        }
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

/// Checks that a relative name stays in its folder: names can come from untrusted input.
pub(crate) fn check_inside(name: &str, folder: &str) -> Result<()> {
    let escapes = name.split('/').any(|part| matches!(part, "" | "." | "..") || part.contains('\0'));
    if escapes {
        return Err(Error::invalid(format!("object name {name:?} is outside {folder}")));
    }
    Ok(())
}

/// Returns a slice of an object after checking its bounds.
pub(crate) fn slice(bytes: &Bytes, range: &Range<u64>, object: impl Fn() -> String) -> Result<Bytes> {
    let len = bytes.len() as u64;
    check_range(range, len, &object)?;
    // Both ends are at most `len`, which is a usize.
    Ok(bytes.slice(range.start as usize..range.end as usize))
}

/// Rejects a range that exceeds an object.
pub(crate) fn check_range(range: &Range<u64>, len: u64, object: &dyn Fn() -> String) -> Result<()> {
    if range.start > range.end || range.end > len {
        let found = len.saturating_sub(range.start);
        let expected = range.end.saturating_sub(range.start);
        return Err(Error::truncated("a byte range", object(), range.start, expected, found));
    }
    Ok(())
}
