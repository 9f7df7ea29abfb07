//! Footers of fragments, at the end of the fragment metadata file.
//!
//! Every list has one entry per *slot*: the attributes, one for the legacy zipped coordinates, the dimensions, then timestamps,
//! delete timestamps and delete conditions if the fragment has them.

use tesseral_core::{Cursor, Result};

use super::primitive::{put_text64, put_u64};
use super::schema::{Schema, StoredRange, put_ranges, ranges};

/// A fragment's footer.
#[derive(Clone, Debug, PartialEq)]
pub struct Footer {
    /// Format version.
    pub version: u32,
    /// File name of its schema.
    pub schema: String,
    /// Whether the fragment is dense.
    pub dense: bool,
    /// The smallest box around its cells; `None` if it has no cells.
    pub domain: Option<Vec<StoredRange>>,
    /// Number of tiles of a sparse fragment.
    pub tiles: u64,
    /// Number of cells of the last tile (sparse) or of every tile (dense).
    pub last_tile_cells: u64,
    /// Whether cells have write timestamps.
    pub timestamps: bool,
    /// Whether cells have delete timestamps and conditions.
    pub deletes: bool,
    /// File sizes by slot: values or offsets, variable-length data, validity.
    pub files: [Vec<u64>; 3],
    /// Offset of the R-tree.
    pub rtree: u64,
    /// Offsets of lists by slot: see [`List`].
    pub lists: Vec<Vec<u64>>,
    /// Offset of the fragment statistics.
    pub statistics: Option<u64>,
    /// Offset of the processed conditions.
    pub conditions: Option<u64>,
}

/// Lists of a fragment, in the order of the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum List {
    Offsets,
    VarOffsets,
    VarSizes,
    ValidityOffsets,
    Mins,
    Maxs,
    Sums,
    NullCounts,
}

/// Parses only the name of the schema, which is needed to parse the rest.
///
/// # Errors
/// `Corrupt`, `Unsupported`.
pub fn schema_name(object: &str, bytes: &[u8]) -> Result<String> {
    let cursor = &mut Cursor::new(object, bytes);
    let version = cursor.u32("the footer's version")?;
    super::check_version(version)?;
    name_of_schema(cursor, version)
}

fn name_of_schema(cursor: &mut Cursor<'_>, version: u32) -> Result<String> {
    match version {
        ..10 => Ok(super::ONLY_SCHEMA.to_owned()),
        _ => cursor.text64("the footer's schema name"),
    }
}

/// Length of the footer of a version before 10, which stores it only if a dimension is variable-length.
pub fn implied_len(version: u32, schema: &Schema) -> Option<u64> {
    if version >= 10 || schema.dims.iter().any(|dim| dim.var) {
        return None;
    }
    let slots = (schema.attributes.len() + 1 + schema.dims.len()) as u64;
    let domain: usize = schema.dims.iter().map(|dim| 2 * dim.datatype.size()).sum();
    // Files and lists by slot; without validity before version 7.
    let lists = if version >= 7 { 3 + 4 } else { 2 + 3 };
    slots.checked_mul(8 * lists)?.checked_add(4 + 2 + domain as u64 + 16 + 8)
}

impl Footer {
    /// Parses a footer. `schema` is the one named by [`schema_name`].
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`.
    pub fn parse(object: &str, bytes: &[u8], schema: &Schema) -> Result<Self> {
        let cursor = &mut Cursor::new(object, bytes);
        let version = cursor.u32("the footer's version")?;
        super::check_version(version)?;
        let name = name_of_schema(cursor, version)?;
        let dense = cursor.flag("whether the fragment is dense")?;
        let null = cursor.flag("whether the fragment is empty")?;
        let domain = if null {
            let bytes = schema.dims.iter().map(|d| 2 * d.datatype.size()).sum();
            cursor.take(bytes, "the empty domain")?;
            None
        } else {
            Some(ranges(cursor, &schema.dims, "the non-empty domain")?)
        };
        let tiles = cursor.u64("the sparse tiles")?;
        // A fragment with a domain but no tiles would be ignored silently.
        if !dense && domain.is_some() != (tiles > 0) {
            let domain = if domain.is_some() { "a domain" } else { "no domain" };
            return Err(cursor.corrupt("the sparse tiles", format!("{tiles} tiles and {domain}")));
        }
        let last_tile_cells = cursor.u64("the cells of the last tile")?;
        let timestamps = version >= 14 && cursor.flag("whether cells have timestamps")?;
        let deletes = version >= 15 && cursor.flag("whether cells have delete metadata")?;
        let slots = schema.attributes.len()
            + 1
            + schema.dims.len()
            + usize::from(timestamps)
            + 2 * usize::from(deletes);
        let slots = slots as u64;
        let values = cursor.u64s(slots, "the file sizes")?;
        let var = cursor.u64s(slots, "the var file sizes")?;
        let validity = match version {
            ..7 => vec![0; values.len()],
            _ => cursor.u64s(slots, "the validity file sizes")?,
        };
        let files = [values, var, validity];
        let rtree = cursor.u64("the R-tree's offset")?;
        let count = match version {
            11.. => 8,
            7.. => 4,
            _ => 3,
        };
        let lists = (0..count).map(|_| cursor.u64s(slots, "the offsets of lists")).collect::<Result<_>>()?;
        let statistics = if version >= 11 { Some(cursor.u64("the offset of statistics")?) } else { None };
        let conditions =
            if version >= 16 { Some(cursor.u64("the offset of processed conditions")?) } else { None };
        Ok(Self {
            version,
            schema: name,
            dense,
            domain,
            tiles,
            last_tile_cells,
            timestamps,
            deletes,
            files,
            rtree,
            lists,
            statistics,
            conditions,
        })
    }

    /// Offset of a list of a slot.
    pub fn list(&self, list: List, slot: usize) -> Option<u64> {
        self.lists.get(list as usize)?.get(slot).copied()
    }

    /// Offsets of all sections, to determine their ends.
    pub fn offsets(&self) -> impl Iterator<Item = u64> {
        let lists = self.lists.iter().flatten().copied();
        lists.chain([self.rtree]).chain(self.statistics).chain(self.conditions)
    }
}

impl Footer {
    /// Appends the footer and its length.
    ///
    /// # Errors
    /// `Unsupported` for a version that cannot be written.
    pub fn write(&self, schema: &Schema, out: &mut Vec<u8>) -> Result<()> {
        super::check_written(self.version)?;
        let start = out.len();
        out.extend_from_slice(&self.version.to_le_bytes());
        put_text64(&self.schema, out);
        out.extend_from_slice(&[u8::from(self.dense), u8::from(self.domain.is_none())]);
        match &self.domain {
            Some(domain) => put_ranges(domain, &schema.dims, out),
            None => schema.dims.iter().for_each(|d| out.extend(vec![0; 2 * d.datatype.size()])),
        }
        put_u64(self.tiles, out);
        put_u64(self.last_tile_cells, out);
        if self.version >= 14 {
            out.push(u8::from(self.timestamps));
        }
        if self.version >= 15 {
            out.push(u8::from(self.deletes));
        }
        self.files.iter().flatten().for_each(|n| put_u64(*n, out));
        put_u64(self.rtree, out);
        let lists = if self.version >= 11 { 8 } else { 4 };
        self.lists.iter().take(lists).flatten().for_each(|n| put_u64(*n, out));
        if self.version >= 11 {
            put_u64(self.statistics.unwrap_or(0), out);
        }
        if self.version >= 16 {
            put_u64(self.conditions.unwrap_or(0), out);
        }
        put_u64((out.len() - start) as u64, out);
        Ok(())
    }
}
