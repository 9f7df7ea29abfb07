//! Encoding of cells into messages.

use std::borrow::Cow;

use tesseral_core::Error;

use super::error::Result;
use super::options::{EncodeOptions, threads_of};
use crate::assemble::{EncodedMessage, complete, refuse_reserved};
use crate::encode::{Stages, encode_object};
use crate::wire::descriptor::Descriptor;
use crate::wire::metadata::Metadata;
use crate::wire::object::ObjectFrame;

/// Encodes objects into a message. Cells must be in the byte order of their descriptor; they are not swapped.
///
/// # Errors
/// `Metadata` for reserved keys, more metadata entries than objects, or a shape that does not match the cells; `Encoding` and
/// `Compression` for input that a codec rejects.
pub fn encode(
    metadata: &Metadata,
    objects: &[(&Descriptor, &[u8])],
    options: &EncodeOptions,
) -> Result<Vec<u8>> {
    Ok(encode_parts(metadata, objects, options)?.into_bytes()?)
}

/// As [`encode`], without assembling the message. Uncompressed cells are borrowed.
///
/// ```
/// use tesseral_core::DType;
/// use tesseral_tensogram::{DataObjectDescriptor, EncodeOptions, GlobalMetadata, encode_parts, scan};
///
/// let descriptor = DataObjectDescriptor::raw(DType::UInt8, &[3]);
/// let message = encode_parts(&GlobalMetadata::default(), &[(&descriptor, &[1, 2, 3])], &EncodeOptions::default())?;
/// let bytes = message.into_parts().concat();
/// assert_eq!(scan(&bytes), [(0, bytes.len())]);
/// # Ok::<(), tesseral_tensogram::TensogramError>(())
/// ```
///
/// # Errors
/// As [`encode`].
pub fn encode_parts<'a>(
    metadata: &Metadata,
    objects: &[(&Descriptor, &'a [u8])],
    options: &EncodeOptions,
) -> Result<EncodedMessage<'a>> {
    build(metadata, objects, options, object_frame)
}

/// Encodes a message from payloads that are already encoded as their descriptors declare.
///
/// # Errors
/// As [`encode`].
pub fn encode_pre_encoded(
    metadata: &Metadata,
    objects: &[(&Descriptor, &[u8])],
    options: &EncodeOptions,
) -> Result<Vec<u8>> {
    Ok(encode_pre_encoded_parts(metadata, objects, options)?.into_bytes()?)
}

/// As [`encode_pre_encoded`], without assembling the message.
///
/// # Errors
/// As [`encode`].
pub fn encode_pre_encoded_parts<'a>(
    metadata: &Metadata,
    objects: &[(&Descriptor, &'a [u8])],
    options: &EncodeOptions,
) -> Result<EncodedMessage<'a>> {
    build(metadata, objects, options, pre_encoded_frame)
}

type Encoder = for<'a> fn(&Descriptor, &'a [u8], &EncodeOptions) -> Result<ObjectFrame<'a>>;

fn build<'a>(
    metadata: &Metadata,
    objects: &[(&Descriptor, &'a [u8])],
    options: &EncodeOptions,
    encoder: Encoder,
) -> Result<EncodedMessage<'a>> {
    refuse_reserved(metadata)?;
    let mut frames = Vec::with_capacity(objects.len());
    for (descriptor, cells) in objects {
        frames.push(encoder(descriptor, cells, options)?);
    }
    let mut metadata = metadata.clone();
    complete(&mut metadata, frames.iter().map(ObjectFrame::descriptor))?;
    metadata.reserved = options.provenance.reserved();
    Ok(EncodedMessage::new(&metadata, frames, options.hashing, options.aggregate_hash)?)
}

fn refuse(detail: String) -> Error {
    Error::corrupt("descriptor", "the object to be written", None, detail)
}

/// Validates a descriptor independently of its payload.
fn check(descriptor: &Descriptor) -> Result<()> {
    if descriptor.kind.is_empty() {
        return Err(refuse("empty object type".to_owned()).into());
    }
    if descriptor.strides.len() != descriptor.shape.len() {
        let detail = format!("shape {:?}, strides {:?}", descriptor.shape, descriptor.strides);
        return Err(refuse(detail).into());
    }
    Ok(())
}

/// Encodes one object frame.
pub(crate) fn object_frame<'a>(
    descriptor: &Descriptor,
    cells: &'a [u8],
    options: &EncodeOptions,
) -> Result<ObjectFrame<'a>> {
    check(descriptor)?;
    if descriptor.raw_len() != Some(cells.len() as u64) {
        let detail = format!(
            "{} bytes do not match the size of {} {:?}",
            cells.len(),
            descriptor.dtype,
            descriptor.shape
        );
        return Err(refuse(detail).into());
    }
    let stages = Stages::from_descriptor(descriptor)?;
    let mut cells = Cow::Borrowed(cells);
    // Codecs expect native byte order.
    let swapped = descriptor.big_endian.is_some_and(|big| big != cfg!(target_endian = "big"));
    if swapped && descriptor.dtype.word() > 1 {
        cells.to_mut().chunks_exact_mut(descriptor.dtype.word()).for_each(<[u8]>::reverse);
    }
    Ok(encode_object(stages, cells, &options.masks, options.object_hashes(), threads_of(options.threads))?)
}

/// Builds one object frame from an encoded payload.
pub(crate) fn pre_encoded_frame<'a>(
    descriptor: &Descriptor,
    payload: &'a [u8],
    options: &EncodeOptions,
) -> Result<ObjectFrame<'a>> {
    check(descriptor)?;
    let stages = Stages::from_descriptor(descriptor)?;
    let expected = stages.plain_len()?;
    if descriptor.masks.is_empty() && expected.is_some_and(|expected| expected != payload.len() as u64) {
        return Err(refuse(format!("expected {expected:?} bytes, found {}", payload.len())).into());
    }
    let len = payload.len() as u64;
    Ok(ObjectFrame::with_hashes(descriptor.clone(), Cow::Borrowed(payload), options.object_hashes(), len))
}
