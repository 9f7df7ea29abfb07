//! Encoding of arrays that a format does not support as arrays that it does.

use tesseral_core::dtype::Class;
use tesseral_core::schema::VariableRole;
use tesseral_core::{
    ArraySchema, CellLen, Coords, DType, Dimension, Error, Field, Result, Scalar, TimeUnit, Value, missing,
};

use super::attributes::AttributeList;
use super::marker::{KEY, Marker};
use super::text::{TextExtent, TextLayout};
use super::{Holds, attributes};
use crate::ArraySpec;

/// Difference between a stored array and the array it encodes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ConventionEncoding {
    /// A dimension of extent 1 encodes a scalar.
    pub scalar: bool,
    /// A trailing dimension contains the elements of a cell; its extent.
    pub trailing: Option<u64>,
    /// Layout of variable-length cells.
    pub text: Option<TextLayout>,
    /// The array is empty; the stored array has one cell.
    pub empty: bool,
    /// Shape of the stored array.
    pub shape: Coords,
    /// Bytes have another dtype.
    pub cast: bool,
}

/// Suffixes of fields with the name of a dimension, as in TileDB-CF; the first is written.
const FIELD_SUFFIXES: [&str; 2] = [".data", ".index"];

/// The attribute by which CF gives numbers the meaning of times.
const UNITS: &str = "units";

/// How CF writes the unit of dates or durations that are stored as integers.
fn cf_units(dtype: DType) -> Option<&'static str> {
    use TimeUnit::{Day, Hour, Microsecond, Millisecond, Minute, Nanosecond, Second};
    Some(match dtype {
        DType::DateTime(Day) => "days since 1970-01-01",
        DType::DateTime(Hour) => "hours since 1970-01-01",
        DType::DateTime(Minute) => "minutes since 1970-01-01",
        DType::DateTime(Second) => "seconds since 1970-01-01",
        DType::DateTime(Millisecond) => "milliseconds since 1970-01-01",
        DType::DateTime(Microsecond) => "microseconds since 1970-01-01",
        DType::DateTime(Nanosecond) => "nanoseconds since 1970-01-01",
        DType::TimeDelta(Day) => "days",
        DType::TimeDelta(Hour) => "hours",
        DType::TimeDelta(Minute) => "minutes",
        DType::TimeDelta(Second) => "seconds",
        DType::TimeDelta(Millisecond) => "milliseconds",
        DType::TimeDelta(Microsecond) => "microseconds",
        DType::TimeDelta(Nanosecond) => "nanoseconds",
        _ => return None,
    })
}

impl ConventionEncoding {
    /// Returns whether chunks are stored unchanged.
    pub(super) fn is_plain(&self) -> bool {
        !self.scalar && self.trailing.is_none() && self.text.is_none() && !self.empty
    }

    /// Number of stored elements per cell.
    pub(super) fn elements(&self) -> u64 {
        self.trailing.unwrap_or(1)
    }

    /// Coordinates of a stored chunk.
    pub(super) fn coords(&self, coords: &[u64]) -> Coords {
        if self.text == Some(TextLayout::Packed) || self.scalar && self.trailing.is_none() {
            return Coords::from_slice(&[0]);
        }
        let lead = self.scalar.then_some(0);
        lead.into_iter().chain(coords.iter().copied()).chain(self.trailing.map(|_| 0)).collect()
    }
}

/// Element type that stores elements of a dtype, and their number.
fn element(dtype: DType) -> Option<(DType, u64)> {
    Some(match dtype {
        DType::Bool | DType::Int8 | DType::UInt8 => (DType::UInt8, 1),
        DType::Char | DType::Ascii | DType::Utf8 | DType::Bytes => (DType::UInt8, 1),
        DType::Float16 | DType::BFloat16 => (DType::UInt16, 1),
        DType::DateTime(_) | DType::TimeDelta(_) => (DType::Int64, 1),
        DType::Complex64 => (DType::Float32, 2),
        DType::Complex128 => (DType::Float64, 2),
        _ => return None,
    })
}

/// Element type and number of elements that store fixed-size cells.
fn storage(dtype: DType, cell: CellLen, holds: &Holds) -> Option<(DType, u64)> {
    let held = |dtype| (holds.cells)(dtype, CellLen::One);
    let (element, each) = if held(dtype) { (dtype, 1) } else { element(dtype).filter(|(e, _)| held(*e))? };
    match cell {
        CellLen::One => Some((element, each)),
        CellLen::Fixed(n) => Some((element, each.checked_mul(n.into())?)),
        CellLen::Var => None,
    }
}

/// Reinterprets a fill value as another dtype with the same bytes.
fn recast(fill: &Scalar, dtype: DType) -> Option<Scalar> {
    (dtype.size() == Some(fill.bytes().len())).then(|| Scalar::from_le_bytes(dtype, fill.bytes()).ok())?
}

/// Role derived from names.
pub(super) fn implied_role(schema: &ArraySchema, name: &str) -> VariableRole {
    let field = matches!(schema.fields.as_slice(), [field] if schema.is_index_of(&field.name));
    if field || schema.is_index_of(name) { VariableRole::Index } else { VariableRole::Data }
}

/// Encodes an array.
pub(super) fn encode(spec: &ArraySpec, holds: &Holds) -> Result<(ArraySpec, ConventionEncoding)> {
    let mut native = spec.clone();
    let (mut marker, mut encoding) = (Marker::default(), ConventionEncoding::default());
    let schema = &mut native.schema;
    // Declarations are attributes, in the dtype of the model; the stored dtype may be another.
    schema.field_attributes = holds.field_attributes;
    schema.attributes = missing::attributes(schema);
    let implied = implied_role(schema, &schema.name);
    marker.role = (schema.role != implied && schema.role != VariableRole::Data).then_some(schema.role);
    let (listed, list) = attributes::encode(&schema.attributes, holds.attribute, holds);
    schema.attributes = listed;
    marker.attributes = list;
    if !holds.unlimited {
        let dims = schema.dims.iter_mut().enumerate();
        let grows = dims.filter_map(|(d, dim)| std::mem::take(&mut dim.unlimited).then_some(d));
        marker.unlimited = grows.collect();
    }
    if !schema.sparse {
        cells(schema, spec.text, holds, &mut marker, &mut encoding)?;
    }
    if let Some(units) = marker.cells.and_then(|(dtype, _)| cf_units(dtype))
        && !spec.schema.attributes.contains_key(UNITS)
        && schema.attributes.len() < holds.attributes
    {
        // The list distinguishes them from units of the array itself.
        marker.attributes.get_or_insert_with(|| AttributeList::names(&spec.schema.attributes));
        schema.attributes.insert(UNITS.to_owned(), Value::from(units));
    }
    if !holds.repeated_dimensions {
        let names: Vec<String> = schema.dims.iter().map(|dim| dim.name.clone()).collect();
        let stored = distinct(&names);
        if stored != names {
            schema.dims.iter_mut().zip(stored).for_each(|(dim, name)| dim.name = name);
            marker.names = Some(names);
        }
    }
    if !holds.field_named_as_dimension {
        for field in &mut schema.fields {
            if schema.dims.iter().any(|dim| dim.name == field.name) {
                field.name.push_str(FIELD_SUFFIXES[0]);
            }
        }
    }
    encoding.shape = schema.shape().unwrap_or_default();
    if marker != Marker::default() {
        schema.attributes.insert(KEY.to_owned(), Value::Text(marker.to_text()));
    }
    Ok((native, encoding))
}

/// Names of dimensions that differ from each other: `x`, `x.2` for two dimensions `x`. Unnamed dimensions stay so.
fn distinct(names: &[String]) -> Vec<String> {
    let mut out: Vec<String> = Vec::with_capacity(names.len());
    for name in names {
        let free = |candidate: &String| !names.contains(candidate) && !out.contains(candidate);
        let own = match name.is_empty() || !out.contains(name) {
            true => Some(name.clone()),
            // Of so many, one is free.
            false => (2..names.len() + 3).map(|n| format!("{name}.{n}")).find(free),
        };
        out.extend(own);
    }
    out
}

/// Sets the stored dtype and dimensions of a schema.
fn cells(
    schema: &mut ArraySchema,
    text: Option<TextExtent>,
    holds: &Holds,
    marker: &mut Marker,
    encoding: &mut ConventionEncoding,
) -> Result<()> {
    let Some(shape) = schema.shape() else { return Ok(()) };
    let model_dims = |schema: &ArraySchema| -> Vec<(String, u64)> {
        schema.dims.iter().map(|dim| (dim.name.clone(), dim.extent.unwrap_or(0))).collect()
    };
    if !holds.empty && shape.contains(&0) {
        marker.dims = Some(model_dims(schema));
        encoding.empty = true;
        for dim in &mut schema.dims {
            *dim = Dimension::new(std::mem::take(&mut dim.name), 1);
        }
        schema.chunk_shape = Some(Coords::from_elem(1, shape.len()));
    }
    if !holds.scalars && schema.dims.is_empty() {
        encoding.scalar = true;
        marker.scalar = true;
        schema.dims.push(Dimension::new("", 1));
        schema.chunk_shape = Some(Coords::from_slice(&[1]));
    }
    let [field] = schema.fields.as_mut_slice() else { return Ok(()) };
    let (dtype, cell) = (field.dtype, field.cell);
    if (holds.cells)(dtype, cell) || field.nullable || field.enumeration.is_some() {
        return Ok(());
    }
    let trailing = match cell {
        CellLen::Var => {
            let bytes = dtype.class() == Class::Text && (holds.cells)(holds.text, CellLen::One);
            // An empty array has no cells to measure.
            let known = if encoding.empty { Some(TextExtent::default()) } else { text };
            let (true, Some(extent)) = (bytes, known) else { return Ok(()) };
            let cells = shape.iter().fold(1, |n: u64, extent| n.saturating_mul(*extent));
            let whole =
                schema.chunk_shape.as_ref().is_none_or(|chunk| chunk.iter().zip(&shape).all(|(c, n)| c >= n));
            let plain = whole && !encoding.empty && schema.dims.iter().all(|dim| dim.labels.is_none());
            let layout = match TextLayout::choose(extent, cells) {
                TextLayout::Packed if !plain && extent.ends_with_zero => {
                    return Err(Error::unsupported("cells that end with zero bytes in several chunks"));
                }
                TextLayout::Packed if plain => TextLayout::Packed,
                // No dimension is left for the bytes of a cell.
                TextLayout::Padded if plain && shape.len() >= holds.rank => TextLayout::Packed,
                _ => TextLayout::Padded,
            };
            encoding.text = Some(layout);
            marker.text = Some(layout);
            field.missing = Vec::new();
            (field.dtype, field.cell) = (holds.text, CellLen::One);
            field.fill = None;
            if layout == TextLayout::Packed {
                let len = cells
                    .checked_add(1)
                    .and_then(|n| n.checked_mul(8))
                    .and_then(|n| n.checked_add(extent.total));
                let len = len.ok_or_else(|| Error::limit("text cells", u64::MAX, u64::MAX))?;
                marker.dims = Some(if encoding.scalar { Vec::new() } else { model_dims(schema) });
                marker.scalar = false;
                encoding.scalar = false;
                schema.dims = vec![Dimension::new("", len)];
                schema.chunk_shape = Some(Coords::from_slice(&[len]));
                None
            } else {
                Some(extent.longest.max(1))
            }
        }
        CellLen::One | CellLen::Fixed(_) => {
            // The format rejects arrays that no encoding supports.
            let Some((element, each)) = storage(dtype, cell, holds) else { return Ok(()) };
            field.fill = field.fill.as_ref().and_then(|fill| recast(fill, element));
            field.missing = Vec::new();
            (field.dtype, field.cell) = (element, CellLen::One);
            (each > 1).then_some(each)
        }
    };
    marker.cells = Some((dtype, cell));
    encoding.cast = true;
    encoding.trailing = trailing;
    if let Some(n) = trailing {
        schema.dims.push(Dimension::new("", n));
        if let Some(chunk) = &mut schema.chunk_shape {
            chunk.push(n);
        }
    }
    Ok(())
}

/// Decodes a stored array; `None` if it has no marker.
pub(super) fn decode(
    native: &ArraySchema,
    marker: Option<Marker>,
    given: Option<&str>,
    holds: &Holds,
    derived: &mut Vec<&'static str>,
) -> Option<(ArraySchema, ConventionEncoding)> {
    let mut schema = native.clone();
    if !holds.field_named_as_dimension {
        original_names(&mut schema);
    }
    let mut encoding = ConventionEncoding::default();
    if let Some(marker) = &marker {
        if let Some(list) = &marker.attributes {
            // An attribute may have the name of a key that repeats the schema.
            derived.retain(|name| !list.contains(name));
            let mut stored = native.attributes.clone();
            let generated = marker.cells.and_then(|(dtype, _)| cf_units(dtype)).map(Value::from);
            if generated.is_some() && stored.get(UNITS) == generated.as_ref() && !list.contains(UNITS) {
                stored.shift_remove(UNITS);
            }
            schema.attributes = attributes::decode(&stored, list, holds.attribute);
        } else {
            schema.attributes.shift_remove(KEY);
        }
        encoding = restore(&mut schema, marker)?;
        // Dimensions that are listed with their extents have their names there.
        if let Some(names) = marker.names.as_ref().filter(|_| marker.dims.is_none()) {
            let stored = schema.dims.iter().map(|dim| dim.name.as_str());
            if !stored.eq(distinct(names).iter().map(String::as_str)) {
                return None;
            }
            schema.dims.iter_mut().zip(names).for_each(|(dim, name)| dim.name.clone_from(name));
        }
        for number in &marker.unlimited {
            if let Some(dim) = schema.dims.get_mut(*number) {
                dim.unlimited = true;
            }
        }
        missing::declare(&mut schema);
    }
    schema.role = marker
        .as_ref()
        .and_then(|marker| marker.role)
        .or((native.role != VariableRole::Data).then_some(native.role))
        .unwrap_or_else(|| implied_role(&schema, given.unwrap_or(&schema.name)));
    encoding.shape = native.shape().unwrap_or_default();
    (schema != *native || !encoding.is_plain()).then_some((schema, encoding))
}

/// Restores fields with the name of a dimension. One that has the name of its array has no other.
fn original_names(schema: &mut ArraySchema) {
    let taken: Vec<String> = schema.fields.iter().map(|field| field.name.clone()).collect();
    let array = schema.name.rsplit('/').next().unwrap_or_default().to_owned();
    for field in schema.fields.iter_mut().filter(|field| field.name != array) {
        let own = FIELD_SUFFIXES.iter().find_map(|suffix| field.name.strip_suffix(suffix));
        let own = own
            .filter(|own| schema.dims.iter().any(|dim| dim.name == **own) && !taken.iter().any(|t| t == own));
        if let Some(own) = own.map(str::to_owned) {
            field.name = own;
        }
    }
}

/// Sets the dtype and dimensions of a marker; `None` if the stored array contradicts it.
fn restore(schema: &mut ArraySchema, marker: &Marker) -> Option<ConventionEncoding> {
    let mut encoding =
        ConventionEncoding { scalar: marker.scalar, text: marker.text, ..ConventionEncoding::default() };
    if schema.sparse {
        return (marker.cells.is_none() && !marker.scalar && marker.text.is_none() && marker.dims.is_none())
            .then_some(encoding);
    }
    let mut trailing = false;
    if let Some((dtype, cell)) = marker.cells {
        let [field] = schema.fields.as_mut_slice() else { return None };
        if field.cell != CellLen::One || field.nullable || field.dtype == DType::Bitmask {
            return None;
        }
        let stored = field.dtype.size()?;
        encoding.cast = true;
        if cell == CellLen::Var {
            marker.text.filter(|_| stored == 1 && dtype.class() == Class::Text)?;
            trailing = marker.text == Some(TextLayout::Padded);
        } else {
            let bytes = Field { cell, ..Field::new("", dtype) }
                .cell_size()
                .filter(|bytes| bytes.is_multiple_of(stored))?;
            // Byte swapping is equivalent only for numbers of the same width.
            if dtype.word() != field.dtype.word() || marker.text.is_some() {
                return None;
            }
            trailing = bytes != stored;
            encoding.trailing = trailing.then_some((bytes / stored) as u64);
        }
        field.fill = field.fill.as_ref().and_then(|fill| recast(fill, dtype));
        (field.dtype, field.cell) = (dtype, cell);
    } else if marker.text.is_some() {
        return None;
    }
    let chunk = schema.chunk_shape.as_mut()?;
    if trailing {
        let (dim, along) = (schema.dims.pop()?, chunk.pop()?);
        let extent = dim.extent.filter(|n| *n > 0 && along >= *n)?;
        if encoding.trailing.is_some_and(|n| n != extent) {
            return None;
        }
        encoding.trailing = Some(extent);
    }
    if marker.text == Some(TextLayout::Packed) {
        let ([stored], dims) = (schema.dims.as_slice(), marker.dims.as_ref()?) else { return None };
        let cells = dims.iter().try_fold(1_u64, |n, (_, extent)| n.checked_mul(*extent))?;
        let table = cells.checked_add(1)?.checked_mul(8)?;
        if marker.scalar || cells == 0 || stored.extent? < table || chunk.first().copied() < stored.extent {
            return None;
        }
        schema.dims = dims.iter().map(|(name, extent)| Dimension::new(name.as_str(), *extent)).collect();
        *chunk = dims.iter().map(|(_, extent)| *extent).collect();
        return Some(encoding);
    }
    if marker.scalar {
        if !matches!(schema.dims.as_slice(), [dim] if dim.extent == Some(1)) {
            return None;
        }
        schema.dims.clear();
        chunk.clear();
    }
    if let Some(dims) = &marker.dims {
        let single = schema.dims.iter().all(|dim| dim.extent == Some(1)) && schema.dims.len() == dims.len();
        if !single || !dims.iter().any(|(_, extent)| *extent == 0) {
            return None;
        }
        encoding.empty = true;
        schema.dims = dims.iter().map(|(name, extent)| Dimension::new(name.as_str(), *extent)).collect();
        *chunk = dims.iter().map(|(_, extent)| (*extent).max(1)).collect();
    }
    Some(encoding)
}
