//! What an array is: dimensions, fields, order, attributes.

use std::fmt;

use crate::{Attributes, ChunkGrid, Coords, DType, Error, Result, Scalar};

/// In which order the cells of a chunk follow one another.
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
    /// Its name; empty when the format gave none.
    pub name: String,
    /// The type of its coordinates: integers unless the format says otherwise.
    pub dtype: DType,
    /// Number of positions; `None` when the coordinates are not countable (floats, text).
    pub extent: Option<u64>,
    /// First and last coordinate, for formats whose dimensions have a domain of their own.
    pub domain: Option<(Scalar, Scalar)>,
    /// Length of a chunk along this dimension in coordinates, where it has one.
    pub tile: Option<Scalar>,
    /// A label for each position.
    pub labels: Option<Labels>,
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
        /// Their bytes, back to back.
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

    /// Whether there is none.
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
    /// The coordinate of a position: its label, or its place in the dimension's own domain.
    pub fn coordinate(&self, position: u64) -> Option<Scalar> {
        if let Some(labels) = &self.labels {
            return labels.get(usize::try_from(position).ok()?);
        }
        let (first, _) = self.domain.as_ref()?;
        Scalar::from_i128(first.dtype(), first.as_i128()?.checked_add(i128::from(position))?)
    }

    /// A plain axis of `extent` positions.
    pub fn new(name: impl Into<String>, extent: u64) -> Self {
        Self {
            name: name.into(),
            dtype: DType::UInt64,
            extent: Some(extent),
            domain: None,
            tile: None,
            labels: None,
        }
    }
}

/// How many elements a cell of a field has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CellLen {
    /// One.
    #[default]
    One,
    /// The same number in every cell.
    Fixed(u32),
    /// Any number, cell by cell.
    Var,
}

/// Values over the array's cells. TileDB calls it an attribute; the other formats have one per array.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Its name; the array's own when the format has no fields.
    pub name: String,
    /// The type of one element.
    pub dtype: DType,
    /// Elements per cell.
    pub cell: CellLen,
    /// Whether cells can be null.
    pub nullable: bool,
    /// What cells that were never written hold; for formats without such cells, the value declared to mean "missing".
    pub fill: Option<Scalar>,
    /// Whether cells of a nullable field that were never written hold the fill as a value. Elsewhere they are null.
    pub fill_valid: bool,
    /// Nobody declared the fill: the format takes it by itself, and a cell that was written may well hold it.
    pub default_fill: bool,
    /// Labels of the codes, for enumerated fields.
    pub enumeration: Option<Enumeration>,
    /// Codecs on its chunks, by name, in the order they encode.
    pub codecs: Vec<String>,
}

/// Labels that codes of a field stand for.
#[derive(Clone, Debug, PartialEq)]
pub struct Enumeration {
    /// Its name.
    pub name: String,
    /// Whether the order of the labels means something.
    pub ordered: bool,
    /// The labels: code `i` means label `i`.
    pub labels: Labels,
}

impl Field {
    /// A field of one plain element per cell.
    pub fn new(name: impl Into<String>, dtype: DType) -> Self {
        Self {
            name: name.into(),
            dtype,
            cell: CellLen::One,
            nullable: false,
            fill: None,
            fill_valid: false,
            default_fill: false,
            enumeration: None,
            codecs: Vec::new(),
        }
    }

    /// The value declared to mean "missing". What nobody declared means nothing, nor does anything beside nulls.
    pub fn missing(&self) -> Option<&Scalar> {
        self.fill.as_ref().filter(|_| !self.default_fill && !self.nullable)
    }

    /// Bytes of one cell; `None` for cells of any length and for bitmasks.
    pub fn cell_size(&self) -> Option<usize> {
        match self.cell {
            CellLen::One => self.dtype.size(),
            CellLen::Fixed(n) => self.dtype.size()?.checked_mul(usize::try_from(n).ok()?),
            CellLen::Var => None,
        }
    }

    /// The dtype as `info` names it: `float32`, `float32[3]`, `string_utf8`.
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

/// What an array is.
#[derive(Clone, Debug, PartialEq)]
pub struct ArraySchema {
    /// Its name in the container.
    pub name: String,
    /// Its axes.
    pub dims: Vec<Dimension>,
    /// Its fields, at least one.
    pub fields: Vec<Field>,
    /// Chunk extents in positions, for arrays that lie on a grid.
    pub chunk_shape: Option<Coords>,
    /// Order of cells inside a chunk.
    pub cell_order: Order,
    /// Whether cells are listed one by one instead of filling the grid.
    pub sparse: bool,
    /// Whether one position may hold several cells (sparse arrays).
    pub allows_duplicates: bool,
    /// Attributes.
    pub attributes: Attributes,
}

impl ArraySchema {
    /// A dense array of one field on a grid.
    pub fn dense(name: impl Into<String>, dtype: DType, shape: &[u64], chunk_shape: &[u64]) -> Self {
        let name = name.into();
        Self {
            fields: vec![Field::new(name.clone(), dtype)],
            name,
            dims: shape.iter().map(|&n| Dimension::new("", n)).collect(),
            chunk_shape: Some(Coords::from_slice(chunk_shape)),
            cell_order: Order::RowMajor,
            sparse: false,
            allows_duplicates: false,
            attributes: Attributes::new(),
        }
    }

    /// Number of positions along each dimension; `None` when one is not countable.
    pub fn shape(&self) -> Option<Coords> {
        self.dims.iter().map(|d| d.extent).collect()
    }

    /// The chunk grid of an array that lies on one.
    ///
    /// # Errors
    /// `InvalidRequest` when it does not.
    pub fn grid(&self) -> Result<ChunkGrid> {
        match (self.shape(), &self.chunk_shape) {
            (Some(shape), Some(chunk)) => ChunkGrid::new(&shape, chunk),
            _ => Err(Error::invalid("the array does not lie on a grid of positions").in_array(&self.name)),
        }
    }

    /// The position of a field by name.
    ///
    /// # Errors
    /// `NotFound`, with the names there are.
    pub fn field(&self, name: &str) -> Result<usize> {
        self.fields.iter().position(|f| f.name == name).ok_or_else(|| {
            Error::not_found("field", name, self.fields.iter().map(|f| f.name.clone()).collect())
                .in_array(&self.name)
        })
    }

    /// The position of a dimension by name or decimal number.
    ///
    /// # Errors
    /// `NotFound`, with the names there are.
    pub fn dim(&self, name: &str) -> Result<usize> {
        let named = self.dims.iter().position(|d| !d.name.is_empty() && d.name == name);
        named.or_else(|| name.parse().ok().filter(|d| *d < self.dims.len())).ok_or_else(|| {
            let names = self.dims.iter().enumerate();
            let names = names.map(|(i, d)| if d.name.is_empty() { i.to_string() } else { d.name.clone() });
            Error::not_found("dimension", name, names.collect()).in_array(&self.name)
        })
    }
}
