//! A file or folder made under a temporary name and put in place whole.

use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use tesseral_core::Result;

use crate::folder::{Entry, file_type};
use crate::leftover;
use crate::publish::exists;
use crate::store::Overwrite;
use crate::unpublished::{Unpublished, publishing};

/// A path beside the final one where something of several files, or something still to be checked, is made. Dropping it
/// unpublished removes what is there.
#[derive(Debug)]
pub struct StagedPath {
    temporary: Entry,
    target: Entry,
    path: PathBuf,
    overwrite: Overwrite,
    /// What has the temporary name is not ours to remove.
    foreign: bool,
    _unpublished: Unpublished,
}

impl StagedPath {
    /// Begins what shall be `target`: an empty file, or an empty folder, under a temporary name. It has the permissions of what it
    /// replaces from the start. What earlier writers of the target left when they were killed is removed.
    ///
    /// # Errors
    /// `InvalidRequest` when the target exists and must not be replaced, an empty folder aside where a folder is made; `Io`.
    pub fn new(target: impl AsRef<Path>, folder: bool, overwrite: Overwrite) -> Result<Self> {
        let target = Entry::of_path(target.as_ref())?;
        leftover::sweep(target.folder(), Some(target.name()));
        let replaced = target.stat()?;
        if overwrite == Overwrite::Refuse && replaced.is_some() && !(folder && target.is_empty_folder()) {
            return Err(exists(&target.path()));
        }
        loop {
            let temporary = target.beside(leftover::temporary(target.name(), "staged"));
            let _unpublished = Unpublished::new(temporary.path());
            let private = replaced.is_some();
            let made = match folder {
                true => temporary.create_folder(if private { 0o700 } else { 0o777 })?,
                false => temporary.create_file(if private { 0o600 } else { 0o666 })?.is_some(),
            };
            if made {
                let (path, foreign) = (temporary.path(), false);
                let staged = Self { path, temporary, target, overwrite, foreign, _unpublished };
                staged.keep_permissions()?;
                return Ok(staged);
            }
        }
    }

    /// Where to make it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes what an earlier try for the same target made under a name that it noted. Names of another form are left alone.
    pub fn discard(&self, name: &str) {
        if self.temporary.name() != name {
            leftover::discard(&self.target, name);
        }
    }

    /// Puts what was made under the final name. `approve` judges what it replaces, once that has no other name than the one it is
    /// given: nothing can take its place between the check and the removal. What is not approved goes back and stays.
    ///
    /// # Errors
    /// `InvalidRequest` when something appeared there meanwhile and must not be replaced; what `approve` returns; `Io`.
    pub fn publish(mut self, approve: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        // While names are exchanged, what has the temporary name may be the old output.
        let _publishing = publishing();
        // Twice at most: something may appear where nothing was.
        for _ in 0..2 {
            if self.target.stat()?.is_none() {
                if self.temporary.rename_new(&self.target)? {
                    return self.target.folder().sync();
                }
                continue;
            }
            if self.overwrite == Overwrite::Refuse {
                if !self.target.is_empty_folder() {
                    return Err(exists(&self.target.path()));
                }
                self.keep_permissions()?;
                // The system refuses when the folder is not empty any more.
                self.temporary.rename(&self.target)?;
                return self.target.folder().sync();
            }
            return self.replace(approve);
        }
        Err(exists(&self.target.path()))
    }

    fn replace(&mut self, approve: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        self.keep_permissions()?;
        if self.temporary.exchange(&self.target)? {
            if let Err(error) = approve(&self.path) {
                self.foreign = true;
                self.temporary.exchange(&self.target)?;
                self.foreign = false;
                return Err(error);
            }
            // The old one is removed when this is dropped.
            return self.target.folder().sync();
        }
        // Without an exchange the old one steps aside first: a crash between the two steps leaves it whole as a leftover.
        let aside = self.target.beside(leftover::temporary(self.target.name(), "staged"));
        self.target.rename(&aside)?;
        let placed = approve(&aside.path()).and_then(|()| match self.temporary.rename_new(&self.target)? {
            true => Ok(()),
            false => Err(exists(&self.target.path())),
        });
        if let Err(error) = placed {
            // Best effort: whatever keeps the new one from its place may keep the old one too.
            let _ = aside.rename_new(&self.target);
            return Err(error);
        }
        self.target.folder().sync()?;
        // What cannot be removed is a leftover, which its name tells.
        let _ = aside.remove_tree();
        Ok(())
    }

    /// Gives permissions and owner of what is replaced to what is made.
    fn keep_permissions(&self) -> Result<()> {
        let kind = |entry: &Entry| entry.stat().map(|stat| stat.map(|stat| file_type(&stat)));
        let (old, new) = (kind(&self.target)?, kind(&self.temporary)?);
        // A file says nothing about a folder, nor a link about anything.
        let alike = matches!(old, Some(FileType::RegularFile | FileType::Directory)) && old == new;
        match self.target.permissions()?.filter(|_| alike) {
            Some(permissions) => self.temporary.set_permissions(&permissions),
            None => Ok(()),
        }
    }
}

impl Drop for StagedPath {
    fn drop(&mut self) {
        if !self.foreign {
            // Nothing better can be done about a failure here; the name marks what stays as a leftover.
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
    fn files_and_folders_appear_whole() {
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
            staged.publish(&anything).unwrap();
            assert_eq!(read(), "one");
            let refused = StagedPath::new(&target, is_folder, Overwrite::Refuse).unwrap_err();
            assert!(matches!(refused.kind(), ErrorKind::InvalidRequest { .. }));
            let staged = StagedPath::new(&target, is_folder, Overwrite::Replace).unwrap();
            fill(staged.path(), "two");
            assert_eq!(read(), "one");
            staged.publish(&anything).unwrap();
            assert_eq!(read(), "two");
        }
        assert_eq!(names(folder.path()), ["d", "f"]);
    }

    #[test]
    fn what_appears_meanwhile_is_not_replaced_unless_asked() {
        let folder = tempfile::tempdir().unwrap();
        for is_folder in [false, true] {
            let target = folder.path().join(format!("t{is_folder}"));
            let staged = StagedPath::new(&target, is_folder, Overwrite::Refuse).unwrap();
            fs::write(&target, "theirs").unwrap();
            assert!(staged.publish(&anything).is_err());
            assert_eq!(fs::read_to_string(&target).unwrap(), "theirs");
        }
        assert_eq!(names(folder.path()), ["tfalse", "ttrue"]);
    }

    /// The check sees what is really replaced, also when that took the target's name a moment before.
    #[test]
    fn what_is_not_approved_goes_back() {
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
        assert!(staged.publish(&no_links).is_err());
        assert_eq!(fs::read_link(&target).unwrap(), outside);
        assert_eq!(fs::read_to_string(outside.join("keep")).unwrap(), "kept");
        assert_eq!(names(folder.path()), ["d", "outside"]);
    }

    #[test]
    fn replacing_removes_links_and_not_what_they_point_to() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("keep"), "kept").unwrap();
        let target = folder.path().join("d");
        fs::create_dir_all(target.join("inner")).unwrap();
        symlink(&outside, target.join("link")).unwrap();
        symlink(&outside, target.join("inner/link")).unwrap();
        let staged = StagedPath::new(&target, true, Overwrite::Replace).unwrap();
        staged.publish(&anything).unwrap();
        assert_eq!(fs::read_to_string(outside.join("keep")).unwrap(), "kept");
        // And so does giving up.
        let staged = StagedPath::new(folder.path().join("e"), true, Overwrite::Refuse).unwrap();
        symlink(&outside, staged.path().join("link")).unwrap();
        drop(staged);
        assert_eq!(fs::read_to_string(outside.join("keep")).unwrap(), "kept");
        assert_eq!(names(folder.path()), ["d", "outside"]);
    }

    #[test]
    fn permissions_of_what_is_replaced_stay() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        let file = folder.path().join("f");
        for wanted in [0o600, 0o664, 0o444] {
            let _ = fs::remove_file(&file);
            fs::write(&file, "old").unwrap();
            set(&file, wanted);
            let staged = StagedPath::new(&file, false, Overwrite::Replace).unwrap();
            assert_eq!(mode(staged.path()), wanted, "also while it is made");
            set(staged.path(), 0o600);
            fill(staged.path(), "new");
            staged.publish(&anything).unwrap();
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
        staged.publish(&anything).unwrap();
        assert_eq!(["", "b", "b/3"].map(|name| mode(&array.join(name))), [0o750, 0o750, 0o640]);
    }

    /// Readers find the old folder or the new one while it is replaced.
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
                staged.publish(&anything).unwrap();
            }
            done.store(true, Ordering::Relaxed);
            assert!(looked.join().unwrap());
        });
        assert_eq!(names(folder.path()), ["d"]);
    }
}
