//! The last 24 bytes of a message.

/// Magic at the end of a message.
pub const MAGIC: [u8; 8] = *b"39277777";
/// Size in bytes.
pub const LEN: u64 = 24;

/// The postamble of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Postamble {
    /// Offset of the first frame after the objects from the start of the message; offset of the postamble if there is none.
    pub first_footer_offset: u64,
    /// Length of the message in bytes; 0 if unknown to the writer.
    pub total_length: u64,
}

impl Postamble {
    /// Parses a postamble; `None` without the end magic.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<24>().filter(|bytes| bytes[16..] == MAGIC)?;
        let word = |at: usize| bytes[at..].first_chunk::<8>().map_or(0, |b| u64::from_be_bytes(*b));
        Some(Self { first_footer_offset: word(0), total_length: word(8) })
    }

    /// Appends the encoded postamble.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.first_footer_offset.to_be_bytes());
        out.extend_from_slice(&self.total_length.to_be_bytes());
        out.extend_from_slice(&MAGIC);
    }
}
