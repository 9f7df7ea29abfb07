//! Decoding one column of a chunk.

use std::ops::Range;

use bytes::Bytes;
use tesseral_core::dtype::Class;
use tesseral_core::{ArraySchema, DType, Error, Limits, Result};
use tesseral_store::{Store, StoreExt};

use tesseral_format::{ArraySource, Column, ColumnMut, PlannedChunk, Scratch};

/// Maximum decoded bytes of a column of a chunk.
const LIMIT: u64 = 1 << 30;

/// The layout of the cells of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnLayout {
    /// The dtype of one element.
    pub dtype: DType,
    /// Bytes per cell, `None` for variable-length cells. Unpacked bitmask cells take one byte each.
    pub size: Option<usize>,
    /// Whether cells are packed bits.
    pub bits: bool,
    /// Whether cells can be null.
    pub nullable: bool,
}

impl ColumnLayout {
    /// The layout of a column.
    ///
    /// # Errors
    /// `InvalidRequest` for a column that is not in the schema.
    pub fn new(schema: &ArraySchema, column: Column) -> Result<Self> {
        let missing = || Error::invalid(format!("unknown column {column:?}")).in_array(&schema.name);
        match column {
            Column::Field(i) => {
                let field = schema.fields.get(usize::from(i)).ok_or_else(missing)?;
                let bits = field.dtype.class() == Class::Bits;
                let size = if bits { Some(1) } else { field.cell_size() };
                Ok(Self { dtype: field.dtype, size, bits, nullable: field.nullable })
            }
            Column::Dim(i) => {
                let dtype = schema.dims.get(usize::from(i)).ok_or_else(missing)?.dtype;
                let size = dtype.size().filter(|_| dtype.class() != Class::Text);
                Ok(Self { dtype, size, bits: false, nullable: false })
            }
            Column::Timestamp | Column::DeletedBy => {
                Ok(Self { dtype: DType::UInt64, size: Some(8), bits: false, nullable: false })
            }
        }
    }

    /// Bytes that `cells` fixed-size cells take in a decoder's buffer.
    pub fn bytes(&self, cells: u64) -> Option<u64> {
        if self.bits { Some(cells.div_ceil(8)) } else { cells.checked_mul(self.size? as u64) }
    }
}

/// The decoded cells of one column of a chunk, in the schema's cell order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    size: Option<usize>,
    values: Vec<u8>,
    ends: Vec<u64>,
    validity: Option<Vec<u8>>,
}

impl Decoded {
    /// The bytes of a cell, whether null or not.
    pub fn raw(&self, i: u64) -> &[u8] {
        let i = i as usize;
        match self.size {
            Some(size) => &self.values[i * size..(i + 1) * size],
            None => {
                let start = if i == 0 { 0 } else { self.ends[i - 1] };
                &self.values[start as usize..self.ends[i] as usize]
            }
        }
    }

    /// Whether a cell is valid.
    pub fn is_valid(&self, i: u64) -> bool {
        self.validity.as_ref().is_none_or(|v| v[i as usize] != 0)
    }

    /// A cell, `None` where null.
    pub fn get(&self, i: u64) -> Option<&[u8]> {
        self.is_valid(i).then(|| self.raw(i))
    }
}

/// The content of buffers before decoding.
#[derive(Clone, Copy, Debug)]
pub struct Prefill {
    /// Every byte.
    pub byte: u8,
    /// Variable-length cells that are already in the vectors.
    pub cells: usize,
}

impl Default for Prefill {
    fn default() -> Self {
        Self { byte: 0xA5, cells: 1 }
    }
}

/// Reads the stored bytes of one column of a chunk.
///
/// # Errors
/// As [`Store::read_many`].
pub fn fetch(
    store: &dyn Store,
    source: &dyn ArraySource,
    chunk: &PlannedChunk,
    column: Column,
) -> Result<Vec<Bytes>> {
    let mut parts = Vec::new();
    for (_, part) in chunk.column_parts(column) {
        let end = part.offset.checked_add(part.len).ok_or_else(|| Error::limit("part", part.len, LIMIT))?;
        parts.push(store.read(&source.object(part.object), part.offset..end)?);
    }
    Ok(parts)
}

/// Decodes a range of cells from stored bytes and checks that the decoder respects the buffer contract.
///
/// # Errors
/// Errors of the decoder; `Limit` for ranges beyond the oracle's limit; `InvalidRequest` when the decoder violates the contract of
/// [`ColumnMut`].
pub fn decode_parts(
    source: &dyn ArraySource,
    chunk: &PlannedChunk,
    column: Column,
    parts: &[Bytes],
    run: Range<u64>,
    prefill: Prefill,
) -> Result<Decoded> {
    let layout = ColumnLayout::new(source.schema(), column)?;
    let cells = run.end.saturating_sub(run.start);
    let bytes = layout.bytes(cells).unwrap_or(cells);
    Limits { chunk_bytes: LIMIT, ..Limits::default() }.check_chunk(bytes.max(cells))?;
    let cells = cells as usize;
    let mut validity = layout.nullable.then(|| vec![prefill.byte; cells]);
    let mut scratch = Scratch::default();
    let violation = |what: &str| Error::internal(format!("the decoder violated its contract: {what}"));
    if layout.size.is_some() {
        let mut values = vec![prefill.byte; bytes as usize];
        let out = ColumnMut::Fixed { values: &mut values, validity: validity.as_deref_mut() };
        source.decode(chunk, column, parts, run, out, &mut scratch)?;
        if layout.bits {
            values = (0..cells).map(|i| values[i / 8] >> (7 - i % 8) & 1).collect();
        }
        check_validity(validity.as_deref()).ok_or_else(|| violation("validity other than 0 and 1"))?;
        return Ok(Decoded { size: layout.size, values, ends: Vec::new(), validity });
    }
    let prefilled = vec![prefill.byte; prefill.cells * 3];
    let mut data = prefilled.clone();
    let mut offsets: Vec<u64> = (1..=prefill.cells as u64).map(|i| i * 3).collect();
    let out = ColumnMut::Var { offsets: &mut offsets, data: &mut data, validity: validity.as_deref_mut() };
    source.decode(chunk, column, parts, run, out, &mut scratch)?;
    check_validity(validity.as_deref()).ok_or_else(|| violation("validity other than 0 and 1"))?;
    if offsets.len() != prefill.cells + cells {
        return Err(violation("number of offsets does not match the cells"));
    }
    if !data.starts_with(&prefilled)
        || !offsets.iter().take(prefill.cells).copied().eq((1..).map(|i| i * 3).take(prefill.cells))
    {
        return Err(violation("changed existing content"));
    }
    let base = prefilled.len() as u64;
    let mut last = base;
    for end in &offsets[prefill.cells..] {
        if *end < last {
            return Err(violation("decreasing offsets"));
        }
        last = *end;
    }
    if last != data.len() as u64 {
        return Err(violation("last offset does not match the data length"));
    }
    let ends = offsets[prefill.cells..].iter().map(|end| end - base).collect();
    Ok(Decoded { size: None, values: data.split_off(prefilled.len()), ends, validity })
}

fn check_validity(validity: Option<&[u8]>) -> Option<()> {
    validity.is_none_or(|v| v.iter().all(|byte| *byte <= 1)).then_some(())
}
