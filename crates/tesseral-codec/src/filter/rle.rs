//! Run-length encoding of fixed-size cells or strings.
//!
//! Cells: `cell ‖ u16 big-endian run length`, repeated. Strings, which then need no separate offsets file: header `u32 0`,
//! `u32 1`, `u32 data bytes`, `u32 encoded bytes`, `u32 offsets bytes`, `u8` run length width, `u8` string length width; data
//! `run length ‖ string length ‖ string`, repeated, both numbers big-endian.

use tesseral_core::{Cursor, Error, Result};

use super::header::{integer_width, put_big_endian, put_len};

pub(crate) fn decode_into(cell: usize, src: &[u8], dst: &mut [u8]) -> Result<()> {
    let mut runs = Cursor::codec("rle", src);
    let mut at = 0_usize;
    while !runs.rest().is_empty() {
        let value = runs.take(cell, "cell")?;
        let run = runs.big_endian(2, "run length")?;
        let bytes = run.checked_mul(cell).and_then(|n| dst.get_mut(at..at.checked_add(n)?));
        let Some(target) = bytes else {
            return Err(runs
                .corrupt("a filtered chunk", format!("run of {run} cells at byte {at} exceeds the output")));
        };
        at += target.len();
        target.chunks_exact_mut(cell).for_each(|to| to.copy_from_slice(value));
    }
    if at != dst.len() {
        return Err(runs.corrupt("a filtered chunk", format!("expected {} bytes, decoded {at}", dst.len())));
    }
    Ok(())
}

/// Parses the header of strings, which must match the number of cells and bytes of the tile.
pub(crate) fn check_string_header(
    header: &mut Cursor<'_>,
    encoded: usize,
    cells: usize,
    bytes: usize,
) -> Result<()> {
    let parts = (header.u32("metadata parts")?, header.u32("data parts")?);
    if parts != (0, 1) {
        return Err(
            header.corrupt("a filtered chunk", format!("unsupported number of parts for strings: {parts:?}"))
        );
    }
    let data = header.len32("data size")?;
    let stored = header.len32("encoded size")?;
    let offsets = header.len32("offsets size")?;
    if stored != encoded || !offsets.is_multiple_of(8) {
        return Err(header.corrupt("a filtered chunk", format!(
            "size mismatch: {stored} encoded bytes declared, {encoded} present, {offsets} bytes of offsets"
        )));
    }
    if (data, offsets / 8) != (bytes, cells) {
        let claimed = offsets / 8;
        return Err(header.corrupt(
            "a filtered chunk",
            format!("size mismatch: {claimed} strings of {data} bytes, expected {cells} of {bytes}"),
        ));
    }
    Ok(())
}

/// Appends strings and their end offsets.
pub(crate) fn decode_strings(
    meta: &[u8],
    data: &[u8],
    cells: usize,
    bytes: usize,
    ends: &mut Vec<u64>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut header = Cursor::codec("rle", meta);
    check_string_header(&mut header, data.len(), cells, bytes)?;
    let run_width = usize::from(header.u8("run length width")?);
    let len_width = usize::from(header.u8("string length width")?);
    if run_width > 8 || len_width > 8 || run_width == 0 {
        return Err(header.corrupt(
            "a filtered chunk",
            format!("unsupported widths of {run_width} and {len_width} bytes"),
        ));
    }
    let (first, start) = (ends.len(), out.len());
    let mut runs = Cursor::codec("rle", data);
    while !runs.rest().is_empty() {
        let run = runs.big_endian(run_width, "run length")?;
        let len = runs.big_endian(len_width, "string length")?;
        let string = runs.take(len, "string")?;
        let missing = cells - (ends.len() - first);
        let grown = run.checked_mul(len).and_then(|n| n.checked_add(out.len() - start));
        if run > missing || grown.is_none_or(|n| n > bytes) {
            return Err(runs.corrupt(
                "a filtered chunk",
                format!("run of {run} strings of {len} bytes exceeds the output"),
            ));
        }
        for _ in 0..run {
            out.extend_from_slice(string);
            ends.push(out.len() as u64);
        }
    }
    if ends.len() - first != cells || out.len() - start != bytes {
        return Err(runs.corrupt(
            "a filtered chunk",
            format!("decoded {} strings, expected {cells}", ends.len() - first),
        ));
    }
    Ok(())
}

/// Appends runs of cells.
pub(crate) fn encode(cell: usize, src: &[u8], out: &mut Vec<u8>) -> Result<()> {
    if !src.len().is_multiple_of(cell) {
        let detail = format!("{} bytes are not a multiple of the cell size {cell}", src.len());
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

/// The strings delimited by end offsets.
pub(crate) fn strings<'a>(ends: &'a [u64], data: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut start = 0;
    ends.iter().map(move |end| {
        let end = usize::try_from(*end).unwrap_or(usize::MAX).min(data.len());
        let string = data.get(start..end).unwrap_or_default();
        start = end;
        string
    })
}

/// Writes the header of strings.
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

/// Encodes strings with their offsets.
pub(crate) fn encode_strings(ends: &[u64], data: &[u8], meta: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<()> {
    let mut runs: Vec<(usize, &[u8])> = Vec::new();
    for string in strings(ends, data) {
        match runs.last_mut() {
            Some((run, last)) if *last == string => *run += 1,
            _ => runs.push((1, string)),
        }
    }
    let run_width = integer_width(runs.iter().map(|(run, _)| *run).max().unwrap_or(0));
    let len_width = integer_width(runs.iter().map(|(_, s)| s.len()).max().unwrap_or(0));
    for (run, string) in runs {
        put_big_endian(run, run_width.into(), out);
        put_big_endian(string.len(), len_width.into(), out);
        out.extend_from_slice(string);
    }
    put_string_header("rle", ends.len(), data.len(), out.len(), meta)?;
    meta.extend_from_slice(&[run_width, len_width]);
    Ok(())
}
