//! Cells from a `.npy` file.

use std::path::Path;

use tesseral::{ArrayId, ArraySchema, CellLen, Error, Field, Region, Selection, Session};
use tesseral_core::Coords;
use tesseral_core::dtype::Class;

use super::columns::CsvColumns;
use crate::context::Context;
use crate::error::CliResult;
use crate::progress::Meter;

/// Bytes of the file that are held at once where no memory limit is set.
const HELD: u64 = 256 << 20;

/// Writes the cells of a box in slabs of whole chunks along its first dimension of several positions. Their dtype must be the
/// field's.
pub(super) fn write(
    context: &Context,
    session: &Session,
    path: &Path,
    schema: &ArraySchema,
    region: &Region,
) -> CliResult<()> {
    let source = context.open(path, &Meter::new(false))?;
    let array = source.array_at(0)?;
    let refuse = |detail: String| Error::invalid(format!("{}: {detail}", path.display()));
    let [field] = schema.fields.as_slice() else {
        return Err(refuse(format!("the input has one field, the array has {}", schema.fields.len())).into());
    };
    let found = array.selected_field();
    let mut shape: Vec<u64> = array.schema().shape().unwrap_or_default().to_vec();
    // Cells of several numbers have an additional dimension in NumPy.
    let several = match field.cell {
        CellLen::Fixed(n) if shape.len() > region.rank() => {
            shape.pop_if(|last| *last == u64::from(n)).is_some()
        }
        _ => false,
    };
    if !fits(found, field, several) {
        let detail = format!(
            "dtype mismatch: the file has {}, field {:?} has {}",
            found.type_name(),
            field.name,
            field.type_name()
        );
        return Err(refuse(detail).into());
    }
    // Dimensions of extent 1 can be omitted.
    let squeezed = |shape: &[u64]| shape.iter().copied().filter(|n| *n != 1).collect::<Coords>();
    if squeezed(&shape) != squeezed(&region.shape()) {
        let wanted = region.shape();
        return Err(
            refuse(format!("shape mismatch: the file has {shape:?}, the selection has {wanted:?}")).into()
        );
    }
    // Of each the first dimension that has more than one position: all before it have one.
    let from = array.schema().shape().unwrap_or_default().iter().position(|n| *n != 1).unwrap_or(0);
    let to = (0..region.rank()).find(|d| region.extent(*d) != 1).unwrap_or(0);
    let bytes = region.cells().unwrap_or(u64::MAX).saturating_mul(field.cell_size().unwrap_or(1) as u64);
    let most = context.options(&Meter::new(false)).memory.unwrap_or(HELD) / 4;
    for (start, end) in slabs(schema, region, to, bytes, most) {
        let part = |(d, bound): (usize, &(u64, u64))| if d == to { (start, end) } else { *bound };
        let part = Region::new(region.bounds().iter().enumerate().map(part));
        let shape = array.schema().shape().unwrap_or_default();
        let rows = (start - region.start(to), end - region.start(to));
        let select = |(d, n): (usize, &u64)| if d == from { rows } else { (0, *n) };
        let selection = Selection::from_region(&Region::new(shape.iter().enumerate().map(select)));
        let cells = array.read_with(&selection, |cells| Ok(cells.bytes().to_vec()))?;
        session.write_columns(ArrayId(0), &part, &CsvColumns::raw(schema, cells).data())?;
    }
    Ok(())
}

/// Ranges of positions along a dimension of a box that end where chunks do, each of at most `most` of all `bytes` or one chunk long.
fn slabs(schema: &ArraySchema, region: &Region, dim: usize, bytes: u64, most: u64) -> Vec<(u64, u64)> {
    let (first, last) = (region.start(dim), region.end(dim));
    let chunk = schema.chunk_shape.as_ref().and_then(|chunk| chunk.get(dim).copied()).filter(|n| *n > 0);
    let Some(chunk) = chunk.filter(|_| bytes > most && last > first) else { return vec![(first, last)] };
    let row = (bytes / (last - first)).max(1);
    let rows = (most / row / chunk).max(1).saturating_mul(chunk);
    let mut slabs = Vec::new();
    let mut start = first;
    while start < last {
        let end = (start / rows).saturating_add(1).saturating_mul(rows).min(last);
        slabs.push((start, end));
        start = end;
    }
    slabs
}

/// Returns whether the dtype of a file matches a field; fixed-size text is bytes of any dtype name.
fn fits(found: &Field, field: &Field, several: bool) -> bool {
    let bytes = |f: &Field| f.dtype.class() == Class::Text || f.dtype == tesseral::DType::Bytes;
    if several {
        return found.dtype == field.dtype;
    }
    found.type_name().to_string() == field.type_name().to_string() && found.cell_size() == field.cell_size()
        || bytes(found) && bytes(field) && found.cell_size() == field.cell_size()
}
