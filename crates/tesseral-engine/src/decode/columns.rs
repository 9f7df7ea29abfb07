//! Columns of cells: rows of sparse arrays, variable-length cells.

use rayon::prelude::*;
use tesseral_core::dtype::Class;
use tesseral_core::{ArraySchema, Element};
use tesseral_core::{CellLen, DType, Error, Field, Result, alloc, dispatch_element};
use tesseral_format::{Column, ColumnData, ColumnMut};

/// Label of allocations in limit errors.
const CELLS: &str = "a column of cells";

/// Minimum number of cells for a parallel copy.
const PARALLEL_FROM: usize = 64 << 10;

/// The cells of one column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    /// Size of one cell in bytes; 0 for variable-length cells.
    size: usize,
    /// End offset of each variable-length cell.
    ends: Vec<u64>,
    data: Vec<u8>,
    validity: Option<Vec<u8>>,
}

impl Cells {
    /// Creates an empty column with cells of `size` bytes (0: variable-length).
    pub(crate) fn new(size: usize, nullable: bool) -> Self {
        Self { size, ends: Vec::new(), data: Vec::new(), validity: nullable.then(Vec::new) }
    }

    /// Creates an empty column of a field.
    pub fn for_field(field: &Field) -> Self {
        let size = if field.cell == CellLen::Var { 0 } else { field.cell_size().unwrap_or(0) };
        Self::new(size, field.nullable)
    }

    /// Creates an empty column with the same layout.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(self.size, self.validity.is_some())
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        self.data.len().checked_div(self.size).unwrap_or(self.ends.len())
    }

    /// Returns whether there are no cells.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of one cell.
    pub fn get(&self, i: usize) -> &[u8] {
        if self.size != 0 {
            return &self.data[i * self.size..(i + 1) * self.size];
        }
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        // Ends are checked to be ascending and within `data`.
        &self.data[start as usize..self.ends[i] as usize]
    }

    /// Returns whether a cell is not null.
    pub fn is_valid(&self, i: usize) -> bool {
        self.validity.as_ref().is_none_or(|v| v[i] != 0)
    }

    /// One byte per cell, 1 valid, 0 null; `None` for columns that are not nullable.
    pub fn validity(&self) -> Option<&[u8]> {
        self.validity.as_deref()
    }

    /// All bytes, contiguous.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// End offset of each variable-length cell in [`data`](Self::data); empty for fixed-size cells.
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }

    /// Resizes to `count` fixed-size cells with unspecified content; columns of variable-length cells become empty.
    ///
    /// # Errors
    /// `Limit` if the allocation fails.
    pub fn reset(&mut self, count: usize) -> Result<()> {
        let bytes = count.checked_mul(self.size);
        let bytes = bytes.ok_or_else(|| Error::limit("cells", count as u64, usize::MAX as u64))?;
        self.ends.clear();
        alloc::resize(CELLS, &mut self.data, bytes, 0)?;
        if let Some(validity) = &mut self.validity {
            validity.clear();
            if self.size > 0 {
                alloc::resize(CELLS, validity, count, 1)?;
            }
        }
        Ok(())
    }

    /// Reserves room for additional cells with that many bytes.
    ///
    /// # Errors
    /// `Limit` if the allocation fails.
    pub fn try_reserve(&mut self, cells: usize, bytes: usize) -> Result<()> {
        alloc::reserve(CELLS, &mut self.data, bytes)?;
        if self.size == 0 {
            alloc::reserve(CELLS, &mut self.ends, cells)?;
        }
        self.validity.as_mut().map_or(Ok(()), |validity| alloc::reserve(CELLS, validity, cells))
    }

    /// Reserves exactly the given number of additional cells and bytes.
    pub(crate) fn reserve(&mut self, cells: usize, bytes: usize) {
        self.data.reserve_exact(bytes);
        if self.size == 0 {
            self.ends.reserve_exact(cells);
        }
        if let Some(validity) = &mut self.validity {
            validity.reserve_exact(cells);
        }
    }

    /// Size of one cell in bytes; 0 for variable-length cells.
    pub fn size(&self) -> usize {
        self.size
    }

    /// Mutable bytes of fixed-size cells.
    pub fn values_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// Mutable bytes of fixed-size cells, and their validity.
    pub fn parts_mut(&mut self) -> (&mut [u8], Option<&mut [u8]>) {
        (&mut self.data, self.validity.as_deref_mut())
    }

    /// The cells as input of encoders.
    pub fn as_data(&self) -> ColumnData<'_> {
        let (data, validity) = (self.data.as_slice(), self.validity());
        match self.size {
            0 => ColumnData::Var { offsets: &self.ends, data, validity },
            _ => ColumnData::Fixed { values: data, validity },
        }
    }

    /// Appends a cell.
    pub fn push(&mut self, cell: &[u8], valid: bool) {
        self.data.extend_from_slice(cell);
        if self.size == 0 {
            self.ends.push(self.data.len() as u64);
        }
        if let Some(validity) = &mut self.validity {
            validity.push(u8::from(valid));
        }
    }

    /// Returns a range of cells.
    pub fn part(&self, range: std::ops::Range<usize>) -> Self {
        let end = |i: usize| match (i, self.size) {
            (0, 0) => 0,
            // Ends are checked to be within `data`.
            (i, 0) => self.ends[i - 1] as usize,
            (i, size) => i * size,
        };
        let (first, last) = (end(range.start), end(range.end));
        let ends = if self.size == 0 { &self.ends[range.clone()] } else { &[] };
        Self {
            size: self.size,
            ends: ends.iter().map(|end| end - first as u64).collect(),
            data: self.data[first..last].to_vec(),
            validity: self.validity.as_ref().map(|v| v[range].to_vec()),
        }
    }

    /// Returns the cells as a column that is not nullable.
    #[must_use]
    pub fn without_validity(mut self) -> Self {
        self.validity = None;
        self
    }

    /// Replaces the validity: one byte per cell, 0 for null.
    ///
    /// # Errors
    /// `InvalidRequest` if there is not one byte per cell.
    pub fn with_validity(mut self, validity: Vec<u8>) -> Result<Self> {
        if validity.len() != self.len() {
            return Err(Error::internal(format!(
                "{} validity bytes for {} cells",
                validity.len(),
                self.len()
            )));
        }
        self.validity = Some(validity);
        Ok(self)
    }

    /// Creates a column of decoded fixed-size cells.
    pub(crate) fn from_fixed(size: usize, data: Vec<u8>, validity: Option<Vec<u8>>) -> Self {
        Self { size, ends: Vec::new(), data, validity }
    }

    /// Size of one cell in bytes; 0 for variable-length cells.
    pub(crate) fn fixed_size(&self) -> usize {
        self.size
    }

    /// Allocated size in bytes.
    pub(crate) fn allocated_bytes(&self) -> u64 {
        (self.data.len() + self.ends.len() * 8 + self.validity.as_ref().map_or(0, Vec::len)) as u64
    }

    /// Gathers cells in the order of `rows`, which must be in bounds.
    pub(crate) fn pick(&self, rows: &[u32]) -> Self {
        let validity = self.validity.as_ref().map(|v| rows.iter().map(|&row| v[row as usize]).collect());
        let mut out = Self { size: self.size, ends: Vec::new(), data: Vec::new(), validity };
        if self.size > 0 {
            out.data = pick_fixed(&self.data, self.size, rows);
            return out;
        }
        out.ends.reserve(rows.len());
        for &row in rows {
            out.data.extend_from_slice(self.get(row as usize));
            out.ends.push(out.data.len() as u64);
        }
        out
    }

    /// Appends all cells of another column with the same layout.
    pub(crate) fn append(&mut self, other: &Self) {
        let (base, before) = (self.data.len() as u64, self.len());
        self.data.extend_from_slice(&other.data);
        self.ends.extend(other.ends.iter().map(|end| base + end));
        // Columns without a missing cell may come without validity.
        if self.validity.is_some() || other.validity.is_some() {
            let ours = self.validity.get_or_insert_with(|| vec![1; before]);
            match &other.validity {
                Some(theirs) => ours.extend_from_slice(theirs),
                None => ours.resize(before + other.len(), 1),
            }
        }
    }

    /// Concatenates columns with the same layout. Each column is dropped once it is copied.
    pub(crate) fn concat(columns: Vec<Self>) -> Self {
        let Some(first) = columns.first() else { return Self::default() };
        let mut out = first.emptied();
        let cells = columns.iter().map(Self::len).sum();
        let bytes = columns.iter().map(|column| column.data.len()).sum();
        if out.size == 0 || cells < PARALLEL_FROM {
            out.reserve(cells, bytes);
            columns.into_iter().for_each(|column| out.append(&column));
            return out;
        }
        if let Some(validity) = &mut out.validity {
            validity.reserve_exact(cells);
            columns.iter().flat_map(|column| &column.validity).for_each(|v| validity.extend_from_slice(v));
        }
        // New pages are zeroed on first access, which takes longer than the copy: use all threads.
        out.data = vec![0; bytes];
        let mut rest = &mut out.data[..];
        let mut places = Vec::with_capacity(columns.len());
        for column in columns {
            let (own, others) = rest.split_at_mut(column.data.len());
            rest = others;
            places.push((own, column));
        }
        places.into_par_iter().for_each(|(own, column)| own.copy_from_slice(&column.data));
        out
    }

    /// Gathers cells of several columns with the same layout, in the order of `rows`: column and index in it.
    pub(crate) fn interleave(columns: &[&Self], rows: &[(u32, u32)]) -> Self {
        let Some(first) = columns.first() else { return Self::default() };
        let cell = |&(column, row): &(u32, u32)| columns[column as usize].get(row as usize);
        let valid = |&(column, row): &(u32, u32)| u8::from(columns[column as usize].is_valid(row as usize));
        let mut out = first.emptied();
        if out.validity.is_some() {
            out.validity = Some(rows.iter().map(valid).collect());
        }
        let data: Vec<&[u8]> = columns.iter().map(|c| &c.data[..]).collect();
        match first.size {
            0 => {
                out.ends.reserve(rows.len());
                for row in rows {
                    out.data.extend_from_slice(cell(row));
                    out.ends.push(out.data.len() as u64);
                }
            }
            1 => interleave_sized::<1>(&data, rows, &mut out.data),
            2 => interleave_sized::<2>(&data, rows, &mut out.data),
            4 => interleave_sized::<4>(&data, rows, &mut out.data),
            8 => interleave_sized::<8>(&data, rows, &mut out.data),
            size => {
                out.data.reserve(rows.len() * size);
                rows.iter().for_each(|row| out.data.extend_from_slice(cell(row)));
            }
        }
        out
    }

    /// Prepares the output of a decoder for `cells` cells.
    pub(crate) fn decode_with(
        &mut self,
        cells: usize,
        decode: impl FnOnce(ColumnMut<'_>) -> Result<()>,
    ) -> Result<()> {
        if let Some(validity) = &mut self.validity {
            alloc::resize(CELLS, validity, cells, 0)?;
        }
        let validity = self.validity.as_deref_mut();
        if self.size > 0 {
            let bytes = cells
                .checked_mul(self.size)
                .ok_or_else(|| Error::limit("a chunk's cells", cells as u64, usize::MAX as u64))?;
            alloc::resize(CELLS, &mut self.data, bytes, 0)?;
            return decode(ColumnMut::Fixed { values: &mut self.data, validity });
        }
        decode(ColumnMut::Var { offsets: &mut self.ends, data: &mut self.data, validity })?;
        let rising = self.ends.is_sorted();
        if self.ends.len() != cells
            || !rising
            || self.ends.last().copied().unwrap_or(0) != self.data.len() as u64
        {
            return Err(Error::codec("variable-length cells", "the decoded offsets do not match the data"));
        }
        Ok(())
    }
}

/// Gathers fixed-size cells in the order of `rows`.
pub(crate) fn pick_fixed(data: &[u8], size: usize, rows: &[u32]) -> Vec<u8> {
    // Common sizes, so that each copy is one move.
    match size {
        1 => pick_sized::<1>(data, rows),
        2 => pick_sized::<2>(data, rows),
        4 => pick_sized::<4>(data, rows),
        8 => pick_sized::<8>(data, rows),
        size => {
            let mut out = Vec::with_capacity(rows.len() * size);
            rows.iter()
                .map(|&row| row as usize * size)
                .for_each(|at| out.extend_from_slice(&data[at..at + size]));
            out
        }
    }
}

fn pick_sized<const N: usize>(data: &[u8], rows: &[u32]) -> Vec<u8> {
    let (cells, _) = data.as_chunks::<N>();
    let mut out = Vec::with_capacity(rows.len() * N);
    out.extend(rows.iter().flat_map(|&row| cells[row as usize]));
    out
}

fn interleave_sized<const N: usize>(columns: &[&[u8]], rows: &[(u32, u32)], out: &mut Vec<u8>) {
    out.resize(rows.len() * N, 0);
    let place = |(to, &(column, row)): (&mut [u8], &(u32, u32))| {
        let (cells, _) = columns[column as usize].as_chunks::<N>();
        to.copy_from_slice(&cells[row as usize]);
    };
    if rows.len() < PARALLEL_FROM {
        out.chunks_exact_mut(N).zip(rows).for_each(place);
    } else {
        out.par_chunks_exact_mut(N).zip(rows).with_min_len(PARALLEL_FROM / 4).for_each(place);
    }
}

/// Size of one cell of a column in bytes (0: variable-length), and whether it is nullable.
pub(crate) fn column_layout(schema: &ArraySchema, column: Column) -> Result<(usize, bool)> {
    let missing = || Error::invalid(format!("unknown column {column:?}")).in_array(&schema.name);
    match column {
        Column::Field(i) => {
            let field = schema.fields.get(usize::from(i)).ok_or_else(missing)?;
            match field.cell {
                CellLen::Var => Ok((0, field.nullable)),
                _ => Ok((field.cell_size().ok_or_else(missing)?, field.nullable)),
            }
        }
        Column::Dim(i) => {
            let dim = schema.dims.get(usize::from(i)).ok_or_else(missing)?;
            let size =
                if dim.dtype.class() == Class::Text { 0 } else { dim.dtype.size().ok_or_else(missing)? };
            Ok((size, false))
        }
        Column::Timestamp | Column::DeletedBy => Ok((8, false)),
    }
}

/// Maps a value to an unsigned number with the same order: −0.0 and 0.0 are equal coordinates.
#[inline(always)]
fn key_of<T: Element>(signed: bool, value: T) -> u64 {
    if T::IS_FLOAT {
        // Adding 0 turns −0.0 into 0.0 and changes nothing else.
        let bits = (value.to_f64() + 0.0).to_bits();
        return if bits >> 63 == 0 { bits | 1 << 63 } else { !bits };
    }
    // The low 64 bits of an integer, with the sign bit flipped if signed.
    let low = value.to_i128() as u64;
    if signed { low ^ (1 << 63) } else { low }
}

/// Returns whether values of a dtype can be negative.
fn is_signed(dtype: DType) -> bool {
    !matches!(dtype.class(), Class::UInt | Class::Bool)
}

/// Sort key of one coordinate; `None` for text, which is compared bytewise.
pub(crate) fn sort_key(dtype: DType, cell: &[u8]) -> Option<u64> {
    let signed = is_signed(dtype);
    dispatch_element!(dtype, T => {
        (cell.len() == size_of::<T>()).then(|| key_of::<T>(signed, bytemuck::pod_read_unaligned(cell)))
    }, else => None)
}

/// Sort keys of all coordinates of a column; `None` for text.
pub(crate) fn sort_keys(dtype: DType, cells: &Cells) -> Option<Vec<u64>> {
    let signed = is_signed(dtype);
    dispatch_element!(dtype, T => {
        let chunks = cells.data().chunks_exact(size_of::<T>());
        Some(chunks.map(|cell| key_of::<T>(signed, bytemuck::pod_read_unaligned(cell))).collect())
    }, else => None)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns are concatenated in order with their nulls, in parallel or sequentially.
    #[test]
    fn columns_are_concatenated_in_order() {
        for (size, nullable) in [(8, false), (3, true), (0, true)] {
            for cells in [0, 100, PARALLEL_FROM] {
                let column = |number: usize| {
                    let mut column = Cells::new(size, nullable);
                    for i in 0..cells / 3 + number {
                        let len = if size == 0 { i % 5 } else { size };
                        column.push(&vec![u8::try_from((i + number) % 251).unwrap(); len], i % 7 != 0);
                    }
                    column
                };
                let columns: Vec<Cells> = (0..4).map(column).collect();
                let mut expected = columns[0].emptied();
                columns.iter().for_each(|column| expected.append(column));
                assert_eq!(Cells::concat(columns), expected);
            }
        }
    }

    #[test]
    fn keys_order_as_numbers_do() {
        let floats = [f64::NEG_INFINITY, -2.5, -0.0, 0.0, 1e-300, 3.0, f64::INFINITY];
        let keys: Vec<_> =
            floats.iter().map(|v| sort_key(DType::Float64, &v.to_ne_bytes()).unwrap()).collect();
        assert!(keys.is_sorted());
        assert_eq!(keys[2], keys[3], "both zeros are one coordinate");
        assert!(keys.iter().filter(|k| **k != keys[2]).is_sorted_by(|a, b| a < b));
        let ints = [i64::MIN, -1, 0, 1, i64::MAX];
        let keys: Vec<_> = ints.iter().map(|v| sort_key(DType::Int64, &v.to_ne_bytes()).unwrap()).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert_eq!(sort_key(DType::UInt64, &u64::MAX.to_ne_bytes()), Some(u64::MAX));
        assert_eq!(sort_key(DType::Utf8, b"a"), None);
    }
}
