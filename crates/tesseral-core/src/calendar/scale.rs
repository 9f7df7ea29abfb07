//! Counts of time as text: those of cells, and those that are computed from cells.

use crate::calendar::TimeUnits;
use crate::{CellLen, DType, Field, Scalar, TimeUnit, time};

/// How the numbers of a field count time since a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeScale {
    /// Counts of a unit since 1970.
    Dates(TimeUnit),
    /// Numbers with CF units and a calendar.
    Since(TimeUnits),
}

/// A count of time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TimeCount {
    /// A whole number.
    Int(i128),
    /// An exact quotient, as the mean of whole numbers is.
    Quotient(i128, u64),
    /// Any number.
    Float(f64),
}

impl TimeCount {
    /// The count that a cell holds; `None` for NaT and for cells that are not numbers.
    pub fn of_cell(cell: &Scalar) -> Option<Self> {
        match cell.as_i128() {
            Some(count)
                if matches!(cell.dtype(), DType::DateTime(_)) && count == i128::from(time::NOT_A_TIME) =>
            {
                None
            }
            Some(count) => Some(Self::Int(count)),
            None => cell.as_f64().map(Self::Float),
        }
    }

    /// The count in parts of the unit, rounded to the nearest one; `None` if it is not finite or too large.
    pub(super) fn parts(self, per_unit: i128) -> Option<i128> {
        match self {
            Self::Int(count) => count.checked_mul(per_unit),
            Self::Quotient(_, 0) => None,
            Self::Quotient(sum, count) => Some(rounded(sum.checked_mul(per_unit)?, i128::from(count))),
            Self::Float(count) if !count.is_finite() || count.abs() > 1e19 => None,
            // The integer part is exact; the remainder is below one unit.
            Self::Float(count) => {
                let rest = (count.fract() * per_unit as f64).round() as i128;
                (count.trunc() as i128).checked_mul(per_unit)?.checked_add(rest)
            }
        }
    }
}

/// A quotient with a positive divisor, rounded to the nearest integer, of two at the same distance to the even one.
fn rounded(sum: i128, count: i128) -> i128 {
    let (whole, rest) = (sum.div_euclid(count), sum.rem_euclid(count));
    whole + i128::from(rest > count - rest || (rest == count - rest && whole % 2 != 0))
}

/// Units of at least a microsecond that have a length, from the longest on, with their microseconds.
const LENGTHS: [(TimeUnit, i128); 7] = [
    (TimeUnit::Week, 604_800_000_000),
    (TimeUnit::Day, 86_400_000_000),
    (TimeUnit::Hour, 3_600_000_000),
    (TimeUnit::Minute, 60_000_000),
    (TimeUnit::Second, 1_000_000),
    (TimeUnit::Millisecond, 1_000),
    (TimeUnit::Microsecond, 1),
];

/// Microseconds of a unit; `None` for years and months, which have no length, and for shorter units.
fn micros(unit: TimeUnit) -> Option<i128> {
    LENGTHS.iter().find(|(known, _)| *known == unit).map(|(_, micros)| *micros)
}

impl TimeScale {
    /// The scale of a field; `None` if its cells count no time since a date.
    pub fn of_field(field: &Field) -> Option<Self> {
        match (field.time, field.dtype) {
            _ if field.cell != CellLen::One || field.enumeration.is_some() => None,
            (Some(units), _) => Some(Self::Since(units)),
            (None, DType::DateTime(unit)) => Some(Self::Dates(unit)),
            (None, _) => None,
        }
    }

    /// The scale of values as they are shown: stored numbers that count time are numbers, dates are dates.
    pub fn of_values(field: &Field, stored: bool) -> Option<Self> {
        Self::of_field(field).filter(|scale| !stored || matches!(scale, Self::Dates(_)))
    }

    /// The unit that results are rounded to: microseconds, or the own one if that is shorter or has no length.
    pub fn resolution(unit: TimeUnit) -> TimeUnit {
        if micros(unit).is_some() { TimeUnit::Microsecond } else { unit }
    }

    /// A count of dates in their [resolution](Self::resolution); `None` if it is not finite or too large.
    pub fn resolved(unit: TimeUnit, count: TimeCount) -> Option<i64> {
        let parts = count.parts(micros(unit).unwrap_or(1))?;
        i64::try_from(parts).ok().filter(|count| *count != time::NOT_A_TIME)
    }

    /// A time as text, to the microsecond; dates of shorter units in their own.
    pub fn time(&self, count: TimeCount) -> Option<String> {
        let unit = match self {
            Self::Since(units) => return units.of_count(count).map(|time| time.to_string()),
            Self::Dates(unit) => *unit,
        };
        let (count, unit) = match micros(unit) {
            None => (Self::resolved(unit, count)?, unit),
            Some(own) => {
                let parts = count.parts(own)?;
                // The longest unit, from the own one on, that loses nothing.
                let mut exact = LENGTHS.iter().filter(|(_, micros)| *micros <= own && parts % micros == 0);
                let (unit, micros) = exact.next()?;
                (i64::try_from(parts / micros).ok()?, *unit)
            }
        };
        let mut out = String::new();
        // Writing to a `String` is infallible.
        let _ = time::write(&mut out, count, unit);
        Some(out)
    }

    /// A length of time as text: a number of units.
    pub fn duration(&self, count: f64) -> String {
        let (count, name) = match self {
            Self::Dates(unit) => (count, unit_name(*unit)),
            Self::Since(units) => units.length(count),
        };
        format!("{} {name}", crate::Value::Float(count))
    }
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Year => "years",
        TimeUnit::Month => "months",
        TimeUnit::Week => "weeks",
        TimeUnit::Day => "days",
        TimeUnit::Hour => "hours",
        TimeUnit::Minute => "minutes",
        TimeUnit::Second => "seconds",
        TimeUnit::Millisecond => "milliseconds",
        TimeUnit::Microsecond => "microseconds",
        TimeUnit::Nanosecond => "nanoseconds",
        TimeUnit::Picosecond => "picoseconds",
        TimeUnit::Femtosecond => "femtoseconds",
        TimeUnit::Attosecond => "attoseconds",
    }
}

impl TimeUnits {
    /// The time of a count; `None` for NaN and for what no calendar holds.
    pub fn of_count(&self, count: TimeCount) -> Option<super::CivilTime> {
        self.civil(count.parts(self.unit)?.checked_add(self.reference)?)
    }

    /// A number of its units as a number of units with a name.
    fn length(&self, count: f64) -> (f64, &'static str) {
        match LENGTHS.iter().find(|(_, micros)| *micros == self.unit) {
            Some((unit, _)) => (count, unit_name(*unit)),
            // Months and years of calendars in which they have a length.
            None => (count * (self.unit / LENGTHS[1].1) as f64, "days"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_of_dates_are_exact() {
        let text = |unit, sum, n| TimeScale::Dates(unit).time(TimeCount::Quotient(sum, n)).unwrap();
        assert_eq!(text(TimeUnit::Day, 2, 2), "1970-01-02");
        assert_eq!(text(TimeUnit::Day, 1, 2), "1970-01-01T12");
        assert_eq!(text(TimeUnit::Day, -1, 2), "1969-12-31T12");
        assert_eq!(text(TimeUnit::Second, 1, 3), "1970-01-01T00:00:00.333333");
        assert_eq!(text(TimeUnit::Month, 5, 2), "1970-03");
        // Beyond the integers that a double holds.
        let nanoseconds = 1_600_000_000_000_000_001_i128;
        assert_eq!(text(TimeUnit::Nanosecond, nanoseconds * 3, 3), "2020-09-13T12:26:40.000000001");
        assert_eq!(TimeScale::Dates(TimeUnit::Day).time(TimeCount::Float(f64::NAN)), None);
        assert_eq!(TimeScale::Dates(TimeUnit::Day).time(TimeCount::Float(1.25)).unwrap(), "1970-01-02T06");
    }

    #[test]
    fn quotients_round_to_even() {
        let found: Vec<i128> = (-7..8).map(|sum| rounded(sum, 2)).collect();
        assert_eq!(found, [-4, -3, -2, -2, -2, -1, 0, 0, 0, 1, 2, 2, 2, 3, 4]);
        assert_eq!((rounded(-2, 3), rounded(4, 3), rounded(5, 3)), (-1, 1, 2));
    }

    #[test]
    fn counts_of_a_calendar_are_times_of_it() {
        let units =
            |units, calendar| TimeScale::Since(TimeUnits::parse(units, Some(calendar)).unwrap().unwrap());
        let days = units("days since 2000-01-01", "360_day");
        assert_eq!(days.time(TimeCount::Int(59)).unwrap(), "2000-02-30");
        assert_eq!(days.time(TimeCount::Quotient(119, 2)).unwrap(), "2000-02-30T12:00");
        assert_eq!(days.time(TimeCount::Float(59.5)).unwrap(), "2000-02-30T12:00");
        assert_eq!(days.duration(1.5), "1.5 days");
        assert_eq!(units("months since 2000-01-01", "360_day").duration(1.5), "45.0 days");
        assert_eq!(units("hours since 2000-01-01", "standard").duration(0.25), "0.25 hours");
        assert_eq!(TimeScale::Dates(TimeUnit::Nanosecond).duration(3.0), "3.0 nanoseconds");
    }
}
