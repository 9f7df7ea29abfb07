//! The marker of an array or container: a JSON object.

use serde_json::{Map, Value as Json, json};
use tesseral_core::schema::VariableRole;
use tesseral_core::{Attributes, CellLen, DType, Limits, Result, Value};

use super::attributes::AttributeList;
use super::text::TextLayout;
use super::value;

/// Name of the attribute with the marker.
pub const KEY: &str = "_tesseral";

/// Version of the conventions that is written, and the newest that is read.
const VERSION: u64 = 1;

/// Maximum number of groups in a marker.
const MAX_GROUPS: usize = 1 << 16;

/// Properties of the encoded array that the format does not store.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Marker {
    /// Types and order of attributes.
    pub attributes: Option<AttributeList>,
    pub role: Option<VariableRole>,
    /// Type of the cells.
    pub cells: Option<(DType, CellLen)>,
    /// The array is a scalar; the stored one has a dimension of extent 1.
    pub scalar: bool,
    /// Layout of variable-length cells.
    pub text: Option<TextLayout>,
    /// Names and extents of the dimensions, if the stored ones differ.
    pub dims: Option<Vec<(String, u64)>>,
    /// Names of the dimensions, if the stored ones differ from each other and these do not.
    pub names: Option<Vec<String>>,
    /// Numbers of the unlimited dimensions.
    pub unlimited: Vec<usize>,
    /// Groups of the container by their path, with their attributes.
    pub groups: Vec<(String, AttributeList)>,
}

impl Marker {
    pub(super) fn to_text(&self) -> String {
        let mut out = Map::new();
        let mut put = |key: &str, value: Json| drop(out.insert(key.to_owned(), value));
        put("version", json!(VERSION));
        if let Some(role) = self.role {
            put("role", json!(role.name()));
        }
        if let Some((dtype, cell)) = self.cells {
            put("dtype", json!(dtype.to_string()));
            match cell {
                CellLen::One => {}
                CellLen::Fixed(n) => put("cell", json!(n)),
                CellLen::Var => put("cell", json!("var")),
            }
        }
        if self.scalar {
            put("scalar", json!(true));
        }
        if let Some(text) = self.text {
            put("text", json!(text.name()));
        }
        if let Some(dims) = &self.dims {
            put("dims", dims.iter().map(|(name, extent)| json!([name, extent])).collect());
        }
        if let Some(names) = &self.names {
            put("names", json!(names));
        }
        if !self.unlimited.is_empty() {
            put("unlimited", json!(self.unlimited));
        }
        let mut text = Json::Object(out).to_string();
        // Lists can be long: they are written item by item instead of as one document in memory.
        if let Some(attributes) = &self.attributes {
            text.truncate(text.len() - 1);
            text.push_str(",\"attributes\":");
            attributes.write_json(&mut text);
            text.push('}');
        }
        if !self.groups.is_empty() {
            text.truncate(text.len() - 1);
            text.push_str(",\"groups\":[");
            for (number, (path, list)) in self.groups.iter().enumerate() {
                text.push_str(if number == 0 { "[" } else { ",[" });
                text.push_str(&json!(path).to_string());
                text.push(',');
                list.write_json(&mut text);
                text.push(']');
            }
            text.push_str("]}");
        }
        text
    }

    /// Interprets a marker; `None` for other documents, or a later version.
    fn from_json(document: &Json) -> Option<Self> {
        let map = document.as_object()?;
        if map.get("version").and_then(Json::as_u64).is_none_or(|version| !(1..=VERSION).contains(&version)) {
            return None;
        }
        /// `Some(None)` if the key is absent, `None` if its value is malformed.
        fn read<T>(
            map: &Map<String, Json>,
            key: &str,
            read: impl Fn(&Json) -> Option<T>,
        ) -> Option<Option<T>> {
            map.get(key).map_or(Some(None), |value| read(value).map(Some))
        }
        let dtype = read(map, "dtype", |v| v.as_str()?.parse::<DType>().ok())?;
        let cell = read(map, "cell", |v| match v.as_u64() {
            Some(n) => u32::try_from(n).ok().filter(|n| *n > 0).map(CellLen::Fixed),
            None => (v.as_str() == Some("var")).then_some(CellLen::Var),
        })?;
        let dims = |v: &Json| {
            let dim = |v: &Json| Some((v.get(0)?.as_str()?.to_owned(), v.get(1)?.as_u64()?));
            v.as_array()?.iter().map(dim).collect::<Option<Vec<_>>>()
        };
        let names = |v: &Json| {
            v.as_array()?.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
        };
        let numbers = |v: &Json| {
            let number = |v: &Json| usize::try_from(v.as_u64()?).ok();
            v.as_array()?.iter().map(number).collect::<Option<Vec<_>>>()
        };
        let groups = |v: &Json| {
            let groups = v.as_array().filter(|groups| groups.len() <= MAX_GROUPS)?;
            let group =
                |v: &Json| Some((v.get(0)?.as_str()?.to_owned(), AttributeList::from_json(v.get(1)?)?));
            groups.iter().map(group).collect::<Option<Vec<_>>>()
        };
        Some(Self {
            attributes: read(map, "attributes", AttributeList::from_json)?,
            role: read(map, "role", |v| VariableRole::by_name(v.as_str()?))?,
            cells: dtype.map(|dtype| (dtype, cell.unwrap_or(CellLen::One))),
            scalar: read(map, "scalar", Json::as_bool)?.unwrap_or(false),
            text: read(map, "text", |v| TextLayout::by_name(v.as_str()?))?,
            dims: read(map, "dims", dims)?,
            names: read(map, "names", names)?,
            unlimited: read(map, "unlimited", numbers)?.unwrap_or_default(),
            groups: read(map, "groups", groups)?.unwrap_or_default(),
        })
    }

    /// Finds the marker among attributes.
    ///
    /// # Errors
    /// `Limit` if its values would take too much memory.
    pub(super) fn from_attributes(attributes: &Attributes, limits: &Limits) -> Result<Option<Self>> {
        let Some(Value::Text(text)) = attributes.get(KEY) else { return Ok(None) };
        Ok(value::parse(text.as_bytes(), limits)?.and_then(|document| Self::from_json(&document)))
    }
}
