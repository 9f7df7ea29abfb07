//! One variable in the target: its dtype, chunks, dimensions and missing cells.

use tesseral_core::schema::CellLen;
use tesseral_core::{
    Advice, ArraySchema, Coords, DType, Dimension, Error, Field, Order, Result, Scalar, Selection, missing,
};
use tesseral_dataset::Array;
use tesseral_dataset::variable::Variable;
use tesseral_engine::kernel::cast;
use tesseral_engine::{
    check_held, check_total, check_written_chunks, divisible, narrowable, oversized, scatterable,
};
use tesseral_format::convention::{Holds, TextExtent};
use tesseral_format::{Format, contiguous_chunk_shape};

use super::dimension::target_dimension;
use super::missing::{declared, fill, missing_policy, replaced};
use crate::convert::feed::{FeedColumn, MissingPolicy};
use crate::convert::lossy;
use crate::convert::options::ConvertOptions;

/// Approximate chunk size in bytes for arrays that the source stores as one chunk.
pub(crate) const CHUNK: u64 = 4 << 20;
/// Rows of a chunk where the chunks of all columns have the same rows.
const TABLE_ROWS: u64 = 1 << 17;
/// Assumed size of a variable-length cell in bytes.
const VARIABLE_CELL: u64 = 32;

/// One variable in the target.
pub(super) struct PlannedVariable {
    pub name: String,
    pub schema: ArraySchema,
    pub column: FeedColumn,
    pub selection: Selection,
    pub source_chunk: Coords,
    pub bound: Option<lossy::ErrorBound>,
    pub text: Option<TextExtent>,
}

impl PlannedVariable {
    pub(super) fn new(
        variable: &Variable,
        format: &'static dyn Format,
        options: &ConvertOptions,
    ) -> Result<Self> {
        Self::plan(variable, format, options).map_err(|e| e.in_array(&variable.name))
    }

    fn plan(variable: &Variable, format: &'static dyn Format, options: &ConvertOptions) -> Result<Self> {
        let holds = format.holds();
        let own = own_arguments(variable.array.schema(), options);
        let (array, selection) = variable.array.narrowed(own)?;
        let variable = &Variable { array: array.into_owned(), ..variable.clone() };
        let (array, from) = (&variable.array, variable.array.schema());
        if from.sparse {
            scatterable(array.handle(), array.field_number())
                .map_err(|e| e.hint(Advice::SparseAs(&["rows"])))?;
        }
        check_total(array.handle(), &array.request(&selection))?;
        let field = array.selected_field();
        let dtype = cast_of(&variable.name, field, options)?;
        let bound = lossy::ErrorBound::choose(array, &selection, dtype, options)?;
        let is_text = field.cell == CellLen::Var && !(holds.cells)(field.dtype, CellLen::Var);
        let chunks = ChunkShapes::new(array, &selection, is_text, format, options)?;
        let dims = from.dims.iter().zip(selection.slices()).zip(&chunks.to);
        let dims = dims.map(|((dim, slice), chunk)| target_dimension(dim, slice, *chunk, holds.domains));
        let mut absent = missing_policy(variable, &selection, dtype, holds, options)?;
        if bound.is_some() && absent != MissingPolicy::Preserve {
            absent = MissingPolicy::Value(lossy::ErrorBound::missing());
        }
        let replaced = replaced(field, dtype, bound.is_some_and(|bound| bound.has_missing));
        let column = FeedColumn { array: array.clone(), dtype, absent, replaced };
        let mut attributes = variable.attributes.clone();
        if let Some(bound) = &bound {
            attributes.extend(bound.attributes());
        }
        let shards = from.shard_shape.as_ref();
        let schema = ArraySchema {
            field_attributes: None,
            role: from.role,
            name: variable.name.clone(),
            dims: dims.collect::<Result<_>>()?,
            fields: vec![target_field(&variable.name, &column, holds)],
            shard_shape: shards.and_then(|shard| shard_shape(shard, &chunks.to, &selection.shape())),
            chunk_shape: Some(chunks.to),
            cell_order: Order::RowMajor,
            sparse: false,
            allows_duplicates: false,
            attributes,
        };
        let text = is_text.then(|| column.text_extent(&selection)).transpose()?;
        let (name, source_chunk) = (variable.name.clone(), chunks.from);
        Ok(Self { name, schema, column, selection, source_chunk, bound, text })
    }
}

/// The chunks that cells are read by and written in.
struct ChunkShapes {
    from: Coords,
    to: Coords,
}

impl ChunkShapes {
    /// Chunks of an array, checked against what the array stores and the memory limit.
    fn new(
        array: &Array,
        selection: &Selection,
        is_text: bool,
        format: &'static dyn Format,
        options: &ConvertOptions,
    ) -> Result<Self> {
        let (holds, schema, field) = (format.holds(), array.schema(), array.selected_field());
        let (shape, request) = (selection.shape(), array.request(selection));
        let from = source_chunk(schema, selection);
        let to = target_chunk(schema, field, &shape, &from, format, options)?;
        // Variable-length cells with another layout can require a single chunk.
        let to = if is_text { shape.iter().map(|n| (*n).max(1)).collect() } else { to };
        // Chunks of the source do not matter if any range of them can be read, or if a whole one would exceed the memory and parts
        // can be read.
        let too_large =
            options.execution.memory.is_some_and(|memory| oversized(chunk_bytes(&from, field), memory));
        let from = if schema.sparse
            || divisible(array.handle(), &request)?
            || (too_large && narrowable(array.handle(), &request)?)
        {
            to.clone()
        } else {
            from
        };
        // Size in memory: the array if the format keeps it whole, else the decoded chunk.
        let held = if holds.chunks { &from } else { &shape };
        check_held(array.handle(), &request, held)?;
        if holds.chunks {
            let along = shape.iter().zip(&to).map(|(extent, chunk)| extent.div_ceil((*chunk).max(1)));
            let chunks = along.fold(1_u64, u64::saturating_mul);
            check_written_chunks(array.handle(), &request, chunks, format.capabilities().chunk_objects)?;
        }
        Ok(Self { from, to })
    }
}

/// Chunk of the source in positions of the selection; tiles of a sparse array.
fn source_chunk(schema: &ArraySchema, selection: &Selection) -> Coords {
    let stored = schema.chunk_shape.clone();
    let stored = stored.unwrap_or_else(|| tile_shape(schema, &schema.shape().unwrap_or_default()));
    let steps = stored.iter().zip(selection.slices());
    steps.map(|(chunk, slice)| (chunk / slice.step).clamp(1, slice.count().max(1))).collect()
}

/// Returns whether contiguous parts of an array can be read without memory for much of it: the source's chunks along all dimensions but
/// the first are few bytes.
fn is_read_by_bands(shape: &[u64], from: &[u64], cell: u64, options: &ConvertOptions) -> bool {
    let first = from.first().copied().unwrap_or(1);
    let band = shape.iter().skip(1).fold(first.saturating_mul(cell), |bytes, n| bytes.saturating_mul(*n));
    options.execution.memory.is_none() && band <= 16 * CHUNK
}

/// The requested chunk, else one that suits the target: that of the source, unless it is large.
fn target_chunk(
    schema: &ArraySchema,
    field: &Field,
    shape: &[u64],
    from: &Coords,
    format: &'static dyn Format,
    options: &ConvertOptions,
) -> Result<Coords> {
    let (holds, cell) = (format.holds(), cell_bytes(field));
    let default = if holds.table {
        shape.iter().map(|rows| (*rows).clamp(1, TABLE_ROWS)).collect()
    } else if holds.contiguous || !holds.chunks && is_read_by_bands(shape, from, cell, options) {
        contiguous_chunk_shape(shape, cell)
    } else if !holds.chunks || chunk_bytes(from, field) <= 4 * CHUNK {
        from.clone()
    } else {
        default_chunk(shape, cell)
    };
    match &options.chunk {
        Some(_) if !holds.chunks || holds.contiguous => {
            Err(Error::unsupported(format!("chunks in {}", format.title())).hint(Advice::DefaultChunks))
        }
        Some(chunk) => chunk.resolve(schema, &default),
        None => Ok(default),
    }
}

/// The field that the cells of a column become.
fn target_field(name: &str, column: &FeedColumn, holds: Holds) -> Field {
    let (field, dtype) = (column.array.selected_field(), column.dtype);
    let value = if let MissingPolicy::Value(value) = &column.absent { Some(value) } else { None };
    let mut to = Field {
        name: name.to_owned(),
        dtype,
        nullable: (field.nullable || column.absent == MissingPolicy::Null) && holds.nullable,
        fill: value.cloned().or_else(|| fill(field, dtype)),
        fill_valid: field.fill_valid,
        missing: declared(field, dtype),
        enumeration: field.enumeration.clone().filter(|_| dtype == field.dtype),
        time: None,
        codecs: Vec::new(),
        cell: field.cell,
    };
    for value in column.replaced.iter().map(|(_, new)| new).chain(value) {
        if !to.missing.iter().any(|known| missing::same(known, value)) {
            to.missing.push(value.clone());
        }
    }
    to
}

/// Shards of the source around whole new chunks, at most as long as the array: a file can declare any extent, and the index of a
/// shard has an entry for each of its chunks.
fn shard_shape(shard: &[u64], chunk: &[u64], shape: &[u64]) -> Option<Coords> {
    let extents = shard.iter().zip(chunk).zip(shape);
    extents
        .map(|((shard, chunk), extent)| shard.min(extent).max(&1).checked_next_multiple_of(*chunk))
        .collect()
}

/// Tile extents of a sparse array.
fn tile_shape(schema: &ArraySchema, whole: &[u64]) -> Coords {
    let tile = |(dim, extent): (&Dimension, &u64)| {
        let tile = dim.tile.as_ref().and_then(Scalar::as_i128).and_then(|tile| u64::try_from(tile).ok());
        tile.filter(|tile| *tile > 0).map_or(*extent, |tile| tile.min(*extent))
    };
    schema.dims.iter().zip(whole).map(tile).collect()
}

/// Selections of the array's dimensions.
pub(crate) fn own_arguments<'a>(
    schema: &ArraySchema,
    options: &'a ConvertOptions,
) -> impl Iterator<Item = &'a str> {
    let own = |argument: &&String| argument.split_once('=').is_none_or(|(dim, _)| schema.dim(dim).is_ok());
    options.select.iter().filter(own).map(String::as_str)
}

/// Size of a cell in memory in bytes, assumed if it varies.
pub(super) fn cell_bytes(field: &Field) -> u64 {
    field.cell_size().map_or(VARIABLE_CELL, |n| n as u64)
}

fn chunk_bytes(chunk: &[u64], field: &Field) -> u64 {
    chunk.iter().fold(cell_bytes(field), |n, extent| n.saturating_mul(*extent))
}

/// Chunks of whole rows of about 4 MiB.
pub fn default_chunk(shape: &[u64], cell: u64) -> Coords {
    let mut left = (CHUNK / cell.max(1)).max(1);
    let mut chunk = Coords::from_elem(1, shape.len());
    for d in (0..shape.len()).rev() {
        chunk[d] = shape[d].clamp(1, left);
        left = (left / chunk[d]).max(1);
    }
    chunk
}

/// Target dtype of cells.
pub(crate) fn cast_of(name: &str, field: &Field, options: &ConvertOptions) -> Result<DType> {
    let named = options.casts.iter().rev().find(|cast| cast.name.as_deref() == Some(name));
    let requested = named.or_else(|| options.casts.iter().rev().find(|cast| cast.name.is_none()));
    match requested {
        Some(cast) if cast.dtype == field.dtype => Ok(field.dtype),
        Some(cast) if field.cell == CellLen::One && cast::supported(field.dtype, cast.dtype) => {
            Ok(cast.dtype)
        }
        Some(cast) => Err(Error::unsupported(format!("{} as {}", field.type_name(), cast.dtype))),
        None => Ok(field.dtype),
    }
}
