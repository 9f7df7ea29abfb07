//! NumPy's file format, version 1.0: a text header, then row-major cells.

use tesseral::{CellLen, DType, Error, Field};

use super::block::Block;
use super::raw::put_cells;
use super::{Render, Task};
use crate::error::CliResult;
use crate::output::OutputStream;

pub(super) struct Npy {
    header: Vec<u8>,
    written: u64,
}

impl Npy {
    pub(super) fn new(task: &Task<'_>) -> CliResult<Self> {
        let descr = descr(&task.field).ok_or_else(|| {
            let feature = format!("{} in a NumPy file", task.field.type_name());
            Error::unsupported(feature).in_array(task.array.name()).hint("use --format raw, csv or json")
        })?;
        let mut shape = task.selection.shape().to_vec();
        if let (CellLen::Fixed(n), false) = (task.field.cell, holds_cell(&descr)) {
            shape.push(n.into());
        }
        Ok(Self { header: header(&descr, &shape), written: 0 })
    }
}

/// NumPy's name of the dtype.
pub(super) fn descr(field: &Field) -> Option<String> {
    let length = match field.cell {
        CellLen::One => 1,
        CellLen::Fixed(n) => n,
        CellLen::Var => return None,
    };
    let name = match (field.dtype, length) {
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
pub(super) fn holds_cell(descr: &str) -> bool {
    descr.starts_with("|S") || descr.starts_with("|V") || descr.starts_with("<c")
}

/// Magic, version, length, then a Python dictionary padded so that the cells are aligned to 64 bytes.
pub(super) fn header(descr: &str, shape: &[u64]) -> Vec<u8> {
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

impl Render for Npy {
    fn begin(&mut self, _: &Task<'_>, out: &mut OutputStream) -> CliResult<()> {
        out.put(&self.header)
    }

    fn block(&mut self, task: &Task<'_>, block: &Block, out: &mut OutputStream) -> CliResult<()> {
        let null =
            if block.plain().is_some() { None } else { (0..block.len()).find(|i| block.cell(*i).is_none()) };
        if let Some(cell) = null {
            let cell = self.written + cell as u64;
            let feature = format!("nulls in a NumPy file, first at cell {cell} of the selection");
            let hint = "use --format csv or json, or --raw together with --validity";
            return Err(Error::unsupported(feature).in_array(task.array.name()).hint(hint).into());
        }
        self.written += block.len() as u64;
        put_cells(task, block, out)
    }

    fn end(&mut self, _: &Task<'_>, _: &mut OutputStream) -> CliResult<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_match_numpy() {
        for (shape, shown) in
            [(&[][..], "()"), (&[5], "(5,)"), (&[2, 3], "(2, 3)"), (&[0, 4, 1], "(0, 4, 1)")]
        {
            let header = header("<f4", shape);
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
}
