//! Decoding while bytes come in.

use memchr::memmem::Finder;
use tesseral_core::Error;

use super::decoding::{check_hash, open_frame};
use super::error::{Result, TensogramError};
use super::options::DecodeOptions;
use super::scanning::SkippedBytes;
use crate::message::read_frame;
use crate::read::Reader;
use crate::source::Slice;
use crate::wire::align;
use crate::wire::cbor::{self, Map, Place};
use crate::wire::descriptor::Descriptor;
use crate::wire::frame::{self, Frame, Header, Kind};
use crate::wire::metadata::{Metadata, RESERVED};
use crate::wire::postamble::{self, Postamble};
use crate::wire::preamble::{self, Preamble};

/// Something that is known as soon as the last of its bytes has come.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// An object.
    Object {
        /// Its number in its message.
        index: usize,
        /// What it is.
        descriptor: Descriptor,
        /// Keys that were told right before it.
        keys: Map,
        /// Its cells.
        cells: Vec<u8>,
    },
    /// A message came to its end, and all of it was sound.
    Message {
        /// Where it began.
        offset: u64,
        /// Bytes of it.
        length: u64,
        /// Its metadata, one entry per object.
        metadata: Metadata,
    },
    /// A message is damaged. Objects that came before stand; nothing more comes of it.
    Damaged {
        /// Where it began.
        offset: u64,
        /// What is wrong with it.
        error: TensogramError,
    },
    /// Bytes that belong to no message.
    Skipped(SkippedBytes),
}

/// Decodes messages from pieces of any size, as they come. What is held is the frame that is not whole yet.
///
/// ```
/// use tesseral_core::DType;
/// use tesseral_tensogram::{DataObjectDescriptor, DecodeOptions, EncodeOptions, Event, GlobalMetadata, PushDecoder, encode};
///
/// let descriptor = DataObjectDescriptor::raw(DType::UInt8, &[3]);
/// let message = encode(&GlobalMetadata::default(), &[(&descriptor, &[1, 2, 3])], &EncodeOptions::default())?;
/// let mut decoder = PushDecoder::new(&DecodeOptions::default());
/// for piece in message.chunks(7) {
///     for event in decoder.feed(piece) {
///         if let Event::Object { cells, .. } = event {
///             assert_eq!(cells, [1, 2, 3]);
///         }
///     }
/// }
/// assert!(decoder.finish().is_empty());
/// # Ok::<(), tesseral_tensogram::TensogramError>(())
/// ```
#[derive(Debug)]
pub struct PushDecoder {
    options: DecodeOptions,
    finder: Finder<'static>,
    buffer: Vec<u8>,
    /// How much of the buffer was dealt with.
    done: usize,
    /// Where the buffer begins in the stream.
    base: u64,
    /// Where bytes that belong to no message began.
    junk: Option<u64>,
    current: Option<Current>,
}

/// The message whose frames are coming.
#[derive(Debug)]
struct Current {
    start: u64,
    preamble: Preamble,
    phase: u8,
    metadata: Option<Metadata>,
    told: Vec<Map>,
    waiting: Option<Map>,
    /// It is damaged; its frames are only counted.
    damaged: bool,
}

/// What a step came to.
enum Step {
    /// Go on.
    More,
    /// Wait for bytes.
    Wait,
}

impl PushDecoder {
    /// Begins at the start of a stream.
    pub fn new(options: &DecodeOptions) -> Self {
        Self {
            options: options.clone(),
            finder: Finder::new(&preamble::MAGIC),
            buffer: Vec::new(),
            done: 0,
            base: 0,
            junk: None,
            current: None,
        }
    }

    /// Takes the next bytes; gives what became known by them, in order.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        // What was dealt with makes room once it is most of the buffer, so that moving costs no more than feeding.
        if self.done > self.buffer.len() / 2 {
            self.buffer.drain(..self.done);
            self.base += self.done as u64;
            self.done = 0;
        }
        self.buffer.extend_from_slice(bytes);
        let mut events = Vec::new();
        loop {
            let step = match self.current.take() {
                Some(current) => self.frame(current, &mut events),
                None => self.seek(&mut events),
            };
            if matches!(step, Step::Wait) {
                return events;
            }
        }
    }

    /// Ends the stream; gives what was left unfinished, and what hid behind a frame that promised more than came.
    pub fn finish(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            events.append(&mut self.feed(&[]));
            let Some(current) = self.current.take() else { break };
            let found = self.base + self.buffer.len() as u64 - current.start;
            let detail = format!("the message ends early, {found} bytes on");
            self.give_up(&current, framing("total_length_exceeds_buffer", &detail), &mut events);
        }
        let left = self.rest().len();
        self.pass(left);
        self.end_junk(self.base + self.done as u64, &mut events);
        events
    }

    fn rest(&self) -> &[u8] {
        &self.buffer[self.done..]
    }

    fn end_junk(&mut self, end: u64, events: &mut Vec<Event>) {
        if let Some(offset) = self.junk.take()
            && end > offset
        {
            let detail = "no message begins here".to_owned();
            events.push(Event::Skipped(SkippedBytes {
                offset,
                length: end - offset,
                check: "garbage",
                detail,
            }));
        }
    }

    /// Passes over bytes that belong to no message.
    fn pass(&mut self, n: usize) {
        if n > 0 {
            self.junk.get_or_insert(self.base + self.done as u64);
            self.done += n;
        }
    }

    /// Looks for the next message.
    fn seek(&mut self, events: &mut Vec<Event>) -> Step {
        let Some(at) = self.finder.find(self.rest()) else {
            // The magic may have begun.
            let rest = self.rest();
            let from = rest.len().saturating_sub(preamble::MAGIC.len() - 1);
            let kept = (from..rest.len()).find(|at| preamble::MAGIC.starts_with(&rest[*at..]));
            let kept = kept.unwrap_or(rest.len());
            self.pass(kept);
            return Step::Wait;
        };
        self.pass(at);
        if (self.rest().len() as u64) < preamble::LEN {
            return Step::Wait;
        }
        let start = self.base + self.done as u64;
        let Ok(preamble) = Preamble::parse(self.rest(), "the stream", start) else {
            self.pass(1);
            return Step::More;
        };
        if preamble.total_length != 0 && preamble.total_length < preamble::LEN + postamble::LEN {
            self.pass(1);
            return Step::More;
        }
        self.end_junk(start, events);
        self.done += 24;
        self.current = Some(Current {
            start,
            preamble,
            phase: 0,
            metadata: None,
            told: Vec::new(),
            waiting: None,
            damaged: false,
        });
        Step::More
    }

    /// Takes the next frame of a message, or its end.
    fn frame(&mut self, mut current: Current, events: &mut Vec<Event>) -> Step {
        let at = self.base + self.done as u64 - current.start;
        let total = current.preamble.total_length;
        let last = total.checked_sub(postamble::LEN).filter(|_| total != 0);
        let rest = &self.buffer[self.done..];
        if (rest.len() as u64) < postamble::LEN {
            self.current = Some(current);
            return Step::Wait;
        }
        let begins = rest.starts_with(&frame::MAGIC);
        let ends = match last {
            Some(last) => at == last,
            None => !begins,
        };
        if ends {
            return self.end(current, at, events);
        }
        if last.is_some_and(|last| at > last) {
            return self.give_up(&current, framing("frame_exceeds_message", "frames pass the end"), events);
        }
        if rest.starts_with(&preamble::MAGIC) {
            return self.give_up(
                &current,
                framing("frame_exceeds_message", "another message begins"),
                events,
            );
        }
        if !begins {
            // Whatever lies between frames of a message with a length is stepped over.
            self.done += 1;
            self.current = Some(current);
            return Step::More;
        }
        let needed = match self.needed(rest, at, last) {
            Ok(needed) => needed,
            Err(error) => return self.give_up(&current, error, events),
        };
        if rest.len() < needed.padded {
            self.current = Some(current);
            return Step::Wait;
        }
        let padding = &rest[needed.frame..needed.padded];
        let next = if padding.iter().all(|byte| *byte == 0) { needed.padded } else { needed.frame };
        match self.take(&mut current, needed.frame, events) {
            Ok(()) => {}
            // Where the frame is not whole, the next message may have begun inside it.
            Err(error) if matches!(error, TensogramError::Framing(_)) => {
                return self.give_up(&current, error, events);
            }
            Err(error) => {
                events.push(Event::Damaged { offset: current.start, error });
                current.damaged = true;
            }
        }
        self.done += next;
        self.current = Some(current);
        Step::More
    }

    /// How many bytes the frame at the start of `rest` takes.
    fn needed(&self, rest: &[u8], at: u64, last: Option<u64>) -> Result<Needed> {
        let header = Header::parse(rest).ok_or_else(|| framing("truncated_frame_header", "no header"))?;
        let kind = Kind::of(header.number)
            .ok_or_else(|| framing("invalid_frame_header", &format!("frame type {}", header.number)))?;
        if header.len < kind.min_len() {
            return Err(framing("frame_too_small", &format!("{} bytes for {kind:?}", header.len)));
        }
        let padded = align(header.len).filter(|len| at.checked_add(*len).is_some());
        let padded = padded.ok_or_else(|| framing("frame_length_overflow", &header.len.to_string()))?;
        if last.is_some_and(|last| at + header.len > last) {
            return Err(framing("frame_exceeds_message", &format!("{kind:?} of {} bytes", header.len)));
        }
        let limits = &self.options.limits;
        if kind == Kind::Object {
            limits.check_chunk(header.len)?;
        } else {
            limits.check_metadata(header.len)?;
        }
        let size = |n: u64| usize::try_from(n).map_err(|_| Error::limit("a frame", n, usize::MAX as u64));
        // The message's end may follow without padding.
        let room = last.map_or(padded, |last| padded.min(last - at));
        Ok(Needed { frame: size(header.len)?, padded: size(room)? })
    }

    /// Deals with a whole frame.
    fn take(&self, current: &mut Current, len: usize, events: &mut Vec<Event>) -> Result<()> {
        let bytes = &self.buffer[self.done..self.done + len];
        let input = Slice { name: "the stream", bytes };
        let header = &bytes[..bytes.len().min(16)];
        let frame =
            read_frame(&input, 0, len as u64, header)?.map_err(|(check, detail)| framing(check, &detail))?;
        current.order(&frame)?;
        if current.damaged {
            return Ok(());
        }
        let flags = current.preamble.flags;
        let reader = Reader { input: &input, limits: self.options.limits, digests: false };
        let body = frame.body();
        #[allow(clippy::cast_possible_truncation)]
        let body = &bytes[body.start as usize..body.end as usize];
        let metadata = |what: &'static str| -> Result<Metadata> {
            check_hash(&frame, flags, None, body, &self.options)?;
            let place = Place { what, object: "the stream", offset: self.base + self.done as u64 };
            let (item, _) = cbor::parse(body, self.options.limits.depth, place)?;
            Ok(Metadata::from_item(item, place)?)
        };
        match frame.kind {
            Kind::HeaderMetadata | Kind::FooterMetadata => current.metadata = Some(metadata("metadata")?),
            Kind::Preceder => {
                let mut told = metadata("preceder metadata")?.base;
                match told.pop().filter(|_| told.is_empty()) {
                    Some(mut keys) => {
                        keys.remove(RESERVED);
                        current.waiting = Some(keys);
                    }
                    None => {
                        let detail = "base has not exactly one entry";
                        return Err(Error::corrupt("preceder metadata", "the stream", None, detail).into());
                    }
                }
            }
            Kind::Object => {
                let index = current.told.len();
                let work = open_frame(&reader, &frame, flags, index, &self.options)?;
                let cells = work.decode_all(&self.options)?;
                let keys = current.waiting.take().unwrap_or_default();
                current.told.push(keys.clone());
                events.push(Event::Object { index, descriptor: work.object.descriptor, keys, cells });
            }
            // Lists about objects are not needed to read them.
            _ => check_hash(&frame, flags, None, body, &self.options)?,
        }
        Ok(())
    }

    /// Takes the end of a message.
    fn end(&mut self, mut current: Current, at: u64, events: &mut Vec<Event>) -> Step {
        let total = current.preamble.total_length;
        let told = Postamble::parse(self.rest())
            .filter(|told| told.total_length == 0 || total == 0 || told.total_length == total);
        if told.is_none() {
            return self.give_up(
                &current,
                framing("postamble_invalid", "neither a frame nor the end"),
                events,
            );
        }
        self.done += 24;
        if current.damaged {
            return Step::More;
        }
        if current.waiting.is_some() {
            let error = framing("dangling_preceder", "metadata of an object that does not come");
            events.push(Event::Damaged { offset: current.start, error });
            return Step::More;
        }
        let mut error = |detail: String| {
            let error = Error::corrupt("metadata", "the stream", current.start, detail).into();
            events.push(Event::Damaged { offset: current.start, error });
        };
        let Some(mut metadata) = current.metadata.take() else {
            error("there is no metadata frame".to_owned());
            return Step::More;
        };
        if metadata.base.len() > current.told.len() {
            error(format!("base has {} entries for {} objects", metadata.base.len(), current.told.len()));
            return Step::More;
        }
        metadata.base.resize(current.told.len(), Map::new());
        for (entry, keys) in metadata.base.iter_mut().zip(current.told) {
            entry.extend(keys);
        }
        let length = at + postamble::LEN;
        events.push(Event::Message { offset: current.start, length, metadata });
        Step::More
    }

    /// Leaves a message whose frames make no sense, and looks for the next from here on.
    fn give_up(&mut self, current: &Current, error: TensogramError, events: &mut Vec<Event>) -> Step {
        if !current.damaged {
            events.push(Event::Damaged { offset: current.start, error });
        }
        Step::More
    }
}

/// Bytes that a frame takes.
struct Needed {
    frame: usize,
    padded: usize,
}

fn framing(check: &'static str, detail: &str) -> TensogramError {
    TensogramError::Framing(Error::corrupt(check, "the stream", None, detail))
}

impl Current {
    /// Holds frames to their order.
    fn order(&mut self, frame: &Frame) -> Result<()> {
        if frame.kind.phase() < self.phase {
            return Err(framing("frame_order_violation", &format!("{:?} comes too late", frame.kind)));
        }
        self.phase = frame.kind.phase();
        if self.waiting.is_some() && frame.kind != Kind::Object {
            return Err(framing("preceder_not_followed_by_object", "another frame follows"));
        }
        Ok(())
    }
}
