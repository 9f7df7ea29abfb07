//! From the stream to samples.

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

/// Where the RSIs of one stream begin, as far as it was walked.
///
/// Offsets stored beside a stream may be wrong: libaec 1.1.4 points at the last block of the interval before when that
/// block follows a zero block. A wrong one cannot be told by decoding from it, as runs of zero blocks stretch to the end of
/// their interval wherever they begin, so nothing less than a walk from the start gives offsets to rely on. It passes over
/// samples without making them, and no part of the stream twice.
#[derive(Debug, Default)]
pub struct Index {
    offsets: Vec<u64>,
    /// The bit after the last RSI that was walked.
    end: u64,
}

impl Index {
    /// The bit at which RSI `number` begins, of a stream of more samples than come before it.
    ///
    /// # Errors
    /// `Codec` when the stream ends before it.
    pub fn find(&mut self, src: &[u8], params: &Params, number: u64) -> Result<u64> {
        let wanted = usize::try_from(number).map_err(|_| fault("too many intervals"))?;
        if wanted >= self.offsets.len() {
            let mut bits = BitReader::at(src, self.end)?;
            while wanted > self.offsets.len() {
                let start = bits.position();
                pass_interval(&mut bits, params)?;
                self.offsets.push(start);
                self.end = bits.position();
            }
        }
        Ok(self.offsets.get(wanted).copied().unwrap_or(self.end))
    }
}

/// Passes over a whole RSI.
fn pass_interval(bits: &mut BitReader<'_>, params: &Params) -> Result<()> {
    let (n, block, id_len) = (u64::from(params.bits), params.block, params.id_len());
    let blocks = params.rsi as usize;
    let plain = (1 << id_len) - 1;
    let mut b = 0;
    while b < blocks {
        let with_ref = params.has(PREPROCESS) && b == 0;
        let own = block - u32::from(with_ref);
        match bits.read(id_len)? {
            0 => {
                let extension = bits.read(1)? == 1;
                bits.pass(if with_ref { n } else { 0 })?;
                if !extension {
                    b += zero_run(bits, b, params.rsi, blocks)?;
                    continue;
                }
                bits.pass_unary(block / 2)?;
            }
            id if id == plain => bits.pass(n * u64::from(block))?,
            id => {
                bits.pass(if with_ref { n } else { 0 })?;
                bits.pass_unary(own)?;
                bits.pass(u64::from(own) * u64::from(id - 1))?;
            }
        }
        b += 1;
    }
    Ok(())
}

/// Decodes samples from number `first` on out of `total`, and no RSI beside those that hold them.
///
/// # Errors
/// `Codec` when the stream is damaged; `InvalidRequest` when `dst` does not fit the samples.
pub fn decode_range(
    src: &[u8],
    params: &Params,
    index: &mut Index,
    total: u64,
    first: u64,
    dst: &mut [u8],
) -> Result<()> {
    let size = params.sample_size();
    let count = (dst.len() / size) as u64;
    if !dst.len().is_multiple_of(size) || first.checked_add(count).is_none_or(|end| end > total) {
        return Err(Error::invalid(format!(
            "{} bytes are no room for samples {first} of {total}",
            dst.len()
        )));
    }
    if count == 0 {
        return Ok(());
    }
    let interval = params.interval() as u64;
    let number = first / interval;
    let mut bit = index.find(src, params, number)?;
    let mut reader = Reader::new(params);
    // The first RSI may begin before the samples: it is decoded aside, as far as it is wanted.
    #[allow(clippy::cast_possible_truncation)]
    let lead = (first % interval) as usize * size;
    let mut rest = dst;
    if lead > 0 {
        let head = rest.len().min(params.interval() * size - lead);
        let mut aside = vec![0; lead + head];
        bit = reader.decode(src, bit, &mut aside)?;
        let (front, behind) = rest.split_at_mut(head);
        front.copy_from_slice(&aside[lead..]);
        rest = behind;
    }
    reader.decode(src, bit, rest).map(|_| ())
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
