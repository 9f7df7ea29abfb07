//! Arrays whose cells are computed or in memory: they have a grid of chunks, and no stored bytes.

use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{ArraySchema, CellLen, ChunkGrid, Error, Field, Limits, Result};
use tesseral_store::Rounds;

use crate::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Planned, PlannedChunk, Request, Scratch,
    Totals, first_cell,
};

/// The cells of an array without stored bytes.
pub trait ComputedCells: Debug + Send + Sync {
    /// Writes the cells at a range of positions of the array in row-major order.
    ///
    /// # Errors
    /// Errors of computing the cells; `Internal` for positions outside the array.
    fn write(&self, cells: Range<u64>, out: ColumnMut<'_>) -> Result<()>;
}

/// An array without stored bytes, of one field. Its chunks are contiguous in row-major order, as [`contiguous_chunk_shape`] makes them.
///
/// [`contiguous_chunk_shape`]: crate::contiguous_chunk_shape
#[derive(Debug)]
pub struct ComputedArray<C> {
    schema: ArraySchema,
    grid: ChunkGrid,
    cells: C,
}

impl<C: ComputedCells> ComputedArray<C> {
    /// An array of these cells.
    ///
    /// # Errors
    /// `InvalidRequest` for dimensions that cannot be counted.
    pub fn new(schema: ArraySchema, cells: C) -> Result<Self> {
        let grid = schema.grid()?;
        Ok(Self { schema, grid, cells })
    }

    /// The cells.
    pub fn cells(&self) -> &C {
        &self.cells
    }

    fn is_var(&self) -> bool {
        self.schema.fields.first().is_some_and(|field| field.cell == CellLen::Var)
    }
}

impl<C: ComputedCells> ArraySource for ComputedArray<C> {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        let granule = (!self.is_var()).then_some(1);
        let plan = ChunkPlan::of_grid(&self.grid, request, &Limits::DEFAULT, |id, region| {
            Ok(PlannedChunk::exact(id, region, SmallVec::new(), Access::Coded { granule }))
        });
        plan.map(Planned::Ready)
    }

    fn totals(&self, _: &Request) -> Result<Option<Totals>> {
        Ok(Some(Totals { chunks: self.grid.total(), stored_bytes: 0, digests: false }))
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let size = self.schema.fields.first().and_then(Field::cell_size).unwrap_or(0);
        ChunkInfo {
            coords: self.grid.coords(chunk.id),
            raw_len: chunk.cells.saturating_mul(size as u64),
            stored_len: 0,
            codec: "computed".to_owned(),
            offset: 0,
        }
    }

    fn decode(
        &self,
        chunk: &PlannedChunk,
        _column: Column,
        _parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        _scratch: &mut Scratch,
    ) -> Result<()> {
        let region = self.grid.region(&self.grid.coords(chunk.id));
        let first = first_cell(self.grid.shape(), &region);
        let at = |cell: u64| first?.checked_add(cell);
        let positions = at(cells.start).zip(at(cells.end)).map(|(start, end)| start..end);
        let positions = positions.ok_or_else(|| Error::internal("a chunk outside its array"))?;
        self.cells.write(positions, out)
    }
}

#[cfg(test)]
mod tests {
    use tesseral_core::{DType, Selection};
    use tesseral_store::{MemoryStore, Store};

    use super::*;
    use crate::{Target, contiguous_chunk_shape};

    /// Cells that hold their positions.
    #[derive(Debug)]
    struct Positions;

    impl ComputedCells for Positions {
        fn write(&self, cells: Range<u64>, out: ColumnMut<'_>) -> Result<()> {
            let ColumnMut::Fixed { values, validity: None } = out else {
                return Err(Error::internal("a column of another type"));
            };
            for (value, cell) in values.as_chunks_mut::<8>().0.iter_mut().zip(cells) {
                *value = cell.to_ne_bytes();
            }
            Ok(())
        }
    }

    #[test]
    fn chunks_are_runs_of_the_array() {
        let shape = [3, 1 << 19];
        let chunk = contiguous_chunk_shape(&shape, 8);
        let schema = ArraySchema::dense("positions", DType::UInt64, &shape, &chunk);
        let array = ComputedArray::new(schema, Positions).unwrap();
        let selection = Selection::all(&shape);
        let request =
            Request { target: Target::Cells(selection), columns: vec![Column::Field(0)], condition: None };
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new("no store"));
        let plan = crate::plan(&array, &store, &request).unwrap();
        assert!(plan.chunks.len() > 1);
        let mut expected = 0;
        for chunk in &plan.chunks {
            let half = chunk.cells / 2;
            for cells in [0..half, half..chunk.cells] {
                let mut values = vec![0; (cells.end - cells.start) as usize * 8];
                let out = ColumnMut::Fixed { values: &mut values, validity: None };
                let scratch = &mut Scratch::default();
                array.decode(chunk, Column::Field(0), &[], cells, out, scratch).unwrap();
                for value in values.as_chunks::<8>().0 {
                    assert_eq!(u64::from_ne_bytes(*value), expected);
                    expected += 1;
                }
            }
        }
        assert_eq!(expected, shape.iter().product::<u64>());
    }
}
