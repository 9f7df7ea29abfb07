//! The variables of a dataset as text: data first, then coordinates with their ranges, groups as a tree.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};

use tesseral::{Array, ArraySchema, CellLen, Dimension, Field, Scalar};
use tesseral_core::calendar::TimeUnits;
use tesseral_core::description;
use tesseral_core::schema::VariableRole;

use tesseral_display::{ArraySummary, dim_name};

use super::Report;
use crate::terminal_style::TerminalStyle;
use crate::text;

/// Longest description shown, in characters.
const DESCRIPTION: usize = 48;
/// Most cells of an auxiliary coordinate that are read for its range.
const SMALL: u64 = 1 << 16;
/// Longest coordinate of a range, in characters.
const COORDINATE: usize = 28;

/// Columns of the table of data variables, after the name.
const DATA: [&str; 8] = ["object", "dtype", "dims", "units", "description", "chunk", "codec", ">stored"];
/// Columns of the table of coordinates, after the name.
const COORDINATES: [&str; 6] = ["object", ">size", "range", "units", "dtype", "description"];

/// A row of a table: a variable, or the name of a group or of an array of several fields.
struct TableRow {
    /// Names of the groups it is in.
    groups: Vec<String>,
    name: String,
    cells: Vec<String>,
}

/// Tables of data variables, coordinates, and bounds and the like, each with its title.
pub(super) fn tables(report: &Report<'_>, paint: TerminalStyle) -> String {
    let mut tables = [
        ("variables", &DATA[..], Vec::new()),
        ("coordinates", &COORDINATES[..], Vec::new()),
        ("bounds and other variables", &DATA[..], Vec::new()),
    ];
    for known in report.known() {
        let fields = fields_apart(known);
        for known in if fields.is_empty() { std::slice::from_ref(known) } else { &fields } {
            let (number, rows) = match known.role {
                VariableRole::Data => (0, data_rows(report, known, paint)),
                role if role.is_coordinate() => (1, vec![coordinate_row(report, known, paint)]),
                _ => (2, data_rows(report, known, paint)),
            };
            tables[number].2.extend(rows);
        }
    }
    tables[1].2.extend(dimension_rows(report, paint));
    let rows = tables.iter().flat_map(|(_, _, rows)| rows);
    let within = rows.flat_map(|row| (1..=row.groups.len()).map(|depth| row.groups[..depth].to_vec()));
    let shown: HashSet<Vec<String>> = within.collect();
    let paths = report.container.groups().keys();
    let all = paths.map(|path| path.split('/').map(str::to_owned).collect::<Vec<String>>());
    let empty = all.filter(|groups| !shown.contains(groups));
    tables[0].2.extend(empty.map(|groups| TableRow { groups, name: String::new(), cells: Vec::new() }));
    // One kind alone needs no title.
    let titled = tables.iter().filter(|table| !table.2.is_empty()).count() > 1;
    let mut out = String::new();
    for (title, columns, rows) in tables.into_iter().filter(|table| !table.2.is_empty()) {
        if !out.is_empty() {
            out.push('\n');
        }
        out.push_str(&table(if titled { title } else { "name" }, columns, rows, paint));
    }
    out
}

/// The fields of an array that is the whole container: variables of their own. None for other arrays, and for very many fields.
fn fields_apart(known: &ArraySummary) -> Vec<ArraySummary> {
    /// Each field is described separately, which takes time.
    const FIELDS: usize = 64;
    let count = known.fields().len();
    if !known.array.is_whole() || !(2..=FIELDS).contains(&count) {
        return Vec::new();
    }
    let roles = (0..).zip(known.array.field_roles());
    let field = |(number, role)| {
        let array = known.array.clone().field_at(number).ok()?;
        ArraySummary::new(array, role, Some(number)).ok()
    };
    roles.map(field).collect::<Option<_>>().unwrap_or_default()
}

/// A table without its empty columns. Rows of a group follow its name.
fn table(title: &str, columns: &[&str], rows: Vec<TableRow>, paint: TerminalStyle) -> String {
    let mut by_group: BTreeMap<Vec<String>, Vec<TableRow>> = BTreeMap::new();
    for row in rows {
        by_group.entry(row.groups.clone()).or_default().push(row);
    }
    let mut lines: Vec<(String, Vec<String>)> = Vec::new();
    let mut open: Vec<String> = Vec::new();
    for (groups, rows) in by_group {
        let shared = open.iter().zip(&groups).take_while(|(a, b)| a == b).count();
        for (depth, name) in groups.iter().enumerate().skip(shared) {
            lines.push((format!("{}{name}/", indent(depth)), Vec::new()));
        }
        let named = rows.into_iter().filter(|row| !row.name.is_empty());
        lines.extend(named.map(|row| (indent(groups.len()) + &row.name, row.cells)));
        open = groups;
    }
    let filled =
        |column: &usize| lines.iter().any(|(_, cells)| cells.get(*column).is_some_and(|c| !c.is_empty()));
    let shown: Vec<usize> = (0..columns.len()).filter(filled).collect();
    // Columns of numbers are aligned right, unless they contain words.
    let words = |column: usize| {
        let mut cells = lines.iter().filter_map(|(_, cells)| cells.get(column));
        columns[column] == ">size" && cells.any(|cell| cell.contains(' '))
    };
    let head = |i: &usize| if words(*i) { columns[*i].trim_start_matches('>') } else { columns[*i] };
    let header: Vec<&str> = std::iter::once(title).chain(shown.iter().map(head)).collect();
    let line = |(name, cells): (String, Vec<String>)| {
        let cells = shown.iter().map(|i| cells.get(*i).cloned().unwrap_or_default()).collect::<Vec<_>>();
        std::iter::once(name).chain(cells).collect()
    };
    paint.table(&header, lines.into_iter().map(line).collect::<Vec<Vec<String>>>())
}

fn indent(depth: usize) -> String {
    "  ".repeat(depth)
}

/// Groups and name of an array or its only field, and its number in the file if its name is not its own.
fn place(report: &Report<'_>, known: &ArraySummary) -> (Vec<String>, String, String) {
    let array = &known.array;
    let number = array.name();
    let given = match known.fields() {
        [field] if array.is_whole() => array.field_variable(field),
        _ => array.variable_name().to_owned(),
    };
    let object =
        if report.container.format().messages().is_some() { number.to_owned() } else { String::new() };
    if given == number && !object.is_empty() {
        return (Vec::new(), number.to_owned(), String::new());
    }
    let mut groups: Vec<String> = given.split('/').map(str::to_owned).collect();
    let name = groups.pop().unwrap_or_default();
    (groups, name, object)
}

/// The rows of an array: one, or that of the array and those of its fields.
fn data_rows(report: &Report<'_>, known: &ArraySummary, paint: TerminalStyle) -> Vec<TableRow> {
    let (groups, name, object) = place(report, known);
    if let [field] = known.fields() {
        let cells = data_cells(known, object, Some(field), true, paint);
        return vec![TableRow { groups, name, cells }];
    }
    let name = if known.fields().is_empty() { name } else { name + "/" };
    let head = TableRow { groups: groups.clone(), name, cells: data_cells(known, object, None, true, paint) };
    let field = |field| TableRow {
        groups: groups.clone(),
        name: indent(1) + &field_name(field),
        cells: data_cells(known, String::new(), Some(field), false, paint),
    };
    std::iter::once(head).chain(known.fields().iter().map(field)).collect()
}

/// Name of a field; some formats have one without a name.
fn field_name(field: &Field) -> String {
    if field.name.is_empty() { "(unnamed)".to_owned() } else { field.name.clone() }
}

/// Cells of a row in the order of [`DATA`]: those of a field, those of its array, or both.
fn data_cells(
    known: &ArraySummary,
    object: String,
    field: Option<&Field>,
    array: bool,
    paint: TerminalStyle,
) -> Vec<String> {
    let schema = known.array.schema();
    let of_field = |text: &dyn Fn(&Field) -> String| field.map(text).unwrap_or_default();
    let of_array = |text: &dyn Fn() -> String| if array { text() } else { String::new() };
    vec![
        object,
        of_field(&|field| dtype(schema, field)),
        of_array(&|| dims(schema, paint)),
        of_field(&|field| description::units(schema, field).to_string()),
        of_field(&|field| described(schema, field)),
        of_array(&|| chunk(schema, paint)),
        of_field(&|field| field.codecs.join("+")),
        of_array(&|| known.stored.map(text::size).unwrap_or_default()),
    ]
}

/// The dtype as people see its values, and the stored one if they differ.
fn dtype(schema: &ArraySchema, field: &Field) -> String {
    match tesseral_core::packing::packing(schema, field) {
        Some(packing) => format!("{} ({} packed)", packing.physical, field.type_name()),
        None => field.type_name().to_string(),
    }
}

fn dims(schema: &ArraySchema, paint: TerminalStyle) -> String {
    let sparse = if schema.sparse { " (sparse)" } else { "" };
    if schema.dims.iter().all(|dim| dim.name.is_empty()) {
        return text::shape(schema.dims.iter().map(|dim| dim.extent), paint.times()) + sparse;
    }
    let dim_text = |(i, dim): (usize, &Dimension)| match dim.extent {
        Some(extent) => format!("{} {extent}", dim_name(dim, i)),
        None => dim_name(dim, i),
    };
    schema.dims.iter().enumerate().map(dim_text).collect::<Vec<_>>().join(", ") + sparse
}

fn chunk(schema: &ArraySchema, paint: TerminalStyle) -> String {
    let whole = schema.shape();
    match &schema.chunk_shape {
        Some(chunk) if !chunk.is_empty() && Some(chunk) != whole.as_ref() => {
            text::shape(chunk.iter().copied().map(Some), paint.times())
        }
        _ => String::new(),
    }
}

fn described(schema: &ArraySchema, field: &Field) -> String {
    shorten(description::long_name(schema, field).unwrap_or_default(), DESCRIPTION)
}

fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

/// First and last coordinate.
fn range(first: &str, last: &str, paint: TerminalStyle) -> String {
    let (first, last) = (shorten(first, COORDINATE), shorten(last, COORDINATE));
    if first == last { first } else { format!("{first} {} {last}", paint.ellipsis()) }
}

fn coordinate_row(report: &Report<'_>, known: &ArraySummary, paint: TerminalStyle) -> TableRow {
    let schema = known.array.schema();
    let field = known.array.selected_field();
    let (groups, name, object) = place(report, known);
    let index = schema.dims.first().filter(|_| known.role == VariableRole::Index);
    let range = match index {
        Some(dim) => {
            ends(dim).map(|(first, last)| range(&text_of(dim.time, &first), &text_of(dim.time, &last), paint))
        }
        None => extremes(&known.array).map(|(least, most)| range(&least, &most, paint)),
    };
    let size = match schema.dims.as_slice() {
        [] => String::new(),
        [dim] if known.role == VariableRole::Index => dim.extent.map(|n| n.to_string()).unwrap_or_default(),
        _ => dims(schema, paint),
    };
    let cells = vec![
        object,
        size,
        range.unwrap_or_default(),
        description::units(schema, field).to_string(),
        dtype(schema, field),
        described(schema, field),
    ];
    TableRow { groups, name, cells }
}

/// The first and the last label of a dimension.
pub(super) fn ends(dim: &Dimension) -> Option<(Scalar, Scalar)> {
    let labels = dim.labels.as_ref()?;
    Some((labels.get(0)?, labels.get(labels.len().checked_sub(1)?)?))
}

/// Smallest and largest value of a small auxiliary coordinate, as people read them.
fn extremes(array: &Array) -> Option<(String, String)> {
    let array = array.clone().physical();
    let field = array.selected_field();
    let all = array.all().ok()?;
    let size = field.cell_size().filter(|_| field.cell == CellLen::One)?;
    if all.cells()? > SMALL {
        return None;
    }
    let cells = array.read(&all).ok()?;
    let valid = |i: usize| cells.validity().is_none_or(|validity| validity.get(i) != Some(&0));
    let scalars = cells.bytes().chunks_exact(size).enumerate();
    let mut scalars = scalars
        .filter(|(i, _)| valid(*i))
        .filter_map(|(_, cell)| Scalar::from_le_bytes(field.dtype, cell).ok());
    let first = scalars.next()?;
    let (least, most) = scalars.fold((first.clone(), first), |(least, most), cell| {
        let (below, above) = (cell.compare(&least), cell.compare(&most));
        if below == Some(Ordering::Less) {
            (cell, most)
        } else if above == Some(Ordering::Greater) {
            (least, cell)
        } else {
            (least, most)
        }
    });
    Some((text_of(field.time, &least), text_of(field.time, &most)))
}

/// A value as people read it: a date, if it counts time.
fn text_of(time: Option<TimeUnits>, value: &Scalar) -> String {
    let date = time.and_then(|units| units.at(value));
    date.map_or_else(|| value.to_string(), |date| date.to_string())
}

/// Coordinates that dimensions have without a variable: labels that the format stores with an array, the coordinates that the
/// cells of a sparse array fill, or a domain other than positions from 0.
fn dimension_rows(report: &Report<'_>, paint: TerminalStyle) -> Vec<TableRow> {
    let mut seen: HashSet<(String, String)> = HashSet::new();
    let coordinate = |known: &&ArraySummary| known.role.is_coordinate();
    for known in report.known().filter(coordinate) {
        let (_, name, _) = place(report, known);
        seen.insert((
            name,
            known.array.schema().dims.first().and_then(|dim| dim.extent).unwrap_or(0).to_string(),
        ));
    }
    let mut rows = Vec::new();
    for known in report.known() {
        let schema = known.array.schema();
        for (number, dim) in schema.dims.iter().enumerate() {
            let filled = known.non_empty.as_ref().and_then(|domain| domain.as_ref()?.get(number).cloned());
            let filled = filled.filter(|_| schema.sparse);
            let found = ends(dim).or(filled).or_else(|| domain(schema, dim));
            let Some((first, last)) = found.filter(|_| !known.role.is_coordinate()) else { continue };
            let name = dim_name(dim, number);
            let size = dim.extent.map(|n| n.to_string()).unwrap_or_default();
            if seen.contains(&(name.clone(), size.clone())) {
                continue;
            }
            let range = range(&text_of(dim.time, &first), &text_of(dim.time, &last), paint);
            if !seen.insert((name.clone(), format!("{size} {range}"))) {
                continue;
            }
            let dtype = first.dtype().to_string();
            let cells = vec![String::new(), size, range, String::new(), dtype, String::new()];
            rows.push(TableRow { groups: Vec::new(), name, cells });
        }
    }
    rows
}

/// The domain of a dimension, if it does not follow from its length.
fn domain(schema: &ArraySchema, dim: &Dimension) -> Option<(Scalar, Scalar)> {
    let (first, last) = dim.domain.clone()?;
    (schema.sparse || first.as_i128() != Some(0)).then_some((first, last))
}
