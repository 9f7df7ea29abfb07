//! The chunk table: one entry of 24 bytes for each chunk of a piece, in the order of its grid.

use smallvec::SmallVec;
use tesseral_core::{ChunkGrid, Coords, Region};
use tesseral_format::{Access, ArraySource, ChunkPlan, Column, Cover, Part, PlannedChunk, Role, Uncovered};

use crate::wire::{ChunkForm, FormKind};

/// Bytes of an entry.
pub(crate) const ENTRY: usize = 24;

/// The chunk has bytes.
const PRESENT: u32 = 1;
/// The chunk stores a complete tile, also at the edges of the array.
const FULL: u32 = 2;
/// The bytes are the cells.
const DIRECT: u32 = 4;
/// Numbers are in the other byte order than little-endian.
const BIG: u32 = 8;
/// Any range of cells can be decoded.
const RANGES: u32 = 16;
/// The chunk has a part, even if it has no bytes.
const PART: u32 = 32;
/// Ranges of cells that begin at a multiple of a power of two can be decoded: its exponent, in these bits.
const GRANULE: u32 = 0x3f00;
const GRANULE_SHIFT: u32 = 8;

/// Location of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChunkEntry {
    /// Offset in the object.
    pub offset: u64,
    /// Stored bytes.
    pub len: u64,
    /// Number of the object in the source array.
    pub object: u32,
    /// How the bytes become cells.
    pub flags: u32,
}

impl ChunkEntry {
    pub(crate) fn to_bytes(self) -> [u8; ENTRY] {
        let mut out = [0; ENTRY];
        out[..8].copy_from_slice(&self.offset.to_le_bytes());
        out[8..16].copy_from_slice(&self.len.to_le_bytes());
        out[16..20].copy_from_slice(&self.object.to_le_bytes());
        out[20..].copy_from_slice(&self.flags.to_le_bytes());
        out
    }

    pub(crate) fn from_bytes(bytes: &[u8; ENTRY]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let (offset, len, rest) = (word(0), word(8), word(16));
        // Halves of a word.
        #[allow(clippy::cast_possible_truncation)]
        let (object, flags) = (rest as u32, (rest >> 32) as u32);
        Self { offset, len, object, flags }
    }

    /// Whether a reader of this version understands it.
    pub(crate) fn is_valid(self) -> bool {
        let known = PRESENT | FULL | DIRECT | BIG | RANGES | PART | GRANULE;
        self.flags & !known == 0 && self.offset.checked_add(self.len).is_some()
    }

    /// The entry of a planned chunk.
    fn from_planned(chunk: &PlannedChunk) -> Option<Self> {
        let part = chunk.parts.first();
        if chunk.parts.len() > 1 || part.is_some_and(|part| part.role != Role::Values) {
            return None;
        }
        let mut flags = if part.is_some() { PART } else { 0 };
        if part.is_some_and(|part| part.len > 0) {
            flags |= PRESENT;
        }
        if chunk.tile.is_some() {
            flags |= FULL;
        }
        match chunk.access {
            Access::Direct { swapped } => {
                flags |= DIRECT | if swapped != cfg!(target_endian = "big") { BIG } else { 0 };
            }
            Access::Coded { granule: Some(1) } => flags |= RANGES,
            Access::Coded { granule: None } => {}
            Access::Coded { granule: Some(granule) } if granule.is_power_of_two() => {
                flags |= granule.trailing_zeros() << GRANULE_SHIFT;
            }
            Access::Coded { .. } => return None,
        }
        let (offset, len, object) = part.map_or((0, 0, 0), |part| (part.offset, part.len, part.object));
        Some(Self { offset, len, object, flags })
    }

    /// The chunk at `coords` of a grid, as its format planned it.
    pub(crate) fn planned(self, grid: &ChunkGrid, coords: &[u64], columns: &[Column]) -> PlannedChunk {
        let cover = grid.region(coords);
        let tile = Region::new(coords.iter().zip(grid.chunk_shape()).map(|(c, n)| {
            let start = c.saturating_mul(*n);
            (start, start.saturating_add(*n))
        }));
        let full = self.flags & FULL != 0;
        let stored = if full { &tile } else { &cover };
        let cells = stored.cells().unwrap_or(u64::MAX);
        let whole = *stored == cover;
        let part = |column: &Column| Part {
            column: *column,
            role: Role::Values,
            object: self.object,
            offset: self.offset,
            len: self.len,
        };
        let parts: SmallVec<[Part; 1]> =
            if self.flags & PART != 0 { columns.iter().map(part).collect() } else { SmallVec::new() };
        let access = if self.flags & DIRECT != 0 {
            Access::Direct { swapped: (self.flags & BIG != 0) != cfg!(target_endian = "big") }
        } else {
            let exponent = (self.flags & GRANULE) >> GRANULE_SHIFT;
            let ranges = self.flags & RANGES != 0 || exponent > 0;
            Access::Coded { granule: ranges.then_some(1 << exponent) }
        };
        PlannedChunk {
            id: grid.linear(coords),
            tile: full.then(|| Box::new(tile)),
            cover: Cover::Exact(cover),
            layer: 0,
            cells,
            parts,
            access,
            whole,
        }
    }
}

/// The form of an array's chunks and their entries, from a plan of all its cells. Every entry is compared with the planned chunk:
/// an array with other chunks has no entries and is read through its own format.
pub fn chunk_form(
    format: &str,
    name: &str,
    array: &dyn ArraySource,
    plan: &ChunkPlan,
) -> (ChunkForm, Vec<ChunkEntry>) {
    let schema = array.schema();
    let form = |kind: FormKind, chunk: Coords| ChunkForm {
        format: format.to_owned(),
        name: name.to_owned(),
        kind,
        chunk,
    };
    let opened = || (form(FormKind::Opened, Coords::new()), Vec::new());
    let (Some(chunk), Ok(grid)) = (schema.chunk_shape.clone(), schema.grid()) else { return opened() };
    let regular = plan.uncovered == Uncovered::Impossible && plan.deletes.is_empty();
    if !regular || grid.total() != plan.chunks.len() as u64 {
        return opened();
    }
    let mut entries = Vec::with_capacity(plan.chunks.len());
    for (number, planned) in (0_u64..).zip(&plan.chunks) {
        let coords = grid.coords(number);
        match ChunkEntry::from_planned(planned) {
            Some(entry) if entry.planned(&grid, &coords, &[Column::Field(0)]) == *planned => {
                entries.push(entry);
            }
            _ => return opened(),
        }
    }
    // Stored cells in one object need no recipe.
    let plain = entries.iter().all(|entry| entry.flags & DIRECT != 0 && entry.object == 0);
    if plain && array.object(0).is_empty() {
        return (form(FormKind::Stored, chunk), entries);
    }
    match array.recipe() {
        Some(recipe) => (form(FormKind::Recipe(recipe), chunk), entries),
        None => opened(),
    }
}
