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

#[cfg(test)]
mod tests {
    use super::*;

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
