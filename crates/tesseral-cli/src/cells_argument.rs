//! Resolution of `SOURCE [ARRAY] [SELECTION…]` to an array, a field and cells.

use std::path::PathBuf;

use clap::Args;
use tesseral::{Array, Column, Container, DType, Error, Field, Selection};
use tesseral_core::calendar::TimeScale;
use tesseral_display::dim_field;

use crate::error::CliResult;
use crate::text;

/// The resolved cells.
#[derive(Clone, Debug)]
pub(crate) struct ResolvedCells {
    /// The array, reading the field.
    pub(crate) array: Array,
    /// The field, or a dimension as a field; the first one if no column was named.
    pub(crate) field: Field,
    /// The named column, or the only field.
    pub(crate) named: Option<Column>,
    /// The selected cells.
    pub(crate) cells: tesseral::Target,
    /// The selection as written on the command line.
    words: Vec<String>,
}

impl ResolvedCells {
    /// Returns the selection of a dense array.
    pub(crate) fn selection(&self) -> CliResult<&Selection> {
        match &self.cells {
            tesseral::Target::Cells(selection) => Ok(selection),
            tesseral::Target::Coordinates(_) => {
                let error = Error::unsupported("this command on a sparse array");
                Err(error
                    .in_array(self.array.name())
                    .hint("`tet cat` and `tet stat` support sparse arrays")
                    .into())
            }
        }
    }

    /// Returns the positions of the cells; for a sparse array, including positions without a cell.
    pub(crate) fn positions(&self) -> CliResult<Selection> {
        match &self.cells {
            tesseral::Target::Cells(selection) => Ok(selection.clone()),
            tesseral::Target::Coordinates(_) => {
                let schema = self.array.schema();
                if let Some(dim) = schema.dims.iter().find(|dim| dim.extent.is_none()) {
                    let feature = format!("positions of dimension {:?}, which is not countable", dim.name);
                    let hint = "--by supports any dimension with the default statistics";
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

/// Source, array and selection arguments.
#[derive(Clone, Debug, Args)]
pub(crate) struct CellsArgument {
    /// Path or URL of a file or folder of any supported format
    pub(crate) source: PathBuf,
    /// Array, field of the only array, or array/field; then one selection per dimension: `time=0:10`, `lat=10..20`,
    /// `lon=@12.5`, `lat=~40.3` (nearest), `0=7`
    #[arg(value_name = "ARRAY | SELECTION")]
    words: Vec<String>,
    #[command(flatten)]
    pub(crate) values: ValuesArgument,
}

/// Which numbers of packed fields are meant.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct ValuesArgument {
    /// Use stored numbers of packed fields instead of physical values (scale_factor, add_offset, _Unsigned)
    #[arg(long)]
    pub(crate) stored: bool,
}

impl ValuesArgument {
    /// How cells count time, if they are shown as times.
    pub(crate) fn times(&self, field: &Field) -> Option<TimeScale> {
        TimeScale::of_values(field, self.stored)
    }

    /// The container, with physical values unless stored values are requested.
    pub(crate) fn apply_to(self, container: Container) -> Container {
        if self.stored { container } else { container.physical() }
    }
}

/// Reports which fields of an array show physical values.
pub(crate) fn report_packing(array: &Array) {
    for (name, packing) in array.packings() {
        let field = array.schema().fields.iter().find(|field| field.name == *name);
        let variable = field.map_or_else(|| name.clone(), |field| array.field_variable(field));
        let line = format!("{variable}: physical values: {packing}; --stored shows stored numbers");
        eprintln!("{}", text::escape(&line));
    }
}

impl CellsArgument {
    /// Array and selection arguments.
    pub(crate) fn new(source: PathBuf, words: Vec<String>) -> Self {
        Self { source, words, values: ValuesArgument { stored: true } }
    }

    /// Returns the array name and the selections. A word that equals an array name is the array, even if it contains `=`.
    fn split<'a>(&'a self, container: &Container) -> (Option<&'a str>, &'a [String]) {
        match self.words.split_first() {
            Some((first, rest)) if !first.contains('=') || container.find(first).is_ok() => {
                (Some(first), rest)
            }
            _ => (None, &self.words),
        }
    }

    /// Resolves the array, the field and the cells.
    pub(crate) fn resolve(&self, container: &Container) -> CliResult<ResolvedCells> {
        let target = self.resolve_rows(container, false)?;
        match target.named {
            Some(_) => Ok(target),
            None => Err(Self::name_one(&target.array).into()),
        }
    }

    /// As [`resolve`](Self::resolve); no field is required for a sparse array or for rows.
    pub(crate) fn resolve_rows(&self, container: &Container, rows: bool) -> CliResult<ResolvedCells> {
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

    /// Visits the result of [`resolve`](Self::resolve), or every field of every array if none is named; `several` is true if
    /// more than one is visited.
    pub(crate) fn each(
        &self,
        container: &Container,
        visit: &mut dyn FnMut(ResolvedCells, bool) -> CliResult<()>,
    ) -> CliResult<()> {
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
            // Coordinates do not have all dimensions of the selection.
            None if !selections.is_empty() && container.only_array()?.is_some() => {
                fields(only(container)?, false)
            }
            None => {
                (0..container.len()).try_for_each(|i| fields(container.array_at(i)?, container.len() > 1))
            }
        }
    }

    /// Error for a source with several fields.
    pub(crate) fn name_one(array: &Array) -> Error {
        let schema = array.schema();
        let names: Vec<&str> = schema.fields.iter().map(|f| f.name.as_str()).collect();
        several(array.name(), "field", &names)
    }
}

fn target(array: Array, named: Option<Column>, selections: &[String]) -> CliResult<ResolvedCells> {
    let schema = array.schema();
    let field = match named {
        Some(Column::Dim(dim)) => dim_field(schema, usize::from(dim)),
        Some(Column::Field(field)) => schema.fields[usize::from(field)].clone(),
        _ => schema.fields.first().cloned().unwrap_or_else(|| Field::new("", DType::UInt8)),
    };
    let array = match named {
        Some(Column::Field(number)) => array.field_at(number)?,
        _ => array,
    };
    let (narrowed, cells) = array.target(selections.iter().map(String::as_str))?;
    let array = narrowed.into_owned();
    Ok(ResolvedCells { array, field, named, cells, words: selections.to_vec() })
}

/// Returns the only array that is not a coordinate.
fn only(container: &Container) -> CliResult<Array> {
    if container.is_empty() {
        return Err(Error::invalid(format!("{} has no arrays", container.location())).into());
    }
    match container.only_array()? {
        Some(index) => Ok(container.array_at(index)?),
        None => Err(several(container.location(), "array", &container.names().collect::<Vec<_>>()).into()),
    }
}

/// Error for a choice between several.
fn several(whole: &str, what: &str, names: &[&str]) -> Error {
    const SHOWN: usize = 20;
    let more = if names.len() > SHOWN { ", …" } else { "" };
    let shown: Vec<String> = names.iter().take(SHOWN).map(|n| format!("{n:?}")).collect();
    let count = text::count(names.len() as u64, what);
    Error::invalid(format!("{whole} has {count}; available: {}{more}", shown.join(", ")))
}
