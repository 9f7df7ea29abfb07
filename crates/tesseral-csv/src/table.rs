//! The first pass over a file: columns with their types, rows, and where each chunk of rows begins.
//!
//! The file is divided at line ends into blocks, which are examined independently of each other. A line end inside quotes is not the
//! end of a row: the block before it then has a row without an end, and is examined again together with the next one.

use std::ops::Range;
use std::sync::Arc;

use tesseral_core::{Error, Result, alloc};
use tesseral_format::OpenOptions;
use tesseral_store::{Store, StoreExt};

use crate::column::{CsvKind, Inference};
use crate::dialect;
use crate::rows::Rows;

/// The largest and smallest block in bytes, and how many blocks a small file has.
const MAX_BLOCK: u64 = 4 << 20;
const MIN_BLOCK: u64 = 64 << 10;
const BLOCKS: u64 = 16;
/// Number of columns of blocks, and of blocks, whose results are in memory together.
const BATCH: usize = 64 << 10;
const BATCH_BLOCKS: usize = 64;
/// The most columns.
const COLUMNS: usize = 1 << 15;
/// Bytes for the separator, and for the first row unless it is longer.
const HEAD: u64 = 64 << 10;
/// Bytes that are searched for a line end at a time.
const LINE: u64 = 4 << 10;

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CsvColumn {
    pub(crate) name: String,
    pub(crate) kind: CsvKind,
    /// Whether values are missing.
    pub(crate) missing: bool,
}

/// Where the rows of a chunk are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CsvChunk {
    pub(crate) bytes: Range<u64>,
    /// Number of the first line.
    pub(crate) line: u64,
}

/// A table.
#[derive(Debug)]
pub(crate) struct CsvTable {
    pub(crate) separator: u8,
    pub(crate) header: bool,
    pub(crate) columns: Vec<CsvColumn>,
    pub(crate) rows: u64,
    /// The rows of each chunk.
    pub(crate) groups: Vec<Range<u64>>,
    pub(crate) chunks: Vec<CsvChunk>,
}

/// What a block holds.
struct RowBlock {
    rows: u64,
    lines: u64,
    columns: Vec<Inference>,
    /// Whether the last row has an end.
    ended: bool,
    /// The first row that is not one of the table: its offset, the line ends before it, and the reason.
    fault: Option<Fault>,
}

struct Fault {
    offset: u64,
    lines: u64,
    kind: FaultKind,
}

enum FaultKind {
    /// A row of so many values.
    Width(usize),
    /// A value of a column is not UTF-8.
    Text(usize),
}

/// Number of line ends.
pub(crate) fn lines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// The file while it is examined.
struct TableScan<'a> {
    store: &'a Arc<dyn Store>,
    options: &'a OpenOptions,
    object: String,
    len: u64,
    separator: u8,
    names: Vec<String>,
}

impl TableScan<'_> {
    /// The end of the first line that ends after `at`.
    fn line_end(&self, at: u64) -> Result<u64> {
        let mut start = at;
        while start < self.len {
            let end = start.saturating_add(LINE).min(self.len);
            let bytes = self.store.read("", start..end)?;
            if let Some(found) = memchr::memchr(b'\n', &bytes) {
                return Ok(start + found as u64 + 1);
            }
            start = end;
        }
        Ok(self.len)
    }

    /// Examines the rows in a range of bytes.
    fn block(&self, range: Range<u64>) -> Result<RowBlock> {
        self.options.cancel.check()?;
        let width = self.names.len();
        let mut columns = alloc::with_capacity("types of columns", width)?;
        columns.resize(width, Inference::new(self.separator));
        let bytes = self.store.read("", range.clone())?;
        let mut block = RowBlock { rows: 0, lines: lines(&bytes), columns, ended: true, fault: None };
        let mut rows = Rows::new(self.separator, &bytes);
        while rows.start() {
            let (start, mut count, mut text) = (rows.at(), 0, None);
            loop {
                let (value, last) = rows.value();
                if let Some(column) = block.columns.get_mut(count)
                    && column.add(value).is_none()
                {
                    text = text.or(Some(count));
                }
                count += 1;
                if last {
                    break;
                }
            }
            let kind = match text {
                _ if count != width => FaultKind::Width(count),
                Some(column) => FaultKind::Text(column),
                None => {
                    block.rows += 1;
                    continue;
                }
            };
            let offset = range.start + start as u64;
            block.fault = Some(Fault { offset, lines: lines(&bytes[..start]), kind });
            // The rest decides whether the block has an end.
            while rows.start() {
                rows.leave();
            }
        }
        block.ended = rows.ended();
        Ok(block)
    }

    fn error(&self, fault: &Fault, before: u64) -> Error {
        let line = before + fault.lines;
        let detail = match fault.kind {
            FaultKind::Width(count) => {
                format!("line {line} has {count} values, expected {}", self.names.len())
            }
            FaultKind::Text(column) => return not_utf8(&self.names[column], line, &self.object),
        };
        Error::corrupt("a row", &self.object, fault.offset, detail)
    }

    /// Examines all rows from `begin` on.
    fn table(self, header: bool, begin: u64, mut line: u64) -> Result<CsvTable> {
        let size = ((self.len - begin) / BLOCKS).clamp(MIN_BLOCK, MAX_BLOCK);
        let mut found = vec![Inference::new(self.separator); self.names.len()];
        let (mut groups, mut chunks, mut rows, mut at) = (Vec::new(), Vec::new(), 0_u64, begin);
        let batch = (BATCH / self.names.len().max(1)).clamp(2, BATCH_BLOCKS) as u64;
        while at < self.len {
            let starts = (0..=batch).map(|n| at.saturating_add(n * size));
            let starts: Vec<u64> = starts.take_while(|start| *start < self.len).collect();
            let mut ends = self.options.in_parallel(starts.len(), LINE, |n| match n {
                0 => Ok(at),
                n => self.store.guarded(|| self.line_end(starts[n])),
            })?;
            if starts.len() as u64 <= batch {
                ends.push(self.len);
            }
            ends.dedup();
            let ranges: Vec<Range<u64>> = ends.windows(2).map(|pair| pair[0]..pair[1]).collect();
            let blocks = self
                .options
                .in_parallel(ranges.len(), size, |n| self.store.guarded(|| self.block(ranges[n].clone())))?;
            for (n, (mut range, mut block)) in ranges.iter().cloned().zip(blocks).enumerate() {
                // Blocks before it were examined together with this one.
                if range.end <= at {
                    continue;
                }
                if range.start != at {
                    range.start = at;
                    block = self.block(range.clone())?;
                }
                let mut together = 1;
                while !block.ended && range.end < self.len {
                    let (size, following) = (range.end - range.start, n + 2 * together - 1);
                    let last = ranges.get(following).or(ranges.last()).map_or(0, |range| range.end);
                    range.end = if last > range.end { last } else { self.line_end(range.end + size)? };
                    together *= 2;
                    block = self.block(range.clone())?;
                }
                if let Some(fault) = &block.fault {
                    return Err(self.error(fault, line));
                }
                found.iter_mut().zip(&block.columns).for_each(|(found, own)| found.merge(own));
                at = range.end;
                if block.rows > 0 {
                    groups.push(rows..rows + block.rows);
                    chunks.push(CsvChunk { bytes: range, line });
                }
                (rows, line) = (rows + block.rows, line + block.lines);
            }
        }
        let columns = self.names.into_iter().zip(&found).map(|(name, found)| CsvColumn {
            name,
            kind: found.kind(),
            missing: found.missing > 0,
        });
        Ok(CsvTable { separator: self.separator, header, columns: columns.collect(), rows, groups, chunks })
    }
}

pub(crate) fn not_utf8(name: &str, line: u64, object: &str) -> Error {
    let detail = format!("line {line}, column {name:?}: the value is not UTF-8");
    Error::corrupt("a value", object, None, detail)
}

impl CsvTable {
    /// Reads a file once.
    pub(crate) fn read(store: &Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let (object, len) = (store.describe(""), store.len("")?);
        let mut size = len.min(HEAD);
        let mut head = store.read("", 0..size)?;
        let separator = dialect::separator(store.location(), &head);
        let mut first = Vec::new();
        let (start, end) = loop {
            options.cancel.check()?;
            first.clear();
            let begin = dialect::mark(&head);
            let mut rows = Rows::new(separator, &head[begin..]);
            if !rows.start() && size == len {
                return Err(Error::corrupt("header", object, 0, "the table has no rows"));
            }
            let start = begin + rows.at();
            loop {
                let (value, last) = rows.value();
                first.push(value.to_vec());
                if first.len() > COLUMNS {
                    return Err(Error::limit("columns of a table", first.len() as u64, COLUMNS as u64));
                }
                if last {
                    break;
                }
            }
            if rows.ended() || size == len {
                break (start, begin + rows.at());
            }
            size = size.saturating_mul(2).min(len);
            head = store.read("", 0..size)?;
        };
        let line = 1 + lines(&head[..start]);
        let mut names = alloc::with_capacity("the names of columns", first.len())?;
        for (column, value) in first.into_iter().enumerate() {
            let name = String::from_utf8(value);
            let name = name.map_err(|_| not_utf8(&(column + 1).to_string(), line, &object))?;
            names.push(name.trim().to_owned());
        }
        let header = dialect::is_header(&names, separator);
        if !header {
            names = (1..=names.len()).map(|n| format!("column_{n}")).collect();
        }
        let (begin, line) = if header { (end, line + lines(&head[start..end])) } else { (start, line) };
        drop(head);
        TableScan { store, options, object, len, separator, names }.table(header, begin as u64, line)
    }
}
