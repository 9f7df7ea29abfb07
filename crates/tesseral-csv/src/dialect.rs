//! The dialect of a file: the separator, and whether the first row has the names of the columns.

use crate::column::{CsvKind, Inference};
use crate::rows::Rows;

/// Separators that are recognized; the first of those that occur most often counts.
const SEPARATORS: [u8; 4] = [b',', b';', b'\t', b'|'];

/// First bytes of this length are not the whole file.
const LONG: usize = 4096;

/// What some programs write before UTF-8.
const MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Number of bytes before the first row.
pub(crate) fn mark(head: &[u8]) -> usize {
    if head.starts_with(&MARK) { MARK.len() } else { 0 }
}

/// The separator of a file by its first bytes: the one that its first row has most of, outside of quotes.
pub(crate) fn separator(name: &str, head: &[u8]) -> u8 {
    if name.to_ascii_lowercase().ends_with(".tsv") {
        return b'\t';
    }
    let (mut counts, mut quoted) = ([0_usize; SEPARATORS.len()], false);
    for byte in head {
        match byte {
            b'"' => quoted = !quoted,
            b'\n' | b'\r' if !quoted && counts.iter().any(|count| *count > 0) => break,
            byte if !quoted => {
                if let Some(at) = SEPARATORS.iter().position(|own| own == byte) {
                    counts[at] += 1;
                }
            }
            _ => {}
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0);
    let found = SEPARATORS.iter().zip(counts).find(|(_, count)| *count == most && most > 0);
    found.map_or(b',', |(separator, _)| *separator)
}

/// Whether the first bytes of a file are a table: text in rows of the same number of values, two at least. The first bytes of
/// markup and JSON are not.
pub(crate) fn is_table(name: &str, head: &[u8]) -> bool {
    let control = |byte: &u8| *byte < b' ' && !matches!(byte, b'\t' | b'\r' | b'\n');
    if matches!(head, [] | [b'{' | b'[' | b'<', ..]) || head.iter().any(control) {
        return false;
    }
    // The last row can be incomplete, and end within a character.
    let end = if head.len() < LONG {
        head.len()
    } else {
        head.iter().rposition(|byte| *byte == b'\n').unwrap_or(0)
    };
    let mut rows = Rows::new(separator(name, head), head.get(mark(head)..end).unwrap_or_default());
    let (mut width, mut count) = (0, 0);
    while rows.start() {
        let mut own = 0;
        loop {
            let (value, last) = rows.value();
            own += 1;
            if std::str::from_utf8(value).is_err() {
                return false;
            }
            if last {
                break;
            }
        }
        if own < 2 || (count > 0 && own != width) {
            return false;
        }
        (width, count) = (own, count + 1);
    }
    count > 1
}

/// Whether a first row names the columns: different words, none of which is a number or a date.
pub(crate) fn is_header(row: &[String], separator: u8) -> bool {
    let is_name = |text: &String| {
        let mut column = Inference::new(separator);
        column.add(text.as_bytes());
        !text.is_empty() && column.kind() == CsvKind::Text
    };
    let mut sorted: Vec<&str> = row.iter().map(String::as_str).collect();
    sorted.sort_unstable();
    row.iter().all(is_name) && sorted.windows(2).all(|pair| pair[0] != pair[1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separators_are_those_of_the_first_row() {
        for (head, expected) in [
            ("a,b\n1;2;3;4", b','),
            ("a;b;c\n1,5;2;3", b';'),
            ("\"a,b,c\"\t1\n", b'\t'),
            ("a|b", b'|'),
            ("a\nb\n", b','),
            ("", b','),
        ] {
            assert_eq!(separator("x.csv", head.as_bytes()), expected, "{head:?}");
        }
        assert_eq!(separator("x.TSV", b"a,b"), b'\t');
    }

    #[test]
    fn tables_are_recognized_by_their_rows() {
        for head in ["a,b\n1,2\n", "a;b\n\"x\ny\";2"] {
            assert!(is_table("x", head.as_bytes()), "{head:?}");
        }
        for head in ["", "a,b\n", "a\nb\n", "a,b\n1\n", "{\"a\": 1,\n\"b\": 2,\n", "a,b\n\u{1},2\n"] {
            assert!(!is_table("x", head.as_bytes()), "{head:?}");
        }
        let long = "word,1\n".repeat(600);
        assert!(is_table("x", &long.as_bytes()[..LONG]));
    }

    #[test]
    fn headers_are_words() {
        let header = |row: &[&str]| is_header(&row.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>(), b',');
        assert!(header(&["date", "t max", "03772"]));
        for row in [&["a", "1"][..], &["a", "a"], &["a", ""], &["a", "2012-01-01"]] {
            assert!(!header(row), "{row:?}");
        }
    }
}
