//! Scan of a file for messages and the bytes between them.

use std::collections::HashSet;

use memchr::memmem::Finder;
use tesseral_core::{Cancel, ErrorKind, Result};

use crate::message::read_frame;
use crate::source::{Input, MessageBytes};
use crate::wire::align;
use crate::wire::frame::{HEADER_LEN, MAGIC as FRAME};
use crate::wire::postamble;
use crate::wire::preamble::{self, Preamble};

/// Boundaries of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageRange {
    pub offset: u64,
    pub len: u64,
}

/// A byte range outside messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub offset: u64,
    pub len: u64,
    /// Name of the failed check, as in the reference, if a message begins here.
    pub check: &'static str,
    pub detail: String,
    /// A message of the supported version begins here and is truncated or damaged.
    pub begun: bool,
    /// A message of another version begins here.
    pub version: Option<String>,
    /// The message that begins here exceeds the end of the file.
    pub truncated: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub messages: Vec<MessageRange>,
    pub skipped: Vec<Skipped>,
}

/// Returns whether a file is empty or ends with a complete message.
pub(crate) fn ends_whole<I: Input>(source: &I) -> Result<bool> {
    let magic = postamble::MAGIC.len() as u64;
    let last = source.read_at_most(source.len().saturating_sub(magic), magic)?;
    Ok(last.is_empty() || last[..] == postamble::MAGIC)
}

/// Returns the truncated message at the end of a file, as left by an interrupted writer. Reads only the end of files that end
/// with a complete message.
///
/// Trailing bytes are a truncated message only if they begin with a preamble of this version, the announced length exceeds the
/// end of the file, and no message ends at the end of the file. Other bytes are never removed.
pub(crate) fn truncated_tail<I: Input>(source: &I, cancel: &Cancel) -> Result<Option<Skipped>> {
    if ends_whole(source)? {
        return Ok(None);
    }
    let found = scan(source, cancel)?;
    let mut end = source.len();
    let mut tail = None;
    // Candidates inside a truncated message are separate skipped ranges; the first one is relevant.
    for skipped in found.skipped.iter().rev() {
        if skipped.offset + skipped.len != end {
            break;
        }
        end = skipped.offset;
        if skipped.truncated {
            tail = Some(skipped);
        }
    }
    Ok(tail.map(|tail| Skipped { len: source.len() - tail.offset, ..tail.clone() }))
}

/// Reason why no message begins at an offset.
pub(crate) struct NotAMessage {
    pub check: &'static str,
    pub detail: String,
    /// The message has this other version.
    pub version: Option<String>,
    /// The message exceeds the end of the file.
    pub truncated: bool,
}

fn refuse<T>(check: &'static str, detail: impl Into<String>) -> Result<std::result::Result<T, NotAMessage>> {
    Ok(Err(NotAMessage { check, detail: detail.into(), version: None, truncated: false }))
}

/// Scans all messages. Follows the lengths; where there is no message, searches for the next magic.
pub(crate) fn scan<I: Input>(source: &I, cancel: &Cancel) -> Result<Scan> {
    let mut scan = Scan::default();
    // Frames that lead to no postamble, so that overlapping candidates do not parse them again.
    let mut dead = HashSet::new();
    let magic = Finder::new(&preamble::MAGIC);
    let mut at = 0;
    while at < source.len() {
        cancel.check()?;
        let start = source.read_at_most(at, preamble::LEN)?;
        let begins = start.starts_with(&preamble::MAGIC);
        // Repeated magics in garbage are not reported individually.
        let goes_on = scan.skipped.last().is_some_and(|last| last.offset + last.len == at);
        let other = start.get(8..10).is_none_or(|version| version != preamble::VERSION.to_be_bytes());
        let refused = if begins && !(goes_on && other) {
            match message_at(source, at, &mut dead)? {
                Ok(len) => {
                    scan.messages.push(MessageRange { offset: at, len });
                    at += len;
                    continue;
                }
                Err(refused) => Some(refused),
            }
        } else {
            None
        };
        let next = next_magic(source, &magic, at + 1, cancel)?;
        let begun = refused.as_ref().is_some_and(|refused| refused.version.is_none());
        match scan.skipped.last_mut() {
            // Extend the current garbage range, also over candidates inside a damaged message.
            Some(last) if goes_on && !begun => last.len += next - at,
            _ => {
                let NotAMessage { check, detail, version, truncated } =
                    refused.unwrap_or_else(|| NotAMessage {
                        check: "garbage",
                        detail: "no message magic".to_owned(),
                        version: None,
                        truncated: false,
                    });
                let len = next - at;
                scan.skipped.push(Skipped { offset: at, len, check, detail, begun, version, truncated });
            }
        }
        at = next;
    }
    Ok(scan)
}

/// As [`scan`], of a file.
pub(crate) fn scan_source(source: &MessageBytes, cancel: &Cancel) -> Result<Scan> {
    match source.as_slice() {
        Some(slice) => scan(&slice, cancel),
        None => scan(source, cancel),
    }
}

/// Returns the offset of the next magic, or the end of the file.
fn next_magic<I: Input>(source: &I, magic: &Finder<'_>, mut from: u64, cancel: &Cancel) -> Result<u64> {
    /// Number of bytes searched between checks for cancellation.
    const STEP: u64 = 64 << 20;
    let overlap = preamble::MAGIC.len() as u64 - 1;
    while from < source.len() {
        cancel.check()?;
        let end = from.saturating_add(STEP + overlap);
        if let Some(found) = source.find(magic, from, end)? {
            return Ok(found);
        }
        from = from.saturating_add(STEP);
    }
    Ok(source.len())
}

/// Returns the length of the message at `at`, or the reason why there is none.
pub(crate) fn message_at<I: Input>(
    source: &I,
    at: u64,
    dead: &mut HashSet<(u64, u64)>,
) -> Result<std::result::Result<u64, NotAMessage>> {
    let bytes = source.read_at_most(at, preamble::LEN)?;
    let preamble = match Preamble::parse(&bytes, source.name(), at) {
        Ok(preamble) => preamble,
        Err(error) => {
            let (detail, version) = match error.kind() {
                ErrorKind::Unsupported { feature } => (error.to_string(), Some(feature.clone())),
                ErrorKind::Corrupt { detail, .. } => (detail.clone(), None),
                _ => (error.to_string(), None),
            };
            let truncated = version.is_none() && (bytes.len() as u64) < preamble::LEN;
            return Ok(Err(NotAMessage { check: "preamble_parse_failed", detail, version, truncated }));
        }
    };
    let left = source.len() - at;
    let total = preamble.total_length;
    if total == 0 {
        return streamed(source, at, dead);
    }
    if total < preamble::LEN + postamble::LEN {
        return refuse("total_length_too_small", format!("a message of {total} bytes"));
    }
    if total > left {
        let detail = format!("message truncated: expected {total} bytes, found {left}");
        let (check, version) = ("total_length_exceeds_buffer", None);
        return Ok(Err(NotAMessage { check, detail, version, truncated: true }));
    }
    if total < left {
        source.expect(at + total, total);
    }
    let end = source.get(at + total - 8..at + total, "postamble")?;
    if end[..] != postamble::MAGIC {
        return refuse("postamble_invalid", format!("missing end magic after {total} bytes"));
    }
    Ok(Ok(total))
}

/// Returns the length of a message without a declared length by following its frames.
fn streamed<I: Input>(
    source: &I,
    start: u64,
    dead: &mut HashSet<(u64, u64)>,
) -> Result<std::result::Result<u64, NotAMessage>> {
    let mut at = start + preamble::LEN;
    let mut seen = Vec::new();
    let (check, detail, truncated) = loop {
        let key = (at, start % 8);
        let bytes = source.read_at_most(at, postamble::LEN)?;
        if dead.contains(&key) {
            break ("frame_exceeds_message", "the frames lead to no postamble".to_owned(), false);
        }
        seen.push(key);
        // Check for a frame first: bytes after a frame header can look like a postamble, but no postamble begins like a frame.
        if !bytes.starts_with(&FRAME) {
            if bytes.len() as u64 == postamble::LEN && bytes.ends_with(&postamble::MAGIC) {
                return Ok(Ok(at + postamble::LEN - start));
            }
            let truncated = (bytes.len() as u64) < postamble::LEN;
            break ("postamble_invalid", format!("expected a frame or the postamble at {at}"), truncated);
        }
        let header = &bytes[..bytes.len().min(HEADER_LEN as usize)];
        match read_frame(source, at, source.len(), header)? {
            Ok(frame) => at = start + align(frame.end() - start).unwrap_or(u64::MAX - start),
            Err((check, detail)) => {
                let truncated = matches!(check, "truncated_frame_header" | "frame_exceeds_message");
                break (check, detail, truncated);
            }
        }
    };
    dead.extend(seen);
    Ok(Err(NotAMessage { check, detail, version: None, truncated }))
}
