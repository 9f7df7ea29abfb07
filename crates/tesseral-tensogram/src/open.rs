//! An opened file.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use serde_json::json;
use tesseral_core::{Attributes, Error, ErrorKind, HistoryRow, Limits, Result, Value};
use tesseral_format::{ArraySource, Container, OpenOptions};
use tesseral_store::Store;

use crate::array::TensogramArray;
use crate::message::Message;
use crate::read::Reader;
use crate::scan::{Skipped, Span, scan};
use crate::source::Source;
use crate::wire::cbor::{Item, Map};
use crate::wire::metadata::{Metadata, RESERVED};

/// What the arrays of one file share. Where messages are is known; what is in them is looked up when asked for.
#[derive(Debug)]
pub(crate) struct Catalog {
    pub source: Source,
    messages: Vec<Slot>,
    pub skipped: Vec<Skipped>,
    pub limits: Limits,
    pub digests: bool,
}

/// A message, as far as it was looked at.
#[derive(Debug)]
struct Slot {
    span: Span,
    /// It has an end.
    whole: bool,
    /// What is whole of it is wanted, whatever else is damaged.
    lenient: bool,
    message: OnceLock<Arc<Message>>,
    metadata: OnceLock<Arc<Metadata>>,
}

impl Catalog {
    /// Finds the messages of a file. With `torn`, also those that are cut or damaged, as far as they are whole.
    pub(crate) fn load(store: &Arc<dyn Store>, options: &OpenOptions, torn: bool) -> Result<Self> {
        let source = Source::open(store)?;
        let found = scan(&source)?;
        let slot = |span: Span, whole| {
            let (message, metadata) = (OnceLock::new(), OnceLock::new());
            Slot { span, whole, lenient: torn, message, metadata }
        };
        let mut messages: Vec<Slot> = found.messages.iter().map(|span| slot(*span, true)).collect();
        if torn {
            let begun = found.skipped.iter().filter(|skipped| skipped.begun);
            messages.extend(begun.map(|s| slot(Span { offset: s.offset, len: s.len }, false)));
            messages.sort_by_key(|slot| slot.span.offset);
        }
        let (limits, digests) = (options.limits, options.digests);
        Ok(Self { source, messages, skipped: found.skipped, limits, digests })
    }

    /// Number of messages.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    fn slot(&self, number: usize) -> Result<&Slot> {
        let missing = || Error::not_found("message", number.to_string(), Vec::new());
        self.messages.get(number).ok_or_else(missing)
    }

    /// Where a message is.
    pub(crate) fn span(&self, number: usize) -> Result<Span> {
        Ok(self.slot(number)?.span)
    }

    /// A message and its frames, walked when first asked for.
    pub(crate) fn message(&self, number: usize) -> Result<Arc<Message>> {
        self.source.check()?;
        let slot = self.slot(number)?;
        if let Some(message) = slot.message.get() {
            return Ok(Arc::clone(message));
        }
        let Span { offset, len } = slot.span;
        let mut message = Message::walk(&self.source, offset, len, !slot.whole)?;
        if slot.lenient {
            // What was found before the damage is whole.
            message.torn |= message.fault().is_some();
            message.lost = message.faults.iter().filter(|fault| !fault.harmless).cloned().collect();
            message.faults.retain(|fault| fault.harmless);
        }
        Ok(Arc::clone(slot.message.get_or_init(|| Arc::new(message))))
    }

    /// Why nothing of the file can be read, if so. Looks no further than the first message that can.
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
            match self.message(number)?.fault() {
                None => return Ok(None),
                Some(fault) => refused = refused.or_else(|| Some(fault.error(object))),
            }
        }
        Ok(refused)
    }

    /// Reads frames of the file.
    pub(crate) fn reader(&self) -> Reader<'_, Source> {
        Reader { input: &self.source, limits: self.limits, digests: self.digests }
    }

    /// The metadata of a message, read when first asked for.
    pub(crate) fn metadata(&self, number: usize) -> Result<Arc<Metadata>> {
        let slot = self.slot(number)?;
        if let Some(metadata) = slot.metadata.get() {
            return Ok(Arc::clone(metadata));
        }
        let metadata = Arc::new(self.reader().metadata(&*self.message(number)?)?);
        Ok(Arc::clone(slot.metadata.get_or_init(|| metadata)))
    }
}

/// One array: its message, its number in it, its name.
#[derive(Debug)]
struct Entry {
    message: usize,
    object: usize,
    name: String,
}

/// An opened `.tgm` file.
#[derive(Debug)]
pub struct TensogramContainer {
    catalog: Arc<Catalog>,
    entries: OnceLock<Vec<Entry>>,
    attributes: Attributes,
    history: Vec<HistoryRow>,
}

impl TensogramContainer {
    pub(crate) fn new(catalog: Catalog) -> Self {
        let mut attributes = Attributes::new();
        let mut history = Vec::new();
        if catalog.len() == 1
            && let Ok(metadata) = catalog.metadata(0)
        {
            attributes = values(metadata.extra.iter());
            if let Some(rows) = attributes.get(HISTORY).and_then(history_rows) {
                attributes.remove(HISTORY);
                history = rows;
            }
        }
        Self { catalog: Arc::new(catalog), entries: OnceLock::new(), attributes, history }
    }

    /// The arrays. Counting them walks the frames of every message.
    fn entries(&self) -> &[Entry] {
        self.entries.get_or_init(|| {
            let mut entries = Vec::new();
            for message in 0..self.catalog.len() {
                let objects = match self.catalog.message(message) {
                    // A damaged message in which no object was found still shows, so that reading it says why it fails.
                    Ok(found) => found.objects().count().max(usize::from(found.fault().is_some())),
                    Err(_) => 1,
                };
                let entry = |object| Entry { message, object, name: format!("{message}/{object}") };
                entries.extend((0..objects).map(entry));
            }
            entries
        })
    }

    /// Arrays whose own keys name them so.
    fn named(&self, name: &str) -> Vec<usize> {
        let matches = |entry: &&Entry| {
            let Ok(metadata) = self.catalog.metadata(entry.message) else { return false };
            metadata.base.get(entry.object).and_then(name_of) == Some(name)
        };
        let numbered = self.entries().iter().enumerate();
        numbered.filter(|(_, entry)| matches(entry)).map(|(i, _)| i).collect()
    }
}

/// The key of the message's own keys that holds how it came to be.
pub(crate) const HISTORY: &str = "history";

/// Reads rows of history as our writer stores them; none when they are made otherwise.
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

/// The name that an object's own keys give it.
fn name_of(base: &Map) -> Option<&str> {
    let in_mars = || match base.get("mars") {
        Some(Item::Map(pairs)) => {
            pairs.iter().find(|(key, _)| key.as_text() == Some("param")).map(|(_, v)| v)
        }
        _ => None,
    };
    base.get("name").or_else(in_mars).and_then(Item::as_text)
}

/// Keys as attributes, without those of the library.
pub(crate) fn values<'a>(map: impl Iterator<Item = (&'a String, &'a Item)>) -> Attributes {
    map.filter(|(key, _)| *key != RESERVED).map(|(key, item)| (key.clone(), item.to_value())).collect()
}

impl Container for TensogramContainer {
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
        self.entries().get(index).map_or("", |entry| &entry.name)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        let Some(entry) = self.entries().get(index) else {
            let names = self.entries().iter().map(|entry| entry.name.clone()).collect();
            return Err(Error::not_found("array", index.to_string(), names));
        };
        let array = TensogramArray::open(&self.catalog, entry.message, entry.object, &entry.name);
        Ok(Arc::new(array.map_err(|e| e.in_array(&entry.name))?))
    }

    /// `m/o`, or the name that the keys of exactly one object give it.
    fn find(&self, name: &str) -> Result<usize> {
        if let Some(found) = self.entries().iter().position(|entry| entry.name == name) {
            return Ok(found);
        }
        let names = |all: &[usize]| all.iter().map(|i| self.entries()[*i].name.clone()).collect();
        match self.named(name)[..] {
            [one] => Ok(one),
            [] => Err(Error::not_found("array", name, names(&(0..self.len()).collect::<Vec<_>>()))),
            ref several => Err(ErrorKind::NotFound {
                what: "single array".to_owned(),
                name: name.to_owned(),
                candidates: names(several),
            }
            .into()),
        }
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn history(&self) -> &[HistoryRow] {
        &self.history
    }

    fn details(&self) -> serde_json::Value {
        let json_map = |map: &Map| -> serde_json::Value {
            serde_json::Value::Object(map.iter().map(|(key, item)| (key.clone(), item.to_json())).collect())
        };
        let messages = (0..self.catalog.len()).map(|number| {
            let message = match self.catalog.message(number) {
                Ok(message) => message,
                Err(error) => return json!({"error": error.to_string()}),
            };
            let mut shown = json!({
                "offset": message.offset,
                "length": message.len,
                "flags": message.preamble.flags,
                "streamed": message.preamble.total_length == 0,
                "objects": message.objects().count(),
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
            "messages": messages.collect::<Vec<_>>(),
            "skipped": skipped.collect::<Vec<_>>(),
        })
    }
}
