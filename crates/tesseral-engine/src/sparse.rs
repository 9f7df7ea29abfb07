//! Reading cells of a sparse array: rows of coordinates and fields.
//!
//! Chunks are fetched and decoded as those of dense arrays are; only the end differs. Rows outside the ranges are
//! dropped chunk by chunk, the rest is sorted by coordinates; where an array allows one cell per position the highest
//! layer (within a layer the latest timestamp) stays; then stored deletes and the request's condition take rows away.

use std::cmp::Ordering;

use rayon::prelude::*;
use tesseral_core::{ArraySchema, DType, Error, Result, Scalar};
use tesseral_format::{Column, CoordinateRanges, Delete, KEPT, PlannedChunk, Request, Target, UNWRITTEN};

use crate::cells::{Cells, column_layout, sort_key};
use crate::chunk::with_workspace;
use crate::condition;
use crate::fetch::{self, Resident, Source};
use crate::handle::Handle;
use crate::options::Options;

/// Rows of a sparse array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellBatch {
    /// Number of rows.
    pub rows: usize,
    /// The columns asked for, in that order.
    pub columns: Vec<(Column, Cells)>,
}

/// Rows of one chunk that lie in the ranges.
struct Rows {
    layer: u32,
    /// Every column that was read, in the order of [`Wide::columns`]; no timestamps where the chunk keeps none.
    columns: Vec<Option<Cells>>,
    rows: usize,
}

/// What must be read beyond what was asked for.
struct Wide {
    columns: Vec<Column>,
    /// Places of the dimensions in `columns`.
    dims: Vec<usize>,
    timestamp: usize,
    /// Place of what says which cells count.
    removed: usize,
}

impl Wide {
    fn new(schema: &ArraySchema, request: &Request) -> Result<Self> {
        let mut columns = request.columns.clone();
        if let Some(condition) = &request.condition {
            condition::columns_of(schema, condition, &mut columns)?;
        }
        let mut place = |column: Column| {
            columns.iter().position(|c| *c == column).unwrap_or_else(|| {
                columns.push(column);
                columns.len() - 1
            })
        };
        let dims = (0..).take(schema.dims.len()).map(|d| place(Column::Dim(d))).collect();
        let timestamp = place(Column::Timestamp);
        let removed = place(Column::DeletedBy);
        Ok(Self { columns, dims, timestamp, removed })
    }
}

/// Reads the cells in the request's ranges, sorted by the dimensions in their order, ties by the bytes of the columns.
///
/// # Errors
/// What the plan, the store and the decoders meet; `Limit` when the rows pass the memory limit.
pub fn read_cells(handle: &Handle, request: &Request, options: &Options) -> Result<CellBatch> {
    let Target::Coordinates(ranges) = &request.target else {
        return Err(Error::invalid("cells of a sparse array are asked for by coordinates"));
    };
    let schema = handle.schema();
    if ranges.len() != schema.dims.len() {
        let detail = format!("{} ranges for {} dimensions", ranges.len(), schema.dims.len());
        return Err(Error::invalid(detail).in_array(&schema.name));
    }
    let mut wide = Wide::new(schema, request)?;
    let plan_of = |columns: &[Column]| {
        let request = Request { columns: columns.to_vec(), ..request.clone() };
        handle.source().plan(&request).map_err(|e| e.in_array(&schema.name))
    };
    let mut plan = plan_of(&wide.columns)?;
    // Deletes look at columns too, which are known only now.
    let planned = wide.columns.len();
    for delete in &plan.deletes {
        condition::columns_of(schema, &delete.condition, &mut wide.columns)?;
    }
    if wide.columns.len() > planned {
        plan = plan_of(&wide.columns)?;
    }
    let resident = fetch::resident(handle, &plan.chunks)?;
    let ticker = options.ticker(plan.chunks.len() as u64);
    let one = |chunk: &PlannedChunk| -> Result<Rows> {
        let rows =
            read_chunk(handle, chunk, &wide, ranges, resident.as_ref()).map_err(|e| handle.locate(chunk, e));
        ticker.tick()?;
        rows
    };
    let parts: Vec<Rows> = options.run(|| plan.chunks.par_iter().map(one).collect::<Result<_>>())?;
    let held: u64 =
        parts.iter().flat_map(|p| p.columns.iter().flatten()).map(|c| c.data().len() as u64).sum();
    options.check_memory("the rows", held.saturating_mul(2))?;
    let merge = Merge { schema, wide: &wide, parts: &parts };
    let rows = merge.run(&plan.deletes, request)?;
    Ok(merge.gather(&rows, &request.columns))
}

fn read_chunk(
    handle: &Handle,
    chunk: &PlannedChunk,
    wide: &Wide,
    ranges: &[CoordinateRanges],
    resident: Option<&Resident>,
) -> Result<Rows> {
    let schema = handle.schema();
    let fetched = match resident {
        Some(_) => None,
        None => Some(fetch::fetch(handle, &fetch::chunk_batch(handle, chunk))?),
    };
    let source = match (&fetched, resident) {
        (Some(fetched), _) => Source::Fetched(fetched),
        (None, Some(resident)) => Source::Resident(resident),
        (None, None) => return Err(Error::invalid("a chunk without bytes")),
    };
    let count = usize::try_from(chunk.cells)
        .map_err(|_| Error::limit("a chunk's cells", chunk.cells, usize::MAX as u64))?;
    let decode = |column: Column| -> Result<Cells> {
        let (size, nullable) = column_layout(schema, column)?;
        let parts = source.column(handle, chunk, column)?;
        let mut cells = Cells::new(size, nullable);
        cells.decode_with(count, |out| {
            with_workspace(|w| {
                handle.source().decode(chunk, column, &parts, 0..chunk.cells, out, &mut w.scratch)
            })
        })?;
        Ok(cells)
    };
    let coords: Vec<Cells> = wide.dims.iter().map(|&i| decode(wide.columns[i])).collect::<Result<_>>()?;
    let inside = |row: usize| {
        (0..coords.len()).all(|d| in_ranges(schema.dims[d].dtype, coords[d].get(row), &ranges[d]))
    };
    let wanted: Vec<usize> = (0..count).filter(|&row| inside(row)).collect();
    let gather = |cells: &Cells| {
        let mut out = cells.emptied();
        wanted.iter().for_each(|&row| out.push(cells.get(row), cells.is_valid(row)));
        out
    };
    let columns = wide.columns.iter().enumerate().map(|(i, &column)| -> Result<Option<Cells>> {
        if let Some(d) = wide.dims.iter().position(|&place| place == i) {
            return Ok(Some(gather(&coords[d])));
        }
        let optional = matches!(column, Column::Timestamp | Column::DeletedBy);
        if optional && chunk.column_parts(column).next().is_none() {
            return Ok(None);
        }
        if wanted.is_empty() {
            let (size, nullable) = column_layout(schema, column)?;
            return Ok(Some(Cells::new(size, nullable)));
        }
        Ok(Some(gather(&decode(column)?)))
    });
    Ok(Rows { layer: chunk.layer, columns: columns.collect::<Result<_>>()?, rows: wanted.len() })
}

fn in_ranges(dtype: DType, cell: &[u8], ranges: &CoordinateRanges) -> bool {
    if ranges.is_empty() {
        return true;
    }
    let Ok(value) = Scalar::from_le_bytes(dtype, cell) else { return false };
    ranges.iter().any(|(low, high)| {
        value.compare(low).is_some_and(Ordering::is_ge) && value.compare(high).is_some_and(Ordering::is_le)
    })
}

/// A row: number of its chunk, place in it.
type Row = (u32, u32);

struct Merge<'a> {
    schema: &'a ArraySchema,
    wide: &'a Wide,
    parts: &'a [Rows],
}

impl Merge<'_> {
    fn cell(&self, row: Row, place: usize) -> Option<(&[u8], bool)> {
        let cells = self.parts[row.0 as usize].columns[place].as_ref()?;
        Some((cells.get(row.1 as usize), cells.is_valid(row.1 as usize)))
    }

    fn time(&self, row: Row) -> Option<u64> {
        self.cell(row, self.wide.timestamp)
            .and_then(|(bytes, _)| bytes.try_into().ok().map(u64::from_ne_bytes))
    }

    /// What the chunk itself says of a cell that does not count.
    fn removed(&self, row: Row) -> u64 {
        let number = self.cell(row, self.wide.removed).and_then(|(bytes, _)| bytes.try_into().ok());
        number.map_or(KEPT, u64::from_ne_bytes)
    }

    fn by_coords(&self, a: Row, b: Row) -> Ordering {
        for (d, &place) in self.wide.dims.iter().enumerate() {
            let bytes = |row| self.cell(row, place).map_or(&[][..], |(bytes, _)| bytes);
            let order = compare(self.schema.dims[d].dtype, bytes(a), bytes(b));
            if order.is_ne() {
                return order;
            }
        }
        Ordering::Equal
    }

    /// Ties of coordinates: by the bytes of the columns asked for, nulls first.
    fn by_columns(&self, a: Row, b: Row, columns: usize) -> Ordering {
        let key =
            |row, place| self.cell(row, place).map(|(bytes, valid)| (valid, if valid { bytes } else { &[] }));
        (0..columns)
            .map(|place| key(a, place).cmp(&key(b, place)))
            .find(|o| o.is_ne())
            .unwrap_or(Ordering::Equal)
    }

    fn run(&self, deletes: &[Delete], request: &Request) -> Result<Vec<Row>> {
        let mut rows: Vec<Row> = Vec::new();
        for (p, part) in (0_u32..).zip(self.parts) {
            // A cell that is not written yet hides no older one; a deleted cell does.
            let written = |row: &Row| self.removed(*row) != UNWRITTEN;
            rows.extend((0_u32..).take(part.rows).map(|row| (p, row)).filter(written));
        }
        if !self.schema.allows_duplicates {
            let age = |row: Row| (self.parts[row.0 as usize].layer, self.time(row).unwrap_or(0));
            // Newest first among equals; of equal age, what was stored last.
            rows.par_sort_by(|&a, &b| {
                self.by_coords(a, b).then_with(|| age(b).cmp(&age(a))).then_with(|| b.cmp(&a))
            });
            rows.dedup_by(|later, kept| self.by_coords(*later, *kept).is_eq());
        }
        let mut kept = Vec::with_capacity(rows.len());
        for row in rows {
            if !self.is_deleted(deletes, row)? && self.meets(request.condition.as_ref(), row)? {
                kept.push(row);
            }
        }
        kept.par_sort_by(|&a, &b| {
            self.by_coords(a, b).then_with(|| self.by_columns(a, b, request.columns.len()))
        });
        Ok(kept)
    }

    /// A delete reaches cells written up to its own time: by the cell's time where it has one, else by layer.
    fn is_deleted(&self, deletes: &[Delete], row: Row) -> Result<bool> {
        if self.removed(row) != KEPT {
            return Ok(true);
        }
        for delete in deletes {
            let layer = self.parts[row.0 as usize].layer;
            let older = self.time(row).map_or(layer < delete.layer, |time| time <= delete.timestamp);
            if older && self.meets(Some(&delete.condition), row)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn meets(&self, condition: Option<&tesseral_core::condition::Condition>, row: Row) -> Result<bool> {
        let Some(condition) = condition else { return Ok(true) };
        condition::meets(self.schema, condition, &|column| {
            let place = self.wide.columns.iter().position(|c| *c == column);
            let Some((bytes, valid)) = place.and_then(|place| self.cell(row, place)) else { return Ok(None) };
            let dtype = match column {
                Column::Field(i) => self.schema.fields[usize::from(i)].dtype,
                Column::Dim(i) => self.schema.dims[usize::from(i)].dtype,
                _ => DType::UInt64,
            };
            if valid { Scalar::from_le_bytes(dtype, bytes).map(Some) } else { Ok(None) }
        })
    }

    fn gather(&self, rows: &[Row], columns: &[Column]) -> CellBatch {
        let gathered = columns.iter().enumerate().map(|(place, &column)| {
            let like = self.parts.iter().find_map(|p| p.columns[place].as_ref());
            let mut out = like.map_or_else(Cells::default, Cells::emptied);
            for &row in rows {
                // A chunk without timestamps has none to give.
                let (bytes, valid) = self.cell(row, place).unwrap_or((&[0; 8], true));
                out.push(bytes, valid);
            }
            (column, out)
        });
        CellBatch { rows: rows.len(), columns: gathered.collect() }
    }
}

fn compare(dtype: DType, a: &[u8], b: &[u8]) -> Ordering {
    match (sort_key(dtype, a), sort_key(dtype, b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => a.cmp(b),
    }
}
