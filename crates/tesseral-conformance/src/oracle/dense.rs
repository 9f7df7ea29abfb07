//! Dense arrays: chunks are copied in sequence, lower layers first.

use std::sync::Arc;

use tesseral_core::{Coords, Error, Field, Order, Region, Result, Selection};

use super::Cells;
use super::chunk::{ColumnLayout, Prefill, decode_parts, fetch};
use tesseral_format::{ArraySource, ChunkPlan, Column, ContainerSource, Request};

/// Maximum number of cells.
const LIMIT: u64 = 1 << 26;

/// Calls `f` with every position of a region, the last dimension fastest.
pub fn for_each_cell(region: &Region, mut f: impl FnMut(&[u64])) {
    if region.is_empty() {
        return;
    }
    let mut at: Coords = region.bounds().iter().map(|b| b.0).collect();
    loop {
        f(&at);
        let mut d = region.rank();
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            at[d] += 1;
            if at[d] < region.end(d) {
                break;
            }
            at[d] = region.start(d);
        }
    }
}

/// The index of a position among the cells of a region.
///
/// # Errors
/// `Unsupported` for Hilbert order, which no dense array has.
pub fn position_in(region: &Region, order: Order, at: &[u64]) -> Result<u64> {
    let step = |linear: u64, d: usize| linear * region.extent(d) + (at[d] - region.start(d));
    match order {
        Order::RowMajor => Ok((0..region.rank()).fold(0, step)),
        Order::ColMajor => Ok((0..region.rank()).rev().fold(0, step)),
        Order::Hilbert => Err(Error::unsupported("Hilbert order of dense chunks")),
    }
}

/// The index of a position in the result of a selection; `None` when it is not selected.
fn position_of(selection: &Selection, at: &[u64]) -> Option<u64> {
    selection.slices().iter().zip(at).try_fold(0, |linear, (slice, &p)| {
        let inside = p >= slice.start && p < slice.end && (p - slice.start) % slice.step == 0;
        inside.then(|| linear * slice.count() + (p - slice.start) / slice.step)
    })
}

/// Cells of a selection, and how often each was covered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Painted {
    layout: ColumnLayout,
    values: Vec<u8>,
    var: Vec<Vec<u8>>,
    valid: Vec<u8>,
    /// For each cell, the number of chunks that cover it.
    pub covers: Vec<u32>,
    /// For each cell, the layer of its value.
    pub layers: Vec<Option<u32>>,
    /// Whether two chunks of the same layer cover the same cell, which makes the winner ambiguous.
    pub tied: bool,
}

impl Painted {
    fn new(layout: ColumnLayout, field: &Field, cells: usize) -> Self {
        let fill = field.fill.as_ref().map(|scalar| native(scalar.dtype().word(), scalar.bytes()));
        let fill = fill.unwrap_or_default();
        let (mut values, mut var) = (Vec::new(), Vec::new());
        match layout.size {
            Some(size) => {
                let cell: Vec<u8> = if fill.is_empty() {
                    vec![0; size]
                } else {
                    fill.iter().copied().cycle().take(size).collect()
                };
                values = cell.repeat(cells);
            }
            None => var = vec![fill; cells],
        }
        let valid = vec![u8::from(!layout.nullable || field.fill_valid); cells];
        Self { layout, values, var, valid, covers: vec![0; cells], layers: vec![None; cells], tied: false }
    }

    fn put(&mut self, i: usize, bytes: &[u8], valid: bool, layer: u32) {
        match self.layout.size {
            Some(size) => self.values[i * size..(i + 1) * size].copy_from_slice(bytes),
            None => self.var[i] = bytes.to_vec(),
        }
        self.valid[i] = u8::from(valid);
        self.covers[i] += 1;
        self.tied |= self.layers[i] == Some(layer);
        self.layers[i] = Some(layer);
    }

    /// The cells at these indices, in this order.
    fn gather(&self, indices: &[u64]) -> Cells {
        let valid = |&i: &u64| self.valid[i as usize];
        let Some(size) = self.layout.size else {
            let cell = |i: &u64| (valid(i) != 0).then(|| self.var[*i as usize].clone());
            return Cells::Var(indices.iter().map(cell).collect());
        };
        let mut values: Vec<u8> = Vec::with_capacity(indices.len() * size);
        for &i in indices {
            values.extend(&self.values[i as usize * size..(i as usize + 1) * size]);
        }
        if self.layout.bits {
            values = values.chunks(8).map(pack).collect();
        }
        let validity = self.layout.nullable.then(|| indices.iter().map(valid).collect());
        Cells::Fixed { values, validity }.normalized()
    }

    /// All cells.
    pub fn cells(&self) -> Cells {
        self.gather(&(0..self.covers.len() as u64).collect::<Vec<_>>())
    }
}

fn pack(bits: &[u8]) -> u8 {
    bits.iter().enumerate().fold(0, |byte, (i, bit)| byte | bit << (7 - i))
}

/// Converts little-endian numbers to native byte order.
fn native(word: usize, bytes: &[u8]) -> Vec<u8> {
    let mut out = bytes.to_vec();
    if cfg!(target_endian = "big") {
        out.chunks_exact_mut(word).for_each(<[u8]>::reverse);
    }
    out
}

/// Copies the selected cells of a plan.
///
/// # Errors
/// Errors of reading and decoding; `InvalidRequest` for chunks that are not dense; `Limit`.
pub fn paint(
    container: &dyn ContainerSource,
    source: &dyn ArraySource,
    plan: &ChunkPlan,
    field: u16,
    selection: &Selection,
) -> Result<Painted> {
    let schema = source.schema();
    let column = Column::Field(field);
    let layout = ColumnLayout::new(schema, column)?;
    let cells = selection.cells().filter(|&n| n <= LIMIT);
    let cells = cells.ok_or_else(|| Error::limit("cells for the oracle", u64::MAX, LIMIT))?;
    let mut painted = Painted::new(layout, &schema.fields[usize::from(field)], cells as usize);
    if !plan.deletes.is_empty() {
        return Err(Error::unsupported("deletes of dense cells"));
    }
    let mut chunks: Vec<_> = plan.chunks.iter().collect();
    chunks.sort_by_key(|chunk| chunk.layer);
    for chunk in chunks {
        let (Some(cover), Some(tile)) = (chunk.cover.region(), chunk.tile_region()) else {
            return Err(Error::internal("the plan of a dense array contains listed cells"));
        };
        if !tile.contains(cover) || tile.cells() != Some(chunk.cells) {
            return Err(Error::internal(format!(
                "chunk {} stores {} cells as {tile:?} and covers {cover:?}",
                chunk.id, chunk.cells
            )));
        }
        let parts = fetch(container.store().as_ref(), source, chunk, column)?;
        let decoded = decode_parts(source, chunk, column, &parts, 0..chunk.cells, Prefill::default())?;
        let mut failed = None;
        for_each_cell(cover, |at| {
            let Some(target) = position_of(selection, at) else { return };
            match position_in(tile, schema.cell_order, at) {
                Ok(i) => painted.put(target as usize, decoded.raw(i), decoded.is_valid(i), chunk.layer),
                Err(e) => failed = Some(e),
            }
        });
        if let Some(e) = failed {
            return Err(e);
        }
    }
    Ok(painted)
}

/// A field of a complete dense array.
#[derive(Clone, Debug)]
pub struct Dense {
    source: Arc<dyn ArraySource>,
    field: u16,
    region: Region,
    painted: Painted,
}

impl Dense {
    /// Plans, reads and copies the field.
    ///
    /// # Errors
    /// Errors of planning, reading and decoding; `InvalidRequest` for arrays without positions.
    pub fn load(container: &dyn ContainerSource, array: usize, field: u16) -> Result<Self> {
        let source = container.array(array)?;
        let shape = source.schema().shape().filter(|_| !source.schema().sparse);
        let shape = shape.ok_or_else(|| Error::invalid("not a dense array"))?;
        let all = Selection::all(&shape);
        let plan = tesseral_format::plan(&*source, container.store(), &Request::cells(all.clone(), field))?;
        let painted = paint(container, source.as_ref(), &plan, field, &all)?;
        Ok(Self { source, field, region: Region::from_shape(&shape), painted })
    }

    /// The field.
    pub fn field(&self) -> &Field {
        &self.source.schema().fields[usize::from(self.field)]
    }

    /// The cells with their coverage.
    pub fn painted(&self) -> &Painted {
        &self.painted
    }

    /// The row-major index in the array of each selected cell, in selection order.
    ///
    /// # Errors
    /// `InvalidRequest` when the selection does not match the array.
    pub fn indices(&self, selection: &Selection) -> Result<Vec<u64>> {
        let selection = Selection::new(selection.slices().iter().copied(), &self.region.shape())?;
        let mut indices = Vec::new();
        let mut failed = None;
        for_each_cell(&Region::from_shape(&selection.shape()), |at| {
            let slices = selection.slices().iter().zip(at);
            let at: Coords = slices.map(|(slice, i)| slice.start + i * slice.step).collect();
            match position_in(&self.region, Order::RowMajor, &at) {
                Ok(i) => indices.push(i),
                Err(e) => failed = Some(e),
            }
        });
        failed.map_or(Ok(indices), Err)
    }

    /// Passes the selected cells to `visit`; null and unwritten cells are `None`.
    fn valid<T>(
        &self,
        selection: &Selection,
        visit: impl FnOnce(&mut dyn Iterator<Item = Option<&[u8]>>) -> T,
    ) -> Result<T> {
        let indices = self.indices(selection)?;
        let cells = self.painted.gather(&indices);
        let size = self.field().cell_size().unwrap_or(1);
        let written = |i: &u64| self.painted.covers[*i as usize] > 0;
        Ok(visit(&mut cells.iter(size).zip(&indices).map(|(cell, i)| cell.filter(|_| written(i)))))
    }

    /// The summary of the selected cells under the definition of missing values.
    ///
    /// # Errors
    /// `InvalidRequest` when the selection does not match the array.
    pub fn summary(&self, selection: &Selection) -> Result<super::Summary> {
        self.valid(selection, |cells| super::Summary::from_values(self.field(), cells))
    }

    /// One byte per selected cell, 0 for missing ones.
    ///
    /// # Errors
    /// `InvalidRequest` when the selection does not match the array.
    pub fn validity(&self, selection: &Selection) -> Result<Vec<u8>> {
        let (field, missing) = (self.field(), self.field().missing_values());
        self.valid(selection, |cells| {
            cells.map(|cell| u8::from(!super::is_null(field, &missing, cell))).collect()
        })
    }

    /// The selected cells, row-major over the selection.
    ///
    /// # Errors
    /// `InvalidRequest` when the selection does not match the array.
    pub fn select(&self, selection: &Selection) -> Result<Cells> {
        Ok(self.painted.gather(&self.indices(selection)?))
    }
}
