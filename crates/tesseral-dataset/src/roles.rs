//! Roles of variables by the attributes of others, as the CF conventions have it.
//!
//! | attribute | names |
//! |---|---|
//! | `coordinates` | auxiliary coordinates |
//! | `bounds`, `climatology` | bounds |
//! | `grid_mapping` | grid mappings, also as `crs: x y` |
//! | `ancillary_variables`, `cell_measures` | ancillary variables |

use std::collections::HashMap;

use tesseral_core::schema::Role;
use tesseral_core::{ArraySchema, Value};

use tesseral_store::StoreExt;

use crate::Container;

/// Number of arrays up to which the attributes of all of them are read.
const MOST_ARRAYS: usize = 1 << 16;

/// Roles by array index, of arrays that others name.
pub(crate) fn of_attributes(container: &Container) -> HashMap<usize, Role> {
    let mut out: HashMap<usize, Role> = HashMap::new();
    if container.len() > MOST_ARRAYS {
        return out;
    }
    let mut found = |index: usize, (role, name): (Role, &str)| {
        if let Some(named) = container.inner().sibling(index, name).filter(|named| *named != index) {
            let known = out.entry(named).or_insert(role);
            if precedence(role) < precedence(*known) {
                *known = role;
            }
        }
    };
    for index in 0..container.len() {
        let Ok(source) = container.inner().store().guarded(|| container.inner().array(index)) else {
            continue;
        };
        references(source.schema()).into_iter().for_each(|one| found(index, one));
    }
    // Coordinates that belong to no variable in particular.
    if let Some(Value::Text(names)) = container.attributes().get("coordinates") {
        (0..container.len().min(1)).for_each(|index| {
            names.split_whitespace().for_each(|name| found(index, (Role::Auxiliary, name)));
        });
    }
    out
}

/// Of several roles the first counts.
fn precedence(role: Role) -> u8 {
    match role {
        Role::Index => 0,
        Role::Bounds => 1,
        Role::GridMapping => 2,
        Role::Auxiliary => 3,
        Role::Ancillary => 4,
        _ => 5,
    }
}

/// The names in the attributes of a variable, with the roles that they are given.
fn references(schema: &ArraySchema) -> Vec<(Role, &str)> {
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
            "coordinates" => out.extend(words().map(|name| (Role::Auxiliary, name))),
            "bounds" | "climatology" => out.extend(words().map(|name| (Role::Bounds, name))),
            "ancillary_variables" => out.extend(words().map(|name| (Role::Ancillary, name))),
            "cell_measures" => {
                out.extend(words().filter(|word| !word.ends_with(':')).map(|name| (Role::Ancillary, name)));
            }
            // A list of mappings names the coordinates behind each.
            "grid_mapping" if text.contains(':') => {
                out.extend(words().filter_map(|word| Some((Role::GridMapping, word.strip_suffix(':')?))));
            }
            "grid_mapping" => out.extend(words().map(|name| (Role::GridMapping, name))),
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
        let named = |role: Role, names: &[&str]| {
            names.iter().map(|name| (role, (*name).to_owned())).collect::<Vec<_>>()
        };
        assert_eq!(found("coordinates", "lat lon"), named(Role::Auxiliary, &["lat", "lon"]));
        assert_eq!(found("of:v.bounds", "time_bnds"), named(Role::Bounds, &["time_bnds"]));
        assert_eq!(found("grid_mapping", "crs"), named(Role::GridMapping, &["crs"]));
        assert_eq!(found("grid_mapping", "crs: x y wgs: lat lon"), named(Role::GridMapping, &["crs", "wgs"]));
        assert_eq!(found("cell_measures", "area: cell_area"), named(Role::Ancillary, &["cell_area"]));
        assert_eq!(found("units", "lat lon"), []);
    }
}
