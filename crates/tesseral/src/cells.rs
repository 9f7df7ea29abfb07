//! Asking an array for cells row by row: coordinates and fields, those that meet a condition.

use tesseral_core::condition::Condition;
use tesseral_core::{Error, Result};
use tesseral_engine::kernel::summary::{Summary, Wanted};
use tesseral_engine::{CellBatch, CellOrder, CellStream, Options, Summarized};
use tesseral_format::{Column, CoordinateRanges, Request, Target};

use crate::{Array, filter};

/// Which cells of an array, and what of them. [`Array::cells`] begins one.
#[derive(Clone, Debug)]
pub struct CellQuery<'a> {
    array: &'a Array,
    options: Options,
    target: Target,
    columns: Vec<Column>,
    condition: Option<Condition>,
    order: CellOrder,
}

impl<'a> CellQuery<'a> {
    pub(crate) fn new(array: &'a Array) -> Result<Self> {
        let schema = array.schema();
        let dims = (0..).take(schema.dims.len()).map(Column::Dim);
        let columns = dims.chain((0..).take(schema.fields.len()).map(Column::Field)).collect();
        Ok(Self {
            array,
            options: array.options().clone(),
            target: array.target([])?,
            columns,
            condition: None,
            order: CellOrder::Sorted,
        })
    }

    /// Only cells of a selection as text, one argument per dimension: `x=3..7`, `name=@left`.
    ///
    /// # Errors
    /// `InvalidRequest`, `NotFound`: the argument is named.
    pub fn select<'t>(self, arguments: impl IntoIterator<Item = &'t str>) -> Result<Self> {
        let target = self.array.target(arguments)?;
        Ok(self.target(target))
    }

    /// Only these cells.
    #[must_use]
    pub fn target(mut self, target: Target) -> Self {
        self.target = target;
        self
    }

    /// Only cells of a sparse array in closed ranges of coordinates, one list per dimension; an empty list takes all.
    #[must_use]
    pub fn ranges(self, ranges: Vec<CoordinateRanges>) -> Self {
        self.target(Target::Coordinates(ranges))
    }

    /// Only cells that meet a condition: `temperature > 5 and name in ("a", "b")`.
    ///
    /// # Errors
    /// `InvalidRequest` when it cannot be read; `NotFound` for names the array does not have.
    pub fn filter(self, text: &str) -> Result<Self> {
        let condition = filter::parse(self.array.schema(), text)?;
        Ok(self.condition(condition))
    }

    /// Only cells that meet a condition.
    #[must_use]
    pub fn condition(mut self, condition: Condition) -> Self {
        self.condition = Some(condition);
        self
    }

    /// These fields and dimensions, in this order, instead of every dimension and field.
    ///
    /// # Errors
    /// `NotFound`, with the names there are; `InvalidRequest` for a name given twice.
    pub fn columns<'t>(mut self, names: impl IntoIterator<Item = &'t str>) -> Result<Self> {
        self.columns.clear();
        for name in names {
            let column = self.array.column(name)?;
            if self.columns.contains(&column) {
                return Err(
                    Error::invalid(format!("{name:?} is asked for twice")).in_array(self.array.name())
                );
            }
            self.columns.push(column);
        }
        Ok(self)
    }

    /// These columns, in this order, instead of every dimension and field.
    #[must_use]
    pub fn only(mut self, columns: &[Column]) -> Self {
        self.columns = columns.to_vec();
        self
    }

    /// In the order cells are found, which saves sorting them.
    #[must_use]
    pub fn unordered(mut self) -> Self {
        self.order = CellOrder::Stored;
        self
    }

    /// Memory, threads, cancellation and progress of this query.
    #[must_use]
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// The request as the engine takes it.
    pub fn request(&self) -> Request {
        Request {
            target: self.target.clone(),
            columns: self.columns.clone(),
            condition: self.condition.clone(),
        }
    }

    /// The cells, batch by batch within the memory limit.
    ///
    /// # Errors
    /// What the plan meets. Batches fail with what the store and the decoders meet.
    pub fn batches(&self) -> Result<CellStream> {
        tesseral_engine::cells(self.array.handle(), &self.request(), self.order, &self.options)
    }

    /// The cells, all at once.
    ///
    /// # Errors
    /// As [`batches`](Self::batches); `Limit` when they do not fit in the memory allowed.
    pub fn read(&self) -> Result<CellBatch> {
        if self.array.schema().sparse && self.order == CellOrder::Sorted {
            return tesseral_engine::read_cells(self.array.handle(), &self.request(), &self.options);
        }
        let mut whole: Option<CellBatch> = None;
        for batch in self.batches()? {
            let batch = batch?;
            match &mut whole {
                None => whole = Some(batch),
                Some(whole) => whole.append(&batch),
            }
            let held = whole.as_ref().map_or(0, CellBatch::held);
            self.options.check_memory("the rows", held)?;
        }
        Ok(whole.unwrap_or_else(|| CellBatch::empty(self.array.schema(), &self.columns)))
    }

    /// Count, nulls, minimum, maximum and so on of one of the columns, from statistics where they are exact.
    ///
    /// # Errors
    /// As [`batches`](Self::batches); `Unsupported` for columns that cannot be folded.
    pub fn summarize(&self, column: &str, wanted: Wanted) -> Result<Summarized> {
        let request = Request { columns: vec![self.array.column(column)?], ..self.request() };
        tesseral_engine::summarize(self.array.handle(), &request, wanted, &self.options)
    }

    /// [`summarize`](Self::summarize) without where the numbers came from.
    ///
    /// # Errors
    /// As there.
    pub fn summary(&self, column: &str, wanted: Wanted) -> Result<Summary> {
        Ok(self.summarize(column, wanted)?.summary)
    }
}
