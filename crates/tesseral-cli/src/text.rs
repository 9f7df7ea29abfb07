//! Formatting helpers: sizes, shapes, similar names.

use std::fmt::Write;

pub(crate) use tesseral_core::escape;

/// Formats a number of bytes: `812 B`, `1.2 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    bytesize::ByteSize(bytes).display().iec().to_string()
}

/// `one array`, `2 arrays`.
pub(crate) fn count(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

/// `1 pass`, `2 passes`.
pub(crate) fn passes(n: u64) -> String {
    if n == 1 { "1 pass".to_owned() } else { format!("{n} passes") }
}

/// Extents joined by a separator: `2×3`. `None` is an extent that is not countable.
pub(crate) fn shape(extents: impl IntoIterator<Item = Option<u64>>, times: char) -> String {
    let mut out = String::new();
    for (i, extent) in extents.into_iter().enumerate() {
        if i > 0 {
            out.push(times);
        }
        // Writing to a `String` is infallible.
        let _ = match extent {
            Some(n) => write!(out, "{n}"),
            None => write!(out, "?"),
        };
    }
    if out.is_empty() { "scalar".to_owned() } else { out }
}

/// Quotes a word for a shell. Selections such as `time=0` and letters of any language stay as they are.
pub(crate) fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
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
        let part = !lower.is_empty() && (other.ends_with(&format!("/{lower}")) || other.starts_with(&lower));
        (if part { 1 } else { strsim::levenshtein(&lower, &other) }, candidate)
    });
    let (score, candidate) = scored.min_by_key(|(score, _)| *score)?;
    (score <= (word.chars().count() / 3).max(1)).then_some(candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_shapes() {
        assert_eq!(size(812), "812 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(shape([Some(2), Some(3)], '×'), "2×3");
        assert_eq!(shape([None, Some(3)], 'x'), "?x3");
        assert_eq!(shape([], 'x'), "scalar");
    }

    #[test]
    fn only_similar_candidates_are_found() {
        let names = ["temperature", "salinity", "ocean/sst"];
        assert_eq!(nearest("temprature", names.into_iter()), Some("temperature"));
        assert_eq!(nearest("Salinity", names.into_iter()), Some("salinity"));
        assert_eq!(nearest("sst", names.into_iter()), Some("ocean/sst"));
        assert_eq!(nearest("temp", names.into_iter()), Some("temperature"));
        assert_eq!(nearest("wind", names.into_iter()), None);
    }
}
