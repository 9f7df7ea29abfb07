//! Variable-length cells: `u32` number of cells, then for each `u32` length and bytes.

use tesseral_core::{DType, Error, Result, alloc};

fn fault(detail: impl Into<String>) -> Error {
    Error::codec("vlen", detail.into())
}

/// Appends `cells` cells; offsets are the ends of the cells in `data`.
///
/// # Errors
/// `Codec` for damaged input or text that is not UTF-8.
pub(crate) fn decode(
    src: &[u8],
    dtype: DType,
    cells: u64,
    offsets: &mut Vec<u64>,
    data: &mut Vec<u8>,
) -> Result<()> {
    let (count, mut rest) = src.split_first_chunk::<4>().ok_or_else(|| fault("truncated number of cells"))?;
    let count = u64::from(u32::from_le_bytes(*count));
    // Every cell takes at least the bytes of its length.
    if count != cells || rest.len() as u64 / 4 < count {
        return Err(fault(format!("expected {cells} cells, {} bytes declare {count}", src.len())));
    }
    alloc::reserve("text cells", offsets, rest.len() / 4)?;
    alloc::reserve("text cells", data, rest.len())?;
    for number in 0..count {
        let (len, after) = rest
            .split_first_chunk::<4>()
            .ok_or_else(|| fault(format!("truncated length of cell {number}")))?;
        let len = usize::try_from(u32::from_le_bytes(*len)).map_err(|_| fault("cell too long"))?;
        let (cell, after) = after
            .split_at_checked(len)
            .ok_or_else(|| fault(format!("cell {number} of {len} bytes is truncated")))?;
        if dtype == DType::Utf8 && std::str::from_utf8(cell).is_err() {
            return Err(fault(format!("cell {number} is not UTF-8")));
        }
        data.extend_from_slice(cell);
        offsets.push(data.len() as u64);
        rest = after;
    }
    if !rest.is_empty() {
        return Err(fault(format!("{} bytes after the last cell", rest.len())));
    }
    Ok(())
}

/// Appends the encoded cells to `out`.
///
/// # Errors
/// `InvalidRequest` for offsets that do not match the data; `Limit` for more than 2^32 cells or bytes of a cell.
pub(crate) fn encode<'a>(cells: impl ExactSizeIterator<Item = &'a [u8]>, out: &mut Vec<u8>) -> Result<()> {
    let most = u64::from(u32::MAX);
    let count = u32::try_from(cells.len())
        .map_err(|_| Error::limit("the cells of a chunk", cells.len() as u64, most))?;
    out.extend(count.to_le_bytes());
    for cell in cells {
        let len = u32::try_from(cell.len())
            .map_err(|_| Error::limit("the bytes of a cell", cell.len() as u64, most))?;
        out.extend(len.to_le_bytes());
        out.extend_from_slice(cell);
    }
    Ok(())
}

/// Appends fixed-length UTF-32 text, little-endian and padded with NUL.
///
/// # Errors
/// `Codec` for numbers that are not characters.
pub(crate) fn decode_utf32(
    src: &[u8],
    size: usize,
    offsets: &mut Vec<u64>,
    data: &mut Vec<u8>,
) -> Result<()> {
    alloc::reserve("text cells", offsets, src.len() / size.max(1))?;
    for (number, cell) in src.chunks_exact(size.max(4)).enumerate() {
        let chars = cell.as_chunks::<4>().0;
        let end = chars.iter().rposition(|c| *c != [0; 4]).map_or(0, |last| last + 1);
        for code in &chars[..end] {
            let code = u32::from_le_bytes(*code);
            let char = char::from_u32(code).ok_or_else(|| {
                Error::codec("utf32", format!("{code:#x} in cell {number} is not a character"))
            })?;
            data.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        }
        offsets.push(data.len() as u64);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cells_round_trip_and_truncations_are_rejected() {
        let cells = [&b"ab"[..], b"", "é".as_bytes()];
        let mut bytes = Vec::new();
        encode(cells.into_iter(), &mut bytes).unwrap();
        let (mut offsets, mut data) = (Vec::new(), Vec::new());
        decode(&bytes, DType::Utf8, 3, &mut offsets, &mut data).unwrap();
        assert_eq!((offsets, data), (vec![2, 2, 4], "abé".as_bytes().to_vec()));
        for len in 0..bytes.len() {
            let (mut offsets, mut data) = (Vec::new(), Vec::new());
            assert!(decode(&bytes[..len], DType::Utf8, 3, &mut offsets, &mut data).is_err(), "{len}");
        }
        let (mut offsets, mut data) = (Vec::new(), Vec::new());
        assert!(decode(&bytes, DType::Utf8, 2, &mut offsets, &mut data).is_err());
        assert!(decode(&[1, 0, 0, 0, 1, 0, 0, 0, 0xff], DType::Utf8, 1, &mut offsets, &mut data).is_err());
        assert!(decode(&[0xff; 12], DType::Bytes, u64::from(u32::MAX), &mut offsets, &mut data).is_err());
    }

    #[test]
    fn utf32_loses_only_padding() {
        let words = |text: &str| text.chars().flat_map(|c| (c as u32).to_le_bytes()).collect::<Vec<u8>>();
        let (mut offsets, mut data) = (Vec::new(), Vec::new());
        decode_utf32(&words("é\0b\0\0\0x\0\0"), 12, &mut offsets, &mut data).unwrap();
        assert_eq!((offsets, data), (vec![4, 4, 5], "é\0bx".as_bytes().to_vec()));
        assert!(decode_utf32(&[0xff; 4], 4, &mut Vec::new(), &mut Vec::new()).is_err());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64), cells in 0_u64..5) {
            let (mut offsets, mut data) = (Vec::new(), Vec::new());
            let _ = decode(&bytes, DType::Utf8, cells, &mut offsets, &mut data);
            let _ = decode_utf32(&bytes, 8, &mut offsets, &mut data);
        }
    }
}
