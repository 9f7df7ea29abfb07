//! The trait a place of bytes implements, and what follows from it.

use std::fmt::Debug;
use std::ops::Range;

use bytes::Bytes;
use tesseral_core::{Error, ErrorKind, Result};

use crate::guard::Watch;
use crate::unpublished::Unpublished;

/// What a name in a listing stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    /// An object.
    File,
    /// A folder.
    Folder,
    /// A symbolic link. Reading follows it; removing never does.
    Link {
        /// Whether it points to a folder.
        folder: bool,
    },
}

/// An object, folder or link seen in a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its name in the folder that was listed.
    pub name: String,
    /// What it is.
    pub kind: ObjectKind,
}

impl ObjectInfo {
    /// Whether a reader finds a folder under the name: a folder, or a link to one.
    pub fn is_folder(&self) -> bool {
        matches!(self.kind, ObjectKind::Folder | ObjectKind::Link { folder: true })
    }

    /// Whether it is a link.
    pub fn is_link(&self) -> bool {
        matches!(self.kind, ObjectKind::Link { .. })
    }
}

/// Whether publishing may replace what is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overwrite {
    #[default]
    /// An object of that name is an error, found before the first byte is written and again when publishing.
    Refuse,
    /// The old object stays until the new one is whole, then gives way to it.
    Replace,
}

/// A place of bytes. Implementations decide only what is below; convenience is in [`StoreExt`].
pub trait Store: Debug + Send + Sync {
    /// The place, as people name it: a path or URL. Error messages carry it.
    fn location(&self) -> &str;

    /// Length of an object.
    ///
    /// # Errors
    /// `NotFound` when there is no such object, `Io`.
    fn len(&self, object: &str) -> Result<u64>;

    /// The bytes of each range, in the order asked. Ranges past the end are errors, never short reads.
    ///
    /// # Errors
    /// `NotFound`, `Io`, `Corrupt` when a range passes the end of the object.
    fn read_many(&self, object: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>>;

    /// The whole object when it is in reach without a copy, such as a mapped file; `None` otherwise. The bytes are for the operation
    /// under way: what outlives it is asked for by [`view`](Self::view), and operations that use them later ask again.
    ///
    /// # Errors
    /// As [`read_many`](Self::read_many).
    fn resident(&self, object: &str) -> Result<Option<Bytes>>;

    /// A range of a resident object for as long as anyone likes. A store around another one that passes on
    /// [`resident`](Self::resident) passes on this and [`watch`](Self::watch).
    ///
    /// # Errors
    /// As [`read_many`](Self::read_many).
    fn view(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        self.read(object, range)
    }

    /// Begins an operation that touches bytes in reach; [`StoreExt::guarded`] is the usual way. While the watch is held, bytes of a
    /// file that another process cuts read as zeros instead of ending this one, and its check says so.
    ///
    /// # Errors
    /// As [`Watch::check`].
    fn watch(&self) -> Result<Watch> {
        Ok(Watch::default())
    }

    /// The length of each object and its last bytes, at most `most` of them: where many small objects end in what must be known of
    /// them, asking for all at once saves a round for each.
    ///
    /// # Errors
    /// As [`read_many`](Self::read_many).
    fn tails(&self, objects: &[String], most: u64) -> Result<Vec<(u64, Bytes)>> {
        let one = |object: &String| {
            let len = self.len(object)?;
            Ok((len, self.read(object, len.saturating_sub(most)..len)?))
        };
        objects.iter().map(one).collect()
    }

    /// What is directly in a folder, sorted by name. Links are listed as links, without those that point to nothing.
    ///
    /// # Errors
    /// `NotFound` when there is no such folder, `Io`.
    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>>;

    /// What writers that ended before they published it left, in this store or beside it: no reader sees it. Names, in the order of
    /// the alphabet.
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

    /// Begins an object that appears under its name only when [published](Staged::publish).
    ///
    /// # Errors
    /// `InvalidRequest` when it exists and must not be replaced, `Io`, `Unsupported` on read-only stores.
    fn stage(&self, object: &str, overwrite: Overwrite) -> Result<Box<dyn Staged>>;

    /// Removes an object, a link or a folder that is empty. A missing one is no error. A link is removed itself, and none is followed
    /// on the way to the object.
    ///
    /// # Errors
    /// `InvalidRequest` when the object lies behind a link; `Io`, `Unsupported` on read-only stores.
    fn remove(&self, object: &str) -> Result<()>;

    /// Removes an object, or a folder with everything in it. Links in it are removed, not what they point to.
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

    /// Registers an object, or a folder of objects, that is to be removed when the process has to end at once; `None` where nothing
    /// outlives the process.
    fn unpublished(&self, object: &str) -> Option<Unpublished> {
        let _ = object;
        None
    }
}

/// An object being written under a temporary name. Dropping it unpublished removes every trace.
pub trait Staged: Debug + Send + Sync {
    /// Writes bytes at an offset; the object grows as needed. Calls for disjoint ranges may run at once.
    ///
    /// # Errors
    /// `Io`.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;

    /// Reads bytes that were written before.
    ///
    /// # Errors
    /// `Io`, also when fewer are there.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Sets the length, cutting or extending with zeros.
    ///
    /// # Errors
    /// `Io`.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Makes the bytes durable, then puts them under the final name, then makes that durable.
    ///
    /// # Errors
    /// `Io`; `InvalidRequest` when an object appeared there meanwhile and must not be replaced.
    fn publish(self: Box<Self>) -> Result<()>;
}

/// What every store can do by means of [`Store`].
pub trait StoreExt: Store {
    /// The bytes of one range.
    ///
    /// # Errors
    /// As [`Store::read_many`].
    fn read(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        if let Some(bytes) = self.resident(object)? {
            return slice(&bytes, &range, || self.describe(object));
        }
        let mut all = self.read_many(object, std::slice::from_ref(&range))?;
        all.pop().ok_or_else(|| Error::invalid("a store gave no bytes for a range"))
    }

    /// Runs an operation that touches bytes in reach. When a file was cut meanwhile, that takes the place of whatever came of it.
    ///
    /// # Errors
    /// What the operation meets; as [`Watch::check`].
    fn guarded<T, E: From<Error>>(
        &self,
        operation: impl FnOnce() -> std::result::Result<T, E>,
    ) -> std::result::Result<T, E> {
        let watch = self.watch()?;
        let result = operation();
        watch.check()?;
        result
    }

    /// The whole object, refused when longer than `limit`.
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

    /// Stages and publishes a whole object at once.
    ///
    /// # Errors
    /// As [`Store::stage`] and [`Staged::publish`].
    fn put(&self, object: &str, bytes: &[u8], overwrite: Overwrite) -> Result<()> {
        let staged = self.stage(object, overwrite)?;
        staged.write_at(0, bytes)?;
        staged.publish()
    }

    /// Whether there is an object of that name.
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

    /// An object as people name it.
    fn describe(&self, object: &str) -> String {
        if object.is_empty() {
            self.location().to_owned()
        } else {
            format!("{}/{object}", self.location().trim_end_matches('/'))
        }
    }
}

impl<S: Store + ?Sized> StoreExt for S {}

/// A checked slice of an object.
pub(crate) fn slice(bytes: &Bytes, range: &Range<u64>, object: impl Fn() -> String) -> Result<Bytes> {
    let len = bytes.len() as u64;
    check_range(range, len, &object)?;
    // Both ends are at most `len`, which is a usize.
    #[allow(clippy::cast_possible_truncation)]
    Ok(bytes.slice(range.start as usize..range.end as usize))
}

/// Refuses a range past the end of an object.
pub(crate) fn check_range(range: &Range<u64>, len: u64, object: &dyn Fn() -> String) -> Result<()> {
    if range.start > range.end || range.end > len {
        let found = len.saturating_sub(range.start);
        let expected = range.end.saturating_sub(range.start);
        return Err(Error::truncated("a byte range", object(), range.start, expected, found));
    }
    Ok(())
}
