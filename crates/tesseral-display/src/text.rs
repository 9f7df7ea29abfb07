//! Formatting of sizes, shapes and quoted words.

use std::borrow::Cow;
use std::fmt::Write;

/// Formats a number of bytes: `812 B`, `1.2 MiB`.
pub fn size(bytes: u64) -> String {
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    bytesize::ByteSize(bytes).display().iec().to_string()
}

/// Extents joined by a separator: `2×3`. `None` is an extent that is not countable.
pub fn shape(extents: impl IntoIterator<Item = Option<u64>>, times: char) -> String {
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
pub fn shell_quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "/._-=:@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Quotes a value as in RFC 4180.
pub fn csv_quoted(text: &str) -> Cow<'_, str> {
    if text.contains(['"', ',', '\n', '\r']) || text.starts_with(' ') || text.ends_with(' ') {
        Cow::Owned(format!("\"{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
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
    fn words_are_quoted_for_a_shell() {
        assert_eq!(shell_quoted("ocean/sst.tet"), "ocean/sst.tet");
        assert_eq!(shell_quoted("two words"), "'two words'");
        assert_eq!(shell_quoted("it's"), "'it'\\''s'");
        assert_eq!(shell_quoted(""), "''");
    }

    #[test]
    fn values_are_quoted_if_needed() {
        assert_eq!(csv_quoted("plain"), "plain");
        assert_eq!(csv_quoted("a,b"), "\"a,b\"");
        assert_eq!(csv_quoted("say \"hi\"\n"), "\"say \"\"hi\"\"\n\"");
        assert_eq!(csv_quoted(" x"), "\" x\"");
    }
}
