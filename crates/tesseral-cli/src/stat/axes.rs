//! Statistics along dimensions: `--mean time`, `--quantile 0.9 --by lat`.

use clap::Args;
use serde_json::{Map, Value as Json, json};
use tesseral::{Error, Selection, StatSet};
use tesseral_core::condition::Condition;
use tesseral_engine::fold::{self, AxisRole, Compare, Fold, FoldState, Number, Predicate, Reducer};

use crate::cells_argument::{Target, coordinate};
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::terminal_style::TerminalStyle;
use crate::{json, output};

/// Statistics and their dimensions.
#[derive(Debug, Default, Args)]
#[command(
    next_help_heading = "Statistics along dimensions (a list separated by commas after the option; default: all)"
)]
pub(super) struct AxisArguments {
    /// Arithmetic mean
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    mean: Option<String>,
    /// Minimum
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    min: Option<String>,
    /// Maximum
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    max: Option<String>,
    /// Standard deviation
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    std: Option<String>,
    /// Sum
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    sum: Option<String>,
    /// Number of cells that are neither null nor NaN
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    count: Option<String>,
    /// Median
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    median: Option<String>,
    /// Quantile from 0 to 1. Repeatable
    #[arg(long, value_name = "Q")]
    quantile: Vec<f64>,
    /// Approximate medians and quantiles in little memory, with at most this relative error, e.g. 0.01
    #[arg(long, value_name = "ERROR")]
    sketch: Option<f64>,
    /// Dimensions of --quantile
    #[arg(long, value_name = "DIMS")]
    over: Option<String>,
}

const NAMES: [&str; 6] = ["mean", "min", "max", "std", "sum", "count"];

impl AxisArguments {
    fn options(&self) -> [&Option<String>; 6] {
        [&self.mean, &self.min, &self.max, &self.std, &self.sum, &self.count]
    }

    /// Returns whether any statistic was selected.
    pub(super) fn any(&self) -> bool {
        self.options().iter().any(|o| o.is_some()) || self.median.is_some() || !self.quantile.is_empty()
    }

    /// Requested quantiles, including the median.
    fn quantiles(&self) -> CliResult<Vec<(String, f64)>> {
        let median = self.median.is_some().then(|| ("median".to_owned(), 0.5));
        let mut found: Vec<(String, f64)> = median.into_iter().collect();
        for &q in &self.quantile {
            if !(0.0..=1.0).contains(&q) {
                return Err(Error::invalid(format!(
                    "invalid value {q} of --quantile: expected a number from 0 to 1"
                ))
                .into());
            }
            found.push((format!("quantile_{q}"), q));
        }
        Ok(found)
    }

    /// Returns the dimensions to reduce: those named, all but that of `--by`, or all.
    fn reduced(&self, target: &Target, by: Option<&str>) -> CliResult<Vec<bool>> {
        let schema = target.array.schema();
        let rank = schema.dims.len();
        let mut named: Option<Vec<bool>> = None;
        let lists = self.options().into_iter().chain([&self.median, &self.over]).flatten();
        for list in lists.filter(|list| !list.is_empty()) {
            let mut reduced = vec![false; rank];
            for name in list.split(',') {
                reduced[schema.dim(name.trim())?] = true;
            }
            if named.as_ref().is_some_and(|others| *others != reduced) {
                let detail = "all statistics must use the same dimensions";
                return Err(Error::invalid(detail).into());
            }
            named = Some(reduced);
        }
        let Some(by) = by else { return Ok(named.unwrap_or_else(|| vec![true; rank])) };
        let by = schema.dim(by)?;
        if named.is_some_and(|named| named[by]) {
            return Err(Error::invalid("a dimension cannot be both reduced and given by --by").into());
        }
        Ok((0..rank).map(|d| d != by).collect())
    }
}

/// Results by position.
#[derive(Default)]
struct ResultColumns {
    columns: Vec<ResultColumn>,
    /// Cells that each row is the result of, including missing ones.
    counts: Vec<u64>,
}

/// One column of results.
struct ResultColumn {
    name: String,
    values: Vec<Json>,
}

/// Input of the fold: matching cells of an array, and the treatment of each dimension.
struct Task<'a> {
    target: &'a Target,
    selection: Selection,
    condition: Option<Condition>,
    roles: Vec<AxisRole>,
}

pub(super) fn run(
    context: &Context,
    along: &AxisArguments,
    target: &Target,
    by: Option<&str>,
    condition: Option<&str>,
) -> CliResult {
    let reduced = along.reduced(target, by)?;
    let schema = target.array.schema();
    let task = Task {
        target,
        selection: target.positions()?,
        condition: condition.map(|text| tesseral::condition(schema, text)).transpose()?,
        roles: reduced.iter().map(|r| if *r { AxisRole::Reduce } else { AxisRole::Keep }).collect(),
    };
    let mut found = task.summaries(along)?;
    let quantiles = task.quantiles(along)?;
    found.columns.extend(quantiles.columns);
    for (row, count) in quantiles.counts.into_iter().enumerate() {
        match found.counts.get_mut(row) {
            Some(known) => *known = (*known).max(count),
            None => found.counts.push(count),
        }
    }
    task.report(context, &reduced, &found, along.sketch)
}

impl Task<'_> {
    /// Returns whether only some positions have cells.
    fn scattered(&self) -> bool {
        self.target.array.schema().sparse || self.condition.is_some()
    }

    /// Folds the selection; excludes missing cells, as elsewhere in `stat`.
    fn folded(&self, reducer: Reducer) -> CliResult<Vec<FoldState>> {
        let (target, array) = (self.target, &self.target.array);
        let tesseral::Column::Field(field) = target.column() else {
            return Err(Error::unsupported("statistics along dimensions of coordinates").into());
        };
        let mut fold = Fold::new(reducer, self.roles.clone());
        // Summaries count NaN separately; for sorted values, a comparison that every number satisfies excludes it.
        let number = (Compare::Ge, Number::Float(f64::NEG_INFINITY));
        let sorted = matches!(fold.reducer, Reducer::Values | Reducer::Sketch(_));
        fold.predicate = sorted.then(|| Predicate { compare: vec![number], ..Predicate::default() });
        let (handle, options) = (array.handle(), array.options());
        if self.scattered() {
            let condition = self.condition.as_ref();
            return Ok(fold::fold_rows(handle, field, &self.selection, condition, &fold, options)?.states);
        }
        Ok(fold::fold(handle, &array.request(&self.selection), &fold, options)?.states)
    }

    fn summaries(&self, along: &AxisArguments) -> CliResult<ResultColumns> {
        let requested: Vec<&str> = NAMES
            .into_iter()
            .zip(along.options())
            .filter(|(_, o)| o.is_some())
            .map(|(name, _)| name)
            .collect();
        if requested.is_empty() {
            return Ok(ResultColumns::default());
        }
        let set = requested.iter().fold(StatSet::COUNTS, |set, name| {
            set | match *name {
                "min" | "max" => StatSet::RANGE,
                "std" => StatSet::SPREAD,
                "count" => StatSet::COUNTS,
                _ => StatSet::SUM,
            }
        });
        let states = self.folded(Reducer::Summary(set))?;
        let float = |v: Option<f64>| v.map_or(Json::Null, json::float);
        let value = |name: &str, state: &FoldState| {
            let FoldState::Summary(summary) = state else { return Json::Null };
            match name {
                "mean" => float(summary.mean()),
                "std" => float(summary.std()),
                "min" => summary.min().as_ref().map_or(Json::Null, json::scalar),
                "max" => summary.max().as_ref().map_or(Json::Null, json::scalar),
                "sum" => summary.sum().map_or(Json::Null, json::sum),
                _ => json::integer(summary.valid().into()),
            }
        };
        let column = |name: &str| ResultColumn {
            name: name.to_owned(),
            values: states.iter().map(|state| value(name, state)).collect(),
        };
        let counts = states.iter().map(|state| state.cells(self.target.field.dtype)).collect();
        Ok(ResultColumns { columns: requested.into_iter().map(column).collect(), counts })
    }

    fn quantiles(&self, along: &AxisArguments) -> CliResult<ResultColumns> {
        let requested = along.quantiles()?;
        if requested.is_empty() {
            return Ok(ResultColumns::default());
        }
        let (target, array) = (self.target, &self.target.array);
        let reducer = match along.sketch {
            Some(error) if (1e-6..=0.5).contains(&error) => Reducer::Sketch(error),
            Some(error) => {
                return Err(Error::invalid(format!(
                    "invalid value {error} of --sketch: expected a relative error from 0.000001 to 0.5"
                ))
                .into());
            }
            None => Reducer::Values,
        };
        let size = target.field.cell_size().unwrap_or(1) as u64;
        let bytes = array.cells_at_most(&target.cells)?.saturating_mul(size);
        if let (Reducer::Values, Some(allowed)) =
            (&reducer, array.options().memory.filter(|allowed| bytes > *allowed))
        {
            let hint = "select less, raise --memory, or use --sketch 0.01";
            return Err(Error::limit("the values to sort", bytes, allowed).hint(hint).into());
        }
        let states = self.folded(reducer)?;
        let value = |state: &FoldState, q: f64| match state {
            FoldState::Values(values) => match values.quantile(target.field.dtype, q) {
                Some(Number::Int(value)) => json::integer(value),
                Some(Number::Float(value)) => json::float(value),
                None => Json::Null,
            },
            FoldState::Sketch(sketch) => sketch.quantile(q).map_or(Json::Null, json::float),
            _ => Json::Null,
        };
        let column = |(name, q): (String, f64)| ResultColumn {
            name,
            values: states.iter().map(|state| value(state, q)).collect(),
        };
        let counts = states.iter().map(|state| state.cells(self.target.field.dtype)).collect();
        Ok(ResultColumns { columns: requested.into_iter().map(column).collect(), counts })
    }

    fn report(
        &self,
        context: &Context,
        reduced: &[bool],
        found: &ResultColumns,
        sketch: Option<f64>,
    ) -> CliResult {
        let (target, schema, selection) = (self.target, self.target.array.schema(), &self.selection);
        let names: Vec<String> = schema
            .dims
            .iter()
            .enumerate()
            .map(|(d, dim)| if dim.name.is_empty() { d.to_string() } else { dim.name.clone() })
            .collect();
        let kept: Vec<usize> = (0..names.len()).filter(|d| !reduced[*d]).collect();
        let columns = &found.columns;
        let all = columns.first().map_or(0, |column| column.values.len());
        // If most positions have no cells, only those with cells are listed.
        let listed: Vec<usize> =
            (0..all).filter(|row| kept.is_empty() || !self.scattered() || found.counts[*row] > 0).collect();
        let places = |row: usize| -> Vec<u64> {
            let mut rest = row as u64;
            let mut places: Vec<u64> = kept
                .iter()
                .rev()
                .map(|&d| {
                    let slice = selection.slices()[d];
                    let count = slice.count().max(1);
                    let place = slice.start + rest % count * slice.step;
                    rest /= count;
                    place
                })
                .collect();
            places.reverse();
            places
        };
        let coordinates = |row: usize| -> Vec<String> {
            places(row).iter().zip(&kept).map(|(&p, &d)| coordinate(&schema.dims[d], p)).collect()
        };
        if context.json() {
            let mut document = super::schema();
            document.extend(super::head(target));
            let of = |wanted: bool| -> Json {
                names.iter().zip(reduced).filter(|(_, r)| **r == wanted).map(|(n, _)| json!(n)).collect()
            };
            document.insert("over".into(), of(true));
            document.insert("dims".into(), of(false));
            if let Some(error) = sketch {
                document.insert("quantile_relative_error".into(), json::float(error));
            }
            let rows = listed.iter().map(|&row| {
                let mut one = Map::new();
                one.insert("positions".into(), json!(places(row)));
                one.insert("coordinates".into(), json!(coordinates(row)));
                columns.iter().for_each(|column| {
                    one.insert(column.name.clone(), column.values[row].clone());
                });
                Json::Object(one)
            });
            document.insert("rows".into(), rows.collect());
            output::print_json(&Json::Object(document))?;
            return Ok(exit::OK);
        }
        let headings: Vec<String> = kept
            .iter()
            .map(|&d| names[d].clone())
            .chain(columns.iter().map(|column| match sketch {
                Some(error) if !NAMES.contains(&column.name.as_str()) => {
                    format!(">{} (within {} %)", column.name, error * 100.0)
                }
                _ => format!(">{}", column.name),
            }))
            .collect();
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let shown = |value: &Json| match value {
            Json::Null => "-".to_owned(),
            Json::String(text) => text.clone(),
            other => other.to_string(),
        };
        let rows = listed.iter().map(|&row| {
            coordinates(row).into_iter().chain(columns.iter().map(|c| shown(&c.values[row]))).collect()
        });
        output::print(&TerminalStyle::stdout().table(&headings, rows))?;
        Ok(exit::OK)
    }
}
