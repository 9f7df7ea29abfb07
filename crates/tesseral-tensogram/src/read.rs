//! What the CBOR frames of a message say, read from a file or a buffer alike.

use tesseral_core::{Error, Limits, Result};
use xxhash_rust::xxh3::xxh3_64;

use crate::array::Object;
use crate::message::Message;
use crate::source::Input;
use crate::wire::cbor::{self, Item, Map, Place};
use crate::wire::frame::{Frame, Kind};
use crate::wire::lists::{HashList, Index};
use crate::wire::metadata::{Metadata, RESERVED};

/// Reads frames of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a, I> {
    pub input: &'a I,
    pub limits: Limits,
    /// Hashes are compared.
    pub digests: bool,
}

impl<'a, I: Input> Reader<'a, I> {
    /// The body of a CBOR frame, its hash checked.
    pub(crate) fn body(&self, message: &Message, frame: &Frame, what: &'static str) -> Result<I::Piece> {
        let range = frame.body();
        self.limits.check_metadata(range.end - range.start)?;
        let bytes = self.input.get(range.clone(), what)?;
        if self.digests
            && let Some(expected) = frame.expected_hash(message.preamble.flags)
        {
            let found = xxh3_64(&bytes);
            if found != expected {
                let detail = format!("its hash is {found:016x}, stored is {expected:016x}");
                return Err(Error::corrupt(what, self.input.name(), range.start, detail));
            }
        }
        Ok(bytes)
    }

    /// The item in a CBOR frame.
    pub(crate) fn item(
        &self,
        message: &Message,
        frame: &Frame,
        what: &'static str,
    ) -> Result<(Item, Place<'a>)> {
        let bytes = self.body(message, frame, what)?;
        let place = Place { what, object: self.input.name(), offset: frame.body().start };
        Ok((cbor::parse(&bytes, self.limits.depth, place)?.0, place))
    }

    /// The metadata of a message, with one entry per object and what was said right before each.
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
        if metadata.base.len() > objects && !message.torn {
            let detail = format!("base has {} entries for {objects} objects", metadata.base.len());
            let offset = frame.map(|frame| frame.offset);
            return Err(Error::corrupt("metadata", self.input.name(), offset, detail));
        }
        if self.digests && objects > 1 && !message.torn {
            self.compare_lists(message)?;
        }
        metadata.base.resize(objects, Map::new());
        let mut number = 0;
        let mut before = None;
        for frame in &message.frames {
            match frame.kind {
                Kind::Preceder => before = Some(frame),
                Kind::Object => {
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

    /// Compares the lists of places and hashes with the objects. Each object is whole by its own hash in the place of another too:
    /// only the lists tell which is which.
    fn compare_lists(&self, message: &Message) -> Result<()> {
        let objects: Vec<_> = message.objects().collect();
        for frame in &message.frames {
            let differences = match frame.kind {
                Kind::HeaderIndex | Kind::FooterIndex => {
                    let (item, place) = self.item(message, frame, "index")?;
                    Index::from_item(item, place)?.differences(&objects, message.offset)
                }
                Kind::HeaderHash | Kind::FooterHash => {
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

    /// The keys that the metadata before an object adds to it.
    pub(crate) fn preceder(&self, message: &Message, frame: &Frame) -> Result<Map> {
        let (item, place) = self.item(message, frame, "preceder metadata")?;
        let mut base = Metadata::from_item(item, place)?.base;
        match base.pop().filter(|_| base.is_empty()) {
            Some(mut own) => {
                own.remove(RESERVED);
                Ok(own)
            }
            None => Err(place.corrupt("base has not exactly one entry")),
        }
    }

    /// What an object's frame holds.
    pub(crate) fn object(&self, frame: &Frame) -> Result<Object> {
        Object::read(self.input, &self.limits, frame)
    }
}
