//! Comparison of two containers: structure, metadata and cells.

mod sparse;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use tesseral_core::dtype::Class;
use tesseral_core::{Attributes, ChunkGrid, DType, Dimension, Field, Result, Selection, Value};
use tesseral_engine::kernel::compare::{Comparison, Tolerance};
use tesseral_engine::{
    Cells, Options, Work, check_held, check_pair, column_validity, has_gaps, read_bits, read_column,
    work_space,
};

use crate::convert::{compare_columns, default_memory, grown, position};
use tesseral_dataset::variable::{Variable, VariableNames, plain_name};
use tesseral_dataset::{Array, Container};
use tesseral_format::Groups;

/// Options of a comparison.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DiffOptions {
    /// Arrays or fields to compare; empty for all.
    pub arrays: Vec<String>,
    /// Absolute tolerance of numbers.
    pub max_abs_error: Option<f64>,
    /// Tolerance relative to the left number.
    pub max_rel_error: Option<f64>,
    /// Do not compare cells.
    pub metadata_only: bool,
    /// Compare cells as they are stored: nulls, unwritten cells and declared missing values differ from one another. Otherwise
    /// missing cells are equal, regardless of why they are missing.
    pub stored: bool,
    /// Threads, memory, cancellation and progress.
    pub execution: Options,
}

impl DiffOptions {
    /// The default options: compare every cell of every array exactly.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an array or field to compare.
    #[must_use]
    pub fn array(mut self, name: impl Into<String>) -> Self {
        self.arrays.push(name.into());
        self
    }

    /// Sets the absolute tolerance of numbers.
    #[must_use]
    pub fn max_abs_error(mut self, error: f64) -> Self {
        self.max_abs_error = Some(error);
        self
    }

    /// Sets the tolerance relative to the left number.
    #[must_use]
    pub fn max_rel_error(mut self, error: f64) -> Self {
        self.max_rel_error = Some(error);
        self
    }

    /// Does not compare cells.
    #[must_use]
    pub fn metadata_only(mut self) -> Self {
        self.metadata_only = true;
        self
    }

    /// Compares cells as they are stored, missing ones too.
    #[must_use]
    pub fn stored(mut self) -> Self {
        self.stored = true;
        self
    }

    /// Sets threads, memory, cancellation and progress.
    #[must_use]
    pub fn execution(mut self, options: Options) -> Self {
        self.execution = options;
        self
    }
}

/// Result of a comparison.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Difference {
    /// Differences of structure and metadata.
    pub notes: Vec<MetadataDifference>,
    /// Differences of cells, one entry per compared pair of fields.
    pub values: Vec<ValueDifference>,
}

/// A difference of structure or metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MetadataDifference {
    /// The array or field; `None` for the container.
    pub array: Option<String>,
    /// Subject: `dtype`, `shape`, `attribute units`.
    pub what: String,
    /// Left value; `None` if absent.
    pub left: Option<String>,
    /// Right value; `None` if absent.
    pub right: Option<String>,
}

/// Difference of the cells of one field.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ValueDifference {
    /// Name of the field.
    pub name: String,
    /// Number of compared cells; for sparse arrays, those of either side.
    pub cells: u64,
    /// Number of cells that differ by more than the tolerance, or exist on one side only.
    pub differing: u64,
    /// Number of cells of sparse arrays that only the left side has.
    pub only_left: u64,
    /// Number of cells of sparse arrays that only the right side has.
    pub only_right: u64,
    /// The first differing cell.
    pub first: Option<FirstDifference>,
    /// Largest absolute difference of two numbers, within the tolerance or not.
    pub max_abs: Option<f64>,
    /// Largest difference relative to the left number.
    pub max_rel: Option<f64>,
}

/// The first differing cell.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct FirstDifference {
    /// Position in a dense array; empty for sparse arrays.
    pub position: Vec<u64>,
    /// Coordinates in a sparse array; empty for dense arrays.
    pub coordinates: Vec<String>,
    /// Left value; `None` for a missing cell.
    pub left: Option<String>,
    /// Right value; `None` for a missing cell.
    pub right: Option<String>,
    /// The only side that has the cell.
    pub only: Option<Side>,
}

/// One of the two sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Side {
    Left,
    Right,
}

impl Difference {
    /// Returns whether nothing differs.
    pub fn is_same(&self) -> bool {
        self.notes.is_empty() && self.values.iter().all(|v| v.differing == 0)
    }
}

/// Compares two containers of any format. Cells are equal if both are missing, or if neither is and their bits are equal. Does not
/// compare the layout (chunks, codecs, fields of one array or several) and the history.
///
/// # Errors
/// Errors of reading.
pub fn diff(left: &Container, right: &Container, options: &DiffOptions) -> Result<Difference> {
    let mut out = Difference::default();
    let (left_groups, right_groups) = (left.groups(), right.groups());
    let (mut left, mut right) =
        (VariableNames::new(left, &options.arrays)?, VariableNames::new(right, &options.arrays)?);
    attributes(None, &left.attributes, &right.attributes, &mut out.notes);
    groups(left_groups, right_groups, &mut out.notes);
    let (mut sparse, mut work) = (Vec::new(), Work::default());
    let pairs = pairs(&left, &right);
    for (a, b) in pairs.iter().filter_map(|(a, b)| a.zip(*b)).filter(|_| !options.metadata_only) {
        options.execution.cancel.check()?;
        for array in [left.variable(a)?.array, right.variable(b)?.array] {
            if !array.schema().sparse {
                work.add(array.handle(), &array.request(&array.all()?))?;
            }
        }
    }
    for (a, b) in pairs {
        options.execution.cancel.check()?;
        let a = a.map(|a| left.variable(a)).transpose()?;
        let b = b.map(|b| right.variable(b)).transpose()?;
        match (a, b) {
            (Some(a), Some(b)) => {
                if pair(&a, &b, options, &mut out)? {
                    sparse.push((a, b));
                }
            }
            (a, b) => out.notes.push(MetadataDifference {
                array: a.as_ref().or(b.as_ref()).map(|v| v.name.clone()),
                what: "array".to_owned(),
                left: a.as_ref().map(summary),
                right: b.as_ref().map(summary),
            }),
        }
    }
    // Fields of one sparse array are compared together, because they share coordinates.
    for fields in
        sparse.chunk_by(|a, b| a.0.array.name() == b.0.array.name() && a.1.array.name() == b.1.array.name())
    {
        let fields: Vec<(&Variable, &Variable)> = fields.iter().map(|(a, b)| (a, b)).collect();
        out.values.extend(sparse::values(&fields, options)?);
    }
    Ok(out)
}

/// Compares the attributes of groups by path.
fn groups(left: &Groups, right: &Groups, out: &mut Vec<MetadataDifference>) {
    let none = Attributes::new();
    let group_attributes = |groups: &'_ Groups, path: &str| groups.get(path).unwrap_or(&none).clone();
    let paths: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for path in paths {
        attributes(Some(path), &group_attributes(left, path), &group_attributes(right, path), out);
    }
}

/// Pairs of variables with the same name, or the only ones of either side, by index.
fn pairs(left: &VariableNames<'_>, right: &VariableNames<'_>) -> Vec<(Option<usize>, Option<usize>)> {
    if left.len() == 1 && right.len() == 1 {
        return vec![(Some(0), Some(0))];
    }
    let by_name: HashMap<&str, usize> = right.names().zip(0..).collect();
    let mut out: Vec<_> =
        left.names().zip(0..).map(|(name, a)| (Some(a), by_name.get(name).copied())).collect();
    let known: HashSet<&str> = left.names().collect();
    out.extend(
        right.names().zip(0..).filter(|(name, _)| !known.contains(name)).map(|(_, b)| (None, Some(b))),
    );
    out
}

fn summary(variable: &Variable) -> String {
    let shape = variable.array.schema().shape();
    let shape = shape.map_or_else(|| "?".to_owned(), |s| format!("{:?}", s.as_slice()));
    format!("{} {shape}", variable.array.selected_field().type_name())
}

/// Compares two variables; returns whether they are sparse and their cells remain to be compared.
fn pair(a: &Variable, b: &Variable, options: &DiffOptions, out: &mut Difference) -> Result<bool> {
    let mut note = |what: &str, left: String, right: String| {
        if left != right {
            out.notes.push(MetadataDifference {
                array: Some(a.name.clone()),
                what: what.to_owned(),
                left: Some(left),
                right: Some(right),
            });
        }
    };
    let (left, right) = (a.array.schema(), b.array.schema());
    let (field, other) = (a.array.selected_field(), b.array.selected_field());
    let shown = |shape: Option<tesseral_core::Coords>| {
        shape.map_or_else(|| "?".to_owned(), |s| format!("{:?}", s.as_slice()))
    };
    note("dtype", field.type_name().to_string(), other.type_name().to_string());
    note("shape", shown(left.shape()), shown(right.shape()));
    note("sparse", left.sparse.to_string(), right.sparse.to_string());
    note("role", left.role.name().to_owned(), right.role.name().to_owned());
    note("missing values", declared(field), declared(other));
    note("duplicates", left.allows_duplicates.to_string(), right.allows_duplicates.to_string());
    for (d, (x, y)) in left.dims.iter().zip(&right.dims).enumerate() {
        note(&format!("name of dimension {d}"), plain_name(x), plain_name(y));
        if let Some((x, y)) = coordinates(x, y) {
            note(&format!("coordinates of dimension {d}"), x, y);
        }
    }
    attributes(Some(&a.name), &a.attributes, &b.attributes, &mut out.notes);
    let same_cells = field.type_name().to_string() == other.type_name().to_string()
        && left.dims.iter().map(|d| d.dtype).eq(right.dims.iter().map(|d| d.dtype))
        && left.shape() == right.shape()
        && left.sparse == right.sparse;
    if !same_cells || options.metadata_only {
        return Ok(false);
    }
    if !left.sparse {
        out.values.push(values(a, b, options)?);
    }
    Ok(left.sparse)
}

/// Declared missing values in a common order.
fn declared(field: &Field) -> String {
    let mut values: Vec<String> = field.missing.iter().map(ToString::to_string).collect();
    values.sort_unstable();
    values.join(", ")
}

/// Returns the first differing coordinate along a dimension, with its dtype where only that differs.
fn coordinates(a: &Dimension, b: &Dimension) -> Option<(String, String)> {
    let extent = a.extent.filter(|extent| b.extent == Some(*extent))?;
    let text = |dim: &Dimension, i: u64| dim.coordinate(i).map_or_else(|| i.to_string(), |c| c.to_string());
    // Without labels, one coordinate determines all of them.
    let looked_at = if a.labels.is_some() || b.labels.is_some() { extent } else { extent.min(1) };
    if let Some(differing) = (0..looked_at).map(|i| (text(a, i), text(b, i))).find(|(x, y)| x != y) {
        return Some(differing);
    }
    let typed = |dim: &Dimension| {
        let label = dim.labels.as_ref().and_then(|labels| labels.get(0))?;
        Some(format!("{label} ({})", label.dtype()))
    };
    typed(a).zip(typed(b)).filter(|(x, y)| x != y)
}

/// Attributes are equal if their types and bits are. Where only the type differs, it is part of the text.
fn attributes(array: Option<&str>, left: &Attributes, right: &Attributes, out: &mut Vec<MetadataDifference>) {
    let names: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
    for name in names {
        let (a, b) = (left.get(name), right.get(name));
        if a != b {
            let alike = a.map(Value::to_string) == b.map(Value::to_string);
            let text = |value: &Value| match alike {
                true => format!("{value} ({})", value.type_name()),
                false => value.to_string(),
            };
            let (left, right) = (a.map(text), b.map(text));
            let array = array.map(str::to_owned);
            out.push(MetadataDifference { array, what: format!("attribute {name}"), left, right });
        }
    }
}

fn values(a: &Variable, b: &Variable, options: &DiffOptions) -> Result<ValueDifference> {
    let tolerance = Tolerance { abs: options.max_abs_error, rel: options.max_rel_error };
    let (fields, selection) = ([&a.array, &b.array].map(compared), a.array.all()?);
    let field = &fields[0];
    let shape = selection.shape();
    // The bytes and the validity of a cell.
    let cell = field.cell_size().map_or(32, |n| n as u64) + 1;
    let memory = options.execution.memory.unwrap_or_else(default_memory);
    let chunk = a.array.schema().chunk_shape.clone().unwrap_or_else(|| shape.clone());
    for array in [&a.array, &b.array] {
        let clipped: Vec<u64> = chunk.iter().zip(&shape).map(|(chunk, n)| *chunk.min(n)).collect();
        check_held(array.handle(), &array.request(&selection), &clipped)?;
        // A chunk of either side.
        let pair = clipped.iter().fold(cell.saturating_mul(2), |n, extent| n.saturating_mul(*extent));
        check_pair(array.handle(), &array.request(&selection), pair)?;
    }
    let memory = work_space(a.array.handle(), &a.array.request(&selection), memory)?;
    let blocks = ChunkGrid::new(&shape, &grown(&shape, &chunk, cell, memory / 8))?;
    let total = selection.cells().unwrap_or(u64::MAX);
    let mut comparison = Comparison::default();
    let mut first = None;
    let mut pair = [Cells::for_field(field), Cells::for_field(&fields[1])];
    let gaps = |array: &Array| -> Result<bool> {
        Ok(!options.stored && has_gaps(array.handle(), &array.request(&selection))?)
    };
    let gaps: [bool; 2] = [gaps(&a.array)?, gaps(&b.array)?];
    let declared_alike = declared(field) == declared(&fields[1]);
    for number in 0..blocks.total() {
        options.execution.cancel.check()?;
        let part = Selection::from_region(&blocks.region(&blocks.coords(number)));
        for (array, column) in [&a.array, &b.array].into_iter().zip(&mut pair) {
            load(array, &part, column, &options.execution)?;
        }
        if !(options.stored || declared_alike && gaps == [false; 2] && pair[0] == pair[1]) {
            for (((array, field), column), gaps) in
                [&a.array, &b.array].into_iter().zip(&fields).zip(&mut pair).zip(gaps)
            {
                mark_missing(array, field, &part, column, gaps)?;
            }
        }
        let [left, right] = &pair;
        let mut block =
            Comparison { max_abs: comparison.max_abs, max_rel: comparison.max_rel, ..Comparison::default() };
        compare_columns(field, left, right, &tolerance, &mut block);
        if let (None, Some(cell)) = (&first, block.first) {
            let i = usize::try_from(cell).unwrap_or(usize::MAX);
            let shown = |column: &Cells| column.is_valid(i).then(|| text(field, column.get(i)));
            first = Some(FirstDifference {
                position: position(&part, cell).to_vec(),
                coordinates: Vec::new(),
                left: shown(left),
                right: shown(right),
                only: None,
            });
        }
        comparison.count += block.count;
        (comparison.max_abs, comparison.max_rel) = (block.max_abs, block.max_rel);
        if let Some(watch) = &options.execution.progress {
            watch(tesseral_engine::Progress { done: number + 1, total: blocks.total() });
        }
    }
    Ok(ValueDifference {
        name: a.name.clone(),
        cells: total,
        differing: comparison.count,
        only_left: 0,
        only_right: 0,
        first,
        max_abs: comparison.max_abs,
        max_rel: comparison.max_rel,
    })
}

/// Element type of the comparison: bits.
fn compared(array: &Array) -> Field {
    let field = array.selected_field().clone();
    if field.dtype.class() == Class::Bits { Field { dtype: DType::Bool, ..field } } else { field }
}

fn load(array: &Array, part: &Selection, column: &mut Cells, options: &Options) -> Result<()> {
    let count = part.cells().and_then(|n| usize::try_from(n).ok()).unwrap_or(usize::MAX);
    if !array.selected_field().nullable {
        // Discard the validity of the previous block.
        *column = std::mem::take(column).without_validity();
    }
    column.reset(count)?;
    let options = options.clone().without_progress();
    if array.selected_field().dtype.class() == Class::Bits {
        column.values_mut().copy_from_slice(&read_bits(array.handle(), &array.request(part), &options)?);
        return Ok(());
    }
    read_column(array.handle(), &array.request(part), column, &options).map_err(|e| e.in_array(array.name()))
}

/// Marks missing cells as null; `gaps` if some cells of the array are unwritten.
fn mark_missing(
    array: &Array,
    field: &Field,
    part: &Selection,
    column: &mut Cells,
    gaps: bool,
) -> Result<()> {
    let written = if gaps { tesseral_engine::gaps(array.handle(), &array.request(part))? } else { None };
    let validity = column_validity(field, column, written.as_deref()).map(Cow::into_owned);
    if let Some(validity) = validity {
        *column = std::mem::take(column).with_validity(validity)?;
    }
    Ok(())
}

/// Formats a cell; with its bits for NaN.
fn text(field: &Field, cell: &[u8]) -> String {
    let text = match tesseral_core::Scalar::from_le_bytes(field.dtype, cell) {
        Ok(value) => value.to_string(),
        Err(_) => String::new(),
    };
    if text.contains("NaN") {
        let bits: String = cell.iter().rev().map(|b| format!("{b:02x}")).collect();
        return format!("{text} (0x{bits})");
    }
    text
}
