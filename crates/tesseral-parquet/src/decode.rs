//! Pages of a column chunk to cells.

use std::borrow::Cow;

use bytes::Bytes;
use parquet::basic::{CompressionCodec as Codec, Type as Physical};
use parquet::file::metadata::ColumnChunkMetaData;
use tesseral_codec::Contexts;
use tesseral_core::{DType, Error, Result, alloc};
use tesseral_format::CellsOut;

use crate::encoding::{self, Hybrid, PLAIN, PLAIN_DICTIONARY, PageValues, RLE_DICTIONARY, Width};
use crate::kind::Kind;
use crate::thrift;

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
        let mut dictionary = None;
        while done < self.rows {
            let (page, header) = PageHeader::parse(rest).ok_or_else(damaged)?;
            let stored = usize::try_from(page.stored).ok();
            let body = stored.and_then(|len| rest.get(header..)?.get(..len)).ok_or_else(damaged)?;
            rest = &rest[header + body.len()..];
            let size = |number: i64| usize::try_from(number).map_err(|_| damaged());
            let (raw, count) = (size(page.raw)?, size(page.values)?);
            raw_len = raw_len.saturating_add(raw as u64);
            out.limits().check_decoded(raw_len, bytes.len() as u64)?;
            match page.kind {
                DICTIONARY if done == 0 && dictionary.is_none() => {
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
                    let (levels, values) = self.split(&page, body, raw, contexts)?;
                    self.page(&page, count, &levels, &values, dictionary.as_ref(), width, out)?;
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
    #[allow(clippy::type_complexity)]
    fn split<'b>(
        &self,
        page: &PageHeader,
        body: &'b [u8],
        raw: usize,
        contexts: &mut Contexts,
    ) -> Result<(Cow<'b, [u8]>, Cow<'b, [u8]>)> {
        let damaged = || self.corrupt("the levels of a page are damaged");
        if page.kind == DATA_V2 {
            let levels = usize::try_from(page.level_bytes).map_err(|_| damaged())?;
            let (levels, values) = body.split_at_checked(levels).ok_or_else(damaged)?;
            let raw = raw.checked_sub(levels.len()).ok_or_else(damaged)?;
            let values =
                if page.stored_raw { Cow::Borrowed(values) } else { self.unpacked(values, raw, contexts)? };
            return Ok((Cow::Borrowed(levels), values));
        }
        let body = self.unpacked(body, raw, contexts)?;
        if self.metadata.column_descr().max_def_level() == 0 {
            return Ok((Cow::Borrowed(&[]), body));
        }
        if page.levels != RLE {
            return Err(Error::unsupported("bit-packed levels of Parquet"));
        }
        let len = body.get(..4).and_then(|len| len.try_into().ok()).map(u32::from_le_bytes);
        let end = len.and_then(|len| (len as usize).checked_add(4)).filter(|end| *end <= body.len());
        let end = end.ok_or_else(damaged)?;
        Ok((Cow::Owned(body[4..end].to_vec()), Cow::Owned(body[end..].to_vec())))
    }

    /// Adds the cells of a page.
    #[allow(clippy::too_many_arguments)]
    fn page(
        &self,
        page: &PageHeader,
        count: usize,
        levels: &[u8],
        values: &[u8],
        dictionary: Option<&PageValues>,
        width: Width,
        out: &mut CellsOut<'_>,
    ) -> Result<()> {
        let damaged = || self.corrupt("the values of a page are damaged");
        let most = u32::try_from(self.metadata.column_descr().max_def_level()).map_err(|_| damaged())?;
        // The level of every row, if any can be null.
        let mut found = alloc::zeroed::<u32>("the levels of a page", if most > 0 { count } else { 0 })?;
        if most > 0 {
            let mut runs = Hybrid::new(levels, u32::BITS - most.leading_zeros()).ok_or_else(damaged)?;
            runs.fill(&mut found).ok_or_else(damaged)?;
            if found.iter().any(|level| *level > most) {
                return Err(damaged());
            }
        }
        let some = if most > 0 { found.iter().filter(|level| **level == most).count() } else { count };
        let mut indices = None;
        let own;
        let values = if [PLAIN_DICTIONARY, RLE_DICTIONARY].contains(&page.encoding) {
            let dictionary = dictionary.ok_or_else(damaged)?;
            let mut numbers = alloc::zeroed("the indices of a page", some)?;
            if some > 0 {
                let (bits, runs) = values.split_first().ok_or_else(damaged)?;
                let runs = Hybrid::new(runs, u32::from(*bits));
                runs.and_then(|mut runs| runs.fill(&mut numbers)).ok_or_else(damaged)?;
            }
            indices = Some(numbers);
            dictionary
        } else {
            let held = &|len: usize| out.check_decoded(len);
            own = encoding::decode(page.encoding, values, some, width, held)?.ok_or_else(damaged)?;
            &own
        };
        out.set_decoded(values.len())?;
        let other = || self.corrupt("a value is not of the column's type");
        if some == count
            && self.stores_cells()
            && let PageValues::Fixed { width, bytes } = values
        {
            return match (&indices, *width) {
                (None, _) => out.push_run(bytes).ok_or_else(other),
                (Some(indices), 4) => gather::<4>(bytes, indices, out).ok_or_else(damaged),
                (Some(indices), 8) => gather::<8>(bytes, indices, out).ok_or_else(damaged),
                (Some(indices), _) => indices.iter().try_for_each(|at| {
                    let value = values.get(*at as usize).ok_or_else(damaged)?;
                    out.push_run(value).ok_or_else(other)
                }),
            };
        }
        let mut next = 0;
        for row in 0..count {
            let value = if found.get(row).is_none_or(|level| *level == most) {
                let at = match &indices {
                    Some(indices) => indices.get(next).map(|at| *at as usize),
                    None => Some(next),
                };
                next += 1;
                Some(at.and_then(|at| values.get(at)).ok_or_else(damaged)?)
            } else {
                None
            };
            self.push(value, out)?.ok_or_else(other)?;
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

/// Adds values of a dictionary; `None` if an index is not one of it.
fn gather<const N: usize>(dictionary: &[u8], indices: &[u32], out: &mut CellsOut<'_>) -> Option<()> {
    const BLOCK: usize = 512;
    let values = dictionary.as_chunks::<N>().0;
    let mut block = [[0; N]; BLOCK];
    for indices in indices.chunks(BLOCK) {
        let block = block.get_mut(..indices.len())?;
        for (cell, at) in block.iter_mut().zip(indices) {
            *cell = *values.get(*at as usize)?;
        }
        out.push_run(block.as_flattened())?;
    }
    Some(())
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
