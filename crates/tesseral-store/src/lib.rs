//! Byte stores: the storage layer of array data.
//!
//! A [`Store`] contains *objects*: byte sequences with relative names. A single file is a store with one object, whose name is
//! empty; a folder is a store of the files below it. Readers request many byte ranges at once ([`Store::read_many`]) or borrow
//! a resident object ([`Store::resident`]). Writers stage an object under a temporary name and publish it atomically
//! ([`Store::stage`]).
//!
//! ```
//! use tesseral_store::{MemoryStore, Store, StoreExt};
//!
//! let store = MemoryStore::new("demo");
//! store.insert("", b"0123456789".to_vec());
//! assert_eq!(&store.read("", 2..5)?[..], b"234");
//! # Ok::<(), tesseral_core::Error>(())
//! ```
#![deny(unsafe_code)]

mod append;
mod append_object;
mod buffer;
mod claim;
mod durability;
mod folder;
mod growing;
mod handles;
mod identity;
mod joined;
mod layer;
mod leftover;
mod local;
mod map;
mod memory;
#[cfg(feature = "remote")]
mod remote;
mod resolve;
mod rounds;
mod sigbus;
mod staged_path;
mod store;
pub mod test_wrappers;
mod together;
mod traffic;
mod unpublished;
mod writeback;

pub use append::{AppendFile, AppendTarget};
pub use append_object::AppendObject;
pub use buffer::Buffer;
pub use bytes::Bytes;
pub use claim::{CLAIM, Claim};
pub use durability::{Durability, Unsynced};
pub use growing::Growing;
pub use joined::{JoinedStore, StoreMembers};
pub use layer::StoreLayer;
pub use leftover::staging_name;
pub use local::{LocalStore, ReadMode};
pub use memory::MemoryStore;
#[cfg(feature = "remote")]
pub use remote::RemoteStore;
pub use resolve::{CacheFolder, Location, StorageOptions};
pub use rounds::Rounds;
pub use sigbus::OperationGuard;
pub use staged_path::{StagedPath, output_exists};
pub use store::{
    ByteRange, ObjectBytes, ObjectInfo, ObjectKind, Overwrite, Profile, Staged, Store, StoreExt, Upcoming,
};
pub use together::together;
pub use traffic::Traffic;
pub use unpublished::{Unpublished, abandon};
