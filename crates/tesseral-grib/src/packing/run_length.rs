//! Run-length packing of edition 2 (template 5.200): few different values, as of radars.
//!
//! ```text
//! data:  level │ digits of the length of its run, the least significant first │ level │ …
//! ```
//! All are integers of equal width. Those up to the highest level are levels, those above are digits. Level 0 is missing.

use std::sync::Arc;

use tesseral_codec::packing::unpack_with;
use tesseral_core::Result;

use super::{fault, power};
use crate::wire::octets::Octets;

const NAME: &str = "grid_run_length";
/// Integers that are unpacked together.
const BLOCK: usize = 1024;

/// The parameters of run-length packing.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RunLength {
    bits: u32,
    /// Value of each level from 1 on.
    levels: Arc<[f64]>,
}

impl RunLength {
    /// Parses the parameters of section 5.
    ///
    /// # Errors
    /// `Corrupt`.
    pub(crate) fn parse(section: &Octets<'_>) -> Result<Self> {
        let (bits, most, levels) = (section.u8(12)?, section.u16(13)?, section.u16(15)?);
        let scale = power(10.0, -section.i8(17)?);
        let used = most > 0 && bits > 0;
        if used && (bits > 16 || most > levels || 1_u32 << bits <= u32::from(most) + 1) {
            let detail = format!("{most} of {levels} levels in integers of {bits} bits");
            return Err(section.corrupt(detail));
        }
        let level = |n: u16| section.u16(18 + 2 * usize::from(n)).map(|level| f64::from(level) * scale);
        let levels = if used { (0..most).map(level).collect::<Result<_>>()? } else { Arc::default() };
        Ok(Self { bits: u32::from(bits), levels })
    }

    /// Decodes all values; their number is the length of `out`. Missing ones get validity 0.
    pub(super) fn decode(&self, data: &[u8], out: &mut [[u8; 8]], validity: Option<&mut [u8]>) -> Result<()> {
        let Some(validity) = validity else { return Err(fault(NAME, "values without validity")) };
        if self.levels.is_empty() || data.is_empty() {
            out.fill(f64::NAN.to_ne_bytes());
            validity.fill(0);
            return Ok(());
        }
        let (most, bits) = (self.levels.len() as u64, u64::from(self.bits));
        let base = (1_u64 << bits) - 1 - most;
        let count = data.len() as u64 * 8 / bits;
        let mut block = [[0; 8]; BLOCK];
        // The level of the run, its length, and the weight of the next digit.
        let mut run: Option<(u64, u64, u64)> = None;
        let mut done = 0;
        let mut first = 0;
        while first < count {
            let block = &mut block[..(count - first).min(BLOCK as u64) as usize];
            unpack_with(data, first * bits, self.bits, block, u64::to_ne_bytes)?;
            for (at, number) in (first..).zip(block.iter().map(|n| u64::from_ne_bytes(*n))) {
                run = match run {
                    Some((level, length, weight)) if number > most => {
                        let length =
                            weight.checked_mul(number - most - 1).and_then(|more| more.checked_add(length));
                        let length = length.filter(|length| *length <= out.len() as u64);
                        let length = length.ok_or_else(|| fault(NAME, "a run exceeds the values"))?;
                        Some((level, length, weight.saturating_mul(base)))
                    }
                    None if number > most => return Err(fault(NAME, "a length without a level")),
                    before => {
                        done = self.write(before, done, out, validity)?;
                        if done == out.len() {
                            let left = data.len() as u64 * 8 - at * bits;
                            return match left {
                                // What follows the last value fills up a byte.
                                0..8 => Ok(()),
                                _ => Err(fault(NAME, format!("{left} bits after the last value"))),
                            };
                        }
                        Some((number, 1, 1))
                    }
                };
            }
            first += block.len() as u64;
        }
        done = self.write(run, done, out, validity)?;
        match done == out.len() {
            true => Ok(()),
            false => Err(fault(NAME, format!("the runs hold {done} of {} values", out.len()))),
        }
    }

    /// Writes a run and returns its end.
    fn write(
        &self,
        run: Option<(u64, u64, u64)>,
        done: usize,
        out: &mut [[u8; 8]],
        validity: &mut [u8],
    ) -> Result<usize> {
        let Some((level, length, _)) = run else { return Ok(done) };
        let end = usize::try_from(length).ok().and_then(|length| done.checked_add(length));
        let (Some(end), Some(cells)) = (end, end.and_then(|end| out.get_mut(done..end))) else {
            return Err(fault(NAME, "a run exceeds the values"));
        };
        let level = usize::try_from(level).ok().and_then(|level| level.checked_sub(1));
        match level.and_then(|level| self.levels.get(level)) {
            Some(value) => cells.fill(value.to_ne_bytes()),
            None => {
                cells.fill(f64::NAN.to_ne_bytes());
                if let Some(validity) = validity.get_mut(done..end) {
                    validity.fill(0);
                }
            }
        }
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packing(bits: u32, levels: &[f64]) -> RunLength {
        RunLength { bits, levels: levels.into() }
    }

    fn decode(packing: &RunLength, data: &[u8], count: usize) -> Result<(Vec<f64>, Vec<u8>)> {
        let (mut out, mut validity) = (vec![[9; 8]; count], vec![1; count]);
        packing.decode(data, &mut out, Some(&mut validity))?;
        Ok((out.into_iter().map(f64::from_ne_bytes).collect(), validity))
    }

    #[test]
    fn lengths_are_numbers_of_several_digits() {
        // Levels up to 2 in 3 bits: digits 3 to 7 in base 5. Level 1 once, level 2 for 1 + 4 + 5 · 3 values, level 1 for 2.
        let bits = "001".to_owned() + "010" + "111" + "110" + "001" + "100" + "000";
        let bytes: Vec<u8> = bits
            .as_bytes()
            .chunks(8)
            .map(|byte| byte.iter().enumerate().fold(0, |sum, (n, bit)| sum | (bit - b'0') << (7 - n)))
            .collect();
        let packing = packing(3, &[0.5, 1.5]);
        let (values, validity) = decode(&packing, &bytes, 24).unwrap();
        assert_eq!(values[..23], [&[0.5][..], &[1.5; 20], &[0.5; 2]].concat());
        assert!(values[23].is_nan() && validity == [&[1; 23][..], &[0]].concat());
        // The remaining bits of the last byte are not a value.
        assert_eq!(decode(&packing, &bytes, 23).unwrap().0.len(), 23);
        for count in [1, 22, 26] {
            assert!(decode(&packing, &bytes, count).is_err(), "{count}");
        }
        for end in 0..bytes.len() {
            let cut = decode(&packing, &bytes[..end], 24);
            assert_eq!(cut.is_ok(), end == 0, "no data means no values");
        }
        assert!(decode(&packing, &[0b1110_0000], 3).is_err());
    }

    #[test]
    fn parameters_are_checked() {
        let parse = |bytes: &[u8]| RunLength::parse(&Octets::new(bytes, "section 5", "x", 0));
        let mut section = vec![0; 11];
        section.extend([4, 0, 2, 0, 3, 0x81, 0, 1, 0, 2, 0, 3]);
        assert_eq!(parse(&section).unwrap(), packing(4, &[10.0, 20.0]));
        for (at, byte) in [(11, 17), (11, 1), (13, 4), (15, 0)] {
            let mut changed = section.clone();
            changed[at] = byte;
            assert!(parse(&changed).is_err(), "{at}");
        }
        assert!(parse(&section[..20]).is_err());
        section[11] = 0;
        assert_eq!(decode(&parse(&section).unwrap(), b"", 2).unwrap().1, [0, 0]);
    }
}
