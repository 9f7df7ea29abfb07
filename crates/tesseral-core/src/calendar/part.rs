//! Parts of times that cells are grouped by: the month, the season, the hour.

use std::fmt;
use std::str::FromStr;

use super::{Calendar, CivilTime, MICROS_PER_SECOND};
use crate::{Error, Result};

/// A part of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TimePart {
    /// The year.
    Year,
    /// The month, from 1.
    Month,
    /// The three months that begin with December, March, June and September.
    Season,
    /// The day of the month, from 1.
    Day,
    /// The day of the year, from 1.
    DayOfYear,
    /// The hour of the day, from 0.
    Hour,
    /// The day of the calendar: year, month and day.
    Date,
}

/// Months of a year.
const MONTHS: i64 = 12;
/// Most days of a month.
const DAYS: i64 = 31;

const NAMES: [(&str, TimePart); 7] = [
    ("year", TimePart::Year),
    ("month", TimePart::Month),
    ("season", TimePart::Season),
    ("day", TimePart::Day),
    ("dayofyear", TimePart::DayOfYear),
    ("hour", TimePart::Hour),
    ("date", TimePart::Date),
];

/// Seasons by the initials of their months, in the order of the year from December on.
const SEASONS: [&str; 4] = ["DJF", "MAM", "JJA", "SON"];

impl TimePart {
    /// The number of the part of a time. Numbers order as the parts do; seasons are 0 to 3 from December on.
    pub fn index(self, time: &CivilTime, calendar: Calendar) -> i64 {
        match self {
            Self::Year => time.year,
            Self::Month => i64::from(time.month),
            Self::Season => i64::from(time.month % 12 / 3),
            Self::Day => i64::from(time.day),
            Self::DayOfYear => {
                let day = |month: u8, day: u8| calendar.day_number(time.year, month, i64::from(day));
                day(time.month, time.day) - day(1, 1) + 1
            }
            Self::Hour => (i128::from(time.micros) / (3_600 * MICROS_PER_SECOND)) as i64,
            Self::Date => {
                let month = time.year.saturating_mul(MONTHS).saturating_add(i64::from(time.month) - 1);
                month.saturating_mul(DAYS).saturating_add(i64::from(time.day) - 1)
            }
        }
    }

    /// A number of the part as text.
    pub fn text(self, number: i64) -> String {
        let season = || usize::try_from(number).ok().and_then(|i| SEASONS.get(i));
        match self {
            Self::Season => season().map_or_else(|| number.to_string(), |name| (*name).to_owned()),
            Self::Date => {
                let month = number.div_euclid(DAYS);
                // Remainders below 12 and 31.
                let one_based = |n: i64, count: i64| u8::try_from(n.rem_euclid(count) + 1).unwrap_or(u8::MAX);
                let (month, day, year) =
                    (one_based(month, MONTHS), one_based(number, DAYS), month.div_euclid(MONTHS));
                CivilTime { year, month, day, micros: 0 }.to_string()
            }
            _ => number.to_string(),
        }
    }

    /// Whether the numbers of the part are texts.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Season | Self::Date)
    }
}

impl FromStr for TimePart {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let found = NAMES.iter().find(|(known, _)| *known == name).map(|(_, part)| *part);
        found.ok_or_else(|| {
            Error::not_found(
                "part of a time",
                name,
                NAMES.iter().map(|(name, _)| (*name).to_owned()).collect(),
            )
        })
    }
}

impl fmt::Display for TimePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, part)| part == self).map_or("", |(name, _)| *name);
        f.write_str(name)
    }
}
