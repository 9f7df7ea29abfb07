//! Generic tiles: how schemas, metadata and the sections of fragments are stored.
//!
//! ```text
//! u32 version │ u64 persisted size │ u64 tile size │ u8 datatype │ u64 cell size │ u8 encryption │ u32 pipeline size
//! pipeline │ filtered tile
//! ```

use tesseral_codec::Contexts;
use tesseral_codec::filter::{Chain, Chunks, Filter, Rules};
use tesseral_core::{Error, Limits, Result, alloc};

use super::cursor::{Cursor, put_u32, put_u64};
use super::datatype::Datatype;
use super::pipeline::{MAX_CHUNK, Pipeline};

/// Bytes before the pipeline.
pub const HEADER_LEN: u64 = 34;

/// A generic tile, its payload still filtered.
#[derive(Clone, Debug)]
pub struct GenericTile<'a> {
    /// Format version of its writer.
    pub version: u32,
    /// Whether it is encrypted.
    pub encrypted: bool,
    /// Bytes it takes, header included.
    pub len: u64,
    tile_size: u64,
    chain: Chain,
    filtered: &'a [u8],
}

impl<'a> GenericTile<'a> {
    /// Reads the header of the tile at the front of `bytes`.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`.
    pub fn parse(object: &'a str, bytes: &'a [u8]) -> Result<Self> {
        let mut cursor = Cursor::new(object, bytes);
        let version = cursor.u32("a generic tile's version")?;
        // Tiles of any readable array are this young; anything else is another format's version field.
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
        let pipeline = Pipeline::parse(&mut inner)?;
        if !inner.rest().is_empty() {
            let detail = format!("{} bytes follow its filters", inner.rest().len());
            return Err(Error::corrupt("a generic tile's pipeline", object, pipeline_at, detail));
        }
        let filtered = cursor.take64(persisted, "a generic tile")?;
        let cell = usize::try_from(cell).ok().filter(|n| (1..=8).contains(n));
        let cell = cell.ok_or_else(|| cursor.corrupt("a generic tile", "its cell size is not 1 to 8"))?;
        let chain = Chain::new(pipeline.filters, datatype.word(), cell, false);
        Ok(Self { version, encrypted, len: cursor.at(), tile_size, chain, filtered })
    }

    /// The unfiltered bytes.
    ///
    /// # Errors
    /// `Corrupt`, `Limit`, `InvalidRequest` without the key of an encrypted tile.
    pub fn decode(
        &self,
        object: &str,
        limits: &Limits,
        rules: &Rules<'_>,
        contexts: &mut Contexts,
    ) -> Result<Vec<u8>> {
        limits.check_unpacked_metadata(self.tile_size, self.filtered.len() as u64)?;
        let corrupt = |detail: String| Error::corrupt("a generic tile", object, HEADER_LEN, detail);
        let original = Chunks::new(self.filtered).and_then(Chunks::original_len);
        let original = original.map_err(|e| corrupt(e.to_string()))?;
        if original != self.tile_size {
            return Err(corrupt(format!(
                "its chunks hold {original} bytes, its header says {}",
                self.tile_size
            )));
        }
        // Chunks may claim more than their bytes can justify, but never more than a decompressor could give: about a
        // thousand times with zlib, and more only from formats that the bound below is generous for.
        let justified = (self.filtered.len() as u64).saturating_mul(1 << 16);
        if self.tile_size > justified {
            return Err(corrupt(format!("{} bytes cannot hold {}", self.filtered.len(), self.tile_size)));
        }
        let len = usize::try_from(self.tile_size)
            .map_err(|_| Error::limit("metadata", self.tile_size, usize::MAX as u64))?;
        let mut out = alloc::zeroed("metadata", len)?;
        let rules = Rules { version: self.version, ..*rules };
        self.chain
            .decode_into(self.filtered, &mut out, &rules, contexts)
            .map_err(|e| if e.is_damage() { corrupt(e.to_string()) } else { e })?;
        Ok(out)
    }
}

/// The bytes of a file that is one generic tile, with a digest if its name promises one.
///
/// # Errors
/// As [`write()`].
pub fn file(object: &str, version: u32, payload: &[u8], key: Option<&[u8; 32]>) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    write(version, payload, key, &mut bytes, &mut Contexts::default())?;
    if super::name::carries_digest(object) {
        super::trailer::seal(object, &mut bytes);
    }
    Ok(bytes)
}

/// Payloads below this are stored as they are: what the filter adds is more than it could save, and a small fragment is made of
/// dozens of them.
const WORTH_FILTERING: usize = 64;

/// Writes `payload` as a generic tile: zlib at its fastest, as the reference has it, encrypted when there is a key.
///
/// # Errors
/// `Limit` for a payload that lengths cannot say.
pub fn write(
    version: u32,
    payload: &[u8],
    key: Option<&[u8; 32]>,
    out: &mut Vec<u8>,
    contexts: &mut Contexts,
) -> Result<()> {
    let gzip = (payload.len() >= WORTH_FILTERING).then_some(Filter::Gzip { level: 1 });
    let filters = gzip.into_iter().chain(key.map(|_| Filter::Aes256Gcm)).collect();
    let pipeline = Pipeline { max_chunk: MAX_CHUNK, filters };
    let chain = Chain::new(pipeline.filters.iter().copied(), Datatype::CHAR.word(), 1, false);
    let mut filtered = Vec::new();
    chain.encode(payload, &mut filtered, &Rules { version, verify: true, key }, contexts)?;
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
