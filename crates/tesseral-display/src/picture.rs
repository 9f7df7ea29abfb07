//! Pictures of fields and lines, with axes, as PNG and SVG.

mod axis;
mod canvas;
mod color_map;
mod figure;
mod font;
mod image;
mod svg;

use tesseral::{Array, Container, Field, Overview, Point};
use tesseral_core::schema::VariableRole;
use tesseral_core::{description, escape};

pub use self::axis::{PictureAxis, Tick, number_label, round_numbers};
pub use self::color_map::NOT_FINITE;
pub use self::image::{ImageFormat, MOST, encoded};
use crate::coordinate;

/// Color maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum ColorMap {
    /// Dark blue to yellow
    Viridis,
    /// Black to light yellow
    Magma,
    /// Black to yellow, warmer
    Inferno,
    /// Dark blue to light gray-yellow
    Cividis,
    /// Red over white to blue, for values around a center
    Rdbu,
    /// Black to white
    Greys,
}

/// Content of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureKind {
    /// Colors over two dimensions.
    Field,
    /// A line over one dimension.
    Line,
    /// A line along a vertical dimension.
    Profile,
    /// Bars: counts of values.
    Bars,
}

impl PictureKind {
    /// Name of the kind: `field`, `line`, `profile`, `histogram`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Field => "field",
            Self::Line => "line",
            Self::Profile => "profile",
            Self::Bars => "histogram",
        }
    }
}

/// Content of a picture.
pub struct Picture {
    /// Content.
    pub kind: PictureKind,
    /// Its points.
    pub overview: Overview,
    /// The lowest value of the scale.
    pub low: f64,
    /// The highest value of the scale.
    pub high: f64,
    /// Description of the picture.
    pub title: String,
    /// The coordinates of the dimensions that are not drawn.
    pub subtitle: String,
    /// Name of the variable.
    pub name: String,
    /// Units of the values; empty if unknown.
    pub units: String,
    /// Vertical and horizontal axis of a field; otherwise the axis of the only dimension.
    pub axes: Vec<PictureAxis>,
    /// Number of selected positions along each axis.
    pub cells: Vec<u64>,
}

/// The coordinate variable of a dimension.
fn coordinate_of(container: &Container, array: &Array, dim: &str) -> Option<Array> {
    let index = container.inner().find(array.name()).ok()?;
    let own = container.inner().sibling(index, dim)?;
    container.lazy_array(own).ok().filter(|found| found.schema().role == VariableRole::Index)
}

/// Direction of larger coordinates on a vertical axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Upward {
    /// Latitudes and the like: up.
    North,
    /// Heights: up.
    Height,
    /// Depths and pressures: down.
    Depth,
}

/// Direction of larger values of a coordinate, by its attributes and its name.
fn upward(name: &str, coordinate: Option<&Array>) -> Option<Upward> {
    let attribute = |key: &str| {
        let array = coordinate?;
        description::text_attribute(array.schema(), array.selected_field(), key)
    };
    let standard = attribute("standard_name").unwrap_or_default();
    let units = attribute("units").unwrap_or_default().to_lowercase();
    let plain = name.to_lowercase();
    let northern = units.starts_with("degree") && (units.ends_with("north") || units.ends_with('n'));
    let named = matches!(plain.as_str(), "lat" | "latitude" | "nav_lat" | "y" | "northing");
    if northern
        || standard.ends_with("latitude")
        || standard == "projection_y_coordinate"
        || attribute("axis") == Some("Y")
        || (standard.is_empty() && named)
    {
        return Some(Upward::North);
    }
    let pressure = ["pa", "hpa", "mbar", "millibar", "millibars", "bar", "dbar", "decibar"];
    match attribute("positive").unwrap_or_default() {
        "up" => Some(Upward::Height),
        "down" => Some(Upward::Depth),
        _ if pressure.contains(&units.as_str()) => Some(Upward::Depth),
        _ if matches!(standard, "height" | "altitude") => Some(Upward::Height),
        _ if standard == "depth" => Some(Upward::Depth),
        _ => match plain.as_str() {
            "height" | "altitude" => Some(Upward::Height),
            "depth" | "plev" | "pressure" | "isobaricinhpa" => Some(Upward::Depth),
            _ => None,
        },
    }
}

/// Whether a dimension of an array is vertical: its values are drawn as a profile.
pub fn is_vertical(container: &Container, array: &Array, dim: usize) -> bool {
    let Some(dimension) = array.schema().dims.get(dim) else { return false };
    let coordinate = coordinate_of(container, array, &dimension.name);
    matches!(upward(&dimension.name, coordinate.as_ref()), Some(Upward::Height | Upward::Depth))
}

/// The axis of a dimension of an overview. A vertical axis of latitudes and the like is reversed if its coordinates ascend, so that
/// north is up.
pub fn axis(
    container: &Container,
    array: &Array,
    overview: &Overview,
    number: usize,
    vertical: bool,
) -> PictureAxis {
    let d = overview.dims[number];
    let dim = &array.schema().dims[d];
    let coordinate = coordinate_of(container, array, &dim.name);
    let units = coordinate.as_ref().and_then(|array| {
        description::text_attribute(array.schema(), array.selected_field(), "units").map(str::to_owned)
    });
    let (slice, points) = (overview.selection.slices()[d], overview.shape[number]);
    let mut axis = PictureAxis::new(dim, d, slice, points, &units.unwrap_or_default());
    // Positions without coordinates point nowhere.
    let placed = dim.labels.is_some() || dim.domain.is_some();
    axis.reversed = vertical
        && placed
        && match upward(&dim.name, coordinate.as_ref()) {
            Some(Upward::North | Upward::Height) => axis.ascends(),
            Some(Upward::Depth) => axis.descends(),
            None => false,
        };
    axis
}

impl Picture {
    /// The picture of an overview of a field of an array, with colors or heights for a range of values.
    pub fn new(
        container: &Container,
        array: &Array,
        field: &Field,
        overview: Overview,
        (low, high): (f64, f64),
    ) -> Self {
        let kind = if overview.shape.len() == 2 { PictureKind::Field } else { PictureKind::Line };
        Self::of_kind(kind, container, array, field, overview, (low, high))
    }

    /// The picture of a histogram of a field: the counts of its values between ascending edges.
    pub fn of_counts(
        container: &Container,
        array: &Array,
        field: &Field,
        overview: Overview,
        edges: &[f64],
    ) -> Self {
        let most = overview.range(0.0).map_or(1.0, |(_, high)| high.max(1.0));
        let mut picture = Self::of_kind(PictureKind::Bars, container, array, field, overview, (0.0, most));
        picture.axes = vec![PictureAxis::of_bins(&picture.name, &picture.units, edges)];
        picture.cells = vec![edges.len().saturating_sub(1) as u64];
        (picture.name, picture.units) = ("cells".to_owned(), String::new());
        picture
    }

    /// As [`new`](Self::new), of a given kind.
    pub fn of_kind(
        kind: PictureKind,
        container: &Container,
        array: &Array,
        field: &Field,
        overview: Overview,
        (low, high): (f64, f64),
    ) -> Self {
        let schema = array.schema();
        let vertical = |i: usize| kind == PictureKind::Profile || (overview.dims.len() == 2 && i == 0);
        let axes =
            (0..overview.dims.len()).map(|i| axis(container, array, &overview, i, vertical(i))).collect();
        let cells = overview.dims.iter().map(|d| overview.selection.slices()[*d].count()).collect();
        let fixed = |d: usize| {
            let (dim, slice) = (&schema.dims[d], overview.selection.slices()[d]);
            let name = if dim.name.is_empty() { d.to_string() } else { dim.name.clone() };
            match slice.count() {
                0 | 1 => format!("{name} = {}", coordinate(dim, slice.start)),
                n if dim.extent == Some(n) => format!("over {name}"),
                _ => {
                    let last = slice.tight_end().saturating_sub(1);
                    format!("{name} = {} .. {}", coordinate(dim, slice.start), coordinate(dim, last))
                }
            }
        };
        let others = (0..schema.dims.len())
            .filter(|d| !overview.dims.contains(d) && schema.dims[*d].extent != Some(1));
        let subtitle = others.map(fixed).collect::<Vec<_>>().join(", ");
        let name = if schema.fields.len() > 1 { &field.name } else { array.variable_name() };
        let title = description::long_name(schema, field).unwrap_or(name);
        Self {
            kind,
            title: escape(title).into_owned(),
            subtitle: escape(&subtitle).into_owned(),
            name: escape(name).into_owned(),
            units: description::text_attribute(schema, field, "units").unwrap_or_default().to_owned(),
            overview,
            low,
            high,
            axes,
            cells,
        }
    }
}

impl Picture {
    /// Position of a value on the scale, from 0 to 1.
    pub fn normalize(&self, value: f64) -> f64 {
        if self.high > self.low { ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0) } else { 0.5 }
    }

    /// A point of a profile, from the top.
    pub fn along(&self, row: usize) -> Point {
        self.overview.points.get(self.point_at(row)).copied().unwrap_or(Point::Null)
    }

    /// The lowest and the highest cell of a point of a profile, from the top, if it has several.
    pub fn ends_along(&self, row: usize) -> Option<(f64, f64)> {
        self.overview.ends.get(self.point_at(row)).copied().flatten()
    }

    fn point_at(&self, row: usize) -> usize {
        let reversed = self.axes.first().is_some_and(|axis| axis.reversed);
        if reversed { self.overview.points.len().saturating_sub(row + 1) } else { row }
    }

    /// A point of a drawn field, from the top.
    pub fn at(&self, row: usize, column: usize) -> Point {
        let shape = &self.overview.shape;
        let row = if self.axes[0].reversed { shape[0] - 1 - row } else { row };
        self.overview.points[row * shape[1] + column]
    }

    /// The title line.
    pub fn heading(&self) -> String {
        let units = if self.units.is_empty() { String::new() } else { format!(" [{}]", escape(&self.units)) };
        let subtitle = if self.subtitle.is_empty() { String::new() } else { format!("  {}", self.subtitle) };
        format!("{}{units}{subtitle}", self.title)
    }

    /// Name and units of the values.
    pub fn value_title(&self) -> String {
        if self.units.is_empty() {
            self.name.clone()
        } else {
            format!("{} [{}]", self.name, escape(&self.units))
        }
    }
}
