//! One row per cell: coordinates, then fields.

use std::ops::Range;

use tesseral::CellBatch;

use super::{PrintedRows, RenderRows};
use crate::error::CliResult;
use crate::output::OutputStream;
use tesseral_display::{csv_head, csv_row};

pub(super) struct CsvRows;

impl RenderRows for CsvRows {
    fn begin(&mut self, table: &PrintedRows<'_>, out: &mut OutputStream) -> CliResult<()> {
        out.put(csv_head(&table.fields).as_bytes())
    }

    fn batch(
        &mut self,
        table: &PrintedRows<'_>,
        batch: &CellBatch,
        rows: Range<usize>,
        out: &mut OutputStream,
    ) -> CliResult<()> {
        let mut text = String::new();
        for row in rows {
            csv_row(&mut text, &table.fields, batch, row);
            if text.len() > 64 << 10 {
                out.put(text.as_bytes())?;
                text.clear();
            }
        }
        out.put(text.as_bytes())
    }

    fn end(&mut self, _: &PrintedRows<'_>, _: &mut OutputStream) -> CliResult<()> {
        Ok(())
    }
}
