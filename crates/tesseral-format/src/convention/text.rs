//! Layouts of variable-length cells in formats with fixed-size cells only.
//!
//! | layout | stored array |
//! |---|---|
//! | `padded` | `uint8` with a trailing dimension of the length of the longest cell; shorter cells are padded with zero bytes. No cell ends with a zero byte |
//! | `packed` | `uint8` with one dimension: for n cells, n + 1 offsets as `uint64` little-endian, then the bytes of all cells |

use tesseral_core::{Error, Result, alloc};

/// Maximum ratio of the padded to the packed size.
const TOLERABLE: u64 = 4;

/// Properties of the variable-length cells of an array, known before the first write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextExtent {
    /// Length of the longest cell in bytes.
    pub longest: u64,
    /// Total size of all cells in bytes.
    pub total: u64,
    /// Whether any cell ends with a zero byte.
    pub ends_with_zero: bool,
}

impl TextExtent {
    /// Adds a cell.
    pub fn add(&mut self, cell: &[u8]) {
        self.longest = self.longest.max(cell.len() as u64);
        self.total = self.total.saturating_add(cell.len() as u64);
        self.ends_with_zero |= cell.last() == Some(&0);
    }
}

/// Layout of variable-length cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextLayout {
    Padded,
    Packed,
}

impl TextLayout {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Padded => "padded",
            Self::Packed => "packed",
        }
    }

    pub(super) fn by_name(name: &str) -> Option<Self> {
        [Self::Padded, Self::Packed].into_iter().find(|layout| layout.name() == name)
    }

    /// Selects the layout for cells.
    pub(super) fn choose(extent: TextExtent, cells: u64) -> Self {
        let padded = extent.longest.saturating_mul(cells);
        let packed = extent.total.saturating_add(cells.saturating_add(1).saturating_mul(8));
        let bound = packed.saturating_mul(TOLERABLE);
        if extent.ends_with_zero || padded > bound { Self::Packed } else { Self::Padded }
    }
}

/// Pads cells to `width` bytes.
pub(super) fn pad(offsets: &[u64], data: &[u8], width: usize) -> Result<Vec<u8>> {
    let len = offsets.len().checked_mul(width).ok_or_else(|| Error::limit("text cells", u64::MAX, 0))?;
    let mut out = alloc::zeroed::<u8>("text cells", len)?;
    for (cell, place) in cells(offsets, data).zip(out.chunks_mut(width.max(1))) {
        let cell = cell.filter(|cell| cell.len() <= width && cell.last() != Some(&0));
        let cell = cell.ok_or_else(|| Error::invalid("a text cell exceeds the declared length"))?;
        place[..cell.len()].copy_from_slice(cell);
    }
    Ok(out)
}

/// Iterates over the cells between end offsets.
fn cells<'a>(offsets: &'a [u64], data: &'a [u8]) -> impl Iterator<Item = Option<&'a [u8]>> {
    let mut start = 0;
    offsets.iter().map(move |&end| {
        let end = usize::try_from(end).ok()?;
        let cell = data.get(start..end);
        start = end;
        cell
    })
}

/// Packs offsets and bytes of cells into `len` bytes.
pub(super) fn pack(offsets: &[u64], data: &[u8], len: u64) -> Result<Vec<u8>> {
    let table = (offsets.len() as u64 + 1).saturating_mul(8);
    if table.saturating_add(data.len() as u64) != len
        || offsets.last().copied().unwrap_or(0) != data.len() as u64
    {
        return Err(Error::invalid("text cells do not match the declared size"));
    }
    let mut out = alloc::with_capacity("text cells", usize::try_from(len).unwrap_or(usize::MAX))?;
    out.extend_from_slice(&0_u64.to_le_bytes());
    offsets.iter().for_each(|end| out.extend_from_slice(&end.to_le_bytes()));
    out.extend_from_slice(data);
    Ok(out)
}

/// Splits padded cells.
pub(super) fn unpad(stored: &[u8], width: usize, offsets: &mut Vec<u64>, data: &mut Vec<u8>) -> Result<()> {
    alloc::reserve("text cells", offsets, stored.len() / width.max(1))?;
    for cell in stored.chunks(width.max(1)) {
        let len = cell.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        alloc::reserve("text cells", data, len)?;
        data.extend_from_slice(&cell[..len]);
        offsets.push(data.len() as u64);
    }
    Ok(())
}

/// Splits `cells` packed cells; `None` if the bytes are invalid.
pub(super) fn unpack(
    stored: &[u8],
    cells: u64,
    offsets: &mut Vec<u64>,
    data: &mut Vec<u8>,
) -> Option<Result<()>> {
    let table = usize::try_from(cells.checked_add(1)?.checked_mul(8)?).ok()?;
    let (table, bytes) = stored.split_at_checked(table)?;
    let mut ends = table.chunks_exact(8).map(|word| {
        let mut le = [0; 8];
        le.copy_from_slice(word);
        u64::from_le_bytes(le)
    });
    let mut last = ends.next().filter(|first| *first == 0)?;
    let base = data.len() as u64;
    if let Err(error) = alloc::reserve("text cells", offsets, ends.len())
        .and_then(|()| alloc::reserve("text cells", data, bytes.len()))
    {
        return Some(Err(error));
    }
    for end in ends {
        if end < last || end > bytes.len() as u64 {
            return None;
        }
        last = end;
        offsets.push(base + end);
    }
    (last == bytes.len() as u64).then(|| {
        data.extend_from_slice(bytes);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CELLS: [&[u8]; 5] = [b"03772", b"", b"\xc3\x85ngstr\xc3\xb6m", b"a", b""];

    fn column(cells: &[&[u8]]) -> (Vec<u64>, Vec<u8>) {
        let mut data = Vec::new();
        let offsets = cells
            .iter()
            .map(|cell| {
                data.extend_from_slice(cell);
                data.len() as u64
            })
            .collect();
        (offsets, data)
    }

    #[test]
    fn cells_round_trip() {
        let (offsets, data) = column(&CELLS);
        let padded = pad(&offsets, &data, 11).unwrap();
        let (mut o, mut d) = (Vec::new(), Vec::new());
        unpad(&padded, 11, &mut o, &mut d).unwrap();
        assert_eq!((&o, &d), (&offsets, &data));
        let with_zero = column(&[b"a\0", b"", b"\0"]);
        assert!(pad(&with_zero.0, &with_zero.1, 4).is_err());
        let packed = pack(&with_zero.0, &with_zero.1, 32 + 3).unwrap();
        let (mut o, mut d) = (Vec::new(), Vec::new());
        unpack(&packed, 3, &mut o, &mut d).unwrap().unwrap();
        assert_eq!((o, d), with_zero);
    }

    #[test]
    fn damaged_offsets_are_detected() {
        let (offsets, data) = column(&CELLS);
        let packed = pack(&offsets, &data, 48 + data.len() as u64).unwrap();
        let unpacks = |bytes: &[u8], cells| unpack(bytes, cells, &mut Vec::new(), &mut Vec::new());
        assert!(unpacks(&packed, 5).is_some());
        for cells in [0, 4, 6, u64::MAX / 8, u64::MAX] {
            assert!(unpacks(&packed, cells).is_none(), "{cells}");
        }
        for cut in 0..packed.len() {
            assert!(unpacks(&packed[..cut], 5).is_none(), "{cut}");
        }
        let mut swapped = packed.clone();
        swapped[8] = 200;
        assert!(unpacks(&swapped, 5).is_none());
    }

    #[test]
    fn one_long_cell_selects_the_packed_layout() {
        let mut extent = TextExtent::default();
        (0..1000).for_each(|_| extent.add(b"ab"));
        assert_eq!(TextLayout::choose(extent, 1000), TextLayout::Padded);
        extent.add(&[b'x'; 4096]);
        assert_eq!(TextLayout::choose(extent, 1001), TextLayout::Packed);
    }
}
