//! Writing of tables: column chunks as they come, then the metadata.
//!
//! A chunk is encoded by the crate `parquet` as a separate file in memory, on any thread. Its pages are then copied to the staged
//! object, and its metadata kept with their new offsets. Columns can be written one after another, because the metadata locate
//! each chunk separately.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parquet::basic::{ColumnOrder, Compression, GzipLevel, ZstdLevel};
use parquet::column::writer::ColumnWriter;
use parquet::data_type::{ByteArray, FixedLenByteArray};
use parquet::file::metadata::{
    ColumnChunkMetaData, FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataReader,
    ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::{SchemaDescriptor, Type};
use tesseral_core::{Advice, Attributes, ChunkStats, DType, Error, HistoryRow, Result, alloc};
use tesseral_format::table::{TABLE_KEY, TableDocument, TableShape};
use tesseral_format::{
    ArraySpec, CodecSpec, ColumnData, CreateOptions, EncodedChunk, Pending, Scratch, Writer, WrittenChunks,
    check_unique, publish_shared, table,
};
use tesseral_store::{Staged, Store};

use crate::kind::Kind;
use crate::table::MAGIC;

/// Name of the schema.
const SCHEMA: &str = "schema";

/// A column that is being written.
#[derive(Debug)]
struct ColumnWrite {
    name: String,
    kind: Kind,
    nullable: bool,
    compression: Compression,
    /// The schema of a file with this column alone.
    schema: Arc<Type>,
    dim: String,
    shape: TableShape,
    attributes: Attributes,
    chunks: WrittenChunks<Box<ColumnChunkMetaData>>,
}

/// Writer of a table.
#[derive(Debug)]
pub(crate) struct TableWriter {
    staged: Arc<Box<dyn Staged>>,
    columns: Vec<ColumnWrite>,
    attributes: Attributes,
    history: Vec<HistoryRow>,
    end: AtomicU64,
}

fn of_crate(e: parquet::errors::ParquetError) -> Error {
    Error::codec("parquet", e)
}

/// The compression of a column.
fn compression(codecs: &[CodecSpec]) -> Result<Compression> {
    let level = |codec: &CodecSpec| codec.int("level");
    let small = |level: i64| i32::try_from(level).unwrap_or(i32::MAX);
    let invalid = |e: parquet::errors::ParquetError| Error::invalid(e.to_string());
    match codecs {
        [] => Ok(Compression::UNCOMPRESSED),
        [codec] => match codec.name.as_str() {
            "raw" => Ok(Compression::UNCOMPRESSED),
            "snappy" => Ok(Compression::SNAPPY),
            "lz4" => Ok(Compression::LZ4_RAW),
            "zstd" => {
                let level =
                    level(codec).map_or_else(|| Ok(ZstdLevel::default()), |l| ZstdLevel::try_new(small(l)));
                level.map(Compression::ZSTD).map_err(invalid)
            }
            "gzip" => {
                let own = |l: i64| GzipLevel::try_new(u32::try_from(l).unwrap_or(u32::MAX));
                let level = level(codec).map_or_else(|| Ok(GzipLevel::default()), own);
                level.map(Compression::GZIP).map_err(invalid)
            }
            other => Err(Error::unsupported(format!("codec {other:?} in Parquet"))
                .hint(Advice::Codecs(&["raw", "zstd", "snappy", "gzip", "lz4"]))),
        },
        _ => Err(Error::unsupported("several codecs of a column in Parquet")
            .hint(Advice::Codecs(&["raw", "zstd", "snappy", "gzip", "lz4"]))),
    }
}

impl ColumnWrite {
    fn new(spec: &ArraySpec) -> Result<Self> {
        let schema = &spec.schema;
        let shape = table::table_shape(schema)?;
        let ([dim], [field]) = (&schema.dims[..], &schema.fields[..]) else {
            return Err(Error::internal("a column of several dimensions or fields"));
        };
        let kind = Kind { dtype: field.dtype, cell: field.cell };
        let column = kind.column(&schema.name, field.nullable)?;
        let whole = Type::group_type_builder(SCHEMA).with_fields(vec![Arc::new(column)]).build();
        Ok(Self {
            name: schema.name.clone(),
            kind,
            nullable: field.nullable,
            compression: compression(spec.codecs.first().map_or(&[], Vec::as_slice))?,
            schema: Arc::new(whole.map_err(of_crate)?),
            dim: dim.name.clone(),
            shape,
            attributes: schema.attributes.clone(),
            chunks: WrittenChunks::new(schema)?,
        })
    }

    /// A file with the cells of one chunk.
    fn file(&self, coords: &[u64], data: &ColumnData<'_>) -> Result<Vec<u8>> {
        let float = matches!(self.kind.dtype, DType::Float32 | DType::Float64);
        let properties = WriterProperties::builder()
            .set_compression(self.compression)
            // A dictionary could take -0.0 for 0.0.
            .set_dictionary_enabled(!float)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            .build();
        let mut out = Vec::new();
        let mut file = SerializedFileWriter::new(&mut out, Arc::clone(&self.schema), Arc::new(properties))
            .map_err(of_crate)?;
        let mut group = file.next_row_group().map_err(of_crate)?;
        let mut column = group
            .next_column()
            .map_err(of_crate)?
            .ok_or_else(|| Error::internal("a schema without columns"))?;
        self.cells(coords, data, column.untyped())?;
        column.close().map_err(of_crate)?;
        group.close().map_err(of_crate)?;
        file.close().map_err(of_crate)?;
        Ok(out)
    }

    fn cells(&self, coords: &[u64], data: &ColumnData<'_>, column: &mut ColumnWriter<'_>) -> Result<()> {
        let (cells, validity): (Vec<&[u8]>, _) = match *data {
            ColumnData::Fixed { values, validity } => {
                let size = self.kind.field("", false).cell_size().unwrap_or(0).max(1);
                let count = self.chunks.grid().region(coords).cells().unwrap_or(0);
                if values.len() as u64 != count.saturating_mul(size as u64) {
                    return Err(self
                        .chunks
                        .invalid(coords, "the values do not match the shape of the chunk"));
                }
                (values.chunks_exact(size).collect(), validity)
            }
            ColumnData::Var { offsets, data, validity } => {
                (self.chunks.variable_length(coords, offsets, data)?, validity)
            }
        };
        if validity.is_some() != self.nullable || validity.is_some_and(|own| own.len() != cells.len()) {
            return Err(self.chunks.invalid(coords, "the validity does not match the shape of the chunk"));
        }
        let levels: Option<Vec<i16>> =
            validity.map(|own| own.iter().map(|valid| i16::from(*valid != 0)).collect());
        let present = |row: usize| validity.is_none_or(|own| own.get(row).is_some_and(|valid| *valid != 0));
        let cells = cells.into_iter().enumerate().filter(|(row, _)| present(*row)).map(|(_, cell)| cell);
        let levels = levels.as_deref();
        let written = match column {
            ColumnWriter::BoolColumnWriter(own) => {
                own.write_batch(&collect(cells, |cell| Some(cell.first()? != &0))?, levels, None)
            }
            ColumnWriter::Int32ColumnWriter(own) => {
                let dtype = self.kind.dtype;
                let number = |cell: &[u8]| match dtype {
                    DType::Int8 => Some(i32::from(i8::from_ne_bytes(cell.try_into().ok()?))),
                    DType::Int16 => Some(i32::from(i16::from_ne_bytes(cell.try_into().ok()?))),
                    DType::UInt8 => Some(i32::from(*cell.first()?)),
                    DType::UInt16 => Some(i32::from(u16::from_ne_bytes(cell.try_into().ok()?))),
                    _ => Some(i32::from_ne_bytes(cell.try_into().ok()?)),
                };
                own.write_batch(&collect(cells, number)?, levels, None)
            }
            ColumnWriter::Int64ColumnWriter(own) => {
                let number = |cell: &[u8]| Some(i64::from_ne_bytes(cell.try_into().ok()?));
                own.write_batch(&collect(cells, number)?, levels, None)
            }
            ColumnWriter::FloatColumnWriter(own) => {
                let number = |cell: &[u8]| Some(f32::from_ne_bytes(cell.try_into().ok()?));
                own.write_batch(&collect(cells, number)?, levels, None)
            }
            ColumnWriter::DoubleColumnWriter(own) => {
                let number = |cell: &[u8]| Some(f64::from_ne_bytes(cell.try_into().ok()?));
                own.write_batch(&collect(cells, number)?, levels, None)
            }
            ColumnWriter::ByteArrayColumnWriter(own) => {
                let text = |cell: &[u8]| Some(ByteArray::from(cell.to_vec()));
                own.write_batch(&collect(cells, text)?, levels, None)
            }
            ColumnWriter::FixedLenByteArrayColumnWriter(own) => {
                let half = self.kind.dtype == DType::Float16;
                let fixed = |cell: &[u8]| {
                    let mut cell = cell.to_vec();
                    if half && cfg!(target_endian = "big") {
                        cell.reverse();
                    }
                    Some(FixedLenByteArray::from(cell))
                };
                own.write_batch(&collect(cells, fixed)?, levels, None)
            }
            ColumnWriter::Int96ColumnWriter(_) => return Err(Error::internal("a column of 96-bit integers")),
        };
        written.map(|_| ()).map_err(of_crate)
    }
}

/// Values of cells.
fn collect<'a, T>(
    cells: impl Iterator<Item = &'a [u8]>,
    value: impl Fn(&[u8]) -> Option<T>,
) -> Result<Vec<T>> {
    let mut out = alloc::with_capacity("the values of a column", cells.size_hint().1.unwrap_or(0))?;
    for cell in cells {
        out.push(value(cell).ok_or_else(|| Error::internal("a cell has a different size"))?);
    }
    Ok(out)
}

impl TableWriter {
    pub(crate) fn create(store: &Arc<dyn Store>, options: &CreateOptions) -> Result<Self> {
        let staged = Arc::new(store.stage("", options.overwrite)?);
        Ok(Self {
            staged,
            columns: Vec::new(),
            attributes: Attributes::new(),
            history: Vec::new(),
            end: AtomicU64::new(MAGIC.len() as u64),
        })
    }

    fn column(&self, array: usize) -> Result<&ColumnWrite> {
        self.columns.get(array).ok_or_else(|| Error::invalid(format!("array {array} was not created")))
    }

    /// Elements that Parquet does not support.
    fn document(&self) -> String {
        let own = |column: &ColumnWrite| table::column_document(&column.dim, &column.attributes).into();
        let columns = self.columns.iter().map(|column| (column.name.clone(), own(column)));
        TableDocument::text(&self.attributes, &self.history, columns.collect())
    }

    /// The metadata of the file.
    fn metadata(&self) -> Result<ParquetMetaData> {
        let fields = self.columns.iter().filter_map(|column| column.schema.get_fields().first().cloned());
        let schema =
            Type::group_type_builder(SCHEMA).with_fields(fields.collect()).build().map_err(of_crate)?;
        let schema = Arc::new(SchemaDescriptor::new(Arc::new(schema)));
        let orders = schema
            .columns()
            .iter()
            .map(|column| ColumnOrder::TYPE_DEFINED_ORDER(column.sort_order()))
            .collect();
        let (rows, chunk) = self.columns.first().map_or((0, 1), |column| column.shape);
        let mut stored: Vec<_> = self.columns.iter().map(|own| own.chunks.sorted().into_iter()).collect();
        let mut groups = Vec::new();
        for number in 0..self.columns.first().map_or(0, |own| own.chunks.grid().total()) {
            let start = number * chunk;
            let mut group = RowGroupMetaData::builder(Arc::clone(&schema))
                .set_num_rows(chunk.min(rows - start).cast_signed());
            let mut bytes = 0_i64;
            for column in &mut stored {
                let (_, own) = column.next().ok_or_else(|| Error::internal("a column without a chunk"))?;
                bytes = bytes.saturating_add(own.uncompressed_size());
                group = group.add_column_metadata(*own);
            }
            groups.push(group.set_total_byte_size(bytes).build().map_err(of_crate)?);
        }
        let pairs = vec![KeyValue::new(TABLE_KEY.to_owned(), self.document())];
        let by = format!("tesseral version {}", env!("CARGO_PKG_VERSION"));
        let file = FileMetaData::new(2, rows.cast_signed(), Some(by), Some(pairs), schema, Some(orders));
        Ok(ParquetMetaData::new(file, groups))
    }
}

impl Writer for TableWriter {
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize> {
        let name = &spec.schema.name;
        let column = ColumnWrite::new(spec).map_err(|e| e.in_array(name))?;
        check_unique(self.columns.iter().map(|own| own.name.as_str()), name)?;
        if let Some(first) = self.columns.first() {
            table::check_same_rows((&first.name, first.shape), (name, column.shape))?;
        }
        self.columns.push(column);
        Ok(self.columns.len() - 1)
    }

    fn encode<'a>(
        &self,
        array: usize,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        _stats: Vec<ChunkStats>,
        _scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        let own = self.column(array)?;
        own.chunks.check(coords)?;
        let [data] = columns else {
            return Err(own.chunks.invalid(coords, "expected one column"));
        };
        let raw_len = match data {
            ColumnData::Fixed { values, .. } => values.len(),
            ColumnData::Var { data, .. } => data.len(),
        };
        Ok(EncodedChunk::contiguous(coords, Cow::Owned(own.file(coords, data)?), raw_len))
    }

    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()> {
        self.place(array, chunk)?.store()
    }

    fn place<'a>(&self, array: usize, chunk: EncodedChunk<'a>) -> Result<Pending<'a>> {
        let own = self.column(array)?;
        let coords = chunk.coords.clone();
        let file = chunk.into_part()?.bytes.into_owned();
        let invalid = || own.chunks.invalid(&coords, "the bytes are not those of an encoded chunk");
        let footer = file.len().checked_sub(8).ok_or_else(invalid)?;
        let size = file.get(footer..footer + 4).and_then(|size| size.try_into().ok()).map(u32::from_le_bytes);
        let start = size.and_then(|size| footer.checked_sub(size as usize)).ok_or_else(invalid)?;
        let metadata = ParquetMetaDataReader::decode_metadata(file.get(start..footer).unwrap_or_default());
        let metadata = metadata.map_err(of_crate)?;
        let [group] = metadata.row_groups() else { return Err(invalid()) };
        let [column] = group.columns() else { return Err(invalid()) };
        let from = usize::try_from(crate::table::first_page(column)).map_err(|_| invalid())?;
        let size = usize::try_from(column.compressed_size()).map_err(|_| invalid())?;
        let pages = file.get(from..from.saturating_add(size)).ok_or_else(invalid)?.to_vec();
        let at = self.end.fetch_add(size as u64, Ordering::Relaxed);
        let moved = |offset: i64| offset - from as i64 + at.cast_signed();
        let placed = column
            .clone()
            .into_builder()
            .set_data_page_offset(moved(column.data_page_offset()))
            .set_dictionary_page_offset(column.dictionary_page_offset().map(moved))
            .set_column_index_offset(None)
            .set_column_index_length(None)
            .set_offset_index_offset(None)
            .set_offset_index_length(None)
            .build()
            .map_err(of_crate)?;
        own.chunks.claim(&coords, Box::new(placed))?;
        let mut pending = Pending::default();
        pending.push(&self.staged, at, Cow::Owned(pages));
        Ok(pending)
    }

    fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        self.attributes = attributes;
        Ok(())
    }

    fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        self.history.push(row);
        Ok(())
    }

    fn set_parents(&mut self, parents: &[String]) -> bool {
        tesseral_format::convention::history::set_parents(&mut self.history, parents)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.columns.iter().try_for_each(|own| own.chunks.check_complete())?;
        let metadata = self.metadata()?;
        let mut bytes = Vec::new();
        ParquetMetaDataWriter::new(&mut bytes, &metadata).finish().map_err(of_crate)?;
        let end = self.end.load(Ordering::Relaxed);
        self.staged.write_at(0, MAGIC)?;
        self.staged.write_at(end, &bytes)?;
        self.staged.set_len(end + bytes.len() as u64)?;
        publish_shared(self.staged)
    }
}
