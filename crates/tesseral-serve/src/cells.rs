//! Cells: one value exactly, rows as a table, points of sparse arrays.

use serde::Deserialize;
use serde_json::{Value as Json, json};
use tesseral::{Array, Cancel, CellLen, Column, DType, Error, Field, Result};
use tesseral_display::json::{cell, float};
use tesseral_display::{coordinate, dim_name, field_of, write_cell};

use crate::server::ServerState;
use crate::statistics::check_cells;
use crate::view::CellParameters;

/// Rows of one page of a table.
const ROWS: usize = 200;
/// Rows before the last page that can be shown.
const SCANNED: usize = 2_000_000;
/// Points that are drawn one by one.
const POINTS: usize = 20_000;

/// Cells, and which rows of them.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct RowParameters {
    source: usize,
    array: usize,
    field: u16,
    as_of: Option<String>,
    stored: bool,
    at: String,
    #[serde(rename = "where")]
    condition: String,
    from: usize,
    x: u16,
    y: u16,
}

impl RowParameters {
    fn cells(&self) -> CellParameters {
        CellParameters {
            source: self.source,
            array: self.array,
            field: self.field,
            as_of: self.as_of.clone(),
            stored: self.stored,
            at: self.at.clone(),
        }
    }
}

fn text_of(field: &Field, bytes: &[u8]) -> String {
    let mut text = String::new();
    write_cell(&mut text, field, bytes);
    text
}

/// One cell, exactly, with its coordinates.
pub(crate) fn value(shared: &ServerState, query: &CellParameters, cancel: Cancel) -> Result<Json> {
    let opened = query.open(shared, cancel)?;
    let array = opened.labeled()?;
    let schema = array.schema();
    let selection = query.selection(&array)?;
    if selection.cells() != Some(1) || schema.sparse {
        return Err(Error::invalid("a value requires the position of one cell of a dense array")
            .in_array(array.name()));
    }
    let field = array.selected_field().clone();
    let places = schema.dims.iter().zip(selection.slices()).enumerate();
    let coordinates: Vec<Json> = places
        .map(|(i, (dim, slice))| {
            json!({"name": dim_name(dim, i), "position": slice.start, "text": coordinate(dim, slice.start)})
        })
        .collect();
    let found: Option<Vec<u8>> = cell_bytes(&array, &field, &selection)?;
    Ok(json!({
        "missing": found.is_none(),
        "value": found.as_ref().map(|bytes| cell(&field, bytes)),
        "text": found.as_ref().map(|bytes| text_of(&field, bytes)),
        "coordinates": coordinates,
    }))
}

/// Bytes of one cell; `None` if it is missing.
fn cell_bytes(array: &Array, field: &Field, selection: &tesseral::Selection) -> Result<Option<Vec<u8>>> {
    if field.dtype == DType::Bitmask {
        let bits = tesseral_engine::read_bits(array.handle(), &array.request(selection), array.options())?;
        return Ok(Some(bits));
    }
    if field.cell == CellLen::Var {
        let cells = array.read_var(selection)?;
        return Ok(cells.is_valid(0).then(|| cells.get(0).to_vec()));
    }
    array.read_with(selection, |cells| {
        let valid = cells.validity().is_none_or(|validity| validity.first() != Some(&0));
        Ok(valid.then(|| cells.bytes().to_vec()))
    })
}

/// A page of rows: coordinates, then fields.
pub(crate) fn rows(shared: &ServerState, query: &RowParameters, cancel: Cancel) -> Result<Json> {
    let opened = query.cells().open(shared, cancel.clone())?;
    let array = opened.labeled()?;
    let schema = array.schema();
    let end = query.from.saturating_add(ROWS);
    if end > SCANNED + ROWS {
        let error = Error::limit("the rows before a page", query.from as u64, SCANNED as u64);
        return Err(error.in_array(array.name()).hint("select a smaller range or set a condition"));
    }
    let dims = (0..).take(schema.dims.len()).map(Column::Dim);
    let columns: Vec<Column> = dims.chain((0..).take(schema.fields.len()).map(Column::Field)).collect();
    let fields: Vec<Field> = columns.iter().map(|column| field_of(schema, *column)).collect();
    let target = query.cells().target(&array)?;
    if !query.condition.is_empty() {
        check_cells(&array, array.cells_at_most(&target)?)?;
    }
    let mut cells = array.cells()?.target(target).only(&columns);
    cells = cells.options(array.options().clone());
    if !query.condition.is_empty() {
        cells = cells.filter(&query.condition)?;
    }
    let (mut shown, mut passed, mut more) = (Vec::new(), 0_usize, false);
    'batches: for batch in cells.batches()? {
        let batch = batch?;
        cancel.check()?;
        if passed + batch.rows <= query.from {
            passed += batch.rows;
            continue;
        }
        for row in 0..batch.rows {
            if passed >= end {
                more = true;
                break 'batches;
            }
            if passed >= query.from {
                let cell = |((_, cells), field): (&(Column, tesseral::Cells), &Field)| {
                    cells.is_valid(row).then(|| text_of(field, cells.get(row)))
                };
                shown.push(batch.columns.iter().zip(&fields).map(cell).collect::<Vec<_>>());
            }
            passed += 1;
        }
    }
    let heads =
        fields.iter().map(|field| json!({"name": field.name, "dtype": field.type_name().to_string()}));
    Ok(json!({
        "columns": heads.collect::<Vec<_>>(),
        "dims": schema.dims.len(),
        "from": query.from,
        "rows": shown,
        "more": more,
    }))
}

/// Cells of a sparse array as points: two coordinates and the value of the field as numbers.
pub(crate) fn points(shared: &ServerState, query: &RowParameters, cancel: Cancel) -> Result<Json> {
    let opened = query.cells().open(shared, cancel.clone())?;
    let array = opened.labeled()?;
    let schema = array.schema();
    let dims = [query.x, query.y];
    if dims.iter().any(|d| usize::from(*d) >= schema.dims.len()) {
        return Err(Error::invalid("a dimension does not exist").in_array(array.name()));
    }
    let columns = [Column::Dim(query.x), Column::Dim(query.y), opened.column()];
    let fields: Vec<Field> = columns.iter().map(|column| field_of(schema, *column)).collect();
    let distinct = if query.x == query.y { vec![columns[0], columns[2]] } else { columns.to_vec() };
    let cells = array.cells()?.target(query.cells().target(&array)?).only(&distinct).unordered();
    let cells = cells.options(array.options().clone());
    let (mut out, mut more, mut scanned) = (Vec::new(), false, 0_usize);
    let number = |column: Column, field: &Field, bytes: &[u8]| {
        let value = tesseral::Scalar::from_le_bytes(field.dtype, bytes).ok()?;
        let number = value.as_f64().or_else(|| value.as_text()?.trim().parse().ok())?;
        let text = matches!(column, Column::Dim(_)).then(|| text_of(field, bytes));
        Some((number, text))
    };
    'batches: for batch in cells.batches()? {
        let batch = batch?;
        cancel.check()?;
        // Cells whose coordinates are not numbers have no point.
        if scanned > SCANNED {
            more = true;
            break;
        }
        scanned += batch.rows;
        for row in 0..batch.rows {
            if out.len() >= POINTS {
                more = true;
                break 'batches;
            }
            let value_of = |column: Column| {
                let at = batch.columns.iter().position(|(own, _)| *own == column)?;
                let field = &fields[columns.iter().position(|own| *own == column)?];
                let cells = &batch.columns[at].1;
                if cells.is_valid(row) { number(column, field, cells.get(row)) } else { None }
            };
            let (Some(x), Some(y)) = (value_of(columns[0]), value_of(columns[1])) else { continue };
            let value = value_of(columns[2]).map_or(Json::Null, |(value, _)| float(value));
            out.push(json!([float(x.0), float(y.0), value, x.1, y.1]));
        }
    }
    Ok(json!({"x": fields[0].name, "y": fields[1].name, "points": out, "more": more}))
}
