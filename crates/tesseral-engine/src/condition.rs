//! Whether a cell meets a condition.

use std::cmp::Ordering;

use tesseral_core::condition::{Condition, Op};
use tesseral_core::{ArraySchema, Error, Result, Scalar};
use tesseral_format::Column;

/// A field or dimension by name; fields go first.
pub(crate) fn column_of(schema: &ArraySchema, name: &str) -> Result<Column> {
    let field =
        schema.fields.iter().zip(0_u16..).find(|(f, _)| f.name == name).map(|(_, i)| Column::Field(i));
    let dim = || schema.dims.iter().zip(0_u16..).find(|(d, _)| d.name == name).map(|(_, i)| Column::Dim(i));
    field.or_else(dim).ok_or_else(|| {
        let names =
            schema.fields.iter().map(|f| f.name.clone()).chain(schema.dims.iter().map(|d| d.name.clone()));
        Error::not_found("field or dimension", name, names.collect()).in_array(&schema.name)
    })
}

/// Adds the columns a condition looks at.
pub(crate) fn columns_of(schema: &ArraySchema, condition: &Condition, out: &mut Vec<Column>) -> Result<()> {
    match condition {
        Condition::And(parts) | Condition::Or(parts) => {
            parts.iter().try_for_each(|part| columns_of(schema, part, out))
        }
        Condition::Not(part) => columns_of(schema, part, out),
        Condition::Compare { name, .. } | Condition::In { name, .. } | Condition::IsNull { name } => {
            let column = column_of(schema, name)?;
            if !out.contains(&column) {
                out.push(column);
            }
            Ok(())
        }
    }
}

/// Whether a cell meets a condition. `value` gives the cell's value in a column, `None` where it is null.
pub(crate) fn meets(
    schema: &ArraySchema,
    condition: &Condition,
    value: &dyn Fn(Column) -> Result<Option<Scalar>>,
) -> Result<bool> {
    let named = |name: &str| value(column_of(schema, name)?);
    Ok(match condition {
        Condition::And(parts) => {
            for part in parts {
                if !meets(schema, part, value)? {
                    return Ok(false);
                }
            }
            true
        }
        Condition::Or(parts) => {
            for part in parts {
                if meets(schema, part, value)? {
                    return Ok(true);
                }
            }
            false
        }
        Condition::Not(part) => !meets(schema, part, value)?,
        Condition::Compare { name, op, value: with } => {
            named(name)?.is_some_and(|v| compares(*op, v.compare(with)))
        }
        Condition::In { name, values } => {
            named(name)?.is_some_and(|v| values.iter().any(|with| v.compare(with) == Some(Ordering::Equal)))
        }
        Condition::IsNull { name } => named(name)?.is_none(),
    })
}

/// NaN compares with nothing, so only `≠` holds of it.
fn compares(op: Op, order: Option<Ordering>) -> bool {
    match op {
        Op::Lt => order == Some(Ordering::Less),
        Op::Le => order.is_some_and(Ordering::is_le),
        Op::Gt => order == Some(Ordering::Greater),
        Op::Ge => order.is_some_and(Ordering::is_ge),
        Op::Eq => order == Some(Ordering::Equal),
        Op::Ne => order != Some(Ordering::Equal),
    }
}
