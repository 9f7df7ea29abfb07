//! Reading of generic tiles from a store.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use tesseral_codec::Contexts;
use tesseral_codec::filter::FilterContext;
use tesseral_core::{Error, ErrorKind, Limits, Result};
use tesseral_format::OpenOptions;
use tesseral_store::{ByteRange, Bytes, ObjectInfo, Rounds, Store, StoreExt, Upcoming};

use crate::wire::generic_tile::GenericTile;
use crate::wire::trailer;

/// Key of an encrypted array. Its bytes are never printed.
#[derive(Clone, Copy)]
pub(crate) struct Key([u8; Self::LEN]);

impl Key {
    /// Length of keys in bytes.
    pub(crate) const LEN: usize = 32;

    /// A key of AES-256.
    ///
    /// # Errors
    /// `InvalidRequest` for another length.
    pub(crate) fn new(bytes: &[u8]) -> Result<Self> {
        let wrong = |_| {
            let len = bytes.len();
            Error::invalid(format!("a TileDB encryption key must have {} bytes, found {len}", Self::LEN))
        };
        bytes.try_into().map(Self).map_err(wrong)
    }
}

impl Deref for Key {
    type Target = [u8; 32];

    fn deref(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

/// Size of the beginning of an object that is read ahead. Most are smaller.
const AHEAD: u64 = 1 << 20;

/// Source of metadata, and the limits that apply to it.
#[derive(Debug)]
pub(crate) struct MetadataLoader {
    pub store: Arc<dyn Store>,
    pub limits: Limits,
    pub key: Option<Key>,
    pub verify: bool,
}

impl MetadataLoader {
    pub(crate) fn new(store: Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let key = options.key.as_deref().map(Key::new).transpose()?;
        Ok(Self { store, limits: options.limits, key, verify: options.digests })
    }

    /// The same metadata, read in rounds.
    pub(crate) fn through(&self, rounds: &Arc<Rounds>) -> Self {
        let store = Arc::clone(rounds) as Arc<dyn Store>;
        Self { store, limits: self.limits, key: self.key, verify: self.verify }
    }

    /// Returns whether reads wait for a network, so that as many as possible are noted for one round.
    pub(crate) fn waits(&self) -> bool {
        self.store.profile().parallel > 1
    }

    pub(crate) fn rules(&self, version: u32) -> FilterContext<'_> {
        FilterContext { version, verify: self.verify, key: self.key.as_deref() }
    }

    /// Returns the unfiltered bytes of a file that is one generic tile after verifying its digest, and whether it was
    /// encrypted.
    pub(crate) fn unfilter(&self, object: &str, bytes: &[u8]) -> Result<(Vec<u8>, bool)> {
        let described = self.store.describe(object);
        let bytes = trailer::open(&described, object, bytes, self.verify)?;
        self.decode(&described, bytes)
    }

    /// Returns the unfiltered bytes of a generic tile without a digest.
    pub(crate) fn decode(&self, object: &str, bytes: &[u8]) -> Result<(Vec<u8>, bool)> {
        let tile = GenericTile::parse(object, bytes)?;
        let decoded =
            tile.decode(object, &self.limits, &self.rules(tile.version), &mut Contexts::default())?;
        Ok((decoded, tile.encrypted))
    }

    /// Returns the unfiltered bytes of an object that is one generic tile.
    pub(crate) fn object(&self, object: &str) -> Result<(Vec<u8>, bool)> {
        let bytes = self.whole(object)?;
        self.unfilter(object, &bytes)
    }

    /// As [`object`](Self::object), and the number of stored bytes.
    pub(crate) fn sized(&self, object: &str) -> Result<(Vec<u8>, u64)> {
        let bytes = self.whole(object)?;
        Ok((self.unfilter(object, &bytes)?.0, bytes.len() as u64))
    }

    /// Reads a whole object. Over a network, its length and its bytes are one request.
    fn whole(&self, object: &str) -> Result<Bytes> {
        if self.waits() {
            self.store.prefetch(&[Upcoming::Bytes(object.to_owned(), ByteRange::Prefix(AHEAD))]);
        }
        self.store.read_all(object, self.limits.metadata_bytes)
    }

    /// Verifies the digest of a file that is one generic tile.
    pub(crate) fn check_trailer(&self, object: &str) -> Result<()> {
        let bytes = self.whole(object)?;
        trailer::open(&self.store.describe(object), object, &bytes, self.verify).map(drop)
    }

    /// Returns the lines of a text file after verifying their digest.
    pub(crate) fn lines(&self, object: &str) -> Result<Bytes> {
        let bytes = self.whole(object)?;
        let lines = trailer::open_lines(&self.store.describe(object), object, &bytes, self.verify)?.len();
        Ok(bytes.slice(..lines))
    }

    /// Announces listings and whole objects that are read next, to stores that gain by it.
    pub(crate) fn announce<'a>(
        &self,
        folders: impl IntoIterator<Item = String>,
        objects: impl IntoIterator<Item = &'a String>,
    ) {
        if self.waits() {
            let folders = folders.into_iter().map(Upcoming::Listing);
            let objects = objects.into_iter().map(|o| Upcoming::Bytes(o.clone(), ByteRange::Prefix(AHEAD)));
            self.store.prefetch(&folders.chain(objects).collect::<Vec<_>>());
        }
    }

    /// Lists a folder; empty if it does not exist.
    pub(crate) fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        match self.store.list(folder) {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => Ok(Vec::new()),
            other => other,
        }
    }
}

/// Joins names with a slash, omitting an empty prefix.
pub(crate) fn join(folder: &str, name: &str) -> String {
    if folder.is_empty() { name.to_owned() } else { [folder, "/", name].concat() }
}
