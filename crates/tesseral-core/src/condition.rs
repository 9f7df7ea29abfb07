//! Conditions on cells, as queries and stored deletes express them.

use std::cmp::Ordering;

use crate::Scalar;

/// How a cell compares with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Lt,
    Le,
    Gt,
    Ge,
    Eq,
    Ne,
}

impl Op {
    /// What holds exactly where a comparison of a value that is neither null nor NaN does not.
    #[must_use]
    pub fn negated(self) -> Self {
        match self {
            Self::Lt => Self::Ge,
            Self::Le => Self::Gt,
            Self::Gt => Self::Le,
            Self::Ge => Self::Lt,
            Self::Eq => Self::Ne,
            Self::Ne => Self::Eq,
        }
    }

    /// Whether it holds of a value that compares so. NaN compares with nothing, so only `≠` holds of it.
    #[must_use]
    pub fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Self::Lt => order == Some(Ordering::Less),
            Self::Le => order.is_some_and(Ordering::is_le),
            Self::Gt => order == Some(Ordering::Greater),
            Self::Ge => order.is_some_and(Ordering::is_ge),
            Self::Eq => order == Some(Ordering::Equal),
            Self::Ne => order != Some(Ordering::Equal),
        }
    }
}

/// A condition on the fields and coordinates of one cell. Comparisons with a null cell are false.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// Every part holds.
    And(Vec<Condition>),
    /// At least one part holds.
    Or(Vec<Condition>),
    /// The part does not hold.
    Not(Box<Condition>),
    /// A field or dimension, by name, compares with a value.
    Compare {
        /// The field or dimension.
        name: String,
        /// How.
        op: Op,
        /// With what.
        value: Scalar,
    },
    /// A field or dimension is one of several values.
    In {
        /// The field or dimension.
        name: String,
        /// The values.
        values: Vec<Scalar>,
    },
    /// A field's cell is null.
    IsNull {
        /// The field.
        name: String,
    },
}
