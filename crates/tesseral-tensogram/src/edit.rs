//! Editing of messages without decoding payloads: object frames are copied, the surrounding frames are rewritten.

use std::sync::Arc;

use tesseral_core::{Attributes, Error, Finding, Result, Value};
use tesseral_format::{
    Conflict, MessageChange, MessageFile, MessageFormat, MessageInfo, OpenOptions, TruncatedTail,
};
use tesseral_store::{Growing, Store, StoreExt};
use xxhash_rust::xxh3::Xxh3;

use crate::TensogramFormat;
use crate::api::options::Provenance;
use crate::array::descriptor_item;
use crate::assemble::{AggregateHash, surround_blocks};
use crate::audit::skipped_finding;
use crate::message::{FrameFault, Message};
use crate::open::{MessageCatalog, values};
use crate::scan::{Skipped, ends_whole, truncated_tail};
use crate::source::{Input, MessageBytes};
use crate::wire::block_hashes::BlockHashes;
use crate::wire::cbor::{CborItem, Map};
use crate::wire::frame::{Frame, HASH_PRESENT, HEADER_LEN};
use crate::wire::metadata::{EXTRA, Metadata, RESERVED};
use crate::wire::preamble::VERSION;

/// Size of one copy operation in bytes.
const BLOCK: u64 = 4 << 20;

type ByteSink<'a> = dyn FnMut(&[u8]) -> Result<()> + 'a;

impl MessageFormat for TensogramFormat {
    fn open_messages(
        &self,
        store: Arc<dyn Store>,
        options: &OpenOptions,
        truncated: bool,
    ) -> Result<Box<dyn MessageFile>> {
        let store: Arc<dyn Store> = Arc::new(Growing(store));
        store.guarded(|| {
            let catalog = MessageCatalog::load(&store, options, truncated)?;
            if !truncated && let Some(error) = catalog.refusal()? {
                return Err(error);
            }
            Ok(Box::new(TensogramMessages { catalog }) as Box<dyn MessageFile>)
        })
    }

    fn merge(
        &self,
        files: &[Arc<dyn Store>],
        options: &OpenOptions,
        conflict: Conflict,
        put: &mut ByteSink<'_>,
    ) -> Result<usize> {
        let watches = files.iter().map(|store| store.watch()).collect::<Result<Vec<_>>>()?;
        let merged = merge_all(files, options, conflict, put);
        for watch in &watches {
            watch.check()?;
        }
        merged
    }

    fn truncated_tail(&self, store: &Arc<dyn Store>, options: &OpenOptions) -> Result<Option<TruncatedTail>> {
        let source = MessageBytes::open(store)?;
        let tail = source.guarded(|| match truncated_tail(&source, &options.cancel)? {
            Some(tail) => Ok(Some(tail)),
            None if ends_whole(&source)? => Ok(None),
            // Trailing bytes that are not a truncated message are kept. A file without any message is not of this format.
            None => match MessageCatalog::load(store, options, false)?.refusal()? {
                Some(error) => Err(error),
                None => Ok(None),
            },
        })?;
        Ok(tail.map(|Skipped { offset, len, detail, .. }| TruncatedTail { offset, len, detail }))
    }
}

fn merge_all(
    files: &[Arc<dyn Store>],
    options: &OpenOptions,
    conflict: Conflict,
    put: &mut ByteSink<'_>,
) -> Result<usize> {
    let catalogs: Vec<MessageCatalog> =
        files.iter().map(|store| MessageCatalog::load(store, options, false)).collect::<Result<_>>()?;
    let mut metadata = Metadata::default();
    let mut objects = Vec::new();
    for catalog in &catalogs {
        if let Some(error) = catalog.refusal()? {
            return Err(error);
        }
        for number in 0..catalog.len() {
            let found = catalog.intact(number)?;
            let stored = catalog.metadata(number)?;
            metadata.base.extend(stored.base.iter().cloned());
            for (key, item) in &stored.extra {
                merge_key(&mut metadata.extra, key, item, conflict)?;
            }
            objects.extend(StoredObject::all(catalog, &found));
        }
    }
    metadata.reserved = Provenance::reproducible().reserved();
    rebuild(&metadata, &objects, put)?;
    Ok(objects.len())
}

fn merge_key(map: &mut Map, key: &str, item: &CborItem, conflict: Conflict) -> Result<()> {
    match (map.get(key), conflict) {
        (Some(_), Conflict::First) => {}
        (Some(held), Conflict::Refuse) if held != item => {
            let detail = format!("conflicting values of {key:?} in the messages");
            return Err(Error::invalid(detail).hint("keep the `first` or the `last` value"));
        }
        _ => {
            map.insert(key.to_owned(), item.clone());
        }
    }
    Ok(())
}

/// The messages of a `.tgm` file.
#[derive(Debug)]
struct TensogramMessages {
    catalog: MessageCatalog,
}

impl MessageCatalog {
    /// A message whose frames are all intact.
    fn intact(&self, number: usize) -> Result<Arc<Message>> {
        let message = self.message(number)?;
        match message.fault() {
            Some(fault) => Err(fault.error(&self.source.object)),
            None => Ok(message),
        }
    }
}

impl TensogramMessages {
    fn info(&self, number: usize) -> Result<MessageInfo> {
        let message = self.catalog.intact(number)?;
        let metadata = self.catalog.metadata(number)?;
        let objects = message.objects().map(|frame| {
            let (item, _) = descriptor_item(&self.catalog.source, &self.catalog.limits, frame)?;
            match item.to_value() {
                Value::Map(map) => Ok(*map),
                _ => Ok(Attributes::new()),
            }
        });
        Ok(MessageInfo {
            offset: message.offset,
            length: message.len,
            version: VERSION.into(),
            truncated: message.truncated,
            base: metadata.base.iter().map(|entry| values(entry.iter())).collect(),
            extra: values(metadata.extra.iter()),
            reserved: values(metadata.reserved.iter()),
            objects: objects.collect::<Result<_>>()?,
        })
    }

    /// Objects with a hash mismatch.
    fn changed(&self, number: usize) -> Result<Vec<usize>> {
        let message = self.catalog.message(number)?;
        let mut damaged = Vec::new();
        for (object, frame) in message.objects().enumerate() {
            let Some(expected) = frame.expected_hash(message.preamble.flags) else { continue };
            if StoredObject::locate(&self.catalog, &message, frame).hash_of_body()? != expected {
                damaged.push(object);
            }
        }
        Ok(damaged)
    }
}

impl MessageFile for TensogramMessages {
    fn len(&self) -> usize {
        self.catalog.len()
    }

    fn findings(&self) -> Vec<Finding> {
        let found = || -> Result<Vec<Finding>> {
            let mut findings: Vec<Finding> = self.catalog.skipped.iter().map(skipped_finding).collect();
            for number in 0..self.len() {
                self.catalog.cancel.check()?;
                if let Ok(message) = self.catalog.message(number) {
                    findings.extend(message.faults.iter().chain(&message.lost).map(FrameFault::finding));
                }
            }
            Ok(findings)
        };
        self.catalog.source.guarded(found).unwrap_or_else(|e| vec![Finding::from_error("structure", &e)])
    }

    fn message(&self, number: usize) -> Result<MessageInfo> {
        self.catalog.source.guarded(|| self.info(number))
    }

    fn damaged(&self, number: usize) -> Result<Vec<usize>> {
        self.catalog.source.guarded(|| self.changed(number))
    }

    fn write(&self, number: usize, change: &MessageChange<'_>, put: &mut ByteSink<'_>) -> Result<()> {
        self.catalog.source.guarded(|| self.rewrite(number, change, put))
    }
}

impl TensogramMessages {
    fn rewrite(&self, number: usize, change: &MessageChange<'_>, put: &mut ByteSink<'_>) -> Result<()> {
        let catalog = &self.catalog;
        if let MessageChange::None = change {
            let span = catalog.span(number)?;
            return copy(&catalog.source, span.offset, span.offset + span.len, put);
        }
        let message = catalog.intact(number)?;
        let mut metadata = Metadata::clone(&*catalog.metadata(number)?);
        let mut objects: Vec<StoredObject<'_>> = StoredObject::all(catalog, &message).collect();
        match change {
            MessageChange::Set(keys) => {
                for (path, value) in *keys {
                    set(&mut metadata, path, &CborItem::from_value(value)?)?;
                }
            }
            MessageChange::Objects(kept) => {
                if kept.iter().any(|i| *i >= objects.len()) {
                    return Err(Error::invalid(format!(
                        "object index out of bounds: message {number} has {} objects",
                        objects.len()
                    )));
                }
                metadata.base = kept.iter().map(|i| metadata.base[*i].clone()).collect();
                objects = kept.iter().map(|i| objects[*i].clone()).collect();
                if !message.truncated {
                    // The message is split; keys that identify it are dropped.
                    metadata.reserved = Provenance::reproducible().reserved();
                }
            }
            MessageChange::None | MessageChange::ListsFirst => {}
        }
        rebuild(&metadata, &objects, put)
    }
}

/// An object at its stored location.
#[derive(Clone)]
struct StoredObject<'a> {
    source: &'a MessageBytes,
    frame: Frame,
    /// Whether its hash is verified.
    hashed: bool,
    /// The hashes of its blocks, if the message lists them.
    blocks: Option<BlockHashes>,
}

impl<'a> StoredObject<'a> {
    fn locate(catalog: &'a MessageCatalog, message: &Message, frame: &Frame) -> Self {
        let hashed = frame.expected_hash(message.preamble.flags).is_some();
        Self { source: &catalog.source, frame: *frame, hashed, blocks: None }
    }

    /// All objects of a message. A damaged list of hashes of blocks is left out.
    fn all(catalog: &'a MessageCatalog, message: &Message) -> impl Iterator<Item = Self> {
        message.objects().enumerate().map(|(number, frame)| {
            let blocks = catalog.reader().block_hashes(message, number, frame).ok().flatten();
            Self { blocks, ..Self::locate(catalog, message, frame) }
        })
    }

    fn hash_of_body(&self) -> Result<u64> {
        let mut hasher = Xxh3::new();
        let body = self.frame.body();
        copy(self.source, body.start, body.end, &mut |bytes| {
            hasher.update(bytes);
            Ok(())
        })?;
        Ok(hasher.digest())
    }

    /// Copies the frame with padding. Adds a hash if the message has hashes and the frame has none.
    fn write(&self, hash: Option<u64>, put: &mut ByteSink<'_>) -> Result<()> {
        let Frame { offset, len, flags, .. } = self.frame;
        match hash.filter(|_| !self.hashed) {
            None => copy(self.source, offset, offset + len, put)?,
            Some(hash) => {
                let mut head = self.source.get(offset..offset + HEADER_LEN, "frame header")?.to_vec();
                head[6..8].copy_from_slice(&(flags | HASH_PRESENT).to_be_bytes());
                put(&head)?;
                copy(self.source, offset + HEADER_LEN, offset + len - 12, put)?;
                put(&hash.to_be_bytes())?;
                copy(self.source, offset + len - 4, offset + len, put)?;
            }
        }
        let padding = usize::try_from(len.wrapping_neg() % 8).unwrap_or(0);
        put(&[0; 8][..padding])
    }
}

/// Passes the bytes of a range to `put`, one part at a time.
pub(crate) fn copy(source: &MessageBytes, mut from: u64, end: u64, put: &mut ByteSink<'_>) -> Result<()> {
    while from < end {
        let until = from.saturating_add(BLOCK).min(end);
        put(&source.get(from..until, "frame")?)?;
        from = until;
    }
    Ok(())
}

/// Writes a message of stored objects. It has hashes if any of them has.
fn rebuild(metadata: &Metadata, objects: &[StoredObject<'_>], put: &mut ByteSink<'_>) -> Result<()> {
    let hashed = objects.is_empty() || objects.iter().any(|object| object.hashed);
    let lengths: Vec<u64> = objects.iter().map(|object| object.frame.len).collect();
    let hashes = objects.iter().map(|object| match object.hashed || !hashed {
        true => Ok(object.frame.hash),
        false => object.hash_of_body(),
    });
    let hashes: Vec<u64> = hashes.collect::<Result<_>>()?;
    let blocks = objects.iter().map(|object| object.blocks.clone()).collect();
    let around = surround_blocks(metadata, &lengths, &hashes, blocks, hashed, AggregateHash::Auto)?;
    put(&around.head)?;
    for (object, hash) in objects.iter().zip(&hashes) {
        object.write(hashed.then_some(*hash), put)?;
    }
    put(&around.tail)
}

/// Keys that describe the stored bytes and cannot be edited.
const STRUCTURAL: [&str; 20] = [
    "shape",
    "strides",
    "dtype",
    "ndim",
    "type",
    "byte_order",
    "encoding",
    "filter",
    "compression",
    "masks",
    "hash",
    "szip_rsi",
    "szip_block_size",
    "szip_flags",
    "szip_block_offsets",
    "sp_reference_value",
    "sp_binary_scale_factor",
    "sp_decimal_scale_factor",
    "sp_bits_per_value",
    "shuffle_element_size",
];

/// Sets a key: `extra.…` of the message, `objects.N.…` of one object; otherwise of every object, or of the message if it has no
/// objects.
fn set(metadata: &mut Metadata, path: &[String], item: &CborItem) -> Result<()> {
    let dotted = || path.join(".");
    let refuse = |why: &str| Err(Error::invalid(format!("cannot set {:?}: {why}", dotted())));
    if path.last().is_none_or(|last| STRUCTURAL.contains(&last.as_str())) {
        return refuse("it describes the stored bytes");
    }
    if path.iter().any(|part| part == RESERVED) {
        return refuse("the key is reserved");
    }
    if path.iter().any(String::is_empty) {
        return refuse("empty path component");
    }
    let parts: Vec<&str> = path.iter().map(String::as_str).collect();
    match &parts[..] {
        ["extra" | EXTRA, rest @ ..] if !rest.is_empty() => insert(&mut metadata.extra, rest, item),
        ["objects", number, rest @ ..] if !rest.is_empty() => {
            let count = metadata.base.len();
            let entry = number.parse::<usize>().ok().and_then(|n| metadata.base.get_mut(n));
            match entry {
                Some(entry) => insert(entry, rest, item),
                None => return refuse(&format!("the message has {count} objects")),
            }
        }
        ["extra" | EXTRA | "objects", ..] => return refuse("missing key"),
        parts if metadata.base.is_empty() => insert(&mut metadata.extra, parts, item),
        parts => metadata.base.iter_mut().for_each(|entry| insert(entry, parts, item)),
    }
    Ok(())
}

/// Inserts an item at a path, creating intermediate maps.
fn insert(map: &mut Map, path: &[&str], item: &CborItem) {
    let Some((first, rest)) = path.split_first() else { return };
    insert_item(map.entry((*first).to_owned()).or_insert(CborItem::Null), rest, item);
}

fn insert_item(node: &mut CborItem, path: &[&str], item: &CborItem) {
    let Some((first, rest)) = path.split_first() else {
        *node = item.clone();
        return;
    };
    if !matches!(node, CborItem::Map(_)) {
        *node = CborItem::Map(Vec::new());
    }
    if let CborItem::Map(pairs) = node {
        let at = pairs.iter().position(|(key, _)| key.as_text() == Some(first)).unwrap_or_else(|| {
            pairs.push((CborItem::Text((*first).to_owned()), CborItem::Null));
            pairs.len() - 1
        });
        insert_item(&mut pairs[at].1, rest, item);
    }
}
