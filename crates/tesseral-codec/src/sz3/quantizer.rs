//! Linear quantization in steps of twice the allowed error.
//!
//! `u8` 2 · `f64` error · `i32` radius · `u64` number of verbatim cells · those cells. Step 0 is the next verbatim cell, step `s`
//! a difference of `2 (s − radius)` errors.

use tesseral_core::{Cursor, Result};

use super::fault;
use super::huffman::Symbols;

/// Combines a prediction with a cell. Predictors visit cells in the same order when decoding and encoding.
pub(super) trait Quantize {
    /// Sets a predicted cell.
    fn cell(&mut self, cell: &mut f64, predicted: f64) -> Result<()>;

    /// Sets a verbatim cell.
    fn plain(&mut self, cell: &mut f64) -> Result<()>;

    /// Divides the error bound of the stream by `by` for the following cells.
    fn divide(&mut self, by: f64);
}

#[derive(Debug)]
pub(super) struct Quantizer<'a> {
    error: f64,
    radius: i32,
    plain: &'a [[u8; 8]],
}

impl<'a> Quantizer<'a> {
    pub(super) fn parse(reader: &mut Cursor<'a>) -> Result<Self> {
        let kind = reader.u8("quantizer kind")?;
        if kind != 2 {
            return Err(fault(format!("unknown quantizer kind {kind}")));
        }
        let (error, radius) = (reader.f64("error bound")?, reader.i32("radius")?);
        let count = reader.count64(8, "unpredictable cells")?;
        Ok(Self { error, radius, plain: reader.take(8 * count, "unpredictable cells")?.as_chunks().0 })
    }
}

/// Decodes cells.
pub(super) struct CellDecoder<'a, 'b> {
    base_error: f64,
    error: f64,
    radius: i64,
    plain: std::slice::Iter<'a, [u8; 8]>,
    symbols: &'b mut Symbols<'a>,
}

impl<'a, 'b> CellDecoder<'a, 'b> {
    pub(super) fn new(quantizer: &Quantizer<'a>, symbols: &'b mut Symbols<'a>) -> Self {
        let Quantizer { error, radius, plain } = *quantizer;
        Self { base_error: error, error, radius: radius.into(), plain: plain.iter(), symbols }
    }

    fn next_plain(&mut self) -> Result<f64> {
        let cell = self.plain.next().ok_or_else(|| fault("truncated list of verbatim cells"))?;
        Ok(f64::from_le_bytes(*cell))
    }
}

impl Quantize for CellDecoder<'_, '_> {
    #[inline]
    fn cell(&mut self, cell: &mut f64, predicted: f64) -> Result<()> {
        let step = self.symbols.next()?;
        *cell = if step == 0 {
            self.next_plain()?
        } else {
            predicted + (2 * (i64::from(step) - self.radius)) as f64 * self.error
        };
        Ok(())
    }

    fn plain(&mut self, cell: &mut f64) -> Result<()> {
        // The step of a verbatim cell is stored but unused.
        self.symbols.next()?;
        *cell = self.next_plain()?;
        Ok(())
    }

    fn divide(&mut self, by: f64) {
        self.error = self.base_error / by;
    }
}

/// Encodes cells.
pub(super) struct CellEncoder {
    base_error: f64,
    error: f64,
    radius: i32,
    plain: Vec<f64>,
    pub symbols: Vec<i32>,
}

impl CellEncoder {
    pub(super) fn new(error: f64, radius: i32) -> Self {
        Self { base_error: error, error, radius, plain: Vec::new(), symbols: Vec::new() }
    }

    pub(super) fn write(&self, error: f64, out: &mut Vec<u8>) {
        out.push(2);
        out.extend_from_slice(&error.to_le_bytes());
        out.extend_from_slice(&self.radius.to_le_bytes());
        out.extend_from_slice(&(self.plain.len() as u64).to_le_bytes());
        out.extend(self.plain.iter().flat_map(|cell| cell.to_le_bytes()));
    }

    /// The step to a cell and the decoded value, when the value is within the error bound.
    fn step(&self, cell: f64, predicted: f64) -> Option<(i32, f64)> {
        let difference = cell - predicted;
        let errors = difference.abs() * (1.0 / self.error);
        if errors.is_nan() || errors + 1.0 >= f64::from(2 * self.radius) {
            return None;
        }
        let half = (errors as i32 + 1) >> 1;
        let half = if difference < 0.0 { -half } else { half };
        let reached = predicted + f64::from(2 * half) * self.error;
        ((reached - cell).abs() <= self.error).then_some((self.radius + half, reached))
    }
}

impl Quantize for CellEncoder {
    fn cell(&mut self, cell: &mut f64, predicted: f64) -> Result<()> {
        if let Some((step, reached)) = self.step(*cell, predicted) {
            self.symbols.push(step);
            *cell = reached;
            return Ok(());
        }
        self.plain(cell)
    }

    fn plain(&mut self, cell: &mut f64) -> Result<()> {
        self.symbols.push(0);
        self.plain.push(*cell);
        Ok(())
    }

    fn divide(&mut self, by: f64) {
        self.error = self.base_error / by;
    }
}
