//! What was done to the cells of an object, read from its descriptor: encoding, then filter, then compression.

use tesseral_codec::packing::Packing;
#[cfg(feature = "zfp")]
use tesseral_codec::zfp;
use tesseral_codec::{aec, blosc2, sz3, zstd};
use tesseral_core::{DType, Error, Result};

use crate::wire::cbor::{Item, Map, Place};
use crate::wire::descriptor::Descriptor;

/// How the bytes were compressed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Compression {
    None,
    /// With a level.
    Zstd(i32),
    Lz4,
    Szip(aec::Params),
    /// Elements of 0 bytes cannot be written.
    Blosc2(blosc2::Settings),
    #[cfg(feature = "zfp")]
    Zfp(zfp::Mode),
    Sz3(sz3::Bound),
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
            "zstd" => Compression::Zstd(
                optional(&descriptor.params, "zstd_level", place, |item| {
                    item.as_i64().and_then(|level| i32::try_from(level).ok())
                })?
                .unwrap_or(zstd::DEFAULT_LEVEL),
            ),
            "lz4" => Compression::Lz4,
            "szip" => Compression::Szip(szip(descriptor, packing.as_ref(), place)?),
            "blosc2" => Compression::Blosc2(blosc2(descriptor, packing.as_ref(), place)?),
            "zfp" => zfp(descriptor, place)?,
            "sz3" => Compression::Sz3(sz3(&descriptor.params, place)?),
            "rle" => bits_only(Compression::Rle)?,
            "roaring" => bits_only(Compression::Roaring)?,
            other => return Err(Error::unsupported(format!("Tensogram compression {other:?}"))),
        };
        Ok(Self { packing, shuffle, compression, coded_len })
    }

    /// The one cell that all cells equal; `None` where cells are stored.
    pub(crate) fn constant(&self) -> Option<[u8; 8]> {
        let packing = self.packing.as_ref().filter(|packing| packing.bits == 0 && self.plain())?;
        let mut cell = [0; 8];
        packing.decode_into(&[], 0, &mut cell).ok()?;
        Some(cell)
    }

    /// Runs of cells decode without all others.
    pub(crate) fn seeks(&self, dtype: DType) -> bool {
        self.shuffled_cells(dtype)
            || self.shuffle.is_none()
                && match self.compression {
                    Compression::None | Compression::Szip(_) | Compression::Blosc2(_) => true,
                    #[cfg(feature = "zfp")]
                    Compression::Zfp(mode) => mode.seeks(),
                    _ => false,
                }
    }

    /// The stored bytes are those of the cells, shuffled and nothing else.
    pub(crate) fn shuffled_cells(&self, dtype: DType) -> bool {
        self.packing.is_none()
            && self.compression == Compression::None
            && self.shuffle.is_some_and(|size| dtype.size() == Some(size))
    }

    /// The compression makes numbers of this machine, whatever the byte order says.
    pub(crate) fn native(&self, dtype: DType) -> bool {
        let numbers = match self.compression {
            #[cfg(feature = "zfp")]
            Compression::Zfp(_) => true,
            Compression::Sz3(_) => true,
            _ => false,
        };
        numbers && self.plain_doubles(dtype)
    }

    /// Doubles reach the compression as they are.
    pub(crate) fn plain_doubles(&self, dtype: DType) -> bool {
        dtype == DType::Float64 && self.packing.is_none() && self.shuffle.is_none()
    }

    /// Refuses what the reference would not read back, or not as it was.
    ///
    /// # Errors
    /// `Unsupported`.
    pub(crate) fn check_writable(&self, dtype: DType) -> Result<()> {
        let refuse = |what: String| Err(Error::unsupported(what));
        match self.compression {
            Compression::Blosc2(settings) if settings.typesize == 0 => {
                refuse("blosc2 over elements that are not whole bytes, or more than 255".to_owned())
            }
            Compression::Blosc2(_) | Compression::Sz3(_) if self.coded_len == 0 => {
                refuse("blosc2 and sz3 of nothing".to_owned())
            }
            Compression::Sz3(_) if !self.plain_doubles(dtype) => {
                refuse(format!("sz3 of anything but plain float64: {dtype} would lose bits"))
            }
            #[cfg(feature = "zfp")]
            Compression::Zfp(zfp::Mode::Accuracy(error)) if error <= 0.0 => {
                refuse("zfp with an error of 0".to_owned())
            }
            _ => Ok(()),
        }
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

/// A parameter that may be left out but not be of another kind.
fn optional<'a, T>(
    params: &'a Map,
    key: &str,
    place: Place<'_>,
    read: impl Fn(&'a Item) -> Option<T>,
) -> Result<Option<T>> {
    params.get(key).map(|item| read(item).ok_or_else(|| missing(key, place))).transpose()
}

/// Elements are packed values, shuffled bytes or cells.
fn blosc2(descriptor: &Descriptor, packing: Option<&Packing>, place: Place<'_>) -> Result<blosc2::Settings> {
    let params = &descriptor.params;
    let name = optional(params, "blosc2_codec", place, Item::as_text)?.unwrap_or("lz4");
    let codec =
        blosc2::Codec::named(name).ok_or_else(|| Error::unsupported(format!("blosc2 codec {name:?}")))?;
    let level = optional(params, "blosc2_clevel", place, Item::as_i64)?.unwrap_or(5);
    let level = u8::try_from(level).ok().filter(|level| *level <= 9);
    let level = level.ok_or_else(|| missing("blosc2_clevel", place))?;
    let size = match packing {
        Some(packing) => packing.bits.div_ceil(8) as usize,
        None if descriptor.filter == "shuffle" => 1,
        None => descriptor.dtype.size().unwrap_or(0),
    };
    let typesize = u8::try_from(size).unwrap_or(0);
    Ok(blosc2::Settings { codec, level, typesize, shuffle: blosc2::Shuffle::Byte })
}

fn text<'a>(params: &'a Map, key: &str, place: Place<'_>) -> Result<&'a str> {
    params.get(key).and_then(Item::as_text).ok_or_else(|| missing(key, place))
}

/// The reference takes whatever bytes there are for doubles; what it wrote of others is lost.
#[cfg(feature = "zfp")]
fn zfp(descriptor: &Descriptor, place: Place<'_>) -> Result<Compression> {
    let params = &descriptor.params;
    let plain = descriptor.encoding == "none" && descriptor.filter == "none";
    if descriptor.dtype != DType::Float64 || !plain {
        return Err(Error::unsupported(format!(
            "zfp of anything but plain float64: {} loses bits when written",
            descriptor.dtype
        )));
    }
    let mode = match text(params, "zfp_mode", place)? {
        "fixed_rate" => zfp::Mode::Rate(float(params, "zfp_rate", place)?),
        "fixed_precision" => zfp::Mode::Precision(small(params, "zfp_precision", place)?),
        "fixed_accuracy" => zfp::Mode::Accuracy(float(params, "zfp_tolerance", place)?),
        other => return Err(Error::unsupported(format!("zfp mode {other:?}"))),
    };
    mode.check().map(Compression::Zfp).map_err(|e| place.corrupt(e.to_string()))
}

#[cfg(not(feature = "zfp"))]
fn zfp(_descriptor: &Descriptor, _place: Place<'_>) -> Result<Compression> {
    Err(Error::unsupported("zfp, which this build does not have"))
}

fn sz3(params: &Map, place: Place<'_>) -> Result<sz3::Bound> {
    let bound = float(params, "sz3_error_bound", place)?;
    Ok(match text(params, "sz3_error_bound_mode", place)? {
        "abs" => sz3::Bound::Absolute(bound),
        "rel" => sz3::Bound::Relative(bound),
        "psnr" => sz3::Bound::Psnr(bound),
        other => return Err(Error::unsupported(format!("sz3 bound of kind {other:?}"))),
    })
}
