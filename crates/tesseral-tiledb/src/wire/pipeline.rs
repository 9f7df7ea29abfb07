//! Filter pipelines.
//!
//! ```text
//! u32 max chunk size │ u32 count │ per filter: u8 type │ u32 options length │ options
//! ```

use tesseral_codec::filter::Filter;
use tesseral_core::{Error, Result};

use super::cursor::{Cursor, le64};
use super::datatype::Datatype;

/// Filters of a field, in the order they encode.
#[derive(Clone, Debug, PartialEq, Default)]
pub struct Pipeline {
    /// Largest chunk that a writer makes; 0 for one chunk per tile.
    pub max_chunk: u32,
    /// The filters.
    pub filters: Vec<Filter>,
}

impl Pipeline {
    /// Reads a pipeline.
    ///
    /// # Errors
    /// `Corrupt`; `Unsupported` for a filter that no version has.
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

/// `None` when the options are too short.
fn filter(number: u8, options: &[u8]) -> Result<Option<Filter>> {
    // The datatype behind compressor and level exists since version 19 (delta) or 20 (double delta).
    let reinterpret = || match options.get(5) {
        Some(number) => Datatype::new(*number).map(|d| (d != Datatype::ANY).then(|| d.word())),
        None => Ok(None),
    };
    Ok(Some(match number {
        0 => Filter::Noop,
        1 => Filter::Gzip,
        2 => Filter::Zstd,
        3 => Filter::Lz4,
        4 => Filter::Rle,
        5 => Filter::Bzip2,
        6 => Filter::DoubleDelta { reinterpret: reinterpret()? },
        7 => Filter::BitWidthReduction,
        8 => Filter::BitShuffle,
        9 => Filter::ByteShuffle,
        10 => Filter::PositiveDelta,
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
        18 => Filter::WebP,
        19 => Filter::Delta { reinterpret: reinterpret()? },
        other => return Err(Error::unsupported(format!("TileDB filter {other}"))),
    }))
}
