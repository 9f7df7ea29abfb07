//! `tet stat`: minimum, maximum, mean and others, from stored statistics if they are exact.

mod axes;

use std::collections::HashMap;

use clap::Args;
use serde_json::{Map, Value as Json, json};
use tesseral::{Error, ErrorKind, Result, StatSet, Summary};
use tesseral_core::Sum;
use tesseral_core::calendar::TimeScale;
use tesseral_engine::{Summarized, fold};

use crate::cells_argument::{CellsArgument, ResolvedCells, report_packing};
use crate::context::Context;
use crate::error::{CliResult, exit};
use crate::output::{self, JsonRows, OutputStream, TABLE, put_tables};
use crate::progress::Meter;
use crate::terminal_style::TerminalStyle;
use tesseral_display::coordinate;
use tesseral_display::statistic::{self, NOT_DEFINED};

/// Memory of the text of one row until it is printed, in bytes.
const PRINTED_ROW: usize = 1024;

/// Arguments of `tet stat`.
#[derive(Debug, Args)]
pub(crate) struct StatArguments {
    #[command(flatten)]
    subject: CellsArgument,
    /// Print one row for each position of a dimension, or for each part of its times: `time.year`, `time.month`, `time.season`,
    /// `time.day` (of the month), `time.dayofyear`, `time.hour`, `time.date` (each day of the calendar)
    #[arg(long, value_name = "DIM | TIME.PART")]
    by: Option<String>,
    /// Omit the standard deviation, so that stored statistics can be used without reading cells
    #[arg(long)]
    quick: bool,
    /// Include only cells that match a condition: `a > 5 and name in ("x", "y")`, `not`, `or`, `is null`
    #[arg(long = "where", value_name = "CONDITION")]
    condition: Option<String>,
    #[command(flatten)]
    along: axes::AxisArguments,
}

pub(crate) fn run(context: &Context, arguments: &StatArguments) -> CliResult {
    let meter = Meter::new(true);
    let container = arguments.subject.values.apply_to(context.open(&arguments.subject.source, &meter)?);
    let wanted =
        if arguments.quick { StatSet::RANGE | StatSet::SUM | StatSet::INFINITIES } else { StatSet::ALL };
    arguments.along.check()?;
    if arguments.along.any() {
        let target = arguments.subject.resolve(&container)?;
        report_packing(&target.array);
        let (by, condition) = (arguments.by.as_deref(), arguments.condition.as_deref());
        let times = arguments.subject.values.times(&target.field);
        let code = axes::run(context, &arguments.along, &container, &target, times, by, condition);
        meter.finish();
        return code;
    }
    if let Some(dim) = &arguments.by {
        let target = arguments.subject.resolve(&container)?;
        report_packing(&target.array);
        let rows = match (&arguments.condition, &target.cells) {
            (condition, _) if target.array.schema().dim(dim).is_err() && dim.contains('.') => {
                rows_of_groups(&target, dim, wanted, condition.as_deref())?
            }
            (None, tesseral::Target::Cells(_)) => rows_by(&target, dim, wanted)?,
            (condition, _) => rows_found(&target, dim, wanted, condition.as_deref())?,
        };
        meter.finish();
        let times = arguments.subject.values.times(&target.field);
        return report_by(context, &target, times, dim, &rows);
    }
    let mut sheet = SummaryRows::new(context);
    let mut work = tesseral_engine::Work::default();
    let mut summaries = FieldSummaries::default();
    arguments.subject.each(&container, &mut |target, several| {
        context.check()?;
        if matches!(target.column(), tesseral::Column::Field(0)) {
            report_packing(&target.array);
        }
        let condition = arguments.condition.as_deref();
        let ready = condition.and_then(|condition| summaries.summary(&target, several, wanted, condition));
        let row = ready.unwrap_or_else(|| summarize(&target, &target.cells, wanted, condition));
        if several && row.as_ref().is_ok_and(|row| !row.from_statistics) {
            let query = target.array.cells()?.target(target.cells.clone()).only(&[target.column()]);
            work.add_statistics(target.array.handle(), &query.request())?;
        }
        let times = arguments.subject.values.times(&target.field);
        match row {
            Ok(row) => sheet.push(&target, times, Ok(&row), several),
            // An array of text does not hide other arrays.
            Err(error) if several && matches!(error.kind(), ErrorKind::Unsupported { .. }) => {
                sheet.push(&target, times, Err(&error), several)
            }
            Err(error) => Err(error.into()),
        }
    })?;
    meter.finish();
    sheet.finish()?;
    Ok(exit::OK)
}

fn summarize(
    target: &ResolvedCells,
    cells: &tesseral::Target,
    wanted: StatSet,
    condition: Option<&str>,
) -> Result<Summarized> {
    let array = &target.array;
    let mut query = array.cells()?.target(cells.clone()).only(&[target.column()]);
    if let Some(text) = condition {
        query = query.filter(text)?;
    }
    fold::summary(array.handle(), &query.request(), wanted, array.options())
}

/// Summaries of the fields of one array, computed in one pass over the cells that match a condition.
#[derive(Default)]
struct FieldSummaries {
    array: String,
    fields: HashMap<u16, Summarized>,
}

impl FieldSummaries {
    /// The summary of a field. The summaries of all fields are computed at the first call; `None` for a field without one, or
    /// after an error, which the fields then report one by one.
    fn summary(
        &mut self,
        target: &ResolvedCells,
        several: bool,
        wanted: StatSet,
        condition: &str,
    ) -> Option<Result<Summarized>> {
        let tesseral::Column::Field(field) = target.column() else { return None };
        if !several || target.array.schema().fields.len() < 2 {
            return None;
        }
        if field == 0 {
            self.array = target.array.name().to_owned();
            self.fields = Self::summarize(target, wanted, condition).unwrap_or_default();
        }
        (self.array == target.array.name()).then(|| self.fields.remove(&field).map(Ok)).flatten()
    }

    fn summarize(
        target: &ResolvedCells,
        wanted: StatSet,
        condition: &str,
    ) -> Result<HashMap<u16, Summarized>> {
        let (array, fields) = (&target.array, &target.array.schema().fields);
        let folded = |field: &tesseral::Field| {
            field.cell == tesseral::CellLen::One && Summary::new(field.dtype, wanted).is_ok()
        };
        let numbers: Vec<u16> =
            (0..).zip(fields).filter(|(_, field)| folded(field)).map(|(number, _)| number).collect();
        let columns: Vec<tesseral::Column> = numbers.iter().copied().map(tesseral::Column::Field).collect();
        let query = array.cells()?.target(target.cells.clone()).only(&columns).filter(condition)?;
        let found = fold::summaries(array.handle(), &query.request(), wanted, array.options())?;
        Ok(numbers.into_iter().zip(found).collect())
    }
}

/// One position of the dimension and its statistics.
struct StatRow {
    /// `None` if positions are not countable.
    position: Option<u64>,
    coordinate: String,
    summarized: Summarized,
}

fn rows_by(target: &ResolvedCells, dim: &str, wanted: StatSet) -> CliResult<Vec<StatRow>> {
    let schema = target.array.schema();
    let dim = schema.dim(dim)?;
    let slice = target.selection()?.slices()[dim];
    let rows = slice.count().saturating_mul((size_of::<Summarized>() + PRINTED_ROW) as u64);
    let array = &target.array;
    let request = array.request(target.selection()?);
    tesseral_engine::check_results(array.handle(), &request, rows)?;
    let summaries = fold::summaries_by_position(array.handle(), &request, dim, wanted, array.options())?;
    let rows = (0..slice.count()).zip(summaries).map(|(i, summarized)| {
        let position = slice.start + i * slice.step;
        StatRow { position: Some(position), coordinate: coordinate(&schema.dims[dim], position), summarized }
    });
    Ok(rows.collect())
}

/// Rows for parts of times.
fn rows_of_groups(
    target: &ResolvedCells,
    by: &str,
    wanted: StatSet,
    condition: Option<&str>,
) -> CliResult<Vec<StatRow>> {
    let mut asked = target.array.reduction(Vec::new())?.select(target.positions()?).by(by)?;
    if let Some(text) = condition {
        asked = asked.filter(text)?;
    }
    let asked = asked.resolve()?;
    let groups = asked.axes().iter().find_map(|axis| axis.groups.as_ref());
    let texts = groups.into_iter().flat_map(|groups| groups.numbers.iter().map(|n| groups.part.text(*n)));
    let rows = texts.zip(asked.summaries(wanted)?).map(|(coordinate, summary)| StatRow {
        position: None,
        coordinate,
        summarized: Summarized { summary, from_statistics: false },
    });
    Ok(rows.collect())
}

/// Rows for coordinates with cells: of sparse arrays, and with a condition.
fn rows_found(
    target: &ResolvedCells,
    dim: &str,
    wanted: StatSet,
    condition: Option<&str>,
) -> CliResult<Vec<StatRow>> {
    let array = &target.array;
    let number = array.schema().dim(dim)?;
    let mut query = array.cells()?.target(target.cells.clone()).only(&[target.column()]);
    if let Some(text) = condition {
        query = query.filter(text)?;
    }
    let dim = u16::try_from(number).map_err(|_| Error::invalid("too many dimensions"))?;
    let found =
        fold::summaries_by_coordinate(array.handle(), &query.request(), dim, wanted, array.options())?;
    let dimension = &array.schema().dims[number];
    let first = dimension.domain.as_ref().map_or(Some(0), |(first, _)| first.as_i128());
    let rows = found.into_iter().map(|(at, summary)| {
        let position = at.as_i128().zip(first).and_then(|(at, first)| u64::try_from(at - first).ok());
        let position = position.filter(|_| dimension.extent.is_some());
        let coordinate = position.map_or_else(|| at.to_string(), |position| coordinate(dimension, position));
        StatRow { position, coordinate, summarized: Summarized { summary, from_statistics: false } }
    });
    Ok(rows.collect())
}

fn head(target: &ResolvedCells) -> Map<String, Json> {
    let mut out = Map::new();
    out.insert("array".into(), json!(target.array.name()));
    out.insert("variable".into(), json!(target.array.field_variable(&target.field)));
    out.insert("field".into(), json!(target.field.name));
    out
}

fn schema() -> Map<String, Json> {
    Map::from_iter([("schema".to_owned(), json!("tesseral.stat/1"))])
}

/// Output of summaries, printed incrementally with few of them in memory.
enum SummaryRows {
    Json { document: Map<String, Json>, rows: Option<JsonRows> },
    Text { output: Option<OutputStream>, rows: Vec<Vec<String>> },
}

impl SummaryRows {
    fn new(context: &Context) -> Self {
        match context.json() {
            true => Self::Json { document: schema(), rows: None },
            false => Self::Text { output: None, rows: Vec::new() },
        }
    }

    fn push(
        &mut self,
        target: &ResolvedCells,
        times: Option<TimeScale>,
        row: Result<&Summarized, &Error>,
        several: bool,
    ) -> CliResult<()> {
        match self {
            Self::Json { document, rows } => {
                let mut summarize_position = head(target);
                match row {
                    Ok(row) => summarize_position.extend(statistic::summary(times.as_ref(), row)),
                    Err(error) => summarize_position.extend([("error".to_owned(), json!(error.to_string()))]),
                }
                if !several {
                    document.extend(summarize_position);
                    return Ok(());
                }
                let head = || JsonRows::begin(&Json::Object(schema()), "arrays");
                let rows = match rows {
                    Some(rows) => rows,
                    None => rows.insert(head()?),
                };
                rows.push(&Json::Object(summarize_position))
            }
            Self::Text { output, rows } => {
                let (name, array) = (target.array.field_variable(&target.field), target.array.name());
                let plain = target.array.is_whole() || target.array.variable_name() == array;
                let object = if plain { "" } else { array };
                let mut cells = match row {
                    Ok(row) => text_row(name, times, row),
                    Err(error) => vec![name, error.to_string()],
                };
                cells.insert(1, object.to_owned());
                rows.push(cells);
                if rows.len() == TABLE { table(output, rows) } else { Ok(()) }
            }
        }
    }

    fn finish(self) -> CliResult<()> {
        match self {
            Self::Json { rows: Some(rows), .. } => rows.finish(&Map::new()),
            Self::Json { mut document, rows: None } => {
                if document.len() == 1 {
                    document.insert("arrays".into(), json!([]));
                }
                output::print_json(&Json::Object(document))
            }
            Self::Text { mut output, mut rows } => {
                if !rows.is_empty() || output.is_none() {
                    table(&mut output, &mut rows)?;
                }
                output.map_or(Ok(()), OutputStream::finish)
            }
        }
    }
}

/// Prints rows as a separate table. Object numbers follow the names, if there are any.
fn table(output: &mut Option<OutputStream>, rows: &mut Vec<Vec<String>>) -> CliResult<()> {
    let output = match output {
        Some(output) => output,
        None => output.insert(OutputStream::stdout()?),
    };
    let mut columns = columns("array");
    match rows.iter().any(|row| !row[1].is_empty()) {
        true => columns.insert(1, "object"),
        false => rows.iter_mut().for_each(|row| drop(row.remove(1))),
    }
    output.put(TerminalStyle::stdout().table(&columns, rows.drain(..)).as_bytes())
}

fn report_by(
    context: &Context,
    target: &ResolvedCells,
    times: Option<TimeScale>,
    dim: &str,
    rows: &[StatRow],
) -> CliResult {
    if context.json() {
        let mut document = schema();
        document.extend(head(target));
        document.insert("by".into(), json!(dim));
        let mut list = JsonRows::begin(&Json::Object(document), "rows")?;
        for row in rows {
            let mut summarize_position = Map::new();
            summarize_position.insert("position".into(), json!(row.position));
            summarize_position.insert("coordinate".into(), json!(row.coordinate));
            summarize_position.extend(statistic::summary(times.as_ref(), &row.summarized));
            list.push(&Json::Object(summarize_position))?;
        }
        list.finish(&Map::new())?;
        return Ok(exit::OK);
    }
    let mut output = OutputStream::stdout()?;
    let shown = rows.iter().map(|row| text_row(row.coordinate.clone(), times, &row.summarized));
    put_tables(&mut output, &columns(dim), shown)?;
    output.finish()?;
    Ok(exit::OK)
}

fn columns(first: &str) -> Vec<&str> {
    let numbers = [">count", ">nulls", ">nan", ">inf", ">min", ">max", ">mean", ">std", ">sum"];
    std::iter::once(first).chain(numbers).collect()
}

fn text_row(first: String, times: Option<TimeScale>, summarized: &Summarized) -> Vec<String> {
    if times.is_some() {
        return row_of_times(first, &statistic::summary(times.as_ref(), summarized));
    }
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

/// The numbers of a summary of times, as in JSON.
fn row_of_times(first: String, summary: &Map<String, Json>) -> Vec<String> {
    let undefined = |name: &str| match &summary["not_defined"] {
        Json::Array(names) => names.iter().any(|known| known == name),
        _ => false,
    };
    let cell = |heading: &str| match summary.get(heading.trim_start_matches('>')) {
        _ if undefined(heading.trim_start_matches('>')) => NOT_DEFINED.to_owned(),
        Some(Json::String(text)) => text.clone(),
        None | Some(Json::Null) => "-".to_owned(),
        Some(number) => number.to_string(),
    };
    std::iter::once(first).chain(columns("").into_iter().skip(1).map(cell)).collect()
}

fn shown(sum: &Sum) -> String {
    match sum {
        Sum::Int(sum) => sum.to_string(),
        Sum::Float(v) => tesseral::Value::Float(*v).to_string(),
    }
}
