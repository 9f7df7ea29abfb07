//! Second-order packing of edition 1: groups of integers, each with a reference and a width.
//!
//! ```text
//! general extended:  width │ first values and bias of spatial differencing │ group widths │ group lengths │ group references │ integers
//! by row:            group widths │ group references │ integers; a group is a row
//! by bitmap:         group widths, or one for all │ bitmap, set where a group begins │ group references │ integers
//! ```
//! Each list begins at a byte boundary; the first two of the general extended form are there only with spatial differencing. It is the
//! form that ECMWF writes; the others are older.

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
    form: SecondOrderForm,
    /// Whether every other row is stored in the opposite direction.
    pub alternating: bool,
}

/// Where groups and their widths are described.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SecondOrderForm {
    /// By lists.
    Extended {
        width_bits: u32,
        length_bits: u32,
        /// Order of spatial differencing: 0 to 3.
        order: u8,
    },
    /// By the rows of the grid.
    Rows,
    /// By a bitmap of the values, of which there are so many modulo 2^16.
    Bitmap { one_width: bool, values: u16 },
}

impl SecondOrder {
    /// Parses the parameters of section 4 and returns the number of octets before the data.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` for other forms.
    pub(crate) fn parse(section: &Octets<'_>, bits: u32) -> Result<(Self, u64)> {
        let flags = section.u8(14)?;
        let form = match flags & 0x78 {
            0x18 => SecondOrderForm::Extended {
                width_bits: u32::from(section.u8(22)?),
                length_bits: u32::from(section.u8(23)?),
                order: flags & 3,
            },
            // Different widths without a bitmap, one width with it, and different widths with it.
            0x10 => SecondOrderForm::Rows,
            0x20 | 0x30 => SecondOrderForm::Bitmap { one_width: flags & 0x10 == 0, values: section.u16(19)? },
            _ => return Err(Error::unsupported(format!("second-order packing with flags {flags:#04x}"))),
        };
        let (extended, descriptions) = match form {
            SecondOrderForm::Extended { width_bits, length_bits, .. } => (true, width_bits.max(length_bits)),
            _ => (false, 0),
        };
        if bits > 64 || descriptions > 32 {
            return Err(section.corrupt("group descriptions exceed their maximum width"));
        }
        let groups = usize::from(section.u16(17)?) + 65_536 * usize::from(section.u8(21)?);
        let second = Self { bits, groups, form, alternating: flags & 4 != 0 };
        Ok((second, if extended { 25 } else { 21 }))
    }

    /// Whether decoding needs the number of values of each row.
    pub(crate) fn by_row(&self) -> bool {
        self.form == SecondOrderForm::Rows
    }

    /// Decodes all values; their number is the length of `out`. `rows` are the numbers of values of each row of the grid, if
    /// [needed](Self::by_row).
    pub(super) fn decode(
        &self,
        data: &[u8],
        scale: &PackingScale,
        rows: &[u64],
        out: &mut [[u8; 8]],
    ) -> Result<()> {
        let mut lists = Lists { data, bit: 0 };
        match self.form {
            SecondOrderForm::Extended { width_bits, length_bits, order } => {
                let extras = lists.extras(order)?;
                let widths = lists.next(width_bits, self.groups)?;
                let lengths = lists.next(length_bits, self.groups)?;
                let references = lists.next(self.bits, self.groups)?;
                let order = usize::from(order);
                let groups = widths.into_iter().zip(lengths).zip(references);
                let groups =
                    groups.map(|((width, length), reference)| ValueGroup { width, length, reference });
                let first = order.min(out.len());
                lists.groups(groups, &mut out[first..])?;
                for (cell, first) in out.iter_mut().zip(&extras[..order]) {
                    *cell = first.to_ne_bytes();
                }
                integrate(order, out, extras[order]);
            }
            SecondOrderForm::Rows => {
                if self.groups != rows.len() {
                    return Err(fault(NAME, format!("{} groups of {} rows", self.groups, rows.len())));
                }
                let (widths, references) = (lists.next(8, self.groups)?, lists.next(self.bits, self.groups)?);
                let groups = widths.into_iter().zip(rows).zip(references);
                let groups = groups.map(|((width, length), reference)| ValueGroup {
                    width,
                    length: *length,
                    reference,
                });
                lists.groups(groups, out)?;
            }
            SecondOrderForm::Bitmap { one_width, values } => {
                if out.len() as u16 != values {
                    return Err(fault(NAME, format!("{values} values in groups of {} points", out.len())));
                }
                let widths = lists.next(8, if one_width { 1 } else { self.groups })?;
                let lengths = lists.lengths(out.len())?;
                if lengths.len() != self.groups {
                    return Err(fault(
                        NAME,
                        format!("the bitmap has {} of {} groups", lengths.len(), self.groups),
                    ));
                }
                let references = lists.next(self.bits, self.groups)?;
                let groups = widths.into_iter().cycle().zip(lengths).zip(references);
                let groups =
                    groups.map(|((width, length), reference)| ValueGroup { width, length, reference });
                lists.groups(groups, out)?;
            }
        }
        for cell in out {
            *cell = scale.value(i64::from_ne_bytes(*cell) as f64);
        }
        Ok(())
    }
}

/// Values that are stored as differences to a reference.
struct ValueGroup {
    width: u64,
    length: u64,
    reference: u64,
}

/// Lists that follow one another, each from a byte boundary on.
struct Lists<'a> {
    data: &'a [u8],
    bit: u64,
}

impl Lists<'_> {
    /// The first values and the bias of spatial differencing of an order.
    fn extras(&mut self, order: u8) -> Result<[i64; 4]> {
        let count = usize::from(order);
        if count == 0 {
            return Ok([0; 4]);
        }
        let width = u32::from(*self.data.first().ok_or_else(|| fault(NAME, "truncated: no data"))?);
        if width == 0 || width > 64 {
            return Err(fault(NAME, format!("first values of {width} bits")));
        }
        let mut cells = [[0; 8]; 4];
        unpack_with(self.data, 8, width, &mut cells[..=count], u64::to_ne_bytes)?;
        let mut extras = cells.map(i64::from_ne_bytes);
        extras[count] = signed(extras[count].cast_unsigned(), width);
        self.bit = 8 + (u64::from(width) * (count as u64 + 1)).next_multiple_of(8);
        Ok(extras)
    }

    /// The next list.
    fn next(&mut self, width: u32, count: usize) -> Result<Vec<u64>> {
        // Descriptions of no bits need no data: the number of groups is at most 2^24.
        let mut cells = alloc::zeroed::<[u8; 8]>("groups", count)?;
        unpack_with(self.data, self.bit, width, &mut cells, u64::to_ne_bytes)?;
        self.bit += (u64::from(width) * count as u64).next_multiple_of(8);
        Ok(cells.into_iter().map(u64::from_ne_bytes).collect())
    }

    /// Lengths of groups that begin at the set bits of the next list.
    fn lengths(&mut self, values: usize) -> Result<Vec<u64>> {
        let start = usize::try_from(self.bit / 8).unwrap_or(usize::MAX);
        let bitmap = self.data.get(start..).and_then(|rest| rest.get(..values.div_ceil(8)));
        let bitmap = bitmap.ok_or_else(|| fault(NAME, "truncated: no bitmap of groups"))?;
        self.bit += (values as u64).next_multiple_of(8);
        let mut lengths: Vec<u64> = Vec::new();
        for value in 0..values {
            match lengths.last_mut() {
                _ if bitmap[value / 8] >> (7 - value % 8) & 1 == 1 => lengths.push(1),
                Some(last) => *last += 1,
                None => return Err(fault(NAME, "the first value is in no group")),
            }
        }
        Ok(lengths)
    }

    /// Unpacks the integers of groups, which fill `out`.
    fn groups(&self, groups: impl Iterator<Item = ValueGroup>, out: &mut [[u8; 8]]) -> Result<()> {
        let (mut bit, mut done) = (self.bit, 0);
        for ValueGroup { width, length, reference } in groups {
            let end = usize::try_from(length).ok().and_then(|n| n.checked_add(done));
            let (Some(end), true) = (end.filter(|end| *end <= out.len()), width <= 64) else {
                return Err(fault(NAME, "a group exceeds the values"));
            };
            unpack_run(self.data, bit, width as u32, &mut out[done..end], |n| {
                n.wrapping_add(reference).to_ne_bytes()
            })?;
            bit += width * length;
            done = end;
        }
        if done != out.len() {
            return Err(fault(NAME, format!("the groups hold {done} of {} values", out.len())));
        }
        Ok(())
    }
}

/// Restores integers from differences of the given order.
fn integrate(order: usize, out: &mut [[u8; 8]], bias: i64) {
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
