//! Requests to an array.

use tesseral_core::condition::Condition;
use tesseral_core::{ArraySchema, Error, Result, Scalar, Selection};

use crate::Column;

/// Closed coordinate ranges along one dimension; empty means all.
pub type CoordinateRanges = Vec<(Scalar, Scalar)>;

/// Selected cells.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Cells of a dense array, by position.
    Cells(Selection),
    /// Cells of a sparse array with coordinates in the ranges, one list per dimension.
    Coordinates(Vec<CoordinateRanges>),
}

/// A request to an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Selected cells.
    pub target: Target,
    /// Requested columns, without duplicates.
    pub columns: Vec<Column>,
    /// Condition of the requested cells. A plan can use it to prune chunks.
    pub condition: Option<Condition>,
}

impl Request {
    /// Requests one field of a dense selection.
    pub fn cells(selection: Selection, field: u16) -> Self {
        Self { target: Target::Cells(selection), columns: vec![Column::Field(field)], condition: None }
    }

    /// The selection of a dense request.
    pub fn selection(&self) -> Option<&Selection> {
        match &self.target {
            Target::Cells(selection) => Some(selection),
            Target::Coordinates(_) => None,
        }
    }

    /// Checks the request against the schema of its array: the kind and bounds of the selection, and the columns. The engine
    /// checks every request before it is planned, so that formats need not.
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub fn check(&self, schema: &ArraySchema) -> Result<()> {
        self.check_target(schema)
            .and_then(|()| self.check_columns(schema))
            .map_err(|e| e.in_array(&schema.name))
    }

    fn check_target(&self, schema: &ArraySchema) -> Result<()> {
        let rank = schema.dims.len();
        match &self.target {
            Target::Cells(_) if schema.sparse => {
                Err(Error::invalid("a sparse array is selected by coordinates"))
            }
            Target::Coordinates(_) if !schema.sparse => {
                Err(Error::invalid("a dense array cannot be selected by coordinates"))
            }
            Target::Coordinates(ranges) if ranges.len() != rank => {
                Err(Error::invalid(format!("ranges of {} dimensions, the array has {rank}", ranges.len())))
            }
            Target::Cells(selection) => {
                let mut slices = selection.slices().iter().zip(&schema.dims);
                let fits = selection.rank() == rank
                    && slices.all(|(slice, dim)| slice.step > 0 && dim.extent.is_none_or(|n| slice.end <= n));
                if fits {
                    return Ok(());
                }
                let shape = schema.shape().unwrap_or_default();
                Err(Error::invalid(format!("selection out of bounds for shape {shape:?}")))
            }
            Target::Coordinates(_) => Ok(()),
        }
    }

    fn check_columns(&self, schema: &ArraySchema) -> Result<()> {
        let known = |column: &Column| match *column {
            Column::Field(field) => usize::from(field) < schema.fields.len(),
            Column::Dim(dim) => schema.sparse && usize::from(dim) < schema.dims.len(),
            Column::Timestamp | Column::DeletedBy => schema.sparse,
        };
        match self.columns.iter().find(|column| !known(column)) {
            Some(column) => Err(Error::invalid(format!("unknown column {column:?}"))),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use tesseral_core::{DType, ErrorKind, Slice};

    use super::*;

    #[test]
    fn requests_are_checked_against_the_schema() {
        let dense = ArraySchema::dense("a", DType::Int32, &[4, 5], &[2, 2]);
        let mut sparse = dense.clone();
        sparse.sparse = true;
        let cells = |bounds: &[u64]| Request::cells(Selection::all(bounds), 0);
        let ranges = |rank: usize, columns: Vec<Column>| Request {
            target: Target::Coordinates(vec![Vec::new(); rank]),
            columns,
            condition: None,
        };
        assert!(cells(&[4, 5]).check(&dense).is_ok());
        assert!(cells(&[2, 1]).check(&dense).is_ok());
        assert!(ranges(2, vec![Column::Dim(1), Column::Timestamp, Column::Field(0)]).check(&sparse).is_ok());
        let whole = Slice::new(0, 4);
        let still = Slice { step: 0, ..whole };
        let mut columns = cells(&[4, 5]);
        columns.columns = vec![Column::Dim(0)];
        let wrong = [
            (&dense, cells(&[4, 6])),
            (&dense, cells(&[4])),
            (&dense, Request::cells(Selection::all(&[4, 5]), 1)),
            (&dense, columns),
            (&dense, ranges(2, vec![Column::Field(0)])),
            (&sparse, cells(&[4, 5])),
            (&sparse, ranges(1, vec![Column::Field(0)])),
            (&sparse, ranges(2, vec![Column::Dim(2)])),
        ];
        for (schema, request) in wrong {
            let error = request.check(schema).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::InvalidRequest { .. }), "{request:?}");
        }
        // Selections with a step of 0 cannot be made.
        assert!(Selection::new([still, whole], &[4, 4]).is_err());
    }
}
