//! Decoding of stored bytes into cells.

use std::ops::Range;

use bytes::Bytes;
use tesseral_codec::Contexts;
use tesseral_codec::filter::{Chain, FilterContext};
use tesseral_core::{Error, Result, alloc};
use tesseral_format::{Column, ColumnMut, PlannedChunk, Role, Scratch};
use tesseral_store::StoreExt;

use crate::array::TileDbArray;
use crate::fragment::Fragment;
use crate::model::FieldChains;
use crate::padded_tile::PaddedTile;
use crate::plan::PLAIN_HEADER;
use crate::wire::footer::FooterList;
use crate::wire::primitive::le64;
use crate::write::cell_of;

/// Label of allocations in limit errors.
const TILE: &str = "a decoded tile";
/// Marker of a cell that no stored delete removed.
const KEPT: u64 = tesseral_format::KEPT;
/// Marker of a cell that was written outside the requested time range.
const UNWRITTEN: u64 = tesseral_format::UNWRITTEN;

/// The bytes of one tile's parts, by role.
struct TileParts<'a> {
    array: &'a TileDbArray,
    chunk: &'a PlannedChunk,
    column: Column,
    bytes: &'a [Bytes],
    /// The requested range of cells.
    cells: Range<u64>,
}

impl TileParts<'_> {
    fn find(&self, role: Role) -> Result<(&[u8], &tesseral_format::Part)> {
        let mut parts = self.chunk.column_parts(self.column).map(|(_, part)| part).zip(self.bytes);
        let found = parts.find(|(part, _)| part.role == role).map(|(part, bytes)| (&bytes[..], part));
        found.ok_or_else(|| Error::internal(format!("{:?}: the chunk has no {role:?} part", self.column)))
    }

    /// Creates a `Corrupt` error with the file and offset of the tile.
    fn located(&self, part: &tesseral_format::Part, error: Error) -> Error {
        if !error.is_damage() {
            return error;
        }
        let object = self.array.fragments.object(part.object);
        Error::corrupt("a tile", self.array.reader.store.describe(object), part.offset, error.to_string())
    }

    fn fixed(
        &self,
        role: Role,
        chain: &Chain,
        out: &mut [u8],
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let (bytes, part) = self.find(role)?;
        chain.decode_into(bytes, out, rules, contexts).map_err(|e| self.located(part, e))
    }

    /// Copies a range of cells of `size` bytes.
    fn run(
        &self,
        role: Role,
        chain: &Chain,
        size: usize,
        out: &mut [u8],
        rules: &FilterContext<'_>,
        contexts: &mut Contexts,
    ) -> Result<()> {
        let (bytes, part) = self.find(role)?;
        let place = |n: u64| usize::try_from(n).ok().and_then(|n| n.checked_mul(size));
        let expected = place(self.cells.end.saturating_sub(self.cells.start));
        let (Some(len), Some(start), true) =
            (place(self.chunk.cells), place(self.cells.start), expected == Some(out.len()))
        else {
            return Err(Error::internal(format!("buffer of {} bytes is too small for the cells", out.len())));
        };
        let decoded = match self.base(part, chain)? {
            Some(base) => chain.decode_chunks(bytes, base, len, start, out, rules, contexts),
            None => chain.decode_run(bytes, len, start, out, rules, contexts),
        };
        decoded.map_err(|e| self.located(part, e))
    }

    /// Returns the first unfiltered byte in a part that was [narrowed](tesseral_format::ArraySource::narrow).
    fn base(&self, part: &tesseral_format::Part, chain: &Chain) -> Result<Option<usize>> {
        let whole = self.array.whole_part(self.chunk.id, part)?;
        // The plan skips the header of an unfiltered tile.
        let plain = (part.offset, part.len)
            == (whole.offset.saturating_add(PLAIN_HEADER), whole.len.saturating_sub(PLAIN_HEADER));
        if plain || (whole.offset, whole.len) == (part.offset, part.len) || chain.holds_strings() {
            return Ok(None);
        }
        let table = self.array.chunk_table(self.chunk.id, &whole)?;
        let base = table.base(part.offset).and_then(|base| usize::try_from(base).ok());
        base.map(Some).ok_or_else(|| Error::internal("a narrowed part does not begin at a chunk"))
    }
}

/// Decodes one column of a tile.
pub(crate) fn decode(
    array: &TileDbArray,
    chunk: &PlannedChunk,
    column: Column,
    parts: &[Bytes],
    cells: Range<u64>,
    out: ColumnMut<'_>,
    scratch: &mut Scratch,
) -> Result<()> {
    if let Some((fragment, run)) = array.run(chunk.id) {
        return crate::scatter::decode(array, fragment, run, chunk, column, parts, &cells, out, scratch);
    }
    let (fragment, tile) = array.locate(chunk.id)?;
    if let Some(frame) = array.padded_tile(fragment, tile) {
        return decode_padded(array, chunk, column, parts, &cells, out, &frame, scratch);
    }
    decode_tile(array, fragment, tile, chunk, column, parts, cells, out, scratch)
}

/// Decodes a tile that begins before the array: decodes the whole tile and drops the cells before the array.
#[allow(clippy::too_many_arguments)]
fn decode_padded(
    array: &TileDbArray,
    chunk: &PlannedChunk,
    column: Column,
    parts: &[Bytes],
    cells: &Range<u64>,
    out: ColumnMut<'_>,
    frame: &PaddedTile,
    scratch: &mut Scratch,
) -> Result<()> {
    if *cells != (0..chunk.cells) {
        return Err(Error::internal("a tile that begins before the array does not support random access"));
    }
    let (fragment, tile) = array.locate(chunk.id)?;
    let stored = frame.tile_cells()?;
    let whole = PlannedChunk { cells: stored as u64, tile: None, ..chunk.clone() };
    let mut decode = |out: ColumnMut<'_>| {
        decode_tile(array, fragment, tile, &whole, column, parts, 0..whole.cells, out, scratch)
    };
    let keep = |from: &[u8], size: usize, to: &mut [u8]| {
        frame.runs(|at, cell, len| {
            to[cell * size..(cell + len) * size].copy_from_slice(&from[at * size..(at + len) * size]);
        });
    };
    match out {
        ColumnMut::Fixed { values, validity } => {
            let count = usize::try_from(chunk.cells).unwrap_or(usize::MAX);
            let size = values.len().checked_div(count).unwrap_or(0);
            if size.checked_mul(count) != Some(values.len()) {
                return Err(Error::internal(format!(
                    "buffer of {} bytes is too small for the cells",
                    values.len()
                )));
            }
            let bytes = size.saturating_mul(stored);
            array
                .reader
                .limits
                .check_decoded(bytes as u64, parts.iter().map(|part| part.len() as u64).sum())?;
            let mut all = alloc::zeroed(TILE, bytes)?;
            let mut valid = validity.as_ref().map(|_| alloc::zeroed(TILE, stored)).transpose()?;
            decode(ColumnMut::Fixed { values: &mut all, validity: valid.as_deref_mut() })?;
            keep(&all, size, values);
            if let (Some(valid), Some(validity)) = (&valid, validity) {
                keep(valid, 1, validity);
            }
        }
        ColumnMut::Var { offsets, data, validity } => {
            let (mut ends, mut all) = (Vec::new(), Vec::new());
            let mut valid = validity.as_ref().map(|_| alloc::zeroed(TILE, stored)).transpose()?;
            decode(ColumnMut::Var { offsets: &mut ends, data: &mut all, validity: valid.as_deref_mut() })?;
            frame.runs(|at, _, len| {
                for cell in at..at + len {
                    data.extend_from_slice(cell_of(&ends, &all, cell));
                    offsets.push(data.len() as u64);
                }
            });
            if let (Some(valid), Some(validity)) = (&valid, validity) {
                keep(valid, 1, validity);
            }
        }
    }
    Ok(())
}

/// Decodes one column of a tile without clipping.
#[allow(clippy::too_many_arguments)]
pub(crate) fn decode_tile(
    array: &TileDbArray,
    fragment: &Fragment,
    tile: u64,
    chunk: &PlannedChunk,
    column: Column,
    parts: &[Bytes],
    cells: Range<u64>,
    out: ColumnMut<'_>,
    scratch: &mut Scratch,
) -> Result<()> {
    let whole = cells == (0..chunk.cells);
    let parts = TileParts { array, chunk, column, bytes: parts, cells: cells.clone() };
    match column {
        Column::Field(field) => {
            let Some(slot) = array.slot(fragment, field)? else {
                return fill(array, field, cells.end.saturating_sub(cells.start), out);
            };
            let chains =
                fragment.chains(slot).ok_or_else(|| Error::internal("the field has no filter chains"))?;
            if let Some(plain) = plain(&parts, chains) {
                return copy(plain, chains.cell, &cells, out);
            }
            decode_field(&parts, fragment, chains, slot, tile, out, scratch)
        }
        Column::Dim(d) => {
            let slot = fragment.dim_slot(usize::from(d));
            let chains =
                fragment.chains(slot).ok_or_else(|| Error::internal("the dimension has no filter chains"))?;
            if chains.zipped {
                return decode_zipped(&parts, fragment, chains, usize::from(d), out, scratch);
            }
            if let Some(plain) = plain(&parts, chains) {
                return copy(plain, chains.cell, &cells, out);
            }
            decode_field(&parts, fragment, chains, slot, tile, out, scratch)
        }
        Column::Timestamp | Column::DeletedBy if whole => {
            let ColumnMut::Fixed { values, .. } = out else {
                return Err(Error::internal("timestamps are fixed-size"));
            };
            times(&parts, fragment, values, scratch)
        }
        _ => Err(Error::internal("this TileDB tile does not support random access")),
    }
}

/// Returns the cells if the part consists of nothing else: no filter, one chunk, without its header. A tile with its header is
/// longer.
fn plain<'a>(parts: &TileParts<'a>, chains: &FieldChains) -> Option<&'a [u8]> {
    let [bytes] = parts.bytes else { return None };
    let fits = parts.chunk.cells.checked_mul(chains.cell as u64) == Some(bytes.len() as u64);
    (fits && chains.values.is_plain() && !chains.var && !chains.nullable).then_some(&bytes[..])
}

fn copy(plain: &[u8], cell: usize, cells: &Range<u64>, out: ColumnMut<'_>) -> Result<()> {
    let ColumnMut::Fixed { values, validity: None } = out else {
        return Err(Error::internal("expected a fixed-size column without validity"));
    };
    let at = |n: u64| usize::try_from(n).ok().and_then(|n| n.checked_mul(cell));
    let run = at(cells.start).zip(at(cells.end)).and_then(|(start, end)| plain.get(start..end));
    let run = run.filter(|run| run.len() == values.len());
    values.copy_from_slice(run.ok_or_else(|| Error::internal("the range of cells is outside the chunk"))?);
    Ok(())
}

/// Fills a field that the fragment does not have, because it was added later.
fn fill(array: &TileDbArray, field: u16, cells: u64, out: ColumnMut<'_>) -> Result<()> {
    let attribute = array.current.wire.attributes.get(usize::from(field));
    let attribute =
        attribute.ok_or_else(|| Error::invalid(format!("field index {field} is out of bounds")))?;
    let cell = &attribute.fill;
    let validity = match out {
        ColumnMut::Fixed { values, validity } => {
            if cell.is_empty() || !values.len().is_multiple_of(cell.len()) {
                return Err(Error::internal("the size of the buffer is not a multiple of the cell size"));
            }
            values.chunks_exact_mut(cell.len()).for_each(|to| to.copy_from_slice(cell));
            validity
        }
        ColumnMut::Var { offsets, data, validity } => {
            let bytes = cells.saturating_mul(cell.len() as u64);
            array.reader.limits.check_decoded(bytes, 0)?;
            for _ in 0..cells {
                data.extend_from_slice(cell);
                offsets.push(data.len() as u64);
            }
            validity
        }
    };
    if let Some(validity) = validity {
        validity.fill(u8::from(attribute.fill_valid));
    }
    Ok(())
}

fn decode_field(
    parts: &TileParts<'_>,
    fragment: &Fragment,
    chains: &FieldChains,
    slot: usize,
    tile: u64,
    out: ColumnMut<'_>,
    scratch: &mut Scratch,
) -> Result<()> {
    let rules = parts.array.reader.rules(fragment.schema.wire.version);
    let validity = match out {
        ColumnMut::Fixed { values, validity } => {
            if chains.var {
                return Err(Error::internal("variable-length cells require a variable-length column"));
            }
            let contexts = &mut scratch.contexts;
            parts.run(Role::Values, &chains.values, chains.cell, values, &rules, contexts)?;
            validity
        }
        ColumnMut::Var { offsets, data, validity } => {
            if !chains.var || parts.cells != (0..parts.chunk.cells) {
                return Err(Error::internal("variable-length cells do not support random access"));
            }
            let bytes = var_size(parts, fragment, slot, tile)?;
            decode_var(parts, chains, bytes, offsets, data, &rules, scratch)?;
            validity
        }
    };
    match validity {
        Some(validity) if chains.nullable => {
            let contexts = &mut scratch.contexts;
            parts.run(Role::Validity, &chains.validity, 1, validity, &rules, contexts)?;
            validity.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            Ok(())
        }
        Some(_) => Err(Error::internal("validity of a field that is not nullable")),
        None => Ok(()),
    }
}

/// Decodes the coordinates of one dimension from a tile with those of all. Version 1 zips them cell by cell unless a compressor
/// filters them; otherwise the coordinates of one dimension are next to each other.
fn decode_zipped(
    parts: &TileParts<'_>,
    fragment: &Fragment,
    chains: &FieldChains,
    dim: usize,
    out: ColumnMut<'_>,
    scratch: &mut Scratch,
) -> Result<()> {
    let ColumnMut::Fixed { values, validity: None } = out else {
        return Err(Error::internal("expected a fixed-size column without validity"));
    };
    let size = chains.cell / fragment.schema.wire.dims.len().max(1);
    let cells = values.len().checked_div(size).unwrap_or(0);
    let whole = parts.cells == (0..parts.chunk.cells) && parts.chunk.cells == cells as u64;
    let bytes = cells.checked_mul(chains.cell).filter(|_| whole && cells * size == values.len());
    let bytes = bytes.ok_or_else(|| Error::internal("zipped coordinates do not support random access"))?;
    let [spare, _] = &mut scratch.buffers;
    spare.clear();
    alloc::resize(TILE, spare, bytes, 0)?;
    let rules = parts.array.reader.rules(fragment.schema.wire.version);
    parts.fixed(Role::Values, &chains.values, spare, &rules, &mut scratch.contexts)?;
    let by_cell = fragment.footer.version == 1 && !chains.values.has_compressor();
    let (first, step) = if by_cell { (dim * size, chains.cell) } else { (dim * values.len(), size) };
    let stored = spare.get(first..).unwrap_or_default().chunks(step);
    for (to, from) in values.chunks_exact_mut(size).zip(stored) {
        let from = from.get(..size).ok_or_else(|| Error::internal("a coordinate is outside its tile"))?;
        to.copy_from_slice(from);
    }
    Ok(())
}

/// Returns the unfiltered size of a tile of variable-length cells, from the fragment's metadata.
fn var_size(parts: &TileParts<'_>, fragment: &Fragment, slot: usize, tile: u64) -> Result<usize> {
    let reader = &parts.array.reader;
    let sizes = fragment.list(reader, FooterList::VarSizes, slot)?;
    let size = usize::try_from(tile).ok().and_then(|t| sizes.get(t)).copied().unwrap_or(0);
    reader.limits.check_decoded(size, parts.find(Role::Values)?.1.len)?;
    // Offsets take eight bytes per cell; the decompressed size is bounded by the limit.
    usize::try_from(size).map_err(|_| Error::limit("a decoded chunk", size, usize::MAX as u64))
}

fn decode_var(
    parts: &TileParts<'_>,
    chains: &FieldChains,
    bytes: usize,
    ends: &mut Vec<u64>,
    data: &mut Vec<u8>,
    rules: &FilterContext<'_>,
    scratch: &mut Scratch,
) -> Result<()> {
    let cells = usize::try_from(parts.chunk.cells)
        .map_err(|_| Error::limit("a chunk's cells", parts.chunk.cells, usize::MAX as u64))?;
    let (stored, part) = parts.find(Role::Values)?;
    if chains.values.holds_strings() {
        let decoded =
            chains.values.decode_strings(stored, cells, bytes, ends, data, rules, &mut scratch.contexts);
        return decoded.map_err(|e| parts.located(part, e));
    }
    let base = data.len();
    let end =
        base.checked_add(bytes).ok_or_else(|| Error::limit("a decoded chunk", bytes as u64, u64::MAX))?;
    alloc::resize(TILE, data, end, 0)?;
    let decoded = chains.values.decode_into(stored, &mut data[base..], rules, &mut scratch.contexts);
    decoded.map_err(|e| parts.located(part, e))?;
    // Stored offsets are the starts of cells; the caller expects their ends.
    let [spare, _] = &mut scratch.buffers;
    let wanted =
        cells.checked_mul(8).ok_or_else(|| Error::limit("a chunk's cells", cells as u64, u64::MAX))?;
    spare.clear();
    alloc::resize(TILE, spare, wanted, 0)?;
    parts.fixed(Role::Offsets, &chains.offsets, spare, rules, &mut scratch.contexts)?;
    let (_, part) = parts.find(Role::Offsets)?;
    let odd = |detail: String| parts.located(part, Error::codec("offsets", detail));
    let mut starts = spare.chunks_exact(8).map(le64);
    let mut last = starts.next().unwrap_or(0);
    if last != 0 {
        return Err(odd(format!("the first cell begins at byte {last} instead of 0")));
    }
    for start in starts.chain((cells > 0).then_some(bytes as u64)) {
        if start < last || start > bytes as u64 {
            return Err(odd(format!(
                "cell offsets are not ascending: {start} after {last}, of {bytes} bytes"
            )));
        }
        ends.push(base as u64 + start);
        last = start;
    }
    if cells == 0 && bytes > 0 {
        return Err(odd(format!("{bytes} bytes of data without cells")));
    }
    Ok(())
}

/// Decodes the write times of cells, or the numbers of the deletes that removed them.
fn times(parts: &TileParts<'_>, fragment: &Fragment, values: &mut [u8], scratch: &mut Scratch) -> Result<()> {
    let array = parts.array;
    if Some(values.len() as u64) != parts.chunk.cells.checked_mul(8) {
        return Err(Error::internal(format!("buffer of {} bytes is too small for the chunk", values.len())));
    }
    let rules = array.reader.rules(fragment.schema.wire.version);
    let chain = &fragment.schema.times;
    let native = |cell: &mut [u8], value: u64| cell.copy_from_slice(&value.to_ne_bytes());
    if parts.column == Column::Timestamp {
        if fragment.time_slot().is_none() {
            values.chunks_exact_mut(8).for_each(|cell| native(cell, fragment.entry.start));
            return Ok(());
        }
        parts.fixed(Role::Values, chain, values, &rules, &mut scratch.contexts)?;
        values.chunks_exact_mut(8).for_each(|cell| native(cell, le64(cell)));
        return Ok(());
    }
    let range = array.range.start..=array.range.end;
    if fragment.delete_slot().is_some() {
        parts.fixed(Role::Values, chain, values, &rules, &mut scratch.contexts)?;
        // The maximum timestamp means "never", even if the time range includes it.
        let gone = |at: u64| at != u64::MAX && range.contains(&at);
        values.chunks_exact_mut(8).for_each(|cell| {
            let at = le64(cell);
            native(cell, if gone(at) { 0 } else { KEPT });
        });
    } else {
        values.chunks_exact_mut(8).for_each(|cell| native(cell, KEPT));
    }
    if array.cuts_times(fragment) {
        let [spare, _] = &mut scratch.buffers;
        spare.clear();
        alloc::resize(TILE, spare, values.len(), 0)?;
        parts.fixed(Role::Mask, chain, spare, &rules, &mut scratch.contexts)?;
        for (written, cell) in spare.chunks_exact(8).zip(values.chunks_exact_mut(8)) {
            if !range.contains(&le64(written)) {
                native(cell, UNWRITTEN);
            }
        }
    }
    Ok(())
}
