//! Where the intervals of a stream begin.

use tesseral_core::Result;

use super::bits::BitReader;
use super::decode::{fault, run_of};
use super::{PREPROCESS, Params};

/// Intervals that are walked rather than looked up: there is little to gain.
const NEAR: usize = 2;

/// Where the RSIs of one stream begin, as far as that is known.
///
/// Offsets stored beside a stream may be wrong: libaec 1.1.4 points at the last block of the interval before when that block
/// follows a zero block. The numbers that come of it look like any others, so a stored offset is not believed before
/// [`settle`](Self::settle) has put it to the test. Where that does not decide, a walk from the start does. A walk passes
/// over samples without making them, and over no part of the stream twice.
#[derive(Debug, Default)]
pub struct Index {
    /// What was stored beside the stream.
    stored: Vec<u64>,
    /// What the walk found.
    offsets: Vec<u64>,
    /// The bit after the last RSI that was walked.
    end: u64,
}

impl Index {
    /// An index with the offsets that were stored beside the stream, which are not believed unseen.
    pub fn of(stored: Vec<u64>) -> Self {
        Self { stored, ..Self::default() }
    }

    /// The bit at which RSI `number` begins, of a stream of more samples than come before it.
    ///
    /// # Errors
    /// `Codec` when the stream ends before it.
    pub fn find(&mut self, src: &[u8], params: &Params, number: u64) -> Result<u64> {
        let wanted = usize::try_from(number).map_err(|_| fault("too many intervals"))?;
        if wanted > self.offsets.len() + NEAR
            && let Some(bit) = self.settle(src, params, wanted)
        {
            return Ok(bit);
        }
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

    /// The bit at which the RSI begins that holds a sample.
    ///
    /// # Errors
    /// `Codec` when the stream ends before it.
    pub fn find_sample(&mut self, src: &[u8], params: &Params, sample: u64) -> Result<u64> {
        self.find(src, params, sample / params.interval() as u64)
    }

    /// Where an RSI begins by the stored offsets, if that is certain. Each of them is where its RSI begins or, by the known
    /// mistake, where the last code before it does. So the interval before the wanted one begins at its own offset, or after
    /// the code there, which may have a reference sample or none. A way to read it is sound if the wanted interval's offset
    /// is its end, or the beginning of its last code; its end is the answer. One of the ways is the truth, so the answer is
    /// certain when those that are sound agree.
    fn settle(&self, src: &[u8], params: &Params, wanted: usize) -> Option<u64> {
        let (before, told) = (*self.stored.get(wanted - 1)?, *self.stored.get(wanted)?);
        let own = BitReader::at(src, before).ok()?;
        let behind = |with_ref| {
            let mut bits = own.clone();
            pass_code(&mut bits, params, with_ref).ok().map(|_| bits)
        };
        let ways = [Some(own.clone()), behind(false), behind(true)];
        let mut answer = None;
        for mut bits in ways.into_iter().flatten() {
            let Ok(last) = pass_interval(&mut bits, params) else { continue };
            let end = bits.position();
            if told == end || told == last {
                if answer.is_some_and(|other| other != end) {
                    return None;
                }
                answer = Some(end);
            }
        }
        answer
    }
}

/// Passes over a whole RSI; gives the bit at which its last code begins.
pub(super) fn pass_interval(bits: &mut BitReader<'_>, params: &Params) -> Result<u64> {
    let mut b = 0;
    let mut last = bits.position();
    while b < params.rsi as usize {
        last = bits.position();
        b += match pass_code(bits, params, params.has(PREPROCESS) && b == 0)? {
            Some(number) => run_of(number, b, params.rsi)?,
            None => 1,
        };
    }
    Ok(last)
}

/// Passes over the code of a block, or of a run of zero blocks, for which it gives the number that says how many they are.
fn pass_code(bits: &mut BitReader<'_>, params: &Params, with_ref: bool) -> Result<Option<u32>> {
    let (n, block, id_len) = (u64::from(params.bits), params.block, params.id_len());
    let plain = (1 << id_len) - 1;
    let own = block - u32::from(with_ref);
    match bits.read(id_len)? {
        0 => {
            let extension = bits.read(1)? == 1;
            bits.pass(if with_ref { n } else { 0 })?;
            if !extension {
                return bits.unary().map(Some);
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
    Ok(None)
}
