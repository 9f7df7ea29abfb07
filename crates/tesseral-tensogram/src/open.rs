//! The opened container.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::json;
use tesseral_core::{Attributes, Cancel, Error, ErrorKind, HistoryRow, Limits, MetadataCost, Result, Value};
use tesseral_format::{ArraySource, ContainerPart, ContainerSource, OpenOptions};
use tesseral_store::Store;

use crate::array::TensogramArray;
use crate::frame_reader::FrameReader;
use crate::message::Message;
use crate::object_name;
use crate::scan::{MessageRange, Skipped, scan_source};
use crate::source::MessageBytes;
use crate::wire::cbor::{CborItem, Map};
use crate::wire::metadata::{Metadata, RESERVED};

/// State shared by the arrays of a file. Message boundaries are known; content is read on demand and cached for a few messages.
#[derive(Debug)]
pub(crate) struct MessageCatalog {
    pub source: MessageBytes,
    messages: Vec<MessageRange>,
    /// Indexes of the messages without an end, in ascending order.
    endless: Vec<usize>,
    /// Use the intact part of damaged messages.
    lenient: bool,
    recent: Mutex<VecDeque<Recent>>,
    /// Messages whose metadata were counted, and what these take in memory.
    counted: Mutex<(BTreeSet<usize>, MetadataCost)>,
    pub skipped: Vec<Skipped>,
    pub limits: Limits,
    pub digests: bool,
    pub cancel: Cancel,
}

/// Number of messages that are cached: sufficient for interleaved reads of several messages.
const RECENT: usize = 64;

/// A cached message.
#[derive(Debug)]
struct Recent {
    number: usize,
    message: Arc<Message>,
    metadata: Option<Shared<Metadata>>,
}

/// Maximum number of messages that details list; larger files report only the count.
const LISTED: usize = 10_000;

/// Result of a read. Corruption is cached as well, because reading again would produce the same error.
type Shared<T> = std::result::Result<Arc<T>, Arc<Error>>;

/// Returns the cached error again; `None` if retrying can succeed.
fn repeated(error: &Error) -> Option<Error> {
    let kind = match error.kind() {
        ErrorKind::Corrupt { what, object, offset, detail } => ErrorKind::Corrupt {
            what: what.clone(),
            object: object.clone(),
            offset: *offset,
            detail: detail.clone(),
        },
        ErrorKind::Limit { what, asked, allowed } => {
            ErrorKind::Limit { what: what.clone(), asked: *asked, allowed: *allowed }
        }
        ErrorKind::Unsupported { feature } => ErrorKind::Unsupported { feature: feature.clone() },
        _ => return None,
    };
    let same = Error::new(kind);
    Some(match error.advice() {
        Some(hint) => same.hint(hint.clone()),
        None => same,
    })
}

impl MessageCatalog {
    /// Scans the messages of a file. With `truncated`, includes the intact part of truncated and damaged ones.
    pub(crate) fn load(store: &Arc<dyn Store>, options: &OpenOptions, truncated: bool) -> Result<Self> {
        let source = MessageBytes::open(store)?;
        let found = scan_source(&source, &options.cancel)?;
        let (mut messages, mut endless) = (found.messages, Vec::new());
        if truncated {
            let begun = found.skipped.iter().filter(|skipped| skipped.begun);
            let starts: HashSet<u64> = begun.clone().map(|skipped| skipped.offset).collect();
            messages.extend(begun.map(|s| MessageRange { offset: s.offset, len: s.len }));
            messages.sort_by_key(|span| span.offset);
            let numbered = messages.iter().enumerate();
            endless = numbered.filter(|(_, span)| starts.contains(&span.offset)).map(|(i, _)| i).collect();
        }
        Ok(Self {
            source,
            messages,
            endless,
            lenient: truncated,
            recent: Mutex::default(),
            counted: Mutex::default(),
            skipped: found.skipped,
            limits: options.limits,
            digests: options.digests,
            cancel: options.cancel.clone(),
        })
    }

    /// Number of messages.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// Returns the boundaries of a message.
    pub(crate) fn span(&self, number: usize) -> Result<MessageRange> {
        let missing = || Error::not_found("message", number.to_string(), Vec::new());
        self.messages.get(number).copied().ok_or_else(missing)
    }

    fn recent(&self) -> MutexGuard<'_, VecDeque<Recent>> {
        self.recent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Parses the frames of a message.
    fn walk(&self, number: usize) -> Result<Message> {
        let MessageRange { offset, len } = self.span(number)?;
        let endless = self.endless.binary_search(&number).is_ok();
        let mut message = match self.source.as_slice() {
            Some(slice) => Message::walk(&slice, offset, len, endless)?,
            None => Message::walk(&self.source, offset, len, endless)?,
        };
        if self.lenient {
            // Frames before the damage are intact.
            message.truncated |= message.fault().is_some();
            message.lost = message.faults.iter().filter(|fault| !fault.harmless).cloned().collect();
            message.faults.retain(|fault| fault.harmless);
        }
        Ok(message)
    }

    /// Returns a message and its frames.
    pub(crate) fn message(&self, number: usize) -> Result<Arc<Message>> {
        self.source.check()?;
        if let Some(held) = self.recent().iter().find(|held| held.number == number) {
            return Ok(Arc::clone(&held.message));
        }
        let message = Arc::new(self.walk(number)?);
        let mut recent = self.recent();
        if recent.len() >= RECENT {
            recent.pop_back();
        }
        recent.push_front(Recent { number, message: Arc::clone(&message), metadata: None });
        Ok(message)
    }

    /// Returns the error if no message is readable. Stops at the first readable one.
    pub(crate) fn refusal(&self) -> Result<Option<Error>> {
        if self.source.len == 0 {
            return Ok(None);
        }
        let object = &self.source.object;
        if self.messages.is_empty() {
            let other = self.skipped.iter().find_map(|skipped| skipped.version.clone());
            if let (Some(version), false) = (other, self.skipped.iter().any(|s| s.begun)) {
                return Ok(Some(Error::unsupported(version)));
            }
            let first = self.skipped.iter().find(|s| s.begun).or(self.skipped.first());
            return Ok(first.map(|first| Error::corrupt(first.check, object, first.offset, &first.detail)));
        }
        let mut refused = None;
        for number in 0..self.len() {
            self.cancel.check()?;
            match self.message(number)?.fault() {
                None => return Ok(None),
                Some(fault) => refused = refused.or_else(|| Some(fault.error(object))),
            }
        }
        Ok(refused)
    }

    /// Returns a frame reader of the file.
    pub(crate) fn reader(&self) -> FrameReader<'_, MessageBytes> {
        FrameReader { input: &self.source, limits: self.limits, digests: self.digests }
    }

    /// Returns the metadata of a message. It is parsed once for all objects, even if it is damaged.
    pub(crate) fn metadata(&self, number: usize) -> Result<Arc<Metadata>> {
        let message = self.message(number)?;
        let held =
            self.recent().iter().find(|held| held.number == number).and_then(|held| held.metadata.clone());
        match held {
            Some(Ok(metadata)) => return Ok(metadata),
            Some(Err(error)) => {
                if let Some(error) = repeated(&error) {
                    return Err(error);
                }
            }
            None => {}
        }
        let read = match &self.source.as_slice() {
            Some(input) => {
                FrameReader { input, limits: self.limits, digests: self.digests }.metadata(&message)
            }
            None => self.reader().metadata(&message),
        };
        let read = read.and_then(|metadata| self.count(number, metadata));
        let (shared, result) = match read {
            Ok(metadata) => {
                let metadata = Arc::new(metadata);
                (Some(Ok(Arc::clone(&metadata))), Ok(metadata))
            }
            Err(error) => (repeated(&error).map(|error| Err(Arc::new(error))), Err(error)),
        };
        if let Some(held) = self.recent().iter_mut().find(|held| held.number == number) {
            held.metadata = shared;
        }
        result
    }
}

/// Length of a file up to which the metadata of all its messages count together. Larger files are allowed more values than
/// they have room for.
const COUNTED: u64 = 2 << 20;

impl MessageCatalog {
    /// Rejects metadata that exceed the limit together with those of other messages, because commands hold them all.
    fn count(&self, number: usize, metadata: Metadata) -> Result<Metadata> {
        if self.source.len <= COUNTED {
            let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
            let (messages, all) = &mut *counted;
            if messages.insert(number) {
                *all = all.and(metadata.cost());
            }
            self.limits.check_values(*all, self.source.len)?;
        }
        Ok(metadata)
    }
}

/// The arrays of a file: objects of all messages, numbered consecutively.
#[derive(Debug, Default)]
struct MessageArrays {
    /// Index of the first array of each message, followed by the number of arrays.
    first: Vec<usize>,
    /// The concatenated names of all arrays, and the end of each.
    names: String,
    ends: Vec<usize>,
}

impl MessageArrays {
    fn count(catalog: &MessageCatalog) -> Self {
        let mut entries = Self { first: Vec::with_capacity(catalog.len() + 1), ..Self::default() };
        for message in 0..catalog.len() {
            entries.first.push(entries.ends.len());
            let objects = match catalog.walk(message) {
                // A damaged message without objects is listed as an array, so that reading it reports the cause.
                Ok(found) => found.object_count().max(usize::from(found.fault().is_some())),
                Err(_) => 1,
            };
            for object in 0..objects {
                push_number(message, &mut entries.names);
                entries.names.push('/');
                push_number(object, &mut entries.names);
                entries.ends.push(entries.names.len());
            }
        }
        entries.first.push(entries.ends.len());
        entries
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn name(&self, index: usize) -> &str {
        let start = index.checked_sub(1).map_or(Some(&0), |before| self.ends.get(before));
        start.zip(self.ends.get(index)).map_or("", |(start, end)| &self.names[*start..*end])
    }

    /// Returns the message index of an array and its index within the message.
    fn locate(&self, index: usize) -> Option<(usize, usize)> {
        let message = self.first.partition_point(|first| *first <= index).checked_sub(1)?;
        (index < self.len()).then(|| (message, index - self.first[message]))
    }

    /// Returns the array with a name such as `3/0`.
    fn find(&self, name: &str) -> Option<usize> {
        let (message, object) = name.split_once('/')?;
        let (message, object) = (message.parse::<usize>().ok()?, object.parse::<usize>().ok()?);
        let index = self.first.get(message)?.checked_add(object)?;
        (self.name(index) == name).then_some(index)
    }

    /// Indexes of the arrays of a message.
    fn of_message(&self, message: usize) -> Range<usize> {
        match (self.first.get(message), self.first.get(message + 1)) {
            (Some(start), Some(end)) => *start..*end,
            _ => 0..0,
        }
    }
}

/// Appends a number in decimal digits.
fn push_number(number: usize, out: &mut String) {
    if number >= 10 {
        push_number(number / 10, out);
    }
    // One digit.
    out.push(char::from(b'0' + (number % 10) as u8));
}

/// An opened `.tgm` file.
#[derive(Debug)]
pub struct TensogramContainer {
    catalog: Arc<MessageCatalog>,
    entries: OnceLock<MessageArrays>,
    attributes: Attributes,
    history: Vec<HistoryRow>,
}

impl TensogramContainer {
    pub(crate) fn new(catalog: MessageCatalog) -> Result<Self> {
        let (mut attributes, mut history) = (Attributes::new(), Vec::new());
        if catalog.len() == 1 {
            match catalog.metadata(0) {
                Ok(metadata) => (attributes, history) = extra(&metadata),
                Err(error) if matches!(error.kind(), ErrorKind::Limit { .. }) => return Err(error),
                // Reading an array reports the damage.
                Err(_) => {}
            }
        }
        Ok(Self { catalog: Arc::new(catalog), entries: OnceLock::new(), attributes, history })
    }

    /// Returns the arrays. Counting them parses the frame headers of every message.
    fn entries(&self) -> &MessageArrays {
        self.entries.get_or_init(|| MessageArrays::count(&self.catalog))
    }

    fn names(&self, arrays: impl Iterator<Item = usize>) -> Vec<String> {
        arrays.map(|i| self.entries().name(i).to_owned()).collect()
    }

    /// Returns the arrays whose metadata has the name.
    fn named(&self, name: &str) -> Result<Vec<usize>> {
        let mut found = Vec::new();
        for message in 0..self.catalog.len() {
            self.catalog.cancel.check()?;
            let arrays = self.entries().of_message(message);
            if arrays.is_empty() {
                continue;
            }
            let Ok(metadata) = self.catalog.metadata(message) else { continue };
            let named = metadata.base.iter().take(arrays.len()).enumerate();
            found.extend(
                named
                    .filter(|(_, base)| object_name::in_base(base) == Some(name))
                    .map(|(i, _)| arrays.start + i),
            );
        }
        Ok(found)
    }
}

/// Attributes of a message, and its history.
fn extra(metadata: &Metadata) -> (Attributes, Vec<HistoryRow>) {
    let mut attributes = values(metadata.extra.iter());
    let Some(history) = attributes.get(HISTORY).and_then(history_rows) else {
        return (attributes, Vec::new());
    };
    attributes.shift_remove(HISTORY);
    (attributes, history)
}

/// Metadata key of the history.
pub(crate) const HISTORY: &str = "history";

/// Parses history rows as stored by this crate's writer; empty if they have another form.
fn history_rows(value: &Value) -> Option<Vec<HistoryRow>> {
    let Value::List(rows) = value else { return None };
    let text = |map: &Attributes, key: &str| match map.get(key) {
        None => Some(String::new()),
        Some(Value::Text(text)) => Some(text.clone()),
        Some(_) => None,
    };
    let texts = |map: &Attributes, key: &str| -> Option<BTreeMap<String, String>> {
        match map.get(key) {
            None => Some(BTreeMap::new()),
            Some(Value::Map(map)) => map.keys().map(|key| Some((key.clone(), text(map, key)?))).collect(),
            Some(_) => None,
        }
    };
    rows.iter()
        .map(|row| {
            let Value::Map(map) = row else { return None };
            let parents = match map.get("parents") {
                None => Vec::new(),
                Some(Value::List(parents)) => parents
                    .iter()
                    .map(|parent| if let Value::Text(text) = parent { Some(text.clone()) } else { None })
                    .collect::<Option<_>>()?,
                Some(_) => return None,
            };
            map.get("op")?;
            Some(HistoryRow {
                op: text(map, "op")?,
                source: text(map, "source")?,
                at: text(map, "at")?,
                parents,
                params: texts(map, "params")?,
                extra: texts(map, "extra")?,
            })
        })
        .collect()
}

/// Converts metadata to attributes, without reserved keys.
pub(crate) fn values<'a>(map: impl Iterator<Item = (&'a String, &'a CborItem)>) -> Attributes {
    map.filter(|(key, _)| *key != RESERVED).map(|(key, item)| (key.clone(), item.to_value())).collect()
}

impl ContainerSource for TensogramContainer {
    fn format(&self) -> &'static str {
        crate::ID
    }

    fn store(&self) -> &Arc<dyn Store> {
        &self.catalog.source.store
    }

    fn len(&self) -> usize {
        self.entries().len()
    }

    fn name(&self, index: usize) -> &str {
        self.entries().name(index)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        let Some((message, object)) = self.entries().locate(index) else {
            return Err(Error::not_found("array", index.to_string(), self.names(0..self.len())));
        };
        let name = self.name(index);
        let array = TensogramArray::open(&self.catalog, message, object, name);
        Ok(Arc::new(array.map_err(|e| e.in_array(name))?))
    }

    /// Resolves `m/o`, or a name that is unique among the objects' metadata.
    fn find(&self, name: &str) -> Result<usize> {
        if let Some(found) = self.entries().find(name) {
            return Ok(found);
        }
        match self.named(name)?[..] {
            [one] => Ok(one),
            [] => Err(Error::not_found("array", name, self.names(0..self.len()))),
            ref several => Err(ErrorKind::NotFound {
                what: "single array".to_owned(),
                name: name.to_owned(),
                candidates: self.names(several.iter().copied()),
            }
            .into()),
        }
    }

    /// The objects of the same message.
    fn companions(&self, index: usize) -> Range<usize> {
        self.entries().locate(index).map_or(0..0, |(message, _)| self.entries().of_message(message))
    }

    /// The object of that name in the same message.
    fn sibling(&self, index: usize, name: &str) -> Option<usize> {
        let (message, object) = self.entries().locate(index)?;
        let metadata = self.catalog.metadata(message).ok()?;
        let arrays = self.entries().of_message(message);
        let names: Vec<Option<&str>> =
            metadata.base.iter().take(arrays.len()).map(object_name::in_base).collect();
        let mut group = names.get(object).copied().flatten().unwrap_or("");
        loop {
            let outer = group.rsplit_once('/').map(|(outer, _)| outer);
            let wanted = outer.map_or_else(|| name.to_owned(), |outer| format!("{outer}/{name}"));
            if let Some(found) = names.iter().position(|known| *known == Some(wanted.as_str())) {
                return Some(arrays.start + found);
            }
            group = outer?;
        }
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn history(&self) -> &[HistoryRow] {
        &self.history
    }

    /// A part is a message.
    fn parts(&self) -> usize {
        self.catalog.len()
    }

    fn part(&self, number: usize) -> Result<ContainerPart> {
        let metadata = self.catalog.metadata(number)?;
        let (attributes, history) = extra(&metadata);
        let arrays = self.entries().of_message(number);
        Ok(ContainerPart { arrays, attributes, history, ..ContainerPart::default() })
    }

    fn details(&self) -> serde_json::Value {
        let json_map = |map: &Map| -> serde_json::Value {
            serde_json::Value::Object(map.iter().map(|(key, item)| (key.clone(), item.to_json())).collect())
        };
        let messages = (0..self.catalog.len().min(LISTED)).map(|number| {
            let message = match self.catalog.message(number) {
                Ok(message) => message,
                Err(error) => return json!({"error": error.to_string()}),
            };
            let mut shown = json!({
                "offset": message.offset,
                "length": message.len,
                "flags": message.preamble.flags,
                "streamed": message.preamble.total_length == 0,
                "objects": message.object_count(),
            });
            match self.catalog.metadata(number) {
                Ok(metadata) => {
                    shown["extra"] = json_map(&metadata.extra);
                    shown["reserved"] = json_map(&metadata.reserved);
                }
                Err(error) => shown["error"] = error.to_string().into(),
            }
            if let Some(fault) = message.fault() {
                shown["error"] = fault.detail.as_str().into();
            }
            shown
        });
        let skipped = self.catalog.skipped.iter().map(|skipped| {
            json!({"offset": skipped.offset, "length": skipped.len, "check": skipped.check, "detail": skipped.detail})
        });
        json!({
            "file_len": self.catalog.source.len,
            "version": crate::wire::preamble::VERSION,
            "message_count": self.catalog.len(),
            "messages": messages.collect::<Vec<_>>(),
            "skipped": skipped.collect::<Vec<_>>(),
        })
    }
}
