//! One JSON document with one line per row, written incrementally.

use std::ops::Range;

use serde_json::{Map, Value as Json, json};
use tesseral::{ArraySchema, CellBatch, DType, Field};

use super::{PrintedRows, RenderRows};
use crate::error::CliResult;
use crate::output::OutputStream;
use tesseral_core::escape_json;
use tesseral_core::schema::Labels;
use tesseral_display::json;

/// The dtype of a column: that of the labels, for a dimension whose positions have labels.
fn shown_dtype(schema: &ArraySchema, field: &Field) -> String {
    let labels = field.enumeration.as_ref().map(|enumeration| &enumeration.labels);
    match labels.filter(|_| schema.field(&field.name).is_err()) {
        Some(Labels::Text(_)) => DType::Utf8.to_string(),
        Some(Labels::Numbers { dtype, .. }) => dtype.to_string(),
        None => field.type_name().to_string(),
    }
}

#[derive(Default)]
pub(super) struct JsonRowRenderer {
    written: u64,
}

impl RenderRows for JsonRowRenderer {
    fn begin(&mut self, table: &PrintedRows<'_>, out: &mut OutputStream) -> CliResult<()> {
        let schema = table.target.array.schema();
        let columns = table
            .fields
            .iter()
            .map(|f| json!({"name": f.name, "dtype": shown_dtype(schema, f), "nullable": f.nullable}));
        let head = json!({
            "schema": "tesseral.cat/1",
            "array": schema.name,
            "sparse": schema.sparse,
            "columns": columns.collect::<Vec<_>>(),
        });
        let mut head = head.to_string();
        // The object stays open for its rows.
        head.pop();
        head.push_str(",\"rows\":[");
        out.put(head.as_bytes())
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
            let cells = batch.columns.iter().zip(&table.fields).map(|((_, cells), field)| {
                let value = if cells.is_valid(row) { json::cell(field, cells.get(row)) } else { Json::Null };
                (field.name.clone(), value)
            });
            text.push_str(if self.written == 0 { "\n" } else { ",\n" });
            text.push_str(&escape_json(&Json::Object(cells.collect::<Map<_, _>>()).to_string()));
            self.written += 1;
            if text.len() > 64 << 10 {
                out.put(text.as_bytes())?;
                text.clear();
            }
        }
        out.put(text.as_bytes())
    }

    fn end(&mut self, _: &PrintedRows<'_>, out: &mut OutputStream) -> CliResult<()> {
        let end = format!("{}],\"count\":{}}}\n", if self.written == 0 { "" } else { "\n" }, self.written);
        out.put(end.as_bytes())
    }
}
