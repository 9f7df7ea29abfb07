//! The last 24 bytes of a message.

/// How a message ends.
pub const MAGIC: [u8; 8] = *b"39277777";
/// Bytes of it.
pub const LEN: u64 = 24;

/// The end of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Postamble {
    /// Where the first frame after the objects begins, counted from the message's first byte; its own place if there is
    /// none.
    pub first_footer_offset: u64,
    /// Bytes of the message; 0 when its writer could not say.
    pub total_length: u64,
}

impl Postamble {
    /// Reads it; `None` without the end magic.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<24>().filter(|bytes| bytes[16..] == MAGIC)?;
        let word = |at: usize| bytes[at..].first_chunk::<8>().map_or(0, |b| u64::from_be_bytes(*b));
        Some(Self { first_footer_offset: word(0), total_length: word(8) })
    }

    /// Appends it.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.first_footer_offset.to_be_bytes());
        out.extend_from_slice(&self.total_length.to_be_bytes());
        out.extend_from_slice(&MAGIC);
    }
}
