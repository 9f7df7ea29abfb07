//! Overviews of arrays for plots: few points that represent many cells.

mod sample;
mod sparse;

use tesseral_core::{Error, Result, Selection, dispatch_element};
use tesseral_engine::fold::{PointMeans, PointRun};

use crate::Array;

/// Default for the bytes that are decoded; of larger selections, samples are read.
const BYTES: u64 = 1 << 30;
/// Default number of bytes read at a time.
const BLOCK: u64 = 32 << 20;

/// Value of a point of an overview.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Point {
    /// Mean of its finite cells.
    Value(f64),
    /// All cells that are not missing are NaN or infinite.
    NotFinite,
    /// Missing cells, and nothing else.
    Null,
}

/// An overview of an array.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Overview {
    /// Number of points along each drawn dimension: none, one or two of them.
    pub shape: Vec<usize>,
    /// Indexes of the drawn dimensions.
    pub dims: Vec<usize>,
    /// The points, row-major.
    pub points: Vec<Point>,
    /// The lowest and the highest finite cell of each point over one dimension, if points have several cells; otherwise empty.
    pub ends: Vec<Option<(f64, f64)>>,
    /// The selection that the points represent.
    pub selection: Selection,
    /// Number of cells that were read: fewer than selected, if the points are those of samples.
    pub cells: u64,
    /// Number of cells of the selection; of sparse arrays, those with content.
    pub selected: u64,
    /// Number of cells that are NaN or infinite.
    pub not_finite: u64,
    /// Missing cells.
    pub nulls: u64,
}

impl Overview {
    /// An overview of values that are already computed from the cells of a selection, such as the counts of a histogram.
    pub fn of_values(values: impl IntoIterator<Item = f64>, selection: Selection) -> Self {
        let points: Vec<Point> = values.into_iter().map(Point::Value).collect();
        let selected = selection.cells().unwrap_or(u64::MAX);
        Self {
            shape: vec![points.len()],
            dims: Vec::new(),
            points,
            ends: Vec::new(),
            cells: selected,
            selected,
            selection,
            not_finite: 0,
            nulls: 0,
        }
    }

    /// The difference of two overviews, point by point: missing where either point is. Cells are counted as points, whose
    /// lowest and highest cells are not known.
    ///
    /// # Errors
    /// `InvalidRequest` if their shapes differ.
    pub fn minus(mut self, other: &Self) -> Result<Self> {
        if self.shape != other.shape {
            let detail = format!("a difference of {:?} and {:?} points", self.shape, other.shape);
            return Err(Error::invalid(detail));
        }
        for (point, other) in self.points.iter_mut().zip(&other.points) {
            *point = match (*point, *other) {
                (Point::Value(a), Point::Value(b)) if (a - b).is_finite() => Point::Value(a - b),
                (Point::Null, _) | (_, Point::Null) => Point::Null,
                _ => Point::NotFinite,
            };
        }
        self.ends.clear();
        let count = |kind: Point| self.points.iter().filter(|point| **point == kind).count() as u64;
        (self.nulls, self.not_finite) = (count(Point::Null), count(Point::NotFinite));
        (self.cells, self.selected) = (self.points.len() as u64, self.points.len() as u64);
        Ok(self)
    }

    /// Returns minimum and maximum: of the cells, if their range is known for each point, otherwise of the points; or those of the
    /// points without this fraction of them at either end.
    pub fn range(&self, trim: f64) -> Option<(f64, f64)> {
        let values = self.points.iter().filter_map(|p| if let Point::Value(v) = p { Some(*v) } else { None });
        if trim <= 0.0 {
            let ends = self.ends.iter().copied().flatten();
            return values.map(|v| (v, v)).chain(ends).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        }
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let last = values.len().checked_sub(1)?;
        let skip = ((last as f64 * trim.clamp(0.0, 0.49)) as usize).min(last / 2);
        Some((values[skip], values[last - skip]))
    }
}

/// Computes an overview of one or two dimensions with at most `most` points along each, each the mean of its cells, over one
/// dimension with the lowest and the highest of them. Dimensions
/// of one position are ignored. Of very large selections, samples are read. For a sparse array, existing cells are used, and
/// dimensions before the last two are reduced.
///
/// # Errors
/// `InvalidRequest` if more than two dimensions have several positions; `Unsupported` for cells that are not numbers; errors of
/// reading.
pub fn overview(array: &Array, selection: &Selection, most: [usize; 2]) -> Result<Overview> {
    overview_within(array, selection, most, BYTES)
}

/// As [`overview`], decoding about `bytes` bytes at most, or fewer if less is stored than the [limits](tesseral_core::Limits) of the
/// array require. Of a larger selection, evenly spread chunks are read, and a point without
/// a cell of them is that of the nearest one. At least one chunk is read.
///
/// # Errors
/// As [`overview`]; `Limit` for sparse arrays whose cells exceed the bytes.
pub fn overview_within(
    array: &Array,
    selection: &Selection,
    most: [usize; 2],
    bytes: u64,
) -> Result<Overview> {
    let field = array.selected_field();
    let is_number = dispatch_element!(field.dtype, T => size_of::<T>() > 0, else => false);
    if !is_number || field.cell != tesseral_core::CellLen::One {
        return Err(Error::unsupported(format!("a plot of {}", field.type_name())).in_array(array.name()));
    }
    if array.schema().sparse {
        return sparse::overview(array, selection, most, bytes);
    }
    let dims: Vec<usize> = (0..selection.rank()).filter(|d| selection.slices()[*d].count() > 1).collect();
    if dims.len() > 2 {
        return Err(Error::invalid(format!(
            "a plot requires one or two dimensions, the selection has {}",
            dims.len()
        ))
        .in_array(array.name())
        .hint("select one position of the others, such as `time=0`"));
    }
    let shape: Vec<usize> = dims
        .iter()
        .enumerate()
        .map(|(i, d)| {
            let count = usize::try_from(selection.slices()[*d].count()).unwrap_or(usize::MAX);
            count.min(most[if dims.len() == 1 { 1 } else { i }].max(1))
        })
        .collect();
    let bytes = sample::allowed(array, selection, &dims, bytes)?;
    let sampled = sample::slices(array, selection, &dims, bytes)?;
    let several = selection.cells().is_some_and(|cells| cells > shape.iter().product::<usize>() as u64);
    let mut bins = OverviewPoints::new(&shape, several && dims.len() == 1)?;
    let budget = array.options().memory.map_or(BLOCK, |memory| (memory / 4).clamp(1, BLOCK));
    let mut cells = 0_u64;
    for part in sample::boxes(selection, &dims, &sampled)? {
        for part in array.blocks(&part, budget)? {
            cells = cells.saturating_add(part.cells().unwrap_or(u64::MAX));
            let single = || vec![PointRun { point: 0, positions: 1 }];
            let runs = |axis: usize| bins.runs(selection, &part, axis, dims[axis]);
            let (rows, columns) = match dims.len() {
                0 => (single(), single()),
                1 => (single(), runs(0)),
                _ => (runs(0), runs(1)),
            };
            array.read_with(&part, |block| {
                bins.means.add(field.dtype, block.bytes(), block.validity(), &rows, &columns)
            })?;
        }
    }
    let nearest: Vec<Vec<usize>> = sampled
        .iter()
        .enumerate()
        .map(|(axis, slices)| sample::nearest(slices, selection.slices()[dims[axis]], shape[axis]))
        .collect();
    Ok(Overview {
        shape,
        dims,
        cells,
        selected: selection.cells().unwrap_or(u64::MAX),
        selection: selection.clone(),
        not_finite: bins.means.not_finite(),
        nulls: bins.means.nulls(),
        ends: match nearest.as_slice() {
            [points] if several => points.iter().map(|at| bins.means.ends(*at)).collect(),
            _ => Vec::new(),
        },
        points: bins.points(&nearest),
    })
}

/// Points of an overview, and the positions that belong to them.
struct OverviewPoints {
    columns: usize,
    shape: Vec<usize>,
    means: PointMeans,
}

impl OverviewPoints {
    fn new(shape: &[usize], with_ends: bool) -> Result<Self> {
        let means = PointMeans::new(shape.iter().product())?;
        Ok(Self {
            columns: if shape.len() == 2 { shape[1] } else { 1 },
            shape: shape.to_vec(),
            means: if with_ends { means.with_ends()? } else { means },
        })
    }

    /// Runs of positions of a part along an axis, by point: at most as many as the axis has points.
    fn runs(&self, whole: &Selection, part: &Selection, axis: usize, d: usize) -> Vec<PointRun> {
        let (all, own) = (whole.slices()[d], part.slices()[d]);
        let (points, count) = (self.shape[axis] as u128, u128::from(all.count().max(1)));
        let width = if axis == 0 { self.columns } else { 1 };
        let mut at = u128::from((own.start - all.start) / all.step);
        let step = u128::from((own.step / all.step).max(1));
        let end = at + u128::from(own.count()) * step;
        let mut runs = Vec::new();
        while at < end {
            // Position i belongs to point i * points / count.
            let point = at * points / count;
            let next = ((point + 1) * count).div_ceil(points).clamp(at + 1, end);
            let positions = (next - at).div_ceil(step);
            let index = |n: u128| usize::try_from(n).unwrap_or(0);
            runs.push(PointRun { point: index(point) * width, positions: index(positions) });
            at += positions * step;
        }
        runs
    }

    /// The points; each that no sample belongs to is that of the nearest one along each axis.
    fn points(self, nearest: &[Vec<usize>]) -> Vec<Point> {
        let point = |at: usize| match self.means.mean(at) {
            Some(mean) => Point::Value(mean),
            None if self.means.is_odd(at) => Point::NotFinite,
            None => Point::Null,
        };
        let one = [0];
        let (rows, columns): (&[usize], &[usize]) = match nearest {
            [] => (&one, &one),
            [columns] => (&one, columns),
            [rows, columns, ..] => (rows, columns),
        };
        let width = columns.len();
        let at = |row: &usize, column: &usize| point(row * width + column);
        rows.iter()
            .flat_map(|row| columns.iter().map(move |column| (row, column)))
            .map(|(r, c)| at(r, c))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use tesseral_core::Slice;

    use super::*;

    /// Runs agree with the definition for each position, and there are at most as many as points.
    #[test]
    fn runs_follow_the_definition() {
        for (count, most) in [(1_u64, 5_usize), (7, 7), (10, 3), (1000, 7), (4099, 160)] {
            let whole =
                Selection::new([Slice { start: 3, end: 3 + 2 * count, step: 2 }], &[u64::MAX]).unwrap();
            let points = most.min(usize::try_from(count).unwrap());
            let bins = OverviewPoints::new(&[points], false).unwrap();
            for (from, to) in [(0, count), (count / 3, count), (count / 2, count / 2 + 1)] {
                let slice = Slice { start: 3 + 2 * from, end: 3 + 2 * (to - 1) + 1, step: 2 };
                let part = Selection::new([slice], &[u64::MAX]).unwrap();
                let runs = bins.runs(&whole, &part, 0, 0);
                assert!(runs.len() <= points);
                let found: Vec<usize> =
                    runs.iter().flat_map(|run| std::iter::repeat_n(run.point, run.positions)).collect();
                let wanted: Vec<usize> = (from..to)
                    .map(|i| usize::try_from(i).unwrap() * points / usize::try_from(count).unwrap())
                    .collect();
                assert_eq!(found, wanted, "{count} {most} {from}");
            }
        }
    }
}
