//! Stored deletes as conditions on the removed cells.

use tesseral_core::condition::{Condition, Op};
use tesseral_core::{ArraySchema, Error, Result, Scalar};
use tesseral_store::StoreExt;

use crate::directory::{DeleteBytes, DeleteEntry};
use crate::fragment::Fragment;
use crate::metadata_loader::MetadataLoader;
use crate::wire::condition::Node;
use crate::wire::schema::Schema;

/// A stored delete.
#[derive(Clone, Debug)]
pub(crate) struct StoredDelete {
    pub timestamp: u64,
    pub name: String,
    /// Condition of the removed cells, or the name of a field that the array no longer has.
    condition: std::result::Result<Condition, String>,
}

impl StoredDelete {
    pub(crate) fn condition(&self) -> Result<Condition> {
        self.condition
            .clone()
            .map_err(|what| Error::unsupported(format!("stored delete {}: {what}", self.name)))
    }

    /// Returns whether cells of a fragment are removed because its schema lacks a field of the condition: only `is null` is
    /// true there.
    pub(crate) fn meets_absent(&self, fragment: &Fragment) -> bool {
        let wire = &fragment.schema.wire;
        let absent = |name: &str| wire.attribute(name).is_none() && wire.dims.iter().all(|d| d.name != name);
        fragment.entry.start <= self.timestamp && self.condition.as_ref().is_ok_and(|c| names(c, &absent))
    }
}

/// Returns whether a condition refers to a name that `test` accepts.
fn names(condition: &Condition, holds: &dyn Fn(&str) -> bool) -> bool {
    match condition {
        Condition::And(parts) | Condition::Or(parts) => parts.iter().any(|part| names(part, holds)),
        Condition::Not(part) => names(part, holds),
        Condition::Compare { name, .. } | Condition::In { name, .. } | Condition::IsNull { name } => {
            holds(name)
        }
    }
}

/// Parses a delete.
pub(crate) fn read(
    reader: &MetadataLoader,
    entry: &DeleteEntry,
    wire: &Schema,
    schema: &ArraySchema,
) -> Result<StoredDelete> {
    let (object, bytes) = match &entry.bytes {
        DeleteBytes::Object(object) => (object.as_str(), reader.object(object)?.0),
        DeleteBytes::Inline(bytes) => (entry.name.as_str(), reader.unfilter(&entry.name, bytes)?.0),
    };
    let tree = Node::parse(&reader.store.describe(object), &bytes, &reader.limits)?;
    // The stored tree is the condition of the cells that are kept.
    let condition = match translate(&tree, wire, schema) {
        Ok(stays) => Ok(Condition::Not(Box::new(stays))),
        Err(UnsupportedCondition(what)) => Err(what),
    };
    Ok(StoredDelete { timestamp: entry.time.end, name: entry.name.clone(), condition })
}

/// Reason why a condition cannot be evaluated.
struct UnsupportedCondition(String);

fn translate(
    node: &Node,
    wire: &Schema,
    schema: &ArraySchema,
) -> std::result::Result<Condition, UnsupportedCondition> {
    let all = |children: &[Node]| -> std::result::Result<Vec<Condition>, UnsupportedCondition> {
        children.iter().map(|c| translate(c, wire, schema)).collect()
    };
    Ok(match node {
        Node::And(children) => Condition::And(all(children)?),
        Node::Or(children) => Condition::Or(all(children)?),
        Node::Not(child) => Condition::Not(Box::new(translate(child, wire, schema)?)),
        Node::Constant(true) => Condition::And(Vec::new()),
        Node::Constant(false) => Condition::Or(Vec::new()),
        Node::Compare { op, field, value } => {
            let name = field.clone();
            // Zero bytes are the empty text for variable-length cells, as in the reference.
            let null = |a: usize| wire.attributes[a].nullable && !wire.attributes[a].var();
            if value.is_empty() && wire.attribute(field).is_some_and(null) && matches!(op, 4 | 5) {
                let null = Condition::IsNull { name };
                return Ok(if *op == 4 { null } else { Condition::Not(Box::new(null)) });
            }
            let op = match op {
                0 => Op::Lt,
                1 => Op::Le,
                2 => Op::Gt,
                3 => Op::Ge,
                4 => Op::Eq,
                _ => Op::Ne,
            };
            Condition::Compare { name, op, value: scalar(field, value, schema)? }
        }
        Node::Member { negated, field, values } => {
            let name = field.clone();
            let values = values
                .iter()
                .map(|v| scalar(field, v, schema))
                .collect::<std::result::Result<Vec<_>, _>>()?;
            let member = Condition::In { name: name.clone(), values };
            match negated {
                false => member,
                // Comparisons with a null cell are false, including this one.
                true => Condition::And(vec![
                    Condition::Not(Box::new(member)),
                    Condition::Not(Box::new(Condition::IsNull { name })),
                ]),
            }
        }
    })
}

/// Returns the value of a comparison in the type of its dimension or field; for enumerations, the stored code.
fn scalar(
    name: &str,
    bytes: &[u8],
    schema: &ArraySchema,
) -> std::result::Result<Scalar, UnsupportedCondition> {
    let dim = schema.dims.iter().find(|d| d.name == name).map(|d| d.dtype);
    let field = || schema.fields.iter().find(|f| f.name == name).map(|f| f.dtype);
    let dtype = dim
        .or_else(field)
        .ok_or_else(|| UnsupportedCondition(format!("the field {name:?} no longer exists in the array")))?;
    Scalar::from_le_bytes(dtype, bytes).map_err(|_| {
        UnsupportedCondition(format!("the comparison with {name:?} has a value of {} bytes", bytes.len()))
    })
}
