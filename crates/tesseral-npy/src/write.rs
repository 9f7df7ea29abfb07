//! Writing of `.npz` archives with uncompressed members, whose offsets are known before the first cell.
//!
//! Dimension names, attributes and history have no place in an archive of NumPy: they are in the comments of members and archive.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value as Json, json};
use tesseral_core::{Attributes, CellLen, ChunkStats, Error, HistoryRow, Order, Result, alloc, numpy};
use tesseral_format::convention::{history, value};
use tesseral_format::{
    ArraySpec, ColumnData, CreateOptions, EncodedChunk, Scratch, Writer, WrittenChunks, check_unique,
    contiguous_runs, publish_shared, to_little_endian,
};
use tesseral_store::{Staged, Store};

use crate::npz::{SUFFIX, holds};
use crate::zip;

/// The key of metadata in comments.
pub(crate) const KEY: &str = "tesseral";
/// Alignment of members, and so of cells.
const ALIGNMENT: u64 = 64;
/// Bytes of the extra field of ZIP64: id, length, two lengths.
const EXTRA: u64 = 20;
/// The extra field that aligns a member, as in Android archives, and the size of its id and length.
const PADDING: u16 = 0xd935;
const PADDING_HEAD: u64 = 4;
/// The maximum length of names and comments.
const TEXT: usize = 0xffff;
/// Bytes that are read at a time for a checksum.
const BLOCK: usize = 1 << 20;
/// Version 4.5 of the specification, with ZIP64.
const VERSION: u16 = 45;
/// Flag: names are UTF-8.
const UTF8: u16 = 1 << 11;
/// The first of January 1980, as NumPy writes it.
const DATE: u16 = 0x21;

/// A part of a member whose checksum is known.
#[derive(Clone, Copy, Debug)]
struct Summed {
    start: u64,
    len: u64,
    crc: u32,
}

/// An array that is being written.
#[derive(Debug)]
struct MemberWrite {
    name: String,
    /// Offset of the local header.
    local: u64,
    /// Bytes of the extra field that aligns the content.
    padding: u64,
    /// The `.npy` header.
    header: Vec<u8>,
    /// Bytes of the cells.
    len: u64,
    size: u64,
    word: usize,
    comment: Vec<u8>,
    chunks: WrittenChunks<()>,
    summed: Mutex<Vec<Summed>>,
}

/// Writer of an archive.
#[derive(Debug)]
pub(crate) struct NpzWriter {
    staged: Arc<Box<dyn Staged>>,
    members: Vec<MemberWrite>,
    attributes: Attributes,
    history: Vec<HistoryRow>,
    /// Offset after the last member.
    end: u64,
}

fn json_of(attributes: &Attributes) -> Map<String, Json> {
    attributes.iter().map(|(name, own)| (name.clone(), value::to_json(own))).collect()
}

/// The comment; empty if there are neither attributes nor history.
fn comment(document: &Json, empty: bool) -> Result<Vec<u8>> {
    if empty {
        return Ok(Vec::new());
    }
    let text = json!({ KEY: document }).to_string().into_bytes();
    if text.len() > TEXT {
        let detail = format!("{} bytes of attributes in a .npz file (maximum: 65,535)", text.len());
        return Err(Error::unsupported(detail));
    }
    Ok(text)
}

impl MemberWrite {
    /// Declares an array whose member begins at an offset.
    fn new(spec: &ArraySpec, local: u64) -> Result<Self> {
        let schema = &spec.schema;
        let unsupported = |what: String| Err(Error::unsupported(format!("{what} in a .npz file")));
        let ([field], false) = (&schema.fields[..], schema.sparse) else {
            return unsupported("sparse arrays, or several fields,".to_owned());
        };
        let given = spec.codecs.iter().flatten().find(|codec| codec.name != "raw");
        if let Some(codec) = given {
            return unsupported(format!("codec {:?}", codec.name));
        }
        if field.nullable || field.enumeration.is_some() {
            return unsupported(if field.nullable { "null cells" } else { "enumerations" }.to_owned());
        }
        if schema.cell_order != Order::RowMajor {
            return unsupported(format!("cells in {:?} order", schema.cell_order));
        }
        let descr = numpy::descr(field.dtype, field.cell).filter(|_| holds(field.dtype, field.cell));
        let Some(descr) = descr else { return unsupported(format!("cells of {}", field.type_name())) };
        let shape = schema.shape().unwrap_or_default();
        let size = field.cell_size().unwrap_or(1) as u64;
        let len = shape.iter().try_fold(size, |bytes, n| bytes.checked_mul(*n));
        let Some(len) = len.filter(|len| i64::try_from(*len).is_ok()) else {
            return unsupported("an array beyond 2^63 bytes".to_owned());
        };
        let name = format!("{}{SUFFIX}", schema.name);
        if name.len() > TEXT || schema.name.is_empty() || schema.name.contains('\0') {
            return unsupported(format!("the name {:?}", schema.name));
        }
        let before = zip::LOCAL_LEN + name.len() as u64 + EXTRA;
        let overflow = || Error::unsupported("an archive beyond 2^64 bytes");
        let first = local.checked_add(before + PADDING_HEAD + ALIGNMENT).ok_or_else(overflow)?;
        let padding = match (local + before).wrapping_neg() % ALIGNMENT {
            bytes @ 1..PADDING_HEAD => bytes + ALIGNMENT,
            bytes => bytes,
        };
        let header = numpy::file_header(&descr, &shape);
        first.checked_add(header.len() as u64).and_then(|at| at.checked_add(len)).ok_or_else(overflow)?;
        let dims: Vec<&str> = schema.dims.iter().map(|dim| dim.name.as_str()).collect();
        let unnamed = dims.iter().all(|name| name.is_empty());
        let document = json!({"dims": dims, "attributes": json_of(&schema.attributes)});
        Ok(Self {
            local,
            padding,
            header,
            len,
            size,
            word: if field.cell == CellLen::One { field.dtype.word() } else { 1 },
            comment: comment(&document, unnamed && schema.attributes.is_empty())?,
            chunks: WrittenChunks::new(schema)?,
            summed: Mutex::default(),
            name,
        })
    }

    fn start(&self) -> u64 {
        self.local + zip::LOCAL_LEN + self.name.len() as u64 + EXTRA + self.padding
    }

    fn cells(&self) -> u64 {
        self.start() + self.header.len() as u64
    }

    /// Bytes of the member's content.
    fn content(&self) -> u64 {
        self.header.len() as u64 + self.len
    }

    fn summed(&self) -> MutexGuard<'_, Vec<Summed>> {
        self.summed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The CRC-32 of header and cells: of the chunks if these follow one another, else of the bytes that were written.
    fn crc(&self, staged: &dyn Staged) -> Result<u32> {
        let mut crc = crc32fast::Hasher::new();
        crc.update(&self.header);
        let mut parts = self.summed().clone();
        parts.sort_unstable_by_key(|part| part.start);
        let mut at = 0;
        let consecutive = parts.iter().all(|part| {
            let follows = part.start == at;
            at += part.len;
            follows
        });
        if consecutive && at == self.len {
            for Summed { len, crc: own, .. } in parts {
                crc.combine(&crc32fast::Hasher::new_with_initial_len(own, len));
            }
            return Ok(crc.finalize());
        }
        let mut block = alloc::zeroed::<u8>("cells of an array", BLOCK)?;
        let mut at = 0;
        while at < self.len {
            let len = usize::try_from(self.len - at).unwrap_or(BLOCK).min(BLOCK);
            let part = block.get_mut(..len).unwrap_or_default();
            staged.read_at(self.cells() + at, part)?;
            crc.update(part);
            at += len as u64;
        }
        Ok(crc.finalize())
    }

    /// The local header.
    fn local_header(&self, crc: u32) -> Vec<u8> {
        let mut out = zip::LOCAL.to_vec();
        self.put_common(&mut out, crc, u32::MAX);
        out.extend(((EXTRA + self.padding) as u16).to_le_bytes());
        out.extend(self.name.as_bytes());
        out.extend([zip::EXTRA64, EXTRA as u16 - 4].iter().flat_map(|n| n.to_le_bytes()));
        out.extend([self.content(), self.content()].iter().flat_map(|n| n.to_le_bytes()));
        if let Some(zeros) = self.padding.checked_sub(PADDING_HEAD) {
            out.extend([PADDING, zeros as u16].iter().flat_map(|n| n.to_le_bytes()));
            out.resize(out.len() + zeros as usize, 0);
        }
        out
    }

    /// Version, flags, method, time, checksum, lengths and length of the name.
    fn put_common(&self, out: &mut Vec<u8>, crc: u32, len: u32) {
        out.extend([VERSION, UTF8, 0, 0, DATE].iter().flat_map(|n| n.to_le_bytes()));
        out.extend([crc, len, len].iter().flat_map(|n| n.to_le_bytes()));
        // Checked when the array was declared.
        out.extend(u16::try_from(self.name.len()).unwrap_or(u16::MAX).to_le_bytes());
    }

    /// The entry of the central directory.
    fn entry(&self, crc: u32, out: &mut Vec<u8>) {
        let narrow = u32::try_from(self.content()).ok().zip(u32::try_from(self.local).ok());
        let (len, local) =
            narrow.filter(|both| both.0.max(both.1) < u32::MAX).unwrap_or((u32::MAX, u32::MAX));
        let mut extra = Vec::new();
        if len == u32::MAX {
            extra.extend([zip::EXTRA64, 24].iter().flat_map(|n| n.to_le_bytes()));
            extra.extend([self.content(), self.content(), self.local].iter().flat_map(|n| n.to_le_bytes()));
        }
        out.extend(zip::CENTRAL);
        out.extend(VERSION.to_le_bytes());
        self.put_common(out, crc, len);
        let comment = u16::try_from(self.comment.len()).unwrap_or(0);
        out.extend([extra.len() as u16, comment, 0, 0].iter().flat_map(|n| n.to_le_bytes()));
        // A file that its owner can write and everyone can read.
        out.extend([0o100_644_u32 << 16, local].iter().flat_map(|n| n.to_le_bytes()));
        out.extend(self.name.as_bytes());
        out.extend(extra);
        out.extend(&self.comment);
    }
}

impl NpzWriter {
    pub(crate) fn create(store: &Arc<dyn Store>, options: &CreateOptions) -> Result<Self> {
        Ok(Self {
            staged: Arc::new(store.stage("", options.overwrite)?),
            members: Vec::new(),
            attributes: Attributes::new(),
            history: Vec::new(),
            end: 0,
        })
    }

    fn member(&self, array: usize) -> Result<&MemberWrite> {
        self.members.get(array).ok_or_else(|| Error::invalid(format!("array {array} was not created")))
    }

    fn comment(&self) -> Result<Vec<u8>> {
        let document =
            json!({"attributes": json_of(&self.attributes), "history": history::to_json(&self.history)});
        comment(&document, self.attributes.is_empty() && self.history.is_empty())
    }
}

/// Directory and end of an archive.
fn directory(members: &[MemberWrite], crcs: &[u32], start: u64, comment: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for (member, crc) in members.iter().zip(crcs) {
        member.entry(*crc, &mut out);
    }
    let (count, size) = (members.len() as u64, out.len() as u64);
    let small = count < 0xffff && start < u64::from(u32::MAX) && size < u64::from(u32::MAX);
    if !small {
        let end = start + size;
        out.extend(zip::END64);
        out.extend(44_u64.to_le_bytes());
        out.extend([VERSION, VERSION].iter().flat_map(|n| n.to_le_bytes()));
        out.extend([0_u32; 2].iter().flat_map(|n| n.to_le_bytes()));
        out.extend([count, count, size, start].iter().flat_map(|n| n.to_le_bytes()));
        out.extend(zip::LOCATOR);
        out.extend(0_u32.to_le_bytes());
        out.extend(end.to_le_bytes());
        out.extend(1_u32.to_le_bytes());
    }
    let half = |n: u64| if small { u16::try_from(n).unwrap_or(u16::MAX) } else { u16::MAX };
    let word = |n: u64| if small { u32::try_from(n).unwrap_or(u32::MAX) } else { u32::MAX };
    out.extend(zip::END);
    out.extend([0, 0, half(count), half(count)].iter().flat_map(|n| n.to_le_bytes()));
    out.extend([word(size), word(start)].iter().flat_map(|n| n.to_le_bytes()));
    out.extend(u16::try_from(comment.len()).unwrap_or(0).to_le_bytes());
    out.extend(comment);
    out
}

impl Writer for NpzWriter {
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize> {
        let name = &spec.schema.name;
        let member = MemberWrite::new(spec, self.end).map_err(|e| e.in_array(name))?;
        check_unique(self.members.iter().map(|own| own.name.as_str()), &member.name)?;
        self.end = member.cells() + member.len;
        self.members.push(member);
        Ok(self.members.len() - 1)
    }

    fn needs_order(&self, _array: usize) -> bool {
        false
    }

    fn encode<'a>(
        &self,
        array: usize,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        _stats: Vec<ChunkStats>,
        _scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        let own = self.member(array)?;
        let values = own.chunks.fixed(coords, columns, own.size)?;
        let bytes = to_little_endian(Cow::Borrowed(values), own.word);
        Ok(EncodedChunk::contiguous(coords, bytes, values.len()))
    }

    fn push(&self, array: usize, chunk: EncodedChunk<'_>) -> Result<()> {
        let own = self.member(array)?;
        let coords = chunk.coords.clone();
        let part = chunk.into_part()?;
        own.chunks.claim(&coords, ())?;
        let grid = own.chunks.grid();
        let runs = contiguous_runs(grid.shape(), &grid.region(&coords));
        let (run, starts) = runs.ok_or_else(|| own.chunks.invalid(&coords, "a box beyond 2^64"))?;
        let len = usize::try_from(run.saturating_mul(own.size)).unwrap_or(usize::MAX).max(1);
        let written = starts.zip(part.bytes.chunks(len)).try_for_each(|(first, bytes)| {
            let start = first * own.size;
            self.staged.write_at(own.cells() + start, bytes)?;
            // Checksums of chunks of other shapes are computed at the end.
            if part.bytes.len() <= len {
                let crc = crc32fast::hash(bytes);
                own.summed().push(Summed { start, len: bytes.len() as u64, crc });
            }
            Ok(())
        });
        written.inspect_err(|_| own.chunks.release(&coords))
    }

    fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        self.attributes = attributes;
        self.comment().map(drop)
    }

    fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        self.history.push(row);
        self.comment().map(drop)
    }

    fn set_parents(&mut self, parents: &[String]) -> bool {
        history::set_parents(&mut self.history, parents)
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.members.iter().try_for_each(|member| member.chunks.check_complete())?;
        let mut crcs = Vec::with_capacity(self.members.len());
        for member in &self.members {
            let crc = member.crc(&**self.staged)?;
            let local = [member.local_header(crc), member.header.clone()].concat();
            self.staged.write_at(member.local, &local)?;
            crcs.push(crc);
        }
        let end = directory(&self.members, &crcs, self.end, &self.comment()?);
        self.staged.write_at(self.end, &end)?;
        self.staged.set_len(self.end + end.len() as u64)?;
        publish_shared(self.staged)
    }
}
