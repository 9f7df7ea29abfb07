//! Files that are messages, one after the other: what people do to them without decoding a payload.

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

use tesseral_core::{Attributes, Error, Finding, Result, Value};
use tesseral_store::{Access, AppendFile, LocalStore, Store};

use crate::OpenOptions;

/// A format whose files are messages.
pub trait MessageFormat: Debug + Send + Sync {
    /// Opens the messages of a file. With `torn`, also what is whole of messages that are cut or damaged.
    ///
    /// # Errors
    /// As [`Format::open`](crate::Format::open).
    fn open_messages(
        &self,
        store: Arc<dyn Store>,
        options: &OpenOptions,
        torn: bool,
    ) -> Result<Box<dyn MessageFile>>;

    /// Writes one message with the objects of all messages of all files, copied as they are stored.
    ///
    /// # Errors
    /// `InvalidRequest` when keys contradict one another and must not; `Corrupt`; `Io`.
    fn merge(
        &self,
        files: &[Arc<dyn Store>],
        options: &OpenOptions,
        conflict: Conflict,
        put: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<usize>;

    /// The truncated message that a file ends with, if it does. Costs the same whatever the number of messages, unless there is one.
    ///
    /// # Errors
    /// `Io`, `NotFound`.
    fn truncated_tail(&self, store: &Arc<dyn Store>, options: &OpenOptions) -> Result<Option<TruncatedTail>>;
}

/// A truncated message at the end of a file, as a writer leaves it that was stopped midway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TruncatedTail {
    /// Where it begins: the end of what readers see.
    pub offset: u64,
    /// Bytes of it.
    pub len: u64,
    /// What is missing.
    pub detail: String,
}

/// Opens a local file to append messages to; creates it if there is none. A truncated message at its end is removed, and returned so that
/// it can be reported. Bytes that are no truncated message stay, and messages follow them.
///
/// # Errors
/// As [`AppendFile::open`] and [`AppendFile::truncate`]; what reading the end of the file meets.
pub fn append_messages(
    format: &dyn MessageFormat,
    path: &Path,
    options: &OpenOptions,
) -> Result<(AppendFile, Option<TruncatedTail>)> {
    let mut file = AppendFile::open(path, &|| options.cancel.check())?;
    if file.is_empty() {
        return Ok((file, None));
    }
    let store: Arc<dyn Store> = Arc::new(LocalStore::new(path, Access::Read));
    let tail = format.truncated_tail(&store, options)?;
    if let Some(tail) = &tail {
        file.truncate(tail.offset)?;
    }
    Ok((file, tail))
}

/// Which value counts when messages that are merged give one key several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Conflict {
    /// The first.
    #[default]
    First,
    /// The last.
    Last,
    /// None: different values are an error.
    Refuse,
}

/// The messages of a file.
pub trait MessageFile: Debug + Send + Sync {
    /// Number of messages.
    fn len(&self) -> usize;

    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What belongs to no message, or is damaged.
    fn findings(&self) -> Vec<Finding>;

    /// What a message says.
    ///
    /// # Errors
    /// `NotFound` past the end; what reading its metadata meets.
    fn message(&self, number: usize) -> Result<MessageInfo>;

    /// Objects of a message whose digest is wrong.
    ///
    /// # Errors
    /// `NotFound` past the end; `Io`.
    fn damaged(&self, number: usize) -> Result<Vec<usize>>;

    /// Writes a message, changed as told. Objects are copied as they are stored; lists of them and digests are made anew.
    ///
    /// # Errors
    /// `InvalidRequest` for a change that makes no sense; what `put` returns; `Io`.
    fn write(
        &self,
        number: usize,
        change: &MessageChange<'_>,
        put: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<()>;
}

/// What to change in a message.
#[derive(Clone, Copy, Debug)]
pub enum MessageChange<'a> {
    /// Nothing: byte for byte.
    None,
    /// Keys, each by the path to it.
    Set(&'a [(Vec<String>, Value)]),
    /// The place of its lists: before the objects, so that they can be found without reading on.
    ListsFirst,
    /// Its objects: only these stay.
    Objects(&'a [usize]),
}

/// What a message says.
#[derive(Clone, Debug, Default)]
pub struct MessageInfo {
    /// Where it begins in the file.
    pub offset: u64,
    /// Its length.
    pub length: u64,
    /// The version of the format it is written in.
    pub version: u64,
    /// It was cut or damaged, and this is what is whole of it.
    pub torn: bool,
    /// Keys of each object, without those of the library.
    pub base: Vec<Attributes>,
    /// Keys of the message.
    pub extra: Attributes,
    /// Keys of the library that wrote it.
    pub reserved: Attributes,
    /// What each object is, in the format's own words.
    pub objects: Vec<Attributes>,
}

impl MessageInfo {
    /// The value of a dotted key: the first object's that has it, else the message's, else that of the first object's own
    /// description. `version` is the format's; `extra.…` asks the message alone.
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
        let maps = self.base.iter().chain([&self.extra]).chain(&self.objects);
        maps.filter_map(|map| descend(map, &path)).next().cloned()
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
pub struct Where {
    key: String,
    equal: bool,
    values: Vec<String>,
}

impl std::str::FromStr for Where {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (key, values, equal) = match (text.split_once("!="), text.split_once('=')) {
            (Some((key, values)), _) => (key, values, false),
            (None, Some((key, values))) => (key, values, true),
            (None, None) => return Err(Error::invalid(format!("{text:?} is not KEY=VALUE or KEY!=VALUE"))),
        };
        let key = key.trim().to_owned();
        if key.is_empty() {
            return Err(Error::invalid(format!("{text:?} names no key")));
        }
        Ok(Self { key, equal, values: values.split('/').map(|v| v.trim().to_owned()).collect() })
    }
}

impl Where {
    /// Whether a message is meant. A key that is missing equals nothing.
    pub fn matches(&self, message: &MessageInfo) -> bool {
        match message.lookup(&self.key) {
            Some(value) => self.values.iter().any(|wanted| is(&value, wanted)) == self.equal,
            None => !self.equal,
        }
    }
}

/// Whether a text means a value; floats may be written in any way.
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
            base: vec![Attributes::new(), Attributes::from([("mars".to_owned(), Value::Map(mars))])],
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
        let holds = |text: &str| text.parse::<Where>().unwrap().matches(&info);
        assert!(holds("mars.param=2t") && holds("mars.param=msl/2t") && holds("mars.step=6"));
        assert!(!holds("mars.param=msl") && !holds("mars.param!=2t/msl") && holds("mars.param!=msl"));
        assert!(!holds("nothing=1") && holds("nothing!=1"));
        assert!("mars.param".parse::<Where>().is_err() && "=2".parse::<Where>().is_err());
    }
}
