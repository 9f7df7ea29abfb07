//! Columns of cells that a read gives back one by one: rows of sparse arrays, cells of any length.

use tesseral_core::dtype::Class;
use tesseral_core::{ArraySchema, Element};
use tesseral_core::{CellLen, DType, Error, Result, dispatch_element};
use tesseral_format::{Column, ColumnMut};

/// The cells of one column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    /// Bytes of one cell; 0 when cells have any length.
    size: usize,
    /// Where each cell of any length ends.
    ends: Vec<u64>,
    data: Vec<u8>,
    validity: Option<Vec<u8>>,
}

impl Cells {
    /// No cells yet, of `size` bytes each (0: any length).
    pub(crate) fn new(size: usize, nullable: bool) -> Self {
        Self { size, ends: Vec::new(), data: Vec::new(), validity: nullable.then(Vec::new) }
    }

    /// No cells, laid out like these.
    pub(crate) fn emptied(&self) -> Self {
        Self::new(self.size, self.validity.is_some())
    }

    /// Number of cells.
    pub fn len(&self) -> usize {
        self.data.len().checked_div(self.size).unwrap_or(self.ends.len())
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of one cell.
    pub fn get(&self, i: usize) -> &[u8] {
        if self.size != 0 {
            return &self.data[i * self.size..(i + 1) * self.size];
        }
        let start = if i == 0 { 0 } else { self.ends[i - 1] };
        // Ends were checked to rise and to stay within `data`.
        #[allow(clippy::cast_possible_truncation)]
        &self.data[start as usize..self.ends[i] as usize]
    }

    /// Whether a cell is not null.
    pub fn is_valid(&self, i: usize) -> bool {
        self.validity.as_ref().is_none_or(|v| v[i] != 0)
    }

    /// One byte per cell, 1 valid, 0 null; `None` for columns that cannot be null.
    pub fn validity(&self) -> Option<&[u8]> {
        self.validity.as_deref()
    }

    /// All bytes, back to back.
    pub fn data(&self) -> &[u8] {
        &self.data
    }

    /// Where each cell of any length ends in [`data`](Self::data); empty for cells of one size.
    pub fn ends(&self) -> &[u64] {
        &self.ends
    }

    pub(crate) fn push(&mut self, cell: &[u8], valid: bool) {
        self.data.extend_from_slice(cell);
        if self.size == 0 {
            self.ends.push(self.data.len() as u64);
        }
        if let Some(validity) = &mut self.validity {
            validity.push(u8::from(valid));
        }
    }

    /// Room for `cells` cells, as a decoder wants it.
    pub(crate) fn decode_with(
        &mut self,
        cells: usize,
        decode: impl FnOnce(ColumnMut<'_>) -> Result<()>,
    ) -> Result<()> {
        if let Some(validity) = &mut self.validity {
            validity.resize(cells, 0);
        }
        let validity = self.validity.as_deref_mut();
        if self.size > 0 {
            let bytes = cells
                .checked_mul(self.size)
                .ok_or_else(|| Error::limit("a chunk's cells", cells as u64, usize::MAX as u64))?;
            self.data.resize(bytes, 0);
            return decode(ColumnMut::Fixed { values: &mut self.data, validity });
        }
        decode(ColumnMut::Var { offsets: &mut self.ends, data: &mut self.data, validity })?;
        let rising = self.ends.is_sorted();
        if self.ends.len() != cells
            || !rising
            || self.ends.last().copied().unwrap_or(0) != self.data.len() as u64
        {
            return Err(Error::codec("cells of any length", "the decoder's offsets do not fit its bytes"));
        }
        Ok(())
    }
}

/// Bytes of one cell of a column (0: any length) and whether it can be null.
pub(crate) fn column_layout(schema: &ArraySchema, column: Column) -> Result<(usize, bool)> {
    let missing = || Error::invalid(format!("the array has no {column:?}")).in_array(&schema.name);
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

/// A number whose unsigned order is the order of coordinates of a dtype; text has none and is compared bytewise.
pub(crate) fn sort_key(dtype: DType, cell: &[u8]) -> Option<u64> {
    dispatch_element!(dtype, T => {
        if cell.len() != size_of::<T>() {
            return None;
        }
        let value: T = bytemuck::pod_read_unaligned(cell);
        Some(if T::IS_FLOAT {
            let bits = value.to_f64().to_bits();
            if bits >> 63 == 0 { bits | 1 << 63 } else { !bits }
        } else {
            // Any 64-bit integer, shifted to start at 0 where it is signed.
            let shifted = value.to_i128() + if dtype.class() == Class::UInt || dtype == DType::Bool { 0 } else { 1 << 63 };
            u64::try_from(shifted).unwrap_or(u64::MAX)
        })
    }, else => None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_as_numbers_do() {
        let floats = [f64::NEG_INFINITY, -2.5, -0.0, 0.0, 1e-300, 3.0, f64::INFINITY];
        let keys: Vec<_> =
            floats.iter().map(|v| sort_key(DType::Float64, &v.to_ne_bytes()).unwrap()).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        let ints = [i64::MIN, -1, 0, 1, i64::MAX];
        let keys: Vec<_> = ints.iter().map(|v| sort_key(DType::Int64, &v.to_ne_bytes()).unwrap()).collect();
        assert!(keys.is_sorted_by(|a, b| a < b));
        assert_eq!(sort_key(DType::UInt64, &u64::MAX.to_ne_bytes()), Some(u64::MAX));
        assert_eq!(sort_key(DType::Utf8, b"a"), None);
    }
}
