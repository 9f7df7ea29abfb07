//! The variables of a container: each field of each array, under a name that means something elsewhere too, with everything
//! that is said of it. What formats lay out in different ways is the same list of variables.

use std::collections::HashMap;

use tesseral_core::metadata::SET_ASIDE;
use tesseral_core::{Attributes, Dimension, Error, Result, Value};

use crate::{Array, Container};

/// Keys that speak of one field of an array of several begin so, as TileDB-CF has it: `__tiledb_attr.sst.units`.
const OF_FIELD: &str = "__tiledb_attr.";
/// Keys that speak of the container but are kept with an array, where the format has no other place, begin so.
const OF_CONTAINER: &str = "container:";

/// One field of one array.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    /// Its name among the variables of the container.
    pub name: String,
    /// The array, reading the field.
    pub array: Array,
    /// What is said of it, without what the schema says already.
    pub attributes: Attributes,
}

/// Variables, and what is said of all of them.
#[derive(Clone, Debug)]
pub(crate) struct Variables {
    pub list: Vec<Variable>,
    pub attributes: Attributes,
}

impl Variables {
    /// The variables of a container; all of them, or those of the arrays and fields that are named.
    pub(crate) fn of(container: &Container, wanted: &[String]) -> Result<Self> {
        let numbered = container.format().capabilities().numbered;
        let mut list = Vec::new();
        let mut lifted = Attributes::new();
        let mut arrays = Vec::new();
        for index in 0..container.len() {
            let array = container.array_at(index)?;
            let mut attributes = array.schema().attributes.clone();
            for name in array.handle().source().restated() {
                attributes.remove(*name);
            }
            lift(&mut attributes, &mut lifted);
            arrays.push((array, attributes));
        }
        let given = given_names(&arrays, numbered);
        for ((array, attributes), given) in arrays.into_iter().zip(given) {
            for (number, field) in array.schema().fields.iter().enumerate() {
                let only = array.schema().fields.len() == 1;
                let name = if only { given.clone() } else { format!("{given}/{}", field.name) };
                let mut attributes = of_field(&attributes, &field.name);
                if only && attributes.get("name") == Some(&Value::Text(given.clone())) {
                    attributes.remove("name");
                }
                bring_back(&mut attributes);
                // By number: looking each name up would take time by the square of the fields.
                let number = u16::try_from(number)
                    .map_err(|_| Error::limit("fields", number as u64 + 1, u64::from(u16::MAX) + 1))?;
                let array = if only { array.clone() } else { array.clone().field_at(number) };
                list.push(Variable { name, array, attributes });
            }
        }
        shorten(&mut list, numbered);
        let same = container.len() == 1
            && container.array_at(0).is_ok_and(|array| array.schema().attributes == *container.attributes());
        let mut attributes = if same { Attributes::new() } else { container.attributes().clone() };
        attributes.extend(lifted);
        let mut variables = Self { list, attributes };
        if !wanted.is_empty() {
            variables.keep(container, wanted)?;
        }
        Ok(variables)
    }

    /// Keeps what is named: a variable, or an array with all its fields.
    fn keep(&mut self, container: &Container, wanted: &[String]) -> Result<()> {
        let mut kept = Vec::new();
        for name in wanted {
            let mut found: Vec<usize> =
                (0..self.list.len()).filter(|i| self.list[*i].name == *name).collect();
            if found.is_empty() {
                found = (0..self.list.len()).filter(|i| self.list[*i].array.name() == name).collect();
            }
            if found.is_empty()
                && let Ok(array) = container.array(name)
            {
                found = (0..self.list.len()).filter(|i| self.list[*i].array.name() == array.name()).collect();
            }
            if found.is_empty() {
                let names = self.list.iter().map(|v| v.name.clone()).collect();
                return Err(Error::not_found("array", name, names));
            }
            kept.extend(found.into_iter().filter(|i| !kept.contains(i)).collect::<Vec<_>>());
        }
        self.list = kept.into_iter().map(|i| self.list[i].clone()).collect();
        Ok(())
    }
}

/// Names of the arrays: their own, or where those only count, the ones they were given, if no two are the same.
fn given_names(arrays: &[(Array, Attributes)], numbered: bool) -> Vec<String> {
    let given = |attributes: &Attributes| match attributes.get("name") {
        Some(Value::Text(name)) if numbered && !name.is_empty() => Some(name.clone()),
        _ => None,
    };
    let mut seen: HashMap<String, usize> = HashMap::new();
    for name in arrays.iter().filter_map(|(_, attributes)| given(attributes)) {
        *seen.entry(name).or_default() += 1;
    }
    let one = |(array, attributes): &(Array, Attributes)| match given(attributes) {
        Some(name) if seen[&name] == 1 => name,
        _ => array.name().to_owned(),
    };
    arrays.iter().map(one).collect()
}

/// Takes the field's own name where all of them differ and have one.
fn shorten(list: &mut [Variable], numbered: bool) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for variable in list.iter() {
        *seen.entry(variable.array.selected_field().name.clone()).or_default() += 1;
    }
    let unique = seen.iter().all(|(name, count)| *count == 1 && !name.is_empty());
    if unique && !numbered {
        for variable in list {
            variable.name.clone_from(&variable.array.selected_field().name);
        }
    }
}

/// What is said of one field: keys of its own without their mark, and those of all fields.
fn of_field(attributes: &Attributes, field: &str) -> Attributes {
    let own = format!("{OF_FIELD}{field}.");
    let mut out = Attributes::new();
    for (name, value) in attributes {
        if !name.starts_with(OF_FIELD) {
            out.entry(name.clone()).or_insert_with(|| value.clone());
        } else if let Some(name) = name.strip_prefix(&own) {
            out.insert(name.to_owned(), value.clone());
        }
    }
    out
}

/// Gives attributes their names again that had to leave them to the format.
fn bring_back(attributes: &mut Attributes) {
    let aside = |name: &String| name.strip_prefix(SET_ASIDE).is_some_and(|own| !attributes.contains_key(own));
    for name in attributes.keys().filter(|name| aside(name)).cloned().collect::<Vec<_>>() {
        if let Some(value) = attributes.remove(&name) {
            attributes.insert(name[SET_ASIDE.len()..].to_owned(), value);
        }
    }
}

fn lift(attributes: &mut Attributes, lifted: &mut Attributes) {
    attributes.retain(|name, value| match name.strip_prefix(OF_CONTAINER) {
        Some(name) => {
            lifted.insert(name.to_owned(), value.clone());
            false
        }
        None => true,
    });
}

/// Attributes of several fields as those of their one array: what all say alike is said once.
pub(crate) fn merge<'a>(fields: impl IntoIterator<Item = (&'a str, &'a Attributes)> + Clone) -> Attributes {
    let mut out = Attributes::new();
    // Only what the first field says can be what all of them say.
    let mut common =
        fields.clone().into_iter().next().map_or_else(Attributes::new, |(_, first)| first.clone());
    for (_, attributes) in fields.clone() {
        common.retain(|name, value| attributes.get(name) == Some(value));
    }
    for (field, attributes) in fields {
        for (name, value) in attributes {
            let alike = common.contains_key(name);
            let name = if alike { name.clone() } else { format!("{OF_FIELD}{field}.{name}") };
            out.insert(name, value.clone());
        }
    }
    out
}

/// The name under which an array keeps an attribute of its container.
pub(crate) fn kept_with_array(name: &str) -> String {
    format!("{OF_CONTAINER}{name}")
}

/// A dimension's name; names that formats give to those without one are none.
pub(crate) fn plain_name(dim: &Dimension) -> String {
    let made_up = dim.name.strip_prefix("__dim_").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    if made_up { String::new() } else { dim.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_fields_come_apart_as_they_were_put_together() {
        let map = |pairs: &[(&str, &str)]| -> Attributes {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect()
        };
        let (a, b) = (map(&[("units", "K"), ("source", "x")]), map(&[("units", "m"), ("source", "x")]));
        let merged = merge([("t", &a), ("h", &b)]);
        assert_eq!(
            merged,
            map(&[("source", "x"), ("__tiledb_attr.t.units", "K"), ("__tiledb_attr.h.units", "m")])
        );
        assert_eq!(of_field(&merged, "t"), a);
        assert_eq!(of_field(&merged, "h"), b);
        assert_eq!(merge([("t", &a)]), a);
    }
}
