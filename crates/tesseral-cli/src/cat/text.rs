//! Aligned text: planes of the last two dimensions, with coordinates if there are any.

use super::block::{Block, Odometer, dim_name, has_coordinates};
use super::{Render, Task};
use crate::error::CliResult;
use crate::output::OutputStream;
use crate::text::escape;
use tesseral_display::{coordinate, write_cell};

/// Number of cells used to determine the column width. Longer cells that follow are not aligned, but never truncated.
const MEASURED: usize = 4096;

pub(super) struct TextRenderer {
    odometer: Odometer,
    rank: usize,
    /// Whether rows begin with the coordinate of their dimension.
    row_labels: bool,
    /// Coordinates above the columns.
    column_labels: Option<Vec<String>>,
    width: Option<usize>,
    label_width: usize,
    /// Number of the next cell.
    number: u64,
}

impl TextRenderer {
    pub(super) fn new(task: &Task<'_>) -> Self {
        let rank = task.selection.rank();
        let labeled = |d: usize| has_coordinates(task, d);
        let labels = |d: usize| -> Vec<String> {
            let slice = task.selection.slices()[d];
            let positions = (0..slice.count()).map(|i| slice.start + i * slice.step);
            positions.map(|p| escape(&coordinate(&task.array.schema().dims[d], p)).into_owned()).collect()
        };
        // A one-dimensional array is written vertically, with its coordinates before the rows.
        let row_dim = match rank {
            0 => None,
            1 => Some(0),
            _ => Some(rank - 2),
        };
        let row_labels = row_dim.is_some_and(labeled);
        let few = |d: usize| task.selection.slices()[d].count() <= 1 << 20;
        let column_labels = (rank > 1 && labeled(rank - 1) && few(rank - 1)).then(|| labels(rank - 1));
        let label_width = match row_dim {
            Some(d) if row_labels => label_width(task, d),
            _ => 0,
        };
        Self {
            odometer: Odometer::new(task),
            rank,
            row_labels,
            column_labels,
            width: None,
            label_width,
            number: 0,
        }
    }

    fn measure(&mut self, task: &Task<'_>, block: &Block) -> usize {
        let header = self.column_labels.iter().flatten().map(|l| l.chars().count()).max().unwrap_or(0);
        let cells = (0..block.len().min(MEASURED)).map(|i| cell(task, block, i).chars().count());
        let width = if self.rank < 2 { 0 } else { cells.max().unwrap_or(0).max(header) };
        *self.width.insert(width)
    }

    /// Heading of a plane of an array of three or more dimensions.
    fn plane(&self, task: &Task<'_>) -> String {
        let outer = self.odometer.coordinates().iter().take(self.rank.saturating_sub(2));
        let named = outer.enumerate().map(|(d, at)| format!("{}={}", escape(&dim_name(task, d)), escape(at)));
        format!("# {}\n", named.collect::<Vec<_>>().join(" "))
    }

    fn columns(&self, width: usize) -> String {
        let Some(labels) = &self.column_labels else { return String::new() };
        let mut line = if self.row_labels { " ".repeat(self.label_width) } else { String::new() };
        for (i, label) in labels.iter().enumerate() {
            line.push_str(if i > 0 || self.row_labels { "  " } else { "" });
            line.push_str(&" ".repeat(width.saturating_sub(label.chars().count())));
            line.push_str(label);
        }
        line.push('\n');
        line
    }
}

/// Length of the longest coordinate of a dimension. Domain values are monotonic, so only the ends are formatted; there can be
/// billions.
fn label_width(task: &Task<'_>, d: usize) -> usize {
    let (dim, slice) = (&task.array.schema().dims[d], task.selection.slices()[d]);
    let width = |i: u64| escape(&coordinate(dim, slice.start + i * slice.step)).chars().count();
    let count = slice.count();
    match &dim.labels {
        Some(_) => (0..count).map(width).max().unwrap_or(0),
        None if count > 0 => width(0).max(width(count - 1)),
        None => 0,
    }
}

fn cell(task: &Task<'_>, block: &Block, i: usize) -> String {
    let mut text = String::new();
    match block.cell(i) {
        Some(cell) => write_cell(&mut text, &task.field, cell),
        None => text.push_str("null"),
    }
    escape(&text).into_owned()
}

impl Render for TextRenderer {
    fn begin(&mut self, _: &Task<'_>, _: &mut OutputStream) -> CliResult<()> {
        Ok(())
    }

    fn block(&mut self, task: &Task<'_>, block: &Block, out: &mut OutputStream) -> CliResult<()> {
        let width = self.width.unwrap_or_else(|| self.measure(task, block));
        let mut text = String::new();
        for i in 0..block.len() {
            let begins = self.number == task.shown.start;
            self.number += 1;
            if !task.shown.contains(&(self.number - 1)) {
                self.odometer.advance(task);
                continue;
            }
            if self.rank > 1 && (begins || self.odometer.starts(2)) {
                if self.rank > 2 {
                    // Planes are separated by an empty line.
                    if !begins {
                        text.push('\n');
                    }
                    text.push_str(&self.plane(task));
                }
                text.push_str(&self.columns(width));
            }
            let first = self.rank < 2 || self.odometer.starts(1);
            if first && self.row_labels {
                let row = self.rank.saturating_sub(2);
                let label = escape(&self.odometer.coordinates()[row]).into_owned();
                text.push_str(&label);
                text.push_str(&" ".repeat(self.label_width.saturating_sub(label.chars().count())));
            }
            text.push_str(if first && !self.row_labels { "" } else { "  " });
            let cell = cell(task, block, i);
            text.push_str(&" ".repeat(width.saturating_sub(cell.chars().count())));
            text.push_str(&cell);
            self.odometer.advance(task);
            if self.rank < 2 || self.odometer.starts(1) {
                text.push('\n');
            }
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
