//! Equal-width histogram bins.

use tesseral_core::Element;

use super::state::Reducer;

/// Integers up to this magnitude are exact floats.
const EXACT: f64 = (1_u64 << 53) as f64;

/// Equal bins from `low` to `high`, the last closed; values outside are counted in the first and last bin.
pub(super) struct Bins {
    low: f64,
    high: f64,
    count: usize,
}

impl Bins {
    pub(super) fn new(low: f64, high: f64, count: usize) -> Self {
        Self { low, high, count: count.max(1) }
    }

    fn edge(&self, i: usize) -> f64 {
        if i == self.count {
            return self.high;
        }
        let (width, fraction) = (self.high - self.low, i as f64 / self.count as f64);
        if width.is_finite() {
            self.low + width * fraction
        } else {
            self.low * (1.0 - fraction) + self.high * fraction
        }
    }

    /// The bin index of a value; `None` for NaN.
    pub(super) fn index<T: Element>(&self, cell: T) -> Option<usize> {
        let value = cell.to_f64();
        if value.is_nan() {
            return None;
        }
        if self.high <= self.low {
            return Some(0);
        }
        // An integer that is not exact in `f64` must not be rounded across an edge.
        let rounded = !T::IS_FLOAT && value.abs() > EXACT;
        let reaches = |edge: f64| if rounded { cell.to_i128() >= edge.ceil() as i128 } else { value >= edge };
        // Halves do not overflow. The quotient may be off by one where it rounds across an edge, so it is corrected by the edges.
        let fraction = (value / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0);
        let mut bin = ((fraction * self.count as f64) as usize).min(self.count - 1);
        while bin > 0 && !reaches(self.edge(bin)) {
            bin -= 1;
        }
        while bin + 1 < self.count && reaches(self.edge(bin + 1)) {
            bin += 1;
        }
        Some(bin)
    }

    /// The edges, one more than bins.
    fn edges(&self) -> Vec<f64> {
        (0..=self.count).map(|i| self.edge(i)).collect()
    }
}

impl Reducer {
    /// Edges of the bins of a histogram with one range.
    pub fn edges(&self) -> Option<Vec<f64>> {
        match self {
            Self::Histogram { bins, ranges } => {
                let &(low, high) = ranges.first()?;
                Some(Bins::new(low.to_f64(), high.to_f64(), *bins as usize).edges())
            }
            _ => None,
        }
    }
}
