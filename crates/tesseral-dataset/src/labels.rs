//! Labels of dimensions, from the cells of their index coordinates.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tesseral_core::dtype::Class;
use tesseral_core::schema::{Labels, VariableRole};
use tesseral_core::{Advice, ArraySchema, CellLen, Error, Result, description};
use tesseral_format::convention::AxisLabels;

use crate::{Array, Container};

/// Maximum size in bytes of coordinates that are read with an array, before their labels are requested.
const EAGER: u64 = 64 << 20;
/// Maximum size in bytes of coordinates that are held as labels where no memory limit is set.
const MAX_BYTES: u64 = 2 << 30;
/// Assumed size of a variable-length cell in bytes.
const TEXT: u64 = 16;

/// Labels by array index of the coordinate.
#[derive(Debug, Default)]
pub(crate) struct LabelCache(Mutex<HashMap<usize, Option<AxisLabels>>>);

impl LabelCache {
    /// Returns the labels from an array, read once; `None` for cells that are not labels.
    ///
    /// # Errors
    /// `Limit` when they exceed the memory; errors of reading.
    fn get(&self, number: usize, open: impl FnOnce() -> Result<Array>) -> Result<Option<AxisLabels>> {
        if let Some(known) = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&number) {
            return Ok(known.clone());
        }
        let labels = open().and_then(|array| read(&array))?;
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(number, labels.clone());
        Ok(labels)
    }
}

/// Labels of dimensions, by the dimension's number.
type NumberedLabels = Vec<(usize, AxisLabels)>;

/// Labels of an array that were not read yet.
#[derive(Clone, Debug)]
pub(crate) struct PendingLabels {
    container: Arc<Container>,
    /// Dimensions, and the index of the array that is the coordinate of each.
    coordinates: Vec<(usize, usize)>,
}

impl PendingLabels {
    /// The coordinates of the dimensions of an array without labels.
    pub(crate) fn new(container: &Container, index: usize, array: &Array) -> Option<Self> {
        let schema = array.schema();
        if schema.sparse {
            return None;
        }
        let dims = schema.dims.iter().enumerate();
        let dims = dims.filter(|(_, dim)| dim.labels.is_none() && !dim.name.is_empty());
        let coordinate = |(d, dim): (usize, &tesseral_core::Dimension)| {
            Some((d, container.coordinate(index, array, &dim.name, dim.extent)?))
        };
        let coordinates: Vec<(usize, usize)> = dims.filter_map(coordinate).collect();
        (!coordinates.is_empty()).then(|| Self { container: Arc::new(container.clone()), coordinates })
    }

    /// Returns whether a dimension has labels.
    pub(crate) fn has(&self, dim: usize) -> bool {
        self.coordinates.iter().any(|(d, _)| *d == dim)
    }

    /// Reads the labels of some dimensions; returns them, and those that are still pending.
    ///
    /// # Errors
    /// Errors of reading, unless only small coordinates are requested: then those that fail stay pending.
    pub(crate) fn read(
        &self,
        wanted: impl Fn(usize) -> bool,
        small: bool,
    ) -> Result<(NumberedLabels, Option<Self>)> {
        let (wanted, mut pending): (Vec<_>, Vec<_>) =
            self.coordinates.iter().copied().partition(|(dim, _)| wanted(*dim));
        let get = |&(_, own): &(usize, usize)| {
            self.container.labels().get(own, || {
                let array = self.container.unlabeled(own)?.physical();
                match small && bytes(&array) > EAGER {
                    true => Err(Error::limit("labels", bytes(&array), EAGER)),
                    false => Ok(array),
                }
            })
        };
        let read = tesseral_store::together(&**self.container.inner().store(), &wanted, get);
        let mut found = Vec::new();
        for ((dim, own), labels) in wanted.into_iter().zip(read) {
            match labels {
                Ok(labels) => found.extend(labels.map(|labels| (dim, labels))),
                Err(_) if small => pending.push((dim, own)),
                Err(error) => return Err(error),
            }
        }
        let container = &self.container;
        let rest =
            (!pending.is_empty()).then(|| Self { container: Arc::clone(container), coordinates: pending });
        Ok((found, rest))
    }
}

/// Returns whether an array is the index coordinate of a dimension.
pub(crate) fn is_index(schema: &ArraySchema, dim: &str, extent: Option<u64>) -> bool {
    let [own] = schema.dims.as_slice() else { return false };
    schema.role == VariableRole::Index && schema.fields.len() == 1 && own.name == dim && own.extent == extent
}

/// Size of the cells of a coordinate.
fn bytes(array: &Array) -> u64 {
    let size = array.selected_field().cell_size().map_or(TEXT, |size| size as u64);
    array.schema().dims.first().and_then(|dim| dim.extent).unwrap_or(0).saturating_mul(size)
}

fn read(array: &Array) -> Result<Option<AxisLabels>> {
    let field = array.selected_field();
    let time = field.time;
    if field.nullable && field.dtype.class() == Class::Text {
        return Ok(None);
    }
    let located =
        |error: Error| error.in_array(array.name()).hint(Advice::SelectByPosition.or(Advice::RaiseMemory));
    let size = bytes(array);
    if size > MAX_BYTES && array.options().memory.is_none() {
        return Err(located(Error::limit("labels", size, MAX_BYTES)));
    }
    array.options().check_memory("labels", size).map_err(located)?;
    let period = description::period(array.schema(), field);
    Ok(labels(array)?.map(|labels| AxisLabels { labels, time, period }))
}

fn labels(array: &Array) -> Result<Option<Labels>> {
    let field = array.selected_field();
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
            let cells =
                tesseral_engine::read_owned(array.handle(), &array.request(&array.all()?), array.options())?;
            let texts = cells.bytes().chunks(size).map(text);
            Ok(texts.collect::<Option<Vec<_>>>().map(Labels::Text))
        }
        (CellLen::One, Class::Bits | Class::Complex) | (CellLen::Var | CellLen::Fixed(_), _) => Ok(None),
        (CellLen::One, _) => {
            let cells =
                tesseral_engine::read_owned(array.handle(), &array.request(&array.all()?), array.options())?;
            // A missing coordinate is not a number that a selection could find.
            if cells.validity().is_some_and(|validity| validity.contains(&0)) && field.nullable {
                return Ok(None);
            }
            let mut bytes = cells.bytes().to_vec();
            if cfg!(target_endian = "big") {
                bytes.chunks_mut(field.dtype.word()).for_each(<[u8]>::reverse);
            }
            Ok(Some(Labels::Numbers { dtype: field.dtype, bytes }))
        }
    }
}
