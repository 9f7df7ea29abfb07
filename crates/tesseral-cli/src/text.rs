//! Formatting helpers: sizes, shapes, similar names.

pub(crate) use tesseral_core::escape;
pub(crate) use tesseral_display::text::{csv_quoted, shape, shell_quoted, size};

/// `one array`, `2 arrays`.
pub(crate) fn count(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// `12,000`.
pub(crate) fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).unwrap_or_default()).collect();
    groups.join(",")
}

/// `1 pass`, `2 passes`.
pub(crate) fn passes(n: u64) -> String {
    if n == 1 { "1 pass".to_owned() } else { format!("{n} passes") }
}

/// Returns the most similar candidate, if it is similar enough.
pub(crate) fn nearest<'a>(word: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    const TRIED: usize = 10_000;
    const LONGEST: usize = 200;
    let lower = word.to_lowercase();
    if lower.len() > LONGEST {
        return None;
    }
    let scored = candidates.take(TRIED).filter(|c| c.len() <= LONGEST).map(|candidate| {
        let other = candidate.to_lowercase();
        let end = ["/", "_", "-", "."].iter().any(|mark| other.ends_with(&format!("{mark}{lower}")));
        let part = !lower.is_empty() && (end || other.starts_with(&lower));
        (if part { 1 } else { strsim::levenshtein(&lower, &other) }, candidate)
    });
    let (score, candidate) = scored.min_by_key(|(score, _)| *score)?;
    (score <= (word.chars().count() / 3).max(1)).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn only_similar_candidates_are_found() {
        let names = ["temperature", "salinity", "ocean/sst"];
        assert_eq!(nearest("temprature", names.into_iter()), Some("temperature"));
        assert_eq!(nearest("Salinity", names.into_iter()), Some("salinity"));
        assert_eq!(nearest("sst", names.into_iter()), Some("ocean/sst"));
        assert_eq!(nearest("temp", names.into_iter()), Some("temperature"));
        assert_eq!(nearest("wind", names.into_iter()), None);
        assert_eq!(nearest("time", ["step", "valid_time", "latitude"].into_iter()), Some("valid_time"));
    }
}
