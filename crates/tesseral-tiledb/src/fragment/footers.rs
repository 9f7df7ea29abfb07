//! Footers: read from the ends of metadata files, with the digests that precede them.

use std::ops::Range;
use std::sync::Arc;

use tesseral_core::{Advice, Error, Result};
use tesseral_store::{ByteRange, Bytes, Rounds, StoreExt};

use super::{Fragment, METADATA};
use crate::directory::FragmentEntry;
use crate::metadata_loader::{MetadataLoader, join};
use crate::model::StoredSchema;
use crate::wire::digest_table::{self, DigestTable};
use crate::wire::footer::implied_len;
use crate::wire::name::carries_digest;
use crate::wire::primitive::le64;

/// Number of bytes read from the end of a metadata file before the length of its footer is known; usually sufficient.
const MIN_TAIL: u64 = 4 << 10;

/// As above over a network: maximum of all fragments together, and of one.
const NETWORK_TAILS: u64 = 4 << 20;
const MAX_TAIL: u64 = 64 << 10;

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
    pub(super) footer_at: u64,
    /// Length of the file in bytes.
    pub(super) len: u64,
    /// Digests of the fragment, if it has any.
    pub(super) digests: Option<Arc<DigestTable>>,
    /// Last bytes of the file, if they were read over a network together with the footer. In most fragments they include all lists of tiles.
    tail: Bytes,
}

impl MetadataEnd {
    /// Bytes before the footer, if they were read with it.
    fn bytes_before_footer(&self, range: &Range<u64>) -> Option<Bytes> {
        let first = self.len.checked_sub(self.tail.len() as u64)?;
        let at = |n: u64| usize::try_from(n.checked_sub(first)?).ok();
        let (from, to) = (at(range.start)?, at(range.end)?);
        (from <= to && to <= self.tail.len()).then(|| self.tail.slice(from..to))
    }

    /// Bytes of the metadata file, read unless they are held.
    pub(super) fn read(&self, reader: &MetadataLoader, object: &str, range: Range<u64>) -> Result<Bytes> {
        self.bytes_before_footer(&range).map_or_else(|| reader.store.read(object, range), Ok)
    }
}

impl Fragment {
    /// Returns the end of the fragment's own metadata file, read if the footer came from a consolidated copy.
    pub(super) fn metadata_end(&self, reader: &MetadataLoader) -> Result<&MetadataEnd> {
        if let Some(own) = self.metadata_end.get() {
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
                return Ok(self.metadata_end.get_or_init(|| own));
            }
        }
        let len = reader.store.len(&object)?;
        let footer_at = len.checked_sub(8).and_then(|n| n.checked_sub(self.footer_len)).ok_or_else(|| {
            Error::truncated("the footer", reader.store.describe(&object), 0, self.footer_len, len)
        })?;
        Ok(self.metadata_end.get_or_init(|| MetadataEnd {
            footer_at,
            len,
            digests: None,
            tail: Bytes::new(),
        }))
    }

    /// Returns whether bytes equal its footer.
    pub(crate) fn has_footer(&self, bytes: &[u8]) -> bool {
        xxhash_rust::xxh3::xxh3_64(bytes) == self.footer_digest
    }
}

/// Reads the footers of fragments.
///
/// `only_schema` is that of an array that was created before version 10: the length of older footers follows from it.
pub(crate) fn read_footers<'a>(
    reader: &MetadataLoader,
    fragments: impl IntoIterator<Item = &'a FragmentEntry>,
    only_schema: Option<&StoredSchema>,
) -> Result<Vec<FooterBytes>> {
    let fragments: Vec<&FragmentEntry> = fragments.into_iter().collect();
    let objects: Vec<String> = fragments.iter().map(|f| join(&f.folder, METADATA)).collect();
    // Over a network, more bytes cost less than another request, as long as they are few in total.
    let end = match reader.waits() {
        true => (NETWORK_TAILS / objects.len().max(1) as u64).clamp(MIN_TAIL, MAX_TAIL),
        false => MIN_TAIL,
    };
    let tails: Vec<_> = objects.iter().map(|o| (o.as_str(), ByteRange::Suffix(end))).collect();
    let ends = reader.store.read_objects(&tails)?;
    let implied = |fragment: &FragmentEntry| implied_len(fragment.version, &only_schema?.wire);
    let mut footers = Vec::with_capacity(objects.len());
    for ((f, object), end) in fragments.iter().zip(&objects).zip(ends) {
        let footer = match f.version {
            // The whole file is one generic tile.
            ..3 => reader.object(object).map(|(bytes, _)| FooterBytes {
                bytes: bytes.into(),
                own: Some(MetadataEnd { footer_at: 0, len: end.len, digests: None, tail: Bytes::new() }),
            }),
            _ => parse_end(reader, object, end.len, &end.bytes, implied(f)),
        };
        footers.extend(Rounds::later(footer)?);
    }
    if footers.len() < objects.len() { Err(Error::pending()) } else { Ok(footers) }
}

/// Reads the footer of one fragment.
pub(crate) fn read_footer(
    reader: &MetadataLoader,
    fragment: &FragmentEntry,
    only_schema: Option<&StoredSchema>,
) -> Result<FooterBytes> {
    let footer = read_footers(reader, [fragment], only_schema)?.pop();
    footer.ok_or_else(|| Error::internal("missing footer"))
}

/// Parses the footer at the end of a file of `len` bytes; `bytes` are its last ones.
fn parse_end(
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
    let part = |range: Range<u64>| -> Result<Bytes> {
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
