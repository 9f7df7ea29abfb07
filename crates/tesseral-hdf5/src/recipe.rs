//! Decoding of chunks without their file: datatype, filters and fill value in a few bytes.
//!
//! ```text
//! u8 1 │ u32 length, datatype message │ u64 bytes of an element │ u8 1, u32 length, fill value; or u8 0
//!      │ u32 filters: u16 id, u32 parameters, u32 each
//! ```

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use hdf5_reader::messages::filter_pipeline::FilterDescription;
use tesseral_core::{
    ArraySchema, CellLen, Coords, Cursor, Dimension, Error, Limits, Result, Scalar, alloc, missing,
};
use tesseral_format::{ArraySource, ChunkInfo, Column, ColumnMut, Planned, PlannedChunk, Request, Scratch};
use tesseral_store::Rounds;

use crate::attribute::ObjectAttributes;
use crate::dataset::fill_value;
use crate::datatype::{Hdf5CellType, MemberPlace};
use crate::dimension::NamedExtent;
use crate::filter::Pipeline;

const VERSION: u8 = 1;
/// Longest cell in bytes that is known without decoding. A datatype can declare cells of 4 GiB.
const LONGEST_CONSTANT: usize = 64 << 10;

/// The recipe of a dataset of fixed-size cells.
pub(crate) fn recipe(
    datatype: &[u8],
    element: usize,
    fill: Option<&[u8]>,
    filters: &[FilterDescription],
) -> Vec<u8> {
    let mut out = vec![VERSION];
    let put = |out: &mut Vec<u8>, bytes: &[u8]| {
        out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        out.extend_from_slice(bytes);
    };
    put(&mut out, datatype);
    out.extend_from_slice(&(element as u64).to_le_bytes());
    out.push(u8::from(fill.is_some()));
    if let Some(fill) = fill {
        put(&mut out, fill);
    }
    out.extend_from_slice(&(filters.len() as u32).to_le_bytes());
    for filter in filters {
        out.extend_from_slice(&filter.id.to_le_bytes());
        out.extend_from_slice(&(filter.client_data.len() as u32).to_le_bytes());
        filter.client_data.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
    }
    out
}

/// Cells of a dataset, decoded from the bytes of its chunks.
#[derive(Clone, Debug)]
pub(crate) struct ElementDecoder {
    pub(crate) cell: Hdf5CellType,
    pub(crate) pipeline: Pipeline,
    /// The fill value; zero if there is none.
    pub(crate) fill: Option<Scalar>,
}

impl ElementDecoder {
    /// The schema of a dataset of these elements.
    pub(crate) fn schema(
        &self,
        name: &str,
        dims: &[NamedExtent],
        attributes: ObjectAttributes,
        chunk: &[u64],
    ) -> ArraySchema {
        let extents: Coords =
            dims.iter().map(|dim| dim.extent).chain(self.cell.dims.iter().copied()).collect();
        let mut schema = ArraySchema::dense(name, self.cell.dtype, &extents, chunk);
        let dimension = |dim: &NamedExtent| Dimension {
            unlimited: dim.unlimited,
            ..Dimension::new(&dim.name, dim.extent)
        };
        schema.dims = dims.iter().map(dimension).collect();
        schema.dims.extend(self.cell.dims.iter().map(|n| Dimension::new("", *n)));
        schema.attributes = attributes.shown;
        if let Some((values, meanings)) = self.cell.flags() {
            schema.attributes.entry("flag_values".to_owned()).or_insert(values);
            schema.attributes.entry("flag_meanings".to_owned()).or_insert(meanings);
        }
        let field = &mut schema.fields[0];
        (field.cell, field.fill, field.codecs) = (self.cell.cell, self.fill.clone(), self.pipeline.names());
        missing::declare(&mut schema);
        schema
    }

    /// Decodes cells of a chunk; `mask` is `None` if it was never written.
    pub(crate) fn decode_fixed(
        &self,
        chunk: &PlannedChunk,
        mask: Option<u32>,
        stored: &[u8],
        cells: &Range<u64>,
        values: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let Some(mask) = mask else {
            self.fill(values);
            return Ok(());
        };
        let bytes = |cell: u64| usize::try_from(cell.saturating_mul(self.cell.size as u64)).ok();
        if self.cell.place.is_some() || !self.pipeline.is_plain(mask) {
            if *cells != (0..chunk.cells) || bytes(chunk.cells) != Some(values.len()) {
                return Err(Error::internal("filtered chunks and members decode as a whole"));
            }
            self.stored_cells(mask, stored, values, scratch)?;
        } else {
            let run =
                bytes(cells.start).zip(bytes(cells.end)).and_then(|(start, end)| stored.get(start..end));
            let Some(run) = run.filter(|run| run.len() == values.len()) else {
                let detail = format!("{} bytes do not hold cells {cells:?}", stored.len());
                return Err(Error::codec("raw", detail));
            };
            values.copy_from_slice(run);
        }
        self.swap(values);
        Ok(())
    }

    /// The bytes of a member in all elements of a chunk, one after the other.
    fn member(
        &self,
        place: MemberPlace,
        mask: u32,
        stored: &[u8],
        values: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let run = self.cell.size.saturating_mul(self.cell.cells()).max(1);
        let elements = values.len() / run;
        let len = elements.checked_mul(place.element).filter(|_| elements * run == values.len());
        let len = len.ok_or_else(|| Error::internal("members decode as whole chunks"))?;
        let mut unpacked = Vec::new();
        let source = if self.pipeline.is_plain(mask) {
            stored
        } else {
            unpacked = alloc::zeroed::<u8>("a chunk of compound elements", len)?;
            self.pipeline.decode(stored, mask, &mut unpacked, scratch)?;
            &unpacked[..]
        };
        if source.len() != len {
            let detail = format!("{} bytes do not hold {elements} elements", source.len());
            return Err(Error::codec("raw", detail));
        }
        for (out, element) in values.chunks_exact_mut(run).zip(source.chunks_exact(place.element)) {
            let member = element.get(place.offset..).and_then(|rest| rest.get(..run));
            out.copy_from_slice(member.ok_or_else(|| Error::internal("a member beyond its element"))?);
        }
        drop(unpacked);
        Ok(())
    }

    /// The stored cells of a whole chunk, in stored byte order: also references to values of variable length.
    pub(crate) fn stored_cells(
        &self,
        mask: u32,
        stored: &[u8],
        values: &mut [u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        if let Some(place) = self.cell.place {
            return self.member(place, mask, stored, values, scratch);
        }
        if !self.pipeline.is_plain(mask) {
            return self.pipeline.decode(stored, mask, values, scratch);
        }
        if stored.len() != values.len() {
            let detail = format!("{} bytes stored, {} expected", stored.len(), values.len());
            return Err(Error::codec("raw", detail));
        }
        values.copy_from_slice(stored);
        Ok(())
    }

    /// Writes the fill value to every cell, in native byte order.
    fn fill(&self, values: &mut [u8]) {
        let stored = self.fill.as_ref().map_or(&[][..], |fill| fill.bytes());
        for cell in values.chunks_exact_mut(self.cell.size.max(1)) {
            let (start, rest) = cell.split_at_mut(stored.len().min(cell.len()));
            start.copy_from_slice(&stored[..start.len()]);
            rest.fill(0);
            if cfg!(target_endian = "big") {
                cell.chunks_exact_mut(self.cell.dtype.word().max(1)).for_each(<[u8]>::reverse);
            }
        }
    }

    /// The value of cells that were never written, unless it is long.
    pub(crate) fn constant(&self) -> Option<Vec<u8>> {
        (self.cell.size <= LONGEST_CONSTANT).then(|| {
            let mut cell = vec![0; self.cell.size];
            self.fill(&mut cell);
            cell
        })
    }

    pub(crate) fn swap(&self, cells: &mut [u8]) {
        if self.cell.swapped() {
            cells.chunks_exact_mut(self.cell.dtype.word().max(1)).for_each(<[u8]>::reverse);
        }
    }
}

/// An array that only decodes.
#[derive(Debug)]
struct DetachedArray {
    schema: ArraySchema,
    decoder: ElementDecoder,
    limits: Limits,
}

/// Restores a decoder.
///
/// # Errors
/// `Corrupt`, `Unsupported`.
pub(crate) fn decoder(recipe: &[u8], limits: Limits) -> Result<Arc<dyn ArraySource>> {
    const OBJECT: &str = "a recipe";
    let mut cursor = Cursor::new(OBJECT, recipe);
    let version = cursor.u8("version")?;
    if version != VERSION {
        return Err(Error::unsupported(format!("recipes of version {version} of HDF5 datasets")));
    }
    let len = cursor.u32("datatype")?;
    let datatype = cursor.take64(len.into(), "datatype")?;
    let cell = Hdf5CellType::parse(Cursor::new(OBJECT, datatype))?;
    if cell.cell == CellLen::Var {
        return Err(Error::corrupt("a datatype", OBJECT, None, "values of variable length"));
    }
    let element = cursor.len64("element")?;
    let fill = match cursor.flag("fill value")? {
        true => {
            let len = cursor.u32("fill value")?;
            Some(cursor.take64(len.into(), "fill value")?)
        }
        false => None,
    };
    let count = cursor.u32("filters")?;
    let mut filters = Vec::new();
    for _ in 0..cursor.count(count.into(), 6, "filters")? {
        let id = cursor.u16("filter")?;
        let count = cursor.u32("parameters")?;
        let count = cursor.count(count.into(), 4, "parameters")?;
        let client_data = (0..count).map(|_| cursor.u32("parameter")).collect::<Result<_>>()?;
        filters.push(FilterDescription { id, name: None, client_data });
    }
    let pipeline = Pipeline::new(&filters, element)?;
    let fill = fill_value(&cell, fill)?;
    let mut schema = ArraySchema::dense("", cell.dtype, &[], &[]);
    (schema.fields[0].cell, schema.fields[0].codecs) = (cell.cell, pipeline.names());
    Ok(Arc::new(DetachedArray { schema, decoder: ElementDecoder { cell, pipeline, fill }, limits }))
}

/// The mask of a chunk of a recipe: chunks with other masks have none.
fn mask(chunk: &PlannedChunk) -> Option<u32> {
    (chunk.stored_bytes() > 0).then_some(0)
}

impl ArraySource for DetachedArray {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn plan(&self, _request: &Request, _: &Arc<Rounds>) -> Result<Planned> {
        Err(Error::internal("a decoder plans nothing"))
    }

    fn constant(&self, chunk: &PlannedChunk, _column: Column) -> Option<Vec<u8>> {
        mask(chunk).is_none().then(|| self.decoder.constant()).flatten()
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        ChunkInfo {
            coords: Coords::new(),
            raw_len: chunk.cells.saturating_mul(self.decoder.cell.size as u64),
            stored_len: chunk.stored_bytes(),
            codec: match mask(chunk) {
                None => "fill".to_owned(),
                Some(_) => self.schema.fields[0].codecs.join("+"),
            },
            offset: chunk.parts.first().map_or(0, |part| part.offset),
        }
    }

    fn checked_bytes(&self, chunk: &PlannedChunk) -> u64 {
        if self.decoder.pipeline.has_checksum(0) { chunk.stored_bytes() } else { 0 }
    }

    fn decode(
        &self,
        chunk: &PlannedChunk,
        _column: Column,
        parts: &[Bytes],
        cells: Range<u64>,
        out: ColumnMut<'_>,
        scratch: &mut Scratch,
    ) -> Result<()> {
        match (parts, out) {
            ([stored], ColumnMut::Fixed { values, validity: None }) => {
                // A chunk of elements is decoded for one of their members.
                if let Some(place) = self.decoder.cell.place {
                    let cells = chunk.cells / self.decoder.cell.cells().max(1) as u64;
                    let elements = cells.saturating_mul(place.element as u64);
                    self.limits.check_decoded(elements, stored.len() as u64)?;
                }
                self.decoder.decode_fixed(chunk, mask(chunk), stored, &cells, values, scratch)
            }
            _ => Err(Error::internal("a chunk of a dataset has one part of fixed-size cells")),
        }
    }
}
