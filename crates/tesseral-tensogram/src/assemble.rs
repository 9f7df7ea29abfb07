//! What surrounds the objects of a message: preamble, metadata, index, hashes, postamble.

use std::borrow::Cow;

use tesseral_core::{Error, Result};

use crate::wire::align;
use crate::wire::cbor::Item;
use crate::wire::descriptor::Descriptor;
use crate::wire::frame::{self, Kind};
use crate::wire::lists::{HashList, Index};
use crate::wire::metadata::{Metadata, RESERVED};
use crate::wire::object::ObjectFrame;
use crate::wire::postamble::{self, Postamble};
use crate::wire::preamble::{self, Preamble};

/// Where the list of the objects' hashes goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AggregateHash {
    /// Where it suits: before the objects of a message made in one go, after those of a stream.
    #[default]
    Auto,
    /// Nowhere.
    None,
    /// Before the objects.
    Header,
    /// After the objects.
    Footer,
    /// Both.
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

/// The bytes around the objects of a message that is made in one go.
#[derive(Clone, Debug)]
pub struct Surround {
    /// Preamble and the frames before the objects.
    pub head: Vec<u8>,
    /// Frames after the objects, and the postamble.
    pub tail: Vec<u8>,
    /// Bytes of the whole message.
    pub total_length: u64,
}

fn too_long() -> Error {
    Error::limit("a message", u64::MAX, u64::MAX)
}

/// Bytes of a frame of CBOR with a body of that length, padded.
fn padded(body: &[u8]) -> Result<u64> {
    align(body.len() as u64 + Kind::HeaderIndex.min_len()).ok_or_else(too_long)
}

/// The body of a hash list.
pub fn build_hash_frame_cbor(hashes: &[u64]) -> Vec<u8> {
    let hashes = hashes.iter().map(|hash| format!("{hash:016x}")).collect();
    HashList { algorithm: "xxh3".to_owned(), hashes }.to_bytes()
}

/// Where each object begins when the first does at `start`, and where the last one's padding ends.
///
/// # Errors
/// `Limit` beyond `u64`.
pub fn compute_object_offsets(start: u64, lengths: &[u64]) -> Result<(Vec<u64>, u64)> {
    let mut end = start;
    let mut offsets = Vec::with_capacity(lengths.len());
    for len in lengths {
        offsets.push(end);
        end = align(*len).and_then(|len| end.checked_add(len)).ok_or_else(too_long)?;
    }
    Ok((offsets, end))
}

/// The body of the index before the objects, where the other frames before them take `others` bytes, and where the objects
/// end.
///
/// The index says where objects are, and they are after it: its length grows with the offsets it holds, until both agree.
/// Offsets only ever grow with it, so that comes.
///
/// # Errors
/// `Limit` beyond `u64`.
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

/// The preamble's flags of a message made in one go.
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

/// Makes the bytes around objects whose frames have these lengths and hashes.
///
/// # Errors
/// `Limit` beyond `u64`.
pub fn surround(
    metadata: &Metadata,
    lengths: &[u64],
    hashes: &[u64],
    hashed: bool,
    aggregate: AggregateHash,
) -> Result<Surround> {
    let flags = compute_message_flags(lengths.len(), hashed, aggregate);
    let metadata = metadata.to_bytes();
    let hash_list = build_hash_frame_cbor(hashes);
    let mut others = preamble::LEN + padded(&metadata)?;
    if flags & preamble::HEADER_HASHES != 0 {
        others += padded(&hash_list)?;
    }
    let (index, end) =
        if lengths.is_empty() { (Vec::new(), others) } else { build_index_frame(others, lengths)? };
    let mut total_length = end.checked_add(postamble::LEN).ok_or_else(too_long)?;
    if flags & preamble::FOOTER_HASHES != 0 {
        total_length = total_length.checked_add(padded(&hash_list)?).ok_or_else(too_long)?;
    }
    let mut head = Vec::new();
    Preamble { flags, total_length }.write(&mut head);
    frame::write(Kind::HeaderMetadata, &metadata, hashed, &mut head);
    if !lengths.is_empty() {
        frame::write(Kind::HeaderIndex, &index, hashed, &mut head);
    }
    if flags & preamble::HEADER_HASHES != 0 {
        frame::write(Kind::HeaderHash, &hash_list, hashed, &mut head);
    }
    let mut tail = Vec::new();
    if flags & preamble::FOOTER_HASHES != 0 {
        frame::write(Kind::FooterHash, &hash_list, hashed, &mut tail);
    }
    Postamble { first_footer_offset: end, total_length }.write(&mut tail);
    Ok(Surround { head, tail, total_length })
}

/// Puts a message together in one buffer, that of the first object where it has one.
///
/// # Errors
/// `Limit` when there is no room for it.
pub fn assemble_message(surround: &Surround, objects: Vec<ObjectFrame<'_>>) -> Result<Vec<u8>> {
    let no_room = || Error::limit("a message in memory", surround.total_length, usize::MAX as u64);
    let total = usize::try_from(surround.total_length).map_err(|_| no_room())?;
    // One after the other they are let go: what was compressed is not held twice.
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
    // A compressor had room for the worst.
    out.shrink_to_fit();
    Ok(out)
}

/// A message whose objects are encoded and not yet put together.
#[derive(Clone, Debug)]
pub struct EncodedMessage<'a> {
    surround: Surround,
    objects: Vec<ObjectFrame<'a>>,
}

impl<'a> EncodedMessage<'a> {
    /// Of metadata and encoded objects, all of which must have been hashed or none.
    ///
    /// # Errors
    /// `Limit` beyond `u64`.
    pub fn new(
        metadata: &Metadata,
        objects: Vec<ObjectFrame<'a>>,
        hashed: bool,
        aggregate: AggregateHash,
    ) -> Result<Self> {
        let lengths: Vec<u64> = objects.iter().map(ObjectFrame::total_length).collect();
        let hashes: Vec<u64> = objects.iter().map(ObjectFrame::hash).collect();
        let surround = surround(metadata, &lengths, &hashes, hashed, aggregate)?;
        Ok(Self { surround, objects })
    }

    /// Its bytes in order, in pieces: what comes before the objects, three pieces of each object, its payload between the others, and
    /// what comes after them. Payloads that are stored as they were given are where they were given.
    pub fn into_parts(self) -> Vec<Cow<'a, [u8]>> {
        let mut parts = vec![Cow::Owned(self.surround.head)];
        parts.extend(self.objects.into_iter().flat_map(ObjectFrame::into_parts));
        parts.push(Cow::Owned(self.surround.tail));
        parts
    }

    /// Whether payloads are where they were given.
    pub fn borrows(&self) -> bool {
        self.objects.iter().any(ObjectFrame::borrows)
    }

    /// Its length in bytes.
    pub fn total_length(&self) -> u64 {
        self.surround.total_length
    }

    /// Puts it together in a buffer of its length. Memory of payloads is kept for the next message of this thread.
    ///
    /// # Errors
    /// `InvalidRequest` when the buffer has another length.
    pub fn copy_to(self, out: &mut [u8]) -> Result<()> {
        let other = || Error::invalid("a buffer of another length than the message");
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

    /// Puts it together in one buffer. See [`assemble_message`].
    ///
    /// # Errors
    /// `Limit` when there is no room for it.
    pub fn into_bytes(self) -> Result<Vec<u8>> {
        assemble_message(&self.surround, self.objects)
    }
}

/// Makes a message of metadata and encoded objects, all of which must have been hashed or none.
///
/// # Errors
/// `Limit` when there is no room for it.
pub fn encode_message(
    metadata: &Metadata,
    objects: Vec<ObjectFrame<'_>>,
    hashed: bool,
    aggregate: AggregateHash,
) -> Result<Vec<u8>> {
    EncodedMessage::new(metadata, objects, hashed, aggregate)?.into_bytes()
}

/// What the library says of an object among the keys of its entry.
pub(crate) fn tensor_item(descriptor: &Descriptor) -> Item {
    let list = |numbers: &[u64]| Item::Array(numbers.iter().copied().map(Item::UInt).collect());
    let tensor = Item::map([
        ("ndim", Item::UInt(descriptor.shape.len() as u64)),
        ("dtype", Item::Text(descriptor.dtype.to_string())),
        ("shape", list(&descriptor.shape)),
        ("strides", list(&descriptor.strides)),
    ]);
    Item::map([("tensor", tensor)])
}

/// Completes the entries of metadata: one per object, each with what the library says of it.
///
/// # Errors
/// `Corrupt` when there are more entries than objects.
pub(crate) fn complete<'a>(
    metadata: &mut Metadata,
    objects: impl ExactSizeIterator<Item = &'a Descriptor>,
) -> Result<()> {
    if metadata.base.len() > objects.len() {
        let detail = format!("base has {} entries for {} objects", metadata.base.len(), objects.len());
        return Err(Error::corrupt("metadata", "the message to be written", None, detail));
    }
    metadata.base.resize(objects.len(), Default::default());
    for (entry, descriptor) in metadata.base.iter_mut().zip(objects) {
        entry.insert(RESERVED.to_owned(), tensor_item(descriptor));
    }
    Ok(())
}

/// Refuses keys that belong to the library.
///
/// # Errors
/// `Corrupt`, naming where they are.
pub(crate) fn refuse_reserved(metadata: &Metadata) -> Result<()> {
    let at = match metadata.base.iter().position(|entry| entry.contains_key(RESERVED)) {
        _ if !metadata.reserved.is_empty() => RESERVED.to_owned(),
        Some(number) => format!("base[{number}].{RESERVED}"),
        None => return Ok(()),
    };
    Err(Error::corrupt("metadata", "the message to be written", None, format!("{at} belongs to the library")))
}
