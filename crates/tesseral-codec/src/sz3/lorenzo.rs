//! Prediction from the preceding cell (order 1) or the line through the two preceding cells (order 2), selected per block. Cells
//! before the first are 0.
//!
//! Empty when there is only one predictor; else `u64` number of blocks, a Huffman tree, `u64` bytes, the bits.

use tesseral_core::{Cursor, Result};

use super::quantizer::Quantize;
use super::settings::Settings;
use super::{fault, huffman};

#[derive(Debug)]
pub(super) struct Lorenzo {
    block: usize,
    /// For each block, whether it uses order 2. `only` applies to all blocks when there is a single predictor.
    lines: Vec<bool>,
    only: Option<bool>,
}

impl Lorenzo {
    pub(super) fn parse(reader: &mut Cursor<'_>, settings: &Settings) -> Result<Self> {
        let block = settings.block;
        let only = match settings.lorenzo {
            (true, true) => None,
            (true, false) => Some(false),
            (false, true) => Some(true),
            (false, false) => return Err(fault("no predictor selected")),
        };
        let mut lines = Vec::new();
        if only.is_none() {
            let expected = settings.count.div_ceil(block as u64);
            let blocks = reader.u64("block count")?;
            if blocks != expected {
                return Err(fault(format!("predictors for {blocks} blocks, expected {expected}")));
            }
            if blocks > 0 {
                let tree = huffman::Tree::parse(reader)?;
                let len = reader.count64(1, "length of the predictor choices")?;
                let mut symbols = tree.decode(reader.take(len, "predictor choices")?);
                for _ in 0..blocks {
                    lines.push(match symbols.next()? {
                        0 => false,
                        1 => true,
                        other => return Err(fault(format!("unknown predictor {other}"))),
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
