//! Datatype messages of what NetCDF-4 has, and of the references between datasets and dimensions.

use tesseral_core::DType;

use super::header::Little;

/// Bytes of a reference to a value in a global heap.
pub(super) const HEAP_REFERENCE: u32 = 16;

fn prefix(class: u8, version: u8, flags: [u8; 3], size: u32) -> Vec<u8> {
    let mut out = vec![version << 4 | class];
    out.extend(flags);
    out.u32(size);
    out
}

/// Numbers and `char`, little-endian; `None` for what NetCDF-4 lacks.
pub(super) fn plain(dtype: DType) -> Option<Vec<u8>> {
    let size = dtype.size().and_then(|size| u8::try_from(size).ok())?;
    let integer = |signed: bool| {
        let mut out = prefix(0, 1, [u8::from(signed) << 3, 0, 0], size.into());
        out.u16(0);
        out.u16(u16::from(size) * 8);
        out
    };
    let float = |fields: [u8; 4], bias: u32| {
        let mut out = prefix(1, 1, [0x20, size * 8 - 1, 0], size.into());
        out.u16(0);
        out.u16(u16::from(size) * 8);
        out.extend(fields);
        out.u32(bias);
        out
    };
    Some(match dtype {
        DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 => integer(true),
        DType::UInt8 | DType::UInt16 | DType::UInt32 | DType::UInt64 => integer(false),
        DType::Float32 => float([23, 8, 0, 23], 127),
        DType::Float64 => float([52, 11, 0, 52], 1023),
        DType::Char => text(1, false),
        _ => return None,
    })
}

/// The datatype of a dimension without a variable: big-endian floats, as in the reference.
pub(super) fn dimension_only() -> Vec<u8> {
    let mut out = plain(DType::Float32).unwrap_or_default();
    if let Some(flags) = out.get_mut(1) {
        *flags |= 1;
    }
    out
}

/// Text of one size, which a NUL byte can end.
pub(super) fn text(size: u32, utf8: bool) -> Vec<u8> {
    prefix(3, 1, [u8::from(utf8) << 4, 0, 0], size)
}

/// UTF-8 text of variable length.
pub(super) fn variable_text() -> Vec<u8> {
    let mut out = prefix(9, 1, [1, 1, 0], HEAP_REFERENCE);
    out.extend(text(1, true));
    out
}

fn reference() -> Vec<u8> {
    prefix(7, 1, [0, 0, 0], 8)
}

/// Lists of references to objects.
pub(super) fn reference_lists() -> Vec<u8> {
    let mut out = prefix(9, 1, [0, 0, 0], HEAP_REFERENCE);
    out.extend(reference());
    out
}

/// Bytes of a [user](dimension_users) of a dimension.
pub(super) const DIMENSION_USER: u32 = 16;

/// A reference to a dataset and the number of its dimension.
pub(super) fn dimension_users() -> Vec<u8> {
    let mut out = prefix(6, 3, [2, 0, 0], DIMENSION_USER);
    out.extend(b"dataset\0\0");
    out.extend(reference());
    out.extend(b"dimension\0\x08");
    out.extend(plain(DType::Int32).unwrap_or_default());
    out
}

#[cfg(test)]
mod tests {
    use tesseral_core::{CellLen, Cursor};

    use super::*;
    use crate::datatype::Hdf5CellType;

    #[test]
    fn datatypes_are_read_back() {
        let held = [
            DType::Int8,
            DType::Int16,
            DType::Int32,
            DType::Int64,
            DType::UInt8,
            DType::UInt16,
            DType::UInt32,
            DType::UInt64,
            DType::Float32,
            DType::Float64,
            DType::Char,
        ];
        for dtype in held {
            let cell = Hdf5CellType::parse(Cursor::new("f", &plain(dtype).unwrap())).unwrap();
            assert_eq!((cell.dtype, cell.big, Some(cell.size)), (dtype, false, dtype.size()), "{dtype}");
        }
        for dtype in [DType::Bool, DType::Float16, DType::Complex64, DType::Bytes] {
            assert_eq!(plain(dtype), None, "{dtype}");
        }
        assert!(Hdf5CellType::parse(Cursor::new("f", &dimension_only())).unwrap().big);
        let variable = Hdf5CellType::parse(Cursor::new("f", &variable_text())).unwrap();
        assert_eq!((variable.dtype, variable.cell, variable.size), (DType::Utf8, CellLen::Var, 16));
    }
}
