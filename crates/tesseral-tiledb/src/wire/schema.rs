//! Schema files.
//!
//! ```text
//! u32 version │ u8 duplicates │ u8 sparse │ u8 tile order │ u8 cell order │ u64 capacity
//! pipelines: coordinates, offsets, validity │ u32 count, dimensions │ u32 count, attributes
//! u32 count, labels (18) │ u32 count, enumerations (20) │ current domain (22)
//! ```

use tesseral_core::Result;

use super::cursor::{Cursor, put_bytes64, put_text32, put_text64, put_u32, put_u64};
use super::datatype::{Datatype, VAR};
use super::pipeline::Pipeline;

/// Orders of tiles and cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Layout {
    RowMajor,
    ColMajor,
    Hilbert,
}

impl Layout {
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

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::RowMajor => "row-major",
            Self::ColMajor => "col-major",
            Self::Hilbert => "hilbert",
        }
    }
}

/// A closed range along one dimension, as bytes.
pub type Range = (Vec<u8>, Vec<u8>);

/// One dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct Dimension {
    /// Its name.
    pub name: String,
    /// Its datatype.
    pub datatype: Datatype,
    /// Whether coordinates have any length.
    pub var: bool,
    /// Its filters; none means those of all coordinates.
    pub pipeline: Pipeline,
    /// First and last coordinate; none for text.
    pub domain: Option<Range>,
    /// Length of a tile, where there is one.
    pub extent: Option<Vec<u8>>,
}

/// One attribute.
#[derive(Clone, Debug, PartialEq)]
pub struct Attribute {
    /// Its name.
    pub name: String,
    /// Its datatype.
    pub datatype: Datatype,
    /// Values per cell.
    pub values: u32,
    /// Its filters.
    pub pipeline: Pipeline,
    /// What cells hold that nobody wrote.
    pub fill: Vec<u8>,
    /// Whether cells can be null.
    pub nullable: bool,
    /// Whether cells that nobody wrote are not null.
    pub fill_valid: bool,
    /// 0 unordered, 1 increasing, 2 decreasing.
    pub order: u8,
    /// The enumeration its codes belong to.
    pub enumeration: Option<String>,
}

impl Attribute {
    /// Whether cells have any length.
    pub fn var(&self) -> bool {
        self.values == VAR
    }

    /// Bytes of a cell; of one value where cells have any length.
    pub fn cell_size(&self) -> usize {
        let values = if self.var() { 1 } else { self.values };
        self.datatype.size().saturating_mul(values as usize)
    }
}

/// One dimension label: an array of its own that names positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// The dimension it belongs to.
    pub dim: u32,
    /// Its name.
    pub name: String,
    /// Whether `uri` counts from the array's folder.
    pub relative: bool,
    /// Where its array is.
    pub uri: String,
    /// The attribute that holds the labels.
    pub attribute: String,
    /// Datatype of the labels.
    pub datatype: Datatype,
    /// Values per label.
    pub values: u32,
    /// Whether the array was made by someone else.
    pub external: bool,
    /// 0 unordered, 1 increasing, 2 decreasing.
    pub order: u8,
}

/// A schema.
#[derive(Clone, Debug, PartialEq)]
pub struct Schema {
    /// Format version of its writer, which governs the filters of its tiles.
    pub version: u32,
    /// Whether a position may hold several cells.
    pub duplicates: bool,
    /// Whether cells are listed one by one.
    pub sparse: bool,
    /// Order of tiles.
    pub tile_order: Layout,
    /// Order of cells.
    pub cell_order: Layout,
    /// Cells of a sparse tile.
    pub capacity: u64,
    /// Filters of coordinates.
    pub coords: Pipeline,
    /// Filters of offsets.
    pub offsets: Pipeline,
    /// Filters of validity.
    pub validity: Pipeline,
    /// Dimensions.
    pub dims: Vec<Dimension>,
    /// Attributes.
    pub attributes: Vec<Attribute>,
    /// Dimension labels.
    pub labels: Vec<Label>,
    /// Enumerations: name, file.
    pub enumerations: Vec<(String, String)>,
    /// The part of the domain in use, where it is set.
    pub current_domain: Option<Vec<Range>>,
}

impl Schema {
    /// Reads a schema from its unfiltered bytes.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`.
    pub fn parse(object: &str, bytes: &[u8]) -> Result<Self> {
        let cursor = &mut Cursor::new(object, bytes);
        let version = cursor.u32("the schema's version")?;
        super::check_version(version)?;
        let duplicates = cursor.flag("allows duplicates")?;
        let sparse = cursor.flag("the array type")?;
        let tile_order = Layout::parse(cursor, "the tile order")?;
        let cell_order = Layout::parse(cursor, "the cell order")?;
        let capacity = cursor.u64("the capacity")?;
        let coords = Pipeline::parse(cursor)?;
        let offsets = Pipeline::parse(cursor)?;
        let validity = Pipeline::parse(cursor)?;
        let count = cursor.u32("the dimensions")?;
        let count = cursor.count(u64::from(count), 10, "the dimensions")?;
        let dims = (0..count).map(|_| dimension(cursor)).collect::<Result<Vec<_>>>()?;
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
            return Err(cursor.corrupt("the schema", "it has no dimension or no attribute"));
        }
        if (!sparse && cell_order == Layout::Hilbert)
            || tile_order == Layout::Hilbert
            || (sparse && capacity == 0)
        {
            return Err(cursor.corrupt("the schema", "orders or capacity do not fit the array type"));
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

    /// The position of an attribute by name.
    pub fn attribute(&self, name: &str) -> Option<usize> {
        self.attributes.iter().position(|a| a.name == name)
    }
}

fn dimension(cursor: &mut Cursor<'_>) -> Result<Dimension> {
    let name = cursor.text32("a dimension's name")?;
    let datatype = Datatype::new(cursor.u8("a dimension's datatype")?)?;
    let values = cursor.u32("a dimension's values per cell")?;
    let pipeline = Pipeline::parse(cursor)?;
    let size = datatype.size();
    let domain = match cursor.u64("a dimension's domain")? {
        0 => None,
        n if n == 2 * size as u64 => {
            let (low, high) = cursor.take(2 * size, "a dimension's domain")?.split_at(size);
            Some((low.to_vec(), high.to_vec()))
        }
        n => return Err(cursor.corrupt("a dimension's domain", format!("{n} bytes for values of {size}"))),
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
    Ok(Dimension { name, datatype, var, pipeline, domain, extent })
}

fn attribute(cursor: &mut Cursor<'_>, version: u32) -> Result<Attribute> {
    let name = cursor.text32("an attribute's name")?;
    let datatype = Datatype::new(cursor.u8("an attribute's datatype")?)?;
    let values = cursor.u32("an attribute's values per cell")?;
    let pipeline = Pipeline::parse(cursor)?;
    let fill = cursor.u64("an attribute's fill")?;
    let fill = cursor.take64(fill, "an attribute's fill")?.to_vec();
    let nullable = cursor.flag("whether an attribute is nullable")?;
    let fill_valid = cursor.u8("an attribute's fill validity")? != 0;
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

fn current_domain(cursor: &mut Cursor<'_>, dims: &[Dimension]) -> Result<Option<Vec<Range>>> {
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

/// One range per dimension: low and high of one size, or their lengths in front where they have any.
///
/// # Errors
/// `Corrupt`.
pub fn ranges(cursor: &mut Cursor<'_>, dims: &[Dimension], what: &str) -> Result<Vec<Range>> {
    let one = |dim: &Dimension| {
        if !dim.var {
            let size = dim.datatype.size();
            let (low, high) = cursor.take(2 * size, what)?.split_at(size);
            return Ok((low.to_vec(), high.to_vec()));
        }
        let total = cursor.u64(what)?;
        let low = cursor.u64(what)?;
        let bytes = cursor.take64(total, what)?;
        let split = usize::try_from(low).ok().and_then(|n| bytes.split_at_checked(n));
        let (low, high) =
            split.ok_or_else(|| cursor.corrupt(what, format!("a low end of {low} of {total} bytes")))?;
        Ok((low.to_vec(), high.to_vec()))
    };
    dims.iter().map(one).collect()
}

impl Schema {
    /// Writes a schema as its version has it.
    ///
    /// # Errors
    /// `Unsupported` for what the version cannot hold; `Limit`.
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

fn put_dimension(dim: &Dimension, version: u32, out: &mut Vec<u8>) -> Result<()> {
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

/// Writes what [`ranges`] reads.
pub fn put_ranges(ranges: &[Range], dims: &[Dimension], out: &mut Vec<u8>) {
    for ((low, high), dim) in ranges.iter().zip(dims) {
        if dim.var {
            put_u64((low.len() + high.len()) as u64, out);
            put_u64(low.len() as u64, out);
        }
        out.extend_from_slice(low);
        out.extend_from_slice(high);
    }
}
