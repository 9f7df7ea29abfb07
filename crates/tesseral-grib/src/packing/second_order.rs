//! Second-order packing of edition 1, in the general extended form that ECMWF writes.
//!
//! ```text
//! data:  width │ first values and bias of spatial differencing │ group widths │ group lengths │ group references │ integers
//! ```
//! Each list begins at a byte boundary; the first is there only with spatial differencing.

use tesseral_codec::packing::{unpack_run, unpack_with};
use tesseral_core::{Error, Result, alloc};

use super::{PackingScale, fault};
use crate::wire::octets::{Octets, signed};

const NAME: &str = "grid_second_order";

/// The parameters of second-order packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SecondOrder {
    /// Bits of group references.
    bits: u32,
    groups: usize,
    width_bits: u32,
    length_bits: u32,
    /// Order of spatial differencing: 0 to 3.
    order: u8,
    /// Whether every other row is stored in the opposite direction.
    pub alternating: bool,
}

impl SecondOrder {
    /// Parses the parameters of section 4 and returns the number of octets before the data.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` for other forms.
    pub(crate) fn parse(section: &Octets<'_>, bits: u32) -> Result<(Self, u64)> {
        let flags = section.u8(14)?;
        // Different widths, the general extended form, no matrices, no secondary bitmap.
        if flags & 0x78 != 0x18 {
            return Err(Error::unsupported(format!("second-order packing with flags {flags:#04x}")));
        }
        let second = Self {
            bits,
            groups: usize::from(section.u16(17)?) + 65_536 * usize::from(section.u8(21)?),
            width_bits: u32::from(section.u8(22)?),
            length_bits: u32::from(section.u8(23)?),
            order: flags & 3,
            alternating: flags & 4 != 0,
        };
        if bits > 64 || second.width_bits > 32 || second.length_bits > 32 {
            return Err(section.corrupt("group descriptions exceed their maximum width"));
        }
        Ok((second, 25))
    }

    /// Decodes all values; their number is the length of `out`.
    pub(super) fn decode(&self, data: &[u8], scale: &PackingScale, out: &mut [[u8; 8]]) -> Result<()> {
        let order = usize::from(self.order);
        let mut at = 0;
        let mut extras = [0_i64; 4];
        if order > 0 {
            let width = u32::from(*data.first().ok_or_else(|| fault(NAME, "truncated: no data"))?);
            if width == 0 || width > 64 {
                return Err(fault(NAME, format!("first values of {width} bits")));
            }
            let mut cells = [[0; 8]; 4];
            unpack_with(data, 8, width, &mut cells[..=order], u64::to_ne_bytes)?;
            extras = cells.map(i64::from_ne_bytes);
            extras[order] = signed(extras[order].cast_unsigned(), width);
            at = 8 + (u64::from(width) * (order as u64 + 1)).next_multiple_of(8);
        }
        let mut list = |width: u32| -> Result<Vec<u64>> {
            // Descriptions of no bits need no data: the number of groups is at most 2^24.
            let mut cells = alloc::zeroed::<[u8; 8]>("groups", self.groups)?;
            unpack_with(data, at, width, &mut cells, u64::to_ne_bytes)?;
            at += (u64::from(width) * self.groups as u64).next_multiple_of(8);
            Ok(cells.into_iter().map(u64::from_ne_bytes).collect())
        };
        let (widths, lengths, references) =
            (list(self.width_bits)?, list(self.length_bits)?, list(self.bits)?);
        let mut bit = at;
        let mut done = order.min(out.len());
        for ((width, length), reference) in widths.into_iter().zip(lengths).zip(references) {
            let end = usize::try_from(length).ok().and_then(|n| n.checked_add(done));
            let (Some(end), true) = (end.filter(|end| *end <= out.len()), width <= 64) else {
                return Err(fault(NAME, "a group exceeds the values"));
            };
            unpack_run(data, bit, width as u32, &mut out[done..end], |n| {
                n.wrapping_add(reference).to_ne_bytes()
            })?;
            bit += width * length;
            done = end;
        }
        if done != out.len() {
            return Err(fault(NAME, format!("the groups hold {done} of {} values", out.len())));
        }
        for (cell, first) in out.iter_mut().zip(&extras[..order]) {
            *cell = first.to_ne_bytes();
        }
        self.integrate(out, extras[order]);
        for cell in out {
            *cell = scale.value(i64::from_ne_bytes(*cell) as f64);
        }
        Ok(())
    }

    /// Restores integers from differences of the given order.
    fn integrate(&self, out: &mut [[u8; 8]], bias: i64) {
        let order = usize::from(self.order);
        let Some((first, rest)) = out.split_at_mut_checked(order) else { return };
        let at = |i: usize| i64::from_ne_bytes(first[i]);
        // The last value and its differences, of which the highest is stored.
        let mut state = match order {
            0 => return,
            1 => [at(0), 0, 0],
            2 => [at(1), at(1).wrapping_sub(at(0)), 0],
            _ => {
                let (older, newer) = (at(1).wrapping_sub(at(0)), at(2).wrapping_sub(at(1)));
                [at(2), newer, newer.wrapping_sub(older)]
            }
        };
        for cell in rest {
            let mut change = i64::from_ne_bytes(*cell).wrapping_add(bias);
            for level in state[..order].iter_mut().rev() {
                *level = level.wrapping_add(change);
                change = *level;
            }
            *cell = state[0].to_ne_bytes();
        }
    }
}
