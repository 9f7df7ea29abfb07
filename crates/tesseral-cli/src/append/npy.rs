//! Cells from a `.npy` file.

use std::path::Path;

use tesseral::core::Coords;
use tesseral::core::dtype::Class;
use tesseral::{ArraySchema, CellLen, Error, Field, Region};

use super::columns::Columns;
use crate::context::Context;
use crate::failure::Outcome;
use crate::progress::Meter;

/// Reads the cells of a box. Their dtype must be the field's.
pub(super) fn read(
    context: &Context,
    path: &Path,
    schema: &ArraySchema,
    region: &Region,
) -> Outcome<Columns> {
    let source = context.open(path, &Meter::new(false))?;
    let array = source.array_at(0)?;
    let refuse = |detail: String| Error::invalid(format!("{}: {detail}", path.display()));
    let [field] = schema.fields.as_slice() else {
        return Err(refuse(format!("it holds one field, the array has {}", schema.fields.len())).into());
    };
    let found = array.selected_field();
    let mut shape: Vec<u64> = array.schema().shape().unwrap_or_default().to_vec();
    // Cells of several numbers are a dimension more there.
    let several = match field.cell {
        CellLen::Fixed(n) if shape.len() > region.rank() => {
            shape.pop_if(|last| *last == u64::from(n)).is_some()
        }
        _ => false,
    };
    if !fits(found, field, several) {
        let detail =
            format!("its cells are {}, those of {:?} {}", found.type_name(), field.name, field.type_name());
        return Err(refuse(detail).into());
    }
    // Dimensions of one position may be left out.
    let squeezed = |shape: &[u64]| shape.iter().copied().filter(|n| *n != 1).collect::<Coords>();
    if squeezed(&shape) != squeezed(&region.shape()) {
        let wanted = region.shape();
        return Err(refuse(format!("its shape is {shape:?}, the selection's {wanted:?}")).into());
    }
    let cells = array.read_with(&array.all()?, |cells| Ok(cells.bytes().to_vec()))?;
    Ok(Columns::raw(schema, cells))
}

/// Whether cells of a file are those of a field; text of one length is bytes whatever it is called.
fn fits(found: &Field, field: &Field, several: bool) -> bool {
    let bytes = |f: &Field| f.dtype.class() == Class::Text || f.dtype == tesseral::DType::Bytes;
    if several {
        return found.dtype == field.dtype;
    }
    found.type_name().to_string() == field.type_name().to_string() && found.cell_size() == field.cell_size()
        || bytes(found) && bytes(field) && found.cell_size() == field.cell_size()
}
