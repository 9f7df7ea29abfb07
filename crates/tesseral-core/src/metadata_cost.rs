//! Memory that values of metadata take, estimated before they are parsed.
//!
//! A value takes one byte in a file and about forty in memory, and commands hold several copies: the parsed document, the attributes of
//! the source, those of the output, and the document that is printed or written. The sum of all of them is what counts against the limit.

use crate::{Limits, Result};

/// Peak memory of a command for each value: a number, a text.
const VALUE: u64 = 560;
/// The same for a name, with its place in a map.
const NAME: u64 = 800;
/// The same for a list with its first value.
const LIST: u64 = 1_024;
/// The same for a map without its values.
const MAP: u64 = 1_920;

/// Memory that operations take for values of metadata, in bytes.
///
/// ```
/// use tesseral_core::{Limits, MetadataCost};
///
/// let cost = MetadataCost::of_json(br#"{"title": "sea surface temperature", "levels": [1, 2, 3]}"#);
/// assert!(Limits::default().check_values(cost, 60).is_ok());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct MetadataCost(u64);

impl MetadataCost {
    /// The estimate in bytes.
    pub fn bytes(self) -> u64 {
        self.0
    }

    fn with(self, bytes: u64, count: u64) -> Self {
        Self(self.0.saturating_add(bytes.saturating_mul(count)))
    }

    /// Adds names of values.
    #[must_use]
    pub fn names(self, count: u64) -> Self {
        self.with(NAME, count)
    }

    /// Adds values that are neither lists nor maps.
    #[must_use]
    pub fn values(self, count: u64) -> Self {
        self.with(VALUE, count)
    }

    /// Adds lists, each with its first value.
    #[must_use]
    pub fn lists(self, count: u64) -> Self {
        self.with(LIST, count)
    }

    /// Adds maps, without their values.
    #[must_use]
    pub fn maps(self, count: u64) -> Self {
        self.with(MAP, count)
    }

    /// Adds another estimate.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.with(other.0, 1)
    }

    /// What a parsed document takes by itself, if no copies are made of it.
    #[must_use]
    pub fn parsed(self) -> Self {
        Self(self.0 / 4)
    }

    /// Estimates the values of a JSON text without parsing it: from the characters that separate them.
    pub fn of_json(text: &[u8]) -> Self {
        let (mut values, mut names, mut lists, mut maps) = (1, 0, 0, 0);
        let (mut in_string, mut escaped) = (false, false);
        for byte in text {
            match (in_string, byte) {
                (true, _) if escaped => escaped = false,
                (true, b'\\') => escaped = true,
                (_, b'"') => in_string = !in_string,
                (false, b',') => values += 1,
                (false, b':') => names += 1,
                (false, b'[') => lists += 1,
                (false, b'{') => maps += 1,
                _ => {}
            }
        }
        Self::default().values(values).names(names).lists(lists).maps(maps)
    }
}

/// Values of one source, counted while they are parsed.
#[derive(Clone, Copy, Debug)]
pub struct CountedValues {
    limits: Limits,
    stored: u64,
    cost: MetadataCost,
}

impl CountedValues {
    /// Nothing yet of `stored` bytes of metadata.
    pub fn new(limits: Limits, stored: u64) -> Self {
        Self { limits, stored, cost: MetadataCost::default() }
    }

    /// Adds stored bytes.
    pub fn stored(&mut self, bytes: u64) {
        self.stored = self.stored.saturating_add(bytes);
    }

    /// Adds values before they are parsed.
    ///
    /// # Errors
    /// `Limit` if all values together exceed the limit.
    pub fn add(&mut self, cost: MetadataCost) -> Result<()> {
        self.cost = self.cost.and(cost);
        self.limits.check_values(self.cost, self.stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_count_values_and_text_does_not() {
        let cost = |text: &str| MetadataCost::of_json(text.as_bytes());
        assert_eq!(cost("[0,0,0]"), MetadataCost::default().values(3).lists(1));
        assert_eq!(cost(r#"{"a":{"b":[]}}"#), MetadataCost::default().values(1).names(2).lists(1).maps(2));
        assert_eq!(cost(r#""[,{:\"[""#), MetadataCost::default().values(1));
        assert_eq!(cost(""), MetadataCost::default().values(1));
    }

    #[test]
    fn small_files_have_few_values_and_large_ones_many() {
        let limits = Limits::default();
        let of = |count| MetadataCost::default().values(count);
        assert!(limits.check_values(of(110_000), 1 << 20).is_ok());
        assert!(limits.check_values(of(1 << 20), 1 << 20).is_err());
        assert!(limits.check_values(of(1 << 20), 2 << 20).is_ok());
        assert!(limits.with_expansion(1 << 30).check_values(of(1 << 20), 1 << 20).is_ok());
        assert!(limits.check_values(of(u64::MAX), 1 << 20).is_err());
    }
}
