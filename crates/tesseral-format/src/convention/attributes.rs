//! Attributes whose types or order a format does not preserve.

use std::collections::HashSet;

use serde_json::{Value as Json, json};
use tesseral_core::metadata::RESERVED_NAME_PREFIX;
use tesseral_core::{Attributes, Value};

use super::value::{from_json, to_json};
use super::{Holds, KEY};

/// Names of attributes in order; with a value if the format stores none or another one.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct AttributeList(Vec<(String, Option<Box<Value>>)>);

/// Whether a value has keys, whose order counts.
fn has_keys(value: &Value) -> bool {
    match value {
        Value::Map(map) => map.len() > 1 || map.values().any(has_keys),
        Value::List(values) => values.iter().any(has_keys),
        _ => false,
    }
}

/// Returns the attributes to store, and the list that restores the rest; `None` if the format preserves everything.
pub(super) fn encode(
    attributes: &Attributes,
    project: fn(&str, &Value) -> Option<Value>,
    holds: &Holds,
) -> (Attributes, Option<AttributeList>) {
    let mut native = Attributes::new();
    let mut kept = Vec::with_capacity(attributes.len());
    let mut exact = holds.ordered || attributes.keys().is_sorted();
    for (name, value) in attributes {
        let room = native.len() < holds.attributes && name != KEY;
        let held = room.then(|| project(name, value)).flatten();
        let restored = held.as_ref() == Some(value) && (holds.ordered || !has_keys(value));
        exact &= restored;
        kept.push(restored);
        native.extend(held.map(|held| (name.clone(), held)));
    }
    let listed = |((name, value), kept): ((&String, &Value), bool)| {
        (name.clone(), (!kept).then(|| Box::new(value.clone())))
    };
    let list = (!exact).then(|| AttributeList(attributes.iter().zip(kept).map(listed).collect()));
    (native, list)
}

/// Restores the encoded attributes. Attributes that another program changed or added since are returned unchanged.
pub(super) fn decode(
    native: &Attributes,
    list: &AttributeList,
    project: fn(&str, &Value) -> Option<Value>,
) -> Attributes {
    let listed: HashSet<&str> = list.0.iter().map(|(name, _)| name.as_str()).collect();
    let mut used: HashSet<&str> = HashSet::from([KEY]);
    let mut out = Attributes::new();
    for (name, value) in &list.0 {
        let aside = format!("{RESERVED_NAME_PREFIX}{name}");
        let aside = native.get_key_value(aside.as_str()).filter(|(key, _)| !listed.contains(key.as_str()));
        let found = aside.or_else(|| native.get_key_value(name.as_str())).filter(|_| name != KEY);
        if let Some((key, _)) = found {
            used.insert(key);
        }
        let held = found.map(|(_, held)| held);
        let restored = match (value, held) {
            (None, held) => held.cloned(),
            (Some(value), None) => Some(Value::clone(value)),
            // Where the format holds no such attribute, what it has under the name is something else.
            (Some(value), Some(held)) => match project(name, value) {
                Some(projected) if projected != *held => Some(held.clone()),
                _ => Some(Value::clone(value)),
            },
        };
        out.extend(restored.map(|value| (name.clone(), value)));
    }
    for (name, value) in native.iter().filter(|(name, _)| !used.contains(name.as_str())) {
        out.entry(name.clone()).or_insert_with(|| value.clone());
    }
    out
}

/// Prefix of attributes of the container that earlier versions stored with an array.
pub const OF_CONTAINER: &str = "container:";

/// Sets aside names that readers would take for something else: for attributes of the container, of one field among several
/// (`prefix`), or for names that were set aside. `None` if there are none.
pub(super) fn set_aside(attributes: &Attributes, prefix: Option<&str>) -> Option<Attributes> {
    let reserved = |name: &str| {
        name.starts_with(RESERVED_NAME_PREFIX)
            || name.starts_with(OF_CONTAINER)
            || prefix.is_some_and(|prefix| name.starts_with(prefix))
    };
    attributes.keys().any(|name| reserved(name)).then(|| {
        let own = |name: &String| {
            if reserved(name) { format!("{RESERVED_NAME_PREFIX}{name}") } else { name.clone() }
        };
        attributes.iter().map(|(name, value)| (own(name), value.clone())).collect()
    })
}

impl AttributeList {
    /// Lists all attributes with their values.
    pub(super) fn full(attributes: &Attributes) -> Self {
        Self(attributes.iter().map(|(name, value)| (name.clone(), Some(Box::new(value.clone())))).collect())
    }

    /// The names of these, whose values the format holds.
    pub(super) fn names(attributes: &Attributes) -> Self {
        Self(attributes.keys().map(|name| (name.clone(), None)).collect())
    }

    /// Whether there is an attribute of that name.
    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|(listed, _)| listed == name)
    }

    /// Appends the list as JSON.
    pub(super) fn write_json(&self, out: &mut String) {
        out.push('[');
        for (number, (name, value)) in self.0.iter().enumerate() {
            out.push_str(if number == 0 { "[" } else { ",[" });
            out.push_str(&json!(name).to_string());
            if let Some(value) = value {
                out.push(',');
                out.push_str(&to_json(value).to_string());
            }
            out.push(']');
        }
        out.push(']');
    }

    pub(super) fn from_json(json: &Json) -> Option<Self> {
        let item = |item: &Json| match item.as_array()?.as_slice() {
            [Json::String(name)] => Some((name.clone(), None)),
            [Json::String(name), value] => Some((name.clone(), Some(Box::new(from_json(value))))),
            _ => None,
        };
        json.as_array()?.iter().map(item).collect::<Option<_>>().map(Self)
    }
}
