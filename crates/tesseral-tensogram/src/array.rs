//! One object as an array. An object is a single chunk.

use std::borrow::Cow;
use std::ops::{Deref, Range};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use smallvec::SmallVec;
use tesseral_codec::aec;
use tesseral_core::dtype::Class;
use tesseral_core::schema::Labels;
use tesseral_core::{
    ArraySchema, ChunkStats, Coords, Error, ErrorKind, Limits, Region, Result, Value, alloc,
};
use tesseral_format::{
    Access, ArraySource, CellFault, ChunkInfo, ChunkPlan, Column, ColumnMut, Cover, Depth, Digest,
    DigestSpan, DigestSpans, Part, Planned, PlannedChunk, Request, Role, Scratch, Uncovered,
};
use tesseral_store::Rounds;
use xxhash_rust::xxh3::xxh3_64;

use crate::audit::{is_inexact, non_finite_faults};
use crate::compress::decode_mask;
use crate::decode::{decode_window, frame_cells, window};
use crate::object_name::{self, NAME};
use crate::open::{MessageCatalog, values};
use crate::pipeline::ObjectPipeline;
use crate::source::Input;
use crate::wire::block_hashes::BlockHashes;
use crate::wire::cbor::{self, CborItem, ErrorLocation, Map};
use crate::wire::descriptor::{Descriptor, Mask};
use crate::wire::frame::{CBOR_AFTER, Frame, HEADER_LEN};

/// Number of bytes read first for a descriptor that precedes its payload.
const FIRST: u64 = 4 << 10;

/// Maximum size of a mask, in bytes, that is decoded again for each piece of an object.
const LARGE_MASK: u64 = 1 << 20;

/// Label of allocations in limit errors.
const MASK: &str = "a mask";

/// One object of an opened file.
#[derive(Debug)]
pub(crate) struct TensogramArray {
    catalog: Arc<MessageCatalog>,
    schema: ArraySchema,
    /// Index of the message in the file, and of the object in the message.
    number: (usize, usize),
    frame: Frame,
    /// Expected hash of the frame's body.
    hash: Option<u64>,
    /// Hashes of its blocks, once they were read.
    blocks: OnceLock<Option<BlockHashes>>,
    pub object: Object,
}

/// Content of an object frame.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub descriptor: Descriptor,
    /// Byte range of the descriptor in the file.
    pub cbor: Range<u64>,
    /// Byte range of the encoded payload in the file.
    pub payload: Range<u64>,
    /// Masks and the byte ranges of their blobs in the file.
    pub masks: Vec<(Mask, Range<u64>)>,
    /// Number of cells.
    pub cells: u64,
    /// Size of the decoded cells in bytes.
    pub raw_len: u64,
    /// Offsets of the intervals of an szip stream: stored ones, and those found while decoding ranges.
    pub szip: Arc<Mutex<aec::RsiIndex>>,
}

impl Object {
    /// Stored size of payload and masks in bytes.
    pub(crate) fn stored_len(&self) -> u64 {
        self.parts().map(|(_, span)| span.end - span.start).fold(0, u64::saturating_add)
    }
}

/// Returns the block offsets stored in the descriptor of an szip payload; empty if they are absent or invalid.
fn szip_offsets(descriptor: &Descriptor) -> Vec<u64> {
    match descriptor.params.get("szip_block_offsets") {
        Some(CborItem::Array(offsets)) => {
            offsets.iter().map(CborItem::as_u64).collect::<Option<_>>().unwrap_or_default()
        }
        _ => Vec::new(),
    }
}

/// Reads the descriptor of an object frame. Returns its CBOR item and byte range in the file.
pub(crate) fn descriptor_item<I: Input>(
    source: &I,
    limits: &Limits,
    frame: &Frame,
) -> Result<(CborItem, Range<u64>)> {
    let what = "descriptor";
    let start = frame.offset + frame.cbor_offset;
    let place = ErrorLocation { what, object: source.name(), offset: start };
    let end = frame.body().end;
    if frame.flags & CBOR_AFTER != 0 {
        limits.check_metadata(end - start)?;
        let (item, _) = cbor::parse_within(&source.get(start..end, what)?, limits, place)?;
        return Ok((item, start..end));
    }
    // The length of a descriptor before the payload is known only after parsing.
    let mut len = FIRST.min(end - start);
    loop {
        limits.check_metadata(len)?;
        let bytes = source.get(start..start + len, what)?;
        match cbor::parse_within(&bytes, limits, place) {
            Ok((item, used)) => return Ok((item, start..start + used as u64)),
            Err(error) if start + len == end || matches!(error.kind(), ErrorKind::Limit { .. }) => {
                return Err(error);
            }
            Err(_) => len = (len * 4).min(end - start),
        }
    }
}

impl Object {
    pub(crate) fn read<I: Input>(source: &I, limits: &Limits, frame: &Frame) -> Result<Self> {
        let (item, cbor) = descriptor_item(source, limits, frame)?;
        let place = ErrorLocation { what: "descriptor", object: source.name(), offset: cbor.start };
        let descriptor = Descriptor::from_item(item, place)?;
        Self::locate_parts(descriptor, frame, cbor, place)
    }

    /// Locates payload and masks.
    fn locate_parts(
        descriptor: Descriptor,
        frame: &Frame,
        cbor: Range<u64>,
        place: ErrorLocation<'_>,
    ) -> Result<Self> {
        let region = if frame.flags & CBOR_AFTER != 0 {
            frame.offset + HEADER_LEN..cbor.start
        } else {
            cbor.end..frame.body().end
        };
        let mut masks = Vec::new();
        for mask in &descriptor.masks {
            let start = region.start.checked_add(mask.offset);
            let end = start.and_then(|start| start.checked_add(mask.length)).filter(|end| *end <= region.end);
            let (Some(start), Some(end)) = (start, end) else {
                let detail = format!("mask {} lies outside the payload region", mask.kind.key());
                return Err(place.corrupt(detail));
            };
            masks.push((mask.clone(), start..end));
        }
        if !masks.is_empty() && !matches!(descriptor.dtype.class(), Class::Float | Class::Complex) {
            return Err(place.corrupt(format!("masks of {}", descriptor.dtype)));
        }
        let payload = region.start..masks.iter().map(|(_, span)| span.start).min().unwrap_or(region.end);
        let overflow = || place.corrupt(format!("shape {:?} has too many cells", descriptor.shape));
        let (cells, raw_len) = descriptor.cells().zip(descriptor.raw_len()).ok_or_else(overflow)?;
        let szip = Arc::new(Mutex::new(aec::RsiIndex::from_offsets(szip_offsets(&descriptor))));
        Ok(Self { descriptor, cbor, payload, masks, cells, raw_len, szip })
    }

    /// Decodes the masks into one: bit `7 - i % 8` of byte `i / 8` is set if any of them names cell `i`. Empty without masks.
    pub(crate) fn masked<P: Deref<Target = [u8]>>(&self, blobs: &[P]) -> Result<Vec<u8>> {
        if blobs.len() != self.masks.len() {
            return Err(Error::internal(format!("{} masks, {} blobs", self.masks.len(), blobs.len())));
        }
        let len = usize::try_from(self.cells.div_ceil(8))
            .map_err(|_| Error::limit("a mask", self.cells, usize::MAX as u64))?;
        let mut named = Vec::new();
        for ((mask, _), blob) in self.masks.iter().zip(blobs) {
            let mut bits = alloc::zeroed(MASK, len)?;
            decode_mask(mask, blob, self.cells, &mut bits, &mut Scratch::default().contexts)?;
            alloc::resize(MASK, &mut named, len, 0)?;
            named.iter_mut().zip(bits).for_each(|(named, bits)| *named |= bits);
        }
        Ok(named)
    }

    /// Byte ranges of the stored bytes in decoding order: payload, masks. Either can be empty.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Role, Range<u64>)> {
        let masks = self.masks.iter().map(|(_, span)| (Role::Mask, span.clone()));
        std::iter::once((Role::Values, self.payload.clone())).chain(masks)
    }

    /// Returns whether cells must be byte-swapped to native order.
    pub(crate) fn swapped(&self) -> bool {
        let big = self.descriptor.big_endian.unwrap_or(cfg!(target_endian = "big"));
        big != cfg!(target_endian = "big") && self.descriptor.dtype.word() > 1
    }

    fn error_location<'a>(&self, object: &'a str) -> ErrorLocation<'a> {
        ErrorLocation { what: "descriptor", object, offset: self.cbor.start }
    }
}

impl TensogramArray {
    pub(crate) fn open(
        catalog: &Arc<MessageCatalog>,
        message: usize,
        number: usize,
        name: &str,
    ) -> Result<Self> {
        let missing = || Error::not_found("array", name, Vec::new());
        let held = catalog.message(message)?;
        if let Some(fault) = held.fault() {
            return Err(fault.error(&catalog.source.object));
        }
        let frame = *held.object(number).ok_or_else(missing)?;
        let object = match catalog.source.as_slice() {
            Some(slice) => Object::read(&slice, &catalog.limits, &frame)?,
            None => Object::read(&catalog.source, &catalog.limits, &frame)?,
        };
        if object.cells == 0 {
            // An empty array has no chunk whose digest is verified. A damaged shape must not pass as empty.
            catalog.reader().body(&held, &frame, "object")?;
        }
        let metadata = catalog.metadata(message)?;
        let base = metadata.base.get(number);
        let schema = schema(name, &object.descriptor, base);
        let hash = frame.expected_hash(held.preamble.flags);
        let (catalog, number, blocks) = (Arc::clone(catalog), (message, number), OnceLock::new());
        Ok(Self { catalog, schema, number, frame, hash, blocks, object })
    }

    /// Reads the hashes of blocks, if the object has them and is resident, or only a part of it is requested. Verifies the blocks of the
    /// descriptor, which later requests need not touch.
    fn load_blocks(&self, part: bool) -> Result<()> {
        let source = &self.catalog.source;
        let wanted = self.catalog.digests && self.hash.is_some() && (part || source.as_slice().is_some());
        if !wanted || self.blocks.get().is_some() {
            return Ok(());
        }
        let (message, number) = self.number;
        let message = self.catalog.message(message)?;
        let blocks = self.catalog.reader().block_hashes(&message, number, &self.frame)?;
        if let Some(blocks) = &blocks {
            let (body, cbor) = (self.frame.body(), &self.object.cbor);
            let first = (cbor.start - body.start) / blocks.block;
            let start = body.start + first * blocks.block;
            let bytes = source.get(start..body.end, "object")?;
            let stored = blocks.hashes.iter().skip(usize::try_from(first).unwrap_or(usize::MAX));
            let parts = bytes.chunks(usize::try_from(blocks.block).unwrap_or(usize::MAX));
            for (part, expected) in parts.zip(stored) {
                let found = xxh3_64(part);
                if found != *expected {
                    let detail = format!(
                        "checksum mismatch in the descriptor: expected {expected:016x}, computed {found:016x}"
                    );
                    return Err(Error::corrupt("a chunk", &source.object, start, detail));
                }
            }
        }
        // Another thread read the same.
        let _ = self.blocks.set(blocks);
        Ok(())
    }

    /// Returns the codecs of the payload.
    pub(crate) fn pipeline(&self) -> Result<ObjectPipeline> {
        let place = self.object.error_location(&self.catalog.source.object);
        let pipeline = ObjectPipeline::from_descriptor(&self.object.descriptor, place)?;
        let stored = self.object.payload.end - self.object.payload.start;
        if pipeline.plain() && stored != pipeline.coded_len {
            let detail = format!("expected {} bytes, found {stored}", pipeline.coded_len);
            return Err(Error::corrupt(
                "payload",
                &self.catalog.source.object,
                self.object.payload.start,
                detail,
            ));
        }
        Ok(pipeline)
    }

    /// Returns the stored bytes of a range of cells if the chunk was [narrowed](ArraySource::narrow).
    fn narrowed(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        parts: &[Bytes],
        pipeline: &ObjectPipeline,
        cells: &Range<u64>,
    ) -> Result<Option<Bytes>> {
        let values = chunk.column_parts(column).map(|(_, part)| part).find(|part| part.role == Role::Values);
        let (Some(part), Some(held)) = (values, parts.first()) else { return Ok(None) };
        let payload = &self.object.payload;
        if !pipeline.plain() || (part.offset == payload.start && part.len == payload.end - payload.start) {
            return Ok(None);
        }
        let outside = || Error::internal(format!("cells {cells:?} are outside the narrowed chunk"));
        let (bytes, _) = window(pipeline, self.object.descriptor.dtype, cells).ok_or_else(outside)?;
        let skipped = part.offset.checked_sub(payload.start).ok_or_else(outside)?;
        let place = |at: u64| at.checked_sub(skipped).and_then(|at| usize::try_from(at).ok());
        let range = place(bytes.start).zip(place(bytes.end)).filter(|(_, end)| *end <= held.len());
        let (start, end) = range.ok_or_else(outside)?;
        Ok(Some(held.slice(start..end)))
    }

    fn plan_all(&self, columns: &[Column], region: &Region) -> Result<PlannedChunk> {
        let pipeline = self.pipeline()?;
        let dtype = self.object.descriptor.dtype;
        // Ranges of cells are decoded into buffers of their size.
        if !pipeline.seeks(dtype) {
            self.catalog.limits.check_decoded(self.object.raw_len, self.object.stored_len())?;
        }
        let access = match (pipeline.seeks(dtype), dtype.size()) {
            (false, _) => Access::Coded { granule: None },
            (true, None) => Access::Coded { granule: Some(8) },
            (true, Some(_))
                if pipeline.plain() && pipeline.packing.is_none() && self.object.masks.is_empty() =>
            {
                Access::Direct { swapped: self.object.swapped() }
            }
            (true, Some(_)) => Access::Coded { granule: Some(1) },
        };
        let mut parts: SmallVec<[Part; 1]> = SmallVec::new();
        for column in columns {
            parts.extend(self.object.parts().map(|(role, span)| Part {
                column: *column,
                role,
                object: 0,
                offset: span.start,
                len: span.end - span.start,
            }));
        }
        let (cover, cells) = (Cover::Exact(region.clone()), self.object.cells);
        Ok(PlannedChunk { id: 0, cover, tile: None, layer: 0, cells, parts, access, whole: true })
    }
}

fn schema(name: &str, descriptor: &Descriptor, base: Option<&Map>) -> ArraySchema {
    let shape = &descriptor.shape;
    let chunk: Vec<u64> = shape.iter().map(|n| (*n).max(1)).collect();
    let mut schema = ArraySchema::dense(name, descriptor.dtype, shape, &chunk);
    let codecs = [&descriptor.encoding, &descriptor.filter, &descriptor.compression];
    schema.fields[0].codecs = codecs.into_iter().filter(|codec| *codec != "none").cloned().collect();
    let Some(base) = base else { return schema };
    schema.attributes = values(base.iter());
    object_name::restore(&mut schema.attributes);
    if let Some(name) = given_name(&schema) {
        schema.fields[0].name = name.to_owned();
    }
    if let Some(Value::List(names)) = schema.attributes.get(DIM_NAMES)
        && names.len() == shape.len()
    {
        for (dim, name) in schema.dims.iter_mut().zip(names) {
            if let Value::Text(name) = name {
                dim.name.clone_from(name);
            }
        }
    }
    if let Some(Value::List(labels)) = schema.attributes.get(DIM_LABELS)
        && labels.len() == shape.len()
    {
        for (dim, labels) in schema.dims.iter_mut().zip(labels) {
            dim.labels = text_labels(labels).filter(|labels| Some(labels.len() as u64) == dim.extent);
        }
    }
    tesseral_core::missing::declare(&mut schema);
    schema.fields[0].fill = schema.fields[0].missing.first().cloned();
    schema
}

/// The name in the metadata of an object.
fn given_name(schema: &ArraySchema) -> Option<&str> {
    match schema.attributes.get(NAME) {
        Some(Value::Text(name)) if !name.is_empty() => Some(name),
        _ => None,
    }
}

/// Derived keys of an object: its name, the names of its dimensions, their labels.
pub(crate) const DERIVED: [&str; 3] = [NAME, DIM_NAMES, DIM_LABELS];
/// Metadata key of dimension names.
pub(crate) const DIM_NAMES: &str = "dim_names";
/// Metadata key of labels.
pub(crate) const DIM_LABELS: &str = "dim_labels";

fn text_labels(value: &Value) -> Option<Labels> {
    let Value::List(values) = value else { return None };
    let text = |value: &Value| if let Value::Text(text) = value { Some(text.clone()) } else { None };
    values.iter().map(text).collect::<Option<Vec<_>>>().filter(|l| !l.is_empty()).map(Labels::Text)
}

impl ArraySource for TensogramArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn given_name(&self) -> Option<&str> {
        given_name(&self.schema)
    }

    fn object(&self, _number: u32) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        let shape = &self.object.descriptor.shape;
        let Some(selection) = request.selection() else {
            return Err(Error::internal("a request by coordinates"));
        };
        let region = Region::from_shape(shape);
        let nothing = region.is_empty() || selection.slices().iter().any(|slice| slice.count() == 0);
        let chunks = if nothing {
            Vec::new()
        } else {
            let part = selection.cells().is_none_or(|cells| cells < self.object.cells);
            let planned = self.load_blocks(part).and_then(|()| self.plan_all(&request.columns, &region));
            vec![planned.map_err(|e| e.in_array(&self.schema.name))?]
        };
        Ok(Planned::Ready(ChunkPlan { chunks, uncovered: Uncovered::Impossible, deletes: Vec::new() }))
    }

    fn constant(&self, _chunk: &PlannedChunk, _column: Column) -> Option<Vec<u8>> {
        let cell = self.pipeline().ok()?.constant()?;
        self.object.masks.is_empty().then(|| cell.to_vec())
    }

    fn stats(&self, chunk: &PlannedChunk, _column: Column) -> ChunkStats {
        ChunkStats::unknown(chunk.cells)
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let codecs = &self.schema.fields[0].codecs;
        ChunkInfo {
            coords: Coords::from_elem(0, self.schema.dims.len()),
            raw_len: self.object.raw_len,
            stored_len: chunk.stored_bytes(),
            codec: if codecs.is_empty() { "raw".to_owned() } else { codecs.join("+") },
            offset: chunk.parts.first().map_or(self.object.payload.start, |part| part.offset),
        }
    }

    fn stored_granule(&self, _: &PlannedChunk, _: Column, parts: &[Bytes]) -> Option<u64> {
        frame_cells(&self.object, &self.pipeline().ok()?, parts.first()?)
    }

    fn digests(&self, chunk: &PlannedChunk) -> DigestSpans<'_> {
        let (object, range) = (0, self.frame.body());
        let span = |hash: u64| match self.blocks.get() {
            Some(Some(BlockHashes { block, hashes })) => {
                let digest = Digest::Xxh3Blocks { block: *block, digests: hashes };
                DigestSpan { object, range, number: chunk.id + 1, digest }
            }
            _ => DigestSpan::single(object, range, chunk.id, hash),
        };
        self.hash.map(span).into_iter().collect()
    }

    fn check_of(&self, error: &Error, depth: Depth) -> &'static str {
        match error.kind() {
            ErrorKind::Corrupt { what, offset: Some(_), .. } if what == "a chunk" => "hash_mismatch",
            ErrorKind::Unsupported { .. } => "codec_unsupported",
            _ if depth == Depth::Full => "decode_object_failed",
            _ => "decode_pipeline_failed",
        }
    }

    /// Cells that no mask names must be finite.
    fn cell_faults(
        &self,
        _column: Column,
        parts: &[Bytes],
        cells: &Range<u64>,
        values: &[u8],
    ) -> Result<SmallVec<[CellFault; 2]>> {
        let dtype = self.object.descriptor.dtype;
        if !is_inexact(dtype) {
            return Ok(SmallVec::new());
        }
        let masked = self.object.masked(parts.get(1..).unwrap_or_default())?;
        Ok(non_finite_faults(dtype, values, &masked, cells.start))
    }

    fn derived_attributes(&self) -> &[&'static str] {
        &DERIVED
    }

    /// Uncompressed and packed cells are addressable by index. Masks are read completely: either they are small, or the object
    /// is not narrowed.
    fn narrow(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        cells: &Range<u64>,
    ) -> Result<Option<SmallVec<[Part; 1]>>> {
        let pipeline = self.pipeline()?;
        let masked = !self.object.masks.is_empty() && self.object.cells.div_ceil(8) > LARGE_MASK;
        if !pipeline.plain() || masked {
            return Ok(None);
        }
        let Some((bytes, _)) = window(&pipeline, self.object.descriptor.dtype, cells) else {
            return Ok(None);
        };
        let narrowed = chunk.column_parts(column).map(|(_, part)| match part.role {
            Role::Values => Part {
                offset: self.object.payload.start.saturating_add(bytes.start),
                len: bytes.end.saturating_sub(bytes.start),
                ..*part
            },
            _ => *part,
        });
        Ok(Some(narrowed.collect()))
    }

    fn decode(
        &self,
        chunk: &PlannedChunk,
        column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        let (Column::Field(0), ColumnMut::Fixed { values, validity }) = (column, out) else {
            return Err(Error::internal("expected one fixed-size output column"));
        };
        if cells.start > cells.end || cells.end > chunk.cells {
            return Err(Error::invalid(format!("cells {cells:?} out of bounds for {} cells", chunk.cells)));
        }
        let decoded = self.pipeline().and_then(|pipeline| {
            if let Some(bytes) = self.narrowed(chunk, column, parts, &pipeline, &cells)? {
                let blobs = parts.get(1..).unwrap_or_default();
                return decode_window(&self.object, &pipeline, &bytes, blobs, &cells, values, scratch);
            }
            crate::decode::decode(
                &self.object,
                &pipeline,
                &self.catalog.source.object,
                parts,
                cells,
                values,
                scratch,
            )
        });
        decoded.map_err(|e| e.in_array(&self.schema.name))?;
        if let Some(validity) = validity {
            validity.fill(1);
        }
        Ok(())
    }
}
