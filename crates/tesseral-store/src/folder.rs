//! Staging a folder beside its final place and renaming it there.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use tesseral_core::Result;

use crate::publish::{create_folders, exists, io, parent, replace, temporary};
use crate::store::Overwrite;
use crate::unpublished::{Unpublished, publishing};

/// A folder under a temporary name, for formats whose containers are folders. Dropping it unpublished removes it.
#[derive(Debug)]
pub struct StagedFolder {
    folder: PathBuf,
    target: PathBuf,
    overwrite: Overwrite,
    published: bool,
    _unpublished: Unpublished,
}

impl StagedFolder {
    /// Begins a folder that shall be `target`.
    ///
    /// # Errors
    /// `InvalidRequest` when there is something of that name that must not be replaced; `Io`.
    pub fn create(target: impl Into<PathBuf>, overwrite: Overwrite) -> Result<Self> {
        let target = target.into();
        if overwrite == Overwrite::Refuse && !is_vacant(&target) {
            return Err(exists(&target));
        }
        create_folders(parent(&target))?;
        loop {
            let folder = temporary(&target, &target);
            let unpublished = Unpublished::new(&folder);
            match fs::create_dir(&folder) {
                Ok(()) => {
                    let (published, _unpublished) = (false, unpublished);
                    return Ok(Self { folder, target, overwrite, published, _unpublished });
                }
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(io("create folder", &folder, e)),
            }
        }
    }

    /// Where to write meanwhile.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Puts the folder under its final name. Its files must be durable already.
    ///
    /// What is replaced stays whole until then, and is removed afterwards.
    ///
    /// # Errors
    /// `Io`; `InvalidRequest` when something appeared there meanwhile and must not be replaced.
    pub fn publish(mut self) -> Result<()> {
        let publishing = publishing();
        let old = if is_vacant(&self.target) {
            fs::rename(&self.folder, &self.target).map_err(|e| io("rename to", &self.target, e))?;
            None
        } else if self.overwrite == Overwrite::Refuse {
            return Err(exists(&self.target));
        } else {
            Some(replace(&self.folder, &self.target)?)
        };
        self.published = true;
        drop(publishing);
        let above = parent(&self.target);
        File::open(above).and_then(|f| f.sync_all()).map_err(|e| io("sync folder", above, e))?;
        match old {
            None => Ok(()),
            Some(aside) if aside.is_dir() => fs::remove_dir_all(&aside).map_err(|e| io("remove", &aside, e)),
            Some(aside) => fs::remove_file(&aside).map_err(|e| io("remove", &aside, e)),
        }
    }
}

/// Whether nothing is there, or an empty folder.
fn is_vacant(target: &Path) -> bool {
    match fs::symlink_metadata(target) {
        Err(_) => true,
        Ok(metadata) => metadata.is_dir() && fs::read_dir(target).is_ok_and(|mut d| d.next().is_none()),
    }
}

impl Drop for StagedFolder {
    fn drop(&mut self) {
        if !self.published {
            // Nothing better can be done about a failure here; the name marks the folder as a leftover.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::ErrorKind;

    #[test]
    fn folders_appear_whole_or_not_at_all() {
        let above = tempfile::tempdir().unwrap();
        let target = above.path().join("x/array");
        let staged = StagedFolder::create(&target, Overwrite::Refuse).unwrap();
        fs::write(staged.path().join("f"), b"1").unwrap();
        assert!(!target.exists());
        drop(staged);
        assert_eq!(fs::read_dir(above.path().join("x")).unwrap().count(), 0);

        let staged = StagedFolder::create(&target, Overwrite::Refuse).unwrap();
        fs::write(staged.path().join("f"), b"1").unwrap();
        staged.publish().unwrap();
        let refused = StagedFolder::create(&target, Overwrite::Refuse).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::InvalidRequest { .. }));
        let staged = StagedFolder::create(&target, Overwrite::Replace).unwrap();
        fs::write(staged.path().join("g"), b"2").unwrap();
        staged.publish().unwrap();
        assert!(target.join("g").exists() && !target.join("f").exists());
        assert_eq!(fs::read_dir(above.path().join("x")).unwrap().count(), 1, "nothing is left beside it");
    }
}
