//! Escaping of untrusted text for display.

use std::borrow::Cow;

/// Returns whether a character controls a terminal or is invisible: control characters, bidirectional marks and overrides, and
/// zero-width characters.
fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
        )
}

/// Escapes control, bidirectional and zero-width characters, for names, attributes and values that are displayed as text.
///
/// ```
/// assert_eq!(tesseral_core::escape("plain Ω"), "plain Ω");
/// assert_eq!(tesseral_core::escape("a\u{1b}[31m\n\u{202e}b\u{feff}"), "a\\u{1b}[31m\\n\\u{202e}b\\u{feff}");
/// ```
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.contains(is_deceptive) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_deceptive(c) { safe.extend(c.escape_default()) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

/// Escapes bidirectional and zero-width characters in a JSON document, whose meaning stays the same. JSON itself escapes the control
/// characters of texts.
///
/// ```
/// assert_eq!(tesseral_core::escape_json("{\"a\":\n\"\u{202e}\u{7f}\"}"), "{\"a\":\n\"\\u202e\\u007f\"}");
/// ```
pub fn escape_json(document: &str) -> Cow<'_, str> {
    let hidden = |c: char| c >= '\u{7f}' && is_deceptive(c);
    if !document.contains(hidden) {
        return Cow::Borrowed(document);
    }
    let mut safe = String::with_capacity(document.len() + 16);
    for c in document.chars() {
        if hidden(c) { safe.push_str(&format!("\\u{:04x}", u32::from(c))) } else { safe.push(c) }
    }
    Cow::Owned(safe)
}

/// Converts untrusted text to a part of a file name: as [`escape`], without separators, a leading dot or a leading hyphen.
/// `None` if the result is empty.
pub fn file_name_part(text: &str) -> Option<String> {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let hides = out.is_empty() && matches!(c, '.' | '-');
        if is_deceptive(c) || hides || matches!(c, '/' | '\\' | '%') {
            let mut bytes = [0; 4];
            c.encode_utf8(&mut bytes).bytes().for_each(|b| out.push_str(&format!("%{b:02X}")));
        } else {
            out.push(c);
        }
    }
    (!out.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_deceptive_character_is_escaped() {
        let ranges = [
            0x61c..=0x61c,
            0x200b..=0x200f,
            0x202a..=0x202e,
            0x2060..=0x2060,
            0x2066..=0x2069,
            0xfeff..=0xfeff,
        ];
        let controls = (0..0x20).chain(0x7f..0xa0);
        for c in controls.chain(ranges.into_iter().flatten()).filter_map(char::from_u32) {
            let escaped = escape(&format!("a{c}b")).into_owned();
            assert!(
                !escaped.contains(c) && escaped.starts_with("a\\") && escaped.ends_with('b'),
                "{:x}",
                c as u32
            );
        }
        assert!(matches!(escape("plain Ω × 温度"), Cow::Borrowed("plain Ω × 温度")));
    }

    #[test]
    fn parts_of_file_names_cannot_leave_their_folder() {
        assert_eq!(file_name_part("2t").as_deref(), Some("2t"));
        assert_eq!(file_name_part("../x").as_deref(), Some("%2E.%2Fx"));
        assert_eq!(file_name_part("-f").as_deref(), Some("%2Df"));
        assert_eq!(file_name_part("a\u{202e}b\n").as_deref(), Some("a%E2%80%AEb%0A"));
        assert_eq!(file_name_part("100%").as_deref(), Some("100%25"));
        assert_eq!(file_name_part(""), None);
    }
}
