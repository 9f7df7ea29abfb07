//! Common values: objects, text, numbers, axes.

use serde_json::Value as Json;
use tesseral_core::Result;
use tesseral_engine::fold::Number;

use super::super::document::AxisToken;
use super::{MAX_AXES, Object, bad, unknown};

const MAX_TEXT: usize = 1024;
const MAX_AXIS: usize = 32;

pub(super) fn object<'a>(key: &str, value: &'a Json, known: &[&str]) -> Result<&'a Object> {
    let Json::Object(object) = value else { return Err(bad(key, "expected an object")) };
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(unknown(&format!("{key}.{name}"), known)),
        None => Ok(object),
    }
}

pub(super) fn text(key: &str, value: &Json) -> Result<String> {
    let text = value.as_str().ok_or_else(|| bad(key, "expected text"))?;
    if text.trim().is_empty() {
        return Err(bad(key, "empty text"));
    }
    if text.len() > MAX_TEXT {
        return Err(bad(key, format!("text of {} bytes, the limit is {MAX_TEXT}", text.len())));
    }
    Ok(text.to_owned())
}

pub(super) fn whole(key: &str, value: &Json) -> Result<u64> {
    value.as_u64().ok_or_else(|| bad(key, "expected an integer ≥ 0"))
}

pub(super) fn number(key: &str, value: &Json) -> Result<Number> {
    let int = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    let float = || value.as_f64().filter(|value| value.is_finite()).map(Number::Float);
    int.map(Number::Int).or_else(float).ok_or_else(|| bad(key, "expected a finite number"))
}

pub(super) fn axis(key: &str, value: &Json) -> Result<AxisToken> {
    if let Some(text) = value.as_str() {
        if text.is_empty() || text.len() > MAX_AXIS {
            return Err(bad(key, format!("expected an axis name of 1 to {MAX_AXIS} bytes")));
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return text
                .parse()
                .map(AxisToken::Number)
                .map_err(|_| bad(key, format!("invalid axis index {text}")));
        }
        return Ok(AxisToken::Name(text.to_owned()));
    }
    let number = value.as_u64().and_then(|n| usize::try_from(n).ok());
    number.map(AxisToken::Number).ok_or_else(|| bad(key, "expected an axis index ≥ 0 or a name"))
}

pub(super) fn axes(key: &str, value: &Json) -> Result<Vec<AxisToken>> {
    let Json::Array(values) = value else { return Ok(vec![axis(key, value)?]) };
    if values.len() > MAX_AXES {
        return Err(bad(key, format!("expected at most {MAX_AXES} axes")));
    }
    values.iter().map(|value| axis(key, value)).collect()
}
