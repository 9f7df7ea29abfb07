//! Staging a file beside its final place and renaming it there.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tesseral_core::{Error, Result};

use crate::store::{Overwrite, Staged};
use crate::unpublished::{Unpublished, publishing};

/// Marks names of files that were never published. Listings skip them.
pub(crate) const PREFIX: &str = ".tesseral-";

static NEXT: AtomicU64 = AtomicU64::new(0);

/// A file under a temporary name in the folder of its final name, so that the last rename stays within one file system.
#[derive(Debug)]
pub(crate) struct StagedFile {
    file: File,
    temporary: PathBuf,
    target: PathBuf,
    overwrite: Overwrite,
    published: bool,
    _unpublished: Unpublished,
}

pub(crate) fn io(op: &'static str, path: &Path, error: std::io::Error) -> Error {
    Error::io(op, path.display().to_string(), error)
}

pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A name for what shall be `target`, beside `beside`, that nobody has used.
pub(crate) fn temporary(target: &Path, beside: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    let unique = NEXT.fetch_add(1, Ordering::Relaxed);
    parent(beside).join(format!("{PREFIX}{name}.{}.{unique}.tmp", std::process::id()))
}

/// Puts what is new in the place of what is there; gives where that is now. One step where the system can exchange two names.
/// Elsewhere the old one steps aside first: a crash between the two steps leaves it whole under the name of a leftover.
pub(crate) fn replace(new: &Path, target: &Path) -> Result<PathBuf> {
    if exchange(new, target).map_err(|e| io("rename to", target, e))? {
        return Ok(new.to_path_buf());
    }
    let aside = temporary(target, target);
    fs::rename(target, &aside).map_err(|e| io("move aside", target, e))?;
    if let Err(e) = fs::rename(new, target) {
        // Best effort: whatever keeps the new one from its place may keep the old one too.
        let _ = fs::rename(&aside, target);
        return Err(io("rename to", target, e));
    }
    Ok(aside)
}

/// Exchanges two names; false where this cannot be done in one step.
#[cfg(target_os = "linux")]
fn exchange(new: &Path, target: &Path) -> std::io::Result<bool> {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use rustix::io::Errno;
    match renameat_with(CWD, new, CWD, target, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        // Not every file system has it.
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

#[cfg(not(target_os = "linux"))]
fn exchange(_: &Path, _: &Path) -> std::io::Result<bool> {
    Ok(false)
}

/// Whether a name is one that a program gave to what it made, and the program is gone. Where nobody can tell, it is not.
pub(crate) fn is_leftover(name: &str) -> bool {
    let mut parts = name.rsplit('.');
    let ours = name.starts_with(PREFIX) && matches!(parts.next(), Some("tmp" | "staged"));
    let process = parts.nth(1).and_then(|text| text.parse::<u32>().ok());
    let running = |process: u32| Path::new("/proc").join(process.to_string()).exists();
    ours && Path::new("/proc/self").exists() && process.is_some_and(|process| !running(process))
}

/// Creates a folder and those above it, each durable in the one that holds it.
pub(crate) fn create_folders(folder: &Path) -> Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    let above = parent(folder);
    if above != folder {
        create_folders(above)?;
    }
    match fs::create_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Ok(()),
        other => other.map_err(|e| io("create folder", folder, e))?,
    }
    File::open(above).and_then(|f| f.sync_all()).map_err(|e| io("sync folder", above, e))
}

impl StagedFile {
    /// Begins a file that shall be `target`; until then it lies beside `beside`, on the same file system.
    pub(crate) fn create(target: PathBuf, beside: &Path, overwrite: Overwrite) -> Result<Self> {
        if overwrite == Overwrite::Refuse && fs::symlink_metadata(&target).is_ok() {
            return Err(exists(&target));
        }
        create_folders(parent(beside))?;
        create_folders(parent(&target))?;
        loop {
            let temporary = temporary(&target, beside);
            let unpublished = Unpublished::new(&temporary);
            match OpenOptions::new().read(true).write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    let (published, _unpublished) = (false, unpublished);
                    return Ok(Self { file, temporary, target, overwrite, published, _unpublished });
                }
                // A leftover of a process that had our number: take the next name.
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(io("create", &temporary, e)),
            }
        }
    }

    fn put_in_place(&self) -> Result<()> {
        match self.overwrite {
            Overwrite::Replace => {
                fs::rename(&self.temporary, &self.target).map_err(|e| io("rename to", &self.target, e))
            }
            // A link refuses to replace what appeared meanwhile; a rename would not.
            Overwrite::Refuse => match fs::hard_link(&self.temporary, &self.target) {
                Ok(()) => fs::remove_file(&self.temporary).map_err(|e| io("remove", &self.temporary, e)),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Err(exists(&self.target)),
                // File systems without links: the check and the rename are two steps there.
                Err(_) if fs::symlink_metadata(&self.target).is_err() => {
                    fs::rename(&self.temporary, &self.target).map_err(|e| io("rename to", &self.target, e))
                }
                Err(e) => Err(io("link to", &self.target, e)),
            },
        }
    }
}

pub(crate) fn exists(target: &Path) -> Error {
    Error::invalid(format!("{} exists", target.display())).hint("give -f to replace it")
}

impl Staged for StagedFile {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|e| io("write", &self.temporary, e))
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|e| io("read", &self.temporary, e))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|e| io("set length of", &self.temporary, e))
    }

    fn publish(mut self: Box<Self>) -> Result<()> {
        self.file.sync_all().map_err(|e| io("sync", &self.temporary, e))?;
        {
            let _publishing = publishing();
            self.put_in_place()?;
            self.published = true;
        }
        let folder = parent(&self.target);
        File::open(folder).and_then(|f| f.sync_all()).map_err(|e| io("sync folder", folder, e))
    }
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if !self.published {
            // Nothing better can be done about a failure here; the name marks the file as a leftover.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}
