//! Conversion of sparse arrays to sparse arrays, in batches.

use tesseral_core::{ArraySchema, Dimension, Error, Field, Result, Scalar};
use tesseral_engine::{
    CellOrder, CellStream, Cells, InputOrder, JoinedRows, Options, WriteSession, merge_join,
};
use tesseral_format::convention::Holds;
use tesseral_format::{ArraySpec, Column, ColumnData, Request, Target};

use super::feed::fitted;
use super::options::{ChunkShape, ConvertOptions};
use super::plan::{cast_of, declared, fill, own_arguments};
use tesseral_dataset::variable::{Variable, merge};
use tesseral_dataset::{Array, Container};

/// Conversion of a field of a sparse array, to sparse cells or rows.
pub(super) fn target_field(variable: &Variable, holds: Holds, options: &ConvertOptions) -> Result<Field> {
    let field = variable.array.selected_field();
    let dtype = cast_of(&variable.name, field, options).map_err(|e| e.in_array(&variable.name))?;
    Ok(Field {
        dtype,
        nullable: field.nullable && holds.nullable,
        fill: fill(field, dtype),
        missing: declared(field, dtype),
        enumeration: field.enumeration.clone().filter(|_| dtype == field.dtype),
        codecs: Vec::new(),
        ..field.clone()
    })
}

/// A sparse array to be written.
#[derive(Clone, Debug)]
pub(crate) struct PlannedCells {
    pub spec: ArraySpec,
    pub array: Array,
    /// Dimensions and fields of the source.
    request: Request,
}

impl PlannedCells {
    /// Creates a sparse array with the selected fields.
    pub(crate) fn new(variables: &[&Variable], holds: Holds, options: &ConvertOptions) -> Result<Self> {
        let Some(first) = variables.first() else {
            return Err(Error::internal("an array without variables"));
        };
        let (array, from) = (&first.array, first.array.schema());
        if options.max_abs_error.is_some() || options.max_rel_error.is_some() {
            return Err(Error::unsupported("packing a sparse array").in_array(&from.name));
        }
        let mut fields = Vec::with_capacity(variables.len());
        for variable in variables {
            fields.push(target_field(variable, holds, options)?);
        }
        let attributes = variables.iter().map(|v| (v.array.selected_field().name.as_str(), &v.attributes));
        let schema = ArraySchema {
            field_attributes: holds.field_attributes,
            role: Default::default(),
            dims: dims(from, options.chunk.as_ref())?,
            attributes: merge(holds.field_attributes.unwrap_or_default(), attributes.collect::<Vec<_>>()),
            chunk_shape: None,
            fields,
            ..from.clone()
        };
        let numbers = variables.iter().map(|v| v.array.column(&v.array.selected_field().name));
        let columns = (0..).take(from.dims.len()).map(|d| Ok(Column::Dim(d)));
        let request = Request {
            target: array.target(own_arguments(from, options))?.1,
            columns: columns.chain(numbers).collect::<Result<_>>()?,
            condition: None,
        };
        Ok(Self { spec: ArraySpec::raw(schema), array: array.clone(), request })
    }

    /// Fields of the source.
    pub(crate) fn sources(&self) -> impl Iterator<Item = &Field> {
        let field = |column: &Column| match column {
            Column::Field(f) => self.array.schema().fields.get(usize::from(*f)),
            _ => None,
        };
        self.request.columns.iter().filter_map(field)
    }

    fn stream(&self, order: CellOrder, options: &Options) -> Result<CellStream> {
        tesseral_engine::cells(self.array.handle(), &self.request, order, options)
    }

    /// Writes every cell; returns their number.
    pub(crate) fn write(&self, session: &WriteSession, id: usize, options: &Options) -> Result<u64> {
        let mut rows = 0;
        // Sorted batches make runs with little overlap, so that later reads touch few of them.
        for batch in self.stream(CellOrder::Sorted, options)? {
            options.cancel.check()?;
            let columns =
                self.converted(batch?.columns.into_iter().map(|(_, cells)| cells).collect(), rows)?;
            rows += columns.first().map_or(0, |c| c.len() as u64);
            let data: Vec<ColumnData<'_>> = columns.iter().map(Cells::as_data).collect();
            session.write_cells(id, &data, InputOrder::Runs)?;
        }
        Ok(rows)
    }

    /// Converts columns for the target.
    fn converted(&self, columns: Vec<Cells>, before: u64) -> Result<Vec<Cells>> {
        let dims = self.spec.schema.dims.len();
        let fields = self.spec.schema.fields.iter().zip(self.sources());
        let mut columns = columns.into_iter();
        let mut out: Vec<Cells> = columns.by_ref().take(dims).collect();
        for ((to, from), cells) in fields.zip(columns) {
            out.push(fitted_rows(from, to, cells, before).map_err(|e| e.in_array(&self.spec.schema.name))?);
        }
        Ok(out)
    }

    /// Reads the output again and compares every cell.
    pub(crate) fn check(&self, output: &Container, options: &Options) -> Result<()> {
        let array = match output.len() {
            1 => output.array_at(0)?,
            _ => output.array(&self.spec.schema.name)?,
        };
        let schema = array.schema();
        let columns = (0..).take(schema.dims.len()).map(Column::Dim);
        let columns = columns.chain((0..).take(schema.fields.len()).map(Column::Field)).collect();
        let request = Request {
            target: Target::Coordinates(vec![Vec::new(); schema.dims.len()]),
            columns,
            condition: None,
        };
        let theirs = tesseral_engine::cells(array.handle(), &request, CellOrder::Sorted, options)?;
        let differs = |row: u64| {
            let detail = format!("row {row} differs from the source");
            Error::corrupt("the output", output.location(), None, detail).in_array(&schema.name)
        };
        let mut rows = 0;
        merge_join(schema, self.stream(CellOrder::Sorted, options)?, theirs, |pair| {
            options.cancel.check()?;
            let JoinedRows::Both(ours, a, theirs, b) = pair else { return Err(differs(rows)) };
            let part = |batch: &tesseral_engine::CellBatch, range: std::ops::Range<usize>| -> Vec<Cells> {
                batch.columns.iter().map(|(_, cells)| cells.part(range.clone())).collect()
            };
            if self.converted(part(ours, a.clone()), rows)? != part(theirs, b) {
                return Err(differs(rows));
            }
            rows += a.len() as u64;
            Ok(())
        })
    }
}

/// Converts cells of rows; `before` rows precede them.
pub(crate) fn fitted_rows(from: &Field, to: &Field, cells: Cells, before: u64) -> Result<Cells> {
    fitted(from, to.dtype, to.nullable, cells, |i| format!("in row {}", before + i))
}

/// The dimensions, with the requested tile extents.
fn dims(from: &ArraySchema, chunk: Option<&ChunkShape>) -> Result<Vec<Dimension>> {
    let mut dims = from.dims.clone();
    let Some(chunk) = chunk else { return Ok(dims) };
    let keeps = vec![0; dims.len()];
    let tiles = chunk.resolve(from, &keeps)?;
    for (dim, tile) in dims.iter_mut().zip(tiles).filter(|(_, tile)| *tile > 0) {
        dim.tile = Some(Scalar::parse(dim.dtype, &tile.to_string()).map_err(|_| {
            Error::unsupported(format!("a tile of {tile} along dimension {:?}", dim.name))
                .in_array(&from.name)
        })?);
    }
    Ok(dims)
}
