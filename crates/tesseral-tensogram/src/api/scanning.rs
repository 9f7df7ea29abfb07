//! Scanning of buffers for messages.

use tesseral_core::Cancel;

use super::error::Result;
use crate::scan::{self, MessageRange};
use crate::source::{Input, SliceInput};
use crate::wire::postamble::{self, Postamble};
use crate::wire::preamble::{self, Preamble};

/// A byte range outside messages.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkippedBytes {
    /// Offset of the range.
    pub offset: u64,
    /// Length of the range in bytes.
    pub length: u64,
    /// Name of the failed check if the range begins with a message magic; otherwise `garbage`.
    pub check: &'static str,
    /// Description of the failure.
    pub detail: String,
}

impl From<&scan::Skipped> for SkippedBytes {
    fn from(skipped: &scan::Skipped) -> Self {
        let scan::Skipped { offset, len, check, detail, .. } = skipped;
        Self { offset: *offset, length: *len, check, detail: detail.clone() }
    }
}

/// Result of a scan.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// Offset and length of each message.
    pub messages: Vec<(usize, usize)>,
    /// Byte ranges outside messages.
    pub skipped: Vec<SkippedBytes>,
}

/// Returns offset and length of each message of a buffer. Follows the frame headers, so that payload bytes cannot end a message
/// early. Bytes outside messages are skipped.
pub fn scan(buffer: &[u8]) -> Vec<(usize, usize)> {
    scan_with_report(buffer).map_or_else(|_| Vec::new(), |found| found.messages)
}

/// As [`scan`](fn@scan), and returns the skipped ranges.
///
/// # Errors
/// None for a buffer in memory.
pub fn scan_with_report(buffer: &[u8]) -> Result<Scanned> {
    let found = scan::scan(&SliceInput { name: "a buffer", bytes: buffer }, &Cancel::default())?;
    let messages = found.messages.iter().map(span).collect();
    Ok(Scanned { messages, skipped: found.skipped.iter().map(SkippedBytes::from).collect() })
}

fn span(span: &MessageRange) -> (usize, usize) {
    (span.offset as usize, span.len as usize)
}

/// Scans messages backward from the end of a buffer, by the length in each postamble, while messages are contiguous. Returns
/// them in ascending order, and the offset of the first one; use [`scan`](fn@scan) for the bytes before it.
pub fn scan_backward(buffer: &[u8]) -> (Vec<(usize, usize)>, usize) {
    let input = SliceInput { name: "a buffer", bytes: buffer };
    let mut end = input.len();
    let mut found = Vec::new();
    while let Some(len) = ends_at(&input, end) {
        end -= len;
        found.push(span(&MessageRange { offset: end, len }));
    }
    found.reverse();
    (found, end as usize)
}

/// Returns the length of the message that ends at `end` if preamble and postamble agree.
fn ends_at<I: Input>(input: &I, end: u64) -> Option<u64> {
    let at = end.checked_sub(postamble::LEN)?;
    let postamble = Postamble::parse(&input.get(at..end, "postamble").ok()?)?;
    let len = postamble.total_length;
    let start = end.checked_sub(len).filter(|_| len >= preamble::LEN + postamble::LEN)?;
    let head = input.get(start..start + preamble::LEN, "preamble").ok()?;
    let preamble = Preamble::parse(&head, input.name(), start).ok()?;
    (preamble.total_length == len && (preamble::LEN..=at - start).contains(&postamble.first_footer_offset))
        .then_some(len)
}
