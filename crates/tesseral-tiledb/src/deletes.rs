//! Stored deletes, as conditions on the cells that go.

use tesseral_core::condition::{Condition, Op};
use tesseral_core::{ArraySchema, Error, Result, Scalar};
use tesseral_store::StoreExt;

use crate::directory::{DeleteBytes, DeleteEntry};
use crate::fragment::Fragment;
use crate::reader::Reader;
use crate::wire::condition::Node;
use crate::wire::schema::Schema;

/// A stored delete.
#[derive(Clone, Debug)]
pub(crate) struct StoredDelete {
    pub timestamp: u64,
    pub name: String,
    /// Which cells go, or the field it asks for that the array no longer has.
    condition: std::result::Result<Condition, String>,
}

impl StoredDelete {
    pub(crate) fn condition(&self) -> Result<Condition> {
        self.condition
            .clone()
            .map_err(|what| Error::unsupported(format!("the stored delete {}: {what}", self.name)))
    }

    /// Whether cells of a fragment go because its schema lacks a field that the delete asks for: nothing but `is null` holds there.
    pub(crate) fn meets_absent(&self, fragment: &Fragment) -> bool {
        let wire = &fragment.schema.wire;
        let absent = |name: &str| wire.attribute(name).is_none() && wire.dims.iter().all(|d| d.name != name);
        fragment.entry.start <= self.timestamp && self.condition.as_ref().is_ok_and(|c| names(c, &absent))
    }
}

/// Whether a condition looks at a name of which something holds.
fn names(condition: &Condition, holds: &dyn Fn(&str) -> bool) -> bool {
    match condition {
        Condition::And(parts) | Condition::Or(parts) => parts.iter().any(|part| names(part, holds)),
        Condition::Not(part) => names(part, holds),
        Condition::Compare { name, .. } | Condition::In { name, .. } | Condition::IsNull { name } => {
            holds(name)
        }
    }
}

/// Reads a delete.
pub(crate) fn read(
    reader: &Reader,
    entry: &DeleteEntry,
    wire: &Schema,
    schema: &ArraySchema,
) -> Result<StoredDelete> {
    let (object, bytes) = match &entry.bytes {
        DeleteBytes::Object(object) => (object.as_str(), reader.object(object)?.0),
        DeleteBytes::Inline(bytes) => (entry.name.as_str(), reader.unfilter(&entry.name, bytes)?.0),
    };
    let tree = Node::parse(&reader.store.describe(object), &bytes, &reader.limits)?;
    // The tree says which cells stay.
    let condition = match translate(&tree, wire, schema) {
        Ok(stays) => Ok(Condition::Not(Box::new(stays))),
        Err(Refused(what)) => Err(what),
    };
    Ok(StoredDelete { timestamp: entry.time.end, name: entry.name.clone(), condition })
}

/// Why a condition cannot be evaluated.
struct Refused(String);

fn translate(node: &Node, wire: &Schema, schema: &ArraySchema) -> std::result::Result<Condition, Refused> {
    let all = |children: &[Node]| -> std::result::Result<Vec<Condition>, Refused> {
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
            // No bytes are the empty text where cells have any length, as the reference reads it.
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
                // Comparisons with a null cell are false, this one too.
                true => Condition::And(vec![
                    Condition::Not(Box::new(member)),
                    Condition::Not(Box::new(Condition::IsNull { name })),
                ]),
            }
        }
    })
}

/// The value of a comparison, in the type of its dimension or field: for labels their codes are stored.
fn scalar(name: &str, bytes: &[u8], schema: &ArraySchema) -> std::result::Result<Scalar, Refused> {
    let dim = schema.dims.iter().find(|d| d.name == name).map(|d| d.dtype);
    let field = || schema.fields.iter().find(|f| f.name == name).map(|f| f.dtype);
    let dtype = dim
        .or_else(field)
        .ok_or_else(|| Refused(format!("it asks for {name:?}, which the array no longer has")))?;
    Scalar::from_le_bytes(dtype, bytes)
        .map_err(|_| Refused(format!("{} bytes compare with {name:?}", bytes.len())))
}
