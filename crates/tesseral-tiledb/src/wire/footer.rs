//! Footers of fragments, at the end of the fragment metadata file.
//!
//! Every list has one entry per *slot*: the attributes, one for the legacy zipped coordinates, the dimensions, then timestamps,
//! delete timestamps and delete conditions if the fragment has them. Before version 5, the zipped coordinates are the last slot.

use tesseral_core::{Cursor, Result};

use super::primitive::{put_text64, put_u64};
use super::schema::{Schema, StoredRange, put_ranges, ranges};
use super::single_tile::{self, LoadedSections};

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
    /// Offsets of lists by slot: see [`FooterList`].
    pub lists: Vec<Vec<u64>>,
    /// Offset of the fragment statistics.
    pub statistics: Option<u64>,
    /// Offset of the processed conditions.
    pub conditions: Option<u64>,
    /// Lists and boxes of versions 1 and 2, which are stored together with the rest.
    pub loaded: Option<Box<LoadedSections>>,
}

/// Lists of a fragment, in the order of the footer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FooterList {
    Offsets,
    VarOffsets,
    VarSizes,
    ValidityOffsets,
    Mins,
    Maxs,
    Sums,
    NullCounts,
}

/// Marks a list that the version does not store.
const NO_LIST: u64 = u64::MAX;

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
    let attributes = schema.attributes.len() as u64;
    let domain: usize = schema.dims.iter().map(|dim| 2 * dim.datatype.size()).sum();
    let slots = attributes + 1 + schema.dims.len() as u64;
    // Files and lists by slot; without validity before version 7.
    let numbers = match version {
        // Coordinates have one file and one list.
        ..5 => attributes.checked_mul(2 + 3)?.checked_add(2)?,
        5..7 => slots.checked_mul(2 + 3)?,
        _ => slots.checked_mul(3 + 4)?,
    };
    numbers.checked_mul(8)?.checked_add(4 + 2 + domain as u64 + 16 + 8)
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
        if version <= 2 {
            return single_tile::parse(cursor, version, schema)?.checked(cursor);
        }
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
        let last_tile_cells = cursor.u64("the cells of the last tile")?;
        let timestamps = version >= 14 && cursor.flag("whether cells have timestamps")?;
        let deletes = version >= 15 && cursor.flag("whether cells have delete metadata")?;
        let attributes = schema.attributes.len() as u64;
        let dims = if version < 5 { 0 } else { schema.dims.len() as u64 };
        let slots = attributes + 1 + dims + u64::from(timestamps) + 2 * u64::from(deletes);
        // Zipped coordinates have no variable-length data.
        let var_slots = if version < 5 { attributes } else { slots };
        let all = usize::try_from(slots).unwrap_or(usize::MAX);
        let values = cursor.u64s(slots, "the file sizes")?;
        let mut var = cursor.u64s(var_slots, "the var file sizes")?;
        var.resize(values.len(), 0);
        let validity = match version {
            ..7 => vec![0; values.len()],
            _ => cursor.u64s(slots, "the validity file sizes")?,
        };
        let files = [values, var, validity];
        let rtree = cursor.u64("the R-tree's offset")?;
        let count = match version {
            11.. => 8,
            7.. => 4,
            _ => 3_usize,
        };
        let mut lists = Vec::with_capacity(count);
        for list in 0..count {
            let stored = if list == FooterList::Offsets as usize { slots } else { var_slots };
            let mut offsets = cursor.u64s(stored, "the offsets of lists")?;
            offsets.resize(all, NO_LIST);
            lists.push(offsets);
        }
        let statistics = if version >= 11 { Some(cursor.u64("the offset of statistics")?) } else { None };
        let conditions =
            if version >= 16 { Some(cursor.u64("the offset of processed conditions")?) } else { None };
        let footer = Self {
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
            loaded: None,
        };
        footer.checked(cursor)
    }

    /// Rejects a fragment with a domain but no tiles, which would be ignored silently.
    fn checked(self, cursor: &Cursor<'_>) -> Result<Self> {
        if !self.dense && self.domain.is_some() != (self.tiles > 0) {
            let domain = if self.domain.is_some() { "a domain" } else { "no domain" };
            return Err(cursor.corrupt("the sparse tiles", format!("{} tiles and {domain}", self.tiles)));
        }
        Ok(self)
    }

    /// Returns whether the coordinates of all dimensions are in one file.
    pub fn is_zipped(&self) -> bool {
        self.version < 5
    }

    /// Offset of a list of a slot; `None` for lists that the version lacks.
    pub fn list(&self, list: FooterList, slot: usize) -> Option<u64> {
        self.lists.get(list as usize)?.get(slot).copied().filter(|offset| *offset != NO_LIST)
    }

    /// Offsets of all sections, to determine their ends.
    pub fn offsets(&self) -> impl Iterator<Item = u64> {
        let lists = self.lists.iter().flatten().copied().filter(|offset| *offset != NO_LIST);
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
