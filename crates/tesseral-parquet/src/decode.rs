//! Pages of a column chunk to cells.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use parquet::basic::{CompressionCodec as Codec, Type as Physical};
use parquet::file::metadata::ColumnChunkMetaData;
use tesseral_codec::Contexts;
use tesseral_core::{DType, Error, Result, alloc};
use tesseral_format::CellsOut;

use crate::encoding::{self, Hybrid, PLAIN, PLAIN_DICTIONARY, PageBuffers, PageReader, PageValues, Width};
use crate::kind::Kind;
use crate::thrift;

/// Rows whose levels and values are in memory at once.
const BLOCK: usize = 4096;
/// The Julian day of 1970-01-01, and nanoseconds of a day.
const EPOCH: i64 = 2_440_588;
const DAY: i64 = 86_400_000_000_000;

/// The header of a page.
#[derive(Default)]
struct PageHeader {
    kind: i64,
    raw: i64,
    stored: i64,
    values: i64,
    encoding: i64,
    /// Encoding of the levels, of the first version of pages.
    levels: i64,
    /// Bytes of the levels before the values, of the second version of pages.
    level_bytes: i64,
    stored_raw: bool,
}

const DATA: i64 = 0;
const INDEX: i64 = 1;
const DICTIONARY: i64 = 2;
const DATA_V2: i64 = 3;
/// The encoding of levels.
const RLE: i64 = 3;

impl PageHeader {
    /// Parses a header at the start of `bytes`, and returns it with its length.
    fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let mut page = Self { kind: -1, levels: RLE, ..Self::default() };
        let len = thrift::walk(bytes, &mut |path, value| {
            match path {
                [1] => page.kind = value,
                [2] => page.raw = value,
                [3] => page.stored = value,
                [5 | 7 | 8, 1] => page.values = value,
                [5 | 7, 2] | [8, 4] => page.encoding = value,
                [5, 3] => page.levels = value,
                // Levels of repetition: the columns have none.
                [8, 6] if value != 0 => return None,
                [8, 5] => page.level_bytes = value,
                [8, 7] => page.stored_raw = value == 0,
                _ => {}
            }
            Some(())
        })?;
        Some((page, len))
    }
}

/// The bytes of a page of data.
struct PageBody<'a> {
    /// Levels that are stored in front of the values, without compression.
    before: &'a [u8],
    body: Cow<'a, [u8]>,
    /// Levels at the start of the body.
    levels: Range<usize>,
    /// Start of the values.
    start: usize,
}

impl PageBody<'_> {
    fn levels(&self) -> &[u8] {
        if self.levels.is_empty() {
            self.before
        } else {
            self.body.get(self.levels.clone()).unwrap_or_default()
        }
    }

    fn values(&self) -> &[u8] {
        self.body.get(self.start..).unwrap_or_default()
    }
}

/// Whether rows have values.
struct PageLevels<'a> {
    runs: Hybrid<'a>,
    /// The level of a value; 0 where no row can be null.
    most: u32,
    found: Vec<u32>,
}

impl<'a> PageLevels<'a> {
    fn new(bytes: &'a [u8], most: u32) -> Option<Self> {
        Some(Self { runs: Hybrid::new(bytes, u32::BITS - most.leading_zeros())?, most, found: Vec::new() })
    }

    /// The levels of the next rows, at most [`BLOCK`]; none where no row can be null.
    fn block(&mut self, rows: usize) -> Option<&[u32]> {
        if self.most > 0 {
            alloc::resize("the levels of a page", &mut self.found, rows.min(BLOCK), 0).ok()?;
            self.runs.fill(&mut self.found)?;
        }
        self.found.iter().all(|level| *level <= self.most).then_some(&self.found[..])
    }

    /// Number of values in that many rows.
    fn count_values(mut self, rows: usize) -> Option<usize> {
        let mut some = 0;
        for start in (0..rows).step_by(BLOCK) {
            let most = self.most;
            some += self.block(BLOCK.min(rows - start))?.iter().filter(|level| **level == most).count();
        }
        Some(some)
    }
}

/// A column chunk to decode.
pub(crate) struct ColumnChunk<'a> {
    pub(crate) metadata: &'a ColumnChunkMetaData,
    pub(crate) kind: Kind,
    pub(crate) rows: u64,
    pub(crate) object: &'a str,
    /// Offset of the first page in the file.
    pub(crate) offset: u64,
}

impl ColumnChunk<'_> {
    fn corrupt(&self, detail: impl Into<String>) -> Error {
        Error::corrupt("column chunk", self.object, self.offset, detail)
    }

    /// How the values are stored.
    fn width(&self) -> Option<Width> {
        Some(match self.metadata.column_type() {
            Physical::BOOLEAN => Width::Bit,
            Physical::INT32 | Physical::FLOAT => Width::Bytes(4),
            Physical::INT64 | Physical::DOUBLE => Width::Bytes(8),
            Physical::INT96 => Width::Bytes(12),
            Physical::BYTE_ARRAY => Width::Variable,
            Physical::FIXED_LEN_BYTE_ARRAY => {
                Width::Bytes(usize::try_from(self.metadata.column_descr().type_length()).ok()?)
            }
        })
    }

    /// Decodes all cells.
    pub(crate) fn decode(
        &self,
        bytes: &Bytes,
        out: &mut CellsOut<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let damaged = || self.corrupt("the pages contradict the metadata");
        let width = self.width().ok_or_else(damaged)?;
        let (mut rest, mut done, mut raw_len) = (&bytes[..], 0_u64, 0_u64);
        let (mut dictionary, mut held) = (None, 0_usize);
        let mut buffers = PageBuffers::default();
        while done < self.rows {
            let (page, header) = PageHeader::parse(rest).ok_or_else(damaged)?;
            let stored = usize::try_from(page.stored).ok();
            let body = stored.and_then(|len| rest.get(header..)?.get(..len)).ok_or_else(damaged)?;
            rest = &rest[header + body.len()..];
            let size = |number: i64| usize::try_from(number).map_err(|_| damaged());
            let (raw, count) = (size(page.raw)?, size(page.values)?);
            raw_len = raw_len.saturating_add(raw as u64);
            out.limits().check_decoded(raw_len, bytes.len() as u64)?;
            // A page in memory: stored bytes are borrowed.
            let unpacked = if self.metadata.compression_codec() == Codec::UNCOMPRESSED { 0 } else { raw };
            match page.kind {
                DICTIONARY if done == 0 && dictionary.is_none() => {
                    held = encoding::plain_size(raw, count, width).ok_or_else(damaged)?;
                    out.set_decoded(held.saturating_add(unpacked))?;
                    let body = self.unpacked(body, raw, contexts)?;
                    // Both names of the encoding mean plain values here.
                    let plain = [PLAIN, PLAIN_DICTIONARY].contains(&page.encoding);
                    let values = if plain { encoding::plain(&body, count, width)? } else { None };
                    dictionary = Some(values.ok_or_else(damaged)?);
                }
                DATA | DATA_V2 => {
                    if count as u64 > self.rows - done {
                        return Err(damaged());
                    }
                    out.set_decoded(held.saturating_add(unpacked))?;
                    let body = self.split(&page, body, raw, contexts)?;
                    self.page(&page, count, &body, dictionary.as_ref(), width, out, &mut buffers)?;
                    done += count as u64;
                }
                INDEX => {}
                _ => return Err(damaged()),
            }
        }
        Ok(())
    }

    /// Decompresses bytes.
    fn unpacked<'b>(&self, bytes: &'b [u8], len: usize, contexts: &mut Contexts) -> Result<Cow<'b, [u8]>> {
        let codec = self.metadata.compression_codec();
        if codec == Codec::UNCOMPRESSED {
            return if bytes.len() == len {
                Ok(Cow::Borrowed(bytes))
            } else {
                Err(self.corrupt("the length of a page differs"))
            };
        }
        if len == 0 {
            return Ok(Cow::Owned(Vec::new()));
        }
        let mut out = alloc::zeroed::<u8>("a page", len)?;
        match codec {
            Codec::ZSTD => tesseral_codec::zstd::decode_into(bytes, &mut out, contexts)?,
            Codec::GZIP => tesseral_codec::zlib::decode_gzip_into(bytes, &mut out)?,
            Codec::LZ4_RAW => tesseral_codec::lz4::decode_block_into(bytes, &mut out)?,
            Codec::SNAPPY => {
                let declared = snap::raw::decompress_len(bytes).map_err(|e| Error::codec("snappy", e))?;
                if declared != len {
                    return Err(Error::codec(
                        "snappy",
                        format!("expected {len} bytes, the block declares {declared}"),
                    ));
                }
                snap::raw::Decoder::new()
                    .decompress(bytes, &mut out)
                    .map_err(|e| Error::codec("snappy", e))?;
            }
            other => return Err(Error::unsupported(format!("codec {other:?} of Parquet"))),
        }
        Ok(Cow::Owned(out))
    }

    /// The levels and values of a page.
    fn split<'b>(
        &self,
        page: &PageHeader,
        body: &'b [u8],
        raw: usize,
        contexts: &mut Contexts,
    ) -> Result<PageBody<'b>> {
        let damaged = || self.corrupt("the levels of a page are damaged");
        if page.kind == DATA_V2 {
            let levels = usize::try_from(page.level_bytes).map_err(|_| damaged())?;
            let (before, values) = body.split_at_checked(levels).ok_or_else(damaged)?;
            let raw = raw.checked_sub(levels).ok_or_else(damaged)?;
            let body =
                if page.stored_raw { Cow::Borrowed(values) } else { self.unpacked(values, raw, contexts)? };
            return Ok(PageBody { before, body, levels: 0..0, start: 0 });
        }
        let body = self.unpacked(body, raw, contexts)?;
        if self.metadata.column_descr().max_def_level() == 0 {
            return Ok(PageBody { before: &[], body, levels: 0..0, start: 0 });
        }
        if page.levels != RLE {
            return Err(Error::unsupported("bit-packed levels of Parquet"));
        }
        let len = body.get(..4).and_then(|len| len.try_into().ok()).map(u32::from_le_bytes);
        let end = len.and_then(|len| (len as usize).checked_add(4)).filter(|end| *end <= body.len());
        let start = end.ok_or_else(damaged)?;
        Ok(PageBody { before: &[], body, levels: 4..start, start })
    }

    /// Adds the cells of a page, a block of rows at a time.
    #[allow(clippy::too_many_arguments)]
    fn page(
        &self,
        page: &PageHeader,
        count: usize,
        body: &PageBody<'_>,
        dictionary: Option<&PageValues>,
        width: Width,
        out: &mut CellsOut<'_>,
        buffers: &mut PageBuffers,
    ) -> Result<()> {
        let damaged = || self.corrupt("the values of a page are damaged");
        let other = || self.corrupt("a value is not of the column's type");
        let most = u32::try_from(self.metadata.column_descr().max_def_level()).map_err(|_| damaged())?;
        let mut levels = PageLevels::new(body.levels(), most).ok_or_else(damaged)?;
        let some = if most > 0 {
            PageLevels::new(body.levels(), most)
                .and_then(|all| all.count_values(count))
                .ok_or_else(damaged)?
        } else {
            count
        };
        let mut values =
            PageReader::new(page.encoding, body.values(), some, width, dictionary).ok_or_else(damaged)?;
        let (size, stored) = (values.width(), self.stores_cells());
        for start in (0..count).step_by(BLOCK) {
            let rows = BLOCK.min(count - start);
            let found = levels.block(rows).ok_or_else(damaged)?;
            let is_value = |row: usize| found.get(row).is_none_or(|level| *level == most);
            let Some(size) = size else {
                for row in 0..rows {
                    let value = if is_value(row) { Some(values.text()?.ok_or_else(damaged)?) } else { None };
                    self.push(value, out)?.ok_or_else(other)?;
                }
                continue;
            };
            let some = (0..rows).filter(|row| is_value(*row)).count();
            let block = values.block(some, buffers)?.ok_or_else(damaged)?;
            if some == rows && stored {
                out.push_run(block).ok_or_else(other)?;
                continue;
            }
            let mut next = 0_usize;
            for row in 0..rows {
                let value = if is_value(row) {
                    let end = next.saturating_add(size);
                    let value = block.get(next..end).ok_or_else(damaged)?;
                    next = end;
                    Some(value)
                } else {
                    None
                };
                self.push(value, out)?.ok_or_else(other)?;
            }
        }
        Ok(())
    }

    /// Whether the stored bytes of a value are the cell.
    fn stores_cells(&self) -> bool {
        let dtype = self.kind.dtype;
        let same = match self.metadata.column_type() {
            Physical::INT32 => matches!(dtype, DType::Int32 | DType::UInt32),
            Physical::BYTE_ARRAY | Physical::INT96 => false,
            _ => true,
        };
        same && cfg!(target_endian = "little")
    }

    /// Adds a cell: numbers in native byte order.
    fn push(&self, value: Option<&[u8]>, out: &mut CellsOut<'_>) -> Result<Option<()>> {
        let Some(value) = value else { return out.push(None) };
        let dtype = self.kind.dtype;
        let int = || value.try_into().ok().map(i32::from_le_bytes);
        match (self.metadata.column_type(), dtype) {
            (Physical::BYTE_ARRAY, DType::Utf8) if std::str::from_utf8(value).is_err() => Ok(None),
            (Physical::INT32, DType::Int8) => narrowed(int().map(i8::try_from), i8::to_ne_bytes, out),
            (Physical::INT32, DType::Int16) => narrowed(int().map(i16::try_from), i16::to_ne_bytes, out),
            (Physical::INT32, DType::UInt8) => narrowed(int().map(u8::try_from), u8::to_ne_bytes, out),
            (Physical::INT32, DType::UInt16) => narrowed(int().map(u16::try_from), u16::to_ne_bytes, out),
            (Physical::INT32, DType::DateTime(_) | DType::TimeDelta(_)) => {
                int().map_or(Ok(None), |value| out.push(Some(&i64::from(value).to_ne_bytes())))
            }
            (Physical::INT96, _) => {
                let parts = value
                    .split_first_chunk::<8>()
                    .and_then(|(time, day)| Some((*time, day.try_into().ok()?)));
                let Some((time, day)) = parts else { return Ok(None) };
                let days = i64::from(i32::from_le_bytes(day)) - EPOCH;
                let count = days.checked_mul(DAY).and_then(|days| days.checked_add(i64::from_le_bytes(time)));
                count.map_or(Ok(None), |count| out.push(Some(&count.to_ne_bytes())))
            }
            _ if cfg!(target_endian = "big") && dtype.word() > 1 => {
                let mut value = value.to_vec();
                value.reverse();
                out.push(Some(&value))
            }
            _ => out.push(Some(value)),
        }
    }
}

/// Adds an integer that is stored in more bits than it has.
fn narrowed<T, E, const N: usize>(
    value: Option<std::result::Result<T, E>>,
    bytes: impl Fn(T) -> [u8; N],
    out: &mut CellsOut<'_>,
) -> Result<Option<()>> {
    match value {
        Some(Ok(value)) => out.push(Some(&bytes(value))),
        _ => Ok(None),
    }
}
