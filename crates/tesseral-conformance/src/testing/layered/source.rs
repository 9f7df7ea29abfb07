//! Planning and decoding of tiles.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{ArraySchema, ChunkStats, Error, Region, Result};

use super::{Chunk, LayeredArray, StoredLayer};
use crate::testing::coding::{self, ColumnCoding};
use tesseral_store::Rounds;

use tesseral_format::{
    ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Cover, DigestSpan, DigestSpans, Part, Planned,
    PlannedChunk, Request, Role, Scratch, Uncovered,
};

impl LayeredArray {
    fn field(&self, column: Column) -> Result<usize> {
        match column {
            Column::Field(i) if usize::from(i) < self.schema.fields.len() => Ok(usize::from(i)),
            _ => Err(Error::invalid(format!("unknown column {column:?}")).in_array(&self.schema.name)),
        }
    }

    fn layout(&self, field: usize) -> ColumnCoding {
        ColumnCoding::from_field(&self.schema.fields[field])
    }

    /// The layer in the upper half of the ID, the index of the chunk in the lower.
    fn chunk(&self, id: u64) -> Option<(&StoredLayer, &Chunk)> {
        let layer = self.layers.get((id >> 32) as usize)?;
        Some((layer, layer.chunks.get(id as u32 as usize)?))
    }

    fn parts(&self, chunk: &Chunk, column: Column, field: usize) -> Vec<Part> {
        let roles = self.layout(field).roles();
        let spans = roles.zip(&chunk.fields[field].0);
        spans.map(|(role, &(offset, len))| Part { column, role, object: 0, offset, len }).collect()
    }
}

impl ArraySource for LayeredArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        let selection = request.selection().ok_or_else(|| Error::internal("a request by coordinates"))?;
        let fields = request.columns.iter().map(|c| Ok((*c, self.field(*c)?))).collect::<Result<Vec<_>>>()?;
        let mut chunks = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            let Some((part, _)) = selection.clip(&layer.cover) else { continue };
            let touched = self.grid.touched(&part);
            self.limits.check_plan(touched.remaining().saturating_add(chunks.len() as u64))?;
            for coords in touched {
                let linear = self.grid.linear(&coords);
                let found = layer.chunks.binary_search_by_key(&linear, |c| self.grid.linear(&c.coords));
                let (Ok(place), Some((cover, stored))) = (found, layer.boxes(&self.grid, &coords)) else {
                    return Err(Error::corrupt("layer", "", None, "missing chunk").in_chunk(&coords));
                };
                let chunk = &layer.chunks[place];
                let parts: SmallVec<[Part; 1]> =
                    fields.iter().flat_map(|&(column, field)| self.parts(chunk, column, field)).collect();
                let access = fields.iter().map(|&(_, field)| layer.codings[field].access(self.layout(field)));
                let shadowed =
                    self.layers[number + 1..].iter().any(|above| above.cover.intersect(&cover).is_some());
                chunks.push(PlannedChunk {
                    id: (number as u64) << 32 | place as u64,
                    cells: stored.cells().unwrap_or(0),
                    layer: number as u32,
                    access: coding::join(access),
                    whole: !shadowed && stored == cover,
                    tile: (stored != cover).then(|| Box::new(stored)),
                    cover: Cover::Exact(cover),
                    parts,
                });
            }
        }
        let everything = Region::from_shape(self.grid.shape());
        let full = self.layers.len() == 1 && self.layers[0].cover.contains(&everything);
        let uncovered = if full { Uncovered::Impossible } else { Uncovered::Fill };
        Ok(Planned::Ready(ChunkPlan { chunks, uncovered, deletes: Vec::new() }))
    }

    fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        match (self.chunk(chunk.id), self.field(column)) {
            (Some((_, stored)), Ok(field)) => stored.fields[field].1.clone(),
            _ => ChunkStats::unknown(chunk.cells),
        }
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let stored = self.chunk(chunk.id);
        let codings = stored.map(|(layer, _)| layer.codings.clone()).unwrap_or_default();
        let raw = chunk.parts.iter().filter(|part| part.role == Role::Values).map(|part| part.len).sum();
        ChunkInfo {
            coords: stored.map(|(_, chunk)| chunk.coords.clone()).unwrap_or_default(),
            raw_len: raw,
            stored_len: chunk.stored_bytes(),
            codec: if codings.iter().any(|c| c.xor) { "xor".to_owned() } else { "raw".to_owned() },
            offset: chunk.parts.first().map_or(0, |part| part.offset),
        }
    }

    fn digests(&self, chunk: &PlannedChunk) -> DigestSpans<'_> {
        let digest = self.chunk(chunk.id).and_then(|(_, chunk)| chunk.digest);
        digest
            .map(|(start, end, hash)| DigestSpan::single(0, start..end, chunk.id, hash))
            .into_iter()
            .collect()
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
        let field = self.field(column)?;
        let stored = self.chunk(chunk.id);
        let (layer, stored) = stored.ok_or_else(|| Error::invalid("the chunk belongs to another array"))?;
        coding::decode(layer.codings[field], self.layout(field), chunk.cells, parts, cells, out)
            .map_err(|e| e.in_array(&self.schema.name).in_chunk(&stored.coords))
    }
}
