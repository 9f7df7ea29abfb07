//! Dates as in NumPy: a signed count of units since 1970, proleptic Gregorian calendar, no time zone.

use std::fmt;

use crate::TimeUnit;
use crate::calendar::CivilTime;

/// The count that NumPy uses for NaT ("not a time").
pub const NOT_A_TIME: i64 = i64::MIN;

const SECONDS_PER_DAY: i128 = 86_400;

/// Days since 1970-01-01 of a civil date. The year is shifted to begin in March, so that leap days come last.
fn days_from_civil(year: i64, month: i64, day: i64) -> i128 {
    let year = i128::from(year) - i128::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = i128::from((153 * ((month + 9) % 12) + 2) / 5 + day - 1);
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

fn civil_from_days(days: i128) -> (i128, i128, i128) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (era * 400 + year_of_era + i128::from(month <= 2), month, day)
}

/// Units per second and fractional digits, for units finer than a second.
fn fraction(unit: TimeUnit) -> (i128, usize) {
    match unit {
        TimeUnit::Millisecond => (1_000, 3),
        TimeUnit::Microsecond => (1_000_000, 6),
        TimeUnit::Nanosecond => (1_000_000_000, 9),
        TimeUnit::Picosecond => (1_000_000_000_000, 12),
        TimeUnit::Femtosecond => (1_000_000_000_000_000, 15),
        TimeUnit::Attosecond => (1_000_000_000_000_000_000, 18),
        _ => (1, 0),
    }
}

/// Years of dates that parts are computed of: enough for every label, and far from overflow.
const MAX_YEARS: i128 = 1 << 40;

/// The date and time of day of a count; `None` for NaT and for years beyond 2^40.
pub fn civil(count: i64, unit: TimeUnit) -> Option<CivilTime> {
    if count == NOT_A_TIME {
        return None;
    }
    let count = i128::from(count);
    let (days, micros) = match unit {
        TimeUnit::Year | TimeUnit::Month => {
            let months = if unit == TimeUnit::Year { count * 12 } else { count };
            let year = 1970 + months.div_euclid(12);
            let year = i64::try_from(year).ok().filter(|_| year.abs() <= MAX_YEARS)?;
            return Some(CivilTime { year, month: months.rem_euclid(12) as u8 + 1, day: 1, micros: 0 });
        }
        TimeUnit::Week => (count * 7, 0),
        TimeUnit::Day => (count, 0),
        _ => {
            let (per_second, seconds) = match unit {
                TimeUnit::Hour => (1, 3_600),
                TimeUnit::Minute => (1, 60),
                _ => (fraction(unit).0, 1),
            };
            let day = SECONDS_PER_DAY * per_second / seconds;
            (count.div_euclid(day), count.rem_euclid(day) * seconds * 1_000_000 / per_second)
        }
    };
    let (year, month, day) = civil_from_days(days);
    let (year, micros) = (i64::try_from(year).ok()?, u64::try_from(micros).ok()?);
    if i128::from(year.unsigned_abs()) > MAX_YEARS {
        return None;
    }
    Some(CivilTime { year, month: month as u8, day: day as u8, micros })
}

/// Writes a count in NumPy's ISO 8601 form, with the precision of the unit.
///
/// # Errors
/// Only errors of `out`.
pub fn write(out: &mut dyn fmt::Write, count: i64, unit: TimeUnit) -> fmt::Result {
    if count == NOT_A_TIME {
        return out.write_str("NaT");
    }
    let count = i128::from(count);
    let seconds = match unit {
        TimeUnit::Year => return write_year(out, 1970 + count),
        TimeUnit::Month => {
            write_year(out, 1970 + count.div_euclid(12))?;
            return write!(out, "-{:02}", count.rem_euclid(12) + 1);
        }
        TimeUnit::Week => count * 7 * SECONDS_PER_DAY,
        TimeUnit::Day => count * SECONDS_PER_DAY,
        TimeUnit::Hour => count * 3_600,
        TimeUnit::Minute => count * 60,
        _ => count.div_euclid(fraction(unit).0),
    };
    let (year, month, day) = civil_from_days(seconds.div_euclid(SECONDS_PER_DAY));
    let second = seconds.rem_euclid(SECONDS_PER_DAY);
    write_year(out, year)?;
    write!(out, "-{month:02}-{day:02}")?;
    if matches!(unit, TimeUnit::Week | TimeUnit::Day) {
        return Ok(());
    }
    write!(out, "T{:02}", second / 3_600)?;
    if unit == TimeUnit::Hour {
        return Ok(());
    }
    write!(out, ":{:02}", second / 60 % 60)?;
    if unit == TimeUnit::Minute {
        return Ok(());
    }
    write!(out, ":{:02}", second % 60)?;
    let (per_second, digits) = fraction(unit);
    if digits > 0 { write!(out, ".{:0digits$}", count.rem_euclid(per_second)) } else { Ok(()) }
}

fn write_year(out: &mut dyn fmt::Write, year: i128) -> fmt::Result {
    if year < 0 { write!(out, "-{:04}", -year) } else { write!(out, "{year:04}") }
}

/// Divides a date with a time of day into the text before its time zone, and the seconds that the zone is ahead of UTC. Zones are
/// `Z`, `UTC`, `GMT` and offsets such as `+01:00`, `-0530`, `+2`; dates without a time of day have none. `None` for other offsets.
pub fn split_zone(text: &str) -> Option<(&str, i64)> {
    let Some(clock_at) = text.find(['T', ' ', ':']) else {
        return Some((text.strip_suffix('Z').unwrap_or(text), 0));
    };
    for zone in ["Z", "UTC", "GMT"] {
        if let Some(bare) = text.strip_suffix(zone) {
            return Some((bare.trim_end(), 0));
        }
    }
    let Some(at) = text[clock_at..].rfind(['+', '-']).map(|at| clock_at + at) else {
        return Some((text, 0));
    };
    let (bare, zone) = text.split_at(at);
    let offset = &zone[1..];
    if !offset.is_ascii() {
        return None;
    }
    let (hours, minutes) = match offset.split_once(':') {
        Some(parts) => parts,
        None if offset.len() > 2 => offset.split_at(offset.len() - 2),
        None => (offset, "0"),
    };
    let (hours, minutes) = (digits(hours, 1..=2)?, digits(minutes, 1..=2)?);
    let ahead = (hours * 60 + minutes) * 60;
    let valid = hours <= 18 && minutes <= 59;
    valid.then(|| (bare.trim_end(), if zone.starts_with('-') { -ahead } else { ahead }))
}

/// Parses `2015`, `2015-07`, `2015-07-01`, `2015-07-01T06`, `…:30`, `…:00.125` (a space may replace `T`, a [zone](split_zone) may
/// follow).
///
/// `None` when the text is not a date or not an integer count of the unit.
pub fn parse(text: &str, unit: TimeUnit) -> Option<i64> {
    if text == "NaT" {
        return Some(NOT_A_TIME);
    }
    let (text, ahead) = split_zone(text)?;
    let (date, clock) = match text.split_once(['T', ' ']) {
        Some((date, clock)) => (date, Some(clock)),
        None => (text, None),
    };
    let (sign, date) = date.strip_prefix('-').map_or((1, date), |rest| (-1, rest));
    let mut parts = date.split('-');
    let year = sign * digits(parts.next()?, 4..=10)?;
    let month = parts.next().map_or(Some(1), |p| digits(p, 2..=2))?;
    let day = parts.next().map_or(Some(1), |p| digits(p, 2..=2))?;
    if parts.next().is_some() || !(1..=12).contains(&month) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    if civil_from_days(days) != (i128::from(year), i128::from(month), i128::from(day)) {
        return None;
    }
    let (second, attoseconds) = clock.map_or(Some((0, 0)), parse_clock)?;
    let total = days * SECONDS_PER_DAY + second - i128::from(ahead);
    let whole = |value: i128, per: i128| (value.rem_euclid(per) == 0).then(|| value.div_euclid(per));
    let count = match unit {
        TimeUnit::Year | TimeUnit::Month => {
            if (day, second, attoseconds, ahead) != (1, 0, 0, 0) || (unit == TimeUnit::Year && month != 1) {
                return None;
            }
            let years = i128::from(year) - 1970;
            if unit == TimeUnit::Year { years } else { years * 12 + i128::from(month) - 1 }
        }
        _ if attoseconds != 0 && fraction(unit).1 == 0 => return None,
        TimeUnit::Week => whole(total, 7 * SECONDS_PER_DAY)?,
        TimeUnit::Day => whole(total, SECONDS_PER_DAY)?,
        TimeUnit::Hour => whole(total, 3_600)?,
        TimeUnit::Minute => whole(total, 60)?,
        _ => {
            let per_second = fraction(unit).0;
            total * per_second + whole(attoseconds, 1_000_000_000_000_000_000 / per_second)?
        }
    };
    i64::try_from(count).ok()
}

/// Seconds of the day and attoseconds of the second.
fn parse_clock(clock: &str) -> Option<(i128, i128)> {
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut parts = clock.split(':');
    let hour = digits(parts.next()?, 2..=2)?;
    let minute = parts.next().map_or(Some(0), |p| digits(p, 2..=2))?;
    let second = parts.next().map_or(Some(0), |p| digits(p, 2..=2))?;
    if parts.next().is_some() || hour > 23 || minute > 59 || second > 59 || fraction.len() > 18 {
        return None;
    }
    let attoseconds = if fraction.is_empty() { 0 } else { digits(&format!("{fraction:0<18}"), 18..=18)? };
    Some((i128::from(hour * 3_600 + minute * 60 + second), i128::from(attoseconds)))
}

fn digits(text: &str, length: std::ops::RangeInclusive<usize>) -> Option<i64> {
    (length.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit()))
        .then(|| text.parse().ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(count: i64, unit: TimeUnit) -> String {
        let mut out = String::new();
        write(&mut out, count, unit).unwrap();
        out
    }

    #[test]
    fn output_matches_numpy() {
        assert_eq!(formatted(0, TimeUnit::Nanosecond), "1970-01-01T00:00:00.000000000");
        assert_eq!(formatted(-1, TimeUnit::Day), "1969-12-31");
        assert_eq!(formatted(16_617, TimeUnit::Day), "2015-07-01");
        assert_eq!(formatted(-1, TimeUnit::Millisecond), "1969-12-31T23:59:59.999");
        assert_eq!(formatted(545, TimeUnit::Month), "2015-06");
        assert_eq!(formatted(i64::MIN, TimeUnit::Day), "NaT");
        assert_eq!(formatted(11_016, TimeUnit::Day), "2000-02-29");
    }

    #[test]
    fn every_unit_round_trips() {
        for unit in TimeUnit::ALL {
            for count in [0, 1, -1, 45, 123_456, -98_765] {
                assert_eq!(parse(&formatted(count, unit), unit), Some(count), "{unit:?} {count}");
            }
        }
        assert_eq!(parse("2015-02-29", TimeUnit::Day), None);
        assert_eq!(parse("2015-07-01T06", TimeUnit::Day), None);
        assert_eq!(parse("2015-07-01 06:30Z", TimeUnit::Minute), parse("2015-07-01T06:30", TimeUnit::Minute));
        assert_eq!(parse("2015", TimeUnit::Day), parse("2015-01-01", TimeUnit::Day));
        let minute = |text: &str| parse(text, TimeUnit::Minute);
        assert_eq!(minute("2015-07-01T06:30+02:00"), minute("2015-07-01T04:30"));
        assert_eq!(minute("2015-07-01T00:30 -0130"), minute("2015-07-01T02:00"));
        for wrong in
            ["2015-07-01T06:30+99:00", "2015-07-01T06:30+é€", "2015-07-01T06:30 CET", "2015-07-01T06:30+"]
        {
            assert_eq!(minute(wrong), None, "{wrong}");
        }
    }
}
