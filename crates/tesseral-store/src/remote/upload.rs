//! Writing of objects: staged in a local file, uploaded when published.
//!
//! A single request publishes an object, on the condition that it does not exist yet, or that it is still the version that was
//! read. Objects too large for one request are uploaded in parts, which the server joins when the last one has arrived.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{
    Error as Failure, MultipartId, MultipartUpload, ObjectStore, ObjectStoreExt, PutMode, PutOptions,
    PutPayload, UpdateVersion,
};
use tesseral_core::{Error, Result};

use super::RemoteStore;
use super::error;
use super::runtime::{self, Stop};
use super::signed::S3;
use crate::map::map;
use crate::store::{Overwrite, Staged, StoreExt};

/// Size up to which an object is one request.
const ONE_REQUEST: u64 = 64 << 20;
/// As above of an object that is replaced in one version: parts are joined without a condition.
const LONGEST: u64 = 5 << 30;
/// Smallest size of the parts of larger objects, and the number of parts that servers accept.
const PART: u64 = 16 << 20;
const MOST_PARTS: u64 = 10_000;
/// Size up to which an object is held in memory.
const IN_MEMORY: u64 = 1 << 20;
/// Number of parts under way at the same time.
const PARALLEL: usize = 4;
/// Longest time to remove the parts of an upload that failed.
const ABORT: Duration = Duration::from_secs(5);

/// Target of an upload.
#[derive(Debug)]
pub(crate) struct UploadTarget {
    pub store: RemoteStore,
    pub client: Arc<dyn ObjectStore>,
    pub object: String,
    pub path: Path,
    pub overwrite: Overwrite,
    /// The version that is replaced, if it was read.
    pub replaced: Option<UpdateVersion>,
}

impl UploadTarget {
    fn described(&self) -> String {
        self.store.describe(&self.object)
    }

    fn mode(&self) -> PutMode {
        match (self.overwrite, &self.replaced) {
            (Overwrite::Refuse, _) => PutMode::Create,
            (Overwrite::Replace, None) => PutMode::Overwrite,
            (Overwrite::Replace, Some(version)) => PutMode::Update(version.clone()),
        }
    }
}

/// An object in a local file without a name.
#[derive(Debug)]
pub(crate) struct Spooled {
    file: Arc<File>,
    target: UploadTarget,
}

impl Spooled {
    pub(crate) fn new(target: UploadTarget) -> Result<Self> {
        let file = tempfile::tempfile().map_err(|e| {
            Error::io("create", format!("a temporary file for {}", target.described()), e)
                .hint("set TMPDIR to a folder with enough space")
        })?;
        Ok(Self { file: Arc::new(file), target })
    }

    fn io(&self, op: &'static str, error: std::io::Error) -> Error {
        Error::io(op, format!("a temporary file for {}", self.target.described()), error)
    }
}

impl Staged for Spooled {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|e| self.io("write", e))
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.file.read_exact_at(out, offset).map_err(|e| self.io("read", e))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|e| self.io("set length of", e))
    }

    fn publish(self: Box<Self>) -> Result<()> {
        let len = self.file.metadata().map_err(|e| self.io("stat", e))?.len();
        let UploadTarget { store, client, path, .. } = &self.target;
        let (client, path, mode) = (Arc::clone(client), path.clone(), self.target.mode());
        let (file, cancel) = (Arc::clone(&self.file), &store.cancel);
        let s3 = if matches!(mode, PutMode::Create) { store.signing_client()? } else { None };
        let whole = len <= if matches!(mode, PutMode::Update(_)) { LONGEST } else { ONE_REQUEST };
        // An upload in parts begins and ends with a request, which depend on one another.
        let began = store.traffic.begin(if whole { 1 } else { 2 + len.div_ceil(part_size(len)) });
        let sent = match whole {
            true => runtime::wait(cancel, async move { put(&*client, &path, &file, len, mode).await })?,
            false => {
                let sent = runtime::wait_with(cancel, move |stop| async move {
                    match s3 {
                        Some(s3) => create_of_parts(&s3, &path, &file, len, stop).await,
                        None => put_parts(&*client, &path, file, len, mode, stop).await,
                    }
                })?;
                // The parts were removed before.
                if sent.is_err() {
                    cancel.check()?;
                }
                sent
            }
        };
        store.traffic.end(began, 0, if sent.is_ok() { len } else { 0 });
        store.forget(&self.target.object);
        sent.map_err(|failure| match (&failure, self.target.overwrite) {
            (Failure::NotImplemented { .. } | Failure::NotSupported { .. }, Overwrite::Refuse) => {
                let what = format!(
                    "creating {} without overwriting: the server has no conditional puts",
                    self.target.described()
                );
                Error::unsupported(what).hint(tesseral_core::Advice::Overwrite)
            }
            _ => error::translate("write", self.target.described(), &failure),
        })
    }
}

fn local(source: std::io::Error) -> Failure {
    Failure::Generic { store: "a temporary file", source: Box::new(source) }
}

fn part_size(len: u64) -> u64 {
    PART.max(len.div_ceil(MOST_PARTS))
}

/// The bytes of a staged file. Those of a large one are mapped, because many may be uploaded at the same time: the file has no name,
/// so no other process has it.
fn content(file: &File, len: u64) -> object_store::Result<Bytes> {
    if len > IN_MEMORY {
        return map(file).map(Bytes::from_owner).map_err(local);
    }
    let mut bytes = vec![0; usize::try_from(len).unwrap_or(usize::MAX)];
    file.read_exact_at(&mut bytes, 0).map_err(local)?;
    Ok(bytes.into())
}

async fn put(
    client: &dyn ObjectStore,
    path: &Path,
    file: &File,
    len: u64,
    mode: PutMode,
) -> object_store::Result<()> {
    let options = PutOptions { mode, ..PutOptions::default() };
    client.put_opts(path, PutPayload::from(content(file, len)?), options).await.map(drop)
}

/// Creates an object of S3 in parts, on the condition that it does not exist when they are joined.
async fn create_of_parts(
    s3: &S3,
    path: &Path,
    file: &File,
    len: u64,
    mut stop: Stop,
) -> object_store::Result<()> {
    let upload = s3.client.create_multipart(path).await?;
    let sent = stop.or(send_parts(&s3.client, path, &upload, file, len)).await.unwrap_or_else(stopped);
    let joined = match sent {
        Ok(parts) => s3.create_of_parts(path, &upload, &parts).await,
        Err(failure) => Err(failure),
    };
    if joined.is_err() {
        // The first error is the one to report. Parts that remain are listed by `leftovers`.
        let _ = tokio::time::timeout(ABORT, s3.client.abort_multipart(path, &upload)).await;
    }
    joined
}

/// Sends all parts and returns their numbers.
async fn send_parts(
    client: &AmazonS3,
    path: &Path,
    upload: &MultipartId,
    file: &File,
    len: u64,
) -> object_store::Result<Vec<PartId>> {
    let all = content(file, len)?;
    let size = usize::try_from(part_size(len)).unwrap_or(usize::MAX);
    let parts = (0..all.len()).step_by(size).enumerate().map(|(number, start)| {
        let payload = PutPayload::from(all.slice(start..all.len().min(start.saturating_add(size))));
        client.put_part(path, upload, number, payload)
    });
    stream::iter(parts).buffered(PARALLEL).try_collect().await
}

/// Uploads in parts. Where the server checks no condition when it joins them, the object is uploaded under another name and
/// copied on the condition that it does not exist; an object that is to be replaced needs no condition.
async fn put_parts(
    client: &dyn ObjectStore,
    path: &Path,
    file: Arc<File>,
    len: u64,
    mode: PutMode,
    mut stop: Stop,
) -> object_store::Result<()> {
    if let PutMode::Update(version) = &mode {
        let now = stop.or(client.head(path)).await.unwrap_or_else(stopped)?;
        if now.e_tag != version.e_tag {
            return Err(Failure::Precondition {
                path: path.to_string(),
                source: "the object was replaced".into(),
            });
        }
    }
    if !matches!(mode, PutMode::Create) {
        return upload(client, path, &file, len, &mut stop).await;
    }
    let staged = Path::parse(format!("{path}.tesseral-{:x}.staged", random()))?;
    upload(client, &staged, &file, len, &mut stop).await?;
    let copied = client.copy_if_not_exists(&staged, path).await;
    let removed = client.delete(&staged).await;
    copied.and(removed)
}

/// The failure of a canceled upload, which the caller replaces.
fn stopped<T>() -> object_store::Result<T> {
    Err(Failure::Generic { store: "remote", source: "canceled".into() })
}

fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}

/// Sends all parts and joins them. An upload that fails or is canceled is aborted.
async fn upload(
    client: &dyn ObjectStore,
    path: &Path,
    file: &File,
    len: u64,
    stop: &mut Stop,
) -> object_store::Result<()> {
    let mut upload = client.put_multipart(path).await?;
    let sent = stop.or(send(&mut *upload, file, len)).await.unwrap_or_else(stopped);
    match sent {
        Ok(()) => upload.complete().await.map(drop),
        Err(failure) => {
            // The first error is the one to report. Parts that remain are listed by `leftovers`.
            let _ = tokio::time::timeout(ABORT, upload.abort()).await;
            Err(failure)
        }
    }
}

async fn send(upload: &mut dyn MultipartUpload, file: &File, len: u64) -> object_store::Result<()> {
    let mut rest = content(file, len)?;
    let size = usize::try_from(part_size(len)).unwrap_or(usize::MAX);
    let mut running = tokio::task::JoinSet::new();
    while !rest.is_empty() {
        if running.len() >= PARALLEL {
            finished(running.join_next().await)?;
        }
        running.spawn(upload.put_part(PutPayload::from(rest.split_to(rest.len().min(size)))));
    }
    while let Some(result) = running.join_next().await {
        finished(Some(result))?;
    }
    Ok(())
}

fn finished(
    result: Option<std::result::Result<object_store::Result<()>, tokio::task::JoinError>>,
) -> object_store::Result<()> {
    match result {
        Some(Ok(sent)) => sent,
        Some(Err(source)) => Err(Failure::JoinError { source }),
        None => Ok(()),
    }
}
