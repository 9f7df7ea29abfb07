//! Where decoders that find cells one after the other write them.

use tesseral_core::{CellLen, Field, Limits, Result, alloc};

use crate::ColumnMut;

/// A column that is filled cell by cell.
#[derive(Debug)]
pub struct CellsOut<'a> {
    out: ColumnMut<'a>,
    limits: Limits,
    size: usize,
    at: usize,
}

impl<'a> CellsOut<'a> {
    /// A column without cells, of a field of this type.
    pub fn new(out: ColumnMut<'a>, field: &Field, limits: Limits) -> Self {
        let size = if field.cell == CellLen::Var { 0 } else { field.cell_size().unwrap_or(0) };
        Self { out, limits, size, at: 0 }
    }

    /// The limits of what is decoded.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Adds a cell, `None` for null. Returns `Ok(None)` if the cell does not fit: of another size, one too many, or null where the
    /// field is not nullable.
    ///
    /// # Errors
    /// `Limit`.
    pub fn push(&mut self, bytes: Option<&[u8]>) -> Result<Option<()>> {
        let (at, valid) = (self.at, u8::from(bytes.is_some()));
        self.at += 1;
        let validity = match &mut self.out {
            ColumnMut::Fixed { values, validity } => {
                let range =
                    at.checked_mul(self.size).and_then(|start| Some(start..start.checked_add(self.size)?));
                let Some(cell) = range.and_then(|range| values.get_mut(range)) else { return Ok(None) };
                match bytes {
                    Some(bytes) if bytes.len() == cell.len() => cell.copy_from_slice(bytes),
                    Some(_) => return Ok(None),
                    None => cell.fill(0),
                }
                validity
            }
            ColumnMut::Var { offsets, data, validity } => {
                let bytes = bytes.unwrap_or_default();
                // A value of a dictionary can be repeated by few bytes.
                self.limits.check_chunk((data.len() as u64).saturating_add(bytes.len() as u64))?;
                alloc::reserve("text cells", data, bytes.len())?;
                data.extend_from_slice(bytes);
                offsets.push(data.len() as u64);
                validity
            }
        };
        Ok(match validity {
            Some(validity) => validity.get_mut(at).map(|byte| *byte = valid),
            None => (valid == 1).then_some(()),
        })
    }
}
