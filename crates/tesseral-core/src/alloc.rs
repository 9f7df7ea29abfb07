//! Fallible allocation: for every size that is read from a file.
//!
//! `Vec::with_capacity`, `Vec::resize` and `vec![x; n]` end the process when memory runs out. A size that untrusted input
//! decides must fail with [`Limit`](crate::ErrorKind::Limit) instead. Whether the size is acceptable at all is decided before, by
//! [`Limits`](crate::Limits); these functions make the allocation itself fallible.

use crate::{Error, Result};

/// Allocates `len` elements of zero bits. Pages that are never written cost no memory.
///
/// # Errors
/// `Limit` when the memory is not available.
pub fn zeroed<T: bytemuck::Zeroable + Clone>(what: &'static str, len: usize) -> Result<Vec<T>> {
    // The probe fails if the allocation would; only the allocation by `vec!` is zeroed lazily.
    drop(with_capacity::<T>(what, len)?);
    #[allow(clippy::disallowed_macros, reason = "the probe above has just been granted this size")]
    Ok(vec![T::zeroed(); len])
}

/// Allocates `len` copies of a value.
///
/// # Errors
/// `Limit` when the memory is not available.
pub fn filled<T: Clone>(what: &'static str, value: T, len: usize) -> Result<Vec<T>> {
    let mut out = with_capacity(what, len)?;
    out.resize(len, value);
    Ok(out)
}

/// Allocates an empty vector with capacity for `len` elements.
///
/// # Errors
/// `Limit` when the memory is not available.
pub fn with_capacity<T>(what: &'static str, len: usize) -> Result<Vec<T>> {
    let mut out = Vec::new();
    out.try_reserve_exact(len).map_err(|_| unavailable::<T>(what, len))?;
    Ok(out)
}

/// Resizes a vector to `len` elements; new ones are copies of `value`.
///
/// # Errors
/// `Limit` when the memory is not available.
pub fn resize<T: Clone>(what: &'static str, vec: &mut Vec<T>, len: usize, value: T) -> Result<()> {
    let more = len.saturating_sub(vec.len());
    vec.try_reserve(more).map_err(|_| unavailable::<T>(what, len))?;
    vec.resize(len, value);
    Ok(())
}

/// Reserves capacity for `more` additional elements.
///
/// # Errors
/// `Limit` when the memory is not available.
pub fn reserve<T>(what: &'static str, vec: &mut Vec<T>, more: usize) -> Result<()> {
    vec.try_reserve(more).map_err(|_| unavailable::<T>(what, vec.len().saturating_add(more)))
}

/// Returns the first `len` bytes of a reusable buffer that only grows. Their content is unspecified.
///
/// # Errors
/// `Limit` when the memory is not available.
pub fn scratch<'a>(what: &'static str, buffer: &'a mut Vec<u8>, len: usize) -> Result<&'a mut [u8]> {
    if buffer.len() < len {
        // A new buffer is zeroed lazily, and the old content is not copied.
        *buffer = Vec::new();
        *buffer = zeroed(what, len)?;
    }
    Ok(&mut buffer[..len])
}

fn unavailable<T>(what: &'static str, len: usize) -> Error {
    let bytes = (len as u64).saturating_mul(size_of::<T>() as u64);
    Error::limit(what, bytes, isize::MAX as u64).hint("this much memory is not available")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    fn is_limit<T: std::fmt::Debug>(result: Result<T>) -> bool {
        matches!(result.unwrap_err().kind(), ErrorKind::Limit { what, .. } if what == "cells")
    }

    /// Sizes that no machine has fail with an error, not by ending the process.
    #[test]
    fn sizes_beyond_memory_are_limits() {
        for len in [usize::MAX, isize::MAX as usize, 1 << 60] {
            assert!(is_limit(zeroed::<u8>("cells", len)));
            assert!(is_limit(filled("cells", 1_u64, len)));
            assert!(is_limit(with_capacity::<u16>("cells", len)));
            let mut kept = vec![1_u8, 2];
            assert!(is_limit(resize("cells", &mut kept, len, 0)));
            assert!(is_limit(reserve("cells", &mut kept, len)));
            assert_eq!(kept, [1, 2]);
            assert!(is_limit(scratch("cells", &mut kept, len).map(|_| ())));
        }
    }

    #[test]
    fn sizes_that_fit_are_allocated() {
        assert_eq!(zeroed::<u32>("cells", 3).unwrap(), [0; 3]);
        assert_eq!(filled("cells", 7_u8, 2).unwrap(), [7, 7]);
        let mut vec = vec![1, 2, 3];
        resize("cells", &mut vec, 5, 9).unwrap();
        assert_eq!(vec, [1, 2, 3, 9, 9]);
        resize("cells", &mut vec, 1, 9).unwrap();
        assert_eq!(vec, [1]);
        let mut buffer = vec![4; 8];
        assert_eq!(scratch("cells", &mut buffer, 2).unwrap(), [4, 4]);
        assert_eq!(scratch("cells", &mut buffer, 9).unwrap().len(), 9);
    }
}
