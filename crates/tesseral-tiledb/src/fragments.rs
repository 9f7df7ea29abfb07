//! The fragments that a read sees.

use std::sync::OnceLock;

use tesseral_core::{Error, Result};

use crate::fragment::{Fragment, MAX_TILES};
use crate::open::Opening;
use crate::reader::Reader;

/// Fragments, lowest layer first. Opening an array asks only for their names: with a thousand of them, reading every footer
/// would take most of the time, and many callers want the schema alone.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    opened: OnceLock<Opened>,
    /// How to open them.
    later: Option<Box<Opening>>,
}

/// Opened fragments and the names of their files.
#[derive(Debug, Default)]
struct Opened {
    fragments: Vec<Fragment>,
    objects: Vec<String>,
}

impl Opened {
    fn new(mut fragments: Vec<Fragment>) -> Result<Self> {
        /// What the number of a chunk has room for.
        const MOST: u64 = u64::MAX / MAX_TILES;
        if fragments.len() as u64 >= MOST {
            return Err(Error::limit("the fragments of an array", fragments.len() as u64, MOST));
        }
        let mut objects = Vec::new();
        for fragment in &mut fragments {
            fragment.objects = u32::try_from(objects.len()).map_err(|_| {
                Error::limit("the files of an array", objects.len() as u64, u64::from(u32::MAX))
            })?;
            objects.extend(fragment.object_names());
        }
        Ok(Self { fragments, objects })
    }
}

impl Fragments {
    /// Fragments that are open.
    pub(crate) fn of(fragments: Vec<Fragment>) -> Result<Self> {
        Ok(Self { opened: OnceLock::from(Opened::new(fragments)?), later: None })
    }

    /// Fragments that are opened when first asked for.
    pub(crate) fn later(opening: Opening) -> Self {
        Self { opened: OnceLock::new(), later: Some(Box::new(opening)) }
    }

    /// All of them.
    ///
    /// # Errors
    /// What opening one of them meets, each time it is asked for.
    pub(crate) fn get(&self, reader: &Reader) -> Result<&[Fragment]> {
        if let Some(opened) = self.opened.get() {
            return Ok(&opened.fragments);
        }
        let fragments =
            self.later.as_ref().map_or_else(|| Ok(Vec::new()), |later| later.fragments(reader))?;
        let opened = Opened::new(fragments)?;
        Ok(&self.opened.get_or_init(|| opened).fragments)
    }

    /// Whether there is a fragment of that name.
    pub(crate) fn contains(&self, name: &str) -> bool {
        match (self.opened.get(), &self.later) {
            (_, Some(later)) => later.visible.iter().any(|entry| entry.name == name),
            (Some(opened), None) => opened.fragments.iter().any(|fragment| fragment.entry.name == name),
            (None, None) => false,
        }
    }

    /// The name of a file; empty for numbers that no plan gave.
    pub(crate) fn object(&self, number: u32) -> &str {
        let objects = self.opened.get().map(|opened| &opened.objects);
        objects.and_then(|objects| objects.get(number as usize)).map_or("", String::as_str)
    }
}
