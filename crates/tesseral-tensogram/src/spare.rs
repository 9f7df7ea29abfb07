//! Memory of a payload that was handed on, kept for the next one: new memory costs more than packing cells into it.

use std::cell::RefCell;

/// More than this is not kept.
const MOST: usize = 64 << 20;

thread_local! {
    static SPARE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// An empty buffer for something of at most `len` bytes.
pub(crate) fn take(len: usize) -> Vec<u8> {
    SPARE.with_borrow_mut(|spare| if spare.capacity() <= len { std::mem::take(spare) } else { Vec::new() })
}

/// Keeps a buffer, unless a larger one is kept or it is very large.
pub(crate) fn give(mut buffer: Vec<u8>) {
    buffer.clear();
    SPARE.with_borrow_mut(|spare| {
        if (spare.capacity()..=MOST).contains(&buffer.capacity()) {
            *spare = buffer;
        }
    });
}
