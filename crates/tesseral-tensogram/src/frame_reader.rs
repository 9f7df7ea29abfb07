//! Reading of CBOR frames from a file or a buffer.

use memchr::memmem::Finder;
use tesseral_core::{Error, Limits, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::array::Object;
use crate::message::Message;
use crate::source::Input;
use crate::wire::block_hashes::{self, BlockHashes};
use crate::wire::cbor::{self, CborItem, ErrorLocation, Map};
use crate::wire::frame::{Frame, FrameKind};
use crate::wire::index_and_hashes::{HashList, Index};
use crate::wire::metadata::{Metadata, RESERVED};

/// Reads frames of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FrameReader<'a, I> {
    pub input: &'a I,
    pub limits: Limits,
    /// Verify hashes.
    pub digests: bool,
}

impl<'a, I: Input> FrameReader<'a, I> {
    /// Returns the body of a CBOR frame after verifying its hash.
    pub(crate) fn body(&self, message: &Message, frame: &Frame, what: &'static str) -> Result<I::ByteSlice> {
        let range = frame.body();
        self.limits.check_metadata(range.end - range.start)?;
        let bytes = self.input.get(range.clone(), what)?;
        if self.digests
            && let Some(expected) = frame.expected_hash(message.preamble.flags)
        {
            let found = xxh3_64(&bytes);
            if found != expected {
                let detail = format!("hash mismatch: expected {expected:016x}, computed {found:016x}");
                return Err(Error::corrupt(what, self.input.name(), range.start, detail));
            }
        }
        Ok(bytes)
    }

    /// Returns the item of a CBOR frame.
    pub(crate) fn item(
        &self,
        message: &Message,
        frame: &Frame,
        what: &'static str,
    ) -> Result<(CborItem, ErrorLocation<'a>)> {
        let bytes = self.body(message, frame, what)?;
        let place = ErrorLocation { what, object: self.input.name(), offset: frame.body().start };
        Ok((cbor::parse_within(&bytes, &self.limits, place)?.0, place))
    }

    /// Returns the metadata of a message with one entry per object, merged with preceder metadata.
    pub(crate) fn metadata(&self, message: &Message) -> Result<Metadata> {
        let frame = message.metadata_frame();
        let mut metadata = match frame {
            Some(frame) => {
                let (item, place) = self.item(message, frame, "metadata")?;
                Metadata::from_item(item, place)?
            }
            None => Metadata::default(),
        };
        let objects = message.object_count();
        if metadata.base.len() > objects && !message.truncated {
            let detail = format!("`base` has {} entries for {objects} objects", metadata.base.len());
            let offset = frame.map(|frame| frame.offset);
            return Err(Error::corrupt("metadata", self.input.name(), offset, detail));
        }
        if self.digests && objects > 1 && !message.truncated {
            self.compare_lists(message)?;
        }
        metadata.base.resize(objects, Map::new());
        let mut number = 0;
        let mut before = None;
        for frame in &message.frames {
            match frame.kind {
                FrameKind::Preceder => before = Some(frame),
                FrameKind::Object => {
                    if let Some(frame) = before.take() {
                        let own = self.preceder(message, frame)?;
                        metadata.base[number].extend(own);
                    }
                    number += 1;
                }
                _ => {}
            }
        }
        Ok(metadata)
    }

    /// Compares index and hash lists with the objects. Two exchanged objects have valid hashes; only the lists reveal it.
    fn compare_lists(&self, message: &Message) -> Result<()> {
        let objects: Vec<_> = message.objects().collect();
        for frame in &message.frames {
            let differences = match frame.kind {
                FrameKind::HeaderIndex | FrameKind::FooterIndex => {
                    let (item, place) = self.item(message, frame, "index")?;
                    Index::from_item(item, place)?.differences(&objects, message.offset)
                }
                FrameKind::HeaderHash | FrameKind::FooterHash => {
                    let (item, place) = self.item(message, frame, "hash list")?;
                    let list = HashList::from_item(item, place)?;
                    if list.is_known() { list.differences(&objects) } else { Vec::new() }
                }
                _ => continue,
            };
            if let Some((check, detail)) = differences.into_iter().next() {
                return Err(Error::corrupt(check, self.input.name(), frame.offset, detail));
            }
        }
        Ok(())
    }

    /// Returns the hashes of the blocks of an object, if the message has them and the object a hash. The list that holds them has a hash as
    /// well, which is verified.
    pub(crate) fn block_hashes(
        &self,
        message: &Message,
        number: usize,
        object: &Frame,
    ) -> Result<Option<BlockHashes>> {
        let flags = message.preamble.flags;
        if !block_hashes::may_have(object) || object.expected_hash(flags).is_none() {
            return Ok(None);
        }
        let key = Finder::new(block_hashes::KEY);
        for frame in message.frames.iter().rev() {
            let list = matches!(frame.kind, FrameKind::HeaderHash | FrameKind::FooterHash);
            if !list || frame.expected_hash(flags).is_none() {
                continue;
            }
            let checked = Self { digests: true, ..*self };
            let bytes = checked.body(message, frame, "hash list")?;
            // Lists without the key are not parsed: they can have very many hashes.
            if key.find(&bytes).is_none() {
                continue;
            }
            let place =
                ErrorLocation { what: "hash list", object: self.input.name(), offset: frame.body().start };
            let list = HashList::from_item(cbor::parse_within(&bytes, &self.limits, place)?.0, place)?;
            if let Some(blocks) = list.blocks_of(number, object, place)? {
                return Ok(Some(blocks.clone()));
            }
        }
        Ok(None)
    }

    /// Returns the keys of preceder metadata.
    pub(crate) fn preceder(&self, message: &Message, frame: &Frame) -> Result<Map> {
        let (item, place) = self.item(message, frame, "preceder metadata")?;
        let mut base = Metadata::from_item(item, place)?.base;
        match base.pop().filter(|_| base.is_empty()) {
            Some(mut own) => {
                own.remove(RESERVED);
                Ok(own)
            }
            None => Err(place.corrupt("expected exactly one entry in `base`")),
        }
    }

    /// Parses an object frame.
    pub(crate) fn object(&self, frame: &Frame) -> Result<Object> {
        Object::read(self.input, &self.limits, frame)
    }
}
