//! Evaluation of conditions.

use std::cmp::Ordering;

use tesseral_core::condition::{Condition, Op};
use tesseral_core::{ArraySchema, Error, Result, Scalar};

use super::sparse::Row;
use super::summary::scalar;

fn value(schema: &ArraySchema, row: &Row, name: &str) -> Result<Option<Scalar>> {
    if let Some(i) = schema.fields.iter().position(|f| f.name == name) {
        return row.fields[i].as_ref().map(|bytes| scalar(schema.fields[i].dtype, bytes)).transpose();
    }
    let i = schema.dims.iter().position(|d| d.name == name);
    let i = i.ok_or_else(|| Error::not_found("field or dimension", name, Vec::new()))?;
    scalar(schema.dims[i].dtype, &row.coords[i]).map(Some)
}

/// Whether a row with all fields meets a condition.
pub(super) fn meets(condition: &Condition, schema: &ArraySchema, row: &Row) -> Result<bool> {
    Ok(match condition {
        Condition::And(parts) => {
            parts.iter().map(|part| meets(part, schema, row)).collect::<Result<Vec<_>>>()?.iter().all(|v| *v)
        }
        Condition::Or(parts) => {
            parts.iter().map(|part| meets(part, schema, row)).collect::<Result<Vec<_>>>()?.iter().any(|v| *v)
        }
        Condition::Not(part) => !meets(part, schema, row)?,
        Condition::Compare { name, op, value: with } => match value(schema, row, name)? {
            None => false,
            Some(value) => {
                let order = value.compare(with);
                match op {
                    Op::Lt => order == Some(Ordering::Less),
                    Op::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
                    Op::Gt => order == Some(Ordering::Greater),
                    Op::Ge => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
                    Op::Eq => order == Some(Ordering::Equal),
                    Op::Ne => order != Some(Ordering::Equal),
                }
            }
        },
        Condition::In { name, values } => value(schema, row, name)?
            .is_some_and(|value| values.iter().any(|with| value.compare(with) == Some(Ordering::Equal))),
        Condition::IsNull { name } => value(schema, row, name)?.is_none(),
    })
}
