//! The cells that a request names.

use serde::Deserialize;
use tesseral::{Array, Cancel, Column, Container, Error, Result, Selection, Slice, Target};

use crate::server::ServerState;

/// Memory of one request.
const MEMORY: u64 = 512 << 20;

/// Query parameters that name cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(default)]
pub(crate) struct CellParameters {
    /// Number of the source.
    pub(crate) source: usize,
    /// Number of the array.
    pub(crate) array: usize,
    /// Number of the field.
    pub(crate) field: u16,
    /// Time of the state to read.
    pub(crate) as_of: Option<String>,
    /// Whether stored numbers are meant instead of physical values.
    pub(crate) stored: bool,
    /// Positions, one item for each dimension, separated by commas: `7`, `2:5`, `2:5:1`, or nothing for all.
    pub(crate) at: String,
}

/// Resolved cells.
#[derive(Debug)]
pub(crate) struct OpenedField {
    pub(crate) container: Container,
    pub(crate) array: Array,
}

impl CellParameters {
    /// Opens the array and selects the field; operations on it stop with `cancel`.
    pub(crate) fn open(&self, shared: &ServerState, cancel: Cancel) -> Result<OpenedField> {
        let container = shared.sources.container(self.source, self.as_of.as_deref())?;
        let container = if self.stored { container } else { container.physical() };
        let array = container.lazy_array(self.array)?.field_at(self.field)?;
        let crossed = self.crossed(&array);
        let array = if crossed.is_empty() { array } else { array.continued(&crossed)? };
        let mut options = array.options().clone().with_cancel(cancel);
        options.memory = Some(options.memory.map_or(MEMORY, |memory| memory.min(MEMORY)));
        Ok(OpenedField { array: array.with_options(options), container })
    }

    /// The axes whose positions continue at their start, as those of a range of longitudes across the end of the axis.
    fn crossed(&self, array: &Array) -> Vec<usize> {
        let dims = array.schema().dims.iter().zip(self.at.split(',')).enumerate();
        let crosses = |extent: u64, item: &str| {
            let ends: Vec<Option<u64>> = item.splitn(2, ':').map(|end| end.parse().ok()).collect();
            matches!(ends.as_slice(), [Some(start), Some(end)] if *start < extent && *end > extent)
        };
        let sparse = array.schema().sparse;
        dims.filter(|(_, (dim, item))| !sparse && dim.extent.is_some_and(|extent| crosses(extent, item)))
            .map(|(d, _)| d)
            .collect()
    }

    /// The selected positions.
    pub(crate) fn selection(&self, array: &Array) -> Result<Selection> {
        let schema = array.schema();
        let whole = array.all()?;
        let items: Vec<&str> = if self.at.is_empty() { Vec::new() } else { self.at.split(',').collect() };
        if !items.is_empty() && items.len() != schema.dims.len() {
            let detail = format!("{} positions for {} dimensions", items.len(), schema.dims.len());
            return Err(Error::invalid(detail).in_array(array.name()));
        }
        let mut slices: Vec<Slice> = whole.slices().to_vec();
        for (slice, item) in slices.iter_mut().zip(&items).filter(|(_, item)| !item.is_empty()) {
            *slice = parse(item, *slice).map_err(|e| e.in_array(array.name()))?;
        }
        let bounds: Vec<u64> = whole.slices().iter().map(|slice| slice.end).collect();
        Selection::new(slices, &bounds)
    }

    /// The cells to read: positions, or coordinates of a sparse array.
    pub(crate) fn target(&self, array: &Array) -> Result<Target> {
        if array.schema().sparse && self.at.is_empty() {
            return Ok(array.target([])?.1);
        }
        let selection = self.selection(array)?;
        match array.schema().sparse {
            true => Ok(Target::Coordinates(tesseral_engine::ranges(&array.schema().dims, &selection)?)),
            false => Ok(Target::Cells(selection)),
        }
    }
}

impl OpenedField {
    /// The selected field as a column.
    pub(crate) fn column(&self) -> Column {
        Column::Field(self.array.field_number())
    }

    /// The array with the labels of all dimensions.
    pub(crate) fn labeled(&self) -> Result<Array> {
        Ok(self.array.labeled(|_| true)?.into_owned())
    }
}

/// Parses the positions along a dimension.
fn parse(item: &str, whole: Slice) -> Result<Slice> {
    let number = |text: &str, default: u64| match text {
        "" => Ok(default),
        text => text.parse::<u64>().map_err(|_| Error::invalid(format!("invalid position {text:?}"))),
    };
    let mut parts = item.split(':');
    let first = number(parts.next().unwrap_or_default(), whole.start)?;
    let slice = match (parts.next(), parts.next(), parts.next()) {
        (None, ..) => Slice { start: first, end: first.saturating_add(1), step: 1 },
        (Some(end), step, None) => {
            Slice { start: first, end: number(end, whole.end)?, step: number(step.unwrap_or_default(), 1)? }
        }
        _ => return Err(Error::invalid(format!("invalid positions {item:?}"))),
    };
    if slice.step == 0 || slice.start > slice.end || slice.end > whole.end {
        let detail = format!("positions {item} are not within {}..{}", whole.start, whole.end);
        return Err(Error::invalid(detail));
    }
    Ok(slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_checked() {
        let whole = Slice::new(0, 10);
        assert_eq!(parse("3", whole).unwrap(), Slice::new(3, 4));
        assert_eq!(parse("2:5", whole).unwrap(), Slice::new(2, 5));
        assert_eq!(parse(":", whole).unwrap(), whole);
        assert_eq!(parse("::3", whole).unwrap(), Slice { start: 0, end: 10, step: 3 });
        for bad in ["10", "3:2", "-1", "a", "1:11", "::0", "1:2:3:4", "18446744073709551616"] {
            assert!(parse(bad, whole).is_err(), "{bad}");
        }
    }
}
