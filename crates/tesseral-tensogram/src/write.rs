//! Writing a file with one message. An object is encoded as a whole, so its chunks are collected first: in memory, or spooled
//! in the file if it is large.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::smallvec;
use tesseral_core::metadata::RESERVED_NAME_PREFIX;
use tesseral_core::schema::{CellLen, Labels};
use tesseral_core::{
    Advice, ArraySchema, Attributes, ChunkGrid, ChunkStats, Coords, DType, Error, HistoryRow, Order, Region,
    Result, alloc,
};
use tesseral_format::{
    ArraySpec, Column, ColumnData, CreateOptions, EncodedChunk, EncodedPart, Role, Scratch, Writer,
};
use tesseral_store::{Staged, Store};

use crate::array::{DIM_LABELS, DIM_NAMES};
use crate::assemble::{AggregateHash, MessageEnvelope, surround_blocks, tensor_item};
use crate::create_options::TensogramCreateOptions;
use crate::encode::{MaskOptions, Stages, encode_object};
use crate::object_name::{self, NAME, VARIABLE_NAME};
use crate::open::HISTORY;
use crate::spool::{self, Spool, SpooledFrame};
use crate::streamed::{self, ChunkStream, ObjectStream};
use crate::wire::block_hashes::{BlockHashes, ObjectHashes};
use crate::wire::cbor::{CborItem, Map};
use crate::wire::descriptor::{self, Descriptor};
use crate::wire::frame::{FrameKind, HEADER_LEN};
use crate::wire::metadata::{Metadata, RESERVED};
use crate::wire::object::ObjectFrame;

/// Writer of a `.tgm` file.
#[derive(Debug)]
pub(crate) struct TensogramWriter {
    staged: Box<dyn Staged>,
    /// Offset of the message that is being written: the end of the finished ones.
    offset: u64,
    /// Whether a message was begun since the last one was finished. A file has at least one.
    begun: bool,
    hashes: ObjectHashes,
    masks: MaskOptions,
    reserved: Map,
    extra: Map,
    history: Vec<HistoryRow>,
    arrays: Vec<PendingObject>,
    /// Maximum size in bytes of objects that are collected in memory.
    work_space: u64,
    placed: Mutex<WrittenObjects>,
}

#[derive(Debug)]
struct PendingObject {
    name: String,
    dtype: DType,
    shape: Coords,
    grid: ChunkGrid,
    stages: Stages,
    base: Map,
    /// Size of the cells in bytes.
    len: u64,
    /// The cells are spooled in the file.
    spooled: bool,
    gathered: Mutex<CollectedCells>,
    stream: Mutex<ChunkStream>,
}

/// An object that is complete.
#[derive(Debug)]
enum CompleteObject {
    Frame(Box<ObjectFrame<'static>>),
    /// Its cells are spooled in the file.
    Spooled,
    /// It is in the file, where the next object belongs.
    Written(Box<SpooledFrame>),
}

/// Objects in the file, contiguous.
#[derive(Debug, Default)]
struct WrittenObjects {
    /// Offset of the first object, and the end of the last one's padding.
    start: u64,
    end: u64,
    lengths: Vec<u64>,
    hashes: Vec<u64>,
    blocks: Vec<Option<BlockHashes>>,
    /// An object is written at the end, although it is not complete.
    begun: bool,
    /// Objects completed out of order.
    waiting: BTreeMap<usize, CompleteObject>,
}

impl WrittenObjects {
    fn add(&mut self, written: SpooledFrame) {
        self.end = written.end;
        self.lengths.push(written.length);
        self.hashes.push(written.hash);
        self.blocks.push(written.blocks);
    }
}

/// Moves the bytes from `start` to `end` so that they begin at `to`.
fn shift(staged: &dyn Staged, start: u64, end: u64, to: u64) -> Result<()> {
    const BLOCK: u64 = 4 << 20;
    if start == to {
        return Ok(());
    }
    let mut buffer = vec![0; usize::try_from(BLOCK.min(end - start)).unwrap_or(0)];
    let mut done = 0;
    while done < end - start {
        let len = BLOCK.min(end - start - done);
        // No byte is overwritten before it is read: ascending when moving down, descending when moving up.
        let from = if to < start { start + done } else { end - done - len };
        let part = &mut buffer[..usize::try_from(len).unwrap_or(0)];
        staged.read_at(from, part)?;
        staged.write_at(from - start + to, part)?;
        done += len;
    }
    Ok(())
}

/// The cells of an object collected so far.
#[derive(Debug, Default)]
struct CollectedCells {
    cells: Vec<u8>,
    /// Chunks received, by their index in the grid.
    done: Vec<bool>,
    /// Number of chunks that are missing.
    left: usize,
}

impl PendingObject {
    fn stream(&self) -> MutexGuard<'_, ChunkStream> {
        self.stream.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn gathered(&self) -> MutexGuard<'_, CollectedCells> {
        self.gathered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn bytes_of(&self, cells: Option<u64>) -> Result<usize> {
        let bytes = cells.and_then(|cells| match self.dtype.size() {
            Some(size) => cells.checked_mul(size as u64),
            None => Some(cells.div_ceil(8)),
        });
        let bytes = bytes.and_then(|n| usize::try_from(n).ok());
        bytes.ok_or_else(|| {
            Error::limit("an object in memory", u64::MAX, usize::MAX as u64).in_array(&self.name)
        })
    }

    /// Returns the region of the chunk at `coords`, which must be in the grid.
    fn region(&self, coords: &[u64]) -> Result<Region> {
        if !self.grid.contains(coords) {
            return Err(Error::invalid("chunk coordinates out of bounds")
                .in_array(&self.name)
                .in_chunk(coords));
        }
        Ok(self.grid.region(coords))
    }

    /// Marks a chunk as received; allocates the cells of an object that is collected in memory first.
    fn reserve_chunk(&self, coords: &[u64]) -> Result<MutexGuard<'_, CollectedCells>> {
        let mut gathered = self.gathered();
        if gathered.done.is_empty() {
            let len = if self.spooled { 0 } else { usize::try_from(self.len).unwrap_or(usize::MAX) };
            let chunks = usize::try_from(self.grid.total()).unwrap_or(usize::MAX);
            let short = || Error::limit("an object in memory", self.len, 0).in_array(&self.name);
            gathered.cells.try_reserve_exact(len).map_err(|_| short())?;
            gathered.done.try_reserve_exact(chunks).map_err(|_| short())?;
            gathered.cells.resize(len, 0);
            gathered.done.resize(chunks, false);
            gathered.left = chunks;
        }
        let linear = self.grid.linear(coords) as usize;
        if std::mem::replace(&mut gathered.done[linear], true) {
            return Err(Error::invalid("duplicate chunk").in_array(&self.name).in_chunk(coords));
        }
        Ok(gathered)
    }

    /// Collects the cells of an object of which some chunks were written.
    fn collect_again(&self, written: &ObjectStream, staged: &dyn Staged) -> Result<()> {
        let size = self.dtype.size().unwrap_or(1) as u64;
        let mut gathered = self.gathered();
        let len = usize::try_from(self.len).unwrap_or(usize::MAX);
        alloc::resize("an object in memory", &mut gathered.cells, len, 0)?;
        written.read_back(staged, &self.grid, size, &mut gathered.cells)?;
        gathered.done.clone_from(&written.done);
        gathered.left = written.left;
        Ok(())
    }

    /// Copies the cells of a chunk; returns all cells after the last chunk.
    fn gather(&self, coords: &[u64], values: &[u8]) -> Result<Option<Vec<u8>>> {
        let (region, whole) = (self.region(coords)?, Region::from_shape(&self.shape));
        let mut gathered = self.reserve_chunk(coords)?;
        scatter(self.dtype, &region, &whole, values, &mut gathered.cells);
        gathered.left -= 1;
        Ok((gathered.left == 0).then(|| std::mem::take(&mut gathered.cells)))
    }

    /// Writes the cells of a chunk to the spool; returns whether it was the last one.
    fn spool(&self, staged: &dyn Staged, offset: u64, coords: &[u64], values: &[u8]) -> Result<bool> {
        let (region, whole) = (self.region(coords)?, Region::from_shape(&self.shape));
        drop(self.reserve_chunk(coords)?);
        let size = self.dtype.size().unwrap_or(1) as u64;
        spool::scatter(staged, offset, size, &region, &whole, values)?;
        let mut gathered = self.gathered();
        gathered.left -= 1;
        Ok(gathered.left == 0)
    }

    /// Fails with the first missing chunk.
    fn check_whole(&self) -> Result<()> {
        let stream = self.stream();
        let gathered = self.gathered();
        let done = match &*stream {
            ChunkStream::On(object) => &object.done,
            ChunkStream::Unknown | ChunkStream::Off => &gathered.done,
        };
        let missing = match done.is_empty() {
            true => (self.grid.total() > 0).then_some(0),
            false => done.iter().position(|done| !done),
        };
        match missing {
            Some(linear) => {
                let coords = self.grid.coords(linear as u64);
                Err(Error::invalid("missing chunk").in_array(&self.name).in_chunk(&coords))
            }
            None => Ok(()),
        }
    }
}

/// Copies the row-major cells of a box into a larger box.
fn scatter(dtype: DType, region: &Region, whole: &Region, values: &[u8], out: &mut [u8]) {
    let rank = region.rank();
    let row = if rank == 0 { 1 } else { region.extent(rank - 1) };
    if region.is_empty() {
        return;
    }
    let mut at: Coords = region.bounds().iter().map(|bound| bound.0).collect();
    let mut from = 0_u64;
    loop {
        let to = at.iter().enumerate().fold(0, |sum, (d, p)| sum * whole.extent(d) + p);
        match dtype.size() {
            Some(size) => {
                let (from, to, len) = (from as usize * size, to as usize * size, row as usize * size);
                out[to..to + len].copy_from_slice(&values[from..from + len]);
            }
            None => {
                for i in 0..row {
                    if tesseral_codec::bitset::get(values, from + i) {
                        let bit = to + i;
                        out[(bit / 8) as usize] |= 0x80 >> (bit % 8);
                    }
                }
            }
        }
        from += row;
        // Advance to the next row; the last but one dimension varies fastest.
        let mut d = rank.saturating_sub(1);
        loop {
            if d == 0 {
                return;
            }
            d -= 1;
            at[d] += 1;
            if at[d] < region.end(d) {
                break;
            }
            at[d] = region.start(d);
        }
    }
}

impl TensogramWriter {
    pub(crate) fn create(store: &Arc<dyn Store>, options: &CreateOptions) -> Result<Self> {
        let TensogramCreateOptions { masks, provenance } = options.format.get()?;
        if options.memory_budget.is_some() {
            return Err(Error::unsupported("a memory budget in .tgm"));
        }
        Ok(Self {
            staged: store.stage("", options.overwrite)?,
            offset: 0,
            begun: true,
            hashes: ObjectHashes::of_options(options.digests, true),
            masks,
            reserved: provenance.reserved(),
            extra: Map::new(),
            history: Vec::new(),
            arrays: Vec::new(),
            work_space: options.work_space.unwrap_or(u64::MAX),
            placed: Mutex::default(),
        })
    }

    fn array(&self, array: usize) -> Result<&PendingObject> {
        self.arrays.get(array).ok_or_else(|| Error::invalid(format!("array {array} was not created")))
    }

    fn placed(&self) -> MutexGuard<'_, WrittenObjects> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes a complete object and writes it after its predecessors, or retains it until they are written.
    fn store_object(&self, number: usize, cells: Vec<u8>) -> Result<()> {
        let array = self.array(number)?;
        let frame = encode_object(array.stages.clone(), Cow::Owned(cells), &self.masks, self.hashes, 1);
        self.put(number, CompleteObject::Frame(Box::new(frame.map_err(|e| e.in_array(&array.name))?)))
    }

    /// Writes an object and the retained ones that follow it.
    fn put(&self, number: usize, object: CompleteObject) -> Result<()> {
        let mut placed = self.placed();
        self.begin_objects(&mut placed)?;
        placed.waiting.insert(number, object);
        self.put_waiting(&mut placed)
    }

    /// Determines where the first object begins.
    fn begin_objects(&self, placed: &mut WrittenObjects) -> Result<()> {
        if placed.lengths.is_empty() && !placed.begun {
            placed.start = self.offset.saturating_add(self.likely_head()?);
            placed.end = placed.start;
        }
        Ok(())
    }

    /// Writes the retained objects that are next.
    fn put_waiting(&self, placed: &mut WrittenObjects) -> Result<()> {
        while let Some((number, object)) = {
            let next = placed.lengths.len();
            placed.waiting.remove(&next).map(|object| (next, object))
        } {
            let written = match object {
                CompleteObject::Frame(frame) => self.write(&frame, placed.end)?,
                CompleteObject::Spooled => self.encode_spooled(number, placed.end)?,
                CompleteObject::Written(written) => *written,
            };
            placed.add(written);
        }
        Ok(())
    }

    /// Writes a chunk to its final place, if the object is the next one and consists of contiguous chunks without masked cells.
    fn stream_chunk(
        &self,
        number: usize,
        array: &PendingObject,
        coords: &[u64],
        cells: &[u8],
    ) -> Result<bool> {
        let mut stream = array.stream();
        if let ChunkStream::Unknown = &*stream {
            *stream = self.begin_stream(number, array)?;
        }
        let ChunkStream::On(object) = &mut *stream else { return Ok(false) };
        let (linear, region) = (array.grid.linear(coords) as usize, array.region(coords)?);
        if object.done.get(linear).is_none_or(|done| *done) {
            return Err(Error::invalid("duplicate chunk").in_array(&array.name).in_chunk(coords));
        }
        if !object.push(&*self.staged, &array.stages, (linear, &region), cells)? {
            array.collect_again(object, &*self.staged)?;
            self.placed().begun = false;
            *stream = ChunkStream::Off;
            return Ok(false);
        }
        if object.left == 0
            && let ChunkStream::On(object) = std::mem::replace(&mut *stream, ChunkStream::Off)
        {
            array.gathered().done = object.done.clone();
            let frame = object.finish(&*self.staged, &array.stages, array.len)?;
            self.placed().begun = false;
            self.put(number, CompleteObject::Written(Box::new(frame)))?;
        }
        Ok(true)
    }

    fn begin_stream(&self, number: usize, array: &PendingObject) -> Result<ChunkStream> {
        let collected = !array.gathered().done.is_empty();
        let mut placed = self.placed();
        if collected
            || placed.lengths.len() != number
            || !array.stages.stores_as_given()
            || array.dtype.size().is_none()
            || !streamed::is_contiguous(&array.grid)
        {
            return Ok(ChunkStream::Off);
        }
        self.begin_objects(&mut placed)?;
        placed.begun = true;
        let chunks = usize::try_from(array.grid.total()).unwrap_or(usize::MAX);
        Ok(ChunkStream::On(Box::new(ObjectStream::new(placed.end, chunks, array.len, self.hashes)?)))
    }

    /// Encodes an object from borrowed cells and writes it. An uncompressed one is written while it is hashed.
    fn encode_all(
        &self,
        array: &PendingObject,
        cells: &[u8],
        at: u64,
        threads: usize,
    ) -> Result<SpooledFrame> {
        let early = threads > 1 && array.stages.stores_as_given();
        let (frame, written) = std::thread::scope(|scope| {
            let writing = early.then(|| scope.spawn(|| self.staged.write_at(at + HEADER_LEN, cells)));
            let frame =
                encode_object(array.stages.clone(), Cow::Borrowed(cells), &self.masks, self.hashes, threads);
            (frame, writing.map(std::thread::ScopedJoinHandle::join))
        });
        let frame = frame?;
        match written {
            // Masked cells are others than those that were written.
            Some(written) if frame.borrows() => {
                written.map_err(|_| Error::internal("the thread that writes an object panicked"))??;
                self.write_around(&frame, at)
            }
            _ => self.write(&frame, at),
        }
    }

    /// Writes a frame whose payload has been written.
    fn write_around(&self, frame: &ObjectFrame<'_>, at: u64) -> Result<SpooledFrame> {
        let mut place = at;
        frame.write(|bytes| {
            if place != at + HEADER_LEN {
                self.staged.write_at(place, bytes)?;
            }
            place += bytes.len() as u64;
            Ok::<(), Error>(())
        })?;
        let (length, hash) = (frame.total_length(), frame.hash());
        Ok(SpooledFrame { end: place, length, hash, blocks: frame.blocks().cloned() })
    }

    /// Writes a frame.
    fn write(&self, frame: &ObjectFrame<'_>, mut at: u64) -> Result<SpooledFrame> {
        frame.write(|bytes| {
            self.staged.write_at(at, bytes)?;
            at += bytes.len() as u64;
            Ok::<(), Error>(())
        })?;
        let (length, hash) = (frame.total_length(), frame.hash());
        Ok(SpooledFrame { end: at, length, hash, blocks: frame.blocks().cloned() })
    }

    /// Encodes and writes an object whose cells are spooled in the file.
    fn encode_spooled(&self, number: usize, at: u64) -> Result<SpooledFrame> {
        let array = self.array(number)?;
        let (staged, offset) = (&*self.staged, self.spool_at(number)?);
        let spool = Spool { staged, stages: &array.stages, offset, len: array.len };
        spool.encode(at, &self.masks, self.hashes).map_err(|e| e.in_array(&array.name))
    }

    /// Offset of the spooled cells of an object: after the largest possible end of the message.
    fn spool_at(&self, number: usize) -> Result<u64> {
        let message: u64 = self.arrays.iter().map(|array| array.len.saturating_mul(2) + (1 << 20)).sum();
        let before: u64 = self.arrays.iter().take(number).map(|array| array.len).sum();
        let start = self.offset.saturating_add(self.likely_head()?);
        Ok(start.saturating_add(message).saturating_add(before))
    }

    /// Estimates the length of the header frames. If the estimate is wrong, objects are moved at the end.
    fn likely_head(&self) -> Result<u64> {
        let frame = |array: &PendingObject| {
            let descriptor = Descriptor::raw(array.dtype, &array.shape);
            let cells = array.bytes_of(Region::from_shape(&array.shape).cells())? as u64;
            let cbor = descriptor.to_bytes().len() as u64;
            Ok(cells.saturating_add(cbor).saturating_add(FrameKind::Object.min_len()))
        };
        let lengths: Vec<u64> = self.arrays.iter().map(frame).collect::<Result<_>>()?;
        let around = self.surround(&lengths, &vec![0; lengths.len()], Vec::new())?;
        Ok(around.head.len() as u64)
    }

    fn surround(
        &self,
        lengths: &[u64],
        hashes: &[u64],
        blocks: Vec<Option<BlockHashes>>,
    ) -> Result<MessageEnvelope> {
        let (metadata, hashed) = (self.metadata(), self.hashes.any());
        surround_blocks(&metadata, lengths, hashes, blocks, hashed, AggregateHash::Auto)
    }

    /// Writes what surrounds the objects of the message; returns its end.
    fn finish_message(&self) -> Result<u64> {
        self.arrays.iter().try_for_each(PendingObject::check_whole)?;
        for (number, array) in self.arrays.iter().enumerate() {
            if array.grid.total() == 0 {
                self.store_object(number, Vec::new())?;
            }
        }
        let placed = self.placed();
        let lengths = &placed.lengths;
        let around = self.surround(lengths, &placed.hashes, placed.blocks.clone())?;
        let head = self.offset + around.head.len() as u64;
        if !lengths.is_empty() {
            shift(&*self.staged, placed.start, placed.end, head)?;
        }
        self.staged.write_at(self.offset, &around.head)?;
        self.staged.write_at(head + (placed.end - placed.start), &around.tail)?;
        Ok(self.offset + around.total_length)
    }

    fn metadata(&self) -> Metadata {
        let mut extra = self.extra.clone();
        if !self.history.is_empty() {
            extra
                .insert(HISTORY.to_owned(), CborItem::Array(self.history.iter().map(history_item).collect()));
        }
        let base = self.arrays.iter().map(|array| {
            let mut base = array.base.clone();
            let tensor = tensor_item(&Descriptor::raw(array.dtype, &array.shape));
            base.insert(RESERVED.to_owned(), tensor);
            base
        });
        Metadata { base: base.collect(), extra, reserved: self.reserved.clone() }
    }
}

fn history_item(row: &HistoryRow) -> CborItem {
    let text = |text: &String| CborItem::Text(text.clone());
    let map = |map: &std::collections::BTreeMap<String, String>| {
        CborItem::map(map.iter().map(|(key, value)| (key.clone(), text(value))))
    };
    let mut pairs = vec![("op", text(&row.op)), ("source", text(&row.source)), ("at", text(&row.at))];
    if !row.parents.is_empty() {
        pairs.push(("parents", CborItem::Array(row.parents.iter().map(text).collect())));
    }
    if !row.params.is_empty() {
        pairs.push(("params", map(&row.params)));
    }
    if !row.extra.is_empty() {
        pairs.push(("extra", map(&row.extra)));
    }
    CborItem::map(pairs)
}

/// Returns the stored dtype.
fn stored_dtype(schema: &ArraySchema) -> Result<DType> {
    let [field] = &schema.fields[..] else {
        return Err(Error::unsupported("several fields in one Tensogram object"));
    };
    let dtype = match (field.cell, field.dtype) {
        (CellLen::Fixed(2), DType::Float32) => DType::Complex64,
        (CellLen::Fixed(2), DType::Float64) => DType::Complex128,
        (CellLen::One, dtype) => dtype,
        _ => return Err(Error::unsupported(format!("fields with {} in Tensogram", field.type_name()))),
    };
    if !descriptor::DTYPES.contains(&dtype) {
        return Err(Error::unsupported(format!("{dtype} in Tensogram")).hint(Advice::Cast { to: None }));
    }
    if field.nullable {
        return Err(Error::unsupported("nullable fields in Tensogram"));
    }
    if field.enumeration.is_some() {
        return Err(Error::unsupported("enumerations in Tensogram"));
    }
    Ok(dtype)
}

/// Builds the metadata of an object.
fn base_of(schema: &ArraySchema) -> Result<Map> {
    if schema.attributes.contains_key(RESERVED) {
        return Err(Error::invalid(format!("attribute name {RESERVED:?} is reserved by the format")));
    }
    let mut own = Map::new();
    let numbered = schema.name.split_once('/').is_some_and(|(m, o)| {
        [m, o].iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    });
    if !numbered && !schema.name.is_empty() {
        let stored = object_name::stored(schema);
        if stored != schema.name {
            own.insert(VARIABLE_NAME.to_owned(), CborItem::Text(schema.name.clone()));
        }
        own.insert(NAME.to_owned(), CborItem::Text(stored));
    }
    if schema.dims.iter().any(|dim| !dim.name.is_empty()) {
        let names = schema.dims.iter().map(|dim| CborItem::Text(dim.name.clone())).collect();
        own.insert(DIM_NAMES.to_owned(), CborItem::Array(names));
    }
    if schema.dims.iter().any(|dim| dim.labels.is_some()) {
        let labels = schema.dims.iter().map(|dim| match &dim.labels {
            None => Ok(CborItem::Null),
            Some(Labels::Text(labels)) => {
                Ok(CborItem::Array(labels.iter().cloned().map(CborItem::Text).collect()))
            }
            Some(labels) => {
                let shown =
                    (0..labels.len()).filter_map(|i| labels.get(i)).map(|l| CborItem::Text(l.to_string()));
                Ok(CborItem::Array(shown.collect()))
            }
        });
        own.insert(DIM_LABELS.to_owned(), CborItem::Array(labels.collect::<Result<_>>()?));
    }
    let mut base = Map::new();
    for (key, value) in &tesseral_core::missing::attributes(schema) {
        let item = CborItem::from_value(value)?;
        // Readers use these keys for names of the object and its dimensions. An attribute with another meaning is renamed.
        let taken = match own.get(key) {
            Some(held) => *held != item,
            None => [DIM_NAMES, DIM_LABELS].contains(&key.as_str()) && !matches!(item, CborItem::Array(_)),
        };
        base.insert(if taken { format!("{RESERVED_NAME_PREFIX}{key}") } else { key.clone() }, item);
    }
    base.extend(own);
    Ok(base)
}

impl Writer for TensogramWriter {
    fn begin(&mut self, spec: &ArraySpec) -> Result<usize> {
        let schema = &spec.schema;
        let begun = (|| {
            if schema.sparse {
                return Err(Error::unsupported("sparse arrays in Tensogram"));
            }
            if schema.cell_order != Order::RowMajor {
                return Err(Error::unsupported("cell orders other than row-major in Tensogram"));
            }
            let dtype = stored_dtype(schema)?;
            let grid = schema.grid()?.counted()?;
            let shape = Coords::from_slice(grid.shape());
            let stages = Stages::new(spec.codecs.first().map_or(&[], Vec::as_slice), dtype, &shape)?;
            let base = base_of(schema)?;
            let mut array = PendingObject {
                name: schema.name.clone(),
                dtype,
                shape,
                grid,
                stages,
                base,
                len: 0,
                spooled: false,
                gathered: Mutex::default(),
                stream: Mutex::default(),
            };
            array.len = array.bytes_of(Region::from_shape(&array.shape).cells())? as u64;
            array.spooled = array.len > self.work_space && spool::streams(&array.stages);
            Ok(array)
        })();
        self.begun = true;
        self.arrays.push(begun.map_err(|e: Error| e.in_array(&schema.name))?);
        Ok(self.arrays.len() - 1)
    }

    fn wants_stats(&self, _array: usize) -> bool {
        false
    }

    fn needs_order(&self, _array: usize) -> bool {
        false
    }

    fn buffered_bytes(&self, array: usize) -> u64 {
        self.array(array).map_or(0, |array| if array.spooled { 0 } else { array.len })
    }

    fn encode<'a>(
        &self,
        array: usize,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        stats: Vec<ChunkStats>,
        _scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        let array = self.array(array)?;
        let expected = array.bytes_of(array.region(coords)?.cells())?;
        let [ColumnData::Fixed { values, validity }] = columns else {
            return Err(Error::invalid("expected one fixed-size column").in_array(&array.name));
        };
        if values.len() != expected || validity.is_some_and(|validity| validity.contains(&0)) {
            let detail = format!("expected {expected} bytes of non-null cells, found {}", values.len());
            return Err(Error::invalid(detail).in_array(&array.name).in_chunk(coords));
        }
        let raw_len = values.len() as u64;
        let part = EncodedPart {
            column: Column::Field(0),
            role: Role::Values,
            bytes: Cow::Borrowed(values),
            raw_len,
            codec: 0,
        };
        Ok(EncodedChunk { coords: Coords::from_slice(coords), parts: smallvec![part], stats })
    }

    fn push(&self, number: usize, chunk: EncodedChunk<'_>) -> Result<()> {
        let array = self.array(number)?;
        let expected = array.bytes_of(array.region(&chunk.coords)?.cells())?;
        let [part] = &chunk.parts[..] else {
            return Err(Error::invalid("expected one part per chunk").in_array(&array.name));
        };
        if part.bytes.len() != expected {
            return Err(
                Error::invalid("the size of the cells does not match the chunk").in_array(&array.name)
            );
        }
        if array.spooled {
            let offset = self.spool_at(number)?;
            if array.spool(&*self.staged, offset, &chunk.coords, &part.bytes)? {
                self.put(number, CompleteObject::Spooled)?;
            }
        } else if !self.stream_chunk(number, array, &chunk.coords, &part.bytes)?
            && let Some(cells) = array.gather(&chunk.coords, &part.bytes)?
        {
            self.store_object(number, cells)?;
        }
        Ok(())
    }

    fn push_all(&self, number: usize, cells: &[u8], threads: usize) -> Result<bool> {
        let array = self.array(number)?;
        if array.spooled || cells.is_empty() || cells.len() as u64 != array.len {
            return Ok(false);
        }
        let stream = array.stream();
        let mut gathered = array.gathered();
        let mut placed = self.placed();
        if matches!(*stream, ChunkStream::On(_))
            || !gathered.done.is_empty()
            || placed.lengths.len() != number
        {
            return Ok(false);
        }
        self.begin_objects(&mut placed)?;
        let chunks = usize::try_from(array.grid.total()).unwrap_or(usize::MAX);
        let frame =
            self.encode_all(array, cells, placed.end, threads).map_err(|e| e.in_array(&array.name))?;
        alloc::resize("chunks", &mut gathered.done, chunks, true)?;
        placed.add(frame);
        self.put_waiting(&mut placed)?;
        Ok(true)
    }

    fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        let items = attributes.into_iter().map(|(key, value)| Ok((key, CborItem::from_value(&value)?)));
        self.extra = items.collect::<Result<_>>()?;
        self.begun = true;
        Ok(())
    }

    fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        self.history.push(row);
        self.begun = true;
        Ok(())
    }

    fn set_parents(&mut self, parents: &[String]) -> bool {
        tesseral_format::convention::history::set_parents(&mut self.history, parents)
    }

    /// A part is a message.
    fn finish_part(&mut self) -> Result<()> {
        self.offset = self.finish_message()?;
        self.begun = false;
        self.arrays.clear();
        self.extra.clear();
        self.history.clear();
        self.placed = Mutex::default();
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        let end = if self.begun { self.finish_message()? } else { self.offset };
        self.staged.set_len(end)?;
        self.staged.publish()
    }
}
