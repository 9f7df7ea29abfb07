//! Requests to an array.

use tesseral_core::condition::Condition;
use tesseral_core::{Scalar, Selection};

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
}
