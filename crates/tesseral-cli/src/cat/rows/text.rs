//! Rows as text with aligned columns.

use std::ops::Range;

use tesseral::CellBatch;
use tesseral_core::dtype::Class;

use super::{PrintedRows, RenderRows};
use crate::error::CliResult;
use crate::output::OutputStream;
use crate::text::escape;
use tesseral_display::write_cell;

/// Number of rows used to determine column widths. Longer cells that follow are not aligned, but never truncated.
const MEASURED: usize = 1024;

#[derive(Default)]
pub(super) struct TextRowRenderer {
    widths: Option<Vec<usize>>,
}

impl TextRowRenderer {
    fn header(&self, table: &PrintedRows<'_>, widths: &[usize]) -> String {
        let names: Vec<String> = table.fields.iter().map(|f| escape(&f.name).into_owned()).collect();
        line(table, &names, widths)
    }
}

fn shown(table: &PrintedRows<'_>, batch: &CellBatch, row: usize) -> Vec<String> {
    let columns = batch.columns.iter().zip(&table.fields);
    let cell = |((_, cells), field): (&(_, tesseral::Cells), &tesseral::Field)| {
        if !cells.is_valid(row) {
            return "null".to_owned();
        }
        let mut text = String::new();
        write_cell(&mut text, field, cells.get(row));
        escape(&text).into_owned()
    };
    columns.map(cell).collect()
}

/// Numbers are aligned right, everything else left.
fn line(table: &PrintedRows<'_>, cells: &[String], widths: &[usize]) -> String {
    let mut out = String::new();
    for (i, (cell, field)) in cells.iter().zip(&table.fields).enumerate() {
        let pad = " ".repeat(widths[i].saturating_sub(cell.chars().count()));
        let right = field.dtype.class() != Class::Text && field.enumeration.is_none();
        out.push_str(if i == 0 { "" } else { "  " });
        out.push_str(if right { &pad } else { "" });
        out.push_str(cell);
        out.push_str(if right { "" } else { &pad });
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

impl RenderRows for TextRowRenderer {
    fn begin(&mut self, _: &PrintedRows<'_>, _: &mut OutputStream) -> CliResult<()> {
        Ok(())
    }

    fn batch(
        &mut self,
        table: &PrintedRows<'_>,
        batch: &CellBatch,
        rows: Range<usize>,
        out: &mut OutputStream,
    ) -> CliResult<()> {
        let mut text = String::new();
        let widths = match self.widths.take() {
            Some(widths) => widths,
            None => {
                let mut widths: Vec<usize> =
                    table.fields.iter().map(|f| escape(&f.name).chars().count()).collect();
                for row in rows.clone().take(MEASURED) {
                    let cells = shown(table, batch, row);
                    widths.iter_mut().zip(cells).for_each(|(w, cell)| *w = (*w).max(cell.chars().count()));
                }
                text.push_str(&self.header(table, &widths));
                widths
            }
        };
        for row in rows {
            text.push_str(&line(table, &shown(table, batch, row), &widths));
            if text.len() > 64 << 10 {
                out.put(text.as_bytes())?;
                text.clear();
            }
        }
        self.widths = Some(widths);
        out.put(text.as_bytes())
    }

    fn end(&mut self, table: &PrintedRows<'_>, out: &mut OutputStream) -> CliResult<()> {
        if self.widths.is_some() {
            return Ok(());
        }
        let widths: Vec<usize> = table.fields.iter().map(|f| escape(&f.name).chars().count()).collect();
        out.put(self.header(table, &widths).as_bytes())
    }
}
