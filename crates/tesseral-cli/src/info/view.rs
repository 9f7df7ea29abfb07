//! `tet info` as text.

use serde_json::Value as Json;
use tesseral::{CellLen, Dimension, Field, Scalar, Value};
use tesseral_core::dtype::Class;
use tesseral_core::schema::VariableRole;
use tesseral_core::{TimeUnit, time};

use super::{Report, variables};
use crate::error::CliResult;
use crate::messages;
use crate::terminal_style::TerminalStyle;
use crate::text::{self, escape, shell_quoted};
use tesseral_display::{ArraySummary, ChunkRow, dim_name};

/// The report as text.
pub(super) fn text(report: &Report<'_>) -> CliResult<String> {
    let paint = TerminalStyle::stdout();
    let arguments = report.arguments;
    let sections =
        [arguments.layout, arguments.datasets, arguments.chunks, arguments.metadata, arguments.history];
    let plain = !arguments.all && !sections.contains(&true);
    let wants = |section: bool| arguments.all || section;
    if !arguments.keys.is_empty() {
        return Ok(rows(report, paint));
    }
    let mut out = header(report, paint);
    if plain || arguments.all {
        out.push('\n');
        out.push_str(&listing(report, variables::tables(report, paint)));
    }
    if wants(arguments.datasets) {
        out.push('\n');
        out.push_str(&listing(report, arrays(report, paint)));
    }
    if plain || wants(arguments.datasets) {
        out.push_str(&remarks(report, paint));
    }
    if plain {
        out.push_str(&next_steps(report, paint));
    }
    if wants(arguments.layout) {
        out.push_str(&title(paint, "layout"));
        let mut rows = Vec::new();
        flatten(&report.details(), String::new(), &mut rows);
        out.push_str(&paint.table(&["field", "value"], rows));
    }
    if wants(arguments.metadata) {
        out.push_str(&metadata(report, paint));
    }
    if wants(arguments.history) {
        out.push_str(&history(report, paint));
    }
    if wants(arguments.chunks) {
        out.push_str(&chunks(report, paint)?);
    }
    Ok(out)
}

/// Keys of messages, one row each.
fn rows(report: &Report<'_>, paint: TerminalStyle) -> String {
    let keys = messages::keys(&report.arguments.keys);
    let found = report.messages.iter().flatten().map(|row| {
        let shown = |value: &Option<tesseral::Value>| value.as_ref().map(messages::shown);
        row.values.iter().map(|value| shown(value).unwrap_or_else(|| "N/A".to_owned())).collect()
    });
    let found: Vec<Vec<String>> = found.collect();
    paint.table(&keys.iter().map(String::as_str).collect::<Vec<_>>(), found)
}

fn title(paint: TerminalStyle, name: &str) -> String {
    format!("\n{}\n", paint.strong(name))
}

fn header(report: &Report<'_>, paint: TerminalStyle) -> String {
    let container = report.container;
    let mut facts = vec![container.format().title().to_owned()];
    facts.extend(report.size.map(text::size));
    let fields: usize = report.known().map(|known| known.array.schema().fields.len()).sum();
    if report.entries.len() == report.total && report.entries.iter().all(|entry| entry.array.is_ok()) {
        facts.push(text::count(fields as u64, "variable"));
    } else {
        facts.push(text::count(report.total as u64, "array"));
    }
    if report.known().any(|known| known.digests) {
        facts.push("digests".to_owned());
    }
    if !container.history().is_empty() {
        facts.push(text::count(container.history().len() as u64, "history row"));
    }
    let name = report.arguments.source.to_string_lossy();
    let mut out = format!("{}  {}\n", paint.strong(&escape(&name)), facts.join(paint.dot()));
    if let Some(Value::Text(title)) = container.attributes().get("title") {
        out.push_str(&format!("{}\n", escape(title.trim())));
    }
    out
}

/// A table of the arrays, or why there is none.
fn listing(report: &Report<'_>, table: String) -> String {
    match (report.entries.is_empty(), report.total) {
        (true, 0) => "no arrays\n".to_owned(),
        (true, _) => "no matching arrays\n".to_owned(),
        (false, _) => table,
    }
}

/// The arrays as they are stored.
fn arrays(report: &Report<'_>, paint: TerminalStyle) -> String {
    let columns =
        ["name", "dtype", ">shape", "dims", ">chunks", ">chunk", "codec", ">raw", ">stored", ">ratio"];
    paint.table(&columns, report.known().map(|known| array_row(known, paint)))
}

/// Unread arrays, ineffective declarations, and the number of arrays that are not listed.
fn remarks(report: &Report<'_>, paint: TerminalStyle) -> String {
    let mut out = String::new();
    for line in report.container.inner().unread() {
        out.push_str(&format!("{} {}\n", paint.failure("skipped:"), escape(&line)));
    }
    for entry in &report.entries {
        if let Err(error) = &entry.array {
            out.push_str(&format!(
                "{:?} {} {}\n",
                entry.name,
                paint.failure("unreadable:"),
                escape(&error.to_string())
            ));
        }
    }
    for known in report.known() {
        for warning in tesseral_core::missing::warnings(known.array.schema()) {
            let name = escape(known.array.variable_name());
            out.push_str(&format!("{} {name}: {}\n", paint.failure("warning:"), escape(&warning)));
        }
    }
    if report.entries.len() < report.matched.len() {
        let more = format!("{} of {} arrays; --all lists all", report.entries.len(), report.matched.len());
        out.push_str(&paint.faint(&more));
        out.push('\n');
    }
    out
}

fn array_row(known: &ArraySummary, paint: TerminalStyle) -> Vec<String> {
    let schema = known.array.schema();
    let types: Vec<String> = known.fields().iter().map(|f| f.type_name().to_string()).collect();
    let dims: Vec<String> = schema.dims.iter().enumerate().map(|(i, d)| dim_name(d, i)).collect();
    let mut codecs: Vec<&str> =
        known.fields().iter().flat_map(|f| f.codecs.iter().map(String::as_str)).collect();
    codecs.dedup();
    let unknown = || "?".to_owned();
    let raw = known.raw();
    // A ratio for display: two decimals are sufficient.
    let ratio = match (raw, known.stored) {
        (Some(raw), Some(stored)) if stored > 0 => format!("{:.2}", raw as f64 / stored as f64),
        _ => "-".to_owned(),
    };
    let sparse = if schema.sparse { " (sparse)" } else { "" };
    vec![
        schema.name.clone(),
        types.join(", "),
        text::shape(schema.dims.iter().map(|d| d.extent), paint.times()) + sparse,
        dims.join(","),
        known.chunks.map_or_else(unknown, |n| n.to_string()),
        schema
            .chunk_shape
            .as_ref()
            .map_or_else(|| "-".to_owned(), |c| text::shape(c.iter().copied().map(Some), paint.times())),
        if codecs.is_empty() { "raw".to_owned() } else { codecs.join("+") },
        raw.map_or_else(unknown, text::size),
        known.stored.map_or_else(unknown, text::size),
        ratio,
    ]
}

/// Suggested commands, for the data variable of the most dimensions. Variables with a `cf_role` describe others: the tables of an
/// unstructured mesh, and identifiers of stations.
fn next_steps(report: &Report<'_>, paint: TerminalStyle) -> String {
    let rank = |known: &&ArraySummary| {
        let schema = known.array.schema();
        let data = known.role == VariableRole::Data && schema.attributes.get("cf_role").is_none();
        (data, schema.dims.len())
    };
    // The first of equals.
    let known = report.known().collect::<Vec<_>>().into_iter().rev().max_by_key(rank);
    let Some(known) = known else { return String::new() };
    let schema = known.array.schema();
    let source = shell_quoted(&report.arguments.source.to_string_lossy());
    let mut name = String::new();
    if report.total > 1 {
        let variable = known.array.variable_name();
        // Names that several listed arrays share are not searched.
        let alone = report.known().filter(|known| known.array.variable_name() == variable).count() == 1;
        let unique = alone && report.container.array(variable).is_ok();
        name = format!(" {}", shell_quoted(if unique { variable } else { &schema.name }));
    }
    // The first data variable among the fields.
    let data = known.array.field_roles().iter().position(|role| *role == VariableRole::Data).unwrap_or(0);
    if let ([_, _, ..], Some(first)) = (schema.fields.as_slice(), schema.fields.get(data)) {
        let lead = if report.total > 1 { format!("{name}/") } else { " ".to_owned() };
        name = lead + &shell_quoted(&first.name);
    }
    let first = match schema.dims.first() {
        Some(dim) if schema.dims.len() > 1 && !schema.sparse && dim.extent.is_some_and(|n| n > 1) => {
            format!(" {}", shell_quoted(&format!("{}=0", dim_name(dim, 0))))
        }
        _ => String::new(),
    };
    let mut steps = vec![format!("tet cat {source}{name}{first}"), format!("tet stat {source}{name}")];
    // A mean for each day of a part, with the coordinates of an axis as an example of a range.
    let axes: Vec<&Dimension> = schema.dims.iter().map(|dim| coordinates(report, dim)).collect();
    let timed = axes.iter().find(|dim| dim.counts_time() && dim.extent.is_some_and(|n| n > 1));
    if let Some(dim) = timed.filter(|_| axes.len() > 1 && !schema.sparse) {
        let mut others = axes.iter().filter(|dim| !dim.counts_time() && !dim.name.is_empty());
        let range = others.find_map(|dim| Some((dim, variables::ends(dim)?)));
        let range = range.map_or_else(String::new, |(dim, (low, high))| {
            format!(" {}", shell_quoted(&format!("{}={low}..{high}", dim.name)))
        });
        let by = shell_quoted(&format!("{}.date", dim.name));
        steps.push(format!("tet stat {source}{name}{range} --mean --by {by}"));
    }
    let number = |field: &Field| {
        let class = field.dtype.class();
        field.cell == CellLen::One && matches!(class, Class::Int | Class::UInt | Class::Float)
    };
    if schema.fields.get(data).is_some_and(number) && schema.dims.iter().all(|dim| dim.extent.is_some()) {
        steps.push(format!("tet plot {source}{name}"));
    }
    let steps: Vec<String> = steps.iter().map(|step| escape(step).into_owned()).collect();
    format!("\n{} {}\n", paint.faint("next:"), steps.join("\n      "))
}

/// A dimension as its coordinate variable has it, which knows the coordinates, if there is one.
fn coordinates<'a>(report: &'a Report<'_>, dim: &'a Dimension) -> &'a Dimension {
    let own = |known: &&ArraySummary| {
        known.role == VariableRole::Index && known.array.schema().dims.iter().any(|own| own.name == dim.name)
    };
    let found = report.known().find(own).and_then(|known| known.array.schema().dims.first());
    found.filter(|own| own.extent == dim.extent).unwrap_or(dim)
}

/// One row per leaf of a JSON object.
fn flatten(value: &Json, path: String, rows: &mut Vec<Vec<String>>) {
    let join = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Json::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(name, value)| flatten(value, join(name), rows));
        }
        Json::Array(list) if list.iter().any(Json::is_object) => {
            list.iter().enumerate().for_each(|(i, value)| flatten(value, join(&i.to_string()), rows));
        }
        Json::Null => rows.push(vec![path, "none".to_owned()]),
        Json::String(text) => rows.push(vec![path, text.clone()]),
        other => rows.push(vec![path, other.to_string()]),
    }
}

fn metadata(report: &Report<'_>, paint: TerminalStyle) -> String {
    let mut rows = Vec::new();
    for (name, value) in report.container.attributes() {
        rows.push(vec!["(file)".to_owned(), name.clone(), value.to_string()]);
    }
    for known in report.known() {
        let schema = known.array.schema();
        for (name, value) in &schema.attributes {
            rows.push(vec![schema.name.clone(), name.clone(), value.to_string()]);
        }
        for (i, dim) in schema.dims.iter().enumerate() {
            let Some(labels) = &dim.labels else { continue };
            const SHOWN: usize = 64;
            let shown = (0..labels.len().min(SHOWN)).filter_map(|i| dim.coordinate_text(i as u64));
            let mut shown = shown.collect::<Vec<_>>().join(", ");
            if labels.len() > SHOWN {
                shown.push_str(&format!(", … ({} in total)", labels.len()));
            }
            rows.push(vec![schema.name.clone(), format!("labels of {}", dim_name(dim, i)), shown]);
        }
    }
    if rows.is_empty() {
        return format!("{}none\n", title(paint, "metadata"));
    }
    title(paint, "metadata") + &paint.table(&["array", "name", "value"], rows)
}

fn history(report: &Report<'_>, paint: TerminalStyle) -> String {
    let rows = report.container.history();
    if rows.is_empty() {
        return format!("{}none\n", title(paint, "history"));
    }
    let shown = rows.iter().enumerate().map(|(i, row)| {
        vec![i.to_string(), row.op.clone(), row.source.clone(), row.at.clone(), date(&row.at)]
    });
    title(paint, "history") + &paint.table(&[">#", "op", "source", ">at", "date (UTC)"], shown)
}

/// Formats seconds since 1970 as a date, if the text is a number.
fn date(at: &str) -> String {
    let mut out = String::new();
    if let Ok(seconds) = at.parse() {
        // Writing to a `String` is infallible.
        let _ = time::write(&mut out, seconds, TimeUnit::Second);
    }
    out
}

fn chunks(report: &Report<'_>, paint: TerminalStyle) -> CliResult<String> {
    let limit = report.arguments.rows;
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut left = limit;
    let mut total = 0;
    for known in report.known() {
        total += known.chunks.unwrap_or(0);
        if limit > 0 && left == 0 {
            continue;
        }
        for row in known.chunk_rows(left)? {
            left = left.saturating_sub(1);
            let extra = about(&row);
            let chunk = row.info;
            rows.push(vec![
                rows.len().to_string(),
                known.array.name().to_owned(),
                chunk.coords.iter().map(u64::to_string).collect::<Vec<_>>().join(","),
                chunk.raw_len.to_string(),
                chunk.stored_len.to_string(),
                chunk.codec,
                chunk.offset.to_string(),
                extra,
            ]);
        }
    }
    let shown = rows.len() as u64;
    let mut out = title(paint, "chunks");
    let mut columns = vec![">#", "array", "coords", ">raw", ">stored", "codec", ">offset", "about"];
    if rows.iter().all(|row| row.last().is_none_or(String::is_empty)) {
        columns.pop();
        rows.iter_mut().for_each(|row| drop(row.pop()));
    }
    out.push_str(&paint.table(&columns, rows));
    if shown < total {
        out.push_str(&paint.faint(&format!("{shown} of {total} chunks; -n 0 lists all")));
        out.push('\n');
    }
    Ok(out)
}

/// Coordinate bounds of a sparse chunk, and minimum and maximum of each field.
fn about(row: &ChunkRow) -> String {
    let range = |low: &Scalar, high: &Scalar| format!("{low}..{high}");
    let bounds = row.bounds.iter().flatten().map(|(low, high)| range(low, high)).collect::<Vec<_>>();
    let mut parts = Vec::new();
    if row.bounds.is_some() {
        parts.push(format!("{} in [{}]", text::count(row.cells, "cell"), bounds.join(", ")));
    }
    for (name, stats) in &row.statistics {
        if let (Some(min), Some(max)) = (stats.min.bound(), stats.max.bound()) {
            parts.push(format!("{name} {}", range(min, max)));
        }
    }
    parts.join("  ")
}

/// One line with the keys of the reference's output.
pub(super) fn line(report: &Report<'_>) -> CliResult<String> {
    let details = report.details();
    let size = report.size.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let mut chunks = 0;
    report.each(&mut |entry| {
        chunks += entry.array.ok().and_then(|known| known.chunks).unwrap_or(0);
        Ok(())
    })?;
    let layout = ["/superblock/layout_version", "/layout_version", "/version"].into_iter();
    let layout = layout.filter_map(|path| details.pointer(path)).find_map(Json::as_u64);
    Ok(format!(
        "path={} file_len={size}{} datasets={} chunks={chunks} history={}\n",
        escape(&report.arguments.source.to_string_lossy()),
        layout.map_or_else(String::new, |version| format!(" layout={version}")),
        report.matched.len(),
        report.container.history().len(),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_flatten_to_leaves() {
        let mut rows = Vec::new();
        let value = serde_json::json!({"a": {"b": 1, "c": null}, "d": [1, 2], "e": [{"f": "g"}]});
        flatten(&value, String::new(), &mut rows);
        let rows: Vec<String> = rows.iter().map(|r| r.join("=")).collect();
        assert_eq!(rows, ["a.b=1", "a.c=none", "d=[1,2]", "e.0.f=g"]);
    }

    #[test]
    fn only_numbers_are_formatted_as_dates() {
        assert_eq!(date("0"), "1970-01-01T00:00:00");
        assert_eq!(date("yesterday"), "");
    }
}
