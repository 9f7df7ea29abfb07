//! Recommendation of chunk shapes for given access patterns.

use tesseral_core::{Coords, Error, Region, Result, Selection};

use crate::{Array, select};

/// Cost of accessing a chunk in addition to its bytes, in equivalent bytes: lookup, request, decoder start.
const TOUCH: f64 = 32.0 * 1024.0;
/// Range of recommended chunk sizes in bytes.
const SMALLEST: u64 = 64 << 10;
const MAX_CHUNK: u64 = 16 << 20;
/// Maximum number of candidate shapes.
const TRIED: u64 = 300_000;

/// A chunk shape and the cost of reads with it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ChunkAdvice {
    /// Extents of a chunk.
    pub chunk_shape: Vec<u64>,
    /// Size of a whole chunk in bytes.
    pub chunk_bytes: u64,
    /// Number of chunks of the array.
    pub chunks: u64,
    /// Cost of each read.
    pub reads: Vec<ReadCost>,
    /// Total cost of all reads in bytes, including the cost of chunk accesses.
    pub cost: f64,
    /// Whether this is the current chunk shape of the array.
    pub current: bool,
}

/// Cost of one read.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct ReadCost {
    /// Size of the requested cells in bytes.
    pub wanted: u64,
    /// Size of the cells in the touched chunks in bytes.
    pub bytes: f64,
    /// Number of touched chunks.
    pub chunks: f64,
}

/// Ranks chunk shapes by the cost of given reads, best first; the current shape is last, unless it is among the best.
///
/// A read is a selection; a position or window in it represents any such position or window.
///
/// # Errors
/// `InvalidRequest` without a read, or for arrays without a grid; errors of parsing the selections.
pub fn advise(array: &Array, reads: &[String], shown: usize) -> Result<Vec<ChunkAdvice>> {
    if reads.is_empty() {
        return Err(Error::invalid("at least one access pattern is required, such as `time=0 lat=:`"));
    }
    let schema = array.schema();
    let grid = schema.grid()?.counted()?;
    let selections: Vec<Selection> =
        reads.iter().map(|read| array.select(select::parts(read))).collect::<Result<_>>()?;
    let cell = array.selected_field().cell_size().unwrap_or(32) as u64;
    let shape = grid.shape();
    let current = Coords::from_slice(grid.chunk_shape());
    let mut all: Vec<ChunkAdvice> = candidates(shape, cell)
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

/// Candidate shapes of powers of two and whole dimensions with a reasonable chunk size.
fn candidates(shape: &[u64], cell: u64) -> Vec<Coords> {
    let mut base = 2;
    // Shapes of many dimensions take more memory each.
    let tried = TRIED * 8 / (shape.len() as u64).max(8);
    let extents = |n: u64, base: u64| -> Vec<u64> {
        let mut out: Vec<u64> =
            std::iter::successors(Some(1_u64), |e| e.checked_mul(base)).take_while(|e| *e < n).collect();
        out.push(n.max(1));
        out
    };
    let count = |base: u64| shape.iter().fold(1_u64, |n, s| n.saturating_mul(extents(*s, base).len() as u64));
    while count(base) > tried && base < 1 << 32 {
        base *= 2;
    }
    let all = Region::from_shape(shape).cells().unwrap_or(u64::MAX).saturating_mul(cell);
    let mut out = vec![Coords::new()];
    for n in shape {
        let mut extents = extents(*n, base);
        // Of very many dimensions the last ones are whole.
        if extents.len() as u64 * out.len() as u64 > tried {
            extents = vec![(*n).max(1)];
        }
        out = out
            .iter()
            .flat_map(|head| extents.iter().map(|e| head.iter().copied().chain([*e]).collect()))
            .collect();
    }
    out.retain(|chunk: &Coords| {
        let bytes = chunk.iter().fold(cell, |n, e| n.saturating_mul(*e));
        (SMALLEST.min(all)..=MAX_CHUNK).contains(&bytes)
    });
    out
}

fn weigh(shape: &[u64], cell: u64, chunk: &[u64], reads: &[Selection], current: bool) -> ChunkAdvice {
    let product = |factors: &mut dyn Iterator<Item = u64>| factors.fold(1_u64, u64::saturating_mul);
    let chunk_cells = product(&mut chunk.iter().zip(shape).map(|(c, n)| (*c).min((*n).max(1))));
    let chunk_bytes = chunk_cells.saturating_mul(cell);
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
                // Average number of chunks that a window of this length touches, over all positions.
                (((count - 1) * slice.step) as f64 / *chunk as f64 + 1.0).min(whole)
            })
            .product();
        let wanted = selection.cells().unwrap_or(u64::MAX).saturating_mul(cell);
        ReadCost { wanted, bytes: chunks * chunk_bytes as f64, chunks }
    };
    let reads: Vec<ReadCost> = reads.iter().map(cost).collect();
    ChunkAdvice {
        chunk_shape: chunk.to_vec(),
        chunk_bytes,
        chunks: product(&mut shape.iter().zip(chunk).map(|(n, c)| n.div_ceil((*c).max(1)))),
        cost: reads.iter().map(|r| r.bytes + r.chunks * TOUCH).sum(),
        reads,
        current,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn best(shape: &[u64], reads: &[&[(u64, u64)]]) -> ChunkAdvice {
        let reads: Vec<Selection> = reads
            .iter()
            .map(|r| Selection::new(r.iter().map(|(a, b)| tesseral_core::Slice::new(*a, *b)), shape).unwrap())
            .collect();
        let all = candidates(shape, 4).into_iter().map(|c| weigh(shape, 4, &c, &reads, false));
        all.min_by(|a, b| a.cost.total_cmp(&b.cost)).unwrap()
    }

    #[test]
    fn recommendations_match_the_access_patterns() {
        let shape = [4096, 256, 256];
        // One map at a time: chunks of one time step.
        assert_eq!(best(&shape, &[&[(7, 8), (0, 256), (0, 256)]]).chunk_shape[0], 1);
        // A time series at a point: chunks long in time.
        assert!(best(&shape, &[&[(0, 4096), (3, 4), (9, 10)]]).chunk_shape[0] >= 1024);
        // Both: a compromise that is never as bad as either extreme for the other.
        let both: [&[(u64, u64)]; 2] = [&[(7, 8), (0, 256), (0, 256)], &[(0, 4096), (3, 4), (9, 10)]];
        let chunk = best(&shape, &both).chunk_shape;
        assert!(chunk[0] > 1 && chunk[0] < 4096 && chunk[1] > 1, "{chunk:?}");
    }

    #[test]
    fn the_number_of_candidates_is_bounded() {
        for shape in [&[64; 8][..], &[2; 32], &[1 << 40; 32]] {
            assert!(candidates(shape, 4).len() as u64 <= TRIED * 8 / (shape.len() as u64).max(8));
        }
        assert!(!candidates(&[3], 4).is_empty());
        assert!(!candidates(&[], 4).is_empty());
    }
}
