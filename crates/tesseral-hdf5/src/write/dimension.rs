//! Dimensions of NetCDF-4: which group declares them, and which dataset is the scale of each.

use std::collections::HashMap;

use tesseral_core::{Error, Result};
use tesseral_format::groups_around;

use super::array::DatasetWrite;
use crate::dimension::NOT_A_COORDINATE;

/// A dimension of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DimensionScale {
    pub(super) group: String,
    pub(super) name: String,
    pub(super) extent: u64,
    pub(super) unlimited: bool,
    /// The array that is the scale; without it the dimension has a dataset without cells.
    pub(super) variable: Option<usize>,
}

/// The dimensions of a file and their use.
#[derive(Debug, Default)]
pub(super) struct FileDimensions {
    /// In the order of their numbers.
    pub(super) list: Vec<DimensionScale>,
    /// The dimensions of each array; empty where one has no name.
    pub(super) of_arrays: Vec<Vec<usize>>,
    by_group: HashMap<(String, String), usize>,
}

/// Group and own name of a path.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

/// Whether an array has the name of its first dimension: it is the scale of that dimension.
fn is_coordinate(array: &DatasetWrite) -> bool {
    is_named(array) && array.dims.first().is_some_and(|(name, _)| name == split(&array.name).1)
}

/// Whether all dimensions have names.
fn is_named(array: &DatasetWrite) -> bool {
    array.dims.iter().all(|(name, _)| !name.is_empty())
}

/// Rejects an array whose dimension has another length in its group.
pub(super) fn check(known: &[DatasetWrite], array: &DatasetWrite) -> Result<()> {
    let group = split(&array.name).0;
    if let Some((name, _)) = array.dims.iter().find(|(name, _)| name.contains(['/', '\0']) || name == ".") {
        return Err(Error::unsupported(format!("the dimension name {name:?} in NetCDF-4")));
    }
    let named = known.iter().chain([array]).filter(|other| split(&other.name).0 == group && is_named(other));
    let others = || named.clone().flat_map(|other| other.dims.iter().map(move |dim| (&other.name, dim)));
    for (name, extent) in array.dims.iter().filter(|_| is_named(array)) {
        if let Some((other, (_, length))) = others().find(|(_, (dim, n))| dim == name && n != extent) {
            let what = format!("dimension {name:?} with lengths {length} (in {other:?}) and {extent}");
            return Err(Error::unsupported(format!("{what} in one group of NetCDF-4")));
        }
    }
    Ok(())
}

impl FileDimensions {
    /// Finds the dimensions of all arrays. `groups` are in order, outer ones first.
    pub(super) fn new<'a>(arrays: &[DatasetWrite], groups: impl Iterator<Item = &'a str>) -> Self {
        let mut scales = Self { of_arrays: vec![Vec::new(); arrays.len()], ..Self::default() };
        let coordinates: HashMap<(&str, &str), usize> = arrays
            .iter()
            .enumerate()
            .filter(|(_, array)| is_coordinate(array))
            .map(|(number, array)| (split(&array.name), number))
            .collect();
        for group in groups {
            let inside = arrays.iter().enumerate();
            for (number, array) in inside.filter(|(_, a)| split(&a.name).0 == group && is_named(a)) {
                let mut own = Vec::new();
                for ((name, extent), unlimited) in array.dims.iter().zip(&array.unlimited) {
                    let variable = coordinates.get(&(group, name.as_str())).copied();
                    own.push(scales.find(group, name, *extent, variable).unwrap_or_else(|| {
                        scales.add(DimensionScale {
                            group: group.to_owned(),
                            name: name.clone(),
                            extent: *extent,
                            unlimited: *unlimited,
                            variable,
                        })
                    }));
                }
                scales.of_arrays[number] = own;
            }
        }
        scales
    }

    /// The dimension of a name: that of the group, or the nearest around it if it has the same length and no coordinate of the
    /// group belongs to another.
    fn find(&self, group: &str, name: &str, extent: u64, variable: Option<usize>) -> Option<usize> {
        let scale_in = |group: &str| self.by_group.get(&(group.to_owned(), name.to_owned())).copied();
        let outer = |_: &()| variable.is_none() && !group.is_empty();
        scale_in(group).or_else(|| {
            Some(()).filter(outer)?;
            let found = groups_around(group).chain([""]).find_map(scale_in)?;
            (self.list[found].extent == extent).then_some(found)
        })
    }

    fn add(&mut self, scale: DimensionScale) -> usize {
        let number = self.list.len();
        self.by_group.insert((scale.group.clone(), scale.name.clone()), number);
        self.list.push(scale);
        number
    }

    /// The name of the dataset of an array in its group: another name if it equals that of a dimension of which it is not a
    /// coordinate.
    pub(super) fn link(&self, arrays: &[DatasetWrite], number: usize) -> String {
        let (group, own) = split(&arrays[number].name);
        match self.by_group.get(&(group.to_owned(), own.to_owned())) {
            Some(scale) if self.list[*scale].variable != Some(number) => format!("{NOT_A_COORDINATE}{own}"),
            _ => own.to_owned(),
        }
    }
}
