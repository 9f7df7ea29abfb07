//! CF times: numbers of a unit since a date, in one of several calendars.
//!
//! [`TimeUnits`] turns such numbers into [`CivilTime`] for display and comparison, and texts such as `2005-02` into the range of
//! numbers that they name. Numbers stay what is stored. Times are exact to the microsecond, as in cftime.
//!
//! | calendar | years |
//! |---|---|
//! | `standard`, `gregorian` | Julian up to 1582-10-04, Gregorian from 1582-10-15 on |
//! | `proleptic_gregorian` | Gregorian always |
//! | `julian` | every fourth year is a leap year |
//! | `noleap`, `365_day` | no leap years |
//! | `all_leap`, `366_day` | leap years only |
//! | `360_day` | twelve months of 30 days |

mod part;
mod scale;

use std::fmt;
use std::str::FromStr;

use std::ops::Range;

use crate::dtype::Class;
use crate::missing::attribute;
use crate::packing::packing;
use crate::{ArraySchema, CellLen, Error, Field, Result, Scalar, Value, time};

pub use part::TimePart;
pub use scale::{TimeCount, TimeScale};

/// A calendar of the CF conventions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Calendar {
    /// Julian, then Gregorian.
    #[default]
    Standard,
    /// Gregorian at all times.
    ProlepticGregorian,
    /// Julian at all times.
    Julian,
    /// 365 days in every year.
    NoLeap,
    /// 366 days in every year.
    AllLeap,
    /// 360 days in every year.
    Days360,
}

impl FromStr for Calendar {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Ok(match name.trim().to_ascii_lowercase().as_str() {
            "standard" | "gregorian" | "" => Self::Standard,
            "proleptic_gregorian" => Self::ProlepticGregorian,
            "julian" => Self::Julian,
            "noleap" | "365_day" => Self::NoLeap,
            "all_leap" | "366_day" => Self::AllLeap,
            "360_day" => Self::Days360,
            _ => return Err(Error::unsupported(format!("the calendar {name:?}"))),
        })
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Standard => "standard",
            Self::ProlepticGregorian => "proleptic_gregorian",
            Self::Julian => "julian",
            Self::NoLeap => "noleap",
            Self::AllLeap => "all_leap",
            Self::Days360 => "360_day",
        })
    }
}

/// Days of the months of a year without a leap day.
const MONTHS: [i64; 12] = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
/// The day number of 1582-10-15, the first Gregorian day of the standard calendar.
const REFORM: i64 = 2_299_161;
/// The Julian day number of 1970-01-01.
const UNIX: i64 = 2_440_588;
/// Years beyond this are rejected, so that no day number overflows.
const MAX_YEARS: i64 = 1_000_000;

impl Calendar {
    fn is_leap(self, year: i64) -> bool {
        let julian = year.rem_euclid(4) == 0;
        let gregorian = julian && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
        match self {
            Self::Standard => {
                if year <= 1582 {
                    julian
                } else {
                    gregorian
                }
            }
            Self::ProlepticGregorian => gregorian,
            Self::Julian => julian,
            Self::NoLeap | Self::Days360 => false,
            Self::AllLeap => true,
        }
    }

    /// The number of days of a month.
    pub fn days_in_month(self, year: i64, month: u8) -> i64 {
        match self {
            Self::Days360 => 30,
            _ => {
                MONTHS.get(usize::from(month).wrapping_sub(1)).copied().unwrap_or(0)
                    + i64::from(month == 2 && self.is_leap(year))
            }
        }
    }

    /// A number for each day, one more than that of the day before.
    fn day_number(self, year: i64, month: u8, day: i64) -> i64 {
        let before = |leap: bool| -> i64 {
            let whole: i64 = MONTHS.iter().take(usize::from(month) - 1).sum();
            whole + i64::from(leap && month > 2)
        };
        match self {
            Self::Standard | Self::ProlepticGregorian | Self::Julian => {
                let gregorian = match self {
                    Self::Standard => (year, month, day) >= (1582, 10, 15),
                    Self::ProlepticGregorian => true,
                    _ => false,
                };
                julian_day(year, month, day, gregorian)
            }
            Self::NoLeap => year * 365 + before(false) + day - 1,
            Self::AllLeap => year * 366 + before(true) + day - 1,
            Self::Days360 => year * 360 + (i64::from(month) - 1) * 30 + day - 1,
        }
    }

    /// Year, month and day of a day number.
    fn civil(self, number: i64) -> (i64, u8, u8) {
        let of_year = |year: i64, mut day: i64| {
            let mut month = 1_u8;
            while month < 12 && day >= self.days_in_month(year, month) {
                day -= self.days_in_month(year, month);
                month += 1;
            }
            (year, month, u8::try_from(day + 1).unwrap_or(u8::MAX))
        };
        match self {
            Self::Standard => civil_of_julian_day(number, number >= REFORM),
            Self::ProlepticGregorian => civil_of_julian_day(number, true),
            Self::Julian => civil_of_julian_day(number, false),
            Self::NoLeap => of_year(number.div_euclid(365), number.rem_euclid(365)),
            Self::AllLeap => of_year(number.div_euclid(366), number.rem_euclid(366)),
            Self::Days360 => of_year(number.div_euclid(360), number.rem_euclid(360)),
        }
    }

    /// Whether the calendar has a date.
    fn has_date(self, year: i64, month: i64, day: i64) -> bool {
        let Ok(month) = u8::try_from(month) else { return false };
        year.abs() <= MAX_YEARS
            && (1..=12).contains(&month)
            && (1..=self.days_in_month(year, month)).contains(&day)
            && !(self == Self::Standard && (year, month) == (1582, 10) && (5..15).contains(&day))
    }
}

/// The Julian day number of a date. Years begin in March here, so that leap days come last.
fn julian_day(year: i64, month: u8, day: i64, gregorian: bool) -> i64 {
    let month = i64::from(month);
    let shifted = year - i64::from(month <= 2);
    let days = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let leap = shifted.div_euclid(4);
    if gregorian {
        365 * shifted + leap - shifted.div_euclid(100) + shifted.div_euclid(400) + days + 1_721_120
    } else {
        365 * shifted + leap + days + 1_721_118
    }
}

fn civil_of_julian_day(number: i64, gregorian: bool) -> (i64, u8, u8) {
    let (year, day_of_year) = if gregorian {
        let days = number - 1_721_120;
        let era = days.div_euclid(146_097);
        let of_era = days.rem_euclid(146_097);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        (era * 400 + year, of_era - (365 * year + year / 4 - year / 100))
    } else {
        let days = number - 1_721_118;
        let cycle = days.div_euclid(1_461);
        let of_cycle = days.rem_euclid(1_461);
        let year = (of_cycle - of_cycle / 1_460) / 365;
        (cycle * 4 + year, of_cycle - 365 * year)
    };
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let narrow = |n: i64| u8::try_from(n).unwrap_or(u8::MAX);
    (year + i64::from(month <= 2), narrow(month), narrow(day))
}

const MICROS_PER_SECOND: i128 = 1_000_000;
const MICROS_PER_DAY: i128 = 86_400 * MICROS_PER_SECOND;

/// A date and time of day in some calendar. They order as they follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CivilTime {
    /// Year.
    pub year: i64,
    /// Month, from 1.
    pub month: u8,
    /// Day of the month, from 1.
    pub day: u8,
    /// Microsecond of the day.
    pub micros: u64,
}

impl fmt::Display for CivilTime {
    /// ISO 8601 with as much of the time of day as is not zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.year < 0 {
            write!(f, "-{:04}-{:02}-{:02}", -self.year, self.month, self.day)?;
        } else {
            write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)?;
        }
        let (second, fraction) = (self.micros / 1_000_000, self.micros % 1_000_000);
        if self.micros == 0 {
            return Ok(());
        }
        write!(f, "T{:02}:{:02}", second / 3_600, second / 60 % 60)?;
        if second % 60 != 0 || fraction != 0 {
            write!(f, ":{:02}", second % 60)?;
        }
        if fraction != 0 { write!(f, ".{fraction:06}") } else { Ok(()) }
    }
}

/// Numbers that count time: a unit since a reference, in a calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeUnits {
    calendar: Calendar,
    /// Microseconds of the unit.
    unit: i128,
    /// The reference in microseconds of the calendar's day numbers, in UTC.
    reference: i128,
}

impl TimeUnits {
    /// Reads `units` such as `days since 1850-01-01` or `hours since 2000-01-01T00:00:00+01:00`. `None` when the text counts no
    /// time since a date.
    ///
    /// # Errors
    /// `Unsupported` for a calendar, a unit or a time zone that is not known; `InvalidRequest` for a date that the calendar does
    /// not have.
    pub fn parse(units: &str, calendar: Option<&str>) -> Result<Option<Self>> {
        let mut words = units.trim().splitn(3, char::is_whitespace);
        let (Some(unit), Some(since), Some(reference)) = (words.next(), words.next(), words.next()) else {
            return Ok(None);
        };
        if !since.eq_ignore_ascii_case("since") {
            return Ok(None);
        }
        let calendar: Calendar = calendar.unwrap_or_default().parse()?;
        let unit = unit_of(unit, calendar)?;
        let (start, precision) = calendar.instant(reference.trim())?;
        if precision < Precision::Day {
            return Err(Error::invalid(format!("invalid reference date: {reference:?}")));
        }
        Ok(Some(Self { calendar, unit, reference: start }))
    }

    /// The time that the numbers of a field count, by its attributes `units` and `calendar`. `None` for fields that count no
    /// time, for packed numbers, and for units and calendars that are not known.
    pub fn of_field(schema: &ArraySchema, field: &Field) -> Option<Self> {
        let numbers = matches!(field.dtype.class(), Class::Int | Class::UInt | Class::Float);
        if !numbers || field.cell != CellLen::One || field.enumeration.is_some() {
            return None;
        }
        let text = |key: &str| match attribute(schema, &field.name, key) {
            Some((_, Value::Text(text))) => Some(text.as_str()),
            _ => None,
        };
        let units = Self::parse(text("units")?, text("calendar")).ok().flatten()?;
        packing(schema, field).is_none().then_some(units)
    }

    /// The time of a number of any dtype; `None` for NaN and for what no calendar holds.
    pub fn at(&self, number: &Scalar) -> Option<CivilTime> {
        self.civil(self.instant(number)?)
    }

    /// The microsecond of a number, from the calendar's first day on. Instants of one calendar compare as their times do.
    pub fn instant(&self, number: &Scalar) -> Option<i128> {
        match number.as_i128() {
            Some(count) => count.checked_mul(self.unit)?.checked_add(self.reference),
            None => self.instant_of_float(number.as_f64()?),
        }
    }

    /// The instants of the time that a text names: `2005`, `2005-02`, `2005-02-28T12`.
    ///
    /// # Errors
    /// `InvalidRequest` when the text is not a date of the calendar; `Unsupported` for unknown time zones.
    pub fn span(&self, text: &str) -> Result<Range<i128>> {
        let (start, precision) = self.calendar.instant(text)?;
        Ok(start..self.calendar.next(start, precision))
    }

    /// Microseconds since 1970 of the proleptic Gregorian calendar, as NumPy counts them; `None` for numbers without a time, and for
    /// times of other calendars, which have other dates.
    pub fn unix_micros(&self, number: &Scalar) -> Option<i64> {
        let gregorian = match self.calendar {
            Calendar::ProlepticGregorian => true,
            Calendar::Standard => self.instant(number)? >= i128::from(REFORM) * MICROS_PER_DAY,
            _ => false,
        };
        let since = self.instant(number).filter(|_| gregorian)? - i128::from(UNIX) * MICROS_PER_DAY;
        i64::try_from(since).ok()
    }

    /// The calendar.
    pub fn calendar(&self) -> Calendar {
        self.calendar
    }

    /// The units as CF writes them, such as `hours since 1850-01-01`; `None` for units that are no fixed number of these names.
    pub fn text(&self) -> Option<String> {
        const NAMES: [(&str, i128); 6] = [
            ("days", MICROS_PER_DAY),
            ("hours", 3_600 * MICROS_PER_SECOND),
            ("minutes", 60 * MICROS_PER_SECOND),
            ("seconds", MICROS_PER_SECOND),
            ("milliseconds", 1_000),
            ("microseconds", 1),
        ];
        let (name, _) = NAMES.iter().find(|(_, micros)| *micros == self.unit)?;
        Some(format!("{name} since {}", self.civil(self.reference)?))
    }

    fn instant_of_float(&self, count: f64) -> Option<i128> {
        TimeCount::Float(count).parts(self.unit)?.checked_add(self.reference)
    }

    fn civil(&self, micros: i128) -> Option<CivilTime> {
        let number = i64::try_from(micros.div_euclid(MICROS_PER_DAY)).ok()?;
        if number.abs() > MAX_YEARS * 366 {
            return None;
        }
        let (year, month, day) = self.calendar.civil(number);
        let micros = u64::try_from(micros.rem_euclid(MICROS_PER_DAY)).ok()?;
        Some(CivilTime { year, month, day, micros })
    }

    /// The times that a text names, `2005`, `2005-02`, `2005-02-28T12`, as a half-open range of numbers of this unit.
    ///
    /// # Errors
    /// `InvalidRequest` when the text is not a date of the calendar; `Unsupported` for unknown time zones.
    pub fn range(&self, text: &str) -> Result<(f64, f64)> {
        let span = self.span(text)?;
        let number = |micros: i128| {
            let (whole, rest) =
                ((micros - self.reference) / self.unit, (micros - self.reference) % self.unit);
            whole as f64 + rest as f64 / self.unit as f64
        };
        Ok((number(span.start), number(span.end)))
    }
}

/// Microseconds of a unit. Months and years have a length in the calendar of 360 days only.
fn unit_of(name: &str, calendar: Calendar) -> Result<i128> {
    let name = name.to_ascii_lowercase();
    let second = MICROS_PER_SECOND;
    Ok(match name.as_str() {
        "weeks" | "week" => 7 * MICROS_PER_DAY,
        "days" | "day" | "d" => MICROS_PER_DAY,
        "hours" | "hour" | "hr" | "hrs" | "h" => 3_600 * second,
        "minutes" | "minute" | "min" | "mins" => 60 * second,
        "seconds" | "second" | "sec" | "secs" | "s" => second,
        "milliseconds" | "millisecond" | "millisec" | "millisecs" | "msec" | "msecs" | "ms" => 1_000,
        "microseconds" | "microsecond" | "microsec" | "microsecs" | "us" => 1,
        "months" | "month" if calendar == Calendar::Days360 => 30 * MICROS_PER_DAY,
        "years" | "year" if calendar == Calendar::Days360 => 360 * MICROS_PER_DAY,
        "common_years" | "common_year" if calendar == Calendar::NoLeap => 365 * MICROS_PER_DAY,
        _ => {
            return Err(Error::unsupported(format!("{name:?} as a unit of time in the calendar {calendar}")));
        }
    })
}

/// Precision of a date given as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Precision {
    Year,
    Month,
    Day,
    Hour,
    Minute,
    Second,
    Micro,
}

impl Calendar {
    /// The first microsecond that a text names, in UTC, and how long it is.
    fn instant(self, text: &str) -> Result<(i128, Precision)> {
        let invalid = || Error::invalid(format!("invalid date in the calendar {self}: {text:?}"));
        let (date, clock) = split_clock(text.trim());
        let (sign, date) = date.strip_prefix('-').map_or((1, date), |rest| (-1, rest));
        let mut parts = date.split('-');
        let mut number = |default: Option<i64>, digits: usize| match parts.next() {
            Some(part)
                if !part.is_empty() && part.len() <= digits && part.bytes().all(|b| b.is_ascii_digit()) =>
            {
                part.parse::<i64>().map(|n| (n, true)).map_err(|_| invalid())
            }
            None => default.map(|n| (n, false)).ok_or_else(invalid),
            Some(_) => Err(invalid()),
        };
        let (year, _) = number(None, 7)?;
        let (month, has_month) = number(Some(1), 2)?;
        let (day, has_day) = number(Some(1), 2)?;
        let year = sign * year;
        if parts.next().is_some() || !self.has_date(year, month, day) {
            return Err(invalid());
        }
        let mut precision = match (has_month, has_day) {
            (_, true) => Precision::Day,
            (true, false) => Precision::Month,
            _ => Precision::Year,
        };
        let month = u8::try_from(month).map_err(|_| invalid())?;
        let mut micros = i128::from(self.day_number(year, month, day)) * MICROS_PER_DAY;
        if let Some(clock) = clock {
            if !has_day {
                return Err(invalid());
            }
            let lower = clock.to_ascii_uppercase();
            let (clock, ahead) = time::split_zone(&lower)
                .ok_or_else(|| Error::unsupported(format!("the time zone of {text:?}")))?;
            if clock.contains(|c: char| c.is_alphabetic()) {
                return Err(Error::unsupported(format!("the time zone of {text:?}")));
            }
            if let Some((within, clock_precision)) = clock_of(clock).ok_or_else(invalid)? {
                micros += within;
                precision = clock_precision;
            }
            micros -= i128::from(ahead) * MICROS_PER_SECOND;
        }
        Ok((micros, precision))
    }

    /// The first microsecond after what begins at `start`.
    fn next(self, start: i128, precision: Precision) -> i128 {
        let day = i64::try_from(start.div_euclid(MICROS_PER_DAY)).unwrap_or(0);
        let (year, month, _) = self.civil(day);
        let first = |year: i64, month: u8| i128::from(self.day_number(year, month, 1)) * MICROS_PER_DAY;
        match precision {
            Precision::Year => first(year + 1, 1),
            Precision::Month if month == 12 => first(year + 1, 1),
            Precision::Month => first(year, month + 1),
            Precision::Day => start + MICROS_PER_DAY,
            Precision::Hour => start + 3_600 * MICROS_PER_SECOND,
            Precision::Minute => start + 60 * MICROS_PER_SECOND,
            Precision::Second => start + MICROS_PER_SECOND,
            Precision::Micro => start + 1,
        }
    }
}

/// A date and the time of day after it, if there is one.
fn split_clock(text: &str) -> (&str, Option<&str>) {
    match text.split_once(['T', 't', ' ']) {
        Some((date, clock)) => (date, Some(clock.trim())),
        None => (text, None),
    }
}

/// Microseconds of the day; `Some(None)` for no text, `None` for an invalid one.
fn clock_of(clock: &str) -> Option<Option<(i128, Precision)>> {
    if clock.is_empty() {
        return Some(None);
    }
    let (whole, fraction) = clock.split_once('.').map_or((clock, None), |(whole, f)| (whole, Some(f)));
    let mut parts = whole.split(':');
    let mut number = |most: i128| -> Option<Option<i128>> {
        let Some(part) = parts.next() else { return Some(None) };
        let valid = (1..=2).contains(&part.len()) && part.bytes().all(|b| b.is_ascii_digit());
        let value: i128 = if valid { part.parse().ok()? } else { return None };
        (value <= most).then_some(Some(value))
    };
    let (hour, minute, second) = (number(23)??, number(59)?, number(59)?);
    if parts.next().is_some() {
        return None;
    }
    let mut micros = (hour * 3_600 + minute.unwrap_or(0) * 60 + second.unwrap_or(0)) * MICROS_PER_SECOND;
    let mut precision = match (minute, second) {
        (_, Some(_)) => Precision::Second,
        (Some(_), None) => Precision::Minute,
        _ => Precision::Hour,
    };
    if let Some(fraction) = fraction {
        let digits = !fraction.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
        if second.is_none() || !digits {
            return None;
        }
        let padded: String = fraction.chars().chain(std::iter::repeat('0')).take(6).collect();
        let value: i128 = padded.parse().ok()?;
        micros += value;
        // Reference dates often end in `:00.0`.
        if value != 0 {
            precision = Precision::Micro;
        }
    }
    Some(Some((micros, precision)))
}

#[cfg(test)]
mod tests;
