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
use tesseral_core::{Error, Result};

use super::{PackingScale, fault};
use crate::wire::octets::{Octets, signed};

const NAME: &str = "grid_second_order";
/// Groups whose descriptions are unpacked together.
const BLOCK: usize = 128;

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
                // Without this, groups of no values would need no data.
                if self.groups > out.len() {
                    return Err(fault(NAME, format!("{} groups of {} values", self.groups, out.len())));
                }
                let extras = lists.extras(order)?;
                let widths = lists.next(width_bits, self.groups);
                let lengths = GroupLengths::Listed(lists.next(length_bits, self.groups));
                let references = lists.next(self.bits, self.groups);
                let order = usize::from(order);
                let first = order.min(out.len());
                lists.groups(self.groups, Some(widths), references, lengths, &mut out[first..])?;
                for (cell, first) in out.iter_mut().zip(&extras[..order]) {
                    *cell = first.to_ne_bytes();
                }
                integrate(order, out, extras[order]);
            }
            SecondOrderForm::Rows => {
                if self.groups != rows.len() {
                    return Err(fault(NAME, format!("{} groups of {} rows", self.groups, rows.len())));
                }
                let (widths, references) = (lists.next(8, self.groups), lists.next(self.bits, self.groups));
                lists.groups(self.groups, Some(widths), references, GroupLengths::Rows(rows), out)?;
            }
            SecondOrderForm::Bitmap { one_width, values } => {
                if out.len() as u16 != values {
                    return Err(fault(NAME, format!("{values} values in groups of {} points", out.len())));
                }
                let widths = lists.next(8, if one_width { 1 } else { self.groups });
                let lengths = lists.lengths(out.len(), self.groups)?;
                let references = lists.next(self.bits, self.groups);
                let each = if one_width { None } else { Some(widths) };
                lists.groups(self.groups, each, references, lengths, out)?;
            }
        }
        for cell in out {
            *cell = scale.value(i64::from_ne_bytes(*cell) as f64);
        }
        Ok(())
    }
}

/// A list of integers of equal width.
#[derive(Clone, Copy)]
struct BitList {
    bit: u64,
    width: u32,
}

impl BitList {
    /// Unpacks the integers from `first` on.
    fn read(self, data: &[u8], first: usize, out: &mut [[u8; 8]]) -> Result<()> {
        unpack_with(data, self.bit + first as u64 * u64::from(self.width), self.width, out, u64::to_ne_bytes)
    }
}

/// The numbers of values of groups.
enum GroupLengths<'a> {
    Listed(BitList),
    /// The rows of the grid.
    Rows(&'a [u64]),
    /// Bits of the values, set where a group begins, and the first value of the next group.
    Starts {
        bitmap: &'a [u8],
        values: usize,
        next: usize,
    },
}

impl GroupLengths<'_> {
    /// The lengths of the groups from `first` on, which follow those that were read before.
    fn read(&mut self, data: &[u8], first: usize, out: &mut [[u8; 8]]) -> Result<()> {
        match self {
            Self::Listed(list) => return list.read(data, first, out),
            Self::Rows(rows) => {
                for (out, length) in out.iter_mut().zip(rows.get(first..).unwrap_or_default()) {
                    *out = length.to_ne_bytes();
                }
            }
            Self::Starts { bitmap, values, next } => {
                for out in out {
                    let start = *next;
                    *next += 1;
                    while *next < *values && !is_set(bitmap, *next) {
                        *next += 1;
                    }
                    *out = ((*next).min(*values).saturating_sub(start) as u64).to_ne_bytes();
                }
            }
        }
        Ok(())
    }
}

fn is_set(bitmap: &[u8], value: usize) -> bool {
    bitmap.get(value / 8).is_some_and(|byte| byte >> (7 - value % 8) & 1 == 1)
}

/// Lists that follow one another, each from a byte boundary on.
struct Lists<'a> {
    data: &'a [u8],
    bit: u64,
}

impl<'a> Lists<'a> {
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
    fn next(&mut self, width: u32, count: usize) -> BitList {
        let bit = self.bit;
        self.bit += (u64::from(width) * count as u64).next_multiple_of(8);
        BitList { bit, width }
    }

    /// The lengths of groups, which begin at the set bits of the next list.
    fn lengths(&mut self, values: usize, groups: usize) -> Result<GroupLengths<'a>> {
        let start = usize::try_from(self.bit / 8).unwrap_or(usize::MAX);
        let bitmap = self.data.get(start..).and_then(|rest| rest.get(..values.div_ceil(8)));
        let bitmap = bitmap.ok_or_else(|| fault(NAME, "truncated: no bitmap of groups"))?;
        self.bit += (values as u64).next_multiple_of(8);
        if values > 0 && !is_set(bitmap, 0) {
            return Err(fault(NAME, "the first value is in no group"));
        }
        let found = (0..values).filter(|value| is_set(bitmap, *value)).count();
        if found != groups {
            return Err(fault(NAME, format!("the bitmap has {found} of {groups} groups")));
        }
        Ok(GroupLengths::Starts { bitmap, values, next: 0 })
    }

    /// Unpacks the integers of groups, which follow the lists and fill `out`. All groups have the first width if they have none of
    /// their own.
    fn groups(
        &self,
        count: usize,
        widths: Option<BitList>,
        references: BitList,
        mut lengths: GroupLengths<'_>,
        out: &mut [[u8; 8]],
    ) -> Result<()> {
        let (mut bit, mut done) = (self.bit, 0);
        let mut blocks = [[[0; 8]; BLOCK]; 3];
        if widths.is_none() {
            let mut first = [[0; 8]];
            BitList { bit: 0, width: 8 }.read(self.data, 0, &mut first)?;
            blocks[0].fill(first[0]);
        }
        for first in (0..count).step_by(BLOCK) {
            let block = BLOCK.min(count - first);
            let [own_widths, own_references, own_lengths] = &mut blocks;
            if let Some(widths) = widths {
                widths.read(self.data, first, &mut own_widths[..block])?;
            }
            references.read(self.data, first, &mut own_references[..block])?;
            lengths.read(self.data, first, &mut own_lengths[..block])?;
            let groups = own_widths[..block].iter().zip(&*own_references).zip(&*own_lengths);
            for ((width, reference), length) in groups {
                let [width, reference, length] =
                    [width, reference, length].map(|&value| u64::from_ne_bytes(value));
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

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(second: SecondOrder, data: &[u8], rows: &[u64], count: usize) -> Result<Vec<f64>> {
        let mut out = vec![[0; 8]; count];
        second.decode(data, &PackingScale::new(0.0, 0, 0), rows, &mut out)?;
        Ok(out.into_iter().map(f64::from_ne_bytes).collect())
    }

    /// Groups of no values and no bits need no data, so that a message of a few bytes could declare millions.
    #[test]
    fn there_are_at_most_as_many_groups_as_values() {
        let form = SecondOrderForm::Extended { width_bits: 0, length_bits: 0, order: 0 };
        let second = SecondOrder { bits: 0, groups: 5, form, alternating: false };
        let error = decode(second, &[], &[], 4).unwrap_err();
        assert!(error.to_string().contains("5 groups of 4 values"), "{error}");
    }

    /// More groups than are described together, in each form: the value of a group is its number, without bits.
    #[test]
    fn many_groups_are_read_in_blocks() {
        for groups in [1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 7] {
            let references: Vec<u8> = (0..groups).flat_map(|n| (n as u16).to_be_bytes()).collect();
            let expected: Vec<f64> = (0..groups).flat_map(|n| [n as f64; 2]).collect();
            let second = |form| SecondOrder { bits: 16, groups, form, alternating: false };
            let extended = SecondOrderForm::Extended { width_bits: 8, length_bits: 8, order: 0 };
            let listed = [vec![0; groups], vec![2; groups], references.clone()].concat();
            assert_eq!(decode(second(extended), &listed, &[], 2 * groups).unwrap(), expected);
            let by_row = [vec![0; groups], references.clone()].concat();
            let rows = vec![2; groups];
            assert_eq!(decode(second(SecondOrderForm::Rows), &by_row, &rows, 2 * groups).unwrap(), expected);
            let bitmap = vec![0b1010_1010; groups.div_ceil(4)];
            for one_width in [true, false] {
                let form = SecondOrderForm::Bitmap { one_width, values: 2 * groups as u16 };
                let widths = vec![0; if one_width { 1 } else { groups }];
                let data = [widths, bitmap.clone(), references.clone()].concat();
                assert_eq!(decode(second(form), &data, &[], 2 * groups).unwrap(), expected);
                let mut fewer = second(form);
                fewer.groups -= 1;
                assert!(decode(fewer, &data, &[], 2 * groups).is_err());
            }
            assert!(decode(second(extended), &listed[..listed.len() - 1], &[], 2 * groups).is_err());
        }
    }
}
