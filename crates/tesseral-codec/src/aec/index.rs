//! The start positions of the RSIs of a stream.

use tesseral_core::Result;

use super::bits::BitReader;
use super::decode::{fault, zero_blocks};
use super::{PREPROCESS, Params};

/// Intervals that are walked rather than looked up, because a lookup would gain little.
const NEAR: usize = 2;

/// The known start positions of the RSIs of one stream.
///
/// Offsets stored with a stream may be wrong: libaec 1.1.4 points at the last block of the preceding interval when that block
/// follows a zero block. Decoding from there gives plausible but wrong samples, so a stored offset is used only after
/// `verify_stored` has confirmed it. Where that is inconclusive, the stream is walked from the start.
/// A walk skips samples without decoding them and covers no part of the stream twice.
#[derive(Debug, Default)]
pub struct RsiIndex {
    /// The offsets stored with the stream.
    stored: Vec<u64>,
    /// The offsets found by walking.
    offsets: Vec<u64>,
    /// The bit after the last walked RSI.
    end: u64,
}

impl RsiIndex {
    /// An index over the offsets stored with the stream, which are verified before use.
    pub fn from_offsets(stored: Vec<u64>) -> Self {
        Self { stored, ..Self::default() }
    }

    /// The bit at which RSI `number` begins; the stream must hold more samples than precede it.
    ///
    /// # Errors
    /// `Codec` when the stream is truncated.
    pub fn find(&mut self, src: &[u8], params: &Params, number: u64) -> Result<u64> {
        let target = usize::try_from(number).map_err(|_| fault("too many intervals"))?;
        if target > self.offsets.len() + NEAR
            && let Some(bit) = self.verify_stored(src, params, target)
        {
            return Ok(bit);
        }
        if target >= self.offsets.len() {
            let mut bits = BitReader::at(src, self.end)?;
            while target > self.offsets.len() {
                let start = bits.position();
                skip_interval(&mut bits, params)?;
                self.offsets.push(start);
                self.end = bits.position();
            }
        }
        Ok(self.offsets.get(target).copied().unwrap_or(self.end))
    }

    /// The bit at which the RSI that holds a sample begins.
    ///
    /// # Errors
    /// `Codec` when the stream is truncated.
    pub fn find_sample(&mut self, src: &[u8], params: &Params, sample: u64) -> Result<u64> {
        self.find(src, params, sample / params.interval() as u64)
    }

    /// The start of an RSI according to the stored offsets, if they are conclusive. Each stored offset is either correct or, by
    /// the known defect, the start of the preceding code. So the interval before the requested one begins at its stored offset,
    /// or after the code at that offset, which may or may not have a reference sample. A candidate is consistent if the stored
    /// offset of the requested interval is the candidate's end or the start of its last code; its end is the answer. One
    /// candidate is correct, so the answer is certain when all consistent candidates agree.
    fn verify_stored(&self, src: &[u8], params: &Params, target: usize) -> Option<u64> {
        let (before, stored) = (*self.stored.get(target - 1)?, *self.stored.get(target)?);
        let start = BitReader::at(src, before).ok()?;
        let after_code = |with_ref| {
            let mut bits = start.clone();
            skip_code(&mut bits, params, with_ref).ok().map(|_| bits)
        };
        let candidates = [Some(start.clone()), after_code(false), after_code(true)];
        let mut answer = None;
        for mut bits in candidates.into_iter().flatten() {
            let Ok(last) = skip_interval(&mut bits, params) else { continue };
            let end = bits.position();
            if stored == end || stored == last {
                if answer.is_some_and(|other| other != end) {
                    return None;
                }
                answer = Some(end);
            }
        }
        answer
    }
}

/// Skips a complete RSI; returns the bit at which its last code begins.
pub(super) fn skip_interval(bits: &mut BitReader<'_>, params: &Params) -> Result<u64> {
    let mut b = 0;
    let mut last = bits.position();
    while b < params.rsi as usize {
        last = bits.position();
        b += match skip_code(bits, params, params.has(PREPROCESS) && b == 0)? {
            Some(number) => zero_blocks(number, b, params.rsi)?,
            None => 1,
        };
    }
    Ok(last)
}

/// Skips the code of a block or of a run of zero blocks; for a run, returns its run code.
fn skip_code(bits: &mut BitReader<'_>, params: &Params, with_ref: bool) -> Result<Option<u32>> {
    let (n, block, id_len) = (u64::from(params.bits), params.block, params.id_len());
    let plain = (1 << id_len) - 1;
    let coded = block - u32::from(with_ref);
    match bits.read(id_len)? {
        0 => {
            let extension = bits.read(1)? == 1;
            bits.skip(if with_ref { n } else { 0 })?;
            if !extension {
                return bits.unary().map(Some);
            }
            bits.skip_unary(block / 2)?;
        }
        id if id == plain => bits.skip(n * u64::from(block))?,
        id => {
            bits.skip(if with_ref { n } else { 0 })?;
            bits.skip_unary(coded)?;
            bits.skip(u64::from(coded) * u64::from(id - 1))?;
        }
    }
    Ok(None)
}
