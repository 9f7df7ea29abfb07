//! One row per cell: coordinates, then fields.

use tesseral::CellBatch;

use super::{RenderRows, Table};
use crate::error::CliResult;
use crate::output::OutputStream;
use crate::text::csv_quoted;
use tesseral_display::write_cell;

pub(super) struct CsvRows;

impl RenderRows for CsvRows {
    fn begin(&mut self, table: &Table<'_>, out: &mut OutputStream) -> CliResult<()> {
        let names: Vec<_> = table.fields.iter().map(|f| csv_quoted(&f.name)).collect();
        out.put((names.join(",") + "\n").as_bytes())
    }

    fn batch(&mut self, table: &Table<'_>, batch: &CellBatch, out: &mut OutputStream) -> CliResult<()> {
        let (mut text, mut value) = (String::new(), String::new());
        for row in 0..batch.rows {
            for (i, ((_, cells), field)) in batch.columns.iter().zip(&table.fields).enumerate() {
                text.push_str(if i == 0 { "" } else { "," });
                if cells.is_valid(row) {
                    value.clear();
                    write_cell(&mut value, field, cells.get(row));
                    // Empty text is not null.
                    text.push_str(if value.is_empty() { "\"\"" } else { "" });
                    text.push_str(&csv_quoted(&value));
                }
            }
            text.push('\n');
            if text.len() > 64 << 10 {
                out.put(text.as_bytes())?;
                text.clear();
            }
        }
        out.put(text.as_bytes())
    }

    fn end(&mut self, _: &Table<'_>, _: &mut OutputStream) -> CliResult<()> {
        Ok(())
    }
}
