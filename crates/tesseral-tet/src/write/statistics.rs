//! Statistics of the chunks of a file being written.

use tesseral_core::{ChunkStats, Result, Scalar, alloc};

use super::array::ArrayState;
use crate::wire::statistics_region::{self, DatasetStatistics, RowStatistics};

/// Longest exact sum of a chunk in bytes.
const MAX_SUM: usize = 1 << 12;

/// Statistics of chunks, row by row; sums in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct WrittenStatistics {
    /// First row of each array; `None` without statistics.
    first_row: Vec<Option<u64>>,
    rows: Vec<Option<WrittenRow>>,
    sums: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct WrittenRow {
    nulls: u64,
    nans: u64,
    range: Option<([u8; 8], [u8; 8])>,
    /// Offset and length of the sum.
    sum: (usize, usize),
}

impl WrittenStatistics {
    /// Allocates a row for every chunk of the arrays that have statistics.
    pub(super) fn prepare(&mut self, arrays: &[ArrayState]) -> Result<()> {
        let mut rows = 0_u64;
        for array in arrays {
            let held = array.has_statistics();
            self.first_row.push(held.then_some(rows));
            rows = rows.saturating_add(if held { array.grid.total() } else { 0 });
        }
        let count = usize::try_from(rows).unwrap_or(usize::MAX);
        alloc::resize("statistics of chunks", &mut self.rows, count, None)
    }

    /// Whether no chunk has statistics.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.iter().all(Option::is_none)
    }

    /// Adds the statistics of a chunk, if they are exact and count the same values as missing as those of other chunks.
    pub(super) fn set(
        &mut self,
        array: usize,
        linear: u64,
        state: &ArrayState,
        stats: &ChunkStats,
    ) -> Result<()> {
        let first = self.first_row.get(array).copied().flatten();
        let row = first.and_then(|first| usize::try_from(first.checked_add(linear)?).ok());
        let same = stats.missing.len() == state.missing.len()
            && stats.missing.iter().zip(&state.missing).all(|(a, b)| tesseral_core::missing::same(a, b));
        let Some(row) = row.filter(|_| same) else { return Ok(()) };
        let (Some(&nulls), Some(&nans)) = (stats.nulls.exact(), stats.nans.exact()) else { return Ok(()) };
        let range = match (stats.min.exact(), stats.max.exact()) {
            (Some(min), Some(max)) => Some((padded(min), padded(max))),
            (None, None) if stats.cells == nulls.saturating_add(nans) => None,
            _ => return Ok(()),
        };
        let sum = stats.partial_sum.as_deref().unwrap_or_default();
        if sum.is_empty() || sum.len() > MAX_SUM {
            return Ok(());
        }
        alloc::reserve("sums of chunks", &mut self.sums, sum.len())?;
        let place = (self.sums.len(), sum.len());
        self.sums.extend_from_slice(sum);
        if let Some(slot) = self.rows.get_mut(row) {
            *slot = Some(WrittenRow { nulls, nans, range, sum: place });
        }
        Ok(())
    }

    /// Appends the region, with sums in the order of rows.
    pub(super) fn write(&self, catalog: u64, arrays: &[ArrayState], out: &mut Vec<u8>) {
        let dataset = |(first_row, array): (&Option<u64>, &ArrayState)| DatasetStatistics {
            first_row: *first_row,
            missing: if first_row.is_some() {
                array.missing.iter().map(padded).collect()
            } else {
                Vec::new()
            },
        };
        let datasets: Vec<_> = self.first_row.iter().zip(arrays).map(dataset).collect();
        let row = |row: &Option<WrittenRow>| {
            let WrittenRow { nulls, nans, range, sum: (start, len) } = (*row)?;
            Some(RowStatistics { nulls, nans, range, sum: self.sums.get(start..start + len)? })
        };
        statistics_region::write(catalog, &datasets, self.rows.iter().map(row), out);
    }
}

/// Little-endian bytes of a value of at most eight bytes.
fn padded(value: &Scalar) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(value.bytes()).for_each(|(to, from)| *to = *from);
    bytes
}
