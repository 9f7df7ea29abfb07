//! Queries of cells as rows: coordinates and fields that match a condition.

use std::borrow::Cow;

use tesseral_core::condition::Condition;
use tesseral_core::{Error, Result};
use tesseral_engine::fold;
use tesseral_engine::{CellBatch, CellOrder, CellStream, Options, Summarized};
use tesseral_engine::{StatSet, Summary};
use tesseral_format::{Column, CoordinateRanges, Request, Target};

use crate::{Array, filter};

/// A query of cells. Created by [`Array::cells`].
///
/// ```
/// # fn main() -> Result<(), tesseral::Error> {
/// # use tesseral::{ArraySchema, ArraySpec, Create, DType};
/// # let path = std::env::temp_dir().join(format!("tesseral-doc-cells-{}.tet", std::process::id()));
/// # let mut session = Create::new().overwrite().begin(&path, "")?;
/// # let mut schema = ArraySchema::dense("height", DType::Int32, &[4, 6], &[2, 6]);
/// # (schema.dims[0].name, schema.dims[1].name) = ("y".to_owned(), "x".to_owned());
/// # let height = session.add(&ArraySpec::raw(schema))?;
/// # session.write(height, &(0..24).flat_map(i32::to_ne_bytes).collect::<Vec<u8>>())?;
/// # session.commit()?;
/// let array = tesseral::open(&path)?.array("height")?;
/// let rows = array.cells()?.filter("height > 20")?.read()?;
/// assert_eq!(rows.rows, 3);
/// # std::fs::remove_file(path).ok();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CellQuery<'a> {
    array: Cow<'a, Array>,
    options: Options,
    target: Target,
    columns: Vec<Column>,
    condition: Option<Condition>,
    order: CellOrder,
    stored: bool,
}

impl<'a> CellQuery<'a> {
    pub(crate) fn new(array: &'a Array) -> Result<Self> {
        let schema = array.schema();
        let dims = (0..).take(schema.dims.len()).map(Column::Dim);
        let columns = dims.chain((0..).take(schema.fields.len()).map(Column::Field)).collect();
        Ok(Self {
            array: Cow::Borrowed(array),
            options: array.options().clone(),
            target: array.target([])?.1,
            columns,
            condition: None,
            order: CellOrder::Sorted,
            stored: false,
        })
    }

    /// Selects cells by text, one argument per dimension: `x=3..7`, `name=@left`.
    ///
    /// # Errors
    /// `InvalidRequest`, `NotFound`, with the argument.
    pub fn select<'t>(mut self, arguments: impl IntoIterator<Item = &'t str>) -> Result<Self> {
        let (array, target) = self.array.target(arguments)?;
        if let Cow::Owned(continued) = array {
            self.array = Cow::Owned(continued);
        }
        Ok(self.target(target))
    }

    /// Selects these cells.
    #[must_use]
    pub fn target(mut self, target: Target) -> Self {
        self.target = target;
        self
    }

    /// Selects cells of a sparse array in closed coordinate ranges, one list per dimension; an empty list selects all.
    #[must_use]
    pub fn ranges(self, ranges: Vec<CoordinateRanges>) -> Self {
        self.target(Target::Coordinates(ranges))
    }

    /// Filters cells by a condition: `temperature > 5 and name in ("a", "b")`.
    ///
    /// # Errors
    /// `InvalidRequest` for a syntax error; `NotFound` for unknown names.
    pub fn filter(self, text: &str) -> Result<Self> {
        // Labels are needed of dimensions that the condition may name.
        let dims = &self.array.schema().dims;
        let named = |d: usize| dims.get(d).is_some_and(|dim| text.contains(&dim.name));
        let condition = filter::parse(self.array.labeled(named)?.schema(), text)?;
        Ok(self.condition(condition))
    }

    /// Filters cells by a parsed condition.
    #[must_use]
    pub fn condition(mut self, condition: Condition) -> Self {
        self.condition = Some(condition);
        self
    }

    /// Selects fields and dimensions by name, in this order, instead of all.
    ///
    /// # Errors
    /// `NotFound`, with the available names; `InvalidRequest` for a duplicate name.
    pub fn columns<'t>(mut self, names: impl IntoIterator<Item = &'t str>) -> Result<Self> {
        self.columns.clear();
        for name in names {
            let column = self.array.column(name)?;
            if self.columns.contains(&column) {
                return Err(Error::invalid(format!("duplicate column {name:?}")).in_array(self.array.name()));
            }
            self.columns.push(column);
        }
        Ok(self)
    }

    /// Selects columns, in this order, instead of all dimensions and fields.
    #[must_use]
    pub fn only(mut self, columns: &[Column]) -> Self {
        self.columns = columns.to_vec();
        self
    }

    /// With stored validity alone: missing values of the field and unwritten cells are returned as their values.
    #[must_use]
    pub fn stored(mut self) -> Self {
        self.stored = true;
        self
    }

    /// In the order cells are found, which saves sorting them.
    #[must_use]
    pub fn unordered(mut self) -> Self {
        self.order = CellOrder::Stored;
        self
    }

    /// Sets memory, threads, cancellation and progress of this query.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Converts to a request of the engine.
    pub fn request(&self) -> Request {
        Request {
            target: self.target.clone(),
            columns: self.columns.clone(),
            condition: self.condition.clone(),
        }
    }

    /// Returns the cells in batches within the memory limit.
    ///
    /// # Errors
    /// Errors of the plan. Batches fail with errors of the store and the decoders.
    pub fn batches(&self) -> Result<CellStream> {
        let read = if self.stored { tesseral_engine::cells } else { tesseral_engine::valid_cells };
        read(self.array.handle(), &self.request(), self.order, &self.options)
    }

    /// Returns all cells.
    ///
    /// # Errors
    /// As [`batches`](Self::batches); `Limit` if they exceed the memory limit.
    pub fn read(&self) -> Result<CellBatch> {
        if self.array.schema().sparse && self.order == CellOrder::Sorted {
            let read =
                if self.stored { tesseral_engine::read_cells } else { tesseral_engine::read_valid_cells };
            return read(self.array.handle(), &self.request(), &self.options);
        }
        let mut whole: Option<CellBatch> = None;
        for batch in self.batches()? {
            let batch = batch?;
            match &mut whole {
                None => whole = Some(batch),
                Some(whole) => whole.append(&batch),
            }
            let held = whole.as_ref().map_or(0, CellBatch::allocated_bytes);
            self.options.check_memory("the rows", held)?;
        }
        Ok(whole.unwrap_or_else(|| CellBatch::empty(self.array.schema(), &self.columns)))
    }

    /// Computes statistics of one column, from stored statistics if they are exact.
    ///
    /// # Errors
    /// As [`batches`](Self::batches); `Unsupported` for columns that cannot be reduced.
    pub fn summarize(&self, column: &str, wanted: StatSet) -> Result<Summarized> {
        let request = Request { columns: vec![self.array.column(column)?], ..self.request() };
        fold::summary(self.array.handle(), &request, wanted, &self.options)
    }

    /// As [`summarize`](Self::summarize), without the origin of the numbers.
    ///
    /// # Errors
    /// As [`summarize`](Self::summarize).
    pub fn summary(&self, column: &str, wanted: StatSet) -> Result<Summary> {
        Ok(self.summarize(column, wanted)?.summary)
    }
}
