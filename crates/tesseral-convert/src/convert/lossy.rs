//! Lossy packing of floats within an error bound.

use tesseral_core::{Advice, Attributes, DType, Error, Result, Scalar, Selection, Value};
use tesseral_engine::StatSet;
use tesseral_format::CodecSpec;

use super::options::ConvertOptions;
use tesseral_dataset::Array;

/// Maximum number of bits: the precision of a float64.
const MAX_BITS: u32 = 53;

/// Error bounds and the bits that satisfy them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ErrorBound {
    pub abs: Option<f64>,
    pub rel: Option<f64>,
    pub bits: u32,
    /// Whether cells are missing.
    pub has_missing: bool,
    /// Least value that is not missing.
    least: f64,
    /// Exponent of the step between packed values.
    binary: i32,
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
        if summary.infinities().unwrap_or(0) > 0 {
            return Err(Error::unsupported("an error bound on infinite cells"));
        }
        let number = |scalar: Option<Scalar>| scalar.and_then(|s| s.as_f64()).unwrap_or(0.0);
        let (min, max) = (number(summary.min()), number(summary.max()));
        let nearest = if min <= 0.0 && max >= 0.0 { 0.0 } else { min.abs().min(max.abs()) };
        let by_rel = rel.map(|rel| rel * nearest);
        if by_rel == Some(0.0) && min != max {
            return Err(Error::unsupported("a relative error bound on values near 0")
                .hint(Advice::AbsoluteErrorBound));
        }
        let allowed = [abs, by_rel].into_iter().flatten().fold(f64::INFINITY, f64::min);
        let fits = |bits: &u32| match exponent(max - min, *bits) {
            Some(exponent) => 2_f64.powi(exponent) / 2.0 <= allowed,
            None => min == max,
        };
        let bits = (0..=MAX_BITS).find(fits);
        let Some(bits) = bits else {
            let detail = format!("an error of at most {allowed} over values from {min} to {max}");
            return Err(Error::unsupported(detail).hint("allow more, or store the cells as they are"));
        };
        let binary = exponent(max - min, bits).unwrap_or(0);
        Ok(Some(Self { abs, rel, bits, has_missing: summary.nulls() > 0, least: min, binary }))
    }

    /// The value of missing cells, stored separately from packed cells.
    pub(crate) fn missing() -> Scalar {
        Scalar::from_element(f64::NAN)
    }

    /// The packing codec and those that follow. The scale is that of the valid cells: others are not among the packed values.
    pub(crate) fn codecs(&self, compression: Vec<CodecSpec>) -> Vec<CodecSpec> {
        let mut packing = CodecSpec::new("simple_packing");
        let scale = [
            ("bits", Value::Int(self.bits.into())),
            ("reference_value", Value::Float(self.least)),
            ("binary_scale_factor", Value::Int(self.binary.into())),
        ];
        packing.options.extend(scale.map(|(name, value)| (name.to_owned(), value)));
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

/// Exponent of the quantization step of a range packed into this many bits; `None` where the range needs no step or has none.
fn exponent(range: f64, bits: u32) -> Option<i32> {
    let steps = (2_f64.powi(bits.cast_signed()) - 1.0).max(1.0);
    // At most 1024: a range is finite.
    let exponent = || (range / steps).log2().ceil() as i32;
    (range > 0.0 && bits > 0).then(exponent)
}
