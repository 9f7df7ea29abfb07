//! One fragment: its footer is read first, other metadata on demand.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use tesseral_core::{Advice, Error, Result, Scalar};
use tesseral_format::{Digest, DigestSpan};
use tesseral_store::{ByteRange, Bytes, Rounds, Store, StoreExt};

use crate::directory::FragmentEntry;
use crate::geometry::{FragmentExtent, Geometry};
use crate::metadata_loader::{MetadataLoader, join};
use crate::model::{FieldChains, StoredSchema};
use crate::scatter::ScatteredCells;
use crate::wire::digest_table::{self, DigestTable, FileRow, block_count};
use crate::wire::footer::{Footer, FooterList, implied_len, schema_name};
use crate::wire::name::carries_digest;
use crate::wire::primitive::le64;
use crate::wire::rtree;
use crate::wire::schema::{StoredDimension, StoredRange};
use crate::wire::section::{self, ExtremaValues, SlotStatistics};

/// Name of a fragment's metadata file.
pub(crate) const METADATA: &str = "__fragment_metadata.tdb";

/// Maximum number of tiles of one fragment.
pub(crate) const MAX_TILES: u64 = 1 << 40;

/// Minimum and maximum coordinate along each dimension.
pub(crate) type Bounds = Box<[(Scalar, Scalar)]>;

/// A visible fragment.
#[derive(Debug)]
pub(crate) struct Fragment {
    pub entry: FragmentEntry,
    pub schema: Arc<StoredSchema>,
    pub footer: Footer,
    /// Placement of a dense fragment; `None` if it has no cells.
    pub placement: Option<FragmentExtent>,
    /// The cells of a sparse fragment of a dense array.
    pub scattered: Option<ScatteredCells>,
    /// Number of tiles.
    pub tiles: u64,
    /// Index of its first object.
    pub objects: u32,
    footer_len: u64,
    /// Digest of the footer.
    footer_digest: u64,
    /// Content of the end of the fragment's own metadata file; set if the footer was read from there.
    own: OnceLock<MetadataEnd>,
    /// Made when a slot is first used: of a hundred thousand fragments, most slots never are.
    slots: Box<[OnceLock<Box<SlotSections>>]>,
    boxes: OnceLock<Vec<Bounds>>,
}

/// Loaded lists of one slot.
#[derive(Debug, Default)]
struct SlotSections {
    /// Names of its files.
    names: [String; 3],
    digests: [OnceLock<TileDigests>; 3],
    lists: [OnceLock<Vec<u64>>; 8],
    extrema: [OnceLock<ExtremaValues>; 2],
}

/// A stored footer.
#[derive(Clone, Debug)]
pub(crate) struct FooterBytes {
    pub bytes: Bytes,
    /// The end of the fragment's own metadata file, if the footer was read from there.
    pub own: Option<MetadataEnd>,
}

/// Information from the end of a metadata file.
#[derive(Clone, Debug)]
pub(crate) struct MetadataEnd {
    /// Offset of the footer.
    footer_at: u64,
    /// Length of the file in bytes.
    len: u64,
    /// Digests of the fragment, if it has any.
    digests: Option<Arc<DigestTable>>,
    /// Last bytes of the file, if they were read over a network with the footer: of most fragments, all lists of their tiles.
    tail: Bytes,
}

impl MetadataEnd {
    /// Bytes before the footer, if they were read with it.
    fn held(&self, range: &Range<u64>) -> Option<Bytes> {
        let first = self.len.checked_sub(self.tail.len() as u64)?;
        let at = |n: u64| usize::try_from(n.checked_sub(first)?).ok();
        let (from, to) = (at(range.start)?, at(range.end)?);
        (from <= to && to <= self.tail.len()).then(|| self.tail.slice(from..to))
    }

    /// Bytes of the metadata file, read unless they are held.
    fn read(&self, reader: &MetadataLoader, object: &str, range: Range<u64>) -> Result<Bytes> {
        self.held(&range).map_or_else(|| reader.store.read(object, range), Ok)
    }
}

/// Digests of the tiles of one data file.
#[derive(Debug)]
struct TileDigests {
    digests: Vec<u64>,
    /// Index of the first block of each tile; empty if every tile is one block.
    firsts: Vec<u64>,
}

/// Number of bytes read from the end of a metadata file before the length of its footer is known; usually sufficient.
const USUAL_FOOTER: u64 = 4 << 10;

/// As above over a network: of all fragments together, and of one.
const NETWORK_FOOTERS: u64 = 4 << 20;
const MOST_FOOTER: u64 = 64 << 10;

/// Reads the footers of fragments.
///
/// `only` is the schema of an array that was created before version 10: the length of older footers follows from it.
pub(crate) fn read_footers<'a>(
    reader: &MetadataLoader,
    fragments: impl IntoIterator<Item = &'a FragmentEntry>,
    only: Option<&StoredSchema>,
) -> Result<Vec<FooterBytes>> {
    let fragments: Vec<&FragmentEntry> = fragments.into_iter().collect();
    let objects: Vec<String> = fragments.iter().map(|f| join(&f.folder, METADATA)).collect();
    // Over a network, more bytes cost less than another request, as long as they are few in total.
    let end = match reader.waits() {
        true => (NETWORK_FOOTERS / objects.len().max(1) as u64).clamp(USUAL_FOOTER, MOST_FOOTER),
        false => USUAL_FOOTER,
    };
    let wanted: Vec<_> = objects.iter().map(|o| (o.as_str(), ByteRange::Suffix(end))).collect();
    let ends = reader.store.read_objects(&wanted)?;
    let implied = |fragment: &FragmentEntry| implied_len(fragment.version, &only?.wire);
    let mut footers = Vec::with_capacity(objects.len());
    for ((f, object), end) in fragments.iter().zip(&objects).zip(ends) {
        let footer = match f.version {
            // The whole file is one generic tile.
            ..3 => reader.object(object).map(|(bytes, _)| FooterBytes {
                bytes: bytes.into(),
                own: Some(MetadataEnd { footer_at: 0, len: end.len, digests: None, tail: Bytes::new() }),
            }),
            _ => footer_of(reader, object, end.len, &end.bytes, implied(f)),
        };
        footers.extend(Rounds::later(footer)?);
    }
    if footers.len() < objects.len() { Err(Error::pending()) } else { Ok(footers) }
}

/// Reads the footer of one fragment.
pub(crate) fn read_footer(
    reader: &MetadataLoader,
    fragment: &FragmentEntry,
    only: Option<&StoredSchema>,
) -> Result<FooterBytes> {
    let first_footer = read_footers(reader, [fragment], only)?.pop();
    first_footer.ok_or_else(|| Error::internal("missing footer"))
}

/// Parses the footer at the end of a file of `len` bytes; `bytes` are its last ones.
fn footer_of(
    reader: &MetadataLoader,
    object: &str,
    len: u64,
    bytes: &Bytes,
    implied: Option<u64>,
) -> Result<FooterBytes> {
    let described = || reader.store.describe(object);
    let short = || Error::truncated("the footer's length", described(), 0, 8, len);
    let tail = len.checked_sub(if implied.is_some() { 0 } else { 8 }).ok_or_else(short)?;
    let window = len.checked_sub(bytes.len() as u64).ok_or_else(short)?;
    let footer_len = match implied {
        Some(len) => len,
        None => le64(bytes.last_chunk::<8>().ok_or_else(short)?),
    };
    let start = tail.checked_sub(footer_len).ok_or_else(|| {
        Error::corrupt(
            "the footer's length",
            described(),
            tail,
            format!("{footer_len} bytes in a file of {len}"),
        )
    })?;
    let part = |range: std::ops::Range<u64>| -> Result<Bytes> {
        if range.start >= window {
            let at = |n: u64| usize::try_from(n - window).unwrap_or(usize::MAX);
            return Ok(bytes.slice(at(range.start)..at(range.end)));
        }
        reader.limits.check_metadata(range.end - range.start)?;
        reader.store.read(object, range)
    };
    // The digest table precedes the footer.
    let footer = part(start..tail)?;
    let fragment = object.strip_suffix(METADATA).unwrap_or(object).trim_end_matches('/');
    let digests = match reader.verify && carries_digest(fragment) {
        true => {
            let missing = || {
                Error::corrupt("the digest table", described(), start, "missing or damaged")
                    .hint(Advice::from("restore the fragment from a copy").or(Advice::SkipDigests))
            };
            let tail_at = start.checked_sub(digest_table::TAIL_LEN).ok_or_else(missing)?;
            let tail = part(tail_at..start)?;
            let at = digest_table::directory_len(&tail).and_then(|len| tail_at.checked_sub(len));
            let at = at.ok_or_else(missing)?;
            let table = DigestTable::parse(&described(), fragment, at, &part(at..tail_at)?, &tail)?;
            table.check_footer(&described(), start, &footer)?;
            Some(Arc::new(table))
        }
        false => None,
    };
    let tail = if reader.waits() { bytes.clone() } else { Bytes::new() };
    Ok(FooterBytes { bytes: footer, own: Some(MetadataEnd { footer_at: start, len, digests, tail }) })
}

/// File name of an attribute or dimension, without its ending: numbered since version 9, before that by name.
fn stem_of(version: u32, name: &str, kind: char, number: usize) -> String {
    match version {
        ..8 => name.to_owned(),
        // Percent-encoded, with the codes of this version: not all of them are those of the characters.
        8 => name.chars().fold(String::new(), |mut out, c| {
            let code = match c {
                '!' | '#' | '$' | '%' | '&' | '\'' | '(' | ')' | '*' | '+' | ',' | '/' | ':' | ';' | '='
                | '?' | '@' | '[' | ']' | '"' => format!("%{:02X}", u32::from(c)),
                '<' => "%20".to_owned(),
                '>' => "%2D".to_owned(),
                '\\' => "%30".to_owned(),
                '|' => "%3C".to_owned(),
                other => other.to_string(),
            };
            out.push_str(&code);
            out
        }),
        _ => format!("{kind}{number}"),
    }
}

/// Returns the list of tile offsets of a file.
fn offsets_of(file: usize) -> FooterList {
    [FooterList::Offsets, FooterList::VarOffsets, FooterList::ValidityOffsets][file.min(2)]
}

/// Tile offsets of a file.
struct TileSpans<'a> {
    offsets: &'a [u64],
    file_len: u64,
}

impl TileSpans<'_> {
    /// Byte range of a stored tile.
    fn get(&self, tile: usize) -> Option<(u64, u64)> {
        let start = *self.offsets.get(tile)?;
        Some((start, self.offsets.get(tile + 1).copied().unwrap_or(self.file_len)))
    }

    /// Returns whether any tile is larger than `size` bytes.
    fn any_longer(&self, bytes: u64) -> bool {
        let spans = (0..self.offsets.len()).filter_map(|tile| self.get(tile));
        spans.into_iter().any(|(start, end)| end.saturating_sub(start) > bytes)
    }
}

impl Fragment {
    /// Opens a fragment. `schemas` resolves a schema by name.
    pub(crate) fn open(
        reader: &MetadataLoader,
        entry: FragmentEntry,
        FooterBytes { bytes, own }: FooterBytes,
        geometry: Option<&Geometry>,
        schemas: impl FnOnce(&str) -> Option<Arc<StoredSchema>>,
    ) -> Result<Self> {
        crate::wire::check_version(entry.version)?;
        let object = join(&entry.folder, METADATA);
        let described = reader.store.describe(&object);
        let footer_at = own.as_ref().map(|own| own.footer_at);
        let name = schema_name(&described, &bytes)?;
        let schema = schemas(&name).ok_or_else(|| {
            Error::corrupt("the footer", &described, footer_at, format!("unknown schema {name:?}"))
        })?;
        let footer = Footer::parse(&described, &bytes, &schema.wire)?;
        if footer.is_zipped() && schema.wire.version >= 5 {
            let detail = format!("version {} of an array of version {}", footer.version, schema.wire.version);
            return Err(Error::corrupt("the footer", &described, footer_at, detail));
        }
        let scattered = footer.is_zipped() && !footer.dense && !schema.wire.sparse;
        if footer.dense == schema.wire.sparse && !scattered {
            let detail = "fragment and array differ in being dense or sparse";
            return Err(Error::corrupt("the footer", &described, footer_at, detail));
        }
        let placement = match (&footer.domain, geometry) {
            (Some(domain), Some(geometry)) => Some(geometry.locate_fragment(domain, &described)?),
            _ => None,
        };
        let (placement, scattered) = match placement {
            Some(around) if scattered => (None, Some(ScatteredCells::new(around.region))),
            other => (other, None),
        };
        let tiles = match (&placement, footer.dense) {
            (Some(placement), _) => placement.tiles,
            (None, true) => 0,
            (None, false) => footer.tiles,
        };
        if tiles >= MAX_TILES {
            return Err(Error::limit("the tiles of a fragment", tiles, MAX_TILES));
        }
        let capacity = schema.wire.capacity;
        if !footer.dense && tiles > 0 && (footer.last_tile_cells == 0 || footer.last_tile_cells > capacity) {
            let detail =
                format!("last tile with {} cells exceeds the capacity {capacity}", footer.last_tile_cells);
            return Err(Error::corrupt("the footer", &described, footer_at, detail));
        }
        let slots = footer.files[0].len();
        Ok(Self {
            entry,
            schema,
            placement,
            scattered,
            tiles,
            objects: 0,
            footer_len: bytes.len() as u64,
            footer_digest: xxhash_rust::xxh3::xxh3_64(&bytes),
            own: own.map_or_else(OnceLock::new, OnceLock::from),
            slots: (0..slots).map(|_| OnceLock::new()).collect(),
            boxes: OnceLock::new(),
            footer,
        })
    }

    /// Returns offset of the footer in the fragment's own metadata file, and the length of that file.
    fn own(&self, reader: &MetadataLoader) -> Result<&MetadataEnd> {
        if let Some(own) = self.own.get() {
            return Ok(own);
        }
        let object = self.metadata_object();
        if reader.verify && carries_digest(&self.entry.name) {
            let footer = read_footer(reader, &self.entry, None)?;
            if xxhash_rust::xxh3::xxh3_64(&footer.bytes) != self.footer_digest {
                let detail = "the consolidated copy differs";
                return Err(Error::corrupt("the footer", reader.store.describe(&object), None, detail));
            }
            if let Some(own) = footer.own {
                return Ok(self.own.get_or_init(|| own));
            }
        }
        let len = reader.store.len(&object)?;
        let footer_at = len.checked_sub(8).and_then(|n| n.checked_sub(self.footer_len)).ok_or_else(|| {
            Error::truncated("the footer", reader.store.describe(&object), 0, self.footer_len, len)
        })?;
        Ok(self.own.get_or_init(|| MetadataEnd { footer_at, len, digests: None, tail: Bytes::new() }))
    }

    /// Returns whether bytes equal its footer.
    pub(crate) fn has_footer(&self, bytes: &[u8]) -> bool {
        xxhash_rust::xxh3::xxh3_64(bytes) == self.footer_digest
    }

    /// Returns whether its files have digests.
    pub(crate) fn carries_digests(&self) -> bool {
        carries_digest(&self.entry.name)
    }

    /// Loads the digests of a data file. Their number follows from the tile offsets.
    fn load_digests(
        &self,
        reader: &MetadataLoader,
        file: usize,
        slot: usize,
        spans: &TileSpans<'_>,
    ) -> Result<()> {
        let cell = &self.loaded(slot).digests[file];
        let Some(table) = &self.own(reader)?.digests else { return Ok(()) };
        if cell.get().is_some() || spans.file_len == 0 {
            return Ok(());
        }
        let object = self.metadata_object();
        let missing =
            |detail: &str| Error::corrupt("the digest table", reader.store.describe(&object), None, detail);
        let number = u32::try_from(slot * 3 + file).unwrap_or(u32::MAX);
        let row =
            table.file(number).ok_or_else(|| missing("a file of the fragment is missing from the table"))?;
        let bytes = self.digest_bytes(reader, row)?;
        let digests = row.parse(&reader.store.describe(&object), &bytes)?;
        let mut firsts = Vec::new();
        let mut blocks = digests.len() as u64;
        if blocks != self.tiles || spans.any_longer(table.block) {
            firsts.reserve(spans.offsets.len());
            blocks = 0;
            for tile in 0..spans.offsets.len() {
                firsts.push(blocks);
                let (start, end) = spans.get(tile).unwrap_or((0, 0));
                blocks = blocks.saturating_add(block_count(end.saturating_sub(start), table.block));
            }
        }
        if blocks != digests.len() as u64 {
            return Err(missing("the lists do not match the tiles"));
        }
        cell.get_or_init(|| TileDigests { digests, firsts });
        Ok(())
    }

    /// Stored bytes of the digests of a data file.
    fn digest_bytes(&self, reader: &MetadataLoader, row: &FileRow) -> Result<Bytes> {
        reader.limits.check_metadata(row.list.end - row.list.start)?;
        self.own(reader)?.read(reader, &self.metadata_object(), row.list.clone())
    }

    /// Loads the tile offsets and digests of slots from a store across a network: all that is not loaded is named in one round.
    /// Other stores read each of them when it is used.
    pub(crate) fn load_slots(
        &self,
        reader: &MetadataLoader,
        slots: impl IntoIterator<Item = usize>,
    ) -> Result<()> {
        if !reader.waits() {
            return Ok(());
        }
        let mut waiting = false;
        for slot in slots {
            for file in (0..3).filter(|file| self.footer.files[*file].get(slot).is_some_and(|len| *len > 0)) {
                let offsets = Rounds::later(self.list(reader, offsets_of(file), slot))?;
                waiting |= match offsets {
                    Some(offsets) => {
                        let spans = TileSpans { offsets, file_len: self.footer.files[file][slot] };
                        Rounds::later(self.load_digests(reader, file, slot, &spans))?.is_none()
                    }
                    None => {
                        let table = Rounds::later(self.own(reader))?.and_then(|own| own.digests.as_ref());
                        let number = u32::try_from(slot * 3 + file).unwrap_or(u32::MAX);
                        if let Some(row) = table.and_then(|table| table.file(number)) {
                            Rounds::later(self.digest_bytes(reader, row))?;
                        }
                        true
                    }
                };
            }
        }
        if waiting { Err(Error::pending()) } else { Ok(()) }
    }

    /// Returns the digests of a tile whose file was loaded before.
    pub(crate) fn tile_digests(&self, file: usize, slot: usize, tile: u64) -> Option<DigestSpan<'_>> {
        let table = self.own.get()?.digests.as_ref()?;
        let loaded = self.slots.get(slot)?.get()?;
        let held = loaded.digests.get(file)?.get()?;
        let offsets = loaded.lists[offsets_of(file) as usize].get()?;
        let spans = TileSpans { offsets, file_len: *self.footer.files[file].get(slot)? };
        let (start, end) = spans.get(usize::try_from(tile).ok()?)?;
        let first = match held.firsts.is_empty() {
            true => tile,
            false => *held.firsts.get(usize::try_from(tile).ok()?)?,
        };
        let from = usize::try_from(first).ok()?;
        let count = usize::try_from(block_count(end.checked_sub(start)?, table.block)).ok()?;
        let digests = held.digests.get(from..from.checked_add(count)?)?;
        let digest = Digest::Xxh3Blocks { block: table.block, digests };
        Some(DigestSpan { object: self.object(slot, file), range: start..end, number: first, digest })
    }

    /// Block size of its digests in bytes, if they are loaded.
    pub(crate) fn digest_block(&self) -> Option<u64> {
        Some(self.own.get()?.digests.as_ref()?.block)
    }

    /// Returns the stored bytes of a tile after verifying their digests.
    pub(crate) fn read_tile(
        &self,
        reader: &MetadataLoader,
        object: &str,
        (slot, file): (usize, usize),
        tile: u64,
    ) -> Result<Bytes> {
        let (start, len) = self.span(reader, file, slot, tile)?;
        let bytes = reader.store.read(object, start..start + len)?;
        if let Some(span) = self.tile_digests(file, slot, tile) {
            check_blocks(&*reader.store, object, &span, start, &bytes)?;
        }
        Ok(bytes)
    }

    /// Size of its data files in bytes.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.footer.files.iter().flatten().fold(0, |n, b| n.saturating_add(*b))
    }

    /// Size of its metadata file in bytes.
    pub(crate) fn metadata_len(&self, reader: &MetadataLoader) -> Result<u64> {
        self.own(reader).map(|own| own.len)
    }

    /// Size of all its files in bytes.
    pub(crate) fn stored_bytes(&self, reader: &MetadataLoader) -> Result<u64> {
        Ok(self.own(reader)?.len.saturating_add(self.data_bytes()))
    }

    /// Statistics of each slot over the whole fragment; `None` before version 11.
    pub(crate) fn statistics(&self, reader: &MetadataLoader) -> Result<Vec<SlotStatistics>> {
        match self.footer.statistics.filter(|_| self.footer.version > 11) {
            Some(offset) => {
                let object = reader.store.describe(&self.metadata_object());
                section::statistics(&object, &self.section(reader, offset)?, self.slots())
            }
            None => Ok(Vec::new()),
        }
    }

    fn metadata_object(&self) -> String {
        join(&self.entry.folder, METADATA)
    }

    /// Returns the unfiltered bytes of a section.
    fn section(&self, reader: &MetadataLoader, offset: u64) -> Result<Vec<u8>> {
        let stored = self.stored_section(reader, offset)?;
        let described = reader.store.describe(&self.metadata_object());
        reader.decode(&described, &stored).map(|(bytes, _)| bytes)
    }

    /// Returns the stored bytes of a section after verifying their digest.
    fn stored_section(&self, reader: &MetadataLoader, offset: u64) -> Result<Bytes> {
        let object = self.metadata_object();
        // The order of sections is not fixed: one ends at the next larger offset.
        let own = match Rounds::later(self.own(reader))? {
            Some(own) => own,
            None => {
                // Read together with the end of the file, if where it ends is known.
                if let Some(next) = self.footer.offsets().filter(|o| *o > offset).min() {
                    Rounds::later(reader.store.read(&object, offset..next))?;
                }
                return Err(Error::pending());
            }
        };
        let last = own.digests.as_ref().map_or(own.footer_at, |table| table.sections_end);
        let next = self.footer.offsets().filter(|o| *o > offset).min().unwrap_or(last);
        let end = next.min(last);
        if offset >= end {
            let detail = format!("section offset {offset} exceeds {last}");
            return Err(Error::corrupt("the footer", reader.store.describe(&object), own.footer_at, detail));
        }
        let bytes = own.read(reader, &object, offset..end)?;
        let described = reader.store.describe(&object);
        if let Some(table) = &own.digests {
            let number = self.footer.offsets().filter(|o| *o < offset).collect::<BTreeSet<_>>().len();
            table.check_section(&described, number, offset, &bytes)?;
        }
        Ok(bytes)
    }

    /// Returns a list with one number per tile.
    pub(crate) fn list(&self, reader: &MetadataLoader, list: FooterList, slot: usize) -> Result<&[u64]> {
        let cell = &self.loaded(slot).lists[list as usize];
        if let Some(numbers) = cell.get() {
            return Ok(numbers);
        }
        let object = reader.store.describe(&self.metadata_object());
        let offset = self.footer.list(list, slot).unwrap_or(u64::MAX);
        let loaded = self.footer.loaded.as_ref();
        let numbers = match loaded {
            Some(loaded) => {
                loaded.lists.get(list as usize).and_then(|l| l.get(slot)).cloned().unwrap_or_default()
            }
            None => section::numbers(&object, &self.section(reader, offset)?, "a list of the fragment")?,
        };
        // Versions 1 and 2 store no list of a file that does not exist.
        let optional = (loaded.is_some() || matches!(list, FooterList::Sums | FooterList::NullCounts))
            && numbers.is_empty();
        if numbers.len() as u64 != self.tiles && !optional {
            let detail = format!("{} entries for {} tiles", numbers.len(), self.tiles);
            return Err(Error::corrupt("a list of the fragment", object, offset, detail));
        }
        Ok(cell.get_or_init(|| numbers))
    }

    /// Returns minima or maxima of tiles.
    pub(crate) fn extrema(
        &self,
        reader: &MetadataLoader,
        list: FooterList,
        slot: usize,
    ) -> Result<&ExtremaValues> {
        let cell = &self.loaded(slot).extrema[usize::from(list == FooterList::Maxs)];
        if let Some(values) = cell.get() {
            return Ok(values);
        }
        let object = reader.store.describe(&self.metadata_object());
        let offset = self.footer.list(list, slot).unwrap_or(u64::MAX);
        let values = ExtremaValues::parse(&object, &self.section(reader, offset)?)?;
        Ok(cell.get_or_init(|| values))
    }

    /// Returns the boxes of a sparse fragment's tiles: minimum and maximum coordinate along each dimension.
    pub(crate) fn boxes(&self, reader: &MetadataLoader) -> Result<&[Bounds]> {
        if let Some(boxes) = self.boxes.get() {
            return Ok(boxes);
        }
        let object = reader.store.describe(&self.metadata_object());
        let dims = &self.schema.wire.dims;
        let boxes = match &self.footer.loaded {
            Some(loaded) => loaded.boxes.clone(),
            None => {
                let bytes = self.section(reader, self.footer.rtree)?;
                rtree::leaves(&object, &bytes, dims, self.footer.version)?
            }
        };
        if boxes.len() as u64 != self.tiles {
            let detail = format!("{} boxes for {} tiles", boxes.len(), self.tiles);
            return Err(Error::corrupt("the R-tree", object, self.footer.rtree, detail));
        }
        let coordinates = |ranges: &Vec<StoredRange>| -> Result<Bounds> {
            let ends = |dim: &StoredDimension, (low, high): &StoredRange| {
                let dtype = dim.datatype.dtype();
                Ok((Scalar::from_le_bytes(dtype, low)?, Scalar::from_le_bytes(dtype, high)?))
            };
            dims.iter().zip(ranges).map(|(dim, range)| ends(dim, range)).collect()
        };
        let boxes = boxes.iter().map(coordinates).collect::<Result<Vec<_>>>()?;
        Ok(self.boxes.get_or_init(|| boxes))
    }

    /// Reads the tile offsets, which are required to locate tiles.
    pub(crate) fn check_tiles(&self, reader: &MetadataLoader) -> Result<()> {
        for slot in 0..self.slots() {
            let lists = [
                FooterList::Offsets,
                FooterList::VarOffsets,
                FooterList::VarSizes,
                FooterList::ValidityOffsets,
            ];
            for list in lists {
                // Not every version has all of them.
                if self.footer.loaded.is_some() || self.footer.list(list, slot).is_some() {
                    self.list(reader, list, slot)?;
                }
            }
        }
        if self.footer.dense { Ok(()) } else { self.boxes(reader).map(drop) }
    }

    /// Reads every section, for audits.
    pub(crate) fn check_sections(&self, reader: &MetadataLoader) -> Result<()> {
        let object = reader.store.describe(&self.metadata_object());
        self.check_tiles(reader)?;
        if self.own(reader)?.digests.is_some() {
            // Including those that reads do not use.
            self.footer.offsets().try_for_each(|offset| self.stored_section(reader, offset).map(drop))?;
            for (slot, file) in (0..self.slots()).flat_map(|slot| (0..3).map(move |file| (slot, file))) {
                if self.footer.files[file][slot] > 0 {
                    self.span(reader, file, slot, 0)?;
                }
            }
        }
        for slot in 0..self.slots() {
            if self.footer.version >= 11 {
                self.extrema(reader, FooterList::Mins, slot)?;
                self.extrema(reader, FooterList::Maxs, slot)?;
                let sums = self.footer.list(FooterList::Sums, slot).unwrap_or(u64::MAX);
                section::numbers(&object, &self.section(reader, sums)?, "sums")?;
                let nulls = self.footer.list(FooterList::NullCounts, slot).unwrap_or(u64::MAX);
                section::numbers(&object, &self.section(reader, nulls)?, "null counts")?;
            }
        }
        self.statistics(reader)?;
        self.check_files(reader)?;
        self.processed(reader).map(drop)
    }

    /// Compares the lengths of its files with the footer.
    fn check_files(&self, reader: &MetadataLoader) -> Result<()> {
        for (number, object) in self.object_names().enumerate() {
            let declared = self.footer.files[number % 3][number / 3];
            if declared > 0 {
                let found = reader.store.len(&object)?;
                if found < declared {
                    return Err(Error::truncated(
                        "a file of the fragment",
                        reader.store.describe(&object),
                        0,
                        declared,
                        found,
                    ));
                }
            }
        }
        Ok(())
    }

    /// Markers of deletes that were already applied to the fragment.
    pub(crate) fn processed(&self, reader: &MetadataLoader) -> Result<Vec<String>> {
        match self.footer.conditions {
            Some(offset) => {
                let object = reader.store.describe(&self.metadata_object());
                section::markers(&object, &self.section(reader, offset)?)
            }
            None => Ok(Vec::new()),
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.footer.files[0].len()
    }

    /// Slot of a dimension.
    pub(crate) fn dim_slot(&self, dim: usize) -> usize {
        let coords = self.schema.wire.attributes.len();
        if self.is_zipped() { coords } else { coords + 1 + dim }
    }

    /// Returns whether the coordinates of all dimensions are in one file.
    pub(crate) fn is_zipped(&self) -> bool {
        self.footer.is_zipped()
    }

    /// Slot of timestamps, if the fragment has them.
    pub(crate) fn time_slot(&self) -> Option<usize> {
        self.footer.timestamps.then(|| self.dim_slot(self.schema.wire.dims.len()))
    }

    /// Slot of delete timestamps, if the fragment has them.
    pub(crate) fn delete_slot(&self) -> Option<usize> {
        let first = self.dim_slot(self.schema.wire.dims.len());
        self.footer.deletes.then_some(first + usize::from(self.footer.timestamps))
    }

    /// Number of cells in a tile.
    pub(crate) fn cells(&self, tile: u64, geometry: Option<&Geometry>) -> u64 {
        match geometry {
            Some(geometry) if self.scattered.is_none() => geometry.cells,
            _ if tile + 1 == self.tiles => self.footer.last_tile_cells,
            _ => self.schema.wire.capacity,
        }
    }

    /// Number of cells of a sparse fragment.
    pub(crate) fn total_cells(&self) -> u64 {
        match self.tiles {
            0 => 0,
            n => {
                (n - 1).saturating_mul(self.schema.wire.capacity).saturating_add(self.footer.last_tile_cells)
            }
        }
    }

    /// Returns the byte range of a tile in one of a slot's three files.
    pub(crate) fn span(
        &self,
        reader: &MetadataLoader,
        file: usize,
        slot: usize,
        tile: u64,
    ) -> Result<(u64, u64)> {
        let list = offsets_of(file);
        let size = self.footer.files[file.min(2)][slot];
        let spans = TileSpans { offsets: self.list(reader, list, slot)?, file_len: size };
        let (start, end) =
            usize::try_from(tile).ok().and_then(|tile| spans.get(tile)).unwrap_or((u64::MAX, size));
        self.load_digests(reader, file.min(2), slot, &spans)?;
        if start > end || end > size {
            let object = reader.store.describe(&self.metadata_object());
            let detail = format!("tile {tile} at {start}..{end} exceeds a file of {size} bytes");
            return Err(Error::corrupt("the tile offsets", object, self.footer.list(list, slot), detail));
        }
        Ok((start, end - start))
    }

    /// Loaded lists of a slot.
    fn loaded(&self, slot: usize) -> &SlotSections {
        let make = || Box::new(SlotSections { names: self.slot_names(slot), ..SlotSections::default() });
        self.slots[slot].get_or_init(make)
    }

    /// The files of a slot.
    fn slot_names(&self, slot: usize) -> [String; 3] {
        let (attributes, dims) = (self.schema.wire.attributes.len(), self.schema.wire.dims.len());
        let deletes = self.delete_slot();
        let version = self.entry.version;
        let stem = if slot < attributes {
            stem_of(version, &self.schema.wire.attributes[slot].name, 'a', slot)
        } else if slot > attributes && slot <= attributes + dims {
            let number = slot - attributes - 1;
            stem_of(version, &self.schema.wire.dims[number].name, 'd', number)
        } else if Some(slot) == self.time_slot() {
            "t".to_owned()
        } else if Some(slot) == deletes {
            "dt".to_owned()
        } else if deletes.is_some_and(|first| slot == first + 1) {
            "dci".to_owned()
        } else {
            "__coords".to_owned()
        };
        ["", "_var", "_validity"].map(|end| join(&self.entry.folder, &format!("{stem}{end}.tdb")))
    }

    /// The files of each slot, three per slot, in the order of object numbers.
    pub(crate) fn object_names(&self) -> impl Iterator<Item = String> {
        (0..self.slots()).flat_map(|slot| self.slot_names(slot))
    }

    /// Number of its objects.
    pub(crate) fn object_count(&self) -> usize {
        self.slots() * 3
    }

    /// The name of an object; empty for numbers of others.
    pub(crate) fn object_name(&self, object: u32) -> &str {
        self.slot_file(object).map_or("", |(slot, file)| &self.loaded(slot).names[file])
    }

    /// Index of the object of one of a slot's files.
    pub(crate) fn object(&self, slot: usize, file: usize) -> u32 {
        // Bounded when the table of objects was created.
        self.objects + u32::try_from(slot * 3 + file).unwrap_or(u32::MAX)
    }

    /// Returns slot and file of an object.
    pub(crate) fn slot_file(&self, object: u32) -> Option<(usize, usize)> {
        let number = usize::try_from(object.checked_sub(self.objects)?).ok()?;
        (number / 3 < self.slots()).then_some((number / 3, number % 3))
    }

    pub(crate) fn chains(&self, slot: usize) -> Option<&FieldChains> {
        let attributes = self.schema.attributes.len();
        if slot < attributes {
            return self.schema.attributes.get(slot);
        }
        if self.is_zipped() {
            return Some(&self.schema.coords).filter(|_| slot == attributes);
        }
        self.schema.dims.get(slot.checked_sub(attributes + 1)?)
    }
}

/// Verifies whole blocks of a tile at offset `start` of their object.
pub(crate) fn check_blocks(
    store: &dyn Store,
    object: &str,
    span: &DigestSpan<'_>,
    start: u64,
    bytes: &[u8],
) -> Result<()> {
    let held = start..start.saturating_add(bytes.len() as u64);
    for digest in span.blocks(&held) {
        let (range, expected) = (&digest.range, digest.expected);
        let at = |n: u64| n.checked_sub(start).and_then(|n| usize::try_from(n).ok());
        let block = at(range.start).zip(at(range.end)).and_then(|(from, to)| bytes.get(from..to));
        let block = block.ok_or_else(|| Error::internal("the range is not aligned to blocks"))?;
        let computed = digest.compute(block);
        if computed != expected {
            let detail = format!("checksum mismatch: expected {expected:016x}, computed {computed:016x}");
            return Err(Error::corrupt("a tile", store.describe(object), range.start, detail));
        }
    }
    Ok(())
}
