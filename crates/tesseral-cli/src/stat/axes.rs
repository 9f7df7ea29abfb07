//! Statistics along dimensions: `--mean time`, `--quantile 0.9 --by lat`.

use clap::Args;
use serde_json::{Map, Value as Json, json};
use tesseral::{Error, Request, Selection};
use tesseral_core::condition::Condition;
use tesseral_engine::fold::{self, Answer, AxisRole, Finish, Fold, Folded, Reducer, Statistic};

use crate::cells_argument::{ResolvedCells, coordinate};
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
    /// Variance
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    var: Option<String>,
    /// Sum
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    sum: Option<String>,
    /// Product
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    product: Option<String>,
    /// Number of cells that are neither null nor NaN
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    count: Option<String>,
    /// Whether any value differs from 0
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    any: Option<String>,
    /// Whether all values differ from 0
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    all: Option<String>,
    /// Position of the first minimum along the dimensions
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    argmin: Option<String>,
    /// Position of the first maximum along the dimensions
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    argmax: Option<String>,
    /// First value
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    first: Option<String>,
    /// Last value
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    last: Option<String>,
    /// Most frequent value, the smallest of several
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    mode: Option<String>,
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

impl AxisArguments {
    /// Statistics with a list of dimensions.
    fn options(&self) -> [(&'static str, &Option<String>); 15] {
        [
            ("mean", &self.mean),
            ("min", &self.min),
            ("max", &self.max),
            ("std", &self.std),
            ("var", &self.var),
            ("sum", &self.sum),
            ("product", &self.product),
            ("count", &self.count),
            ("any", &self.any),
            ("all", &self.all),
            ("argmin", &self.argmin),
            ("argmax", &self.argmax),
            ("first", &self.first),
            ("last", &self.last),
            ("mode", &self.mode),
        ]
    }

    /// Returns whether any statistic was selected.
    pub(super) fn any(&self) -> bool {
        self.options().iter().any(|(_, dims)| dims.is_some())
            || self.median.is_some()
            || !self.quantile.is_empty()
    }

    /// Requested statistics by the heading of their column.
    fn statistics(&self) -> CliResult<Vec<(String, Statistic)>> {
        let named = self.options().into_iter().filter(|(_, dims)| dims.is_some());
        let median = self.median.is_some().then_some("median");
        let mut found: Vec<(String, Statistic)> = named
            .map(|(name, _)| name)
            .chain(median)
            .filter_map(|name| Some((name.to_owned(), Statistic::parse(name)?)))
            .collect();
        for &q in &self.quantile {
            if !(0.0..=1.0).contains(&q) {
                return Err(Error::invalid(format!(
                    "invalid value {q} of --quantile: expected a number from 0 to 1"
                ))
                .into());
            }
            found.push((format!("quantile_{q}"), Statistic::Quantile(q)));
        }
        Ok(found)
    }

    /// Returns the dimensions to reduce: those named, all but that of `--by`, or all.
    fn reduced(&self, target: &ResolvedCells, by: Option<&str>) -> CliResult<Vec<bool>> {
        let schema = target.array.schema();
        let rank = schema.dims.len();
        let mut named: Option<Vec<bool>> = None;
        let lists =
            self.options().map(|(_, dims)| dims).into_iter().chain([&self.median, &self.over]).flatten();
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
    target: &'a ResolvedCells,
    selection: Selection,
    condition: Option<Condition>,
    roles: Vec<AxisRole>,
}

pub(super) fn run(
    context: &Context,
    along: &AxisArguments,
    target: &ResolvedCells,
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
    let found = task.results(along)?;
    task.report(context, &reduced, &found, along.sketch)
}

impl Task<'_> {
    /// Returns whether only some positions have cells.
    fn scattered(&self) -> bool {
        self.target.array.schema().sparse || self.condition.is_some()
    }

    /// Folds the selection; missing cells and NaNs are excluded, as elsewhere in `stat`.
    fn folded(&self, reducers: Vec<Reducer>) -> CliResult<Folded> {
        let array = &self.target.array;
        if !matches!(self.target.column(), tesseral::Column::Field(_)) {
            return Err(Error::unsupported("statistics along dimensions of coordinates").into());
        }
        let fold = Fold::new(reducers, self.roles.clone());
        let request = Request { condition: self.condition.clone(), ..array.request(&self.selection) };
        Ok(fold::fold(array.handle(), &request, &fold, array.options())?)
    }

    /// Rejects values to sort that exceed the memory.
    fn check_values(&self, reducers: &[Reducer]) -> CliResult<()> {
        let (target, array) = (self.target, &self.target.array);
        if !reducers.contains(&Reducer::Values) {
            return Ok(());
        }
        let size = target.field.cell_size().unwrap_or(1) as u64;
        let bytes = array.cells_at_most(&target.cells)?.saturating_mul(size);
        match array.options().memory.filter(|allowed| bytes > *allowed) {
            None => Ok(()),
            Some(allowed) => {
                let hint = "select less, raise --memory, or use --sketch 0.01";
                Err(Error::limit("the values to sort", bytes, allowed).hint(hint).into())
            }
        }
    }

    fn results(&self, along: &AxisArguments) -> CliResult<ResultColumns> {
        let requested = along.statistics()?;
        if let Some(error) = along.sketch.filter(|error| !(1e-6..=0.5).contains(error)) {
            let detail =
                format!("invalid value {error} of --sketch: expected a relative error from 0.000001 to 0.5");
            return Err(Error::invalid(detail).into());
        }
        let statistics: Vec<Statistic> = requested.iter().map(|(_, statistic)| statistic.clone()).collect();
        let (reducers, places) = fold::reducers(&statistics, false, along.sketch);
        self.check_values(&reducers)?;
        let states = self.folded(reducers)?.states;
        let dtype = self.target.field.dtype;
        let column = |((name, statistic), place): ((String, Statistic), usize)| {
            let value = |state| shown_json(&statistic.answer(state, dtype, Finish::default()));
            ResultColumn { name, values: states[place].iter().map(value).collect() }
        };
        let slots = states.first().map_or(0, Vec::len);
        let most = |slot: usize| states.iter().map(|list| list[slot].cells(dtype)).max().unwrap_or(0);
        let counts = (0..slots).map(most).collect();
        Ok(ResultColumns { columns: requested.into_iter().zip(places).map(column).collect(), counts })
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
            let dim_names = |wanted: bool| -> Json {
                names.iter().zip(reduced).filter(|(_, r)| **r == wanted).map(|(n, _)| json!(n)).collect()
            };
            document.insert("over".into(), dim_names(true));
            document.insert("dims".into(), dim_names(false));
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
                Some(error) if column.name == "median" || column.name.starts_with("quantile_") => {
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

fn shown_json(answer: &Answer) -> Json {
    match answer {
        Answer::None => Json::Null,
        Answer::Int(value) => json::integer(*value),
        Answer::Float(value) => json::float(*value),
        Answer::Bool(value) => json!(value),
        Answer::Value(value) => json::scalar(value),
        Answer::Counts(counts) => counts.iter().map(|n| json::integer((*n).into())).collect(),
    }
}
