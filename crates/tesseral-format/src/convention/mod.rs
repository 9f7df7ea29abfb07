//! Storage conventions, version 1: how a format stores the parts of the data model that it does not support.
//!
//! A format declares by [`Holds`] what it supports natively. Everything else is stored as the nearest supported array, with a
//! marker among the attributes, under the name [`KEY`], that describes the encoded array. A program that does not know the
//! marker reads the stored array. `docs/formats/conventions.md` is the normative text.
//!
//! ```text
//! model ──encode──▶ ModelWriter ──▶ the format's Writer          the format's Container ──▶ ModelContainer ──decode──▶ model
//! ```

mod attributes;
mod container;
mod encoding;
pub mod history;
mod marker;
mod source;
mod text;
pub mod value;
mod writer;

use tesseral_core::{CellLen, DType, Value};

use std::sync::Arc;

use tesseral_core::Result;
use tesseral_core::calendar::TimeUnits;
use tesseral_core::schema::Labels;
use tesseral_store::Store;

use crate::{ArraySource, ContainerSource, CreateOptions, Format, OpenOptions, Writer};

pub use self::attributes::OF_CONTAINER;
pub use self::container::ModelContainer;
pub use self::marker::KEY;
pub use self::text::TextExtent;
pub use self::writer::ModelWriter;

/// Opens a source as a container of the data model.
///
/// # Errors
/// As [`Format::open`].
pub fn open(
    format: &dyn Format,
    store: Arc<dyn Store>,
    options: &OpenOptions,
) -> Result<Arc<dyn ContainerSource>> {
    options.check(format)?;
    let native = format.open(store, options)?;
    Ok(Arc::new(ModelContainer::new(native, format.holds(), options.limits)?))
}

/// Creates a container of the data model.
///
/// # Errors
/// As [`Format::create`].
pub fn create(
    format: &dyn Format,
    store: Arc<dyn Store>,
    options: &CreateOptions,
) -> Result<Box<dyn Writer>> {
    options.check(format)?;
    Ok(Box::new(ModelWriter::new(format.create(store, options)?, format.holds())))
}

/// Labels of one dimension, from its index coordinate.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisLabels {
    /// One label for each position.
    pub labels: Labels,
    /// How they count time.
    pub time: Option<TimeUnits>,
    /// The period of numbers: 360 for longitudes in degrees.
    pub period: Option<f64>,
}

/// Adds labels to the dimensions of an array.
pub fn labeled(source: Arc<dyn ArraySource>, labels: Vec<(usize, AxisLabels)>) -> Arc<dyn ArraySource> {
    source::ModelArray::labeled(source, labels)
}

/// States the time that the numbers of an array of one field count.
pub fn counting(source: Arc<dyn ArraySource>, units: TimeUnits) -> Arc<dyn ArraySource> {
    source::ModelArray::described(source, |schema| {
        if let [field] = schema.fields.as_mut_slice() {
            field.time = Some(units);
        }
    })
}

/// Parts of the data model that a format supports natively.
#[derive(Clone, Copy, Debug)]
pub struct Holds {
    /// Returns whether cells of a dtype and length are supported.
    pub cells: fn(DType, CellLen) -> bool,
    /// The dtype of bytes that store text of variable length: `UInt8`, or `Char` where that is what readers take for text.
    pub text: DType,
    /// Whether arrays are divided into chunks. Otherwise an array is a single chunk, regardless of the requested chunk shape.
    pub chunks: bool,
    /// Whether the cells of an array are one range of bytes in row-major order. Chunks of a conversion are then
    /// [consecutive parts](crate::contiguous_chunk_shape) of it.
    pub contiguous: bool,
    /// Whether arrays can have several fields.
    pub many_fields: bool,
    /// Whether a container is one table: its arrays are columns of one dimension, with the same number of rows and the same chunks.
    pub table: bool,
    /// Whether cells can be null.
    pub nullable: bool,
    /// Whether arrays can be sparse.
    pub sparse: bool,
    /// Whether dimensions have a domain of coordinates, such as 1 to 12 or dates.
    pub domains: bool,
    /// Whether scalars are supported.
    pub scalars: bool,
    /// Whether dimensions of extent 0 are supported.
    pub empty: bool,
    /// Returns an attribute as it reads back; `None` if it cannot be stored.
    pub attribute: fn(&str, &Value) -> Option<Value>,
    /// Maximum number of attributes of an array.
    pub attributes: usize,
    /// Whether the order of attributes is preserved.
    pub ordered: bool,
    /// Returns a container attribute as it reads back; `None` if it cannot be stored.
    pub container_attribute: fn(&str, &Value) -> Option<Value>,
    /// Keys of attributes that describe one field of an array of several: this prefix, the field's name, a dot, the attribute's
    /// name. `None` if all attributes describe the array.
    pub field_attributes: Option<&'static str>,
    /// Names of container attributes in the order in which the format returns them.
    pub container_order: &'static [&'static str],
    /// Whether groups can have attributes. Otherwise they are stored with the container.
    pub groups: bool,
    /// Whether fields can have the name of a dimension of their array.
    pub field_named_as_dimension: bool,
    /// Maximum number of dimensions of an array.
    pub rank: usize,
    /// Whether two dimensions of an array can have the same name.
    pub repeated_dimensions: bool,
    /// Whether dimensions can be unlimited, or the format has no place for a marker.
    pub unlimited: bool,
    /// Maximum number of labels of a dimension that are stored with its array.
    pub labels: usize,
}

impl Holds {
    /// Supports the whole data model.
    pub const ALL: Self = Self {
        cells: |_, _| true,
        text: DType::UInt8,
        chunks: true,
        contiguous: false,
        many_fields: true,
        table: false,
        nullable: true,
        sparse: true,
        domains: true,
        scalars: true,
        empty: true,
        attribute: |_, value| Some(value.clone()),
        attributes: usize::MAX,
        ordered: true,
        container_attribute: |_, value| Some(value.clone()),
        field_attributes: None,
        container_order: &[],
        groups: false,
        field_named_as_dimension: true,
        rank: usize::MAX,
        repeated_dimensions: true,
        unlimited: true,
        labels: usize::MAX,
    };

    /// Supports dense arrays of one field whose cells are never null and whose dimensions count from 0.
    pub const DENSE: Self =
        Self { many_fields: false, nullable: false, sparse: false, domains: false, ..Self::ALL };
}
