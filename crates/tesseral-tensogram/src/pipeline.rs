//! What was done to the cells of an object, read from its descriptor: encoding, then filter, then compression.

use tesseral_codec::aec;
use tesseral_codec::packing::Packing;
use tesseral_core::{DType, Error, Result};

use crate::wire::cbor::{Item, Map, Place};
use crate::wire::descriptor::Descriptor;

/// How the bytes were compressed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Compression {
    None,
    Zstd,
    Lz4,
    Szip(aec::Params),
    Rle,
    Roaring,
}

/// What was done to the cells.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pipeline {
    pub packing: Option<Packing>,
    /// Bytes of the elements that were shuffled.
    pub shuffle: Option<usize>,
    pub compression: Compression,
    /// Bytes before compression.
    pub coded_len: u64,
}

impl Pipeline {
    /// The stages of an object.
    ///
    /// # Errors
    /// `Unsupported` for codecs that are not there and combinations that lost bits when they were written; `Corrupt` for
    /// parameters that are missing or wrong.
    pub(crate) fn of(descriptor: &Descriptor, place: Place<'_>) -> Result<Self> {
        let overflow = || place.corrupt(format!("shape {:?} has too many cells", descriptor.shape));
        let cells = descriptor.cells().ok_or_else(overflow)?;
        let raw_len = descriptor.raw_len().ok_or_else(overflow)?;
        let packing = match descriptor.encoding.as_str() {
            "none" => None,
            "simple_packing" => Some(packing(descriptor, place)?),
            other => return Err(Error::unsupported(format!("Tensogram encoding {other:?}"))),
        };
        let coded_len = match packing {
            Some(packing) => Packing::packed_len(packing.bits, cells).ok_or_else(overflow)?,
            None => raw_len,
        };
        let shuffle = match descriptor.filter.as_str() {
            "none" => None,
            "shuffle" => {
                let size = uint(&descriptor.params, "shuffle_element_size", place)?;
                Some(
                    usize::try_from(size)
                        .ok()
                        .filter(|n| *n > 0)
                        .ok_or_else(|| place.corrupt("shuffle_element_size is 0"))?,
                )
            }
            other => return Err(Error::unsupported(format!("Tensogram filter {other:?}"))),
        };
        let bits_only = |compression| match descriptor.dtype {
            DType::Bitmask => Ok(compression),
            dtype => Err(place.corrupt(format!("{} of {dtype}", descriptor.compression))),
        };
        let compression = match descriptor.compression.as_str() {
            "none" => Compression::None,
            "zstd" => Compression::Zstd,
            "lz4" => Compression::Lz4,
            "szip" => Compression::Szip(szip(descriptor, packing.as_ref(), place)?),
            "rle" => bits_only(Compression::Rle)?,
            "roaring" => bits_only(Compression::Roaring)?,
            other => return Err(Error::unsupported(format!("Tensogram compression {other:?}"))),
        };
        Ok(Self { packing, shuffle, compression, coded_len })
    }

    /// The stored bytes are the cells, or packed values, as they are.
    pub(crate) fn plain(&self) -> bool {
        self.shuffle.is_none() && self.compression == Compression::None
    }
}

fn missing(key: &str, place: Place<'_>) -> Error {
    place.corrupt(format!("{key} is missing or of another kind"))
}

fn uint(params: &Map, key: &str, place: Place<'_>) -> Result<u64> {
    params.get(key).and_then(Item::as_u64).ok_or_else(|| missing(key, place))
}

fn small<T: TryFrom<i64>>(params: &Map, key: &str, place: Place<'_>) -> Result<T> {
    let number = params.get(key).and_then(Item::as_i64).and_then(|n| T::try_from(n).ok());
    number.ok_or_else(|| missing(key, place))
}

/// A float, which writers may have stored as an integer that a float holds exactly.
fn float(params: &Map, key: &str, place: Place<'_>) -> Result<f64> {
    let exact = |n: &i64| n.unsigned_abs() <= 1 << 53;
    match params.get(key) {
        Some(Item::Float(value)) => Ok(*value),
        Some(item) => item.as_i64().filter(exact).map(|n| n as f64).ok_or_else(|| missing(key, place)),
        None => Err(missing(key, place)),
    }
}

fn packing(descriptor: &Descriptor, place: Place<'_>) -> Result<Packing> {
    if descriptor.dtype != DType::Float64 {
        return Err(place.corrupt(format!("simple_packing of {}", descriptor.dtype)));
    }
    let params = &descriptor.params;
    let reference = float(params, "sp_reference_value", place)?;
    let binary = small(params, "sp_binary_scale_factor", place)?;
    let decimal = small(params, "sp_decimal_scale_factor", place)?;
    let bits = small(params, "sp_bits_per_value", place)?;
    Packing::new(reference, binary, decimal, bits).map_err(|e| place.corrupt(e.to_string()))
}

/// Samples are packed values, shuffled bytes or cells. Packed values must end with bytes: the reference takes others apart
/// at byte boundaries and drops what does not fit a sample, so what it wrote is not what it was given.
fn szip(descriptor: &Descriptor, packing: Option<&Packing>, place: Place<'_>) -> Result<aec::Params> {
    let params = &descriptor.params;
    let mut flags: u32 = small(params, "szip_flags", place)?;
    let bits = match packing {
        Some(packing) => {
            flags |= aec::MSB;
            packing.bits
        }
        None if descriptor.filter == "shuffle" => 8,
        None => descriptor.dtype.size().map_or(0, |size| size * 8) as u32,
    };
    if (17..=24).contains(&bits) {
        flags |= aec::THREE_BYTE;
    }
    if bits % 8 != 0 {
        return Err(Error::unsupported(format!(
            "szip over values of {bits} bits, which loses bits when written"
        )));
    }
    let (block, rsi) = (small(params, "szip_block_size", place)?, small(params, "szip_rsi", place)?);
    aec::Params::new(bits, block, rsi, flags).map_err(|e| match e.kind() {
        tesseral_core::ErrorKind::Unsupported { .. } => e,
        _ => place.corrupt(e.to_string()),
    })
}
