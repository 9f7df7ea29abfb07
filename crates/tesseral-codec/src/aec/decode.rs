//! From the stream to samples.

use std::ops::Range;

use tesseral_core::{Error, Result};

use super::bits::BitReader;
use super::{MSB, PREPROCESS, Params, SEGMENT, SIGNED};

/// Decodes a whole stream; `dst` says how many samples it holds.
///
/// # Errors
/// `Codec` when the stream is damaged or ends early, or bytes follow it.
pub fn decode_into(src: &[u8], params: &Params, dst: &mut [u8]) -> Result<()> {
    let end = Reader::new(params).decode(src, 0, dst)?;
    if end.div_ceil(8) != src.len() as u64 {
        return Err(fault(format!("the samples end at bit {end} of {} bytes", src.len())));
    }
    Ok(())
}

/// The bit at which each RSI of a stream of `total` samples begins, by reading it all.
///
/// Offsets stored beside a stream may be wrong: libaec 1.1.4 points at the last block of the interval before when that
/// block follows a zero block. A wrong one cannot be told by decoding from it, as runs of zero blocks stretch to the end of
/// their interval wherever they begin, so nothing less than this walk gives offsets that [`decode_range`] may use.
///
/// # Errors
/// `Codec` when the stream is damaged.
pub fn find_offsets(src: &[u8], params: &Params, total: u64) -> Result<Vec<u64>> {
    let mut reader = Reader::new(params);
    let mut bits = BitReader::at(src, 0)?;
    let mut offsets = Vec::new();
    let mut left = total;
    while left > 0 {
        offsets.push(bits.position());
        let samples = left.min(params.interval() as u64);
        #[allow(clippy::cast_possible_truncation)]
        reader.read_interval(&mut bits, samples as usize)?;
        left -= samples;
    }
    Ok(offsets)
}

/// Decodes samples `range` out of `total`, and no RSI beside those that hold them. `offsets` are
/// [where the RSIs begin](find_offsets).
///
/// # Errors
/// `Codec` when the stream is damaged or does not fit the offsets; `InvalidRequest` when `dst` does not fit the range.
pub fn decode_range(
    src: &[u8],
    params: &Params,
    offsets: &[u64],
    total: u64,
    range: Range<u64>,
    dst: &mut [u8],
) -> Result<()> {
    let size = params.sample_size() as u64;
    let wanted = range.end.checked_sub(range.start).filter(|_| range.end <= total);
    if wanted.and_then(|n| n.checked_mul(size)) != Some(dst.len() as u64) {
        return Err(Error::invalid(format!(
            "{} bytes are no room for samples {range:?} of {total}",
            dst.len()
        )));
    }
    if dst.is_empty() {
        return Ok(());
    }
    let interval = params.interval() as u64;
    let mut reader = Reader::new(params);
    let mut buffer = Vec::new();
    for number in range.start / interval..=(range.end - 1) / interval {
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        let start = offsets.get(index).ok_or_else(|| fault(format!("no offset of interval {number}")))?;
        let end = piece(&mut reader, src, *start, params, total, number, &range, &mut buffer, dst)?;
        if offsets.get(index + 1).is_some_and(|next| *next != end) {
            return Err(fault(format!("interval {number} ends at bit {end}, not where the next begins")));
        }
    }
    Ok(())
}

/// Decodes one RSI and copies what lies in the range; gives the bit after it.
#[allow(clippy::too_many_arguments)]
fn piece(
    reader: &mut Reader,
    src: &[u8],
    bit: u64,
    params: &Params,
    total: u64,
    number: u64,
    range: &Range<u64>,
    buffer: &mut Vec<u8>,
    dst: &mut [u8],
) -> Result<u64> {
    let size = params.sample_size();
    let interval = params.interval() as u64;
    let begin = number * interval;
    let count = interval.min(total - begin);
    // An interval holds at most 4096 blocks, so these fit.
    #[allow(clippy::cast_possible_truncation)]
    buffer.resize(count as usize * size, 0);
    let end = reader.decode(src, bit, buffer)?;
    let (from, to) = (range.start.max(begin), range.end.min(begin + count));
    if from < to {
        #[allow(clippy::cast_possible_truncation)]
        let bytes = |n: u64| n as usize * size;
        dst[bytes(from - range.start)..bytes(to - range.start)]
            .copy_from_slice(&buffer[bytes(from - begin)..bytes(to - begin)]);
    }
    Ok(end)
}

fn fault(detail: impl Into<String>) -> Error {
    Error::codec("szip", detail.into())
}

/// Decodes streams of one kind; keeps the buffer between calls.
#[derive(Debug)]
pub struct Reader {
    params: Params,
    /// Mapped differences of one RSI.
    mapped: Vec<u32>,
}

impl Reader {
    /// A reader of streams with these parameters.
    pub fn new(params: &Params) -> Self {
        Self { params: *params, mapped: Vec::new() }
    }

    /// Decodes as many samples as `dst` holds from an RSI that begins at `bit`; gives the bit after them.
    ///
    /// # Errors
    /// `Codec` when the stream is damaged or ends early, or `dst` does not hold whole samples.
    pub fn decode(&mut self, src: &[u8], bit: u64, dst: &mut [u8]) -> Result<u64> {
        let params = self.params;
        let size = params.sample_size();
        if !dst.len().is_multiple_of(size) {
            return Err(fault(format!("{} bytes are not whole samples of {size}", dst.len())));
        }
        let mut bits = BitReader::at(src, bit)?;
        for dst in dst.chunks_mut(params.interval() * size) {
            let first = self.read_interval(&mut bits, dst.len() / size)?;
            self.restore(first, dst);
        }
        Ok(bits.position())
    }

    /// Reads the blocks that hold the first samples of one RSI, at most all of them; gives its reference sample.
    fn read_interval(&mut self, bits: &mut BitReader<'_>, samples: usize) -> Result<u32> {
        let params = self.params;
        let blocks = samples.div_ceil(params.block as usize);
        self.mapped.clear();
        self.mapped.resize(blocks * params.block as usize, 0);
        let (n, block, id_len) = (params.bits, params.block as usize, params.id_len());
        let preprocess = params.has(PREPROCESS);
        let plain = (1 << id_len) - 1;
        let mut first = 0;
        let mut b = 0;
        while b < blocks {
            let with_ref = preprocess && b == 0;
            let skip = usize::from(with_ref);
            let id = bits.read(id_len)?;
            let out = &mut self.mapped[b * block..(b + 1) * block];
            if id == 0 {
                let extension = bits.read(1)? == 1;
                if with_ref {
                    first = bits.read(n)?;
                }
                if extension {
                    second_extension(bits, out, with_ref)?;
                } else {
                    // The blocks are zero already.
                    b += zero_run(bits, b, params.rsi, blocks)?;
                    continue;
                }
            } else if id == plain {
                for sample in out.iter_mut() {
                    *sample = bits.read(n)?;
                }
                if with_ref {
                    first = std::mem::take(&mut out[0]);
                }
            } else {
                let k = id - 1;
                if with_ref {
                    first = bits.read(n)?;
                }
                let out = &mut out[skip..];
                for sample in out.iter_mut() {
                    *sample = bits.unary()?;
                }
                let most = params.mask() >> k;
                if out.iter().any(|high| *high > most) {
                    return Err(fault(format!("a sample of more than {n} bits")));
                }
                if k > 0 {
                    for sample in out.iter_mut() {
                        *sample = *sample << k | bits.read(k)?;
                    }
                }
            }
            b += 1;
        }
        if self.mapped.iter().any(|d| *d > params.mask()) {
            return Err(fault(format!("a sample of more than {n} bits")));
        }
        Ok(first)
    }

    /// Turns mapped differences into samples.
    fn restore(&self, first: u32, dst: &mut [u8]) {
        let params = &self.params;
        let most = params.mask();
        if !params.has(PREPROCESS) {
            return store(params, self.mapped.iter().copied(), dst);
        }
        // Signed samples are moved to 0..=most, where the same rule holds.
        let bias = params.bias();
        let mut last = first ^ bias;
        let mut start = true;
        let samples = self.mapped.iter().map(|&d| {
            if std::mem::take(&mut start) {
                return last ^ bias;
            }
            let below = last;
            let above = most - last;
            let theta = below.min(above);
            last = if u64::from(d) <= 2 * u64::from(theta) {
                if d & 1 == 0 { last + d / 2 } else { last - d / 2 - 1 }
            } else if below <= above {
                // Everything below is used up: what is left counts upwards from `theta`.
                d
            } else {
                most - d
            };
            last ^ bias
        });
        store(params, samples, dst);
    }
}

/// Pairs of which the sum and the second are in one number.
fn second_extension(bits: &mut BitReader<'_>, out: &mut [u32], with_ref: bool) -> Result<()> {
    for (i, pair) in out.chunks_exact_mut(2).enumerate() {
        let m = u64::from(bits.unary()?);
        // The largest s with s(s+1)/2 ≤ m; below 2^17, so both fit.
        let s = ((8 * m + 1).isqrt() - 1) / 2;
        let second = m - s * (s + 1) / 2;
        #[allow(clippy::cast_possible_truncation)]
        pair.copy_from_slice(&[(s - second) as u32, second as u32]);
        if with_ref && i == 0 && pair[0] != 0 {
            return Err(fault("a reference sample differs from itself"));
        }
    }
    Ok(())
}

/// How many zero blocks a run has, when block `b` is its first; at most those that are wanted.
fn zero_run(bits: &mut BitReader<'_>, b: usize, rsi: u32, blocks: usize) -> Result<usize> {
    let (rsi, segment) = (rsi as usize, SEGMENT as usize);
    let left = rsi - b;
    let run = match bits.unary()? as usize + 1 {
        5 => left.min(segment - b % segment),
        z if z > 5 => z - 1,
        z => z,
    };
    if run > left {
        return Err(fault(format!("a run of {run} zero blocks where {left} are left")));
    }
    Ok(run.min(blocks - b))
}

/// Writes samples in their container; what the filling of the last block added is dropped.
fn store(params: &Params, samples: impl Iterator<Item = u32>, dst: &mut [u8]) {
    let big = params.has(MSB);
    // Containers wider than the sample carry its sign.
    let shift = if params.has(SIGNED) { 32 - params.bits } else { 0 };
    #[allow(clippy::cast_possible_wrap, clippy::cast_sign_loss)]
    let samples = samples.map(|x| ((x << shift) as i32 >> shift) as u32);
    #[allow(clippy::cast_possible_truncation)]
    match (params.sample_size(), big) {
        (1, _) => dst.iter_mut().zip(samples).for_each(|(out, x)| *out = x as u8),
        (2, true) => fill(dst, samples, |x| (x as u16).to_be_bytes()),
        (2, false) => fill(dst, samples, |x| (x as u16).to_le_bytes()),
        (3, true) => fill(dst, samples, |x| [(x >> 16) as u8, (x >> 8) as u8, x as u8]),
        (3, false) => fill(dst, samples, |x| [x as u8, (x >> 8) as u8, (x >> 16) as u8]),
        (_, true) => fill(dst, samples, u32::to_be_bytes),
        (_, false) => fill(dst, samples, u32::to_le_bytes),
    }
}

#[inline]
fn fill<const N: usize>(dst: &mut [u8], samples: impl Iterator<Item = u32>, bytes: impl Fn(u32) -> [u8; N]) {
    for (out, x) in dst.chunks_exact_mut(N).zip(samples) {
        out.copy_from_slice(&bytes(x));
    }
}
