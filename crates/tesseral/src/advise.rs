//! Which chunks suit the way an array is read.

use tesseral_core::{Coords, Error, Region, Result, Selection};

use crate::{Array, select};

/// What touching a chunk costs beside its bytes, in bytes: finding it, asking for it, starting a decoder.
const TOUCH: f64 = 32.0 * 1024.0;
/// Smaller chunks are not worth their index rows, larger ones not the memory to decode them.
const SMALLEST: u64 = 64 << 10;
const LARGEST: u64 = 16 << 20;
/// Shapes that are tried at most.
const TRIED: u64 = 300_000;

/// A chunk shape and what reads cost with it.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// Extents of a chunk.
    pub chunk_shape: Vec<u64>,
    /// Bytes of a whole chunk.
    pub chunk_bytes: u64,
    /// Chunks of the array.
    pub chunks: u64,
    /// What each read costs.
    pub reads: Vec<ReadCost>,
    /// Bytes of all reads, with what touching their chunks costs.
    pub cost: f64,
    /// The array has these chunks now.
    pub current: bool,
}

/// What one read costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReadCost {
    /// Bytes wanted.
    pub wanted: u64,
    /// Bytes of cells in the chunks that hold them.
    pub bytes: f64,
    /// Chunks touched.
    pub chunks: f64,
}

/// Ranks chunk shapes by what some reads would cost, best first; the array's own shape comes last, unless it is among the best.
///
/// A read is a selection; a position or window in it stands for any such position or window, wherever it begins.
///
/// # Errors
/// `InvalidRequest` without a read, or for arrays that lie on no grid; what parsing the selections meets.
pub fn advise(array: &Array, reads: &[String], shown: usize) -> Result<Vec<Advice>> {
    if reads.is_empty() {
        return Err(Error::invalid("name at least one read, such as `time=0 lat=:`"));
    }
    let schema = array.schema();
    let grid = schema.grid()?;
    let selections: Vec<Selection> =
        reads.iter().map(|read| array.select(select::parts(read))).collect::<Result<_>>()?;
    let cell = array.selected_field().cell_size().unwrap_or(32) as u64;
    let shape = grid.shape();
    let current = Coords::from_slice(grid.chunk_shape());
    let mut all: Vec<Advice> = candidates(shape, cell)
        .into_iter()
        .filter(|chunk| *chunk != current)
        .map(|chunk| weigh(shape, cell, &chunk, &selections, false))
        .collect();
    all.push(weigh(shape, cell, &current, &selections, true));
    all.sort_by(|a, b| {
        a.cost
            .total_cmp(&b.cost)
            .then(b.chunk_bytes.cmp(&a.chunk_bytes))
            .then_with(|| a.chunk_shape.cmp(&b.chunk_shape))
    });
    let own = all.iter().position(|advice| advice.current).filter(|i| *i >= shown).map(|i| all[i].clone());
    all.truncate(shown.max(1));
    all.extend(own);
    Ok(all)
}

/// Shapes of powers of two and whole dimensions whose chunks have a sensible size.
fn candidates(shape: &[u64], cell: u64) -> Vec<Coords> {
    let mut base = 2;
    let extents = |n: u64, base: u64| -> Vec<u64> {
        let mut out: Vec<u64> =
            std::iter::successors(Some(1_u64), |e| e.checked_mul(base)).take_while(|e| *e < n).collect();
        out.push(n.max(1));
        out
    };
    let count = |base: u64| shape.iter().fold(1_u64, |n, s| n.saturating_mul(extents(*s, base).len() as u64));
    while count(base) > TRIED && base < 1 << 32 {
        base *= 2;
    }
    let all = Region::from_shape(shape).cells().unwrap_or(u64::MAX).saturating_mul(cell);
    let mut out = vec![Coords::new()];
    for n in shape {
        let extents = extents(*n, base);
        out = out
            .iter()
            .flat_map(|head| extents.iter().map(|e| head.iter().copied().chain([*e]).collect()))
            .collect();
    }
    out.retain(|chunk: &Coords| {
        let bytes = chunk.iter().fold(cell, |n, e| n.saturating_mul(*e));
        (SMALLEST.min(all)..=LARGEST).contains(&bytes)
    });
    out
}

#[allow(clippy::cast_precision_loss)]
fn weigh(shape: &[u64], cell: u64, chunk: &[u64], reads: &[Selection], current: bool) -> Advice {
    let chunk_cells: u64 = chunk.iter().zip(shape).map(|(c, n)| (*c).min((*n).max(1))).product();
    let cost = |selection: &Selection| {
        let chunks: f64 = selection
            .slices()
            .iter()
            .zip(chunk)
            .zip(shape)
            .map(|((slice, chunk), n)| {
                let (count, whole) = (slice.count(), n.div_ceil(*chunk) as f64);
                if count == 0 {
                    return 0.0;
                }
                if count.saturating_mul(slice.step) >= *n || slice.step > *chunk {
                    return whole.min(count as f64);
                }
                // A window of this length touches this many chunks on average over all places it may begin.
                (((count - 1) * slice.step) as f64 / *chunk as f64 + 1.0).min(whole)
            })
            .product();
        let wanted = selection.cells().unwrap_or(u64::MAX).saturating_mul(cell);
        ReadCost { wanted, bytes: chunks * (chunk_cells * cell) as f64, chunks }
    };
    let reads: Vec<ReadCost> = reads.iter().map(cost).collect();
    Advice {
        chunk_shape: chunk.to_vec(),
        chunk_bytes: chunk_cells * cell,
        chunks: shape.iter().zip(chunk).map(|(n, c)| n.div_ceil(*c)).product(),
        cost: reads.iter().map(|r| r.bytes + r.chunks * TOUCH).sum(),
        reads,
        current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(shape: &[u64], reads: &[&[(u64, u64)]]) -> Advice {
        let reads: Vec<Selection> = reads
            .iter()
            .map(|r| Selection::new(r.iter().map(|(a, b)| tesseral_core::Slice::new(*a, *b)), shape).unwrap())
            .collect();
        let all = candidates(shape, 4).into_iter().map(|c| weigh(shape, 4, &c, &reads, false));
        all.min_by(|a, b| a.cost.total_cmp(&b.cost)).unwrap()
    }

    #[test]
    fn chunks_follow_the_reads() {
        let shape = [4096, 256, 256];
        // One map at a time: chunks one step thick.
        assert_eq!(best(&shape, &[&[(7, 8), (0, 256), (0, 256)]]).chunk_shape[0], 1);
        // A series at a point: long in time.
        assert!(best(&shape, &[&[(0, 4096), (3, 4), (9, 10)]]).chunk_shape[0] >= 1024);
        // Both: something between, never as bad as either extreme for the other.
        let both: [&[(u64, u64)]; 2] = [&[(7, 8), (0, 256), (0, 256)], &[(0, 4096), (3, 4), (9, 10)]];
        let chunk = best(&shape, &both).chunk_shape;
        assert!(chunk[0] > 1 && chunk[0] < 4096 && chunk[1] > 1, "{chunk:?}");
    }

    #[test]
    fn many_dimensions_stay_countable() {
        let shape = [64; 8];
        assert!(candidates(&shape, 4).len() as u64 <= TRIED);
        assert!(!candidates(&[3], 4).is_empty());
        assert!(!candidates(&[], 4).is_empty());
    }
}
