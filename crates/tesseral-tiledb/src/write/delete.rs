//! Deletes by condition.
//!
//! What is stored is the condition that cells must meet to stay: the negation, with `not` worked into the comparisons, as other
//! readers of the format want it. No comparison holds for a null cell, so it goes with any delete on its field.

use tesseral_core::condition::{Condition, Op};
use tesseral_core::schema::Labels;
use tesseral_core::{ArraySchema, Error, Field, Result, Scalar};

use super::edit::Opened;
use super::names;
use super::spec;
use crate::reader::join;
use crate::wire::condition::Node;
use crate::wire::datatype::Datatype;

pub(crate) fn delete(opened: &Opened, condition: &Condition, at: u64) -> Result<()> {
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
    let name = format!("{}.del", names::versioned(at, at, wire.version));
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
        (0, _) => Node::Constant(and),
        (1, _) => parts.remove(0),
        (_, true) => Node::And(parts),
        (_, false) => Node::Or(parts),
    };
    Ok(match condition {
        Condition::And(parts) => join(all(parts)?, !negated),
        Condition::Or(parts) => join(all(parts)?, negated),
        Condition::Not(part) => tree(part, schema, !negated)?,
        Condition::Compare { name, op, value } => {
            let op = if negated { op.negated() } else { *op };
            Node::Compare { op: number(op), field: name.clone(), value: bytes(name, value, schema)? }
        }
        Condition::In { name, values } => {
            let values = values.iter().map(|v| bytes(name, v, schema)).collect::<Result<_>>()?;
            Node::Member { negated, field: name.clone(), values }
        }
        Condition::IsNull { name } => {
            let op = if negated { Op::Ne } else { Op::Eq };
            schema.field(name)?;
            Node::Compare { op: number(op), field: name.clone(), value: Vec::new() }
        }
    })
}

/// A value as the field or dimension stores it; labels of enumerated fields instead of their codes.
fn bytes(name: &str, value: &Scalar, schema: &ArraySchema) -> Result<Vec<u8>> {
    if let Some(dim) = schema.dims.iter().find(|d| d.name == name) {
        return plain(value, dim.dtype);
    }
    let field = &schema.fields[schema.field(name)?];
    match &field.enumeration {
        None => plain(value, field.dtype),
        Some(_) => label(field, value),
    }
}

fn plain(value: &Scalar, dtype: tesseral_core::DType) -> Result<Vec<u8>> {
    if dtype.class() == tesseral_core::dtype::Class::Text {
        return Ok(value.bytes().to_vec());
    }
    let datatype = Datatype::of(dtype);
    let datatype = datatype.ok_or_else(|| Error::unsupported(format!("a delete by {dtype}")))?;
    spec::sized(value, datatype)
}

fn label(field: &Field, value: &Scalar) -> Result<Vec<u8>> {
    let labels = field.enumeration.as_ref().map(|e| &e.labels);
    let code = value.as_i128().and_then(|n| usize::try_from(n).ok());
    let found = labels.zip(code).and_then(|(labels, code)| match labels {
        Labels::Text(labels) => labels.get(code).map(|l| l.as_bytes().to_vec()),
        Labels::Numbers { .. } => labels.get(code).map(|l| l.bytes().to_vec()),
    });
    found.ok_or_else(|| Error::invalid(format!("{value} is no code of field {:?}", field.name)))
}
