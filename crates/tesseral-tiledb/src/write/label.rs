//! Schemas of labels, and the order of their values.

use std::cmp::Ordering;

use tesseral_codec::filter::ElementKind;
use tesseral_core::{CellLen, DType, Error, Field, Result};
use tesseral_format::{ColumnData, DeclaredLabel};

use super::spec;
use crate::wire::datatype::{compare, float};
use crate::wire::schema::{Attribute, CellLayout, Label, Schema, StoredDimension};

/// Names of the dimension and the attribute of a label's array, as the reference has them.
const INDEX: &str = "index";
const VALUES: &str = "label";

/// Adds labels to a schema; returns the schemas of their arrays.
pub(crate) fn add(schema: &mut Schema, labels: &[DeclaredLabel]) -> Result<Vec<Schema>> {
    let mut made = Vec::new();
    for (number, label) in labels.iter().enumerate() {
        let names = || schema.dims.iter().map(|dim| dim.name.clone()).collect();
        let dim = schema.dims.iter().position(|dim| dim.name == label.dim);
        let dim = dim.ok_or_else(|| Error::not_found("dimension", &label.dim, names()))?;
        let taken = schema.dims.iter().map(|dim| &dim.name).chain(schema.attributes.iter().map(|a| &a.name));
        if label.name.is_empty()
            || taken.chain(schema.labels.iter().map(|l| &l.name)).any(|n| *n == label.name)
        {
            let detail =
                format!("label name {:?} is empty or that of a dimension, field or other label", label.name);
            return Err(Error::invalid(detail));
        }
        let attribute = attribute(label)?;
        let order = attribute.order;
        let (datatype, values) = (attribute.datatype, attribute.values);
        made.push(array(schema, &schema.dims[dim], attribute)?);
        schema.labels.push(Label {
            dim: u32::try_from(dim).unwrap_or(u32::MAX),
            name: label.name.clone(),
            relative: true,
            uri: format!("__labels/l{number}"),
            attribute: VALUES.to_owned(),
            datatype,
            values,
            external: false,
            order,
        });
    }
    Ok(made)
}

fn attribute(label: &DeclaredLabel) -> Result<Attribute> {
    let mut field = Field::new(VALUES, label.dtype);
    field.cell = if label.dtype == DType::Ascii { CellLen::Var } else { CellLen::One };
    let mut attribute = spec::attribute(&field, &[])?;
    let ordered = attribute.datatype.is_integral()
        || matches!(label.dtype, DType::Float32 | DType::Float64 | DType::Ascii);
    if !ordered {
        return Err(Error::unsupported(format!("a label of {} in a TileDB array", label.dtype)));
    }
    attribute.order = if label.decreasing { 2 } else { 1 };
    Ok(attribute)
}

/// The array of a label: dense, over the domain of the dimension.
fn array(schema: &Schema, dim: &StoredDimension, attribute: Attribute) -> Result<Schema> {
    if !dim.datatype.is_integral() || dim.extent.is_none() {
        return Err(Error::unsupported(format!("a label of dimension {:?}, which has no tiles", dim.name)));
    }
    Ok(Schema {
        version: schema.version,
        duplicates: false,
        sparse: false,
        tile_order: CellLayout::RowMajor,
        cell_order: CellLayout::RowMajor,
        capacity: schema.capacity,
        coords: schema.coords.clone(),
        offsets: schema.offsets.clone(),
        validity: schema.validity.clone(),
        dims: vec![StoredDimension { name: INDEX.to_owned(), ..dim.clone() }],
        attributes: vec![attribute],
        labels: Vec::new(),
        enumerations: Vec::new(),
        current_domain: None,
    })
}

/// First and last value of a tile.
pub(crate) type TileEnds = (Vec<u8>, Vec<u8>);

/// Values of an attribute whose order the schema declares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrderedValues<'a> {
    attribute: &'a Attribute,
}

impl<'a> OrderedValues<'a> {
    /// The ordered attribute of an array of one dimension.
    pub(crate) fn from_schema(schema: &'a Schema) -> Option<Self> {
        let ([_], [attribute]) = (schema.dims.as_slice(), schema.attributes.as_slice()) else { return None };
        (attribute.order != 0).then_some(Self { attribute })
    }

    /// Checks that a value may be followed by another one.
    fn check(&self, first: &[u8], second: &[u8]) -> Result<()> {
        let wanted = if self.attribute.order == 2 { Ordering::Greater } else { Ordering::Less };
        if compare(self.attribute.datatype, first, second) == wanted {
            return Ok(());
        }
        let order = if self.attribute.order == 2 { "decreasing" } else { "increasing" };
        Err(Error::invalid(format!("the values of {:?} are not strictly {order}", self.attribute.name)))
    }

    /// Checks the values of a tile; returns the first and the last one.
    pub(crate) fn check_tile(&self, values: &ColumnData<'_>) -> Result<Option<TileEnds>> {
        let size = self.attribute.cell_size().max(1);
        let cells: Vec<&[u8]> = match *values {
            ColumnData::Fixed { values, .. } => values.chunks_exact(size).collect(),
            ColumnData::Var { offsets, data, .. } => {
                let starts = std::iter::once(0).chain(offsets.iter().copied());
                let cell = |(start, end): (u64, &u64)| {
                    data.get(usize::try_from(start).ok()?..usize::try_from(*end).ok()?)
                };
                starts.zip(offsets).filter_map(cell).collect()
            }
        };
        let nan = |cell: &&[u8]| {
            self.attribute.datatype.word().kind == ElementKind::Float
                && float(self.attribute.datatype, cell).is_nan()
        };
        if cells.iter().any(nan) {
            return Err(Error::invalid(format!("{:?} has no order: a value is NaN", self.attribute.name)));
        }
        cells.windows(2).try_for_each(|pair| self.check(pair[0], pair[1]))?;
        Ok(cells.first().zip(cells.last()).map(|(first, last)| (first.to_vec(), last.to_vec())))
    }

    /// Checks the order of tiles.
    pub(crate) fn check_tiles<'t>(&self, mut tiles: impl Iterator<Item = &'t TileEnds>) -> Result<()> {
        let Some(mut last) = tiles.next() else { return Ok(()) };
        for tile in tiles {
            self.check(&last.1, &tile.0)?;
            last = tile;
        }
        Ok(())
    }
}
