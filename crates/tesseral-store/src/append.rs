//! Appends to a local file that other processes read. A failed append is rolled back.
//!
//! ```text
//! open     create or open the file, wait for other appenders, record the length
//! write    append bytes
//! commit   fsync, then check that the path still names the file
//! drop     without a commit: truncate to the recorded length
//! ```
//!
//! An advisory lock serializes appends. Committed bytes do not depend on it: on file systems without locks, bytes are still
//! written at the end of the file, interleaved writes of another process are an error, and only bytes of this append are
//! truncated, while they are at the end of the file.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind as IoKind, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tesseral_core::{Error, Result};

/// Maximum time to wait for another appender.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval between attempts to lock.
const PAUSE: Duration = Duration::from_millis(5);

/// Something that bytes are appended to: all of them, or none.
pub trait AppendTarget: Debug {
    /// Length including the bytes written so far.
    fn len(&self) -> u64;

    /// Returns whether it is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Offset of the bytes of this append.
    fn start(&self) -> u64;

    /// Truncates it before the first write.
    ///
    /// # Errors
    /// `InvalidRequest` after the first write or when `len` exceeds its length; `Unsupported` if another process can be writing
    /// those bytes; `Io`.
    fn truncate(&mut self, len: u64) -> Result<()>;

    /// Appends bytes.
    ///
    /// # Errors
    /// `Io`, also when another process has written to it; `Unsupported` for more bytes than it can hold.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Makes the bytes durable. Dropping the append without a commit removes them.
    ///
    /// # Errors
    /// `Io`, `Changed`, also when it was removed or replaced since it was opened.
    fn commit(self: Box<Self>) -> Result<()>;
}

/// An append to a file in progress. Truncating it is not rolled back.
#[derive(Debug)]
pub struct AppendFile {
    path: PathBuf,
    file: File,
    /// The file was created by this append.
    created: bool,
    /// Whether the advisory lock is held.
    locked: bool,
    /// Length of the file before the append.
    start: u64,
    /// Length of the file including the bytes written so far.
    end: u64,
    committed: bool,
}

impl AppendFile {
    /// Opens a file for appending; creates it if it does not exist. Waits while another process appends, calling `check`
    /// between attempts.
    ///
    /// # Errors
    /// `Io`, also when another process appends for longer than half a minute; `Unsupported` for pipes and devices; errors of
    /// `check`.
    pub fn open(path: &Path, check: &dyn Fn() -> Result<()>) -> Result<Self> {
        let io = |op: &'static str| move |e| Error::io(op, path.display().to_string(), e);
        let deadline = Instant::now() + PATIENCE;
        loop {
            check()?;
            let (file, created) = open_or_create(path).map_err(io("open"))?;
            if !file.metadata().map_err(io("stat"))?.is_file() {
                return Err(Error::unsupported(format!("appending to {}, a pipe or device", path.display())));
            }
            let locked = match file.try_lock() {
                Ok(()) => true,
                Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(PAUSE);
                    continue;
                }
                Err(TryLockError::WouldBlock) => {
                    let busy =
                        std::io::Error::new(IoKind::ResourceBusy, "another process is appending to the file");
                    return Err(io("lock")(busy));
                }
                // The file system does not support locks.
                Err(TryLockError::Error(_)) => false,
            };
            // The file can have been removed or replaced while another process held the lock.
            if !has_name(&file, path) {
                if Instant::now() < deadline {
                    continue;
                }
                return Err(replaced(path));
            }
            let end = file.metadata().map_err(io("stat"))?.len();
            return Ok(Self {
                path: path.to_owned(),
                file,
                created,
                locked,
                start: end,
                end,
                committed: false,
            });
        }
    }

    fn io(&self, op: &'static str, error: std::io::Error) -> Error {
        Error::io(op, self.path.display().to_string(), error)
    }
}

impl AppendTarget for AppendFile {
    fn len(&self) -> u64 {
        self.end
    }

    fn start(&self) -> u64 {
        self.start
    }

    fn truncate(&mut self, len: u64) -> Result<()> {
        if self.end != self.start || len > self.end {
            return Err(Error::invalid(format!("cannot truncate {} to {len} bytes", self.path.display())));
        }
        if !self.locked {
            let detail = format!("truncating {}: the file cannot be locked", self.path.display());
            return Err(Error::unsupported(detail)
                .hint("make sure that no other process writes to the file, then repair it"));
        }
        self.file.set_len(len).map_err(|e| self.io("truncate", e))?;
        (self.start, self.end) = (len, len);
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            match self.file.write(bytes) {
                Ok(0) => return Err(self.io("write", IoKind::WriteZero.into())),
                Ok(written) => {
                    self.end += written as u64;
                    bytes = &bytes[written..];
                    // The position after the write shows where the system appended the bytes.
                    if self.file.stream_position().map_err(|e| self.io("seek", e))? != self.end {
                        let detail = "another process wrote to the file during the append";
                        return Err(self.io("write", std::io::Error::other(detail)));
                    }
                }
                Err(e) if e.kind() == IoKind::Interrupted => {}
                Err(e) => return Err(self.io("write", e)),
            }
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        self.file.sync_all().map_err(|e| self.io("sync", e))?;
        if self.created {
            let folder = self.path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
            File::open(folder).and_then(|folder| folder.sync_all()).map_err(|e| self.io("sync folder", e))?;
        }
        if !has_name(&self.file, &self.path) {
            return Err(replaced(&self.path));
        }
        self.committed = true;
        Ok(())
    }
}

impl Drop for AppendFile {
    fn drop(&mut self) {
        if self.committed {
            return;
        }
        // Bytes of another process after this append must stay. A failure leaves a truncated tail, which the next append
        // removes.
        if self.file.metadata().is_ok_and(|m| m.len() == self.end)
            && (self.end == self.start || self.file.set_len(self.start).is_ok())
            && self.created
            && self.locked
            && self.start == 0
            && has_name(&self.file, &self.path)
        {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens a file for appending; returns whether it was created.
fn open_or_create(path: &Path) -> std::io::Result<(File, bool)> {
    match OpenOptions::new().read(true).append(true).create_new(true).open(path) {
        Ok(file) => Ok((file, true)),
        Err(e) if e.kind() == IoKind::AlreadyExists => {
            // A dangling link exists as well, and the file is created through it.
            let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
            Ok((file, false))
        }
        Err(e) => Err(e),
    }
}

/// Checks that a path still names an open file.
fn has_name(file: &File, path: &Path) -> bool {
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    file.metadata().is_ok_and(|open| fs::metadata(path).is_ok_and(|named| same(&open, &named)))
}

fn replaced(path: &Path) -> Error {
    let detail = "the file was removed or replaced during the append";
    Error::io("append", path.display().to_string(), std::io::Error::other(detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        fs::write(&path, bytes).unwrap();
        (folder, path)
    }

    fn open(path: &Path) -> Box<AppendFile> {
        Box::new(AppendFile::open(path, &|| Ok(())).unwrap())
    }

    #[test]
    fn a_committed_append_is_kept() {
        let (_folder, path) = folder(b"old");
        let mut file = open(&path);
        file.write(b" new").unwrap();
        assert_eq!((file.start(), file.len()), (3, 7));
        file.commit().unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old new");
    }

    #[test]
    fn a_dropped_append_is_rolled_back() {
        let (_folder, path) = folder(b"old");
        let mut file = open(&path);
        file.write(b" new").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn a_dropped_append_removes_the_file_it_created() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        let mut file = open(&path);
        file.write(b"new").unwrap();
        drop(file);
        assert!(!path.exists());
        open(&path).commit().unwrap();
        assert!(path.exists());
    }

    #[test]
    fn bytes_of_another_writer_are_an_error_and_are_kept() {
        let (_folder, path) = folder(b"old");
        let mut file = open(&path);
        file.write(b" ours").unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b" theirs").unwrap();
        assert!(file.write(b" more").is_err());
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old ours theirs more");
    }

    #[test]
    fn a_rollback_keeps_later_bytes_of_another_writer() {
        let (_folder, path) = folder(b"old");
        let mut file = open(&path);
        file.write(b" ours").unwrap();
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b" theirs").unwrap();
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old ours theirs");
    }

    #[test]
    fn only_bytes_from_before_the_append_are_truncated() {
        let (_folder, path) = folder(b"old tail");
        let mut file = open(&path);
        assert!(file.truncate(9).is_err());
        file.truncate(3).unwrap();
        file.write(b" new").unwrap();
        assert!(file.truncate(3).is_err());
        drop(file);
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }

    #[test]
    fn a_second_append_waits_for_the_first() {
        let (_folder, path) = folder(b"");
        let mut first = open(&path);
        first.write(b"1").unwrap();
        std::thread::scope(|scope| {
            let second = scope.spawn(|| {
                let mut second = open(&path);
                second.write(b"2").unwrap();
                second.commit().unwrap();
            });
            first.write(b"1").unwrap();
            first.commit().unwrap();
            second.join().unwrap();
        });
        assert_eq!(fs::read(&path).unwrap(), b"112");
        let held = open(&path);
        let cancelled = AppendFile::open(&path, &|| Err(Error::cancelled()));
        assert!(cancelled.is_err());
        drop(held);
    }

    #[test]
    fn a_file_that_was_replaced_is_not_committed() {
        let (folder, path) = folder(b"old");
        let mut file = open(&path);
        file.write(b" new").unwrap();
        let other = folder.path().join("other");
        fs::write(&other, b"other").unwrap();
        fs::rename(&other, &path).unwrap();
        assert!(file.commit().is_err());
        assert_eq!(fs::read(&path).unwrap(), b"other");
    }
}
