//! Restores the order of axes that the codec `transpose` exchanged.

use tesseral_core::{Error, Result};

/// Copies elements of `size` bytes to a row-major chunk of `shape`; axis `i` of the source is axis `order[i]` of the chunk.
///
/// # Errors
/// `Codec` when the lengths do not match the shape.
pub(crate) fn decode_into(
    src: &[u8],
    order: &[usize],
    shape: &[u64],
    size: usize,
    dst: &mut [u8],
) -> Result<()> {
    let mismatch =
        || Error::codec("transpose", format!("{} bytes do not match a chunk of {shape:?}", src.len()));
    let shape: Option<Vec<usize>> = shape.iter().map(|n| usize::try_from(*n).ok()).collect();
    let shape = shape.filter(|shape| shape.len() == order.len()).ok_or_else(mismatch)?;
    let bytes = shape.iter().try_fold(size, |n, extent| n.checked_mul(*extent));
    if bytes != Some(src.len()) || src.len() != dst.len() || size == 0 {
        return Err(mismatch());
    }
    // Distance in the source between neighbors along each axis of the chunk.
    let mut strides: Vec<usize> = shape.iter().map(|_| 0).collect();
    let mut stride = size;
    for axis in order.iter().rev() {
        strides[*axis] = stride;
        stride *= shape[*axis];
    }
    let (Some(inner), Some(step)) = (shape.last(), strides.last()) else {
        dst.copy_from_slice(src);
        return Ok(());
    };
    if dst.is_empty() {
        return Ok(());
    }
    let mut at: Vec<usize> = shape.iter().map(|_| 0).collect();
    let mut start = 0;
    for row in dst.chunks_exact_mut(inner * size) {
        for (i, cell) in row.chunks_exact_mut(size).enumerate() {
            let from = start + i * step;
            cell.copy_from_slice(&src[from..from + size]);
        }
        for axis in (0..shape.len() - 1).rev() {
            at[axis] += 1;
            start += strides[axis];
            if at[axis] < shape[axis] {
                break;
            }
            start -= strides[axis] * shape[axis];
            at[axis] = 0;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agrees_with_the_definition() {
        let shape = [2_u64, 3, 4];
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0], [2, 0, 1]] {
            let cells: Vec<u8> = (0..48).collect();
            let mut encoded = Vec::new();
            let extents = order.map(|axis| shape[axis]);
            for i in 0..extents[0] {
                for j in 0..extents[1] {
                    for k in 0..extents[2] {
                        let mut at = [0; 3];
                        (at[order[0]], at[order[1]], at[order[2]]) = (i, j, k);
                        let cell = ((at[0] * 3 + at[1]) * 4 + at[2]) as usize * 2;
                        encoded.extend(&cells[cell..cell + 2]);
                    }
                }
            }
            let mut out = vec![0; 48];
            decode_into(&encoded, &order, &shape, 2, &mut out).unwrap();
            assert_eq!(out, cells, "{order:?}");
            assert!(decode_into(&encoded[1..], &order, &shape, 2, &mut out).is_err());
        }
    }
}
