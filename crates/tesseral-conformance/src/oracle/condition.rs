//! Evaluation of conditions.

use std::cmp::Ordering;

use tesseral_core::condition::{Condition, Op};
use tesseral_core::{ArraySchema, Error, Result, Scalar};

use super::sparse::Row;
use super::summary::{is_null, scalar};

fn value(schema: &ArraySchema, row: &Row, name: &str) -> Result<Option<Scalar>> {
    if let Some(i) = schema.fields.iter().position(|f| f.name == name) {
        return row.fields[i].as_ref().map(|bytes| scalar(schema.fields[i].dtype, bytes)).transpose();
    }
    let i = schema.dims.iter().position(|d| d.name == name);
    let i = i.ok_or_else(|| Error::not_found("field or dimension", name, Vec::new()))?;
    scalar(schema.dims[i].dtype, &row.coords[i]).map(Some)
}

/// Whether a condition is true for a row with all fields; `None` where a missing cell leaves that open. Conditions of the format
/// itself know stored validity only.
fn outcome(condition: &Condition, schema: &ArraySchema, row: &Row, stored: bool) -> Result<Option<bool>> {
    let value = |name: &str| -> Result<Option<Scalar>> {
        let field = schema.fields.iter().position(|f| f.name == name);
        let missing = field.is_some_and(|i| {
            let field = &schema.fields[i];
            !stored && is_null(field, &field.missing_values(), row.fields[i].as_deref())
        });
        if missing { Ok(None) } else { value(schema, row, name) }
    };
    let each = |parts: &[Condition]| -> Result<Vec<Option<bool>>> {
        parts.iter().map(|part| outcome(part, schema, row, stored)).collect()
    };
    Ok(match condition {
        Condition::And(parts) => match each(parts)? {
            parts if parts.contains(&Some(false)) => Some(false),
            parts => (!parts.contains(&None)).then_some(true),
        },
        Condition::Or(parts) => match each(parts)? {
            parts if parts.contains(&Some(true)) => Some(true),
            parts => (!parts.contains(&None)).then_some(false),
        },
        Condition::Not(part) => outcome(part, schema, row, stored)?.map(|holds| !holds),
        Condition::Compare { name, op, value: with } => value(name)?.map(|value| {
            let order = value.compare(with);
            match op {
                Op::Lt => order == Some(Ordering::Less),
                Op::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
                Op::Gt => order == Some(Ordering::Greater),
                Op::Ge => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
                Op::Eq => order == Some(Ordering::Equal),
                Op::Ne => order != Some(Ordering::Equal),
            }
        }),
        Condition::In { name, values } => {
            value(name)?.map(|value| values.iter().any(|with| value.compare(with) == Some(Ordering::Equal)))
        }
        Condition::IsNull { name } => Some(value(name)?.is_none()),
    })
}

/// Whether a row with all fields meets a condition.
pub(super) fn meets(condition: &Condition, schema: &ArraySchema, row: &Row, stored: bool) -> Result<bool> {
    Ok(outcome(condition, schema, row, stored)? == Some(true))
}
