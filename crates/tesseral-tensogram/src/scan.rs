//! Where the messages of a file are, and what lies between them.

use std::collections::HashSet;

use memchr::memmem::Finder;
use tesseral_core::{Cancel, ErrorKind, Result};

use crate::message::read_frame;
use crate::source::Input;
use crate::wire::align;
use crate::wire::frame::{HEADER_LEN, MAGIC as FRAME};
use crate::wire::postamble;
use crate::wire::preamble::{self, Preamble};

/// Where a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub offset: u64,
    pub len: u64,
}

/// Bytes that belong to no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub offset: u64,
    pub len: u64,
    /// The reference's name of what is wrong, where a message begins there.
    pub check: &'static str,
    pub detail: String,
    /// A message of our version begins there, and is cut or damaged.
    pub begun: bool,
    /// A message of another version begins there.
    pub version: Option<String>,
    /// The message that begins there runs past the end of the file.
    pub truncated: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub messages: Vec<Span>,
    pub skipped: Vec<Skipped>,
}

/// Whether a file is empty or ends as a message does.
pub(crate) fn ends_whole<I: Input>(source: &I) -> Result<bool> {
    let magic = postamble::MAGIC.len() as u64;
    let last = source.some(source.len().saturating_sub(magic), magic)?;
    Ok(last.is_empty() || last[..] == postamble::MAGIC)
}

/// The truncated message that a file ends with, if it does: what a writer leaves that was stopped midway. Takes one look at files
/// that end with a whole message, whatever their length.
///
/// Bytes count as a truncated message only when they begin with a preamble of this version, the message that it announces runs past
/// the end of the file, and no message ends where the file does. Anything else may be worth keeping to someone.
pub(crate) fn truncated_tail<I: Input>(source: &I, cancel: &Cancel) -> Result<Option<Skipped>> {
    if ends_whole(source)? {
        return Ok(None);
    }
    let found = scan(source, cancel)?;
    let mut end = source.len();
    let mut tail = None;
    // Candidates inside a truncated message are skipped ranges of their own: the first one counts.
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

/// Why no message begins at a place.
pub(crate) struct Refused {
    pub check: &'static str,
    pub detail: String,
    /// The message is of this other version.
    pub version: Option<String>,
    /// The message runs past the end of the file.
    pub truncated: bool,
}

fn refuse<T>(check: &'static str, detail: impl Into<String>) -> Result<std::result::Result<T, Refused>> {
    Ok(Err(Refused { check, detail: detail.into(), version: None, truncated: false }))
}

/// Finds every message. Hops from one to the next; where there is none, searches for the next magic.
pub(crate) fn scan<I: Input>(source: &I, cancel: &Cancel) -> Result<Scan> {
    let mut scan = Scan::default();
    // Frames from which no message's end was reached, so that overlapping candidates do not walk them again.
    let mut dead = HashSet::new();
    let magic = Finder::new(&preamble::MAGIC);
    let mut at = 0;
    while at < source.len() {
        cancel.check()?;
        let start = source.some(at, preamble::LEN)?;
        let begins = start.starts_with(&preamble::MAGIC);
        // Garbage full of magics is passed without a word on each.
        let goes_on = scan.skipped.last().is_some_and(|last| last.offset + last.len == at);
        let other = start.get(8..10).is_none_or(|version| version != preamble::VERSION.to_be_bytes());
        let refused = if begins && !(goes_on && other) {
            match message_at(source, at, &mut dead)? {
                Ok(len) => {
                    scan.messages.push(Span { offset: at, len });
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
            // Garbage that goes on, also over candidates inside a damaged message.
            Some(last) if goes_on && !begun => last.len += next - at,
            _ => {
                let Refused { check, detail, version, truncated } = refused.unwrap_or_else(|| Refused {
                    check: "garbage",
                    detail: "no message begins here".to_owned(),
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

/// Where the next magic begins, or the end of the file.
fn next_magic<I: Input>(source: &I, magic: &Finder<'_>, mut from: u64, cancel: &Cancel) -> Result<u64> {
    /// Bytes that are searched between two looks at whether to go on.
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

/// The length of the message that begins at `at`, or why there is none.
pub(crate) fn message_at<I: Input>(
    source: &I,
    at: u64,
    dead: &mut HashSet<(u64, u64)>,
) -> Result<std::result::Result<u64, Refused>> {
    let bytes = source.some(at, preamble::LEN)?;
    let preamble = match Preamble::parse(&bytes, source.name(), at) {
        Ok(preamble) => preamble,
        Err(error) => {
            let (detail, version) = match error.kind() {
                ErrorKind::Unsupported { feature } => (error.to_string(), Some(feature.clone())),
                ErrorKind::Corrupt { detail, .. } => (detail.clone(), None),
                _ => (error.to_string(), None),
            };
            let truncated = version.is_none() && (bytes.len() as u64) < preamble::LEN;
            return Ok(Err(Refused { check: "preamble_parse_failed", detail, version, truncated }));
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
        let detail = format!("the message has {total} bytes, {left} are there: the file may be cut short");
        let (check, version) = ("total_length_exceeds_buffer", None);
        return Ok(Err(Refused { check, detail, version, truncated: true }));
    }
    let end = source.get(at + total - 8..at + total, "postamble")?;
    if end[..] != postamble::MAGIC {
        return refuse("postamble_invalid", format!("no message ends {total} bytes on"));
    }
    Ok(Ok(total))
}

/// A message that does not say how long it is: its frames lead to its end, whatever their payloads hold.
fn streamed<I: Input>(
    source: &I,
    start: u64,
    dead: &mut HashSet<(u64, u64)>,
) -> Result<std::result::Result<u64, Refused>> {
    let mut at = start + preamble::LEN;
    let mut seen = Vec::new();
    let (check, detail, truncated) = loop {
        let key = (at, start % 8);
        let bytes = source.some(at, postamble::LEN)?;
        if dead.contains(&key) {
            break ("frame_exceeds_message", "its frames lead nowhere".to_owned(), false);
        }
        seen.push(key);
        // A frame comes first: what follows its header may look like an end, while no end begins like a frame.
        if !bytes.starts_with(&FRAME) {
            if bytes.len() as u64 == postamble::LEN && bytes.ends_with(&postamble::MAGIC) {
                return Ok(Ok(at + postamble::LEN - start));
            }
            let truncated = (bytes.len() as u64) < postamble::LEN;
            break ("postamble_invalid", format!("neither a frame nor the end at {at}"), truncated);
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
    Ok(Err(Refused { check, detail, version: None, truncated }))
}
