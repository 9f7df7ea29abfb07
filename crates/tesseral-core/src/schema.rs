//! Array schemas: dimensions, fields, order, attributes.

use std::fmt;

use crate::calendar::{Calendar, CivilTime, TimeUnits};
use crate::{Attributes, ChunkGrid, Coords, DType, Error, Result, Scalar, time};

/// The order of the cells in a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// Last dimension fastest.
    #[default]
    RowMajor,
    /// First dimension fastest.
    ColMajor,
    /// Along a Hilbert curve (sparse arrays only).
    Hilbert,
}

/// One axis of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct Dimension {
    /// Name; empty when the format has none.
    pub name: String,
    /// The type of its coordinates; integers unless the format declares otherwise.
    pub dtype: DType,
    /// Number of positions; `None` when the coordinates are not countable (floats, text).
    pub extent: Option<u64>,
    /// First and last coordinate, for formats whose dimensions have a domain.
    pub domain: Option<(Scalar, Scalar)>,
    /// Chunk extent along this dimension in coordinate units, if any.
    pub tile: Option<Scalar>,
    /// A label for each position.
    pub labels: Option<Labels>,
    /// How labels that are numbers count time.
    pub time: Option<TimeUnits>,
    /// The period of labels that are numbers: 360 for longitudes in degrees.
    pub period: Option<f64>,
    /// Whether more positions can be added, by declaration (NetCDF).
    pub unlimited: bool,
}

/// Coordinate labels of one axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// Text, one per position.
    Text(Vec<String>),
    /// Numbers or dates of one dtype, as little-endian bytes.
    Numbers {
        /// The dtype of each label.
        dtype: DType,
        /// The values, contiguous.
        bytes: Vec<u8>,
    },
}

impl Labels {
    /// Number of labels.
    pub fn len(&self) -> usize {
        match self {
            Self::Text(labels) => labels.len(),
            Self::Numbers { dtype, bytes } => bytes.len() / dtype.size().unwrap_or(1),
        }
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The label of one position.
    pub fn get(&self, i: usize) -> Option<Scalar> {
        match self {
            Self::Text(labels) => labels.get(i).map(|text| Scalar::from_text(text)),
            Self::Numbers { dtype, bytes } => {
                let size = dtype.size()?;
                let start = i.checked_mul(size)?;
                Scalar::from_le_bytes(*dtype, bytes.get(start..start.checked_add(size)?)?).ok()
            }
        }
    }
}

impl Dimension {
    /// The coordinate of a position: its label, or its value in the dimension's domain.
    pub fn coordinate(&self, position: u64) -> Option<Scalar> {
        if let Some(labels) = &self.labels {
            return labels.get(usize::try_from(position).ok()?);
        }
        let (first, _) = self.domain.as_ref()?;
        Scalar::from_i128(first.dtype(), first.as_i128()?.checked_add(i128::from(position))?)
    }

    /// The coordinate of a position as text, times in their calendar.
    pub fn coordinate_text(&self, position: u64) -> Option<String> {
        let coordinate = self.coordinate(position)?;
        let time = self.time.and_then(|units| units.at(&coordinate));
        Some(time.map_or_else(|| coordinate.to_string(), |time| time.to_string()))
    }

    /// The time of a position and its calendar; `None` if the coordinate is not a time.
    pub fn civil(&self, position: u64) -> Option<(CivilTime, Calendar)> {
        let coordinate = self.coordinate(position)?;
        match (coordinate.dtype(), self.time) {
            (DType::DateTime(unit), _) => {
                let count = i64::try_from(coordinate.as_i128()?).ok()?;
                Some((time::civil(count, unit)?, Calendar::ProlepticGregorian))
            }
            (_, units) => units.and_then(|units| Some((units.at(&coordinate)?, units.calendar()))),
        }
    }

    /// Whether coordinates are times.
    pub fn counts_time(&self) -> bool {
        let dtype = match (&self.labels, &self.domain) {
            (Some(Labels::Numbers { dtype, .. }), _) => *dtype,
            (None, Some((first, _))) => first.dtype(),
            _ => self.dtype,
        };
        matches!(dtype, DType::DateTime(_)) || self.time.is_some()
    }

    /// Numbers along a cyclic dimension, turned so that they ascend or descend: all before the last place where they cross the end of
    /// the dimension are turned by a period. Others stay as they are. `[350, 355, 0, 5]` becomes `[-10, -5, 0, 5]`.
    pub fn unwrapped(&self, mut numbers: Vec<f64>) -> Vec<f64> {
        let Some(period) = self.period else { return numbers };
        for i in (1..numbers.len()).rev() {
            let (before, after) = (numbers[i - 1], numbers[i]);
            let turn =
                [-period, period].into_iter().find(|turn| (before + turn - after).abs() < period / 2.0);
            if let Some(turn) = turn.filter(|_| (before - after).abs() > period / 2.0) {
                numbers[..i].iter_mut().for_each(|number| *number += turn);
            }
        }
        numbers
    }

    /// A dimension of `extent` positions without labels or domain.
    pub fn new(name: impl Into<String>, extent: u64) -> Self {
        Self {
            name: name.into(),
            dtype: DType::UInt64,
            extent: Some(extent),
            domain: None,
            tile: None,
            labels: None,
            period: None,
            unlimited: false,
            time: None,
        }
    }
}

/// The number of elements per cell of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CellLen {
    /// One element.
    #[default]
    One,
    /// The same number of elements in every cell.
    Fixed(u32),
    /// Variable-length: each cell has its own number of elements.
    Var,
}

/// Values over the cells of an array. TileDB calls a field an attribute; the other formats have one per array.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Name; the name of the array when the format has no fields.
    pub name: String,
    /// The type of one element.
    pub dtype: DType,
    /// Elements per cell.
    pub cell: CellLen,
    /// Whether the field is nullable.
    pub nullable: bool,
    /// The fill value: what unwritten cells hold. It declares nothing about cells that were written.
    pub fill: Option<Scalar>,
    /// Whether unwritten cells of a nullable field hold the fill value. Otherwise they are null.
    pub fill_valid: bool,
    /// The declared missing values, in the field's dtype. See [`missing`](crate::missing).
    pub missing: Vec<Scalar>,
    /// How numbers count time, by the attributes `units` and `calendar`. They stay numbers; times are for display and comparison.
    pub time: Option<TimeUnits>,
    /// Labels of the codes, for enumerated fields.
    pub enumeration: Option<Enumeration>,
    /// Codec names of its chunks, in encoding order.
    pub codecs: Vec<String>,
}

/// The labels of the codes of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Enumeration {
    /// Name of the enumeration.
    pub name: String,
    /// Whether the order of the labels is significant.
    pub ordered: bool,
    /// The labels: code `i` denotes label `i`.
    pub labels: Labels,
}

impl Field {
    /// A field with one element per cell.
    pub fn new(name: impl Into<String>, dtype: DType) -> Self {
        Self {
            name: name.into(),
            dtype,
            cell: CellLen::One,
            nullable: false,
            fill: None,
            fill_valid: false,
            missing: Vec::new(),
            time: None,
            enumeration: None,
            codecs: Vec::new(),
        }
    }

    /// Bytes per cell; `None` for variable-length cells and bitmasks.
    pub fn cell_size(&self) -> Option<usize> {
        match self.cell {
            CellLen::One => self.dtype.size(),
            CellLen::Fixed(n) => self.dtype.size()?.checked_mul(usize::try_from(n).ok()?),
            CellLen::Var => None,
        }
    }

    /// The name of the cell type: `float32`, `float32[3]`, `string_utf8`.
    pub fn type_name(&self) -> impl fmt::Display {
        let (dtype, cell) = (self.dtype, self.cell);
        std::fmt::from_fn(move |f| match (cell, dtype) {
            (CellLen::Fixed(2), DType::Float32) => f.write_str("complex64"),
            (CellLen::Fixed(2), DType::Float64) => f.write_str("complex128"),
            (CellLen::Fixed(n), _) if dtype.class() != crate::dtype::Class::Text => write!(f, "{dtype}[{n}]"),
            _ => write!(f, "{dtype}"),
        })
    }
}

/// Role of a variable in its dataset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum VariableRole {
    /// Measured or computed values.
    #[default]
    Data,
    /// The coordinates of a dimension: a one-dimensional variable with the dimension's name.
    Index,
    /// Other coordinates: latitudes of a curvilinear grid, the scalar time of a forecast.
    Auxiliary,
    /// The bounds of the cells of a coordinate.
    Bounds,
    /// A grid mapping: its attributes describe a coordinate reference system.
    GridMapping,
    /// Metadata about other variables: quality flags, numbers of observations.
    Ancillary,
}

impl VariableRole {
    const ALL: [Self; 6] =
        [Self::Data, Self::Index, Self::Auxiliary, Self::Bounds, Self::GridMapping, Self::Ancillary];

    /// Name of the role: `data`, `index`, `auxiliary`, `bounds`, `grid_mapping`, `ancillary`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::Index => "index",
            Self::Auxiliary => "auxiliary",
            Self::Bounds => "bounds",
            Self::GridMapping => "grid_mapping",
            Self::Ancillary => "ancillary",
        }
    }

    /// Parses the name of a role.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }

    /// Returns whether the role is a kind of coordinate.
    pub fn is_coordinate(self) -> bool {
        matches!(self, Self::Index | Self::Auxiliary)
    }
}

/// The schema of an array.
#[derive(Clone, Debug, PartialEq)]
pub struct ArraySchema {
    /// Name in the container.
    pub name: String,
    /// The dimensions.
    pub dims: Vec<Dimension>,
    /// The fields, at least one.
    pub fields: Vec<Field>,
    /// Chunk shape in positions, for arrays on a chunk grid.
    pub chunk_shape: Option<Coords>,
    /// Shape in positions of the groups of chunks that are stored as one object, for arrays whose chunks are not separate objects.
    pub shard_shape: Option<Coords>,
    /// Order of cells inside a chunk.
    pub cell_order: Order,
    /// Whether cells are stored with coordinates instead of filling the grid.
    pub sparse: bool,
    /// Whether several cells can share a position (sparse arrays).
    pub allows_duplicates: bool,
    /// Attributes.
    pub attributes: Attributes,
    /// The prefix of attributes that belong to one of several fields: `PREFIX NAME.KEY`; `None` for formats of one field per array.
    pub field_attributes: Option<&'static str>,
    /// Role of the array in its container.
    pub role: VariableRole,
}

impl ArraySchema {
    /// Returns whether a variable of this name is an index coordinate: its only dimension has the last component of the name.
    pub fn is_index_of(&self, name: &str) -> bool {
        let own = name.rsplit('/').next().unwrap_or(name);
        matches!(self.dims.as_slice(), [dim] if !self.sparse && !own.is_empty() && dim.name == own)
    }

    /// A dense array of one field on a chunk grid.
    pub fn dense(name: impl Into<String>, dtype: DType, shape: &[u64], chunk_shape: &[u64]) -> Self {
        let name = name.into();
        Self {
            fields: vec![Field::new(name.clone(), dtype)],
            name,
            dims: shape.iter().map(|&n| Dimension::new("", n)).collect(),
            chunk_shape: Some(Coords::from_slice(chunk_shape)),
            shard_shape: None,
            cell_order: Order::RowMajor,
            sparse: false,
            allows_duplicates: false,
            attributes: Attributes::new(),
            field_attributes: None,
            role: VariableRole::Data,
        }
    }

    /// Number of positions along each dimension; `None` when a dimension is not countable.
    pub fn shape(&self) -> Option<Coords> {
        self.dims.iter().map(|d| d.extent).collect()
    }

    /// The chunk grid of the array, whose chunks need not be [counted](ChunkGrid::is_counted).
    ///
    /// # Errors
    /// `InvalidRequest` when the array has no chunk grid.
    pub fn grid(&self) -> Result<ChunkGrid> {
        match (self.shape(), &self.chunk_shape) {
            (Some(shape), Some(chunk)) => ChunkGrid::uncounted(&shape, chunk),
            _ => Err(Error::invalid("the array has no chunk grid").in_array(&self.name)),
        }
    }

    /// The index of a field by name.
    ///
    /// # Errors
    /// `NotFound`, with the available names.
    pub fn field(&self, name: &str) -> Result<usize> {
        self.fields.iter().position(|f| f.name == name).ok_or_else(|| {
            Error::not_found("field", name, self.fields.iter().map(|f| f.name.clone()).collect())
                .in_array(&self.name)
        })
    }

    /// The index of a dimension by name or decimal number.
    ///
    /// # Errors
    /// `NotFound`, with the available names; `InvalidRequest` for a name of several dimensions.
    pub fn dim(&self, name: &str) -> Result<usize> {
        let mut found = (0..self.dims.len()).filter(|d| !name.is_empty() && self.dims[*d].name == name);
        let (named, second) = (found.next(), found.next());
        if let (Some(first), Some(second)) = (named, second) {
            let detail = format!("{name:?} is the name of dimensions {first} and {second}");
            return Err(Error::invalid(detail).in_array(&self.name).hint("use their numbers"));
        }
        named.or_else(|| name.parse().ok().filter(|d| *d < self.dims.len())).ok_or_else(|| {
            let names = self.dims.iter().enumerate();
            let names = names.map(|(i, d)| if d.name.is_empty() { i.to_string() } else { d.name.clone() });
            Error::not_found("dimension", name, names.collect()).in_array(&self.name)
        })
    }
}
