//! Results: reductions, `group_by`, `window`, `align`.

use serde_json::Value as Json;
use tesseral_core::Result;

use super::super::document::{
    AxisToken, GroupBy, GroupedBy, Method, Operation, Pad, Reduction, WindowClause, WindowMode,
};
use super::bad;
use super::values::{axes, axis, number, object, text, whole};

const MAX_WINDOW: u64 = 1 << 20;
const MAX_BINS: u64 = 4096;

pub(super) fn group_by(value: &Json) -> Result<GroupBy> {
    let (list, by) = match value {
        Json::Object(_) => {
            let object = object("group_by", value, &["by", "axes"])?;
            let by = match object.get("by").and_then(Json::as_str) {
                Some("labels") => Some(GroupedBy::Label),
                Some(part) => part.parse().ok().map(GroupedBy::Time),
                None => None,
            };
            let expected = "expected \"labels\", \"year\", \"month\", \"season\", \"day\", \"dayofyear\", \"hour\" or \"date\"";
            let by = by.ok_or_else(|| bad("group_by.by", expected))?;
            let axes = object.get("axes");
            (axes.ok_or_else(|| bad("group_by.axes", "expected a list of axes"))?, by)
        }
        _ => (value, GroupedBy::Position),
    };
    let axes = axes(if by == GroupedBy::Position { "group_by" } else { "group_by.axes" }, list)?;
    if axes.is_empty() {
        return Err(bad("group_by", "expected at least one axis"));
    }
    Ok(GroupBy { axes, by })
}

pub(super) fn window(value: &Json) -> Result<WindowClause> {
    let known = ["axis", "size", "mode", "pad", "step", "align", "min_count"];
    let object = object("window", value, &known)?;
    let need = |name: &str| object.get(name).ok_or_else(|| bad(&format!("window.{name}"), "missing key"));
    let one_of = |name: &str, words: &[&'static str]| -> Result<Option<&'static str>> {
        let Some(value) = object.get(name) else { return Ok(None) };
        // Zero padding can be written as a number.
        let word = if value.as_u64() == Some(0) { Some("0") } else { value.as_str() };
        let found = word.and_then(|word| words.iter().find(|known| **known == word));
        found
            .map(|word| Some(*word))
            .ok_or_else(|| bad(&format!("window.{name}"), format!("expected one of {}", words.join(", "))))
    };
    let size = whole("window.size", need("size")?)?;
    if !(1..=MAX_WINDOW).contains(&size) {
        return Err(bad("window.size", format!("expected 1 to {MAX_WINDOW}")));
    }
    need("mode")?;
    let mode = match one_of("mode", &["bins", "rolling"])? {
        Some("bins") => WindowMode::Bins,
        _ => WindowMode::Rolling,
    };
    let pad = match one_of("pad", &["none", "0", "nan", "fill"])? {
        Some("0") => Pad::Zero,
        Some("nan") => Pad::Nan,
        Some("fill") => Pad::Fill,
        _ => Pad::None,
    };
    let align_end = one_of("align", &["start", "end"])? == Some("end");
    let step = object.get("step").map(|value| whole("window.step", value)).transpose()?;
    if step.is_some() && mode == WindowMode::Bins {
        return Err(bad("window.step", "bins cannot have a step"));
    }
    if step == Some(0) {
        return Err(bad("window.step", "expected a value ≥ 1"));
    }
    if mode == WindowMode::Rolling && align_end && pad == Pad::None {
        return Err(bad("window.align", "rolling windows past the end require `pad`"));
    }
    let min_count = object.get("min_count").map(|value| whole("window.min_count", value)).transpose()?;
    Ok(WindowClause {
        axis: axis("window.axis", need("axis")?)?,
        size,
        mode,
        pad,
        step: step.unwrap_or(if mode == WindowMode::Bins { size } else { 1 }),
        align_end,
        min_count: min_count.unwrap_or(1),
    })
}

pub(super) fn align(value: &Json) -> Result<(String, Vec<AxisToken>)> {
    let object = object("align", value, &["with", "axes"])?;
    let need = |name: &str| object.get(name).ok_or_else(|| bad(&format!("align.{name}"), "missing key"));
    let axes = axes("align.axes", need("axes")?)?;
    if axes.is_empty() {
        return Err(bad("align.axes", "expected at least one axis"));
    }
    Ok((text("align.with", need("with")?)?, axes))
}

/// Arguments of a reduction.
pub(super) fn operation(reduction: Reduction, value: &Json) -> Result<Operation> {
    let key = reduction.key();
    let mut operation = Operation {
        reduction,
        axes: Vec::new(),
        q: 0.5,
        sketch: None,
        bins: 0,
        range: None,
        fill: None,
        with: None,
        method: None,
    };
    let own: &[&str] = match reduction {
        Reduction::Quantile => &["q", "sketch"],
        Reduction::Histogram => &["bins", "min", "max"],
        Reduction::NullCount => &["fill"],
        Reduction::Transform => &["method"],
        Reduction::Covariance | Reduction::Correlation => &["with"],
        _ => &[],
    };
    let needs = matches!(reduction, Reduction::Quantile | Reduction::Histogram | Reduction::Transform);
    let Json::Object(_) = value else {
        if needs {
            return Err(bad(key, format!("expected an object with `{}`", own[0])));
        }
        operation.axes = axes(key, value)?;
        return Ok(operation);
    };
    let known: Vec<&str> = own.iter().copied().chain(["axis", "axes"]).collect();
    let object = object(key, value, &known)?;
    if object.contains_key("axis") && object.contains_key("axes") {
        return Err(bad(&format!("{key}.axes"), "it conflicts with `axis`"));
    }
    if let Some((name, value)) = object.iter().find(|(name, _)| name.starts_with("ax")) {
        operation.axes = axes(&format!("{key}.{name}"), value)?;
    } else if own.is_empty() || own == ["with"] {
        return Err(bad(key, "expected `axis` or `axes`"));
    }
    let need = |name: &str| object.get(name).ok_or_else(|| bad(&format!("{key}.{name}"), "missing key"));
    match reduction {
        Reduction::Quantile => {
            let q = need("q")?.as_f64().filter(|q| (0.0..=1.0).contains(q));
            operation.q = q.ok_or_else(|| bad("quantile.q", "expected a number from 0 to 1"))?;
            operation.sketch = object.get("sketch").map(sketch).transpose()?.flatten();
        }
        Reduction::Histogram => {
            let bins = need("bins")?.as_u64().filter(|bins| (1..=MAX_BINS).contains(bins));
            let bins = bins.and_then(|bins| u32::try_from(bins).ok());
            operation.bins =
                bins.ok_or_else(|| bad("histogram.bins", format!("expected 1 to {MAX_BINS}")))?;
            operation.range = match (object.get("min"), object.get("max")) {
                (None, None) => None,
                (Some(min), Some(max)) => {
                    let range = (number("histogram.min", min)?, number("histogram.max", max)?);
                    if range.0.to_f64() >= range.1.to_f64() {
                        return Err(bad("histogram.max", "`min` must be less than `max`"));
                    }
                    Some(range)
                }
                (Some(_), None) => return Err(bad("histogram.max", "`min` requires `max`")),
                (None, Some(_)) => return Err(bad("histogram.min", "`max` requires `min`")),
            };
        }
        Reduction::NullCount => {
            operation.fill = object.get("fill").map(|fill| number("null_count.fill", fill)).transpose()?;
        }
        Reduction::Covariance | Reduction::Correlation => {
            operation.with = object.get("with").map(|with| text(&format!("{key}.with"), with)).transpose()?;
        }
        Reduction::Transform => {
            let name = need("method")?.as_str().unwrap_or_default();
            let found = Method::ALL.into_iter().find(|(known, _)| *known == name);
            let names = || Method::ALL.map(|(name, _)| name).join(", ");
            let method =
                found.ok_or_else(|| bad("transform.method", format!("expected one of {}", names())))?;
            operation.method = Some(method.1);
        }
        _ => {}
    }
    Ok(operation)
}

/// Parses `true`, or the relative error of the quantile.
fn sketch(value: &Json) -> Result<Option<f64>> {
    match value {
        Json::Bool(wanted) => Ok(wanted.then_some(0.01)),
        value => {
            let accuracy = value.as_f64().filter(|a| (1e-6..=0.5).contains(a));
            accuracy
                .map(Some)
                .ok_or_else(|| bad("quantile.sketch", "expected true or a number from 1e-6 to 0.5"))
        }
    }
}
