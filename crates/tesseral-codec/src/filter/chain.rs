//! A filter pipeline, reversed chunk by chunk. The forward direction is in [`encode`](super::encode).
//!
//! ```text
//! u64 chunks │ per chunk: u32 original │ u32 filtered │ u32 metadata │ metadata bytes │ filtered bytes
//! ```

use std::ops::Range;

use tesseral_core::{Error, Result, alloc};

use super::float_scale::Scale;
use super::{
    ElementKind, Filter, FilterBuffers, FilterElement, bit_width_reduction, bitshuffle, byteshuffle, bzip2,
    checksum, compressor, delta, dictionary, double_delta, encryption, float_scale, gzip, lz4, noop,
    positive_delta, rle, webp, xor, zstd,
};
use crate::Contexts;

/// Bytes that an intermediate stage may use in addition to the decoded chunk: headers of small windows.
const SLACK: usize = 1 << 20;

/// The default chunk size of writers.
const MAX_CHUNK: usize = 1 << 16;

/// The parameters of encoding and decoding. The key is not printed.
#[derive(Clone, Copy)]
pub struct FilterContext<'a> {
    /// Format version of the writer.
    pub version: u32,
    /// Verify checksums.
    pub verify: bool,
    /// The key of encrypted tiles.
    pub key: Option<&'a [u8; 32]>,
}

impl std::fmt::Debug for FilterContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { version, verify, key } = self;
        let key = key.map(|_| "hidden");
        f.debug_struct("Rules").field("version", version).field("verify", verify).field("key", &key).finish()
    }
}

/// Buffers between filters, reused from chunk to chunk.
#[derive(Debug, Default)]
pub struct FilterScratch {
    pub(super) from: FilterBuffers,
    pub(super) to: FilterBuffers,
}

/// One chunk of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilteredChunk<'a> {
    /// Bytes before filtering.
    pub original: usize,
    /// Metadata output of the last filter.
    pub meta: &'a [u8],
    /// Data output of the last filter.
    pub data: &'a [u8],
}

/// The chunks of a filtered tile, in order. Iteration ends after the first error.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    rest: &'a [u8],
    left: Option<u64>,
}

impl<'a> Chunks<'a> {
    /// Parses the chunk count.
    ///
    /// # Errors
    /// `Codec` when the count exceeds what the bytes can hold.
    pub fn new(tile: &'a [u8]) -> Result<Self> {
        let Some((count, rest)) = tile.split_first_chunk::<8>() else {
            return Err(Error::codec("tile", format!("truncated chunk count: found {} bytes", tile.len())));
        };
        let left = u64::from_le_bytes(*count);
        if left > rest.len() as u64 / 12 {
            return Err(Error::codec("tile", format!("{left} chunks do not fit in {} bytes", rest.len())));
        }
        Ok(Self { rest, left: Some(left) })
    }

    /// Bytes of all chunks before filtering.
    ///
    /// # Errors
    /// `Codec` when a chunk is truncated.
    pub fn original_len(self) -> Result<u64> {
        self.map(|chunk| chunk.map(|c| c.original as u64)).sum()
    }

    fn chunk(&mut self) -> Option<FilteredChunk<'a>> {
        let (lens, rest) = self.rest.split_first_chunk::<12>()?;
        let [a, b, c] =
            [0, 4, 8].map(|i| u32::from_le_bytes([lens[i], lens[i + 1], lens[i + 2], lens[i + 3]]));
        let (meta, rest) = rest.split_at_checked(usize::try_from(c).ok()?)?;
        let (data, rest) = rest.split_at_checked(usize::try_from(b).ok()?)?;
        self.rest = rest;
        Some(FilteredChunk { original: usize::try_from(a).ok()?, meta, data })
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<FilteredChunk<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        // Some chunks of a tile come without the count: they end where their bytes do.
        if self.left.map_or(self.rest.is_empty(), |left| left == 0) {
            return None;
        }
        self.left = self.left.map(|left| left - 1);
        let chunk = self.chunk();
        if chunk.is_none() {
            self.left = Some(0);
        }
        Some(
            chunk.ok_or_else(|| {
                Error::codec("tile", format!("truncated chunk: {} bytes left", self.rest.len()))
            }),
        )
    }
}

/// A filter pipeline with the element type of each stage.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// In encoding order, each with the element type of its input.
    pub(super) filters: Vec<(Filter, FilterElement)>,
    /// Bytes per cell, the unit of run lengths.
    pub(super) cell: usize,
    /// The first filter encodes strings together with their offsets.
    strings: bool,
    /// The chunk size of the encoder; 0 for one chunk per tile.
    pub(super) max_chunk: usize,
}

/// The bytes of a tile of `len` bytes that fill `out` from byte `start` on.
fn run_of(len: usize, start: usize, out: &[u8]) -> Result<Range<usize>> {
    let range = start..start.saturating_add(out.len()).min(len);
    if range.len() != out.len() {
        return Err(Error::invalid(format!(
            "bytes {start}..+{} out of range for a tile of {len} bytes",
            out.len()
        )));
    }
    Ok(range)
}

impl Chain {
    /// A pipeline over cells of `cell` bytes of `word` elements. With `strings`, the tile holds variable-length cells; a first
    /// filter that encodes strings then includes the offsets.
    pub fn new(
        filters: impl IntoIterator<Item = Filter>,
        mut word: FilterElement,
        cell: usize,
        strings: bool,
    ) -> Self {
        let mut chain = Vec::new();
        for filter in filters {
            chain.push((filter, word));
            word = filter.output(word);
        }
        let first = matches!(chain.first(), Some((Filter::Rle | Filter::Dictionary, _)));
        Self { filters: chain, cell: cell.max(1), strings: strings && first, max_chunk: MAX_CHUNK }
    }

    /// Sets the approximate chunk size for encoding; 0 for one chunk per tile.
    #[must_use]
    pub fn chunks_of(mut self, bytes: u32) -> Self {
        self.max_chunk = usize::try_from(bytes).unwrap_or(0);
        self
    }

    /// Whether tiles hold strings with their offsets, to be decoded by [`decode_strings`](Self::decode_strings).
    pub fn holds_strings(&self) -> bool {
        self.strings
    }

    /// The filters in encoding order.
    pub fn filters(&self) -> impl Iterator<Item = &Filter> {
        self.filters.iter().map(|(filter, _)| filter)
    }

    /// Whether a filter of the pipeline stores checksums.
    pub fn has_digest(&self) -> bool {
        self.filters().any(|f| matches!(f, Filter::Md5 | Filter::Sha256 | Filter::Aes256Gcm))
    }

    /// Whether a filter of the pipeline is a compressor.
    pub fn has_compressor(&self) -> bool {
        self.filters().any(|f| {
            matches!(
                f,
                Filter::Gzip { .. }
                    | Filter::Zstd { .. }
                    | Filter::Lz4 { .. }
                    | Filter::Rle
                    | Filter::Bzip2 { .. }
                    | Filter::DoubleDelta { .. }
                    | Filter::Delta { .. }
                    | Filter::Dictionary
            )
        })
    }

    /// Whether the pipeline is empty: the bytes after the lengths of a chunk are the cells.
    pub fn is_plain(&self) -> bool {
        self.filters.is_empty()
    }

    /// Decodes a tile of exactly `out.len()` bytes.
    ///
    /// # Errors
    /// `Codec` when the bytes are damaged; `Unsupported` for a filter without a decoder; `InvalidRequest` without a key.
    pub fn decode_into(
        &self,
        tile: &[u8],
        out: &mut [u8],
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        self.decode_run(tile, out.len(), 0, out, rules, contexts)
    }

    /// Decodes `out.len()` bytes from byte `start` on of a tile of `len` bytes. Chunks outside the range are skipped.
    ///
    /// # Errors
    /// As [`decode_into`](Self::decode_into).
    pub fn decode_run(
        &self,
        tile: &[u8],
        len: usize,
        start: usize,
        out: &mut [u8],
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        if self.plain_run(tile, len, &run_of(len, start, out)?, out) {
            return Ok(());
        }
        let mut chunks = Chunks::new(tile)?;
        let at = self.decode_from(&mut chunks, 0, len, start, out, rules, contexts)?;
        if at < len || !chunks.rest.is_empty() {
            let detail =
                format!("chunks hold {at} of {len} bytes of the tile, {} bytes follow", chunks.rest.len());
            return Err(Error::codec("tile", detail));
        }
        Ok(())
    }

    /// As [`decode_run`](Self::decode_run), from some chunks of the tile: `chunks` are stored bytes of whole ones that follow one
    /// another, the first of which holds byte `base` of the tile and those after it.
    ///
    /// # Errors
    /// As [`decode_into`](Self::decode_into); `InvalidRequest` when the chunks do not hold the bytes.
    #[allow(clippy::too_many_arguments)]
    pub fn decode_chunks(
        &self,
        chunks: &[u8],
        base: usize,
        len: usize,
        start: usize,
        out: &mut [u8],
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let mut chunks = Chunks { rest: chunks, left: None };
        let end = self.decode_from(&mut chunks, base, len, start, out, rules, contexts)?;
        if start < base || end < start.saturating_add(out.len()) {
            return Err(Error::invalid(format!("chunks of bytes {base} to {end} do not hold {start} on")));
        }
        Ok(())
    }

    /// Decodes the bytes from `start` on that the chunks hold; returns the end of the last chunk in the tile.
    #[allow(clippy::too_many_arguments)]
    fn decode_from(
        &self,
        chunks: &mut Chunks<'_>,
        base: usize,
        len: usize,
        start: usize,
        out: &mut [u8],
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<usize> {
        let range = run_of(len, start, out)?;
        let mut at = base;
        for chunk in chunks.by_ref() {
            let chunk = chunk?;
            let Some(end) = at.checked_add(chunk.original).filter(|end| *end <= len) else {
                let detail = format!("chunk of {} bytes exceeds the {len} bytes of the tile", chunk.original);
                return Err(Error::codec("tile", detail));
            };
            let (from, to) = (at.max(range.start), end.min(range.end));
            if at >= range.start && end <= range.end {
                self.chunk_into(&chunk, &mut out[at - start..end - start], rules, contexts)?;
            } else if from < to {
                let mut whole = alloc::zeroed("a chunk of a tile", chunk.original)?;
                self.chunk_into(&chunk, &mut whole, rules, contexts)?;
                out[from - start..to - start].copy_from_slice(&whole[from - at..to - at]);
            }
            at = end;
        }
        Ok(at)
    }

    /// Location of a run of the `len` bytes of a tile in the stored tile: from the header of its first chunk to the end of its last.
    /// `None` where that does not follow from lengths alone.
    pub fn plain_span(&self, stored: u64, len: usize, run: &Range<usize>) -> Option<Range<usize>> {
        self.plain_len(len).filter(|n| *n == stored)?;
        let step = self.step(len).max(1);
        let chunk_at = |n: usize| n.checked_mul(step.checked_add(12)?)?.checked_add(8);
        let end = usize::try_from(stored).ok()?.min(chunk_at(run.end.div_ceil(step))?);
        Some(chunk_at(run.start / step)?.min(end)..end)
    }

    /// Copies a run out of an unfiltered tile and reads only the chunks that hold it; returns whether this is possible.
    fn plain_run(&self, tile: &[u8], len: usize, run: &Range<usize>, out: &mut [u8]) -> bool {
        let step = self.step(len).max(1);
        let Some(span) = self.plain_span(tile.len() as u64, len, run).filter(|_| !run.is_empty()) else {
            return false;
        };
        let chunks = (len.div_ceil(step).max(1) as u64).to_le_bytes();
        if run.start < step && !tile.starts_with(&chunks) {
            return false;
        }
        let mut at = run.start / step * step;
        let mut rest = &tile[span];
        while at < run.end {
            let size = step.min(len - at);
            // One chunk, as long before as after no filter, without metadata.
            let Ok(n) = u32::try_from(size) else { return false };
            let Some((header, cells)) = rest.split_at_checked(12) else { return false };
            let Some((cells, next)) = cells.split_at_checked(size) else { return false };
            if header[..4] != n.to_le_bytes() || header[4..8] != n.to_le_bytes() || header[8..] != [0; 4] {
                return false;
            }
            let (from, to) = (run.start.max(at), run.end.min(at + size));
            out[from - run.start..to - run.start].copy_from_slice(&cells[from - at..to - at]);
            (at, rest) = (at + size, next);
        }
        true
    }

    /// Cells per chunk if the writer used the pipeline's chunk size; `None` where a tile is one chunk.
    pub fn cells_per_chunk(&self) -> Option<u64> {
        let cells = (self.max_chunk / self.cell) as u64;
        (cells > 0).then_some(cells)
    }

    /// Decodes a tile of strings with offsets: appends `cells` strings of `bytes` bytes in total to `data`, and the end of each
    /// to `ends`.
    ///
    /// # Errors
    /// As [`decode_into`](Self::decode_into).
    #[allow(clippy::too_many_arguments)]
    pub fn decode_strings(
        &self,
        tile: &[u8],
        cells: usize,
        bytes: usize,
        ends: &mut Vec<u64>,
        data: &mut Vec<u8>,
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let mut chunks = Chunks::new(tile)?;
        let Some(chunk) = chunks.next().transpose()? else {
            return if cells == 0 {
                Ok(())
            } else {
                Err(Error::codec("tile", "tile of strings has no chunk"))
            };
        };
        if chunks.next().is_some() || chunk.original != bytes {
            let detail = format!(
                "expected one chunk of {bytes} bytes of strings, its header declares {}",
                chunk.original
            );
            return Err(Error::codec("tile", detail));
        }
        let mut work = std::mem::take(&mut contexts.filter);
        let undone = self.reverse_filters(
            &chunk,
            bytes.saturating_add(cells.saturating_mul(16)),
            1,
            rules,
            contexts,
            &mut work,
        );
        let decoded = undone.and_then(|()| {
            let FilterBuffers { meta, data: stored } = &work.from;
            match self.filters.first() {
                Some((Filter::Rle, _)) => rle::decode_strings(meta, stored, cells, bytes, ends, data),
                _ => dictionary::decode_strings(meta, stored, cells, bytes, ends, data),
            }
        });
        contexts.filter = work;
        decoded
    }

    /// Decodes a chunk into its slice of the output.
    fn chunk_into(
        &self,
        chunk: &FilteredChunk<'_>,
        out: &mut [u8],
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        match self.filters.as_slice() {
            [] => return crate::raw::decode_into(chunk.data, out),
            [(filter @ (Filter::Zstd { .. } | Filter::Lz4 { .. } | Filter::Gzip { .. }), _)]
                if !out.is_empty() =>
            {
                if let Some(part) = compressor::single(chunk.meta, chunk.data, out.len()) {
                    return match filter {
                        Filter::Zstd { .. } => zstd::decode_into(part, out, contexts),
                        Filter::Lz4 { .. } => lz4::decode_into(part, out),
                        _ => gzip::decode_into(part, out),
                    };
                }
            }
            _ => {}
        }
        let mut work = std::mem::take(&mut contexts.filter);
        let undone = self.reverse_filters(chunk, out.len(), 0, rules, contexts, &mut work);
        let copied = undone.and_then(|()| {
            if work.from.data.len() != out.len() {
                let detail =
                    format!("filters produced {} bytes, expected {}", work.from.data.len(), out.len());
                return Err(Error::codec("tile", detail));
            }
            out.copy_from_slice(&work.from.data);
            Ok(())
        });
        contexts.filter = work;
        copied
    }

    /// Reverses all filters but the first `keep`. The result is in `work.from`.
    fn reverse_filters(
        &self,
        chunk: &FilteredChunk<'_>,
        original: usize,
        keep: usize,
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
        work: &mut FilterScratch,
    ) -> Result<()> {
        let cap = original.saturating_mul(8).saturating_add(SLACK);
        work.from.clear();
        let mut first = true;
        for &(filter, word) in self.filters.iter().skip(keep).rev() {
            work.to.clear();
            let (meta, data) =
                if first { (chunk.meta, chunk.data) } else { (&work.from.meta[..], &work.from.data[..]) };
            reverse(filter, word, self.cell, meta, data, &mut work.to, cap, rules, contexts)?;
            std::mem::swap(&mut work.from, &mut work.to);
            first = false;
        }
        if first {
            noop::reverse(chunk.meta, chunk.data, &mut work.from)?;
        }
        Ok(())
    }
}

#[allow(clippy::too_many_arguments)]
fn reverse(
    filter: Filter,
    word: FilterElement,
    cell: usize,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
    cap: usize,
    rules: &FilterContext<'_>,
    contexts: &mut Contexts,
) -> Result<()> {
    let name = filter.name();
    match filter {
        Filter::Noop => noop::reverse(meta, data, out),
        Filter::Gzip { .. } => compressor::reverse(name, meta, data, out, cap, gzip::decode_into),
        Filter::Lz4 { .. } => compressor::reverse(name, meta, data, out, cap, lz4::decode_into),
        Filter::Bzip2 { .. } => compressor::reverse(name, meta, data, out, cap, bzip2::decode_into),
        Filter::Zstd { .. } => {
            compressor::reverse(name, meta, data, out, cap, |src, dst| zstd::decode_into(src, dst, contexts))
        }
        Filter::Rle => {
            compressor::reverse(name, meta, data, out, cap, |src, dst| rle::decode_into(cell, src, dst))
        }
        Filter::Dictionary => {
            Err(Error::unsupported("dictionary filter on cells that are not variable-length strings"))
        }
        Filter::Delta { reinterpret } => {
            let word = integer_word(name, reinterpret.unwrap_or(word))?;
            compressor::reverse(name, meta, data, out, cap, |src, dst| delta::decode_into(word, src, dst))
        }
        Filter::DoubleDelta { reinterpret } => {
            let word = integer_word(name, reinterpret.unwrap_or(word))?;
            compressor::reverse(name, meta, data, out, cap, |src, dst| {
                double_delta::decode_into(word, src, dst)
            })
        }
        Filter::BitWidthReduction { .. } => {
            bit_width_reduction::reverse(word, rules.version, meta, data, out, cap)
        }
        Filter::PositiveDelta { .. } => positive_delta::reverse(word, rules.version, meta, data, out, cap),
        Filter::BitShuffle => bitshuffle::reverse(word, meta, data, out, cap),
        Filter::ByteShuffle => byteshuffle::reverse(word, meta, data, out, cap),
        Filter::Xor => xor::reverse(word, meta, data, out, cap),
        Filter::FloatScale { scale, offset, width } => {
            float_scale::reverse(word, &Scale { scale, offset, width }, meta, data, out, cap)
        }
        Filter::Md5 => checksum::reverse::<md5::Md5>(name, rules.verify, meta, data, out),
        Filter::Sha256 => checksum::reverse::<sha2::Sha256>(name, rules.verify, meta, data, out),
        Filter::Aes256Gcm => encryption::reverse(rules.key, meta, data, out, cap),
        Filter::WebP { channels, .. } => webp::reverse(word, channels, meta, data, out, cap),
    }
}

/// Delta filters compute in integers of up to 8 bytes; floats reach them only reinterpreted.
pub(super) fn integer_word(name: &'static str, word: FilterElement) -> Result<FilterElement> {
    if word.kind == ElementKind::Float || !matches!(word.size, 1 | 2 | 4 | 8) {
        return Err(Error::codec(
            name,
            format!("elements of {} bytes are not integers of up to 8 bytes", word.size),
        ));
    }
    Ok(word)
}
