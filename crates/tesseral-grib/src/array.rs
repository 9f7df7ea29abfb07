//! Variables as arrays: one chunk per field.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_core::{ArraySchema, ChunkGrid, Coords, DType, Dimension, Error, Limits, Order, Result};
use tesseral_format::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Cover, Part, Planned, PlannedChunk,
    Request, Role, Scratch, Totals, Uncovered,
};
use tesseral_store::Rounds;

use crate::dataset::GribVariable;
use crate::field::GribField;
use crate::grid::{Grid, GridKind};
use crate::packing::FieldPacking;

/// Bytes per cell: values are doubles, as by the reference.
const SIZE: u64 = 8;

/// The array of a variable.
#[derive(Debug)]
pub(crate) struct GribArray {
    schema: ArraySchema,
    grid: ChunkGrid,
    limits: Limits,
    object: String,
    variable: GribVariable,
}

impl GribArray {
    /// The array of a variable, with a name that includes its group.
    ///
    /// # Errors
    /// `Corrupt` for grids that cannot be counted.
    pub(crate) fn new(variable: GribVariable, name: &str, object: &str, limits: Limits) -> Result<Self> {
        let header = variable.coordinates.iter().filter(|own| own.len() > 1);
        let mut dims: Vec<Dimension> =
            header.map(|own| Dimension::new(&own.name, own.len() as u64)).collect();
        let mut chunk: Coords = dims.iter().map(|_| 1).collect();
        for (name, extent) in variable.grid.dimensions() {
            dims.push(Dimension::new(name, extent));
            chunk.push(extent.max(1));
        }
        let shape: Coords = dims.iter().filter_map(|dim| dim.extent).collect();
        let mut schema = ArraySchema::dense(name, DType::Float64, &shape, &chunk);
        schema.dims = dims;
        schema.attributes = variable.attributes.clone();
        tesseral_core::missing::declare(&mut schema);
        if variable.grid.columns_first() {
            schema.cell_order = Order::ColMajor;
        }
        let complete = variable.fields.len() as u64 == variable.positions();
        let field = &mut schema.fields[0];
        field.nullable = !complete || variable.fields.values().any(GribField::has_missing);
        let mut codecs: Vec<&str> = variable.fields.values().map(|field| field.packing.name()).collect();
        codecs.sort_unstable();
        codecs.dedup();
        field.codecs = codecs.into_iter().map(str::to_owned).collect();
        let beyond = |e: Error| Error::corrupt("section 3", object, None, e.to_string()).in_array(name);
        let grid = schema.grid().map_err(beyond)?;
        Ok(Self { schema, grid, limits, object: object.to_owned(), variable })
    }

    fn nullable(&self) -> bool {
        self.schema.fields[0].nullable
    }

    /// The field of a chunk.
    fn field(&self, chunk: u64) -> Result<&GribField> {
        // There is one chunk per position of the hypercube, in the same order.
        self.variable.fields.get(&chunk).ok_or_else(|| Error::internal("a chunk without a field"))
    }

    fn chunk(&self, id: u64, field: &GribField, columns: &[Column]) -> Result<PlannedChunk> {
        let region = self.grid.region(&self.grid.coords(id));
        let cells = field.grid.points;
        let stored = field.data.end - field.data.start;
        let bytes = cells.saturating_mul(SIZE + u64::from(self.nullable()));
        let seeks = field.packing.seeks() && field.bitmap.is_none() && reversed_rows(field).is_none();
        // Ranges of cells are decoded into buffers of their size.
        if !seeks {
            let bitmap = field.bitmap.as_ref().map_or(0, |bitmap| bitmap.end - bitmap.start);
            // Work space can take as much again as a chunk, nearly: nothing else of that size is held.
            let work = field.packing.work_bytes(cells);
            let held = bytes.max(bytes.saturating_add(work) / 15 * 8);
            self.limits.check_decoded(held, stored.saturating_add(bitmap))?;
        }
        let mut parts: SmallVec<[Part; 1]> = SmallVec::new();
        for column in columns {
            let part = |role, range: &Range<u64>| Part {
                column: *column,
                role,
                object: 0,
                offset: range.start,
                len: range.end - range.start,
            };
            parts.extend(field.bitmap.as_ref().map(|bitmap| part(Role::Validity, bitmap)));
            parts.push(part(Role::Values, &field.data));
        }
        Ok(PlannedChunk {
            id,
            tile: None,
            layer: 0,
            cells,
            parts,
            access: Access::Coded { granule: seeks.then_some(1) },
            cover: Cover::Exact(region),
            whole: true,
        })
    }
}

/// Lengths of rows of which every other one is stored in the opposite direction.
fn reversed_rows(field: &GribField) -> Option<RowLengths<'_>> {
    let grid: &Grid = &field.grid;
    let own = matches!(&field.packing, FieldPacking::SecondOrder { second, .. } if second.alternating);
    match (&grid.kind, grid.alternating(), own) {
        // Reversed twice.
        (_, Some(_), true) | (_, None, false) => None,
        (GridKind::ReducedGaussian { .. }, _, _) | (_, None, _) => Some(RowLengths::from_grid(grid)),
        (_, Some(row), _) => Some(RowLengths::Equal(row)),
    }
}

enum RowLengths<'a> {
    Equal(u64),
    Listed(&'a [crate::grid::Row]),
}

impl<'a> RowLengths<'a> {
    /// The rows of a grid, or its columns if their points are consecutive.
    fn from_grid(grid: &'a Grid) -> Self {
        match &grid.kind {
            GridKind::ReducedGaussian { rows, .. } => Self::Listed(rows),
            _ => Self::Equal(if grid.columns_first() { grid.nj } else { grid.ni }),
        }
    }

    /// The number of values of each row of so many points, which is that of the bits of a bitmap that are set.
    fn counts(&self, points: usize, bitmap: Option<&[u8]>) -> Vec<u64> {
        let ends: Vec<usize> = match self {
            Self::Equal(row) => {
                let row = usize::try_from(*row).unwrap_or(usize::MAX).max(1);
                (1..=points.div_ceil(row)).map(|number| number.saturating_mul(row).min(points)).collect()
            }
            Self::Listed(rows) => {
                let ends = rows.iter().map(|row| row.start.saturating_add(row.count));
                ends.map(|end| usize::try_from(end).unwrap_or(usize::MAX).min(points)).collect()
            }
        };
        let count = |start: usize, end: usize| match bitmap {
            Some(bitmap) => {
                let bytes = &bitmap[start / 8..];
                ones(bytes, end - start / 8 * 8) - ones(bytes, start % 8)
            }
            None => end - start,
        };
        let counts = ends.into_iter().scan(0, |start, end| {
            let start = std::mem::replace(start, end).min(end);
            Some(count(start, end) as u64)
        });
        counts.collect()
    }

    /// Reverses every other row.
    fn reverse<T>(&self, cells: &mut [T]) {
        match self {
            Self::Equal(row) => {
                let row = usize::try_from(*row).unwrap_or(usize::MAX).max(1);
                cells.chunks_mut(row).skip(1).step_by(2).for_each(<[T]>::reverse);
            }
            Self::Listed(rows) => {
                for row in rows.iter().skip(1).step_by(2) {
                    let end = row.start + row.count;
                    if let Some(cells) = cells.get_mut(row.start as usize..end as usize) {
                        cells.reverse();
                    }
                }
            }
        }
    }
}

/// The number of values of each row, if decoding needs it.
fn rows_of(field: &GribField, points: usize, bitmap: Option<&[u8]>) -> Vec<u64> {
    if !field.packing.by_row() {
        return Vec::new();
    }
    RowLengths::from_grid(&field.grid).counts(points, bitmap)
}

/// Number of set bits among the first `count`.
fn ones(bitmap: &[u8], count: usize) -> usize {
    let (whole, rest) = (count / 8, count % 8);
    let full: usize = bitmap[..whole].iter().map(|byte| byte.count_ones() as usize).sum();
    let last = if rest == 0 { 0 } else { bitmap[whole] & !(0xff_u8 >> rest) };
    full + last.count_ones() as usize
}

/// Moves values from the front to the points that a bitmap marks. Points without a value become NaN and invalid.
fn spread(bitmap: &[u8], mut coded: usize, values: &mut [[u8; 8]], validity: &mut [u8]) {
    for point in (0..values.len()).rev() {
        if bitmap[point / 8] >> (7 - point % 8) & 1 == 1 && coded > 0 {
            coded -= 1;
            values[point] = values[coded];
            validity[point] = validity[coded];
        } else {
            values[point] = f64::NAN.to_ne_bytes();
            validity[point] = 0;
        }
    }
}

impl ArraySource for GribArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        let named = |e: Error| e.in_array(&self.schema.name);
        let Some(selection) = request.selection() else {
            return Err(Error::internal("a request by coordinates"));
        };
        let mut chunks = Vec::new();
        if self.grid.total() > 0 && !selection.slices().iter().any(|slice| slice.count() == 0) {
            let touched = self.grid.touched(selection);
            let fields = &self.variable.fields;
            let mut add = |id: u64, field: &GribField| {
                let chunk = self.chunk(id, field, &request.columns);
                chunks.push(chunk.map_err(|e| named(e).in_chunk(&self.grid.coords(id)))?);
                Ok::<_, Error>(())
            };
            if touched.remaining() <= fields.len() as u64 {
                for coords in touched {
                    let id = self.grid.linear(&coords);
                    fields.get(&id).map_or(Ok(()), |field| add(id, field))?;
                }
            } else {
                // Few fields in a large hypercube.
                for (id, field) in fields {
                    if selection.cells_in(&self.grid.region(&self.grid.coords(*id))) != Some(0) {
                        add(*id, field)?;
                    }
                }
            }
        }
        let complete = self.variable.fields.len() as u64 == self.variable.positions();
        let uncovered = if complete { Uncovered::Impossible } else { Uncovered::Fill };
        Ok(Planned::Ready(ChunkPlan { chunks, uncovered, deletes: Vec::new() }))
    }

    fn totals(&self, _: &Request) -> Result<Option<Totals>> {
        let stored = |field: &GribField| {
            let bitmap = field.bitmap.as_ref().map_or(0, |bitmap| bitmap.end - bitmap.start);
            (field.data.end - field.data.start).saturating_add(bitmap)
        };
        let fields = &self.variable.fields;
        let stored_bytes = fields.values().map(stored).fold(0, u64::saturating_add);
        Ok(Some(Totals { chunks: fields.len() as u64, stored_bytes, digests: false }))
    }

    fn constant(&self, chunk: &PlannedChunk, _column: Column) -> Option<Vec<u8>> {
        let field = self.variable.fields.get(&chunk.id).filter(|field| !field.has_missing())?;
        field.packing.constant().map(|value| value.to_ne_bytes().to_vec())
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let field = self.variable.fields.get(&chunk.id);
        ChunkInfo {
            coords: self.grid.coords(chunk.id),
            raw_len: chunk.cells.saturating_mul(SIZE),
            stored_len: chunk.stored_bytes(),
            codec: field.map_or_else(String::new, |field| field.packing.name().to_owned()),
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
        let ColumnMut::Fixed { values, mut validity } = out else {
            return Err(Error::internal("a field decodes into one column of fixed-size cells"));
        };
        let field = self.field(chunk.id)?;
        let values = values.as_chunks_mut::<8>().0;
        if let Some(validity) = validity.as_deref_mut() {
            validity.fill(1);
        }
        let corrupt = |detail: String| Error::corrupt("section 7", &self.object, field.data.start, detail);
        match (parts, &field.bitmap, validity) {
            ([data], None, mut validity) => {
                let count = cells.end - cells.start;
                if count != values.len() as u64 || (count != chunk.cells && !field.packing.seeks()) {
                    return Err(Error::internal("a range of a field that is decoded as a whole"));
                }
                let rows = rows_of(field, values.len(), None);
                field.packing.decode(data, cells.start, &rows, values, validity.as_deref_mut(), scratch)?;
                finish(field, values, validity);
            }
            ([bitmap, data], Some(_), Some(validity)) => {
                if bitmap.len() < values.len().div_ceil(8) || values.len() as u64 != chunk.cells {
                    return Err(corrupt(format!("a bitmap of {} bytes is too short", bitmap.len())));
                }
                let coded = ones(bitmap, values.len());
                if field.coded.is_some_and(|stated| stated != coded as u64) {
                    let stated = field.coded.unwrap_or(0);
                    return Err(corrupt(format!(
                        "expected {coded} values for the points of the bitmap, found {stated}"
                    )));
                }
                let rows = rows_of(field, values.len(), Some(bitmap));
                let (front, marks) = (&mut values[..coded], &mut validity[..coded]);
                field.packing.decode(data, 0, &rows, front, Some(marks), scratch)?;
                spread(bitmap, coded, values, validity);
                finish(field, values, Some(validity));
            }
            _ => return Err(Error::internal(format!("{} parts for a field", parts.len()))),
        }
        Ok(())
    }
}

/// Restores the order of rows, and replaces values that are missing by NaN.
fn finish(field: &GribField, values: &mut [[u8; 8]], validity: Option<&mut [u8]>) {
    let reversed = reversed_rows(field);
    if let Some(rows) = &reversed {
        rows.reverse(values);
    }
    let Some(validity) = validity else { return };
    if let Some(rows) = &reversed {
        rows.reverse(validity);
    }
    for (value, valid) in values.iter_mut().zip(&*validity) {
        if *valid == 0 {
            *value = f64::NAN.to_ne_bytes();
        }
    }
}
