//! A filter pipeline, applied chunk by chunk.

use tesseral_core::{Error, Result};

use super::chain::{Chain, FilterContext, FilterScratch, integer_word};
use super::float_scale::Scale;
use super::header::put_len;
use super::{
    Filter, FilterBuffers, FilterElement, bit_width_reduction, bitshuffle, byteshuffle, bzip2, checksum,
    compressor, delta, dictionary, double_delta, encryption, float_scale, gzip, lz4, noop, positive_delta,
    rle, xor, zstd,
};
use crate::Contexts;

impl Chain {
    /// Appends the filtered tile of fixed-size cells.
    ///
    /// # Errors
    /// `Codec` when a filter cannot encode the cells, such as decreasing values in a positive delta; `Unsupported` for a filter
    /// without an encoder; `InvalidRequest` without a key; `Limit`.
    pub fn encode(
        &self,
        cells: &[u8],
        out: &mut Vec<u8>,
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let step = self.step(cells.len());
        self.encode_cut(cells, (1..).map(|n| n * step), out, rules, contexts)
    }

    /// The encoded size of a tile of `len` bytes of cells, if it does not depend on the values.
    pub fn plain_len(&self, len: usize) -> Option<u64> {
        let chunks = len.div_ceil(self.step(len)).max(1) as u64;
        self.filters.is_empty().then_some(8 + 12 * chunks + len as u64)
    }

    /// Appends the filtered tile of the data of variable-length cells; `ends` holds the end of each cell. Chunks end at cell
    /// boundaries.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_var(
        &self,
        ends: &[u64],
        data: &[u8],
        out: &mut Vec<u8>,
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let cuts = self.cuts(ends, data.len());
        self.encode_cut(data, cuts.into_iter(), out, rules, contexts)
    }

    /// Appends the filtered tile of strings with their offsets.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_strings(
        &self,
        ends: &[u64],
        data: &[u8],
        out: &mut Vec<u8>,
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let mut work = std::mem::take(&mut contexts.filter);
        work.from.clear();
        let first = match self.filters.first() {
            Some((Filter::Rle, _)) => rle::encode_strings,
            _ => dictionary::encode_strings,
        };
        let done = first(ends, data, &mut work.from.meta, &mut work.from.data)
            .and_then(|()| self.apply(1, rules, contexts, &mut work));
        out.extend_from_slice(&1_u64.to_le_bytes());
        let put = done.and_then(|()| put_chunk(data.len(), &work.from, out));
        contexts.filter = work;
        put
    }

    /// Rejects cells that a lossy filter cannot represent within its precision.
    ///
    /// # Errors
    /// `InvalidRequest`, naming the first such cell.
    pub fn check_cells(&self, cells: &[u8]) -> Result<()> {
        match self.filters.first() {
            Some(&(Filter::FloatScale { scale, offset, width }, word)) => {
                float_scale::check_cells(word, &Scale { scale, offset, width }, cells)
            }
            _ => Ok(()),
        }
    }

    /// The chunk size of a tile: whole cells, at least one.
    pub(super) fn step(&self, tile: usize) -> usize {
        if self.max_chunk == 0 {
            return tile.max(1);
        }
        (self.max_chunk.min(tile) / self.cell).max(1) * self.cell
    }

    /// The chunk boundaries of variable-length cells: near the requested size, rather above than far below.
    fn cuts(&self, ends: &[u64], bytes: usize) -> Vec<usize> {
        let step = self.step(bytes);
        let mut cuts = Vec::new();
        let (mut start, mut last) = (0, 0);
        for end in ends {
            let end = usize::try_from(*end).unwrap_or(usize::MAX);
            if end - start > step {
                let joins = last - start <= step / 2 || end - start <= step + step / 2;
                if !joins {
                    cuts.push(last);
                    start = last;
                }
                if joins || end - start > step {
                    cuts.push(end);
                    start = end;
                }
            }
            last = end;
        }
        cuts.push(bytes);
        cuts
    }

    /// Encodes chunks that end at `cuts`; an empty tile is one empty chunk.
    fn encode_cut(
        &self,
        data: &[u8],
        cuts: impl Iterator<Item = usize>,
        out: &mut Vec<u8>,
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let count_at = out.len();
        if self.filters.is_empty() {
            out.reserve(8 + data.len() + data.len().div_ceil(self.step(data.len())).max(1) * 12);
        }
        out.extend_from_slice(&[0; 8]);
        let mut start = 0;
        let mut count = 0_u64;
        for cut in cuts {
            let end = cut.min(data.len());
            if end > start || data.is_empty() {
                self.encode_chunk(&data[start..end], out, rules, contexts)?;
                count += 1;
            }
            start = end;
            if end == data.len() {
                break;
            }
        }
        out[count_at..count_at + 8].copy_from_slice(&count.to_le_bytes());
        Ok(())
    }

    fn encode_chunk(
        &self,
        chunk: &[u8],
        out: &mut Vec<u8>,
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        if self.filters.is_empty() {
            put_lens(chunk.len(), chunk.len(), 0, out)?;
            out.extend_from_slice(chunk);
            return Ok(());
        }
        if let [(Filter::Zstd { level }, _)] = self.filters.as_slice() {
            return encode_zstd(chunk, *level, out, contexts);
        }
        let mut work = std::mem::take(&mut contexts.filter);
        work.from.clear();
        work.from.data.extend_from_slice(chunk);
        let done = self.apply(0, rules, contexts, &mut work);
        let put = done.and_then(|()| put_chunk(chunk.len(), &work.from, out));
        contexts.filter = work;
        put
    }

    /// Applies all filters after the first `skip` to `work.from`.
    fn apply(
        &self,
        skip: usize,
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
        work: &mut FilterScratch,
    ) -> Result<()> {
        for &(filter, word) in self.filters.iter().skip(skip) {
            work.to.clear();
            let FilterBuffers { meta, data } = &work.from;
            forward(filter, word, self.cell, meta, data, &mut work.to, rules, contexts)?;
            std::mem::swap(&mut work.from, &mut work.to);
        }
        Ok(())
    }
}

/// Appends a chunk that is one Zstandard frame, compressed directly into the output; the bytes are the same as with buffers.
fn encode_zstd(chunk: &[u8], level: i32, out: &mut Vec<u8>, contexts: &mut Contexts) -> Result<()> {
    const HEADER: usize = 16;
    let lens = out.len();
    put_lens(chunk.len(), 0, HEADER, out)?;
    [0, 1, chunk.len(), 0].into_iter().try_for_each(|n| put_len("zstd", n, out))?;
    let start = out.len();
    zstd::encode(chunk, level, out, contexts)?;
    let mut filtered = Vec::with_capacity(4);
    put_len("zstd", out.len() - start, &mut filtered)?;
    // Known only now: stored in the lengths of the chunk and at the end of the compressor's header.
    out[lens + 4..lens + 8].copy_from_slice(&filtered);
    out[start - 4..start].copy_from_slice(&filtered);
    Ok(())
}

fn put_lens(original: usize, data: usize, meta: usize, out: &mut Vec<u8>) -> Result<()> {
    [original, data, meta].into_iter().try_for_each(|n| put_len("tile", n, out))
}

fn put_chunk(original: usize, pair: &FilterBuffers, out: &mut Vec<u8>) -> Result<()> {
    put_lens(original, pair.data.len(), pair.meta.len(), out)?;
    out.extend_from_slice(&pair.meta);
    out.extend_from_slice(&pair.data);
    Ok(())
}

#[allow(clippy::too_many_arguments)]
fn forward(
    filter: Filter,
    word: FilterElement,
    cell: usize,
    meta: &[u8],
    data: &[u8],
    out: &mut FilterBuffers,
    rules: &FilterContext<'_>,
    contexts: &mut Contexts,
) -> Result<()> {
    let name = filter.name();
    match filter {
        Filter::Noop => noop::reverse(meta, data, out),
        Filter::Gzip { level } => {
            compressor::forward(name, meta, data, out, |src, out| gzip::encode(src, level, out))
        }
        Filter::Zstd { level } => {
            compressor::forward(name, meta, data, out, |src, out| zstd::encode(src, level, out, contexts))
        }
        Filter::Lz4 { .. } => compressor::forward(name, meta, data, out, lz4::encode),
        Filter::Bzip2 { level } => {
            compressor::forward(name, meta, data, out, |src, out| bzip2::encode(src, level, out))
        }
        Filter::Rle => compressor::forward(name, meta, data, out, |src, out| rle::encode(cell, src, out)),
        Filter::Dictionary => {
            Err(Error::unsupported("dictionary filter on cells that are not variable-length strings"))
        }
        Filter::Delta { reinterpret } => {
            let word = integer_word(name, reinterpret.unwrap_or(word))?;
            compressor::forward(name, meta, data, out, |src, out| delta::encode(word, src, out))
        }
        Filter::DoubleDelta { reinterpret } => {
            let word = integer_word(name, reinterpret.unwrap_or(word))?;
            compressor::forward(name, meta, data, out, |src, out| double_delta::encode(word, src, out))
        }
        Filter::BitWidthReduction { window } => {
            bit_width_reduction::forward(word, window, rules.version, meta, data, out)
        }
        Filter::PositiveDelta { window } => {
            positive_delta::forward(word, window, rules.version, meta, data, out)
        }
        Filter::BitShuffle => bitshuffle::forward(word, meta, data, out),
        Filter::ByteShuffle => byteshuffle::forward(word, meta, data, out),
        Filter::Xor => xor::forward(word, meta, data, out),
        Filter::FloatScale { scale, offset, width } => {
            float_scale::forward(word, &Scale { scale, offset, width }, meta, data, out)
        }
        Filter::Md5 => checksum::forward::<md5::Md5>(name, meta, data, out),
        Filter::Sha256 => checksum::forward::<sha2::Sha256>(name, meta, data, out),
        Filter::Aes256Gcm => encryption::forward(rules.key, meta, data, out),
        Filter::WebP { .. } => Err(Error::unsupported("writing tiles with the webp filter")),
    }
}
