//! An array that is being written: its chunks and their filters.

use std::borrow::Cow;

use tesseral_codec::checksum::Checksum;
use tesseral_codec::{shuffle, zlib};
use tesseral_core::{Attributes, CellLen, Coords, DType, Dimension, Error, Order, Result, Value, alloc};
use tesseral_format::{
    ArraySpec, CodecSpec, ColumnData, EncodedChunk, Scratch, WrittenChunks, to_little_endian,
};

use super::datatype::{self, HEAP_REFERENCE};
use super::header::{self, Little, ObjectHeader};
use super::heap::HeapBuilder;
use super::tree::{self, StoredAt};

/// The most dimensions.
const RANK: usize = 32;
/// The level of deflate where none is given.
const LEVEL: i32 = 4;

/// A step between cells and stored bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FilterStep {
    Shuffle,
    Deflate(i32),
    Fletcher32,
}

/// An array that is being written.
#[derive(Debug)]
pub(super) struct DatasetWrite {
    pub(super) name: String,
    /// Names and extents of the dimensions.
    pub(super) dims: Vec<(String, u64)>,
    pub(super) attributes: Attributes,
    pub(super) chunks: WrittenChunks<StoredAt>,
    pub(super) unlimited: Vec<bool>,
    datatype: Vec<u8>,
    /// Bytes of a stored cell.
    size: u32,
    /// Cells are text of variable length.
    text: bool,
    word: usize,
    /// Cells are in one range of bytes.
    contiguous: bool,
    steps: Vec<FilterStep>,
    fill: Option<Vec<u8>>,
}

/// Whether a format of the NetCDF-4 data model holds these cells.
pub(crate) fn holds(dtype: DType, cell: CellLen) -> bool {
    match cell {
        CellLen::One => datatype::plain(dtype).is_some(),
        CellLen::Var => dtype == DType::Utf8,
        CellLen::Fixed(_) => false,
    }
}

fn steps(codecs: &[CodecSpec], size: u32) -> Result<Vec<FilterStep>> {
    let mut steps = Vec::new();
    for codec in codecs {
        let level = |codec: &CodecSpec| {
            i32::try_from(codec.int("level").unwrap_or(LEVEL.into())).unwrap_or(LEVEL).clamp(0, 9)
        };
        match codec.name.as_str() {
            "raw" | "none" => {}
            "shuffle" => steps.push(FilterStep::Shuffle),
            "deflate" => steps.push(FilterStep::Deflate(level(codec))),
            // Shuffled bytes of numbers compress much better.
            "gzip" | "zlib" => {
                if size > 1 && !steps.contains(&FilterStep::Shuffle) {
                    steps.push(FilterStep::Shuffle);
                }
                steps.push(FilterStep::Deflate(level(codec)));
            }
            "fletcher32" => steps.push(FilterStep::Fletcher32),
            other => {
                return Err(Error::unsupported(format!("writing codec {other:?} in NetCDF-4"))
                    .hint("use gzip, shuffle+deflate, fletcher32 or raw"));
            }
        }
    }
    Ok(steps)
}

impl DatasetWrite {
    /// Declares an array. `grows` are the names of unlimited dimensions.
    pub(super) fn new(spec: &ArraySpec, grows: &[String]) -> Result<Self> {
        let mut schema = spec.schema.clone();
        let unsupported = |what: String| Err(Error::unsupported(format!("{what} in NetCDF-4")));
        let [field] = schema.fields.as_slice() else {
            return unsupported("arrays of several fields".to_owned());
        };
        if schema.sparse {
            return unsupported("sparse arrays".to_owned());
        }
        if field.nullable || field.enumeration.is_some() {
            return unsupported(if field.nullable { "null cells" } else { "enumerations" }.to_owned());
        }
        if schema.cell_order != Order::RowMajor {
            return unsupported(format!("cells in {:?} order", schema.cell_order));
        }
        if schema.dims.len() > RANK {
            return unsupported("more than 32 dimensions".to_owned());
        }
        if !holds(field.dtype, field.cell) {
            return unsupported(format!("cells of {}", field.type_name()));
        }
        let shape = schema.shape().unwrap_or_default();
        let text = field.cell == CellLen::Var;
        let size = if text { HEAP_REFERENCE } else { field.dtype.size().map_or(1, |n| n as u32) };
        let datatype =
            if text { datatype::variable_text() } else { datatype::plain(field.dtype).unwrap_or_default() };
        // References to text do not compress, and a scalar has no chunks.
        let steps = match &spec.codecs.first() {
            Some(codecs) => steps(codecs, size)?,
            None => Vec::new(),
        };
        let steps = if text || shape.is_empty() { Vec::new() } else { steps };
        let given = schema.chunk_shape.clone().unwrap_or_else(|| shape.clone());
        let chunk: Coords = given.iter().zip(&shape).map(|(c, n)| (*c).min((*n).max(1))).collect();
        let grows = |dim: &Dimension| dim.unlimited || dim.extent == Some(0) || grows.contains(&dim.name);
        let unlimited: Vec<bool> = schema.dims.iter().map(grows).collect();
        let contiguous = steps.is_empty() && chunk == shape && !unlimited.contains(&true);
        let bytes = chunk.iter().try_fold(u64::from(size), |bytes, n| bytes.checked_mul(*n));
        if !contiguous && bytes.is_none_or(|bytes| bytes > u64::from(u32::MAX)) {
            return unsupported("chunks of 4 GiB and more".to_owned());
        }
        let declared = match schema.attributes.get("_FillValue").and_then(Value::to_scalar) {
            Some(scalar) if scalar.dtype() == field.dtype => Some(scalar),
            _ => field.fill.clone(),
        };
        let fill =
            declared.map(|fill| fill.bytes().to_vec()).filter(|fill| !text && fill.len() == size as usize);
        let word = if text { 1 } else { field.dtype.word() };
        schema.chunk_shape = Some(chunk);
        let dims = schema.dims.iter().map(|dim| (dim.name.clone(), dim.extent.unwrap_or(0))).collect();
        Ok(Self {
            name: schema.name.clone(),
            dims,
            chunks: WrittenChunks::new(&schema)?,
            attributes: schema.attributes,
            unlimited,
            datatype,
            size,
            text,
            word,
            contiguous,
            steps,
            fill,
        })
    }

    pub(super) fn encode<'a>(
        &self,
        coords: &[u64],
        columns: &[ColumnData<'a>],
        scratch: &mut Scratch,
    ) -> Result<EncodedChunk<'a>> {
        self.chunks.check(coords)?;
        let size = self.size as usize;
        let (bytes, raw_len) = match columns {
            [ColumnData::Fixed { values, validity: None }] if !self.text => {
                let zeros = [0; 16];
                let fill = self.fill.as_deref().unwrap_or(&zeros[..size.min(16)]);
                let cells = self.chunks.whole(coords, values, fill, Order::RowMajor)?;
                let cells = to_little_endian(cells, self.word);
                let raw_len = cells.len();
                (self.filtered(cells, scratch)?, raw_len)
            }
            [ColumnData::Var { offsets, data, validity: None }] if self.text => {
                let (bytes, references) = self.heap(coords, offsets, data)?;
                (Cow::Owned(bytes), references)
            }
            _ => return Err(self.chunks.invalid(coords, "the columns do not match the array")),
        };
        Ok(EncodedChunk::contiguous(coords, bytes, raw_len))
    }

    fn filtered<'a>(&self, cells: Cow<'a, [u8]>, scratch: &mut Scratch) -> Result<Cow<'a, [u8]>> {
        let mut bytes = cells;
        for step in &self.steps {
            match step {
                FilterStep::Shuffle => {
                    // Behind a checksum, the last bytes are no element: they stay where they are.
                    let size = (self.size as usize).max(1);
                    let (elements, rest) = bytes.split_at(bytes.len() / size * size);
                    let mut out = alloc::zeroed::<u8>("a shuffled chunk", bytes.len())?;
                    let (target, kept) = out.split_at_mut(elements.len());
                    shuffle::encode_into(elements, size, target)?;
                    kept.copy_from_slice(rest);
                    bytes = Cow::Owned(out);
                }
                FilterStep::Deflate(level) => {
                    let mut out = scratch.take_buffer();
                    zlib::encode(&bytes, *level, &mut out)?;
                    bytes = Cow::Owned(out);
                }
                FilterStep::Fletcher32 => {
                    let sum = Checksum::Fletcher32.compute(&bytes).to_le_bytes();
                    bytes.to_mut().extend(sum);
                }
            }
        }
        Ok(bytes)
    }

    /// References to the text of a chunk, then the heap that holds it, and the number of bytes of the references.
    fn heap(&self, coords: &[u64], offsets: &[u64], data: &[u8]) -> Result<(Vec<u8>, usize)> {
        let cells = self.chunks.variable_length(coords, offsets, data)?;
        let mut heap = HeapBuilder::default();
        let mut references = alloc::with_capacity("references to text", cells.len() * 16)?;
        for cell in cells {
            if cell.contains(&0) {
                let what = "text cells that contain NUL bytes in NetCDF-4";
                return Err(Error::unsupported(what).in_array(&self.name).in_chunk(coords));
            }
            references.extend(heap.add(cell, cell.len())?.bytes(0));
        }
        let mut out = self.chunks.whole(coords, &references, &[0; 16], Order::RowMajor)?.into_owned();
        let len = out.len();
        out.extend(heap.finish());
        Ok((out, len))
    }

    /// Whether stored chunks begin with references to the heap that follows them.
    pub(super) fn has_heap(&self) -> bool {
        self.text
    }

    /// The B-tree of the chunks, at `base`, and the address of its root.
    pub(super) fn tree(&self, base: u64) -> (Vec<u8>, u64) {
        let sorted = self.chunks.sorted();
        let grid = self.chunks.grid();
        if self.contiguous {
            let first = sorted.first().map_or(header::UNDEFINED, |(_, stored)| stored.address);
            return (Vec::new(), first);
        }
        let chunks = sorted.into_iter().map(|(number, stored)| (grid.coords(number).to_vec(), stored));
        tree::build(grid.chunk_shape(), self.size.into(), chunks, base)
    }

    /// Adds what makes an object the dataset of the array; `address` is that of its cells or its tree.
    pub(super) fn describe(&self, header: &mut ObjectHeader, address: u64) -> Result<()> {
        let grid = self.chunks.grid();
        let layout = if self.contiguous {
            let cells = grid.shape().iter().fold(u64::from(self.size), |n, extent| n.saturating_mul(*extent));
            header::contiguous(address, cells)
        } else {
            let chunk = grid.chunk_shape().iter().map(|n| u32::try_from(*n).unwrap_or(u32::MAX));
            header::chunked(address, &chunk.collect::<Vec<_>>(), self.size)
        };
        let filters = (!self.steps.is_empty()).then(|| self.pipeline());
        let space = header::space(grid.shape(), &self.unlimited);
        header.dataset(&space, &self.datatype, self.fill.as_deref(), &layout, filters.as_deref())
    }

    /// The body of the filter pipeline: number, flags and parameters of each filter.
    fn pipeline(&self) -> Vec<u8> {
        let mut out = vec![2, u8::try_from(self.steps.len()).unwrap_or(u8::MAX)];
        for step in &self.steps {
            let (id, optional, parameter) = match step {
                FilterStep::Shuffle => (2, 1, Some(self.size)),
                FilterStep::Deflate(level) => (1, 1, u32::try_from(*level).ok()),
                FilterStep::Fletcher32 => (3, 0, None),
            };
            out.u16(id);
            out.u16(optional);
            out.u16(u16::from(parameter.is_some()));
            parameter.into_iter().for_each(|parameter| out.u32(parameter));
        }
        out
    }
}
