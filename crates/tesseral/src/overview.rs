//! An array seen from afar: few numbers that stand for many, for pictures.

mod sparse;

use tesseral_core::{Element, Error, Result, Selection, Slice, dispatch_element};
use tesseral_engine::gaps;

use crate::Array;

/// Beyond this many cells, only every so many are looked at.
const CELLS: u64 = 256 << 20;
/// Bytes read at a time when no limit asks for less.
const BLOCK: u64 = 32 << 20;
/// Cells of a block, at most.
const BLOCK_CELLS: u64 = 4 << 20;

/// What a point of an overview stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Point {
    /// The mean of its finite cells.
    Value(f64),
    /// Cells that are NaN or infinite, and no finite one.
    NotFinite,
    /// Nulls, cells equal to the declared fill or that nobody wrote, and nothing else.
    Null,
}

/// An array seen from afar.
#[derive(Clone, Debug)]
pub struct Overview {
    /// Points along each dimension that has more than one position: none, one or two of them.
    pub shape: Vec<usize>,
    /// Which dimensions of the array they are.
    pub dims: Vec<usize>,
    /// The points, row-major.
    pub points: Vec<Point>,
    /// What was looked at.
    pub selection: Selection,
    /// Cells looked at.
    pub cells: u64,
    /// Cells that are NaN or infinite.
    pub not_finite: u64,
    /// Cells that are null, equal to the declared fill, or that nobody wrote.
    pub nulls: u64,
}

impl Overview {
    /// The smallest and the largest value, or those that leave out this part of the points at either end.
    pub fn range(&self, trim: f64) -> Option<(f64, f64)> {
        let mut values: Vec<f64> = self
            .points
            .iter()
            .filter_map(|p| if let Point::Value(v) = p { Some(*v) } else { None })
            .collect();
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss)]
        let skip = ((last as f64 * trim.clamp(0.0, 0.49)) as usize).min(last / 2);
        Some((values[skip], values[last - skip]))
    }
}

/// Looks at a selection of one or two dimensions from afar: `most` points along each of them, each the mean of the cells it stands
/// for. Dimensions of one position do not count. Very large selections are looked at in steps. Of a sparse array, the cells there are
/// count, and those before the last two dimensions are folded away.
///
/// # Errors
/// `InvalidRequest` when more than two dimensions have more than one position; `Unsupported` for cells that are no numbers; what
/// reading meets.
pub fn overview(array: &Array, selection: &Selection, most: [usize; 2]) -> Result<Overview> {
    let field = array.selected_field();
    let is_number = dispatch_element!(field.dtype, T => size_of::<T>() > 0, else => false);
    if !is_number || field.cell != tesseral_core::CellLen::One {
        return Err(Error::unsupported(format!("a picture of {}", field.type_name())).in_array(array.name()));
    }
    if array.schema().sparse {
        return sparse::overview(array, selection, most);
    }
    let dims: Vec<usize> = (0..selection.rank()).filter(|d| selection.slices()[*d].count() > 1).collect();
    if dims.len() > 2 {
        return Err(Error::invalid(format!(
            "a picture has one or two dimensions, the selection has {}",
            dims.len()
        ))
        .in_array(array.name())
        .hint("give the others one position each, such as `time=0`"));
    }
    let selection = sparser(array, selection, &dims, most)?;
    let shape: Vec<usize> = dims
        .iter()
        .enumerate()
        .map(|(i, d)| {
            let count = usize::try_from(selection.slices()[*d].count()).unwrap_or(usize::MAX);
            count.min(most[if dims.len() == 1 { 1 } else { i }].max(1))
        })
        .collect();
    let mut bins = Bins::new(&shape);
    // Each position of a block takes a bin number beside its cell.
    let most = BLOCK.min(BLOCK_CELLS * field.cell_size().unwrap_or(1) as u64);
    let budget = array.options().memory.map_or(most, |memory| (memory / 4).clamp(1, most));
    for part in array.blocks(&selection, budget)? {
        let places: Vec<Vec<usize>> =
            (0..part.rank()).map(|d| bins.places(&selection, &part, &dims, d)).collect();
        let fill = field.missing().map(|f| f.bytes().to_vec());
        let written = if field.default_fill { gaps(array.handle(), &array.request(&part))? } else { None };
        array.read_with(&part, |block| {
            let validity = block.validity().or(written.as_deref());
            dispatch_element!(field.dtype, T => bins.add::<T>(block.bytes(), validity, fill.as_deref(), &places), else => ());
            Ok(())
        })?;
    }
    Ok(Overview {
        points: bins.points(),
        shape,
        dims,
        cells: selection.cells().unwrap_or(u64::MAX),
        selection,
        not_finite: bins.not_finite,
        nulls: bins.nulls,
    })
}

/// The selection with longer steps, so that what is looked at stays within bounds.
fn sparser(array: &Array, selection: &Selection, dims: &[usize], most: [usize; 2]) -> Result<Selection> {
    let mut slices: Vec<Slice> = selection.slices().to_vec();
    let bounds: Vec<u64> = slices.iter().map(|s| s.end).collect();
    loop {
        let now = Selection::new(slices.clone(), &bounds)?;
        let widest =
            dims.iter().enumerate().max_by_key(|(i, d)| slices[**d].count() / most[*i].max(1) as u64);
        let Some((i, d)) = widest.filter(|_| now.cells().is_none_or(|n| n > CELLS)) else { return Ok(now) };
        if slices[*d].count() <= most[i] as u64 {
            return Ok(now);
        }
        slices[*d].step =
            slices[*d].step.checked_mul(2).ok_or_else(|| Error::invalid("a step").in_array(array.name()))?;
    }
}

/// Sums by point.
struct Bins {
    columns: usize,
    shape: Vec<usize>,
    sums: Vec<f64>,
    counts: Vec<u64>,
    odd: Vec<u64>,
    not_finite: u64,
    nulls: u64,
}

impl Bins {
    fn new(shape: &[usize]) -> Self {
        let count = shape.iter().product();
        Self {
            columns: if shape.len() == 2 { shape[1] } else { 1 },
            shape: shape.to_vec(),
            sums: vec![0.0; count],
            counts: vec![0; count],
            odd: vec![0; count],
            not_finite: 0,
            nulls: 0,
        }
    }

    /// What each position of a part along a dimension adds to the number of its point.
    fn places(&self, whole: &Selection, part: &Selection, dims: &[usize], d: usize) -> Vec<usize> {
        let (all, own) = (whole.slices()[d], part.slices()[d]);
        let first = (own.start - all.start) / all.step;
        let place = |i: u64| match dims.iter().position(|x| *x == d) {
            None => 0,
            Some(axis) => {
                let points = self.shape[axis] as u128;
                let point = u128::from(first + i) * points / u128::from(all.count().max(1));
                let stride = if axis == 0 { self.columns } else { 1 };
                usize::try_from(point).unwrap_or(0) * stride
            }
        };
        (0..own.count()).map(place).collect()
    }

    fn add<T: Element>(
        &mut self,
        cells: &[u8],
        validity: Option<&[u8]>,
        fill: Option<&[u8]>,
        places: &[Vec<usize>],
    ) {
        let fill: Option<T> = fill.map(bytemuck::pod_read_unaligned);
        let missing = |value: T| fill.is_some_and(|fill| fill == value || fill.is_nan() && value.is_nan());
        let mut at = vec![0_usize; places.len()];
        for (i, cell) in cells.chunks_exact(size_of::<T>()).enumerate() {
            let point: usize = at.iter().zip(places).map(|(p, places)| places[*p]).sum();
            let value: T = bytemuck::pod_read_unaligned(cell);
            let number = value.to_f64();
            if validity.is_some_and(|v| v[i] == 0) || missing(value) {
                self.nulls += 1;
            } else if !number.is_finite() {
                self.not_finite += 1;
                self.odd[point] += 1;
            } else {
                self.sums[point] += number;
                self.counts[point] += 1;
            }
            for d in (0..at.len()).rev() {
                at[d] += 1;
                if at[d] < places[d].len() {
                    break;
                }
                at[d] = 0;
            }
        }
    }

    #[allow(clippy::cast_precision_loss)]
    fn points(&self) -> Vec<Point> {
        let point = |i: usize| match (self.counts[i], self.odd[i]) {
            (0, 0) => Point::Null,
            (0, _) => Point::NotFinite,
            (count, _) => Point::Value(self.sums[i] / count as f64),
        };
        (0..self.sums.len()).map(point).collect()
    }
}
