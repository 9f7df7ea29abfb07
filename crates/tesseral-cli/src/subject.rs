//! What `SOURCE [ARRAY] [SELECTION…]` means: which array, which field, which cells.

use std::path::PathBuf;

use clap::Args;
use tesseral::core::schema::Labels;
use tesseral::core::time;
use tesseral::{Array, Container, DType, Dimension, Error, ErrorKind, Field, Selection};

use crate::failure::Outcome;
use crate::text;

/// What is meant.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The array, reading the field.
    pub(crate) array: Array,
    /// The field.
    pub(crate) field: Field,
    /// The cells.
    pub(crate) selection: Selection,
}

/// A source, an array of it, cells of that.
#[derive(Clone, Debug, Args)]
pub(crate) struct Subject {
    /// File or folder of any known format
    pub(crate) source: PathBuf,
    /// The array, or a field of the only array; then one selection per dimension: `time=0:10`, `lat=10..20`, `lon=@12.5`, `0=7`
    #[arg(value_name = "ARRAY | SELECTION")]
    words: Vec<String>,
}

impl Subject {
    /// The array's name and the selections. A word that names an array is one, whatever signs are in it.
    fn split<'a>(&'a self, container: &Container) -> (Option<&'a str>, &'a [String]) {
        match self.words.split_first() {
            Some((first, rest)) if !first.contains('=') || find(container, first).is_ok() => {
                (Some(first), rest)
            }
            _ => (None, &self.words),
        }
    }

    /// The one array and field meant, and the cells.
    pub(crate) fn resolve(&self, container: &Container) -> Outcome<Target> {
        let (name, selections) = self.split(container);
        let (array, field) = match name {
            Some(name) => find(container, name)?,
            None => only(container)?,
        };
        target(array, field, selections)
    }

    /// As [`resolve`](Self::resolve), or every field of every array when none is named.
    pub(crate) fn resolve_all(&self, container: &Container) -> Outcome<Vec<Target>> {
        let (name, selections) = self.split(container);
        if name.is_some() || (container.len() == 1 && container.array_at(0)?.schema().fields.len() == 1) {
            return Ok(vec![self.resolve(container)?]);
        }
        let mut found = Vec::new();
        for index in 0..container.len() {
            let array = container.array_at(index)?;
            for field in array.schema().fields.clone() {
                found.push(target(array.clone(), field, selections)?);
            }
        }
        Ok(found)
    }
}

fn target(array: Array, field: Field, selections: &[String]) -> Outcome<Target> {
    // The first field is what arrays read of themselves; the name may stand for several.
    let first = array.schema().fields.first().is_some_and(|f| f.name == field.name);
    let array = if first { array } else { array.field(&field.name)? };
    let selection = array.select(selections.iter().map(String::as_str))?;
    Ok(Target { array, field, selection })
}

/// An array by name, or a field of the only array.
fn find(container: &Container, name: &str) -> Outcome<(Array, Field)> {
    let error = match container.array(name) {
        Ok(array) => return only_field(array),
        Err(error) => error,
    };
    if matches!(error.kind(), ErrorKind::NotFound { .. }) && container.len() == 1 {
        let array = container.array_at(0)?;
        let number = array.schema().field(name);
        if number.is_ok() || array.schema().fields.len() > 1 {
            let field = array.schema().fields[number?].clone();
            return Ok((array, field));
        }
    }
    Err(error.into())
}

/// The only field of an array.
fn only_field(array: Array) -> Outcome<(Array, Field)> {
    match array.schema().fields.as_slice() {
        [field] => {
            let field = field.clone();
            Ok((array, field))
        }
        fields => {
            let names: Vec<&str> = fields.iter().map(|f| f.name.as_str()).collect();
            Err(several(array.name(), "field", &names).into())
        }
    }
}

/// The only field of the only array.
fn only(container: &Container) -> Outcome<(Array, Field)> {
    match container.len() {
        0 => Err(Error::invalid(format!("{} holds no array", container.location())).into()),
        1 => only_field(container.array_at(0)?),
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
    if let Some(label) = label(dim.labels.as_ref(), position) {
        return label;
    }
    if let Some((first, _)) = &dim.domain
        && let Some(first_value) = first.as_i128()
    {
        let value = first_value + i128::from(position);
        if let (DType::DateTime(unit), Ok(count)) = (first.dtype(), i64::try_from(value)) {
            let mut date = String::new();
            // Writing to a String cannot fail.
            let _ = time::write(&mut date, count, unit);
            return date;
        }
        return value.to_string();
    }
    position.to_string()
}

fn label(labels: Option<&Labels>, position: u64) -> Option<String> {
    match labels? {
        Labels::Text(texts) => texts.get(usize::try_from(position).ok()?).cloned(),
        numbers => numbers.get(usize::try_from(position).ok()?).map(|label| label.to_string()),
    }
}
