//! Object stores and web servers.
//!
//! A [`RemoteStore`] is an object, or a prefix with everything below it. Requests are made by the `object_store` crate on the
//! threads of [`runtime`]; this module decides which, and all of a call are under way at the same time.
//!
//! - *First contact* with the object of a store requests its beginning, its end and, because it may be a folder, a listing. The
//!   answer has length and entity tag, and the metadata of most files is in these bytes.
//! - *Versions.* The first answer pins the version of an object. Later requests require it (`If-Match`) and compare it, so that
//!   an object that is replaced between two reads is an error.
//! - *Lengths* of answers are compared with those requested. A range past the end is an error, as in every store.

mod cache;
mod connect;
mod error;
mod pieces;
mod reach;
mod request;
mod runtime;
mod signed;
mod unfinished;
mod upload;
mod url;

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use tesseral_core::{Cancel, Error, ErrorKind, Result};

use crate::resolve::{CacheFolder, StorageOptions};
use crate::store::{
    ByteRange, ObjectBytes, ObjectInfo, Overwrite, Profile, Staged, Store, StoreExt, Upcoming, check_inside,
    check_range,
};
use crate::traffic::{Traffic, TrafficCounter};
use cache::Cache;
use pieces::Pieces;
use request::{Answer, RemoteRequest, Response};
use signed::S3;
use unfinished::Upload;
use url::{RemoteUrl, Service};

/// Number of bytes requested from both ends of an object at first contact.
const WINDOW: u64 = 64 << 10;
/// Size of the largest object that is read whole before it is requested.
const MOST_AHEAD: u64 = 1 << 20;
/// Time after which an announced listing is not used any more.
const FRESH: Duration = Duration::from_secs(5);

/// Longest time of a removal after its operation was canceled.
const REMOVAL: Duration = Duration::from_secs(5);

/// Mark in the names of objects that are not published.
const MARK: &str = ".tesseral-";
/// Number of unpublished objects that are listed.
const MOST_MARKED: usize = 1 << 16;

/// An object of an object store or web server, or a prefix with everything below it. Clones share information on its objects.
#[derive(Clone, Debug)]
pub struct RemoteStore {
    location: Arc<str>,
    root: Path,
    service: Service,
    source: Arc<ClientSource>,
    known: Arc<Mutex<HashMap<String, Pieces>>>,
    listed: Arc<Mutex<HashMap<String, KeptListing>>>,
    cache: Option<Arc<Cache>>,
    traffic: Arc<TrafficCounter>,
    /// Ends requests that are under way.
    cancel: Cancel,
}

/// A listing that was received before it was requested.
#[derive(Debug)]
struct KeptListing {
    at: Instant,
    entries: Vec<ObjectInfo>,
    /// Number of remaining uses.
    uses: u32,
}

/// How a store gets its client.
#[derive(Debug)]
enum ClientSource {
    Given(Arc<dyn ObjectStore>),
    /// Looked up for each call, because a forked process needs its own.
    Connected(RemoteUrl, StorageOptions),
}

impl RemoteStore {
    /// Creates a store for a URL (`s3://`, `gs://`, `az://`, `http://`, `https://`), without a request.
    ///
    /// # Errors
    /// `Unsupported` for other URLs, `InvalidRequest` for malformed ones and for unknown options.
    pub fn connect(url: &str, options: &StorageOptions) -> Result<Self> {
        Self::of_url(RemoteUrl::parse(url)?, options)
    }

    fn of_url(target: RemoteUrl, options: &StorageOptions) -> Result<Self> {
        connect::client(&target, options)?;
        let invalid = |e| Error::invalid(format!("{:?}: {e}", target.location));
        let root = Path::parse(&target.root).map_err(invalid)?;
        let (location, service) = (target.location.clone(), target.service);
        let cache = options
            .cache()?
            .map(|folder| Cache::new(&folder, format!("{}\n{root}", connect::endpoint(&target, options))))
            .map(Arc::new);
        let store = Self::new(location, root, service, ClientSource::Connected(target, options.clone()));
        Ok(Self { cache, ..store })
    }

    /// Creates a store of the objects below `root` in another store.
    ///
    /// # Errors
    /// `InvalidRequest` if `root` is not a valid name.
    pub fn with_client(
        location: impl Into<String>,
        client: Arc<dyn ObjectStore>,
        root: &str,
    ) -> Result<Self> {
        let root = Path::parse(root).map_err(|e| Error::invalid(format!("{root:?}: {e}")))?;
        Ok(Self::new(location.into(), root, Service::S3, ClientSource::Given(client)))
    }

    /// Keeps bytes of objects in a folder of this machine.
    #[must_use]
    pub fn with_cache(self, folder: &CacheFolder) -> Self {
        let cache = Cache::new(folder, format!("{}\n{}", self.location, self.root));
        Self { cache: Some(Arc::new(cache)), ..self }
    }

    fn new(location: String, root: Path, service: Service, source: ClientSource) -> Self {
        Self {
            location: location.into(),
            root,
            service,
            source: Arc::new(source),
            known: Arc::default(),
            listed: Arc::default(),
            cache: None,
            traffic: Arc::default(),
            cancel: Cancel::default(),
        }
    }

    /// Requests so far.
    pub fn traffic(&self) -> Traffic {
        self.traffic.traffic()
    }

    fn client(&self) -> Result<Arc<dyn ObjectStore>> {
        match &*self.source {
            ClientSource::Given(client) => Ok(Arc::clone(client)),
            ClientSource::Connected(target, options) => connect::client(target, options),
        }
    }

    /// The client of uploads, whose requests may take longer.
    fn uploading_client(&self) -> Result<Arc<dyn ObjectStore>> {
        match &*self.source {
            ClientSource::Given(client) => Ok(Arc::clone(client)),
            ClientSource::Connected(target, options) => connect::uploading_client(target, options),
        }
    }

    /// Name of an object in the client. Rejects names outside the store, because they can come from untrusted input.
    fn path(&self, object: &str) -> Result<Path> {
        if object.is_empty() {
            return Ok(self.root.clone());
        }
        let full =
            if self.root.as_ref().is_empty() { object.to_owned() } else { format!("{}/{object}", self.root) };
        let path = Path::parse(&full).ok().filter(|path| path.as_ref() == full);
        path.ok_or_else(|| Error::invalid(format!("object name {object:?} is outside {}", self.location)))
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Pieces>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listed(&self) -> MutexGuard<'_, HashMap<String, KeptListing>> {
        self.listed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes requests at the same time and returns their answers in order: one round trip.
    fn ask(&self, requests: Vec<RemoteRequest>) -> Result<Vec<Answer>> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let began = self.traffic.begin(requests.len() as u64);
        let answers = runtime::wait(&self.cancel, request::all(self.client()?, requests))?;
        let received = answers.iter().map(|answer| match answer {
            Ok(Response::Part(part)) => part.bytes.len() as u64,
            _ => 0,
        });
        self.traffic.end(began, received.sum(), 0);
        Ok(answers)
    }

    /// A request for a part of an object, of the version that was read before.
    fn get(&self, object: &str, part: ByteRange) -> Result<RemoteRequest> {
        let version = self.known().get(object).and_then(|known| known.etag().map(str::to_owned));
        Ok(RemoteRequest::Get { path: self.path(object)?, part, version, unless: None })
    }

    /// Checks the version of an answer and returns its bytes.
    fn receive(&self, object: &str, answer: Answer, keep: bool) -> Result<ObjectBytes> {
        let part = match answer.map_err(|e| self.failed("read", object, &e))? {
            Response::Part(part) => part,
            _ => return Err(Error::internal("response to a different request")),
        };
        let mut known = self.known();
        let pieces = self.admitted(&mut known, object, &part.meta)?;
        if keep {
            pieces.add(part.start, part.bytes.clone());
        }
        Ok(ObjectBytes { start: part.start, len: part.meta.size, bytes: part.bytes })
    }

    /// Returns the state of an object after comparing the version of a response.
    fn admitted<'a>(
        &self,
        known: &'a mut HashMap<String, Pieces>,
        object: &str,
        meta: &ObjectMeta,
    ) -> Result<&'a mut Pieces> {
        let pieces = known.entry(object.to_owned()).or_default();
        if !pieces.admit(meta) {
            return Err(error::changed(self.describe(object)));
        }
        Ok(pieces)
    }

    fn failed(&self, op: &'static str, object: &str, failure: &object_store::Error) -> Error {
        error::translate(op, self.describe(object), failure)
    }

    /// First contact with the object of the store itself.
    ///
    /// # Errors
    /// `Io` with `IsADirectory` if it is a folder, `NotFound` if it is neither; errors of the request.
    fn meet(&self) -> Result<()> {
        if self.known().get("").is_some_and(Pieces::is_met) {
            return Ok(());
        }
        // A listing that was requested with the first contact, and has not been used yet.
        if self.kept("").is_some_and(|entries| entries > 0) {
            return Err(Error::io("read", &*self.location, std::io::ErrorKind::IsADirectory.into()));
        }
        self.contact(&[])
    }

    /// Requests the object of the store itself, and listings of folders below it.
    fn contact(&self, folders: &[String]) -> Result<()> {
        let folder = || Error::io("read", &*self.location, std::io::ErrorKind::IsADirectory.into());
        let list = RemoteRequest::List { path: self.root.clone() };
        if self.root.as_ref().is_empty() && self.service.has_listings() {
            let entries = self.ask(vec![list])?.pop();
            self.keep_listing("", entries)?;
            return Err(folder());
        }
        let mut wanted = vec![self.get("", ByteRange::Exact(0..WINDOW))?];
        if self.service.has_suffixes() {
            wanted.push(self.get("", ByteRange::Suffix(WINDOW))?);
        }
        let objects = wanted.len();
        let mut below = Vec::new();
        if self.service.has_listings() {
            wanted.push(list.clone());
            for folder in folders {
                wanted.push(RemoteRequest::List { path: self.path(folder)? });
            }
        }
        let mut answers = self.ask(wanted)?;
        if self.service.has_listings() {
            below = answers.split_off(objects + 1);
        }
        for (folder, answer) in folders.iter().zip(below) {
            // Listed again, and reported, where it is used.
            let _ = self.keep_listing(folder, Some(answer));
        }
        let mut listing = answers.split_off(objects);
        let mut answers = answers.into_iter();
        let head = answers.next().ok_or_else(|| Error::internal("no answer"))?;
        if let Err(failure) = head {
            if !self.service.has_listings() {
                // The folder of a WebDAV server.
                listing = self.ask(vec![list])?;
            }
            return match self.keep_listing("", listing.pop()) {
                Ok(entries) if entries > 0 => Err(folder()),
                _ => Err(self.failed("open", "", &failure)),
            };
        }
        self.receive("", head, true)?;
        for tail in answers {
            self.receive("", tail, true)?;
        }
        Ok(())
    }

    /// Number of entries of a listing that is kept for the next request of it.
    fn kept(&self, folder: &str) -> Option<usize> {
        let listed = self.listed();
        let kept = listed.get(folder).filter(|kept| kept.at.elapsed() < FRESH);
        kept.map(|kept| kept.entries.len())
    }

    /// Keeps a listing for the next request of it. Returns the number of entries.
    fn keep_listing(&self, folder: &str, answer: Option<Answer>) -> Result<usize> {
        let entries = self.entries(folder, answer)?;
        let count = entries.len();
        // Of the store's own folder, one use is the recognition of its format.
        let uses = if folder.is_empty() { 2 } else { 1 };
        self.listed().insert(folder.to_owned(), KeptListing { at: Instant::now(), entries, uses });
        Ok(count)
    }

    /// Uses a listing that was kept.
    fn use_listing(&self, folder: &str) -> Option<Vec<ObjectInfo>> {
        let mut listed = self.listed();
        let mut kept = listed.remove(folder).filter(|kept| kept.at.elapsed() < FRESH)?;
        kept.uses -= 1;
        if kept.uses == 0 {
            return Some(kept.entries);
        }
        let entries = kept.entries.clone();
        listed.insert(folder.to_owned(), kept);
        Some(entries)
    }

    /// Entries of a listing. Lengths are noted, so that they need not be requested.
    fn entries(&self, folder: &str, answer: Option<Answer>) -> Result<Vec<ObjectInfo>> {
        let answer = answer.ok_or_else(|| Error::internal("no answer"))?;
        let entries = match answer.map_err(|e| self.failed("list", folder, &e))? {
            Response::Entries(entries) => entries,
            _ => return Err(Error::internal("response to a different request")),
        };
        let mut known = self.known();
        for entry in &entries {
            if let Some(len) = entry.len {
                let name =
                    if folder.is_empty() { entry.name.clone() } else { format!("{folder}/{}", entry.name) };
                known.entry(name).or_default().note_listed(len, entry.etag.as_deref());
            }
        }
        Ok(entries)
    }

    /// Returns whether anything is known of the store.
    fn is_known(&self) -> bool {
        !self.known().is_empty() || !self.listed().is_empty()
    }

    /// Returns bytes that are held in memory.
    fn held(&self, object: &str, part: &ByteRange) -> Option<ObjectBytes> {
        self.known().get(object)?.get(part)
    }

    /// Returns bytes of the version of an object that was read or listed, from the cache.
    fn cached(&self, object: &str, part: &ByteRange) -> Option<ObjectBytes> {
        let cache = self.cache.as_ref()?;
        let (etag, len) = self.known().get(object)?.identified().map(|(etag, len)| (etag.to_owned(), len))?;
        let found = from_cache(cache, object, part, &etag, len)?;
        self.use_cached(object, &etag, &found);
        Some(found)
    }

    /// Bytes that the cache has of an object of unknown version, and the entity tag of their version.
    fn candidate(&self, object: &str, part: &ByteRange) -> Option<(String, ObjectBytes)> {
        let cache = self.cache.as_ref()?;
        if self.known().get(object).is_some_and(|known| known.identified().is_some() || known.is_met()) {
            return None;
        }
        let (etag, len) = cache.latest(object)?;
        let found = from_cache(cache, object, part, &etag, len)?;
        Some((etag, found))
    }

    /// Bytes of the cache are used: later requests are for the same version.
    fn use_cached(&self, object: &str, etag: &str, found: &ObjectBytes) {
        self.known().entry(object.to_owned()).or_default().pin(etag, found.len);
        self.traffic.add_cached(found.bytes.len() as u64);
    }

    /// Adds bytes that were received to the cache.
    fn add_to_cache(&self, object: &str, received: &ObjectBytes) {
        let Some(cache) = &self.cache else { return };
        let etag =
            self.known().get(object).and_then(|known| known.identified().map(|(etag, _)| etag.to_owned()));
        if let Some(etag) = etag {
            cache.note(object, &etag, received.len);
            cache.put(object, &etag, received.start, &received.bytes);
        }
    }

    /// Reads parts of objects, as far as they are not held. The part of an object that does not exist is its error.
    fn read_parts(&self, reads: &[(&str, ByteRange)], keep: bool) -> Result<Vec<Result<ObjectBytes>>> {
        // One who names the bytes needs neither the ends of the object nor a listing.
        let named = |part: &ByteRange| matches!(part, ByteRange::Exact(range) if !range.is_empty());
        if reads
            .iter()
            .any(|(object, part)| object.is_empty() && (!named(part) || self.root.as_ref().is_empty()))
        {
            self.meet()?;
        }
        let held = |(object, part): &(&str, ByteRange)| {
            self.held(object, part).or_else(|| self.cached(object, part)).map(Ok)
        };
        let mut found: Vec<Option<Result<ObjectBytes>>> = reads.iter().map(held).collect();
        self.learn_lengths(reads, &found)?;
        let missing: Vec<usize> = (0..reads.len()).filter(|&i| found[i].is_none()).collect();
        let mut candidates = Vec::with_capacity(missing.len());
        let mut wanted = Vec::with_capacity(missing.len());
        for &i in &missing {
            let (object, part) = &reads[i];
            let mut request = self.get(object, self.requestable(object, part)?)?;
            let candidate = self.candidate(object, part);
            if let (RemoteRequest::Get { unless, .. }, Some((etag, _))) = (&mut request, &candidate) {
                *unless = Some(etag.clone());
            }
            candidates.push(candidate);
            wanted.push(request);
        }
        let answers = self.ask(wanted)?;
        for ((&i, answer), candidate) in missing.iter().zip(answers).zip(candidates) {
            let (object, part) = &reads[i];
            if let (Err(object_store::Error::NotModified { .. }), Some((etag, bytes))) = (&answer, candidate)
            {
                self.use_cached(object, &etag, &bytes);
                found[i] = Some(Ok(bytes));
                continue;
            }
            let bytes = match self.receive(object, answer, keep) {
                // A folder, perhaps.
                Err(error) if object.is_empty() && matches!(error.kind(), ErrorKind::NotFound { .. }) => {
                    self.meet().and(Err(error))
                }
                Err(error) if !matches!(error.kind(), ErrorKind::NotFound { .. }) => return Err(error),
                other => other,
            };
            if let (Ok(bytes), ByteRange::Exact(range)) = (&bytes, part) {
                check_range(range, bytes.len, &|| self.describe(object))?;
            }
            if let Ok(bytes) = &bytes {
                self.add_to_cache(object, bytes);
            }
            found[i] = Some(bytes);
        }
        let unanswered = || Err(Error::internal("a read without a response"));
        Ok(found.into_iter().map(|bytes| bytes.unwrap_or_else(unanswered)).collect())
    }

    /// Requests the lengths of objects before reading their ends, from services without suffix ranges.
    fn learn_lengths<T>(&self, reads: &[(&str, ByteRange)], found: &[Option<T>]) -> Result<()> {
        if self.service.has_suffixes() {
            return Ok(());
        }
        let unknown = |object: &str| self.known().get(object).and_then(Pieces::len).is_none();
        let objects: Vec<&str> = reads
            .iter()
            .zip(found)
            .filter(|((object, part), found)| {
                found.is_none() && matches!(part, ByteRange::Suffix(_)) && unknown(object)
            })
            .map(|((object, _), _)| *object)
            .collect();
        let heads = objects.iter().map(|object| Ok(RemoteRequest::Head { path: self.path(object)? }));
        let answers = self.ask(heads.collect::<Result<_>>()?)?;
        for (object, answer) in objects.iter().zip(answers) {
            match self.receive_length(object, answer) {
                Err(error) if !matches!(error.kind(), ErrorKind::NotFound { .. }) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn receive_length(&self, object: &str, answer: Answer) -> Result<u64> {
        match answer.map_err(|e| self.failed("open", object, &e))? {
            Response::Meta(meta) => {
                self.admitted(&mut self.known(), object, &meta)?;
                Ok(meta.size)
            }
            _ => Err(Error::internal("response to a different request")),
        }
    }

    /// The part as it can be requested from the service.
    fn requestable(&self, object: &str, part: &ByteRange) -> Result<ByteRange> {
        match part {
            ByteRange::Suffix(_) if !self.service.has_suffixes() => {
                let len = self.known().get(object).and_then(Pieces::len);
                // Without a length it does not exist, which this request reports.
                Ok(len.map_or(ByteRange::Exact(0..1), |len| ByteRange::Exact(part.within(len))))
            }
            ByteRange::Exact(range) if range.start > range.end => {
                Err(Error::invalid(format!("the byte range {range:?} ends before it starts")))
            }
            other => Ok(other.clone()),
        }
    }

    /// Drops cached information on an object that this store changes.
    fn forget(&self, object: &str) {
        self.known().remove(object);
        self.listed().clear();
    }

    /// Cancellation of removals: a canceled operation has some time to remove what it wrote.
    fn cancel_removal(&self) -> Cancel {
        match self.cancel.check() {
            Ok(()) => self.cancel.clone(),
            Err(_) => Cancel::at(Instant::now() + REMOVAL),
        }
    }

    /// Unpublished objects next to this one and below it.
    fn marked(&self) -> Result<Vec<Path>> {
        if !self.service.has_listings() {
            return Ok(Vec::new());
        }
        let marked = request::marked(self.client()?, self.root.clone(), MARK, MOST_MARKED);
        runtime::wait(&self.cancel, marked)?.map_err(|failure| self.failed("list", "", &failure))
    }

    /// Uploads in parts that have begun, where the service lists them.
    fn unfinished(&self) -> Result<Vec<Upload>> {
        match self.signing_client()? {
            Some(client) => runtime::wait(&self.cancel, unfinished::list(client, self.root.clone()))?
                .map_err(|failure| self.failed("list uploads of", "", &failure)),
            None => Ok(Vec::new()),
        }
    }

    /// The clients of S3, with credentials.
    fn signing_client(&self) -> Result<Option<S3>> {
        match &*self.source {
            ClientSource::Connected(target, options) if self.service == Service::S3 => {
                connect::s3(target, options)
            }
            _ => Ok(None),
        }
    }

    fn check_writable(&self) -> Result<()> {
        match self.service {
            Service::Http => Err(Error::unsupported(format!("writing to {}, a web server", self.location))
                .hint("write to a path or to s3://, gs:// or az://")),
            _ => Ok(()),
        }
    }
}

impl Store for RemoteStore {
    fn location(&self) -> &str {
        &self.location
    }

    fn len(&self, object: &str) -> Result<u64> {
        if object.is_empty() {
            self.meet()?;
        }
        if let Some(len) = self.known().get(object).and_then(Pieces::len) {
            return Ok(len);
        }
        let answer = self.ask(vec![RemoteRequest::Head { path: self.path(object)? }])?.pop();
        self.receive_length(object, answer.ok_or_else(|| Error::internal("no answer"))?)
    }

    fn etag(&self, object: &str) -> Option<String> {
        let known = self.known();
        known.get(object).and_then(Pieces::identified).map(|(etag, _)| etag.to_owned())
    }

    fn beside(&self, name: &str) -> Result<Arc<dyn Store>> {
        check_inside(name, &self.location)?;
        let next_to = |path: &str| match path.rsplit_once('/') {
            Some((folder, _)) => format!("{folder}/{name}"),
            None => name.to_owned(),
        };
        let (location, root) = (next_to(&self.location), next_to(self.root.as_ref()));
        let store = match &*self.source {
            ClientSource::Given(client) => Self::with_client(location, Arc::clone(client), &root)?,
            ClientSource::Connected(target, options) => {
                Self::of_url(RemoteUrl { root, location, ..target.clone() }, options)?
            }
        };
        // Requests are counted, and canceled, with those of this store.
        let (traffic, cancel) = (Arc::clone(&self.traffic), self.cancel.clone());
        Ok(Arc::new(Self { traffic, cancel, ..store }))
    }

    fn read_many(&self, object: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let reads: Vec<_> = ranges.iter().map(|range| (object, ByteRange::Exact(range.clone()))).collect();
        self.read_parts(&reads, false)?.into_iter().map(|part| part.map(|part| part.bytes)).collect()
    }

    fn resident(&self, _: &str) -> Result<Option<Bytes>> {
        Ok(None)
    }

    fn read_objects(&self, reads: &[(&str, ByteRange)]) -> Result<Vec<ObjectBytes>> {
        self.read_parts(reads, false)?.into_iter().collect()
    }

    fn read_existing(&self, reads: &[(&str, ByteRange)]) -> Result<Vec<Option<ObjectBytes>>> {
        let existing = |part: Result<ObjectBytes>| match part {
            Err(error) if matches!(error.kind(), ErrorKind::NotFound { .. }) => Ok(None),
            other => other.map(Some),
        };
        self.read_parts(reads, false)?.into_iter().map(existing).collect()
    }

    fn prefetch(&self, upcoming: &[Upcoming]) {
        if !upcoming.is_empty() && upcoming.iter().all(|next| next.folder().is_some()) && !self.is_known() {
            let folders: Vec<String> = upcoming.iter().filter_map(Upcoming::folder).cloned().collect();
            // The next request reports what failed.
            let _ = self.contact(&folders);
            return;
        }
        let mut wanted = Vec::new();
        let mut names = Vec::new();
        for next in upcoming {
            let request = match next {
                Upcoming::Listing(folder) if self.kept(folder).is_some() => continue,
                // Of objects of unknown length there may be too much.
                Upcoming::Bytes(object, ByteRange::Whole)
                    if self.known().get(object).and_then(Pieces::len).is_none_or(|len| len > MOST_AHEAD) =>
                {
                    continue;
                }
                Upcoming::Bytes(object, part) if self.held(object, part).is_some() => continue,
                Upcoming::Bytes(object, part) => {
                    if let Some(found) = self.cached(object, part) {
                        // Held, because the reader requests it next.
                        if let Some(known) = self.known().get_mut(object) {
                            known.add(found.start, found.bytes);
                        }
                        continue;
                    }
                    self.requestable(object, part).and_then(|part| self.get(object, part))
                }
                Upcoming::Listing(folder) => self.path(folder).map(|path| RemoteRequest::List { path }),
            };
            if let Ok(request) = request {
                wanted.push(request);
                names.push(next);
            }
        }
        let Ok(answers) = self.ask(wanted) else { return };
        for (next, answer) in names.into_iter().zip(answers) {
            // What failed is requested again where it is used, which reports the error.
            let _ = match next {
                Upcoming::Bytes(object, _) => {
                    self.receive(object, answer, true).map(|bytes| self.add_to_cache(object, &bytes))
                }
                Upcoming::Listing(folder) => self.keep_listing(folder, Some(answer)).map(drop),
            };
        }
    }

    fn canceled_by(&self, cancel: &Cancel) -> Option<Arc<dyn Store>> {
        Some(Arc::new(Self { cancel: cancel.clone(), ..self.clone() }))
    }

    fn profile(&self) -> Profile {
        Profile::NETWORK
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        let entries = match self.use_listing(folder) {
            Some(entries) => entries,
            None => {
                let answer = self.ask(vec![RemoteRequest::List { path: self.path(folder)? }])?.pop();
                self.entries(folder, answer)?
            }
        };
        // Object stores have no empty folders.
        if entries.is_empty() && !folder.is_empty() {
            return Err(Error::not_found("folder", self.describe(folder), Vec::new()));
        }
        Ok(entries)
    }

    fn stage(&self, object: &str, overwrite: Overwrite) -> Result<Box<dyn Staged>> {
        self.check_writable()?;
        let replaced = self.known().get(object).and_then(Pieces::update);
        if object.is_empty() && overwrite == Overwrite::Refuse && self.exists("")? {
            let exists = Error::invalid(format!("output {} already exists", self.location));
            return Err(exists.hint(tesseral_core::Advice::Overwrite));
        }
        let target = upload::UploadTarget {
            store: self.clone(),
            client: self.uploading_client()?,
            object: object.to_owned(),
            path: self.path(object)?,
            overwrite,
            replaced,
        };
        Ok(Box::new(upload::Spooled::new(target)?))
    }

    fn leftovers(&self) -> Result<Vec<String>> {
        let objects = self.marked()?.into_iter().map(|path| path.to_string());
        Ok(objects.chain(self.unfinished()?.iter().map(Upload::describe)).collect())
    }

    fn remove_leftovers(&self) -> Result<()> {
        self.check_writable()?;
        let uploads = self.unfinished()?;
        if let Some(client) = self.signing_client()?.filter(|_| !uploads.is_empty()) {
            let removed = runtime::wait(&self.cancel_removal(), unfinished::remove(client, uploads))?;
            removed.map_err(|failure| self.failed("remove leftovers of", "", &failure))?;
        }
        let (client, paths) = (self.client()?, self.marked()?);
        let removed = runtime::wait(&self.cancel_removal(), request::remove(client, paths))?;
        removed.map_err(|failure| self.failed("remove leftovers of", "", &failure))
    }

    fn remove(&self, object: &str) -> Result<()> {
        self.check_writable()?;
        self.forget(object);
        let (client, path) = (self.client()?, self.path(object)?);
        match runtime::wait(&self.cancel_removal(), async move { client.delete(&path).await })? {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(failure) => Err(self.failed("remove", object, &failure)),
        }
    }

    fn remove_all(&self, object: &str) -> Result<()> {
        self.check_writable()?;
        self.known().clear();
        self.listed().clear();
        let (client, path) = (self.client()?, self.path(object)?);
        let removed = runtime::wait(&self.cancel_removal(), request::remove_below(client, path))?;
        removed.map_err(|failure| self.failed("remove", object, &failure))?;
        self.remove(object)
    }
}

/// A part of a version of an object, from the cache.
fn from_cache(cache: &Cache, object: &str, part: &ByteRange, etag: &str, len: u64) -> Option<ObjectBytes> {
    let range = part.within(len);
    if range.start >= range.end || range.end > len {
        return None;
    }
    Some(ObjectBytes { start: range.start, len, bytes: cache.get(object, etag, &range)? })
}

/// Rejects URLs that no store has.
pub(crate) fn check_url(url: &str) -> Result<()> {
    RemoteUrl::parse(url).map(drop)
}
