//! A file or folder made under a temporary name and put in place whole.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tesseral_core::Result;

use crate::publish::{PREFIX, exists, io, parent, replace};
use crate::store::Overwrite;
use crate::unpublished::{Unpublished, publishing};

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A path beside the final one where something of several files, or something still to be looked at, is made. Dropping it
/// unpublished removes what is there.
#[derive(Debug)]
pub struct StagedPath {
    temporary: PathBuf,
    target: PathBuf,
    overwrite: Overwrite,
    _unpublished: Unpublished,
}

impl StagedPath {
    /// A temporary name for `target`. Nothing is made yet but the folder it lies in.
    ///
    /// # Errors
    /// `InvalidRequest` when the target exists and must not be replaced; `Io`.
    pub fn new(target: impl Into<PathBuf>, overwrite: Overwrite) -> Result<Self> {
        let target: PathBuf = target.into();
        if overwrite == Overwrite::Refuse && fs::symlink_metadata(&target).is_ok() {
            return Err(exists(&target));
        }
        let folder = parent(&target);
        fs::create_dir_all(folder).map_err(|e| io("create folder", folder, e))?;
        let temporary = unused(&target);
        let _unpublished = Unpublished::new(&temporary);
        Ok(Self { temporary, target, overwrite, _unpublished })
    }

    /// Where to make it.
    pub fn path(&self) -> &Path {
        &self.temporary
    }

    /// Puts what was made under the final name. What it replaces stays until then.
    ///
    /// # Errors
    /// `InvalidRequest` when something appeared there meanwhile and must not be replaced; `Io`.
    pub fn publish(self) -> Result<()> {
        let publishing = publishing();
        let there = fs::symlink_metadata(&self.target).ok();
        match (self.overwrite, there) {
            (Overwrite::Refuse, Some(_)) => return Err(exists(&self.target)),
            (Overwrite::Refuse, None) if self.temporary.is_file() => {
                // A link refuses to replace what appears just now; file systems without links rename.
                if let Err(e) = fs::hard_link(&self.temporary, &self.target) {
                    if e.kind() == std::io::ErrorKind::AlreadyExists {
                        return Err(exists(&self.target));
                    }
                    self.rename()?;
                }
            }
            (_, None) => self.rename()?,
            (_, Some(there)) if there.is_dir() || self.temporary.is_dir() => {
                // A folder cannot be renamed over.
                let old = replace(&self.temporary, &self.target)?;
                // Nothing but the old one is left to remove.
                drop(publishing);
                remove(&old);
            }
            _ => self.rename()?,
        }
        let folder = parent(&self.target);
        File::open(folder).and_then(|f| f.sync_all()).map_err(|e| io("sync folder", folder, e))
    }

    fn rename(&self) -> Result<()> {
        fs::rename(&self.temporary, &self.target).map_err(|e| io("rename to", &self.target, e))
    }
}

impl Drop for StagedPath {
    fn drop(&mut self) {
        remove(&self.temporary);
    }
}

/// Nothing better can be done about a failure here; the name marks what stays as a leftover.
fn remove(path: &Path) {
    let _ = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
}

/// A name beside the target that nothing has.
fn unused(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    loop {
        let unique = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = parent(target).join(format!("{PREFIX}{name}.{}.{unique}.staged", std::process::id()));
        if fs::symlink_metadata(&path).is_err() {
            return path;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_and_folders_appear_whole() {
        let folder = tempfile::tempdir().unwrap();
        for (name, is_folder) in [("f", false), ("d", true)] {
            let target = folder.path().join(name);
            let make = |path: &Path, text: &str| {
                if is_folder {
                    fs::create_dir(path).unwrap();
                    fs::write(path.join("x"), text).unwrap();
                } else {
                    fs::write(path, text).unwrap();
                }
            };
            let read =
                || fs::read_to_string(if is_folder { target.join("x") } else { target.clone() }).unwrap();
            let half = StagedPath::new(&target, Overwrite::Refuse).unwrap();
            make(half.path(), "half");
            drop(half);
            assert!(!target.exists());
            let staged = StagedPath::new(&target, Overwrite::Refuse).unwrap();
            make(staged.path(), "one");
            staged.publish().unwrap();
            assert_eq!(read(), "one");
            assert!(StagedPath::new(&target, Overwrite::Refuse).is_err());
            let staged = StagedPath::new(&target, Overwrite::Replace).unwrap();
            make(staged.path(), "two");
            assert_eq!(read(), "one");
            staged.publish().unwrap();
            assert_eq!(read(), "two");
        }
        assert_eq!(names(folder.path()), ["d", "f"]);
    }

    /// Whoever looks while a folder is replaced finds the old one or the new one.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_that_is_replaced_is_never_missing() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("d");
        fs::create_dir(&target).unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let looked = scope.spawn(|| {
                let mut found = true;
                while !done.load(Ordering::Relaxed) {
                    found &= target.is_dir();
                }
                found
            });
            for _ in 0..500 {
                let staged = StagedPath::new(&target, Overwrite::Replace).unwrap();
                fs::create_dir(staged.path()).unwrap();
                staged.publish().unwrap();
            }
            done.store(true, Ordering::Relaxed);
            assert!(looked.join().unwrap());
        });
        assert_eq!(names(folder.path()), ["d"]);
    }
}
