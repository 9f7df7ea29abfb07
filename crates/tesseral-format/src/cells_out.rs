//! Output of decoders that produce cells one by one.

use tesseral_core::{CellLen, Field, Limits, Result, alloc};

use crate::ColumnMut;

/// A column that is filled cell by cell.
#[derive(Debug)]
pub struct CellsOut<'a> {
    out: ColumnMut<'a>,
    limits: Limits,
    /// Size of the decoded data in bytes.
    stored: u64,
    /// Size of decoded values that are in memory in addition to the cells.
    decoded: usize,
    size: usize,
    at: usize,
}

impl<'a> CellsOut<'a> {
    /// A column without cells, of a field of this type, for the cells of `stored` bytes.
    pub fn new(out: ColumnMut<'a>, field: &Field, limits: Limits, stored: u64) -> Self {
        let size = if field.cell == CellLen::Var { 0 } else { field.cell_size().unwrap_or(0) };
        Self { out, limits, stored, decoded: 0, size, at: 0 }
    }

    /// The limits of decoded data.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Checks cells and that many additional bytes of decoded values against the limits for the stored bytes.
    ///
    /// # Errors
    /// `Limit`.
    pub fn check_decoded(&self, bytes: usize) -> Result<()> {
        let cells = match &self.out {
            ColumnMut::Fixed { values, .. } => values.len(),
            ColumnMut::Var { data, .. } => data.len(),
        };
        self.limits.check_decoded(cells.saturating_add(bytes) as u64, self.stored)
    }

    /// Sets the size of decoded values that are in memory in addition to the cells.
    ///
    /// # Errors
    /// `Limit`.
    pub fn set_decoded(&mut self, bytes: usize) -> Result<()> {
        self.decoded = bytes;
        self.check_decoded(bytes)
    }

    /// Adds fixed-size cells that follow one another in `bytes`, none of them null. `None` if they do not fit.
    pub fn push_run(&mut self, bytes: &[u8]) -> Option<()> {
        let ColumnMut::Fixed { values, validity } = &mut self.out else { return None };
        let count = bytes.len().checked_div(self.size).filter(|count| count * self.size == bytes.len())?;
        let end = self.at.checked_add(count)?;
        values.get_mut(self.at.checked_mul(self.size)?..end.checked_mul(self.size)?)?.copy_from_slice(bytes);
        if let Some(validity) = validity {
            validity.get_mut(self.at..end)?.fill(1);
        }
        self.at = end;
        Some(())
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
                let held = self.decoded.saturating_add(data.len()).saturating_add(bytes.len());
                self.limits.check_decoded(held as u64, self.stored)?;
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

#[cfg(test)]
mod tests {
    use tesseral_core::{DType, ErrorKind};

    use super::*;

    #[test]
    fn runs_follow_single_cells() {
        let (mut values, mut validity) = ([9; 8], [9; 4]);
        let column = ColumnMut::Fixed { values: &mut values, validity: Some(&mut validity) };
        let mut out = CellsOut::new(column, &Field::new("n", DType::Int16), Limits::DEFAULT, 1000);
        assert_eq!(out.push(None).unwrap(), Some(()));
        assert_eq!(out.push_run(&[1, 2, 3]), None, "half a cell");
        assert_eq!(out.push_run(&[1, 2, 3, 4]), Some(()));
        assert_eq!(out.push_run(&[0; 4]), None, "one too many");
        assert_eq!(out.push_run(&[5, 6]), Some(()));
        assert_eq!((values, validity), ([0, 0, 1, 2, 3, 4, 5, 6], [0, 1, 1, 1]));
    }

    #[test]
    fn repeated_texts_are_bounded() {
        let (mut offsets, mut data) = (Vec::new(), Vec::new());
        let column = ColumnMut::Var { offsets: &mut offsets, data: &mut data, validity: None };
        let field = Field { cell: CellLen::Var, ..Field::new("t", DType::Utf8) };
        let mut out = CellsOut::new(column, &field, Limits::DEFAULT, 1000);
        out.set_decoded(1 << 20).unwrap();
        let value = vec![b'x'; 1 << 20];
        let pushed = (0..1000).map(|_| out.push(Some(&value))).take_while(Result::is_ok).count();
        assert_eq!(pushed, 31, "as many as one decoded chunk may have, with the value itself");
        let error = out.push(Some(&value)).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Limit { .. }), "{error}");
        assert!(out.set_decoded(2 << 20).is_err());
        assert!(data.len() <= 32 << 20);
    }
}
