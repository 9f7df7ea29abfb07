//! Conversion between zone maps and chunk statistics.
//!
//! Zone maps count as null every cell that is NaN or equals the first declared missing value bit for bit. In the engine, null means
//! "equals a missing value", and NaN is a value that minimum and maximum exclude. Both agree on minimum and maximum, and mostly on
//! counts; where they can differ, a count becomes a bound or is omitted. Further declared values are handled by the engine:
//! [`ChunkStats::missing`] names the one that zone maps exclude.

use std::cmp::Ordering;

use tesseral_core::dtype::Class;
use tesseral_core::{ChunkStats, DType, Element, Scalar, Stat, dispatch_element};

use crate::array::parse_fill;
use crate::wire::statistics_region::RowStatistics;
use crate::wire::zone_map::{Zone, ZoneRange};

/// Declared missing value in the attributes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FillRule {
    /// None declared.
    None,
    /// A value of the array's dtype.
    Value(Scalar),
    /// A text that is not a value of the dtype, such as `-9999.0` for integers. Writers interpret it differently.
    Unreadable,
}

impl FillRule {
    pub(crate) fn new(dtype: DType, text: Option<&str>) -> Self {
        match text {
            None => Self::None,
            Some(text) => parse_fill(dtype, text).map_or(Self::Unreadable, Self::Value),
        }
    }

    pub(crate) fn value(&self) -> Option<&Scalar> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Converts the zone map of a chunk with the given number of cells. A contradictory zone map gives no statistics.
    pub(crate) fn stats(&self, dtype: DType, cells: u64, zone: &Zone) -> ChunkStats {
        let unknown = ChunkStats::unknown(cells);
        let n = zone.null_count;
        if zone.element_count != cells || n > cells || (n == cells) != zone.range.is_none() {
            return unknown;
        }
        let float = dtype.class() == Class::Float;
        let range = match zone.range.map(|range| scalars(dtype, &range)) {
            None => None,
            Some(Some(range)) => Some(range),
            Some(None) => return unknown,
        };
        // Whether a cell can be null for the engine and a value for the zone map: only −0.0 with a fill of 0.0.
        let zero_fill = float && self.value().and_then(Scalar::as_f64) == Some(0.0);
        let (nulls, nans) = match self {
            // Without nulls both definitions agree.
            _ if n == 0 && !zero_fill => (Stat::Exact(0), Stat::Exact(0)),
            Self::None if float => (Stat::Exact(0), Stat::Exact(n)),
            Self::Value(_) if !float => (Stat::Exact(n), Stat::Exact(0)),
            // Every NaN is counted, independent of its bits.
            Self::Value(fill) if fill.as_f64().is_some_and(f64::is_nan) => (Stat::Exact(n), Stat::Exact(0)),
            Self::Value(_) if zero_fill => {
                (Stat::Absent, if n == 0 { Stat::Exact(0) } else { Stat::Bound(n) })
            }
            // Fill and NaN are counted together.
            Self::Value(_) => (Stat::Bound(n), Stat::Bound(n)),
            // Some cells are excluded from the range, and it is unknown which.
            Self::None | Self::Unreadable => return unknown,
        };
        let exactness = if zero_fill { Stat::Bound } else { Stat::Exact };
        let (min, max) =
            range.map_or((Stat::Absent, Stat::Absent), |(min, max)| (exactness(min), exactness(max)));
        ChunkStats {
            cells,
            nulls,
            nans,
            min,
            max,
            sum: Stat::Absent,
            partial_sum: None,
            missing: self.value().cloned().into_iter().collect(),
        }
    }

    /// Computes the zone of cells in native byte order.
    pub(crate) fn zone_of(&self, dtype: DType, values: &[u8]) -> Zone {
        dispatch_element!(dtype, T => fold::<T>(values, self.value()), else => Zone::default())
    }
}

/// Statistics of a chunk from its row of the statistics region. A contradictory row gives none.
pub(crate) fn of_row(
    dtype: DType,
    cells: u64,
    row: &RowStatistics<'_>,
    missing: &[[u8; 8]],
) -> Option<ChunkStats> {
    let size = dtype.size().filter(|size| *size <= 8)?;
    let value = |bytes: &[u8; 8]| Scalar::from_le_bytes(dtype, &bytes[..size]).ok();
    let valid = cells.checked_sub(row.nulls)?.checked_sub(row.nans)?;
    let range = match &row.range {
        Some((min, max)) => Some((value(min)?, value(max)?)),
        None => None,
    };
    let ordered = range.as_ref().is_none_or(|(min, max)| min.compare(max).is_some_and(Ordering::is_le));
    if !ordered || range.is_some() != (valid > 0) {
        return None;
    }
    let (min, max) = range.map_or((Stat::Absent, Stat::Absent), |(a, b)| (Stat::Exact(a), Stat::Exact(b)));
    Some(ChunkStats {
        cells,
        nulls: Stat::Exact(row.nulls),
        nans: Stat::Exact(row.nans),
        min,
        max,
        sum: Stat::Absent,
        partial_sum: (!row.sum.is_empty()).then(|| row.sum.into()),
        missing: missing.iter().map(value).collect::<Option<_>>()?,
    })
}

/// Compares two values, neither of them NaN.
fn scalars(dtype: DType, range: &ZoneRange) -> Option<(Scalar, Scalar)> {
    if range.min().len() != dtype.size()? {
        return None;
    }
    let min = Scalar::from_le_bytes(dtype, range.min()).ok()?;
    let max = Scalar::from_le_bytes(dtype, range.max()).ok()?;
    matches!(min.compare(&max), Some(Ordering::Less | Ordering::Equal)).then_some((min, max))
}

fn before<T: Element>(a: T, b: T) -> bool {
    // Widening is exact, so the order of doubles is the order of the narrower floats, −0.0 before 0.0.
    if T::IS_FLOAT { a.to_f64().total_cmp(&b.to_f64()).is_lt() } else { a < b }
}

fn fold<T: Element>(values: &[u8], fill: Option<&Scalar>) -> Zone {
    let fill = fill.and_then(Scalar::get::<T>);
    let mut zone = Zone::default();
    let mut range: Option<(T, T)> = None;
    for bytes in values.chunks_exact(size_of::<T>()) {
        let value: T = bytemuck::pod_read_unaligned(bytes);
        zone.element_count += 1;
        let is_fill = fill.is_some_and(|fill| bytemuck::bytes_of(&fill) == bytes);
        if value.is_nan() || is_fill {
            zone.null_count += 1;
            continue;
        }
        range = Some(match range {
            None => (value, value),
            Some((min, max)) => {
                (if before(value, min) { value } else { min }, if before(max, value) { value } else { max })
            }
        });
    }
    let little = |value: T| {
        let mut bytes = [0; 8];
        let bytes = &mut bytes[..size_of::<T>()];
        bytes.copy_from_slice(bytemuck::bytes_of(&value));
        crate::decode::to_native(bytes, size_of::<T>());
        smallvec::SmallVec::<[u8; 8]>::from_slice(bytes)
    };
    zone.range = range.and_then(|(min, max)| ZoneRange::new(&little(min), &little(max)));
    zone
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zone<T: Element>(values: &[T], fill: Option<&str>) -> (FillRule, Zone, ChunkStats) {
        let rule = FillRule::new(T::DTYPE, fill);
        let zone = rule.zone_of(T::DTYPE, bytemuck::cast_slice(values));
        let stats = rule.stats(T::DTYPE, values.len() as u64, &zone);
        (rule, zone, stats)
    }

    #[test]
    fn counts_are_exact_only_if_both_definitions_agree() {
        let exact = Stat::Exact::<u64>;
        let (_, _, s) = zone(&[3_i32, -1, 7], None);
        assert_eq!(
            (s.nulls, s.nans, s.min, s.max),
            (
                exact(0),
                exact(0),
                Stat::Exact(Scalar::from_element(-1_i32)),
                Stat::Exact(Scalar::from_element(7_i32)),
            )
        );
        let (_, _, s) = zone(&[3_i32, -9999, 7], Some("-9999"));
        assert_eq!((s.nulls, s.min), (exact(1), Stat::Exact(Scalar::from_element(3_i32))));
        let (_, _, s) = zone(&[1.0, f64::NAN, -2.0], None);
        assert_eq!((s.nulls, s.nans, s.min), (exact(0), exact(1), Stat::Exact(Scalar::from_element(-2.0))));
        let (_, _, s) = zone(&[1.0, f64::NAN, -2.0, 9.0], Some("9"));
        assert_eq!(
            (s.nulls, s.nans, s.max),
            (Stat::Bound(2), Stat::Bound(2), Stat::Exact(Scalar::from_element(1.0)),)
        );
        let (_, _, s) = zone(&[f32::NAN, f32::NAN], Some("NaN"));
        assert_eq!((s.nulls, s.nans, s.min, s.max), (exact(2), exact(0), Stat::Absent, Stat::Absent));
        let (_, _, s) = zone(&[-0.0, 5.0], Some("0"));
        assert_eq!(
            (s.nulls, s.nans, s.min),
            (Stat::Absent, exact(0), Stat::Bound(Scalar::from_element(-0.0)))
        );
    }

    #[test]
    fn an_unreadable_fill_trusts_only_chunks_without_nulls() {
        let (rule, mut zone, stats) = zone(&[3_i32, 4], Some("-9999.0"));
        assert_eq!(rule, FillRule::Unreadable);
        assert_eq!((stats.nulls, stats.max), (Stat::Exact(0), Stat::Exact(Scalar::from_element(4_i32))));
        zone.null_count = 1;
        assert_eq!(rule.stats(DType::Int32, 2, &zone), ChunkStats::unknown(2));
    }

    #[test]
    fn contradictory_zone_maps_are_ignored() {
        let (rule, zone, _) = zone(&[3_i32, 4], None);
        let unknown = ChunkStats::unknown(2);
        for (change, cells) in [
            (Zone { element_count: 3, ..zone }, 2),
            (Zone { null_count: 3, ..zone }, 2),
            (Zone { null_count: 1, ..zone }, 2),
            (Zone { range: None, ..zone }, 2),
            (Zone { range: ZoneRange::new(&[4, 0, 0, 0], &[3, 0, 0, 0]), ..zone }, 2),
            (Zone { range: ZoneRange::new(&[4, 0], &[5, 0]), ..zone }, 2),
        ] {
            assert_eq!(rule.stats(DType::Int32, cells, &change), unknown, "{change:?}");
        }
        let nan = f32::NAN.to_le_bytes();
        let zone = Zone { element_count: 2, null_count: 0, range: ZoneRange::new(&nan, &nan) };
        assert_eq!(FillRule::None.stats(DType::Float32, 2, &zone), unknown);
    }

    #[test]
    fn zeros_keep_their_sign() {
        let (_, zone, _) = zone(&[0.0_f32, -0.0, 0.0], None);
        let range = zone.range.unwrap();
        assert_eq!((range.min(), range.max()), (&(-0.0_f32).to_le_bytes()[..], &0.0_f32.to_le_bytes()[..]));
    }
}
