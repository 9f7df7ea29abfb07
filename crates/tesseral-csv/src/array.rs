//! A table as an array: chunks of rows, parsed when they are read.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tesseral_core::{ArraySchema, CellLen, Coords, Dimension, Error, Limits, Region, Result, alloc};
use tesseral_format::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Part, Planned, PlannedChunk, Request,
    Scratch, Totals, table,
};
use tesseral_store::Rounds;

use crate::rows::Rows;
use crate::table::{CsvChunk, CsvColumn, CsvTable, lines, not_utf8};

/// The array of a table.
#[derive(Debug)]
pub(crate) struct CsvArray {
    schema: ArraySchema,
    pub(crate) table: CsvTable,
    limits: Limits,
    object: String,
}

impl CsvArray {
    pub(crate) fn new(name: &str, table: CsvTable, object: String, limits: Limits) -> Self {
        let largest = table.groups.iter().map(|group| group.end - group.start).max().unwrap_or(1);
        let mut schema = ArraySchema::dense(name, tesseral_core::DType::Utf8, &[table.rows], &[largest]);
        schema.dims = vec![Dimension::new(table::ROW, table.rows)];
        let field = |column: &CsvColumn| column.kind.field(&column.name, column.missing);
        schema.fields = table.columns.iter().map(field).collect();
        Self { schema, table, limits, object }
    }

    fn chunk(&self, number: u64) -> Option<&CsvChunk> {
        usize::try_from(number).ok().and_then(|number| self.table.chunks.get(number))
    }

    /// The byte range of a chunk.
    fn span(&self, number: u64) -> Range<u64> {
        self.chunk(number).map_or(0..0, |chunk| chunk.bytes.clone())
    }
}

impl ArraySource for CsvArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        let Some([slice]) = request.selection().map(|selection| selection.slices()) else {
            return Err(Error::internal("a request of a different rank"));
        };
        let mut chunks = Vec::new();
        for number in table::touched_rows(&self.table.groups, slice) {
            self.limits.check_plan(chunks.len() as u64 + 1)?;
            let (group, span) = (&self.table.groups[number], &self.table.chunks[number].bytes);
            self.limits.check_chunk(span.end - span.start)?;
            let parts = request.columns.iter().map(|column| Part::values(*column, 0, span)).collect();
            let region = Region::new([(group.start, group.end)]);
            let access = Access::Coded { granule: None };
            chunks.push(PlannedChunk::exact(number as u64, region, parts, access));
        }
        Ok(Planned::Ready(ChunkPlan::disjoint(chunks)))
    }

    fn totals(&self, _: &Request) -> Result<Option<Totals>> {
        let spans = self.table.chunks.iter().map(|chunk| chunk.bytes.end - chunk.bytes.start);
        let chunks = self.table.chunks.len() as u64;
        Ok(Some(Totals { chunks, stored_bytes: spans.sum(), digests: false }))
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
            coords: Coords::from_slice(&[chunk.id]),
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
        let (offset, first) = self.chunk(chunk.id).map_or((0, 1), |chunk| (chunk.bytes.start, chunk.line));
        let separator = self.table.separator;
        let changed = |at: usize, what: &str| {
            let line = first + lines(&part[..at.min(part.len())]);
            let detail = format!("line {line}, column {:?}: {what}", own.name);
            Error::corrupt("a row", &self.object, offset, detail)
        };
        let mut rows = Rows::new(separator, part);
        let mut out = CsvCellsOut { out, at: 0 };
        out.reserve(cells.end, part.len())?;
        // The columns before this one, and whether it is the last.
        let is_last = number + 1 == self.table.columns.len();
        for row in 0..cells.end {
            let found = rows.start() && rows.skip(number).is_some();
            let at = rows.at();
            let different = || changed(at, "the row differs from the one found when the file was opened");
            if !found {
                return Err(different());
            }
            let (value, last) = rows.value();
            if last != is_last {
                return Err(different());
            }
            if row >= cells.start {
                match out.push(own, value) {
                    Some(()) => {}
                    None if std::str::from_utf8(value).is_err() => {
                        let line = first + lines(&part[..at]);
                        return Err(not_utf8(&own.name, line, &self.object));
                    }
                    None => return Err(changed(at, "the value is not of the column's type")),
                }
            }
            if !last {
                rows.leave();
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
    /// Makes room for the texts of rows of so many bytes.
    fn reserve(&mut self, rows: u64, bytes: usize) -> Result<()> {
        if let ColumnMut::Var { offsets, .. } = &mut self.out {
            // A row has at least one byte.
            let rows = usize::try_from(rows).unwrap_or(usize::MAX).min(bytes);
            alloc::reserve("ends of texts", offsets, rows)?;
        }
        Ok(())
    }

    /// Adds a value; `None` if it does not fit.
    #[inline]
    fn push(&mut self, column: &CsvColumn, value: &[u8]) -> Option<()> {
        let at = self.at;
        self.at += 1;
        let missing = value.is_empty();
        let valid = u8::from(!missing);
        match &mut self.out {
            ColumnMut::Fixed { values, validity } => {
                let cell = values.as_chunks_mut::<8>().0.get_mut(at)?;
                *cell = if missing { [0; 8] } else { column.kind.value(value)? };
                mark(validity, at, valid)
            }
            ColumnMut::Var { offsets, data, validity } => {
                if !value.is_ascii() {
                    std::str::from_utf8(value).ok()?;
                }
                data.extend_from_slice(value);
                offsets.push(data.len() as u64);
                mark(validity, at, valid)
            }
        }
    }
}

/// Sets the validity of a cell; a column without it has no missing values.
#[inline]
fn mark(validity: &mut Option<&mut [u8]>, at: usize, valid: u8) -> Option<()> {
    match validity {
        Some(validity) => validity.get_mut(at).map(|byte| *byte = valid),
        None => (valid == 1).then_some(()),
    }
}
