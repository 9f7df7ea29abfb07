//! Dimensions: datasets that are dimension scales give them names, and NetCDF-4 a common length.

use std::collections::HashMap;

use crate::dataset::DatasetInfo;

/// The beginning of the `NAME` of a scale without cells: a dimension that is not a variable.
pub(crate) const NOT_A_VARIABLE: &str = "This is a netCDF dimension but not a netCDF variable";
/// The beginning of the name of a variable that is not the coordinate of the dimension of the same name.
pub(crate) const NOT_A_COORDINATE: &str = "_nc4_non_coord_";

/// A dimension of a dataset.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NamedExtent {
    /// Name; empty if there is no scale.
    pub(crate) name: String,
    /// Length: of an unlimited dimension the longest extent of its datasets.
    pub(crate) extent: u64,
    pub(crate) unlimited: bool,
}

/// Whether a dataset only declares a dimension.
pub(crate) fn is_dimension_only(info: &DatasetInfo) -> bool {
    is_scale(info) && info.attributes.hidden_text("NAME").is_some_and(|name| name.starts_with(NOT_A_VARIABLE))
}

fn is_scale(info: &DatasetInfo) -> bool {
    info.attributes.hidden_text("CLASS") == Some("DIMENSION_SCALE")
}

/// The name of a variable whose dataset has this path.
pub(crate) fn variable_name(path: &str) -> String {
    let (group, own) = path.rsplit_once('/').map_or(("", path), |(group, own)| (group, own));
    match own.strip_prefix(NOT_A_COORDINATE) {
        Some(own) if group.is_empty() => own.to_owned(),
        Some(own) => format!("{group}/{own}"),
        None => path.to_owned(),
    }
}

/// Scales of a file by address and by NetCDF's number.
pub(crate) struct Scales {
    by_address: HashMap<u64, (String, bool)>,
    by_number: HashMap<i64, u64>,
    /// Length of each scale's dimension.
    extents: HashMap<u64, u64>,
}

impl Scales {
    /// Collects the scales among datasets with their paths.
    pub(crate) fn new<'a>(datasets: impl Iterator<Item = (&'a str, &'a DatasetInfo)> + Clone) -> Self {
        let mut scales =
            Self { by_address: HashMap::new(), by_number: HashMap::new(), extents: HashMap::new() };
        for (path, info) in datasets.clone().filter(|(_, info)| is_scale(info)) {
            let own = path.rsplit('/').next().unwrap_or(path).to_owned();
            let unlimited = info.unlimited.first().copied().unwrap_or(false);
            scales.by_address.insert(info.address, (own, unlimited));
            if let [number] = info.attributes.hidden_integers("_Netcdf4Dimid")[..] {
                scales.by_number.entry(number).or_insert(info.address);
            }
        }
        for (_, info) in datasets {
            for (scale, extent) in scales.attached_to(info).into_iter().zip(&info.shape) {
                if let Some(scale) = scale {
                    let longest = scales.extents.entry(scale).or_default();
                    *longest = (*longest).max(*extent);
                }
            }
        }
        scales
    }

    /// The address of the scale of each dimension of a dataset.
    fn attached_to(&self, info: &DatasetInfo) -> Vec<Option<u64>> {
        let (rank, attributes) = (info.shape.len(), &info.attributes);
        let numbers = attributes.hidden_integers("_Netcdf4Coordinates");
        if numbers.len() == rank && rank > 0 && numbers.iter().all(|n| self.by_number.contains_key(n)) {
            return numbers.iter().map(|number| self.by_number.get(number).copied()).collect();
        }
        let mut out: Vec<Option<u64>> = attributes.scales.iter().map(|address| Some(*address)).collect();
        out.resize(rank, None);
        if is_scale(info)
            && let Some(first) = out.first_mut()
        {
            first.get_or_insert(info.address);
        }
        out.into_iter().map(|scale| scale.filter(|address| self.by_address.contains_key(address))).collect()
    }

    /// The dimensions of a dataset.
    pub(crate) fn dimensions(&self, info: &DatasetInfo) -> Vec<NamedExtent> {
        let labels = match info.attributes.hidden.get("DIMENSION_LABELS") {
            Some(tesseral_core::Value::List(labels)) => labels.iter().map(ToString::to_string).collect(),
            Some(tesseral_core::Value::Text(label)) => vec![label.clone()],
            _ => Vec::new(),
        };
        let each = self.attached_to(info).into_iter().zip(&info.shape).enumerate();
        each.map(|(d, (scale, extent))| {
            let found = scale.and_then(|address| Some((address, self.by_address.get(&address)?)));
            match found {
                Some((address, (name, unlimited))) => {
                    let longest = self.extents.get(&address).copied().unwrap_or(*extent);
                    // Only chunked datasets grow; an extent that differs otherwise is kept.
                    let grows = *unlimited && info.unlimited.get(d).copied().unwrap_or(false);
                    let extent = if grows { longest } else { *extent };
                    NamedExtent { name: name.clone(), extent, unlimited: *unlimited }
                }
                None => NamedExtent {
                    name: labels.get(d).cloned().unwrap_or_default(),
                    extent: *extent,
                    unlimited: info.unlimited.get(d).copied().unwrap_or(false),
                },
            }
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_beside_a_dimension_have_their_own_name() {
        assert_eq!(variable_name("_nc4_non_coord_x"), "x");
        assert_eq!(variable_name("a/b/_nc4_non_coord_x"), "a/b/x");
        assert_eq!(variable_name("a/x_nc4_non_coord_"), "a/x_nc4_non_coord_");
    }
}
