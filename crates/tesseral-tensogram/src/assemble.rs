//! Assembly of messages around encoded objects: preamble, metadata, index, hashes, postamble.

use std::borrow::Cow;

use tesseral_core::{Error, Result};

use crate::wire::align;
use crate::wire::block_hashes::BlockHashes;
use crate::wire::cbor::CborItem;
use crate::wire::descriptor::Descriptor;
use crate::wire::frame::{self, FrameKind};
use crate::wire::index_and_hashes::{HashList, Index};
use crate::wire::metadata::{Metadata, RESERVED};
use crate::wire::object::ObjectFrame;
use crate::wire::postamble::{self, Postamble};
use crate::wire::preamble::{self, Preamble};

/// Where the list of object hashes is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AggregateHash {
    /// Before the objects of a buffered message, after those of a stream.
    #[default]
    Auto,
    /// Not stored.
    None,
    /// Before the objects.
    Header,
    /// After the objects.
    Footer,
    /// Before and after the objects.
    Both,
}

impl AggregateHash {
    fn header(self) -> bool {
        matches!(self, Self::Auto | Self::Header | Self::Both)
    }

    fn footer(self) -> bool {
        matches!(self, Self::Footer | Self::Both)
    }
}

/// The bytes around the objects of a buffered message.
#[derive(Clone, Debug)]
pub struct MessageEnvelope {
    /// Preamble and header frames.
    pub head: Vec<u8>,
    /// Footer frames and postamble.
    pub tail: Vec<u8>,
    /// Length of the message in bytes.
    pub total_length: u64,
}

fn too_long() -> Error {
    Error::limit("a message", u64::MAX, u64::MAX)
}

/// Size of a CBOR frame with a body of `len` bytes, including padding.
fn padded(body: &[u8]) -> Result<u64> {
    align(body.len() as u64 + FrameKind::HeaderIndex.min_len()).ok_or_else(too_long)
}

/// Encodes the body of a hash list.
pub fn build_hash_frame_cbor(hashes: &[u64]) -> Vec<u8> {
    hash_list(hashes, Vec::new())
}

/// As above, with the hashes of the blocks of each object.
pub(crate) fn hash_list(hashes: &[u64], mut blocks: Vec<Option<BlockHashes>>) -> Vec<u8> {
    let hashes = hashes.iter().map(|hash| format!("{hash:016x}")).collect();
    if blocks.iter().all(Option::is_none) {
        blocks.clear();
    }
    HashList { algorithm: "xxh3".to_owned(), hashes, blocks }.to_bytes()
}

/// Returns the offset of each object if the first one is at `start`, and the end of the last one including padding.
///
/// # Errors
/// `Limit` when an offset exceeds `u64`.
pub fn compute_object_offsets(start: u64, lengths: &[u64]) -> Result<(Vec<u64>, u64)> {
    let mut end = start;
    let mut offsets = Vec::with_capacity(lengths.len());
    for len in lengths {
        offsets.push(end);
        end = align(*len).and_then(|len| end.checked_add(len)).ok_or_else(too_long)?;
    }
    Ok((offsets, end))
}

/// Returns the body of the header index if the other header frames take `others` bytes, and the end of the objects.
///
/// The length of the index depends on the offsets it contains, which depend on its length. Both only grow, so the iteration
/// converges.
///
/// # Errors
/// `Limit` when an offset exceeds `u64`.
pub fn build_index_frame(others: u64, lengths: &[u64]) -> Result<(Vec<u8>, u64)> {
    let mut index = Index { offsets: vec![0; lengths.len()], lengths: lengths.to_vec() };
    let mut body = index.to_bytes();
    loop {
        let before = padded(&body)?;
        let start = others.checked_add(before).ok_or_else(too_long)?;
        let end;
        (index.offsets, end) = compute_object_offsets(start, lengths)?;
        body = index.to_bytes();
        if padded(&body)? == before {
            return Ok((body, end));
        }
    }
}

/// Preamble flags of a buffered message.
pub fn compute_message_flags(objects: usize, hashed: bool, aggregate: AggregateHash) -> u16 {
    let mut flags = preamble::HEADER_METADATA;
    let mut set = |wanted: bool, flag: u16| flags |= if wanted { flag } else { 0 };
    let some = objects > 0;
    set(some, preamble::HEADER_INDEX);
    set(hashed, preamble::HASHES_PRESENT);
    set(hashed && some && aggregate.header(), preamble::HEADER_HASHES);
    set(hashed && some && aggregate.footer(), preamble::FOOTER_HASHES);
    flags
}

/// Builds the bytes around objects with the given frame lengths and hashes.
///
/// # Errors
/// `Limit` when an offset exceeds `u64`.
pub fn surround(
    metadata: &Metadata,
    lengths: &[u64],
    hashes: &[u64],
    hashed: bool,
    aggregate: AggregateHash,
) -> Result<MessageEnvelope> {
    surround_blocks(metadata, lengths, hashes, Vec::new(), hashed, aggregate)
}

/// As above, with the hashes of the blocks of each object.
pub(crate) fn surround_blocks(
    metadata: &Metadata,
    lengths: &[u64],
    hashes: &[u64],
    blocks: Vec<Option<BlockHashes>>,
    hashed: bool,
    aggregate: AggregateHash,
) -> Result<MessageEnvelope> {
    let mut flags = compute_message_flags(lengths.len(), hashed, aggregate);
    // Hashes of blocks follow the objects, so that the position of an object does not depend on its compressed size.
    let blocks = if blocks.iter().any(Option::is_some) { blocks } else { Vec::new() };
    if !blocks.is_empty() && flags & preamble::HASHES_PRESENT != 0 {
        flags |= preamble::FOOTER_HASHES;
    }
    let metadata = metadata.to_bytes();
    let header_list = build_hash_frame_cbor(hashes);
    let footer_list =
        if flags & preamble::FOOTER_HASHES != 0 { hash_list(hashes, blocks) } else { Vec::new() };
    let mut others = preamble::LEN + padded(&metadata)?;
    if flags & preamble::HEADER_HASHES != 0 {
        others += padded(&header_list)?;
    }
    let (index, end) =
        if lengths.is_empty() { (Vec::new(), others) } else { build_index_frame(others, lengths)? };
    let mut total_length = end.checked_add(postamble::LEN).ok_or_else(too_long)?;
    if flags & preamble::FOOTER_HASHES != 0 {
        total_length = total_length.checked_add(padded(&footer_list)?).ok_or_else(too_long)?;
    }
    let mut head = Vec::new();
    Preamble { flags, total_length }.write(&mut head);
    frame::write(FrameKind::HeaderMetadata, &metadata, hashed, &mut head);
    if !lengths.is_empty() {
        frame::write(FrameKind::HeaderIndex, &index, hashed, &mut head);
    }
    if flags & preamble::HEADER_HASHES != 0 {
        frame::write(FrameKind::HeaderHash, &header_list, hashed, &mut head);
    }
    let mut tail = Vec::new();
    if flags & preamble::FOOTER_HASHES != 0 {
        frame::write(FrameKind::FooterHash, &footer_list, hashed, &mut tail);
    }
    Postamble { first_footer_offset: end, total_length }.write(&mut tail);
    Ok(MessageEnvelope { head, tail, total_length })
}

/// Assembles a message in one buffer, reusing the buffer of the first object if there is one.
///
/// # Errors
/// `Limit` when the allocation fails.
pub fn assemble_message(surround: &MessageEnvelope, objects: Vec<ObjectFrame<'_>>) -> Result<Vec<u8>> {
    let no_room = || Error::limit("a message in memory", surround.total_length, usize::MAX as u64);
    let total = usize::try_from(surround.total_length).map_err(|_| no_room())?;
    // Objects are dropped one by one, so that payloads are not in memory twice.
    let mut objects = objects.into_iter();
    let mut out = match objects.next() {
        Some(first) => first.behind(&surround.head, total).map_err(|_| no_room())?,
        None => surround.head.clone(),
    };
    for object in objects {
        object.write(|bytes| {
            out.extend_from_slice(bytes);
            Ok::<(), Error>(())
        })?;
    }
    out.extend_from_slice(&surround.tail);
    debug_assert_eq!(out.len(), total);
    // The buffer was allocated for the compressor's upper bound.
    out.shrink_to_fit();
    Ok(out)
}

/// An encoded message that is not yet assembled.
#[derive(Clone, Debug)]
pub struct EncodedMessage<'a> {
    surround: MessageEnvelope,
    objects: Vec<ObjectFrame<'a>>,
}

impl<'a> EncodedMessage<'a> {
    /// Creates a message from metadata and encoded objects. Either all or none of them must be hashed.
    ///
    /// # Errors
    /// `Limit` when an offset exceeds `u64`.
    pub fn new(
        metadata: &Metadata,
        objects: Vec<ObjectFrame<'a>>,
        hashed: bool,
        aggregate: AggregateHash,
    ) -> Result<Self> {
        let lengths: Vec<u64> = objects.iter().map(ObjectFrame::total_length).collect();
        let hashes: Vec<u64> = objects.iter().map(ObjectFrame::hash).collect();
        let blocks = objects.iter().map(|object| object.blocks().cloned()).collect();
        let surround = surround_blocks(metadata, &lengths, &hashes, blocks, hashed, aggregate)?;
        Ok(Self { surround, objects })
    }

    /// Returns the bytes in order as pieces: header, three pieces per object with the payload in the middle, footer.
    /// Uncompressed payloads are borrowed.
    pub fn into_parts(self) -> Vec<Cow<'a, [u8]>> {
        let mut parts = vec![Cow::Owned(self.surround.head)];
        parts.extend(self.objects.into_iter().flat_map(ObjectFrame::into_parts));
        parts.push(Cow::Owned(self.surround.tail));
        parts
    }

    /// Returns whether payloads are borrowed.
    pub fn borrows(&self) -> bool {
        self.objects.iter().any(ObjectFrame::borrows)
    }

    /// Length of the message in bytes.
    pub fn total_length(&self) -> u64 {
        self.surround.total_length
    }

    /// Assembles the message in a buffer of exactly its length. Payload buffers are reused by the next message of the thread.
    ///
    /// # Errors
    /// `InvalidRequest` when the length of the buffer differs.
    pub fn copy_to(self, out: &mut [u8]) -> Result<()> {
        let other = || Error::invalid("the length of the buffer differs from the length of the message");
        let mut at = 0;
        let mut put = |bytes: &[u8]| -> Result<()> {
            out.get_mut(at..at + bytes.len()).ok_or_else(other)?.copy_from_slice(bytes);
            at += bytes.len();
            Ok(())
        };
        put(&self.surround.head)?;
        for object in self.objects {
            object.write(&mut put)?;
            object.recycle();
        }
        put(&self.surround.tail)?;
        if at == out.len() { Ok(()) } else { Err(other()) }
    }

    /// Assembles the message in one buffer. See [`assemble_message`].
    ///
    /// # Errors
    /// `Limit` when the allocation fails.
    pub fn into_bytes(self) -> Result<Vec<u8>> {
        assemble_message(&self.surround, self.objects)
    }
}

/// Assembles a message from metadata and encoded objects. Either all or none of them must be hashed.
///
/// # Errors
/// `Limit` when the allocation fails.
pub fn encode_message(
    metadata: &Metadata,
    objects: Vec<ObjectFrame<'_>>,
    hashed: bool,
    aggregate: AggregateHash,
) -> Result<Vec<u8>> {
    EncodedMessage::new(metadata, objects, hashed, aggregate)?.into_bytes()
}

/// Returns the reserved keys of an object's metadata entry.
pub(crate) fn tensor_item(descriptor: &Descriptor) -> CborItem {
    let list = |numbers: &[u64]| CborItem::Array(numbers.iter().copied().map(CborItem::UInt).collect());
    let tensor = CborItem::map([
        ("ndim", CborItem::UInt(descriptor.shape.len() as u64)),
        ("dtype", CborItem::Text(descriptor.dtype.to_string())),
        ("shape", list(&descriptor.shape)),
        ("strides", list(&descriptor.strides)),
    ]);
    CborItem::map([("tensor", tensor)])
}

/// Completes the metadata to one entry per object, each with its reserved keys.
///
/// # Errors
/// `Corrupt` when there are more entries than objects.
pub(crate) fn complete<'a>(
    metadata: &mut Metadata,
    objects: impl ExactSizeIterator<Item = &'a Descriptor>,
) -> Result<()> {
    if metadata.base.len() > objects.len() {
        let detail = format!("`base` has {} entries for {} objects", metadata.base.len(), objects.len());
        return Err(Error::corrupt("metadata", "the message to be written", None, detail));
    }
    metadata.base.resize(objects.len(), Default::default());
    for (entry, descriptor) in metadata.base.iter_mut().zip(objects) {
        entry.insert(RESERVED.to_owned(), tensor_item(descriptor));
    }
    Ok(())
}

/// Rejects reserved keys.
///
/// # Errors
/// `Corrupt`, with the path of the key.
pub(crate) fn refuse_reserved(metadata: &Metadata) -> Result<()> {
    let at = match metadata.base.iter().position(|entry| entry.contains_key(RESERVED)) {
        _ if !metadata.reserved.is_empty() => RESERVED.to_owned(),
        Some(number) => format!("base[{number}].{RESERVED}"),
        None => return Ok(()),
    };
    Err(Error::corrupt("metadata", "the message to be written", None, format!("key {at} is reserved")))
}
