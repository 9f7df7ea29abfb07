//! Sparse arrays: gather every cell, sort, remove duplicates where they are not allowed.

use std::cmp::Ordering;
use std::sync::Arc;

use tesseral_core::{ArraySchema, DType, Error, Result};

use super::chunk::{Decoded, Prefill, decode_parts, fetch};
use super::condition::meets;
use super::summary::scalar;
use tesseral_format::{
    ArraySource, ChunkPlan, Column, ContainerSource, CoordinateRanges, Delete, KEPT, Request, Target,
    UNWRITTEN,
};

/// A cell of a sparse array, as native-endian bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its coordinates, one per dimension.
    pub coords: Vec<Vec<u8>>,
    /// Its fields, `None` where null.
    pub fields: Vec<Option<Vec<u8>>>,
}

/// A cell before duplicates and deletes are resolved.
struct StoredCell {
    row: Row,
    layer: u32,
    time: Option<u64>,
    removed: bool,
}

/// Whether coordinates lie in the ranges: for each dimension, in one of its ranges, or there are none.
///
/// # Errors
/// `InvalidRequest` when the ranks differ.
pub fn in_ranges(schema: &ArraySchema, coords: &[Vec<u8>], ranges: &[CoordinateRanges]) -> Result<bool> {
    if ranges.len() != schema.dims.len() {
        return Err(Error::invalid("expected one list of ranges per dimension"));
    }
    for ((dim, bytes), ranges) in schema.dims.iter().zip(coords).zip(ranges) {
        let at = scalar(dim.dtype, bytes)?;
        let inside = |(low, high): &(_, _)| {
            at.compare(low).is_some_and(Ordering::is_ge) && at.compare(high).is_some_and(Ordering::is_le)
        };
        if !ranges.is_empty() && !ranges.iter().any(inside) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Order of rows by their coordinates: numbers numerically, text bytewise.
pub(crate) fn compare_rows(dtypes: &[DType], a: &Row, b: &Row) -> Ordering {
    for ((dtype, a), b) in dtypes.iter().zip(&a.coords).zip(&b.coords) {
        let order = match (scalar(*dtype, a), scalar(*dtype, b)) {
            (Ok(a), Ok(b)) => a.compare(&b).unwrap_or(Ordering::Equal),
            _ => a.cmp(b),
        };
        if order.is_ne() {
            return order;
        }
    }
    Ordering::Equal
}

/// Order of rows at one position: by the bytes of the fields in order, nulls as zeros; then by validity.
pub(crate) fn compare_fields(schema: &ArraySchema, a: &Row, b: &Row) -> Ordering {
    let bytes = |row: &Row| -> Vec<Vec<u8>> {
        let fields = schema.fields.iter().zip(&row.fields);
        let raw = fields.map(|(f, cell)| cell.clone().unwrap_or_else(|| vec![0; f.cell_size().unwrap_or(0)]));
        raw.collect()
    };
    let valid = |row: &Row| -> Vec<bool> { row.fields.iter().map(Option::is_some).collect() };
    bytes(a).cmp(&bytes(b)).then_with(|| valid(a).cmp(&valid(b)))
}

/// All columns of a sparse array.
pub(crate) fn all_columns(schema: &ArraySchema) -> Vec<Column> {
    let dims = (0..schema.dims.len() as u16).map(Column::Dim);
    let fields = (0..schema.fields.len() as u16).map(Column::Field);
    dims.chain(fields).chain([Column::Timestamp, Column::DeletedBy]).collect()
}

/// The rows of a plan of [all columns](crate::oracle), with duplicates and deletes resolved, sorted.
///
/// # Errors
/// Errors of reading and decoding.
pub fn rows_of_plan(
    container: &dyn ContainerSource,
    source: &dyn ArraySource,
    plan: &ChunkPlan,
    ranges: &[CoordinateRanges],
) -> Result<Vec<Row>> {
    let schema = source.schema();
    let mut stored = Vec::new();
    for chunk in &plan.chunks {
        let column = |column: Column| {
            let parts = fetch(container.store().as_ref(), source, chunk, column)?;
            decode_parts(source, chunk, column, &parts, 0..chunk.cells, Prefill::default())
        };
        let dims =
            (0..schema.dims.len() as u16).map(|d| column(Column::Dim(d))).collect::<Result<Vec<_>>>()?;
        let fields =
            (0..schema.fields.len() as u16).map(|f| column(Column::Field(f))).collect::<Result<Vec<_>>>()?;
        // A chunk without timestamps, or whose cells are all current, has no part of that column.
        let optional =
            |name: Column| chunk.column_parts(name).next().is_some().then(|| column(name)).transpose();
        let times = optional(Column::Timestamp)?;
        let removed = optional(Column::DeletedBy)?;
        for i in 0..chunk.cells {
            let row = Row {
                coords: dims.iter().map(|dim| dim.raw(i).to_vec()).collect(),
                fields: fields.iter().map(|field| field.get(i).map(<[u8]>::to_vec)).collect(),
            };
            let number = |cells: &Decoded| u64::from_ne_bytes(cells.raw(i).try_into().unwrap_or_default());
            let time = times.as_ref().map(number);
            let removed = removed.as_ref().map_or(KEPT, number);
            if removed != UNWRITTEN && in_ranges(schema, &row.coords, ranges)? {
                stored.push(StoredCell { row, layer: chunk.layer, time, removed: removed != KEPT });
            }
        }
    }
    let dtypes: Vec<DType> = schema.dims.iter().map(|d| d.dtype).collect();
    // Stable, so that among equal layers and times the cell stored last comes last.
    stored.sort_by(|a, b| {
        let time = |s: &StoredCell| s.time.unwrap_or(0);
        compare_rows(&dtypes, &a.row, &b.row)
            .then(a.layer.cmp(&b.layer))
            .then_with(|| if a.layer == b.layer { time(a).cmp(&time(b)) } else { Ordering::Equal })
    });
    if !schema.allows_duplicates {
        stored.reverse();
        stored.dedup_by(|later, first| compare_rows(&dtypes, &later.row, &first.row).is_eq());
    }
    let mut rows = Vec::new();
    for cell in stored {
        if !cell.removed && !is_deleted(schema, &plan.deletes, &cell.row, cell.layer, cell.time)? {
            rows.push(cell.row);
        }
    }
    rows.sort_by(|a, b| compare_rows(&dtypes, a, b).then_with(|| compare_fields(schema, a, b)));
    Ok(rows)
}

/// A delete applies to cells written before it: by the cell's timestamp where it has one, else by layer.
pub(crate) fn is_deleted(
    schema: &ArraySchema,
    deletes: &[Delete],
    row: &Row,
    layer: u32,
    time: Option<u64>,
) -> Result<bool> {
    for delete in deletes {
        let older = time.map_or(layer < delete.layer, |time| time <= delete.timestamp);
        if older && meets(&delete.condition, schema, row, true)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// All rows of a sparse array.
#[derive(Clone, Debug)]
pub struct Sparse {
    source: Arc<dyn ArraySource>,
    rows: Vec<Row>,
}

impl Sparse {
    /// Plans, reads and resolves the array.
    ///
    /// # Errors
    /// Errors of planning, reading and decoding.
    pub fn load(container: &dyn ContainerSource, array: usize) -> Result<Self> {
        let source = container.array(array)?;
        let all = vec![CoordinateRanges::new(); source.schema().dims.len()];
        let request = Request {
            target: Target::Coordinates(all.clone()),
            columns: all_columns(source.schema()),
            condition: None,
        };
        let plan = tesseral_format::plan(&*source, container.store(), &request)?;
        let rows = rows_of_plan(container, source.as_ref(), &plan, &all)?;
        Ok(Self { source, rows })
    }

    /// Every row with all fields.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Whether a row with all fields meets a condition.
    ///
    /// # Errors
    /// `NotFound` when the condition names an unknown field.
    pub fn meets(&self, condition: &tesseral_core::condition::Condition, row: &Row) -> Result<bool> {
        meets(condition, self.schema(), row, false)
    }

    /// The schema.
    pub fn schema(&self) -> &ArraySchema {
        self.source.schema()
    }

    /// Some fields of the rows whose coordinates lie in the ranges, in row order.
    ///
    /// # Errors
    /// `InvalidRequest` when ranges or fields do not match the schema.
    pub fn select(&self, fields: &[u16], ranges: &[CoordinateRanges]) -> Result<Vec<Row>> {
        let schema = self.schema();
        if fields.iter().any(|f| usize::from(*f) >= schema.fields.len()) {
            return Err(Error::invalid("unknown field"));
        }
        let mut rows = Vec::new();
        for row in &self.rows {
            if in_ranges(schema, &row.coords, ranges)? {
                let fields = fields.iter().map(|f| row.fields[usize::from(*f)].clone()).collect();
                rows.push(Row { coords: row.coords.clone(), fields });
            }
        }
        Ok(rows)
    }
}
