//! `tet stat`: minimum, maximum, mean and the rest, from statistics where they are exact.

use clap::Args;
use serde_json::{Map, Value as Json, json};
use tesseral::core::Sum;
use tesseral::engine::{self, Summarized};
use tesseral::{Selection, Slice, Wanted};

use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::paint::Paint;
use crate::progress::Meter;
use crate::subject::{Subject, Target};
use crate::{json, output};

/// Arguments of `tet stat`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    subject: Subject,
    /// Gives one row for each position of a dimension
    #[arg(long, value_name = "DIM")]
    by: Option<String>,
    /// Leaves out the standard deviation, so that stored statistics can answer without reading cells
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(context: &Context, arguments: &Arguments) -> Outcome {
    let meter = Meter::new(true);
    let container = context.open(&arguments.subject.source, &meter)?;
    let wanted = if arguments.quick { Wanted::RANGE | Wanted::SUM | Wanted::INFINITIES } else { Wanted::ALL };
    if let Some(dim) = &arguments.by {
        let target = arguments.subject.resolve(&container)?;
        let rows = rows_by(context, &target, dim, wanted)?;
        meter.finish();
        return report_by(context, &target, dim, &rows);
    }
    let targets = arguments.subject.resolve_all(&container)?;
    let mut rows = Vec::with_capacity(targets.len());
    for target in &targets {
        rows.push(summarize(target, &target.selection, wanted)?);
    }
    meter.finish();
    report(context, &targets, &rows)
}

fn summarize(target: &Target, selection: &Selection, wanted: Wanted) -> Outcome<Summarized> {
    let array = &target.array;
    Ok(engine::summarize(array.handle(), &array.request(selection), wanted, array.options())?)
}

/// One position of the dimension and what is known of it.
struct Row {
    position: u64,
    coordinate: String,
    summarized: Summarized,
}

fn rows_by(context: &Context, target: &Target, dim: &str, wanted: Wanted) -> Outcome<Vec<Row>> {
    let schema = target.array.schema();
    let dim = schema.dim(dim)?;
    let slice = target.selection.slices()[dim];
    let bounds: Vec<u64> = target.selection.slices().iter().map(|s| s.end).collect();
    let mut rows = Vec::new();
    for i in 0..slice.count() {
        context.check()?;
        let position = slice.start + i * slice.step;
        let mut slices = target.selection.slices().to_vec();
        slices[dim] = Slice::new(position, position + 1);
        let selection = Selection::new(slices, &bounds)?;
        let summarized = summarize(target, &selection, wanted)?;
        let coordinate = crate::subject::coordinate(&schema.dims[dim], position);
        rows.push(Row { position, coordinate, summarized });
    }
    Ok(rows)
}

const NUMBERS: [&str; 9] = ["count", "nulls", "nan", "inf", "min", "max", "mean", "std", "sum"];

/// The numbers of a summary, in the order of [`NUMBERS`].
fn numbers(summarized: &Summarized) -> [Json; 9] {
    let summary = &summarized.summary;
    let count = |n: u64| json::integer(n.into());
    let float = |v: Option<f64>| v.map_or(Json::Null, json::float);
    [
        count(summary.count()),
        count(summary.nulls()),
        count(summary.nans()),
        summary.infinities().map_or(Json::Null, count),
        summary.min().as_ref().map_or(Json::Null, json::scalar),
        summary.max().as_ref().map_or(Json::Null, json::scalar),
        float(summary.mean()),
        float(summary.std()),
        summary.sum().map_or(Json::Null, json::sum),
    ]
}

fn object(summarized: &Summarized) -> Map<String, Json> {
    let named = NUMBERS.iter().map(|name| (*name).to_owned()).zip(numbers(summarized));
    let source = ("from_statistics".to_owned(), json!(summarized.from_statistics));
    named.chain([source]).collect()
}

fn head(target: &Target) -> Map<String, Json> {
    let mut out = Map::new();
    out.insert("array".into(), json!(target.array.name()));
    out.insert("field".into(), json!(target.field.name));
    out
}

fn schema() -> Map<String, Json> {
    Map::from_iter([("schema".to_owned(), json!("tesseral.stat/1"))])
}

fn report(context: &Context, targets: &[Target], rows: &[Summarized]) -> Outcome {
    if context.json() {
        let mut document = schema();
        let objects = targets.iter().zip(rows).map(|(target, row)| {
            let mut one = head(target);
            one.extend(object(row));
            one
        });
        match rows {
            [_] => objects.for_each(|one| document.extend(one)),
            _ => {
                document.insert("arrays".into(), objects.map(Json::Object).collect());
            }
        }
        output::print_json(&Json::Object(document))?;
        return Ok(exit::OK);
    }
    let columns = columns("array");
    let shown = targets.iter().zip(rows).map(|(target, row)| {
        let name = match target.array.schema().fields.len() {
            1 => target.array.name().to_owned(),
            _ => format!("{}/{}", target.array.name(), target.field.name),
        };
        text_row(name, row)
    });
    output::print(&Paint::stdout().table(&columns, shown))?;
    Ok(exit::OK)
}

fn report_by(context: &Context, target: &Target, dim: &str, rows: &[Row]) -> Outcome {
    if context.json() {
        let mut document = schema();
        document.extend(head(target));
        document.insert("by".into(), json!(dim));
        let rows = rows.iter().map(|row| {
            let mut one = Map::new();
            one.insert("position".into(), json!(row.position));
            one.insert("coordinate".into(), json!(row.coordinate));
            one.extend(object(&row.summarized));
            Json::Object(one)
        });
        document.insert("rows".into(), rows.collect());
        output::print_json(&Json::Object(document))?;
        return Ok(exit::OK);
    }
    let shown = rows.iter().map(|row| text_row(row.coordinate.clone(), &row.summarized));
    output::print(&Paint::stdout().table(&columns(dim), shown))?;
    Ok(exit::OK)
}

fn columns(first: &str) -> Vec<&str> {
    let numbers = [">count", ">nulls", ">nan", ">inf", ">min", ">max", ">mean", ">std", ">sum"];
    std::iter::once(first).chain(numbers).collect()
}

fn text_row(first: String, summarized: &Summarized) -> Vec<String> {
    let summary = &summarized.summary;
    let none = || "-".to_owned();
    let float = |v: Option<f64>| v.map_or_else(none, |v| shown(&Sum::Float(v)));
    vec![
        first,
        summary.count().to_string(),
        summary.nulls().to_string(),
        summary.nans().to_string(),
        summary.infinities().map_or_else(none, |n| n.to_string()),
        summary.min().map_or_else(none, |v| v.to_string()),
        summary.max().map_or_else(none, |v| v.to_string()),
        float(summary.mean()),
        float(summary.std()),
        summary.sum().map_or_else(none, |sum| shown(&sum)),
    ]
}

fn shown(sum: &Sum) -> String {
    match sum {
        Sum::Int(sum) => sum.to_string(),
        Sum::Float(v) => tesseral::Value::Float(*v).to_string(),
    }
}
