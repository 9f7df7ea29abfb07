//! Packages: folders `NAME.tet.d` of generations, one of which is current (`docs/formats/tet.md` §9).

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tesseral_core::{Error, ErrorKind, Finding, Result};
use tesseral_store::{ObjectInfo, ObjectKind, Overwrite, Store, StoreExt};

use crate::layout::FileLayout;
use crate::source::FileBytes;
use crate::wire::footer::{FileRange, FooterTail};
use crate::wire::json::{JsonObject, write_hex};
use crate::wire::superblock::{self, FLAG_FOOTER};
use crate::wire::zone_map::PackedImage;

/// Object with the number of the current generation.
pub(crate) const CURRENT: &str = "CURRENT";
/// Folder with one folder per generation.
pub(crate) const GENERATIONS: &str = "generations";
/// Object with the version of the protocol of writers.
pub(crate) const PROTOCOL: &str = "PROTOCOL";
/// Folders of writers: parts, and locks of those that publish.
pub(crate) const OF_WRITERS: [&str; 2] = ["staging", "publishing"];
/// The protocol version.
const PROTOCOL_VERSION: u32 = 2;
/// Number of the first generation.
const FIRST: u64 = 1;
/// Number of bytes copied at once.
const BLOCK: u64 = 1 << 20;
/// Maximum length of a generation number in bytes.
const MAX_CURRENT: u64 = 64;

/// Returns the object with the arrays: the store itself if it is a file, the current generation if it is a package.
///
/// `CURRENT` is read once, so that a container is a snapshot of one generation.
pub(crate) fn locate(store: &Arc<dyn Store>) -> Result<String> {
    let Err(error) = store.len("") else { return Ok(String::new()) };
    match store.exists(CURRENT) {
        Ok(true) => current(store),
        _ => Err(error),
    }
}

fn current(store: &Arc<dyn Store>) -> Result<String> {
    let text = store.read_all(CURRENT, MAX_CURRENT)?;
    let generation = std::str::from_utf8(&text).ok().map(str::trim_end).and_then(|t| t.parse::<u64>().ok());
    let generation = generation.ok_or_else(|| {
        let detail = format!("invalid generation number {:?}", text.escape_ascii().to_string());
        Error::corrupt(CURRENT, store.describe(CURRENT), 0, detail)
    })?;
    let object = object_of(generation, "packed.tet");
    match store.len(&object) {
        Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => Err(Error::corrupt(
            CURRENT,
            store.describe(CURRENT),
            0,
            format!("packed.tet is missing in the current generation {generation}"),
        )),
        Err(e) => Err(e),
        Ok(_) => Ok(object),
    }
}

/// Name of an object of a generation.
fn object_of(generation: u64, name: &str) -> String {
    format!("{GENERATIONS}/{generation:08}/{name}")
}

/// Returns the first object of a folder that is not part of a package. Parts that are not published are data of their own: they
/// are not part of it either.
pub(crate) fn foreign(store: &dyn Store) -> Result<Option<String>> {
    let generation = |name: &str| name.len() == 8 && name.bytes().all(|b| b.is_ascii_digit());
    let find = |folder: &str, known: &dyn Fn(&ObjectInfo) -> bool| -> Result<Option<String>> {
        let found = store.list(folder)?.into_iter().find(|entry| !known(entry));
        Ok(found.map(|entry| format!("{folder}{}{}", if folder.is_empty() { "" } else { "/" }, entry.name)))
    };
    let top = find("", &|e| match e.kind {
        ObjectKind::File => [CURRENT, PROTOCOL].contains(&e.name.as_str()),
        ObjectKind::Folder => e.name == GENERATIONS || OF_WRITERS.contains(&e.name.as_str()),
        ObjectKind::Link { .. } => false,
    })?;
    let inner = find(GENERATIONS, &|e| e.kind == ObjectKind::Folder && generation(&e.name))?;
    if top.is_some() || inner.is_some() {
        return Ok(top.or(inner));
    }
    let objects = ["packed.tet", "MANIFEST.json", "ZONE.json", "INDEX.json", "SEMANTICS.json"];
    for entry in store.list(GENERATIONS)? {
        let known = |e: &ObjectInfo| e.kind == ObjectKind::File && objects.contains(&e.name.as_str());
        if let Some(found) = find(&format!("{GENERATIONS}/{}", entry.name), &known)? {
            return Ok(Some(found));
        }
    }
    let held = store.list("")?;
    for folder in OF_WRITERS.into_iter().filter(|folder| held.iter().any(|e| e.name == *folder)) {
        if let Some(found) = find(folder, &|_| false)? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A package being written by one process: a single generation without parts.
#[derive(Debug)]
pub(crate) struct NewPackage {
    store: Arc<dyn Store>,
    overwrite: Overwrite,
    pub(crate) generation: u64,
}

/// What a package records of its file.
#[derive(Debug)]
pub(crate) struct SealedImage {
    pub(crate) image: PackedImage,
    /// Length of the file.
    pub(crate) len: u64,
    /// Its zone maps.
    pub(crate) zones: FileRange,
}

#[derive(Serialize)]
struct Protocol {
    protocol_version: u32,
    created_unix: u64,
}

/// The manifest, with keys in the order of the reference.
#[derive(Serialize)]
struct NewManifest<'a> {
    generation: u64,
    protocol_version: u32,
    part_ids: [&'a str; 0],
    packed_byte_len: u64,
    packed_sha256: String,
    zone_maps: &'a str,
    zone_maps_sha256: String,
    secondary_indexes: &'a str,
}

impl NewPackage {
    pub(crate) fn new(store: Arc<dyn Store>, overwrite: Overwrite) -> Self {
        Self { store, overwrite, generation: FIRST }
    }

    /// Name of the object with the arrays.
    pub(crate) fn packed(&self) -> String {
        object_of(self.generation, "packed.tet")
    }

    /// Publishes the generation, whose file is complete: readers find it when `CURRENT` appears, which is last.
    pub(crate) fn publish(&self, sealed: &SealedImage) -> Result<()> {
        let manifest = NewManifest {
            generation: self.generation,
            protocol_version: PROTOCOL_VERSION,
            part_ids: [],
            packed_byte_len: sealed.len,
            packed_sha256: hex(&sealed.image.sha256),
            zone_maps: "required",
            zone_maps_sha256: hex(&self.copy_zones(sealed.zones)?),
            secondary_indexes: "omitted",
        };
        self.put_json(&object_of(self.generation, "MANIFEST.json"), &manifest)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        self.put_json(PROTOCOL, &Protocol { protocol_version: PROTOCOL_VERSION, created_unix: now })?;
        self.store.put(CURRENT, format!("{}\n", self.generation).as_bytes(), self.overwrite)
    }

    /// Copies the zone maps of the file to an object of their own; returns their SHA-256.
    fn copy_zones(&self, zones: FileRange) -> Result<[u8; 32]> {
        let staged = self.store.stage(&object_of(self.generation, "ZONE.json"), self.overwrite)?;
        let packed = self.packed();
        let mut hash = Sha256::new();
        let mut done = 0;
        while done < zones.len {
            let (start, len) = (zones.offset + done, (zones.len - done).min(BLOCK));
            let bytes = self.store.read(&packed, start..start + len)?;
            hash.update(&bytes);
            staged.write_at(done, &bytes)?;
            done += len;
        }
        staged.publish()?;
        Ok(hash.finalize().into())
    }

    fn put_json(&self, object: &str, value: &impl Serialize) -> Result<()> {
        let mut text = serde_json::to_vec_pretty(value)
            .map_err(|e| Error::internal(format!("cannot serialize {object} as JSON: {e}")))?;
        text.push(b'\n');
        self.store.put(object, &text, self.overwrite)
    }
}

fn hex(bytes: &[u8]) -> String {
    let mut text = Vec::with_capacity(2 * bytes.len());
    write_hex(bytes, &mut text);
    text.into_iter().map(char::from).collect()
}

/// Compares the manifest of the generation of `object` with the file, and with digests also its digests.
pub(crate) fn audit(
    store: &Arc<dyn Store>,
    object: &str,
    layout: &FileLayout,
    digests: bool,
    report: &mut dyn FnMut(Finding),
) -> Result<()> {
    let name = object.replace("packed.tet", "MANIFEST.json");
    let text = match store.read_all(&name, MAX_MANIFEST) {
        Ok(text) => text,
        Err(e) if matches!(e.kind(), ErrorKind::Io { .. }) => return Err(e),
        Err(e) => {
            report(Finding::from_error("package", &e));
            return Ok(());
        }
    };
    let failure = match serde_json::from_slice::<JsonObject<Manifest<'_>>>(&text) {
        Err(e) => Some(format!("{name}: {e}")),
        Ok(JsonObject(manifest)) if manifest.packed_byte_len != layout.file_len => {
            let (len, declared) = (layout.file_len, manifest.packed_byte_len);
            Some(format!("{object} has {len} bytes, the manifest has {declared}"))
        }
        Ok(JsonObject(manifest)) if digests => match mismatch(store, object, layout, &manifest) {
            Ok(mismatch) => mismatch,
            Err(e) if e.is_damage() => {
                report(Finding::from_error("package", &e));
                return Ok(());
            }
            Err(e) => return Err(e),
        },
        Ok(_) => None,
    };
    report(match failure {
        Some(detail) => Finding::failed("package", detail),
        None => Finding::passed("package", object.to_owned()),
    });
    Ok(())
}

/// Maximum length of a manifest in bytes.
const MAX_MANIFEST: u64 = 1 << 20;

#[derive(Deserialize)]
struct Manifest<'a> {
    packed_byte_len: u64,
    #[serde(borrow, default)]
    packed_sha256: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    zone_maps_sha256: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    secondary_indexes_sha256: Option<Cow<'a, str>>,
}

/// Compares the digests of a manifest; returns the first that differs.
fn mismatch(
    store: &Arc<dyn Store>,
    object: &str,
    layout: &FileLayout,
    manifest: &Manifest<'_>,
) -> Result<Option<String>> {
    let source = FileBytes::open(store, object)?;
    if let Some(expected) = &manifest.packed_sha256
        && !Images::new(&source, layout)?.matches(&source, expected)?
    {
        return Ok(Some(format!("{object} does not match packed_sha256")));
    }
    let texts =
        [("ZONE.json", &manifest.zone_maps_sha256), ("INDEX.json", &manifest.secondary_indexes_sha256)];
    for ((name, expected), place) in texts.into_iter().zip(layout.accelerators()) {
        let Some(expected) = expected else { continue };
        let beside = object.replace("packed.tet", name);
        let beside = match store.len(&beside) {
            Ok(len) => digest_of(&FileBytes::open(store, &beside)?, 0..len, Sha256::new())?,
            Err(e) if matches!(e.kind(), ErrorKind::NotFound { .. }) => {
                return Ok(Some(format!("{name} is missing")));
            }
            Err(e) => return Err(e),
        };
        let inside = place.and_then(|place| Some(place.offset..place.end()?));
        let inside = inside.map(|range| digest_of(&source, range, Sha256::new())).transpose()?;
        let differs = |hash: Sha256| !hex(&hash.finalize()).eq_ignore_ascii_case(expected);
        if differs(beside) || inside.is_some_and(differs) {
            return Ok(Some(format!("{name} does not match its digest in the manifest")));
        }
    }
    Ok(None)
}

/// Adds a byte range to a digest.
fn digest_of(source: &FileBytes<'_>, range: Range<u64>, mut hash: Sha256) -> Result<Sha256> {
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(at.saturating_add(BLOCK));
        hash.update(source.get(at..end, "a packed file")?);
        at = end;
    }
    Ok(hash)
}

/// What the file of a generation was before its zone maps and secondary index were added: the same bytes up to the first of
/// them, and a footer without them.
struct Images {
    end: u64,
    /// Flags of the superblock and bytes of the footer: what writers leave without history and metadata is no footer at all.
    footers: Vec<(u32, Vec<u8>)>,
}

impl Images {
    /// Without one for a footer whose JSON is not written as the reference writes it: its digest cannot match.
    fn new(source: &FileBytes<'_>, layout: &FileLayout) -> Result<Self> {
        let (end, flags) = (layout.payload_len, layout.head.superblock.flags);
        let mut footers = Vec::new();
        if let Some(footer) = &layout.footer {
            let json = footer.json_offset..footer.json_offset.saturating_add(footer.tail.json_len);
            let json = source.get(json, "footer JSON")?;
            let spill = match footer.json.metadata_ref.and_then(|r| Some(r.offset..r.end()?)) {
                Some(range) => source.get(range, "metadata spill")?.to_vec(),
                None => Vec::new(),
            };
            if let Some(text) = footer.json.without_accelerators(&json, end) {
                if text == br#"{"history":[]}"# {
                    footers.push((flags & !FLAG_FOOTER, Vec::new()));
                }
                let mut bytes = spill;
                let tail = FooterTail { json_len: text.len() as u64, version: 1 };
                bytes.extend(text);
                tail.write(&mut bytes);
                footers.push((flags, bytes));
            }
        }
        if layout.footer.is_none() {
            footers.push((flags, Vec::new()));
        }
        Ok(Self { end, footers })
    }

    fn matches(&self, source: &FileBytes<'_>, expected: &str) -> Result<bool> {
        let at = superblock::FLAGS_OFFSET;
        let after = at + size_of::<u32>() as u64;
        for (flags, footer) in &self.footers {
            let mut hash = digest_of(source, 0..at, Sha256::new())?;
            hash.update(flags.to_le_bytes());
            let mut hash = digest_of(source, after..self.end.max(after), hash)?;
            hash.update(footer);
            if hex(&hash.finalize()).eq_ignore_ascii_case(expected) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
