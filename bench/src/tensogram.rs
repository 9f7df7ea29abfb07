//! Tensogram messages through `tesseral-tensogram`.

use std::path::Path;
use std::sync::Arc;

use tesseral::{DType, OpenOptions, Options, verify};
use tesseral_store::{LocalStore, ReadMode};
use tesseral_tensogram::{
    DataObjectDescriptor, DecodeOptions, EncodeOptions, GlobalMetadata, TensogramFile, TensogramFormat,
};

use crate::common::Result;
use crate::messages::{Decoding, Messages, Pipeline};

/// The `tesseral-tensogram` runner.
pub struct TesseralMessages;

fn descriptor(pipeline: &Pipeline, shape: &[u64]) -> DataObjectDescriptor {
    let mut descriptor = DataObjectDescriptor::raw(DType::Float64, shape);
    if pipeline.bits.is_some() {
        "simple_packing".clone_into(&mut descriptor.encoding);
    }
    if pipeline.shuffle {
        "shuffle".clone_into(&mut descriptor.filter);
    }
    descriptor.compression.clone_from(&pipeline.compression);
    descriptor.params.extend(
        pipeline
            .params()
            .into_iter()
            .map(|(k, v)| (k.to_owned(), tesseral_tensogram::wire::cbor::CborItem::UInt(v))),
    );
    descriptor
}

impl Messages for TesseralMessages {
    fn encode(&self, pipeline: &Pipeline, shape: &[u64], cells: &[u8]) -> Result<Vec<u8>> {
        let object = descriptor(pipeline, shape);
        Ok(tesseral_tensogram::encode(
            &GlobalMetadata::default(),
            &[(&object, cells)],
            &EncodeOptions::default(),
        )?)
    }

    fn decode(&self, message: &[u8], how: Decoding, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let threads = how.threads.unwrap_or(DecodeOptions::default().threads);
        let options = DecodeOptions { verify_hash: how.checked, threads, ..DecodeOptions::default() };
        let (_, objects) = tesseral_tensogram::decode(message, &options)?;
        see(&objects[0].1);
        Ok(())
    }

    fn range(&self, message: &[u8], first: u64, count: u64) -> Result<Vec<u8>> {
        let (_, ranges) =
            tesseral_tensogram::decode_range(message, 0, &[(first, count)], &DecodeOptions::default())?;
        Ok(ranges[0].to_vec())
    }

    fn read_metadata(&self, path: &Path) -> Result<usize> {
        Ok(TensogramFile::open(path).decode_metadata(0, &DecodeOptions::default())?.base.len())
    }

    fn read_range(&self, path: &Path, first: u64, count: u64) -> Result<Vec<u8>> {
        let (_, ranges) =
            TensogramFile::open(path).decode_range(0, 0, &[(first, count)], &DecodeOptions::default())?;
        Ok(ranges[0].to_vec())
    }

    fn count(&self, path: &Path) -> Result<usize> {
        Ok(TensogramFile::open(path).message_count()?)
    }

    /// Appends are always durable.
    fn append(&self, path: &Path, cells: &[u8], times: usize, _: bool) -> Result<()> {
        let mut file = TensogramFile::create(path)?;
        let object = DataObjectDescriptor::raw(DType::Float64, &[cells.len() as u64 / 8]);
        for _ in 0..times {
            file.append(&GlobalMetadata::default(), &[(&object, cells)], &EncodeOptions::default())?;
        }
        Ok(())
    }

    fn decode_messages(&self, path: &Path, numbers: &[usize]) -> Result<u64> {
        let file = TensogramFile::open(path);
        let mut bytes = 0;
        for &number in numbers {
            let (_, objects) = file.decode_message(number, &DecodeOptions::default())?;
            bytes += objects.iter().map(|(_, cells)| cells.len() as u64).sum::<u64>();
        }
        Ok(bytes)
    }

    fn verify_file(&self, path: &Path) -> Result<()> {
        let store = Arc::new(LocalStore::new(path, ReadMode::Map));
        let (open, options) = (OpenOptions::default(), Options::default());
        let found = verify(&TensogramFormat, store, &open, false, &options, &mut |_| {})?;
        if found.ok { Ok(()) } else { Err("not valid".into()) }
    }

    fn verify(&self, message: &[u8]) -> Result<()> {
        // Unencoded cells are not copied, so hash verification is all that remains of decoding.
        self.decode(message, Decoding { checked: true, threads: None }, &mut |_| {})
    }
}
