//! Parsing of times and time ranges.

use tesseral_core::{Error, Result, TimeUnit, time};
use tesseral_format::TimeRange;

/// Parses a time or time range, `T` or `T1..T2`: milliseconds since 1970 or dates, which cover their whole period.
///
/// # Errors
/// `InvalidRequest` if it is neither a number nor a date, or ends before it begins.
pub fn as_of(text: &str) -> Result<TimeRange> {
    let moment = |text: &str| {
        parse_moment(text).ok_or_else(|| {
            Error::invalid(format!("invalid time {text:?}: expected milliseconds since 1970 or a date"))
                .hint("example: 1735689600000, 2025-01-01 or 2025-01-01T06:30")
        })
    };
    let range = match text.split_once("..") {
        None => TimeRange { start: 0, end: moment(text)?.1 },
        Some((from, to)) => TimeRange {
            start: if from.is_empty() { 0 } else { moment(from)?.0 },
            end: if to.is_empty() { u64::MAX } else { moment(to)?.1 },
        },
    };
    if range.start > range.end {
        return Err(Error::invalid(format!("{text:?} ends before it begins")));
    }
    Ok(range)
}

/// First and last millisecond.
fn parse_moment(text: &str) -> Option<(u64, u64)> {
    // Digits alone are a number, also four of them: a year requires its month.
    if let Ok(milliseconds) = text.parse() {
        return Some((milliseconds, milliseconds));
    }
    let start = time::parse(text, TimeUnit::Millisecond)?;
    // Use the coarsest unit that represents the text exactly and is spelled out.
    let spelled = |unit: TimeUnit| {
        let count = time::parse(text, unit)?;
        let mut written = String::new();
        time::write(&mut written, count, unit).ok()?;
        let same = written.len() == text.trim_end_matches('Z').len();
        same.then_some((count, unit))
    };
    let next = TimeUnit::ALL.into_iter().filter(|u| *u != TimeUnit::Week).find_map(spelled).and_then(
        |(count, unit)| {
            let mut written = String::new();
            time::write(&mut written, count.checked_add(1)?, unit).ok()?;
            time::parse(&written, TimeUnit::Millisecond)
        },
    );
    let end = next.map_or(start, |next| (next - 1).max(start));
    Some((u64::try_from(start).ok()?, u64::try_from(end).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_cover_their_period() {
        assert_eq!(parse_moment("1735689600000"), Some((1_735_689_600_000, 1_735_689_600_000)));
        let (start, end) = parse_moment("2025-01-01").unwrap();
        assert_eq!((start, end), (1_735_689_600_000, 1_735_689_600_000 + 86_399_999));
        assert_eq!(parse_moment("2025-01").unwrap().1 - start, 31 * 86_400_000 - 1);
        assert_eq!(parse_moment("2025"), Some((2025, 2025)));
        assert_eq!(parse_moment("2025-01-01T06:30").unwrap().1 - start, 23_459_999);
        assert_eq!(parse_moment("2025-01-01T00:00:00.250Z").unwrap(), (start + 250, start + 250));
        assert_eq!(parse_moment("soon"), None);
    }

    #[test]
    fn ranges_have_either_end() {
        let ends = |text: &str| as_of(text).map(|r| (r.start, r.end)).ok();
        assert_eq!(ends("50000"), Some((0, 50_000)));
        assert_eq!(ends("10..20"), Some((10, 20)));
        assert_eq!(ends("10.."), Some((10, u64::MAX)));
        assert_eq!(ends("20..10"), None);
        assert_eq!(ends("x"), None);
    }
}
