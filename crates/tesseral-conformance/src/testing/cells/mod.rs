//! Sparse arrays as layers of listed cells.
//!
//! A layer lists cells in the schema's cell order, divided into chunks with the coordinate range of each dimension. The same
//! position may be listed in several layers; where the schema does not allow duplicates the newest layer wins. A layer may also
//! store the write time of each cell, and then lists all versions of a cell. Stored deletes compare one field or dimension with
//! a value.
//!
//! # Layout
//! A header of 32 bytes (magic `TSCELLS1`, offset, length and XXH3 of the directory), the payloads, the directory:
//!
//! | directory | |
//! |---|---|
//! | attributes | of the container |
//! | list of arrays | schema, list of deletes, list of layers |
//! | delete | `u64` timestamp, `u32` layer, name, `u8` comparison, scalar |
//! | layer | `u8` whether it has timestamps, a coding (`u8` bits, `u32` granule), list of chunks |
//! | chunk | `u64` cells, per dimension the lowest and highest coordinate, optional digest (`u64` start, end, XXH3), per column (dimensions, fields, timestamps) its parts (`u64` offset, length), per field its statistics |

mod build;
mod parse;
mod source;

use std::sync::Arc;

pub use build::{Builder, Layer, Sample, StoredRow, sample, sample_with};
use tesseral_core::{ArraySchema, ChunkStats, Finding, Limits, Result, Scalar};
use tesseral_store::Store;

use super::coding::{Coding, ColumnCoding};
use super::wire;
use tesseral_format::convention::Holds;
use tesseral_format::{
    AuditOptions, AuditReport, Capabilities, Column, ContainerSource, Delete, Format, OpenOptions, Probe,
    Sniff,
};

const MAGIC: &[u8; 8] = b"TSCELLS1";

/// The format.
#[derive(Clone, Copy, Debug, Default)]
pub struct CellsFormat;

#[derive(Clone, Debug)]
struct Chunk {
    cells: u64,
    /// Lowest and highest coordinate of each dimension.
    bounds: Vec<(Scalar, Scalar)>,
    /// Start, end and XXH3 of its bytes.
    digest: Option<(u64, u64, u64)>,
    /// Offset and length of the parts of each column: dimensions, fields, timestamps.
    columns: Vec<Vec<(u64, u64)>>,
    /// Of each field.
    stats: Vec<ChunkStats>,
}

#[derive(Clone, Debug)]
struct StoredLayer {
    times: bool,
    coding: Coding,
    chunks: Vec<Chunk>,
}

#[derive(Debug)]
struct CellsArray {
    schema: ArraySchema,
    deletes: Vec<Delete>,
    layers: Vec<StoredLayer>,
    limits: Limits,
}

/// The columns of an array that a layer stores, in order.
fn columns(schema: &ArraySchema, times: bool) -> Vec<(Column, ColumnCoding)> {
    let dims = schema.dims.iter().enumerate();
    let dims = dims.map(|(i, dim)| (Column::Dim(i as u16), ColumnCoding::from_dimension(dim.dtype)));
    let fields = schema.fields.iter().enumerate();
    let fields = fields.map(|(i, field)| (Column::Field(i as u16), ColumnCoding::from_field(field)));
    dims.chain(fields).chain(times.then_some((Column::Timestamp, ColumnCoding::TIMESTAMP))).collect()
}

impl Format for CellsFormat {
    fn id(&self) -> &'static str {
        "cells"
    }

    fn title(&self) -> &'static str {
        "listed test cells"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["cells"]
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { many_arrays: true, attributes: true, ..Capabilities::default() }
    }

    fn holds(&self) -> Holds {
        Holds { domains: false, ..Holds::ALL }
    }

    fn sniff(&self, probe: &Probe<'_>) -> Sniff {
        super::sniff(probe, MAGIC, self.extensions())
    }

    fn open(&self, store: Arc<dyn Store>, options: &OpenOptions) -> Result<Arc<dyn ContainerSource>> {
        let directory = wire::read_directory(store.as_ref(), MAGIC, &options.limits)?;
        directory.check(store.as_ref())?;
        Ok(Arc::new(parse::container(store, &directory, &options.limits)?))
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
