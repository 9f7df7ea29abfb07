//! Conditions on cells, as queries and stored deletes express them.

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
    /// The operator that holds exactly where this one does not, for values that are neither null nor NaN.
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

    /// Whether the comparison holds for an ordering. NaN has no ordering, so only `≠` holds for it.
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
    /// All operands hold.
    And(Vec<Condition>),
    /// At least one operand holds.
    Or(Vec<Condition>),
    /// The operand does not hold.
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
    /// A field or dimension equals one of several values.
    In {
        /// The field or dimension.
        name: String,
        /// The values.
        values: Vec<Scalar>,
    },
    /// The cell of a field is null.
    IsNull {
        /// The field.
        name: String,
    },
}
