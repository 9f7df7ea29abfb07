//! Conditions on cells, as queries and stored deletes express them.

mod literal;

use std::cmp::Ordering;

use crate::Scalar;

/// A comparison operator.
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
    /// Returns the negated operator, for values that are neither null nor NaN.
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

    /// Returns whether the comparison is true for an ordering. NaN has no ordering, so only `≠` is true for it.
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

/// A condition on the fields and coordinates of one cell. A comparison with a missing cell neither holds nor fails; NaN follows
/// IEEE 754.
#[derive(Clone, Debug, PartialEq)]
pub enum Condition {
    /// True if all operands are true.
    And(Vec<Condition>),
    /// True if any operand is true.
    Or(Vec<Condition>),
    /// True if the operand is false; neither where the operand is neither.
    Not(Box<Condition>),
    /// A comparison of a field or dimension, by name, with a value.
    Compare {
        /// The field or dimension.
        name: String,
        /// The operator.
        op: Op,
        /// The right-hand side.
        value: Scalar,
    },
    /// True if a field or dimension equals one of several values.
    In {
        /// The field or dimension.
        name: String,
        /// The values.
        values: Vec<Scalar>,
    },
    /// True if the cell of a field is null.
    IsNull {
        /// The field.
        name: String,
    },
}
