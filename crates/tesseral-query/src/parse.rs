//! Parser of query documents. Every error names the key.

mod cells;
mod execution;
mod json;
mod results;
mod values;

use serde_json::{Map, Value as Json};
use tesseral_core::{Error, Result};

use super::document::{Document, Execution, Operation, Reduction};
use cells::{filter, label_filter, selection};
use execution::{execution, write};
use results::{align, group_by, operation, window};
use values::text;

const MAX_BYTES: usize = 1 << 20;
const MAX_DEPTH: usize = 64;
const MAX_AXES: usize = 8;

type Object = Map<String, Json>;

/// Error about a key.
pub(crate) fn bad(key: &str, why: impl std::fmt::Display) -> Error {
    Error::invalid(format!("query key `{key}`: {why}"))
}

impl Document {
    /// Parses a document: JSON if it begins with `{`, otherwise TOML.
    ///
    /// # Errors
    /// `InvalidRequest` with the key; `Limit` for documents beyond 1 MiB.
    pub fn parse(text: &str) -> Result<Self> {
        if text.trim_start().starts_with('{') { Self::parse_json(text) } else { Self::parse_toml(text) }
    }

    /// Parses a JSON document.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_json(text: &str) -> Result<Self> {
        check_size(text)?;
        let json::UniqueKeyJson(value) = serde_json::from_str(text)
            .map_err(|e| Error::invalid(format!("invalid JSON in the query document: {e}")))?;
        Self::from_json(&value)
    }

    /// Parses a TOML document.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn parse_toml(text: &str) -> Result<Self> {
        check_size(text)?;
        let table: toml::Table = text.parse().map_err(|e: toml::de::Error| {
            Error::invalid(format!("invalid TOML in the query document: {}", e.message()))
                .hint("a JSON document must begin with `{`")
        })?;
        Self::from_json(&from_toml("", toml::Value::Table(table), 0)?)
    }

    /// Validates a parsed document.
    ///
    /// # Errors
    /// As [`parse`](Self::parse).
    pub fn from_json(value: &Json) -> Result<Self> {
        check_depth(value, 0)?;
        let Json::Object(object) = value else {
            return Err(Error::invalid("a query document must be an object"));
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
        toml::Value::Float(_) => return Err(bad(key, "expected a finite number")),
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

/// Parses a flat document.
fn flat(object: &Object) -> Result<Document> {
    let mut document = Document {
        dataset: String::new(),
        layout_version: None,
        selection: None,
        filter: None,
        label_filter: None,
        group_by: None,
        window: None,
        weights: None,
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
                document.layout_version = Some(version.ok_or_else(|| bad(key, "expected an integer"))?);
            }
            "selection" => document.selection = Some(selection(key, value)?),
            "filter" => document.filter = Some(filter(key, value)?),
            "label_filter" => document.label_filter = Some(label_filter(value)?),
            "group_by" => document.group_by = Some(group_by(value)?),
            "window" => document.window = Some(window(value)?),
            "weights" => document.weights = Some(text(key, value)?),
            "align" => document.align = Some(align(value)?),
            "spill" => document.spill = Some(text(key, value)?),
            "write" => document.write = Some(write(value)?),
            "execution" => document.execution = execution(value)?,
            "operation" => {
                return Err(bad(
                    key,
                    "nested operations are not supported; use a top-level reduction: \"mean\": 0",
                ));
            }
            "output" => return Err(bad(key, "unknown key; use `spill` or `write`")),
            key => {
                let reduction = Reduction::from_key(key).ok_or_else(|| unknown(key, &known_keys()))?;
                let operation = operation(reduction, value)?;
                if let Some(other) = document.operation.replace(operation) {
                    let other = other.reduction.key();
                    return Err(bad(key, format!("duplicate reduction: the document also has `{other}`")));
                }
            }
        }
    }
    if document.dataset.trim().is_empty() {
        return Err(bad("dataset", "missing array name"));
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
        "weights",
        "align",
        "pipeline",
        "spill",
        "write",
        "execution",
    ];
    others.into_iter().chain(Reduction::ALL.into_iter().map(Reduction::key)).collect()
}

fn unknown(key: &str, known: &[&str]) -> Error {
    bad(key, "unknown key").hint(format!("available: {}", known.join(", ")))
}

/// Validates combinations of keys.
fn check_together(document: &Document) -> Result<()> {
    let operation = document.operation.as_ref();
    let transform = operation.is_some_and(|op| op.reduction == Reduction::Transform);
    let matrix = operation.is_some_and(Operation::is_matrix);
    if document.write.is_some() && !transform {
        return Err(bad("write", "it requires `transform`"));
    }
    if document.spill.is_some() && document.write.is_some() {
        return Err(bad("spill", "it conflicts with `write`"));
    }
    if let (Some(_), Some(operation)) = (&document.spill, operation) {
        let key = operation.reduction.key();
        return Err(bad("spill", format!("it writes cells and conflicts with `{key}`")));
    }
    if document.group_by.is_some() {
        if document.window.is_some() {
            return Err(bad("group_by", "it conflicts with `window`"));
        }
        if operation.is_none() || transform || matrix {
            return Err(bad("group_by", "it requires a reduction other than a transform or a matrix"));
        }
    }
    let weighted = [
        Reduction::Sum,
        Reduction::Mean,
        Reduction::NanMean,
        Reduction::Var,
        Reduction::Std,
        Reduction::NanStd,
        Reduction::Median,
        Reduction::Quantile,
    ];
    if document.weights.is_some() && !operation.is_some_and(|op| weighted.contains(&op.reduction)) {
        return Err(bad(
            "weights",
            "it requires a sum, a mean, a variance, a standard deviation, a median or a quantile",
        ));
    }
    if document.window.is_some() && !operation.is_some_and(|op| op.reduction.streams()) {
        return Err(bad(
            "window",
            "it requires a reduction other than quantiles, histograms, transforms and matrices",
        ));
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
            return Err(bad("align", format!("it conflicts with `{key}`")));
        }
    }
    Ok(())
}

/// Converts a pipeline of steps to a flat document.
fn pipeline(object: &Object) -> Result<Document> {
    let mut lowered = object.clone();
    let steps = lowered.remove("pipeline");
    let Some(Json::Array(steps)) = steps else { return Err(bad("pipeline", "expected a list of steps")) };
    if steps.is_empty() || steps.len() > MAX_AXES {
        return Err(bad("pipeline", "expected 1 to 8 steps"));
    }
    let top = ["dataset", "layout_version", "label_filter", "execution"];
    if let Some(key) = lowered.keys().find(|key| !top.contains(&key.as_str())) {
        let known = Reduction::from_key(key).is_some() || known_keys().contains(&key.as_str());
        return Err(if known {
            bad(key, "it conflicts with `pipeline`")
        } else {
            unknown(key, &known_keys())
        });
    }
    let mut done = 0;
    for (number, step) in steps.iter().enumerate() {
        let at = format!("pipeline[{number}]");
        let Json::Object(step) = step else { return Err(bad(&at, "expected an object")) };
        let reduction = step.keys().find(|key| Reduction::from_key(key).is_some()).map(String::as_str);
        let (rank, allowed): (u8, Vec<&str>) = match reduction {
            Some(key) => (3, vec![key, "group_by", "window", "weights"]),
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
                None => return Err(bad(&at, "missing operation in a step")),
            },
        };
        if rank <= done {
            return Err(bad(
                &at,
                "expected the steps select, filter, reduction, spill or write in this order, each at most once",
            ));
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
