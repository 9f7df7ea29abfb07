//! One message: the walk over its frames, which opening, auditing and salvaging share.

use memchr::memmem::Finder;
use tesseral_core::{Error, Finding, Result};

use crate::source::Input;
use crate::wire::align;
use crate::wire::frame::{self, CBOR_AFTER, Frame, Header, Kind};
use crate::wire::postamble::{self, Postamble};
use crate::wire::preamble::{self, Preamble};

/// Something wrong with the frames of a message.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    /// The reference's name of the check.
    pub check: &'static str,
    pub offset: u64,
    pub len: u64,
    pub detail: String,
    /// Nothing is lost by it.
    pub harmless: bool,
}

impl Fault {
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
    /// Which of the frames are objects.
    objects: Vec<usize>,
    /// What is wrong with it. With a fault that is not harmless the frames are those before it.
    pub faults: Vec<Fault>,
    /// Faults that are overlooked because what was found before them is wanted all the same.
    pub lost: Vec<Fault>,
    /// It is cut or damaged, and what was found of it is wanted all the same.
    pub torn: bool,
}

impl Message {
    /// The first fault that makes the message unusable.
    pub(crate) fn fault(&self) -> Option<&Fault> {
        self.faults.iter().find(|fault| !fault.harmless)
    }

    pub(crate) fn objects(&self) -> impl ExactSizeIterator<Item = &Frame> {
        self.objects.iter().map(|at| &self.frames[*at])
    }

    /// Number of objects.
    pub(crate) fn object_count(&self) -> usize {
        self.objects.len()
    }

    /// The frame of an object.
    pub(crate) fn object(&self, number: usize) -> Option<&Frame> {
        self.frames.get(*self.objects.get(number)?)
    }

    /// The metadata frame that counts: the last one, as streams repeat theirs, completed, after the objects.
    pub(crate) fn metadata_frame(&self) -> Option<&Frame> {
        let mut last = self.frames.iter().rev();
        last.find(|f| matches!(f.kind, Kind::HeaderMetadata | Kind::FooterMetadata))
    }

    /// Walks the frames of the message at `offset`. With `torn`, it has no end: its frames are those that are whole.
    pub(crate) fn walk<I: Input>(source: &I, offset: u64, len: u64, torn: bool) -> Result<Self> {
        let bytes = source.some(offset, preamble::LEN)?;
        let preamble = Preamble::parse(&bytes, source.name(), offset)?;
        let (frames, objects, faults, lost) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut message = Self { offset, len, preamble, frames, objects, faults, lost, torn };
        let end = if torn { offset + len } else { (offset + len).saturating_sub(postamble::LEN) };
        let ended = message.walk_frames(source, end)?;
        if ended {
            message.check_order();
            if !torn {
                message.check_end(source)?;
            }
        }
        Ok(message)
    }

    fn fail(&mut self, check: &'static str, offset: u64, len: u64, detail: impl Into<String>) {
        self.faults.push(Fault { check, offset, len, detail: detail.into(), harmless: false });
    }

    fn warn(&mut self, check: &'static str, offset: u64, len: u64, detail: impl Into<String>) {
        self.faults.push(Fault { check, offset, len, detail: detail.into(), harmless: true });
    }

    /// Collects frames up to `end`; false when one is damaged.
    fn walk_frames<I: Input>(&mut self, source: &I, end: u64) -> Result<bool> {
        let mut at = self.offset + preamble::LEN;
        while at < end {
            let bytes = source.get(at..end.min(at + frame::HEADER_LEN), "frame header")?;
            if !bytes.starts_with(&frame::MAGIC) {
                // Whatever lies between frames is stepped over.
                let next = source.find(&Finder::new(&frame::MAGIC), at, end)?.unwrap_or(end);
                let detail = format!("{} bytes between frames", next - at);
                self.warn("non_zero_padding", at, next - at, detail);
                at = next;
                continue;
            }
            match read_frame(source, at, end, &bytes)? {
                Ok(frame) => {
                    if frame.kind == Kind::Object {
                        self.objects.push(self.frames.len());
                    }
                    self.frames.push(frame);
                    // Inside the file, so this fits.
                    let rounded = self.offset + align(frame.end() - self.offset).unwrap_or(end);
                    let padding = source.get(frame.end()..rounded.min(end).max(frame.end()), "padding")?;
                    at = rounded;
                    // What is not zero may be the next frame of a writer that does not pad.
                    if padding.iter().any(|byte| *byte != 0) {
                        at = frame.end();
                        if !padding.starts_with(&frame::MAGIC) {
                            let next = source.find(&Finder::new(&frame::MAGIC), at, end)?.unwrap_or(end);
                            self.warn("non_zero_padding", at, next - at, "bytes after a frame are not zero");
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

    /// Frames come in three phases, and metadata of one object right before it.
    fn check_order(&mut self) {
        let mut phase = 0;
        let mut preceder: Option<Frame> = None;
        for frame in self.frames.clone() {
            if frame.kind.phase() < phase {
                let detail = format!("{:?} comes too late", frame.kind);
                return self.fail("frame_order_violation", frame.offset, frame.len, detail);
            }
            phase = frame.kind.phase();
            if let Some(before) = preceder.take()
                && frame.kind != Kind::Object
            {
                let detail = format!("{:?} follows the metadata of one object", frame.kind);
                return self.fail("preceder_not_followed_by_object", before.offset, before.len, detail);
            }
            if frame.kind == Kind::Preceder {
                preceder = Some(frame);
            }
        }
        if let Some(frame) = preceder {
            self.fail(
                "dangling_preceder",
                frame.offset,
                frame.len,
                "metadata of an object that does not come",
            );
        } else if self.metadata_frame().is_none() {
            self.fail("no_metadata_frame", self.offset, self.len, "there is no metadata frame");
        }
    }

    fn check_end<I: Input>(&mut self, source: &I) -> Result<()> {
        let at = (self.offset + self.len).saturating_sub(postamble::LEN);
        let bytes = source.get(at..self.offset + self.len, "postamble")?;
        let Some(postamble) = Postamble::parse(&bytes) else {
            self.fail("postamble_invalid", at, postamble::LEN, "the end magic is not there");
            return Ok(());
        };
        let said = (self.preamble.total_length, postamble.total_length);
        if said.0 != 0 && said.1 != 0 && said.0 != said.1 {
            let detail = format!("the preamble says {} bytes, the postamble {}", said.0, said.1);
            self.fail("postamble_invalid", at, postamble::LEN, detail);
            return Ok(());
        }
        let first = self.frames.iter().find(|frame| frame.kind.phase() == 2);
        let first = first.map_or(at, |frame| frame.offset) - self.offset;
        let told = postamble.first_footer_offset;
        if !(preamble::LEN..=at - self.offset).contains(&told) {
            let detail = format!("the first footer frame at {told} is not in the message");
            self.fail("footer_offset_out_of_range", at, 8, detail);
        } else if told != first {
            let detail = format!("the first footer frame is at {first}, not {told}");
            self.warn("footer_offset_mismatch", at, 8, detail);
        }
        self.check_flags();
        Ok(())
    }

    /// Flags are hints: what differs is told.
    fn check_flags(&mut self) {
        let kinds = [
            (Kind::HeaderMetadata, preamble::HEADER_METADATA),
            (Kind::FooterMetadata, preamble::FOOTER_METADATA),
            (Kind::HeaderIndex, preamble::HEADER_INDEX),
            (Kind::FooterIndex, preamble::FOOTER_INDEX),
            (Kind::HeaderHash, preamble::HEADER_HASHES),
            (Kind::FooterHash, preamble::FOOTER_HASHES),
        ];
        let mut found = self.preamble.flags & !0x3f;
        for (kind, flag) in kinds {
            if self.frames.iter().any(|frame| frame.kind == kind) {
                found |= flag;
            }
        }
        // Streams promise metadata of single objects whether it comes or not; only its coming unannounced is odd.
        if self.frames.iter().any(|frame| frame.kind == Kind::Preceder) {
            found |= preamble::PRECEDER_METADATA;
        }
        if found != self.preamble.flags {
            let detail = format!("flags {:#06x}, the frames say {found:#06x}", self.preamble.flags);
            self.warn("flag_mismatch", self.offset + 10, 2, detail);
        }
    }
}

type Found = std::result::Result<Frame, (&'static str, String)>;

/// Reads the frame whose first bytes are given; it must end by `end`.
pub(crate) fn read_frame<I: Input>(source: &I, at: u64, end: u64, bytes: &[u8]) -> Result<Found> {
    let Some(header) = Header::parse(bytes) else {
        return Ok(Err(("truncated_frame_header", format!("expected 16 bytes, found {}", bytes.len()))));
    };
    let Some(kind) = Kind::of(header.number) else {
        return Ok(Err(("invalid_frame_header", format!("frame type {} is not known", header.number))));
    };
    if header.len < kind.min_len() {
        return Ok(Err(("frame_too_small", format!("{} bytes for {kind:?}", header.len))));
    }
    let Some(stop) = at.checked_add(header.len) else {
        return Ok(Err(("frame_length_overflow", format!("{} bytes at {at}", header.len))));
    };
    if stop > end {
        let detail = format!("{kind:?} needs {} bytes, {} are there", header.len, end - at);
        return Ok(Err(("frame_exceeds_message", detail)));
    }
    let footer = source.get(stop - kind.footer_len()..stop, "frame footer")?;
    if !footer.ends_with(&frame::END) {
        return Ok(Err(("missing_end_marker", format!("{kind:?} does not end with ENDF"))));
    }
    let word = |at: usize| footer[at..].first_chunk::<8>().map_or(0, |b| u64::from_be_bytes(*b));
    let mut frame = Frame { kind, flags: header.flags, offset: at, len: header.len, cbor_offset: 0, hash: 0 };
    if kind == Kind::Object {
        (frame.cbor_offset, frame.hash) = (word(0), word(8));
        let most = header.len - kind.footer_len();
        let before = header.flags & CBOR_AFTER == 0;
        let fits = (frame::HEADER_LEN..=most).contains(&frame.cbor_offset);
        if !fits || before && frame.cbor_offset != frame::HEADER_LEN {
            let detail = format!("the descriptor at {} of a frame of {}", frame.cbor_offset, header.len);
            return Ok(Err(("cbor_offset_invalid", detail)));
        }
    } else {
        frame.hash = word(0);
    }
    Ok(Ok(frame))
}
