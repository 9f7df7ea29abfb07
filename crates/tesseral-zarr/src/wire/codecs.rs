//! Codecs: the `filters` and `compressor` of v2, the `codecs` of v3.
//!
//! | codec | v2 | v3 |
//! |---|---|---|
//! | byte order, order of cells | `dtype`, `order` | `bytes`, `transpose` |
//! | variable-length cells | `vlen-utf8`, `vlen-bytes` | the same |
//! | shards | – | `sharding_indexed` |
//! | compressors | `zstd` `gzip` `zlib` `bz2` `lz4` `lzma` `blosc` | `zstd` `gzip` `blosc`, `numcodecs.NAME` |
//! | filters | `delta` `fixedscaleoffset` `shuffle` `bitround` `quantize` `astype` `packbits` | `numcodecs.NAME` |
//! | checksums | `crc32` `adler32` `crc32c` | `crc32c`, `numcodecs.NAME` |

use serde_json::{Map, Value as Json};
use smallvec::SmallVec;
use tesseral_codec::checksum::{Checksum, ChecksumPosition};
use tesseral_codec::lzma::LzmaContainer;
use tesseral_core::dtype::Class;
use tesseral_core::{CellLen, Coords, DType, Error, Result, numpy};

use super::damaged;
use super::dtype::{StoredCell, ZarrCellType, named, parse_v2};
use super::json::shown;
use super::shard::IndexLayout;

/// A number type in a codec's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NumberType {
    /// The dtype: an integer or float.
    pub dtype: DType,
    /// Whether it is stored big-endian.
    pub big: bool,
}

/// A compressor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Compressor {
    Zstd,
    Gzip,
    Zlib,
    Bzip2,
    /// One LZ4 block after its length.
    Lz4,
    /// A stream of LZMA in this container.
    Lzma(LzmaContainer),
    Blosc,
}

/// One step of encoding; bytes to bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Stage {
    /// Axis `i` of the encoded chunk is axis `order[i]` of the chunk.
    Transpose(SmallVec<[usize; 8]>),
    /// Machine numbers of this many bytes are stored big-endian.
    Swap(usize),
    /// Differences of adjacent numbers.
    Delta {
        /// Decoded numbers.
        from: NumberType,
        /// Encoded numbers.
        to: NumberType,
    },
    /// `round((x - offset) * scale)`.
    FixedScaleOffset {
        /// Decoded numbers.
        from: NumberType,
        /// Encoded numbers.
        to: NumberType,
        /// Added on decoding.
        offset: f64,
        /// Divided by on decoding.
        scale: f64,
    },
    /// Conversion to another number type.
    AsType {
        /// Decoded numbers.
        from: NumberType,
        /// Encoded numbers.
        to: NumberType,
    },
    /// Eight bools per byte, after the number of unused bits.
    PackBits,
    /// Byte shuffle of elements of this size.
    Shuffle(usize),
    /// A compressor.
    Compress(Compressor),
    /// A checksum.
    Check(Checksum, ChecksumPosition),
}

impl Stage {
    /// Name for display.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Transpose(_) => "transpose",
            Self::Swap(_) => "big_endian",
            Self::Delta { .. } => "delta",
            Self::FixedScaleOffset { .. } => "fixedscaleoffset",
            Self::AsType { .. } => "astype",
            Self::PackBits => "packbits",
            Self::Shuffle(_) => "shuffle",
            Self::Compress(Compressor::Zstd) => "zstd",
            Self::Compress(Compressor::Gzip) => "gzip",
            Self::Compress(Compressor::Zlib) => "zlib",
            Self::Compress(Compressor::Bzip2) => "bz2",
            Self::Compress(Compressor::Lz4) => "lz4",
            Self::Compress(Compressor::Lzma(_)) => "lzma",
            Self::Compress(Compressor::Blosc) => "blosc",
            Self::Check(sum, _) => sum.name(),
        }
    }
}

/// The division of chunks into shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharding {
    /// Shape of the chunks in a shard.
    pub chunk: Coords,
    /// The index of a shard.
    pub index: IndexLayout,
}

/// The codecs of an array.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Codecs {
    /// Steps in encoding order.
    pub stages: Vec<Stage>,
    /// Chunks are stored in shards.
    pub sharding: Option<Sharding>,
}

type Configuration<'a> = Option<&'a Map<String, Json>>;

fn unsupported(what: &str, name: &str) -> Error {
    Error::unsupported(format!("{what} {name:?}"))
}

fn number(value: Option<&Json>, native: bool) -> Result<NumberType> {
    let descr = value.and_then(Json::as_str);
    let found = descr.and_then(numpy::parse_descr);
    match found {
        Some((dtype, CellLen::One, big))
            if matches!(dtype.class(), Class::Int | Class::UInt | Class::Float) =>
        {
            Ok(NumberType { dtype, big: big && !native })
        }
        _ => Err(unsupported("numbers of a codec with dtype", descr.unwrap_or("?"))),
    }
}

/// LZMA2 without a container, by the filters of Python's module `lzma`: it alone, or differences of bytes before it.
fn raw_lzma(filters: Option<&Json>) -> Result<LzmaContainer> {
    const DELTA: u64 = 3;
    const LZMA2: u64 = 0x21;
    /// Sizes of dictionaries of the presets 0 to 9, as powers of two.
    const PRESETS: [u32; 10] = [18, 20, 21, 22, 22, 23, 23, 24, 25, 26];
    /// The default preset.
    const PRESET: u64 = 6;
    /// Presets with this bit are the same, but take longer to encode.
    const EXTREME: u64 = 1 << 31;
    let other = || unsupported("filters of lzma", &filters.map(shown).unwrap_or_default());
    let id = |filter: &Json| filter.get("id").and_then(Json::as_u64);
    let (delta, last) = match filters.and_then(Json::as_array).map(Vec::as_slice) {
        Some([last]) => (None, last),
        Some([first, last]) if id(first) == Some(DELTA) => {
            let distance = first.get("dist").map_or(Some(1), Json::as_u64);
            let distance = distance.and_then(|n| u16::try_from(n).ok()).filter(|n| (1..=256).contains(n));
            (Some(distance.ok_or_else(other)?), last)
        }
        _ => return Err(other()),
    };
    if id(last) != Some(LZMA2) {
        return Err(other());
    }
    let preset = last.get("preset").map_or(Some(PRESET), Json::as_u64).map(|preset| preset & !EXTREME);
    let preset = preset.and_then(|preset| PRESETS.get(usize::try_from(preset).ok()?));
    let dictionary = match last.get("dict_size").filter(|size| !size.is_null()) {
        Some(size) => size.as_u64().and_then(|size| u32::try_from(size).ok()),
        None => preset.map(|power| 1 << power),
    };
    Ok(LzmaContainer::Raw { dictionary: dictionary.ok_or_else(other)?, delta })
}

/// Steps that decode as numcodecs does; `name` is its ID. `native`: numbers have the byte order of the machine at this step.
fn numcodecs(name: &str, c: Configuration<'_>, native: bool) -> Result<Option<Stage>> {
    let get = |key: &str| c.and_then(|c| c.get(key));
    let place = |default: ChecksumPosition| match get("location").and_then(Json::as_str) {
        None => Ok(default),
        Some("start") => Ok(ChecksumPosition::Start),
        Some("end") => Ok(ChecksumPosition::End),
        Some(other) => Err(unsupported("checksum location", other)),
    };
    let numbers = || {
        let from = number(get("dtype"), native)?;
        let to = get("astype").filter(|astype| !astype.is_null());
        Ok::<_, Error>((from, if to.is_some() { number(to, native)? } else { from }))
    };
    let stage = match name {
        "zstd" => Stage::Compress(Compressor::Zstd),
        "gzip" => Stage::Compress(Compressor::Gzip),
        "zlib" => Stage::Compress(Compressor::Zlib),
        "bz2" => Stage::Compress(Compressor::Bzip2),
        "lz4" => Stage::Compress(Compressor::Lz4),
        "blosc" => Stage::Compress(Compressor::Blosc),
        "lzma" => {
            // Numbers of Python's module `lzma`. Filters of the other containers are in the stream.
            let container = match get("format").map_or(Some(1), Json::as_u64) {
                Some(0) => LzmaContainer::Auto,
                Some(1) => LzmaContainer::Xz,
                Some(2) => LzmaContainer::Alone,
                Some(3) => raw_lzma(get("filters"))?,
                _ => {
                    return Err(unsupported(
                        "container of lzma",
                        &shown(get("format").unwrap_or(&Json::Null)),
                    ));
                }
            };
            Stage::Compress(Compressor::Lzma(container))
        }
        "packbits" => Stage::PackBits,
        "astype" => {
            let (from, to) = (number(get("decode_dtype"), native)?, number(get("encode_dtype"), native)?);
            Stage::AsType { from, to }
        }
        "fletcher32" => Stage::Check(Checksum::Fletcher32, ChecksumPosition::End),
        "crc32c" => Stage::Check(Checksum::Crc32c, place(ChecksumPosition::End)?),
        "crc32" => Stage::Check(Checksum::Crc32, place(ChecksumPosition::Start)?),
        "adler32" => Stage::Check(Checksum::Adler32, place(ChecksumPosition::Start)?),
        "shuffle" => {
            let size = get("elementsize").map_or(Some(4), Json::as_u64).and_then(|n| usize::try_from(n).ok());
            let size = size.filter(|n| *n <= 1 << 20);
            Stage::Shuffle(
                size.ok_or_else(|| unsupported("codec", "shuffle of elements of this size"))?.max(1),
            )
        }
        "delta" => {
            let (from, to) = numbers()?;
            if (from.dtype.class() == Class::Float) != (to.dtype.class() == Class::Float) {
                return Err(unsupported("codec", "delta between floats and integers"));
            }
            Stage::Delta { from, to }
        }
        "fixedscaleoffset" => {
            let (from, to) = numbers()?;
            let float = |key: &str| get(key).and_then(Json::as_f64);
            let (Some(offset), Some(scale)) = (float("offset"), float("scale")) else {
                return Err(unsupported("codec", "fixedscaleoffset without offset and scale"));
            };
            Stage::FixedScaleOffset { from, to, offset, scale }
        }
        // Rounded when they were encoded: nothing to undo.
        "bitround" => return Ok(None),
        "quantize" => {
            let (from, to) = numbers()?;
            if from == to {
                return Ok(None);
            }
            Stage::AsType { from, to }
        }
        other => return Err(unsupported("Zarr codec", other)),
    };
    match &stage {
        Stage::Delta { from, to } | Stage::FixedScaleOffset { from, to, .. } | Stage::AsType { from, to }
            if [from, to].iter().any(|n| n.dtype == DType::Float16) =>
        {
            Err(unsupported("codec", &format!("{name} of float16")))
        }
        _ => Ok(Some(stage)),
    }
}

/// Parses the codecs of v2; also returns the type of the cells, which the filters determine for `|O`.
///
/// # Errors
/// `Unsupported` with the codec or dtype; `Corrupt`.
pub fn parse_v2_codecs(map: &Map<String, Json>, object: &str) -> Result<(ZarrCellType, Codecs)> {
    let malformed = |key: &str| {
        damaged(object, format!("invalid {key:?}: {}", shown(map.get(key).unwrap_or(&Json::Null))))
    };
    let filters = match map.get("filters") {
        None | Some(Json::Null) => &[][..],
        Some(Json::Array(filters)) => filters,
        Some(_) => return Err(malformed("filters")),
    };
    let id = |codec: &Json| codec.get("id").and_then(Json::as_str).map(str::to_owned);
    let mut stages = Vec::new();
    let dtype = map.get("dtype").ok_or_else(|| malformed("dtype"))?;
    let (cells, filters) = match parse_v2(dtype)? {
        Some((cells, big)) => {
            stages.extend((big && cells.word() > 1).then(|| Stage::Swap(cells.word())));
            (cells, filters)
        }
        None => {
            let (first, rest) =
                filters.split_first().ok_or_else(|| unsupported("dtype", "|O without a codec"))?;
            let dtype = match id(first).as_deref() {
                Some("vlen-utf8") => DType::Utf8,
                Some("vlen-bytes") => DType::Bytes,
                other => return Err(unsupported("Zarr object codec", other.unwrap_or("?"))),
            };
            (ZarrCellType::var(dtype), rest)
        }
    };
    let compressor = map.get("compressor").filter(|compressor| !compressor.is_null());
    for codec in filters.iter().chain(compressor) {
        let name = id(codec).ok_or_else(|| malformed("filters"))?;
        stages.extend(numcodecs(&name, codec.as_object(), false)?);
    }
    Ok((cells, Codecs { stages, sharding: None }))
}

/// Parses the codecs of v3.
///
/// # Errors
/// `Unsupported` with the codec; `Corrupt`.
pub fn parse_v3_codecs(list: &Json, cells: ZarrCellType, rank: usize, object: &str) -> Result<Codecs> {
    let list = list.as_array().ok_or_else(|| damaged(object, "the codecs are not a list"))?;
    let mut out = Codecs::default();
    let mut serialized = false;
    for codec in list {
        let (name, c) =
            named(codec).ok_or_else(|| damaged(object, format!("invalid codec {}", shown(codec))))?;
        if out.sharding.is_some() {
            return Err(unsupported("codecs after sharding_indexed:", name));
        }
        match name {
            "bytes" | "vlen-utf8" | "vlen-bytes" | "sharding_indexed" if serialized => {
                return Err(damaged(object, format!("second array-to-bytes codec {name:?}")));
            }
            "transpose" if !serialized => out.stages.extend(transpose(c, rank, object)?),
            "bytes" => {
                let endian = c.and_then(|c| c.get("endian")).and_then(Json::as_str);
                let big = match endian {
                    None | Some("little") => false,
                    Some("big") => true,
                    Some(other) => return Err(unsupported("byte order", other)),
                };
                if cells.stored == StoredCell::Var {
                    return Err(damaged(object, "the codec \"bytes\" with variable-length cells"));
                }
                // Numbers that a filter converted have the width of its output.
                let word = out.stages.iter().rev().find_map(|stage| match stage {
                    Stage::Delta { to, .. }
                    | Stage::FixedScaleOffset { to, .. }
                    | Stage::AsType { to, .. } => Some(to.dtype.word()),
                    Stage::PackBits => Some(1),
                    _ => None,
                });
                let word = word.unwrap_or(cells.word());
                out.stages.extend((big && word > 1).then_some(Stage::Swap(word)));
                serialized = true;
            }
            "vlen-utf8" | "vlen-bytes" => {
                let expected = if name == "vlen-utf8" { DType::Utf8 } else { DType::Bytes };
                if cells != ZarrCellType::var(expected) {
                    return Err(damaged(object, format!("the codec {name:?} with cells of {}", cells.dtype)));
                }
                serialized = true;
            }
            "sharding_indexed" => {
                if !out.stages.is_empty() {
                    return Err(unsupported("codecs before", "sharding_indexed"));
                }
                out = sharding(c, cells, rank, object)?;
                serialized = true;
            }
            "zstd" | "gzip" | "blosc" | "crc32c" if serialized => {
                out.stages.extend(numcodecs(name, c, true)?)
            }
            other => match other.strip_prefix("numcodecs.") {
                Some(name) => out.stages.extend(numcodecs(name, c, true)?),
                None => return Err(unsupported("Zarr codec", other)),
            },
        }
    }
    if !serialized {
        return Err(damaged(object, "no array-to-bytes codec"));
    }
    Ok(out)
}

fn transpose(c: Configuration<'_>, rank: usize, object: &str) -> Result<Option<Stage>> {
    let order = match c.and_then(|c| c.get("order")) {
        Some(Json::Array(axes)) => axes.iter().map(|axis| usize::try_from(axis.as_u64()?).ok()).collect(),
        Some(Json::String(name)) if name == "C" => Some((0..rank).collect()),
        Some(Json::String(name)) if name == "F" => Some((0..rank).rev().collect()),
        _ => None,
    };
    let permutes = |order: &SmallVec<[usize; 8]>| {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted.iter().copied().eq(0..rank)
    };
    let order =
        order.filter(permutes).ok_or_else(|| damaged(object, "invalid order of the codec transpose"))?;
    Ok((!order.is_sorted()).then_some(Stage::Transpose(order)))
}

fn sharding(c: Configuration<'_>, cells: ZarrCellType, rank: usize, object: &str) -> Result<Codecs> {
    let get = |key: &str| c.and_then(|c| c.get(key));
    let malformed = |key: &str| damaged(object, format!("invalid {key:?} of sharding_indexed"));
    let chunk = get("chunk_shape").and_then(Json::as_array).ok_or_else(|| malformed("chunk_shape"))?;
    let chunk: Option<Coords> = chunk.iter().map(Json::as_u64).collect();
    let chunk =
        chunk.filter(|c| c.len() == rank && !c.contains(&0)).ok_or_else(|| malformed("chunk_shape"))?;
    let inner = get("codecs").ok_or_else(|| malformed("codecs"))?;
    let inner = parse_v3_codecs(inner, cells, rank, object)?;
    if inner.sharding.is_some() {
        return Err(unsupported("nested", "sharding_indexed"));
    }
    let at_start = match get("index_location").and_then(Json::as_str) {
        None | Some("end") => false,
        Some("start") => true,
        Some(other) => return Err(unsupported("index location", other)),
    };
    let words = ZarrCellType { dtype: DType::UInt64, cell: CellLen::One, stored: StoredCell::Elements };
    let index = get("index_codecs").ok_or_else(|| malformed("index_codecs"))?;
    let index = parse_v3_codecs(index, words, rank + 1, object)?;
    let (big, checksum) = match index.stages.as_slice() {
        [] => (false, false),
        [Stage::Check(Checksum::Crc32c, ChecksumPosition::End)] => (false, true),
        [Stage::Swap(8)] => (true, false),
        [Stage::Swap(8), Stage::Check(Checksum::Crc32c, ChecksumPosition::End)] => (true, true),
        other => {
            let names: Vec<&str> = other.iter().map(Stage::name).collect();
            return Err(unsupported("codecs of a shard index:", &names.join(", ")));
        }
    };
    if index.sharding.is_some() {
        return Err(unsupported("codecs of a shard index:", "sharding_indexed"));
    }
    let index = IndexLayout { at_start, checksum, big };
    Ok(Codecs { stages: inner.stages, sharding: Some(Sharding { chunk, index }) })
}
