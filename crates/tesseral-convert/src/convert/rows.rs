//! Conversion of sparse arrays to tables: a one-dimensional array for each dimension and field, with one entry per cell.

use tesseral_core::dtype::Class;
use tesseral_core::{
    ArraySchema, CellLen, Coords, Dimension, Error, Field, Order, Region, Result, Selection,
};
use tesseral_engine::StatSet;
use tesseral_engine::{CellBatch, Cells, Options, WriteSession, read_column};
use tesseral_format::convention::Holds;
use tesseral_format::{ArraySpec, Column};

use super::cells::{fitted_rows, target_field};
use super::check::written;
use super::options::ConvertOptions;
use super::plan::{CHUNK, own_arguments};
use tesseral_dataset::variable::Variable;
use tesseral_dataset::{Array, CellQuery, Container};

/// Name of the dimension of a table.
const ROW: &str = "row";

/// Minimum chunk size of a table in bytes, for any memory limit.
const MIN_CHUNK: u64 = 64 << 10;

/// A sparse array to be written as a table.
#[derive(Clone, Debug)]
pub(crate) struct PlannedRows {
    /// An array for each dimension, then for each field.
    pub specs: Vec<ArraySpec>,
    /// The same columns in the source.
    pub sources: Vec<Field>,
    array: Array,
    columns: Vec<Column>,
    select: Vec<String>,
    pub rows: u64,
    chunk: u64,
}

impl PlannedRows {
    /// Creates a table of a sparse array with the selected fields.
    pub(crate) fn new(variables: &[&Variable], holds: Holds, options: &ConvertOptions) -> Result<Self> {
        let Some(first) = variables.first() else {
            return Err(Error::internal("an array without variables"));
        };
        let (array, from) = (&first.array, first.array.schema());
        if options.chunk.is_some() || options.max_abs_error.is_some() || options.max_rel_error.is_some() {
            return Err(
                Error::unsupported("chunk shapes or packing of rows of a sparse array").in_array(&from.name)
            );
        }
        let select: Vec<String> = own_arguments(from, options).map(str::to_owned).collect();
        let mut columns: Vec<Column> = (0..).take(from.dims.len()).map(Column::Dim).collect();
        let mut sources: Vec<Field> =
            from.dims.iter().enumerate().map(|(d, dim)| coordinates(d, dim)).collect();
        let mut fields = sources.clone();
        let mut attributes = vec![tesseral_core::Attributes::new(); fields.len()];
        for variable in variables {
            let field = variable.array.selected_field();
            columns.push(variable.array.column(&field.name)?);
            sources.push(field.clone());
            attributes.push(variable.attributes.clone());
            fields.push(target_field(variable, holds, options)?);
        }
        let mut planned =
            Self { specs: Vec::new(), sources, array: array.clone(), columns, select, rows: 0, chunk: 1 };
        planned.rows = planned.count()?;
        let widest = fields.iter().map(|f| f.cell_size().unwrap_or(8) as u64).max().unwrap_or(8);
        // Chunks of all columns are gathered at once, and are small compared to a memory limit.
        let bytes = options.execution.memory.map_or(CHUNK, |memory| CHUNK.min((memory / 16).max(MIN_CHUNK)));
        planned.chunk = (bytes / widest.max(1)).clamp(1, planned.rows.max(1));
        let specs = fields.into_iter().zip(attributes).map(|(field, attributes)| {
            ArraySpec::raw(ArraySchema {
                field_attributes: None,
                role: Default::default(),
                name: field.name.clone(),
                dims: vec![Dimension::new(ROW, planned.rows)],
                fields: vec![field],
                chunk_shape: Some(Coords::from_slice(&[planned.chunk])),
                shard_shape: None,
                cell_order: Order::RowMajor,
                sparse: false,
                allows_duplicates: false,
                attributes,
            })
        });
        planned.specs = specs.collect();
        Ok(planned)
    }

    fn query(&self) -> Result<CellQuery<'_>> {
        Ok(self.array.cells()?.select(self.select.iter().map(String::as_str))?.only(&self.columns))
    }

    /// Number of cells, from statistics if they are exact.
    fn count(&self) -> Result<u64> {
        let counted =
            self.sources.iter().position(|f| f.cell == CellLen::One && f.dtype.class() != Class::Text);
        let query = self.query()?;
        if let Some(i) = counted {
            return Ok(query.summary(&self.sources[i].name, StatSet::COUNTS)?.count());
        }
        let mut rows = 0;
        for batch in query.only(&self.columns[..1]).unordered().batches()? {
            rows += batch?.rows as u64;
        }
        Ok(rows)
    }

    /// Writes every row, ordered by coordinates.
    pub(crate) fn write(&self, session: &WriteSession, ids: &[usize], options: &Options) -> Result<()> {
        self.for_each_chunk(options, |region, columns| {
            let write_column =
                |(cells, id): (&Cells, &usize)| session.write_columns(*id, region, &[cells.as_data()]);
            columns.iter().zip(ids).try_for_each(write_column)
        })
    }

    /// Reads the output again and compares every cell; `first` is the index of its first array.
    pub(crate) fn check(&self, output: &Container, number: usize, options: &Options) -> Result<()> {
        let arrays: Vec<Array> = self
            .specs
            .iter()
            .enumerate()
            .map(|(i, spec)| written(spec, number + i, output))
            .collect::<Result<_>>()?;
        self.for_each_chunk(options, |region, columns| {
            for (array, ours) in arrays.iter().zip(columns) {
                let mut theirs = Cells::for_field(array.selected_field());
                theirs.reset(ours.len())?;
                let request = array.request(&Selection::from_region(region));
                read_column(array.handle(), &request, &mut theirs, options)?;
                if theirs != *ours {
                    let detail =
                        format!("rows {} to {} differ from the source", region.start(0), region.end(0));
                    return Err(
                        Error::corrupt("the output", output.location(), None, detail).in_array(array.name())
                    );
                }
            }
            Ok(())
        })
    }

    /// Calls `visit` with all rows in order, by whole chunks, with a column for each array.
    fn for_each_chunk(
        &self,
        options: &Options,
        mut visit: impl FnMut(&Region, &[Cells]) -> Result<()>,
    ) -> Result<()> {
        let mut waiting = CellBatch::empty(self.array.schema(), &self.columns);
        let mut done = 0;
        let mut some = |batch: CellBatch| -> Result<()> {
            options.cancel.check()?;
            if batch.rows == 0 {
                return Ok(());
            }
            let fields = self.specs.iter().map(|spec| &spec.schema.fields[0]).zip(&self.sources);
            let cast = |((to, from), (_, cells)): ((&Field, &Field), (Column, Cells))| {
                fitted_rows(from, to, cells, done).map_err(|e| e.in_array(&to.name))
            };
            let columns: Vec<Cells> = fields.zip(batch.columns).map(cast).collect::<Result<_>>()?;
            visit(&Region::new([(done, done + batch.rows as u64)]), &columns)?;
            done += batch.rows as u64;
            Ok(())
        };
        let chunk = usize::try_from(self.chunk).unwrap_or(usize::MAX);
        for batch in self.query()?.options(options.clone()).batches()? {
            waiting.append(&batch?);
            let whole = waiting.rows / chunk * chunk;
            some(waiting.split_to(whole))?;
        }
        some(waiting)?;
        if done != self.rows {
            let detail = format!("expected {} rows, read {done}", self.rows);
            return Err(Error::invalid(detail).in_array(self.array.name()));
        }
        Ok(())
    }
}

/// The coordinates of a dimension as a field.
fn coordinates(number: usize, dim: &Dimension) -> Field {
    let name = if dim.name.is_empty() { number.to_string() } else { dim.name.clone() };
    let cell = if dim.dtype.class() == Class::Text { CellLen::Var } else { CellLen::One };
    Field { cell, ..Field::new(name, dim.dtype) }
}
