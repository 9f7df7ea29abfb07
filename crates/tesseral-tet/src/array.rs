//! One dataset as an array.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tesseral_core::schema::Labels;
use tesseral_core::{ArraySchema, ChunkGrid, ChunkStats, Coords, Error, Result, Scalar, Value};
use tesseral_format::convention::KEY;
use tesseral_format::{
    ArraySource, ChunkInfo, Column, ColumnMut, DigestSpans, Planned, PlannedChunk, Request, Scratch,
    StoredForm, Totals,
};
use tesseral_store::Rounds;

use crate::layout::Digests;
use crate::open::TetCatalog;
use crate::stats::FillRule;
use crate::wire::chunk_index::{IndexRow, ZSTD, codec_name};
use crate::wire::directory::DatasetRecord;
use crate::wire::metadata::DatasetMetadata;

/// One dataset of an opened file.
#[derive(Debug)]
pub(crate) struct TetArray {
    pub catalog: Arc<TetCatalog>,
    /// Index in the directory.
    pub number: usize,
    pub schema: ArraySchema,
    pub grid: ChunkGrid,
    /// Size of one cell in bytes.
    pub cell: usize,
    fill: FillRule,
}

impl TetArray {
    pub(crate) fn new(catalog: &Arc<TetCatalog>, number: usize) -> Result<Self> {
        let layout = &catalog.layout;
        let missing = || Error::not_found("array", number.to_string(), Vec::new());
        let dataset = layout.head.datasets.get(number).ok_or_else(missing)?;
        let (dtype, grid) = dataset.geometry(&layout.object)?;
        let rows = layout.rows().len() as u64;
        if catalog.truncated && grid.total() > rows {
            // A truncated file still has its complete index. A shape with more chunks than rows is damaged, and iterating over
            // its chunks might not terminate in reasonable time.
            let detail = format!(
                "shape {:?} requires {} chunks, the index has {rows} rows",
                dataset.shape,
                grid.total()
            );
            return Err(
                Error::corrupt("dataset record", &layout.object, None, detail).in_array(&dataset.name)
            );
        }
        let mut schema = ArraySchema::dense(&dataset.name, dtype, &dataset.shape, &dataset.chunk_shape);
        if layout.codecs.get(number).is_some_and(|mask| mask & 1 << ZSTD != 0) {
            schema.fields[0].codecs.push("zstd".to_owned());
        }
        let metadata = layout.metadata().and_then(|m| m.datasets.get(&dataset.name)).map(|object| &object.0);
        if let Some(metadata) = metadata {
            describe(&mut schema, dataset, metadata);
        }
        let marker = layout.metadata().and_then(|m| m.markers.get(&dataset.name));
        schema.attributes.extend(marker.map(|text| (KEY.to_owned(), Value::from(text.as_str()))));
        let text = metadata.and_then(DatasetMetadata::fill_text);
        let fill = FillRule::new(dtype, text);
        tesseral_core::missing::declare(&mut schema);
        schema.fields[0].fill = fill.value().or(schema.fields[0].missing.first()).cloned();
        let cell = dtype.size().unwrap_or(1);
        Ok(Self { catalog: Arc::clone(catalog), number, schema, grid, cell, fill })
    }

    pub(crate) fn row(&self, chunk: &PlannedChunk) -> Option<&IndexRow> {
        self.catalog.layout.rows().get(usize::try_from(chunk.id).ok()?)
    }

    /// Adds the chunk coordinates to an error.
    pub(crate) fn name_chunk(&self, error: Error, coords: &[u64]) -> Error {
        error.in_array(&self.schema.name).in_chunk(coords)
    }

    pub(crate) fn coords_of(&self, chunk: &PlannedChunk) -> Coords {
        self.row(chunk).map(|row| row.coords(self.grid.rank())).unwrap_or_default()
    }
}

/// Adds names, labels and attributes to a schema.
fn describe(schema: &mut ArraySchema, dataset: &DatasetRecord, metadata: &DatasetMetadata) {
    let attrs = metadata.attrs.iter().map(|(name, text)| (name.clone(), Value::from(text.as_str())));
    schema.attributes = attrs.collect();
    let rank = dataset.shape.len();
    // A list of names with the wrong number of entries is ignored.
    let names = metadata.dim_names.as_deref().filter(|names| names.len() == rank);
    for (d, dim) in schema.dims.iter_mut().enumerate() {
        if let Some(names) = names {
            dim.name.clone_from(&names[d]);
        }
        let labels = metadata.labels(d, &dataset.shape).filter(|l| l.len() as u64 == dataset.shape[d]);
        dim.labels = labels.filter(|l| !l.is_empty()).map(|l| Labels::Text(l.to_vec()));
    }
}

impl ArraySource for TetArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn object(&self, _number: u32) -> Cow<'_, str> {
        Cow::Borrowed(&self.catalog.name)
    }

    fn plan(&self, request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        crate::plan::plan(self, request).map(Planned::Ready)
    }

    fn totals(&self, _: &Request) -> Result<Option<Totals>> {
        let stored_bytes = self.catalog.layout.stored.get(self.number).copied().unwrap_or(0);
        let digests = matches!(self.catalog.layout.digests, Digests::Present { .. });
        Ok(Some(Totals { chunks: self.grid.total(), stored_bytes, digests }))
    }

    fn stats(&self, chunk: &PlannedChunk, column: Column) -> ChunkStats {
        if column != Column::Field(0) {
            return ChunkStats::unknown(chunk.cells);
        }
        let dtype = self.schema.fields[0].dtype;
        let own = self.catalog.statistics(self.number, chunk.id);
        let own = own.and_then(|(row, missing)| crate::stats::of_row(dtype, chunk.cells, &row, missing));
        if let Some(stats) = own {
            return stats;
        }
        match (column, self.catalog.zone(chunk.id)) {
            (Column::Field(0), Some(zone)) => {
                self.fill.stats(self.schema.fields[0].dtype, chunk.cells, &zone)
            }
            _ => ChunkStats::unknown(chunk.cells),
        }
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let coords = self.coords_of(chunk);
        match self.row(chunk) {
            Some(row) => ChunkInfo {
                coords,
                raw_len: row.raw_byte_len.get(),
                stored_len: row.stored_byte_len.get(),
                codec: codec_name(row.codec.get()).unwrap_or("unknown").to_owned(),
                offset: row.payload_offset.get(),
            },
            None => ChunkInfo { coords, raw_len: 0, stored_len: 0, codec: String::new(), offset: 0 },
        }
    }

    fn digests(&self, chunk: &PlannedChunk) -> DigestSpans<'_> {
        let span = || {
            let Digests::Present { table, .. } = &self.catalog.layout.digests else { return None };
            let row = self.row(chunk)?;
            table.span(chunk.id, row.payload_offset.get()..row.payload_end()?)
        };
        span().into_iter().collect()
    }

    fn stored_granule(&self, chunk: &PlannedChunk, _: Column, parts: &[Bytes]) -> Option<u64> {
        let [stored] = parts else { return None };
        crate::decode::frame_cells(self, chunk, stored)
    }

    fn stored_form(&self, chunk: &PlannedChunk) -> Option<StoredForm> {
        (self.row(chunk)?.codec.get() == ZSTD).then_some(StoredForm::Zstd)
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
        crate::decode::decode(self, chunk, column, parts, cells, out, scratch)
            .map_err(|e| self.name_chunk(e, &self.coords_of(chunk)))
    }
}

/// Returns the fill value that attributes declare, if the text is exactly a value of the dtype.
pub(crate) fn parse_fill(dtype: tesseral_core::DType, text: &str) -> Option<Scalar> {
    Scalar::parse(dtype, text).ok()
}
