//! One JSON document with nested lists, written incrementally.

use serde_json::{Value as Json, json};

use super::block::{Block, dim_name};
use super::{Render, Task};
use crate::error::CliResult;
use crate::explain;
use crate::output::OutputStream;
use tesseral_core::escape_json;
use tesseral_display::json;

pub(super) struct JsonRenderer {
    /// Number of cells in a list of each depth: a list of depth `d` opens and closes at multiples of it.
    runs: Vec<u64>,
    written: u64,
}

impl JsonRenderer {
    pub(super) fn new(task: &Task<'_>) -> Self {
        let shape = task.selection.shape();
        let runs =
            (0..shape.len()).map(|d| shape[d..].iter().fold(1, |n: u64, extent| n.saturating_mul(*extent)));
        Self { runs: runs.collect(), written: 0 }
    }
}

impl Render for JsonRenderer {
    fn begin(&mut self, task: &Task<'_>, out: &mut OutputStream) -> CliResult<()> {
        let schema = task.array.schema();
        let dims: Vec<Json> = (0..schema.dims.len()).map(|d| json!(dim_name(task, d))).collect();
        let head = json!({
            "schema": "tesseral.cat/1",
            "array": schema.name,
            "field": task.field.name,
            "dtype": task.field.type_name().to_string(),
            "shape": task.selection.shape().as_slice(),
            "dims": dims,
        });
        let mut head = head.to_string();
        // The object stays open for its data.
        head.pop();
        head.push_str(",\"data\":");
        out.put(escape_json(&head).as_bytes())?;
        if self.runs.contains(&0) { out.put(empty_lists(&task.selection.shape()).as_bytes()) } else { Ok(()) }
    }

    fn block(&mut self, task: &Task<'_>, block: &Block, out: &mut OutputStream) -> CliResult<()> {
        let mut text = String::new();
        for i in 0..block.len() {
            let opened = self.runs.iter().filter(|run| self.written.is_multiple_of(**run)).count();
            if self.written > 0 {
                text.push(',');
            }
            text.extend(std::iter::repeat_n('[', opened));
            let value = block.cell(i).map_or(Json::Null, |cell| json::cell(&task.field, cell));
            text.push_str(&escape_json(&value.to_string()));
            self.written += 1;
            let closed = self.runs.iter().filter(|run| self.written.is_multiple_of(**run)).count();
            text.extend(std::iter::repeat_n(']', closed));
            if text.len() > 64 << 10 {
                out.put(text.as_bytes())?;
                text.clear();
            }
        }
        out.put(text.as_bytes())
    }

    fn end(&mut self, _: &Task<'_>, out: &mut OutputStream) -> CliResult<()> {
        out.put(explain::end_of_document().as_bytes())
    }
}

/// Empty nested lists, as NumPy prints them: `[[], []]` for 2×0.
fn empty_lists(shape: &[u64]) -> String {
    /// Maximum number of empty lists; more add nothing to the shape.
    const SHOWN: usize = 1 << 16;
    match shape.split_first() {
        None => "null".to_owned(),
        Some((0, _)) => "[]".to_owned(),
        Some((n, rest)) => {
            let inner = empty_lists(rest);
            // Each list takes at least two bytes.
            let most = (2 * SHOWN / inner.len()).max(1);
            let count = usize::try_from(*n).unwrap_or(usize::MAX).min(most);
            format!("[{}]", vec![inner; count].join(","))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_shapes_nest_down_to_the_empty_one() {
        assert_eq!(empty_lists(&[0, 3]), "[]");
        assert_eq!(empty_lists(&[2, 0]), "[[],[]]");
        assert_eq!(empty_lists(&[1, 2, 0, 5]), "[[[],[]]]");
    }

    /// A shape of a few bytes can declare any number of empty lists.
    #[test]
    fn the_number_of_empty_lists_is_bounded() {
        assert!(empty_lists(&[1 << 40, 1 << 40, 1 << 40, 0]).len() < 1 << 20);
    }
}
