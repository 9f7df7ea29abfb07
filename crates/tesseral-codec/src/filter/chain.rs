//! A list of filters, undone chunk by chunk. What does it is in [`encode`](super::encode).
//!
//! ```text
//! u64 chunks │ per chunk: u32 original │ u32 filtered │ u32 metadata │ metadata bytes │ filtered bytes
//! ```

use tesseral_core::{Error, Result};

use super::float_scale::Scale;
use super::{
    Filter, Kind, Pair, Word, bit_width_reduction, bitshuffle, byteshuffle, bzip2, checksum, compressor,
    delta, dictionary, double_delta, encryption, float_scale, gzip, lz4, noop, positive_delta, rle, xor,
    zstd,
};
use crate::Contexts;

/// Bytes that a stage between filters may take beside what the chunk decodes to: headers of small windows.
const SLACK: usize = 1 << 20;

/// Bytes of a chunk that writers make unless told otherwise.
const MAX_CHUNK: usize = 1 << 16;

/// How filters are done and undone.
#[derive(Clone, Copy, Debug)]
pub struct Rules<'a> {
    /// Format version of the writer.
    pub version: u32,
    /// Compare checksums.
    pub verify: bool,
    /// The key of encrypted tiles.
    pub key: Option<&'a [u8; 32]>,
}

/// Buffers of the stages between filters, kept from chunk to chunk.
#[derive(Debug, Default)]
pub struct Work {
    pub(super) from: Pair,
    pub(super) to: Pair,
}

/// One chunk of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Bytes before filtering.
    pub original: usize,
    /// What the last filter left as metadata.
    pub meta: &'a [u8],
    /// What the last filter left as data.
    pub data: &'a [u8],
}

/// The chunks of a filtered tile, in order. Ends after the first fault.
#[derive(Clone, Debug)]
pub struct Chunks<'a> {
    rest: &'a [u8],
    left: u64,
}

impl<'a> Chunks<'a> {
    /// Reads the count.
    ///
    /// # Errors
    /// `Codec` when the count does not fit the bytes.
    pub fn new(tile: &'a [u8]) -> Result<Self> {
        let Some((count, rest)) = tile.split_first_chunk::<8>() else {
            return Err(Error::codec(
                "tile",
                format!("expected a count of chunks, found {} bytes", tile.len()),
            ));
        };
        let left = u64::from_le_bytes(*count);
        if left > rest.len() as u64 / 12 {
            return Err(Error::codec("tile", format!("{left} chunks do not fit in {} bytes", rest.len())));
        }
        Ok(Self { rest, left })
    }

    /// Bytes of all chunks before filtering.
    ///
    /// # Errors
    /// `Codec` when a chunk is cut short.
    pub fn original_len(self) -> Result<u64> {
        self.map(|chunk| chunk.map(|c| c.original as u64)).sum()
    }

    fn chunk(&mut self) -> Option<Chunk<'a>> {
        let (lens, rest) = self.rest.split_first_chunk::<12>()?;
        let [a, b, c] =
            [0, 4, 8].map(|i| u32::from_le_bytes([lens[i], lens[i + 1], lens[i + 2], lens[i + 3]]));
        let (meta, rest) = rest.split_at_checked(usize::try_from(c).ok()?)?;
        let (data, rest) = rest.split_at_checked(usize::try_from(b).ok()?)?;
        self.rest = rest;
        Some(Chunk { original: usize::try_from(a).ok()?, meta, data })
    }
}

impl<'a> Iterator for Chunks<'a> {
    type Item = Result<Chunk<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        let chunk = self.chunk();
        if chunk.is_none() {
            self.left = 0;
        }
        Some(chunk.ok_or_else(|| {
            Error::codec("tile", format!("a chunk is cut short, {} bytes are left", self.rest.len()))
        }))
    }
}

/// Filters with the elements each of them works on.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// In the order they encode, with their input's elements.
    pub(super) filters: Vec<(Filter, Word)>,
    /// Bytes of a cell, the unit of run lengths.
    pub(super) cell: usize,
    /// The first filter holds strings together with their offsets.
    strings: bool,
    /// Bytes of a chunk that a writer makes; 0 for one chunk per tile.
    pub(super) max_chunk: usize,
}

impl Chain {
    /// A chain over cells of `cell` bytes of `word` elements. With `strings`, the tile holds cells of any length: a first
    /// filter that runs over strings then carries the offsets too.
    pub fn new(
        filters: impl IntoIterator<Item = Filter>,
        mut word: Word,
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

    /// Makes chunks of about this many bytes when encoding; 0 for one chunk per tile.
    #[must_use]
    pub fn chunks_of(mut self, bytes: u32) -> Self {
        self.max_chunk = usize::try_from(bytes).unwrap_or(0);
        self
    }

    /// Whether tiles hold strings together with their offsets: [`decode_strings`](Self::decode_strings) reads them.
    pub fn holds_strings(&self) -> bool {
        self.strings
    }

    /// The filters, in the order they encode.
    pub fn filters(&self) -> impl Iterator<Item = &Filter> {
        self.filters.iter().map(|(filter, _)| filter)
    }

    /// Whether a filter of the chain keeps digests of its bytes.
    pub fn has_digest(&self) -> bool {
        self.filters().any(|f| matches!(f, Filter::Md5 | Filter::Sha256 | Filter::Aes256Gcm))
    }

    /// Where the bytes of an unfiltered tile of one chunk are in the tile: what follows the lengths *is* the cells.
    pub fn is_plain(&self) -> bool {
        self.filters.is_empty()
    }

    /// Decodes a tile that holds exactly `out.len()` bytes.
    ///
    /// # Errors
    /// `Codec` when the bytes are damaged; `Unsupported` for a filter that is not decoded; `InvalidRequest` without a key.
    pub fn decode_into(
        &self,
        tile: &[u8],
        out: &mut [u8],
        rules: &Rules<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        self.decode_run(tile, out.len(), 0, out, rules, contexts)
    }

    /// Decodes `out.len()` bytes from byte `start` on of a tile that holds `len`. Chunks that hold none of them are only counted.
    ///
    /// # Errors
    /// As [`decode_into`](Self::decode_into).
    pub fn decode_run(
        &self,
        tile: &[u8],
        len: usize,
        start: usize,
        out: &mut [u8],
        rules: &Rules<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let wanted = start..start.saturating_add(out.len()).min(len);
        if wanted.len() != out.len() {
            return Err(Error::invalid(format!("{} bytes from {start} on of {len}", out.len())));
        }
        let mut at = 0_usize;
        let mut chunks = Chunks::new(tile)?;
        for chunk in chunks.by_ref() {
            let chunk = chunk?;
            let Some(end) = at.checked_add(chunk.original).filter(|end| *end <= len) else {
                let detail = format!("a chunk of {} bytes passes the {len} of the tile", chunk.original);
                return Err(Error::codec("tile", detail));
            };
            let (from, to) = (at.max(wanted.start), end.min(wanted.end));
            if at >= wanted.start && end <= wanted.end {
                self.chunk_into(&chunk, &mut out[at - start..end - start], rules, contexts)?;
            } else if from < to {
                let mut whole = vec![0; chunk.original];
                self.chunk_into(&chunk, &mut whole, rules, contexts)?;
                out[from - start..to - start].copy_from_slice(&whole[from - at..to - at]);
            }
            at = end;
        }
        if at < len || !chunks.rest.is_empty() {
            let detail = format!(
                "chunks hold {at} of the {len} bytes of the tile, and {} bytes follow them",
                chunks.rest.len()
            );
            return Err(Error::codec("tile", detail));
        }
        Ok(())
    }

    /// Cells that share a chunk, as far as writers keep to what the chain says; `None` where a tile is one chunk.
    pub fn cells_per_chunk(&self) -> Option<u64> {
        let cells = (self.max_chunk / self.cell) as u64;
        (cells > 0).then_some(cells)
    }

    /// Decodes a tile of strings that carries its offsets: appends `cells` strings of `bytes` bytes in all to `data`, and the
    /// end of each to `ends`.
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
        rules: &Rules<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let mut chunks = Chunks::new(tile)?;
        let Some(chunk) = chunks.next().transpose()? else {
            return if cells == 0 {
                Ok(())
            } else {
                Err(Error::codec("tile", "a tile of strings without a chunk"))
            };
        };
        if chunks.next().is_some() || chunk.original != bytes {
            let detail =
                format!("a tile of strings is one chunk of {bytes} bytes, this says {}", chunk.original);
            return Err(Error::codec("tile", detail));
        }
        let mut work = std::mem::take(&mut contexts.filter);
        let undone =
            self.undo(&chunk, bytes.saturating_add(cells.saturating_mul(16)), 1, rules, contexts, &mut work);
        let decoded = undone.and_then(|()| {
            let Pair { meta, data: stored } = &work.from;
            match self.filters.first() {
                Some((Filter::Rle, _)) => rle::decode_strings(meta, stored, cells, bytes, ends, data),
                _ => dictionary::decode_strings(meta, stored, cells, bytes, ends, data),
            }
        });
        contexts.filter = work;
        decoded
    }

    /// Decodes one chunk where it belongs.
    fn chunk_into(
        &self,
        chunk: &Chunk<'_>,
        out: &mut [u8],
        rules: &Rules<'_>,
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
        let undone = self.undo(chunk, out.len(), 0, rules, contexts, &mut work);
        let copied = undone.and_then(|()| {
            if work.from.data.len() != out.len() {
                let detail =
                    format!("filters gave {} bytes, the chunk has {}", work.from.data.len(), out.len());
                return Err(Error::codec("tile", detail));
            }
            out.copy_from_slice(&work.from.data);
            Ok(())
        });
        contexts.filter = work;
        copied
    }

    /// Undoes all filters but the first `keep`. The outcome is in `work.from`.
    fn undo(
        &self,
        chunk: &Chunk<'_>,
        original: usize,
        keep: usize,
        rules: &Rules<'_>,
        contexts: &mut Contexts,
        work: &mut Work,
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
    word: Word,
    cell: usize,
    meta: &[u8],
    data: &[u8],
    out: &mut Pair,
    cap: usize,
    rules: &Rules<'_>,
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
            Err(Error::unsupported("a dictionary filter on cells that are not strings of any length"))
        }
        Filter::Delta { reinterpret } => {
            let word = number(name, reinterpret.unwrap_or(word))?;
            compressor::reverse(name, meta, data, out, cap, |src, dst| delta::decode_into(word, src, dst))
        }
        Filter::DoubleDelta { reinterpret } => {
            let word = number(name, reinterpret.unwrap_or(word))?;
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
        Filter::WebP => Err(Error::unsupported("TileDB filter 18 (webp)")),
    }
}

/// Delta filters compute in integers of up to 8 bytes; floats come to them only reinterpreted.
pub(super) fn number(name: &'static str, word: Word) -> Result<Word> {
    if word.kind == Kind::Float || !matches!(word.size, 1 | 2 | 4 | 8) {
        return Err(Error::codec(name, format!("elements of {} bytes are not integers", word.size)));
    }
    Ok(word)
}
