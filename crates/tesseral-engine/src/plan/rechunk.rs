//! Plans to move an array from one chunk grid to another within a memory limit, in at most two passes.
//!
//! ```text
//! chunks   every old chunk is inside one new chunk: each new chunk is read and written separately
//! blocks   a block of whole new chunks fits in memory, and reading by such blocks reads (nearly) every old chunk once
//! twice    read blocks of whole old chunks, divide each along the blocks of whole new chunks, write the pieces to a scratch
//!          file; then gather the pieces of each new block. Every cell is read once and written twice, for any grids
//! ```

use tesseral_core::{Advice, ChunkGrid, Coords, Error, Region, Result};

/// Maximum read amplification for which one pass is cheaper than two.
const WORTH: f64 = 2.0;
/// Target size of blocks in bytes, so that every thread has chunks to work on.
const ROOMY: u64 = 32 << 20;

/// Two grids over one array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grids {
    /// Extent of each dimension.
    pub shape: Coords,
    /// The old chunk shape.
    pub from: Coords,
    /// The new chunk shape.
    pub to: Coords,
    /// Size of a cell over all fields in bytes.
    pub cell: u64,
}

/// Transfer strategy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TransferMethod {
    /// New chunk by new chunk.
    PerChunk,
    /// By blocks of whole new chunks.
    PerBlock {
        /// Extents of a block.
        block: Coords,
    },
    /// Through a scratch file.
    ScratchFile {
        /// Extents of a block of whole old chunks.
        read: Coords,
        /// Extents of a block of whole new chunks.
        write: Coords,
    },
}

/// A strategy with its cost.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RechunkPlan {
    /// The grids.
    pub grids: Grids,
    /// Transfer strategy.
    pub way: TransferMethod,
    /// Number of threads that fit the memory.
    pub threads: usize,
    /// Size of the cells in bytes.
    pub bytes: u64,
    /// Decoded size of the old chunks that are read, in bytes.
    pub bytes_read: u64,
    /// Written size in bytes, including a scratch file.
    pub bytes_written: u64,
    /// Read amplification: bytes read per byte of the array.
    pub amplification: f64,
    /// Planned maximum memory in bytes.
    pub memory: u64,
}

impl Grids {
    fn grid(&self, block: &[u64]) -> Result<ChunkGrid> {
        ChunkGrid::new(&self.shape, block)
    }

    /// Size of a block in bytes, clipped to the array.
    fn bytes(&self, block: &[u64]) -> u64 {
        let cells = block.iter().zip(&self.shape).fold(1_u64, |n, (b, s)| n.saturating_mul((*b).min(*s)));
        cells.saturating_mul(self.cell)
    }

    /// Read amplification if the array is read block by block, each with every old chunk it touches.
    pub fn amplification(&self, block: &[u64]) -> f64 {
        (0..self.shape.len()).map(|d| along(self.shape[d], self.from[d], block[d])).product()
    }
}

/// Read amplification along one dimension of `extent` positions.
fn along(extent: u64, chunk: u64, block: u64) -> f64 {
    const COUNTED: u64 = 4096;
    let (chunk, block) = (chunk.min(extent).max(1), block.min(extent).max(1));
    if extent == 0 || block == extent || block.is_multiple_of(chunk) {
        return 1.0;
    }
    let blocks = extent.div_ceil(block);
    if blocks > COUNTED {
        // A block at a multiple of `block` touches (block - gcd) / chunk + 1 chunks on average.
        return (block - gcd(block, chunk) + chunk) as f64 / block as f64;
    }
    let touched: u64 = (0..blocks)
        .map(|i| {
            let (start, end) = (i * block, ((i + 1) * block).min(extent));
            (end.div_ceil(chunk) * chunk).min(extent) - start / chunk * chunk
        })
        .sum();
    touched as f64 / extent as f64
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn lcm(a: u64, b: u64) -> u64 {
    (a / gcd(a, b).max(1)).saturating_mul(b)
}

impl RechunkPlan {
    /// Plans a transfer within `memory` bytes on at most `threads` threads. Without `scratch`, uses one pass at any cost.
    ///
    /// # Errors
    /// `Limit` if one chunk of each grid does not fit; `InvalidRequest` for invalid grids.
    pub fn new(grids: Grids, memory: u64, threads: usize, scratch: bool) -> Result<Self> {
        grids.grid(&grids.from)?;
        grids.grid(&grids.to)?;
        let bytes = Region::from_shape(&grids.shape)
            .cells()
            .and_then(|n| n.checked_mul(grids.cell))
            .ok_or_else(|| Error::limit("the array", u64::MAX, u64::MAX))?;
        let (from, to) = (grids.bytes(&grids.from), grids.bytes(&grids.to));
        // A thread holds an old chunk, stored and decoded, and a new one; encoded ones wait for their turn.
        let per_thread = from.saturating_mul(2).saturating_add(to.saturating_mul(3));
        let fitting = |share: u64| usize::try_from(share / per_thread.max(1)).unwrap_or(usize::MAX);
        let plan = |way, threads: usize, amplification: f64, work: u64| {
            let bytes_read = (bytes as f64 * amplification) as u64;
            let scratch = if matches!(way, TransferMethod::ScratchFile { .. }) { bytes } else { 0 };
            Self {
                way,
                threads,
                bytes,
                bytes_read: bytes_read.max(bytes).saturating_add(scratch),
                bytes_written: bytes.saturating_add(scratch),
                amplification,
                memory: per_thread.saturating_mul(threads as u64).saturating_add(work),
                grids: grids.clone(),
            }
        };
        if per_thread > memory {
            return Err(Error::limit("one chunk of each grid, decoded and encoded,", per_thread, memory)
                .hint(Advice::RaiseMemory.or("use smaller chunks")));
        }
        let chunkwise = grids.amplification(&grids.to);
        if chunkwise <= 1.0 {
            return Ok(plan(TransferMethod::PerChunk, threads.min(fitting(memory)).max(1), 1.0, 0));
        }
        let threads = threads.min(fitting(memory / 2)).max(1);
        let room = memory - per_thread.saturating_mul(threads as u64).min(memory);
        let block = grow_to_cover(&grids, room);
        let once = grids.amplification(&block);
        // Dividing a block into pieces takes as much again.
        let cut = from.max(to).saturating_mul(2) <= room;
        if once <= WORTH || !scratch || !cut {
            if block == grids.to {
                return Ok(plan(TransferMethod::PerChunk, threads, chunkwise, 0));
            }
            let work = grids.bytes(&block);
            return Ok(plan(TransferMethod::PerBlock { block }, threads, once, work));
        }
        let read = grow_toward(&grids, &grids.from, &grids.to, room / 2);
        let write = grow_toward(&grids, &grids.to, &grids.from, room / 2);
        let work = grids.bytes(&read).max(grids.bytes(&write)).saturating_mul(2);
        Ok(plan(TransferMethod::ScratchFile { read, write }, threads, 1.0, work))
    }

    /// Number of passes over the cells.
    pub fn passes(&self) -> u64 {
        if matches!(self.way, TransferMethod::ScratchFile { .. }) { 2 } else { 1 }
    }
}

/// The block of whole new chunks within `room` with the lowest read amplification: starts from one chunk and repeatedly extends
/// the dimension that gains most.
fn grow_to_cover(grids: &Grids, room: u64) -> Coords {
    let mut block = grids.to.clone();
    loop {
        let now = grids.amplification(&block);
        let mut best: Option<(f64, u64, Coords)> = None;
        for d in 0..block.len() {
            for extent in longer(grids.shape[d], grids.from[d], grids.to[d], block[d]) {
                let mut next = block.clone();
                next[d] = extent;
                let (cost, bytes) = (grids.amplification(&next), grids.bytes(&next));
                let roomy = now <= 1.0 && cost <= 1.0 && bytes <= ROOMY.min(room);
                let better = best.as_ref().is_none_or(|(c, b, _)| (cost, bytes) < (*c, *b));
                if bytes <= room && (cost < now || roomy) && better {
                    best = Some((cost, bytes, next));
                }
            }
        }
        match best {
            Some((_, _, next)) => block = next,
            None => return block,
        }
    }
}

/// Candidate extents of a larger block.
fn longer(extent: u64, from: u64, to: u64, now: u64) -> impl Iterator<Item = u64> {
    let whole = extent.div_ceil(to).saturating_mul(to);
    let multiple = lcm(from, to);
    let aligned = (now / multiple + 1).saturating_mul(multiple);
    [now.saturating_mul(2), aligned, whole].into_iter().filter(move |n| *n > now && *n <= whole)
}

/// A block of whole chunks of `own`, as large as `room` allows, grown first along the dimensions where chunks of `other` are
/// longer, so that the pieces are largest.
fn grow_toward(grids: &Grids, own: &[u64], other: &[u64], room: u64) -> Coords {
    let mut block = Coords::from_slice(own);
    for wanted in [true, false] {
        loop {
            let grown = (0..block.len()).filter_map(|d| {
                let (mut next, whole) = (block.clone(), grids.shape[d].div_ceil(own[d]) * own[d]);
                next[d] = block[d].saturating_mul(2).min(whole);
                let short = block[d] < other[d].min(grids.shape[d]);
                let fits = next[d] > block[d] && grids.bytes(&next) <= room;
                let lacks = other[d] as f64 / block[d] as f64;
                (fits && (short || !wanted)).then_some((lacks, next))
            });
            match grown.max_by(|a, b| a.0.total_cmp(&b.0)) {
                Some((_, next)) => block = next,
                None => break,
            }
        }
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grids(shape: &[u64], from: &[u64], to: &[u64], cell: u64) -> Grids {
        let coords = Coords::from_slice;
        Grids { shape: coords(shape), from: coords(from), to: coords(to), cell }
    }

    /// Old chunks touched by every block, counted one by one.
    fn counted(grids: &Grids, block: &[u64]) -> f64 {
        let (blocks, chunks) = (grids.grid(block).unwrap(), grids.grid(&grids.from).unwrap());
        let mut cells = 0;
        for i in 0..blocks.total() {
            let region = blocks.region(&blocks.coords(i));
            for coords in chunks.touched(&tesseral_core::Selection::from_region(&region)) {
                cells += chunks.region(&coords).cells().unwrap();
            }
        }
        cells as f64 / Region::from_shape(&grids.shape).cells().unwrap() as f64
    }

    fn dims() -> impl Strategy<Value = Vec<(u64, u64, u64)>> {
        prop::collection::vec((1_u64..24, 1_u64..26, 1_u64..26), 1..4)
    }

    proptest! {
        #[test]
        fn amplification_is_what_counting_finds(dims in dims(), block in prop::collection::vec(1_u64..30, 3)) {
            let column = |f: fn(&(u64, u64, u64)) -> u64| dims.iter().map(f).collect::<Vec<_>>();
            let grids = grids(&column(|d| d.0), &column(|d| d.1), &column(|d| d.2), 4);
            let block = &block[..dims.len()];
            let (got, want) = (grids.amplification(block), counted(&grids, block));
            prop_assert!((got - want).abs() < 1e-9, "{got} {want}");
        }

        #[test]
        fn plans_keep_their_promises(dims in dims(), memory in 100_u64..40_000, threads in 1_usize..5) {
            let column = |f: fn(&(u64, u64, u64)) -> u64| dims.iter().map(f).collect::<Vec<_>>();
            let grids = grids(&column(|d| d.0), &column(|d| d.1), &column(|d| d.2), 4);
            let needed = 2 * grids.bytes(&grids.from) + 3 * grids.bytes(&grids.to);
            match RechunkPlan::new(grids.clone(), memory, threads, true) {
                Err(_) => prop_assert!(needed > memory),
                Ok(plan) => {
                    prop_assert!(plan.memory <= memory, "{plan:?}");
                    prop_assert!(plan.threads >= 1 && plan.threads <= threads);
                    prop_assert!(plan.passes() <= 2);
                    let cut = 2 * grids.bytes(&grids.from).max(grids.bytes(&grids.to));
                    prop_assert!(plan.amplification <= WORTH || needed + cut > memory, "{plan:?}");
                    let whole = |block: &[u64], chunk: &[u64]| block.iter().zip(chunk).all(|(b, c)| b % c == 0);
                    match &plan.way {
                        TransferMethod::PerChunk => {}
                        TransferMethod::PerBlock { block } => prop_assert!(whole(block, &grids.to)),
                        TransferMethod::ScratchFile { read, write } => {
                            prop_assert!(whole(read, &grids.from) && whole(write, &grids.to));
                        }
                    }
                    prop_assert!(plan.bytes_read >= plan.bytes);
                }
            }
        }
    }

    #[test]
    fn known_cases() {
        let maps_to_series = |memory| {
            let grids = grids(&[3650, 360, 720], &[1, 360, 720], &[3650, 8, 8], 4);
            RechunkPlan::new(grids, memory, 2, true).unwrap()
        };
        // Everything fits: one block.
        assert!(matches!(maps_to_series(8 << 30).way, TransferMethod::PerBlock { .. }));
        assert_eq!(maps_to_series(8 << 30).amplification, 1.0);
        // A band of rows of the maps exceeds 1 GiB: two passes.
        assert_eq!(maps_to_series(1 << 30).passes(), 2);
        // Old chunks inside new ones need no blocks.
        let nested = RechunkPlan::new(grids(&[64, 64], &[8, 8], &[16, 64], 4), 1 << 20, 4, true).unwrap();
        assert_eq!((nested.way, nested.amplification), (TransferMethod::PerChunk, 1.0));
        // A chunk larger than the memory is rejected.
        assert!(RechunkPlan::new(grids(&[1 << 20], &[1 << 20], &[16], 8), 1 << 20, 1, true).is_err());
    }
}
