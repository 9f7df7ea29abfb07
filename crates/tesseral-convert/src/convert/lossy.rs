//! Lossy packing of floats within an error bound.

use tesseral_core::{Advice, Attributes, DType, Error, Result, Selection, Value};
use tesseral_engine::kernel::summary::StatSet;
use tesseral_format::CodecSpec;

use super::options::ConvertOptions;
use tesseral_dataset::Array;

/// Maximum number of bits: the precision of a float64.
const MOST: u32 = 53;

/// Error bounds and the bits that satisfy them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ErrorBound {
    pub abs: Option<f64>,
    pub rel: Option<f64>,
    pub bits: u32,
}

impl ErrorBound {
    /// Number of bits for an array; `None` without an error bound.
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
            return Err(Error::invalid("an error bound must be a positive number"));
        }
        if dtype != DType::Float64 {
            return Err(Error::unsupported(format!("an error bound on {dtype}: only float64 is packed"))
                .hint(Advice::Cast { to: Some(DType::Float64) }.or(Advice::LeaveOut)));
        }
        let summary = array.summary(selection, StatSet::RANGE | StatSet::INFINITIES)?;
        if summary.nans() > 0 || summary.infinities().unwrap_or(0) > 0 {
            return Err(Error::unsupported("an error bound on non-finite cells"));
        }
        let number = |scalar: Option<tesseral_core::Scalar>| scalar.and_then(|s| s.as_f64()).unwrap_or(0.0);
        let (min, max) = (number(summary.min()), number(summary.max()));
        let nearest = if min <= 0.0 && max >= 0.0 { 0.0 } else { min.abs().min(max.abs()) };
        let by_rel = rel.map(|rel| rel * nearest);
        if by_rel == Some(0.0) && min != max {
            return Err(Error::unsupported("a relative error bound on values near 0")
                .hint(Advice::AbsoluteErrorBound));
        }
        let allowed = [abs, by_rel].into_iter().flatten().fold(f64::INFINITY, f64::min);
        let bits = (0..=MOST).find(|bits| step(max - min, *bits) / 2.0 <= allowed);
        let Some(bits) = bits else {
            let detail = format!("an error of at most {allowed} over values from {min} to {max}");
            return Err(Error::unsupported(detail).hint("allow more, or store the cells as they are"));
        };
        Ok(Some(Self { abs, rel, bits }))
    }

    /// The packing codec and those that follow.
    pub(crate) fn codecs(&self, compression: Vec<CodecSpec>) -> Vec<CodecSpec> {
        let mut packing = CodecSpec::new("simple_packing");
        packing.options.insert("bits".to_owned(), Value::Int(self.bits.into()));
        std::iter::once(packing).chain(compression).collect()
    }

    /// Description for the report.
    pub(crate) fn attributes(&self) -> Attributes {
        let bounds = [("max_abs_error", self.abs), ("max_rel_error", self.rel)];
        let named =
            bounds.into_iter().filter_map(|(name, bound)| Some((name.to_owned(), Value::Float(bound?))));
        named.chain([("packed_bits".to_owned(), Value::Int(self.bits.into()))]).collect()
    }
}

/// Quantization step of a range packed into this many bits: a power of two.
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
