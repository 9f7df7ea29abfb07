//! Dates as time periods: a partial date covers everything it leaves open.

use std::ops::Range;

use tesseral_core::{TimeUnit, time};

/// Attoseconds since 1970: precise enough for every unit, and large enough for every year of a label.
pub(super) type Instant = i128;

const SECOND: Instant = 1_000_000_000_000_000_000;

/// The period of a date: a year, a month, a day, …
pub(super) fn span(text: &str) -> Option<Range<Instant>> {
    let (bare, ahead) = time::split_zone(text.trim())?;
    let span = span_of(bare)?;
    let ahead = i128::from(ahead) * SECOND;
    Some(span.start - ahead..span.end - ahead)
}

/// The time zone of a date and time of day, if it is none that is known.
pub(super) fn unknown_zone(text: &str) -> Option<&str> {
    let text = text.trim();
    let known = |c: char| c.is_ascii_digit() || matches!(c, '-' | ':' | '.' | 'T' | ' ');
    let at = text.find(|c| !known(c)).map(|at| text[..at].trim_end_matches(['+', '-', ' ']).len())?;
    (text[..at].contains(':') && span(&text[..at]).is_some()).then(|| text[at..].trim())
}

/// The period of a date in UTC.
fn span_of(bare: &str) -> Option<Range<Instant>> {
    let (date, clock) = match bare.split_once(['T', ' ']) {
        Some((date, clock)) => (date, Some(clock)),
        None => (bare, None),
    };
    let parts = date.trim_start_matches('-').split('-').count();
    match (clock, parts) {
        (None, 1) => calendar(bare, TimeUnit::Year),
        (None, 2) => calendar(bare, TimeUnit::Month),
        (None, _) => fixed(bare, 0, 86_400 * SECOND),
        (Some(clock), _) => {
            if let Some((whole, fraction)) = bare.split_once('.') {
                let digits = u32::try_from(fraction.len()).ok().filter(|n| (1..=18).contains(n))?;
                let length = 10_i128.pow(18 - digits);
                let count: i128 =
                    fraction.bytes().all(|b| b.is_ascii_digit()).then(|| fraction.parse().ok())??;
                return fixed(whole, count * length, length);
            }
            let length = match clock.split(':').count() {
                1 => 3_600,
                2 => 60,
                _ => 1,
            };
            fixed(bare, 0, length * SECOND)
        }
    }
}

fn start(text: &str) -> Option<Instant> {
    let seconds = time::parse(text, TimeUnit::Second).filter(|s| *s != time::NOT_A_TIME)?;
    Some(i128::from(seconds) * SECOND)
}

fn fixed(text: &str, after: Instant, length: Instant) -> Option<Range<Instant>> {
    let start = start(text)? + after;
    Some(start..start + length)
}

/// Years and months have variable lengths: the end is the start of the next one.
fn calendar(text: &str, unit: TimeUnit) -> Option<Range<Instant>> {
    let count = time::parse(text, unit).filter(|c| *c != time::NOT_A_TIME)?;
    Some(from_count(count, unit)?..from_count(count.checked_add(1)?, unit)?)
}

/// Start of a count of units, saturated at the representable range; `None` for NaT.
pub(super) fn of_count(count: i64, unit: TimeUnit) -> Option<Instant> {
    let beyond = if count < 0 { Instant::MIN } else { Instant::MAX };
    (count != time::NOT_A_TIME).then(|| from_count(count, unit).unwrap_or(beyond))
}

fn from_count(count: i64, unit: TimeUnit) -> Option<Instant> {
    let length = match unit {
        TimeUnit::Year | TimeUnit::Month => {
            let mut text = String::new();
            time::write(&mut text, count, unit).ok()?;
            return start(&text);
        }
        TimeUnit::Week => 7 * 86_400 * SECOND,
        TimeUnit::Day => 86_400 * SECOND,
        TimeUnit::Hour => 3_600 * SECOND,
        TimeUnit::Minute => 60 * SECOND,
        TimeUnit::Second => SECOND,
        TimeUnit::Millisecond => 1_000_000_000_000_000,
        TimeUnit::Microsecond => 1_000_000_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
        TimeUnit::Picosecond => 1_000_000,
        TimeUnit::Femtosecond => 1_000,
        TimeUnit::Attosecond => 1,
    };
    i128::from(count).checked_mul(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_follow_the_calendar() {
        let day = 86_400 * SECOND;
        for (text, days) in [
            ("2015", 365),
            ("2016", 366),
            ("2015-02", 28),
            ("2016-02", 29),
            ("2015-12", 31),
            ("2015-07-04", 1),
        ] {
            let span = span(text).unwrap();
            assert_eq!(span.end - span.start, days * day, "{text}");
        }
        assert_eq!(span("2015-12").unwrap().end, span("2016").unwrap().start);
        assert_eq!(span("2015-07-01T06").unwrap().start, span("2015-07-01 06:00Z").unwrap().start);
        let quarter = span("1970-01-01T00:00:00.25").unwrap();
        assert_eq!((quarter.start, quarter.end), (SECOND / 4, SECOND / 4 + SECOND / 100));
        assert_eq!(span("2015-07-01T06:00+02:00"), span("2015-07-01T04:00"));
        assert_eq!(span("2015-07-01 06:00:00 -0530"), span("2015-07-01T11:30:00"));
        assert_eq!(span("2015-07-01T06:00 UTC"), span("2015-07-01T06:00Z"));
        assert_eq!(span("2015-07-01T06:00 CEST"), None);
        assert_eq!(unknown_zone("2015-07-01T06:00 CEST"), Some("CEST"));
        assert_eq!(unknown_zone("2015-07-01T06:00 Europe/Berlin"), Some("Europe/Berlin"));
        for plain in ["2015-07-01T06:00", "Bergen", "10:30 train", "2015-07-01"] {
            assert_eq!(unknown_zone(plain), None, "{plain}");
        }
        for wrong in
            ["", "NaT", "July", "2015-13", "2015-02-29", "2015-07-01T25", "12.5", "1970-01-01T00:00:00."]
        {
            assert_eq!(span(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn counts_of_every_unit_agree_with_their_text() {
        for unit in TimeUnit::ALL {
            for count in [-5, 0, 1, 700] {
                let mut text = String::new();
                time::write(&mut text, count, unit).unwrap();
                assert_eq!(of_count(count, unit), span(&text).map(|s| s.start), "{unit:?} {count}");
            }
            assert_eq!(of_count(time::NOT_A_TIME, unit), None);
        }
    }
}
