//! Filter pipelines.
//!
//! ```text
//! u32 max chunk size │ u32 count │ per filter: u8 type │ u32 options length │ options
//! ```

use tesseral_codec::filter::{DEFAULT_LEVEL, Filter, FilterElement, WebPChannels};
use tesseral_core::{Cursor, Error, Result};

use super::datatype::Datatype;
use super::primitive::{le64, put_u32};

/// Default maximum chunk size of writers in bytes.
pub const MAX_CHUNK: u32 = 1 << 16;

/// Filters of a field, in encoding order.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct FilterPipeline {
    /// Maximum chunk size of the writer in bytes; 0 for one chunk per tile.
    pub max_chunk: u32,
    /// The filters.
    pub filters: Vec<Filter>,
}

impl FilterPipeline {
    /// Parses a pipeline.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` for an unknown filter.
    pub fn parse(cursor: &mut Cursor<'_>) -> Result<Self> {
        let max_chunk = cursor.u32("a pipeline's chunk size")?;
        let count = cursor.u32("a pipeline's filters")?;
        let count = cursor.count(u64::from(count), 5, "a pipeline's filters")?;
        let mut filters = Vec::with_capacity(count);
        for _ in 0..count {
            let number = cursor.u8("a filter's type")?;
            let len = cursor.u32("a filter's options")?;
            let options = cursor.take64(u64::from(len), "a filter's options")?;
            let filter = filter(number, options)?;
            let filter = filter.ok_or_else(|| {
                cursor.corrupt("a filter's options", format!("{len} bytes for filter {number}"))
            })?;
            filters.push(filter);
        }
        Ok(Self { max_chunk, filters })
    }
}

/// `None` if the options are too short.
fn filter(number: u8, options: &[u8]) -> Result<Option<Filter>> {
    // The datatype after compressor and level exists since version 19 (delta) or 20 (double delta).
    let reinterpret = || match options.get(5) {
        Some(number) => Datatype::new(*number).map(|d| (d != Datatype::ANY).then(|| d.word())),
        None => Ok(None),
    };
    let number_at = |at: usize| options.get(at..at + 4).map(|b| [b[0], b[1], b[2], b[3]]);
    let level = || number_at(1).map_or(DEFAULT_LEVEL, i32::from_le_bytes);
    let window = |usual: u32| number_at(0).map_or(usual, u32::from_le_bytes);
    Ok(Some(match number {
        0 => Filter::Noop,
        1 => Filter::Gzip { level: level() },
        2 => Filter::Zstd { level: level() },
        3 => Filter::Lz4 { level: level() },
        4 => Filter::Rle,
        5 => Filter::Bzip2 { level: level() },
        6 => Filter::DoubleDelta { reinterpret: reinterpret()? },
        7 => Filter::BitWidthReduction { window: window(256) },
        8 => Filter::BitShuffle,
        9 => Filter::ByteShuffle,
        10 => Filter::PositiveDelta { window: window(1024) },
        11 => Filter::Aes256Gcm,
        12 => Filter::Md5,
        13 => Filter::Sha256,
        14 => Filter::Dictionary,
        15 => {
            let Some(options) = options.get(..24) else { return Ok(None) };
            let float = |at: usize| f64::from_bits(le64(&options[at..at + 8]));
            let width = le64(&options[16..]);
            let width = usize::try_from(width).ok().filter(|w| matches!(w, 1 | 2 | 4 | 8));
            let Some(width) = width else { return Ok(None) };
            Filter::FloatScale { scale: float(0), offset: float(8), width }
        }
        16 => Filter::Xor,
        18 => {
            // A structure in memory, with two bytes of padding at its end.
            let Some(&[a, b, c, d, channels, lossless, y0, y1, x0, x1]) = options.first_chunk::<10>() else {
                return Ok(None);
            };
            let Some(channels) = WebPChannels::from_number(channels) else { return Ok(None) };
            let extents = [u16::from_le_bytes([y0, y1]), u16::from_le_bytes([x0, x1])];
            Filter::WebP {
                channels,
                quality: f32::from_le_bytes([a, b, c, d]),
                lossless: lossless != 0,
                extents,
            }
        }
        19 => Filter::Delta { reinterpret: reinterpret()? },
        other => return Err(Error::unsupported(format!("TileDB filter {other}"))),
    }))
}

impl FilterPipeline {
    /// Creates a pipeline with the default chunk size.
    pub fn from_filters(filters: Vec<Filter>) -> Self {
        Self { max_chunk: MAX_CHUNK, filters }
    }

    /// Encodes a pipeline for a format version.
    ///
    /// # Errors
    /// `Limit` for too many filters.
    pub fn write(&self, version: u32, out: &mut Vec<u8>) -> Result<()> {
        out.extend_from_slice(&self.max_chunk.to_le_bytes());
        put_u32(self.filters.len() as u64, "the filters of a pipeline", out)?;
        for filter in &self.filters {
            let (number, options) = options(filter, version);
            out.push(number);
            put_u32(options.len() as u64, "a filter's options", out)?;
            out.extend_from_slice(&options);
        }
        Ok(())
    }
}

/// Returns number and options of a filter.
fn options(filter: &Filter, version: u32) -> (u8, Vec<u8>) {
    // The compressor number equals the filter number, with two exceptions.
    let compressor = |number: u8, level: i32| {
        let mut options = vec![number];
        options.extend_from_slice(&level.to_le_bytes());
        options
    };
    let delta = |number: u8, since: u32, reinterpret: &Option<FilterElement>| {
        let mut options = compressor(number, DEFAULT_LEVEL);
        if version >= since {
            options.push(reinterpret.map_or(Datatype::ANY, Datatype::of_word).number());
        }
        options
    };
    match filter {
        Filter::Gzip { level } => (1, compressor(1, *level)),
        Filter::Zstd { level } => (2, compressor(2, *level)),
        Filter::Lz4 { level } => (3, compressor(3, *level)),
        Filter::Rle => (4, compressor(4, DEFAULT_LEVEL)),
        Filter::Bzip2 { level } => (5, compressor(5, *level)),
        Filter::DoubleDelta { reinterpret } => (6, delta(6, 20, reinterpret)),
        Filter::BitWidthReduction { window } => (7, window.to_le_bytes().to_vec()),
        Filter::BitShuffle => (8, Vec::new()),
        Filter::ByteShuffle => (9, Vec::new()),
        Filter::PositiveDelta { window } => (10, window.to_le_bytes().to_vec()),
        Filter::Aes256Gcm => (11, Vec::new()),
        Filter::Md5 => (12, Vec::new()),
        Filter::Sha256 => (13, Vec::new()),
        Filter::Dictionary => (14, compressor(7, DEFAULT_LEVEL)),
        Filter::FloatScale { scale, offset, width } => {
            let mut options = scale.to_le_bytes().to_vec();
            options.extend_from_slice(&offset.to_le_bytes());
            options.extend_from_slice(&(*width as u64).to_le_bytes());
            (15, options)
        }
        Filter::Xor => (16, Vec::new()),
        Filter::WebP { channels, quality, lossless, extents } => {
            let mut options = quality.to_le_bytes().to_vec();
            options.extend_from_slice(&[*channels as u8, u8::from(*lossless)]);
            options.extend(extents.iter().flat_map(|extent| extent.to_le_bytes()));
            options.extend_from_slice(&[0; 2]);
            (18, options)
        }
        Filter::Delta { reinterpret } => (19, delta(8, 19, reinterpret)),
        _ => (0, Vec::new()),
    }
}
