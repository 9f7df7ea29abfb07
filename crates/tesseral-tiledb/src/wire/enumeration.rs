//! Enumeration files: labels that the codes of an attribute stand for.

use tesseral_core::schema::{Enumeration, Labels};
use tesseral_core::{DType, Error, Result};

use super::cursor::Cursor;
use super::datatype::{Datatype, VAR};

/// Reads an enumeration from its unfiltered bytes.
///
/// # Errors
/// `Corrupt`, `Unsupported`.
pub fn parse(object: &str, bytes: &[u8]) -> Result<Enumeration> {
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
        let offsets = cursor.u64s(len / 8, "an enumeration's offsets")?;
        let ends = offsets.iter().skip(1).copied().chain([data.len() as u64]);
        let text = |(start, end): (&u64, u64)| {
            let range = usize::try_from(*start).ok()?..usize::try_from(end).ok()?;
            Some(String::from_utf8_lossy(data.get(range)?).into_owned())
        };
        let labels: Option<Vec<String>> = offsets.iter().zip(ends).map(text).collect();
        Labels::Text(labels.ok_or_else(|| cursor.corrupt("an enumeration's offsets", "they do not rise"))?)
    } else {
        let cell = datatype.size().saturating_mul(values as usize);
        if values == 0 || !data.len().is_multiple_of(cell) {
            return Err(cursor.corrupt("an enumeration", format!("{} bytes of labels of {cell}", data.len())));
        }
        match datatype.dtype() {
            DType::Char | DType::Ascii | DType::Utf8 => {
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
