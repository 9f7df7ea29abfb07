//! Coordinates as arrays. They are computed from headers and have no stored bytes.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{
    ArraySchema, Attributes, ChunkGrid, Coords, DType, Dimension, Error, Limits, Result, Value, alloc,
};
use tesseral_format::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Planned, PlannedChunk, Request, Scratch,
    Totals, contiguous_chunk_shape, first_cell,
};
use tesseral_store::Rounds;

use crate::dataset::HeaderValues;
use crate::grid::{Axis, Grid};

/// Origin of the values of a coordinate.
#[derive(Clone, Debug)]
pub(crate) enum CoordinateOrigin {
    /// Headers of fields.
    Headers(HeaderValues),
    /// Sums of all reference times and steps in seconds, by time.
    ValidTime(Vec<i64>, Vec<f64>),
    /// A grid.
    Grid(Arc<Grid>, Axis),
}

/// The array of a coordinate.
#[derive(Debug)]
pub(crate) struct CoordinateArray {
    schema: ArraySchema,
    grid: ChunkGrid,
    origin: CoordinateOrigin,
}

impl CoordinateArray {
    /// A coordinate over named dimensions.
    ///
    /// # Errors
    /// `InvalidRequest` for dimensions that cannot be counted.
    pub(crate) fn new(
        name: &str,
        dims: &[(&str, u64)],
        attributes: Attributes,
        origin: CoordinateOrigin,
    ) -> Result<Self> {
        let shape: Coords = dims.iter().map(|(_, extent)| *extent).collect();
        let dtype = match &origin {
            CoordinateOrigin::Headers(HeaderValues::Integers(_)) => DType::Int64,
            _ => DType::Float64,
        };
        let chunk = contiguous_chunk_shape(&shape, 8);
        let mut schema = ArraySchema::dense(name, dtype, &shape, &chunk);
        schema.dims = dims.iter().map(|(name, extent)| Dimension::new(*name, *extent)).collect();
        schema.attributes = attributes;
        tesseral_core::missing::declare(&mut schema);
        let grid = schema.grid()?;
        Ok(Self { schema, grid, origin })
    }

    /// The coordinate of the points of a grid.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn of_grid(name: &str, grid: &Arc<Grid>, axis: Axis) -> Result<Self> {
        let mut attributes = Attributes::new();
        let mut put = |key: &str, value: &str| attributes.insert(key.to_owned(), Value::from(value));
        put("units", if axis == Axis::Latitude { "degrees_north" } else { "degrees_east" });
        put("standard_name", axis.name());
        put("long_name", axis.name());
        if axis == Axis::Latitude && grid.decreasing() {
            put("stored_direction", "decreasing");
        }
        Self::new(
            name,
            &grid.axis_dimensions(axis),
            attributes,
            CoordinateOrigin::Grid(Arc::clone(grid), axis),
        )
    }
}

impl ArraySource for CoordinateArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        let plan = ChunkPlan::of_grid(&self.grid, request, &Limits::DEFAULT, |id, region| {
            Ok(PlannedChunk::exact(id, region, SmallVec::new(), Access::Coded { granule: Some(1) }))
        });
        plan.map(Planned::Ready)
    }

    fn totals(&self, _: &Request) -> Result<Option<Totals>> {
        Ok(Some(Totals { chunks: self.grid.total(), stored_bytes: 0, digests: false }))
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        ChunkInfo {
            coords: self.grid.coords(chunk.id),
            raw_len: chunk.cells.saturating_mul(8),
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
        let ColumnMut::Fixed { values, validity: None } = out else {
            return Err(Error::internal("a coordinate decodes into one column of fixed-size cells"));
        };
        let values = values.as_chunks_mut::<8>().0;
        // Chunks are contiguous runs of the array.
        let region = self.grid.region(&self.grid.coords(chunk.id));
        let start = first_cell(self.grid.shape(), &region).and_then(|first| first.checked_add(cells.start));
        let range = start.and_then(|start| Some(start..start.checked_add(values.len() as u64)?));
        let range = range.ok_or_else(|| Error::internal("a coordinate beyond 2^64 cells"))?;
        let place = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let beyond = || Error::internal("cells outside a coordinate");
        match &self.origin {
            CoordinateOrigin::Headers(HeaderValues::Integers(own)) => {
                let own = own.get(place(range.start)..place(range.end)).ok_or_else(beyond)?;
                values.iter_mut().zip(own).for_each(|(out, value)| *out = value.to_ne_bytes());
            }
            CoordinateOrigin::Headers(HeaderValues::Floats(own)) => {
                let own = own.get(place(range.start)..place(range.end)).ok_or_else(beyond)?;
                values.iter_mut().zip(own).for_each(|(out, value)| *out = value.to_ne_bytes());
            }
            CoordinateOrigin::ValidTime(times, steps) => {
                let width = steps.len().max(1);
                let at = |cell: usize| Some(*times.get(cell / width)? as f64 + steps.get(cell % width)?);
                for (out, cell) in values.iter_mut().zip(place(range.start)..) {
                    *out = at(cell).ok_or_else(beyond)?.to_ne_bytes();
                }
            }
            CoordinateOrigin::Grid(grid, axis) => {
                let mut own: Vec<f64> = alloc::zeroed("coordinates", values.len())?;
                grid.coordinates(*axis, range, &mut own)?;
                values.iter_mut().zip(own).for_each(|(out, value)| *out = value.to_ne_bytes());
            }
        }
        Ok(())
    }
}
