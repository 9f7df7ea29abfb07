//! Schema files.
//!
//! ```text
//! u32 version │ u8 duplicates │ u8 sparse │ u8 tile order │ u8 cell order │ u64 capacity
//! pipelines: coordinates, offsets, validity │ u32 count, dimensions │ u32 count, attributes
//! before version 5: no duplicates, and the datatype of all dimensions before their count; since version 7: validity; since 18,
//! 20 and 22: u32 count, labels (18) │ u32 count, enumerations (20) │ current domain (22)
//! ```

use tesseral_core::{Cursor, Result};

use super::datatype::{Datatype, VAR};
use super::pipeline::FilterPipeline;
use super::primitive::{put_bytes64, put_text32, put_text64, put_u32, put_u64};

/// Orders of tiles and cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum CellLayout {
    RowMajor,
    ColMajor,
    Hilbert,
}

impl CellLayout {
    fn parse(cursor: &mut Cursor<'_>, what: &str) -> Result<Self> {
        match cursor.u8(what)? {
            0 => Ok(Self::RowMajor),
            1 => Ok(Self::ColMajor),
            4 => Ok(Self::Hilbert),
            other => Err(cursor.corrupt(what, format!("order {other}"))),
        }
    }

    fn number(self) -> u8 {
        match self {
            Self::RowMajor => 0,
            Self::ColMajor => 1,
            Self::Hilbert => 4,
        }
    }

    /// Name as in the specification.
    pub fn name(self) -> &'static str {
        match self {
            Self::RowMajor => "row-major",
            Self::ColMajor => "col-major",
            Self::Hilbert => "hilbert",
        }
    }
}

/// A closed range along one dimension, as bytes.
pub type StoredRange = (Vec<u8>, Vec<u8>);

/// One dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredDimension {
    /// Name of the dimension; can be empty.
    pub name: String,
    /// Datatype of the coordinates.
    pub datatype: Datatype,
    /// Whether coordinates are variable-length.
    pub var: bool,
    /// Filters; empty means those of all coordinates.
    pub pipeline: FilterPipeline,
    /// First and last coordinate; `None` for text.
    pub domain: Option<StoredRange>,
    /// Tile extent, if there is one.
    pub extent: Option<Vec<u8>>,
}

/// One attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// Name of the attribute.
    pub name: String,
    /// Datatype of the values.
    pub datatype: Datatype,
    /// Number of values per cell.
    pub values: u32,
    /// Filters of the values.
    pub pipeline: FilterPipeline,
    /// Fill value of unwritten cells.
    pub fill: Vec<u8>,
    /// Whether the attribute is nullable.
    pub nullable: bool,
    /// Whether unwritten cells are valid (not null).
    pub fill_valid: bool,
    /// Order of the values: 0 unordered, 1 increasing, 2 decreasing.
    pub order: u8,
    /// Name of the enumeration of its codes.
    pub enumeration: Option<String>,
}

impl Attribute {
    /// Returns whether cells are variable-length.
    pub fn var(&self) -> bool {
        self.values == VAR
    }

    /// Size of a cell in bytes; of one value if cells are variable-length.
    pub fn cell_size(&self) -> usize {
        let values = if self.var() { 1 } else { self.values };
        self.datatype.size().saturating_mul(values as usize)
    }
}

/// One dimension label: a separate array of labels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Index of its dimension.
    pub dim: u32,
    /// Name of the label.
    pub name: String,
    /// Whether `uri` is relative to the array's folder.
    pub relative: bool,
    /// URI of the label array.
    pub uri: String,
    /// The attribute that contains the labels.
    pub attribute: String,
    /// Datatype of the labels.
    pub datatype: Datatype,
    /// Number of values per label.
    pub values: u32,
    /// Whether the label array is managed externally.
    pub external: bool,
    /// Order of the labels: 0 unordered, 1 increasing, 2 decreasing.
    pub order: u8,
}

/// An array schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// Format version of its writer, which determines the filters of its tiles.
    pub version: u32,
    /// Whether a position can have several cells.
    pub duplicates: bool,
    /// Whether the array is sparse.
    pub sparse: bool,
    /// Order of tiles.
    pub tile_order: CellLayout,
    /// Order of cells.
    pub cell_order: CellLayout,
    /// Capacity: number of cells of a sparse tile.
    pub capacity: u64,
    /// Filters of coordinates.
    pub coords: FilterPipeline,
    /// Filters of offsets.
    pub offsets: FilterPipeline,
    /// Filters of validity.
    pub validity: FilterPipeline,
    /// Dimensions.
    pub dims: Vec<StoredDimension>,
    /// Attributes.
    pub attributes: Vec<Attribute>,
    /// Dimension labels.
    pub labels: Vec<Label>,
    /// Enumerations: name and file.
    pub enumerations: Vec<(String, String)>,
    /// The current domain, if it is set.
    pub current_domain: Option<Vec<StoredRange>>,
}

impl Schema {
    /// Parses a schema from its unfiltered bytes.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`.
    pub fn parse(object: &str, bytes: &[u8]) -> Result<Self> {
        let cursor = &mut Cursor::new(object, bytes);
        let version = cursor.u32("the schema's version")?;
        super::check_version(version)?;
        let duplicates = version >= 5 && cursor.flag("allows duplicates")?;
        let sparse = cursor.flag("the array type")?;
        let tile_order = CellLayout::parse(cursor, "the tile order")?;
        let cell_order = CellLayout::parse(cursor, "the cell order")?;
        let capacity = cursor.u64("the capacity")?;
        let coords = FilterPipeline::parse(cursor)?;
        let offsets = FilterPipeline::parse(cursor)?;
        let validity = if version >= 7 { FilterPipeline::parse(cursor)? } else { FilterPipeline::default() };
        let common = match version {
            ..5 => Some(Datatype::new(cursor.u8("the dimensions' datatype")?)?),
            _ => None,
        };
        let count = cursor.u32("the dimensions")?;
        // A name, two ends and whether there is an extent.
        let count = cursor.count(u64::from(count), 7, "the dimensions")?;
        let dims = (0..count).map(|_| dimension(cursor, common)).collect::<Result<Vec<_>>>()?;
        let count = cursor.u32("the attributes")?;
        let count = cursor.count(u64::from(count), 10, "the attributes")?;
        let attributes = (0..count).map(|_| attribute(cursor, version)).collect::<Result<Vec<_>>>()?;
        let mut labels = Vec::new();
        if version >= 18 {
            let count = cursor.u32("the labels")?;
            let count = cursor.count(u64::from(count), 10, "the labels")?;
            labels = (0..count).map(|_| label(cursor)).collect::<Result<_>>()?;
        }
        let mut enumerations = Vec::new();
        if version >= 20 {
            let count = cursor.u32("the enumerations")?;
            let count = cursor.count(u64::from(count), 8, "the enumerations")?;
            for _ in 0..count {
                enumerations
                    .push((cursor.text32("an enumeration")?, cursor.text32("an enumeration's file")?));
            }
        }
        let current_domain = if version >= 22 { current_domain(cursor, &dims)? } else { None };
        if dims.is_empty() || (!sparse && attributes.is_empty()) {
            return Err(cursor.corrupt("the schema", "missing dimensions or attributes"));
        }
        if (!sparse && cell_order == CellLayout::Hilbert)
            || tile_order == CellLayout::Hilbert
            || (sparse && capacity == 0)
        {
            return Err(cursor.corrupt("the schema", "orders or capacity are invalid for the array type"));
        }
        Ok(Self {
            version,
            duplicates,
            sparse,
            tile_order,
            cell_order,
            capacity,
            coords,
            offsets,
            validity,
            dims,
            attributes,
            labels,
            enumerations,
            current_domain,
        })
    }

    /// Returns the index of an attribute by name.
    pub fn attribute(&self, name: &str) -> Option<usize> {
        self.attributes.iter().position(|a| a.name == name)
    }
}

/// `common` is the datatype of all dimensions before version 5, which stores only name, domain and extent of each.
fn dimension(cursor: &mut Cursor<'_>, common: Option<Datatype>) -> Result<StoredDimension> {
    let name = cursor.text32("a dimension's name")?;
    let (datatype, values, pipeline) = match common {
        Some(datatype) => (datatype, 1, FilterPipeline::default()),
        None => (
            Datatype::new(cursor.u8("a dimension's datatype")?)?,
            cursor.u32("a dimension's values per cell")?,
            FilterPipeline::parse(cursor)?,
        ),
    };
    let size = datatype.size();
    let stored = match common {
        Some(_) => 2 * size as u64,
        None => cursor.u64("a dimension's domain")?,
    };
    let domain = match stored {
        0 => None,
        n if n == 2 * size as u64 => {
            let (low, high) = cursor.take(2 * size, "a dimension's domain")?.split_at(size);
            Some((low.to_vec(), high.to_vec()))
        }
        n => {
            return Err(
                cursor.corrupt("a dimension's domain", format!("{n} bytes for two values of {size} bytes"))
            );
        }
    };
    let extent = match cursor.flag("a dimension's extent")? {
        true => None,
        false => Some(cursor.take(size, "a dimension's extent")?.to_vec()),
    };
    let var = values == VAR;
    if (!var && values != 1) || (domain.is_none() != var) || (var && datatype != Datatype::ASCII) {
        let detail = format!("{values} values of {} per cell", datatype.name());
        return Err(cursor.corrupt("a dimension", detail));
    }
    Ok(StoredDimension { name, datatype, var, pipeline, domain, extent })
}

/// Largest default fill of an attribute in bytes.
const LARGEST_FILL: usize = 1 << 16;

fn attribute(cursor: &mut Cursor<'_>, version: u32) -> Result<Attribute> {
    let name = cursor.text32("an attribute's name")?;
    let datatype = Datatype::new(cursor.u8("an attribute's datatype")?)?;
    let values = cursor.u32("an attribute's values per cell")?;
    let pipeline = FilterPipeline::parse(cursor)?;
    let fill = if version >= 6 {
        let fill = cursor.u64("an attribute's fill")?;
        cursor.take64(fill, "an attribute's fill")?.to_vec()
    } else {
        // A variable-length cell is filled by one element.
        let count = if values == VAR { 1 } else { values };
        let fill = datatype.default_fill();
        // The declared number of elements is untrusted.
        let count = usize::try_from(count).ok().filter(|n| n.saturating_mul(fill.len()) <= LARGEST_FILL);
        let count =
            count.ok_or_else(|| cursor.corrupt("an attribute", format!("{values} values per cell")))?;
        fill.repeat(count)
    };
    let nullable = version >= 7 && cursor.flag("whether an attribute is nullable")?;
    let fill_valid = version >= 7 && cursor.u8("an attribute's fill validity")? != 0;
    let order = if version >= 17 { cursor.u8("an attribute's order")? } else { 0 };
    let enumeration =
        if version >= 20 { cursor.text32("an attribute's enumeration")? } else { String::new() };
    let enumeration = (!enumeration.is_empty()).then_some(enumeration);
    let attribute =
        Attribute { name, datatype, values, pipeline, fill, nullable, fill_valid, order, enumeration };
    let fits = attribute.var() || attribute.fill.len() == attribute.cell_size();
    if values == 0 || !fits {
        let detail = format!("{values} values per cell, a fill of {} bytes", attribute.fill.len());
        return Err(cursor.corrupt("an attribute", detail));
    }
    Ok(attribute)
}

fn label(cursor: &mut Cursor<'_>) -> Result<Label> {
    let dim = cursor.u32("a label's dimension")?;
    let name = cursor.text32("a label's name")?;
    let relative = cursor.flag("whether a label's address is relative")?;
    let uri = cursor.text64("a label's address")?;
    let attribute = cursor.text32("a label's attribute")?;
    let order = cursor.u8("a label's order")?;
    let datatype = Datatype::new(cursor.u8("a label's datatype")?)?;
    let values = cursor.u32("a label's values per cell")?;
    let external = cursor.flag("whether a label is external")?;
    Ok(Label { dim, name, relative, uri, attribute, datatype, values, external, order })
}

fn current_domain(cursor: &mut Cursor<'_>, dims: &[StoredDimension]) -> Result<Option<Vec<StoredRange>>> {
    let version = cursor.u32("the current domain's version")?;
    if version != 0 {
        return Err(tesseral_core::Error::unsupported(format!("TileDB current domain version {version}")));
    }
    if cursor.flag("whether the current domain is empty")? {
        return Ok(None);
    }
    let kind = cursor.u8("the current domain's type")?;
    if kind != 0 {
        return Err(tesseral_core::Error::unsupported(format!("TileDB current domain type {kind}")));
    }
    ranges(cursor, dims, "the current domain").map(Some)
}

/// Parses one range per dimension: two fixed-size values, or lengths followed by two variable-length values.
///
/// # Errors
/// `Corrupt`.
pub fn ranges(cursor: &mut Cursor<'_>, dims: &[StoredDimension], what: &str) -> Result<Vec<StoredRange>> {
    let parse_range = |dim: &StoredDimension| {
        if !dim.var {
            let size = dim.datatype.size();
            let (low, high) = cursor.take(2 * size, what)?.split_at(size);
            return Ok((low.to_vec(), high.to_vec()));
        }
        let total = cursor.u64(what)?;
        let low = cursor.u64(what)?;
        let bytes = cursor.take64(total, what)?;
        let split = usize::try_from(low).ok().and_then(|n| bytes.split_at_checked(n));
        let (low, high) = split.ok_or_else(|| {
            cursor.corrupt(what, format!("lower bound of {low} bytes exceeds {total} bytes"))
        })?;
        Ok((low.to_vec(), high.to_vec()))
    };
    dims.iter().map(parse_range).collect()
}

impl Schema {
    /// Encodes a schema for its format version.
    ///
    /// # Errors
    /// `Unsupported` for features that the version lacks; `Limit`.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        super::check_written(self.version)?;
        let lacks = |what: &str| {
            let feature = format!("{what} in a TileDB array of format version {}", self.version);
            Err(tesseral_core::Error::unsupported(feature))
        };
        if self.version < 20 && !self.enumerations.is_empty() {
            return lacks("enumerations");
        }
        if self.version < 22 && self.current_domain.is_some() {
            return lacks("a current domain");
        }
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&[u8::from(self.duplicates), u8::from(self.sparse)]);
        out.extend_from_slice(&[self.tile_order.number(), self.cell_order.number()]);
        put_u64(self.capacity, out);
        for pipeline in [&self.coords, &self.offsets, &self.validity] {
            pipeline.write(self.version, out)?;
        }
        put_u32(self.dims.len() as u64, "the dimensions", out)?;
        self.dims.iter().try_for_each(|dim| put_dimension(dim, self.version, out))?;
        put_u32(self.attributes.len() as u64, "the attributes", out)?;
        self.attributes.iter().try_for_each(|a| put_attribute(a, self.version, out))?;
        if self.version >= 18 {
            put_u32(self.labels.len() as u64, "the labels", out)?;
            self.labels.iter().try_for_each(|label| put_label(label, out))?;
        }
        if self.version >= 20 {
            put_u32(self.enumerations.len() as u64, "the enumerations", out)?;
            for (name, file) in &self.enumerations {
                put_text32(name, out)?;
                put_text32(file, out)?;
            }
        }
        if self.version >= 22 {
            out.extend_from_slice(&0_u32.to_le_bytes());
            out.push(u8::from(self.current_domain.is_none()));
            if let Some(ranges) = &self.current_domain {
                out.push(0);
                put_ranges(ranges, &self.dims, out);
            }
        }
        Ok(())
    }
}

fn put_dimension(dim: &StoredDimension, version: u32, out: &mut Vec<u8>) -> Result<()> {
    put_text32(&dim.name, out)?;
    out.push(dim.datatype.number());
    out.extend_from_slice(&if dim.var { VAR } else { 1 }.to_le_bytes());
    dim.pipeline.write(version, out)?;
    match &dim.domain {
        None => put_u64(0, out),
        Some((low, high)) => put_bytes64(&[&low[..], &high[..]].concat(), out),
    }
    out.push(u8::from(dim.extent.is_none()));
    out.extend_from_slice(dim.extent.as_deref().unwrap_or_default());
    Ok(())
}

fn put_attribute(attribute: &Attribute, version: u32, out: &mut Vec<u8>) -> Result<()> {
    put_text32(&attribute.name, out)?;
    out.push(attribute.datatype.number());
    out.extend_from_slice(&attribute.values.to_le_bytes());
    attribute.pipeline.write(version, out)?;
    put_bytes64(&attribute.fill, out);
    out.extend_from_slice(&[u8::from(attribute.nullable), u8::from(attribute.fill_valid)]);
    if version >= 17 {
        out.push(attribute.order);
    }
    if version >= 20 {
        put_text32(attribute.enumeration.as_deref().unwrap_or(""), out)?;
    }
    Ok(())
}

fn put_label(label: &Label, out: &mut Vec<u8>) -> Result<()> {
    out.extend_from_slice(&label.dim.to_le_bytes());
    put_text32(&label.name, out)?;
    out.push(u8::from(label.relative));
    put_text64(&label.uri, out);
    put_text32(&label.attribute, out)?;
    out.extend_from_slice(&[label.order, label.datatype.number()]);
    out.extend_from_slice(&label.values.to_le_bytes());
    out.push(u8::from(label.external));
    Ok(())
}

/// Encodes the structure that [`ranges`] parses.
pub fn put_ranges(ranges: &[StoredRange], dims: &[StoredDimension], out: &mut Vec<u8>) {
    for ((low, high), dim) in ranges.iter().zip(dims) {
        if dim.var {
            put_u64((low.len() + high.len()) as u64, out);
            put_u64(low.len() as u64, out);
        }
        out.extend_from_slice(low);
        out.extend_from_slice(high);
    }
}
