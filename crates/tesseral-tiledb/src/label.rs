//! Dimension labels: arrays of one dimension below the folder of the array whose positions they name.
//!
//! A label array is dense, with the domain of the dimension and one attribute. It is opened as a further array of the container: as
//! the index coordinate of the dimension where it is ordered and has a label for every position, otherwise under its own name.

use std::sync::Arc;

use tesseral_core::schema::VariableRole;
use tesseral_core::{Error, Result, Value};
use tesseral_format::OpenOptions;
use tesseral_store::{Rounds, StoreExt};

use crate::array::TileDbArray;
use crate::directory;
use crate::fragment::Fragment;
use crate::fragments::Fragments;
use crate::group;
use crate::metadata_loader::{MetadataLoader, join};
use crate::open::{ArrayListing, TileDbContainer};
use crate::wire::schema::Label;

/// Attribute of an index coordinate with the name of the label that it is.
pub(crate) const LABEL_NAME: &str = "label_name";

/// A label as an array of the container.
#[derive(Debug)]
pub(crate) struct OpenedLabel {
    pub array: Arc<TileDbArray>,
    /// Its own name, also where it is named as the dimension.
    pub name: String,
    /// The array that it belongs to, and the dimension.
    of: usize,
    dim: usize,
    /// Whether it is the index coordinate of the dimension.
    index: bool,
}

/// Returns the folder of a label's array; `None` if it is outside the array.
pub(crate) fn folder(reader: &MetadataLoader, prefix: &str, label: &Label) -> Option<String> {
    group::folder_of(reader.store.location(), prefix, label.relative, &label.uri).filter(|_| !label.external)
}

/// Returns whether the fragments of an array of one dimension cover all of its positions.
fn covers(fragments: &[Fragment], extent: u64) -> bool {
    let placed = fragments.iter().filter_map(|fragment| fragment.placement.as_ref());
    let mut ranges: Vec<(u64, u64)> = placed.map(|p| (p.region.start(0), p.region.end(0))).collect();
    ranges.sort_unstable();
    let reached = ranges.iter().fold(0, |end, range| if range.0 <= end { end.max(range.1) } else { end });
    reached >= extent
}

/// Opens the array of a label. Its schema is that of a variable over the dimension, without a name.
fn open_array(
    metadata: &MetadataLoader,
    reader: &Arc<MetadataLoader>,
    array: &TileDbArray,
    label: &Label,
    folder: &str,
    options: &OpenOptions,
) -> Result<(TileDbArray, bool)> {
    let corrupt = |detail: &str| {
        let object = reader.store.describe(folder);
        Error::corrupt("a dimension label", object, None, format!("label {:?}: {detail}", label.name))
    };
    let dim = usize::try_from(label.dim).ok().filter(|d| *d < array.schema.dims.len());
    let dim = dim.ok_or_else(|| corrupt("the dimension does not exist"))?;
    let mut listing = ArrayListing::new(metadata, folder, options)?;
    let wire = Arc::clone(&listing.current);
    let ([own], [attribute]) = (wire.wire.dims.as_slice(), wire.wire.attributes.as_slice()) else {
        return Err(corrupt("its array has several dimensions or attributes"));
    };
    let labeled = &array.current.wire.dims[dim];
    if wire.wire.sparse || (own.datatype, &own.domain) != (labeled.datatype, &labeled.domain) {
        return Err(corrupt("its array has another domain than the dimension"));
    }
    if (&attribute.name, attribute.datatype, attribute.values)
        != (&label.attribute, label.datatype, label.values)
    {
        return Err(corrupt("its array does not have the attribute that the schema names"));
    }
    let fragments = listing.fragments(metadata)?;
    let mut opened = listing.described(metadata, Arc::clone(reader), &label.name)?;
    let extent = array.schema.dims[dim].extent;
    let whole = opened.schema.dims[0].extent == extent && extent.is_some_and(|n| covers(&fragments, n));
    opened.fragments = Fragments::from_opened(fragments)?;
    opened.schema.dims[0].name.clone_from(&array.schema.dims[dim].name);
    Ok((opened, whole))
}

impl TileDbContainer {
    /// Adds the labels of all arrays, whose metadata is read from `metadata`.
    ///
    /// # Errors
    /// Errors of opening a label; one that is missing or outside its array is listed.
    pub(crate) fn with_labels(self, metadata: &MetadataLoader, options: &OpenOptions) -> Result<Self> {
        self.with_labels_or(metadata, options, |_, error| Err(error))
    }

    /// As [`with_labels`](Self::with_labels); `failed` decides what becomes of an error.
    ///
    /// # Errors
    /// Errors of `failed`.
    pub(crate) fn with_labels_or(
        mut self,
        metadata: &MetadataLoader,
        options: &OpenOptions,
        mut failed: impl FnMut(&str, Error) -> Result<()>,
    ) -> Result<Self> {
        let mut waiting = false;
        for of in 0..self.arrays.len() {
            let array = Arc::clone(&self.arrays[of]);
            for label in &array.current.wire.labels {
                let listed = format!("{} ({})", label.name, label.uri);
                let Some(folder) = folder(metadata, &array.prefix, label) else {
                    self.unread_labels.push(format!("{listed}: outside the array"));
                    continue;
                };
                let opened = Rounds::later((|| {
                    directory::announce(metadata, &folder);
                    if metadata.list(&folder)?.is_empty() {
                        return Ok(None);
                    }
                    open_array(metadata, &self.reader, &array, label, &folder, options).map(Some)
                })());
                match opened {
                    Ok(Some(Some((opened, whole)))) => self.add_label(of, label, opened, whole),
                    Ok(Some(None)) => self.unread_labels.push(format!("{listed}: does not exist")),
                    Ok(None) => waiting = true,
                    Err(error) => failed(&label.name, error)?,
                }
            }
        }
        // An array of one field with labels is named as a variable, as its labels are.
        if let (None, false, [array]) = (&self.group, self.labels.is_empty(), self.arrays.as_mut_slice())
            && let Some(array) = Arc::get_mut(array)
            && let [field] = array.schema.fields.as_slice()
            && !field.name.is_empty()
            && !self.names.contains(&field.name)
        {
            self.names[0].clone_from(&field.name);
            array.schema.name.clone_from(&field.name);
        }
        if waiting { Err(Error::pending()) } else { Ok(self) }
    }

    fn add_label(&mut self, of: usize, label: &Label, mut opened: TileDbArray, whole: bool) {
        let array = &self.arrays[of];
        let Ok(dim) = usize::try_from(label.dim) else { return };
        let dimension = &array.schema.dims[dim];
        if opened.schema.dims[0].extent != dimension.extent {
            let detail = "its extent differs from that of the current domain";
            self.unread_labels.push(format!("{} ({}): {detail}", label.name, label.uri));
            return;
        }
        // The coordinates of a sparse array are its dimensions.
        let mut index = whole && label.order != 0 && !array.schema.sparse && !dimension.name.is_empty();
        index &= !self.labels.iter().any(|other| (other.of, other.dim, other.index) == (of, dim, true));
        // In a group, arrays can have dimensions of the same name.
        let parent = if self.group.is_some() { self.names[of].clone() } else { String::new() };
        let mut name = join(&parent, if index { &dimension.name } else { &label.name });
        while self.names.contains(&name) {
            index = false;
            name = format!("{name}.label");
        }
        let own = name.rsplit('/').next().unwrap_or(&name).to_owned();
        let schema = &mut opened.schema;
        schema.fields[0].name.clone_from(&own);
        schema.name.clone_from(&name);
        schema.role = if index { VariableRole::Index } else { VariableRole::Auxiliary };
        if own != label.name {
            schema
                .attributes
                .entry(LABEL_NAME.to_owned())
                .or_insert_with(|| Value::from(label.name.as_str()));
        }
        self.names.push(name);
        self.labels.push(OpenedLabel { array: Arc::new(opened), name: label.name.clone(), of, dim, index });
    }

    /// Returns the index coordinate of a dimension of an array, if it is a label.
    pub(crate) fn label_of(&self, array: usize, dim: &str) -> Option<usize> {
        let found = self.labels.iter().position(|label| {
            label.index && label.of == array && self.arrays[array].schema.dims[label.dim].name == dim
        });
        found.map(|label| self.arrays.len() + label)
    }
}
