//! One Zstandard frame per part.

pub(crate) use crate::zstd::decode_into;
