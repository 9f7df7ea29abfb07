//! Dictionary-encoded strings.
//!
//! Header as for strings in [run lengths](super::rle), with `u8` ID width, `u8` string length width, `u32` dictionary size and
//! the dictionary: `big-endian length ‖ string`, repeated. Data: one big-endian ID per cell.

use std::collections::HashMap;

use tesseral_core::{Cursor, Result};

use super::header::{integer_width, put_big_endian, put_len};
use super::rle::{check_string_header, put_string_header, strings};

/// Appends strings and their ends.
pub(crate) fn decode_strings(
    meta: &[u8],
    data: &[u8],
    cells: usize,
    bytes: usize,
    ends: &mut Vec<u64>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let mut header = Cursor::codec("dictionary", meta);
    check_string_header(&mut header, data.len(), cells, bytes)?;
    let id_width = usize::from(header.u8("ID width")?);
    let len_width = usize::from(header.u8("string length width")?);
    let dictionary = header.len32("dictionary size")?;
    let dictionary = header.take(dictionary, "dictionary")?;
    if id_width > 8 || len_width > 8 || id_width == 0 || len_width == 0 {
        return Err(header
            .corrupt("a filtered chunk", format!("unsupported widths of {id_width} and {len_width} bytes")));
    }
    if cells.checked_mul(id_width) != Some(data.len()) {
        return Err(header.corrupt(
            "a filtered chunk",
            format!("{} bytes of IDs do not match {cells} strings", data.len()),
        ));
    }
    let mut entries = Vec::new();
    let mut rest = Cursor::codec("dictionary", dictionary);
    while !rest.rest().is_empty() {
        let len = rest.big_endian(len_width, "string length")?;
        entries.push(rest.take(len, "string")?);
    }
    let start = out.len();
    let mut ids = Cursor::codec("dictionary", data);
    for _ in 0..cells {
        let id = ids.big_endian(id_width, "number")?;
        let Some(string) = entries.get(id) else {
            return Err(ids
                .corrupt("a filtered chunk", format!("ID {id} out of range for {} strings", entries.len())));
        };
        if out.len() - start + string.len() > bytes {
            return Err(
                ids.corrupt("a filtered chunk", format!("strings exceed the {bytes} bytes of the tile"))
            );
        }
        out.extend_from_slice(string);
        ends.push(out.len() as u64);
    }
    if out.len() - start != bytes {
        return Err(
            ids.corrupt("a filtered chunk", format!("expected {bytes} bytes, decoded {}", out.len() - start))
        );
    }
    Ok(())
}

/// Encodes strings with their offsets. The ID width depends on the number of cells, not of distinct strings.
pub(crate) fn encode_strings(ends: &[u64], data: &[u8], meta: &mut Vec<u8>, out: &mut Vec<u8>) -> Result<()> {
    let id_width = integer_width(ends.len());
    let len_width = integer_width(strings(ends, data).map(<[u8]>::len).max().unwrap_or(0));
    let mut entries: HashMap<&[u8], usize> = HashMap::new();
    let mut dictionary = Vec::new();
    for string in strings(ends, data) {
        let next = entries.len();
        let id = *entries.entry(string).or_insert_with(|| {
            put_big_endian(string.len(), len_width.into(), &mut dictionary);
            dictionary.extend_from_slice(string);
            next
        });
        put_big_endian(id, id_width.into(), out);
    }
    put_string_header("dictionary", ends.len(), data.len(), out.len(), meta)?;
    meta.extend_from_slice(&[id_width, len_width]);
    put_len("dictionary", dictionary.len(), meta)?;
    meta.extend_from_slice(&dictionary);
    Ok(())
}
