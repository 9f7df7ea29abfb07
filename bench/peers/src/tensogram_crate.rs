//! The reference crate of Tensogram.

use std::collections::BTreeMap;
use std::path::Path;

use tensogram::{
    ByteOrder, DataObjectDescriptor, DecodeOptions, Dtype, EncodeOptions, GlobalMetadata, TensogramFile,
    ValidateOptions,
};

use crate::common::{Result, synchronize};
use crate::messages::{Decoding, Messages, Pipeline};

/// The crate.
pub struct Reference;

fn descriptor(pipeline: &Pipeline, shape: &[u64]) -> DataObjectDescriptor {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d];
    }
    let named = |on: bool, name: &str| if on { name } else { "none" }.to_owned();
    let params = pipeline.params().into_iter();
    DataObjectDescriptor {
        obj_type: "ntensor".to_owned(),
        ndim: shape.len() as u64,
        shape: shape.to_vec(),
        strides,
        dtype: Dtype::Float64,
        byte_order: ByteOrder::Little,
        encoding: named(pipeline.bits.is_some(), "simple_packing"),
        filter: named(pipeline.shuffle, "shuffle"),
        compression: pipeline.compression.clone(),
        masks: None,
        params: params.map(|(k, v)| (k.to_owned(), ciborium::Value::Integer(v.into()))).collect(),
    }
}

fn metadata() -> GlobalMetadata {
    GlobalMetadata {
        base: Vec::new(),
        reserved: BTreeMap::new(),
        extra: BTreeMap::new(),
        ..GlobalMetadata::default()
    }
}

impl Messages for Reference {
    fn encode(&self, pipeline: &Pipeline, shape: &[u64], cells: &[u8]) -> Result<Vec<u8>> {
        let object = descriptor(pipeline, shape);
        Ok(tensogram::encode(&metadata(), &[(&object, cells)], &EncodeOptions::default())?)
    }

    fn decode(&self, message: &[u8], how: Decoding, see: &mut dyn FnMut(&[u8])) -> Result<()> {
        let threads = u32::try_from(how.threads.unwrap_or(0))?;
        let options = DecodeOptions { verify_hash: how.checked, threads, ..DecodeOptions::default() };
        let (_, objects) = tensogram::decode(message, &options)?;
        see(&objects[0].1);
        Ok(())
    }

    fn range(&self, message: &[u8], first: u64, count: u64) -> Result<Vec<u8>> {
        let (_, mut ranges) =
            tensogram::decode_range(message, 0, &[(first, count)], &DecodeOptions::default())?;
        Ok(ranges.remove(0))
    }

    fn read_metadata(&self, path: &Path) -> Result<usize> {
        Ok(TensogramFile::open(path)?.decode_metadata(0)?.base.len())
    }

    fn read_range(&self, path: &Path, first: u64, count: u64) -> Result<Vec<u8>> {
        let file = TensogramFile::open(path)?;
        let (_, mut ranges) = file.decode_range(0, 0, &[(first, count)], &DecodeOptions::default())?;
        Ok(ranges.remove(0))
    }

    fn count(&self, path: &Path) -> Result<usize> {
        Ok(TensogramFile::open(path)?.message_count()?)
    }

    fn append(&self, path: &Path, cells: &[u8], times: usize, durable: bool) -> Result<()> {
        let mut file = TensogramFile::create(path)?;
        let object = descriptor(
            &Pipeline { compression: "none".to_owned(), ..Pipeline::default() },
            &[cells.len() as u64 / 8],
        );
        for _ in 0..times {
            file.append(&metadata(), &[(&object, cells)], &EncodeOptions::default())?;
            if durable {
                synchronize(path)?;
            }
        }
        Ok(())
    }

    fn decode_messages(&self, path: &Path, numbers: &[usize]) -> Result<u64> {
        let file = TensogramFile::open(path)?;
        let mut bytes = 0;
        for &number in numbers {
            let (_, objects) = file.decode_message(number, &DecodeOptions::default())?;
            bytes += objects.iter().map(|(_, cells)| cells.len() as u64).sum::<u64>();
        }
        Ok(bytes)
    }

    fn verify(&self, message: &[u8]) -> Result<()> {
        let options = ValidateOptions { checksum_only: true, ..ValidateOptions::default() };
        let report = tensogram::validate_message(message, &options);
        if report.is_ok() { Ok(()) } else { Err("not valid".into()) }
    }

    fn verify_file(&self, path: &Path) -> Result<()> {
        let report = tensogram::validate_file(path, &ValidateOptions::default())?;
        if report.is_ok() { Ok(()) } else { Err("not valid".into()) }
    }
}
