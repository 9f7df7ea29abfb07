//! Types of columns: what holds every value exactly.

use tesseral_core::{CellLen, DType, Field, TimeUnit, time};

/// The type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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

/// What is known of the values of a column.
#[derive(Clone, Debug)]
pub(crate) struct Inference {
    int: bool,
    point: bool,
    comma: bool,
    /// The finest unit of the dates; `None` once a value is no date.
    time: Option<TimeUnit>,
    /// An integer that no float holds.
    wide: bool,
    values: u64,
    pub(crate) missing: u64,
}

impl Inference {
    /// A column without values. Commas can be decimal points where they separate nothing.
    pub(crate) fn new(separator: u8) -> Self {
        let comma = separator != b',';
        Self { int: true, point: true, comma, time: Some(TimeUnit::Day), wide: false, values: 0, missing: 0 }
    }

    /// Adds a value.
    pub(crate) fn add(&mut self, text: &str) {
        if text.is_empty() {
            self.missing += 1;
            return;
        }
        self.values += 1;
        if self.int || self.point || self.comma {
            let literal = is_integer(text);
            let integer = literal && text.parse::<i64>().is_ok();
            self.int &= integer;
            self.wide |= literal && text.parse::<i64>().map_or(u64::MAX, i64::unsigned_abs) > EXACT;
            self.point &= float(text).is_some();
            self.comma &= float_with_comma(text).is_some();
        }
        if let Some(unit) = self.time {
            self.time = unit_of(text).map(|own| finest(unit, own)).filter(|unit| date(text, *unit).is_some());
        }
    }

    /// The type that holds every value.
    pub(crate) fn kind(&self) -> Kind {
        match self.time {
            _ if self.values == 0 => Kind::Text,
            _ if self.int => Kind::Int,
            _ if self.point && !self.wide => Kind::Float { comma: false },
            _ if self.comma && !self.wide => Kind::Float { comma: true },
            Some(unit) => Kind::Time(unit),
            None => Kind::Text,
        }
    }
}

impl Kind {
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
    pub(crate) fn value(self, text: &str) -> Option<[u8; 8]> {
        match self {
            Self::Int => text.parse::<i64>().ok().map(i64::to_ne_bytes),
            Self::Float { comma: false } => float(text).map(f64::to_ne_bytes),
            Self::Float { comma: true } => float_with_comma(text).map(f64::to_ne_bytes),
            Self::Time(unit) => date(text, unit).map(i64::to_ne_bytes),
            Self::Text => None,
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

/// A date as a count of units.
fn date(text: &str, unit: TimeUnit) -> Option<i64> {
    unit_of(text)?;
    if text.as_bytes().get(4) == Some(&b'/') {
        return time::parse(&text.replacen('/', "-", 2), unit);
    }
    time::parse(text, unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(separator: u8, values: &[&str]) -> Kind {
        let mut column = Inference::new(separator);
        values.iter().for_each(|value| column.add(value));
        column.kind()
    }

    #[test]
    fn types_hold_every_value() {
        use TimeUnit::{Day, Millisecond, Second};
        let point = Kind::Float { comma: false };
        let cases: &[(&[&str], Kind)] = &[
            (&["1", "-2", "+3", "", "0"], Kind::Int),
            (&["1", "2.5", "nan", "-inf", "1e5", ".5"], point),
            (&["1", "03772"], Kind::Text),
            (&["9223372036854775807"], Kind::Int),
            (&["9223372036854775808"], Kind::Text),
            (&["9007199254740993", "0.5"], Kind::Text),
            (&["1e999"], Kind::Text),
            (&["2012/01/01", "2012-01-02"], Kind::Time(Day)),
            (&["2012-01-01", "2012-01-02 03:04"], Kind::Time(Second)),
            (&["2012-01-01T00:00:00.125Z"], Kind::Time(Millisecond)),
            (&["2012-13-01"], Kind::Text),
            (&["2012-01-01", "7"], Kind::Text),
            (&["", ""], Kind::Text),
            (&["1,5"], Kind::Text),
        ];
        for (values, expected) in cases {
            assert_eq!(kind(b',', values), *expected, "{values:?}");
        }
        assert_eq!(kind(b';', &["1,5", "2"]), Kind::Float { comma: true });
        assert_eq!(kind(b';', &["1,5", "2.5"]), Kind::Text);
        assert_eq!(kind(b';', &["1", "2"]), Kind::Int);
    }

    #[test]
    fn values_are_exact() {
        assert_eq!(Kind::Int.value("-7"), Some((-7_i64).to_ne_bytes()));
        assert_eq!(Kind::Float { comma: true }.value("-0,5"), Some((-0.5_f64).to_ne_bytes()));
        assert_eq!(Kind::Time(TimeUnit::Day).value("1970/01/03"), Some(2_i64.to_ne_bytes()));
        assert_eq!(Kind::Int.value("1.5"), None);
    }
}
