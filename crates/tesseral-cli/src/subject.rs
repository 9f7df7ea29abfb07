//! What `SOURCE [ARRAY] [SELECTION…]` means: which array, which field, which cells.

use std::path::PathBuf;

use clap::Args;
use tesseral::core::dtype::Class;
use tesseral::core::schema::Enumeration;
use tesseral::{Array, ArraySchema, CellLen, Column, Container, DType, Dimension, Error, Field, Selection};

use crate::failure::Outcome;
use crate::text;

/// What is meant.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The array, reading the field.
    pub(crate) array: Array,
    /// The field, or a dimension seen as one; of an array none of whose columns was named, the first.
    pub(crate) field: Field,
    /// The column that was named, or the only field there is.
    pub(crate) named: Option<Column>,
    /// The cells.
    pub(crate) cells: tesseral::Target,
    /// The same as it was written.
    words: Vec<String>,
}

impl Target {
    /// The cells of a dense array.
    pub(crate) fn selection(&self) -> Outcome<&Selection> {
        match &self.cells {
            tesseral::Target::Cells(selection) => Ok(selection),
            tesseral::Target::Coordinates(_) => {
                let error = Error::unsupported("this on a sparse array");
                Err(error
                    .in_array(self.array.name())
                    .hint("`tet cat` and `tet stat` take sparse arrays")
                    .into())
            }
        }
    }

    /// The positions of the cells; of a sparse array, whether there is a cell or not.
    pub(crate) fn positions(&self) -> Outcome<Selection> {
        match &self.cells {
            tesseral::Target::Cells(selection) => Ok(selection.clone()),
            tesseral::Target::Coordinates(_) => {
                let schema = self.array.schema();
                if let Some(dim) = schema.dims.iter().find(|dim| dim.extent.is_none()) {
                    let feature = format!("positions along dimension {:?}, which has none", dim.name);
                    let hint = "--by takes any dimension, with the usual statistics";
                    return Err(Error::unsupported(feature).in_array(self.array.name()).hint(hint).into());
                }
                Ok(self.array.select(self.words.iter().map(String::as_str))?)
            }
        }
    }

    /// The column to read.
    pub(crate) fn column(&self) -> Column {
        self.named.unwrap_or(Column::Field(0))
    }
}

/// A dimension seen as a field; one without a name goes by its number.
pub(crate) fn dim_field(schema: &ArraySchema, dim: usize) -> Field {
    let dimension = &schema.dims[dim];
    let name = if dimension.name.is_empty() { dim.to_string() } else { dimension.name.clone() };
    let cell = if dimension.dtype.class() == Class::Text { CellLen::Var } else { CellLen::One };
    // Labels are what the coordinates say, one for each position.
    let counted = dimension.domain.as_ref().is_none_or(|(first, _)| first.as_i128() == Some(0));
    let labels = dimension
        .labels
        .as_ref()
        .filter(|labels| counted && !schema.sparse && Some(labels.len() as u64) == dimension.extent);
    let enumeration =
        labels.map(|labels| Enumeration { name: name.clone(), ordered: false, labels: labels.clone() });
    Field { cell, enumeration, ..Field::new(name, dimension.dtype) }
}

/// A source, an array of it, cells of that.
#[derive(Clone, Debug, Args)]
pub(crate) struct Subject {
    /// File or folder of any known format
    pub(crate) source: PathBuf,
    /// The array, or a field of the only array, or array/field; then one selection per dimension: `time=0:10`, `lat=10..20`, `lon=@12.5`, `0=7`
    #[arg(value_name = "ARRAY | SELECTION")]
    words: Vec<String>,
}

impl Subject {
    /// An array of a source and a selection for some of its dimensions.
    pub(crate) fn new(source: PathBuf, words: Vec<String>) -> Self {
        Self { source, words }
    }

    /// The array's name and the selections. A word that names an array is one, whatever signs are in it.
    fn split<'a>(&'a self, container: &Container) -> (Option<&'a str>, &'a [String]) {
        match self.words.split_first() {
            Some((first, rest)) if !first.contains('=') || container.find(first).is_ok() => {
                (Some(first), rest)
            }
            _ => (None, &self.words),
        }
    }

    /// The one array and field meant, and the cells.
    pub(crate) fn resolve(&self, container: &Container) -> Outcome<Target> {
        let target = self.resolve_rows(container, false)?;
        match target.named {
            Some(_) => Ok(target),
            None => Err(Self::name_one(&target.array).into()),
        }
    }

    /// As [`resolve`](Self::resolve); of a sparse array, or where rows are asked for, no field has to be named.
    pub(crate) fn resolve_rows(&self, container: &Container, rows: bool) -> Outcome<Target> {
        let (name, selections) = self.split(container);
        let (array, column) = match name {
            Some(name) => container.find(name)?,
            None => (only(container)?, None),
        };
        let column = column.or_else(|| (array.schema().fields.len() == 1).then_some(Column::Field(0)));
        if column.is_none() && !rows && !array.schema().sparse {
            return Err(Self::name_one(&array).into());
        }
        target(array, column, selections)
    }

    /// Visits what [`resolve`](Self::resolve) gives, or every field of every array when none is named, one after the other; `several` is
    /// true when more than one is visited.
    pub(crate) fn each(
        &self,
        container: &Container,
        visit: &mut dyn FnMut(Target, bool) -> Outcome<()>,
    ) -> Outcome<()> {
        let (name, selections) = self.split(container);
        let mut fields = |array: Array, several: bool| {
            let count = array.schema().fields.len();
            (0..).take(count).try_for_each(|field| {
                visit(target(array.clone(), Some(Column::Field(field)), selections)?, several || count > 1)
            })
        };
        match name {
            Some(name) => match container.find(name)? {
                (array, Some(column)) => visit(target(array, Some(column), selections)?, false),
                (array, None) => fields(array, false),
            },
            None => {
                (0..container.len()).try_for_each(|i| fields(container.array_at(i)?, container.len() > 1))
            }
        }
    }

    /// One of the fields must be named.
    pub(crate) fn name_one(array: &Array) -> Error {
        let schema = array.schema();
        let names: Vec<&str> = schema.fields.iter().map(|f| f.name.as_str()).collect();
        several(array.name(), "field", &names)
    }
}

fn target(array: Array, named: Option<Column>, selections: &[String]) -> Outcome<Target> {
    let schema = array.schema();
    let field = match named {
        Some(Column::Dim(dim)) => dim_field(schema, usize::from(dim)),
        Some(Column::Field(field)) => schema.fields[usize::from(field)].clone(),
        _ => schema.fields.first().cloned().unwrap_or_else(|| Field::new("", DType::UInt8)),
    };
    let array = match named {
        Some(Column::Field(number)) => array.field_at(number),
        _ => array,
    };
    let cells = array.target(selections.iter().map(String::as_str))?;
    Ok(Target { array, field, named, cells, words: selections.to_vec() })
}

/// The only array.
fn only(container: &Container) -> Outcome<Array> {
    match container.len() {
        0 => Err(Error::invalid(format!("{} holds no array", container.location())).into()),
        1 => Ok(container.array_at(0)?),
        _ => Err(several(container.location(), "array", &container.names().collect::<Vec<_>>()).into()),
    }
}

/// One of several must be named.
fn several(whole: &str, what: &str, names: &[&str]) -> Error {
    const SHOWN: usize = 20;
    let more = if names.len() > SHOWN { ", …" } else { "" };
    let shown: Vec<String> = names.iter().take(SHOWN).map(|n| format!("{n:?}")).collect();
    let count = text::count(names.len() as u64, what);
    Error::invalid(format!("{whole} has {count}, name one of: {}{more}", shown.join(", ")))
}

/// The coordinate of a position: its label, its place in the dimension's own domain, or its number.
pub(crate) fn coordinate(dim: &Dimension, position: u64) -> String {
    dim.coordinate(position).map_or_else(|| position.to_string(), |coordinate| coordinate.to_string())
}
