//! Dtypes in NumPy notation, as `.npy` and Zarr files have them.

use crate::{CellLen, DType};

/// The dtype, cell length and big-endian flag of a `descr`; `None` for unsupported dtypes.
pub fn parse_descr(descr: &str) -> Option<(DType, CellLen, bool)> {
    let plain = descr.trim_start_matches(['<', '>', '|', '=']);
    if descr.len() - plain.len() > 1 {
        return None;
    }
    let (kind, rest) = plain.split_at_checked(1)?;
    let number = || rest.parse::<u32>().ok().filter(|n| n.to_string() == rest);
    let bits = || number()?.checked_mul(8);
    let name = match kind {
        "b" if rest == "1" => "bool".to_owned(),
        "i" => format!("int{}", bits()?),
        "u" => format!("uint{}", bits()?),
        "f" => format!("float{}", bits()?),
        "c" => format!("complex{}", bits()?),
        "M" => format!("datetime64{}", rest.strip_prefix('8')?),
        "m" => format!("timedelta64{}", rest.strip_prefix('8')?),
        "S" => return Some((DType::Ascii, CellLen::Fixed(number().filter(|n| *n > 0)?), false)),
        _ => return None,
    };
    let dtype: DType = name.parse().ok()?;
    let big = match descr.as_bytes()[0] {
        b'>' => true,
        b'<' => false,
        _ => cfg!(target_endian = "big"),
    };
    Some((dtype, CellLen::One, big))
}

/// The `descr` of cells in little-endian order; `None` for cells without a NumPy dtype. Cells of several numbers have that of one
/// number, unless they [are one item](holds_cell).
pub fn descr(dtype: DType, cell: CellLen) -> Option<String> {
    let length = match cell {
        CellLen::One => 1,
        CellLen::Fixed(n) => n,
        CellLen::Var => return None,
    };
    let name = match (dtype, length) {
        (DType::Float32, 2) => "<c8",
        (DType::Float64, 2) => "<c16",
        (dtype, _) => match dtype {
            DType::Bool => "|b1",
            DType::Int8 => "|i1",
            DType::UInt8 => "|u1",
            DType::Int16 => "<i2",
            DType::UInt16 => "<u2",
            DType::Int32 => "<i4",
            DType::UInt32 => "<u4",
            DType::Int64 => "<i8",
            DType::UInt64 => "<u8",
            DType::Float16 => "<f2",
            DType::Float32 => "<f4",
            DType::Float64 => "<f8",
            DType::Complex64 => "<c8",
            DType::Complex128 => "<c16",
            DType::DateTime(unit) => return Some(format!("<M8[{}]", unit.abbreviation())),
            DType::TimeDelta(unit) => return Some(format!("<m8[{}]", unit.abbreviation())),
            DType::Char | DType::Ascii | DType::Utf8 => return Some(format!("|S{length}")),
            DType::Bytes => return Some(format!("|V{length}")),
            _ => return None,
        },
    };
    Some(name.to_owned())
}

/// Returns whether one item of the dtype is a whole cell of several elements.
pub fn holds_cell(descr: &str) -> bool {
    descr.starts_with("|S") || descr.starts_with("|V") || descr.starts_with("<c")
}

/// The bytes before the cells of a `.npy` file, version 1.0: magic, version, length, then a Python dictionary padded so that the
/// cells are aligned to 64 bytes.
pub fn file_header(descr: &str, shape: &[u64]) -> Vec<u8> {
    let mut extents: String = shape.iter().map(|n| format!("{n}, ")).collect();
    if shape.len() > 1 {
        extents.truncate(extents.len() - 2);
    } else {
        extents.truncate(extents.trim_end().len());
    }
    let mut text = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({extents}), }}");
    let unpadded = 10 + text.len() + 1;
    text.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
    text.push('\n');
    let mut out = b"\x93NUMPY\x01\x00".to_vec();
    // A few dimensions of at most 20 digits are far below 64 KiB.
    out.extend(u16::try_from(text.len()).unwrap_or(u16::MAX).to_le_bytes());
    out.extend(text.as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_match_numpy() {
        for (shape, shown) in
            [(&[][..], "()"), (&[5], "(5,)"), (&[2, 3], "(2, 3)"), (&[0, 4, 1], "(0, 4, 1)")]
        {
            let header = file_header("<f4", shape);
            assert_eq!(header.len() % 64, 0);
            assert_eq!(&header[..8], b"\x93NUMPY\x01\x00");
            assert_eq!(usize::from(u16::from_le_bytes([header[8], header[9]])), header.len() - 10);
            let text = std::str::from_utf8(&header[10..]).unwrap();
            assert_eq!(
                text.trim_end(),
                format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shown}, }}")
            );
            assert!(text.ends_with('\n'));
        }
    }

    #[test]
    fn dtypes_match_numpy() {
        for (descr, name, big) in [
            ("|b1", "bool", false),
            ("<i2", "int16", false),
            (">u4", "uint32", true),
            ("<f2", "float16", false),
            (">c16", "complex128", true),
            ("<M8[ns]", "datetime64[ns]", false),
            ("<m8[D]", "timedelta64[D]", false),
        ] {
            let (dtype, cell, found) = parse_descr(descr).unwrap();
            assert_eq!((dtype.to_string().as_str(), cell, found), (name, CellLen::One, big));
        }
        assert_eq!(parse_descr("|S3"), Some((DType::Ascii, CellLen::Fixed(3), false)));
        for other in [
            "", "<", "|O", "<U4", "<f16", "<i3", "<i02", "<f", "M8[25s]", "M8", "|V4", "|S0", "<<i4", "b8",
            "é",
        ] {
            assert_eq!(parse_descr(other), None, "{other}");
        }
    }
}
