//! Roles of variables by the attributes of others, as defined by the CF conventions.
//!
//! | attribute | names |
//! |---|---|
//! | `coordinates` | auxiliary coordinates |
//! | `bounds`, `climatology` | bounds |
//! | `grid_mapping` | grid mappings, also as `crs: x y` |
//! | `ancillary_variables`, `cell_measures` | ancillary variables |

use std::collections::HashMap;
use std::ops::Range;

use tesseral_core::schema::VariableRole;
use tesseral_core::{ArraySchema, Value};

use tesseral_store::StoreExt;

use crate::{Array, Container};

/// Number of arrays up to which the attributes of all of them are read.
const MAX_ARRAYS: usize = 1 << 16;

/// A role that an attribute of another array gives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NamedRole {
    pub(crate) role: VariableRole,
    /// Index of the array with the attribute.
    pub(crate) by: usize,
}

/// Roles by array index.
pub(crate) type Roles = HashMap<usize, NamedRole>;

/// Roles of arrays that others among them name.
pub(crate) fn of_attributes(container: &Container, among: Range<usize>) -> Roles {
    let mut out = Roles::new();
    if among.len() > MAX_ARRAYS {
        return out;
    }
    let mut found = |index: usize, (role, name): (VariableRole, &str)| {
        if let Some(named) = container.inner().sibling(index, name).filter(|named| *named != index) {
            let known = out.entry(named).or_insert(NamedRole { role, by: index });
            if precedence(role) < precedence(known.role) {
                *known = NamedRole { role, by: index };
            }
        }
    };
    for index in among.clone() {
        let Ok(source) = container.inner().store().guarded(|| container.inner().array(index)) else {
            continue;
        };
        references(source.schema()).into_iter().for_each(|one| found(index, one));
    }
    // Coordinates that belong to no variable in particular.
    if let Some(Value::Text(names)) = container.attributes().get("coordinates") {
        among.take(1).for_each(|index| {
            names.split_whitespace().for_each(|name| found(index, (VariableRole::Auxiliary, name)));
        });
    }
    out
}

/// Of several roles the first counts.
fn precedence(role: VariableRole) -> u8 {
    match role {
        VariableRole::Index => 0,
        VariableRole::Bounds => 1,
        VariableRole::GridMapping => 2,
        VariableRole::Auxiliary => 3,
        VariableRole::Ancillary => 4,
        _ => 5,
    }
}

impl Array {
    /// The roles of the fields: that of the array, or those that attributes of its fields give each other.
    pub fn field_roles(&self) -> Vec<VariableRole> {
        let schema = self.schema();
        let mut out = vec![schema.role; schema.fields.len()];
        if schema.role != VariableRole::Data || out.len() < 2 {
            return out;
        }
        for (role, name) in references(schema) {
            if let Ok(number) = schema.field(name)
                && precedence(role) < precedence(out[number])
            {
                out[number] = role;
            }
        }
        out
    }
}

/// The names in the attributes of a variable, with the roles that they are given.
fn references(schema: &ArraySchema) -> Vec<(VariableRole, &str)> {
    let mut out = Vec::new();
    for (key, value) in &schema.attributes {
        let Value::Text(text) = value else { continue };
        // Attributes of one of several fields begin with its name.
        let key = match schema.field_attributes.and_then(|prefix| key.strip_prefix(prefix)) {
            Some(own) => own.rsplit_once('.').map_or(own, |(_, key)| key),
            None => key,
        };
        let words = || text.split_whitespace();
        match key {
            "coordinates" => out.extend(words().map(|name| (VariableRole::Auxiliary, name))),
            "bounds" | "climatology" => out.extend(words().map(|name| (VariableRole::Bounds, name))),
            "ancillary_variables" => out.extend(words().map(|name| (VariableRole::Ancillary, name))),
            "cell_measures" => {
                out.extend(
                    words().filter(|word| !word.ends_with(':')).map(|name| (VariableRole::Ancillary, name)),
                );
            }
            // In a list of mappings, coordinates follow the name of each.
            "grid_mapping" if text.contains(':') => {
                out.extend(
                    words().filter_map(|word| Some((VariableRole::GridMapping, word.strip_suffix(':')?))),
                );
            }
            "grid_mapping" => out.extend(words().map(|name| (VariableRole::GridMapping, name))),
            _ => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::DType;

    #[test]
    fn attributes_name_variables() {
        let found = |key: &str, text: &str| {
            let mut schema = ArraySchema::dense("v", DType::Int8, &[1], &[1]);
            schema.attributes.insert(key.to_owned(), Value::from(text));
            schema.field_attributes = Some("of:");
            references(&schema).into_iter().map(|(role, name)| (role, name.to_owned())).collect::<Vec<_>>()
        };
        let named = |role: VariableRole, names: &[&str]| {
            names.iter().map(|name| (role, (*name).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(found("coordinates", "lat lon"), named(VariableRole::Auxiliary, &["lat", "lon"]));
        assert_eq!(found("of:v.bounds", "time_bnds"), named(VariableRole::Bounds, &["time_bnds"]));
        assert_eq!(found("grid_mapping", "crs"), named(VariableRole::GridMapping, &["crs"]));
        assert_eq!(
            found("grid_mapping", "crs: x y wgs: lat lon"),
            named(VariableRole::GridMapping, &["crs", "wgs"])
        );
        assert_eq!(found("cell_measures", "area: cell_area"), named(VariableRole::Ancillary, &["cell_area"]));
        assert_eq!(found("units", "lat lon"), []);
    }
}
