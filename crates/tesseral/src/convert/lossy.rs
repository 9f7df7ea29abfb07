//! Packing floats into as few bits as an error bound allows.

use tesseral_core::{Attributes, DType, Error, Result, Selection, Value};
use tesseral_engine::kernel::summary::Wanted;
use tesseral_format::CodecSpec;

use super::options::ConvertOptions;
use crate::Array;

/// More bits than a float64 has digits gain nothing.
const MOST: u32 = 53;

/// How far packed cells may be off, and the bits that keep them there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Bound {
    pub abs: Option<f64>,
    pub rel: Option<f64>,
    pub bits: u32,
}

impl Bound {
    /// The bits that an array needs; `None` when no bound is asked for.
    pub(crate) fn choose(
        array: &Array,
        selection: &Selection,
        dtype: DType,
        options: &ConvertOptions,
    ) -> Result<Option<Self>> {
        let (abs, rel) = (options.max_abs_error, options.max_rel_error);
        if abs.is_none() && rel.is_none() {
            return Ok(None);
        }
        if [abs, rel].into_iter().flatten().any(|bound| !bound.is_finite() || bound <= 0.0) {
            return Err(Error::invalid("an error bound is a number above 0"));
        }
        if dtype != DType::Float64 {
            return Err(Error::unsupported(format!("an error bound on {dtype}: only float64 is packed"))
                .hint("convert it first with --cast float64, or choose arrays with --array"));
        }
        let summary = array.summary(selection, Wanted::RANGE | Wanted::INFINITIES)?;
        if summary.nans() > 0 || summary.infinities().unwrap_or(0) > 0 {
            return Err(Error::unsupported("an error bound on cells that are NaN or infinite"));
        }
        let number = |scalar: Option<tesseral_core::Scalar>| scalar.and_then(|s| s.as_f64()).unwrap_or(0.0);
        let (min, max) = (number(summary.min()), number(summary.max()));
        let nearest = if min <= 0.0 && max >= 0.0 { 0.0 } else { min.abs().min(max.abs()) };
        let by_rel = rel.map(|rel| rel * nearest);
        if by_rel == Some(0.0) && min != max {
            return Err(Error::unsupported("a relative error bound on values around 0")
                .hint("bound them with --max-abs-error"));
        }
        let allowed = [abs, by_rel].into_iter().flatten().fold(f64::INFINITY, f64::min);
        let bits = (0..=MOST).find(|bits| step(max - min, *bits) / 2.0 <= allowed);
        let Some(bits) = bits else {
            let detail = format!("an error of at most {allowed} over values from {min} to {max}");
            return Err(Error::unsupported(detail).hint("allow more, or store the cells as they are"));
        };
        Ok(Some(Self { abs, rel, bits }))
    }

    /// The packing and what follows it.
    pub(crate) fn codecs(&self, compression: Vec<CodecSpec>) -> Vec<CodecSpec> {
        let mut packing = CodecSpec::new("simple_packing");
        packing.options.insert("bits".to_owned(), Value::Int(self.bits.into()));
        std::iter::once(packing).chain(compression).collect()
    }

    /// What the array says about it.
    pub(crate) fn attributes(&self) -> Attributes {
        let bounds = [("max_abs_error", self.abs), ("max_rel_error", self.rel)];
        let named =
            bounds.into_iter().filter_map(|(name, bound)| Some((name.to_owned(), Value::Float(bound?))));
        named.chain([("packed_bits".to_owned(), Value::Int(self.bits.into()))]).collect()
    }
}

/// The distance between neighbours when a range is packed into this many bits: a power of two.
fn step(range: f64, bits: u32) -> f64 {
    if range == 0.0 {
        return 0.0;
    }
    if bits == 0 {
        return f64::INFINITY;
    }
    let steps = (2_f64.powi(bits.cast_signed()) - 1.0).max(1.0);
    2_f64.powf((range / steps).log2().ceil())
}
