//! One row per cell: its coordinates, then its value.

use tesseral_display::write_cell;

use super::block::{Block, Odometer, dim_name};
use super::{Render, Task};
use crate::error::CliResult;
use crate::output::OutputStream;
use crate::text::csv_quoted;

pub(super) struct Csv {
    odometer: Odometer,
    /// The coordinates of the current cell as the start of the row, and the end of each dimension's part.
    prefix: String,
    ends: Vec<usize>,
    /// Number of the next cell.
    number: u64,
}

impl Csv {
    pub(super) fn new(task: &Task<'_>) -> Self {
        let odometer = Odometer::new(task);
        let mut csv = Self { odometer, prefix: String::new(), ends: Vec::new(), number: 0 };
        csv.renew(0);
        csv
    }

    /// Rewrites the coordinates from a dimension on; earlier ones are unchanged.
    fn renew(&mut self, from: usize) {
        self.ends.truncate(from);
        self.prefix.truncate(self.ends.last().copied().unwrap_or(0));
        for coordinate in &self.odometer.coordinates()[from..] {
            self.prefix.push_str(&csv_quoted(coordinate));
            self.prefix.push(',');
            self.ends.push(self.prefix.len());
        }
    }
}

impl Render for Csv {
    fn begin(&mut self, task: &Task<'_>, out: &mut OutputStream) -> CliResult<()> {
        let mut row = String::new();
        for d in 0..task.selection.rank() {
            let name = dim_name(task, d);
            // A number alone is not a suitable column name.
            let name = if task.array.schema().dims[d].name.is_empty() { format!("dim_{name}") } else { name };
            row.push_str(&csv_quoted(&name));
            row.push(',');
        }
        row.push_str(&csv_quoted(&task.field.name));
        row.push('\n');
        out.put(row.as_bytes())
    }

    fn block(&mut self, task: &Task<'_>, block: &Block, out: &mut OutputStream) -> CliResult<()> {
        let (mut text, mut value) = (String::new(), String::new());
        for i in 0..block.len() {
            if task.shown.contains(&self.number) {
                text.push_str(&self.prefix);
                value.clear();
                if let Some(cell) = block.cell(i) {
                    write_cell(&mut value, &task.field, cell);
                    // Empty text is not null.
                    text.push_str(if value.is_empty() { "\"\"" } else { "" });
                }
                text.push_str(&csv_quoted(&value));
                text.push('\n');
            }
            self.number += 1;
            self.odometer.advance(task);
            self.renew(self.odometer.moved);
            if text.len() > 64 << 10 {
                out.put(text.as_bytes())?;
                text.clear();
            }
        }
        out.put(text.as_bytes())
    }

    fn end(&mut self, _: &Task<'_>, _: &mut OutputStream) -> CliResult<()> {
        Ok(())
    }
}
