//! The structures of a message, one file each. Nothing here opens anything; all numbers are big-endian.

pub mod cbor;
pub mod descriptor;
pub mod frame;
pub mod lists;
pub mod metadata;
pub mod object;
pub(crate) mod part;
pub mod postamble;
pub mod preamble;

/// Rounds up to the next place where a frame may begin, counted from the message's first byte; `None` beyond `u64`.
pub(crate) fn align(n: u64) -> Option<u64> {
    n.checked_next_multiple_of(8)
}
