//! Where messages are in a buffer.

use tesseral_core::Cancel;

use super::error::Result;
use crate::scan::{self, Span};
use crate::source::{Input, Slice};
use crate::wire::postamble::{self, Postamble};
use crate::wire::preamble::{self, Preamble};

/// Bytes that belong to no message.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkippedBytes {
    /// Where they begin.
    pub offset: u64,
    /// How many there are.
    pub length: u64,
    /// The check that failed, where a message seems to begin; `garbage` else.
    pub check: &'static str,
    /// What is wrong.
    pub detail: String,
}

impl From<&scan::Skipped> for SkippedBytes {
    fn from(skipped: &scan::Skipped) -> Self {
        let scan::Skipped { offset, len, check, detail, .. } = skipped;
        Self { offset: *offset, length: *len, check, detail: detail.clone() }
    }
}

/// What a buffer holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Where each message begins, and its length.
    pub messages: Vec<(usize, usize)>,
    /// What belongs to none.
    pub skipped: Vec<SkippedBytes>,
}

/// Finds the messages of a buffer: where each begins and its length. Frames are followed, so that no payload ends a message
/// early; what belongs to no message is skipped.
pub fn scan(buffer: &[u8]) -> Vec<(usize, usize)> {
    scan_with_report(buffer).map_or_else(|_| Vec::new(), |found| found.messages)
}

/// As [`scan`](fn@scan), with every range that was skipped.
///
/// # Errors
/// None that a buffer in memory could cause.
pub fn scan_with_report(buffer: &[u8]) -> Result<Scanned> {
    let found = scan::scan(&Slice { name: "a buffer", bytes: buffer }, &Cancel::default())?;
    let messages = found.messages.iter().map(span).collect();
    Ok(Scanned { messages, skipped: found.skipped.iter().map(SkippedBytes::from).collect() })
}

#[allow(clippy::cast_possible_truncation)]
fn span(span: &Span) -> (usize, usize) {
    (span.offset as usize, span.len as usize)
}

/// Finds messages from the end of a buffer backwards, by the lengths that their ends repeat, as long as each ends where the one
/// after it begins. Gives them in the order of the buffer, and where the first one begins: what comes before is for [`scan`](fn@scan).
pub fn scan_backward(buffer: &[u8]) -> (Vec<(usize, usize)>, usize) {
    let input = Slice { name: "a buffer", bytes: buffer };
    let mut end = input.len();
    let mut found = Vec::new();
    while let Some(len) = ends_at(&input, end) {
        end -= len;
        found.push(span(&Span { offset: end, len }));
    }
    found.reverse();
    #[allow(clippy::cast_possible_truncation)]
    (found, end as usize)
}

/// The length of the message that ends at `end`, if its two ends agree.
fn ends_at<I: Input>(input: &I, end: u64) -> Option<u64> {
    let at = end.checked_sub(postamble::LEN)?;
    let told = Postamble::parse(&input.get(at..end, "postamble").ok()?)?;
    let len = told.total_length;
    let start = end.checked_sub(len).filter(|_| len >= preamble::LEN + postamble::LEN)?;
    let head = input.get(start..start + preamble::LEN, "preamble").ok()?;
    let preamble = Preamble::parse(&head, input.name(), start).ok()?;
    (preamble.total_length == len && (preamble::LEN..=at - start).contains(&told.first_footer_offset))
        .then_some(len)
}
