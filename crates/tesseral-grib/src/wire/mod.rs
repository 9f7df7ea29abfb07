//! The sections of messages: bytes in, validated values out.

pub(crate) mod edition1;
pub(crate) mod edition2;
pub(crate) mod octets;
