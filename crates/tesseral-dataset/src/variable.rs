//! The variables of a container: each field of each array, with a meaningful name and its attributes, independent of the layout
//! of the format.

use std::collections::HashMap;

use tesseral_core::metadata::SET_ASIDE;
use tesseral_core::schema::VariableRole;
use tesseral_core::{Advice, Attributes, Dimension, Error, Result, Value};

use crate::{Array, Container};

/// Keys that speak of the container but are kept with an array, where the format has no other place, begin so.
const OF_CONTAINER: &str = "container:";

/// One field of one array.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Name among the variables of the container.
    pub name: String,
    /// The array with the selected field.
    pub array: Array,
    /// Attributes, without derived ones.
    pub attributes: Attributes,
    /// Index of its array in the container.
    pub number: usize,
    /// Index of its field in the array.
    pub field: usize,
}

/// Variables and common attributes.
#[derive(Clone, Debug)]
pub struct Variables {
    /// The variables, in the order of their arrays.
    pub list: Vec<Variable>,
    /// Attributes of the container.
    pub attributes: Attributes,
}

impl Variables {
    /// Returns the variables of a container; all of them, or those of named arrays and fields.
    pub fn select(container: &Container, wanted: &[String]) -> Result<Self> {
        let format = container.format();
        let numbered = format.messages().is_some();
        let prefix = format.holds().field_attributes;
        let mut list = Vec::new();
        let mut lifted = Attributes::new();
        let mut arrays = Vec::new();
        for index in 0..container.len() {
            let array = container.array_at(index)?;
            let mut attributes = array.attributes();
            lift(&mut attributes, &mut lifted);
            arrays.push((array, attributes));
        }
        if let Some((array, _)) = arrays.iter().find(|(array, _)| array.schema().fields.is_empty())
            && wanted.is_empty()
        {
            let error = Error::unsupported("an array of coordinates without fields").in_array(array.name());
            return Err(error.hint(Advice::LeaveOut.or(Advice::ReadCells)));
        }
        let given = given_names(&arrays, numbered);
        for (index, ((array, attributes), given)) in arrays.into_iter().zip(given).enumerate() {
            for (number, field) in array.schema().fields.iter().enumerate() {
                let only = array.schema().fields.len() == 1;
                let name = if only { given.clone() } else { format!("{given}/{}", field.name) };
                let mut attributes = of_field(&attributes, prefix, &field.name);
                // A name that several arrays were given is theirs no longer, but still said of them.
                if let Some(own) = array.handle().source().given_name().filter(|own| only && *own != given) {
                    attributes.entry("name".to_owned()).or_insert_with(|| Value::from(own));
                }
                let at = number;
                // By index: looking up each name would be quadratic in the number of fields.
                let number = u16::try_from(number)
                    .map_err(|_| Error::limit("fields", number as u64 + 1, u64::from(u16::MAX) + 1))?;
                let array = if only { array.clone() } else { array.clone().field_at(number)? };
                list.push(Variable { name, array, attributes, number: index, field: at });
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

    /// Keeps named variables, or all fields of named arrays.
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
        // Coordinates of the dimensions are included.
        for i in 0..kept.len() {
            let variable = &self.list[kept[i]];
            let (name, dims) = (variable.name.clone(), variable.array.schema().dims.clone());
            for dim in dims.iter().filter(|dim| !dim.name.is_empty()) {
                let mut group = name.as_str();
                let found = std::iter::from_fn(|| {
                    group = group.rsplit_once('/')?.0;
                    Some(format!("{group}/{}", dim.name))
                });
                let found = found.chain([dim.name.clone()]).find_map(|name| {
                    self.list
                        .iter()
                        .position(|v| v.name == name && v.array.schema().role == VariableRole::Index)
                });
                kept.extend(found.filter(|found| !kept.contains(found)));
            }
        }
        self.list = kept.into_iter().map(|i| self.list[i].clone()).collect();
        Ok(())
    }
}

/// Names of the arrays: their own, or the user-defined ones of numbered arrays, if these are unique.
fn given_names(arrays: &[(Array, Attributes)], numbered: bool) -> Vec<String> {
    let given = |array: &Array| array.handle().source().given_name().filter(|_| numbered).map(str::to_owned);
    let mut seen: HashMap<String, usize> = HashMap::new();
    for name in arrays.iter().filter_map(|(array, _)| given(array)) {
        *seen.entry(name).or_default() += 1;
    }
    let unique_name = |(array, _): &(Array, Attributes)| match given(array) {
        Some(name) if seen[&name] == 1 => name,
        _ => array.name().to_owned(),
    };
    arrays.iter().map(unique_name).collect()
}

/// Uses the fields' own names if all are unique and not empty.
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

/// Attributes of one field: its own keys without their prefix, and common ones.
pub(crate) fn of_field(attributes: &Attributes, prefix: Option<&str>, field: &str) -> Attributes {
    let Some(prefix) = prefix else { return attributes.clone() };
    let own = format!("{prefix}{field}.");
    let mut out = Attributes::new();
    for (name, value) in attributes {
        if !name.starts_with(prefix) {
            out.entry(name.clone()).or_insert_with(|| value.clone());
        } else if let Some(name) = name.strip_prefix(&own) {
            out.insert(name.to_owned(), value.clone());
        }
    }
    out
}

/// Restores attribute names that the format reserves.
pub(crate) fn bring_back(attributes: &mut Attributes) {
    let aside = |name: &String| name.strip_prefix(SET_ASIDE).is_some_and(|own| !attributes.contains_key(own));
    for name in attributes.keys().filter(|name| aside(name)).cloned().collect::<Vec<_>>() {
        if let Some(value) = attributes.shift_remove(&name) {
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

/// Attributes of several fields as those of their one array: those that are equal in all fields are stored once, the others under
/// keys that begin with `prefix`.
pub fn merge<'a>(
    prefix: &str,
    fields: impl IntoIterator<Item = (&'a str, &'a Attributes)> + Clone,
) -> Attributes {
    let mut out = Attributes::new();
    // Only attributes of the first field can be common to all.
    let mut common =
        fields.clone().into_iter().next().map_or_else(Attributes::new, |(_, first)| first.clone());
    for (_, attributes) in fields.clone() {
        // NaN equals itself here.
        let same = |a: &Value, b: &Value| a == b || format!("{a:?}") == format!("{b:?}");
        common.retain(|name, value| attributes.get(name).is_some_and(|other| same(other, value)));
    }
    for (field, attributes) in fields {
        for (name, value) in attributes {
            let alike = common.contains_key(name);
            let name = if alike { name.clone() } else { format!("{prefix}{field}.{name}") };
            out.insert(name, value.clone());
        }
    }
    out
}

/// Name of a dimension; empty for names that formats generate for unnamed ones.
pub fn plain_name(dim: &Dimension) -> String {
    let made_up = dim.name.strip_prefix("__dim_").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()));
    if made_up { String::new() } else { dim.name.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_of_fields_round_trip() {
        let map = |pairs: &[(&str, &str)]| -> Attributes {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect()
        };
        let (a, b) = (map(&[("units", "K"), ("source", "x")]), map(&[("units", "m"), ("source", "x")]));
        let merged = merge("of:", [("t", &a), ("h", &b)]);
        assert_eq!(merged, map(&[("source", "x"), ("of:t.units", "K"), ("of:h.units", "m")]));
        assert_eq!(of_field(&merged, Some("of:"), "t"), a);
        assert_eq!(of_field(&merged, Some("of:"), "h"), b);
        assert_eq!(merge("of:", [("t", &a)]), a);
        let nan = Attributes::from([("_FillValue".to_owned(), Value::Float(f64::NAN))]);
        assert_eq!(merge("of:", [("t", &nan)]).keys().collect::<Vec<_>>(), ["_FillValue"]);
    }
}
