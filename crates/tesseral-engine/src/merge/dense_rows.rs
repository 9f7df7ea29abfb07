//! Cells of a dense array as rows: coordinates and fields that match a condition.

use tesseral_core::{Error, Result, Selection, alloc, dispatch_element};
use tesseral_format::{Column, Request};

use crate::decode::columns::{Cells, column_layout};
use crate::decode::variable_length::read_var;
use crate::handle::Handle;
use crate::merge::sparse::CellBatch;
use crate::options::Options;
use crate::paint::dense;
use crate::plan::blocks::Blocks;
use crate::plan::condition::{self, ConditionRows};
use crate::plan::expansion::{check_total, work_space};
use crate::reduce::visit::gaps;

/// Default size of a block in bytes.
const BLOCK: u64 = 64 << 20;
/// Blocks take a fraction of the memory limit; gathering rows takes as much again.
const SHARE: u64 = 4;

/// Blocks of a selection, as rows.
pub(crate) struct DenseCells {
    handle: Handle,
    request: Request,
    options: Options,
    /// The requested columns and those of the condition.
    columns: Vec<Column>,
    blocks: Blocks,
    /// Missing cells are returned as nulls.
    valid: bool,
}

impl DenseCells {
    pub(crate) fn new(handle: &Handle, request: &Request, options: &Options) -> Result<Self> {
        let schema = handle.schema();
        if schema.sparse {
            let error = Error::invalid("cells of a sparse array are requested by coordinates");
            return Err(error.in_array(&schema.name));
        }
        let selection =
            request.selection().ok_or_else(|| Error::invalid("a dense read requires positions"))?;
        let mut columns = request.columns.clone();
        if let Some(condition) = &request.condition {
            condition::columns_of(schema, condition, &mut columns)?;
        }
        check_total(handle, request)?;
        let mut row = 0_u64;
        for &column in &columns {
            if matches!(column, Column::Timestamp | Column::DeletedBy) {
                return Err(Error::invalid(format!("unknown column {column:?} of a dense array"))
                    .in_array(&schema.name));
            }
            let (size, nullable) = column_layout(schema, column)?;
            row += if size == 0 { 24 } else { size as u64 } + u64::from(nullable);
        }
        let allowed = options.memory.map_or(BLOCK, |memory| (memory / SHARE).clamp(1, BLOCK));
        let allowed = work_space(handle, request, allowed)?;
        let chunk = schema.chunk_shape.clone().unwrap_or_default();
        let blocks = Blocks::new(selection, &chunk, allowed / row.max(1));
        Ok(Self {
            handle: handle.clone(),
            request: request.clone(),
            options: options.clone(),
            columns,
            blocks,
            valid: false,
        })
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Reads every column of a part.
    fn read_columns(&self, part: &Selection) -> Result<Vec<Cells>> {
        let schema = self.handle.schema();
        let read = self.columns.iter().map(|&column| -> Result<Cells> {
            let (size, _) = column_layout(schema, column)?;
            match column {
                Column::Dim(d) => coordinates(&self.handle, usize::from(d), part),
                Column::Field(f) if size == 0 => {
                    read_var(&self.handle, &Request::cells(part.clone(), f), &self.options)
                }
                Column::Field(f) => self.read_fixed(f, size, part),
                _ => Err(Error::invalid(format!("unknown column {column:?} of a dense array"))),
            }
        });
        read.collect()
    }

    /// Reads the fixed-size cells of a field straight into their column.
    fn read_fixed(&self, field: u16, size: usize, part: &Selection) -> Result<Cells> {
        let count = count(part);
        let bytes = count.checked_mul(size);
        let bytes = bytes.ok_or_else(|| Error::limit("the selection", u64::MAX, isize::MAX as u64))?;
        self.options.check_memory("the result", bytes as u64)?;
        let mut values = alloc::zeroed("cells of a column", bytes)?;
        let nullable = self.handle.schema().fields[usize::from(field)].nullable;
        let mut validity = nullable.then(|| alloc::zeroed("validity of a column", count)).transpose()?;
        let request = Request::cells(part.clone(), field);
        dense::read_into(&self.handle, &request, &mut values, validity.as_deref_mut(), &self.options)?;
        Ok(Cells::from_fixed(size, values, validity))
    }

    /// One byte per cell of a part, 1 where the condition holds; `None` without a condition.
    fn mask(&self, count: usize, cells: &[Cells], written: Option<&[u8]>) -> Result<Option<Vec<u8>>> {
        let Some(condition) = &self.request.condition else { return Ok(None) };
        let cells_of = |column: Column| {
            let place = self.columns.iter().position(|c| *c == column);
            place.map(|p| &cells[p]).ok_or_else(|| Error::internal(format!("{column:?} was not read")))
        };
        let rows = ConditionRows {
            schema: self.handle.schema(),
            count,
            picked: None,
            column: &cells_of,
            absent: &|_| false,
            written,
            stored: false,
        };
        rows.mask(condition).map(Some)
    }

    /// All cells of a part in the requested columns, with missing ones as nulls, and which of them meet the condition.
    pub(crate) fn read_masked(&self, part: &Selection) -> Result<(Vec<Cells>, Option<Vec<u8>>)> {
        let (cells, count, written) = (self.read_columns(part)?, count(part), self.written(part)?);
        let mask = self.mask(count, &cells, written.as_deref())?;
        let asked = self.request.columns.iter().copied();
        let mut batch = CellBatch { rows: count, columns: asked.zip(cells).collect() };
        batch.mark_missing(self.handle.schema(), written.as_deref())?;
        Ok((batch.columns.into_iter().map(|(_, cells)| cells).collect(), mask))
    }

    /// Returns the rows of a part.
    pub(crate) fn read(&self, part: &Selection) -> Result<CellBatch> {
        let schema = self.handle.schema();
        let (cells, count, written) = (self.read_columns(part)?, count(part), self.written(part)?);
        let asked = self.request.columns.iter().copied();
        let Some(mask) = self.mask(count, &cells, written.as_deref())? else {
            let mut batch = CellBatch { rows: count, columns: asked.zip(cells).collect() };
            if self.valid {
                batch.mark_missing(schema, written.as_deref())?;
            }
            return Ok(batch);
        };
        let rows: Vec<u32> =
            (0_u32..).zip(mask).filter(|(_, holds)| *holds != 0).map(|(row, _)| row).collect();
        let columns = asked.zip(&cells).map(|(column, cells)| (column, cells.pick(&rows)));
        let mut batch = CellBatch { rows: rows.len(), columns: columns.collect() };
        if self.valid {
            let written =
                written.map(|written| rows.iter().map(|row| written[*row as usize]).collect::<Vec<_>>());
            batch.mark_missing(schema, written.as_deref())?;
        }
        Ok(batch)
    }
}

/// Number of cells of a part.
fn count(part: &Selection) -> usize {
    part.cells().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX)
}

impl DenseCells {
    /// Written cells of a part; all fields of an array are written together.
    fn written(&self, part: &Selection) -> Result<Option<Vec<u8>>> {
        let field = self.columns.iter().find_map(|column| match column {
            Column::Field(f) if self.valid || self.request.condition.is_some() => Some(*f),
            _ => None,
        });
        field.map_or(Ok(None), |f| gaps(&self.handle, &Request::cells(part.clone(), f)))
    }

    /// Returns missing cells as nulls.
    pub(crate) fn mark_missing(&mut self) {
        self.valid = true;
    }
}

impl Iterator for DenseCells {
    type Item = Result<CellBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let part = self.blocks.next()?;
            match self.read(&part) {
                Ok(batch) if batch.rows == 0 => {}
                other => return Some(other),
            }
        }
    }
}

/// Coordinates along a dimension of every cell of a selection, row-major.
fn coordinates(handle: &Handle, dim: usize, part: &Selection) -> Result<Cells> {
    let dimension = &handle.schema().dims[dim];
    let first = dimension.domain.as_ref().and_then(|(first, _)| first.as_i128()).unwrap_or(0);
    let shape = part.shape();
    let count = |dims: &[u64]| dims.iter().product::<u64>();
    let inner = usize::try_from(count(&shape[dim + 1..])).unwrap_or(usize::MAX);
    let outer = count(&shape[..dim]);
    let slice = part.slices()[dim];
    let size = dispatch_element!(dimension.dtype, T => Some(size_of::<T>()), else => None);
    let size = size.ok_or_else(|| Error::unsupported(format!("coordinates of dtype {}", dimension.dtype)))?;
    let mut data = Vec::new();
    for _ in 0..outer {
        for i in 0..shape[dim] {
            let position = handle.stored_position(dim, slice.start + i * slice.step);
            let value = first + i128::from(position);
            let bytes = value.to_le_bytes();
            let mut cell = [0; 8];
            cell[..size].copy_from_slice(&bytes[..size]);
            if cfg!(target_endian = "big") {
                cell[..size].reverse();
            }
            for _ in 0..inner {
                data.extend_from_slice(&cell[..size]);
            }
        }
    }
    Ok(Cells::from_fixed(size, data, None))
}
