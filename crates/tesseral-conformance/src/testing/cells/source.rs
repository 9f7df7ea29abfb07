//! Planning and decoding of chunks of cells.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{ArraySchema, ChunkStats, Coords, Error, Result, Scalar, Stat};

use super::{CellsArray, Chunk, StoredLayer, columns};
use crate::testing::coding::{self, ColumnCoding};
use tesseral_store::Rounds;

use tesseral_format::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Cover, DigestSpan, DigestSpans, Part,
    Planned, PlannedChunk, Request, Role, Scratch, Target, Uncovered,
};

/// With more layers than this, no chunk is tested for being whole.
const WHOLE: usize = 64;

fn overlap(a: &(Scalar, Scalar), b: &(Scalar, Scalar)) -> bool {
    a.0.compare(&b.1).is_some_and(std::cmp::Ordering::is_le)
        && b.0.compare(&a.1).is_some_and(std::cmp::Ordering::is_le)
}

impl CellsArray {
    fn chunk(&self, id: u64) -> Option<(&StoredLayer, &Chunk)> {
        let layer = self.layers.get((id >> 32) as usize)?;
        Some((layer, layer.chunks.get(id as u32 as usize)?))
    }

    /// The index of a column among the stored columns. `None` for timestamps that the layer does not store.
    fn column_index(&self, layer: &StoredLayer, column: Column) -> Option<(usize, ColumnCoding)> {
        let columns = columns(&self.schema, layer.times);
        columns.iter().position(|(c, _)| *c == column).map(|i| (i, columns[i].1))
    }

    fn is_whole(&self, number: usize, chunk: &Chunk) -> bool {
        if !self.deletes.is_empty() || self.schema.allows_duplicates {
            return self.deletes.is_empty();
        }
        let meets = |other: &Chunk| chunk.bounds.iter().zip(&other.bounds).all(|(a, b)| overlap(a, b));
        self.layers.len() <= WHOLE
            && !self.layers[number].times
            && (self.layers.iter().enumerate())
                .all(|(i, layer)| i == number || !layer.chunks.iter().any(meets))
    }
}

impl ArraySource for CellsArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        let Target::Coordinates(ranges) = &request.target else {
            return Err(Error::internal("a request by position"));
        };
        let mut chunks = Vec::new();
        for (number, layer) in self.layers.iter().enumerate() {
            for (index, chunk) in layer.chunks.iter().enumerate() {
                let mut pairs = chunk.bounds.iter().zip(ranges);
                if !pairs.all(|(b, r)| r.is_empty() || r.iter().any(|r| overlap(b, r))) {
                    continue;
                }
                let mut parts: SmallVec<[Part; 1]> = SmallVec::new();
                let mut accesses = Vec::new();
                for &column in &request.columns {
                    let Some((i, layout)) = self.column_index(layer, column) else { continue };
                    accesses.push(match layer.coding.access(layout) {
                        Access::Direct { .. } => Access::Coded { granule: None },
                        coded @ Access::Coded { .. } => coded,
                    });
                    for (role, &(offset, len)) in layout.roles().zip(&chunk.columns[i]) {
                        parts.push(Part { column, role, object: 0, offset, len });
                    }
                }
                self.limits.check_plan(chunks.len() as u64 + 1)?;
                chunks.push(PlannedChunk {
                    id: (number as u64) << 32 | index as u64,
                    cover: Cover::Bounds(chunk.bounds.clone().into()),
                    tile: None,
                    layer: number as u32,
                    cells: chunk.cells,
                    parts,
                    access: coding::join(accesses.into_iter()),
                    whole: self.is_whole(number, chunk),
                });
            }
        }
        Ok(Planned::Ready(ChunkPlan {
            chunks,
            uncovered: Uncovered::Impossible,
            deletes: self.deletes.clone(),
        }))
    }

    fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        let unknown = ChunkStats::unknown(chunk.cells);
        let Some((_, stored)) = self.chunk(chunk.id) else { return unknown };
        match column {
            Column::Field(i) => stored.stats.get(usize::from(i)).cloned().unwrap_or(unknown),
            Column::Dim(i) => match stored.bounds.get(usize::from(i)).cloned() {
                Some((low, high)) => ChunkStats {
                    nulls: Stat::Exact(0),
                    min: Stat::Bound(low),
                    max: Stat::Bound(high),
                    ..unknown
                },
                None => unknown,
            },
            _ => unknown,
        }
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let xor = self.chunk(chunk.id).is_some_and(|(layer, _)| layer.coding.xor);
        ChunkInfo {
            coords: Coords::from_slice(&[chunk.id >> 32, u64::from(chunk.id as u32)]),
            raw_len: chunk.parts.iter().filter(|p| p.role == Role::Values).map(|p| p.len).sum(),
            stored_len: chunk.stored_bytes(),
            codec: if xor { "xor".to_owned() } else { "raw".to_owned() },
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
        let found =
            self.chunk(chunk.id).and_then(|(layer, _)| Some((layer, self.column_index(layer, column)?)));
        let (layer, (_, layout)) =
            found.ok_or_else(|| Error::invalid(format!("unknown column {column:?} of the chunk")))?;
        coding::decode(layer.coding, layout, chunk.cells, parts, cells, out)
            .map_err(|e| e.in_array(&self.schema.name))
    }
}
