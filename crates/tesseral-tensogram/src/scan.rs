//! Where the messages of a file are, and what lies between them.

use std::collections::HashSet;

use memchr::memmem::Finder;
use tesseral_core::{ErrorKind, Result};

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
}

#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub messages: Vec<Span>,
    pub skipped: Vec<Skipped>,
}

/// Why no message begins at a place.
pub(crate) struct Refused {
    pub check: &'static str,
    pub detail: String,
    /// The message is of this other version.
    pub version: Option<String>,
}

fn refuse<T>(check: &'static str, detail: impl Into<String>) -> Result<std::result::Result<T, Refused>> {
    Ok(Err(Refused { check, detail: detail.into(), version: None }))
}

/// Finds every message. Hops from one to the next; where there is none, searches for the next magic.
pub(crate) fn scan<I: Input>(source: &I) -> Result<Scan> {
    let mut scan = Scan::default();
    // Frames from which no message's end was reached, so that overlapping candidates do not walk them again.
    let mut dead = HashSet::new();
    let magic = Finder::new(&preamble::MAGIC);
    let mut at = 0;
    while at < source.len() {
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
        let next = source.find(&magic, at + 1, source.len())?.unwrap_or(source.len());
        let begun = refused.as_ref().is_some_and(|refused| refused.version.is_none());
        match scan.skipped.last_mut() {
            // Garbage that goes on, also over candidates inside a damaged message.
            Some(last) if goes_on && !begun => last.len += next - at,
            _ => {
                let Refused { check, detail, version } = refused.unwrap_or_else(|| Refused {
                    check: "garbage",
                    detail: "no message begins here".to_owned(),
                    version: None,
                });
                scan.skipped.push(Skipped { offset: at, len: next - at, check, detail, begun, version });
            }
        }
        at = next;
    }
    Ok(scan)
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
            return Ok(Err(Refused { check: "preamble_parse_failed", detail, version }));
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
        return refuse("total_length_exceeds_buffer", detail);
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
    let refused = loop {
        let key = (at, start % 8);
        let bytes = source.some(at, postamble::LEN)?;
        if dead.contains(&key) {
            break ("frame_exceeds_message", "its frames lead nowhere".to_owned());
        }
        seen.push(key);
        // A frame comes first: what follows its header may look like an end, while no end begins like a frame.
        if !bytes.starts_with(&FRAME) {
            if bytes.len() as u64 == postamble::LEN && bytes.ends_with(&postamble::MAGIC) {
                return Ok(Ok(at + postamble::LEN - start));
            }
            break ("postamble_invalid", format!("neither a frame nor the end at {at}"));
        }
        let header = &bytes[..bytes.len().min(HEADER_LEN as usize)];
        match read_frame(source, at, source.len(), header)? {
            Ok(frame) => at = start + align(frame.end() - start).unwrap_or(u64::MAX - start),
            Err(why) => break why,
        }
    };
    dead.extend(seen);
    refuse(refused.0, refused.1)
}
