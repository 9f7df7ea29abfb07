//! Complex packing of edition 2 (templates 5.2 and 5.3).
//!
//! ```text
//! data:  first values and bias of spatial differencing │ group references │ group widths │ group lengths │ integers
//! ```
//! Each of the last four begins at a byte boundary.

use tesseral_codec::packing::{unpack_run, unpack_with};
use tesseral_core::{Error, Result};

use super::{PackingScale, fault};
use crate::wire::octets::{Octets, signed};

/// Groups whose descriptions are unpacked together.
const BLOCK: usize = 128;

/// The parameters of complex packing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Complex {
    /// Bits of group references.
    bits: u32,
    /// Number of different marks for missing values: 0 to 2.
    marks: u8,
    groups: u64,
    width_reference: u32,
    width_bits: u32,
    length_reference: u64,
    length_increment: u64,
    last_length: u64,
    length_bits: u32,
    /// Order of spatial differencing: 0 to 2.
    order: u8,
    /// Octets of each of the first values and of the bias.
    extra: u32,
}

impl Complex {
    /// Parses the parameters of section 5.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`.
    pub(crate) fn parse(section: &Octets<'_>, bits: u32, differences: bool) -> Result<Self> {
        let (order, extra) = if differences { (section.u8(48)?, section.u8(49)?) } else { (0, 0) };
        let complex = Self {
            bits,
            marks: section.u8(23)?,
            groups: u64::from(section.u32(32)?),
            width_reference: u32::from(section.u8(36)?),
            width_bits: u32::from(section.u8(37)?),
            length_reference: u64::from(section.u32(38)?),
            length_increment: u64::from(section.u8(42)?),
            last_length: u64::from(section.u32(43)?),
            length_bits: u32::from(section.u8(47)?),
            order,
            extra: u32::from(extra),
        };
        if complex.marks > 2 {
            return Err(Error::unsupported(format!("missing value management {}", complex.marks)));
        }
        if order > 2 {
            return Err(Error::unsupported(format!("spatial differencing of order {order}")));
        }
        if extra > 8 || complex.width_bits > 32 || complex.length_bits > 32 {
            return Err(section.corrupt("group descriptions exceed their maximum width"));
        }
        Ok(complex)
    }

    pub(super) fn name(&self) -> &'static str {
        if self.order == 0 { "grid_complex" } else { "grid_complex_spatial_differencing" }
    }

    pub(super) fn has_missing(&self) -> bool {
        self.marks > 0
    }

    pub(super) fn groups(&self) -> u64 {
        self.groups
    }

    /// Decodes all values; their number is the length of `out`.
    pub(super) fn decode(
        &self,
        data: &[u8],
        scale: &PackingScale,
        out: &mut [[u8; 8]],
        mut validity: Option<&mut [u8]>,
    ) -> Result<()> {
        if self.groups > out.len() as u64 {
            return Err(fault(self.name(), format!("{} groups of {} values", self.groups, out.len())));
        }
        if self.order == 0 && self.marks == 0 {
            return self.decode_groups(data, out, None, |reference, n| {
                scale.value(reference.wrapping_add(n.cast_signed()) as f64)
            });
        }
        let number = |reference: i64, n: u64| reference.wrapping_add(n.cast_signed()).to_ne_bytes();
        self.decode_groups(data, out, validity.as_deref_mut(), number)?;
        let validity = validity.as_deref().filter(|_| self.marks > 0);
        self.integrate(data, out, validity.unwrap_or_default())?;
        for cell in out {
            *cell = scale.value(i64::from_ne_bytes(*cell) as f64);
        }
        Ok(())
    }

    /// Unpacks the integers of all groups and converts them to cells, given the reference of their group.
    fn decode_groups(
        &self,
        data: &[u8],
        out: &mut [[u8; 8]],
        mut validity: Option<&mut [u8]>,
        cell: impl Fn(i64, u64) -> [u8; 8],
    ) -> Result<()> {
        let aligned = |bits: u64| bits.next_multiple_of(8);
        let references =
            if self.order == 0 { 0 } else { u64::from((u32::from(self.order) + 1) * self.extra * 8) };
        let widths = aligned(references + self.groups * u64::from(self.bits));
        let lengths = aligned(widths + self.groups * u64::from(self.width_bits));
        let mut bit = aligned(lengths + self.groups * u64::from(self.length_bits));
        let mut done = 0;
        let mut group = 0;
        let mut blocks = [[[0; 8]; BLOCK]; 3];
        while group < self.groups {
            let count = (self.groups - group).min(BLOCK as u64) as usize;
            let starts = [(references, self.bits), (widths, self.width_bits), (lengths, self.length_bits)];
            for (block, (start, width)) in blocks.iter_mut().zip(starts) {
                let start = start + group * u64::from(width);
                unpack_with(data, start, width, &mut block[..count], u64::to_ne_bytes)?;
            }
            let [references_read, widths_read, lengths_read] = &blocks;
            let described = references_read.iter().zip(widths_read).zip(lengths_read).take(count);
            for (i, ((reference, width), length)) in described.enumerate() {
                let [reference, width, length] = [reference, width, length].map(|n| u64::from_ne_bytes(*n));
                let last = group + i as u64 + 1 == self.groups;
                let length = if last { Some(self.last_length) } else { self.length(length) };
                let width = width.saturating_add(u64::from(self.width_reference));
                let end =
                    length.and_then(|length| usize::try_from(length).ok()).and_then(|n| n.checked_add(done));
                let (Some(end), true) = (end.filter(|end| *end <= out.len()), width <= 64) else {
                    return Err(fault(self.name(), format!("group {} exceeds the values", group + i as u64)));
                };
                let (width, run) = (width as u32, &mut out[done..end]);
                unpack_run(data, bit, width, run, |n| cell(reference.cast_signed(), n))?;
                if self.marks > 0
                    && let Some(validity) = validity.as_deref_mut()
                {
                    self.mark(data, bit, width, reference, &mut validity[done..end])?;
                }
                bit += u64::from(width) * (end - done) as u64;
                done = end;
            }
            group += count as u64;
        }
        if done == out.len() {
            return Ok(());
        }
        Err(fault(self.name(), format!("the groups hold {done} of {} values", out.len())))
    }

    fn length(&self, number: u64) -> Option<u64> {
        number.checked_mul(self.length_increment)?.checked_add(self.length_reference)
    }

    /// Marks the missing values of a group: integers of ones only, or also one less than that. Groups without bits are missing
    /// as a whole, by their reference.
    fn mark(&self, data: &[u8], bit: u64, width: u32, reference: u64, validity: &mut [u8]) -> Result<()> {
        let ones = |bits: u32| if bits == 0 { 0 } else { u64::MAX >> (64 - bits) };
        let (marks, own) = (u64::from(self.marks), if width == 0 { self.bits } else { width });
        let least = ones(own).wrapping_sub(marks - 1);
        let missing = |n: u64| n.wrapping_sub(least) < marks;
        if width == 0 {
            if missing(reference) {
                validity.fill(0);
            }
            return Ok(());
        }
        let mut block = [[0; 8]; BLOCK];
        for (run, validity) in validity.chunks_mut(BLOCK).enumerate() {
            let start = bit + (run * BLOCK) as u64 * u64::from(width);
            let block = &mut block[..validity.len()];
            unpack_run(data, start, width, block, |n| u64::from(missing(n)).to_ne_bytes())?;
            for (validity, mark) in validity.iter_mut().zip(&*block) {
                if u64::from_ne_bytes(*mark) == 1 {
                    *validity = 0;
                }
            }
        }
        Ok(())
    }

    /// Restores integers from their differences. Missing values take no part in it; an empty `validity` means that none is.
    fn integrate(&self, data: &[u8], out: &mut [[u8; 8]], validity: &[u8]) -> Result<()> {
        if self.order == 0 {
            return Ok(());
        }
        let width = self.extra * 8;
        let mut extras = [[0; 8]; 3];
        let extras = &mut extras[..usize::from(self.order) + 1];
        unpack_with(data, 0, width, extras, u64::to_ne_bytes)?;
        let extra = |i: usize| u64::from_ne_bytes(extras[i]);
        let bias = if width == 0 { 0 } else { signed(extra(usize::from(self.order)), width) };
        let present = |i: usize| validity.is_empty() || validity[i] != 0;
        let first = extra(0).cast_signed();
        let mut cells = out.iter_mut().enumerate().filter(|(i, _)| present(*i)).map(|(_, cell)| cell);
        if let Some(cell) = cells.next() {
            *cell = first.to_ne_bytes();
        }
        if self.order == 1 {
            let mut last = first;
            for cell in cells {
                last = i64::from_ne_bytes(*cell).wrapping_add(last).wrapping_add(bias);
                *cell = last.to_ne_bytes();
            }
            return Ok(());
        }
        let mut last = extra(1).cast_signed();
        if let Some(cell) = cells.next() {
            *cell = last.to_ne_bytes();
        }
        let mut slope = last.wrapping_sub(first);
        for cell in cells {
            slope = slope.wrapping_add(i64::from_ne_bytes(*cell)).wrapping_add(bias);
            last = last.wrapping_add(slope);
            *cell = last.to_ne_bytes();
        }
        Ok(())
    }
}
