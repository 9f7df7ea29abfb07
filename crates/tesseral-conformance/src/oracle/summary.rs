//! Counts, extremes and moments, computed one cell at a time.

use std::cmp::Ordering;

use tesseral_core::dtype::Class;
use tesseral_core::{CellLen, ChunkStats, DType, Field, Result, Scalar, Stat, Sum};

use super::sparse::Row;

/// A value from its native-endian bytes.
pub(super) fn scalar(dtype: DType, native: &[u8]) -> Result<Scalar> {
    if cfg!(target_endian = "big") {
        let mut bytes = native.to_vec();
        bytes.chunks_exact_mut(dtype.word()).for_each(<[u8]>::reverse);
        return Scalar::from_le_bytes(dtype, &bytes);
    }
    Scalar::from_le_bytes(dtype, native)
}

/// Whether a cell is null: not valid, or equal to one of some values, bitwise or numerically; NaN equals any NaN.
pub fn is_null(field: &Field, missing: &[Scalar], cell: Option<&[u8]>) -> bool {
    let Some(bytes) = cell else { return true };
    let size = match field.dtype.size() {
        Some(size) if field.dtype.class() != Class::Text => size,
        _ => return missing.iter().any(|value| value.bytes() == bytes),
    };
    let nan = |v: &Scalar| v.as_f64().is_some_and(f64::is_nan);
    !bytes.is_empty()
        && bytes.chunks(size).all(|element| {
            let Ok(found) = scalar(field.dtype, element) else { return false };
            missing.iter().any(|value| {
                value.bytes() == found.bytes()
                    || value.compare(&found) == Some(Ordering::Equal)
                    || (nan(value) && nan(&found))
            })
        })
}

/// The summary of a field over some cells. Extremes, sum and moments cover the cells that are neither null nor NaN.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    /// Number of cells.
    pub cells: u64,
    /// Number of null cells: by validity, or equal to a missing value.
    pub nulls: u64,
    /// Number of cells that are NaN and not null.
    pub nans: u64,
    /// Number of cells that are +∞ or −∞ and not null.
    pub infs: u64,
    /// Number of cells that are neither null nor NaN.
    pub count: u64,
    /// Minimum, for fields of one number or text per cell.
    pub min: Option<Scalar>,
    /// Maximum.
    pub max: Option<Scalar>,
    /// Sum of numbers, bools and durations; 0 without values; `None` for dtypes without a sum.
    pub sum: Option<Sum>,
    /// Mean; `None` without values.
    pub mean: Option<f64>,
    /// Population standard deviation.
    pub std: Option<f64>,
    /// Sum of magnitudes, the scale of the tolerance for `sum`.
    pub magnitude: f64,
}

/// A compensated float sum.
#[derive(Clone, Copy, Debug, Default)]
struct CompensatedSum {
    sum: f64,
    lost: f64,
}

impl CompensatedSum {
    fn add(&mut self, value: f64) {
        let sum = self.sum + value;
        if sum.is_finite() {
            let (large, small) =
                if self.sum.abs() >= value.abs() { (self.sum, value) } else { (value, self.sum) };
            self.lost += (large - sum) + small;
        }
        self.sum = sum;
    }

    fn total(self) -> f64 {
        if self.sum.is_finite() { self.sum + self.lost } else { self.sum }
    }
}

impl Summary {
    /// The summary of native-endian cells, `None` where null, under the definition of missing values.
    pub fn from_values<'a>(field: &Field, cells: impl Iterator<Item = Option<&'a [u8]>>) -> Self {
        Self::without(field, &field.missing_values(), cells)
    }

    /// The summary of native-endian cells, where those equal to one of some values are null too.
    pub fn without<'a>(
        field: &Field,
        missing: &[Scalar],
        cells: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Self {
        let (mut total, mut nulls, mut nans, mut infs) = (0, 0, 0, 0);
        let mut values: Vec<Scalar> = Vec::new();
        let list = field.cell == CellLen::Var && field.dtype.class() != Class::Text;
        let zero = vec![0; field.dtype.size().unwrap_or(1)];
        for cell in cells {
            total += 1;
            // Of a list of numbers, only that it is there counts.
            let number = |bytes| if list { scalar(field.dtype, &zero) } else { scalar(field.dtype, bytes) };
            let value = cell.filter(|_| !is_null(field, missing, cell)).and_then(|b| number(b).ok());
            let Some(value) = value else {
                nulls += 1;
                continue;
            };
            // Cells with several numbers are only counted.
            let float = (field.cell == CellLen::One && field.dtype.class() == Class::Float)
                .then(|| value.as_f64())
                .flatten();
            nans += u64::from(float.is_some_and(f64::is_nan));
            infs += u64::from(float.is_some_and(f64::is_infinite));
            if !float.is_some_and(f64::is_nan) {
                values.push(value);
            }
        }
        let ordered = match field.dtype.class() {
            Class::Complex | Class::Bits => false,
            Class::Text => true,
            _ => field.cell == CellLen::One,
        };
        let extreme = |keep: Ordering| {
            let mut best: Option<&Scalar> = None;
            for value in values.iter().filter(|_| ordered) {
                if best.is_none_or(|best| value.compare(best) == Some(keep)) {
                    best = Some(value);
                }
            }
            best.cloned()
        };
        let count = values.len() as u64;
        let adds = field.cell == CellLen::One
            && match field.dtype {
                DType::DateTime(_) => false,
                dtype => !matches!(dtype.class(), Class::Complex | Class::Bits | Class::Text),
            };
        let mut magnitude = 0.0;
        let sum = adds.then(|| {
            if field.dtype.class() == Class::Float {
                let mut sum = CompensatedSum::default();
                values.iter().filter_map(Scalar::as_f64).for_each(|v| {
                    sum.add(v);
                    magnitude += v.abs();
                });
                Sum::Float(sum.total())
            } else {
                values.iter().filter_map(Scalar::as_f64).for_each(|v| magnitude += v.abs());
                Sum::Int(values.iter().filter_map(Scalar::as_i128).sum())
            }
        });
        let mean = sum.filter(|_| count > 0).map(|sum| sum.to_f64() / count as f64);
        let std = mean.map(|mean| {
            let mut squares = CompensatedSum::default();
            values.iter().filter_map(Scalar::as_f64).for_each(|v| squares.add((v - mean) * (v - mean)));
            (squares.total() / count as f64).sqrt()
        });
        let (min, max) = (extreme(Ordering::Less), extreme(Ordering::Greater));
        Self { cells: total, nulls, nans, infs, count, min, max, sum, mean, std, magnitude }
    }

    /// The summary of a field of rows, by field index.
    pub fn from_rows(field: &Field, rows: &[Row], field_index: usize) -> Self {
        Self::from_values(field, rows.iter().map(|row| row.fields[field_index].as_deref()))
    }
}

/// Exact statistics of the cells of a chunk that leave out some values.
pub fn chunk_stats<'a>(
    field: &Field,
    missing: &[Scalar],
    cells: impl Iterator<Item = Option<&'a [u8]>>,
) -> ChunkStats {
    let summary = Summary::without(field, missing, cells);
    let exact = |stat: Option<Scalar>| stat.map_or(Stat::Absent, Stat::Exact);
    ChunkStats {
        cells: summary.cells,
        nulls: Stat::Exact(summary.nulls),
        nans: Stat::Exact(summary.nans),
        min: exact(summary.min),
        max: exact(summary.max),
        sum: summary.sum.filter(|_| summary.count > 0).map_or(Stat::Absent, Stat::Exact),
        partial_sum: None,
        missing: missing.to_vec(),
    }
}
