//! Means of runs of neighboring cells: the points of a plot.

use tesseral_core::{DType, Error, Result, alloc, dispatch_element};

use crate::reduce::exact::fixed::Fixed;
use crate::reduce::exact::slots::SlotSums;
use crate::reduce::kernel::block::{Cell, WorkType};

/// A run of adjacent positions along a dimension that belong to one point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointRun {
    /// Contribution of the positions to the index of their point.
    pub point: usize,
    /// Their number.
    pub positions: usize,
}

/// Exact sums and counts of the finite cells of points.
#[derive(Clone, Debug)]
pub struct PointMeans {
    sums: SlotSums,
    counts: Vec<u64>,
    /// Whether some cells are NaN or infinite.
    odd: Vec<bool>,
    /// The lowest and the highest finite cell of each point; empty if they are not needed.
    ends: Vec<(f64, f64)>,
    not_finite: u64,
    nulls: u64,
}

impl PointMeans {
    /// Points without cells.
    ///
    /// # Errors
    /// `Limit` when there is no memory for them.
    pub fn new(points: usize) -> Result<Self> {
        const WHAT: &str = "the points of a plot";
        Ok(Self {
            sums: SlotSums::new(points),
            counts: alloc::zeroed(WHAT, points)?,
            odd: alloc::filled(WHAT, false, points)?,
            ends: Vec::new(),
            not_finite: 0,
            nulls: 0,
        })
    }

    /// Also computes the lowest and the highest cell of each point, before any are added.
    ///
    /// # Errors
    /// `Limit` when there is no memory for them.
    pub fn with_ends(mut self) -> Result<Self> {
        self.ends =
            alloc::filled("the points of a plot", (f64::INFINITY, f64::NEG_INFINITY), self.counts.len())?;
        Ok(self)
    }

    /// Adds the cells of a box, row-major: each row of `rows` has those of all runs of `columns`. A cell is missing where its byte of
    /// `validity` is 0.
    ///
    /// # Errors
    /// `Unsupported` for dtypes without arithmetic; `InvalidRequest` if the runs exceed the cells or the points.
    pub fn add(
        &mut self,
        dtype: DType,
        cells: &[u8],
        validity: Option<&[u8]>,
        rows: &[PointRun],
        columns: &[PointRun],
    ) -> Result<()> {
        dispatch_element!(dtype, T => self.add_typed::<T>(cells, validity, rows, columns),
            else => Err(Error::unsupported(format!("means of {dtype}"))))
    }

    fn add_typed<T: Cell>(
        &mut self,
        cells: &[u8],
        validity: Option<&[u8]>,
        rows: &[PointRun],
        columns: &[PointRun],
    ) -> Result<()> {
        let outside = || Error::invalid("runs of points exceed the cells");
        let mut values: Vec<T::WorkType> = Vec::new();
        let mut rest = (cells, validity);
        let all_rows = rows.iter().flat_map(|run| std::iter::repeat_n(run.point, run.positions));
        for (row, run) in all_rows.flat_map(|row| columns.iter().map(move |run| (row, run))) {
            let bytes = run.positions.checked_mul(size_of::<T>()).ok_or_else(outside)?;
            let (own, more) = rest.0.split_at_checked(bytes).ok_or_else(outside)?;
            let valid = match rest.1 {
                Some(validity) => Some(validity.split_at_checked(run.positions).ok_or_else(outside)?),
                None => None,
            };
            rest = (more, valid.map(|(_, more)| more));
            let point = row + run.point;
            self.add_run::<T>(point, own, valid.map(|(own, _)| own), &mut values).ok_or_else(outside)?;
        }
        Ok(())
    }

    /// Adds a run to a point; `None` without such a point.
    fn add_run<T: Cell>(
        &mut self,
        point: usize,
        cells: &[u8],
        validity: Option<&[u8]>,
        values: &mut Vec<T::WorkType>,
    ) -> Option<()> {
        let (count, odd) = (self.counts.get_mut(point)?, self.odd.get_mut(point)?);
        values.clear();
        for (i, cell) in cells.chunks_exact(size_of::<T>()).enumerate() {
            let value = bytemuck::pod_read_unaligned::<T>(cell).widen();
            if validity.is_some_and(|valid| valid.get(i) == Some(&0)) {
                self.nulls += 1;
            } else if value.nan() || value.infinite() {
                self.not_finite += 1;
                *odd = true;
            } else {
                values.push(value);
            }
        }
        *count += values.len() as u64;
        for block in <[T::WorkType]>::chunks(values, T::WorkType::BLOCK) {
            let mut sum = Fixed::default();
            T::WorkType::add(block, &mut sum, None);
            self.sums.add(point, &sum);
            if let Some((low, high)) = self.ends.get_mut(point) {
                let (least, most) = T::WorkType::range(block);
                *low = low.min(T::from_key(least).to_f64());
                *high = high.max(T::from_key(most).to_f64());
            }
        }
        Some(())
    }

    /// The correctly rounded mean of the finite cells of a point; `None` without any.
    pub fn mean(&self, point: usize) -> Option<f64> {
        let count = self.counts.get(point).copied().filter(|count| *count > 0)?;
        Some(self.sums.mean(point, count))
    }

    /// The lowest and the highest finite cell of a point; `None` without any, or without [`with_ends`](Self::with_ends).
    pub fn ends(&self, point: usize) -> Option<(f64, f64)> {
        self.ends.get(point).copied().filter(|(low, high)| low <= high)
    }

    /// Whether a point has NaN or infinite cells.
    pub fn is_odd(&self, point: usize) -> bool {
        self.odd.get(point).copied().unwrap_or(false)
    }

    /// Cells that are NaN or infinite, of all points.
    pub fn not_finite(&self) -> u64 {
        self.not_finite
    }

    /// Missing cells of all points.
    pub fn nulls(&self) -> u64 {
        self.nulls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_those_of_the_finite_cells() {
        let cells = [3.0_f32, -1.5, f32::NAN, f32::INFINITY, 7.0, 9.0, -0.0, 2.0];
        let validity = [1, 1, 1, 1, 1, 0, 1, 1];
        let run = |point, positions| PointRun { point, positions };
        let columns = [run(0, 2), run(1, 2), run(2, 3), run(0, 1)];
        let mut points = PointMeans::new(3).unwrap().with_ends().unwrap();
        points
            .add(DType::Float32, bytemuck::cast_slice(&cells), Some(&validity), &[run(0, 1)], &columns)
            .unwrap();
        assert_eq!([0, 1, 2, 3].map(|i| points.ends(i)), [Some((-1.5, 3.0)), None, Some((0.0, 7.0)), None]);
        let mut integers = PointMeans::new(1).unwrap().with_ends().unwrap();
        let cells = [u64::MAX, 1, 5];
        integers.add(DType::UInt64, bytemuck::cast_slice(&cells), None, &[run(0, 1)], &[run(0, 3)]).unwrap();
        assert_eq!(integers.ends(0), Some((1.0, u64::MAX as f64)));
        assert_eq!(PointMeans::new(1).unwrap().ends(0), None);
    }
}
