//! Stored deletes, as conditions on the cells that go.

use tesseral_core::condition::{Condition, Op};
use tesseral_core::schema::Labels;
use tesseral_core::{ArraySchema, Error, Result, Scalar};
use tesseral_store::StoreExt;

use crate::directory::{DeleteBytes, DeleteEntry};
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
            let nullable = wire.attribute(field).is_some_and(|a| wire.attributes[a].nullable);
            if value.is_empty() && nullable && matches!(op, 4 | 5) {
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
            match scalar(field, value, schema)? {
                Some(value) => Condition::Compare { name, op, value },
                // A label that the enumeration does not have: no cell is it, every one that is not null is another.
                None if op == Op::Ne => Condition::Not(Box::new(Condition::IsNull { name })),
                None if op == Op::Eq => Condition::Or(Vec::new()),
                None => return Err(Refused(format!("it orders {field:?} by a label it does not have"))),
            }
        }
        Node::Member { negated, field, values } => {
            let name = field.clone();
            let values = values
                .iter()
                .map(|v| scalar(field, v, schema))
                .collect::<std::result::Result<Vec<_>, _>>()?;
            let member = Condition::In { name: name.clone(), values: values.into_iter().flatten().collect() };
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

/// The value of a comparison; `None` for a label that the field's enumeration does not have.
fn scalar(name: &str, bytes: &[u8], schema: &ArraySchema) -> std::result::Result<Option<Scalar>, Refused> {
    let odd = |_| Refused(format!("{} bytes compare with {name:?}", bytes.len()));
    if let Some(dim) = schema.dims.iter().find(|d| d.name == name) {
        return Scalar::from_le_bytes(dim.dtype, bytes).map(Some).map_err(odd);
    }
    let Some(field) = schema.fields.iter().find(|f| f.name == name) else {
        return Err(Refused(format!("it asks for {name:?}, which the array no longer has")));
    };
    let Some(enumeration) = &field.enumeration else {
        return Scalar::from_le_bytes(field.dtype, bytes).map(Some).map_err(odd);
    };
    let label = match &enumeration.labels {
        Labels::Text(labels) => labels.iter().position(|l| l.as_bytes() == bytes),
        Labels::Numbers { dtype, bytes: labels } => {
            labels.chunks(dtype.size().unwrap_or(1)).position(|label| label == bytes)
        }
    };
    let Some(code) = label else { return Ok(None) };
    let size = field.dtype.size().unwrap_or(1);
    Scalar::from_le_bytes(field.dtype, &(code as u64).to_le_bytes()[..size.min(8)]).map(Some).map_err(odd)
}
