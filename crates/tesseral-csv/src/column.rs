//! Types of columns: what holds every value exactly.

use tesseral_core::{CellLen, DType, Field, TimeUnit, time};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CsvKind {
    Int,
    /// Floats, with a comma instead of the decimal point.
    Float {
        comma: bool,
    },
    Time(TimeUnit),
    Text,
}

/// Integers up to here are exact floats.
const EXACT: u64 = 1 << 53;

/// Types that fit all values of a column so far.
#[derive(Clone, Debug)]
pub(crate) struct Inference {
    int: bool,
    point: bool,
    comma: bool,
    /// The finest unit of the dates; `None` once a value is not a date.
    time: Option<TimeUnit>,
    /// The first and last day of the dates, since 1970.
    days: (i64, i64),
    /// An integer that no float holds.
    wide: bool,
    values: u64,
    pub(crate) missing: u64,
}

impl Inference {
    /// A column without values. Commas can be decimal points where they separate nothing.
    pub(crate) fn new(separator: u8) -> Self {
        let comma = separator != b',';
        let (time, days) = (Some(TimeUnit::Day), (i64::MAX, i64::MIN));
        Self { int: true, point: true, comma, time, days, wide: false, values: 0, missing: 0 }
    }

    /// Adds what is known of other values of the column.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.int &= other.int;
        self.point &= other.point;
        self.comma &= other.comma;
        self.time = self.time.zip(other.time).map(|(one, other)| finest(one, other));
        self.days = (self.days.0.min(other.days.0), self.days.1.max(other.days.1));
        self.wide |= other.wide;
        self.values += other.values;
        self.missing += other.missing;
    }

    /// Adds a value; `None` if it is not UTF-8.
    pub(crate) fn add(&mut self, value: &[u8]) -> Option<()> {
        if value.is_empty() {
            self.missing += 1;
            return Some(());
        }
        self.values += 1;
        if !self.int && !self.point && !self.comma && self.time.is_none() {
            return (value.is_ascii() || std::str::from_utf8(value).is_ok()).then_some(());
        }
        // What most numbers look like is decided without parsing them.
        match plain(value) {
            Some(Plain::Int(magnitude)) => {
                self.wide |= magnitude > EXACT;
                self.time = None;
            }
            Some(Plain::Decimal(_)) => (self.int, self.comma, self.time) = (false, false, None),
            None => self.add_other(std::str::from_utf8(value).ok()?),
        }
        Some(())
    }

    fn add_other(&mut self, text: &str) {
        if self.int || self.point || self.comma {
            let literal = is_integer(text);
            let integer = literal.then(|| text.parse::<i64>().ok()).flatten();
            self.int &= integer.is_some();
            self.wide |= literal && integer.map_or(u64::MAX, i64::unsigned_abs) > EXACT;
            self.point = self.point && float(text).is_some();
            self.comma = self.comma && float_with_comma(text).is_some();
        }
        if let Some(unit) = self.time {
            self.time = unit_of(text).map(|own| finest(unit, own)).filter(|unit| date(text, *unit).is_some());
            let day = text.get(..10).and_then(|day| date(day, TimeUnit::Day)).unwrap_or(0);
            self.days = (self.days.0.min(day), self.days.1.max(day));
        }
    }

    /// Whether all dates can be counted in a unit: a later one can have a finer unit than the first allow.
    fn counted(&self, unit: TimeUnit) -> bool {
        let per_day: i64 = match unit {
            TimeUnit::Second => 86_400,
            TimeUnit::Millisecond => 86_400_000,
            TimeUnit::Microsecond => 86_400_000_000,
            TimeUnit::Nanosecond => 86_400_000_000_000,
            _ => 1,
        };
        // A zone can move a time to the next day.
        let holds = |day: i64| day.checked_mul(per_day).is_some();
        holds(self.days.0.saturating_sub(2)) && holds(self.days.1.saturating_add(2))
    }

    /// The type that holds every value.
    pub(crate) fn kind(&self) -> CsvKind {
        match self.time {
            _ if self.values == 0 => CsvKind::Text,
            _ if self.int => CsvKind::Int,
            _ if self.point && !self.wide => CsvKind::Float { comma: false },
            _ if self.comma && !self.wide => CsvKind::Float { comma: true },
            Some(unit) if self.counted(unit) => CsvKind::Time(unit),
            _ => CsvKind::Text,
        }
    }
}

impl CsvKind {
    /// The field of a column.
    pub(crate) fn field(self, name: &str, missing: bool) -> Field {
        let dtype = match self {
            Self::Int => DType::Int64,
            Self::Float { .. } => DType::Float64,
            Self::Time(unit) => DType::DateTime(unit),
            Self::Text => DType::Utf8,
        };
        let cell = if self == Self::Text { CellLen::Var } else { CellLen::One };
        Field { cell, nullable: missing, ..Field::new(name, dtype) }
    }

    /// The native bytes of a value; `None` for text that is not one of the type.
    #[inline]
    pub(crate) fn value(self, value: &[u8]) -> Option<[u8; 8]> {
        // What most numbers look like is converted while it is recognized.
        match (self, plain(value)) {
            (Self::Int, Some(Plain::Int(magnitude))) => {
                // At most 18 digits.
                let number = magnitude.cast_signed();
                return Some(if value[0] == b'-' { -number } else { number }.to_ne_bytes());
            }
            (Self::Float { .. }, Some(Plain::Int(magnitude))) if magnitude <= EXACT => {
                let number = magnitude as f64;
                return Some(if value[0] == b'-' { -number } else { number }.to_ne_bytes());
            }
            (Self::Float { comma: false }, Some(Plain::Decimal(Some((digits, scale))))) => {
                // Both are exact floats, so that their quotient is the float nearest to the number.
                let number = digits as f64 / POWERS.get(scale)?;
                return Some(if value[0] == b'-' { -number } else { number }.to_ne_bytes());
            }
            _ => {}
        }
        let text = std::str::from_utf8(value).ok()?;
        match self {
            Self::Int => text.parse::<i64>().ok().map(i64::to_ne_bytes),
            Self::Float { comma: false } => float(text).map(f64::to_ne_bytes),
            Self::Float { comma: true } => float_with_comma(text).map(f64::to_ne_bytes),
            Self::Time(unit) => date(text, unit).map(i64::to_ne_bytes),
            Self::Text => None,
        }
    }
}

/// Powers of ten that are exact floats.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18,
    1e19, 1e20, 1e21, 1e22,
];

/// Numbers that need no parsing to know their type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plain {
    /// An integer of at most 18 digits, without its sign.
    Int(u64),
    /// Digits around a point, of which there are too few for an infinity. The number that all of them make and how many of them follow
    /// the point, if both are exact floats.
    Decimal(Option<(u64, usize)>),
}

/// Recognizes digits with at most one point, after an optional sign. Codes that begin with 0 are excluded.
#[inline]
fn plain(value: &[u8]) -> Option<Plain> {
    const INT_DIGITS: usize = 18;
    const DIGITS: usize = 300;
    let digits = value.strip_prefix(b"-").unwrap_or(value);
    if digits.len() > DIGITS || matches!(digits, [] | [b'0', b'0'..=b'9', ..]) {
        return None;
    }
    let (mut magnitude, mut point) = (0_u64, None);
    for (at, byte) in digits.iter().enumerate() {
        match byte {
            b'0'..=b'9' => magnitude = magnitude.wrapping_mul(10).wrapping_add(u64::from(byte - b'0')),
            b'.' if point.is_none() && digits.len() > 1 => point = Some(at),
            _ => return None,
        }
    }
    match point {
        None => (digits.len() <= INT_DIGITS).then_some(Plain::Int(magnitude)),
        Some(at) => {
            let exact = digits.len() <= INT_DIGITS && magnitude <= EXACT;
            Some(Plain::Decimal(exact.then(|| (magnitude, digits.len() - at - 1))))
        }
    }
}

/// Digits after an optional sign.
fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) && !has_leading_zero(text)
}

/// Codes such as `03772` are text, not numbers.
fn has_leading_zero(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text).as_bytes();
    matches!(digits, [b'0', b'0'..=b'9', ..])
}

/// A decimal number, or one of the words for NaN and infinities.
fn float(text: &str) -> Option<f64> {
    let words = ["nan", "inf", "infinity"];
    let bare = text.strip_prefix(['-', '+']).unwrap_or(text);
    let starts = bare.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    if has_leading_zero(text) || !starts && !words.iter().any(|word| bare.eq_ignore_ascii_case(word)) {
        return None;
    }
    // Digits never mean an infinity.
    text.parse::<f64>().ok().filter(|value| !starts || value.is_finite())
}

fn float_with_comma(text: &str) -> Option<f64> {
    if text.contains('.') {
        return None;
    }
    float(&text.replacen(',', ".", 1))
}

/// The unit of a date by the digits that it has: days, or from seconds on.
fn unit_of(text: &str) -> Option<TimeUnit> {
    let bytes = text.as_bytes();
    let (date, clock) = bytes.split_at_checked(10)?;
    let separators = (date.get(4)?, date.get(7)?);
    if !matches!(separators, (b'-', b'-') | (b'/', b'/')) {
        return None;
    }
    let [b'T' | b' ', clock @ ..] = clock else { return clock.is_empty().then_some(TimeUnit::Day) };
    let fraction = clock.iter().position(|byte| *byte == b'.').map(|at| &clock[at + 1..]);
    let digits = fraction.map_or(0, |rest| rest.iter().take_while(|byte| byte.is_ascii_digit()).count());
    Some(match digits {
        0 => TimeUnit::Second,
        1..=3 => TimeUnit::Millisecond,
        4..=6 => TimeUnit::Microsecond,
        _ => TimeUnit::Nanosecond,
    })
}

fn finest(one: TimeUnit, other: TimeUnit) -> TimeUnit {
    let order =
        [TimeUnit::Day, TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
    let rank = |unit: TimeUnit| order.iter().position(|own| *own == unit).unwrap_or(0);
    if rank(other) > rank(one) { other } else { one }
}

/// The days of a date without a time of day, `2012-01-31` or with slashes, in the years 1 to 9999; `None` for other text.
fn plain_date(text: &[u8]) -> Option<i64> {
    let [y0, y1, y2, y3, first, m0, m1, second, d0, d1] = text else { return None };
    if first != second || !matches!(first, b'-' | b'/') {
        return None;
    }
    let mut numbers = [0_i64; 3];
    for (number, digits) in numbers.iter_mut().zip([&[*y0, *y1, *y2, *y3][..], &[*m0, *m1], &[*d0, *d1]]) {
        for digit in digits {
            *number = *number * 10 + i64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
        }
    }
    let [year, month, day] = numbers;
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        1..=12 => 31,
        _ => return None,
    };
    if year < 1 || !(1..=last).contains(&day) {
        return None;
    }
    // Years begin in March, so that the leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * year + year / 4 - year / 100 + year / 400;
    Some(days + (153 * month + 2) / 5 + day - 1 - 719_468)
}

/// A date with a time of day, `2012-01-31 23:59:59`, with up to nine digits of a second and `Z`, in a unit from seconds on; `None` for
/// other text, and for times that the unit cannot count.
fn plain_time(text: &[u8], unit: TimeUnit) -> Option<i64> {
    let (per_second, most) = match unit {
        TimeUnit::Second => (1, 0),
        TimeUnit::Millisecond => (1000, 3),
        TimeUnit::Microsecond => (1_000_000, 6),
        TimeUnit::Nanosecond => (1_000_000_000, 9),
        _ => return None,
    };
    let (date, [b'T' | b' ', h0, h1, b':', m0, m1, b':', s0, s1, rest @ ..]) = text.split_at_checked(10)?
    else {
        return None;
    };
    let two = |tens: &u8, ones: &u8, end: i64| {
        let digit = |byte: &u8| byte.checked_sub(b'0').filter(|digit| *digit < 10).map(i64::from);
        Some(digit(tens)? * 10 + digit(ones)?).filter(|number| *number < end)
    };
    let seconds = (two(h0, h1, 24)? * 60 + two(m0, m1, 60)?) * 60 + two(s0, s1, 60)?;
    let rest = rest.strip_suffix(b"Z").unwrap_or(rest);
    let digits = match rest {
        [] => rest,
        [b'.', digits @ ..] if !digits.is_empty() && digits.len() <= most => digits,
        _ => return None,
    };
    let mut fraction = 0_i64;
    for digit in digits {
        fraction = fraction * 10 + i64::from(digit.checked_sub(b'0').filter(|digit| *digit < 10)?);
    }
    fraction *= 10_i64.pow((most - digits.len()) as u32);
    let seconds = plain_date(date)?.checked_mul(86_400)?.checked_add(seconds)?;
    seconds.checked_mul(per_second)?.checked_add(fraction)
}

/// A date as a count of units.
fn date(text: &str, unit: TimeUnit) -> Option<i64> {
    let plain =
        if unit == TimeUnit::Day { plain_date(text.as_bytes()) } else { plain_time(text.as_bytes(), unit) };
    if plain.is_some() {
        return plain;
    }
    unit_of(text)?;
    if text.as_bytes().get(4) == Some(&b'/') {
        return time::parse(&text.replacen('/', "-", 2), unit);
    }
    time::parse(text, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(separator: u8, values: &[&str]) -> CsvKind {
        let mut column = Inference::new(separator);
        values.iter().for_each(|value| column.add(value.as_bytes()).unwrap());
        column.kind()
    }

    #[test]
    fn types_hold_every_value() {
        use TimeUnit::{Day, Millisecond, Second};
        let point = CsvKind::Float { comma: false };
        let cases: &[(&[&str], CsvKind)] = &[
            (&["1", "-2", "+3", "", "0"], CsvKind::Int),
            (&["1", "2.5", "nan", "-inf", "1e5", ".5"], point),
            (&["1", "03772"], CsvKind::Text),
            (&["9223372036854775807"], CsvKind::Int),
            (&["9223372036854775808"], CsvKind::Text),
            (&["9007199254740993", "0.5"], CsvKind::Text),
            (&["1e999"], CsvKind::Text),
            (&["2012/01/01", "2012-01-02"], CsvKind::Time(Day)),
            (&["2012-01-01", "2012-01-02 03:04"], CsvKind::Time(Second)),
            (&["2012-01-01T00:00:00.125Z"], CsvKind::Time(Millisecond)),
            (&["2012-13-01"], CsvKind::Text),
            (&["2012-01-01", "7"], CsvKind::Text),
            (&["", ""], CsvKind::Text),
            (&["1,5"], CsvKind::Text),
        ];
        for (values, expected) in cases {
            assert_eq!(kind(b',', values), *expected, "{values:?}");
        }
        assert_eq!(kind(b';', &["1,5", "2"]), CsvKind::Float { comma: true });
        assert_eq!(kind(b';', &["1,5", "2.5"]), CsvKind::Text);
        assert_eq!(kind(b';', &["1", "2"]), CsvKind::Int);
    }

    #[test]
    fn values_are_exact() {
        assert_eq!(CsvKind::Int.value(b"-7"), Some((-7_i64).to_ne_bytes()));
        assert_eq!(CsvKind::Float { comma: true }.value(b"-0,5"), Some((-0.5_f64).to_ne_bytes()));
        assert_eq!(CsvKind::Time(TimeUnit::Day).value(b"1970/01/03"), Some(2_i64.to_ne_bytes()));
        assert_eq!(CsvKind::Int.value(b"1.5"), None);
        assert_eq!(CsvKind::Int.value(b"\xff"), None);
    }

    /// The first dates of a column allow a unit that a later one makes too fine.
    #[test]
    fn units_hold_all_dates() {
        assert_eq!(kind(b',', &["9999-12-31", "2012-01-01 00:00:00.000000001"]), CsvKind::Text);
        assert_eq!(kind(b',', &["2012-01-01 00:00:00.000000001", "9999-12-31"]), CsvKind::Text);
        let fine = CsvKind::Time(TimeUnit::Nanosecond);
        assert_eq!(kind(b',', &["1700-01-01", "2012-01-01 00:00:00.000000001"]), fine);
        assert_eq!(
            kind(b',', &["0001-01-01", "2012-01-01 00:00:00.5"]),
            CsvKind::Time(TimeUnit::Millisecond)
        );
    }

    #[test]
    fn types_of_parts_are_those_of_the_whole() {
        let words = [
            "",
            "1",
            "-2.5",
            "03",
            "2012-01-01",
            "2012-01-01T03:04:05.25Z",
            "9999-12-31",
            "x",
            "1,5",
            "nan",
            "9007199254740993",
        ];
        for separator in [b',', b';'] {
            for case in 0..words.len().pow(4) {
                let values: Vec<&str> =
                    (0..4).map(|n| words[case / words.len().pow(n) % words.len()]).collect();
                let part = |values: &[&str]| {
                    let mut column = Inference::new(separator);
                    values.iter().for_each(|value| column.add(value.as_bytes()).unwrap());
                    column
                };
                let (mut first, last) = (part(&values[..2]), part(&values[2..]));
                first.merge(&last);
                let whole = part(&values);
                assert_eq!((first.kind(), first.missing), (whole.kind(), whole.missing), "{values:?}");
            }
        }
    }

    /// The quick ways agree with the general ones.
    #[test]
    fn plain_values_are_those_that_parse() {
        let digits =
            ["0", "-0", "7", "-12", "007", "999999999999999999", "1000000000000000000", "", "-", "+3"];
        let points = [".", "-.", "1.", ".5", "-0.25", "00.5", "0.5.", "1e5", "nan", "1,5"];
        for text in digits.iter().chain(&points) {
            match plain(text.as_bytes()) {
                Some(Plain::Int(magnitude)) => {
                    assert_eq!(text.parse::<i64>().map(i64::unsigned_abs), Ok(magnitude), "{text}");
                    assert!(is_integer(text) && float(text).is_some());
                }
                Some(Plain::Decimal(_)) => assert!(!is_integer(text) && float(text).is_some(), "{text}"),
                None => {}
            }
            let bits = |value: Option<f64>| value.map(f64::to_ne_bytes);
            assert_eq!(CsvKind::Float { comma: false }.value(text.as_bytes()), bits(float(text)), "{text}");
            assert_eq!(
                CsvKind::Float { comma: true }.value(text.as_bytes()),
                bits(float_with_comma(text)),
                "{text}"
            );
            let int = text.parse::<i64>().ok().map(i64::to_ne_bytes);
            assert_eq!(CsvKind::Int.value(text.as_bytes()), int, "{text}");
        }
        assert_eq!(plain(b"-12"), Some(Plain::Int(12)));
        assert_eq!([plain(b"007"), plain(b"."), plain(b"-."), plain(b"")], [None; 4]);
        let long = "9".repeat(400) + ".5";
        assert_eq!((plain(long.as_bytes()), kind(b',', &[&long])), (None, CsvKind::Text));
        for days in (-719_162..2_932_896).step_by(97).chain(-800..800) {
            let mut text = String::new();
            time::write(&mut text, days, TimeUnit::Day).unwrap();
            assert_eq!(plain_date(text.as_bytes()), Some(days), "{text}");
            assert_eq!(plain_date(text.replace('-', "/").as_bytes()), Some(days), "{text}");
        }
        for text in [
            "2011-02-29",
            "1900-02-29",
            "2012-00-01",
            "2012-13-01",
            "2012-01-32",
            "2012-01/01",
            "0000-01-01",
            "20a2-01-01",
        ] {
            assert_eq!(plain_date(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn plain_times_are_those_that_parse() {
        let units = [TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond];
        for text in [
            "2012-01-31 23:59:59",
            "1969-12-31T23:59:59.5",
            "1970-01-01 00:00:00.000001",
            "2012-01-31T01:02:03.123456789Z",
            "1600-01-01 00:00:00",
            "2012-01-31 24:00:00",
            "2012-01-31 23:60:00",
            "2012-01-31 23:59:60",
            "2012-01-31 23:59:5x",
            "2012-01-31 23:59:59.",
            "2012-01-31 23:59:59+01:00",
            "2012-02-30 00:00:00",
        ] {
            for unit in units {
                let expected = time::parse(text, unit);
                if let Some(found) = plain_time(text.as_bytes(), unit) {
                    assert_eq!(Some(found), expected, "{text}");
                }
                assert_eq!(date(text, unit), expected, "{text}");
            }
        }
        assert_eq!(plain_time(b"1970-01-01 00:00:01.5Z", TimeUnit::Millisecond), Some(1500));
    }

    #[test]
    fn text_that_is_not_utf8_is_detected() {
        let mut column = Inference::new(b',');
        assert_eq!(column.add(b"a"), Some(()));
        assert_eq!(column.add(b"\xff"), None);
        assert_eq!(Inference::new(b',').add(b"\xff"), None);
        assert_eq!(Inference::new(b',').add("é".as_bytes()), Some(()));
    }
}
