//! Blocks of cells read from the engine.

use tesseral::{CellLen, DType, Dense, Error, Field, Result, Selection};
use tesseral_display::coordinate;
use tesseral_engine::Cells;

use super::Task;
use crate::error::CliResult;

/// Default size of a block in bytes: large enough that chunks of usual size are decoded once.
const BLOCK: u64 = 128 << 20;
/// Blocks take a fraction of the memory limit; decoding and writing need the rest.
const SHARE: u64 = 4;

/// Consecutive cells of the result.
pub(super) enum Block {
    Dense {
        cells: Box<Dense>,
        size: usize,
        /// Missing values of the field are returned as their values.
        stored: bool,
    },
    Var(Cells),
    /// Cells with the same byte.
    Same {
        byte: [u8; 1],
        count: usize,
    },
    /// One byte per cell.
    Bytes(Vec<u8>),
}

impl Block {
    /// Number of cells.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Dense { cells, size, .. } => cells.bytes().len() / size,
            Self::Var(cells) => cells.len(),
            Self::Same { count, .. } => *count,
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    /// Bytes of a cell; `None` for a null.
    pub(super) fn cell(&self, i: usize) -> Option<&[u8]> {
        match self {
            Self::Dense { cells, size, stored } => {
                let valid = validity(cells, *stored).is_none_or(|v| v[i] != 0);
                valid.then(|| &cells.bytes()[i * size..(i + 1) * size])
            }
            Self::Var(cells) => cells.is_valid(i).then(|| cells.get(i)),
            Self::Same { byte, .. } => Some(byte),
            Self::Bytes(bytes) => Some(&bytes[i..=i]),
        }
    }

    /// All cells contiguous, if no cell is null and all are fixed-size.
    pub(super) fn plain(&self) -> Option<&[u8]> {
        match self {
            Self::Dense { cells, stored, .. }
                if validity(cells, *stored).is_none_or(|v| v.iter().all(|b| *b != 0)) =>
            {
                Some(cells.bytes())
            }
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

fn validity(cells: &Dense, stored: bool) -> Option<&[u8]> {
    if stored { cells.stored_validity() } else { cells.validity() }
}

/// Which validity is printed instead of cells.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Validity {
    /// Cells that are not missing.
    Model,
    /// Cells that are not null as stored.
    Stored,
}

type Blocks<'a> = Box<dyn Iterator<Item = Result<Block>> + 'a>;

/// The blocks of a selection of a field, in row-major order.
pub(super) fn blocks<'a>(
    task: &'a Task<'_>,
    field: &Field,
    validity: Option<Validity>,
    stored: bool,
) -> CliResult<Blocks<'a>> {
    let array = task.array;
    let budget = array.options().memory.map_or(BLOCK, |memory| (memory / SHARE).clamp(1, BLOCK));
    tesseral_engine::check_total(array.handle(), &array.request(task.selection))?;
    if let Some(kind) = validity
        && !field.nullable
        && (kind == Validity::Stored
            || (field.missing_values().is_empty()
                && !tesseral_engine::has_gaps(array.handle(), &array.request(task.selection))?))
    {
        return Ok(Box::new(ones(task.selection)));
    }
    if field.dtype == DType::Bitmask {
        // Few blocks, because compressed chunks are decoded completely for each.
        return Ok(Box::new(rows(task.selection, 64 << 20).map(move |part| {
            let bits = tesseral_engine::read_bits(array.handle(), &array.request(&part), array.options())?;
            Ok(Block::Bytes(bits))
        })));
    }
    if field.cell == CellLen::Var {
        let rows = rows(task.selection, 1 << 20);
        return Ok(Box::new(rows.map(move |part| {
            let stored = validity.map_or(stored, |kind| kind == Validity::Stored);
            let read = if stored { tesseral_engine::read_var } else { tesseral_engine::read_valid_var };
            let cells = read(array.handle(), &array.request(&part), array.options())?;
            Ok(match validity {
                Some(_) => Block::Bytes(valid(cells.validity(), cells.len())),
                None => Block::Var(cells),
            })
        })));
    }
    let size = field.cell_size().filter(|n| *n > 0).ok_or_else(|| {
        Error::unsupported(format!("cat of dtype {}", field.type_name())).in_array(array.name())
    })?;
    let blocks = array.blocks(task.selection, budget)?;
    Ok(Box::new(blocks.map(move |part| {
        let cells = tesseral_engine::read_owned(array.handle(), &array.request(&part), array.options())?;
        let count = cells.bytes().len() / size;
        Ok(match validity {
            Some(Validity::Stored) => Block::Bytes(valid(cells.stored_validity(), count)),
            Some(Validity::Model) => Block::Bytes(valid(cells.validity(), count)),
            None => Block::Dense { cells: Box::new(cells), size, stored },
        })
    })))
}

fn valid(validity: Option<&[u8]>, count: usize) -> Vec<u8> {
    validity.map_or_else(|| vec![1; count], |v| v.iter().map(|b| u8::from(*b != 0)).collect())
}

/// Validity of a field that is not nullable, without reading.
fn ones(selection: &Selection) -> impl Iterator<Item = Result<Block>> {
    const AT_ONCE: u64 = 1 << 20;
    let mut left = selection.cells().unwrap_or(u64::MAX);
    std::iter::from_fn(move || {
        let count = left.min(AT_ONCE);
        left -= count;
        (count > 0).then(|| Ok(Block::Same { byte: [1], count: usize::try_from(count).unwrap_or(0) }))
    })
}

/// Divides the selection along its first dimension, for cells whose size is known only after reading.
fn rows(selection: &Selection, cells: u64) -> impl Iterator<Item = Selection> {
    let per_row = selection.shape().iter().skip(1).try_fold(1_u64, |n, extent| n.checked_mul(*extent));
    let step = cells / per_row.unwrap_or(u64::MAX).clamp(1, cells);
    let slices = selection.slices().to_vec();
    let empty = selection.shape().contains(&0);
    let count = if empty { 0 } else { slices.first().map_or(1, tesseral::Slice::count) };
    (0..count.div_ceil(step)).filter_map(move |block| {
        let mut part = slices.clone();
        if let Some(first) = part.first_mut() {
            let from = block * step;
            let to = (from + step).min(count);
            let (start, stride) = (first.start, first.step);
            first.start = start + from * stride;
            first.end = (start + (to - 1) * stride + 1).min(first.end);
        }
        let bounds: Vec<u64> = part.iter().map(|s| s.end).collect();
        // Parts of valid slices are valid.
        Selection::new(part, &bounds).ok()
    })
}

/// Position of the next cell in the selection, with the coordinate of each dimension as text.
pub(super) struct Odometer {
    counts: Vec<u64>,
    at: Vec<u64>,
    coordinates: Vec<String>,
    /// The outermost dimension that changed with the last step.
    pub(super) moved: usize,
}

impl Odometer {
    pub(super) fn new(task: &Task<'_>) -> Self {
        let counts = task.selection.shape().to_vec();
        let mut odometer = Self {
            at: vec![0; counts.len()],
            coordinates: vec![String::new(); counts.len()],
            counts,
            moved: 0,
        };
        if !odometer.counts.contains(&0) {
            (0..odometer.counts.len()).for_each(|d| odometer.show(task, d));
        }
        odometer
    }

    fn show(&mut self, task: &Task<'_>, d: usize) {
        let slice = task.selection.slices()[d];
        let position = slice.start + self.at[d] * slice.step;
        self.coordinates[d] = coordinate(&task.array.schema().dims[d], position);
    }

    /// Coordinates of the cell.
    pub(super) fn coordinates(&self) -> &[String] {
        &self.coordinates
    }

    /// Advances to the next cell.
    pub(super) fn advance(&mut self, task: &Task<'_>) {
        for d in (0..self.counts.len()).rev() {
            self.moved = d;
            self.at[d] += 1;
            if self.at[d] < self.counts[d] {
                self.show(task, d);
                return;
            }
            self.at[d] = 0;
            self.show(task, d);
        }
    }

    /// Returns whether the cell is the first one along the last `dims` dimensions.
    pub(super) fn starts(&self, dims: usize) -> bool {
        self.at[self.at.len().saturating_sub(dims)..].iter().all(|at| *at == 0)
    }
}

/// Returns whether a dimension has coordinates other than its positions.
pub(super) fn has_coordinates(task: &Task<'_>, d: usize) -> bool {
    let dim = &task.array.schema().dims[d];
    dim.labels.is_some() || dim.domain.is_some()
}

/// Name of a dimension, or its number if it is unnamed.
pub(super) fn dim_name(task: &Task<'_>, d: usize) -> String {
    match task.array.schema().dims[d].name.as_str() {
        "" => d.to_string(),
        name => name.to_owned(),
    }
}
