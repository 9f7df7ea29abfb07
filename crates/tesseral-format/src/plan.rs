//! What a plan says: which chunks, where their bytes are, how they lie over one another.

use smallvec::SmallVec;
use tesseral_core::condition::Condition;
use tesseral_core::{Region, Scalar};

use crate::Column;

/// What part of the column a span holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// The cells, or the bytes of cells of any length.
    Values,
    /// Where each cell of any length begins.
    Offsets,
    /// Which cells are valid.
    Validity,
    /// Which cells are restored to NaN or ±∞.
    Mask,
}

/// A span of stored bytes that a chunk needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The column it belongs to.
    pub column: Column,
    /// What it holds.
    pub role: Role,
    /// The object it is in, as [`ArraySource::object`](crate::ArraySource::object) numbers them.
    pub object: u32,
    /// Where in the object.
    pub offset: u64,
    /// How many bytes.
    pub len: u64,
}

/// Which cells a chunk may hold.
#[derive(Clone, Debug, PartialEq)]
pub enum Cover {
    /// Exactly the cells of a box.
    Exact(Region),
    /// Cells listed one by one, all inside these closed coordinate ranges, one per dimension.
    Bounds(Box<[(Scalar, Scalar)]>),
}

impl Cover {
    /// The box, for dense chunks.
    pub fn region(&self) -> Option<&Region> {
        match self {
            Self::Exact(region) => Some(region),
            Self::Bounds(_) => None,
        }
    }
}

/// How the bytes of a chunk become cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The one part of the column *is* the cells of the tile, in the schema's cell order, back to back.
    Direct {
        /// Numbers are stored in the other byte order than this machine's.
        swapped: bool,
    },
    /// [`ArraySource::decode`](crate::ArraySource::decode) must run.
    Coded {
        /// The decoder can produce any run of cells that begins at a multiple of this many, without the others. Cells of
        /// any length decode whole.
        granule: Option<u64>,
    },
}

/// One chunk that serves a request.
#[derive(Clone, Debug, PartialEq)]
pub struct PlannedChunk {
    /// The format's own number of the chunk, stable while the container is open.
    pub id: u64,
    /// The cells it may provide.
    pub cover: Cover,
    /// The box whose cells are stored, where it is larger than the cover; decoders produce all of it.
    pub tile: Option<Region>,
    /// Where covers meet, the higher layer wins.
    pub layer: u32,
    /// Number of cells stored.
    pub cells: u64,
    /// The bytes it needs, grouped by column in the order of the request's columns.
    pub parts: SmallVec<[Part; 1]>,
    /// How bytes become cells.
    pub access: Access,
    /// Nothing clips, shadows or deletes any stored cell: the chunk's statistics are those of the array's cells.
    pub whole: bool,
}

impl PlannedChunk {
    /// The box whose cells the decoder produces, for dense chunks.
    pub fn tile_region(&self) -> Option<&Region> {
        self.tile.as_ref().or_else(|| self.cover.region())
    }

    /// The parts of one column.
    pub fn column_parts(&self, column: Column) -> impl Iterator<Item = (usize, &Part)> {
        self.parts.iter().enumerate().filter(move |(_, part)| part.column == column)
    }

    /// Stored bytes over all parts.
    pub fn stored_bytes(&self) -> u64 {
        self.parts.iter().map(|part| part.len).fold(0, u64::saturating_add)
    }
}

/// What cells hold that no chunk of a dense array covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uncovered {
    /// There is none: the plan's chunks cover the selection, each cell once. A missing chunk was an error.
    Impossible,
    /// The field's fill value. Chunks may overlap; layers decide.
    Fill,
}

/// A stored delete: cells written before it that meet the condition are gone. A field that a chunk has no part of is null to it.
#[derive(Clone, Debug, PartialEq)]
pub struct Delete {
    /// When it was stored, milliseconds since 1970.
    pub timestamp: u64,
    /// Which cells go.
    pub condition: Condition,
    /// The layer below which it counts: chunks of this layer and above are newer.
    pub layer: u32,
}

/// Which chunks serve a request. Plain data, made from metadata alone.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkPlan {
    /// The chunks, in an order that is the same at every run.
    pub chunks: Vec<PlannedChunk>,
    /// What the cells hold that no chunk covers.
    pub uncovered: Uncovered,
    /// Deletes to apply.
    pub deletes: Vec<Delete>,
}

impl ChunkPlan {
    /// Stored bytes over all chunks.
    pub fn stored_bytes(&self) -> u64 {
        self.chunks.iter().map(PlannedChunk::stored_bytes).fold(0, u64::saturating_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths come from files: a fragment can claim parts that add up to more than there are numbers for.
    #[test]
    fn claimed_lengths_add_up_without_overflow() {
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
