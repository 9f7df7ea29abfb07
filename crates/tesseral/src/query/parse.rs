//! Reading query documents. Every refusal names the key.

use serde_json::{Map, Value as Json};
use tesseral_core::{Error, Result};
use tesseral_engine::fold::{Compare, Number};

use super::document::{
    AxisRange, AxisToken, Document, Edge, Execution, Filter, GroupBy, LabelFilter, Method, Operation, Pad,
    Reduction, Window, WindowMode, Write, WriteTarget,
};

const MAX_BYTES: usize = 1 << 20;
const MAX_DEPTH: usize = 64;
const MAX_TEXT: usize = 1024;
const MAX_AXIS: usize = 32;
const MAX_AXES: usize = 8;
const MAX_WINDOW: u64 = 1 << 20;
const MAX_BINS: u64 = 4096;

type Object = Map<String, Json>;

/// What is wrong with a key.
pub(super) fn bad(key: &str, why: impl std::fmt::Display) -> Error {
    Error::invalid(format!("query key `{key}`: {why}"))
}

impl Document {
    /// Reads a document: JSON where it begins with `{`, else TOML.
    ///
    /// # Errors
    /// `InvalidRequest`, naming the key; `Limit` for documents beyond 1 MiB.
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim_start().starts_with('{') { Self::parse_json(text) } else { Self::parse_toml(text) }
    }

    /// Reads a JSON document.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_json(text: &str) -> Result<Self> {
        check_size(text)?;
        let value: Json = serde_json::from_str(text)
            .map_err(|e| Error::invalid(format!("the query document is no JSON: {e}")))?;
        Self::from_json(&value)
    }

    /// Reads a TOML document.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_toml(text: &str) -> Result<Self> {
        check_size(text)?;
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            Error::invalid(format!("the query document is no TOML: {}", e.message()))
                .hint("a JSON document begins with `{`")
        })?;
        Self::from_json(&from_toml("", toml::Value::Table(table), 0)?)
    }

    /// Checks a document that was read elsewhere.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn from_json(value: &Json) -> Result<Self> {
        check_depth(value, 0)?;
        let Json::Object(object) = value else {
            return Err(Error::invalid("a query document is one object"));
        };
        if object.contains_key("pipeline") { pipeline(object) } else { flat(object) }
    }
}

fn check_size(text: &str) -> Result<()> {
    if text.len() > MAX_BYTES {
        return Err(Error::limit("a query document", text.len() as u64, MAX_BYTES as u64));
    }
    Ok(())
}

fn check_depth(value: &Json, depth: usize) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(Error::limit("nesting of a query document", depth as u64, MAX_DEPTH as u64));
    }
    match value {
        Json::Array(values) => values.iter().try_for_each(|value| check_depth(value, depth + 1)),
        Json::Object(object) => object.values().try_for_each(|value| check_depth(value, depth + 1)),
        _ => Ok(()),
    }
}

fn from_toml(key: &str, value: toml::Value, depth: usize) -> Result<Json> {
    if depth > MAX_DEPTH {
        return Err(Error::limit("nesting of a query document", depth as u64, MAX_DEPTH as u64));
    }
    Ok(match value {
        toml::Value::String(text) => Json::from(text),
        toml::Value::Integer(value) => Json::from(value),
        toml::Value::Float(value) if value.is_finite() => Json::from(value),
        toml::Value::Float(_) => return Err(bad(key, "a finite number is expected")),
        toml::Value::Boolean(value) => Json::from(value),
        toml::Value::Datetime(date) => Json::from(date.to_string()),
        toml::Value::Array(values) => {
            let values = values.into_iter().map(|value| from_toml(key, value, depth + 1));
            Json::Array(values.collect::<Result<_>>()?)
        }
        toml::Value::Table(table) => {
            let entries = table.into_iter().map(|(key, value)| {
                let value = from_toml(&key, value, depth + 1)?;
                Ok((key, value))
            });
            Json::Object(entries.collect::<Result<_>>()?)
        }
    })
}

/// A document whose keys all stand at the top.
fn flat(object: &Object) -> Result<Document> {
    let mut document = Document {
        dataset: String::new(),
        layout_version: None,
        selection: None,
        filter: None,
        label_filter: None,
        group_by: None,
        window: None,
        align: None,
        operation: None,
        spill: None,
        write: None,
        execution: Execution::default(),
    };
    for (key, value) in object {
        match key.as_str() {
            "dataset" => document.dataset = text(key, value)?,
            "layout_version" => {
                let version = value.as_u64().and_then(|v| u32::try_from(v).ok());
                document.layout_version =
                    Some(version.ok_or_else(|| bad(key, "a whole number is expected"))?);
            }
            "selection" => document.selection = Some(selection(key, value)?),
            "filter" => document.filter = Some(filter(key, value)?),
            "label_filter" => document.label_filter = Some(label_filter(value)?),
            "group_by" => document.group_by = Some(group_by(value)?),
            "window" => document.window = Some(window(value)?),
            "align" => document.align = Some(align(value)?),
            "spill" => document.spill = Some(text(key, value)?),
            "write" => document.write = Some(write(value)?),
            "execution" => document.execution = execution(value)?,
            "operation" => {
                return Err(bad(key, "operations are not nested; put the reduction at the top: \"mean\": 0"));
            }
            "output" => return Err(bad(key, "there is no such object; use `spill` or `write`")),
            key => {
                let reduction = Reduction::of(key).ok_or_else(|| unknown(key, &known_keys()))?;
                let operation = operation(reduction, value)?;
                if let Some(other) = document.operation.replace(operation) {
                    let other = other.reduction.key();
                    return Err(bad(
                        key,
                        format!("a document has one reduction, and this has `{other}` too"),
                    ));
                }
            }
        }
    }
    if document.dataset.trim().is_empty() {
        return Err(bad("dataset", "the name of an array is required"));
    }
    check_together(&document)?;
    Ok(document)
}

fn known_keys() -> Vec<&'static str> {
    let others = [
        "dataset",
        "layout_version",
        "selection",
        "filter",
        "label_filter",
        "group_by",
        "window",
        "align",
        "pipeline",
        "spill",
        "write",
        "execution",
    ];
    others.into_iter().chain(Reduction::ALL.into_iter().map(Reduction::key)).collect()
}

fn unknown(key: &str, known: &[&str]) -> Error {
    bad(key, "there is no such key").hint(format!("keys are {}", known.join(", ")))
}

/// What keys say of one another.
fn check_together(document: &Document) -> Result<()> {
    let operation = document.operation.as_ref();
    let transform = operation.is_some_and(|op| op.reduction == Reduction::Transform);
    let matrix =
        operation.is_some_and(|op| matches!(op.reduction, Reduction::Covariance | Reduction::Correlation));
    if document.write.is_some() && !transform {
        return Err(bad("write", "it goes with `transform`"));
    }
    if document.spill.is_some() && document.write.is_some() {
        return Err(bad("spill", "it does not go with `write`"));
    }
    if let (Some(_), Some(operation)) = (&document.spill, operation) {
        let key = operation.reduction.key();
        return Err(bad("spill", format!("it writes cells, and `{key}` leaves none to write")));
    }
    if document.group_by.is_some() {
        if document.window.is_some() {
            return Err(bad("group_by", "it does not go with `window`"));
        }
        if operation.is_none() || transform || matrix {
            return Err(bad("group_by", "it goes with one reduction that is no transform and no matrix"));
        }
    }
    if document.window.is_some() && !operation.is_some_and(|op| op.reduction.streams()) {
        return Err(bad("window", "it goes with one reduction that needs no sorting, no bins, no matrix"));
    }
    if matrix && operation.is_some_and(|op| op.axes.len() != 1) {
        return Err(bad(operation.map_or("", |op| op.reduction.key()), "exactly one axis of observations"));
    }
    if document.align.is_some() {
        let other = [
            ("filter", document.filter.is_some()),
            ("label_filter", document.label_filter.is_some()),
            ("group_by", document.group_by.is_some()),
            ("window", document.window.is_some()),
            ("spill", document.spill.is_some()),
            (operation.map_or("", |op| op.reduction.key()), operation.is_some()),
        ];
        if let Some((key, _)) = other.into_iter().find(|(_, there)| *there) {
            return Err(bad("align", format!("it does not go with `{key}`")));
        }
    }
    Ok(())
}

/// Steps, lowered to a flat document.
fn pipeline(object: &Object) -> Result<Document> {
    let mut lowered = object.clone();
    let steps = lowered.remove("pipeline");
    let Some(Json::Array(steps)) = steps else { return Err(bad("pipeline", "a list of steps is expected")) };
    if steps.is_empty() || steps.len() > MAX_AXES {
        return Err(bad("pipeline", "1 to 8 steps"));
    }
    let top = ["dataset", "layout_version", "label_filter", "execution"];
    if let Some(key) = lowered.keys().find(|key| !top.contains(&key.as_str())) {
        let known = Reduction::of(key).is_some() || known_keys().contains(&key.as_str());
        return Err(if known {
            bad(key, "it does not go with `pipeline`")
        } else {
            unknown(key, &known_keys())
        });
    }
    let mut done = 0;
    for (number, step) in steps.iter().enumerate() {
        let at = format!("pipeline[{number}]");
        let Json::Object(step) = step else { return Err(bad(&at, "a step is an object")) };
        let reduction = step.keys().find(|key| Reduction::of(key).is_some()).map(String::as_str);
        let (rank, allowed): (u8, Vec<&str>) = match reduction {
            Some(key) => (3, vec![key, "group_by", "window"]),
            None => match step.keys().next().map(String::as_str) {
                Some("select") => (1, vec!["select"]),
                Some("filter") => (2, vec!["filter"]),
                Some("spill") => (4, vec!["spill"]),
                Some("write") => (4, vec!["write"]),
                Some(other) => {
                    return Err(unknown(
                        &format!("{at}.{other}"),
                        &["select", "filter", "a reduction", "spill", "write"],
                    ));
                }
                None => return Err(bad(&at, "a step says what to do")),
            },
        };
        if rank <= done {
            return Err(bad(&at, "steps come as select, filter, reduction, spill or write, each once"));
        }
        done = rank;
        for (key, value) in step {
            if !allowed.contains(&key.as_str()) {
                return Err(unknown(&format!("{at}.{key}"), &allowed));
            }
            let key = if key == "select" { "selection" } else { key };
            lowered.insert(key.to_owned(), value.clone());
        }
    }
    flat(&lowered)
}

fn object<'a>(key: &str, value: &'a Json, known: &[&str]) -> Result<&'a Object> {
    let Json::Object(object) = value else { return Err(bad(key, "an object is expected")) };
    match object.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(unknown(&format!("{key}.{name}"), known)),
        None => Ok(object),
    }
}

fn text(key: &str, value: &Json) -> Result<String> {
    let text = value.as_str().ok_or_else(|| bad(key, "text is expected"))?;
    if text.trim().is_empty() {
        return Err(bad(key, "it is empty"));
    }
    if text.len() > MAX_TEXT {
        return Err(bad(key, format!("{} bytes, {MAX_TEXT} are allowed", text.len())));
    }
    Ok(text.to_owned())
}

fn whole(key: &str, value: &Json) -> Result<u64> {
    value.as_u64().ok_or_else(|| bad(key, "a whole number from 0 is expected"))
}

fn number(key: &str, value: &Json) -> Result<Number> {
    let int = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    let float = || value.as_f64().filter(|value| value.is_finite()).map(Number::Float);
    int.map(Number::Int).or_else(float).ok_or_else(|| bad(key, "a finite number is expected"))
}

fn axis(key: &str, value: &Json) -> Result<AxisToken> {
    if let Some(text) = value.as_str() {
        if text.is_empty() || text.len() > MAX_AXIS {
            return Err(bad(key, format!("the name of an axis has 1 to {MAX_AXIS} bytes")));
        }
        if text.bytes().all(|b| b.is_ascii_digit()) {
            return text
                .parse()
                .map(AxisToken::Number)
                .map_err(|_| bad(key, format!("{text} is no number of an axis")));
        }
        return Ok(AxisToken::Name(text.to_owned()));
    }
    let number = value.as_u64().and_then(|n| usize::try_from(n).ok());
    number.map(AxisToken::Number).ok_or_else(|| bad(key, "an axis is a number from 0, or a name"))
}

fn axes(key: &str, value: &Json) -> Result<Vec<AxisToken>> {
    let Json::Array(values) = value else { return Ok(vec![axis(key, value)?]) };
    if values.len() > MAX_AXES {
        return Err(bad(key, format!("at most {MAX_AXES} axes")));
    }
    values.iter().map(|value| axis(key, value)).collect()
}

fn selection(key: &str, value: &Json) -> Result<Vec<AxisRange>> {
    let Json::Array(values) = value else { return Err(bad(key, "a list with one object per axis")) };
    if values.is_empty() {
        return Err(bad(key, "a list with one object per axis, and it is empty"));
    }
    let known = ["start", "stop", "step", "start_label", "stop_label"];
    let one = |(i, value): (usize, &Json)| {
        let at = format!("{key}[{i}]");
        let object = object(&at, value, &known)?;
        let edge = |name: &str| -> Result<Option<Edge>> {
            let label = format!("{name}_label");
            match (object.get(name), object.get(&label)) {
                (Some(_), Some(_)) => Err(bad(&format!("{at}.{label}"), format!("`{name}` is given too"))),
                (Some(value), None) => Ok(Some(Edge::Position(whole(&format!("{at}.{name}"), value)?))),
                (None, Some(value)) => Ok(Some(Edge::Label(text(&format!("{at}.{label}"), value)?))),
                (None, None) => Ok(None),
            }
        };
        let step = object.get("step").map(|value| whole(&format!("{at}.step"), value)).transpose()?;
        if step == Some(0) {
            return Err(bad(&format!("{at}.step"), "at least 1"));
        }
        Ok(AxisRange { start: edge("start")?, stop: edge("stop")?, step })
    };
    values.iter().enumerate().map(one).collect()
}

const COMPARISONS: [(&str, Compare); 6] = [
    ("eq", Compare::Eq),
    ("ne", Compare::Ne),
    ("lt", Compare::Lt),
    ("le", Compare::Le),
    ("gt", Compare::Gt),
    ("ge", Compare::Ge),
];

fn filter(key: &str, value: &Json) -> Result<Filter> {
    let known: Vec<&str> =
        COMPARISONS.iter().map(|(name, _)| *name).chain(["is_null", "is_not_null"]).collect();
    let object = object(key, value, &known)?;
    if object.is_empty() {
        return Err(bad(key, "at least one condition"));
    }
    let mut filter = Filter::default();
    for (name, value) in object {
        let at = format!("{key}.{name}");
        if let Some((_, op)) = COMPARISONS.iter().find(|(known, _)| known == name) {
            filter.compare.push((*op, number(&at, value)?));
            continue;
        }
        if value != &Json::Bool(true) {
            return Err(bad(&at, "it is true or absent"));
        }
        if filter.null.replace(name == "is_null").is_some() {
            return Err(bad(&at, "`is_null` and `is_not_null` exclude each other"));
        }
    }
    if filter.null == Some(true) && !filter.compare.is_empty() {
        return Err(bad(&format!("{key}.is_null"), "a null cell meets no comparison"));
    }
    check_range(key, &filter)?;
    Ok(filter)
}

fn check_range(key: &str, filter: &Filter) -> Result<()> {
    let bounds = |ops: [Compare; 2]| {
        let mut found = filter.compare.iter().filter(move |(op, _)| ops.contains(op));
        (found.next(), found.next())
    };
    let (low, more) = bounds([Compare::Gt, Compare::Ge]);
    if more.is_some() {
        return Err(bad(key, "at most one of `gt` and `ge`"));
    }
    let (high, more) = bounds([Compare::Lt, Compare::Le]);
    if more.is_some() {
        return Err(bad(key, "at most one of `lt` and `le`"));
    }
    if let (Some((low_op, low)), Some((high_op, high))) = (low, high) {
        let closed = (*low_op, *high_op) == (Compare::Ge, Compare::Le);
        let order = match (low, high) {
            (Number::Int(low), Number::Int(high)) => Some(low.cmp(high)),
            (low, high) => low.to_f64().partial_cmp(&high.to_f64()),
        };
        if order.is_none_or(|order| order.is_gt() || (order.is_eq() && !closed)) {
            return Err(bad(key, "no number lies in that range"));
        }
    }
    Ok(())
}

fn label_filter(value: &Json) -> Result<LabelFilter> {
    let object = object("label_filter", value, &["axis", "eq"])?;
    let need =
        |name: &str| object.get(name).ok_or_else(|| bad(&format!("label_filter.{name}"), "it is required"));
    Ok(LabelFilter {
        axis: axis("label_filter.axis", need("axis")?)?,
        eq: text("label_filter.eq", need("eq")?)?,
    })
}

fn group_by(value: &Json) -> Result<GroupBy> {
    let (list, labels) = match value {
        Json::Object(_) => {
            let object = object("group_by", value, &["by", "axes"])?;
            if object.get("by").and_then(Json::as_str) != Some("labels") {
                return Err(bad("group_by.by", "it is \"labels\""));
            }
            let axes = object.get("axes");
            (axes.ok_or_else(|| bad("group_by.axes", "a list of axes is required"))?, true)
        }
        _ => (value, false),
    };
    let axes = axes(if labels { "group_by.axes" } else { "group_by" }, list)?;
    if axes.is_empty() {
        return Err(bad("group_by", "at least one axis"));
    }
    Ok(GroupBy { axes, labels })
}

fn window(value: &Json) -> Result<Window> {
    let known = ["axis", "size", "mode", "pad", "step", "align", "min_count"];
    let object = object("window", value, &known)?;
    let need = |name: &str| object.get(name).ok_or_else(|| bad(&format!("window.{name}"), "it is required"));
    let one_of = |name: &str, words: &[&'static str]| -> Result<Option<&'static str>> {
        let Some(value) = object.get(name) else { return Ok(None) };
        // Padding with zeros may be written as the number.
        let word = if value.as_u64() == Some(0) { Some("0") } else { value.as_str() };
        let found = word.and_then(|word| words.iter().find(|known| **known == word));
        found
            .map(|word| Some(*word))
            .ok_or_else(|| bad(&format!("window.{name}"), format!("one of {}", words.join(", "))))
    };
    let size = whole("window.size", need("size")?)?;
    if !(1..=MAX_WINDOW).contains(&size) {
        return Err(bad("window.size", format!("1 to {MAX_WINDOW}")));
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
        return Err(bad("window.step", "bins follow one another without a step"));
    }
    if step == Some(0) {
        return Err(bad("window.step", "at least 1"));
    }
    if mode == WindowMode::Rolling && align_end && pad == Pad::None {
        return Err(bad("window.align", "rolling windows that reach past the end need `pad`"));
    }
    let min_count = object.get("min_count").map(|value| whole("window.min_count", value)).transpose()?;
    Ok(Window {
        axis: axis("window.axis", need("axis")?)?,
        size,
        mode,
        pad,
        step: step.unwrap_or(if mode == WindowMode::Bins { size } else { 1 }),
        align_end,
        min_count: min_count.unwrap_or(1),
    })
}

fn align(value: &Json) -> Result<(String, Vec<AxisToken>)> {
    let object = object("align", value, &["with", "axes"])?;
    let need = |name: &str| object.get(name).ok_or_else(|| bad(&format!("align.{name}"), "it is required"));
    let axes = axes("align.axes", need("axes")?)?;
    if axes.is_empty() {
        return Err(bad("align.axes", "at least one axis"));
    }
    Ok((text("align.with", need("with")?)?, axes))
}

fn write(value: &Json) -> Result<Write> {
    let target_of = |value: &Json| match value.as_str() {
        Some("switch") => Ok(WriteTarget::Switch),
        Some("ram") => Ok(WriteTarget::Ram),
        Some("spill") => Ok(WriteTarget::Spill),
        Some("sidecar") => Ok(WriteTarget::Sidecar),
        _ => Err(bad("write.target", "one of switch, ram, spill, sidecar")),
    };
    if value.is_string() {
        return Ok(Write { target: target_of(value)?, path: None, timestamp: true });
    }
    let object = object("write", value, &["target", "path", "timestamp"])?;
    let target = object.get("target").map(target_of).transpose()?.unwrap_or_default();
    let path = object.get("path").map(|value| text("write.path", value)).transpose()?;
    if path.is_some() && !matches!(target, WriteTarget::Spill | WriteTarget::Sidecar) {
        return Err(bad("write.path", "it goes with the targets spill and sidecar"));
    }
    let timestamp = match object.get("timestamp") {
        None => true,
        Some(_) if target != WriteTarget::Sidecar => {
            return Err(bad("write.timestamp", "it goes with the target sidecar"));
        }
        Some(value) => value.as_bool().ok_or_else(|| bad("write.timestamp", "true or false"))?,
    };
    Ok(Write { target, path, timestamp })
}

fn execution(value: &Json) -> Result<Execution> {
    let known = [
        "memory_budget_bytes",
        "memory_budget_percent",
        "memory_budget_percent_bps",
        "fold_parallel",
        "device",
    ];
    let object = object("execution", value, &known)?;
    let mut execution = Execution::default();
    for (name, value) in object {
        let key = format!("execution.{name}");
        match name.as_str() {
            "memory_budget_bytes" => execution.memory_budget_bytes = Some(whole(&key, value)?),
            "memory_budget_percent" | "memory_budget_percent_bps" => {
                let scale = if name == "memory_budget_percent" { 100.0 } else { 1.0 };
                let points = value.as_f64().map(|value| (value * scale).round());
                let points = points.filter(|points| (0.0..=10_000.0).contains(points));
                let points = points.ok_or_else(|| bad(&key, "a part of the memory, 100 % at most"))?;
                // In range, as just checked.
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                if execution.memory_budget_bps.replace(points as u16).is_some() {
                    return Err(bad(&key, "the part of the memory is given twice"));
                }
            }
            "fold_parallel" => {
                execution.fold_parallel = Some(value.as_bool().ok_or_else(|| bad(&key, "true or false"))?);
            }
            _ => execution.device = Some(text(&key, value)?),
        }
    }
    Ok(execution)
}

/// What a reduction is given.
fn operation(reduction: Reduction, value: &Json) -> Result<Operation> {
    let key = reduction.key();
    let mut operation = Operation {
        reduction,
        axes: Vec::new(),
        q: 0.5,
        sketch: None,
        bins: 0,
        range: None,
        fill: None,
        method: None,
    };
    let own: &[&str] = match reduction {
        Reduction::Quantile => &["q", "sketch"],
        Reduction::Histogram => &["bins", "min", "max"],
        Reduction::NullCount => &["fill"],
        Reduction::Transform => &["method"],
        _ => &[],
    };
    let needs = matches!(reduction, Reduction::Quantile | Reduction::Histogram | Reduction::Transform);
    let Json::Object(_) = value else {
        if needs {
            return Err(bad(key, format!("an object with `{}` is expected", own[0])));
        }
        operation.axes = axes(key, value)?;
        return Ok(operation);
    };
    let known: Vec<&str> = own.iter().copied().chain(["axis", "axes"]).collect();
    let object = object(key, value, &known)?;
    if object.contains_key("axis") && object.contains_key("axes") {
        return Err(bad(&format!("{key}.axes"), "`axis` is given too"));
    }
    if let Some((name, value)) = object.iter().find(|(name, _)| name.starts_with("ax")) {
        operation.axes = axes(&format!("{key}.{name}"), value)?;
    } else if own.is_empty() {
        return Err(bad(key, "`axis` or `axes` is expected"));
    }
    let need = |name: &str| object.get(name).ok_or_else(|| bad(&format!("{key}.{name}"), "it is required"));
    match reduction {
        Reduction::Quantile => {
            let q = need("q")?.as_f64().filter(|q| (0.0..=1.0).contains(q));
            operation.q = q.ok_or_else(|| bad("quantile.q", "0 to 1"))?;
            operation.sketch = object.get("sketch").map(sketch).transpose()?.flatten();
        }
        Reduction::Histogram => {
            let bins = need("bins")?.as_u64().filter(|bins| (1..=MAX_BINS).contains(bins));
            let bins = bins.and_then(|bins| u32::try_from(bins).ok());
            operation.bins = bins.ok_or_else(|| bad("histogram.bins", format!("1 to {MAX_BINS}")))?;
            operation.range = match (object.get("min"), object.get("max")) {
                (None, None) => None,
                (Some(min), Some(max)) => {
                    let range = (number("histogram.min", min)?, number("histogram.max", max)?);
                    if range.0.to_f64() >= range.1.to_f64() {
                        return Err(bad("histogram.max", "it lies above `min`"));
                    }
                    Some(range)
                }
                (Some(_), None) => return Err(bad("histogram.max", "`min` is given without it")),
                (None, Some(_)) => return Err(bad("histogram.min", "`max` is given without it")),
            };
        }
        Reduction::NullCount => {
            operation.fill = object.get("fill").map(|fill| number("null_count.fill", fill)).transpose()?;
        }
        Reduction::Transform => {
            let name = need("method")?.as_str().unwrap_or_default();
            let found = Method::ALL.into_iter().find(|(known, _)| *known == name);
            let names = || Method::ALL.map(|(name, _)| name).join(", ");
            let method = found.ok_or_else(|| bad("transform.method", format!("one of {}", names())))?;
            operation.method = Some(method.1);
        }
        _ => {}
    }
    Ok(operation)
}

/// `true`, or by how much of itself the quantile may be off.
fn sketch(value: &Json) -> Result<Option<f64>> {
    match value {
        Json::Bool(wanted) => Ok(wanted.then_some(0.01)),
        value => {
            let accuracy = value.as_f64().filter(|a| (1e-6..=0.5).contains(a));
            accuracy.map(Some).ok_or_else(|| bad("quantile.sketch", "true, or a fraction from 1e-6 to 0.5"))
        }
    }
}
