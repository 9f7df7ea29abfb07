//! Encoding samples. All choices follow the reference library, so that the bytes are identical.

use tesseral_core::{Error, Result};

use super::bits::BitWriter;
use super::{MSB, PREPROCESS, Params, SEGMENT};

/// Appends the stream of `src` to `out`; returns the bit at which each RSI begins.
///
/// # Errors
/// `Codec` when `src` does not hold whole samples, or a sample exceeds the declared width.
pub fn encode(src: &[u8], params: &Params, out: &mut Vec<u8>) -> Result<Vec<u64>> {
    let size = params.sample_size();
    if !src.len().is_multiple_of(size) {
        return Err(Error::codec(
            "szip",
            format!("input of {} bytes is not a multiple of the sample size {size}", src.len()),
        ));
    }
    let block = params.block as usize;
    let mut offsets = Vec::with_capacity((src.len() / size).div_ceil(params.interval()));
    let mut writer = BlockEncoder { params: *params, bits: BitWriter::new(out), k: 0 };
    let mut samples = Vec::with_capacity(params.interval().min(src.len() / size + block));
    for interval in src.chunks(params.interval() * size) {
        samples.clear();
        load(params, interval, &mut samples)?;
        // The last block is padded with its last sample.
        let last = samples.last().copied().unwrap_or_default();
        samples.resize(samples.len().next_multiple_of(block), last);
        offsets.push(writer.bits.position());
        let first = if params.has(PREPROCESS) { map(params, &mut samples) } else { 0 };
        writer.interval(&samples, first);
    }
    writer.bits.finish();
    Ok(offsets)
}

/// Loads samples; all bits above the sample width must repeat the sign or be zero.
fn load(params: &Params, src: &[u8], samples: &mut Vec<u32>) -> Result<()> {
    match (params.sample_size(), params.has(MSB)) {
        (1, _) => samples.extend(src.iter().map(|byte| u32::from(*byte))),
        (2, true) => samples.extend(src.as_chunks().0.iter().map(|b| u32::from(u16::from_be_bytes(*b)))),
        (2, false) => samples.extend(src.as_chunks().0.iter().map(|b| u32::from(u16::from_le_bytes(*b)))),
        (3, true) => {
            samples.extend(src.as_chunks().0.iter().map(|&[a, b, c]| u32::from_be_bytes([0, a, b, c])))
        }
        (3, false) => {
            samples.extend(src.as_chunks().0.iter().map(|&[a, b, c]| u32::from_le_bytes([a, b, c, 0])))
        }
        (_, true) => samples.extend(src.as_chunks().0.iter().map(|b| u32::from_be_bytes(*b))),
        (_, false) => samples.extend(src.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b))),
    }
    let (mask, sign) = (params.mask(), params.bias());
    let container = u32::MAX >> (32 - 8 * params.sample_size());
    if mask == container {
        return Ok(());
    }
    for sample in samples {
        let x = *sample;
        let extended = if x & sign != 0 { x | !mask & container } else { x & mask };
        if x != extended {
            return Err(Error::codec("szip", format!("sample {x:#x} exceeds {} bits", params.bits)));
        }
        *sample = x & mask;
    }
    Ok(())
}

/// Replaces samples by mapped differences; returns the reference sample. See [`Decoder`](super::Decoder) for the inverse.
fn map(params: &Params, samples: &mut [u32]) -> u32 {
    let (most, bias) = (params.mask(), params.bias());
    let first = samples.first().copied().unwrap_or_default();
    let mut last = first ^ bias;
    for sample in samples.iter_mut() {
        let x = *sample ^ bias;
        let theta = last.min(most - last);
        *sample = if x >= last {
            let up = x - last;
            if up <= theta { 2 * up } else { theta + up }
        } else {
            let down = last - x;
            if down <= theta { 2 * down - 1 } else { theta + down }
        };
        last = x;
    }
    first
}

struct BlockEncoder<'a> {
    params: Params,
    bits: BitWriter<'a>,
    /// Start of the next split search: the result of the previous one.
    k: u32,
}

impl BlockEncoder<'_> {
    /// Writes one RSI.
    fn interval(&mut self, mapped: &[u32], first: u32) {
        let block = self.params.block as usize;
        let preprocess = self.params.has(PREPROCESS);
        let blocks = mapped.len() / block;
        // Pending zero blocks, and the reference sample when the first of them carries it.
        let (mut run, mut run_ref) = (0, None);
        for (b, samples) in mapped.chunks_exact(block).enumerate() {
            let reference = (preprocess && b == 0).then_some(first);
            if samples[usize::from(reference.is_some())..].iter().all(|d| *d == 0) {
                run_ref = run_ref.or(reference);
                run += 1;
                let done = b + 1 == blocks || (b + 1) % SEGMENT as usize == 0;
                if done {
                    self.zeros(run, run_ref.take(), true);
                    run = 0;
                }
                continue;
            }
            if run > 0 {
                self.zeros(run, run_ref.take(), false);
                run = 0;
            }
            self.block(samples, reference);
        }
    }

    fn reference(&mut self, reference: Option<u32>) {
        if let Some(sample) = reference {
            self.bits.put(sample, self.params.bits);
        }
    }

    /// Writes a run of zero blocks; `to_end` is set when it ends with its segment or the RSI.
    fn zeros(&mut self, run: u32, reference: Option<u32>, to_end: bool) {
        self.bits.put(0, self.params.id_len() + 1);
        self.reference(reference);
        self.bits.put_unary(match run {
            5.. if to_end => 4,
            5.. => run,
            _ => run - 1,
        });
    }

    /// Writes a block in its shortest code.
    fn block(&mut self, samples: &[u32], reference: Option<u32>) {
        let id_len = self.params.id_len();
        let predicted = &samples[usize::from(reference.is_some())..];
        let plain = predicted.len() as u64 * u64::from(self.params.bits);
        let (k, split) = self.best_split(predicted);
        self.k = k;
        let extension = extension_len(samples, split);
        let extended = if split < plain { split >= extension } else { plain > extension };
        if extended {
            self.bits.put(1, id_len + 1);
            self.reference(reference);
            for pair in samples.chunks_exact(2) {
                let sum = pair[0] + pair[1];
                self.bits.put_unary(sum * (sum + 1) / 2 + pair[1]);
            }
        } else if split < plain {
            self.bits.put(k + 1, id_len);
            self.reference(reference);
            predicted.iter().for_each(|d| self.bits.put_unary(d >> k));
            if k > 0 {
                predicted.iter().for_each(|d| self.bits.put(d & ((1 << k) - 1), k));
            }
        } else {
            self.bits.put((1 << id_len) - 1, id_len);
            self.reference(reference);
            predicted.iter().for_each(|d| self.bits.put(*d, self.params.bits));
        }
    }

    /// The number of low bits of the shortest split, and its length. Lengths decrease towards the optimum from both sides, so the
    /// search starts at the result of the previous block.
    fn best_split(&self, predicted: &[u32]) -> (u32, u64) {
        let n = predicted.len() as u64;
        let most = (1 << self.params.id_len()) - 3;
        // Sums of short samples fit in 32 bits, which doubles the number of vector lanes.
        let narrow = self.params.bits <= 16 && predicted.len() < 1 << 16;
        let highs = |k: u32| match narrow {
            true => u64::from(predicted.iter().map(|d| d >> k).sum::<u32>()),
            false => predicted.iter().map(|d| u64::from(d >> k)).sum::<u64>(),
        };
        let length = |k: u32, highs: u64| highs + n * (u64::from(k) + 1);
        let start = self.k;
        let mut high = highs(start);
        let (mut best, mut shortest) = (start, length(start, high));
        let mut k = start;
        while high >= n && k < most {
            k += 1;
            high = highs(k);
            let len = length(k, high);
            if len >= shortest {
                break;
            }
            (best, shortest) = (k, len);
        }
        if best == start {
            for k in (0..start).rev() {
                let high = highs(k);
                let len = length(k, high);
                if len >= shortest {
                    break;
                }
                (best, shortest) = (k, len);
                if high >= n {
                    break;
                }
            }
        }
        (best, shortest)
    }
}

/// The length of a block in second extension; `u64::MAX` once it exceeds the best split.
fn extension_len(samples: &[u32], split: u64) -> u64 {
    let mut len = 1_u64;
    for pair in samples.chunks_exact(2) {
        let sum = u64::from(pair[0]) + u64::from(pair[1]);
        if sum > split {
            return u64::MAX;
        }
        len += sum * (sum + 1) / 2 + u64::from(pair[1]) + 1;
        if len > split {
            return u64::MAX;
        }
    }
    len
}
