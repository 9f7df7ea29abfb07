//! Dense chunks of several fields and variable-length cells, in either cell order.

use tesseral_core::{ArraySchema, ChunkStats, Coords, Error, Field, Order, Region, Result};
use tesseral_format::{ColumnData, EncodedChunk};

use super::{DeclaredArray, WriteSession, chunk_at, chunk_stats, located, whole_chunks};
use crate::decode::chunk::with_workspace;
use crate::decode::columns::pick_fixed;
use crate::reduce::kernel::summary::{StatSet, Summary};

/// Gathered cells of one column.
#[derive(Clone, Debug)]
pub(super) enum OwnedColumn {
    Fixed { values: Vec<u8>, validity: Option<Vec<u8>> },
    Var { offsets: Vec<u64>, data: Vec<u8>, validity: Option<Vec<u8>> },
}

impl OwnedColumn {
    /// The cells, for an encoder.
    pub(super) fn data(&self) -> ColumnData<'_> {
        match self {
            Self::Fixed { values, validity } => ColumnData::Fixed { values, validity: validity.as_deref() },
            Self::Var { offsets, data, validity } => {
                ColumnData::Var { offsets, data, validity: validity.as_deref() }
            }
        }
    }

    /// Gathers runs of cells of a column: first cell and number of cells each.
    pub(super) fn gather(column: &ColumnData<'_>, size: usize, runs: &[(usize, usize)]) -> Self {
        let valid = |validity: Option<&[u8]>| {
            validity.map(|v| runs.iter().flat_map(|&(at, n)| v[at..at + n].iter().copied()).collect())
        };
        match *column {
            ColumnData::Fixed { values, validity } => {
                let cells = runs.iter().map(|run| run.1).sum::<usize>();
                let mut out = Vec::with_capacity(cells * size);
                for &(at, n) in runs {
                    out.extend_from_slice(&values[at * size..(at + n) * size]);
                }
                Self::Fixed { values: out, validity: valid(validity) }
            }
            ColumnData::Var { offsets, data, validity } => {
                let (mut ends, mut out) = (Vec::new(), Vec::new());
                let end = |i: usize| usize::try_from(offsets[i]).unwrap_or(usize::MAX);
                for &(at, n) in runs {
                    let start = if at == 0 { 0 } else { end(at - 1) };
                    let base = out.len();
                    ends.extend((at..at + n).map(|i| (base + end(i) - start) as u64));
                    out.extend_from_slice(&data[start..if n == 0 { start } else { end(at + n - 1) }]);
                }
                Self::Var { offsets: ends, data: out, validity: valid(validity) }
            }
        }
    }

    /// Gathers cells of a column by index.
    pub(super) fn pick(column: &ColumnData<'_>, size: usize, rows: &[u32]) -> Self {
        let valid = |validity: Option<&[u8]>| {
            validity.map(|v| rows.iter().map(|&row| v[row as usize]).collect::<Vec<u8>>())
        };
        match *column {
            ColumnData::Fixed { values, validity } => {
                Self::Fixed { values: pick_fixed(values, size, rows), validity: valid(validity) }
            }
            ColumnData::Var { validity, .. } => {
                let runs: Vec<(usize, usize)> = rows.iter().map(|&row| (row as usize, 1)).collect();
                match Self::gather(column, size, &runs) {
                    Self::Var { offsets, data, .. } => Self::Var { offsets, data, validity: valid(validity) },
                    fixed @ Self::Fixed { .. } => fixed,
                }
            }
        }
    }

    /// Appends the cells of another column of the same type.
    pub(super) fn append(&mut self, other: Self) {
        let join = |mine: &mut Option<Vec<u8>>, theirs: Option<Vec<u8>>| {
            if let (Some(mine), Some(theirs)) = (mine, theirs) {
                mine.extend(theirs);
            }
        };
        match (self, other) {
            (Self::Fixed { values, validity }, Self::Fixed { values: more, validity: v }) => {
                values.extend(more);
                join(validity, v);
            }
            (Self::Var { offsets, data, validity }, Self::Var { offsets: ends, data: more, validity: v }) => {
                let base = data.len() as u64;
                offsets.extend(ends.iter().map(|end| base + end));
                data.extend(more);
                join(validity, v);
            }
            _ => {}
        }
    }
}

/// Number of cells of a column with cells of `size` bytes, if its parts are consistent.
pub(super) fn cells_of(column: &ColumnData<'_>, size: Option<usize>) -> Option<usize> {
    let (cells, validity) = match *column {
        ColumnData::Fixed { values, validity } => {
            let size = size.filter(|n| *n > 0 && values.len().is_multiple_of(*n))?;
            (values.len() / size, validity)
        }
        ColumnData::Var { offsets, data, validity } => {
            let sound = offsets.is_sorted() && offsets.last().copied().unwrap_or(0) == data.len() as u64;
            (sound.then_some(offsets.len())?, validity)
        }
    };
    validity.is_none_or(|v| v.len() == cells).then_some(cells)
}

/// A number of cells for errors.
pub(super) fn cell_count_text(cells: Option<usize>) -> String {
    cells.map_or_else(|| "inconsistent parts".to_owned(), |n| format!("{n} cells"))
}

/// Checks that every field has a column of `cells` cells.
pub(super) fn check(schema: &ArraySchema, columns: &[ColumnData<'_>], cells: Option<u64>) -> Result<()> {
    if columns.len() != schema.fields.len() {
        let detail = format!("{} columns for {} fields", columns.len(), schema.fields.len());
        return Err(Error::invalid(detail));
    }
    for (field, column) in schema.fields.iter().zip(columns) {
        let found = cells_of(column, field.cell_size());
        if found.map(|n| n as u64) != cells {
            let boxed = cells.map_or_else(|| "more than 2^64".to_owned(), |n| n.to_string());
            let detail =
                format!("field {:?} has {}, the region has {boxed}", field.name, cell_count_text(found));
            return Err(Error::invalid(detail));
        }
    }
    Ok(())
}

/// Runs of the cells of `part` in a row-major `region`, in the storage order of chunks.
pub(crate) fn runs(region: &Region, part: &Region, order: Order) -> Vec<(usize, usize)> {
    let rank = region.rank();
    // Positions inside the region, whose cells are in memory.
    let at = |d: usize, i: u64| usize::try_from(part.start(d) - region.start(d) + i).unwrap_or(usize::MAX);
    let extent = |d: usize| usize::try_from(region.extent(d)).unwrap_or(usize::MAX);
    let Some(last) = rank.checked_sub(1) else { return vec![(0, 1)] };
    // Row-major cells are adjacent along the last dimension.
    let columnwise = order == Order::ColMajor;
    let len = if columnwise { 1 } else { part.extent(last) };
    let turning: Vec<usize> = if columnwise { (0..rank).collect() } else { (0..last).rev().collect() };
    let mut coords = Coords::from_elem(0, rank);
    let mut out = Vec::new();
    loop {
        let start = (0..rank).fold(0, |n, d| n * extent(d) + at(d, coords[d]));
        out.push((start, usize::try_from(len).unwrap_or(usize::MAX)));
        let mut turned = false;
        for &d in &turning {
            coords[d] += 1;
            if coords[d] < part.extent(d) {
                turned = true;
                break;
            }
            coords[d] = 0;
        }
        if !turned {
            return out;
        }
    }
}

impl WriteSession {
    /// Writes a region of whole chunks from columns in memory, one per field, row-major over the region. As
    /// [`write_region`](Self::write_region), for any number of fields, nulls and variable-length cells.
    ///
    /// # Errors
    /// `InvalidRequest` if the columns do not match the region, it divides a chunk, or a chunk is a duplicate; `Io`.
    pub fn write_columns(&self, array: usize, region: &Region, columns: &[ColumnData<'_>]) -> Result<()> {
        let declared = self.declared(array)?;
        let named = |e: Error| e.in_array(&declared.schema.name);
        check(&declared.schema, columns, region.cells()).map_err(named)?;
        let boxes = whole_chunks(declared, region).ok_or_else(|| {
            let chunk = declared.grid.chunk_shape();
            named(Error::invalid(format!(
                "region {region:?} exceeds the array or is not aligned to chunks of {chunk:?}"
            )))
        })?;
        let order = self.writer.chunk_order(array);
        self.each_chunk(array, boxes.cells().unwrap_or(u64::MAX), |number, _, turn| {
            let coords = chunk_at(&boxes, order, number);
            let write_chunk = || -> Result<()> {
                let part = declared.cells(&coords)?;
                let runs = runs(region, &part, declared.schema.cell_order);
                let gathered = gather(&declared.schema.fields, columns, &runs);
                let chunk = self.encode_gathered(array, declared, &coords, &gathered)?;
                turn.submit(number, chunk, |chunk| self.writer.place(array, chunk))
            };
            write_chunk().map_err(|e| located(e, declared, &coords))
        })
    }

    /// Encodes a chunk whose cells are in its storage order.
    pub(super) fn encode_part<'a>(
        &self,
        array: usize,
        declared: &DeclaredArray,
        coords: &[u64],
        part: &Region,
        columns: &[ColumnData<'_>],
    ) -> Result<EncodedChunk<'a>> {
        let runs = runs(part, part, declared.schema.cell_order);
        let gathered = gather(&declared.schema.fields, columns, &runs);
        self.encode_gathered(array, declared, coords, &gathered)
    }

    /// Statistics of the cells of one field of one chunk.
    pub(super) fn statistics(
        &self,
        array: usize,
        field: &Field,
        cells: &[u8],
        validity: Option<&[u8]>,
    ) -> Result<ChunkStats> {
        // Some formats know validity, but no declarations.
        let excluded = self.writer.excludes_missing(array);
        let missing = if excluded { field.missing_values() } else { Vec::new() };
        let mut summary = Summary::new(field.dtype, StatSet::RANGE | StatSet::SUM)?;
        summary.fold(cells, validity, &missing)?;
        Ok(ChunkStats { missing, ..chunk_stats(&summary) })
    }

    /// Statistics of every field of a chunk, if the writer requests them.
    pub(super) fn stats(
        &self,
        array: usize,
        declared: &DeclaredArray,
        columns: &[ColumnData<'_>],
    ) -> Result<Vec<ChunkStats>> {
        if !self.writer.wants_stats(array) {
            return Ok(Vec::new());
        }
        let column_stats = |(field, column): (&Field, &ColumnData<'_>)| match *column {
            ColumnData::Fixed { values, validity } => self.statistics(array, field, values, validity),
            ColumnData::Var { offsets, .. } => Ok(ChunkStats::unknown(offsets.len() as u64)),
        };
        declared.schema.fields.iter().zip(columns).map(column_stats).collect()
    }

    fn encode_gathered<'a>(
        &self,
        array: usize,
        declared: &DeclaredArray,
        coords: &[u64],
        gathered: &[OwnedColumn],
    ) -> Result<EncodedChunk<'a>> {
        let columns: Vec<ColumnData<'_>> = gathered.iter().map(OwnedColumn::data).collect();
        let stats = self.stats(array, declared, &columns)?;
        with_workspace(|w| {
            let chunk = self.writer.encode(array, coords, &columns, stats, &mut w.scratch)?;
            Ok(chunk.into_owned())
        })
    }
}

fn gather(fields: &[Field], columns: &[ColumnData<'_>], runs: &[(usize, usize)]) -> Vec<OwnedColumn> {
    let each = fields.iter().zip(columns);
    each.map(|(field, column)| OwnedColumn::gather(column, field.cell_size().unwrap_or(1), runs)).collect()
}
