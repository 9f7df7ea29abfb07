//! Dense arrays as overlapping layers with gaps.
//!
//! An array has a grid of tiles and any number of layers, the newest last. A layer covers a region, aligned to the tiles or not,
//! and stores each tile that the region intersects: in full, also beyond the array ([`Extent::Full`]), clipped to the array
//! ([`Extent::Clipped`]) or clipped to the region ([`Extent::Tight`]). Cells stored outside the region are garbage. Where regions
//! overlap, the newest layer wins; cells in no region hold the fill value.
//!
//! # Layout
//! A header of 32 bytes (magic `TSLAYER1`, offset, length and XXH3 of the directory), the payloads, the directory:
//!
//! | directory | |
//! |---|---|
//! | attributes | of the container |
//! | list of arrays | schema, list of layers |
//! | layer | region, `u8` extent, per field a coding (`u8` bits, `u32` granule), list of chunks |
//! | chunk | grid coordinates, optional digest (`u64` start, end, XXH3), per field: its parts (`u64` offset, length) and statistics |
//!
//! The order of parts is offsets, values, validity, where the field has them.

mod build;
mod parse;
mod source;
mod write;

use std::sync::Arc;

pub use build::{Builder, Layer, Sample, Statistics, sample, sample_with};
use tesseral_core::{ArraySchema, ChunkGrid, ChunkStats, Coords, Finding, Region, Result};
use tesseral_store::Store;

use super::wire;
use tesseral_format::convention::Holds;
use tesseral_format::{
    AuditOptions, AuditReport, Capabilities, ContainerSource, CreateOptions, Format, OpenOptions, Probe,
    Sniff, Writer,
};

const MAGIC: &[u8; 8] = b"TSLAYER1";

/// The format.
#[derive(Clone, Copy, Debug, Default)]
pub struct LayeredFormat;

/// The stored part of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it, also beyond the array.
    Full,
    /// The part inside the array.
    Clipped,
    /// The part inside the region of the layer.
    Tight,
}

/// The location and statistics of a chunk.
#[derive(Clone, Debug)]
struct Chunk {
    coords: Coords,
    /// Start, end and XXH3 of its bytes.
    digest: Option<(u64, u64, u64)>,
    /// Per field: offset and length of each part, and statistics.
    fields: Vec<(Vec<(u64, u64)>, ChunkStats)>,
}

#[derive(Clone, Debug)]
struct StoredLayer {
    cover: Region,
    extent: Extent,
    codings: Vec<super::Coding>,
    /// In row-major order of the grid.
    chunks: Vec<Chunk>,
}

impl StoredLayer {
    /// The covered and the stored region of a chunk. `None` where the layer has no such chunk.
    fn boxes(&self, grid: &ChunkGrid, coords: &[u64]) -> Option<(Region, Region)> {
        let clipped = grid.region(coords);
        let cover = clipped.intersect(&self.cover)?;
        let stored = match self.extent {
            Extent::Tight => cover.clone(),
            Extent::Clipped => clipped,
            Extent::Full => {
                let extents = coords.iter().zip(grid.chunk_shape());
                let bounds =
                    extents.map(|(c, n)| Some((c.checked_mul(*n)?, c.checked_add(1)?.checked_mul(*n)?)));
                Region::new(bounds.collect::<Option<Vec<_>>>()?)
            }
        };
        Some((cover, stored))
    }
}

#[derive(Debug)]
struct LayeredArray {
    schema: ArraySchema,
    grid: ChunkGrid,
    layers: Vec<StoredLayer>,
    limits: tesseral_core::Limits,
}

impl Format for LayeredFormat {
    fn id(&self) -> &'static str {
        "layered"
    }

    fn title(&self) -> &'static str {
        "layered test arrays"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["layered"]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { create: true, many_arrays: true, attributes: true, ..Capabilities::default() }
    }

    fn holds(&self) -> Holds {
        Holds { sparse: false, domains: false, ..Holds::ALL }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        super::sniff(probe, MAGIC, self.extensions())
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        let directory = wire::read_directory(store.as_ref(), MAGIC, &options.limits)?;
        directory.check(store.as_ref())?;
        Ok(Arc::new(parse::container(store, &directory, &options.limits)?))
    }

    fn create(&self, store: Arc<dyn Store>, options: &CreateOptions) -> Result<Box<dyn Writer>> {
        Ok(Box::new(write::LayeredWriter::new(store.as_ref(), options)?))
    }

    fn audit(
        &self,
        store: Arc<dyn Store>,
        options: &AuditOptions,
        report: &mut dyn FnMut(Finding),
    ) -> Result<AuditReport> {
        super::audit(store, MAGIC, options, report, |store, directory, limits| {
            Ok(Arc::new(parse::container(store, directory, limits)?))
        })
    }
}
