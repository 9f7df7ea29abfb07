//! The first 24 bytes of a message.

use tesseral_core::{Error, Result};

/// Magic at the start of a message.
pub const MAGIC: [u8; 8] = *b"TENSOGRM";
/// Size in bytes.
pub const LEN: u64 = 24;
/// The supported wire version.
pub const VERSION: u16 = 3;

/// Flag: a metadata frame precedes the objects.
pub const HEADER_METADATA: u16 = 0x01;
/// Flag: a metadata frame follows the objects.
pub const FOOTER_METADATA: u16 = 0x02;
/// Flag: an index precedes the objects.
pub const HEADER_INDEX: u16 = 0x04;
/// Flag: an index follows the objects.
pub const FOOTER_INDEX: u16 = 0x08;
/// Flag: a hash list precedes the objects.
pub const HEADER_HASHES: u16 = 0x10;
/// Flag: a hash list follows the objects.
pub const FOOTER_HASHES: u16 = 0x20;
/// Flag: objects can have preceder metadata. Streams always set it.
pub const PRECEDER_METADATA: u16 = 0x40;
/// Flag: every frame has a hash.
pub const HASHES_PRESENT: u16 = 0x80;

/// The preamble of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preamble {
    /// Bit flags.
    pub flags: u16,
    /// Length of the message in bytes; 0 if unknown to the writer.
    pub total_length: u64,
}

impl Preamble {
    /// Parses a preamble at `offset` of `object`.
    ///
    /// # Errors
    /// `Corrupt` without the magic, `Unsupported` for another version.
    pub fn parse(bytes: &[u8], object: &str, offset: u64) -> Result<Self> {
        let Some(bytes) = bytes.first_chunk::<24>() else {
            return Err(Error::truncated("preamble", object, offset, LEN, bytes.len() as u64));
        };
        if bytes[..8] != MAGIC {
            let detail = format!("expected TENSOGRM, found {:?}", bytes[..8].escape_ascii().to_string());
            return Err(Error::corrupt("preamble", object, offset, detail));
        }
        let version = u16::from_be_bytes([bytes[8], bytes[9]]);
        if version != VERSION {
            return Err(Error::unsupported(format!("Tensogram wire version {version}")));
        }
        let mut total = [0; 8];
        total.copy_from_slice(&bytes[16..]);
        let flags = u16::from_be_bytes([bytes[10], bytes[11]]);
        Ok(Self { flags, total_length: u64::from_be_bytes(total) })
    }

    /// Appends the encoded preamble.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&VERSION.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&self.total_length.to_be_bytes());
    }
}
