//! Files and streams: the schema, and where the record batches are.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use arrow_ipc as ipc;
use bytes::Bytes;
use tesseral_core::{Error, HistoryRow, Result, alloc};
use tesseral_format::OpenOptions;
use tesseral_store::{Store, StoreExt};

use crate::batch::{MessageAt, StoredBatch, dictionary_shape, shape};
use crate::schema::ArrowColumns;

/// First and last bytes of a file.
pub(crate) const MAGIC: &[u8; 6] = b"ARROW1";
/// Bytes of the magic at the beginning, with padding.
pub(crate) const HEAD: u64 = 8;
/// Bytes after the footer: its length, and the magic.
const TAIL: u64 = 10;
/// Bytes that are read from the end at first: most footers are not longer.
const GUESS: u64 = 64 << 10;
/// Marker before the length of metadata.
pub(crate) const CONTINUATION: [u8; 4] = [0xff; 4];
/// Bytes before metadata: the continuation and their length.
pub(crate) const PREFIX: u64 = 8;

/// A parsed file.
#[derive(Debug)]
pub(crate) struct ArrowTable {
    pub(crate) columns: ArrowColumns,
    /// Whether each column is nullable.
    pub(crate) nullable: Vec<bool>,
    /// Record batches that have rows, and these.
    pub(crate) batches: Vec<StoredBatch>,
    pub(crate) groups: Vec<Range<u64>>,
    pub(crate) rows: u64,
    pub(crate) dictionaries: HashMap<i64, Vec<StoredBatch>>,
    pub(crate) history: Vec<HistoryRow>,
    pub(crate) metadata_bytes: u64,
    /// Whether the file is a stream.
    pub(crate) stream: bool,
}

/// Reading of the messages of a file.
struct TableReader<'a> {
    store: &'a Arc<dyn Store>,
    options: &'a OpenOptions,
    object: String,
    len: u64,
    metadata: u64,
    batches: Vec<StoredBatch>,
    dictionaries: HashMap<i64, Vec<StoredBatch>>,
}

/// The metadata after their length, which has no continuation marker before it in older files.
fn behind_length(bytes: &[u8]) -> Option<&[u8]> {
    let bytes = bytes.strip_prefix(&CONTINUATION).unwrap_or(bytes);
    let (len, rest) = bytes.split_first_chunk::<4>()?;
    rest.get(..usize::try_from(i32::from_le_bytes(*len)).ok()?)
}

/// Whether bytes begin like a stream: with a schema.
pub(crate) fn is_stream(head: &[u8]) -> bool {
    let message = head.starts_with(&CONTINUATION).then(|| behind_length(head)).flatten();
    let message = message.and_then(|bytes| ipc::root_as_message(bytes).ok());
    message.is_some_and(|message| message.header_type() == ipc::MessageHeader::Schema)
}

impl TableReader<'_> {
    fn corrupt(&self, at: u64, detail: impl Into<String>) -> Error {
        Error::corrupt("metadata", &self.object, at, detail)
    }

    fn count(&mut self, bytes: u64) -> Result<()> {
        self.metadata = self.metadata.saturating_add(bytes);
        self.options.limits.check_metadata(self.metadata)
    }

    /// The footer of a file, and its offset.
    fn footer(&mut self) -> Result<(Bytes, u64)> {
        if self.len < HEAD + TAIL {
            return Err(Error::truncated("footer", &self.object, 0, HEAD + TAIL, self.len));
        }
        let guess = self.len.min(GUESS);
        let end = self.store.read("", self.len - guess..self.len)?;
        let (rest, tail) = end.split_at_checked(end.len().saturating_sub(TAIL as usize)).unwrap_or_default();
        let size = tail.split_first_chunk::<4>().filter(|(_, magic)| magic == MAGIC);
        let Some((size, _)) = size else {
            let detail = "the file does not end with ARROW1: it is truncated";
            return Err(self.corrupt(self.len - MAGIC.len() as u64, detail));
        };
        let size = u64::from(u32::from_le_bytes(*size));
        self.count(size)?;
        let start = (self.len - TAIL).checked_sub(size).filter(|start| *start >= HEAD);
        let Some(start) = start else {
            let detail = format!("a footer of {size} bytes in a file of {}", self.len);
            return Err(self.corrupt(self.len - TAIL, detail));
        };
        let known = rest.len().checked_sub(size as usize);
        let footer = match known {
            Some(from) => end.slice(from..rest.len()),
            None => self.store.read("", start..self.len - TAIL)?,
        };
        Ok((footer, start))
    }

    /// Locations of the messages of blocks, checked against the file.
    fn blocks<'b>(&mut self, blocks: impl Iterator<Item = &'b ipc::Block>) -> Result<Vec<MessageAt>> {
        let mut messages = Vec::new();
        for block in blocks {
            let parts = (block.offset(), i64::from(block.metaDataLength()), block.bodyLength());
            let own = [parts.0, parts.1, parts.2].map(|part| u64::try_from(part).ok());
            let message = match own {
                [Some(offset), Some(metadata), Some(len)] => offset
                    .checked_add(metadata)
                    .filter(|body| body.checked_add(len).is_some_and(|end| end <= self.len))
                    .map(|body| MessageAt { offset, body, len }),
                _ => None,
            };
            let message = message.ok_or_else(|| {
                let detail =
                    format!("a block of {} and {} bytes at {} is not in the file", parts.1, parts.2, parts.0);
                self.corrupt(self.len, detail)
            })?;
            self.count(message.body - message.offset)?;
            messages.push(message);
        }
        Ok(messages)
    }

    /// Reads a file by its footer.
    fn file(mut self) -> Result<ArrowTable> {
        let (footer, start) = self.footer()?;
        let invalid = |e: &dyn ToString| Error::corrupt("footer", &self.object, start, e.to_string());
        let footer = ipc::root_as_footer(&footer).map_err(|e| invalid(&e))?;
        let schema = footer.schema().ok_or_else(|| invalid(&"the schema is missing"))?;
        let columns = ArrowColumns::new(&schema, &self.object, &self.options.limits)?;
        let dictionaries = self.blocks(footer.dictionaries().into_iter().flatten())?;
        let batches = self.blocks(footer.recordBatches().into_iter().flatten())?;
        let all: Vec<MessageAt> = dictionaries.into_iter().chain(batches).collect();
        let ranges: Vec<Range<u64>> = all.iter().map(|at| at.offset..at.body).collect();
        let metadata = self.store.read_many("", &ranges)?;
        for (at, bytes) in all.into_iter().zip(metadata) {
            let Some(message) = behind_length(&bytes) else {
                return Err(self.corrupt(at.offset, "the length of a message is not that of its block"));
            };
            self.message(&columns, message, at)?;
        }
        self.finish(columns, false)
    }

    /// Reads a stream message by message.
    fn stream(mut self) -> Result<ArrowTable> {
        let (mut at, mut columns) = (0, None);
        while let Some((bytes, body)) = self.next(at)? {
            self.options.cancel.check()?;
            let corrupt = |e: &dyn ToString| Error::corrupt("message", &self.object, at, e.to_string());
            let message = ipc::root_as_message(&bytes).map_err(|e| corrupt(&e))?;
            let len = u64::try_from(message.bodyLength()).ok();
            let end = len.and_then(|len| body.checked_add(len));
            let (Some(len), Some(end)) = (len, end) else {
                return Err(corrupt(&"a body of negative length"));
            };
            if end > self.len {
                return Err(Error::truncated("record batch", &self.object, at, end, self.len));
            }
            match (&columns, message.header_as_schema()) {
                (None, Some(schema)) => {
                    columns = Some(ArrowColumns::new(&schema, &self.object, &self.options.limits)?)
                }
                (Some(columns), None) => {
                    self.message(columns, &bytes, MessageAt { offset: at, body, len })?
                }
                _ => return Err(corrupt(&"a stream has one schema, before everything else")),
            }
            at = end;
        }
        let columns = columns.ok_or_else(|| self.corrupt(0, "the stream has no schema"))?;
        self.finish(columns, true)
    }

    /// The metadata of the message at an offset, and where its body begins; `None` at the end of the stream.
    fn next(&mut self, at: u64) -> Result<Option<(Bytes, u64)>> {
        if at == self.len {
            return Ok(None);
        }
        let Some(start) = at.checked_add(PREFIX).filter(|start| *start <= self.len) else {
            return Err(Error::truncated("message", &self.object, at, at.saturating_add(PREFIX), self.len));
        };
        let prefix = self.store.read("", at..start)?;
        let len =
            prefix.strip_prefix(&CONTINUATION).and_then(|len| len.try_into().ok()).map(i32::from_le_bytes);
        let Some(len) = len.and_then(|len| u64::try_from(len).ok()) else {
            return Err(self.corrupt(at, "no message begins here"));
        };
        if len == 0 {
            return Ok(None);
        }
        self.count(len)?;
        let body = start + len;
        if body > self.len {
            return Err(Error::truncated("message", &self.object, at, body, self.len));
        }
        Ok(Some((self.store.read("", start..body)?, body)))
    }

    /// Adds a record batch or a part of a dictionary.
    fn message(&mut self, columns: &ArrowColumns, bytes: &[u8], at: MessageAt) -> Result<()> {
        let corrupt = |e: &dyn ToString| Error::corrupt("message", &self.object, at.offset, e.to_string());
        let message = ipc::root_as_message(bytes).map_err(|e| corrupt(&e))?;
        if let Some(own) = message.header_as_record_batch() {
            self.batches.push(StoredBatch::new(&own, at, shape(columns), &self.object)?);
            return Ok(());
        }
        let Some(own) = message.header_as_dictionary_batch() else {
            return Err(corrupt(&"expected a record batch or a dictionary"));
        };
        let of_dictionary = columns.columns.iter().find(|c| c.indexed.is_some_and(|i| i.id == own.id()));
        // It can be that of a column that is not supported.
        let Some(column) = of_dictionary else { return Ok(()) };
        let data = own.data().ok_or_else(|| corrupt(&"a dictionary without values"))?;
        let batch = StoredBatch::new(&data, at, dictionary_shape(column), &self.object)?;
        let parts = self.dictionaries.entry(own.id()).or_default();
        if !own.isDelta() && !parts.is_empty() {
            return Err(Error::unsupported("Arrow streams that replace a dictionary"));
        }
        parts.push(batch);
        Ok(())
    }

    fn finish(self, mut columns: ArrowColumns, stream: bool) -> Result<ArrowTable> {
        let (mut groups, mut rows) = (Vec::new(), 0_u64);
        let batches: Vec<StoredBatch> = self.batches.into_iter().filter(|batch| batch.rows > 0).collect();
        alloc::reserve("record batches", &mut groups, batches.len())?;
        for batch in &batches {
            let end = rows.checked_add(batch.rows).filter(|end| i64::try_from(*end).is_ok());
            let end = end.ok_or_else(|| {
                Error::corrupt("record batch", &self.object, None, "the batches have more than 2^63 rows")
            })?;
            groups.push(rows..end);
            rows = end;
        }
        let mut supported = Vec::new();
        for column in std::mem::take(&mut columns.columns) {
            match batches.iter().find_map(|batch| batch.check(&column).err()) {
                None => supported.push(column),
                Some(what) => columns.unread.push(format!("{}: {what}", column.name)),
            }
        }
        columns.columns = supported;
        let nullable = |column: &crate::schema::SchemaColumn| {
            let places = || column.groups.iter().chain([&column.place]);
            let of_dictionary = column.indexed.and_then(|own| self.dictionaries.get(&own.id));
            let first = crate::schema::Place::default();
            let nulls = batches.iter().any(|batch| !places().all(|place| batch.is_valid(*place)))
                || of_dictionary.into_iter().flatten().any(|batch| !batch.is_valid(first));
            match columns.document.property(&column.name, "nullable").as_bool() {
                // Times that are none are null in other programs only.
                Some(false) => nulls && !column.kind.has_nat(),
                Some(true) => true,
                None => nulls,
            }
        };
        let nullable = columns.columns.iter().map(nullable).collect();
        let history = columns.document.history();
        Ok(ArrowTable {
            nullable,
            batches,
            groups,
            rows,
            dictionaries: self.dictionaries,
            history,
            metadata_bytes: self.metadata,
            stream,
            columns,
        })
    }
}

impl ArrowTable {
    /// Reads the metadata of a file or stream.
    pub(crate) fn read(store: &Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let (object, len) = (store.describe(""), store.len("")?);
        let head = store.read("", 0..len.min(HEAD))?;
        let opening = TableReader {
            store,
            options,
            object,
            len,
            metadata: 0,
            batches: Vec::new(),
            dictionaries: HashMap::new(),
        };
        if head.starts_with(MAGIC) { opening.file() } else { opening.stream() }
    }
}
