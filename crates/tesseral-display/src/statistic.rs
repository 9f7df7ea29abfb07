//! Statistics as JSON: those of times are times and lengths of time.

use serde_json::{Map, Value as Json, json};
use tesseral::Summarized;
use tesseral::fold::{Answer, OfTimes, Statistic};
use tesseral_core::calendar::{TimeCount, TimeScale};

use crate::json::{float, integer, scalar};

/// Text for a statistic that is not defined.
pub const NOT_DEFINED: &str = "not defined";

/// An answer; `scale` if the cells are times.
pub fn answer(scale: Option<&TimeScale>, statistic: &Statistic, answer: &Answer) -> Json {
    match (scale, statistic.of_times()) {
        (None, _) | (_, OfTimes::Number) => number(answer),
        (Some(_), OfTimes::Undefined) => Json::Null,
        (Some(scale), OfTimes::Time) => match (answer.time_count(), answer) {
            // Numbers beyond the calendar stay numbers.
            (Some(count), _) => scale.time(count).map_or_else(|| number(answer), Json::String),
            (None, Answer::Counts(_)) => number(answer),
            (None, _) => Json::Null,
        },
        (Some(scale), OfTimes::Duration) => match answer {
            Answer::Float(length) if length.is_finite() => json!(scale.duration(*length)),
            other => number(other),
        },
    }
}

/// An edge of the bins of a histogram.
pub fn edge(scale: Option<&TimeScale>, edge: f64) -> Json {
    let time = scale.and_then(|scale| scale.time(TimeCount::Float(edge)));
    time.map_or_else(|| float(edge), Json::String)
}

fn number(answer: &Answer) -> Json {
    match answer {
        Answer::None => Json::Null,
        Answer::Int(value) => integer(*value),
        Answer::Quotient(sum, count) => float(*sum as f64 / *count as f64),
        Answer::Float(value) => float(*value),
        Answer::Bool(value) => json!(value),
        Answer::Value(value) => scalar(value),
        Answer::Counts(counts) => counts.iter().map(|n| integer((*n).into())).collect(),
    }
}

/// Numbers of a summary by name, as in `tet stat --json`; `scale` if the cells are times. Statistics that times do not have are
/// listed.
pub fn summary(scale: Option<&TimeScale>, summarized: &Summarized) -> Map<String, Json> {
    let summary = &summarized.summary;
    let count = |n: u64| integer(n.into());
    let exact = match (summary.sum(), summary.valid()) {
        (Some(tesseral_core::Sum::Int(sum)), valid) if scale.is_some() && valid > 0 => {
            Answer::Quotient(sum, valid)
        }
        _ => summary.mean().into(),
    };
    let number = |statistic: &Statistic, found: Answer| answer(scale, statistic, &found);
    let numbers = [
        ("count", count(summary.count())),
        ("nulls", count(summary.nulls())),
        ("nan", count(summary.nans())),
        ("inf", summary.infinities().map_or(Json::Null, count)),
        ("min", number(&Statistic::Min, summary.min().into())),
        ("max", number(&Statistic::Max, summary.max().into())),
        ("mean", number(&Statistic::Mean, exact)),
        ("std", number(&Statistic::Std, summary.std().into())),
        ("sum", number(&Statistic::Sum, summary.sum().into())),
    ];
    let mut out: Map<String, Json> =
        numbers.map(|(name, number)| (name.to_owned(), number)).into_iter().collect();
    if scale.is_some() {
        out.insert("not_defined".to_owned(), json!(["sum"]));
    }
    out.insert("from_statistics".to_owned(), json!(summarized.from_statistics));
    out
}
