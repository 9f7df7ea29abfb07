//! Plans: chunks, their byte ranges, and their layers.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tesseral_core::condition::Condition;
use tesseral_core::{ChunkGrid, Error, ErrorKind, Limits, Region, Result, Scalar};
use tesseral_store::{Rounds, Store, Upcoming};

use crate::{ArraySource, Column, Request};

/// Content of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The cells, or the data of variable-length cells.
    Values,
    /// Offsets of variable-length cells.
    Offsets,
    /// Validity of cells.
    Validity,
    /// Cells that are restored to NaN or ±∞.
    Mask,
}

/// A byte range that a chunk needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The column of the part.
    pub column: Column,
    /// Content of the part.
    pub role: Role,
    /// Index of the object, for [`ArraySource::object`](crate::ArraySource::object).
    pub object: u32,
    /// Offset in the object.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Part {
    /// The part with the values of a column in a range of bytes.
    pub fn values(column: Column, object: u32, range: &Range<u64>) -> Self {
        let len = range.end.saturating_sub(range.start);
        Self { column, role: Role::Values, object, offset: range.start, len }
    }
}

/// The cells that a chunk can contain.
#[derive(Clone, Debug, PartialEq)]
pub enum Cover {
    /// Exactly the cells of a box.
    Exact(Region),
    /// Listed cells inside these closed coordinate ranges, one per dimension.
    Bounds(Box<[(Scalar, Scalar)]>),
}

impl Cover {
    /// The box of a dense chunk.
    pub fn region(&self) -> Option<&Region> {
        match self {
            Self::Exact(region) => Some(region),
            Self::Bounds(_) => None,
        }
    }
}

/// How the bytes of a chunk are converted to cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The only part of the column *is* the contiguous cells of the tile, in the schema's cell order.
    Direct {
        /// Whether numbers must be byte-swapped to native order.
        swapped: bool,
    },
    /// [`ArraySource::decode`](crate::ArraySource::decode) is required.
    Coded {
        /// The decoder can decode any range of cells that begins at a multiple of this number, without the others. `None` if it
        /// decodes whole chunks, as for variable-length cells.
        granule: Option<u64>,
    },
}

/// One chunk that serves a request.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedChunk {
    /// Chunk id of the format, stable while the container is open.
    pub id: u64,
    /// The cells it can provide.
    pub cover: Cover,
    /// The stored box, if it is larger than the cover; decoders produce all of it.
    /// Boxed: most chunks have none, and plans of a million chunks are held in memory.
    pub tile: Option<Box<Region>>,
    /// Where covers overlap, the higher layer wins.
    pub layer: u32,
    /// Number of cells stored.
    pub cells: u64,
    /// The byte ranges it needs, grouped by column in the order of the request's columns.
    pub parts: SmallVec<[Part; 1]>,
    /// How bytes are converted to cells.
    pub access: Access,
    /// No stored cell is clipped, hidden or deleted: the chunk's statistics are those of the array's cells.
    pub whole: bool,
}

impl PlannedChunk {
    /// A chunk that is the only one of its cells, and that stores nothing else.
    pub fn exact(id: u64, region: Region, parts: SmallVec<[Part; 1]>, access: Access) -> Self {
        Self {
            id,
            cells: region.cells().unwrap_or(u64::MAX),
            cover: Cover::Exact(region),
            tile: None,
            layer: 0,
            parts,
            access,
            whole: true,
        }
    }

    /// The box that the decoder produces, for dense chunks.
    pub fn tile_region(&self) -> Option<&Region> {
        self.tile.as_deref().or_else(|| self.cover.region())
    }

    /// The parts of one column.
    pub fn column_parts(&self, column: Column) -> impl Iterator<Item = (usize, &Part)> {
        self.parts.iter().enumerate().filter(move |(_, part)| part.column == column)
    }

    /// Stored size of all parts in bytes.
    pub fn stored_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len).fold(0, u64::saturating_add)
    }
}

/// Value of the uncovered cells of a dense array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncovered {
    /// There are none: the chunks cover each selected cell exactly once. A missing chunk is an error.
    Impossible,
    /// The field's fill value. Chunks can overlap; layers decide.
    Fill,
}

/// A stored delete: older cells that match the condition are removed. A field that a chunk lacks is null for it.
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// Timestamp in milliseconds since 1970.
    pub timestamp: u64,
    /// Condition of the removed cells.
    pub condition: Condition,
    /// Applies to chunks below this layer; chunks of this layer and above are newer.
    pub layer: u32,
}

/// The chunks that serve a request. Computed from metadata only.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkPlan {
    /// The chunks, in a deterministic order.
    pub chunks: Vec<PlannedChunk>,
    /// Value of uncovered cells.
    pub uncovered: Uncovered,
    /// Deletes to apply.
    pub deletes: Vec<Delete>,
}

/// Answer of [`ArraySource::plan`].
#[derive(Clone, Debug, PartialEq)]
pub enum Planned {
    /// The chunks.
    Ready(ChunkPlan),
    /// Metadata that must be fetched first: all that is known to be needed, so that it is one round trip.
    Needs(Vec<Upcoming>),
}

impl Planned {
    /// The answer of a format that makes its plan from the metadata of `rounds`: a plan that waits for some of them needs what
    /// was noted.
    ///
    /// # Errors
    /// Errors of planning, except `Pending`.
    pub fn from_rounds(plan: Result<ChunkPlan>, rounds: &Rounds) -> Result<Self> {
        match plan {
            Ok(plan) => Ok(Self::Ready(plan)),
            Err(error) if matches!(error.kind(), ErrorKind::Pending) => {
                let needs = rounds.take_needs();
                if needs.is_empty() {
                    return Err(Error::internal("a plan waits for metadata that it does not name"));
                }
                Ok(Self::Needs(needs))
            }
            Err(error) => Err(error),
        }
    }

    /// Changes the plan, if there is one.
    ///
    /// # Errors
    /// Errors of `change`.
    pub fn and_then(self, change: impl FnOnce(ChunkPlan) -> Result<ChunkPlan>) -> Result<Self> {
        match self {
            Self::Ready(plan) => change(plan).map(Self::Ready),
            needs @ Self::Needs(_) => Ok(needs),
        }
    }
}

/// Plans a request, fetching metadata from the store between rounds.
///
/// # Errors
/// As [`ArraySource::plan`]; errors of the store.
pub fn plan(source: &dyn ArraySource, store: &Arc<dyn Store>, request: &Request) -> Result<ChunkPlan> {
    plan_from(source, &Rounds::new(Arc::clone(store)), request)
}

/// As [`plan`], with metadata of the same operation that were fetched before.
///
/// # Errors
/// As [`plan`].
pub fn plan_from(source: &dyn ArraySource, rounds: &Arc<Rounds>, request: &Request) -> Result<ChunkPlan> {
    loop {
        match source.plan(request, rounds)? {
            Planned::Ready(plan) => return Ok(plan),
            Planned::Needs(needs) => rounds.fetch(&needs)?,
        }
    }
}

impl ChunkPlan {
    /// The plan of chunks that cover each selected cell once.
    pub fn disjoint(chunks: Vec<PlannedChunk>) -> Self {
        Self { chunks, uncovered: Uncovered::Impossible, deletes: Vec::new() }
    }

    /// The plan of an array that stores every chunk of its grid: `chunk` plans the one at some coordinates.
    ///
    /// # Errors
    /// `Limit` for more chunks than `limits` permit; errors of `chunk`, with the chunk.
    pub fn of_grid(
        grid: &ChunkGrid,
        request: &Request,
        limits: &Limits,
        mut chunk: impl FnMut(u64, Region) -> Result<PlannedChunk>,
    ) -> Result<Self> {
        let Some(selection) = request.selection() else {
            return Err(Error::internal("a request by coordinates"));
        };
        if grid.total() == 0 {
            return Ok(Self::disjoint(Vec::new()));
        }
        let touched = grid.touched(selection);
        limits.check_plan(touched.remaining())?;
        let planned = touched
            .map(|coords| chunk(grid.linear(&coords), grid.region(&coords)).map_err(|e| e.in_chunk(&coords)));
        Ok(Self::disjoint(planned.collect::<Result<_>>()?))
    }

    /// Stored size of all chunks in bytes.
    pub fn stored_bytes(&self) -> u64 {
        self.chunks.iter().map(PlannedChunk::stored_bytes).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A plan of a million chunks is held in memory, and the first touch of its pages costs more than computing it.
    #[test]
    fn planned_chunks_are_small() {
        assert!(size_of::<PlannedChunk>() <= 184, "{}", size_of::<PlannedChunk>());
    }

    /// Lengths are untrusted: parts of a fragment can declare sizes whose sum overflows.
    #[test]
    fn sums_of_declared_lengths_do_not_overflow() {
        let part = |len| Part { column: Column::Field(0), role: Role::Values, object: 0, offset: 0, len };
        let chunk = PlannedChunk {
            id: 0,
            cells: 1,
            tile: None,
            cover: Cover::Exact(Region::from_shape(&[1])),
            layer: 0,
            parts: [part(u64::MAX), part(1)].into_iter().collect(),
            access: Access::Coded { granule: None },
            whole: true,
        };
        assert_eq!(chunk.stored_bytes(), u64::MAX);
        let plan =
            ChunkPlan { chunks: vec![chunk; 2], uncovered: Uncovered::Impossible, deletes: Vec::new() };
        assert_eq!(plan.stored_bytes(), u64::MAX);
    }
}
