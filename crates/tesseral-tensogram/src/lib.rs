//! Tensogram `.tgm` v3: self-describing messages of tensors, back to back in a file.
//!
//! ```text
//! file:    message │ message │ …                 bytes between messages are skipped and reported
//! message: preamble │ metadata, index, hashes │ objects │ hashes, index, metadata │ postamble
//! object:  payload, NaN/±Inf masks │ descriptor
//! ```
//!
//! [`TensogramFormat`] implements the format traits. Each object is an array with a single chunk, named `m/o`: object `o` of
//! message `m`. Opening reads only preambles and frame headers. Metadata is read on demand.
//!
//! ```
//! use std::sync::Arc;
//! use tesseral_core::{ArraySchema, DType};
//! use tesseral_format::{ArraySpec, ColumnData, CreateOptions, Format, OpenOptions, Scratch};
//! use tesseral_store::{MemoryStore, Store};
//! use tesseral_tensogram::TensogramFormat;
//!
//! let store: Arc<dyn Store> = Arc::new(MemoryStore::new("demo.tgm"));
//! let mut writer = TensogramFormat.create(Arc::clone(&store), &CreateOptions::default())?;
//! let array = writer.begin(&ArraySpec::raw(ArraySchema::dense("t2m", DType::Float32, &[2], &[2])))?;
//! let bytes: Vec<u8> = [1.5_f32, f32::NAN].iter().flat_map(|c| c.to_ne_bytes()).collect();
//! let column = ColumnData::Fixed { values: &bytes, validity: None };
//! let chunk = writer.encode(array, &[0], &[column], Vec::new(), &mut Scratch::default())?;
//! writer.push(array, chunk)?;
//! writer.commit()?;
//!
//! let container = TensogramFormat.open(store, &OpenOptions::default())?;
//! assert_eq!(container.name(0), "0/0");
//! // The name in an object's metadata is accepted too.
//! assert_eq!(container.find("t2m")?, 0);
//! # Ok::<(), tesseral_core::Error>(())
//! ```
//!
//! # Limitations
//! - zfp and sz3 support unencoded float64 only. Other data that the reference wrote with them is read if it is lossless, and
//!   rejected otherwise. Without the feature `zfp`, zfp is `Unsupported`.
//! - The writer produces one message with index and hashes before the objects. Chunks are collected until an object is
//!   complete, because codecs work on whole objects; each complete object is written at once.
//! - szip over packed values whose width is not a multiple of 8 is not supported: the reference loses bits there.
#![forbid(unsafe_code)]

mod api;
mod array;
mod assemble;
mod audit;
mod buffer_cache;
mod compress;
mod create_options;
mod decode;
mod edit;
mod encode;
mod format;
mod frame_reader;
mod message;
mod object_name;
mod open;
mod pipeline;
mod repair;
mod scan;
mod source;
mod spool;
mod streamed;
pub mod wire;
mod write;

/// Identifier of the format.
pub const ID: &str = "tensogram";

pub use api::decoding::{
    DecodedObject, decode, decode_descriptors, decode_metadata, decode_object, decode_range,
};
pub use api::encoding::{encode, encode_parts, encode_pre_encoded, encode_pre_encoded_parts};
pub use api::error::TensogramError;
pub use api::file::{Messages, TensogramFile};
pub use api::options::{DecodeOptions, EncodeOptions, Provenance, Stamp};
pub use api::push::{Event, PushDecoder};
pub use api::scanning::{Scanned, SkippedBytes, scan, scan_backward, scan_with_report};
pub use api::stream::StreamingEncoder;
pub use api::validate::{
    FileValidationReport, ValidateOptions, ValidationIssue, ValidationLevel, ValidationMode,
    ValidationReport, validate_buffer, validate_file, validate_message,
};
pub use assemble::{
    AggregateHash, EncodedMessage, MessageEnvelope, assemble_message, build_hash_frame_cbor,
    build_index_frame, compute_message_flags, compute_object_offsets, encode_message, surround,
};
pub use create_options::TensogramCreateOptions;
pub use encode::MaskOptions;
pub use format::TensogramFormat;
pub use open::TensogramContainer;
pub use wire::cbor::verify_canonical_cbor;
pub use wire::descriptor::Descriptor as DataObjectDescriptor;
pub use wire::metadata::Metadata as GlobalMetadata;
pub use wire::object::ObjectFrame;
