//! Generic tiles, the container of schemas, metadata and sections of fragments.
//!
//! ```text
//! u32 version │ u64 persisted size │ u64 tile size │ u8 datatype │ u64 cell size │ u8 encryption │ u32 pipeline size
//! pipeline │ filtered tile
//! ```

use tesseral_codec::Contexts;
use tesseral_codec::filter::{Chain, Chunks, Filter, FilterContext};
use tesseral_core::{Cursor, Error, Limits, Result, alloc};

use super::datatype::Datatype;
use super::pipeline::{FilterPipeline, MAX_CHUNK};
use super::primitive::{put_u32, put_u64};

/// Size of the header before the pipeline, in bytes.
pub const HEADER_LEN: u64 = 34;

/// A generic tile with its filtered payload.
#[derive(Clone, Debug)]
pub struct GenericTile<'a> {
    /// Format version of the writer.
    pub version: u32,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// Stored size in bytes, including the header.
    pub len: u64,
    tile_size: u64,
    chain: Chain,
    filtered: &'a [u8],
}

impl<'a> GenericTile<'a> {
    /// Parses the header of the tile at the start of `bytes`.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`.
    pub fn parse(object: &'a str, bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new(object, bytes);
        let version = cursor.u32("a generic tile's version")?;
        // Generic tiles of all supported versions have this header version.
        if super::check_version(version).is_err() && lacks_version(bytes) {
            let feature = "a TileDB array of version 1.3 or before, which has no format version";
            return Err(Error::unsupported(feature));
        }
        super::check_version(version)?;
        let persisted = cursor.u64("a generic tile's stored size")?;
        let tile_size = cursor.u64("a generic tile's size")?;
        let datatype = Datatype::new(cursor.u8("a generic tile's datatype")?)?;
        let cell = cursor.u64("a generic tile's cell size")?;
        let encrypted = cursor.flag("a generic tile's encryption")?;
        let pipeline_len = cursor.u32("a generic tile's pipeline")?;
        let pipeline_at = cursor.at();
        let mut inner =
            Cursor::new(object, cursor.take64(u64::from(pipeline_len), "a generic tile's pipeline")?);
        let pipeline = FilterPipeline::parse(&mut inner)?;
        if !inner.rest().is_empty() {
            let detail = format!("{} unexpected bytes after the filters", inner.rest().len());
            return Err(Error::corrupt("a generic tile's pipeline", object, pipeline_at, detail));
        }
        let filtered = cursor.take64(persisted, "a generic tile")?;
        let cell = usize::try_from(cell).ok().filter(|n| (1..=8).contains(n));
        let cell = cell.ok_or_else(|| cursor.corrupt("a generic tile", "cell size is outside 1..=8"))?;
        let chain = Chain::new(pipeline.filters, datatype.word(), cell, false);
        Ok(Self { version, encrypted, len: cursor.at(), tile_size, chain, filtered })
    }

    /// Returns the unfiltered bytes.
    ///
    /// # Errors
    /// `Corrupt`; `Limit`; `InvalidRequest` for an encrypted tile without the key.
    pub fn decode(
        &self,
        object: &str,
        limits: &Limits,
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<Vec<u8>> {
        limits.check_unpacked_metadata(self.tile_size, self.filtered.len() as u64)?;
        let corrupt = |detail: String| Error::corrupt("a generic tile", object, HEADER_LEN, detail);
        let original = Chunks::new(self.filtered).and_then(Chunks::original_len);
        let original = original.map_err(|e| corrupt(e.to_string()))?;
        if original != self.tile_size {
            return Err(corrupt(format!(
                "expected {} bytes, found {original} bytes in its chunks",
                self.tile_size
            )));
        }
        // Declared sizes are limited by what a decompressor can produce: a ratio of about 1000 with zlib; the bound below is
        // generous for other codecs.
        let justified = (self.filtered.len() as u64).saturating_mul(1 << 16);
        if self.tile_size > justified {
            return Err(corrupt(format!(
                "{} bytes cannot decompress to {}",
                self.filtered.len(),
                self.tile_size
            )));
        }
        let len = usize::try_from(self.tile_size)
            .map_err(|_| Error::limit("metadata", self.tile_size, usize::MAX as u64))?;
        let mut out = alloc::zeroed("metadata", len)?;
        let rules = FilterContext { version: self.version, ..*rules };
        self.chain
            .decode_into(self.filtered, &mut out, &rules, contexts)
            .map_err(|e| if e.is_damage() { corrupt(e.to_string()) } else { e })?;
        Ok(out)
    }
}

/// Returns whether a tile begins with its stored size instead of a version, followed by its size, `CHAR` and a cell size of 1.
fn lacks_version(bytes: &[u8]) -> bool {
    bytes.get(16..25) == Some(&[Datatype::CHAR.number(), 1, 0, 0, 0, 0, 0, 0, 0])
}

/// Encodes a file that is one generic tile, with a digest if its name announces one.
///
/// # Errors
/// As [`write()`].
pub fn file(object: &str, version: u32, payload: &[u8], key: Option<&[u8; 32]>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write(version, payload, key, &mut bytes, &mut Contexts::default())?;
    if super::name::carries_digest(object) {
        super::trailer::finish_run(object, &mut bytes);
    }
    Ok(bytes)
}

/// Maximum size in bytes of payloads that are stored uncompressed: the filter overhead exceeds the savings, and a small
/// fragment has dozens of them.
const WORTH_FILTERING: usize = 64;

/// Encodes `payload` as a generic tile: zlib at its fastest level, as in the reference, encrypted if there is a key.
///
/// # Errors
/// `Limit` for a payload that is too large.
pub fn write(
    version: u32,
    payload: &[u8],
    key: Option<&[u8; 32]>,
    out: &mut Vec<u8>,
    contexts: &mut Contexts,
) -> Result<()> {
    let gzip = (payload.len() >= WORTH_FILTERING).then_some(Filter::Gzip { level: 1 });
    let filters = gzip.into_iter().chain(key.map(|_| Filter::Aes256Gcm)).collect();
    let pipeline = FilterPipeline { max_chunk: MAX_CHUNK, filters };
    let chain = Chain::new(pipeline.filters.iter().copied(), Datatype::CHAR.word(), 1, false);
    let mut filtered = Vec::new();
    chain.encode(payload, &mut filtered, &FilterContext { version, verify: true, key }, contexts)?;
    let mut stored = Vec::new();
    pipeline.write(version, &mut stored)?;
    out.extend_from_slice(&version.to_le_bytes());
    put_u64(filtered.len() as u64, out);
    put_u64(payload.len() as u64, out);
    out.push(Datatype::CHAR.number());
    put_u64(1, out);
    out.push(u8::from(key.is_some()));
    put_u32(stored.len() as u64, "a pipeline", out)?;
    out.extend_from_slice(&stored);
    out.extend_from_slice(&filtered);
    Ok(())
}
