//! A dataset as an array: chunks from its index or of its contiguous cells.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use tesseral_core::{ArraySchema, CellLen, ChunkGrid, Coords, DType, Error, Region, Result, alloc};
use tesseral_format::{
    Access, ArraySource, ChunkInfo, ChunkPlan, Column, ColumnMut, Cover, Part, Planned, PlannedChunk,
    Request, Role, Scratch, Totals, Uncovered, contiguous_chunk_shape, first_cell,
};
use tesseral_store::{JoinedStore, Rounds};

use crate::dataset::{DatasetInfo, ExternalSegment, StorageLayout};
use crate::dimension::NamedExtent;
use crate::file::{File, HeapReader};
use crate::index::{ChunkIndex, ChunkLocation};
use crate::recipe::ElementDecoder;

/// Least number of bytes that an unwritten chunk counts as.
const UNWRITTEN_COST: u64 = 1024;
/// The array of a dataset.
#[derive(Debug)]
pub(crate) struct Hdf5Array {
    schema: ArraySchema,
    /// Chunks over the extents of the array.
    grid: ChunkGrid,
    /// Extents that the dataset stores. A dimension that another dataset extended is longer in the array.
    stored: Coords,
    file: File,
    /// Decodes cells; also without the file, by the recipe.
    decoder: ElementDecoder,
    layout: StorageLayout,
    recipe: Option<Vec<u8>>,
    index: OnceLock<ChunkIndex>,
}

/// Location of the bytes of a chunk.
enum ChunkStorage {
    /// In the object header.
    Header,
    At(ChunkLocation),
    Unwritten,
    /// In raw files: object and range of each part.
    Outside(Vec<(u32, Range<u64>)>),
}

/// The ranges of raw files that hold `len` bytes of a dataset from `start` on; `None` if they end before.
fn external_parts(segments: &[ExternalSegment], start: u64, len: u64) -> Option<Vec<(u32, Range<u64>)>> {
    let (mut parts, mut skip, mut rest) = (Vec::new(), start, len);
    for segment in segments {
        let own = segment.len.saturating_sub(skip).min(rest);
        if own > 0 {
            let from = segment.offset.checked_add(skip)?;
            // The file itself is object 0.
            parts.push((segment.file.checked_add(1)?, from..from.checked_add(own)?));
        }
        skip = skip.saturating_sub(segment.len);
        rest -= own;
    }
    (rest == 0).then_some(parts)
}

impl Hdf5Array {
    pub(crate) fn new(name: &str, info: DatasetInfo, dims: &[NamedExtent], file: &File) -> Result<Self> {
        let DatasetInfo { cell, shape, layout, pipeline, fill, attributes, recipe, .. } = info;
        let with_elements =
            |own: &mut dyn Iterator<Item = u64>| -> Coords { own.chain(cell.dims.iter().copied()).collect() };
        let stored = with_elements(&mut shape.iter().copied());
        let chunk = match &layout {
            StorageLayout::Chunked(chunked) => {
                with_elements(&mut chunked.chunk.iter().map(|n| u64::from(*n)))
            }
            StorageLayout::Contiguous(_) | StorageLayout::External(_) => match cell.place {
                None => contiguous_chunk_shape(&stored, cell.size as u64),
                // Elements of an array in a member are inside one chunk.
                Some(place) => {
                    let chunk = contiguous_chunk_shape(&shape, place.element as u64);
                    with_elements(&mut chunk.iter().copied())
                }
            },
            StorageLayout::Compact(_) | StorageLayout::Virtual(_) => {
                stored.iter().map(|n| (*n).max(1)).collect()
            }
        };
        let decoder = ElementDecoder { cell, pipeline, fill };
        let schema = decoder.schema(name, dims, attributes, &chunk);
        let invalid =
            |e: Error| Error::corrupt("a dataset", file.storage.describe(), info.address, e.to_string());
        let grid = schema.grid().map_err(invalid)?;
        let (file, index) = (file.clone(), OnceLock::new());
        Ok(Self { schema, grid, stored, file, decoder, layout, recipe, index })
    }

    /// The index of the chunks, from metadata of `rounds`.
    fn index(&self, rounds: &Arc<Rounds>) -> Result<&ChunkIndex> {
        if let Some(index) = self.index.get() {
            return Ok(index);
        }
        let loaded = match &self.layout {
            StorageLayout::Chunked(layout) => {
                // Elements of an array datatype are inside one chunk, so they do not change its number.
                ChunkIndex::load(&self.file.through(rounds), layout, &self.dataset_grid()?)?
            }
            _ => ChunkIndex::default(),
        };
        Ok(self.index.get_or_init(|| loaded))
    }

    /// The chunks of the array without the dimensions of an array datatype.
    fn dataset_grid(&self) -> Result<ChunkGrid> {
        let rank = self.grid.rank() - self.decoder.cell.dims.len();
        ChunkGrid::new(&self.grid.shape()[..rank], &self.grid.chunk_shape()[..rank])
    }

    /// The box of cells that a chunk stores: whole chunks, also at the edges, unless the cells are contiguous.
    fn tile(&self, coords: &[u64]) -> Region {
        match self.layout {
            StorageLayout::Chunked(_) => {
                Region::new(coords.iter().zip(self.grid.chunk_shape()).map(|(c, n)| {
                    let start = c.saturating_mul(*n);
                    (start, start.saturating_add(*n))
                }))
            }
            _ => self.grid.region(coords),
        }
    }

    /// Stored bytes of a number of cells, with those of all members of a compound datatype.
    fn stored_bytes(&self, cells: u64) -> Option<u64> {
        let cell = &self.decoder.cell;
        match cell.place {
            None => cells.checked_mul(cell.size as u64),
            Some(place) => (cells / cell.cells().max(1) as u64).checked_mul(place.element as u64),
        }
    }

    fn locate(&self, coords: &[u64], tile: &Region, rounds: &Arc<Rounds>) -> Result<ChunkStorage> {
        let bytes = tile.cells().and_then(|cells| self.stored_bytes(cells));
        match &self.layout {
            StorageLayout::Compact(_) => Ok(ChunkStorage::Header),
            StorageLayout::Contiguous(None) | StorageLayout::Virtual(_) => Ok(ChunkStorage::Unwritten),
            StorageLayout::External(segments) => {
                let start = first_cell(&self.stored, tile).and_then(|cell| self.stored_bytes(cell));
                let parts = start.zip(bytes).map(|(start, len)| external_parts(segments, start, len));
                parts
                    .flatten()
                    .map(ChunkStorage::Outside)
                    .ok_or_else(|| self.corrupt(0, "the raw files of the dataset are shorter than its cells"))
            }
            StorageLayout::Contiguous(Some(address)) => {
                let start = first_cell(&self.stored, tile)
                    .and_then(|cell| self.stored_bytes(cell))
                    .and_then(|at| at.checked_add(*address));
                let number = self.grid.linear(coords);
                let location =
                    start.zip(bytes).map(|(address, len)| ChunkLocation { number, address, len, mask: 0 });
                location.map(ChunkStorage::At).ok_or_else(|| self.corrupt(*address, "offset beyond 2^64"))
            }
            StorageLayout::Chunked(_) => {
                let found = self.index(rounds)?.get(self.grid.linear(coords));
                Ok(found.map_or(ChunkStorage::Unwritten, |chunk| ChunkStorage::At(*chunk)))
            }
        }
    }

    fn corrupt(&self, offset: u64, detail: impl Into<String>) -> Error {
        let at = offset.saturating_add(self.file.storage.base());
        Error::corrupt("chunk", self.file.storage.describe(), at, detail)
    }

    fn chunk(&self, coords: &[u64], columns: &[Column], rounds: &Arc<Rounds>) -> Result<PlannedChunk> {
        let (region, tile) = (self.grid.region(coords), self.tile(coords));
        let raw = |cells: Option<u64>| cells.and_then(|cells| self.stored_bytes(cells)).unwrap_or(u64::MAX);
        let location = self.locate(coords, &tile, rounds)?;
        let (tile, offset, len, access) = match location {
            ChunkStorage::Unwritten if self.file.strict => {
                let object = self.file.storage.describe();
                return Err(Error::corrupt("chunk", object, None, "the chunk is absent").in_chunk(coords));
            }
            // Decoded from the fill value, in any piece.
            ChunkStorage::Unwritten => (region.clone(), 0, 0, Access::Coded { granule: Some(1) }),
            // The parser has the bytes of compact cells already.
            ChunkStorage::Header => {
                self.file.limits.check_chunk(raw(tile.cells()))?;
                (tile, 0, 0, Access::Coded { granule: None })
            }
            ChunkStorage::At(location) => {
                let plain = self.decoder.pipeline.is_plain(location.mask);
                self.check_location(&location, raw(tile.cells()), plain)?;
                let cell = &self.decoder.cell;
                let direct = plain && cell.cell != CellLen::Var && cell.place.is_none();
                let access = match direct {
                    true => Access::Direct { swapped: self.decoder.cell.swapped() },
                    false => Access::Coded { granule: None },
                };
                (tile, location.address.saturating_add(self.file.storage.base()), location.len, access)
            }
            ChunkStorage::Outside(ranges) => {
                self.file.limits.check_chunk(raw(tile.cells()))?;
                return Ok(self.outside_chunk(coords, &ranges, columns));
            }
        };
        let access =
            if self.decoder.cell.cell == CellLen::Var { Access::Coded { granule: None } } else { access };
        let part = |column: &Column| Part { column: *column, role: Role::Values, object: 0, offset, len };
        Ok(PlannedChunk {
            id: self.grid.linear(coords),
            cells: tile.cells().unwrap_or(u64::MAX),
            whole: tile == region,
            tile: (tile != region).then(|| Box::new(tile)),
            layer: 0,
            parts: columns.iter().map(part).collect(),
            access,
            cover: Cover::Exact(region),
        })
    }

    /// A chunk of raw files, whose parts are its cells one after the other.
    fn outside_chunk(
        &self,
        coords: &[u64],
        ranges: &[(u32, Range<u64>)],
        columns: &[Column],
    ) -> PlannedChunk {
        let cell = &self.decoder.cell;
        let direct = ranges.len() == 1 && cell.cell != CellLen::Var && cell.place.is_none();
        let access = match direct {
            true => Access::Direct { swapped: cell.swapped() },
            false => Access::Coded { granule: None },
        };
        let of_column = |column: &Column| {
            let column = *column;
            ranges.iter().map(move |(object, range)| Part::values(column, *object, range))
        };
        let parts = columns.iter().flat_map(of_column).collect();
        PlannedChunk::exact(self.grid.linear(coords), self.grid.region(coords), parts, access)
    }

    fn chunk_plan(&self, request: &Request, rounds: &Arc<Rounds>) -> Result<ChunkPlan> {
        let named = |e: Error| e.in_array(&self.schema.name);
        let Some(selection) = request.selection() else {
            return Err(Error::internal("a request by coordinates"));
        };
        let mut chunks = Vec::new();
        if self.grid.total() > 0 {
            let touched = self.grid.touched(selection);
            self.file.limits.check_plan(touched.remaining()).map_err(named)?;
            self.check_unwritten(touched.remaining(), rounds).map_err(named)?;
            for coords in touched {
                let chunk = self.chunk(&coords, &request.columns, rounds);
                chunks.push(chunk.map_err(|e| named(e).in_chunk(&coords))?);
            }
        }
        // An unwritten chunk is a chunk of fill values: HDF5 does not record which cells of a chunk were written.
        Ok(ChunkPlan { chunks, uncovered: Uncovered::Impossible, deletes: Vec::new() })
    }

    /// Limits the work that unwritten chunks cause: a shape can declare any number of them.
    fn check_unwritten(&self, touched: u64, rounds: &Arc<Rounds>) -> Result<()> {
        let (written, stored) = match &self.layout {
            StorageLayout::Compact(_) | StorageLayout::Contiguous(Some(_)) | StorageLayout::External(_) => {
                return Ok(());
            }
            StorageLayout::Contiguous(None) | StorageLayout::Virtual(_) => (0, 0),
            StorageLayout::Chunked(_) => {
                let index = self.index(rounds)?;
                (index.len(), index.stored_bytes())
            }
        };
        let cells =
            self.grid.chunk_shape().iter().try_fold(self.decoder.cell.size as u64, |n, c| n.checked_mul(*c));
        let each = cells.unwrap_or(u64::MAX).max(UNWRITTEN_COST);
        let unwritten = touched.saturating_sub(written).saturating_mul(each);
        self.file.limits.check_total("unwritten cells", unwritten, stored)
    }

    /// Compares a location with the file and with the size of the cells.
    fn check_location(&self, location: &ChunkLocation, raw: u64, plain: bool) -> Result<()> {
        let len = hdf5_reader::Storage::len(&*self.file.storage);
        if location.address.checked_add(location.len).is_none_or(|end| end > len) {
            let (object, found) = (self.file.storage.describe(), len.saturating_sub(location.address));
            let at = location.address.saturating_add(self.file.storage.base());
            return Err(Error::truncated("chunk", object, at, location.len, found));
        }
        if plain && location.len != raw {
            return Err(
                self.corrupt(location.address, format!("{} bytes stored, {raw} expected", location.len))
            );
        }
        self.file.limits.check_decoded(raw, location.len)
    }

    /// The mask of a written chunk; `None` if it was never written.
    fn written(&self, chunk: &PlannedChunk) -> Option<u32> {
        match &self.layout {
            StorageLayout::Compact(_) | StorageLayout::Contiguous(Some(_)) | StorageLayout::External(_) => {
                Some(0)
            }
            StorageLayout::Contiguous(None) | StorageLayout::Virtual(_) => None,
            StorageLayout::Chunked(_) => self.index.get()?.get(chunk.id).map(|location| location.mask),
        }
    }

    /// Decodes references into `out` and appends the values they point to.
    fn decode_variable(&self, references: &[u8], offsets: &mut Vec<u64>, data: &mut Vec<u8>) -> Result<()> {
        let (mut heap, element) = (HeapReader::new(&self.file), self.decoder.cell.dtype.size().unwrap_or(1));
        self.file.storage.renew();
        let stored = references.len() as u64;
        alloc::reserve("offsets of values", offsets, references.len() / self.decoder.cell.size.max(1))?;
        let first = data.len();
        for reference in references.chunks(self.decoder.cell.size.max(1)) {
            let value = heap.value(reference, element)?;
            // Text of NetCDF ends with a NUL that is not part of it.
            let value = match self.decoder.cell.dtype {
                DType::Utf8 => value.split(|byte| *byte == 0).next().unwrap_or_default(),
                _ => value,
            };
            alloc::reserve("values of variable length", data, value.len())?;
            data.extend_from_slice(value);
            offsets.push(data.len() as u64);
            // Many references can point to one large value.
            let held = (data.len() - first) as u64;
            self.file.limits.check_held(
                "values of variable length",
                held,
                stored.saturating_add(heap.read),
            )?;
        }
        self.decoder.swap(&mut data[first..]);
        Ok(())
    }
}

impl ArraySource for Hdf5Array {
    fn schema(&self) -> &ArraySchema {
        &self.schema
    }

    fn object(&self, number: u32) -> Cow<'_, str> {
        match number.checked_sub(1) {
            None => Cow::Borrowed(""),
            Some(file) => Cow::Owned(JoinedStore::object(file, "")),
        }
    }

    fn plan(&self, request: &Request, rounds: &Arc<Rounds>) -> Result<Planned> {
        Planned::from_rounds(self.chunk_plan(request, rounds), rounds)
    }

    fn recipe(&self) -> Option<Vec<u8>> {
        // Masks are in the chunk index, which a recipe does not have.
        let masked = self.index.get().is_some_and(ChunkIndex::has_masks);
        self.recipe.clone().filter(|_| !masked)
    }

    fn totals(&self, _: &Request) -> Result<Option<Totals>> {
        let cells =
            self.stored.iter().try_fold(self.decoder.cell.size as u64, |bytes, n| bytes.checked_mul(*n));
        let (chunks, stored_bytes) = match &self.layout {
            StorageLayout::Chunked(_) => {
                Rounds::run(self.file.storage.store(), |rounds| self.index(rounds).map(drop))?;
                let index = self.index.get().ok_or_else(|| Error::internal("an index is not kept"))?;
                (index.len(), index.stored_bytes())
            }
            StorageLayout::Contiguous(None) | StorageLayout::Virtual(_) => (0, 0),
            StorageLayout::Contiguous(Some(_)) | StorageLayout::External(_) => {
                (self.grid.total(), cells.unwrap_or(u64::MAX))
            }
            StorageLayout::Compact(data) => (self.grid.total(), data.len() as u64),
        };
        Ok(Some(Totals { chunks, stored_bytes, digests: false }))
    }

    fn constant(&self, chunk: &PlannedChunk, _column: Column) -> Option<Vec<u8>> {
        let known = self.written(chunk).is_none() && self.decoder.cell.cell != CellLen::Var;
        known.then(|| self.decoder.constant()).flatten()
    }

    fn describe(&self, chunk: &PlannedChunk) -> ChunkInfo {
        let names = self.schema.fields[0].codecs.join("+");
        ChunkInfo {
            coords: self.grid.coords(chunk.id),
            raw_len: chunk.cells.saturating_mul(self.decoder.cell.size as u64),
            stored_len: chunk.stored_bytes(),
            codec: match self.written(chunk) {
                None => "fill".to_owned(),
                Some(mask) if self.decoder.pipeline.is_plain(mask) => "raw".to_owned(),
                Some(_) => names,
            },
            offset: chunk.parts.first().map_or(0, |part| part.offset),
        }
    }

    fn checked_bytes(&self, chunk: &PlannedChunk) -> u64 {
        if self.written(chunk).is_some_and(|mask| self.decoder.pipeline.has_checksum(mask)) {
            chunk.stored_bytes()
        } else {
            0
        }
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
        let mut joined = Vec::new();
        let stored: &[u8] = match (&self.layout, parts) {
            (StorageLayout::Compact(data), [_]) => data,
            (_, [part]) => part,
            (StorageLayout::External(_), parts) => {
                for part in parts {
                    alloc::reserve("cells of raw files", &mut joined, part.len())?;
                    joined.extend_from_slice(part);
                }
                &joined
            }
            _ => return Err(Error::internal("a chunk of a dataset has one part")),
        };
        match out {
            ColumnMut::Fixed { values, validity: None } => {
                let mask = self.written(chunk);
                self.decoder.decode_fixed(chunk, mask, stored, &cells, values, scratch)
            }
            ColumnMut::Var { offsets, data, validity: None } => {
                let bytes =
                    cells.end.saturating_sub(cells.start).saturating_mul(self.decoder.cell.size as u64);
                let len = usize::try_from(bytes).unwrap_or(usize::MAX);
                let mut references = alloc::zeroed::<u8>("references", len)?;
                let Some(mask) = self.written(chunk) else {
                    // References of zeros are null: empty values.
                    return self.decode_variable(&references, offsets, data);
                };
                self.decoder.stored_cells(mask, stored, &mut references, scratch)?;
                self.decode_variable(&references, offsets, data)
            }
            _ => Err(Error::internal("cells of datasets have no validity")),
        }
    }
}
