//! An allocator that ends the process when one request is larger than the limits of any target could justify: memory that is
//! allocated but never touched is not visible in the resident size that the fuzzer monitors.

use std::alloc::{GlobalAlloc, Layout, System};

/// Sixty-four times the limit of the targets for a chunk or metadata.
const MOST: usize = 64 << 20;

/// The system allocator with a limit per request.
pub struct Guard;

// SAFETY: every call is forwarded to the system allocator with the same arguments.
unsafe impl GlobalAlloc for Guard {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() > MOST {
            // Not a panic: unwinding allocates, and the fuzzer also keeps the input of an abort.
            std::process::abort();
        }
        // SAFETY: upheld by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: upheld by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}
