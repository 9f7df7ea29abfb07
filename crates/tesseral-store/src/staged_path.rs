//! A file or folder that is written under a temporary name and published atomically.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;
use tesseral_core::{Advice, Error, Result};

use crate::durability::{Durability, Unsynced};
use crate::folder::{FolderEntry, file_type, io};
use crate::handles::ReopenedFile;
use crate::leftover;
use crate::store::{Overwrite, Staged};
use crate::unpublished::{Unpublished, publishing};
use crate::writeback::{STEP, Writeback};

/// A temporary path on the file system of the final one, with the permissions of the entry it replaces from the start: a file
/// or folder that is checked before it is published, or one object of a store. Dropping it without publishing removes it.
#[derive(Debug)]
pub struct StagedPath {
    temporary: FolderEntry,
    target: FolderEntry,
    path: PathBuf,
    overwrite: Overwrite,
    /// The open file, if this is an object of a store.
    file: Option<Arc<ReopenedFile>>,
    /// Files to synchronize later, if this is an object of an unpublished folder.
    unsynced: Option<Arc<Unsynced>>,
    writeback: Writeback,
    durability: Durability,
    /// The entry with the temporary name must not be removed: it is published, or is the old output.
    keep: bool,
    _unpublished: Unpublished,
}

/// Error for an output that exists and must not be replaced.
pub fn output_exists(target: &Path) -> Error {
    Error::invalid(format!("output {} already exists", target.display())).hint(Advice::Overwrite)
}

impl StagedPath {
    /// Creates an empty file or folder under a temporary name next to `target`. Leftovers of killed writers of the target are
    /// removed.
    ///
    /// # Errors
    /// `InvalidRequest` when the target exists and must not be replaced, except an empty folder replaced by a folder; `Io`.
    pub fn new(target: impl AsRef<Path>, folder: bool, overwrite: Overwrite) -> Result<Self> {
        let target = FolderEntry::of_path(target.as_ref())?;
        leftover::sweep(target.folder(), Some(target.name()));
        let beside = target.clone();
        Ok(Self::create(target, &beside, folder, overwrite, "staged")?.0)
    }

    /// Creates an empty file for the object `target` in the folder of `beside`, and keeps it open.
    pub(crate) fn object(
        target: FolderEntry,
        beside: &FolderEntry,
        overwrite: Overwrite,
        unsynced: Option<Arc<Unsynced>>,
    ) -> Result<Self> {
        let (mut staged, file) = Self::create(target, beside, false, overwrite, "tmp")?;
        staged.unsynced = unsynced;
        let entry = staged.temporary.clone();
        staged.file = file.map(|file| ReopenedFile::new(file, move || entry.open_file()));
        Ok(staged)
    }

    /// Creates the entry; returns the open file unless it is a folder.
    fn create(
        target: FolderEntry,
        beside: &FolderEntry,
        folder: bool,
        overwrite: Overwrite,
        ending: &str,
    ) -> Result<(Self, Option<File>)> {
        let replaced = target.stat()?;
        if overwrite == Overwrite::Refuse && replaced.is_some() && !(folder && target.is_empty_folder()) {
            return Err(output_exists(&target.path()));
        }
        let kind = if folder { FileType::Directory } else { FileType::RegularFile };
        // Private until it has the permissions of the entry it replaces.
        let private = replaced.is_some_and(|stat| file_type(&stat) == kind);
        loop {
            let temporary = beside.sibling(leftover::temporary(target.name(), ending));
            let _unpublished = Unpublished::new(temporary.path());
            let (created, opened) = match folder {
                true => (temporary.create_folder(if private { 0o700 } else { 0o777 })?, None),
                false => {
                    let opened = temporary.create_file(if private { 0o600 } else { 0o666 })?;
                    (opened.is_some(), opened)
                }
            };
            // Otherwise the name is a leftover of a process with the same number: use the next one.
            if created {
                let (path, file, keep) = (temporary.path(), None, false);
                let (unsynced, durability) = (None, Durability::Full);
                let staged = Self {
                    path,
                    temporary,
                    target,
                    overwrite,
                    file,
                    unsynced,
                    writeback: Writeback::default(),
                    durability,
                    keep,
                    _unpublished,
                };
                if private {
                    staged.keep_permissions()?;
                }
                return Ok((staged, opened));
            }
        }
    }

    /// Sets whether the name is durable when the entry is published. Default: yes.
    #[must_use]
    pub fn durability(mut self, durability: Durability) -> Self {
        self.durability = durability;
        self
    }

    /// Makes the name durable.
    fn sync_name(&self) -> Result<()> {
        match self.durability {
            Durability::Full => self.target.folder().sync(),
            Durability::None => Ok(()),
        }
    }

    /// The temporary path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the entry that an earlier attempt for the same target recorded. Names of another form are ignored.
    pub fn discard(&self, name: &str) {
        if self.temporary.name() != name {
            leftover::discard(&self.target, name);
        }
    }

    /// Publishes the entry under the final name. `approve` checks the replaced entry under its temporary name, so that nothing
    /// can replace it between check and removal. If it is not approved, it is moved back. Its content must be durable.
    ///
    /// # Errors
    /// `InvalidRequest` when the target appeared meanwhile and must not be replaced; errors of `approve`; `Io`.
    pub fn publish_approved(mut self, approve: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        // While names are exchanged, the temporary name can be the old output.
        let _publishing = publishing();
        // At most two attempts: an entry can appear at the target after the first one.
        for _ in 0..2 {
            if self.target.stat()?.is_none() {
                if self.temporary.rename_new(&self.target)? {
                    self.keep = true;
                    return self.sync_name();
                }
                continue;
            }
            if self.overwrite == Overwrite::Refuse {
                if !self.target.is_empty_folder() {
                    return Err(output_exists(&self.target.path()));
                }
                self.keep_permissions()?;
                // The system returns an error if the folder is no longer empty.
                self.temporary.rename(&self.target)?;
                self.keep = true;
                return self.sync_name();
            }
            return self.replace(approve);
        }
        Err(output_exists(&self.target.path()))
    }

    fn replace(&mut self, approve: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        self.keep_permissions()?;
        if self.temporary.exchange(&self.target)? {
            if let Err(error) = approve(&self.path) {
                self.keep = true;
                self.temporary.exchange(&self.target)?;
                self.keep = false;
                return Err(error);
            }
            // The old entry is removed on drop.
            return self.sync_name();
        }
        // Without an atomic exchange the old entry is renamed first: a crash between the steps leaves it as a leftover.
        let aside = self.target.sibling(leftover::temporary(self.target.name(), "staged"));
        self.target.rename(&aside)?;
        let placed = approve(&aside.path()).and_then(|()| match self.temporary.rename_new(&self.target)? {
            true => Ok(()),
            false => Err(output_exists(&self.target.path())),
        });
        if let Err(error) = placed {
            // Best effort: the cause of the failure can affect the old entry too.
            let _ = aside.rename_new(&self.target);
            return Err(error);
        }
        self.sync_name()?;
        // An entry that cannot be removed is a leftover, marked by its name.
        let _ = aside.remove_tree();
        Ok(())
    }

    fn with_file<T>(&self, op: &'static str, call: impl FnOnce(&File) -> std::io::Result<T>) -> Result<T> {
        let file =
            self.file.as_ref().ok_or_else(|| Error::internal("a staged path is not open as an object"))?;
        file.get().and_then(|file| call(&file)).map_err(|e| io(op, &self.path, e))
    }

    /// Copies permissions and owner of the replaced entry.
    fn keep_permissions(&self) -> Result<()> {
        let kind = |entry: &FolderEntry| entry.stat().map(|stat| stat.map(|stat| file_type(&stat)));
        let (old, new) = (kind(&self.target)?, kind(&self.temporary)?);
        // Permissions of a file do not apply to a folder, and those of a link are meaningless.
        let alike = matches!(old, Some(FileType::RegularFile | FileType::Directory)) && old == new;
        match self.target.permissions()?.filter(|_| alike) {
            Some(permissions) => self.temporary.set_permissions(&permissions),
            None => Ok(()),
        }
    }
}

/// One object of a store, which needs no approval.
impl Staged for StagedPath {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let becomes_durable =
            self.unsynced.as_ref().is_none_or(|unsynced| unsynced.durability() == Durability::Full);
        self.with_file("write", |file| {
            // The device writes one piece while the next one is copied.
            for (piece, at) in bytes.chunks(STEP).zip((offset..).step_by(STEP)) {
                file.write_all_at(piece, at)?;
                if becomes_durable {
                    self.writeback.written(file, piece.len());
                }
            }
            Ok(())
        })
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.with_file("read", |file| file.read_exact_at(out, offset))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.with_file("set length of", |file| file.set_len(len))
    }

    fn publish(mut self: Box<Self>) -> Result<()> {
        let file = match &self.unsynced {
            // The temporary name is gone later: a handle is kept.
            Some(_) => self
                .file
                .as_ref()
                .map(|file| file.get().map_err(|e| io("sync", &self.path, e)))
                .transpose()?,
            None => {
                // An empty file is its entry, which is made durable with the folder.
                self.with_file(
                    "sync",
                    |file| if file.metadata()?.len() > 0 { file.sync_all() } else { Ok(()) },
                )?;
                None
            }
        };
        {
            let _publishing = publishing();
            match self.overwrite {
                Overwrite::Replace => self.temporary.rename(&self.target)?,
                Overwrite::Refuse => {
                    if !self.temporary.rename_new(&self.target)? {
                        return Err(output_exists(&self.target.path()));
                    }
                }
            }
            self.keep = true;
        }
        let Some(unsynced) = &self.unsynced else { return self.target.folder().sync() };
        unsynced.add_folder(self.target.folder())?;
        file.map_or(Ok(()), |file| unsynced.add_file(file, &self.target.path()))
    }
}

impl Drop for StagedPath {
    fn drop(&mut self) {
        if !self.keep {
            // A failure here cannot be handled; the name marks the entry as a leftover.
            let _ = self.temporary.remove_tree();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use tesseral_core::{Error, ErrorKind};

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn fill(path: &Path, text: &str) {
        fs::write(if path.is_dir() { path.join("x") } else { path.to_path_buf() }, text).unwrap();
    }

    fn anything(_: &Path) -> Result<()> {
        Ok(())
    }

    #[test]
    fn files_and_folders_are_published_atomically() {
        let folder = tempfile::tempdir().unwrap();
        for (name, is_folder) in [("f", false), ("d", true)] {
            let target = folder.path().join(name);
            let read =
                || fs::read_to_string(if is_folder { target.join("x") } else { target.clone() }).unwrap();
            let half = StagedPath::new(&target, is_folder, Overwrite::Refuse).unwrap();
            fill(half.path(), "half");
            drop(half);
            assert!(!target.exists());
            let staged = StagedPath::new(&target, is_folder, Overwrite::Refuse).unwrap();
            fill(staged.path(), "one");
            staged.publish_approved(&anything).unwrap();
            assert_eq!(read(), "one");
            let refused = StagedPath::new(&target, is_folder, Overwrite::Refuse).unwrap_err();
            assert!(matches!(refused.kind(), ErrorKind::InvalidRequest { .. }));
            let staged = StagedPath::new(&target, is_folder, Overwrite::Replace).unwrap();
            fill(staged.path(), "two");
            assert_eq!(read(), "one");
            staged.publish_approved(&anything).unwrap();
            assert_eq!(read(), "two");
        }
        assert_eq!(names(folder.path()), ["d", "f"]);
    }

    #[test]
    fn a_target_that_appears_meanwhile_is_not_replaced_by_default() {
        let folder = tempfile::tempdir().unwrap();
        for is_folder in [false, true] {
            let target = folder.path().join(format!("t{is_folder}"));
            let staged = StagedPath::new(&target, is_folder, Overwrite::Refuse).unwrap();
            fs::write(&target, "theirs").unwrap();
            assert!(staged.publish_approved(&anything).is_err());
            assert_eq!(fs::read_to_string(&target).unwrap(), "theirs");
        }
        assert_eq!(names(folder.path()), ["tfalse", "ttrue"]);
    }

    /// The check sees the entry that is really replaced, even if it was renamed to the target just before.
    #[test]
    fn an_entry_that_is_not_approved_is_restored() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("keep"), "kept").unwrap();
        let target = folder.path().join("d");
        fs::create_dir(&target).unwrap();
        let staged = StagedPath::new(&target, true, Overwrite::Replace).unwrap();
        fill(staged.path(), "new");
        fs::remove_dir(&target).unwrap();
        symlink(&outside, &target).unwrap();
        let no_links = |path: &Path| match fs::symlink_metadata(path).unwrap().is_symlink() {
            true => Err(Error::invalid("a link")),
            false => Ok(()),
        };
        assert!(staged.publish_approved(&no_links).is_err());
        assert_eq!(fs::read_link(&target).unwrap(), outside);
        assert_eq!(fs::read_to_string(outside.join("keep")).unwrap(), "kept");
        assert_eq!(names(folder.path()), ["d", "outside"]);
    }

    #[test]
    fn replacing_removes_links_not_their_targets() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("keep"), "kept").unwrap();
        let target = folder.path().join("d");
        fs::create_dir_all(target.join("inner")).unwrap();
        symlink(&outside, target.join("link")).unwrap();
        symlink(&outside, target.join("inner/link")).unwrap();
        let staged = StagedPath::new(&target, true, Overwrite::Replace).unwrap();
        staged.publish_approved(&anything).unwrap();
        assert_eq!(fs::read_to_string(outside.join("keep")).unwrap(), "kept");
        // The same applies to dropping it.
        let staged = StagedPath::new(folder.path().join("e"), true, Overwrite::Refuse).unwrap();
        symlink(&outside, staged.path().join("link")).unwrap();
        drop(staged);
        assert_eq!(fs::read_to_string(outside.join("keep")).unwrap(), "kept");
        assert_eq!(names(folder.path()), ["d", "outside"]);
    }

    #[test]
    fn permissions_of_the_replaced_entry_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let file = folder.path().join("f");
        for wanted in [0o600, 0o664, 0o444] {
            let _ = fs::remove_file(&file);
            fs::write(&file, "old").unwrap();
            set(&file, wanted);
            let staged = StagedPath::new(&file, false, Overwrite::Replace).unwrap();
            assert_eq!(mode(staged.path()), wanted, "also while it is written");
            set(staged.path(), 0o600);
            fill(staged.path(), "new");
            staged.publish_approved(&anything).unwrap();
            assert_eq!((mode(&file), fs::read_to_string(&file).unwrap().as_str()), (wanted, "new"));
        }
        let array = folder.path().join("d");
        fs::create_dir_all(array.join("a")).unwrap();
        for (name, wanted) in [("a", 0o770), ("a/1", 0o640), ("a/2", 0o660), ("", 0o750)] {
            if name.contains('/') {
                fs::write(array.join(name), "old").unwrap();
            }
            set(&array.join(name), wanted);
        }
        let staged = StagedPath::new(&array, true, Overwrite::Replace).unwrap();
        fs::create_dir(staged.path().join("b")).unwrap();
        fs::write(staged.path().join("b/3"), "new").unwrap();
        staged.publish_approved(&anything).unwrap();
        assert_eq!(["", "b", "b/3"].map(|name| mode(&array.join(name))), [0o750, 0o750, 0o640]);
    }

    /// Permissions of a link do not apply to the file that replaces it.
    #[test]
    fn a_file_that_replaces_a_link_has_default_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |name: &str| fs::metadata(folder.path().join(name)).unwrap().mode() & 0o777;
        fs::write(folder.path().join("plain"), "").unwrap();
        let target = folder.path().join("link");
        symlink("absent", &target).unwrap();
        let staged = StagedPath::new(&target, false, Overwrite::Replace).unwrap();
        staged.publish_approved(&anything).unwrap();
        assert_eq!(mode("link"), mode("plain"));
    }

    /// Concurrent readers find either the old or the new folder.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_that_is_replaced_is_never_missing() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("d");
        fs::create_dir(&target).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looked = scope.spawn(|| {
                let mut found = true;
                while !done.load(Ordering::Relaxed) {
                    found &= target.is_dir();
                }
                found
            });
            for _ in 0..500 {
                let staged = StagedPath::new(&target, true, Overwrite::Replace).unwrap();
                staged.publish_approved(&anything).unwrap();
            }
            done.store(true, Ordering::Relaxed);
            assert!(looked.join().unwrap());
        });
        assert_eq!(names(folder.path()), ["d"]);
    }
}
