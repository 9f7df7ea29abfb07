//! Buffers of a record batch to cells.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use tesseral_codec::Contexts;
use tesseral_core::{CellLen, DType, Error, Limits, Result, alloc};
use tesseral_format::{CellsOut, ColumnMut};

use crate::batch::{BatchCodec, StoredBatch};
use crate::kind::{ArrowKind, Form, Layout};
use crate::schema::SchemaColumn;

/// Bytes of a text that a view contains itself.
const SHORT: usize = 12;

/// Decoding of a column of a record batch.
pub(crate) struct BatchColumn<'a> {
    pub(crate) column: &'a SchemaColumn,
    pub(crate) batch: &'a StoredBatch,
    /// The dictionary of the column, in parts.
    pub(crate) dictionary: &'a [StoredBatch],
    pub(crate) nullable: bool,
    pub(crate) limits: Limits,
    pub(crate) object: &'a str,
    pub(crate) offset: u64,
}

/// Values of an array, by their number.
struct ValueSource<'a> {
    kind: ArrowKind,
    buffers: Vec<Cow<'a, [u8]>>,
    count: usize,
}

/// A number of a buffer of 32-bit or 64-bit ends.
fn end(buffer: &[u8], wide: bool, at: usize) -> Option<usize> {
    let size = if wide { 8 } else { 4 };
    let bytes = buffer.get(at.checked_mul(size)?..at.checked_add(1)?.checked_mul(size)?)?;
    match bytes {
        [a, b, c, d] => usize::try_from(i32::from_le_bytes([*a, *b, *c, *d])).ok(),
        _ => usize::try_from(i64::from_le_bytes(bytes.try_into().ok()?)).ok(),
    }
}

fn bit(bits: &[u8], at: usize) -> Option<bool> {
    bits.get(at / 8).map(|byte| byte >> (at % 8) & 1 == 1)
}

impl<'a> ValueSource<'a> {
    /// The stored bytes of a value; `None` if they are absent.
    fn get(&self, at: usize) -> Option<&[u8]> {
        let buffer = |number: usize| self.buffers.get(number).map(|own| &own[..]);
        if at >= self.count {
            return None;
        }
        match self.kind.layout {
            Layout::Bits => Some(if bit(buffer(0)?, at)? { &[1] } else { &[0] }),
            Layout::Plain(size) => {
                buffer(0)?.get(at.checked_mul(size)?..at.checked_add(1)?.checked_mul(size)?)
            }
            Layout::Offsets { wide, size } => {
                let (from, to) = (end(buffer(0)?, wide, at)?, end(buffer(0)?, wide, at + 1)?);
                buffer(1)?.get(from.checked_mul(size)?..to.checked_mul(size)?)
            }
            Layout::Views => {
                let view = buffer(0)?.get(at.checked_mul(16)?..at.checked_add(1)?.checked_mul(16)?)?;
                let number = |at: usize| {
                    let bytes = view.get(at..at + 4)?.try_into().ok()?;
                    usize::try_from(i32::from_le_bytes(bytes)).ok()
                };
                let len = number(0)?;
                if len <= SHORT {
                    return view.get(4..4 + len);
                }
                let start = number(12)?;
                buffer(number(8)?.checked_add(1)?)?.get(start..start.checked_add(len)?)
            }
        }
    }
}

/// Whether each of some rows is valid; `None` if all are.
type Validity = Option<Vec<bool>>;

impl BatchColumn<'_> {
    fn corrupt(&self, detail: impl Into<String>) -> Error {
        Error::corrupt("record batch", self.object, self.offset, detail)
    }

    /// A buffer without compression.
    fn unpacked<'b>(
        &self,
        part: &'b [u8],
        codec: Option<BatchCodec>,
        contexts: &mut Contexts,
    ) -> Result<Cow<'b, [u8]>> {
        let Some(codec) = codec.filter(|_| !part.is_empty()) else { return Ok(Cow::Borrowed(part)) };
        let (len, stored) =
            part.split_first_chunk::<8>().ok_or_else(|| self.corrupt("a buffer without its length"))?;
        let len = i64::from_le_bytes(*len);
        if len == -1 {
            return Ok(Cow::Borrowed(stored));
        }
        let len = u64::try_from(len).map_err(|_| self.corrupt("a buffer of negative length"))?;
        self.limits.check_decoded(len, part.len() as u64)?;
        let len = usize::try_from(len).map_err(|_| self.corrupt("a buffer beyond the address space"))?;
        let mut out = alloc::zeroed::<u8>("a buffer", len)?;
        if len > 0 {
            match codec {
                BatchCodec::Lz4 => tesseral_codec::lz4::decode_frame_into(stored, &mut out)?,
                BatchCodec::Zstd => tesseral_codec::zstd::decode_into(stored, &mut out, contexts)?,
            }
        }
        Ok(Cow::Owned(out))
    }

    /// Unpacks buffers of validity, one for each array around the values, and combines them.
    fn validity(
        &self,
        parts: &[Bytes],
        batch: &StoredBatch,
        rows: usize,
        contexts: &mut Contexts,
    ) -> Result<Validity> {
        let mut valid: Validity = None;
        for part in parts.iter().filter(|part| !part.is_empty()) {
            let bits = self.unpacked(part, batch.codec, contexts)?;
            if bits.len() < rows.div_ceil(8) {
                return Err(self.corrupt("a validity bitmap is too short"));
            }
            let own = match &mut valid {
                Some(own) => own,
                None => valid.insert(alloc::filled("the validity of a column", true, rows)?),
            };
            own.iter_mut().enumerate().for_each(|(at, valid)| *valid &= bit(&bits, at) == Some(true));
        }
        Ok(valid)
    }

    /// The values of a type that `parts` store.
    fn values<'b>(
        &self,
        kind: ArrowKind,
        parts: &'b [Bytes],
        batch: &StoredBatch,
        count: usize,
        contexts: &mut Contexts,
    ) -> Result<ValueSource<'b>> {
        let unpack = |part: &'b Bytes| self.unpacked(part, batch.codec, contexts);
        Ok(ValueSource { kind, buffers: parts.iter().map(unpack).collect::<Result<_>>()?, count })
    }

    /// Decodes a range of rows.
    pub(crate) fn decode(
        &self,
        parts: &[Bytes],
        cells: Range<u64>,
        mut out: ColumnMut<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let rows =
            usize::try_from(self.batch.rows).map_err(|_| self.corrupt("rows beyond the address space"))?;
        // Not beyond the rows.
        let cells = cells.start as usize..cells.end as usize;
        let stored = parts.iter().map(|part| part.len() as u64).sum();
        let split = parts.split_at_checked(self.column.groups.len() + 1);
        let (masks, parts) = split.ok_or_else(|| Error::internal("a chunk of another column"))?;
        // Without validity, what is null to other programs is a value here.
        let valid = if self.nullable { self.validity(masks, self.batch, rows, contexts)? } else { None };
        let kind = self.column.kind;
        if let Some(indexed) = self.column.indexed {
            let (own, parts) = parts.split_at_checked(1).unwrap_or_default();
            let indices = self.values(indexed.index, own, self.batch, rows, contexts)?;
            let dictionary = self.dictionary(parts, contexts)?;
            let value = |at| {
                let mut index = index_of(indexed.index.dtype, indices.get(at)?)?;
                for (valid, values) in &dictionary {
                    if index < values.count {
                        let is_valid = valid.as_ref().is_none_or(|own| own.get(index) == Some(&true));
                        return if is_valid { values.get(index).map(Some) } else { Some(None) };
                    }
                    index -= values.count;
                }
                None
            };
            return self.push_all(cells, &valid, value, out, stored);
        }
        let values = self.values(kind, parts, self.batch, rows, contexts)?;
        if let (ColumnMut::Fixed { values: own, validity }, Layout::Plain(size)) = (&mut out, kind.layout)
            && (valid.is_none() && kind.form == Form::Same && cfg!(target_endian = "little"))
        {
            let range = cells.start.checked_mul(size).zip(cells.end.checked_mul(size));
            let run = range.and_then(|(start, end)| values.buffers.first()?.get(start..end));
            let run = run.filter(|run| run.len() == own.len());
            own.copy_from_slice(run.ok_or_else(|| self.corrupt("a buffer is shorter than its cells"))?);
            if let Some(validity) = validity {
                validity.fill(1);
            }
            return Ok(());
        }
        self.push_all(cells, &valid, |at| values.get(at).map(Some), out, stored)
    }

    /// The parts of the dictionary, with the validity of their values.
    fn dictionary<'b>(
        &self,
        mut parts: &'b [Bytes],
        contexts: &mut Contexts,
    ) -> Result<Vec<(Validity, ValueSource<'b>)>> {
        let mut dictionary = Vec::new();
        for batch in self.dictionary {
            let count = usize::try_from(batch.rows).unwrap_or(usize::MAX);
            let len = batch.dictionary_ranges(self.column.kind).len();
            let (own, rest) = parts.split_at_checked(len).unwrap_or_default();
            let (mask, own) = own.split_at_checked(1).unwrap_or_default();
            let valid = self.validity(mask, batch, count, contexts)?;
            dictionary.push((valid, self.values(self.column.kind, own, batch, count, contexts)?));
            parts = rest;
        }
        Ok(dictionary)
    }

    /// Writes cells one by one: `value` is null, or stored bytes; `None` if there are none.
    fn push_all<'v>(
        &self,
        cells: Range<usize>,
        valid: &Validity,
        value: impl Fn(usize) -> Option<Option<&'v [u8]>>,
        out: ColumnMut<'_>,
        stored: u64,
    ) -> Result<()> {
        let kind = self.column.kind;
        let mut out = CellsOut::new(out, &kind.field("", self.nullable), self.limits, stored);
        let damaged = || self.corrupt("a value is outside of its buffer, or not of the column's type");
        for at in cells {
            let is_valid = valid.as_ref().is_none_or(|own| own.get(at) == Some(&true));
            let stored = match value(at) {
                stored if is_valid => stored.ok_or_else(damaged)?,
                // NaT is null in the bitmap, for other programs.
                Some(Some(stored)) if kind.has_nat() && stored == i64::MIN.to_le_bytes() => Some(stored),
                _ => None,
            };
            let pushed = match stored {
                None => out.push(None)?,
                Some(stored) => {
                    let (mut word, mut swapped) = ([0; 8], Vec::new());
                    let cell = cell(kind, stored, &mut word, &mut swapped).ok_or_else(damaged)?;
                    out.push(Some(cell))?
                }
            };
            pushed.ok_or_else(damaged)?;
        }
        Ok(())
    }
}

/// An index into a dictionary.
fn index_of(dtype: DType, bytes: &[u8]) -> Option<usize> {
    let signed = matches!(dtype, DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64);
    if signed && bytes.last()? >> 7 == 1 {
        return None;
    }
    let mut word = [0; 8];
    word.get_mut(..bytes.len())?.copy_from_slice(bytes);
    usize::try_from(u64::from_le_bytes(word)).ok()
}

/// The cell of stored bytes, in native byte order.
fn cell<'a>(
    kind: ArrowKind,
    stored: &'a [u8],
    word: &'a mut [u8; 8],
    swapped: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    match kind.form {
        Form::Same if kind.dtype == DType::Utf8 && kind.cell == CellLen::Var => {
            std::str::from_utf8(stored).ok().map(str::as_bytes)
        }
        Form::Same if cfg!(target_endian = "big") && kind.dtype.word() > 1 => {
            swapped.extend(stored);
            swapped.chunks_exact_mut(kind.dtype.word()).for_each(<[u8]>::reverse);
            Some(swapped)
        }
        Form::Same => Some(stored),
        Form::Widened => {
            *word = i64::from(i32::from_le_bytes(stored.try_into().ok()?)).to_ne_bytes();
            Some(word)
        }
        Form::Seconds(unit) => {
            let count = i64::from_le_bytes(stored.try_into().ok()?);
            let whole = count == i64::MIN || count % unit == 0;
            *word = if count == i64::MIN { count } else { count / unit }.to_ne_bytes();
            whole.then_some(word)
        }
    }
}
