//! R-trees: one box per tile at the leaves, with a fanout of ten.
//!
//! ```text
//! u32 fanout │ u32 levels │ per level, root first: u64 count │ boxes: one range per dimension
//! ```
//! Before version 5, `u32 dimensions` precedes the fanout and `u8 datatype` follows it.
//!
//! Only the leaves are retained, because plans use their boxes.

use std::cmp::Ordering;

use tesseral_core::{Cursor, Result};

use super::datatype::compare;
use super::primitive::put_u64;
use super::schema::{StoredDimension, StoredRange, put_ranges, ranges};

/// Parses the boxes of all tiles.
///
/// # Errors
/// `Corrupt`.
pub fn leaves(
    object: &str,
    bytes: &[u8],
    dims: &[StoredDimension],
    version: u32,
) -> Result<Vec<Vec<StoredRange>>> {
    let cursor = &mut Cursor::new(object, bytes);
    if version < 5 {
        let _dims = cursor.u32("the R-tree's dimensions")?;
    }
    let _fanout = cursor.u32("the R-tree's fanout")?;
    if version < 5 {
        let _datatype = cursor.u8("the R-tree's datatype")?;
    }
    let levels = cursor.u32("the R-tree's levels")?;
    if levels > 64 {
        return Err(cursor.corrupt("the R-tree", format!("{levels} levels")));
    }
    let smallest = dims.iter().map(|d| if d.var { 16 } else { 2 * d.datatype.size() }).sum();
    let mut leaves = Vec::new();
    for _ in 0..levels {
        let count = cursor.u64("an R-tree level")?;
        let count = cursor.count(count, smallest, "an R-tree level")?;
        leaves = (0..count).map(|_| ranges(cursor, dims, "an R-tree box")).collect::<Result<_>>()?;
    }
    cursor.finish("the R-tree")?;
    Ok(leaves)
}

/// Fanout of new trees.
const FANOUT: usize = 10;

/// Encodes the tree over these boxes; empty for dense fragments.
pub fn write(leaves: &[Vec<StoredRange>], dims: &[StoredDimension], out: &mut Vec<u8>) {
    let mut levels: Vec<Vec<Vec<StoredRange>>> = Vec::new();
    if !leaves.is_empty() {
        levels.push(leaves.to_vec());
    }
    while let Some(top) = levels.last().filter(|level| level.len() > 1) {
        let above = top.chunks(FANOUT).map(|boxes| union(boxes, dims)).collect();
        levels.push(above);
    }
    out.extend_from_slice(&10_u32.to_le_bytes());
    // A tree over boxes that fit in memory has at most 20 levels.
    out.extend_from_slice(&u32::try_from(levels.len()).unwrap_or(u32::MAX).to_le_bytes());
    for level in levels.iter().rev() {
        put_u64(level.len() as u64, out);
        level.iter().for_each(|ranges| put_ranges(ranges, dims, out));
    }
}

/// Returns the smallest box around boxes.
pub fn union(boxes: &[Vec<StoredRange>], dims: &[StoredDimension]) -> Vec<StoredRange> {
    let enclosing_range = |(d, dim): (usize, &StoredDimension)| {
        let mut of_dim = boxes.iter().filter_map(|b| b.get(d));
        let mut around = of_dim.next().cloned().unwrap_or_default();
        for (low, high) in of_dim {
            if compare(dim.datatype, low, &around.0) == Ordering::Less {
                around.0.clone_from(low);
            }
            if compare(dim.datatype, high, &around.1) == Ordering::Greater {
                around.1.clone_from(high);
            }
        }
        around
    };
    dims.iter().enumerate().map(enclosing_range).collect()
}
