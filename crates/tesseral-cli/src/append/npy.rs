//! Cells from a `.npy` file.

use std::path::Path;

use tesseral::core::Coords;
use tesseral::{ArraySchema, Error, Region};

use super::columns::Columns;
use crate::failure::Outcome;

/// Reads the cells of a box. Their dtype must be the field's.
pub(super) fn read(path: &Path, schema: &ArraySchema, region: &Region) -> Outcome<Columns> {
    let shown = path.display().to_string();
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::not_found("file", shown, Vec::new()).into());
        }
        Err(e) => return Err(Error::io("read", shown, e).into()),
    };
    let refuse = |detail: String| Error::invalid(format!("{shown}: {detail}"));
    let header = Header::parse(&bytes).ok_or_else(|| refuse("it is no .npy file".to_owned()))?;
    let [field] = schema.fields.as_slice() else {
        return Err(refuse(format!("it holds one field, the array has {}", schema.fields.len())).into());
    };
    let expected = descr(field);
    let found = header.descr.trim_start_matches(['<', '|', '=']);
    if header.descr.starts_with('>') || expected.as_deref() != Some(found) {
        let detail =
            format!("its cells are {:?}, those of {:?} are {}", header.descr, field.name, field.type_name());
        return Err(refuse(detail).into());
    }
    if header.fortran && region.rank() > 1 {
        return Err(refuse("its cells are in column order".to_owned()).into());
    }
    // Dimensions of one position may be left out.
    let squeezed = |shape: &[u64]| shape.iter().copied().filter(|n| *n != 1).collect::<Coords>();
    let mut shape = header.shape.clone();
    if let tesseral::CellLen::Fixed(n) = field.cell
        && shape.last() == Some(&u64::from(n))
        && shape.len() > region.rank()
    {
        shape.pop();
    }
    if squeezed(&shape) != squeezed(&region.shape()) {
        let wanted = region.shape();
        return Err(refuse(format!("its shape is {:?}, the selection's {wanted:?}", header.shape)).into());
    }
    let size = field.cell_size().unwrap_or(1) as u64;
    let cells = bytes.get(header.len..).unwrap_or_default();
    if region.cells().and_then(|n| n.checked_mul(size)) != Some(cells.len() as u64) {
        return Err(refuse(format!("{} bytes of cells", cells.len())).into());
    }
    Ok(Columns::raw(schema, cells.to_vec()))
}

/// How NumPy calls a field's dtype, without the byte order.
fn descr(field: &tesseral::Field) -> Option<String> {
    use tesseral::core::dtype::Class;
    let size = field.dtype.size()?;
    Some(match (field.dtype.class(), field.dtype) {
        (Class::Bool, _) => "b1".to_owned(),
        (Class::Int, _) => format!("i{size}"),
        (Class::UInt, _) => format!("u{size}"),
        (Class::Float, tesseral::DType::BFloat16) => return None,
        (Class::Float, _) => match field.cell {
            tesseral::CellLen::Fixed(2) => format!("c{}", size * 2),
            _ => format!("f{size}"),
        },
        (Class::Time, tesseral::DType::DateTime(unit)) => format!("M8[{}]", unit.abbreviation()),
        (Class::Time, tesseral::DType::TimeDelta(unit)) => format!("m8[{}]", unit.abbreviation()),
        _ => format!("S{}", field.cell_size()?),
    })
}

/// What comes before the cells of a `.npy` file.
pub(crate) struct Header {
    /// The dtype, as NumPy calls it.
    pub(crate) descr: String,
    /// Cells are in column order.
    pub(crate) fortran: bool,
    pub(crate) shape: Vec<u64>,
    /// Bytes before the cells.
    pub(crate) len: usize,
}

impl Header {
    /// Reads the beginning of a file; `None` when it is none of that kind.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(b"\x93NUMPY")?;
        let (prefix, len) = match rest.first()? {
            1 => (4_usize, usize::from(u16::from_le_bytes([*rest.get(2)?, *rest.get(3)?]))),
            2 | 3 => {
                let len = u32::from_le_bytes(*rest.get(2..)?.first_chunk()?);
                (6, usize::try_from(len).ok()?)
            }
            _ => return None,
        };
        let text = std::str::from_utf8(rest.get(prefix..prefix.checked_add(len)?)?).ok()?;
        let after = |key: &str| Some(text.split_once(key)?.1.split_once(':')?.1.trim_start());
        let descr = after("'descr'")?;
        let descr = match descr.strip_prefix('\'') {
            Some(descr) => descr.split_once('\'')?.0,
            // A list of fields, which the caller refuses by what it says.
            None => descr.split_once("'fortran_order'")?.0.trim_end_matches([',', ' ']),
        };
        let descr = descr.to_owned();
        let fortran = after("'fortran_order'")?.starts_with("True");
        let shape = after("'shape'")?.strip_prefix('(')?.split_once(')')?.0;
        let shape = shape.split(',').map(str::trim).filter(|n| !n.is_empty());
        let shape = shape.map(|n| n.parse().ok()).collect::<Option<Vec<u64>>>()?;
        Some(Self { descr, fortran, shape, len: 6 + prefix + len })
    }
}
