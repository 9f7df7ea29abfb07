//! Run lengths: of cells of one size, or of strings.
//!
//! Cells: `cell ‖ u16 big-endian run length`, repeated. Strings, whose offsets then need no file of their own: header
//! `u32 0`, `u32 1`, `u32 data bytes`, `u32 encoded bytes`, `u32 offsets bytes`, `u8` width of run lengths, `u8` width of
//! string lengths; data `run length ‖ string length ‖ string`, repeated, both numbers big-endian.

use tesseral_core::Result;

use super::header::Header;

pub(crate) fn decode_into(cell: usize, src: &[u8], dst: &mut [u8]) -> Result<()> {
    let mut runs = Header::new("rle", src);
    let mut at = 0_usize;
    while !runs.rest.is_empty() {
        let value = runs.take(cell, "a cell")?;
        let run = runs.big_endian(2, "a run length")?;
        let bytes = run.checked_mul(cell).and_then(|n| dst.get_mut(at..at.checked_add(n)?));
        let Some(target) = bytes else {
            return Err(runs.refuse(format!("a run of {run} cells at byte {at} passes the end")));
        };
        at += target.len();
        target.chunks_exact_mut(cell).for_each(|to| to.copy_from_slice(value));
    }
    if at != dst.len() {
        return Err(runs.refuse(format!("expected {} bytes, runs gave {at}", dst.len())));
    }
    Ok(())
}

/// Reads the header of strings, which must say what the tile has: so many cells, so many bytes.
pub(crate) fn check_string_header(
    header: &mut Header<'_>,
    encoded: usize,
    cells: usize,
    bytes: usize,
) -> Result<()> {
    let parts = (header.u32("metadata parts")?, header.u32("data parts")?);
    if parts != (0, 1) {
        return Err(header.refuse(format!("strings in {parts:?} parts")));
    }
    let data = header.len("data bytes")?;
    let stored = header.len("encoded bytes")?;
    let offsets = header.len("offsets bytes")?;
    if stored != encoded || !offsets.is_multiple_of(8) {
        return Err(header.refuse(format!("{stored} encoded bytes of {encoded}, {offsets} bytes of offsets")));
    }
    if (data, offsets / 8) != (bytes, cells) {
        let claimed = offsets / 8;
        return Err(
            header.refuse(format!("{claimed} strings of {data} bytes, the tile has {cells} of {bytes}"))
        );
    }
    Ok(())
}

/// Appends strings and their ends.
pub(crate) fn decode_strings(
    meta: &[u8],
    data: &[u8],
    cells: usize,
    bytes: usize,
    ends: &mut Vec<u64>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut header = Header::new("rle", meta);
    check_string_header(&mut header, data.len(), cells, bytes)?;
    let run_width = usize::from(header.u8("width of run lengths")?);
    let len_width = usize::from(header.u8("width of string lengths")?);
    if run_width > 8 || len_width > 8 || run_width == 0 {
        return Err(header.refuse(format!("numbers of {run_width} and {len_width} bytes")));
    }
    let (first, start) = (ends.len(), out.len());
    let mut runs = Header::new("rle", data);
    while !runs.rest.is_empty() {
        let run = runs.big_endian(run_width, "a run length")?;
        let len = runs.big_endian(len_width, "a string's length")?;
        let string = runs.take(len, "a string")?;
        let room = cells - (ends.len() - first);
        let grown = run.checked_mul(len).and_then(|n| n.checked_add(out.len() - start));
        if run > room || grown.is_none_or(|n| n > bytes) {
            return Err(runs.refuse(format!("a run of {run} strings of {len} bytes passes the end")));
        }
        for _ in 0..run {
            out.extend_from_slice(string);
            ends.push(out.len() as u64);
        }
    }
    if ends.len() - first != cells || out.len() - start != bytes {
        return Err(runs.refuse(format!("{} strings, expected {cells}", ends.len() - first)));
    }
    Ok(())
}
