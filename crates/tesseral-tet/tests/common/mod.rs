//! Shared helpers of the tests: read and write whole arrays.
// Each test binary uses a part of it; helpers outside test functions can panic.
#![allow(dead_code, clippy::unwrap_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tesseral_core::{ArraySchema, ChunkGrid, Error, HistoryRow, Region, Result, Selection};
use tesseral_format::{
    ArraySource, ArraySpec, CodecSpec, ColumnData, ColumnMut, ContainerSource, CreateOptions, Format,
    OpenOptions, Request, Scratch, Writer,
};
use tesseral_store::{MemoryStore, Store, StoreExt};
use tesseral_tet::TetFormat;

/// Folder of files written by the reference.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/tet")
}

pub fn memory(bytes: impl Into<bytes::Bytes>) -> Arc<dyn Store> {
    Arc::new(MemoryStore::with_object("memory.tet", bytes))
}

pub fn open(bytes: impl Into<bytes::Bytes>) -> Result<Arc<dyn ContainerSource>> {
    TetFormat.open(memory(bytes), &OpenOptions::default())
}

/// Row-major offset of a cell.
fn offset(cell: &[u64], shape: &[u64]) -> usize {
    cell.iter().zip(shape).fold(0, |at, (c, n)| at * n + c) as usize
}

/// Every cell of a box, row-major.
fn cells(region: &Region) -> Vec<Vec<u64>> {
    region.bounds().iter().fold(vec![Vec::new()], |cells, &(start, end)| {
        cells.iter().flat_map(|c| (start..end).map(move |i| [&c[..], &[i]].concat())).collect()
    })
}

/// Reads a whole array cell by cell, without optimizations. Fails if a cell is missing.
pub fn read_flat(container: &dyn ContainerSource, index: usize) -> Result<Vec<u8>> {
    let array = container.array(index)?;
    read_array(container, &*array)
}

pub fn read_array(container: &dyn ContainerSource, array: &dyn ArraySource) -> Result<Vec<u8>> {
    let shape = array.schema().shape().unwrap();
    let size = array.schema().fields[0].cell_size().unwrap();
    let plan = tesseral_format::plan(array, container.store(), &Request::cells(Selection::all(&shape), 0))?;
    let total = Region::from_shape(&shape).cells().unwrap() as usize;
    let mut out = vec![0; total * size];
    let mut seen = vec![false; total];
    let mut scratch = Scratch::default();
    for chunk in &plan.chunks {
        let part = chunk.parts[0];
        let range = part.offset..part.offset + part.len;
        let stored = container.store().read(&array.object(part.object), range)?;
        for span in array.digests(chunk) {
            let root =
                span.root().is_none_or(|(_, root, digests)| xxhash_rust::xxh3::xxh3_64(digests) == root);
            let sound = span.blocks(&span.range).all(|block| {
                let at = |offset: u64| (offset - part.offset) as usize;
                block.compute(&stored[at(block.range.start)..at(block.range.end)]) == block.expected
            });
            if !(root && sound) {
                return Err(Error::corrupt("chunk", "test", part.offset, "digest"));
            }
        }
        let region = chunk.cover.region().unwrap();
        let mut tile = vec![0xaa; chunk.cells as usize * size];
        let into = ColumnMut::Fixed { values: &mut tile, validity: None };
        array.decode(chunk, part.column, &[stored], 0..chunk.cells, into, &mut scratch)?;
        for (cell, bytes) in cells(region).iter().zip(tile.chunks_exact(size)) {
            let at = offset(cell, &shape);
            assert!(!std::mem::replace(&mut seen[at], true), "duplicate cell {cell:?}");
            out[at * size..(at + 1) * size].copy_from_slice(bytes);
        }
    }
    assert!(seen.iter().all(|s| *s), "a cell is missing from the plan");
    Ok(out)
}

/// Extracts the cells of one chunk from a flat array.
pub fn tile(flat: &[u8], grid: &ChunkGrid, coords: &[u64], size: usize) -> Vec<u8> {
    let picked = cells(&grid.region(coords)).into_iter().flat_map(|cell| {
        let at = offset(&cell, grid.shape()) * size;
        flat[at..at + size].to_vec()
    });
    picked.collect()
}

/// An array to be written, with its cells.
#[derive(Clone, Debug)]
pub struct Input {
    pub spec: ArraySpec,
    pub flat: Vec<u8>,
}

impl Input {
    pub fn new(schema: ArraySchema, codec: &str, flat: Vec<u8>) -> Self {
        let mut spec = ArraySpec::raw(schema);
        spec.codecs[0] = vec![codec.parse::<CodecSpec>().unwrap()];
        Self { spec, flat }
    }
}

/// Pushes every chunk of every array, reordered by `order`.
pub fn push_all(
    writer: &mut dyn Writer,
    inputs: &[Input],
    order: impl FnOnce(&mut Vec<(usize, u64)>),
) -> Result<()> {
    for (i, input) in inputs.iter().enumerate() {
        assert_eq!(writer.begin(&input.spec)?, i);
    }
    let grids: Vec<_> = inputs.iter().map(|input| input.spec.schema.grid().unwrap()).collect();
    let mut chunks: Vec<_> =
        grids.iter().enumerate().flat_map(|(i, grid)| (0..grid.total()).map(move |n| (i, n))).collect();
    order(&mut chunks);
    let mut scratch = Scratch::default();
    for (i, n) in chunks {
        let coords = grids[i].coords(n);
        let size = inputs[i].spec.schema.fields[0].cell_size().unwrap();
        let cells = tile(&inputs[i].flat, &grids[i], &coords, size);
        let column = ColumnData::Fixed { values: &cells, validity: None };
        let chunk = writer.encode(i, &coords, &[column], Vec::new(), &mut scratch)?;
        writer.push(i, chunk)?;
    }
    Ok(())
}

/// Writes a file in memory and returns its bytes.
pub fn write(inputs: &[Input], options: &CreateOptions) -> Result<Vec<u8>> {
    write_with(inputs, options, &[], |_| {})
}

pub fn write_with(
    inputs: &[Input],
    options: &CreateOptions,
    history: &[HistoryRow],
    order: impl FnOnce(&mut Vec<(usize, u64)>),
) -> Result<Vec<u8>> {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new("out.tet"));
    let mut writer = TetFormat.create(Arc::clone(&store), options)?;
    for row in history {
        writer.add_history(row.clone())?;
    }
    push_all(&mut *writer, inputs, order)?;
    writer.commit()?;
    Ok(store.read_all("", u64::MAX)?.to_vec())
}

/// Options that add nothing to the given content.
pub fn plain() -> CreateOptions {
    CreateOptions { digests: false, ..CreateOptions::default() }
}
