//! A table as an array: chunks of rows, parsed when they are read.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use csv::ByteRecord;
use tesseral_core::{ArraySchema, CellLen, ChunkGrid, Dimension, Error, Limits, Result};
use tesseral_format::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Part, Planned, PlannedChunk, Request,
    Scratch, Totals,
};
use tesseral_store::Rounds;

use crate::dialect;
use crate::table::{CsvColumn, CsvTable, text};

/// Name of the dimension.
const ROW: &str = "row";

/// The array of a table.
#[derive(Debug)]
pub(crate) struct CsvArray {
    schema: ArraySchema,
    grid: ChunkGrid,
    pub(crate) table: CsvTable,
    limits: Limits,
    object: String,
}

impl CsvArray {
    pub(crate) fn new(name: &str, table: CsvTable, object: String, limits: Limits) -> Result<Self> {
        let chunk = table.chunk_rows.min(table.rows.max(1));
        let mut schema = ArraySchema::dense(name, tesseral_core::DType::Utf8, &[table.rows], &[chunk]);
        schema.dims = vec![Dimension::new(ROW, table.rows)];
        let field = |column: &CsvColumn| column.kind.field(&column.name, column.missing);
        schema.fields = table.columns.iter().map(field).collect();
        let grid = schema.grid()?.counted()?;
        Ok(Self { schema, grid, table, limits, object })
    }

    /// The byte range of a chunk.
    fn span(&self, number: u64) -> Range<u64> {
        let start = |number: u64| {
            let start = usize::try_from(number).ok().and_then(|number| self.table.starts.get(number));
            start.map_or(self.table.len, |start| start.offset)
        };
        start(number)..start(number.saturating_add(1))
    }
}

impl ArraySource for CsvArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        let plan = ChunkPlan::of_grid(&self.grid, request, &self.limits, |id, region| {
            let span = self.span(id);
            self.limits.check_chunk(span.end - span.start)?;
            let parts = request.columns.iter().map(|column| Part::values(*column, 0, &span)).collect();
            Ok(PlannedChunk::exact(id, region, parts, Access::Coded { granule: None }))
        });
        plan.map(Planned::Ready)
    }

    fn totals(&self, _: &Request) -> Result<Option<Totals>> {
        let first = self.span(0).start;
        Ok(Some(Totals { chunks: self.grid.total(), stored_bytes: self.table.len - first, digests: false }))
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let Range { start, end } = self.span(chunk.id);
        // The size of decoded text is not known; it is not more than that of the rows.
        let decoded = |part: &Part| match part.column {
            Column::Field(field) => {
                let field = self.schema.fields.get(usize::from(field));
                let size =
                    field.filter(|field| field.cell == CellLen::One).and_then(|field| field.cell_size());
                size.map_or(end - start, |size| chunk.cells.saturating_mul(size as u64))
            }
            _ => 0,
        };
        ChunkInfo {
            coords: self.grid.coords(chunk.id),
            raw_len: chunk.parts.iter().map(decoded).sum(),
            stored_len: chunk.stored_bytes(),
            codec: "text".to_owned(),
            offset: start,
        }
    }

    fn decode(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        _scratch: &mut Scratch,
    ) -> Result<()> {
        let number = match column {
            Column::Field(field) => usize::from(field),
            _ => usize::MAX,
        };
        let (Some(own), [part]) = (self.table.columns.get(number), parts) else {
            return Err(Error::internal("a chunk of rows decodes into one column"));
        };
        let first = usize::try_from(chunk.id).ok().and_then(|id| self.table.starts.get(id));
        let (offset, line) = first.map_or((0, 0), |start| (start.offset, start.line));
        let changed = |line: u64, what: &str| {
            let detail = format!("line {line}, column {:?}: {what}", own.name);
            Error::corrupt("a row", &self.object, offset, detail)
        };
        let mut reader = dialect::reader(self.table.separator, &part[..]);
        let mut record = ByteRecord::new();
        let mut out = CsvCellsOut { out, at: 0 };
        for row in 0..cells.end {
            let read = reader.read_byte_record(&mut record).unwrap_or(false);
            let here = line + record.position().map_or(0, |at| at.line().saturating_sub(1));
            if !read || record.len() != self.table.columns.len() {
                return Err(changed(here, "the row differs from the one found when the file was opened"));
            }
            if row >= cells.start {
                let value = text(&record, number, &own.name, here, &self.object)?;
                out.push(own, value).ok_or_else(|| changed(here, "the value is not of the column's type"))?;
            }
        }
        Ok(())
    }
}

/// Output for the values of a column.
struct CsvCellsOut<'a> {
    out: ColumnMut<'a>,
    at: usize,
}

impl CsvCellsOut<'_> {
    /// Adds a value; `None` if it does not fit.
    fn push(&mut self, column: &CsvColumn, text: &str) -> Option<()> {
        let at = self.at;
        self.at += 1;
        let missing = text.is_empty();
        let valid = u8::from(!missing);
        match &mut self.out {
            ColumnMut::Fixed { values, validity } => {
                let cell = values.get_mut(at.checked_mul(8)?..at.checked_add(1)?.checked_mul(8)?)?;
                let bytes = if missing { [0; 8] } else { column.kind.value(text)? };
                cell.copy_from_slice(&bytes);
                mark(validity, at, valid)
            }
            ColumnMut::Var { offsets, data, validity } => {
                data.extend(text.as_bytes());
                offsets.push(data.len() as u64);
                mark(validity, at, valid)
            }
        }
    }
}

/// Sets the validity of a cell; a column without it has no missing values.
fn mark(validity: &mut Option<&mut [u8]>, at: usize, valid: u8) -> Option<()> {
    match validity {
        Some(validity) => validity.get_mut(at).map(|byte| *byte = valid),
        None => (valid == 1).then_some(()),
    }
}
