//! A column as an array: record batches are chunks.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tesseral_core::{
    ArraySchema, CellLen, ChunkStats, Coords, Dimension, Error, Limits, Region, Result, Stat,
};
use tesseral_format::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Part, Planned, PlannedChunk, Request,
    Scratch, table,
};
use tesseral_store::Rounds;

use crate::batch::StoredBatch;
use crate::decode::BatchColumn;
use crate::kind::{Form, Layout};
use crate::schema::SchemaColumn;
use crate::table::ArrowTable;

/// The array of a column.
#[derive(Debug)]
pub(crate) struct ArrowColumn {
    schema: ArraySchema,
    table: Arc<ArrowTable>,
    number: usize,
    limits: Limits,
    object: String,
}

impl ArrowColumn {
    pub(crate) fn new(table: &Arc<ArrowTable>, number: usize, object: &str, limits: Limits) -> Result<Self> {
        let column =
            table.columns.columns.get(number).ok_or_else(|| Error::internal("a column of no table"))?;
        let nullable = table.nullable.get(number).copied().unwrap_or(true);
        let largest = table.groups.iter().map(|group| group.end - group.start).max().unwrap_or(1);
        let SchemaColumn { name, kind, .. } = column;
        let mut schema = ArraySchema::dense(name, kind.dtype, &[table.rows], &[largest.max(1)]);
        schema.dims = vec![Dimension::new(table.columns.document.dimension(name), table.rows)];
        schema.fields = vec![kind.field(name, nullable)];
        schema.attributes = column.attributes.clone();
        let codec = table.batches.first().and_then(|batch| batch.codec);
        schema.fields[0].codecs = codec.map(|codec| codec.name().to_owned()).into_iter().collect();
        Ok(Self { schema, table: Arc::clone(table), number, limits, object: object.to_owned() })
    }

    fn column(&self) -> &SchemaColumn {
        &self.table.columns.columns[self.number]
    }

    fn nullable(&self) -> bool {
        self.schema.fields[0].nullable
    }

    /// The batch of a chunk.
    fn batch(&self, chunk: &PlannedChunk) -> Result<&StoredBatch> {
        let batch = usize::try_from(chunk.id).ok().and_then(|id| self.table.batches.get(id));
        batch.ok_or_else(|| Error::internal("a chunk of no record batch"))
    }

    /// The dictionary of the column, in parts.
    fn dictionary(&self) -> &[StoredBatch] {
        let id = self.column().indexed.map(|own| own.id);
        id.and_then(|id| self.table.dictionaries.get(&id)).map_or(&[], Vec::as_slice)
    }

    /// The range of cells that are read in place; `None` if they are decoded.
    fn direct(&self, batch: &StoredBatch) -> Option<Result<Range<u64>>> {
        let column = self.column();
        let Layout::Plain(size) = column.kind.layout else { return None };
        if self.nullable()
            || column.indexed.is_some()
            || batch.codec.is_some()
            || column.kind.form != Form::Same
        {
            return None;
        }
        let range = batch.ranges(column).pop().unwrap_or(0..0);
        let end = batch.rows.checked_mul(size as u64).and_then(|len| range.start.checked_add(len));
        Some(end.filter(|end| *end <= range.end).map(|end| range.start..end).ok_or_else(|| {
            let detail =
                format!("{} rows do not fit into a buffer of {} bytes", batch.rows, range.end - range.start);
            Error::corrupt("record batch", &self.object, range.start, detail)
        }))
    }
}

/// Memory for a text beside its bytes: its offset as stored and as decoded, its validity, and those of a conversion.
const TEXT: u64 = 20;

impl ArraySource for ArrowColumn {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        let Some([slice]) = request.selection().map(|selection| selection.slices()) else {
            return Err(Error::internal("a request of a different rank"));
        };
        let mut chunks = Vec::new();
        for number in table::touched_rows(&self.table.groups, slice) {
            let (batch, group) = (&self.table.batches[number], &self.table.groups[number]);
            self.limits.check_plan(chunks.len() as u64 + 1)?;
            let (mut ranges, access) = match self.direct(batch) {
                Some(range) => (vec![range?], Access::Direct { swapped: cfg!(target_endian = "big") }),
                None => {
                    let mut ranges = batch.ranges(self.column());
                    for part in self.dictionary() {
                        ranges.extend(part.dictionary_ranges(self.column().kind));
                    }
                    (ranges, Access::Coded { granule: None })
                }
            };
            let stored = ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(range.end - range.start));
            self.limits.check_chunk(stored)?;
            let field = &self.schema.fields[0];
            let fixed = field.cell_size().filter(|_| field.cell != CellLen::Var);
            let size = fixed.map_or(TEXT, |size| size as u64);
            // A bit becomes a byte.
            self.limits.check_decoded(batch.rows.saturating_mul(size), stored.saturating_mul(8))?;
            // An unstored bitmap takes the offset of the next stored buffer.
            let first = ranges.iter().find(|range| !range.is_empty()).map_or(0, |range| range.start);
            ranges.iter_mut().filter(|range| range.is_empty()).for_each(|range| *range = first..first);
            let parts = request.columns.iter();
            let parts =
                parts.flat_map(|column| ranges.iter().map(move |range| Part::values(*column, 0, range)));
            let region = Region::new([(group.start, group.end)]);
            chunks.push(PlannedChunk::exact(number as u64, region, parts.collect(), access));
        }
        Ok(Planned::Ready(ChunkPlan::disjoint(chunks)))
    }

    fn stats(&self, chunk: &PlannedChunk, _column: Column) -> ChunkStats {
        let mut stats = ChunkStats::unknown(chunk.cells);
        let own = self.batch(chunk).ok().and_then(|batch| batch.nodes.get(self.column().place.node));
        let nulls = own.and_then(|node| node.nulls);
        // Of dictionaries and groups, other values are null too.
        if self.column().indexed.is_none() && self.column().groups.is_empty() {
            stats.nulls = nulls.map_or(Stat::Absent, |nulls| Stat::Bound(nulls.min(chunk.cells)));
        }
        stats
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let size = self.schema.fields[0].cell_size().filter(|_| self.column().kind.cell != CellLen::Var);
        let codec = self.batch(chunk).ok().and_then(|batch| batch.codec);
        ChunkInfo {
            coords: Coords::from_slice(&[chunk.id]),
            raw_len: size.map_or(chunk.stored_bytes(), |size| chunk.cells.saturating_mul(size as u64)),
            stored_len: chunk.stored_bytes(),
            codec: codec.map_or("raw", crate::batch::BatchCodec::name).to_owned(),
            offset: chunk.parts.first().map_or(0, |part| part.offset),
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
        if let Access::Direct { .. } = chunk.access {
            let run = parts.first().and_then(|part| {
                let size = part.len() as u64 / chunk.cells.max(1);
                part.get((cells.start * size) as usize..(cells.end * size) as usize)
            });
            return match (out, run) {
                (ColumnMut::Fixed { values, .. }, Some(run)) if run.len() == values.len() => {
                    values.copy_from_slice(run);
                    if cfg!(target_endian = "big") {
                        let word = self.schema.fields[0].dtype.word().max(1);
                        values.chunks_exact_mut(word).for_each(<[u8]>::reverse);
                    }
                    Ok(())
                }
                _ => Err(Error::internal("a chunk of another column")),
            };
        }
        let batch = self.batch(chunk)?;
        let chunk = BatchColumn {
            column: self.column(),
            batch,
            dictionary: self.dictionary(),
            nullable: self.nullable(),
            limits: self.limits,
            object: &self.object,
            offset: chunk.parts.first().map_or(0, |part| part.offset),
        };
        chunk.decode(parts, cells, out, &mut scratch.contexts)
    }
}
