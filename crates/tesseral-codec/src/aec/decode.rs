//! Decoding a stream into samples.

use tesseral_core::{Error, Result};

use super::bits::BitReader;
use super::{MSB, PREPROCESS, Params, SEGMENT, SIGNED};

/// Decodes a complete stream; the length of `dst` determines the number of samples.
///
/// # Errors
/// `Codec` when the stream is damaged, truncated or has trailing bytes.
pub fn decode_into(src: &[u8], params: &Params, dst: &mut [u8]) -> Result<()> {
    check_end(src, Decoder::new(params).decode(src, 0, dst)?)
}

/// Decodes the samples from `first` on of `total`, and no RSI other than those that hold them. The first of these begins at
/// `bit`, which an [`RsiIndex`](super::RsiIndex) finds.
///
/// # Errors
/// `Codec` when the stream is damaged or has trailing bytes; `InvalidRequest` when `dst` does not fit the samples.
pub fn decode_range(
    src: &[u8],
    params: &Params,
    mut bit: u64,
    total: u64,
    first: u64,
    dst: &mut [u8],
) -> Result<()> {
    let size = params.sample_size();
    let end = first.checked_add((dst.len() / size) as u64).filter(|end| *end <= total);
    let (Some(end), true) = (end, dst.len().is_multiple_of(size)) else {
        return Err(Error::invalid(format!(
            "output of {} bytes does not fit the samples from {first} on of {total}",
            dst.len()
        )));
    };
    if end == first {
        return Ok(());
    }
    let mut decoder = Decoder::new(params);
    // The first RSI may begin before the requested samples: it is decoded into a temporary buffer.
    let lead = (first % params.interval() as u64) as usize * size;
    let mut rest = dst;
    if lead > 0 {
        let head = rest.len().min(params.interval() * size - lead);
        let mut aside = vec![0; lead + head];
        bit = decoder.decode(src, bit, &mut aside)?;
        let (front, behind) = rest.split_at_mut(head);
        front.copy_from_slice(&aside[lead..]);
        rest = behind;
    }
    bit = decoder.decode(src, bit, rest)?;
    if end == total { check_end(src, bit) } else { Ok(()) }
}

/// Rejects trailing bytes after the last sample.
fn check_end(src: &[u8], bit: u64) -> Result<()> {
    if bit.div_ceil(8) == src.len() as u64 {
        return Ok(());
    }
    Err(fault(format!("trailing bytes: the samples end at bit {bit} of {} bytes", src.len())))
}

pub(super) fn fault(detail: impl Into<String>) -> Error {
    Error::codec("szip", detail.into())
}

/// A decoder for streams with the same parameters; its buffer is reused between calls.
#[derive(Debug)]
pub struct Decoder {
    params: Params,
    /// Mapped differences of one block.
    mapped: Vec<u32>,
}

impl Decoder {
    /// A decoder for streams with these parameters.
    pub fn new(params: &Params) -> Self {
        Self { params: *params, mapped: vec![0; params.block as usize] }
    }

    /// Decodes as many samples as `dst` holds from an RSI that begins at `bit`; returns the bit after them.
    ///
    /// # Errors
    /// `Codec` when the stream is damaged or truncated, or `dst` does not hold whole samples.
    pub fn decode(&mut self, src: &[u8], bit: u64, dst: &mut [u8]) -> Result<u64> {
        let params = self.params;
        let size = params.sample_size();
        if !dst.len().is_multiple_of(size) {
            return Err(fault(format!(
                "output of {} bytes is not a multiple of the sample size {size}",
                dst.len()
            )));
        }
        let mut bits = BitReader::at(src, bit)?;
        for interval in dst.chunks_mut(params.interval() * size) {
            match (size, params.has(MSB)) {
                (1, _) => self.interval(&mut bits, interval, &|x| [x as u8])?,
                (2, true) => self.interval(&mut bits, interval, &|x| (x as u16).to_be_bytes())?,
                (2, false) => self.interval(&mut bits, interval, &|x| (x as u16).to_le_bytes())?,
                (3, true) => {
                    self.interval(&mut bits, interval, &|x| [(x >> 16) as u8, (x >> 8) as u8, x as u8])?
                }
                (3, false) => {
                    self.interval(&mut bits, interval, &|x| [x as u8, (x >> 8) as u8, (x >> 16) as u8])?
                }
                (_, true) => self.interval(&mut bits, interval, &|x| x.to_be_bytes())?,
                (_, false) => self.interval(&mut bits, interval, &|x| x.to_le_bytes())?,
            }
        }
        Ok(bits.position())
    }

    /// Decodes the first samples of one RSI, at most all of them.
    fn interval<const N: usize>(
        &mut self,
        bits: &mut BitReader<'_>,
        dst: &mut [u8],
        bytes: &impl Fn(u32) -> [u8; N],
    ) -> Result<()> {
        let params = self.params;
        let block = params.block as usize;
        let blocks = (dst.len() / N).div_ceil(block);
        let mut restore = SampleRestorer::new(&params);
        let mut b = 0;
        let mut rest = dst;
        while b < blocks {
            let run = match self.block(bits, b, blocks, &mut restore)? {
                BlockKind::Mapped => {
                    let (front, behind) = rest.split_at_mut((block * N).min(rest.len()));
                    restore.mapped(&self.mapped, b == 0, front.as_chunks_mut().0, bytes);
                    rest = behind;
                    1
                }
                BlockKind::Zeros(run) => {
                    let (front, behind) = rest.split_at_mut((run * block * N).min(rest.len()));
                    front.as_chunks_mut().0.fill(bytes(restore.current()));
                    rest = behind;
                    run
                }
            };
            b += run;
        }
        Ok(())
    }

    /// Reads block `b` of the requested blocks.
    #[inline]
    fn block(
        &mut self,
        bits: &mut BitReader<'_>,
        b: usize,
        blocks: usize,
        restore: &mut SampleRestorer,
    ) -> Result<BlockKind> {
        let params = &self.params;
        let (n, id_len) = (params.bits, params.id_len());
        let with_ref = params.has(PREPROCESS) && b == 0;
        let id = bits.read(id_len)?;
        let out = &mut self.mapped[..];
        if id == 0 {
            let extension = bits.read(1)? == 1;
            if with_ref {
                restore.begin(bits.read(n)?);
            }
            if !extension {
                return zero_run(bits, b, params.rsi, blocks).map(BlockKind::Zeros);
            }
            second_extension(bits, out, with_ref)?;
        } else if id == (1 << id_len) - 1 {
            out.fill(0);
            bits.read_below(n, out)?;
            if with_ref {
                restore.begin(std::mem::take(&mut out[0]));
            }
            return Ok(BlockKind::Mapped);
        } else {
            if with_ref {
                restore.begin(bits.read(n)?);
                out[0] = 0;
            }
            let coded = &mut out[usize::from(with_ref)..];
            bits.unary_into(coded)?;
            let most = params.mask() >> (id - 1);
            if coded.iter().fold(0, |highest, high| highest.max(*high)) > most {
                return Err(fault(format!("sample exceeds {n} bits")));
            }
            bits.read_below(id - 1, coded)?;
            return Ok(BlockKind::Mapped);
        }
        if out.iter().any(|d| *d > params.mask()) {
            return Err(fault(format!("sample exceeds {n} bits")));
        }
        Ok(BlockKind::Mapped)
    }
}

/// The kind of a decoded block.
enum BlockKind {
    /// The samples are in the buffer.
    Mapped,
    /// The first of a run of blocks without differences.
    Zeros(usize),
}

/// Converts mapped differences to samples along one RSI.
struct SampleRestorer {
    predicts: bool,
    /// The previous sample, shifted to 0..=most.
    last: u32,
    most: u32,
    /// The shift of signed samples to 0..=most, where the same rule applies.
    bias: u32,
    /// Containers wider than the sample are sign-extended.
    shift: u32,
}

impl SampleRestorer {
    fn new(params: &Params) -> Self {
        let shift = if params.has(SIGNED) { 32 - params.bits } else { 0 };
        Self { predicts: params.has(PREPROCESS), last: 0, most: params.mask(), bias: params.bias(), shift }
    }

    fn begin(&mut self, reference: u32) {
        self.last = reference ^ self.bias;
    }

    fn container(&self, x: u32) -> u32 {
        ((x << self.shift) as i32 >> self.shift) as u32
    }

    /// The sample that a difference of 0 gives.
    fn current(&self) -> u32 {
        if self.predicts { self.container(self.last ^ self.bias) } else { 0 }
    }

    /// Writes the samples of a block that fit in the output: padding of the last block is dropped. Most differences are small and
    /// take the first branch, where odd values are steps down and even values steps up.
    #[inline]
    fn mapped<const N: usize>(
        &mut self,
        mapped: &[u32],
        first: bool,
        out: &mut [[u8; N]],
        bytes: &impl Fn(u32) -> [u8; N],
    ) {
        if !self.predicts {
            out.iter_mut().zip(mapped).for_each(|(out, d)| *out = bytes(self.container(*d)));
            return;
        }
        let mut samples = out.iter_mut().zip(mapped);
        if first && let Some((out, _)) = samples.next() {
            *out = bytes(self.current());
        }
        let mut last = self.last;
        for (out, &d) in samples {
            let (below, above) = (last, self.most - last);
            let theta = below.min(above);
            last = if d / 2 < theta || u64::from(d) <= 2 * u64::from(theta) {
                last.wrapping_add(d >> 1 ^ (d & 1).wrapping_neg())
            } else if below <= above {
                // The range below is exhausted: the remainder counts upwards from `theta`. In a damaged stream it may exceed the
                // range.
                d & self.most
            } else {
                self.most.wrapping_sub(d) & self.most
            };
            *out = bytes(self.container(last ^ self.bias));
        }
        self.last = last;
    }
}

/// Decodes pairs, each coded as one number that combines the sum and the second element.
fn second_extension(bits: &mut BitReader<'_>, out: &mut [u32], with_ref: bool) -> Result<()> {
    for (i, pair) in out.chunks_exact_mut(2).enumerate() {
        let m = u64::from(bits.unary()?);
        // The largest s with s(s+1)/2 ≤ m; below 2^17, so both fit.
        let s = ((8 * m + 1).isqrt() - 1) / 2;
        let second = m - s * (s + 1) / 2;
        pair.copy_from_slice(&[(s - second) as u32, second as u32]);
        if with_ref && i == 0 && pair[0] != 0 {
            return Err(fault("invalid difference for a reference sample"));
        }
    }
    Ok(())
}

/// The length of a run of zero blocks that begins with block `b`, at most the requested blocks.
fn zero_run(bits: &mut BitReader<'_>, b: usize, rsi: u32, blocks: usize) -> Result<usize> {
    zero_blocks(bits.unary()?, b, rsi).map(|run| run.min(blocks - b))
}

/// The number of zero blocks that a run code encodes, when block `b` is the first of them.
pub(super) fn zero_blocks(number: u32, b: usize, rsi: u32) -> Result<usize> {
    let (rsi, segment) = (rsi as usize, SEGMENT as usize);
    let left = rsi - b;
    let run = match number as usize + 1 {
        5 => left.min(segment - b % segment),
        z if z > 5 => z - 1,
        z => z,
    };
    if run > left {
        return Err(fault(format!("run of {run} zero blocks exceeds the {left} remaining blocks")));
    }
    Ok(run)
}
