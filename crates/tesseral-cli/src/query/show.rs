//! Query results as text.

use tesseral::query::{Answer, Document, Plan, QueryOutcome, Reduction};
use tesseral::{Container, Value};

use crate::terminal_style::TerminalStyle;
use crate::text;

/// Maximum number of results in one line, and in a table.
const IN_LINE: usize = 16;
const IN_TABLE: usize = 1000;

/// A document and its result.
pub(super) struct AnswerView<'a> {
    pub document: &'a Document,
    pub container: Option<&'a Container>,
    pub plan: Option<&'a Plan>,
    pub outcome: Option<&'a QueryOutcome>,
}

fn value(answer: &Answer) -> String {
    match answer {
        Answer::Int(value) => value.to_string(),
        Answer::Quotient(sum, count) => Value::Float(*sum as f64 / *count as f64).to_string(),
        Answer::Float(value) => Value::Float(*value).to_string(),
        Answer::Bool(value) => value.to_string(),
        Answer::Counts(counts) => {
            let counts: Vec<String> = counts.iter().map(ToString::to_string).collect();
            format!("[{}]", counts.join(","))
        }
        Answer::Value(value) => value.to_string(),
        Answer::None => "null".to_owned(),
    }
}

impl AnswerView<'_> {
    fn key(&self) -> &'static str {
        self.document.operation.as_ref().map_or("none", |op| op.reduction.key())
    }

    /// One line of `key=value`.
    pub(super) fn line(&self) -> String {
        let mut parts = vec![format!("dataset={}", text::escape(&self.document.dataset))];
        if let (Some(container), None) = (self.container, self.plan) {
            let names: Vec<&str> = container.names().take(IN_LINE).collect();
            parts.push("status=not_found".to_owned());
            parts.push(format!("available=[{}]", text::escape(&names.join(","))));
            return format!("{}\n", parts.join(" "));
        }
        parts.push("status=ok".to_owned());
        parts.push(format!("op={}", self.key()));
        if let Some(outcome) = self.outcome {
            self.answers(outcome, &mut parts);
            if let Some(elements) = outcome.elements {
                parts.push(format!("elements={elements}"));
            }
            if let Some(written) = &outcome.written {
                parts.push(format!("path={}", text::escape(&written.path.display().to_string())));
            }
            parts.push(format!("memory_strategy={}", outcome.strategy));
        } else if let Some(plan) = self.plan {
            parts.push(format!("elements={}", plan.selection().cells().unwrap_or(u64::MAX)));
        }
        format!("{}\n", parts.join(" "))
    }

    fn answers(&self, outcome: &QueryOutcome, parts: &mut Vec<String>) {
        if let Some(alignment) = &outcome.alignment {
            parts.push(format!("aligned={}", alignment["aligned"]));
        }
        for (key, values) in &outcome.statistics {
            let shown: Vec<String> = values.iter().take(IN_LINE).map(value).collect();
            parts.push(format!("{key}={}", shown.join(",")));
        }
        let counts = self.document.operation.as_ref().is_none_or(|op| op.reduction == Reduction::Count);
        match (&outcome.shape, outcome.answers.as_slice()) {
            (None, [answer]) if !counts => parts.push(format!("{}={}", self.key(), value(answer))),
            (Some(shape), answers) if !answers.is_empty() => {
                let shape: Vec<String> = shape.iter().map(ToString::to_string).collect();
                parts.push(format!("shape={}", shape.join("x")));
                let more = if answers.len() > IN_LINE { ",..." } else { "" };
                let shown: Vec<String> = answers.iter().take(IN_LINE).map(value).collect();
                parts.push(format!("{}=[{}{more}]", self.key(), shown.join(",")));
            }
            _ => {}
        }
    }

    /// The request, then one row per result.
    pub(super) fn tables(&self) -> String {
        let paint = TerminalStyle::stdout();
        let mut rows = vec![vec!["dataset".to_owned(), self.document.dataset.clone()]];
        let mut row = |key: &str, value: String| rows.push(vec![key.to_owned(), value]);
        if let Some(container) = self.container {
            row("source", container.location().to_owned());
        }
        let Some(plan) = self.plan else {
            if let Some(container) = self.container {
                row("matched", "no".to_owned());
                row("available", container.names().take(IN_LINE).collect::<Vec<_>>().join(", "));
            }
            return paint.table(&["query", ""], rows);
        };
        row("operation", self.key().to_owned());
        let shape: Vec<String> = plan.selection().shape().iter().map(ToString::to_string).collect();
        row("selected", shape.join(" x "));
        if let Some(outcome) = self.outcome {
            if let Some(elements) = outcome.elements {
                row("elements", elements.to_string());
            }
            if let Some(written) = &outcome.written {
                row("written", written.path.display().to_string());
            }
            for (key, values) in &outcome.statistics {
                row(key, values.iter().take(IN_LINE).map(value).collect::<Vec<_>>().join(", "));
            }
        }
        let mut out = paint.table(&["query", ""], rows);
        if let Some(outcome) = self.outcome.filter(|outcome| !outcome.answers.is_empty()) {
            out.push('\n');
            out.push_str(&self.results(outcome, paint));
        }
        out
    }

    fn results(&self, outcome: &QueryOutcome, paint: TerminalStyle) -> String {
        let shape = outcome.shape.clone().unwrap_or_default();
        let names: Vec<String> = (0..shape.len()).map(|d| format!(">{d}")).collect();
        let key = format!(">{}", self.key());
        let columns: Vec<&str> = names.iter().map(String::as_str).chain([key.as_str()]).collect();
        let rows = outcome.answers.iter().take(IN_TABLE).enumerate().map(|(i, answer)| {
            let mut place = vec![String::new(); shape.len()];
            let mut rest = i as u64;
            for (d, extent) in shape.iter().enumerate().rev() {
                place[d] = (rest % extent.max(&1)).to_string();
                rest /= extent.max(&1);
            }
            place.push(value(answer));
            place
        });
        let mut out = paint.table(&columns, rows);
        if outcome.answers.len() > IN_TABLE {
            out.push_str(&format!("({} more)\n", outcome.answers.len() - IN_TABLE));
        }
        out
    }
}
