//! Slots and files: a slot is an attribute, a dimension or an internal list, and has three files.

use tesseral_core::Result;

use super::sections::SlotSections;
use super::{Fragment, METADATA};
use crate::metadata_loader::{MetadataLoader, join};
use crate::model::FieldChains;

impl Fragment {
    pub(super) fn metadata_object(&self) -> String {
        join(&self.entry.folder, METADATA)
    }

    /// Number of slots.
    pub(crate) fn slots(&self) -> usize {
        self.footer.files[0].len()
    }

    /// Slot of a dimension.
    pub(crate) fn dim_slot(&self, dim: usize) -> usize {
        let coords = self.schema.wire.attributes.len();
        if self.is_zipped() { coords } else { coords + 1 + dim }
    }

    /// Returns whether the coordinates of all dimensions are in one file.
    pub(crate) fn is_zipped(&self) -> bool {
        self.footer.is_zipped()
    }

    /// Slot of timestamps, if the fragment has them.
    pub(crate) fn time_slot(&self) -> Option<usize> {
        self.footer.timestamps.then(|| self.dim_slot(self.schema.wire.dims.len()))
    }

    /// Slot of delete timestamps, if the fragment has them.
    pub(crate) fn delete_slot(&self) -> Option<usize> {
        let first = self.dim_slot(self.schema.wire.dims.len());
        self.footer.deletes.then_some(first + usize::from(self.footer.timestamps))
    }

    /// Loaded lists of a slot.
    pub(super) fn loaded(&self, slot: usize) -> &SlotSections {
        let named = || Box::new(SlotSections::new(self.slot_names(slot)));
        self.slots[slot].get_or_init(named)
    }

    /// The files of a slot.
    fn slot_names(&self, slot: usize) -> [String; 3] {
        let (attributes, dims) = (self.schema.wire.attributes.len(), self.schema.wire.dims.len());
        let deletes = self.delete_slot();
        let version = self.entry.version;
        let stem = if slot < attributes {
            file_stem(version, &self.schema.wire.attributes[slot].name, 'a', slot)
        } else if slot > attributes && slot <= attributes + dims {
            let number = slot - attributes - 1;
            file_stem(version, &self.schema.wire.dims[number].name, 'd', number)
        } else if Some(slot) == self.time_slot() {
            "t".to_owned()
        } else if Some(slot) == deletes {
            "dt".to_owned()
        } else if deletes.is_some_and(|first| slot == first + 1) {
            "dci".to_owned()
        } else {
            "__coords".to_owned()
        };
        ["", "_var", "_validity"].map(|end| join(&self.entry.folder, &format!("{stem}{end}.tdb")))
    }

    /// The files of each slot, three per slot, in the order of object numbers.
    pub(crate) fn object_names(&self) -> impl Iterator<Item = String> {
        (0..self.slots()).flat_map(|slot| self.slot_names(slot))
    }

    /// Number of its data files, including those that do not exist.
    pub(crate) fn object_count(&self) -> usize {
        self.slots() * 3
    }

    /// The name of an object; empty for numbers of others.
    pub(crate) fn object_name(&self, object: u32) -> &str {
        self.slot_file(object).map_or("", |(slot, file)| &self.loaded(slot).names[file])
    }

    /// Index of the object of one of a slot's files.
    pub(crate) fn object(&self, slot: usize, file: usize) -> u32 {
        // Bounded when the table of objects was created.
        self.objects + u32::try_from(slot * 3 + file).unwrap_or(u32::MAX)
    }

    /// Returns slot and file of an object.
    pub(crate) fn slot_file(&self, object: u32) -> Option<(usize, usize)> {
        let number = usize::try_from(object.checked_sub(self.objects)?).ok()?;
        (number / 3 < self.slots()).then_some((number / 3, number % 3))
    }

    /// Filters of the files of a slot.
    pub(crate) fn chains(&self, slot: usize) -> Option<&FieldChains> {
        let attributes = self.schema.attributes.len();
        if slot < attributes {
            return self.schema.attributes.get(slot);
        }
        if self.is_zipped() {
            return Some(&self.schema.coords).filter(|_| slot == attributes);
        }
        self.schema.dims.get(slot.checked_sub(attributes + 1)?)
    }

    /// Size of its data files in bytes.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.footer.files.iter().flatten().fold(0, |n, b| n.saturating_add(*b))
    }

    /// Size of its metadata file in bytes.
    pub(crate) fn metadata_len(&self, reader: &MetadataLoader) -> Result<u64> {
        self.metadata_end(reader).map(|end| end.len)
    }

    /// Size of all its files in bytes.
    pub(crate) fn stored_bytes(&self, reader: &MetadataLoader) -> Result<u64> {
        Ok(self.metadata_end(reader)?.len.saturating_add(self.data_bytes()))
    }
}

/// File name of an attribute or dimension, without its ending: numbered since version 9, before that by name.
fn file_stem(version: u32, name: &str, kind: char, number: usize) -> String {
    match version {
        ..8 => name.to_owned(),
        // Percent-encoded, with the codes of this version: not all of them are those of the characters.
        8 => name.chars().fold(String::new(), |mut out, c| {
            let code = match c {
                '!' | '#' | '$' | '%' | '&' | '\'' | '(' | ')' | '*' | '+' | ',' | '/' | ':' | ';' | '='
                | '?' | '@' | '[' | ']' | '"' => format!("%{:02X}", u32::from(c)),
                '<' => "%20".to_owned(),
                '>' => "%2D".to_owned(),
                '\\' => "%30".to_owned(),
                '|' => "%3C".to_owned(),
                other => other.to_string(),
            };
            out.push_str(&code);
            out
        }),
        _ => format!("{kind}{number}"),
    }
}
