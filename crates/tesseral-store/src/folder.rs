//! An open folder. Names are resolved relative to its handle, and links below it are never followed: checks and changes apply
//! to the same directory entry, even if other processes rename entries.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{self as sys, AtFlags, Dir, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::path::Arg;
use tesseral_core::{Error, Result};

use crate::handles;

/// Maximum nesting depth of a folder that is removed.
const MAX_DEPTH: usize = 128;

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder {
    handle: OwnedFd,
    path: PathBuf,
}

/// A name in an open folder; the entry need not exist.
#[derive(Clone, Debug)]
pub(crate) struct FolderEntry {
    folder: Arc<Folder>,
    name: OsString,
}

pub(crate) fn io(op: &'static str, path: &Path, error: impl Into<std::io::Error>) -> Error {
    Error::io(op, path.display().to_string(), error.into())
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Type of a directory entry; links are not followed.
pub(crate) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// As `openat`. If the process has no handles left, cached ones are closed and the call is retried once.
fn open_at(
    folder: impl AsFd,
    name: impl Arg + Copy,
    flags: OFlags,
    mode: Mode,
) -> rustix::io::Result<OwnedFd> {
    match sys::openat(folder.as_fd(), name, flags, mode) {
        Err(Errno::MFILE | Errno::NFILE) => {
            handles::close_kept();
            sys::openat(folder.as_fd(), name, flags, mode)
        }
        other => other,
    }
}

/// Creates a folder and its parents durably.
fn create_folders(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = parent(folder);
    if above != folder {
        create_folders(above)?;
    }
    match std::fs::create_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        other => other.map_err(|e| io("create folder", folder, e))?,
    }
    handles::open(|| File::open(above)).and_then(|f| f.sync_all()).map_err(|e| io("sync folder", above, e))
}

impl Folder {
    /// Opens a folder by a path of the caller; links in the path are followed.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = open_at(sys::CWD, path, flags, Mode::empty()).map_err(|e| io("open folder", path, e))?;
        Ok(Self { handle, path: path.to_path_buf() })
    }

    /// As [`open`](Self::open), creating missing folders.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        create_folders(path)?;
        Self::open(path)
    }

    /// Opens a folder in this one. A link is an error.
    fn inner(&self, name: &OsStr) -> Result<Self> {
        let path = self.path.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match open_at(&self.handle, name, flags, Mode::empty()) {
            Ok(handle) => Ok(Self { handle, path }),
            Err(Errno::LOOP | Errno::NOTDIR) if self.is_link(name) => {
                let what = format!("{} is a symbolic link", path.display());
                Err(Error::invalid(format!("{what}: paths through links are not written or removed"))
                    .hint("replace the link by the folder it points to"))
            }
            Err(e) => Err(io("open folder", &path, e)),
        }
    }

    fn is_link(&self, name: &OsStr) -> bool {
        matches!(self.stat(name), Ok(Some(stat)) if file_type(&stat) == FileType::Symlink)
    }

    /// Path of the folder.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the folder at a relative path, creating missing folders if `create` is set: `created` makes the entries of a folder
    /// durable. No component can be a link.
    pub(crate) fn below(
        self: &Arc<Self>,
        path: &str,
        create: bool,
        created: &dyn Fn(&Arc<Self>) -> Result<()>,
    ) -> Result<Arc<Self>> {
        let mut folder = Arc::clone(self);
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let name = OsStr::new(name);
            if create {
                match sys::mkdirat(&folder.handle, name, Mode::from_raw_mode(0o777)) {
                    Ok(()) => created(&folder)?,
                    Err(Errno::EXIST) => {}
                    Err(e) => return Err(io("create folder", &folder.path.join(name), e)),
                }
            }
            folder = Arc::new(folder.inner(name)?);
        }
        Ok(folder)
    }

    /// Returns the entry of a name in this folder.
    pub(crate) fn entry(self: &Arc<Self>, name: impl Into<OsString>) -> FolderEntry {
        FolderEntry { folder: Arc::clone(self), name: name.into() }
    }

    /// Makes the entries durable.
    pub(crate) fn sync(&self) -> Result<()> {
        sys::fsync(&self.handle).map_err(|e| io("sync folder", &self.path, e))
    }

    fn stat(&self, name: &OsStr) -> Result<Option<Stat>> {
        match sys::statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(io("stat", &self.path.join(name), e)),
        }
    }

    /// The names in the folder.
    pub(crate) fn names(&self) -> Result<Vec<OsString>> {
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.handle).map_err(|e| io("list", &self.path, e))? {
            let entry = entry.map_err(|e| io("list", &self.path, e))?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    fn remove_tree(&self, name: &OsStr, depth: usize) -> Result<()> {
        let path = || self.path.join(name);
        match sys::unlinkat(&self.handle, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            // Linux and POSIX report a nonempty folder with either code.
            Err(Errno::ISDIR | Errno::PERM) => {}
            Err(e) => return Err(io("remove", &path(), e)),
        }
        if depth == 0 {
            return Err(Error::limit(
                format!("folders below {}", path().display()),
                MAX_DEPTH as u64 + 1,
                MAX_DEPTH as u64,
            ));
        }
        let inner = self.inner(name)?;
        for name in inner.names()? {
            inner.remove_tree(&name, depth - 1)?;
        }
        match sys::unlinkat(&self.handle, name, AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(io("remove", &path(), e)),
        }
    }

    /// Calls `visit` for every entry below, with its folder, name and status. Folders follow their content.
    fn walk(&self, depth: usize, visit: &mut dyn FnMut(&Self, &OsStr, &Stat)) -> Result<()> {
        for name in self.names()? {
            let Some(stat) = self.stat(&name)? else { continue };
            if file_type(&stat) == FileType::Directory && depth > 0 {
                self.inner(&name)?.walk(depth - 1, visit)?;
            }
            visit(self, &name, &stat);
        }
        Ok(())
    }
}

impl FolderEntry {
    /// Opens the parent folder of a path and returns the entry of its last component. Creates missing folders.
    pub(crate) fn of_path(path: &Path) -> Result<Self> {
        let name = path.file_name().ok_or_else(|| {
            Error::invalid(format!("{} does not end with a file or folder name", path.display()))
        })?;
        Ok(Arc::new(Folder::create(parent(path))?).entry(name))
    }

    /// Path of the entry as given by the caller; relative paths stay relative.
    pub(crate) fn path(&self) -> PathBuf {
        match self.folder.path == Path::new(".") {
            true => PathBuf::from(&self.name),
            false => self.folder.path.join(&self.name),
        }
    }

    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    pub(crate) fn folder(&self) -> &Arc<Folder> {
        &self.folder
    }

    /// Returns another entry of the same folder.
    pub(crate) fn sibling(&self, name: impl Into<OsString>) -> Self {
        self.folder.entry(name)
    }

    /// Returns the status, without following links; `None` if the entry does not exist.
    pub(crate) fn stat(&self) -> Result<Option<Stat>> {
        self.folder.stat(&self.name)
    }

    /// Returns whether the entry is an empty folder.
    pub(crate) fn is_empty_folder(&self) -> bool {
        matches!(self.stat(), Ok(Some(stat)) if file_type(&stat) == FileType::Directory)
            && self.folder.inner(&self.name).and_then(|f| f.names()).is_ok_and(|names| names.is_empty())
    }

    /// Creates a file; `None` if the entry exists.
    pub(crate) fn create_file(&self, mode: u32) -> Result<Option<File>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match open_at(&self.folder.handle, self.name.as_os_str(), flags, Mode::from_raw_mode(mode)) {
            Ok(handle) => Ok(Some(handle.into())),
            Err(Errno::EXIST) => Ok(None),
            Err(e) => Err(io("create", &self.path(), e)),
        }
    }

    /// Opens the file for reading and writing. A link is an error.
    pub(crate) fn open_file(&self) -> std::io::Result<File> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(open_at(&self.folder.handle, self.name.as_os_str(), flags, Mode::empty())?.into())
    }

    /// Creates a folder; false if the entry exists.
    pub(crate) fn create_folder(&self, mode: u32) -> Result<bool> {
        match sys::mkdirat(&self.folder.handle, &self.name, Mode::from_raw_mode(mode)) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(e) => Err(io("create folder", &self.path(), e)),
        }
    }

    /// Renames the entry, replacing a file or link, or an empty folder by a folder.
    pub(crate) fn rename(&self, to: &Self) -> Result<()> {
        sys::renameat(&self.folder.handle, &self.name, &to.folder.handle, &to.name)
            .map_err(|e| io("rename to", &to.path(), e))
    }

    /// Renames the entry to a new name; false if the new name exists.
    pub(crate) fn rename_new(&self, to: &Self) -> Result<bool> {
        #[cfg(target_os = "linux")]
        {
            let (from, flags) = (&self.folder.handle, sys::RenameFlags::NOREPLACE);
            match sys::renameat_with(from, &self.name, &to.folder.handle, &to.name, flags) {
                Ok(()) => return Ok(true),
                Err(Errno::EXIST) => return Ok(false),
                // Not supported by all file systems.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
                Err(e) => return Err(io("rename to", &to.path(), e)),
            }
        }
        // A hard link fails if the name exists. Folders, and file systems without hard links, need two steps: check and rename.
        match sys::linkat(&self.folder.handle, &self.name, &to.folder.handle, &to.name, AtFlags::empty()) {
            Ok(()) => self.remove().map(|()| true),
            Err(Errno::EXIST) => Ok(false),
            Err(_) if to.stat()?.is_some() => Ok(false),
            Err(_) => self.rename(to).map(|()| true),
        }
    }

    /// Exchanges two names; false if it is not possible atomically.
    #[cfg(target_os = "linux")]
    pub(crate) fn exchange(&self, other: &Self) -> Result<bool> {
        let (ours, theirs) = (&self.folder.handle, &other.folder.handle);
        match sys::renameat_with(ours, &self.name, theirs, &other.name, sys::RenameFlags::EXCHANGE) {
            Ok(()) => Ok(true),
            // Not supported by all file systems.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
            Err(e) => Err(io("rename to", &other.path(), e)),
        }
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn exchange(&self, _: &Self) -> Result<bool> {
        Ok(false)
    }

    /// Removes a file, a link or an empty folder. A missing entry is not an error.
    pub(crate) fn remove(&self) -> Result<()> {
        let unlink = |flags| sys::unlinkat(&self.folder.handle, &self.name, flags);
        let removed = match unlink(AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => unlink(AtFlags::REMOVEDIR),
            other => other,
        };
        match removed {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(e) => Err(io("remove", &self.path(), e)),
        }
    }

    /// Removes a file or link, or a folder recursively. Links are removed, not their targets.
    pub(crate) fn remove_tree(&self) -> Result<()> {
        self.folder.remove_tree(&self.name, MAX_DEPTH)
    }

    /// Latest modification time of the entry and everything below it, in seconds since 1970.
    pub(crate) fn newest(&self) -> Result<i64> {
        let Some(own) = self.stat()? else { return Ok(0) };
        let mut newest = own.st_mtime;
        if file_type(&own) == FileType::Directory {
            self.folder
                .inner(&self.name)?
                .walk(MAX_DEPTH, &mut |_, _, stat| newest = newest.max(stat.st_mtime))?;
        }
        Ok(newest)
    }

    /// Permissions of the entry, and those that all folders and all files below it share.
    pub(crate) fn permissions(&self) -> Result<Option<Permissions>> {
        let Some(own) = self.stat()? else { return Ok(None) };
        let mode = own.st_mode & 0o7777;
        let mut all = Permissions { mode, uid: own.st_uid, gid: own.st_gid, folders: mode, files: None };
        if file_type(&own) == FileType::Directory {
            self.folder.inner(&self.name)?.walk(MAX_DEPTH, &mut |_, _, stat| match file_type(stat) {
                FileType::Directory => all.folders &= stat.st_mode,
                FileType::RegularFile => all.files = Some(all.files.unwrap_or(0o7777) & stat.st_mode),
                _ => {}
            })?;
        }
        Ok(Some(all))
    }

    /// Applies permissions and, if permitted, the owner to an entry and everything below it.
    pub(crate) fn set_permissions(&self, wanted: &Permissions) -> Result<()> {
        let Some(own) = self.stat()? else { return Ok(()) };
        if file_type(&own) == FileType::Directory {
            let mut failed = Ok(());
            self.folder.inner(&self.name)?.walk(MAX_DEPTH, &mut |folder, name, stat| {
                let mode = match file_type(stat) {
                    FileType::Directory => wanted.folders,
                    FileType::RegularFile => wanted.files.unwrap_or(wanted.mode & 0o666),
                    _ => return,
                };
                if failed.is_ok() {
                    failed = folder.entry_permissions(name, mode & 0o7777, wanted);
                }
            })?;
            failed?;
        }
        self.folder.entry_permissions(&self.name, wanted.mode, wanted)
    }
}

/// Mode bits and owner of an entry, and the common bits of its content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Permissions {
    mode: u32,
    uid: u32,
    gid: u32,
    /// Bits common to the folder and all folders below it.
    folders: u32,
    /// Bits common to all files below it.
    files: Option<u32>,
}

impl Folder {
    fn entry_permissions(&self, name: &OsStr, mode: u32, wanted: &Permissions) -> Result<()> {
        let path = || self.path.join(name);
        let Some(now) = self.stat(name)? else { return Ok(()) };
        if file_type(&now) == FileType::Symlink {
            return Ok(());
        }
        let mut mode = mode;
        if (now.st_uid, now.st_gid) != (wanted.uid, wanted.gid) {
            let chown = |uid: Option<u32>, gid: Option<u32>| {
                let (uid, gid) = (uid.map(sys::Uid::from_raw), gid.map(sys::Gid::from_raw));
                sys::chownat(&self.handle, name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            };
            // Only the superuser can change the owner; a group of the user can be kept without the owner.
            let kept =
                chown(Some(wanted.uid), Some(wanted.gid)).is_ok() || chown(None, Some(wanted.gid)).is_ok();
            if !kept {
                // Permissions of the old group do not apply to the new one.
                mode = (mode & 0o0707) | (mode & (mode << 3) & 0o070);
            }
        }
        // Linux has no call that changes the mode of an entry without following links, except through a handle.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let handle = match open_at(&self.handle, name, flags, Mode::empty()) {
            Ok(handle) => handle,
            Err(Errno::LOOP) => return Ok(()),
            Err(e) => return Err(io("open", &path(), e)),
        };
        sys::fchmod(&handle, Mode::from_raw_mode(mode)).map_err(|e| io("set permissions of", &path(), e))
    }
}
