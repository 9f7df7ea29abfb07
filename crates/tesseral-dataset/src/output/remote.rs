//! Outputs in object stores: written to a local temporary folder, uploaded when published.
//!
//! A file is one object, which a conditional put makes visible. Of a folder, the entries by which its format is recognized are
//! uploaded last, so that nothing is recognized before it is whole.
//!
//! If several writers create the same output, one succeeds: it holds a *claim*, an object next to the output, while it uploads.
//! The claim also shows whether the server honors conditions. A folder is never replaced, because that takes more than one step.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use tesseral_core::{Advice, Error, ErrorKind, Result};
use tesseral_format::{Probe, Sniff};
use tesseral_registry as registry;
use tesseral_store::{
    CLAIM, Claim, Location, ObjectInfo, ObjectKind, Overwrite, ReadMode, StagedPath, Store, together,
};

use super::{Output, OutputKind};

/// Number of bytes copied at once.
const BLOCK: usize = 4 << 20;

/// An output in an object store.
#[derive(Debug)]
pub(super) struct RemoteTarget {
    store: Arc<dyn Store>,
    claim: Arc<dyn Store>,
    overwrite: Overwrite,
    /// The finished output before its upload.
    local: PathBuf,
    _folder: tempfile::TempDir,
}

/// The object or folder at the URL.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OccupiedBy {
    Nothing,
    Object,
    Folder,
}

impl RemoteTarget {
    /// Checks the rules for an output, and returns where it is written first.
    pub(super) fn stage(url: &str, output: &Output) -> Result<(Self, StagedPath)> {
        let Output { kind, overwrite, storage, cancel, .. } = output;
        let (kind, overwrite) = (*kind, *overwrite);
        let at = |url: String| {
            let store = Location::parse(url)?.store(ReadMode::Read, storage)?;
            Ok::<_, Error>(store.canceled_by(cancel).unwrap_or(store))
        };
        let (store, claim) = (at(url.to_owned())?, at(format!("{}{CLAIM}", url.trim_end_matches('/')))?);
        // Web servers are only read, which is known before anything is written.
        drop(store.stage("", Overwrite::Replace)?);
        check(&store, kind, overwrite)?;
        let folder = tempfile::Builder::new().prefix("tesseral-").tempdir().map_err(|e| {
            Error::io("create", "a temporary folder", e).hint("set TMPDIR to a folder with enough space")
        })?;
        let name = Path::new(url).file_name().unwrap_or_default();
        let local = folder.path().join(name);
        let staged =
            StagedPath::new(&local, kind == OutputKind::Dataset { folder: true }, Overwrite::Refuse)?;
        Ok((Self { store, claim, overwrite, local, _folder: folder }, staged))
    }

    /// Uploads the finished output.
    pub(super) fn upload(&self) -> Result<()> {
        if self.overwrite == Overwrite::Replace {
            return put(&*self.store, "", &self.local, Overwrite::Replace);
        }
        let claim = Claim::take(Arc::clone(&self.claim), self.store.location())?;
        let uploaded = self.create();
        drop(claim);
        uploaded
    }

    fn create(&self) -> Result<()> {
        if occupied_by(&*self.store)? != OccupiedBy::Nothing {
            return Err(exists(self.store.location()));
        }
        if !self.local.is_dir() {
            return put(&*self.store, "", &self.local, Overwrite::Refuse);
        }
        let mut objects = Vec::new();
        files(&self.local, "", &mut objects)?;
        let (visible, hidden): (Vec<_>, Vec<_>) =
            objects.into_iter().partition(|name| is_recognized_by(name));
        let uploaded = self.put_all(&hidden).and_then(|()| self.put_all(&visible));
        if uploaded.is_err() {
            // The first error is the one to report; only own objects are removed.
            for name in visible.iter().chain(&hidden) {
                let _ = self.store.remove(name);
            }
        }
        uploaded
    }

    fn put_all(&self, names: &[String]) -> Result<()> {
        let failed = AtomicBool::new(false);
        let put = |name: &String| match failed.load(Relaxed) {
            true => Ok(()),
            false => put(&*self.store, name, &self.local.join(name), Overwrite::Refuse)
                .inspect_err(|_| failed.store(true, Relaxed)),
        };
        together(&*self.store, names, put).into_iter().collect()
    }
}

fn exists(location: &str) -> Error {
    Error::invalid(format!("output {location} already exists")).hint(Advice::Overwrite)
}

fn occupied_by(store: &dyn Store) -> Result<OccupiedBy> {
    match store.len("") {
        Ok(_) => Ok(OccupiedBy::Object),
        Err(e) => match e.kind() {
            ErrorKind::NotFound { .. } => Ok(OccupiedBy::Nothing),
            ErrorKind::Io { source, .. } if source.kind() == std::io::ErrorKind::IsADirectory => {
                // A bucket without objects is a folder, too.
                Ok(if store.list("")?.is_empty() { OccupiedBy::Nothing } else { OccupiedBy::Folder })
            }
            _ => Err(e),
        },
    }
}

/// Hint for an output that cannot be replaced.
const ANOTHER: &str = "remove it with a program for the store, or choose another name";

/// Checks what an output would replace.
pub(super) fn check(store: &Arc<dyn Store>, kind: OutputKind, overwrite: Overwrite) -> Result<()> {
    let location = store.location();
    let refuse = |why: &str| Error::invalid(format!("cannot replace {location}: {why}")).hint(ANOTHER);
    match (occupied_by(&**store)?, overwrite) {
        (OccupiedBy::Nothing, _) => Ok(()),
        // The advice to overwrite would lead to the next error.
        (OccupiedBy::Folder, Overwrite::Refuse) => {
            Err(Error::invalid(format!("output {location} already exists")).hint(ANOTHER))
        }
        (_, Overwrite::Refuse) => Err(exists(location)),
        (OccupiedBy::Folder, _) => Err(refuse("folders of object stores are not replaced")),
        (OccupiedBy::Object, _) => match kind {
            OutputKind::Document => Ok(()),
            OutputKind::Dataset { folder: true } => Err(refuse("it is an object, not a folder")),
            OutputKind::Dataset { folder: false } => {
                match store.len("")? == 0 || registry::by_content(&**store)?.is_some() {
                    true => Ok(()),
                    false => Err(refuse("it is not a dataset of a known format")),
                }
            }
        },
    }
}

/// Names of all files below a folder.
fn files(folder: &Path, prefix: &str, out: &mut Vec<String>) -> Result<()> {
    let io = |e| Error::io("list", folder.display().to_string(), e);
    for entry in fs::read_dir(folder).map_err(io)? {
        let entry = entry.map_err(io)?;
        let name = entry.file_name();
        let name = name.to_str().ok_or_else(|| Error::internal("a staged name is not UTF-8"))?;
        let name = if prefix.is_empty() { name.to_owned() } else { format!("{prefix}/{name}") };
        match entry.file_type().map_err(io)?.is_dir() {
            true => files(&entry.path(), &name, out)?,
            false => out.push(name),
        }
    }
    Ok(())
}

/// Returns whether a folder with only this object would be recognized.
fn is_recognized_by(name: &str) -> bool {
    let entry = match name.split_once('/') {
        Some((folder, _)) => ObjectInfo::new(folder, ObjectKind::Folder),
        None => ObjectInfo::new(name, ObjectKind::File),
    };
    let probe = Probe { name: "", head: &[], entries: Some(std::slice::from_ref(&entry)) };
    registry::formats().any(|format| format.sniff(&probe) == Sniff::Content)
}

/// Writes a file as an object.
fn put(store: &dyn Store, object: &str, file: &Path, overwrite: Overwrite) -> Result<()> {
    let io = |e| Error::io("read", file.display().to_string(), e);
    let mut from = File::open(file).map_err(io)?;
    let staged = store.stage(object, overwrite)?;
    let mut block = Vec::new();
    let mut offset = 0;
    loop {
        block.clear();
        let read = (&mut from).take(BLOCK as u64).read_to_end(&mut block).map_err(io)?;
        if read == 0 {
            return staged.publish();
        }
        staged.write_at(offset, &block)?;
        offset += read as u64;
    }
}
