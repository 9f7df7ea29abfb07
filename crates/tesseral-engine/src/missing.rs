//! Which cells are missing: the one place that decides, for reads, folds, conditions and statistics.
//!
//! ```text
//! valid = stored validity ∧ written ∧ not a missing value of the field (declared ones, NaT)
//! ```
//!
//! Folds apply the last part inside their kernels, from the same list of values ([`Field::missing_values`]).

use std::borrow::Cow;
use std::cmp::Ordering;

use tesseral_core::dtype::Class;
use tesseral_core::{CellLen, ChunkStats, Element, Field, Scalar, Stat, dispatch_element};

use crate::decode::columns::Cells;

/// The validity of fixed-size cells: one byte per cell, 0 for a missing one; `None` where no cell can be missing.
///
/// `stored` is the validity that the format keeps, `written` has 0 for cells that no chunk covers.
pub fn validity<'a>(
    field: &Field,
    cells: &[u8],
    stored: Option<&'a [u8]>,
    written: Option<&[u8]>,
) -> Option<Cow<'a, [u8]>> {
    let mut out = stored.map(Cow::Borrowed);
    let size = field.cell_size().unwrap_or(0);
    let count = cells.len().checked_div(size).unwrap_or(0);
    if let Some(written) = written {
        let valid = out.get_or_insert_with(|| Cow::Owned(vec![1; count])).to_mut();
        valid.iter_mut().zip(written).for_each(|(valid, written)| *valid &= u8::from(*written != 0));
    }
    let values = field.missing_values();
    if values.is_empty() || size == 0 {
        return out;
    }
    let valid = out.get_or_insert_with(|| Cow::Owned(vec![1; count])).to_mut();
    if field.cell == CellLen::One && field.dtype.class() != Class::Text {
        let done =
            dispatch_element!(field.dtype, T => { mark::<T>(cells, &values, valid); true }, else => false);
        if done {
            return out;
        }
    }
    for (valid, cell) in valid.iter_mut().zip(cells.chunks_exact(size)) {
        *valid &= u8::from(!field.is_missing(&values, cell));
    }
    out
}

/// Clears the validity of cells that equal one of some values.
fn mark<T: Element>(cells: &[u8], values: &[Scalar], valid: &mut [u8]) {
    let cell = |bytes: &[u8]| bytemuck::pod_read_unaligned::<T>(bytes);
    for value in values.iter().filter_map(Scalar::get::<T>) {
        let pairs = valid.iter_mut().zip(cells.chunks_exact(size_of::<T>()));
        // One loop each, so that both vectorize.
        if value.is_nan() {
            pairs.for_each(|(valid, bytes)| *valid &= u8::from(!cell(bytes).is_nan()));
        } else {
            pairs.for_each(|(valid, bytes)| *valid &= u8::from(cell(bytes) != value));
        }
    }
}

/// The validity of a column of cells, fixed-size or variable-length, as by [`validity`].
pub fn column_validity<'a>(field: &Field, cells: &'a Cells, written: Option<&[u8]>) -> Option<Cow<'a, [u8]>> {
    if cells.size() > 0 {
        return validity(field, cells.data(), cells.validity(), written);
    }
    let mut out = cells.validity().map(Cow::Borrowed);
    let all = || Cow::Owned(vec![1; cells.len()]);
    if let Some(written) = written {
        let valid = out.get_or_insert_with(all).to_mut();
        valid.iter_mut().zip(written).for_each(|(valid, written)| *valid &= u8::from(*written != 0));
    }
    let values = field.missing_values();
    if !values.is_empty() {
        let valid = out.get_or_insert_with(all).to_mut();
        for (i, valid) in valid.iter_mut().enumerate() {
            *valid &= u8::from(!field.is_missing(&values, cells.get(i)));
        }
    }
    out
}

/// Statistics of a format under the definition of missing values of a field. A statistic stays exact where the values that
/// the format did not leave out cannot be among the cells, or cannot change it.
pub fn statistics(field: &Field, mut stats: ChunkStats) -> ChunkStats {
    let values = field.missing_values();
    let counted =
        |value: &Scalar| stats.missing.iter().any(|known| tesseral_core::missing::same(known, value));
    let others: Vec<Scalar> = values.iter().filter(|value| !counted(value)).cloned().collect();
    for value in &others {
        exclude(field, value, &mut stats);
    }
    stats.missing = values;
    stats
}

/// Weakens statistics by cells that may equal one more missing value.
fn exclude(field: &Field, value: &Scalar, stats: &mut ChunkStats) {
    if stats.nulls.exact() == Some(&stats.cells) {
        return;
    }
    if value.as_f64().is_some_and(f64::is_nan) && field.dtype.class() == Class::Float {
        // NaNs are counted separately: they become nulls. Minimum, maximum and sum do not cover them.
        stats.nulls = match (&stats.nulls, &stats.nans) {
            (Stat::Exact(nulls), Stat::Exact(nans)) => Stat::Exact(nulls.saturating_add(*nans)),
            (nulls, nans) => match (nulls.bound(), nans.bound()) {
                (Some(nulls), Some(nans)) => Stat::Bound(nulls.saturating_add(*nans).min(stats.cells)),
                _ => Stat::Absent,
            },
        };
        stats.nans = Stat::Exact(0);
        return;
    }
    let order = |bound: &Stat<Scalar>| bound.bound().and_then(|bound| value.compare(bound));
    let (low, high) = (order(&stats.min), order(&stats.max));
    if low == Some(Ordering::Less) || high == Some(Ordering::Greater) {
        return;
    }
    // Any number of the cells may be missing. An end of the range that differs from the value is a cell that stays.
    stats.nulls = Stat::Bound(stats.cells);
    stats.sum = Stat::Absent;
    stats.partial_sum = None;
    let stays = |order: Option<Ordering>| order.is_some_and(Ordering::is_ne);
    if !stays(low) {
        stats.min = std::mem::take(&mut stats.min).weaken();
    }
    if !stays(high) {
        stats.max = std::mem::take(&mut stats.max).weaken();
    }
}

#[cfg(test)]
mod tests {
    use tesseral_core::{DType, Sum};

    use super::*;

    fn field(values: &[i32]) -> Field {
        let missing = values.iter().map(|v| Scalar::from_element(*v)).collect();
        Field { missing, ..Field::new("x", DType::Int32) }
    }

    #[test]
    fn cells_are_missing_by_any_of_the_ways() {
        let cells: Vec<u8> = [1_i32, -9, 3, -8, 5].iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert_eq!(validity(&field(&[]), &cells, None, None), None);
        let all = validity(&field(&[-9, -8]), &cells, Some(&[1, 1, 0, 1, 1]), Some(&[0, 1, 1, 1, 1]));
        assert_eq!(all.as_deref(), Some(&[0, 0, 0, 0, 1][..]));
        let nan = Field { missing: vec![Scalar::from_element(f32::NAN)], ..Field::new("x", DType::Float32) };
        let cells: Vec<u8> = [1.0_f32, -f32::NAN].iter().flat_map(|v| v.to_ne_bytes()).collect();
        assert_eq!(validity(&nan, &cells, None, None).as_deref(), Some(&[1, 0][..]));
    }

    /// For any cells of a chunk, exact statistics are those of the cells that are not missing.
    #[test]
    fn exact_statistics_are_those_of_the_cells_that_stay() {
        for seed in 0..3_i32.pow(6) {
            let cells: Vec<i32> = (0..4).map(|i| seed / 3_i32.pow(i) % 3).collect();
            let (first, second) = (seed / 81 % 3, seed / 243 % 3);
            let scalar = |v: Option<&i32>| v.map_or(Stat::Absent, |v| Stat::Exact(Scalar::from_element(*v)));
            let stats_of = |cells: &[i32], nulls: u64| ChunkStats {
                cells: 4,
                nulls: Stat::Exact(nulls),
                nans: Stat::Exact(0),
                min: scalar(cells.iter().min()),
                max: scalar(cells.iter().max()),
                sum: Stat::Exact(Sum::Int(cells.iter().map(|v| i128::from(*v)).sum())),
                partial_sum: None,
                missing: Vec::new(),
            };
            let found = statistics(&field(&[first, second]), stats_of(&cells, 0));
            let stay: Vec<i32> = cells.iter().copied().filter(|v| *v != first && *v != second).collect();
            let want = stats_of(&stay, 4 - stay.len() as u64);
            if let Some(nulls) = found.nulls.exact() {
                assert_eq!(Some(nulls), want.nulls.exact(), "{cells:?} {first} {second}");
            }
            assert!(found.nulls.bound() >= want.nulls.bound());
            for (found, want) in [(&found.min, &want.min), (&found.max, &want.max)] {
                if found.exact().is_some() && !stay.is_empty() {
                    assert_eq!(found, want, "{cells:?} {first} {second}");
                }
            }
            if let Some(sum) = found.sum.exact() {
                assert_eq!(Some(sum), want.sum.exact(), "{cells:?} {first} {second}");
            }
        }
    }
}
