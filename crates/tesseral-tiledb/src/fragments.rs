//! The visible fragments of an array.

use std::sync::OnceLock;

use tesseral_core::{Error, Result};

use crate::fragment::{Fragment, MAX_TILES};
use crate::metadata_loader::MetadataLoader;
use crate::open::ArrayListing;

/// Fragments, lowest layer first. Opening an array only lists their names: reading a thousand footers would take most of the
/// time, and many callers need only the schema.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    opened: OnceLock<OpenedFragments>,
    /// Loader that opens them on first use.
    later: Option<Box<ArrayListing>>,
}

/// Opened fragments, whose files are numbered.
#[derive(Debug, Default)]
struct OpenedFragments(Vec<Fragment>);

impl OpenedFragments {
    fn new(mut fragments: Vec<Fragment>) -> Result<Self> {
        /// Limit of the fragment index in a chunk id.
        const MOST: u64 = u64::MAX / MAX_TILES;
        if fragments.len() as u64 >= MOST {
            return Err(Error::limit("the fragments of an array", fragments.len() as u64, MOST));
        }
        let mut objects = 0_usize;
        for fragment in &mut fragments {
            let most = u64::from(u32::MAX);
            fragment.objects = u32::try_from(objects)
                .map_err(|_| Error::limit("the files of an array", objects as u64, most))?;
            objects = objects.saturating_add(fragment.object_count());
        }
        Ok(Self(fragments))
    }
}

impl Fragments {
    /// Creates a list of open fragments.
    pub(crate) fn from_opened(fragments: Vec<Fragment>) -> Result<Self> {
        Ok(Self { opened: OnceLock::from(OpenedFragments::new(fragments)?), later: None })
    }

    /// Creates a list of fragments that are opened on first use.
    pub(crate) fn later(opening: ArrayListing) -> Self {
        Self { opened: OnceLock::new(), later: Some(Box::new(opening)) }
    }

    /// Returns all fragments.
    ///
    /// # Errors
    /// Errors of opening a fragment, returned on each call.
    pub(crate) fn get(&self, reader: &MetadataLoader) -> Result<&[Fragment]> {
        if let Some(opened) = self.opened.get() {
            return Ok(&opened.0);
        }
        let fragments =
            self.later.as_ref().map_or_else(|| Ok(Vec::new()), |later| later.fragments(reader))?;
        let opened = OpenedFragments::new(fragments)?;
        Ok(&self.opened.get_or_init(|| opened).0)
    }

    /// Returns whether there are more fragments than `most`, and they are not open.
    pub(crate) fn exceeds(&self, most: usize) -> bool {
        self.opened.get().is_none() && self.later.as_ref().is_some_and(|later| later.visible.len() > most)
    }

    /// Opens some fragments by their layer, without keeping them.
    ///
    /// # Errors
    /// Errors of opening a fragment.
    pub(crate) fn open_some(&self, reader: &MetadataLoader, layers: &[usize]) -> Result<Vec<Fragment>> {
        match &self.later {
            Some(later) => later.fragments_of(reader, layers),
            None => Ok(Vec::new()),
        }
    }

    /// Returns whether a fragment with that name exists.
    pub(crate) fn contains(&self, name: &str) -> bool {
        match (self.opened.get(), &self.later) {
            (_, Some(later)) => later.visible.iter().any(|entry| entry.name == name),
            (Some(opened), None) => opened.0.iter().any(|fragment| fragment.entry.name == name),
            (None, None) => false,
        }
    }

    /// Name of a file; empty for an unknown index.
    pub(crate) fn object(&self, number: u32) -> &str {
        let Some(OpenedFragments(fragments)) = self.opened.get() else { return "" };
        let behind = fragments.partition_point(|fragment| fragment.objects <= number);
        fragments.get(behind.wrapping_sub(1)).map_or("", |fragment| fragment.object_name(number))
    }

    /// Calls `each` with every fragment, lowest layer first. Fragments that are not open yet are opened and dropped in batches.
    ///
    /// # Errors
    /// Errors of opening one of them, and of `each`.
    pub(crate) fn visit(
        &self,
        reader: &MetadataLoader,
        mut each: impl FnMut(&Fragment) -> Result<()>,
    ) -> Result<()> {
        self.visit_batches(reader, |fragments| fragments.iter().try_for_each(&mut each))
    }

    /// As [`Fragments::visit`], with the fragments that are open at the same time.
    ///
    /// # Errors
    /// As [`Fragments::visit`].
    pub(crate) fn visit_batches(
        &self,
        reader: &MetadataLoader,
        mut each: impl FnMut(&[Fragment]) -> Result<()>,
    ) -> Result<()> {
        match (self.opened.get(), &self.later) {
            (Some(opened), _) => each(&opened.0),
            (None, Some(later)) => later.visit(reader, &mut |fragments: Vec<Fragment>| each(&fragments)),
            (None, None) => Ok(()),
        }
    }
}
