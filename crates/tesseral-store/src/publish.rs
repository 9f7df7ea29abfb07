//! Staging of a file next to its final path, and publishing by a rename.

use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::FileType;
use tesseral_core::{Advice, Error, Result};

use crate::folder::{FolderEntry, file_type, io};
use crate::handles::ReopenedFile;
use crate::leftover;
use crate::store::{Overwrite, Staged};
use crate::unpublished::{Unpublished, publishing};

/// A file under a temporary name on the file system of its final path.
#[derive(Debug)]
pub(crate) struct StagedFile {
    file: Arc<ReopenedFile>,
    temporary: FolderEntry,
    target: FolderEntry,
    path: PathBuf,
    overwrite: Overwrite,
    published: bool,
    _unpublished: Unpublished,
}

/// Error for an output that exists and must not be replaced.
pub fn exists(target: &Path) -> Error {
    Error::invalid(format!("output {} already exists", target.display())).hint(Advice::Overwrite)
}

impl StagedFile {
    /// Creates a staged file for `target` in the folder of `beside`, on the same file system. It has the permissions and owner
    /// of the file it replaces from the start.
    pub(crate) fn create(target: FolderEntry, beside: &FolderEntry, overwrite: Overwrite) -> Result<Self> {
        let replaced = target.stat()?.filter(|stat| file_type(stat) == FileType::RegularFile);
        if overwrite == Overwrite::Refuse && target.stat()?.is_some() {
            return Err(exists(&target.path()));
        }
        loop {
            let temporary = beside.beside(leftover::temporary(target.name(), "tmp"));
            let _unpublished = Unpublished::new(temporary.path());
            // The name is a leftover of a process with the same number: use the next name.
            let Some(file) = temporary.create_file(if replaced.is_some() { 0o600 } else { 0o666 })? else {
                continue;
            };
            let entry = temporary.clone();
            let file = ReopenedFile::new(file, move || entry.open_file());
            let (path, published) = (temporary.path(), false);
            let staged = Self { file, path, temporary, target, overwrite, published, _unpublished };
            if replaced.is_some()
                && let Some(permissions) = staged.target.permissions()?
            {
                staged.temporary.set_permissions(&permissions)?;
            }
            return Ok(staged);
        }
    }
}

impl Staged for StagedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file
            .get()
            .and_then(|file| file.write_all_at(bytes, offset))
            .map_err(|e| io("write", &self.path, e))
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file
            .get()
            .and_then(|file| file.read_exact_at(out, offset))
            .map_err(|e| io("read", &self.path, e))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.get().and_then(|file| file.set_len(len)).map_err(|e| io("set length of", &self.path, e))
    }

    fn publish(mut self: Box<Self>) -> Result<()> {
        self.file.get().and_then(|file| file.sync_all()).map_err(|e| io("sync", &self.path, e))?;
        {
            let _publishing = publishing();
            match self.overwrite {
                Overwrite::Replace => self.temporary.rename(&self.target)?,
                Overwrite::Refuse => {
                    if !self.temporary.rename_new(&self.target)? {
                        return Err(exists(&self.target.path()));
                    }
                }
            }
            self.published = true;
        }
        self.target.folder().sync()
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.published {
            // A failure here cannot be handled; the name marks the file as a leftover.
            let _ = self.temporary.remove();
        }
    }
}
