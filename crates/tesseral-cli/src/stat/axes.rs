//! Statistics along dimensions: `--mean time`, `--quantile 0.9 --by lat`.

use std::cmp::Ordering;

use clap::Args;
use serde_json::{Map, Value as Json, json};
use tesseral::fold::{Answer, Answers, Finish, Histogram, Number, OfTimes, Statistic};
use tesseral::{AnswerAxis, Asked, Container, Error, Rolling, Selection, StatisticsQuery};
use tesseral_core::calendar::TimeScale;

use crate::cells_argument::ResolvedCells;
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output;
use crate::terminal_style::TerminalStyle;
use tesseral_display::{coordinate, json, statistic};

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
    /// Most frequent value; the smallest if there are several
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    mode: Option<String>,
    /// Median
    #[arg(long, value_name = "DIMS", num_args = 0..=1, default_missing_value = "")]
    median: Option<String>,
    /// Covariance with another variable over the same dimensions, along those of `--over`
    #[arg(long, value_name = "VAR")]
    cov: Option<String>,
    /// Correlation with another variable over the same dimensions
    #[arg(long, value_name = "VAR")]
    corr: Option<String>,
    /// Delta degrees of freedom of --var, --std and --cov: the divisor is the number of values minus N
    #[arg(long, value_name = "N", default_value_t = 0)]
    ddof: u32,
    /// Quantile from 0 to 1. Repeatable
    #[arg(long, value_name = "Q")]
    quantile: Vec<f64>,
    /// Approximate medians and quantiles in little memory, with at most this relative error, e.g. 0.01
    #[arg(long, value_name = "ERROR")]
    sketch: Option<f64>,
    /// Dimensions of --quantile, --histogram, --cov and --corr
    #[arg(long, value_name = "DIMS")]
    over: Option<String>,
    /// Count values in N equal bins, from the smallest to the largest value or from LO to HI
    #[arg(long, value_name = "N[,LO,HI]", allow_hyphen_values = true)]
    histogram: Option<String>,
    /// Weights of sums, means, variances, medians and quantiles: a variable along some of the dimensions, or `cos(lat)` for
    /// coordinates in degrees
    #[arg(long, value_name = "VAR")]
    weights: Option<String>,
    /// Statistics of windows of N positions that end at each position of a dimension
    #[arg(long, value_name = "DIM=N", conflicts_with = "by")]
    rolling: Option<String>,
    /// With --rolling, center the window at each position
    #[arg(long, requires = "rolling")]
    center: bool,
    /// With --rolling, minimum number of values of a window; with fewer, the result is missing [default: all]
    #[arg(long, value_name = "N", requires = "rolling")]
    min_count: Option<u64>,
    /// Sort the rows by a statistic, lowest first; `-mean` for highest first
    #[arg(long, value_name = "STATISTIC", allow_hyphen_values = true)]
    sort: Option<String>,
    /// Print at most N rows; 0 for all
    #[arg(short = 'n', long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    rows: usize,
}

/// The column that rows are ordered by.
struct RowOrder {
    column: usize,
    descending: bool,
}

impl RowOrder {
    /// Compares two answers; missing ones follow all others.
    fn compare(&self, a: &Answer, b: &Answer) -> Ordering {
        let missing = |answer: &Answer| number(answer).is_none_or(|(_, value)| value.is_nan());
        match (missing(a), missing(b)) {
            (false, false) => {}
            (a, b) => return a.cmp(&b),
        }
        let order = match (number(a), number(b)) {
            (Some((Some(a), _)), Some((Some(b), _))) => a.cmp(&b),
            (Some((_, a)), Some((_, b))) => a.total_cmp(&b),
            _ => Ordering::Equal,
        };
        if self.descending { order.reverse() } else { order }
    }
}

/// An answer as an integer, if it is one, and as the nearest float; `None` if it is not a number.
#[allow(clippy::cast_precision_loss)]
fn number(answer: &Answer) -> Option<(Option<i128>, f64)> {
    match answer {
        Answer::Int(value) => Some((Some(*value), *value as f64)),
        Answer::Quotient(sum, count) => Some((None, *sum as f64 / *count as f64)),
        Answer::Float(value) => Some((None, *value)),
        Answer::Bool(value) => Some((Some((*value).into()), f64::from(*value))),
        Answer::Value(value) => {
            let integer = value.as_i128();
            value.as_f64().or(integer.map(|n| n as f64)).map(|float| (integer, float))
        }
        Answer::None | Answer::Counts(_) => None,
    }
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
            || self.histogram.is_some()
            || self.second().is_some()
    }

    /// Rejects options that have no statistic to apply to.
    pub(super) fn check(&self) -> CliResult<()> {
        if (self.weights.is_some() || self.rolling.is_some()) && !self.any() {
            let hint = "add --mean or another statistic";
            return Err(Error::invalid("--weights and --rolling require a statistic").hint(hint).into());
        }
        if (self.sort.is_some() || self.rows > 0) && !self.any() {
            let hint = "add --mean or another statistic";
            return Err(Error::invalid("--sort and --rows require a statistic").hint(hint).into());
        }
        if let (Some(a), Some(b)) = (&self.cov, &self.corr)
            && a != b
        {
            return Err(Error::invalid("--cov and --corr must name the same variable").into());
        }
        Ok(())
    }

    /// The order of rows by one of the statistics.
    fn order(&self, names: &[String]) -> CliResult<Option<RowOrder>> {
        let Some(text) = &self.sort else { return Ok(None) };
        let (name, descending) = text.strip_prefix('-').map_or((text.as_str(), false), |name| (name, true));
        match names.iter().position(|known| known == name && name != "histogram") {
            Some(column) => Ok(Some(RowOrder { column, descending })),
            None => Err(Error::not_found("statistic to sort by", name, names.to_vec()).into()),
        }
    }

    /// The second variable of covariances and correlations.
    fn second(&self) -> Option<&str> {
        self.cov.as_deref().or(self.corr.as_deref())
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
        for (name, variable) in [("cov", &self.cov), ("corr", &self.corr)] {
            let statistic = variable.as_ref().and_then(|_| Statistic::parse(name));
            found.extend(statistic.map(|statistic| (name.to_owned(), statistic)));
        }
        for &q in &self.quantile {
            if !(0.0..=1.0).contains(&q) {
                return Err(Error::invalid(format!(
                    "invalid value {q} of --quantile: expected a number from 0 to 1"
                ))
                .into());
            }
            found.push((format!("quantile_{q}"), Statistic::Quantile(q)));
        }
        if let Some(text) = &self.histogram {
            found.push(("histogram".to_owned(), Statistic::Histogram(histogram(text)?)));
        }
        Ok(found)
    }

    /// The dimensions that are listed after statistics.
    fn listed(&self, target: &ResolvedCells) -> CliResult<Option<Vec<usize>>> {
        let schema = target.array.schema();
        let mut listed: Option<Vec<usize>> = None;
        let lists =
            self.options().map(|(_, dims)| dims).into_iter().chain([&self.median, &self.over]).flatten();
        for list in lists.filter(|list| !list.is_empty()) {
            let mut axes =
                list.split(',').map(|name| schema.dim(name.trim())).collect::<Result<Vec<_>, _>>()?;
            axes.sort_unstable();
            axes.dedup();
            if listed.as_ref().is_some_and(|others| *others != axes) {
                let detail = "all statistics must use the same dimensions";
                return Err(Error::invalid(detail).into());
            }
            listed = Some(axes);
        }
        Ok(listed)
    }

    /// The question about the cells of a target.
    fn reduction<'a>(
        &self,
        container: &'a Container,
        target: &'a ResolvedCells,
        times: Option<TimeScale>,
        by: Option<&str>,
        condition: Option<&str>,
    ) -> CliResult<StatisticsQuery<'a>> {
        let selection = target.positions()?;
        if !matches!(target.column(), tesseral::Column::Field(_)) {
            return Err(Error::unsupported("statistics along dimensions of coordinates").into());
        }
        if let Some(error) = self.sketch.filter(|error| !(1e-6..=0.5).contains(error)) {
            let detail =
                format!("invalid value {error} of --sketch: expected a relative error from 0.000001 to 0.5");
            return Err(Error::invalid(detail).into());
        }
        let (schema, listed) = (target.array.schema(), self.listed(target)?);
        let statistics: Vec<Statistic> =
            self.statistics()?.into_iter().map(|(_, statistic)| statistic).collect();
        let undefined = statistics.iter().find(|statistic| statistic.of_times() == OfTimes::Undefined);
        if let (Some(_), Some(statistic)) = (times, undefined) {
            let detail = format!("a {statistic} of times is not defined");
            let hint = "times have a minimum, maximum, mean, median, quantiles, mode and standard deviation";
            return Err(Error::invalid(detail).in_array(target.array.name()).hint(hint).into());
        }
        let mut asked = target.array.reduction(statistics)?.select(selection).sketch(self.sketch);
        match (by, listed) {
            // A dimension by itself keeps its positions; all others are reduced.
            (Some(by), listed) if schema.dim(by).is_ok() => {
                if listed.is_some_and(|axes| schema.dim(by).is_ok_and(|by| axes.contains(&by))) {
                    let detail = "a dimension cannot be both reduced and given by --by";
                    return Err(Error::invalid(detail).into());
                }
            }
            (_, Some(axes)) => asked = asked.over_axes(axes)?,
            (_, None) => {}
        }
        if let Some(by) = by {
            asked = asked.by(by)?;
        }
        if let Some(text) = &self.rolling {
            let (axis, size) = window(schema, text)?;
            let rolling = Rolling { size, center: self.center, least: self.min_count };
            asked = asked.rolling(axis, rolling);
        }
        asked = asked.finish(Finish {
            ddof: f64::from(self.ddof),
            quotients: times.is_some(),
            ..Finish::default()
        });
        if let Some(name) = self.second() {
            asked = asked.with(container, name);
        }
        if let Some(weights) = &self.weights {
            asked = asked.weights(container, weights);
        }
        Ok(match condition {
            Some(text) => asked.filter(text)?,
            None => asked,
        })
    }
}

/// The dimension and the size of `DIM=N`.
fn window(schema: &tesseral::ArraySchema, text: &str) -> CliResult<(usize, u64)> {
    let invalid = || Error::invalid(format!("invalid value {text:?} of --rolling: expected DIM=N"));
    let (dim, size) = text.rsplit_once('=').ok_or_else(invalid)?;
    Ok((schema.dim(dim)?, size.parse().ok().filter(|size| *size > 0).ok_or_else(invalid)?))
}

/// The bins of `N` or `N,LO,HI`.
fn histogram(text: &str) -> CliResult<Histogram> {
    /// Bins of which counts and edges take little memory.
    const MOST: u32 = 1 << 20;
    let invalid = || {
        let expected = "expected a number of bins, and the smallest and the largest value: 20,0,100";
        Error::invalid(format!("invalid value {text:?} of --histogram: {expected}"))
    };
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let bound = |text: &str| -> Result<Number, Error> {
        let float = || text.parse::<f64>().ok().filter(|value| value.is_finite()).map(Number::Float);
        text.parse::<i64>().ok().map(|value| Number::Int(value.into())).or_else(float).ok_or_else(invalid)
    };
    let (bins, ranges) = match parts.as_slice() {
        [bins] => (*bins, Vec::new()),
        [bins, low, high] => (*bins, vec![(bound(low)?, bound(high)?)]),
        _ => return Err(invalid().into()),
    };
    let ordered = ranges.iter().all(|(low, high)| low.to_f64() < high.to_f64());
    let bins = bins.parse().ok().filter(|bins| ordered && (1..=MOST).contains(bins)).ok_or_else(invalid)?;
    Ok(Histogram::new(bins, ranges, false))
}

pub(super) fn run(
    context: &Context,
    along: &AxisArguments,
    container: &Container,
    target: &ResolvedCells,
    times: Option<TimeScale>,
    by: Option<&str>,
    condition: Option<&str>,
) -> CliResult {
    let statistics = along.statistics()?;
    let names: Vec<String> = statistics.iter().map(|(name, _)| name.clone()).collect();
    let order = along.order(&names)?;
    let asked = along.reduction(container, target, times, by, condition)?.resolve()?;
    check_values(&asked, target)?;
    let answers = asked.ask()?;
    let sheet = SlotTable {
        target,
        order,
        most: if along.rows == 0 { usize::MAX } else { along.rows },
        selection: target.positions()?,
        scattered: target.array.schema().sparse || condition.is_some(),
        times,
        statistics,
        axes: asked.axes(),
        answers,
        sketch: along.sketch,
        rolling: along.rolling.is_some(),
    };
    if context.json() { sheet.json() } else { sheet.text() }
}

/// Rejects values to sort that exceed the memory.
fn check_values(asked: &Asked<'_>, target: &ResolvedCells) -> CliResult<()> {
    let bytes = asked.kept_bytes()?;
    match target.array.options().memory.filter(|allowed| bytes > *allowed) {
        None => Ok(()),
        Some(allowed) => {
            let hint = "select less, raise --memory, or use --sketch 0.01";
            Err(Error::limit("the values to sort", bytes, allowed).hint(hint).into())
        }
    }
}

/// The position of a cell along a reduced dimension.
struct FoundPosition {
    dim: String,
    position: u64,
    /// `None` if the dimension has no coordinates.
    coordinate: Option<String>,
}

impl FoundPosition {
    /// The argument that selects the position.
    fn selection(&self) -> String {
        match &self.coordinate {
            Some(coordinate) => format!("{}=@{coordinate}", self.dim),
            None => format!("{}={}", self.dim, self.position),
        }
    }
}

/// Answers to print: one row per slot.
struct SlotTable<'a> {
    target: &'a ResolvedCells,
    selection: Selection,
    /// Whether only some positions have cells.
    scattered: bool,
    /// How the cells count time, if they do.
    times: Option<TimeScale>,
    /// The statistics, each with its heading.
    statistics: Vec<(String, Statistic)>,
    order: Option<RowOrder>,
    /// Number of rows that are printed at most.
    most: usize,
    axes: &'a [AnswerAxis],
    answers: Answers,
    sketch: Option<f64>,
    /// Whether windows are reduced, in which positions are counted from their start.
    rolling: bool,
}

impl SlotTable<'_> {
    /// The slots to list, in their order: if most positions have no cells, only those with cells.
    fn listed(&self) -> Vec<usize> {
        let all = self.answers.columns.first().map_or(0, Vec::len);
        let shown = |slot: &usize| self.axes.is_empty() || !self.scattered || self.answers.cells[*slot] > 0;
        let mut slots: Vec<usize> = (0..all).filter(shown).collect();
        if let Some(order) = &self.order {
            let column = &self.answers.columns[order.column];
            slots.sort_by(|a, b| order.compare(&column[*a], &column[*b]));
        }
        slots.truncate(self.most);
        slots
    }

    /// The index of a slot along each axis.
    fn indexes(&self, slot: usize) -> Vec<u64> {
        let mut rest = slot as u64;
        let mut indexes: Vec<u64> = self
            .answers
            .shape
            .iter()
            .rev()
            .map(|count| {
                let index = rest % (*count).max(1);
                rest /= (*count).max(1);
                index
            })
            .collect();
        indexes.reverse();
        indexes
    }

    /// The position of a slot along an axis; none for a group.
    fn position(&self, axis: &AnswerAxis, index: u64) -> Option<u64> {
        let slice = self.selection.slices()[axis.dim];
        axis.groups.is_none().then_some(slice.start + index * slice.step)
    }

    fn positions(&self, slot: usize) -> Vec<Option<u64>> {
        let indexes = self.indexes(slot);
        self.axes.iter().zip(indexes).map(|(axis, index)| self.position(axis, index)).collect()
    }

    fn coordinates(&self, slot: usize) -> Vec<String> {
        let dims = &self.target.array.schema().dims;
        let text = |(axis, index): (&AnswerAxis, u64)| match (&axis.groups, self.position(axis, index)) {
            (Some(groups), _) => {
                let number = usize::try_from(index).ok().and_then(|index| groups.numbers.get(index));
                number.map_or_else(String::new, |number| groups.part.text(*number))
            }
            (None, position) => coordinate(&dims[axis.dim], position.unwrap_or(0)),
        };
        self.axes.iter().zip(self.indexes(slot)).map(text).collect()
    }

    /// The coordinates of the cell that `argmin` or `argmax` answers with, by the names of the reduced dimensions.
    fn located(&self, name: &str, answer: &Answer) -> Option<Vec<FoundPosition>> {
        let &Answer::Int(index) = answer else { return None };
        if !matches!(name, "argmin" | "argmax") || self.rolling {
            return None;
        }
        let mut rest = u64::try_from(index).ok()?;
        let reduced =
            (0..self.selection.rank()).rev().filter(|d| !self.axes.iter().any(|axis| axis.dim == *d));
        let mut found: Vec<FoundPosition> = reduced
            .map(|d| {
                let (slice, dim) = (self.selection.slices()[d], &self.target.array.schema().dims[d]);
                let position = slice.start + rest % slice.count().max(1) * slice.step;
                rest /= slice.count().max(1);
                FoundPosition { dim: self.dim(d), position, coordinate: dim.coordinate_text(position) }
            })
            .collect();
        found.reverse();
        Some(found)
    }

    /// The name of a dimension, or its number.
    fn dim(&self, number: usize) -> String {
        let name = &self.target.array.schema().dims[number].name;
        if name.is_empty() { number.to_string() } else { name.clone() }
    }

    /// The names of the axes: `lat`, `time.month`.
    fn heads(&self) -> Vec<String> {
        let head = |axis: &AnswerAxis| match &axis.groups {
            Some(groups) => format!("{}.{}", self.dim(axis.dim), groups.part),
            None => self.dim(axis.dim),
        };
        self.axes.iter().map(head).collect()
    }

    fn json(&self) -> CliResult {
        let mut document = super::schema();
        document.extend(super::head(self.target));
        let kept = |d: &usize| self.axes.iter().any(|axis| axis.dim == *d && axis.groups.is_none());
        let over = (0..self.selection.rank()).filter(|d| !kept(d)).map(|d| json!(self.dim(d)));
        document.insert("over".into(), over.collect());
        document.insert("dims".into(), self.heads().into_iter().map(Json::from).collect());
        if let Some(error) = self.sketch {
            document.insert("quantile_relative_error".into(), json::float(error));
        }
        if let Some(edges) = self.answers.edges.first() {
            document.insert(
                "histogram_edges".into(),
                edges.iter().map(|edge| statistic::edge(self.times.as_ref(), *edge)).collect(),
            );
        }
        let rows = self.listed().into_iter().map(|slot| {
            let mut row = Map::new();
            row.insert("positions".into(), json!(self.positions(slot)));
            row.insert("coordinates".into(), json!(self.coordinates(slot)));
            for ((name, statistic), column) in self.statistics.iter().zip(&self.answers.columns) {
                row.insert(name.clone(), statistic::answer(self.times.as_ref(), statistic, &column[slot]));
                if let Some(found) = self.located(name, &column[slot]) {
                    let found = found.into_iter().map(|at| {
                        let text = at.coordinate.unwrap_or_else(|| at.position.to_string());
                        (at.dim, Json::from(text))
                    });
                    row.insert(format!("{name}_coordinates"), Json::Object(found.collect()));
                }
            }
            Json::Object(row)
        });
        document.insert("rows".into(), rows.collect());
        output::print_json(&Json::Object(document))?;
        Ok(exit::OK)
    }

    fn text(&self) -> CliResult {
        if let ([column], [edges]) = (self.answers.columns.as_slice(), self.answers.edges.as_slice()) {
            return self.bins(column, edges);
        }
        let headings = self.statistics.iter().map(|(name, _)| match self.sketch {
            Some(error) if name == "median" || name.starts_with("quantile_") => {
                format!(">{name} (within {} %)", error * 100.0)
            }
            // Followed by coordinates.
            _ if matches!(name.as_str(), "argmin" | "argmax") => name.clone(),
            _ => format!(">{name}"),
        });
        let headings: Vec<String> = self.heads().into_iter().chain(headings).collect();
        let rows = self.listed().into_iter().map(|slot| {
            let columns = self.statistics.iter().zip(&self.answers.columns);
            let answers = columns.map(|((name, statistic), column)| {
                let value = shown(&statistic::answer(self.times.as_ref(), statistic, &column[slot]));
                match self.located(name, &column[slot]) {
                    Some(found) => {
                        let found: Vec<String> = found.iter().map(FoundPosition::selection).collect();
                        format!("{value}  {}", found.join(" "))
                    }
                    None => value,
                }
            });
            self.coordinates(slot).into_iter().chain(answers).collect()
        });
        print_table(&headings, rows)?;
        let all = self.answers.columns.first().map_or(0, Vec::len);
        if self.most < all {
            crate::error::report(&format!(
                "… {} more rows\n",
                crate::text::grouped((all - self.most) as u64)
            ));
        }
        Ok(exit::OK)
    }

    /// A histogram: one row per bin.
    fn bins(&self, column: &[Answer], edges: &[f64]) -> CliResult {
        let columns = [">from", ">to", ">count"].map(str::to_owned);
        let headings: Vec<String> = self.heads().into_iter().chain(columns).collect();
        let mut rows: Vec<Vec<String>> = Vec::new();
        for slot in self.listed() {
            let Answer::Counts(counts) = &column[slot] else { continue };
            for (count, edge) in counts.iter().zip(edges.windows(2)) {
                let ends = [edge[0], edge[1]].map(|edge| shown(&statistic::edge(self.times.as_ref(), edge)));
                rows.push(
                    self.coordinates(slot).into_iter().chain(ends).chain([count.to_string()]).collect(),
                );
            }
        }
        print_table(&headings, rows)
    }
}

fn print_table(headings: &[String], rows: impl IntoIterator<Item = Vec<String>>) -> CliResult {
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    output::print(&TerminalStyle::stdout().table(&headings, rows))?;
    Ok(exit::OK)
}

/// A value as text.
fn shown(value: &Json) -> String {
    match value {
        Json::Null => "-".to_owned(),
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}
