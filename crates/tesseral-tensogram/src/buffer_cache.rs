//! Per-thread reuse of payload buffers: allocating memory costs more than packing cells into it.

use std::cell::RefCell;

/// Larger buffers are not retained.
const MAX_BYTES: usize = 64 << 20;

thread_local! {
    static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Returns an empty buffer with capacity for about `len` bytes.
pub(crate) fn acquire(len: usize) -> Vec<u8> {
    SPARE.with_borrow_mut(|spare| if spare.capacity() <= len { std::mem::take(spare) } else { Vec::new() })
}

/// Retains a buffer, unless a larger one is retained or it exceeds the limit.
pub(crate) fn release(mut buffer: Vec<u8>) {
    buffer.clear();
    SPARE.with_borrow_mut(|spare| {
        if (spare.capacity()..=MAX_BYTES).contains(&buffer.capacity()) {
            *spare = buffer;
        }
    });
}
