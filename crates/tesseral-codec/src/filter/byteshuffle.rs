//! Byte shuffle: the first bytes of all elements, then the second bytes, and so on.
//!
//! Header `u32 parts`, then one `u32` length per part. Each part is shuffled separately; bytes after its last complete
//! element are copied.

use tesseral_core::Result;

use super::header::{put_len, reverse_parts};
use super::{FilterBuffers, FilterElement};

pub(crate) fn reverse(
    word: FilterElement,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
    cap: usize,
) -> Result<()> {
    reverse_parts("byteshuffle", meta, data, out, cap, |part, target| {
        let (whole, rest) = part.split_at(part.len() / word.size * word.size);
        crate::shuffle::decode_into(whole, word.size, &mut target[..whole.len()])?;
        target[whole.len()..].copy_from_slice(rest);
        Ok(())
    })
}

/// Shuffles the data as a single part.
pub(crate) fn forward(word: FilterElement, meta: &[u8], data: &[u8], out: &mut FilterBuffers) -> Result<()> {
    put_len("byteshuffle", 1, &mut out.meta)?;
    put_len("byteshuffle", data.len(), &mut out.meta)?;
    out.meta.extend_from_slice(meta);
    out.data.extend_from_slice(data);
    let whole = data.len() / word.size * word.size;
    crate::shuffle::encode_into(&data[..whole], word.size, &mut out.data[..whole])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_bytes_are_copied() {
        let (meta, mut out) = ([1, 0, 0, 0, 7, 0, 0, 0], FilterBuffers::default());
        let word = FilterElement::new(2, crate::filter::ElementKind::Unsigned);
        reverse(word, &meta, &[1, 3, 5, 2, 4, 6, 9], &mut out, 7).unwrap();
        assert_eq!(out.data, [1, 2, 3, 4, 5, 6, 9]);
    }
}
