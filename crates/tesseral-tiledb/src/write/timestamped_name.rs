//! Timestamped names that sort in creation order.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use uuid::Uuid;

use crate::wire::name::DIGEST_MARK;

/// Milliseconds since 1970; monotonic within the process.
pub(crate) fn now() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let now = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
    LAST.fetch_max(now, Ordering::Relaxed).max(now)
}

/// Returns 32 hexadecimal digits. The first eight are a counter, so that names of one process and millisecond sort in creation
/// order; the following ones are random, so that names of two processes differ; the last eight announce digests.
pub(crate) fn unique(digests: bool) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let random = Uuid::new_v4().as_u128();
    // The counter starts in the lower half of its range.
    let start = u32::try_from(random >> 97).unwrap_or(0).max(1);
    let _ = NEXT.compare_exchange(0, start, Ordering::Relaxed, Ordering::Relaxed);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    match digests {
        true => format!("{count:08x}{:016x}{DIGEST_MARK}", random & u128::from(u64::MAX)),
        false => format!("{count:08x}{:024x}", random & ((1 << 96) - 1)),
    }
}

/// `__T1_T2_UUID`.
pub(crate) fn timed(start: u64, end: u64, digests: bool) -> String {
    format!("__{start}_{end}_{}", unique(digests))
}

/// `__T1_T2_UUID_VER`.
pub(crate) fn versioned(start: u64, end: u64, version: u32, digests: bool) -> String {
    format!("{}_{version}", timed(start, end, digests))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_one_millisecond_sort_in_creation_order() {
        for digests in [false, true] {
            let names: Vec<String> = (0..1000).map(|_| versioned(5, 5, 22, digests)).collect();
            assert!(names.is_sorted());
            assert!(names.iter().all(|name| crate::wire::name::parse(name).is_some()));
            assert!(names.iter().all(|name| crate::wire::name::carries_digest(name) == digests));
        }
    }
}
