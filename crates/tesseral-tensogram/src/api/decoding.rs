//! Decoding of messages into cells.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use tesseral_codec::bitset;
use tesseral_core::{DType, Error, alloc};
use tesseral_format::Scratch;
use tesseral_store::Buffer;
use xxhash_rust::xxh3::xxh3_64;

use super::error::{Result, TensogramError};
use super::object_blocks::ObjectBlocks;
use super::options::DecodeOptions;
use crate::array::Object;
use crate::decode::{decode as decode_cells, decode_window, frame_cells, window};
use crate::frame_reader::FrameReader;
use crate::message::Message;
use crate::pipeline::ObjectPipeline;
use crate::scan::message_at;
use crate::source::{Input, SliceInput};
use crate::wire::cbor::ErrorLocation;
use crate::wire::descriptor::Descriptor;
use crate::wire::frame::{Frame, FrameKind};
use crate::wire::metadata::Metadata;

/// An object's descriptor and cells. Uncompressed cells in the requested byte order are a view of the message.
pub type DecodedObject<'a> = (Descriptor, Cow<'a, [u8]>);
/// The decoder of an object, and its cells.
type DecoderWithCells<'a, I> = (ObjectDecoder<'a, I>, CellBytes<<I as Input>::ByteSlice>);

const BUFFER: &str = "a message";

/// Decodes all objects of the message at the start of a buffer.
///
/// # Errors
/// All kinds except `Object`. Damage anywhere in the message is an error.
pub fn decode<'a>(buffer: &'a [u8], options: &DecodeOptions) -> Result<(Metadata, Vec<DecodedObject<'a>>)> {
    let input = SliceInput { name: BUFFER, bytes: buffer };
    let opened = OpenedMessage::at(&input, 0, options)?;
    let metadata = opened.metadata()?;
    let mut objects = Vec::with_capacity(opened.message.object_count());
    for number in 0..opened.message.object_count() {
        let (descriptor, cells) = opened.object(number)?;
        objects.push((descriptor, cells.into()));
    }
    Ok((metadata, objects))
}

/// Returns the metadata of the message at the start of a buffer, merged with preceder metadata of its objects.
///
/// # Errors
/// `Framing`, `Metadata`, `HashMismatch`.
pub fn decode_metadata(buffer: &[u8], options: &DecodeOptions) -> Result<Metadata> {
    OpenedMessage::at(&SliceInput { name: BUFFER, bytes: buffer }, 0, options)?.metadata()
}

/// Returns metadata and descriptors of the message at the start of a buffer. Does not read payloads.
///
/// # Errors
/// `Framing`, `Metadata`, `HashMismatch`.
pub fn decode_descriptors(buffer: &[u8], options: &DecodeOptions) -> Result<(Metadata, Vec<Descriptor>)> {
    let input = SliceInput { name: BUFFER, bytes: buffer };
    let opened = OpenedMessage::at(&input, 0, options)?;
    Ok((opened.metadata()?, opened.descriptors()?))
}

/// Decodes one object of the message at the start of a buffer.
///
/// # Errors
/// As [`decode`], and `Object` when the index is out of bounds.
pub fn decode_object<'a>(
    buffer: &'a [u8],
    index: usize,
    options: &DecodeOptions,
) -> Result<(Metadata, Descriptor, Cow<'a, [u8]>)> {
    let input = SliceInput { name: BUFFER, bytes: buffer };
    let opened = OpenedMessage::at(&input, 0, options)?;
    let (descriptor, cells) = opened.object(index)?;
    Ok((opened.metadata()?, descriptor, cells.into()))
}

/// Decodes ranges of cells, each `(first, count)`, of one object of the message at the start of a buffer. Decodes only the
/// bytes that the codecs need, and verifies the hashes of their blocks, if the message has such hashes. Other objects have one hash over all of
/// them, which is verified only with [`verify_ranges`](DecodeOptions::verify_ranges) or [`require_hash`](DecodeOptions::require_hash).
///
/// # Errors
/// As [`decode_object`], and `Encoding` when a range exceeds the object.
pub fn decode_range<'a>(
    buffer: &'a [u8],
    index: usize,
    ranges: &[(u64, u64)],
    options: &DecodeOptions,
) -> Result<(Descriptor, Vec<Cow<'a, [u8]>>)> {
    let input = SliceInput { name: BUFFER, bytes: buffer };
    let whole = options.verify_ranges || options.require_hash;
    let options = DecodeOptions { verify_hash: options.verify_hash || whole, ..options.clone() };
    let opened = OpenedMessage { blocks_only: !whole, ..OpenedMessage::at(&input, 0, &options)? };
    let (descriptor, cells) = opened.ranges(index, ranges)?;
    Ok((descriptor, cells.into_iter().map(Cow::from).collect()))
}

/// Cells as a view of the message, or decoded.
pub(crate) enum CellBytes<P> {
    View(P),
    Decoded(DecodedCells),
}

/// Memory of decoded cells.
pub(crate) enum DecodedCells {
    Heap(Vec<u8>),
    /// In huge pages: new memory of small ones costs more than what is decoded into it.
    Large(Buffer),
}

impl DecodedCells {
    /// Zeros, or bytes that the caller must write.
    fn new(len: usize, large: bool) -> tesseral_core::Result<Self> {
        if large && len >= SHARED {
            return Ok(Self::Large(Buffer::new(len as u64, false)?));
        }
        Ok(Self::Heap(alloc::zeroed(OBJECT, len)?))
    }

    fn bytes(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            Self::Large(buffer) => buffer,
        }
    }
}

impl<'a> From<CellBytes<&'a [u8]>> for Cow<'a, [u8]> {
    fn from(cells: CellBytes<&'a [u8]>) -> Self {
        match cells {
            CellBytes::View(view) => Self::Borrowed(view),
            CellBytes::Decoded(DecodedCells::Heap(cells)) => Self::Owned(cells),
            CellBytes::Decoded(DecodedCells::Large(buffer)) => Self::Owned(buffer.to_vec()),
        }
    }
}

impl From<CellBytes<bytes::Bytes>> for bytes::Bytes {
    fn from(cells: CellBytes<bytes::Bytes>) -> Self {
        match cells {
            CellBytes::View(view) => view,
            CellBytes::Decoded(DecodedCells::Heap(cells)) => cells.into(),
            CellBytes::Decoded(DecodedCells::Large(buffer)) => Self::from_owner(buffer),
        }
    }
}

/// A message whose frame headers have been parsed.
pub(crate) struct OpenedMessage<'a, I> {
    pub reader: FrameReader<'a, I>,
    pub message: Message,
    options: &'a DecodeOptions,
    verified: Option<&'a VerifiedObjects>,
    /// Ranges of objects without hashes of blocks are not verified.
    blocks_only: bool,
}

/// What was verified of an open file, by the offsets of object frames.
#[derive(Debug, Default)]
pub(crate) struct VerifiedObjects {
    whole: RwLock<HashSet<u64>>,
    /// The blocks of some objects; `None` for objects without.
    blocks: RwLock<HashMap<u64, Option<Arc<ObjectBlocks>>>>,
}

/// Number of objects whose blocks are remembered.
const MAX_KEPT: usize = 64;

impl VerifiedObjects {
    fn contains(&self, frame: &Frame) -> bool {
        self.whole.read().unwrap_or_else(PoisonError::into_inner).contains(&frame.offset)
    }

    fn insert(&self, frame: &Frame) {
        self.whole.write().unwrap_or_else(PoisonError::into_inner).insert(frame.offset);
    }

    fn blocks(&self, frame: &Frame) -> Option<Option<Arc<ObjectBlocks>>> {
        self.blocks.read().unwrap_or_else(PoisonError::into_inner).get(&frame.offset).cloned()
    }

    fn keep_blocks(&self, frame: &Frame, blocks: Option<Arc<ObjectBlocks>>) {
        let mut kept = self.blocks.write().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(frame.offset, blocks);
    }
}

impl<'a, I: Input> OpenedMessage<'a, I> {
    /// Parses the message that begins at `at`.
    pub(crate) fn at(input: &'a I, at: u64, options: &'a DecodeOptions) -> Result<Self> {
        let len = match message_at(input, at, &mut HashSet::new())? {
            Ok(len) => len,
            Err(refused) => {
                let error = match refused.version {
                    Some(version) => Error::unsupported(version),
                    None => Error::corrupt(refused.check, input.name(), at, refused.detail),
                };
                return Err(TensogramError::Framing(error));
            }
        };
        Self::new(input, at, len, options)
    }

    /// Parses the frames of a message whose extent is known.
    pub(crate) fn new(input: &'a I, offset: u64, len: u64, options: &'a DecodeOptions) -> Result<Self> {
        let message = Message::walk(input, offset, len, false)?;
        if let Some(fault) = message.fault() {
            let error = fault.error(input.name());
            return Err(if fault.check == "no_metadata_frame" {
                TensogramError::Metadata(error)
            } else {
                TensogramError::Framing(error)
            });
        }
        // Hashes are compared below, so that a mismatch is reported as `HashMismatch`.
        let reader = FrameReader { input, limits: options.limits, digests: false };
        Ok(Self { reader, message, options, verified: None, blocks_only: false })
    }

    /// Verifies the hash of an object only if it is not among the verified ones.
    pub(crate) fn remembering(self, verified: &'a VerifiedObjects) -> Self {
        Self { verified: Some(verified), ..self }
    }

    /// Returns the metadata after verifying the hashes of its frames.
    pub(crate) fn metadata(&self) -> Result<Metadata> {
        let counts = self.message.metadata_frame();
        let preceders = self.message.frames.iter().filter(|frame| frame.kind == FrameKind::Preceder);
        for frame in counts.into_iter().chain(preceders) {
            let body = frame.body();
            self.reader.limits.check_metadata(body.end - body.start)?;
            let bytes = self.reader.input.get(body, "metadata")?;
            check_hash(frame, self.message.preamble.flags, None, &bytes, self.options)?;
        }
        Ok(self.reader.metadata(&self.message)?)
    }

    /// Returns the descriptors of all objects without verifying hashes, which also cover the payloads.
    pub(crate) fn descriptors(&self) -> Result<Vec<Descriptor>> {
        let objects = self.message.objects().map(|frame| Ok(self.reader.object(frame)?.descriptor));
        objects.collect()
    }

    fn frame(&self, index: usize) -> Result<&Frame> {
        let count = self.message.object_count();
        self.message.object(index).ok_or(TensogramError::Object { what: "object", index, count })
    }

    /// Decodes all cells of an object.
    pub(crate) fn object(&self, index: usize) -> Result<(Descriptor, CellBytes<I::ByteSlice>)> {
        if let Some((work, cells)) = self.decode_while_hashing(index)? {
            return Ok((work.object.descriptor, cells));
        }
        let work = self.open_object(index)?;
        let cells = work.all_cells(self.options)?;
        Ok((work.object.descriptor, cells))
    }

    /// Decodes all cells of a large object while another thread computes its hash; `None` if it has none, or it is known to be right.
    fn decode_while_hashing(&self, index: usize) -> Result<Option<DecoderWithCells<'a, I>>> {
        let (frame, flags) = (self.frame(index)?, self.message.preamble.flags);
        let wanted = self.options.verify_hash || self.options.require_hash;
        let known = self.verified.is_some_and(|verified| verified.contains(frame));
        let range = frame.body();
        let large = range.end - range.start >= SHARED as u64 && self.options.threads() > 1;
        let Some(expected) = frame.expected_hash(flags).filter(|_| wanted && !known && large) else {
            return Ok(None);
        };
        let body = self.reader.input.get(range, "object")?;
        let compared = |actual: u64| match actual == expected {
            true => Ok(()),
            false => Err(TensogramError::HashMismatch { object_index: Some(index), expected, actual }),
        };
        let work = match parsed_frame(&self.reader, frame, index, None, None) {
            Ok(work) => ObjectDecoder { body: Some(body), ..work },
            // A damaged descriptor is reported as a mismatch.
            Err(error) => return compared(xxh3_64(&body)).and(Err(error)),
        };
        let bytes = work.body.as_deref().unwrap_or_default();
        let cells = if work.is_view(self.options) {
            let hashes = match bytes.len() >= SHARED_HASH {
                true => self.blocks(index, frame).ok().flatten(),
                false => None,
            };
            let threads = self.options.threads();
            let verified = hashes.is_some_and(|hashes| hashes.verify_all(bytes, threads));
            if verified { Ok(()) } else { compared(xxh3_64(bytes)) }
                .and_then(|()| work.all_cells(self.options))
        } else {
            std::thread::scope(|scope| {
                let hash = scope.spawn(|| xxh3_64(bytes));
                let cells = work.all_cells(self.options);
                let hash = hash.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                compared(hash).and(cells)
            })
        }?;
        if let Some(verified) = self.verified {
            verified.insert(frame);
        }
        Ok(Some((work, cells)))
    }

    /// Decodes ranges of cells of an object.
    pub(crate) fn ranges(
        &self,
        index: usize,
        ranges: &[(u64, u64)],
    ) -> Result<(Descriptor, Vec<CellBytes<I::ByteSlice>>)> {
        let work = self.open_for_ranges(index)?;
        let count = work.object.cells;
        let mut out = Vec::with_capacity(ranges.len());
        let mut whole: Option<Vec<u8>> = None;
        for (first, n) in ranges {
            let end = first.checked_add(*n).filter(|end| *end <= count);
            let end = end.ok_or_else(|| {
                Error::invalid(format!("range of {n} cells at {first} exceeds an object of {count} cells"))
            })?;
            let size = work.object.descriptor.dtype.size();
            out.push(match size {
                Some(size) if work.is_view(self.options) => {
                    let start = work.object.payload.start;
                    CellBytes::View(work.piece(&(start + first * size as u64..start + end * size as u64))?)
                }
                Some(_) if work.pipeline.seeks(work.object.descriptor.dtype) => {
                    CellBytes::Decoded(work.decode(*first..end, self.options, false)?)
                }
                Some(size) if whole.is_none() && work.frame_cells(self.options)?.is_some() => {
                    // The frames that hold the range.
                    let frame = work.frame_cells(self.options)?.unwrap_or(1);
                    let frames = first / frame * frame..end.div_ceil(frame).saturating_mul(frame).min(count);
                    let (start, end) = (first - frames.start, end - frames.start);
                    let mut cells = work.decode(frames, self.options, false)?;
                    CellBytes::Decoded(DecodedCells::Heap(cut_cells(cells.bytes(), Some(size), start, end)))
                }
                _ => {
                    if whole.is_none() {
                        whole = Some(work.decode_all(self.options)?);
                    }
                    let whole = whole.as_deref().unwrap_or_default();
                    CellBytes::Decoded(DecodedCells::Heap(cut_cells(whole, size, *first, end)))
                }
            });
        }
        Ok((work.object.descriptor, out))
    }

    fn open_object(&self, index: usize) -> Result<ObjectDecoder<'a, I>> {
        let (frame, flags) = (self.frame(index)?, self.message.preamble.flags);
        let open = |options| open_frame(&self.reader, frame, flags, index, options, None);
        let Some(verified) = self.verified.filter(|_| self.options.verify_hash || self.options.require_hash)
        else {
            return open(self.options);
        };
        if verified.contains(frame) {
            let trusted = DecodeOptions { verify_hash: false, require_hash: false, ..self.options.clone() };
            return open(&trusted);
        }
        let opened = open(self.options)?;
        if opened.body.is_some() {
            verified.insert(frame);
        }
        Ok(opened)
    }

    /// Opens an object of which ranges of cells are decoded: the hashes of the blocks that they touch are verified, if there are such.
    fn open_for_ranges(&self, index: usize) -> Result<ObjectDecoder<'a, I>> {
        let (frame, flags) = (self.frame(index)?, self.message.preamble.flags);
        let known = self.verified.is_some_and(|verified| verified.contains(frame));
        let blocks = match self.options.verify_hash || self.options.require_hash {
            true if !known => self.blocks(index, frame)?,
            _ => None,
        };
        if blocks.is_none() && !self.blocks_only {
            return self.open_object(index);
        }
        let trusted = DecodeOptions { verify_hash: false, require_hash: false, ..self.options.clone() };
        open_frame(&self.reader, frame, flags, index, &trusted, blocks)
    }

    /// Returns the blocks of an object, if its message has hashes of them.
    fn blocks(&self, index: usize, frame: &Frame) -> Result<Option<Arc<ObjectBlocks>>> {
        if let Some(known) = self.verified.and_then(|verified| verified.blocks(frame)) {
            return Ok(known);
        }
        let hashes = self.reader.block_hashes(&self.message, index, frame)?;
        let blocks = hashes.map(|hashes| Arc::new(ObjectBlocks::new(index, frame, hashes)));
        if let Some(verified) = self.verified {
            verified.keep_blocks(frame, blocks.clone());
        }
        Ok(blocks)
    }
}

/// Verifies the hash of a frame's body, if it has one.
pub(crate) fn check_hash(
    frame: &Frame,
    message_flags: u16,
    object_index: Option<usize>,
    body: &[u8],
    options: &DecodeOptions,
) -> Result<()> {
    match (frame.expected_hash(message_flags), object_index) {
        (None, Some(object_index)) if options.require_hash => {
            Err(TensogramError::MissingHash { object_index })
        }
        (Some(expected), _) if options.verify_hash || options.require_hash => {
            let actual = xxh3_64(body);
            if actual == expected {
                return Ok(());
            }
            Err(TensogramError::HashMismatch { object_index, expected, actual })
        }
        _ => Ok(()),
    }
}

/// Opens an object. Reads the whole frame when its hash is verified; otherwise reads on demand, and verifies the `blocks` of what it reads.
pub(crate) fn open_frame<'a, I: Input>(
    reader: &FrameReader<'a, I>,
    frame: &Frame,
    message_flags: u16,
    index: usize,
    options: &DecodeOptions,
    blocks: Option<Arc<ObjectBlocks>>,
) -> Result<ObjectDecoder<'a, I>> {
    let hashed = frame.expected_hash(message_flags).is_some();
    let body = if options.require_hash || options.verify_hash && hashed {
        let body = reader.input.get(frame.body(), "object")?;
        check_hash(frame, message_flags, Some(index), &body, options)?;
        Some(body)
    } else {
        None
    };
    parsed_frame(reader, frame, index, body, blocks)
}

/// Opens an object without verifying its hash.
fn parsed_frame<'a, I: Input>(
    reader: &FrameReader<'a, I>,
    frame: &Frame,
    index: usize,
    body: Option<I::ByteSlice>,
    blocks: Option<Arc<ObjectBlocks>>,
) -> Result<ObjectDecoder<'a, I>> {
    let named = |error: Error| error.in_array(index.to_string());
    if let Some(blocks) = &blocks {
        blocks.get(reader.input, &(frame.offset + frame.cbor_offset..frame.body().end))?;
    }
    let object = reader.object(frame).map_err(named)?;
    let name = reader.input.name();
    let place = ErrorLocation { what: "descriptor", object: name, offset: object.cbor.start };
    let pipeline = ObjectPipeline::from_descriptor(&object.descriptor, place).map_err(named)?;
    let stored = object.payload.end - object.payload.start;
    if pipeline.plain() && stored != pipeline.coded_len {
        let detail = format!("expected {} bytes, found {stored}", pipeline.coded_len);
        return Err(named(Error::corrupt("payload", name, object.payload.start, detail)).into());
    }
    Ok(ObjectDecoder { object, pipeline, input: reader.input, body, start: frame.body().start, blocks })
}

/// A range of cells of an object.
fn cut_cells(whole: &[u8], size: Option<usize>, first: u64, end: u64) -> Vec<u8> {
    match size {
        Some(size) => whole[first as usize * size..end as usize * size].to_vec(),
        None => {
            let mut bits = vec![0; (end - first).div_ceil(8) as usize];
            for at in (first..end).filter(|at| bitset::get(whole, *at)) {
                let to = at - first;
                bits[(to / 8) as usize] |= 0x80 >> (to % 8);
            }
            bits
        }
    }
}

/// Minimum size in bytes of decoded cells for parallel decoding.
const SHARED: usize = 1 << 20;

/// Minimum size in bytes of a body that is hashed by several threads.
const SHARED_HASH: usize = 32 << 20;

/// Label of allocations in limit errors.
const OBJECT: &str = "a decoded object";

/// An object of an input.
pub(crate) struct ObjectDecoder<'a, I: Input> {
    pub object: Object,
    pipeline: ObjectPipeline,
    input: &'a I,
    /// The frame's body, if it was read to verify the hash.
    body: Option<I::ByteSlice>,
    /// Offset of the body in the file.
    start: u64,
    /// Blocks that are verified when they are read.
    blocks: Option<Arc<ObjectBlocks>>,
}

impl<I: Input> ObjectDecoder<'_, I> {
    /// Returns a byte range of the file that lies in the frame's body.
    fn piece(&self, range: &Range<u64>) -> Result<I::ByteSlice> {
        let at = |offset: u64| (offset - self.start) as usize;
        match (&self.body, &self.blocks) {
            (Some(body), _) => Ok(I::slice(body, at(range.start)..at(range.end))),
            (None, Some(blocks)) => blocks.get(self.input, range),
            (None, None) => Ok(self.input.get(range.clone(), "object")?),
        }
    }

    /// Returns all cells.
    fn all_cells(&self, options: &DecodeOptions) -> Result<CellBytes<I::ByteSlice>> {
        if self.is_view(options) {
            return Ok(CellBytes::View(self.piece(&self.object.payload)?));
        }
        Ok(CellBytes::Decoded(self.decode(0..self.object.cells, options, I::KEEPS)?))
    }

    /// Returns whether the stored bytes equal the requested cells, so that no decoding is needed.
    fn is_view(&self, options: &DecodeOptions) -> bool {
        let dtype = self.object.descriptor.dtype;
        let clean = dtype != DType::Bitmask || self.object.cells.is_multiple_of(8);
        self.pipeline.plain()
            && self.pipeline.packing.is_none()
            && (self.object.masks.is_empty() || !options.restore_non_finite)
            && !(options.native_byte_order && self.object.swapped())
            && clean
    }

    /// The value of all cells of a constant object, which stores no cells.
    pub(crate) fn constant(&self) -> Option<[u8; 8]> {
        self.pipeline.constant().filter(|_| self.object.masks.is_empty())
    }

    pub(crate) fn decode_all(&self, options: &DecodeOptions) -> Result<Vec<u8>> {
        match self.decode(0..self.object.cells, options, false)? {
            DecodedCells::Heap(cells) => Ok(cells),
            DecodedCells::Large(buffer) => Ok(buffer.to_vec()),
        }
    }

    /// Number of cells of each frame of the payload, if there are several that decode by themselves.
    fn frame_cells(&self, options: &DecodeOptions) -> Result<Option<u64>> {
        let masked = options.restore_non_finite && !self.object.masks.is_empty();
        if masked || !self.pipeline.framed() {
            return Ok(None);
        }
        Ok(frame_cells(&self.object, &self.pipeline, &self.piece(&self.object.payload)?))
    }

    /// Bit set of masked cells, most significant bit first; `None` without masks.
    pub(crate) fn masked(&self) -> Result<Vec<u8>> {
        let mut blobs = Vec::new();
        for (_, span) in &self.object.masks {
            blobs.push(self.piece(span)?);
        }
        Ok(self.object.masked(&blobs)?)
    }

    /// Decodes a range of cells; all cells unless the pipeline [seeks](ObjectPipeline::seeks) or the range is one of frames. `large`
    /// results are in huge pages.
    fn decode(&self, cells: Range<u64>, options: &DecodeOptions, large: bool) -> Result<DecodedCells> {
        let count = cells.end - cells.start;
        let dtype = self.object.descriptor.dtype;
        let len = match dtype.size() {
            Some(size) => count * size as u64,
            None => count.div_ceil(8),
        };
        options.limits.check_decoded(len, self.object.stored_len())?;
        let len = usize::try_from(len).map_err(|_| Error::limit("an object", len, usize::MAX as u64))?;
        let bare;
        let mut object = &self.object;
        if !options.restore_non_finite && !object.masks.is_empty() {
            bare = Object { masks: Vec::new(), ..object.clone() };
            object = &bare;
        }
        let mut values;
        match self.pipeline.packing {
            // Packed values are written sequentially into uninitialized memory.
            Some(packing)
                if self.pipeline.plain()
                    && object.masks.is_empty()
                    && (len < SHARED || options.threads() == 1) =>
            {
                let (bytes, skip) = window(&self.pipeline, dtype, &cells).unwrap_or_default();
                let start = object.payload.start;
                let payload = self.piece(&(start + bytes.start..start + bytes.end))?;
                let mut unpacked = alloc::with_capacity(OBJECT, len)?;
                packing.decode(&payload, skip, len / 8, &mut unpacked)?;
                values = DecodedCells::Heap(unpacked);
            }
            _ => {
                values = DecodedCells::new(len, large)?;
                self.decode_into(object, cells, values.bytes(), options)?;
            }
        }
        if !options.native_byte_order && self.object.swapped() {
            values.bytes().chunks_exact_mut(dtype.word()).for_each(<[u8]>::reverse);
        }
        Ok(values)
    }

    fn decode_into(
        &self,
        object: &Object,
        cells: Range<u64>,
        values: &mut [u8],
        options: &DecodeOptions,
    ) -> Result<()> {
        let pipeline = &self.pipeline;
        let dtype = object.descriptor.dtype;
        let masks = object.masks.iter().map(|(_, span)| self.piece(span)).collect::<Result<Vec<_>>>()?;
        let blobs: Vec<&[u8]> = masks.iter().map(|blob| &blob[..]).collect();
        // Uncompressed payloads are read by range, others completely.
        let of =
            |cells: &Range<u64>| window(pipeline, dtype, cells).map(|(bytes, _)| bytes).unwrap_or_default();
        let all = if pipeline.plain() { of(&cells) } else { 0..object.payload.end - object.payload.start };
        let start = object.payload.start;
        let payload = self.piece(&(start + all.start..start + all.end))?;
        let payload = &payload[..];
        let parts: Vec<&[u8]> = std::iter::once(payload).chain(blobs.iter().copied()).collect();
        let name = self.input.name();
        let run = |cells: Range<u64>, values: &mut [u8]| {
            let scratch = &mut Scratch::default();
            if !pipeline.plain() {
                return decode_cells(object, pipeline, name, &parts, cells, values, scratch);
            }
            let bytes = of(&cells);
            let bytes = &payload[(bytes.start - all.start) as usize..(bytes.end - all.start) as usize];
            decode_window(object, pipeline, bytes, &blobs, &cells, values, scratch)
        };
        let threads = if values.len() < SHARED { 1 } else { options.threads() };
        // Every eighth packed value is byte-aligned.
        let granule = match pipeline.seeks(dtype) && (pipeline.packing.is_some() || !pipeline.plain()) {
            _ if threads == 1 => None,
            true => Some(8),
            false => frame_cells(object, pipeline, payload),
        };
        match dtype.size().zip(granule.and_then(|granule| usize::try_from(granule).ok())) {
            Some((size, granule)) => share(threads, size, granule, cells, values, run),
            None => Ok(run(cells, values)?),
        }
    }
}

/// Decodes a range of cells in one piece per thread, each of whole granules into a disjoint part of `values`.
fn share(
    threads: usize,
    size: usize,
    granule: usize,
    cells: Range<u64>,
    values: &mut [u8],
    decode: impl Fn(Range<u64>, &mut [u8]) -> tesseral_core::Result<()> + Sync,
) -> Result<()> {
    let each = (values.len() / size).div_ceil(threads).next_multiple_of(granule.max(1));
    let pieces = cells.clone().step_by(each).zip(values.chunks_mut(each * size));
    let mut pieces = pieces.map(|(start, part)| (start..cells.end.min(start + each as u64), part));
    let (first, decode) = (pieces.next(), &decode);
    std::thread::scope(|scope| {
        let others: Vec<_> = pieces.map(|(cells, part)| scope.spawn(move || decode(cells, part))).collect();
        // The calling thread decodes the last piece.
        let done = first.map_or(Ok(()), |(cells, part)| decode(cells, part));
        for other in others {
            other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(done?)
    })
}
