//! The bytes of an index.
//!
//! | offset | size | header |
//! |---|---|---|
//! | 0 | 8 | `89 54 49 58 0D 0A 1A 0A` |
//! | 8 | 4 | version, 1 |
//! | 12 | 4 | 0 |
//! | 16 | 8 | number of entries of the chunk table, which follows the header |
//! | 24 | 8 | length of the metadata, which follows the chunk table |
//! | 32 | 8 | XXH3-64 of the chunk table |
//! | 40 | 8 | XXH3-64 of the metadata |
//! | 48 | 8 | 0 |
//! | 56 | 8 | XXH3-64 of the bytes before |

use bytes::Bytes;
use tesseral_core::{
    ArraySchema, Attributes, CellLen, ChunkGrid, Coords, CountedValues, Cursor, DType, Dimension, Error,
    Field, Limits, Order, Result, Scalar, missing,
};
use tesseral_format::Groups;
use xxhash_rust::xxh3::xxh3_64;

use crate::attributes::{self, bytes32, put_attributes, put_bytes, put_scalar, put_text};
use crate::chunk::{ChunkEntry, ENTRY};
use crate::sources::SourceState;

pub(crate) const MAGIC: [u8; 8] = *b"\x89TIX\r\n\x1a\n";
pub(crate) const HEADER: usize = 64;
const VERSION: u32 = 1;
/// The most dimensions of an array.
const RANK: usize = 64;
/// Marks an array that is not joined.
const NONE: u32 = u32::MAX;

/// A file or folder that chunks are in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedSource {
    /// Path or URL; a relative path is relative to the folder of the index.
    pub path: String,
    /// Id of its format.
    pub format: String,
    /// Its state when it was indexed.
    pub state: SourceState,
}

/// How the chunks of pieces are decoded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FormKind {
    /// Their bytes are the cells.
    Stored,
    /// By a decoder that the format restores from these bytes.
    Recipe(Vec<u8>),
    /// The source is opened; the chunk table has no entries.
    Opened,
    /// The cells are these bytes, little-endian: the array is in the index. The chunk table has no entries.
    Inline(Vec<u8>),
}

/// Common properties of the chunks of pieces.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChunkForm {
    /// Id of the format.
    pub format: String,
    /// Name of the array in its source.
    pub name: String,
    /// How chunks are decoded.
    pub kind: FormKind,
    /// Chunk shape in the source.
    pub chunk: Coords,
}

impl ChunkForm {
    /// Whether the source is opened to read its chunks.
    pub fn is_opened(&self) -> bool {
        self.kind == FormKind::Opened
    }
}

/// A complete array of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Number of the source.
    pub source: u32,
    /// Number of the form.
    pub form: u32,
    /// Position of its first cell along the joined dimension.
    pub start: u64,
    /// Positions along the joined dimension.
    pub extent: u64,
    /// Number of its first entry in the chunk table.
    pub entry: u64,
}

/// An array of the index.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexedArray {
    /// Its schema.
    pub schema: ArraySchema,
    /// The dimension along which pieces are joined; arrays of one piece need none.
    pub axis: Option<usize>,
    /// The joined dimension does not exist in the sources.
    pub new_axis: bool,
    /// The pieces, sorted by position.
    pub pieces: Vec<Piece>,
}

/// The content of an index.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IndexContent {
    /// The sources.
    pub sources: Vec<IndexedSource>,
    /// The forms.
    pub forms: Vec<ChunkForm>,
    /// The arrays.
    pub arrays: Vec<IndexedArray>,
    /// Attributes of the dataset.
    pub attributes: Attributes,
    /// Attributes of its groups.
    pub groups: Groups,
    /// The chunk table.
    pub table: Bytes,
}

impl IndexedArray {
    /// Shape of a piece in its source.
    pub(crate) fn piece_shape(&self, piece: &Piece) -> Coords {
        let mut shape = self.schema.shape().unwrap_or_default();
        match self.axis {
            Some(axis) if self.new_axis => drop(shape.remove(axis)),
            Some(axis) => shape[axis] = piece.extent,
            None => {}
        }
        shape
    }
}

impl IndexContent {
    /// Appends an entry to the chunk table.
    pub fn push_entries(table: &mut Vec<u8>, entries: &[ChunkEntry]) -> u64 {
        let first = table.len() / ENTRY;
        entries.iter().for_each(|entry| table.extend_from_slice(&entry.to_bytes()));
        first as u64
    }

    /// Puts the cells of an array, little-endian, into the index.
    pub fn set_inline(&mut self, array: usize, cells: Vec<u8>) {
        let Some(array) = self.arrays.get_mut(array) else { return };
        let shape = array.schema.shape().unwrap_or_default();
        let (format, name) = (crate::ID.to_owned(), array.schema.name.clone());
        let form = u32::try_from(self.forms.len()).unwrap_or(u32::MAX);
        let chunk = shape.iter().map(|n| (*n).max(1)).collect();
        self.forms.push(ChunkForm { format, name, kind: FormKind::Inline(cells), chunk });
        (array.axis, array.new_axis) = (None, false);
        array.pieces = vec![Piece { source: 0, form, start: 0, extent: 1, entry: 0 }];
    }

    /// Number of chunks in the table.
    pub fn chunks(&self) -> u64 {
        (self.table.len() / ENTRY) as u64
    }

    /// The bytes of an index.
    ///
    /// # Errors
    /// `Unsupported` for attributes without a representation.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut metadata = Vec::new();
        let out = &mut metadata;
        put_count(out, self.sources.len());
        for source in &self.sources {
            put_text(out, &source.path);
            put_text(out, &source.format);
            out.extend_from_slice(&source.state.len.unwrap_or(u64::MAX).to_le_bytes());
            out.extend_from_slice(&source.state.version.unwrap_or(i64::MIN).to_le_bytes());
        }
        put_count(out, self.forms.len());
        for form in &self.forms {
            put_text(out, &form.format);
            put_text(out, &form.name);
            let (kind, recipe): (u8, &[u8]) = match &form.kind {
                FormKind::Stored => (0, &[]),
                FormKind::Recipe(recipe) => (1, recipe),
                FormKind::Opened => (2, &[]),
                FormKind::Inline(cells) => (3, cells),
            };
            out.push(kind);
            put_bytes(out, recipe);
            put_coords(out, &form.chunk);
        }
        put_count(out, self.arrays.len());
        for array in &self.arrays {
            put_array(out, array)?;
        }
        put_attributes(out, &self.attributes)?;
        put_count(out, self.groups.len());
        for (path, attributes) in &self.groups {
            put_text(out, path);
            put_attributes(out, attributes)?;
        }
        Ok(seal(&self.table, &metadata))
    }

    /// Parses an index.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` for other versions, `Limit`.
    pub fn parse(file: &Bytes, object: &str, limits: Limits) -> Result<Self> {
        let corrupt = |at: u64, detail: &str| Error::corrupt("index", object, at, detail);
        let mut header = Cursor::new(object, file);
        if header.array::<8>("signature")? != MAGIC {
            return Err(corrupt(0, "not an index"));
        }
        let version = header.u32("version")?;
        if version != VERSION {
            return Err(Error::unsupported(format!("index version {version} in {object}")));
        }
        header.u32("reserved")?;
        let (entries, metadata) = (header.u64("entries")?, header.u64("metadata length")?);
        let sums = [header.u64("digest")?, header.u64("digest")?];
        header.u64("reserved")?;
        if header.u64("digest of the header")? != xxh3_64(&file[..HEADER - 8]) {
            return Err(corrupt(0, "digest mismatch of the header"));
        }
        let table_len = entries.checked_mul(ENTRY as u64);
        let end = table_len.and_then(|len| len.checked_add(HEADER as u64)?.checked_add(metadata));
        if end != Some(file.len() as u64) {
            let expected = end.unwrap_or(u64::MAX);
            return Err(Error::truncated("index", object, 0, expected, file.len() as u64));
        }
        let split = file.len() - usize::try_from(metadata).unwrap_or(usize::MAX);
        let (table, metadata) = (file.slice(HEADER..split), file.slice(split..));
        if [xxh3_64(&table), xxh3_64(&metadata)] != sums {
            return Err(corrupt(HEADER as u64, "digest mismatch"));
        }
        limits.check_metadata(metadata.len() as u64)?;
        let mut counted = CountedValues::new(limits, metadata.len() as u64);
        let mut out = Self { table, ..Self::default() };
        let mut cursor = Cursor::at_offset(object, &metadata, split as u64);
        for _ in 0..count(&mut cursor, 24, "sources")? {
            out.sources.push(IndexedSource {
                path: cursor.text32("path")?,
                format: cursor.text32("format")?,
                state: SourceState {
                    len: Some(cursor.u64("length")?).filter(|len| *len != u64::MAX),
                    version: Some(cursor.u64("version")?.cast_signed()).filter(|own| *own != i64::MIN),
                },
            });
        }
        for _ in 0..count(&mut cursor, 17, "forms")? {
            let (format, name) = (cursor.text32("format")?, cursor.text32("name")?);
            let kind = cursor.u8("kind")?;
            let recipe = bytes32(&mut cursor, "recipe")?.to_vec();
            let kind = match kind {
                0 => FormKind::Stored,
                1 => FormKind::Recipe(recipe),
                2 => FormKind::Opened,
                3 => FormKind::Inline(recipe),
                _ => return Err(corrupt(cursor.at(), "unknown form of chunks")),
            };
            let chunk = coords(&mut cursor, object)?;
            out.forms.push(ChunkForm { format, name, kind, chunk });
        }
        for _ in 0..count(&mut cursor, 40, "arrays")? {
            let array = array(&mut cursor, object, &mut counted)?;
            out.check_array(&array, object)?;
            out.arrays.push(array);
        }
        out.attributes = attributes::attributes(&mut cursor, object, &mut counted)?;
        for _ in 0..count(&mut cursor, 8, "groups")? {
            let path = cursor.text32("group")?;
            out.groups.insert(path, attributes::attributes(&mut cursor, object, &mut counted)?);
        }
        if !cursor.rest().is_empty() {
            return Err(corrupt(cursor.at(), "bytes after the metadata"));
        }
        if !out.table.as_chunks::<ENTRY>().0.iter().all(|bytes| ChunkEntry::from_bytes(bytes).is_valid()) {
            return Err(corrupt(HEADER as u64, "invalid entry of the chunk table"));
        }
        Ok(out)
    }

    /// Checks that pieces cover the array exactly and that their sources, forms and entries exist.
    fn check_array(&self, array: &IndexedArray, object: &str) -> Result<()> {
        let corrupt = |detail: String| {
            Error::corrupt("index", object, None, detail).in_array(array.schema.name.clone())
        };
        let shape = array.schema.shape().unwrap_or_default();
        let along = match array.axis {
            Some(axis) => *shape.get(axis).ok_or_else(|| corrupt("invalid dimension".to_owned()))?,
            None if array.pieces.len() == 1 => 1,
            None => return Err(corrupt(format!("{} pieces, but no dimension", array.pieces.len()))),
        };
        let entries = (self.table.len() / ENTRY) as u64;
        let mut next = 0_u64;
        for piece in &array.pieces {
            let form = usize::try_from(piece.form).ok().and_then(|form| self.forms.get(form));
            let form = form.ok_or_else(|| corrupt("unknown form of chunks".to_owned()))?;
            if piece.source as usize >= self.sources.len() || piece.start != next {
                return Err(corrupt(format!("invalid piece at position {}", piece.start)));
            }
            if array.new_axis && piece.extent != 1 {
                return Err(corrupt("a piece with several positions along a new dimension".to_owned()));
            }
            next = next.checked_add(piece.extent).ok_or_else(|| corrupt("invalid extent".to_owned()))?;
            if let FormKind::Inline(cells) = &form.kind {
                let size = array.schema.fields[0].cell_size().map(|size| size as u64);
                let mut extents = array.piece_shape(piece).into_iter();
                let bytes = size.and_then(|size| extents.try_fold(size, u64::checked_mul));
                if bytes != Some(cells.len() as u64) {
                    return Err(corrupt(format!("{} bytes of cells", cells.len())));
                }
            } else if form.kind != FormKind::Opened {
                let grid = ChunkGrid::new(&array.piece_shape(piece), &form.chunk)
                    .map_err(|e| corrupt(e.to_string()))?;
                let ends =
                    grid.counts().iter().zip(&form.chunk).all(|(n, extent)| n.checked_mul(*extent).is_some());
                let last = piece.entry.checked_add(grid.total());
                if !ends || last.is_none_or(|last| last > entries) {
                    return Err(corrupt("the chunk table is too short".to_owned()));
                }
            }
        }
        if next == along { Ok(()) } else { Err(corrupt(format!("pieces of {next} of {along} positions"))) }
    }
}

/// The file of a chunk table and metadata.
pub fn seal(table: &[u8], metadata: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(HEADER + table.len() + metadata.len());
    file.extend_from_slice(&MAGIC);
    file.extend_from_slice(&VERSION.to_le_bytes());
    file.extend_from_slice(&[0; 4]);
    file.extend_from_slice(&((table.len() / ENTRY) as u64).to_le_bytes());
    file.extend_from_slice(&(metadata.len() as u64).to_le_bytes());
    file.extend_from_slice(&xxh3_64(table).to_le_bytes());
    file.extend_from_slice(&xxh3_64(metadata).to_le_bytes());
    file.extend_from_slice(&[0; 8]);
    let sum = xxh3_64(&file);
    file.extend_from_slice(&sum.to_le_bytes());
    file.extend_from_slice(table);
    file.extend_from_slice(metadata);
    file
}

fn put_count(out: &mut Vec<u8>, count: usize) {
    out.extend_from_slice(&(count as u32).to_le_bytes());
}

fn put_coords(out: &mut Vec<u8>, coords: &[u64]) {
    put_count(out, coords.len());
    coords.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
}

fn put_array(out: &mut Vec<u8>, array: &IndexedArray) -> Result<()> {
    let schema = &array.schema;
    let [field] = schema.fields.as_slice() else {
        return Err(Error::unsupported("arrays of several fields in an index").in_array(&schema.name));
    };
    put_text(out, &schema.name);
    put_text(out, &field.name);
    put_text(out, &field.dtype.to_string());
    let (kind, elements) = match field.cell {
        CellLen::One => (0_u8, 1),
        CellLen::Fixed(n) => (1, n),
        CellLen::Var => (2, 0),
    };
    out.push(kind);
    out.extend_from_slice(&elements.to_le_bytes());
    out.push(u8::from(schema.cell_order == Order::ColMajor));
    out.push(u8::from(field.fill.is_some()));
    if let Some(fill) = &field.fill {
        put_scalar(out, fill);
    }
    put_count(out, field.codecs.len());
    field.codecs.iter().for_each(|codec| put_text(out, codec));
    put_count(out, schema.dims.len());
    for dim in &schema.dims {
        put_text(out, &dim.name);
        out.extend_from_slice(&dim.extent.unwrap_or(0).to_le_bytes());
    }
    put_coords(out, schema.chunk_shape.as_deref().unwrap_or_default());
    put_attributes(out, &schema.attributes)?;
    out.extend_from_slice(&array.axis.map_or(NONE, |axis| axis as u32).to_le_bytes());
    out.push(u8::from(array.new_axis));
    put_count(out, array.pieces.len());
    for piece in &array.pieces {
        out.extend_from_slice(&piece.source.to_le_bytes());
        out.extend_from_slice(&piece.form.to_le_bytes());
        for word in [piece.start, piece.extent, piece.entry] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
    Ok(())
}

/// A number of elements of at least `each` bytes, which the remaining bytes can hold.
fn count(cursor: &mut Cursor<'_>, each: usize, what: &str) -> Result<usize> {
    let count = cursor.u32(what)?;
    cursor.count(count.into(), each, what)
}

fn coords(cursor: &mut Cursor<'_>, object: &str) -> Result<Coords> {
    let rank = count(cursor, 8, "rank")?;
    if rank > RANK {
        return Err(Error::corrupt("index", object, cursor.at(), format!("{rank} dimensions")));
    }
    (0..rank).map(|_| cursor.u64("extent")).collect()
}

fn array(cursor: &mut Cursor<'_>, object: &str, counted: &mut CountedValues) -> Result<IndexedArray> {
    let (name, own) = (cursor.text32("name")?, cursor.text32("field name")?);
    let dtype: DType = attributes::dtype(cursor, object)?;
    let (kind, elements) = (cursor.u8("cell length")?, cursor.u32("elements")?);
    let cell = match kind {
        0 => CellLen::One,
        1 => CellLen::Fixed(elements),
        2 => CellLen::Var,
        _ => return Err(Error::corrupt("index", object, cursor.at(), "unknown kind of cells")),
    };
    let col_major = cursor.flag("order")?;
    let fill: Option<Scalar> = match cursor.flag("fill value")? {
        true => Some(attributes::scalar(cursor, object)?),
        false => None,
    };
    let codecs = (0..count(cursor, 4, "codecs")?).map(|_| cursor.text32("codec")).collect::<Result<_>>()?;
    let rank = count(cursor, 12, "dimensions")?;
    if rank > RANK {
        return Err(Error::corrupt("index", object, cursor.at(), format!("{rank} dimensions")));
    }
    let mut dims = Vec::new();
    for _ in 0..rank {
        let name = cursor.text32("dimension")?;
        dims.push(Dimension::new(name, cursor.u64("extent")?));
    }
    let shape: Coords = dims.iter().filter_map(|dim| dim.extent).collect();
    let chunk = coords(cursor, object)?;
    ChunkGrid::new(&shape, &chunk)
        .map_err(|e| Error::corrupt("index", object, cursor.at(), e.to_string()).in_array(&name))?;
    let mut schema = ArraySchema::dense(&name, dtype, &shape, &chunk);
    schema.dims = dims;
    schema.cell_order = if col_major { Order::ColMajor } else { Order::RowMajor };
    schema.attributes = attributes::attributes(cursor, object, counted)?;
    schema.fields[0] = Field { cell, fill, codecs, ..Field::new(own, dtype) };
    missing::declare(&mut schema);
    let axis = Some(cursor.u32("joined dimension")?).filter(|axis| *axis != NONE);
    let axis = axis.map(|axis| usize::try_from(axis).unwrap_or(usize::MAX));
    let new_axis = cursor.flag("new dimension")? && axis.is_some();
    let pieces = count(cursor, 32, "pieces")?;
    let mut array = IndexedArray { schema, axis, new_axis, pieces: Vec::new() };
    for _ in 0..pieces {
        array.pieces.push(Piece {
            source: cursor.u32("source")?,
            form: cursor.u32("form")?,
            start: cursor.u64("position")?,
            extent: cursor.u64("extent")?,
            entry: cursor.u64("entry")?,
        });
    }
    Ok(array)
}

#[cfg(test)]
mod tests {
    use tesseral_core::Value;

    use super::*;

    fn content() -> IndexContent {
        let mut schema = ArraySchema::dense("t", DType::Float32, &[5, 4], &[2, 4]);
        schema.attributes.insert("units".to_owned(), Value::from("K"));
        schema
            .attributes
            .insert("list".to_owned(), Value::List(vec![Value::Int(-1), Value::Float(f64::NAN)]));
        let entry = ChunkEntry { offset: 100, len: 32, object: 0, flags: 0b10_0101 };
        let mut table = Vec::new();
        IndexContent::push_entries(&mut table, &[entry; 3]);
        let form = |kind| ChunkForm {
            format: "f".to_owned(),
            name: "t".to_owned(),
            kind,
            chunk: Coords::from_slice(&[2, 4]),
        };
        let source = |path: &str| IndexedSource {
            path: path.to_owned(),
            format: "f".to_owned(),
            state: SourceState { len: Some(7), version: None },
        };
        let piece = |source, start, extent, entry| Piece { source, form: source, start, extent, entry };
        IndexContent {
            sources: vec![source("a"), source("b/c")],
            forms: vec![form(FormKind::Stored), form(FormKind::Recipe(vec![1, 2]))],
            arrays: vec![IndexedArray {
                schema,
                axis: Some(0),
                new_axis: false,
                pieces: vec![piece(0, 0, 4, 0), piece(1, 4, 1, 2)],
            }],
            attributes: Attributes::from([("title".to_owned(), Value::from("demo"))]),
            groups: Groups::from([("g".to_owned(), Attributes::new())]),
            table: Bytes::from(table),
        }
    }

    fn parse(file: &[u8]) -> Result<IndexContent> {
        IndexContent::parse(&Bytes::copy_from_slice(file), "o", Limits::default())
    }

    #[test]
    fn content_round_trips_and_every_damaged_byte_is_detected() {
        let file = content().to_bytes().unwrap();
        assert_eq!(parse(&file).unwrap(), content());
        for len in 0..file.len() {
            assert!(parse(&file[..len]).is_err(), "{len}");
        }
        for at in 0..file.len() {
            let mut damaged = file.clone();
            damaged[at] ^= 1;
            assert!(parse(&damaged).is_err(), "{at}");
        }
    }

    #[test]
    fn values_of_attributes_are_bounded() {
        let of = |count| {
            let mut content = content();
            content.attributes.insert("nulls".to_owned(), Value::List(vec![Value::Null; count]));
            parse(&content.to_bytes().unwrap())
        };
        assert!(of(100_000).is_ok());
        let error = of(1 << 20).unwrap_err();
        assert!(matches!(error.kind(), tesseral_core::ErrorKind::Limit { .. }), "{error}");
    }

    /// With digests that match, so that the parser sees the bytes.
    #[test]
    fn changed_metadata_never_panic() {
        let file = content().to_bytes().unwrap();
        let (table, metadata) = (&file[HEADER..HEADER + 72], &file[HEADER + 72..]);
        for len in 0..metadata.len() {
            assert!(parse(&seal(table, &metadata[..len])).is_err(), "{len}");
        }
        for at in 0..metadata.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = metadata.to_vec();
                changed[at] = value;
                let _ = parse(&seal(table, &changed));
            }
        }
        for at in 0..table.len() {
            let mut changed = table.to_vec();
            changed[at] = 0xff;
            let _ = parse(&seal(&changed, metadata));
        }
        assert!(parse(&seal(&table[..48], metadata)).is_err(), "an entry is missing");
    }
}
