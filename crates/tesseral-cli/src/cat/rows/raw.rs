//! Raw bytes: the contiguous cells of one column.

use std::ops::Range;

use tesseral::CellBatch;

use super::{PrintedRows, RenderRows, is_var, single};
use crate::error::CliResult;
use crate::output::OutputStream;

pub(super) struct RawRowRenderer {
    /// One byte per cell instead of its value: 1 valid, 0 null.
    pub validity: bool,
}

impl RenderRows for RawRowRenderer {
    fn begin(&mut self, _: &PrintedRows<'_>, _: &mut OutputStream) -> CliResult<()> {
        Ok(())
    }

    fn batch(
        &mut self,
        table: &PrintedRows<'_>,
        batch: &CellBatch,
        _: Range<usize>,
        out: &mut OutputStream,
    ) -> CliResult<()> {
        let cells = single(batch)?;
        if self.validity {
            return out.put(&valid(batch, cells));
        }
        let field = &table.fields[0];
        let var = is_var(field);
        let word = field.dtype.word();
        let swapped = cfg!(target_endian = "big") && word > 1;
        if !var && !swapped && cells.validity().is_none_or(|v| v.iter().all(|b| *b != 0)) {
            return out.put(cells.data());
        }
        let zeros = vec![0; field.cell_size().unwrap_or(0)];
        let mut turned = Vec::new();
        for row in 0..batch.rows {
            let mut cell = if cells.is_valid(row) { cells.get(row) } else { &zeros };
            if swapped {
                turned.clear();
                cell.chunks(word).for_each(|one| turned.extend(one.iter().rev()));
                cell = &turned;
            }
            if var {
                out.put(&(cell.len() as u64).to_le_bytes())?;
            }
            out.put(cell)?;
        }
        Ok(())
    }

    fn end(&mut self, _: &PrintedRows<'_>, _: &mut OutputStream) -> CliResult<()> {
        Ok(())
    }
}

/// One byte per row: 1 valid, 0 null.
pub(super) fn valid(batch: &CellBatch, cells: &tesseral::Cells) -> Vec<u8> {
    (0..batch.rows).map(|row| u8::from(cells.is_valid(row))).collect()
}
