//! Prediction by interpolation, from coarse to fine.
//!
//! Anchors, one every 4096 cells, are stored verbatim. Then the distance between known cells is halved repeatedly: every cell
//! halfway between two known ones is predicted from two or four neighbors, in blocks of 32 intervals. Coarse levels use smaller
//! error bounds, because finer levels depend on them.
//!
//! `u64` cells · `u32` intervals per block · `i32` 0 linear, 1 cubic · `i32` direction · `u64` anchor distance · `f64` alpha ·
//! `f64` beta: at level l the error bound is divided by min(alpha^(l−1), beta); without alpha it is halved from level 3 on.

use tesseral_core::{Cursor, Result};

use super::fault;
use super::quantizer::Quantize;

#[derive(Debug)]
pub(super) struct Interpolation {
    count: usize,
    block: u32,
    cubic: bool,
    direction: i32,
    anchors: u64,
    alpha: f64,
    beta: f64,
}

impl Interpolation {
    /// The reference's parameters without autotuning.
    pub(super) fn default_for(count: usize) -> Self {
        // An array no longer than this has no anchors.
        let anchors = if count > 4096 { 4096 } else { 0 };
        Self { count, block: 32, cubic: true, direction: 0, anchors, alpha: 1.25, beta: 2.0 }
    }

    pub(super) fn parse(reader: &mut Cursor<'_>) -> Result<Self> {
        let count =
            usize::try_from(reader.u64("cell count")?).map_err(|_| fault("number of cells out of range"))?;
        let block = reader.u32("block size")?;
        let (kind, direction, anchors) =
            (reader.i32("interpolation kind")?, reader.i32("direction")?, reader.u64("anchor stride")?);
        let (alpha, beta) = (reader.f64("alpha")?, reader.f64("beta")?);
        let cubic = match kind {
            0 => false,
            1 => true,
            _ => return Err(fault(format!("unknown interpolation kind {kind}"))),
        };
        if block == 0 || block % 2 == 1 || anchors != 0 && !anchors.is_power_of_two() {
            return Err(fault(format!(
                "invalid interpolation: blocks of {block} intervals, anchors every {anchors} cells"
            )));
        }
        Ok(Self { count, block, cubic, direction, anchors, alpha, beta })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&(self.count as u64).to_le_bytes());
        out.extend_from_slice(&self.block.to_le_bytes());
        out.extend_from_slice(&i32::from(self.cubic).to_le_bytes());
        out.extend_from_slice(&self.direction.to_le_bytes());
        out.extend_from_slice(&self.anchors.to_le_bytes());
        out.extend_from_slice(&self.alpha.to_le_bytes());
        out.extend_from_slice(&self.beta.to_le_bytes());
    }

    /// Visits every cell once, with its prediction.
    pub(super) fn run(&self, cells: &mut [f64], quantize: &mut impl Quantize) -> Result<()> {
        let count = cells.len();
        if count != self.count || count == 0 {
            return Err(fault(format!("interpolation covers {} cells, expected {count}", self.count)));
        }
        // log2 of the number of cells, rounded up.
        let mut levels = usize::BITS - (count - 1).leading_zeros();
        let anchors = usize::try_from(self.anchors).ok().filter(|anchors| *anchors > 0 && *anchors < count);
        if let Some(anchors) = anchors {
            for cell in cells.iter_mut().step_by(anchors) {
                quantize.plain(cell)?;
            }
            levels = levels.min(anchors.trailing_zeros() + 1) - 1;
        } else {
            quantize.cell(&mut cells[0], 0.0)?;
        }
        for level in (1..=levels).rev() {
            if self.alpha < 0.0 {
                quantize.divide(if level >= 3 { 2.0 } else { 1.0 });
            } else if self.alpha >= 1.0 {
                let ratio = self.alpha.powf(f64::from(level - 1));
                quantize.divide(if ratio > self.beta { self.beta } else { ratio });
            }
            let stride = 1_usize << (level - 1);
            let block = (self.block as usize).saturating_mul(stride);
            for begin in (0..count).step_by(block) {
                let end = begin.saturating_add(block).min(count - 1);
                self.line(&mut cells[begin..=end], stride, quantize)?;
            }
        }
        Ok(())
    }

    /// Predicts every second of the cells that lie `stride` apart in a block.
    fn line(&self, cells: &mut [f64], stride: usize, quantize: &mut impl Quantize) -> Result<()> {
        let n = (cells.len() - 1) / stride + 1;
        if n <= 1 {
            return Ok(());
        }
        let at = |cells: &[f64], i: usize| cells[i * stride];
        if !self.cubic || n < 5 {
            for i in (1..n - 1).step_by(2) {
                let predicted = (at(cells, i - 1) + at(cells, i + 1)) / 2.0;
                quantize.cell(&mut cells[i * stride], predicted)?;
            }
            if n.is_multiple_of(2) {
                let i = n - 1;
                let predicted =
                    if n < 4 { at(cells, i - 1) } else { -0.5 * at(cells, i - 3) + 1.5 * at(cells, i - 1) };
                quantize.cell(&mut cells[i * stride], predicted)?;
            }
            return Ok(());
        }
        let mut i = 3;
        while i + 3 < n {
            let (a, b) = (at(cells, i - 3), at(cells, i - 1));
            let (c, d) = (at(cells, i + 1), at(cells, i + 3));
            quantize.cell(&mut cells[i * stride], (-a + 9.0 * b + 9.0 * c - d) / 16.0)?;
            i += 2;
        }
        let (a, b, c) = (at(cells, 0), at(cells, 2), at(cells, 4));
        quantize.cell(&mut cells[stride], (3.0 * a + 6.0 * b - c) / 8.0)?;
        let (a, b, c) = (at(cells, i - 3), at(cells, i - 1), at(cells, i + 1));
        quantize.cell(&mut cells[i * stride], (-a + 6.0 * b + 3.0 * c) / 8.0)?;
        if n.is_multiple_of(2) {
            let i = n - 1;
            let (a, b, c) = (at(cells, i - 5), at(cells, i - 3), at(cells, i - 1));
            quantize.cell(&mut cells[i * stride], (3.0 * a - 10.0 * b + 15.0 * c) / 8.0)?;
        }
        Ok(())
    }
}
