//! Writing a file of one message. An object is one piece, so chunks are gathered until all of it is there, in memory or for large ones
//! in the file; then it is encoded.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::smallvec;
use tesseral_core::metadata::{FILL_ATTRIBUTES, SET_ASIDE};
use tesseral_core::schema::{CellLen, Labels};
use tesseral_core::{
    ArraySchema, Attributes, ChunkGrid, ChunkStats, Coords, DType, Error, HistoryRow, Order, Region, Result,
    Value,
};
use tesseral_format::{
    ArraySpec, Column, ColumnData, CreateOptions, EncodedChunk, EncodedPart, Role, Scratch, Writer,
};
use tesseral_store::{Staged, Store};

use crate::array::{DIM_LABELS, DIM_NAMES, declared_fill};
use crate::assemble::{AggregateHash, surround, tensor_item};
use crate::encode::{MaskOptions, Stages, encode_object};
use crate::open::HISTORY;
use crate::spool::{self, Spool};
use crate::wire::cbor::{Item, Map};
use crate::wire::descriptor::{self, Descriptor, MaskKind};
use crate::wire::frame::Kind;
use crate::wire::metadata::{Metadata, RESERVED};
use crate::wire::object::ObjectFrame;

/// A `.tgm` file being written.
#[derive(Debug)]
pub(crate) struct TensogramWriter {
    staged: Box<dyn Staged>,
    hashed: bool,
    masks: MaskOptions,
    reserved: Map,
    extra: Map,
    history: Vec<HistoryRow>,
    arrays: Vec<Array>,
    /// Objects up to this many bytes are gathered in memory.
    work_space: u64,
    placed: Mutex<Placed>,
}

#[derive(Debug)]
struct Array {
    name: String,
    dtype: DType,
    shape: Coords,
    grid: ChunkGrid,
    stages: Stages,
    base: Map,
    /// Bytes of its cells.
    len: u64,
    /// They wait in the file.
    spooled: bool,
    gathered: Mutex<Gathered>,
}

/// Objects that are in the file, one behind the other.
#[derive(Debug, Default)]
struct Placed {
    /// Where the first begins, and the last one's padding ends.
    start: u64,
    end: u64,
    lengths: Vec<u64>,
    hashes: Vec<u64>,
    /// Those that came before their turn; without a frame, their cells wait in the file.
    waiting: BTreeMap<usize, Option<ObjectFrame<'static>>>,
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
        // No byte is written over before it was read: from the front when moving down, from the back when moving up.
        let from = if to < start { start + done } else { end - done - len };
        let part = &mut buffer[..usize::try_from(len).unwrap_or(0)];
        staged.read_at(from, part)?;
        staged.write_at(from - start + to, part)?;
        done += len;
    }
    Ok(())
}

/// The cells of an object, as far as they have come.
#[derive(Debug, Default)]
struct Gathered {
    cells: Vec<u8>,
    /// Which chunks have come, by their place in the grid.
    done: Vec<bool>,
    /// How many are still to come.
    left: usize,
}

impl Array {
    fn gathered(&self) -> MutexGuard<'_, Gathered> {
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

    /// The cells of the chunk at `coords`, which must be in the grid.
    fn region(&self, coords: &[u64]) -> Result<Region> {
        if !self.grid.contains(coords) {
            return Err(Error::invalid("there is no such chunk").in_array(&self.name).in_chunk(coords));
        }
        Ok(self.grid.region(coords))
    }

    /// Notes that a chunk has come; of objects that are gathered in memory, makes room for all cells first.
    fn take(&self, coords: &[u64]) -> Result<MutexGuard<'_, Gathered>> {
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
        #[allow(clippy::cast_possible_truncation)]
        let linear = self.grid.linear(coords) as usize;
        if std::mem::replace(&mut gathered.done[linear], true) {
            return Err(Error::invalid("the chunk was stored already").in_array(&self.name).in_chunk(coords));
        }
        Ok(gathered)
    }

    /// Puts the cells of a chunk where they belong; gives all of them once the last chunk has come.
    fn gather(&self, coords: &[u64], values: &[u8]) -> Result<Option<Vec<u8>>> {
        let (region, whole) = (self.region(coords)?, Region::from_shape(&self.shape));
        let mut gathered = self.take(coords)?;
        scatter(self.dtype, &region, &whole, values, &mut gathered.cells);
        gathered.left -= 1;
        Ok((gathered.left == 0).then(|| std::mem::take(&mut gathered.cells)))
    }

    /// Puts the cells of a chunk where they belong in the file; whether it was the last one.
    fn spool(&self, staged: &dyn Staged, offset: u64, coords: &[u64], values: &[u8]) -> Result<bool> {
        let (region, whole) = (self.region(coords)?, Region::from_shape(&self.shape));
        drop(self.take(coords)?);
        let size = self.dtype.size().unwrap_or(1) as u64;
        spool::scatter(staged, offset, size, &region, &whole, values)?;
        let mut gathered = self.gathered();
        gathered.left -= 1;
        Ok(gathered.left == 0)
    }

    /// Fails naming the first chunk that did not come.
    fn check_whole(&self) -> Result<()> {
        let gathered = self.gathered();
        let missing = match gathered.done.is_empty() {
            true => (self.grid.total() > 0).then_some(0),
            false => gathered.done.iter().position(|done| !done),
        };
        match missing {
            Some(linear) => {
                let coords = self.grid.coords(linear as u64);
                Err(Error::invalid("a chunk was not written").in_array(&self.name).in_chunk(&coords))
            }
            None => Ok(()),
        }
    }
}

/// Copies the cells of a box, row-major, into those of a larger one.
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
        #[allow(clippy::cast_possible_truncation)]
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
        // The next row, last dimension but one fastest.
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
        let mut reserved = Map::new();
        let mut encoder = Map::from([
            ("name".to_owned(), Item::Text("tesseral".to_owned())),
            ("version".to_owned(), Item::Text(env!("CARGO_PKG_VERSION").to_owned())),
        ]);
        let mut masks = MaskOptions::any();
        for (name, value) in &options.extra {
            let Value::Text(text) = value else {
                return Err(Error::invalid(format!("the option {name:?} of .tgm is text")));
            };
            let item = Item::Text(text.clone());
            match name.as_str() {
                "time" | "uuid" => drop(reserved.insert(name.clone(), item)),
                "encoder_name" => drop(encoder.insert("name".to_owned(), item)),
                "encoder_version" => drop(encoder.insert("version".to_owned(), item)),
                // Comes before those of one kind, as options are in order of their names.
                "mask_method" => MaskKind::ALL.into_iter().try_for_each(|kind| masks.store(kind, text))?,
                "nan_mask_method" => masks.store(MaskKind::Nan, text)?,
                "pos_inf_mask_method" => masks.store(MaskKind::PosInf, text)?,
                "neg_inf_mask_method" => masks.store(MaskKind::NegInf, text)?,
                _ => return Err(Error::invalid(format!(".tgm has no option {name:?}"))),
            }
        }
        reserved.insert("encoder".to_owned(), Item::map(encoder));
        if options.memory_budget.is_some() {
            return Err(Error::unsupported("a memory budget in .tgm"));
        }
        Ok(Self {
            staged: store.stage("", options.overwrite)?,
            hashed: options.digests,
            masks,
            reserved,
            extra: Map::new(),
            history: Vec::new(),
            arrays: Vec::new(),
            work_space: options.work_space.unwrap_or(u64::MAX),
            placed: Mutex::default(),
        })
    }

    fn array(&self, array: usize) -> Result<&Array> {
        self.arrays.get(array).ok_or_else(|| Error::invalid(format!("array {array} was not begun")))
    }

    fn placed(&self) -> MutexGuard<'_, Placed> {
        self.placed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encodes a whole object and writes it behind those before it, or keeps it until they have come.
    fn place(&self, number: usize, cells: Vec<u8>) -> Result<()> {
        let array = self.array(number)?;
        let frame = encode_object(array.stages.clone(), Cow::Owned(cells), &self.masks, self.hashed);
        self.put(number, Some(frame.map_err(|e| e.in_array(&array.name))?))
    }

    /// Writes an object, and those that waited for it.
    fn put(&self, number: usize, frame: Option<ObjectFrame<'static>>) -> Result<()> {
        let mut placed = self.placed();
        placed.waiting.insert(number, frame);
        if placed.lengths.is_empty() {
            placed.start = self.likely_head()?;
            placed.end = placed.start;
        }
        while let Some((number, frame)) = {
            let next = placed.lengths.len();
            placed.waiting.remove(&next).map(|frame| (next, frame))
        } {
            let (end, length, hash) = match frame {
                Some(frame) => self.write(&frame, placed.end)?,
                None => self.encode_spooled(number, placed.end)?,
            };
            placed.end = end;
            placed.lengths.push(length);
            placed.hashes.push(hash);
        }
        Ok(())
    }

    /// Writes a frame; gives where it ends, its length and its hash.
    fn write(&self, frame: &ObjectFrame<'_>, mut at: u64) -> Result<(u64, u64, u64)> {
        frame.write(|bytes| {
            self.staged.write_at(at, bytes)?;
            at += bytes.len() as u64;
            Ok::<(), Error>(())
        })?;
        Ok((at, frame.total_length(), frame.hash()))
    }

    /// The same for an object whose cells wait in the file.
    fn encode_spooled(&self, number: usize, at: u64) -> Result<(u64, u64, u64)> {
        let array = self.array(number)?;
        let (staged, offset) = (&*self.staged, self.spool_at(number)?);
        let spool = Spool { staged, stages: &array.stages, offset, len: array.len };
        let frame = spool.encode(at, &self.masks, self.hashed).map_err(|e| e.in_array(&array.name))?;
        Ok((frame.end, frame.length, frame.hash))
    }

    /// Where the cells of an object wait: beyond where the message ends, however badly objects compress.
    fn spool_at(&self, number: usize) -> Result<u64> {
        let message: u64 = self.arrays.iter().map(|array| array.len.saturating_mul(2) + (1 << 20)).sum();
        let before: u64 = self.arrays.iter().take(number).map(|array| array.len).sum();
        Ok(self.likely_head()?.saturating_add(message).saturating_add(before))
    }

    /// How long what comes before the objects will be, if nothing compresses them much. Where that is wrong, objects are moved
    /// at the end.
    fn likely_head(&self) -> Result<u64> {
        let frame = |array: &Array| {
            let descriptor = Descriptor::raw(array.dtype, &array.shape);
            let cells = array.bytes_of(Region::from_shape(&array.shape).cells())? as u64;
            let cbor = descriptor.to_bytes().len() as u64;
            Ok(cells.saturating_add(cbor).saturating_add(Kind::Object.min_len()))
        };
        let lengths: Vec<u64> = self.arrays.iter().map(frame).collect::<Result<_>>()?;
        let hashes = vec![0; lengths.len()];
        let around = surround(&self.metadata(), &lengths, &hashes, self.hashed, AggregateHash::Auto)?;
        Ok(around.head.len() as u64)
    }

    fn metadata(&self) -> Metadata {
        let mut extra = self.extra.clone();
        if !self.history.is_empty() {
            extra.insert(HISTORY.to_owned(), Item::Array(self.history.iter().map(history_item).collect()));
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

fn history_item(row: &HistoryRow) -> Item {
    let text = |text: &String| Item::Text(text.clone());
    let map = |map: &std::collections::BTreeMap<String, String>| {
        Item::map(map.iter().map(|(key, value)| (key.clone(), text(value))))
    };
    let mut pairs = vec![("op", text(&row.op)), ("source", text(&row.source)), ("at", text(&row.at))];
    if !row.parents.is_empty() {
        pairs.push(("parents", Item::Array(row.parents.iter().map(text).collect())));
    }
    if !row.params.is_empty() {
        pairs.push(("params", map(&row.params)));
    }
    if !row.extra.is_empty() {
        pairs.push(("extra", map(&row.extra)));
    }
    Item::map(pairs)
}

/// The dtype under which cells are stored.
fn stored_dtype(schema: &ArraySchema) -> Result<DType> {
    let [field] = &schema.fields[..] else {
        return Err(Error::unsupported("several fields in one Tensogram object"));
    };
    let dtype = match (field.cell, field.dtype) {
        (CellLen::Fixed(2), DType::Float32) => DType::Complex64,
        (CellLen::Fixed(2), DType::Float64) => DType::Complex128,
        (CellLen::One, dtype) => dtype,
        _ => return Err(Error::unsupported(format!("cells of {} in Tensogram", field.type_name()))),
    };
    if !descriptor::DTYPES.contains(&dtype) {
        return Err(Error::unsupported(format!("{dtype} in Tensogram")).hint("convert it with --cast"));
    }
    if field.nullable {
        return Err(Error::unsupported("null cells in Tensogram"));
    }
    if field.enumeration.is_some() {
        return Err(Error::unsupported("enumerated fields in Tensogram"));
    }
    Ok(dtype)
}

/// The keys of an object.
fn base_of(schema: &ArraySchema) -> Result<Map> {
    if schema.attributes.contains_key(RESERVED) {
        return Err(Error::invalid(format!("the attribute {RESERVED:?} belongs to the format")));
    }
    let mut own = Map::new();
    let numbered = schema.name.split_once('/').is_some_and(|(m, o)| {
        [m, o].iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    });
    if !numbered && !schema.name.is_empty() {
        own.insert("name".to_owned(), Item::Text(schema.name.clone()));
    }
    if schema.dims.iter().any(|dim| !dim.name.is_empty()) {
        let names = schema.dims.iter().map(|dim| Item::Text(dim.name.clone())).collect();
        own.insert(DIM_NAMES.to_owned(), Item::Array(names));
    }
    if schema.dims.iter().any(|dim| dim.labels.is_some()) {
        let labels = schema.dims.iter().map(|dim| match &dim.labels {
            None => Ok(Item::Null),
            Some(Labels::Text(labels)) => Ok(Item::Array(labels.iter().cloned().map(Item::Text).collect())),
            Some(labels) => {
                let shown =
                    (0..labels.len()).filter_map(|i| labels.get(i)).map(|l| Item::Text(l.to_string()));
                Ok(Item::Array(shown.collect()))
            }
        });
        own.insert(DIM_LABELS.to_owned(), Item::Array(labels.collect::<Result<_>>()?));
    }
    let mut base = Map::new();
    for (key, value) in &schema.attributes {
        let item = Item::from_value(value)?;
        // Readers take these keys for what names the object and its dimensions: an attribute that says something else steps aside.
        let taken = match own.get(key) {
            Some(held) => *held != item,
            None => [DIM_NAMES, DIM_LABELS].contains(&key.as_str()) && !matches!(item, Item::Array(_)),
        };
        base.insert(if taken { format!("{SET_ASIDE}{key}") } else { key.clone() }, item);
    }
    base.extend(own);
    if let Some(fill) = &schema.fields[0].fill
        && !base.contains_key(FILL_ATTRIBUTES[0])
        && declared_fill(fill.dtype(), &schema.attributes).as_ref() != Some(fill)
    {
        let value = Value::Numbers { dtype: fill.dtype(), bytes: fill.bytes().to_vec() };
        if let Ok(Item::Array(mut items)) = Item::from_value(&value)
            && let Some(item) = items.pop()
        {
            base.insert(FILL_ATTRIBUTES[0].to_owned(), item);
        }
    }
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
                return Err(Error::unsupported("cells in another order than row-major in Tensogram"));
            }
            let dtype = stored_dtype(schema)?;
            let grid = schema.grid()?;
            let shape = Coords::from_slice(grid.shape());
            let stages = Stages::new(spec.codecs.first().map_or(&[], Vec::as_slice), dtype, &shape)?;
            let base = base_of(schema)?;
            let mut array = Array {
                name: schema.name.clone(),
                dtype,
                shape,
                grid,
                stages,
                base,
                len: 0,
                spooled: false,
                gathered: Mutex::default(),
            };
            array.len = array.bytes_of(Region::from_shape(&array.shape).cells())? as u64;
            array.spooled = array.len > self.work_space && spool::streams(&array.stages);
            Ok(array)
        })();
        self.arrays.push(begun.map_err(|e: Error| e.in_array(&schema.name))?);
        Ok(self.arrays.len() - 1)
    }

    fn wants_stats(&self, _array: usize) -> bool {
        false
    }

    fn needs_order(&self, _array: usize) -> bool {
        false
    }

    fn gathers(&self, array: usize) -> u64 {
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
            return Err(Error::invalid("one column of cells of one size").in_array(&array.name));
        };
        if values.len() != expected || validity.is_some_and(|validity| validity.contains(&0)) {
            let detail =
                format!("expected {expected} bytes of cells that are not null, found {}", values.len());
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
            return Err(Error::invalid("a chunk has one part").in_array(&array.name));
        };
        if part.bytes.len() != expected {
            return Err(Error::invalid("the cells do not fit the chunk").in_array(&array.name));
        }
        if array.spooled {
            let offset = self.spool_at(number)?;
            if array.spool(&*self.staged, offset, &chunk.coords, &part.bytes)? {
                self.put(number, None)?;
            }
        } else if let Some(cells) = array.gather(&chunk.coords, &part.bytes)? {
            self.place(number, cells)?;
        }
        Ok(())
    }

    fn set_attributes(&mut self, attributes: Attributes) -> Result<()> {
        let items = attributes.iter().map(|(key, value)| Ok((key.clone(), Item::from_value(value)?)));
        self.extra = items.collect::<Result<_>>()?;
        Ok(())
    }

    fn add_history(&mut self, row: HistoryRow) -> Result<()> {
        self.history.push(row);
        Ok(())
    }

    fn commit(self: Box<Self>) -> Result<()> {
        self.arrays.iter().try_for_each(Array::check_whole)?;
        for (number, array) in self.arrays.iter().enumerate() {
            if array.grid.total() == 0 {
                self.place(number, Vec::new())?;
            }
        }
        let placed = self.placed();
        let (lengths, hashes) = (&placed.lengths, &placed.hashes);
        let around = surround(&self.metadata(), lengths, hashes, self.hashed, AggregateHash::Auto)?;
        let head = around.head.len() as u64;
        if !lengths.is_empty() {
            shift(&*self.staged, placed.start, placed.end, head)?;
        }
        let end = head + (placed.end - placed.start);
        drop(placed);
        self.staged.write_at(0, &around.head)?;
        self.staged.write_at(end, &around.tail)?;
        self.staged.set_len(around.total_length)?;
        self.staged.publish()
    }
}
