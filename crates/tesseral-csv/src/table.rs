//! The first pass over a file: columns with their types, rows, and where each chunk of rows begins.

use std::io::{self, Read};
use std::sync::Arc;

use csv::ByteRecord;
use tesseral_core::{Cancel, Error, Result, alloc};
use tesseral_format::OpenOptions;
use tesseral_store::{Store, StoreExt};

use crate::column::{CsvKind, Inference};
use crate::dialect;

/// Bytes that are read at a time.
const BLOCK: u64 = 4 << 20;
/// Approximate size of a chunk in bytes, the number of rows that its own is estimated from, and the most rows of one.
const CHUNK: u64 = 4 << 20;
const SAMPLE: u64 = 256;
const MOST_ROWS: u64 = 1 << 16;
/// The most columns.
const COLUMNS: usize = 1 << 15;
/// Bytes for the separator.
const HEAD: u64 = 64 << 10;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CsvColumn {
    pub(crate) name: String,
    pub(crate) kind: CsvKind,
    /// Whether values are missing.
    pub(crate) missing: bool,
}

/// The first row of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkStart {
    pub(crate) offset: u64,
    pub(crate) line: u64,
}

/// A table.
#[derive(Debug)]
pub(crate) struct CsvTable {
    pub(crate) separator: u8,
    pub(crate) header: bool,
    pub(crate) columns: Vec<CsvColumn>,
    pub(crate) rows: u64,
    /// Rows of every chunk but the last.
    pub(crate) chunk_rows: u64,
    pub(crate) starts: Vec<ChunkStart>,
    /// Length of the file in bytes.
    pub(crate) len: u64,
}

/// Bytes of a store in order.
struct StoreReader {
    store: Arc<dyn Store>,
    block: bytes::Bytes,
    at: u64,
    len: u64,
    cancel: Cancel,
}

impl Read for StoreReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.block.is_empty() && self.at < self.len {
            let end = self.at.saturating_add(BLOCK).min(self.len);
            self.cancel.check().map_err(io::Error::other)?;
            self.block = self.store.read("", self.at..end).map_err(io::Error::other)?;
            self.at = end;
        }
        let count = self.block.len().min(out.len());
        out[..count].copy_from_slice(&self.block.split_to(count));
        Ok(count)
    }
}

/// Unwraps an error of the store.
fn of_reader(error: csv::Error, object: &str) -> Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => match error.downcast::<Error>() {
            Ok(own) => own,
            Err(error) => Error::io("read", object, error),
        },
        other => Error::corrupt("a row", object, None, format!("{other:?}")),
    }
}

/// The value of a row as text.
pub(crate) fn text<'a>(
    record: &'a ByteRecord,
    column: usize,
    name: &str,
    line: u64,
    object: &str,
) -> Result<&'a str> {
    let bytes = record.get(column).unwrap_or_default();
    std::str::from_utf8(bytes).map_err(|_| not_utf8(name, line, object))
}

fn not_utf8(name: &str, line: u64, object: &str) -> Error {
    let detail = format!("line {line}, column {name:?}: the value is not UTF-8");
    Error::corrupt("a value", object, None, detail)
}

impl CsvTable {
    /// Reads a file once.
    pub(crate) fn read(store: &Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let (object, len) = (store.describe(""), store.len("")?);
        let head = store.read("", 0..len.min(HEAD))?;
        let separator = dialect::separator(store.location(), &head);
        let cancel = options.cancel.clone();
        let input = StoreReader { store: Arc::clone(store), block: bytes::Bytes::new(), at: 0, len, cancel };
        let mut reader = dialect::reader(separator, input);
        let mut record = ByteRecord::new();
        let mut next = |record: &mut ByteRecord| -> Result<Option<ChunkStart>> {
            if !reader.read_byte_record(record).map_err(|e| of_reader(e, &object))? {
                return Ok(None);
            }
            let at = record.position().map_or((0, 0), |at| (at.byte(), at.line()));
            Ok(Some(ChunkStart { offset: at.0, line: at.1 }))
        };
        let Some(start) = next(&mut record)? else {
            return Err(Error::corrupt("header", object, 0, "the table has no rows"));
        };
        if record.len() > COLUMNS {
            return Err(Error::limit("columns of a table", record.len() as u64, COLUMNS as u64));
        }
        let width = record.len();
        let mut first = alloc::with_capacity("the names of columns", width)?;
        for column in 0..width {
            first.push(
                text(&record, column, &(column + 1).to_string(), start.line, &object)?.trim().to_owned(),
            );
        }
        let header = dialect::is_header(&first, separator);
        let names: Vec<String> =
            if header { first } else { (1..=width).map(|n| format!("column_{n}")).collect() };
        let mut found: Vec<Inference> = vec![Inference::new(separator); width];
        let mut row = if header { next(&mut record)? } else { Some(start) };
        let begin = row.unwrap_or(ChunkStart { offset: len, line: start.line });
        let (mut rows, mut chunk_rows, mut starts) = (0_u64, 0_u64, vec![begin]);
        while let Some(at) = row {
            if record.len() != width {
                let detail = format!("line {} has {} values, expected {width}", at.line, record.len());
                return Err(Error::corrupt("a row", object, at.offset, detail));
            }
            for (column, (inference, name)) in found.iter_mut().zip(&names).enumerate() {
                let value = record.get(column).unwrap_or_default();
                inference.add(value).ok_or_else(|| not_utf8(name, at.line, &object))?;
            }
            rows += 1;
            row = next(&mut record)?;
            let Some(following) = row else { break };
            if rows == SAMPLE {
                let average = (following.offset.saturating_sub(begin.offset) / SAMPLE).max(1);
                chunk_rows = (CHUNK / average).clamp(SAMPLE, MOST_ROWS);
            }
            if chunk_rows > 0 && rows.is_multiple_of(chunk_rows) {
                starts.push(following);
            }
        }
        // A short table is one chunk.
        if chunk_rows == 0 {
            chunk_rows = rows.max(1);
        }
        let columns = names.into_iter().zip(&found).map(|(name, found)| CsvColumn {
            name,
            kind: found.kind(),
            missing: found.missing > 0,
        });
        Ok(Self { separator, header, columns: columns.collect(), rows, chunk_rows, starts, len })
    }
}
