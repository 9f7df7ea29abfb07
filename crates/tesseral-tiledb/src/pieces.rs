//! The files of an array that is open: one that is not there is damage, not a name that somebody got wrong.

use std::ops::Range;
use std::sync::Arc;

use tesseral_core::{Error, ErrorKind, Result};
use tesseral_store::{Bytes, ObjectInfo, Overwrite, Staged, Store, StoreExt, Unpublished, Watch};

/// A store whose objects are pieces of one array.
#[derive(Debug)]
pub(crate) struct Pieces(pub Arc<dyn Store>);

impl Pieces {
    fn missing(&self, object: &str, error: Error) -> Error {
        // The mark of groups is looked for; everything else is relied on.
        let needed = !object.is_empty() && object != crate::group::MARKER;
        if !needed || !matches!(error.kind(), ErrorKind::NotFound { .. }) {
            return error;
        }
        Error::missing("a file of the array", self.0.describe(object), object)
    }
}

impl Store for Pieces {
    fn location(&self) -> &str {
        self.0.location()
    }

    fn len(&self, object: &str) -> Result<u64> {
        self.0.len(object).map_err(|e| self.missing(object, e))
    }

    fn read_many(&self, object: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.0.read_many(object, ranges).map_err(|e| self.missing(object, e))
    }

    fn resident(&self, object: &str) -> Result<Option<Bytes>> {
        self.0.resident(object).map_err(|e| self.missing(object, e))
    }

    fn view(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        self.0.view(object, range).map_err(|e| self.missing(object, e))
    }

    fn watch(&self) -> Result<Watch> {
        self.0.watch()
    }

    fn tails(&self, objects: &[String], most: u64) -> Result<Vec<(u64, Bytes)>> {
        self.0.tails(objects, most).map_err(|e| {
            // Which one is missing shows when they are asked for one by one.
            let missing = objects.iter().find_map(|object| self.len(object).err());
            missing.filter(|_| matches!(e.kind(), ErrorKind::NotFound { .. })).unwrap_or(e)
        })
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        self.0.list(folder)
    }

    fn leftovers(&self) -> Result<Vec<String>> {
        self.0.leftovers()
    }

    fn remove_leftovers(&self) -> Result<()> {
        self.0.remove_leftovers()
    }

    fn stage(&self, object: &str, overwrite: Overwrite) -> Result<Box<dyn Staged>> {
        self.0.stage(object, overwrite)
    }

    fn remove(&self, object: &str) -> Result<()> {
        self.0.remove(object)
    }

    fn remove_all(&self, object: &str) -> Result<()> {
        self.0.remove_all(object)
    }

    fn unpublished(&self, object: &str) -> Option<Unpublished> {
        self.0.unpublished(object)
    }
}
