//! Several stores as one, for containers whose cells are in other files.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use tesseral_core::{Error, Result};

use crate::sigbus::OperationGuard;
use crate::store::{
    ByteRange, ObjectBytes, ObjectInfo, Overwrite, Profile, Staged, Store, StoreExt, Upcoming,
};
use crate::together::together;

/// The stores that a [`JoinedStore`] consists of: the container's own, and numbered members, opened when they are needed.
pub trait StoreMembers: Debug + Send + Sync {
    /// The store of the container itself.
    fn container_store(&self) -> &Arc<dyn Store>;

    /// A member.
    ///
    /// # Errors
    /// Errors of opening it.
    fn member(&self, number: u32) -> Result<Arc<dyn Store>>;

    /// How the stores are read best.
    fn profile(&self) -> Profile {
        self.container_store().profile()
    }
}

/// Several stores as one: object `7:name` is the object `name` of member 7, objects without a number are the container's own.
#[derive(Debug)]
pub struct JoinedStore<M> {
    members: Arc<M>,
}

impl JoinedStore<()> {
    /// Name of an object of a member.
    pub fn object(member: u32, name: &str) -> String {
        format!("{member}:{name}")
    }
}

impl<M: StoreMembers> JoinedStore<M> {
    /// Joins the members to one store.
    pub fn new(members: Arc<M>) -> Self {
        Self { members }
    }

    /// The number of an object's member, and the name of the object there.
    fn split(object: &str) -> (Option<u32>, &str) {
        let numbered = object.split_once(':').and_then(|(number, name)| Some((number.parse().ok()?, name)));
        numbered.map_or((None, object), |(number, name)| (Some(number), name))
    }

    fn store_of(&self, number: Option<u32>) -> Result<Arc<dyn Store>> {
        match number {
            Some(number) => self.members.member(number),
            None => Ok(Arc::clone(self.members.container_store())),
        }
    }

    /// The store of an object, and its name there.
    fn route<'a>(&self, object: &'a str) -> Result<(Arc<dyn Store>, &'a str)> {
        let (number, name) = Self::split(object);
        Ok((self.store_of(number)?, name))
    }

    /// Passes reads on to their stores, those of one store together and different stores at the same time.
    fn each_store<T: Send>(
        &self,
        reads: &[(&str, ByteRange)],
        read: impl Fn(&dyn Store, &[(&str, ByteRange)]) -> Result<Vec<T>> + Sync,
    ) -> Result<Vec<T>> {
        // By number: members are opened here, each of them once.
        let mut by_store: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
        for (at, (object, _)) in reads.iter().enumerate() {
            by_store.entry(Self::split(object).0).or_default().push(at);
        }
        let groups: Vec<(Option<u32>, Vec<usize>)> = by_store.into_iter().collect();
        let found = together(self, &groups, |(number, own)| {
            let store = self.store_of(*number)?;
            let part = |at: &usize| (Self::split(reads[*at].0).1, reads[*at].1.clone());
            read(&*store, &own.iter().map(part).collect::<Vec<_>>())
        });
        let mut out: Vec<Option<T>> = reads.iter().map(|_| None).collect();
        for ((_, own), found) in groups.iter().zip(found) {
            for (at, found) in own.iter().zip(found?) {
                out[*at] = Some(found);
            }
        }
        out.into_iter()
            .map(|found| found.ok_or_else(|| Error::internal("the store returned too few objects")))
            .collect()
    }
}

impl<M: StoreMembers> Store for JoinedStore<M> {
    fn location(&self) -> &str {
        self.members.container_store().location()
    }

    fn len(&self, object: &str) -> Result<u64> {
        let (store, name) = self.route(object)?;
        store.len(name)
    }

    fn read_many(&self, object: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (store, name) = self.route(object)?;
        store.read_many(name, ranges)
    }

    fn resident(&self, object: &str) -> Result<Option<Bytes>> {
        let (store, name) = self.route(object)?;
        store.resident(name)
    }

    fn view(&self, object: &str, range: Range<u64>) -> Result<Bytes> {
        let (store, name) = self.route(object)?;
        store.view(name, range)
    }

    fn release(&self, object: &str) {
        if let Ok((store, name)) = self.route(object) {
            store.release(name);
        }
    }

    fn watch(&self) -> Result<OperationGuard> {
        self.members.container_store().watch()
    }

    fn read_objects(&self, reads: &[(&str, ByteRange)]) -> Result<Vec<ObjectBytes>> {
        self.each_store(reads, |store, reads| store.read_objects(reads))
    }

    fn read_existing(&self, reads: &[(&str, ByteRange)]) -> Result<Vec<Option<ObjectBytes>>> {
        self.each_store(reads, |store, reads| store.read_existing(reads))
    }

    fn etag(&self, object: &str) -> Option<String> {
        let (store, name) = self.route(object).ok()?;
        store.etag(name)
    }

    fn prefetch(&self, upcoming: &[Upcoming]) {
        let mut by_store: BTreeMap<Option<u32>, Vec<Upcoming>> = BTreeMap::new();
        for next in upcoming {
            if let Upcoming::Bytes(object, part) = next {
                let (number, name) = Self::split(object);
                by_store.entry(number).or_default().push(Upcoming::Bytes(name.to_owned(), part.clone()));
            }
        }
        together(self, &by_store.into_iter().collect::<Vec<_>>(), |(number, own)| {
            // The read that follows reports a store that cannot be opened.
            if let Ok(store) = self.store_of(*number) {
                store.prefetch(own);
            }
        });
    }

    fn beside(&self, name: &str) -> Result<Arc<dyn Store>> {
        self.members.container_store().beside(name)
    }

    fn profile(&self) -> Profile {
        self.members.profile()
    }

    fn list(&self, folder: &str) -> Result<Vec<ObjectInfo>> {
        self.members.container_store().list(folder)
    }

    fn stage(&self, object: &str, _overwrite: Overwrite) -> Result<Box<dyn Staged>> {
        Err(Error::unsupported(format!(
            "writing {:?} through a container of several files",
            self.describe(object)
        )))
    }

    fn remove(&self, object: &str) -> Result<()> {
        Err(Error::unsupported(format!(
            "removing {:?} through a container of several files",
            self.describe(object)
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryStore;

    #[derive(Debug)]
    struct Two(Arc<dyn Store>, Arc<dyn Store>);

    impl StoreMembers for Two {
        fn container_store(&self) -> &Arc<dyn Store> {
            &self.0
        }

        fn member(&self, number: u32) -> Result<Arc<dyn Store>> {
            match number {
                4 => Ok(Arc::clone(&self.1)),
                _ => Err(Error::not_found("member", number.to_string(), Vec::new())),
            }
        }
    }

    #[test]
    fn files_beside_a_store_stay_in_its_folder() {
        let memory = MemoryStore::with_object("folder/a", b"a".to_vec());
        memory.insert("b/c", b"abc".to_vec());
        assert_eq!(memory.beside("b/c").unwrap().len("").unwrap(), 3);
        assert!(memory.beside("d").unwrap().len("").is_err());
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("b"), b"abc").unwrap();
        let local = crate::LocalStore::new(folder.path().join("a"), crate::ReadMode::Map);
        assert_eq!(&local.beside("b").unwrap().read("", 1..3).unwrap()[..], b"bc");
        for outside in ["", "../b", "/b", "./b", "c//b", "b\0"] {
            assert!(local.beside(outside).is_err() && memory.beside(outside).is_err(), "{outside:?}");
        }
    }

    #[test]
    fn objects_with_a_number_are_those_of_a_member() {
        let inner = MemoryStore::new("inner");
        inner.insert("2:a", b"abc".to_vec());
        let own = MemoryStore::with_object("own", b"0123".to_vec());
        let store = JoinedStore::new(Arc::new(Two(Arc::new(own), Arc::new(inner))));
        assert_eq!(store.len("").unwrap(), 4);
        assert_eq!(&store.read(&JoinedStore::object(4, "2:a"), 1..3).unwrap()[..], b"bc");
        let both =
            [("4:2:a", ByteRange::Prefix(1)), ("", ByteRange::Suffix(1)), ("4:2:a", ByteRange::Suffix(1))];
        let read: Vec<_> = store.read_objects(&both).unwrap().into_iter().map(|part| part.bytes).collect();
        assert_eq!(read, [&b"a"[..], b"3", b"c"]);
        let existing = store.read_existing(&[("4:b", ByteRange::Whole), ("", ByteRange::Whole)]).unwrap();
        assert!(existing[0].is_none() && existing[1].is_some());
        assert!(store.len("5:a").is_err() && store.stage("", Overwrite::Refuse).is_err());
    }
}
