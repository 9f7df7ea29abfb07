//! Edits of an array other than appends: deletes, attributes, schema evolution, consolidation, vacuum.

use std::collections::BTreeMap;
use std::sync::Arc;

use tesseral_core::condition::Condition;
use tesseral_core::{ArraySchema, Attributes, Error, Result, Value};
use tesseral_format::{Change, Consolidate, Consolidated, Edit, MaintenancePart, OpenOptions, Vacuumed};
use tesseral_store::{Overwrite, Store, StoreExt};

use super::append::{AppendExtent, open_for_write};
use super::{commits, consolidate, delete, evolve, timestamped_name, vacuum};
use crate::convention;
use crate::metadata_loader::{MetadataLoader, join};
use crate::open::ArrayListing;
use crate::wire::{generic_tile, metadata, trailer};

/// An array being edited.
#[derive(Debug)]
pub(crate) struct TileDbEditor {
    store: Arc<dyn Store>,
    options: OpenOptions,
}

/// The array when an edit begins.
#[derive(Debug)]
pub(crate) struct ArraySnapshot {
    pub store: Arc<dyn Store>,
    pub reader: Arc<MetadataLoader>,
    pub opening: ArrayListing,
    pub schema: ArraySchema,
    /// Whether new files have digests.
    pub digests: bool,
}

impl ArraySnapshot {
    /// Format version of new files.
    pub(crate) fn version(&self) -> u32 {
        self.opening.current.wire.version
    }

    /// Returns a new name: `__T1_T2_UUID`.
    pub(crate) fn timed(&self, start: u64, end: u64) -> String {
        timestamped_name::timed(start, end, self.digests)
    }

    /// Returns a new name: `__T1_T2_UUID_VER`.
    pub(crate) fn versioned(&self, start: u64, end: u64) -> String {
        timestamped_name::versioned(start, end, self.version(), self.digests)
    }

    /// Publishes a generic tile, with a digest if its name announces one.
    pub(crate) fn put(&self, object: &str, payload: &[u8]) -> Result<()> {
        let bytes = generic_tile::file(object, self.version(), payload, self.reader.key.as_deref())?;
        self.store.put(object, &bytes, Overwrite::Refuse)
    }

    /// Publishes a file of text lines, with a digest if its name announces one.
    pub(crate) fn put_lines(&self, object: &str, lines: impl IntoIterator<Item = String>) -> Result<()> {
        let mut bytes = lines.into_iter().map(|line| line + "\n").collect::<String>().into_bytes();
        trailer::seal_lines(object, &mut bytes);
        self.store.put(object, &bytes, Overwrite::Refuse)
    }
}

impl TileDbEditor {
    pub(crate) fn open(store: &Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let editor = Self { store: Arc::clone(store), options: options.clone() };
        // Reject unsupported versions first.
        editor.opened(AppendExtent::Schema).map(|_| editor)
    }

    fn opened(&self, extent: AppendExtent) -> Result<ArraySnapshot> {
        let (reader, opening, schema) = open_for_write(&self.store, &self.options, extent, None)?;
        let digests = self.options.digests;
        Ok(ArraySnapshot { store: Arc::clone(&self.store), reader, opening, schema, digests })
    }
}

/// Returns the entries that set or remove attributes.
fn entries(changes: &BTreeMap<String, Option<Value>>) -> Vec<(String, Option<Value>)> {
    let mut out: BTreeMap<String, Option<Value>> = BTreeMap::new();
    for (key, value) in changes {
        for form in convention::forms(key) {
            out.insert(form, None);
        }
        if let Some(value) = value {
            let mut one = Attributes::new();
            convention::put(&mut one, "", key, value);
            out.extend(one.into_iter().map(|(k, v)| (k, Some(v))));
        }
    }
    out.into_iter().collect()
}

impl Edit for TileDbEditor {
    fn delete(&self, condition: &Condition, timestamp: Option<u64>) -> Result<()> {
        delete::delete(
            &self.opened(AppendExtent::Schema)?,
            condition,
            timestamp.unwrap_or_else(timestamped_name::now),
        )
    }

    fn set_attributes(
        &self,
        changes: &BTreeMap<String, Option<Value>>,
        timestamp: Option<u64>,
    ) -> Result<()> {
        let opened = self.opened(AppendExtent::Schema)?;
        let entries = entries(changes);
        let mut payload = Vec::new();
        metadata::write(entries.iter().map(|(k, v)| (k.as_str(), v.as_ref())), &mut payload)?;
        let at = timestamp.unwrap_or_else(timestamped_name::now);
        opened.put(&join("__meta", &opened.timed(at, at)), &payload)
    }

    fn change(&self, changes: &[Change], timestamp: Option<u64>) -> Result<()> {
        evolve::evolve(
            &self.opened(AppendExtent::Schema)?,
            changes,
            timestamp.unwrap_or_else(timestamped_name::now),
        )
    }

    fn consolidate(&self, what: &Consolidate) -> Result<Consolidated> {
        if what.at_most.is_some_and(|most| most < 2) {
            return Err(Error::invalid("merging requires at least two versions"));
        }
        let opened = self.opened(AppendExtent::Whole)?;
        match what.part {
            MaintenancePart::Fragments => consolidate::fragments(&opened, what),
            MaintenancePart::Commits => commits::consolidate(&opened),
            MaintenancePart::FragmentMetadata => consolidate::footers(&opened),
            MaintenancePart::Attributes => consolidate::attributes(&opened, what),
        }
    }

    fn vacuum(&self, part: MaintenancePart, dry_run: bool) -> Result<Vacuumed> {
        let opened = self.opened(AppendExtent::Whole)?;
        match part {
            MaintenancePart::Fragments => vacuum::fragments(&opened, dry_run),
            MaintenancePart::Commits => commits::vacuum(&opened, dry_run),
            MaintenancePart::FragmentMetadata => vacuum::footers(&opened, dry_run),
            MaintenancePart::Attributes => vacuum::attributes(&opened, dry_run),
        }
    }
}
