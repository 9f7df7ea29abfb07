//! Streaming encoder: writes a message object by object.

use std::io::{Cursor, Seek, SeekFrom, Write};

use tesseral_core::Error;

use super::encoding::{object_frame, pre_encoded_frame};
use super::error::{Result, TensogramError};
use super::options::EncodeOptions;
use crate::assemble::{AggregateHash, complete, hash_list, refuse_reserved};
use crate::wire::block_hashes::BlockHashes;
use crate::wire::cbor::Map;
use crate::wire::descriptor::Descriptor;
use crate::wire::frame::{self, FrameKind};
use crate::wire::index_and_hashes::Index;
use crate::wire::metadata::{Metadata, RESERVED};
use crate::wire::object::ObjectFrame;
use crate::wire::postamble::{self, Postamble};
use crate::wire::preamble::{self, Preamble};

/// Writes a message object by object. Retains only offsets, hashes and descriptors of the objects.
///
/// ```
/// use tesseral_core::DType;
/// use tesseral_tensogram::{DataObjectDescriptor, DecodeOptions, EncodeOptions, GlobalMetadata, StreamingEncoder, decode};
///
/// let mut stream = StreamingEncoder::new(Vec::new(), &GlobalMetadata::default(), &EncodeOptions::default())?;
/// for step in 0..3_u8 {
///     stream.write_object(&DataObjectDescriptor::raw(DType::UInt8, &[4]), &[step; 4])?;
/// }
/// let message = stream.finish()?;
/// let (_, objects) = decode(&message, &DecodeOptions::default())?;
/// assert_eq!(&objects[2].1[..], [2; 4]);
/// # Ok::<(), tesseral_tensogram::TensogramError>(())
/// ```
#[derive(Debug)]
pub struct StreamingEncoder<W> {
    sink: W,
    written: u64,
    options: EncodeOptions,
    metadata: Metadata,
    index: Index,
    hashes: Vec<u64>,
    blocks: Vec<Option<BlockHashes>>,
    descriptors: Vec<Descriptor>,
    /// Preceder metadata of each object; has one more entry than objects while an object is pending.
    preceders: Vec<Map>,
}

fn misplaced(detail: &str) -> TensogramError {
    TensogramError::Framing(Error::invalid(detail))
}

impl<W: Write> StreamingEncoder<W> {
    /// Starts a message.
    ///
    /// # Errors
    /// `Metadata` for reserved keys; `Encoding` when the hash list is requested before the objects; `Io`.
    pub fn new(sink: W, metadata: &Metadata, options: &EncodeOptions) -> Result<Self> {
        refuse_reserved(metadata)?;
        if matches!(options.aggregate_hash, AggregateHash::Header | AggregateHash::Both) {
            return Err(
                Error::invalid("a streamed message cannot store its hash list before the objects").into()
            );
        }
        let mut stream = Self {
            sink,
            written: 0,
            options: options.clone(),
            metadata: metadata.clone(),
            index: Index::default(),
            hashes: Vec::new(),
            blocks: Vec::new(),
            descriptors: Vec::new(),
            preceders: Vec::new(),
        };
        stream.begin()?;
        Ok(stream)
    }

    /// Writes the preamble and the frames before the objects.
    fn begin(&mut self) -> Result<()> {
        let mut flags = preamble::HEADER_METADATA
            | preamble::FOOTER_METADATA
            | preamble::FOOTER_INDEX
            | preamble::PRECEDER_METADATA;
        if self.options.hashing {
            flags |= preamble::HASHES_PRESENT;
        }
        if self.options.lists_hashes() {
            flags |= preamble::FOOTER_HASHES;
        }
        let mut head = Vec::new();
        Preamble { flags, total_length: 0 }.write(&mut head);
        frame::write(FrameKind::HeaderMetadata, &self.metadata.to_bytes(), self.options.hashing, &mut head);
        self.put(&head)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.sink.write_all(bytes)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Writes a CBOR frame. The current position is always aligned for a frame.
    fn put_frame(&mut self, kind: FrameKind, body: &[u8]) -> Result<()> {
        let mut out = Vec::new();
        frame::write(kind, body, self.options.hashing, &mut out);
        self.put(&out)
    }

    /// Writes preceder metadata for the next object.
    ///
    /// # Errors
    /// `Framing` when preceder metadata is already pending; `Metadata` for reserved keys; `Io`.
    pub fn write_preceder(&mut self, keys: Map) -> Result<()> {
        if self.is_waiting() {
            return Err(misplaced("duplicate preceder metadata"));
        }
        if keys.contains_key(RESERVED) {
            let detail = format!("key {RESERVED} is reserved");
            return Err(Error::corrupt("metadata", "the message to be written", None, detail).into());
        }
        let metadata = Metadata { base: vec![keys], ..Metadata::default() };
        self.put_frame(FrameKind::Preceder, &metadata.to_bytes())?;
        self.preceders.extend(metadata.base);
        Ok(())
    }

    fn is_waiting(&self) -> bool {
        self.preceders.len() > self.descriptors.len()
    }

    /// Encodes an object and writes it.
    ///
    /// # Errors
    /// As [`encode`](super::encoding::encode), and `Io`.
    pub fn write_object(&mut self, descriptor: &Descriptor, cells: &[u8]) -> Result<()> {
        let frame = object_frame(descriptor, cells, &self.options)?;
        self.write_frame(&frame)
    }

    /// Writes an object whose payload is already encoded as its descriptor declares.
    ///
    /// # Errors
    /// As [`write_object`](Self::write_object).
    pub fn write_object_pre_encoded(&mut self, descriptor: &Descriptor, payload: &[u8]) -> Result<()> {
        let frame = pre_encoded_frame(descriptor, payload, &self.options)?;
        self.write_frame(&frame)
    }

    fn write_frame(&mut self, frame: &ObjectFrame<'_>) -> Result<()> {
        let offset = self.written;
        frame.write(|bytes| self.put(bytes))?;
        if !self.is_waiting() {
            self.preceders.push(Map::new());
        }
        self.index.offsets.push(offset);
        self.index.lengths.push(frame.total_length());
        self.hashes.push(frame.hash());
        self.blocks.push(frame.blocks().cloned());
        self.descriptors.push(frame.descriptor().clone());
        Ok(())
    }

    /// Returns the number of objects written.
    pub fn object_count(&self) -> usize {
        self.descriptors.len()
    }

    /// Returns the number of bytes written.
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Writes the frames after the objects and the postamble. The length in the preamble stays 0.
    ///
    /// # Errors
    /// `Framing` when preceder metadata is pending; `Metadata` when there are more metadata entries than objects; `Io`.
    pub fn finish(mut self) -> Result<W> {
        self.end()?;
        self.sink.flush()?;
        Ok(self.sink)
    }

    fn end(&mut self) -> Result<()> {
        if self.is_waiting() {
            return Err(misplaced("preceder metadata without an object"));
        }
        let first_footer_offset = self.written;
        let mut metadata = self.metadata.clone();
        complete(&mut metadata, self.descriptors.iter())?;
        for (entry, preceder) in metadata.base.iter_mut().zip(std::mem::take(&mut self.preceders)) {
            entry.extend(preceder);
        }
        metadata.reserved = self.options.provenance.reserved();
        self.put_frame(FrameKind::FooterMetadata, &metadata.to_bytes())?;
        if self.options.lists_hashes() && !self.hashes.is_empty() {
            let blocks = std::mem::take(&mut self.blocks);
            self.put_frame(FrameKind::FooterHash, &hash_list(&self.hashes, blocks))?;
        }
        self.put_frame(FrameKind::FooterIndex, &self.index.to_bytes())?;
        let mut end = Vec::new();
        Postamble { first_footer_offset, total_length: 0 }.write(&mut end);
        self.put(&end)
    }
}

impl<W: Write + Seek> StreamingEncoder<W> {
    /// As [`finish`](Self::finish), then writes the length into the preamble. The message can begin anywhere in the sink.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_with_backfill(mut self) -> Result<W> {
        self.end()?;
        self.backfill()?;
        self.sink.flush()?;
        Ok(self.sink)
    }

    /// Writes the length of a finished message into its preamble.
    fn backfill(&mut self) -> Result<()> {
        let end = self.sink.stream_position()?;
        let start = end
            .checked_sub(self.written)
            .ok_or_else(|| misplaced("the position of the sink changed during the write"))?;
        let length = self.written.to_be_bytes();
        for at in [start + 16, end - postamble::LEN + 8] {
            self.sink.seek(SeekFrom::Start(at))?;
            self.sink.write_all(&length)?;
        }
        self.sink.seek(SeekFrom::Start(end))?;
        Ok(())
    }
}

impl StreamingEncoder<Cursor<Vec<u8>>> {
    /// Ends the message, returns its bytes, and starts the next one with the same metadata and options.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_and_reset(&mut self) -> Result<Vec<u8>> {
        self.end()?;
        self.reset()
    }

    /// As [`finish_and_reset`](Self::finish_and_reset), with the length in the preamble.
    ///
    /// # Errors
    /// As [`finish`](Self::finish).
    pub fn finish_and_reset_with_backfill(&mut self) -> Result<Vec<u8>> {
        self.end()?;
        self.backfill()?;
        self.reset()
    }

    /// Returns the written bytes and resets the encoder.
    fn reset(&mut self) -> Result<Vec<u8>> {
        let message = std::mem::take(&mut self.sink).into_inner();
        self.written = 0;
        self.index = Index::default();
        self.hashes.clear();
        self.descriptors.clear();
        self.preceders.clear();
        self.begin()?;
        Ok(message)
    }
}
