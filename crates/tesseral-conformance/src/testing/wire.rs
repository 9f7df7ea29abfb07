//! The common structure of both test formats: a header, payloads, and a directory of their locations.
//!
//! | bytes | header |
//! |---|---|
//! | 8 | magic |
//! | 8 | offset of the directory |
//! | 8 | length of the directory |
//! | 8 | XXH3-64 of the directory |
//!
//! Numbers are little-endian. Text is a `u32` length and its bytes; a scalar is its dtype's name and its bytes, both as text;
//! an optional item is a `u8` 0 or 1 and the item; a list is a `u32` count and its items.

use bytes::Bytes;
use tesseral_core::dtype::Class;
use tesseral_core::{
    ArraySchema, Attributes, CellLen, ChunkStats, Coords, Cursor, DType, Dimension, Error, Field, Limits,
    Order, Region, Result, Scalar, Stat, Sum, Value,
};
use tesseral_store::{Store, StoreExt};
use xxhash_rust::xxh3::xxh3_64;

/// Bytes of the header.
pub(crate) const HEADER: u64 = 32;

/// The header for a directory.
pub(crate) fn header(magic: &[u8; 8], offset: u64, directory: &[u8]) -> [u8; HEADER as usize] {
    let mut out = [0; HEADER as usize];
    out[..8].copy_from_slice(magic);
    out[8..16].copy_from_slice(&offset.to_le_bytes());
    out[16..24].copy_from_slice(&(directory.len() as u64).to_le_bytes());
    out[24..].copy_from_slice(&xxh3_64(directory).to_le_bytes());
    out
}

/// A stored directory.
#[derive(Debug)]
pub(crate) struct TestDirectory {
    pub(crate) bytes: Bytes,
    /// Its offset in the file.
    pub(crate) offset: u64,
    /// Whether the checksum in the header matches.
    pub(crate) checksum_matches: bool,
    /// Length of the object.
    pub(crate) file: u64,
}

impl TestDirectory {
    /// Rejects a directory with a checksum mismatch.
    pub(crate) fn check(&self, store: &dyn Store) -> Result<()> {
        if self.checksum_matches {
            return Ok(());
        }
        Err(Error::corrupt("directory", store.describe(""), self.offset, "checksum mismatch"))
    }
}

/// Reads header and directory; the caller decides on a checksum mismatch, since an audit continues where an open stops.
pub(crate) fn read_directory(store: &dyn Store, magic: &[u8; 8], limits: &Limits) -> Result<TestDirectory> {
    let name = store.describe("");
    let file = store.len("")?;
    if file < HEADER {
        return Err(Error::truncated("header", name, 0, HEADER, file));
    }
    let head = store.read("", 0..HEADER)?;
    if &head[..8] != magic {
        return Err(Error::corrupt("magic", name, 0, "not a file of this format"));
    }
    let number = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().unwrap_or_default());
    let (offset, len, hash) = (number(8), number(16), number(24));
    let end = offset.checked_add(len).filter(|&end| end <= file && offset >= HEADER);
    let Some(end) = end else {
        let detail = format!("{len} bytes at {offset} exceed the file length {file}");
        return Err(Error::corrupt("header", name, 8, detail));
    };
    limits.check_metadata(len)?;
    let bytes = store.read("", offset..end)?;
    let checksum_matches = xxh3_64(&bytes) == hash;
    Ok(TestDirectory { bytes, offset, checksum_matches, file })
}

/// Parses a directory. Counts are checked against the remaining bytes before anything is allocated.
#[derive(Debug)]
pub(crate) struct DirectoryParser<'a>(Cursor<'a>);

impl<'a> DirectoryParser<'a> {
    pub(crate) fn new(directory: &'a TestDirectory, object: &'a str) -> Self {
        Self(Cursor::at_offset(object, &directory.bytes, directory.offset))
    }

    /// A `Corrupt` error for `what` at the current position.
    pub(crate) fn corrupt(&self, what: &str, detail: impl Into<String>) -> Error {
        self.0.corrupt(what, detail)
    }

    fn bytes(&mut self, n: usize, what: &str) -> Result<&'a [u8]> {
        self.0.take(n, what)
    }

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8> {
        self.0.u8(what)
    }

    pub(crate) fn flag(&mut self, what: &str) -> Result<bool> {
        self.0.flag(what)
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32> {
        self.0.u32(what)
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64> {
        self.0.u64(what)
    }

    /// A count of items of at least `least` bytes each.
    pub(crate) fn count(&mut self, least: usize, what: &str) -> Result<usize> {
        self.0.count32(least, what)
    }

    pub(crate) fn text(&mut self, what: &str) -> Result<&'a str> {
        let n = self.count(1, what)?;
        let bytes = self.bytes(n, what)?;
        std::str::from_utf8(bytes).map_err(|_| self.corrupt(what, "not UTF-8"))
    }

    fn dtype(&mut self, what: &str) -> Result<DType> {
        let name = self.text(what)?;
        name.parse().map_err(|_| self.corrupt(what, format!("unknown dtype {name:?}")))
    }

    pub(crate) fn scalar(&mut self, what: &str) -> Result<Scalar> {
        let dtype = self.dtype(what)?;
        let n = self.count(1, what)?;
        let bytes = self.bytes(n, what)?;
        Scalar::from_le_bytes(dtype, bytes).map_err(|_| self.corrupt(what, "length does not match the dtype"))
    }

    pub(crate) fn optional<T>(
        &mut self,
        what: &str,
        item: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<Option<T>> {
        if self.flag(what)? { item(self).map(Some) } else { Ok(None) }
    }

    pub(crate) fn region(&mut self, rank: usize, what: &str) -> Result<Region> {
        let mut bounds = Vec::with_capacity(rank);
        for _ in 0..rank {
            let (start, end) = (self.u64(what)?, self.u64(what)?);
            if end < start {
                return Err(self.corrupt(what, format!("end {end} is before start {start}")));
            }
            bounds.push((start, end));
        }
        Ok(Region::new(bounds))
    }

    pub(crate) fn attributes(&mut self) -> Result<Attributes> {
        let mut out = Attributes::new();
        for _ in 0..self.count(5, "attributes")? {
            let name = self.text("attribute name")?.to_owned();
            let value = match self.u8("attribute kind")? {
                0 => Value::Text(self.text("attribute")?.to_owned()),
                1 => Value::Int(self.u64("attribute")?.cast_signed()),
                2 => Value::Float(f64::from_bits(self.u64("attribute")?)),
                3 => Value::Bool(self.flag("attribute")?),
                other => return Err(self.corrupt("attribute kind", format!("unknown kind {other}"))),
            };
            out.insert(name, value);
        }
        Ok(out)
    }

    pub(crate) fn schema(&mut self) -> Result<ArraySchema> {
        let name = self.text("array name")?.to_owned();
        let mut dims = Vec::new();
        for _ in 0..self.count(10, "dimensions")?.min(33) {
            let mut dim = Dimension::new(self.text("dimension name")?, 0);
            dim.dtype = self.dtype("dimension dtype")?;
            dim.extent = self.optional("extent", |r| r.u64("extent"))?;
            dim.domain = self.optional("domain", |r| Ok((r.scalar("domain")?, r.scalar("domain")?)))?;
            dims.push(dim);
        }
        if dims.len() > 32 {
            return Err(Error::limit("dimensions", dims.len() as u64, 32));
        }
        let mut fields = Vec::new();
        for _ in 0..self.count(11, "fields")? {
            let mut field = Field::new(self.text("field name")?, DType::UInt8);
            field.dtype = self.dtype("field dtype")?;
            field.cell = match self.u32("elements per cell")? {
                0 => CellLen::Var,
                1 => CellLen::One,
                n => CellLen::Fixed(n),
            };
            field.nullable = self.flag("nullable")?;
            field.fill = self.optional("fill", |r| r.scalar("fill"))?;
            field.missing = self.scalars("missing values")?;
            if field.dtype.size().is_none() {
                return Err(Error::unsupported(format!("{} fields", field.dtype)));
            }
            fields.push(field);
        }
        if fields.is_empty() {
            return Err(self.corrupt("fields", "none"));
        }
        let rank = dims.len();
        let chunk_shape = self.optional("chunk shape", |r| {
            (0..rank).map(|_| r.u64("chunk shape")).collect::<Result<Coords>>()
        })?;
        let cell_order = match self.u8("cell order")? {
            0 => Order::RowMajor,
            1 => Order::ColMajor,
            other => return Err(self.corrupt("cell order", format!("unknown order {other}"))),
        };
        let sparse = self.flag("sparse")?;
        let allows_duplicates = self.flag("allows duplicates")?;
        let attributes = self.attributes()?;
        let role = Default::default();
        Ok(ArraySchema {
            field_attributes: None,
            name,
            dims,
            fields,
            chunk_shape,
            shard_shape: None,
            cell_order,
            sparse,
            allows_duplicates,
            attributes,
            role,
        })
    }

    fn stat<T>(&mut self, what: &str, item: impl FnOnce(&mut Self) -> Result<T>) -> Result<Stat<T>> {
        Ok(match self.u8(what)? {
            0 => Stat::Absent,
            1 => Stat::Exact(item(self)?),
            2 => Stat::Bound(item(self)?),
            other => return Err(self.corrupt(what, format!("unknown exactness {other}"))),
        })
    }

    pub(crate) fn stats(&mut self, cells: u64) -> Result<ChunkStats> {
        Ok(ChunkStats {
            cells,
            nulls: self.stat("null count", |r| r.u64("null count"))?,
            nans: self.stat("NaN count", |r| r.u64("NaN count"))?,
            min: self.stat("minimum", |r| r.scalar("minimum"))?,
            max: self.stat("maximum", |r| r.scalar("maximum"))?,
            sum: self.stat("sum", |r| {
                if r.flag("sum")? {
                    Ok(Sum::Float(f64::from_le_bytes(r.0.array("sum")?)))
                } else {
                    Ok(Sum::Int(i128::from_le_bytes(r.0.array("sum")?)))
                }
            })?,
            partial_sum: None,
            missing: self.scalars("values without statistics")?,
        })
    }

    fn scalars(&mut self, what: &str) -> Result<Vec<Scalar>> {
        let count = self.u8(what)?;
        (0..count).map(|_| self.scalar(what)).collect()
    }

    pub(crate) fn finish(self) -> Result<()> {
        match self.0.rest().len() {
            0 => Ok(()),
            n => Err(self.corrupt("directory", format!("{n} trailing bytes"))),
        }
    }
}

/// Writes a directory.
#[derive(Debug, Default)]
pub(crate) struct DirectoryWriter(pub(crate) Vec<u8>);

impl DirectoryWriter {
    pub(crate) fn u8(&mut self, v: u8) {
        self.0.push(v);
    }

    pub(crate) fn u32(&mut self, v: u32) {
        self.0.extend(v.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, v: u64) {
        self.0.extend(v.to_le_bytes());
    }

    pub(crate) fn count(&mut self, n: usize) {
        self.u32(n as u32);
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend(bytes);
    }

    pub(crate) fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    pub(crate) fn scalar(&mut self, scalar: &Scalar) {
        self.text(&scalar.dtype().to_string());
        self.bytes(scalar.bytes());
    }

    pub(crate) fn optional<T>(&mut self, item: Option<&T>, put: impl FnOnce(&mut Self, &T)) {
        self.u8(u8::from(item.is_some()));
        if let Some(item) = item {
            put(self, item);
        }
    }

    pub(crate) fn region(&mut self, region: &Region) {
        for &(start, end) in region.bounds() {
            self.u64(start);
            self.u64(end);
        }
    }

    /// # Errors
    /// `Unsupported` for a value that the layout cannot represent.
    pub(crate) fn attributes(&mut self, attributes: &Attributes) -> Result<()> {
        self.count(attributes.len());
        for (name, value) in attributes {
            self.text(name);
            match value {
                Value::Text(text) => {
                    self.u8(0);
                    self.text(text);
                }
                Value::Int(v) => {
                    self.u8(1);
                    self.u64(v.cast_unsigned());
                }
                Value::Float(v) => {
                    self.u8(2);
                    self.u64(v.to_bits());
                }
                Value::Bool(v) => {
                    self.u8(3);
                    self.u8(u8::from(*v));
                }
                _ => return Err(Error::unsupported(format!("attribute {name:?} of this type"))),
            }
        }
        Ok(())
    }

    /// # Errors
    /// `Unsupported` for features that the layout cannot represent.
    pub(crate) fn schema(&mut self, schema: &ArraySchema) -> Result<()> {
        self.text(&schema.name);
        self.count(schema.dims.len());
        for dim in &schema.dims {
            if dim.labels.is_some() {
                return Err(Error::unsupported("labels").in_array(&schema.name));
            }
            self.text(&dim.name);
            self.text(&dim.dtype.to_string());
            self.optional(dim.extent.as_ref(), |s, v| s.u64(*v));
            self.optional(dim.domain.as_ref(), |s, (low, high)| {
                s.scalar(low);
                s.scalar(high);
            });
        }
        self.count(schema.fields.len());
        for field in &schema.fields {
            let odd = matches!(field.cell, CellLen::Fixed(0 | 1)) || field.dtype.class() == Class::Bits;
            if odd || field.enumeration.is_some() {
                let feature = format!("enumerations, bitmasks and cells of {:?}", field.cell);
                return Err(Error::unsupported(feature).in_array(&schema.name));
            }
            self.text(&field.name);
            self.text(&field.dtype.to_string());
            self.u32(match field.cell {
                CellLen::Var => 0,
                CellLen::One => 1,
                CellLen::Fixed(n) => n,
            });
            self.u8(u8::from(field.nullable));
            self.optional(field.fill.as_ref(), Self::scalar);
            self.scalars(&field.missing);
        }
        self.optional(schema.chunk_shape.as_ref(), |s, shape| shape.iter().for_each(|&n| s.u64(n)));
        self.u8(match schema.cell_order {
            Order::RowMajor => 0,
            Order::ColMajor => 1,
            Order::Hilbert => return Err(Error::unsupported("Hilbert order").in_array(&schema.name)),
        });
        self.u8(u8::from(schema.sparse));
        self.u8(u8::from(schema.allows_duplicates));
        self.attributes(&schema.attributes)
    }

    fn stat<T>(&mut self, stat: &Stat<T>, put: impl FnOnce(&mut Self, &T)) {
        let (tag, value) = match stat {
            Stat::Absent => (0, None),
            Stat::Exact(value) => (1, Some(value)),
            Stat::Bound(value) => (2, Some(value)),
        };
        self.u8(tag);
        if let Some(value) = value {
            put(self, value);
        }
    }

    pub(crate) fn stats(&mut self, stats: &ChunkStats) {
        self.stat(&stats.nulls, |s, v| s.u64(*v));
        self.stat(&stats.nans, |s, v| s.u64(*v));
        self.stat(&stats.min, Self::scalar);
        self.stat(&stats.max, Self::scalar);
        self.stat(&stats.sum, |s, sum| match sum {
            Sum::Int(v) => {
                s.u8(0);
                s.0.extend(v.to_le_bytes());
            }
            Sum::Float(v) => {
                s.u8(1);
                s.0.extend(v.to_le_bytes());
            }
        });
        self.scalars(&stats.missing);
    }

    fn scalars(&mut self, values: &[Scalar]) {
        self.u8(u8::try_from(values.len()).unwrap_or(u8::MAX));
        values.iter().take(usize::from(u8::MAX)).for_each(|value| self.scalar(value));
    }
}
