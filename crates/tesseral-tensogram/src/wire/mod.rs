//! The structures of a message, one file each. All numbers are big-endian. This module does no I/O.

pub mod block_hashes;
pub mod cbor;
pub(crate) mod cbor_ref;
pub mod descriptor;
pub mod frame;
pub mod index_and_hashes;
pub mod metadata;
pub mod object;
pub mod postamble;
pub mod preamble;

/// Rounds up to the next frame alignment relative to the start of the message; `None` on overflow.
pub(crate) fn align(n: u64) -> Option<u64> {
    n.checked_next_multiple_of(8)
}
