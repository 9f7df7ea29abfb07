//! Metadata of a file: columns, row groups, and where the bytes of each column are.

use std::ops::Range;
use std::sync::Arc;

use parquet::file::metadata::{ColumnChunkMetaData, ParquetMetaData, ParquetMetaDataReader};
use tesseral_core::{Attributes, Error, HistoryRow, Limits, Result};
use tesseral_format::OpenOptions;
use tesseral_format::table::{TABLE_KEY, TableDocument};
use tesseral_store::{Store, StoreExt};

use crate::kind::Kind;
use crate::thrift;

/// First and last bytes of a file.
pub(crate) const MAGIC: &[u8; 4] = b"PAR1";
/// Bytes after the metadata: their length, and the magic.
const TAIL: u64 = 8;
/// The deepest nesting of groups in a schema.
const NESTING: usize = 64;

/// A column that is an array.
#[derive(Clone, Debug)]
pub(crate) struct TableColumn {
    /// Its number among the leaves of the schema.
    pub(crate) number: usize,
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) nullable: bool,
}

/// A parsed file.
#[derive(Debug)]
pub(crate) struct ParquetTable {
    pub(crate) metadata: ParquetMetaData,
    pub(crate) columns: Vec<TableColumn>,
    /// Rows of the row groups that have any, and their numbers in the file.
    pub(crate) groups: Vec<Range<u64>>,
    pub(crate) numbers: Vec<usize>,
    pub(crate) rows: u64,
    pub(crate) unread: Vec<String>,
    /// Bytes of metadata.
    pub(crate) metadata_bytes: u64,
    pub(crate) document: TableDocument,
    pub(crate) attributes: Attributes,
    pub(crate) history: Vec<HistoryRow>,
    len: u64,
}

/// Checks properties that the metadata parser does not: lengths of lists, children of groups, nesting.
fn check(bytes: &[u8]) -> Option<()> {
    let mut elements = 0_i64;
    // Children that are still to come, of each open group.
    let mut open: Vec<i64> = Vec::new();
    // A leaf has no number of children.
    let mut children: Option<i64> = None;
    let close = |open: &mut Vec<i64>, children: Option<i64>| -> Option<()> {
        if let Some(last) = open.last_mut() {
            *last -= 1;
        }
        if let Some(count) = children.filter(|count| *count > 0) {
            open.push(count);
        }
        while open.last() == Some(&0) {
            open.pop();
        }
        (open.len() <= NESTING).then_some(())
    };
    let mut begun = false;
    thrift::walk(bytes, &mut |path, value| match path {
        [2] if value >= 0 => {
            elements = value;
            Some(())
        }
        [2] => {
            if begun {
                close(&mut open, children.take())?;
            }
            begun = true;
            Some(())
        }
        [2, 5] => {
            children = Some(value);
            (0..=elements).contains(&value).then_some(())
        }
        _ => Some(()),
    })
    .filter(|len| *len <= bytes.len())
    .map(|_| ())
}

impl ParquetTable {
    /// Reads the metadata at the end of a file.
    pub(crate) fn read(store: &Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let (object, len) = (store.describe(""), store.len("")?);
        let corrupt = |at: u64, detail: String| Error::corrupt("metadata", &object, at, detail);
        let least = 2 * MAGIC.len() as u64 + 4;
        if len < least {
            return Err(Error::truncated("metadata", &object, 0, least, len));
        }
        let tail = store.read("", len - TAIL..len)?;
        let [a, b, c, d, magic @ ..] = &tail[..] else {
            return Err(Error::internal("a read returned a different number of bytes"));
        };
        match magic {
            b"PARE" => return Err(Error::unsupported("encrypted Parquet files")),
            end if end != MAGIC => {
                return Err(corrupt(len - 4, "the file does not end with PAR1: it is truncated".to_owned()));
            }
            _ => {}
        }
        let size = u64::from(u32::from_le_bytes([*a, *b, *c, *d]));
        options.limits.check_metadata(size)?;
        let start = (len - TAIL).checked_sub(size).filter(|start| *start >= MAGIC.len() as u64);
        let Some(start) = start else {
            return Err(corrupt(len - TAIL, format!("metadata of {size} bytes in a file of {len}")));
        };
        let bytes = store.read("", start..len - TAIL)?;
        check(&bytes).ok_or_else(|| corrupt(start, "the structures contradict their lengths".to_owned()))?;
        let metadata =
            ParquetMetaDataReader::decode_metadata(&bytes).map_err(|e| corrupt(start, e.to_string()))?;
        Self::new(metadata, len, size, &object, &options.limits)
    }

    fn new(
        metadata: ParquetMetaData,
        len: u64,
        metadata_bytes: u64,
        object: &str,
        limits: &Limits,
    ) -> Result<Self> {
        let corrupt = |detail: String| Error::corrupt("metadata", object, None, detail);
        let (mut groups, mut numbers, mut rows) = (Vec::new(), Vec::new(), 0_u64);
        for (number, group) in metadata.row_groups().iter().enumerate() {
            let own = u64::try_from(group.num_rows()).ok();
            let end = own.and_then(|own| rows.checked_add(own)).filter(|end| i64::try_from(*end).is_ok());
            let end =
                end.ok_or_else(|| corrupt(format!("row group {number} has an invalid number of rows")))?;
            if group.num_columns() != metadata.file_metadata().schema_descr().num_columns() {
                return Err(corrupt(format!("row group {number} lacks columns of the schema")));
            }
            if end > rows {
                groups.push(rows..end);
                numbers.push(number);
            }
            rows = end;
        }
        if u64::try_from(metadata.file_metadata().num_rows()) != Ok(rows) {
            return Err(corrupt(format!(
                "the row groups have {rows} rows, the file declares a different number"
            )));
        }
        let (mut columns, mut unread) = (Vec::<TableColumn>::new(), Vec::new());
        for (number, descr) in metadata.file_metadata().schema_descr().columns().iter().enumerate() {
            let name = descr.path().string();
            match Kind::from_descriptor(descr) {
                Some(_) if columns.iter().any(|column| column.name == name) => {
                    return Err(corrupt(format!("duplicate column {name:?}")));
                }
                Some(kind) => {
                    // Many writers declare all columns to be optional.
                    let without = |group: &usize| {
                        let chunk = metadata.row_group(*group).column(number);
                        chunk.statistics().and_then(|own| own.null_count_opt()) == Some(0)
                    };
                    let nullable = descr.max_def_level() > 0 && !numbers.iter().all(without);
                    columns.push(TableColumn { number, name, kind, nullable });
                }
                None => {
                    let what = if descr.max_rep_level() > 0 { "a list".to_owned() } else { named(descr) };
                    unread.push(format!("{name}: the column is {what}, which is not supported"));
                }
            }
        }
        let pairs = metadata.file_metadata().key_value_metadata();
        let own = pairs.into_iter().flatten().find(|pair| pair.key == TABLE_KEY);
        let text = own.and_then(|pair| pair.value.as_deref()).unwrap_or("{}");
        let document = TableDocument::parse(text, limits)?;
        let (attributes, history) = (document.attributes(), document.history());
        Ok(Self {
            metadata,
            columns,
            groups,
            numbers,
            rows,
            unread,
            metadata_bytes,
            document,
            attributes,
            history,
            len,
        })
    }

    /// The metadata of a column in a row group.
    pub(crate) fn chunk(&self, group: usize, column: usize) -> Result<&ColumnChunkMetaData> {
        let group = self.metadata.row_groups().get(group);
        let chunk = group.and_then(|group| group.columns().get(column));
        chunk.ok_or_else(|| Error::internal("the chunk belongs to no row group"))
    }

    /// The bytes of a column in a row group, checked against the file.
    pub(crate) fn span(&self, group: usize, column: usize, object: &str) -> Result<Range<u64>> {
        let chunk = self.chunk(group, column)?;
        if chunk.file_path().is_some() {
            return Err(Error::unsupported("Parquet files with columns in other files"));
        }
        let start = first_page(chunk);
        let span = u64::try_from(start).ok().zip(u64::try_from(chunk.compressed_size()).ok());
        let span = span.and_then(|(start, size)| Some(start..start.checked_add(size)?));
        span.filter(|span| span.end <= self.len).ok_or_else(|| {
            let detail = format!("column {column} of row group {group} is not in the file");
            Error::corrupt("metadata", object, None, detail)
        })
    }
}

/// The offset of the first page. Some writers declare a dictionary at offset 0, or after the data.
pub(crate) fn first_page(chunk: &ColumnChunkMetaData) -> i64 {
    let data = chunk.data_page_offset();
    chunk.dictionary_page_offset().filter(|at| *at > 0 && *at < data).unwrap_or(data)
}

fn named(descr: &parquet::schema::types::ColumnDescriptor) -> String {
    match descr.logical_type_ref() {
        Some(logical) => format!("{logical:?}"),
        None => format!("{} {}", descr.converted_type(), descr.physical_type()),
    }
}

/// The codec of a column chunk, by its name in this crate's family.
pub(crate) fn codec(chunk: &ColumnChunkMetaData) -> String {
    use parquet::basic::CompressionCodec as Codec;
    match chunk.compression_codec() {
        Codec::UNCOMPRESSED => "raw".to_owned(),
        Codec::LZ4 | Codec::LZ4_RAW => "lz4".to_owned(),
        other => format!("{other:?}").to_ascii_lowercase(),
    }
}

impl ParquetTable {
    /// Codecs of a column, as in its first row group.
    pub(crate) fn codecs(&self, column: usize) -> Vec<String> {
        let first = self.numbers.first().and_then(|group| self.chunk(*group, column).ok());
        first.map(codec).filter(|name| name != "raw").into_iter().collect()
    }
}
