//! Handmade and random containers.

use std::sync::Arc;

use tesseral_core::{
    ArraySchema, Attributes, Coords, Dimension, Error, Order, Region, Result, Selection, Value,
};
use tesseral_store::MemoryStore;
use xxhash_rust::xxh3::xxh3_64;

use super::write::put_layer;
use super::{Chunk, Extent, MAGIC, StoredLayer};
use crate::oracle::{Cells, chunk_stats, for_each_cell, position_in};
use crate::testing::coding::{self, Coding, ColumnCoding};
use crate::testing::values::{self, Buffers, Cell};
use crate::testing::wire::{DirectoryWriter, HEADER, header};
use crate::testing::{Random, oracle_cells};

/// The statistics that the chunks of a layer store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistics {
    /// None.
    None,
    /// Exact statistics; bounds where more cells are stored than covered.
    Exact,
    /// Deliberately loose bounds.
    Loose,
    /// A random choice of the above for each chunk.
    Mixed,
}

/// A layer to build.
#[derive(Clone, Debug)]
pub struct Layer {
    /// The region it covers.
    pub cover: Region,
    /// The stored extent of each tile.
    pub extent: Extent,
    /// The coding of each field.
    pub codings: Vec<Coding>,
    /// For each field the cells of the region, row-major, `None` where null.
    pub cells: Vec<Vec<Cell>>,
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
    attributes: Attributes,
    directory: DirectoryWriter,
    arrays: usize,
}

impl Builder {
    /// An empty container. The seed determines garbage, padding and mixed statistics.
    pub fn new(seed: u64) -> Self {
        Self {
            random: Random::new(seed),
            payload: vec![0; HEADER as usize],
            attributes: Attributes::new(),
            directory: DirectoryWriter::default(),
            arrays: 0,
        }
    }

    /// Sets an attribute of the container.
    #[must_use]
    pub fn attribute(mut self, name: &str, value: Value) -> Self {
        self.attributes.insert(name.to_owned(), value);
        self
    }

    /// Adds an array with its layers, the newest last.
    ///
    /// # Errors
    /// `InvalidRequest` when cells or regions do not match; `Unsupported` for schemas the format cannot hold.
    pub fn array(mut self, schema: &ArraySchema, layers: &[Layer]) -> Result<Self> {
        self.directory.schema(schema)?;
        self.directory.count(layers.len());
        for layer in layers {
            let stored = self.layer(schema, layer)?;
            put_layer(&mut self.directory, &stored);
        }
        self.arrays += 1;
        Ok(self)
    }

    fn layer(&mut self, schema: &ArraySchema, layer: &Layer) -> Result<StoredLayer> {
        let grid = schema.grid()?;
        let fits = Region::from_shape(grid.shape()).contains(&layer.cover)
            && layer.codings.len() == schema.fields.len()
            && layer.cells.len() == schema.fields.len()
            && layer.cells.iter().all(|cells| Some(cells.len() as u64) == layer.cover.cells());
        if !fits {
            return Err(Error::invalid("the layer does not match its array").in_array(&schema.name));
        }
        let mut stored = StoredLayer {
            cover: layer.cover.clone(),
            extent: layer.extent,
            codings: layer.codings.clone(),
            chunks: Vec::new(),
        };
        if !layer.cover.is_empty() {
            for coords in grid.touched(&Selection::from_region(&layer.cover)) {
                let boxes = stored.boxes(&grid, &coords);
                let (cover, tile) = boxes.ok_or_else(|| Error::invalid("tile bounds exceed u64"))?;
                let chunk = self.chunk(schema, layer, coords, &cover, &tile)?;
                stored.chunks.push(chunk);
            }
        }
        Ok(stored)
    }

    fn chunk(
        &mut self,
        schema: &ArraySchema,
        layer: &Layer,
        coords: Coords,
        cover: &Region,
        tile: &Region,
    ) -> Result<Chunk> {
        let padding = self.random.below(2) * self.random.below(9);
        self.payload.extend(self.random.bytes(padding as usize));
        let start = self.payload.len() as u64;
        let count = tile.cells().unwrap_or(0);
        let mut fields = Vec::new();
        for (i, field) in schema.fields.iter().enumerate() {
            let mut cells: Vec<Cell> = (0..count).map(|_| values::cell(&mut self.random, field)).collect();
            let mut covered_cells = Vec::new();
            let mut failed = None;
            for_each_cell(cover, |at| {
                let from = position_in(&layer.cover, Order::RowMajor, at);
                match from.and_then(|from| Ok((from, position_in(tile, schema.cell_order, at)?))) {
                    Ok((from, to)) => {
                        let cell = &layer.cells[i][from as usize];
                        cells[to as usize].clone_from(cell);
                        covered_cells.push(cell.as_deref());
                    }
                    Err(e) => failed = Some(e),
                }
            });
            if let Some(e) = failed {
                return Err(e);
            }
            let left_out = values::left_out(&mut self.random, field);
            let mut stats = chunk_stats(field, &left_out, covered_cells.into_iter());
            if tile != cover {
                stats = stats.weaken();
            }
            stats.cells = count;
            let style = match (layer.statistics, self.random.below(3)) {
                (Statistics::Mixed, 0) => Statistics::None,
                (Statistics::Mixed, 1) => Statistics::Exact,
                (Statistics::Mixed, _) => Statistics::Loose,
                (style, _) => style,
            };
            let stats = match style {
                Statistics::None => tesseral_core::ChunkStats::unknown(count),
                Statistics::Loose => values::loosen(stats, &mut self.random),
                _ => stats,
            };
            let buffers = Buffers::from_field(field, &cells);
            let mut parts = Vec::new();
            for (_, bytes) in
                coding::encode(layer.codings[i], ColumnCoding::from_field(field), count, buffers.data())?
            {
                parts.push((self.payload.len() as u64, bytes.len() as u64));
                self.payload.extend(bytes.as_ref());
            }
            fields.push((parts, stats));
        }
        let end = self.payload.len() as u64;
        let digest = layer.digests.then(|| (start, end, xxh3_64(&self.payload[start as usize..])));
        Ok(Chunk { coords, digest, fields })
    }

    /// The bytes of the container.
    ///
    /// # Errors
    /// `Unsupported` for attributes the format cannot hold.
    pub fn build(self) -> Result<Vec<u8>> {
        let mut sink = DirectoryWriter::default();
        sink.attributes(&self.attributes)?;
        sink.count(self.arrays);
        sink.0.extend(self.directory.0);
        let mut out = self.payload;
        let header = header(MAGIC, out.len() as u64, &sink.0);
        out[..HEADER as usize].copy_from_slice(&header);
        out.extend(sink.0);
        Ok(out)
    }
}

/// A random container with its expected content.
#[derive(Clone, Debug)]
pub struct Sample {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// For each array its schema and for each field all of its cells, row-major.
    pub truth: Vec<(ArraySchema, Vec<Cells>)>,
}

impl Sample {
    /// The container in a store.
    pub fn store(&self) -> Arc<MemoryStore> {
        Arc::new(MemoryStore::with_object("sample.layered", self.bytes.clone()))
    }
}

/// A container of a few small arrays.
///
/// # Errors
/// None for any seed.
pub fn sample(seed: u64) -> Result<Sample> {
    sample_with(seed, 9)
}

/// A container of a few arrays of up to `extent` positions along each dimension.
///
/// # Errors
/// None for any seed.
pub fn sample_with(seed: u64, extent: u64) -> Result<Sample> {
    let mut random = Random::new(seed);
    let mut builder = Builder::new(random.draw()).attribute("seed", Value::Int(seed.cast_signed()));
    let mut truth = Vec::new();
    for number in 0..random.within(1, 2) {
        let (schema, layers) = array(&mut random, format!("a{number}"), extent);
        let fields = (0..schema.fields.len()).map(|i| paint(&schema, &layers, i)).collect::<Result<_>>()?;
        builder = builder.array(&schema, &layers)?;
        truth.push((schema, fields));
    }
    Ok(Sample { bytes: builder.build()?, truth })
}

fn array(random: &mut Random, name: String, extent: u64) -> (ArraySchema, Vec<Layer>) {
    let rank = *random.pick(&[0, 1, 1, 2, 2, 2, 3]);
    let shape: Coords =
        (0..rank).map(|_| if random.chance(1, 40) { 0 } else { random.within(1, extent.max(1)) }).collect();
    let dims = shape.iter().enumerate().map(|(d, &n)| Dimension::new(format!("d{d}"), n)).collect();
    let chunk = (0..rank).map(|_| random.within(1, 1 + extent / 2)).collect();
    let schema = ArraySchema {
        field_attributes: None,
        role: Default::default(),
        name,
        dims,
        fields: (0..random.within(1, 3)).map(|i| values::field(random, format!("f{i}"))).collect(),
        chunk_shape: Some(chunk),
        shard_shape: None,
        cell_order: *random.pick(&[Order::RowMajor, Order::ColMajor]),
        sparse: false,
        allows_duplicates: false,
        attributes: Attributes::from([("units".to_owned(), Value::from("K"))]),
    };
    let layers = (0..random.below(5)).map(|i| layer(random, &schema, &shape, i)).collect();
    (schema, layers)
}

fn layer(random: &mut Random, schema: &ArraySchema, shape: &[u64], number: u64) -> Layer {
    let whole = number == 0 && random.chance(1, 2);
    let tiles = schema.chunk_shape.clone().unwrap_or_default();
    let aligned = random.chance(1, 3);
    let cover = Region::new(shape.iter().zip(&tiles).map(|(&n, &tile)| {
        let (a, b) = (random.below(n + 1), random.below(n + 1));
        match (whole, aligned) {
            (true, _) => (0, n),
            (_, true) => (a.min(b) / tile * tile, (a.max(b).div_ceil(tile) * tile).min(n)),
            _ => (a.min(b), a.max(b)),
        }
    }));
    let count = cover.cells().unwrap_or(0);
    let fields = &schema.fields;
    let coding = |random: &mut Random| match random.below(5) {
        0 | 1 => Coding::PLAIN,
        2 => Coding { big_endian: true, ..Coding::PLAIN },
        3 => Coding { xor: true, big_endian: random.chance(1, 2), granule: 0 },
        _ => Coding { xor: random.chance(2, 3), big_endian: false, granule: random.within(1, 5) as u32 },
    };
    Layer {
        extent: *random.pick(&[Extent::Full, Extent::Clipped, Extent::Tight]),
        codings: fields.iter().map(|_| coding(random)).collect(),
        cells: fields.iter().map(|f| (0..count).map(|_| values::cell(random, f)).collect()).collect(),
        statistics: *random.pick(&[
            Statistics::None,
            Statistics::Exact,
            Statistics::Mixed,
            Statistics::Mixed,
        ]),
        digests: random.chance(2, 3),
        cover,
    }
}

/// The expected cells of a field, directly from the layers.
fn paint(schema: &ArraySchema, layers: &[Layer], i: usize) -> Result<Cells> {
    let field = &schema.fields[i];
    let everything = Region::from_shape(&schema.shape().unwrap_or_default());
    let mut cells = vec![values::uncovered(field); everything.cells().unwrap_or(0) as usize];
    for layer in layers {
        let mut from = layer.cells[i].iter();
        let mut failed = None;
        for_each_cell(&layer.cover, |at| match position_in(&everything, Order::RowMajor, at) {
            Ok(to) => cells[to as usize] = from.next().cloned().flatten(),
            Err(e) => failed = Some(e),
        });
        if let Some(e) = failed {
            return Err(e);
        }
    }
    Ok(oracle_cells(field, cells))
}
