//! One dimension in the target: the selected labels, and the part of the domain.

use tesseral_core::schema::Labels;
use tesseral_core::{DType, Dimension, Error, Result, Scalar, Slice};
use tesseral_dataset::variable::plain_name;

/// A dimension of the selection: its labels, and its domain if the target supports it, else as labels.
pub(super) fn target_dimension(
    dim: &Dimension,
    slice: &Slice,
    chunk: u64,
    domains: bool,
) -> Result<Dimension> {
    let mut out = Dimension { unlimited: dim.unlimited, ..Dimension::new(plain_name(dim), slice.count()) };
    let positions = (0..slice.count()).map(|i| slice.start + i * slice.step);
    out.labels = dim.labels.as_ref().map(|labels| pick(labels, positions.clone()));
    let Some((first, last)) = &dim.domain else { return Ok(out) };
    let Some(origin) = first.as_i128() else { return Ok(out) };
    // Positions after the end of a cyclic axis have labels, but no values of the domain.
    let last = last.as_i128().and_then(|last| last.checked_sub(origin));
    if out.labels.is_some() && last.is_some_and(|last| i128::from(slice.tight_end()) > last + 1) {
        return Ok(out);
    }
    let at = |position: u64| Scalar::from_i128(first.dtype(), origin + i128::from(position));
    if domains && slice.step == 1 && slice.count() > 0 {
        out.dtype = dim.dtype;
        out.domain = at(slice.start).zip(at(slice.start + slice.count() - 1));
        out.tile = Scalar::from_i128(first.dtype(), i128::from(chunk));
        return Ok(out);
    }
    let plain =
        origin == 0 && slice.start == 0 && slice.step == 1 && !matches!(first.dtype(), DType::DateTime(_));
    if out.labels.is_none() && !plain {
        let mut bytes = Vec::new();
        for position in positions {
            match at(position) {
                Some(value) => bytes.extend_from_slice(value.bytes()),
                None => {
                    return Err(Error::unsupported(format!("the coordinates of dimension {:?}", dim.name)));
                }
            }
        }
        out.labels = Some(Labels::Numbers { dtype: first.dtype(), bytes });
    }
    Ok(out)
}

fn pick(labels: &Labels, positions: impl Iterator<Item = u64>) -> Labels {
    let index = |position: u64| usize::try_from(position).unwrap_or(usize::MAX);
    match labels {
        Labels::Text(texts) => Labels::Text(positions.filter_map(|p| texts.get(index(p)).cloned()).collect()),
        Labels::Numbers { dtype, bytes } => {
            let size = dtype.size().unwrap_or(1);
            let label = |p: u64| bytes.get(index(p).saturating_mul(size)..)?.get(..size);
            Labels::Numbers { dtype: *dtype, bytes: positions.filter_map(label).flatten().copied().collect() }
        }
    }
}
