//! The metadata of one file, read and checked: everything but the payloads.

use std::fmt;

use bytes::Bytes;
use tesseral_core::{ChunkGrid, Error, Limits, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::source::Source;
use crate::wire::chunk_index::{self, IndexHeader, Row};
use crate::wire::digest_region::{self, DigestRegion};
use crate::wire::directory::{self, DatasetRecord};
use crate::wire::footer::{FooterJson, Ref, TAIL_LEN, Tail};
use crate::wire::json::Object;
use crate::wire::metadata::Metadata;
use crate::wire::superblock::{self, Superblock};
use crate::wire::{Cursor, align8};

/// Which part of the file an error is about. What can be repaired depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    Superblock,
    Directory,
    Index,
    Footer,
    Payloads,
    Digests,
}

/// Why a file does not open.
#[derive(Debug)]
pub(crate) struct Failure {
    pub stage: Stage,
    pub error: Error,
}

trait At<T> {
    fn at(self, stage: Stage) -> Result<T, Failure>;
}

impl<T> At<T> for Result<T> {
    fn at(self, stage: Stage) -> Result<T, Failure> {
        self.map_err(|error| Failure { stage, error })
    }
}

/// The footer with what it refers to.
#[derive(Clone, Debug)]
pub(crate) struct Footer {
    pub tail: Tail,
    /// Where the JSON begins.
    pub json_offset: u64,
    pub json: FooterJson,
    /// Metadata, inline or spilled.
    pub metadata: Option<Metadata>,
}

/// What became of the digests.
#[derive(Debug)]
pub(crate) enum Digests {
    /// The file has none, or they were not asked for.
    Absent,
    /// One per row; `keyed` when the footer names the region and so answers for it.
    Present { region: Ref, chunks: Bytes, keyed: bool },
    /// A region that does not fit the file it was found in.
    Unusable { region: Ref, error: Error },
}

/// Superblock, directory and index: what lies before the payloads.
#[derive(Clone)]
pub(crate) struct Head {
    pub superblock: Superblock,
    pub header: IndexHeader,
    pub datasets: Vec<DatasetRecord>,
    /// The rows of the index, as they lie in the file.
    rows: Bytes,
    /// Directory and index: what the catalog digest covers.
    catalog: Bytes,
    /// One past the index, where payloads may begin.
    pub end: u64,
}

impl Head {
    pub(crate) fn rows(&self) -> &[Row] {
        chunk_index::rows(&self.rows)
    }

    /// Where the last payload ends, or the index when there is none. Ends beyond `u64` do not count.
    pub(crate) fn last_payload_end(&self) -> u64 {
        self.rows().iter().filter_map(Row::payload_end).max().unwrap_or(0).max(self.end)
    }
}

/// The metadata of one file.
pub(crate) struct Layout {
    pub object: String,
    pub file_len: u64,
    pub head: Head,
    pub footer: Option<Footer>,
    /// One past the bytes that payloads may use.
    pub payload_len: u64,
    pub digests: Digests,
    /// Number of each dataset's first row, when the rows are in canonical order: a chunk's row is then computed.
    pub first_row: Option<Vec<u64>>,
    /// Codecs each dataset uses: bit 0 raw, bit 1 zstd.
    pub codecs: Vec<u8>,
    /// Stored bytes of each dataset's rows.
    pub stored: Vec<u64>,
}

impl fmt::Debug for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Layout")
            .field("object", &self.object)
            .field("superblock", &self.head.superblock)
            .field("header", &self.head.header)
            .field("payload_len", &self.payload_len)
            .finish_non_exhaustive()
    }
}

impl Layout {
    /// Reads and checks everything that must hold for a file to open.
    pub(crate) fn read(source: &Source<'_>, limits: &Limits, digests: bool) -> Result<Self, Failure> {
        let head = read_head(source, limits)?;
        let footer = if head.superblock.has_footer() {
            Some(read_footer(source, head.end, limits, digests).at(Stage::Footer)?)
        } else {
            // Without the flag the last bytes are payload, whatever they spell.
            None
        };
        let (footer, payload_len) = footer.map_or((None, source.len), |(footer, len)| (Some(footer), len));
        let RowScan { first_row, codecs, stored, .. } =
            scan_rows(source, &head, payload_len).at(Stage::Payloads)?;
        let digests = if digests {
            find_digests(source, &head, footer.as_ref(), payload_len).at(Stage::Digests)?
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

    pub(crate) fn rows(&self) -> &[Row] {
        self.head.rows()
    }

    /// What the footer says of a dataset.
    pub(crate) fn metadata(&self) -> Option<&Metadata> {
        self.footer.as_ref()?.metadata.as_ref()
    }

    pub(crate) fn json(&self) -> Option<&FooterJson> {
        Some(&self.footer.as_ref()?.json)
    }

    /// Zone maps and secondary index, which only footers of version 2 have.
    pub(crate) fn accelerators(&self) -> [Option<Ref>; 2] {
        match &self.footer {
            Some(f) if f.tail.version >= 2 => [f.json.zone_maps_ref, f.json.secondary_index_ref],
            _ => [None, None],
        }
    }
}

/// Reads superblock, directory and index.
pub(crate) fn read_head(source: &Source<'_>, limits: &Limits) -> Result<Head, Failure> {
    let object = source.object.as_str();
    let first = source.get(0..source.len.min(superblock::LEN), "superblock").at(Stage::Superblock)?;
    let superblock =
        Superblock::parse(&mut Cursor::new(object, &first, 0), source.len).at(Stage::Superblock)?;
    if superblock.dataset_count == 0 {
        let header = IndexHeader::default();
        let (rows, catalog, datasets) = (Bytes::new(), Bytes::new(), Vec::new());
        return Ok(Head { superblock, header, datasets, rows, catalog, end: superblock::LEN });
    }
    let (offset, length) = (superblock.chunk_index_offset, superblock.chunk_index_length);
    let start = directory::OFFSET;
    // Both lengths are checked against one another before either makes us read: offset + length is inside the file.
    let blob_len = source.get(start..start + 8, "dataset directory").at(Stage::Directory)?;
    let blob_len = Cursor::new(object, &blob_len, start).u64("dataset directory").at(Stage::Directory)?;
    if directory::index_offset(blob_len) != Some(offset) {
        let detail = format!("{blob_len} bytes of records do not end before a chunk index at {offset}");
        return Err(Error::corrupt("dataset directory", object, start, detail)).at(Stage::Directory);
    }
    let end = offset + length;
    limits.check_metadata(end - start).at(Stage::Index)?;
    let catalog = source.get(start..end, "chunk index").at(Stage::Index)?;
    // offset - start is at most the length of `catalog`.
    #[allow(clippy::cast_possible_truncation)]
    let (records, index) = catalog.split_at((offset - start) as usize);
    // `records` ends with the padding, which belongs to no record.
    let padding = usize::try_from(offset - start - 8 - blob_len).unwrap_or(0);
    let mut cursor = Cursor::new(object, &records[..records.len() - padding], start);
    let datasets = directory::parse(&mut cursor, superblock.dataset_count).at(Stage::Directory)?;
    let mut cursor = Cursor::new(object, index, offset);
    let header = IndexHeader::parse(&mut cursor, length).at(Stage::Index)?;
    let rows = catalog.slice_ref(cursor.rest());
    Ok(Head { superblock, header, datasets, rows, catalog, end })
}

/// Reads the footer of a file whose flag says there is one; also gives where payloads must end.
pub(crate) fn read_footer(
    source: &Source<'_>,
    head_end: u64,
    limits: &Limits,
    digests: bool,
) -> Result<(Footer, u64)> {
    let object = source.object.as_str();
    let corrupt = |at: u64, detail: String| Error::corrupt("footer", object, at, detail);
    let tail_offset = source.len.checked_sub(TAIL_LEN).filter(|at| *at >= head_end).ok_or_else(|| {
        Error::truncated("footer", object, head_end, TAIL_LEN, source.len.saturating_sub(head_end))
    })?;
    let bytes = source.get(tail_offset..source.len, "footer")?;
    let tail = Tail::parse(&mut Cursor::new(object, &bytes, tail_offset))?;
    // Tail::parse has made sure that the JSON fits before the tail.
    let json_offset = tail_offset - tail.json_len;
    limits.check_metadata(tail.json_len)?;
    let text = source.get(json_offset..tail_offset, "footer JSON")?;
    let mut json = FooterJson::parse(&text, object, json_offset, limits.depth)?;
    if digests && json.digests_ref.is_some_and(|d| json.actual_digest != Some(d.json)) {
        return Err(Error::corrupt("footer JSON", object, json_offset, "it does not match its digest"));
    }
    let spilled = json
        .spills(tail.version)
        .try_fold(0_u64, |sum, spill| sum.checked_add(spill.len))
        .and_then(|sum| json_offset.checked_sub(sum))
        .filter(|end| *end >= head_end);
    let payload_len = spilled.ok_or_else(|| {
        corrupt(json_offset, "the texts it refers to do not fit between the index and itself".to_owned())
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
                return Err(damaged("it does not match its digest".to_owned()));
            }
            if crate::wire::json::depth(&text) > limits.depth {
                return Err(damaged(format!("nested more than {} levels deep", limits.depth)));
            }
            let Object(metadata) = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
            Some(metadata)
        }
    };
    Ok((Footer { tail, json_offset, json, metadata }, payload_len))
}

/// Refuses the first row whose payload is not where it may be; gives what there is to know of all of them.
fn scan_rows(source: &Source<'_>, head: &Head, payload_len: u64) -> Result<RowScan> {
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

/// What one pass over the rows tells.
///
/// Canonical order means datasets as in the directory and each grid row-major, nothing missing, nothing twice: a chunk's
/// row is then a sum and needs no table. A row is two cache lines, which the payload checks touch anyway.
pub(crate) struct RowScan {
    /// The first row of each dataset, when the rows are in canonical order.
    pub first_row: Option<Vec<u64>>,
    /// The codecs each dataset uses.
    pub codecs: Vec<u8>,
    /// Stored bytes of each dataset's rows.
    pub stored: Vec<u64>,
    /// Some row is not as it must be.
    pub suspect: bool,
}

impl RowScan {
    pub(crate) fn new(head: &Head, payload_len: u64) -> Self {
        let rows = head.rows();
        let mut codecs = vec![0_u8; head.datasets.len()];
        let mut stored = vec![0_u64; head.datasets.len()];
        let mut order = CanonicalOrder::new(&head.datasets, rows.len() as u64);
        let mut suspect = false;
        for row in rows {
            suspect |= row.is_suspect(head.end, payload_len);
            order.see(row);
            let dataset = usize::try_from(row.dataset_id.get()).unwrap_or(usize::MAX);
            if let (Some(mask), Some(stored)) = (codecs.get_mut(dataset), stored.get_mut(dataset)) {
                *mask |= 1 << (row.codec.get() & 1);
                *stored = stored.saturating_add(row.stored_byte_len.get());
            }
        }
        Self { first_row: order.finish(), codecs, stored, suspect }
    }
}

fn name_row(error: Error, head: &Head, row: &Row) -> Error {
    match usize::try_from(row.dataset_id.get()).ok().and_then(|d| head.datasets.get(d)) {
        Some(dataset) => error.in_array(&dataset.name).in_chunk(&row.coords(dataset.shape.len())),
        None => error,
    }
}

/// Compares rows with the order in which writers write them.
#[derive(Debug)]
struct CanonicalOrder {
    first_row: Vec<u64>,
    /// Grid extents of the datasets that have chunks, with their numbers.
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
    fn see(&mut self, row: &Row) {
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

    /// The first row of each dataset, when every row was in its place.
    fn finish(self) -> Option<Vec<u64>> {
        self.holds.then_some(self.first_row)
    }
}

/// Finds the digests: where the footer says, or, when that key is gone, where a writer would have put them.
pub(crate) fn find_digests(
    source: &Source<'_>,
    head: &Head,
    footer: Option<&Footer>,
    payload_len: u64,
) -> Result<Digests> {
    let entries = head.header.entry_count;
    let keyed = footer.and_then(|f| f.json.digests_ref).map(|d| d.region);
    let region = match keyed {
        Some(region) => region,
        None => {
            let probe = align8(head.last_payload_end()).zip(digest_region::length(entries));
            let Some((offset, len)) = probe else { return Ok(Digests::Absent) };
            let fits = offset.checked_add(len).is_some_and(|end| end <= payload_len);
            if head.datasets.is_empty() || !fits {
                return Ok(Digests::Absent);
            }
            Ref { offset, len }
        }
    };
    let read = || -> Result<Option<Bytes>> {
        let end = region.end().filter(|end| *end <= payload_len && region.offset >= head.end);
        let end = end.ok_or_else(|| {
            let detail = format!("{} bytes at {} do not lie among the payloads", region.len, region.offset);
            Error::corrupt("digest region", &source.object, region.offset, detail)
        })?;
        if keyed.is_none()
            && source.get(region.offset..region.offset + 4, "digest region")?[..] != digest_region::MAGIC
        {
            return Ok(None);
        }
        let bytes = source.get(region.offset..end, "digest region")?;
        let parsed = DigestRegion::parse(&mut Cursor::new(&source.object, &bytes, region.offset), entries)?;
        if parsed.catalog != xxh3_64(&head.catalog) {
            let detail = "directory and chunk index do not match their digest";
            return Err(Error::corrupt("chunk index", &source.object, directory::OFFSET, detail));
        }
        Ok(Some(bytes.slice_ref(parsed.chunks)))
    };
    match read() {
        Ok(Some(chunks)) => Ok(Digests::Present { region, chunks, keyed: keyed.is_some() }),
        Ok(None) => Ok(Digests::Absent),
        Err(error) if keyed.is_some() && error.is_damage() => {
            Err(error.hint("the data may still be readable with digest checks turned off"))
        }
        Err(error) => Ok(Digests::Unusable { region, error }),
    }
}
