//! An allocator that ends the process when one request is larger than the limits of any target could justify: memory that is
//! asked for and never touched does not show in the resident size that the fuzzer watches.

use std::alloc::{GlobalAlloc, Layout, System};

/// Sixty-four times what targets allow a chunk or metadata to take.
const MOST: usize = 64 << 20;

/// The system's allocator, and a limit.
pub struct Guard;

// SAFETY: every call is handed on to the system's allocator with the arguments it came with.
unsafe impl GlobalAlloc for Guard {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MOST {
            // Not a panic: unwinding allocates, and the fuzzer keeps the input of an abort as well.
            std::process::abort();
        }
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}
