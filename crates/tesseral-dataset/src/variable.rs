//! The variables of a container: each field of each array, with a meaningful name and its attributes, independent of the layout
//! of the format.

use std::collections::HashMap;
use std::ops::Range;

use tesseral_core::metadata::RESERVED_NAME_PREFIX;
use tesseral_core::schema::VariableRole;
use tesseral_core::{Advice, Attributes, Dimension, Error, Result, Value};
use tesseral_format::ContainerPart;
use tesseral_format::convention::OF_CONTAINER;

use crate::{Array, Container};

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
        let mut names = VariableNames::whole(container, wanted, usize::MAX)?;
        Self::all(&mut names)
    }

    /// Returns the variables of a part, named within it.
    ///
    /// # Errors
    /// As [`VariableNames::new`].
    pub fn of_part(container: &Container, part: &ContainerPart) -> Result<Self> {
        let mut names =
            VariableNames::within(container, part.arrays.clone(), &part.attributes, &[], usize::MAX)?;
        Self::all(&mut names)
    }

    fn all(names: &mut VariableNames<'_>) -> Result<Self> {
        let list = (0..names.len()).map(|i| names.variable(i)).collect::<Result<_>>()?;
        Ok(Self { list, attributes: std::mem::take(&mut names.attributes) })
    }
}

/// The names of the variables of a container. A variable is opened when it is needed, because there can be very many.
#[derive(Debug)]
pub struct VariableNames<'a> {
    container: &'a Container,
    list: Vec<VariableName>,
    /// Attributes of the container.
    pub attributes: Attributes,
    /// Index of the first array that is named.
    first: usize,
    /// All named arrays, unless there are too many.
    opened: Vec<(Array, Attributes)>,
    /// The last array that was opened again: fields of one array follow one another.
    last: Option<(usize, Array, Attributes)>,
}

#[derive(Clone, Debug)]
struct VariableName {
    name: String,
    /// Index of its array in the container.
    number: usize,
    /// Index of its field in the array.
    field: usize,
    /// Its array has no other field.
    only: bool,
    /// Its array has the name that it was given.
    given: bool,
}

/// An array whose variables are being named.
struct NamedArray {
    given: Option<String>,
    fields: Vec<String>,
}

/// Number of arrays that stay open once their variables have been named.
const OPENED: usize = 256;

impl<'a> VariableNames<'a> {
    /// Names the variables of a container; all of them, or those of named arrays and fields.
    ///
    /// # Errors
    /// `Unsupported` for an array without fields, `NotFound`, and errors of loading metadata.
    pub fn new(container: &'a Container, wanted: &[String]) -> Result<Self> {
        Self::whole(container, wanted, OPENED)
    }

    /// As [`new`](Self::new), with at most that many open arrays.
    fn whole(container: &'a Container, wanted: &[String], most: usize) -> Result<Self> {
        Self::within(container, 0..container.len(), container.attributes(), wanted, most)
    }

    /// Names the variables of some arrays, which have these attributes in common.
    fn within(
        container: &'a Container,
        range: Range<usize>,
        common: &Attributes,
        wanted: &[String],
        most: usize,
    ) -> Result<Self> {
        let (first, count) = (range.start, range.len());
        let (mut arrays, mut opened, mut lifted) = (Vec::new(), Vec::new(), Attributes::new());
        for index in range {
            let array = container.array_at(index)?;
            if array.schema().fields.is_empty() && wanted.is_empty() {
                let error =
                    Error::unsupported("an array of coordinates without fields").in_array(array.name());
                return Err(error.hint(Advice::LeaveOut.or(Advice::ReadCells)));
            }
            let mut attributes = array.stored_attributes();
            lift(&mut attributes, &mut lifted);
            arrays.push(NamedArray {
                given: array.handle().source().given_name().map(str::to_owned),
                fields: array.schema().fields.iter().map(|field| field.name.clone()).collect(),
            });
            if count <= most {
                opened.push((array, attributes));
            }
        }
        let same =
            count == 1 && container.array_at(first).is_ok_and(|array| array.schema().attributes == *common);
        let mut attributes = if same { Attributes::new() } else { common.clone() };
        attributes.extend(lifted);
        let list = names(container, first, &arrays);
        let mut names = Self { container, list, attributes, first, opened, last: None };
        if !wanted.is_empty() {
            names.keep(wanted)?;
        }
        Ok(names)
    }

    /// Number of variables.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether there are no variables.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Index of the array of a variable in the container.
    pub fn number(&self, index: usize) -> Option<usize> {
        self.list.get(index).map(|known| known.number)
    }

    /// The names, in the order of the arrays.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.list.iter().map(|known| known.name.as_str())
    }

    /// Opens a variable.
    ///
    /// # Errors
    /// `Limit` if its array has too many fields; errors of loading metadata.
    pub fn variable(&mut self, index: usize) -> Result<Variable> {
        let VariableName { name, number, field, only, given } = self.list[index].clone();
        let (array, attributes) = match self.opened.get(number - self.first) {
            Some((array, attributes)) => (array, attributes),
            None => {
                if self.last.as_ref().is_none_or(|(last, ..)| *last != number) {
                    let array = self.container.array_at(number)?;
                    let mut attributes = array.stored_attributes();
                    lift(&mut attributes, &mut Attributes::new());
                    self.last = Some((number, array, attributes));
                }
                let (_, array, attributes) =
                    self.last.as_ref().ok_or_else(|| Error::internal("no array is open"))?;
                (array, attributes)
            }
        };
        let prefix = self.container.format().holds().field_attributes;
        let mut attributes = of_field(attributes, prefix, &array.schema().fields[field].name);
        bring_back(&mut attributes);
        // A name that several arrays share identifies none of them, but is still displayed.
        if let Some(own) = array.handle().source().given_name().filter(|_| only && !given) {
            attributes.entry("name".to_owned()).or_insert_with(|| Value::from(own));
        }
        // By index: looking up each name would be quadratic in the number of fields.
        let at = u16::try_from(field)
            .map_err(|_| Error::limit("fields", field as u64 + 1, u64::from(u16::MAX) + 1))?;
        let array = if only { array.clone() } else { array.clone().field_at(at)? };
        Ok(Variable { name, array, attributes, number, field })
    }

    /// Keeps named variables, or all fields of named arrays.
    fn keep(&mut self, wanted: &[String]) -> Result<()> {
        let mut kept = Vec::new();
        let all = |names: &Self, is: &dyn Fn(&VariableName) -> bool| -> Vec<usize> {
            (0..names.len()).filter(|i| is(&names.list[*i])).collect()
        };
        let container = self.container;
        for name in wanted {
            let mut found = all(self, &|known| known.name == *name);
            if found.is_empty() {
                found = all(self, &|known| container.inner().name(known.number) == name);
            }
            if found.is_empty()
                && let Ok(number) = container.inner().find(name)
            {
                found = all(self, &|known| known.number == number);
            }
            if found.is_empty() {
                return Err(Error::not_found("array", name, self.names().map(str::to_owned).collect()));
            }
            kept.extend(found.into_iter().filter(|i| !kept.contains(i)).collect::<Vec<_>>());
        }
        // Coordinates of the dimensions are included.
        for i in 0..kept.len() {
            let variable = self.variable(kept[i])?;
            for dim in variable.array.schema().dims.iter().filter(|dim| !dim.name.is_empty()) {
                let mut group = variable.name.as_str();
                let paths = std::iter::from_fn(|| {
                    group = group.rsplit_once('/')?.0;
                    Some(format!("{group}/{}", dim.name))
                });
                for path in paths.chain([dim.name.clone()]) {
                    let mut index = None;
                    for i in all(self, &|known| known.name == path) {
                        if self.variable(i)?.array.schema().role == VariableRole::Index {
                            index = Some(i);
                            break;
                        }
                    }
                    if let Some(index) = index {
                        kept.extend(Some(index).filter(|index| !kept.contains(index)));
                        break;
                    }
                }
            }
        }
        self.list = kept.into_iter().map(|i| self.list[i].clone()).collect();
        Ok(())
    }
}

/// Names of the variables: those of their arrays, or the user-defined ones of numbered arrays, if these are unique; the fields'
/// own names if all are unique and not empty.
fn names(container: &Container, first: usize, arrays: &[NamedArray]) -> Vec<VariableName> {
    let numbered = container.format().messages().is_some();
    let mut seen: HashMap<&str, usize> = HashMap::new();
    for name in arrays.iter().filter_map(|array| array.given.as_deref()) {
        *seen.entry(name).or_default() += 1;
    }
    let mut fields: HashMap<&str, usize> = HashMap::new();
    for field in arrays.iter().flat_map(|array| &array.fields) {
        *fields.entry(field).or_default() += 1;
    }
    let short = !numbered && fields.iter().all(|(name, count)| *count == 1 && !name.is_empty());
    let mut list = Vec::new();
    for (number, array) in (first..).zip(arrays) {
        let own = container.inner().name(number);
        let unique = array.given.as_deref().filter(|name| numbered && seen[name] == 1);
        let (outer, only) = (unique.unwrap_or(own), array.fields.len() == 1);
        for (field, name) in array.fields.iter().enumerate() {
            let name = match (short, only) {
                (true, _) => name.clone(),
                (false, true) => outer.to_owned(),
                (false, false) => format!("{outer}/{name}"),
            };
            let given = array.given.as_deref().is_none_or(|given| given == outer);
            list.push(VariableName { name, number, field, only, given });
        }
    }
    list
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
    let aside =
        |name: &str| name.strip_prefix(RESERVED_NAME_PREFIX).is_some_and(|own| !attributes.contains_key(own));
    if attributes.keys().any(|name| aside(name)) {
        let own = |name: &str| name[if aside(name) { RESERVED_NAME_PREFIX.len() } else { 0 }..].to_owned();
        *attributes = attributes.iter().map(|(name, value)| (own(name), value.clone())).collect();
    }
}

pub(crate) fn lift(attributes: &mut Attributes, lifted: &mut Attributes) {
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
    fn reserved_names_are_restored_in_their_place() {
        let value = || Value::from("v");
        let names = ["attribute:container:x", "a", "attribute:b", "b", "attribute:attribute:c"];
        let mut attributes: Attributes = names.iter().map(|name| ((*name).to_owned(), value())).collect();
        bring_back(&mut attributes);
        let found: Vec<&str> = attributes.keys().map(String::as_str).collect();
        assert_eq!(found, ["container:x", "a", "attribute:b", "b", "attribute:c"]);
    }

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
