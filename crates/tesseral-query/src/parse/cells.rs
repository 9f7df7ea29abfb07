//! Selection of cells: `selection`, `filter`, `label_filter`.

use serde_json::Value as Json;
use tesseral_core::Result;
use tesseral_core::condition::Op;
use tesseral_engine::fold::Number;

use super::super::document::{AxisRange, Edge, FilterClause, LabelFilter};
use super::bad;
use super::values::{axis, number, object, text, whole};

pub(super) fn selection(key: &str, value: &Json) -> Result<Vec<AxisRange>> {
    let Json::Array(values) = value else { return Err(bad(key, "expected a list with one object per axis")) };
    if values.is_empty() {
        return Err(bad(key, "expected a nonempty list with one object per axis"));
    }
    let known = ["start", "stop", "step", "start_label", "stop_label"];
    let parse_entry = |(i, value): (usize, &Json)| {
        let at = format!("{key}[{i}]");
        let object = object(&at, value, &known)?;
        let edge = |name: &str| -> Result<Option<Edge>> {
            let label = format!("{name}_label");
            match (object.get(name), object.get(&label)) {
                (Some(_), Some(_)) => {
                    Err(bad(&format!("{at}.{label}"), format!("it conflicts with `{name}`")))
                }
                (Some(value), None) => Ok(Some(Edge::Position(whole(&format!("{at}.{name}"), value)?))),
                (None, Some(value)) => Ok(Some(Edge::Label(text(&format!("{at}.{label}"), value)?))),
                (None, None) => Ok(None),
            }
        };
        let step = object.get("step").map(|value| whole(&format!("{at}.step"), value)).transpose()?;
        if step == Some(0) {
            return Err(bad(&format!("{at}.step"), "expected a value ≥ 1"));
        }
        Ok(AxisRange { start: edge("start")?, stop: edge("stop")?, step })
    };
    values.iter().enumerate().map(parse_entry).collect()
}

const COMPARISONS: [(&str, Op); 6] =
    [("eq", Op::Eq), ("ne", Op::Ne), ("lt", Op::Lt), ("le", Op::Le), ("gt", Op::Gt), ("ge", Op::Ge)];

pub(super) fn filter(key: &str, value: &Json) -> Result<FilterClause> {
    let known: Vec<&str> =
        COMPARISONS.iter().map(|(name, _)| *name).chain(["is_null", "is_not_null"]).collect();
    let object = object(key, value, &known)?;
    if object.is_empty() {
        return Err(bad(key, "expected at least one condition"));
    }
    let mut filter = FilterClause::default();
    for (name, value) in object {
        let at = format!("{key}.{name}");
        if let Some((_, op)) = COMPARISONS.iter().find(|(known, _)| known == name) {
            filter.compare.push((*op, number(&at, value)?));
            continue;
        }
        if value != &Json::Bool(true) {
            return Err(bad(&at, "expected true"));
        }
        if filter.null.replace(name == "is_null").is_some() {
            return Err(bad(&at, "`is_null` and `is_not_null` are mutually exclusive"));
        }
    }
    if filter.null == Some(true) && !filter.compare.is_empty() {
        return Err(bad(&format!("{key}.is_null"), "comparisons are never true for null cells"));
    }
    check_range(key, &filter)?;
    Ok(filter)
}

fn check_range(key: &str, filter: &FilterClause) -> Result<()> {
    let bounds = |ops: [Op; 2]| {
        let mut found = filter.compare.iter().filter(move |(op, _)| ops.contains(op));
        (found.next(), found.next())
    };
    let (low, more) = bounds([Op::Gt, Op::Ge]);
    if more.is_some() {
        return Err(bad(key, "`gt` and `ge` are mutually exclusive"));
    }
    let (high, more) = bounds([Op::Lt, Op::Le]);
    if more.is_some() {
        return Err(bad(key, "`lt` and `le` are mutually exclusive"));
    }
    if let (Some((low_op, low)), Some((high_op, high))) = (low, high) {
        let closed = (*low_op, *high_op) == (Op::Ge, Op::Le);
        let order = match (low, high) {
            (Number::Int(low), Number::Int(high)) => Some(low.cmp(high)),
            (low, high) => low.to_f64().partial_cmp(&high.to_f64()),
        };
        if order.is_none_or(|order| order.is_gt() || (order.is_eq() && !closed)) {
            return Err(bad(key, "the range is empty"));
        }
    }
    Ok(())
}

pub(super) fn label_filter(value: &Json) -> Result<LabelFilter> {
    let object = object("label_filter", value, &["axis", "eq"])?;
    let need =
        |name: &str| object.get(name).ok_or_else(|| bad(&format!("label_filter.{name}"), "missing key"));
    Ok(LabelFilter {
        axis: axis("label_filter.axis", need("axis")?)?,
        eq: text("label_filter.eq", need("eq")?)?,
    })
}
