//! Fields become variables: hypercubes over ensemble members, times, steps and levels.
//!
//! The rules and names are those of cfgrib: a variable holds the fields of one parameter that agree in everything except the four
//! header coordinates. Variables that agree in their coordinates share a dataset. If all of them do, the dataset is the root;
//! otherwise there is a group for each dataset, named after the level type.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use indexmap::IndexMap;
use tesseral_core::{Attributes, Error, Result, Value};

use crate::field::GribField;
use crate::grid::Grid;
use crate::product::{self, FieldProduct};
use crate::scan::UnreadField;

/// A coordinate that varies between fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HeaderKind {
    Number,
    Time,
    Step,
    Level,
}

impl HeaderKind {
    const ALL: [Self; 4] = [Self::Number, Self::Time, Self::Step, Self::Level];

    /// A number that is equal for equal coordinates and sorts as they do; `None` if the field has none.
    fn key(self, product: &FieldProduct) -> Option<i64> {
        match self {
            Self::Number => product.number,
            Self::Time => Some(product.time),
            Self::Step => Some(product.step),
            Self::Level => {
                // The order of floats as integers.
                let bits = (product.level + 0.0).to_bits().cast_signed();
                Some(bits ^ (((bits >> 63).cast_unsigned()) >> 1).cast_signed())
            }
        }
    }

    /// The level of a key.
    fn level(key: i64) -> f64 {
        f64::from_bits((key ^ (((key >> 63).cast_unsigned()) >> 1).cast_signed()).cast_unsigned())
    }
}

/// Values of a coordinate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum HeaderValues {
    Integers(Vec<i64>),
    Floats(Vec<f64>),
}

/// A coordinate of a variable: its name, keys in order, and attributes.
#[derive(Clone, Debug)]
pub(crate) struct HeaderCoordinate {
    pub header: HeaderKind,
    pub name: String,
    keys: Vec<i64>,
}

impl HeaderCoordinate {
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn values(&self) -> HeaderValues {
        match self.header {
            HeaderKind::Number | HeaderKind::Time => HeaderValues::Integers(self.keys.clone()),
            HeaderKind::Step => {
                HeaderValues::Floats(self.keys.iter().map(|step| *step as f64 / 3600.0).collect())
            }
            HeaderKind::Level => {
                HeaderValues::Floats(self.keys.iter().map(|key| HeaderKind::level(*key)).collect())
            }
        }
    }

    pub(crate) fn attributes(&self) -> Attributes {
        let time = "seconds since 1970-01-01T00:00:00";
        let known: &[(&str, &str)] = match (self.header, self.name.as_str()) {
            (HeaderKind::Number, _) => &[
                ("long_name", "ensemble member numerical id"),
                ("units", "1"),
                ("standard_name", "realization"),
            ],
            (HeaderKind::Time, _) => &[
                ("long_name", "initial time of forecast"),
                ("units", time),
                ("calendar", "proleptic_gregorian"),
                ("standard_name", "forecast_reference_time"),
            ],
            (HeaderKind::Step, _) => &[
                ("long_name", "time since forecast_reference_time"),
                ("units", "hours"),
                ("standard_name", "forecast_period"),
                ("dtype", "timedelta64[ns]"),
            ],
            (_, "depthBelowLand" | "depthBelowLandLayer") => &[
                ("long_name", "soil depth"),
                ("units", "m"),
                ("positive", "down"),
                ("standard_name", "depth"),
            ],
            (_, "hybrid") => &[
                ("long_name", "hybrid level"),
                ("units", "1"),
                ("positive", "down"),
                ("standard_name", "atmosphere_hybrid_sigma_pressure_coordinate"),
            ],
            (_, "heightAboveGround") => &[
                ("long_name", "height above the surface"),
                ("units", "m"),
                ("positive", "up"),
                ("standard_name", "height"),
            ],
            (_, "isobaricInhPa" | "isobaricInPa" | "isobaricLayer") => &[
                ("long_name", "pressure"),
                ("units", if self.name == "isobaricInhPa" { "hPa" } else { "Pa" }),
                ("positive", "down"),
                ("standard_name", "air_pressure"),
                ("stored_direction", if self.decreasing() { "decreasing" } else { "" }),
            ],
            _ => &[("long_name", ""), ("units", "1")],
        };
        let text = |(key, value): &(&str, &str)| ((*key).to_owned(), Value::from(*value));
        let mut attributes: Attributes =
            known.iter().filter(|(key, value)| !value.is_empty() || *key == "long_name").map(text).collect();
        if attributes.get("long_name") == Some(&Value::from("")) {
            let original = format!("original GRIB coordinate for key: level({})", self.name);
            attributes.insert("long_name".to_owned(), Value::from(original));
        }
        attributes
    }

    fn decreasing(&self) -> bool {
        matches!(&*self.name, "isobaricInhPa" | "isobaricInPa")
    }
}

/// A variable: the fields of a hypercube.
#[derive(Debug)]
pub(crate) struct GribVariable {
    pub name: String,
    pub coordinates: Vec<HeaderCoordinate>,
    pub grid: Arc<Grid>,
    grid_number: usize,
    /// Fields by their position in the hypercube, row-major.
    pub fields: BTreeMap<u64, GribField>,
    pub attributes: Attributes,
    group_key: GroupKey,
}

/// Common properties of the variables of a dataset: edition, center and sub-center.
type GroupKey = (u8, u16, u16);

impl GribVariable {
    /// Number of positions of the hypercube.
    pub(crate) fn positions(&self) -> u64 {
        self.coordinates.iter().fold(1, |n, coordinate| n * coordinate.len() as u64)
    }

    fn dataset_key(&self) -> DatasetKey {
        let coordinates = self.coordinates.iter().map(|own| (own.name.clone(), own.keys.clone()));
        (self.group_key, self.grid_number, self.level_type().to_owned(), coordinates.collect())
    }

    fn level_type(&self) -> &str {
        match self.attributes.get("GRIB_typeOfLevel") {
            Some(Value::Text(name)) => name,
            _ => "undef",
        }
    }
}

/// Variables that share coordinates.
#[derive(Debug)]
pub(crate) struct GribDataset {
    /// Path of the group; empty for the root.
    pub path: String,
    pub variables: Vec<GribVariable>,
}

impl GribDataset {
    pub(crate) fn attributes(&self) -> Attributes {
        let mut attributes = Attributes::new();
        let Some((edition, centre, sub_centre)) = self.variables.first().map(|variable| variable.group_key)
        else {
            return attributes;
        };
        let mut put = |key: &str, value: Value| attributes.insert(key.to_owned(), value);
        put("GRIB_edition", Value::Int(i64::from(edition)));
        put("GRIB_centre", Value::from(product::centre_name(centre)));
        let description = product::centre_description(centre);
        if let Some(description) = description {
            put("GRIB_centreDescription", Value::from(description));
        }
        put("GRIB_subCentre", Value::Int(i64::from(sub_centre)));
        put("Conventions", Value::from("CF-1.7"));
        if let Some(description) = description {
            put("institution", Value::from(description));
        }
        attributes
    }
}

/// Everything in which the fields of a variable agree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct VariableKey {
    parameter: u32,
    /// Distinguishes unknown parameters.
    name: String,
    data_type: Option<&'static str>,
    level_type: Option<&'static str>,
    step_type: &'static str,
    grid: usize,
    group: GroupKey,
}

/// Estimated size of a variable and its attributes in memory.
const VARIABLE: u64 = 12 << 10;

/// Arranges fields as datasets, and returns their estimated size in memory, once it passed the check. Fields that repeat others are
/// added to `unread`.
pub(crate) fn arrange(
    fields: Vec<GribField>,
    unread: &mut Vec<UnreadField>,
    check: &dyn Fn(u64) -> Result<()>,
) -> Result<(Vec<GribDataset>, u64)> {
    let mut leaves: IndexMap<VariableKey, Vec<GribField>> = IndexMap::new();
    for field in fields {
        let FieldProduct { parameter, data_type, level_type, step_type, .. } = &field.product;
        let key = VariableKey {
            parameter: parameter.id,
            name: parameter.variable.to_string(),
            data_type: *data_type,
            level_type: *level_type,
            step_type,
            grid: field.grid_number,
            group: (field.product.edition, field.product.centre, field.product.sub_centre),
        };
        leaves.entry(key).or_default().push(field);
    }
    let held = (leaves.len() as u64).saturating_mul(VARIABLE);
    check(held)?;
    let variables: Vec<GribVariable> =
        leaves.into_iter().filter_map(|(key, fields)| variable(key, fields, unread)).collect();
    let mut shared = SharedCoordinates::default();
    if variables.iter().all(|variable| shared.admit(variable)) {
        return Ok((vec![GribDataset { path: String::new(), variables }], held));
    }
    let mut ordered = variables;
    ordered.sort_by_cached_key(|v| (v.level_type().to_owned(), v.attributes.get("GRIB_paramId").map(id_of)));
    let mut datasets: Vec<GribDataset> = Vec::new();
    // Datasets by what their variables agree in, and the number of variables of each name in them.
    let mut alike: HashMap<DatasetKey, (Vec<usize>, HashMap<String, usize>)> = HashMap::new();
    let mut count: HashMap<String, usize> = HashMap::new();
    for variable in ordered {
        let (numbers, names) = alike.entry(variable.dataset_key()).or_default();
        let same_name = names.entry(variable.name.clone()).or_default();
        *same_name += 1;
        // Variables of the same name are in different datasets.
        if let Some(number) = numbers.get(*same_name - 1) {
            datasets[*number].variables.push(variable);
            continue;
        }
        numbers.push(datasets.len());
        let level = variable.level_type().to_owned();
        let number = count.entry(level.clone()).or_default();
        *number += 1;
        let path = if *number == 1 { level } else { format!("{level}_{number}") };
        datasets.push(GribDataset { path, variables: vec![variable] });
    }
    Ok((datasets, held))
}

/// Coordinates of variables that are in one dataset.
#[derive(Default)]
struct SharedCoordinates {
    key: Option<(GroupKey, usize)>,
    names: HashSet<String>,
    keys: HashMap<String, Vec<i64>>,
}

impl SharedCoordinates {
    /// Adds a variable, if its name is new and its coordinates are the same as those of the others.
    fn admit(&mut self, variable: &GribVariable) -> bool {
        let key = (variable.group_key, variable.grid_number);
        let same = |own: &HeaderCoordinate| self.keys.get(&own.name).is_none_or(|keys| *keys == own.keys);
        if *self.key.get_or_insert(key) != key || !variable.coordinates.iter().all(same) {
            return false;
        }
        for own in &variable.coordinates {
            self.keys.entry(own.name.clone()).or_insert_with(|| own.keys.clone());
        }
        self.names.insert(variable.name.clone())
    }
}

/// Common properties of the variables of a group: origin, grid, level type and coordinates.
type DatasetKey = (GroupKey, usize, String, Vec<(String, Vec<i64>)>);

fn id_of(value: &Value) -> i64 {
    if let Value::Int(id) = value { *id } else { 0 }
}

/// The variable of fields that agree in everything except the header coordinates; `None` if its positions cannot be counted.
fn variable(key: VariableKey, fields: Vec<GribField>, unread: &mut Vec<UnreadField>) -> Option<GribVariable> {
    let mut coordinates = Vec::new();
    for header in HeaderKind::ALL {
        let keys: Option<Vec<i64>> = fields.iter().map(|field| header.key(&field.product)).collect();
        let Some(mut keys) = keys else { continue };
        keys.sort_unstable();
        keys.dedup();
        let name = match header {
            HeaderKind::Number => "number",
            HeaderKind::Time => "time",
            HeaderKind::Step => "step",
            HeaderKind::Level => key.level_type.unwrap_or("level"),
        };
        let mut coordinate = HeaderCoordinate { header, name: name.to_owned(), keys };
        if header == HeaderKind::Level && coordinate.decreasing() {
            coordinate.keys.reverse();
        }
        coordinates.push(coordinate);
    }
    let first = fields.first()?;
    let (grid, attributes) = (Arc::clone(&first.grid), attributes(first, &coordinates));
    let count = coordinates.iter().try_fold(1_u64, |n, own| n.checked_mul(own.len() as u64));
    if count.is_none() {
        let error = Error::limit("the positions of a variable", u64::MAX, u64::MAX).in_array(key.name);
        unread.push(UnreadField { message: first.message, error });
        return None;
    }
    let indexes: Vec<HashMap<i64, u64>> =
        coordinates.iter().map(|own| own.keys.iter().copied().zip(0..).collect()).collect();
    let mut placed: BTreeMap<u64, GribField> = BTreeMap::new();
    for field in fields {
        let axes = coordinates.iter().zip(&indexes);
        let position = axes.fold(0, |position, (coordinate, index)| {
            let at = coordinate.header.key(&field.product).and_then(|key| index.get(&key));
            position * coordinate.len() as u64 + at.copied().unwrap_or(0)
        });
        if let Entry::Vacant(entry) = placed.entry(position) {
            entry.insert(field);
            continue;
        }
        let feature = format!("fields of {:?} that repeat the coordinates of earlier ones", key.name);
        unread.push(UnreadField { message: field.message, error: Error::unsupported(feature) });
    }
    Some(GribVariable {
        name: key.name,
        coordinates,
        grid,
        grid_number: key.grid,
        fields: placed,
        attributes,
        group_key: key.group,
    })
}

/// Attributes of a variable, by the names of cfgrib.
fn attributes(field: &GribField, coordinates: &[HeaderCoordinate]) -> Attributes {
    let GribField { product, grid, .. } = field;
    let parameter = &product.parameter;
    let text = |text: &str| Value::from(text);
    let int = |n: u64| Value::Int(i64::try_from(n).unwrap_or(i64::MAX));
    let mut attributes = Attributes::new();
    let mut put = |key: &str, value: Value| {
        attributes.insert(format!("GRIB_{key}"), value);
    };
    put("paramId", Value::Int(i64::from(parameter.id)));
    product.data_type.into_iter().for_each(|name| put("dataType", text(name)));
    put("numberOfPoints", int(grid.points));
    product.level_type.into_iter().for_each(|name| put("typeOfLevel", text(name)));
    put("stepUnits", Value::Int(1));
    put("stepType", text(product.step_type));
    put("gridType", text(grid.type_name()));
    // The reference does not define it for this grid in edition 2.
    if product.edition == 1 || grid.type_name() != "polar_stereographic" {
        put("uvRelativeToGrid", Value::Int(i64::from(grid.uv_relative)));
    }
    let standard_name = if parameter.standard_name.is_empty() { "unknown" } else { parameter.standard_name };
    let mut keys: Vec<(&str, Value)> = grid.keys.clone();
    keys.extend([
        ("NV", Value::Int(i64::from(product.vertical_parameters))),
        ("cfName", text(standard_name)),
        ("cfVarName", text(&parameter.variable)),
        ("gridDefinitionDescription", text(grid.description)),
        ("name", text(parameter.name)),
        ("shortName", text(parameter.short_name)),
        ("units", text(parameter.units)),
    ]);
    keys.extend(product.total_number.map(|total| ("totalNumber", Value::Int(total))));
    keys.sort_by_key(|(key, _)| *key);
    keys.into_iter().for_each(|(key, value)| put(key, value));
    let mut put = |key: &str, value: Value| {
        attributes.insert(key.to_owned(), value);
    };
    put("long_name", text(parameter.name));
    put("units", text(parameter.units));
    put("standard_name", text(standard_name));
    let names = coordinates.iter().map(|coordinate| coordinate.name.as_str());
    let names: Vec<&str> = names.chain(["latitude", "longitude", "valid_time"]).collect();
    put("coordinates", Value::from(names.join(" ")));
    attributes
}
