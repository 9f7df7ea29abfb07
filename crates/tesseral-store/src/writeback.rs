//! Early writing of a staged file to its device, so that making it durable waits for its last bytes only.

use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Number of bytes after which the device is asked to start. Smaller files are written when they are made durable.
pub(crate) const STEP: usize = 8 << 20;

/// What was written to a file since the device was last asked to start.
#[derive(Debug, Default)]
pub(crate) struct Writeback {
    waiting: AtomicUsize,
    /// Held by the thread that asks: the call can wait for the device, and other threads should not wait with it.
    asking: AtomicBool,
}

impl Writeback {
    /// Counts written bytes, and starts writing all bytes of the file to its device at each [`STEP`]. Returns whether it did.
    pub(crate) fn written(&self, file: &File, bytes: usize) -> bool {
        let waiting = self.waiting.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        if waiting < STEP || self.asking.swap(true, Ordering::Acquire) {
            return false;
        }
        self.waiting.store(0, Ordering::Relaxed);
        start(file);
        self.asking.store(false, Ordering::Release);
        true
    }
}

/// Starts writing modified pages of a file, without waiting until they are durable.
fn start(file: &File) {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        #[allow(unsafe_code)]
        // SAFETY: the call takes no pointers, and the descriptor is open for as long as `file` is borrowed.
        let started = unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        // Some file systems have no such call, and a write that fails is reported when the file is made durable.
        let _ = started;
    }
    #[cfg(not(target_os = "linux"))]
    let _ = file;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_is_asked_once_for_each_step() {
        let file = tempfile::tempfile().unwrap();
        let writeback = Writeback::default();
        let asked = (0..64).filter(|_| writeback.written(&file, STEP / 16)).count();
        assert_eq!(asked, 4);
        assert!(!writeback.written(&file, STEP - 1));
        assert!(writeback.written(&file, 1));
        assert!(writeback.written(&file, usize::MAX));
    }
}
