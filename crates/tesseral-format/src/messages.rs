//! Files of messages, and operations on them that do not decode payloads.

use std::fmt::Debug;
use std::sync::Arc;

use tesseral_core::{Attributes, Error, Finding, Result, Value};
use tesseral_store::{
    AppendFile, AppendObject, AppendTarget, CLAIM, Location, ReadMode, StorageOptions, Store,
};

use crate::OpenOptions;

/// A format whose files are sequences of messages.
///
/// Arrays are identified by number; their names are optional metadata. Files grow by appended messages while they are read;
/// existing bytes do not change.
pub trait MessageFormat: Debug + Send + Sync {
    /// Opens the messages of a file. With `truncated`, includes the intact part of truncated or damaged messages.
    ///
    /// # Errors
    /// As [`Format::open`](crate::Format::open).
    fn open_messages(
        &self,
        store: Arc<dyn Store>,
        options: &OpenOptions,
        truncated: bool,
    ) -> Result<Box<dyn MessageFile>>;

    /// Writes one message with the objects of all messages of all files, copied as stored.
    ///
    /// # Errors
    /// `InvalidRequest` for conflicting keys; `Corrupt`; `Io`.
    fn merge(
        &self,
        files: &[Arc<dyn Store>],
        options: &OpenOptions,
        conflict: Conflict,
        put: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<usize>;

    /// Returns the truncated message at the end of a file, if any. The cost does not depend on the number of intact messages.
    ///
    /// # Errors
    /// `Io`, `NotFound`.
    fn truncated_tail(&self, store: &Arc<dyn Store>, options: &OpenOptions) -> Result<Option<TruncatedTail>>;
}

/// A truncated message at the end of a file, as left by an interrupted writer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruncatedTail {
    /// Offset of the message: the end of the intact messages.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Description of the missing part.
    pub detail: String,
}

/// Opens a file or an object for appending messages; creates it if it does not exist. Removes a truncated message from its end and
/// returns it for reporting. Other trailing bytes are kept.
///
/// # Errors
/// As [`AppendFile::open`], [`AppendObject::open`] and [`AppendTarget::truncate`]; errors of reading its end.
pub fn append_messages(
    format: &dyn MessageFormat,
    location: &Location,
    storage: &StorageOptions,
    options: &OpenOptions,
) -> Result<(Box<dyn AppendTarget>, Option<TruncatedTail>)> {
    let check = || options.cancel.check();
    let store_of = |location: &Location| {
        let store = location.store(ReadMode::Read, storage)?;
        Ok::<_, Error>(store.canceled_by(&options.cancel).unwrap_or(store))
    };
    let mut target: Box<dyn AppendTarget> = match location {
        Location::Path(path) => Box::new(AppendFile::open(path, &check)?),
        Location::Url(url) => {
            let claim = Location::Url(format!("{url}{CLAIM}"));
            Box::new(AppendObject::open(store_of(location)?, &|| store_of(&claim), &check)?)
        }
    };
    if target.is_empty() {
        return Ok((target, None));
    }
    let tail = format.truncated_tail(&store_of(location)?, options)?;
    if let Some(tail) = &tail {
        target.truncate(tail.offset)?;
    }
    Ok((target, tail))
}

/// Resolution of conflicting values of a key when messages are merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// Use the first value.
    #[default]
    First,
    /// Use the last value.
    Last,
    /// Return an error.
    Refuse,
}

/// The messages of a file.
pub trait MessageFile: Debug + Send + Sync {
    /// Number of messages.
    fn len(&self) -> usize;

    /// Returns whether there are no messages.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Findings on bytes outside messages and on damaged messages.
    fn findings(&self) -> Vec<Finding>;

    /// Returns the metadata of a message.
    ///
    /// # Errors
    /// `NotFound` if the index is out of bounds; errors of reading its metadata.
    fn message(&self, number: usize) -> Result<MessageInfo>;

    /// Indexes of objects with a digest mismatch.
    ///
    /// # Errors
    /// `NotFound` if the index is out of bounds; `Io`.
    fn damaged(&self, number: usize) -> Result<Vec<usize>>;

    /// Writes a message with a change. Objects are copied as stored; index and digests are rewritten.
    ///
    /// # Errors
    /// `InvalidRequest` for an invalid change; errors of `put`; `Io`.
    fn write(
        &self,
        number: usize,
        change: &MessageChange<'_>,
        put: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()>;
}

/// A change of a message.
#[derive(Clone, Copy, Debug)]
pub enum MessageChange<'a> {
    /// Copy unchanged.
    None,
    /// Set keys, each by its path.
    Set(&'a [(Vec<String>, Value)]),
    /// Move the index before the objects, so that readers find them without reading further.
    ListsFirst,
    /// Keep only these objects.
    Objects(&'a [usize]),
}

/// Metadata of a message.
#[derive(Clone, Debug, Default)]
pub struct MessageInfo {
    /// Offset of the message in the file.
    pub offset: u64,
    /// Length in bytes.
    pub length: u64,
    /// Format version of the message.
    pub version: u64,
    /// The message is truncated or damaged, and this is its intact part.
    pub truncated: bool,
    /// Keys of each object, without reserved ones.
    pub base: Vec<Attributes>,
    /// Keys of the message.
    pub extra: Attributes,
    /// Reserved keys, written by the library.
    pub reserved: Attributes,
    /// Descriptor of each object, in the format's terms.
    pub objects: Vec<Attributes>,
}

impl MessageInfo {
    /// Returns the value of a dotted key: of the first object that has it, else of the message, else of the first object's
    /// descriptor. `version` is the format version; `extra.…` refers to the message only.
    pub fn lookup(&self, key: &str) -> Option<Value> {
        if key == "version" {
            return Some(Value::UInt(self.version));
        }
        let path: Vec<&str> = key.split('.').collect();
        if let ["extra" | "_extra_", rest @ ..] = &path[..]
            && let Some(value) = descend(&self.extra, rest)
        {
            return Some(value.clone());
        }
        let mut maps = self.base.iter().chain([&self.extra]).chain(&self.objects);
        maps.find_map(|map| descend(map, &path)).cloned()
    }
}

fn descend<'a>(map: &'a Attributes, path: &[&str]) -> Option<&'a Value> {
    let (first, rest) = path.split_first()?;
    let value = map.get(*first)?;
    match (value, rest) {
        (value, []) => Some(value),
        (Value::Map(map), rest) => descend(map, rest),
        _ => None,
    }
}

/// A condition on a message: `key=v1/v2` or `key!=v1/v2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessagePredicate {
    key: String,
    equal: bool,
    values: Vec<String>,
}

impl std::str::FromStr for MessagePredicate {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (key, values, equal) = match (text.split_once("!="), text.split_once('=')) {
            (Some((key, values)), _) => (key, values, false),
            (None, Some((key, values))) => (key, values, true),
            (None, None) => {
                return Err(Error::invalid(format!(
                    "invalid condition {text:?}: expected KEY=VALUE or KEY!=VALUE"
                )));
            }
        };
        let key = key.trim().to_owned();
        if key.is_empty() {
            return Err(Error::invalid(format!("missing key in condition {text:?}")));
        }
        Ok(Self { key, equal, values: values.split('/').map(|v| v.trim().to_owned()).collect() })
    }
}

impl MessagePredicate {
    /// Returns whether a message matches. A missing key equals nothing.
    pub fn matches(&self, message: &MessageInfo) -> bool {
        match message.lookup(&self.key) {
            Some(value) => self.values.iter().any(|wanted| is(&value, wanted)) == self.equal,
            None => !self.equal,
        }
    }
}

/// Returns whether a text denotes a value; floats can be written in any notation.
fn is(value: &Value, text: &str) -> bool {
    match value {
        Value::Float(value) if text.parse::<f64>().is_ok_and(|number| number == *value) => true,
        value => value.to_string() == text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info() -> MessageInfo {
        let mars =
            Attributes::from([("param".to_owned(), Value::from("2t")), ("step".to_owned(), Value::Int(6))]);
        MessageInfo {
            version: 3,
            base: vec![Attributes::new(), Attributes::from([("mars".to_owned(), Value::Map(mars.into()))])],
            extra: Attributes::from([("centre".to_owned(), Value::from("x"))]),
            objects: vec![Attributes::from([("dtype".to_owned(), Value::from("int8"))])],
            ..MessageInfo::default()
        }
    }

    #[test]
    fn keys_are_looked_up_in_objects_then_in_the_message() {
        let info = info();
        let text = |key: &str| info.lookup(key).map(|v| v.to_string());
        assert_eq!(text("mars.param").as_deref(), Some("2t"));
        assert_eq!(text("mars.step").as_deref(), Some("6"));
        assert_eq!(text("centre"), text("extra.centre"));
        assert_eq!(text("version").as_deref(), Some("3"));
        assert_eq!(text("dtype").as_deref(), Some("int8"));
        assert_eq!((text("mars.nothing"), text(""), text("."), text("centre.x")), (None, None, None, None));
    }

    #[test]
    fn conditions_take_several_values_and_missing_keys() {
        let info = info();
        let holds = |text: &str| text.parse::<MessagePredicate>().unwrap().matches(&info);
        assert!(holds("mars.param=2t") && holds("mars.param=msl/2t") && holds("mars.step=6"));
        assert!(!holds("mars.param=msl") && !holds("mars.param!=2t/msl") && holds("mars.param!=msl"));
        assert!(!holds("nothing=1") && holds("nothing!=1"));
        assert!(
            "mars.param".parse::<MessagePredicate>().is_err() && "=2".parse::<MessagePredicate>().is_err()
        );
    }
}
