//! The stages of an object's descriptor: encoding, then filter, then compression.

use tesseral_codec::packing::SimplePacking;
#[cfg(feature = "zfp")]
use tesseral_codec::zfp;
use tesseral_codec::{aec, blosc2, sz3, zstd};
use tesseral_core::{DType, Error, Result};

use crate::wire::cbor::{CborItem, ErrorLocation, Map};
use crate::wire::descriptor::Descriptor;

/// Compression of the encoded bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Compression {
    None,
    /// With the level used for writing.
    Zstd(i32),
    Lz4,
    Szip(aec::Params),
    /// `element` is the element size in bytes; 0 is not allowed for writing.
    Blosc2(blosc2::FrameSettings),
    #[cfg(feature = "zfp")]
    Zfp(zfp::Mode),
    Sz3(sz3::Bound),
    Rle,
    Roaring,
}

/// The stages of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ObjectPipeline {
    pub packing: Option<SimplePacking>,
    /// Element size of the shuffle in bytes.
    pub shuffle: Option<usize>,
    pub compression: Compression,
    /// Size before compression in bytes.
    pub coded_len: u64,
}

impl ObjectPipeline {
    /// Parses the stages of a descriptor.
    ///
    /// # Errors
    /// `Unsupported` for unknown codecs and for combinations that lose bits when written; `Corrupt` for missing or invalid
    /// parameters.
    pub(crate) fn from_descriptor(descriptor: &Descriptor, place: ErrorLocation<'_>) -> Result<Self> {
        let overflow = || place.corrupt(format!("shape {:?} has too many cells", descriptor.shape));
        let cells = descriptor.cells().ok_or_else(overflow)?;
        let raw_len = descriptor.raw_len().ok_or_else(overflow)?;
        let packing = match descriptor.encoding.as_str() {
            "none" => None,
            "simple_packing" => Some(packing(descriptor, place)?),
            other => return Err(Error::unsupported(format!("Tensogram encoding {other:?}"))),
        };
        let coded_len = match packing {
            Some(packing) => SimplePacking::packed_len(packing.bits, cells).ok_or_else(overflow)?,
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

    /// Returns the value of all cells of a constant object; `None` if cells are stored.
    pub(crate) fn constant(&self) -> Option<[u8; 8]> {
        let packing = self.packing.as_ref().filter(|packing| packing.bits == 0 && self.plain())?;
        let mut cell = [0; 8];
        packing.decode_into(&[], 0, &mut cell).ok()?;
        Some(cell)
    }

    /// Returns whether ranges of cells can be decoded independently.
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

    /// Returns whether the cells are only compressed, by a codec whose output can be divided into frames.
    pub(crate) fn framed(&self) -> bool {
        self.packing.is_none() && self.shuffle.is_none() && matches!(self.compression, Compression::Zstd(_))
    }

    /// Returns whether the stored bytes are the cells, shuffled only.
    pub(crate) fn shuffled_cells(&self, dtype: DType) -> bool {
        self.packing.is_none()
            && self.compression == Compression::None
            && self.shuffle.is_some_and(|size| dtype.size() == Some(size))
    }

    /// Returns whether the decompressor produces native byte order regardless of the descriptor.
    pub(crate) fn native(&self, dtype: DType) -> bool {
        let numbers = match self.compression {
            #[cfg(feature = "zfp")]
            Compression::Zfp(_) => true,
            Compression::Sz3(_) => true,
            _ => false,
        };
        numbers && self.plain_doubles(dtype)
    }

    /// Returns whether unencoded float64 cells are passed to the compressor.
    pub(crate) fn plain_doubles(&self, dtype: DType) -> bool {
        dtype == DType::Float64 && self.packing.is_none() && self.shuffle.is_none()
    }

    /// Rejects combinations that the reference cannot read back exactly.
    ///
    /// # Errors
    /// `Unsupported`.
    pub(crate) fn check_writable(&self, dtype: DType) -> Result<()> {
        let refuse = |what: String| Err(Error::unsupported(what));
        match self.compression {
            Compression::Blosc2(settings) if settings.typesize == 0 => refuse(
                "blosc2 with an element size that is not a multiple of 8 bits or exceeds 255 bytes"
                    .to_owned(),
            ),
            Compression::Blosc2(_) | Compression::Sz3(_) if self.coded_len == 0 => {
                refuse("blosc2 and sz3 of empty arrays".to_owned())
            }
            Compression::Sz3(_) if !self.plain_doubles(dtype) => {
                refuse(format!("sz3 of data other than unencoded float64: {dtype} would lose bits"))
            }
            #[cfg(feature = "zfp")]
            Compression::Zfp(zfp::Mode::Accuracy(error)) if error <= 0.0 => {
                refuse("zfp with a tolerance of 0".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns whether the stored bytes are uncompressed cells or packed values.
    pub(crate) fn plain(&self) -> bool {
        self.shuffle.is_none() && self.compression == Compression::None
    }
}

fn missing(key: &str, place: ErrorLocation<'_>) -> Error {
    place.corrupt(format!("{key} is missing or has the wrong type"))
}

fn uint(params: &Map, key: &str, place: ErrorLocation<'_>) -> Result<u64> {
    params.get(key).and_then(CborItem::as_u64).ok_or_else(|| missing(key, place))
}

fn small<T: TryFrom<i64>>(params: &Map, key: &str, place: ErrorLocation<'_>) -> Result<T> {
    let number = params.get(key).and_then(CborItem::as_i64).and_then(|n| T::try_from(n).ok());
    number.ok_or_else(|| missing(key, place))
}

/// Returns a float. Integers that are exactly representable as a float are accepted.
fn float(params: &Map, key: &str, place: ErrorLocation<'_>) -> Result<f64> {
    let exact = |n: &i64| n.unsigned_abs() <= 1 << 53;
    match params.get(key) {
        Some(CborItem::Float(value)) => Ok(*value),
        Some(item) => item.as_i64().filter(exact).map(|n| n as f64).ok_or_else(|| missing(key, place)),
        None => Err(missing(key, place)),
    }
}

fn packing(descriptor: &Descriptor, place: ErrorLocation<'_>) -> Result<SimplePacking> {
    if descriptor.dtype != DType::Float64 {
        return Err(place.corrupt(format!("simple_packing of {}", descriptor.dtype)));
    }
    let params = &descriptor.params;
    let reference = float(params, "sp_reference_value", place)?;
    let binary = small(params, "sp_binary_scale_factor", place)?;
    let decimal = small(params, "sp_decimal_scale_factor", place)?;
    let bits = small(params, "sp_bits_per_value", place)?;
    SimplePacking::new(reference, binary, decimal, bits).map_err(|e| place.corrupt(e.to_string()))
}

/// Samples are packed values, shuffled bytes or cells. The width of packed values must be a multiple of 8: the reference splits
/// others at byte boundaries and loses bits.
fn szip(
    descriptor: &Descriptor,
    packing: Option<&SimplePacking>,
    place: ErrorLocation<'_>,
) -> Result<aec::Params> {
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
        return Err(Error::unsupported(format!("szip over values of {bits} bits")));
    }
    let (block, rsi) = (small(params, "szip_block_size", place)?, small(params, "szip_rsi", place)?);
    aec::Params::new(bits, block, rsi, flags).map_err(|e| match e.kind() {
        tesseral_core::ErrorKind::Unsupported { .. } => e,
        _ => place.corrupt(e.to_string()),
    })
}

/// Returns an optional parameter; fails if it has the wrong type.
fn optional<'a, T>(
    params: &'a Map,
    key: &str,
    place: ErrorLocation<'_>,
    read: impl Fn(&'a CborItem) -> Option<T>,
) -> Result<Option<T>> {
    params.get(key).map(|item| read(item).ok_or_else(|| missing(key, place))).transpose()
}

/// Elements are packed values, shuffled bytes or cells.
fn blosc2(
    descriptor: &Descriptor,
    packing: Option<&SimplePacking>,
    place: ErrorLocation<'_>,
) -> Result<blosc2::FrameSettings> {
    let params = &descriptor.params;
    let name = optional(params, "blosc2_codec", place, CborItem::as_text)?.unwrap_or("lz4");
    let codec =
        blosc2::Codec::named(name).ok_or_else(|| Error::unsupported(format!("blosc2 codec {name:?}")))?;
    let level = optional(params, "blosc2_clevel", place, CborItem::as_i64)?.unwrap_or(5);
    let level = u8::try_from(level).ok().filter(|level| *level <= 9);
    let level = level.ok_or_else(|| missing("blosc2_clevel", place))?;
    let size = match packing {
        Some(packing) => packing.bits.div_ceil(8) as usize,
        None if descriptor.filter == "shuffle" => 1,
        None => descriptor.dtype.size().unwrap_or(0),
    };
    let typesize = u8::try_from(size).unwrap_or(0);
    Ok(blosc2::FrameSettings { codec, level, typesize, shuffle: blosc2::Shuffle::Byte })
}

fn text<'a>(params: &'a Map, key: &str, place: ErrorLocation<'_>) -> Result<&'a str> {
    params.get(key).and_then(CborItem::as_text).ok_or_else(|| missing(key, place))
}

/// The reference interprets all bytes as float64; other data is lost when written.
#[cfg(feature = "zfp")]
fn zfp(descriptor: &Descriptor, place: ErrorLocation<'_>) -> Result<Compression> {
    let params = &descriptor.params;
    let plain = descriptor.encoding == "none" && descriptor.filter == "none";
    if descriptor.dtype != DType::Float64 || !plain {
        return Err(Error::unsupported(format!(
            "zfp of data other than unencoded float64 ({})",
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
fn zfp(_descriptor: &Descriptor, _place: ErrorLocation<'_>) -> Result<Compression> {
    Err(Error::unsupported("zfp (not enabled in this build)"))
}

fn sz3(params: &Map, place: ErrorLocation<'_>) -> Result<sz3::Bound> {
    let bound = float(params, "sz3_error_bound", place)?;
    Ok(match text(params, "sz3_error_bound_mode", place)? {
        "abs" => sz3::Bound::Absolute(bound),
        "rel" => sz3::Bound::Relative(bound),
        "psnr" => sz3::Bound::Psnr(bound),
        other => return Err(Error::unsupported(format!("sz3 error bound mode {other:?}"))),
    })
}
