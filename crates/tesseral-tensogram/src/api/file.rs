//! Files of messages.

use std::fs::OpenOptions as FileOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tesseral_core::Cancel;
use tesseral_format::{OpenOptions, append_messages};
use tesseral_store::{LocalStore, Location, ReadMode, StorageOptions, Store};

use super::decoding::{OpenedMessage, VerifiedObjects};
use super::encoding::encode;
use super::error::{Result, TensogramError};
use super::options::{DecodeOptions, EncodeOptions};
use super::scanning::SkippedBytes;
use crate::TensogramFormat;
use crate::scan::{MessageRange, Scan, Skipped, scan_source};
use crate::source::{Input, MessageBytes};
use crate::wire::descriptor::Descriptor;
use crate::wire::metadata::Metadata;

/// A file of messages. Opening does not read. The first access scans the message boundaries and caches them.
///
/// ```
/// # fn main() -> Result<(), tesseral_tensogram::TensogramError> {
/// # let folder = std::env::temp_dir().join(format!("tesseral-tgm-doc-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// # let path = folder.join("forecast.tgm");
/// use tesseral_core::DType;
/// use tesseral_tensogram::{DataObjectDescriptor, DecodeOptions, EncodeOptions, GlobalMetadata, TensogramFile};
///
/// let mut file = TensogramFile::create(&path)?;
/// let cells: Vec<u8> = [1.0_f32, 2.0, 3.0].iter().flat_map(|c| c.to_le_bytes()).collect();
/// let descriptor = DataObjectDescriptor::raw(DType::Float32, &[3]);
/// file.append(&GlobalMetadata::default(), &[(&descriptor, &cells)], &EncodeOptions::default())?;
///
/// let file = TensogramFile::open(&path);
/// assert_eq!(file.message_count()?, 1);
/// let (_, objects) = file.decode_message(0, &DecodeOptions::default())?;
/// assert_eq!(objects[0].1, cells);
/// # std::fs::remove_dir_all(folder)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TensogramFile {
    inner: Arc<FileState>,
}

#[derive(Debug)]
struct FileState {
    backing: FileBacking,
    found: Mutex<Option<Arc<MessageIndex>>>,
    /// Lock of the append in progress.
    appending: Mutex<()>,
}

#[derive(Debug)]
enum FileBacking {
    File { path: PathBuf, access: ReadMode },
    Store(Arc<dyn Store>),
}

impl FileBacking {
    /// Source for the message scan. The scan reads a few bytes per message, so the file is memory-mapped for its duration.
    fn scanned(&self, source: &MessageBytes) -> Result<Scan> {
        match self {
            #[cfg(feature = "mmap")]
            Self::File { path, access: ReadMode::Read } if source.len > 0 => {
                let store: Arc<dyn Store> = Arc::new(LocalStore::new(path, ReadMode::Map));
                match MessageBytes::open(&store) {
                    Ok(mapped) if mapped.len == source.len => {
                        mapped.guarded(|| Ok(scan_source(&mapped, &Cancel::default())?))
                    }
                    // Mapping failed, or the file was replaced or has grown since it was opened.
                    _ => Ok(scan_source(source, &Cancel::default())?),
                }
            }
            _ => source.guarded(|| Ok(scan_source(source, &Cancel::default())?)),
        }
    }

    fn store(&self) -> Arc<dyn Store> {
        match self {
            // A new store each time, because a store caches the open file.
            Self::File { path, access } => Arc::new(LocalStore::new(path, *access)),
            Self::Store(store) => Arc::clone(store),
        }
    }
}

/// Returns the message boundaries, scanning the file if needed.
#[derive(Debug)]
struct MessageIndex {
    source: MessageBytes,
    messages: Vec<MessageRange>,
    skipped: Vec<Skipped>,
    verified: VerifiedObjects,
}

impl TensogramFile {
    fn new(backing: FileBacking) -> Self {
        Self { inner: Arc::new(FileState { backing, found: Mutex::default(), appending: Mutex::default() }) }
    }

    /// Opens a file with positioned reads; it is memory-mapped only while scanning for messages. Does not read yet, and the
    /// file need not exist.
    pub fn open(path: impl Into<PathBuf>) -> Self {
        Self::new(FileBacking::File { path: path.into(), access: ReadMode::Read })
    }

    /// Opens a memory-mapped file. Messages and uncompressed cells are views of the map. Does not read yet.
    #[cfg(feature = "mmap")]
    pub fn open_mmap(path: impl Into<PathBuf>) -> Self {
        Self::new(FileBacking::File { path: path.into(), access: ReadMode::Map })
    }

    /// Opens the object with the empty name of a store.
    pub fn open_store(store: Arc<dyn Store>) -> Self {
        Self::new(FileBacking::Store(store))
    }

    /// Creates an empty file to append to.
    ///
    /// # Errors
    /// `Io`, also when the file already exists.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        FileOptions::new().write(true).create_new(true).open(&path)?;
        Ok(Self::open(path))
    }

    /// Path of the file; `None` for stores.
    pub fn path(&self) -> Option<&Path> {
        match &self.inner.backing {
            FileBacking::File { path, .. } => Some(path),
            FileBacking::Store(_) => None,
        }
    }

    fn found(&self) -> Result<Arc<MessageIndex>> {
        let mut found = self.inner.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = &*found {
            return Ok(Arc::clone(found));
        }
        let source = MessageBytes::open(&self.inner.backing.store())?;
        let scanned = self.inner.backing.scanned(&source)?;
        let Scan { messages, skipped } = scanned;
        let now = Arc::new(MessageIndex { source, messages, skipped, verified: VerifiedObjects::default() });
        *found = Some(Arc::clone(&now));
        Ok(now)
    }

    /// Returns the number of messages.
    ///
    /// # Errors
    /// `Io`.
    pub fn message_count(&self) -> Result<usize> {
        Ok(self.found()?.messages.len())
    }

    /// Returns bytes outside messages: garbage, truncated and damaged messages.
    ///
    /// # Errors
    /// `Io`.
    pub fn skipped(&self) -> Result<Vec<SkippedBytes>> {
        Ok(self.found()?.skipped.iter().map(SkippedBytes::from).collect())
    }

    /// Returns the bytes of a message; a view if the file is memory-mapped.
    ///
    /// # Errors
    /// `Object` when the index is out of bounds; `Io`.
    pub fn read_message(&self, index: usize) -> Result<Bytes> {
        let found = self.found()?;
        let span = found.span(index)?;
        let message = || found.source.get(span.offset..span.offset + span.len, "message");
        Ok(found.source.guarded(|| found.source.lasting(message()?))?)
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// As [`decode`](super::decoding::decode); `Object` when the index is out of bounds.
    pub fn decode_message(
        &self,
        index: usize,
        options: &DecodeOptions,
    ) -> Result<(Metadata, Vec<(Descriptor, Bytes)>)> {
        let found = self.found()?;
        found.source.guarded(|| {
            let opened = found.open(index, options)?;
            let metadata = opened.metadata()?;
            let mut objects = Vec::with_capacity(opened.message.object_count());
            for number in 0..opened.message.object_count() {
                let (descriptor, cells) = opened.object(number)?;
                objects.push((descriptor, found.source.lasting(cells.into())?));
            }
            Ok((metadata, objects))
        })
    }

    /// Returns the metadata of a message. Does not read payloads.
    ///
    /// # Errors
    /// `Framing`, `Metadata`, `HashMismatch`, `Object`, `Io`.
    pub fn decode_metadata(&self, index: usize, options: &DecodeOptions) -> Result<Metadata> {
        let found = self.found()?;
        found.source.guarded(|| found.open(index, options)?.metadata())
    }

    /// Returns metadata and descriptors of a message. Does not read payloads.
    ///
    /// # Errors
    /// `Framing`, `Metadata`, `HashMismatch`, `Object`, `Io`.
    pub fn decode_descriptors(
        &self,
        index: usize,
        options: &DecodeOptions,
    ) -> Result<(Metadata, Vec<Descriptor>)> {
        let found = self.found()?;
        found.source.guarded(|| {
            let opened = found.open(index, options)?;
            Ok((opened.metadata()?, opened.descriptors()?))
        })
    }

    /// Decodes one object of a message.
    ///
    /// # Errors
    /// As [`decode_message`](Self::decode_message).
    pub fn decode_object(
        &self,
        index: usize,
        object: usize,
        options: &DecodeOptions,
    ) -> Result<(Metadata, Descriptor, Bytes)> {
        let found = self.found()?;
        found.source.guarded(|| {
            let opened = found.open(index, options)?;
            let (descriptor, cells) = opened.object(object)?;
            Ok((opened.metadata()?, descriptor, found.source.lasting(cells.into())?))
        })
    }

    /// Decodes ranges of cells, each `(first, count)`, of one object of a message. The hash of the object is verified when it is
    /// first decoded through this file or a clone of it.
    ///
    /// # Errors
    /// As [`decode_range`](super::decoding::decode_range).
    pub fn decode_range(
        &self,
        index: usize,
        object: usize,
        ranges: &[(u64, u64)],
        options: &DecodeOptions,
    ) -> Result<(Descriptor, Vec<Bytes>)> {
        let found = self.found()?;
        found.source.guarded(|| {
            let (descriptor, cells) = found.open(index, options)?.ranges(object, ranges)?;
            let cells = cells.into_iter().map(|cells| found.source.lasting(cells.into()));
            Ok((descriptor, cells.collect::<tesseral_core::Result<_>>()?))
        })
    }

    /// Encodes a message and appends it. See [`append_message`](Self::append_message).
    ///
    /// # Errors
    /// As [`encode`], and `Io`.
    pub fn append(
        &mut self,
        metadata: &Metadata,
        objects: &[(&Descriptor, &[u8])],
        options: &EncodeOptions,
    ) -> Result<()> {
        let message = encode(metadata, objects, options)?;
        self.append_whole(&message)
    }

    /// Appends the bytes of a complete message durably. Creates the file if it does not exist. A failed append leaves the
    /// existing messages unchanged. A process that is killed during an append can leave a truncated message: readers skip and
    /// report it, and the next append removes it. Appends of several processes are serialized by a lock.
    ///
    /// # Errors
    /// `Framing` when the bytes are not exactly one message, in which case nothing is written; `Io`.
    pub fn append_message(&mut self, message: &[u8]) -> Result<()> {
        let whole = DecodeOptions { verify_hash: false, ..DecodeOptions::default() };
        let slice = crate::source::SliceInput { name: "the message to be appended", bytes: message };
        let len = OpenedMessage::at(&slice, 0, &whole)?.message.len;
        if len != message.len() as u64 {
            let detail = format!("{} bytes follow the message", message.len() as u64 - len);
            let error = tesseral_core::Error::corrupt("message", slice.name, len, detail);
            return Err(TensogramError::Framing(error));
        }
        self.append_whole(message)
    }

    /// Appends bytes that are known to be a message.
    fn append_whole(&self, message: &[u8]) -> Result<()> {
        let FileBacking::File { path, .. } = &self.inner.backing else {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "appending to a store").into());
        };
        let _turn = self.inner.appending.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut file, removed) = append_messages(
            &TensogramFormat,
            &Location::Path(path.clone()),
            &StorageOptions::new(),
            &OpenOptions::default(),
        )?;
        let offset = file.start();
        file.write(message)?;
        file.commit()?;
        let mut found = self.inner.found.lock().unwrap_or_else(PoisonError::into_inner);
        // The cached boundaries are stale if a truncated message was removed or another process appended.
        if let Some(known) = found.take()
            && removed.is_none()
            && known.source.len == offset
        {
            *found = Some(Arc::new(MessageIndex::with(
                known,
                self.inner.backing.store(),
                offset,
                message.len() as u64,
            )?));
        }
        Ok(())
    }

    /// Iterates over the bytes of every message in order.
    pub fn iter(&self) -> Messages<'_> {
        Messages { file: self, next: 0 }
    }
}

impl MessageIndex {
    /// Updates the cached boundaries after an append. The list is copied only while it is shared.
    fn with(known: Arc<Self>, store: Arc<dyn Store>, offset: u64, len: u64) -> Result<Self> {
        let source = MessageBytes::open(&store)?;
        let (mut messages, skipped) = match Arc::try_unwrap(known) {
            Ok(known) => (known.messages, known.skipped),
            Err(shared) => (shared.messages.clone(), shared.skipped.clone()),
        };
        messages.push(MessageRange { offset, len });
        Ok(Self { source, messages, skipped, verified: VerifiedObjects::default() })
    }

    fn span(&self, index: usize) -> Result<MessageRange> {
        let count = self.messages.len();
        self.messages.get(index).copied().ok_or(TensogramError::Object { what: "message", index, count })
    }

    fn open<'a>(
        &'a self,
        index: usize,
        options: &'a DecodeOptions,
    ) -> Result<OpenedMessage<'a, MessageBytes>> {
        let span = self.span(index)?;
        let opened = OpenedMessage::new(&self.source, span.offset, span.len, options)?;
        Ok(opened.remembering(&self.verified))
    }
}

/// Iterator over the messages of a file.
#[derive(Clone, Debug)]
pub struct Messages<'a> {
    file: &'a TensogramFile,
    next: usize,
}

impl Iterator for Messages<'_> {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.file.message_count() {
            Ok(count) if self.next < count => {
                self.next += 1;
                Some(self.file.read_message(self.next - 1))
            }
            Ok(_) => None,
            // The error is returned once.
            Err(error) if self.next == 0 => {
                self.next = usize::MAX;
                Some(Err(error))
            }
            Err(_) => None,
        }
    }
}

impl<'a> IntoIterator for &'a TensogramFile {
    type Item = Result<Bytes>;
    type IntoIter = Messages<'a>;

    fn into_iter(self) -> Messages<'a> {
        self.iter()
    }
}
