//! A column as an array: row groups are chunks.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tesseral_core::{
    ArraySchema, CellLen, ChunkStats, Coords, Dimension, Error, Limits, Region, Result, Stat,
};
use tesseral_format::{
    Access, ArraySource, CellsOut, ChunkInfo, ChunkPlan, Column, ColumnMut, Part, Planned, PlannedChunk,
    Request, Scratch, table,
};
use tesseral_store::Rounds;

use crate::decode::ColumnChunk;
use crate::table::{ParquetTable, TableColumn};

/// The array of a column.
#[derive(Debug)]
pub(crate) struct ColumnArray {
    schema: ArraySchema,
    table: Arc<ParquetTable>,
    column: TableColumn,
    limits: Limits,
    object: String,
}

impl ColumnArray {
    pub(crate) fn new(table: &Arc<ParquetTable>, column: &TableColumn, object: &str, limits: Limits) -> Self {
        let largest = table.groups.iter().map(|group| group.end - group.start).max().unwrap_or(1);
        let TableColumn { name, kind, nullable, .. } = column;
        let mut schema = ArraySchema::dense(name, kind.dtype, &[table.rows], &[largest.max(1)]);
        schema.dims = vec![Dimension::new(table.document.dimension(name), table.rows)];
        schema.fields = vec![kind.field(name, *nullable)];
        schema.attributes = table.document.column_attributes(name);
        schema.fields[0].codecs = table.codecs(column.number);
        let (table, column) = (Arc::clone(table), column.clone());
        Self { schema, table, column, limits, object: object.to_owned() }
    }

    fn span(&self, group: usize) -> Result<Range<u64>> {
        self.table.span(group, self.column.number, &self.object)
    }

    /// The number of the row group of a chunk.
    fn group(chunk: &PlannedChunk) -> usize {
        usize::try_from(chunk.id).unwrap_or(usize::MAX)
    }
}

impl ArraySource for ColumnArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        let Some([slice]) = request.selection().map(|selection| selection.slices()) else {
            return Err(Error::internal("a request of a different rank"));
        };
        let groups = &self.table.groups;
        let mut chunks = Vec::new();
        for group in table::touched_rows(groups, slice) {
            let (number, group) = (self.table.numbers[group], &groups[group]);
            self.limits.check_plan(chunks.len() as u64 + 1)?;
            let span = self.span(number)?;
            self.limits.check_chunk(span.end - span.start)?;
            let cells = group.end - group.start;
            // Texts take at least the position of their end.
            let field = &self.schema.fields[0];
            let size = field.cell_size().unwrap_or(size_of::<u64>()) + usize::from(field.nullable);
            let size = size as u64;
            self.limits.check_decoded(cells.saturating_mul(size), span.end - span.start)?;
            let parts = request.columns.iter().map(|column| Part::values(*column, 0, &span)).collect();
            let region = Region::new([(group.start, group.end)]);
            let access = Access::Coded { granule: None };
            chunks.push(PlannedChunk::exact(number as u64, region, parts, access));
        }
        Ok(Planned::Ready(ChunkPlan::disjoint(chunks)))
    }

    fn stats(&self, chunk: &PlannedChunk, _column: Column) -> ChunkStats {
        let mut stats = ChunkStats::unknown(chunk.cells);
        let stored = self.table.chunk(Self::group(chunk), self.column.number);
        let Some((stored, own)) = stored.ok().and_then(|stored| Some((stored, stored.statistics()?))) else {
            return stats;
        };
        let bounded = |nulls: u64| Stat::Bound(nulls.min(chunk.cells));
        stats.nulls = own.null_count_opt().map_or(Stat::Absent, bounded);
        // The first kind of statistics compared unsigned numbers as signed ones.
        if !own.is_min_max_deprecated() {
            let bound = |bytes: Option<&[u8]>| {
                let bound = bytes.and_then(|bytes| self.column.kind.bound(stored.column_type(), bytes));
                bound.map_or(Stat::Absent, Stat::Bound)
            };
            stats.min = bound(own.min_bytes_opt());
            stats.max = bound(own.max_bytes_opt());
        }
        stats
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let group = Self::group(chunk);
        let stored = self.table.chunk(group, self.column.number).ok();
        let raw = stored.and_then(|stored| u64::try_from(stored.uncompressed_size()).ok()).unwrap_or(0);
        let size = self.schema.fields[0].cell_size().filter(|_| self.column.kind.cell != CellLen::Var);
        ChunkInfo {
            coords: Coords::from_slice(&[chunk.id]),
            raw_len: size.map_or(raw, |size| chunk.cells.saturating_mul(size as u64)),
            stored_len: chunk.stored_bytes(),
            codec: stored.map_or_else(String::new, crate::table::codec),
            offset: self.span(group).map_or(0, |span| span.start),
        }
    }

    fn decode(
        &self,
        chunk: &PlannedChunk,
        _column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let ([part], true) = (parts, cells == (0..chunk.cells)) else {
            return Err(Error::internal("a row group is decoded as a whole"));
        };
        let group = Self::group(chunk);
        let stored = ColumnChunk {
            metadata: self.table.chunk(group, self.column.number)?,
            kind: self.column.kind,
            rows: chunk.cells,
            object: &self.object,
            offset: self.span(group)?.start,
        };
        let mut out = CellsOut::new(out, &self.schema.fields[0], self.limits, part.len() as u64);
        stored.decode(part, &mut out, &mut scratch.contexts)
    }
}
