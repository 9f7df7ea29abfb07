//! What is wanted of an array.

use tesseral_core::condition::Condition;
use tesseral_core::{Scalar, Selection};

use crate::Column;

/// Closed ranges of coordinates along one dimension; none means all.
pub type CoordinateRanges = Vec<(Scalar, Scalar)>;

/// Which cells.
#[derive(Clone, Debug, PartialEq)]
pub enum Target {
    /// Cells of a dense array, by position.
    Cells(Selection),
    /// Cells of a sparse array whose coordinates lie in the ranges, one list per dimension.
    Coordinates(Vec<CoordinateRanges>),
}

/// What is wanted of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Which cells.
    pub target: Target,
    /// Which columns, each once.
    pub columns: Vec<Column>,
    /// Only cells that meet this. A plan may use it to leave out chunks that cannot hold such a cell.
    pub condition: Option<Condition>,
}

impl Request {
    /// One field of a dense selection.
    pub fn cells(selection: Selection, field: u16) -> Self {
        Self { target: Target::Cells(selection), columns: vec![Column::Field(field)], condition: None }
    }

    /// The selection, for dense requests.
    pub fn selection(&self) -> Option<&Selection> {
        match &self.target {
            Target::Cells(selection) => Some(selection),
            Target::Coordinates(_) => None,
        }
    }
}
