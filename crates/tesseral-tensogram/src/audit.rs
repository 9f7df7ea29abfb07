//! Audit of messages: all checks of the reference's validator, with its names, and the hash of every frame.

use std::ops::Range;
use std::sync::Arc;

use smallvec::SmallVec;
use tesseral_core::dtype::Class;
use tesseral_core::{Cancel, DType, ErrorKind, Finding, Result, Severity};
use tesseral_format::{AuditOptions, AuditReport, CellFault, ContainerSource, Depth};
use tesseral_store::Store;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::api::decoding::open_frame;
use crate::api::options::DecodeOptions;
use crate::array::{Object, descriptor_item};
use crate::frame_reader::FrameReader;
use crate::message::Message;
use crate::open::{MessageCatalog, TensogramContainer};
use crate::pipeline::ObjectPipeline;
use crate::scan::Skipped;
use crate::source::Input;
use crate::wire::block_hashes::{BlockHashes, BodyHasher};
use crate::wire::cbor::{self, CborItem, ErrorLocation};
use crate::wire::frame::{Frame, FrameKind, HASH_PRESENT};
use crate::wire::index_and_hashes::{HashList, Index, ListDifference};
use crate::wire::metadata::{Metadata, RESERVED};
use crate::wire::preamble::HASHES_PRESENT;

/// Audits messages and counts the bytes covered by hashes.
pub(crate) struct Audit<'a, I> {
    pub reader: FrameReader<'a, I>,
    pub depth: Depth,
    /// Report CBOR that is not canonical.
    pub canonical: bool,
    /// Verify payloads here, for callers without an engine.
    pub payloads: bool,
    pub cancel: &'a Cancel,
    pub report: &'a mut dyn FnMut(Finding),
    pub failures: u64,
    /// Bytes of metadata covered by a hash.
    pub covered: u64,
    /// Bytes of payload, which the engine counts.
    pub payload: u64,
    /// Size of the decoded cells so far, and of the frames they were decoded from.
    pub(crate) decoded: u64,
    pub(crate) decoded_from: u64,
}

pub(crate) fn audit(
    store: &Arc<dyn Store>,
    options: &AuditOptions,
    report: &mut dyn FnMut(Finding),
) -> Result<AuditReport> {
    let catalog = MessageCatalog::load(store, &options.open, false)?;
    let mut audit = Audit {
        reader: catalog.reader(),
        depth: options.depth,
        canonical: options.canonical,
        payloads: false,
        cancel: &catalog.cancel,
        report,
        failures: 0,
        covered: 0,
        payload: 0,
        decoded: 0,
        decoded_from: 0,
    };
    for skipped in &catalog.skipped {
        audit.add_finding(skipped_finding(skipped));
    }
    let mut objects = 0;
    for number in 0..catalog.len() {
        catalog.cancel.check()?;
        let message = catalog.message(number)?;
        objects += message.object_count();
        audit.message(&message, number)?;
    }
    let Audit { failures, covered, payload, .. } = audit;
    let refused = catalog.refusal()?;
    if let Some(error) = refused.as_ref().filter(|_| failures == 0) {
        report(Finding::from_error("structure", error));
    }
    if failures == 0 && refused.is_none() {
        report(Finding::passed("structure", format!("{} messages, {objects} objects", catalog.len())));
        if options.depth >= Depth::Usual {
            let detail = "descriptors, index and hash lists match the frames";
            report(Finding::passed("metadata", detail));
        }
    }
    let uncovered_bytes = catalog.source.len.saturating_sub(covered).saturating_sub(payload);
    let container: Option<Arc<dyn ContainerSource>> = match refused {
        None => Some(Arc::new(TensogramContainer::new(catalog)?)),
        Some(_) => None,
    };
    Ok(AuditReport { container, covered_bytes: covered, uncovered_bytes })
}

/// Creates a finding for bytes outside messages.
pub(crate) fn skipped_finding(skipped: &Skipped) -> Finding {
    let detail = format!("{} bytes outside messages: {}", skipped.len, skipped.detail);
    let mut finding = Finding::failed(skipped.check, detail).at(skipped.offset, skipped.len);
    finding.unsupported = skipped.version.is_some();
    finding
}

impl<I: Input> Audit<'_, I> {
    fn add_finding(&mut self, finding: Finding) {
        self.failures += u64::from(!finding.ok);
        (self.report)(finding);
    }

    /// Converts corruption into a finding; returns other errors.
    fn check_result<T>(
        &mut self,
        check: &'static str,
        frame: &Frame,
        result: Result<T>,
    ) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(e) if matches!(e.kind(), ErrorKind::Io { .. } | ErrorKind::NotFound { .. }) => Err(e),
            Err(e) => {
                let mut finding = Finding::from_error(check, &e).at(frame.offset, frame.len);
                finding.offset = e.offset().or(finding.offset);
                self.add_finding(finding);
                Ok(None)
            }
        }
    }

    /// Audits one message.
    pub(crate) fn message(&mut self, message: &Message, number: usize) -> Result<()> {
        for fault in &message.faults {
            // With checks of hashes only, structural errors are still reported.
            if !(self.depth == Depth::Digests && fault.harmless) {
                self.add_finding(fault.finding());
            }
        }
        if message.fault().is_some() || self.depth == Depth::Structure && !self.canonical {
            return Ok(());
        }
        if self.depth > Depth::Structure {
            self.hash_flags(message, number);
        }
        let mut object = 0;
        for frame in &message.frames {
            if frame.kind == FrameKind::Object {
                self.object(message, frame, number, object)?;
                object += 1;
            } else {
                self.cbor_frame(message, frame)?;
            }
        }
        Ok(())
    }

    fn hash_flags(&mut self, message: &Message, number: usize) {
        let hashed = message.frames.iter().any(|frame| frame.expected_hash(message.preamble.flags).is_some());
        if !hashed {
            let detail = format!("message {number} has no hashes: damage can stay undetected");
            self.add_finding(Finding::warning("no_hash_available", detail).at(message.offset, message.len));
        }
        let older = message.preamble.flags & HASHES_PRESENT != 0
            && message.frames.iter().any(|frame| frame.flags & HASH_PRESENT == 0);
        if older {
            let detail = format!(
                "message {number}: the preamble announces hashes, but frames lack the flag; hashes are verified"
            );
            self.add_finding(Finding::warning("older_writer", detail).at(message.offset, message.len));
        }
    }

    /// Audits a CBOR frame: its hash, its encoding and its content.
    fn cbor_frame(&mut self, message: &Message, frame: &Frame) -> Result<()> {
        let body = frame.body();
        let place = ErrorLocation { what: "frame", object: self.reader.input.name(), offset: body.start };
        let (parse_check, canonical_check) = checks_of(frame.kind);
        let sized = self.reader.limits.check_metadata(body.end - body.start);
        let read = sized.and_then(|()| self.reader.input.get(body.clone(), "frame"));
        let Some(bytes) = self.check_result(parse_check, frame, read)? else { return Ok(()) };
        if self.depth > Depth::Structure && !self.hash(message, frame, &bytes) {
            return Ok(());
        }
        if self.depth < Depth::Usual && !self.canonical {
            return Ok(());
        }
        let parsed = cbor::parse_within(&bytes, &self.reader.limits, place);
        let Some((item, _)) = self.check_result(parse_check, frame, parsed)? else { return Ok(()) };
        if self.canonical && !cbor::is_canonical(&bytes, &item) {
            let detail = format!("CBOR of {:?} is not canonical", frame.kind);
            self.add_finding(Finding::warning(canonical_check, detail).at(body.start, bytes.len() as u64));
        }
        if self.depth < Depth::Usual {
            return Ok(());
        }
        match frame.kind {
            FrameKind::HeaderMetadata | FrameKind::FooterMetadata => {
                let metadata = self.check_result(parse_check, frame, Metadata::from_item(item, place))?;
                if let Some(metadata) = metadata {
                    self.metadata(message, frame, &metadata);
                }
            }
            FrameKind::HeaderIndex | FrameKind::FooterIndex => {
                let index = self.check_result(parse_check, frame, Index::from_item(item, place))?;
                if let Some(index) = index {
                    let objects: Vec<_> = message.objects().collect();
                    self.differences(frame, index.differences(&objects, message.offset));
                }
            }
            FrameKind::HeaderHash | FrameKind::FooterHash => {
                let list = self.check_result(parse_check, frame, HashList::from_item(item, place))?;
                match list {
                    Some(list) if list.is_known() => {
                        let objects: Vec<_> = message.objects().collect();
                        self.differences(frame, list.differences(&objects));
                        for (index, object) in message.objects().enumerate() {
                            let blocks = list.blocks_of(index, object, place).map(Option::<&_>::cloned);
                            if let Some(Some(blocks)) = self.check_result(parse_check, frame, blocks)? {
                                self.block_hashes(object, index, &blocks)?;
                            }
                        }
                    }
                    Some(list) => {
                        let detail = format!("unknown hash algorithm {:?}", list.algorithm);
                        self.add_finding(
                            Finding::warning("unknown_hash_algorithm", detail).at(frame.offset, frame.len),
                        );
                    }
                    None => {}
                }
            }
            FrameKind::Preceder | FrameKind::Object => {
                let preceder = self.reader.preceder(message, frame);
                self.check_result("preceder_base_count_wrong", frame, preceder)?;
            }
        }
        Ok(())
    }

    /// Verifies the hash of a frame's body; returns false on mismatch.
    fn hash(&mut self, message: &Message, frame: &Frame, body: &[u8]) -> bool {
        let Some(expected) = frame.expected_hash(message.preamble.flags) else { return true };
        self.covered += body.len() as u64;
        self.compare_hash(frame, expected, xxh3_64(body), None)
    }

    /// Reads a range in blocks.
    fn read_in_blocks(&self, range: Range<u64>, mut visit: impl FnMut(&[u8])) -> Result<()> {
        let mut at = range.start;
        while at < range.end {
            self.cancel.check()?;
            let until = at.saturating_add(self.reader.input.at_once()).min(range.end);
            visit(&self.reader.input.get(at..until, "object")?);
            at = until;
        }
        Ok(())
    }

    /// Verifies the hash of an object, which is read in blocks; returns false on mismatch.
    fn object_hash(&mut self, message: &Message, frame: &Frame, name: &str) -> Result<bool> {
        let Some(expected) = frame.expected_hash(message.preamble.flags) else { return Ok(true) };
        let mut hasher = Xxh3::new();
        self.read_in_blocks(frame.body(), |bytes| hasher.update(bytes))?;
        Ok(self.compare_hash(frame, expected, hasher.digest(), Some(name)))
    }

    /// Verifies the hashes of the blocks of an object, and its own, if its bytes are not verified by block elsewhere.
    fn block_hashes(&mut self, object: &Frame, index: usize, blocks: &BlockHashes) -> Result<()> {
        if !self.payloads && self.depth < Depth::Deep {
            return Ok(());
        }
        let body = object.body();
        let mut hasher = BodyHasher::with_block(blocks.block);
        self.read_in_blocks(body.clone(), |bytes| hasher.update(bytes))?;
        let (whole, found) = hasher.finish();
        let pairs = found.iter().flat_map(|found| &found.hashes).zip(&blocks.hashes);
        let Some(number) = pairs.clone().position(|(found, listed)| found != listed) else {
            if whole != object.hash && !self.payloads {
                self.compare_hash(object, object.hash, whole, None);
            }
            return Ok(());
        };
        let detail = format!("hash mismatch in block {number} of object {index}");
        let offset = body.start.saturating_add(blocks.block.saturating_mul(number as u64));
        let len = blocks.block.min(body.end.saturating_sub(offset));
        self.add_finding(Finding::failed("hash_mismatch", detail).at(offset, len));
        Ok(())
    }

    fn compare_hash(&mut self, frame: &Frame, expected: u64, found: u64, name: Option<&str>) -> bool {
        if found == expected {
            return true;
        }
        let detail =
            format!("hash mismatch in {:?}: expected {expected:016x}, computed {found:016x}", frame.kind);
        let body = frame.body();
        let mut finding = Finding::failed("hash_mismatch", detail).at(body.start, body.end - body.start);
        finding.array = name.map(str::to_owned);
        self.add_finding(finding);
        false
    }

    fn metadata(&mut self, message: &Message, frame: &Frame, metadata: &Metadata) {
        let objects = message.object_count();
        if metadata.base.len() > objects {
            let detail = format!("`base` has {} entries for {objects} objects", metadata.base.len());
            self.add_finding(
                Finding::failed("base_count_exceeds_objects", detail).at(frame.offset, frame.len),
            );
        }
        for (i, base) in metadata.base.iter().enumerate() {
            match base.get(RESERVED) {
                Some(CborItem::Map(pairs))
                    if pairs.iter().any(|(key, _)| key.as_text() == Some("tensor")) => {}
                Some(CborItem::Map(_)) => {
                    let detail = format!("{RESERVED} of object {i} does not describe its tensor");
                    self.add_finding(
                        Finding::warning("reserved_missing_tensor", detail).at(frame.offset, frame.len),
                    );
                }
                None => {}
                Some(_) => {
                    let detail = format!("{RESERVED} of object {i} is not a map");
                    self.add_finding(
                        Finding::failed("reserved_not_a_map", detail).at(frame.offset, frame.len),
                    );
                }
            }
        }
    }

    /// Creates a finding for an index or hash list that contradicts the object frames.
    fn differences(&mut self, frame: &Frame, differences: Vec<ListDifference>) {
        for (check, detail) in differences {
            self.add_finding(Finding::failed(check, detail).at(frame.offset, frame.len));
        }
    }

    /// Audits an object: its descriptor, and its payload if the engine does not verify it.
    fn object(&mut self, message: &Message, frame: &Frame, number: usize, index: usize) -> Result<()> {
        let name = format!("{number}/{index}");
        let object = match self.descriptor(frame, &name)? {
            Some(object) if self.depth >= Depth::Usual => {
                self.parameters(frame, &object, &name)?.then_some(object)
            }
            described => described,
        };
        if let Some(object) = &object {
            if frame.expected_hash(message.preamble.flags).is_some() {
                self.covered += object.cbor.end - object.cbor.start;
            }
            self.payload += object.parts().map(|(_, span)| span.end - span.start).sum::<u64>();
        }
        if self.depth == Depth::Structure {
            return Ok(());
        }
        // The engine verifies hashes of the chunks it can plan; the others are verified here.
        let planned = object.as_ref().is_some_and(|object| object.cells > 0);
        if planned && !self.payloads {
            return Ok(());
        }
        let sound = self.object_hash(message, frame, &name)?;
        match object {
            Some(_) if sound && self.depth >= Depth::Usual && self.payloads => {
                self.cells(message, frame, &name, index)
            }
            _ => Ok(()),
        }
    }

    /// Returns the descriptor of an object, or `None` if it is invalid.
    fn descriptor(&mut self, frame: &Frame, name: &str) -> Result<Option<Object>> {
        let FrameReader { input, limits, .. } = self.reader;
        let read = descriptor_item(input, &limits, frame);
        let object = read.and_then(|(item, span)| {
            let canonical =
                !self.canonical || cbor::is_canonical(&input.get(span.clone(), "descriptor")?, &item);
            Ok((self.reader.object(frame)?, canonical, span))
        });
        match object {
            Ok((object, canonical, span)) => {
                if !canonical {
                    let detail = "CBOR of the descriptor is not canonical";
                    let finding = Finding::warning("descriptor_cbor_non_canonical", detail).in_array(name);
                    self.add_finding(finding.at(span.start, span.end - span.start));
                }
                Ok(Some(object))
            }
            Err(error) if self.depth >= Depth::Usual => {
                self.check_result("descriptor_cbor_parse_failed", frame, Err::<(), _>(error.in_array(name)))?;
                Ok(None)
            }
            Err(_) => Ok(None),
        }
    }

    /// Audits the codecs of a descriptor; returns false if the object cannot be decoded.
    fn parameters(&mut self, frame: &Frame, object: &Object, name: &str) -> Result<bool> {
        let span = &object.cbor;
        if object.descriptor.kind.is_empty() {
            let finding = Finding::failed("empty_obj_type", "empty object type").in_array(name);
            self.add_finding(finding.at(span.start, span.end - span.start));
        }
        let place =
            ErrorLocation { what: "descriptor", object: self.reader.input.name(), offset: span.start };
        let Err(error) = ObjectPipeline::from_descriptor(&object.descriptor, place) else { return Ok(true) };
        let ErrorKind::Unsupported { .. } = error.kind() else {
            self.check_result("pipeline_config_failed", frame, Err::<(), _>(error.in_array(name)))?;
            return Ok(false);
        };
        let descriptor = &object.descriptor;
        let unknown = [
            ("unknown_encoding", &descriptor.encoding, &ENCODINGS[..]),
            ("unknown_filter", &descriptor.filter, &FILTERS),
            ("unknown_compression", &descriptor.compression, &COMPRESSIONS),
        ];
        match unknown.into_iter().find(|(_, word, known)| !known.contains(&word.as_str())) {
            Some((check, word, _)) => {
                let mut finding = Finding::failed(check, format!("unknown value {word:?}")).in_array(name);
                // A newer writer can have it; nothing shows that the file is damaged.
                finding.unsupported = true;
                self.add_finding(finding.at(span.start, span.end - span.start));
            }
            // A codec that this build lacks is not an error of the file.
            None => self.add_finding(Finding::warning("codec_unsupported", error.to_string()).in_array(name)),
        }
        Ok(false)
    }

    /// Decodes an object. At full depth its unmasked cells must be finite.
    fn cells(&mut self, message: &Message, frame: &Frame, name: &str, index: usize) -> Result<()> {
        let full = self.depth == Depth::Full;
        // Decoding and checking a cell costs about a quarter of other work on it.
        let limits = self.reader.limits;
        let justified = limits.check_total("the decoded objects", self.decoded / 4, self.decoded_from);
        if self
            .check_result("decode_object_failed", frame, justified.map_err(|e| e.in_array(name)))?
            .is_none()
        {
            return Ok(());
        }
        let options = DecodeOptions {
            verify_hash: false,
            restore_non_finite: false,
            limits: self.reader.limits,
            ..DecodeOptions::default()
        };
        let decoded = open_frame(&self.reader, frame, message.preamble.flags, index, &options, None)
            .and_then(|work| {
                // All cells of a constant object are equal; one is sufficient.
                let cells = match work.constant() {
                    Some(cell) => cell.to_vec(),
                    None => work.decode_all(&options)?,
                };
                Ok((work.object.descriptor.dtype, cells, work.masked()?))
            })
            .map_err(|e| tesseral_core::Error::from(e).in_array(name));
        let check = if full { "decode_object_failed" } else { "decode_pipeline_failed" };
        let Some((dtype, cells, masked)) = self.check_result(check, frame, decoded)? else { return Ok(()) };
        self.decoded = self.decoded.saturating_add(cells.len() as u64);
        self.decoded_from = self.decoded_from.saturating_add(frame.len);
        if !full {
            return Ok(());
        }
        for CellFault { check, detail } in non_finite_faults(dtype, &cells, &masked, 0) {
            self.add_finding(Finding::failed(check, detail).at(frame.offset, frame.len).in_array(name));
        }
        Ok(())
    }
}

const ENCODINGS: [&str; 2] = ["none", "simple_packing"];
const FILTERS: [&str; 2] = ["none", "shuffle"];
const COMPRESSIONS: [&str; 9] = ["none", "szip", "zstd", "lz4", "blosc2", "zfp", "sz3", "rle", "roaring"];

/// Check names for a CBOR frame that does not parse, and for one that is not canonical.
fn checks_of(kind: FrameKind) -> (&'static str, &'static str) {
    match kind {
        FrameKind::HeaderMetadata | FrameKind::FooterMetadata => {
            ("metadata_cbor_parse_failed", "metadata_cbor_non_canonical")
        }
        FrameKind::HeaderIndex | FrameKind::FooterIndex => {
            ("index_cbor_parse_failed", "index_cbor_non_canonical")
        }
        FrameKind::HeaderHash | FrameKind::FooterHash => {
            ("hash_frame_cbor_parse_failed", "hash_frame_cbor_non_canonical")
        }
        FrameKind::Preceder | FrameKind::Object => {
            ("preceder_cbor_parse_failed", "preceder_cbor_non_canonical")
        }
    }
}

/// Returns whether a dtype can hold NaN and infinities.
pub(crate) fn is_inexact(dtype: DType) -> bool {
    matches!(dtype.class(), Class::Float | Class::Complex)
}

/// Names the first NaN and the first infinity that no mask names. Cells are in native byte order, the first one is cell `start`
/// of the object; `masked` is the mask of the whole object.
pub(crate) fn non_finite_faults(
    dtype: DType,
    cells: &[u8],
    masked: &[u8],
    start: u64,
) -> SmallVec<[CellFault; 2]> {
    let (nan, inf) = first_non_finite(dtype, cells, masked, start);
    let fault = |check, what, cell: Option<u64>| {
        let detail = format!("cell {} is {what} and is not masked", cell?);
        Some(CellFault { check, detail })
    };
    let faults = [fault("nan_detected", "NaN", nan), fault("inf_detected", "infinite", inf)];
    faults.into_iter().flatten().collect()
}

fn first_non_finite(dtype: DType, cells: &[u8], masked: &[u8], start: u64) -> (Option<u64>, Option<u64>) {
    let (true, Some(size)) = (is_inexact(dtype), dtype.size()) else { return (None, None) };
    let (mut nan, mut inf) = (None, None);
    for (i, cell) in (start..).zip(cells.chunks_exact(size)) {
        let byte = usize::try_from(i / 8).ok().and_then(|at| masked.get(at));
        let named = byte.is_some_and(|byte| byte >> (7 - i % 8) & 1 == 1);
        if named || crate::encode::is_finite(dtype, cell) {
            continue;
        }
        match crate::encode::kind_of(dtype, cell) {
            crate::wire::descriptor::MaskKind::Nan => nan = nan.or(Some(i)),
            _ => inf = inf.or(Some(i)),
        }
        if nan.is_some() && inf.is_some() {
            break;
        }
    }
    (nan, inf)
}

/// Returns the level of a check, as in the reference.
pub(crate) fn level_of(finding: &Finding) -> u8 {
    match finding.check {
        "decode_object_failed" | "decoded_size_mismatch" | "nan_detected" | "inf_detected" => 4,
        "hash_mismatch"
        | "hash_verification_error"
        | "unknown_hash_algorithm"
        | "no_hash_available"
        | "older_writer"
        | "decode_pipeline_failed"
        | "pipeline_config_failed"
        | "codec_unsupported" => 3,
        check if check.contains("cbor_parse") || check.contains("canonical") => 2,
        "index_count_mismatch"
        | "index_offset_mismatch"
        | "hash_frame_count_mismatch"
        | "preceder_base_count_wrong"
        | "base_count_exceeds_objects"
        | "ndim_shape_mismatch"
        | "strides_shape_mismatch"
        | "shape_overflow"
        | "unknown_encoding"
        | "unknown_filter"
        | "unknown_compression"
        | "empty_obj_type"
        | "reserved_not_a_map"
        | "reserved_missing_tensor" => 2,
        _ => 1,
    }
}

/// Returns whether a finding makes a message invalid.
pub(crate) fn is_error(finding: &Finding) -> bool {
    !finding.ok && finding.severity == Severity::Error
}
