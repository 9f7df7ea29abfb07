//! Names of objects in their metadata.
//!
//! `tensogram-xarray` takes every object with one of a few names for a coordinate of one dimension, and does not open a message
//! in which such an object has another shape. A variable of such a name that is not an index coordinate is stored under another
//! one, `lat.data`, with its own name in the metadata.

use tesseral_core::{ArraySchema, Attributes, Value};

use crate::wire::cbor::{CborItem, Map};

/// Metadata key of the name.
pub(crate) const NAME: &str = "name";
/// Metadata key of a variable's name, if the object has another name.
pub(crate) const VARIABLE_NAME: &str = "variable_name";
/// Suffix of a name that would be interpreted as a coordinate.
const SUFFIX: &str = ".data";

/// The names of coordinates, in lower case.
const COORDINATES: [&str; 13] = [
    "lat",
    "latitude",
    "lon",
    "longitude",
    "x",
    "y",
    "time",
    "level",
    "pressure",
    "height",
    "depth",
    "frequency",
    "step",
];

/// The name under which a variable is stored.
pub(crate) fn stored(schema: &ArraySchema) -> String {
    let name = &schema.name;
    let known = COORDINATES.contains(&name.to_ascii_lowercase().as_str());
    let is_index = matches!(schema.dims.as_slice(), [dim] if dim.name == *name || dim.name.is_empty());
    if known && !is_index { format!("{name}{SUFFIX}") } else { name.clone() }
}

/// The own name of a variable, if another one is stored.
fn given_name<'a>(stored: &str, own: Option<&'a str>) -> Option<&'a str> {
    own.filter(|own| stored.strip_suffix(SUFFIX) == Some(own))
}

/// The name in the metadata of an object.
pub(crate) fn in_base(base: &Map) -> Option<&str> {
    let in_mars = || match base.get("mars") {
        Some(CborItem::Map(pairs)) => {
            pairs.iter().find(|(key, _)| key.as_text() == Some("param")).map(|(_, v)| v)
        }
        _ => None,
    };
    let name = base.get(NAME).or_else(in_mars).and_then(CborItem::as_text)?;
    Some(given_name(name, base.get(VARIABLE_NAME).and_then(CborItem::as_text)).unwrap_or(name))
}

/// Replaces a stored name among the attributes of an object by the variable's own one.
pub(crate) fn restore(attributes: &mut Attributes) {
    let text = |key: &str| match attributes.get(key) {
        Some(Value::Text(text)) => Some(text.as_str()),
        _ => None,
    };
    let Some(name) = text(NAME).and_then(|stored| given_name(stored, text(VARIABLE_NAME))).map(Value::from)
    else {
        return;
    };
    attributes.insert(NAME.to_owned(), name);
    attributes.shift_remove(VARIABLE_NAME);
}

#[cfg(test)]
mod tests {
    use super::*;
    use tesseral_core::DType;

    #[test]
    fn only_other_shapes_of_coordinates_are_renamed() {
        let named = |name: &str, dims: &[&str]| {
            let mut schema =
                ArraySchema::dense(name, DType::Float32, &vec![2; dims.len()], &vec![1; dims.len()]);
            schema.dims.iter_mut().zip(dims).for_each(|(dim, name)| dim.name = (*name).to_owned());
            stored(&schema)
        };
        assert_eq!(named("lat", &["y", "x"]), "lat.data");
        assert_eq!(named("Time", &[]), "Time.data");
        assert_eq!(named("depth", &["x"]), "depth.data");
        for plain in [
            named("lat", &["lat"]),
            named("x", &[""]),
            named("sst", &["y", "x"]),
            named("g/lat", &["y", "x"]),
        ] {
            assert!(!plain.ends_with(SUFFIX), "{plain}");
        }
    }

    #[test]
    fn names_are_restored_only_where_both_agree() {
        let restored = |pairs: &[(&str, &str)]| {
            let mut attributes: Attributes =
                pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect();
            restore(&mut attributes);
            attributes.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(restored(&[("name", "lat.data"), ("variable_name", "lat")]), ["name=lat"]);
        assert_eq!(restored(&[("name", "t"), ("variable_name", "lat")]), ["name=t", "variable_name=lat"]);
        assert_eq!(restored(&[("name", "lat.data")]), ["name=lat.data"]);
    }
}
