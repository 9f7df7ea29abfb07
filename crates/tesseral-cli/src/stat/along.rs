//! Chosen statistics along chosen dimensions: `--mean time`, `--quantile 0.9 --by lat`.

use clap::Args;
use serde_json::{Map, Value as Json, json};
use tesseral::core::condition::Condition;
use tesseral::engine::fold::{self, Compare, Fold, Number, Predicate, Reducer, Role, State};
use tesseral::{Error, Selection, Wanted};

use crate::context::Context;
use crate::failure::{Outcome, exit};
use crate::paint::Paint;
use crate::subject::{Target, coordinate};
use crate::{json, output};

/// Which statistics, along which dimensions.
#[derive(Debug, Default, Args)]
#[command(
    next_help_heading = "Statistics along dimensions (named after the option, separated by commas; all when none is)"
)]
pub(super) struct Along {
    /// Means
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    mean: Option<String>,
    /// Smallest values
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    min: Option<String>,
    /// Largest values
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    max: Option<String>,
    /// Standard deviations
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    std: Option<String>,
    /// Sums
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    sum: Option<String>,
    /// Numbers of cells that are neither null nor NaN
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    count: Option<String>,
    /// Medians
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    median: Option<String>,
    /// A quantile, 0 to 1; may be given several times
    #[arg(long, value_name = "Q")]
    quantile: Vec<f64>,
    /// Finds medians and quantiles in little memory, off by at most this part of themselves, e.g. 0.01
    #[arg(long, value_name = "ERROR")]
    sketch: Option<f64>,
    /// Dimensions to take statistics along, for --quantile
    #[arg(long, value_name = "DIMS")]
    over: Option<String>,
}

const NAMES: [&str; 6] = ["mean", "min", "max", "std", "sum", "count"];

impl Along {
    fn options(&self) -> [&Option<String>; 6] {
        [&self.mean, &self.min, &self.max, &self.std, &self.sum, &self.count]
    }

    /// Whether any statistic was chosen.
    pub(super) fn any(&self) -> bool {
        self.options().iter().any(|o| o.is_some()) || self.median.is_some() || !self.quantile.is_empty()
    }

    /// Quantiles asked for, the median among them.
    fn quantiles(&self) -> Outcome<Vec<(String, f64)>> {
        let median = self.median.is_some().then(|| ("median".to_owned(), 0.5));
        let mut found: Vec<(String, f64)> = median.into_iter().collect();
        for &q in &self.quantile {
            if !(0.0..=1.0).contains(&q) {
                return Err(Error::invalid(format!("--quantile {q}: it lies between 0 and 1")).into());
            }
            found.push((format!("quantile_{q}"), q));
        }
        Ok(found)
    }

    /// Which dimensions are reduced: those named, all but that of `--by`, or all.
    fn reduced(&self, target: &Target, by: Option<&str>) -> Outcome<Vec<bool>> {
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
                let detail = "statistics of one run are along the same dimensions";
                return Err(Error::invalid(detail).into());
            }
            named = Some(reduced);
        }
        let Some(by) = by else { return Ok(named.unwrap_or_else(|| vec![true; rank])) };
        let by = schema.dim(by)?;
        if named.is_some_and(|named| named[by]) {
            return Err(Error::invalid("a dimension is either reduced or given by --by").into());
        }
        Ok((0..rank).map(|d| d != by).collect())
    }
}

/// One column of results.
struct Column {
    name: String,
    values: Vec<Json>,
}

/// What is folded: cells of an array that meet a condition, and what becomes of each dimension.
struct Task<'a> {
    target: &'a Target,
    selection: Selection,
    condition: Option<Condition>,
    roles: Vec<Role>,
}

pub(super) fn run(
    context: &Context,
    along: &Along,
    target: &Target,
    by: Option<&str>,
    condition: Option<&str>,
) -> Outcome {
    let reduced = along.reduced(target, by)?;
    let schema = target.array.schema();
    let task = Task {
        target,
        selection: target.positions()?,
        condition: condition.map(|text| tesseral::condition(schema, text)).transpose()?,
        roles: reduced.iter().map(|r| if *r { Role::Reduce } else { Role::Keep }).collect(),
    };
    let mut columns = task.summaries(along)?;
    columns.extend(task.quantiles(along)?);
    task.report(context, &reduced, &columns, along.sketch)
}

impl Task<'_> {
    /// Whether only some positions have a cell that counts.
    fn scattered(&self) -> bool {
        self.target.array.schema().sparse || self.condition.is_some()
    }

    /// Folds the selection; null cells and those equal to the fill do not count, as everywhere in `stat`.
    fn folded(&self, reducer: Reducer) -> Outcome<Vec<State>> {
        let (target, array) = (self.target, &self.target.array);
        let tesseral::Column::Field(field) = target.column() else {
            return Err(Error::unsupported("statistics along dimensions of coordinates").into());
        };
        let mut fold = Fold::new(reducer, self.roles.clone());
        let holes = target.field.missing().is_some() || target.field.nullable;
        // Summaries count NaN apart; of values to sort, a comparison that every number meets leaves it out.
        let number = (Compare::Ge, Number::Float(f64::NEG_INFINITY));
        let sorted = matches!(fold.reducer, Reducer::Values | Reducer::Sketch(_));
        fold.predicate = (holes || sorted).then(|| Predicate {
            compare: sorted.then_some(number).into_iter().collect(),
            null: holes.then_some(false),
            ..Predicate::default()
        });
        let (handle, options) = (array.handle(), array.options());
        if self.scattered() {
            let condition = self.condition.as_ref();
            return Ok(fold::fold_rows(handle, field, &self.selection, condition, &fold, options)?.states);
        }
        Ok(fold::fold(handle, &array.request(&self.selection), &fold, options)?.states)
    }

    fn summaries(&self, along: &Along) -> Outcome<Vec<Column>> {
        let asked: Vec<&str> = NAMES
            .into_iter()
            .zip(along.options())
            .filter(|(_, o)| o.is_some())
            .map(|(name, _)| name)
            .collect();
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let wanted = asked.iter().fold(Wanted::COUNTS, |wanted, name| {
            wanted
                | match *name {
                    "min" | "max" => Wanted::RANGE,
                    "std" => Wanted::SPREAD,
                    "count" => Wanted::COUNTS,
                    _ => Wanted::SUM,
                }
        });
        let states = self.folded(Reducer::Summary(wanted))?;
        let float = |v: Option<f64>| v.map_or(Json::Null, json::float);
        let value = |name: &str, state: &State| {
            let State::Summary(summary) = state else { return Json::Null };
            match name {
                "mean" => float(summary.mean()),
                "std" => float(summary.std()),
                "min" => summary.min().as_ref().map_or(Json::Null, json::scalar),
                "max" => summary.max().as_ref().map_or(Json::Null, json::scalar),
                "sum" => summary.sum().map_or(Json::Null, json::sum),
                _ => json::integer(summary.valid().into()),
            }
        };
        let column = |name: &str| Column {
            name: name.to_owned(),
            values: states.iter().map(|state| value(name, state)).collect(),
        };
        Ok(asked.into_iter().map(column).collect())
    }

    fn quantiles(&self, along: &Along) -> Outcome<Vec<Column>> {
        let asked = along.quantiles()?;
        if asked.is_empty() {
            return Ok(Vec::new());
        }
        let (target, array) = (self.target, &self.target.array);
        let reducer = match along.sketch {
            Some(error) if (1e-6..=0.5).contains(&error) => Reducer::Sketch(error),
            Some(error) => {
                return Err(Error::invalid(format!(
                    "--sketch {error}: an error lies between 0.000001 and 0.5"
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
            let hint = "select less, raise --memory, or give --sketch 0.01";
            return Err(Error::limit("the values to sort", bytes, allowed).hint(hint).into());
        }
        let states = self.folded(reducer)?;
        let value = |state: &State, q: f64| match state {
            State::Values(values) => match values.quantile(target.field.dtype, q) {
                Some(Number::Int(value)) => json::integer(value),
                Some(Number::Float(value)) => json::float(value),
                None => Json::Null,
            },
            State::Sketch(sketch) => sketch.quantile(q).map_or(Json::Null, json::float),
            _ => Json::Null,
        };
        let column = |(name, q): (String, f64)| Column {
            name,
            values: states.iter().map(|state| value(state, q)).collect(),
        };
        Ok(asked.into_iter().map(column).collect())
    }

    fn report(
        &self,
        context: &Context,
        reduced: &[bool],
        columns: &[Column],
        sketch: Option<f64>,
    ) -> Outcome {
        let (target, schema, selection) = (self.target, self.target.array.schema(), &self.selection);
        let names: Vec<String> = schema
            .dims
            .iter()
            .enumerate()
            .map(|(d, dim)| if dim.name.is_empty() { d.to_string() } else { dim.name.clone() })
            .collect();
        let kept: Vec<usize> = (0..names.len()).filter(|d| !reduced[*d]).collect();
        let all = columns.first().map_or(0, |column| column.values.len());
        // Where most positions have no cell, only those with an answer are listed.
        let empty = |row: usize| columns.iter().all(|c| c.values[row].is_null() || c.values[row] == json!(0));
        let listed: Vec<usize> =
            (0..all).filter(|row| kept.is_empty() || !self.scattered() || !empty(*row)).collect();
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
        output::print(&Paint::stdout().table(&headings, rows))?;
        Ok(exit::OK)
    }
}
