//! R-trees: one box per tile at the leaves, boxes of ten below one above.
//!
//! ```text
//! u32 fanout │ u32 levels │ per level, root first: u64 count │ boxes: one range per dimension
//! ```
//! Only the leaves are kept: their boxes are what plans are made from.

use tesseral_core::Result;

use super::cursor::Cursor;
use super::schema::{Dimension, Range, ranges};

/// Reads the boxes of all tiles.
///
/// # Errors
/// `Corrupt`.
pub fn leaves(object: &str, bytes: &[u8], dims: &[Dimension]) -> Result<Vec<Vec<Range>>> {
    let cursor = &mut Cursor::new(object, bytes);
    let _fanout = cursor.u32("the R-tree's fanout")?;
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
