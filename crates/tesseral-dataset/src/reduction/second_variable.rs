//! The second variable of covariances and correlations, by name.

use tesseral_core::{Error, Result};
use tesseral_engine::fold::Paired;
use tesseral_format::Column;

use crate::{Array, Container};

/// Finds a variable over the same dimensions as an array: another field of it, or a dense array of the container.
///
/// # Errors
/// `NotFound` for an unknown name; `InvalidRequest` for a variable over other dimensions.
pub fn paired(array: &Array, container: &Container, name: &str) -> Result<Paired> {
    if let Some(field) = array.schema().fields.iter().position(|field| field.name == name) {
        return Ok(Paired::field(u16::try_from(field).unwrap_or(u16::MAX)));
    }
    let (variable, column) = container.find(name)?;
    let field = match column {
        Some(Column::Field(field)) => field,
        Some(_) => return Err(Error::invalid(format!("{name:?} is a dimension")).in_array(array.name())),
        None if variable.schema().fields.len() > 1 => {
            let detail = format!("{name:?} has several fields");
            return Err(Error::invalid(detail).in_array(array.name()));
        }
        None => {
            let field = variable.selected_field();
            let number = variable.schema().fields.iter().position(|other| other.name == field.name);
            u16::try_from(number.unwrap_or(0)).unwrap_or(0)
        }
    };
    if variable.name() == array.name() {
        return Ok(Paired::field(field));
    }
    let dims = |array: &Array| -> Vec<(String, Option<u64>)> {
        array.schema().dims.iter().map(|dim| (dim.name.clone(), dim.extent)).collect()
    };
    if array.schema().sparse || variable.schema().sparse || dims(array) != dims(&variable) {
        let detail = format!("{name:?} is not over the same dimensions");
        return Err(Error::invalid(detail).in_array(array.name()));
    }
    Ok(Paired::of_array(variable.handle().clone(), field))
}
