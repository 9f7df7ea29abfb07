//! Windows along an axis: their positions, and padding.

use tesseral_core::{Error, Field, Result, Scalar, dtype::Class};
use tesseral_engine::fold::{AxisRole, FoldState, Number, Reducer};

use super::document::{Pad, WindowClause, WindowMode};
use super::parse::bad;

/// Windows resolved against an axis.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    /// The axis index.
    pub axis: usize,
    /// Treatment of the axis.
    pub role: AxisRole,
    /// Number of windows.
    pub count: u64,
    pad: Option<Scalar>,
    min_count: u64,
    size: u64,
    extent: u64,
}

impl Windows {
    pub(super) fn new(window: &WindowClause, axis: usize, extent: u64, field: &Field) -> Result<Self> {
        let WindowClause { size, step, .. } = *window;
        if size > extent {
            return Err(bad(
                "window.size",
                format!("window of {size} positions exceeds the extent {extent}"),
            ));
        }
        let (before, count) = match (window.mode, window.pad, window.align_end) {
            (WindowMode::Bins, _, false) => (0, extent.div_ceil(size)),
            (WindowMode::Bins, _, true) => ((size - extent % size) % size, extent.div_ceil(size)),
            (WindowMode::Rolling, Pad::None, _) => (0, (extent - size) / step + 1),
            (WindowMode::Rolling, _, false) => (size - 1, extent.div_ceil(step)),
            (WindowMode::Rolling, _, true) => (0, extent.div_ceil(step)),
        };
        // The first bin can be shorter.
        let short_first = window.mode == WindowMode::Bins && window.align_end;
        let pad = if short_first { None } else { pad(window.pad, field)? };
        let role = AxisRole::Windows { size, step, before, count };
        Ok(Self { axis, role, count, pad, min_count: window.min_count, size, extent })
    }

    /// Adds padding to a window's state; `None` with too few valid cells. `others` is the number of cells per position of the
    /// window, `stride` the distance of positions in the fiber.
    pub(super) fn finish(
        &self,
        reducer: &Reducer,
        mut state: FoldState,
        slot: u64,
        others: u64,
        stride: u64,
        field: &Field,
    ) -> Result<Option<FoldState>> {
        if state.cells(field.dtype) < self.min_count && !matches!(reducer, Reducer::Nulls(_)) {
            return Ok(None);
        }
        let Some(pad) = &self.pad else { return Ok(Some(state)) };
        let real = self.role.window(slot, self.extent);
        let missing = self.size.saturating_sub(real.end - real.start);
        if missing == 0 {
            return Ok(Some(state));
        }
        let left = real.start == 0 && slot * self.step() < self.before();
        let first = if left { 0 } else { (real.end - real.start).saturating_mul(stride) };
        let missing_pad = field.is_missing(&field.missing_values(), pad.bytes());
        if missing_pad {
            state.fold_nulls(missing.saturating_mul(others))?;
        } else {
            state.fold_repeated(reducer, pad, missing.saturating_mul(others), first)?;
        }
        Ok(Some(state))
    }

    fn step(&self) -> u64 {
        if let AxisRole::Windows { step, .. } = self.role { step } else { 1 }
    }

    fn before(&self) -> u64 {
        if let AxisRole::Windows { before, .. } = self.role { before } else { 0 }
    }
}

fn pad(pad: Pad, field: &Field) -> Result<Option<Scalar>> {
    let dtype = field.dtype;
    let value = match pad {
        Pad::None => return Ok(None),
        Pad::Zero => Number::Int(0).to_scalar(dtype),
        Pad::Nan if dtype.class() == Class::Float => Scalar::parse(dtype, "NaN").ok(),
        Pad::Nan => return Err(bad("window.pad", format!("{dtype} has no NaN"))),
        Pad::Fill if field.missing.is_empty() => {
            return Err(bad("window.pad", "the array declares no fill value"));
        }
        Pad::Fill => field.missing.first().cloned(),
    };
    value.map(Some).ok_or_else(|| Error::unsupported(format!("windows over {dtype}")))
}
