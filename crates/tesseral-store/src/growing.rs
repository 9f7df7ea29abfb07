//! Files that others append to while they are read.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tesseral_core::Result;

use crate::guard::Watch;
use crate::store::{ObjectInfo, Overwrite, Staged, Store};
use crate::unpublished::Unpublished;

/// A store of files to which bytes may be appended at any time without a change to those before. Operations on it do not fail because a
/// file got longer.
#[derive(Debug)]
pub struct Growing(pub Arc<dyn Store>);

impl Store for Growing {
    fn location(&self) -> &str {
        self.0.location()
    }

    fn len(&self, object: &str) -> Result<u64> {
        self.0.len(object)
    }

    fn read_many(&self, object: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.0.read_many(object, ranges)
    }

    fn resident(&self, object: &str) -> Result<Option<Bytes>> {
        self.0.resident(object)
    }

    fn view(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        self.0.view(object, range)
    }

    fn watch(&self) -> Result<Watch> {
        self.0.watch().map(Watch::of_growing_files)
    }

    fn tails(&self, objects: &[String], most: u64) -> Result<Vec<(u64, Bytes)>> {
        self.0.tails(objects, most)
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
