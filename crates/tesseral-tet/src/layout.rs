//! Parsed and validated metadata of one file, without payloads.

use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use tesseral_core::{Advice, ChunkGrid, Error, Limits, Result};
use tesseral_format::{Digest, DigestSpan};
use xxhash_rust::xxh3::xxh3_64;

use crate::source::FileBytes;
use crate::wire::chunk_index::{self, IndexHeader, IndexRow};
use crate::wire::digest_region::{self, DigestRegion, Extent, RowDigest, row_digest};
use crate::wire::directory::{self, DatasetRecord};
use crate::wire::footer::{FileRange, FooterJson, FooterTail, TAIL_LEN};
use crate::wire::json::JsonObject;
use crate::wire::metadata::FooterMetadata;
use crate::wire::superblock::{self, Superblock};
use crate::wire::{Cursor, align8};

/// The part of the file that an error concerns. Determines the possible repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileSection {
    Superblock,
    Directory,
    Index,
    Footer,
    Payloads,
    Digests,
}

/// Reason why a file does not open.
#[derive(Debug)]
pub(crate) struct OpenFailure {
    pub stage: FileSection,
    pub error: Error,
}

trait AtStage<T> {
    fn at(self, stage: FileSection) -> Result<T, OpenFailure>;
}

impl<T> AtStage<T> for Result<T> {
    fn at(self, stage: FileSection) -> Result<T, OpenFailure> {
        self.map_err(|error| OpenFailure { stage, error })
    }
}

/// The footer and the texts it refers to.
#[derive(Clone, Debug)]
pub(crate) struct TetFooter {
    pub tail: FooterTail,
    /// Offset of the JSON.
    pub json_offset: u64,
    pub json: FooterJson,
    /// Metadata, inline or from the spill.
    pub metadata: Option<FooterMetadata>,
}

/// Largest table of block digests in bytes that is read from a store whose bytes are not resident.
const SMALL_TABLE: u64 = 256 << 10;

/// Digests of rows and of blocks of rows.
#[derive(Debug)]
pub(crate) struct StoredDigests {
    rows: Bytes,
    /// Block size in bytes; 0 without blocks.
    block: u64,
    /// Number of digests of blocks.
    count: u64,
    /// The digests of blocks; empty if they were not read.
    blocks: Bytes,
}

impl StoredDigests {
    /// The digest of a chunk that is stored at `range`.
    pub(crate) fn span(&self, row: u64, range: Range<u64>) -> Option<DigestSpan<'_>> {
        let RowDigest { digest: root, first_block } = row_digest(&self.rows, self.block != 0, row)?;
        // Numbers of rows follow those of blocks.
        let number = self.count.saturating_add(row);
        let Some(first) = first_block else { return Some(DigestSpan::single(0, range, number, root)) };
        let count = range.end.saturating_sub(range.start).div_ceil(self.block);
        let index = |n: u64| usize::try_from(n).ok();
        let found = index(first).zip(first.checked_add(count).and_then(index));
        let digests = found.and_then(|(start, end)| self.blocks.as_chunks::<8>().0.get(start..end));
        let digest = Digest::Xxh3Tree { block: self.block, root, number, digests };
        Some(DigestSpan { object: 0, range, number: first, digest })
    }
}

/// State of the digests.
#[derive(Debug)]
pub(crate) enum Digests {
    /// The file has none, or verification is disabled.
    Absent,
    /// One digest per row; `keyed` if the footer refers to the region.
    Present { region: FileRange, table: StoredDigests, keyed: bool },
    /// A digest region that does not match the file.
    Unusable { region: FileRange, error: Error },
}

/// Superblock, directory and index: the bytes before the payloads.
#[derive(Clone)]
pub(crate) struct FileHead {
    pub superblock: Superblock,
    pub header: IndexHeader,
    pub datasets: Vec<DatasetRecord>,
    /// The rows of the index, borrowed from the file if it is memory-mapped.
    rows: Bytes,
    /// Bytes of directory and index, which the catalog digest covers.
    catalog: Bytes,
    /// End of the index, where payloads can begin.
    pub end: u64,
}

impl FileHead {
    pub(crate) fn rows(&self) -> &[IndexRow] {
        chunk_index::rows(&self.rows)
    }

    /// Digest of directory and index.
    pub(crate) fn catalog_digest(&self) -> u64 {
        xxh3_64(&self.catalog)
    }

    /// End of the last payload, or of the index if there is none. Ends beyond `u64` are ignored.
    pub(crate) fn last_payload_end(&self) -> u64 {
        self.rows().iter().filter_map(IndexRow::payload_end).max().unwrap_or(0).max(self.end)
    }
}

/// The metadata of one file.
pub(crate) struct FileLayout {
    pub object: String,
    pub file_len: u64,
    pub head: FileHead,
    pub footer: Option<TetFooter>,
    /// End of the bytes available for payloads.
    pub payload_len: u64,
    pub digests: Digests,
    /// Index of each dataset's first row, if the rows are in canonical order; the row of a chunk is then computed.
    pub first_row: Option<Vec<u64>>,
    /// Codecs of each dataset as bits: bit 0 raw, bit 1 zstd.
    pub codecs: Vec<u8>,
    /// Stored size of each dataset in bytes.
    pub stored: Vec<u64>,
}

impl fmt::Debug for FileLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout")
            .field("object", &self.object)
            .field("superblock", &self.head.superblock)
            .field("header", &self.head.header)
            .field("payload_len", &self.payload_len)
            .finish_non_exhaustive()
    }
}

impl FileLayout {
    /// Reads and validates the metadata.
    pub(crate) fn read(source: &FileBytes<'_>, limits: &Limits, digests: bool) -> Result<Self, OpenFailure> {
        if !source.is_resident() {
            source.fetch(&metadata_ranges(source, limits, digests).unwrap_or_default());
        }
        let head = read_head(source, limits)?;
        let footer = if head.superblock.has_footer() {
            Some(read_footer(source, head.end, limits, digests).at(FileSection::Footer)?)
        } else {
            // Without the flag the last bytes are payload, even if they look like a tail.
            None
        };
        let (footer, payload_len) = footer.map_or((None, source.len), |(footer, len)| (Some(footer), len));
        let RowScan { first_row, codecs, stored, .. } =
            scan_rows(source, &head, payload_len).at(FileSection::Payloads)?;
        let digests = if digests {
            find_digests(source, &head, footer.as_ref(), payload_len).at(FileSection::Digests)?
        } else {
            Digests::Absent
        };
        let object = source.object.clone();
        Ok(Self {
            object,
            file_len: source.len,
            head,
            footer,
            payload_len,
            digests,
            first_row,
            codecs,
            stored,
        })
    }

    pub(crate) fn rows(&self) -> &[IndexRow] {
        self.head.rows()
    }

    /// Returns the footer's metadata of a dataset.
    pub(crate) fn metadata(&self) -> Option<&FooterMetadata> {
        self.footer.as_ref()?.metadata.as_ref()
    }

    /// Offset of the statistics of chunks, if the file has any: after the digests, or else after the payloads.
    pub(crate) fn statistics_offset(&self) -> Option<u64> {
        match &self.digests {
            Digests::Present { region, .. } | Digests::Unusable { region, .. } => region.end(),
            Digests::Absent => match self.json().and_then(|json| json.digests_ref) {
                // Digests are not verified.
                Some(digests) => digests.region.end(),
                None => align8(self.head.last_payload_end()),
            },
        }
    }

    pub(crate) fn json(&self) -> Option<&FooterJson> {
        Some(&self.footer.as_ref()?.json)
    }

    /// Returns references to zone maps and secondary index, which require footer version 2.
    pub(crate) fn accelerators(&self) -> [Option<FileRange>; 2] {
        match &self.footer {
            Some(f) if f.tail.version >= 2 => [f.json.zone_maps_ref, f.json.secondary_index_ref],
            _ => [None, None],
        }
    }
}

/// Ranges of the metadata of a well-formed file, as its first and last bytes locate them: index, digests and metadata. `None`
/// if they do not; reading then reports why.
fn metadata_ranges(source: &FileBytes<'_>, limits: &Limits, digests: bool) -> Option<Vec<Range<u64>>> {
    let object = source.object.as_str();
    let first = source.held(&(0..superblock::LEN))?;
    let superblock = Superblock::parse(&mut Cursor::at_offset(object, &first, 0), source.len).ok()?;
    let end = superblock.chunk_index_offset.checked_add(superblock.chunk_index_length)?;
    limits.check_metadata(end.checked_sub(directory::OFFSET)?).ok()?;
    let tail_offset = source.len.checked_sub(TAIL_LEN)?;
    let tail = source.held(&(tail_offset..source.len))?;
    let tail = FooterTail::parse(&mut Cursor::at_offset(object, &tail, tail_offset)).ok()?;
    let json_offset = tail_offset.checked_sub(tail.json_len)?;
    let text = source.held(&(json_offset..tail_offset))?;
    let json = FooterJson::parse(&text, object, json_offset, limits.depth).ok()?;
    let spill = json.metadata_ref.filter(|spill| limits.check_metadata(spill.len).is_ok());
    let spill = spill.and_then(|spill| Some(spill.offset..spill.end()?));
    let digests = json.digests_ref.filter(|_| digests).and_then(|found| {
        // A digest takes at most as many bytes as a row of the index; the digests of blocks follow those of rows.
        let most = superblock.chunk_index_length.checked_add(SMALL_TABLE)?;
        Some(found.region.offset..found.region.end()?.min(found.region.offset.checked_add(most)?))
    });
    Some(std::iter::once(directory::OFFSET..end).chain(digests).chain(spill).collect())
}

/// Reads superblock, directory and index.
pub(crate) fn read_head(source: &FileBytes<'_>, limits: &Limits) -> Result<FileHead, OpenFailure> {
    let object = source.object.as_str();
    let first = source.get(0..source.len.min(superblock::LEN), "superblock").at(FileSection::Superblock)?;
    let superblock = Superblock::parse(&mut Cursor::at_offset(object, &first, 0), source.len)
        .at(FileSection::Superblock)?;
    if superblock.dataset_count == 0 {
        let header = IndexHeader::default();
        let (rows, catalog, datasets) = (Bytes::new(), Bytes::new(), Vec::new());
        return Ok(FileHead { superblock, header, datasets, rows, catalog, end: superblock::LEN });
    }
    let (offset, length) = (superblock.chunk_index_offset, superblock.chunk_index_length);
    let start = directory::OFFSET;
    // Both lengths are validated before anything is read: offset + length is inside the file.
    let blob_len = source.get(start..start + 8, "dataset directory").at(FileSection::Directory)?;
    let blob_len =
        Cursor::at_offset(object, &blob_len, start).u64("dataset directory").at(FileSection::Directory)?;
    if directory::index_offset(blob_len) != Some(offset) {
        let detail = format!("{blob_len} bytes of records overlap the chunk index at {offset}");
        return Err(Error::corrupt("dataset directory", object, start, detail)).at(FileSection::Directory);
    }
    let end = offset + length;
    limits.check_metadata(end - start).at(FileSection::Index)?;
    let catalog = source.get(start..end, "chunk index").at(FileSection::Index)?;
    // offset - start is at most the length of `catalog`.
    let (records, index) = catalog.split_at((offset - start) as usize);
    // `records` ends with padding that belongs to no record.
    let padding = usize::try_from(offset - start - 8 - blob_len).unwrap_or(0);
    let mut cursor = Cursor::at_offset(object, &records[..records.len() - padding], start);
    let datasets = directory::parse(&mut cursor, superblock.dataset_count).at(FileSection::Directory)?;
    let mut cursor = Cursor::at_offset(object, index, offset);
    let header = IndexHeader::parse(&mut cursor, length).at(FileSection::Index)?;
    let rows = catalog.slice_ref(cursor.rest());
    Ok(FileHead { superblock, header, datasets, rows, catalog, end })
}

/// Reads the footer of a file with the footer flag. Also returns the end of the bytes available for payloads.
pub(crate) fn read_footer(
    source: &FileBytes<'_>,
    head_end: u64,
    limits: &Limits,
    digests: bool,
) -> Result<(TetFooter, u64)> {
    let object = source.object.as_str();
    let corrupt = |at: u64, detail: String| Error::corrupt("footer", object, at, detail);
    let tail_offset = source.len.checked_sub(TAIL_LEN).filter(|at| *at >= head_end).ok_or_else(|| {
        Error::truncated("footer", object, head_end, TAIL_LEN, source.len.saturating_sub(head_end))
    })?;
    let bytes = source.get(tail_offset..source.len, "footer")?;
    let tail = FooterTail::parse(&mut Cursor::at_offset(object, &bytes, tail_offset))?;
    // Tail::parse has validated that the JSON fits before the tail.
    let json_offset = tail_offset - tail.json_len;
    limits.check_metadata(tail.json_len)?;
    let text = source.get(json_offset..tail_offset, "footer JSON")?;
    let mut json = FooterJson::parse(&text, object, json_offset, limits.depth)?;
    if digests && json.digests_ref.is_some_and(|d| json.actual_digest != Some(d.json)) {
        return Err(Error::corrupt("footer JSON", object, json_offset, "digest mismatch"));
    }
    let spilled = json
        .spills(tail.version)
        .try_fold(0_u64, |sum, spill| sum.checked_add(spill.len))
        .and_then(|sum| json_offset.checked_sub(sum))
        .filter(|end| *end >= head_end);
    let payload_len = spilled.ok_or_else(|| {
        corrupt(json_offset, "references point outside the bytes between index and footer".to_owned())
    })?;
    let metadata = match json.metadata_ref {
        None => json.metadata.take(),
        Some(spill) => {
            let end = spill.end().ok_or_else(|| {
                corrupt(json_offset, format!("a metadata spill of {} bytes at {}", spill.len, spill.offset))
            })?;
            limits.check_metadata(spill.len)?;
            let text = source.get(spill.offset..end, "metadata spill")?;
            let damaged = |detail: String| Error::corrupt("metadata spill", object, spill.offset, detail);
            let expected = json.digests_ref.and_then(|d| d.spill);
            if digests && expected.is_some_and(|digest| digest != xxh3_64(&text)) {
                return Err(damaged("digest mismatch".to_owned()));
            }
            if crate::wire::json::depth(&text) > limits.depth {
                return Err(damaged(format!("nested more than {} levels deep", limits.depth)));
            }
            let JsonObject(metadata) = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
            Some(metadata)
        }
    };
    Ok((TetFooter { tail, json_offset, json, metadata }, payload_len))
}

/// Rejects the first row with an invalid payload range; returns a summary of all rows.
fn scan_rows(source: &FileBytes<'_>, head: &FileHead, payload_len: u64) -> Result<RowScan> {
    let scan = RowScan::new(head, payload_len);
    if scan.suspect {
        let offset = head.superblock.chunk_index_offset;
        for (number, row) in head.rows().iter().enumerate() {
            row.check(&source.object, offset, number as u64, head.end, payload_len)
                .map_err(|e| name_row(e, head, row))?;
        }
    }
    Ok(scan)
}

/// Result of one pass over the rows.
///
/// In canonical order, datasets are sorted as in the directory and grids row-major, without missing or duplicate chunks. The
/// row of a chunk is then computed without a table. A row spans two cache lines, which the payload checks read anyway.
pub(crate) struct RowScan {
    /// Index of the first row of each dataset, if the rows are in canonical order.
    pub first_row: Option<Vec<u64>>,
    /// Codecs of each dataset as bits.
    pub codecs: Vec<u8>,
    /// Stored size of each dataset in bytes.
    pub stored: Vec<u64>,
    /// Whether any row is invalid.
    pub suspect: bool,
}

impl RowScan {
    pub(crate) fn new(head: &FileHead, payload_len: u64) -> Self {
        let rows = head.rows();
        let mut codecs = vec![0_u8; head.datasets.len()];
        let mut stored = vec![0_u64; head.datasets.len()];
        let mut order = CanonicalOrder::new(&head.datasets, rows.len() as u64);
        let mut suspect = false;
        for row in rows {
            suspect |= row.is_suspect(head.end, payload_len);
            order.add(row);
            let dataset = usize::try_from(row.dataset_id.get()).unwrap_or(usize::MAX);
            if let (Some(mask), Some(stored)) = (codecs.get_mut(dataset), stored.get_mut(dataset)) {
                *mask |= 1 << (row.codec.get() & 1);
                *stored = stored.saturating_add(row.stored_byte_len.get());
            }
        }
        Self { first_row: order.finish(), codecs, stored, suspect }
    }
}

fn name_row(error: Error, head: &FileHead, row: &IndexRow) -> Error {
    match usize::try_from(row.dataset_id.get()).ok().and_then(|d| head.datasets.get(d)) {
        Some(dataset) => error.in_array(&dataset.name).in_chunk(&row.coords(dataset.shape.len())),
        None => error,
    }
}

/// Compares rows with the canonical order.
#[derive(Debug)]
struct CanonicalOrder {
    first_row: Vec<u64>,
    /// Grid extents of the datasets with chunks, and their indexes.
    grids: Vec<(u64, smallvec::SmallVec<[u64; 8]>)>,
    at: usize,
    coords: [u64; directory::MAX_RANK],
    holds: bool,
}

impl CanonicalOrder {
    fn new(datasets: &[DatasetRecord], rows: u64) -> Self {
        let mut first_row = Vec::with_capacity(datasets.len());
        let mut grids = Vec::new();
        let mut next = Some(0_u64);
        for (number, dataset) in datasets.iter().enumerate() {
            first_row.push(next.unwrap_or(0));
            let grid = ChunkGrid::new(&dataset.shape, &dataset.chunk_shape).ok();
            if let Some(grid) = grid.as_ref().filter(|grid| grid.total() > 0) {
                grids.push((number as u64, grid.counts().iter().copied().collect()));
            }
            next = next.zip(grid).and_then(|(next, grid)| next.checked_add(grid.total()));
        }
        let holds = next == Some(rows);
        Self { first_row, grids, at: 0, coords: [0; directory::MAX_RANK], holds }
    }

    #[inline]
    fn add(&mut self, row: &IndexRow) {
        if !self.holds {
            return;
        }
        let Some((dataset, counts)) = self.grids.get(self.at) else {
            self.holds = false;
            return;
        };
        let same = self.coords.iter().zip(&row.chunk_index).take(counts.len()).all(|(a, b)| *a == b.get());
        self.holds = same & (row.dataset_id.get() == *dataset);
        for (c, n) in self.coords.iter_mut().zip(counts).rev() {
            *c += 1;
            if *c < *n {
                return;
            }
            *c = 0;
        }
        self.at += 1;
    }

    /// Returns the first row of each dataset, if all rows were in canonical order.
    fn finish(self) -> Option<Vec<u64>> {
        self.holds.then_some(self.first_row)
    }
}

/// Locates the digests: by the footer, or at the offset where a writer places them if the key is absent.
pub(crate) fn find_digests(
    source: &FileBytes<'_>,
    head: &FileHead,
    footer: Option<&TetFooter>,
    payload_len: u64,
) -> Result<Digests> {
    let entries = head.header.entry_count;
    let keyed = footer.and_then(|f| f.json.digests_ref).map(|d| d.region);
    let mut region = match keyed {
        Some(region) => region,
        None => {
            let Some(offset) = align8(head.last_payload_end()) else { return Ok(Digests::Absent) };
            let fits = offset.checked_add(digest_region::MIN_LEN).is_some_and(|end| end <= payload_len);
            if head.datasets.is_empty() || !fits {
                return Ok(Digests::Absent);
            }
            // The length is known after its first bytes.
            FileRange { offset, len: digest_region::MIN_LEN }
        }
    };
    let mut read = || -> Result<Option<StoredDigests>> {
        let outside = |region: FileRange| {
            let detail = format!("{} bytes at {} are outside the payload area", region.len, region.offset);
            Error::corrupt("digest region", &source.object, region.offset, detail)
        };
        let inside = |region: FileRange| {
            region
                .end()
                .filter(|end| *end <= payload_len && region.offset >= head.end)
                .ok_or_else(|| outside(region))
        };
        let end = inside(region)?;
        let start =
            source.get(region.offset..end.min(region.offset + digest_region::MIN_LEN), "digest region")?;
        if keyed.is_none() && start.get(..4) != Some(&digest_region::MAGIC[..]) {
            return Ok(None);
        }
        let extent = Extent::parse(&mut Cursor::at_offset(&source.object, &start, region.offset), entries)?;
        if keyed.is_none() {
            region.len = extent.total_len();
            inside(region)?;
        } else if region.len != extent.total_len() {
            let detail = format!("{} bytes, expected {}", region.len, extent.total_len());
            return Err(Error::corrupt("digest region", &source.object, region.offset, detail));
        }
        let rows_end = region.offset + extent.rows_len;
        let bytes = source.get(region.offset..rows_end, "digest region")?;
        let parsed =
            DigestRegion::parse(&mut Cursor::at_offset(&source.object, &bytes, region.offset), extent)?;
        if parsed.catalog != head.catalog_digest() {
            let detail = "digest mismatch of directory and chunk index";
            return Err(Error::corrupt("chunk index", &source.object, directory::OFFSET, detail));
        }
        // Without the digests of blocks, a chunk is verified as a whole. They are not worth a large read.
        let blocks = match source.is_resident() || extent.blocks_len <= SMALL_TABLE {
            true => source.get(rows_end..rows_end + extent.blocks_len, "digest region")?,
            false => Bytes::new(),
        };
        let rows = bytes.slice_ref(parsed.rows);
        Ok(Some(StoredDigests { rows, block: parsed.block.into(), count: parsed.blocks, blocks }))
    };
    match read() {
        Ok(Some(table)) => Ok(Digests::Present { region, table, keyed: keyed.is_some() }),
        Ok(None) => Ok(Digests::Absent),
        Err(error) if keyed.is_some() && error.is_damage() => {
            Err(error.hint(Advice::from("restore the file from a copy").or(Advice::SkipDigests)))
        }
        Err(error) => Ok(Digests::Unusable { region, error }),
    }
}
