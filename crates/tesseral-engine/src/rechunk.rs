//! How to move an array from one grid of chunks to another within a memory limit, in at most two passes.
//!
//! ```text
//! chunks   every old chunk lies in one new chunk: each new chunk is read and stored by itself
//! blocks   a block of whole new chunks fits memory, and reading by such blocks reads (nearly) every old chunk once
//! twice    read blocks of whole old chunks, cut each along the blocks of whole new chunks, lay the pieces into a scratch
//!          file; then gather the pieces of each new block. Every cell is read once, written twice, whatever the grids
//! ```

use tesseral_core::{ChunkGrid, Coords, Error, Region, Result};

/// Reading more than this many times what there is costs more than a second pass.
const WORTH: f64 = 2.0;
/// Blocks grow to this many bytes even where smaller ones would do, so that every thread has chunks to work on.
const ROOMY: u64 = 32 << 20;

/// Two grids over one array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grids {
    /// Positions along each dimension.
    pub shape: Coords,
    /// The chunks there are.
    pub from: Coords,
    /// The chunks there shall be.
    pub to: Coords,
    /// Bytes of a cell over all fields.
    pub cell: u64,
}

/// How cells move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// New chunk by new chunk.
    Chunks,
    /// By blocks of whole new chunks.
    Blocks {
        /// Extents of a block.
        block: Coords,
    },
    /// Through a scratch file.
    Twice {
        /// Extents of a block of whole old chunks.
        read: Coords,
        /// Extents of a block of whole new chunks.
        write: Coords,
    },
}

/// A way with its cost.
#[derive(Clone, Debug, PartialEq)]
pub struct RechunkPlan {
    /// The grids.
    pub grids: Grids,
    /// How cells move.
    pub way: Way,
    /// Threads that fit the memory.
    pub threads: usize,
    /// Bytes of the cells.
    pub bytes: u64,
    /// Bytes of decoded cells of old chunks that are read.
    pub bytes_read: u64,
    /// Bytes written, a scratch file included.
    pub bytes_written: u64,
    /// Bytes read for each byte there is.
    pub amplification: f64,
    /// Bytes of work space at most, as planned.
    pub memory: u64,
}

impl Grids {
    fn grid(&self, block: &[u64]) -> Result<ChunkGrid> {
        ChunkGrid::new(&self.shape, block)
    }

    /// Bytes of a block, clipped to the array.
    fn bytes(&self, block: &[u64]) -> u64 {
        let cells = block.iter().zip(&self.shape).fold(1_u64, |n, (b, s)| n.saturating_mul((*b).min(*s)));
        cells.saturating_mul(self.cell)
    }

    /// How many times the array is read when it is read block by block, each with every old chunk it touches.
    pub fn amplification(&self, block: &[u64]) -> f64 {
        (0..self.shape.len()).map(|d| along(self.shape[d], self.from[d], block[d])).product()
    }
}

/// The same along one dimension of `extent` positions.
#[allow(clippy::cast_precision_loss)]
fn along(extent: u64, chunk: u64, block: u64) -> f64 {
    const COUNTED: u64 = 4096;
    let (chunk, block) = (chunk.min(extent).max(1), block.min(extent).max(1));
    if extent == 0 || block == extent || block.is_multiple_of(chunk) {
        return 1.0;
    }
    let blocks = extent.div_ceil(block);
    if blocks > COUNTED {
        // A block that begins at a multiple of `block` touches (block - gcd) / chunk + 1 chunks on average.
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
    /// Plans a move within `memory` bytes on at most `threads` threads. Without `scratch`, one pass is made whatever it costs.
    ///
    /// # Errors
    /// `Limit` when not even one chunk of each grid fits; `InvalidRequest` for grids that are none.
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
            #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            let bytes_read = (bytes as f64 * amplification) as u64;
            let scratch = if matches!(way, Way::Twice { .. }) { bytes } else { 0 };
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
                .hint("raise the memory limit, or take smaller chunks"));
        }
        let chunkwise = grids.amplification(&grids.to);
        if chunkwise <= 1.0 {
            return Ok(plan(Way::Chunks, threads.min(fitting(memory)).max(1), 1.0, 0));
        }
        let threads = threads.min(fitting(memory / 2)).max(1);
        let room = memory - per_thread.saturating_mul(threads as u64).min(memory);
        let block = grow_to_cover(&grids, room);
        let once = grids.amplification(&block);
        // Cutting a block into pieces takes as much again.
        let cut = from.max(to).saturating_mul(2) <= room;
        if once <= WORTH || !scratch || !cut {
            if block == grids.to {
                return Ok(plan(Way::Chunks, threads, chunkwise, 0));
            }
            let work = grids.bytes(&block);
            return Ok(plan(Way::Blocks { block }, threads, once, work));
        }
        let read = grow_toward(&grids, &grids.from, &grids.to, room / 2);
        let write = grow_toward(&grids, &grids.to, &grids.from, room / 2);
        let work = grids.bytes(&read).max(grids.bytes(&write)).saturating_mul(2);
        Ok(plan(Way::Twice { read, write }, threads, 1.0, work))
    }

    /// Passes over the cells.
    pub fn passes(&self) -> u64 {
        if matches!(self.way, Way::Twice { .. }) { 2 } else { 1 }
    }
}

/// The block of whole new chunks within `room` that reads old chunks the fewest times: starts from one chunk, and again and
/// again lengthens the dimension that gains most.
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

/// Longer extents of a block of whole new chunks that are worth a look.
fn longer(extent: u64, from: u64, to: u64, now: u64) -> impl Iterator<Item = u64> {
    let whole = extent.div_ceil(to).saturating_mul(to);
    let multiple = lcm(from, to);
    let aligned = (now / multiple + 1).saturating_mul(multiple);
    [now.saturating_mul(2), aligned, whole].into_iter().filter(move |n| *n > now && *n <= whole)
}

/// A block of whole chunks of `own`, as large as `room` allows, grown first along the dimensions where chunks of `other` are
/// longer: there the two kinds of blocks meet in the largest pieces.
fn grow_toward(grids: &Grids, own: &[u64], other: &[u64], room: u64) -> Coords {
    let mut block = Coords::from_slice(own);
    for wanted in [true, false] {
        loop {
            let grown = (0..block.len()).filter_map(|d| {
                let (mut next, whole) = (block.clone(), grids.shape[d].div_ceil(own[d]) * own[d]);
                next[d] = block[d].saturating_mul(2).min(whole);
                let short = block[d] < other[d].min(grids.shape[d]);
                let fits = next[d] > block[d] && grids.bytes(&next) <= room;
                #[allow(clippy::cast_precision_loss)]
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

    /// Old chunks touched by every block, one by one.
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
                        Way::Chunks => {}
                        Way::Blocks { block } => prop_assert!(whole(block, &grids.to)),
                        Way::Twice { read, write } => {
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
        // Everything fits: one block of all of it.
        assert!(matches!(maps_to_series(8 << 30).way, Way::Blocks { .. }));
        assert_eq!(maps_to_series(8 << 30).amplification, 1.0);
        // A band of rows of the maps fits 1 GiB no more: two passes.
        assert_eq!(maps_to_series(1 << 30).passes(), 2);
        // Old chunks that lie inside new ones need no blocks.
        let nested = RechunkPlan::new(grids(&[64, 64], &[8, 8], &[16, 64], 4), 1 << 20, 4, true).unwrap();
        assert_eq!((nested.way, nested.amplification), (Way::Chunks, 1.0));
        // A chunk larger than the memory is refused.
        assert!(RechunkPlan::new(grids(&[1 << 20], &[1 << 20], &[16], 8), 1 << 20, 1, true).is_err());
    }
}
