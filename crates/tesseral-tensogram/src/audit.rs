//! Checking a file: every check that the reference's validator has, under its names, and the hash of every frame.

use std::sync::Arc;

use tesseral_core::{ErrorKind, Finding, Result};
use tesseral_format::{AuditOptions, AuditReport, Container};
use tesseral_store::Store;
use xxhash_rust::xxh3::xxh3_64;

use crate::array::descriptor_item;
use crate::message::Message;
use crate::open::{Catalog, TensogramContainer};
use crate::pipeline::Pipeline;
use crate::scan::Skipped;
use crate::source::Input;
use crate::wire::cbor::{self, Place};
use crate::wire::frame::{Frame, HASH_PRESENT, Kind};
use crate::wire::lists::{HashList, Index};
use crate::wire::metadata::{Metadata, RESERVED};
use crate::wire::preamble::HASHES_PRESENT;

/// What the frames of a message hold, counted while they are checked.
struct Audit<'a> {
    catalog: &'a Catalog,
    report: &'a mut dyn FnMut(Finding),
    failures: u64,
    /// Bytes of metadata that a hash covers.
    covered: u64,
    /// Bytes of payload, which the engine counts.
    payload: u64,
}

pub(crate) fn audit(
    store: &Arc<dyn Store>,
    options: &AuditOptions,
    report: &mut dyn FnMut(Finding),
) -> Result<AuditReport> {
    let catalog = Catalog::load(store, &options.open, false)?;
    let len = catalog.source.len;
    let mut audit = Audit { catalog: &catalog, report, failures: 0, covered: 0, payload: 0 };
    for skipped in &catalog.skipped {
        audit.tell(skipped_finding(skipped));
    }
    for number in 0..catalog.messages.len() {
        audit.message(number)?;
    }
    let (failures, covered, payload) = (audit.failures, audit.covered, audit.payload);
    let refused = catalog.refusal();
    if let Some(error) = refused.as_ref().filter(|_| failures == 0) {
        report(Finding::from_error("structure", error));
    }
    if failures == 0 && refused.is_none() {
        let messages = catalog.messages.len();
        let objects: usize = catalog.messages.iter().map(|message| message.objects().count()).sum();
        report(Finding::passed("structure", format!("{messages} messages, {objects} objects")));
        report(Finding::passed("metadata", "every descriptor, index and hash list agrees with the frames"));
    }
    let uncovered_bytes = len.saturating_sub(covered).saturating_sub(payload);
    let container: Option<Arc<dyn Container>> = match refused {
        None => Some(Arc::new(TensogramContainer::new(catalog))),
        Some(_) => None,
    };
    Ok(AuditReport { container, covered_bytes: covered, uncovered_bytes })
}

/// What is said of bytes that belong to no message.
pub(crate) fn skipped_finding(skipped: &Skipped) -> Finding {
    let detail = format!("{} bytes belong to no message: {}", skipped.len, skipped.detail);
    Finding::failed(skipped.check, detail).at(skipped.offset, skipped.len)
}

impl Audit<'_> {
    fn tell(&mut self, finding: Finding) {
        self.failures += u64::from(!finding.ok);
        (self.report)(finding);
    }

    /// Turns damage into a finding; passes on what kept the file from being read.
    fn take<T>(&mut self, check: &'static str, frame: &Frame, result: Result<T>) -> Result<Option<T>> {
        match result {
            Ok(value) => Ok(Some(value)),
            Err(e) if matches!(e.kind(), ErrorKind::Io { .. } | ErrorKind::NotFound { .. }) => Err(e),
            Err(e) => {
                let mut finding = Finding::from_error(check, &e).at(frame.offset, frame.len);
                finding.offset = e.offset().or(finding.offset);
                self.tell(finding);
                Ok(None)
            }
        }
    }

    fn message(&mut self, number: usize) -> Result<()> {
        let catalog = self.catalog;
        let message = &catalog.messages[number];
        for fault in &message.faults {
            self.tell(fault.finding());
        }
        if message.fault().is_some() {
            return Ok(());
        }
        let hashed = message.frames.iter().any(|frame| frame.expected_hash(message.preamble.flags).is_some());
        if !hashed {
            let detail = format!("message {number} has no hashes: damage in it may go unseen");
            self.tell(Finding::warning("no_hash_available", detail).at(message.offset, message.len));
        }
        let older = message.preamble.flags & HASHES_PRESENT != 0
            && message.frames.iter().any(|frame| frame.flags & HASH_PRESENT == 0);
        if older {
            let detail =
                format!("message {number} says that it has hashes, its frames do not; they are checked");
            self.tell(Finding::warning("older_writer", detail).at(message.offset, message.len));
        }
        let mut object = 0;
        for frame in &message.frames {
            if frame.kind == Kind::Object {
                self.object(message, frame, &format!("{number}/{object}"))?;
                object += 1;
            } else {
                self.cbor_frame(message, frame)?;
            }
        }
        Ok(())
    }

    /// A frame of CBOR: its hash, its item, what the item says.
    fn cbor_frame(&mut self, message: &Message, frame: &Frame) -> Result<()> {
        let catalog = self.catalog;
        let body = frame.body();
        let place = Place { what: "frame", object: &catalog.source.object, offset: body.start };
        let (parse_check, canonical_check) = match frame.kind {
            Kind::HeaderMetadata | Kind::FooterMetadata => {
                ("metadata_cbor_parse_failed", "metadata_cbor_non_canonical")
            }
            Kind::HeaderIndex | Kind::FooterIndex => ("index_cbor_parse_failed", "index_cbor_non_canonical"),
            Kind::HeaderHash | Kind::FooterHash => {
                ("hash_frame_cbor_parse_failed", "hash_frame_cbor_non_canonical")
            }
            Kind::Preceder | Kind::Object => ("preceder_cbor_parse_failed", "preceder_cbor_non_canonical"),
        };
        let sized = catalog.limits.check_metadata(body.end - body.start);
        let read = sized.and_then(|()| catalog.source.get(body.clone(), "frame"));
        let Some(bytes) = self.take(parse_check, frame, read)? else { return Ok(()) };
        if let Some(expected) = frame.expected_hash(message.preamble.flags) {
            self.covered += bytes.len() as u64;
            let found = xxh3_64(&bytes);
            if found != expected {
                let detail =
                    format!("the hash of {:?} is {found:016x}, stored is {expected:016x}", frame.kind);
                self.tell(Finding::failed("hash_mismatch", detail).at(body.start, bytes.len() as u64));
                return Ok(());
            }
        }
        let parsed = cbor::parse(&bytes, catalog.limits.depth, place);
        let Some((item, _)) = self.take(parse_check, frame, parsed)? else { return Ok(()) };
        if !cbor::is_canonical(&bytes, &item) {
            let detail = format!("the CBOR of {:?} is not canonical", frame.kind);
            self.tell(Finding::warning(canonical_check, detail).at(body.start, bytes.len() as u64));
        }
        match frame.kind {
            Kind::HeaderMetadata | Kind::FooterMetadata => {
                let metadata = self.take(parse_check, frame, Metadata::from_item(item, place))?;
                if let Some(metadata) = metadata {
                    self.metadata(message, frame, &metadata);
                }
            }
            Kind::HeaderIndex | Kind::FooterIndex => {
                let index = self.take(parse_check, frame, Index::from_item(item, place))?;
                if let Some(index) = index {
                    self.index(message, frame, &index);
                }
            }
            Kind::HeaderHash | Kind::FooterHash => {
                let list = self.take(parse_check, frame, HashList::from_item(item, place))?;
                if let Some(list) = list {
                    self.hashes(message, frame, &list);
                }
            }
            Kind::Preceder | Kind::Object => {
                self.take("preceder_base_count_wrong", frame, catalog.reader().preceder(message, frame))?;
            }
        }
        Ok(())
    }

    fn metadata(&mut self, message: &Message, frame: &Frame, metadata: &Metadata) {
        let objects = message.objects().count();
        if metadata.base.len() > objects {
            let detail = format!("base has {} entries for {objects} objects", metadata.base.len());
            self.tell(Finding::failed("base_count_exceeds_objects", detail).at(frame.offset, frame.len));
        }
        for (i, base) in metadata.base.iter().enumerate() {
            use crate::wire::cbor::Item;
            match base.get(RESERVED) {
                Some(Item::Map(pairs)) if pairs.iter().any(|(key, _)| key.as_text() == Some("tensor")) => {}
                Some(Item::Map(_)) => {
                    let detail = format!("{RESERVED} of object {i} says nothing of its tensor");
                    self.tell(
                        Finding::warning("reserved_missing_tensor", detail).at(frame.offset, frame.len),
                    );
                }
                None => {}
                Some(_) => {
                    let detail = format!("{RESERVED} of object {i} is not a map");
                    self.tell(Finding::failed("reserved_not_a_map", detail).at(frame.offset, frame.len));
                }
            }
        }
    }

    fn index(&mut self, message: &Message, frame: &Frame, index: &Index) {
        let objects: Vec<_> = message.objects().collect();
        if index.offsets.len() != objects.len() {
            let detail = format!("the index lists {} of {} objects", index.offsets.len(), objects.len());
            return self.tell(Finding::failed("index_count_mismatch", detail).at(frame.offset, frame.len));
        }
        for (i, object) in objects.iter().enumerate() {
            let place = (object.offset - message.offset, object.len);
            let said = (index.offsets[i], index.lengths[i]);
            if place != said {
                let detail = format!("object {i} is at {place:?}, the index says {said:?}");
                self.tell(Finding::failed("index_offset_mismatch", detail).at(frame.offset, frame.len));
            }
        }
    }

    fn hashes(&mut self, message: &Message, frame: &Frame, list: &HashList) {
        let objects: Vec<_> = message.objects().collect();
        if list.algorithm != "xxh3" {
            let detail = format!("the algorithm {:?} is not known", list.algorithm);
            self.tell(Finding::warning("unknown_hash_algorithm", detail).at(frame.offset, frame.len));
            return;
        }
        if list.hashes.len() != objects.len() {
            let detail = format!("{} hashes of {} objects", list.hashes.len(), objects.len());
            return self
                .tell(Finding::failed("hash_frame_count_mismatch", detail).at(frame.offset, frame.len));
        }
        for (i, (object, listed)) in objects.iter().zip(&list.hashes).enumerate() {
            let stored = format!("{:016x}", object.hash);
            if *listed != stored {
                let detail = format!("the hash of object {i} is {stored}, the list says {listed:?}");
                self.tell(Finding::failed("hash_mismatch", detail).at(frame.offset, frame.len));
            }
        }
    }

    /// An object's descriptor. Its hash covers the payload too and is left to the engine, unless nothing can be decoded.
    fn object(&mut self, message: &Message, frame: &Frame, name: &str) -> Result<()> {
        let catalog = self.catalog;
        let expected = frame.expected_hash(message.preamble.flags);
        let read = descriptor_item(&catalog.source, &catalog.limits, frame);
        let object = read.and_then(|(item, span)| {
            let bytes = catalog.source.get(span.clone(), "descriptor")?;
            let canonical = cbor::is_canonical(&bytes, &item);
            Ok((catalog.reader().object(frame)?, canonical, span))
        });
        let (object, canonical, span) = match object {
            Ok(object) => object,
            Err(error) => {
                self.take("descriptor_cbor_parse_failed", frame, Err::<(), _>(error.in_array(name)))?;
                return Ok(());
            }
        };
        if !canonical {
            let detail = "the CBOR of the descriptor is not canonical";
            let finding = Finding::warning("descriptor_cbor_non_canonical", detail).in_array(name);
            self.tell(finding.at(span.start, span.end - span.start));
        }
        if object.descriptor.kind.is_empty() {
            let finding = Finding::failed("empty_obj_type", "the object's type is empty").in_array(name);
            self.tell(finding.at(span.start, span.end - span.start));
        }
        let place = Place { what: "descriptor", object: &catalog.source.object, offset: span.start };
        if let Err(error) = Pipeline::of(&object.descriptor, place) {
            let check = match error.kind() {
                // What is not known here may be sound: the engine says so when it comes to decode it.
                ErrorKind::Unsupported { .. } => None,
                _ => Some("pipeline_config_failed"),
            };
            match check {
                Some(check) => {
                    self.take(check, frame, Err::<(), _>(error.in_array(name)))?;
                }
                None => self.tell(Finding::warning("codec_unsupported", error.to_string()).in_array(name)),
            }
        }
        if expected.is_some() {
            self.covered += span.end - span.start;
        }
        self.payload += object.parts().map(|(_, span)| span.end - span.start).sum::<u64>();
        Ok(())
    }
}
