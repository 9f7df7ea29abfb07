//! Integers compressed by the adaptive entropy coder of CCSDS 121.0 (template 5.42).

use tesseral_codec::aec::{self, Decoder, Params};
use tesseral_core::{Result, alloc};
use tesseral_format::Scratch;

use super::PackingScale;
use crate::wire::octets::Octets;

/// Number of values that are decoded together: they stay in the cache until they are scaled.
const BLOCK: usize = 4096;

/// The parameters of the coder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ccsds {
    bits: u32,
    flags: u32,
    block: u32,
    interval: u32,
}

impl Ccsds {
    /// Parses the parameters of section 5.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn parse(section: &Octets<'_>, bits: u32) -> Result<Self> {
        Ok(Self {
            bits,
            flags: u32::from(section.u8(22)?),
            block: u32::from(section.u8(23)?),
            interval: u32::from(section.u16(24)?),
        })
    }

    /// Decodes all values; their number is the length of `out`.
    pub(super) fn decode(
        &self,
        data: &[u8],
        scale: &PackingScale,
        out: &mut [[u8; 8]],
        scratch: &mut Scratch,
    ) -> Result<()> {
        // The layout of decoded samples is ours to choose; the stream does not depend on it.
        let flags = self.flags & !(aec::MSB | aec::THREE_BYTE);
        let params = Params::new(self.bits, self.block, self.interval, flags)?;
        let (size, interval) = (params.sample_size(), params.interval());
        let step = BLOCK.next_multiple_of(interval).min(out.len());
        let samples = alloc::scratch("decoded samples", &mut scratch.buffers[0], step.saturating_mul(size))?;
        let mut decoder = Decoder::new(&params);
        let mut bit = 0;
        for run in out.chunks_mut(step.max(1)) {
            let samples = &mut samples[..run.len() * size];
            bit = decoder.decode(data, bit, samples)?;
            match size {
                1 => run.iter_mut().zip(&*samples).for_each(|(out, n)| *out = scale.value(f64::from(*n))),
                2 => convert(samples, run, |n| scale.value(f64::from(u16::from_le_bytes(n)))),
                _ => convert(samples, run, |n| scale.value(f64::from(u32::from_le_bytes(n)))),
            }
        }
        Ok(())
    }
}

fn convert<const N: usize>(samples: &[u8], out: &mut [[u8; 8]], value: impl Fn([u8; N]) -> [u8; 8]) {
    out.iter_mut().zip(samples.as_chunks().0).for_each(|(out, sample)| *out = value(*sample));
}
