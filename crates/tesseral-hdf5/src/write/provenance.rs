//! `_NCProperties`: what wrote a file, and its history. No interface shows this attribute among those of the data.
//!
//! The text is `version=2,tesseral=VERSION,history=JSON`. In values, a backslash precedes commas, equals signs and backslashes.

use tesseral_core::{HistoryRow, Limits, Result};
use tesseral_format::convention::{history as rows, value};

use super::attribute;
use super::header::ObjectHeader;

/// Name of the attribute.
pub(crate) const NAME: &str = "_NCProperties";

/// Adds the attribute to the root group.
pub(super) fn write(header: &mut ObjectHeader, history: &[HistoryRow]) -> Result<()> {
    let mut text = format!("version=2,tesseral={}", env!("CARGO_PKG_VERSION"));
    if !history.is_empty() {
        text.push_str(",history=");
        for c in rows::to_json(history).to_string().chars() {
            if matches!(c, ',' | '=' | '\\') {
                text.push('\\');
            }
            text.push(c);
        }
    }
    attribute::text(header, NAME, &text)
}

/// The history in the text of the attribute.
pub(crate) fn history(text: &str) -> Vec<HistoryRow> {
    let (mut pairs, mut escaped) = (vec![String::new()], false);
    for c in text.chars() {
        match (c, pairs.last_mut()) {
            ('\\', _) if !escaped => {
                escaped = true;
                continue;
            }
            (',', _) if !escaped => pairs.push(String::new()),
            (c, Some(last)) => last.push(c),
            (_, None) => {}
        }
        escaped = false;
    }
    let json = pairs.iter().find_map(|pair| pair.strip_prefix("history="));
    // History that does not fit the limit is left out, as other text is.
    let json = json.and_then(|json| value::parse(json.as_bytes(), &Limits::DEFAULT).ok().flatten());
    rows::from_value(json.map(|json| value::from_json(&json)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn history_is_read_back() {
        let row = HistoryRow {
            op: "convert".to_owned(),
            source: "a\\b, c=\"d\".nc".to_owned(),
            parents: vec!["x,y".to_owned()],
            ..HistoryRow::default()
        };
        let mut header = ObjectHeader::default();
        write(&mut header, std::slice::from_ref(&row)).unwrap();
        let bytes = header.finish().unwrap();
        let start = bytes.windows(9).position(|window| window == b"version=2").unwrap();
        let text = String::from_utf8_lossy(&bytes[start..]);
        assert_eq!(history(&text[..=text.rfind(']').unwrap()]), [row]);
        assert!(history("version=2,netcdf=4.9.2,hdf5=1.14.2").is_empty());
        assert!(history("history=[}").is_empty() && history("\\").is_empty());
    }
}
