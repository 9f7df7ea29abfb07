//! Parsing of one message's frames, shared by open, audit and recovery.

use memchr::memmem::Finder;
use tesseral_core::{Error, Finding, Result};

use crate::source::Input;
use crate::wire::align;
use crate::wire::frame::{self, CBOR_AFTER, Frame, FrameHeader, FrameKind};
use crate::wire::postamble::{self, Postamble};
use crate::wire::preamble::{self, Preamble};

/// A defect in the frames of a message.
#[derive(Clone, Debug)]
pub(crate) struct FrameFault {
    /// Name of the check, as in the reference.
    pub check: &'static str,
    pub offset: u64,
    pub len: u64,
    pub detail: String,
    /// True if no data is lost.
    pub harmless: bool,
}

impl FrameFault {
    pub(crate) fn error(&self, object: &str) -> Error {
        Error::corrupt(self.check, object, self.offset, &self.detail)
    }

    pub(crate) fn finding(&self) -> Finding {
        let made = if self.harmless { Finding::warning } else { Finding::failed };
        made(self.check, &self.detail).at(self.offset, self.len)
    }
}

/// A message and its frames.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub offset: u64,
    pub len: u64,
    pub preamble: Preamble,
    pub frames: Vec<Frame>,
    /// Indexes of the object frames.
    objects: Vec<usize>,
    /// Defects. After a fatal one, `frames` contains only the frames before it.
    pub faults: Vec<FrameFault>,
    /// Ignore fatal defects and use the frames before them.
    pub lost: Vec<FrameFault>,
    /// The message is truncated or damaged, and its intact part is used.
    pub truncated: bool,
}

/// Number of frames of a message with one object.
const USUAL: usize = 4;

impl Message {
    /// Returns the first fatal defect.
    pub(crate) fn fault(&self) -> Option<&FrameFault> {
        self.faults.iter().find(|fault| !fault.harmless)
    }

    pub(crate) fn objects(&self) -> impl ExactSizeIterator<Item = &Frame> {
        self.objects.iter().map(|at| &self.frames[*at])
    }

    /// Number of objects.
    pub(crate) fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// Returns the frame of an object.
    pub(crate) fn object(&self, number: usize) -> Option<&Frame> {
        self.frames.get(*self.objects.get(number)?)
    }

    /// Returns the authoritative metadata frame: the last one, because streams repeat completed metadata after the objects.
    pub(crate) fn metadata_frame(&self) -> Option<&Frame> {
        let mut last = self.frames.iter().rev();
        last.find(|f| matches!(f.kind, FrameKind::HeaderMetadata | FrameKind::FooterMetadata))
    }

    /// Parses the frames of the message at `offset`. With `truncated`, the message has no end and its frames are those that are
    /// complete.
    pub(crate) fn walk<I: Input>(source: &I, offset: u64, len: u64, truncated: bool) -> Result<Self> {
        let bytes = source.read_at_most(offset, preamble::LEN)?;
        let preamble = Preamble::parse(&bytes, source.name(), offset)?;
        let (frames, objects) = (Vec::with_capacity(USUAL), Vec::new());
        let (faults, lost) = (Vec::new(), Vec::new());
        let mut message = Self { offset, len, preamble, frames, objects, faults, lost, truncated };
        let end = if truncated { offset + len } else { (offset + len).saturating_sub(postamble::LEN) };
        let ended = message.walk_frames(source, end)?;
        if ended {
            message.check_order();
            if !truncated {
                message.check_end(source)?;
            }
        }
        Ok(message)
    }

    fn fail(&mut self, check: &'static str, offset: u64, len: u64, detail: impl Into<String>) {
        self.faults.push(FrameFault { check, offset, len, detail: detail.into(), harmless: false });
    }

    fn warn(&mut self, check: &'static str, offset: u64, len: u64, detail: impl Into<String>) {
        self.faults.push(FrameFault { check, offset, len, detail: detail.into(), harmless: true });
    }

    /// Collects frames up to `end`; returns false if one is damaged.
    fn walk_frames<I: Input>(&mut self, source: &I, end: u64) -> Result<bool> {
        let mut at = self.offset + preamble::LEN;
        while at < end {
            let bytes = source.get(at..end.min(at + frame::HEADER_LEN), "frame header")?;
            if !bytes.starts_with(&frame::MAGIC) {
                // Bytes between frames are skipped.
                let next = source.find(&Finder::new(&frame::MAGIC), at, end)?.unwrap_or(end);
                let detail = format!("{} bytes between frames", next - at);
                self.warn("non_zero_padding", at, next - at, detail);
                at = next;
                continue;
            }
            match read_frame(source, at, end, &bytes)? {
                Ok(frame) => {
                    if frame.kind == FrameKind::Object {
                        self.objects.push(self.frames.len());
                    }
                    self.frames.push(frame);
                    // The offset is inside the file, so this does not overflow.
                    let rounded = self.offset + align(frame.end() - self.offset).unwrap_or(end);
                    let padding = source.get(frame.end()..rounded.min(end).max(frame.end()), "padding")?;
                    at = rounded;
                    // Nonzero bytes can be the next frame of a writer that does not pad.
                    if padding.iter().any(|byte| *byte != 0) {
                        at = frame.end();
                        if !padding.starts_with(&frame::MAGIC) {
                            let next = source.find(&Finder::new(&frame::MAGIC), at, end)?.unwrap_or(end);
                            self.warn("non_zero_padding", at, next - at, "padding after a frame is not zero");
                            at = next;
                        }
                    }
                }
                Err((check, detail)) => {
                    self.fail(check, at, bytes.len() as u64, detail);
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Validates the order of frames: three phases, and preceder metadata directly before its object.
    fn check_order(&mut self) {
        let mut phase = 0;
        let mut preceder: Option<Frame> = None;
        for number in 0..self.frames.len() {
            let frame = self.frames[number];
            if frame.kind.phase() < phase {
                let detail = format!("{:?} out of order", frame.kind);
                return self.fail("frame_order_violation", frame.offset, frame.len, detail);
            }
            phase = frame.kind.phase();
            if let Some(before) = preceder.take()
                && frame.kind != FrameKind::Object
            {
                let detail = format!("{:?} follows preceder metadata", frame.kind);
                return self.fail("preceder_not_followed_by_object", before.offset, before.len, detail);
            }
            if frame.kind == FrameKind::Preceder {
                preceder = Some(frame);
            }
        }
        if let Some(frame) = preceder {
            self.fail("dangling_preceder", frame.offset, frame.len, "preceder metadata without an object");
        } else if self.metadata_frame().is_none() {
            self.fail("no_metadata_frame", self.offset, self.len, "missing metadata frame");
        }
    }

    fn check_end<I: Input>(&mut self, source: &I) -> Result<()> {
        let at = (self.offset + self.len).saturating_sub(postamble::LEN);
        let bytes = source.get(at..self.offset + self.len, "postamble")?;
        let Some(postamble) = Postamble::parse(&bytes) else {
            self.fail("postamble_invalid", at, postamble::LEN, "missing end magic");
            return Ok(());
        };
        let lengths = (self.preamble.total_length, postamble.total_length);
        if lengths.0 != 0 && lengths.1 != 0 && lengths.0 != lengths.1 {
            let detail =
                format!("message length is {} in the preamble and {} in the postamble", lengths.0, lengths.1);
            self.fail("postamble_invalid", at, postamble::LEN, detail);
            return Ok(());
        }
        let first = self.frames.iter().find(|frame| frame.kind.phase() == 2);
        let first = first.map_or(at, |frame| frame.offset) - self.offset;
        let stated = postamble.first_footer_offset;
        if !(preamble::LEN..=at - self.offset).contains(&stated) {
            let detail = format!("footer offset {stated} is outside the message");
            self.fail("footer_offset_out_of_range", at, 8, detail);
        } else if stated != first {
            let detail = format!("footer offset is {stated}, but the first footer frame is at {first}");
            self.warn("footer_offset_mismatch", at, 8, detail);
        }
        self.check_flags();
        Ok(())
    }

    /// Reports preamble flags that differ from the frames. Flags are hints.
    fn check_flags(&mut self) {
        let kinds = [
            (FrameKind::HeaderMetadata, preamble::HEADER_METADATA),
            (FrameKind::FooterMetadata, preamble::FOOTER_METADATA),
            (FrameKind::HeaderIndex, preamble::HEADER_INDEX),
            (FrameKind::FooterIndex, preamble::FOOTER_INDEX),
            (FrameKind::HeaderHash, preamble::HEADER_HASHES),
            (FrameKind::FooterHash, preamble::FOOTER_HASHES),
        ];
        let mut found = self.preamble.flags & !0x3f;
        for (kind, flag) in kinds {
            if self.frames.iter().any(|frame| frame.kind == kind) {
                found |= flag;
            }
        }
        // Streams announce preceder metadata even if there is none; only the opposite is a defect.
        if self.frames.iter().any(|frame| frame.kind == FrameKind::Preceder) {
            found |= preamble::PRECEDER_METADATA;
        }
        if found != self.preamble.flags {
            let detail = format!("flags {:#06x}, expected {found:#06x} from the frames", self.preamble.flags);
            self.warn("flag_mismatch", self.offset + 10, 2, detail);
        }
    }
}

type FrameResult = std::result::Result<Frame, (&'static str, String)>;

/// Parses the frame whose first bytes are given; it must end at or before `end`.
pub(crate) fn read_frame<I: Input>(source: &I, at: u64, end: u64, bytes: &[u8]) -> Result<FrameResult> {
    let Some(header) = FrameHeader::parse(bytes) else {
        return Ok(Err(("truncated_frame_header", format!("expected 16 bytes, found {}", bytes.len()))));
    };
    let Some(kind) = FrameKind::from_number(header.number) else {
        return Ok(Err(("invalid_frame_header", format!("unknown frame type {}", header.number))));
    };
    if header.len < kind.min_len() {
        return Ok(Err(("frame_too_small", format!("{} bytes for {kind:?}", header.len))));
    }
    let Some(stop) = at.checked_add(header.len) else {
        return Ok(Err(("frame_length_overflow", format!("{} bytes at {at}", header.len))));
    };
    if stop > end {
        let detail = format!("{kind:?} requires {} bytes, found {}", header.len, end - at);
        return Ok(Err(("frame_exceeds_message", detail)));
    }
    let footer = source.get(stop - kind.footer_len()..stop, "frame footer")?;
    if !footer.ends_with(&frame::END) {
        return Ok(Err(("missing_end_marker", format!("{kind:?}: missing end marker ENDF"))));
    }
    let word = |at: usize| footer[at..].first_chunk::<8>().map_or(0, |b| u64::from_be_bytes(*b));
    let mut frame = Frame { kind, flags: header.flags, offset: at, len: header.len, cbor_offset: 0, hash: 0 };
    if kind == FrameKind::Object {
        (frame.cbor_offset, frame.hash) = (word(0), word(8));
        let most = header.len - kind.footer_len();
        let before = header.flags & CBOR_AFTER == 0;
        let fits = (frame::HEADER_LEN..=most).contains(&frame.cbor_offset);
        if !fits || before && frame.cbor_offset != frame::HEADER_LEN {
            let detail =
                format!("descriptor offset {} is outside a frame of {} bytes", frame.cbor_offset, header.len);
            return Ok(Err(("cbor_offset_invalid", detail)));
        }
    } else {
        frame.hash = word(0);
    }
    Ok(Ok(frame))
}
