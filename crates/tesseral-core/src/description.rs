//! Texts that describe a field to people, from its attributes.

use std::fmt;

use crate::missing::attribute;
use crate::{ArraySchema, Field, Value};

/// A text attribute of a field, unless it is empty.
pub fn text_attribute<'a>(schema: &'a ArraySchema, field: &Field, key: &str) -> Option<&'a str> {
    match attribute(schema, &field.name, key) {
        Some((_, Value::Text(text))) => Some(text.trim()).filter(|text| !text.is_empty()),
        _ => None,
    }
}

/// The name of what a field holds: `long_name`, or else `standard_name`.
pub fn long_name<'a>(schema: &'a ArraySchema, field: &Field) -> Option<&'a str> {
    ["long_name", "standard_name"].iter().find_map(|key| text_attribute(schema, field, key))
}

/// The period of a field whose numbers are cyclic: 360 for longitudes in degrees.
pub fn period(schema: &ArraySchema, field: &Field) -> Option<f64> {
    let units = text_attribute(schema, field, "units").unwrap_or_default().to_ascii_lowercase();
    let degrees = units.starts_with("degree");
    let east =
        units.ends_with("east") || units.ends_with("_e") || matches!(units.as_str(), "degreee" | "degreese");
    let longitude = text_attribute(schema, field, "standard_name") == Some("longitude");
    (degrees && (east || longitude)).then_some(360.0)
}

/// Units of a field, and its calendar unless that is the usual one.
pub fn units<'a>(schema: &'a ArraySchema, field: &Field) -> impl fmt::Display + use<'a> {
    let units = text_attribute(schema, field, "units").unwrap_or_default();
    let calendar = text_attribute(schema, field, "calendar").filter(|_| !units.is_empty());
    let calendar = calendar.filter(|name| !matches!(*name, "standard" | "gregorian" | "proleptic_gregorian"));
    fmt::from_fn(move |f| match calendar {
        Some(calendar) => write!(f, "{units}, {calendar}"),
        None => f.write_str(units),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DType;

    #[test]
    fn units_name_unusual_calendars() {
        let units_of = |pairs: &[(&str, &str)]| {
            let attributes = pairs.iter().map(|(k, v)| ((*k).to_owned(), Value::from(*v))).collect();
            let schema = ArraySchema { attributes, ..ArraySchema::dense("x", DType::Int16, &[1], &[1]) };
            units(&schema, &schema.fields[0]).to_string()
        };
        assert_eq!(
            units_of(&[("units", "days since 2000-01-01"), ("calendar", "360_day")]),
            "days since 2000-01-01, 360_day"
        );
        assert_eq!(units_of(&[("units", "K "), ("calendar", "standard")]), "K");
        assert_eq!(units_of(&[("calendar", "360_day")]), "");
    }
}
