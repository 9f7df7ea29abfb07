//! One Zstandard frame per part.

pub(crate) use crate::zstd::decode_into;

/// Appends a frame.
pub(crate) fn encode(
    src: &[u8],
    level: i32,
    out: &mut Vec<u8>,
    contexts: &mut crate::Contexts,
) -> tesseral_core::Result<()> {
    let level = if level == super::DEFAULT_LEVEL { crate::zstd::DEFAULT_LEVEL } else { level };
    crate::zstd::encode(src, level, out, contexts)
}
