//! Labels of dimensions, from the cells of their index coordinates.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tesseral_core::dtype::Class;
use tesseral_core::schema::{Labels, Role};
use tesseral_core::{ArraySchema, CellLen, Result};

use crate::Array;

/// Maximum size in bytes of coordinates that are cached as labels.
const MOST_BYTES: u64 = 64 << 20;
/// Assumed size of a variable-length cell in bytes.
const TEXT: u64 = 16;

/// Labels by array index of the coordinate.
#[derive(Debug, Default)]
pub(crate) struct LabelCache(Mutex<HashMap<usize, Option<Labels>>>);

impl LabelCache {
    /// Returns the labels from an array, read once. An array that cannot be read has none: its dimension is then selected by
    /// position.
    pub(crate) fn get(&self, number: usize, open: impl FnOnce() -> Result<Array>) -> Option<Labels> {
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number) {
            return known.clone();
        }
        let labels = open().and_then(|array| read(&array)).ok().flatten();
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number, labels.clone());
        labels
    }
}

/// Returns whether an array is the index coordinate of a dimension.
pub(crate) fn is_index(schema: &ArraySchema, dim: &str, extent: Option<u64>) -> bool {
    let [own] = schema.dims.as_slice() else { return false };
    schema.role == Role::Index && schema.fields.len() == 1 && own.name == dim && own.extent == extent
}

fn read(array: &Array) -> Result<Option<Labels>> {
    let field = array.selected_field();
    let cells = array.schema().dims.first().and_then(|dim| dim.extent).unwrap_or(0);
    let size = field.cell_size().map_or(TEXT, |size| size as u64);
    let bytes = cells.saturating_mul(size);
    if cells == 0
        || field.nullable
        || bytes > MOST_BYTES
        || array.options().check_memory("labels", bytes).is_err()
    {
        return Ok(None);
    }
    let text = |cell: &[u8]| {
        let len = cell.iter().rposition(|b| *b != 0).map_or(0, |last| last + 1);
        std::str::from_utf8(&cell[..len]).ok().map(str::to_owned)
    };
    match (field.cell, field.dtype.class()) {
        (CellLen::Var, Class::Text) => {
            let cells = array.read_var(&array.all()?)?;
            let texts = (0..cells.len()).map(|i| std::str::from_utf8(cells.get(i)).ok().map(str::to_owned));
            Ok(texts.collect::<Option<Vec<_>>>().map(Labels::Text))
        }
        (CellLen::One | CellLen::Fixed(_), Class::Text) => {
            let Some(size) = field.cell_size() else { return Ok(None) };
            let cells = array.read_owned(&array.all()?)?;
            let texts = cells.bytes().chunks(size).map(text);
            Ok(texts.collect::<Option<Vec<_>>>().map(Labels::Text))
        }
        (CellLen::One, Class::Bits | Class::Complex) | (CellLen::Var | CellLen::Fixed(_), _) => Ok(None),
        (CellLen::One, _) => {
            let cells = array.read_owned(&array.all()?)?;
            let mut bytes = cells.bytes().to_vec();
            if cfg!(target_endian = "big") {
                bytes.chunks_mut(field.dtype.word()).for_each(<[u8]>::reverse);
            }
            Ok(Some(Labels::Numbers { dtype: field.dtype, bytes }))
        }
    }
}
