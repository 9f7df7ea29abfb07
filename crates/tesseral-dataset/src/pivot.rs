//! Tables as arrays: the values of some columns are the coordinates of the others.
//!
//! ```text
//! row   time  lat  t2m            t2m      lat=10  lat=20
//! 0     01    20   3.5     →      time=01  —       3.5
//! 1     02    10   4.0            time=02  4.0     —
//! ```
//!
//! Coordinates are the different values of their column in ascending order. Only they, and the row of every position, are in memory when
//! a table is pivoted; the cells of a column are read when the first of them is needed, and kept within a share of the memory.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use tesseral_core::dtype::Class;
use tesseral_core::schema::VariableRole;
use tesseral_core::{
    Advice, ArraySchema, Attributes, CellLen, Coords, DType, Dimension, Element, Error, Field, HistoryRow,
    Order, Result, Scalar, alloc, dispatch_element,
};
use tesseral_engine::{Cells, Options, available_memory};
use tesseral_format::{
    ArraySource, Column, ColumnMut, ComputedArray, ComputedCells, ContainerSource, Groups,
    contiguous_chunk_shape,
};
use tesseral_store::Store;

use crate::variable::{Variable, Variables};
use crate::{Array, Container};

/// A position without a row.
const NONE: u32 = u32::MAX;
/// Assumed size of a variable-length cell in bytes.
const ANY_LENGTH: u64 = 32;
/// Share of the memory limit, or of the free memory, that columns take.
const SHARE: u64 = 4;

impl Container {
    /// The arrays of a table: its columns `dims` are the coordinates of all others. A table is what has one-dimensional variables of the same
    /// length: rows of a CSV, Parquet or Arrow file, or any others. Positions without a row are null. A container whose arrays have these
    /// dimensions already is returned as it is.
    ///
    /// ```
    /// # fn main() -> Result<(), tesseral::Error> {
    /// # let path = std::env::temp_dir().join(format!("tesseral-doc-pivot-{}.csv", std::process::id()));
    /// std::fs::write(&path, "time,lat,t2m\n2020-01-01,20,3.5\n2020-01-02,10,4.0\n").unwrap();
    /// let grid = tesseral::open(&path)?.pivoted(&["time", "lat"])?;
    /// assert_eq!(grid.names().collect::<Vec<_>>(), ["time", "lat", "t2m"]);
    /// assert_eq!(grid.array("t2m")?.schema().shape().unwrap()[..], [2, 2]);
    /// # std::fs::remove_file(path).ok();
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `InvalidRequest` if two rows have the same position, with both rows, or if a value of `dims` is missing; `NotFound` for names that no
    /// column has; `Unsupported` for columns whose values have no order; `Limit` for more positions than the memory, or the size of the
    /// table, allows; errors of reading.
    pub fn pivoted(&self, dims: &[impl AsRef<str>]) -> Result<Self> {
        let dims: Vec<&str> = dims.iter().map(AsRef::as_ref).collect();
        if dims.is_empty() || (1..dims.len()).any(|n| dims[..n].contains(&dims[n])) {
            return Err(Error::invalid("the dimensions of a table are different columns, one at least"));
        }
        let variables = Variables::select(self, &[])?;
        let has = |variable: &Variable| {
            let own = &variable.array.schema().dims;
            own.len() == dims.len() && own.iter().zip(&dims).all(|(own, dim)| own.name == *dim)
        };
        if variables.list.iter().any(has) {
            return Ok(self.clone());
        }
        let pivoted = PivotedTable::new(self, &dims, variables)?;
        Ok(self.with_source(Arc::new(pivoted)))
    }
}

/// The different values of a column.
struct PivotAxis {
    /// The first row of each value, in the order of the values.
    rows: Vec<u32>,
    /// The position of each row.
    positions: Vec<u32>,
}

impl PivotAxis {
    /// The positions of rows by keys that sort the values.
    fn new<K: Eq + Hash + Ord + Copy>(keys: impl Iterator<Item = K>) -> Self {
        let mut known: HashMap<K, u32> = HashMap::new();
        let (mut first, mut positions) = (Vec::<(K, u32)>::new(), Vec::new());
        let mut last: Option<(K, u32)> = None;
        for (row, key) in (0_u32..).zip(keys) {
            // Sorted columns repeat their values.
            let position = match last {
                Some((same, position)) if same == key => position,
                _ => *known.entry(key).or_insert_with(|| {
                    first.push((key, row));
                    // Not more values than rows.
                    (first.len() - 1) as u32
                }),
            };
            last = Some((key, position));
            positions.push(position);
        }
        let mut order: Vec<u32> = (0..).take(first.len()).collect();
        order.sort_unstable_by_key(|position| first[*position as usize].0);
        let mut sorted = vec![0; order.len()];
        (0..).zip(&order).for_each(|(to, from)| sorted[*from as usize] = to);
        positions.iter_mut().for_each(|position| *position = sorted[*position as usize]);
        Self { rows: order.iter().map(|position| first[*position as usize].1).collect(), positions }
    }

    /// The values of a column.
    ///
    /// # Errors
    /// `InvalidRequest` for a missing value; `Unsupported` for a dtype without an order.
    fn from_column(name: &str, field: &Field, cells: &Cells) -> Result<Self> {
        let missing = field.missing_values();
        let rows = cells.len();
        let absent = |row: usize| {
            !cells.is_valid(row)
                || field.is_missing(&missing, cells.get(row))
                || is_nan(field.dtype, cells.get(row))
        };
        let may_miss =
            cells.validity().is_some() || !missing.is_empty() || field.dtype.class() == Class::Float;
        if let Some(row) = (0..rows).find(|row| may_miss && absent(*row)) {
            let detail = format!("dimension {name:?} has missing values, the first in row {row}");
            return Err(Error::invalid(detail).hint("leave the row out, or choose other dimensions"));
        }
        if field.cell == CellLen::Var {
            return Ok(Self::new((0..rows).map(|row| cells.get(row))));
        }
        let unordered = || Err(Error::unsupported(format!("dimension {name:?} of {}", field.type_name())));
        match (field.cell, field.dtype.class()) {
            (CellLen::Fixed(_), Class::Text) | (CellLen::One, Class::Text | Class::Bool) => {
                Ok(Self::new((0..rows).map(|row| cells.get(row))))
            }
            (CellLen::One, Class::Float | Class::Int | Class::UInt | Class::Time) => {
                dispatch_element!(field.dtype, T => Ok(Self::from_numbers::<T>(cells)), else => unordered())
            }
            _ => unordered(),
        }
    }

    fn from_numbers<T: Element>(cells: &Cells) -> Self {
        let numbers = cells.data().chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned::<T>);
        if T::DTYPE.class() != Class::Float {
            return Self::new(numbers.map(Element::to_i128));
        }
        Self::new(numbers.map(|number| {
            // Zeros of both signs are one value. The order of floats that are not NaN is that of these integers.
            let bits = (number.to_f64() + 0.0).to_bits();
            if bits >> 63 == 0 { bits ^ 1 << 63 } else { !bits }
        }))
    }
}

fn is_nan(dtype: DType, cell: &[u8]) -> bool {
    dtype.class() == Class::Float
        && Scalar::from_le_bytes(dtype, cell).is_ok_and(|value| value.as_f64().is_some_and(f64::is_nan))
}

/// Columns that were read, the last one used last.
#[derive(Debug)]
struct KeptColumns {
    columns: Mutex<Vec<(usize, Arc<Cells>)>>,
    bytes: u64,
}

impl KeptColumns {
    /// A column, read once if there is room for it.
    fn get(&self, number: usize, read: impl FnOnce() -> Result<Cells>) -> Result<Arc<Cells>> {
        let size = |cells: &Cells| (cells.data().len() + cells.ends().len() * 8) as u64;
        // Reading stays on this thread: the others that wait for it are those of the operation.
        let mut kept = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = kept.iter().position(|(own, _)| *own == number) {
            let found = kept.remove(at);
            let cells = Arc::clone(&found.1);
            kept.push(found);
            return Ok(cells);
        }
        let cells = Arc::new(read()?);
        let mut held = size(&cells) + kept.iter().map(|(_, cells)| size(cells)).sum::<u64>();
        while held > self.bytes && !kept.is_empty() {
            held -= size(&kept.remove(0).1);
        }
        kept.push((number, Arc::clone(&cells)));
        Ok(cells)
    }
}

/// What the arrays of a table have in common.
#[derive(Debug)]
struct PivotedRows {
    /// The row of each position.
    rows: Vec<u32>,
    shape: Coords,
    kept: KeptColumns,
}

/// A table as a container of arrays.
#[derive(Debug)]
struct PivotedTable {
    source: Arc<dyn ContainerSource>,
    names: Vec<String>,
    arrays: Vec<Arc<dyn ArraySource>>,
    attributes: Attributes,
    unread: Vec<String>,
}

/// All cells of a column, as they are stored.
fn read_column(array: &Array, options: Options) -> Result<Cells> {
    let column = Column::Field(array.field_number());
    let batch = array.cells()?.only(&[column]).stored().unordered().options(options).read()?;
    let found = batch.columns.into_iter().next();
    found.map(|(_, cells)| cells).ok_or_else(|| Error::internal("a column was not read"))
}

impl PivotedTable {
    fn new(container: &Container, dims: &[&str], variables: Variables) -> Result<Self> {
        let Variables { list, attributes } = variables;
        let is_column = |variable: &&Variable| {
            let schema = variable.array.schema();
            !schema.sparse && schema.dims.len() == 1
        };
        let columns: Vec<&Variable> = list.iter().filter(is_column).collect();
        let find = |name: &str| {
            let found = columns.iter().find(|variable| variable.name == name).copied();
            let names = || columns.iter().map(|variable| variable.name.clone()).collect();
            found.ok_or_else(|| Error::not_found("column", name, names()))
        };
        let named = dims.iter().map(|name| find(name)).collect::<Result<Vec<&Variable>>>()?;
        let extent = |variable: &Variable| variable.array.schema().dims.first().and_then(|dim| dim.extent);
        let count = named.first().and_then(|variable| extent(variable)).unwrap_or(0);
        if u32::try_from(count).is_err() || count >= u64::from(NONE) {
            return Err(Error::limit("rows of a table that is pivoted", count, u64::from(NONE) - 1));
        }
        let options = container.execution().clone();
        let memory = options.memory.or_else(available_memory).unwrap_or(u64::MAX);
        let needed = count.saturating_mul(4 * (dims.len() as u64 + 1));
        if needed > memory {
            return Err(Error::limit("the positions of rows", needed, memory).hint(Advice::RaiseMemory));
        }
        let (mut axes, mut coordinates) = (Vec::new(), Vec::new());
        for variable in &named {
            if extent(variable) != Some(count) {
                let detail = format!("columns {:?} and {:?} differ in length", dims[0], variable.name);
                return Err(Error::invalid(detail));
            }
            let field = variable.array.selected_field();
            let cells = read_column(&variable.array, options.clone())?;
            let axis = PivotAxis::from_column(&variable.name, field, &cells)?;
            coordinates.push(coordinate(variable, &cells, &axis.rows)?);
            axes.push(axis);
        }
        let shape: Coords = axes.iter().map(|axis| axis.rows.len() as u64).collect();
        let rows = positions(&axes, &shape, container, memory).map_err(|fault| match fault {
            PositionFault::Error(error) => error,
            PositionFault::Repeated(first, second) => {
                let coordinate = |((name, own), axis): ((&&str, &ComputedArray<_>), &PivotAxis)| {
                    format!("{name}={}", coordinate_text(own, axis.positions[first as usize]))
                };
                let at: Vec<String> = dims.iter().zip(&coordinates).zip(&axes).map(coordinate).collect();
                let detail = format!("several rows at {}: {first} and {second}", at.join(", "));
                Error::invalid(detail)
                    .hint("name further columns as dimensions, or leave one of the rows out")
            }
        })?;
        let complete = rows.iter().all(|row| *row != NONE);
        let kept = KeptColumns { columns: Mutex::default(), bytes: memory / SHARE };
        let common = Arc::new(PivotedRows { rows, shape, kept });
        let (mut names, mut arrays, mut unread) =
            (Vec::new(), Vec::<Arc<dyn ArraySource>>::new(), Vec::new());
        for own in coordinates {
            names.push(own.schema().name.clone());
            arrays.push(Arc::new(own));
        }
        let row = named
            .first()
            .and_then(|variable| variable.array.schema().dims.first())
            .map(|dim| dim.name.as_str());
        for variable in list.iter().filter(|variable| !dims.contains(&variable.name.as_str())) {
            if !is_column(&variable) || extent(variable) != Some(count) {
                unread.push(format!("{}: not a column of {count} rows", variable.name));
            } else if Some(variable.name.as_str()) != row {
                names.push(variable.name.clone());
                let mut schema = schema_of(variable, dims, &common.shape);
                schema.fields[0].nullable |= !complete;
                let (column, number) = (variable.array.clone(), arrays.len());
                let cells = PivotedColumn { column, number, common: Arc::clone(&common) };
                arrays.push(Arc::new(ComputedArray::new(schema, cells)?));
            }
        }
        unread.extend(container.inner().unread());
        Ok(Self { source: Arc::clone(container.inner()), names, arrays, attributes, unread })
    }
}

/// Why the rows of positions are not known.
enum PositionFault {
    Error(Error),
    /// Two rows have the same position.
    Repeated(u32, u32),
}

impl From<Error> for PositionFault {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// The row of each position.
fn positions(
    axes: &[PivotAxis],
    shape: &[u64],
    container: &Container,
    memory: u64,
) -> std::result::Result<Vec<u32>, PositionFault> {
    let cells = shape.iter().fold(1_u64, |cells, extent| cells.saturating_mul(*extent));
    let bytes = cells.saturating_mul(size_of::<u32>() as u64);
    let what = || format!("{cells} positions of {} dimensions", shape.len());
    let hint = "most positions have no row: choose fewer dimensions";
    if bytes > memory {
        return Err(Error::limit(what(), bytes, memory).hint(hint).into());
    }
    // Folders have no size of their own.
    let stored = container.inner().store().len("").unwrap_or(0);
    container.limits().check_total(&what(), bytes, stored).map_err(|error| error.hint(hint))?;
    let cells = usize::try_from(cells).unwrap_or(usize::MAX);
    let mut rows = alloc::filled("the rows of positions", NONE, cells)?;
    let count = axes.first().map_or(0, |axis| axis.positions.len());
    for row in 0..count {
        let at = axes
            .iter()
            .zip(shape)
            .fold(0, |at, (axis, extent)| at * *extent as usize + axis.positions[row] as usize);
        let before = std::mem::replace(&mut rows[at], row as u32);
        if before != NONE {
            return Err(PositionFault::Repeated(before, row as u32));
        }
    }
    Ok(rows)
}

impl ContainerSource for PivotedTable {
    fn format(&self) -> &'static str {
        self.source.format()
    }

    fn store(&self) -> &Arc<dyn Store> {
        self.source.store()
    }

    fn len(&self) -> usize {
        self.arrays.len()
    }

    fn name(&self, index: usize) -> &str {
        self.names.get(index).map_or("", String::as_str)
    }

    fn array(&self, index: usize) -> Result<Arc<dyn ArraySource>> {
        self.arrays.get(index).map(Arc::clone).ok_or_else(|| self.out_of_bounds(index))
    }

    fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    fn groups(&self) -> &Groups {
        self.source.groups()
    }

    fn history(&self) -> &[HistoryRow] {
        self.source.history()
    }

    fn unread(&self) -> Vec<String> {
        self.unread.clone()
    }

    fn details(&self) -> serde_json::Value {
        self.source.details()
    }
}

/// The schema of an array of a column over named dimensions.
fn schema_of(variable: &Variable, dims: &[&str], shape: &[u64]) -> ArraySchema {
    let own = variable.array.selected_field();
    let size = own.cell_size().map_or(ANY_LENGTH, |size| size as u64);
    let mut schema =
        ArraySchema::dense(&variable.name, own.dtype, shape, &contiguous_chunk_shape(shape, size));
    schema.dims = dims.iter().zip(shape).map(|(name, extent)| Dimension::new(*name, *extent)).collect();
    schema.fields = vec![Field { name: variable.name.clone(), codecs: Vec::new(), ..own.clone() }];
    schema.attributes.clone_from(&variable.attributes);
    schema.cell_order = Order::RowMajor;
    schema
}

/// Indexes of cells in memory.
fn indexes(cells: &Range<u64>) -> Range<usize> {
    let at = |cell: u64| usize::try_from(cell).unwrap_or(usize::MAX);
    at(cells.start)..at(cells.end)
}

/// Writes cells, `None` for null.
fn fill<'a>(cells: impl Iterator<Item = Option<&'a [u8]>>, size: usize, out: ColumnMut<'_>) -> Result<()> {
    let beyond = || Error::internal("a cell of another size than its column");
    let mark = |validity: &mut Option<&mut [u8]>, at: usize, valid: bool| match validity {
        Some(validity) => validity.get_mut(at).map(|byte| *byte = u8::from(valid)).ok_or_else(beyond),
        None => Ok(()),
    };
    match out {
        ColumnMut::Fixed { values, mut validity } => {
            for ((at, cell), to) in cells.enumerate().zip(values.chunks_exact_mut(size.max(1))) {
                match cell {
                    Some(cell) if cell.len() == to.len() => to.copy_from_slice(cell),
                    Some(_) => return Err(beyond()),
                    None => to.fill(0),
                }
                mark(&mut validity, at, cell.is_some())?;
            }
        }
        ColumnMut::Var { offsets, data, mut validity } => {
            for (at, cell) in cells.enumerate() {
                let cell_bytes = cell.unwrap_or_default();
                alloc::reserve("text cells", data, cell_bytes.len())?;
                data.extend_from_slice(cell_bytes);
                offsets.push(data.len() as u64);
                mark(&mut validity, at, cell.is_some())?;
            }
        }
    }
    Ok(())
}

/// The different values of a column, in memory.
#[derive(Debug)]
struct CoordinateCells(Cells);

/// The coordinate of a column whose values are those of some rows.
fn coordinate(variable: &Variable, column: &Cells, rows: &[u32]) -> Result<ComputedArray<CoordinateCells>> {
    let name = variable.name.as_str();
    let mut schema = schema_of(variable, &[name], &[rows.len() as u64]);
    schema.role = VariableRole::Index;
    schema.fields[0].nullable = false;
    let mut cells = Cells::for_field(&schema.fields[0]);
    let bytes = rows.iter().map(|row| column.get(*row as usize).len()).sum();
    cells.try_reserve(rows.len(), bytes)?;
    rows.iter().for_each(|row| cells.push(column.get(*row as usize), true));
    ComputedArray::new(schema, CoordinateCells(cells))
}

/// A value of a coordinate as text.
fn coordinate_text(array: &ComputedArray<CoordinateCells>, at: u32) -> String {
    let (field, cell) = (&array.schema().fields[0], array.cells().0.get(at as usize));
    match field.dtype.class() {
        Class::Text => String::from_utf8_lossy(cell).into_owned(),
        _ => {
            Scalar::from_le_bytes(field.dtype, cell).map_or_else(|_| String::new(), |value| value.to_string())
        }
    }
}

impl ComputedCells for CoordinateCells {
    fn write(&self, cells: Range<u64>, out: ColumnMut<'_>) -> Result<()> {
        let range = indexes(&cells);
        if range.end > self.0.len() {
            return Err(Error::internal("cells outside a coordinate"));
        }
        fill(range.map(|at| Some(self.0.get(at))), self.0.size(), out)
    }
}

/// A column over the dimensions of a table.
#[derive(Debug)]
struct PivotedColumn {
    column: Array,
    number: usize,
    common: Arc<PivotedRows>,
}

impl ComputedCells for PivotedColumn {
    fn write(&self, cells: Range<u64>, out: ColumnMut<'_>) -> Result<()> {
        let rows = self.common.rows.get(indexes(&cells));
        let rows = rows.ok_or_else(|| Error::internal("cells outside an array"))?;
        let options = self.column.options().clone().without_progress().sequential();
        let column = self.common.kept.get(self.number, || read_column(&self.column, options))?;
        let cell = |row: &u32| {
            let row = *row as usize;
            (row < column.len() && column.is_valid(row)).then(|| column.get(row))
        };
        if rows.iter().any(|row| *row != NONE && *row as usize >= column.len()) {
            return Err(Error::internal("a column shorter than its table"));
        }
        fill(rows.iter().map(cell), column.size(), out)
    }
}
