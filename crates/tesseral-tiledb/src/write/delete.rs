//! Deletes by condition.
//!
//! The stored condition is that of the cells to keep: the negation, with `not` applied to the comparisons, as other readers
//! expect. No comparison is true for a null cell, so null cells are removed by any delete on their field.

use tesseral_core::condition::{Condition, Op};
use tesseral_core::dtype::Class;
use tesseral_core::{ArraySchema, DType, Error, Result, Scalar};

use super::edit::ArraySnapshot;
use super::spec;
use crate::metadata_loader::join;
use crate::wire::condition::Node;
use crate::wire::datatype::Datatype;

pub(crate) fn delete(opened: &ArraySnapshot, condition: &Condition, at: u64) -> Result<()> {
    let wire = &opened.opening.current.wire;
    if !wire.sparse {
        return Err(
            Error::unsupported("deleting cells of a dense TileDB array").hint("write other values over them")
        );
    }
    if wire.version < 16 {
        let feature = format!("deletes in a TileDB array of format version {}", wire.version);
        return Err(Error::unsupported(feature));
    }
    let stays = tree(condition, &opened.schema, true)?;
    let mut payload = Vec::new();
    stays.write(&mut payload)?;
    let name = format!("{}.del", opened.versioned(at, at));
    opened.put(&join("__commits", &name), &payload)
}

fn number(op: Op) -> u8 {
    match op {
        Op::Lt => 0,
        Op::Le => 1,
        Op::Gt => 2,
        Op::Ge => 3,
        Op::Eq => 4,
        Op::Ne => 5,
    }
}

fn tree(condition: &Condition, schema: &ArraySchema, negated: bool) -> Result<Node> {
    let all =
        |parts: &[Condition]| parts.iter().map(|p| tree(p, schema, negated)).collect::<Result<Vec<_>>>();
    let join = |mut parts: Vec<Node>, and: bool| match (parts.len(), and) {
        (0, _) => constant(and, schema),
        (1, _) => Ok(parts.remove(0)),
        // The reference drops siblings of an `or` inside an `or`.
        (_, true) => Ok(Node::And(parts.into_iter().flat_map(all_of).collect())),
        (_, false) => Ok(Node::Or(parts.into_iter().flat_map(any_of).collect())),
    };
    Ok(match condition {
        Condition::And(parts) => {
            // `not in` is false for null cells; they are removed anyway.
            let beside_not_in = |part: &&Condition| match part {
                Condition::Not(part) => match &**part {
                    Condition::IsNull { name } => !parts.iter().any(|part| is_not_in(part, name)),
                    _ => true,
                },
                _ => true,
            };
            let parts: Vec<Condition> = parts.iter().filter(beside_not_in).cloned().collect();
            join(all(&parts)?, !negated)?
        }
        Condition::Or(parts) => join(all(parts)?, negated)?,
        Condition::Not(part) => tree(part, schema, !negated)?,
        Condition::Compare { name, op, value } => {
            let op = if negated { op.negated() } else { *op };
            Node::Compare { op: number(op), field: name.clone(), value: bytes(name, value, schema)? }
        }
        Condition::In { name, values } => {
            let values: Vec<Vec<u8>> =
                values.iter().map(|v| bytes(name, v, schema)).collect::<Result<_>>()?;
            match (values.is_empty(), negated) {
                (true, true) => present(name, schema)?,
                (true, false) => constant(false, schema)?,
                _ => Node::Member { negated, field: name.clone(), values },
            }
        }
        Condition::IsNull { name } if negated => present(name, schema)?,
        Condition::IsNull { name } if schema.fields.get(schema.field(name)?).is_some_and(|f| !f.nullable) => {
            constant(false, schema)?
        }
        // No stored comparison is true for a null.
        Condition::IsNull { name } => {
            return Err(Error::unsupported(format!("deleting cells because {name:?} is not null"))
                .hint("delete by a comparison instead; it removes null cells too"));
        }
    })
}

fn all_of(node: Node) -> Vec<Node> {
    match node {
        Node::And(parts) => parts,
        node => vec![node],
    }
}

fn any_of(node: Node) -> Vec<Node> {
    match node {
        Node::Or(parts) => parts,
        node => vec![node],
    }
}

fn is_not_in(condition: &Condition, field: &str) -> bool {
    matches!(condition, Condition::Not(part) if matches!(&**part, Condition::In { name, .. } if name == field))
}

/// A condition that is true for every cell or for none. Other readers do not support constants.
fn constant(value: bool, schema: &ArraySchema) -> Result<Node> {
    let dim = schema.dims.first().ok_or_else(|| Error::invalid("the array has no dimensions"))?;
    Ok(match present(&dim.name, schema)? {
        Node::Or(parts) if !value => Node::And(parts),
        node => node,
    })
}

/// A condition that is true for every cell that is not null. Stored conditions cannot express null.
fn present(name: &str, schema: &ArraySchema) -> Result<Node> {
    let dtype = dtype(name, schema)?;
    let value = match dtype.class() {
        // Other readers do not distinguish empty text from null.
        Class::Text => vec![b'a'],
        _ => vec![0; dtype.size().unwrap_or(1)],
    };
    let either = |op| Node::Compare { op: number(op), field: name.to_owned(), value: value.clone() };
    Ok(Node::Or(vec![either(Op::Eq), either(Op::Ne)]))
}

fn dtype(name: &str, schema: &ArraySchema) -> Result<DType> {
    match schema.dims.iter().find(|d| d.name == name) {
        Some(dim) => Ok(dim.dtype),
        None => Ok(schema.fields[schema.field(name)?].dtype),
    }
}

/// Encodes a value in the type of the field or dimension; enumerations use codes.
fn bytes(name: &str, value: &Scalar, schema: &ArraySchema) -> Result<Vec<u8>> {
    let dtype = dtype(name, schema)?;
    if dtype.class() == Class::Text {
        return Ok(value.bytes().to_vec());
    }
    let datatype = Datatype::from_dtype(dtype);
    let datatype = datatype.ok_or_else(|| Error::unsupported(format!("a delete by {dtype}")))?;
    spec::sized(value, datatype)
}
