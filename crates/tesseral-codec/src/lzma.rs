//! LZMA streams in the containers xz and lzma ("alone"), and LZMA2 without a container. Decoding only.

use std::io::{Read, Result as IoResult};

use lzma_rust2::{Lzma2Reader, LzmaReader, XzReader};
use tesseral_core::{Error, Result};

use crate::stream::{self, Admit};

/// Memory of a decoder: a dictionary of 64 MiB, that of the strongest preset of xz, and its tables.
const MAX_MEMORY_KIB: u32 = 72 << 10;

/// The container of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LzmaContainer {
    /// `.xz`, with checksums.
    Xz,
    /// `.lzma`, the older one.
    Alone,
    /// Either, recognized by its first bytes.
    Auto,
    /// No container: LZMA2 with the properties that a container would declare.
    Raw {
        /// Bytes of the dictionary.
        dictionary: u32,
        /// Distance of the bytes whose differences are stored.
        delta: Option<u16>,
    },
}

enum LzmaDecoder<'a> {
    Xz(XzReader<&'a [u8]>),
    Alone(LzmaReader<&'a [u8]>),
    Raw(Lzma2Reader<&'a [u8]>),
}

impl<'a> LzmaDecoder<'a> {
    fn new(src: &'a [u8], container: LzmaContainer) -> Result<Self> {
        let xz = match container {
            LzmaContainer::Xz => true,
            LzmaContainer::Alone => false,
            LzmaContainer::Auto => src.starts_with(b"\xfd7zXZ\0"),
            LzmaContainer::Raw { dictionary, .. } => {
                let reader = Lzma2Reader::new_mem_limit(src, dictionary, MAX_MEMORY_KIB, None);
                return reader.map(Self::Raw).map_err(|e| Error::codec("lzma", e));
            }
        };
        if xz {
            return Ok(Self::Xz(XzReader::new_mem_limit(src, true, MAX_MEMORY_KIB)));
        }
        let reader = LzmaReader::new_mem_limit(src, MAX_MEMORY_KIB, None);
        reader.map(Self::Alone).map_err(|e| Error::codec("lzma", e))
    }
}

impl Read for LzmaDecoder<'_> {
    fn read(&mut self, out: &mut [u8]) -> IoResult<usize> {
        match self {
            Self::Xz(reader) => reader.read(out),
            Self::Alone(reader) => reader.read(out),
            Self::Raw(reader) => reader.read(out),
        }
    }
}

/// Decodes streams whose output fills `dst` exactly.
///
/// # Errors
/// `Codec` when a stream is damaged, needs more than 72 MiB of memory, or has an output of another length.
pub fn decode_into(src: &[u8], container: LzmaContainer, dst: &mut [u8]) -> Result<()> {
    stream::fill("lzma", &mut LzmaDecoder::new(src, container)?, dst)?;
    undo_delta(container, dst);
    Ok(())
}

/// Appends the output of streams of unknown length to `out`.
///
/// # Errors
/// As [`decode_into`]; errors of `admit`.
pub fn decode_growing(
    src: &[u8],
    container: LzmaContainer,
    out: &mut Vec<u8>,
    admit: Admit<'_>,
) -> Result<()> {
    let start = out.len();
    stream::grow("lzma", &mut LzmaDecoder::new(src, container)?, out, admit)?;
    undo_delta(container, out.get_mut(start..).unwrap_or_default());
    Ok(())
}

/// Sums differences of bytes.
fn undo_delta(container: LzmaContainer, bytes: &mut [u8]) {
    let LzmaContainer::Raw { delta: Some(distance), .. } = container else { return };
    let distance = usize::from(distance).max(1);
    for at in distance..bytes.len() {
        bytes[at] = bytes[at].wrapping_add(bytes[at - distance]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 200 bytes `i % 7` as Python's `lzma.compress` writes them.
    const XZ: &[u8] = &[
        253, 55, 122, 88, 90, 0, 0, 4, 230, 214, 180, 70, 2, 0, 33, 1, 22, 0, 0, 0, 116, 47, 229, 163, 224,
        0, 199, 0, 13, 93, 0, 0, 0, 82, 80, 10, 132, 249, 177, 126, 96, 248, 32, 0, 0, 0, 0, 0, 60, 230, 29,
        115, 142, 172, 64, 21, 0, 1, 41, 200, 1, 0, 0, 0, 92, 68, 47, 130, 177, 196, 103, 251, 2, 0, 0, 0, 0,
        4, 89, 90,
    ];
    const ALONE: &[u8] = &[
        93, 0, 0, 128, 0, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 82, 80, 10, 132, 249, 177, 126,
        98, 231, 19, 35, 255, 255, 23, 76, 0, 0,
    ];

    #[test]
    fn both_containers_decode_and_damage_is_rejected() {
        let cells: Vec<u8> = (0..200_u8).map(|i| i % 7).collect();
        for (src, container) in [(XZ, LzmaContainer::Xz), (ALONE, LzmaContainer::Alone)] {
            for container in [container, LzmaContainer::Auto] {
                let mut out = vec![0; 200];
                decode_into(src, container, &mut out).unwrap();
                assert_eq!(out, cells);
                let mut grown = Vec::new();
                decode_growing(src, container, &mut grown, &|_| Ok(())).unwrap();
                assert_eq!(grown, cells);
            }
            for len in 0..src.len() {
                let mut out = vec![0; 200];
                assert!(decode_into(&src[..len], container, &mut out).is_err(), "{len}");
            }
            for bit in 0..src.len() * 8 {
                let mut damaged = src.to_vec();
                damaged[bit / 8] ^= 1 << (bit % 8);
                let _ = decode_into(&damaged, container, &mut [0; 200]);
                let _ = decode_growing(&damaged, LzmaContainer::Auto, &mut Vec::new(), &|len| match len {
                    ..1_000_000 => Ok(()),
                    _ => Err(Error::limit("decoded bytes", len, 1_000_000)),
                });
            }
            for len in [0, 199, 201] {
                assert!(decode_into(src, container, &mut vec![0; len]).is_err(), "{len}");
            }
        }
    }

    #[test]
    fn dictionaries_of_gigabytes_are_not_allocated() {
        let mut huge = ALONE.to_vec();
        huge[1..5].copy_from_slice(&0xf000_0000_u32.to_le_bytes());
        assert!(decode_into(&huge, LzmaContainer::Alone, &mut [0; 200]).is_err());
    }
}
