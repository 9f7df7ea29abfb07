//! Objects larger than the memory limit: cells are spooled in the file after the end of the message and encoded block by block.
//!
//! The first pass over the cells computes masks and packing range, the second one encodes. The output equals that of encoding
//! all cells at once, byte for byte.

use tesseral_codec::Contexts;
use tesseral_core::dtype::Class;
use tesseral_core::{DType, Region, Result};
use tesseral_store::Staged;

use crate::compress::ZstdEncoder;
use crate::encode::{
    MaskFinder, MaskOptions, Masks, PLACE, Stages, append_mask, clear_masked, set_packing, swap,
};
use crate::pipeline::{Compression, ObjectPipeline};
use crate::wire::block_hashes::{BlockHashes, BodyHasher, ObjectHashes};
use crate::wire::object::frame_ends;

/// Bytes of cells encoded at a time: a multiple of all cell sizes and of eight cells, so that packed blocks are byte-aligned.
const BLOCK: u64 = 4 << 20;

/// Returns whether an object can be encoded block by block.
pub(crate) fn streams(stages: &Stages) -> bool {
    let Ok(pipeline) = ObjectPipeline::from_descriptor(stages.descriptor(), PLACE) else { return false };
    let compression = matches!(pipeline.compression, Compression::None | Compression::Zstd(_));
    compression && pipeline.shuffle.is_none() && stages.descriptor().dtype.size().is_some()
}

/// Writes the cells of a chunk to their positions in the spooled object, which begins at `offset`.
pub(crate) fn scatter(
    staged: &dyn Staged,
    offset: u64,
    size: u64,
    region: &Region,
    whole: &Region,
    values: &[u8],
) -> Result<()> {
    let rank = region.rank();
    // Dimensions that the chunk spans completely are merged into one run.
    let inner = (0..rank).rev().find(|&d| region.extent(d) != whole.extent(d)).unwrap_or(0);
    let run: u64 = (inner..rank).map(|d| region.extent(d)).product::<u64>() * size;
    let outer = Region::new(region.bounds()[..inner].iter().copied());
    let mut at: Vec<u64> = outer.bounds().iter().map(|bound| bound.0).collect();
    for cells in values.chunks_exact(usize::try_from(run).unwrap_or(usize::MAX).max(1)) {
        let position = |d: usize| match at.get(d) {
            Some(position) => *position,
            None if d == inner => region.start(d),
            None => 0,
        };
        let first = (0..rank).fold(0, |sum, d| sum * whole.extent(d) + position(d));
        staged.write_at(offset + first * size, cells)?;
        for d in (0..inner).rev() {
            at[d] += 1;
            if at[d] < outer.end(d) {
                break;
            }
            at[d] = outer.start(d);
        }
    }
    Ok(())
}

/// The cells of an object in the file.
pub(crate) struct Spool<'a> {
    pub staged: &'a dyn Staged,
    pub stages: &'a Stages,
    /// Offset and length in bytes.
    pub offset: u64,
    pub len: u64,
}

/// A frame in the file.
#[derive(Debug)]
pub(crate) struct SpooledFrame {
    /// End of the padding.
    pub end: u64,
    /// Length without padding.
    pub length: u64,
    pub hash: u64,
    pub blocks: Option<BlockHashes>,
}

impl Spool<'_> {
    /// Encodes the object into a frame at offset `to`.
    pub(crate) fn encode(&self, to: u64, masks: &MaskOptions, hashes: ObjectHashes) -> Result<SpooledFrame> {
        let mut descriptor = self.stages.descriptor().clone();
        let dtype = descriptor.dtype;
        let (found, range) = self.survey(dtype, masks)?;
        if self.stages.fits_packing() {
            set_packing(&mut descriptor, &range.cells(), &found)?;
        }
        let pipeline = ObjectPipeline::from_descriptor(&descriptor, PLACE)?;
        let swaps = descriptor.big_endian.is_some_and(|big| big != cfg!(target_endian = "big"));
        let mut out = FrameOutput {
            staged: self.staged,
            at: to + HEAD,
            hash: hashes.hasher(pipeline.coded_len),
            len: 0,
        };
        let mut encoder = match pipeline.compression {
            Compression::Zstd(level) => Some(ZstdEncoder::new(level, pipeline.coded_len)?),
            _ => None,
        };
        let mut packed = Vec::new();
        let mut compressed = Vec::new();
        let mut contexts = Contexts::default();
        self.for_each_block(|first, cells| {
            clear_masked(dtype, &found, first, cells);
            let coded: &[u8] = match &pipeline.packing {
                Some(packing) => {
                    packed.clear();
                    packing.encode(cells, &mut packed)?;
                    &packed
                }
                None => {
                    if swaps {
                        swap(dtype, cells);
                    }
                    cells
                }
            };
            let Some(encoder) = &mut encoder else { return out.put(coded) };
            compressed.clear();
            encoder.push(coded, &mut compressed, &mut contexts)?;
            out.put(&compressed)
        })?;
        if let Some(encoder) = encoder {
            compressed.clear();
            encoder.finish(&mut compressed, &mut contexts)?;
            out.put(&compressed)?;
        }
        let count = descriptor.cells().unwrap_or(0);
        for (kind, bits) in found {
            let mut blob = Vec::new();
            let method = &masks.methods[kind as usize];
            let mut mask = append_mask(kind, method, &bits, count, masks.small, &mut blob, &mut contexts)?;
            mask.offset = out.len;
            out.put(&blob)?;
            descriptor.masks.push(mask);
        }
        let cbor = descriptor.to_bytes();
        let (hash, blocks) = out.hash.take().map_or((0, None), |mut hash| {
            hash.update(&cbor);
            hash.finish()
        });
        let (head, tail, length) = frame_ends(&cbor, out.len, hash, hashes.any());
        self.staged.write_at(to, &head)?;
        self.staged.write_at(out.at, &tail)?;
        Ok(SpooledFrame { end: out.at + tail.len() as u64, length, hash, blocks })
    }

    /// Calls `visit` with the index of the first cell of each block, and its cells.
    fn for_each_block(&self, mut visit: impl FnMut(u64, &mut [u8]) -> Result<()>) -> Result<()> {
        let size = self.stages.descriptor().dtype.size().unwrap_or(1) as u64;
        let mut buffer = Vec::new();
        let mut done = 0;
        while done < self.len {
            let len = BLOCK.min(self.len - done);
            buffer.resize(usize::try_from(len).unwrap_or(0), 0);
            self.staged.read_at(self.offset + done, &mut buffer)?;
            visit(done / size, &mut buffer)?;
            done += len;
        }
        Ok(())
    }

    /// Computes masks of non-finite cells, and the range of packed values.
    fn survey(&self, dtype: DType, masks: &MaskOptions) -> Result<(Masks, PackingSurvey)> {
        let mut range = PackingSurvey::default();
        if !matches!(dtype.class(), Class::Float | Class::Complex) {
            return Ok((Vec::new(), range));
        }
        let size = dtype.size().unwrap_or(1) as u64;
        let mut finder = MaskFinder::new(dtype, self.len / size, masks);
        let packs = self.stages.fits_packing();
        self.for_each_block(|first, cells| {
            finder.survey(first, cells)?;
            if packs {
                range.survey(cells);
            }
            Ok(())
        })?;
        Ok((finder.finish(), range))
    }
}

/// Size of a frame before its payload in bytes.
const HEAD: u64 = crate::wire::frame::HEADER_LEN;

/// The payload region written so far.
struct FrameOutput<'a> {
    staged: &'a dyn Staged,
    at: u64,
    hash: Option<BodyHasher>,
    len: u64,
}

impl FrameOutput<'_> {
    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.staged.write_at(self.at, bytes)?;
        if let Some(hash) = &mut self.hash {
            hash.update(bytes);
        }
        self.at += bytes.len() as u64;
        self.len += bytes.len() as u64;
        Ok(())
    }
}

/// Values that determine the packing parameters: first value, first zero, minimum, maximum.
#[derive(Default)]
struct PackingSurvey {
    ends: Option<[f64; 3]>,
    zero: Option<f64>,
}

impl PackingSurvey {
    fn survey(&mut self, cells: &[u8]) {
        for value in cells.as_chunks().0.iter().map(|cell| f64::from_ne_bytes(*cell)) {
            let [_, least, most] = self.ends.get_or_insert([value; 3]);
            *least = if value < *least { value } else { *least };
            *most = if value > *most { value } else { *most };
            if value == 0.0 {
                self.zero.get_or_insert(value);
            }
        }
    }

    /// A few cells for which the packing parameters equal those of all cells.
    fn cells(&self) -> Vec<u8> {
        let Some([first, least, most]) = self.ends else { return Vec::new() };
        let least = if least == 0.0 { self.zero.unwrap_or(least) } else { least };
        [first, least, most].into_iter().flat_map(f64::to_ne_bytes).collect()
    }
}
