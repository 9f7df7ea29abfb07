//! Parts of object headers that the parser crate drops: the flags of a layout message, the layout of virtual datasets, and the
//! creation order of attributes.
//!
//! Object headers are lists of messages in one or several blocks; a continuation message names the next block.

use std::collections::{HashMap, HashSet};
use std::ops::{ControlFlow, Range};

use hdf5_reader::checksum::jenkins_lookup3;
use tesseral_core::{Error, Result};

use crate::file::File;

/// Message types.
const LAYOUT: u16 = 8;
const ATTRIBUTE: u16 = 12;
const CONTINUATION: u16 = 16;
/// Layout classes, and the first version of the message that has flags and virtual datasets.
const COMPACT: u8 = 0;
const CHUNKED: u8 = 2;
const VIRTUAL: u8 = 3;
const FLAGGED: u8 = 4;
/// The flag for chunks that reach beyond the dataset and are stored without filters.
const UNFILTERED_EDGES: u8 = 1;
/// Signatures of the blocks of version 2.
const FIRST: &[u8; 4] = b"OHDR";
const NEXT: &[u8; 4] = b"OCHK";
/// Bytes of a checksum.
const CHECKSUM: u64 = 4;

/// Returns whether the layout of the object header at `address` declares that partial edge chunks are not filtered.
pub(crate) fn has_unfiltered_edges(file: &File, address: u64) -> Result<bool> {
    let mut flagged = None;
    visit_messages(file, address, |message| {
        if message.kind != LAYOUT {
            return ControlFlow::Continue(());
        }
        flagged =
            Some(matches!(message.body, [(FLAGGED..), CHUNKED, flags, ..] if flags & UNFILTERED_EDGES != 0));
        ControlFlow::Break(())
    })?;
    flagged.ok_or_else(|| {
        let object = file.storage.describe();
        Error::corrupt("an object header", object, address, "the layout message is missing")
    })
}

/// Where the mappings of a virtual dataset are: an object of a global heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VirtualLayout {
    pub(crate) address: u64,
    pub(crate) index: u32,
}

/// Bytes that take the place of others in a file, with their addresses.
pub(crate) type Patches = Vec<(u64, Vec<u8>)>;

/// The layout of the virtual dataset whose object header is at `address`, and the bytes by which the header is shown to the parser,
/// which does not know this layout: a compact one of the same length, and the checksum of that. `None` for other layouts.
pub(crate) fn virtual_layout(file: &File, address: u64) -> Result<Option<(VirtualLayout, Patches)>> {
    let mut found = None;
    visit_messages(file, address, |message| {
        if message.kind != LAYOUT {
            return ControlFlow::Continue(());
        }
        if let [(FLAGGED..), VIRTUAL, rest @ ..] = message.body {
            let width = usize::from(file.offset_size);
            let heap = rest.get(..width).map(little).zip(rest.get(width..width + 4).map(little));
            found = heap.map(|heap| (heap, message.at, message.body.len(), message.covered));
        }
        ControlFlow::Break(())
    })?;
    let Some(((heap, index), at, len, covered)) = found else { return Ok(None) };
    // The lengths of messages have two bytes.
    let (size, index) = (u16::try_from(len - 4).unwrap_or(0), u32::try_from(index).unwrap_or(0));
    let mut shown = vec![3, COMPACT];
    shown.extend_from_slice(&size.to_le_bytes());
    let mut patches = vec![(at, shown)];
    if let Some(covered) = covered {
        let mut block = file.storage.read(covered.start, covered.end.saturating_sub(covered.start))?.to_vec();
        let start = at.checked_sub(covered.start).and_then(|start| usize::try_from(start).ok());
        let place = start.and_then(|start| block.get_mut(start..start + 4));
        let place = place.ok_or_else(|| Error::internal("a message outside its block"))?;
        place.copy_from_slice(&patches[0].1);
        patches.push((covered.end, jenkins_lookup3(&block).to_le_bytes().to_vec()));
    }
    Ok(Some((VirtualLayout { address: heap, index }, patches)))
}

/// The creation order of the attributes in the object header at `address`, by name; empty where it is not tracked. The messages
/// themselves are in this order only as long as no attribute was replaced.
pub(crate) fn attribute_order(file: &File, address: u64) -> Result<HashMap<Vec<u8>, u64>> {
    let mut orders = HashMap::new();
    visit_messages(file, address, |message| {
        if let (ATTRIBUTE, Some(order), Some(name)) =
            (message.kind, message.order, attribute_name(message.body))
        {
            orders.insert(name.to_vec(), order);
        }
        ControlFlow::Continue(())
    })?;
    Ok(orders)
}

/// The name in an attribute message: after the version, flags, and three lengths, and from version 3 on the character set.
fn attribute_name(body: &[u8]) -> Option<&[u8]> {
    let start = if *body.first()? >= 3 { 9 } else { 8 };
    let len = usize::try_from(little(body.get(2..4)?)).ok()?;
    body.get(start..start + len)?.split(|byte| *byte == 0).next()
}

/// Passes each message of the object header at `address` to `visit` until that breaks.
fn visit_messages(
    file: &File,
    address: u64,
    mut visit: impl FnMut(HeaderMessage<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let mut blocks = vec![first_block(file, address)?];
    let mut seen = HashSet::new();
    while let Some(block) = blocks.pop() {
        if !seen.insert(block.start) {
            continue;
        }
        let bytes = file.storage.read(block.start, block.len)?;
        let mut rest = &bytes[..];
        while let Some((mut message, after)) = message(rest, block.head) {
            let end = bytes.len() - after.len();
            message.at = block.start.saturating_add((end - message.body.len()) as u64);
            message.covered = block.covered.clone();
            if message.kind == CONTINUATION {
                blocks.extend(continuation(file, message.body, block.head));
            }
            if visit(message).is_break() {
                return Ok(());
            }
            rest = after;
        }
    }
    Ok(())
}

/// A message of an object header.
struct HeaderMessage<'a> {
    kind: u16,
    /// The creation order, where the header tracks it.
    order: Option<u64>,
    body: &'a [u8],
    /// Address of the body.
    at: u64,
    /// The bytes before the checksum of the block, if it has one.
    covered: Option<Range<u64>>,
}

/// A run of messages, and the form of their heads.
struct MessageBlock {
    start: u64,
    len: u64,
    head: MessageHead,
    /// The bytes before the checksum, which covers them.
    covered: Option<Range<u64>>,
}

/// The form of the head of a message.
#[derive(Clone, Copy)]
enum MessageHead {
    /// Type, length, flags and padding.
    Version1,
    /// Type, length, flags and the order of creation if it is tracked.
    Version2 { ordered: bool },
}

fn first_block(file: &File, address: u64) -> Result<MessageBlock> {
    let short = |at: u64, n: u64| file.storage.read(at, n);
    let prefix = short(address, 16)?;
    if !prefix.starts_with(FIRST) {
        let len = little(&prefix[8..12]);
        let start = address.saturating_add(16);
        return Ok(MessageBlock { start, len, head: MessageHead::Version1, covered: None });
    }
    let flags = prefix[5];
    let times = if flags & 0x20 != 0 { 16 } else { 0 };
    let phases = if flags & 0x10 != 0 { 4 } else { 0 };
    let width = 1 << (flags & 3);
    let at = address.saturating_add(6 + times + phases);
    let len = little(&short(at, width)?);
    let head = MessageHead::Version2 { ordered: flags & 4 != 0 };
    let start = at.saturating_add(width);
    Ok(MessageBlock { start, len, head, covered: Some(address..start.saturating_add(len)) })
}

/// The block that a continuation message names.
fn continuation(file: &File, body: &[u8], head: MessageHead) -> Option<MessageBlock> {
    let offset_size = usize::from(file.offset_size);
    let start = little(body.get(..offset_size)?);
    let len = little(body.get(offset_size..offset_size + usize::from(file.length_size))?);
    match head {
        MessageHead::Version1 => Some(MessageBlock { start, len, head, covered: None }),
        MessageHead::Version2 { .. } => {
            let (around, from) = (NEXT.len() as u64, start);
            let (start, len) = (start.checked_add(around)?, len.checked_sub(around + CHECKSUM)?);
            Some(MessageBlock { start, len, head, covered: Some(from..start.checked_add(len)?) })
        }
    }
}

/// The first message, and what follows it; `None` at the end.
fn message(bytes: &[u8], head: MessageHead) -> Option<(HeaderMessage<'_>, &[u8])> {
    let (kind, len, order, head) = match head {
        MessageHead::Version1 => (little(bytes.get(..2)?), little(bytes.get(2..4)?), None, 8),
        MessageHead::Version2 { ordered } => {
            let order = if ordered { Some(little(bytes.get(4..6)?)) } else { None };
            (u64::from(*bytes.first()?), little(bytes.get(1..3)?), order, if ordered { 6 } else { 4 })
        }
    };
    let end = head + usize::try_from(len).ok()?;
    let (kind, body) = (u16::try_from(kind).ok()?, bytes.get(head..end)?);
    Some((HeaderMessage { kind, order, body, at: 0, covered: None }, bytes.get(end..)?))
}

fn little(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}
