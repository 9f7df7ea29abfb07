//! Incremental decoding.

use memchr::memmem::Finder;
use tesseral_core::Error;

use super::decoding::{check_hash, open_frame};
use super::error::{Result, TensogramError};
use super::options::DecodeOptions;
use super::scanning::SkippedBytes;
use crate::frame_reader::FrameReader;
use crate::message::read_frame;
use crate::source::SliceInput;
use crate::wire::align;
use crate::wire::cbor::{self, ErrorLocation, Map};
use crate::wire::descriptor::Descriptor;
use crate::wire::frame::{self, Frame, FrameHeader, FrameKind};
use crate::wire::metadata::{Metadata, RESERVED};
use crate::wire::postamble::{self, Postamble};
use crate::wire::preamble::{self, Preamble};

/// Result of decoding, emitted when its last byte has been fed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A decoded object.
    Object {
        /// Index of the object in its message.
        index: usize,
        /// Descriptor of the object.
        descriptor: Descriptor,
        /// Preceder metadata of the object.
        keys: Map,
        /// Decoded cells.
        cells: Vec<u8>,
    },
    /// The end of a valid message.
    Message {
        /// Offset of the message in the stream.
        offset: u64,
        /// Length of the message in bytes.
        length: u64,
        /// Metadata of the message, one entry per object.
        metadata: Metadata,
    },
    /// A message is damaged. Objects emitted before remain valid; no further object of the message follows.
    Damaged {
        /// Offset of the message in the stream.
        offset: u64,
        /// Cause of the failure.
        error: TensogramError,
    },
    /// Bytes outside messages.
    Skipped(SkippedBytes),
}

/// Decodes messages from pieces of arbitrary size. Buffers at most the current incomplete frame.
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
    /// Number of bytes of the buffer that are consumed.
    done: usize,
    /// Offset of the buffer in the stream.
    base: u64,
    /// Offset of the first byte outside messages, while skipping.
    junk: Option<u64>,
    current: Option<OpenMessage>,
}

/// The message being decoded.
#[derive(Debug)]
struct OpenMessage {
    start: u64,
    preamble: Preamble,
    phase: u8,
    metadata: Option<Metadata>,
    preceding: Vec<Map>,
    waiting: Option<Map>,
    /// Set if the message is damaged; its remaining frames are only skipped.
    damaged: bool,
}

/// Outcome of a decoding step.
enum DecodeStep {
    /// Progress was made.
    More,
    /// More bytes are needed.
    Wait,
}

impl PushDecoder {
    /// Creates a decoder at the start of a stream.
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

    /// Feeds the next bytes and returns the resulting events in order.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        // Consumed bytes are discarded once they are most of the buffer, so that moving costs at most as much as feeding.
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
            if matches!(step, DecodeStep::Wait) {
                return events;
            }
        }
    }

    /// Ends the stream. Returns the unfinished message as damaged, and messages found after a frame whose declared length
    /// exceeds the stream.
    pub fn finish(mut self) -> Vec<Event> {
        let mut events = Vec::new();
        loop {
            events.append(&mut self.feed(&[]));
            let Some(current) = self.current.take() else { break };
            let found = self.base + self.buffer.len() as u64 - current.start;
            let detail = format!("message truncated after {found} bytes");
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
            let detail = "no message magic".to_owned();
            events.push(Event::Skipped(SkippedBytes {
                offset,
                length: end - offset,
                check: "garbage",
                detail,
            }));
        }
    }

    /// Skips bytes outside messages.
    fn pass(&mut self, n: usize) {
        if n > 0 {
            self.junk.get_or_insert(self.base + self.done as u64);
            self.done += n;
        }
    }

    /// Searches for the next message.
    fn seek(&mut self, events: &mut Vec<Event>) -> DecodeStep {
        let Some(at) = self.finder.find(self.rest()) else {
            // The last bytes can be the start of the magic.
            let rest = self.rest();
            let from = rest.len().saturating_sub(preamble::MAGIC.len() - 1);
            let kept = (from..rest.len()).find(|at| preamble::MAGIC.starts_with(&rest[*at..]));
            let kept = kept.unwrap_or(rest.len());
            self.pass(kept);
            return DecodeStep::Wait;
        };
        self.pass(at);
        if (self.rest().len() as u64) < preamble::LEN {
            return DecodeStep::Wait;
        }
        let start = self.base + self.done as u64;
        let Ok(preamble) = Preamble::parse(self.rest(), "the stream", start) else {
            self.pass(1);
            return DecodeStep::More;
        };
        if preamble.total_length != 0 && preamble.total_length < preamble::LEN + postamble::LEN {
            self.pass(1);
            return DecodeStep::More;
        }
        self.end_junk(start, events);
        self.done += 24;
        self.current = Some(OpenMessage {
            start,
            preamble,
            phase: 0,
            metadata: None,
            preceding: Vec::new(),
            waiting: None,
            damaged: false,
        });
        DecodeStep::More
    }

    /// Decodes the next frame or the postamble of a message.
    fn frame(&mut self, mut current: OpenMessage, events: &mut Vec<Event>) -> DecodeStep {
        let at = self.base + self.done as u64 - current.start;
        let total = current.preamble.total_length;
        let last = total.checked_sub(postamble::LEN).filter(|_| total != 0);
        let rest = &self.buffer[self.done..];
        if (rest.len() as u64) < postamble::LEN {
            self.current = Some(current);
            return DecodeStep::Wait;
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
            return self.give_up(
                &current,
                framing("frame_exceeds_message", "frames exceed the message length"),
                events,
            );
        }
        if rest.starts_with(&preamble::MAGIC) {
            return self.give_up(
                &current,
                framing("frame_exceeds_message", "unexpected start of another message"),
                events,
            );
        }
        if !begins {
            // Bytes between frames are skipped if the message length is known.
            self.done += 1;
            self.current = Some(current);
            return DecodeStep::More;
        }
        let needed = match self.needed(rest, at, last) {
            Ok(needed) => needed,
            Err(error) => return self.give_up(&current, error, events),
        };
        if rest.len() < needed.padded {
            self.current = Some(current);
            return DecodeStep::Wait;
        }
        let padding = &rest[needed.frame..needed.padded];
        let next = if padding.iter().all(|byte| *byte == 0) { needed.padded } else { needed.frame };
        match self.consume_frame(&mut current, needed.frame, events) {
            Ok(()) => {}
            // The next message can begin inside an incomplete frame.
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
        DecodeStep::More
    }

    /// Returns the length in bytes of the frame at the start of `rest`.
    fn needed(&self, rest: &[u8], at: u64, last: Option<u64>) -> Result<FrameSize> {
        let header = FrameHeader::parse(rest)
            .ok_or_else(|| framing("truncated_frame_header", "missing frame header"))?;
        let kind = FrameKind::from_number(header.number)
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
        if kind == FrameKind::Object {
            limits.check_chunk(header.len)?;
        } else {
            limits.check_metadata(header.len)?;
        }
        let size = |n: u64| usize::try_from(n).map_err(|_| Error::limit("a frame", n, usize::MAX as u64));
        // The postamble can follow without padding.
        let room = last.map_or(padded, |last| padded.min(last - at));
        Ok(FrameSize { frame: size(header.len)?, padded: size(room)? })
    }

    /// Processes a complete frame.
    fn consume_frame(&self, current: &mut OpenMessage, len: usize, events: &mut Vec<Event>) -> Result<()> {
        let bytes = &self.buffer[self.done..self.done + len];
        let input = SliceInput { name: "the stream", bytes };
        let header = &bytes[..bytes.len().min(16)];
        let frame =
            read_frame(&input, 0, len as u64, header)?.map_err(|(check, detail)| framing(check, &detail))?;
        current.order(&frame)?;
        if current.damaged {
            return Ok(());
        }
        let flags = current.preamble.flags;
        let reader = FrameReader { input: &input, limits: self.options.limits, digests: false };
        let body = frame.body();
        let body = &bytes[body.start as usize..body.end as usize];
        let metadata = |what: &'static str| -> Result<Metadata> {
            check_hash(&frame, flags, None, body, &self.options)?;
            let place = ErrorLocation { what, object: "the stream", offset: self.base + self.done as u64 };
            let (item, _) = cbor::parse_within(body, &self.options.limits, place)?;
            Ok(Metadata::from_item(item, place)?)
        };
        match frame.kind {
            FrameKind::HeaderMetadata | FrameKind::FooterMetadata => {
                current.metadata = Some(metadata("metadata")?)
            }
            FrameKind::Preceder => {
                let mut preceding = metadata("preceder metadata")?.base;
                match preceding.pop().filter(|_| preceding.is_empty()) {
                    Some(mut keys) => {
                        keys.remove(RESERVED);
                        current.waiting = Some(keys);
                    }
                    None => {
                        let detail = "expected exactly one entry in `base`";
                        return Err(Error::corrupt("preceder metadata", "the stream", None, detail).into());
                    }
                }
            }
            FrameKind::Object => {
                let index = current.preceding.len();
                let work = open_frame(&reader, &frame, flags, index, &self.options, None)?;
                let cells = work.decode_all(&self.options)?;
                let keys = current.waiting.take().unwrap_or_default();
                current.preceding.push(keys.clone());
                events.push(Event::Object { index, descriptor: work.object.descriptor, keys, cells });
            }
            // Index and hash list are not needed for decoding.
            _ => check_hash(&frame, flags, None, body, &self.options)?,
        }
        Ok(())
    }

    /// Processes the end of a message.
    fn end(&mut self, mut current: OpenMessage, at: u64, events: &mut Vec<Event>) -> DecodeStep {
        let total = current.preamble.total_length;
        let preceding = Postamble::parse(self.rest())
            .filter(|preceding| preceding.total_length == 0 || total == 0 || preceding.total_length == total);
        if preceding.is_none() {
            return self.give_up(
                &current,
                framing("postamble_invalid", "expected a frame or the postamble"),
                events,
            );
        }
        self.done += 24;
        if current.damaged {
            return DecodeStep::More;
        }
        if current.waiting.is_some() {
            let error = framing("dangling_preceder", "preceder metadata without an object");
            events.push(Event::Damaged { offset: current.start, error });
            return DecodeStep::More;
        }
        let mut error = |detail: String| {
            let error = Error::corrupt("metadata", "the stream", current.start, detail).into();
            events.push(Event::Damaged { offset: current.start, error });
        };
        let Some(mut metadata) = current.metadata.take() else {
            error("missing metadata frame".to_owned());
            return DecodeStep::More;
        };
        if metadata.base.len() > current.preceding.len() {
            error(format!(
                "`base` has {} entries for {} objects",
                metadata.base.len(),
                current.preceding.len()
            ));
            return DecodeStep::More;
        }
        metadata.base.resize(current.preceding.len(), Map::new());
        for (entry, keys) in metadata.base.iter_mut().zip(current.preceding) {
            entry.extend(keys);
        }
        let length = at + postamble::LEN;
        events.push(Event::Message { offset: current.start, length, metadata });
        DecodeStep::More
    }

    /// Abandons a message with invalid frames and searches for the next one from here.
    fn give_up(
        &mut self,
        current: &OpenMessage,
        error: TensogramError,
        events: &mut Vec<Event>,
    ) -> DecodeStep {
        if !current.damaged {
            events.push(Event::Damaged { offset: current.start, error });
        }
        DecodeStep::More
    }
}

/// Size of a frame in bytes.
struct FrameSize {
    frame: usize,
    padded: usize,
}

fn framing(check: &'static str, detail: &str) -> TensogramError {
    TensogramError::Framing(Error::corrupt(check, "the stream", None, detail))
}

impl OpenMessage {
    /// Validates the order of frames.
    fn order(&mut self, frame: &Frame) -> Result<()> {
        if frame.kind.phase() < self.phase {
            return Err(framing("frame_order_violation", &format!("{:?} out of order", frame.kind)));
        }
        self.phase = frame.kind.phase();
        if self.waiting.is_some() && frame.kind != FrameKind::Object {
            return Err(framing("preceder_not_followed_by_object", "expected an object frame"));
        }
        Ok(())
    }
}
