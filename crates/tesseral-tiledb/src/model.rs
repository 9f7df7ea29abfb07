//! Conversion of a stored schema to the array model and to the filter chains of its files.

use std::collections::BTreeMap;

use tesseral_codec::filter::{Chain, Filter};
use tesseral_core::schema::Enumeration;
use tesseral_core::{ArraySchema, Attributes, CellLen, DType, Dimension, Field, Order, Result, Scalar};

use crate::geometry::{Geometry, span};
use crate::wire::datatype::{Datatype, VAR};
use crate::wire::pipeline::FilterPipeline;
use crate::wire::schema::{Attribute, CellLayout, Schema};

/// Prefix of metadata keys that belong to one field, as other tools of the format name them: `__tiledb_attr.NAME.KEY`.
pub(crate) const FIELD_ATTRIBUTES: &str = "__tiledb_attr.";

/// The filter chains of a field's files.
#[derive(Clone, Debug)]
pub(crate) struct FieldChains {
    /// Cells, or the data of variable-length cells.
    pub values: Chain,
    /// Offsets of variable-length cells.
    pub offsets: Chain,
    /// Validity bytes.
    pub validity: Chain,
    /// Whether cells are variable-length.
    pub var: bool,
    pub nullable: bool,
    /// Size of a cell in bytes; of one value if cells are variable-length.
    pub cell: usize,
    /// Whether a cell holds the coordinates of all dimensions.
    pub zipped: bool,
}

/// A schema with the filter chains of its files.
#[derive(Debug)]
pub(crate) struct StoredSchema {
    pub wire: Schema,
    pub attributes: Vec<FieldChains>,
    pub dims: Vec<FieldChains>,
    /// Coordinates of all dimensions in one file, before version 5.
    pub coords: FieldChains,
    /// Timestamps and delete metadata.
    pub times: Chain,
}

impl StoredSchema {
    pub(crate) fn new(wire: Schema, encrypted: bool) -> Self {
        let aes = encrypted.then_some(Filter::Aes256Gcm);
        let chain = |pipeline: &FilterPipeline, datatype: Datatype, cell: usize, strings: bool| {
            let filters = pipeline.filters.iter().copied().chain(aes);
            Chain::new(filters, datatype.word(), cell, strings).chunks_of(pipeline.max_chunk)
        };
        let offsets = chain(&wire.offsets, Datatype::UINT64, 8, false);
        let validity = chain(&wire.validity, Datatype::UINT8, 1, false);
        let field = |pipeline: &FilterPipeline, datatype: Datatype, values: u32, nullable: bool| {
            let var = values == VAR;
            let cell = datatype.size().saturating_mul(if var { 1 } else { values as usize });
            let strings = var && folds(pipeline, datatype, wire.version);
            FieldChains {
                values: chain(pipeline, datatype, cell, strings),
                offsets: offsets.clone(),
                validity: validity.clone(),
                var,
                nullable,
                cell,
                zipped: false,
            }
        };
        // All dimensions of an array with such a file have one datatype. Filters see the coordinates of one dimension after another.
        let common = wire.dims.first().map_or(Datatype::UINT64, |dim| dim.datatype);
        let mut coords = field(&wire.coords, common, 1, false);
        coords.cell = coords.cell.saturating_mul(wire.dims.len());
        coords.zipped = true;
        let attributes =
            wire.attributes.iter().map(|a| field(&a.pipeline, a.datatype, a.values, a.nullable)).collect();
        let dims = wire.dims.iter().map(|d| {
            // The reference adds fragments with a file per dimension to arrays created before version 5, and does not filter these.
            let own = !d.pipeline.filters.is_empty() || wire.version < 5;
            field(
                if own { &d.pipeline } else { &wire.coords },
                d.datatype,
                if d.var { VAR } else { 1 },
                false,
            )
        });
        let dims = dims.collect();
        let times = chain(&wire.coords, Datatype::UINT64, 8, false);
        Self { attributes, dims, coords, times, wire }
    }
}

/// Returns whether the first filter stores offsets together with the strings.
fn folds(pipeline: &FilterPipeline, datatype: Datatype, version: u32) -> bool {
    match (pipeline.filters.first(), datatype) {
        (Some(Filter::Rle), Datatype::ASCII) => version >= 12,
        (Some(Filter::Dictionary), Datatype::ASCII) => version >= 13,
        (Some(Filter::Rle | Filter::Dictionary), Datatype::UTF8) => version >= 17,
        _ => false,
    }
}

fn names(pipeline: &FilterPipeline) -> Vec<String> {
    pipeline.filters.iter().map(|f| f.name().to_owned()).collect()
}

/// Converts to the common array schema.
pub(crate) fn array_schema(
    name: &str,
    wire: &Schema,
    geometry: Option<&Geometry>,
    enumerations: &BTreeMap<String, Enumeration>,
    attributes: Attributes,
) -> Result<ArraySchema> {
    let mut dims = Vec::new();
    for (d, dim) in wire.dims.iter().enumerate() {
        let dtype = dim.datatype.dtype();
        let used = wire.current_domain.as_ref().map(|ranges| &ranges[d]).or(dim.domain.as_ref());
        let extent = used.and_then(|range| span(dim, range)).map(|(_, count)| count);
        let domain = match used {
            Some((low, high)) => {
                Some((Scalar::from_le_bytes(dtype, low)?, Scalar::from_le_bytes(dtype, high)?))
            }
            None => None,
        };
        let tile = dim.extent.as_ref().map(|bytes| Scalar::from_le_bytes(dtype, bytes)).transpose()?;
        dims.push(Dimension {
            name: dim.name.clone(),
            dtype,
            extent,
            domain,
            tile,
            labels: None,
            period: None,
            unlimited: false,
            time: None,
        });
    }
    let fields = wire.attributes.iter().map(|a| field(a, enumerations)).collect::<Result<_>>()?;
    let cell_order = match wire.cell_order {
        CellLayout::RowMajor => Order::RowMajor,
        CellLayout::ColMajor => Order::ColMajor,
        CellLayout::Hilbert => Order::Hilbert,
    };
    let mut schema = ArraySchema {
        field_attributes: Some(FIELD_ATTRIBUTES),
        role: Default::default(),
        name: name.to_owned(),
        dims,
        fields,
        chunk_shape: geometry.map(Geometry::chunk_shape),
        shard_shape: None,
        cell_order,
        sparse: wire.sparse,
        allows_duplicates: wire.duplicates,
        attributes,
    };
    tesseral_core::missing::declare(&mut schema);
    Ok(schema)
}

fn field(attribute: &Attribute, enumerations: &BTreeMap<String, Enumeration>) -> Result<Field> {
    let dtype = attribute.datatype.dtype();
    let cell = attribute.datatype.cell(attribute.values);
    let fill = match (dtype, cell) {
        // A variable-length fill value, possibly empty.
        (_, CellLen::Var)
            if dtype.class() != tesseral_core::dtype::Class::Text && attribute.fill.is_empty() =>
        {
            None
        }
        (DType::Bytes, _) => Some(Scalar::from_le_bytes(DType::Bytes, &attribute.fill)?),
        _ => Some(Scalar::from_le_bytes(dtype, &attribute.fill)?),
    };
    let enumeration = attribute.enumeration.as_ref().and_then(|name| enumerations.get(name)).cloned();
    Ok(Field {
        name: attribute.name.clone(),
        dtype,
        cell,
        nullable: attribute.nullable,
        fill,
        fill_valid: attribute.nullable && attribute.fill_valid,
        time: None,
        missing: Vec::new(),
        enumeration,
        codecs: names(&attribute.pipeline),
    })
}
