//! Frames, the structures of a message between preamble and postamble.
//!
//! ```text
//! "FR" type version flags length │ body │ [cbor_offset, objects only] hash "ENDF"
//!   2    2      2     2     8    │      │             8                 8     4
//! ```

use xxhash_rust::xxh3::xxh3_64;

/// Magic at the start of a frame.
pub const MAGIC: [u8; 2] = *b"FR";
/// Magic at the end of a frame.
pub const END: [u8; 4] = *b"ENDF";
/// Size of the frame header in bytes.
pub const HEADER_LEN: u64 = 16;
/// Flag: the frame has a hash.
pub const HASH_PRESENT: u16 = 0x02;
/// Flag: the descriptor of an object follows its payload.
pub const CBOR_AFTER: u16 = 0x01;

/// Type of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// Metadata before the objects.
    HeaderMetadata,
    /// Index before the objects.
    HeaderIndex,
    /// Hashes before the objects.
    HeaderHash,
    /// Hashes after the objects.
    FooterHash,
    /// Index after the objects.
    FooterIndex,
    /// Metadata after the objects.
    FooterMetadata,
    /// Preceder metadata of the next object.
    Preceder,
    /// An object.
    Object,
}

impl FrameKind {
    /// Returns the kind of a type number; `None` for the reserved 4 and unknown numbers.
    pub fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            1 => Self::HeaderMetadata,
            2 => Self::HeaderIndex,
            3 => Self::HeaderHash,
            5 => Self::FooterHash,
            6 => Self::FooterIndex,
            7 => Self::FooterMetadata,
            8 => Self::Preceder,
            9 => Self::Object,
            _ => return None,
        })
    }

    /// The type number.
    pub fn number(self) -> u16 {
        match self {
            Self::HeaderMetadata => 1,
            Self::HeaderIndex => 2,
            Self::HeaderHash => 3,
            Self::FooterHash => 5,
            Self::FooterIndex => 6,
            Self::FooterMetadata => 7,
            Self::Preceder => 8,
            Self::Object => 9,
        }
    }

    /// Size of the frame footer in bytes.
    pub fn footer_len(self) -> u64 {
        if self == Self::Object { 20 } else { 12 }
    }

    /// Minimum length of a frame of this kind in bytes.
    pub fn min_len(self) -> u64 {
        HEADER_LEN + self.footer_len()
    }

    /// Phase of the message: 0 before the objects, 1 objects, 2 after the objects.
    pub fn phase(self) -> u8 {
        match self {
            Self::HeaderMetadata | Self::HeaderIndex | Self::HeaderHash => 0,
            Self::Preceder | Self::Object => 1,
            Self::FooterHash | Self::FooterIndex | Self::FooterMetadata => 2,
        }
    }
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    /// The type number.
    pub number: u16,
    /// Bit flags.
    pub flags: u16,
    /// Length from `FR` to `ENDF` inclusive, in bytes.
    pub len: u64,
}

impl FrameHeader {
    /// Parses a header; `None` without `FR` or with fewer than 16 bytes.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.first_chunk::<16>().filter(|bytes| bytes[..2] == MAGIC)?;
        let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let len = bytes[8..].first_chunk::<8>().map_or(0, |b| u64::from_be_bytes(*b));
        Some(Self { number: half(2), flags: half(6), len })
    }
}

/// A frame of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Type of the frame.
    pub kind: FrameKind,
    /// Bit flags.
    pub flags: u16,
    /// Offset of the frame in the file.
    pub offset: u64,
    /// Length in bytes; the frame ends inside the file.
    pub len: u64,
    /// Offset of an object's descriptor from the start of the frame.
    pub cbor_offset: u64,
    /// The stored hash.
    pub hash: u64,
}

impl Frame {
    /// Byte range covered by the hash: the body.
    pub fn body(&self) -> std::ops::Range<u64> {
        self.offset + HEADER_LEN..self.offset + self.len - self.kind.footer_len()
    }

    /// End of the frame in the file, without padding.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Returns the expected hash of the body, if it has one. Writers before 0.21 set only the flag of the preamble.
    pub fn expected_hash(&self, message_flags: u16) -> Option<u64> {
        let hashed = self.flags & HASH_PRESENT != 0 || message_flags & super::preamble::HASHES_PRESENT != 0;
        hashed.then_some(self.hash)
    }
}

/// Appends a CBOR frame with padding; `out` contains the message so far.
pub fn write(kind: FrameKind, body: &[u8], hashed: bool, out: &mut Vec<u8>) {
    let (flags, hash) = if hashed { (HASH_PRESENT, xxh3_64(body)) } else { (0, 0) };
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&kind.number().to_be_bytes());
    out.extend_from_slice(&1_u16.to_be_bytes());
    out.extend_from_slice(&flags.to_be_bytes());
    out.extend_from_slice(&(body.len() as u64 + kind.min_len()).to_be_bytes());
    out.extend_from_slice(body);
    out.extend_from_slice(&hash.to_be_bytes());
    out.extend_from_slice(&END);
    out.resize(out.len().next_multiple_of(8), 0);
}
