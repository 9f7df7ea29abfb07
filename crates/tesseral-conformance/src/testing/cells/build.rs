//! Handmade and random containers.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use tesseral_core::condition::Condition;
use tesseral_core::dtype::Class;
use tesseral_core::{
    ArraySchema, Attributes, CellLen, DType, Dimension, Error, Order, Result, Scalar, Value,
};
use tesseral_store::MemoryStore;
use xxhash_rust::xxh3::xxh3_64;

use super::parse::OPS;
use super::{Chunk, MAGIC, StoredLayer, columns};
use crate::oracle::{Row, chunk_stats, compare_fields, compare_rows, is_deleted};
use crate::testing::Random;
use crate::testing::coding::{self, Coding};
use crate::testing::layered::Statistics;
use crate::testing::values::{self, Buffers, Cell};
use crate::testing::wire::{DirectoryWriter, HEADER, header};
use tesseral_format::{Column, Delete};

/// Milliseconds between layers in samples.
const SPAN: u64 = 1_000_000;

/// A cell to store.
#[derive(Clone, Debug)]
pub struct StoredRow {
    /// Coordinates and fields as native-endian bytes.
    pub row: Row,
    /// Its write time; stored by layers with timestamps.
    pub time: u64,
}

/// A layer to build.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Its cells in any order.
    pub rows: Vec<StoredRow>,
    /// Whether it stores timestamps. Only then, or where the array allows duplicates, may a position occur twice.
    pub times: bool,
    /// Maximum cells per chunk.
    pub capacity: usize,
    /// The coding of the columns.
    pub coding: Coding,
    /// The statistics of its chunks.
    pub statistics: Statistics,
    /// Whether its chunks have checksums.
    pub digests: bool,
}

/// Builds a container.
#[derive(Debug)]
pub struct Builder {
    random: Random,
    payload: Vec<u8>,
    directory: DirectoryWriter,
    arrays: usize,
}

fn scalar(dtype: DType, native: &[u8]) -> Result<Scalar> {
    let mut bytes = native.to_vec();
    if cfg!(target_endian = "big") {
        bytes.chunks_exact_mut(dtype.word()).for_each(<[u8]>::reverse);
    }
    Scalar::from_le_bytes(dtype, &bytes)
}

impl Builder {
    /// An empty container. The seed determines padding, loose bounds and mixed statistics.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            payload: vec![0; HEADER as usize],
            directory: DirectoryWriter::default(),
            arrays: 0,
        }
    }

    /// Adds an array with its layers, the newest last, and stored deletes, each a single comparison.
    ///
    /// # Errors
    /// `InvalidRequest` when cells do not match; `Unsupported` for features the format cannot hold.
    pub fn array(mut self, schema: &ArraySchema, layers: &[Layer], deletes: &[Delete]) -> Result<Self> {
        self.directory.schema(schema)?;
        self.directory.count(deletes.len());
        for delete in deletes {
            let Condition::Compare { name, op, value } = &delete.condition else {
                return Err(Error::unsupported("deletes with more than one comparison"));
            };
            self.directory.u64(delete.timestamp);
            self.directory.u32(delete.layer);
            self.directory.text(name);
            self.directory.u8(OPS.iter().position(|o| o == op).unwrap_or(0) as u8);
            self.directory.scalar(value);
        }
        self.directory.count(layers.len());
        for layer in layers {
            let stored = self.layer(schema, layer)?;
            self.put_layer(&stored);
        }
        self.arrays += 1;
        Ok(self)
    }

    fn put_layer(&mut self, layer: &StoredLayer) {
        let sink = &mut self.directory;
        sink.u8(u8::from(layer.times));
        sink.u8(layer.coding.to_bits());
        sink.u32(layer.coding.granule);
        sink.count(layer.chunks.len());
        for chunk in &layer.chunks {
            sink.u64(chunk.cells);
            for (low, high) in &chunk.bounds {
                sink.scalar(low);
                sink.scalar(high);
            }
            sink.optional(chunk.digest.as_ref(), |s, &(start, end, hash)| {
                [start, end, hash].into_iter().for_each(|n| s.u64(n));
            });
            for &(offset, len) in chunk.columns.iter().flatten() {
                sink.u64(offset);
                sink.u64(len);
            }
            chunk.stats.iter().for_each(|stats| sink.stats(stats));
        }
    }

    fn layer(&mut self, schema: &ArraySchema, layer: &Layer) -> Result<StoredLayer> {
        let mut rows: Vec<&StoredRow> = layer.rows.iter().collect();
        let fits =
            |row: &Row| row.coords.len() == schema.dims.len() && row.fields.len() == schema.fields.len();
        if !rows.iter().all(|row| fits(&row.row)) {
            return Err(Error::invalid("the cells do not match the array").in_array(&schema.name));
        }
        // Versions of a cell are adjacent, the newest first.
        rows.sort_by(|a, b| compare_in_order(schema, &a.row, &b.row).then(b.time.cmp(&a.time)));
        let mut stored = StoredLayer { times: layer.times, coding: layer.coding, chunks: Vec::new() };
        for rows in rows.chunks(layer.capacity.max(1)) {
            let chunk = self.chunk(schema, layer, rows)?;
            stored.chunks.push(chunk);
        }
        Ok(stored)
    }

    fn chunk(&mut self, schema: &ArraySchema, layer: &Layer, rows: &[&StoredRow]) -> Result<Chunk> {
        let padding = self.random.below(2) * self.random.below(9);
        self.payload.extend(self.random.bytes(padding as usize));
        let start = self.payload.len() as u64;
        let count = rows.len() as u64;
        let mut columns_stored = Vec::new();
        for (column, layout) in columns(schema, layer.times) {
            let cell = |row: &&StoredRow| -> Cell {
                match column {
                    Column::Dim(d) => Some(row.row.coords[usize::from(d)].clone()),
                    Column::Field(f) => row.row.fields[usize::from(f)].clone(),
                    _ => Some(row.time.to_ne_bytes().to_vec()),
                }
            };
            let cells: Vec<Cell> = rows.iter().map(cell).collect();
            let element = match column {
                Column::Field(f) => schema.fields[usize::from(f)].dtype.size().unwrap_or(1),
                _ => 1,
            };
            let buffers = Buffers::new(layout.size, element, layout.nullable, &cells);
            let mut parts = Vec::new();
            for (_, bytes) in coding::encode(layer.coding, layout, count, buffers.data())? {
                parts.push((self.payload.len() as u64, bytes.len() as u64));
                self.payload.extend(bytes.as_ref());
            }
            columns_stored.push(parts);
        }
        let mut bounds = Vec::new();
        for (d, dim) in schema.dims.iter().enumerate() {
            let coords = rows.iter().map(|row| scalar(dim.dtype, &row.row.coords[d]));
            let mut coords = coords.collect::<Result<Vec<_>>>()?;
            coords.sort_by(|a, b| a.compare(b).unwrap_or(Ordering::Equal));
            let Some((low, high)) = coords.first().cloned().zip(coords.last().cloned()) else {
                return Err(Error::invalid("empty chunk"));
            };
            // Bounds of text may be loose.
            let loose = dim.dtype.class() == Class::Text && self.random.chance(1, 4);
            bounds.push(if loose { (Scalar::from_le_bytes(dim.dtype, b"")?, high) } else { (low, high) });
        }
        let mut stats = Vec::new();
        for (f, field) in schema.fields.iter().enumerate() {
            let left_out = values::left_out(&mut self.random, field);
            let exact = chunk_stats(field, &left_out, rows.iter().map(|row| row.row.fields[f].as_deref()));
            let style = match (layer.statistics, self.random.below(3)) {
                (Statistics::Mixed, 0) => Statistics::None,
                (Statistics::Mixed, 1) => Statistics::Loose,
                (style, _) => style,
            };
            stats.push(match style {
                Statistics::None => tesseral_core::ChunkStats::unknown(count),
                Statistics::Loose => values::loosen(exact, &mut self.random),
                _ => exact,
            });
        }
        let digest = layer
            .digests
            .then(|| (start, self.payload.len() as u64, xxh3_64(&self.payload[start as usize..])));
        Ok(Chunk { cells: count, bounds, digest, columns: columns_stored, stats })
    }

    /// The bytes of the container.
    pub fn build(self) -> Vec<u8> {
        let mut sink = DirectoryWriter::default();
        sink.count(0);
        sink.count(self.arrays);
        sink.0.extend(self.directory.0);
        let mut out = self.payload;
        let header = header(MAGIC, out.len() as u64, &sink.0);
        out[..HEADER as usize].copy_from_slice(&header);
        out.extend(sink.0);
        out
    }
}

/// The order in which a chunk lists its cells.
fn compare_in_order(schema: &ArraySchema, a: &Row, b: &Row) -> Ordering {
    let dims: Vec<usize> = match schema.cell_order {
        Order::ColMajor => (0..schema.dims.len()).rev().collect(),
        _ => (0..schema.dims.len()).collect(),
    };
    let turned =
        |row: &Row| Row { coords: dims.iter().map(|&d| row.coords[d].clone()).collect(), fields: vec![] };
    let dtypes: Vec<DType> = dims.iter().map(|&d| schema.dims[d].dtype).collect();
    compare_rows(&dtypes, &turned(a), &turned(b))
}

/// A random container with its expected content.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// For each array its schema and its rows, sorted.
    pub truth: Vec<(ArraySchema, Vec<Row>)>,
}

impl Sample {
    /// The container in a store.
    pub fn store(&self) -> Arc<MemoryStore> {
        Arc::new(MemoryStore::with_object("sample.cells", self.bytes.clone()))
    }
}

/// A container of a few small arrays.
///
/// # Errors
/// None for any seed.
pub fn sample(seed: u64) -> Result<Sample> {
    sample_with(seed, 20)
}

/// A container of a few arrays whose layers have up to `cells` cells.
///
/// # Errors
/// None for any seed.
pub fn sample_with(seed: u64, cells: u64) -> Result<Sample> {
    let mut random = Random::new(seed);
    let mut builder = Builder::new(random.draw());
    let mut truth = Vec::new();
    for number in 0..random.within(1, 2) {
        let schema = schema(&mut random, format!("s{number}"))?;
        let layers: Vec<Layer> =
            (0..random.below(5)).map(|i| layer(&mut random, &schema, i, cells)).collect();
        let deletes = deletes(&mut random, &schema, &layers)?;
        builder = builder.array(&schema, &layers, &deletes)?;
        let rows = resolve(&schema, &layers, &deletes)?;
        truth.push((schema, rows));
    }
    Ok(Sample { bytes: builder.build(), truth })
}

fn schema(random: &mut Random, name: String) -> Result<ArraySchema> {
    let mut dims = Vec::new();
    for d in 0..random.within(1, 3) {
        let mut dim = Dimension::new(format!("d{d}"), 0);
        dim.dtype = *random.pick(&[DType::Int32, DType::Int32, DType::Float64, DType::Utf8]);
        dim.extent = (dim.dtype == DType::Int32).then_some(41);
        dim.domain = match dim.dtype {
            DType::Int32 => Some((Scalar::from_element(-20_i32), Scalar::from_element(20_i32))),
            DType::Float64 => Some((Scalar::from_element(-100_f64), Scalar::from_element(100_f64))),
            _ => None,
        };
        dims.push(dim);
    }
    Ok(ArraySchema {
        field_attributes: None,
        role: Default::default(),
        name,
        dims,
        fields: (0..random.within(1, 3)).map(|i| values::field(random, format!("f{i}"))).collect(),
        chunk_shape: None,
        shard_shape: None,
        cell_order: *random.pick(&[Order::RowMajor, Order::ColMajor]),
        sparse: true,
        allows_duplicates: random.chance(1, 3),
        attributes: Attributes::from([("units".to_owned(), Value::from("m"))]),
    })
}

fn coordinate(random: &mut Random, dtype: DType) -> Vec<u8> {
    match dtype {
        DType::Int32 => (random.below(9) as i32 - 4).to_ne_bytes().to_vec(),
        DType::Float64 => ((random.below(9) as f64 - 4.0) / 2.0).to_ne_bytes().to_vec(),
        _ => (0..random.below(4)).map(|_| b'a' + random.below(3) as u8).collect(),
    }
}

/// Layer `number` was written in the milliseconds from `number * SPAN`.
fn layer(random: &mut Random, schema: &ArraySchema, number: u64, cells: u64) -> Layer {
    let times = random.chance(1, 4);
    let mut positions = std::collections::BTreeSet::new();
    let mut rows = Vec::new();
    for i in 0..random.below(cells + 1) {
        let coords: Vec<_> = schema.dims.iter().map(|dim| coordinate(random, dim.dtype)).collect();
        let fields = schema.fields.iter().map(|field| values::cell(random, field)).collect();
        if positions.insert(coords.clone()) || times || schema.allows_duplicates {
            // The factor and the span are coprime, so no two cells of a layer have the same timestamp.
            rows.push(StoredRow { row: Row { coords, fields }, time: number * SPAN + i * 377_777 % SPAN });
        }
    }
    Layer {
        rows,
        times,
        capacity: random.within(1, 8) as usize,
        coding: *random.pick(&[
            Coding::PLAIN,
            Coding { big_endian: true, ..Coding::PLAIN },
            Coding { xor: true, big_endian: false, granule: 0 },
            Coding { xor: true, big_endian: true, granule: 3 },
        ]),
        statistics: *random.pick(&[Statistics::None, Statistics::Exact, Statistics::Mixed]),
        digests: random.chance(2, 3),
    }
}

fn deletes(random: &mut Random, schema: &ArraySchema, layers: &[Layer]) -> Result<Vec<Delete>> {
    let mut out = Vec::new();
    if layers.is_empty() || !random.chance(1, 3) {
        return Ok(out);
    }
    for _ in 0..random.within(1, 2) {
        // Between two layers, or in the middle of a layer with timestamps.
        let number = random.below(layers.len() as u64 + 1);
        let inside = layers.get(number as usize).is_some_and(|layer| layer.times);
        let (number, timestamp) = match (inside, number) {
            (true, _) => (number, number * SPAN + SPAN / 2),
            (false, 0) => (1, SPAN - 1),
            (false, _) => (number, number * SPAN - 1),
        };
        let numeric = |f: &&tesseral_core::Field| f.cell == CellLen::One && f.dtype.class() != Class::Complex;
        let (name, value) = match schema.fields.iter().find(numeric).filter(|_| random.chance(1, 2)) {
            Some(field) => (field.name.clone(), scalar(field.dtype, &values::value(random, field))?),
            None => {
                let dim = random.pick(&schema.dims);
                (dim.name.clone(), scalar(dim.dtype, &coordinate(random, dim.dtype))?)
            }
        };
        let condition = Condition::Compare { name, op: *random.pick(&OPS), value };
        out.push(Delete { timestamp, condition, layer: number as u32 });
    }
    Ok(out)
}

/// The expected rows of an array, directly from the stored rows.
fn resolve(schema: &ArraySchema, layers: &[Layer], deletes: &[Delete]) -> Result<Vec<Row>> {
    let mut kept: Vec<(Row, u32, Option<u64>)> = Vec::new();
    let mut newest: BTreeMap<Vec<Vec<u8>>, usize> = BTreeMap::new();
    for (number, layer) in layers.iter().enumerate() {
        let mut rows: Vec<&StoredRow> = layer.rows.iter().collect();
        rows.sort_by_key(|row| row.time);
        for row in rows {
            let cell = (row.row.clone(), number as u32, layer.times.then_some(row.time));
            match newest.get(&row.row.coords).filter(|_| !schema.allows_duplicates) {
                Some(&place) => kept[place] = cell,
                None => {
                    newest.insert(row.row.coords.clone(), kept.len());
                    kept.push(cell);
                }
            }
        }
    }
    let mut rows = Vec::new();
    for (row, layer, time) in kept {
        if !is_deleted(schema, deletes, &row, layer, time)? {
            rows.push(row);
        }
    }
    let dtypes: Vec<DType> = schema.dims.iter().map(|d| d.dtype).collect();
    rows.sort_by(|a, b| compare_rows(&dtypes, a, b).then_with(|| compare_fields(schema, a, b)));
    Ok(rows)
}
