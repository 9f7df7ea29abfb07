//! Enumeration files: the labels of an attribute's codes.

use tesseral_core::schema::{Enumeration, Labels};
use tesseral_core::{CountedValues, Cursor, DType, Error, MetadataCost, Result};

use super::datatype::{Datatype, VAR};
use super::primitive::{put_bytes64, put_text32, put_u64};

/// Parses an enumeration from its unfiltered bytes.
///
/// # Errors
/// `Corrupt`, `Unsupported`; `Limit` if the labels would take too much memory.
pub fn parse(object: &str, bytes: &[u8], counted: &mut CountedValues) -> Result<Enumeration> {
    let cursor = &mut Cursor::new(object, bytes);
    let version = cursor.u32("an enumeration's version")?;
    if version != 0 {
        return Err(Error::unsupported(format!("TileDB enumeration version {version}")));
    }
    let name = cursor.text32("an enumeration's name")?;
    let _path = cursor.text32("an enumeration's file name")?;
    let datatype = Datatype::new(cursor.u8("an enumeration's datatype")?)?;
    let values = cursor.u32("an enumeration's values per label")?;
    let ordered = cursor.flag("whether an enumeration is ordered")?;
    let len = cursor.u64("an enumeration's labels")?;
    let data = cursor.take64(len, "an enumeration's labels")?;
    let labels = if values == VAR {
        let len = cursor.u64("an enumeration's offsets")?;
        counted.add(MetadataCost::default().values(len / 8))?;
        let offsets = cursor.u64s(len / 8, "an enumeration's offsets")?;
        let ends = offsets.iter().skip(1).copied().chain([data.len() as u64]);
        let text = |(start, end): (&u64, u64)| {
            let range = usize::try_from(*start).ok()?..usize::try_from(end).ok()?;
            Some(String::from_utf8_lossy(data.get(range)?).into_owned())
        };
        let labels: Option<Vec<String>> = offsets.iter().zip(ends).map(text).collect();
        Labels::Text(
            labels.ok_or_else(|| cursor.corrupt("an enumeration's offsets", "they are not ascending"))?,
        )
    } else {
        let cell = datatype.size().saturating_mul(values as usize);
        if values == 0 || !data.len().is_multiple_of(cell) {
            return Err(cursor.corrupt("an enumeration", format!("{} bytes of labels of {cell}", data.len())));
        }
        match datatype.dtype() {
            DType::Char | DType::Ascii | DType::Utf8 => {
                counted.add(MetadataCost::default().values((data.len() / cell) as u64))?;
                Labels::Text(data.chunks(cell).map(|l| String::from_utf8_lossy(l).into_owned()).collect())
            }
            dtype if values == 1 && dtype != DType::Bytes => Labels::Numbers { dtype, bytes: data.to_vec() },
            _ => {
                return Err(Error::unsupported(format!(
                    "an enumeration of {} {values} at a time",
                    datatype.name()
                )));
            }
        }
    };
    Ok(Enumeration { name, ordered, labels })
}

/// Encodes an enumeration whose file is `path`.
///
/// # Errors
/// `Limit` for names and labels that are too long; `Unsupported` for labels without a datatype.
pub fn write(enumeration: &Enumeration, path: &str, out: &mut Vec<u8>) -> Result<()> {
    out.extend_from_slice(&0_u32.to_le_bytes());
    put_text32(&enumeration.name, out)?;
    put_text32(path, out)?;
    let (datatype, values) = match &enumeration.labels {
        Labels::Text(_) => (Datatype::UTF8, VAR),
        Labels::Numbers { dtype, .. } => {
            let datatype = Datatype::from_dtype(*dtype);
            let named = || Error::unsupported(format!("an enumeration of {dtype} in a TileDB array"));
            (datatype.ok_or_else(named)?, 1)
        }
    };
    out.push(datatype.number());
    out.extend_from_slice(&values.to_le_bytes());
    out.push(u8::from(enumeration.ordered));
    match &enumeration.labels {
        Labels::Numbers { bytes, .. } => put_bytes64(bytes, out),
        Labels::Text(labels) => {
            put_bytes64(labels.concat().as_bytes(), out);
            put_u64(labels.len() as u64 * 8, out);
            let mut start = 0;
            for label in labels {
                put_u64(start, out);
                start += label.len() as u64;
            }
        }
    }
    Ok(())
}
