//! Run lengths: of cells of one size, or of strings.
//!
//! Cells: `cell ‖ u16 big-endian run length`, repeated. Strings, whose offsets then need no file of their own: header
//! `u32 0`, `u32 1`, `u32 data bytes`, `u32 encoded bytes`, `u32 offsets bytes`, `u8` width of run lengths, `u8` width of
//! string lengths; data `run length ‖ string length ‖ string`, repeated, both numbers big-endian.

use tesseral_core::{Error, Result};

use super::header::{Header, put_big_endian, put_len, width_of};

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

/// Appends runs of cells.
pub(crate) fn encode(cell: usize, src: &[u8], out: &mut Vec<u8>) -> Result<()> {
    if !src.len().is_multiple_of(cell) {
        let detail = format!("{} bytes are no whole number of cells of {cell}", src.len());
        return Err(Error::codec("rle", detail));
    }
    let mut cells = src.chunks_exact(cell);
    let Some(mut value) = cells.next() else { return Ok(()) };
    let mut run = 1_u16;
    for next in cells {
        if next == value && run < u16::MAX {
            run += 1;
            continue;
        }
        out.extend_from_slice(value);
        out.extend_from_slice(&run.to_be_bytes());
        (value, run) = (next, 1);
    }
    out.extend_from_slice(value);
    out.extend_from_slice(&run.to_be_bytes());
    Ok(())
}

/// The strings between ends.
pub(crate) fn strings<'a>(ends: &'a [u64], data: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut start = 0;
    ends.iter().map(move |end| {
        let end = usize::try_from(*end).unwrap_or(usize::MAX).min(data.len());
        let string = data.get(start..end).unwrap_or_default();
        start = end;
        string
    })
}

/// Writes the header of strings; the length of what was encoded goes to the place that is returned.
pub(crate) fn put_string_header(
    filter: &'static str,
    cells: usize,
    bytes: usize,
    encoded: usize,
    out: &mut Vec<u8>,
) -> Result<()> {
    let offsets = cells.saturating_mul(8);
    [0, 1, bytes, encoded, offsets].into_iter().try_for_each(|n| put_len(filter, n, out))
}

/// Encodes strings, offsets included.
pub(crate) fn encode_strings(ends: &[u64], data: &[u8], meta: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<()> {
    let mut runs: Vec<(usize, &[u8])> = Vec::new();
    for string in strings(ends, data) {
        match runs.last_mut() {
            Some((run, last)) if *last == string => *run += 1,
            _ => runs.push((1, string)),
        }
    }
    let run_width = width_of(runs.iter().map(|(run, _)| *run).max().unwrap_or(0));
    let len_width = width_of(runs.iter().map(|(_, s)| s.len()).max().unwrap_or(0));
    for (run, string) in runs {
        put_big_endian(run, run_width.into(), out);
        put_big_endian(string.len(), len_width.into(), out);
        out.extend_from_slice(string);
    }
    put_string_header("rle", ends.len(), data.len(), out.len(), meta)?;
    meta.extend_from_slice(&[run_width, len_width]);
    Ok(())
}
