//! Prediction from the cell before, or the line through the two before; which, is told per block. Cells before the first are 0.
//!
//! Nothing when there is only one predictor; else `u64` number of blocks, a Huffman tree, `u64` bytes, the bits.

use tesseral_core::Result;

use super::quantizer::Quantize;
use super::settings::Settings;
use super::{Reader, fault, huffman};

#[derive(Debug)]
pub(super) struct Lorenzo {
    block: usize,
    /// Whether each block takes the line through two; what all take when there is but one predictor.
    lines: Vec<bool>,
    only: Option<bool>,
}

impl Lorenzo {
    pub(super) fn parse(reader: &mut Reader<'_>, settings: &Settings) -> Result<Self> {
        let block = settings.block;
        let only = match settings.lorenzo {
            (true, true) => None,
            (true, false) => Some(false),
            (false, true) => Some(true),
            (false, false) => return Err(fault("no predictor is named")),
        };
        let mut lines = Vec::new();
        if only.is_none() {
            let wanted = settings.count.div_ceil(block as u64);
            let blocks = reader.u64()?;
            if blocks != wanted {
                return Err(fault(format!("{blocks} blocks are described, {wanted} wanted")));
            }
            if blocks > 0 {
                let tree = huffman::Tree::parse(reader)?;
                let len = reader.count(1)?;
                let mut symbols = tree.decode(reader.take(len)?);
                for _ in 0..blocks {
                    lines.push(match symbols.next()? {
                        0 => false,
                        1 => true,
                        other => return Err(fault(format!("predictor {other}"))),
                    });
                }
            }
        }
        Ok(Self { block, lines, only })
    }

    pub(super) fn restore(&self, cells: &mut [f64], quantize: &mut impl Quantize) -> Result<()> {
        let (mut last, mut before) = (0.0, 0.0);
        for (number, block) in cells.chunks_mut(self.block).enumerate() {
            let line = self.only.or_else(|| self.lines.get(number).copied()).unwrap_or_default();
            for cell in block {
                quantize.cell(cell, if line { 2.0 * last - before } else { last })?;
                (before, last) = (last, *cell);
            }
        }
        Ok(())
    }
}
