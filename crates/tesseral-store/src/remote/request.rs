//! Requests and their answers.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    Error as Failure, GetOptions, GetRange, GetResult, ObjectMeta, ObjectStore, ObjectStoreExt, Result,
};

use crate::store::{ByteRange, ObjectInfo, ObjectKind};

/// Number of requests of one call that are under way at the same time.
const PARALLEL: usize = 64;
/// Number of attempts for a response that ends early without an error.
const ATTEMPTS: usize = 3;

/// A request to an object store.
#[derive(Clone, Debug)]
pub(crate) enum RemoteRequest {
    /// A part of an object, of a version if one is given, or unless it still has another one.
    Get { path: Path, part: ByteRange, version: Option<String>, unless: Option<String> },
    /// Length and version of an object.
    Head { path: Path },
    /// The entries of a folder.
    List { path: Path },
}

/// A part of an object.
#[derive(Debug)]
pub(crate) struct ObjectPart {
    pub meta: ObjectMeta,
    pub start: u64,
    pub bytes: Bytes,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) enum Response {
    Part(ObjectPart),
    Meta(ObjectMeta),
    Entries(Vec<ObjectInfo>),
}

pub(crate) type Answer = Result<Response>;

/// Makes requests at the same time and returns the answers in order.
pub(crate) async fn all(client: Arc<dyn ObjectStore>, requests: Vec<RemoteRequest>) -> Vec<Answer> {
    let run = |request| {
        // Each request is a task, so that all threads of the runtime take part in decryption.
        let task = super::runtime::spawn(perform(Arc::clone(&client), request));
        async { task.await.unwrap_or_else(|source| Err(Failure::JoinError { source })) }
    };
    futures_util::stream::iter(requests).map(run).buffered(PARALLEL).collect().await
}

async fn perform(client: Arc<dyn ObjectStore>, request: RemoteRequest) -> Answer {
    match request {
        RemoteRequest::Get { path, part, version, unless } => {
            let conditions = GetOptions {
                // A weak entity tag never matches; it is compared when the answer arrives.
                if_match: version.filter(|etag| !etag.starts_with("W/")),
                if_none_match: unless,
                ..GetOptions::default()
            };
            get(&client, &path, &part, conditions).await.map(Response::Part)
        }
        RemoteRequest::Head { path } => client.head(&path).await.map(Response::Meta),
        RemoteRequest::List { path } => list(&client, &path).await.map(Response::Entries),
    }
}

async fn get(
    client: &Arc<dyn ObjectStore>,
    path: &Path,
    part: &ByteRange,
    conditions: GetOptions,
) -> Result<ObjectPart> {
    let range = match part {
        ByteRange::Exact(range) if range.is_empty() => {
            let meta = client.head(path).await?;
            return Ok(ObjectPart { meta, start: range.start, bytes: Bytes::new() });
        }
        ByteRange::Exact(range) => Some(GetRange::Bounded(range.clone())),
        ByteRange::Prefix(most) => Some(GetRange::Bounded(0..*most)),
        ByteRange::Suffix(most) => Some(GetRange::Suffix(*most)),
        ByteRange::Whole => None,
    };
    let options = GetOptions { range: range.clone(), ..conditions };
    let mut short = None;
    for _ in 0..ATTEMPTS {
        let result = match client.get_opts(path, options.clone()).await {
            // Servers reject ranges that start at the end or after it, which are all ranges of an empty object.
            Err(failure @ Failure::Generic { .. }) if range.is_some() => {
                let start = if let ByteRange::Exact(range) = part { range.start } else { 0 };
                return match client.head(path).await {
                    Ok(meta) if start >= meta.size => {
                        Ok(ObjectPart { start: meta.size, meta, bytes: Bytes::new() })
                    }
                    _ => Err(failure),
                };
            }
            other => other?,
        };
        let GetResult { meta, range, .. } = &result;
        let (meta, range) = (meta.clone(), range.clone());
        let bytes = result.bytes().await?;
        if bytes.len() as u64 == range.end - range.start {
            return Ok(ObjectPart { meta, start: range.start, bytes });
        }
        short = Some(format!("the server sent {} of {} bytes", bytes.len(), range.end - range.start));
    }
    Err(Failure::Generic { store: "remote", source: short.unwrap_or_default().into() })
}

async fn list(client: &Arc<dyn ObjectStore>, path: &Path) -> Result<Vec<ObjectInfo>> {
    let prefix = (!path.as_ref().is_empty()).then_some(path);
    let found = client.list_with_delimiter(prefix).await?;
    let folders = found
        .common_prefixes
        .iter()
        .filter_map(|folder| Some(ObjectInfo::new(folder.filename()?, ObjectKind::Folder)));
    let objects = found.objects.into_iter().filter_map(|meta| {
        let name = meta.location.filename()?.to_owned();
        // Some programs mark a folder by an object of its name.
        let marker = meta.location == *path;
        (!marker).then_some(ObjectInfo {
            name,
            kind: ObjectKind::File,
            len: Some(meta.size),
            etag: meta.e_tag,
        })
    });
    let mut entries: Vec<_> = folders.chain(objects).collect();
    entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
    // A folder marker is listed in addition to the folder.
    entries.dedup_by(|b, a| a.name == b.name);
    Ok(entries)
}

/// Objects next to a name and below it whose names have the mark of unpublished objects. At most `most`.
pub(crate) async fn marked(
    client: Arc<dyn ObjectStore>,
    path: Path,
    mark: &str,
    most: usize,
) -> Result<Vec<Path>> {
    let is_marked = |found: &Path| found.filename().is_some_and(|name| name.contains(mark));
    let mut all = Vec::new();
    if !path.as_ref().is_empty() {
        let start = format!("{path}{mark}");
        let above = path.as_ref().rsplit_once('/').map(|(above, _)| Path::from(above));
        // Listings are sorted, so objects that begin with its name and the mark are adjacent.
        let beside = client.list_with_offset(above.as_ref(), &Path::from(start.as_str()));
        let mut beside = beside.map_ok(|meta| meta.location);
        while let Some(found) = beside.try_next().await? {
            if !found.as_ref().starts_with(&start) || all.len() >= most {
                break;
            }
            all.push(found);
        }
    }
    let prefix = (!path.as_ref().is_empty()).then_some(&path);
    let mut below = client.list(prefix).map_ok(|meta| meta.location);
    while let Some(found) = below.try_next().await? {
        if all.len() >= most {
            break;
        }
        if found != path && is_marked(&found) {
            all.push(found);
        }
    }
    Ok(all)
}

/// Removes objects; those that do not exist are not errors.
pub(crate) async fn remove(client: Arc<dyn ObjectStore>, paths: Vec<Path>) -> Result<()> {
    for path in paths {
        match client.delete(&path).await {
            Err(failure) if !matches!(failure, Failure::NotFound { .. }) => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}

/// Removes everything below a name.
pub(crate) async fn remove_below(client: Arc<dyn ObjectStore>, path: Path) -> Result<()> {
    let prefix = (!path.as_ref().is_empty()).then_some(&path);
    let objects = client.list(prefix).map_ok(|meta| meta.location).boxed();
    client
        .delete_stream(objects)
        .try_for_each(|_| futures_util::future::ready(Ok(())))
        .await
        .or_else(|failure| if matches!(failure, Failure::NotFound { .. }) { Ok(()) } else { Err(failure) })
}
