//! Encoding of one chunk's cells to filtered tiles.

use smallvec::SmallVec;
use tesseral_codec::filter::FilterContext;
use tesseral_core::{ChunkStats, Error, Result, alloc};
use tesseral_format::{Column, ColumnData, EncodedPart, Role, Scratch};

use super::stats::{self, KeptStats};
use crate::model::FieldChains;
use crate::padded_tile::PaddedTile;
use crate::wire::datatype::{Datatype, VAR};

/// A column to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnTarget<'a> {
    pub column: Column,
    pub datatype: Datatype,
    pub values: u32,
    pub chains: &'a FieldChains,
}

impl ColumnTarget<'_> {
    /// Statistics to compute.
    pub(crate) fn kept(&self) -> KeptStats {
        match self.column {
            Column::Dim(_) => KeptStats::of_dim(self.datatype, self.values == VAR),
            _ => KeptStats::of_attribute(self.datatype, self.values),
        }
    }
}

impl PaddedTile {
    /// Places fixed-size cells in a padded tile; padding is zero.
    fn pad(&self, cells: &[u8], size: usize) -> Result<Vec<u8>> {
        let bytes = self.tile_cells()?.checked_mul(size);
        let bytes = bytes.ok_or_else(|| Error::limit("a tile", u64::MAX, usize::MAX as u64))?;
        let mut tile: Vec<u8> = alloc::zeroed("a tile", bytes)?;
        self.runs(|to, from, len| {
            tile[to * size..(to + len) * size].copy_from_slice(&cells[from * size..(from + len) * size]);
        });
        Ok(tile)
    }

    /// Places variable-length cells in a padded tile; padding is one zero element.
    fn pad_var(&self, ends: &[u64], data: &[u8], element: usize) -> Result<(Vec<u64>, Vec<u8>)> {
        const PADDING: usize = usize::MAX;
        let mut sources = alloc::filled("a tile", PADDING, self.tile_cells()?)?;
        self.runs(|to, from, len| (0..len).for_each(|i| sources[to + i] = from + i));
        let mut out_ends = Vec::with_capacity(sources.len());
        let mut out = Vec::with_capacity(data.len() + sources.len());
        for source in sources {
            if source == PADDING {
                out.resize(out.len() + element, 0);
            } else {
                out.extend_from_slice(cell_of(ends, data, source));
            }
            out_ends.push(out.len() as u64);
        }
        Ok((out_ends, out))
    }
}

/// Bytes of one variable-length cell.
pub(crate) fn cell_of<'a>(ends: &[u64], data: &'a [u8], i: usize) -> &'a [u8] {
    let start = if i == 0 { 0 } else { ends[i - 1] };
    let range = usize::try_from(start).unwrap_or(0)..usize::try_from(ends[i]).unwrap_or(0);
    data.get(range).unwrap_or_default()
}

/// Checks that a column has `cells` cells of the right type.
pub(crate) fn check(target: &ColumnTarget<'_>, data: &ColumnData<'_>, cells: u64) -> Result<()> {
    let FieldChains { cell, var, nullable, .. } = *target.chains;
    let (right, validity) = match *data {
        ColumnData::Fixed { values, validity } => {
            (!var && cells.checked_mul(cell as u64) == Some(values.len() as u64), validity)
        }
        ColumnData::Var { offsets, data, validity } => {
            let rising = offsets.is_sorted() && offsets.last().copied().unwrap_or(0) == data.len() as u64;
            let whole = offsets.iter().all(|end| end % cell as u64 == 0);
            (var && rising && whole && offsets.len() as u64 == cells, validity)
        }
    };
    let valid = validity.is_none_or(|v| v.len() as u64 == cells && nullable);
    if right && valid {
        return Ok(());
    }
    Err(Error::invalid(format!("column {:?} does not match {cells} cells of the array", target.column)))
}

/// Filters one column of a tile. Without `frame` the tile has no padding.
pub(crate) fn encode<'a>(
    target: &ColumnTarget<'_>,
    data: &ColumnData<'_>,
    frame: Option<&PaddedTile>,
    rules: &FilterContext<'_>,
    scratch: &mut Scratch,
    parts: &mut SmallVec<[EncodedPart<'a>; 1]>,
) -> Result<ChunkStats> {
    let chains = target.chains;
    let mut out = scratch.take_buffer();
    let contexts = &mut scratch.contexts;
    let padded = frame.filter(|frame| !frame.is_full());
    let mut push = |role: Role, bytes: Vec<u8>, raw_len: usize| {
        let bytes = bytes.into();
        parts.push(EncodedPart { column: target.column, role, bytes, raw_len: raw_len as u64, codec: 0 });
    };
    let (stats, cells, validity) = match *data {
        ColumnData::Fixed { values, validity } => {
            let stats = stats::fixed(target.datatype, target.values, target.kept(), values, validity)?;
            chains.values.check_cells(values)?;
            let owned = padded.map(|frame| frame.pad(values, chains.cell)).transpose()?;
            let tile = owned.as_deref().unwrap_or(values);
            chains.values.encode(tile, &mut out, rules, contexts)?;
            push(Role::Values, out, tile.len());
            (stats, values.len() / chains.cell.max(1), validity)
        }
        ColumnData::Var { offsets, data, validity } => {
            let stats = stats::var(target.datatype, offsets, data, validity)?;
            let owned = padded.map(|frame| frame.pad_var(offsets, data, chains.cell)).transpose()?;
            let (ends, bytes) = owned.as_ref().map_or((offsets, data), |(e, d)| (e.as_slice(), d.as_slice()));
            if chains.values.holds_strings() {
                chains.values.encode_strings(ends, bytes, &mut out, rules, contexts)?;
                // The strings include their offsets; the offsets file gets a tile without chunks.
                push(Role::Offsets, 0_u64.to_le_bytes().to_vec(), 0);
            } else {
                chains.values.encode_var(ends, bytes, &mut out, rules, contexts)?;
                let mut starts = Vec::with_capacity(ends.len() * 8);
                let first = (!ends.is_empty()).then_some(0);
                let rest = ends.iter().take(ends.len().saturating_sub(1)).copied();
                first.into_iter().chain(rest).for_each(|s| starts.extend_from_slice(&s.to_le_bytes()));
                let mut filtered = Vec::new();
                chains.offsets.encode(&starts, &mut filtered, rules, contexts)?;
                push(Role::Offsets, filtered, starts.len());
            }
            push(Role::Values, out, bytes.len());
            (stats, offsets.len(), validity)
        }
    };
    if chains.nullable {
        let valid = validity.map_or_else(|| vec![1; cells], <[u8]>::to_vec);
        let tile = padded.map(|frame| frame.pad(&valid, 1)).transpose()?.unwrap_or(valid);
        let mut filtered = Vec::new();
        chains.validity.encode(&tile, &mut filtered, rules, contexts)?;
        push(Role::Validity, filtered, tile.len());
    }
    Ok(stats)
}

#[cfg(test)]
mod tests {
    use tesseral_core::{Order, Region};

    use super::*;

    #[test]
    fn padding_surrounds_the_cells() {
        let tile = Region::new([(4, 8), (0, 3)]);
        let cells = Region::new([(5, 7), (1, 3)]);
        let frame = PaddedTile::new(tile.clone(), cells.clone(), Order::RowMajor);
        assert_eq!(frame.pad(&[1, 2, 3, 4], 1).unwrap(), [0, 0, 0, 0, 1, 2, 0, 3, 4, 0, 0, 0]);
        let frame = PaddedTile::new(tile, cells, Order::ColMajor);
        assert_eq!(frame.pad(&[1, 3, 2, 4], 1).unwrap(), [0, 0, 0, 0, 0, 1, 3, 0, 0, 2, 4, 0]);
        let (ends, data) = frame.pad_var(&[1, 1, 3, 4], b"abcd", 1).unwrap();
        assert_eq!(cell_of(&ends, &data, 5), b"a");
        assert_eq!(cell_of(&ends, &data, 9), b"bc");
        assert_eq!((ends.len(), cell_of(&ends, &data, 0)), (12, &[0][..]));
    }
}
