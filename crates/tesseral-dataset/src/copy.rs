//! Copies of datasets between paths and object stores, byte for byte.
//!
//! The objects of the source are read in batches, so that many small ones take few round trips, and written to a staged output.
//! Before it is published, the source is listed again, which detects a writer that changed it meanwhile, and the digests of the
//! copy are verified. After publishing, the lengths of the objects at the destination are compared.

use std::fs;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use tesseral_core::{Error, ErrorKind, Result, Severity};
use tesseral_engine::{Progress, Verified, verify_to};
use tesseral_format::{AuditOptions, Depth, Format};
use tesseral_registry as registry;
use tesseral_store::{
    ByteRange, Location, ObjectInfo, ObjectKind, Overwrite, ReadMode, Staged, StorageOptions, Store,
    StoreExt, Upcoming,
};

use crate::Open;
use crate::output::{Output, StagedOutput};

/// Number of bytes of one read.
const PIECE: u64 = 4 << 20;
/// Number of bytes read at once.
const BATCH: u64 = 32 << 20;
/// Number of folders listed at once.
const LISTED: usize = 1024;
/// Maximum nesting depth of folders of a dataset.
const MAX_DEPTH: usize = 64;

/// A copy of a dataset.
#[derive(Clone, Debug)]
pub struct CopiedDataset {
    /// The format.
    pub format: &'static dyn Format,
    /// Number of objects.
    pub objects: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Result of the verification of the copy; `None` if digests were not verified.
    pub verified: Option<Verified>,
}

/// An entry below the source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct SourceObject {
    name: String,
    len: u64,
    etag: Option<String>,
}

/// The objects and folders of a dataset.
#[derive(Debug, Default, PartialEq, Eq)]
struct DatasetObjects {
    objects: Vec<SourceObject>,
    folders: Vec<String>,
}

/// Copies a dataset of any format to another path or URL, byte for byte. Digests are verified unless `open` disables it. `output`
/// has the settings of the destination's object store.
///
/// # Errors
/// `NotFound`, `Unrecognized`; `Corrupt` if the source is damaged; `Changed` if it was changed meanwhile; `InvalidRequest` if the
/// output exists; `Unsupported` for sources with symbolic links; `Io`.
pub fn copy_dataset(
    open: &Open,
    source: &Path,
    output: &Path,
    overwrite: Overwrite,
    storage: &StorageOptions,
) -> Result<CopiedDataset> {
    let from = open.store(source)?;
    let format = from.guarded(|| registry::recognize(&*from))?;
    open.format_options().check(format)?;
    let (folder, entries) = entries(&*from)?;
    let local = Location::parse(source)?;
    let target = Output::dataset(output, folder)
        .overwrite(overwrite)
        .source(local.path().unwrap_or(source))
        .outside_sources()
        .storage(storage.clone())
        .canceled_by(&open.execution_options().cancel);
    let staged = target.stage()?;
    for name in &entries.folders {
        let path = staged.path().join(name);
        fs::create_dir_all(&path).map_err(|e| Error::io("create", path.display().to_string(), e))?;
    }
    from.guarded(|| copy_objects(open, &*from, &staged, &entries))?;
    // A new store, because the first one has cached the listing.
    check_unchanged(&*open.store(source)?, &entries)?;
    let verified = if open.format_options().digests {
        Some(verify(open, from.location(), format, &staged)?)
    } else {
        None
    };
    staged.publish()?;
    check_arrived(output, storage, &entries)?;
    let bytes = entries.objects.iter().map(|entry| entry.len).sum();
    Ok(CopiedDataset { format, objects: entries.objects.len() as u64, bytes, verified })
}

/// Returns the objects of a store, and whether it is a folder.
fn entries(store: &dyn Store) -> Result<(bool, DatasetObjects)> {
    let len = match store.len("") {
        Ok(len) => Some(len),
        Err(e) if is_folder(&e) => None,
        Err(e) => return Err(e),
    };
    let mut found = DatasetObjects::default();
    match len {
        Some(len) => found.objects.push(SourceObject { name: String::new(), len, etag: None }),
        None => list(store, &mut found)?,
    }
    Ok((len.is_none(), found))
}

fn is_folder(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { source, .. } if source.kind() == std::io::ErrorKind::IsADirectory)
}

/// Lists a folder and those below it, one level after the other: over a network, the folders of a level are listed together.
fn list(store: &dyn Store, found: &mut DatasetObjects) -> Result<()> {
    let mut level = vec![String::new()];
    for _ in 0..=MAX_DEPTH {
        let mut below = Vec::new();
        for folders in level.chunks(LISTED) {
            if folders.len() > 1 && store.profile().parallel > 1 {
                store.prefetch(&folders.iter().cloned().map(Upcoming::Listing).collect::<Vec<_>>());
            }
            for folder in folders {
                below.extend(list_folder(store, folder, found)?);
            }
        }
        if below.is_empty() {
            return Ok(());
        }
        found.folders.extend(below.iter().cloned());
        level = below;
    }
    let what = format!("nesting of {}", store.describe(level.first().map_or("", String::as_str)));
    Err(Error::limit(what, MAX_DEPTH as u64 + 1, MAX_DEPTH as u64))
}

/// Adds the objects of a folder, and returns the folders in it.
fn list_folder(store: &dyn Store, folder: &str, found: &mut DatasetObjects) -> Result<Vec<String>> {
    let mut below = Vec::new();
    for ObjectInfo { name, kind, len, etag } in store.list(folder)? {
        let name = if folder.is_empty() { name } else { format!("{folder}/{name}") };
        match kind {
            ObjectKind::Link { .. } => {
                let what = format!("copying {}, a symbolic link", store.describe(&name));
                return Err(Error::unsupported(what).hint("copy the target of the link"));
            }
            ObjectKind::Folder => below.push(name),
            ObjectKind::File => {
                let len = len.map_or_else(|| store.len(&name), Ok)?;
                found.objects.push(SourceObject { name, len, etag });
            }
        }
    }
    Ok(below)
}

/// Reads all objects in batches and writes them to the staged output.
fn copy_objects(
    open: &Open,
    from: &dyn Store,
    output: &StagedOutput,
    entries: &DatasetObjects,
) -> Result<()> {
    let options = open.execution_options();
    let most = options.memory.map_or(BATCH, |memory| (memory / 4).clamp(PIECE, BATCH));
    let to = output.store();
    let total = entries.objects.iter().map(|entry| entry.len).sum();
    let mut writer = ObjectWriter { to: &*to, object: None };
    let (mut batch, mut size, mut done) = (Vec::new(), 0, 0);
    for piece in entries.objects.iter().flat_map(pieces) {
        size += piece.1.end - piece.1.start;
        batch.push(piece);
        if size >= most || batch.len() >= 1024 {
            done += writer.transfer(from, &batch)?;
            batch.clear();
            size = 0;
            options.cancel.check()?;
            if let Some(progress) = &options.progress {
                progress(Progress { done, total });
            }
        }
    }
    writer.transfer(from, &batch)?;
    writer.finish()
}

/// Pieces of an object; an empty object has one empty piece.
fn pieces(entry: &SourceObject) -> impl Iterator<Item = (&SourceObject, Range<u64>)> {
    let count = entry.len.div_ceil(PIECE).max(1);
    (0..count).map(move |i| (entry, i * PIECE..((i + 1) * PIECE).min(entry.len)))
}

/// Writes objects one after another.
struct ObjectWriter<'a> {
    to: &'a dyn Store,
    object: Option<(&'a str, Box<dyn Staged>)>,
}

impl<'a> ObjectWriter<'a> {
    /// Copies pieces of objects. Returns the number of bytes.
    fn transfer(&mut self, from: &dyn Store, batch: &[(&'a SourceObject, Range<u64>)]) -> Result<u64> {
        if batch.is_empty() {
            return Ok(0);
        }
        let reads: Vec<_> = batch
            .iter()
            .map(|(entry, range)| (entry.name.as_str(), ByteRange::Exact(range.clone())))
            .collect();
        let mut sum = 0;
        for ((entry, range), read) in batch.iter().zip(from.read_objects(&reads)?) {
            if read.len != entry.len
                || read.start != range.start
                || read.bytes.len() as u64 != range.end - range.start
            {
                let detail = format!("its length changed from {} to {}", entry.len, read.len);
                return Err(Error::changed(from.describe(&entry.name), detail));
            }
            self.write(&entry.name, range.start, &read.bytes)?;
            sum += read.bytes.len() as u64;
        }
        Ok(sum)
    }

    fn write(&mut self, name: &'a str, offset: u64, bytes: &[u8]) -> Result<()> {
        if self.object.as_ref().is_none_or(|(current, _)| *current != name) {
            self.finish()?;
            self.object = Some((name, self.to.stage(name, Overwrite::Replace)?));
        }
        let (_, staged) = self.object.as_ref().ok_or_else(|| Error::internal("no object is staged"))?;
        staged.write_at(offset, bytes)
    }

    fn finish(&mut self) -> Result<()> {
        self.object.take().map_or(Ok(()), |(_, staged)| staged.publish())
    }
}

/// Fails if objects of the source appeared, disappeared or changed.
fn check_unchanged(store: &dyn Store, before: &DatasetObjects) -> Result<()> {
    if entries(store)?.1 == *before {
        return Ok(());
    }
    Err(Error::changed(store.location(), "objects of the source changed while they were copied"))
}

/// Verifies the digests of the copy.
fn verify(open: &Open, source: &str, format: &'static dyn Format, output: &StagedOutput) -> Result<Verified> {
    let checks =
        AuditOptions { open: open.format_options().clone(), depth: Depth::Digests, canonical: false };
    let mut damage = None;
    let mut report = |finding: tesseral_core::Finding| {
        if !finding.ok && !finding.unsupported && finding.severity == Severity::Error {
            damage.get_or_insert(finding);
        }
    };
    let store: Arc<dyn Store> = output.store();
    let verified = verify_to(format, store, &checks, open.execution_options(), &mut report)?;
    match damage {
        Some(finding) => {
            let what =
                finding.array.map_or_else(|| "the dataset".to_owned(), |name| format!("array {name:?}"));
            // The staged copy has a temporary name, which means nothing to the caller.
            let detail = finding.detail.replace(&*output.path().to_string_lossy(), source);
            Err(Error::corrupt(what, source, finding.offset, detail))
        }
        None => Ok(verified),
    }
}

/// Compares the lengths of objects at the destination with those of the source.
fn check_arrived(output: &Path, storage: &StorageOptions, copied: &DatasetObjects) -> Result<()> {
    let store = Location::parse(output)?.store(ReadMode::Read, storage)?;
    let (_, found) = entries(&*store)?;
    let lengths = |entries: &DatasetObjects| {
        let mut all: Vec<_> = entries.objects.iter().map(|entry| (entry.name.clone(), entry.len)).collect();
        all.sort();
        all
    };
    if lengths(&found) == lengths(copied) {
        return Ok(());
    }
    Err(Error::changed(store.location(), "the lengths of its objects differ from those of the source"))
}
