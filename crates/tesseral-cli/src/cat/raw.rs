//! Raw bytes: contiguous fixed-size cells; variable-length cells with a length prefix.

use tesseral::DType;

use super::block::Block;
use super::{Render, Task};
use crate::error::CliResult;
use crate::output::OutputStream;

#[derive(Default)]
pub(super) struct RawRenderer {
    /// Bits of an incomplete byte, and their number.
    bits: (u8, u32),
}

impl Render for RawRenderer {
    fn begin(&mut self, _: &Task<'_>, _: &mut OutputStream) -> CliResult<()> {
        Ok(())
    }

    fn block(&mut self, task: &Task<'_>, block: &Block, out: &mut OutputStream) -> CliResult<()> {
        match block.plain() {
            Some(bits) if task.field.dtype == DType::Bitmask => self.put_bits(bits, out),
            _ => put_cells(task, block, out),
        }
    }

    fn end(&mut self, _: &Task<'_>, out: &mut OutputStream) -> CliResult<()> {
        let (byte, count) = self.bits;
        if count > 0 { out.put(&[byte << (8 - count)]) } else { Ok(()) }
    }
}

impl RawRenderer {
    /// Packs bits, one input byte each, most significant bit first, without gaps between blocks.
    fn put_bits(&mut self, bits: &[u8], out: &mut OutputStream) -> CliResult<()> {
        let mut packed = Vec::with_capacity(bits.len() / 8 + 1);
        let (mut byte, mut count) = self.bits;
        for bit in bits {
            byte = byte << 1 | bit;
            count += 1;
            if count == 8 {
                packed.push(byte);
                (byte, count) = (0, 0);
            }
        }
        self.bits = (byte, count);
        out.put(&packed)
    }
}

/// Writes cells as little-endian bytes; null cells as zeros (fixed-size) or empty (variable-length).
pub(super) fn put_cells(task: &Task<'_>, block: &Block, out: &mut OutputStream) -> CliResult<()> {
    let word = task.field.dtype.word();
    let swapped = cfg!(target_endian = "big") && word > 1;
    if let (Some(bytes), false) = (block.plain(), swapped) {
        return out.put(bytes);
    }
    let zeros = vec![0; task.field.cell_size().unwrap_or(0)];
    let mut turned = Vec::new();
    for i in 0..block.len() {
        let mut cell = block.cell(i).unwrap_or(&zeros);
        if swapped {
            turned.clear();
            cell.chunks(word).for_each(|one| turned.extend(one.iter().rev()));
            cell = &turned;
        }
        if task.is_var() {
            out.put(&(cell.len() as u64).to_le_bytes())?;
        }
        out.put(cell)?;
    }
    Ok(())
}
