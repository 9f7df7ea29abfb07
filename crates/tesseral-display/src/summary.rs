//! Description of an array from metadata, without reading cells.

use tesseral::{
    Array, ChunkInfo, ChunkStats, Column, Cover, ErrorKind, Field, NonEmpty, PlannedChunk, Request, Result,
    Scalar, Selection, Target,
};
use tesseral_core::schema::VariableRole;

/// Chunks that are examined for one list.
const EXAMINED: u64 = 1 << 16;

/// An array and its properties.
#[derive(Debug)]
pub struct ArraySummary {
    /// The array.
    pub array: Array,
    /// The role of the array, by its own metadata or by attributes of others.
    pub role: VariableRole,
    /// The field to show; `None` for all.
    pub field: Option<u16>,
    /// Number of chunks, if known.
    pub chunks: Option<u64>,
    /// Stored size of its chunks in bytes; `None` if a chunk is missing or damaged in the index.
    pub stored: Option<u64>,
    /// Whether its chunks have digests.
    pub digests: bool,
    /// Non-empty domain, for formats that store it.
    pub non_empty: Option<Option<NonEmpty>>,
}

impl ArraySummary {
    /// The properties of an array, or of one of its fields.
    ///
    /// # Errors
    /// Errors of the store; an inconsistent index only leaves sizes unknown.
    pub fn new(array: Array, role: VariableRole, field: Option<u16>) -> Result<Self> {
        let non_empty = array.handle().restartable(|handle| handle.source().non_empty_domain())?;
        let known = Self { array, role, field, chunks: None, stored: None, digests: false, non_empty };
        // `verify` reports an inconsistent index.
        let handle = known.array.handle();
        let totals = known.everything().and_then(|all| handle.restartable(|handle| handle.totals(&all)));
        let totals = match totals {
            Err(error)
                if matches!(
                    error.kind(),
                    ErrorKind::Io { .. } | ErrorKind::Stale { .. } | ErrorKind::Changed { .. }
                ) =>
            {
                return Err(error);
            }
            other => other.ok(),
        };
        let Self { array, non_empty, .. } = known;
        let grid = array.schema().grid().ok().filter(|grid| grid.is_counted() && !array.schema().sparse);
        let chunks = grid.map(|grid| grid.total()).or(totals.map(|t| t.chunks));
        let stored = totals.map(|t| t.stored_bytes);
        let digests = totals.is_some_and(|t| t.digests);
        Ok(Self { array, role, field, chunks, stored, digests, non_empty })
    }

    /// The fields to show.
    pub fn fields(&self) -> &[Field] {
        let all = &self.array.schema().fields;
        self.field.and_then(|field| all.get(usize::from(field))).map_or(all, std::slice::from_ref)
    }

    /// Selection of all cells.
    ///
    /// # Errors
    /// `InvalidRequest` if the positions of a dense array are not countable.
    pub fn everything(&self) -> Result<Request> {
        let mut request = self.array.everything()?;
        if let Some(field) = self.field {
            request.columns.retain(|column| *column == Column::Field(field));
        }
        Ok(request)
    }

    /// Decoded size of its cells in bytes; `None` for variable-length cells.
    pub fn raw(&self) -> Option<u64> {
        let schema = self.array.schema();
        if schema.sparse {
            return None;
        }
        let cells = schema.shape()?.iter().try_fold(1_u64, |n, extent| n.checked_mul(*extent))?;
        let sizes = self.fields().iter().map(|f| f.cell_size().and_then(|n| u64::try_from(n).ok()));
        let size = sizes.sum::<Option<u64>>()?;
        cells.checked_mul(size)
    }

    /// Its first stored chunks; 0 means all.
    ///
    /// # Errors
    /// Errors of the plan.
    pub fn chunk_rows(&self, limit: u64) -> Result<Vec<ChunkRow>> {
        let (mut rows, _) = self.chunk_rows_from(0, limit)?;
        if limit > 0 {
            rows.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        Ok(rows)
    }

    /// About `limit` of its stored chunks, from the chunk with the number `first`, and the number to continue at, if there may be
    /// more; 0 means all. Chunks at one place are listed together, and many absent ones can end the list early.
    ///
    /// # Errors
    /// Errors of the plan.
    pub fn chunk_rows_from(&self, first: u64, limit: u64) -> Result<(Vec<ChunkRow>, Option<u64>)> {
        let schema = self.array.schema();
        let everything = self.everything()?;
        let grid = schema.grid().ok().filter(|grid| grid.is_counted() && !schema.sparse);
        if let (Some(grid), true) = (grid, limit > 0) {
            // Only the listed chunks are planned, so that the cost does not depend on their number.
            let mut rows = Vec::new();
            let end = grid.total().min(first.saturating_add(EXAMINED));
            let mut number = first;
            while number < end && (rows.len() as u64) < limit {
                self.array.options().cancel.check()?;
                let region = grid.region(&grid.coords(number));
                let target = Target::Cells(Selection::from_region(&region));
                rows.extend(self.planned(&Request { target, ..everything.clone() }, 0, limit)?);
                number += 1;
            }
            return Ok((rows, (number < grid.total()).then_some(number)));
        }
        let mut rows = self.planned(&everything, first, limit.saturating_add(u64::from(limit > 0)))?;
        let more = limit > 0 && rows.len() as u64 > limit;
        if more {
            rows.pop();
        }
        Ok((rows, more.then(|| first.saturating_add(limit))))
    }

    fn planned(&self, request: &Request, skipped: u64, limit: u64) -> Result<Vec<ChunkRow>> {
        let source = self.array.handle().source();
        let plan = self.array.handle().guarded(|| self.array.handle().plan(request));
        let plan = plan.map_err(|e| e.in_array(self.array.name()))?;
        let shown = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        let first = self.field.unwrap_or(0);
        let row = |chunk: &PlannedChunk| ChunkRow {
            info: source.describe(chunk),
            cells: chunk.cells,
            bounds: match &chunk.cover {
                Cover::Bounds(bounds) => Some(bounds.to_vec()),
                Cover::Exact(_) => None,
            },
            statistics: (first..)
                .zip(self.fields())
                .map(|(f, field)| (field.name.clone(), source.stats(chunk, Column::Field(f))))
                .filter(|(_, stats)| stats.min.bound().is_some() || stats.nulls.bound().is_some())
                .collect(),
        };
        Ok(plan
            .chunks
            .iter()
            .skip(usize::try_from(skipped).unwrap_or(usize::MAX))
            .take(shown)
            .map(row)
            .collect())
    }
}

/// A chunk and its statistics.
#[derive(Debug)]
pub struct ChunkRow {
    /// The format's description.
    pub info: ChunkInfo,
    /// Number of cells.
    pub cells: u64,
    /// Coordinate bounds of a sparse chunk.
    pub bounds: Option<Vec<(Scalar, Scalar)>>,
    /// Statistics by field.
    pub statistics: Vec<(String, ChunkStats)>,
}
