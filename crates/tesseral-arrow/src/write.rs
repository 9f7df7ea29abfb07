//! Writing of files: buffers of columns as they come, to a spool; record batches when all columns are known.
//!
//! A record batch is one range of bytes with the buffers of all columns, and conversions write one array after the other. Chunks are
//! encoded on any thread and appended to a spool; [`commit`](Writer::commit) copies them into batches.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow_ipc as ipc;
use arrow_ipc::convert::IpcSchemaEncoder;
use arrow_schema::{Field as ArrowField, Schema};
use flatbuffers::{FlatBufferBuilder, UnionWIPOffset, WIPOffset};
use serde_json::Value as Json;
use smallvec::{SmallVec, smallvec};
use tesseral_codec::zstd;
use tesseral_core::{
    Advice, Attributes, CellLen, ChunkStats, Coords, Error, HistoryRow, Result, Value, alloc,
};
use tesseral_format::table::{TABLE_KEY, TableDocument, TableShape};
use tesseral_format::{
    ArraySpec, CodecSpec, Column, ColumnData, CreateOptions, EncodedChunk, EncodedPart, Pending, Role,
    Scratch, Writer, WrittenChunks, check_unique, table, to_little_endian,
};
use tesseral_store::{Overwrite, Staged, Store};

use crate::batch::BatchCodec;
use crate::kind::{ArrowKind, Form, Layout};
use crate::table::{CONTINUATION, HEAD, MAGIC, PREFIX};

/// Alignment of buffers, for programs that map them.
const ALIGNMENT: u64 = 64;
/// Bytes that are copied at a time.
const BLOCK: usize = 4 << 20;
/// Supported codecs.
const CODECS: &[&str] = &["raw", "zstd", "lz4"];
/// The length of a buffer that is not compressed, where others are.
const STORED: [u8; 8] = (-1_i64).to_le_bytes();

/// The buffers of a column in a batch.
#[derive(Clone, Debug)]
struct SpooledChunk {
    nulls: u64,
    /// Bytes of the values before compression.
    bytes: u64,
    /// Ranges of the spool: validity, ends of cells where they have any, values.
    buffers: SmallVec<[(u64, u64); 3]>,
}

/// A column that is being written.
#[derive(Debug)]
struct ArrowColumnWrite {
    name: String,
    kind: ArrowKind,
    nullable: bool,
    field: ArrowField,
    dim: String,
    shape: TableShape,
    attributes: Attributes,
    codec: Option<(BatchCodec, i32)>,
    chunks: WrittenChunks<SpooledChunk>,
}

/// Writer of a file.
#[derive(Debug)]
pub(crate) struct ArrowWriter {
    staged: Box<dyn Staged>,
    spool: Arc<Box<dyn Staged>>,
    spooled: AtomicU64,
    columns: Vec<ArrowColumnWrite>,
    attributes: Attributes,
    history: Vec<HistoryRow>,
}

/// The codec of a column, and its level.
fn codec(codecs: &[CodecSpec]) -> Result<Option<(BatchCodec, i32)>> {
    match codecs {
        [] => Ok(None),
        [codec] if codec.name == "raw" => Ok(None),
        [codec] if codec.name == "lz4" => Ok(Some((BatchCodec::Lz4, 0))),
        [codec] if codec.name == "zstd" => {
            let level = codec.int("level").map_or(Ok(zstd::DEFAULT_LEVEL), i32::try_from);
            let level = level.map_err(|_| Error::invalid("a level of zstd beyond 32 bits"))?;
            Ok(Some((BatchCodec::Zstd, level)))
        }
        [codec] => {
            Err(Error::unsupported(format!("codec {:?} in Arrow", codec.name)).hint(Advice::Codecs(CODECS)))
        }
        _ => Err(Error::unsupported("several codecs of a column in Arrow").hint(Advice::Codecs(CODECS))),
    }
}

/// Text attributes, as other programs read them.
fn metadata(attributes: &Attributes) -> HashMap<String, String> {
    let text = |(name, value): (&String, &Value)| match value {
        Value::Text(text) if name != TABLE_KEY => Some((name.clone(), text.clone())),
        _ => None,
    };
    attributes.iter().filter_map(text).collect()
}

impl ArrowColumnWrite {
    fn new(spec: &ArraySpec) -> Result<Self> {
        let schema = &spec.schema;
        let shape = table::table_shape(schema)?;
        let ([dim], [field]) = (&schema.dims[..], &schema.fields[..]) else {
            return Err(Error::internal("a column of several dimensions or fields"));
        };
        let kind = ArrowKind::stored(field.dtype, field.cell)
            .ok_or_else(|| Error::unsupported(format!("cells of {} in Arrow", field.type_name())))?;
        Ok(Self {
            name: schema.name.clone(),
            kind,
            nullable: field.nullable,
            field: kind.column(&schema.name, field.nullable)?.with_metadata(metadata(&schema.attributes)),
            dim: dim.name.clone(),
            shape,
            attributes: schema.attributes.clone(),
            codec: codec(spec.codecs.first().map_or(&[], Vec::as_slice))?,
            chunks: WrittenChunks::new(schema)?,
        })
    }

    fn document(&self) -> Json {
        let mut own = table::column_document(&self.dim, &self.attributes);
        own.extend(self.kind.description().map(|(name, value)| (name.to_owned(), value)));
        own.insert("nullable".to_owned(), self.nullable.into());
        own.into()
    }

    /// The bitmap of valid cells; empty if all are.
    fn bitmap(&self, coords: &[u64], data: &ColumnData<'_>, rows: u64) -> Result<Vec<u8>> {
        let (values, validity) = match *data {
            ColumnData::Fixed { values, validity } => (values, validity),
            ColumnData::Var { validity, .. } => (&[][..], validity),
        };
        if validity.is_some() != self.nullable || validity.is_some_and(|own| own.len() as u64 != rows) {
            return Err(self.chunks.invalid(coords, "the validity does not match the shape of the chunk"));
        }
        let times = if self.kind.has_nat() { values.as_chunks::<8>().0 } else { &[] };
        let is_valid = |row: usize| {
            validity.is_none_or(|own| own.get(row) != Some(&0))
                && times.get(row).is_none_or(|time| i64::from_ne_bytes(*time) != i64::MIN)
        };
        let rows = usize::try_from(rows).unwrap_or(usize::MAX);
        let mut bits = alloc::zeroed::<u8>("a validity bitmap", rows.div_ceil(8))?;
        let mut nulls = 0;
        for row in 0..rows {
            match (is_valid(row), bits.get_mut(row / 8)) {
                (true, Some(byte)) => *byte |= 1 << (row % 8),
                _ => nulls += 1,
            }
        }
        Ok(if nulls == 0 { Vec::new() } else { bits })
    }

    /// Fixed-size cells as Arrow stores them.
    fn values<'a>(&self, coords: &[u64], values: Cow<'a, [u8]>, rows: u64) -> Result<Cow<'a, [u8]>> {
        let size = self.kind.field("", false).cell_size().unwrap_or(0) as u64;
        if rows.checked_mul(size) != Some(values.len() as u64) {
            return Err(self.chunks.invalid(coords, "the values do not match the shape of the chunk"));
        }
        match (self.kind.layout, self.kind.form) {
            (Layout::Bits, _) => {
                let bits = values.chunks(8).map(|bytes| {
                    bytes.iter().enumerate().fold(0, |byte, (at, own)| byte | u8::from(*own != 0) << at)
                });
                Ok(Cow::Owned(bits.collect()))
            }
            (_, Form::Seconds(unit)) => {
                let mut out = alloc::with_capacity("times in seconds", values.len())?;
                for time in values.as_chunks::<8>().0 {
                    let count = i64::from_ne_bytes(*time);
                    let seconds = if count == i64::MIN { Some(count) } else { count.checked_mul(unit) };
                    let seconds = seconds.ok_or_else(|| {
                        let what = format!("{count} in {}, which is stored in seconds", self.kind.dtype);
                        Error::unsupported(what).in_array(&self.name)
                    })?;
                    out.extend(seconds.to_le_bytes());
                }
                Ok(Cow::Owned(out))
            }
            _ => {
                let word = if self.kind.cell == CellLen::One || self.kind.child {
                    self.kind.dtype.word()
                } else {
                    1
                };
                Ok(to_little_endian(values, word))
            }
        }
    }

    /// Ends of cells in values of `size` bytes.
    fn ends(&self, coords: &[u64], ends: &[u64], size: u64) -> Result<Vec<u8>> {
        let mut out = alloc::with_capacity("the ends of cells", (ends.len() + 1).saturating_mul(4))?;
        out.extend([0; 4]);
        for end in ends {
            if !end.is_multiple_of(size.max(1)) {
                return Err(self.chunks.invalid(coords, "a cell ends within a value"));
            }
            let end = i32::try_from(end / size.max(1)).map_err(|_| {
                let what = format!("a batch of more than 2 GiB of {} in Arrow", self.kind.dtype);
                Error::unsupported(what).hint("use smaller chunks: a chunk is a batch").in_array(&self.name)
            })?;
            out.extend(end.to_le_bytes());
        }
        Ok(out)
    }

    /// A stored buffer.
    fn packed<'a>(&self, raw: Cow<'a, [u8]>, scratch: &mut Scratch) -> Result<Cow<'a, [u8]>> {
        let Some((codec, level)) = self.codec.filter(|_| !raw.is_empty()) else { return Ok(raw) };
        let mut out = (raw.len() as u64).to_le_bytes().to_vec();
        match codec {
            BatchCodec::Lz4 => tesseral_codec::lz4::encode_frame(&raw, &mut out)?,
            BatchCodec::Zstd => zstd::encode(&raw, level, &mut out, &mut scratch.contexts)?,
        }
        Ok(Cow::Owned(if out.len() < raw.len() { out } else { [&STORED, &raw[..]].concat() }))
    }

    /// The nodes of the column in a batch.
    fn nodes(&self, rows: u64, spooled: &SpooledChunk) -> impl Iterator<Item = ipc::FieldNode> {
        let node = |len: u64, nulls: u64| ipc::FieldNode::new(len.cast_signed(), nulls.cast_signed());
        let word = self.kind.dtype.word().max(1) as u64;
        let child = self.kind.child.then(|| node(spooled.bytes / word, 0));
        std::iter::once(node(rows, spooled.nulls)).chain(child)
    }
}

/// Times whose nulls are not NaT in memory: a NaT that is null in the bitmap is a cell.
fn no_nat<'a>(values: &'a [u8], validity: &[u8]) -> Cow<'a, [u8]> {
    let mut out = Cow::Borrowed(values);
    let nat = i64::MIN.to_ne_bytes();
    for (at, time) in values.as_chunks::<8>().0.iter().enumerate() {
        if *time == nat && validity.get(at) == Some(&0) {
            out.to_mut()[at * 8..][..8].fill(0);
        }
    }
    out
}

impl ArrowWriter {
    pub(crate) fn create(store: &Arc<dyn Store>, options: &CreateOptions) -> Result<Self> {
        Ok(Self {
            staged: store.stage("", options.overwrite)?,
            // Never published.
            spool: Arc::new(store.stage("", Overwrite::Replace)?),
            spooled: AtomicU64::new(0),
            columns: Vec::new(),
            attributes: Attributes::new(),
            history: Vec::new(),
        })
    }

    fn column(&self, array: usize) -> Result<&ArrowColumnWrite> {
        self.columns.get(array).ok_or_else(|| Error::invalid(format!("array {array} was not created")))
    }

    fn schema(&self) -> Schema {
        let columns = self.columns.iter().map(|column| (column.name.clone(), column.document()));
        let document = TableDocument::text(&self.attributes, &self.history, columns.collect());
        let mut metadata = metadata(&self.attributes);
        metadata.insert(TABLE_KEY.to_owned(), document);
        let fields: Vec<ArrowField> = self.columns.iter().map(|column| column.field.clone()).collect();
        Schema::new_with_metadata(fields, metadata)
    }

    /// Copies bytes of the spool.
    fn copy(&self, from: u64, to: u64, len: u64, block: &mut [u8]) -> Result<()> {
        let mut done = 0;
        while done < len {
            let part = usize::try_from(len - done).unwrap_or(block.len()).min(block.len());
            let part = block.get_mut(..part).unwrap_or_default();
            self.spool.read_at(from + done, part)?;
            self.staged.write_at(to + done, part)?;
            done += part.len() as u64;
        }
        Ok(())
    }

    /// Writes a message, and returns its block.
    fn message(&self, at: u64, bytes: &[u8], body: u64) -> Result<ipc::Block> {
        let head = (at + PREFIX + bytes.len() as u64).next_multiple_of(ALIGNMENT) - at;
        let len =
            i32::try_from(head - PREFIX).map_err(|_| Error::unsupported("Arrow metadata beyond 2 GiB"))?;
        let mut out = [CONTINUATION, len.to_le_bytes()].concat();
        out.extend(bytes);
        out.resize(usize::try_from(head).unwrap_or(usize::MAX), 0);
        self.staged.write_at(at, &out)?;
        Ok(ipc::Block::new(at.cast_signed(), len + PREFIX as i32, body.cast_signed()))
    }

    /// Writes a record batch at an offset, and returns its block.
    fn batch(&self, at: u64, rows: u64, columns: &[SpooledChunk], block: &mut [u8]) -> Result<ipc::Block> {
        let (mut nodes, mut buffers, mut body) = (Vec::new(), Vec::new(), 0_u64);
        // Where each buffer is, and where it goes in the body.
        let mut copies = Vec::new();
        for (column, spooled) in self.columns.iter().zip(columns) {
            nodes.extend(column.nodes(rows, spooled));
            let mut place = |from: u64, len: u64| {
                buffers.push(ipc::Buffer::new(body.cast_signed(), len.cast_signed()));
                copies.push((from, body, len));
                body = (body + len).next_multiple_of(ALIGNMENT);
            };
            let Some(((from, len), front)) = spooled.buffers.split_last() else { continue };
            front.iter().for_each(|(from, len)| place(*from, *len));
            if column.kind.child {
                place(0, 0);
            }
            place(*from, *len);
        }
        let mut fbb = FlatBufferBuilder::new();
        let (nodes, buffers) = (fbb.create_vector(&nodes), fbb.create_vector(&buffers));
        let codec = self.columns.iter().find_map(|column| column.codec);
        let compression = codec.map(|(codec, _)| {
            let codec = match codec {
                BatchCodec::Lz4 => ipc::CompressionType::LZ4_FRAME,
                BatchCodec::Zstd => ipc::CompressionType::ZSTD,
            };
            let method = ipc::BodyCompressionMethod::BUFFER;
            ipc::BodyCompression::create(&mut fbb, &ipc::BodyCompressionArgs { codec, method })
        });
        let own = ipc::RecordBatchArgs {
            length: rows.cast_signed(),
            nodes: Some(nodes),
            buffers: Some(buffers),
            compression,
            variadicBufferCounts: None,
        };
        let own = ipc::RecordBatch::create(&mut fbb, &own).as_union_value();
        let bytes = finished(fbb, ipc::MessageHeader::RecordBatch, own, body);
        let written = self.message(at, &bytes, body)?;
        let start = at + u64::from(written.metaDataLength().cast_unsigned());
        copies.into_iter().try_for_each(|(from, to, len)| self.copy(from, start + to, len, block))?;
        // Padding after the last buffer.
        self.staged.set_len(start + body)?;
        Ok(written)
    }

    /// Writes everything.
    fn write(&self) -> Result<()> {
        let schema = self.schema();
        let mut fbb = FlatBufferBuilder::new();
        let own = IpcSchemaEncoder::new().schema_to_fb_offset(&mut fbb, &schema).as_union_value();
        let bytes = finished(fbb, ipc::MessageHeader::Schema, own, 0);
        self.staged.write_at(0, &[&MAGIC[..], &[0; 2]].concat())?;
        let mut at = HEAD + u64::from(self.message(HEAD, &bytes, 0)?.metaDataLength().cast_unsigned());
        let (rows, chunk) = self.columns.first().map_or((0, 1), |column| column.shape);
        let mut spooled: Vec<_> = self.columns.iter().map(|own| own.chunks.sorted().into_iter()).collect();
        let mut block = alloc::zeroed::<u8>("a block to copy", BLOCK)?;
        let mut blocks = Vec::new();
        for number in 0..self.columns.first().map_or(0, |own| own.chunks.grid().total()) {
            let columns: Option<Vec<SpooledChunk>> =
                spooled.iter_mut().map(|own| own.next().map(|own| own.1)).collect();
            let columns = columns.ok_or_else(|| Error::internal("a column without a chunk"))?;
            let written = self.batch(at, chunk.min(rows - number * chunk), &columns, &mut block)?;
            at += u64::from(written.metaDataLength().cast_unsigned()) + written.bodyLength().cast_unsigned();
            blocks.push(written);
        }
        let mut fbb = FlatBufferBuilder::new();
        let schema = IpcSchemaEncoder::new().schema_to_fb_offset(&mut fbb, &schema);
        let dictionaries = Some(fbb.create_vector::<ipc::Block>(&[]));
        let record_batches = Some(fbb.create_vector(&blocks));
        let footer = ipc::FooterArgs {
            version: ipc::MetadataVersion::V5,
            schema: Some(schema),
            dictionaries,
            recordBatches: record_batches,
            custom_metadata: None,
        };
        let footer = ipc::Footer::create(&mut fbb, &footer);
        fbb.finish(footer, None);
        let footer = fbb.finished_data();
        let len =
            i32::try_from(footer.len()).map_err(|_| Error::unsupported("an Arrow footer beyond 2 GiB"))?;
        // The end of the stream of messages, and the footer.
        let end = [&CONTINUATION[..], &[0; 4], footer, &len.to_le_bytes(), MAGIC].concat();
        self.staged.write_at(at, &end)?;
        self.staged.set_len(at + end.len() as u64)
    }
}

/// The bytes of a message.
fn finished<'a>(
    mut fbb: FlatBufferBuilder<'a>,
    kind: ipc::MessageHeader,
    header: WIPOffset<UnionWIPOffset>,
    body: u64,
) -> Vec<u8> {
    let message = ipc::MessageArgs {
        version: ipc::MetadataVersion::V5,
        header_type: kind,
        header: Some(header),
        bodyLength: body.cast_signed(),
        custom_metadata: None,
    };
    let message = ipc::Message::create(&mut fbb, &message);
    fbb.finish(message, None);
    fbb.finished_data().to_vec()
}

impl Writer for ArrowWriter {
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize> {
        let name = &spec.schema.name;
        let column = ArrowColumnWrite::new(spec).map_err(|e| e.in_array(name))?;
        check_unique(self.columns.iter().map(|own| own.name.as_str()), name)?;
        if let Some(first) = self.columns.first() {
            table::check_same_rows((&first.name, first.shape), (name, column.shape))?;
            if first.codec != column.codec {
                return Err(
                    Error::unsupported("columns of different codecs in one Arrow file").in_array(name)
                );
            }
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
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        let own = self.column(array)?;
        own.chunks.check(coords)?;
        let [data] = columns else {
            return Err(own.chunks.invalid(coords, "expected one column"));
        };
        let rows = own.chunks.grid().region(coords).cells().unwrap_or(0);
        let part = |role, bytes: Cow<'a, [u8]>, raw_len: usize| EncodedPart {
            column: Column::Field(0),
            role,
            bytes,
            raw_len: raw_len as u64,
            codec: 0,
        };
        let mut bits = own.bitmap(coords, data, rows)?;
        let raw_bits = bits.len();
        // Not compressed: the nulls are counted again when they are stored.
        if own.codec.is_some() && raw_bits > 0 {
            bits.splice(0..0, STORED);
        }
        let mut parts = smallvec![part(Role::Validity, Cow::Owned(bits), raw_bits)];
        let values = match (*data, own.kind.layout) {
            (ColumnData::Fixed { values, validity }, Layout::Bits | Layout::Plain(_)) => {
                let nulls = validity.filter(|_| own.kind.has_nat());
                own.values(coords, nulls.map_or(Cow::Borrowed(values), |own| no_nat(values, own)), rows)?
            }
            (ColumnData::Var { offsets, data, .. }, Layout::Offsets { size, .. }) => {
                own.chunks.variable_length(coords, offsets, data)?;
                let ends = own.ends(coords, offsets, size as u64)?;
                let len = ends.len();
                parts.push(part(Role::Offsets, own.packed(Cow::Owned(ends), scratch)?, len));
                to_little_endian(Cow::Borrowed(data), own.kind.dtype.word())
            }
            _ => return Err(own.chunks.invalid(coords, "the cells are not of the column's type")),
        };
        let len = values.len();
        parts.push(part(Role::Values, own.packed(values, scratch)?, len));
        Ok(EncodedChunk { coords: Coords::from_slice(coords), parts, stats: Vec::new() })
    }

    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()> {
        self.place(array, chunk)?.store()
    }

    fn place<'a>(&self, array: usize, chunk: EncodedChunk<'a>) -> Result<Pending<'a>> {
        let own = self.column(array)?;
        let rows = own.chunks.grid().region(&chunk.coords).cells().unwrap_or(0);
        let mut spooled = SpooledChunk { nulls: 0, bytes: 0, buffers: SmallVec::new() };
        let mut writes = Vec::new();
        for part in chunk.parts {
            let len = part.bytes.len() as u64;
            match part.role {
                Role::Validity if len > 0 => {
                    let bits = part.bytes.iter().skip(part.bytes.len() - part.raw_len as usize);
                    let valid: u64 = bits.map(|byte| u64::from(byte.count_ones())).sum();
                    spooled.nulls = rows.saturating_sub(valid);
                }
                Role::Values => spooled.bytes = part.raw_len,
                _ => {}
            }
            let at = self.spooled.fetch_add(len, Ordering::Relaxed);
            spooled.buffers.push((at, len));
            writes.push((at, part.bytes));
        }
        own.chunks.claim(&chunk.coords, spooled)?;
        let mut pending = Pending::default();
        writes.into_iter().for_each(|(at, bytes)| pending.push(&self.spool, at, bytes));
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
        self.write()?;
        self.staged.publish()
    }
}
