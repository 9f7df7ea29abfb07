//! Cells, coordinates and columns as text.

use tesseral::{ArraySchema, CellBatch, CellLen, Column, DType, Dimension, Field};
use tesseral_core::dtype::Class;
use tesseral_core::scalar;
use tesseral_core::schema::Enumeration;

use crate::json;
use crate::text::csv_quoted;

/// Writes a cell as text; nothing for a null.
pub fn write_cell(out: &mut String, field: &Field, bytes: &[u8]) {
    if let Some(time) = json::time(field, bytes) {
        out.push_str(&time);
        return;
    }
    if let Some(label) = json::label(field, bytes) {
        out.push_str(&label.to_string());
        return;
    }
    let pair = match (field.cell, field.dtype) {
        (CellLen::Fixed(2), DType::Float32) => Some(DType::Complex64),
        (CellLen::Fixed(2), DType::Float64) => Some(DType::Complex128),
        _ => None,
    };
    let size = field.dtype.size().unwrap_or(1);
    // Writing to a `String` is infallible.
    let _ = match (pair, field.cell) {
        (Some(pair), _) => scalar::write_element(out, pair, bytes),
        (None, CellLen::Fixed(_) | CellLen::Var) if field.dtype.class() != Class::Text => {
            out.push('[');
            for (i, one) in bytes.chunks(size).enumerate() {
                out.push_str(if i == 0 { "" } else { ", " });
                let _ = scalar::write_element(out, field.dtype, one);
            }
            out.push(']');
            Ok(())
        }
        _ => scalar::write_element(out, field.dtype, bytes),
    };
}

/// A dimension as a field; an unnamed one is named by its number.
pub fn dim_field(schema: &ArraySchema, dim: usize) -> Field {
    let dimension = &schema.dims[dim];
    let name = if dimension.name.is_empty() { dim.to_string() } else { dimension.name.clone() };
    let cell = if dimension.dtype.class() == Class::Text { CellLen::Var } else { CellLen::One };
    // Labels are the coordinates, one for each position.
    let counted = dimension.domain.as_ref().is_none_or(|(first, _)| first.as_i128() == Some(0));
    let labels = dimension
        .labels
        .as_ref()
        .filter(|labels| counted && !schema.sparse && Some(labels.len() as u64) == dimension.extent);
    let enumeration =
        labels.map(|labels| Enumeration { name: name.clone(), ordered: false, labels: labels.clone() });
    let time = dimension.time.filter(|_| enumeration.is_some());
    Field { cell, enumeration, time, ..Field::new(name, dimension.dtype) }
}

/// Column as a field; an unnamed dimension is named by its number.
pub fn field_of(schema: &ArraySchema, column: Column) -> Field {
    match column {
        Column::Field(f) => schema.fields[usize::from(f)].clone(),
        Column::Dim(d) => dim_field(schema, usize::from(d)),
        Column::Timestamp | Column::DeletedBy => Field::new("timestamp", DType::UInt64),
    }
}

/// Coordinate of a position: its label, its time, its domain value, or its number.
pub fn coordinate(dim: &Dimension, position: u64) -> String {
    dim.coordinate_text(position).unwrap_or_else(|| position.to_string())
}

/// Name of a dimension, or its number if it is unnamed, as accepted by selections.
pub fn dim_name(dim: &Dimension, number: usize) -> String {
    if dim.name.is_empty() { number.to_string() } else { dim.name.clone() }
}

/// The first line of rows as CSV: the names of the columns.
pub fn csv_head(fields: &[Field]) -> String {
    let names: Vec<_> = fields.iter().map(|field| csv_quoted(&field.name)).collect();
    names.join(",") + "\n"
}

/// Appends a row of a batch as CSV; nulls are empty.
pub fn csv_row(out: &mut String, fields: &[Field], batch: &CellBatch, row: usize) {
    let mut value = String::new();
    for (i, ((_, cells), field)) in batch.columns.iter().zip(fields).enumerate() {
        out.push_str(if i == 0 { "" } else { "," });
        if cells.is_valid(row) {
            value.clear();
            write_cell(&mut value, field, cells.get(row));
            // Empty text is not null.
            out.push_str(if value.is_empty() { "\"\"" } else { "" });
            out.push_str(&csv_quoted(&value));
        }
    }
    out.push('\n');
}
