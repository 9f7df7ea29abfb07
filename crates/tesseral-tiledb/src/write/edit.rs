//! Changes to an array beside further cells: deletes, attributes, evolution, and what keeps its folder small.

use std::collections::BTreeMap;
use std::sync::Arc;

use tesseral_core::condition::Condition;
use tesseral_core::{ArraySchema, Attributes, Error, Result, Value};
use tesseral_format::{Change, Consolidate, Consolidated, Edit, EditPart, OpenOptions, Vacuumed};
use tesseral_store::{Overwrite, Store, StoreExt};

use super::append::{Extent, open_for_write};
use super::{commits, consolidate, delete, evolve, names, vacuum};
use crate::convention;
use crate::open::Opening;
use crate::reader::{Reader, join};
use crate::wire::{generic_tile, metadata, trailer};

/// An array that is changed.
#[derive(Debug)]
pub(crate) struct TileDbEditor {
    store: Arc<dyn Store>,
    options: OpenOptions,
}

/// The array as it is when a change begins.
#[derive(Debug)]
pub(crate) struct Opened {
    pub store: Arc<dyn Store>,
    pub reader: Arc<Reader>,
    pub opening: Opening,
    pub schema: ArraySchema,
    /// Whether what is written carries digests.
    pub digests: bool,
}

impl Opened {
    /// Format version of what is written.
    pub(crate) fn version(&self) -> u32 {
        self.opening.current.wire.version
    }

    /// A name of something new: `__T1_T2_UUID`.
    pub(crate) fn timed(&self, start: u64, end: u64) -> String {
        names::timed(start, end, self.digests)
    }

    /// A name of something new: `__T1_T2_UUID_VER`.
    pub(crate) fn versioned(&self, start: u64, end: u64) -> String {
        names::versioned(start, end, self.version(), self.digests)
    }

    /// Publishes a generic tile, with a digest if its name promises one.
    pub(crate) fn put(&self, object: &str, payload: &[u8]) -> Result<()> {
        let bytes = generic_tile::file(object, self.version(), payload, self.reader.key.as_deref())?;
        self.store.put(object, &bytes, Overwrite::Refuse)
    }

    /// Publishes a file of text lines, with a digest if its name promises one.
    pub(crate) fn put_lines(&self, object: &str, lines: impl IntoIterator<Item = String>) -> Result<()> {
        let mut bytes = lines.into_iter().map(|line| line + "\n").collect::<String>().into_bytes();
        trailer::seal_lines(object, &mut bytes);
        self.store.put(object, &bytes, Overwrite::Refuse)
    }
}

impl TileDbEditor {
    pub(crate) fn open(store: &Arc<dyn Store>, options: &OpenOptions) -> Result<Self> {
        let editor = Self { store: Arc::clone(store), options: options.clone() };
        // What cannot be written is refused at once.
        editor.opened(Extent::Schema).map(|_| editor)
    }

    fn opened(&self, extent: Extent) -> Result<Opened> {
        let (reader, opening, schema) = open_for_write(&self.store, &self.options, extent)?;
        let digests = self.options.digests;
        Ok(Opened { store: Arc::clone(&self.store), reader, opening, schema, digests })
    }
}

/// Entries that set or remove attributes: each in the one form that holds it.
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
        delete::delete(&self.opened(Extent::Schema)?, condition, timestamp.unwrap_or_else(names::now))
    }

    fn set_attributes(
        &self,
        changes: &BTreeMap<String, Option<Value>>,
        timestamp: Option<u64>,
    ) -> Result<()> {
        let opened = self.opened(Extent::Schema)?;
        let entries = entries(changes);
        let mut payload = Vec::new();
        metadata::write(entries.iter().map(|(k, v)| (k.as_str(), v.as_ref())), &mut payload)?;
        let at = timestamp.unwrap_or_else(names::now);
        opened.put(&join("__meta", &opened.timed(at, at)), &payload)
    }

    fn change(&self, changes: &[Change], timestamp: Option<u64>) -> Result<()> {
        evolve::evolve(&self.opened(Extent::Schema)?, changes, timestamp.unwrap_or_else(names::now))
    }

    fn consolidate(&self, what: &Consolidate) -> Result<Consolidated> {
        if what.at_most.is_some_and(|most| most < 2) {
            return Err(Error::invalid("at least two versions make one"));
        }
        let opened = self.opened(Extent::Whole)?;
        match what.part {
            EditPart::Cells => consolidate::fragments(&opened, what),
            EditPart::Commits => commits::consolidate(&opened),
            EditPart::Footers => consolidate::footers(&opened),
            EditPart::Attributes => consolidate::attributes(&opened, what),
        }
    }

    fn vacuum(&self, part: EditPart, dry_run: bool) -> Result<Vacuumed> {
        let opened = self.opened(Extent::Whole)?;
        match part {
            EditPart::Cells => vacuum::fragments(&opened, dry_run),
            EditPart::Commits => commits::vacuum(&opened, dry_run),
            EditPart::Footers => vacuum::footers(&opened, dry_run),
            EditPart::Attributes => vacuum::attributes(&opened, dry_run),
        }
    }
}
