//! Cached state of one object: its length, its version and some of its bytes.

use bytes::Bytes;
use object_store::{ObjectMeta, UpdateVersion};

use crate::store::{ByteRange, ObjectBytes};

/// Maximum number of bytes kept of one object.
const MOST: usize = 8 << 20;

/// Length, version and held bytes of an object.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    len: Option<u64>,
    version: Option<ObjectVersion>,
    /// Entity tag in a listing.
    listed: Option<String>,
    held: Vec<(u64, Bytes)>,
}

/// The content that an object had at the first answer.
#[derive(Debug)]
struct ObjectVersion {
    etag: Option<String>,
    /// For servers without entity tags; unknown of a version that was only identified.
    modified: Option<i64>,
    /// Its number, by which some services replace it.
    number: Option<String>,
}

impl Pieces {
    /// Length in bytes, if an answer or a listing stated it.
    pub(crate) fn len(&self) -> Option<u64> {
        self.len
    }

    /// Returns whether the object was read.
    pub(crate) fn is_met(&self) -> bool {
        self.version.is_some()
    }

    /// Notes length and entity tag from a listing.
    pub(crate) fn note_listed(&mut self, len: u64, etag: Option<&str>) {
        if self.version.is_none() {
            self.len = Some(len);
            self.listed = etag.map(str::to_owned);
        }
    }

    /// Entity tag and length of the version that was read, or else listed, if the tag identifies the content.
    pub(crate) fn identified(&self) -> Option<(&str, u64)> {
        let etag = self.etag().or(self.listed.as_deref().filter(|_| self.version.is_none()));
        Some((etag.filter(|etag| !etag.starts_with("W/"))?, self.len?))
    }

    /// Determines the version by its entity tag, if no answer did.
    pub(crate) fn pin(&mut self, etag: &str, len: u64) {
        if self.version.is_none() {
            self.version = Some(ObjectVersion { etag: Some(etag.to_owned()), modified: None, number: None });
            self.len = Some(len);
        }
    }

    /// The condition of a request that replaces only the version that was read.
    pub(crate) fn update(&self) -> Option<UpdateVersion> {
        let version = self.version.as_ref()?;
        let update = UpdateVersion { e_tag: version.etag.clone(), version: version.number.clone() };
        (update.e_tag.is_some() || update.version.is_some()).then_some(update)
    }

    /// Entity tag of the version that was read.
    pub(crate) fn etag(&self) -> Option<&str> {
        self.version.as_ref()?.etag.as_deref()
    }

    /// Compares the version of an answer with that of earlier ones; the first answer determines it. Returns whether they are
    /// the same.
    pub(crate) fn admit(&mut self, meta: &ObjectMeta) -> bool {
        let now = ObjectVersion {
            etag: meta.e_tag.clone(),
            modified: Some(meta.last_modified.timestamp_micros()),
            number: meta.version.clone(),
        };
        let same = match &self.version {
            None => true,
            Some(first) if self.len != Some(meta.size) => {
                let _ = first;
                false
            }
            Some(first) => match (&first.etag, &now.etag) {
                (Some(first), Some(now)) => first == now,
                // Some answers have no entity tag, or times in another resolution.
                _ => first.modified.map(|at| at / 1_000_000) == now.modified.map(|at| at / 1_000_000),
            },
        };
        if same && self.version.is_none() {
            self.version = Some(now);
            self.len = Some(meta.size);
        }
        same
    }

    /// Keeps bytes, up to a limit.
    pub(crate) fn add(&mut self, start: u64, bytes: Bytes) {
        let size: usize = self.held.iter().map(|(_, bytes)| bytes.len()).sum();
        if size + bytes.len() <= MOST {
            self.held.push((start, bytes));
        }
    }

    /// Returns a part if it is held. Empty parts always are.
    pub(crate) fn get(&self, part: &ByteRange) -> Option<ObjectBytes> {
        let len = self.len?;
        let range = part.within(len);
        let start = range.start;
        if range.end > len || range.start > range.end {
            return None;
        }
        if range.is_empty() {
            return Some(ObjectBytes { start, len, bytes: Bytes::new() });
        }
        self.version.as_ref()?;
        self.held.iter().find_map(|(at, bytes)| {
            let from = usize::try_from(start.checked_sub(*at)?).ok()?;
            let to = usize::try_from(range.end.checked_sub(*at)?).ok()?;
            (to <= bytes.len()).then(|| ObjectBytes { start, len, bytes: bytes.slice(from..to) })
        })
    }
}
